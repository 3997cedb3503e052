//! What the database knows of a Source's resources, next to what the Source says.

use std::path::Path;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OptionalExtension, params};
use url::Url;

use super::{AuditDb, open_to_read};
use crate::protocol::{Digest, ResourceUri, SourceTime};
use crate::store::{StoreError, row};

/// How many rows are copied in one transaction.
const ROWS: usize = 1000;

/// What the database says of a file now.
#[derive(Clone, Debug)]
pub struct KnownFile {
    /// Where it is, relative to the mirror.
    pub path: Option<String>,
    /// Its length, in bytes.
    pub length: Option<u64>,
    /// Its digests.
    pub hashes: Vec<Digest>,
    /// When it was last modified.
    pub lastmod: Option<SourceTime>,
    /// When that was applied, on our clock; `None`: never yet.
    pub applied_at: Option<DateTime<Utc>>,
    /// Whether it was deleted.
    pub deleted: bool,
    /// Whether a change of it is known and not applied yet.
    pub pending: bool,
}

/// The database of a daemon that may be running, to ask of single files.
pub struct KnownFiles {
    connection: Connection,
}

/// A resource as the database has it.
struct KnownRow {
    uri: String,
    path: Option<String>,
    length: Option<i64>,
    media_type: Option<String>,
    hashes: String,
    lastmod: Option<i64>,
    changed_at: Option<i64>,
    applied: bool,
    deleted: bool,
}

impl AuditDb {
    /// Copies what the database in a folder knows of a Source; `false`: there is none. `wants` tells which resources the
    /// configuration wants at all.
    ///
    /// # Errors
    /// [`StoreError`], also for a database that is newer than this program.
    pub fn take_known(
        &self,
        folder: &Path,
        source: &str,
        wants: impl Fn(&ResourceUri) -> bool,
    ) -> Result<bool, StoreError> {
        let Some(state) = open_to_read(folder)? else {
            return Ok(false);
        };
        let mut query = state.prepare(
            "SELECT uri, path, length, media_type, hashes, lastmod, changed_at, applied_at IS NOT NULL, deleted
             FROM resource WHERE source = ?1",
        )?;
        let mut rows = query.query_map([source], |found| {
            Ok(KnownRow {
                uri: found.get(0)?,
                path: found.get(1)?,
                length: found.get(2)?,
                media_type: found.get(3)?,
                hashes: found.get(4)?,
                lastmod: found.get(5)?,
                changed_at: found.get(6)?,
                applied: found.get(7)?,
                deleted: found.get(8)?,
            })
        })?;
        loop {
            let batch = rows
                .by_ref()
                .take(ROWS)
                .collect::<Result<Vec<KnownRow>, _>>()?;
            if batch.is_empty() {
                return Ok(true);
            }
            self.together(|sql| {
                let mut add = sql.prepare_cached(
                    "INSERT INTO known (uri, path, length, media_type, hashes, lastmod, changed_at, applied, deleted, wanted)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                )?;
                for row in batch {
                    let wanted = ResourceUri::parse(&row.uri).is_ok_and(|uri| wants(&uri));
                    add.execute(params![
                        row.uri,
                        row.path,
                        row.length,
                        row.media_type,
                        row.hashes,
                        row.lastmod,
                        row.changed_at,
                        row.applied,
                        row.deleted,
                        wanted,
                    ])?;
                }
                Ok(())
            })?;
        }
    }

    /// Lets what the database knows have its say: a resource's path is where the database has it, and a change that is
    /// newer than what the lists tell counts. `since`: the time of the oldest Resource List; `None`: none could be read.
    /// `made_path` gives a path to who has lost the plain one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn weigh_known(
        &self,
        since: Option<SourceTime>,
        made_path: impl Fn(&ResourceUri) -> String,
    ) -> Result<(), StoreError> {
        self.together(|sql| {
            let displaced = displaced(sql)?;
            for (id, uri) in displaced {
                let path = made_path(&row::resource_uri(&uri)?);
                sql.prepare_cached("UPDATE expected SET path = ?2 WHERE id = ?1")?
                    .execute(params![id, path])?;
            }
            sql.execute_batch(
                "UPDATE expected SET path = known.path FROM known WHERE known.uri = expected.uri AND known.path IS NOT NULL;
                 UPDATE expected SET present = NOT known.deleted, told_at = known.changed_at, changed_at = known.changed_at,
                     lastmod = known.lastmod, length = known.length, media_type = known.media_type, hashes = known.hashes
                 FROM known WHERE known.uri = expected.uri AND known.applied AND known.changed_at > expected.told_at;",
            )?;
            if let Some(since) = since {
                sql.execute(
                    "INSERT INTO expected (uri, set_number, document, present, told_at, changed_at, lastmod, length, media_type,
                                           hashes, path)
                     SELECT uri, 0, 0, 1, changed_at, changed_at, lastmod, length, media_type, hashes, path FROM known
                     WHERE applied AND NOT deleted AND wanted AND changed_at > ?1 AND path IS NOT NULL
                       AND NOT EXISTS (SELECT 1 FROM expected WHERE expected.uri = known.uri)",
                    [since.micros()],
                )?;
            }
            Ok(())
        })
    }
}

