//! Staged files: they hold the bytes of a resource until it is published.
//!
//! Invariant: a [`CompletedFile`] is complete and on disk, so that publishing it is only a rename. Dropping a [`Staged`] or a
//! [`CompletedFile`] removes the file; files that a crash leaves are removed when the mirror is opened.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::MirrorError;
use super::fault_injection::inject_fault;
use super::tree::{FolderTree, create_folder, sweep};
use crate::mirror_path::OWN_FOLDER;
use crate::protocol::SourceTime;

/// The range of times that ext4 can store, in microseconds since 1970: from 1901 to 2446.
const TIMES: std::ops::RangeInclusive<i64> = -(1 << 31) * 1_000_000..=15_032_385_535 * 1_000_000;

/// The folder of staged files, and the lock of the mirror.
///
/// Every staged file refers to it: the lock is held until the last of them is dropped, so that no other process uses a name
/// that this one will still remove.
pub(super) struct StagingDir {
    folder: OwnedFd,
    lock: File,
    next: AtomicU64,
}

impl StagingDir {
    /// Acquires the lock and removes the staged files of an earlier process. Also returns whether that process ended without
    /// closing the mirror.
    pub(super) fn open(tree: &FolderTree, root: &Path) -> Result<(Self, bool), MirrorError> {
        let failed = |errno| MirrorError::classify("opening", OWN_FOLDER, errno);
        let top = tree.folder("").map_err(failed)?;
        create_folder(&top, OWN_FOLDER, 0o755).map_err(failed)?;
        let own = tree.folder(OWN_FOLDER).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&own, "lock", flags, Mode::from_raw_mode(0o644)).map_err(failed)?;
        let lock = File::from(lock);
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(MirrorError::Locked {
                    root: root.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => {
                return Err(MirrorError::classify_io("locking", OWN_FOLDER, &error));
            }
        }
        // Incomplete files are not for those who may read the mirror.
        create_folder(&own, "work", 0o700).map_err(failed)?;
        let folder = tree.folder(".resyncd/work").map_err(failed)?;
        sweep(&folder, |_| false)
            .map_err(|errno| MirrorError::classify("sweeping", ".resyncd/work", errno))?;

        let io = |error| MirrorError::classify_io("writing", ".resyncd/lock", &error);
        let unclean = lock.metadata().map_err(io)?.len() > 0;
        inject_fault().map_err(|errno| io(errno.into()))?;
        (&lock).write_all(b"in use\n").map_err(io)?;
        let staging = Self {
            folder,
            lock,
            next: AtomicU64::new(1),
        };
        Ok((staging, unclean))
    }

    /// Records that everything is on disk. It only saves the next start a sync, so that errors are ignored.
    pub(super) fn note_clean(&self) {
        let _ = self.lock.set_len(0);
    }
}

/// A name in the folder of staged files; dropping it removes the file, unless it was published.
struct StagedName {
    staging: Arc<StagingDir>,
    name: String,
    published: bool,
}

impl StagedName {
    fn error(&self, doing: &'static str, error: &std::io::Error) -> MirrorError {
        MirrorError::classify_io(doing, &format!(".resyncd/work/{}", self.name), error)
    }
}

impl Drop for StagedName {
    fn drop(&mut self) {
        if !self.published {
            // A file that can't be removed is removed at the next start.
            let _ = inject_fault()
                .and_then(|()| unlinkat(&self.staging.folder, &self.name, AtFlags::empty()));
        }
    }
}

/// A staged file that is being written.
pub struct Staged {
    file: File,
    name: StagedName,
    failed: bool,
}

impl Staged {
    /// Begins an empty staged file.
    pub(super) fn begin(staging: &Arc<StagingDir>) -> Result<Self, MirrorError> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let name = staging.next.fetch_add(1, Ordering::Relaxed).to_string();
            let created = inject_fault()
                .and_then(|()| openat(&staging.folder, &name, flags, Mode::from_raw_mode(0o644)));
            match created {
                Ok(file) => {
                    return Ok(Self {
                        file: File::from(file),
                        name: StagedName {
                            staging: Arc::clone(staging),
                            name,
                            published: false,
                        },
                        failed: false,
                    });
                }
                // A foreign folder that the sweep did not remove.
                Err(Errno::EXIST) => {}
                Err(errno) => {
                    return Err(MirrorError::classify("creating", ".resyncd/work", errno));
                }
            }
        }
    }

    /// Appends bytes. After an error the file can't be finished.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), MirrorError> {
        let written = inject_fault().map_err(io::Error::from);
        let written = written.and_then(|()| self.file.write_all(bytes));
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

    /// Sets the modification time of the file to that of the resource, and syncs the file to disk. After an error the file is
    /// removed.
    ///
    /// A time that file systems can't store is replaced by the nearest one that they can. It blocks for an fsync.
    pub fn finish(self, lastmod: Option<SourceTime>) -> Result<CompletedFile, MirrorError> {
        let Self { file, name, failed } = self;
        if failed {
            return Err(name.error("finishing", &Errno::IO.into()));
        }
        if let Some(lastmod) = lastmod {
            inject_fault()
                .map_err(io::Error::from)
                .and_then(|()| file.set_modified(file_time(lastmod)))
                .map_err(|error| name.error("dating", &error))?;
        }
        inject_fault()
            .map_err(io::Error::from)
            .and_then(|()| file.sync_all())
            .map_err(|error| name.error("syncing", &error))?;
        Ok(CompletedFile { name })
    }
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Staged({})", self.name.name)
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

/// A staged file that is complete and on disk, ready to be published.
pub struct CompletedFile {
    name: StagedName,
}

impl CompletedFile {
    /// Renames the file to its published name, replacing the file there; returns it on failure.
    pub(super) fn move_to(mut self, folder: &OwnedFd, name: &str) -> Result<(), (Errno, Self)> {
        let staging = &self.name.staging.folder;
        let renamed =
            inject_fault().and_then(|()| renameat(staging, &self.name.name, folder, name));
        match renamed {
            Ok(()) => {
                self.name.published = true;
                Ok(())
            }
            Err(errno) => Err((errno, self)),
        }
    }
}

impl fmt::Debug for CompletedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletedFile({})", self.name.name)
    }
}
