//! The parts of a Resource List: the lists that its index names, or the one list that it is. Parts that have not changed since
//! they were read last are not read again.

use url::Url;

use super::documents::{ChangedDocument, poll_document};
use super::ingest::ingest_part;
use super::snapshot::AbsenceProof;
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::documents::{Child, DeadParts, DocumentWalk, PartFailures};
use crate::protocol::{Capability, SourceTime};
use crate::store::{Origin, PartEnd, PartEvidence, PartId, UnchangedPart};
use crate::sync::{PartPlan, plan_part, unchanged_proof};

/// How many unchanged parts are committed in one transaction.
const UNCHANGED_A_STEP: usize = 256;

/// The parts of a Resource List, ingested or skipped.
#[derive(Default)]
pub(super) struct ListParts {
    /// How many entries could not be read.
    pub(super) bad_entries: u64,
    /// How many entries of indexes within the index could not be read.
    bad_index_entries: u64,
    /// Whether any resource is named.
    pub(super) names_any: bool,
    /// Whether a part may change while the document that names it does not.
    pub(super) may_change_unseen: bool,
    /// Unchanged parts that are not committed yet.
    unchanged: Vec<UnchangedPart>,
}

impl SetState {
    /// Ingests a list, or all lists of an index. An error of one does not keep the others from being ingested; but a list that
    /// was not read completely proves nothing.
    pub(super) async fn ingest_parts(
        &mut self,
        uri: &Url,
        changed: ChangedDocument,
        at: SourceTime,
        proof: AbsenceProof,
    ) -> Result<ListParts, EngineError> {
        let mut parts = ListParts::default();
        let mut walk = DocumentWalk::of(Capability::ResourceList);
        let has_time = changed.read.summary.head.md.at.is_some();
        parts.bad_entries = changed.read.summary.bad_entries();
        if let Some(list) = walk.enter(changed.read)? {
            let list = ChangedDocument {
                read: list,
                record: changed.record,
            };
            self.ingest_list_part(uri, list, None, at, &mut parts)
                .await?;
            return Ok(parts);
        }
        let (mut failures, mut dead) = (PartFailures::default(), DeadParts::default());
        let mut named = parts.bad_entries;
        self.add_unnamed_parts(&mut dead, uri, parts.bad_entries);
        while let Some(list) = walk.next().await? {
            named += 1;
            let unnamed = parts.bad_index_entries;
            let ingested = self.ingest_child(&list, &mut walk, at, proof, &mut parts);
            match ingested.await {
                Ok(()) => {}
                Err(error) => {
                    self.report_failed_part(&list.uri, &error);
                    if error.is_unusable() {
                        dead.add(error, 1);
                    } else {
                        failures.add(error)?;
                    }
                }
            }
            let unnamed = parts.bad_index_entries - unnamed;
            named += unnamed;
            self.add_unnamed_parts(&mut dead, &list.uri, unnamed);
            if parts.unchanged.len() >= UNCHANGED_A_STEP {
                self.commit_unchanged(&mut parts).await?;
            }
        }
        self.commit_unchanged(&mut parts).await?;
        self.report_repeated_indexes(&walk);
        self.report.add_dead_list_parts(dead.count());
        dead.into_result(uri, named)?;
        failures.into_result()?;
        parts.names_any = parts.names_any || self.unchanged_parts_name_any().await?;
        parts.may_change_unseen &= !has_time;
        Ok(parts)
    }

    /// Ingests a list that an index names, if it has changed. If it is an index itself, what it names comes next.
    async fn ingest_child(
        &mut self,
        list: &Child,
        walk: &mut DocumentWalk,
        at: SourceTime,
        proof: AbsenceProof,
        parts: &mut ListParts,
    ) -> Result<(), EngineError> {
        let set = self.record.id;
        let now = clock::now().wall;
        let part = self.context.store.part(set, &list.uri).await?;
        let plan = plan_part(part.map(|part| part.known), list.modified, now);
        if let Some(part) = part.filter(|_| plan == PartPlan::Unchanged) {
            parts.add_unchanged(part.id, part.bad_entries, None);
        }
        if matches!(plan, PartPlan::Unchanged | PartPlan::Repeated) {
            return Ok(());
        }
        let stated = PartEvidence {
            announced: unchanged_proof(list.modified, now),
            asked_at: now,
        };
        let anew = plan == PartPlan::Read;
        let changed = poll_document(&self.context, set, &list.uri, anew).await?;
        if let Some(changed) = changed.as_ref().filter(|_| proof != AbsenceProof::Unstated) {
            changed.read.expect_something()?;
        }
        match (changed, part) {
            (Some(ChangedDocument { read, record }), _) => {
                let bad_entries = read.summary.bad_entries();
                let Some(read) = walk.enter(read)? else {
                    parts.bad_index_entries += bad_entries;
                    parts.may_change_unseen = true;
                    return Ok(());
                };
                let changed = ChangedDocument { read, record };
                self.ingest_list_part(&list.uri, changed, Some(stated), at, parts)
                    .await?;
                parts.bad_entries += bad_entries;
            }
            (None, Some(part)) => parts.add_unchanged(part.id, part.bad_entries, Some(stated)),
            (None, None) => {}
        }
        parts.may_change_unseen |= stated.announced.is_none();
        Ok(())
    }

    /// Ingests the entries of a part. `stated`: what its index states of it; `None`: it is the Resource List itself, whose record
    /// is committed only together with what it proves.
    async fn ingest_list_part(
        &mut self,
        uri: &Url,
        changed: ChangedDocument,
        stated: Option<PartEvidence>,
        at: SourceTime,
        parts: &mut ListParts,
    ) -> Result<(), EngineError> {
        let bad_entries = changed.read.summary.bad_entries();
        parts.names_any |= changed.read.summary.entries > 0;
        let end = PartEnd {
            filter: self.context.source.filter.fingerprint().to_owned(),
            evidence: stated.unwrap_or(PartEvidence {
                announced: None,
                asked_at: clock::now().wall,
            }),
            bad_entries,
            document: stated.map(|_| changed.record),
        };
        let list = self.list_progress(Origin::ResourceList, at);
        let result = ingest_part(&self.context, &list, uri, changed.read.document, end).await?;
        self.found += result.tasks;
        Ok(())
    }

    /// Counts the parts whose entries in an index can't be read: what they name is unknown.
    fn add_unnamed_parts(&mut self, dead: &mut DeadParts, index: &Url, count: u64) {
        if count > 0 {
            let error = EngineError::UnreadEntries {
                document: index.to_string(),
                count,
            };
            self.report.add_dead(&error, count);
            dead.add(error, count);
        }
    }

    async fn unchanged_parts_name_any(&self) -> Result<bool, EngineError> {
        let store = &self.context.store;
        Ok(store.unchanged_parts_have_members(self.record.id).await?)
    }

    async fn commit_unchanged(&self, parts: &mut ListParts) -> Result<(), EngineError> {
        let unchanged = std::mem::take(&mut parts.unchanged);
        if !unchanged.is_empty() {
            self.context.store.mark_parts_unchanged(unchanged).await?;
        }
        Ok(())
    }
}

impl ListParts {
    fn add_unchanged(&mut self, id: PartId, bad_entries: u64, asked: Option<PartEvidence>) {
        self.bad_entries += bad_entries;
        self.unchanged.push(UnchangedPart {
            id,
            evidence: asked,
        });
    }
}
