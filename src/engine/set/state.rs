//! What the worker of a set knows, and how it commits what a document proves.
//!
//! A reader works on a copy of the [`Sequencer`], the trial; the state adopts it only when the transaction that carries its
//! coverage has succeeded.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use resourcesync::{Capability, Link, SourceTime};
use resyncd_core::{
    CheckRules, Gap, Limits, NoCoverage, ResourceUri, Schedule, Sequencer, Span, Standing,
};
use url::Url;

use super::package_files::PackageFiles;
use super::remembered::{ReadLists, UnreadDump};
use crate::clock;
use crate::engine::EngineError;
use crate::engine::channels::Channels;
use crate::engine::context::SourceContext;
use crate::engine::contradictions::report_contradictions;
use crate::engine::documents::offered;
use crate::engine::faults::PollReport;
use crate::engine::oddities::MAX_UNREAD;
use crate::status::StatusError;
use crate::store::{
    BaselineState, BatchResult, Change, ChangeBatch, ChannelId, ChannelRecord, DeletionRules,
    DocumentEnd, DocumentRecord, ListProgress, NamedSoFar, Origin, ProcessedDelivery, SetRecord,
};

/// What of the inbox is being processed: a panic then is due to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processing {
    Nothing,
    /// One delivery, by its number in the inbox.
    Delivery(i64),
    /// The order of those that are held.
    Held,
}

/// One set, as its worker sees it. Only this worker moves the set's coverage.
pub(crate) struct SetState {
    pub(super) context: Arc<SourceContext>,
    pub(super) packages: Arc<PackageFiles>,
    pub(crate) record: SetRecord,
    pub(crate) sequencer: Sequencer,
    pub(crate) schedule: Schedule,
    /// The last attempt at a baseline failed for a reason that lies with the Source.
    pub(super) baseline_failed: bool,
    /// Whether the sets are to be discovered again with the next poll.
    pub(super) rediscovers: bool,
    pub(super) channels: Channels,
    /// The inbox row that was handled last.
    pub(super) last_delivery: i64,
    /// What of the inbox is being processed.
    pub(super) processing: Processing,
    /// The Change Lists that were read.
    pub(super) lists: ReadLists,
    /// The Change Dumps that were read.
    pub(super) dumps: ReadLists,
    /// The Resource Dump of which entries can't be read, and that error: a Resource List is read in its place.
    pub(super) unread_dump: Option<UnreadDump>,
    /// The Resource List, or its first page, that was ingested last.
    pub(super) first_page: Option<(Url, [u8; 32])>,
    /// The document that stands for the Capability List, as its head was read last (version 0.1).
    pub(super) naming: Option<DocumentRecord>,
    /// Changes that the current poll has found.
    pub(super) found: u64,
    /// Whether parts of the Resource List were read since the start.
    pub(super) has_begun_parts: bool,
    /// What the current poll reports.
    pub(super) report: PollReport,
    /// The gaps of which the log says that they are open.
    pub(super) logged_gaps: Vec<Gap>,
    /// Why the interval of the last notification was unusable; `None`: it was usable.
    pub(super) unusable_interval: Option<NoCoverage>,
}

impl SetState {
    /// Continues a set from the database.
    pub(super) async fn load(
        context: Arc<SourceContext>,
        packages: Arc<PackageFiles>,
        record: SetRecord,
    ) -> Result<Self, EngineError> {
        context
            .runtime_status
            .begin_set(record.id, &record.capability_list);
        let list = record.capability_list.as_str();
        context.counters.begin_set(record.id.0, list);
        let unread = context.store.unread_of_parts(record.id, MAX_UNREAD).await?;
        context.runtime_status.restore_unread(record.id, &unread);
        let filter = &context.source.filter;
        let selects = |media_type: Option<&str>, links: &[Link]| {
            let standing = filter.selection().standing(media_type, links);
            standing.is_none_or(Standing::is_wanted)
        };
        // The configuration may select and want others than it did.
        let (store, name) = (&context.store, context.name());
        let wants = |uri: &ResourceUri| filter.wants(uri);
        store.reselect(record.id, name, wants, selects).await?;
        let record = store.read_with_filter(record.id, filter.fingerprint());
        let record = record.await?;
        let (coverage, gaps) = context.store.progress(record.id).await?;
        let limits = Limits {
            reorder_window: context.source.reorder_window,
            held_notifications: context.limits.held_notifications,
        };
        Ok(Self {
            logged_gaps: gaps.clone(),
            unusable_interval: None,
            sequencer: Sequencer::new(limits, coverage, gaps).with_read(record.read),
            schedule: Schedule::new(clock::now(), context.source.poll_interval),
            baseline_failed: false,
            rediscovers: false,
            channels: Channels::new(&context, record.id),
            last_delivery: 0,
            processing: Processing::Nothing,
            lists: ReadLists::default(),
            dumps: ReadLists::default(),
            unread_dump: None,
            first_page: None,
            naming: None,
            found: 0,
            has_begun_parts: false,
            report: PollReport::default(),
            context,
            packages,
            record,
        })
    }

