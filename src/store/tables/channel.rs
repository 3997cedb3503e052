//! `channel`: subscriptions, with their callbacks, secrets, leases and counters.

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OptionalExtension, Params, Result, Row, params};

use super::inbox::DeliveryOutcome;
use super::values::{Count, HubList, Micros, RequestedIntent};
use crate::protocol::{Capability, HubUri, TopicUri};
use crate::store::ids::{ChannelId, SetId};
use crate::sync::{Asked, Channel, Lease};

/// A channel that is, or was, subscribed to.
#[derive(Clone, Debug)]
pub struct ChannelRecord {
    /// Its row.
    pub id: ChannelId,
    /// The set whose channel it is.
    pub set: SetId,
    /// [`Capability::ChangeNotification`] or [`Capability::FrameworkNotification`].
    pub kind: Capability,
    /// The advertised topic; it identifies the channel within its set.
    pub topic: TopicUri,
    /// The topic that the hub was asked for: the topic's own `self` link. Verifications and denials must name it.
    pub subscribed_topic: TopicUri,
    /// The hub that was asked last; `None`: none is known.
    pub hub: Option<HubUri>,
    /// The hubs that are advertised with the channel, or that the configuration names instead.
    pub advertised_hubs: Vec<HubUri>,
    /// The hubs that may be asked: the advertised ones, until the topic itself names others.
    pub known_hubs: Vec<HubUri>,
    /// The unguessable last segment of its callback.
    pub token: String,
    /// The secret with which the hub signs deliveries; `None`: it was asked for unsigned ones.
    pub secret: Option<String>,
    /// The state of the subscription.
    pub lease: Lease,
    /// Whether it is no longer wanted: once its subscription has ended, its callback answers that it is gone.
    pub left: bool,
    /// When the last well-formed delivery was received, on our clock.
    pub last_notification_at: Option<DateTime<Utc>>,
    /// Deliveries that were stored, or recognized as repeated.
    pub received: u64,
    /// Notifications that were applied.
    pub applied: u64,
    /// Notifications without news.
    pub duplicate: u64,
    /// Deliveries that were rejected or could not be read.
    pub rejected: u64,
    /// Gaps that were opened.
    pub gaps: u64,
}

impl ChannelRecord {
    /// The URI of its hub for display; empty while none is known.
    pub fn hub_name(&self) -> &str {
        self.hub.as_ref().map_or("", HubUri::as_str)
    }

    /// The part of the row that the channel machine decides on.
    pub fn channel(&self) -> Channel {
        Channel {
            topic: self.topic.clone(),
            subscribed_topic: self.subscribed_topic.clone(),
            hub: self.hub.clone(),
            advertised_hubs: self.advertised_hubs.clone(),
            known_hubs: self.known_hubs.clone(),
            left: self.left,
            lease: self.lease.clone(),
        }
    }

    fn from_row(row: &Row<'_>) -> Result<Self> {
        let time = |column: &str| -> Result<Option<DateTime<Utc>>> {
            Ok(row.get::<_, Option<Micros>>(column)?.map(|time| time.0))
        };
        let count = |column: &str| -> Result<u64> { Ok(row.get::<_, Count>(column)?.0) };
        let hubs =
            |column: &str| -> Result<Vec<HubUri>> { Ok(row.get::<_, HubList<_>>(column)?.0) };
        let lease_seconds = row.get::<_, Option<Count>>("asked_lease")?;
        Ok(Self {
            id: row.get("id")?,
            set: row.get("set_id")?,
            kind: row.get("kind")?,
            topic: row.get("topic")?,
            subscribed_topic: row.get("subscribed_topic")?,
            hub: row.get("hub")?,
            advertised_hubs: hubs("advertised_hubs")?,
            known_hubs: hubs("known_hubs")?,
            token: row.get("token")?,
            secret: row.get("secret")?,
            lease: Lease {
                state: row.get("state")?,
                asked: row
                    .get::<_, RequestedIntent>("asked")?
                    .0
                    .map(|intent| Asked {
                        intent,
                        lease_seconds: lease_seconds.map_or(0, u64::from),
                    }),
                expires_at: time("expires_at")?,
                renew_at: time("renew_at")?,
                next_try_at: time("next_try_at")?,
                failures: row.get("failures")?,
                asked_at: time("asked_at")?,
            },
            left: row.get("left_for_good")?,
            last_notification_at: time("last_notification_at")?,
            received: count("received")?,
            applied: count("applied")?,
            duplicate: count("duplicate")?,
            rejected: count("rejected")?,
            gaps: count("gaps")?,
        })
    }
}

const COLUMNS: &str =
    "id, set_id, kind, topic, subscribed_topic, hub, advertised_hubs, known_hubs, token, secret,
    state, asked, asked_lease, asked_at, expires_at, renew_at, next_try_at, failures, left_for_good,
    last_notification_at, received, applied, duplicate, rejected, gaps";

/// A channel that is not stored yet. It is advertised with `hubs`, and subscribed to at the first of them.
pub(in crate::store) struct NewChannel<'a> {
    pub(in crate::store) set: SetId,
    pub(in crate::store) kind: &'a Capability,
    pub(in crate::store) topic: &'a TopicUri,
    pub(in crate::store) hubs: &'a [HubUri],
    pub(in crate::store) token: &'a str,
    pub(in crate::store) secret: Option<&'a str>,
    pub(in crate::store) lease: &'a Lease,
}

