//! SHELL, files: which path a resource has, and how its bytes get there whole.
//!
//! Four verbs: [`Mirror::stage`], [`Mirror::publish`], [`Mirror::remove`] and [`Mirror::open_file`].
//!
//! Invariants:
//! - A file at its place is whole: it was complete and on disk before the rename that put it there, and what is reported
//!   as done survives a power cut.
//! - Nothing is read or written outside the mirror: paths are checked when they are made, and no symlink below the root
//!   is ever followed or replaced.
//! - One [`Mirror`] at a time has a folder; working files are below its `.resyncd/`.
//!
//! Everything in here blocks: callers in async code use threads that may. The room knows no Sources, no database and no
//! network, and does not check digests: bytes are verified before they are finished.

mod beneath;
mod error;
mod packages;
mod path;
mod publish;
mod reading;
mod refusals;
mod staged;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use beneath::Beneath;
use publish::Unsynced;
use refusals::inject_fault;
use staged::StagingDir;

pub use error::MirrorError;
pub use path::{MirrorPath, made_path, plain_path};
pub use publish::Unpublished;
pub use reading::{Files, MirrorReader};
pub use staged::{CompletedFile, Staged, file_time};

/// A folder of resources, open for changes.
///
/// It may be shared between threads: changes of the tree take turns, working files don't.
pub struct Mirror {
    root: PathBuf,
    tree: Beneath,
    workroom: Arc<StagingDir>,
    /// Its lock also makes changes of the tree take turns, so that no folder is pruned while another call fills it.
    unsynced: Mutex<Unsynced>,
    #[cfg(test)]
    unsyncable: Mutex<Unsynced>,
}

impl Mirror {
    /// Opens a mirror, makes its folder if need be, and removes working files that an earlier process left.
    ///
    /// # Errors
    /// [`MirrorError::Locked`] when it is open elsewhere; others when the folder can't be made or written to.
    pub fn open(root: &Path) -> Result<Self, MirrorError> {
        let shown = root.display().to_string();
        make_root(root).map_err(|error| MirrorError::sort_io("making", &shown, &error))?;
        let tree =
            Beneath::open(root).map_err(|errno| MirrorError::sort("opening", &shown, errno))?;
        let (workroom, unclean) = StagingDir::open(&tree, root)?;
        if unclean {
            // The process before us may have made folders and not synced them, and we would take them for safe.
            tree.sync_everything()
                .map_err(|errno| MirrorError::sort("syncing", &shown, errno))?;
        }
        Ok(Self {
            root: root.to_owned(),
            tree,
            workroom: Arc::new(workroom),
            unsynced: Mutex::default(),
            #[cfg(test)]
            unsyncable: Mutex::default(),
        })
    }

    /// The mirror's folder, as it was opened.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Begins a working file.
    ///
    /// # Errors
    /// [`MirrorError`], when it can't be made.
    pub fn stage(&self) -> Result<Staged, MirrorError> {
        Staged::begin(&self.workroom)
    }

    /// Opens a published file for reading. What is read stays the same, also when the path is published anew meanwhile.
    ///
    /// # Errors
    /// [`MirrorError::Missing`] when there is none, [`MirrorError::Blocked`] when something else is there.
    pub fn open_file(&self, path: &MirrorPath) -> Result<File, MirrorError> {
        reading::open_file(&self.tree, path)
    }

    /// All files that have a path of ours, in no order; the same as [`MirrorReader::files`].
    pub fn files(&self) -> Files<'_> {
        Files::of(&self.tree)
    }

    /// Waits until a folder's entries are on disk.
    fn sync_folder(&self, folder: &str) -> rustix::io::Result<()> {
        #[cfg(test)]
        if self.unsyncable.lock().unwrap().contains(folder) {
            return Err(rustix::io::Errno::IO);
        }
        self.tree.sync(folder)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let unsynced = self.unsynced.get_mut();
        if unsynced.is_ok_and(|unsynced| unsynced.is_empty()) {
            self.workroom.note_clean();
        }
    }
}

/// Makes the mirror's folder and those it is in, and waits until they are on disk.
fn make_root(root: &Path) -> io::Result<()> {
    let missing = root.ancestors().take_while(|folder| {
        !folder.as_os_str().is_empty() && matches!(folder.try_exists(), Ok(false))
    });
    let missing: Vec<&Path> = missing.collect();
    inject_fault()?;
    fs::create_dir_all(root)?;
    for folder in missing {
        match folder.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all()?,
            _ => File::open(".")?.sync_all()?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
