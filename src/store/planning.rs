//! From changes to tasks: each change is held against what is known of its resource, within the transaction that keeps
//! the answer. One task a resource: the latest change wins.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, params};

use super::change_batch::{BatchCommit, BatchResult, Change, ChangeBatch};
use super::channels::count_gap;
use super::deletion_guard::{forget_losses, weigh_deletions};
use super::feed::Origin;
use super::found::Found;
use super::links::{links_text, save_links};
use super::parts::doubt_parts_of;
use super::sets::{save_document, save_progress, unbroken_until};
use super::writer::Tx;
use super::{ResourceId, SetId, Store, StoreError, Wake, dumps, inbox, row};
use crate::protocol::{ChangeKind, SourceTime};
use crate::sync::{Decision, plan_change};

impl Store {
    /// Makes tasks of changes; with its end, moves all that moves with them. For the asynchronous side.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing has changed.
    pub async fn apply(
        self: &Arc<Self>,
        application: ChangeBatch,
    ) -> Result<BatchResult, StoreError> {
        self.write(move |tx| apply(tx, &application)).await
    }

    /// As [`apply`](Self::apply), for a caller on a blocking thread.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing has changed.
    pub fn apply_blocking(&self, application: ChangeBatch) -> Result<BatchResult, StoreError> {
        self.write_blocking(move |tx| apply(tx, &application))
    }

    /// Lets the deletions of a Source that are held back go on; answers how many. Somebody has looked: what went on before
    /// does not count any more.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn approve_deletions(self: &Arc<Self>, source: &str) -> Result<u64, StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            let held = tx.sql.execute(
                "UPDATE task SET state = 'ready' WHERE source = ?1 AND state = 'held'",
                [&source],
            )?;
            forget_losses(tx.sql, &source)?;
            if held > 0 {
                tx.wake(Wake::Tasks(source));
            }
            Ok(held as u64)
        })
        .await
    }
}

fn apply(tx: &mut Tx<'_>, application: &ChangeBatch) -> Result<BatchResult, StoreError> {
    let mut applied = BatchResult::default();
    let context = Context::of(
        tx.sql,
        application.set,
        &application.source,
        application.origin,
        application.now,
    )?;
    for change in &application.changes {
        let found = Found::look_up(tx.sql, &context, change)?;
        let decision = plan_change(&change.told(), found.known.as_ref(), found.pending.as_ref());
        // What is older than a deletion tells of a member that is one no more.
        let is_gone = found.known.as_ref().is_some_and(|known| known.deleted);
        let has_left = decision == Decision::Older && is_gone;
        if !has_left && change.kind != ChangeKind::Deleted {
            found.join_told(tx.sql, &context)?;
        }
        if decision == Decision::Task && change.kind == ChangeKind::Deleted {
            doubt_parts_of(tx.sql, found.resource)?;
        }
        match decision {
            Decision::Task if put_task(tx.sql, &context, found.resource, change)? => {
                applied.tasks += 1;
            }
            Decision::Task => applied.known += 1,
            Decision::Older => {
                applied.known += 1;
                found.hold_back(tx.sql, context.set, change)?;
            }
            Decision::Done => {
                applied.known += 1;
                found.drop_task(tx.sql)?;
                save_links(tx.sql, found.resource, &change.links)?;
            }
        }
    }
    if let Some(end) = &application.end {
        applied.held = finish(tx, &context, end)?;
    }
    if applied.tasks > 0 || application.end.is_some() {
        tx.wake(Wake::Tasks(application.source.clone()));
    }
    Ok(applied)
}

pub(super) struct Context<'a> {
    pub(super) set: SetId,
    pub(super) source: &'a str,
    pub(super) origin: Origin,
    pub(super) now: DateTime<Utc>,
    /// How often the set's Resource List has been read.
    pub(super) generation: i64,
    /// For what a Resource List tells: up to where all was known before it. What it tells that is new happened later.
    pub(super) unbroken: Option<SourceTime>,
}

impl<'a> Context<'a> {
    pub(super) fn of(
        sql: &Connection,
        set: SetId,
        source: &'a str,
        origin: Origin,
        now: DateTime<Utc>,
    ) -> Result<Self, StoreError> {
        let generation = sql
            .prepare_cached("SELECT generation FROM source_set WHERE id = ?1")?
            .query_row([set.0], |row| row.get(0))?;
        let unbroken = if origin.is_listing() {
            unbroken_until(sql, set)?
        } else {
            None
        };
        Ok(Self {
            set,
            source,
            origin,
            now,
            generation,
            unbroken,
        })
    }
}

