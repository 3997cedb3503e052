//! Channels: their callbacks, secrets and leases.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{ChannelId, SetId, Store, StoreError, Wake, row};
use crate::clock;
use crate::protocol::websub::Mode;
use crate::protocol::{Capability, HubUri, TopicUri};
use crate::sync::{Asked, Channel, ChannelState, Intent, Lease, Ruling};

/// A channel that is, or was, subscribed to.
#[derive(Clone, Debug)]
pub struct ChannelRecord {
    /// Its row.
    pub id: ChannelId,
    /// The set whose channel it is.
    pub set: SetId,
    /// [`Capability::ChangeNotification`] or [`Capability::FrameworkNotification`].
    pub kind: Capability,
    /// Its topic, as it is advertised: what tells the channels of a set apart.
    pub topic: TopicUri,
    /// The topic that the hub was asked for: what the topic calls itself. Verifications and denials must name it.
    pub subscribed_topic: TopicUri,
    /// The hub that was asked last; `None`: none is known.
    pub hub: Option<HubUri>,
    /// The hubs that are advertised with the channel, or that the configuration names instead.
    pub advertised_hubs: Vec<HubUri>,
    /// The hubs that may be asked: the advertised ones, until the topic itself named others.
    pub known_hubs: Vec<HubUri>,
    /// The unguessable last segment of its callback.
    pub token: String,
    /// What the hub signs deliveries with; `None`: it was told to sign nothing.
    pub secret: Option<String>,
    /// Where the subscription stands.
    pub lease: Lease,
    /// Whether it is no longer wanted: once ended, its callback answers that it is gone.
    pub left: bool,
    /// When the last delivery came that was in order of form.
    pub last_notification_at: Option<DateTime<Utc>>,
    /// Deliveries that were taken.
    pub received: u64,
    /// Notifications that were applied.
    pub applied: u64,
    /// Notifications that told nothing new.
    pub duplicate: u64,
    /// Deliveries that were refused or could not be read.
    pub rejected: u64,
    /// Gaps that opened.
    pub gaps: u64,
}

impl ChannelRecord {
    /// Its hub, for people; empty while none is known.
    #[must_use]
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
}

const COLUMNS: &str = "id, set_id, kind, topic, hub, token, secret, state, asked, asked_lease, expires_at, renew_at,
    next_try_at, failures, left_for_good, last_notification_at, received, applied, duplicate, rejected, gaps,
    subscribed_topic, advertised_hubs, known_hubs, asked_at";

