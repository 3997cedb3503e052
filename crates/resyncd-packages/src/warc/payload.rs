//! The payload of a record: the bytes of the resource, without what HTTP did to them, verified by the digests of the record.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data_encoding::{BASE32_NOPAD, HEXUPPER};
use flate2::bufread::{GzDecoder, MultiGzDecoder, ZlibDecoder};
use resourcesync::media_type::GZIP_MAGIC;
use resourcesync::{Algorithm, Digest, Mismatch, Verifier};

use super::head::{HttpHead, RecordHead, RecordKind};
use crate::error::PackageError;
use crate::member::MemberReader;
use crate::section::Section;
use crate::unpacked::is_out_of_proportion;

/// How many content codings are undone.
const MAX_CODINGS: usize = 2;

/// The maximum length of the line before a chunk, in bytes.
const MAX_CHUNK_LINE: u64 = 1024;

/// A file of records.
#[derive(Clone)]
pub(super) struct RecordFile {
    pub(super) file: Arc<File>,
    pub(super) length: u64,
    /// Whether each record is a gzip member.
    pub(super) is_gzip: bool,
}

impl RecordFile {
    /// The file from a position on.
    pub(super) fn section(&self, at: u64) -> BufReader<Section> {
        let length = self.length.saturating_sub(at);
        Section::new(&self.file, at, length).buffered()
    }

    /// The decompressed bytes of a section: all of them, or those of its first gzip member.
    pub(super) fn records<'a>(&self, section: impl BufRead + Send + 'a) -> Input<'a> {
        if self.is_gzip {
            Box::new(BufReader::new(GzDecoder::new(section)))
        } else {
            Box::new(section)
        }
    }
}

/// Opens the payload of the record at a position.
pub(super) fn open(file: &RecordFile, at: u64) -> Result<MemberReader, PackageError> {
    let mut record = file.records(file.section(at));
    let head = RecordHead::read(&mut record)?;
    let head = head.ok_or_else(|| PackageError::damaged("a record is missing"))?;
    let mut block = checked(Checked {
        input: record.take(head.length),
        name: "WARC-Block-Digest",
        verifier: verifier(Some(head.length), head.block_digest.as_deref()),
        is_verified: Arc::default(),
        is_last: true,
    });
    let is_verified = Arc::default();
    let payload = |input, is_last| {
        checked(Checked {
            input,
            name: "WARC-Payload-Digest",
            verifier: verifier(None, head.payload_digest.as_deref()),
            is_verified: Arc::clone(&is_verified),
            is_last,
        })
    };
    let http = match head.kind {
        RecordKind::Response => HttpHead::read(&mut block)?,
        _ => HttpHead::default(),
    };
    let packed = head.length.saturating_sub(http.length);
    let mut length = Some(packed);
    if http.is_chunked && looks_chunked(block.fill_buf()?) {
        // Programs disagree whether the digest is that of the chunks: either is accepted.
        block = Box::new(BufReader::new(Dechunked {
            input: b"\r\n".chain(payload(block, false)),
            left: Some(0),
        }));
        length = None;
    }
    let mut input = payload(block, true);
    if http.codings.len() > MAX_CODINGS {
        return Err(PackageError::Coding(http.codings.join(", ")));
    }
    for coding in &http.codings {
        // Some programs store what they have decoded, with the header of what they have received.
        let start = input.fill_buf()?;
        input = match coding.as_str() {
            "gzip" | "x-gzip" if !start.starts_with(&GZIP_MAGIC) => continue,
            "gzip" | "x-gzip" => {
                decoded(MultiGzDecoder::new(input), MultiGzDecoder::get_mut, packed)
            }
            "deflate" if !is_zlib(start) => continue,
            "deflate" => decoded(ZlibDecoder::new(input), ZlibDecoder::get_mut, packed),
            other => return Err(PackageError::Coding(other.chars().take(100).collect())),
        };
        length = None;
    }
    Ok(MemberReader::new(input, length))
}

pub(super) type Input<'a> = Box<dyn BufRead + Send + 'a>;

/// Whether bytes begin so (RFC 1950, section 2.2).
fn is_zlib(start: &[u8]) -> bool {
    matches!(start, [cmf, flags, ..]
        if cmf & 0x0f == 8 && u16::from_be_bytes([*cmf, *flags]) % 31 == 0)
}

