//! Channels: their callbacks, secrets and leases.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{ChannelId, SetId, Store, StoreError, Wake, row};
use crate::clock;
use crate::protocol::websub::Mode;
use crate::protocol::{Capability, HubUri, TopicUri};
use crate::sync::{Asked, ChannelState, Intent, Lease, Ruling};

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

    /// Changes a channel's lease in one step, so that the engine and a hub that calls at the same moment don't undo each
    /// other. Answers what the change answers. `wake`: whether the engine is to look at it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn change_lease<T, F>(
        self: &Arc<Self>,
        id: ChannelId,
        wake: bool,
        change: F,
    ) -> Result<(T, Lease), StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Lease) -> T + Send + 'static,
    {
        self.write(move |tx| {
            let mut record = channel(tx.sql, id)?.ok_or(StoreError::BadRow("a channel"))?;
            let before = record.lease.clone();
            let answer = change(&mut record.lease);
            let lease = record.lease;
            if lease != before {
                save_lease(tx.sql, id, &lease)?;
            }
            if wake {
                tx.wake(Wake::Channel(record.set, id));
            }
            Ok((answer, lease))
        })
        .await
    }

    /// Holds a hub's verification against what was asked of it; answers whether it is to be confirmed. `granted` is in
    /// seconds; `spread`, from 0 to 1, chooses the moment of the renewal. The lease begins when that is written down: who
    /// notices that the clock was set back moves what was written before, and nothing else.
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
        let verify = move |lease: &mut Lease| {
            let now = clock::now().wall;
            lease.verify(now, intent, granted, spread)
        };
        let (ruling, _) = self.change_lease(id, true, verify).await?;
        Ok(ruling != Ruling::Refuse)
    }

    /// Takes a hub's word that it refuses or ends the subscription.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing has changed.
    pub async fn deny_channel(
        self: &Arc<Self>,
        id: ChannelId,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        self.change_lease(id, true, move |lease| lease.denied(now))
            .await?;
        Ok(())
    }

    /// Notes whether a channel is wanted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn want_channel(
        self: &Arc<Self>,
        id: ChannelId,
        wanted: bool,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            tx.sql.execute(
                "UPDATE channel SET left_for_good = ?2 WHERE id = ?1",
                params![id.0, !wanted],
            )?;
            Ok(())
        })
        .await
    }

    /// Notes the hubs that are advertised with a channel. If there are any, they are the ones to ask from now on.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn advertise_hubs(
        self: &Arc<Self>,
        id: ChannelId,
        hubs: &[HubUri],
    ) -> Result<(), StoreError> {
        let (any, hubs) = (!hubs.is_empty(), hubs_text(hubs));
        self.write(move |tx| {
            tx.sql.execute(
                "UPDATE channel SET advertised_hubs = ?2, known_hubs = CASE WHEN ?3 THEN ?2 ELSE known_hubs END
                 WHERE id = ?1",
                params![id.0, hubs, any],
            )?;
            Ok(())
        })
        .await
    }

    /// Notes the hubs that a channel's topic names itself.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn know_hubs(
        self: &Arc<Self>,
        id: ChannelId,
        hubs: &[HubUri],
    ) -> Result<(), StoreError> {
        let hubs = hubs_text(hubs);
        self.write(move |tx| {
            tx.sql.execute(
                "UPDATE channel SET known_hubs = ?2 WHERE id = ?1",
                params![id.0, hubs],
            )?;
            Ok(())
        })
        .await
    }

    /// Notes the hub that is about to be asked, and the topic that it is asked for.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn aim_channel(
        self: &Arc<Self>,
        id: ChannelId,
        hub: &HubUri,
        topic: &TopicUri,
    ) -> Result<(), StoreError> {
        let (hub, topic) = (hub.to_string(), topic.to_string());
        self.write(move |tx| {
            tx.sql.execute(
                "UPDATE channel SET hub = ?2, subscribed_topic = ?3 WHERE id = ?1",
                params![id.0, hub, topic],
            )?;
            Ok(())
        })
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

fn save_lease(sql: &Connection, id: ChannelId, lease: &Lease) -> Result<(), StoreError> {
    let asked = lease.asked.map(|asked| match asked.intent {
        Intent::Subscribe => "subscribe",
        Intent::Unsubscribe => "unsubscribe",
    });
    sql.prepare_cached(
        "UPDATE channel SET state = ?2, asked = ?3, asked_lease = ?4, expires_at = ?5, renew_at = ?6, next_try_at = ?7,
         failures = ?8, asked_at = ?9 WHERE id = ?1",
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