    /// Whether notifications may be ingested. They wait for the baseline, unless there is no document to make one from or
    /// the Source's documents don't allow a complete one.
    pub(crate) fn can_follow(&self) -> bool {
        self.record.baseline != BaselineState::Missing
            || self.baseline_failed
            || !self.record.offers.iter().any(|offer| {
                matches!(
                    offer.capability,
                    Capability::ResourceList | Capability::ResourceDump
                )
            })
    }

    /// The documents of a capability that the Capability List names.
    pub(super) fn offered(&self, capability: &Capability) -> Vec<Url> {
        offered(&self.record.offers, capability).cloned().collect()
    }

    /// The documents of a capability that states changes, as they were read last.
    pub(super) fn lists_of(&mut self, capability: &Capability) -> &mut ReadLists {
        match capability {
            Capability::ChangeDump => &mut self.dumps,
            _ => &mut self.lists,
        }
    }

    /// All changes of a document of this set, dated now.
    pub(super) fn change_batch(
        &self,
        origin: Origin,
        changes: Vec<Change>,
        end: Option<DocumentEnd>,
    ) -> ChangeBatch {
        ChangeBatch {
            set: self.record.id,
            source: self.context.name().to_owned(),
            origin,
            now: clock::now().wall,
            begins: true,
            changes,
            end,
        }
    }

    /// A commit that moves the coverage to a trial's, and concludes a delivery.
    pub(super) fn document_end(
        &self,
        trial: &Sequencer,
        delivery: Option<ProcessedDelivery>,
    ) -> DocumentEnd {
        DocumentEnd {
            progress: Some((trial.coverage().clone(), trial.gaps().to_vec())),
            deliveries: delivery.into_iter().collect(),
            read: trial.read(),
            ..DocumentEnd::new(self.deletion_rules())
        }
    }

    /// The commit of a document that proves nothing by itself.
    pub(super) fn end_without_proof(&self, record: DocumentRecord) -> DocumentEnd {
        DocumentEnd {
            documents: vec![record],
            ..DocumentEnd::new(self.deletion_rules())
        }
    }

    pub(super) fn deletion_rules(&self) -> DeletionRules {
        DeletionRules {
            max_share: self.context.source.max_delete,
            of_absence: false,
            holds_all: false,
        }
    }

    /// Commits without any change of a resource.
    pub(super) async fn end_document(
        &self,
        origin: Origin,
        end: DocumentEnd,
    ) -> Result<BatchResult, EngineError> {
        let batch = self.change_batch(origin, Vec::new(), Some(end));
        let result = self.context.store.ingest(batch).await?;
        report_contradictions(&self.context, self.record.id, result.contradicted).await;
        Ok(result)
    }

    /// Commits what an index of Change Lists, or a Change Dump, covers as a whole.
    pub(super) async fn commit_span(
        &mut self,
        span: Span,
        record: Option<DocumentRecord>,
    ) -> Result<(), EngineError> {
        let mut trial = self.sequencer.clone();
        match span.interval() {
            Some(interval) => trial.cover_list(clock::now(), interval),
            None if record.is_none() => return Ok(()),
            None => {}
        }
        let mut end = self.document_end(&trial, None);
        end.documents.extend(record);
        self.end_document(Origin::ChangeList, end).await?;
        self.sequencer = trial;
        Ok(())
    }

    /// How entries of a new version of a Resource List are checked that state nothing about their content.
    pub(super) fn check_rules(&self) -> CheckRules {
        let source = &self.context.source;
        // Whoever runs once waits for the requests.
        let postpones = self.context.subscribes;
        let spread = if postpones {
            TimeDelta::from_std(source.poll_interval).unwrap_or(TimeDelta::MAX)
        } else {
            TimeDelta::zero()
        };
        CheckRules {
            per_day: source.undated_per_day,
            spread,
            postpones,
        }
    }

    /// The progress of a Resource List or Resource Dump of that time.
    /// A reading of a Resource List or Resource Dump, as far as it has come.
    pub(super) fn list_progress(
        &self,
        origin: Origin,
        at: SourceTime,
        named: &NamedSoFar,
    ) -> ListProgress {
        ListProgress {
            set: self.record.id,
            source: self.context.name().to_owned(),
            origin,
            at,
            checks: None,
            named: named.clone(),
        }
    }

    /// Notes, once, that the set was read completely: deletions that other sets state may wait for that.
    pub(super) async fn note_read(&mut self) -> Result<(), EngineError> {
        if !self.record.was_read {
            let (store, now) = (&self.context.store, clock::now().wall);
            let noting = store.note_read(self.context.name(), self.record.id, now);
            self.record.was_read = noting.await?;
        }
        Ok(())
    }

