//! The worker of one set: the only one that moves its coverage.
//!
//! It waits for whatever comes first: a delivery, a hub's word, the end of a wait, a poll that is due, or to be told to
//! stop. Then it works until there is nothing to do, and tells the board how the set stands.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::EngineError;
use super::channels::Channels;
use super::context::SourceContext;
use super::dumps::change_dumps::ReadDump;
use super::lists::change_lists::ReadLists;
use crate::clock;
use crate::protocol::Capability;
use crate::status::StatusError;
use crate::store::{BaselineState, ChannelId, SetRecord, Wake};
use crate::sync::{ChannelState, Limits, Pacing, PushWatchdog, Schedule, Sequencer};

/// How long the baseline waits for the channels to be subscribed to. A hub that takes longer misses nothing that the poll
/// after its verification does not bring.
const SUBSCRIBE_FIRST: Duration = Duration::from_secs(3);
/// The pause after the database refused to take something.
const STORE_PAUSE: Duration = Duration::from_secs(2);

/// What a set may be told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Poll now.
    Poll,
}

pub(super) struct SetWorker {
    pub(super) context: Arc<SourceContext>,
    pub(super) record: SetRecord,
    pub(super) sequencer: Sequencer,
    pub(super) schedule: Schedule,
    /// Whether a baseline could not be made when it was tried last, and not only for the moment.
    pub(super) baseline_failed: bool,
    pub(super) channels: Channels,
    /// The last delivery that was looked at.
    pub(super) seen: i64,
    /// What is remembered of the Change Lists.
    pub(super) lists: ReadLists,
    /// The Change Dump that was read last.
    pub(super) dump: Option<ReadDump>,
    /// Changes that the poll under way has found.
    pub(super) found: u64,
    silence: PushWatchdog,
    leases: HashMap<ChannelId, (ChannelState, Option<DateTime<Utc>>)>,
    commands: mpsc::Receiver<Command>,
}

impl SetWorker {
    /// Continues a set from what the database knows of it.
    pub(super) async fn new(
        context: Arc<SourceContext>,
        record: SetRecord,
        commands: mpsc::Receiver<Command>,
    ) -> Result<Self, EngineError> {
        context
            .runtime_status
            .begin_set(record.id, &record.capability_list);
        let (coverage, gaps) = context.store.progress(record.id).await?;
        let limits = Limits {
            reorder_window: context.source.reorder_window,
            held_notifications: context.limits.held_notifications,
        };
        Ok(Self {
            sequencer: Sequencer::new(limits, coverage, gaps).having_read(record.read_until),
            schedule: Schedule::new(clock::now(), context.source.poll_interval),
            baseline_failed: false,
            channels: Channels::new(Arc::clone(&context), record.id),
            seen: 0,
            lists: ReadLists::default(),
            dump: None,
            found: 0,
            silence: PushWatchdog::default(),
            leases: HashMap::new(),
            commands,
            context,
            record,
        })
    }

