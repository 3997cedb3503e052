//! How a set works through its inbox: parse a delivery, put it in order, and commit its changes and its coverage in one
//! transaction.
//!
//! Those that need nothing but their turn are ingested together ([`inbox_runs`](super::inbox_runs)); this file has the rest.
//!
//! A delivery whose parsing panics is rejected at once. Another panic restarts the worker, or is an error of the store: the delivery
//! is processed again, and rejected in the end.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use resourcesync::{Capability, ChangeKind, Document};
use resyncd_core::{Channel, DeliveryFaultKind, Gap, NewsFilter, Sequencer, Verdict};

use super::delivery_reader::DeliveryReader;
use super::notices::{note_foreign, note_notification, note_unfollowed};
use super::notification::is_dated;
use super::state::{Processing, SetState};
use crate::clock;
use crate::engine::EngineError;
use crate::store::{BaselineState, ChannelRecord, Delivery, DeliveryOutcome, DocumentEnd, Origin};

/// How many deliveries are read from the inbox at once.
const DELIVERIES: usize = 64;
/// How often the processing of a delivery may panic before the delivery is rejected, and the set is polled.
const MOST_PANICS: u32 = 3;
/// A gap shorter than that is no reason for a warning, in microseconds.
const SHORT_GAP: i64 = 1_000_000;

/// When the work on the inbox ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InboxEnd {
    /// Once nothing is left but notifications that wait for an earlier one.
    Empty,
    /// The same, or earlier: once a poll is due.
    PollDue,
}

impl SetState {
    /// Works until the inbox has nothing but notifications that wait for an earlier one.
    pub(super) async fn work_inbox(&mut self) -> Result<(), EngineError> {
        self.work_inbox_to(InboxEnd::Empty).await
    }

    /// As [`work_inbox`](Self::work_inbox), but no longer than until a poll is due: deliveries that keep coming must not displace it.
    pub(super) async fn work_inbox_until_poll(&mut self) -> Result<(), EngineError> {
        self.work_inbox_to(InboxEnd::PollDue).await
    }

    async fn work_inbox_to(&mut self, end: InboxEnd) -> Result<(), EngineError> {
        loop {
            self.context.counters.step();
            self.ingest_ready().await?;
            let deliveries = self
                .context
                .store
                .deliveries(self.record.id, self.last_delivery, DELIVERIES)
                .await?;
            if deliveries.is_empty() {
                return Ok(());
            }
            let mut deliveries = VecDeque::from(deliveries);
            while !deliveries.is_empty() {
                let alone = self.ingest_run(&mut deliveries).await?;
                for delivery in deliveries.drain(..alone) {
                    self.context.counters.step();
                    let id = delivery.id;
                    self.processing = Processing::Delivery(id);
                    let handled = self.handle_delivery(delivery).await;
                    self.end_processing(handled)?;
                    self.last_delivery = id;
                    self.ingest_ready().await?;
                }
                let is_poll_due = self.schedule.next_deadline() <= clock::now().mono;
                if end == InboxEnd::PollDue && is_poll_due {
                    return Ok(());
                }
            }
        }
    }

    /// Ends the processing of a part of the inbox, and counts a panic.
    fn end_processing(&mut self, processed: Result<(), EngineError>) -> Result<(), EngineError> {
        if let Err(EngineError::Panicked(_)) = processed {
            self.count_panic();
        }
        self.processing = Processing::Nothing;
        processed
    }

    /// Counts a panic for each delivery that was being processed.
    pub(super) fn count_panic(&self) {
        let deliveries = match self.processing {
            Processing::Nothing => Vec::new(),
            Processing::Delivery(id) => vec![id],
            Processing::Held => self.sequencer.held_ids().collect(),
        };
        let mut panics = self.context.delivery_panics.lock();
        for id in deliveries {
            *panics.entry(id).or_default() += 1;
        }
    }

