//! A poll: first the Capability List, then the Change Lists and Change Dumps, and where those prove too little, the Resource
//! List or the Resource Dump.
//!
//! The futures of the readers are large, and are allocated where they are awaited: a thread's stack has room for few of them.

use resourcesync::Capability;
use resyncd_core::{Pacing, Span};

use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::store::BaselineState;

impl SetState {
    /// Polls every document that may state changes. An error of one does not keep the others from being read.
    pub(super) async fn poll_documents(&mut self) -> Result<Pacing, EngineError> {
        let refreshed = match self.refresh_offers().await {
            Err(error) if error.is_fatal() => return Err(error),
            refreshed => refreshed,
        };
        if let Err(error) = &refreshed {
            self.note_unread(&self.record.capability_list, error);
        }
        if self.record.offers.is_empty() {
            refreshed?;
            return Err(EngineError::NoResourceList);
        }
        let (mut skips_snapshot, mut failed) = (false, None);
        if self.record.baseline == BaselineState::Missing {
            match Box::pin(self.read_baseline()).await {
                Ok(is_all) => skips_snapshot = is_all,
                // It may last: changes are followed meanwhile.
                Err(error) if error.is_unusable() => (skips_snapshot, failed) = (true, Some(error)),
                Err(error) => return Err(error),
            }
        }
        self.baseline_failed = failed.is_some();
        let filled = self.fill_gaps(skips_snapshot).await;
        match filled {
            Err(error) if error.is_fatal() => Err(error),
            filled => {
                refreshed?;
                filled.and_then(|pacing| failed.map_or(Ok(pacing), Err))
            }
        }
    }

    /// Reads the Change Lists and Change Dumps, and the Resource List if a gap needs it, or if nothing else states changes.
    /// `skips_snapshot`: whether it was read in this poll, or could not be, and is not read again.
    pub(super) async fn fill_gaps(&mut self, skips_snapshot: bool) -> Result<Pacing, EngineError> {
        let (span, read) = Box::pin(self.read_changes()).await;
        if let Err(EngineError::Store(error)) = read {
            // It says nothing about the Source's documents.
            return Err(error.into());
        }
        self.note_late_changes(span);
        let gaps = self.sequencer.gaps();
        let is_needed = self.schedule.needs_resource_list(clock::now(), span, gaps);
        if !skips_snapshot && (is_needed || self.filter_has_changed().await?) {
            Box::pin(self.read_snapshot()).await?;
        }
        let now = clock::now();
        let is_open = !self.sequencer.gaps().is_empty();
        self.schedule.set_gap_open(now, is_open);
        read.map(|()| {
            if is_open {
                Pacing::Soon
            } else {
                Pacing::Regular
            }
        })
    }

    /// Notes, for who runs once, that no document states what happened between the Resource List and the Change Lists.
    fn note_late_changes(&self, span: Option<Span>) {
        let from = span.and_then(|span| span.from);
        let read_until = self.sequencer.coverage().unbroken_until();
        if let Some(from) = from.filter(|&from| read_until.is_some_and(|until| from > until)) {
            let error = EngineError::LateChangeList(from.to_string());
            self.note_unread(&self.record.capability_list, &error);
        }
    }

    /// Reads the Change Lists, and the Change Dump where there are none, or where a gap is left that they don't reach back
    /// to. Returns what they cover together, and the error that kept one from being read.
    async fn read_changes(&mut self) -> (Option<Span>, Result<(), EngineError>) {
        let (lists, failed) = match self.read_change_lists().await {
            Ok(span) => (span, None),
            Err(error) => (None, Some(error)),
        };
        let is_fatal = failed.as_ref().is_some_and(EngineError::is_fatal);
        if is_fatal || lists.is_some_and(|lists| lists.reaches(self.sequencer.gaps())) {
            return (lists, failed.map_or(Ok(()), Err));
        }
        let dumps = self.read_offered_list(&Capability::ChangeDump, &[]);
        match dumps.await {
            Ok(dumps) => {
                let dumps = dumps.map(|read| read.span);
                let has_held = self.sequencer.held() > 0;
                let together = Span::of_lists_and_dumps(lists, dumps, has_held);
                (together, failed.map_or(Ok(()), Err))
            }
            Err(error) if error.is_fatal() => (lists, Err(error)),
            Err(error) => (lists, Err(failed.unwrap_or(error))),
        }
    }

    /// Whether the Resource List, or the Resource Dump, was read with another filter, or not to its end: no Change List may state again
    /// what is wanted now and was not wanted then.
    async fn filter_has_changed(&self) -> Result<bool, EngineError> {
        let filter = self.context.source.filter.fingerprint();
        if self.record.filter.as_deref() != Some(filter) {
            return Ok(true);
        }
        let store = &self.context.store;
        Ok(store.has_incomplete_parts(self.record.id, filter).await?)
    }
}
