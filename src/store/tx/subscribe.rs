//! Stores channels and the progress of their subscriptions.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::Capability;
use resyncd_core::{
    CallbackChange, CallbackSlot, Channel, DeliveryFaultKind, TopicUri, VerificationAnswer,
};
use websub::Intent;

use crate::clock;
use crate::store::ids::{ChannelId, SetId};
use crate::store::tables::channel::{self, CallbackKeys, ChannelRecord, NewChannel};
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

const CHANNEL: StoreError = StoreError::NoChannel;
/// How many former subscriptions of a channel are remembered, so that late deliveries of theirs are answered 410.
const MOST_FORMER: usize = 16;

impl Store {
    /// Adds a channel. Its callback is found by its row, which is on disk before a hub learns the callback. `keys`: those of its callback;
    /// nobody learns the ones of a channel that has none.
    pub async fn insert_channel(
        self: &Arc<Self>,
        set: SetId,
        kind: &Capability,
        channel: Channel,
        keys: CallbackKeys,
    ) -> Result<ChannelRecord, StoreError> {
        let kind = kind.clone();
        self.write(move |tx| {
            let new = NewChannel {
                set,
                kind: &kind,
                channel: &channel,
                keys: &keys,
                former_of: None,
            };
            let id = channel::insert(tx.sql, &new)?;
            channel::get(tx.sql, id)?.ok_or(CHANNEL)
        })
        .await
    }

    /// Reads a channel, changes and stores it, in one transaction: neither the worker nor a hub's request at the same moment
    /// undoes what the other has changed. Returns the result of `change`. `wake`: whether to wake the workers.
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
            let (result, record) = change_in(tx, id, None, change)?;
            if wake {
                tx.wake(Wake::Channel(record.set, id));
            }
            Ok(result)
        })
        .await
    }

    /// As [`change_channel`](Self::change_channel), for a change that may request a subscription. `fresh`: the keys of a
    /// callback that is new. Also returns the channel after the change. Wakes the workers if the state has changed.
    pub async fn step_channel<T, F>(
        self: &Arc<Self>,
        id: ChannelId,
        fresh: CallbackKeys,
        change: F,
    ) -> Result<(T, ChannelRecord), StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Channel) -> T + Send + 'static,
    {
        self.write(move |tx| {
            let (result, before) = change_in(tx, id, Some(fresh), change)?;
            let record = channel::get(tx.sql, id)?.ok_or(CHANNEL)?;
            if record.lease.state != before.lease.state {
                tx.wake(Wake::Channel(record.set, id));
            }
            Ok((result, record))
        })
        .await
    }

    /// As [`change_channel`](Self::change_channel), for a channel that may be wanted again. `fresh`: other keys of its callback, if it gets
    /// any. Returns the channel after the change.
    pub async fn want_channel(
        self: &Arc<Self>,
        id: ChannelId,
        fresh: Option<CallbackKeys>,
        want: impl FnOnce(&mut Channel) + Send + 'static,
    ) -> Result<ChannelRecord, StoreError> {
        self.write(move |tx| {
            change_in(tx, id, None, want)?;
            if let Some(keys) = fresh {
                channel::set_keys(tx.sql, id, &keys, None)?;
            }
            let record = channel::get(tx.sql, id)?.ok_or(CHANNEL)?;
            tx.wake(Wake::Channel(record.set, id));
            Ok(record)
        })
        .await
    }

    /// Compares a hub's verification of intent with what was requested, and returns whether to confirm it. `topics`: the
    /// readings of the topic that it states, and `stated` them for a person; `granted` is in seconds; `spread`, from 0 to 1, selects the time of the renewal.
    /// A refusal is counted. The lease is dated within the transaction: a clock step that is detected moves only the dates that
    /// were written before.
    pub async fn verify_channel(
        self: &Arc<Self>,
        (id, slot): (ChannelId, CallbackSlot),
        (topics, stated): (&[TopicUri], &str),
        intent: Intent,
        granted: Option<u64>,
        spread: f64,
    ) -> Result<bool, StoreError> {
        let (topics, stated) = (topics.to_vec(), stated.to_owned());
        self.write(move |tx| {
            let (answer, record) = change_in(tx, id, None, |channel| {
                let now = clock::now().wall;
                channel.verify(now, slot, &topics, intent, granted, spread)
            })?;
            if answer == VerificationAnswer::Reject {
                let is_other = !topics.contains(&record.subscribed_topic);
                let other = is_other.then_some(stated.as_str());
                channel::count_rejected_verification(tx.sql, id, other)?;
            }
            tx.wake(Wake::Channel(record.set, id));
            Ok(answer != VerificationAnswer::Reject)
        })
        .await
    }

    /// Counts a verification of intent that names no topic that could be compared.
    pub async fn count_rejected_verification(
        self: &Arc<Self>,
        id: ChannelId,
    ) -> Result<(), StoreError> {
        self.write(move |tx| Ok(channel::count_rejected_verification(tx.sql, id, None)?))
            .await
    }

    /// Applies a hub's denial: it refuses or ends the subscription. Returns whether the channel has requested the topic.
    pub async fn deny_channel(
        self: &Arc<Self>,
        (id, slot): (ChannelId, CallbackSlot),
        now: DateTime<Utc>,
        topics: &[TopicUri],
        reason: &str,
    ) -> Result<bool, StoreError> {
        let (topics, reason) = (topics.to_vec(), reason.to_owned());
        self.change_channel(id, true, move |channel| {
            channel.deny(now, slot, &topics, &reason)
        })
        .await
    }

    /// Records a fault of the deliveries of change notifications of a set.
    pub async fn note_delivery_fault(
        self: &Arc<Self>,
        set: SetId,
        kind: DeliveryFaultKind,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            for record in channel::of_set(tx.sql, set)? {
                if record.kind == Capability::ChangeNotification && record.former_of.is_none() {
                    change_in(tx, record.id, None, |channel| channel.note_fault(kind, now))?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Counts a delivery that was rejected before it was stored; `fault`: what that says about the channel. Where no intervals show that
    /// one is missing, this wakes the set, which is to be polled for what the delivery states.
    pub async fn count_rejected(
        self: &Arc<Self>,
        id: ChannelId,
        now: DateTime<Utc>,
        fault: Option<DeliveryFaultKind>,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            channel::count_rejected(tx.sql, id)?;
            if let Some(kind) = fault {
                change_in(tx, id, None, |channel| channel.note_fault(kind, now))?;
            }
            let record = channel::get(tx.sql, id)?;
            if let Some(wake) = record.and_then(|record| wake_for_missed(&record)) {
                tx.wake(wake);
            }
            Ok(())
        })
        .await
    }

    /// Wakes the set of a channel as [`count_rejected`](Self::count_rejected) does, where a notification was missed, or can't be counted.
    pub fn report_missed_notification(&self, channel: &ChannelRecord) {
        if let Some(wake) = wake_for_missed(channel) {
            // Nobody may be there to be woken.
            let _ = self.wakes.send(wake);
        }
    }
}

