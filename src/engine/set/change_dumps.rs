//! Change Dumps and their indexes (section 13): changes with their content, where no Change List states them or reaches back so
//! far. A dump counts as an index of Change Lists does: each of its packages is one.

use resourcesync::{Algorithm, Capability, Digest, DocumentSummary, Interval, SourceTime};
use resyncd_core::{NewsFilter, Span, Validators};
use url::Url;

use super::entry_batches::EntrySource;
use super::ingest::{DocumentChanges, count_needed_members, ingest_changes};
use super::packages::{PackageEntry, manifest_copy};
use super::polled_document::{ChangedDocument, poll_document};
use super::remembered::{ReadDump, is_fully_covered};
use super::span::{end_of, span_of};
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::documents::{
    Alternatives, Child, DocumentWalk, Entered, Entries, SummarizedDocument, expect_undamaged,
};
use crate::store::{DocumentRecord, Origin};

impl SetState {
    /// Reads the Change Dumps; returns what they cover, `None` if there are none.
    pub(super) async fn read_change_dumps(&mut self) -> Result<Option<Span>, EngineError> {
        let mut failed = Alternatives::default();
        for uri in self.offered(&Capability::ChangeDump) {
            match self.read_change_dump(&uri).await {
                Ok(span) => return Ok(Some(span)),
                Err(error) => failed.add(&uri, error)?,
            }
        }
        failed.into_result().map(|()| None)
    }

    async fn read_change_dump(&mut self, uri: &Url) -> Result<Span, EngineError> {
        // After a restart it is not known what an unchanged dump covers.
        let last = self.dump.clone().filter(|last| last.uri == *uri);
        let changed = poll_document(&self.context, self.record.id, uri, last.is_none());
        let (mut span, index) = match (changed.await?, &last) {
            (Some(changed), _) => {
                changed.read.expect(&Capability::ChangeDump)?;
                let index = changed.read.index_of_closed(uri).cloned();
                let ingested = self.ingest_change_dump(changed, last.as_ref()).await;
                let span = ingested.inspect_err(|_| self.forget_reaches())?;
                let before = last.as_ref().map(|last| last.span);
                self.report_older("older-change-dump", uri, before, span);
                (span, index)
            }
            (None, Some(last)) => (last.span, last.index.clone()),
            // A document that is fetched anew is never unchanged.
            (None, None) => return Err(EngineError::Interrupted),
        };
        // It is read, even if its index can't be fetched now.
        let index_had_failed = last.as_ref().is_none_or(|last| last.has_failed);
        self.dump = Some(ReadDump {
            uri: uri.clone(),
            span,
            index: index.clone(),
            has_failed: index.is_some() && index_had_failed,
        });
        // A closed dump states nothing more: its index names the one that follows.
        if let Some(index) = index
            && let Some(changed) = self.poll_linked_index(&index).await?
            && changed.read.summary.is_index
        {
            changed.read.expect(&Capability::ChangeDump)?;
            let ingested = self.ingest_change_dump(changed, last.as_ref()).await;
            span = ingested.inspect_err(|_| self.forget_reaches())?;
            if let Some(read) = &mut self.dump {
                (read.span, read.has_failed) = (span, false);
            }
        }
        Ok(span)
    }

    /// Has the parts read anew with the next poll: one that has not changed then may have been read now for the first time.
    fn forget_reaches(&mut self) {
        if let Some(read) = &mut self.dump {
            read.has_failed = true;
        }
    }

    /// Fetches the index that a closed dump belongs to; `None` if it does not exist.
    async fn poll_linked_index(
        &mut self,
        index: &Url,
    ) -> Result<Option<ChangedDocument>, EngineError> {
        match poll_document(&self.context, self.record.id, index, true).await {
            Err(error) if error.is_absence() => {
                self.report.add_dead_index(&error);
                Ok(None)
            }
            polled => polled,
        }
    }

