//! Ingests the entries of a document: they become tasks in batches, the last of them together with what the document proves.
//! Where the document is the manifest of a package, the package's members are offered to the executor meanwhile.
//!
//! Invariant: what waits, for the database or for the executor, waits in asynchronous code. Blocking threads only read.

use std::sync::Arc;

use resourcesync::SourceTime;
use resyncd_core::NewsFilter;
use resyncd_fetch::FetchedDocument;
use url::Url;

use super::changes::{change_of, listed_change, note_change};
use super::entry_batches::{BATCH, EntryBatches, EntrySource};
use super::notices::note_unfollowed;
use super::offering::Offering;
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::contradictions::report_contradictions;
use crate::engine::documents::SummarizedDocument;
use crate::store::{
    BatchResult, ChangeBatch, DocumentEnd, ListProgress, NamedSoFar, Origin, PartEnd, PartStep,
    SetId, Writing,
};

/// How the entries of a document that states changes are ingested.
pub(super) struct DocumentChanges {
    pub(super) origin: Origin,
    /// Whether the document's newest entry comes first.
    pub(super) newest_first: bool,
    pub(super) filter: NewsFilter,
    /// What is committed with the last batch.
    pub(super) end: DocumentEnd,
}

/// Ingests the changes of a document that are news, and with the last of them commits what the document proves.
pub(super) async fn ingest_changes(
    context: &Arc<SourceContext>,
    set: SetId,
    entries: EntrySource,
    changes: DocumentChanges,
) -> Result<BatchResult, EngineError> {
    let DocumentChanges {
        origin,
        newest_first,
        filter,
        end,
    } = changes;
    let mut offering = Offering::of(context, &entries, origin);
    let mut batches = EntryBatches::of_changes(context, set, entries, filter, newest_first);
    let mut end = Some(end);
    let mut sum = BatchResult::default();
    let mut begins = true;
    while let Some(batch) = batches.next().await? {
        let ingested = context.store.ingest(ChangeBatch {
            set,
            source: context.name().to_owned(),
            origin,
            now: clock::now().wall,
            begins,
            changes: offering.offer(batch.changes),
            end: end.take_if(|_| batch.is_last),
        });
        sum.add(ingested.await?);
        begins = false;
        let tried = offering.wait_for_tasks().await;
        // What the document proves is committed with the last batch: the members that nobody waits for any more are fetched by
        // their own URIs.
        if !batch.is_last {
            tried?;
        }
    }
    note_unfollowed(context, set, sum.unfollowed);
    report_contradictions(context, set, sum.contradicted).await;
    Ok(sum)
}

impl SetState {
    /// Ingests what is news in a Change List.
    pub(super) async fn ingest_news(
        &mut self,
        read: SummarizedDocument,
        filter: NewsFilter,
        end: DocumentEnd,
    ) -> Result<(), EngineError> {
        let changes = DocumentChanges {
            origin: Origin::ChangeList,
            newest_first: read.summary.newest_first,
            filter,
            end,
        };
        let (document, entries) = (read.document.url().clone(), read.summary.entries);
        let source = EntrySource::Document(read.document);
        let result = ingest_changes(&self.context, self.record.id, source, changes).await?;
        self.found += result.tasks;
        self.report_held_back(result.held_back);
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %document, entries,
            news = result.tasks, "Change List read");
        Ok(())
    }
}

/// Ingests the entries of a part of a Resource List, and with the last of them commits its end.
pub(super) async fn ingest_part(
    context: &Arc<SourceContext>,
    list: &ListProgress,
    uri: &Url,
    document: Box<FetchedDocument>,
    end: PartEnd,
) -> Result<BatchResult, EngineError> {
    let mut batches = EntryBatches::of_list(context, EntrySource::Document(document));
    let mut step = PartStep {
        uri: uri.clone(),
        begins: true,
        end: None,
        named: NamedSoFar::default(),
    };
    let mut end = Some(end);
    let mut sum = BatchResult::default();
    // While one batch is written, the next one is read.
    let mut written = None;
    while let Some(batch) = batches.next().await? {
        step.end = end.take_if(|_| batch.is_last);
        let changes = batch
            .changes
            .into_iter()
            .map(|(change, _)| change)
            .collect();
        if step.end.is_some() {
            // The part counts as read only if all batches before the last one were committed.
            sum.add(done(written.take()).await?);
        }
        // An earlier batch has left links out: as after the last one, the part is read again once there is room.
        if sum.unfollowed > 0
            && let Some(end) = &mut step.end
        {
            end.filter = None;
        }
        let now = clock::now().wall;
        let writing = context.store.ingest_part(list, now, changes, step.clone());
        step.begins = false;
        sum.add(done(written.replace(writing)).await?);
    }
    sum.add(done(written).await?);
    note_unfollowed(context, list.set, sum.unfollowed);
    report_contradictions(context, list.set, sum.contradicted).await;
    Ok(sum)
}

