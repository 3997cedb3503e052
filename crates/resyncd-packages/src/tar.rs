//! Tar files: ustar, with the extensions of pax and of GNU (POSIX.1-2017, pax; GNU tar manual, "Basic Tar Format").
//!
//! Headers are parsed by the crate `tar`; it is not left to iterate over them, since it takes a whole extended header into memory,
//! however long that is.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use tar::{EntryType, Header, PaxExtensions};

use super::archive::{Archive, Format, MAX_MEMBERS};
use super::directory::{Directory, Method, Stored};
use super::error::PackageError;
use super::file_tree::{FileTree, OpenStored};
use super::member::MemberReader;
use super::name;
use super::section::Section;

/// The length of a block, in bytes: of headers, and of what bytes are filled up to.
const BLOCK: usize = 512;

/// The maximum length of an extended header, in bytes.
const MAX_EXTENDED: u64 = 1 << 20;

/// How many extended headers a member may have.
const MAX_EXTENSIONS: usize = 16;

/// Tar files.
pub(super) const FORMAT: Format = Format {
    begins: |start| start.first_chunk().is_some_and(is_header),
    open: |file, length| open(file, length).map(Some),
};

fn open(file: &Arc<File>, length: u64) -> Result<Arc<dyn Archive>, PackageError> {
    let mut reader = TarReader {
        file: Arc::clone(file),
        length,
        at: 0,
        number: 0,
        directory: Directory::new(MAX_MEMBERS),
    };
    while reader.read_member()? {}
    let mut directory = reader.directory;
    directory.finish();
    let bytes = TarBytes(Arc::clone(file));
    Ok(Arc::new(FileTree { directory, bytes }))
}

/// Whether a block is a header: its checksum is the sum of its bytes, with spaces in the place of the checksum.
fn is_header(block: &[u8; BLOCK]) -> bool {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    let expected = sum(&block[..148]) + 8 * u32::from(b' ') + sum(&block[156..]);
    Header::from_byte_slice(block).cksum().ok() == Some(expected)
}

/// Reads the headers of a file.
struct TarReader {
    file: Arc<File>,
    length: u64,
    /// The position of the next header.
    at: u64,
    /// The number of the member.
    number: u32,
    directory: Directory,
}

/// What extended headers state of the member that follows them.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    size: Option<u64>,
    /// Its bytes are not all in the file.
    is_sparse: bool,
}

impl TarReader {
    /// Adds the next member with its extended headers; `false` at the end.
    fn read_member(&mut self) -> Result<bool, PackageError> {
        let mut extensions = Extensions::default();
        for _ in 0..=MAX_EXTENSIONS {
            let Some(block) = self.next_block()? else {
                return Ok(false);
            };
            let header = Header::from_byte_slice(&block);
            let stated = header.entry_size().map_err(|error| damaged(&error))?;
            match header.entry_type() {
                EntryType::GNULongName => extensions.name = Some(self.read_extended(stated)?),
                EntryType::XHeader => extensions.add_pax(&self.read_extended(stated)?)?,
                EntryType::GNULongLink | EntryType::XGlobalHeader => {
                    self.skip(stated)?;
                }
                _ => {
                    self.add(header, stated, extensions)?;
                    return Ok(true);
                }
            }
        }
        Err(damaged(&"too many extended headers"))
    }

    /// The next header; `None` at the end: a block of zeros, or the end of the file.
    fn next_block(&mut self) -> Result<Option<[u8; BLOCK]>, PackageError> {
        if self.at >= self.length {
            return Ok(None);
        }
        let mut block = [0; BLOCK];
        let mut section = Section::new(Arc::clone(&self.file), self.at, BLOCK as u64);
        section.read_exact(&mut block).map_err(cut_short)?;
        self.at += BLOCK as u64;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if !is_header(&block) {
            return Err(damaged(&"invalid header"));
        }
        Ok(Some(block))
    }

    /// The bytes of an extended header.
    fn read_extended(&mut self, length: u64) -> Result<Vec<u8>, PackageError> {
        if length > MAX_EXTENDED {
            return Err(damaged(&"an extended header is too long"));
        }
        let at = self.skip(length)?;
        let mut bytes = Vec::new();
        let mut section = Section::new(Arc::clone(&self.file), at, length);
        section.read_to_end(&mut bytes).map_err(PackageError::Io)?;
        Ok(bytes)
    }

    /// Passes over bytes of this length, and what fills up their last block; returns where they begin.
    fn skip(&mut self, length: u64) -> Result<u64, PackageError> {
        let begin = self.at;
        let end = begin.checked_add(length);
        let end = end.filter(|end| *end <= self.length);
        let end = end.ok_or_else(|| damaged(&"cut short"))?;
        self.at = end.next_multiple_of(BLOCK as u64);
        Ok(begin)
    }

    fn add(
        &mut self,
        header: &Header,
        stated: u64,
        extensions: Extensions,
    ) -> Result<(), PackageError> {
        let length = extensions.size.unwrap_or(stated);
        let name = extensions.name;
        let name = name.unwrap_or_else(|| header.path_bytes().into_owned());
        // The name of GNU's extended header ends with a zero.
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        let method = if extensions.is_sparse {
            Method::NotFile
        } else {
            method(header.entry_type(), &name)
        };
        let at = self.skip(length)?;
        self.number += 1;
        let stored = Stored {
            at,
            packed: length,
            length,
            check: self.number,
            method,
        };
        self.directory.add(&name, stored)
    }
}

impl Extensions {
    fn add_pax(&mut self, bytes: &[u8]) -> Result<(), PackageError> {
        for record in PaxExtensions::new(bytes) {
            let record = record.map_err(|error| damaged(&error))?;
            match record.key_bytes() {
                b"path" => self.name = Some(record.value_bytes().to_vec()),
                b"size" => {
                    let size = record.value().ok().and_then(|size| size.parse().ok());
                    self.size = Some(size.ok_or_else(|| damaged(&"invalid size"))?);
                }
                key => self.is_sparse |= key.starts_with(b"GNU.sparse."),
            }
        }
        Ok(())
    }
}

fn method(kind: EntryType, name: &str) -> Method {
    let is_outside = name.starts_with('/') || name::segments(name).contains(&"..");
    match kind {
        EntryType::Directory => Method::Folder,
        // Before ustar a folder was known by its name only.
        EntryType::Regular if name::is_folder(name) => Method::Folder,
        EntryType::Regular | EntryType::Continuous if is_outside => Method::Outside,
        EntryType::Regular | EntryType::Continuous => Method::Stored,
        _ => Method::NotFile,
    }
}

/// The bytes of the members of a tar file.
struct TarBytes(Arc<File>);

impl OpenStored for TarBytes {
    fn open(&self, stored: &Stored) -> Result<MemberReader, PackageError> {
        let bad = |reason: &str| PackageError::BadMember(reason.to_owned());
        match stored.method {
            Method::Stored => {}
            Method::Outside => return Err(bad("its name leads out of the package")),
            _ => return Err(bad("not a file")),
        }
        let section = Section::new(Arc::clone(&self.0), stored.at, stored.length);
        Ok(MemberReader::new(Box::new(section), Some(stored.length)))
    }
}

fn damaged(reason: &dyn std::fmt::Display) -> PackageError {
    PackageError::Damaged(reason.to_string())
}

fn cut_short(error: io::Error) -> PackageError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(&"cut short"),
        _ => PackageError::Io(error),
    }
}
