//! Tasks: what is to be fetched or removed, what came of it, and when to try again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::feed::Origin;
use super::links::links;
use super::versions::{ServedVersion, version};
use super::{ResourceId, SetId, Store, StoreError, Wake, row};
use crate::protocol::{ChangeKind, Digest, Link, ResourceUri, SourceTime};

/// Something to be done for one resource.
#[derive(Clone, Debug)]
pub struct Task {
    /// The resource.
    pub resource: ResourceId,
    /// Which task of the resource it is: a newer change raises it.
    pub version: i64,
    /// The label of the Source.
    pub source: String,
    /// The set that told of the change.
    pub set: SetId,
    /// The resource's URI.
    pub uri: ResourceUri,
    /// The host that it is fetched from first.
    pub authority: String,
    /// What happened.
    pub kind: ChangeKind,
    /// When it happened.
    pub changed_at: Option<SourceTime>,
    /// When the representation was last modified.
    pub lastmod: Option<SourceTime>,
    /// The length that the representation must have.
    pub length: Option<u64>,
    /// Its media type.
    pub media_type: Option<String>,
    /// The digests that it must have.
    pub hashes: Vec<Digest>,
    /// What it is related to.
    pub links: Vec<Link>,
    /// What told of it.
    pub origin: Origin,
    /// How often it was tried.
    pub attempts: u32,
    /// Where the file belongs, relative to the mirror.
    pub path: String,
    /// Whether the mirror has a file of it now.
    pub live: bool,
    /// The length of that file.
    pub live_length: Option<u64>,
    /// The digests of that file.
    pub live_hashes: Vec<Digest>,
    /// What the server told of the version that the file is.
    pub live_version: Option<ServedVersion>,
}

/// How many tasks of a Source wait in memory, over all its hosts.
const MOST_WAITING: usize = 4096;
/// How many of a host, however many hosts there are.
const FEWEST_A_HOST: usize = 8;

/// Tasks that were taken from the database before.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Those that are not concluded yet: they are not taken again.
    pub under_way: HashSet<ResourceId>,
    /// How many of them have not been started, for each host.
    pub waiting: HashMap<String, usize>,
}

pub(super) const COLUMNS: &str = "task.resource_id, task.version, task.source, task.set_id, resource.uri, task.authority, task.kind,
    task.changed_at, task.lastmod, task.length, task.media_type, task.hashes, task.origin, task.attempts, resource.path,
    resource.applied_at IS NOT NULL AND resource.deleted = 0, resource.length, resource.hashes, task.links,
    resource.served_by, resource.etag, resource.last_modified";

impl Store {
    /// Tasks of a Source that are due: for each host so many that at most `a_host` of them wait, fewer where there are many
    /// hosts, none of those under way. Also answers when the next one becomes due that is not yet, if nothing was left out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn due_tasks(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        a_host: usize,
        taken: Taken,
    ) -> Result<(Vec<Task>, Option<DateTime<Utc>>), StoreError> {
        let source = source.to_owned();
        self.read(move |sql| {
            let mut due = Vec::new();
            let mut later: Option<i64> = None;
            // Host by host, because the index goes by host: without it, a million tasks would be gone through.
            let mut next = sql.prepare_cached(
                "SELECT MIN(not_before) FROM task
                 WHERE source = ?1 AND state = 'ready' AND authority = ?2 AND not_before > ?3",
            )?;
            let hosts = authorities(sql, &source)?;
            let a_host = a_host.min((MOST_WAITING / hosts.len().max(1)).max(FEWEST_A_HOST));
            let mut room = MOST_WAITING.saturating_sub(taken.waiting.values().sum());
            for authority in hosts {
                if room == 0 {
                    // As soon as one of them is done it is looked again.
                    break;
                }
                let waiting = taken.waiting.get(&authority).copied().unwrap_or_default();
                let more = room.min(a_host.saturating_sub(waiting));
                let under_way = &taken.under_way;
                let found = due_of_host(sql, &source, &authority, now, more, under_way)?;
                room -= found.len();
                due.extend(found);
                let next: Option<i64> = next
                    .query_row(params![source, authority, row::micros(now)], |row| {
                        row.get(0)
                    })?;
                later = [later, next].into_iter().flatten().min();
            }
            Ok((due, later.map(row::datetime)))
        })
        .await
    }

    /// When the first of a Source's tasks that are to be carried out is, or was, due; `None`: there are none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn next_due(
        self: &Arc<Self>,
        source: &str,
    ) -> Result<Option<DateTime<Utc>>, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| {
            let mut next = sql.prepare_cached(
                "SELECT MIN(not_before) FROM task WHERE source = ?1 AND state = 'ready' AND authority = ?2",
            )?;
            let mut first: Option<i64> = None;
            for authority in authorities(sql, &source)? {
                let due = next.query_row([&source, &authority], |row| row.get(0))?;
                first = [first, due].into_iter().flatten().min();
            }
            Ok(first.map(row::datetime))
        })
        .await
    }

    /// Drops the tasks of a set that were given up and are not wanted any more: nothing announces what becomes of them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn drop_unwanted(
        self: &Arc<Self>,
        set: SetId,
        wants: impl Fn(&ResourceUri) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        let unwanted: Vec<i64> = self
            .read(move |sql| {
                let mut query = sql.prepare_cached(
                    "SELECT task.resource_id, resource.uri FROM task JOIN resource ON resource.id = task.resource_id
                     WHERE task.set_id = ?1 AND task.state = 'failed'",
                )?;
                let mut rows = query.query([set.0])?;
                let mut unwanted = Vec::new();
                while let Some(found) = rows.next()? {
                    if !wants(&row::resource_uri(&found.get::<_, String>(1)?)?) {
                        unwanted.push(found.get(0)?);
                    }
                }
                Ok(unwanted)
            })
            .await?;
        if unwanted.is_empty() {
            return Ok(());
        }
        self.write(move |tx| {
            for &resource in &unwanted {
                let dropped = tx
                    .sql
                    .prepare_cached(
                        "DELETE FROM task WHERE resource_id = ?1 AND set_id = ?2 AND state = 'failed' RETURNING version",
                    )?
                    .query_row([resource, set.0], |row| row.get::<_, i64>(0))
                    .optional()?;
                if let Some(version) = dropped {
                    tx.sql
                        .prepare_cached("UPDATE resource SET next_version = ?2 + 1 WHERE id = ?1")?
                        .execute([resource, version])?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Makes the tasks of a set due again that were given up.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn retry_failed(
        self: &Arc<Self>,
        set: SetId,
        source: &str,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            let again = tx.sql.execute(
                "UPDATE task SET state = 'ready', attempts = 0, not_before = ?2 WHERE set_id = ?1 AND state = 'failed'",
                params![set.0, row::micros(now)],
            )?;
            if again > 0 {
                tx.wake(Wake::Tasks(source));
            }
            Ok(())
        })
        .await
    }
}

/// How far ahead a task may wait: no server is heeded longer than an hour, and pauses vary by half.
const LONGEST_WAIT: TimeDelta = TimeDelta::hours(2);

impl Store {
    /// Mends the waits of a Source's tasks where the wall clock was set back, by `setback` if that is known: they keep
    /// what was left of their waits. None waits longer than any could have been told to.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing has changed.
    pub async fn mend_waits(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        setback: TimeDelta,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            tx.sql.execute(
                "UPDATE task SET not_before = CASE WHEN not_before - ?3 > ?4 THEN ?2 ELSE not_before - ?3 END
                 WHERE source = ?1 AND not_before > ?2 AND (?3 > 0 OR not_before > ?4)",
                params![
                    source,
                    row::micros(now),
                    setback.num_microseconds().unwrap_or(i64::MAX / 4),
                    row::micros(now + LONGEST_WAIT)
                ],
            )?;
            Ok(())
        })
        .await
    }
}

