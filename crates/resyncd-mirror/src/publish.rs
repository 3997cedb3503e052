//! Publishing and removing files: the changes of the mirror's tree.
//!
//! Invariants: a file is on disk before it is renamed, and what is reported as done is on disk. Every folder is recorded as unsynced
//! before it is altered, and the record is removed only by a successful sync, or where nothing was altered or the folder is gone; nothing
//! is reported as done below a recorded folder. So a failed sync also fails the next call that depends on it, which retries it. A sync
//! of the file system removes the record only if none has failed since the folder was altered: that one may have reported its error.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use parking_lot::MutexGuard;
use rustix::fs::{AtFlags, FileType, unlinkat};
use rustix::io::Errno;

use super::disk::DiskCall;
use super::file_system::SYNC_TOGETHER;
use super::staged::OpenFile;
use super::tree::{Alterations, UnsyncedFolders, ancestors, kind, split};
use super::{CompletedFile, Mirror, MirrorError};
use crate::mirror_path::MirrorPath;

/// A file that was not published.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct PublishError {
    /// The reason.
    pub error: MirrorError,
    /// The file, to be published elsewhere or later; `None` if it must be staged again: it could not be synced, or it was renamed,
    /// but may not be on disk.
    pub file: Option<CompletedFile>,
}

/// What becomes of a file that is at the path of one that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    Replaced,
    Kept,
}

/// The folder that was opened last: a batch is processed folder by folder.
type OpenFolder<'a> = Option<(&'a str, OwnedFd)>;

