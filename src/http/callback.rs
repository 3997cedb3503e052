//! The callback endpoint: hubs verify, deny and deliver here, and Sources deliver (HTTP callback).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Body as _;
use parking_lot::RwLock;
use resourcesync::media_type::GZIP_MAGIC;
use resourcesync::uri::parse_uri;
use resyncd_core::{Redaction, TopicUri};
use resyncd_fetch::parse_link_header;
use websub::{Intent, Mode, Signature, Verification};

use super::delivery_body::{DeliveryBody, read_body};
use super::delivery_budget::DeliveryBudget;
use super::delivery_rate::DeliveryRate;
use super::known_callbacks::KnownCallbacks;
use super::rejection_counters::{REJECTED, RejectionCounters};
use crate::clock;
use crate::random::spread;
use crate::store::{
    CallbackSlot, ChannelRecord, DeliveryFaultKind, Receipt, Recipient, Store, StoreError,
};

/// How often a delivery is verified if its channel changes meanwhile.
const VERIFICATIONS: u32 = 4;
/// The longest challenge that is echoed, in bytes.
const MAX_CHALLENGE: usize = 1024;
/// How much of a wrong topic is logged, in characters.
const MAX_STATED: usize = 1000;
/// How often a verification or denial is written to the database before the request fails, and the pause between.
const WRITE_TRIES: u32 = 4;
const WRITE_PAUSE: Duration = Duration::from_millis(500);
/// The header that signs a delivery.
const SIGNATURE: &str = "x-hub-signature";
/// The `Retry-After` of a 503, in seconds.
const RETRY_AFTER: &str = "5";
/// How many times as long a compressed delivery counts as it is.
const USUAL_COMPRESSION: u64 = 20;

/// What the callback endpoint needs.
#[derive(Clone)]
pub struct Callback {
    /// Has the channels and the inbox.
    pub store: Arc<Store>,
    /// The path of the public URL: stands before the token unless a proxy has removed it.
    pub prefix: String,
    /// The longest delivery, in bytes.
    pub longest_delivery: u64,
    /// How many bytes of unread deliveries one channel may have.
    pub inbox_limit: u64,
    secrets: SharedRedaction,
    budget: DeliveryBudget,
    rate: DeliveryRate,
    known: KnownCallbacks,
    rejections: RejectionCounters,
}

/// The secrets of the configuration that no excerpt of what a hub states may contain. Clones share them: a reload replaces them.
#[derive(Clone)]
pub struct SharedRedaction(Arc<RwLock<Redaction>>);

impl SharedRedaction {
    /// These secrets, and whatever may be a key of a callback.
    #[must_use]
    pub fn new(secrets: &Redaction) -> Self {
        Self(Arc::new(RwLock::new(secrets.with_keys())))
    }

    /// Replaces the secrets.
    pub fn replace(&self, secrets: &Redaction) {
        *self.0.write() = secrets.with_keys();
    }

    fn current(&self) -> Redaction {
        self.0.read().clone()
    }
}

impl Callback {
    /// A callback whose URLs have a path that begins with `prefix`. Requests for unknown tokens are counted in `rejections`.
    /// `secrets` are removed from what a hub states, besides those of the callbacks.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        prefix: &str,
        longest_delivery: u64,
        inbox_limit: u64,
        rejections: RejectionCounters,
        secrets: SharedRedaction,
    ) -> Self {
        Self {
            store,
            prefix: prefix.to_owned(),
            longest_delivery,
            inbox_limit,
            secrets,
            budget: DeliveryBudget::new(longest_delivery),
            rate: DeliveryRate::default(),
            known: KnownCallbacks::default(),
            rejections,
        }
    }
}

/// The routes of the callback listener.
pub fn callback_router(callback: Callback) -> Router {
    Router::new().fallback(answer).with_state(callback)
}

async fn answer(State(callback): State<Callback>, request: Request) -> Response {
    if request.method() == Method::POST {
        return deliver(&callback, request).await;
    }
    let channel = match find_channel(&callback, Path::of(&request)).await {
        Ok(channel) => channel,
        Err(answer) => return *answer,
    };
    let slot = channel.slot_of(Path::of(&request).token);
    let has_hubs = channel.transport.has_hubs();
    match *request.method() {
        _ if !has_hubs => not_allowed("POST"),
        Method::GET | Method::HEAD => {
            verify(
                &callback,
                (&channel, slot),
                request.uri().query().unwrap_or_default(),
            )
            .await
        }
        _ => not_allowed("GET, POST"),
    }
}

