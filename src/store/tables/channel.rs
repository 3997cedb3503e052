//! `channel`: subscriptions and connections, with their callbacks, secrets, leases and counters.

use std::fmt;

use chrono::{DateTime, Utc};
use resourcesync::Capability;
use resyncd_core::{
    CallbackOwner, CallbackSlot, Callbacks, Channel, ChannelState, DeliveryFault,
    DeliveryFaultKind, Denial, HubUri, Lease, PendingRequest, Redaction, TopicUri, Transport,
};
use url::Url;

use super::inbox::DeliveryOutcome;
use super::values::{Column, Count, HubList, Micros, RequestedIntent, column};
use crate::store::ids::{ChannelId, SetId};
use crate::store::sql::{Connection, OptionalExtension, Params, Result, Row, params};
use crate::store::unreadable::UnreadableRows;

/// A channel that is, or was, subscribed to.
#[derive(Clone, Debug)]
pub struct ChannelRecord {
    /// Its row.
    pub id: ChannelId,
    /// The set whose channel it is.
    pub set: SetId,
    /// The label of its Source.
    pub source: String,
    /// [`Capability::ChangeNotification`] or [`Capability::FrameworkNotification`].
    pub kind: Capability,
    /// Over what its notifications come.
    pub transport: Transport,
    /// The advertised topic; it identifies the channel within its set.
    pub topic: TopicUri,
    /// The topic that the hub was asked for: the topic's own `self` link. Verifications and denials must name it.
    pub subscribed_topic: TopicUri,
    /// The hub that was asked last; `None`: none is known.
    pub hub: Option<HubUri>,
    /// Which hub was given which callback.
    pub callbacks: Callbacks,
    /// The hub whose delivery was accepted last.
    pub working_hub: Option<HubUri>,
    /// The hubs that are advertised with the channel, or that the configuration names instead.
    pub advertised_hubs: Vec<HubUri>,
    /// The hubs that may be asked: the advertised ones, until the topic itself names others.
    pub known_hubs: Vec<HubUri>,
    /// The unguessable last segment of its callback.
    pub token: String,
    /// The secret with which the hub signs deliveries; `None`: it was asked for unsigned ones.
    pub secret: Option<String>,
    /// Token and secret of the subscription that is to replace it.
    pub next: Option<CallbackKeys>,
    /// The channel whose subscription this one was; `None`: it is a channel of the set.
    pub former_of: Option<ChannelId>,
    /// The state of the subscription.
    pub lease: Lease,
    /// Since when a subscription was requested that no hub has verified, or has expired; `None`: one was verified, denied or ended.
    pub unverified_since: Option<DateTime<Utc>>,
    /// Whether it is no longer wanted: once its subscription has ended, its callback answers that it is gone.
    pub is_unwanted: bool,
    /// The hub's denial, until a subscription is verified.
    pub denial: Option<Denial>,
    /// What is wrong with the deliveries, until one is accepted.
    pub fault: Option<DeliveryFault>,
    /// How often the hubs have fallen silent since a delivery was accepted.
    pub silences: u32,
    /// How often a subscription has begun.
    pub begun: u32,
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
    /// Verifications of intent that were refused.
    pub rejected_verifications: u64,
    /// The topic that the last of them named in place of the one that was asked for, shortened and without secrets.
    pub rejected_topic: Option<String>,
    /// Deliveries in the inbox.
    pub inbox: u64,
    /// Their bytes.
    pub inbox_bytes: u64,
}

/// What a hub is given for one subscription.
#[derive(Clone, PartialEq, Eq)]
pub struct CallbackKeys {
    /// The unguessable last segment of the callback.
    pub token: String,
    /// The secret; `None`: unsigned deliveries are asked for.
    pub secret: Option<String>,
}

impl fmt::Debug for CallbackKeys {
    /// Without both: neither belongs in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackKeys").finish_non_exhaustive()
    }
}

impl ChannelRecord {
    /// The URI of its hub for display; empty while none is known.
    pub fn hub_name(&self) -> &str {
        self.hub.as_ref().map_or("", HubUri::as_str)
    }

