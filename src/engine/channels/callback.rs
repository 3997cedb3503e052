//! HTTP callback: the Source delivers Change Sets to an address that this Destination registers (version 0.1, section 5.2.2).
//!
//! Invariants:
//! - Only an interface whose protocol is configured is requested.
//! - The address is registered once by each process, and again when the Source falls silent; after a failure at a pace that the core
//!   decides. It stays the same: a Source that has registered it before need not remember another one. Only a channel that was left gets
//!   another one once it is wanted again.
//! - What is delivered enters the inbox at the callback listener, as a hub's deliveries do.

use std::time::Duration;

use chrono::TimeDelta;
use resyncd_core::{Channel, ConnectionStep};
use resyncd_fetch::HubAnswer;

use super::context::ChannelContext;
use super::stored::{Ended, StoredChannel, result_of};
use super::waiting::wait;
use crate::clock;
use crate::config::LackingKey;
use crate::engine::restarts::Panicked;
use crate::random::spread;
use crate::store::{CallbackSlot, ChannelRecord};

/// What is logged of a registration that has failed.
const FAILED: &str = "callback not registered";

/// Keeps a callback registered until its channel is left. Fails if the store panics.
pub(super) async fn drive_to_end(
    context: &ChannelContext,
    channel: &ChannelRecord,
) -> Result<(), Panicked> {
    result_of(drive(StoredChannel { context, channel }).await)
}

async fn drive(stored: StoredChannel<'_>) -> Result<(), Ended> {
    let StoredChannel { context, channel } = stored;
    let mut wakes = context.store.wakes();
    let begun = clock::now().wall;
    stored
        .change(move |channel| channel.begin_connecting(begun))
        .await?;
    loop {
        let now = clock::now();
        let next = move |channel: &mut Channel| channel.next_connection_step(now.wall);
        match stored.change(next).await? {
            ConnectionStep::Open => register(stored).await?,
            ConnectionStep::WaitUntil(time) => wait(&mut wakes, channel.id, time, now).await,
            // Until the stored channel changes.
            ConnectionStep::Stay => {
                let later = now.wall + TimeDelta::days(1);
                wait(&mut wakes, channel.id, later, now).await;
            }
            // There is no request that ends a registration.
            ConnectionStep::Leave | ConnectionStep::End => {
                context.clear(channel);
                return Ok(());
            }
        }
    }
}

/// Registers the callback at the interface.
async fn register(stored: StoredChannel<'_>) -> Result<(), Ended> {
    let StoredChannel { context, channel } = stored;
    let (code, message, retry_after) = match request(context, channel).await {
        Ok(()) => {
            stored.change(Channel::registered).await?;
            context.clear(channel);
            return Ok(());
        }
        Err(refused) => refused,
    };
    let (now, spread) = (clock::now().wall, spread());
    stored
        .change(move |channel| channel.unconnected(now, retry_after, spread))
        .await?;
    stored.report(code, &message, FAILED);
    Ok(())
}

/// A code, an explanation for people, and the interface's `Retry-After`.
type Refused = (&'static str, String, Option<Duration>);

async fn request(context: &ChannelContext, channel: &ChannelRecord) -> Result<(), Refused> {
    let Some(base) = &context.rules.callback_base else {
        let lacking = LackingKey::PublicUrl;
        return Err((lacking.code(), lacking.to_string(), None));
    };
    let callback = format!("{base}{}", channel.keys(CallbackSlot::Own).token);
    let _work = context.asks(channel);
    let interface = channel.topic.url();
    match context
        .transports
        .client()
        .register_callback(interface, &callback)
        .await
    {
        Ok(HubAnswer::Accepted { .. }) => Ok(()),
        Ok(HubAnswer::Refused {
            status,
            excerpt,
            retry_after,
        }) => {
            let message = format!("the Source answers {status}: {excerpt}");
            Err(("registration-refused", message, retry_after))
        }
        Err(error) => Err((error.code(), error.to_string(), error.retry_after())),
    }
}