fn not_allowed(allowed: &'static str) -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, allowed)]).into_response()
}

/// The path of a request: a prefix, which ends in a slash, and a token.
#[derive(Clone, Copy)]
struct Path<'a> {
    prefix: &'a str,
    token: &'a str,
}

impl<'a> Path<'a> {
    fn of(request: &'a Request) -> Self {
        Self::parse(request.uri().path())
    }

    fn parse(path: &'a str) -> Self {
        let begins = path.rfind('/').map_or(0, |slash| slash + 1);
        let (prefix, token) = path.split_at(begins);
        Self { prefix, token }
    }
}

/// The channel of a callback, as it is in the database now.
async fn find_channel(callback: &Callback, path: Path<'_>) -> Result<ChannelRecord, Box<Response>> {
    let found = callback.store.channel_by_token(path.token).await;
    let found = found.map_err(|error| Box::new(database_failed(&error)))?;
    found
        .filter(|record| is_prefix(callback, record, path))
        .ok_or_else(|| {
            callback.rejections.count_unknown_callback(path.token);
            Box::new(StatusCode::NOT_FOUND.into_response())
        })
}

/// Whether a path that ends in a token of this channel is one of its callbacks: below the public URL, below the one that the
/// hub was given before it was changed, or below nothing where a proxy has removed the path.
fn is_prefix(callback: &Callback, channel: &ChannelRecord, path: Path<'_>) -> bool {
    let Path { prefix, token } = path;
    let is_of_base = || {
        let owner = channel.callbacks.owner(channel.slot_of(token))?;
        let base = parse_uri(&owner.base).ok()?;
        Some(base.path() == prefix)
    };
    prefix == callback.prefix || prefix == "/" || is_of_base() == Some(true)
}

/// The hub that a callback was given to.
fn hub_of(channel: &ChannelRecord, slot: CallbackSlot) -> &str {
    let owner = channel.callbacks.owner(slot);
    owner.map_or(channel.hub_name(), |owner| owner.hub.as_str())
}

/// Answers a hub's verification of intent, or stores its denial (WebSub, sections 5.2 and 5.3).
async fn verify(
    callback: &Callback,
    (channel, slot): (&ChannelRecord, CallbackSlot),
    query: &str,
) -> Response {
    let store = &callback.store;
    let Some(verification) = Verification::parse_query(query) else {
        let counted = store.count_rejected_verification(channel.id).await;
        if let Err(error) = counted {
            return database_failed(&error);
        }
        return StatusCode::NOT_FOUND.into_response();
    };
    let topics = Verification::topics_of_query(query);
    let topics: Vec<TopicUri> = topics
        .iter()
        .filter_map(|topic| TopicUri::parse(topic).ok())
        .collect();
    let intent = match verification.mode {
        Mode::Subscribe => Intent::Subscribe,
        Mode::Unsubscribe => Intent::Unsubscribe,
        Mode::Denied => {
            let now = clock::now().wall;
            let reason = verification.reason.unwrap_or_default();
            let reason = channel
                .added_to(&callback.secrets.current())
                .redact(&reason);
            let write = || store.deny_channel((channel.id, slot), now, &topics, &reason);
            return match with_retries(write).await {
                Ok(true) => {
                    tracing::warn!(code = "denied", source = channel.source, topic = %channel.topic, hub = hub_of(channel, slot), ?reason, "subscription denied by the hub");
                    StatusCode::OK.into_response()
                }
                Ok(false) => StatusCode::NOT_FOUND.into_response(),
                Err(error) => database_failed(&error),
            };
        }
    };
    let is_challenge = |challenge: &String| (1..=MAX_CHALLENGE).contains(&challenge.len());
    let Some(challenge) = verification.challenge.filter(is_challenge) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let (granted, spread) = (verification.lease_seconds, spread());
    let stated: Vec<&str> = topics.iter().map(TopicUri::as_str).collect();
    let stated = channel
        .added_to(&callback.secrets.current())
        .excerpt(&stated.join(" "), MAX_STATED);
    let read = (topics.as_slice(), stated.as_str());
    let write = || store.verify_channel((channel.id, slot), read, intent, granted, spread);
    match with_retries(write).await {
        Ok(true) => (
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            challenge,
        )
            .into_response(),
        Ok(false) => {
            tracing::warn!(target: REJECTED, code = "verification-rejected", source = channel.source, topic = %channel.subscribed_topic,
                hub = channel.hub_name(), stated, mode = verification.mode.as_str(),
                "verification of intent rejected: it is not for a pending request");
            StatusCode::NOT_FOUND.into_response()
        }
        Err(error) => database_failed(&error),
    }
}

