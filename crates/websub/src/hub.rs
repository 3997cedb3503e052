//! The hub's side: which subscriptions there are, and what is sent to whom (sections 5 and 7).
//!
//! [`Hub`] has the subscriptions that are verified. A request that is not verified yet is a value of the caller: it changes nothing
//! (section 5.1), and may be forgotten.
//!
//! ```text
//! POST of a subscriber ──► SubscriptionRequest::parse_form ──► Hub::request ──► 202, or 4xx with a Refusal
//!                                                                   ▼
//!               Hub::confirm ◄── the answer ◄── GET of PendingVerification::url
//!
//! a publication ──► Hub::deliveries ──► POST to each callback; 410: Hub::remove
//! ```
//!
//! Left to the caller: how long a form may be; whether a callback may be requested at all, as one at a private address; how many
//! verifications and deliveries run at a time, and whether they are repeated; the headers `Content-Type` and `Link` of a delivery
//! (section 7); the validation of a request (section 5.2). A request that is not valid is answered with [`Verification::denial`].
//! It must not end the subscription that runs, because anybody may have sent it. One that the hub ends is removed and denied.
//!
//! To outlive the process, store each [`Outcome`], and what [`Hub::expire`] and [`Hub::remove`] return, and pass the stored subscriptions
//! to [`Hub::new`].

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};

use crate::{Mode, Signature, SignatureMethod, SubscriptionRequest, Verification};

/// The length from which on a secret is refused, in bytes (section 5.1).
const SECRET_LIMIT: usize = 200;

/// The bounds of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HubRules {
    /// How many subscriptions there may be, all topics together.
    pub max_subscriptions: usize,
    /// The shortest lease, in seconds. It wins over a longest lease that is shorter.
    pub min_lease: u64,
    /// The lease of a request that states none, in seconds.
    pub default_lease: u64,
    /// The longest lease, in seconds.
    pub max_lease: u64,
    /// How deliveries are signed.
    pub signature_method: SignatureMethod,
}

impl Default for HubRules {
    /// 10,000 subscriptions; leases of five minutes to thirty days, ten days by default (section 8.2); SHA-256.
    fn default() -> Self {
        Self {
            max_subscriptions: 10_000,
            min_lease: 5 * 60,
            default_lease: 10 * 24 * 3600,
            max_lease: 30 * 24 * 3600,
            signature_method: SignatureMethod::Sha256,
        }
    }
}

/// A verified subscription. There is one for each topic and callback (section 5.1).
#[derive(Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The topic.
    pub topic: String,
    /// Where it is delivered.
    pub callback: String,
    /// What deliveries are signed with.
    pub secret: Option<String>,
    /// When the lease runs out.
    pub expires_at: DateTime<Utc>,
}

impl fmt::Debug for Subscription {
    /// Without the secret and the callback, which may contain a token: neither belongs in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("topic", &self.topic)
            .field("expires_at", &self.expires_at)
            .field("signed", &self.secret.is_some())
            .finish_non_exhaustive()
    }
}

/// A request whose intent is to be verified by a GET of the callback (section 5.3).
#[derive(Debug)]
pub struct PendingVerification {
    request: SubscriptionRequest,
    challenge: String,
    lease_seconds: u64,
    asked_at: DateTime<Utc>,
}

impl PendingVerification {
    /// The URL to GET. Redirects must not be followed.
    pub fn url(&self) -> String {
        let is_subscribe = self.request.mode == Mode::Subscribe;
        let verification = Verification {
            mode: self.request.mode,
            topic: self.request.topic.clone(),
            challenge: Some(self.challenge.clone()),
            lease_seconds: is_subscribe.then_some(self.lease_seconds),
            reason: None,
        };
        verification.to_url(&self.request.callback)
    }

    fn is_confirmed_by(&self, status: u16, body: &[u8]) -> bool {
        (200..300).contains(&status) && body == self.challenge.as_bytes()
    }

