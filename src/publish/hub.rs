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

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use resourcesync::uri::{has_userinfo, parse_uri};
use resyncd_fetch::Client;
use tokio::sync::{Notify, Semaphore};
use url::Url;
use websub::hub::{Hub, HubRules, Outcome, PendingVerification, Refusal, Subscription};
use websub::{Mode, SubscriptionRequest};

use super::documents::{SetDocument, SetDocuments};
use super::uris::{CHANGES, DOCUMENTS, FRAMEWORK, folder_of};
use super::{PublishedSource, Publisher};
use crate::clock;
use crate::engine::Publication;
use crate::random::hex_name;
use crate::status::{PublishStatus, PublishedSetStatus, SubscriberStatus, rfc3339};
use crate::store::{StoreError, StoredSubscription, TopicPosition};

/// How often a host is asked to confirm in a minute at most.
const VERIFICATIONS: u32 = 1200;
/// How many callbacks are being asked to confirm, or wait for that.
const VERIFIED_AT_ONCE: usize = 1000;
/// How many hosts are remembered.
const MOST_HOSTS: usize = 10_000;

/// Why a subscription is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error(
        "hub.mode, hub.topic and hub.callback are needed, and the mode must be subscribe or unsubscribe"
    )]
    BadForm,
    #[error("hub.callback must be an http or https URL without a user name")]
    BadCallback,
    #[error("hub.topic is none that is published here")]
    UnknownTopic,
    #[error("{0}")]
    Hub(Refusal),
    #[error("too many subscriptions are being verified; try again later")]
    Busy,
}

impl Refused {
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::BadForm => "bad-subscription",
            Self::BadCallback => "bad-callback",
            Self::UnknownTopic => "unknown-topic",
            Self::Hub(Refusal::Full) => "hub-full",
            Self::Hub(Refusal::SecretTooLong) => "secret-too-long",
            Self::Hub(Refusal::NotConfirmed) => "not-confirmed",
            Self::Hub(refusal) => refusal.code(),
            Self::Busy => "hub-busy",
        }
    }

    /// The status of the answer, and whether it is worth another try.
    pub(super) fn status(self) -> (u16, bool) {
        match self {
            Self::BadForm | Self::BadCallback => (400, false),
            Self::UnknownTopic => (404, false),
            Self::Hub(Refusal::Full) | Self::Busy => (503, true),
            Self::Hub(_) => (400, false),
        }
    }
}

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
    pub(super) client: Client,
    pub(super) subscribers: Mutex<Subscribers>,
    /// Notified when somebody has subscribed.
    pub(super) subscribed: Notify,
    verifying: Arc<Semaphore>,
    /// When each host was asked to confirm: the begin of a minute, and how often since.
    asked: Mutex<HashMap<String, (Instant, u32)>>,
}

