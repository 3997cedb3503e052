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

/// How many bytes may follow a record in its gzip member, in bytes: two ends of a line.
const MAX_TRAILER: u64 = 1024;

/// A file of records.
pub(super) struct RecordFile {
    file: Arc<File>,
    pub(super) length: u64,
    /// Whether each record is a gzip member.
    pub(super) is_gzip: bool,
}

impl RecordFile {
    pub(super) fn of(file: &Arc<File>, length: u64) -> Result<Self, PackageError> {
        let mut first = Section::new(Arc::clone(file), 0, length);
        let is_gzip = first.fill_buf()?.starts_with(&GZIP_MAGIC);
        Ok(Self {
            file: Arc::clone(file),
            length,
            is_gzip,
        })
    }

    /// What begins at a position: the rest of the file, or the gzip member there.
    pub(super) fn stream(&self, at: u64) -> Stream {
        let length = self.length.saturating_sub(at);
        let section = Section::new(Arc::clone(&self.file), at, length);
        if self.is_gzip {
            Stream::Gzip(Box::new(BufReader::new(GzDecoder::new(section))))
        } else {
            Stream::Plain(section)
        }
    }
}

/// The bytes of records, decompressed.
pub(super) enum Stream {
    Plain(Section),
    Gzip(Box<BufReader<GzDecoder<Section>>>),
}

impl Stream {
    pub(super) fn input(&mut self) -> &mut dyn BufRead {
        match self {
            Self::Plain(section) => section,
            Self::Gzip(decoder) => decoder,
        }
    }

    fn into_input(self) -> Input {
        match self {
            Self::Plain(section) => Box::new(section),
            Self::Gzip(decoder) => decoder,
        }
    }

    /// Where the next record begins, if this number of bytes is left of this one; `None` if it is in the same gzip member.
    pub(super) fn end(self, left: u64) -> Result<Option<u64>, PackageError> {
        let mut decoder = match self {
            Self::Plain(section) => return Ok(Some(section.position().saturating_add(left))),
            Self::Gzip(decoder) => decoder,
        };
        let skipped = io::copy(&mut decoder.by_ref().take(left), &mut io::sink());
        if skipped.map_err(PackageError::of_decoder)? < left {
            return Err(PackageError::Damaged("cut short".to_owned()));
        }
        let mut trailer = Vec::new();
        let mut rest = decoder.by_ref().take(MAX_TRAILER);
        rest.read_to_end(&mut trailer)
            .map_err(PackageError::of_decoder)?;
        let is_end = rest.limit() > 0 && trailer.iter().all(|byte| b"\r\n".contains(byte));
        let section = decoder.into_inner().into_inner();
        Ok(is_end.then(|| section.position()))
    }
}

/// Opens the payload of the record at a position.
pub(super) fn open(file: &RecordFile, at: u64) -> Result<MemberReader, PackageError> {
    let mut stream = file.stream(at);
    let head = RecordHead::read(&mut stream.input())?;
    let head = head.ok_or_else(|| PackageError::Damaged("a record is missing".to_owned()))?;
    let mut block = Checked::block(stream.into_input().take(head.length), &head);
    let digest = head.payload_digest.as_deref();
    let is_verified = Arc::default();
    if head.kind != RecordKind::Response {
        let payload = Checked::payload(block, digest, &is_verified, true);
        return Ok(MemberReader::new(Box::new(payload), Some(head.length)));
    }
    let http = HttpHead::read(&mut block)?;
    let packed = head.length.saturating_sub(http.length);
    let is_chunked = http.is_chunked && looks_chunked(block.fill_buf()?);
    if is_chunked {
        // Programs disagree whether the digest is that of the chunks: either is accepted.
        block = Box::new(BufReader::new(Dechunked {
            input: Checked::payload(block, digest, &is_verified, false),
            left: 0,
            has_begun: false,
            has_ended: false,
        }));
    }
    let mut input = Checked::payload(block, digest, &is_verified, true);
    let mut is_coded = false;
    if http.codings.len() > MAX_CODINGS {
        return Err(PackageError::Coding(http.codings.join(", ")));
    }
    for coding in &http.codings {
        let coded = is_coded_as(coding, input.fill_buf()?)?;
        if coded {
            input = decoder(coding, input, packed);
        }
        is_coded |= coded;
    }
    let length = (!is_chunked && !is_coded).then_some(packed);
    Ok(MemberReader::new(Box::new(input), length))
}

type Input = Box<dyn BufRead + Send>;

