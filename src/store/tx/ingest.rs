//! Ingests a document: its changes become tasks, and with the last of them coverage, inbox and validators move.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, ContentInfo, SourceTime};
use resyncd_core::{Coverage, Decision, Gap, LocalState, Standing, plan_change};
use rusqlite::Connection;

use super::batch_context::BatchContext;
use super::deletion_guard::{DeletionRules, decide_deletions};
use super::linked::end_unnamed;
use super::membership::{leave, leave_if_shared};
use super::put_task::{put_task, put_task_since};
use super::versions::{announce, announce_only};
use crate::store::change::{Change, Origin, VersionRule};
use crate::store::ids::{ChannelId, SetId};
use crate::store::tables::document::{self, DocumentRecord};
use crate::store::tables::inbox::{self, DeliveryOutcome, ProcessedDelivery};
use crate::store::tables::resource::{self, ResourceState};
use crate::store::tables::tally::Tallied;
use crate::store::tables::{
    channel, coverage, delivered, dump, dump_package, gap, membership, part, source_set, task,
};
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

/// The changes of a document, or some of them, for one transaction.
#[derive(Debug)]
pub struct ChangeBatch {
    /// The set.
    pub set: SetId,
    /// The label of its Source.
    pub source: String,
    /// The kind of document that states them.
    pub origin: Origin,
    /// The time on our clock.
    pub now: DateTime<Utc>,
    /// Whether the document begins with them: undecided deletions are those of a document that was not ingested to its end.
    pub begins: bool,
    /// The changes, in the order of the document.
    pub changes: Vec<Change>,
    /// What the end of the document commits; `None` for all batches but its last.
    pub end: Option<DocumentEnd>,
}

/// What becomes true when all changes of a document have become tasks.
#[derive(Debug)]
pub struct DocumentEnd {
    /// Decides whether the document's deletions are released.
    pub rules: DeletionRules,
    /// The new coverage and gaps of the set; `None`: the document proves nothing.
    pub progress: Option<(Coverage, Vec<Gap>)>,
    /// The notifications that were processed.
    pub deliveries: Vec<ProcessedDelivery>,
    /// Documents that need not be read again while they are unchanged.
    pub documents: Vec<DocumentRecord>,
    /// The time of the Resource List that was read completely.
    pub listed: Option<SourceTime>,
    /// The fingerprint of the filter with which that was read; `None`: as before.
    pub filter: Option<String>,
    /// The time up to which the Source's documents have been read; `None`: as before.
    pub read_until: Option<SourceTime>,
    /// The channels of which a gap was opened.
    pub missed_by: Vec<ChannelId>,
}

impl DocumentEnd {
    /// The end of a document that proves nothing.
    pub fn new(rules: DeletionRules) -> Self {
        Self {
            rules,
            progress: None,
            deliveries: Vec::new(),
            documents: Vec::new(),
            listed: None,
            filter: None,
            read_until: None,
            missed_by: Vec::new(),
        }
    }
}

/// What became of the entries of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchResult {
    /// Changes that became tasks.
    pub tasks: u64,
    /// Changes that are no news.
    pub known: u64,
    /// Deletions that were held back.
    pub held_back: u64,
    /// What only a hub has stated, and the entries of a Resource List or Resource Dump contradict, or what they do not name.
    pub contradicted: u64,
    /// Linked resources that were not followed, because the Source has as many resources as it may have.
    pub unfollowed: u64,
}

/// What became of one entry of a list, or of a resource of the set that it does not name.
pub(super) enum EntryOutcome {
    /// It became a task.
    Task,
    /// It became a task, and contradicts what only a hub has stated.
    Contradiction,
    /// It is no news.
    Known,
}

impl BatchResult {
    /// Counts what became of an entry.
    pub(super) fn count(&mut self, outcome: EntryOutcome) {
        match outcome {
            EntryOutcome::Task => self.tasks += 1,
            EntryOutcome::Contradiction => {
                self.tasks += 1;
                self.contradicted += 1;
            }
            EntryOutcome::Known => self.known += 1,
        }
    }

    /// Adds the result of another batch of the same document.
    pub fn add(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.known += other.known;
        self.held_back += other.held_back;
        self.contradicted += other.contradicted;
        self.unfollowed += other.unfollowed;
    }
}

impl Store {
    /// Makes tasks of changes and, at the end of their document, commits what moves with them.
    pub async fn ingest(self: &Arc<Self>, batch: ChangeBatch) -> Result<BatchResult, StoreError> {
        self.ingest_all(vec![batch]).await
    }

