//! Spools the body of a document: decompresses it, counts and hashes the result, stores it in memory or in a file.

use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use flate2::write::{DeflateDecoder, GzDecoder, ZlibDecoder};
use resourcesync::media_type::GZIP_MAGIC;
use resyncd_packages::max_expanded;
use sha2::{Digest as _, Sha256};
use tempfile::SpooledTempFile;

use super::coding::{CodedFormat, ContentCoding};
use super::{FetchError, SizeLimit};

/// The maximum length in memory, in bytes; longer documents are stored in an unnamed file.
const IN_MEMORY: usize = 1 << 20;

/// A body that is being received. It writes to disk: for blocking threads.
pub(super) struct Spool {
    // Twice, because some servers compress a gzip file again for transport.
    unzip: Unzip<Unzip<Sink>>,
    received: Arc<AtomicU64>,
}

/// A complete body.
pub(super) struct Spooled {
    pub(super) file: SpooledTempFile,
    pub(super) len: u64,
    pub(super) digest: [u8; 32],
}

impl Spool {
    /// An empty spool with a limit in bytes after decompression. `is_deflated`: whether the server states that.
    pub(super) fn new(limit: u64, is_deflated: bool) -> Self {
        let received = Arc::new(AtomicU64::new(0));
        let sink = Sink {
            file: SpooledTempFile::new(IN_MEMORY),
            hash: Sha256::new(),
            len: 0,
            limit,
            received: Arc::clone(&received),
        };
        Self {
            unzip: Unzip::new(Unzip::new(sink, is_deflated), is_deflated),
            received,
        }
    }

    /// Adds the next bytes as they were served.
    pub(super) fn add(&mut self, chunks: &[Bytes]) -> Result<(), FetchError> {
        for chunk in chunks {
            self.received.fetch_add(chunk.len() as u64, Relaxed);
            self.unzip.write_all(chunk).map_err(to_fetch_error)?;
        }
        Ok(())
    }

    /// The complete body.
    pub(super) fn finish(self) -> Result<Spooled, FetchError> {
        let inner = self.unzip.finish().map_err(to_fetch_error)?;
        let mut sink = inner.finish().map_err(to_fetch_error)?;
        sink.file.seek(SeekFrom::Start(0))?;
        Ok(Spooled {
            file: sink.file,
            len: sink.len,
            digest: sink.hash.finalize().into(),
        })
    }
}

/// An error of the sink; it passes through the decoders within an `io::Error`.
#[derive(Debug, thiserror::Error)]
enum SinkError {
    #[error("over the limit of {0} bytes")]
    OverLimit(u64),
    #[error("out of proportion to the served bytes")]
    OutOfProportion,
    #[error(transparent)]
    Disk(io::Error),
}

/// An error that does not come from the sink is one of the decoder.
fn to_fetch_error(error: io::Error) -> FetchError {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(SinkError::OverLimit(limit)) => FetchError::TooLarge(SizeLimit::document(*limit)),
        Some(SinkError::OutOfProportion) => FetchError::Expansion,
        Some(SinkError::Disk(error)) => FetchError::from_disk(&std::env::temp_dir(), error),
        None => FetchError::BadGzip(error.to_string()),
    }
}

