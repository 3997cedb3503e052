//! Tar files: ustar, with the extensions of pax and of GNU (POSIX.1-2017, pax; GNU tar manual, "Basic Tar Format").
//!
//! The crate `tar` reads the headers, and takes extended ones into memory: how much may be read for a member is limited.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use ::tar::EntryType;

use super::error::PackageError;
use super::file_tree::{FileTree, Method, Stored, is_folder, segments};
use super::format::MAX_MEMBERS;
use super::section::Section;

/// The maximum length of all headers of a member, in bytes.
const MAX_HEADERS: u64 = 1 << 20;

/// Whether the first block is a header: the crate verifies its checksum.
pub(super) fn begins(start: &[u8]) -> bool {
    let mut archive = ::tar::Archive::new(start);
    let entries = archive.entries().map(|entries| entries.raw(true));
    entries.is_ok_and(|mut entries| matches!(entries.next(), Some(Ok(_))))
}

pub(super) fn open(file: &Arc<File>, length: u64) -> Result<FileTree, PackageError> {
    read(file, length).map_err(PackageError::of_decoder)
}

/// Its errors that come from no system call are damage, or those of the package within `io::Error`s.
fn read(file: &Arc<File>, length: u64) -> io::Result<FileTree> {
    let left = Cell::new(MAX_HEADERS);
    let mut archive = ::tar::Archive::new(Headers {
        section: Section::new(file, 0, length),
        left: &left,
    });
    let mut tree = FileTree::new(file, MAX_MEMBERS);
    for (entry, number) in archive.entries_with_seek()?.zip(1..) {
        left.set(MAX_HEADERS);
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let at = entry.raw_file_position();
        let size = match kind {
            // The crate states the length that it has when the gaps are filled.
            EntryType::GNUSparse => entry.header().entry_size()?,
            _ => entry.size(),
        };
        if at.checked_add(size).is_none_or(|end| end > length) {
            return Err(io::Error::other("cut short"));
        }
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        let mut is_sparse = false;
        for record in entry.pax_extensions()?.into_iter().flatten() {
            let record = record?;
            let size = record.value().unwrap_or_default();
            if record.key_bytes() == b"size" && size.parse::<u64>().is_err() {
                return Err(io::Error::other("invalid size"));
            }
            // The bytes of the member are not all in the file.
            is_sparse |= record.key_bytes().starts_with(b"GNU.sparse.");
        }
        let name = entry.path_bytes();
        // The name of GNU's extended header ends with a zero.
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        let stored = Stored {
            at,
            packed: size,
            length: size,
            check: number,
            method: method(kind, &name, is_sparse),
        };
        tree.add(&name, stored)?;
    }
    tree.finish();
    Ok(tree)
}

/// What is read of a file besides the bytes of its members.
struct Headers<'a> {
    section: Section,
    /// How many bytes may be read until the next member.
    left: &'a Cell<u64>,
}

impl Read for Headers<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.section.read(bytes)?;
        let left = self.left.get().checked_sub(read as u64);
        let left = left.ok_or_else(|| io::Error::other("the headers of a member are too long"));
        self.left.set(left?);
        Ok(read)
    }
}

impl Seek for Headers<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Current(by) => self.section.at.checked_add_signed(by),
            // The crate passes over bytes, and nothing else.
            SeekFrom::Start(_) | SeekFrom::End(_) => None,
        };
        self.section.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.section.at)
    }
}

fn method(kind: EntryType, name: &str, is_sparse: bool) -> Method {
    let is_outside = name.starts_with('/') || segments(name).contains(&"..");
    match kind {
        _ if is_sparse => Method::NotFile,
        EntryType::Directory => Method::Folder,
        // Before ustar a folder was known by its name only.
        EntryType::Regular if is_folder(name) => Method::Folder,
        EntryType::Regular | EntryType::Continuous if is_outside => Method::Outside,
        EntryType::Regular | EntryType::Continuous => Method::Plain,
        _ => Method::NotFile,
    }
}