    /// The lease counts from the time of the verification.
    fn into_subscription(self) -> Subscription {
        let seconds = i64::try_from(self.lease_seconds).ok();
        let lease = seconds.and_then(TimeDelta::try_seconds);
        let end = lease.and_then(|lease| self.asked_at.checked_add_signed(lease));
        Subscription {
            topic: self.request.topic,
            callback: self.request.callback,
            secret: self.request.secret,
            expires_at: end.unwrap_or(DateTime::<Utc>::MAX_UTC),
        }
    }
}

/// What a confirmed request has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The subscription has begun, or is renewed: it replaces what was stored for its topic and callback.
    Subscribed(Subscription),
    /// The subscription has ended; `None` if there was none.
    Unsubscribed(Option<Subscription>),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no room for another subscription.
    #[error("this hub has no room for another subscription")]
    Full,
    /// The secret has 200 bytes or more.
    #[error("hub.secret must be shorter than 200 bytes")]
    SecretTooLong,
    /// The callback has not confirmed the request. What there was before remains.
    #[error("the callback has not answered with 2xx and the challenge")]
    NotConfirmed,
}

impl Refusal {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::SecretTooLong => "secret-too-long",
            Self::NotConfirmed => "not-confirmed",
        }
    }
}

/// A POST of the published body to one callback.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The URL.
    pub callback: &'a str,
    /// The value of the header `X-Hub-Signature`, if the subscriber has stated a secret.
    pub signature: Option<Signature>,
}

/// The subscriptions of a hub.
#[derive(Clone)]
pub struct Hub {
    rules: HubRules,
    /// By topic and callback.
    subscriptions: BTreeMap<(String, String), Subscription>,
}

impl fmt::Debug for Hub {
    /// Without the callbacks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("rules", &self.rules)
            .field("subscriptions", &self.subscriptions.len())
            .finish()
    }
}

impl Hub {
    /// A hub with the subscriptions that were stored. They count even if there are more than the rules allow.
    pub fn new(rules: HubRules, stored: impl IntoIterator<Item = Subscription>) -> Self {
        let stored = stored.into_iter();
        Self {
            rules,
            subscriptions: stored.map(|stored| (key_of(&stored), stored)).collect(),
        }
    }

