//! Ends a subscription on request and waits for the hub's confirmation.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::context::rules_of;
use super::driver::{StoredMachine, wait};
use super::requests::{read_topic, send_request};
use crate::clock;
use crate::config;
use crate::fetch::Client;
use crate::status::UnsubscribeResult;
use crate::store::{ChannelRecord, Store};
use crate::sync::{Channel, ChannelAction, ChannelEvent, ChannelReport};

/// How long a hub may take to confirm that a subscription has ended.
const ENDING_TIME: Duration = Duration::from_secs(30);

/// Ends a subscription at its hub: one attempt. The callback must be served meanwhile.
pub(in crate::engine) async fn end(
    store: &Arc<Store>,
    client: &Client,
    public_url: &Url,
    source: &config::Source,
    channel: &ChannelRecord,
) -> UnsubscribeResult {
    let ending = end_at_hub(store, client, public_url, source, channel);
    let (confirmed, message) = match tokio::time::timeout(ENDING_TIME, ending).await {
        Ok(Ok(())) => (true, "confirmed".to_owned()),
        Ok(Err(message)) => (false, message),
        Err(_) => (
            false,
            format!("no confirmation within {} s", ENDING_TIME.as_secs()),
        ),
    };
    let source = &source.name;
    tracing::info!(source, topic = %channel.topic, hub = channel.hub_name(), confirmed, message, "subscription ended");
    UnsubscribeResult {
        source: source.clone(),
        topic: channel.topic.to_string(),
        hub: channel.hub_name().to_owned(),
        confirmed,
        message,
    }
}

async fn end_at_hub(
    store: &Arc<Store>,
    client: &Client,
    public_url: &Url,
    source: &config::Source,
    channel: &ChannelRecord,
) -> Result<(), String> {
    let mut wakes = store.wakes();
    let mut stored = StoredMachine::new(store, channel.id, rules_of(source));
    let mut now = clock::now();
    let leave = move |channel: &mut Channel| channel.leave(now.wall);
    let mut handled = stored
        .change_and_handle(now, leave, ChannelEvent::Started)
        .await;
    loop {
        let (step, _) = handled.map_err(|error| error.to_string())?;
        if let Some(ChannelReport::Failed(failure)) = step.report {
            return Err(failure.message);
        }
        let event = match step.action {
            ChannelAction::ReadTopic(topic) => read_topic(client, &source.name, &topic).await,
            ChannelAction::SendRequest(request) => {
                send_request(client, public_url, channel, &request).await
            }
            ChannelAction::WaitUntil(time) => {
                wait(&mut wakes, channel.id, time, now).await;
                ChannelEvent::Woken
            }
            ChannelAction::End => return Ok(()),
        };
        now = clock::now();
        handled = stored.handle(now, event).await;
    }
}
