//! The mirror's tree of folders, accessed one name at a time from its root.
//!
//! Every step opens a real folder in an open folder and never follows a symlink. So nothing that others put into the tree, or
//! change meanwhile, leads out of it.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, openat, statat, unlinkat};
use rustix::io::{Errno, Result};

use super::error::errno;
use super::fault_injection::inject_fault;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Folders whose entries may not be on disk yet.
pub(super) type UnsyncedFolders = BTreeSet<String>;

/// A tree of folders, accessed by its open root. Folders are named by their path below it; the root itself is `""`.
pub(super) struct FolderTree {
    root: OwnedFd,
}

impl FolderTree {
    /// Opens an existing folder as the root. The root is configured, so that it may be a symlink.
    pub(super) fn open(root: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        Ok(Self { root })
    }

    /// Opens an existing folder.
    pub(super) fn folder(&self, folder: &str) -> Result<OwnedFd> {
        let mut at = openat(&self.root, ".", FOLDER, Mode::empty())?;
        for name in names(folder) {
            at = openat(&at, name, FOLDER, Mode::empty())?;
        }
        Ok(at)
    }

    /// Whether a folder can't exist because it, or an ancestor of it, is a file.
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

    /// Opens a folder; creates it and its ancestors if missing. Every folder that gets a new entry is added to `altered`.
    pub(super) fn create_folders(
        &self,
        folder: &str,
        altered: &mut BTreeSet<String>,
    ) -> Result<OwnedFd> {
        let mut at = openat(&self.root, ".", FOLDER, Mode::empty())?;
        let mut path = String::new();
        for name in names(folder) {
            at = match openat(&at, name, FOLDER, Mode::empty()) {
                Err(Errno::NOENT) => {
                    altered.insert(path.clone());
                    create_folder(&at, name, 0o755)?;
                    openat(&at, name, FOLDER, Mode::empty())?
                }
                opened => opened?,
            };
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(name);
        }
        Ok(at)
    }

    /// Removes a folder if it is empty; returns whether it did.
    pub(super) fn remove_empty(&self, folder: &str) -> Result<bool> {
        let (parent, name) = split(folder);
        inject_fault()?;
        match unlinkat(self.folder(parent)?, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            // BUSY: a mount point.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Syncs the entries of a folder to disk.
    pub(super) fn sync(&self, folder: &str) -> Result<()> {
        inject_fault()?;
        match File::from(self.folder(folder)?).sync_all() {
            Ok(()) => Ok(()),
            Err(error) => match errno(&error) {
                // Some network file systems can't sync folders: what they have acknowledged is as safe as possible.
                Errno::INVAL => Ok(()),
                errno => Err(errno),
            },
        }
    }

    /// Syncs the file system to disk.
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

    /// Opens a regular file for reading. Anything else is an error, as a symlink is.
    pub(super) fn file(&self, folder: &str, name: &str) -> Result<File> {
        // NONBLOCK: opening a FIFO would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(self.folder(folder)?, name, flags, Mode::empty())?;
        match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(File::from(file)),
            _ => Err(Errno::LOOP),
        }
    }
}

/// The type of an entry of an open folder, without following symlinks; `None` if it does not exist.
pub(super) fn kind(folder: &OwnedFd, name: &str) -> Result<Option<FileType>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Creates a folder in an open one, unless it exists.
pub(super) fn create_folder(parent: &OwnedFd, name: &str, mode: u32) -> Result<()> {
    inject_fault()?;
    match mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Removes every file in an open folder whose name is not retained; returns their number.
pub(super) fn sweep(folder: &OwnedFd, retained: impl Fn(&[u8]) -> bool) -> Result<usize> {
    let mut removed = 0;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || retained(name.to_bytes()) {
            continue;
        }
        inject_fault()?;
        match unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) => removed += 1,
            // A foreign folder is not removed. (PERM is the POSIX error for it, ISDIR that of Linux.)
            Err(Errno::ISDIR | Errno::PERM | Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(removed)
}

/// The parent of a folder, and its name there.
pub(super) fn split(folder: &str) -> (&str, &str) {
    folder.rsplit_once('/').unwrap_or(("", folder))
}

/// The folder itself and all its ancestors, including the root.
pub(super) fn ancestors(folder: &str) -> impl Iterator<Item = &str> {
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
    fn ancestors_end_with_the_root() {
        assert_eq!(
            ancestors("h/a/b").collect::<Vec<_>>(),
            ["h/a/b", "h/a", "h", ""]
        );
        assert_eq!(ancestors("").collect::<Vec<_>>(), [""]);
    }
}