/// Retries a failing write for a moment: a hub verifies only once.
async fn with_retries<T, F: Future<Output = Result<T, StoreError>>>(
    write: impl Fn() -> F,
) -> Result<T, StoreError> {
    for _ in 1..WRITE_TRIES {
        match write().await {
            Ok(written) => return Ok(written),
            Err(error) => {
                tracing::warn!(code = error.code(), %error, "database error; retrying")
            }
        }
        tokio::time::sleep(WRITE_PAUSE).await;
    }
    write().await
}

/// Receives a delivery (WebSub, section 7; version 0.1 of ResourceSync, section 5.2.2).
///
/// It is verified with the keys of the last delivery, if there was one: the write checks that they are still those of the channel. If
/// they are not, or do not verify it, the channel is read, and it is verified again.
async fn deliver(callback: &Callback, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let path = Path::parse(head.uri.path());
    let known = callback.known.get(path.token);
    let mut known = known.filter(|record| is_prefix(callback, record, path));
    let mut channel = match &known {
        Some(known) => Arc::clone(known),
        None => match find_channel(callback, path).await {
            Ok(found) => Arc::new(found),
            Err(answer) => return *answer,
        },
    };
    if channel.is_unwanted {
        return StatusCode::GONE.into_response();
    }
    let is_limited = !channel.transport.has_known_sender();
    if is_limited && let Err(pause) = callback.rate.admit(channel.id, clock::now().mono) {
        return reject_too_frequent(callback, &channel, pause).await;
    }
    let longest = callback.longest_delivery;
    let stated = body.size_hint().exact().unwrap_or(longest);
    let body = match read_body(body, longest, &callback.budget, channel.id).await {
        Ok(body) => body,
        Err((code, status)) => {
            if is_limited && status != StatusCode::SERVICE_UNAVAILABLE {
                callback.rate.charge(channel.id, stated, clock::now().mono);
            }
            reject(callback, &channel, code, None).await;
            return match status {
                StatusCode::SERVICE_UNAVAILABLE => service_unavailable(),
                _ => status.into_response(),
            };
        }
    };
    if is_limited {
        callback
            .rate
            .charge(channel.id, weight_of(&body.bytes), clock::now().mono);
    }
    for _ in 0..VERIFICATIONS {
        let keys = channel.keys(channel.slot_of(path.token));
        let fault = fault_of(keys.secret.as_deref(), &head.headers, &body);
        match (fault, &known) {
            (None, _) => {
                let recipient = Recipient {
                    channel: channel.id,
                    keys: Some(keys),
                };
                let received = callback.store.receive(
                    clock::now().wall,
                    recipient,
                    body.bytes.clone(),
                    callback.inbox_limit,
                    stated_topic(&channel, &head.headers),
                );
                match received.await {
                    Ok(Receipt::Stored | Receipt::Known) => {
                        if known.is_none() {
                            callback.known.insert(path.token, channel);
                        }
                        return StatusCode::OK.into_response();
                    }
                    Ok(Receipt::Full) => {
                        reject(callback, &channel, "inbox-full", None).await;
                        return service_unavailable();
                    }
                    Ok(Receipt::Outdated) => {}
                    Err(error) => {
                        callback.store.report_missed_notification(&channel);
                        return database_failed(&error);
                    }
                }
            }
            (Some(fault), None) => {
                reject(callback, &channel, fault.code(), Some(fault)).await;
                // A wrong signature is answered like a right one: the status must not help to guess secrets (WebSub, section 7.1).
                return match fault {
                    DeliveryFaultKind::Unsigned => StatusCode::FORBIDDEN.into_response(),
                    _ => StatusCode::OK.into_response(),
                };
            }
            // The keys may have changed.
            (Some(_), Some(_)) => {}
        }
        if known.take().is_some() {
            callback.known.remove(path.token);
        }
        channel = match find_channel(callback, path).await {
            Ok(found) => Arc::new(found),
            Err(answer) => return *answer,
        };
        if channel.is_unwanted {
            return StatusCode::GONE.into_response();
        }
    }
    // The hub sends it again.
    callback.store.report_missed_notification(&channel);
    service_unavailable()
}

