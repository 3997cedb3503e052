//! Packages whose members have the names of files, as those of ZIP and of tar: how the path in a manifest finds one.

use super::archive::Archive;
use super::directory::{Directory, Method, Stored};
use super::error::PackageError;
use super::member::MemberReader;
use super::name;

/// The maximum depth of a path that is also searched without some of its folders.
const MAX_REBASED_DEPTH: usize = 64;

/// How a format stores the bytes of a member.
pub(super) trait OpenStored: Send + Sync {
    /// Opens the member of an entry: [`Method::Stored`] or [`Method::Deflated`].
    fn open(&self, stored: &Stored) -> Result<MemberReader, PackageError>;
}

/// The members by their names.
pub(super) struct FileTree<B> {
    pub(super) directory: Directory,
    pub(super) bytes: B,
}

impl<B: OpenStored> Archive for FileTree<B> {
    fn manifest(&self) -> Result<MemberReader, PackageError> {
        self.open(self.directory.manifest()?)
    }

    /// Leading slashes, `./` and the direction of slashes are ignored. If no member has that name, it is searched without
    /// leading folders: see [`MemberReader::is_rebased`].
    fn member(&self, path: &str) -> Result<MemberReader, PackageError> {
        let segments = name::segments(path);
        if let Some(stored) = only(self.directory.named(&segments), path)? {
            return self.open(stored);
        }
        let by_path = self.without_folders_of_path(&segments);
        let by_name = self.without_folders_of_names(&segments);
        match only(by_path.chain(by_name), path)? {
            Some(stored) => Ok(self.open(stored)?.rebased()),
            None => Err(PackageError::NoMember(path.to_owned())),
        }
    }

    fn members(&self) -> usize {
        self.directory.len()
    }
}

impl<B: OpenStored> FileTree<B> {
    fn open(&self, stored: &Stored) -> Result<MemberReader, PackageError> {
        let bad = |reason: &str| Err(PackageError::BadMember(reason.to_owned()));
        match stored.method {
            Method::Stored | Method::Deflated => self.bytes.open(stored),
            Method::Encrypted => Err(PackageError::Encrypted),
            Method::Unknown(method) => Err(PackageError::Compression(method)),
            Method::Outside => bad("its name leads out of the package"),
            Method::Folder | Method::NotFile => bad("not a file"),
        }
    }

    /// The members whose name is the path without leading folders, as few of them as possible.
    fn without_folders_of_path<'a>(
        &'a self,
        path: &[&str],
    ) -> impl Iterator<Item = &'a Stored> + use<'a, B> {
        // If the package has the folder, the member is missing from it.
        let is_missing = path.len() > MAX_REBASED_DEPTH
            || path
                .first()
                .is_none_or(|top| self.directory.has_folder(top));
        let starts = if is_missing { 0 } else { path.len() };
        let mut found = (1..starts).map(|start| self.directory.named(&path[start..]).peekable());
        let found = found.find_map(|mut found| found.peek().is_some().then_some(found));
        found.into_iter().flatten()
    }

    /// The members whose name is the path, without leading folders that all members have in common.
    fn without_folders_of_names<'a>(&'a self, path: &[&str]) -> impl Iterator<Item = &'a Stored> {
        let common = self.directory.common_folder();
        let deepest = path.len().max(common.len());
        let folders = if path.is_empty() || deepest > MAX_REBASED_DEPTH {
            0
        } else {
            common.len()
        };
        (1..=folders).flat_map(move |length| {
            let folder = common[..length].iter().map(String::as_str);
            let name: Vec<&str> = folder.chain(path.iter().copied()).collect();
            self.directory.named(&name)
        })
    }
}

/// The only one of the members, if there is any. Several with the same bytes count as one; others are ambiguous.
fn only<'a>(
    mut entries: impl Iterator<Item = &'a Stored>,
    path: &str,
) -> Result<Option<&'a Stored>, PackageError> {
    let Some(first) = entries.next() else {
        return Ok(None);
    };
    if entries.all(|other| other.same_bytes(first)) {
        return Ok(Some(first));
    }
    Err(PackageError::AmbiguousMember(path.to_owned()))
}
