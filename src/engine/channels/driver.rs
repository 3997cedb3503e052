//! The driver of the machine of one channel: performs its actions and returns their results to it. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::context::ChannelContext;
use super::keys::fresh_keys;
use super::requests::{read_topic, send_request};
use crate::clock::{self, Now};
use crate::engine::EngineError;
use crate::store::{ChannelId, ChannelRecord, Store, StoreError, Wake};
use crate::sync::{
    Channel, ChannelAction, ChannelEvent, ChannelMachine, ChannelReport, ChannelRules, ChannelStep,
};

/// The longest single wait: the wall clock may be set during it.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// The pause after a database error.
const STORE_PAUSE: Duration = Duration::from_secs(2);

/// The machine of one channel, and where its other half is stored.
pub(super) struct StoredMachine<'a> {
    store: &'a Arc<Store>,
    id: ChannelId,
    is_signed: bool,
    ends_only: bool,
    machine: ChannelMachine,
}

impl<'a> StoredMachine<'a> {
    pub(super) fn new(store: &'a Arc<Store>, channel: &ChannelRecord, rules: ChannelRules) -> Self {
        Self {
            store,
            id: channel.id,
            is_signed: channel.secret.is_some(),
            ends_only: false,
            machine: ChannelMachine::new(clock::now(), rules),
        }
    }

    /// The same, which ends where the channel is not left.
    pub(super) fn that_ends_only(self, ends_only: bool) -> Self {
        Self { ends_only, ..self }
    }

    /// Handles an event. The machine and the stored channel change only if the commit succeeds. Also returns the channel after
    /// it.
    pub(super) async fn handle(
        &mut self,
        now: Now,
        event: ChannelEvent,
    ) -> Result<(ChannelStep, ChannelRecord), EngineError> {
        self.change_and_handle(now, |_| {}, event).await
    }

    /// Changes the stored channel and handles an event, in one transaction.
    pub(super) async fn change_and_handle(
        &mut self,
        now: Now,
        change: impl FnOnce(&mut Channel) + Send + 'static,
        event: ChannelEvent,
    ) -> Result<(ChannelStep, ChannelRecord), EngineError> {
        let mut machine = self.machine.clone();
        let (fresh, ends_only) = (fresh_keys(self.is_signed)?, self.ends_only);
        let ((machine, step), record) = self
            .store
            .step_channel(self.id, fresh, move |channel| {
                change(channel);
                if ends_only && !channel.left {
                    return (machine, ChannelAction::End.into());
                }
                let step = machine.handle(channel, now, event);
                (machine, step)
            })
            .await?;
        self.machine = machine;
        Ok((step, record))
    }
}

/// Drives a channel until its subscription has ended, or until the driver is stopped.
pub(super) async fn drive(context: Arc<ChannelContext>, channel: ChannelRecord) {
    tokio::select! {
        () = context.stop.cancelled() => {}
        () = drive_to_end(&context, &channel) => {}
    }
}

async fn drive_to_end(context: &ChannelContext, channel: &ChannelRecord) {
    let (store, client) = (&context.store, &context.client);
    let mut wakes = store.wakes();
    let stored = StoredMachine::new(store, channel, context.rules.clone());
    let mut stored = stored.that_ends_only(context.ends_only);
    let mut event = ChannelEvent::Started;
    loop {
        let now = clock::now();
        let (step, record) = match stored.handle(now, event).await {
            Ok(handled) => handled,
            Err(EngineError::Store(StoreError::NoChannel)) => return,
            Err(error) => {
                tracing::error!(code = error.code(), source = context.source, topic = %channel.topic, %error,
                    "database error; the subscription is retried");
                tokio::time::sleep(STORE_PAUSE).await;
                event = ChannelEvent::Started;
                continue;
            }
        };
        match step.report {
            None => {}
            Some(ChannelReport::Healthy) => context.clear(channel),
            Some(ChannelReport::HubSkipped(hub, failure)) => {
                tracing::info!(code = failure.code, source = context.source, topic = %channel.topic, %hub,
                    error = failure.message, "hub refused the subscription; trying the next hub");
            }
            Some(ChannelReport::Failed(failure)) => {
                context.report(channel, record.hub_name(), failure);
            }
        }
        event = match step.action {
            ChannelAction::ReadTopic(topic) => read_topic(client, &context.source, &topic).await,
            ChannelAction::SendRequest(request) => send_request(client, &record, &request).await,
            ChannelAction::WaitUntil(time) => {
                wait(&mut wakes, channel.id, time, now).await;
                ChannelEvent::Woken
            }
            ChannelAction::End => return,
        };
    }
}

/// Waits until a time of the wall clock, or until the stored channel changes.
///
/// The clock may have been set since `begun`, and `until` may be a time of either clock: the shorter wait is right.
pub(super) async fn wait(
    wakes: &mut broadcast::Receiver<Wake>,
    id: ChannelId,
    until: DateTime<Utc>,
    begun: Now,
) {
    let now = clock::now();
    let pause = (until - now.wall.max(begun.wall))
        .to_std()
        .unwrap_or_default()
        .min(LONGEST_WAIT);
    let deadline = Instant::from_std(now.mono + pause);
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => return,
            wake = wakes.recv() => match wake {
                Ok(Wake::Channel(_, channel)) if channel == id => return,
                Err(RecvError::Lagged(_)) => return,
                Ok(_) => {}
                // The store outlives the drivers.
                Err(RecvError::Closed) => std::future::pending().await,
            },
        }
    }
}
