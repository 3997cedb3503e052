//! The requests of a channel over HTTP; each result is an event for the channel machine.

use resyncd_core::{ChannelEvent, ChannelFailure, HubRequest, TopicUri};
use resyncd_fetch::{Client, HubAnswer};
use websub::{Intent, Mode, SubscriptionRequest};

use crate::store::ChannelRecord;

/// Reads the links of a topic.
pub(super) async fn read_topic(client: &Client, source: &str, topic: &TopicUri) -> ChannelEvent {
    match client.ask_topic(topic).await {
        Ok(links) => ChannelEvent::TopicRead {
            topic: links.topic,
            hubs: links.hubs,
        },
        Err(error) => {
            tracing::info!(code = error.code(), source, %topic, %error, "topic unavailable; using the known hubs");
            ChannelEvent::TopicUnavailable
        }
    }
}

/// Sends a request to a hub, with the channel's callback and secret for it.
pub(super) async fn send_request(
    client: &Client,
    channel: &ChannelRecord,
    request: &HubRequest,
) -> ChannelEvent {
    let keys = channel.keys(channel.callbacks.of_request());
    let (mode, lease_seconds, secret) = match request.asked.intent {
        Intent::Subscribe => (
            Mode::Subscribe,
            Some(request.asked.lease_seconds),
            keys.secret,
        ),
        Intent::Unsubscribe => (Mode::Unsubscribe, None, None),
    };
    let form = SubscriptionRequest {
        mode,
        callback: format!("{}{}", request.callback_base, keys.token),
        topic: request.topic.to_string(),
        lease_seconds,
        secret,
    };
    let (code, message, retry_after) = match client.ask_hub(&request.hub, &form).await {
        Ok(HubAnswer::Accepted { status, excerpt }) => {
            let answer = match excerpt.as_str() {
                "" => status.to_string(),
                text => format!("{status}, {text:?}"),
            };
            return ChannelEvent::HubAccepted { answer };
        }
        Ok(HubAnswer::Refused {
            status,
            excerpt,
            retry_after,
        }) => (
            "hub-refused",
            format!("the hub answers {status}: {excerpt}"),
            retry_after,
        ),
        Err(error) => (error.code(), error.to_string(), error.retry_after()),
    };
    ChannelEvent::HubRefused {
        failure: ChannelFailure { code, message },
        retry_after,
    }
}
