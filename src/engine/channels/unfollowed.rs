//! Ends the subscriptions of sets that are no longer followed: of a Source that the configuration does not name any more, or
//! of a set that was deselected or is gone.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::context::ChannelContext;
use super::driver::drive;
use crate::engine::runtime_status::RuntimeStatus;
use crate::engine::store_retries::STORE_PAUSE;
use crate::fetch::Client;
use crate::store::{ChannelId, FollowedSets, Store, UnfollowedChannel};

/// How many subscriptions are ended at once.
const AT_ONCE: usize = 16;

/// What the endings need.
#[derive(Clone)]
pub(in crate::engine) struct Unfollowed {
    pub(in crate::engine) store: Arc<Store>,
    pub(in crate::engine) client: Client,
    pub(in crate::engine) runtime_status: Arc<RuntimeStatus>,
    pub(in crate::engine) public_url: Option<String>,
    /// What is followed: a reload changes it.
    pub(in crate::engine) followed: watch::Receiver<Vec<FollowedSets>>,
    pub(in crate::engine) stop: CancellationToken,
}

impl Unfollowed {
    /// Ends the subscriptions that no set worker ends, until the daemon stops.
    pub(in crate::engine) async fn end_all(self) {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.end_each() => {}
        }
    }

    async fn end_each(&self) {
        let mut followed = self.followed.clone();
        let slots = Semaphore::new(AT_ONCE);
        let mut running: HashSet<ChannelId> = HashSet::new();
        let mut endings = FuturesUnordered::new();
        loop {
            let current = followed.borrow_and_update().clone();
            for channel in self.channels(&current).await {
                let id = channel.record.id;
                if !running.insert(id) {
                    continue;
                }
                let slots = &slots;
                endings.push(async move {
                    // It is never closed.
                    let _slot = slots.acquire().await;
                    self.end(channel).await;
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

    async fn end(&self, channel: UnfollowedChannel) {
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
            self.client.clone(),
            Arc::clone(&self.runtime_status),
            self.public_url.clone(),
            self.stop.clone(),
        );
        drive(Arc::new(context), record).await;
    }
}
