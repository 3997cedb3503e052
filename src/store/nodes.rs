//! The processes that work on one database on a server: its nodes.
//!
//! Invariants:
//! - A node has a fence, a number that no other process ever had. Each transaction that writes checks that the node has it still, and no two
//!   of them run at once: a process that was paused, or cut off, commits nothing after another one has found it dead, and the feed is in the
//!   order of its numbers.
//! - A node is dead once it has not renewed its lease for [`LEASE`], while another one has. What it held is then free, and in doubt. After the
//!   server was away all are late, and none is dead.
//! - Only the clock of the server counts.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use super::error::StoreError;
use super::sql::{Connection, OptionalExtension, Transaction, params};
use super::wake::Wake;
use crate::random::hex_name;

/// After this time without a renewal a node is dead.
const LEASE: Duration = Duration::from_secs(20);
/// How often a node renews its lease, and looks for what is free.
pub const RENEWAL: Duration = Duration::from_secs(5);
/// For how long wakes stay for the others: longer than a node lives without a renewal.
const WAKES: Duration = Duration::from_secs(60);
/// After this time a Source that no node has taken is in no configuration.
const UNWANTED: Duration = Duration::from_secs(24 * 3600);
/// After this time a node that has ended is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(7 * 24 * 3600);
/// The file with the id of a state folder: the process before this one in the same folder has ended, and is not waited for. The copy of a
/// machine has the same, but another name.
const ID: &str = "resyncd.node";
const ID_BYTES: usize = 8;

/// The tables of nodes. A database of SQLite has none: a lock of its folder does the same.
#[cfg(feature = "postgres")]
pub(super) const TABLES: &str = "
    CREATE TABLE node (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        fence BIGINT NOT NULL,
        -- Since when it works, or has ended, and until when it works at least; 0: it has ended.
        since BIGINT NOT NULL,
        until BIGINT NOT NULL,
        -- Since when it has renewed its lease in time.
        sound BIGINT NOT NULL,
        -- Whether no other one may work meanwhile.
        is_alone BOOLEAN NOT NULL,
        -- Whether it is to hold nothing.
        drains BOOLEAN NOT NULL
    );
    CREATE TABLE held_source (
        -- Empty: what belongs to no Source.
        source TEXT COLLATE \"C\" PRIMARY KEY,
        -- Its node; NULL: it is free.
        node TEXT REFERENCES node (id),
        since BIGINT NOT NULL,
        -- Whether the node that held it last has died.
        is_in_doubt BOOLEAN NOT NULL DEFAULT FALSE,
        -- The name of the node that a person wants it to be at.
        wanted TEXT
    );
    CREATE TABLE node_wake (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        fence BIGINT NOT NULL,
        at BIGINT NOT NULL,
        wakes TEXT NOT NULL
    );
    CREATE TABLE node_request (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        -- NULL: it has read the request.
        node TEXT REFERENCES node (id),
        at BIGINT NOT NULL,
        request TEXT NOT NULL,
        answer TEXT
    );
";

/// The channel of the server that tells of wakes.
pub(super) const CHANNEL: &str = "resyncd";

/// The time of the server, in microseconds since 1970.
pub(super) const NOW: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";

/// Makes a transaction wait until no other one runs that writes. The number is of the schema of the tables.
pub(super) const TURN: &str =
    "SELECT pg_advisory_xact_lock(CAST(CAST('feed_number' AS regclass) AS oid)::bigint)";

/// What a transaction that writes begins with: a row if the node has its fence still, with whether there are others, and its number.
#[cfg(feature = "postgres")]
pub(super) const CHECK: &str =
    "SELECT EXISTS (SELECT 1 FROM node AS other WHERE other.fence <> node.fence AND other.until > 0),
            CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)
     FROM node WHERE fence = ?1";

/// A process that may work on a database.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Its name, with the id of its state folder.
    pub(super) id: String,
    pub(super) name: String,
    /// Whether no other one may work meanwhile.
    pub(super) is_alone: bool,
}

