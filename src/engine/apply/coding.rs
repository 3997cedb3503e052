//! Verifies what is received, of a download as of a member of a package. Where a content coding is stated (RFC 9110, section 8.4), decides
//! whether what is stated describes the coded or the decoded bytes, and decodes a staged file into another one, within limits.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;
use std::sync::Arc;

use flate2::bufread::{DeflateDecoder, GzDecoder, ZlibDecoder};
use resourcesync::media_type::media_type_essence;
use resourcesync::{Mismatch, SourceTime, Verified, Verifier};
use resyncd_core::Expected;
use resyncd_fetch::{CodedFormat, ContentCoding, FetchError, SizeLimit};
use resyncd_mirror::{Mirror, Staged};
use resyncd_packages::max_expanded;
use url::Url;

use super::received::{BytesInMemory, Received, ReceivedBytes};
use super::task_error::TaskError;

/// How much is decoded and written at once, in bytes.
const CHUNK: usize = 256 * 1024;

/// Verifies a representation while it is received.
pub(super) struct ContentVerifier {
    /// The content coding in lower case that is stated of it, by its server or by the entry of a package's member.
    coding: Option<String>,
    /// As [`is_compressed_file`] has it.
    is_compressed_file: bool,
    expected: Expected,
    verifier: Verifier,
    /// Its first bytes.
    begin: Vec<u8>,
    received: u64,
}

impl ContentVerifier {
    /// `coding`: the one that is stated, in lower case. `uris`, `media_type`: those of the representation.
    pub(super) fn new(
        coding: Option<String>,
        uris: &[&Url],
        media_type: Option<&str>,
        expected: &Expected,
    ) -> Self {
        Self {
            coding,
            is_compressed_file: is_compressed_file(uris, media_type),
            verifier: Verifier::new(expected.content.length, &expected.content.hashes),
            expected: expected.clone(),
            begin: Vec::new(),
            received: 0,
        }
    }

    pub(super) fn is_coded(&self) -> bool {
        self.coding.is_some()
    }

    /// Rejects a length, known before the bytes are, of a representation that is not coded.
    pub(super) fn check_length(&self, length: u64) -> Result<(), Mismatch> {
        if self.is_coded() {
            return Ok(());
        }
        self.verifier.check_length(length)
    }

    /// Adds bytes as they are received. Fails if they are too many; of a coded representation, for either form.
    pub(super) fn update(&mut self, bytes: &[u8]) -> Result<(), Mismatch> {
        if !self.is_coded() {
            return self.verifier.update(bytes);
        }
        let missing = ContentCoding::DECISIVE.saturating_sub(self.begin.len());
        self.begin.extend(bytes.iter().take(missing));
        self.received += bytes.len() as u64;
        // Compared at the end: the decoded bytes may agree.
        let Err(too_long) = self.verifier.update(bytes) else {
            return Ok(());
        };
        let limit = self.expected.content.length.map(longest_coded);
        if limit.is_some_and(|limit| self.received > limit) {
            Err(too_long)
        } else {
            Ok(())
        }
    }

    /// A representation that is not coded, received completely, with its bytes in memory.
    pub(super) fn finish_in_memory(self, bytes: BytesInMemory) -> Result<Received, TaskError> {
        Ok(Received {
            bytes: ReceivedBytes::InMemory(bytes),
            verified: self.verifier.finish()?,
            encoding: None,
        })
    }

    /// A representation that was received completely, with its bytes in a staged file. What is stated may describe the coded bytes or the
    /// decoded ones: those are published that agree with it. Where nothing is stated, those are the decoded ones; of a compressed file,
    /// the coding that is its own stays. `limit`: the greatest length in bytes. For a blocking thread.
    pub(super) fn finish(
        self,
        mirror: &Arc<Mirror>,
        mut staged: Staged,
        limit: Option<u64>,
        lastmod: Option<SourceTime>,
    ) -> Result<Received, TaskError> {
        let received = |staged: Staged, verified: Verified, encoding: Option<String>| {
            Ok(Received {
                bytes: ReceivedBytes::Staged(staged.finish(lastmod)?),
                verified,
                encoding,
            })
        };
        let Some(label) = self.coding else {
            let verified = self.verifier.finish()?;
            return received(staged, verified, None);
        };
        let (verified, mismatch) = self.verifier.compare();
        let codings = ContentCoding::parse_list(&label);
        let is_proven = mismatch.is_none() && self.expected.content.is_verifiable();
        if is_proven {
            let last = codings.as_ref().ok().and_then(|codings| codings.last());
            let is_coded = last.is_none_or(|coding| coding.format(&self.begin).is_some());
            return received(staged, verified, is_coded.then_some(label));
        }
        let codings = codings?;
        let undone = match codings[..] {
            [ContentCoding::Gzip, ..] if mismatch.is_none() && self.is_compressed_file => {
                &codings[1..]
            }
            _ => &codings[..],
        };
        let is_gzip = |begin: &[u8]| ContentCoding::Gzip.format(begin).is_some();
        let own = |begin: &[u8]| (undone != codings && is_gzip(begin)).then(|| "gzip".to_owned());
        if let Some(decoded) = decode(mirror, &mut staged, undone, &self.expected, limit)? {
            return received(decoded.staged, decoded.verified, own(&decoded.begin));
        }
        match mismatch {
            Some(mismatch) => Err(mismatch.into()),
            None => received(staged, verified, own(&self.begin)),
        }
    }
}