/// Undoes one of several codings. Its expansion is limited, as what is beneath the next one is not seen at the end. `packed`: the length
/// in the record, in bytes, of what has all of its codings.
struct Decoded<D> {
    decoder: D,
    /// What follows the coded bytes: it is read, so that the digest of all is verified.
    rest: fn(&mut D) -> &mut Input<'static>,
    read: u64,
    packed: u64,
}

fn decoded<D: Read + Send + 'static>(
    decoder: D,
    rest: fn(&mut D) -> &mut Input<'static>,
    packed: u64,
) -> Input<'static> {
    Box::new(BufReader::new(Decoded {
        decoder,
        rest,
        read: 0,
        packed,
    }))
}

impl<D: Read> Read for Decoded<D> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(bytes)?;
        if read == 0 && !bytes.is_empty() {
            io::copy((self.rest)(&mut self.decoder), &mut io::sink())?;
        }
        self.read += read as u64;
        if is_out_of_proportion(self.read, self.packed) {
            return Err(PackageError::Expansion.into());
        }
        Ok(read)
    }
}

/// Verifies bytes at their end.
struct Checked<R> {
    input: R,
    name: &'static str,
    /// `None` after the end.
    verifier: Option<Verifier>,
    /// Whether these bytes, or others that may have the digest, have it.
    is_verified: Arc<AtomicBool>,
    /// Whether no others may have it.
    is_last: bool,
}

fn checked<R: Read + Send + 'static>(checked: Checked<R>) -> Input<'static> {
    Box::new(BufReader::new(checked))
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(bytes)?;
        let bad = |reason: Mismatch| PackageError::bad_member(format!("{}: {reason}", self.name));
        if let Some(verifier) = &mut self.verifier {
            verifier.update(&bytes[..read]).map_err(bad)?;
        }
        if read == 0
            && !bytes.is_empty()
            && let Some(verifier) = self.verifier.take()
        {
            match verifier.finish() {
                Ok(_) => self.is_verified.store(true, Ordering::Relaxed),
                Err(_) if !self.is_last || self.is_verified.load(Ordering::Relaxed) => {}
                Err(mismatch) => return Err(bad(mismatch).into()),
            }
        }
        Ok(read)
    }
}

/// Undoes the chunks of HTTP (RFC 9112, section 7.1).
struct Dechunked {
    /// Begins with the end of a line, as what follows each chunk.
    input: io::Chain<&'static [u8], Input<'static>>,
    /// How many bytes are left of the chunk; `None` after the last one.
    left: Option<u64>,
}

impl Dechunked {
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let mut input = self.input.by_ref().take(MAX_CHUNK_LINE);
        input.read_until(b'\n', &mut line)?;
        if line.ends_with(b"\n") {
            Ok(line)
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

impl Read for Dechunked {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.left == Some(0) {
            if !matches!(&self.line()?[..], b"\n" | b"\r\n") {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let length = chunk_length(&self.line()?).ok_or(io::ErrorKind::InvalidData)?;
            self.left = Some(length).filter(|length| *length > 0);
        }
        let Some(left) = &mut self.left else {
            // Up to the end, so that the digest of the record is verified.
            io::copy(&mut self.input, &mut io::sink())?;
            return Ok(0);
        };
        let read = self.input.by_ref().take(*left).read(bytes)?;
        if read == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *left -= read as u64;
        Ok(read)
    }
}

/// Whether bytes begin with the line of a chunk: some programs store what is no longer in chunks.
fn looks_chunked(start: &[u8]) -> bool {
    let line = start.split_inclusive(|byte| *byte == b'\n').next();
    line.is_some_and(|line| line.ends_with(b"\n") && chunk_length(line).is_some())
}

fn chunk_length(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?;
    let digits = std::str::from_utf8(digits).ok()?.trim();
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// Verifies against a length, and a digest of a record unless that is of an unknown kind.
fn verifier(length: Option<u64>, digest: Option<&str>) -> Option<Verifier> {
    let digests: Vec<Digest> = digest.and_then(parse_digest).into_iter().collect();
    Some(Verifier::of_announced_only(length, &digests))
}

/// A digest as records state it: the algorithm, and the bytes in base 32 or hexadecimal.
pub(super) fn parse_digest(text: &str) -> Option<Digest> {
    let (algorithm, value) = text.split_once(':')?;
    let algorithm = Algorithm::parse(algorithm)?;
    let value = value.trim().trim_end_matches('=').to_ascii_uppercase();
    let coding = if value.len() == 2 * algorithm.digest_length() {
        HEXUPPER
    } else {
        BASE32_NOPAD
    };
    Digest::new(algorithm, &coding.decode(value.as_bytes()).ok()?)
}
