//! The callback endpoint: hubs verify, deny and deliver here.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use url::Url;

use super::keyed_semaphore::KeyedSemaphore;
use super::log_throttle::LogThrottle;
use super::rejection_counters::RejectionCounters;
use crate::clock;
use crate::protocol::websub::{Intent, Mode, Signature, Verification};
use crate::protocol::{Redaction, TopicUri, parse_link_header};
use crate::store::{
    CallbackSlot, ChannelId, ChannelRecord, DeliveryFaultKind, Receipt, Store, StoreError,
};

/// How long a hub may take to send the body of a delivery.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The bytes of a delivery are collected in buffers of this size.
const SEGMENT: usize = 32 << 10;
/// How much of a delivery that is too large is read, as a multiple of the longest allowed one.
const MAX_DISCARDED: u64 = 4;
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
    secrets: Redaction,
    permits: KeyedSemaphore,
    throttle: LogThrottle<(ChannelId, &'static str)>,
    rejections: RejectionCounters,
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
        secrets: &Redaction,
    ) -> Self {
        Self {
            store,
            prefix: prefix.to_owned(),
            longest_delivery,
            inbox_limit,
            secrets: secrets.with_keys(),
            permits: KeyedSemaphore::default(),
            throttle: LogThrottle::default(),
            rejections,
        }
    }
}

/// The routes of the callback listener.
pub fn callback_router(callback: Callback) -> Router {
    Router::new().fallback(answer).with_state(callback)
}

async fn answer(State(callback): State<Callback>, request: Request) -> Response {
    let path = request.uri().path();
    let (prefix, token) = path.rsplit_once('/').map_or(("", path), |(before, token)| {
        (&path[..before.len() + 1], token)
    });
    let channel = match callback.store.channel_by_token(token).await {
        Ok(found) => found.filter(|record| is_prefix(&callback, record, prefix, token)),
        Err(error) => return database_failed(&error),
    };
    let Some(channel) = channel else {
        callback.rejections.count("unknown-callback");
        return StatusCode::NOT_FOUND.into_response();
    };
    let slot = channel.slot_of(token);
    match *request.method() {
        Method::GET | Method::HEAD => {
            verify(
                &callback,
                (&channel, slot),
                request.uri().query().unwrap_or_default(),
            )
            .await
        }
        Method::POST => deliver(&callback, (&channel, slot), request).await,
        _ => (
            StatusCode::METHOD_NOT_ALLOWED,
            [(header::ALLOW, "GET, POST")],
        )
            .into_response(),
    }
}

