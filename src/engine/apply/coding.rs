//! Content codings (RFC 9110, section 8.4): decides whether what is stated describes the coded or the decoded bytes, of a download as of
//! a member of a package, and decodes a staged file into another one, within limits.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use resourcesync::media_type::{GZIP_MAGIC, media_type_essence};
use resourcesync::{Mismatch, Verified, Verifier};
use resyncd_core::Expected;
use resyncd_fetch::{FetchError, SizeLimit};
use resyncd_mirror::{Mirror, MirrorError, Staged};
use resyncd_packages::max_expanded;
use url::Url;

/// How much is decoded and written at once, in bytes.
const CHUNK: usize = 256 * 1024;

/// A coding that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentCoding {
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

impl ContentCoding {
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
            Self::Gzip => bytes.starts_with(&GZIP_MAGIC),
            // RFC 1950, section 2.2.
            Self::Deflate => matches!(bytes, [cmf, flags, ..]
                if cmf & 0x0f == 8 && (u16::from(*cmf) * 256 + u16::from(*flags)) % 31 == 0),
        }
    }
}

/// A representation of which a content coding is stated, by its server or by the entry of a package's member, while it is received.
pub(super) struct CodedContent {
    label: String,
    is_compressed_file: bool,
    expected: Expected,
    verifier: Verifier,
    /// The first two bytes.
    begin: Vec<u8>,
    received: u64,
}

/// The bytes that agree with what is stated.
pub(super) struct DecidedContent {
    pub(super) staged: Staged,
    pub(super) verified: Verified,
    /// The coding of the bytes; `None` if they are not coded.
    pub(super) encoding: Option<String>,
}

impl CodedContent {
    /// `label`: the coding in lower case. `is_compressed_file`: as [`is_compressed_file`] has it.
    pub(super) fn new(label: String, is_compressed_file: bool, expected: &Expected) -> Self {
        Self {
            label,
            is_compressed_file,
            verifier: Verifier::new(expected.content.length, &expected.content.hashes),
            expected: expected.clone(),
            begin: Vec::new(),
            received: 0,
        }
    }

    /// Adds bytes as they are received. Fails if they are too many for either form.
    pub(super) fn update(&mut self, bytes: &[u8]) -> Result<(), Mismatch> {
        let missing = 2 - self.begin.len().min(2);
        self.begin.extend(bytes.iter().take(missing));
        self.received += bytes.len() as u64;
        // Compared at the end: the decoded bytes may agree.
        let Err(too_long) = self.verifier.update(bytes) else {
            return Ok(());
        };
        let limit = self.expected.content.length.map(longest_coded);
        match limit.is_some_and(|limit| self.received > limit) {
            true => Err(too_long),
            false => Ok(()),
        }
    }

    /// Decides which bytes are published. What is stated may describe the coded bytes or the decoded ones: those that agree with it
    /// are. Where nothing is stated, those are the decoded ones, unless the resource is a compressed file. For a blocking thread.
    pub(super) fn finish(
        self,
        mirror: &Arc<Mirror>,
        mut staged: Staged,
        limit: Option<u64>,
    ) -> Result<DecidedContent, DecodeError> {
        let Self {
            label, expected, ..
        } = self;
        let (verified, mismatch) = self.verifier.compare();
        let is_verifiable = expected.content.is_verifiable();
        let is_right = mismatch.is_none() && (is_verifiable || self.is_compressed_file);
        let coding = ContentCoding::of(&label);
        let is_coded = coding.is_none_or(|coding| coding.begins(&self.begin));
        if let Some(coding) = coding.filter(|_| is_coded && !is_right) {
            let (staged, verified) = decode(mirror, &mut staged, coding, &expected, limit)?;
            return Ok(DecidedContent {
                staged,
                verified,
                encoding: None,
            });
        }
        match mismatch {
            Some(mismatch) => Err(mismatch.into()),
            None => Ok(DecidedContent {
                staged,
                verified,
                encoding: is_coded.then_some(label),
            }),
        }
    }
}

/// Whether a resource is a compressed file by the path of one of its URIs, or by its type: some Sources state its compression as a
/// coding.
pub(super) fn is_compressed_file(uris: &[&Url], media_type: Option<&str>) -> bool {
    let is_named = uris.iter().any(|uri| {
        let path = uri.path().to_ascii_lowercase();
        let mut suffixes = [".gz", ".tgz", ".svgz"].iter();
        suffixes.any(|suffix| path.ends_with(suffix))
    });
    let types = [
        "application/gzip",
        "application/x-gzip",
        "application/x-tgz",
    ];
    is_named || media_type.is_some_and(|it| types.contains(&media_type_essence(it).as_str()))
}

/// The greatest length of coded bytes whose decoded length is stated: what does not compress grows a little.
fn longest_coded(decoded: u64) -> u64 {
    decoded
        .saturating_add(decoded / 64)
        .saturating_add(64 << 10)
}

/// Decodes a staged file into another one and verifies it. `limit`: the greatest length in bytes. For a blocking thread.
fn decode(
    mirror: &Arc<Mirror>,
    coded: &mut Staged,
    coding: ContentCoding,
    expected: &Expected,
    limit: Option<u64>,
) -> Result<(Staged, Verified), DecodeError> {
    let input = BufReader::with_capacity(CHUNK, Counted::of(coded.read_back()?));
    let mut decoder = match coding {
        ContentCoding::Gzip => Decoder::Gzip(MultiGzDecoder::new(input)),
        ContentCoding::Deflate => Decoder::Deflate(ZlibDecoder::new(input)),
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
            let limit = SizeLimit::resource(limit);
            return Err(DecodeError::Fetch(FetchError::TooLarge(limit)));
        }
        if length > max_expanded(decoder.taken()) {
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
            ("gzip", Some(ContentCoding::Gzip)),
            ("x-gzip", Some(ContentCoding::Gzip)),
            ("deflate", Some(ContentCoding::Deflate)),
            ("br", None),
            ("gzip, br", None),
            ("", None),
        ] {
            assert_eq!(ContentCoding::of(label), coding, "{label}");
        }
        assert!(ContentCoding::Gzip.begins(b"\x1f\x8b\x08"));
        assert!(ContentCoding::Deflate.begins(b"\x78\x9c"));
        for coding in [ContentCoding::Gzip, ContentCoding::Deflate] {
            assert!(!coding.begins(b"") && !coding.begins(b"text"));
        }
    }
}
