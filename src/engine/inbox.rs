//! How a set works through its inbox: parse, put in order, plan, and keep it all in one transaction.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

use flate2::read::GzDecoder;
use url::Url;

use super::EngineError;
use super::set::SetWorker;
use crate::clock;
use crate::fetch::FetchError;
use crate::protocol::{
    Capability, ChangeKind, Document, DocumentReader, Entry, EntryOrder, ReadError, Root,
};
use crate::store::{
    BaselineState, BatchCommit, Change, ChannelId, ChannelRecord, Delivery, DeliveryOutcome, Origin,
};
use crate::sync::{Gap, NewsFilter, Pacing, Sequencer, Verdict, is_plausible};

/// How many deliveries are read from the inbox at once.
const DELIVERIES: usize = 64;
/// The most entries of a notification. What it would have told beyond them a poll brings.
const MOST_ENTRIES: usize = 50_000;

impl SetWorker {
    /// Works until the inbox holds nothing but notifications that wait for an earlier one.
    pub(super) async fn work_inbox(&mut self) -> Result<(), EngineError> {
        loop {
            self.settle().await?;
            let deliveries = self
                .context
                .store
                .deliveries(self.record.id, self.seen, DELIVERIES)
                .await?;
            if deliveries.is_empty() {
                return Ok(());
            }
            for delivery in deliveries {
                let id = delivery.id;
                self.handle(delivery).await?;
                self.seen = id;
                self.settle().await?;
            }
        }
    }

    /// Applies held notifications whose turn has come, and opens a gap where a wait is over.
    async fn settle(&mut self) -> Result<(), EngineError> {
        loop {
            let now = clock::now();
            let mut trial = self.sequencer.clone();
            if let Some((id, verdict)) = trial.next_ready(now) {
                self.take_held(trial, id, verdict).await?;
                continue;
            }
            let Some(gap) = trial.open_gap(now) else {
                return Ok(());
            };
            self.open(&trial, &gap).await?;
            self.sequencer = trial;
            // What was held is applied when the Change List has been read, whether that closes the gap or not.
            match self.fill_gaps(false).await {
                Err(EngineError::Store(error)) => return Err(error.into()),
                Err(error) => {
                    self.schedule.polled(clock::now(), Pacing::Soon);
                    self.tell(&error);
                }
                Ok(pacing) => self.schedule.polled(clock::now(), pacing),
            }
        }
    }

    /// Takes a notification that was held. One that is gone from the inbox, or can't be read any more, covers nothing.
    async fn take_held(
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
        match read(&delivery, &channel, self.context.limits.notification) {
            Ok(document) => self.take(trial, delivery, document, verdict).await,
            Err(error) => {
                self.sequencer.forget(id);
                self.reject(&delivery, &channel, &error).await
            }
        }
    }

    /// Puts a gap on record.
    async fn open(&mut self, trial: &Sequencer, gap: &Gap) -> Result<(), EngineError> {
        // After a restart a gap that is on record is met again.
        let is_new = !self
            .sequencer
            .gaps()
            .iter()
            .any(|known| known.interval == gap.interval);
        if !is_new {
            return Ok(());
        }
        let missed_by = self.channels.of(&Capability::ChangeNotification);
        let end = BatchCommit {
            missed_by,
            ..self.end(trial, None)
        };
        let application =
            self.context
                .application(self.record.id, Origin::Notification, Vec::new(), Some(end));
        self.context.store.apply(application).await?;
        tracing::warn!(code = gap.reason.code(), source = self.context.name(), set = %self.record.capability_list,
            from = %gap.interval.from(), until = %gap.interval.until(), "a gap has opened");
        Ok(())
    }

