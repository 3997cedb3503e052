//! Reading a member: what comes out is what the directory says, or an error.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use super::PackageError;
use super::directory::{Method, Place};
use super::records::find_bytes;
use super::section::Section;

/// How far a member of more than [`RATIO_FROM`] bytes may grow.
const RATIO: u64 = 100;

/// Shorter members may grow as they like.
const RATIO_FROM: u64 = 16 << 20;

/// The bytes of a member, decompressed.
///
/// They are proven by the length and the checksum of the package's directory, before the last of them is handed out. Its
/// errors are [`PackageError`]s within `io::Error`s.
#[derive(Debug)]
pub struct Member {
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

impl Member {
    /// Opens the member at that place.
    pub(super) fn open(
        file: &Arc<File>,
        place: &Place,
        is_rebased: bool,
    ) -> Result<Self, PackageError> {
        let bad = |reason: &str| PackageError::BadMember(reason.to_owned());
        match place.method {
            Method::Stored if place.packed != place.length => {
                return Err(bad("it is not compressed, and yet has two lengths"));
            }
            Method::Stored | Method::Deflated => {}
            Method::Encrypted => return Err(PackageError::Encrypted),
            Method::Folder | Method::Symlink => return Err(bad("it is not a file")),
            Method::Unknown(method) => return Err(PackageError::Compression(method)),
        }
        if place.length > RATIO_FROM && place.length / RATIO > place.packed {
            return Err(PackageError::Expansion);
        }
        let start = find_bytes(file, place.header)?;
        let section = Section::new(Arc::clone(file), start, place.packed);
        Ok(Self {
            bytes: match place.method {
                Method::Deflated => Bytes::Deflated(Box::new(DeflateDecoder::new(section))),
                _ => Bytes::Stored(section),
            },
            length: place.length,
            crc: place.crc,
            read: 0,
            sum: Crc::new(),
            is_rebased,
        })
    }

    /// How long it is, decompressed, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether it was found only by leaving out folders at the beginning of the path, or of its name: some Sources write
    /// paths of their own machine there. Only a digest or a length proves then that it is the right one.
    pub fn is_rebased(&self) -> bool {
        self.is_rebased
    }

    /// How many bytes were handed out so far.
    #[cfg(test)]
    pub(super) fn handed_out(&self) -> u64 {
        self.read
    }

    /// The same, so that it can be read a line or a tag at a time.
    pub(super) fn buffered(self) -> impl BufRead {
        BufReader::with_capacity(64 << 10, self)
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
            return Err(bad(format!("it is longer than {} bytes", self.length)));
        }
        if read == 0 && self.read < self.length {
            return Err(bad(format!("it ends after {} bytes", self.read)));
        }
        if self.read == self.length && self.sum.sum() != self.crc {
            return Err(bad("its checksum is wrong".to_owned()));
        }
        Ok(read)
    }
}

impl Read for Member {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        Ok(self.read_checked(bytes)?)
    }
}
