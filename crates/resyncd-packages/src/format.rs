//! The formats of packages: a file is known by its first bytes.
//!
//! The type that a dump states says only whether it is worth fetching: what was fetched says what it is.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::error::PackageError;
use super::file_tree::FileTree;
use super::section::Section;
use super::unpacked::unpack;
use super::warc::Warc;
use super::{tar, warc, zip};

/// The maximum number of members of a package.
pub(super) const MAX_MEMBERS: usize = 1_000_000;

/// How many bytes the longest signature needs.
const BEGINNING: u64 = 512;

/// The members of an open package. They can be read concurrently.
pub(super) enum Archive {
    /// ZIP and tar.
    Files(FileTree),
    Warc(Warc),
}

/// Other formats that are served as packages, by their signatures. Such a file may end like a ZIP file, but is none.
const OTHER_FORMATS: [(&[u8], &str); 6] = [
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!", "rar"),
    (b"<", "HTML or XML"),
    (b"{", "JSON"),
];

/// Opens a package in any of the formats. One that is compressed as a whole is unpacked first, into a file in `folder` of at most `limit`
/// bytes.
pub(super) fn open(file: File, folder: &Path, limit: Option<u64>) -> Result<Archive, PackageError> {
    let file = Arc::new(file);
    let start = beginning(&file)?;
    if let Some(archive) = open_begun(&file, &start)? {
        return Ok(archive);
    }
    if let Some((unpacked, unknown)) = unpack(&file, &start, folder, limit)? {
        let unpacked = Arc::new(unpacked);
        let archive = open_begun(&unpacked, &beginning(&unpacked)?)?;
        return archive.ok_or(PackageError::Unsupported(unknown));
    }
    if let Some(name) = other_format(&start) {
        return Err(PackageError::Unsupported(name));
    }
    // Something may precede a ZIP file.
    match zip::read_directory(&file, file.metadata()?.len(), MAX_MEMBERS) {
        // It is another format, not a damaged ZIP file.
        Err(PackageError::Damaged(_)) => Err(PackageError::Unsupported("an unknown format")),
        opened => opened.map(Archive::Files),
    }
}

/// Opens a file in the format that it begins with; `None` if that is none, or it must be decompressed as a whole first.
fn open_begun(file: &Arc<File>, start: &[u8]) -> Result<Option<Archive>, PackageError> {
    let length = file.metadata()?.len();
    if zip::begins(start) {
        let files = zip::read_directory(file, length, MAX_MEMBERS)?;
        Ok(Some(Archive::Files(files)))
    } else if tar::begins(start) {
        Ok(Some(Archive::Files(tar::open(file, length)?)))
    } else if warc::begins(start) {
        Ok(warc::open(file, length, start)?.map(Archive::Warc))
    } else {
        Ok(None)
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

fn beginning(file: &Arc<File>) -> Result<Vec<u8>, PackageError> {
    let mut start = Vec::new();
    Section::new(file, 0, BEGINNING).read_to_end(&mut start)?;
    Ok(start)
}
