//! Packages whose members have the names of files, as those of ZIP and of tar: how the path in a manifest finds one.

use std::fs::File;
use std::sync::Arc;

use super::directory::{Directory, Method, Stored, only, segments};
use super::error::PackageError;
use super::format::Archive;
use super::member::MemberReader;

/// The maximum depth of a path that is also searched without some of its folders.
const MAX_REBASED_DEPTH: usize = 64;

/// The members by their names.
pub(super) struct FileTree {
    pub(super) file: Arc<File>,
    pub(super) directory: Directory,
    /// Opens the member of an entry: [`Method::Stored`] or [`Method::Deflated`].
    pub(super) open_bytes: fn(&Arc<File>, &Stored) -> Result<MemberReader, PackageError>,
}

impl Archive for FileTree {
    fn manifest(&self) -> Result<MemberReader, PackageError> {
        self.open(self.directory.manifest()?)
    }

    /// Leading slashes, `./` and the direction of slashes are ignored. If no member has that name, it is searched without
    /// leading folders: see [`MemberReader::is_rebased`].
    fn member(&self, path: &str) -> Result<MemberReader, PackageError> {
        let segments = segments(path);
        if let Some(stored) = only(self.directory.named(&segments), path)? {
            return self.open(stored);
        }
        match only(self.rebased(&segments), path)? {
            Some(stored) => Ok(self.open(stored)?.rebased()),
            None => Err(PackageError::NoMember(path.to_owned())),
        }
    }

    fn members(&self) -> usize {
        self.directory.len()
    }
}

impl FileTree {
    fn open(&self, stored: &Stored) -> Result<MemberReader, PackageError> {
        let bad = |reason: &str| Err(PackageError::BadMember(reason.to_owned()));
        match stored.method {
            Method::Stored | Method::Deflated => (self.open_bytes)(&self.file, stored),
            Method::Encrypted => Err(PackageError::Encrypted),
            Method::Unknown(method) => Err(PackageError::Compression(method)),
            Method::Outside => bad("its name leads out of the package"),
            Method::Folder | Method::NotFile => bad("not a file"),
        }
    }

    /// The members whose name is the path without leading folders, as few of them as possible; and those whose name is the path, without
    /// leading folders that all members have in common.
    fn rebased<'a>(&'a self, path: &[&str]) -> impl Iterator<Item = &'a Stored> {
        let common = self.directory.common_folder();
        let is_searched = path.len().max(common.len()) <= MAX_REBASED_DEPTH;
        // If the package has the folder, the member is missing from it.
        let has_folder = path
            .first()
            .is_none_or(|top| self.directory.has_folder(top));
        let starts = 1..if is_searched && !has_folder {
            path.len()
        } else {
            0
        };
        let mut by_path = starts.map(|start| self.directory.named(&path[start..]).peekable());
        let by_path = by_path.find_map(|mut found| found.peek().is_some().then_some(found));
        let is_searched = is_searched && !path.is_empty();
        let folders = 1..=if is_searched { common.len() } else { 0 };
        let by_name = folders.flat_map(move |length| {
            let folder = common[..length].iter().map(String::as_str);
            let name: Vec<&str> = folder.chain(path.iter().copied()).collect();
            self.directory.named(&name)
        });
        by_path.into_iter().flatten().chain(by_name)
    }
}
