//! The change feed: what was applied, in order, each with a number that never comes again.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, params};

use super::writer::Tx;
use super::{SetId, Store, StoreError, Wake, row};
use crate::protocol::{ChangeKind, ResourceUri, SourceTime};

/// What told of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A change notification.
    Notification,
    /// A Change List.
    ChangeList,
    /// A Change Dump.
    ChangeDump,
    /// A Resource List.
    ResourceList,
    /// A Resource Dump.
    ResourceDump,
    /// An audit that mends.
    Audit,
}

impl Origin {
    /// Its stable name.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Notification => "notification",
            Self::ChangeList => "change-list",
            Self::ChangeDump => "change-dump",
            Self::ResourceList => "resource-list",
            Self::ResourceDump => "resource-dump",
            Self::Audit => "audit",
        }
    }

    /// Whether it tells what there is, and not what happened.
    pub(super) fn is_listing(self) -> bool {
        matches!(self, Self::ResourceList | Self::ResourceDump)
    }

    pub(super) fn from_code(code: &str) -> Result<Self, StoreError> {
        let all = [
            Self::Notification,
            Self::ChangeList,
            Self::ChangeDump,
            Self::ResourceList,
            Self::ResourceDump,
            Self::Audit,
        ];
        all.into_iter()
            .find(|origin| origin.code() == code)
            .ok_or(StoreError::BadRow("an origin"))
    }
}

/// A change that was applied.
#[derive(Clone, Debug)]
pub struct FeedEntry {
    /// Its number: it grows, and never comes again.
    pub seq: i64,
    /// When it was applied, on our clock.
    pub applied_at: DateTime<Utc>,
    /// The label of the Source.
    pub source: String,
    /// The Capability List of the set that told of it.
    pub set: String,
    /// The resource.
    pub uri: String,
    /// What happened: `created`, `updated` or `deleted`.
    pub change: String,
    /// The file, relative to the mirror.
    pub path: Option<String>,
    /// The length of the file, in bytes.
    pub length: Option<u64>,
    /// When it happened at the Source.
    pub changed_at: Option<SourceTime>,
    /// What told of it.
    pub origin: String,
}

impl Store {
    /// What was applied after a number of the feed, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn feed(
        self: &Arc<Self>,
        since: i64,
        limit: usize,
    ) -> Result<Vec<FeedEntry>, StoreError> {
        self.read(move |sql| {
            let mut query = sql.prepare_cached(
                "SELECT seq, applied_at, feed.source, capability_list, uri, change, path, length, changed_at, origin
                 FROM feed JOIN source_set ON source_set.id = feed.set_id WHERE seq > ?1 ORDER BY seq LIMIT ?2",
            )?;
            let mut rows = query.query(params![since, row::signed(limit as u64)])?;
            let mut entries = Vec::new();
            while let Some(found) = rows.next()? {
                entries.push(FeedEntry {
                    seq: found.get(0)?,
                    applied_at: row::datetime(found.get(1)?),
                    source: found.get(2)?,
                    set: found.get(3)?,
                    uri: found.get(4)?,
                    change: found.get(5)?,
                    path: found.get(6)?,
                    length: found.get::<_, Option<i64>>(7)?.map(row::unsigned),
                    changed_at: row::source_time(found.get(8)?),
                    origin: found.get(9)?,
                });
            }
            Ok(entries)
        })
        .await
    }
}

/// Numbers the feed of a new database so that none of its numbers was one of the database's that was set aside: whoever
/// follows the feed would take what comes for what it has. By the time in microseconds, for no line takes less.
pub(super) fn begin_anew(sql: &Connection, now: DateTime<Utc>) -> Result<(), StoreError> {
    sql.execute(
        "INSERT INTO sqlite_sequence (name, seq) VALUES ('feed', ?1)",
        [row::micros(now)],
    )?;
    Ok(())
}

/// A line of the feed in the making.
pub(super) struct NewEntry<'a> {
    pub(super) applied_at: DateTime<Utc>,
    pub(super) source: &'a str,
    pub(super) set: SetId,
    pub(super) uri: &'a ResourceUri,
    pub(super) change: ChangeKind,
    pub(super) path: Option<&'a str>,
    pub(super) length: Option<u64>,
    pub(super) changed_at: Option<SourceTime>,
    pub(super) origin: Origin,
}

pub(super) fn append(tx: &mut Tx<'_>, entry: &NewEntry<'_>) -> Result<(), StoreError> {
    tx.sql
        .prepare_cached(
            "INSERT INTO feed (applied_at, source, set_id, uri, change, path, length, changed_at, origin)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            row::micros(entry.applied_at),
            entry.source,
            entry.set.0,
            entry.uri.as_str(),
            entry.change.as_str(),
            entry.path,
            entry.length.map(row::signed),
            entry.changed_at.map(SourceTime::micros),
            entry.origin.code(),
        ])?;
    tx.wake(Wake::Feed(tx.sql.last_insert_rowid()));
    Ok(())
}