/// Whether bytes are coded so: some programs store what they have decoded, with the header of what they have received.
fn is_coded_as(coding: &str, start: &[u8]) -> Result<bool, PackageError> {
    match coding {
        "gzip" | "x-gzip" => Ok(start.starts_with(&GZIP_MAGIC)),
        // RFC 1950, section 2.2.
        "deflate" => Ok(matches!(start, [cmf, flags, ..]
            if cmf & 0x0f == 8 && (u16::from(*cmf) * 256 + u16::from(*flags)) % 31 == 0)),
        other => Err(PackageError::Coding(other.chars().take(100).collect())),
    }
}

/// `packed`: the length in the record, in bytes, of what has all of its codings.
fn decoder(coding: &str, input: Input, packed: u64) -> Input {
    let decoder: Box<dyn Read + Send> = match coding {
        "deflate" => Box::new(Drained(ZlibDecoder::new(input))),
        _ => Box::new(MultiGzDecoder::new(input)),
    };
    Box::new(BufReader::new(Bounded {
        decoder,
        read: 0,
        packed,
    }))
}

/// Limits the expansion of one of several codings: what is beneath the next one is not seen at the end.
struct Bounded {
    decoder: Box<dyn Read + Send>,
    read: u64,
    packed: u64,
}

impl Read for Bounded {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(bytes)?;
        self.read += read as u64;
        if is_out_of_proportion(self.read, self.packed) {
            Err(PackageError::Expansion.into())
        } else {
            Ok(read)
        }
    }
}

/// Reads what follows compressed bytes, so that their digest is verified.
struct Drained(ZlibDecoder<Input>);

impl Read for Drained {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(bytes)?;
        if read == 0 && !bytes.is_empty() {
            io::copy(self.0.get_mut(), &mut io::sink())?;
        }
        Ok(read)
    }
}

/// Verifies bytes at their end.
struct Checked<R> {
    input: R,
    name: &'static str,
    /// `None` after the end, and if nothing is stated.
    verifier: Option<Verifier>,
    /// Whether these bytes, or others that may have the digest, have it.
    is_verified: Arc<AtomicBool>,
    /// Whether no others may have it.
    is_last: bool,
}

impl<R: Read + Send + 'static> Checked<R> {
    fn block(input: R, head: &RecordHead) -> Input {
        Box::new(BufReader::new(Self {
            input,
            name: "WARC-Block-Digest",
            verifier: verifier(Some(head.length), head.block_digest.as_deref()),
            is_verified: Arc::default(),
            is_last: true,
        }))
    }

    fn payload(
        input: R,
        digest: Option<&str>,
        is_verified: &Arc<AtomicBool>,
        is_last: bool,
    ) -> Input {
        Box::new(BufReader::new(Self {
            input,
            name: "WARC-Payload-Digest",
            verifier: verifier(None, digest),
            is_verified: Arc::clone(is_verified),
            is_last,
        }))
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(bytes)?;
        let bad = |reason: Mismatch| PackageError::BadMember(format!("{}: {reason}", self.name));
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
struct Dechunked<R> {
    input: R,
    /// How many bytes are left of the chunk.
    left: u64,
    has_begun: bool,
    has_ended: bool,
}

impl<R: BufRead> Dechunked<R> {
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let mut input = self.input.by_ref().take(MAX_CHUNK_LINE);
        input.read_until(b'\n', &mut line)?;
        let text = line
            .strip_suffix(b"\n")
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(text.strip_suffix(b"\r").unwrap_or(text).to_vec())
    }
}

impl<R: BufRead> Read for Dechunked<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.has_ended {
            if self.has_begun && !self.line()?.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.has_begun = true;
            self.left = chunk_length(&self.line()?).ok_or(io::ErrorKind::InvalidData)?;
            self.has_ended = self.left == 0;
        }
        if self.has_ended {
            // Up to the end, so that the digest of the record is verified.
            io::copy(&mut self.input, &mut io::sink())?;
            return Ok(0);
        }
        let read = self.input.by_ref().take(self.left).read(bytes)?;
        if read == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// Whether bytes begin with the line of a chunk: some programs store what is no longer in chunks.
fn looks_chunked(start: &[u8]) -> bool {
    let mut lines = start.split(|byte| *byte == b'\n');
    let first = lines.next().filter(|_| lines.next().is_some());
    first.is_some_and(|line| chunk_length(line.strip_suffix(b"\r").unwrap_or(line)).is_some())
}

fn chunk_length(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?;
    let digits = std::str::from_utf8(digits).ok()?.trim();
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// Verifies against a length, and a digest of a record; `None` if there is neither, or the digest is of an unknown kind.
fn verifier(length: Option<u64>, digest: Option<&str>) -> Option<Verifier> {
    let digests: Vec<Digest> = digest.and_then(parse_digest).into_iter().collect();
    let is_stated = length.is_some() || !digests.is_empty();
    is_stated.then(|| Verifier::of_announced_only(length, &digests))
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