/// Whether a resource is a compressed file by the path of one of its URIs, or by its type: some Sources state its compression as a
/// coding.
fn is_compressed_file(uris: &[&Url], media_type: Option<&str>) -> bool {
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

/// A file that was decoded into another one and verified.
struct Decoded {
    staged: Staged,
    verified: Verified,
    /// Its first bytes.
    begin: Vec<u8>,
}

/// Undoes codings of a staged file, the last one first; `None` if it has none of them. `limit`: the greatest length in bytes. For a
/// blocking thread.
fn decode(
    mirror: &Arc<Mirror>,
    coded: &mut Staged,
    codings: &[ContentCoding],
    expected: &Expected,
    limit: Option<u64>,
) -> Result<Option<Decoded>, TaskError> {
    let taken = Rc::new(Cell::new(0));
    let counted = Counted {
        input: coded.read_back()?,
        taken: Rc::clone(&taken),
    };
    let mut input: Box<dyn BufRead + '_> = Box::new(BufReader::with_capacity(CHUNK, counted));
    let mut is_coded = false;
    for coding in codings.iter().rev() {
        let begin = read_begin(&mut input).map_err(unreadable)?;
        let format = coding.format(&begin);
        let whole = io::Cursor::new(begin).chain(input);
        let decoder: Box<dyn Read + '_> = match format {
            None => {
                input = Box::new(whole);
                continue;
            }
            Some(CodedFormat::Gzip) => Box::new(Members::new(whole)),
            Some(CodedFormat::Zlib) => Box::new(ZlibDecoder::new(whole)),
            Some(CodedFormat::Deflate) => Box::new(DeflateDecoder::new(whole)),
        };
        is_coded = true;
        let bounded = Bounded {
            decoder,
            made: 0,
            taken: Rc::clone(&taken),
        };
        input = Box::new(BufReader::with_capacity(CHUNK, bounded));
    }
    if !is_coded {
        return Ok(None);
    }
    let begin = read_begin(&mut input).map_err(unreadable)?;
    let mut input = io::Cursor::new(begin.clone()).chain(input);
    let mut verifier = Verifier::new(expected.content.length, &expected.content.hashes);
    let mut decoded = mirror.stage()?;
    let (mut chunk, mut length) = (vec![0; CHUNK], 0_u64);
    loop {
        let read = input.read(&mut chunk).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        length += read as u64;
        if let Some(limit) = limit.filter(|&limit| length > limit) {
            let limit = SizeLimit::resource(limit);
            return Err(FetchError::TooLarge(limit).into());
        }
        verifier.update(&chunk[..read])?;
        decoded.write(&chunk[..read])?;
    }
    Ok(Some(Decoded {
        staged: decoded,
        verified: verifier.finish()?,
        begin,
    }))
}

/// The bytes that decide the format of what follows.
fn read_begin(input: &mut dyn BufRead) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    input
        .take(ContentCoding::DECISIVE as u64)
        .read_to_end(&mut begin)?;
    Ok(begin)
}

fn unreadable(error: io::Error) -> TaskError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let bad = || FetchError::BadGzip(error.to_string());
    TaskError::Fetch(inner.cloned().unwrap_or_else(bad))
}

/// Decompresses the members of a gzip file. Zeros behind a member fill a block of a tape or a download, and are ignored.
struct Members<R> {
    /// `None` after an error.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Members<R> {
    fn new(input: R) -> Self {
        Self {
            member: Some(GzDecoder::new(input)),
        }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut member = self.member.take().ok_or(io::ErrorKind::BrokenPipe)?;
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                self.member = Some(member);
                return Ok(read);
            }
            let input = member.get_mut();
            let is_end = loop {
                let available = input.fill_buf()?;
                let zeros = available.iter().take_while(|&&byte| byte == 0).count();
                if zeros == 0 {
                    break available.is_empty();
                }
                input.consume(zeros);
            };
            if is_end {
                self.member = Some(member);
                return Ok(0);
            }
            self.member = Some(GzDecoder::new(member.into_inner()));
        }
    }
}

/// An input that counts what was read of it.
struct Counted<R> {
    input: R,
    taken: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.taken.set(self.taken.get() + read as u64);
        Ok(read)
    }
}

/// Bounds what a decoder makes of the coded bytes; of several, what each of them makes.
struct Bounded<R> {
    decoder: R,
    made: u64,
    taken: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer)?;
        self.made += read as u64;
        if self.made > max_expanded(self.taken.get()) {
            return Err(io::Error::other(FetchError::Expansion));
        }
        Ok(read)
    }
}
