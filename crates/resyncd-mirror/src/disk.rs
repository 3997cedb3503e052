//! The calls that change the disk, and their observer.

use rustix::io::Result;

/// A call that changes the disk, or syncs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskCall {
    /// Creates a file.
    Create,
    /// Writes bytes.
    Write,
    /// Sets the time of a file.
    Date,
    /// Syncs a file or a folder.
    Fsync,
    /// Syncs the file system.
    Syncfs,
    /// Creates a folder.
    CreateFolder,
    /// Gives a file another name.
    Rename,
    /// Gives a file a name.
    Link,
    /// Removes a file.
    Unlink,
    /// Removes a folder.
    RemoveFolder,
}

/// Observes the calls that change the disk, each on the thread that makes it.
pub trait DiskObserver: Send + Sync {
    /// A call follows, unless this fails. `of`: the bytes that are written to a staged file, the name that a file gets in the tree, or the path of a
    /// folder whose entries are synced; of other calls, nothing.
    ///
    /// # Errors
    /// The error of the call, which is not made.
    fn before(&self, call: DiskCall, of: &[u8]) -> Result<()>;
}

/// Of a disk that is not observed.
impl DiskObserver for () {
    fn before(&self, _: DiskCall, _: &[u8]) -> Result<()> {
        Ok(())
    }
}