    /// As [`hub_name`](Self::hub_name), for the log; `None` where none is known, or its transport has none.
    pub fn logged_hub(&self) -> Option<&str> {
        self.hub.as_ref().map(HubUri::as_str)
    }

    /// The part of the row that the channel machine decides on.
    pub fn channel(&self) -> Channel {
        Channel {
            transport: self.transport,
            topic: self.topic.clone(),
            subscribed_topic: self.subscribed_topic.clone(),
            hub: self.hub.clone(),
            callbacks: self.callbacks.clone(),
            working_hub: self.working_hub.clone(),
            advertised_hubs: self.advertised_hubs.clone(),
            known_hubs: self.known_hubs.clone(),
            is_unwanted: self.is_unwanted,
            lease: self.lease.clone(),
            denial: self.denial.clone(),
            fault: self.fault,
            silences: self.silences,
            begun: self.begun,
        }
    }

    /// Token and secret of a callback.
    pub fn keys(&self, slot: CallbackSlot) -> CallbackKeys {
        match (slot, &self.next) {
            (CallbackSlot::Next, Some(next)) => next.clone(),
            _ => self.keys_of_own(),
        }
    }

    /// Token and secret of the callback of its subscription.
    pub(crate) fn keys_of_own(&self) -> CallbackKeys {
        CallbackKeys {
            token: self.token.clone(),
            secret: self.secret.clone(),
        }
    }

    /// The redaction, which also removes its tokens and secrets.
    pub fn added_to(&self, redaction: &Redaction) -> Redaction {
        let keys = [CallbackSlot::Own, CallbackSlot::Next].map(|slot| self.keys(slot));
        keys.iter().fold(redaction.clone(), |redaction, keys| {
            let secret = keys.secret.as_deref().unwrap_or_default();
            redaction.with(&keys.token).with(secret)
        })
    }

    /// The callback that ends in a token of this channel.
    pub fn slot_of(&self, token: &str) -> CallbackSlot {
        match &self.next {
            Some(next) if next.token == token => CallbackSlot::Next,
            _ => CallbackSlot::Own,
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
        let owner = |which: &str| -> Result<Option<CallbackOwner>> {
            let of_owner = |name: &str| format!("{which}_{name}");
            let hub: Option<HubUri> = column(row, of_owner("hub").as_str())?;
            let topic: Option<TopicUri> = column(row, of_owner("topic").as_str())?;
            let base: Option<String> = row.get(of_owner("base").as_str())?;
            let owner = hub.zip(topic).zip(base);
            Ok(owner.map(|((hub, topic), base)| CallbackOwner { hub, topic, base }))
        };
        let callbacks = Callbacks {
            own: owner("own")?,
            next: owner("next")?,
        };
        let next_token: Option<String> = row.get("next_token")?;
        let next_secret: Option<String> = row.get("next_secret")?;
        let denial_reason: Option<String> = row.get("denial")?;
        let denial_hub: Option<HubUri> = column(row, "denial_hub")?;
        let fault_kind: Option<DeliveryFaultKind> = column(row, "fault")?;
        Ok(Self {
            id: row.get("id")?,
            set: row.get("set_id")?,
            source: row.get("source")?,
            kind: column(row, "kind")?,
            transport: column(row, "transport")?,
            topic: column(row, "topic")?,
            subscribed_topic: column(row, "subscribed_topic")?,
            hub: column(row, "hub")?,
            callbacks,
            working_hub: column(row, "working_hub")?,
            advertised_hubs: hubs("advertised_hubs")?,
            known_hubs: hubs("known_hubs")?,
            token: row.get("token")?,
            secret: row.get("secret")?,
            next: next_token.map(|token| CallbackKeys {
                token,
                secret: next_secret,
            }),
            former_of: row.get("former_of")?,
            lease: Lease {
                state: column(row, "state")?,
                asked: row
                    .get::<_, RequestedIntent>("asked")?
                    .0
                    .map(|intent| PendingRequest {
                        intent,
                        lease_seconds: lease_seconds.map_or(0, u64::from),
                    }),
                expires_at: time("expires_at")?,
                renew_at: time("renew_at")?,
                next_try_at: time("next_try_at")?,
                failures: row.get("failures")?,
                asked_at: time("asked_at")?,
                not_before: time("not_before")?,
                paced_until: time("paced_until")?,
            },
            unverified_since: time("unverified_since")?,
            is_unwanted: row.get("left_for_good")?,
            denial: denial_reason
                .zip(time("denied_at")?)
                .map(|(reason, at)| Denial {
                    hub: denial_hub,
                    reason,
                    at,
                }),
            fault: fault_kind
                .zip(time("fault_at")?)
                .map(|(kind, at)| DeliveryFault { kind, at }),
            silences: row.get("silences")?,
            begun: row.get("begun")?,
            last_notification_at: time("last_notification_at")?,
            received: count("received")?,
            applied: count("applied")?,
            duplicate: count("duplicate")?,
            rejected: count("rejected")?,
            gaps: count("gaps")?,
            rejected_verifications: count("rejected_verifications")?,
            rejected_topic: row.get("rejected_topic")?,
            inbox: count("waiting")?,
            inbox_bytes: count("waiting_bytes")?,
        })
    }
}

const COLUMNS: &str =
    "id, set_id, kind, topic, subscribed_topic, hub, advertised_hubs, known_hubs, token, secret,
    state, asked, asked_lease, asked_at, expires_at, renew_at, next_try_at, failures, left_for_good,
    last_notification_at, received, applied, duplicate, rejected, gaps,
    own_hub, own_topic, own_base, next_hub, next_topic, next_base, next_token, next_secret, working_hub, former_of, not_before,
    denial, denied_at, denial_hub, fault, fault_at, silences, rejected_verifications, rejected_topic, begun, paced_until,
    waiting, waiting_bytes, unverified_since, transport,
    (SELECT source FROM source_set WHERE source_set.id = channel.set_id) AS source";

/// A channel that is not stored yet.
pub(crate) struct NewChannel<'a> {
    pub(crate) set: SetId,
    pub(crate) kind: &'a Capability,
    pub(crate) channel: &'a Channel,
    pub(crate) keys: &'a CallbackKeys,
    pub(crate) former_of: Option<ChannelId>,
}

