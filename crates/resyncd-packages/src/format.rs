//! The formats of packages: a file is known by its first bytes.
//!
//! A format is a file with a [`Format`]; adding one changes nothing else. The type that a dump states says only whether it is worth fetching: what was fetched says what it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use url::Url;

use super::error::PackageError;
use super::member::MemberReader;
use super::unpacked::{PackageCoding, Room};
use super::{tar, warc, zip};

/// The maximum number of members of a package.
pub(super) const MAX_MEMBERS: usize = 1_000_000;

/// A format of packages.
pub(super) struct Format {
    /// Whether a file of the format begins so.
    pub(super) begins: fn(&[u8]) -> bool,
    /// Opens a file of this length.
    pub(super) open: fn(&Arc<File>, u64) -> Opened,
}

/// An open package; `None`: it must be decompressed as a whole first.
pub(super) type Opened = Result<Option<Arc<dyn Archive>>, PackageError>;

/// The members of an open package. They can be read concurrently.
pub(super) trait Archive: Send + Sync {
    /// Names the member that is the manifest, as the entry of the package does (`contents`). It changes nothing if there is no such
    /// member, or it is no manifest.
    fn name_manifest(&mut self, _uri: &Url) {}

    /// Opens the manifest.
    fn manifest(&self) -> Result<MemberReader, PackageError>;

    /// Opens the member that the path in a manifest refers to.
    fn member(&self, path: &str) -> Result<MemberReader, PackageError>;

    /// The path that finds the member of a resource: the one that a manifest states, unless the format finds it by the URI.
    fn path_of(&self, path: Option<String>, _uri: &str) -> Option<String> {
        path
    }

    /// Whether the manifest is made of what the members state.
    fn makes_manifest(&self) -> bool {
        false
    }

    /// The number of members, including folders and the manifest.
    fn members(&self) -> usize;
}

/// The formats that are read.
const FORMATS: [&Format; 3] = [&zip::FORMAT, &tar::FORMAT, &warc::FORMAT];

/// Other formats that are served as packages, by their signatures. Such a file may end like a ZIP file, but is none.
const OTHER_FORMATS: [(&[u8], &str); 6] = [
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!", "rar"),
    (b"<", "HTML or XML"),
    (b"{", "JSON"),
];

/// Opens a package in any of the formats. One that is compressed as a whole is unpacked first.
pub(super) fn open(file: File, room: &Room<'_>) -> Result<Arc<dyn Archive>, PackageError> {
    let file = Arc::new(file);
    let start = beginning(&file)?;
    if let Some(archive) = open_begun(&file, &start)? {
        return Ok(archive);
    }
    if let Some(coding) = PackageCoding::of(&start) {
        let unpacked = Arc::new(coding.unpack(&file, length(&file)?, room)?);
        let start = beginning(&unpacked)?;
        let archive = open_begun(&unpacked, &start)?;
        return archive.ok_or(PackageError::Unsupported(coding.of_unknown()));
    }
    if let Some(name) = other_format(&start) {
        return Err(PackageError::Unsupported(name));
    }
    // Something may precede a ZIP file.
    zip::open(&file, length(&file)?).map_err(|error| match error {
        // It is another format, not a damaged ZIP file.
        PackageError::Damaged(_) => PackageError::Unsupported("an unknown format"),
        error => error,
    })
}

/// Opens a file in the format that it begins with; `None` if that is none.
fn open_begun(file: &Arc<File>, start: &[u8]) -> Opened {
    let format = FORMATS.into_iter().find(|format| (format.begins)(start));
    match format {
        Some(format) => (format.open)(file, length(file)?),
        None => Ok(None),
    }
}

fn other_format(start: &[u8]) -> Option<&'static str> {
    if start.is_empty() {
        return Some("empty");
    }
    let text = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start);
    let text = text.trim_ascii_start();
    let begins = |sign: &[u8]| start.starts_with(sign) || text.starts_with(sign);
    let found = OTHER_FORMATS.iter().find(|(sign, _)| begins(sign));
    found.map(|(_, name)| *name)
}

fn length(file: &File) -> Result<u64, PackageError> {
    let metadata = file.metadata().map_err(PackageError::Io)?;
    Ok(metadata.len())
}

/// The first bytes of a file: as many as the longest signature needs.
fn beginning(file: &File) -> Result<Vec<u8>, PackageError> {
    let mut start = vec![0; 512];
    let mut read = 0;
    while read < start.len() {
        match file.read_at(&mut start[read..], read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(PackageError::Io(error)),
        }
    }
    start.truncate(read);
    Ok(start)
}
