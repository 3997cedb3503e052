//! What came of tasks: what the mirror has now, and the line of the feed that tells of it, or when to try again.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, params};

use super::feed::{self, NewEntry, Origin};
use super::links::links_text;
use super::parts::doubt_parts_of;
use super::planning::conclude_baseline;
use super::resources::{live_length, sum_up_members};
use super::superseded::SupersededTask;
use super::tasks::Task;
use super::writer::Tx;
use super::{Store, StoreError, Wake, row};
use crate::protocol::{Digest, ServedVersion, SourceTime};
use crate::sync::latest_plausible;

/// What came of a task. The files are as it says already.
#[derive(Debug)]
pub enum TaskResult {
    /// The file is in its place.
    Published(Publication),
    /// The file is gone, or, where deletions are not followed, left behind.
    Removed {
        /// The task.
        task: Task,
        /// Whether the file was kept.
        kept: bool,
    },
    /// It did not work.
    Failed {
        /// The task.
        task: Task,
        /// Why, and what next.
        failure: TaskFailure,
    },
}

/// A file that is in its place.
#[derive(Debug)]
pub struct Publication {
    /// The task.
    pub task: Task,
    /// Where it is, relative to the mirror.
    pub path: String,
    /// Its length, in bytes.
    pub length: u64,
    /// The media type that was told, or else served; `None`, where its bytes are not new: as before.
    pub media_type: Option<String>,
    /// Its digests.
    pub hashes: Vec<Digest>,
    /// When it was last modified, as was told or else served; `None`, where its bytes are not new: as before.
    pub lastmod: Option<SourceTime>,
    /// What the server told of this version; `None`, where its bytes are not new: as before.
    pub version: Option<ServedVersion>,
    /// Whether its bytes are new; if not, the feed stays silent.
    pub news: bool,
}

/// Why a task failed.
#[derive(Clone, Debug)]
pub struct TaskFailure {
    /// The stable name of the error.
    pub code: &'static str,
    /// The error, for a person.
    pub message: String,
    /// When to try again; `None`: given up until the next poll.
    pub retry_at: Option<DateTime<Utc>>,
    /// Whether this try counts; a full disk is not the resource's fault.
    pub counts: bool,
}

impl Store {
    /// Keeps what came of tasks, all in one transaction.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing has changed.
    pub async fn conclude(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        conclusions: Arc<Vec<TaskResult>>,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            let mut sets = HashSet::new();
            for conclusion in conclusions.iter() {
                let task = conclude(tx, now, conclusion)?;
                sets.insert(task.set);
                tx.wake(Wake::Tasks(task.source.clone()));
            }
            for set in sets {
                conclude_baseline(tx.sql, set)?;
            }
            Ok(())
        })
        .await
    }
}

fn conclude<'a>(
    tx: &mut Tx<'_>,
    now: DateTime<Utc>,
    conclusion: &'a TaskResult,
) -> Result<&'a Task, StoreError> {
    match conclusion {
        TaskResult::Published(publication) => {
            publish(tx, now, publication)?;
            Ok(&publication.task)
        }
        TaskResult::Removed { task, kept } => {
            remove(tx, now, task, *kept)?;
            Ok(task)
        }
        TaskResult::Failed { task, failure } => {
            put_off(tx.sql, now, task, failure)?;
            Ok(task)
        }
    }
}

fn publish(
    tx: &mut Tx<'_>,
    now: DateTime<Utc>,
    publication: &Publication,
) -> Result<(), StoreError> {
    let Publication {
        task,
        path,
        length,
        media_type,
        hashes,
        lastmod,
        version,
        news,
    } = publication;
    let called_off = SupersededTask::find(tx.sql, task)?;
    let before = live_length(tx.sql, task.resource)?;
    let version = version.as_ref();
    // A list that tells of a time that can't be is looked at whenever it tells of it, and of any other.
    let latest = latest_plausible(now);
    let lastmod = lastmod.filter(|&lastmod| lastmod <= latest);
    tx.sql
        .prepare_cached(
            "UPDATE resource SET set_id = ?2, path = ?3, length = ?4, hashes = ?6,
             media_type = COALESCE(?5, CASE ?11 WHEN 0 THEN media_type END),
             lastmod = COALESCE(?7, CASE ?11 WHEN 0 THEN lastmod END),
             served_by = CASE WHEN ?11 OR ?12 IS NOT NULL THEN ?12 ELSE served_by END,
             etag = CASE WHEN ?11 OR ?12 IS NOT NULL THEN ?13 ELSE etag END,
             last_modified = CASE WHEN ?11 OR ?12 IS NOT NULL THEN ?14 ELSE last_modified END,
             links = ?15, changed_at = COALESCE(?8, changed_at), applied_at = ?9, change = ?10, deleted = 0
             WHERE id = ?1",
        )?
        .execute(params![
            task.resource.0,
            task.set.0,
            path,
            row::signed(*length),
            media_type,
            row::hashes_text(hashes),
            lastmod.map(SourceTime::micros),
            task.changed_at.map(SourceTime::micros),
            row::micros(now),
            change_of(task),
            news,
            version.map(|version| version.url.as_str()),
            version.and_then(|version| version.validators.etag.as_deref()),
            version.and_then(|version| version.validators.last_modified.as_deref()),
            links_text(&task.links)?,
        ])?;
    let length_now = row::signed(*length);
    match before {
        None => sum_up_members(tx.sql, task.resource, 1, length_now)?,
        Some(before) => sum_up_members(tx.sql, task.resource, 0, length_now - before)?,
    }
    if *news {
        feed::append(tx, &entry(task, now, Some(path), Some(*length)))?;
        if let Some(called_off) = called_off {
            called_off.put_right(tx.sql, task, now)?;
        }
    }
    end_task(tx.sql, task)
}

