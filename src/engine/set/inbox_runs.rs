//! Deliveries that need nothing but their turn: consecutive ones are ingested in one transaction.
//!
//! Such a delivery can be read, is for this set, and is neither early nor a mere hint. Whatever is not like that ends the run: it is
//! processed by itself. So is what panics, and each delivery of a run that fails.
//!
//! Invariant: the result is that of processing them one by one.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use resourcesync::{Capability, ChangeKind, Document};
use resyncd_core::{NewsFilter, ResourceUri, Sequencer, Verdict};

use super::changes::time_of_change;
use super::delivery_reader::DeliveryReader;
use super::notices::{note_notification, note_unfollowed};
use super::notification::ReadNotification;
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::store::{
    ChangeBatch, Delivery, DeliveryOutcome, DocumentEnd, Origin, ProcessedDelivery,
};

/// A run ends with the delivery that reaches so many changes: all of them, and deliveries that arrive, wait for the transaction.
const MOST_CHANGES: usize = 250;

impl SetState {
    /// Applies the deliveries at the front of the queue that need nothing but their turn, and removes them from it. Returns how many
    /// of the following ones are to be processed one by one.
    pub(super) async fn ingest_run(
        &mut self,
        deliveries: &mut VecDeque<Delivery>,
    ) -> Result<usize, EngineError> {
        let Some(first) = deliveries.front() else {
            return Ok(0);
        };
        // After each delivery, those that are held may be next.
        if self.sequencer.held() > 0 {
            return Ok(1);
        }
        let channel = self.channel(first.channel).await?;
        // Without intervals each is a hint.
        if channel.kind != Capability::ChangeNotification || !channel.transport.states_intervals() {
            return Ok(1);
        }
        let topic = channel.topic.clone();
        let planner = Planner {
            context: Arc::clone(&self.context),
            reader: DeliveryReader::of(&self.context, &self.record, channel),
        };
        let (sequencer, waiting) = (self.sequencer.clone(), std::mem::take(deliveries));
        let planning = tokio::task::spawn_blocking(move || {
            let run = planner.plan(sequencer, &waiting);
            (waiting, run)
        });
        let planning = planning.await;
        let (waiting, run) =
            planning.map_err(|error| EngineError::of_join(&error, "notifications"))?;
        *deliveries = waiting;
        let planned = run.notifications.len();
        if planned == 0 {
            return Ok(1);
        }
        let (mut batches, mut oddities): (Vec<ChangeBatch>, _) = (Vec::new(), Vec::new());
        let mut had_deletions = true;
        for notification in run.notifications {
            let changes = notification.read.changes;
            oddities.push(notification.read.oddities);
            let mut kinds = changes.iter().map(|change| change.kind);
            let has_deletions = kinds.any(|kind| kind == ChangeKind::Deleted);
            let ends_alone = std::mem::replace(&mut had_deletions, has_deletions) || has_deletions;
            match batches.last_mut() {
                Some(ChangeBatch {
                    changes: before,
                    end: Some(end),
                    ..
                }) if !ends_alone => {
                    before.extend(changes);
                    end.deliveries.push(notification.delivery);
                }
                // The end of a document decides about its deletions.
                _ => {
                    let mut end = DocumentEnd::new(self.deletion_rules());
                    end.deliveries.push(notification.delivery);
                    batches.push(self.change_batch(Origin::Notification, changes, Some(end)));
                }
            }
        }
        // The coverage moves over all of them at once.
        if let Some(end) = batches.last_mut().and_then(|batch| batch.end.as_mut()) {
            let deliveries = std::mem::take(&mut end.deliveries);
            *end = DocumentEnd {
                deliveries,
                ..self.document_end(&run.sequencer, None)
            };
        }
        let Ok(result) = self.context.store.ingest_all(batches).await else {
            // One by one, each has its own error.
            return Ok(planned);
        };
        self.sequencer = run.sequencer;
        self.report_held_back(result.held_back);
        note_unfollowed(&self.context, self.record.id, result.unfollowed);
        for oddities in &oddities {
            note_notification(&self.context, self.record.id, topic.url(), oddities);
        }
        for delivery in deliveries.drain(..planned) {
            self.last_delivery = delivery.id;
        }
        Ok(usize::from(run.is_interrupted))
    }
}

/// Notifications that are ingested together.
struct Run {
    notifications: Vec<PlannedNotification>,
    /// The state after all of them.
    sequencer: Sequencer,
    /// Whether it was ended by a delivery that is to be processed by itself.
    is_interrupted: bool,
}

