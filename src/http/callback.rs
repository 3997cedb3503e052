//! The callback: where hubs verify, deny and deliver.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;

use super::keyed_semaphore::KeyedSemaphore;
use super::refusals::Refusals;
use super::rejection_counters::RejectionCounters;
use crate::clock;
use crate::protocol::TopicUri;
use crate::protocol::websub::{Mode, Signature, Verification};
use crate::store::{ChannelId, ChannelRecord, Receipt, Store, StoreError};

/// How long a hub may take to send a delivery.
const BODY_TIME: Duration = Duration::from_secs(10);
/// How many times the longest delivery is read of one that is too large.
const MOST_DISCARDED: u64 = 4;
/// The longest challenge that is echoed, in bytes.
const LONGEST_CHALLENGE: usize = 1024;
/// How often, and with which pauses, it is tried to note that a hub has verified or denied a subscription.
const VERIFICATION_TRIES: u32 = 4;
const VERIFICATION_PAUSE: Duration = Duration::from_millis(500);
/// When a hub that found the inbox full may try again, in seconds.
const FULL_RETRY: &str = "5";

/// What the callback needs to know.
#[derive(Clone)]
pub struct Callback {
    /// Where channels and the inbox are.
    pub store: Arc<Store>,
    /// The path of the public URL: what stands before the token unless a proxy has cut it off.
    pub prefix: String,
    /// The longest delivery, in bytes.
    pub longest_delivery: u64,
    /// How many bytes of deliveries may wait for one channel.
    pub inbox_room: u64,
    turns: KeyedSemaphore,
    refusals: Refusals<(ChannelId, &'static str)>,
    tally: RejectionCounters,
}

impl Callback {
    /// A callback whose URLs have a path that begins with `prefix`. `tally`: where calls are counted that are for nobody.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        prefix: &str,
        longest_delivery: u64,
        inbox_room: u64,
        tally: RejectionCounters,
    ) -> Self {
        Self {
            store,
            prefix: prefix.to_owned(),
            longest_delivery,
            inbox_room,
            turns: KeyedSemaphore::default(),
            refusals: Refusals::default(),
            tally,
        }
    }
}

/// The routes of the callback listener.
pub fn callback_router(callback: Callback) -> Router {
    Router::new().fallback(answer).with_state(callback)
}

async fn answer(State(callback): State<Callback>, request: Request) -> Response {
    let path = request.uri().path();
    let token = path
        .strip_prefix(&callback.prefix)
        .or_else(|| path.strip_prefix('/'))
        .unwrap_or(path);
    let channel = match callback.store.channel_by_token(token).await {
        Ok(Some(channel)) => channel,
        Ok(None) => {
            callback.tally.count("unknown-callback");
            return StatusCode::NOT_FOUND.into_response();
        }
        Err(error) => return out_of_order(&error),
    };
    match *request.method() {
        Method::GET | Method::HEAD => {
            verify(
                &callback,
                &channel,
                request.uri().query().unwrap_or_default(),
            )
            .await
        }
        Method::POST => deliver(&callback, &channel, request).await,
        _ => (
            StatusCode::METHOD_NOT_ALLOWED,
            [(header::ALLOW, "GET, POST")],
        )
            .into_response(),
    }
}

/// Answers a hub's verification of intent, or takes its denial (WebSub, sections 5.2 and 5.3).
async fn verify(callback: &Callback, channel: &ChannelRecord, query: &str) -> Response {
    let Some(verification) = Verification::parse_query(query) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if !TopicUri::parse(&verification.topic).is_ok_and(|topic| topic == channel.subscribed_topic) {
        return StatusCode::NOT_FOUND.into_response();
    }
    if verification.mode == Mode::Denied {
        let reason = verification.reason.unwrap_or_default();
        tracing::warn!(code = "denied", topic = %channel.topic, hub = channel.hub_name(), ?reason, "the hub denies the subscription");
        let now = clock::now().wall;
        let deny = || callback.store.deny_channel(channel.id, now);
        return match persistently(deny).await {
            Ok(()) => StatusCode::OK.into_response(),
            Err(error) => out_of_order(&error),
        };
    }
    let is_challenge = |challenge: &String| (1..=LONGEST_CHALLENGE).contains(&challenge.len());
    let Some(challenge) = verification.challenge.filter(is_challenge) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let (mode, granted) = (verification.mode, verification.lease_seconds);
    let spread = spread();
    let store = &callback.store;
    let note = || store.verify_channel(channel.id, mode, granted, spread);
    match persistently(note).await {
        Ok(true) => (
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            challenge,
        )
            .into_response(),
        Ok(false) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => out_of_order(&error),
    }
}

