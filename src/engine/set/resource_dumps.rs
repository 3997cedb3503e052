//! Resource Dumps and their indexes (section 11): the baseline in a few requests, where a Source packages its resources.
//!
//! A dump is read as a Resource List is, package by package: the entries of a package's manifest become tasks, and the package
//! stays open until they have been executed. What was read of a dump is stored, so that an interruption costs at most a part
//! of one package.

use resourcesync::{Capability, DocumentSummary, SourceTime};
use resyncd_core::{AbsenceFacts, AbsenceProof};
use url::Url;

use super::ingest::ingest_listed;
use super::packages::PackageEntry;
use super::polled_document::{ChangedDocument, poll_document};
use super::remembered::UnreadDump;
use super::snapshot::absence_notice;
use super::state::SetState;
use crate::engine::EngineError;
use crate::engine::documents::{
    Alternatives, Child, DocumentWalk, Entries, PartFailures, SummarizedDocument,
};
use crate::store::{DumpProgress, Origin, PackageRecord};

impl SetState {
    /// Reads the Resource Dump, unless it is the one that was read last. `unconditional`: in any case.
    pub(super) async fn read_resource_dump(
        &mut self,
        unconditional: bool,
    ) -> Result<(), EngineError> {
        let mut failed = Alternatives::default();
        for uri in self.offered(&Capability::ResourceDump) {
            match self.read_resource_dump_at(&uri, unconditional).await {
                Ok(()) => return Ok(()),
                Err(error) => failed.add(&uri, error)?,
            }
        }
        failed.into_result()
    }

    async fn read_resource_dump_at(
        &mut self,
        uri: &Url,
        unconditional: bool,
    ) -> Result<(), EngineError> {
        let set = self.record.id;
        if self.record.is_implied() {
            // After the baseline the Sitemap states what has changed.
            return if unconditional {
                Box::pin(self.read_direct_dump(uri)).await
            } else {
                Ok(())
            };
        }
        let Some(changed) = poll_document(&self.context, set, uri, unconditional).await? else {
            return Ok(());
        };
        if self.ingest_resource_dump(uri, changed, true).await? {
            return Ok(());
        }
        // The packages that were read are not read again.
        if let Some(changed) = poll_document(&self.context, set, uri, true).await? {
            self.ingest_resource_dump(uri, changed, false).await?;
        }
        Ok(())
    }