    /// Drops the failed tasks that are not wanted any more.
    pub(super) async fn drop_unwanted(&self) -> Result<(), EngineError> {
        let now = clock::now().wall;
        let (store, set) = (&self.context.store, self.record.id);
        let filter = &self.context.source.filter;
        if !filter.wants_every_uri() {
            let filter = filter.clone();
            let wants = move |uri: &ResourceUri| filter.wants(uri);
            store.drop_unwanted(set, now, wants).await?;
        }
        Ok(())
    }

    /// Makes the failed tasks due, for one more try each, but those that have failed since then.
    pub(super) async fn retry_failed(&self, but_since: DateTime<Utc>) -> Result<(), EngineError> {
        let (store, name) = (&self.context.store, self.context.name());
        let now = clock::now().wall;
        let retrying = store.retry_failed(self.record.id, name, now, Some(but_since));
        Ok(retrying.await?)
    }

    /// Logs each gap of which nothing is open any more.
    pub(super) fn log_closed_gaps(&mut self) {
        let open = self.sequencer.gaps();
        let is_open = |logged: &Gap| {
            let interval = &logged.interval;
            open.iter()
                .any(|gap| gap.interval.intersection(interval).is_some())
        };
        for Gap {
            interval, reason, ..
        } in self.logged_gaps.extract_if(.., |logged| !is_open(logged))
        {
            tracing::info!(code = reason.code(), source = self.context.name(), set = %self.record.capability_list,
                from = %interval.from(), until = %interval.until(), "gap closed");
        }
    }

    /// The channel of a delivery, as it is stored: as long as a delivery of it waits, only the removal of the whole set removes it.
    pub(super) async fn channel(&self, id: ChannelId) -> Result<ChannelRecord, EngineError> {
        let found = Arc::clone(&self.context.store).channel(id).await?;
        found.ok_or(EngineError::Interrupted)
    }

    /// Reports the error of a poll: shows it in the status, and logs it unless it was shown already.
    pub(crate) fn report_error(&self, error: &EngineError) {
        let (facts, set) = (&self.context.read_facts, Some(self.record.id));
        if !facts.has_unread(set, None) {
            facts.note_unread(set, &self.record.capability_list, error.status_error());
        }
        if !self.show_error(error) {
            return;
        }
        let StatusError { code, message, .. } = error.status_error();
        let (source, set) = (self.context.name(), &self.record.capability_list);
        match error {
            // Not the Source's fault.
            EngineError::Panicked(_) => {
                tracing::error!(code, source, %set, error = message, "poll of a set failed")
            }
            _ => tracing::warn!(code, source, %set, error = message, "poll of a set failed"),
        }
    }

    /// Shows an error in the status, until a poll succeeds. Returns whether it was not shown already.
    pub(super) fn show_error(&self, error: &EngineError) -> bool {
        let runtime_status = &self.context.runtime_status;
        runtime_status.fail_set(self.record.id, error.status_error())
    }

    /// Shows, or clears, what is notable but does not keep the set from being followed.
    pub(super) fn set_notice(&self, notice: Option<StatusError>) {
        self.context
            .runtime_status
            .note_set(self.record.id, |facts| facts.notice = notice);
    }

    /// Clears a notice of that code.
    fn clear_notice(&self, code: &str) {
        self.context
            .runtime_status
            .note_set(self.record.id, |facts| {
                facts.notice.take_if(|notice| notice.code == code);
            });
    }

    /// Reports a list, a dump or an index of them that is an older version of itself, as a cache or a backup serves it. All that it
    /// states is known already.
    pub(super) fn report_older(
        &self,
        capability: &Capability,
        uri: &Url,
        before: Option<Span>,
        span: Span,
    ) {
        let code = match capability {
            Capability::ChangeDump => "older-change-dump",
            _ => "older-change-list",
        };
        let is_older = before.is_some_and(|before| {
            before.from == span.from && span.until.is_some() && span.until < before.until
        });
        if is_older {
            tracing::warn!(code, source = self.context.name(), document = %uri, "document is older than when it was read last");
            let message = format!("{uri} is older than when it was read last");
            self.set_notice(Some(StatusError::new(code, message, clock::now().wall)));
        } else {
            self.clear_notice(code);
        }
    }

    /// Logs deletions that the deletion guard has held back.
    pub(super) fn report_held_back(&self, held_back: u64) {
        if held_back > 0 {
            tracing::warn!(code = "deletions-held", source = self.context.name(), set = %self.record.capability_list, held = held_back,
                "deletions held back until they are approved: too many at once, or stated by a list without entries");
        }
    }
}
