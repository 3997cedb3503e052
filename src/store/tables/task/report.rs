//! Lists of tasks for people: those that were given up, the deletions that are held back, and what would be done.

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::ResourceUri;

use super::TaskState;
use crate::store::change::Origin;
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Connection, Result, params};
use crate::store::tables::values::{Count, Micros, column};
use crate::store::tables::{linked, mirrored_path};

/// A task that was given up, or is tried again after that.
#[derive(Clone, Debug)]
pub struct GivenUpTask {
    /// Its resource.
    pub resource: ResourceId,
    /// The set that announced the change.
    pub set: SetId,
    /// The Capability List of that set.
    pub capability_list: String,
    /// The resource's URI.
    pub uri: String,
    /// What happened to the resource.
    pub kind: ChangeKind,
    /// The last error: its code.
    pub code: String,
    /// The last error, for a person.
    pub message: String,
    /// When it occurred.
    pub at: Option<DateTime<Utc>>,
    /// When the task was given up for the first time.
    pub since: DateTime<Utc>,
    /// When it is due; `None`: it is not executed.
    pub due: Option<DateTime<Utc>>,
    /// Whether it is one that the Source has refused, or lacked, for a week.
    pub is_unavailable: bool,
}

/// A deletion that is held back, or that a person has rejected.
#[derive(Clone, Debug)]
pub struct HeldBackTask {
    /// Its resource.
    pub resource: ResourceId,
    /// The Capability List of the set that announced the deletion.
    pub capability_list: String,
    /// The resource's URI.
    pub uri: String,
    /// Its file, relative to the mirror; `None`: the mirror has none.
    pub path: Option<String>,
    /// The length of the file, in bytes.
    pub length: Option<u64>,
    /// When the resource was deleted.
    pub changed_at: Option<SourceTime>,
    /// The kind of document that announced the deletion.
    pub origin: Origin,
    /// The number that it got when it was held back: later ones have higher numbers.
    pub hold: u64,
    /// How many files of linked resources go with it, if all deletions are approved that are held back.
    pub linked: u64,
}

/// The tasks of a Source that were given up, of resources after that one: at most `limit`, in the order of their resources.
pub(crate) fn given_up(
    sql: &Connection,
    source: &str,
    after: ResourceId,
    limit: usize,
) -> Result<Vec<GivenUpTask>> {
    sql.prepare_cached(
        "SELECT task.resource_id AS resource_id, task.set_id AS set_id, source_set.capability_list AS capability_list,
                resource.uri AS uri, task.kind AS kind, COALESCE(task.error_code, 'unknown') AS code,
                COALESCE(task.error_message, '') AS message, task.error_at AS error_at, task.given_up_since AS since,
                task.state AS state, task.not_before AS not_before
         FROM task JOIN resource ON resource.id = task.resource_id JOIN source_set ON source_set.id = task.set_id
         WHERE task.resource_id IN (
             SELECT resource_id FROM task INDEXED BY task_given_up WHERE source = ?1 AND given_up_since IS NOT NULL AND resource_id > ?2
                 AND set_id IN (SELECT id FROM source_set WHERE source = ?1 AND ended = 0)
             ORDER BY resource_id LIMIT ?3)
         ORDER BY task.resource_id",
    )?
    .query_map(params![source, after, Count::of_rows(limit)], |row| {
        let state: TaskState = column(row, "state")?;
        let is_queued = TaskState::QUEUED.contains(&state);
        let not_before: Micros = row.get("not_before")?;
        Ok(GivenUpTask {
            resource: row.get("resource_id")?,
            set: row.get("set_id")?,
            capability_list: row.get("capability_list")?,
            uri: row.get("uri")?,
            kind: column(row, "kind")?,
            code: row.get("code")?,
            message: row.get("message")?,
            at: row.get::<_, Option<Micros>>("error_at")?.map(DateTime::from),
            since: row.get::<_, Micros>("since")?.0,
            due: is_queued.then_some(not_before.0),
            is_unavailable: state == TaskState::Unavailable,
        })
    })?
    .collect()
}

/// When the first task of a set was given up of those that were not completed since, and are not unavailable; `None`: there are none.
pub(crate) fn first_given_up(sql: &Connection, set: SetId) -> Result<Option<DateTime<Utc>>> {
    let first: Option<Micros> = sql
        .prepare_cached(
            "SELECT MIN(given_up_since) FROM task WHERE set_id = ?1 AND given_up_since IS NOT NULL AND state <> 'unavailable'",
        )?
        .query_row([set], |row| row.get(0))?;
    Ok(first.map(DateTime::from))
}

