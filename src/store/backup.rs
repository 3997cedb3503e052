//! Copies of the database of a folder, whether or not a daemon works on it: a backup, or a state to try something with. A backup that
//! becomes the database of a folder again.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OpenFlags};

use super::copy::copy_into;
use super::corruption::{self, Damage};
use super::error::StoreError;
use super::folder;
use super::schema::{self, BUSY_TIMEOUT, DATABASE};
use super::tables::{followed_source, mirror};

/// Copies the database of a folder into a new file, also while a daemon writes to it. Whoever uses the copy as its database has
/// another feed. Returns the length of the copy in bytes, `None` if the folder has no database.
///
/// # Errors
/// [`StoreError::Folder`] if there is such a file already, or it can't be written; [`StoreError::OtherSchema`]; an error of the
/// database.
pub fn back_up(folder: &Path, file: &Path, now: DateTime<Utc>) -> Result<Option<u64>, StoreError> {
    let path = folder.join(DATABASE);
    let exists = path
        .try_exists()
        .map_err(|error| StoreError::Folder(folder.to_owned(), error))?;
    if !exists {
        return Ok(None);
    }
    let database = open_to_read(&path)?;
    schema::check_number(&database, &path)?;
    copy_into(&database, file, now).map(Some)
}

/// Makes a copy of a backup the database of a folder. The former database is set aside: its new path, `None` if there was none.
///
/// # Errors
/// [`StoreError::Locked`] if a process works on the folder; [`StoreError::NoBackup`], [`StoreError::OtherSchema`]; an error of the system.
/// Then the database is the former one.
pub fn restore(
    folder: &Path,
    backup: &Path,
    now: DateTime<Utc>,
) -> Result<Option<PathBuf>, StoreError> {
    let failed = |error| StoreError::Folder(folder.to_owned(), error);
    let unusable = |reason: String| StoreError::NoBackup(backup.to_owned(), reason);
    let sound = open_to_read(backup).and_then(|database| {
        if !schema::check_number(&database, backup)? {
            return Err(unusable("it is empty, or of another program".to_owned()));
        }
        corruption::check(&database)?;
        Ok(database)
    });
    let database = sound.map_err(|error| match error {
        StoreError::Sqlite(error) => unusable(error.to_string()),
        StoreError::Damaged(found) => unusable(found),
        error => error,
    })?;
    folder::prepare(folder).map_err(failed)?;
    let _lock = folder::lock(folder)?;
    let path = folder.join(DATABASE);
    let copy = corruption::beside(&path, ".restored");
    // One that was not put in place.
    match std::fs::remove_file(&copy) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    copy_into(&database, &copy, now)?;
    let aside = if path.try_exists().map_err(failed)? {
        Some(corruption::replace(&path).map_err(failed)?)
    } else {
        None
    };
    std::fs::rename(&copy, &path).map_err(failed)?;
    Damage::of(&path).clear().map_err(failed)?;
    let folder = File::open(folder).map_err(failed)?;
    folder.sync_all().map_err(failed)?;
    Ok(aside)
}

/// The mirror that a Source has used last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownMirror {
    /// Its id.
    pub id: String,
    /// Its folder; `None`: any may be used.
    pub folder: Option<PathBuf>,
}

/// See [`Store::known_mirrors`](super::Store::known_mirrors).
pub(super) fn known_mirrors(folder: &Path) -> Result<HashMap<String, KnownMirror>, StoreError> {
    let path = folder.join(DATABASE);
    if !path.exists() {
        return Ok(HashMap::new());
    }
    let database = open_to_read(&path)?;
    if !schema::check_number(&database, &path)? {
        return Ok(HashMap::new());
    }
    let database = database.into();
    let known = mirror::all(&database)?.into_iter().map(|(source, id)| {
        let location = followed_source::get(&database, &source)?;
        let folder = location.and_then(|location| location.mirror);
        Ok((source, KnownMirror { id, folder }))
    });
    known.collect()
}

fn open_to_read(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    database.busy_timeout(BUSY_TIMEOUT)?;
    Ok(database)
}

/// Makes a folder the state of a Destination that knows what that of another folder knows; see [`back_up`]. Both may be in use.
pub fn copy_state(folder: &Path, copy: &Path, now: DateTime<Utc>) -> Result<(), StoreError> {
    folder::prepare(copy).map_err(|error| StoreError::Folder(copy.to_owned(), error))?;
    back_up(folder, &copy.join(DATABASE), now).map(drop)
}
