//! Ingests the entries of a document: they become tasks in batches, the last of them together with what the document proves.
//! Where the document is the manifest of a package, the package's members are offered to the executor meanwhile.

use std::collections::{BTreeMap, HashSet};
use std::io::BufRead;
use std::sync::Arc;

use url::Url;

use super::changes::change_of;
use super::offering::Offering;
use super::package_files::OpenedPackage;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::fetch::FetchedDocument;
use crate::protocol::{ChangeKind, DocumentReader, Entry, SourceTime};
use crate::store::{
    BatchCommit, BatchResult, Change, ChangeBatch, ListProgress, Origin, PartEnd, PartStep, SetId,
};
use crate::sync::{NewsFilter, is_plausible};

/// How many entries are ingested in one transaction.
const BATCH: usize = 1000;
/// How many it may become, so that entries of one time stay together.
const MAX_BATCH: usize = 16 * BATCH;

/// Where entries are read from.
pub(super) enum EntrySource {
    /// A document that was fetched: its resources are fetched, too.
    Document(Box<FetchedDocument>),
    /// The manifest of a package, which has the resources.
    Package(OpenedPackage),
}

/// How the entries of a document that states changes are ingested.
pub(super) struct DocumentChanges {
    pub(super) origin: Origin,
    /// Whether the document's newest entry comes first.
    pub(super) newest_first: bool,
    pub(super) filter: NewsFilter,
    /// What is committed with the last batch.
    pub(super) commit: BatchCommit,
}

/// A change, and the path of its bytes in the package.
type ListedChange = (Change, Option<String>);

/// What is done with the entries.
enum Ingestion {
    Changes(SetId, Box<DocumentChanges>),
    Listed(ListProgress),
    Part(ListProgress, Box<(Url, PartEnd)>),
}

impl Ingestion {
    fn origin(&self) -> Origin {
        match self {
            Self::Changes(_, changes) => changes.origin,
            Self::Listed(list) | Self::Part(list, _) => list.origin,
        }
    }
}

/// Ingests the changes of a document that are news, and with the last of them commits what the document proves.
pub(super) async fn ingest_changes(
    context: &Arc<SourceContext>,
    set: SetId,
    entries: EntrySource,
    changes: DocumentChanges,
) -> Result<BatchResult, EngineError> {
    let ingestion = Ingestion::Changes(set, Box::new(changes));
    ingest(context, entries, ingestion).await
}

/// Ingests the entries of a part of a Resource List, and with the last of them commits its end.
pub(super) async fn ingest_part(
    context: &Arc<SourceContext>,
    list: ListProgress,
    uri: &Url,
    document: Box<FetchedDocument>,
    end: PartEnd,
) -> Result<BatchResult, EngineError> {
    let ingestion = Ingestion::Part(list, Box::new((uri.clone(), end)));
    ingest(context, EntrySource::Document(document), ingestion).await
}

/// Ingests the entries of a manifest of a Resource Dump.
pub(super) async fn ingest_listed(
    context: &Arc<SourceContext>,
    list: ListProgress,
    entries: EntrySource,
) -> Result<BatchResult, EngineError> {
    ingest(context, entries, Ingestion::Listed(list)).await
}

/// Reads the entries off the asynchronous threads. Dropping the future ends the wait for the executor.
async fn ingest(
    context: &Arc<SourceContext>,
    entries: EntrySource,
    ingestion: Ingestion,
) -> Result<BatchResult, EngineError> {
    let context = Arc::clone(context);
    let stop = context.stop.child_token();
    let _ends_wait = stop.clone().drop_guard();
    let ingesting = tokio::task::spawn_blocking(move || match entries {
        EntrySource::Document(mut document) => {
            let nothing = Offering::nothing(&context, stop);
            ingest_blocking(&context, ingestion, document.reader()?, nothing)
        }
        EntrySource::Package(OpenedPackage { package, uri }) => {
            let manifest = package.manifest(&uri, context.limits.document);
            let reader = manifest.map_err(|error| EngineError::of_package(&uri, error))?;
            let offering = Offering::of(&context, package, ingestion.origin(), stop);
            ingest_blocking(&context, ingestion, reader, offering)
        }
    });
    ingesting.await.map_err(|_| EngineError::Interrupted)?
}

