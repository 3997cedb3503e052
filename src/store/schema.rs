//! The schema: `tables.sql` makes it, and its number is in the database. A database of another number is refused.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::OpenFlags;
use rusqlite::config::DbConfig;

use super::corruption;
use super::error::StoreError;
#[cfg(feature = "postgres")]
use super::nodes;
use super::sql::Connection;
#[cfg(feature = "postgres")]
use super::sql::translation;
use super::tables::feed;

/// The database's name in its folder.
pub(super) const DATABASE: &str = "resyncd.db";

/// How long a connection waits for another process's lock.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How many prepared statements a connection keeps: more than the program has, so that none is prepared twice.
pub(super) const STATEMENTS: usize = 256;

/// In how many bytes a text of the schema may differ from what it was to be restored.
const FLIPPED: usize = 4;

pub(super) const TABLES: &str = include_str!("schema/tables.sql");

/// The number of the schema, stored as `PRAGMA user_version`: another one with each change of `tables.sql`.
const NUMBER: i64 = 67;

/// Opens SQLite's database; a new one gets its schema.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    make_private(path);
    let sqlite = rusqlite::Connection::open(path)?;
    configure(&sqlite)?;
    let connection = Connection::from(sqlite);
    // First of all: a database that is refused is not changed.
    let has_schema = check_number(&connection, path)?;
    if let Some(sqlite) = connection.sqlite() {
        // Only a new database takes it over: it is set before the first page is written.
        sqlite.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        sqlite.pragma_update(None, "journal_mode", "WAL")?;
        sqlite.pragma_update(None, "synchronous", "FULL")?;
        sqlite.pragma_update(None, "foreign_keys", true)?;
        sqlite.pragma_update(None, "cache_size", -16_384)?;
        // Reads the schema, so that damage to it is found here, and not later.
        sqlite.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |_| Ok(()))?;
        if has_schema {
            restore_texts(sqlite, path)?;
        }
        if corruption::is_checked_first(path) {
            corruption::check(&connection)?;
        }
    }
    if !has_schema {
        let made = connection.transaction()?;
        made.execute_batch(&format!("{TABLES} PRAGMA user_version = {NUMBER};"))?;
        feed::begin(&made)?;
        made.commit()?;
    }
    Ok(connection)
}

/// Prepares a connection to SQLite for the use of the store.
pub(super) fn configure(connection: &rusqlite::Connection) -> Result<(), rusqlite::Error> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Makes plans independent of bound values. Otherwise SQLite, as it is built with `SQLITE_ENABLE_STAT4`, prepares a cached
    // statement anew whenever another value is bound, although there are no statistics that a value could be looked up in.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Creates the file, unless it exists, readable by its owner only: it will hold the secrets that are shared with hubs. SQLite
/// gives the files beside it the same mode.
fn make_private(path: &Path) {
    // SQLite reports the error when it opens the file.
    let _ = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
}

/// Whether a database has a schema. One of another number is an error.
pub(super) fn check_number(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    match number(connection)? {
        0 => Ok(false),
        NUMBER => Ok(true),
        found => Err(StoreError::OtherSchema {
            path: path.to_owned(),
            found,
            known: NUMBER,
        }),
    }
}

/// The texts of the schema, by kind and name of what they make.
fn texts(
    connection: &rusqlite::Connection,
) -> Result<BTreeMap<(String, String), Option<String>>, StoreError> {
    let mut statement = connection.prepare("SELECT type, name, sql FROM sqlite_schema")?;
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Writes texts of the schema anew that differ from those of `tables.sql` by single bytes. A flipped bit in the name of a column is no
/// damage for SQLite, but no query that names the column works then.
fn restore_texts(connection: &rusqlite::Connection, path: &Path) -> Result<(), StoreError> {
    let sound = rusqlite::Connection::open_in_memory()?;
    sound.execute_batch(TABLES)?;
    let (expected, found) = (texts(&sound)?, texts(connection)?);
    let mut damaged = Vec::new();
    for (object, text) in &expected {
        let (Some(text), Some(Some(known))) = (text, found.get(object)) else {
            continue;
        };
        let bytes = text.bytes().zip(known.bytes());
        let differing = bytes.filter(|(one, other)| one != other).count();
        if text.len() == known.len() && (1..=FLIPPED).contains(&differing) {
            damaged.push((object, text));
        }
    }
    if damaged.is_empty() {
        return Ok(());
    }
    connection.pragma_update(None, "writable_schema", true)?;
    for ((kind, name), text) in damaged {
        connection.execute(
            "UPDATE sqlite_schema SET sql = ?1 WHERE type = ?2 AND name = ?3",
            [text, kind, name],
        )?;
        let database = path.display();
        tracing::warn!(code = "schema-restored", %database, name, "damage to the schema of the database repaired");
    }
    // Has the schema read again.
    connection.pragma_update(None, "writable_schema", "RESET")?;
    Ok(())
}

/// 0: there is no schema.
fn number(connection: &Connection) -> Result<i64, StoreError> {
    if let Some(sqlite) = connection.sqlite() {
        return Ok(sqlite.pragma_query_value(None, "user_version", |row| row.get(0))?);
    }
    let has_schema = "SELECT to_regclass('schema_number') IS NOT NULL";
    if !connection.query_row(has_schema, [], |row| row.get(0))? {
        return Ok(0);
    }
    Ok(connection.query_row("SELECT number FROM schema_number", [], |row| row.get(0))?)
}

/// The number of empty pages that can be given back to the file system.
pub(super) fn free_pages(connection: &Connection) -> Result<i64, StoreError> {
    let Some(connection) = connection.sqlite() else {
        return Ok(0);
    };
    let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    let all: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    // Fewer are needed again soon.
    Ok(if free > all / 5 { free } else { 0 })
}

/// Gives empty pages back to the file system, as many at most.
pub(super) fn free(connection: &Connection, pages: u32) -> Result<(), StoreError> {
    let Some(connection) = connection.sqlite() else {
        return Ok(());
    };
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    // Each step frees one page.
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Writes without changing anything.
pub(super) fn rewrite_number(connection: &Connection) -> Result<(), StoreError> {
    match connection.sqlite() {
        Some(sqlite) => Ok(sqlite.pragma_update(None, "user_version", number(connection)?)?),
        None => Ok(connection.execute_batch("UPDATE schema_number SET number = number")?),
    }
}

/// A connection to SQLite's database that only reads.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = rusqlite::Connection::open_with_flags(path, flags)?;
    configure(&connection)?;
    Ok(connection.into())
}

/// Gives a new database on a server its schema. `path`: the database, for messages.
#[cfg(feature = "postgres")]
pub(super) fn make_on_server(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    /// Two processes must not make it at the same time: this number is of the lock for that.
    const LOCK: i64 = 0x7265_7379_6e63_6400;
    let transaction = connection.transaction()?;
    transaction.execute_batch(&format!("SELECT pg_advisory_xact_lock({LOCK})"))?;
    if !check_number(&transaction, path)? {
        transaction.execute_batch(&translation::schema(TABLES))?;
        transaction.execute_batch(nodes::TABLES)?;
        transaction.execute_batch(&format!(
            "CREATE TABLE schema_number (number BIGINT NOT NULL); INSERT INTO schema_number VALUES ({NUMBER})"
        ))?;
        feed::begin(&transaction)?;
    }
    Ok(transaction.commit()?)
}
