//! Resource Lists and Resource Dumps with their indexes (sections 10 and 11): the baseline, and the proof where Change Lists fail.
//!
//! One that was read completely proves that everything before its time is known, and that what it does not name does not exist.

use resourcesync::{Capability, SourceTime};
use resyncd_core::{AbsenceFacts, AbsenceProof, ResourceUri, trusted_check_times};
use url::Url;

use super::list_parts::SnapshotParts;
use super::polled_document::{ChangedDocument, poll_document, read_document};
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::contradictions::report_contradictions;
use crate::engine::documents::Alternatives;
use crate::engine::read_facts::ReadList;
use crate::status::StatusError;
use crate::store::{
    AbsentSearch, BaselineState, ChangeBatch, DocumentRecord, ListProgress, NamedSoFar, Origin,
};

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

/// One reading of a Resource List or Resource Dump, of perhaps several.
#[derive(Clone, Debug)]
pub(super) struct SnapshotReading {
    /// What the reading before this one has named, if that was whole, too: what neither of them names is absent.
    named_before: Option<NamedSoFar>,
    /// Whether unchanged parts are not read again.
    pub(super) skips_unchanged: bool,
    /// Whether parts are not read that the index rules out.
    leaves_out: bool,
}

impl SetState {
    /// Reads the Resource List or the Resource Dump, unless it is the one that was read last. `unconditional`: in any case.
    pub(super) async fn read_offered_snapshot(
        &mut self,
        capability: &Capability,
        unconditional: bool,
    ) -> Result<(), EngineError> {
        let mut failed = Alternatives::default();
        for uri in self.offered(capability) {
            let reading = self.read_snapshot_at(capability, &uri, unconditional);
            match reading.await {
                Ok(()) => return Ok(()),
                Err(error) => failed.add(&uri, error)?,
            }
        }
        let Some((uri, error)) = failed.into_first() else {
            return Ok(());
        };
        self.note_unread(&uri, &error);
        Err(error)
    }

    async fn read_snapshot_at(
        &mut self,
        capability: &Capability,
        uri: &Url,
        unconditional: bool,
    ) -> Result<(), EngineError> {
        let (set, is_dump) = (self.record.id, *capability == Capability::ResourceDump);
        let mut reads_anew = unconditional;
        if self.record.is_implied() {
            if is_dump && !unconditional {
                // After the baseline the Sitemap states what has changed.
                return Ok(());
            }
            if is_dump {
                return Box::pin(self.read_direct_dump(uri)).await;
            }
            self.context.client.read_robots(uri).await;
        }
        if !is_dump {
            let filter = self.context.source.filter.fingerprint();
            let asked = trusted_check_times(clock::now().wall);
            let store = &self.context.store;
            reads_anew |= store.has_unproven_parts(set, filter, asked).await?;
        }
        let mut changed = if reads_anew {
            Some(read_document(&self.context, set, uri).await?)
        } else {
            poll_document(&self.context, set, uri).await?
        };
        // Parts that were read since the start of this process are not read again while others keep the list from being complete.
        let mut reading = SnapshotReading {
            named_before: None,
            leaves_out: true,
            skips_unchanged: !unconditional || self.has_begun_parts,
        };
        while let Some(document) = changed {
            let ingesting = self.ingest_snapshot(capability, uri, document, &reading);
            match ingesting.await? {
                Some(next) => reading = next,
                None => break,
            }
            changed = Some(read_document(&self.context, set, uri).await?);
        }
        Ok(())
    }