fn ingest_blocking<R: BufRead>(
    context: &SourceContext,
    ingestion: Ingestion,
    reader: DocumentReader<R>,
    offering: Offering,
) -> Result<BatchResult, EngineError> {
    match ingestion {
        Ingestion::Changes(set, changes) => {
            ingest_changes_blocking(context, set, *changes, reader, offering)
        }
        Ingestion::Listed(list) => ingest_listed_blocking(context, &list, reader, offering),
        Ingestion::Part(list, part) => ingest_part_blocking(context, &list, *part, reader),
    }
}

fn ingest_changes_blocking<R: BufRead>(
    context: &SourceContext,
    set: SetId,
    changes: DocumentChanges,
    mut reader: DocumentReader<R>,
    mut offering: Offering,
) -> Result<BatchResult, EngineError> {
    let DocumentChanges {
        origin,
        newest_first,
        filter,
        commit,
    } = changes;
    let apply = |changes: Vec<Change>, commit: Option<BatchCommit>| {
        context.store.apply_blocking(ChangeBatch {
            set,
            source: context.name().to_owned(),
            origin,
            now: clock::now().wall,
            changes,
            end: commit,
        })
    };
    // Of entries with one time the later one counts; where the newest comes first, that is the one that is read first.
    let (mut moment, mut seen) = (None, HashSet::new());
    // Of the late changes of a resource only the last one of the document counts.
    let mut late_changes = BTreeMap::new();
    let (mut batch, mut last) = (Vec::new(), None);
    let mut sum = BatchResult::default();
    let now = clock::now().wall;
    let mut before = None;
    while let Some(mut entry) = reader.next_entry()? {
        let dated = entry
            .changed_at()
            .filter(|&stated| is_plausible(stated, now));
        let changed_at = match entry.changed_at().filter(|_| dated.is_none()) {
            // The list is read again and again: a deletion with an implausible time must not be repeated with it after the
            // resource was created anew. It gets the time of the entry before it.
            Some(_) if entry.md.change == Some(ChangeKind::Deleted) => before,
            _ => dated,
        };
        before = dated.or(before);
        if !filter.includes(changed_at) {
            continue;
        }
        if newest_first && moment != changed_at {
            seen.clear();
            moment = changed_at;
        }
        if newest_first && changed_at.is_some() && !seen.insert(entry.loc.clone()) {
            continue;
        }
        let path = entry.md.path.take();
        if filter.is_late(changed_at) {
            let loc = entry.loc.clone();
            let change = change_of(context, entry, ChangeKind::Updated, changed_at);
            let late = |change| Change {
                late: true,
                ..change
            };
            late_changes.extend(change.map(|change| (loc, (late(change), path))));
            continue;
        }
        // Entries of one time are ingested in one transaction: of a resource that is deleted and created within one second,
        // the deletion must not be visible alone.
        let has_same_time = changed_at.is_some() && changed_at == last;
        last = changed_at;
        if batch.len() >= BATCH && (!has_same_time || batch.len() >= MAX_BATCH) {
            sum.add(apply(std::mem::take(&mut batch), None)?);
            offering.settle()?;
        }
        if let Some(change) = change_of(context, entry, ChangeKind::Updated, changed_at) {
            offering.offer(&change, path);
            batch.push(change);
        }
    }
    for (change, path) in late_changes.into_values() {
        offering.offer(&change, path);
        batch.push(change);
    }
    sum.add(apply(batch, Some(commit))?);
    // What the document proves is committed: the members that nobody waits for any more are fetched by their own URIs.
    let _ = offering.settle();
    Ok(sum)
}

fn ingest_listed_blocking<R: BufRead>(
    context: &SourceContext,
    list: &ListProgress,
    mut reader: DocumentReader<R>,
    mut offering: Offering,
) -> Result<BatchResult, EngineError> {
    let mut sum = BatchResult::default();
    loop {
        let (entries, is_last) = next_batch(context, &mut reader)?;
        let mut batch = Vec::with_capacity(entries.len());
        for (change, path) in entries {
            offering.offer(&change, path);
            batch.push(change);
        }
        let writing = context.store.list_entries(list, clock::now().wall, batch);
        sum.add(writing.wait()?);
        offering.settle()?;
        if is_last {
            return Ok(sum);
        }
    }
}