    /// Takes a subscriber's request; nothing changes until it is confirmed. `challenge`: a random text that is used once.
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`] and [`Refusal::SecretTooLong`].
    pub fn request(
        &self,
        now: DateTime<Utc>,
        request: SubscriptionRequest,
        challenge: String,
    ) -> Result<PendingVerification, Refusal> {
        let secret_length = request.secret.as_ref().map_or(0, String::len);
        if secret_length >= SECRET_LIMIT {
            return Err(Refusal::SecretTooLong);
        }
        let requested = request.lease_seconds.unwrap_or(self.rules.default_lease);
        let pending = PendingVerification {
            request,
            challenge,
            lease_seconds: requested
                .min(self.rules.max_lease)
                .max(self.rules.min_lease),
            asked_at: now,
        };
        self.check_room(&pending.request)?;
        Ok(pending)
    }

    /// Takes the callback's answer to a verification: its status and its body.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotConfirmed`]; [`Refusal::Full`] if others were confirmed first.
    pub fn confirm(
        &mut self,
        pending: PendingVerification,
        status: u16,
        body: &[u8],
    ) -> Result<Outcome, Refusal> {
        if !pending.is_confirmed_by(status, body) {
            return Err(Refusal::NotConfirmed);
        }
        self.check_room(&pending.request)?;
        if pending.request.mode == Mode::Subscribe {
            let begun = pending.into_subscription();
            self.subscriptions.insert(key_of(&begun), begun.clone());
            Ok(Outcome::Subscribed(begun))
        } else {
            let SubscriptionRequest {
                topic, callback, ..
            } = pending.request;
            Ok(Outcome::Unsubscribed(
                self.subscriptions.remove(&(topic, callback)),
            ))
        }
    }

    fn check_room(&self, request: &SubscriptionRequest) -> Result<(), Refusal> {
        let key = (request.topic.clone(), request.callback.clone());
        let needs_room = request.mode == Mode::Subscribe && !self.subscriptions.contains_key(&key);
        if needs_room && self.subscriptions.len() >= self.rules.max_subscriptions {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    /// Whom to send a publication of a topic, and with which signatures.
    pub fn deliveries<'a>(
        &'a self,
        now: DateTime<Utc>,
        topic: &'a str,
        body: &'a [u8],
    ) -> impl Iterator<Item = Delivery<'a>> {
        let first = (topic.to_owned(), String::new());
        let of_topic = self.subscriptions.range(first..);
        of_topic
            .map(|(_, subscription)| subscription)
            .take_while(move |subscription| subscription.topic == topic)
            .filter(move |subscription| subscription.expires_at > now)
            .map(|subscription| {
                let secret = subscription.secret.as_ref();
                let sign = |secret: &String| {
                    Signature::sign(self.rules.signature_method, secret.as_bytes(), body)
                };
                Delivery {
                    callback: &subscription.callback,
                    signature: secret.map(sign),
                }
            })
    }

    /// Ends a subscription: its callback has answered a delivery with 410 (section 7), or the hub no longer serves it.
    pub fn remove(&mut self, topic: &str, callback: &str) -> Option<Subscription> {
        let key = (topic.to_owned(), callback.to_owned());
        self.subscriptions.remove(&key)
    }

    /// Removes the subscriptions whose leases have run out. They take up room until then, but nothing is delivered to them.
    pub fn expire(&mut self, now: DateTime<Utc>) -> Vec<Subscription> {
        let expired: Vec<Subscription> = self
            .subscriptions()
            .filter(|subscription| subscription.expires_at <= now)
            .cloned()
            .collect();
        self.subscriptions
            .retain(|_, subscription| subscription.expires_at > now);
        expired
    }

    /// When [`expire`](Self::expire) has something to do.
    pub fn next_expiry(&self) -> Option<DateTime<Utc>> {
        self.subscriptions()
            .map(|subscription| subscription.expires_at)
            .min()
    }

    /// The subscription of a callback to a topic.
    pub fn subscription(&self, topic: &str, callback: &str) -> Option<&Subscription> {
        self.subscriptions
            .get(&(topic.to_owned(), callback.to_owned()))
    }

    /// All subscriptions, ordered by topic and callback.
    pub fn subscriptions(&self) -> impl Iterator<Item = &Subscription> {
        self.subscriptions.values()
    }
}

