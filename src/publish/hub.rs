//! The hub: who is told of changes, and who has to be told of what (WebSub, sections 5 and 7).
//!
//! There is no queue: each subscriber has a position, and what it has to be told is what has happened since, as one notification with the exact
//! interval. So one that was away gets what it has missed, and a delivery that is repeated has more, and nothing out of order.
//!
//! Invariants: a callback is asked to confirm before anything is sent to it; the guard of all requests applies to it; nobody has a host asked
//! more often than [`VERIFICATIONS`] a minute.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use resourcesync::uri::{has_userinfo, parse_uri};
use resyncd_core::Now;
use tokio::sync::{Notify, Semaphore};
use url::Url;
use websub::hub::{self, Hub, HubRules, Outcome, PendingVerification, Subscription};
use websub::{Mode, SubscriptionRequest};

use super::Publisher;
use super::deliveries::TIMEOUT;
use super::documents::SetDocuments;
use super::site::Refusal;
use super::spool::DocumentError;
use super::uris::{CHANGES, DOCUMENTS, FRAMEWORK};
use crate::clock;
use crate::random::hex_name;
use crate::store::{StoreError, StoredSubscription, TopicPosition};

/// How often a host is asked to confirm in a minute at most.
const VERIFICATIONS: u32 = 1200;
/// How many callbacks are being asked to confirm, or wait for that.
const VERIFIED_AT_ONCE: usize = 1000;
/// How many hosts are remembered.
const MOST_HOSTS: usize = 10_000;

/// The topic and the callback.
pub(super) type SubscriberKey = (String, String);

/// A subscriber, besides what its subscription states.
#[derive(Clone, Debug)]
pub(super) struct Subscriber {
    pub(super) position: TopicPosition,
    /// How many deliveries in a row have failed.
    pub(super) failures: u32,
    /// When the next one may begin.
    pub(super) next_at: Option<Instant>,
    /// Whether one is on its way.
    pub(super) is_busy: bool,
}

impl Subscriber {
    fn at(position: TopicPosition) -> Self {
        Self {
            position,
            failures: 0,
            next_at: None,
            is_busy: false,
        }
    }
}

/// All subscribers.
pub(super) struct Subscribers {
    pub(super) hub: Hub,
    pub(super) told: BTreeMap<SubscriberKey, Subscriber>,
}

impl Subscribers {
    fn stored(stored: Vec<StoredSubscription>) -> Self {
        let told = stored.iter().map(|stored| {
            let subscription = &stored.subscription;
            let key = (subscription.topic.clone(), subscription.callback.clone());
            (key, Subscriber::at(stored.position))
        });
        let told = told.collect();
        let subscriptions = stored.into_iter().map(|stored| stored.subscription);
        Self {
            hub: Hub::new(HubRules::default(), subscriptions),
            told,
        }
    }

    pub(super) fn remove(&mut self, (topic, callback): &SubscriberKey) {
        self.hub.remove(topic, callback);
        self.told.remove(&(topic.clone(), callback.clone()));
    }

    /// What deliveries of a subscriber are signed with.
    pub(super) fn secret(&self, (topic, callback): &SubscriberKey) -> Option<String> {
        self.hub.subscription(topic, callback)?.secret.clone()
    }
}

/// The hub of this daemon.
pub(super) struct PublishedHub {
    pub(super) subscribers: Mutex<Subscribers>,
    /// Notified when somebody has subscribed.
    pub(super) subscribed: Notify,
    verifying: Arc<Semaphore>,
    /// When each host was asked to confirm: the begin of a minute, and how often since.
    asked: Mutex<HashMap<String, (Instant, u32)>>,
}

impl PublishedHub {
    /// With what an earlier process has stored.
    pub(super) fn new(stored: Vec<StoredSubscription>) -> Self {
        Self {
            subscribers: Mutex::new(Subscribers::stored(stored)),
            subscribed: Notify::new(),
            verifying: Arc::new(Semaphore::new(VERIFIED_AT_ONCE)),
            asked: Mutex::default(),
        }
    }

    /// Adopts what other nodes have stored. `has_told`: whether this one has delivered before, and no other one since.
    pub(super) fn adopt(&self, stored: Vec<StoredSubscription>, has_told: bool) {
        let mut subscribers = self.subscribers.lock();
        let mut adopted = Subscribers::stored(stored);
        for (key, subscriber) in &mut adopted.told {
            if let Some(known) = subscribers.told.remove(key).filter(|_| has_told) {
                *subscriber = known;
            }
        }
        *subscribers = adopted;
    }

    /// When a delivery that has failed is to be tried again, or a lease runs out, in how long from now.
    pub(super) fn next_due(&self, now: Now) -> Option<Duration> {
        let subscribers = self.subscribers.lock();
        let waiting = subscribers.told.values().filter(|it| !it.is_busy);
        let retry = waiting.filter_map(|it| it.next_at).min();
        let retry = retry.map(|at| at.saturating_duration_since(now.mono));
        let expiry = subscribers.hub.next_expiry();
        let expiry = expiry.map(|at| (at - now.wall).to_std().unwrap_or_default());
        retry.into_iter().chain(expiry).min()
    }

