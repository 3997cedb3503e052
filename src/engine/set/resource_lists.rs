//! Resource Lists and their indexes (section 10): the baseline, and the proof where Change Lists fail.

use resourcesync::{Capability, SourceTime};
use resyncd_core::{AbsenceFacts, AbsenceProof, trusted_check_times};
use url::Url;

use super::notices::clear_unfollowed;
use super::polled_document::{ChangedDocument, poll_document};
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::documents::Alternatives;
use crate::store::Origin;

impl SetState {
    /// Reads the Resource List, unless it is the one that was read last. `unconditional`: in any case.
    pub(super) async fn read_resource_list(
        &mut self,
        unconditional: bool,
    ) -> Result<(), EngineError> {
        let offered = self.offered(&Capability::ResourceList);
        if offered.is_empty() {
            return if unconditional {
                Err(EngineError::NoResourceList)
            } else {
                Ok(())
            };
        }
        let mut failed = Alternatives::default();
        for uri in offered {
            match self.read_resource_list_at(&uri, unconditional).await {
                Ok(()) => return Ok(()),
                Err(error) => failed.add(&uri, error)?,
            }
        }
        failed.into_result()
    }

    async fn read_resource_list_at(
        &mut self,
        uri: &Url,
        unconditional: bool,
    ) -> Result<(), EngineError> {
        let set = self.record.id;
        if self.record.is_implied() {
            self.context.client.read_robots(uri).await;
        }
        let filter = self.context.source.filter.fingerprint();
        let asked = trusted_check_times(clock::now().wall);
        let has_unproven = self
            .context
            .store
            .has_unproven_parts(set, filter, asked)
            .await?;
        let changed = poll_document(&self.context, set, uri, unconditional || has_unproven).await?;
        let Some(changed) = changed else {
            return Ok(());
        };
        let mut changed = Some(changed);
        // Parts that were read since the start of this process are not read again while others keep the list from being complete.
        let mut reading = ListReading {
            is_second: false,
            leaves_out: true,
            skips_unchanged: !unconditional || self.has_begun_parts,
        };
        while let Some(list) = changed {
            match self.ingest_resource_list(uri, list, reading).await? {
                Some(next) => reading = next,
                None => break,
            }
            changed = poll_document(&self.context, set, uri, true).await?;
        }
        Ok(())
    }

    /// Ingests a Resource List, and commits what it proves. Returns the reading that must follow: without that it proves
    /// nothing.
    async fn ingest_resource_list(
        &mut self,
        uri: &Url,
        changed: ChangedDocument,
        reading: ListReading,
    ) -> Result<Option<ListReading>, EngineError> {
        let set = self.record.id;
        changed.read.expect(&Capability::ResourceList)?;
        if !self.record.is_implied() {
            changed.read.expect_something()?;
        }
        let (first_at, states_time) = time_of(&changed);
        let known = self.record.list_at;
        let is_older = |at| known.is_some_and(|known| at < known);
        let older_list = || Err(EngineError::OlderResourceList(uri.to_string()));
        if states_time && is_older(first_at) {
            return older_list();
        }
        let summary = &changed.read.summary;
        // Where an index names no Change Set and no dump, its parts may.
        let is_naming = summary.head.names_documents() || !summary.is_index;
        if self.record.is_implied() {
            self.follow_sitemap(uri, &summary.head, is_naming).await?;
            if is_naming {
                self.naming = Some(changed.record.clone());
            }
        }
        let is_stated = changed.read.summary.head.md.capability.is_some();
        let found_before = self.found;
        let record = changed.record.clone();
        let filter = self.context.source.filter.fingerprint();
        let store = &self.context.store;
        let trusted = reading.skips_unchanged.then_some(filter);
        store.begin_parts(set, uri, trusted).await?;
        self.has_begun_parts = true;
        store.begin_list(set).await?;
        clear_unfollowed(&self.context, set);
        // Nothing but a plain sitemap states its resources: what it states is never older than what is known.
        let is_only_document = self.record.has_only_list() && !states_time;
        let ingested_at = if is_only_document {
            SourceTime::MAX
        } else {
            first_at
        };
        let parts = self
            .ingest_parts(uri, changed, ingested_at, is_stated, reading.leaves_out)
            .await?;
        let pages = parts.pages;
        let at = pages.map_or(first_at, |pages| pages.of_list(first_at, states_time));
        if is_older(at) && states_time {
            return older_list();
        }
        // A part of an index may be the one that names the Change Set.
        let is_of_draft_set = self.record.is_implied() && self.record.names_document();
        let proof = AbsenceProof::of(AbsenceFacts {
            is_stated,
            is_of_draft: parts.is_of_draft || is_of_draft_set,
            is_older: is_older(at),
            bad_entries: parts.bad_entries,
            // Such pages are read twice, below.
            has_moving_pages: false,
            // Of dumps only.
            ..AbsenceFacts::default()
        });
        let store = &self.context.store;
        let is_proof = proof.is_complete();
        // What seems absent may be named by a part that was left out. Where there are no others, nothing would show that the selection has
        // changed.
        if parts.has_left_out
            && (!parts.has_read || (is_proof && store.has_absent_resources(set).await?))
        {
            return Ok(Some(ListReading {
                is_second: false,
                leaves_out: false,
                // Those that were read now are complete.
                skips_unchanged: true,
            }));
        }
        if is_proof {
            if store.has_uncertain_resources(set).await? {
                return Ok(Some(ListReading {
                    is_second: false,
                    skips_unchanged: false,
                    ..reading
                }));
            }
            let may_have_moved = parts.pages.is_some_and(|pages| !pages.are_one);
            let is_confirmed = !may_have_moved || reading.is_second;
            if !is_confirmed && store.has_absent_resources(set).await? {
                // What a skipped page names was named at another time: two whole readings decide.
                return Ok(Some(ListReading {
                    is_second: !reading.skips_unchanged,
                    skips_unchanged: false,
                    ..reading
                }));
            }
            let readings = if may_have_moved { 2 } else { 1 };
            self.delete_absent(Origin::ResourceList, at, readings)
                .await?;
        }
        self.note_proof(proof);
        self.context.store.delete_unnamed_parts(set).await?;
        let record = (!parts.may_change_unseen).then_some(record);
        self.commit_snapshot(Origin::ResourceList, at, record, parts.names_any)
            .await?;
        let news = self.found - found_before;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, entries = parts.entries, news,
            "Resource List read");
        Ok(None)
    }
}

/// One reading of a Resource List, of perhaps several.
#[derive(Clone, Copy, Debug)]
struct ListReading {
    /// Whether the reading before this one was whole, too: what neither of them names is absent.
    is_second: bool,
    /// Whether unchanged parts are not read again.
    skips_unchanged: bool,
    /// Whether parts are not read that the index rules out.
    leaves_out: bool,
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