fn ingest_part_blocking<R: BufRead>(
    context: &SourceContext,
    list: &ListProgress,
    (uri, end): (Url, PartEnd),
    mut reader: DocumentReader<R>,
) -> Result<BatchResult, EngineError> {
    let mut step = PartStep {
        uri,
        begins: true,
        end: None,
    };
    let mut end = Some(end);
    let mut sum = BatchResult::default();
    // While one batch is written, the next one is read.
    let mut written = None;
    loop {
        let (entries, is_last) = next_batch(context, &mut reader)?;
        if is_last {
            step.end = end.take();
        }
        let batch = entries.into_iter().map(|(change, _)| change).collect();
        let now = clock::now().wall;
        let writing = context.store.list_part(list, now, batch, step.clone());
        step.begins = false;
        if let Some(before) = written.replace(writing) {
            sum.add(before.wait()?);
        }
        if is_last {
            break;
        }
    }
    if let Some(last) = written {
        sum.add(last.wait()?);
    }
    Ok(sum)
}

/// The next wanted entries of a list, and whether they are the last.
fn next_batch<R: BufRead>(
    context: &SourceContext,
    reader: &mut DocumentReader<R>,
) -> Result<(Vec<ListedChange>, bool), EngineError> {
    let mut batch = Vec::with_capacity(BATCH);
    while batch.len() < BATCH {
        let Some(entry) = reader.next_entry()? else {
            return Ok((batch, true));
        };
        batch.extend(listed_change(context, entry));
    }
    Ok((batch, false))
}

/// The change that an entry of a Resource List or a manifest states.
fn listed_change(context: &SourceContext, mut entry: Entry) -> Option<ListedChange> {
    entry.md.change = None;
    let (path, lastmod) = (entry.md.path.take(), entry.lastmod);
    let change = change_of(context, entry, ChangeKind::Created, lastmod)?;
    Some((change, path))
}

/// How much of a package is needed: how many of the entries of its manifest's copy state content that the mirror does not
/// have. `at`: the time of the Resource Dump; `None` for a Change Dump, of which only what passes the filter counts.
pub(super) async fn weigh(
    context: &Arc<SourceContext>,
    set: SetId,
    mut document: Box<FetchedDocument>,
    at: Option<SourceTime>,
    filter: NewsFilter,
) -> Result<(Box<FetchedDocument>, PackageWeight), EngineError> {
    let context = Arc::clone(context);
    let weighing = tokio::task::spawn_blocking(move || {
        let weight = weigh_blocking(&context, set, document.reader()?, at, &filter)?;
        Ok((document, weight))
    });
    weighing.await.map_err(|_| EngineError::Interrupted)?
}

fn weigh_blocking<R: BufRead>(
    context: &SourceContext,
    set: SetId,
    mut reader: DocumentReader<R>,
    at: Option<SourceTime>,
    filter: &NewsFilter,
) -> Result<PackageWeight, EngineError> {
    let (mut batch, mut weight) = (Vec::new(), PackageWeight::default());
    let now = clock::now().wall;
    loop {
        let entry = reader.next_entry()?;
        let is_last = entry.is_none();
        let change = entry.and_then(|entry| {
            let changed_at = entry.changed_at().filter(|&it| is_plausible(it, now));
            match at {
                Some(_) => listed_change(context, entry).map(|(change, _)| change),
                None if filter.includes(changed_at) => {
                    change_of(context, entry, ChangeKind::Updated, changed_at)
                }
                None => None,
            }
        });
        batch.extend(change);
        if batch.len() >= BATCH || is_last {
            let entries = std::mem::take(&mut batch);
            weight.of += entries.len() as u64;
            let store = &context.store;
            weight.needed += store.count_needed(set, context.name(), at, &entries)?;
        }
        if is_last {
            return Ok(weight);
        }
    }
}

/// How many of the members of a package are needed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PackageWeight {
    needed: u64,
    of: u64,
}

impl PackageWeight {
    /// Whether less than half of the package is needed: then the needed resources are fetched one by one.
    pub(super) fn is_light(self) -> bool {
        self.needed * 2 < self.of || self.needed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::PackageWeight;

    #[test]
    fn package_of_which_less_than_half_is_needed_is_not_fetched() {
        for (needed, of, light) in [
            (0, 0, true),
            (0, 9, true),
            (1, 1, false),
            (1, 3, true),
            (2, 4, false),
            (4, 9, true),
            (5, 9, false),
        ] {
            let weight = PackageWeight { needed, of };
            assert_eq!(weight.is_light(), light, "{needed} of {of}");
        }
    }
}
