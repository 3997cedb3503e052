//! Resource Dumps and their indexes (section 11): the baseline in a few requests, where a Source packages its resources.
//!
//! A dump is read as a Resource List is, package by package; what the manifest of a package tells becomes tasks, and the
//! package is at hand until they have been carried out. What has been read of a dump is remembered, so that an
//! interruption costs at most a part of one package.

use url::Url;

use super::packages::PackageEntry;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::failures::Failures;
use crate::engine::reading::ChangedDocument;
use crate::engine::reading::index::{Entries, IndexWalk};
use crate::engine::reading::ingest::Listing;
use crate::engine::set::SetWorker;
use crate::protocol::{Capability, DocumentSummary, SourceTime};
use crate::status::StatusError;
use crate::store::{DumpProgress, Origin, PackageRecord};
use crate::sync::{NewsFilter, latest_believed};

impl SetWorker {
    /// Reads the Resource Dump, unless it is the one that was read last. `anew`: in any case.
    pub(in crate::engine) async fn read_resource_dump(
        &mut self,
        anew: bool,
    ) -> Result<(), EngineError> {
        let mut failed = None;
        for uri in self.offered(&Capability::ResourceDump) {
            match self.read_resource_dump_at(&uri, anew).await {
                Ok(()) => return Ok(()),
                Err(error @ (EngineError::Store(_) | EngineError::Interrupted)) => {
                    return Err(error);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn read_resource_dump_at(&mut self, uri: &Url, anew: bool) -> Result<(), EngineError> {
        let set = self.record.id;
        let Some(fresh) = self.context.fresh(set, uri, anew).await? else {
            return Ok(());
        };
        fresh.expect_dump(&Capability::ResourceDump)?;
        fresh.expect_something()?;
        let (at, is_told) = time_of(&fresh);
        if self.record.list_at.is_some_and(|known| at < known) {
            return Err(EngineError::OlderResourceList(uri.to_string()));
        }
        let progress = DumpProgress {
            uri: uri.to_string(),
            digest: fresh.record.digest,
        };
        let goes_on = self.context.store.begin_dump(set, progress).await?;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, goes_on,
            "a Resource Dump is being read");
        let record = fresh.record.clone();
        let remembers = !fresh.survey.is_index || fresh.survey.head.md.at.is_some();
        let mut proof = Proof::of(&fresh.survey);
        proof.time_is_told = is_told;
        let mut failures = Failures::default();
        self.take_dumps(fresh, at, &mut proof, &mut failures)
            .await?;
        failures.end()?;
        if proof.is_whole() {
            self.take_absences(Origin::ResourceDump, at).await?;
        }
        self.notice(proof.notice());
        let record = remembers.then_some(record);
        self.end_list(Origin::ResourceDump, at, record, proof.names_any)
            .await?;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, "a Resource Dump was read");
        Ok(())
    }

    /// Takes a dump, or all dumps of an index. What is not known to be complete proves nothing; but one that can't be had
    /// does not keep the others from being taken, unless there is a Resource List to have all of it from.
    async fn take_dumps(
        &mut self,
        fresh: ChangedDocument,
        at: SourceTime,
        proof: &mut Proof,
        failures: &mut Failures,
    ) -> Result<(), EngineError> {
        if !fresh.survey.is_index {
            return self.take_packages(fresh, at, proof, failures).await;
        }
        let mut walk = IndexWalk::of(fresh.document);
        while let Some(dump) = walk.next().await? {
            let fresh = match self.dump_at(&dump.loc).await {
                Ok(fresh) => fresh,
                Err(error) => {
                    self.pass(failures, error)?;
                    continue;
                }
            };
            proof.count(&fresh.survey);
            if !fresh.survey.is_index {
                self.take_packages(fresh, at, proof, failures).await?;
            } else if let Err(error) = walk.descend(fresh.document) {
                self.pass(failures, error)?;
            }
        }
        Ok(())
    }

    /// A dump that an index names.
    async fn dump_at(&self, uri: &Url) -> Result<ChangedDocument, EngineError> {
        let fresh = self.context.fresh(self.record.id, uri, true).await?;
        // What is read anew is never unchanged.
        let fresh = fresh.ok_or(EngineError::Interrupted)?;
        fresh.expect_dump(&Capability::ResourceDump)?;
        fresh.expect_something()?;
        Ok(fresh)
    }

    fn pass(&self, failures: &mut Failures, error: EngineError) -> Result<(), EngineError> {
        if self.offered(&Capability::ResourceList).is_empty() {
            failures.pass(error)
        } else {
            Err(error)
        }
    }

    async fn take_packages(
        &mut self,
        fresh: ChangedDocument,
        at: SourceTime,
        proof: &mut Proof,
        failures: &mut Failures,
    ) -> Result<(), EngineError> {
        let (set, store) = (self.record.id, self.context.store.clone());
        let mut packages = Entries::of(fresh.document);
        while let Some(entry) = packages.next().await? {
            let package = PackageEntry::of(entry);
            let (uri, version) = (package.uri.to_string(), package.version());
            let known = store.package(set, &uri).await?;
            if let Some(known) = known.filter(|known| known.version == version) {
                proof.packages_prove &= known.proves;
                // It was read before an interruption, and few dumps have packages of nothing.
                proof.names_any = true;
                continue;
            }
            let proves = match self.take_package(&package, at, proof).await {
                Ok(proves) => proves,
                Err(error) => {
                    self.pass(failures, error)?;
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

    /// Takes what a package has; answers whether what it does not name is thereby proven not to be in it.
    async fn take_package(
        &mut self,
        package: &PackageEntry,
        at: SourceTime,
        proof: &mut Proof,
    ) -> Result<bool, EngineError> {
        let set = self.record.id;
        let manifest = Capability::ResourceDumpManifest;
        let contents = self.context.contents_of(set, package, &manifest).await?;
        let mut copy = None;
        if let Some(fresh) = contents {
            let weighing =
                self.context
                    .weigh(set, fresh.document, Some(at), NewsFilter::everything());
            let (document, weight) = weighing.await?;
            if weight.is_light() {
                return self
                    .take_manifest(Listing::Document(document), &fresh.survey, at, proof)
                    .await;
            }
            copy = Some((document, fresh.survey));
        }
        match self.context.open_package(set, package, &manifest).await {
            Ok(open) => {
                let (opened, survey, file) = open.split();
                let taken = self
                    .take_manifest(Listing::Package(opened), &survey, at, proof)
                    .await?;
                file.remove().await;
                Ok(taken)
            }
            Err(error) => match copy {
                // Nothing else tells what there is; but what is in there can be had by itself.
                Some((document, survey))
                    if error.is_unsupported()
                        && self.offered(&Capability::ResourceList).is_empty() =>
                {
                    tracing::warn!(code = error.code(), source = self.context.name(), package = %package.uri, %error,
                        "a package can't be used: what it has is fetched by itself");
                    self.take_manifest(Listing::Document(document), &survey, at, proof)
                        .await
                }
                _ => Err(error),
            },
        }
    }

    async fn take_manifest(
        &mut self,
        listing: Listing,
        survey: &DocumentSummary,
        at: SourceTime,
        proof: &mut Proof,
    ) -> Result<bool, EngineError> {
        proof.names_any |= survey.entries > 0;
        let list = self.list(Origin::ResourceDump, at);
        self.found += self.context.take_listed(list, listing).await?.tasks;
        let is_stated = survey.head.md.capability == Some(Capability::ResourceDumpManifest);
        Ok(is_stated && survey.bad_entries() == 0)
    }
}

/// What speaks against the proof that what a dump does not name is gone.
struct Proof {
    is_stated: bool,
    time_is_told: bool,
    bad_entries: u64,
    packages_prove: bool,
    /// Whether any resource is named.
    names_any: bool,
}

impl Proof {
    fn of(survey: &DocumentSummary) -> Self {
        let mut proof = Self {
            is_stated: true,
            time_is_told: true,
            bad_entries: 0,
            packages_prove: true,
            names_any: false,
        };
        proof.count(survey);
        proof
    }

    /// Takes in one more document of the dump.
    fn count(&mut self, survey: &DocumentSummary) {
        self.is_stated &= survey.head.md.capability == Some(Capability::ResourceDump);
        self.bad_entries += survey.bad_entries();
    }

    fn is_whole(&self) -> bool {
        self.is_stated && self.time_is_told && self.bad_entries == 0 && self.packages_prove
    }

    fn notice(&self) -> Option<StatusError> {
        let (code, message) = if !self.is_stated {
            (
                "unstated-capability",
                "the Resource Dump does not say that it is one: what it does not name is kept",
            )
        } else if self.bad_entries > 0 {
            (
                "bad-entries",
                "entries of the Resource Dump can't be read: what it does not name is kept",
            )
        } else if !self.packages_prove {
            (
                "unproven-manifest",
                "a manifest does not say that it is one, or entries of it can't be read: what the Resource Dump does not name is kept",
            )
        } else if !self.time_is_told {
            (
                "untold-time",
                "the Resource Dump does not tell what time it is of: what it does not name is kept",
            )
        } else {
            return None;
        };
        Some(StatusError::new(code, message, clock::now().wall))
    }
}

/// The time that a Resource Dump is of: its `at`, or the oldest of its parts. Whether it was told; if not, the oldest time
/// that there is stands for it.
fn time_of(fresh: &ChangedDocument) -> (SourceTime, bool) {
    let now = clock::now().wall;
    let latest = latest_believed(now);
    let survey = &fresh.survey;
    let believed = |time: &SourceTime| *time <= latest;
    if let Some(at) = survey.head.md.at.or(survey.lists_from).filter(believed) {
        return (at, true);
    }
    let at = survey.oldest_content.or(fresh.document.last_modified());
    (
        at.filter(believed).unwrap_or_else(|| SourceTime::from(now)),
        false,
    )
}