    /// Works until told to stop.
    pub(super) async fn run(mut self) {
        let mut wakes = self.context.store.wakes();
        let stop = self.context.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.work(&mut wakes) => {}
        }
        self.channels.stop().await;
    }

    async fn work(&mut self, wakes: &mut broadcast::Receiver<Wake>) {
        if let Err(error) = self.channels.follow(&self.record.offers).await {
            self.tell(&error);
        }
        self.wait_for_hubs(wakes).await;
        loop {
            let pause = self.work_now().await;
            self.rest(wakes, pause).await;
        }
    }

    /// Does what is due now, without waiting for what is due later, and reports it. Returns the pause before the next try if
    /// the database failed.
    pub(super) async fn work_now(&mut self) -> Option<Duration> {
        let pause = match self.work_once().await {
            Ok(()) => {
                self.tell_database(None);
                None
            }
            Err(error) => {
                self.tell_database(Some(&error));
                Some(STORE_PAUSE)
            }
        };
        self.note();
        pause
    }

    /// When there is something to do, unless something happens before.
    pub(super) fn next_deadline(&self) -> std::time::Instant {
        let due = self.schedule.next_deadline();
        let waits = self.sequencer.next_deadline().filter(|_| self.can_follow());
        waits.map_or(due, |deadline| deadline.min(due))
    }

    /// Does what is due now. Fails only if the database does.
    async fn work_once(&mut self) -> Result<(), EngineError> {
        if self.channels.is_behind() {
            self.channels.follow(&self.record.offers).await?;
        }
        if self.schedule.next_deadline() <= clock::now().mono {
            self.poll().await?;
        }
        if self.can_follow() {
            self.work_inbox().await?;
        }
        Ok(())
    }

    /// Notifications wait until the baseline is read, unless there is nothing to make one from, or not all of it.
    pub(super) fn can_follow(&self) -> bool {
        self.record.baseline != BaselineState::Missing
            || self.baseline_failed
            || !self.record.offers.iter().any(|offer| {
                matches!(
                    offer.capability,
                    Capability::ResourceList | Capability::ResourceDump
                )
            })
    }

    /// Polls, and notes how it went. Fails only if the database does.
    async fn poll(&mut self) -> Result<(), EngineError> {
        let set = self.record.id;
        let now = clock::now();
        self.context
            .runtime_status
            .note_set(set, |facts| facts.last_poll_at = Some(now.wall));
        let listening = self.channels.listening().await?;
        let had_gaps = !self.sequencer.gaps().is_empty();
        self.found = 0;
        let looked = self.look().await;
        let now = clock::now();
        match looked {
            Ok(pacing) => {
                let found = self.found > 0 && !had_gaps && pacing == Pacing::Regular;
                if let Some((channel, received)) = listening
                    && self.silence.polled(received, found)
                {
                    self.channels.fell_silent(channel).await?;
                }
                self.schedule.polled(now, pacing);
                self.context
                    .runtime_status
                    .note_set(set, |facts| facts.failing = None);
                self.context.sweep_packages(set).await?;
            }
            Err(EngineError::Store(error)) => return Err(error.into()),
            Err(error) => {
                self.schedule.polled(now, Pacing::Soon);
                self.tell(&error);
            }
        }
        self.retry_failed(now.wall).await
    }

    /// Makes the tasks due again that were given up, as far as they are still wanted.
    pub(super) async fn retry_failed(&self, now: DateTime<Utc>) -> Result<(), EngineError> {
        let (store, set) = (&self.context.store, self.record.id);
        if !self.context.source.filter.wants_everything() {
            let filter = self.context.source.filter.clone();
            store
                .drop_unwanted(set, move |uri| filter.wants(uri))
                .await?;
        }
        store.retry_failed(set, self.context.name(), now).await?;
        Ok(())
    }

    /// Gives the hubs a moment to verify, so that the baseline begins where the notifications do.
    async fn wait_for_hubs(&mut self, wakes: &mut broadcast::Receiver<Wake>) {
        let patience = Instant::from_std(clock::now().mono + SUBSCRIBE_FIRST);
        while self.channels.any_pending().await {
            tokio::select! {
                () = tokio::time::sleep_until(patience) => break,
                wake = wakes.recv() => if wake == Err(RecvError::Closed) { break },
            }
        }
        self.leases = self.channels.leases().await;
    }

    /// Waits until there is something to do.
    async fn rest(&mut self, wakes: &mut broadcast::Receiver<Wake>, pause: Option<Duration>) {
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
            return;
        }
        let next = Instant::from_std(self.next_deadline());
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => return,
                Some(Command::Poll) = self.commands.recv() => {
                    self.schedule.hurry(clock::now());
                    return;
                }
                wake = wakes.recv() => match wake {
                    Ok(Wake::Inbox(set)) if set == self.record.id => return,
                    Ok(Wake::Channel(set, _)) if set == self.record.id => {
                        self.look_at_leases().await;
                        return;
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => {
                        self.look_at_leases().await;
                        return;
                    }
                    // The store outlives the workers.
                    Err(RecvError::Closed) => std::future::pending().await,
                },
            }
        }
    }

    /// After every verified subscription or renewal, and after a denial, one poll: hubs coalesce, drop and forget.
    pub(super) async fn look_at_leases(&mut self) {
        let leases = self.channels.leases().await;
        let told = leases.iter().any(|(channel, lease)| {
            matches!(lease.0, ChannelState::Active | ChannelState::Denied)
                && self.leases.get(channel) != Some(lease)
        });
        if told {
            self.silence = PushWatchdog::default();
            self.schedule.hurry(clock::now());
        }
        self.leases = leases;
    }

    /// Tells, once, that the database refuses something, and once that it works again. What kept the documents from being
    /// read is another matter: only a poll knows when that has passed.
    fn tell_database(&self, error: Option<&EngineError>) {
        let status_error = error.map(EngineError::status_error);
        let (runtime_status, set) = (&self.context.runtime_status, self.record.id);
        let known = runtime_status.set(set).refused;
        let source = self.context.name();
        match (&status_error, &known) {
            (Some(now), None) => {
                tracing::error!(code = now.code, source, set = %self.record.capability_list,
                error = now.message, "the database can't be worked with: the set waits")
            }
            (None, Some(_)) => {
                tracing::info!(source, set = %self.record.capability_list, "the database works again")
            }
            _ => {}
        }
        if status_error != known {
            runtime_status.note_set(set, |facts| facts.refused = status_error);
        }
    }

    /// Tells, once, that something did not work.
    pub(super) fn tell(&self, error: &EngineError) {
        let status_error = error.status_error();
        let known = self.context.runtime_status.set(self.record.id).failing;
        if !known.is_some_and(|known| {
            known.code == status_error.code && known.message == status_error.message
        }) {
            tracing::warn!(code = status_error.code, source = self.context.name(), set = %self.record.capability_list,
                error = status_error.message, "a set can't be followed for now");
        }
        self.context
            .runtime_status
            .note_set(self.record.id, |facts| facts.failing = Some(status_error));
    }

    /// Tells of something that is odd, but keeps nothing from going on.
    pub(super) fn notice(&self, status_error: Option<StatusError>) {
        self.context
            .runtime_status
            .note_set(self.record.id, |facts| facts.notice = status_error);
    }

    /// Tells no longer of something that was odd.
    pub(super) fn end_notice(&self, code: &str) {
        self.context
            .runtime_status
            .note_set(self.record.id, |facts| {
                facts.notice.take_if(|notice| notice.code == code);
            });
    }

    fn note(&self) {
        let now = clock::now();
        let until = self
            .schedule
            .next_deadline()
            .saturating_duration_since(now.mono);
        let next_poll_at = now.plus(until).wall;
        let held = self.sequencer.held() as u64;
        self.context
            .runtime_status
            .note_set(self.record.id, |facts| {
                facts.next_poll_at = Some(next_poll_at);
                facts.looked = true;
                facts.held = held;
            });
    }
}
