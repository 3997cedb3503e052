//! The mirror's tree of folders, accessed from its open root.
//!
//! A path is looked up without following any symlink and without leaving the root: by the kernel (`openat2`), or one name at a
//! time where it can't. So nothing that others put into the tree, or change meanwhile, leads out of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fsync, mkdirat, openat, statat, unlinkat};
use rustix::io::{Errno, Result, retry_on_intr};

use super::disk::{DiskCall, DiskObserver};

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Folders whose entries may not be on disk yet.
#[derive(Default)]
pub(super) struct UnsyncedFolders {
    folders: BTreeMap<String, Alterations>,
    /// How many alterations were recorded.
    number: u64,
}

/// What is not synced of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alterations {
    /// The number of the last one: they are counted over all folders.
    pub(super) last: u64,
    /// How many syncs of the file system had failed before the first one.
    pub(super) failures: u64,
}

impl UnsyncedFolders {
    /// Records a folder before it is altered. `failures`: how many syncs of the file system have failed.
    pub(super) fn record(&mut self, folder: &str, failures: u64) {
        self.number += 1;
        let last = self.number;
        match self.folders.get_mut(folder) {
            Some(alterations) => alterations.last = last,
            None => {
                let alterations = Alterations { last, failures };
                self.folders.insert(folder.to_owned(), alterations);
            }
        }
    }

    /// Removes a folder that was synced, or that is no longer there.
    pub(super) fn remove(&mut self, folder: &str) {
        self.folders.remove(folder);
    }

    /// What is not synced of a folder; `None` if it is on disk.
    pub(super) fn of(&self, folder: &str) -> Option<Alterations> {
        self.folders.get(folder).copied()
    }

    pub(super) fn contains(&self, folder: &str) -> bool {
        self.folders.contains_key(folder)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }
}

/// A tree of folders, accessed by its open root. Folders are named by their path below it; the root itself is `""`.
pub(super) struct FolderTree {
    root: OwnedFd,
    pub(super) disk: Arc<dyn DiskObserver>,
    /// Whether paths are looked up one name at a time, because the kernel offers nothing else.
    pub(super) walks: AtomicBool,
}

