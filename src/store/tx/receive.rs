//! Receives deliveries: they are in the inbox, on disk, before the hub gets its answer.
//!
//! The same bytes on the same channel have one effect, however often they are delivered: a hub that retries, and a copy of
//! what a hub once signed, state nothing new.
//!
//! All deliveries that wait when the writer begins are received in one job: what concerns a channel, and not a single delivery, is
//! read and written once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use resyncd_core::{TopicUri, Transport};
use sha2::{Digest, Sha256};

use crate::store::arrival::{Arrival, Receipt, Recipient};
use crate::store::ids::ChannelId;
use crate::store::sql::Connection;
use crate::store::tables::channel::{self, CallbackKeys, ReceivingRecord};
use crate::store::tables::delivered::{self, EarlierDelivery};
use crate::store::tables::inbox;
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

/// How many deliveries of a channel are remembered. One that is forgotten and repeated is compared with the coverage, as any
/// other.
pub(crate) const MOST_REMEMBERED: i64 = 10_000;
/// How long a delivery is remembered.
const REMEMBERED_FOR: TimeDelta = TimeDelta::days(30);
/// How long a delivery is remembered that states no time: the same bytes may report another change later.
const UNDATED_REMEMBERED_FOR: TimeDelta = TimeDelta::minutes(1);

impl Store {
    /// Puts a delivery into the inbox. After [`Receipt::Stored`] it survives a crash. [`Receipt::Known`] counts as received
    /// and as a duplicate. `room`: how many bytes of deliveries may be pending for one channel. `stated_topic`: the topic that
    /// the hub states with it, if it is not the channel's.
    pub async fn receive(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        recipient: impl Into<Recipient>,
        body: impl Into<Bytes>,
        room: u64,
        stated_topic: Option<TopicUri>,
    ) -> Result<Receipt, StoreError> {
        let body = body.into();
        let arrival = Arrival {
            at: now,
            recipient: recipient.into(),
            digest: Sha256::digest(&body).into(),
            body,
            stated_topic,
            room,
        };
        let length = arrival.length();
        let received = self
            .writer
            .submit_together(&self.arrivals, arrival, receive_all);
        let receipt = received.done().await;
        match &receipt {
            Ok(Receipt::Stored) => self.write_health.note_fitting(length),
            Err(error) if error.is_write_failure() => {
                self.write_health.note_refused(length, error);
            }
            _ => {}
        }
        receipt
    }
}

/// Receives deliveries in the order of their arrival.
fn receive_all(
    tx: &mut Tx<'_>,
    arrivals: &[Arrival],
) -> Result<Vec<Result<Receipt, StoreError>>, StoreError> {
    let mut channels = BTreeMap::new();
    let mut receipts = Vec::with_capacity(arrivals.len());
    for arrival in arrivals {
        let id = arrival.recipient.channel;
        let channel = match channels.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => match ReceivingChannel::read(tx.sql, id) {
                Ok(channel) => unknown.insert(channel),
                // The deliveries of the others are received.
                Err(error) => {
                    receipts.push(Err(error));
                    continue;
                }
            },
        };
        receipts.push(Ok(channel.receive(tx.sql, id, arrival)?));
    }
    for (id, channel) in channels {
        if let Some(wake) = channel.finish(tx.sql, id)? {
            tx.wake(wake);
        }
    }
    Ok(receipts)
}

/// A channel whose deliveries are being received.
struct ReceivingChannel {
    record: ReceivingRecord,
    /// The number of its newest delivery.
    nth: i64,
    /// What was stored, in deliveries and in bytes, and when the last one was received.
    stored: u64,
    bytes: u64,
    last: DateTime<Utc>,
    repeated: u64,
}

impl ReceivingChannel {
    fn read(sql: &Connection, id: ChannelId) -> Result<Self, StoreError> {
        Ok(Self {
            record: channel::receiving(sql, id)?.ok_or(StoreError::NoChannel)?,
            nth: delivered::last_nth(sql, id)?,
            stored: 0,
            bytes: 0,
            last: DateTime::UNIX_EPOCH,
            repeated: 0,
        })
    }

    fn receive(
        &mut self,
        sql: &Connection,
        id: ChannelId,
        arrival: &Arrival,
    ) -> Result<Receipt, StoreError> {
        let record = &self.record;
        let is_valid = |keys: &CallbackKeys| {
            !record.is_unwanted && (*keys == record.own || record.next.as_ref() == Some(keys))
        };
        if !arrival.recipient.keys.as_ref().is_none_or(is_valid) {
            return Ok(Receipt::Outdated);
        }
        let earlier = delivered::find(sql, id, &arrival.digest)?;
        let is_repeated = |it: &EarlierDelivery| repeats(it, arrival.at, record.transport);
        if earlier.as_ref().is_some_and(is_repeated) {
            self.repeated += 1;
            return Ok(Receipt::Known);
        }
        let pending = record.pending_bytes.saturating_add(self.bytes);
        if pending.saturating_add(arrival.length()) > arrival.room {
            return Ok(Receipt::Full);
        }
        if earlier.is_some() {
            delivered::delete_same(sql, id, &arrival.digest)?;
        }
        let (at, hub) = (arrival.at, record.hub.as_deref());
        let stated_topic = arrival.stated_topic.as_ref();
        let delivery = inbox::insert(sql, id, at, &arrival.body, stated_topic, hub)?;
        self.nth += 1;
        delivered::insert(sql, delivery, id, self.nth, &arrival.digest, at)?;
        self.stored += 1;
        self.bytes += arrival.length();
        self.last = at;
        Ok(Receipt::Stored)
    }

    /// Counts what was received, and forgets old deliveries. Returns the wake if the inbox has new ones.
    fn finish(self, sql: &Connection, id: ChannelId) -> Result<Option<Wake>, StoreError> {
        if self.repeated > 0 {
            channel::count_repeated(sql, id, self.repeated)?;
        }
        if self.stored == 0 {
            return Ok(None);
        }
        let (until, since) = (self.nth - MOST_REMEMBERED, self.last - REMEMBERED_FOR);
        delivered::delete_old(sql, id, self.stored, until, since)?;
        channel::count_received(sql, id, self.last, self.stored, self.bytes)?;
        Ok(Some(Wake::Inbox(self.record.set)))
    }
}

/// Whether a delivery of the same bytes as an earlier one has no news.
fn repeats(earlier: &EarlierDelivery, now: DateTime<Utc>, transport: Transport) -> bool {
    let age = now - earlier.received_at;
    let is_recent = if earlier.is_dated {
        age < REMEMBERED_FOR
    } else if !transport.is_retried() {
        // Nobody retries: who states the same again means another change.
        false
    } else {
        // If the clock was set back, its age is unknown.
        (TimeDelta::zero()..UNDATED_REMEMBERED_FOR).contains(&age)
    };
    earlier.is_pending || is_recent
}
