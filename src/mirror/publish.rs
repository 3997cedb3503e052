//! Publishing and removing: what changes the mirror's tree.
//!
//! Invariant: what is reported as done is on disk. Every folder that a call alters is noted as unsynced before it is
//! altered, and only a successful fsync takes the note away; nothing is reported as done below a folder that still has
//! one. So a failed fsync also holds back the next call that relies on it, which tries it again.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

use rustix::fs::{AtFlags, FileType, unlinkat};
use rustix::io::Errno;

use super::beneath::{kind, split, upwards};
use super::refusals::inject_fault;
use super::{CompletedFile, Mirror, MirrorError, MirrorPath};

/// A file that did not get its place.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unpublished {
    /// Why.
    pub error: MirrorError,
    /// The file, to be published elsewhere or later; `None` when it is in its place already, but perhaps not for good:
    /// it has to be staged anew.
    pub whole: Option<CompletedFile>,
}

/// Folders whose entries may not be on disk yet.
pub(super) type Unsynced = BTreeSet<String>;

/// The folder that was opened last: a batch is worked through folder by folder.
type Opened<'a> = Option<(&'a str, OwnedFd)>;

impl Mirror {
    /// Gives files their places: each replaces what its path had before, at once and whole.
    ///
    /// The answers are in the order of the batch, and come when everything is on disk: each folder is synced once,
    /// however many files it gets. Of two files for one path the later wins. It blocks.
    ///
    /// # Errors
    /// [`Unpublished`], for each file by itself. [`MirrorError::Blocked`] says that another path will do.
    #[must_use = "a file may not have got its place"]
    pub fn publish(&self, batch: Vec<(CompletedFile, MirrorPath)>) -> Vec<Result<(), Unpublished>> {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        let (wholes, paths): (Vec<CompletedFile>, Vec<MirrorPath>) = batch.into_iter().unzip();
        let mut wholes: Vec<Option<CompletedFile>> = wholes.into_iter().map(Some).collect();
        let mut failed: Vec<Option<Unpublished>> = paths.iter().map(|_| None).collect();
        let mut opened: Opened<'_> = None;
        for index in by_folder(&paths) {
            let path = &paths[index];
            let whole = wholes[index]
                .take()
                .expect("each index comes once, so the file is still there");
            if let Err((errno, whole)) = self.place(whole, path, &mut opened, &mut unsynced) {
                failed[index] = Some(Unpublished {
                    error: MirrorError::sort("publishing", path.as_str(), errno),
                    whole,
                });
            }
        }

        let mut syncs = Syncs::default();
        let answers = paths.iter().zip(failed).map(|(path, failed)| {
            if let Some(failed) = failed {
                return Err(failed);
            }
            let synced = syncs.sync(self, path.folder(), &mut unsynced);
            synced.map_err(|error| Unpublished { error, whole: None })
        });
        answers.collect()
    }

    /// Makes the folders that a file needs, and moves it there.
    fn place<'a>(
        &self,
        whole: CompletedFile,
        path: &'a MirrorPath,
        opened: &mut Opened<'a>,
        unsynced: &mut Unsynced,
    ) -> Result<(), (Errno, Option<CompletedFile>)> {
        let folder = match opened.take() {
            Some((at, folder)) if at == path.folder() => folder,
            _ => match self.tree.make_folder(path.folder(), unsynced) {
                Ok(folder) => folder,
                Err(errno) => return Err((errno, Some(whole))),
            },
        };
        // A rename would replace a symlink, a FIFO or a device without a word.
        let placed = match kind(&folder, path.name()) {
            Ok(None | Some(FileType::RegularFile)) => {
                unsynced.insert(path.folder().to_owned());
                whole.move_to(&folder, path.name())
            }
            Ok(Some(_)) => Err((Errno::LOOP, whole)),
            Err(errno) => Err((errno, whole)),
        };
        *opened = Some((path.folder(), folder));
        placed.map_err(|(errno, whole)| (errno, Some(whole)))
    }

    /// Removes files, and the folders that have become empty; true for each that was there. Where a folder has the file's
    /// place, or a file that of its folder, it has gone before: another resource had the place next, and then a crash made us
    /// forget.
    ///
    /// The answers are in the order of the paths, and come when everything is on disk. It blocks.
    ///
    /// # Errors
    /// [`MirrorError`], for each path by itself; [`MirrorError::Blocked`] when something is in the way that is neither a file nor a folder.
    #[must_use = "a file may not have been removed"]
    pub fn remove(&self, paths: &[MirrorPath]) -> Vec<Result<bool, MirrorError>> {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answers: Vec<Result<bool, MirrorError>> = paths.iter().map(|_| Ok(false)).collect();
        let mut opened: Opened<'_> = None;
        for index in by_folder(paths) {
            let path = &paths[index];
            answers[index] = self
                .unlink(path, &mut opened, &mut unsynced)
                .map_err(|errno| MirrorError::sort("removing", path.as_str(), errno));
        }

        // Also the folders of files that were not there: an earlier call may not have come so far.
        let folders: BTreeSet<&str> = paths.iter().map(MirrorPath::folder).collect();
        // Backwards, so that a folder comes before the one that it is in.
        for folder in folders.into_iter().rev() {
            self.prune(folder, &mut unsynced);
        }

        let mut syncs = Syncs::default();
        let answers = paths.iter().zip(answers).map(|(path, answer)| {
            let removed = answer?;
            syncs.sync(self, path.folder(), &mut unsynced)?;
            Ok(removed)
        });
        answers.collect()
    }

    /// Removes one file; whether it was there.
    fn unlink<'a>(
        &self,
        path: &'a MirrorPath,
        opened: &mut Opened<'a>,
        unsynced: &mut Unsynced,
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

    /// Removes a folder and those it is in, as far as they are empty; never the root.
    ///
    /// An empty folder that stays does no harm, so that it is not an error.
    fn prune(&self, folder: &str, unsynced: &mut Unsynced) {
        for folder in upwards(folder).filter(|folder| !folder.is_empty()) {
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

/// The order in which a batch is worked through: each folder is opened once, and the order within it is kept.
fn by_folder(paths: &[MirrorPath]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_by_key(|&index| paths[index].folder());
    order
}

/// The folders that this call has tried to sync: each is tried once, and all that rely on it share the outcome.
#[derive(Default)]
struct Syncs(BTreeMap<String, Errno>);

impl Syncs {
    /// Syncs what is noted of a folder and those it is in.
    fn sync(
        &mut self,
        mirror: &Mirror,
        folder: &str,
        unsynced: &mut Unsynced,
    ) -> Result<(), MirrorError> {
        for folder in upwards(folder) {
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
                            // Somebody else removed it: there is nothing left to sync, next time.
                            unsynced.remove(folder);
                        }
                        self.0.insert(folder.to_owned(), errno);
                        errno
                    }
                },
            };
            return Err(match MirrorError::sort("syncing", folder, errno) {
                error if error.is_transient() => error,
                // Not a question of the path any more: another one is no answer.
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
