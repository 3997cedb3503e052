//! How the entries of a document become tasks: they go to the store in batches, the last of them together with what the
//! document proves. Where the document is the manifest within a package, the package is at hand meanwhile.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::sync::Arc;

use url::Url;

use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::dumps::members::{Offering, Opened};
use crate::fetch::FetchedDocument;
use crate::protocol::{ChangeKind, DocumentReader, Entry, SourceTime};
use crate::store::{
    BatchCommit, BatchResult, Change, ChangeBatch, ListProgress, Origin, PartEnd, PartStep, SetId,
};
use crate::sync::{NewsFilter, is_plausible};

/// How many entries go into one transaction.
const BATCH: usize = 1000;
/// How many it may become, so that entries of one time stay together.
const LONGEST_BATCH: usize = 16 * BATCH;

/// What entries are taken from.
pub(in crate::engine) enum Listing {
    /// A document that was fetched: its resources are fetched, too.
    Document(Box<FetchedDocument>),
    /// The manifest within a package, which has the resources.
    Package(Opened),
}

/// How the entries of a document count that tells of changes.
pub(in crate::engine) struct Changes {
    pub(in crate::engine) origin: Origin,
    /// Whether the document's newest entry comes first.
    pub(in crate::engine) newest_first: bool,
    /// Those that are news.
    pub(in crate::engine) unknown: NewsFilter,
    /// What becomes true with the last of them.
    pub(in crate::engine) end: BatchCommit,
}

/// What an entry of a list tells, and where its bytes are in the package.
type Listed = (Change, Option<String>);

/// What is done with the entries.
enum Work {
    Changes(SetId, Box<Changes>),
    Listed(ListProgress),
    Part(ListProgress, Box<(Url, PartEnd)>),
}

impl SourceContext {
    /// Takes the changes of a document that are news, and with the last of them what the document proves.
    pub(in crate::engine) async fn take_changes(
        self: &Arc<Self>,
        set: SetId,
        listing: Listing,
        changes: Changes,
    ) -> Result<BatchResult, EngineError> {
        self.take(listing, Work::Changes(set, Box::new(changes)))
            .await
    }

    /// Takes the entries of a part of a Resource List, with the last of them its end.
    pub(in crate::engine) async fn take_part(
        self: &Arc<Self>,
        list: ListProgress,
        uri: &Url,
        document: Box<FetchedDocument>,
        end: PartEnd,
    ) -> Result<BatchResult, EngineError> {
        let work = Work::Part(list, Box::new((uri.clone(), end)));
        self.take(Listing::Document(document), work).await
    }

    /// Takes the entries of a manifest of a Resource Dump.
    pub(in crate::engine) async fn take_listed(
        self: &Arc<Self>,
        list: ListProgress,
        listing: Listing,
    ) -> Result<BatchResult, EngineError> {
        self.take(listing, Work::Listed(list)).await
    }

    /// Reads a listing off the asynchronous threads. When nobody waits for it any more, it does not wait for the applier.
    async fn take(
        self: &Arc<Self>,
        listing: Listing,
        work: Work,
    ) -> Result<BatchResult, EngineError> {
        let context = Arc::clone(self);
        let stop = self.stop.child_token();
        let _waits = stop.clone().drop_guard();
        let taking = tokio::task::spawn_blocking(move || match listing {
            Listing::Document(mut document) => {
                let nothing = Offering::nothing(&context, stop);
                context.work_off(work, document.reader()?, nothing)
            }
            Listing::Package(Opened { package, uri }) => {
                let manifest = package.manifest(&uri, context.limits.document);
                let reader = manifest.map_err(|error| EngineError::of_package(&uri, error))?;
                let offering = Offering::of(&context, package, work.origin(), stop);
                context.work_off(work, reader, offering)
            }
        });
        taking.await.map_err(|_| EngineError::Interrupted)?
    }

