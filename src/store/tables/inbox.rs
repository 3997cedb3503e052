//! `inbox`: deliveries that were acknowledged, or are about to be, and are not processed yet.

use chrono::{DateTime, Utc};
use resyncd_core::{HubUri, TopicUri};

use super::values::{Column, Count, Micros, column};
use crate::store::ids::{ChannelId, SetId};
use crate::store::sql::{Connection, OptionalExtension, Result, Row, params};

/// A delivery in the inbox.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Its place in the order of arrival.
    pub id: i64,
    /// The channel that carried it.
    pub channel: ChannelId,
    /// The body, as it was received.
    pub body: Vec<u8>,
    /// The topic that the hub has stated with it, if it is not the channel's.
    pub stated_topic: Option<TopicUri>,
    /// The hub that was subscribed at when it was received; `None`: not certain.
    pub hub: Option<HubUri>,
}

impl Delivery {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            channel: row.get("channel_id")?,
            body: row.get("body")?,
            stated_topic: column(row, "stated_topic")?,
            hub: column(row, "hub")?,
        })
    }

    /// The delivery, once it was processed.
    pub fn processed(&self, outcome: DeliveryOutcome) -> ProcessedDelivery {
        ProcessedDelivery {
            id: self.id,
            channel: self.channel,
            outcome,
        }
    }
}

/// A delivery that was processed.
#[derive(Clone, Copy, Debug)]
pub struct ProcessedDelivery {
    /// Its place in the order of arrival.
    pub id: i64,
    /// The channel that carried it.
    pub channel: ChannelId,
    /// What became of it.
    pub outcome: DeliveryOutcome,
}

/// The result of processing a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeliveryOutcome {
    /// Its changes became tasks.
    Applied,
    /// As `Applied`, but it states no time: the same bytes may report another change later.
    Undated,
    /// It had no news.
    Duplicate,
    /// It can't be read, or is not of the channel's kind.
    Rejected,
}

/// Appends a delivery and returns its id. `hub`: the URI of the hub that it certainly came from.
pub(crate) fn insert(
    sql: &Connection,
    channel: ChannelId,
    received_at: DateTime<Utc>,
    body: &[u8],
    stated_topic: Option<&TopicUri>,
    hub: Option<&str>,
) -> Result<i64> {
    sql.prepare_cached(
        "INSERT INTO inbox (channel_id, received_at, body, stated_topic, hub) VALUES (?1, ?2, ?3, ?4, ?5)
         RETURNING id",
    )?
    .query_row(
        params![channel, Micros(received_at), body, stated_topic.map(Column), hub],
        |row| row.get(0),
    )
}

/// The next deliveries of a set after that id, in the order of arrival.
pub(crate) fn after(
    sql: &Connection,
    set: SetId,
    after: i64,
    limit: usize,
) -> Result<Vec<Delivery>> {
    // The ids are sorted first, so that only the bodies of the result are read.
    sql.prepare_cached(
        "SELECT id, channel_id, body, stated_topic, hub FROM inbox WHERE id IN (
             SELECT inbox.id FROM inbox JOIN channel ON channel.id = inbox.channel_id
             WHERE channel.set_id = ?1 AND inbox.id > ?2 ORDER BY inbox.id LIMIT ?3)
         ORDER BY id",
    )?
    .query_map(
        params![set, after, Count::of_rows(limit)],
        Delivery::from_row,
    )?
    .collect()
}

pub(crate) fn get(sql: &Connection, id: i64) -> Result<Option<Delivery>> {
    sql.prepare_cached("SELECT id, channel_id, body, stated_topic, hub FROM inbox WHERE id = ?1")?
        .query_row([id], Delivery::from_row)
        .optional()
}

/// Deletes a delivery and returns the length of its body in bytes; `None`: it was not there.
pub(crate) fn delete(sql: &Connection, id: i64) -> Result<Option<u64>> {
    // The database may count what its connection puts before a body.
    sql.prepare_cached("DELETE FROM inbox WHERE id = ?1 RETURNING body")?
        .query_row([id], |row| Ok(row.get_ref(0)?.as_blob()?.len() as u64))
        .optional()
}

/// Deletes the deliveries of a channel.
pub(crate) fn delete_of_channel(sql: &Connection, channel: ChannelId) -> Result<()> {
    sql.prepare_cached("DELETE FROM inbox WHERE channel_id = ?1")?
        .execute([channel])
        .map(drop)
}

/// Whether a Source has deliveries in the inbox.
pub(crate) fn has_any(sql: &Connection, source: &str) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM inbox JOIN channel ON channel.id = inbox.channel_id
         JOIN source_set ON source_set.id = channel.set_id WHERE source_set.source = ?1",
    )?
    .exists([source])
}
