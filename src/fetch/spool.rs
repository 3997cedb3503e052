//! Takes in the body of a document: decompresses it, counts and hashes what comes out, keeps it in memory or in a file.

use std::io::{self, Seek, SeekFrom, Write};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use tempfile::SpooledTempFile;

use super::FetchError;

/// What is kept in memory; longer documents go to an unnamed file.
const IN_MEMORY: usize = 1 << 20;

/// How far a compressed body may grow once more than [`RATIO_FROM`] has come out of it.
const RATIO: u64 = 100;

/// So much may come out of any body, in bytes: large lists are dense, and as a rule the limit is no higher.
const RATIO_FROM: u64 = 64 << 20;

/// A body on its way in. Works on disk, so it belongs on a thread that may block.
pub(super) struct Spool {
    // Twice, because some servers compress for transport what is a gzip file already.
    unzip: Unzip<Unzip<Sink>>,
    taken: u64,
}

/// A body that is all there.
pub(super) struct Spooled {
    pub(super) file: SpooledTempFile,
    pub(super) len: u64,
    pub(super) digest: [u8; 32],
}

impl Spool {
    /// An empty one, for so many bytes after decompression.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            unzip: Unzip::new(Unzip::new(Sink {
                file: SpooledTempFile::new(IN_MEMORY),
                hash: Sha256::new(),
                len: 0,
                limit,
                proportion: RATIO_FROM,
            })),
            taken: 0,
        }
    }

    /// Takes the next bytes, as they were served.
    pub(super) fn take(&mut self, chunks: &[Bytes]) -> Result<(), FetchError> {
        for chunk in chunks {
            self.taken += chunk.len() as u64;
            // The sink decides: a few bytes that were compressed twice may be more than a disk holds.
            if let Some(sink) = self.unzip.inner().and_then(Unzip::inner) {
                sink.proportion = in_proportion(self.taken);
            }
            self.unzip.write_all(chunk).map_err(to_fetch_error)?;
        }
        Ok(())
    }

    /// The whole body.
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

/// How much may come out of so many bytes.
fn in_proportion(taken: u64) -> u64 {
    taken.saturating_mul(RATIO).max(RATIO_FROM)
}

/// What the sink refuses; travels through the decoders as an `io::Error`.
#[derive(Debug, thiserror::Error)]
enum SinkError {
    #[error("over the limit of {0} bytes")]
    OverLimit(u64),
    #[error("out of proportion to what was served")]
    OutOfProportion,
    #[error(transparent)]
    Disk(io::Error),
}

/// What the sink did not refuse is the decoder's own complaint.
fn to_fetch_error(error: io::Error) -> FetchError {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(SinkError::OverLimit(limit)) => FetchError::TooLarge { limit: *limit },
        Some(SinkError::OutOfProportion) => FetchError::Expansion,
        Some(SinkError::Disk(error)) => FetchError::Io(error.to_string()),
        None => FetchError::BadGzip(error.to_string()),
    }
}

/// Where the bytes end up.
struct Sink {
    file: SpooledTempFile,
    hash: Sha256,
    len: u64,
    limit: u64,
    /// How much may come out of what was taken so far.
    proportion: u64,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.len = self.len.saturating_add(bytes.len() as u64);
        if self.len > self.limit {
            return Err(io::Error::other(SinkError::OverLimit(self.limit)));
        }
        if self.len > self.proportion {
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

/// Decompresses what begins as gzip does, and passes on everything else as it is: neither the name nor the headers can be
/// trusted to tell.
enum Unzip<W: Write> {
    /// Not enough has come to decide.
    Start(Vec<u8>, W),
    Plain(W),
    Gzip(Box<MultiGzDecoder<W>>),
    /// It failed before; only in place while the state changes.
    Broken,
}

const MAGIC: [u8; 2] = [0x1f, 0x8b];

impl<W: Write> Unzip<W> {
    fn new(inner: W) -> Self {
        Self::Start(Vec::with_capacity(MAGIC.len()), inner)
    }

    fn inner(&mut self) -> Option<&mut W> {
        match self {
            Self::Start(_, inner) | Self::Plain(inner) => Some(inner),
            Self::Gzip(decoder) => Some(decoder.get_mut()),
            Self::Broken => None,
        }
    }

    fn decide(&mut self) -> io::Result<()> {
        match std::mem::replace(self, Self::Broken) {
            Self::Start(first, inner) => {
                *self = if first == MAGIC {
                    Self::Gzip(Box::new(MultiGzDecoder::new(inner)))
                } else {
                    Self::Plain(inner)
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
            Self::Plain(inner) => Ok(inner),
            Self::Gzip(decoder) => decoder.finish(),
            Self::Start(..) | Self::Broken => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl<W: Write> Write for Unzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Start(first, _) => {
                let missing = (MAGIC.len() - first.len()).min(bytes.len());
                first.extend_from_slice(&bytes[..missing]);
                if first.len() == MAGIC.len() {
                    self.decide()?;
                }
                Ok(missing)
            }
            Self::Plain(inner) => inner.write(bytes),
            Self::Gzip(decoder) => decoder.write(bytes),
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
        let mut spool = Spool::new(limit);
        for piece in served.chunks(piece) {
            spool.take(&[Bytes::copy_from_slice(piece)])?;
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
        for (taken, expected) in [
            (1, 64 * MIB),
            (MIB / 2, 64 * MIB),
            (MIB, 100 * MIB),
            (2 * MIB, 200 * MIB),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(in_proportion(taken), expected, "{taken}");
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

    proptest! {
        #[test]
        fn compressed_bodies_are_decompressed_from_pieces_of_any_size(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000), piece in 1_usize..700
        ) {
            prop_assume!(!bytes.starts_with(&MAGIC));
            let once = gzip(&bytes);
            prop_assert_eq!(&spool(&bytes, piece, 9999).unwrap(), &bytes);
            prop_assert_eq!(&spool(&once, piece, 9999).unwrap(), &bytes);
            prop_assert_eq!(&spool(&gzip(&once), piece, 9999).unwrap(), &bytes);
        }

        #[test]
        fn arbitrary_bytes_after_the_gzip_magic_do_not_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), piece in 1_usize..100
        ) {
            let _ = spool(&[&MAGIC[..], &bytes].concat(), piece, 9999);
        }
    }
}