impl FolderTree {
    /// Opens an existing folder as the root. The root is configured, so that it may be a symlink.
    pub(super) fn open(root: &Path, disk: Arc<dyn DiskObserver>) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        Ok(Self {
            root,
            disk,
            walks: AtomicBool::new(false),
        })
    }

    /// Whether the open root is what is at a path: the same inode of the same device.
    pub(super) fn is_at(&self, path: &Path) -> Result<bool> {
        let open = rustix::fs::fstat(&self.root)?;
        match rustix::fs::stat(path) {
            Ok(found) => Ok((found.st_dev, found.st_ino) == (open.st_dev, open.st_ino)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Opens an existing folder.
    pub(super) fn folder(&self, folder: &str) -> Result<OwnedFd> {
        self.look_up(folder, FOLDER)
    }

    /// Opens what is at a path. A symlink is an error, wherever it is in the path.
    pub(super) fn look_up(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        if !self.walks.load(Ordering::Relaxed) {
            match look_up_beneath(&self.root, path, flags) {
                // Linux before 5.6, or a filter of system calls that does not know this one.
                Err(Errno::NOSYS | Errno::PERM) => self.walks.store(true, Ordering::Relaxed),
                // Something was moved meanwhile, and the kernel can't be sure.
                Err(Errno::AGAIN) => {}
                opened => return opened,
            }
        }
        self.walk(path, flags)
    }

    /// As [`look_up`](Self::look_up), one name at a time.
    fn walk(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        let mut folder: Option<OwnedFd> = None;
        let (parent, name) = split(path);
        for name in names(parent) {
            let at = folder.as_ref().unwrap_or(&self.root);
            folder = Some(openat(at, name, FOLDER, Mode::empty())?);
        }
        let at = folder.as_ref().unwrap_or(&self.root);
        openat(at, or_root(name), flags, Mode::empty())
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

    /// Opens a folder; creates it and its ancestors if missing. Every folder is recorded before it gets a new entry, unless that fails.
    pub(super) fn create_folders(
        &self,
        folder: &str,
        mut record: impl FnMut(&str) -> Result<()>,
    ) -> Result<OwnedFd> {
        let mut missing = Vec::new();
        let mut path = folder;
        let mut at = loop {
            match self.folder(path) {
                Err(Errno::NOENT) if !path.is_empty() => {
                    missing.push(path);
                    path = split(path).0;
                }
                opened => break opened?,
            }
        };
        for path in missing.into_iter().rev() {
            let (parent, name) = split(path);
            record(parent)?;
            create_folder(&at, name, 0o755, &*self.disk)?;
            at = openat(&at, name, FOLDER, Mode::empty())?;
        }
        Ok(at)
    }

    /// Removes a folder if it is empty; returns whether it did.
    pub(super) fn remove_empty(&self, folder: &str) -> Result<bool> {
        let (parent, name) = split(folder);
        self.disk.before(DiskCall::RemoveFolder, b"")?;
        match unlinkat(self.folder(parent)?, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            // BUSY: a mount point.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Syncs the entries of a folder to disk. `opened` is the folder, if it is open.
    pub(super) fn sync(&self, folder: &str, opened: Option<&OwnedFd>) -> Result<()> {
        match opened {
            Some(opened) => sync_entries(opened, folder, &*self.disk),
            None => sync_entries(&self.folder(folder)?, folder, &*self.disk),
        }
    }

    /// Opens a regular file for reading. Anything else is an error, as a symlink is.
    pub(super) fn file(&self, path: &str) -> Result<File> {
        // NONBLOCK: opening a FIFO would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = self.look_up(path, flags)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(File::from(file)),
            _ => Err(Errno::LOOP),
        }
    }
}

/// Syncs the entries of an open folder, which is at a path, to disk.
pub(super) fn sync_entries(folder: &OwnedFd, path: &str, disk: &dyn DiskObserver) -> Result<()> {
    disk.before(DiskCall::Fsync, path.as_bytes())?;
    match retry_on_intr(|| fsync(folder)) {
        // Some network file systems can't sync folders: what they have acknowledged is as safe as possible.
        Err(Errno::INVAL) => Ok(()),
        synced => synced,
    }
}

/// Opens what is at a path below an open folder, in one call.
#[cfg(target_os = "linux")]
fn look_up_beneath(root: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, or_root(path), flags, Mode::empty(), beneath)
}

#[cfg(not(target_os = "linux"))]
fn look_up_beneath(_: &OwnedFd, _: &str, _: OFlags) -> Result<OwnedFd> {
    Err(Errno::NOSYS)
}

/// A path or name as the system needs it: the root itself is `.`.
fn or_root(path: &str) -> &str {
    if path.is_empty() { "." } else { path }
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
pub(super) fn create_folder(
    parent: &OwnedFd,
    name: &str,
    mode: u32,
    disk: &dyn DiskObserver,
) -> Result<()> {
    disk.before(DiskCall::CreateFolder, b"")?;
    match mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Removes every file in an open folder whose name is not retained; returns their number.
pub(super) fn sweep(
    folder: &OwnedFd,
    retained: impl Fn(&[u8]) -> bool,
    disk: &dyn DiskObserver,
) -> Result<usize> {
    let mut removed = 0;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || retained(name.to_bytes()) {
            continue;
        }
        disk.before(DiskCall::Unlink, b"")?;
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
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// What is found at a path: the number of its inode, or whether something is in the way.
    fn found(opened: Result<OwnedFd>) -> std::result::Result<u64, Errno> {
        match opened {
            Ok(opened) => Ok(rustix::fs::fstat(&opened).unwrap().st_ino),
            // Of a symlink the walk reports that it is no folder.
            Err(Errno::LOOP) => Err(Errno::NOTDIR),
            Err(errno) => Err(errno),
        }
    }

    #[test]
    fn look_up_finds_what_the_walk_finds_and_no_symlink() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("root");
        fs::create_dir_all(root.join("h/a/b")).unwrap();
        fs::create_dir(base.path().join("outside")).unwrap();
        for file in ["root/h/file", "root/h/a/b/file", "outside/file"] {
            fs::write(base.path().join(file), file).unwrap();
        }
        symlink("../../outside", root.join("h/out")).unwrap();
        symlink("a", root.join("h/in")).unwrap();
        symlink("file", root.join("h/link")).unwrap();
        symlink("/proc/self/root", root.join("h/magic")).unwrap();
        let tree = FolderTree::open(&root, Arc::new(())).unwrap();
        let file = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for (path, folder_is_found, file_is_found) in [
            ("", true, true),
            ("h", true, true),
            ("h/a/b", true, true),
            ("h/file", false, true),
            ("h/a/b/file", false, true),
            ("h/missing", false, false),
            ("missing/file", false, false),
            ("h/file/below", false, false),
            ("h/out", false, false),
            ("h/out/file", false, false),
            ("h/in", false, false),
            ("h/in/b", false, false),
            ("h/in/b/file", false, false),
            ("h/link", false, false),
            ("h/magic", false, false),
            ("h/magic/etc/passwd", false, false),
        ] {
            for (flags, is_found) in [(FOLDER, folder_is_found), (file, file_is_found)] {
                let walked = found(tree.walk(path, flags));
                assert_eq!(found(tree.look_up(path, flags)), walked, "{path} {flags:?}");
                assert_eq!(walked.is_ok(), is_found, "{path} {flags:?}: {walked:?}");
            }
        }
        for path in ["..", "h/../../outside/file", "/etc/passwd"] {
            let opened = look_up_beneath(&tree.root, path, file);
            assert!(
                matches!(opened, Err(Errno::XDEV | Errno::NOSYS | Errno::PERM)),
                "{path}"
            );
        }
    }

    #[test]
    fn ancestors_end_with_the_root() {
        assert_eq!(
            ancestors("h/a/b").collect::<Vec<_>>(),
            ["h/a/b", "h/a", "h", ""]
        );
        assert_eq!(ancestors("").collect::<Vec<_>>(), [""]);
    }
}
