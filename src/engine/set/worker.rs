//! The worker of one set: waits for whatever comes first (a delivery, a change of a lease, the end of a wait, a poll that is due,
//! a command, the stop), then works until nothing is due.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use resyncd_core::{ChannelState, Pacing, PushWatchdog};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;

use super::package_files::PackageFiles;
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::restarts::{Panicked, catch_panic};
use crate::engine::store_retries::STORE_PAUSE;
use crate::metrics::PollOutcome;
use crate::store::{BaselineState, ChannelId, SetRecord, Wake};

/// How long the baseline waits for the hubs to verify. Of a hub that takes longer nothing is missed: its verification causes
/// a poll.
const SUBSCRIBE_FIRST: Duration = Duration::from_secs(3);

/// What a worker may be asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Poll now.
    Poll,
}

pub(crate) struct SetWorker {
    pub(crate) state: SetState,
    watchdog: PushWatchdog,
    leases: HashMap<ChannelId, (ChannelState, u32)>,
}

impl SetWorker {
    /// Continues a set from the database.
    pub(crate) async fn new(
        context: Arc<SourceContext>,
        packages: Arc<PackageFiles>,
        record: SetRecord,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            state: SetState::load(context, packages, record).await?,
            watchdog: PushWatchdog::default(),
            leases: HashMap::new(),
        })
    }

    /// Works until it is stopped. After a panic its channels are stopped, too: the next worker of the set drives them.
    pub(crate) async fn run(
        mut self,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Result<(), Panicked> {
        let mut wakes = self.state.context.store.wakes();
        let stop = self.state.context.stop.clone();
        let worked = tokio::select! {
            () = stop.cancelled() => Ok(()),
            worked = catch_panic(self.work(&mut wakes, commands)) => worked,
        };
        if worked.is_err() {
            self.state.count_panic();
        }
        self.state.channels.stop().await;
        worked
    }

    async fn work(
        &mut self,
        wakes: &mut broadcast::Receiver<Wake>,
        commands: &mut mpsc::Receiver<Command>,
    ) {
        let state = &mut self.state;
        if let Err(error) = state.channels.follow(&state.record.offers).await {
            state.report_error(&error);
        }
        self.wait_for_hubs(wakes).await;
        loop {
            let pause = self.work_now().await;
            self.rest(wakes, commands, pause).await;
        }
    }

    /// Does what is due now, never waits for something to become due, and shows the result in the status. Returns the pause
    /// before the next try if the database failed.
    pub(crate) async fn work_now(&mut self) -> Option<Duration> {
        let context = &self.state.context;
        let name = format!("worker of the set {}", self.state.record.capability_list);
        let work = context.works_on(&name);
        let worked = self.work_once().await;
        drop(work);
        let pause = match worked {
            Ok(()) => {
                self.report_database(None);
                None
            }
            Err(error) => {
                self.report_database(Some(&error));
                Some(STORE_PAUSE)
            }
        };
        self.state.log_closed_gaps();
        self.publish_status();
        pause
    }

    /// Does what is due now. Fails only if the database does.
    async fn work_once(&mut self) -> Result<(), EngineError> {
        let state = &mut self.state;
        if state.channels.is_behind() {
            state.channels.follow(&state.record.offers).await?;
        }
        let is_due = state.schedule.next_deadline() <= clock::now().mono;
        let is_read = is_due && self.poll().await?;
        if self.state.can_follow() {
            self.state.work_inbox_until_poll().await?;
        }
        if is_read {
            self.state.note_read().await?;
        }
        Ok(())
    }

    /// When something is due next, unless a delivery, a lease or a command comes before.
    pub(crate) fn next_deadline(&self) -> std::time::Instant {
        let state = &self.state;
        let due = state.schedule.next_deadline();
        let held = state.sequencer.next_deadline();
        let held = held.filter(|_| state.can_follow());
        held.map_or(due, |deadline| deadline.min(due))
    }

    /// Polls the set's documents, and returns whether they state everything. Fails only if the database does; then the poll
    /// stays due.
    async fn poll(&mut self) -> Result<bool, EngineError> {
        let polled = self.poll_once().await;
        if polled.is_err() {
            self.state.schedule.poll_now(clock::now());
        }
        polled
    }

    async fn poll_once(&mut self) -> Result<bool, EngineError> {
        let state = &mut self.state;
        let context = Arc::clone(&state.context);
        let set = state.record.id;
        let listening = state.channels.listening().await?;
        let had_gaps = !state.sequencer.gaps().is_empty();
        state.found = 0;
        let polled = self.read_documents().await;
        let state = &mut self.state;
        if std::mem::take(&mut state.rediscovers) {
            context.rediscover.notify_one();
        }
        let outcome = match &polled {
            Ok(Pacing::Regular) => PollOutcome::Complete,
            Ok(Pacing::Soon) => PollOutcome::Incomplete,
            Err(_) => PollOutcome::Failed,
        };
        context.counters.count_poll(set.0, outcome);
        let now = clock::now();
        let is_read = matches!(polled, Ok(Pacing::Regular));
        match polled {
            Ok(pacing) => {
                let found = state.found > 0 && !had_gaps && pacing == Pacing::Regular;
                if let Some((channel, received)) = listening
                    && self.watchdog.polled(received, found)
                {
                    state.channels.fell_silent(channel).await?;
                }
                state.schedule.polled(now, pacing);
                if let Some(since) = context.runtime_status.recover_set(set) {
                    tracing::info!(source = context.name(), set = %state.record.capability_list, since,
                        "set can be polled again");
                }
            }
            Err(EngineError::Store(error)) => return Err(error.into()),
            Err(error) => {
                let pacing = state.fail_reading(&error);
                state.schedule.polled(now, pacing);
            }
        }
        state.drop_unwanted().await?;
        Ok(is_read)
    }

    /// Reads the documents of the set, reports what was found of them, and removes the files of packages that they do not need.
    async fn read_documents(&mut self) -> Result<Pacing, EngineError> {
        let state = &mut self.state;
        let (set, now) = (state.record.id, clock::now().wall);
        let runtime_status = &state.context.runtime_status;
        runtime_status.note_set(set, |facts| facts.last_poll_at = Some(now));
        state.begin_report();
        let polled = state.poll_documents().await;
        state.publish_report();
        let pacing = polled?;
        // While a gap is open, a Resource Dump may still be needed to fill it.
        if pacing == Pacing::Regular {
            state.packages.sweep(set).await?;
        }
        Ok(pacing)
    }

    /// Polls once and works through the inbox, for a Destination that runs once and ends.
    pub(crate) async fn catch_up(mut self) {
        if let Err(error) = self.catch_up_once().await {
            self.state.report_error(&error);
        }
    }

    async fn catch_up_once(&mut self) -> Result<(), EngineError> {
        let (set, now) = (self.state.record.id, clock::now());
        let begins = self.state.record.baseline == BaselineState::Missing;
        let polled = self.read_documents().await;
        let state = &mut self.state;
        let runtime_status = &state.context.runtime_status;
        runtime_status.note_set(set, |facts| facts.polled = true);
        let is_read = matches!(polled, Ok(Pacing::Regular));
        if let Err(error) = polled {
            state.report_error(&error);
        }
        // Not before: a Change List shows which of them only a hub has made up. What has failed in this run has used up its tries.
        state.drop_unwanted().await?;
        state.retry_failed(now.wall).await?;
        while state.can_follow() {
            state.work_inbox().await?;
            // Nothing more is received; but a held notification is ingested only when its wait is over.
            let Some(deadline) = state.sequencer.next_deadline() else {
                break;
            };
            tokio::time::sleep_until(Instant::from_std(deadline)).await;
        }
        if is_read {
            state.note_read().await?;
        }
        // The daemon would wait for a Change List that reaches over the gap. This run ends before.
        if !state.sequencer.gaps().is_empty() && !begins {
            state.read_snapshot().await?;
        }
        Ok(())
    }

    /// Gives the hubs a moment to verify, so that the baseline begins where the notifications do.
    async fn wait_for_hubs(&mut self, wakes: &mut broadcast::Receiver<Wake>) {
        let limit = Instant::from_std(clock::now().mono + SUBSCRIBE_FIRST);
        while self.state.channels.any_pending().await {
            tokio::select! {
                () = tokio::time::sleep_until(limit) => break,
                wake = wakes.recv() => if wake == Err(RecvError::Closed) { break },
            }
        }
        let leases = self.state.channels.leases().await;
        self.note_leases(leases).await;
    }

    /// Logs the subscriptions that have begun since the leases were noted.
    async fn note_leases(&mut self, leases: HashMap<ChannelId, (ChannelState, u32)>) {
        let context = &self.state.context;
        for (&channel, lease) in &leases {
            if lease.0 != ChannelState::Active || self.leases.get(&channel) == Some(lease) {
                continue;
            }
            if let Ok(Some(record)) = context.store.channel(channel).await {
                let event = record.transport.active_event();
                tracing::info!(source = context.name(), transport = record.transport.code(), topic = %record.topic,
                    hub = record.logged_hub(), "{event}");
            }
        }
        self.leases = leases;
    }

    /// Waits until there is something to do.
    async fn rest(
        &mut self,
        wakes: &mut broadcast::Receiver<Wake>,
        commands: &mut mpsc::Receiver<Command>,
        pause: Option<Duration>,
    ) {
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
            return;
        }
        let next = Instant::from_std(self.next_deadline());
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => return,
                Some(command) = commands.recv() => return self.handle_command(command),
                wake = wakes.recv() => {
                    let wake = match wake {
                        Ok(wake) => Some(wake),
                        Err(RecvError::Lagged(_)) => None,
                        // The store outlives the workers.
                        Err(RecvError::Closed) => std::future::pending().await,
                    };
                    if self.react(wake.as_ref()).await {
                        return;
                    }
                }
            }
        }
    }

    /// Does what a command asks for.
    pub(crate) fn handle_command(&mut self, command: Command) {
        match command {
            Command::Poll => self.state.schedule.poll_now(clock::now()),
        }
    }

    /// Reacts to a wake, or to wakes that were skipped (`None`); returns whether there is something to do.
    pub(crate) async fn react(&mut self, wake: Option<&Wake>) -> bool {
        let own = self.state.record.id;
        match wake {
            Some(&Wake::Inbox(set)) if set == own => true,
            Some(&Wake::MissedNotification(set)) if set == own => {
                self.state.schedule.poll_to_check(clock::now());
                true
            }
            Some(&Wake::Channel(set, _)) if set == own => {
                self.check_leases().await;
                true
            }
            Some(_) => false,
            None => {
                self.check_leases().await;
                // What was skipped may have been of a notification that was not read.
                if self.state.channels.any_without_intervals().await {
                    self.state.schedule.poll_to_check(clock::now());
                }
                true
            }
        }
    }

    /// Makes a poll due after every subscription that begins, and every denial: hubs coalesce, drop and forget. A renewal
    /// without an interruption causes none: a hub must not set the pace of the polls by its leases.
    async fn check_leases(&mut self) {
        let leases = self.state.channels.leases().await;
        let has_changed = leases.iter().any(|(channel, lease)| {
            matches!(lease.0, ChannelState::Active | ChannelState::Denied)
                && self.leases.get(channel) != Some(lease)
        });
        if has_changed {
            self.watchdog = PushWatchdog::default();
            self.state.schedule.poll_now(clock::now());
        }
        self.note_leases(leases).await;
    }

    /// Shows a database error, or that there is none any more; logs the change. It says nothing about errors of the documents:
    /// only a poll clears those.
    fn report_database(&self, error: Option<&EngineError>) {
        let state = &self.state;
        if let Some(error) = error {
            state.context.note_unreadable(error);
        }
        let status_error = error.map(EngineError::status_error);
        let (runtime_status, set) = (&state.context.runtime_status, state.record.id);
        let shown = runtime_status.set(set).database_error;
        let source = state.context.name();
        match (&status_error, &shown) {
            (Some(now), None) => {
                tracing::error!(code = now.code, source, set = %state.record.capability_list,
                error = now.message, "database error; retrying")
            }
            (None, Some(_)) => {
                tracing::info!(source, set = %state.record.capability_list, "database can be read again")
            }
            _ => {}
        }
        if status_error != shown {
            runtime_status.note_set(set, |facts| facts.database_error = status_error);
        }
    }

    fn publish_status(&self) {
        let state = &self.state;
        let now = clock::now();
        let until = state
            .schedule
            .next_deadline()
            .saturating_duration_since(now.mono);
        let next_poll_at = now.plus(until).wall;
        let held = state.sequencer.held() as u64;
        state
            .context
            .runtime_status
            .note_set(state.record.id, |facts| {
                facts.next_poll_at = Some(next_poll_at);
                facts.polled = true;
                facts.held_notifications = held;
            });
    }
}
