//! The inbox: deliveries that were acknowledged, or are about to be, and not worked on yet.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::{OptionalExtension, params};

use super::channels::set_of;
use super::writer::Tx;
use super::{ChannelId, SetId, Store, StoreError, Wake, delivered, row};

/// A delivery in the inbox.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Its place in the order of arrival.
    pub id: i64,
    /// The channel that it came by.
    pub channel: ChannelId,
    /// The body, as it came.
    pub body: Vec<u8>,
}

/// What became of a delivery at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It is on disk.
    Stored,
    /// The same bytes were taken before, and tell nothing now.
    Known,
    /// There is no room: the hub shall try again.
    Full,
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// Its changes were taken.
    Applied,
    /// The same, but it tells no time: should the same bytes come again, they may tell of something else.
    Undated,
    /// It told nothing new.
    Duplicate,
    /// It can't be read, or is not what the channel carries.
    Rejected,
}

impl DeliveryOutcome {
    pub(super) fn column(self) -> &'static str {
        match self {
            Self::Applied | Self::Undated => "applied",
            Self::Duplicate => "duplicate",
            Self::Rejected => "rejected",
        }
    }
}

impl Store {
    /// Puts a delivery into the inbox. Once this has answered [`Receipt::Stored`], the delivery survives whatever happens.
    /// [`Receipt::Known`] is counted as received and as a duplicate. `room`: how many bytes of deliveries may wait for one channel.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing was stored.
    pub async fn receive(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        channel: ChannelId,
        body: Vec<u8>,
        room: u64,
    ) -> Result<Receipt, StoreError> {
        let digest = delivered::digest_of(&body);
        self.write(move |tx| {
            if delivered::is_known(tx.sql, now, channel, &digest)? {
                let mut count = tx.sql.prepare_cached(
                    "UPDATE channel SET received = received + 1, duplicate = duplicate + 1 WHERE id = ?1",
                )?;
                count.execute([channel.0])?;
                return Ok(Receipt::Known);
            }
            let mut waiting = tx.sql.prepare_cached("SELECT waiting_bytes FROM channel WHERE id = ?1")?;
            let waiting = row::unsigned(waiting.query_row([channel.0], |row| row.get(0))?);
            let length = body.len() as u64;
            if waiting.saturating_add(length) > room {
                return Ok(Receipt::Full);
            }
            let mut insert =
                tx.sql.prepare_cached("INSERT INTO inbox (channel_id, received_at, body) VALUES (?1, ?2, ?3)")?;
            insert.execute(params![channel.0, row::micros(now), body])?;
            delivered::remember(tx.sql, now, channel, tx.sql.last_insert_rowid(), &digest)?;
            let mut count = tx.sql.prepare_cached(
                "UPDATE channel SET received = received + 1, last_notification_at = ?2, waiting_bytes = waiting_bytes + ?3
                 WHERE id = ?1",
            )?;
            count.execute(params![channel.0, row::micros(now), row::signed(length)])?;
            if let Some(set) = set_of(tx.sql, channel)? {
                tx.wake(Wake::Inbox(set));
            }
            Ok(Receipt::Stored)
        })
        .await
    }

    /// The next deliveries of a set, in the order of arrival, after the one of that id.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn deliveries(
        self: &Arc<Self>,
        set: SetId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.read(move |sql| {
            let mut query = sql.prepare_cached(
                // The numbers are sorted first, and only then the few bodies read that are wanted.
                "SELECT id, channel_id, body FROM inbox WHERE id IN (
                     SELECT inbox.id FROM inbox JOIN channel ON channel.id = inbox.channel_id
                     WHERE channel.set_id = ?1 AND inbox.id > ?2 ORDER BY inbox.id LIMIT ?3)
                 ORDER BY id",
            )?;
            let rows =
                query.query_map(params![set.0, after, row::signed(limit as u64)], |row| {
                    Ok(Delivery {
                        id: row.get(0)?,
                        channel: ChannelId(row.get(1)?),
                        body: row.get(2)?,
                    })
                })?;
            rows.map(|row| Ok(row?)).collect()
        })
        .await
    }

    /// The body of a delivery that is held.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delivery(self: &Arc<Self>, id: i64) -> Result<Option<Delivery>, StoreError> {
        self.read(move |sql| {
            let mut query =
                sql.prepare_cached("SELECT id, channel_id, body FROM inbox WHERE id = ?1")?;
            let mut rows = query.query([id])?;
            let found = rows.next()?;
            found
                .map(|row| {
                    Ok(Delivery {
                        id: row.get(0)?,
                        channel: ChannelId(row.get(1)?),
                        body: row.get(2)?,
                    })
                })
                .transpose()
        })
        .await
    }
}

/// Takes a delivery out of the inbox and counts what became of it.
pub(super) fn conclude(
    tx: &mut Tx<'_>,
    delivery: i64,
    channel: ChannelId,
    outcome: DeliveryOutcome,
) -> Result<(), StoreError> {
    let mut delete = tx
        .sql
        .prepare_cached("DELETE FROM inbox WHERE id = ?1 RETURNING length(body)")?;
    let length: Option<i64> = delete.query_row([delivery], |row| row.get(0)).optional()?;
    if let Some(length) = length {
        let column = outcome.column();
        let mut count = tx.sql.prepare_cached(&format!(
            "UPDATE channel SET {column} = {column} + 1, waiting_bytes = waiting_bytes - ?2 WHERE id = ?1"
        ))?;
        count.execute([channel.0, length])?;
    }
    match outcome {
        DeliveryOutcome::Applied | DeliveryOutcome::Duplicate => {}
        DeliveryOutcome::Undated => delivered::note_undated(tx.sql, delivery)?,
        DeliveryOutcome::Rejected => delivered::forget(tx.sql, delivery)?,
    }
    Ok(())
}
