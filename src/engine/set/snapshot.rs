//! What a Resource List or a Resource Dump proves that was read completely: everything before its time is known, and what it does
//! not name does not exist.

use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::protocol::{ResourceUri, SourceTime};
use crate::status::StatusError;
use crate::store::{BaselineState, ChangeBatch, DocumentRecord, Origin};

/// The code of [`AbsenceProof::Unstated`].
pub(super) const UNSTATED: &str = "unstated-capability";
/// The code of what is of version 0.1.
pub(super) const DRAFT_ABSENCE: &str = "draft-absence";

/// Whether absence from a Resource List proves a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbsenceProof {
    /// What it does not name does not exist.
    Complete,
    /// It proves nothing: it does not state that it is a Resource List.
    Unstated,
    /// It proves nothing: it, or what it stands for, is of version 0.1, which does not say that a document names everything.
    OfDraft,
    /// It proves nothing: it states no time, and its newest entry is older than that of one that was read before.
    Older,
    /// It proves nothing: so many of its entries can't be read.
    BadEntries(u64),
}

/// What absence from a Resource List depends on that was read completely.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListFacts {
    /// Whether it states that it is a Resource List.
    pub(super) is_stated: bool,
    /// Whether it or a part of it is of version 0.1, or a Change Set or a dump of that version belongs to it.
    pub(super) is_of_draft: bool,
    /// Whether it seems older than one that was read before.
    pub(super) is_older: bool,
    /// How many of its entries can't be read.
    pub(super) bad_entries: u64,
}

impl AbsenceProof {
    /// What absence from a list proves.
    pub(super) fn of_list(facts: ListFacts) -> Self {
        match facts {
            ListFacts {
                is_stated: false, ..
            } => Self::Unstated,
            ListFacts {
                is_of_draft: true, ..
            } => Self::OfDraft,
            ListFacts { is_older: true, .. } => Self::Older,
            ListFacts { bad_entries: 0, .. } => Self::Complete,
            ListFacts { bad_entries, .. } => Self::BadEntries(bad_entries),
        }
    }

    /// Whether nothing else can be expected where a Sitemap stands for the Capability List.
    pub(super) fn is_usual_of_sitemap(self) -> bool {
        matches!(self, Self::Unstated | Self::OfDraft)
    }

    /// The notice for the status.
    pub(super) fn notice(self) -> Option<StatusError> {
        let (code, why) = match self {
            Self::Complete => return None,
            Self::Unstated => (
                UNSTATED,
                "the list does not state that it is a Resource List, as a plain sitemap does not"
                    .to_owned(),
            ),
            Self::OfDraft => (
                DRAFT_ABSENCE,
                "the list is of version 0.1, which does not say that a list names everything"
                    .to_owned(),
            ),
            Self::Older => (
                "older-resource-list",
                "the Resource List states no time, and its newest entry is older than before"
                    .to_owned(),
            ),
            Self::BadEntries(count) => (
                "bad-entries",
                format!("{count} entries of the Resource List can't be read"),
            ),
        };
        let message = format!("{why}: resources that it does not name are not deleted");
        Some(StatusError::new(code, message, clock::now().wall))
    }
}

impl SetState {
    /// Commits what a snapshot proves that was read to its end. Deletions that one without any entry causes are held back: the
    /// Source may have failed to make it.
    pub(super) async fn commit_snapshot(
        &mut self,
        origin: Origin,
        at: SourceTime,
        record: Option<DocumentRecord>,
        names_any: bool,
    ) -> Result<(), EngineError> {
        let mut trial = self.sequencer.clone();
        trial.resource_list(clock::now(), at);
        let mut commit = self.commit_of(&trial, None);
        let list_at = self.record.list_at.max(Some(at));
        commit.listed = list_at;
        commit.documents.extend(record);
        commit.rules.holds_all = !names_any;
        // The deletions of what it does not name were planned before.
        let end = ChangeBatch {
            begins: false,
            ..self.change_batch(origin, Vec::new(), Some(commit))
        };
        let result = self.context.store.apply(end).await?;
        self.sequencer = trial;
        self.record.list_at = list_at;
        if self.record.baseline == BaselineState::Missing {
            self.record.baseline = BaselineState::Listed;
        }
        self.report_held(result.held);
        Ok(())
    }

    /// Plans the deletion of what a complete list does not name, nor did as many readings before as make `readings` with this
    /// one. What the filter excludes was not looked for.
    pub(super) async fn delete_absent(
        &self,
        origin: Origin,
        at: SourceTime,
        readings: u32,
    ) -> Result<(), EngineError> {
        let list = self.list_progress(origin, at);
        let mut contradicted = 0;
        loop {
            let filter = self.context.source.filter.clone();
            let wants = move |uri: &ResourceUri| filter.wants(uri);
            let (store, now) = (&self.context.store, clock::now().wall);
            let step = store.list_absent(&list, now, readings, wants);
            match step.await? {
                Some(step) => {
                    self.context.counters.step();
                    contradicted += step.contradicted;
                }
                None => break,
            }
        }
        self.report_contradictions(contradicted).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_proves_a_deletion_only_where_nothing_is_in_doubt() {
        let stated = ListFacts {
            is_stated: true,
            ..ListFacts::default()
        };
        let of_draft = ListFacts {
            is_of_draft: true,
            ..stated
        };
        let older = ListFacts {
            is_older: true,
            ..stated
        };
        let damaged = ListFacts {
            bad_entries: 2,
            ..stated
        };
        let unstated = ListFacts {
            is_stated: false,
            ..of_draft
        };
        for (facts, expected, code) in [
            (stated, AbsenceProof::Complete, None),
            (of_draft, AbsenceProof::OfDraft, Some(DRAFT_ABSENCE)),
            (unstated, AbsenceProof::Unstated, Some(UNSTATED)),
            (older, AbsenceProof::Older, Some("older-resource-list")),
            (damaged, AbsenceProof::BadEntries(2), Some("bad-entries")),
        ] {
            let proof = AbsenceProof::of_list(facts);
            assert_eq!(proof, expected, "{facts:?}");
            assert_eq!(
                proof.notice().map(|it| it.code.to_string()),
                code.map(str::to_owned)
            );
        }
    }
}
