//! One subscription, kept: asked for, renewed before its lease runs out, and ended when it is no longer wanted (WebSub,
//! sections 5.1 to 5.4). What to do when is the [`Lease`]'s decision; this carries it out.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use url::Url;

use crate::clock::{self, ClockStepDetector, Now};
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::fetch::{Client, Disposition, HubAnswer};
use crate::protocol::HubUri;
use crate::protocol::websub::{Mode, SubscriptionRequest};
use crate::status::UnsubscribeResult;
use crate::store::{ChannelId, ChannelRecord, Store, Wake};
use crate::sync::{Asked, ChannelState, Intent, Lease};

/// The longest wait at a stretch: the wall clock may be set meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// The pause after the database refused to take something.
const STORE_PAUSE: Duration = Duration::from_secs(2);
/// How often a hub is asked to end a subscription that is no longer wanted.
const ENDING_TRIES: u32 = 6;
/// How long a hub may take to confirm that a subscription has ended.
const ENDING_TIME: Duration = Duration::from_secs(30);

/// Keeps a subscription for as long as it is wanted, or until told to stop.
pub(in crate::engine) async fn keep(context: Arc<SourceContext>, id: ChannelId) {
    let stop = context.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = keep_on(&context, id) => {}
    }
}

async fn keep_on(context: &Arc<SourceContext>, id: ChannelId) {
    let mut wakes = context.store.wakes();
    let mut clock_steps = ClockStepDetector::since(clock::now());
    let mut is_resumed = false;
    loop {
        let before = clock_steps;
        let begun = clock::now();
        let set_back = clock_steps.noticed(begun);
        match keep_once(context, id, set_back, &mut is_resumed).await {
            Ok(Some(next)) => wait(&mut wakes, id, next, begun).await,
            Ok(None) => return,
            Err(error) => {
                clock_steps = before;
                // What was noted as asked may never have been sent.
                is_resumed = false;
                tracing::error!(code = error.code(), source = context.name(), %error, "a subscription can't be kept");
                tokio::time::sleep(STORE_PAUSE).await;
            }
        }
    }
}

/// Does what is due; answers when the next thing is, `None` when the subscription has ended. `set_back`: by how much the wall
/// clock was set back meanwhile. `is_resumed`: false after a start, and when it is not known what became of a request.
async fn keep_once(
    context: &Arc<SourceContext>,
    id: ChannelId,
    set_back: Option<TimeDelta>,
    is_resumed: &mut bool,
) -> Result<Option<DateTime<Utc>>, EngineError> {
    let store = &context.store;
    if !*is_resumed {
        store.change_lease(id, false, Lease::resume).await?;
        *is_resumed = true;
    }
    let now = clock::now().wall;
    let (due, lease) = store
        .change_lease(id, false, move |lease| {
            if let Some(by) = set_back {
                lease.set_back(now, by);
            }
            lease.handle_timeout(now)
        })
        .await?;
    let Some(channel) = store.channel(id).await? else {
        return Ok(None);
    };
    if matches!(
        lease.state,
        ChannelState::Active | ChannelState::Unsubscribed
    ) {
        context.runtime_status.note_channel(id, None);
    }
    if channel.left && (lease.state == ChannelState::Unsubscribed || lease.failures >= ENDING_TRIES)
    {
        // A hub that does not answer any more lets the lease run out; its deliveries are told that the channel is gone.
        store
            .change_lease(id, false, |lease| lease.state = ChannelState::Unsubscribed)
            .await?;
        return Ok(None);
    }
    if !due {
        return Ok(lease.next_deadline());
    }
    let Some(public_url) = &context.public_url else {
        return Ok(None);
    };
    let asked = if channel.left {
        ask_to_end(store, &context.client, public_url, &channel).await?
    } else {
        ask_for(context, public_url, &channel).await?
    };
    if let Err(refusal) = asked {
        let hub = store.channel(id).await?;
        context.tell_channel(
            hub.as_ref().unwrap_or(&channel),
            refusal.code,
            refusal.message,
        );
    }
    let lease = store.channel(id).await?.map(|channel| channel.lease);
    Ok(lease.and_then(|lease| lease.next_deadline()))
}

