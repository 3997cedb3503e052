//! The parts of a Resource List: the lists that its index names, or the one list that it is. Those that are unchanged since
//! they were read last are not read again.

use url::Url;

use super::resource_lists::Proof;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::failures::Failures;
use crate::engine::reading::ChangedDocument;
use crate::engine::reading::index::{Child, IndexWalk};
use crate::engine::set::SetWorker;
use crate::fetch::FetchedDocument;
use crate::protocol::{Capability, SourceTime};
use crate::store::{KeptPart, Origin, PartEnd, PartId, PartWord};
use crate::sync::{PartPlan, plan_part, proof_of_part};

/// How many unchanged parts are noted in one transaction.
const KEPT_A_STEP: usize = 256;

/// What came of the parts of a Resource List.
#[derive(Default)]
pub(in crate::engine) struct ListParts {
    /// How many entries could not be read.
    pub(in crate::engine) bad_entries: u64,
    /// Whether any resource is named.
    pub(in crate::engine) names_any: bool,
    /// Whether a part may change while the document that names it stays the same.
    pub(in crate::engine) may_change_unseen: bool,
    /// Why a list of the index was passed over.
    pub(in crate::engine) passed_over: Option<EngineError>,
    /// Those that are unchanged, and not noted yet.
    kept: Vec<KeptPart>,
}

impl SetWorker {
    /// Takes a list, or all lists of an index. A list that can't be had does not keep the others from being taken; but what
    /// is not known to be complete proves nothing. Where nothing is to be proven, one that is not there for good is passed
    /// over.
    pub(in crate::engine) async fn take_parts(
        &mut self,
        uri: &Url,
        fresh: ChangedDocument,
        at: SourceTime,
        proof: Proof,
    ) -> Result<ListParts, EngineError> {
        let mut parts = ListParts::default();
        if !fresh.survey.is_index {
            self.take_part(uri, fresh, None, at, &mut parts).await?;
            return Ok(parts);
        }
        let has_time = fresh.survey.head.md.at.is_some();
        parts.bad_entries = fresh.survey.bad_entries();
        let mut walk = IndexWalk::of(fresh.document);
        let mut failures = Failures::default();
        while let Some(entry) = walk.next().await? {
            let list = Child::from(entry);
            let taken = self.take_named(&list, at, proof, &mut parts).await;
            let descended = taken.and_then(|index| match index {
                Some(index) => walk.descend(index),
                None => Ok(()),
            });
            if let Err(error) = descended {
                failures.pass(error)?;
            }
            if parts.kept.len() >= KEPT_A_STEP {
                self.keep(&mut parts).await?;
            }
        }
        self.keep(&mut parts).await?;
        failures.end()?;
        parts.names_any = parts.names_any || self.kept_parts_name_any().await?;
        parts.may_change_unseen &= !has_time;
        Ok(parts)
    }

    /// Takes a list that an index names, if it has changed; answers it if it is an index itself.
    async fn take_named(
        &mut self,
        list: &Child,
        at: SourceTime,
        proof: Proof,
        parts: &mut ListParts,
    ) -> Result<Option<Box<FetchedDocument>>, EngineError> {
        let set = self.record.id;
        let now = clock::now().wall;
        let part = self.context.store.part(set, &list.uri).await?;
        let plan = plan_part(part.map(|part| part.known), list.told, now);
        if let Some(part) = part.filter(|_| plan == PartPlan::Keep) {
            parts.keep(part.id, part.bad_entries, None);
        }
        if matches!(plan, PartPlan::Keep | PartPlan::Pass) {
            return Ok(None);
        }
        let word = PartWord {
            told: proof_of_part(list.told, now),
            asked_at: now,
        };
        let anew = plan == PartPlan::Read;
        let fresh = match self.context.fresh(set, &list.uri, anew).await {
            Ok(fresh) => fresh,
            Err(error) if proof == Proof::Unstated && error.is_permanent() => {
                parts.passed_over.get_or_insert(error);
                parts.may_change_unseen = true;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if let Some(fresh) = fresh.as_ref().filter(|_| proof != Proof::Unstated) {
            fresh.expect_something()?;
        }
        match (fresh, part) {
            (Some(fresh), _) if fresh.survey.is_index => {
                fresh.expect(&Capability::ResourceList)?;
                parts.bad_entries += fresh.survey.bad_entries();
                parts.may_change_unseen = true;
                return Ok(Some(fresh.document));
            }
            (Some(fresh), _) => {
                fresh.expect(&Capability::ResourceList)?;
                self.take_part(&list.uri, fresh, Some(word), at, parts)
                    .await?;
            }
            (None, Some(part)) => parts.keep(part.id, part.bad_entries, Some(word)),
            (None, None) => {}
        }
        parts.may_change_unseen |= word.told.is_none();
        Ok(None)
    }

    /// Takes the entries of a part. `word`: what its index tells of it; `None`: it is the Resource List itself, which is
    /// remembered only together with what it proves.
    async fn take_part(
        &mut self,
        uri: &Url,
        fresh: ChangedDocument,
        word: Option<PartWord>,
        at: SourceTime,
        parts: &mut ListParts,
    ) -> Result<(), EngineError> {
        let context = &self.context;
        let bad_entries = fresh.survey.bad_entries();
        parts.names_any |= fresh.survey.entries > 0;
        let end = PartEnd {
            filter: context.source.filter.fingerprint().to_owned(),
            word: word.unwrap_or(PartWord {
                told: None,
                asked_at: clock::now().wall,
            }),
            bad_entries,
            document: word.map(|_| fresh.record),
        };
        let list = self.list(Origin::ResourceList, at);
        let taken = context.take_part(list, uri, fresh.document, end).await?;
        self.found += taken.tasks;
        parts.bad_entries += bad_entries;
        Ok(())
    }

    async fn kept_parts_name_any(&self) -> Result<bool, EngineError> {
        let store = &self.context.store;
        Ok(store.kept_parts_name_any(self.record.id).await?)
    }

    async fn keep(&self, parts: &mut ListParts) -> Result<(), EngineError> {
        let kept = std::mem::take(&mut parts.kept);
        if !kept.is_empty() {
            self.context.store.keep_parts(kept).await?;
        }
        Ok(())
    }
}

impl ListParts {
    fn keep(&mut self, id: PartId, bad_entries: u64, asked: Option<PartWord>) {
        self.bad_entries += bad_entries;
        self.kept.push(KeptPart { id, asked });
    }
}
