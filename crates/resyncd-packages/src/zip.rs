//! ZIP files (sections 11.2 and 13.2; APPNOTE 6.3.3).

mod member;
mod records;

use std::fs::File;
use std::sync::Arc;

use self::records::{CentralHeader, LOCAL_LENGTH, find_directory};
use super::archive::{Archive, Format, MAX_MEMBERS};
use super::directory::{Directory, Method, Stored};
use super::error::PackageError;
use super::file_tree::{FileTree, OpenStored};
use super::member::MemberReader;
use super::name;
use super::section::Section;

/// The usual signatures: a member, the end of an empty file, or the mark of a split one.
const SIGNATURES: [&[u8]; 3] = [b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"];

/// The file type of a symbolic link, and the mask of file types, in a Unix mode.
const SYMLINK: u32 = 0o120_000;
const FILE_TYPE: u32 = 0o170_000;

/// ZIP files.
pub(super) const FORMAT: Format = Format {
    begins: |start| SIGNATURES.iter().any(|sign| start.starts_with(sign)),
    open: |file, length| open(file, length).map(Some),
};

/// Opens a ZIP file of this length, also one that begins with something else.
pub(super) fn open(file: &Arc<File>, length: u64) -> Result<Arc<dyn Archive>, PackageError> {
    let directory = read_directory(file, length, MAX_MEMBERS)?;
    let bytes = ZipBytes(Arc::clone(file));
    Ok(Arc::new(FileTree { directory, bytes }))
}

/// Reads the directory of a file with at most `limit` members.
pub(super) fn read_directory(
    file: &Arc<File>,
    length: u64,
    limit: usize,
) -> Result<Directory, PackageError> {
    let location = find_directory(file, length)?;
    let mut headers = Section::new(Arc::clone(file), location.start, location.length);
    let mut directory = Directory::new(limit);
    while let Some(header) = CentralHeader::read(&mut headers)? {
        let stored = Stored {
            at: header.header.checked_add(location.prefix).ok_or_else(|| {
                PackageError::Damaged("a position in the directory is too large".to_owned())
            })?,
            packed: header.packed,
            length: header.length,
            check: header.crc,
            method: method(&header),
        };
        directory.add(&name::decode(&header.name), stored)?;
    }
    // Without ZIP64 the number has 16 bits, and some tools write more members than that.
    let count = directory.len() as u64;
    if count != location.count && count % (1 << 16) != location.count {
        return Err(PackageError::Damaged(
            "the directory has another number of members than stated".to_owned(),
        ));
    }
    directory.check_overlaps(LOCAL_LENGTH, location.start)?;
    directory.finish();
    Ok(directory)
}

fn method(header: &CentralHeader) -> Method {
    if name::is_folder(&name::decode(&header.name)) {
        return Method::Folder;
    }
    let is_symlink = |mode: u32| mode & FILE_TYPE == SYMLINK;
    if header.unix_mode.is_some_and(is_symlink) {
        return Method::NotFile;
    }
    match (header.flags & 1, header.method) {
        (1, _) => Method::Encrypted,
        (_, 0) => Method::Stored,
        (_, 8) => Method::Deflated,
        (_, other) => Method::Unknown(other),
    }
}

/// The bytes of the members of a ZIP file.
struct ZipBytes(Arc<File>);

impl OpenStored for ZipBytes {
    fn open(&self, stored: &Stored) -> Result<MemberReader, PackageError> {
        member::open(&self.0, stored)
    }
}