/// The place of a node among the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) fence: i64,
    /// The number of the last wake: what follows is news.
    pub(super) last_wake: i64,
    /// Whether no other one works.
    pub(super) is_first: bool,
}

impl Node {
    /// That of a state folder.
    pub(super) fn of(name: &str, folder: &Path, is_alone: bool) -> Result<Self, StoreError> {
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
            id: format!("{name} {id}"),
            name: name.to_owned(),
            is_alone,
        })
    }

    /// Begins to work on the database. What an earlier process with the same folder has held is free.
    ///
    /// # Errors
    /// [`StoreError::Held`] if another one works that must not meanwhile.
    pub(super) fn join(&self, sql: &Connection) -> Result<Place, StoreError> {
        let transaction = sql.transaction()?;
        transaction.execute_batch(TURN)?;
        // What must be alone needs no others that are only late.
        bury(
            &transaction,
            if self.is_alone { "TRUE" } else { "is_alone" },
        )?;
        let other = transaction
            .prepare_cached(&format!(
                "SELECT name, is_alone FROM node WHERE id <> ?1 AND until >= {NOW} ORDER BY is_alone DESC, since LIMIT 1"
            ))?
            .query_row([&self.id], |row| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?)))
            .optional()?;
        let is_first = other.is_none();
        if let Some((name, is_alone)) = other
            && (is_alone || self.is_alone)
        {
            return Err(StoreError::Held(name));
        }
        transaction.execute(&free("node = ?1"), [&self.id])?;
        let fence = next_fence(&transaction)?;
        transaction.execute(
            &format!(
                "INSERT INTO node (id, name, fence, since, until, sound, is_alone, drains)
                 VALUES (?1, ?2, ?3, {NOW}, {NOW} + {lease}, {NOW}, ?4, FALSE)
                 ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, since = excluded.since, until = excluded.until, sound = excluded.sound,
                     is_alone = excluded.is_alone, drains = FALSE",
                lease = micros(LEASE)
            ),
            params![self.id, self.name, fence, self.is_alone],
        )?;
        let last_wake = "SELECT COALESCE(MAX(id), 0) FROM node_wake";
        let last_wake = transaction.query_row(last_wake, [], |row| row.get(0))?;
        transaction.commit()?;
        Ok(Place {
            fence,
            last_wake,
            is_first,
        })
    }
}

/// The statement that frees what a node has held that has not ended in order.
fn free(whose: &str) -> String {
    format!("UPDATE held_source SET node = NULL, since = {NOW}, is_in_doubt = TRUE WHERE {whose}")
}

fn next_fence(sql: &Connection) -> Result<i64, rusqlite::Error> {
    let next = "SELECT COALESCE(MAX(fence), 0) + 1 FROM node";
    sql.query_row(next, [], |row| row.get(0))
}

/// Takes the fences of the dead, and frees what they held, if this node itself has renewed its lease for as long. Returns their names.
pub(super) fn bury_dead(sql: &Connection, fence: i64) -> Result<Vec<String>, rusqlite::Error> {
    let lease = micros(LEASE);
    bury(
        sql,
        &format!(
            "EXISTS (SELECT 1 FROM node AS own WHERE own.fence = {fence} AND own.until >= {NOW} AND own.sound < {NOW} - {lease})"
        ),
    )
}

/// The same, if that is so.
fn bury(sql: &Connection, condition: &str) -> Result<Vec<String>, rusqlite::Error> {
    let dead: Vec<(String, String)> = sql
        .prepare_cached(&format!(
            "SELECT id, name FROM node WHERE until > 0 AND until < {NOW} AND {condition}"
        ))?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (id, _) in &dead {
        sql.execute(&free("node = ?1"), [id])?;
        let fence = next_fence(sql)?;
        let ended = "UPDATE node SET fence = ?2, since = until, until = 0 WHERE id = ?1";
        sql.execute(ended, params![id, fence])?;
    }
    Ok(dead.into_iter().map(|(_, name)| name).collect())
}