    fn work_off<R: BufRead>(
        &self,
        work: Work,
        reader: DocumentReader<R>,
        offering: Offering,
    ) -> Result<BatchResult, EngineError> {
        match work {
            Work::Changes(set, changes) => self.take_changes_now(set, *changes, reader, offering),
            Work::Listed(list) => self.take_listed_now(&list, reader, offering),
            Work::Part(list, part) => self.take_part_now(&list, *part, reader),
        }
    }

    fn take_changes_now<R: BufRead>(
        &self,
        set: SetId,
        changes: Changes,
        mut reader: DocumentReader<R>,
        mut offering: Offering,
    ) -> Result<BatchResult, EngineError> {
        let Changes {
            origin,
            newest_first,
            unknown,
            end,
        } = changes;
        // Of what has one time, the later entry counts; where the newest comes first, that is the one that is met first.
        let (mut moment, mut met) = (None, HashSet::new());
        // Of what is told late, only the last word of the document counts.
        let mut last_words = HashMap::new();
        let (mut batch, mut last) = (Vec::new(), None);
        let mut sum = BatchResult::default();
        let now = clock::now().wall;
        let mut before = None;
        while let Some(mut entry) = reader.next_entry()? {
            let dated = entry.changed_at().filter(|&told| is_plausible(told, now));
            let changed_at = match entry.changed_at().filter(|_| dated.is_none()) {
                // The list is read again and again: a deletion that can't be dated must not come again with it, when the
                // resource has long been created anew. It counts as of the entry beside it.
                Some(_) if entry.md.change == Some(ChangeKind::Deleted) => before,
                _ => dated,
            };
            before = dated.or(before);
            if !unknown.includes(changed_at) {
                continue;
            }
            if newest_first && moment != changed_at {
                met.clear();
                moment = changed_at;
            }
            if newest_first && changed_at.is_some() && !met.insert(entry.loc.clone()) {
                continue;
            }
            let path = entry.md.path.take();
            if unknown.is_late(changed_at) {
                let loc = entry.loc.clone();
                let change = self.change_of(entry, ChangeKind::Updated, changed_at);
                let late = |change| Change {
                    late: true,
                    ..change
                };
                last_words.extend(change.map(|change| (loc, (late(change), path))));
                continue;
            }
            // What has one time goes into one transaction: of a resource that is deleted and created within one second, the
            // deletion must not be seen alone.
            let goes_on = changed_at.is_some() && changed_at == last;
            last = changed_at;
            if batch.len() >= BATCH && (!goes_on || batch.len() >= LONGEST_BATCH) {
                let changes = std::mem::take(&mut batch);
                sum.add(
                    self.store
                        .apply_blocking(self.application(set, origin, changes, None))?,
                );
                offering.settle()?;
            }
            if let Some(change) = self.change_of(entry, ChangeKind::Updated, changed_at) {
                offering.offer(&change, path);
                batch.push(change);
            }
        }
        for (change, path) in last_words.into_values() {
            offering.offer(&change, path);
            batch.push(change);
        }
        sum.add(
            self.store
                .apply_blocking(self.application(set, origin, batch, Some(end)))?,
        );
        // What the document proves is kept by now; what is not waited for is fetched.
        let _ = offering.settle();
        Ok(sum)
    }

    pub(in crate::engine) fn application(
        &self,
        set: SetId,
        origin: Origin,
        changes: Vec<Change>,
        end: Option<BatchCommit>,
    ) -> ChangeBatch {
        ChangeBatch {
            set,
            source: self.name().to_owned(),
            origin,
            now: clock::now().wall,
            changes,
            end,
        }
    }

    fn take_listed_now<R: BufRead>(
        &self,
        list: &ListProgress,
        mut reader: DocumentReader<R>,
        mut offering: Offering,
    ) -> Result<BatchResult, EngineError> {
        let mut sum = BatchResult::default();
        loop {
            let (entries, is_last) = self.batch(&mut reader)?;
            let mut batch = Vec::with_capacity(entries.len());
            for (change, path) in entries {
                offering.offer(&change, path);
                batch.push(change);
            }
            let writing = self.store.list_entries(list, clock::now().wall, batch);
            sum.add(writing.wait()?);
            offering.settle()?;
            if is_last {
                return Ok(sum);
            }
        }
    }

