//! Scratch folders: each is private to a run that changes nothing, and is removed at its end. They are in the folder of the database: its
//! disk has room for another one, and a folder for temporary files may be in memory.
//!
//! Invariant: a folder in use is locked, so that those that a killed run has left are recognized, and removed by who comes next.

use std::fs;
use std::path::{Path, PathBuf};

use resyncd_mirror::FileLock;
use tempfile::TempDir;

use super::error::StoreError;
use super::folder;

/// The beginning of the names of scratch folders.
const PREFIX: &str = "resyncd-scratch-";

/// A scratch folder. Dropping it removes it.
pub struct ScratchFolder {
    // Fields are dropped in this order.
    folder: TempDir,
    _lock: FileLock,
    _state: MadeFolder,
}

/// The folder of the database; with a path if it was made for the scratch folder.
struct MadeFolder(Option<PathBuf>);

impl Drop for MadeFolder {
    fn drop(&mut self) {
        if let Some(made) = &self.0 {
            // It stays if somebody has put something there meanwhile.
            let _ = fs::remove_dir(made);
        }
    }
}

impl ScratchFolder {
    /// Creates one in the folder of the database, and removes those that nobody uses any more.
    ///
    /// # Errors
    /// [`StoreError::Folder`].
    pub fn create(state: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::Folder(state.to_owned(), error);
        let made = MadeFolder((!state.exists()).then(|| state.to_owned()));
        if made.0.is_some() {
            folder::prepare(state).map_err(failed)?;
        }
        remove_unused(state);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(state);
        let folder = folder.map_err(failed)?;
        Ok(Self {
            _lock: folder::lock(folder.path())?,
            folder,
            _state: made,
        })
    }

    /// The place for a database.
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The place for a mirror of a Source.
    pub fn mirror(&self, source: &str) -> PathBuf {
        self.folder.path().join("mirrors").join(source)
    }
}

/// Removes the scratch folders that killed runs have left in the folder of a database. One without a lock is just being made.
pub(super) fn remove_unused(state: &Path) {
    let Ok(entries) = fs::read_dir(state) else {
        return;
    };
    for entry in entries.flatten() {
        let is_scratch = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_scratch && folder::was_left(&entry.path()) {
            let removed = fs::remove_dir_all(entry.path());
            tracing::debug!(folder = %entry.path().display(), ?removed, "scratch folder left by a killed run");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn scratch_folder_is_removed_and_so_is_the_folder_that_was_made_for_it() {
        let parent = tempfile::tempdir().unwrap();
        let state = parent.path().join("state");
        let first = ScratchFolder::create(&state).unwrap();
        let second = ScratchFolder::create(&state).unwrap();
        assert_eq!(names(&state).len(), 2, "the first one is in use");
        assert!(first.state().starts_with(&state));
        drop(second);
        drop(first);
        assert!(!state.exists());
        fs::create_dir(&state).unwrap();
        drop(ScratchFolder::create(&state).unwrap());
        assert_eq!(names(&state), [""; 0], "it was there before");
    }

    #[test]
    fn what_a_killed_run_has_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path();
        let left = state.join("resyncd-scratch-left");
        let leave = || {
            fs::create_dir(&left).unwrap();
            fs::write(left.join("resyncd.lock"), "").unwrap();
        };
        leave();
        let used = ScratchFolder::create(state).unwrap();
        drop(Store::open(state).unwrap());
        assert!(!left.exists() && used.folder.path().exists());
        // It is just being made.
        fs::create_dir(&left).unwrap();
        drop(ScratchFolder::create(state).unwrap());
        assert!(left.exists());
    }
}
