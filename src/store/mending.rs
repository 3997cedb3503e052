//! What an audit that mends writes: tasks that are carried out in any case, and files that turned out to be right.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OptionalExtension, params};

use super::change_batch::Change;
use super::feed::{self, NewEntry, Origin};
use super::found::Found;
use super::planning::Context;
use super::resources::{live_length, sum_up_members};
use super::writer::Tx;
use super::{ResourceId, SetId, Store, StoreError, Wake, row};
use crate::protocol::{ChangeKind, Digest, SourceTime};
use crate::sync::latest_plausible;

/// A file that is right.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The resource.
    pub change: Change,
    /// The set that told of it; `None`: the one that the database has it from.
    pub set: Option<SetId>,
    /// Its file, relative to the mirror.
    pub path: String,
    /// The length of that, in bytes.
    pub length: u64,
    /// Its digests.
    pub hashes: Vec<Digest>,
}

impl Store {
    /// Makes tasks of what is to be fetched, or removed, whatever is known of it; without a set, for the one that the
    /// database has the resource from. A deletion does not wait for approval: a person has asked for it.
    ///
    /// # Errors
    /// [`StoreError`]; then there are none of them.
    pub async fn mend(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        changes: Vec<(Option<SetId>, Change)>,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            for (set, change) in &changes {
                if let Some(set) = set_of(tx.sql, &source, *set, change)? {
                    let context = Context::of(tx.sql, set, &source, Origin::Audit, now)?;
                    mend(tx.sql, &context, change)?;
                }
            }
            if !changes.is_empty() {
                tx.wake(Wake::Tasks(source));
            }
            Ok(())
        })
        .await
    }

    /// Takes files for what the mirror has, without fetching them. One whose path the database has given to another
    /// resource is left to the next baseline; answers the URIs of the others.
    ///
    /// # Errors
    /// [`StoreError`]; then none was taken.
    pub async fn adopt(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        adoptions: Vec<Adoption>,
    ) -> Result<Vec<String>, StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            let mut adopted = Vec::new();
            for adoption in &adoptions {
                let Some(set) = set_of(tx.sql, &source, adoption.set, &adoption.change)? else {
                    continue;
                };
                let context = Context::of(tx.sql, set, &source, Origin::Audit, now)?;
                if adopt(tx, &context, adoption)? {
                    adopted.push(adoption.change.uri.to_string());
                }
            }
            Ok(adopted)
        })
        .await
    }

    /// What still keeps a resource's task from being done: code and message; `None`: it has none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn task_error(
        self: &Arc<Self>,
        source: &str,
        uri: &str,
    ) -> Result<Option<(String, String)>, StoreError> {
        let (source, uri) = (source.to_owned(), uri.to_owned());
        self.read(move |sql| {
            let mut query = sql.prepare_cached(
                "SELECT COALESCE(error_code, state), COALESCE(error_message, 'it waits to be applied')
                 FROM task JOIN resource ON resource.id = task.resource_id
                 WHERE resource.source = ?1 AND resource.uri = ?2",
            )?;
            Ok(query
                .query_row([source, uri], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?)
        })
        .await
    }
}

/// The set that a change belongs to; `None`: nobody has told of its resource.
fn set_of(
    sql: &Connection,
    source: &str,
    told: Option<SetId>,
    change: &Change,
) -> Result<Option<SetId>, StoreError> {
    if told.is_some() {
        return Ok(told);
    }
    let mut query =
        sql.prepare_cached("SELECT set_id FROM resource WHERE source = ?1 AND uri = ?2")?;
    let found = query
        .query_row([source, change.uri.as_str()], |row| row.get(0))
        .optional()?;
    Ok(found.map(SetId))
}

fn mend(sql: &Connection, context: &Context<'_>, change: &Change) -> Result<(), StoreError> {
    let found = Found::look_up(sql, context, change)?;
    let deletes = change.kind == ChangeKind::Deleted;
    let pending = found.pending.as_ref();
    if let Some(newer) = pending.filter(|pending| pending.changed_at > change.changed_at) {
        // What contradicts the audit came after what the audit knows of, and may be told nowhere else.
        if (newer.kind == ChangeKind::Deleted) == deletes {
            hurry(sql, context, found.resource)?;
        }
        return Ok(());
    }
    let known = found.known.as_ref();
    let kind = match change.kind {
        ChangeKind::Deleted => ChangeKind::Deleted,
        _ if known.is_some_and(|known| !known.deleted) => ChangeKind::Updated,
        _ => ChangeKind::Created,
    };
    if !deletes {
        found.join_told(sql, context)?;
    }
    // A list may have been told of before the change that the mirror has: that is not taken back.
    let changed_at = change
        .changed_at
        .max(known.and_then(|known| known.changed_at));
    put(sql, context, found.resource, kind, changed_at, change)
}