    fn take_part_now<R: BufRead>(
        &self,
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
            let (entries, is_last) = self.batch(&mut reader)?;
            if is_last {
                step.end = end.take();
            }
            let batch = entries.into_iter().map(|(change, _)| change).collect();
            let now = clock::now().wall;
            let writing = self.store.list_part(list, now, batch, step.clone());
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

    /// The next entries of a list that are wanted, and whether there are no more.
    fn batch<R: BufRead>(
        &self,
        reader: &mut DocumentReader<R>,
    ) -> Result<(Vec<Listed>, bool), EngineError> {
        let mut batch = Vec::with_capacity(BATCH);
        while batch.len() < BATCH {
            let Some(entry) = reader.next_entry()? else {
                return Ok((batch, true));
            };
            batch.extend(self.listed(entry));
        }
        Ok((batch, false))
    }

    /// What an entry of a Resource List or of a manifest tells, and where its bytes are in the package.
    fn listed(&self, mut entry: Entry) -> Option<Listed> {
        entry.md.change = None;
        let (path, lastmod) = (entry.md.path.take(), entry.lastmod);
        let change = self.change_of(entry, ChangeKind::Created, lastmod)?;
        Some((change, path))
    }

    /// How many of the entries of a manifest's copy tell of content that the mirror does not have, and how many could.
    /// `at`: the time of the Resource Dump; `None` for a Change Dump, of which only what is `unknown` counts.
    pub(in crate::engine) async fn weigh(
        self: &Arc<Self>,
        set: SetId,
        mut document: Box<FetchedDocument>,
        at: Option<SourceTime>,
        unknown: NewsFilter,
    ) -> Result<(Box<FetchedDocument>, Weight), EngineError> {
        let context = Arc::clone(self);
        let weighing = tokio::task::spawn_blocking(move || {
            let weight = context.weigh_now(set, document.reader()?, at, &unknown)?;
            Ok((document, weight))
        });
        weighing.await.map_err(|_| EngineError::Interrupted)?
    }

    fn weigh_now<R: BufRead>(
        &self,
        set: SetId,
        mut reader: DocumentReader<R>,
        at: Option<SourceTime>,
        unknown: &NewsFilter,
    ) -> Result<Weight, EngineError> {
        let (mut batch, mut weight) = (Vec::new(), Weight::default());
        let now = clock::now().wall;
        loop {
            let entry = reader.next_entry()?;
            let is_last = entry.is_none();
            let change = entry.and_then(|entry| {
                let changed_at = entry.changed_at().filter(|&it| is_plausible(it, now));
                match at {
                    Some(_) => self.listed(entry).map(|(change, _)| change),
                    None if unknown.includes(changed_at) => {
                        self.change_of(entry, ChangeKind::Updated, changed_at)
                    }
                    None => None,
                }
            });
            batch.extend(change);
            if batch.len() >= BATCH || is_last {
                let entries = std::mem::take(&mut batch);
                weight.of += entries.len() as u64;
                weight.needed += self.store.count_needed(set, self.name(), at, &entries)?;
            }
            if is_last {
                return Ok(weight);
            }
        }
    }
}

/// How much of a package is needed.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Weight {
    needed: u64,
    of: u64,
}

impl Weight {
    /// Whether the package is more than what is needed of it: then that is fetched by itself.
    pub(in crate::engine) fn is_light(self) -> bool {
        self.needed * 2 < self.of || self.needed == 0
    }
}

impl Work {
    fn origin(&self) -> Origin {
        match self {
            Self::Changes(_, changes) => changes.origin,
            Self::Listed(list) | Self::Part(list, _) => list.origin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Weight;

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
            assert_eq!(Weight { needed, of }.is_light(), light, "{needed} of {of}");
        }
    }
}
