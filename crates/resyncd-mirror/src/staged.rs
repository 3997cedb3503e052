//! Staged files: they hold the bytes of a resource until it is published.
//!
//! Invariants: a [`CompletedFile`] is complete, and [`StagingDir::sync`] is what brings it to disk before it is renamed: many at once
//! where many are published. Until then it is open: an fsync through the handle with which it was written reports every error of its
//! own, whatever another sync has reported. Dropping a [`Staged`] or a [`CompletedFile`] removes the file; files that a crash leaves
//! are removed when the mirror is opened.
//!
//! A staged file may be unnamed: it is in no folder, and is published by a link in place of a rename, which costs less. Such a file
//! stays open until its link is on disk, because that it has one is written in the file, too, and not only in the folder.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use resourcesync::{Digest, SourceTime};
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::MirrorError;
use super::disk::DiskCall;
use super::error::errno;
use super::file_system::{FileSystem, SYNC_TOGETHER};
use super::tree::{FolderTree, create_folder, sweep, sync_entries};
use super::unnamed::{link_unnamed, links_unnamed, open_unnamed, reopen};
use crate::FileLock;
use crate::mirror_path::OWN_FOLDER;

/// The file that is locked, in the own folder.
const LOCK: &str = "lock";

/// The range of times that ext4 can store, in microseconds since 1970: from 1901 to 2446.
const TIMES: std::ops::RangeInclusive<i64> = -(1 << 31) * 1_000_000..=15_032_385_535 * 1_000_000;

/// The folder of staged files, below that of the mirror.
const STAGING_FOLDER: &str = ".resyncd/work";

/// The length from which on a file is synced when it is complete, in bytes: on the thread that has written it, so that the small
/// files of a batch do not wait for it.
pub(super) const SYNC_ALONE: u64 = 1 << 20;

/// How many completed files may be open, of all mirrors together: some batches.
const OPEN_FILES: u64 = 2048;
/// One in so many of the file descriptors that the process may have is for completed files.
const OPEN_SHARE: u64 = 4;