/// The deletions of a Source that are held back, or those that were rejected, of resources after that one: at most `limit`, in
/// the order of their resources.
pub(crate) fn held_back(
    sql: &Connection,
    source: &str,
    is_rejected: bool,
    after: ResourceId,
    limit: usize,
) -> Result<Vec<HeldBackTask>> {
    let deletions = if is_rejected {
        "task INDEXED BY task_rejected WHERE state = 'rejected' AND kind = 'deleted'"
    } else {
        "task INDEXED BY task_held WHERE state = 'held'"
    };
    let goes = linked::deleted_with_owners("task.set_id", "'undecided', 'held', 'ready', 'failed'");
    // Only what is on the page is looked up: a million may be held back.
    sql.prepare_cached(&format!(
        "SELECT task.resource_id AS resource_id, source_set.capability_list AS capability_list, resource.uri AS uri,
                resource.applied_at IS NOT NULL AND resource.deleted = 0 AS is_live, resource.path AS path,
                resource.length AS length, task.changed_at AS changed_at, task.origin AS origin, COALESCE(task.hold, 0) AS hold,
                (SELECT COUNT(*) FROM linked JOIN resource ON resource.id = linked.resource_id
                 WHERE linked.owner_id = task.resource_id AND linked.set_id = task.set_id AND {goes}) AS linked
         FROM task JOIN resource ON resource.id = task.resource_id JOIN source_set ON source_set.id = task.set_id
         WHERE task.resource_id IN (
             SELECT resource_id FROM {deletions} AND source = ?1 AND resource_id > ?2
                 AND set_id IN (SELECT id FROM source_set WHERE source = ?1 AND ended = 0)
             ORDER BY resource_id LIMIT ?3)
         ORDER BY task.resource_id"
    ))?
    .query_map(params![source, after, Count::of_rows(limit)], |row| {
        let uri: ResourceUri = column(row, "uri")?;
        let path = if row.get("is_live")? {
mirrored_path::of(row.get("path")?, &uri)
            } else {
None
            };
        let length = row.get::<_, Option<Count>>("length")?.map(u64::from);
        Ok(HeldBackTask {
            resource: row.get("resource_id")?,
            capability_list: row.get("capability_list")?,
            uri: uri.to_string(),
            length: length.filter(|_| path.is_some()),
            path,
            changed_at: column(row, "changed_at")?,
            origin: column(row, "origin")?,
            hold: row.get::<_, Count>("hold")?.into(),
            linked: row.get::<_, Count>("linked")?.into(),
        })
    })?
    .collect()
}

/// What would be done with a resource.
#[derive(Clone, Debug)]
pub struct PlannedTask {
    /// The resource.
    pub resource: ResourceId,
    /// The Capability List of the set that announced the change.
    pub capability_list: String,
    /// The resource's URI.
    pub uri: String,
    /// What happened to the resource.
    pub kind: ChangeKind,
    /// Whether it waits for a person: a deletion that is held back.
    pub is_held_back: bool,
    /// Whether the mirror has a file of the resource.
    pub is_live: bool,
    /// Whether the list states nothing about the content: only a request shows whether it has changed.
    pub is_check: bool,
    /// The length that is announced, in bytes; of a deletion, the length of the file.
    pub length: Option<u64>,
}

/// The tasks of a Source, of resources after that one: at most `limit`, in the order of their resources; not those that a person
/// has rejected, nor those that are unavailable.
pub(crate) fn planned(
    sql: &Connection,
    source: &str,
    after: ResourceId,
    limit: usize,
) -> Result<Vec<PlannedTask>> {
    sql.prepare_cached(
        "SELECT task.resource_id AS resource_id, source_set.capability_list AS capability_list, resource.uri AS uri,
                task.kind AS kind, task.state = 'held' AS is_held_back,
                resource.applied_at IS NOT NULL AND resource.deleted = 0 AS is_live,
                task.origin = 'resource-list' AND task.kind = 'updated' AND task.lastmod IS NULL AND task.length IS NULL
                    AND task.hashes = '' AS is_check,
                CASE task.kind WHEN 'deleted' THEN resource.length ELSE task.length END AS length
         FROM task NOT INDEXED JOIN source_set ON source_set.id = task.set_id JOIN resource ON resource.id = task.resource_id
         WHERE task.resource_id > ?2 AND task.source = ?1 AND task.state NOT IN ('rejected', 'unavailable') AND source_set.ended = 0
         ORDER BY task.resource_id LIMIT ?3",
    )?
    .query_map(params![source, after, Count::of_rows(limit)], |row| {
        Ok(PlannedTask {
            resource: row.get("resource_id")?,
            capability_list: row.get("capability_list")?,
            uri: row.get("uri")?,
            kind: column(row, "kind")?,
            is_held_back: row.get("is_held_back")?,
            is_live: row.get("is_live")?,
            is_check: row.get("is_check")?,
            length: row.get::<_, Option<Count>>("length")?.map(u64::from),
        })
    })?
    .collect()
}
