//! Which hub a channel is subscribed to at, and for which topic (WebSub, section 4).

use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::protocol::{HubUri, TopicUri};
use crate::store::ChannelRecord;
use crate::sync::{ChannelState, Lease};

/// Where to ask for a subscription, and for what.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::engine) struct Aim {
    /// What the topic calls itself.
    pub(in crate::engine) topic: TopicUri,
    /// The hubs to try, in this order; the first that accepts is the one.
    pub(in crate::engine) hubs: Vec<HubUri>,
}

impl SourceContext {
    /// Finds out which hubs to ask. The configuration's hub overrules all. Else the topic is asked, unless this is the first
    /// try and the Capability List names a hub; when the topic can't be asked, or names none, the known ones go on.
    pub(in crate::engine) async fn aim(&self, channel: &ChannelRecord) -> Result<Aim, EngineError> {
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
        put_in_order(&mut aim.hubs, channel.hub.as_ref(), &channel.lease);
        Ok(aim)
    }
}

/// A lease is renewed where it was granted. A hub that was tried and did not help comes after those that may.
fn put_in_order(hubs: &mut [HubUri], last: Option<&HubUri>, lease: &Lease) {
    let Some(last) = hubs.iter().position(|hub| Some(hub) == last) else {
        return;
    };
    if lease.failures > 0 {
        hubs[last..].rotate_left(1);
    } else if lease.state == ChannelState::Active {
        hubs[..=last].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn check(last: &str, failures: u32, state: ChannelState, expected: [&str; 3]) {
        let hub = |name: &str| HubUri::parse(&format!("http://{name}.example/")).unwrap();
        let mut hubs = ["a", "b", "c"].map(hub);
        let lease = Lease {
            failures,
            state,
            ..Lease::new(clock::now().wall)
        };
        put_in_order(&mut hubs, Some(&hub(last)), &lease);
        assert_eq!(hubs, expected.map(hub), "{last}, {failures}, {state:?}");
    }

    #[test]
    fn lease_is_renewed_where_it_was_granted() {
        use ChannelState::{Active, Expired, Pending};
        check("b", 0, Active, ["b", "a", "c"]);
        check("c", 0, Active, ["c", "a", "b"]);
        check("gone", 0, Active, ["a", "b", "c"]);
        check("b", 0, Pending, ["a", "b", "c"]);
        check("b", 0, Expired, ["a", "b", "c"]);
    }

    #[test]
    fn hub_that_did_not_help_comes_last() {
        use ChannelState::{Active, Denied, Pending};
        check("a", 1, Pending, ["b", "c", "a"]);
        check("b", 2, Denied, ["a", "c", "b"]);
        check("c", 1, Active, ["a", "b", "c"]);
        check("gone", 3, Pending, ["a", "b", "c"]);
    }
}
