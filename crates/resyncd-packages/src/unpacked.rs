//! Packages that are compressed as a whole: unpacked into a file without a name, since their members must be found at any place.
//!
//! The file vanishes with the package, also after a kill. It takes no more than a hundred times the package, and no more than
//! the limit for packages.
//!
//! The bound on the expansion also holds for documents, for members, and for content codings: a few bytes may stand for more than any
//! disk has.

use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use resourcesync::media_type::GZIP_MAGIC;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::error::PackageError;
use super::section::Section;

/// The maximum expansion of what is longer than is exempt.
const RATIO: u64 = 100;

/// The decompressed length up to which the expansion is not limited, in bytes: large lists, and the headers in an archive, compress
/// well.
const EXEMPT: u64 = 64 << 20;

/// The same of what is decompressed where it is in a package.
const EXEMPT_IN_PACKAGE: u64 = 16 << 20;

/// The greatest window of zstd, in bytes: more than its strongest level takes without `--ultra` and `--long`.
const MAX_WINDOW: u64 = 32 << 20;

/// How much is decoded and written at once, in bytes.
const CHUNK: usize = 128 << 10;

/// The maximum decompressed length of so many compressed bytes: of a document, of a package that is compressed as a whole, or of coded
/// content.
#[must_use]
pub fn max_expanded(compressed: u64) -> u64 {
    compressed.saturating_mul(RATIO).max(EXEMPT)
}

/// Whether what is decompressed where it is in a package expands too much.
pub(super) fn is_out_of_proportion(length: u64, compressed: u64) -> bool {
    length > EXEMPT_IN_PACKAGE && length / RATIO > compressed
}

/// Where a package may be unpacked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room<'a> {
    /// The folder of the file.
    pub(super) folder: &'a Path,
    /// The greatest length in bytes.
    pub(super) limit: Option<u64>,
}

/// How a package is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackageCoding {
    Gzip,
    Zstd,
}

impl PackageCoding {
    /// The coding of a file that begins so.
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        match start {
            start if start.starts_with(&GZIP_MAGIC) => Some(Self::Gzip),
            // A frame, or one to skip before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// What a file is whose content is no package.
    pub(super) fn of_unknown(self) -> &'static str {
        match self {
            Self::Gzip => "gzip of an unknown format",
            Self::Zstd => "zstd of an unknown format",
        }
    }

    /// Unpacks a file of this length.
    pub(super) fn unpack(
        self,
        file: &Arc<File>,
        length: u64,
        room: &Room<'_>,
    ) -> Result<File, PackageError> {
        let input = Section::new(Arc::clone(file), 0, length);
        let output = tempfile::tempfile_in(room.folder).map_err(PackageError::Io)?;
        let mut unpacked = Unpacked {
            file: output,
            chunk: vec![0; CHUNK],
            written: 0,
            max_expanded: max_expanded(length),
            limit: room.limit,
        };
        match self {
            Self::Gzip => unpacked.add_all(&mut MultiGzDecoder::new(input))?,
            Self::Zstd => unpack_zstd(input, &mut unpacked)?,
        }
        Ok(unpacked.file)
    }
}

/// The file that is being written.
struct Unpacked {
    file: File,
    chunk: Vec<u8>,
    written: u64,
    max_expanded: u64,
    limit: Option<u64>,
}

impl Unpacked {
    /// Adds all bytes of a decoder.
    fn add_all(&mut self, decoder: &mut impl Read) -> Result<(), PackageError> {
        loop {
            let read = match decoder.read(&mut self.chunk) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(PackageError::of_decoder(error)),
            };
            self.written += read as u64;
            if let Some(limit) = self.limit.filter(|limit| self.written > *limit) {
                return Err(PackageError::TooLargeUnpacked { limit });
            }
            if self.written > self.max_expanded {
                return Err(PackageError::Expansion);
            }
            let chunk = &self.chunk[..read];
            self.file.write_all(chunk).map_err(PackageError::Io)?;
        }
    }
}

/// Unpacks frame by frame: the crate reads one, and does not compare its checksum.
fn unpack_zstd(mut input: Section, unpacked: &mut Unpacked) -> Result<(), PackageError> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(MAX_WINDOW);
    while !input.fill_buf().map_err(PackageError::Io)?.is_empty() {
        let length = match StreamingDecoder::new_with_decoder(&mut input, &mut decoder) {
            Ok(mut frame) => {
                unpacked.add_all(&mut frame)?;
                let stated = decoder.get_checksum_from_data();
                if stated.is_some() && stated != decoder.get_calculated_checksum() {
                    return Err(PackageError::Damaged("checksum mismatch".to_owned()));
                }
                continue;
            }
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => length,
            Err(error) => return Err(PackageError::Damaged(error.to_string())),
        };
        input.seek(SeekFrom::Current(length.into()))?;
    }
    Ok(())
}