    /// Ingests held notifications whose turn has come, and opens a gap where a wait is over.
    async fn ingest_ready(&mut self) -> Result<(), EngineError> {
        loop {
            let now = clock::now();
            let mut trial = self.sequencer.clone();
            self.processing = Processing::Held;
            let ready = trial.next_ready(now);
            let gap = match ready {
                Some(_) => None,
                None => trial.open_gap(now),
            };
            self.processing = Processing::Nothing;
            if let Some((id, verdict)) = ready {
                self.processing = Processing::Delivery(id);
                let ingested = self.ingest_held(trial, id, verdict).await;
                self.end_processing(ingested)?;
                continue;
            }
            let Some(gap) = gap else {
                return Ok(());
            };
            self.commit_gap(&trial, &gap).await?;
            self.sequencer = trial;
            // Once the Change List is read, what was held is ingested, whether the gap is closed or not.
            let pacing = match self.fill_gaps(false).await {
                Err(EngineError::Store(error)) => {
                    // The gap is on record and does not open again: only a poll reads the documents that fill it.
                    self.schedule.poll_now(clock::now());
                    return Err(error.into());
                }
                Err(error) => self.fail_reading(&error),
                Ok(pacing) => pacing,
            };
            self.schedule.gap_read(clock::now(), pacing);
        }
    }

    /// Ingests a notification that was held. One that is gone from the inbox, or can't be read any more, covers nothing.
    async fn ingest_held(
        &mut self,
        trial: Sequencer,
        id: i64,
        verdict: Verdict,
    ) -> Result<(), EngineError> {
        let Some(delivery) = self.context.store.delivery(id).await? else {
            self.sequencer.forget(id);
            return Ok(());
        };
        let reader = self.reader_of(&delivery).await?;
        let (delivery, document) = self.read_delivery(delivery, &reader).await?;
        match document {
            Ok(document) => {
                self.ingest_notification(trial, (delivery, &reader), document, verdict)
                    .await
            }
            Err(error) => self.reject(&delivery, &reader.channel, &error).await,
        }
    }

    async fn commit_gap(&mut self, trial: &Sequencer, gap: &Gap) -> Result<(), EngineError> {
        // After a restart the held notifications open a gap again that is on record.
        let is_new = !self
            .sequencer
            .gaps()
            .iter()
            .any(|known| known.interval == gap.interval);
        if !is_new {
            return Ok(());
        }
        let missed_by = self.channels.of(&Capability::ChangeNotification);
        let end = DocumentEnd {
            missed_by,
            ..self.document_end(trial, None)
        };
        self.end_document(Origin::Notification, end).await?;
        let (code, source, set) = (
            gap.reason.code(),
            self.context.name(),
            &self.record.capability_list,
        );
        let (from, until) = (gap.interval.from(), gap.interval.until());
        // A lost notification of a busy Source: the poll that is due now closes it.
        if until.micros() - from.micros() < SHORT_GAP {
            tracing::info!(code, source, %set, %from, %until, "gap opened");
        } else {
            tracing::warn!(code, source, %set, %from, %until, "gap opened");
        }
        self.logged_gaps.push(gap.clone());
        Ok(())
    }

    async fn handle_delivery(&mut self, delivery: Delivery) -> Result<(), EngineError> {
        let reader = self.reader_of(&delivery).await?;
        let channel = &reader.channel;
        let (delivery, document) = self.read_delivery(delivery, &reader).await?;
        let document = match document {
            Ok(document) => document,
            Err(error) => return self.reject(&delivery, channel, &error).await,
        };
        let (set, topic) = (self.record.id, channel.topic.url());
        note_notification(&self.context, set, topic, &document.oddities);
        if channel.kind == Capability::FrameworkNotification {
            return self.act_on_framework(&delivery, channel, &document).await;
        }
        let mut trial = self.sequencer.clone();
        let verdict = reader.order(&mut trial, &delivery, &document);
        self.ingest_notification(trial, (delivery, &reader), document, verdict)
            .await
    }

    async fn reader_of(&self, delivery: &Delivery) -> Result<Arc<DeliveryReader>, EngineError> {
        let channel = self.channel(delivery.channel).await?;
        let reader = DeliveryReader::of(&self.context, &self.record, channel);
        Ok(Arc::new(reader))
    }

