//! Packages: ZIP files of bitstreams with a manifest (the core, sections 11 and 13).
//!
//! A package is a file on disk and stays there: its members are read from it one by one, or several at once. Nothing is
//! ever unpacked under a name of the package's choosing. A package is as hostile as anything else from outside: it is
//! opened in bounded memory, and no member of it can grow beyond what its directory says.

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
use std::io::BufRead;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use url::Url;

use self::directory::{Directory, Place};
pub use self::error::PackageError;
pub use self::member::Member;
pub use self::partial::PartialPackage;
use crate::protocol::DocumentReader;

/// How many members a package may have.
const MOST_MEMBERS: usize = 1_000_000;

/// How deep a path may be, and still be looked for without some of its folders.
const DEEPEST_REBASED: usize = 64;

/// A package that is on disk. A copy is the same package; its members can be read at the same time.
///
/// Everything here blocks for reading from disk.
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
    /// [`PackageError::Unsupported`] when it is no ZIP file, [`PackageError::Damaged`], [`PackageError::TooManyMembers`],
    /// [`PackageError::Io`].
    pub fn open(file: File) -> Result<Self, PackageError> {
        let length = file.metadata().map_err(PackageError::Io)?.len();
        let starts_as_zip = refuse_other_formats(&file)?;
        let file = Arc::new(file);
        let directory =
            Directory::read(&file, length, MOST_MEMBERS).map_err(|error| match error {
                // Whatever it is, it is not a ZIP file that something happened to.
                PackageError::Damaged(_) if !starts_as_zip => {
                    PackageError::Unsupported("something unknown")
                }
                error => error,
            })?;
        Ok(Self {
            file,
            length,
            directory: Arc::new(directory),
        })
    }

    /// Reads its manifest from the beginning: `manifest.xml` at the top, of `limit` bytes at most. Relative URIs are
    /// resolved against `base`, the URI of the package.
    ///
    /// What the reader says of bytes that can't be had may be the package's fault: [`PackageError::from`] tells.
    ///
    /// # Errors
    /// [`PackageError::NoManifest`], [`PackageError::TooLarge`], [`PackageError::Manifest`], and those of
    /// [`Package::member`].
    pub fn manifest(
        &self,
        base: &Url,
        limit: u64,
    ) -> Result<DocumentReader<impl BufRead + use<>>, PackageError> {
        let member = self.open_member(self.directory.manifest()?, false)?;
        if member.length() > limit {
            return Err(PackageError::TooLarge { limit });
        }
        Ok(DocumentReader::open(member.buffered(), base)?)
    }

    /// Opens the member that a manifest's `path` means.
    ///
    /// Slashes at the beginning, `./` and the direction of slashes don't matter. Where no member has that name, leaving out
    /// folders may help: see [`Member::is_rebased`].
    ///
    /// # Errors
    /// [`PackageError::NoMember`], [`PackageError::AmbiguousMember`], [`PackageError::Encrypted`],
    /// [`PackageError::Compression`], [`PackageError::Expansion`], [`PackageError::BadMember`], [`PackageError::Io`].
    pub fn member(&self, path: &str) -> Result<Member, PackageError> {
        let segments = name::segments(path);
        if let Some(place) = only(self.directory.named(&segments).iter(), path)? {
            return self.open_member(place, false);
        }
        let by_path = self.without_folders_of_path(&segments);
        let by_name = self.without_folders_of_names(&segments);
        match only(by_path.iter().chain(by_name), path)? {
            Some(place) => self.open_member(place, true),
            None => Err(PackageError::NoMember(path.to_owned())),
        }
    }

    /// How many members it has, folders and the manifest among them.
    pub fn members(&self) -> usize {
        self.directory.len()
    }

    /// The members whose name is what is left of the path without folders at its beginning, as few of them as possible.
    fn without_folders_of_path(&self, path: &[&str]) -> &[Place] {
        // Where the package knows the folder, something is missing from it, and nothing else will do.
        if path.len() > DEEPEST_REBASED
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

    /// The members that have the path as their name, without folders that all members are in.
    fn without_folders_of_names(&self, path: &[&str]) -> impl Iterator<Item = &Place> {
        let common = self.directory.common_folder();
        let deepest = path.len().max(common.len());
        let folders = if path.is_empty() || deepest > DEEPEST_REBASED {
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

    fn open_member(&self, place: &Place, is_rebased: bool) -> Result<Member, PackageError> {
        Member::open(&self.file, place, is_rebased)
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

/// The one of them, if there is one; several are one if they have the same bytes.
fn only<'a>(
    mut places: impl Iterator<Item = &'a Place>,
    path: &str,
) -> Result<Option<&'a Place>, PackageError> {
    let Some(first) = places.next() else {
        return Ok(None);
    };
    if places.all(|other| other.same_bytes(first)) {
        return Ok(Some(first));
    }
    Err(PackageError::AmbiguousMember(path.to_owned()))
}

/// What ZIP files usually begin with: a member, the end of one without members, or the mark of one in several pieces.
const ZIP: [&[u8]; 3] = [b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"];

/// What else is served as a package, by what it begins with. Such a file may end as a ZIP file does, but it is none.
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

/// Where a tar file says that it is one, and how.
const TAR: (usize, &[u8]) = (257, b"ustar");

/// Whether it begins as ZIP files usually do; an error if it begins as something else.
fn refuse_other_formats(file: &File) -> Result<bool, PackageError> {
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
        return Err(PackageError::Unsupported("nothing at all"));
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
