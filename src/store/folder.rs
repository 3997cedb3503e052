//! The folder of the database: durable, and for its owner alone.
//!
//! It holds the secrets that are shared with hubs. A unit of systemd may create it with that mode; elsewhere this does.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use resyncd_mirror::FileLock;

use super::error::StoreError;

/// The beginning of the names of all files in it.
const OWN: &str = "resyncd";
const FOLDER_MODE: u32 = 0o700;
const LOCK_MODE: u32 = 0o600;

/// Creates the folder, unless it exists, and syncs the folders that it was created in: without its entry in them, a power loss
/// takes the whole database.
pub(super) fn prepare(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        let parent = folder
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        create_parents(parent)?;
        DirBuilder::new().mode(FOLDER_MODE).create(folder)?;
        return sync(parent);
    }
    let mode = fs::metadata(folder)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let is_ours = fs::read_dir(folder)?
        .all(|entry| entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with(OWN)));
    if is_ours {
        // A folder of another user is used as it is.
        match fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!(code = "state-folder-readable", folder = %folder.display(), mode = format!("{:03o}", mode & 0o777),
                    "state_dir can be read by other users and belongs to one of them");
                Ok(())
            }
            result => result,
        }
    } else {
        tracing::warn!(code = "state-folder-readable", folder = %folder.display(), mode = format!("{:03o}", mode & 0o777),
            "state_dir can be read by other users, and holds other files: it should be a folder of its own, with mode 0700");
        Ok(())
    }
}

/// The name of the lock file.
const LOCK: &str = "resyncd.lock";

/// Locks the folder against other processes.
///
/// # Errors
/// [`StoreError::Locked`], or an error of the system.
pub(super) fn lock(folder: &Path) -> Result<FileLock, StoreError> {
    let failed = |error| StoreError::Folder(folder.to_owned(), error);
    let lock = open_lock(&folder.join(LOCK)).map_err(failed)?;
    FileLock::try_new(lock).map_err(|error| match error {
        TryLockError::WouldBlock => StoreError::Locked(folder.to_owned()),
        TryLockError::Error(error) => failed(error),
    })
}

/// Whether it is certain that no process works on the folder.
pub(super) fn is_free(folder: &Path) -> bool {
    match File::open(folder.join(LOCK)) {
        Ok(lock) => FileLock::try_new(lock).is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether a process has worked on the folder, and none does any more.
pub(super) fn was_left(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|lock| FileLock::try_new(lock).is_ok())
}

/// The error of a folder on whose disk less than `least` bytes are free.
pub(super) fn lacks_space(folder: &Path, least: u64) -> Option<StoreError> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    (free < least).then(|| StoreError::NoSpace {
        folder: folder.to_owned(),
        free,
    })
}

/// Creates the lock file, unless it exists.
fn open_lock(path: &Path) -> io::Result<File> {
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(LOCK_MODE)
        .open(path)?;
    if lock.metadata()?.permissions().mode() & 0o077 != 0 {
        // That of another user stays as it is.
        let _ = lock.set_permissions(Permissions::from_mode(LOCK_MODE));
    }
    Ok(lock)
}

/// Creates a folder and those above it, as far as they are missing.
fn create_parents(folder: &Path) -> io::Result<()> {
    if folder.exists() {
        return Ok(());
    }
    let parent = folder
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    create_parents(parent)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync(parent),
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    match File::open(folder) {
        Ok(folder) => folder.sync_all(),
        // One may be allowed to create a folder in a folder that one may not open.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn folder_and_lock_are_for_the_owner_alone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b/state");
        prepare(&folder).unwrap();
        let lock = folder.join("resyncd.lock");
        open_lock(&lock).unwrap();
        assert_eq!((mode(&folder), mode(&lock)), (0o700, 0o600));
        // As someone else made them.
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
        prepare(&folder).unwrap();
        open_lock(&lock).unwrap();
        assert_eq!((mode(&folder), mode(&lock)), (0o700, 0o600));
        // A folder of something else is left as it is.
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.join("other"), "").unwrap();
        prepare(&folder).unwrap();
        assert_eq!(mode(&folder), 0o755);
    }
}