/// Fails if names are not distinguished by case, in the root or in the own folder: the lock, which is there, is found by another name,
/// too. Paths in a mirror are ASCII, so that no other folding of letters matters. Inodes are not compared: some network file systems
/// number them by name.
fn refuse_folded_names(tree: &FolderTree, root: &Path) -> Result<(), MirrorError> {
    for path in [
        format!("{}/{LOCK}", OWN_FOLDER.to_ascii_uppercase()),
        format!("{OWN_FOLDER}/{}", LOCK.to_ascii_uppercase()),
    ] {
        match tree.look_up(&path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC) {
            Ok(_) => {
                return Err(MirrorError::CaseInsensitive {
                    root: root.to_owned(),
                });
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(MirrorError::classify("opening", &path, errno)),
        }
    }
    Ok(())
}

/// The folder of staged files, and the lock of the mirror.
///
/// Every staged file refers to it: the lock is held until the last of them is dropped, so that no other process uses a name
/// that this one will still remove.
pub(super) struct StagingDir {
    pub(super) folder: OwnedFd,
    lock: FileLock,
    next: AtomicU64,
    /// Whether files can be staged without a name, and get one later.
    pub(super) links_unnamed: bool,
    pub(super) file_system: FileSystem,
    pub(super) open_files: Arc<OpenFiles>,
}

impl StagingDir {
    /// Acquires the lock and removes the staged files of an earlier process. Also returns whether that process ended without
    /// closing the mirror.
    pub(super) fn open(tree: &FolderTree, root: &Path) -> Result<(Self, bool), MirrorError> {
        let failed = |errno| MirrorError::classify("opening", OWN_FOLDER, errno);
        let top = tree.folder("").map_err(failed)?;
        create_folder(&top, OWN_FOLDER, 0o755, &*tree.disk).map_err(failed)?;
        let own = tree.folder(OWN_FOLDER).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&own, LOCK, flags, Mode::from_raw_mode(0o644)).map_err(failed)?;
        let lock = FileLock::try_new(File::from(lock)).map_err(|error| match error {
            TryLockError::WouldBlock => MirrorError::Locked {
                root: root.to_owned(),
            },
            TryLockError::Error(error) => MirrorError::classify_io("locking", OWN_FOLDER, &error),
        })?;
        refuse_folded_names(tree, root)?;
        let file_system = FileSystem::of(top, Arc::clone(&tree.disk)).map_err(failed)?;
        // Incomplete files are not for those who may read the mirror.
        create_folder(&own, "work", 0o700, &*tree.disk).map_err(failed)?;
        let folder = tree.folder(STAGING_FOLDER).map_err(failed)?;
        sweep(&folder, |_| false, &*tree.disk)
            .map_err(|errno| MirrorError::classify("sweeping", STAGING_FOLDER, errno))?;

        let io = |error| MirrorError::classify_io("writing", ".resyncd/lock", &error);
        let unclean = lock.metadata().map_err(io)?.len() > 0;
        let written = tree.disk.before(DiskCall::Write, b"");
        written.map_err(|errno| io(errno.into()))?;
        (&*lock).write_all(b"in use\n").map_err(io)?;
        let staging = Self {
            links_unnamed: file_system.replaces_fsync && links_unnamed(&folder),
            folder,
            lock,
            next: AtomicU64::new(1),
            file_system,
            open_files: Arc::clone(&OPEN),
        };
        Ok((staging, unclean))
    }

    /// Syncs completed files to disk: each by itself, or the file system if they are many. A file whose sync fails is removed: a
    /// second sync would not report what was lost.
    ///
    /// This is the one place that decides how. The results are in the order of the files.
    pub(super) fn sync(&self, files: Vec<CompletedFile>) -> Vec<Result<CompletedFile, Errno>> {
        let written = files
            .iter()
            .filter(|file| matches!(file.state, SyncState::Written(_)));
        let mut is_together = written.count() >= SYNC_TOGETHER && self.sync_all().is_ok();
        // Unnamed files alter no folder: one that was altered is synced, too. If that fails it is lost: a second sync would succeed.
        let unnamed = |(index, file)| Some((index, CompletedFile::written_unnamed(file)?));
        let last_unnamed = files.iter().enumerate().rev().find_map(unnamed);
        let mut lost = None;
        if let (true, Some((index, last))) = (is_together, last_unnamed)
            && let Err(errno) = sync(&last.file, &self.file_system)
        {
            is_together = false;
            lost = Some((index, errno));
        }
        let synced = files
            .into_iter()
            .enumerate()
            .map(|(index, file)| match lost {
                Some((at, errno)) if at == index => Err(errno),
                _ => file.synced(is_together),
            });
        synced.collect()
    }

    /// Syncs the file system after files were staged.
    fn sync_all(&self) -> Result<(), Errno> {
        self.file_system.sync()?;
        // It fails where the file system was shut down. And without a journal ext4 has the disk write its cache before it has
        // written all: this does it again.
        sync_entries(&self.folder, STAGING_FOLDER, &*self.file_system.disk)
    }

    /// Gives a file its first or another name in the folder of staged files.
    fn link(
        &self,
        mut link: impl FnMut(&OwnedFd, &str) -> Result<(), Errno>,
    ) -> Result<String, Errno> {
        loop {
            let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
            match link(&self.folder, &name) {
                Ok(()) => return Ok(name),
                // A foreign folder that the sweep did not remove.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Fails if folders that seem to be synced are not, because the file system was shut down before.
    pub(super) fn check_running(&self) -> Result<(), Errno> {
        if !self.file_system.hides_shutdown {
            return Ok(());
        }
        self.file_system.disk.before(DiskCall::Fsync, b"")?;
        self.lock.sync_all().map_err(|error| errno(&error))
    }

    /// Records that everything is on disk. It only saves the next start a sync, so that errors are ignored.
    pub(super) fn note_clean(&self) {
        let _ = self.lock.set_len(0);
    }
}

/// A name in the folder of staged files; dropping it removes the file.
struct StagedName {
    staging: Arc<StagingDir>,
    /// `None`: the file is unnamed, or was published.
    name: Option<Box<str>>,
}

impl StagedName {
    fn error(&self, doing: &'static str, error: &std::io::Error) -> MirrorError {
        MirrorError::classify_io(doing, &format!("{STAGING_FOLDER}/{self}"), error)
    }

    /// Gives an unnamed file a name in the folder of staged files.
    fn give_to(&mut self, file: &File) -> Result<(), Errno> {
        let disk = &self.staging.file_system.disk;
        let link = |folder: &OwnedFd, name: &str| {
            disk.before(DiskCall::Link, b"")?;
            link_unnamed(file, folder, name)
        };
        self.name = Some(self.staging.link(link)?.into());
        Ok(())
    }
}

impl fmt::Display for StagedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_deref().unwrap_or("unnamed"))
    }
}

