//! Copies of the database of a folder, whether or not a daemon works on it: a backup, or a state to try something with. A backup that
//! becomes the database of a folder again.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use resyncd_mirror::FileLock;

use super::copy::copy_into;
use super::corruption::{self, Damage};
use super::error::StoreError;
use super::folder;
use super::nodes;
use super::place::StatePlace;
use super::schema::{self, DATABASE};
use super::sql::{Connection, Transaction};
use super::tables::{feed, followed_source, mirror};
use super::transfer::copy_rows;

/// Copies the database of a folder into a new file, also while a daemon writes to it. Whoever uses the copy as its database has
/// another feed. Returns the length of the copy in bytes, `None` if the folder has no database.
///
/// # Errors
/// [`StoreError::Folder`] if there is such a file already, or it can't be written; [`StoreError::OtherSchema`]; an error of the
/// database.
pub fn back_up(
    place: &StatePlace,
    file: &Path,
    now: DateTime<Utc>,
) -> Result<Option<u64>, StoreError> {
    let Some(database) = place.open_to_read()? else {
        return Ok(None);
    };
    let sqlite = database.sqlite().ok_or(StoreError::OnServer)?;
    copy_into(sqlite, file, now).map(Some)
}

/// Makes a copy of a backup the database of a folder. The former database is set aside: its new path, `None` if there was none.
///
/// # Errors
/// [`StoreError::Locked`] if a process works on the folder; [`StoreError::NoBackup`], [`StoreError::OtherSchema`]; an error of the system.
/// Then the database is the former one.
pub fn restore(
    place: &StatePlace,
    backup: &Path,
    now: DateTime<Utc>,
) -> Result<Option<PathBuf>, StoreError> {
    if place.is_on_server() {
        return Err(StoreError::OnServer);
    }
    let folder = &place.folder;
    let failed = |error| StoreError::Folder(folder.clone(), error);
    let unusable = |reason: String| StoreError::NoBackup(backup.to_owned(), reason);
    let sound = schema::open_to_read(backup)
        .map_err(StoreError::from)
        .and_then(|database| {
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
    let sqlite = database.sqlite().ok_or(StoreError::OnServer)?;
    copy_into(sqlite, &copy, now)?;
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
pub(super) fn known_mirrors(
    place: &StatePlace,
) -> Result<HashMap<String, KnownMirror>, StoreError> {
    let Some(database) = place.open_to_read()? else {
        return Ok(HashMap::new());
    };
    let known = mirror::all(&database)?.into_iter().map(|(source, id)| {
        let location = followed_source::get(&database, &source)?;
        let folder = location.and_then(|location| location.mirror);
        Ok((source, KnownMirror { id, folder }))
    });
    known.collect()
}

/// Makes a folder the state of a Destination that knows what another state knows; see [`back_up`]. Both may be in use.
///
/// # Errors
/// As of [`back_up`].
pub fn copy_state(state: &StatePlace, folder: &Path, now: DateTime<Utc>) -> Result<(), StoreError> {
    folder::prepare(folder).map_err(|error| StoreError::Folder(folder.to_owned(), error))?;
    let copy = folder.join(DATABASE);
    if !state.is_on_server() {
        return back_up(state, &copy, now).map(drop);
    }
    if let Some(database) = state.open_to_read()? {
        let copy = schema::open(&copy)?;
        let writing = copy.transaction()?;
        database.in_snapshot(|database| copy_rows(database, &writing))?;
        writing.commit()?;
    }
    Ok(())
}

/// Moves a state into a database that has none yet: the feed and its numbers stay the same. Returns how many rows it has; `None`: there is
/// no state.
///
/// # Errors
/// [`StoreError::Locked`] if a process works on one of them; [`StoreError::HasState`] if the other database is used; an error of one of
/// the databases. Then the other one is not changed.
pub fn move_state(from: &StatePlace, to: &StatePlace) -> Result<Option<u64>, StoreError> {
    let failed = |error| StoreError::Folder(to.folder.clone(), error);
    folder::prepare(&to.folder).map_err(failed)?;
    let _locks = lock_both(from, to)?;
    if !from.exists() {
        return Ok(None);
    }
    let (database, target) = (hold(from)?, hold(to)?);
    let is_used = "SELECT EXISTS (SELECT 1 FROM followed_source) OR EXISTS (SELECT 1 FROM source_set) OR EXISTS (SELECT 1 FROM feed)";
    if target.query_row(is_used, [], |row| row.get(0))? {
        return Err(StoreError::HasState(to.shown()));
    }
    // As long as it lasts no other node can begin to write.
    let (reading, writing) = (database.transaction()?, target.transaction()?);
    let rows = copy_rows(&reading, &writing)?;
    release(writing)?;
    release(reading)?;
    Ok(Some(rows))
}

/// Makes the feed of a state another one: the database is one of an earlier time, and gives numbers again that readers have seen. Returns
/// the id of the feed.
///
/// # Errors
/// [`StoreError::Locked`] or [`StoreError::Held`] if a process works on the state; an error of the database.
pub fn begin_another_feed(place: &StatePlace, now: DateTime<Utc>) -> Result<String, StoreError> {
    let _lock = folder::lock(&place.folder)?;
    let database = hold(place)?;
    let transaction = database.transaction()?;
    feed::begin_another(&transaction, now)?;
    let id = feed::id(&transaction)?;
    release(transaction)?;
    Ok(id)
}

/// Commits, and lets other nodes work on the database again.
fn release(transaction: Transaction<'_>) -> Result<(), StoreError> {
    if let Some(fence) = transaction.fence() {
        nodes::leave(&transaction, fence)?;
    }
    Ok(transaction.commit()?)
}

/// A connection to the database of a place, on which no other node works meanwhile.
fn hold(place: &StatePlace) -> Result<Connection, StoreError> {
    let connection = place.open()?;
    if let Some(node) = place.node()? {
        connection.check_fence(node.join(&connection)?.fence);
    }
    Ok(connection)
}

/// The locks of both, which may have one folder.
fn lock_both(from: &StatePlace, to: &StatePlace) -> Result<Vec<FileLock>, StoreError> {
    let mut locks = vec![folder::lock(&to.folder)?];
    let is_same = from.folder.canonicalize().ok() == to.folder.canonicalize().ok();
    if !is_same && from.folder.exists() {
        locks.push(folder::lock(&from.folder)?);
    }
    Ok(locks)
}