/// Whether a path that ends in a token of this channel is one of its callbacks: below the public URL, below the one that the
/// hub was given before it was changed, or below nothing where a proxy has removed the path.
fn is_prefix(callback: &Callback, channel: &ChannelRecord, prefix: &str, token: &str) -> bool {
    let owner = channel.callbacks.owner(channel.slot_of(token));
    let base = owner.and_then(|owner| Url::parse(owner.base.as_deref()?).ok());
    prefix == callback.prefix || prefix == "/" || base.is_some_and(|base| base.path() == prefix)
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
    let intent = match verification.mode {
        Mode::Subscribe => Intent::Subscribe,
        Mode::Unsubscribe => Intent::Unsubscribe,
        Mode::Denied => {
            let now = clock::now().wall;
            let reason = verification.reason.unwrap_or_default();
            let reason = channel.added_to(&callback.secrets).redact(&reason);
            let write = || store.deny_channel((channel.id, slot), now, &topics, &reason);
            return match with_retries(write).await {
                Ok(true) => {
                    tracing::warn!(code = "denied", source = channel.source, topic = %channel.topic, hub = channel.hub_name(), ?reason, "subscription denied by the hub");
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
    let write = || store.verify_channel((channel.id, slot), &topics, intent, granted, spread);
    match with_retries(write).await {
        Ok(true) => (
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            challenge,
        )
            .into_response(),
        Ok(false) => {
            let code = "verification-rejected";
            if callback
                .throttle
                .should_log((channel.id, code), clock::now().mono)
            {
                let stated = topics
                    .iter()
                    .map(TopicUri::as_str)
                    .collect::<Vec<_>>()
                    .join(" ");
                let stated = channel
                    .added_to(&callback.secrets)
                    .excerpt(&stated, MAX_STATED);
                tracing::warn!(code, source = channel.source, topic = %channel.subscribed_topic, hub = channel.hub_name(), stated,
                    mode = verification.mode.as_str(), "verification of intent rejected: it is not for a pending request");
            }
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

/// Receives a delivery (WebSub, section 7).
async fn deliver(
    callback: &Callback,
    (channel, slot): (&ChannelRecord, CallbackSlot),
    request: Request,
) -> Response {
    if channel.left {
        return StatusCode::GONE.into_response();
    }
    let headers = request.headers();
    let is_signed = headers.contains_key(SIGNATURE);
    let values = headers.get_all(SIGNATURE).iter();
    let signatures = Signature::parse_all(values.map(|value| value.to_str().unwrap_or_default()));
    let stated_topic = stated_topic(channel, headers);
    let Some(_permit) = callback.permits.acquire(channel.id).await else {
        reject(callback, channel, "too-many-deliveries").await;
        return service_unavailable();
    };
    let body = match read_body(request.into_body(), callback.longest_delivery).await {
        Ok(body) => body,
        Err((code, status)) => {
            reject(callback, channel, code).await;
            return status.into_response();
        }
    };
    if let Some(secret) = &channel.keys(slot).secret {
        if !is_signed {
            reject_as(callback, channel, DeliveryFaultKind::Unsigned).await;
            return StatusCode::FORBIDDEN.into_response();
        }
        // A wrong signature is answered like a right one: the status must not help to guess secrets (WebSub, section 7.1).
        let verifies = |signature: &Signature| signature.verifies(secret.as_bytes(), &body);
        if !signatures.iter().any(verifies) {
            reject_as(callback, channel, DeliveryFaultKind::WrongSignature).await;
            return StatusCode::OK.into_response();
        }
    }
    let received = callback.store.receive(
        clock::now().wall,
        channel.id,
        body,
        callback.inbox_limit,
        stated_topic,
    );
    match received.await {
        Ok(Receipt::Stored | Receipt::Known) => StatusCode::OK.into_response(),
        Ok(Receipt::Full) => {
            reject(callback, channel, "inbox-full").await;
            service_unavailable()
        }
        Err(error) => database_failed(&error),
    }
}

/// Reads a delivery completely. Some of what is too much is read and discarded: a hub that is still sending would not see the
/// response.
async fn read_body(mut body: Body, longest: u64) -> Result<Vec<u8>, (&'static str, StatusCode)> {
    let mut segments = Vec::new();
    let mut received = 0_u64;
    let reading = async {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame
                .map_err(|_| ("delivery-cut-short", StatusCode::BAD_REQUEST))?
                .into_data()
            else {
                continue;
            };
            received = received.saturating_add(data.len() as u64);
            if received <= longest {
                append(&mut segments, &data);
                continue;
            }
            segments = Vec::new();
            if received > longest.saturating_mul(MAX_DISCARDED) {
                break;
            }
        }
        Ok(())
    };
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    if received > longest {
        return Err(("delivery-too-large", StatusCode::PAYLOAD_TOO_LARGE));
    }
    read.unwrap_or(Err(("delivery-too-slow", StatusCode::REQUEST_TIMEOUT)))?;
    Ok(segments.concat())
}

/// Appends to the last segment, and to new ones of the same size. A single buffer would have to grow: what it has left behind at each
/// step is as much again as the delivery.
fn append(segments: &mut Vec<Vec<u8>>, mut data: &[u8]) {
    while !data.is_empty() {
        let room = segments.last().map_or(0, |last| SEGMENT - last.len());
        if room == 0 {
            segments.push(Vec::with_capacity(SEGMENT));
            continue;
        }
        let (fitting, rest) = data.split_at(room.min(data.len()));
        if let Some(last) = segments.last_mut() {
            last.extend_from_slice(fitting);
        }
        data = rest;
    }
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

async fn reject(callback: &Callback, channel: &ChannelRecord, code: &'static str) {
    reject_with(callback, channel, code, None).await;
}

/// Rejects a delivery that shows a fault of the channel.
async fn reject_as(callback: &Callback, channel: &ChannelRecord, fault: DeliveryFaultKind) {
    reject_with(callback, channel, fault.code(), Some(fault)).await;
}

async fn reject_with(
    callback: &Callback,
    channel: &ChannelRecord,
    code: &'static str,
    fault: Option<DeliveryFaultKind>,
) {
    if callback
        .throttle
        .should_log((channel.id, code), clock::now().mono)
    {
        tracing::warn!(code, source = channel.source, topic = %channel.topic, "delivery rejected");
    }
    let now = clock::now().wall;
    if let Err(error) = callback.store.count_rejected(channel.id, now, fault).await {
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

/// A random number from 0 to 1, so that renewals of several channels do not coincide.
#[allow(
    clippy::cast_precision_loss,
    reason = "any number between 0 and 1 will do"
)]
fn spread() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}