/// Makes a change the resource's task; answers whether it was not that already. What is told twice neither begins a download
/// anew nor takes back what a person has approved. A deletion waits for the end of its document.
pub(super) fn put_task(
    sql: &Connection,
    context: &Context<'_>,
    resource: ResourceId,
    change: &Change,
) -> Result<bool, StoreError> {
    let state = if change.kind == ChangeKind::Deleted {
        "weighed"
    } else {
        "ready"
    };
    // From when on the mirror is behind: this change, and those before it that it replaces. A list does not state those; where
    // nothing was known before it, they may be of any time.
    let since = if context.origin.is_listing() {
        context
            .unbroken
            .map(|unbroken| change.changed_at.map_or(unbroken, |at| at.min(unbroken)))
    } else {
        change.changed_at
    };
    let links = match change.kind {
        ChangeKind::Deleted => None,
        ChangeKind::Created | ChangeKind::Updated => links_text(&change.links)?,
    };
    let put = sql.prepare_cached(
        "INSERT INTO task (resource_id, source, set_id, authority, kind, changed_at, lastmod, length, media_type, hashes,
                           origin, state, not_before, since, links, version)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
                 (SELECT next_version FROM resource WHERE id = ?1))
         ON CONFLICT (resource_id) DO UPDATE SET
             set_id = ?3, authority = ?4, kind = ?5, changed_at = ?6, lastmod = ?7, length = ?8, media_type = ?9, hashes = ?10, origin = ?11,
             state = ?12, not_before = ?13, since = MIN(since, ?14), links = ?15, version = version + 1, attempts = 0, error_code = NULL, error_message = NULL
         WHERE kind IS NOT ?5 OR changed_at IS NOT ?6 OR lastmod IS NOT ?7 OR length IS NOT ?8 OR hashes IS NOT ?10
            OR (?15 IS NOT NULL AND links IS NOT ?15)
            OR (changed_at IS NULL AND NOT (origin IN ('resource-list', 'resource-dump') AND ?11 IN ('resource-list', 'resource-dump')))",
    )?
    .execute(params![
        resource.0,
        context.source,
        context.set.0,
        change.authority,
        change.kind.as_str(),
        change.changed_at.map(SourceTime::micros),
        change.lastmod.map(SourceTime::micros),
        change.length.map(row::signed),
        change.media_type,
        row::hashes_text(&change.hashes),
        context.origin.code(),
        state,
        row::micros(context.now),
        since.map(SourceTime::micros),
        links,
    ])?;
    Ok(put > 0)
}

/// Ends a document; answers how many deletions are held back.
fn finish(tx: &mut Tx<'_>, context: &Context<'_>, end: &BatchCommit) -> Result<u64, StoreError> {
    let held = weigh_deletions(tx.sql, context.set, context.now, end.rules)?;
    if let Some((coverage, gaps)) = &end.progress {
        save_progress(tx, context.set, coverage, gaps)?;
    }
    for &channel in &end.missed_by {
        count_gap(tx.sql, channel)?;
    }
    if let Some((delivery, channel, outcome)) = end.delivery {
        inbox::conclude(tx, delivery, channel, outcome)?;
    }
    for document in &end.documents {
        save_document(tx, context.set, document)?;
    }
    if let Some(at) = end.listed {
        dumps::forget(tx.sql, context.set)?;
        tx.sql.execute(
            "UPDATE source_set SET list_at = ?2, baseline = CASE baseline WHEN 'missing' THEN 'listed' ELSE baseline END
             WHERE id = ?1",
            params![context.set.0, at.micros()],
        )?;
    }
    if let Some(read_until) = end.read_until {
        tx.sql
            .prepare_cached("UPDATE source_set SET read_until = ?2 WHERE id = ?1")?
            .execute(params![context.set.0, read_until.micros()])?;
    }
    conclude_baseline(tx.sql, context.set)?;
    Ok(held)
}

/// A baseline is done when each of its resources has been fetched, or given up for now. So may be that of another set of the
/// Source: one set may tell of what is pending for another.
pub(super) fn conclude_baseline(sql: &Connection, set: SetId) -> Result<(), StoreError> {
    sql.prepare_cached(
        "UPDATE source_set SET baseline = 'done'
         WHERE source = (SELECT source FROM source_set WHERE id = ?1) AND baseline = 'listed' AND NOT EXISTS (
             SELECT 1 FROM task WHERE set_id = source_set.id AND state = 'ready' AND origin IN ('resource-list', 'resource-dump'))",
    )?
    .execute([set.0])?;
    Ok(())
}