    /// Reads a delivery on a blocking thread. The inner error is a reason to reject the delivery. One at which the reader panics gets
    /// such an error, because it would panic again; so does one whose processing has panicked [`MOST_PANICS`] times.
    async fn read_delivery(
        &self,
        delivery: Delivery,
        reader: &Arc<DeliveryReader>,
    ) -> Result<(Delivery, Result<Document, EngineError>), EngineError> {
        let topic = reader.channel.topic.clone();
        let panicked = move || EngineError::Panicked(format!("a notification of {topic}"));
        let panics = &self.context.delivery_panics;
        let panics = panics.lock().get(&delivery.id).copied();
        if panics.is_some_and(|panics| panics >= MOST_PANICS) {
            return Ok((delivery, Err(panicked())));
        }
        let reader = Arc::clone(reader);
        let reading = tokio::task::spawn_blocking(move || {
            let document = catch_unwind(AssertUnwindSafe(|| reader.document(&delivery)));
            let document = match document.unwrap_or_else(|_| Err(panicked())) {
                Ok(document) => match reader.misdirected(&delivery, &document)? {
                    Some(error) => Err(error),
                    None => Ok(document),
                },
                unreadable => unreadable,
            };
            Ok((delivery, document))
        });
        let read = reading.await;
        read.map_err(|error| EngineError::of_join(&error, "a notification"))?
    }