/// A notification whose turn it is.
struct PlannedNotification {
    delivery: ProcessedDelivery,
    read: ReadNotification,
}

/// Plans runs of one channel. For a blocking thread.
struct Planner {
    context: Arc<SourceContext>,
    reader: DeliveryReader,
}

impl Planner {
    fn plan(&self, sequencer: Sequencer, deliveries: &VecDeque<Delivery>) -> Run {
        let mut run = Run {
            notifications: Vec::new(),
            sequencer,
            is_interrupted: false,
        };
        let mut changes = 0;
        for delivery in deliveries {
            if changes >= MOST_CHANGES || delivery.channel != self.reader.channel.id {
                break;
            }
            let planning = AssertUnwindSafe(|| self.next_of_run(&run, delivery));
            let Ok(Some((planned, sequencer))) = catch_unwind(planning) else {
                run.is_interrupted = true;
                break;
            };
            changes += planned.read.changes.len();
            run.notifications.push(planned);
            run.sequencer = sequencer;
        }
        run
    }

    /// The notification that follows those of a run, and the state after it; `None` if it is to be processed by itself.
    fn next_of_run(
        &self,
        run: &Run,
        delivery: &Delivery,
    ) -> Option<(PlannedNotification, Sequencer)> {
        let panics = &self.context.delivery_panics;
        if panics.lock().contains_key(&delivery.id) {
            return None;
        }
        let document = self.reader.document(delivery).ok()?;
        let is_foreign = !matches!(self.reader.misdirected(delivery, &document), Ok(None));
        if document.oddities.damaged_entries() > 0 || is_foreign {
            return None;
        }
        let mut sequencer = run.sequencer.clone();
        let (filter, covered) = match self.reader.order(&mut sequencer, delivery, &document) {
            Verdict::Ingest(filter) => (filter, DeliveryOutcome::Applied),
            Verdict::Known(filter) => (filter, DeliveryOutcome::Duplicate),
            Verdict::Hold | Verdict::CoversNothing(_) => return None,
        };
        if compares_changed(run, &document, &filter) {
            return None;
        }
        let is_trusted = self.reader.is_trusted(delivery);
        let read = self.reader.news(is_trusted, document, &filter, covered);
        // What is left to a poll is not covered.
        let read = read.ok().filter(|read| read.left.all == 0)?;
        let planned = PlannedNotification {
            delivery: delivery.processed(read.outcome),
            read,
        };
        Some((planned, sequencer))
    }
}