    async fn handle(&mut self, delivery: Delivery) -> Result<(), EngineError> {
        let channel = self.channel(delivery.channel).await?;
        let document = match read(&delivery, &channel, self.context.limits.notification) {
            Ok(document) => document,
            Err(error) => return self.reject(&delivery, &channel, &error).await,
        };
        let (set, topic) = (self.record.id, channel.topic.url());
        self.context
            .note_notification(set, topic, &document.oddities);
        if channel.kind == Capability::FrameworkNotification {
            return self.follow_framework(&delivery, &document).await;
        }
        let mut trial = self.sequencer.clone();
        let stated = &document.head.md;
        let verdict = trial.handle(clock::now(), delivery.id, stated.from, stated.until);
        self.take(trial, delivery, document, verdict).await
    }

    /// Does what the sequencer says of a change notification, and keeps the sequencer that said it.
    async fn take(
        &mut self,
        trial: Sequencer,
        delivery: Delivery,
        document: Document,
        verdict: Verdict,
    ) -> Result<(), EngineError> {
        let (unknown, outcome) = match verdict {
            Verdict::Hold => {
                self.sequencer = trial;
                return Ok(());
            }
            Verdict::Known(unknown) => (unknown, DeliveryOutcome::Duplicate),
            Verdict::Apply(unknown) => (unknown, DeliveryOutcome::Applied),
            Verdict::Hint(hint) => {
                tracing::info!(code = hint.code(), source = self.context.name(), set = %self.record.capability_list,
                    "a notification proves nothing: its changes are applied, and the set is polled");
                self.schedule.soon(clock::now());
                (NewsFilter::everything(), DeliveryOutcome::Applied)
            }
        };
        let outcome = match outcome {
            DeliveryOutcome::Applied if !tells_time(&document) => DeliveryOutcome::Undated,
            outcome => outcome,
        };
        let mut entries = document.entries;
        let direction: EntryOrder = entries.iter().map(Entry::changed_at).collect();
        if !direction.is_newest_first() {
            entries.reverse();
        }
        // From the newest to the oldest: of what is told late, only the last word of the document counts.
        let mut met = HashSet::new();
        let now = clock::now().wall;
        let news = entries.into_iter().filter_map(|entry| {
            let changed_at = entry.changed_at().filter(|&it| is_plausible(it, now));
            let late = unknown.is_late(changed_at);
            if !unknown.includes(changed_at) || (late && !met.insert(entry.loc.clone())) {
                return None;
            }
            let change = self
                .context
                .change_of(entry, ChangeKind::Updated, changed_at)?;
            Some(Change { late, ..change })
        });
        let mut changes: Vec<Change> = news.collect();
        changes.reverse();
        let end = self.end(&trial, Some((delivery.id, delivery.channel, outcome)));
        let application =
            self.context
                .application(self.record.id, Origin::Notification, changes, Some(end));
        let applied = self.context.store.apply(application).await?;
        self.sequencer = trial;
        self.tell_held(applied.held);
        Ok(())
    }

