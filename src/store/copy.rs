//! A copy of the database, in a file of its own, also while another process writes to it.
//!
//! Invariants:
//! - A copy shows one moment, and it is complete and on disk when it has its name.
//! - A copy is another feed. Once it is used, the numbers that the database has given meanwhile are given again: a reader that has
//!   one of them must get an error, and not the entries of another change.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ffi};

use super::error::StoreError;
use super::tables::feed;

/// All pages at once: then the copy shows one moment, whatever is written meanwhile.
const ALL_PAGES: i32 = -1;

/// Copies the database of a connection into a new file that only its owner may read. Returns its length in bytes.
///
/// # Errors
/// [`StoreError::Folder`] if there is such a file already, or it can't be written.
pub(super) fn copy_into(
    database: &Connection,
    file: &Path,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    let failed = |error| StoreError::Folder(file.to_owned(), error);
    if file.try_exists().map_err(failed)? {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let unfinished = unfinished(file);
    let copied = write(database, &unfinished, now).and_then(|length| {
        // Does not replace a file that was created meanwhile.
        std::fs::hard_link(&unfinished, file).map_err(failed)?;
        Ok(length)
    });
    // A copy that failed is unusable, and one that has succeeded has its own name now.
    let removed = std::fs::remove_file(&unfinished);
    let length = copied?;
    removed.map_err(failed)?;
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new(".")));
    folder
        .and_then(|folder| folder.sync_all())
        .map_err(failed)?;
    Ok(length)
}

/// The name of a copy until it is complete.
fn unfinished(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    file.with_file_name(name)
}

fn write(database: &Connection, file: &Path, now: DateTime<Utc>) -> Result<u64, StoreError> {
    let failed = |error| StoreError::Folder(file.to_owned(), error);
    let created = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)
        .map_err(failed)?;
    let mut copy = Connection::open(file)?;
    let step = Backup::new(database, &mut copy)?.step(ALL_PAGES)?;
    if step != StepResult::Done {
        // Another process has locked the database for longer than connections wait.
        let busy = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None);
        return Err(busy.into());
    }
    // No file beside the copy belongs to it.
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    let copy = copy.into();
    feed::begin_another(&copy, now)?;
    copy.close()?;
    created.sync_all().map_err(failed)?;
    Ok(created.metadata().map_err(failed)?.len())
}
