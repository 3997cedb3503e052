//! Completes tasks: stores what the mirror has now and appends to the feed, or stores the error and when to try again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::latest_plausible;
use rusqlite::Connection;

use super::linked::end_with_owner;
use super::membership::{TotalsChange, leave_if_shared};
use super::put_task::RequestedAgain;
use super::restore::{StateToRestore, doubt_and_restore};
use super::versions::note_published;
use crate::store::ids::SetId;
use crate::store::tables::feed::{self, LINKED, NewEntry};
use crate::store::tables::resource::{self, Publication, ResourceState, unconfirmed};
use crate::store::tables::tally::Tallied;
use crate::store::tables::task::{self, SourceAnswer, Task, TaskFailure};
use crate::store::tables::{
    channel, dropped_task, membership, part, source_set, tombstone, version,
};
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

/// The result of a task. The mirror is in that state already.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every result is the largest"
)]
pub enum TaskResult {
    /// The file was published.
    Published(Publication),
    /// The file was removed or, where deletions are not followed, left in the mirror.
    Removed {
        /// The task.
        task: Task,
        /// Whether the file was left.
        file_stays: bool,
    },
    /// The deletion of a resource that the Source still serves, and that belongs to another set: it has left the set that
    /// announced the deletion.
    LeftSet {
        /// The task.
        task: Task,
        /// Whether the Source serves what the mirror has.
        is_same: bool,
    },
    /// A deletion that only an untrusted sender stated, or that follows from a list contradicting such a sender; the Source still
    /// serves the resource.
    Contradicted {
        /// The task.
        task: Task,
        /// Whether the Source serves what the mirror has.
        is_same: bool,
    },
    /// The resource is served in a type that is not selected.
    Unselected {
        /// The task.
        task: Task,
        /// That type.
        served: String,
    },
    /// The attempt failed.
    Failed {
        /// The task.
        task: Task,
        /// The error, and when to try again.
        failure: TaskFailure,
    },
}

impl TaskResult {
    fn task(&self) -> &Task {
        match self {
            Self::Published(publication) => &publication.task,
            Self::Removed { task, .. }
            | Self::LeftSet { task, .. }
            | Self::Contradicted { task, .. }
            | Self::Unselected { task, .. }
            | Self::Failed { task, .. } => task,
        }
    }
}

impl Store {
    /// Stores the results of tasks, all in one transaction.
    pub async fn complete(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        results: Arc<Vec<TaskResult>>,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            let mut sets = HashMap::new();
            let mut totals = TotalsChange::default();
            // No result adds one.
            let any_dropped = dropped_task::any(tx.sql)?;
            for result in results.iter() {
                let task = result.task();
                let is_known = match sets.entry(task.set) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(set) => *set.insert(source_set::exists(tx.sql, task.set)?),
                };
                if is_known {
                    store_result(tx, now, &mut totals, result)?;
                } else {
                    // The set has ended and is forgotten. What the mirror has by now is found out for the sets that are followed.
                    doubt_and_restore(tx.sql, task.resource)?;
                }
                release_versions(tx, result)?;
                // One task of a resource is executed at a time: an older one has ended, too.
                if any_dropped {
                    dropped_task::delete(tx.sql, task.resource)?;
                }
                tx.wake(Wake::Tasks(task.source.clone()));
            }
            totals.write(tx.sql)?;
            for (set, is_known) in sets {
                if is_known {
                    source_set::end_finished_baselines(tx.sql, set)?;
                }
            }
            Ok(())
        })
        .await
    }
}

