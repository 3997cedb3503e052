//! What a commit reports to waiting workers.

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::ids::{ChannelId, SetId};

/// Sent after the commit that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

impl Wake {
    /// Returns when changes may have been applied.
    pub async fn applied(wakes: &mut Receiver<Self>) {
        loop {
            match wakes.recv().await {
                Ok(Self::Feed(_)) | Err(RecvError::Lagged(_)) => return,
                Ok(_) => {}
                // The store outlives who waits.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}
