//! The hub's state: its options, subscriptions and denied topics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use resyncd_core::HubUri;
use tokio::sync::watch;

use super::event::EventLog;
use super::options::HubOptions;

/// A subscription that is active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The topic.
    pub topic: String,
    /// The URL that notifications are delivered to.
    pub callback: String,
    /// The secret that signs deliveries.
    pub secret: Option<String>,
    /// The lease that was granted.
    pub lease: Duration,
    /// When it ends.
    pub expires_at: DateTime<Utc>,
}

/// What the hub and its server share.
pub(super) struct SharedHub {
    pub(super) uri: HubUri,
    pub(super) client: reqwest::Client,
    pub(super) state: Mutex<HubState>,
    pub(super) events: EventLog,
    /// How many accepted requests are being processed.
    pub(super) in_progress: watch::Sender<usize>,
}

/// An accepted request that is being processed, until this is dropped.
pub(super) struct InProgress(Arc<SharedHub>);

impl InProgress {
    pub(super) fn begin(shared: &Arc<SharedHub>) -> Self {
        shared.in_progress.send_modify(|count| *count += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.in_progress.send_modify(|count| *count -= 1);
    }
}

pub(super) struct HubState {
    pub(super) options: HubOptions,
    /// By topic and callback, which identify a subscription (WebSub, section 5.1).
    pub(super) subscriptions: BTreeMap<(String, String), Subscription>,
    /// Topics that are denied, and why.
    pub(super) denied: BTreeMap<String, String>,
}

impl SharedHub {
    pub(super) fn active(&self, wanted: impl Fn(&Subscription) -> bool) -> Vec<Subscription> {
        let state = self.state.lock();
        let now = (state.options.clock)();
        let active = state.subscriptions.values();
        active
            .filter(|subscription| subscription.expires_at > now && wanted(subscription))
            .cloned()
            .collect()
    }

    /// The current options.
    pub(super) fn options(&self) -> HubOptions {
        self.state.lock().options.clone()
    }

    pub(super) fn drop_subscription(&self, topic: &str, callback: &str) {
        let key = (topic.to_owned(), callback.to_owned());
        self.state.lock().subscriptions.remove(&key);
    }
}
