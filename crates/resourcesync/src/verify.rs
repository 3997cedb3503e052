//! Verification of bytes: their length and digests against the announced ones (section 7, `length` and `hash`).
//!
//! It exists once: whatever is compared with announced digests passes through a [`Verifier`], be it a download, a package and its members,
//! a patch and its result, a file to adopt, an audited file or a stored version.

use std::io::{self, Read};

use super::digest::Hashing;
use super::{Algorithm, Digest};

/// The size of the buffer for [`Verifier::read_all`], in bytes.
const BUFFER: u64 = 256 * 1024;

/// The length and digests of bytes that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The length in bytes.
    pub length: u64,
    /// The computed digests, one of each algorithm.
    pub digests: Vec<Digest>,
}

/// How bytes differ from what was announced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Another length, in bytes. Where there are too many bytes, `actual` is the length at which that was seen.
    #[error("length mismatch: expected {expected} bytes, received {actual}")]
    Length {
        /// The announced length.
        expected: u64,
        /// The length of the bytes.
        actual: u64,
    },
    /// Another digest.
    #[error("digest mismatch: expected {expected}, computed {actual}")]
    Digest {
        /// The announced digest.
        expected: Box<Digest>,
        /// The digest of the bytes, of the same algorithm.
        actual: Box<Digest>,
    },
}

impl Mismatch {
    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Length { .. } => "length-mismatch",
            Self::Digest { .. } => "digest-mismatch",
        }
    }
}

/// Counts and hashes bytes as they arrive, and compares them with the announced length and digests.
#[derive(Debug)]
pub struct Verifier {
    expected_length: Option<u64>,
    expected_digests: Vec<Digest>,
    length: u64,
    hashing: Hashing,
}

impl Verifier {
    /// Verifies against a length in bytes and digests, as far as they were announced. A SHA-256 is computed in any case, so
    /// that the same bytes can be recognized when a later document announces that digest.
    #[must_use]
    pub fn new(length: Option<u64>, digests: &[Digest]) -> Self {
        Self::computing(length, digests, &[Algorithm::Sha256])
    }

    /// As [`new`](Self::new), but computes only digests of the announced algorithms.
    #[must_use]
    pub fn of_announced_only(length: Option<u64>, digests: &[Digest]) -> Self {
        Self::computing(length, digests, &[])
    }

    fn computing(length: Option<u64>, digests: &[Digest], more: &[Algorithm]) -> Self {
        let algorithms = digests.iter().map(Digest::algorithm);
        Self {
            expected_length: length,
            expected_digests: digests.to_vec(),
            length: 0,
            hashing: Hashing::new(algorithms.chain(more.iter().copied())),
        }
    }

    /// Compares a length that is known before the bytes are read.
    pub fn check_length(&self, actual: u64) -> Result<(), Mismatch> {
        match self.expected_length {
            Some(expected) if expected != actual => Err(Mismatch::Length { expected, actual }),
            _ => Ok(()),
        }
    }

    /// Adds the next bytes. Fails as soon as there are more than announced.
    pub fn update(&mut self, bytes: &[u8]) -> Result<(), Mismatch> {
        self.hashing.update(bytes);
        self.length += bytes.len() as u64;
        match self.expected_length {
            Some(expected) if self.length > expected => self.check_length(self.length),
            _ => Ok(()),
        }
    }

