//! WebSub: the driver of the machine of one channel performs its actions and returns their results to it. It decides nothing.

use std::sync::Arc;

use resyncd_core::{
    Channel, ChannelAction, ChannelEvent, ChannelMachine, ChannelReport, ChannelRules, ChannelStep,
    NOT_VERIFIED, Now,
};
use websub::Intent;

use super::context::ChannelContext;
use super::keys::fresh_keys;
use super::requests::{read_topic, send_request};
use super::waiting::wait;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::restarts::Panicked;
use crate::engine::store_retries::STORE_PAUSE;
use crate::engine::unencrypted_hubs::{UNENCRYPTED_CODE, is_unencrypted};
use crate::store::{ChannelId, ChannelRecord, Store, StoreError};

/// The machine of one channel, and where its other half is stored.
pub(super) struct StoredMachine<'a> {
    store: &'a Arc<Store>,
    id: ChannelId,
    is_signed: bool,
    ends_only: bool,
    machine: ChannelMachine,
}

impl<'a> StoredMachine<'a> {
    /// `ends_only`: it ends where the channel is not left.
    pub(super) fn new(
        store: &'a Arc<Store>,
        channel: &ChannelRecord,
        rules: ChannelRules,
        ends_only: bool,
    ) -> Self {
        Self {
            store,
            id: channel.id,
            is_signed: channel.secret.is_some(),
            ends_only,
            machine: ChannelMachine::new(clock::now(), rules),
        }
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
                if ends_only && !channel.is_unwanted {
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

/// Drives a channel until its subscription has ended. Fails if the machine panics, which runs where the store commits.
pub(super) async fn drive_to_end(
    context: &ChannelContext,
    channel: &ChannelRecord,
) -> Result<(), Panicked> {
    let (store, client) = (&context.store, context.transports.client());
    let mut wakes = store.wakes();
    let mut stored = StoredMachine::new(store, channel, context.rules.clone(), context.ends_only);
    let mut event = ChannelEvent::Started;
    let mut warned = None;
    loop {
        let now = clock::now();
        let (step, record) = match stored.handle(now, event).await {
            Ok(handled) => handled,
            Err(EngineError::Store(StoreError::NoChannel)) => return Ok(()),
            Err(EngineError::Panicked(_)) => return Err(Panicked),
            Err(error) => {
                if let EngineError::Store(error) = &error {
                    store.note_unreadable(&context.source, error);
                }
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
            Some(ChannelReport::Failed(mut failure)) => {
                if failure.code == NOT_VERIFIED
                    && let Some(other) = &record.rejected_topic
                {
                    failure.message.push_str(&format!(
                        "; a verification of another topic was rejected: {other}"
                    ));
                }
                context.report(channel, record.hub_name(), failure);
            }
        }
        event = match step.action {
            ChannelAction::ReadTopic(topic) => {
                let _work = context.asks(channel);
                read_topic(client, &context.source, &topic).await
            }
            ChannelAction::SendRequest(request) => {
                let has_secret =
                    record.secret.is_some() && request.asked.intent == Intent::Subscribe;
                let is_exposed = has_secret && is_unencrypted(&request.hub);
                if is_exposed && warned.as_ref() != Some(&request.hub) {
                    tracing::warn!(code = UNENCRYPTED_CODE, source = context.source, topic = %channel.topic, hub = %request.hub,
                        "the secret of the subscription is sent unencrypted: the hub has no https");
                    warned = Some(request.hub.clone());
                }
                let _work = context.asks(channel);
                send_request(client, &record, &request).await
            }
            ChannelAction::WaitUntil(time) => {
                wait(&mut wakes, channel.id, time, now).await;
                ChannelEvent::Woken
            }
            ChannelAction::End => return Ok(()),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use resourcesync::Capability;
    use resyncd_core::{HubUri, TopicUri};
    use tokio::sync::mpsc;
    use url::Url;

    use super::*;
    use crate::engine::channels::driver::drive;
    use crate::engine::tests::{Answering, NAME, TestSource};
    use crate::store::Step;

    const TOPIC: &str = "https://example.org/topic";
    const HUB: &str = "https://hub.example.org/";
    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    /// Checks that a driver that panics once is shown and started again, and what it requests then. `at_request`: whether it
    /// panics at its first request; its machine, which runs where the store commits, panics else.
    async fn check(at_request: bool, expected: &str) {
        let list = Url::parse("https://example.org/capabilitylist.xml").unwrap();
        let may_answer = AtomicBool::new(!at_request);
        let (requests, mut requested) = mpsc::unbounded_channel();
        let source = TestSource::new(&list, |client| {
            client.with_network(Arc::new(Answering(move |url: &Url| {
                assert!(may_answer.swap(true, Ordering::SeqCst), "a test");
                let _ = requests.send(url.clone());
                None
            })))
        });
        let (store, set) = (&source.store, source.store.begin_set(NAME, &list));
        let may_step = AtomicBool::new(at_request);
        store.commit_hook().panic_at(move |step| {
            let is_step = matches!(step, Step::Job(name, _) if name.contains("::step_channel"));
            is_step && !may_step.swap(true, Ordering::SeqCst)
        });
        let (set, now) = (set.await.unwrap().id, clock::now().wall);
        let kind = Capability::ChangeNotification;
        let topic = TopicUri::parse(TOPIC).unwrap();
        let (hubs, keys) = ([HubUri::parse(HUB).unwrap()], fresh_keys(true).unwrap());
        let channel = store.add_channel(now, set, &kind, &topic, &hubs, keys);
        let channel = channel.await.unwrap();
        let context = ChannelContext::of(&source.context);
        let context = Arc::new(ChannelContext {
            rules: ChannelRules {
                callback_base: Some("https://destination.example.org/".to_owned()),
                ..context.rules.clone()
            },
            ..context
        });
        let driving = tokio::spawn(drive(Arc::clone(&context), channel.clone()));
        let requested = tokio::time::timeout(LIMIT, requested.recv()).await;
        assert_eq!(requested.unwrap().unwrap().as_str(), expected);
        let error = context.runtime_status.channel(channel.id).unwrap();
        assert_eq!(error.code, "worker-panicked");
        let stored = store.channel(channel.id).await.unwrap().unwrap();
        assert_eq!(stored.lease.asked.unwrap().intent, Intent::Subscribe);
        // It is never answered.
        let (heartbeats, now) = (&context.heartbeats, clock::now().mono);
        assert!(heartbeats.stalled(now, LIMIT).is_empty());
        let name = format!("driver of the channel {} (Source {NAME})", channel.topic);
        assert_eq!(heartbeats.stalled(now + LIMIT, LIMIT), [name]);
        context.stop.cancel();
        tokio::time::timeout(LIMIT, driving).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn driver_that_panics_is_shown_and_started_again() {
        // What became of the request is unknown: it counts as failed, and the topic is read before the next one.
        check(true, TOPIC).await;
        check(false, HUB).await;
    }
}