/// Renews the lease of a node; `false`: it has been found dead.
pub(super) fn renew(sql: &Connection, fence: i64) -> Result<bool, rusqlite::Error> {
    let lease = micros(LEASE);
    let renewed = sql.execute(
        &format!(
            "UPDATE node SET sound = CASE WHEN until < {NOW} THEN {NOW} ELSE sound END, until = {NOW} + {lease}
             WHERE fence = ?1 AND until > 0"
        ),
        [fence],
    )?;
    Ok(renewed > 0)
}

/// Ends the work of a node in order: what it held is free at once. Returns whether nothing is held, or in doubt. In a transaction.
pub(super) fn leave(sql: &Connection, fence: i64) -> Result<bool, rusqlite::Error> {
    sql.execute(
        &format!(
            "UPDATE held_source SET node = NULL, since = {NOW} WHERE node = (SELECT id FROM node WHERE fence = ?1)"
        ),
        [fence],
    )?;
    sql.execute(
        &format!("UPDATE node SET since = {NOW}, until = 0 WHERE fence = ?1"),
        [fence],
    )?;
    tell(sql, fence, &[Wake::Nodes])?;
    let used = "SELECT 1 FROM held_source WHERE node IS NOT NULL OR is_in_doubt LIMIT 1";
    Ok(!sql.prepare_cached(used)?.exists([])?)
}

/// Sends wakes to the other nodes, with the commit. In a transaction that has its [`TURN`].
pub(super) fn tell(sql: &Connection, fence: i64, wakes: &[Wake]) -> Result<(), rusqlite::Error> {
    let wakes = serde_json::to_string(wakes)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    sql.prepare_cached(&format!(
        "WITH told AS (INSERT INTO node_wake (fence, at, wakes) VALUES (?1, {NOW}, ?2) RETURNING 1)
         SELECT pg_notify('{CHANNEL}', '') FROM told"
    ))?
    .query_row(params![fence, wakes], |_| Ok(()))
}

/// The wakes that other nodes have sent since that number, which becomes that of the last one.
pub(super) fn wakes_since(
    sql: &Connection,
    fence: i64,
    last: &mut i64,
) -> Result<Vec<Wake>, rusqlite::Error> {
    let rows: Vec<(i64, i64, String)> = sql
        .prepare_cached("SELECT id, fence, wakes FROM node_wake WHERE id > ?1 ORDER BY id")?
        .query_map([*last], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    let mut wakes = Vec::new();
    for (id, of, text) in rows {
        *last = id;
        if of != fence {
            // Another version of the program may send what this one does not know.
            wakes.extend(serde_json::from_str::<Vec<Wake>>(&text).unwrap_or_default());
        }
    }
    Ok(wakes)
}

/// Removes what all have read, or had the time for.
pub(super) fn trim(sql: &Connection) -> Result<(), rusqlite::Error> {
    for (old, time) in [
        ("node_wake WHERE at", WAKES),
        ("node_request WHERE at", 10 * WAKES),
        ("held_source WHERE node IS NULL AND since", UNWANTED),
        // The last fence was had by no other process.
        (
            "node WHERE until = 0 AND fence < (SELECT MAX(fence) FROM node) AND since",
            FORGOTTEN,
        ),
    ] {
        let time = micros(time);
        sql.execute(&format!("DELETE FROM {old} < {NOW} - {time}"), [])?;
    }
    Ok(())
}

/// A node, as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNode {
    /// Its name.
    pub name: String,
    /// Whether it works on the database.
    pub works: bool,
    /// Whether it is to hold nothing.
    pub drains: bool,
    /// For how long it does, or has not been seen.
    pub age: Duration,
    /// How many Sources it holds.
    pub sources: u64,
    /// Whether it does what belongs to no Source.
    pub leads: bool,
}