    /// As [`ingest`](Self::ingest), for several documents, one after the other, in one transaction. Returns the results together.
    pub async fn ingest_all(
        self: &Arc<Self>,
        batches: Vec<ChangeBatch>,
    ) -> Result<BatchResult, StoreError> {
        let gaps = batches.iter().filter_map(|batch| {
            let (_, gaps) = batch.end.as_ref()?.progress.as_ref()?;
            Some((batch.set, gaps.clone(), batch.now))
        });
        let gaps: Vec<_> = gaps.collect();
        let write = self.write(move |tx| {
            let mut sum = BatchResult::default();
            for batch in &batches {
                sum.add(ingest(tx, batch)?);
            }
            Ok(sum)
        });
        // Noted first: the database may show that a gap is closed before this goes on.
        let former = self.gap_history.of_sets(gaps.iter().map(|(set, ..)| *set));
        for (set, gaps, now) in gaps {
            self.gap_history.note(set, &gaps, now);
        }
        write
            .await
            .inspect_err(|_| self.gap_history.restore(former))
    }
}

fn ingest(tx: &mut Tx<'_>, batch: &ChangeBatch) -> Result<BatchResult, StoreError> {
    let sql = tx.sql;
    let context = BatchContext::read(sql, batch.set, &batch.source, batch.origin, batch.now)?;
    let mut result = BatchResult::default();
    if batch.begins {
        task::interrupt_undecided(sql, batch.set)?;
    }
    for change in &batch.changes {
        if ingest_change(sql, &context, change)? {
            result.tasks += 1;
        } else {
            result.known += 1;
        }
    }
    result.unfollowed = context.unfollowed.get();
    if let Some(end) = &batch.end {
        result.held_back = end_document(sql, &context, end)?;
    }
    if result.tasks > 0 || context.has_restored.get() || batch.end.is_some() {
        tx.wake(Wake::Tasks(batch.source.clone()));
    }
    if context.has_versions.get() {
        tx.wake(Wake::Versions(batch.source.clone()));
    }
    if let Some(seq) = context.last_entry.get() {
        tx.wake(Wake::Feed(seq));
    }
    Ok(result)
}

/// Ingests one change and returns whether it became a task.
fn ingest_change(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    change: &Change,
) -> Result<bool, StoreError> {
    if change.version == VersionRule::OnlyStored {
        announce_only(sql, context, change)?;
        return Ok(false);
    }
    let deletes = change.kind == ChangeKind::Deleted;
    if change.standing.is_some_and(Standing::is_irrelevant)
        && resource::state(sql, context.source, &change.uri, context.set)?.is_none()
    {
        return Ok(false);
    }
    let state = ResourceState::of_change(sql, context, change)?;
    if deletes {
        state.note_deletion(sql, context.set, change)?;
    } else if is_before_deletion_of_own_set(sql, context, &state, change)? {
        announce(sql, context, &state, change, Decision::Older)?;
        return Ok(false);
    }
    let mut state = state.decided_for(sql, context, change)?;
    if deletes && state.is_pending_of_own_list {
        // The set's own list is older than a deletion that is later than it.
        let listed_at = source_set::newest_list_at(sql, context.set)?;
        let is_later = change.changed_at > listed_at.map(SourceTime::latest_possible);
        if let Some(pending) = &mut state.pending {
            pending.is_listed = !is_later;
        }
    }
    let is_repeated = state.pending_at() == change.changed_at;
    if deletes && is_repeated && state.is_own_interrupted(context.set) {
        task::resume_interrupted(sql, state.id)?;
    }
    if deletes && is_only_in_another_set(sql, context, &state)? {
        return Ok(false);
    }
    let decision = plan_change(
        &change.announced(),
        state.known.as_ref(),
        state.pending.as_ref(),
    );
    // A change that is older than the applied deletion does not make the resource belong to the set again.
    let is_before_deletion =
        |known: &LocalState| known.deleted && change.changed_at <= known.changed_at;
    let stays_deleted =
        decision == Decision::Older && state.known.as_ref().is_some_and(is_before_deletion);
    if !stays_deleted && change.kind != ChangeKind::Deleted {
        match decision {
            Decision::Older => state.join_older(sql, context, change)?,
            Decision::Task | Decision::Done => {
                state.join_changed(sql, context, change.unconfirmed)?
            }
        }
    }
    if decision != Decision::Older {
        state.respell(sql, change)?;
        state.relate(sql, context, change)?;
        state.follow_links(sql, context, change)?;
    } else if !stays_deleted {
        state.follow_links_of_older(sql, context, change)?;
    }
    announce(sql, context, &state, change, decision)?;
    match decision {
        Decision::Task => {
            if change.kind == ChangeKind::Deleted {
                part::reread_parts_of(sql, state.id)?;
            }
            let announced = change.announced();
            let Some(known) = state
                .known
                .as_ref()
                .filter(|known| known.may_be_newer(&announced))
            else {
                return put_task(sql, context, state.id, change);
            };
            // Which of the two is newer is not known. What the Source answers now is: an older entry states nothing about that.
            let content = if change.changed_at < known.changed_at.max(known.answered_until) {
                ContentInfo {
                    media_type: change.content.media_type.clone(),
                    ..ContentInfo::default()
                }
            } else {
                change.content.clone()
            };
            let asked = Change {
                content,
                ..change.clone()
            };
            // `synced_until` is not lowered, because it was claimed already after the Source's answer; but it does not advance
            // either.
            let claimed = coverage::unbroken_until(sql, context.set)?;
            let since = asked.changed_at.max(claimed);
            put_task_since(sql, context, state.id, &asked, since)
        }
        Decision::Older => {
            // Without another set that has it the file stays until a Resource List shows that it is to go: what is known of it is
            // later than this deletion.
            if state.has_left(change) && leave_if_shared(sql, context.set, state.id)? {
                return Ok(false);
            }
            state.lower_since_for(sql, context.set, change)?;
            Ok(false)
        }
        Decision::Done => {
            if deletes {
                if leave_if_shared(sql, context.set, state.id)? {
                    // The task is for the other set.
                    return Ok(false);
                }
                leave(sql, context.set, state.id)?;
            }
            state.drop_task(sql, context)?;
            let known = state.known.as_ref();
            if known.is_some_and(|known| known.is_confirmed_by(&change.announced())) {
                resource::unconfirmed::set_confirmed(sql, state.id)?;
            }
            if !change.unconfirmed {
                state.set_links(sql, context, change)?;
            }
            Ok(false)
        }
    }
}

