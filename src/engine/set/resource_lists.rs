//! Resource Lists and their indexes (section 10): the baseline, and the proof where Change Lists fail.

use url::Url;

use super::documents::{ChangedDocument, poll_document};
use super::snapshot::AbsenceProof;
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::documents::Alternatives;
use crate::protocol::{Capability, SourceTime};
use crate::store::Origin;
use crate::sync::trusted_check_times;

impl SetState {
    /// Reads the Resource List, unless it is the one that was read last. `anew`: in any case.
    pub(super) async fn read_resource_list(&mut self, anew: bool) -> Result<(), EngineError> {
        let offered = self.offered(&Capability::ResourceList);
        if offered.is_empty() {
            return if anew {
                Err(EngineError::NoResourceList)
            } else {
                Ok(())
            };
        }
        let mut failed = Alternatives::default();
        for uri in offered {
            match self.read_resource_list_at(&uri, anew).await {
                Ok(()) => return Ok(()),
                Err(error) => failed.add(&uri, error)?,
            }
        }
        failed.into_result()
    }

    async fn read_resource_list_at(&mut self, uri: &Url, anew: bool) -> Result<(), EngineError> {
        let set = self.record.id;
        let filter = self.context.source.filter.fingerprint();
        let asked = trusted_check_times(clock::now().wall);
        let must_look = self
            .context
            .store
            .has_unproven_parts(set, filter, asked)
            .await?;
        let changed = poll_document(&self.context, set, uri, anew || must_look).await?;
        let Some(changed) = changed else {
            return Ok(());
        };
        // Parts that were read since the start of this process are not read again while others keep the list from being complete.
        let skips_unchanged = !anew || self.has_begun_parts;
        if self
            .ingest_resource_list(uri, changed, skips_unchanged)
            .await?
            == Ingested::Doubtful
            && let Some(changed) = poll_document(&self.context, set, uri, true).await?
        {
            self.ingest_resource_list(uri, changed, false).await?;
        }
        Ok(())
    }

    /// Ingests a Resource List, and commits what it proves. `skips_unchanged`: unchanged parts are not read again.
    async fn ingest_resource_list(
        &mut self,
        uri: &Url,
        changed: ChangedDocument,
        skips_unchanged: bool,
    ) -> Result<Ingested, EngineError> {
        let set = self.record.id;
        changed.read.expect(&Capability::ResourceList)?;
        if !self.record.is_implied() {
            changed.read.expect_something()?;
        }
        let (at, states_time) = time_of(&changed);
        let is_older = self.record.list_at.is_some_and(|known| at < known);
        if is_older && states_time {
            return Err(EngineError::OlderResourceList(uri.to_string()));
        }
        let proof = proof_of(&changed, is_older);
        let record = changed.record.clone();
        let filter = self.context.source.filter.fingerprint();
        let store = &self.context.store;
        store
            .begin_parts(set, uri, skips_unchanged.then_some(filter))
            .await?;
        self.has_begun_parts = true;
        store.begin_list(set).await?;
        // Nothing but a plain sitemap states its resources: what it states is never older than what is known.
        let is_only_document = self.record.is_implied() && !states_time;
        let ingested_at = if is_only_document {
            SourceTime::MAX
        } else {
            at
        };
        let parts = self.ingest_parts(uri, changed, ingested_at, proof).await?;
        let proof = proof.without(parts.bad_entries);
        if proof == AbsenceProof::Complete {
            if self.context.store.has_uncertain_members(set).await? {
                return Ok(Ingested::Doubtful);
            }
            self.delete_absent(Origin::ResourceList, at).await?;
        }
        self.note_proof(proof);
        self.context.store.drop_parts(set).await?;
        let record = (!parts.may_change_unseen).then_some(record);
        self.commit_snapshot(Origin::ResourceList, at, record, parts.names_any)
            .await?;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, "Resource List read");
        Ok(Ingested::Complete)
    }
}

/// How a Resource List was ingested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ingested {
    /// Completely.
    Complete,
    /// Resources may be gone that only skipped parts named: it proves nothing until all parts are read.
    Doubtful,
}

/// The time of a Resource List, and whether it states it. Without an `at` it is that of the newest entry: the list may be of any
/// later time, and its time may seem to go back when its newest resource is deleted.
fn time_of(changed: &ChangedDocument) -> (SourceTime, bool) {
    let read = &changed.read;
    match read.stated_time(None) {
        Some(at) => (at, true),
        None => (read.guessed_time(read.summary.newest), false),
    }
}

fn proof_of(changed: &ChangedDocument, is_older: bool) -> AbsenceProof {
    if changed.read.summary.head.md.capability.is_none() {
        AbsenceProof::Unstated
    } else if is_older {
        AbsenceProof::Older
    } else {
        AbsenceProof::Complete
    }
}
