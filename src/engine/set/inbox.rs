//! How a set works through its inbox: parse a delivery, put it in order, and commit its changes and its coverage in one
//! transaction.
//!
//! A delivery whose parsing panics is rejected at once. Another panic restarts the worker, or is an error of the store: the delivery
//! is processed again, and rejected in the end.

use std::collections::HashSet;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use chrono::TimeDelta;
use flate2::read::GzDecoder;

use super::changes::change_of;
use super::documents::note_notification;
use super::late_news::LateNews;
use super::state::{InHand, SetState};
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::fetch::FetchError;
use crate::protocol::{
    BaseUri, Capability, ChangeKind, Document, DocumentReader, Entry, EntryOrder, HubUri, Place,
    ReadError, Root, SourceTime, TopicUri,
};
use crate::store::{
    BaselineState, BatchCommit, Change, ChannelId, ChannelRecord, Delivery, DeliveryOutcome,
    Origin, SetId,
};
use crate::sync::{
    Channel, DeliveryFaultKind, Gap, NewsFilter, Pacing, Sequencer, Verdict, is_plausible,
    names_copy,
};

/// How many deliveries are read from the inbox at once.
const DELIVERIES: usize = 64;
/// The most entries of a notification. A longer one is rejected, and the set is polled.
const MAX_ENTRIES: usize = 50_000;
/// How often the processing of a delivery may panic before the delivery is rejected, and the set is polled.
const MOST_PANICS: u32 = 3;

impl SetState {
    /// Works until the inbox has nothing but notifications that wait for an earlier one.
    pub(super) async fn work_inbox(&mut self) -> Result<(), EngineError> {
        loop {
            self.settle_held().await?;
            let deliveries = self
                .context
                .store
                .deliveries(self.record.id, self.last_delivery, DELIVERIES)
                .await?;
            if deliveries.is_empty() {
                return Ok(());
            }
            for delivery in deliveries {
                let id = delivery.id;
                self.in_hand = InHand::Delivery(id);
                let handled = self.handle_delivery(delivery).await;
                self.put_down(handled)?;
                self.last_delivery = id;
                self.settle_held().await?;
            }
        }
    }

    /// Ends the processing of what is in hand.
    fn put_down(&mut self, processed: Result<(), EngineError>) -> Result<(), EngineError> {
        if let Err(EngineError::Panicked(_)) = processed {
            self.count_panic();
        }
        self.in_hand = InHand::Nothing;
        processed
    }

    /// Counts a panic for each delivery that was being processed.
    pub(super) fn count_panic(&self) {
        let deliveries = match self.in_hand {
            InHand::Nothing => Vec::new(),
            InHand::Delivery(id) => vec![id],
            InHand::Held => self.sequencer.held_ids().collect(),
        };
        let mut panics = self.context.delivery_panics.lock();
        for id in deliveries {
            *panics.entry(id).or_default() += 1;
        }
    }

    /// Applies held notifications whose turn has come, and opens a gap where a wait is over.
    async fn settle_held(&mut self) -> Result<(), EngineError> {
        loop {
            let now = clock::now();
            let mut trial = self.sequencer.clone();
            self.in_hand = InHand::Held;
            #[cfg(test)]
            tests::panic_if_held(&self.record, &trial);
            let ready = trial.next_ready(now);
            let gap = match ready {
                Some(_) => None,
                None => trial.open_gap(now),
            };
            self.in_hand = InHand::Nothing;
            if let Some((id, verdict)) = ready {
                self.in_hand = InHand::Delivery(id);
                let applied = self.apply_held(trial, id, verdict).await;
                self.put_down(applied)?;
                continue;
            }
            let Some(gap) = gap else {
                return Ok(());
            };
            self.commit_gap(&trial, &gap).await?;
            self.sequencer = trial;
            // Once the Change List is read, what was held is applied, whether the gap is closed or not.
            match self.fill_gaps(false).await {
                Err(EngineError::Store(error)) => {
                    // The gap is on record and does not open again: only a poll reads the documents that fill it.
                    self.schedule.hurry(clock::now());
                    return Err(error.into());
                }
                Err(error) => {
                    self.schedule.polled(clock::now(), Pacing::Soon);
                    self.report_error(&error);
                }
                Ok(pacing) => self.schedule.polled(clock::now(), pacing),
            }
        }
    }

