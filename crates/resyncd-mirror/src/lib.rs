//! The files of a mirror, each at its [`MirrorPath`].
//!
//! Above all four operations: [`Mirror::stage`], [`Mirror::publish`], [`Mirror::remove`] and [`Mirror::open_file`].
//!
//! | module | what it has |
//! |---|---|
//! | `mirror_path` | the path of a URI's file |
//! | `staged` | files that are being written, under `.resyncd/` |
//! | `unnamed` | files without a name, which get one later |
//! | `publish` | renames and removals, and the syncs that they need |
//! | `tree` | the folders, looked up from the open root without symlinks |
//! | `file_system` | one sync of the file system in place of many |
//! | `links` | hard links or copies of another mirror's files |
//! | `place` | where a mirror is: a folder, or an object store |
//! | `objects` | a mirror in an object store (feature `objects`); its folder is for what is being downloaded only |
//! | `file` | a published file that is open for reading |
//! | `reader` | a mirror that another process may have open |
//! | `identity` | the id of a mirror |
//! | `packages` | the folder of packages in progress |
//! | `file_lock` | locks that keep other processes out |
//! | `error` | why an operation failed |
//! | `disk` | the calls that change the disk, and their observer |
//! | `tests` | the mirror on a real file system, with I/O errors at planned calls |
//!
//! Invariants:
//! - A published file is complete: all its bytes were on disk before the rename, and what is reported as done survives a power
//!   failure. Where many are published, one sync of the file system replaces theirs; nothing else changes.
//! - Nothing outside the mirror is read or written: paths are checked when they are constructed, and no symlink below the root
//!   is followed or replaced.
//! - Only one [`Mirror`] at a time has a folder open; staged files are below its `.resyncd/`.
//!
//! All functions block: async code calls them on blocking threads. This module knows no Sources, no database and no network,
//! and does not check digests: bytes are verified before [`Staged::finish`].

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod disk;
mod error;
mod file;
mod file_lock;
mod file_system;
mod identity;
mod links;
mod mirror_path;
mod objects;
mod packages;
mod place;
mod publish;
mod reader;
mod staged;
mod tree;
mod unnamed;

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use disk::{DiskCall, DiskObserver};
pub use error::{CASE_INSENSITIVE, MirrorError, NOT_MOUNTED};
pub use file::{FileMetadata, MirrorFile};
pub use file_lock::FileLock;
pub use identity::MirrorId;
pub use mirror_path::{
    BadPath, MirrorPath, OWN_FOLDER, first_path, is_plain_path, made_folder, made_path,
    other_of_plain_path, path_if_blocked, path_if_freed, plain_path, publication_path,
    publication_paths, uris_of_plain_path,
};
use objects::ObjectFiles;
use parking_lot::Mutex;
pub use place::{MirrorPlace, ObjectPlace};
pub use publish::PublishError;
use reader::Files;
pub use reader::{FoundFiles, MirrorReader};
use rustix::io::Errno;
use staged::StagingDir;
pub use staged::{CompletedFile, FileDescription, Staged, file_time};
use tree::{FolderTree, UnsyncedFolders};

/// How many threads write staged files at once. Eight were not faster on two cores.
const WRITERS: usize = 2;
/// The same where each waits until its file is synced.
const WAITING_WRITERS: usize = 8;

/// A mirror, open for changes.
///
/// It may be shared between threads: changes of the tree are serialized, writes to staged files are not.
pub struct Mirror {
    place: MirrorPlace,
    /// Where its files are if that is not the folder.
    objects: Option<Arc<dyn ObjectFiles>>,
    /// The folder of its files, or of what is being downloaded.
    root: PathBuf,
    id: MirrorId,
    tree: FolderTree,
    staging: Arc<StagingDir>,
    /// Its lock also serializes changes of the tree, so that no folder is pruned while another call fills it. It is not held
    /// while the file system is synced.
    unsynced: Mutex<UnsyncedFolders>,
}

impl Mirror {
    /// Opens a mirror, creates its folder if necessary, and removes staged files of an earlier process.
    ///
    /// # Errors
    /// [`MirrorError::Locked`] if it is open elsewhere, [`MirrorError::CaseInsensitive`] if names are not distinguished by case; others if the folder can't be created or written to.
    pub fn open(place: impl Into<MirrorPlace>) -> Result<Self, MirrorError> {
        Self::open_known(place, None)
    }

    /// As [`open`](Self::open), but fails if the place does not have the mirror with this id, and creates nothing then.
    ///
    /// # Errors
    /// [`MirrorError::NotMounted`] if the mirror that is there has no id, or another one.
    pub fn open_known(
        place: impl Into<MirrorPlace>,
        known: Option<&MirrorId>,
    ) -> Result<Self, MirrorError> {
        Self::open_observed(place, known, Arc::new(()))
    }

