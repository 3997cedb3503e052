//! What a mirror in an object store does in another way than one in a folder.
//!
//! Invariants: a file is there with its whole content or not at all, because the store replaces objects atomically; and the store has it
//! when it is reported as published. So there is nothing to sync, and no folder to create or to prune.

use std::io::{Read, Seek};
use std::sync::Arc;
use std::time::SystemTime;

use resourcesync::Digest;

use super::{
    CompletedFile, FileMetadata, MirrorError, MirrorFile, MirrorId, MirrorPath, ObjectPlace,
    PublishError,
};

#[cfg(feature = "objects")]
mod reader;
#[cfg(feature = "objects")]
mod runtime;
#[cfg(feature = "objects")]
mod store;
#[cfg(all(test, feature = "objects"))]
mod tests;
#[cfg(feature = "objects")]
mod uploads;

/// The files of a mirror in an object store. All functions block.
pub(super) trait ObjectFiles: Send + Sync {
    /// The id of the mirror; `None`: it has none.
    fn id(&self) -> Result<Option<MirrorId>, MirrorError>;

    /// Gives the mirror, which has none, this id.
    fn set_id(&self, id: &MirrorId) -> Result<(), MirrorError>;

    /// Removes what a former process has uploaded of a file without an end.
    fn remove_unfinished(&self);

    /// As [`Mirror::publish`](super::Mirror::publish); `is_new`: as [`Mirror::publish_new`](super::Mirror::publish_new).
    fn publish(
        &self,
        batch: Vec<(CompletedFile, MirrorPath)>,
        is_new: bool,
    ) -> Vec<Result<(), PublishError>>;

    /// As [`Mirror::remove`](super::Mirror::remove), but what was not there may count as removed.
    fn remove(&self, paths: &[MirrorPath]) -> Vec<Result<bool, MirrorError>>;

    fn open_file(&self, path: &MirrorPath) -> Result<MirrorFile, MirrorError>;

    /// All published files.
    fn files(&self) -> Box<dyn Iterator<Item = Result<MirrorPath, MirrorError>>>;

    /// The names of the files in a folder, with their lengths in bytes.
    fn names_in(&self, folder: &MirrorPath) -> Result<Vec<(String, u64)>, MirrorError>;
}

/// An object that is open for reading.
pub(super) trait ObjectFile: Read + Seek + Send + Sync {
    /// At most so many bytes from a place on.
    fn read_at(&self, offset: u64, most: u64) -> std::io::Result<Vec<u8>>;

    fn metadata(&self) -> FileMetadata;

    /// The SHA-256 that it was stored with.
    fn digest(&self) -> Option<&Digest>;

    /// Stores it again with another time.
    fn set_modified(&self, time: SystemTime) -> std::io::Result<()>;
}

/// Opens the object store of a place. Whether it can be reached is not known then.
#[cfg(feature = "objects")]
pub(super) fn open(place: &ObjectPlace) -> Result<Arc<dyn ObjectFiles>, MirrorError> {
    Ok(Arc::new(store::Objects::open(place)?))
}

/// Fails: the program was built without object stores.
#[cfg(not(feature = "objects"))]
pub(super) fn open(place: &ObjectPlace) -> Result<Arc<dyn ObjectFiles>, MirrorError> {
    Err(MirrorError::NotBuilt {
        url: place.url.to_string(),
    })
}
