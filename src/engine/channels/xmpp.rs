//! XMPP PubSub: a service sends items to a session that is subscribed to the node of the Source (version 0.1, section 5.2.1).
//!
//! The subscription outlives connections: it is ended when the channel is left. A session whose connection is lost is resumed, or else
//! the newest items are asked for; an item that came before is skipped.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use bytes::Bytes;

use super::connection::{Connection, Connector, Failure, Message};
use super::context::ChannelContext;
use crate::fetch::{Client, NodeEvent, NodeItem, NodeMemory, NodeSession, XmppError};
use crate::store::{CallbackSlot, ChannelRecord};

/// How many of the newest items are asked for.
const NEWEST: u32 = 50;
/// How many items are remembered.
const MOST_REMEMBERED: usize = 1000;
/// How often somebody else is reported who sends something to a session: anybody can.
const MOST_FOREIGN: u32 = 10;
/// How many letters of a token name a session.
const NAME_LENGTH: usize = 16;
/// How often the end of a subscription is tried, and the pause after the first time.
const ENDING_TRIES: u32 = 3;
const ENDING_PAUSE: Duration = Duration::from_secs(2);

/// Opens the sessions of a channel.
pub(super) struct Nodes {
    memory: NodeMemory,
    seen: SeenItems,
    /// Whether the service has confirmed that there is no subscription.
    is_unsubscribed: bool,
}

impl Nodes {
    pub(super) fn of(channel: &ChannelRecord, longest_message: u64) -> Self {
        let token = channel.keys(CallbackSlot::Own).token;
        // Nobody calls back at this token.
        let name: String = token.chars().take(NAME_LENGTH).collect();
        Self {
            memory: NodeMemory {
                resource: format!("resyncd-{name}"),
                limit: longest_message,
                newest: NEWEST,
                resumption: None,
            },
            seen: SeenItems::default(),
            is_unsubscribed: false,
        }
    }

    /// Ends the subscription: one attempt.
    pub(super) async fn unsubscribe(
        &self,
        client: &Client,
        channel: &ChannelRecord,
    ) -> Result<(), XmppError> {
        let resource = &self.memory.resource;
        client.leave_node(&channel.topic, resource).await
    }
}

/// A session, and what it shares with those before it.
pub(super) struct OpenNode {
    session: NodeSession,
    seen: SeenItems,
    /// How often somebody else has sent something.
    foreign: u32,
}

impl Connector for Nodes {
    type Open = OpenNode;

    async fn open(
        &mut self,
        context: &ChannelContext,
        channel: &ChannelRecord,
    ) -> Result<OpenNode, Failure> {
        let opening = context.client.open_node(&channel.topic, &mut self.memory);
        let (session, is_resumed) = opening.await?;
        tracing::info!(source = context.source, topic = %channel.topic, is_resumed, "subscribed to the node");
        self.is_unsubscribed = false;
        let seen = std::mem::take(&mut self.seen);
        Ok(OpenNode {
            session,
            seen,
            foreign: 0,
        })
    }

    async fn close(&mut self, open: OpenNode, is_left: bool) {
        self.seen = open.seen;
        if is_left {
            // Otherwise it is tried again.
            self.is_unsubscribed = open.session.unsubscribe().await.is_ok();
        }
    }

    fn lose(&mut self, open: OpenNode, failure: &Failure) {
        self.memory.resumption = open.session.resumption();
        self.seen = open.seen;
        if failure.is_of_message {
            // It would come again.
            self.memory.resumption = None;
            self.memory.newest /= 2;
        }
    }

    async fn leave(
        &mut self,
        context: &ChannelContext,
        channel: &ChannelRecord,
    ) -> Result<(), Failure> {
        let mut pause = ENDING_PAUSE;
        for attempt in 1.. {
            if self.is_unsubscribed {
                break;
            }
            match self.unsubscribe(&context.client, channel).await {
                // It never had a subscription, or can't have one any more.
                Ok(()) | Err(XmppError::NoAccount | XmppError::NoNode) => break,
                Err(error) if attempt == ENDING_TRIES => return Err(error.into()),
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
        Ok(())
    }
}

impl Connection for OpenNode {
    type Message = NodeItem;

    async fn next(&mut self) -> Result<NodeItem, Failure> {
        loop {
            match self.session.next().await? {
                NodeEvent::Item(item) if self.seen.has(&item) => self.session.stored(),
                NodeEvent::Item(item) => return Ok(item),
                NodeEvent::Answered => {}
                NodeEvent::Rejected(error) => {
                    return Err(Failure {
                        ends: false,
                        is_of_message: true,
                        ..Failure::from(error)
                    });
                }
                NodeEvent::Foreign(_) if self.foreign == MOST_FOREIGN => {}
                NodeEvent::Foreign(from) => {
                    self.foreign += 1;
                    return Err(Failure {
                        code: "foreign-publisher",
                        message: format!(
                            "{from:?} is not the PubSub service, and sends what looks like an item of it"
                        ),
                        retry_after: None,
                        is_of_message: true,
                        ends: false,
                    });
                }
            }
        }
    }

    fn stored(&mut self, item: NodeItem) {
        self.seen.add(&item);
        self.session.stored();
    }
}

impl Message for NodeItem {
    fn bytes(&self) -> &Bytes {
        &self.document
    }
}

impl From<XmppError> for Failure {
    fn from(error: XmppError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            retry_after: None,
            is_of_message: error.is_of_message(),
            ends: true,
        }
    }
}

/// The items that came last. One that comes again with its identifier and its content is the same; with another content it is a new
/// one.
#[derive(Default)]
struct SeenItems {
    hasher: RandomState,
    digests: HashMap<String, u64>,
    order: VecDeque<String>,
}

impl SeenItems {
    fn has(&self, item: &NodeItem) -> bool {
        let digest = self.hasher.hash_one(&item.document);
        self.digests.get(&item.id) == Some(&digest)
    }

    fn add(&mut self, item: &NodeItem) {
        let digest = self.hasher.hash_one(&item.document);
        if self.digests.insert(item.id.clone(), digest).is_none() {
            self.order.push_back(item.id.clone());
        }
        if self.order.len() > MOST_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.digests.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, text: &str) -> NodeItem {
        NodeItem {
            id: id.to_owned(),
            document: Bytes::from(text.to_owned()),
            is_answer: false,
        }
    }

    #[test]
    fn items_are_distinguished_by_their_identifiers() {
        let mut seen = SeenItems::default();
        seen.add(&item("1", "a"));
        for (id, text, is_known) in [("1", "a", true), ("2", "a", false), ("1", "b", false)] {
            assert_eq!(seen.has(&item(id, text)), is_known, "{id} {text}");
        }
        for number in 2..=MOST_REMEMBERED + 1 {
            seen.add(&item(&number.to_string(), "a"));
        }
        assert!(!seen.has(&item("1", "a")));
        assert!(seen.has(&item("2", "a")));
        assert_eq!(seen.order.len(), seen.digests.len());
    }
}