    /// As [`open_known`](Self::open_known) if an id is known, else as [`open`](Self::open), with an observer of the disk.
    ///
    /// # Errors
    /// As those have.
    pub fn open_observed(
        place: impl Into<MirrorPlace>,
        known: Option<&MirrorId>,
        disk: Arc<dyn DiskObserver>,
    ) -> Result<Self, MirrorError> {
        let place = place.into();
        if let Some(known) = known {
            Self::check_id(&place, known)?;
        }
        let (root, objects) = match place.objects() {
            None => (place.to_path_buf(), None),
            Some(store) => (store.work.clone(), Some(objects::open(store)?)),
        };
        let shown = root.display().to_string();
        create_root(&root, &*disk)
            .map_err(|error| MirrorError::classify_io("creating", &shown, &error))?;
        let tree = FolderTree::open(&root, disk)
            .map_err(|errno| MirrorError::classify("opening", &shown, errno))?;
        let (staging, unclean) = StagingDir::open(&tree, &root)?;
        if unclean {
            // The earlier process may have created folders without syncing them.
            let synced = staging.file_system.sync();
            synced.map_err(|errno| MirrorError::classify("syncing", &shown, errno))?;
        }
        let id = match &objects {
            None => match identity::read(&tree)? {
                Some(id) => id,
                None => identity::create(&tree)?,
            },
            Some(objects) => {
                objects.remove_unfinished();
                match objects.id()? {
                    Some(id) => id,
                    None => {
                        let id = MirrorId::random()?;
                        objects.set_id(&id)?;
                        id
                    }
                }
            }
        };
        Ok(Self {
            place,
            objects,
            root,
            id,
            tree,
            staging: Arc::new(staging),
            unsynced: Mutex::default(),
        })
    }

    /// Checks, without writing, that a place has the mirror with this id.
    ///
    /// # Errors
    /// [`MirrorError::NotMounted`] if it does not.
    pub fn check_id(place: &MirrorPlace, known: &MirrorId) -> Result<(), MirrorError> {
        let found = match place.objects() {
            Some(store) => objects::open(store)?.id()?,
            None => match FolderTree::open(place, Arc::new(())) {
                Ok(tree) => identity::read(&tree)?,
                Err(Errno::NOENT) => None,
                Err(errno) => {
                    let shown = place.display().to_string();
                    return Err(MirrorError::classify("opening", &shown, errno));
                }
            },
        };
        if found.as_ref() == Some(known) {
            Ok(())
        } else {
            Err(MirrorError::NotMounted {
                root: place.to_path_buf(),
                is_other: found.is_some(),
            })
        }
    }

    /// Checks that the folder at the mirror's path is the one that is open, by device and inode.
    ///
    /// # Errors
    /// [`MirrorError::Moved`] if it is another one, or none; others if the path can't be looked up.
    pub fn check_place(&self) -> Result<(), MirrorError> {
        let is_open = self.tree.is_at(&self.root).map_err(|errno| {
            MirrorError::classify("looking up", &self.root.display().to_string(), errno)
        })?;
        if is_open {
            Ok(())
        } else {
            let root = self.root.clone();
            Err(MirrorError::Moved { root })
        }
    }

    /// Where it is.
    pub fn place(&self) -> &MirrorPlace {
        &self.place
    }

    /// The folder of its files, as it was opened, or of what is being downloaded.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its id.
    pub fn id(&self) -> &MirrorId {
        &self.id
    }

    /// Begins a staged file.
    pub fn stage(&self) -> Result<Staged, MirrorError> {
        Staged::begin(&self.staging)
    }

    /// Begins one of many staged files, which are published together: without a name, where that is possible.
    pub fn stage_of_many(&self) -> Result<Staged, MirrorError> {
        Staged::begin_unnamed(&self.staging)
    }

    /// How many threads may write staged files at once, where they are many: more where each waits until its file is synced.
    pub fn writers(&self) -> usize {
        let is_synced_alone =
            !self.staging.file_system.replaces_fsync || self.staging.open_files.are_many();
        if is_synced_alone {
            WAITING_WRITERS
        } else {
            WRITERS
        }
    }

    /// How many files can be synced together while as many others are written; any number where each is synced as it is completed.
    pub fn most_together(&self) -> usize {
        if self.staging.file_system.replaces_fsync {
            self.staging.open_files.half()
        } else {
            usize::MAX
        }
    }

    /// Opens a published file for reading. Its content does not change, even if another version is published meanwhile.
    ///
    /// # Errors
    /// [`MirrorError::Missing`] if there is none, [`MirrorError::Blocked`] if something else is at the path.
    pub fn open_file(&self, path: &MirrorPath) -> Result<MirrorFile, MirrorError> {
        match &self.objects {
            Some(objects) => objects.open_file(path),
            None => reader::open_file(&self.tree, path),
        }
    }

    /// All published files in no order, as [`MirrorReader::files`].
    pub fn files(&self) -> FoundFiles<'_> {
        match &self.objects {
            Some(objects) => objects.files(),
            None => Box::new(Files::of(&self.tree)),
        }
    }

    /// Syncs the entries of a folder to disk. `opened` is the folder, if it is open.
    fn sync_folder(&self, folder: &str, opened: Option<&OwnedFd>) -> rustix::io::Result<()> {
        self.tree.sync(folder, opened)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        if self.unsynced.get_mut().is_empty() {
            self.staging.note_clean();
        }
    }
}

/// Creates the mirror's folder and its parents, and syncs them to disk.
fn create_root(root: &Path, disk: &dyn DiskObserver) -> io::Result<()> {
    let missing = root.ancestors().take_while(|folder| {
        !folder.as_os_str().is_empty() && matches!(folder.try_exists(), Ok(false))
    });
    let missing: Vec<&Path> = missing.collect();
    disk.before(DiskCall::CreateFolder, b"")?;
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
