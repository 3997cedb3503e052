//! Ends the subscriptions of sets that are no longer followed: of a Source that the configuration does not name any more, or
//! of a set that was deselected or is gone.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use resyncd_channels::Transports;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::context::ChannelContext;
use super::driver::drive;
use crate::engine::runtime_status::RuntimeStatus;
use crate::engine::store_retries::STORE_PAUSE;
use crate::store::{ChannelId, FollowedSets, Store, UnfollowedChannel};

/// How many subscriptions are ended at once; as many at hubs, and as many elsewhere, where it may be tried without end.
const AT_ONCE: usize = 16;

/// What the endings need.
#[derive(Clone)]
pub(crate) struct Unfollowed {
    pub(crate) store: Arc<Store>,
    pub(crate) transports: Transports,
    pub(crate) runtime_status: Arc<RuntimeStatus>,
    pub(crate) public_url: Option<String>,
    /// What is followed: a reload changes it.
    pub(crate) followed: watch::Receiver<Vec<FollowedSets>>,
}

impl Unfollowed {
    /// Ends the subscriptions that no set worker ends, until it is stopped.
    pub(crate) async fn end_all(self, stop: CancellationToken) {
        // The result is the stop.
        let _ = stop.run_until_cancelled(self.end_each(&stop)).await;
    }

    async fn end_each(&self, stop: &CancellationToken) {
        let mut followed = self.followed.clone();
        let (at_hubs, elsewhere) = (Semaphore::new(AT_ONCE), Semaphore::new(AT_ONCE));
        let mut running: HashSet<ChannelId> = HashSet::new();
        let mut endings = FuturesUnordered::new();
        loop {
            let current = followed.borrow_and_update().clone();
            for channel in self.channels(&current).await {
                let id = channel.record.id;
                if !running.insert(id) {
                    continue;
                }
                let slots = if channel.record.transport.has_hubs() {
                    &at_hubs
                } else {
                    &elsewhere
                };
                endings.push(async move {
                    // It is never closed.
                    let _slot = slots.acquire().await;
                    self.end(channel, stop).await;
                    id
                });
            }
            loop {
                tokio::select! {
                    Some(id) = endings.next() => {
                        running.remove(&id);
                    }
                    changed = followed.changed() => match changed {
                        Ok(()) => break,
                        // The engine is gone, and does not stop: a test.
                        Err(_) => return,
                    },
                }
            }
        }
    }

    /// The subscriptions that have not ended yet.
    async fn channels(&self, followed: &[FollowedSets]) -> Vec<UnfollowedChannel> {
        loop {
            match self.store.unfollowed_channels(followed.to_vec()).await {
                Ok(channels) => return channels,
                Err(error) => {
                    tracing::error!(code = error.code(), %error, "database error; former subscriptions are read again");
                }
            }
            tokio::time::sleep(STORE_PAUSE).await;
        }
    }

    async fn end(&self, channel: UnfollowedChannel, stop: &CancellationToken) {
        let UnfollowedChannel {
            source,
            capability_list,
            record,
        } = channel;
        tracing::info!(source, set = %capability_list, transport = record.transport.code(), topic = %record.topic,
            hub = record.logged_hub(), "ending the channel of a set that is not followed");
        let context = ChannelContext::of_unfollowed(
            source,
            Arc::clone(&self.store),
            self.transports.clone(),
            Arc::clone(&self.runtime_status),
            self.public_url.clone(),
            stop.clone(),
        );
        drive(Arc::new(context), record).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use resourcesync::Capability;
    use resyncd_core::{CallbackOwner, Channel, ChannelState, HubUri, TopicUri, Transport};
    use tokio::sync::mpsc;
    use url::Url;

    use super::*;
    use crate::clock;
    use crate::engine::tests::{Answering, NAME, TestSource};
    use crate::store::CallbackKeys;

    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    /// Nodes whose account or service is gone are tried again without end.
    #[tokio::test]
    async fn nodes_that_cannot_be_left_delay_no_hub() {
        let list = Url::parse("https://example.org/capabilitylist.xml").unwrap();
        let (requests, mut requested) = mpsc::unbounded_channel();
        let source = TestSource::new(&list, |client| {
            client.with_network(Arc::new(Answering(move |url: &Url| {
                let _ = requests.send(url.clone());
                None
            })))
        });
        let (store, now) = (&source.store, clock::now().wall);
        let set = store.begin_set(NAME, &list).await.unwrap().id;
        let add = async |token: String, mut channel: Channel| {
            channel.lease.state = ChannelState::Active;
            (channel.begun, channel.is_unwanted) = (1, true);
            let kind = Capability::ChangeNotification;
            let keys = CallbackKeys {
                token,
                secret: None,
            };
            store
                .insert_channel(set, &kind, channel, keys)
                .await
                .unwrap();
        };
        for number in 0..=AT_ONCE {
            let node = format!("xmpp:pubsub.example.org?;node={number}");
            let node = TopicUri::of_channel(Url::parse(&node).unwrap()).unwrap();
            let channel = Channel::without_hubs(Transport::Xmpp, now, &node);
            add(node.to_string(), channel).await;
        }
        let hub = HubUri::parse("https://hub.example.org/").unwrap();
        let topic = TopicUri::parse("https://example.org/topic").unwrap();
        let base = "https://destination.example.org/".to_owned();
        let mut channel = Channel::new(now, &topic, std::slice::from_ref(&hub));
        channel.callbacks.own = Some(CallbackOwner {
            hub: hub.clone(),
            topic,
            base: base.clone(),
        });
        add("token".to_owned(), channel).await;
        let (_followed, followed) = watch::channel(Vec::new());
        let stop = CancellationToken::new();
        let unfollowed = Unfollowed {
            store: Arc::clone(store),
            transports: source.context.transports.clone(),
            runtime_status: Arc::clone(&source.context.runtime_status),
            public_url: Some(base),
            followed,
        };
        let ending = tokio::spawn(unfollowed.end_all(stop.clone()));
        let asked = tokio::time::timeout(LIMIT, requested.recv()).await;
        assert_eq!(asked.unwrap().unwrap().as_str(), hub.as_str());
        stop.cancel();
        tokio::time::timeout(LIMIT, ending).await.unwrap().unwrap();
    }
}
