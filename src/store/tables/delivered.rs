//! `delivered`: digests of recent deliveries, by which a repeated one is recognized.

use chrono::{DateTime, Utc};

use super::values::{Count, Micros};
use crate::store::ids::ChannelId;
use crate::store::sql::{Connection, OptionalExtension, Result, params};

/// The SHA-256 of a delivery's body.
pub(crate) type BodyDigest = [u8; 32];

/// How many of the oldest rows one insertion may delete, so that none takes long.
const DELETED_AT_ONCE: u64 = 2;

/// An earlier delivery of the same bytes.
pub(crate) struct EarlierDelivery {
    pub(crate) received_at: DateTime<Utc>,
    /// Whether it stated a time.
    pub(crate) is_dated: bool,
    /// Whether it is still in the inbox.
    pub(crate) is_pending: bool,
}

pub(crate) fn find(
    sql: &Connection,
    channel: ChannelId,
    digest: &BodyDigest,
) -> Result<Option<EarlierDelivery>> {
    sql.prepare_cached(
        "SELECT received_at, dated, EXISTS (SELECT 1 FROM inbox WHERE inbox.id = delivered.id) FROM delivered
         WHERE channel_id = ?1 AND digest = ?2",
    )?
    .query_row(params![channel, digest], |row| {
        Ok(EarlierDelivery {
            received_at: row.get::<_, Micros>(0)?.0,
            is_dated: row.get(1)?,
            is_pending: row.get(2)?,
        })
    })
    .optional()
}

/// The number of the newest of a channel's deliveries; 0: it has none.
pub(crate) fn last_nth(sql: &Connection, channel: ChannelId) -> Result<i64> {
    sql.prepare_cached("SELECT COALESCE(MAX(nth), 0) FROM delivered WHERE channel_id = ?1")?
        .query_row([channel], |row| row.get(0))
}

/// Adds a delivery of that id in the inbox. `nth`: its number among the channel's.
pub(crate) fn insert(
    sql: &Connection,
    id: i64,
    channel: ChannelId,
    nth: i64,
    digest: &BodyDigest,
    received_at: DateTime<Utc>,
) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO delivered (id, channel_id, nth, digest, received_at) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![id, channel, nth, digest, Micros(received_at)])
    .map(drop)
}

/// Deletes an earlier delivery of the same bytes.
pub(crate) fn delete_same(sql: &Connection, channel: ChannelId, digest: &BodyDigest) -> Result<()> {
    sql.prepare_cached("DELETE FROM delivered WHERE channel_id = ?1 AND digest = ?2")?
        .execute(params![channel, digest])
        .map(drop)
}

/// After so many insertions, deletes what is older than `since`, and what has at most the number `until`.
pub(crate) fn delete_old(
    sql: &Connection,
    channel: ChannelId,
    inserted: u64,
    until: i64,
    since: DateTime<Utc>,
) -> Result<()> {
    let limit = Count(inserted.saturating_mul(DELETED_AT_ONCE));
    sql.prepare_cached(
        "DELETE FROM delivered WHERE (nth <= ?2 OR received_at < ?3) AND id IN (
             SELECT id FROM delivered WHERE channel_id = ?1 ORDER BY nth LIMIT ?4)",
    )?
    .execute(params![channel, until, Micros(since), limit])
    .map(drop)
}

pub(crate) fn delete(sql: &Connection, id: i64) -> Result<()> {
    sql.prepare_cached("DELETE FROM delivered WHERE id = ?1")?
        .execute([id])?;
    Ok(())
}

/// Deletes what is known of a channel's deliveries that are in the inbox.
pub(crate) fn delete_pending(sql: &Connection, channel: ChannelId) -> Result<()> {
    sql.prepare_cached(
        "DELETE FROM delivered WHERE id IN (SELECT id FROM inbox WHERE channel_id = ?1)",
    )?
    .execute([channel])
    .map(drop)
}

/// Notes that a delivery states no time.
pub(crate) fn set_undated(sql: &Connection, id: i64) -> Result<()> {
    sql.prepare_cached("UPDATE delivered SET dated = 0 WHERE id = ?1")?
        .execute([id])?;
    Ok(())
}
