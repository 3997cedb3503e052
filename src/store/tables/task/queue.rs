//! The queue: tasks of a state that are due, host by host, because the index goes by host.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use resyncd_core::ResourceUri;

use super::{COLUMNS, Task, TaskState};
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Connection, OptionalExtension, Result, params};
use crate::store::tables::identity::Identity;
use crate::store::tables::resource::IS_DOUBTED;
use crate::store::tables::values::{Column, Count, Micros, column};

/// The hosts that have tasks of a state. Each costs one look-up in the index, whatever the number of tasks.
pub(crate) fn authorities(sql: &Connection, source: &str, state: TaskState) -> Result<Vec<String>> {
    sql.prepare_cached(
        "WITH RECURSIVE host (name) AS (
             SELECT MIN(authority) FROM task WHERE source = ?1 AND state = ?2
             UNION ALL
             SELECT (SELECT MIN(authority) FROM task WHERE source = ?1 AND state = ?2 AND authority > name)
             FROM host WHERE name IS NOT NULL)
         SELECT name FROM host WHERE name IS NOT NULL",
    )?
    .query_map(params![source, Column(&state)], |row| row.get(0))?
    .collect()
}

/// The tasks of a host in that state that are due, the longest due first: at most `limit`, without those in progress.
pub(crate) fn due_of_host(
    sql: &Connection,
    source: &str,
    (authority, state): (&str, TaskState),
    now: DateTime<Utc>,
    limit: usize,
    in_progress: &HashSet<ResourceId>,
) -> Result<Vec<Task>> {
    // Those in progress come first, hundreds of them: the index alone shows which they are.
    let mut due = sql.prepare_cached(
        "SELECT resource_id FROM task WHERE source = ?1 AND state = ?4 AND authority = ?2 AND not_before <= ?3
         ORDER BY not_before, resource_id LIMIT ?5",
    )?;
    let mut task = sql.prepare_cached(&format!(
        "SELECT {COLUMNS}, {IS_DOUBTED} FROM task JOIN resource ON resource.id = task.resource_id WHERE task.resource_id = ?1"
    ))?;
    let most = Count::of_rows(limit.saturating_add(in_progress.len()));
    let mut rows = due.query(params![
        source,
        authority,
        Micros(now),
        Column(&state),
        most
    ])?;
    let mut tasks = Vec::new();
    while tasks.len() < limit
        && let Some(row) = rows.next()?.as_ref()
    {
        let resource: ResourceId = row.get(0)?;
        if !in_progress.contains(&resource) {
            tasks.push(task.query_row([resource], Task::from_row)?);
        }
    }
    Ok(tasks)
}

/// When the first ready task of a host is due.
pub(crate) fn first_due(
    sql: &Connection,
    source: &str,
    authority: &str,
) -> Result<Option<DateTime<Utc>>> {
    let first: Option<Micros> = sql
        .prepare_cached(
            "SELECT MIN(not_before) FROM task WHERE source = ?1 AND state = 'ready' AND authority = ?2",
        )?
        .query_row([source, authority], |row| row.get(0))?;
    Ok(first.map(DateTime::from))
}

/// When the first task of a host in that state is due that is not due yet.
pub(crate) fn next_due(
    sql: &Connection,
    source: &str,
    (authority, state): (&str, TaskState),
    now: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>> {
    let next: Option<Micros> = sql
        .prepare_cached(
            "SELECT MIN(not_before) FROM task
             WHERE source = ?1 AND state = ?4 AND authority = ?2 AND not_before > ?3",
        )?
        .query_row(
            params![source, authority, Micros(now), Column(&state)],
            |row| row.get(0),
        )?;
    Ok(next.map(DateTime::from))
}

/// The task of a resource that may be executed, with its state and when it is due.
pub(crate) fn of_resource(
    sql: &Connection,
    source: &str,
    uri: &ResourceUri,
) -> Result<Option<(Task, TaskState, DateTime<Utc>)>> {
    sql.prepare_cached(&format!(
        "SELECT {COLUMNS}, {IS_DOUBTED}, task.state AS state, task.not_before AS not_before
         FROM resource JOIN task ON task.resource_id = resource.id
         WHERE resource.source = ?1 AND resource.identity = ?2 AND task.state IN ('ready', 'failed', 'unavailable')"
    ))?
    .query_row(params![source, Identity(uri)], |row| {
        let not_before: Micros = row.get("not_before")?;
        Ok((Task::from_row(row)?, column(row, "state")?, not_before.0))
    })
    .optional()
}

/// The resources of a set whose tasks are given up and not due, and that are not wanted.
pub(crate) fn unwanted_at_rest(
    sql: &Connection,
    set: SetId,
    now: DateTime<Utc>,
    wants: impl Fn(&ResourceUri) -> bool,
) -> Result<Vec<ResourceId>> {
    let mut query = sql.prepare_cached(
        "SELECT task.resource_id, resource.uri FROM task JOIN resource ON resource.id = task.resource_id
         WHERE task.set_id = ?1 AND task.state IN ('failed', 'unavailable') AND task.not_before > ?2",
    )?;
    let mut rows = query.query(params![set, Micros(now)])?;
    let mut unwanted = Vec::new();
    while let Some(row) = rows.next()?.as_ref() {
        if !wants(&column(row, 1)?) {
            unwanted.push(row.get(0)?);
        }
    }
    Ok(unwanted)
}
