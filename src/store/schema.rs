//! The schema. A new database gets that of `tables.sql`; one of an earlier version is migrated to it.

mod migrations;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::copy::copy_into;
use super::corruption;
use super::error::StoreError;
use crate::clock;

pub(super) use self::migrations::STEPS;

/// The database's name in its folder.
pub(super) const DATABASE: &str = "resyncd.db";

/// How long a connection waits for another process's lock.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How many prepared statements a connection keeps: more than the program has, so that none is prepared twice.
pub(super) const STATEMENTS: usize = 256;

/// The schema as it is after all migrations.
const TABLES: &str = include_str!("schema/tables.sql");

/// Opens the database and brings its schema up to date.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    make_private(path);
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Only a new database takes it over: it is set before the first page is written.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    keep_plans(&connection)?;
    // Reads the schema, so that damage to it is found here, and not later.
    connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let taken = check_version(&connection, path)?;
    if corruption::is_checked_first(path) {
        corruption::check(&connection)?;
    }
    if (1..STEPS.len()).contains(&taken) {
        retain_copy(&connection, path, taken)?;
    }
    if taken < STEPS.len() {
        // After each change of a table SQLite reads the whole schema again: all migrations take eight times as long as the tables.
        let missing = match taken {
            0 => TABLES.to_owned(),
            _ => STEPS[taken..].concat(),
        };
        // All at once: the copy is of the version that a failure leaves.
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {missing} PRAGMA user_version = {}; COMMIT;",
            STEPS.len()
        ))?;
    }
    Ok(connection)
}

/// Copies a database beside itself before it is migrated, because the version that wrote it can't read it afterwards. Removes the
/// copies of earlier migrations, and of one that has failed since.
fn retain_copy(connection: &Connection, path: &Path, taken: usize) -> Result<(), StoreError> {
    for earlier in (1..STEPS.len()).map(|taken| path.with_file_name(copy_name(taken))) {
        match std::fs::remove_file(&earlier) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::Folder(earlier, error));
            }
            _ => {}
        }
    }
    let copy = path.with_file_name(copy_name(taken));
    let length = copy_into(connection, &copy, clock::now().wall)?;
    tracing::warn!(code = "database-migrated", database = %path.display(), copy = %copy.display(), length,
        "migrating the database; the copy is for going back to the earlier version");
    Ok(())
}

/// The name of the copy of a database that has taken so many steps.
fn copy_name(taken: usize) -> String {
    format!("resyncd-before-upgrade-{taken}.db")
}

/// Makes plans independent of bound values. Otherwise SQLite, as it is built with `SQLITE_ENABLE_STAT4`, prepares a cached
/// statement anew whenever another value is bound, although there are no statistics that a value could be looked up in.
pub(super) fn keep_plans(connection: &Connection) -> Result<(), rusqlite::Error> {
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

/// The number of steps that a database has taken; more than are known is an error.
pub(super) fn check_version(connection: &Connection, path: &Path) -> Result<usize, StoreError> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = STEPS.len();
    let taken = usize::try_from(found).ok().filter(|&taken| taken <= known);
    taken.ok_or_else(|| StoreError::NewerSchema {
        path: path.to_owned(),
        found,
        known: i64::try_from(known).unwrap_or(i64::MAX),
    })
}

/// The number of empty pages that can be given back to the file system: none in a database that an earlier version has created.
pub(super) fn free_pages(connection: &Connection) -> Result<i64, StoreError> {
    let mode: i64 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    if mode == 0 {
        return Ok(0);
    }
    let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    let all: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    // Fewer are needed again soon.
    Ok(if free > all / 5 { free } else { 0 })
}

/// Gives empty pages back to the file system, as many at most.
pub(super) fn free(connection: &Connection, pages: u32) -> Result<(), StoreError> {
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    // Each step frees one page.
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Writes without changing anything.
pub(super) fn rewrite_version(connection: &Connection) -> Result<(), StoreError> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(connection.pragma_update(None, "user_version", version)?)
}
