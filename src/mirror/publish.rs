//! Publishing and removing files: the changes of the mirror's tree.
//!
//! Invariant: what is reported as done is on disk. Every folder is recorded as unsynced before it is altered, and the record is
//! removed only by a successful fsync; nothing is reported as done below a recorded folder. So a failed fsync also fails the
//! next call that depends on it, which retries it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, unlinkat};
use rustix::io::Errno;

use super::fault_injection::inject_fault;
use super::tree::{UnsyncedFolders, ancestors, kind, split};
use super::{CompletedFile, Mirror, MirrorError};
use crate::error_class::ErrorClass;
use crate::mirror_path::MirrorPath;

/// A file that was not published.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct PublishError {
    /// The reason.
    pub error: MirrorError,
    /// The file, to be published elsewhere or later; `None` if it was renamed, but may not be on disk: it must be staged
    /// again.
    pub file: Option<CompletedFile>,
}

/// The folder that was opened last: a batch is processed folder by folder.
type OpenFolder<'a> = Option<(&'a str, OwnedFd)>;

impl Mirror {
    /// Publishes files: each atomically replaces the file at its path.
    ///
    /// The results are in the order of the batch. The call returns when everything is on disk: each folder is synced once,
    /// whatever the number of files. Of two files for one path the later is published. It blocks.
    ///
    /// # Errors
    /// [`PublishError`] for each file separately. After [`MirrorError::Blocked`] another path may work.
    #[must_use = "a file may not be published"]
    pub fn publish(
        &self,
        batch: Vec<(CompletedFile, MirrorPath)>,
    ) -> Vec<Result<(), PublishError>> {
        let mut unsynced = self.unsynced.lock();
        let (files, paths): (Vec<CompletedFile>, Vec<MirrorPath>) = batch.into_iter().unzip();
        let mut files: Vec<Option<CompletedFile>> = files.into_iter().map(Some).collect();
        let mut failed: Vec<Option<PublishError>> = paths.iter().map(|_| None).collect();
        let mut opened: OpenFolder<'_> = None;
        for index in by_folder(&paths) {
            let path = &paths[index];
            let file = files[index].take().expect("each index occurs once");
            if let Err((errno, file)) = self.rename(file, path, &mut opened, &mut unsynced) {
                failed[index] = Some(PublishError {
                    error: MirrorError::classify("publishing", path.as_str(), errno),
                    file: Some(file),
                });
            }
        }

        let mut syncs = FolderSyncs::default();
        let results = paths.iter().zip(failed).map(|(path, failed)| {
            if let Some(failed) = failed {
                return Err(failed);
            }
            let synced = syncs.sync(self, path.folder(), &mut unsynced);
            synced.map_err(|error| PublishError { error, file: None })
        });
        results.collect()
    }

    /// Syncs the folders of a file that is at its path, as far as an earlier sync of them has failed: without its entry in them a
    /// file is lost with the power. It blocks.
    pub fn sync_entry(&self, path: &MirrorPath) -> Result<(), MirrorError> {
        let mut unsynced = self.unsynced.lock();
        FolderSyncs::default().sync(self, path.folder(), &mut unsynced)
    }

