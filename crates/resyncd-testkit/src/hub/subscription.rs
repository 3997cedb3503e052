//! Subscriptions, and the verification of intent (WebSub, sections 5.2 and 5.3).

use std::time::Duration;

use websub::{Mode, SubscriptionRequest, Verification};

use super::event::HubEvent;
use super::options::{HubOptions, Verifying};
use super::state::{SharedHub, Subscription};

/// How long a lease of that many seconds is at most, so that adding it to now stays a date.
const LONGEST_LEASE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Processes an accepted request: denies it, or verifies it and stores or ends the subscription.
pub(super) async fn process(shared: &SharedHub, request: &SubscriptionRequest) {
    let (topic, callback) = (&request.topic, &request.callback);
    let subscribes = request.mode == Mode::Subscribe;
    let (options, reason) = {
        let state = shared.state.lock();
        let reason = state.denied.get(topic).filter(|_| subscribes).cloned();
        (state.options.clone(), reason)
    };
    if let Some(reason) = reason {
        send_denial(shared, topic, callback, &reason).await;
        return;
    }
    let lease = granted_lease(&options, request.lease_seconds);
    if options.verifying != Verifying::Never
        && let Err(status) = verify(shared, request, stated_lease(&options, lease)).await
    {
        shared.events.add(HubEvent::NotVerified {
            mode: request.mode,
            topic: topic.clone(),
            callback: callback.clone(),
            status,
        });
        return;
    }
    if subscribes {
        store(shared, request, lease, options.keeps_old_secret);
    } else {
        shared.drop_subscription(topic, callback);
    }
    shared.events.add(HubEvent::Verified {
        mode: request.mode,
        topic: topic.clone(),
        callback: callback.clone(),
    });
}

/// Notifies a subscriber that its subscription is denied.
pub(super) async fn send_denial(shared: &SharedHub, topic: &str, callback: &str, reason: &str) {
    let denial = Verification {
        mode: Mode::Denied,
        topic: topic.to_owned(),
        challenge: None,
        lease_seconds: None,
        reason: Some(reason.to_owned()),
    };
    let sent = shared.client.get(with_query(callback, &denial)).send();
    if let Err(error) = sent.await {
        tracing::debug!(%error, callback, "denial not delivered");
    }
    shared.events.add(HubEvent::Denied {
        topic: topic.to_owned(),
        callback: callback.to_owned(),
    });
}

fn store(
    shared: &SharedHub,
    request: &SubscriptionRequest,
    lease: Duration,
    keeps_old_secret: bool,
) {
    let mut state = shared.state.lock();
    let expires_at = (state.options.clock)() + lease;
    let key = (request.topic.clone(), request.callback.clone());
    let old = state.subscriptions.get(&key);
    let old_secret = old
        .filter(|_| keeps_old_secret)
        .map(|old| old.secret.clone());
    let subscription = Subscription {
        topic: request.topic.clone(),
        callback: request.callback.clone(),
        secret: old_secret.unwrap_or_else(|| request.secret.clone()),
        lease,
        expires_at,
    };
    state.subscriptions.insert(key, subscription);
}

fn granted_lease(options: &HubOptions, asked: Option<u64>) -> Duration {
    let asked = asked.map_or(options.default_lease, Duration::from_secs);
    asked
        .max(options.min_lease)
        .min(options.max_lease)
        .min(LONGEST_LEASE)
}

fn stated_lease(options: &HubOptions, granted: Duration) -> Option<u64> {
    let stated = options.false_lease.unwrap_or(granted.as_secs());
    options.states_lease.then_some(stated)
}

/// Verifies the intent of the subscriber. The error is the status of its response, if any.
async fn verify(
    shared: &SharedHub,
    request: &SubscriptionRequest,
    lease_seconds: Option<u64>,
) -> Result<(), Option<u16>> {
    let challenge = challenge();
    let question = Verification {
        mode: request.mode,
        topic: request.topic.clone(),
        challenge: Some(challenge.clone()),
        lease_seconds,
        reason: None,
    };
    let asked = shared.client.get(with_query(&request.callback, &question));
    let answer = asked.send().await.map_err(|_| None)?;
    let status = answer.status();
    let body = answer.bytes().await.map_err(|_| Some(status.as_u16()))?;
    if status.is_success() && body == challenge.as_bytes() {
        Ok(())
    } else {
        Err(Some(status.as_u16()))
    }
}

fn with_query(callback: &str, question: &Verification) -> String {
    let joint = if callback.contains('?') { '&' } else { '?' };
    format!("{callback}{joint}{}", question.to_query())
}

/// An unguessable challenge. It contains characters that forms encode: a subscriber must decode what it echoes.
fn challenge() -> String {
    let random = getrandom::u64().expect("the system has random numbers");
    format!("{random:016x}+/=")
}
