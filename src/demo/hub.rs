//! A WebSub hub for one machine: it keeps its subscriptions in memory, and misbehaves when told to.
//!
//! It takes subscriptions (WebSub, section 5.1), verifies intent (5.3), denies (5.2), and distributes what it is given,
//! signed (7). A notification is given to it by [`Hub::deliver`] or, as Change Notification section 4.1 has it, by a POST of the payload.

mod delivery;
mod event;
mod options;
mod server;
mod subscription;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio_util::sync::DropGuard;

pub use self::delivery::Delivery;
use self::event::EventLog;
pub use self::event::{HubCounts, HubEvent};
pub use self::options::{Granting, HubOptions, Signing, Verifying};
pub use self::subscription::Subscription;
use super::DemoError;
use super::serving::{self, lock};
use crate::clock;
use crate::protocol::HubUri;

/// A hub that answers on loopback until its last copy is dropped. A copy is the same hub.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Shared>,
    _serving: Arc<DropGuard>,
}

/// What the hub and its server share.
struct Shared {
    uri: HubUri,
    client: reqwest::Client,
    state: Mutex<HubState>,
    events: EventLog,
}

struct HubState {
    options: HubOptions,
    /// By topic and callback (WebSub, section 5.1: the pair is what tells subscriptions apart).
    subscriptions: BTreeMap<(String, String), Subscription>,
    /// Topics that are denied, and why.
    denied: BTreeMap<String, String>,
}

impl Hub {
    /// Starts it.
    ///
    /// # Errors
    /// [`DemoError::Listen`], when the address can't be had; [`DemoError::Client`].
    pub async fn start(options: HubOptions) -> Result<Self, DemoError> {
        let bound = serving::bind(options.listen).await?;
        let uri = HubUri::parse(&format!("http://{}{}", bound.address(), server::PATH))
            .expect("an address makes an http URI");
        let shared = Arc::new(Shared {
            uri,
            client: serving::client(options.timeout)?,
            state: Mutex::new(HubState {
                options,
                subscriptions: BTreeMap::new(),
                denied: BTreeMap::new(),
            }),
            events: EventLog::default(),
        });
        Ok(Self {
            _serving: bound.serve(server::router(Arc::clone(&shared))),
            shared,
        })
    }

    /// Its URI.
    #[must_use]
    pub fn uri(&self) -> &HubUri {
        &self.shared.uri
    }

    /// Changes how it behaves from now on; its address and time-out stay.
    pub fn configure(&self, change: impl FnOnce(&mut HubOptions)) {
        change(&mut lock(&self.shared.state).options);
    }

    /// The subscriptions that are active.
    #[must_use]
    pub fn subscriptions(&self) -> Vec<Subscription> {
        self.shared.active(|_| true)
    }

    /// Denies new subscriptions to a topic, for a reason.
    pub fn deny(&self, topic: &str, reason: &str) {
        let denied = &mut lock(&self.shared.state).denied;
        denied.insert(topic.to_owned(), reason.to_owned());
    }

    /// Denies a topic no longer.
    pub fn allow(&self, topic: &str) {
        lock(&self.shared.state).denied.remove(topic);
    }

    /// Drops the subscriptions to a topic without a word, as hubs do; how many there were.
    pub fn forget(&self, topic: &str) -> usize {
        let subscriptions = &mut lock(&self.shared.state).subscriptions;
        let before = subscriptions.len();
        subscriptions.retain(|(of, _), _| of != topic);
        before - subscriptions.len()
    }

    /// Ends the subscriptions to a topic and tells their subscribers (WebSub, section 5.2: at any time); how many there were.
    pub async fn end(&self, topic: &str, reason: &str) -> usize {
        let ended = self
            .shared
            .active(|subscription| subscription.topic == topic);
        self.forget(topic);
        for subscription in &ended {
            let callback = &subscription.callback;
            subscription::tell_denied(&self.shared, topic, callback, reason).await;
        }
        ended.len()
    }

    /// Delivers a notification to each subscriber of a topic, side by side, and waits for what became of it.
    pub async fn deliver(&self, topic: &str, body: Bytes) -> Vec<Delivery> {
        self.shared.deliver(topic, body).await
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> HubCounts {
        self.shared.events.counts()
    }

    /// Where the record of events stands, for [`Hub::wait_after`].
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.shared.events.mark()
    }

    /// Waits for an event, among all those since the hub started: one that is past counts. The oldest of many thousands are
    /// forgotten.
    pub async fn wait_for(&self, wanted: impl Fn(&HubEvent) -> bool) -> HubEvent {
        self.wait_after(0, wanted).await
    }

    /// Waits for an event that came after the mark.
    pub async fn wait_after(&self, mark: u64, wanted: impl Fn(&HubEvent) -> bool) -> HubEvent {
        self.shared.events.wait_after(mark, wanted).await
    }

    /// Waits until what happened so far is as wanted. A subscriber that has confirmed its intent may be a moment ahead of what
    /// the hub makes of it.
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

impl Shared {
    fn active(&self, wanted: impl Fn(&Subscription) -> bool) -> Vec<Subscription> {
        let now = clock::now().wall;
        let state = lock(&self.state);
        let active = state.subscriptions.values();
        active
            .filter(|subscription| subscription.expires_at > now && wanted(subscription))
            .cloned()
            .collect()
    }

    async fn deliver(&self, topic: &str, body: Bytes) -> Vec<Delivery> {
        let subscribers = self.active(|subscription| subscription.topic == topic);
        let deliveries = subscribers
            .iter()
            .map(|subscription| delivery::deliver(self, subscription, &body));
        join_all(deliveries).await
    }

    /// The options, as they are at this moment.
    fn options(&self) -> HubOptions {
        lock(&self.state).options.clone()
    }

    fn drop_subscription(&self, topic: &str, callback: &str) {
        let key = (topic.to_owned(), callback.to_owned());
        lock(&self.state).subscriptions.remove(&key);
    }
}

/// How long a lease of that many seconds is at most, so that adding it to now stays a date.
const LONGEST_LEASE: Duration = Duration::from_secs(10 * 365 * 86_400);

#[cfg(test)]
mod tests;
