//! One subscription, kept: asked for, renewed before its lease runs out, and ended when it is no longer wanted (WebSub,
//! sections 5.1 to 5.4). What to do when is the [`Lease`](crate::sync::Lease)'s decision; this carries it out.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use url::Url;

use super::EngineError;
use super::following::Following;
use crate::clock;
use crate::fetch::{Client, Disposition, HubAnswer};
use crate::protocol::websub::{Mode, SubscriptionRequest};
use crate::status::Ending;
use crate::store::{ChannelId, ChannelRecord, Store, Wake};
use crate::sync::{Asked, ChannelState, Intent};

/// The longest wait at a stretch: the wall clock may be set meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// The pause after the database refused to take something.
const STORE_PAUSE: Duration = Duration::from_secs(2);
/// How often a hub is asked to end a subscription that is no longer wanted.
const ENDING_TRIES: u32 = 6;
/// How long a hub may take to confirm that a subscription has ended.
const ENDING_TIME: Duration = Duration::from_secs(30);

/// Keeps a subscription for as long as it is wanted, or until told to stop.
pub(super) async fn keep(following: Arc<Following>, id: ChannelId) {
    let stop = following.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = keep_on(&following, id) => {}
    }
}

async fn keep_on(following: &Arc<Following>, id: ChannelId) {
    let mut wakes = following.store.wakes();
    loop {
        match keep_once(following, id).await {
            Ok(Some(next)) => wait(&mut wakes, id, next).await,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(code = error.code(), source = following.name(), %error, "a subscription can't be kept");
                tokio::time::sleep(STORE_PAUSE).await;
            }
        }
    }
}

/// Does what is due; answers when the next thing is, `None` when the subscription has ended.
async fn keep_once(
    following: &Arc<Following>,
    id: ChannelId,
) -> Result<Option<DateTime<Utc>>, EngineError> {
    let store = &following.store;
    let now = clock::now().wall;
    let (due, lease) = store
        .change_lease(id, false, move |lease| lease.handle_timeout(now))
        .await?;
    let Some(channel) = store.channel(id).await? else {
        return Ok(None);
    };
    if matches!(
        lease.state,
        ChannelState::Active | ChannelState::Unsubscribed
    ) {
        following.board.note_channel(id, None);
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
    let intent = if channel.left {
        Intent::Unsubscribe
    } else {
        Intent::Subscribe
    };
    let Some(public_url) = &following.public_url else {
        return Ok(None);
    };
    let asked = Asked {
        intent,
        lease_seconds: following.source.lease.as_secs(),
    };
    if let Err((code, message)) = ask(store, &following.client, public_url, &channel, asked).await?
    {
        following.tell_channel(&channel, code, message);
    }
    let lease = store.channel(id).await?.map(|channel| channel.lease);
    Ok(lease.and_then(|lease| lease.next_deadline()))
}

/// Sends a request to the hub. The request is on disk before it is sent: some hubs verify before they answer.
async fn ask(
    store: &Arc<Store>,
    client: &Client,
    public_url: &Url,
    channel: &ChannelRecord,
    asked: Asked,
) -> Result<Result<(), (&'static str, String)>, EngineError> {
    let now = clock::now().wall;
    store
        .change_lease(channel.id, false, move |lease| lease.ask(now, asked))
        .await?;
    let subscribing = asked.intent == Intent::Subscribe;
    let request = SubscriptionRequest {
        mode: if subscribing {
            Mode::Subscribe
        } else {
            Mode::Unsubscribe
        },
        callback: format!("{public_url}{}", channel.token),
        topic: channel.topic.to_string(),
        lease_seconds: subscribing.then_some(asked.lease_seconds),
        secret: channel.secret.clone().filter(|_| subscribing),
    };
    let (wait, refusal) = match client.ask_hub(&channel.hub, &request).await {
        Ok(HubAnswer::Accepted) => return Ok(Ok(())),
        Ok(HubAnswer::Refused {
            status,
            excerpt,
            retry_after,
        }) => (
            retry_after,
            (
                "hub-refused",
                format!("the hub answers {status}: {excerpt}"),
            ),
        ),
        Err(error) => {
            let wait = match error.disposition() {
                Disposition::RetryLater { after } => after,
                Disposition::GiveUp => None,
            };
            (wait, (error.code(), error.to_string()))
        }
    };
    let now = clock::now().wall;
    store
        .change_lease(channel.id, false, move |lease| {
            // A hub that has verified meanwhile has the last word, whatever it answered.
            if lease.asked == Some(asked) {
                lease.failed(now, wait);
            }
        })
        .await?;
    Ok(Err(refusal))
}

async fn wait(wakes: &mut broadcast::Receiver<Wake>, id: ChannelId, next: DateTime<Utc>) {
    let now = clock::now();
    let pause = (next - now.wall)
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
pub(super) async fn end(
    store: &Arc<Store>,
    client: &Client,
    public_url: &Url,
    source: &str,
    channel: &ChannelRecord,
) -> Ending {
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
    tracing::info!(source, topic = %channel.topic, hub = %channel.hub, confirmed, message, "a subscription was ended");
    Ending {
        source: source.to_owned(),
        topic: channel.topic.to_string(),
        hub: channel.hub.to_string(),
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
        .want_channel(channel.id, false, &channel.hub)
        .await
        .map_err(|error| told(&error))?;
    let asked = Asked {
        intent: Intent::Unsubscribe,
        lease_seconds: 0,
    };
    let asking = ask(store, client, public_url, channel, asked)
        .await
        .map_err(|error| told(&error))?;
    asking.map_err(|(_, message)| message)?;
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