/// Tries again what the database refuses, for a moment: a hub asks only once whether we meant it.
async fn persistently<T, F: Future<Output = Result<T, StoreError>>>(
    write: impl Fn() -> F,
) -> Result<T, StoreError> {
    for _ in 1..VERIFICATION_TRIES {
        match write().await {
            Ok(written) => return Ok(written),
            Err(error) => {
                tracing::warn!(code = error.code(), %error, "a hub's call can't be noted yet")
            }
        }
        tokio::time::sleep(VERIFICATION_PAUSE).await;
    }
    write().await
}

/// Takes a delivery (WebSub, section 7).
async fn deliver(callback: &Callback, channel: &ChannelRecord, request: Request) -> Response {
    if channel.left {
        return StatusCode::GONE.into_response();
    }
    let signature = request
        .headers()
        .get("x-hub-signature")
        .map(|value| value.to_str().unwrap_or_default().to_owned());
    let Some(_turn) = callback.turns.take(channel.id).await else {
        reject(callback, channel, "too-many-deliveries").await;
        return put_off();
    };
    let body = match whole_body(request.into_body(), callback.longest_delivery).await {
        Ok(body) => body,
        Err(refusal) => {
            reject(callback, channel, refusal.0).await;
            return refusal.1.into_response();
        }
    };
    if let Some(secret) = &channel.secret {
        let Some(signature) = signature else {
            reject(callback, channel, "unsigned").await;
            return StatusCode::FORBIDDEN.into_response();
        };
        // A hub is not told whether it signed well: that would help whoever tries secrets (WebSub, section 7.1).
        if !Signature::parse(&signature)
            .is_some_and(|signature| signature.verifies(secret.as_bytes(), &body))
        {
            reject(callback, channel, "wrong-signature").await;
            return StatusCode::OK.into_response();
        }
    }
    match callback
        .store
        .receive(clock::now().wall, channel.id, body, callback.inbox_room)
        .await
    {
        Ok(Receipt::Stored | Receipt::Known) => StatusCode::OK.into_response(),
        Ok(Receipt::Full) => {
            reject(callback, channel, "inbox-full").await;
            put_off()
        }
        Err(error) => out_of_order(&error),
    }
}

/// Reads a delivery. What is too much of one is read on for a while and thrown away: a hub that is still sending would not
/// see the answer.
async fn whole_body(mut body: Body, longest: u64) -> Result<Vec<u8>, (&'static str, StatusCode)> {
    let mut whole = Vec::new();
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
                whole.extend_from_slice(&data);
            } else if received > longest.saturating_mul(MOST_DISCARDED) {
                break;
            }
        }
        Ok(())
    };
    let read = tokio::time::timeout(BODY_TIME, reading).await;
    if received > longest {
        return Err(("delivery-too-large", StatusCode::PAYLOAD_TOO_LARGE));
    }
    read.unwrap_or(Err(("delivery-too-slow", StatusCode::REQUEST_TIMEOUT)))?;
    Ok(whole)
}

async fn reject(callback: &Callback, channel: &ChannelRecord, code: &'static str) {
    if callback
        .refusals
        .is_news((channel.id, code), clock::now().mono)
    {
        tracing::warn!(code, topic = %channel.topic, "a delivery was refused");
    }
    if let Err(error) = callback.store.count_rejected(channel.id).await {
        tracing::error!(code = error.code(), %error, "a refused delivery could not be counted");
    }
}

fn out_of_order(error: &StoreError) -> Response {
    tracing::error!(code = error.code(), %error, "a hub's call could not be answered");
    put_off()
}

fn put_off() -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        [(header::RETRY_AFTER, FULL_RETRY)],
    )
        .into_response()
}

/// A number from 0 to 1 that no two channels share, so that renewals don't come all at once.
#[allow(
    clippy::cast_precision_loss,
    reason = "any number between 0 and 1 will do"
)]
fn spread() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}
