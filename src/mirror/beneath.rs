//! The mirror's tree, reached one name at a time from its root.
//!
//! Every step opens a real folder in a folder that is already open, and never follows a symlink. So nothing that others
//! put into the tree, or change while we walk, leads out of it.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, openat, statat, unlinkat};
use rustix::io::{Errno, Result};

use super::error::errno;
use super::refusals::inject_fault;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A tree of folders, held by its root. Folders are named by their path below it; the root itself is `""`.
pub(super) struct Beneath {
    root: OwnedFd,
}

impl Beneath {
    /// Holds an existing folder. The root is the operator's word: it may be a symlink.
    pub(super) fn open(root: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        Ok(Self { root })
    }

    /// Opens a folder that is there.
    pub(super) fn folder(&self, folder: &str) -> Result<OwnedFd> {
        let mut at = openat(&self.root, ".", FOLDER, Mode::empty())?;
        for name in names(folder) {
            at = openat(&at, name, FOLDER, Mode::empty())?;
        }
        Ok(at)
    }

    /// Whether a folder can't be there because a file has its place, or that of one it would be in.
    pub(super) fn is_below_file(&self, folder: &str) -> Result<bool> {
        let mut at = openat(&self.root, ".", FOLDER, Mode::empty())?;
        for name in names(folder) {
            match kind(&at, name)? {
                Some(FileType::Directory) => at = openat(&at, name, FOLDER, Mode::empty())?,
                found => return Ok(found == Some(FileType::RegularFile)),
            }
        }
        Ok(false)
    }

    /// Opens a folder, and makes what is missing of it; every folder that got a new one is added to `altered`.
    pub(super) fn make_folder(
        &self,
        folder: &str,
        altered: &mut BTreeSet<String>,
    ) -> Result<OwnedFd> {
        let mut at = openat(&self.root, ".", FOLDER, Mode::empty())?;
        let mut walked = String::new();
        for name in names(folder) {
            at = match openat(&at, name, FOLDER, Mode::empty()) {
                Err(Errno::NOENT) => {
                    altered.insert(walked.clone());
                    make(&at, name, 0o755)?;
                    openat(&at, name, FOLDER, Mode::empty())?
                }
                opened => opened?,
            };
            if !walked.is_empty() {
                walked.push('/');
            }
            walked.push_str(name);
        }
        Ok(at)
    }

    /// Removes a folder if it is empty; whether it did.
    pub(super) fn remove_empty(&self, folder: &str) -> Result<bool> {
        let (parent, name) = split(folder);
        inject_fault()?;
        match unlinkat(self.folder(parent)?, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            // BUSY: somebody mounted something there.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Waits until the folder's entries are on disk.
    pub(super) fn sync(&self, folder: &str) -> Result<()> {
        inject_fault()?;
        match File::from(self.folder(folder)?).sync_all() {
            Ok(()) => Ok(()),
            Err(error) => match errno(&error) {
                // Some network file systems have no such thing for folders: what they acknowledged is as safe as it gets.
                Errno::INVAL => Ok(()),
                errno => Err(errno),
            },
        }
    }

    /// Waits until everything on this file system is on disk.
    pub(super) fn sync_everything(&self) -> Result<()> {
        inject_fault()?;
        #[cfg(target_os = "linux")]
        return rustix::fs::syncfs(&self.root);
        #[cfg(not(target_os = "linux"))]
        {
            rustix::fs::sync();
            Ok(())
        }
    }

    /// Opens a regular file for reading. Anything else counts as a symlink does: it is in the way.
    pub(super) fn file(&self, folder: &str, name: &str) -> Result<File> {
        // NONBLOCK, because opening a FIFO would wait for its writer for ever.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(self.folder(folder)?, name, flags, Mode::empty())?;
        match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(File::from(file)),
            _ => Err(Errno::LOOP),
        }
    }
}

/// What a name in an open folder stands for, symlinks not followed; `None`: nothing.
pub(super) fn kind(folder: &OwnedFd, name: &str) -> Result<Option<FileType>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Makes a folder in an open one, if it is not there.
pub(super) fn make(parent: &OwnedFd, name: &str, mode: u32) -> Result<()> {
    inject_fault()?;
    match mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Removes every file in an open folder whose name is not to be kept; how many.
pub(super) fn sweep(folder: &OwnedFd, keeps: impl Fn(&[u8]) -> bool) -> Result<usize> {
    let mut removed = 0;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || keeps(name.to_bytes()) {
            continue;
        }
        inject_fault()?;
        match unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) => removed += 1,
            // Somebody's folder is not ours to remove. (PERM: what POSIX says instead of ISDIR.)
            Err(Errno::ISDIR | Errno::PERM | Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(removed)
}

/// The folder that a folder is in, and its name there.
pub(super) fn split(folder: &str) -> (&str, &str) {
    folder.rsplit_once('/').unwrap_or(("", folder))
}

/// The folder itself and all that it is in, up to and with the root.
pub(super) fn upwards(folder: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(folder), |folder| {
        (!folder.is_empty()).then(|| split(folder).0)
    })
}

fn names(folder: &str) -> impl Iterator<Item = &str> {
    folder.split('/').filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upwards_ends_with_the_root() {
        assert_eq!(
            upwards("h/a/b").collect::<Vec<_>>(),
            ["h/a/b", "h/a", "h", ""]
        );
        assert_eq!(upwards("").collect::<Vec<_>>(), [""]);
    }
}