/// Resources that the database does not know, at paths that it has given to others. There are hardly ever any: two URIs
/// differ in their scheme alone.
fn displaced(sql: &Connection) -> Result<Vec<(i64, String)>, StoreError> {
    let mut query = sql.prepare(
        "SELECT id, uri FROM expected
         WHERE EXISTS (SELECT 1 FROM known WHERE known.path = expected.path AND known.uri <> expected.uri)
           AND NOT EXISTS (SELECT 1 FROM known WHERE known.uri = expected.uri AND known.path IS NOT NULL)",
    )?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.map(|row| Ok(row?)).collect()
}

impl KnownFiles {
    /// Opens the database in a folder; `None`: there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(folder: &Path) -> Result<Option<Self>, StoreError> {
        let connection = open_to_read(folder)?;
        Ok(connection.map(|connection| Self { connection }))
    }

    /// Whether a delivery waits to be read: nobody knows yet what it tells.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn has_deliveries(&self, source: &str) -> Result<bool, StoreError> {
        let mut query = self.connection.prepare_cached(
            "SELECT 1 FROM inbox JOIN channel ON channel.id = inbox.channel_id
             JOIN source_set ON source_set.id = channel.set_id WHERE source_set.source = ?1",
        )?;
        Ok(query.exists([source])?)
    }

    /// The time of the newest Resource List of a set that was read whole.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn listed_at(
        &self,
        source: &str,
        capability_list: &Url,
    ) -> Result<Option<SourceTime>, StoreError> {
        let mut query = self.connection.prepare_cached(
            "SELECT list_at FROM source_set WHERE source = ?1 AND capability_list = ?2",
        )?;
        let found: Option<Option<i64>> = query
            .query_row([source, capability_list.as_str()], |found| found.get(0))
            .optional()?;
        Ok(row::source_time(found.flatten()))
    }

    /// What is known of a resource, named by its URI or by its path.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn of(
        &self,
        source: &str,
        uri: Option<&str>,
        path: Option<&str>,
    ) -> Result<Option<KnownFile>, StoreError> {
        let columns = "SELECT path, length, hashes, lastmod, applied_at, deleted,
                 EXISTS (SELECT 1 FROM task WHERE task.resource_id = resource.id AND task.state = 'ready')
             FROM resource WHERE source = ?1 AND";
        let (condition, name) = match (uri, path) {
            (Some(uri), _) => ("uri = ?2", uri),
            (None, Some(path)) => ("path = ?2", path),
            (None, None) => return Ok(None),
        };
        let mut query = self
            .connection
            .prepare_cached(&format!("{columns} {condition}"))?;
        let found = query
            .query_row(params![source, name], |found| {
                Ok(KnownFile {
                    path: found.get(0)?,
                    length: found.get::<_, Option<i64>>(1)?.map(row::unsigned),
                    hashes: row::hashes(&found.get::<_, String>(2)?),
                    lastmod: row::source_time(found.get(3)?),
                    applied_at: found.get::<_, Option<i64>>(4)?.map(row::datetime),
                    deleted: found.get(5)?,
                    pending: found.get(6)?,
                })
            })
            .optional()?;
        Ok(found)
    }
}