pub(crate) fn insert(sql: &Connection, new: &NewChannel<'_>) -> Result<ChannelId> {
    let channel = new.channel;
    let mut insert = sql.prepare_cached(
        "INSERT INTO channel (set_id, kind, topic, subscribed_topic, advertised_hubs, known_hubs, token, secret,
                              state, failures, former_of, transport)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) RETURNING id",
    )?;
    let values = params![
        new.set,
        Column(new.kind),
        Column(&channel.topic),
        Column(&channel.subscribed_topic),
        HubList(&channel.advertised_hubs),
        HubList(&channel.known_hubs),
        new.keys.token,
        new.keys.secret,
        Column(&channel.lease.state),
        channel.lease.failures,
        new.former_of,
        Column(&channel.transport),
    ];
    let id = insert.query_row(values, |row| row.get(0))?;
    save(sql, id, channel)?;
    Ok(id)
}

/// Deletes the oldest of a channel's former subscriptions, beyond so many: a hub may end none of them.
pub(crate) fn delete_former(sql: &Connection, of: ChannelId, most: usize) -> Result<()> {
    let delete = "DELETE FROM channel WHERE former_of = ?1 AND id NOT IN (
             SELECT id FROM channel WHERE former_of = ?1 ORDER BY id DESC LIMIT ?2)";
    update(sql, delete, params![of, Count::of_rows(most)])
}

/// Deletes the channels of a set whose subscriptions have ended. Their inboxes are empty.
pub(crate) fn delete_ended(sql: &Connection, set: SetId) -> Result<()> {
    for statement in [
        "DELETE FROM delivered WHERE channel_id IN (
             SELECT id FROM channel WHERE set_id = ?1 AND state = ?2 AND left_for_good = 1 AND waiting = 0)",
        "DELETE FROM channel WHERE set_id = ?1 AND state = ?2 AND left_for_good = 1 AND waiting = 0",
    ] {
        update(sql, statement, params![set, Column(&ChannelState::Unsubscribed)])?;
    }
    Ok(())
}

