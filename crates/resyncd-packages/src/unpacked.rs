//! Packages that are compressed as a whole: unpacked into a file without a name, since their members must be found at any place.
//!
//! The file vanishes with the package, also after a kill. It takes no more than a hundred times the package, and no more than
//! the limit for packages.

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use resourcesync::media_type::GZIP_MAGIC;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::error::PackageError;
use super::section::Section;
use crate::expansion::max_expanded;

/// The greatest window of zstd, in bytes: more than its strongest level takes without `--ultra` and `--long`.
const MAX_WINDOW: u64 = 32 << 20;

/// How much is decoded and written at once, in bytes.
const CHUNK: usize = 128 << 10;

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
            written: 0,
            max_expanded: max_expanded(length),
            limit: room.limit,
        };
        match self {
            Self::Gzip => unpack_gzip(input, &mut unpacked)?,
            Self::Zstd => unpack_zstd(input, &mut unpacked)?,
        }
        Ok(unpacked.file)
    }
}

/// The file that is being written.
struct Unpacked {
    file: File,
    written: u64,
    max_expanded: u64,
    limit: Option<u64>,
}

impl Unpacked {
    fn add(&mut self, bytes: &[u8]) -> Result<(), PackageError> {
        self.written += bytes.len() as u64;
        if let Some(limit) = self.limit.filter(|limit| self.written > *limit) {
            return Err(PackageError::TooLargeUnpacked { limit });
        }
        if self.written > self.max_expanded {
            return Err(PackageError::Expansion);
        }
        self.file.write_all(bytes).map_err(PackageError::Io)
    }

    /// Adds all bytes of a decoder.
    fn add_all(&mut self, decoder: &mut impl Read) -> Result<(), PackageError> {
        let mut chunk = vec![0; CHUNK];
        loop {
            match decoder.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(read) => self.add(&chunk[..read])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(PackageError::of_decoder(error)),
            }
        }
    }
}

fn unpack_gzip(input: Section, unpacked: &mut Unpacked) -> Result<(), PackageError> {
    unpacked.add_all(&mut MultiGzDecoder::new(input))
}

/// Unpacks frame by frame: the crate reads one.
fn unpack_zstd(mut input: Section, unpacked: &mut Unpacked) -> Result<(), PackageError> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(MAX_WINDOW);
    let mut chunk = vec![0; CHUNK];
    while !input.fill_buf().map_err(PackageError::Io)?.is_empty() {
        match decoder.reset(&mut input) {
            Ok(()) => {}
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let mut skipped = (&mut input).take(length.into());
                io::copy(&mut skipped, &mut io::sink()).map_err(PackageError::Io)?;
                continue;
            }
            Err(error) => return Err(damaged(&error)),
        }
        loop {
            let blocks = BlockDecodingStrategy::UptoBlocks(1);
            let decoded = decoder.decode_blocks(&mut input, blocks);
            let is_last = decoded.map_err(|error| damaged(&error))?;
            while decoder.can_collect() > 0 {
                let read = decoder.read(&mut chunk).map_err(PackageError::Io)?;
                unpacked.add(&chunk[..read])?;
            }
            if is_last {
                break;
            }
        }
        let stated = decoder.get_checksum_from_data();
        if stated.is_some() && stated != decoder.get_calculated_checksum() {
            return Err(damaged(&"checksum mismatch"));
        }
    }
    Ok(())
}

fn damaged(reason: &dyn std::fmt::Display) -> PackageError {
    PackageError::Damaged(format!("it can't be decompressed: {reason}"))
}