    /// Ingests a Resource Dump, and commits what it proves. `leaves_out`: whether dumps are left out that their index rules out, as parts of a
    /// Resource List are. Returns whether that was enough: what seems absent may be named by one of those.
    async fn ingest_resource_dump(
        &mut self,
        uri: &Url,
        changed: ChangedDocument,
        leaves_out: bool,
    ) -> Result<bool, EngineError> {
        let set = self.record.id;
        changed.read.expect(&Capability::ResourceDump)?;
        changed.read.expect_something()?;
        let (at, states_time) = time_of(&changed.read);
        if self.record.list_at.is_some_and(|known| at < known) {
            return Err(EngineError::OlderResourceList(uri.to_string()));
        }
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
        let resumed = self.context.store.begin_dump(set, progress).await?;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, resumed,
            "reading Resource Dump");
        let record = changed.record.clone();
        let is_remembered =
            !changed.read.summary.is_index || changed.read.summary.head.md.at.is_some();
        let mut proof = DumpProof::of(&changed.read.summary);
        proof.states_time = states_time;
        proof.leaves_out = leaves_out;
        let mut failures = PartFailures::default();
        let ingested = self
            .ingest_dumps(uri, changed.read, at, &mut proof, &mut failures)
            .await;
        if let Err(EngineError::UnreadEntries { document, count }) = &ingested {
            self.unread_dump = Some(UnreadDump::of(uri, digest, document, *count));
        }
        ingested?;
        failures.into_result()?;
        let store = &self.context.store;
        let absence = proof.absence();
        let may_delete = absence.is_complete() && store.has_absent_resources(set).await?;
        if proof.has_left_out && (may_delete || !proof.has_read) {
            return Ok(false);
        }
        if absence.is_complete() {
            self.delete_absent(Origin::ResourceDump, at, 1).await?;
        }
        self.set_notice(absence_notice(absence, "Resource Dump"));
        let record = is_remembered.then_some(record);
        self.commit_snapshot(Origin::ResourceDump, at, record, proof.names_any)
            .await?;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, "Resource Dump read");
        Ok(true)
    }

    /// Ingests a dump, or all dumps of an index. A dump that was not read completely proves nothing; but an error of one does
    /// not keep the others from being ingested, unless there is a Resource List to read instead. One of which entries are damaged
    /// fails once the others are ingested.
    async fn ingest_dumps(
        &mut self,
        uri: &Url,
        read: SummarizedDocument,
        at: SourceTime,
        proof: &mut DumpProof,
        failures: &mut PartFailures,
    ) -> Result<(), EngineError> {
        let mut walk = DocumentWalk::of(Capability::ResourceDump);
        let all_named = expect_all_named(&read);
        if let Some(dump) = walk.enter(read)? {
            self.ingest_packages(dump, at, proof, failures).await?;
        }
        self.note_dump(uri, all_named, failures)?;
        while let Some(child) = walk.next().await? {
            if proof.leaves_out && child.is_ruled_out(self.context.source.filter.selection()) {
                proof.has_left_out = true;
                proof.names_any = true;
                continue;
            }
            let entered = self.dump_at(&child).await.and_then(|read| {
                proof.add(&read.summary);
                let all_named = expect_all_named(&read);
                Ok((walk.enter(read)?, all_named))
            });
            let all_named = match entered {
                Ok((Some(dump), all_named)) => {
                    self.ingest_packages(dump, at, proof, failures).await?;
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
        proof: &mut DumpProof,
        failures: &mut PartFailures,
    ) -> Result<(), EngineError> {
        let (set, store) = (self.record.id, self.context.store.clone());
        proof.has_read = true;
        let mut packages = Entries::of(dump.document);
        while let Some(entry) = packages.next().await? {
            let package = PackageEntry::of(entry);
            let (uri, version) = (package.uri.to_string(), package.version());
            let known = store.package(set, &uri).await?;
            if let Some(known) = known.filter(|known| known.version == version) {
                proof.packages_prove &= known.proves;
                // It was read before an interruption, and few dumps have empty packages.
                proof.names_any = true;
                continue;
            }
            let proves = match self.ingest_package(&package, at, proof).await {
                Ok(proves) => proves,
                Err(error) => {
                    self.add_failure(failures, error)?;
                    continue;
                }
            };
            proof.packages_prove &= proves;
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
        proof: &mut DumpProof,
    ) -> Result<bool, EngineError> {
        let (entries, summary, file) = self.open_manifest(package, Some(at)).await?;
        proof.names_any |= summary.entries > 0;
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

/// Whether absence from a Resource Dump proves a deletion.
struct DumpProof {
    is_stated: bool,
    /// Whether a document of it is of version 0.1, which does not say that a dump has everything.
    is_of_draft: bool,
    states_time: bool,
    bad_entries: u64,
    packages_prove: bool,
    /// Whether any resource is named.
    names_any: bool,
    /// Whether dumps are left out that their index rules out, whether one was, and whether another one was read.
    leaves_out: bool,
    has_left_out: bool,
    has_read: bool,
}

impl DumpProof {
    fn of(summary: &DocumentSummary) -> Self {
        let mut proof = Self {
            is_stated: true,
            is_of_draft: false,
            states_time: true,
            bad_entries: 0,
            packages_prove: true,
            names_any: false,
            leaves_out: false,
            has_left_out: false,
            has_read: false,
        };
        proof.add(summary);
        proof
    }

    /// Adds one more document of the dump.
    fn add(&mut self, summary: &DocumentSummary) {
        self.is_stated &= summary.head.md.capability == Some(Capability::ResourceDump);
        self.is_of_draft |= summary.is_of_draft();
        self.bad_entries += summary.bad_entries();
    }

    fn absence(&self) -> AbsenceProof {
        AbsenceProof::of(AbsenceFacts {
            is_stated: self.is_stated,
            is_of_draft: self.is_of_draft,
            bad_entries: self.bad_entries,
            has_unproven_manifest: !self.packages_prove,
            is_untimed: !self.states_time,
            ..AbsenceFacts::default()
        })
    }
}

/// The time of a Resource Dump, and whether it states it: its `at`, or the oldest of its parts. Else the oldest time of its
/// entries stands for it.
fn time_of(read: &SummarizedDocument) -> (SourceTime, bool) {
    match read.stated_time(None) {
        Some(at) => (at, true),
        None => (read.guessed_time(read.summary.oldest_content), false),
    }
}
