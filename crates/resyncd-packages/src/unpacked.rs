//! Packages that are compressed as a whole: unpacked into a file without a name, since their members must be found at any place.
//!
//! The file vanishes with the package, also after a kill. It takes no more than a hundred times the package, and no more than
//! the limit for packages.
//!
//! The bound on the expansion also holds for documents, for members, and for content codings: a few bytes may stand for more than any
//! disk has.

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
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

/// Unpacks a file that begins so into one in `folder`, of at most `limit` bytes. Also returns what it is if its content is no package.
/// `None` if it is not compressed.
pub(super) fn unpack(
    file: &Arc<File>,
    start: &[u8],
    folder: &Path,
    limit: Option<u64>,
) -> Result<Option<(File, &'static str)>, PackageError> {
    // A frame, or one to skip before it.
    let is_zstd = matches!(
        start,
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]
    );
    if !is_zstd && !start.starts_with(&GZIP_MAGIC) {
        return Ok(None);
    }
    let length = file.metadata()?.len();
    let input = Section::new(file, 0, length).buffered();
    let mut unpacked = tempfile::tempfile_in(folder)?;
    let (mut chunk, mut written) = (vec![0; CHUNK], 0);
    // Not by `io::copy`: an error of the decoder is damage, and one of the file is not.
    let mut add_all = |decoder: &mut dyn Read| loop {
        let read = decoder.read(&mut chunk);
        let read = read.map_err(PackageError::of_decoder)?;
        if read == 0 {
            return Ok(());
        }
        written += read as u64;
        if let Some(limit) = limit.filter(|limit| written > *limit) {
            return Err(PackageError::TooLargeUnpacked(limit));
        }
        if written > max_expanded(length) {
            return Err(PackageError::Expansion);
        }
        unpacked.write_all(&chunk[..read])?;
    };
    let unknown = if is_zstd {
        unpack_zstd(input, add_all)?;
        "zstd of an unknown format"
    } else {
        add_all(&mut MultiGzDecoder::new(input))?;
        "gzip of an unknown format"
    };
    Ok(Some((unpacked, unknown)))
}

/// Unpacks frame by frame: the crate reads one, and does not compare its checksum.
fn unpack_zstd(
    mut input: impl BufRead,
    mut add_all: impl FnMut(&mut dyn Read) -> Result<(), PackageError>,
) -> Result<(), PackageError> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(MAX_WINDOW);
    while !input.fill_buf()?.is_empty() {
        match StreamingDecoder::new_with_decoder(&mut input, &mut decoder) {
            Ok(mut frame) => {
                add_all(&mut frame)?;
                let stated = decoder.get_checksum_from_data();
                if stated.is_some() && stated != decoder.get_calculated_checksum() {
                    return Err(PackageError::damaged("checksum mismatch"));
                }
            }
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let mut skipped = input.by_ref().take(length.into());
                io::copy(&mut skipped, &mut io::sink())?;
            }
            Err(error) => return Err(PackageError::damaged(error)),
        }
    }
    Ok(())
}
