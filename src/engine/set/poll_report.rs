//! What a poll reports beside its result: the errors of single parts, how many parts are dead, and what is notable but no error.
//!
//! Invariant: a dead part is logged once until it can be read again.

use resyncd_core::{AbsenceProof, Pacing};
use url::Url;

use super::notices::note_repeated_index;
use super::snapshot::{DRAFT_ABSENCE, UNSTATED, absence_notice};
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::documents::DocumentWalk;
use crate::status::StatusError;

/// Whether an error is one of parts or entries, which are noted by themselves.
fn is_of_parts(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::DeadParts { .. } | EngineError::UnreadEntries { .. }
    )
}

impl SetState {
    /// Begins the report of a poll.
    pub(super) fn begin_report(&mut self) {
        self.report = std::mem::take(&mut self.report).next();
    }

    /// Shows the report of a poll in the status.
    pub(super) fn publish_report(&self) {
        let (faults, dead_parts) = (self.report.faults().clone(), self.report.dead_parts());
        let runtime_status = &self.context.runtime_status;
        runtime_status.note_set(self.record.id, |facts| {
            facts.faults = faults;
            facts.dead_parts = dead_parts;
        });
        let dead_index = self.report.dead_index();
        let message = dead_index.map(|error| {
            format!("the link of a closed list to its index leads to nothing: {error}")
        });
        self.note("dead-index", message);
    }

    /// Reports that documents could not be read, by a poll or to fill a gap that the inbox has opened. Returns when the next poll is due.
    pub(super) fn fail_reading(&self, error: &EngineError) -> Pacing {
        self.report_error(error);
        self.pacing_after(error)
    }

    /// When the next poll is due after documents could not be read. Parts of a Resource List that are dead are so for longer than a
    /// few seconds, and all its other parts would be requested with them.
    fn pacing_after(&self, error: &EngineError) -> Pacing {
        let waits = self.report.has_only_dead_list_parts() && self.sequencer.gaps().is_empty();
        if error.is_unusable() && waits {
            Pacing::Regular
        } else {
            Pacing::Soon
        }
    }

    /// Reports a part of an index that could not be read.
    pub(super) fn report_failed_part(&mut self, part: &Url, error: &EngineError) {
        if !is_of_parts(error) {
            let (facts, set) = (&self.context.read_facts, Some(self.record.id));
            facts.note_unread(set, part, error.status_error());
        }
        if !error.is_unusable() {
            if error.is_transient() {
                self.report.add(error);
            }
            return;
        }
        self.report.add_dead(error, 1);
        if self.report.is_news(part, error) {
            let shown = error.status_error();
            tracing::warn!(code = shown.code, source = self.context.name(), set = %self.record.capability_list,
                error = shown.message, "part of an index can't be read");
        }
    }

    /// Notes, for who runs once, that a document of the set could not be read, unless that is due to a part of it.
    pub(super) fn note_unread(&self, document: &Url, error: &EngineError) {
        let (facts, set) = (&self.context.read_facts, Some(self.record.id));
        let shown = error.status_error();
        if !is_of_parts(error) && !facts.has_unread(set, Some(&shown.message)) {
            facts.note_unread(set, document, shown);
        }
    }

    /// Reports the indexes that name themselves, or an index above them.
    pub(super) fn report_repeated_indexes(&self, walk: &DocumentWalk) {
        for index in walk.repeated() {
            note_repeated_index(&self.context, self.record.id, index);
        }
    }

    /// Shows why absence from a `document`, a Resource List or a Resource Dump, proves nothing. Of a plain sitemap nothing else can be
    /// expected.
    pub(super) fn note_proof(&self, proof: AbsenceProof, document: &str) {
        let why = absence_notice(proof, document);
        let is_usual = proof.is_usual_of_sitemap() && self.record.is_implied();
        self.set_notice(why.clone().filter(|_| !is_usual));
        let usual = why.filter(|_| is_usual);
        for code in [UNSTATED, DRAFT_ABSENCE] {
            let shown = usual.as_ref().filter(|why| why.code == code);
            self.note(code, shown.map(|why| why.message.clone()));
        }
    }

    /// Shows why Change Sets that precede others are not read, or that none is missing.
    pub(super) fn note_cut_change_sets(&self, why: Option<String>) {
        let message =
            why.map(|why| format!("earlier Change Sets are not read, the Sitemap is: {why}"));
        self.note("change-sets-cut", message);
    }

    /// Shows what is notable but no error, or that it is over; logs it when it is news.
    pub(super) fn note(&self, code: &'static str, message: Option<String>) {
        let runtime_status = &self.context.runtime_status;
        let Some(message) = message else {
            runtime_status.note_set(self.record.id, |facts| facts.notices.clear(code));
            return;
        };
        let notice = StatusError::new(code, message, clock::now().wall);
        let message = notice.message.clone();
        let mut is_news = false;
        runtime_status.note_set(self.record.id, |facts| {
            is_news = facts.notices.replace(notice, 1);
        });
        if is_news {
            tracing::info!(code, source = self.context.name(), set = %self.record.capability_list,
                notice = message, "notice of the set");
        }
    }
}