/// What wakes the set of a channel that has not read a notification; `None`: the interval of the next one shows that it is missing.
fn wake_for_missed(channel: &ChannelRecord) -> Option<Wake> {
    let has_intervals = channel.transport.states_intervals();
    (!has_intervals).then_some(Wake::MissedNotification(channel.set))
}

/// Changes a channel in a transaction. `fresh`: as in [`step_channel`](Store::step_channel). Returns the result of `change` and the channel as it was.
pub(super) fn change_in<T>(
    tx: &mut Tx<'_>,
    id: ChannelId,
    fresh: Option<CallbackKeys>,
    change: impl FnOnce(&mut Channel) -> T,
) -> Result<(T, ChannelRecord), StoreError> {
    let record = channel::get(tx.sql, id)?.ok_or(CHANNEL)?;
    let before = record.channel();
    let mut after = before.clone();
    let result = change(&mut after);
    if after != before {
        channel::save(tx.sql, id, &after)?;
        change_keys(tx, &record, &before, &after, fresh)?;
    }
    Ok((result, record))
}

/// Gives each callback the keys that it needs, and stores a subscription that was replaced as a channel that is left.
fn change_keys(
    tx: &mut Tx<'_>,
    record: &ChannelRecord,
    before: &Channel,
    after: &Channel,
    fresh: Option<CallbackKeys>,
) -> Result<(), StoreError> {
    let (id, own) = (record.id, record.keys_of_own());
    // Only a step of the driver requests a subscription, and it brings fresh keys.
    let fresh = || fresh.ok_or(StoreError::BadRow("the keys of a callback"));
    match after.callbacks.change_since(&before.callbacks) {
        CallbackChange::Same => {}
        CallbackChange::OwnIsNew => channel::set_keys(tx.sql, id, &fresh()?, None)?,
        CallbackChange::NextIsNew => channel::set_keys(tx.sql, id, &own, Some(&fresh()?))?,
        CallbackChange::NextIsGone => channel::set_keys(tx.sql, id, &own, None)?,
        CallbackChange::Replaced => {
            channel::set_keys(tx.sql, id, &record.keys(CallbackSlot::Next), None)?;
            if let Some(former) = after.replaced(before, clock::now().wall) {
                let new = NewChannel {
                    set: record.set,
                    kind: &record.kind,
                    channel: &former,
                    keys: &own,
                    former_of: Some(id),
                };
                channel::insert(tx.sql, &new)?;
                channel::delete_former(tx.sql, id, MOST_FORMER)?;
            }
        }
    }
    Ok(())
}
