//! Working files: where a resource's bytes are until they are whole.
//!
//! Invariant: a [`CompletedFile`] is complete and on disk, so that a rename is all that publishing it takes. Who drops a
//! [`Staged`] or a [`CompletedFile`] removes its working file; what a crash leaves behind is swept when the mirror is opened.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::MirrorError;
use super::beneath::{Beneath, make, sweep};
use super::path::OWN_FOLDER;
use super::refusals::inject_fault;
use crate::protocol::SourceTime;

/// The oldest and the latest time that ext4 can keep, in microseconds since 1970: from 1901 to 2446.
const TIMES: std::ops::RangeInclusive<i64> = -(1 << 31) * 1_000_000..=15_032_385_535 * 1_000_000;

/// The folder of working files, and the lock that makes it ours.
///
/// Every working file keeps it alive: the lock is held until the last of them is gone, so that no other process ever
/// uses a name that one of ours still cleans up.
pub(super) struct StagingDir {
    folder: OwnedFd,
    lock: File,
    next: AtomicU64,
}

impl StagingDir {
    /// Takes the lock and sweeps away what an earlier process left.
    ///
    /// The second value tells whether that process ended without closing its mirror.
    pub(super) fn open(tree: &Beneath, root: &Path) -> Result<(Self, bool), MirrorError> {
        let fault = |errno| MirrorError::sort("opening", OWN_FOLDER, errno);
        let top = tree.folder("").map_err(fault)?;
        make(&top, OWN_FOLDER, 0o755).map_err(fault)?;
        let own = tree.folder(OWN_FOLDER).map_err(fault)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&own, "lock", flags, Mode::from_raw_mode(0o644)).map_err(fault)?;
        let lock = File::from(lock);
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(MirrorError::Locked {
                    root: root.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => {
                return Err(MirrorError::sort_io("locking", OWN_FOLDER, &error));
            }
        }
        // Whoever may read the mirror has no business with half a file.
        make(&own, "work", 0o700).map_err(fault)?;
        let folder = tree.folder(".resyncd/work").map_err(fault)?;
        sweep(&folder, |_| false)
            .map_err(|errno| MirrorError::sort("sweeping", ".resyncd/work", errno))?;

        let io = |error| MirrorError::sort_io("writing", ".resyncd/lock", &error);
        let unclean = lock.metadata().map_err(io)?.len() > 0;
        inject_fault().map_err(|errno| io(errno.into()))?;
        (&lock).write_all(b"in use\n").map_err(io)?;
        let workroom = Self {
            folder,
            lock,
            next: AtomicU64::new(1),
        };
        Ok((workroom, unclean))
    }

    /// Notes that nothing is left that may not be on disk. It only spares the next start a sync, so it may fail.
    pub(super) fn note_clean(&self) {
        let _ = self.lock.set_len(0);
    }
}

/// A name in the workroom; the file goes when this goes, unless it has moved to its place.
struct Working {
    room: Arc<StagingDir>,
    name: String,
    moved: bool,
}

impl Working {
    fn fault(&self, doing: &'static str, error: &std::io::Error) -> MirrorError {
        MirrorError::sort_io(doing, &format!(".resyncd/work/{}", self.name), error)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if !self.moved {
            // It may be gone already; what can't be removed is swept at the next start.
            let _ = inject_fault()
                .and_then(|()| unlinkat(&self.room.folder, &self.name, AtFlags::empty()));
        }
    }
}

/// A working file that is being written.
pub struct Staged {
    file: File,
    work: Working,
    failed: bool,
}

impl Staged {
    /// Begins an empty working file.
    pub(super) fn begin(room: &Arc<StagingDir>) -> Result<Self, MirrorError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let name = room.next.fetch_add(1, Ordering::Relaxed).to_string();
            let made = inject_fault()
                .and_then(|()| openat(&room.folder, &name, flags, Mode::from_raw_mode(0o644)));
            match made {
                Ok(file) => {
                    return Ok(Self {
                        file: File::from(file),
                        work: Working {
                            room: Arc::clone(room),
                            name,
                            moved: false,
                        },
                        failed: false,
                    });
                }
                // Somebody's folder that the sweep left alone.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(MirrorError::sort("making", ".resyncd/work", errno)),
            }
        }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`MirrorError`], when they could not be written; the file can't be finished then.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), MirrorError> {
        let written = inject_fault().map_err(io::Error::from);
        let written = written.and_then(|()| self.file.write_all(bytes));
        written.map_err(|error| {
            self.failed = true;
            self.work.fault("writing", &error)
        })
    }

    /// Gives the file its time, the resource's last modification, and waits until all of it is on disk.
    ///
    /// A time that file systems can't keep is moved to the nearest one that they can. This blocks for an fsync.
    ///
    /// # Errors
    /// [`MirrorError`], when it is not on disk for certain; the working file is removed then.
    pub fn finish(self, lastmod: Option<SourceTime>) -> Result<CompletedFile, MirrorError> {
        let Self { file, work, failed } = self;
        if failed {
            return Err(work.fault("finishing", &Errno::IO.into()));
        }
        if let Some(lastmod) = lastmod {
            inject_fault()
                .map_err(io::Error::from)
                .and_then(|()| file.set_modified(file_time(lastmod)))
                .map_err(|error| work.fault("dating", &error))?;
        }
        inject_fault()
            .map_err(io::Error::from)
            .and_then(|()| file.sync_all())
            .map_err(|error| work.fault("syncing", &error))?;
        Ok(CompletedFile { work })
    }
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Staged({})", self.work.name)
    }
}

/// A Source's time as a file's: the nearest one that file systems can keep.
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

/// A working file that is complete and on disk, and waits for its place.
pub struct CompletedFile {
    work: Working,
}

impl CompletedFile {
    /// Moves the file to its place, over the file that is there; gives it back when it could not.
    pub(super) fn move_to(mut self, folder: &OwnedFd, name: &str) -> Result<(), (Errno, Self)> {
        let room = &self.work.room.folder;
        let moved = inject_fault().and_then(|()| renameat(room, &self.work.name, folder, name));
        match moved {
            Ok(()) => {
                self.work.moved = true;
                Ok(())
            }
            Err(errno) => Err((errno, self)),
        }
    }
}

impl fmt::Debug for CompletedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Whole({})", self.work.name)
    }
}
