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
use super::polled_document::{ChangedDocument, read_document};
use super::remembered::UnreadDump;
use super::state::SetState;
use crate::engine::EngineError;
use crate::engine::documents::{Child, DocumentWalk, Entries, SummarizedDocument};
use crate::store::{DumpProgress, NamedSoFar, Origin, PackageRecord};

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
            && (&unread.uri, unread.digest) == (uri, digest)
        {
            // Its packages would be downloaded at each poll, and prove nothing.
            return Err(EngineError::UnreadEntries {
                document: unread.document.clone(),
                count: unread.count,
            });
        }
        let progress = DumpProgress {
            uri: uri.to_string(),
            digest,
        };
        let resumed = self.context.store.begin_dump(self.record.id, progress);
        let resumed = resumed.await?;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, resumed,
            "reading Resource Dump");
        parts.ends_early = has_list;
        let ingested = self.ingest_parts(uri, changed, at, parts).await;
        if let Err(EngineError::UnreadEntries { document, count }) = &ingested {
            self.unread_dump = Some(UnreadDump {
                uri: uri.clone(),
                digest,
                document: document.clone(),
                count: *count,
            });
        }
        ingested
    }

    /// Ingests a dump that an index names. If it is an index itself, what it names comes next.
    pub(super) async fn ingest_dump_part(
        &mut self,
        dump: &Child,
        walk: &mut DocumentWalk,
        at: SourceTime,
        parts: &mut SnapshotParts,
    ) -> Result<(), EngineError> {
        dump.expect_new()?;
        if self.rules_out(dump, parts) {
            parts.has_left_out = true;
            return Ok(());
        }
        let read = read_document(&self.context, self.record.id, &dump.uri).await?;
        let read = read.read;
        read.expect(&Capability::ResourceDump)?;
        read.expect_something()?;
        parts.add(&Capability::ResourceDump, &read.summary);
        let unread = read.expect_all();
        match walk.enter(read)? {
            Some(dump) => self.ingest_packages(dump, at, parts).await,
            None => unread,
        }
    }

    /// Ingests the packages of a dump. Fails if entries of it are damaged, once the others are ingested: the packages that they name are
    /// unknown.
    pub(super) async fn ingest_packages(
        &mut self,
        dump: SummarizedDocument,
        at: SourceTime,
        parts: &mut SnapshotParts,
    ) -> Result<(), EngineError> {
        let undamaged = dump.expect_undamaged();
        let (set, store) = (self.record.id, self.context.store.clone());
        parts.has_read = true;
        let mut packages = Entries::of(dump.document);
        while let Some(entry) = packages.next().await? {
            let package = PackageEntry::of(entry);
            let (uri, version) = (package.uri.to_string(), package.version());
            let known = store.package(set, &uri, &version, &parts.names);
            if let Some(known) = known.await? {
                parts.absence.has_unproven_manifest |= !known.proves;
                // It was read before an interruption, and few dumps have empty packages.
                parts.names_any = true;
                continue;
            }
            let named = NamedSoFar::default();
            let ingesting = self.ingest_package(&package, at, parts, &named);
            let proves = match ingesting.await {
                Ok(proves) => proves,
                Err(error) => match parts.fail(error) {
                    Ok(()) => continue,
                    Err(error) => {
                        parts.ended_by = Some(error);
                        return Ok(());
                    }
                },
            };
            parts.absence.has_unproven_manifest |= !proves;
            let record = PackageRecord {
                uri,
                version,
                proves,
            };
            store.end_package(set, record, &named).await?;
        }
        undamaged
    }

    /// Ingests a package; returns whether its manifest proves the absence of what it does not name. Fails if entries of the manifest
    /// are damaged, once the others are ingested.
    async fn ingest_package(
        &mut self,
        package: &PackageEntry,
        at: SourceTime,
        parts: &mut SnapshotParts,
        named: &NamedSoFar,
    ) -> Result<bool, EngineError> {
        let (entries, summary, file) = self.open_manifest(package, Some(at)).await?;
        parts.names_any |= summary.entries > 0;
        parts.entries += summary.entries;
        let list = self.list_progress(Origin::ResourceDump, at, &parts.names);
        let result = ingest_listed(&self.context, &list, entries, named).await?;
        self.found += result.tasks;
        self.packages.end(package, &summary, file).await?;
        let is_stated = summary.head.md.capability == Some(Capability::ResourceDumpManifest);
        Ok(is_stated && !summary.is_of_draft() && summary.bad_entries() == 0)
    }
}