impl Store {
    /// Keeps a new channel. Its row is what the callback goes by, so it is on disk before a hub hears of it.
    ///
    /// # Errors
    /// [`StoreError`].
    #[allow(
        clippy::too_many_arguments,
        reason = "each is a column, and none can be left out"
    )]
    pub async fn add_channel(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        set: SetId,
        kind: &Capability,
        topic: &TopicUri,
        hubs: &[HubUri],
        token: String,
        secret: Option<String>,
    ) -> Result<ChannelRecord, StoreError> {
        let (kind, topic) = (kind.as_str().to_owned(), topic.to_string());
        let (hub, hubs) = (hubs.first().map(HubUri::to_string), hubs_text(hubs));
        self.write(move |tx| {
            let lease = Lease::new(now);
            tx.sql.execute(
                "INSERT INTO channel (set_id, kind, topic, subscribed_topic, hub, advertised_hubs, known_hubs, token, secret,
                                      state, next_try_at, failures)
                 VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, 0)",
                params![set.0, kind, topic, hub, hubs, token, secret, lease.state.code(), row::micros(now)],
            )?;
            let id = ChannelId(tx.sql.last_insert_rowid());
            channel(tx.sql, id)?.ok_or(StoreError::BadRow("a channel"))
        })
        .await
    }

    /// The channels of a set, also those that were left.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn channels(self: &Arc<Self>, set: SetId) -> Result<Vec<ChannelRecord>, StoreError> {
        self.read(move |sql| {
            let mut query = sql.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM channel WHERE set_id = ?1 ORDER BY id"
            ))?;
            let mut rows = query.query([set.0])?;
            let mut channels = Vec::new();
            while let Some(found) = rows.next()? {
                channels.push(record(found)?);
            }
            Ok(channels)
        })
        .await
    }

    /// The channel of that row.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn channel(
        self: &Arc<Self>,
        id: ChannelId,
    ) -> Result<Option<ChannelRecord>, StoreError> {
        self.read(move |sql| channel(sql, id)).await
    }

    /// The channel whose callback ends in that token.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn channel_by_token(
        self: &Arc<Self>,
        token: &str,
    ) -> Result<Option<ChannelRecord>, StoreError> {
        let token = token.to_owned();
        self.read(move |sql| {
            let mut query =
                sql.prepare_cached(&format!("SELECT {COLUMNS} FROM channel WHERE token = ?1"))?;
            let mut rows = query.query([token])?;
            rows.next()?.map(record).transpose()
        })
        .await
    }

    /// Loads a channel, changes and saves it, in one transaction: neither the engine nor a hub that calls at the same moment
    /// undoes what the other has changed. Returns the result of `change`. `wake`: whether to wake the workers.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing has changed.
    pub async fn change_channel<T, F>(
        self: &Arc<Self>,
        id: ChannelId,
        wake: bool,
        change: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Channel) -> T + Send + 'static,
    {
        self.write(move |tx| {
            let record = channel(tx.sql, id)?.ok_or(StoreError::BadRow("a channel"))?;
            let before = record.channel();
            let mut after = before.clone();
            let result = change(&mut after);
            if after != before {
                save_channel(tx.sql, id, &after)?;
            }
            if wake {
                tx.wake(Wake::Channel(record.set, id));
            }
            Ok(result)
        })
        .await
    }

    /// Answers a hub's verification of intent; returns whether to confirm it. `granted` is in seconds; `spread`, from 0 to 1,
    /// chooses the time of the renewal. The lease is dated within the transaction: a clock step that is detected moves only
    /// the dates that were written before.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing has changed.
    pub async fn verify_channel(
        self: &Arc<Self>,
        id: ChannelId,
        mode: Mode,
        granted: Option<u64>,
        spread: f64,
    ) -> Result<bool, StoreError> {
        let intent = match mode {
            Mode::Subscribe => Intent::Subscribe,
            Mode::Unsubscribe => Intent::Unsubscribe,
            Mode::Denied => return Ok(false),
        };
        let verify = move |channel: &mut Channel| {
            let now = clock::now().wall;
            channel.verify(now, intent, granted, spread)
        };
        let ruling = self.change_channel(id, true, verify).await?;
        Ok(ruling != Ruling::Refuse)
    }

    /// Applies a hub's denial.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing has changed.
    pub async fn deny_channel(
        self: &Arc<Self>,
        id: ChannelId,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        self.change_channel(id, true, move |channel| channel.deny(now))
            .await
    }

    /// Counts a delivery that was refused.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn count_rejected(self: &Arc<Self>, id: ChannelId) -> Result<(), StoreError> {
        self.write(move |tx| {
            tx.sql
                .prepare_cached("UPDATE channel SET rejected = rejected + 1 WHERE id = ?1")?
                .execute([id.0])?;
            Ok(())
        })
        .await
    }
}

/// Counts a gap that has opened.
pub(super) fn count_gap(sql: &Connection, id: ChannelId) -> Result<(), StoreError> {
    sql.prepare_cached("UPDATE channel SET gaps = gaps + 1 WHERE id = ?1")?
        .execute([id.0])?;
    Ok(())
}

fn channel(sql: &Connection, id: ChannelId) -> Result<Option<ChannelRecord>, StoreError> {
    let mut query = sql.prepare_cached(&format!("SELECT {COLUMNS} FROM channel WHERE id = ?1"))?;
    let mut rows = query.query([id.0])?;
    rows.next()?.map(record).transpose()
}