impl Mirror {
    /// Syncs completed files to disk, as [`publish`](Self::publish) does with those that are not on disk by then. The results are in
    /// the order of the files. `paths`, for errors: what each of them is to be published as. It blocks; calls that sync the file
    /// system wait for each other, others don't wait.
    ///
    /// # Errors
    /// [`MirrorError`] for each file separately, which must be staged again.
    #[must_use = "a file may not be on disk"]
    pub fn sync<'a>(
        &self,
        files: Vec<CompletedFile>,
        paths: impl IntoIterator<Item = &'a str>,
    ) -> Vec<Result<CompletedFile, MirrorError>> {
        if self.objects.is_some() {
            return files.into_iter().map(Ok).collect();
        }
        let synced = self.staging.sync(files).into_iter().zip(paths);
        synced
            .map(|(file, path)| file.map_err(|errno| not_synced(path, errno)))
            .collect()
    }

    /// Publishes files: each atomically replaces the file at its path.
    ///
    /// The results are in the order of the batch. The call returns when everything is on disk: all files are synced before any is
    /// renamed, and each folder is synced once, whatever the number of files. Where there are many, one sync of the file system
    /// replaces these; of other calls only those wait for it that sync the file system, too. Of two files for one path the later is
    /// published. It blocks.
    ///
    /// # Errors
    /// [`PublishError`] for each file separately. After [`MirrorError::Blocked`] another path may work.
    #[must_use = "a file may not be published"]
    pub fn publish(
        &self,
        batch: Vec<(CompletedFile, MirrorPath)>,
    ) -> Vec<Result<(), PublishError>> {
        self.publish_beside(batch, Existing::Replaced)
    }

    /// As [`publish`](Self::publish), but a file that is at a path stays. It blocks.
    ///
    /// # Errors
    /// Also [`MirrorError::Exists`]: there is a file. Of two files for one path the earlier is published.
    #[must_use = "a file may not be published"]
    pub fn publish_new(
        &self,
        batch: Vec<(CompletedFile, MirrorPath)>,
    ) -> Vec<Result<(), PublishError>> {
        self.publish_beside(batch, Existing::Kept)
    }

    fn publish_beside(
        &self,
        batch: Vec<(CompletedFile, MirrorPath)>,
        existing: Existing,
    ) -> Vec<Result<(), PublishError>> {
        if let Some(objects) = &self.objects {
            return objects.publish(batch, existing == Existing::Kept);
        }
        let (files, paths): (Vec<CompletedFile>, Vec<MirrorPath>) = batch.into_iter().unzip();
        let files = self.staging.sync(files);
        let mut unsynced = self.unsynced.lock();
        let mut files: Vec<Option<_>> = files.into_iter().map(Some).collect();
        // With the files that were linked.
        let mut outcomes: Vec<Result<Option<OpenFile>, PublishError>> = Vec::new();
        outcomes.resize_with(paths.len(), || Ok(None));
        let mut opened: OpenFolder<'_> = None;
        for index in by_folder(&paths) {
            let path = &paths[index];
            let synced = files[index].take().expect("each index occurs once");
            let renamed = match synced {
                Ok(file) => self
                    .move_to_path(file, path, existing, &mut opened, &mut unsynced)
                    .map_err(|(errno, file)| PublishError {
                        error: match (errno, existing) {
                            (Errno::EXIST, Existing::Kept) => MirrorError::Exists {
                                path: path.to_string(),
                            },
                            _ => MirrorError::classify("publishing", path.as_str(), errno),
                        },
                        file: Some(file),
                    }),
                Err(errno) => Err(PublishError {
                    error: not_synced(path.as_str(), errno),
                    file: None,
                }),
            };
            outcomes[index] = renamed;
        }

        let mut syncs = FolderSyncs {
            opened,
            ..FolderSyncs::default()
        };
        let renamed = paths.iter().zip(&outcomes);
        let renamed = renamed.filter_map(|(path, outcome)| outcome.is_ok().then_some(path));
        let any_linked = outcomes.iter().any(|it| matches!(it, Ok(Some(_))));
        let folders = renamed.map(MirrorPath::folder);
        let is_together = syncs.sync_together(self, folders, any_linked, &mut unsynced);
        // Before their folders. What others alter meanwhile stays recorded.
        let linked = MutexGuard::unlocked(&mut unsynced, || {
            let linked = outcomes.into_iter().map(|outcome| {
                let linked = outcome?;
                Ok(linked.map_or(Ok(()), |file| {
                    file.sync(&self.staging.file_system, is_together)
                }))
            });
            linked.collect::<Vec<Result<_, PublishError>>>()
        });
        let results = paths.iter().zip(linked).map(|(path, linked)| {
            let synced = match linked? {
                Err(errno) => Err(not_synced(path.as_str(), errno)),
                Ok(()) => syncs.sync(self, path.folder(), &mut unsynced),
            };
            synced.map_err(|error| PublishError { error, file: None })
        });
        let results: Vec<_> = results.collect();
        let Err(errno) = self.staging.check_running() else {
            return results;
        };
        let lost = |path: &MirrorPath| PublishError {
            error: not_synced(path.as_str(), errno),
            file: None,
        };
        let results = results.into_iter().zip(&paths);
        results
            .map(|(result, path)| result.and_then(|()| Err(lost(path))))
            .collect()
    }

    /// Syncs the folders of a file that is at its path, as far as an earlier sync of them has failed: without its entry in them a
    /// file is lost with the power. It blocks.
    pub fn sync_entry(&self, path: &MirrorPath) -> Result<(), MirrorError> {
        if self.objects.is_some() {
            return Ok(());
        }
        let mut unsynced = self.unsynced.lock();
        FolderSyncs::default().sync(self, path.folder(), &mut unsynced)?;
        let running = self.staging.check_running();
        running.map_err(|errno| not_synced(path.as_str(), errno))
    }

    /// Creates the folders for a file, and moves it to its path; returns it on failure, or if it was linked and is to be synced.
    fn move_to_path<'a>(
        &self,
        mut file: CompletedFile,
        path: &'a MirrorPath,
        existing: Existing,
        opened: &mut OpenFolder<'a>,
        unsynced: &mut UnsyncedFolders,
    ) -> Result<Option<OpenFile>, (Errno, CompletedFile)> {
        let failures = self.staging.file_system.failures();
        let folder = match opened.take() {
            Some((at, folder)) if at == path.folder() => folder,
            _ => {
                let record = |folder: &str| {
                    self.staging.file_system.check_inodes()?;
                    unsynced.record(folder, failures);
                    Ok(())
                };
                match self.tree.create_folders(path.folder(), record) {
                    Ok(folder) => folder,
                    Err(errno) => return Err((errno, file)),
                }
            }
        };
        let was_unsynced = unsynced.contains(path.folder());
        // Nothing else publishes here meanwhile: the folders are locked, and so is the mirror for other processes.
        let linked = file.link_at(&folder, path.name(), || {
            unsynced.record(path.folder(), failures);
        });
        if matches!(linked, Ok(false)) && !was_unsynced {
            // It was not altered.
            unsynced.remove(path.folder());
        }
        let moved = match linked {
            Ok(true) => Ok(()),
            // A rename would replace a symlink, a FIFO or a device.
            Ok(false) => match kind(&folder, path.name()) {
                Ok(Some(FileType::RegularFile)) if existing == Existing::Kept => Err(Errno::EXIST),
                Ok(None | Some(FileType::RegularFile)) => {
                    unsynced.record(path.folder(), failures);
                    file.rename_to(&folder, path.name())
                }
                Ok(Some(_)) => Err(Errno::LOOP),
                Err(errno) => Err(errno),
            },
            Err(errno) => Err(errno),
        };
        *opened = Some((path.folder(), folder));
        match moved {
            Ok(()) => Ok(file.into_published()),
            Err(errno) => Err((errno, file)),
        }
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
        if let Some(objects) = &self.objects {
            return objects.remove(paths);
        }
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
        // Each folder by itself: other than one into which a staged file was renamed, it may be on another file system.
        let results = paths.iter().zip(results).map(|(path, result)| {
            let removed = result?;
            syncs.sync(self, path.folder(), &mut unsynced)?;
            Ok(removed)
        });
        let results: Vec<_> = results.collect();
        let Err(errno) = self.staging.check_running() else {
            return results;
        };
        let results = results.into_iter().zip(paths);
        results
            .map(|(result, path)| result.and_then(|_| Err(not_synced(path.as_str(), errno))))
            .collect()
    }

    /// Whether there is a folder, or that can't be determined. It blocks.
    pub fn may_have_folder(&self, folder: &str) -> bool {
        self.objects.is_none() && !matches!(self.tree.folder(folder), Err(Errno::NOENT))
    }

    /// Removes one file; returns whether it existed.
    fn unlink<'a>(
        &self,
        path: &'a MirrorPath,
        opened: &mut OpenFolder<'a>,
        unsynced: &mut UnsyncedFolders,
    ) -> Result<bool, Errno> {
        let failures = self.staging.file_system.failures();
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
                unsynced.record(path.folder(), failures);
                let disk = &self.tree.disk;
                disk.before(DiskCall::Unlink, b"")
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
        let failures = self.staging.file_system.failures();
        for folder in ancestors(folder).filter(|folder| !folder.is_empty()) {
            match self.tree.remove_empty(folder) {
                Ok(true) => {
                    unsynced.remove(folder);
                    unsynced.record(split(folder).0, failures);
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

/// The syncs of folders in one call: each is tried once, and all files that depend on one that fails share the error.
#[derive(Default)]
struct FolderSyncs<'a> {
    /// The folders whose sync has failed.
    failed: BTreeMap<String, Errno>,
    opened: OpenFolder<'a>,
}

impl FolderSyncs<'_> {
    /// Syncs the folders of files that were just renamed, and their ancestors, with the file system if they are many, or if
    /// `any_linked` of the files must be synced, too. What is not synced then is left to [`sync`](Self::sync). Returns whether
    /// everything was synced.
    ///
    /// They are on the file system of the staged files, or the renames would have failed.
    fn sync_together<'a>(
        &self,
        mirror: &Mirror,
        folders: impl Iterator<Item = &'a str>,
        any_linked: bool,
        unsynced: &mut MutexGuard<'_, UnsyncedFolders>,
    ) -> bool {
        let due = folders
            .flat_map(ancestors)
            .filter_map(|folder| Some((folder, unsynced.of(folder)?)));
        let due: BTreeMap<&str, Alterations> = due.collect();
        let file_system = &mirror.staging.file_system;
        let last = due.iter().max_by_key(|(_, alterations)| alterations.last);
        let Some((last, _)) = last else { return false };
        let are_many = due.len() >= SYNC_TOGETHER || any_linked;
        if !are_many || !file_system.replaces_fsync {
            return false;
        }
        // Others may write much, and the calls of all other Sources must not wait for that. What they alter stays recorded.
        let synced = MutexGuard::unlocked(unsynced, || {
            file_system.sync()?;
            // The sync of a file system that has become read-only, or of ext4 that was shut down, may succeed without anything
            // being written. But what was altered last can't be synced there; if it is on disk, so is what was altered before.
            self.sync_one(mirror, last)
        });
        if synced.is_err() {
            return false;
        }
        let failures = file_system.failures();
        for (folder, alterations) in due {
            let is_as_it_was = unsynced.of(folder) == Some(alterations);
            if is_as_it_was && alterations.failures == failures {
                unsynced.remove(folder);
            }
        }
        true
    }

    /// Syncs a folder and its ancestors, as far as they are recorded as unsynced.
    fn sync(
        &mut self,
        mirror: &Mirror,
        folder: &str,
        unsynced: &mut UnsyncedFolders,
    ) -> Result<(), MirrorError> {
        for folder in ancestors(folder) {
            if !unsynced.contains(folder) && !self.failed.contains_key(folder) {
                continue;
            }
            let errno = match self.failed.get(folder) {
                Some(errno) => *errno,
                None => match self.sync_one(mirror, folder) {
                    Ok(()) => {
                        unsynced.remove(folder);
                        continue;
                    }
                    Err(errno) => {
                        if errno == Errno::NOENT {
                            // Another process removed it: there is nothing left to sync.
                            unsynced.remove(folder);
                        }
                        self.failed.insert(folder.to_owned(), errno);
                        errno
                    }
                },
            };
            return Err(not_synced(folder, errno));
        }
        Ok(())
    }

    fn sync_one(&self, mirror: &Mirror, folder: &str) -> Result<(), Errno> {
        let opened = self.opened.as_ref();
        let opened = opened.and_then(|(at, opened)| (*at == folder).then_some(opened));
        mirror.sync_folder(folder, opened)
    }
}

/// The error of a file or folder that could not be synced. Another path would not help.
fn not_synced(path: &str, errno: Errno) -> MirrorError {
    MirrorError::Io {
        doing: "syncing",
        path: path.to_owned(),
        source: errno,
    }
}