/// Whether [`delete_ended`] would delete any.
pub(crate) fn any_ended(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM channel WHERE set_id = ?1 AND state = ?2 AND left_for_good = 1 AND waiting = 0",
    )?
    .exists(params![set, Column(&ChannelState::Unsubscribed)])
}

/// Stores the keys of a channel.
pub(crate) fn set_keys(
    sql: &Connection,
    id: ChannelId,
    own: &CallbackKeys,
    next: Option<&CallbackKeys>,
) -> Result<()> {
    let set_keys = "UPDATE channel SET token = ?2, secret = ?3, next_token = ?4, next_secret = ?5 WHERE id = ?1";
    let values = params![
        id,
        own.token,
        own.secret,
        next.map(|next| &next.token),
        next.and_then(|next| next.secret.as_ref()),
    ];
    update(sql, set_keys, values)
}

pub(crate) fn get(sql: &Connection, id: ChannelId) -> Result<Option<ChannelRecord>> {
    sql.prepare_cached(&format!("SELECT {COLUMNS} FROM channel WHERE id = ?1"))?
        .query_row([id], ChannelRecord::from_row)
        .optional()
}

pub(crate) fn by_token(sql: &Connection, token: &str) -> Result<Option<ChannelRecord>> {
    sql.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM channel WHERE (token = ?1 OR next_token = ?1) AND transport IN ('websub', 'callback')"
    ))?
    .query_row([token], ChannelRecord::from_row)
    .optional()
}

/// The channels of a set, also those that were left, in the order of their ids.
pub(crate) fn of_set(sql: &Connection, set: SetId) -> Result<Vec<ChannelRecord>> {
    sql.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM channel WHERE set_id = ?1 ORDER BY id"
    ))?
    .query_map([set], ChannelRecord::from_row)?
    .collect()
}

/// A channel with its set.
pub(crate) struct ChannelOfSet {
    pub(crate) source: String,
    pub(crate) capability_list: Url,
    /// Whether the set is no longer followed.
    pub(crate) is_ended: bool,
    pub(crate) record: ChannelRecord,
}

/// Every channel that can be read, in the order of the ids.
pub(crate) fn all(sql: &Connection, unreadable: &UnreadableRows) -> Result<Vec<ChannelOfSet>> {
    let mut sets =
        sql.prepare_cached("SELECT source, capability_list, ended FROM source_set WHERE id = ?1")?;
    let mut channels = sql.prepare_cached(&format!("SELECT {COLUMNS} FROM channel ORDER BY id"))?;
    let mut with_set = |row: &Row<'_>| {
        let record = ChannelRecord::from_row(row)?;
        sets.query_row([record.set], |row| {
            Ok(ChannelOfSet {
                source: row.get("source")?,
                capability_list: row.get("capability_list")?,
                is_ended: row.get("ended")?,
                record,
            })
        })
    };
    let read = |row: &Row<'_>| unreadable.read(row, "source", &mut with_set);
    let rows = channels.query_map([], read)?;
    rows.filter_map(Result::transpose).collect()
}

/// Whether another channel of the same Source, of another set or another kind, has a URI as its topic.
pub(crate) fn is_topic_of_another(sql: &Connection, id: ChannelId, uri: &TopicUri) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM channel AS own JOIN source_set AS own_set ON own_set.id = own.set_id
         JOIN channel ON channel.topic = ?2 OR channel.subscribed_topic = ?2
         JOIN source_set ON source_set.id = channel.set_id
         WHERE own.id = ?1 AND channel.former_of IS NULL AND channel.left_for_good = 0
           AND (channel.set_id <> own.set_id OR channel.kind <> own.kind)
           AND source_set.source = own_set.source AND source_set.ended = 0",
    )?
    .exists(params![id, Column(uri)])
}

/// Whether a subscription is being ended.
pub(crate) fn any_ending(sql: &Connection) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM channel WHERE left_for_good = 1 AND state <> 'unsubscribed'")?
        .exists([])
}