/// The bytes of a delivery, as many as they may be once it is decompressed.
fn weight_of(body: &[u8]) -> u64 {
    let factor = if body.starts_with(&GZIP_MAGIC) {
        USUAL_COMPRESSION
    } else {
        1
    };
    (body.len() as u64).saturating_mul(factor)
}

/// Rejects a delivery that exceeds the rate.
async fn reject_too_frequent(
    callback: &Callback,
    channel: &ChannelRecord,
    pause: Duration,
) -> Response {
    reject(callback, channel, "delivery-rate", None).await;
    let seconds = pause.as_secs() + 1;
    (
        StatusCode::TOO_MANY_REQUESTS,
        [(header::RETRY_AFTER, seconds.to_string())],
    )
        .into_response()
}

/// Why the signatures of a delivery do not prove that it comes from the hub; `None`: they do, or none was asked for.
fn fault_of(
    secret: Option<&str>,
    headers: &HeaderMap,
    body: &DeliveryBody,
) -> Option<DeliveryFaultKind> {
    let secret = secret?;
    if !headers.contains_key(SIGNATURE) {
        return Some(DeliveryFaultKind::Unsigned);
    }
    let values = headers.get_all(SIGNATURE).iter();
    let signatures = Signature::parse_all(values.map(|value| value.to_str().unwrap_or_default()));
    let verifies = |signature: &Signature| signature.verifies(secret.as_bytes(), &body.bytes);
    let is_verified = signatures.iter().any(verifies);
    (!is_verified).then_some(DeliveryFaultKind::WrongSignature)
}

/// The topic that a hub states with a delivery (WebSub, section 7), if it is not the channel's. The callback identifies the
/// channel; the topic may show that the hub has mixed up its subscriptions.
fn stated_topic(channel: &ChannelRecord, headers: &HeaderMap) -> Option<TopicUri> {
    let values = headers.get_all(header::LINK).iter();
    let links = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| parse_link_header(value, channel.topic.url()));
    let own = links.filter(|link| link.rel == "self");
    let mut stated = own.filter_map(|link| TopicUri::try_from(link.href).ok());
    let first = stated.next()?;
    let is_of_channel =
        |topic: &TopicUri| *topic == channel.topic || *topic == channel.subscribed_topic;
    (!is_of_channel(&first) && !stated.any(|topic| is_of_channel(&topic))).then_some(first)
}

/// Rejects a delivery. What it states is left to a poll, unless the interval of the next one shows that it is missing. `fault`: what it
/// shows of the channel.
async fn reject(
    callback: &Callback,
    channel: &ChannelRecord,
    code: &'static str,
    fault: Option<DeliveryFaultKind>,
) {
    tracing::warn!(target: REJECTED, code, source = channel.source, topic = %channel.topic, "delivery rejected");
    let now = clock::now().wall;
    if let Err(error) = callback.store.count_rejected(channel.id, now, fault).await {
        callback.store.report_missed_notification(channel);
        tracing::error!(code = error.code(), %error, "database error; rejected delivery not counted");
    }
}

fn database_failed(error: &StoreError) -> Response {
    if matches!(error, StoreError::NoChannel) {
        return StatusCode::NOT_FOUND.into_response();
    }
    tracing::error!(code = error.code(), %error, "callback request failed: database error");
    service_unavailable()
}