    /// Ingests a change notification as the sequencer's verdict says. The trial becomes the sequencer when that is committed.
    async fn ingest_notification(
        &mut self,
        trial: Sequencer,
        (delivery, reader): (Delivery, &Arc<DeliveryReader>),
        document: Document,
        verdict: Verdict,
    ) -> Result<(), EngineError> {
        let channel = &reader.channel;
        let (filter, outcome) = match verdict {
            Verdict::Hold => {
                self.sequencer = trial;
                return Ok(());
            }
            Verdict::Known(filter) => (filter, DeliveryOutcome::Duplicate),
            Verdict::Ingest(filter) => {
                self.unusable_interval = None;
                (filter, DeliveryOutcome::Applied)
            }
            Verdict::CoversNothing(reason) => {
                // Over other transports none is expected. One with a wrong clock states it in each.
                let before = self.unusable_interval.replace(reason);
                if channel.transport.states_intervals() && before != Some(reason) {
                    tracing::info!(code = reason.code(), source = self.context.name(), set = %self.record.capability_list,
                        "notification interval unusable; polling");
                }
                self.poll_after(channel);
                (NewsFilter::everything(), DeliveryOutcome::Applied)
            }
        };
        let mut trial = trial;
        let damaged = document.oddities.damaged_entries();
        if damaged > 0 {
            // It states changes that can't be read: it covers nothing, and a poll brings them.
            tracing::warn!(code = "bad-entries", source = self.context.name(), set = %self.record.capability_list, damaged,
                "notification has damaged entries; polling");
            trial = self.sequencer.clone();
            trial.forget(delivery.id);
            self.poll_after(channel);
        }
        let is_trusted = reader.is_trusted(&delivery);
        let reading = {
            let reader = Arc::clone(reader);
            tokio::task::spawn_blocking(move || reader.news(is_trusted, document, &filter, outcome))
        };
        let read = reading
            .await
            .map_err(|error| EngineError::of_join(&error, "a notification"));
        let notification = match read.flatten() {
            Err(error @ EngineError::Panicked(_)) => {
                self.show_error(&error);
                return self.reject(&delivery, channel, &error).await;
            }
            read => read?,
        };
        if notification.left.all > 0 {
            // It covers nothing of which a part is left to a poll.
            trial = self.sequencer.clone();
            trial.forget(delivery.id);
            note_foreign(&self.context, self.record.id, notification.left.foreign);
            if channel.transport.states_intervals() {
                self.schedule.poll_soon(clock::now())
            } else {
                self.schedule.poll_named(clock::now())
            }
        }
        let end = self.document_end(&trial, Some(delivery.processed(notification.outcome)));
        let batch = self.change_batch(Origin::Notification, notification.changes, Some(end));
        match self
            .context
            .store
            .ingest(batch)
            .await
            .map_err(EngineError::from)
        {
            Ok(result) => {
                self.sequencer = trial;
                self.report_held_back(result.held_back);
                note_unfollowed(&self.context, self.record.id, result.unfollowed);
                Ok(())
            }
            Err(error @ (EngineError::TooManyResources(_) | EngineError::Panicked(_))) => {
                self.show_error(&error);
                self.reject(&delivery, channel, &error).await
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a poll due that finds what a notification does not prove, or was to state.
    fn poll_after(&mut self, channel: &ChannelRecord) {
        let now = clock::now();
        if channel.transport.states_intervals() {
            self.schedule.poll_soon(now)
        } else {
            self.schedule.poll_to_check(now)
        }
    }

    /// Acts on a framework notification (Framework Notification 1.0.1, section 3).
    async fn act_on_framework(
        &mut self,
        delivery: &Delivery,
        channel: &ChannelRecord,
        document: &Document,
    ) -> Result<(), EngineError> {
        let (mut names_news, mut names_sets) = (false, false);
        for entry in &document.entries {
            match entry.md.capability {
                Some(Capability::ChangeList | Capability::ChangeDump) => names_news = true,
                Some(Capability::CapabilityList) if entry.loc == self.record.capability_list => {
                    names_sets |= entry.md.change == Some(ChangeKind::Deleted);
                    names_news = true;
                }
                // A new Resource List helps where the baseline or a gap waits for one, or where no other document states changes.
                Some(Capability::ResourceList | Capability::ResourceDump)
                    if self.record.baseline == BaselineState::Missing
                        || !self.sequencer.gaps().is_empty()
                        || !self.offers_changes() =>
                {
                    names_news = true;
                }
                Some(Capability::CapabilityList | Capability::Description) => names_sets = true,
                _ => {}
            }
        }
        let now = clock::now();
        if !channel.transport.states_intervals() {
            // Anybody may have sent it, any number of times: the pace is that of the polls.
            self.rediscovers |= names_sets;
            if names_news || names_sets {
                self.schedule.poll_named(now);
            }
        } else {
            if names_sets {
                self.context.rediscover.notify_one();
            }
            if names_news {
                self.schedule.poll_soon(now);
            }
        }
        let outcome = if is_dated(document) {
            DeliveryOutcome::Applied
        } else {
            DeliveryOutcome::Undated
        };
        self.conclude_delivery(delivery, outcome).await
    }

    /// Whether the Capability List names a document that states changes.
    fn offers_changes(&self) -> bool {
        let mut offers = self.record.offers.iter();
        offers.any(|offer| {
            matches!(
                offer.capability,
                Capability::ChangeList | Capability::ChangeDump
            )
        })
    }

    /// Rejects a delivery that can't be read, is not for this set, or states more than there is room for: it covers nothing, and a poll
    /// brings what it would have stated.
    async fn reject(
        &mut self,
        delivery: &Delivery,
        channel: &ChannelRecord,
        error: &EngineError,
    ) -> Result<(), EngineError> {
        let secrets = self.context.client.redaction().with_keys();
        let message = channel.added_to(&secrets).redact(&error.to_string());
        match error {
            // Not the Source's fault.
            EngineError::Panicked(_) => {
                tracing::error!(code = error.code(), source = channel.source, topic = %channel.topic, error = message, "delivery rejected")
            }
            _ => {
                tracing::warn!(code = error.code(), source = channel.source, topic = %channel.topic, error = message, "delivery rejected")
            }
        }
        if matches!(error, EngineError::Misdirected { .. }) {
            let now = clock::now().wall;
            let note = move |channel: &mut Channel| {
                channel.note_fault(DeliveryFaultKind::Misdirected, now);
            };
            let store = &self.context.store;
            store.change_channel(channel.id, false, note).await?;
        }
        self.conclude_delivery(delivery, DeliveryOutcome::Rejected)
            .await?;
        // Only now: if the commit had failed, its turn would never have come again.
        self.sequencer.forget(delivery.id);
        self.context.delivery_panics.lock().remove(&delivery.id);
        self.poll_after(channel);
        Ok(())
    }

    /// Concludes a delivery that moves no coverage.
    async fn conclude_delivery(
        &self,
        delivery: &Delivery,
        outcome: DeliveryOutcome,
    ) -> Result<(), EngineError> {
        let concluded = Some(delivery.processed(outcome));
        let end = self.document_end(&self.sequencer, concluded);
        self.end_document(Origin::Notification, end).await?;
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use chrono::TimeDelta;
    use resourcesync::{Entry, Head, Link, Root, SourceTime, write_document};
    use resyncd_core::{Pacing, ResourceUri, TopicUri, Transport};
    use tokio::sync::mpsc;
    use tracing::Level;
    use url::Url;

    use super::*;
    use crate::engine::restarts::{Panicked, catch_panic};
    use crate::engine::set::package_files::PackageFiles;
    use crate::engine::set::worker::SetWorker;
    use crate::engine::tests::{Answering, NAME, TestSource};
    use crate::store::{CallbackKeys, ChannelId, Receipt, SetRecord};
    use crate::test_clock;
    use crate::test_log::PanickingLog;

    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    /// A change notification of the creation of a resource with that path.
    fn notification(path: &str) -> Vec<u8> {
        notification_of(path, None)
    }

    fn notification_of(path: &str, interval: Option<(SourceTime, SourceTime)>) -> Vec<u8> {
        let uri = Url::parse("https://example.org/")
            .unwrap()
            .join(path)
            .unwrap();
        let mut entry = Entry::new(uri);
        entry.md.change = Some(ChangeKind::Created);
        let mut head = Head::new(Root::Urlset, Capability::ChangeNotification);
        (head.md.from, head.md.until) = interval.unzip();
        write_document(&head, [&entry])
    }

    /// A notification with an entry that can't be read.
    fn damaged_notification() -> Vec<u8> {
        let text = String::from_utf8(notification("/damaged")).unwrap();
        let damaged = "<url><loc>http://[&</loc></url></urlset>";
        text.replace("</urlset>", damaged).into_bytes()
    }

    /// A notification that may be for another set: the database is asked.
    fn notification_of_another() -> Vec<u8> {
        let other = "https://example.org/another/capabilitylist.xml";
        let mut head = Head::new(Root::Urlset, Capability::ChangeNotification);
        head.links.push(Link::new("up", other.parse().unwrap()));
        write_document(&head, &[])
    }

    /// A set with a channel. Its Source has no document.
    pub(crate) struct Receiving {
        pub(crate) source: TestSource,
        packages: Arc<PackageFiles>,
        record: SetRecord,
        pub(crate) channel: ChannelId,
    }

    impl Receiving {
        /// Receives these deliveries.
        pub(crate) async fn of(
            capability_list: &str,
            bodies: impl IntoIterator<Item = Vec<u8>>,
        ) -> Self {
            let list = Url::parse("https://example.org/").unwrap();
            let list = list.join(capability_list).unwrap();
            let topic = TopicUri::try_from(list.clone()).unwrap();
            let channel = Channel::new(clock::now().wall, &topic, &[]);
            Self::on(&list, channel, bodies).await
        }

        /// Receives a message over a connection.
        async fn over_a_connection(message: Vec<u8>) -> Self {
            let list = Url::parse("https://example.org/capabilitylist.xml").unwrap();
            let topic = Url::parse("ws://example.org/changes").unwrap();
            let topic = TopicUri::of_channel(topic).unwrap();
            let channel = Channel::without_hubs(Transport::Websocket, clock::now().wall, &topic);
            Self::on(&list, channel, [message]).await
        }

        /// Receives these deliveries on a channel.
        async fn on(
            list: &Url,
            channel: Channel,
            bodies: impl IntoIterator<Item = Vec<u8>>,
        ) -> Self {
            let source = TestSource::new(list, |client| {
                client.with_network(Arc::new(Answering(|_: &Url| Some(404))))
            });
            let context = Arc::clone(&source.context);
            let packages = Arc::new(PackageFiles::new(context, &source.mirror));
            let store = &source.store;
            let record = store.begin_set(NAME, list).await.unwrap();
            let kind = Capability::ChangeNotification;
            let keys = CallbackKeys {
                token: "token".to_owned(),
                secret: None,
            };
            let channel = store.insert_channel(record.id, &kind, channel, keys);
            let channel = channel.await.unwrap().id;
            let receiving = Self {
                source,
                packages,
                record,
                channel,
            };
            for body in bodies {
                receiving.receive(body).await;
            }
            receiving
        }

        pub(crate) async fn receive(&self, body: Vec<u8>) {
            let (store, now) = (&self.source.store, clock::now().wall);
            let received = store.receive(now, self.channel, body, 1 << 20, None).await;
            assert_eq!(received.unwrap(), Receipt::Stored);
        }

        pub(crate) async fn state(&self) -> SetState {
            let (context, packages) = (&self.source.context, &self.packages);
            let (context, packages) = (Arc::clone(context), Arc::clone(packages));
            let state = SetState::load(context, packages, self.record.clone());
            state.await.unwrap()
        }

        /// As [`state`](Self::state), of a set that was read completely as of that time.
        pub(crate) async fn state_read(&self, at: SourceTime) -> SetState {
            let state = self.state().await;
            let mut covered = state.sequencer.clone();
            covered.cover_resource_list(clock::now(), at);
            let end = state.document_end(&covered, None);
            state.end_document(Origin::ResourceList, end).await.unwrap();
            self.state().await
        }

        /// Waits until the inbox is empty.
        async fn is_processed(&self) {
            let (store, set) = (&self.source.store, self.record.id);
            let processing = async {
                while !store.deliveries(set, 0, 1).await.unwrap().is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(LIMIT, processing).await.unwrap();
        }

        /// Checks that nothing but `/fine` was applied, and that so many deliveries were rejected.
        async fn check(&self, rejected: u64) {
            let store = &self.source.store;
            let channel = store.channel(self.channel).await.unwrap().unwrap();
            assert_eq!(channel.rejected, rejected);
            assert_eq!(channel.received, rejected + 1);
            self.is_processed().await;
            assert!(self.source.context.delivery_panics.lock().is_empty());
            let fine = ResourceUri::parse("https://example.org/fine").unwrap();
            let tasks = store.tasks_of(NAME, clock::now().wall, vec![fine]);
            assert_eq!(tasks.await.unwrap().len(), 1);
        }
    }

    /// A panic comes from a clock that the threads read on which deliveries are read: at its first reading, or a later one.
    #[test]
    fn delivery_whose_reading_panics_is_rejected_and_the_next_one_is_applied() {
        // A message over a connection is not planned: its document is read, and then its changes.
        for (is_message, readings) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
            let left = Arc::new(AtomicI64::new(i64::MAX));
            let of_threads = Arc::clone(&left);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .on_thread_start(move || {
                    let left = Arc::clone(&of_threads);
                    test_clock::install(move || {
                        assert!(left.fetch_sub(1, Ordering::SeqCst) > 0, "a test");
                        clock::system()
                    });
                })
                .build();
            runtime.unwrap().block_on(async {
                let fatal = notification("/fatal");
                let receiving = if is_message {
                    Receiving::over_a_connection(fatal).await
                } else {
                    Receiving::of("/capabilitylist.xml", [fatal]).await
                };
                left.store(readings, Ordering::SeqCst);
                receiving.state().await.work_inbox().await.unwrap();
                assert!(left.load(Ordering::SeqCst) < 0, "it has panicked");
                left.store(i64::MAX, Ordering::SeqCst);
                receiving.receive(notification("/fine")).await;
                receiving.state().await.work_inbox().await.unwrap();
                receiving.check(1).await;
            });
        }
    }

    #[tokio::test]
    async fn delivery_at_which_the_worker_panics_is_rejected_in_the_end() {
        let bodies = [damaged_notification(), notification("/fine")];
        let receiving = Receiving::of("/capabilitylist.xml", bodies).await;
        // It logs that the notification is damaged.
        let log = PanickingLog::of("resyncd::engine::set::inbox", Level::WARN);
        let (_sender, mut commands) = mpsc::channel(1);
        let mut panics = 0;
        loop {
            let (context, packages) = (&receiving.source.context, &receiving.packages);
            let (context, packages) = (Arc::clone(context), Arc::clone(packages));
            let worker = SetWorker::new(context, packages, receiving.record.clone());
            let worker = worker.await.unwrap();
            tokio::select! {
                worked = worker.run(&mut commands) => assert_eq!(worked, Err(Panicked)),
                () = receiving.is_processed() => break,
            }
            panics += 1;
            assert!(panics <= MOST_PANICS, "it is never rejected");
        }
        assert_eq!((panics, log.panics()), (MOST_PANICS, MOST_PANICS));
        receiving.check(1).await;
    }

    /// Processes an inbox again and again, until nothing panics any more. Returns how often it has panicked.
    async fn panics(receiving: &Receiving, most: u32) -> u32 {
        for panics in 0..=most {
            let mut state = receiving.state().await;
            match catch_panic(state.work_inbox()).await {
                Ok(Ok(())) => return panics,
                Ok(Err(error)) => assert_eq!(error.code(), "panicked"),
                Err(Panicked) => state.count_panic(),
            }
        }
        panic!("nothing is rejected");
    }

    #[tokio::test]
    async fn delivery_at_which_the_store_panics_is_rejected_in_the_end() {
        let bodies = [notification_of_another(), notification("/fine")];
        let receiving = Receiving::of("/capabilitylist.xml", bodies).await;
        let hook = receiving.source.store.commit_hook();
        hook.panic_at_query("::names_another");
        assert_eq!(panics(&receiving, MOST_PANICS).await, MOST_PANICS);
        receiving.check(1).await;
    }

    #[tokio::test]
    async fn held_deliveries_whose_order_panics_are_rejected_in_the_end() {
        let now = clock::now();
        let at = |seconds: i64| SourceTime::from(now.wall + TimeDelta::seconds(seconds));
        let bodies = [
            notification_of("/early", Some((at(60), at(120)))),
            notification_of("/earlier", Some((at(180), at(240)))),
            notification("/fine"),
        ];
        let receiving = Receiving::of("/capabilitylist.xml", bodies).await;
        let mut state = receiving.state_read(at(0)).await;
        state.work_inbox().await.unwrap();
        assert_eq!(state.sequencer.held(), 2);
        // As after a panic of the sequencer, which reads nothing that could panic in its place.
        state.processing = Processing::Held;
        for _ in 0..MOST_PANICS {
            state.count_panic();
        }
        receiving.state().await.work_inbox().await.unwrap();
        receiving.check(2).await;
    }

    /// What is concluded is not held any more, and what could not be concluded is.
    #[tokio::test]
    async fn held_delivery_is_rejected_although_a_commit_fails() {
        for commits in 0..5 {
            let now = clock::now().wall;
            let at = |seconds: i64| SourceTime::from(now + TimeDelta::seconds(seconds));
            let early = notification_of("/early", Some((at(60), at(120))));
            let receiving = Receiving::of("/capabilitylist.xml", [early]).await;
            let mut state = receiving.state_read(at(0)).await;
            state.work_inbox().await.unwrap();
            let held: Vec<i64> = state.sequencer.held_ids().collect();
            let panics = held.iter().map(|&id| (id, MOST_PANICS));
            state.context.delivery_panics.lock().extend(panics);
            let fine = notification_of("/fine", Some((at(0), at(60))));
            receiving.receive(fine).await;
            let hook = receiving.source.store.commit_hook();
            hook.let_fail(true);
            hook.fail_after(commits);
            for _ in 0..4 {
                if state.work_inbox().await.is_ok() {
                    break;
                }
            }
            receiving.check(1).await;
            assert_eq!(state.sequencer.held(), 0, "{commits}");
        }
    }

    #[tokio::test]
    async fn interval_that_a_message_of_a_connection_states_proves_nothing() {
        let now = clock::now().wall;
        let at = |seconds: i64| SourceTime::from(now + TimeDelta::seconds(seconds - 1000));
        // One that would be the next one, and one that would be early.
        for (from, until) in [(0, 10), (60, 120)] {
            let message = notification_of("/fine", Some((at(from), at(until))));
            let receiving = Receiving::over_a_connection(message).await;
            let mut state = receiving.state_read(at(0)).await;
            let covered = state.sequencer.coverage().clone();
            state.work_inbox().await.unwrap();
            assert_eq!(state.sequencer.held(), 0, "{from}");
            for state in [state, receiving.state().await] {
                assert_eq!(*state.sequencer.coverage(), covered, "{from}");
                assert!(state.sequencer.gaps().is_empty(), "{from}");
            }
            receiving.check(0).await;
        }
    }

    #[tokio::test]
    async fn poll_that_is_due_does_not_wait_for_the_inbox_to_be_empty() {
        let receiving = Receiving::over_a_connection(notification("/first")).await;
        for path in ["/second", "/third"] {
            receiving.receive(notification(path)).await;
        }
        let waiting = async || {
            let store = &receiving.source.store;
            let found = store.deliveries(receiving.record.id, 0, 9).await;
            found.unwrap().len()
        };
        let mut state = receiving.state().await;
        // Its first poll is due.
        state.work_inbox_until_poll().await.unwrap();
        assert_eq!(waiting().await, 2);
        state.schedule.polled(clock::now(), Pacing::Regular);
        state.work_inbox_until_poll().await.unwrap();
        assert_eq!(waiting().await, 0);
    }

    #[tokio::test]
    async fn poll_that_checks_a_message_of_a_connection_is_not_due_at_once() {
        let minute = Duration::from_secs(60);
        for message in [notification("/fine"), b"no document".to_vec()] {
            let receiving = Receiving::over_a_connection(message).await;
            let mut state = receiving.state().await;
            let begun = clock::now();
            state.schedule.polled(begun, Pacing::Regular);
            let regular = state.schedule.next_deadline();
            state.work_inbox().await.unwrap();
            let due = state.schedule.next_deadline();
            assert!((begun.mono + minute..regular).contains(&due));
        }
    }
}
