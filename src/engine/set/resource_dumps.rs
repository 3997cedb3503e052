//! Resource Dumps and their indexes (section 11): the baseline in a few requests, where a Source packages its resources.
//!
//! A dump is read as a Resource List is, package by package: the entries of a package's manifest become tasks, and the package
//! stays open until they have been executed. What was read of a dump is stored, so that an interruption costs at most a part
//! of one package.

use resourcesync::{Capability, SourceTime};
use url::Url;

use super::ingest::ingest_listed;
use super::list_parts::SnapshotParts;
use super::packages::PackageEntry;
use super::polled_document::{ChangedDocument, poll_document};
use super::remembered::UnreadDump;
use super::state::SetState;
use crate::engine::EngineError;
use crate::engine::documents::{Child, DocumentWalk, Entries, PartFailures, SummarizedDocument};
use crate::store::{DumpProgress, Origin, PackageRecord};

impl SetState {
    /// Ingests a Resource Dump of that time.
    pub(super) async fn ingest_resource_dump(
        &mut self,
        uri: &Url,
        changed: ChangedDocument,
        at: SourceTime,
        parts: &mut SnapshotParts,
    ) -> Result<(), EngineError> {
        let has_list = !self.offered(&Capability::ResourceList).is_empty();
        let digest = changed.record.digest;
        if let Some(unread) = self.unread_dump.as_ref().filter(|_| has_list)
            && unread.is(uri, &digest)
        {
            // Its packages would be downloaded at each poll, and prove nothing.
            return Err(unread.error());
        }
        let progress = DumpProgress {
            uri: uri.to_string(),
            digest,
        };
        let resumed = self.context.store.begin_dump(self.record.id, progress);
        let resumed = resumed.await?;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, resumed,
            "reading Resource Dump");
        let summary = &changed.read.summary;
        parts.may_change_unseen = summary.is_index && summary.head.md.at.is_none();
        let mut failures = PartFailures::default();
        let ingested = self
            .ingest_dumps(uri, changed.read, at, parts, &mut failures)
            .await;
        if let Err(EngineError::UnreadEntries { document, count }) = &ingested {
            self.unread_dump = Some(UnreadDump::of(uri, digest, document, *count));
        }
        ingested?;
        failures.into_result()
    }

    /// Ingests a dump, or all dumps of an index. A dump that was not read completely proves nothing; but an error of one does
    /// not keep the others from being ingested, unless there is a Resource List to read instead. One of which entries are damaged
    /// fails once the others are ingested.
    async fn ingest_dumps(
        &mut self,
        uri: &Url,
        read: SummarizedDocument,
        at: SourceTime,
        parts: &mut SnapshotParts,
        failures: &mut PartFailures,
    ) -> Result<(), EngineError> {
        let mut walk = DocumentWalk::of(Capability::ResourceDump);
        let all_named = expect_all_named(&read);
        if let Some(dump) = walk.enter(read)? {
            self.ingest_packages(dump, at, parts, failures).await?;
        }
        self.note_dump(uri, all_named, failures)?;
        while let Some(child) = walk.next().await? {
            if parts.leaves_out && self.rules_out(&child) {
                parts.has_left_out = true;
                parts.names_any = true;
                continue;
            }
            let entered = self.dump_at(&child).await.and_then(|read| {
                parts.add(&Capability::ResourceDump, &read.summary);
                let all_named = expect_all_named(&read);
                Ok((walk.enter(read)?, all_named))
            });
            let all_named = match entered {
                Ok((Some(dump), all_named)) => {
                    self.ingest_packages(dump, at, parts, failures).await?;
                    all_named
                }
                Ok((None, all_named)) => all_named,
                Err(error) => Err(error),
            };
            self.note_dump(&child.uri, all_named, failures)?;
        }
        self.report_repeated_indexes(&walk);
        Ok(())
    }

    /// Adds the error of a dump, or of an index, that could not be read, or not completely.
    fn note_dump(
        &mut self,
        uri: &Url,
        read: Result<(), EngineError>,
        failures: &mut PartFailures,
    ) -> Result<(), EngineError> {
        let Err(error) = read else {
            return Ok(());
        };
        self.report_failed_part(uri, &error);
        self.add_failure(failures, error)
    }

    /// A dump that an index names.
    async fn dump_at(&self, dump: &Child) -> Result<SummarizedDocument, EngineError> {
        dump.expect_new()?;
        let changed = poll_document(&self.context, self.record.id, &dump.uri, true).await?;
        // A document that is fetched anew is never unchanged.
        let changed = changed.ok_or(EngineError::Interrupted)?;
        changed.read.expect(&Capability::ResourceDump)?;
        changed.read.expect_something()?;
        Ok(changed.read)
    }

    fn add_failure(
        &self,
        failures: &mut PartFailures,
        error: EngineError,
    ) -> Result<(), EngineError> {
        if self.offered(&Capability::ResourceList).is_empty() {
            failures.add(error)
        } else {
            Err(error)
        }
    }

    async fn ingest_packages(
        &mut self,
        dump: SummarizedDocument,
        at: SourceTime,
        parts: &mut SnapshotParts,
        failures: &mut PartFailures,
    ) -> Result<(), EngineError> {
        let (set, store) = (self.record.id, self.context.store.clone());
        parts.has_read = true;
        let mut packages = Entries::of(dump.document);
        while let Some(entry) = packages.next().await? {
            let package = PackageEntry::of(entry);
            let (uri, version) = (package.uri.to_string(), package.version());
            let known = store.package(set, &uri).await?;
            if let Some(known) = known.filter(|known| known.version == version) {
                parts.absence.has_unproven_manifest |= !known.proves;
                // It was read before an interruption, and few dumps have empty packages.
                parts.names_any = true;
                continue;
            }
            let proves = match self.ingest_package(&package, at, parts).await {
                Ok(proves) => proves,
                Err(error) => {
                    self.add_failure(failures, error)?;
                    continue;
                }
            };
            parts.absence.has_unproven_manifest |= !proves;
            let record = PackageRecord {
                uri,
                version,
                proves,
            };
            store.end_package(set, record).await?;
        }
        Ok(())
    }

    /// Ingests a package; returns whether its manifest proves the absence of what it does not name. Fails if entries of the manifest
    /// are damaged, once the others are ingested.
    async fn ingest_package(
        &mut self,
        package: &PackageEntry,
        at: SourceTime,
        parts: &mut SnapshotParts,
    ) -> Result<bool, EngineError> {
        let (entries, summary, file) = self.open_manifest(package, Some(at)).await?;
        parts.names_any |= summary.entries > 0;
        let list = self.list_progress(Origin::ResourceDump, at);
        let result = ingest_listed(&self.context, &list, entries).await?;
        self.found += result.tasks;
        self.report_contradictions(result.contradicted).await;
        self.packages.end(package, &summary, file).await?;
        let is_stated = summary.head.md.capability == Some(Capability::ResourceDumpManifest);
        Ok(is_stated && !summary.is_of_draft() && summary.bad_entries() == 0)
    }
}

/// Rejects an index with entries that can't be read, and a dump with damaged ones: the dumps, or the packages, that they name are
/// unknown.
fn expect_all_named(read: &SummarizedDocument) -> Result<(), EngineError> {
    if read.summary.is_index {
        read.expect_all()
    } else {
        read.expect_undamaged()
    }
}