fn service_unavailable() -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        [(header::RETRY_AFTER, RETRY_AFTER)],
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use resourcesync::Capability;
    use resyncd_core::{CallbackOwner, Channel, HubUri, Transport};
    use url::Url;
    use websub::SignatureMethod;

    use super::*;
    use crate::store::{CallbackKeys, ChannelId, SetId, Wake};

    struct DeliveryTest {
        _folder: tempfile::TempDir,
        callback: Callback,
        channel: ChannelId,
        set: SetId,
    }

    fn keys(token: &str) -> CallbackKeys {
        CallbackKeys {
            token: token.to_owned(),
            secret: Some(format!("secret of {token}")),
        }
    }

    fn topic() -> TopicUri {
        TopicUri::parse("https://example.org/notifications").unwrap()
    }

    impl DeliveryTest {
        /// A channel whose callback ends in `first`.
        async fn new() -> Self {
            let topic = topic();
            Self::of(Channel::new(clock::now().wall, &topic, &[])).await
        }

        async fn of(channel: Channel) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(folder.path()).unwrap();
            let list = Url::parse("https://example.org/capabilitylist.xml").unwrap();
            let set = store.begin_set("demo", &list).await.unwrap().id;
            let kind = Capability::ChangeNotification;
            let adding = store.insert_channel(set, &kind, channel, keys("first"));
            let channel = adding.await.unwrap().id;
            let rejections = RejectionCounters::default();
            let secrets = SharedRedaction::new(&Redaction::default());
            Self {
                _folder: folder,
                callback: Callback::new(store, "/", 1000, 1000, rejections, secrets),
                channel,
                set,
            }
        }

        /// Delivers `body` to the callback that ends in `first`, with nothing that signs it; returns the status and the `Retry-After`.
        async fn deliver_unsigned(&self, body: impl Into<Body>) -> (u16, Option<String>) {
            let request = Request::post("/first").body(body.into()).unwrap();
            let answer = answer(State(self.callback.clone()), request).await;
            let pause = answer.headers().get(header::RETRY_AFTER);
            let pause = pause.map(|it| it.to_str().unwrap().to_owned());
            (answer.status().as_u16(), pause)
        }

        /// Subscribes at a hub, with a callback that ends in `token`.
        async fn subscribe(&self, hub: &str, token: &str) {
            let owner = CallbackOwner {
                hub: HubUri::parse(hub).unwrap(),
                topic: topic(),
                base: "https://destination.example/".to_owned(),
            };
            let store = &self.callback.store;
            let stepping = store.step_channel(self.channel, keys(token), |channel| {
                channel.callbacks.own = Some(owner);
            });
            stepping.await.unwrap();
        }

        /// Delivers `body` to the callback that ends in `token`, signed with the secret of another one.
        async fn deliver(&self, token: &str, signer: &str, body: &'static str) -> StatusCode {
            let secret = keys(signer).secret.unwrap();
            let method = SignatureMethod::Sha256;
            let signature = Signature::sign(method, secret.as_bytes(), body.as_bytes());
            let request = Request::post(format!("/{token}"))
                .header(SIGNATURE, signature.to_string())
                .body(Body::from(body));
            answer(State(self.callback.clone()), request.unwrap())
                .await
                .status()
        }

        async fn counts(&self) -> (u64, u64) {
            let channel = self.callback.store.channel(self.channel).await;
            let channel = channel.unwrap().unwrap();
            (channel.received, channel.rejected)
        }
    }

    #[tokio::test]
    async fn delivery_is_verified_with_the_keys_that_its_channel_has_now() {
        let receiving = DeliveryTest::new().await;
        receiving.subscribe("https://a.example/", "unused").await;
        for (token, signer, body, status, counts) in [
            ("first", "first", "one", 200, (1, 0)),
            // By now its keys are remembered.
            ("first", "first", "two", 200, (2, 0)),
            ("first", "other", "three", 200, (2, 1)),
            ("first", "first", "four", 200, (3, 1)),
            ("other", "other", "five", 404, (3, 1)),
        ] {
            let answered = receiving.deliver(token, signer, body).await;
            assert_eq!(
                (answered.as_u16(), receiving.counts().await),
                (status, counts),
                "{body}"
            );
        }
        receiving.subscribe("https://b.example/", "second").await;
        assert!(receiving.callback.known.get("first").is_some());
        for (token, signer, body, status, counts) in [
            ("first", "first", "six", 404, (3, 1)),
            ("second", "first", "seven", 200, (3, 2)),
            ("second", "second", "eight", 200, (4, 2)),
        ] {
            let answered = receiving.deliver(token, signer, body).await;
            assert_eq!(
                (answered.as_u16(), receiving.counts().await),
                (status, counts),
                "{body}"
            );
        }
        assert!(receiving.callback.known.get("first").is_none());
        let store = &receiving.callback.store;
        let leaving = store.change_channel(receiving.channel, false, |channel| {
            channel.is_unwanted = true
        });
        leaving.await.unwrap();
        assert!(receiving.callback.known.get("second").is_some());
        for body in ["nine", "ten"] {
            let answered = receiving.deliver("second", "second", body).await;
            assert_eq!(answered, StatusCode::GONE);
        }
    }

    #[tokio::test]
    async fn delivery_that_exceeds_the_rate_is_answered_with_the_pause_and_causes_a_poll() {
        let channel = Channel::without_hubs(Transport::Callback, clock::now().wall, &topic());
        let mut receiving = DeliveryTest::of(channel).await;
        receiving.callback.longest_delivery = 2 << 20;
        receiving.callback.inbox_limit = 2 << 20;
        // One that is not accepted counts as well.
        let (status, _) = receiving.deliver_unsigned(vec![b'x'; 3 << 20]).await;
        assert_eq!(status, 413);
        let mut wakes = receiving.callback.store.wakes();
        let (status, pause) = receiving.deliver_unsigned("one").await;
        assert_eq!(status, 429);
        let pause: u64 = pause.unwrap().parse().unwrap();
        assert!((6..=61).contains(&pause), "{pause}");
        assert_eq!(
            wakes.try_recv().unwrap(),
            Wake::MissedNotification(receiving.set)
        );
        assert_eq!(receiving.counts().await, (0, 2));
    }

    /// A body of these parts, the last of which is an error.
    fn cut_short() -> Body {
        let parts = [Ok("one"), Err(std::io::Error::other("cut short"))];
        Body::from_stream(futures_util::stream::iter(parts))
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_rejects_a_delivery_causes_a_poll_where_no_interval_shows_that_it_is_missing()
    {
        let endless = || {
            let parts = futures_util::stream::pending::<std::io::Result<&'static str>>();
            Body::from_stream(parts)
        };
        for (body, expected) in [
            (Body::from(vec![b'x'; 1001]), 413),
            (cut_short(), 400),
            (endless(), 408),
        ] {
            let channel = Channel::without_hubs(Transport::Callback, clock::now().wall, &topic());
            let receiving = DeliveryTest::of(channel).await;
            let mut wakes = receiving.callback.store.wakes();
            let (status, _) = receiving.deliver_unsigned(body).await;
            assert_eq!(status, expected);
            let wake = wakes.try_recv();
            assert_eq!(
                wake,
                Ok(Wake::MissedNotification(receiving.set)),
                "{expected}"
            );
            assert_eq!(receiving.counts().await, (0, 1), "{expected}");
        }
        let channel = Channel::without_hubs(Transport::Callback, clock::now().wall, &topic());
        let mut receiving = DeliveryTest::of(channel).await;
        receiving.callback.inbox_limit = 5;
        let mut wakes = receiving.callback.store.wakes();
        let status = receiving.deliver("first", "first", "too much").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            wakes.try_recv(),
            Ok(Wake::MissedNotification(receiving.set))
        );
        // The next notification shows it.
        let receiving = DeliveryTest::new().await;
        let mut wakes = receiving.callback.store.wakes();
        let (status, _) = receiving.deliver_unsigned(cut_short()).await;
        assert_eq!((status, receiving.counts().await), (400, (0, 1)));
        assert!(wakes.try_recv().is_err());
    }

    #[test]
    fn compressed_delivery_counts_as_what_it_may_become() {
        assert_eq!(weight_of(b"plain"), 5);
        assert_eq!(weight_of(&[0x1f, 0x8b, 8]), 60);
    }

    #[tokio::test]
    async fn full_inbox_is_unavailable_also_where_the_callback_is_known() {
        let mut receiving = DeliveryTest::new().await;
        receiving.callback.inbox_limit = 5;
        for (body, status) in [("one", 200), ("two", 503), ("2", 200), ("three", 503)] {
            let answered = receiving.deliver("first", "first", body).await;
            assert_eq!(answered.as_u16(), status, "{body}");
        }
        assert_eq!(receiving.counts().await, (2, 2));
    }
}