/// Has what is pending carried out now, and as an audit wants it: in any case.
fn hurry(sql: &Connection, context: &Context<'_>, resource: ResourceId) -> Result<(), StoreError> {
    sql.prepare_cached(
        "UPDATE task SET origin = ?2, state = 'ready', attempts = 0, not_before = ?3, version = version + 1
         WHERE resource_id = ?1",
    )?
    .execute(params![
        resource.0,
        context.origin.code(),
        row::micros(context.now)
    ])?;
    Ok(())
}

/// Makes a change the resource's task, in the place of whatever was.
fn put(
    sql: &Connection,
    context: &Context<'_>,
    resource: ResourceId,
    kind: ChangeKind,
    changed_at: Option<SourceTime>,
    change: &Change,
) -> Result<(), StoreError> {
    sql.prepare_cached(
        "INSERT INTO task (resource_id, source, set_id, authority, kind, changed_at, lastmod, length, media_type, hashes,
                           origin, state, not_before, since, links, version)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'ready', ?12, ?6,
                 (SELECT links FROM resource WHERE id = ?1), (SELECT next_version FROM resource WHERE id = ?1))
         ON CONFLICT (resource_id) DO UPDATE SET
             set_id = ?3, authority = ?4, kind = ?5, changed_at = ?6, lastmod = ?7, length = ?8, media_type = ?9, hashes = ?10, origin = ?11,
             state = 'ready', not_before = ?12, since = MIN(since, ?6), version = version + 1, attempts = 0,
             error_code = NULL, error_message = NULL",
    )?
    .execute(params![
        resource.0,
        context.source,
        context.set.0,
        change.uri.authority(),
        kind.as_str(),
        changed_at.map(SourceTime::micros),
        change.lastmod.map(SourceTime::micros),
        change.length.map(row::signed),
        change.media_type,
        row::hashes_text(&change.hashes),
        context.origin.code(),
        row::micros(context.now),
    ])?;
    Ok(())
}

fn adopt(tx: &mut Tx<'_>, context: &Context<'_>, adoption: &Adoption) -> Result<bool, StoreError> {
    let sql = tx.sql;
    let change = &adoption.change;
    let taken = sql
        .prepare_cached("SELECT 1 FROM resource WHERE source = ?1 AND path = ?2 AND uri <> ?3")?
        .exists(params![context.source, adoption.path, change.uri.as_str()])?;
    if taken {
        return Ok(false);
    }
    let found = Found::look_up(sql, context, change)?;
    found.join_told(sql, context)?;
    let before = live_length(sql, found.resource)?;
    let known = found.known.as_ref();
    let changed_at = change
        .changed_at
        .max(known.and_then(|known| known.changed_at));
    let known = known.filter(|known| !known.deleted);
    let has_it =
        known.is_some_and(|known| known.hashes.iter().any(|it| adoption.hashes.contains(it)));
    sql.prepare_cached(
        "UPDATE resource SET path = ?2, length = ?3, media_type = COALESCE(?4, media_type), hashes = ?5, lastmod = ?6,
             changed_at = ?7, applied_at = ?8, change = NULL, deleted = 0, served_by = NULL, etag = NULL, last_modified = NULL
         WHERE id = ?1",
    )?
    .execute(params![
        found.resource.0,
        adoption.path,
        row::signed(adoption.length),
        change.media_type,
        row::hashes_text(&adoption.hashes),
        change
            .lastmod
            .filter(|&lastmod| lastmod <= latest_plausible(context.now))
            .map(SourceTime::micros),
        changed_at.map(SourceTime::micros),
        row::micros(context.now),
    ])?;
    let length = row::signed(adoption.length);
    match before {
        None => sum_up_members(sql, found.resource, 1, length)?,
        Some(before) => sum_up_members(sql, found.resource, 0, length - before)?,
    }
    if !has_it {
        let kind = match before {
            None => ChangeKind::Created,
            Some(_) => ChangeKind::Updated,
        };
        feed::append(tx, &entry(context, adoption, kind, changed_at))?;
    }
    Ok(true)
}

/// To whoever follows the feed it is news that the mirror has it: the feed is as new as the database.
fn entry<'a>(
    context: &Context<'a>,
    adoption: &'a Adoption,
    change: ChangeKind,
    changed_at: Option<SourceTime>,
) -> NewEntry<'a> {
    NewEntry {
        applied_at: context.now,
        source: context.source,
        set: context.set,
        uri: &adoption.change.uri,
        change,
        path: Some(&adoption.path),
        length: Some(adoption.length),
        changed_at,
        origin: context.origin,
    }
}