/// The nodes that work on a database, or have.
pub(super) fn nodes(sql: &Connection) -> Result<Vec<KnownNode>, rusqlite::Error> {
    sql.prepare_cached(&format!(
        "SELECT name, until >= {NOW}, drains, {NOW} - since,
                (SELECT COUNT(*) FROM held_source WHERE node = node.id AND source <> ''),
                EXISTS (SELECT 1 FROM held_source WHERE node = node.id AND source = '')
         FROM node ORDER BY name, id"
    ))?
    .query_map([], |row| {
        let age: i64 = row.get(3)?;
        let sources: i64 = row.get(4)?;
        Ok(KnownNode {
            name: row.get(0)?,
            works: row.get(1)?,
            drains: row.get(2)?,
            age: Duration::from_micros(age.try_into().unwrap_or_default()),
            sources: sources.try_into().unwrap_or_default(),
            leads: row.get(5)?,
        })
    })?
    .collect()
}

/// How far a Source has come that is to be held by another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// That node holds it.
    Done,
    /// It does not yet.
    Waits,
    /// It has not taken it.
    Refused,
}

/// How far a Source has come that is to be held by the node of that name.
pub(super) fn moving(
    sql: &Connection,
    source: &str,
    name: &str,
) -> Result<Moving, rusqlite::Error> {
    let row: Option<(Option<String>, Option<String>)> = sql
        .prepare_cached(
            "SELECT node.name, wanted FROM held_source LEFT JOIN node ON node.id = node WHERE source = ?1",
        )?
        .query_row([source], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match row {
        Some((Some(holder), _)) if holder == name => Moving::Done,
        Some((_, Some(wanted))) if wanted == name => Moving::Waits,
        _ => Moving::Refused,
    })
}

/// Whether something is free, or a node late.
pub(super) fn has_free(sql: &Connection) -> Result<bool, rusqlite::Error> {
    sql.prepare_cached(&format!(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM held_source WHERE node IS NULL) OR EXISTS (SELECT 1 FROM node WHERE until > 0 AND until < {NOW})"
    ))?
    .exists([])
}

/// Begins a transaction of a process that is no node.
fn turn(sql: &Connection) -> Result<Transaction<'_>, rusqlite::Error> {
    let transaction = sql.transaction()?;
    transaction.execute_batch(TURN)?;
    Ok(transaction)
}

/// The wake of a process that is no node.
const NOBODY: i64 = 0;

/// Has a Source held by the node of that name as soon as it can.
///
/// # Errors
/// [`StoreError::UnknownNode`], [`StoreError::NotHeld`], or an error of the database.
pub(super) fn move_source(sql: &Connection, source: &str, name: &str) -> Result<(), StoreError> {
    let transaction = turn(sql)?;
    if !usable(&transaction)?.iter().any(|known| known == name) {
        return Err(StoreError::UnknownNode(name.to_owned()));
    }
    let wanted = "UPDATE held_source SET wanted = ?2 WHERE source = ?1 AND source <> ''";
    if transaction.execute(wanted, [source, name])? == 0 {
        return Err(StoreError::NotHeld(source.to_owned()));
    }
    tell(&transaction, NOBODY, &[Wake::Nodes])?;
    Ok(transaction.commit()?)
}

/// Has a node hold nothing, or its share again.
///
/// # Errors
/// [`StoreError::UnknownNode`] if there is no such node, or no other one that could hold what it does; an error of the database.
pub(super) fn drain(sql: &Connection, name: &str, drains: bool) -> Result<(), StoreError> {
    let transaction = turn(sql)?;
    let others = usable(&transaction)?;
    if drains && !others.iter().any(|other| other != name) {
        return Err(StoreError::NoOtherNode(name.to_owned()));
    }
    let changed = format!("UPDATE node SET drains = ?2 WHERE name = ?1 AND until >= {NOW}");
    if transaction.execute(&changed, params![name, drains])? == 0 {
        return Err(StoreError::UnknownNode(name.to_owned()));
    }
    tell(&transaction, NOBODY, &[Wake::Nodes])?;
    Ok(transaction.commit()?)
}

/// The names of the nodes that may hold something.
fn usable(sql: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    sql.prepare_cached(&format!(
        "SELECT name FROM node WHERE until >= {NOW} AND NOT drains"
    ))?
    .query_map([], |row| row.get(0))?
    .collect()
}

fn micros(duration: Duration) -> u128 {
    duration.as_micros()
}