pub(in crate::store) fn insert(sql: &Connection, channel: &NewChannel<'_>) -> Result<ChannelId> {
    sql.prepare_cached(
        "INSERT INTO channel (set_id, kind, topic, subscribed_topic, hub, advertised_hubs, known_hubs, token, secret,
                              state, next_try_at, failures)
         VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        channel.set,
        channel.kind,
        channel.topic,
        channel.hubs.first(),
        HubList(channel.hubs),
        channel.token,
        channel.secret,
        channel.lease.state,
        channel.lease.next_try_at.map(Micros),
        channel.lease.failures,
    ])?;
    Ok(ChannelId(sql.last_insert_rowid()))
}

pub(in crate::store) fn get(sql: &Connection, id: ChannelId) -> Result<Option<ChannelRecord>> {
    sql.prepare_cached(&format!("SELECT {COLUMNS} FROM channel WHERE id = ?1"))?
        .query_row([id], ChannelRecord::from_row)
        .optional()
}

pub(in crate::store) fn by_token(sql: &Connection, token: &str) -> Result<Option<ChannelRecord>> {
    sql.prepare_cached(&format!("SELECT {COLUMNS} FROM channel WHERE token = ?1"))?
        .query_row([token], ChannelRecord::from_row)
        .optional()
}

/// The channels of a set, also those that were left, in the order of their ids.
pub(in crate::store) fn of_set(sql: &Connection, set: SetId) -> Result<Vec<ChannelRecord>> {
    sql.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM channel WHERE set_id = ?1 ORDER BY id"
    ))?
    .query_map([set], ChannelRecord::from_row)?
    .collect()
}

/// The set that a channel belongs to.
pub(in crate::store) fn set_of(sql: &Connection, id: ChannelId) -> Result<Option<SetId>> {
    sql.prepare_cached("SELECT set_id FROM channel WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()
}

/// Stores what the channel machine may have changed.
pub(in crate::store) fn save(sql: &Connection, id: ChannelId, channel: &Channel) -> Result<()> {
    let lease = &channel.lease;
    let save = "UPDATE channel SET state = ?2, asked = ?3, asked_lease = ?4, expires_at = ?5, renew_at = ?6,
             next_try_at = ?7, failures = ?8, asked_at = ?9, hub = ?10, subscribed_topic = ?11, advertised_hubs = ?12,
             known_hubs = ?13, left_for_good = ?14
         WHERE id = ?1";
    let values = params![
        id,
        lease.state,
        RequestedIntent(lease.asked.map(|asked| asked.intent)),
        lease.asked.map(|asked| Count(asked.lease_seconds)),
        lease.expires_at.map(Micros),
        lease.renew_at.map(Micros),
        lease.next_try_at.map(Micros),
        lease.failures,
        lease.asked_at.map(Micros),
        channel.hub,
        channel.subscribed_topic,
        HubList(&channel.advertised_hubs),
        HubList(&channel.known_hubs),
        channel.left,
    ];
    update(sql, save, values)
}

/// The bytes of the channel's deliveries in the inbox.
pub(in crate::store) fn pending_bytes(sql: &Connection, id: ChannelId) -> Result<u64> {
    sql.prepare_cached("SELECT waiting_bytes FROM channel WHERE id = ?1")?
        .query_row([id], |row| Ok(row.get::<_, Count>(0)?.0))
}

/// Counts a delivery that was put into the inbox. `length` is in bytes.
pub(in crate::store) fn count_received(
    sql: &Connection,
    id: ChannelId,
    now: DateTime<Utc>,
    length: u64,
) -> Result<()> {
    let count = "UPDATE channel SET received = received + 1, last_notification_at = ?2, waiting_bytes = waiting_bytes + ?3
         WHERE id = ?1";
    update(sql, count, params![id, Micros(now), Count(length)])
}

/// Counts a delivery that was received before, and is not stored again.
pub(in crate::store) fn count_repeated(sql: &Connection, id: ChannelId) -> Result<()> {
    let count =
        "UPDATE channel SET received = received + 1, duplicate = duplicate + 1 WHERE id = ?1";
    update(sql, count, [id])
}

/// Counts a delivery that has left the inbox. `length` is in bytes.
pub(in crate::store) fn count_processed(
    sql: &Connection,
    id: ChannelId,
    outcome: DeliveryOutcome,
    length: u64,
) -> Result<()> {
    let column = match outcome {
        DeliveryOutcome::Applied | DeliveryOutcome::Undated => "applied",
        DeliveryOutcome::Duplicate => "duplicate",
        DeliveryOutcome::Rejected => "rejected",
    };
    let count = format!(
        "UPDATE channel SET {column} = {column} + 1, waiting_bytes = waiting_bytes - ?2 WHERE id = ?1"
    );
    update(sql, &count, params![id, Count(length)])
}

/// Counts a delivery that was rejected before it was stored.
pub(in crate::store) fn count_rejected(sql: &Connection, id: ChannelId) -> Result<()> {
    let count = "UPDATE channel SET rejected = rejected + 1 WHERE id = ?1";
    update(sql, count, [id])
}

/// Counts a gap that was opened.
pub(in crate::store) fn count_gap(sql: &Connection, id: ChannelId) -> Result<()> {
    let count = "UPDATE channel SET gaps = gaps + 1 WHERE id = ?1";
    update(sql, count, [id])
}

fn update(sql: &Connection, statement: &str, values: impl Params) -> Result<()> {
    sql.prepare_cached(statement)?.execute(values).map(drop)
}
