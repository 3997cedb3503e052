//! The events of the hub, for tests to wait for.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::watch;
use websub::{Mode, SubscriptionRequest};

/// How many events are remembered.
const REMEMBERED: usize = 16_384;

/// An event at the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubEvent {
    /// A request to subscribe or unsubscribe was answered with this status.
    Requested {
        /// The request.
        request: SubscriptionRequest,
        /// The status of the response.
        status: u16,
    },
    /// A subscriber confirmed its intent: the subscription is active, or ended.
    Verified {
        /// Whether it subscribed or unsubscribed.
        mode: Mode,
        /// The topic.
        topic: String,
        /// The callback.
        callback: String,
    },
    /// A subscriber did not confirm.
    NotVerified {
        /// Whether it was to subscribe or to unsubscribe.
        mode: Mode,
        /// The topic.
        topic: String,
        /// The callback.
        callback: String,
        /// The status of its response, if any.
        status: Option<u16>,
    },
    /// A subscription was denied, or ended by the hub, and the subscriber notified.
    Denied {
        /// The topic.
        topic: String,
        /// The callback.
        callback: String,
    },
    /// A notification was delivered, or the delivery given up.
    Delivered(HubDelivery),
}

/// The result of delivering one notification to one subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubDelivery {
    /// The topic.
    pub topic: String,
    /// The callback.
    pub callback: String,
    /// The number of attempts.
    pub attempts: u32,
    /// The status of the last response; `None`: there was none.
    pub status: Option<u16>,
}

impl HubDelivery {
    /// Whether the subscriber answered with 2xx.
    pub fn is_accepted(&self) -> bool {
        self.status
            .is_some_and(|status| (200..300).contains(&status))
    }
}

/// The number of events of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HubCounts {
    /// Requests to subscribe or unsubscribe.
    pub requested: u64,
    /// Subscriptions that were made or renewed.
    pub subscribed: u64,
    /// Subscriptions that were ended by their subscribers.
    pub unsubscribed: u64,
    /// Intents that were not confirmed.
    pub not_verified: u64,
    /// Denials.
    pub denied: u64,
    /// Deliveries that were answered with 2xx.
    pub delivered: u64,
    /// Deliveries that failed.
    pub undelivered: u64,
}

impl HubCounts {
    fn count(&mut self, event: &HubEvent) {
        let counter = match event {
            HubEvent::Requested { .. } => &mut self.requested,
            HubEvent::Verified {
                mode: Mode::Unsubscribe,
                ..
            } => &mut self.unsubscribed,
            HubEvent::Verified { .. } => &mut self.subscribed,
            HubEvent::NotVerified { .. } => &mut self.not_verified,
            HubEvent::Denied { .. } => &mut self.denied,
            HubEvent::Delivered(delivery) if delivery.is_accepted() => &mut self.delivered,
            HubEvent::Delivered(_) => &mut self.undelivered,
        };
        *counter += 1;
    }
}

/// The log of events.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    record: Mutex<Events>,
    /// The number of events so far.
    written: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Events {
    /// The number of the first event that is remembered.
    first: u64,
    events: VecDeque<HubEvent>,
    counts: HubCounts,
}

impl EventLog {
    pub(super) fn add(&self, event: HubEvent) {
        let mut record = self.record.lock();
        record.counts.count(&event);
        record.events.push_back(event);
        if record.events.len() > REMEMBERED {
            record.events.pop_front();
            record.first += 1;
        }
        let written = record.first + record.events.len() as u64;
        drop(record);
        self.written
            .send_modify(|count| *count = written.max(*count));
    }

    pub(super) fn counts(&self) -> HubCounts {
        self.record.lock().counts
    }

    pub(super) fn mark(&self) -> u64 {
        let record = self.record.lock();
        record.first + record.events.len() as u64
    }

    pub(super) async fn wait_after(
        &self,
        mark: u64,
        wanted: impl Fn(&HubEvent) -> bool,
    ) -> HubEvent {
        let mut written = self.written.subscribe();
        let mut next = mark;
        loop {
            written.borrow_and_update();
            {
                let record = self.record.lock();
                let skipped = usize::try_from(next.saturating_sub(record.first));
                let unseen = record.events.iter().skip(skipped.unwrap_or(usize::MAX));
                if let Some(event) = unseen.into_iter().find(|event| wanted(event)) {
                    return event.clone();
                }
                next = record.first + record.events.len() as u64;
            }
            written.changed().await.expect("the log owns the sender");
        }
    }
}