    /// Ingests a Resource List or Resource Dump, and commits what it proves. Returns the reading that must follow: without that it proves
    /// nothing.
    async fn ingest_snapshot(
        &mut self,
        capability: &Capability,
        uri: &Url,
        changed: ChangedDocument,
        reading: &SnapshotReading,
    ) -> Result<Option<SnapshotReading>, EngineError> {
        let (set, is_dump) = (self.record.id, *capability == Capability::ResourceDump);
        let (name, origin) = if is_dump {
            ("Resource Dump", Origin::ResourceDump)
        } else {
            ("Resource List", Origin::ResourceList)
        };
        let ChangedDocument { read, record } = &changed;
        read.expect(capability)?;
        if !self.record.is_implied() {
            read.expect_something()?;
        }
        let stated = read.stated_time(None);
        // The time of a list that states none is that of its newest entry: the list may be of any later time, and its time may seem to go
        // back when its newest resource is deleted. That of a dump is the oldest one of its entries.
        let first_at = stated.unwrap_or_else(|| {
            let summary = &read.summary;
            read.guessed_time(if is_dump {
                summary.oldest_content
            } else {
                summary.newest
            })
        });
        let known = self.record.list_at;
        let is_older = |at| known.is_some_and(|known| at < known);
        let older_list = || Err(EngineError::OlderResourceList(uri.to_string()));
        if is_older(first_at) && (is_dump || stated.is_some()) {
            return older_list();
        }
        let (found_before, record) = (self.found, record.clone());
        let mut parts = SnapshotParts::of(capability, &read.summary, reading.leaves_out);
        let mut entries_at = first_at;
        if is_dump {
            self.note_list(first_at, entries_at, None);
            self.ingest_resource_dump(uri, changed, first_at, &mut parts)
                .await?;
        } else {
            self.begin_resource_list(uri, &changed, reading.skips_unchanged)
                .await?;
            // Nothing but a plain sitemap states its resources: what it states is never older than what is known.
            if self.record.has_only_list() && stated.is_none() {
                entries_at = SourceTime::MAX;
            }
            self.note_list(first_at, entries_at, None);
            self.ingest_parts(uri, changed, entries_at, &mut parts)
                .await?;
        }
        let pages = parts.pages;
        let at = pages.map_or(first_at, |pages| pages.of_list(first_at, stated.is_some()));
        if is_older(at) && stated.is_some() {
            return older_list();
        }
        // A part of an index may be the one that names the Change Set.
        let is_of_draft_set = self.record.is_implied() && self.record.names_document();
        let proof = AbsenceProof::of(AbsenceFacts {
            is_of_draft: parts.absence.is_of_draft || is_of_draft_set,
            is_older: is_older(at),
            is_untimed: is_dump && stated.is_none(),
            ..parts.absence
        });
        let store = &self.context.store;
        let is_proof = proof.is_complete();
        let may_have_moved = pages.is_some_and(|pages| !pages.are_one);
        let list = self.list_progress(origin, at, &parts.names);
        // What seems absent may be named by a part that was left out. Where there are no others, nothing would show that the selection has
        // changed.
        if parts.has_left_out
            && (!parts.has_read || (is_proof && store.has_absent_resources(&list).await?))
        {
            return Ok(Some(SnapshotReading {
                named_before: None,
                leaves_out: false,
                // Those that were read now are complete.
                skips_unchanged: true,
            }));
        }
        let named_before = reading.named_before.clone().filter(|_| may_have_moved);
        let is_confirmed = !may_have_moved || named_before.is_some();
        if is_proof && !is_confirmed && store.has_absent_resources(&list).await? {
            // What a skipped page names was named at another time: two whole readings decide.
            return Ok(Some(SnapshotReading {
                named_before: (!reading.skips_unchanged).then_some(parts.names),
                leaves_out: reading.leaves_out,
                skips_unchanged: false,
            }));
        }
        self.delete_absent(&list, AbsentSearch::new(is_proof, named_before))
            .await?;
        self.note_proof(proof, name);
        let shown = if is_proof && !is_confirmed {
            AbsenceProof::MovingPages
        } else {
            proof
        };
        self.note_list(at, entries_at, Some(shown));
        if !is_dump {
            self.context.store.delete_unnamed_parts(set).await?;
        }
        let record = (!parts.may_change_unseen).then_some(record);
        self.commit_snapshot(origin, at, record, parts.names_any)
            .await?;
        let news = self.found - found_before;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, entries = parts.entries, news,
            "{name} read");
        Ok(None)
    }

    /// Notes, for who runs once, a Resource List or Resource Dump of which something was read, and what it proves.
    fn note_list(&self, at: SourceTime, entries_at: SourceTime, proof: Option<AbsenceProof>) {
        let list = ReadList {
            at,
            entries_at,
            proof,
        };
        self.context.read_facts.note_list(self.record.id, list);
    }

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
        report_contradictions(&self.context, self.record.id, result.contradicted).await;
        self.sequencer = trial;
        self.record.list_at = list_at;
        self.record.filter = Some(filter);
        if self.record.baseline == BaselineState::Missing {
            self.record.baseline = BaselineState::Listed;
        }
        self.report_held_back(result.held_back);
        Ok(())
    }

    /// Ends what a list has listed before and does not name, and plans the deletion of it if that is proven. What the filter excludes stays.
    async fn delete_absent(
        &self,
        list: &ListProgress,
        mut search: AbsentSearch,
    ) -> Result<(), EngineError> {
        let mut contradicted = 0;
        loop {
            let filter = self.context.source.filter.clone();
            let wants = move |uri: &ResourceUri| filter.wants(uri);
            let (store, now) = (&self.context.store, clock::now().wall);
            let step = store.delete_absent(list, now, &mut search, wants);
            match step.await? {
                Some(step) => {
                    self.context.counters.step();
                    contradicted += step.contradicted;
                }
                None => break,
            }
        }
        report_contradictions(&self.context, self.record.id, contradicted).await;
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