/// Why a request did not go through.
struct Refusal {
    code: &'static str,
    message: String,
    /// How long the hub asks to be left alone.
    wait: Option<Duration>,
}

/// Asks for a subscription, or for its renewal: of several hubs the first that accepts. The request is on disk before it is
/// sent, for some hubs verify before they answer.
async fn ask_for(
    context: &Arc<SourceContext>,
    public_url: &Url,
    channel: &ChannelRecord,
) -> Result<Result<(), Refusal>, EngineError> {
    let store = &context.store;
    let aim = context.aim(channel).await?;
    // The topic may have taken its time to answer.
    if store.channel(channel.id).await?.is_none_or(|now| now.left) {
        return Ok(Ok(()));
    }
    if aim.hubs.is_empty() {
        let now = clock::now().wall;
        store
            .change_lease(channel.id, false, move |lease| lease.nobody_to_ask(now))
            .await?;
        return Ok(Err(Refusal {
            code: "no-hub",
            message: "neither the Capability List nor the topic names a hub".to_owned(),
            wait: None,
        }));
    }
    let asked = Asked {
        intent: Intent::Subscribe,
        lease_seconds: context.source.lease.as_secs(),
    };
    note_asked(store, channel, asked).await?;
    let request = SubscriptionRequest {
        mode: Mode::Subscribe,
        callback: format!("{public_url}{}", channel.token),
        topic: aim.topic.to_string(),
        lease_seconds: Some(asked.lease_seconds),
        secret: channel.secret.clone(),
    };
    let mut refused: Option<Refusal> = None;
    for hub in &aim.hubs {
        if let Some(refusal) = &refused {
            tracing::info!(code = refusal.code, source = context.name(), topic = %channel.topic, %hub, error = refusal.message,
                "a hub does not take the subscription: the next one is asked");
        }
        store.aim_channel(channel.id, hub, &aim.topic).await?;
        match send(&context.client, hub, &request).await {
            Ok(()) => return Ok(Ok(())),
            Err(refusal) => {
                let wait = refused.and_then(|other| other.wait).max(refusal.wait);
                refused = Some(Refusal { wait, ..refusal });
            }
        }
        if is_verified(store, channel, asked).await? {
            return Ok(Ok(()));
        }
    }
    match refused {
        Some(refusal) => note_refused(store, channel, asked, refusal).await.map(Err),
        None => Ok(Ok(())),
    }
}

/// Asks the hub to end a subscription.
async fn ask_to_end(
    store: &Arc<Store>,
    client: &Client,
    public_url: &Url,
    channel: &ChannelRecord,
) -> Result<Result<(), Refusal>, EngineError> {
    let Some(hub) = &channel.hub else {
        // No hub has ever heard of it.
        store
            .change_lease(channel.id, true, |lease| {
                lease.state = ChannelState::Unsubscribed
            })
            .await?;
        return Ok(Ok(()));
    };
    let asked = Asked {
        intent: Intent::Unsubscribe,
        lease_seconds: 0,
    };
    note_asked(store, channel, asked).await?;
    let request = SubscriptionRequest {
        mode: Mode::Unsubscribe,
        callback: format!("{public_url}{}", channel.token),
        topic: channel.subscribed_topic.to_string(),
        lease_seconds: None,
        secret: None,
    };
    match send(client, hub, &request).await {
        Err(refusal) if !is_verified(store, channel, asked).await? => {
            note_refused(store, channel, asked, refusal).await.map(Err)
        }
        _ => Ok(Ok(())),
    }
}

async fn note_asked(
    store: &Arc<Store>,
    channel: &ChannelRecord,
    asked: Asked,
) -> Result<(), EngineError> {
    let now = clock::now().wall;
    store
        .change_lease(channel.id, false, move |lease| lease.ask(now, asked))
        .await?;
    Ok(())
}

/// Whether a hub has verified what was asked: it has the last word then, whatever it answers.
async fn is_verified(
    store: &Arc<Store>,
    channel: &ChannelRecord,
    asked: Asked,
) -> Result<bool, EngineError> {
    let now = store.channel(channel.id).await?;
    Ok(now.is_none_or(|now| now.lease.asked != Some(asked)))
}