impl Drop for StagedName {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // A file that can't be removed is removed at the next start.
            let disk = &self.staging.file_system.disk;
            let _ = disk
                .before(DiskCall::Unlink, b"")
                .and_then(|()| unlinkat(&self.staging.folder, &**name, AtFlags::empty()));
        }
    }
}

/// A staged file that is being written.
pub struct Staged {
    file: File,
    name: StagedName,
    /// In bytes.
    length: u64,
    /// How many syncs of the file system had failed before it was created.
    failures: u64,
    failed: bool,
}

impl Staged {
    /// Begins an empty staged file.
    pub(super) fn begin(staging: &Arc<StagingDir>) -> Result<Self, MirrorError> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let failures = staging.file_system.failures();
        staging.file_system.check_inodes().map_err(not_created)?;
        let mut created = None;
        let name = staging.link(|folder, name| {
            staging.file_system.disk.before(DiskCall::Create, b"")?;
            created = Some(openat(folder, name, flags, Mode::from_raw_mode(0o644))?);
            Ok(())
        });
        let name = name.map_err(not_created)?;
        let file = created.expect("it has a name");
        Ok(Self::of(staging, file, Some(name), failures))
    }

    /// Begins an empty staged file that is unnamed, where there can be one. While many files are open it has a name: an unnamed file
    /// is open until it is published.
    pub(super) fn begin_unnamed(staging: &Arc<StagingDir>) -> Result<Self, MirrorError> {
        if !staging.links_unnamed || staging.open_files.are_many() {
            return Self::begin(staging);
        }
        let failures = staging.file_system.failures();
        staging.file_system.check_inodes().map_err(not_created)?;
        let disk = &staging.file_system.disk;
        disk.before(DiskCall::Create, b"").map_err(not_created)?;
        let file = open_unnamed(&staging.folder).map_err(not_created)?;
        Ok(Self::of(staging, file, None, failures))
    }

    fn of(staging: &Arc<StagingDir>, file: OwnedFd, name: Option<String>, failures: u64) -> Self {
        Self {
            file: File::from(file),
            name: StagedName {
                staging: Arc::clone(staging),
                name: name.map(Into::into),
            },
            length: 0,
            failures,
            failed: false,
        }
    }

    /// Appends bytes. After an error the file can't be finished.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), MirrorError> {
        let disk = &self.name.staging.file_system.disk;
        let written = disk.before(DiskCall::Write, bytes).map_err(io::Error::from);
        let written = written.and_then(|()| self.file.write_all(bytes));
        self.length += bytes.len() as u64;
        written.map_err(|error| {
            self.failed = true;
            self.name.error("writing", &error)
        })
    }

    /// Its bytes so far, from the beginning. What is written next is written behind what was read.
    pub fn read_back(&mut self) -> Result<impl Read, MirrorError> {
        let rewound = self.file.seek(SeekFrom::Start(0));
        rewound.map_err(|error| self.name.error("reading", &error))?;
        Ok(&self.file)
    }

    /// Sets the modification time of the file to that of the resource. A long file is synced to disk, and so is every one where a
    /// sync of the file system does not replace an fsync, or where many files are open; others are synced when they are published, or
    /// by [`Mirror::sync`](super::Mirror::sync). After an error the file is removed.
    ///
    /// A time that file systems can't store is replaced by the nearest one that they can. It may block for an fsync.
    pub fn finish(self, lastmod: Option<SourceTime>) -> Result<CompletedFile, MirrorError> {
        let Self {
            file,
            mut name,
            length,
            failures,
            failed,
        } = self;
        if failed {
            return Err(name.error("finishing", &Errno::IO.into()));
        }
        if let Some(lastmod) = lastmod {
            let disk = &name.staging.file_system.disk;
            disk.before(DiskCall::Date, b"")
                .map_err(io::Error::from)
                .and_then(|()| file.set_modified(file_time(lastmod)))
                .map_err(|error| name.error("dating", &error))?;
        }
        let is_alone = length >= SYNC_ALONE || !name.staging.file_system.replaces_fsync;
        let permit = (!is_alone)
            .then(|| name.staging.open_files.permit())
            .flatten();
        let state = match permit {
            Some(permit) => SyncState::Written(OpenFile {
                file,
                failures,
                _permit: permit,
            }),
            None => {
                if name.name.is_none() {
                    // It is closed, and would be lost.
                    let named = name.give_to(&file);
                    named.map_err(|errno| name.error("naming", &errno.into()))?;
                }
                sync(&file, &name.staging.file_system)
                    .map_err(|errno| name.error("syncing", &errno.into()))?;
                SyncState::Synced
            }
        };
        Ok(CompletedFile {
            state,
            name,
            description: Box::default(),
        })
    }
}