/// Writes, counts and hashes the decompressed bytes.
struct Sink {
    file: SpooledTempFile,
    hash: Sha256,
    len: u64,
    limit: u64,
    /// How many bytes were received: a few that were compressed twice may exceed any disk.
    received: Arc<AtomicU64>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.len = self.len.saturating_add(bytes.len() as u64);
        if self.len > self.limit {
            return Err(io::Error::other(SinkError::OverLimit(self.limit)));
        }
        if self.len > max_expanded(self.received.load(Relaxed)) {
            return Err(io::Error::other(SinkError::OutOfProportion));
        }
        self.file
            .write_all(bytes)
            .map_err(|error| io::Error::other(SinkError::Disk(error)))?;
        self.hash.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decompresses a body with the signature of gzip, or one that is stated to be deflated and is, and passes on any other: neither name
/// nor headers are reliable.
enum Unzip<W: Write> {
    /// Not enough bytes to decide.
    Start {
        first: Vec<u8>,
        is_deflated: bool,
        inner: W,
    },
    Plain(W),
    /// A member of a gzip file.
    Gzip(Box<GzDecoder<W>>),
    /// Behind a member: another one, zeros that fill a block of a tape or a download, or nothing.
    BehindMember(W),
    Zlib(Box<ZlibDecoder<W>>),
    Deflate(Box<DeflateDecoder<W>>),
    /// After an error, and while the state changes.
    Broken,
}

impl<W: Write> Unzip<W> {
    fn new(inner: W, is_deflated: bool) -> Self {
        Self::Start {
            first: Vec::new(),
            is_deflated,
            inner,
        }
    }

    fn decide(&mut self) -> io::Result<()> {
        match std::mem::replace(self, Self::Broken) {
            Self::Start {
                first,
                is_deflated,
                inner,
            } => {
                let deflated = || ContentCoding::Deflate.format(&first);
                let format = ContentCoding::Gzip.format(&first);
                *self = match format.or_else(|| is_deflated.then(deflated).flatten()) {
                    Some(CodedFormat::Gzip) => Self::Gzip(Box::new(GzDecoder::new(inner))),
                    Some(CodedFormat::Zlib) => Self::Zlib(Box::new(ZlibDecoder::new(inner))),
                    Some(CodedFormat::Deflate) => {
                        Self::Deflate(Box::new(DeflateDecoder::new(inner)))
                    }
                    None => Self::Plain(inner),
                };
                self.write_all(&first)
            }
            decided => {
                *self = decided;
                Ok(())
            }
        }
    }

