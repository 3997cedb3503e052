//! Packages: ZIP files of resources with a manifest (sections 11 and 13).
//!
//! A package is a file on disk; its members are read from it one by one, or concurrently. Nothing is unpacked under a name from
//! the package. A package is untrusted: it is opened in bounded memory, and no member can grow beyond the length in the
//! directory.

mod directory;
mod download;
mod error;
mod member;
mod name;
mod partial;
mod records;
mod section;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use self::directory::{Directory, MemberEntry};
pub use self::error::PackageError;
pub use self::member::MemberReader;
pub use self::partial::PartialPackage;
use super::document::OwnedReader;
use crate::protocol::{BaseUri, DocumentReader};

/// The maximum number of members of a package.
const MAX_MEMBERS: usize = 1_000_000;

/// The maximum depth of a path that is also searched without some of its folders.
const MAX_REBASED_DEPTH: usize = 64;

/// A package on disk. A clone is the same package; its members can be read concurrently.
///
/// All functions block for reading from disk.
#[derive(Clone)]
pub struct Package {
    file: Arc<File>,
    length: u64,
    directory: Arc<Directory>,
}

impl Package {
    /// Opens a package and reads its directory.
    ///
    /// # Errors
    /// [`PackageError::Unsupported`] if it is not a ZIP file, [`PackageError::Damaged`], [`PackageError::TooManyMembers`],
    /// [`PackageError::Io`].
    pub fn open(file: File) -> Result<Self, PackageError> {
        let length = file.metadata().map_err(PackageError::Io)?.len();
        let starts_as_zip = reject_other_formats(&file)?;
        let file = Arc::new(file);
        let directory =
            Directory::read(&file, length, MAX_MEMBERS).map_err(|error| match error {
                // It is another format, not a damaged ZIP file.
                PackageError::Damaged(_) if !starts_as_zip => {
                    PackageError::Unsupported("an unknown format")
                }
                error => error,
            })?;
        Ok(Self {
            file,
            length,
            directory: Arc::new(directory),
        })
    }

    /// Opens its manifest, `manifest.xml` at the top, of at most `limit` bytes. Relative URIs are resolved against `base`, the
    /// URI of the package.
    ///
    /// An I/O error of the reader may be an error of the package: convert it with [`PackageError::from`].
    ///
    /// # Errors
    /// [`PackageError::NoManifest`], [`PackageError::TooLarge`], [`PackageError::Manifest`], and those of
    /// [`Package::member`].
    pub fn manifest<'a>(
        &self,
        base: impl Into<BaseUri<'a>>,
        limit: u64,
    ) -> Result<OwnedReader, PackageError> {
        let member = self.open_member(self.directory.manifest()?, false)?;
        if member.length() > limit {
            return Err(PackageError::TooLarge { limit });
        }
        Ok(DocumentReader::open(member.buffered(), base)?)
    }

    /// Opens the member that the `path` in a manifest refers to.
    ///
    /// Leading slashes, `./` and the direction of slashes are ignored. If no member has that name, it is searched without
    /// leading folders: see [`MemberReader::is_rebased`].
    ///
    /// # Errors
    /// [`PackageError::NoMember`], [`PackageError::AmbiguousMember`], [`PackageError::Encrypted`],
    /// [`PackageError::Compression`], [`PackageError::Expansion`], [`PackageError::BadMember`], [`PackageError::Io`].
    pub fn member(&self, path: &str) -> Result<MemberReader, PackageError> {
        let segments = name::segments(path);
        if let Some(entry) = only(self.directory.named(&segments).iter(), path)? {
            return self.open_member(entry, false);
        }
        let by_path = self.without_folders_of_path(&segments);
        let by_name = self.without_folders_of_names(&segments);
        match only(by_path.iter().chain(by_name), path)? {
            Some(entry) => self.open_member(entry, true),
            None => Err(PackageError::NoMember(path.to_owned())),
        }
    }

    /// The number of members, including folders and the manifest.
    pub fn members(&self) -> usize {
        self.directory.len()
    }

    /// The members whose name is the path without leading folders, as few of them as possible.
    fn without_folders_of_path(&self, path: &[&str]) -> &[MemberEntry] {
        // If the package has the folder, the member is missing from it.
        if path.len() > MAX_REBASED_DEPTH
            || path
                .first()
                .is_none_or(|top| self.directory.has_folder(top))
        {
            return &[];
        }
        (1..path.len())
            .map(|start| self.directory.named(&path[start..]))
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }

    /// The members whose name is the path, without leading folders that all members have in common.
    fn without_folders_of_names(&self, path: &[&str]) -> impl Iterator<Item = &MemberEntry> {
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

    fn open_member(
        &self,
        entry: &MemberEntry,
        is_rebased: bool,
    ) -> Result<MemberReader, PackageError> {
        MemberReader::open(&self.file, entry, is_rebased)
    }
}

impl fmt::Debug for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Package")
            .field("length", &self.length)
            .field("members", &self.members())
            .finish_non_exhaustive()
    }
}

/// The only one of the members, if there is any. Several with the same bytes count as one; others are ambiguous.
fn only<'a>(
    mut entries: impl Iterator<Item = &'a MemberEntry>,
    path: &str,
) -> Result<Option<&'a MemberEntry>, PackageError> {
    let Some(first) = entries.next() else {
        return Ok(None);
    };
    if entries.all(|other| other.same_bytes(first)) {
        return Ok(Some(first));
    }
    Err(PackageError::AmbiguousMember(path.to_owned()))
}

/// The usual signatures of ZIP files: a member, the end of an empty one, or the mark of a split one.
const ZIP: [&[u8]; 3] = [b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"];

/// Other formats that are served as packages, by their signatures. Such a file may end like a ZIP file, but is none.
const OTHER_FORMATS: [(&[u8], &str); 8] = [
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!", "rar"),
    (b"<", "HTML or XML"),
    (b"{", "JSON"),
];

/// The position and signature of a tar file.
const TAR: (usize, &[u8]) = (257, b"ustar");

/// Whether a file has a usual signature of ZIP files; an error if it has that of another format.
fn reject_other_formats(file: &File) -> Result<bool, PackageError> {
    let mut start = [0; 512];
    let mut read = 0;
    while read < start.len() {
        match file.read_at(&mut start[read..], read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(PackageError::Io(error)),
        }
    }
    let start = &start[..read];
    if ZIP.iter().any(|beginning| start.starts_with(beginning)) {
        return Ok(true);
    }
    if start.is_empty() {
        return Err(PackageError::Unsupported("empty"));
    }
    if start
        .get(TAR.0..)
        .is_some_and(|from| from.starts_with(TAR.1))
    {
        return Err(PackageError::Unsupported("tar"));
    }
    let text = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start);
    let text = text.trim_ascii_start();
    for (beginning, name) in OTHER_FORMATS {
        if start.starts_with(beginning) || text.starts_with(beginning) {
            return Err(PackageError::Unsupported(name));
        }
    }
    Ok(false)
}