fn not_created(errno: Errno) -> MirrorError {
    MirrorError::classify("creating", STAGING_FOLDER, errno)
}

/// Syncs a staged file to disk.
fn sync(file: &File, file_system: &FileSystem) -> Result<(), Errno> {
    file_system.disk.before(DiskCall::Fsync, b"")?;
    file.sync_all().map_err(|error| errno(&error))?;
    file_system.check_blocks(file)
}

/// How many completed files may be open if the process may have so many file descriptors; `None`: any number.
fn open_limit(descriptors: Option<u64>) -> usize {
    let share = descriptors.map_or(OPEN_FILES, |number| number / OPEN_SHARE);
    usize::try_from(share.min(OPEN_FILES)).unwrap_or(usize::MAX)
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Staged({})", self.name)
    }
}

/// The time of a Source as the time of a file: the nearest one that file systems can store.
#[must_use]
pub fn file_time(time: SourceTime) -> SystemTime {
    let micros = time.micros().clamp(*TIMES.start(), *TIMES.end());
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 {
        SystemTime::UNIX_EPOCH - distance
    } else {
        SystemTime::UNIX_EPOCH + distance
    }
}

/// The time of a file as that of a Source, in whole microseconds.
pub(super) fn source_time(time: SystemTime) -> SourceTime {
    let micros = |distance: Duration| i64::try_from(distance.as_micros()).unwrap_or(i64::MAX);
    SourceTime::from_micros(match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    })
}

/// What an object store states of a file beside its bytes and its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileDescription {
    /// Its media type.
    pub media_type: Option<String>,
    /// Its SHA-256.
    pub digest: Option<Digest>,
}

/// A staged file that is complete, ready to be published.
pub struct CompletedFile {
    state: SyncState,
    name: StagedName,
    #[cfg_attr(
        not(feature = "objects"),
        expect(dead_code, reason = "read by object stores")
    )]
    description: Box<FileDescription>,
}

/// Whether a completed file is on disk.
enum SyncState {
    /// It is.
    Synced,
    /// It is, and is unnamed.
    Unnamed(OpenFile),
    /// All of it is written.
    Written(OpenFile),
}

/// A completed file as it was written.
pub(super) struct OpenFile {
    file: File,
    /// How many syncs of the file system had failed before the file was created.
    failures: u64,
    _permit: OwnedSemaphorePermit,
}

impl OpenFile {
    /// Has the file on disk. `is_together`: whether the file system was synced since the file was altered.
    pub(super) fn sync(&self, file_system: &FileSystem, is_together: bool) -> Result<(), Errno> {
        // A sync that has failed may have reported an error of this file, which no later one of the file system reports again.
        // Or an error of a file of others, over and over: no file of ours is to be lost by that.
        if is_together && self.failures == file_system.failures() {
            return file_system.check_blocks(&self.file);
        }
        sync(&self.file, file_system)
    }
}

/// The number of completed files that are open. It is limited: file descriptors are for all Sources, and for the listeners.
pub(super) struct OpenFiles {
    /// One for each that may be open.
    permits: Arc<Semaphore>,
    limit: usize,
}

/// Those of this process.
static OPEN: LazyLock<Arc<OpenFiles>> = LazyLock::new(|| {
    let descriptors = getrlimit(Resource::Nofile).current;
    Arc::new(OpenFiles::new(open_limit(descriptors)))
});

impl OpenFiles {
    pub(super) fn new(limit: usize) -> Self {
        let permits = Arc::new(Semaphore::new(limit));
        Self { permits, limit }
    }

    /// The permit of a completed file to be open; `None` if as many are open as may be.
    fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Whether only that half of them is left that is for files which are closed when they are synced.
    pub(super) fn are_many(&self) -> bool {
        self.limit - self.permits.available_permits() >= self.half()
    }

