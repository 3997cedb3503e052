//! Files without a name, which get one when they are complete (`O_TMPFILE`, since Linux 3.11).
//!
//! Until then they are in no folder, and are gone when they are closed. They are named through `/proc`, which needs no privilege;
//! where it is missing, or where the file system has no such files, there are none.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, unlinkat};
use rustix::io::Result;

/// The name of the file that is linked to find out whether that is possible.
const PROBE: &str = "probe";

/// Whether files in an open folder can be created without a name, and named later.
pub(super) fn links_unnamed(folder: &OwnedFd) -> bool {
    let linked = open_unnamed(folder).and_then(|file| link_unnamed(&file, folder, PROBE));
    linked.is_ok() && unlinkat(folder, PROBE, AtFlags::empty()).is_ok()
}

/// Creates a file without a name, on the file system of a folder.
#[cfg(target_os = "linux")]
pub(super) fn open_unnamed(folder: &OwnedFd) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    openat(folder, ".", flags, Mode::from_raw_mode(0o644))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn open_unnamed(_: &OwnedFd) -> Result<OwnedFd> {
    Err(rustix::io::Errno::NOSYS)
}

/// Gives a file without a name its first one. Nothing is replaced by it.
pub(super) fn link_unnamed(file: impl AsFd, folder: &OwnedFd, name: &str) -> Result<()> {
    linkat(CWD, path_of(file), folder, name, AtFlags::SYMLINK_FOLLOW)
}

/// Opens a file without a name once more, for reading from its beginning.
pub(super) fn reopen(file: impl AsFd) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat(CWD, path_of(file), flags, Mode::empty())
}

fn path_of(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}