    /// Creates the folders for a file, and renames it to its path; returns it on failure.
    fn rename<'a>(
        &self,
        file: CompletedFile,
        path: &'a MirrorPath,
        opened: &mut OpenFolder<'a>,
        unsynced: &mut UnsyncedFolders,
    ) -> Result<(), (Errno, CompletedFile)> {
        let folder = match opened.take() {
            Some((at, folder)) if at == path.folder() => folder,
            _ => match self.tree.create_folders(path.folder(), unsynced) {
                Ok(folder) => folder,
                Err(errno) => return Err((errno, file)),
            },
        };
        // A rename would replace a symlink, a FIFO or a device.
        let renamed = match kind(&folder, path.name()) {
            Ok(None | Some(FileType::RegularFile)) => {
                unsynced.insert(path.folder().to_owned());
                file.move_to(&folder, path.name())
            }
            Ok(Some(_)) => Err((Errno::LOOP, file)),
            Err(errno) => Err((errno, file)),
        };
        *opened = Some((path.folder(), folder));
        renamed
    }

    /// Removes files, and the folders that become empty; `true` for each file that existed. A file does not exist if its path
    /// is a folder, or if a file has the path of its folder: then it was removed before, another resource got the path, and a
    /// crash lost the record of it.
    ///
    /// The results are in the order of the paths. The call returns when everything is on disk. It blocks.
    ///
    /// # Errors
    /// [`MirrorError`] for each path separately; [`MirrorError::Blocked`] if the path is neither a file nor a folder.
    #[must_use = "a file may not be removed"]
    pub fn remove(&self, paths: &[MirrorPath]) -> Vec<Result<bool, MirrorError>> {
        let mut unsynced = self.unsynced.lock();
        let mut results: Vec<Result<bool, MirrorError>> = paths.iter().map(|_| Ok(false)).collect();
        let mut opened: OpenFolder<'_> = None;
        for index in by_folder(paths) {
            let path = &paths[index];
            results[index] = self
                .unlink(path, &mut opened, &mut unsynced)
                .map_err(|errno| MirrorError::classify("removing", path.as_str(), errno));
        }

        // Including the folders of files that did not exist: an earlier call may have failed to prune them.
        let folders: BTreeSet<&str> = paths.iter().map(MirrorPath::folder).collect();
        // Descending, so that a folder comes before its parent.
        for folder in folders.into_iter().rev() {
            self.prune(folder, &mut unsynced);
        }

        let mut syncs = FolderSyncs::default();
        let results = paths.iter().zip(results).map(|(path, result)| {
            let removed = result?;
            syncs.sync(self, path.folder(), &mut unsynced)?;
            Ok(removed)
        });
        results.collect()
    }

    /// Removes one file; returns whether it existed.
    fn unlink<'a>(
        &self,
        path: &'a MirrorPath,
        opened: &mut OpenFolder<'a>,
        unsynced: &mut UnsyncedFolders,
    ) -> Result<bool, Errno> {
        let folder = match opened.take() {
            Some((at, folder)) if at == path.folder() => folder,
            _ => match self.tree.folder(path.folder()) {
                Ok(folder) => folder,
                Err(Errno::NOENT) => return Ok(false),
                Err(Errno::NOTDIR) if self.tree.is_below_file(path.folder())? => return Ok(false),
                Err(errno) => return Err(errno),
            },
        };
        let removed = match kind(&folder, path.name()) {
            Ok(None | Some(FileType::Directory)) => Ok(false),
            Ok(Some(FileType::RegularFile)) => {
                unsynced.insert(path.folder().to_owned());
                inject_fault()
                    .and_then(|()| unlinkat(&folder, path.name(), AtFlags::empty()))
                    .map(|()| true)
            }
            Ok(Some(_)) => Err(Errno::LOOP),
            Err(errno) => Err(errno),
        };
        *opened = Some((path.folder(), folder));
        removed
    }

    /// Removes a folder and its ancestors as far as they are empty; never the root.
    ///
    /// An empty folder that remains does no harm, so that it is not an error.
    fn prune(&self, folder: &str, unsynced: &mut UnsyncedFolders) {
        for folder in ancestors(folder).filter(|folder| !folder.is_empty()) {
            match self.tree.remove_empty(folder) {
                Ok(true) => {
                    unsynced.remove(folder);
                    unsynced.insert(split(folder).0.to_owned());
                }
                Err(Errno::NOENT) => {}
                Ok(false) | Err(_) => return,
            }
        }
    }
}

/// The order in which a batch is processed: each folder is opened once, and the order within it is preserved.
fn by_folder(paths: &[MirrorPath]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_by_key(|&index| paths[index].folder());
    order
}

/// The folders whose sync has failed in this call: each is tried once, and all files that depend on it share the error.
#[derive(Default)]
struct FolderSyncs(BTreeMap<String, Errno>);

impl FolderSyncs {
    /// Syncs a folder and its ancestors, as far as they are recorded as unsynced.
    fn sync(
        &mut self,
        mirror: &Mirror,
        folder: &str,
        unsynced: &mut UnsyncedFolders,
    ) -> Result<(), MirrorError> {
        for folder in ancestors(folder) {
            if !unsynced.contains(folder) && !self.0.contains_key(folder) {
                continue;
            }
            let errno = match self.0.get(folder) {
                Some(errno) => *errno,
                None => match mirror.sync_folder(folder) {
                    Ok(()) => {
                        unsynced.remove(folder);
                        continue;
                    }
                    Err(errno) => {
                        if errno == Errno::NOENT {
                            // Another process removed it: there is nothing left to sync.
                            unsynced.remove(folder);
                        }
                        self.0.insert(folder.to_owned(), errno);
                        errno
                    }
                },
            };
            return Err(match MirrorError::classify("syncing", folder, errno) {
                error if error.class() == ErrorClass::Fatal => error,
                // Another path would not help.
                _ => MirrorError::Io {
                    doing: "syncing",
                    path: folder.to_owned(),
                    source: errno,
                },
            });
        }
        Ok(())
    }
}