fn remove(tx: &mut Tx<'_>, now: DateTime<Utc>, task: &Task, kept: bool) -> Result<(), StoreError> {
    let called_off = SupersededTask::find(tx.sql, task)?;
    let before = live_length(tx.sql, task.resource)?;
    if let Some(length) = before {
        sum_up_members(tx.sql, task.resource, -1, -length)?;
        if let Some(called_off) = called_off {
            called_off.put_right(tx.sql, task, now)?;
        }
    }
    doubt_parts_of(tx.sql, task.resource)?;
    // What has been created again meanwhile stays a member: its task is on its way.
    tx.sql
        .prepare_cached(
            "DELETE FROM member WHERE resource_id = ?1 AND NOT EXISTS (
                 SELECT 1 FROM task WHERE resource_id = ?1 AND version > ?2 AND kind <> 'deleted')",
        )?
        .execute([task.resource.0, task.version])?;
    tx.sql
        .prepare_cached(
            "UPDATE resource SET set_id = ?2, changed_at = COALESCE(?3, changed_at), applied_at = ?4, change = ?5, deleted = 1, links = NULL
             WHERE id = ?1",
        )?
        .execute(params![
            task.resource.0,
            task.set.0,
            task.changed_at.map(SourceTime::micros),
            row::micros(now),
            change_of(task),
        ])?;
    if before.is_some() {
        let path = kept.then_some(task.path.as_str());
        feed::append(tx, &entry(task, now, path, None))?;
    }
    end_task(tx.sql, task)
}

fn put_off(
    sql: &Connection,
    now: DateTime<Utc>,
    task: &Task,
    failure: &TaskFailure,
) -> Result<(), StoreError> {
    let state = if failure.retry_at.is_some() {
        "ready"
    } else {
        "failed"
    };
    sql.prepare_cached(
        "UPDATE task SET state = ?3, attempts = attempts + ?4, not_before = COALESCE(?5, not_before),
         error_code = ?6, error_message = ?7, error_at = ?8 WHERE resource_id = ?1 AND version = ?2",
    )?
    .execute(params![
        task.resource.0,
        task.version,
        state,
        i64::from(failure.counts),
        failure.retry_at.map(row::micros),
        failure.code,
        failure.message,
        row::micros(now),
    ])?;
    Ok(())
}

/// What change was applied; a Resource List does not say.
fn change_of(task: &Task) -> Option<&'static str> {
    match task.origin {
        Origin::ResourceList | Origin::ResourceDump | Origin::Audit => None,
        Origin::Notification | Origin::ChangeList | Origin::ChangeDump => Some(task.kind.as_str()),
    }
}

/// Ends a task, unless a newer change has taken its place meanwhile.
fn end_task(sql: &Connection, task: &Task) -> Result<(), StoreError> {
    sql.prepare_cached("DELETE FROM task WHERE resource_id = ?1 AND version = ?2")?
        .execute(params![task.resource.0, task.version])?;
    Ok(())
}

fn entry<'a>(
    task: &'a Task,
    now: DateTime<Utc>,
    path: Option<&'a str>,
    length: Option<u64>,
) -> NewEntry<'a> {
    NewEntry {
        applied_at: now,
        source: &task.source,
        set: task.set,
        uri: &task.uri,
        change: task.kind,
        path,
        length,
        changed_at: task.changed_at,
        origin: task.origin,
    }
}
