//! Receives a delivery: it is in the inbox, on disk, before the hub gets its answer.
//!
//! The same bytes on the same channel have one effect, however often they are delivered: a hub that retries, and a copy of
//! what a hub once signed, state nothing new.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest, Sha256};

use crate::protocol::TopicUri;
use crate::store::ids::ChannelId;
use crate::store::tables::delivered::{self, BodyDigest, EarlierDelivery};
use crate::store::tables::{channel, inbox};
use crate::store::{Store, StoreError, Wake};

/// How many deliveries of a channel are remembered. One that is forgotten and repeated is compared with the coverage, as any
/// other.
pub(in crate::store) const MOST_REMEMBERED: i64 = 10_000;
/// How long a delivery is remembered.
const REMEMBERED_FOR: TimeDelta = TimeDelta::days(30);
/// How long a delivery is remembered that states no time: the same bytes may report another change later.
const UNDATED_REMEMBERED_FOR: TimeDelta = TimeDelta::minutes(1);

/// The answer to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It is on disk.
    Stored,
    /// The same bytes were received before.
    Known,
    /// The inbox is full: the hub must retry.
    Full,
}

impl Store {
    /// Puts a delivery into the inbox. After [`Receipt::Stored`] it survives a crash. [`Receipt::Known`] counts as received
    /// and as a duplicate. `room`: how many bytes of deliveries may be pending for one channel. `stated_topic`: the topic that
    /// the hub states with it, if it is not the channel's.
    pub async fn receive(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        channel: ChannelId,
        body: Vec<u8>,
        room: u64,
        stated_topic: Option<TopicUri>,
    ) -> Result<Receipt, StoreError> {
        let digest: BodyDigest = Sha256::digest(&body).into();
        let length = body.len() as u64;
        let written = self.write(move |tx| {
            let sql = tx.sql;
            let earlier = delivered::find(sql, channel, &digest)?;
            if earlier.is_some_and(|earlier| repeats(&earlier, now)) {
                channel::count_repeated(sql, channel)?;
                return Ok(Receipt::Known);
            }
            if channel::pending_bytes(sql, channel)?.saturating_add(length) > room {
                return Ok(Receipt::Full);
            }
            let id = inbox::insert(sql, channel, now, &body, stated_topic.as_ref())?;
            let since = now - REMEMBERED_FOR;
            delivered::insert(sql, id, channel, &digest, now, since, MOST_REMEMBERED)?;
            channel::count_received(sql, channel, now, length)?;
            if let Some(set) = channel::set_of(sql, channel)? {
                tx.wake(Wake::Inbox(set));
            }
            Ok(Receipt::Stored)
        });
        let receipt = written.await;
        match &receipt {
            Ok(Receipt::Stored) => self.write_health.note_fitting(length),
            Err(error) if error.is_write_failure() => self.write_health.note_refused(length),
            _ => {}
        }
        receipt
    }
}

/// Whether a delivery of the same bytes as an earlier one has no news.
fn repeats(earlier: &EarlierDelivery, now: DateTime<Utc>) -> bool {
    let age = now - earlier.received_at;
    let is_recent = if earlier.is_dated {
        age < REMEMBERED_FOR
    } else {
        // If the clock was set back, its age is unknown.
        (TimeDelta::zero()..UNDATED_REMEMBERED_FOR).contains(&age)
    };
    earlier.is_pending || is_recent
}
