//! Completes tasks: stores what the mirror has now and appends to the feed, or stores the error and when to try again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::ChangeKind;
use resyncd_core::{Answer, Revision, SetKey, Voice, latest_plausible};

use super::batch_context::BatchContext;
use super::linked::end_with_owner;
use super::membership::TotalsChange;
use super::settle::{Cause, Settled, doubt};
use super::statements::Resource;
use super::versions::note_published;
use crate::store::change::Origin;
use crate::store::ids::SetId;
use crate::store::sql::Connection;
use crate::store::tables::feed::{self, LINKED, NewEntry};
use crate::store::tables::resource::unused::{self, UnusedRule};
use crate::store::tables::resource::{self, Publication};
use crate::store::tables::task::{self, SourceAnswer, Task, TaskFailure};
use crate::store::tables::{dropped_task, membership, part, source_set, version};
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
    /// The deletion of a resource that the Source still serves: it was asked, because another set names the resource, or only an untrusted
    /// sender has stated the deletion.
    Served {
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
            | Self::Served { task, .. }
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
            let sql = tx.sql;
            // `None`: the set has ended and is forgotten.
            let mut sets = HashMap::new();
            let mut totals = TotalsChange::default();
            // No result adds one.
            let any_dropped = dropped_task::any(sql)?;
            for result in results.iter() {
                let task = result.task();
                let context = match sets.entry(task.set) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(set) => set.insert(context_of(sql, task, now)?),
                };
                if let Some(context) = context {
                    store_result(tx, context, &mut totals, result)?;
                } else {
                    // What the mirror has by now is found out for the sets that are followed.
                    doubt(sql, task.resource, now)?;
                }
                release_versions(tx, result)?;
                // One task of a resource is executed at a time: an older one has ended, too.
                if any_dropped {
                    dropped_task::delete(sql, task.resource)?;
                }
                tx.wake(Wake::Tasks(task.source.clone()));
            }
            totals.write(sql)?;
            for context in sets.into_values().flatten() {
                part::reread_parts_of(sql, context.source, &context.deleted.take())?;
                source_set::end_finished_baselines(sql, context.set)?;
            }
            Ok(())
        })
        .await
    }
}

/// What the results of a set have in common; `None`: the set is not known any more.
fn context_of<'a>(
    sql: &'a Connection,
    task: &'a Task,
    now: DateTime<Utc>,
) -> Result<Option<BatchContext<'a>>, StoreError> {
    if !source_set::exists(sql, task.set)? {
        return Ok(None);
    }
    BatchContext::read(sql, task.set, &task.source, Origin::ChangeList, now).map(Some)
}

fn store_result(
    tx: &mut Tx<'_>,
    context: &BatchContext<'_>,
    totals: &mut TotalsChange,
    result: &TaskResult,
) -> Result<(), StoreError> {
    let (sql, task, now) = (tx.sql, result.task(), context.now);
    let Some(mut resource) = Resource::find(sql, context, task.resource)? else {
        // Its row was removed since. If it is announced again, its file is adopted.
        return Ok(());
    };
    let is_current = resource.is_task(task);
    let cause = if is_current {
        Cause::Result
    } else {
        Cause::Event
    };
    match result {
        TaskResult::Published(publication) => {
            publish(tx, now, totals, &resource, publication)?;
            resource.note_applied(sql, context, task)?;
        }
        TaskResult::Removed { file_stays, .. } => {
            context.deleted.borrow_mut().insert(task.resource);
            remove(tx, now, totals, &resource, (task, *file_stays))?;
            if task.asks || task.unconfirmed {
                resource::set_answer(sql, task.resource, Answer::Absent, task.statements)?;
            }
            resource.note_applied(sql, context, task)?;
        }
        TaskResult::Served { is_same, .. } => {
            let answer = if *is_same {
                Answer::Served
            } else {
                Answer::Changed
            };
            resource.note_answer(sql, answer, task.statements)?;
        }
        TaskResult::Unselected { served, .. } => {
            task::unselect_type(sql, task, served)?;
            version::unselect_waiting(sql, task.resource, served)?;
            return Ok(());
        }
        TaskResult::Failed { failure, .. } => {
            if failure.is_in_doubt {
                resource.doubt(sql)?;
            }
            if failure.is_given_up && failure.answer == Some(SourceAnswer::Absent) {
                resource.note_answer(sql, Answer::Absent, task.statements)?;
            }
            if is_current && resource.wants_task(sql, context)? {
                task::fail(sql, task, failure, now)?;
                if failure.awaits_sets && !source_set::is_other_unread(sql, task.set)? {
                    // The last one was read meanwhile.
                    task::release_awaiting(sql, &task.source, now)?;
                }
                return resource.save(sql, context);
            }
        }
    }
    let is_gone = !resource.is_live();
    let stated_in = resource.stated_in(context)?;
    let settled = resource.settle(sql, context, None, cause)?;
    if is_gone && matches!(settled, Settled::Dropped | Settled::Nothing) {
        for set in membership::sets_of(sql, task.resource)? {
            // What the set's documents state of it ends with the next list: until then it belongs to the set.
            if !stated_in.contains(&set) {
                membership::delete(sql, set, task.resource)?;
            }
        }
        end_with_owner(sql, now, task)?;
        if !context.is_followed(task.set)? {
            unused::remove(sql, task.resource, &UnusedRule::without_deletions())?;
        }
    }
    Ok(())
}

