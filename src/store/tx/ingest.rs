//! Ingests a document: its changes become tasks, and with the last of them coverage, inbox and validators move.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, Interval, SourceTime};
use resyncd_core::{
    Answer, Applied, Coverage, Desired, Gap, SetKey, Standing, Stated, Statement, Voice,
};

use super::batch_context::BatchContext;
use super::deletion_guard::{DeletionRules, decide_deletions, decide_deletions_of_others};
use super::linked::end_unnamed;
use super::settle::{Cause, Settled};
use super::statements::{Resource, entry_of};
use super::versions::{AnnouncedAs, announce, announce_only};
use crate::store::change::{Change, Origin, VersionRule};
use crate::store::ids::{ChannelId, SetId};
use crate::store::sql::Connection;
use crate::store::tables::document::{self, DocumentRecord};
use crate::store::tables::inbox::{self, DeliveryOutcome, ProcessedDelivery};
use crate::store::tables::tally::Tallied;
use crate::store::tables::{
    channel, coverage, delivered, dump, dump_package, gap, part, source_set, statement, task,
};
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

/// How many statements of hubs are ended at the end of a document. The rest is at the end of the next one.
const MAX_CLAIMS: usize = 5000;

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
    /// The time of which the Source's documents have been read without a hole; `None`: as before.
    pub read: Option<Interval>,
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
            read: None,
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
    /// What only a hub has stated, and documents that cover its time contradict.
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
        source_set::end_reading(sql, batch.set)?;
    }
    for change in &batch.changes {
        if ingest_change(sql, &context, change)? {
            result.tasks += 1;
        } else {
            result.known += 1;
        }
    }
    result.unfollowed = context.unfollowed.get();
    part::reread_parts_of(sql, context.source, &context.deleted.take())?;
    if let Some(end) = &batch.end {
        end_document(sql, &context, end, &mut result)?;
    }
    decide_deletions_of_others(sql, &context)?;
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
    if change.standing.is_some_and(Standing::is_irrelevant)
        && context.state_of(&change.uri)?.is_none()
    {
        return Ok(false);
    }
    let mut resource = Resource::of_change(sql, context, change)?;
    let entry = entry_of(context.set, change, Stated::Change(change.kind));
    let deletes = change.kind == ChangeKind::Deleted;
    let applied = if !deletes && resource.is_overtaken(context, change)? {
        Applied::Older(change.changed_at)
    } else {
        resource.apply(&entry, change.overtaken)
    };
    if let Applied::Older(changed_at) = applied {
        announce(sql, context, &resource, change, AnnouncedAs::Older)?;
        if resource.existence_in(context.set).is_some() {
            resource.follow_links_of_older(sql, context, change)?;
        }
        resource.hold_back_for_older(sql, context, changed_at)?;
        // The statements of others may be older than that.
        resource.settle(sql, context, None, Cause::Document)?;
        return Ok(false);
    }
    if deletes {
        context.deleted.borrow_mut().insert(resource.state.id);
    } else {
        resource.join_changed(sql, context, change.unconfirmed)?;
    }
    resource.respell(sql, change)?;
    resource.relate(sql, context, change)?;
    resource.follow_links(sql, context, change)?;
    let is_wanted = resource.decide(context)?.desired != Desired::Settled;
    let announced = if is_wanted {
        AnnouncedAs::Pending
    } else {
        AnnouncedAs::InPlace
    };
    announce(sql, context, &resource, change, announced)?;
    if !is_wanted && !deletes && !change.unconfirmed {
        resource.set_links(sql, context, change)?;
    }
    let settled = resource.settle(sql, context, Some(change), Cause::Document)?;
    Ok(settled == Settled::Task)
}

/// Ends a document, and counts the deletions that are held back, and what it contradicts.
fn end_document(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    end: &DocumentEnd,
    result: &mut BatchResult,
) -> Result<(), StoreError> {
    let set = context.set;
    end_unnamed(sql, context)?;
    result.held_back = decide_deletions(sql, set, context.now, end.rules)?;
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
    if let Some(read) = end.read {
        source_set::set_read_time(sql, set, read)?;
    }
    result.contradicted += end_claims(sql, set, context.source, context.now)?;
    source_set::end_finished_baselines(sql, set)?;
    Ok(())
}

/// Ends what hubs have stated of times that the documents of the set cover now: these alone count. Returns how much of it they contradict.
fn end_claims(
    sql: &Tallied<'_>,
    set: SetId,
    source: &str,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    let context = BatchContext::read(sql, set, source, Origin::ChangeList, now)?;
    let mut contradicted = 0;
    for id in statement::covered_claims(sql, set, MAX_CLAIMS)? {
        let Some(mut resource) = Resource::find(sql, &context, id)? else {
            continue;
        };
        contradicted += u64::from(resource.end_claim(set));
        resource.settle(sql, &context, None, Cause::Event)?;
    }
    Ok(contradicted)
}

impl Resource {
    /// Ends what a hub has stated, and returns whether the documents of the set contradict it. An answer of the Source that contradicts it
    /// was reported when it came.
    fn end_claim(&mut self, set: SetId) -> bool {
        let is_claim = |it: &Statement| it.entry.voice_in_set() == (SetKey(set.0), Voice::Hub);
        let Some(place) = self.statements.iter().position(is_claim) else {
            return false;
        };
        let claim = self.statements.remove(place);
        let answer = self.answer_to(&claim);
        let was_served = answer.is_some_and(|answer| answer != Answer::Absent);
        match self.stated_by(set, Voice::Source) {
            Some(own) => {
                // What is stated of a later time may have happened since.
                let is_earlier = own.entry.at <= claim.entry.at;
                own.exists() != claim.exists() && is_earlier && (claim.exists() || !was_served)
            }
            None => claim.exists() && answer == Some(Answer::Absent),
        }
    }
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
