//! Reading a member: its bytes match the directory, or there is an error.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use super::PackageError;
use super::directory::{MemberEntry, Method};
use super::records::find_bytes;
use super::section::Section;

/// The maximum expansion of a member of more than [`RATIO_FROM`] bytes.
const RATIO: u64 = 100;

/// The expansion of shorter members is not limited.
const RATIO_FROM: u64 = 16 << 20;

/// The decompressed bytes of a member.
///
/// They are verified by the length and the checksum in the directory before the last of them is returned. Its errors are
/// [`PackageError`]s within `io::Error`s.
#[derive(Debug)]
pub struct MemberReader {
    bytes: Bytes,
    length: u64,
    crc: u32,
    read: u64,
    sum: Crc,
    is_rebased: bool,
}

#[derive(Debug)]
enum Bytes {
    Stored(Section),
    Deflated(Box<DeflateDecoder<Section>>),
}

impl MemberReader {
    /// Opens the member of an entry.
    pub(super) fn open(
        file: &Arc<File>,
        entry: &MemberEntry,
        is_rebased: bool,
    ) -> Result<Self, PackageError> {
        let bad = |reason: &str| PackageError::BadMember(reason.to_owned());
        match entry.method {
            Method::Stored if entry.packed != entry.length => {
                return Err(bad("stored with two different lengths"));
            }
            Method::Stored | Method::Deflated => {}
            Method::Encrypted => return Err(PackageError::Encrypted),
            Method::Folder | Method::Symlink => return Err(bad("not a file")),
            Method::Unknown(method) => return Err(PackageError::Compression(method)),
        }
        if entry.length > RATIO_FROM && entry.length / RATIO > entry.packed {
            return Err(PackageError::Expansion);
        }
        let start = find_bytes(file, entry.header)?;
        let section = Section::new(Arc::clone(file), start, entry.packed);
        Ok(Self {
            bytes: match entry.method {
                Method::Deflated => Bytes::Deflated(Box::new(DeflateDecoder::new(section))),
                _ => Bytes::Stored(section),
            },
            length: entry.length,
            crc: entry.crc,
            read: 0,
            sum: Crc::new(),
            is_rebased,
        })
    }

    /// The decompressed length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether it was found only without leading folders of the path, or of its name: some Sources write paths of their own
    /// machine. Then only a digest or a length proves that it is the correct member.
    pub fn is_rebased(&self) -> bool {
        self.is_rebased
    }

    /// The number of bytes returned so far.
    #[cfg(test)]
    pub(super) fn position(&self) -> u64 {
        self.read
    }

    /// The same with a buffer.
    pub(super) fn buffered(self) -> Box<dyn BufRead + Send> {
        Box::new(BufReader::with_capacity(64 << 10, self))
    }

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

impl Read for MemberReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        Ok(self.read_checked(bytes)?)
    }
}
