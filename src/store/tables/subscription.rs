//! `subscription`: who is told of what is published (WebSub), and how far.
//!
//! Columns: what has number `position` of the feed has been delivered, and so has what happened until `told_until`.

use chrono::{DateTime, Utc};

use super::values::Micros;
use crate::store::sql::{Connection, Result, Row, params};

/// A subscription to a topic of what is published.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredSubscription {
    /// The subscription.
    pub subscription: websub::hub::Subscription,
    /// How far its subscriber has been told.
    pub position: TopicPosition,
}

/// How far a subscriber has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopicPosition {
    /// The number of the last change in the feed.
    pub number: i64,
    /// The end of the interval of the last notification.
    pub until: DateTime<Utc>,
}

pub(crate) fn all(sql: &Connection) -> Result<Vec<StoredSubscription>> {
    let read = |row: &Row<'_>| {
        Ok(StoredSubscription {
            subscription: websub::hub::Subscription {
                topic: row.get("topic")?,
                callback: row.get("callback")?,
                secret: row.get("secret")?,
                expires_at: row.get::<_, Micros>("expires_at")?.0,
            },
            position: TopicPosition {
                number: row.get("position")?,
                until: row.get::<_, Micros>("told_until")?.0,
            },
        })
    };
    sql.prepare_cached(
        "SELECT topic, callback, secret, expires_at, position, told_until FROM subscription",
    )?
    .query_map([], read)?
    .collect()
}

/// Stores a subscription. One that is renewed keeps its position.
pub(crate) fn put(sql: &Connection, stored: &StoredSubscription) -> Result<()> {
    let (subscription, position) = (&stored.subscription, &stored.position);
    sql.prepare_cached(
        "INSERT INTO subscription (topic, callback, secret, expires_at, position, told_until) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (topic, callback) DO UPDATE SET secret = ?3, expires_at = ?4",
    )?
    .execute(params![
        subscription.topic,
        subscription.callback,
        subscription.secret,
        Micros(subscription.expires_at),
        position.number,
        Micros(position.until),
    ])
    .map(drop)
}

pub(crate) fn set_position(
    sql: &Connection,
    topic: &str,
    callback: &str,
    position: TopicPosition,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE subscription SET position = ?3, told_until = ?4 WHERE topic = ?1 AND callback = ?2",
    )?
    .execute(params![
        topic,
        callback,
        position.number,
        Micros(position.until)
    ])
    .map(drop)
}

pub(crate) fn delete(sql: &Connection, topic: &str, callback: &str) -> Result<()> {
    sql.prepare_cached("DELETE FROM subscription WHERE topic = ?1 AND callback = ?2")?
        .execute([topic, callback])
        .map(drop)
}
