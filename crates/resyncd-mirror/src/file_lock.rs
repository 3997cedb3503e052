//! Locks of files, by which one process keeps others out of a folder.
//!
//! The system ends such a lock (`flock`) when it is released, or when the last descriptor of the open file is closed. A process that is
//! being started has a copy of every descriptor until it executes its program: closing the file alone would not end the lock while one is.

use std::fs::{File, TryLockError};
use std::ops::Deref;

/// An open file with an exclusive lock. Dropping it releases the lock, whoever else has a copy of the descriptor.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks an open file. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` if it is locked, by this process or by another one.
    pub fn try_new(file: File) -> Result<Self, TryLockError> {
        file.try_lock()?;
        Ok(Self(file))
    }
}

impl Deref for FileLock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // If it fails, closing the file releases it.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_lock_is_released_while_a_copy_of_its_descriptor_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let open = || File::create(folder.path().join("lock")).unwrap();
        let lock = FileLock::try_new(open()).unwrap();
        // As a process has it that is being started.
        let copy = lock.try_clone().unwrap();
        let refused = FileLock::try_new(open());
        assert!(matches!(refused, Err(TryLockError::WouldBlock)));
        drop(lock);
        FileLock::try_new(open()).unwrap();
        drop(copy);
    }
}