    /// Adds all bytes of an input, or as many as it takes to see that there are more than announced;
    /// [`finish`](Self::finish) reports that. `on_read` gets the number of bytes of each read.
    pub fn read_all(
        &mut self,
        input: &mut impl Read,
        mut on_read: impl FnMut(usize),
    ) -> io::Result<()> {
        // One byte more than expected, so that a short input ends with its second read.
        let size = self
            .expected_length
            .map_or(BUFFER, |length| BUFFER.min(length.saturating_add(1)));
        let mut buffer = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        loop {
            match input.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    on_read(count);
                    if self.update(&buffer[..count]).is_err() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the bytes: their length and digests, if both are as announced.
    pub fn finish(self) -> Result<Verified, Mismatch> {
        let (verified, mismatch) = self.compare();
        mismatch.map_or(Ok(verified), Err)
    }

    /// Ends the bytes: their length and digests, and how they differ from what was announced. The length is compared first.
    pub fn compare(self) -> (Verified, Option<Mismatch>) {
        let mismatch = self.check_length(self.length).err();
        let digests = self.hashing.finish();
        let mismatch = mismatch.or_else(|| digest_mismatch(&self.expected_digests, &digests));
        let verified = Verified {
            length: self.length,
            digests,
        };
        (verified, mismatch)
    }
}

/// The first announced digest that differs from the computed one of the same algorithm.
fn digest_mismatch(expected: &[Digest], computed: &[Digest]) -> Option<Mismatch> {
    expected.iter().find_map(|expected| {
        let differs =
            |actual: &&Digest| actual.algorithm() == expected.algorithm() && *actual != expected;
        let actual = computed.iter().find(differs)?;
        Some(Mismatch::Digest {
            expected: Box::new(expected.clone()),
            actual: Box::new(actual.clone()),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: &[u8] = b"the bytes";

    /// What comes of these bytes in pieces of every size, and of the same as an input.
    fn check(length: Option<u64>, digests: &[Digest], expected: Option<&Mismatch>) {
        for size in 1..=BYTES.len() {
            let mut verifier = Verifier::new(length, digests);
            let updated = BYTES
                .chunks(size)
                .try_for_each(|piece| verifier.update(piece));
            let found = updated.and_then(|()| verifier.finish());
            match (found, expected) {
                (Ok(verified), None) => {
                    assert_eq!(verified.length, BYTES.len() as u64);
                    let sha256 = Digest::of(Algorithm::Sha256, BYTES);
                    assert!(verified.digests.contains(&sha256));
                    assert!(digests.iter().all(|one| verified.digests.contains(one)));
                }
                (Err(mismatch), Some(expected)) => assert_eq!(mismatch.code(), expected.code()),
                (found, _) => panic!("{found:?}"),
            }
        }
        let mut verifier = Verifier::new(length, digests);
        let mut read = 0;
        verifier
            .read_all(&mut &BYTES[..], |count| read += count)
            .unwrap();
        assert_eq!(verifier.finish().err().as_ref(), expected);
    }

    #[test]
    fn length_and_every_digest_must_match() {
        let sha256 = Digest::of(Algorithm::Sha256, BYTES);
        let md5 = Digest::of(Algorithm::Md5, BYTES);
        let other = Digest::of(Algorithm::Md5, b"other");
        let length = BYTES.len() as u64;
        let differs = Mismatch::Digest {
            expected: Box::new(other.clone()),
            actual: Box::new(md5.clone()),
        };
        check(None, &[], None);
        check(Some(length), &[], None);
        check(Some(length), &[md5.clone(), sha256.clone()], None);
        check(None, std::slice::from_ref(&other), Some(&differs));
        check(Some(length), &[sha256, other.clone()], Some(&differs));
        // Two announced digests of one algorithm can't both match.
        check(None, &[md5, other.clone()], Some(&differs));
        let length_differs = |expected, actual| Mismatch::Length { expected, actual };
        check(
            Some(length + 1),
            &[],
            Some(&length_differs(length + 1, length)),
        );
        check(
            Some(length + 1),
            &[other],
            Some(&length_differs(length + 1, length)),
        );
        check(Some(0), &[], Some(&length_differs(0, 1)));
        check(Some(3), &[], Some(&length_differs(3, 4)));
    }

    #[test]
    fn compare_returns_the_digests_in_spite_of_a_mismatch() {
        let other = Digest::of(Algorithm::Md5, b"other");
        let mut verifier = Verifier::of_announced_only(None, std::slice::from_ref(&other));
        verifier.update(BYTES).unwrap();
        let (verified, mismatch) = verifier.compare();
        assert_eq!(verified.digests, [Digest::of(Algorithm::Md5, BYTES)]);
        assert_eq!(mismatch.unwrap().code(), "digest-mismatch");
    }

    #[test]
    fn a_length_known_beforehand_is_compared() {
        assert!(Verifier::new(None, &[]).check_length(9).is_ok());
        assert!(Verifier::new(Some(9), &[]).check_length(9).is_ok());
        let mismatch = Verifier::new(Some(8), &[]).check_length(9).unwrap_err();
        let message = "length mismatch: expected 8 bytes, received 9";
        assert_eq!(mismatch.to_string(), message);
    }

    #[test]
    fn only_announced_algorithms_are_computed_for_packages() {
        let verifier = Verifier::of_announced_only(None, &[]);
        assert!(verifier.finish().unwrap().digests.is_empty());
    }
}
