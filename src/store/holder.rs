//! The node that works on a database on a server: one at a time, for as long as it renews that. Others wait until it ends, or has not renewed
//! it for [`LEASE`].
//!
//! Invariants:
//! - Each transaction that writes checks that its node is the holder still, and renews it: a process that was paused, or cut off, commits
//!   nothing after another node has taken its place.
//! - Only the clock of the server counts.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use super::error::StoreError;
use super::sql::{Connection, OptionalExtension, params};
use crate::random::hex_name;

/// After this time without a transaction of the holder another node takes its place.
const LEASE: Duration = Duration::from_secs(20);
/// After this time without a transaction the holder makes one.
pub(super) const RENEWAL: Duration = Duration::from_secs(5);
/// The file with the id of a state folder: the process before this one in the same folder has ended, and is not waited for. The copy of a
/// machine has the same, but another name.
const ID: &str = "resyncd.node";
const ID_BYTES: usize = 8;

/// The tables of nodes. A database of SQLite has none: a lock of its folder does the same.
#[cfg(feature = "postgres")]
pub(super) const TABLES: &str = "
    CREATE TABLE holder (
        id BIGINT PRIMARY KEY CHECK (id = 1),
        node TEXT NOT NULL,
        folder TEXT NOT NULL,
        fence BIGINT NOT NULL,
        since BIGINT NOT NULL,
        until BIGINT NOT NULL
    );
    CREATE TABLE node (
        folder TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        seen BIGINT NOT NULL
    );
";

/// The time of the server, in microseconds since 1970.
const NOW: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";

/// A process that may work on a database.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    /// The id of its state folder.
    folder: String,
}

impl Node {
    /// That of a state folder.
    pub(super) fn of(name: &str, folder: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::Folder(folder.to_owned(), error);
        let path = folder.join(ID);
        let mut id = match fs::read_to_string(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            found => found.unwrap_or_default(),
        };
        // A loss of power may have left it empty.
        if id.len() != 2 * ID_BYTES {
            id = hex_name(ID_BYTES).map_err(|error| failed(error.into()))?;
            fs::write(&path, &id).map_err(failed)?;
        }
        Ok(Self {
            name: name.to_owned(),
            folder: id,
        })
    }

    /// Makes the node the holder; what its transactions check.
    ///
    /// # Errors
    /// [`StoreError::Held`] if another one is.
    pub(super) fn take(&self, sql: &Connection) -> Result<i64, StoreError> {
        let lease = micros(LEASE);
        sql.execute(
            &format!(
                "INSERT INTO node (folder, name, seen) VALUES (?1, ?2, {NOW})
                 ON CONFLICT (folder) DO UPDATE SET name = excluded.name, seen = excluded.seen"
            ),
            params![self.folder, self.name],
        )?;
        let taken = sql
            .prepare_cached(&format!(
                "INSERT INTO holder (id, node, folder, fence, since, until) VALUES (1, ?1, ?2, 1, {NOW}, {NOW} + {lease})
                 ON CONFLICT (id) DO UPDATE SET node = excluded.node, folder = excluded.folder, fence = holder.fence + 1,
                     since = excluded.since, until = excluded.until
                 WHERE holder.until < {NOW} OR (holder.folder = excluded.folder AND holder.node = excluded.node) RETURNING fence"
            ))?
            .query_row(params![self.name, self.folder], |row| row.get(0))
            .optional()?;
        match taken {
            Some(fence) => Ok(fence),
            None => Err(StoreError::Held(sql.query_row(
                "SELECT node FROM holder",
                [],
                |row| row.get(0),
            )?)),
        }
    }
}

/// The statement that a transaction of the holder begins with: it changes a row if the node is the holder still.
#[cfg(feature = "postgres")]
pub(super) fn renewal() -> String {
    let lease = micros(LEASE);
    format!("UPDATE holder SET until = {NOW} + {lease} WHERE fence = ?1")
}

/// Lets another node be the holder at once. In a transaction, which checks that this one is.
pub(super) fn release(sql: &Connection) -> Result<(), rusqlite::Error> {
    sql.execute_batch("UPDATE holder SET until = 0")
}

/// A node, as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNode {
    /// Its name.
    pub name: String,
    /// Whether it works on the database.
    pub is_holder: bool,
    /// For how long it does, or has been waiting without a sign.
    pub age: Duration,
}

/// The nodes that have worked on a database, or wait to.
pub(super) fn nodes(sql: &Connection) -> Result<Vec<KnownNode>, rusqlite::Error> {
    sql.prepare_cached(&format!(
        "SELECT node.name, holder.folder IS NOT NULL AND holder.until >= {NOW} AS holds,
                {NOW} - COALESCE(CASE WHEN holder.until >= {NOW} THEN holder.since ELSE holder.until END, node.seen)
         FROM node LEFT JOIN holder ON holder.folder = node.folder ORDER BY node.name, node.folder"
    ))?
    .query_map([], |row| {
        let age: i64 = row.get(2)?;
        Ok(KnownNode {
            name: row.get(0)?,
            is_holder: row.get(1)?,
            age: Duration::from_micros(age.try_into().unwrap_or_default()),
        })
    })?
    .collect()
}

fn micros(duration: Duration) -> u128 {
    duration.as_micros()
}