/// Stores what the channel machine may have changed.
pub(crate) fn save(sql: &Connection, id: ChannelId, channel: &Channel) -> Result<()> {
    let lease = &channel.lease;
    let save = "UPDATE channel SET state = ?2, asked = ?3, asked_lease = ?4, expires_at = ?5, renew_at = ?6,
             next_try_at = ?7, failures = ?8, asked_at = ?9, hub = ?10, subscribed_topic = ?11, advertised_hubs = ?12,
             known_hubs = ?13, left_for_good = ?14, own_hub = ?15, own_topic = ?16, own_base = ?17, next_hub = ?18,
             next_topic = ?19, next_base = ?20, working_hub = ?21, not_before = ?22, denial = ?23, denied_at = ?24,
             fault = ?25, fault_at = ?26, silences = ?27, begun = ?28, paced_until = ?29, denial_hub = ?30,
             unverified_since = CASE ?2 WHEN 'pending' THEN COALESCE(unverified_since, ?9, ?7)
                 WHEN 'expired' THEN COALESCE(unverified_since, ?7) END
         WHERE id = ?1";
    let (own, next) = (&channel.callbacks.own, &channel.callbacks.next);
    let values = params![
        id,
        Column(&lease.state),
        RequestedIntent(lease.asked.map(|asked| asked.intent)),
        lease.asked.map(|asked| Count(asked.lease_seconds)),
        lease.expires_at.map(Micros),
        lease.renew_at.map(Micros),
        lease.next_try_at.map(Micros),
        lease.failures,
        lease.asked_at.map(Micros),
        Column(&channel.hub),
        Column(&channel.subscribed_topic),
        HubList(&channel.advertised_hubs),
        HubList(&channel.known_hubs),
        channel.is_unwanted,
        own.as_ref().map(|own| Column(&own.hub)),
        own.as_ref().map(|own| Column(&own.topic)),
        own.as_ref().map(|own| &own.base),
        next.as_ref().map(|next| Column(&next.hub)),
        next.as_ref().map(|next| Column(&next.topic)),
        next.as_ref().map(|next| &next.base),
        Column(&channel.working_hub),
        lease.not_before.map(Micros),
        channel.denial.as_ref().map(|denial| &denial.reason),
        channel.denial.as_ref().map(|denial| Micros(denial.at)),
        channel.fault.as_ref().map(|fault| Column(&fault.kind)),
        channel.fault.map(|fault| Micros(fault.at)),
        channel.silences,
        channel.begun,
        lease.paced_until.map(Micros),
        channel.denial.as_ref().map(|denial| Column(&denial.hub)),
    ];
    update(sql, save, values)
}

/// What receiving deliveries needs of a channel.
pub(crate) struct ReceivingRecord {
    pub(crate) set: SetId,
    pub(crate) own: CallbackKeys,
    pub(crate) next: Option<CallbackKeys>,
    pub(crate) is_unwanted: bool,
    /// The hub that deliveries certainly come from.
    pub(crate) hub: Option<String>,
    /// The bytes of its deliveries in the inbox.
    pub(crate) pending_bytes: u64,
    /// Over what they come.
    pub(crate) transport: Transport,
}

/// What receiving deliveries needs of a channel; `None`: there is no such channel.
pub(crate) fn receiving(sql: &Connection, id: ChannelId) -> Result<Option<ReceivingRecord>> {
    sql.prepare_cached(
        "SELECT set_id, token, secret, next_token, next_secret, left_for_good, waiting_bytes, transport,
             CASE WHEN next_hub IS NULL OR next_hub = own_hub THEN own_hub END AS hub
         FROM channel WHERE id = ?1",
    )?
    .query_row([id], |row| {
        let next_secret = row.get("next_secret")?;
        let next_token: Option<String> = row.get("next_token")?;
        Ok(ReceivingRecord {
            set: row.get("set_id")?,
            own: CallbackKeys {
                token: row.get("token")?,
                secret: row.get("secret")?,
            },
            next: next_token.map(|token| CallbackKeys {
                token,
                secret: next_secret,
            }),
            is_unwanted: row.get("left_for_good")?,
            hub: row.get("hub")?,
            pending_bytes: row.get::<_, Count>("waiting_bytes")?.0,
            transport: column(row, "transport")?,
        })
    })
    .optional()
}

