//! A resource that was received completely and verified, and is not published yet.
//!
//! A small one is in memory until its batch is published, or prepared for that: then it is written to its staged file on a thread that
//! does so for many, and does not need a blocking thread of its own. A large one is in its staged file.

use resourcesync::{Digest, SourceTime, Verified};
use resyncd_core::ServedVersion;
use resyncd_mirror::{CompletedFile, Mirror, MirrorError, Staged};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The length of the longest resource that is in memory until it is published, in bytes.
const LONGEST: usize = 256 << 10;
/// How many bytes of resources may be in memory until they are published, of all Sources together.
static FREE: Semaphore = Semaphore::const_new(16 << 20);

/// A resource that was received completely and verified.
pub(crate) struct ReceivedResource {
    pub(crate) bytes: ReceivedBytes,
    pub(crate) description: Description,
}

/// Where the bytes of a received resource are.
pub(crate) enum ReceivedBytes {
    /// In a staged file.
    Staged(CompletedFile),
    /// In memory.
    InMemory(BytesInMemory),
}

impl ReceivedBytes {
    /// The staged file with the bytes, which are written to it now if they are in memory. It may block.
    pub(crate) fn into_file(
        self,
        mirror: &Mirror,
        lastmod: Option<SourceTime>,
    ) -> Result<CompletedFile, MirrorError> {
        self.written_to(|| mirror.stage(), lastmod)
    }

    /// The same for one of many files that are published together.
    pub(super) fn into_file_of_many(
        self,
        mirror: &Mirror,
        lastmod: Option<SourceTime>,
    ) -> Result<CompletedFile, MirrorError> {
        self.written_to(|| mirror.stage_of_many(), lastmod)
    }

    fn written_to(
        self,
        stage: impl FnOnce() -> Result<Staged, MirrorError>,
        lastmod: Option<SourceTime>,
    ) -> Result<CompletedFile, MirrorError> {
        match self {
            Self::Staged(file) => Ok(file),
            Self::InMemory(BytesInMemory { bytes, .. }) => {
                let mut staged = stage()?;
                staged.write(&bytes)?;
                staged.finish(lastmod)
            }
        }
    }
}

/// A representation that was received completely and verified.
pub(super) struct Received {
    pub(super) bytes: ReceivedBytes,
    pub(super) verified: Verified,
    /// The content coding of the bytes; `None` if they are not coded.
    pub(super) encoding: Option<String>,
}

impl Received {
    /// The representation as the resource that is published. `version`: the one that its server states; `None` if it did not come from
    /// the resource's own URI.
    pub(super) fn described(
        self,
        media_type: Option<String>,
        lastmod: Option<SourceTime>,
        version: Option<ServedVersion>,
    ) -> ReceivedResource {
        ReceivedResource {
            bytes: self.bytes,
            description: Description {
                length: self.verified.length,
                media_type,
                encoding: self.encoding,
                hashes: self.verified.digests,
                lastmod,
                version,
                is_patched: false,
            },
        }
    }
}

/// The bytes of a small resource.
pub(crate) struct BytesInMemory {
    bytes: Vec<u8>,
    _room: BodyMemory,
}

/// Room in memory for the bytes of one resource.
pub(super) struct BodyMemory(SemaphorePermit<'static>);

impl BodyMemory {
    /// Room for a body of that length in bytes, or for any small one if its length is not stated; `None`: it is not small, or
    /// there is no room now.
    pub(super) fn of_body(length: Option<u64>) -> Option<Self> {
        Self::of(&FREE, length)
    }

    fn of(free: &'static Semaphore, length: Option<u64>) -> Option<Self> {
        let length = length.map_or(Ok(LONGEST), usize::try_from).ok();
        let length = length.filter(|&length| length <= LONGEST)?;
        let permits = u32::try_from(length).ok()?;
        free.try_acquire_many(permits).ok().map(Self)
    }

    /// In bytes.
    pub(super) fn length(&self) -> usize {
        self.0.num_permits()
    }

    /// Uses the room for a body; gives the body back if it is longer, or there is no room.
    pub(super) fn hold(room: Option<Self>, bytes: Vec<u8>) -> Result<BytesInMemory, Vec<u8>> {
        match room {
            Some(room) => room.fill(bytes),
            None => Err(bytes),
        }
    }

    pub(super) fn fill(mut self, mut bytes: Vec<u8>) -> Result<BytesInMemory, Vec<u8>> {
        let Some(rest) = self.length().checked_sub(bytes.len()) else {
            return Err(bytes);
        };
        bytes.shrink_to_fit();
        drop(self.0.split(rest));
        Ok(BytesInMemory { bytes, _room: self })
    }
}

/// What is recorded of a file besides its bytes.
pub(crate) struct Description {
    pub(super) length: u64,
    pub(super) media_type: Option<String>,
    /// The content coding of its bytes; `None` if they are not coded.
    pub(super) encoding: Option<String>,
    pub(crate) hashes: Vec<Digest>,
    pub(crate) lastmod: Option<SourceTime>,
    /// The version that its server states; `None` if it did not come from the resource's own URI.
    pub(super) version: Option<ServedVersion>,
    /// Whether it was made from the version before by a patch.
    pub(super) is_patched: bool,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn room_is_for_small_bodies_and_is_limited() {
        static FREE: Semaphore = Semaphore::const_new(LONGEST + 10);
        let of = |length| BodyMemory::of(&FREE, length);
        assert!(of(Some(LONGEST as u64 + 1)).is_none(), "too long");
        assert!(of(Some(u64::MAX)).is_none());
        let of_unknown = of(None).unwrap();
        assert_eq!(
            (of_unknown.length(), FREE.available_permits()),
            (LONGEST, 10)
        );
        assert!(of(Some(11)).is_none(), "no room");
        let small = of(Some(10)).unwrap();
        assert_eq!(small.fill(vec![1; 11]).err(), Some(vec![1; 11]));
        assert_eq!(FREE.available_permits(), 10);
        let held = of_unknown
            .fill(vec![1; 4])
            .unwrap_or_else(|_| panic!("it fits"));
        assert_eq!(FREE.available_permits(), LONGEST + 6);
        assert!(of(None).is_some());
        drop(held);
        assert_eq!(FREE.available_permits(), LONGEST + 10);
        let empty = of(Some(0)).unwrap().fill(Vec::new());
        assert!(empty.is_ok());
    }

    #[test]
    fn bytes_in_memory_are_written_when_their_file_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let mirror = Mirror::open(folder.path()).unwrap();
        let staged = || {
            let work = fs::read_dir(folder.path().join(".resyncd/work")).unwrap();
            let paths = work.map(|entry| entry.unwrap().path());
            paths.collect::<Vec<_>>()
        };
        let room = BodyMemory::of_body(Some(5)).unwrap();
        let held = room
            .fill(b"bytes".to_vec())
            .unwrap_or_else(|_| panic!("they fit"));
        assert!(staged().is_empty());
        let lastmod = SourceTime::from_micros(1_600_000_000_000_000);
        let bytes = ReceivedBytes::InMemory(held);
        let file = bytes.into_file(&mirror, Some(lastmod)).unwrap();
        let written = staged();
        assert_eq!(fs::read(&written[0]).unwrap(), b"bytes");
        let modified = fs::metadata(&written[0]).unwrap().modified().unwrap();
        assert_eq!(modified, resyncd_mirror::file_time(lastmod));
        drop(file);
        assert!(staged().is_empty());
    }
}
