//! Compares entries of a Resource List or Resource Dump with what the mirror has.

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::{CheckRules, Decision, LocalState, Standing};
use rusqlite::Connection;
use url::Url;

use super::batch_context::BatchContext;
use super::ingest::{BatchResult, EntryOutcome};
use super::list_deletion::delete_expired;
use super::membership::{MembershipUpdates, PartAssignment};
use super::put_task::put_task;
use super::undated::{UndatedChecks, is_planned, plan_doubted};
use super::versions::announce;
use crate::store::change::{Change, Origin};
use crate::store::ids::{PartId, SetId};
use crate::store::tables::document::{self, DocumentRecord};
use crate::store::tables::part::{self, PageEnd, PartEvidence};
use crate::store::tables::resource::{self, ResourceState};
use crate::store::tables::tally::Tallied;
use crate::store::tables::{source_set, task};
use crate::store::writer::{Tx, Writing};
use crate::store::{Store, StoreError, Wake};

/// A Resource List, or a Resource Dump, that is being read.
#[derive(Clone, Debug)]
pub struct ListProgress {
    /// The set.
    pub set: SetId,
    /// The label of its Source.
    pub source: String,
    /// Which of the two it is.
    pub origin: Origin,
    /// The time of the snapshot.
    pub at: SourceTime,
    /// How entries are checked that state nothing about their content; `None`: they are not, because the list is not new.
    pub checks: Option<CheckRules>,
}

/// Which entries of a part a batch has.
#[derive(Clone, Debug)]
pub struct PartStep {
    /// Where the part was fetched.
    pub uri: Url,
    /// Whether the batch has the first entries. From then on the part counts as incomplete.
    pub begins: bool,
    /// Set if the batch has the last entries. From then on the part counts as complete, unless it is damaged.
    pub end: Option<PartEnd>,
}

/// What is stored of a part that was read to its end.
#[derive(Clone, Debug)]
pub struct PartEnd {
    /// The fingerprint of the filter with which it was read; `None`: it is damaged, or has links that were not followed, and counts as
    /// incomplete.
    pub filter: Option<String>,
    /// By what the part is recognized as unchanged.
    pub evidence: PartEvidence,
    /// How many of its entries could not be read.
    pub bad_entries: u64,
    /// What it states of itself as a page.
    pub page: PageEnd,
    /// Its validators; `None`: they are stored with the end of the list.
    pub document: Option<DocumentRecord>,
}

impl Store {
    /// Compares entries of a list with what the mirror has and makes tasks of the differences. The result may be
    /// awaited later.
    pub fn ingest_listed(
        &self,
        list: &ListProgress,
        now: DateTime<Utc>,
        entries: Vec<Change>,
    ) -> Writing<BatchResult> {
        let list = list.clone();
        self.begin_write(move |tx| ingest_listed(tx, &list, now, None, &entries))
    }

    /// As [`ingest_listed`](Self::ingest_listed), for entries of a part of the list.
    pub fn ingest_part(
        &self,
        list: &ListProgress,
        now: DateTime<Utc>,
        entries: Vec<Change>,
        step: PartStep,
    ) -> Writing<BatchResult> {
        let list = list.clone();
        self.begin_write(move |tx| {
            let part = begin_step(tx.sql, list.set, &step)?;
            let result = ingest_listed(tx, &list, now, Some(part), &entries)?;
            if let Some(end) = &step.end {
                // Once there is room they are followed, whether the part has changed or not.
                let filter = end.filter.as_deref();
                let filter = filter.filter(|_| result.unfollowed == 0);
                end_part(tx.sql, list.set, part, (filter, end))?;
            }
            Ok(result)
        })
    }
}

fn begin_step(sql: &Connection, set: SetId, step: &PartStep) -> Result<PartId, StoreError> {
    Ok(if step.begins {
        part::begin(sql, set, &step.uri)?
    } else {
        part::id_of(sql, set, &step.uri)?
    })
}

/// `filter`: with which the part was read; `None`: it counts as incomplete.
fn end_part(
    sql: &Tallied<'_>,
    set: SetId,
    part: PartId,
    (filter, end): (Option<&str>, &PartEnd),
) -> Result<(), StoreError> {
    part::end(sql, part, filter, end.evidence, end.bad_entries, &end.page)?;
    if let Some(document) = &end.document {
        document::save(sql, set, document)?;
    }
    Ok(())
}

fn ingest_listed(
    tx: &mut Tx<'_>,
    list: &ListProgress,
    now: DateTime<Utc>,
    part: Option<PartId>,
    entries: &[Change],
) -> Result<BatchResult, StoreError> {
    let sql = tx.sql;
    let mut context = BatchContext::read(sql, list.set, &list.source, list.origin, now)?;
    context.updates = Some(MembershipUpdates::default());
    let mut parts = part.map(|part| PartAssignment::new(sql, list.set, context.generation, part));
    let checks = list
        .checks
        .map(|rules| UndatedChecks::read(sql, list.set, rules, now));
    let mut checks = checks.transpose()?;
    let mut result = BatchResult::default();
    source_set::set_reading(sql, list.set, list.at)?;
    for entry in entries {
        result.count(ingest_listed_entry(
            sql,
            &context,
            list.at,
            parts.as_mut(),
            checks.as_mut(),
            entry,
        )?);
    }
    result.unfollowed = context.unfollowed.get();
    if let Some(updates) = &context.updates {
        updates.write(sql)?;
    }
    if let Some(checks) = checks {
        checks.save(sql, list.set)?;
    }
    if result.tasks > 0 || context.has_restored.get() {
        tx.wake(Wake::Tasks(list.source.clone()));
    }
    if context.has_versions.get() {
        tx.wake(Wake::Versions(list.source.clone()));
    }
    if let Some(seq) = context.last_entry.get() {
        tx.wake(Wake::Feed(seq));
    }
    Ok(result)
}