async fn note_refused(
    store: &Arc<Store>,
    channel: &ChannelRecord,
    asked: Asked,
    refusal: Refusal,
) -> Result<Refusal, EngineError> {
    let (now, wait) = (clock::now().wall, refusal.wait);
    store
        .change_lease(channel.id, false, move |lease| {
            if lease.asked == Some(asked) {
                lease.failed(now, wait);
            }
        })
        .await?;
    Ok(refusal)
}

async fn send(client: &Client, hub: &HubUri, request: &SubscriptionRequest) -> Result<(), Refusal> {
    match client.ask_hub(hub, request).await {
        Ok(HubAnswer::Accepted) => Ok(()),
        Ok(HubAnswer::Refused {
            status,
            excerpt,
            retry_after,
        }) => Err(Refusal {
            code: "hub-refused",
            message: format!("the hub answers {status}: {excerpt}"),
            wait: retry_after,
        }),
        Err(error) => Err(Refusal {
            code: error.code(),
            message: error.to_string(),
            wait: match error.disposition() {
                Disposition::RetryLater { after } => after,
                Disposition::GiveUp => None,
            },
        }),
    }
}

/// Waits until a moment of the wall clock, or until something happens to the channel.
///
/// The clock may have been set since `begun`, and nobody knows by which of the two `next` is meant: the shorter wait is right.
async fn wait(
    wakes: &mut broadcast::Receiver<Wake>,
    id: ChannelId,
    next: DateTime<Utc>,
    begun: Now,
) {
    let now = clock::now();
    let pause = (next - now.wall.max(begun.wall))
        .to_std()
        .unwrap_or_default()
        .min(LONGEST_WAIT);
    let next = Instant::from_std(now.mono + pause);
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next) => return,
            wake = wakes.recv() => match wake {
                Ok(Wake::Channel(_, channel)) if channel == id => return,
                Err(RecvError::Lagged(_)) => return,
                Ok(_) => {}
                // The store outlives those who keep subscriptions.
                Err(RecvError::Closed) => std::future::pending().await,
            },
        }
    }
}

/// Ends a subscription at its hub, and waits for the hub to confirm it.
pub(in crate::engine) async fn end(
    store: &Arc<Store>,
    client: &Client,
    public_url: &Url,
    source: &str,
    channel: &ChannelRecord,
) -> UnsubscribeResult {
    let ended = tokio::time::timeout(
        ENDING_TIME,
        end_confirmed(store, client, public_url, channel),
    )
    .await;
    let (confirmed, message) = match ended {
        Ok(Ok(())) => (true, "confirmed".to_owned()),
        Ok(Err(message)) => (false, message),
        Err(_) => (
            false,
            format!("no confirmation within {} s", ENDING_TIME.as_secs()),
        ),
    };
    tracing::info!(source, topic = %channel.topic, hub = channel.hub_name(), confirmed, message, "a subscription was ended");
    UnsubscribeResult {
        source: source.to_owned(),
        topic: channel.topic.to_string(),
        hub: channel.hub_name().to_owned(),
        confirmed,
        message,
    }
}

async fn end_confirmed(
    store: &Arc<Store>,
    client: &Client,
    public_url: &Url,
    channel: &ChannelRecord,
) -> Result<(), String> {
    let mut wakes = store.wakes();
    let told = |error: &dyn std::fmt::Display| error.to_string();
    store
        .want_channel(channel.id, false)
        .await
        .map_err(|error| told(&error))?;
    let asking = ask_to_end(store, client, public_url, channel)
        .await
        .map_err(|error| told(&error))?;
    asking.map_err(|refusal| refusal.message)?;
    loop {
        let now = store
            .channel(channel.id)
            .await
            .map_err(|error| told(&error))?;
        if now.is_none_or(|channel| channel.lease.state == ChannelState::Unsubscribed) {
            return Ok(());
        }
        if wakes.recv().await == Err(RecvError::Closed) {
            return Err("the database was closed".to_owned());
        }
    }
}