    fn finish(mut self) -> io::Result<W> {
        self.decide()?;
        match self {
            Self::Plain(inner) | Self::BehindMember(inner) => Ok(inner),
            Self::Gzip(decoder) => decoder.finish(),
            Self::Zlib(decoder) => decoder.finish(),
            Self::Deflate(decoder) => decoder.finish(),
            Self::Start { .. } | Self::Broken => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl<W: Write> Write for Unzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Start {
                first, is_deflated, ..
            } => {
                let decisive = if *is_deflated {
                    ContentCoding::DECISIVE
                } else {
                    GZIP_MAGIC.len()
                };
                let missing = (decisive - first.len()).min(bytes.len());
                first.extend_from_slice(&bytes[..missing]);
                if first.len() == decisive {
                    self.decide()?;
                }
                Ok(missing)
            }
            Self::Plain(inner) => inner.write(bytes),
            Self::Gzip(decoder) => match decoder.write(bytes)? {
                0 if !bytes.is_empty() => {
                    if let Self::Gzip(decoder) = std::mem::replace(self, Self::Broken) {
                        *self = Self::BehindMember(decoder.finish()?);
                    }
                    self.write(bytes)
                }
                taken => Ok(taken),
            },
            Self::BehindMember(_) => match bytes.iter().take_while(|&&byte| byte == 0).count() {
                0 if !bytes.is_empty() => {
                    if let Self::BehindMember(inner) = std::mem::replace(self, Self::Broken) {
                        *self = Self::Gzip(Box::new(GzDecoder::new(inner)));
                    }
                    self.write(bytes)
                }
                zeros => Ok(zeros),
            },
            Self::Zlib(decoder) => decoder.write(bytes),
            Self::Deflate(decoder) => decoder.write(bytes),
            Self::Broken => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn spool(served: &[u8], piece: usize, limit: u64) -> Result<Vec<u8>, FetchError> {
        let mut spool = Spool::new(limit, false);
        for piece in served.chunks(piece) {
            spool.add(&[Bytes::copy_from_slice(piece)])?;
        }
        let mut spooled = spool.finish()?;
        let mut bytes = Vec::new();
        spooled.file.read_to_end(&mut bytes).unwrap();
        assert_eq!(spooled.len, bytes.len() as u64);
        assert_eq!(spooled.digest, <[u8; 32]>::from(Sha256::digest(&bytes)));
        Ok(bytes)
    }

    #[test]
    fn damaged_and_too_large_gzip_are_distinguished() {
        let whole = gzip(&[b'x'; 5000]);
        let mut altered = whole.clone();
        let crc = altered.len() - 6;
        altered[crc] ^= 1;
        let error = |served: &[u8], limit| spool(served, 100, limit).unwrap_err().code();
        assert_eq!(error(&whole[..whole.len() - 9], 9999), "bad-gzip");
        assert_eq!(error(&whole[..whole.len() - 1], 9999), "bad-gzip");
        assert_eq!(error(&whole[..5], 9999), "bad-gzip");
        assert_eq!(error(&altered, 9999), "bad-gzip");
        assert_eq!(error(&whole, 4999), "too-large");
        assert_eq!(error(&gzip(&whole), 4999), "too-large");
    }

    #[test]
    fn limit_is_inclusive_and_applies_after_decompression() {
        assert_eq!(spool(&[b'a'; 10], 3, 10).unwrap().len(), 10);
        assert_eq!(spool(&[b'a'; 11], 3, 10).unwrap_err().code(), "too-large");
        assert_eq!(spool(&gzip(&[b'a'; 10]), 3, 10).unwrap().len(), 10);
    }

    #[test]
    fn a_document_that_expands_out_of_proportion_is_rejected() {
        const MIB: u64 = 1 << 20;
        for (received, expected) in [
            (1, 64 * MIB),
            (MIB / 2, 64 * MIB),
            (MIB, 100 * MIB),
            (2 * MIB, 200 * MIB),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(max_expanded(received), expected, "{received}");
        }
        // However it was compressed, and in however few pieces it comes.
        let zeros = vec![0; 65 << 20];
        let (once, twice) = (gzip(&zeros), gzip(&gzip(&zeros)));
        assert!(twice.len() < 2000);
        for served in [once, twice] {
            let error = spool(&served, served.len(), 1 << 40).unwrap_err();
            assert_eq!(error.code(), "expansion");
        }
    }

    #[test]
    fn several_gzip_members_are_one_document() {
        let served = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(spool(&served, 7, 100).unwrap(), b"one two");
    }

    #[test]
    fn zeros_behind_the_compressed_stream_are_ignored() {
        let (one, two) = (gzip(b"one "), gzip(b"two"));
        for zeros in [1, 2, 18, 600] {
            let padding = vec![0; zeros];
            for piece in [1, 7, 9999] {
                let served = [&one[..], &two, &padding].concat();
                assert_eq!(spool(&served, piece, 100).unwrap(), b"one two", "{zeros}");
                let twice = [gzip(&served), padding.clone()].concat();
                assert_eq!(spool(&twice, piece, 100).unwrap(), b"one two", "{zeros}");
            }
        }
        // Anything else is damage.
        for behind in [&b"x"[..], &[0, 0, b'x']] {
            let served = [&one[..], behind].concat();
            assert_eq!(spool(&served, 7, 100).unwrap_err().code(), "bad-gzip");
        }
    }

    proptest! {
        #[test]
        fn compressed_bodies_are_decompressed_from_pieces_of_any_size(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000), piece in 1_usize..700
        ) {
            prop_assume!(!bytes.starts_with(&GZIP_MAGIC));
            let once = gzip(&bytes);
            prop_assert_eq!(&spool(&bytes, piece, 9999).unwrap(), &bytes);
            prop_assert_eq!(&spool(&once, piece, 9999).unwrap(), &bytes);
            prop_assert_eq!(&spool(&gzip(&once), piece, 9999).unwrap(), &bytes);
        }

        #[test]
        fn arbitrary_bytes_after_the_gzip_magic_do_not_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), piece in 1_usize..100
        ) {
            let _ = spool(&[&GZIP_MAGIC[..], &bytes].concat(), piece, 9999);
        }
    }
}
