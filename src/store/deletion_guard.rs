//! Whether deletions go on by themselves, or are so many at once that a person has to look first. So are those of a list that
//! names nothing at all, however few: that is what a Source publishes whose list could not be made.
//!
//! "At once" is ten seconds: a Source that breaks may as well tell its deletions one by one as in one document. It is no longer,
//! because a Source whose resources come and go all the time must not wait for a person.

use chrono::{DateTime, TimeDelta, Utc};
use rusqlite::{Connection, params};

use super::change_batch::DeletionRules;
use super::{SetId, StoreError, row};
use crate::sync::needs_approval;

/// How long a deletion that went on counts with those that come after it.
const AT_ONCE: TimeDelta = TimeDelta::seconds(10);

/// Lets a document's deletions go on, or holds them all back if they are too many for a person not to look: together with
/// those that are held back already, and with what went on lately and has not come back.
pub(super) fn weigh_deletions(
    sql: &Connection,
    set: SetId,
    now: DateTime<Utc>,
    rules: DeletionRules,
) -> Result<u64, StoreError> {
    let mut weighed =
        sql.prepare_cached("SELECT 1 FROM task WHERE set_id = ?1 AND state = 'weighed'")?;
    if !weighed.exists([set.0])? {
        return Ok(0);
    }
    // Also what our clock, before somebody set it right, took for a time to come.
    sql.prepare_cached("DELETE FROM loss WHERE set_id = ?1 AND let_go_at NOT BETWEEN ?2 AND ?3")?
        .execute(params![
            set.0,
            row::micros(now - AT_ONCE),
            row::micros(now + AT_ONCE)
        ])?;
    // Those that a person let go on, and those that are counted as lost, are not counted here.
    let waiting: i64 = sql
        .prepare_cached(
            "SELECT COUNT(*) FROM task JOIN resource ON resource.id = task.resource_id
             WHERE task.set_id = ?1 AND task.kind = 'deleted' AND task.state IN ('weighed', 'held')
               AND resource.applied_at IS NOT NULL AND resource.deleted = 0
               AND NOT EXISTS (SELECT 1 FROM loss WHERE loss.resource_id = task.resource_id)",
        )?
        .query_row([set.0], |row| row.get(0))?;
    let resources: i64 = sql
        .prepare_cached("SELECT resources FROM source_set WHERE id = ?1")?
        .query_row([set.0], |row| row.get(0))?;
    let is_much = |lost: &Losses| {
        let deletions = row::unsigned(waiting) + lost.all;
        needs_approval(
            deletions,
            row::unsigned(resources) + lost.gone,
            rules.max_share,
        )
    };
    // What has come back is looked for only where it makes a difference.
    let hold = (rules.holds_all && waiting > 0)
        || (is_much(&noted(sql, set)?) && is_much(&losses(sql, set)?));
    if !hold && rules.max_share < 1.0 {
        note_losses(sql, set, now)?;
    }
    let state = if hold { "held" } else { "ready" };
    let settled = sql
        .prepare_cached("UPDATE task SET state = ?2 WHERE set_id = ?1 AND state = 'weighed'")?
        .execute(params![set.0, state])?;
    Ok(if hold { settled as u64 } else { 0 })
}

/// A person has looked: from here on it is counted anew.
pub(super) fn forget_losses(sql: &Connection, source: &str) -> Result<(), StoreError> {
    sql.execute(
        "DELETE FROM loss WHERE set_id IN (SELECT id FROM source_set WHERE source = ?1)",
        [source],
    )?;
    Ok(())
}

/// What went on lately.
struct Losses {
    /// The resources that are gone, or will be.
    all: u64,
    /// Those that are gone.
    gone: u64,
}

/// All that went on lately, as if none of it was gone yet, or had come back: never less than there is.
fn noted(sql: &Connection, set: SetId) -> Result<Losses, StoreError> {
    let all = sql
        .prepare_cached("SELECT COUNT(*) FROM loss WHERE set_id = ?1")?
        .query_row([set.0], |row| row.get(0))?;
    Ok(Losses {
        all: row::unsigned(all),
        gone: 0,
    })
}

/// What went on lately, and has not come back. There are few of them: more would have been held back.
fn losses(sql: &Connection, set: SetId) -> Result<Losses, StoreError> {
    let counted = sql
        .prepare_cached(
            "SELECT COUNT(*), COALESCE(SUM(resource.deleted), 0)
             FROM loss JOIN resource ON resource.id = loss.resource_id
             WHERE loss.set_id = ?1 AND (resource.deleted = 1 OR EXISTS (
                 SELECT 1 FROM task WHERE task.resource_id = loss.resource_id AND task.kind = 'deleted'))",
        )?
        .query_row([set.0], |found| {
            Ok(Losses {
                all: row::unsigned(found.get(0)?),
                gone: row::unsigned(found.get(1)?),
            })
        })?;
    Ok(counted)
}

/// Notes what is about to be lost.
fn note_losses(sql: &Connection, set: SetId, now: DateTime<Utc>) -> Result<(), StoreError> {
    sql.prepare_cached(
        "INSERT OR REPLACE INTO loss (resource_id, set_id, let_go_at)
         SELECT task.resource_id, task.set_id, ?2 FROM task JOIN resource ON resource.id = task.resource_id
         WHERE task.set_id = ?1 AND task.state = 'weighed' AND task.kind = 'deleted'
           AND resource.applied_at IS NOT NULL AND resource.deleted = 0",
    )?
    .execute(params![set.0, row::micros(now)])?;
    Ok(())
}