fn record(found: &Row<'_>) -> Result<ChannelRecord, StoreError> {
    let bad = |_| StoreError::BadRow("a channel's URI");
    let time = |column: usize| -> Result<Option<DateTime<Utc>>, StoreError> {
        Ok(found.get::<_, Option<i64>>(column)?.map(row::datetime))
    };
    let count =
        |column: usize| -> Result<u64, StoreError> { Ok(row::unsigned(found.get(column)?)) };
    let asked = match found.get::<_, Option<String>>(8)?.as_deref() {
        Some("subscribe") => Some(Intent::Subscribe),
        Some("unsubscribe") => Some(Intent::Unsubscribe),
        _ => None,
    };
    let asked_lease = found
        .get::<_, Option<i64>>(9)?
        .map(row::unsigned)
        .unwrap_or_default();
    Ok(ChannelRecord {
        id: ChannelId(found.get(0)?),
        set: SetId(found.get(1)?),
        kind: row::capability(&found.get::<_, String>(2)?)?,
        topic: TopicUri::parse(&found.get::<_, String>(3)?).map_err(bad)?,
        subscribed_topic: TopicUri::parse(&found.get::<_, String>(21)?).map_err(bad)?,
        hub: found
            .get::<_, Option<String>>(4)?
            .map(|hub| HubUri::parse(&hub).map_err(bad))
            .transpose()?,
        advertised_hubs: hubs_of(&found.get::<_, String>(22)?)?,
        known_hubs: hubs_of(&found.get::<_, String>(23)?)?,
        token: found.get(5)?,
        secret: found.get(6)?,
        lease: Lease {
            state: ChannelState::from_code(&found.get::<_, String>(7)?)
                .ok_or(StoreError::BadRow("a channel's state"))?,
            asked: asked.map(|intent| Asked {
                intent,
                lease_seconds: asked_lease,
            }),
            expires_at: time(10)?,
            renew_at: time(11)?,
            next_try_at: time(12)?,
            failures: found.get(13)?,
            asked_at: time(24)?,
        },
        left: found.get(14)?,
        last_notification_at: time(15)?,
        received: count(16)?,
        applied: count(17)?,
        duplicate: count(18)?,
        rejected: count(19)?,
        gaps: count(20)?,
    })
}

fn save_channel(sql: &Connection, id: ChannelId, channel: &Channel) -> Result<(), StoreError> {
    let lease = &channel.lease;
    let asked = lease.asked.map(|asked| match asked.intent {
        Intent::Subscribe => "subscribe",
        Intent::Unsubscribe => "unsubscribe",
    });
    sql.prepare_cached(
        "UPDATE channel SET state = ?2, asked = ?3, asked_lease = ?4, expires_at = ?5, renew_at = ?6, next_try_at = ?7,
         failures = ?8, asked_at = ?9, hub = ?10, subscribed_topic = ?11, advertised_hubs = ?12, known_hubs = ?13,
         left_for_good = ?14 WHERE id = ?1",
    )?
    .execute(params![
        id.0,
        lease.state.code(),
        asked,
        lease.asked.map(|asked| row::signed(asked.lease_seconds)),
        lease.expires_at.map(row::micros),
        lease.renew_at.map(row::micros),
        lease.next_try_at.map(row::micros),
        lease.failures,
        lease.asked_at.map(row::micros),
        channel.hub.as_ref().map(HubUri::as_str),
        channel.subscribed_topic.as_str(),
        hubs_text(&channel.advertised_hubs),
        hubs_text(&channel.known_hubs),
        channel.left,
    ])?;
    Ok(())
}

/// Hubs, as a column keeps them: URIs with white space between them, which none of them can have.
fn hubs_text(hubs: &[HubUri]) -> String {
    let hubs: Vec<&str> = hubs.iter().map(HubUri::as_str).collect();
    hubs.join(" ")
}

fn hubs_of(text: &str) -> Result<Vec<HubUri>, StoreError> {
    text.split(' ')
        .filter(|hub| !hub.is_empty())
        .map(|hub| HubUri::parse(hub).map_err(|_| StoreError::BadRow("a hub's URI")))
        .collect()
}

/// The set that a channel belongs to.
pub(super) fn set_of(sql: &Connection, id: ChannelId) -> Result<Option<SetId>, StoreError> {
    let mut query = sql.prepare_cached("SELECT set_id FROM channel WHERE id = ?1")?;
    Ok(query
        .query_row([id.0], |row| row.get(0).map(SetId))
        .optional()?)
}
