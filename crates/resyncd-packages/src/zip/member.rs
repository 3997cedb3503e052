//! The bytes of a member of a ZIP file: they match the directory, or there is an error.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use super::records::find_bytes;
use crate::directory::{Method, Stored};
use crate::error::PackageError;
use crate::expansion::is_out_of_proportion;
use crate::member::MemberReader;
use crate::section::Section;

/// Opens the member of an entry.
pub(super) fn open(file: &Arc<File>, entry: &Stored) -> Result<MemberReader, PackageError> {
    let bad = |reason: &str| PackageError::BadMember(reason.to_owned());
    match entry.method {
        Method::Stored if entry.packed != entry.length => {
            return Err(bad("stored with two different lengths"));
        }
        Method::Stored | Method::Deflated => {}
        Method::Encrypted => return Err(PackageError::Encrypted),
        Method::Folder | Method::NotFile | Method::Outside => return Err(bad("not a file")),
        Method::Unknown(method) => return Err(PackageError::Compression(method)),
    }
    if is_out_of_proportion(entry.length, entry.packed) {
        return Err(PackageError::Expansion);
    }
    let start = find_bytes(file, entry.at)?;
    let section = Section::new(Arc::clone(file), start, entry.packed);
    let bytes = ZipMember {
        bytes: match entry.method {
            Method::Deflated => Bytes::Deflated(Box::new(DeflateDecoder::new(section))),
            _ => Bytes::Stored(section),
        },
        length: entry.length,
        crc: entry.check,
        read: 0,
        sum: Crc::new(),
    };
    Ok(MemberReader::new(Box::new(bytes), Some(entry.length)))
}

/// The decompressed bytes of a member, verified by the length and the checksum in the directory before the last of them is
/// returned.
#[derive(Debug)]
struct ZipMember {
    bytes: Bytes,
    length: u64,
    crc: u32,
    read: u64,
    sum: Crc,
}

#[derive(Debug)]
enum Bytes {
    Stored(Section),
    Deflated(Box<DeflateDecoder<Section>>),
}

impl ZipMember {
    fn read_checked(&mut self, bytes: &mut [u8]) -> Result<usize, PackageError> {
        let bad = |reason: String| PackageError::BadMember(reason);
        let read = match &mut self.bytes {
            Bytes::Stored(section) => section.read(bytes)?,
            Bytes::Deflated(decoder) => {
                decoder.read(bytes).map_err(|error| match error.kind() {
                    io::ErrorKind::InvalidInput
                    | io::ErrorKind::InvalidData
                    | io::ErrorKind::UnexpectedEof => bad(error.to_string()),
                    _ => PackageError::Io(error),
                })?
            }
        };
        self.sum.update(&bytes[..read]);
        self.read += read as u64;
        if self.read > self.length {
            return Err(bad(format!("longer than {} bytes", self.length)));
        }
        if read == 0 && self.read < self.length {
            return Err(bad(format!("ends after {} bytes", self.read)));
        }
        if self.read == self.length && self.sum.sum() != self.crc {
            return Err(bad("checksum mismatch".to_owned()));
        }
        Ok(read)
    }
}

impl Read for ZipMember {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        Ok(self.read_checked(bytes)?)
    }
}
