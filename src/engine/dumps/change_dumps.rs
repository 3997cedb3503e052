//! Change Dumps and their indexes (section 13): what has changed, with the content, where no Change List tells it or reaches
//! back so far. A dump counts as an index of Change Lists does: each of its packages is one.

use url::Url;

use super::packages::PackageEntry;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::lists::change_list_index::Waiting;
use crate::engine::lists::change_lists::{end_of, span_of};
use crate::engine::reading::ChangedDocument;
use crate::engine::reading::index::{DEPTH, Entries};
use crate::engine::reading::ingest::{Changes, Listing};
use crate::engine::set::SetWorker;
use crate::protocol::{
    Algorithm, Capability, Digest, DocumentSummary, Interval, SourceTime, Validators,
};
use crate::store::{BatchCommit, DocumentRecord, Origin};
use crate::sync::{NewsFilter, Span};

impl SetWorker {
    /// Reads the Change Lists, and the Change Dump where there are none, or where a gap is left that they don't reach back
    /// to. Answers what they cover together, and what kept them from being read.
    pub(in crate::engine) async fn read_changes(
        &mut self,
    ) -> (Option<Span>, Result<(), EngineError>) {
        let (lists, failed) = match self.read_change_lists().await {
            Ok(span) => (span, None),
            Err(error) => (None, Some(error)),
        };
        let begins = lists.and_then(|span| span.from);
        let gaps = self.sequencer.gaps();
        let is_short = gaps
            .iter()
            .any(|gap| begins.is_none_or(|begins| gap.interval.from() < begins));
        let is_final = matches!(failed, Some(EngineError::Store(_)));
        if is_final || (lists.is_some() && !is_short) {
            return (lists, failed.map_or(Ok(()), Err));
        }
        match self.read_change_dumps().await {
            Ok(dumps) => {
                let waits = self.sequencer.held() > 0;
                (together(lists, dumps, waits), failed.map_or(Ok(()), Err))
            }
            Err(error @ EngineError::Store(_)) => (lists, Err(error)),
            Err(error) => (lists, Err(failed.unwrap_or(error))),
        }
    }

