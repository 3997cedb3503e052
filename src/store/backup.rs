//! Copies of the database of a folder, whether or not a daemon works on it: a backup, or a state to try something with.

use std::path::Path;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OpenFlags};

use super::copy::copy_into;
use super::error::StoreError;
use super::folder;
use super::schema::{self, BUSY_TIMEOUT, DATABASE};

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
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(&path, flags)?;
    database.busy_timeout(BUSY_TIMEOUT)?;
    schema::check_number(&database, &path)?;
    copy_into(&database, file, now).map(Some)
}

/// Makes a folder the state of a Destination that knows what that of another folder knows; see [`back_up`]. Both may be in use.
pub fn copy_state(folder: &Path, copy: &Path, now: DateTime<Utc>) -> Result<(), StoreError> {
    folder::prepare(copy).map_err(|error| StoreError::Folder(copy.to_owned(), error))?;
    back_up(folder, &copy.join(DATABASE), now).map(drop)
}
