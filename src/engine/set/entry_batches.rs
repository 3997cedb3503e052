//! The entries of a document as changes, read in batches off the asynchronous threads.
//!
//! A call owns the reader, reads one batch, and returns both: a blocking thread waits for the disk, and for nothing else.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, Entry, SourceTime};
use resyncd_core::{NewsFilter, ResourceUri, identity, is_plausible};
use resyncd_fetch::{FetchedDocument, OwnedReader};
use url::Url;

use super::changes::{ListedChange, change_of, listed_change, only_version};
use super::late_news::{LateNews, check_remembered};
use super::moments::Moments;
use super::notification::Sender;
use super::package_files::OpenedPackage;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::documents::NextEntry;
use crate::store::{Change, SetId, VersionRule};

/// How many entries are ingested in one transaction.
pub(super) const BATCH: usize = 1000;
/// How many it may become, so that entries of one time stay together.
const MAX_BATCH: usize = 16 * BATCH;

/// Where entries are read from.
pub(super) enum EntrySource {
    /// A document that was fetched: its resources are fetched, too.
    Document(Box<FetchedDocument>),
    /// The manifest of a package, which has the resources.
    Package(OpenedPackage),
}

/// Some changes of a document, in its order.
#[derive(Default)]
pub(super) struct EntryBatch {
    pub(super) changes: Vec<ListedChange>,
    /// Whether the document ends with them.
    pub(super) is_last: bool,
}

impl EntryBatch {
    fn of(changes: Vec<ListedChange>, is_last: bool) -> Self {
        Self { changes, is_last }
    }
}

/// The entries of a document, a batch at a time.
pub(super) struct EntryBatches {
    context: Arc<SourceContext>,
    /// Where the document was fetched from.
    uri: Url,
    /// `None` after the last batch.
    rest: Option<EntriesLeft>,
}

enum EntriesLeft {
    Closed(EntrySource, EntrySelection),
    Open(Box<OwnedReader>, EntrySelection),
}

/// Which changes the entries become.
enum EntrySelection {
    /// Each entry states what exists.
    Listed,
    /// Each entry states a change, and those that are news count.
    News(Box<NewsSelection>),
}

impl EntryBatches {
    /// All entries of a Resource List, or of a manifest of a Resource Dump.
    pub(super) fn of_list(context: &Arc<SourceContext>, entries: EntrySource) -> Self {
        Self::of(context, entries, EntrySelection::Listed)
    }

    /// The entries that are news, of a document that states changes. `newest_first`: whether its newest entry comes first.
    pub(super) fn of_changes(
        context: &Arc<SourceContext>,
        set: SetId,
        entries: EntrySource,
        filter: NewsFilter,
        newest_first: bool,
    ) -> Self {
        let news = NewsSelection::of(set, filter, newest_first, None);
        Self::of(context, entries, EntrySelection::News(Box::new(news)))
    }

    fn of(context: &Arc<SourceContext>, entries: EntrySource, selection: EntrySelection) -> Self {
        Self {
            context: Arc::clone(context),
            uri: match &entries {
                EntrySource::Document(document) => document.url().clone(),
                EntrySource::Package(opened) => opened.uri.clone(),
            },
            rest: Some(EntriesLeft::Closed(entries, selection)),
        }
    }

    /// The next batch; `None` after the last one, which may be empty. Not cancel-safe: after a dropped call there is no further
    /// batch.
    pub(super) async fn next(&mut self) -> Result<Option<EntryBatch>, EngineError> {
        let Some(rest) = self.rest.take() else {
            return Ok(None);
        };
        let context = Arc::clone(&self.context);
        let reading = tokio::task::spawn_blocking(move || rest.read_batch(&context));
        let (rest, batch) = reading
            .await
            .map_err(|error| EngineError::of_join(&error, &self.uri))??;
        self.rest = rest;
        self.context.counters.step();
        Ok(Some(batch))
    }
}