/// The hosts that have tasks, found by leaping through the index.
fn authorities(sql: &Connection, source: &str) -> Result<Vec<String>, StoreError> {
    let mut query = sql.prepare_cached(
        "WITH RECURSIVE host (name) AS (
             SELECT MIN(authority) FROM task WHERE source = ?1 AND state = 'ready'
             UNION ALL
             SELECT (SELECT MIN(authority) FROM task WHERE source = ?1 AND state = 'ready' AND authority > name)
             FROM host WHERE name IS NOT NULL)
         SELECT name FROM host WHERE name IS NOT NULL",
    )?;
    let hosts = query.query_map([source], |row| row.get(0))?;
    hosts.map(|host| Ok(host?)).collect()
}

fn due_of_host(
    sql: &Connection,
    source: &str,
    authority: &str,
    now: DateTime<Utc>,
    limit: usize,
    under_way: &HashSet<ResourceId>,
) -> Result<Vec<Task>, StoreError> {
    let mut query = sql.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM task JOIN resource ON resource.id = task.resource_id
         WHERE task.source = ?1 AND task.state = 'ready' AND task.authority = ?2 AND task.not_before <= ?3
         ORDER BY task.not_before, task.resource_id"
    ))?;
    let mut rows = query.query(params![source, authority, row::micros(now)])?;
    let mut tasks = Vec::new();
    while tasks.len() < limit
        && let Some(found) = rows.next()?
    {
        if !under_way.contains(&ResourceId(found.get(0)?)) {
            tasks.push(task(found)?);
        }
    }
    Ok(tasks)
}

pub(super) fn task(found: &Row<'_>) -> Result<Task, StoreError> {
    Ok(Task {
        resource: ResourceId(found.get(0)?),
        version: found.get(1)?,
        source: found.get(2)?,
        set: SetId(found.get(3)?),
        uri: row::resource_uri(&found.get::<_, String>(4)?)?,
        authority: found.get(5)?,
        kind: row::kind(&found.get::<_, String>(6)?)?,
        changed_at: row::source_time(found.get(7)?),
        lastmod: row::source_time(found.get(8)?),
        length: found.get::<_, Option<i64>>(9)?.map(row::unsigned),
        media_type: found.get(10)?,
        hashes: row::hashes(&found.get::<_, String>(11)?),
        origin: Origin::from_code(&found.get::<_, String>(12)?)?,
        attempts: found.get(13)?,
        path: found
            .get::<_, Option<String>>(14)?
            .ok_or(StoreError::BadRow("a resource's path"))?,
        live: found.get(15)?,
        live_length: found.get::<_, Option<i64>>(16)?.map(row::unsigned),
        live_hashes: row::hashes(&found.get::<_, String>(17)?),
        links: links(found.get::<_, Option<String>>(18)?.as_deref())?,
        live_version: version(found, 19)?,
    })
}
