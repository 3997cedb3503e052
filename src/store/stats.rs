//! How a set stands, in numbers, and up to where it is in sync.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OptionalExtension};

use super::sets::{BaselineState, gaps, unbroken_until};
use super::{SetId, Store, StoreError, row};
use crate::protocol::SourceTime;
use crate::sync::Gap;

/// How a set stands, in numbers.
#[derive(Clone, Debug, Default)]
pub struct SetNumbers {
    /// Resources that the mirror has.
    pub resources: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Changes that are known and not applied yet.
    pub pending: u64,
    /// Changes that were given up for now.
    pub failed: u64,
    /// Deletions that are held back.
    pub held_deletions: u64,
    /// What keeps one of them from being applied: code, message and when.
    pub failure: Option<(String, String, DateTime<Utc>)>,
    /// Whether the baseline is done.
    pub baseline_done: bool,
    /// Up to where every change is known to have been applied.
    pub synced_until: Option<SourceTime>,
    /// The gaps, oldest first.
    pub gaps: Vec<Gap>,
}

impl Store {
    /// How a set stands.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn set_numbers(self: &Arc<Self>, set: SetId) -> Result<SetNumbers, StoreError> {
        self.read(move |sql| numbers(sql, set)).await
    }

    /// How many changes of a Source are known and to be carried out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn pending(self: &Arc<Self>, source: &str) -> Result<u64, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| {
            let count = sql
                .prepare_cached("SELECT COUNT(*) FROM task WHERE source = ?1 AND state = 'ready'")?
                .query_row([source], |row| row.get(0))?;
            Ok(row::unsigned(count))
        })
        .await
    }
}

pub(super) fn numbers(sql: &Connection, set: SetId) -> Result<SetNumbers, StoreError> {
    let mut numbers = SetNumbers {
        gaps: gaps(sql, set)?,
        ..SetNumbers::default()
    };
    let baseline: String = sql
        .prepare_cached("SELECT resources, bytes, baseline FROM source_set WHERE id = ?1")?
        .query_row([set.0], |row| {
            numbers.resources = row::unsigned(row.get(0)?);
            numbers.bytes = row::unsigned(row.get(1)?);
            row.get(2)
        })?;
    let mut counts =
        sql.prepare_cached("SELECT state, COUNT(*) FROM task WHERE set_id = ?1 GROUP BY state")?;
    let mut rows = counts.query([set.0])?;
    while let Some(found) = rows.next()? {
        let count = row::unsigned(found.get(1)?);
        match found.get::<_, String>(0)?.as_str() {
            "failed" => numbers.failed = count,
            "held" => numbers.held_deletions = count,
            _ => numbers.pending += count,
        }
    }
    numbers.failure = failure(sql, set)?;
    numbers.baseline_done = BaselineState::from_code(&baseline) == BaselineState::Done;
    if numbers.baseline_done {
        numbers.synced_until = synced_until(sql, set)?;
    }
    Ok(numbers)
}

/// What keeps a task from being done: one that was given up before one that is tried again.
fn failure(
    sql: &Connection,
    set: SetId,
) -> Result<Option<(String, String, DateTime<Utc>)>, StoreError> {
    for condition in ["task.state = 'failed' AND", ""] {
        let mut query = sql.prepare_cached(&format!(
            "SELECT task.error_code, resource.uri || ': ' || task.error_message, task.error_at
             FROM task JOIN resource ON resource.id = task.resource_id
             WHERE task.set_id = ?1 AND {condition} task.error_code IS NOT NULL LIMIT 1"
        ))?;
        let found = query
            .query_row([set.0], |found| {
                Ok((found.get(0)?, found.get(1)?, row::datetime(found.get(2)?)))
            })
            .optional()?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The end of the first interval, held back to the oldest change in it that is not applied yet; also where another set,
/// which shares the resource, has told of it.
fn synced_until(sql: &Connection, set: SetId) -> Result<Option<SourceTime>, StoreError> {
    let Some(unbroken) = unbroken_until(sql, set)? else {
        return Ok(None);
    };
    let mut synced = Some(unbroken);
    // NULL sorts first: a change whose time nobody knows may be as old as anything.
    let mut hold_back = |oldest: Option<Option<i64>>| {
        if let Some(oldest) = oldest {
            synced = synced.min(row::source_time(oldest));
        }
    };
    let own = "SELECT since FROM task WHERE set_id = ?1 ORDER BY since LIMIT 1";
    hold_back(
        sql.prepare_cached(own)?
            .query_row([set.0], |row| row.get(0))
            .optional()?,
    );
    // Few sets share resources with others, and only those are looked at.
    let others = "SELECT other.id FROM source_set AS own
         JOIN source_set AS other ON other.source = own.source AND other.id <> own.id
         WHERE own.id = ?1 AND own.shares = 1 AND other.shares = 1";
    let mut others = sql.prepare_cached(others)?;
    let mut others = others.query([set.0])?;
    let mut shared = sql.prepare_cached(
        "SELECT since FROM task WHERE set_id = ?1
         AND EXISTS (SELECT 1 FROM member WHERE member.set_id = ?2 AND member.resource_id = task.resource_id)
         ORDER BY since LIMIT 1",
    )?;
    while let Some(other) = others.next()? {
        let other: i64 = other.get(0)?;
        hold_back(
            shared
                .query_row([other, set.0], |row| row.get(0))
                .optional()?,
        );
    }
    Ok(synced)
}