    /// As many may be open while as many others are written.
    pub(super) fn half(&self) -> usize {
        self.limit / 2
    }
}

impl CompletedFile {
    /// A file that is on disk already and gets another name in the folder of staged files, by `link`.
    pub(super) fn linked(
        staging: &Arc<StagingDir>,
        link: impl Fn(&OwnedFd, &str) -> Result<(), Errno>,
    ) -> Result<Self, Errno> {
        let name = staging.link(link)?;
        Ok(Self {
            state: SyncState::Synced,
            name: StagedName {
                staging: Arc::clone(staging),
                name: Some(name.into()),
            },
            description: Box::default(),
        })
    }

    /// The file, with what is known of it: in a folder that is not stored.
    #[must_use]
    pub fn described(self, description: FileDescription) -> Self {
        Self {
            description: Box::new(description),
            ..self
        }
    }

    #[cfg(feature = "objects")]
    pub(super) fn description(&self) -> &FileDescription {
        &self.description
    }

    /// The file, if it is unnamed and not known to be on disk.
    fn written_unnamed(&self) -> Option<&OpenFile> {
        match (&self.name.name, &self.state) {
            (None, SyncState::Written(file)) => Some(file),
            _ => None,
        }
    }

    /// Opens the file for reading.
    pub(super) fn open_staged(&self) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match (&self.name.name, &self.state) {
            (Some(name), _) => openat(&self.name.staging.folder, &**name, flags, Mode::empty()),
            (None, SyncState::Written(it) | SyncState::Unnamed(it)) => reopen(&it.file),
            (None, SyncState::Synced) => Err(Errno::NOENT),
        }
        .map(File::from)
    }

    /// The file, on disk, and closed unless it is unnamed. `is_together`: whether the file system was synced since the file was
    /// completed.
    fn synced(mut self, is_together: bool) -> Result<Self, Errno> {
        self.state = match std::mem::replace(&mut self.state, SyncState::Synced) {
            SyncState::Written(file) => {
                file.sync(&self.name.staging.file_system, is_together)?;
                match self.name.name {
                    Some(_) => SyncState::Synced,
                    None => SyncState::Unnamed(file),
                }
            }
            state => state,
        };
        Ok(self)
    }

    /// Links an unnamed file at its published name. `false`: it has a name, or something is there, which a link does not replace.
    /// `record` is called before the folder may be altered.
    pub(super) fn link_at(
        &self,
        folder: &OwnedFd,
        name: &str,
        record: impl FnOnce(),
    ) -> Result<bool, Errno> {
        let (SyncState::Unnamed(it), None) = (&self.state, &self.name.name) else {
            return Ok(false);
        };
        record();
        let disk = &self.name.staging.file_system.disk;
        disk.before(DiskCall::Link, name.as_bytes())?;
        match link_unnamed(&it.file, folder, name) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Renames the file to its published name, replacing the file there.
    pub(super) fn rename_to(&mut self, folder: &OwnedFd, name: &str) -> Result<(), Errno> {
        if let (SyncState::Unnamed(it), None) = (&self.state, &self.name.name) {
            self.name.give_to(&it.file)?;
        }
        let own = self.name.name.as_ref().ok_or(Errno::NOENT)?;
        let disk = &self.name.staging.file_system.disk;
        disk.before(DiskCall::Rename, name.as_bytes())?;
        renameat(&self.name.staging.folder, &**own, folder, name)
    }

    /// The file is at its published name, and has no other. Returns one that was unnamed: that it has a link is to be synced, before
    /// the folder.
    pub(super) fn into_published(mut self) -> Option<OpenFile> {
        self.name.name = None;
        match self.state {
            SyncState::Unnamed(file) => Some(file),
            SyncState::Written(_) | SyncState::Synced => None,
        }
    }
}

impl fmt::Debug for CompletedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletedFile({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Staged {
        /// Leaves a hole where its bytes were.
        pub(crate) fn drop_bytes(&self) {
            self.file.set_len(0).unwrap();
            self.file.set_len(self.length).unwrap();
        }
    }

    #[test]
    fn completed_files_get_a_share_of_the_file_descriptors() {
        for (descriptors, limit) in [
            (Some(0), 0),
            (Some(256), 64),
            (Some(1024), 256),
            (Some(65_536), 2048),
            (None, 2048),
        ] {
            assert_eq!(open_limit(descriptors), limit, "{descriptors:?}");
        }
    }
}
