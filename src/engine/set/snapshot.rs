//! What a Resource List or a Resource Dump proves that was read completely: everything before its time is known, and what it does
//! not name does not exist.

use resourcesync::SourceTime;
use resyncd_core::{AbsenceProof, ResourceUri};

use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::status::StatusError;
use crate::store::{BaselineState, ChangeBatch, DocumentRecord, Origin};

/// The code of the notice of [`AbsenceProof::Unstated`].
pub(super) const UNSTATED: &str = "unstated-capability";
/// The code of what is of version 0.1.
pub(super) const DRAFT_ABSENCE: &str = "draft-absence";

/// The notice for the status of a `document`, a Resource List or a Resource Dump; `None`: absence from it proves that something does not
/// exist, or a second reading will.
pub(super) fn absence_notice(proof: AbsenceProof, document: &str) -> Option<StatusError> {
    let (code, why) = match proof {
        // The pages are read once more.
        AbsenceProof::Complete | AbsenceProof::MovingPages => return None,
        AbsenceProof::Unstated => (
            UNSTATED,
            format!("the {document} does not state that it is one, as a plain sitemap does not"),
        ),
        AbsenceProof::OfDraft => (
            DRAFT_ABSENCE,
            format!("the {document} is of version 0.1, which does not say that one names everything"),
        ),
        AbsenceProof::Older => (
            "older-resource-list",
            format!("the {document} states no time, and its newest entry is older than before"),
        ),
        AbsenceProof::BadEntries(count) => (
            "bad-entries",
            format!("{count} entries of the {document} can't be read"),
        ),
        AbsenceProof::UnprovenManifest => (
            "unproven-manifest",
            "a manifest does not state that it is one, is of version 0.1, or entries of it can't be read"
                .to_owned(),
        ),
        AbsenceProof::Untimed => (
            "untold-time",
            format!("the {document} does not state its time"),
        ),
    };
    let message = format!("{why}: resources that the {document} does not name are not deleted");
    Some(StatusError::new(code, message, clock::now().wall))
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
        trial.cover_resource_list(clock::now(), at);
        let mut end = self.document_end(&trial, None);
        let list_at = self.record.list_at.max(Some(at));
        end.listed = list_at;
        let filter = self.context.source.filter.fingerprint().to_owned();
        end.filter = Some(filter.clone());
        end.documents.extend(record);
        end.rules.of_absence = true;
        end.rules.holds_all = !names_any;
        // The deletions of what it does not name were planned before.
        let batch = ChangeBatch {
            begins: false,
            ..self.change_batch(origin, Vec::new(), Some(end))
        };
        let result = self.context.store.ingest(batch).await?;
        self.sequencer = trial;
        self.record.list_at = list_at;
        self.record.filter = Some(filter);
        if self.record.baseline == BaselineState::Missing {
            self.record.baseline = BaselineState::Listed;
        }
        self.report_held_back(result.held_back);
        Ok(())
    }

    /// Plans the deletion of resources of the set that none of the last `readings` complete readings, this one included, has named.
    /// Those that the filter excludes stay.
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
            let step = store.delete_absent(&list, now, readings, wants);
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
    fn absence_that_proves_nothing_is_a_notice_unless_a_second_reading_decides() {
        for (proof, expected) in [
            (AbsenceProof::Complete, None),
            (AbsenceProof::Unstated, Some(UNSTATED)),
            (AbsenceProof::OfDraft, Some(DRAFT_ABSENCE)),
            (AbsenceProof::Older, Some("older-resource-list")),
            (AbsenceProof::BadEntries(2), Some("bad-entries")),
            (AbsenceProof::UnprovenManifest, Some("unproven-manifest")),
            (AbsenceProof::Untimed, Some("untold-time")),
            (AbsenceProof::MovingPages, None),
        ] {
            let notice = absence_notice(proof, "Resource List");
            let code = notice.as_ref().map(|notice| notice.code.as_str());
            assert_eq!(code, expected, "{proof:?}");
        }
    }
}