async fn done(writing: Option<Writing<BatchResult>>) -> Result<BatchResult, EngineError> {
    match writing {
        Some(writing) => Ok(writing.done().await?),
        None => Ok(BatchResult::default()),
    }
}

/// Ingests the entries of a manifest of a Resource Dump. `named`: what it has named so far.
pub(super) async fn ingest_listed(
    context: &Arc<SourceContext>,
    list: &ListProgress,
    entries: EntrySource,
    named: &NamedSoFar,
) -> Result<BatchResult, EngineError> {
    let mut offering = Offering::of(context, &entries, list.origin);
    let mut batches = EntryBatches::of_list(context, entries);
    let mut sum = BatchResult::default();
    let ingesting = async {
        while let Some(batch) = batches.next().await? {
            let changes = offering.offer(batch.changes);
            let store = &context.store;
            let writing = store.ingest_listed(list, clock::now().wall, changes, named);
            sum.add(writing.done().await?);
            // Of a resource that is in the manifest twice the later entry replaces the task of the earlier one, as within a batch.
            offering.wait_for_earlier_tasks().await?;
        }
        Ok(())
    };
    let ingested: Result<(), EngineError> = ingesting.await;
    // Also after an error: members that are withdrawn before they are tried are fetched by their own URIs.
    let tried = offering.wait_for_tasks().await;
    ingested.and(tried)?;
    note_unfollowed(context, list.set, sum.unfollowed);
    report_contradictions(context, list.set, sum.contradicted).await;
    Ok(sum)
}

/// How much of a package is needed: how many of the entries of its manifest's copy state content that the mirror does not
/// have. `at`: the time of the Resource Dump; `None` for a Change Dump, of which only what passes the filter counts.
pub(super) async fn count_needed_members(
    context: &Arc<SourceContext>,
    set: SetId,
    copy: SummarizedDocument,
    at: Option<SourceTime>,
    filter: NewsFilter,
) -> Result<(SummarizedDocument, NeededMembers), EngineError> {
    let context = Arc::clone(context);
    let counting = copy.with_entries(move |next| {
        let (mut batch, mut needed) = (Vec::new(), NeededMembers::default());
        let now = clock::now().wall;
        loop {
            let entry = next()?;
            let is_last = entry.is_none();
            let change = entry.and_then(|mut entry| {
                if at.is_some() {
                    return listed_change(&context.source, entry).map(|(change, _)| change);
                }
                let changed_at = note_change(&mut entry, now);
                let is_included = filter.includes(entry.md.change, changed_at);
                is_included
                    .then(|| change_of(&context.source, entry, changed_at))
                    .flatten()
            });
            batch.extend(change);
            if batch.len() >= BATCH || is_last {
                let entries = std::mem::take(&mut batch);
                needed.of += entries.len() as u64;
                let store = &context.store;
                needed.needed += store.count_needed(set, context.name(), at, &entries)?;
                context.counters.step();
            }
            if is_last {
                return Ok(needed);
            }
        }
    });
    counting.await
}

/// How many of the members of a package are needed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NeededMembers {
    needed: u64,
    of: u64,
}

impl NeededMembers {
    /// Whether they are less than half of the package, or none: then the needed resources are fetched one by one.
    pub(super) fn are_few(self) -> bool {
        self.needed * 2 < self.of || self.needed == 0
    }
}

#[cfg(test)]
mod tests;
