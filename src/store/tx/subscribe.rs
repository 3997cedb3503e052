//! Stores channels and the progress of their subscriptions.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::clock;
use crate::protocol::websub::Intent;
use crate::protocol::{Capability, HubUri, TopicUri};
use crate::store::ids::{ChannelId, SetId};
use crate::store::tables::channel::{self, ChannelRecord, NewChannel};
use crate::store::{Store, StoreError, Wake};
use crate::sync::{Channel, Lease, Ruling};

const CHANNEL: StoreError = StoreError::BadRow("a channel");

impl Store {
    /// Adds a channel. Its callback is found by its row, which is on disk before a hub learns the callback.
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
        let (kind, topic, hubs) = (kind.clone(), topic.clone(), hubs.to_vec());
        self.write(move |tx| {
            let new = NewChannel {
                set,
                kind: &kind,
                topic: &topic,
                hubs: &hubs,
                token: &token,
                secret: secret.as_deref(),
                lease: &Lease::new(now),
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
            let record = channel::get(tx.sql, id)?.ok_or(CHANNEL)?;
            let before = record.channel();
            let mut after = before.clone();
            let result = change(&mut after);
            if after != before {
                channel::save(tx.sql, id, &after)?;
            }
            if wake {
                tx.wake(Wake::Channel(record.set, id));
            }
            Ok(result)
        })
        .await
    }

    /// Compares a hub's verification of intent with what was requested, and returns whether to confirm it. `granted` is in
    /// seconds; `spread`, from 0 to 1, selects the time of the renewal. The lease is dated within the transaction: a clock step
    /// that is detected moves only the dates that were written before.
    pub async fn verify_channel(
        self: &Arc<Self>,
        id: ChannelId,
        topic: &TopicUri,
        intent: Intent,
        granted: Option<u64>,
        spread: f64,
    ) -> Result<bool, StoreError> {
        let topic = topic.clone();
        let verify = move |channel: &mut Channel| {
            let now = clock::now().wall;
            channel.verify(now, &topic, intent, granted, spread)
        };
        let ruling = self.change_channel(id, true, verify).await?;
        Ok(ruling != Ruling::Refuse)
    }

    /// Applies a hub's denial: it refuses or ends the subscription. Returns whether the channel has requested the topic.
    pub async fn deny_channel(
        self: &Arc<Self>,
        id: ChannelId,
        now: DateTime<Utc>,
        topic: &TopicUri,
    ) -> Result<bool, StoreError> {
        let topic = topic.clone();
        self.change_channel(id, true, move |channel| channel.deny(now, &topic))
            .await
    }
}