fn store_result(
    tx: &mut Tx<'_>,
    now: DateTime<Utc>,
    totals: &mut TotalsChange,
    result: &TaskResult,
) -> Result<(), StoreError> {
    match result {
        TaskResult::Published(publication) => {
            publish(tx, now, totals, publication)?;
        }
        TaskResult::Removed { task, file_stays } => {
            remove(tx, now, totals, task, *file_stays)?;
        }
        TaskResult::LeftSet { task, is_same } => {
            leave(tx.sql, now, task, *is_same)?;
        }
        TaskResult::Contradicted { task, is_same } => {
            // The mirror is behind from there on, whatever the deletion replaced.
            let since = task::since(tx.sql, task.resource)?;
            task::complete(tx.sql, task)?;
            unconfirmed::set_answered(tx.sql, task)?;
            let is_wanted = task.live || membership::any_set(tx.sql, task.resource)?.is_some();
            if !is_same && is_wanted && !task::exists(tx.sql, task.resource)? {
                let since = since.unwrap_or(task.changed_at);
                request_again(tx.sql, now, task, task.set, since)?;
            }
        }
        TaskResult::Unselected { task, served } => {
            task::unselect_type(tx.sql, task, served)?;
            version::unselect_waiting(tx.sql, task.resource, served)?;
        }
        TaskResult::Failed { task, failure } => {
            if failure.is_in_doubt {
                doubt_and_restore(tx.sql, task.resource)?;
            }
            let is_over = failure.is_given_up && failure.answer == Some(SourceAnswer::Absent);
            if is_over && was_absent_later(tx.sql, task)? {
                remove(tx, now, totals, task, false)?;
                request_removal_if_doubted(tx.sql, task)?;
            } else if is_over && let Some(state) = deleted_later(tx.sql, task)? {
                leave_deleted(tx.sql, now, task, &state)?;
            } else if is_over && may_be_made_up(tx.sql, task)? {
                forget_made_up(tx.sql, task)?;
            } else {
                task::fail(tx.sql, task, failure, now)?;
                if failure.awaits_sets && !source_set::is_other_unread(tx.sql, task.set)? {
                    // The last one was read meanwhile.
                    task::release_awaiting(tx.sql, &task.source, now)?;
                }
            }
        }
    }
    Ok(())
}

/// Versions need not wait any longer for a resource that was not published.
fn release_versions(tx: &mut Tx<'_>, result: &TaskResult) -> Result<(), StoreError> {
    let task = match result {
        // Those state what becomes of its versions.
        TaskResult::Published(_) | TaskResult::Unselected { .. } => return Ok(()),
        TaskResult::Removed { task, .. }
        | TaskResult::LeftSet { task, .. }
        | TaskResult::Contradicted { task, .. }
        | TaskResult::Failed { task, .. } => task,
    };
    if version::release(tx.sql, task.resource, None)? {
        tx.wake(Wake::Versions(task.source.clone()));
    }
    Ok(())
}

fn publish(
    tx: &mut Tx<'_>,
    now: DateTime<Utc>,
    totals: &mut TotalsChange,
    publication: &Publication,
) -> Result<(), StoreError> {
    let (sql, task) = (tx.sql, &publication.task);
    let before = resource::file_and_task(sql, task.resource)?;
    let to_restore = StateToRestore::find(sql, task, before)?;
    let before = before.live_length;
    // An impossible time is not stored, so that a list that states it, or another one, is compared again.
    let latest = latest_plausible(now);
    // What a list states counts, also where it was not believed.
    let stated = task.changed_at.filter(|_| task.origin.is_listing());
    let lastmod = stated.or(publication.lastmod);
    let lastmod = lastmod.filter(|&lastmod| lastmod <= latest);
    let is_relinked =
        !publication.has_new_bytes && resource::has_other_links(sql, task.resource, &task.links)?;
    if note_published(sql, publication, now)? {
        tx.wake(Wake::Versions(task.source.clone()));
    }
    if !resource::publish(sql, publication, lastmod, now)? {
        // The task was dropped long ago. If the resource is announced again, its file is adopted.
        return Ok(());
    }
    totals.count_file(sql, task.resource, before, publication.length)?;
    if publication.is_copy_of_lastmod() {
        source_set::count_copy(sql, task.set, !publication.has_new_bytes)?;
    }
    let length = Some(publication.length);
    if is_relinked {
        append_to_feed(tx, task, LINKED, now, &publication.path, length, false)?;
    }
    if publication.has_new_bytes {
        let change = task.kind.as_str();
        let is_patched = publication.is_patched;
        append_to_feed(tx, task, change, now, &publication.path, length, is_patched)?;
        if let Some(state) = to_restore {
            state.restore(sql, task, now)?;
        }
    }
    task::complete(sql, task)?;
    if task.live && publication.path != task.path {
        // Its former path has a file yet. What is published in doubt removes it.
        doubt_and_restore(sql, task.resource)?;
    }
    Ok(())
}

