//! What was delivered of late. The same bytes by the same channel have one effect, however often they come: a hub that tries
//! again, and whoever sends anew what a hub once signed, tell nothing.

use chrono::{DateTime, TimeDelta, Utc};
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use super::{ChannelId, StoreError, row};

/// So many deliveries of a channel are remembered. What is forgotten and comes again is held against the coverage, as
/// everything is.
pub(super) const MOST_REMEMBERED: i64 = 10_000;
/// How long one is remembered.
const MEMORY: TimeDelta = TimeDelta::days(30);
/// How long one is remembered that tells no time: the same bytes may tell of something new.
const MEMORY_UNDATED: TimeDelta = TimeDelta::minutes(1);
/// How many may be forgotten for each one that comes, so that none waits long for it.
const FORGOTTEN_AT_ONCE: i64 = 2;

/// What tells a delivery from others.
pub(super) type BodyDigest = [u8; 32];

pub(super) fn digest_of(body: &[u8]) -> BodyDigest {
    Sha256::digest(body).into()
}

/// Whether a delivery was taken already: it has been worked on, or waits in the inbox.
pub(super) fn is_known(
    sql: &Connection,
    now: DateTime<Utc>,
    channel: ChannelId,
    digest: &BodyDigest,
) -> Result<bool, StoreError> {
    let mut query = sql.prepare_cached(
        "SELECT received_at, dated, EXISTS (SELECT 1 FROM inbox WHERE inbox.id = delivered.id) FROM delivered
         WHERE channel_id = ?1 AND digest = ?2",
    )?;
    let found: Option<(i64, bool, bool)> = query
        .query_row(params![channel.0, digest], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    Ok(found.is_some_and(|(received_at, dated, waits)| {
        let age = now - row::datetime(received_at);
        let is_fresh = if dated {
            age < MEMORY
        } else {
            // Where the clock was set back, it can't be said how old it is.
            (TimeDelta::zero()..MEMORY_UNDATED).contains(&age)
        };
        waits || is_fresh
    }))
}

/// Remembers a delivery that was put into the inbox, and forgets the oldest ones.
pub(super) fn remember(
    sql: &Connection,
    now: DateTime<Utc>,
    channel: ChannelId,
    id: i64,
    digest: &BodyDigest,
) -> Result<(), StoreError> {
    sql.prepare_cached("DELETE FROM delivered WHERE channel_id = ?1 AND digest = ?2")?
        .execute(params![channel.0, digest])?;
    let nth: i64 = sql
        .prepare_cached("SELECT COALESCE(MAX(nth), 0) + 1 FROM delivered WHERE channel_id = ?1")?
        .query_row([channel.0], |row| row.get(0))?;
    sql.prepare_cached(
        "INSERT INTO delivered (id, channel_id, nth, digest, received_at) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![id, channel.0, nth, digest, row::micros(now)])?;
    sql.prepare_cached(
        "DELETE FROM delivered WHERE (nth <= ?2 OR received_at < ?3) AND id IN (
             SELECT id FROM delivered WHERE channel_id = ?1 ORDER BY nth LIMIT ?4)",
    )?
    .execute(params![
        channel.0,
        nth - MOST_REMEMBERED,
        row::micros(now - MEMORY),
        FORGOTTEN_AT_ONCE
    ])?;
    Ok(())
}

/// Forgets a delivery that had no effect: should it come again, it may have one.
pub(super) fn forget(sql: &Connection, id: i64) -> Result<(), StoreError> {
    sql.prepare_cached("DELETE FROM delivered WHERE id = ?1")?
        .execute([id])?;
    Ok(())
}

/// Notes that a delivery tells no time.
pub(super) fn note_undated(sql: &Connection, id: i64) -> Result<(), StoreError> {
    sql.prepare_cached("UPDATE delivered SET dated = 0 WHERE id = ?1")?
        .execute([id])?;
    Ok(())
}