/// Whether the set of an update has stated a deletion since. The resource may be one of another set.
fn is_before_deletion_of_own_set(
    sql: &Connection,
    context: &BatchContext<'_>,
    state: &ResourceState,
    update: &Change,
) -> Result<bool, StoreError> {
    let Some(changed_at) = update.changed_at else {
        return Ok(false);
    };
    let deleted_at = state.deleted_at(sql, context.set)?;
    Ok(Some(changed_at) < deleted_at || update.overtaken && Some(changed_at) == deleted_at)
}

/// Whether a resource has left the set already, and belongs to another: that set's documents state what becomes of it.
fn is_only_in_another_set(
    sql: &Connection,
    context: &BatchContext<'_>,
    state: &ResourceState,
) -> Result<bool, StoreError> {
    let was_here = state.known.is_some();
    Ok(was_here
        && state.membership.is_none()
        && membership::is_in_another_set(sql, context.set, state.id)?)
}

/// Ends a document and returns how many deletions are held back.
fn end_document(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    end: &DocumentEnd,
) -> Result<u64, StoreError> {
    let set = context.set;
    end_unnamed(sql, context)?;
    let held = decide_deletions(sql, set, context.now, end.rules)?;
    if let Some((coverage, gaps)) = &end.progress {
        coverage::save(sql, set, coverage)?;
        gap::save(sql, set, gaps)?;
    }
    for &channel in &end.missed_by {
        channel::count_gap(sql, channel)?;
    }
    end_deliveries(sql, &end.deliveries)?;
    for document in &end.documents {
        document::save(sql, set, document)?;
    }
    if let Some(at) = end.listed {
        dump_package::delete_all(sql, set)?;
        dump::delete(sql, set)?;
        source_set::set_listed(sql, set, at, end.filter.as_deref())?;
    }
    if let Some(read_until) = end.read_until {
        source_set::set_read_until(sql, set, read_until)?;
    }
    source_set::end_finished_baselines(sql, set)?;
    Ok(held)
}

/// Removes processed deliveries from the inbox and counts their outcomes.
fn end_deliveries(sql: &Connection, deliveries: &[ProcessedDelivery]) -> Result<(), StoreError> {
    let mut counts: BTreeMap<(ChannelId, DeliveryOutcome), (u64, u64)> = BTreeMap::new();
    for &ProcessedDelivery {
        id,
        channel,
        outcome,
    } in deliveries
    {
        if let Some(length) = inbox::delete(sql, id)? {
            let (number, bytes) = counts.entry((channel, outcome)).or_default();
            *number += 1;
            *bytes += length;
        }
        match outcome {
            DeliveryOutcome::Applied | DeliveryOutcome::Duplicate => {}
            DeliveryOutcome::Undated => delivered::set_undated(sql, id)?,
            // It had no effect: if it is repeated, it may have one.
            DeliveryOutcome::Rejected => delivered::delete(sql, id)?,
        }
    }
    for ((channel, outcome), (number, bytes)) in counts {
        channel::count_processed(sql, channel, outcome, number, bytes)?;
    }
    Ok(())
}