    /// Applies a notification that was held. One that is gone from the inbox, or can't be read any more, covers nothing.
    async fn apply_held(
        &mut self,
        trial: Sequencer,
        id: i64,
        verdict: Verdict,
    ) -> Result<(), EngineError> {
        let Some(delivery) = self.context.store.delivery(id).await? else {
            self.sequencer.forget(id);
            return Ok(());
        };
        let channel = self.channel(delivery.channel).await?;
        let (delivery, document) = self.read_delivery(delivery, &channel).await?;
        match document {
            Ok(document) => {
                self.apply_notification(trial, delivery, document, verdict)
                    .await
            }
            Err(error) => {
                self.sequencer.forget(id);
                self.reject(&delivery, &channel, &error).await
            }
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
        let commit = BatchCommit {
            missed_by,
            ..self.commit_of(trial, None)
        };
        self.commit(Origin::Notification, commit).await?;
        tracing::warn!(code = gap.reason.code(), source = self.context.name(), set = %self.record.capability_list,
            from = %gap.interval.from(), until = %gap.interval.until(), "gap opened");
        self.logged_gaps.push(gap.clone());
        Ok(())
    }

    async fn handle_delivery(&mut self, delivery: Delivery) -> Result<(), EngineError> {
        let channel = self.channel(delivery.channel).await?;
        let (delivery, document) = self.read_delivery(delivery, &channel).await?;
        let document = match document {
            Ok(document) => document,
            Err(error) => return self.reject(&delivery, &channel, &error).await,
        };
        if let Some(error) = self.misdirected(&delivery, &channel, &document).await? {
            return self.reject(&delivery, &channel, &error).await;
        }
        #[cfg(test)]
        tests::panic_in_order(&document)?;
        let (set, topic) = (self.record.id, channel.topic.url());
        note_notification(&self.context, set, topic, &document.oddities);
        if channel.kind == Capability::FrameworkNotification {
            return self.apply_framework(&delivery, &document).await;
        }
        let mut trial = self.sequencer.clone();
        let stated = &document.head.md;
        let verdict = trial.handle(clock::now(), delivery.id, stated.from, stated.until);
        self.apply_notification(trial, delivery, document, verdict)
            .await
    }

    /// Parses a delivery on a blocking thread. One that makes that panic is to be rejected: it would do so again. So is one that has
    /// been processed often, each time with a panic.
    async fn read_delivery(
        &self,
        delivery: Delivery,
        channel: &ChannelRecord,
    ) -> Result<(Delivery, Result<Document, EngineError>), EngineError> {
        let (topic, kind) = (channel.topic.clone(), channel.kind.clone());
        let context = Arc::clone(&self.context);
        let panics = context.delivery_panics.lock().get(&delivery.id).copied();
        if panics.is_some_and(|panics| panics >= MOST_PANICS) {
            let panicked = EngineError::Panicked(format!("a notification of {topic}"));
            return Ok((delivery, Err(panicked)));
        }
        let parsing = tokio::task::spawn_blocking(move || {
            let (base, limit) = (context.base_uri(topic.url()), context.limits.notification);
            let parsing = AssertUnwindSafe(|| parse_delivery(&delivery.body, base, &kind, limit));
            let document = catch_unwind(parsing).unwrap_or_else(|_| {
                Err(EngineError::Panicked(format!("a notification of {topic}")))
            });
            (delivery, document)
        });
        parsing.await.map_err(|_| EngineError::Interrupted)
    }

    /// Applies a change notification as the sequencer's verdict says, and then adopts the trial.
    async fn apply_notification(
        &mut self,
        trial: Sequencer,
        delivery: Delivery,
        document: Document,
        verdict: Verdict,
    ) -> Result<(), EngineError> {
        let (filter, outcome) = match verdict {
            Verdict::Hold => {
                self.sequencer = trial;
                return Ok(());
            }
            Verdict::Known(filter) => (filter, DeliveryOutcome::Duplicate),
            Verdict::Apply(filter) => (filter, DeliveryOutcome::Applied),
            Verdict::Hint(hint) => {
                tracing::info!(code = hint.code(), source = self.context.name(), set = %self.record.capability_list,
                    "notification interval unusable; polling");
                self.schedule.soon(clock::now());
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
            self.schedule.soon(clock::now());
        }
        let is_dated = is_dated(&document);
        let is_trusted = self.is_trusted(&delivery);
        let news = match self.news_of(document, filter, is_trusted).await {
            Err(error @ EngineError::Panicked(_)) => {
                return self.reject_unread(&delivery, &error).await;
            }
            news => news?,
        };
        let outcome = match outcome {
            DeliveryOutcome::Applied if !is_dated => DeliveryOutcome::Undated,
            // The interval was covered, but not by all that happened in it.
            DeliveryOutcome::Duplicate if news.has_late => DeliveryOutcome::Applied,
            outcome => outcome,
        };
        let changes = news.changes;
        let commit = self.commit_of(&trial, Some((delivery.id, delivery.channel, outcome)));
        let batch = self.change_batch(Origin::Notification, changes, Some(commit));
        match self
            .context
            .store
            .apply(batch)
            .await
            .map_err(EngineError::from)
        {
            Ok(result) => {
                self.sequencer = trial;
                self.report_held(result.held);
                Ok(())
            }
            Err(error @ (EngineError::TooManyResources(_) | EngineError::Panicked(_))) => {
                self.reject_unread(&delivery, &error).await
            }
            Err(error) => Err(error),
        }
    }

    /// Rejects a notification that states changes which can't be read: it covers nothing, and a poll brings them.
    async fn reject_unread(
        &mut self,
        delivery: &Delivery,
        error: &EngineError,
    ) -> Result<(), EngineError> {
        self.sequencer.forget(delivery.id);
        self.report_error(error);
        self.conclude_delivery(delivery, DeliveryOutcome::Rejected)
            .await?;
        self.schedule.soon(clock::now());
        Ok(())
    }

    /// Whether the hub that has sent a delivery may speak for the Source.
    fn is_trusted(&self, delivery: &Delivery) -> bool {
        let origin = self.record.capability_list.origin();
        let is_own = |hub: &HubUri| hub.url().origin() == origin;
        let configured = self.context.source.trust_hub;
        configured.unwrap_or_else(|| delivery.hub.as_ref().is_some_and(is_own))
    }

    /// The changes of a notification that are news.
    async fn news_of(
        &self,
        document: Document,
        filter: NewsFilter,
        is_trusted: bool,
    ) -> Result<News, EngineError> {
        let (context, set) = (Arc::clone(&self.context), self.record.id);
        let reading = tokio::task::spawn_blocking(move || {
            News::of(&context, set, document, &filter, is_trusted)
        });
        reading
            .await
            .map_err(|error| EngineError::of_join(&error, "a notification"))?
    }

    /// Acts on a framework notification (Framework Notification 1.0.1, section 3).
    async fn apply_framework(
        &mut self,
        delivery: &Delivery,
        document: &Document,
    ) -> Result<(), EngineError> {
        let now = clock::now();
        for entry in &document.entries {
            match entry.md.capability {
                Some(Capability::ChangeList | Capability::ChangeDump) => self.schedule.hurry(now),
                Some(Capability::CapabilityList) if entry.loc == self.record.capability_list => {
                    if entry.md.change == Some(ChangeKind::Deleted) {
                        self.context.rediscover.notify_one();
                    }
                    self.schedule.hurry(now);
                }
                // A new Resource List helps where the baseline or a gap waits for one, or where no other document states changes.
                Some(Capability::ResourceList | Capability::ResourceDump)
                    if self.record.baseline == BaselineState::Missing
                        || !self.sequencer.gaps().is_empty()
                        || !self.offers_changes() =>
                {
                    self.schedule.hurry(now);
                }
                Some(Capability::CapabilityList | Capability::Description) => {
                    self.context.rediscover.notify_one()
                }
                _ => {}
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

    /// Whether a delivery is for another channel or another set: the hub or the document says so. Its entries would become
    /// resources of this set, and its interval would cover what is not known. An unknown URI is only an oddity: `up` links
    /// often lead elsewhere.
    async fn misdirected(
        &self,
        delivery: &Delivery,
        channel: &ChannelRecord,
        document: &Document,
    ) -> Result<Option<EngineError>, EngineError> {
        let up = document.head.link("up");
        let up = up.and_then(|up| TopicUri::try_from(up.clone()).ok());
        let is_own = |uri: &TopicUri| {
            *uri.url() == self.record.capability_list
                || *uri == channel.topic
                || *uri == channel.subscribed_topic
        };
        for (link, uri) in [("self", delivery.stated_topic.clone()), ("up", up)] {
            let Some(uri) = uri.filter(|uri| !is_own(uri)) else {
                continue;
            };
            if self.context.store.names_another(channel, &uri).await? {
                return Ok(Some(EngineError::Misdirected { link, uri }));
            }
        }
        Ok(None)
    }

    /// Rejects a delivery that can't be read, or is not for this set. A poll brings what it would have stated.
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
        self.context.delivery_panics.lock().remove(&delivery.id);
        self.schedule.soon(clock::now());
        Ok(())
    }

    /// Concludes a delivery that moves no coverage.
    async fn conclude_delivery(
        &self,
        delivery: &Delivery,
        outcome: DeliveryOutcome,
    ) -> Result<(), EngineError> {
        let concluded = Some((delivery.id, delivery.channel, outcome));
        let commit = self.commit_of(&self.sequencer, concluded);
        self.commit(Origin::Notification, commit).await?;
        Ok(())
    }

    async fn channel(&self, id: ChannelId) -> Result<ChannelRecord, EngineError> {
        let found = Arc::clone(&self.context.store).channel(id).await?;
        found.ok_or(EngineError::Interrupted)
    }
}

/// How far ahead of our clock a time may be that only a hub states.
const AHEAD: TimeDelta = TimeDelta::minutes(5);

/// Marks a change that only a hub states: the Source itself is asked for it, and nobody whom the hub names.
///
/// A time that is yet to come would hide what the Source states until then: it counts as that of the receipt. A little later it
/// may be, because clocks differ and Sources round.
fn leave_to_the_source(change: &mut Change) {
    let now = clock::now().wall;
    let latest = Some(SourceTime::from(now + AHEAD));
    for time in [&mut change.changed_at, &mut change.lastmod] {
        if *time > latest {
            *time = Some(SourceTime::from(now));
        }
    }
    change.unconfirmed = true;
    change.links.retain(|link| !names_copy(link));
    change.authority = change.uri.authority();
}

/// What is news in a notification.
struct News {
    /// The changes, the oldest first, and then those that appeared late.
    changes: Vec<Change>,
    /// Whether any appeared late: in an interval that was covered before.
    has_late: bool,
}

impl News {
    /// For a blocking thread.
    fn of(
        context: &SourceContext,
        set: SetId,
        document: Document,
        filter: &NewsFilter,
        is_trusted: bool,
    ) -> Result<Self, EngineError> {
        let mut entries = document.entries;
        #[cfg(test)]
        assert!(entries.iter().all(|entry| entry.loc.path() != tests::PANIC));
        let order: EntryOrder = entries.iter().map(Entry::changed_at).collect();
        if !order.is_newest_first() {
            entries.reverse();
        }
        // From the newest to the oldest: of the late changes of a resource only the last one of the document counts.
        let mut late_uris = HashSet::new();
        let mut late_news = LateNews::of(set, true);
        let now = clock::now().wall;
        let mut changes = Vec::new();
        for entry in entries {
            let changed_at = entry.changed_at().filter(|&it| is_plausible(it, now));
            let is_included = filter.includes(entry.md.change, changed_at);
            let late = filter.is_late(changed_at);
            if is_included && late && !late_uris.insert(entry.loc.clone()) {
                continue;
            }
            let mut change = change_of(context, entry, ChangeKind::Updated, changed_at);
            if !is_trusted {
                change.as_mut().into_iter().for_each(leave_to_the_source);
            }
            match change {
                Some(change) if is_included => changes.push(Change { late, ..change }),
                Some(change) => late_news.add(context, (change, None))?,
                None => {}
            }
        }
        changes.reverse();
        let late = late_news.finish(context)?;
        let has_late = !late.is_empty();
        changes.extend(late.into_iter().map(|(change, _)| change));
        Ok(Self { changes, has_late })
    }
}

/// Whether a notification states a time that tells it from every other one.
fn is_dated(document: &Document) -> bool {
    let is_dated = |entry: &Entry| entry.md.datetime.is_some();
    document.head.md.until.is_some() || document.entries.iter().all(is_dated)
}

/// Parses the body of a delivery of that kind on the channel with the topic `base`. For a blocking thread. Whether it is compressed is seen by its bytes: some hubs leave a body compressed, others label one so
/// that is not.
fn parse_delivery(
    body: &[u8],
    base: BaseUri<'_>,
    kind: &Capability,
    limit: u64,
) -> Result<Document, EngineError> {
    #[cfg(test)]
    assert!(!body.ends_with(tests::PANIC.as_bytes()));
    let document = if body.starts_with(&[0x1f, 0x8b]) {
        let plain = unzip(body, limit).map_err(|error| EngineError::Fetch {
            uri: format!("a notification of {}", base.uri),
            error,
        })?;
        parse_entries(&plain, base)?
    } else {
        parse_entries(body, base)?
    };
    let is_expected = match &document.head.md.capability {
        // The authors' own publisher labels its notifications so.
        Some(Capability::ChangeList) => *kind == Capability::ChangeNotification,
        Some(stated) => stated == kind,
        None => true,
    };
    match &document.head.md.capability {
        Some(found) if !is_expected => Err(EngineError::WrongCapability {
            document: format!("a notification of {}", base.uri),
            wanted: kind.clone(),
            found: found.clone(),
        }),
        _ if document.head.root != Root::Urlset => Err(ReadError::WrongRoot {
            at: Place::BEGIN,
            name: "sitemapindex".to_owned(),
        }
        .into()),
        _ => Ok(document),
    }
}

/// Parses a notification of at most as many entries as a document may have (sitemaps.org): they are all in memory at once.
fn parse_entries(bytes: &[u8], base: BaseUri<'_>) -> Result<Document, EngineError> {
    let mut reader = DocumentReader::open(bytes, base)?;
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        if entries.len() == MAX_ENTRIES {
            return Err(EngineError::TooManyEntries(MAX_ENTRIES));
        }
        entries.push(entry);
    }
    Ok(Document {
        head: reader.head().clone(),
        oddities: reader.oddities().clone(),
        entries,
    })
}

/// Decompresses a delivery, up to `limit` bytes: a few bytes may become a great many.
fn unzip(body: &[u8], limit: u64) -> Result<Vec<u8>, FetchError> {
    let mut plain = Vec::new();
    GzDecoder::new(body)
        .take(limit.saturating_add(1))
        .read_to_end(&mut plain)
        .map_err(|error| FetchError::BadGzip(error.to_string()))?;
    if plain.len() as u64 > limit {
        return Err(FetchError::TooLarge { limit });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use tokio::sync::mpsc;
    use url::Url;

    use super::*;
    use crate::engine::restarts::{Panicked, catch_panic};
    use crate::engine::set::package_files::PackageFiles;
    use crate::engine::set::worker::SetWorker;
    use crate::engine::test_source::{Answering, NAME, TestSource};
    use crate::protocol::{Head, ResourceUri, write_document};
    use crate::store::{CallbackKeys, Receipt, SetRecord};

    /// A delivery that ends with it, or has an entry with this path, makes the reader panic.
    pub(super) const PANIC: &str = "/panic";
    /// What puts a delivery in order panics that has an entry with this path.
    const IN_ORDER: &str = "/panic-in-order";
    /// The store panics while a delivery is processed that has an entry with this path.
    const IN_THE_STORE: &str = "/panic-in-the-store";
    /// What orders the held notifications of a set panics whose Capability List has this path.
    const WHEN_HELD: &str = "/panic-when-held";
    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    pub(super) fn panic_in_order(document: &Document) -> Result<(), EngineError> {
        let entries = &document.entries;
        let has = |path: &str| entries.iter().any(|entry| entry.loc.path() == path);
        assert!(!has(IN_ORDER), "a test");
        match has(IN_THE_STORE) {
            true => Err(EngineError::Panicked("a test".to_owned())),
            false => Ok(()),
        }
    }

    pub(super) fn panic_if_held(set: &SetRecord, sequencer: &Sequencer) {
        let is_fatal = set.capability_list.path() == WHEN_HELD;
        assert!(!is_fatal || sequencer.held() == 0, "a test");
    }

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

    /// A set with a channel. Its Source has no document.
    struct Receiving {
        source: TestSource,
        packages: Arc<PackageFiles>,
        record: SetRecord,
        channel: ChannelId,
    }

    impl Receiving {
        /// Receives these deliveries.
        async fn of(capability_list: &str, bodies: impl IntoIterator<Item = Vec<u8>>) -> Self {
            let list = Url::parse("https://example.org/").unwrap();
            let list = list.join(capability_list).unwrap();
            let source = TestSource::new(&list, |client| {
                client.with_transport(Arc::new(Answering(|_: &Url| Some(404))))
            });
            let context = Arc::clone(&source.context);
            let packages = Arc::new(PackageFiles::new(context, &source.mirror));
            let (store, now) = (&source.store, clock::now().wall);
            let record = store.begin_set(NAME, &list).await.unwrap();
            let kind = Capability::ChangeNotification;
            let topic = TopicUri::try_from(list).unwrap();
            let keys = CallbackKeys {
                token: "token".to_owned(),
                secret: None,
            };
            let channel = store.add_channel(now, record.id, &kind, &topic, &[], keys);
            let channel = channel.await.unwrap().id;
            for body in bodies {
                let received = store.receive(now, channel, body, 1 << 20, None).await;
                assert_eq!(received.unwrap(), Receipt::Stored);
            }
            Self {
                source,
                packages,
                record,
                channel,
            }
        }

        async fn state(&self) -> SetState {
            let (context, packages) = (&self.source.context, &self.packages);
            let (context, packages) = (Arc::clone(context), Arc::clone(packages));
            let state = SetState::load(context, packages, self.record.clone());
            state.await.unwrap()
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

    #[tokio::test]
    async fn delivery_that_panics_is_rejected_and_the_next_one_is_applied() {
        let bodies = [
            PANIC.as_bytes().to_vec(),
            notification(PANIC),
            notification("/fine"),
        ];
        let receiving = Receiving::of("/capabilitylist.xml", bodies).await;
        receiving.state().await.work_inbox().await.unwrap();
        receiving.check(2).await;
    }

    #[tokio::test]
    async fn delivery_at_which_the_worker_panics_is_rejected_in_the_end() {
        let bodies = [notification(IN_ORDER), notification("/fine")];
        let receiving = Receiving::of("/capabilitylist.xml", bodies).await;
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
        assert_eq!(panics, MOST_PANICS);
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
        let bodies = [notification(IN_THE_STORE), notification("/fine")];
        let receiving = Receiving::of("/capabilitylist.xml", bodies).await;
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
        let receiving = Receiving::of(WHEN_HELD, bodies).await;
        let state = receiving.state().await;
        let mut covered = state.sequencer.clone();
        covered.resource_list(now, at(0));
        let commit = state.commit_of(&covered, None);
        state.commit(Origin::ResourceList, commit).await.unwrap();
        let most = 2 * MOST_PANICS;
        assert_eq!(panics(&receiving, most).await, most);
        receiving.check(2).await;
    }

    #[test]
    fn notification_on_a_long_topic_takes_little_memory() {
        let kind = Capability::ChangeNotification;
        let head = Head::new(Root::Urlset, kind.clone());
        let text = String::from_utf8(write_document(&head, &[])).unwrap();
        let entry = "<url><loc>?</loc><md xmlns=\"http://www.openarchives.org/rs/terms/\" change=\"created\"/></url>";
        let text = text.replace("</urlset>", &format!("{}</urlset>", entry.repeat(40_000)));
        let topic = |length: usize| {
            let topic = format!("http://example.org/{}", "t".repeat(length));
            Url::parse(&topic).unwrap()
        };
        let parse = |topic: &Url| parse_delivery(text.as_bytes(), topic.into(), &kind, 8 << 20);
        // Each of them would be longer than a URI may be.
        let longest = parse(&topic(60_000)).unwrap();
        assert_eq!(longest.entries.len(), 0);
        assert_eq!(longest.oddities.bad_entries(), 40_000);
        // All of them together would have 320 MB.
        let error = parse(&topic(8000)).unwrap_err();
        assert_eq!(error.code(), "uri-expansion");
        assert_eq!(parse(&topic(100)).unwrap().entries.len(), 40_000);
    }

    #[test]
    fn limit_of_a_delivery_holds_after_decompression() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&[b' '; 1000]).unwrap();
        let body = encoder.finish().unwrap();
        assert_eq!(unzip(&body, 1000), Ok(vec![b' '; 1000]));
        assert_eq!(unzip(&body, 999), Err(FetchError::TooLarge { limit: 999 }));
        let cut = unzip(&body[..body.len() - 9], 1000);
        assert_eq!(cut.unwrap_err().code(), "bad-gzip");
    }
}
