//! The file system of the mirror: syncing all of it in place of many files.
//!
//! One sync of everything costs hardly more than an fsync if nobody else writes, and waits for all that other programs have written
//! if they do. What is relied on is written down in `docs/explanation/durability.md`.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::{Errno, Result};

use super::disk::{DiskCall, DiskObserver};

/// From how many files, or folders, on one sync of the file system replaces the fsync of each.
///
/// Fewer are a push, whose latency counts: an fsync waits for one file and the journal, a sync of everything also for the bytes that
/// other programs have written, which may take minutes. A larger batch accepts that: without such programs it is many times faster.
pub(super) const SYNC_TOGETHER: usize = 16;

/// What `stat` counts as a block, in bytes.
const BLOCK: i128 = 512;

/// The share of its inodes that a file system keeps free, and how many at most: other programs need some, such as the database.
const FREE_SHARE: u64 = 100;
const MOST_FREE: u64 = 10_000;

/// The file systems whose sync was checked, as `statfs` names them (linux/magic.h).
const EXT4: u32 = 0xEF53;
const XFS: u32 = 0x5846_5342;
const BTRFS: u32 = 0x9123_683E;
/// The first Linux on which a sync of a file system reports every error: of write-back since 5.8, of the journal since 5.17.
const REPORTS_ERRORS: (u32, u32) = (5, 17);

/// The file system that the mirror is on.
pub(super) struct FileSystem {
    /// The kernel reports an error of write-back once through each open handle, also one from before it was opened unless that was
    /// reported to somebody. So it is opened before anything is staged, and stays open: no error of ours is reported elsewhere only.
    handle: OwnedFd,
    pub(super) disk: Arc<dyn DiskObserver>,
    /// Whether [`sync`](Self::sync) may replace the fsync of each file: whether it reports all errors.
    pub(super) replaces_fsync: bool,
    /// ext4: it drops the bytes of a file for which it can't allocate blocks, and reports that to an fsync at most, if that is what
    /// writes them back.
    pub(super) drops_bytes: bool,
    /// XFS: after it was shut down the fsync of a folder may succeed, though what was altered is lost. That of a file never does.
    pub(super) hides_shutdown: bool,
    /// How many syncs have failed.
    failures: AtomicU64,
    /// An error is reported to one caller only: the next must not return before it is counted.
    syncing: Mutex<()>,
}

impl FileSystem {
    /// The file system of an open folder.
    pub(super) fn of(handle: OwnedFd, disk: Arc<dyn DiskObserver>) -> Result<Self> {
        let kind = kind(&handle)?;
        let is_checked = matches!(kind, Some(EXT4 | XFS | BTRFS));
        Ok(Self {
            replaces_fsync: is_checked
                && reports_errors(rustix::system::uname().release())
                && can_sync_all(),
            drops_bytes: kind == Some(EXT4),
            hides_shutdown: kind == Some(XFS),
            handle,
            disk,
            failures: AtomicU64::new(0),
            syncing: Mutex::default(),
        })
    }