    /// Acts on a framework notification (Framework Notification 1.0.1, section 3).
    async fn follow_framework(
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
                // A baseline, or a gap that waits for one, is what a new Resource List is good for.
                Some(Capability::ResourceList | Capability::ResourceDump)
                    if self.record.baseline == BaselineState::Missing
                        || !self.sequencer.gaps().is_empty() =>
                {
                    self.schedule.hurry(now);
                }
                Some(Capability::CapabilityList | Capability::Description) => {
                    self.context.rediscover.notify_one()
                }
                _ => {}
            }
        }
        let outcome = if tells_time(document) {
            DeliveryOutcome::Applied
        } else {
            DeliveryOutcome::Undated
        };
        let end = self.end(
            &self.sequencer,
            Some((delivery.id, delivery.channel, outcome)),
        );
        let application =
            self.context
                .application(self.record.id, Origin::Notification, Vec::new(), Some(end));
        self.context.store.apply(application).await?;
        Ok(())
    }

    async fn reject(
        &mut self,
        delivery: &Delivery,
        channel: &ChannelRecord,
        error: &EngineError,
    ) -> Result<(), EngineError> {
        tracing::warn!(code = error.code(), topic = %channel.topic, %error, "a delivery is of no use");
        let end = self.end(
            &self.sequencer,
            Some((delivery.id, delivery.channel, DeliveryOutcome::Rejected)),
        );
        let application =
            self.context
                .application(self.record.id, Origin::Notification, Vec::new(), Some(end));
        self.context.store.apply(application).await?;
        // What it would have told is not lost: a poll brings it.
        self.schedule.soon(clock::now());
        Ok(())
    }

    /// The end of a document that moves the coverage to where a sequencer has it.
    pub(super) fn end(
        &self,
        sequencer: &Sequencer,
        delivery: Option<(i64, ChannelId, DeliveryOutcome)>,
    ) -> BatchCommit {
        BatchCommit {
            rules: self.context.deletion_rules(),
            progress: Some((sequencer.coverage().clone(), sequencer.gaps().to_vec())),
            delivery,
            documents: Vec::new(),
            listed: None,
            read_until: sequencer.read_until(),
            missed_by: Vec::new(),
        }
    }

    pub(super) fn tell_held(&self, held: u64) {
        if held > 0 {
            tracing::warn!(code = "deletions-held", source = self.context.name(), set = %self.record.capability_list, held,
                "deletions wait for approval: so many at once, or told by a list that names nothing");
        }
    }

    async fn channel(&self, id: ChannelId) -> Result<ChannelRecord, EngineError> {
        let found = Arc::clone(&self.context.store).channel(id).await?;
        found.ok_or(EngineError::Interrupted)
    }
}

/// Whether a notification tells a time that no other one tells.
fn tells_time(document: &Document) -> bool {
    let is_dated = |entry: &Entry| entry.md.datetime.is_some();
    document.head.md.until.is_some() || document.entries.iter().all(is_dated)
}

/// Reads a delivery. Some hubs leave a body compressed, others say that one is compressed that is not: the bytes tell.
fn read(delivery: &Delivery, channel: &ChannelRecord, limit: u64) -> Result<Document, EngineError> {
    let base = channel.topic.url();
    let document = if delivery.body.starts_with(&[0x1f, 0x8b]) {
        let plain = unzip(&delivery.body, limit).map_err(|error| EngineError::Fetch {
            uri: format!("a notification of {base}"),
            error,
        })?;
        read_entries(&plain, base)?
    } else {
        read_entries(&delivery.body, base)?
    };
    let carried = match &document.head.md.capability {
        // The authors' own publisher labels its notifications so.
        Some(Capability::ChangeList) => channel.kind == Capability::ChangeNotification,
        Some(stated) => *stated == channel.kind,
        None => true,
    };
    match &document.head.md.capability {
        Some(found) if !carried => Err(EngineError::WrongCapability {
            document: format!("a notification of {base}"),
            wanted: channel.kind.clone(),
            found: found.clone(),
        }),
        _ if document.head.root != Root::Urlset => {
            Err(ReadError::WrongRoot("sitemapindex".to_owned()).into())
        }
        _ => Ok(document),
    }
}

/// Reads a notification, of as many entries as a document may have (sitemaps.org): they are all in memory at once.
fn read_entries(bytes: &[u8], base: &Url) -> Result<Document, EngineError> {
    let mut reader = DocumentReader::open(bytes, base)?;
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        if entries.len() == MOST_ENTRIES {
            return Err(EngineError::TooManyEntries(MOST_ENTRIES));
        }
        entries.push(entry);
    }
    Ok(Document {
        head: reader.head().clone(),
        oddities: reader.oddities().clone(),
        entries,
    })
}

/// Decompresses a delivery. What is longer than the longest delivery is not read on: a few bytes may become a great many.
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

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn compressed_delivery_is_as_long_as_any_other_may_be() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&[b' '; 1000]).unwrap();
        let body = encoder.finish().unwrap();
        assert_eq!(unzip(&body, 1000), Ok(vec![b' '; 1000]));
        assert_eq!(unzip(&body, 999), Err(FetchError::TooLarge { limit: 999 }));
        let cut = unzip(&body[..body.len() - 9], 1000);
        assert_eq!(cut.unwrap_err().code(), "bad-gzip");
    }
}