impl PublishedHub {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            subscribers: Mutex::new(Subscribers {
                hub: Hub::new(HubRules::default(), []),
                told: BTreeMap::new(),
            }),
            subscribed: Notify::new(),
            verifying: Arc::new(Semaphore::new(VERIFIED_AT_ONCE)),
            asked: Mutex::default(),
        }
    }

    /// Goes on with what an earlier process has stored.
    pub(super) fn restore(&self, stored: Vec<StoredSubscription>) {
        let mut subscribers = self.subscribers.lock();
        for StoredSubscription {
            subscription,
            position,
        } in &stored
        {
            let key = (subscription.topic.clone(), subscription.callback.clone());
            subscribers.told.insert(key, Subscriber::at(*position));
        }
        let subscriptions = stored.into_iter().map(|stored| stored.subscription);
        subscribers.hub = Hub::new(HubRules::default(), subscriptions);
    }

    /// Whether a delivery that has failed is to be tried again.
    pub(super) fn has_retry(&self, now: Instant) -> bool {
        let subscribers = self.subscribers.lock();
        let mut told = subscribers.told.values();
        told.any(|it| !it.is_busy && it.next_at.is_some_and(|at| at <= now))
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
    /// What the topic of a URL is of; `None`: none that is published.
    pub(super) async fn topic(&self, url: &str) -> Result<Option<Topic>, super::DocumentError> {
        let base = self.uris.at("");
        let Some(path) = url.strip_prefix(base.as_str()) else {
            return Ok(None);
        };
        let parts: Vec<&str> = path.split('/').collect();
        let [source, DOCUMENTS, folder, name] = parts[..] else {
            return Ok(None);
        };
        let is_framework = match name {
            CHANGES => false,
            FRAMEWORK => true,
            _ => return Ok(None),
        };
        let Some(source): Option<PublishedSource> = self.source(source) else {
            return Ok(None);
        };
        let mut sets = self.sets(&source).await?.into_iter();
        let found = sets.find(|set| folder_of(&set.set) == folder);
        Ok(found.map(|documents| Topic {
            documents,
            is_framework,
        }))
    }

    /// Takes the form of a subscriber, and has its callback asked to confirm.
    pub(super) async fn subscribe(self: &Arc<Self>, form: &str) -> Result<(), Refused> {
        let hub = self.built_in.as_ref().ok_or(Refused::UnknownTopic)?;
        let request = SubscriptionRequest::parse_form(form).ok_or(Refused::BadForm)?;
        let callback = parse_uri(&request.callback).map_err(|_| Refused::BadCallback)?;
        if !matches!(callback.scheme(), "http" | "https") || has_userinfo(&callback) {
            return Err(Refused::BadCallback);
        }
        let topic = self
            .topic(&request.topic)
            .await
            .map_err(|_| Refused::Busy)?;
        if topic.is_none() && request.mode == Mode::Subscribe {
            return Err(Refused::UnknownTopic);
        }
        let now = clock::now();
        let permit = Arc::clone(&hub.verifying).try_acquire_owned();
        let permit = permit.map_err(|_| Refused::Busy)?;
        if !hub.may_ask(&callback, now.mono) {
            return Err(Refused::Busy);
        }
        let challenge = hex_name(16).map_err(|_| Refused::Busy)?;
        let pending = hub
            .subscribers
            .lock()
            .hub
            .request(now.wall, request, challenge);
        let pending = pending.map_err(Refused::Hub)?;
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
        let (status, body) = match hub.client.ask_callback(&url).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::debug!(
                    code = error.code(),
                    host,
                    "a subscription was not verified: the callback does not answer"
                );
                return;
            }
        };
        let outcome = hub.subscribers.lock().hub.confirm(pending, status, &body);
        let stored = match outcome {
            Ok(Outcome::Subscribed(begun)) => self.begin_subscription(hub, begun).await,
            Ok(Outcome::Unsubscribed(Some(ended))) => {
                let key = (ended.topic, ended.callback);
                hub.subscribers.lock().told.remove(&key);
                self.store.delete_subscriptions(vec![key]).await
            }
            Ok(Outcome::Unsubscribed(None)) => Ok(()),
            Err(refusal) => {
                tracing::debug!(
                    code = Refused::Hub(refusal).code(),
                    host,
                    status,
                    "a subscription was not verified"
                );
                Ok(())
            }
        };
        if let Err(error) = stored {
            tracing::warn!(code = error.code(), %error, host, "a subscription was not stored; it ends with this process");
        }
    }

    async fn begin_subscription(
        &self,
        hub: &PublishedHub,
        begun: Subscription,
    ) -> Result<(), StoreError> {
        let key = (begun.topic.clone(), begun.callback.clone());
        let stored = self
            .store
            .put_subscription(clock::now().wall, begun)
            .await?;
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

/// How many subscribers the status shows of a set.
const MOST_SHOWN: usize = 100;

impl Publication for Publisher {
    fn status(&self) -> BoxFuture<'_, Option<PublishStatus>> {
        Box::pin(async {
            let mut shown = PublishStatus {
                url: self.uris.at("").to_string(),
                sets: Vec::new(),
            };
            for source in &*self.sources() {
                for documents in self.sets(source).await.ok()? {
                    shown.sets.push(self.status_of(documents).await.ok()?);
                }
            }
            Some(shown)
        })
    }
}

impl Publisher {
    async fn status_of(&self, documents: SetDocuments) -> Result<PublishedSetStatus, StoreError> {
        let (set, topic) = (documents.set.clone(), documents.topic(CHANGES).to_string());
        let list = documents.uri(SetDocument::CapabilityList);
        let newest = self
            .store
            .published(move |rows| rows.newest_change(set.id, set.after, i64::MAX));
        let newest = newest.await?.map_or(0, |(number, _)| number);
        let now = clock::now().wall;
        let (mut subscribers, mut behind) = (0, Vec::new());
        if let Some(hub) = &self.built_in {
            let known = hub.subscribers.lock();
            let first = (topic.clone(), String::new());
            let of_topic = known.told.range(first..);
            for ((_, callback), subscriber) in of_topic.take_while(|((of, _), _)| *of == topic) {
                subscribers += 1;
                if subscriber.position.number >= newest {
                    continue;
                }
                let host = parse_uri(callback).ok();
                let host = host.and_then(|url| url.host_str().map(str::to_owned));
                let since = now - subscriber.position.until;
                behind.push(SubscriberStatus {
                    host: host.unwrap_or_default(),
                    seconds: u64::try_from(since.num_seconds()).unwrap_or(0),
                    failures: subscriber.failures,
                });
            }
        }
        behind.sort_by_key(|behind| std::cmp::Reverse(behind.seconds));
        behind.truncate(MOST_SHOWN);
        Ok(PublishedSetStatus {
            source: documents.set.source.clone(),
            capability_list: list.to_string(),
            resources: documents.set.resources,
            since: rfc3339(documents.set.since),
            subscribers,
            behind,
        })
    }
}
