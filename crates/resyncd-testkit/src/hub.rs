//! A WebSub hub with its state in memory, for the tests. Options make it misbehave.
//!
//! It accepts subscriptions (WebSub, section 5.1), verifies intent (5.3), denies (5.2), and distributes signed notifications (7).
//! Notifications come from [`Hub::deliver`] or by a POST of the payload (Change Notification, section 4.1).

mod delivery;
mod event;
mod options;
mod server;
mod state;
mod subscription;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use resyncd_core::HubUri;
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

use self::event::EventLog;
pub use self::event::{HubCounts, HubDelivery, HubEvent};
pub use self::options::{Granting, HubOptions, Signing, Verifying};
pub use self::state::Subscription;
use self::state::{HubState, SharedHub};
use super::{SampleError, serving};

/// A hub that serves on loopback until its last clone is dropped. A clone is the same hub.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<SharedHub>,
    _serving: Arc<DropGuard>,
}

impl Hub {
    /// Starts the hub.
    ///
    /// # Errors
    /// [`SampleError::Listen`] and [`SampleError::Client`].
    pub async fn start(options: HubOptions) -> Result<Self, SampleError> {
        let bound = serving::bind(options.listen).await?;
        let uri = HubUri::parse(&format!("http://{}{}", bound.address(), server::PATH))
            .expect("an address makes an http URI");
        let shared = Arc::new(SharedHub {
            uri,
            client: serving::client(options.timeout)?,
            state: Mutex::new(HubState {
                options,
                subscriptions: BTreeMap::new(),
                denied: BTreeMap::new(),
            }),
            events: EventLog::default(),
            in_progress: watch::Sender::default(),
        });
        Ok(Self {
            _serving: bound.serve(server::router(Arc::clone(&shared))),
            shared,
        })
    }

    /// Its URI.
    pub fn uri(&self) -> &HubUri {
        &self.shared.uri
    }

    /// Changes its options, except address and timeout.
    pub fn configure(&self, change: impl FnOnce(&mut HubOptions)) {
        change(&mut self.shared.state.lock().options);
    }

    /// The active subscriptions.
    pub fn subscriptions(&self) -> Vec<Subscription> {
        self.shared.active(|_| true)
    }

    /// Denies new subscriptions to a topic.
    pub fn deny(&self, topic: &str, reason: &str) {
        let denied = &mut self.shared.state.lock().denied;
        denied.insert(topic.to_owned(), reason.to_owned());
    }

    /// Accepts subscriptions to a topic again.
    pub fn allow(&self, topic: &str) {
        self.shared.state.lock().denied.remove(topic);
    }

    /// Silently drops the subscriptions to a topic; returns how many.
    pub fn forget(&self, topic: &str) -> usize {
        let subscriptions = &mut self.shared.state.lock().subscriptions;
        let before = subscriptions.len();
        subscriptions.retain(|(of, _), _| of != topic);
        before - subscriptions.len()
    }

    /// Ends the subscriptions to a topic and notifies their subscribers (WebSub, section 5.2); returns how many.
    pub async fn end(&self, topic: &str, reason: &str) -> usize {
        let ended = self
            .shared
            .active(|subscription| subscription.topic == topic);
        self.forget(topic);
        for subscription in &ended {
            let callback = &subscription.callback;
            subscription::send_denial(&self.shared, topic, callback, reason).await;
        }
        ended.len()
    }

    /// Delivers a notification to all subscribers of a topic concurrently, and waits for the results.
    pub async fn deliver(&self, topic: &str, body: Bytes) -> Vec<HubDelivery> {
        delivery::deliver_all(&self.shared, topic, body).await
    }

    /// The counts of events so far.
    pub fn counts(&self) -> HubCounts {
        self.shared.events.counts()
    }

    /// The position in the event log, for [`Hub::wait_after`].
    pub fn mark(&self) -> u64 {
        self.shared.events.mark()
    }

    /// Waits for an event, including earlier ones since the start. Only the latest thousands are remembered.
    pub async fn wait_for(&self, wanted: impl Fn(&HubEvent) -> bool) -> HubEvent {
        self.wait_after(0, wanted).await
    }

    /// Waits for an event after the mark.
    pub async fn wait_after(&self, mark: u64, wanted: impl Fn(&HubEvent) -> bool) -> HubEvent {
        self.shared.events.wait_after(mark, wanted).await
    }

    /// Waits until the counts are as wanted. The hub processes a confirmation a moment after the subscriber sent it.
    pub async fn wait_for_counts(&self, wanted: impl Fn(&HubCounts) -> bool) -> HubCounts {
        loop {
            let mark = self.mark();
            let counts = self.counts();
            if wanted(&counts) {
                return counts;
            }
            self.wait_after(mark, |_| true).await;
        }
    }

    /// Waits until every request that it has accepted is processed: a subscription exists a moment after its confirmation was sent.
    pub async fn wait_until_processed(&self) {
        let mut in_progress = self.shared.in_progress.subscribe();
        let processed = in_progress.wait_for(|&count| count == 0).await;
        drop(processed.expect("the hub owns the sender"));
    }

    /// Waits until a topic has an active subscription.
    pub async fn wait_for_subscription(&self, topic: &str) -> Subscription {
        loop {
            let mark = self.mark();
            let mut found = self
                .shared
                .active(|subscription| subscription.topic == topic);
            if let Some(found) = found.pop() {
                return found;
            }
            self.wait_after(mark, |event| matches!(event, HubEvent::Verified { .. }))
                .await;
        }
    }
}

#[cfg(test)]
mod tests;