/// Ends the membership in the set that announced the deletion. If the set has left no other set meanwhile, the next try removes
/// the resource. What another set has announced may have been replaced by the deletion: it is requested again for that set.
fn leave(
    sql: &Tallied<'_>,
    now: DateTime<Utc>,
    task: &Task,
    is_same: bool,
) -> Result<(), StoreError> {
    // A newer task states what becomes of the resource.
    if !task::is_current(sql, task)? || !leave_if_shared(sql, task.set, task.resource)? {
        return Ok(());
    }
    if let Some(deleted_at) = task.changed_at.filter(|_| is_stated_by_source(task)) {
        tombstone::put(sql, task.set, task.resource, deleted_at)?;
    }
    // The mirror is behind from there on also for the other sets.
    let since = task::since(sql, task.resource)?;
    task::complete(sql, task)?;
    let has_task = task::exists(sql, task.resource)?;
    let Some(set) = membership::any_set(sql, task.resource)?.filter(|_| !is_same && !has_task)
    else {
        return Ok(());
    };
    request_again(sql, now, task, set, since.unwrap_or(task.changed_at))
}

/// Whether a change states the deletion, and not a list that does not name the resource, nor a hub alone.
fn is_stated_by_source(task: &Task) -> bool {
    !task.origin.is_listing() && !task.unconfirmed
}

/// Requests a resource again that was to be deleted, for a set. `since`: the time from which the mirror may be behind.
fn request_again(
    sql: &Tallied<'_>,
    now: DateTime<Utc>,
    task: &Task,
    set: SetId,
    since: Option<SourceTime>,
) -> Result<(), StoreError> {
    let again = RequestedAgain {
        resource: task.resource,
        source: &task.source,
        uri: &task.uri,
        set,
        origin: task.origin,
        is_live: task.live,
    };
    again.put(sql, now, since)
}

/// Whether a Resource List that is newer than the task's change has been read, and did not name the resource, which the mirror
/// does not have. Then an answer that there is none concludes the task: the resource was deleted since.
fn was_absent_later(sql: &Connection, task: &Task) -> Result<bool, StoreError> {
    if task.live || task.origin.is_listing() || task.origin.is_of_person() {
        return Ok(false);
    }
    if membership::is_listed(sql, task.resource)? {
        return Ok(false);
    }
    let listed_at = source_set::list_at(sql, task.set)?;
    let latest = task.changed_at.map(SourceTime::latest_possible);
    Ok(latest.is_some_and(|latest| listed_at.is_some_and(|listed_at| latest < listed_at)))
}

/// Whether only a delivery that anybody may have made states that a task's resource exists: no list names it, the mirror does not have it,
/// and the task does not stand for an older change. Then an answer that there is none is the last word until the Source states it: made
/// up names would otherwise be requested at each poll.
fn may_be_made_up(sql: &Connection, task: &Task) -> Result<bool, StoreError> {
    let is_only_stated = task.unconfirmed && !task.live && task.kind != ChangeKind::Deleted;
    if !is_only_stated
        || !task::is_current(sql, task)?
        || membership::is_listed(sql, task.resource)?
        || membership::is_named_by_another_set(sql, task.set, task.resource)?
    {
        return Ok(false);
    }
    let since = task::since(sql, task.resource)?.flatten();
    let stands_for_older = since.is_none() || since < task.changed_at;
    let channels = channel::of_set(sql, task.set)?;
    let mut senders = channels.iter().map(|it| it.transport.has_known_sender());
    Ok(!stands_for_older && senders.any(|is_known| !is_known))
}

fn forget_made_up(sql: &Tallied<'_>, task: &Task) -> Result<(), StoreError> {
    membership::delete_from_all(sql, task.resource, task.revision)?;
    task::complete(sql, task)?;
    request_removal_if_doubted(sql, task)
}