    /// Ingests a dump, or those dumps of an index that may hold news, the oldest first. An error of one does not keep the later
    /// ones from being read; but then the dump proves nothing.
    pub(super) async fn ingest_change_dump(
        &mut self,
        changed: ChangedDocument,
        last: Option<&ReadDump>,
    ) -> Result<Span, EngineError> {
        let stated = Span {
            from: changed.read.summary.begins_at(),
            until: changed.read.summary.until,
        };
        // An index is read again at each poll, and so is a page: only its dumps, or the other pages, say whether there is news.
        let names_others = changed.read.summary.is_index || changed.read.next_page().is_some();
        let record = (!names_others).then(|| changed.record.clone());
        let mut progress = DumpRead::default();
        let mut walk = DocumentWalk::of(Capability::ChangeDump);
        self.ingest_dump_part(changed, false, &mut progress, &mut walk)
            .await?;
        while let Some(dump) = walk.next().await? {
            if let Err(error) = dump.expect_new() {
                progress.fail(error);
                continue;
            }
            let unconditional = last.is_none_or(|last| last.has_failed) || dump.is_page;
            match poll_document(&self.context, self.record.id, &dump.uri, unconditional).await {
                Ok(None) => {
                    let known = dump.until.or(last.and_then(|last| last.span.until));
                    progress.until = progress.until.max(known);
                }
                Ok(Some(changed)) => {
                    self.ingest_dump_part(changed, true, &mut progress, &mut walk)
                        .await?
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    self.report_failed_part(&dump.uri, &error);
                    progress.fail(error);
                }
            }
        }
        self.report_repeated_indexes(&walk);
        if let Some(error) = progress.failed {
            return Err(error);
        }
        let span = Span {
            from: stated.from.or(progress.from),
            until: stated.until.or(progress.until),
        };
        self.commit_span(span, Origin::ChangeDump, record).await?;
        Ok(span)
    }

    /// Ingests a Change List that lists packages: it counts as a Change Dump. One that lists changes as well proves nothing.
    pub(super) async fn ingest_listed_packages(
        &mut self,
        changed: ChangedDocument,
    ) -> Result<Span, EngineError> {
        let summary = &changed.read.summary;
        if summary.packages_of_changes == summary.entries {
            return self.ingest_change_dump(changed, None).await;
        }
        let document = changed.read.document.url().to_string();
        let end = self.document_end(&self.sequencer, None);
        self.ingest_news(changed.read, NewsFilter::everything(), end)
            .await?;
        Err(EngineError::MixedPackages(document))
    }

    /// Ingests one document: the packages of a dump, or the list of an index.
    async fn ingest_dump_part(
        &mut self,
        changed: ChangedDocument,
        is_part: bool,
        progress: &mut DumpRead,
        walk: &mut DocumentWalk,
    ) -> Result<(), EngineError> {
        let ChangedDocument { read, record } = changed;
        let (unread, lists_from) = (read.expect_all().err(), read.summary.lists_from);
        let sequencer = &self.sequencer;
        let is_fully_covered = |child: &Child| is_fully_covered(sequencer, child);
        let entered = match walk.enter_oldest_first(read, is_fully_covered).await {
            Ok(entered) => entered,
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => {
                progress.fail(error);
                return Ok(());
            }
        };
        if let Some(error) = unread {
            progress.fail(error);
        }
        match entered {
            Entered::List(dump) => {
                let record = is_part.then_some(record);
                self.ingest_change_packages(*dump, record, progress).await?;
            }
            Entered::Index { covered_until } => {
                progress.begin(lists_from);
                progress.until = progress.until.max(covered_until);
            }
        }
        Ok(())
    }

    /// Ingests those packages of a dump that may hold news. `record`: of a dump that an index names.
    async fn ingest_change_packages(
        &mut self,
        dump: SummarizedDocument,
        record: Option<DocumentRecord>,
        progress: &mut DumpRead,
    ) -> Result<(), EngineError> {
        let own = span_of(&dump.summary);
        let mut is_complete = dump.expect_all().is_ok();
        // Where one may be missing between two packages, it is not known where the second begins.
        let follow_each_other = is_complete;
        progress.begin(own.from);
        let mut reached = own.from;
        let mut packages = Entries::of(dump.document);
        while let Some(entry) = packages.next().await? {
            let mut package = PackageEntry::of(entry);
            let read = record_of(&package);
            // A package that does not state its begin begins where the one before it ends.
            package.from = package.from.or(reached.filter(|_| follow_each_other));
            progress.begin(package.from);
            // What follows one that was not read proves nothing, or that one would not be read later.
            let proves = follow_each_other && progress.failed.is_none();
            match self.ingest_change_package(&package, read, proves).await {
                Ok(reach) => {
                    reached = reach.closed;
                    progress.until = progress.until.max(reach.until);
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    reached = package.until;
                    is_complete = false;
                    progress.fail(error);
                }
            }
        }
        if let Some(record) = record.filter(|_| is_complete) {
            let end = self.end_without_proof(record);
            self.end_document(Origin::ChangeDump, end).await?;
        }
        Ok(())
    }