impl EntriesLeft {
    fn read_batch(
        self,
        context: &SourceContext,
    ) -> Result<(Option<Self>, EntryBatch), EngineError> {
        let (mut reader, mut selection) = match self {
            Self::Closed(entries, selection) => (Box::new(open(entries, context)?), selection),
            Self::Open(reader, selection) => (reader, selection),
        };
        let batch = match &mut selection {
            EntrySelection::Listed => read_listed(context, &mut reader)?,
            EntrySelection::News(news) => news.read(context, &mut || reader.next_entry())?,
        };
        let rest = (!batch.is_last).then(|| Self::Open(reader, selection));
        Ok((rest, batch))
    }
}

fn open(entries: EntrySource, context: &SourceContext) -> Result<OwnedReader, EngineError> {
    match entries {
        EntrySource::Document(document) => Ok(document.into_reader()?),
        EntrySource::Package(OpenedPackage {
            manifest: Some(document),
            ..
        }) => Ok(document.into_reader()?),
        EntrySource::Package(OpenedPackage { package, uri, .. }) => {
            let base = context.base_uri(&uri);
            let manifest = package.manifest(base, context.limits.document);
            manifest.map_err(|error| EngineError::of_package(&uri, error))
        }
    }
}

fn read_listed(
    context: &SourceContext,
    reader: &mut OwnedReader,
) -> Result<EntryBatch, EngineError> {
    let mut changes = Vec::with_capacity(BATCH);
    while changes.len() < BATCH {
        let Some(entry) = reader.next_entry()? else {
            return Ok(EntryBatch::of(changes, true));
        };
        changes.extend(listed_change(&context.source, entry));
    }
    Ok(EntryBatch::of(changes, false))
}

/// Selects the changes of a document that are news, and retains what that depends on between two batches.
pub(super) struct NewsSelection {
    /// Of a notification.
    pub(super) sender: Option<Sender>,
    /// Whether any of them appeared late: in an interval that was covered before.
    pub(super) has_late: bool,
    moments: Moments,
    filter: NewsFilter,
    newest_first: bool,
    /// When the document was opened.
    now: DateTime<Utc>,
    /// Where the newest entry comes first: the time of the entry before, and the resources that entries of that time named. Of
    /// entries with one time the later one counts, and that is the one that is read first.
    moment: Option<SourceTime>,
    seen: HashSet<String>,
    /// The overtaken changes. Of those of a resource only the last one of the document counts.
    overtaken: BTreeMap<ResourceUri, ListedChange>,
    /// Those whose time was covered before.
    late_news: LateNews,
    /// After the last entry: what was not ingested yet.
    rest: Option<Vec<ListedChange>>,
    /// The plausible time of the entry before.
    before: Option<SourceTime>,
    /// The time of the last change of the batch.
    last: Option<SourceTime>,
    /// The first change of the next batch.
    next: Option<ListedChange>,
}

impl NewsSelection {
    /// Of a document of this set. `newest_first`: whether its newest entry comes first.
    pub(super) fn of(
        set: SetId,
        filter: NewsFilter,
        newest_first: bool,
        sender: Option<Sender>,
    ) -> Self {
        let now = clock::now().wall;
        Self {
            sender,
            has_late: false,
            moments: Moments::of(now, newest_first),
            late_news: LateNews::of(set, newest_first, filter.is_of_change_set()),
            filter,
            newest_first,
            now,
            moment: None,
            seen: HashSet::new(),
            overtaken: BTreeMap::new(),
            rest: None,
            before: None,
            last: None,
            next: None,
        }
    }