/// The state of a task's resource if the mirror has applied a deletion that is not older than the task's change, and the task was to
/// restore what the deletion removed (see [`StateToRestore`]). Then an answer that there is none confirms the deletion.
///
/// A list states that the resource exists at its own time: what another set has stated since then counts.
fn deleted_later(sql: &Connection, task: &Task) -> Result<Option<ResourceState>, StoreError> {
    let state = resource::state(sql, &task.source, &task.uri, task.set)?;
    let listed_at = source_set::newest_list_at(sql, task.set)?;
    Ok(state.filter(|state| {
        let deleted = state.known.as_ref().filter(|known| known.deleted);
        deleted.is_some_and(|known| {
            if task.origin.is_listing() {
                state.announced_by != task.set && known.latest_change() >= listed_at
            } else {
                task.changed_at <= known.changed_at
            }
        })
    }))
}

/// Ends a task that was to restore a resource whose deletion is confirmed: also for the set of the task, of which older entries do
/// not restore it again.
fn leave_deleted(
    sql: &Tallied<'_>,
    now: DateTime<Utc>,
    task: &Task,
    state: &ResourceState,
) -> Result<(), StoreError> {
    if let Some(deleted_at) = state.known.as_ref().and_then(|known| known.changed_at) {
        tombstone::put(sql, task.set, task.resource, deleted_at)?;
    }
    part::reread_parts_of(sql, task.resource)?;
    membership::delete_from_all(sql, task.resource, task.revision)?;
    end_links(sql, now, task)?;
    task::complete(sql, task)?;
    request_removal_if_doubted(sql, task)
}

/// What a resource that is deleted has linked to is deleted with it, unless a newer task creates the resource again.
fn end_links(sql: &Tallied<'_>, now: DateTime<Utc>, task: &Task) -> Result<(), StoreError> {
    if membership::sets_of(sql, task.resource)?.is_empty() {
        end_with_owner(sql, now, task)
    } else {
        Ok(())
    }
}

/// An attempt before this one may have published a file whose record was lost.
fn request_removal_if_doubted(sql: &Tallied<'_>, task: &Task) -> Result<(), StoreError> {
    if task.live_doubted {
        doubt_and_restore(sql, task.resource).map(drop)
    } else {
        Ok(())
    }
}

fn remove(
    tx: &mut Tx<'_>,
    now: DateTime<Utc>,
    totals: &mut TotalsChange,
    task: &Task,
    file_stays: bool,
) -> Result<(), StoreError> {
    let sql = tx.sql;
    let before = resource::file_and_task(sql, task.resource)?;
    let to_restore = StateToRestore::find(sql, task, before)?;
    let before = before.live_length;
    if let Some(length) = before {
        totals.count_removal(sql, task.resource, length)?;
        if let Some(state) = to_restore {
            state.restore(sql, task, now)?;
        }
    }
    part::reread_parts_of(sql, task.resource)?;
    membership::delete_from_all(sql, task.resource, task.revision)?;
    end_links(sql, now, task)?;
    resource::delete(sql, task, now)?;
    if let Some(length) = before {
        // A reader removes by the path what it has made of the file; the length states whether there is one still.
        let length = u64::try_from(length).ok().filter(|_| file_stays);
        append_to_feed(tx, task, task.kind.as_str(), now, &task.path, length, false)?;
    }
    Ok(task::complete(sql, task)?)
}

fn append_to_feed(
    tx: &mut Tx<'_>,
    task: &Task,
    change: &str,
    now: DateTime<Utc>,
    path: &str,
    length: Option<u64>,
    is_patched: bool,
) -> Result<(), StoreError> {
    let entry = NewEntry {
        applied_at: now,
        set: task.set,
        resource: task.resource,
        uri: &task.uri,
        change,
        path,
        length,
        changed_at: task.changed_at,
        origin: task.origin,
        links: &task.links,
        is_patched,
    };
    let seq = feed::append(tx.sql, &entry)?;
    tx.wake(Wake::Feed(seq));
    Ok(())
}