    /// Ingests the changes of a package that are news. Fails if entries of its manifest are damaged, once the others are ingested.
    /// `proves`: whether it may prove its interval.
    async fn ingest_change_package(
        &mut self,
        package: &PackageEntry,
        record: Option<DocumentRecord>,
        proves: bool,
    ) -> Result<PackageReach, EngineError> {
        let set = self.record.id;
        let interval = package
            .from
            .zip(package.until)
            .and_then(|(from, until)| Interval::new(from, until));
        if interval.is_some_and(|interval| self.sequencer.is_fully_covered(interval)) {
            return Ok(PackageReach::of(package));
        }
        let known = self.context.store.document(set, &package.uri).await?;
        if record.is_some() && known.map(|known| known.digest) == record.as_ref().map(|r| r.digest)
        {
            return Ok(PackageReach::of(package));
        }
        let manifest = Capability::ChangeDumpManifest;
        let mut copied = None;
        if let Some(copy) = manifest_copy(&self.context, set, package, &manifest).await? {
            let filter = self.news_filter(package, &copy.summary);
            let counting = count_needed_members(&self.context, set, copy.document, None, filter);
            let (document, needed) = counting.await?;
            if needed.are_few() {
                let entries = EntrySource::Document(document);
                let summary = &copy.summary;
                let reach = self
                    .ingest_package_changes(package, entries, summary, record, proves)
                    .await?;
                return expect_undamaged(&copy.summary, &package.uri).map(|()| reach);
            }
            copied = Some((document, copy.summary));
        }
        let has_copy = copied.is_some();
        let opening = self.packages.open(set, package, &manifest, has_copy);
        let (opened, summary, file) = opening.await?.split(copied);
        let entries = EntrySource::Package(opened);
        let reach = self
            .ingest_package_changes(package, entries, &summary, record, proves)
            .await?;
        self.packages.end(package, &summary, file).await?;
        Ok(reach)
    }

    async fn ingest_package_changes(
        &mut self,
        package: &PackageEntry,
        entries: EntrySource,
        summary: &DocumentSummary,
        record: Option<DocumentRecord>,
        proves: bool,
    ) -> Result<PackageReach, EngineError> {
        let (span, closed) = spans_of(package, summary);
        let filter = self.news_filter(package, summary);
        // A closed package proves its interval if that leaves no hole before it; else only the dump may.
        let front = self.sequencer.coverage().front();
        let mut trial = self.sequencer.clone();
        let is_whole = summary.oddities.damaged_entries() == 0;
        let follows = |closed: &Interval| front.is_some_and(|front| closed.from() <= front);
        let proven = closed.filter(|closed| proves && is_whole && follows(closed));
        if let Some(proven) = proven {
            trial.cover_list(clock::now(), proven);
        }
        let mut end = self.document_end(&trial, None);
        end.documents.extend(record.filter(|_| is_whole));
        let changes = DocumentChanges {
            origin: Origin::ChangeDump,
            newest_first: summary.newest_first,
            filter,
            end,
        };
        let result = ingest_changes(&self.context, self.record.id, entries, changes).await?;
        self.sequencer = trial;
        self.found += result.tasks;
        self.report_held_back(result.held_back);
        Ok(PackageReach {
            until: span.until,
            closed: closed.map(|closed| closed.until()),
        })
    }

    /// Which changes of a package are news.
    fn news_filter(&self, package: &PackageEntry, summary: &DocumentSummary) -> NewsFilter {
        let (span, _) = spans_of(package, summary);
        self.sequencer
            .news_of_list(span.interval(), end_of(summary))
    }
}

/// What was read of the parts of a Change Dump so far.
#[derive(Default)]
struct DumpRead {
    from: Option<SourceTime>,
    until: Option<SourceTime>,
    failed: Option<EngineError>,
}

impl DumpRead {
    /// Notes where the first part begins.
    fn begin(&mut self, from: Option<SourceTime>) {
        self.from = self.from.or(from);
    }

    fn fail(&mut self, error: EngineError) {
        self.failed.get_or_insert(error);
    }
}

/// How far a package reaches.
struct PackageReach {
    /// The time of its last change.
    until: Option<SourceTime>,
    /// Where it ends, if it states that: there the next one begins.
    closed: Option<SourceTime>,
}

impl PackageReach {
    /// As the dump's entry states it.
    fn of(package: &PackageEntry) -> Self {
        Self {
            until: package.until,
            closed: package.until,
        }
    }
}

/// What a package covers by its own statement, and the interval if it is closed.
fn spans_of(package: &PackageEntry, summary: &DocumentSummary) -> (Span, Option<Interval>) {
    let own = span_of(summary);
    let from = summary.begins_at().or(package.from);
    let closed = summary.until.or(package.until);
    let span = Span {
        from,
        until: closed.or(own.until),
    };
    let interval = from
        .zip(closed)
        .and_then(|(from, until)| Interval::new(from, until));
    (span, interval)
}

/// What is stored of a package that was read, so that it is not fetched again; `None` if nothing distinguishes its versions.
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