    /// The next changes: in the order of the document, and then those that appeared late or are overtaken. For a blocking thread.
    pub(super) fn read(
        &mut self,
        context: &SourceContext,
        next: &mut NextEntry<'_>,
    ) -> Result<EntryBatch, EngineError> {
        let mut changes: Vec<ListedChange> = self.next.take().into_iter().collect();
        if let Some(rest) = self.rest.take() {
            return Ok(self.end(changes, rest));
        }
        let selection = context.source.filter.selection();
        while let Some(mut entry) = self.moments.next(selection, next)? {
            let changed_at = self.time_of(&entry);
            let path = entry.md.path.take();
            let is_included = self.filter.includes(entry.md.change, changed_at);
            if is_included && self.is_replaced(&entry.loc, changed_at) {
                continue;
            }
            let mut change = change_of(&context.source, entry, changed_at);
            if let Some(sender) = &mut self.sender {
                change.take_if(|change| !sender.may_state(context, change));
            }
            if !is_included {
                if let Some(change) = change {
                    changes.extend(only_version(&change).map(|version| (version, None)));
                    self.late_news.add(context, (change, path))?;
                }
                // Nothing of one time is separated by that: these are older than what is ingested.
                let is_apart = changes
                    .iter()
                    .all(|(change, _)| change.version == VersionRule::OnlyStored);
                if changes.len() >= MAX_BATCH || changes.len() >= BATCH && is_apart {
                    return Ok(EntryBatch::of(changes, false));
                }
                continue;
            }
            if let Some(deletion) = change.as_ref().filter(|it| it.kind == ChangeKind::Deleted) {
                self.late_news.supersede(deletion);
            }
            if self.is_overtaken(changed_at) {
                if let Some(change) = change {
                    changes.extend(only_version(&change).map(|version| (version, None)));
                    check_remembered(self.overtaken.len())?;
                    let overtaken = Change {
                        overtaken: true,
                        ..change
                    };
                    let uri = overtaken.uri.clone();
                    self.overtaken.insert(uri, (overtaken, path));
                }
                continue;
            }
            // Entries of one time are ingested in one transaction: of a resource that is deleted and created within one second,
            // the deletion must not be visible alone.
            let has_same_time = changed_at.is_some() && changed_at == self.last;
            self.last = changed_at;
            let is_full = changes.len() >= BATCH && (!has_same_time || changes.len() >= MAX_BATCH);
            let change = change.map(|change| (change, path));
            if is_full {
                self.next = change;
                return Ok(EntryBatch::of(changes, false));
            }
            changes.extend(change);
        }
        let mut rest = self.late_news.finish(context)?;
        self.has_late = !rest.is_empty();
        rest.extend(std::mem::take(&mut self.overtaken).into_values());
        Ok(self.end(changes, rest))
    }

    /// A batch after the last entry, and what is left then.
    fn end(&mut self, mut changes: Vec<ListedChange>, mut rest: Vec<ListedChange>) -> EntryBatch {
        let left = rest.split_off(rest.len().min(BATCH));
        changes.extend(rest);
        self.rest = (!left.is_empty()).then_some(left);
        EntryBatch::of(changes, self.rest.is_none())
    }

    /// The time of an entry's change; `None` where it states no plausible one.
    fn time_of(&mut self, entry: &Entry) -> Option<SourceTime> {
        let stated = entry.changed_at();
        let dated = stated.filter(|&stated| is_plausible(stated, self.now));
        let changed_at = match stated.filter(|_| dated.is_none()) {
            // The list is read again and again: a deletion with an implausible time must not be repeated with it after the
            // resource was created anew. It gets the time of the entry before it.
            Some(_) if entry.md.change == Some(ChangeKind::Deleted) && self.sender.is_none() => {
                self.before
            }
            _ => dated,
        };
        self.before = dated.or(self.before);
        changed_at
    }

    /// Whether a change of that time is overtaken. What has no time is not, other than in a notification: a list that is open has no end,
    /// and it may be the newest change of it.
    fn is_overtaken(&self, changed_at: Option<SourceTime>) -> bool {
        if changed_at.is_none() && self.sender.is_some() {
            return self.filter.is_document_overtaken();
        }
        self.filter.is_overtaken(changed_at)
    }

    /// Whether another entry of the same time and resource counts in its place.
    fn is_replaced(&mut self, loc: &Url, changed_at: Option<SourceTime>) -> bool {
        if !self.newest_first {
            return false;
        }
        if self.moment != changed_at {
            self.seen.clear();
            self.moment = changed_at;
        }
        changed_at.is_some() && !self.seen.insert(identity(loc).into_owned())
    }
}