    /// Whether a host may be asked to confirm now; it counts as asked then.
    fn may_ask(&self, callback: &Url, now: Instant) -> bool {
        let minute = Duration::from_secs(60);
        let mut asked = self.asked.lock();
        let host = callback.host_str().unwrap_or_default().to_owned();
        if asked.len() >= MOST_HOSTS {
            asked.retain(|_, (since, _)| now.saturating_duration_since(*since) < minute);
            if asked.len() >= MOST_HOSTS && !asked.contains_key(&host) {
                return false;
            }
        }
        let (since, times) = asked.entry(host).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= minute {
            (*since, *times) = (now, 0);
        }
        *times += 1;
        *times <= VERIFICATIONS
    }
}

/// What a topic is of.
pub(super) struct Topic {
    pub(super) documents: SetDocuments,
    pub(super) is_framework: bool,
}

impl Publisher {
    /// What the topic of a URL is of.
    pub(super) async fn topic(&self, url: &str) -> Result<Topic, DocumentError> {
        let base = self.uris.at("");
        let path = url.strip_prefix(base.as_str()).unwrap_or_default();
        let parts: Vec<&str> = path.split('/').collect();
        let [source, DOCUMENTS, folder, name @ (CHANGES | FRAMEWORK)] = parts[..] else {
            return Err(DocumentError::Missing);
        };
        let source = self.source(source).ok_or(DocumentError::Missing)?;
        Ok(Topic {
            documents: self.set_in(&source, folder).await?,
            is_framework: name == FRAMEWORK,
        })
    }

    /// Takes the form of a subscriber, and has its callback asked to confirm.
    pub(super) async fn subscribe(self: &Arc<Self>, form: &str) -> Result<(), Refusal> {
        let hub = self.built_in.as_ref().ok_or(Refusal::UnknownTopic)?;
        let request = SubscriptionRequest::parse_form(form).ok_or(Refusal::BadSubscription)?;
        let callback = parse_uri(&request.callback).map_err(|_| Refusal::BadCallback)?;
        if !matches!(callback.scheme(), "http" | "https") || has_userinfo(&callback) {
            return Err(Refusal::BadCallback);
        }
        match self.topic(&request.topic).await {
            Err(DocumentError::Missing) if request.mode == Mode::Subscribe => {
                return Err(Refusal::UnknownTopic);
            }
            Ok(_) | Err(DocumentError::Missing) => {}
            Err(_) => return Err(Refusal::HubBusy),
        }
        let now = clock::now();
        let permit = Arc::clone(&hub.verifying).try_acquire_owned();
        let permit = permit.map_err(|_| Refusal::HubBusy)?;
        if !hub.may_ask(&callback, now.mono) {
            return Err(Refusal::HubBusy);
        }
        let challenge = hex_name(16).map_err(|_| Refusal::HubBusy)?;
        let pending = hub
            .subscribers
            .lock()
            .hub
            .request(now.wall, request, challenge);
        let pending = pending.map_err(|refusal| match refusal {
            hub::Refusal::SecretTooLong => Refusal::SecretTooLong,
            _ => Refusal::HubFull,
        })?;
        let publisher = Arc::clone(self);
        tokio::spawn(async move {
            publisher.verify(pending).await;
            drop(permit);
        });
        Ok(())
    }

    /// Asks a callback to confirm, and stores what that changes.
    async fn verify(&self, pending: PendingVerification) {
        let Some(hub) = self.built_in.as_ref() else {
            return;
        };
        let Ok(url) = parse_uri(&pending.url()) else {
            return;
        };
        let host = url.host_str().unwrap_or_default().to_owned();
        let asking = tokio::time::timeout(TIMEOUT, self.client.ask_callback(&url));
        let Ok(Ok((status, body))) = asking.await else {
            let code = "not-confirmed";
            tracing::debug!(
                code,
                host,
                "a subscription was not verified: the callback does not answer"
            );
            return;
        };
        let outcome = hub.subscribers.lock().hub.confirm(pending, status, &body);
        let stored = match outcome {
            Ok(Outcome::Subscribed(begun)) => self.begin_subscription(hub, begun).await,
            Ok(Outcome::Unsubscribed(Some(ended))) => {
                let key = (ended.topic, ended.callback);
                hub.subscribers.lock().told.remove(&key);
                self.store.put_positions(vec![(key, None)]).await
            }
            Ok(Outcome::Unsubscribed(None)) => Ok(()),
            Err(refusal) => {
                tracing::debug!(
                    code = "not-confirmed",
                    host,
                    status,
                    "a subscription was not verified: {refusal}"
                );
                Ok(())
            }
        };
        if let Err(error) = stored {
            tracing::warn!(code = error.code(), %error, host, "a subscription was not stored");
        }
    }

    async fn begin_subscription(
        &self,
        hub: &PublishedHub,
        begun: Subscription,
    ) -> Result<(), StoreError> {
        let key = (begun.topic.clone(), begun.callback.clone());
        let storing = self.store.put_subscription(clock::now().wall, begun).await;
        let stored = storing.inspect_err(|_| {
            let mut subscribers = hub.subscribers.lock();
            // One that renews its subscription has the one before.
            if !subscribers.told.contains_key(&key) {
                subscribers.remove(&key);
            }
        })?;
        let is_new = {
            let told = &mut hub.subscribers.lock().told;
            let is_new = !told.contains_key(&key);
            let known = told.entry(key.clone());
            let subscriber = known.or_insert_with(|| Subscriber::at(stored.position));
            // One that is there to confirm is there to be told.
            subscriber.next_at = None;
            is_new
        };
        if is_new {
            tracing::info!(topic = key.0, "subscribed to what is published");
        }
        hub.subscribed.notify_one();
        Ok(())
    }
}
