//! Which hub a channel is subscribed to at, and for which topic (WebSub, section 4).

use super::EngineError;
use super::following::Following;
use crate::protocol::{HubUri, TopicUri};
use crate::store::ChannelRecord;
use crate::sync::ChannelState;

/// Where to ask for a subscription, and for what.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Aim {
    /// What the topic calls itself.
    pub(super) topic: TopicUri,
    /// The hubs to try, in this order; the first that accepts is the one.
    pub(super) hubs: Vec<HubUri>,
}

impl Following {
    /// Finds out which hubs to ask. The configuration's hub overrules all. Else the topic is asked, unless this is the first
    /// try and the Capability List names a hub; when the topic can't be asked, or names none, the known ones go on.
    pub(super) async fn aim(&self, channel: &ChannelRecord) -> Result<Aim, EngineError> {
        if let Some(hub) = &self.source.hub {
            return Ok(Aim {
                topic: channel.topic.clone(),
                hubs: vec![hub.clone()],
            });
        }
        let mut aim = Aim {
            topic: channel.subscribed_topic.clone(),
            hubs: channel.known_hubs.clone(),
        };
        let is_first = channel.lease.state == ChannelState::Pending && channel.lease.failures == 0;
        if !is_first || aim.hubs.is_empty() {
            match self.client.ask_topic(&channel.topic).await {
                Ok(links) => {
                    aim.topic = links.topic.unwrap_or_else(|| channel.topic.clone());
                    if !links.hubs.is_empty() && links.hubs != aim.hubs {
                        self.store.know_hubs(channel.id, &links.hubs).await?;
                        aim.hubs = links.hubs;
                    }
                }
                Err(error) => {
                    tracing::info!(code = error.code(), source = self.name(), topic = %channel.topic, %error,
                        "a topic can't be asked for its hubs: those that are known go on");
                }
            }
        }
        put_in_order(&mut aim.hubs, channel);
        Ok(aim)
    }
}

/// A lease is renewed where it was granted. A hub that was tried and did not help comes after those that may.
fn put_in_order(hubs: &mut [HubUri], channel: &ChannelRecord) {
    let current = hubs
        .iter()
        .position(|hub| Some(hub) == channel.hub.as_ref());
    if let Some(current) = current {
        if channel.lease.failures > 0 {
            hubs[current..].rotate_left(1);
        } else if channel.lease.state == ChannelState::Active {
            hubs[..=current].rotate_right(1);
        }
    }
}
