//! Content codings (RFC 9110, section 8.4): decodes a staged file into another one, within limits.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use crate::fetch::FetchError;
use crate::mirror::{Mirror, MirrorError, Staged};
use crate::protocol::{Mismatch, Verified, Verifier};
use crate::sync::Expected;

/// How much is decoded and written at once, in bytes.
const CHUNK: usize = 256 * 1024;
/// The maximum expansion of coded bytes once they exceed [`RATIO_FROM`].
const RATIO: u64 = 100;
/// The decoded length up to which the expansion is not limited, in bytes.
const RATIO_FROM: u64 = 64 << 20;

/// A coding that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    /// Deflate in the format of zlib.
    Deflate,
}

/// Why a staged file can't be decoded.
#[derive(Debug)]
pub(super) enum DecodeError {
    Mirror(MirrorError),
    /// What is stated differs from the decoded bytes, too.
    Mismatch(Mismatch),
    /// It is damaged, or too large when it is decoded.
    Fetch(FetchError),
}

impl From<MirrorError> for DecodeError {
    fn from(error: MirrorError) -> Self {
        Self::Mirror(error)
    }
}

impl From<Mismatch> for DecodeError {
    fn from(mismatch: Mismatch) -> Self {
        Self::Mismatch(mismatch)
    }
}

impl Coding {
    /// The coding of a `Content-Encoding` header in lower case; `None` if it can't be decoded.
    pub(super) fn of(label: &str) -> Option<Self> {
        match label {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            _ => None,
        }
    }

    /// Whether coded bytes may begin so: some servers leave the header on a body that is not coded.
    pub(super) fn begins(self, bytes: &[u8]) -> bool {
        match self {
            Self::Gzip => bytes.starts_with(&[0x1f, 0x8b]),
            // RFC 1950, section 2.2.
            Self::Deflate => matches!(bytes, [cmf, flags, ..]
                if cmf & 0x0f == 8 && (u16::from(*cmf) * 256 + u16::from(*flags)) % 31 == 0),
        }
    }
}

/// Decodes a staged file into another one and verifies it. `limit`: the greatest length in bytes. For a blocking thread.
pub(super) fn decode(
    mirror: &Arc<Mirror>,
    coded: &mut Staged,
    coding: Coding,
    expected: &Expected,
    limit: Option<u64>,
) -> Result<(Staged, Verified), DecodeError> {
    let input = BufReader::with_capacity(CHUNK, Counted::of(coded.read_back()?));
    let mut decoder = match coding {
        Coding::Gzip => Decoder::Gzip(MultiGzDecoder::new(input)),
        Coding::Deflate => Decoder::Deflate(ZlibDecoder::new(input)),
    };
    let mut verifier = Verifier::new(expected.content.length, &expected.content.hashes);
    let mut decoded = mirror.stage()?;
    let (mut chunk, mut length) = (vec![0; CHUNK], 0_u64);
    loop {
        let read = decoder.read(&mut chunk).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        length += read as u64;
        if let Some(limit) = limit.filter(|&limit| length > limit) {
            return Err(DecodeError::Fetch(FetchError::TooLarge { limit }));
        }
        if length > decoder.taken().saturating_mul(RATIO).max(RATIO_FROM) {
            return Err(DecodeError::Fetch(FetchError::Expansion));
        }
        verifier.update(&chunk[..read])?;
        decoded.write(&chunk[..read])?;
    }
    Ok((decoded, verifier.finish()?))
}

fn unreadable(error: io::Error) -> DecodeError {
    DecodeError::Fetch(FetchError::BadGzip(error.to_string()))
}

/// An input that counts what was read of it.
struct Counted<R> {
    input: R,
    read: u64,
}

impl<R> Counted<R> {
    fn of(input: R) -> Self {
        Self { input, read: 0 }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.read += read as u64;
        Ok(read)
    }
}

enum Decoder<R> {
    Gzip(MultiGzDecoder<BufReader<Counted<R>>>),
    Deflate(ZlibDecoder<BufReader<Counted<R>>>),
}

impl<R: Read> Decoder<R> {
    /// How many coded bytes were read.
    fn taken(&self) -> u64 {
        match self {
            Self::Gzip(decoder) => decoder.get_ref().get_ref().read,
            Self::Deflate(decoder) => decoder.get_ref().get_ref().read,
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Deflate(decoder) => decoder.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_are_recognized_by_their_label_and_their_first_bytes() {
        for (label, coding) in [
            ("gzip", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("deflate", Some(Coding::Deflate)),
            ("br", None),
            ("gzip, br", None),
            ("", None),
        ] {
            assert_eq!(Coding::of(label), coding, "{label}");
        }
        assert!(Coding::Gzip.begins(b"\x1f\x8b\x08"));
        assert!(Coding::Deflate.begins(b"\x78\x9c"));
        for coding in [Coding::Gzip, Coding::Deflate] {
            assert!(!coding.begins(b"") && !coding.begins(b"text"));
        }
    }
}