/// Whether the list has named the resource already, with a later modification.
fn is_listed_later(context: &BatchContext<'_>, state: &ResourceState, entry: &Change) -> bool {
    let is_named = state
        .membership
        .is_some_and(|membership| membership.generation == context.generation);
    let listed = match (&state.pending, &state.known) {
        (Some(pending), _) if state.is_pending_of_own_list => pending.changed_at,
        (None, Some(known)) => known.lastmod,
        _ => None,
    };
    is_named && entry.lastmod < listed
}

/// Notes that a list names a resource that is not selected: what the mirror has of it from before is not absent.
fn name_unwanted(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    parts: Option<&mut PartAssignment<'_>>,
    entry: &Change,
) -> Result<EntryOutcome, StoreError> {
    let state = resource::state(sql, context.source, &entry.uri, context.set)?;
    let Some(state) = state.filter(|state| state.membership.is_some()) else {
        return Ok(EntryOutcome::Known);
    };
    match parts {
        Some(parts) => state.join_listed(sql, context, parts)?,
        None => state.join_changed(sql, context, false)?,
    }
    state.respell(sql, entry)?;
    state.relate(sql, context, entry)?;
    if state.is_deletion_pending() && state.is_pending_of_own_list {
        // An earlier list did not name it.
        state.drop_task(sql, context)?;
    } else if state.pending.is_some() && !context.is_linked(state.id)? {
        task::unselect(sql, state.id)?;
    }
    Ok(EntryOutcome::Known)
}

/// Compares one entry of a list of the time `at`, and returns what became of it.
fn ingest_listed_entry(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    at: SourceTime,
    parts: Option<&mut PartAssignment<'_>>,
    mut checks: Option<&mut UndatedChecks>,
    entry: &Change,
) -> Result<EntryOutcome, StoreError> {
    if entry.kind == ChangeKind::Deleted {
        return delete_expired(sql, context, entry);
    }
    if entry.standing.is_some_and(Standing::is_irrelevant) {
        return name_unwanted(sql, context, parts, entry);
    }
    let state = ResourceState::of_change(sql, context, entry)?;
    let deleted_at = state.deleted_at(sql, context.set)?;
    if deleted_at.map(SourceTime::latest_possible) >= Some(at) && entry.changed_at <= deleted_at {
        return Ok(EntryOutcome::Known);
    }
    let state = state.decided_for(sql, context, entry)?;
    if is_listed_later(context, &state, entry) {
        // The part names it nevertheless.
        if let Some(parts) = parts {
            state.join_listed(sql, context, parts)?;
        }
        return Ok(EntryOutcome::Known);
    }
    let known = state.known.as_ref();
    let decision = state.planned_for_list(sql, context.set, at, entry)?;
    // A resource that was deleted after the snapshot is in the list, and does not belong to the set.
    let is_before_deletion =
        |known: &LocalState| known.deleted && known.latest_change() >= Some(at);
    let stays_deleted = decision == Decision::Older && known.is_some_and(is_before_deletion);
    if !stays_deleted {
        match parts {
            Some(parts) => state.join_listed(sql, context, parts)?,
            None => state.join_changed(sql, context, false)?,
        }
    }
    if decision != Decision::Older {
        state.respell(sql, entry)?;
        state.relate(sql, context, entry)?;
        state.follow_links(sql, context, entry)?;
    } else if !stays_deleted {
        state.follow_links_of_older(sql, context, entry)?;
    }
    announce(sql, context, &state, entry, decision)?;
    match decision {
        Decision::Task if plan_doubted(sql, context, checks.as_deref_mut(), &state, entry)? => {
            Ok(EntryOutcome::Known)
        }
        Decision::Task => {
            let kind = match known {
                Some(known) if !known.deleted => ChangeKind::Updated,
                _ => ChangeKind::Created,
            };
            let change = Change {
                kind,
                ..entry.clone()
            };
            let is_contradiction = known
                .is_some_and(|known| known.is_refuted_by(&entry.announced(), at, context.unbroken));
            let is_put = put_task(sql, context, state.id, &change)?;
            Ok(if !is_put {
                EntryOutcome::Known
            } else if is_contradiction {
                EntryOutcome::Contradiction
            } else {
                EntryOutcome::Task
            })
        }
        Decision::Done => {
            let is_checked = match checks {
                Some(checks) => checks.plan(sql, context, &state, entry)?,
                None => is_planned(&state, entry),
            };
            if !is_checked {
                // This also drops a deletion that was held back.
                if state.is_deletion_pending() {
                    state.drop_deletion(sql, context, &entry.uri)?;
                } else {
                    state.drop_task(sql, context)?;
                }
            }
            state.set_links(sql, context, entry)?;
            Ok(EntryOutcome::Known)
        }
        Decision::Older => {
            // The list may cover a change that happened before the pending one; at an unknown time, if nothing was covered.
            state.lower_since(sql, context.unbroken)?;
            Ok(EntryOutcome::Known)
        }
    }
}
