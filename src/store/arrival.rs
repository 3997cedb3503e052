//! A delivery that waits to be received, and what becomes of it.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use resyncd_core::TopicUri;

use super::ids::ChannelId;
use super::tables::channel::CallbackKeys;
use super::tables::delivered::BodyDigest;
use super::writer::SharedQueue;

/// The answer to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It is on disk.
    Stored,
    /// The same bytes were received before.
    Known,
    /// The inbox is full: the hub must retry.
    Full,
    /// The channel has other keys by now, or was left: the delivery must be verified again.
    Outdated,
}

/// Whom a delivery is for.
#[derive(Clone, Debug)]
pub struct Recipient {
    /// The channel.
    pub channel: ChannelId,
    /// The keys with which the delivery was verified; `None`: it need not be.
    pub keys: Option<CallbackKeys>,
}

impl From<ChannelId> for Recipient {
    fn from(channel: ChannelId) -> Self {
        Self {
            channel,
            keys: None,
        }
    }
}

/// A delivery that is not stored yet.
pub(super) struct Arrival {
    pub(super) at: DateTime<Utc>,
    pub(super) recipient: Recipient,
    pub(super) body: Bytes,
    pub(super) digest: BodyDigest,
    pub(super) stated_topic: Option<TopicUri>,
    /// How many bytes of deliveries may be pending for its channel.
    pub(super) room: u64,
}

impl Arrival {
    pub(super) fn length(&self) -> u64 {
        self.body.len() as u64
    }
}

/// The deliveries that the next job receives.
pub(super) type Arrivals = SharedQueue<Arrival, Receipt>;
