//! What a commit reports to waiting workers.

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::ids::{ChannelId, SetId};

/// Sent after the commit that caused it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wake {
    /// The set's inbox has a new delivery.
    Inbox(SetId),
    /// A delivery for the set was rejected before it was stored, or missed: what it states is left to a poll.
    MissedNotification(SetId),
    /// A channel of the set was verified, denied, ended or changed otherwise.
    Channel(SetId, ChannelId),
    /// Tasks of the Source were added, changed or completed.
    Tasks(String),
    /// Versions of the Source are to be stored.
    Versions(String),
    /// Changes were applied, up to this sequence number of the feed.
    Feed(i64),
    /// Nodes have come or gone, or are to hold something else.
    Nodes,
    /// Somebody has subscribed to what is published, or does not want it any more.
    Subscribed,
    /// The node of that id is asked for something.
    Asked(String),
    /// The request of that number is answered.
    Answered(i64),
}

impl Wake {
    /// Whether it may concern another node than the one that has committed.
    pub(super) fn is_for_others(&self) -> bool {
        // Only the node that holds a Source works on its tasks and versions.
        !matches!(self, Self::Tasks(_) | Self::Versions(_))
    }

    /// Returns when there was a wake that is wanted, or there may have been one.
    pub async fn until(wakes: &mut Receiver<Self>, is_wanted: impl Fn(&Self) -> bool) {
        loop {
            match wakes.recv().await {
                Ok(wake) if is_wanted(&wake) => return,
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return,
                // The store outlives who waits.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Returns when changes may have been applied.
    pub async fn applied(wakes: &mut Receiver<Self>) {
        Self::until(wakes, |wake| matches!(wake, Self::Feed(_))).await;
    }
}
