//! Change Dumps (section 13): changes with their content, where no Change List states them or reaches back so far. A dump counts as an
//! index of Change Lists does: each of its packages is one. Its indexes and pages are read as those of Change Lists are.

use resourcesync::{Algorithm, Capability, Digest, DocumentSummary, Interval, SourceTime};
use resyncd_core::{NewsFilter, Span, Validators};

use super::entry_batches::EntrySource;
use super::ingest::{DocumentChanges, ingest_changes};
use super::packages::PackageEntry;
use super::polled_document::ChangedDocument;
use super::span::{end_of, span_of};
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::documents::{Entries, SummarizedDocument};
use crate::store::{DocumentRecord, Origin};

impl SetState {
    /// Ingests a dump that no index names, and commits what it covers.
    pub(super) async fn ingest_dump(
        &mut self,
        capability: &Capability,
        changed: ChangedDocument,
    ) -> Result<Span, EngineError> {
        let ChangedDocument { read, record } = changed;
        let until = read.summary.until;
        let (mut span, failed) = self
            .ingest_change_packages(capability, read, None, true)
            .await?;
        if let Some(error) = failed {
            return Err(error);
        }
        span.until = until.or(span.until);
        self.commit_span(span, Some(record)).await?;
        Ok(span)
    }

    /// Ingests those packages of a dump that may hold news, or of a Change List that lists packages; one that lists changes as well proves
    /// nothing. Returns what they cover, and the first error of one: it does not keep the later ones from being read. `record`: of a dump
    /// that an index names; `may_prove`: whether nothing before it is missing.
    pub(super) async fn ingest_change_packages(
        &mut self,
        capability: &Capability,
        dump: SummarizedDocument,
        record: Option<DocumentRecord>,
        may_prove: bool,
    ) -> Result<(Span, Option<EngineError>), EngineError> {
        let is_list = *capability == Capability::ChangeList;
        if is_list && dump.summary.packages_of_changes < dump.summary.entries {
            let document = dump.document.url().to_string();
            let end = self.document_end(&self.sequencer, None);
            self.ingest_news(dump, NewsFilter::everything(), end)
                .await?;
            return Err(EngineError::MixedPackages(document));
        }
        let mut failed = dump.expect_all().err();
        // Where one may be missing between two packages, it is not known where the second begins.
        let follow_each_other = failed.is_none();
        let mut span = Span {
            from: span_of(&dump.summary).from,
            until: None,
        };
        let mut reached = span.from;
        let mut packages = Entries::of(dump.document);
        while let Some(entry) = packages.next().await? {
            let mut package = PackageEntry::of(entry);
            let read = record_of(&package);
            // A package that does not state its begin begins where the one before it ends.
            package.from = package.from.or(reached.filter(|_| follow_each_other));
            span.from = span.from.or(package.from);
            // What follows one that was not read proves nothing, or that one would not be read later.
            let proves = may_prove && failed.is_none();
            match self.ingest_change_package(&package, read, proves).await {
                Ok(reach) => {
                    reached = reach.closed;
                    span.until = span.until.max(reach.until);
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    reached = package.until;
                    failed.get_or_insert(error);
                }
            }
        }
        if let Some(record) = record.filter(|_| failed.is_none()) {
            let end = self.end_without_proof(record);
            self.end_document(Origin::ChangeDump, end).await?;
        }
        Ok((span, failed))
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
        let (entries, summary, file) = self.open_manifest(package, None).await?;
        let ingesting = self.ingest_package_changes(package, entries, &summary, record, proves);
        let reach = ingesting.await?;
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
        let filter = self.news_of_package(package, summary);
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
    pub(super) fn news_of_package(
        &self,
        package: &PackageEntry,
        summary: &DocumentSummary,
    ) -> NewsFilter {
        let (span, _) = spans_of(package, summary);
        self.sequencer
            .news_of_list(span.interval(), end_of(summary))
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