    /// Reads the Change Dumps; answers what they cover, `None` if there are none.
    async fn read_change_dumps(&mut self) -> Result<Option<Span>, EngineError> {
        let mut failed = None;
        for uri in self.offered(&Capability::ChangeDump) {
            match self.read_change_dump(&uri).await {
                Ok(span) => return Ok(Some(span)),
                Err(error @ (EngineError::Store(_) | EngineError::Interrupted)) => {
                    return Err(error);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    async fn read_change_dump(&mut self, uri: &Url) -> Result<Span, EngineError> {
        // After a start nobody remembers what an unchanged dump covers.
        let last = self.dump.clone().filter(|last| last.uri == *uri);
        let fresh = self.context.fresh(self.record.id, uri, last.is_none());
        let (mut span, index) = match (fresh.await?, &last) {
            (Some(fresh), _) => {
                fresh.expect_dump(&Capability::ChangeDump)?;
                let head = &fresh.survey.head;
                let index = head.link("index");
                let index = index.filter(|index| head.md.until.is_some() && *index != uri);
                let index = index.cloned();
                let span = self.take_change_dump(fresh, last.as_ref()).await?;
                let before = last.as_ref().map(|last| last.span);
                self.tell_older("older-change-dump", uri, before, span);
                (span, index)
            }
            (None, Some(last)) => (last.span, last.index.clone()),
            // What is read anew is never unchanged.
            (None, None) => return Err(EngineError::Interrupted),
        };
        let mut read = ReadDump {
            uri: uri.clone(),
            span,
            index,
        };
        // A closed dump tells no more: its index knows the one that follows.
        if let Some(index) = &read.index
            && let Some(fresh) = self.context.fresh(self.record.id, index, true).await?
            && fresh.survey.is_index
        {
            fresh.expect_dump(&Capability::ChangeDump)?;
            span = self.take_change_dump(fresh, last.as_ref()).await?;
            read.span = span;
        }
        self.dump = Some(read);
        Ok(span)
    }

    /// Takes a dump, or those dumps of an index that can hold news, oldest first. A part that can't be had does not keep the
    /// later ones from being read; but then the whole proves nothing.
    async fn take_change_dump(
        &mut self,
        fresh: ChangedDocument,
        last: Option<&ReadDump>,
    ) -> Result<Span, EngineError> {
        let md = &fresh.survey.head.md;
        let stated = Span {
            from: md.from.or(md.at),
            until: fresh.survey.until,
        };
        // An index is read again each time: only its dumps tell whether there is news.
        let record = (!fresh.survey.is_index).then(|| fresh.record.clone());
        let mut walk = Walk::default();
        let mut dumps = Waiting::default();
        self.take_dump_part(fresh, 0, &mut walk, &mut dumps).await?;
        while let Some((dump, depth)) = dumps.next() {
            let anew = last.is_none();
            match self.context.fresh(self.record.id, &dump.uri, anew).await {
                Ok(None) => {
                    let known = dump.until.or(last.and_then(|last| last.span.until));
                    walk.until = walk.until.max(known);
                }
                Ok(Some(fresh)) => {
                    self.take_dump_part(fresh, depth, &mut walk, &mut dumps)
                        .await?
                }
                Err(EngineError::Store(error)) => return Err(error.into()),
                Err(error) => walk.failed = walk.failed.or(Some(error)),
            }
        }
        if let Some(error) = walk.failed {
            return Err(error);
        }
        let span = Span {
            from: stated.from.or(walk.from),
            until: stated.until.or(walk.until),
        };
        self.cover(span, Origin::ChangeDump, record).await?;
        Ok(span)
    }

    /// Takes one document: the packages of a dump, or what an index leads to.
    async fn take_dump_part(
        &mut self,
        fresh: ChangedDocument,
        depth: usize,
        walk: &mut Walk,
        dumps: &mut Waiting,
    ) -> Result<(), EngineError> {
        if let Err(error) = fresh.expect_dump(&Capability::ChangeDump) {
            walk.fail(error);
            return Ok(());
        }
        if let Err(error) = fresh.expect_all() {
            walk.fail(error);
        }
        if !fresh.survey.is_index {
            self.take_change_packages(fresh, depth > 0, walk).await?;
        } else if depth < DEPTH {
            walk.begin(fresh.survey.lists_from);
            let settled = dumps
                .add(fresh.document, depth + 1, &self.sequencer)
                .await?;
            walk.until = walk.until.max(settled);
        } else {
            walk.fail(EngineError::NestedIndex);
        }
        Ok(())
    }

    /// Takes those packages of a dump that can hold news.
    async fn take_change_packages(
        &mut self,
        fresh: ChangedDocument,
        is_part: bool,
        walk: &mut Walk,
    ) -> Result<(), EngineError> {
        let own = span_of(&fresh.survey);
        let mut is_whole = fresh.expect_all().is_ok();
        // Where one may be missing between two of them, nobody knows where the second begins.
        let follow_each_other = is_whole;
        let record = fresh.record;
        walk.begin(own.from);
        let mut reached = own.from;
        let mut packages = Entries::of(fresh.document);
        while let Some(entry) = packages.next().await? {
            let mut package = PackageEntry::of(entry);
            let read = record_of(&package);
            // Each begins where the one before it ended, if it does not say.
            package.from = package.from.or(reached.filter(|_| follow_each_other));
            walk.begin(package.from);
            match self.take_change_package(&package, read).await {
                Ok(told) => {
                    reached = told.closed;
                    walk.until = walk.until.max(told.until);
                }
                Err(error @ (EngineError::Store(_) | EngineError::Interrupted)) => {
                    return Err(error);
                }
                Err(error) => {
                    reached = package.until;
                    is_whole = false;
                    walk.fail(error);
                }
            }
        }
        if is_part && is_whole {
            let end = self.end_of_part(record);
            let ending =
                self.context
                    .application(self.record.id, Origin::ChangeDump, Vec::new(), Some(end));
            self.context.store.apply(ending).await?;
        }
        Ok(())
    }

    /// Takes the changes that a package tells and that are news.
    async fn take_change_package(
        &mut self,
        package: &PackageEntry,
        record: Option<DocumentRecord>,
    ) -> Result<Reach, EngineError> {
        let set = self.record.id;
        let interval = package
            .from
            .zip(package.until)
            .and_then(|(from, until)| Interval::new(from, until));
        if interval.is_some_and(|interval| self.sequencer.is_settled(interval)) {
            return Ok(Reach::of(package));
        }
        let known = self.context.store.document(set, &package.uri).await?;
        if record.is_some() && known.map(|known| known.digest) == record.as_ref().map(|r| r.digest)
        {
            return Ok(Reach::of(package));
        }
        let manifest = Capability::ChangeDumpManifest;
        if let Some(fresh) = self.context.contents_of(set, package, &manifest).await? {
            let unknown = self.news_of(package, &fresh.survey);
            let weighing = self.context.weigh(set, fresh.document, None, unknown);
            let (document, weight) = weighing.await?;
            if weight.is_light() {
                return self
                    .take_changes_of(package, Listing::Document(document), &fresh.survey, record)
                    .await;
            }
        }
        let open = self.context.open_package(set, package, &manifest).await?;
        let (opened, survey, file) = open.split();
        let reach = self
            .take_changes_of(package, Listing::Package(opened), &survey, record)
            .await?;
        file.remove().await;
        Ok(reach)
    }

    async fn take_changes_of(
        &mut self,
        package: &PackageEntry,
        listing: Listing,
        survey: &DocumentSummary,
        record: Option<DocumentRecord>,
    ) -> Result<Reach, EngineError> {
        let (span, closed) = spans_of(package, survey);
        let unknown = self.news_of(package, survey);
        // A closed package proves its interval, if that leaves no hole; if it does, the dump as a whole may have none.
        let front = self.sequencer.coverage().front();
        let mut trial = self.sequencer.clone();
        let proven = closed.filter(|closed| front.is_some_and(|front| closed.from() <= front));
        if let Some(proven) = proven {
            let _ = trial.change_list(clock::now(), proven);
        }
        let mut end: BatchCommit = self.end(&trial, None);
        end.documents.extend(record);
        let changes = Changes {
            origin: Origin::ChangeDump,
            newest_first: survey.newest_first,
            unknown,
            end,
        };
        let applied = self
            .context
            .take_changes(self.record.id, listing, changes)
            .await?;
        self.sequencer = trial;
        self.found += applied.tasks;
        self.tell_held(applied.held);
        Ok(Reach {
            until: span.until,
            closed: closed.map(|closed| closed.until()),
        })
    }

    /// Which changes of a package are news.
    fn news_of(&self, package: &PackageEntry, survey: &DocumentSummary) -> NewsFilter {
        let (span, _) = spans_of(package, survey);
        let unknown = match span.interval() {
            Some(interval) => self.sequencer.clone().change_list(clock::now(), interval),
            None => NewsFilter::everything(),
        };
        self.sequencer.lagging(unknown, end_of(survey))
    }
}

/// What is remembered of the Change Dump that was read last.
#[derive(Clone)]
pub(in crate::engine) struct ReadDump {
    uri: Url,
    /// What it covers, or what its index does.
    span: Span,
    /// The index that a closed one leads to.
    index: Option<Url>,
}

/// What has come of the parts of a Change Dump so far.
#[derive(Default)]
struct Walk {
    from: Option<SourceTime>,
    until: Option<SourceTime>,
    failed: Option<EngineError>,
}

impl Walk {
    /// Notes where the first part begins.
    fn begin(&mut self, from: Option<SourceTime>) {
        self.from = self.from.or(from);
    }

    fn fail(&mut self, error: EngineError) {
        self.failed.get_or_insert(error);
    }
}

/// How far a package reaches.
struct Reach {
    /// Up to where it tells changes.
    until: Option<SourceTime>,
    /// Where it ends, if it says so: there the next one begins.
    closed: Option<SourceTime>,
}

impl Reach {
    /// By the word of its dump alone.
    fn of(package: &PackageEntry) -> Self {
        Self {
            until: package.until,
            closed: package.until,
        }
    }
}

/// What a package covers by its own word, and the same if it is closed.
fn spans_of(package: &PackageEntry, survey: &DocumentSummary) -> (Span, Option<Interval>) {
    let own = span_of(survey);
    let md = &survey.head.md;
    let from = md.from.or(md.at).or(package.from);
    let closed = survey.until.or(package.until);
    let span = Span {
        from,
        until: closed.or(own.until),
    };
    let interval = from
        .zip(closed)
        .and_then(|(from, until)| Interval::new(from, until));
    (span, interval)
}

/// What is remembered of a package that was read, so as not to fetch it again; `None` if nothing tells one version of it
/// from the next.
fn record_of(package: &PackageEntry) -> Option<DocumentRecord> {
    let version = package.version();
    if version.is_empty() {
        return None;
    }
    let digest = Digest::of(Algorithm::Sha256, version.as_bytes());
    Some(DocumentRecord {
        uri: package.uri.to_string(),
        validators: Validators::default(),
        digest: digest.bytes().try_into().ok()?,
    })
}

/// What the Change Lists and the Change Dumps cover together. The dumps were read for what the lists do not reach back to; if
/// they end before the lists begin, neither tells what lies between. `waits`: a notification may, that has its turn next.
fn together(lists: Option<Span>, dumps: Option<Span>, waits: bool) -> Option<Span> {
    let (Some(lists), Some(dumps)) = (lists, dumps) else {
        return lists.or(dumps);
    };
    if lists.from.is_some() && !waits {
        return Some(dumps.then(lists));
    }
    Some(Span {
        from: lists.from.into_iter().chain(dumps.from).min(),
        until: lists.until.max(dumps.until),
    })
}