    /// How many syncs have failed. An error of write-back is reported to one sync: it may concern each file that was written
    /// before, and no later sync says anything of those.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::SeqCst)
    }

    /// Syncs everything on the file system to disk. It blocks for as long as it takes to write what other programs have written.
    ///
    /// It may succeed where nothing is written any more, because the file system has become read-only after an error, or ext4 was
    /// shut down. So it is followed by the fsync of a folder that was altered last, which fails there.
    pub(super) fn sync(&self) -> Result<()> {
        let injected = self.disk.before(DiskCall::Syncfs, b"");
        let _syncing = self.syncing.lock();
        let synced = injected.and_then(|()| sync_all(&self.handle));
        if synced.is_err() {
            self.failures.fetch_add(1, Ordering::SeqCst);
        }
        synced
    }

    /// Fails as a full file system does if no inode may be used: before each file and each folder that is created.
    ///
    /// Files without bytes, and folders, could use up the inodes of all programs long before the space is.
    pub(super) fn check_inodes(&self) -> Result<()> {
        match rustix::fs::fstatvfs(&self.handle) {
            Ok(stat) if has_few_inodes(stat.f_files, stat.f_favail) => Err(Errno::NOSPC),
            _ => Ok(()),
        }
    }

    /// Whether the file system has the bytes of a staged file that was synced. What is staged has no holes.
    ///
    /// Blocks that hold no bytes of the file are counted, too, such as one of extended attributes: they can hide as many that are
    /// missing.
    pub(super) fn check_blocks(&self, file: &File) -> Result<()> {
        if !self.drops_bytes {
            return Ok(());
        }
        let stat = rustix::fs::fstat(file)?;
        if i128::from(stat.st_blocks) * BLOCK < i128::from(stat.st_size) {
            return Err(Errno::IO);
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn sync_all(handle: &OwnedFd) -> Result<()> {
    rustix::fs::syncfs(handle)
}

#[cfg(not(target_os = "linux"))]
fn sync_all(_: &OwnedFd) -> Result<()> {
    rustix::fs::sync();
    Ok(())
}

#[cfg(target_os = "linux")]
fn kind(handle: &OwnedFd) -> Result<Option<u32>> {
    // Its type differs between architectures; its values have 32 bits.
    Ok(Some(rustix::fs::fstatfs(handle)?.f_type as u32))
}

#[cfg(not(target_os = "linux"))]
fn kind(_: &OwnedFd) -> Result<Option<u32>> {
    Ok(None)
}

/// Whether a file system can be synced at all: a filter of system calls may deny it.
#[cfg(target_os = "linux")]
fn can_sync_all() -> bool {
    // It refers to no open file: nothing is synced, and nothing is waited for.
    is_permitted(rustix::fs::syncfs(rustix::fs::CWD))
}

#[cfg(not(target_os = "linux"))]
fn can_sync_all() -> bool {
    false
}

/// Whether the sync of a file descriptor that is not open was not denied.
fn is_permitted(probed: Result<()>) -> bool {
    probed == Err(Errno::BADF)
}

/// Whether so few inodes of a file system are free that none may be used. Where there are none in all it has no fixed number of them, as
/// btrfs.
fn has_few_inodes(total: u64, free: u64) -> bool {
    total > 0 && free <= (total / FREE_SHARE).min(MOST_FREE)
}

/// Whether the kernel of this release, such as `6.1.0-18-amd64`, reports all errors to a sync of a file system.
fn reports_errors(release: &CStr) -> bool {
    let release = release.to_string_lossy();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or_default());
    let version = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    cfg!(target_os = "linux") && version >= REPORTS_ERRORS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_inodes_stay_free() {
        for (total, free, is_few) in [
            (0, 0, false),
            (2000, 21, false),
            (2000, 20, true),
            (2000, 0, true),
            (99, 1, false),
            (99, 0, true),
            (100_000_000, 10_001, false),
            (100_000_000, 10_000, true),
            (u64::MAX, u64::MAX, false),
        ] {
            assert_eq!(has_few_inodes(total, free), is_few, "{free} of {total}");
        }
    }

    #[test]
    fn kernels_that_report_no_errors_are_not_trusted() {
        for (release, reports) in [
            (c"6.1.0-18-amd64", true),
            (c"5.17", true),
            (c"5.17.0-rc4+", true),
            (c"10.0", true),
            (c"5.16.20", false),
            (c"5.8.0", false),
            (c"4.4.0", false),
            (c"", false),
            (c"unknown", false),
        ] {
            assert_eq!(reports_errors(release), reports, "{release:?}");
        }
    }

    #[test]
    fn sync_that_is_denied_is_not_used() {
        for denied in [Errno::PERM, Errno::NOSYS, Errno::ACCESS] {
            assert!(!is_permitted(Err(denied)), "{denied:?}");
        }
        assert!(is_permitted(Err(Errno::BADF)));
        assert_eq!(can_sync_all(), cfg!(target_os = "linux"));
    }
}