impl Resource {
    /// Whether a task is still that of the resource.
    fn is_task(&self, task: &Task) -> bool {
        (self.state.task.as_ref()).is_some_and(|current| current.version == task.revision)
    }

    /// The followed sets whose documents state that it exists.
    fn stated_in(&self, context: &BatchContext<'_>) -> Result<Vec<SetId>, StoreError> {
        let mut sets = Vec::new();
        for it in &self.statements {
            let set = SetId(it.entry.set.0);
            let is_of_source = it.entry.voice == Voice::Source;
            if it.exists() && is_of_source && context.is_followed(set)? {
                sets.push(set);
            }
        }
        Ok(sets)
    }

    /// Who has stated what a task executes.
    fn voice_of(&self, task: &Task) -> Voice {
        let executed = self.statements.iter().find(|it| it.revision == task.stated);
        if let Some(executed) = executed.filter(|_| !task.origin.is_of_person()) {
            return executed.entry.voice;
        }
        let states = |voice| {
            let mut entries = self.statements.iter().map(|it| &it.entry);
            entries.any(|it| it.voice_in_set() == (SetKey(task.set.0), voice))
        };
        if task.unconfirmed {
            Voice::Hub
        } else if states(Voice::Link) && !states(Voice::Source) {
            Voice::Link
        } else {
            Voice::Source
        }
    }

    /// Reads what a task has made of the resource.
    fn note_applied(
        &mut self,
        sql: &Connection,
        context: &BatchContext<'_>,
        task: &Task,
    ) -> Result<(), StoreError> {
        if task.origin.is_of_person() && self.is_task(task) {
            // What a person has ordered counts, whatever is stated of it.
            let exists = task.kind != ChangeKind::Deleted;
            self.statements
                .retain(|it| exists && it.entry.set.0 != task.set.0);
        }
        self.reread(sql, context, Some((task.set, task.stated)))
    }

    fn note_answer(
        &mut self,
        sql: &Connection,
        answer: Answer,
        asked: Revision,
    ) -> Result<(), StoreError> {
        resource::set_answer(sql, self.state.id, answer, asked)?;
        self.state.answer = Some((answer, asked));
        if answer == Answer::Served {
            self.state.fetched = asked;
        }
        Ok(())
    }
}

/// Versions need not wait any longer for a resource that was not published.
fn release_versions(tx: &mut Tx<'_>, result: &TaskResult) -> Result<(), StoreError> {
    let task = match result {
        // Those state what becomes of its versions.
        TaskResult::Published(_) | TaskResult::Unselected { .. } => return Ok(()),
        TaskResult::Removed { task, .. }
        | TaskResult::Served { task, .. }
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
    resource: &Resource,
    publication: &Publication,
) -> Result<(), StoreError> {
    let (sql, task) = (tx.sql, &publication.task);
    let before = resource.live_length();
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
    let voice = resource.voice_of(task);
    resource::publish(sql, publication, (voice, lastmod), now)?;
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
    }
    if task.live && publication.path != task.path {
        // Its former path has a file yet. What is published in doubt removes it.
        resource::doubt(sql, task.resource)?;
    }
    Ok(())
}

fn remove(
    tx: &mut Tx<'_>,
    now: DateTime<Utc>,
    totals: &mut TotalsChange,
    resource: &Resource,
    (task, file_stays): (&Task, bool),
) -> Result<(), StoreError> {
    let sql = tx.sql;
    let before = resource.live_length();
    if let Some(length) = before {
        totals.count_removal(sql, task.resource, length)?;
    }
    resource::delete(sql, task, resource.voice_of(task), now)?;
    if let Some(length) = before {
        // A reader removes by the path what it has made of the file; the length states whether there is one still.
        let length = u64::try_from(length).ok().filter(|_| file_stays);
        append_to_feed(tx, task, task.kind.as_str(), now, &task.path, length, false)?;
    }
    Ok(())
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