fn key_of(subscription: &Subscription) -> (String, String) {
    (subscription.topic.clone(), subscription.callback.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: &str = "https://publisher.example/changes";

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    fn request(mode: Mode, callback: &str) -> SubscriptionRequest {
        SubscriptionRequest {
            mode,
            callback: callback.to_owned(),
            topic: TOPIC.to_owned(),
            lease_seconds: Some(600),
            secret: None,
        }
    }

    fn hub(max_subscriptions: usize) -> Hub {
        let rules = HubRules {
            max_subscriptions,
            ..HubRules::default()
        };
        Hub::new(rules, [])
    }

    /// Sends a request, and confirms it.
    fn apply(hub: &mut Hub, now: i64, request: SubscriptionRequest) -> Result<Outcome, Refusal> {
        let pending = hub.request(at(now), request, "c".to_owned())?;
        hub.confirm(pending, 200, b"c")
    }

    fn subscribe(hub: &mut Hub, now: i64, callback: &str) -> Result<Outcome, Refusal> {
        apply(hub, now, request(Mode::Subscribe, callback))
    }

    fn callbacks(hub: &Hub, now: i64) -> Vec<&str> {
        let deliveries = hub.deliveries(at(now), TOPIC, b"x");
        deliveries.map(|delivery| delivery.callback).collect()
    }

    #[test]
    fn url_of_a_verification_states_what_the_hub_grants() {
        for (mode, requested, granted) in [
            (Mode::Subscribe, Some(600), Some(600)),
            (Mode::Subscribe, None, Some(864_000)),
            (Mode::Subscribe, Some(0), Some(300)),
            (Mode::Subscribe, Some(u64::MAX), Some(2_592_000)),
            (Mode::Unsubscribe, Some(600), None),
        ] {
            let request = SubscriptionRequest {
                lease_seconds: requested,
                ..request(mode, "https://a.example/?own=1")
            };
            let pending = hub(1).request(at(0), request, "c&".to_owned()).unwrap();
            let url = pending.url();
            let query = url.strip_prefix("https://a.example/?own=1&").unwrap();
            let expected = Verification {
                mode,
                topic: TOPIC.to_owned(),
                challenge: Some("c&".to_owned()),
                lease_seconds: granted,
                reason: None,
            };
            assert_eq!(Verification::parse_query(query), Some(expected));
        }
    }

    #[test]
    fn request_counts_only_if_the_callback_confirms_it() {
        for (status, body, is_confirmed) in [
            (200, "challenge", true),
            (299, "challenge", true),
            (199, "challenge", false),
            (302, "challenge", false),
            (404, "challenge", false),
            (200, "", false),
            (200, "challenge of another", false),
        ] {
            for mode in [Mode::Subscribe, Mode::Unsubscribe] {
                let mut hub = hub(9);
                subscribe(&mut hub, 0, "a").unwrap();
                let before: Vec<_> = hub.subscriptions().cloned().collect();
                let request = request(mode, "a");
                let pending = hub.request(at(9), request, "challenge".to_owned()).unwrap();
                let answer = hub.confirm(pending, status, body.as_bytes());
                let after: Vec<_> = hub.subscriptions().cloned().collect();
                assert_eq!(answer.is_ok(), is_confirmed, "{status} {body}");
                assert_eq!(before != after, is_confirmed, "{status} {body}");
            }
        }
    }

    #[test]
    fn confirmed_request_replaces_lease_and_secret() {
        let mut hub = hub(1);
        for (now, secret) in [(0, Some("first")), (100, Some("second")), (200, None)] {
            let secret = secret.map(str::to_owned);
            let request = SubscriptionRequest {
                secret: secret.clone(),
                ..request(Mode::Subscribe, "a")
            };
            let expected = Subscription {
                topic: TOPIC.to_owned(),
                callback: "a".to_owned(),
                secret,
                expires_at: at(now + 600),
            };
            let outcome = apply(&mut hub, now, request).unwrap();
            assert_eq!(outcome, Outcome::Subscribed(expected.clone()));
            assert_eq!(hub.subscriptions().collect::<Vec<_>>(), [&expected]);
            let unsubscribed = apply(&mut hub.clone(), now, self::request(Mode::Unsubscribe, "a"));
            assert_eq!(unsubscribed, Ok(Outcome::Unsubscribed(Some(expected))));
        }
        let unknown = apply(&mut hub, 300, request(Mode::Unsubscribe, "b"));
        assert_eq!(unknown, Ok(Outcome::Unsubscribed(None)));
    }

    #[test]
    fn hub_has_no_more_subscriptions_than_its_rules_allow() {
        let mut hub = hub(2);
        let late = hub.request(at(0), request(Mode::Subscribe, "late"), "c".to_owned());
        for callback in ["a", "b", "a"] {
            assert!(subscribe(&mut hub, 0, callback).is_ok(), "{callback}");
        }
        assert_eq!(subscribe(&mut hub, 0, "c"), Err(Refusal::Full));
        assert_eq!(hub.confirm(late.unwrap(), 200, b"c"), Err(Refusal::Full));
        assert_eq!(hub.subscriptions().count(), 2);
        apply(&mut hub, 0, request(Mode::Unsubscribe, "a")).unwrap();
        assert!(subscribe(&mut hub, 0, "c").is_ok());
        assert_eq!(hub.expire(at(600)).len(), 2);
        assert!(subscribe(&mut hub, 600, "d").is_ok());
    }

    #[test]
    fn secret_that_is_too_long_is_refused() {
        for (length, is_accepted) in [(199, true), (200, false)] {
            let request = SubscriptionRequest {
                secret: Some("s".repeat(length)),
                ..request(Mode::Subscribe, "a")
            };
            let outcome = apply(&mut hub(1), 0, request);
            assert_eq!(outcome.is_ok(), is_accepted, "{outcome:?}");
        }
    }

    #[test]
    fn publication_is_delivered_to_the_subscriptions_of_its_topic_that_run() {
        let mut hub = hub(9);
        for (now, callback) in [(0, "a"), (100, "b"), (100, "")] {
            subscribe(&mut hub, now, callback).unwrap();
        }
        for topic in [
            "https://publisher.example/change",
            "https://publisher.example/changes2",
        ] {
            let mut other = request(Mode::Subscribe, "other");
            other.topic = topic.to_owned();
            apply(&mut hub, 0, other).unwrap();
        }
        assert_eq!(callbacks(&hub, 599), ["", "a", "b"]);
        assert_eq!(callbacks(&hub, 600), ["", "b"]);
        assert_eq!(hub.next_expiry(), Some(at(600)));
        assert_eq!(hub.expire(at(600)).len(), 3);
        assert_eq!(hub.next_expiry(), Some(at(700)));
        assert!(hub.remove(TOPIC, "b").is_some());
        assert!(hub.remove(TOPIC, "b").is_none());
        assert_eq!(callbacks(&hub, 600), [""]);
        // Stored and restored.
        let stored: Vec<_> = hub.subscriptions().cloned().collect();
        let restored = Hub::new(HubRules::default(), stored);
        assert_eq!(callbacks(&restored, 600), [""]);
    }

    #[test]
    fn delivery_is_signed_with_the_secret_of_its_subscription() {
        for (method, secret) in [
            (SignatureMethod::Sha1, Some("k")),
            (SignatureMethod::Sha256, Some("k")),
            (SignatureMethod::Sha512, Some("other")),
            (SignatureMethod::Sha256, None),
        ] {
            let rules = HubRules {
                signature_method: method,
                ..HubRules::default()
            };
            let mut hub = Hub::new(rules, []);
            let signed = SubscriptionRequest {
                secret: secret.map(str::to_owned),
                ..request(Mode::Subscribe, "a")
            };
            apply(&mut hub, 0, signed).unwrap();
            let delivery = hub.deliveries(at(0), TOPIC, b"body").next().unwrap();
            let expected = secret.map(|secret| Signature::sign(method, secret.as_bytes(), b"body"));
            assert_eq!(delivery.signature, expected);
        }
    }

    #[test]
    fn lease_that_reaches_beyond_all_dates_is_bounded() {
        let rules = HubRules {
            max_lease: u64::MAX,
            ..HubRules::default()
        };
        let mut request = request(Mode::Subscribe, "a");
        for seconds in [u64::MAX, i64::MAX as u64, 1 << 50] {
            request.lease_seconds = Some(seconds);
            let outcome = apply(&mut Hub::new(rules, []), 0, request.clone());
            let Ok(Outcome::Subscribed(subscription)) = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(subscription.expires_at, DateTime::<Utc>::MAX_UTC);
        }
    }

    #[test]
    fn secrets_and_callbacks_do_not_appear_in_a_log() {
        let mut hub = hub(1);
        let request = SubscriptionRequest {
            secret: Some("s3cret".to_owned()),
            ..request(Mode::Subscribe, "https://a.example/t0ken")
        };
        let pending = hub.request(at(0), request, "c".to_owned()).unwrap();
        let mut text = format!("{pending:?}");
        let outcome = hub.confirm(pending, 200, b"c").unwrap();
        text += &format!("{outcome:?} {hub:?}");
        for hidden in ["s3cret", "t0ken"] {
            assert!(!text.contains(hidden), "{text}");
        }
    }
}