/// Counts deliveries that were put into the inbox. `bytes`: their length together.
pub(crate) fn count_received(
    sql: &Connection,
    id: ChannelId,
    now: DateTime<Utc>,
    deliveries: u64,
    bytes: u64,
) -> Result<()> {
    let count = "UPDATE channel SET received = received + ?3, last_notification_at = ?2, waiting = waiting + ?3,
             waiting_bytes = waiting_bytes + ?4
         WHERE id = ?1";
    let values = params![id, Micros(now), Count(deliveries), Count(bytes)];
    update(sql, count, values)
}

/// Counts deliveries that were received before, and are not stored again.
pub(crate) fn count_repeated(sql: &Connection, id: ChannelId, deliveries: u64) -> Result<()> {
    let count =
        "UPDATE channel SET received = received + ?2, duplicate = duplicate + ?2 WHERE id = ?1";
    update(sql, count, params![id, Count(deliveries)])?;
    let has_known_sender = get(sql, id)?.is_none_or(|it| it.transport.has_known_sender());
    if has_known_sender {
        note_working(sql, id)
    } else {
        // Anybody may have repeated what was delivered once.
        Ok(())
    }
}

/// Counts deliveries that have left the inbox. `bytes`: their length together.
pub(crate) fn count_processed(
    sql: &Connection,
    id: ChannelId,
    outcome: DeliveryOutcome,
    deliveries: u64,
    bytes: u64,
) -> Result<()> {
    let column = match outcome {
        DeliveryOutcome::Applied | DeliveryOutcome::Undated => "applied",
        DeliveryOutcome::Duplicate => "duplicate",
        DeliveryOutcome::Rejected => "rejected",
    };
    let count = format!(
        "UPDATE channel SET {column} = {column} + ?2, waiting = waiting - ?2, waiting_bytes = waiting_bytes - ?3
         WHERE id = ?1"
    );
    update(sql, &count, params![id, Count(deliveries), Count(bytes)])?;
    match outcome {
        DeliveryOutcome::Rejected => Ok(()),
        _ => note_working(sql, id),
    }
}

/// Records that a delivery was accepted: the hub works.
fn note_working(sql: &Connection, id: ChannelId) -> Result<()> {
    let note = "UPDATE channel SET fault = NULL, fault_at = NULL, silences = 0, working_hub = COALESCE(own_hub, hub)
         WHERE id = ?1 AND (fault IS NOT NULL OR silences > 0 OR working_hub IS DISTINCT FROM COALESCE(own_hub, hub))";
    update(sql, note, [id])
}

/// Records that deliveries were dropped from the inbox.
pub(crate) fn clear_pending(sql: &Connection, id: ChannelId) -> Result<()> {
    let clear = "UPDATE channel SET waiting = 0, waiting_bytes = 0 WHERE id = ?1 AND waiting > 0";
    update(sql, clear, [id])
}

/// Counts a verification of intent that was refused. `topic`: what it named in place of the topic that was asked for.
pub(crate) fn count_rejected_verification(
    sql: &Connection,
    id: ChannelId,
    topic: Option<&str>,
) -> Result<()> {
    let count = "UPDATE channel SET rejected_verifications = rejected_verifications + 1, rejected_topic = ?2
         WHERE id = ?1";
    update(sql, count, params![id, topic])
}

/// Counts a delivery that was rejected before it was stored.
pub(crate) fn count_rejected(sql: &Connection, id: ChannelId) -> Result<()> {
    let count = "UPDATE channel SET rejected = rejected + 1 WHERE id = ?1";
    update(sql, count, [id])
}

/// Counts a gap that was opened.
pub(crate) fn count_gap(sql: &Connection, id: ChannelId) -> Result<()> {
    let count = "UPDATE channel SET gaps = gaps + 1 WHERE id = ?1";
    update(sql, count, [id])
}

fn update(sql: &Connection, statement: &str, values: impl Params) -> Result<()> {
    sql.prepare_cached(statement)?.execute(values).map(drop)
}