/// Whether an entry of a time that was covered is to be compared with what is known of a resource that the run changes: that change
/// is not in the database yet.
fn compares_changed(run: &Run, document: &Document, filter: &NewsFilter) -> bool {
    let now = clock::now().wall;
    let compared = document
        .entries
        .iter()
        .filter(|entry| !filter.includes(entry.md.change, time_of_change(entry, now)));
    let mut compared = compared.peekable();
    let mut changes = run
        .notifications
        .iter()
        .flat_map(|it| &it.read.changes)
        .peekable();
    if compared.peek().is_none() || changes.peek().is_none() {
        return false;
    }
    let changed: HashSet<&ResourceUri> = changes.map(|change| &change.uri).collect();
    let mut uris = compared.filter_map(|entry| ResourceUri::try_from(entry.loc.clone()).ok());
    uris.any(|uri| changed.contains(&uri))
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta, Utc};
    use resourcesync::{ChangeKind, Entry, Head, Link, Root, SourceTime, write_document};

    use super::*;
    use crate::engine::set::inbox::tests::Receiving;

    /// An interval, if one is stated, and the changes in it: path, kind and time.
    type Stated<'a> = (Option<(i64, i64)>, &'a [(&'a str, ChangeKind, i64)]);

    const CREATED: ChangeKind = ChangeKind::Created;
    const UPDATED: ChangeKind = ChangeKind::Updated;
    const DELETED: ChangeKind = ChangeKind::Deleted;

    /// A notification with this path can't be read.
    const UNREADABLE: &str = "/unreadable";
    /// A notification with this path may be for another set: the database is asked, which panics.
    const OF_ANOTHER: &str = "/of-another";

    fn of<'a>(interval: (i64, i64), changes: &'a [(&'a str, ChangeKind, i64)]) -> Stated<'a> {
        (Some(interval), changes)
    }

    /// A time in the past.
    fn at(now: DateTime<Utc>, seconds: i64) -> SourceTime {
        SourceTime::from(now + TimeDelta::seconds(seconds - 1000))
    }

    fn body(now: DateTime<Utc>, (interval, changes): Stated<'_>) -> Vec<u8> {
        let mut head = Head::new(Root::Urlset, Capability::ChangeNotification);
        let times = interval.map(|(from, until)| (at(now, from), at(now, until)));
        (head.md.from, head.md.until) = times.unzip();
        let entry = |&(path, kind, time): &(&str, ChangeKind, i64)| {
            let mut entry = Entry::new(format!("https://example.org{path}").parse().unwrap());
            entry.md.change = Some(kind);
            entry.md.datetime = Some(at(now, time));
            entry
        };
        let entries: Vec<Entry> = changes.iter().map(entry).collect();
        let has = |path: &str| changes.iter().any(|change| change.0 == path);
        if has(OF_ANOTHER) {
            let other = "https://example.org/another/capabilitylist.xml";
            head.links.push(Link::new("up", other.parse().unwrap()));
        }
        if has(UNREADABLE) {
            b"no document".to_vec()
        } else {
            write_document(&head, &entries)
        }
    }

    /// Processes notifications, one by one or all at once. Returns what is known then, and how many commits that took.
    async fn process(now: DateTime<Utc>, stated: &[Stated<'_>], at_once: bool) -> (String, u64) {
        let receiving = Receiving::of("/capabilitylist.xml", []).await;
        let mut state = receiving.state_read(at(now, 0)).await;
        let store = Arc::clone(&receiving.source.store);
        store.commit_hook().panic_at_query("::names_another");
        let mut commits = 0;
        for &stated in stated {
            receiving.receive(body(now, stated)).await;
            if !at_once {
                state.work_inbox().await.unwrap();
            }
        }
        if at_once {
            let before = store.commit_hook().steps();
            // What panics is processed again, until it is rejected.
            while state.work_inbox().await.is_err() {}
            // Each has two steps.
            commits = (store.commit_hook().steps() - before) / 2;
        }
        let channel = store.channel(receiving.channel).await.unwrap().unwrap();
        let counts = (channel.applied, channel.duplicate, channel.rejected);
        let waiting = (channel.inbox, channel.inbox_bytes, state.sequencer.held());
        let snapshot = store.snapshot().await.unwrap();
        (format!("{counts:?} {waiting:?} {snapshot:#?}"), commits)
    }

    #[tokio::test]
    async fn backlog_is_applied_in_few_transactions_and_as_one_by_one() {
        let now = clock::now().wall;
        let first = of((0, 10), &[("/a", CREATED, 5), ("/b", CREATED, 6)]);
        let second = of((10, 20), &[("/c", CREATED, 15)]);
        let third = of((20, 30), &[("/a", UPDATED, 25), ("/b", DELETED, 26)]);
        let hint: Stated<'_> = (None, &[("/d", CREATED, 5)]);
        let unreadable = of((10, 11), &[(UNREADABLE, CREATED, 10)]);
        // Their intervals are covered, but one of them has appeared late.
        let late = of((1, 9), &[("/d", CREATED, 5)]);
        let late_of_same = of((1, 9), &[("/a", UPDATED, 7)]);
        let known = of((1, 9), &[("/a", CREATED, 4)]);
        let empty = of((2, 9), &[]);
        for (what, stated, commits) in [
            ("one", vec![first], 1),
            ("consecutive", vec![first, second, third], 1),
            // The early one is held, which is no commit.
            ("out of order", vec![first, third, second], 3),
            ("a mere hint between", vec![first, hint, second], 3),
            ("unreadable between", vec![first, unreadable, second], 3),
            ("late", vec![first, second, late, third], 1),
            (
                "late, of a resource of the run",
                vec![first, second, late_of_same, third],
                3,
            ),
            (
                "known, of a resource of the run",
                vec![first, second, known, empty],
                3,
            ),
        ] {
            let (one_by_one, _) = process(now, &stated, false).await;
            let (at_once, counted) = process(now, &stated, true).await;
            assert_eq!(at_once, one_by_one, "{what}");
            assert_eq!(counted, commits, "{what}");
        }
    }

    #[tokio::test]
    async fn run_ends_before_a_delivery_whose_processing_fails() {
        let now = clock::now().wall;
        let stated = [
            of((0, 10), &[("/a", CREATED, 5)]),
            of((10, 20), &[(OF_ANOTHER, CREATED, 15)]),
            of((10, 30), &[("/b", CREATED, 25)]),
        ];
        let (known, _) = process(now, &stated, true).await;
        assert!(known.starts_with("(2, 0, 1) (0, 0, 0)"), "{known}");
    }
}
