//! Once through: every set is polled, what waits in its inbox is worked off, what is to be fetched is fetched, and then it
//! ends. The same workers as the daemon's, but nothing is subscribed to, and the subscriptions that there are stay as they
//! are.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant as Moment};

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::applier::Applier;
use super::context::SourceContext;
use super::progress::Counts;
use super::runtime_status::SourceState;
use super::set::SetWorker;
use super::set_discovery::{KnownSets, find_sets, is_wanted};
use super::{Engine, EngineError, view};
use crate::clock;
use crate::config::Config;
use crate::fetch::{Bounds, Client, KnownWay, pause};
use crate::mirror::Mirror;
use crate::status::{Status, StatusError};
use crate::store::{BaselineState, SetRecord, Store, Wake};

/// How often a Source is asked for its sets.
const TRIES: Bounds = Bounds {
    tries: 3,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(10),
};
/// What becomes due later than this is left to another run: longer than the pauses between the tries of one resource.
const PATIENCE: Duration = Duration::from_secs(100);
/// The shortest and the longest pause between two looks at what is left to do.
const PACE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));

impl Engine {
    /// Prepares to bring the Sources of the configuration in step once. Nothing happens before
    /// [`catch_up`](Self::catch_up).
    #[must_use]
    pub fn once(config: &Config, store: Arc<Store>, client: &Client) -> Arc<Self> {
        Arc::new(Self::new(config, store, client, false))
    }

    /// Brings the Sources in step, or as far as that goes, and tells how their sets stand then. Ends early, and in order,
    /// once it is [interrupted](Self::interrupt).
    ///
    /// # Errors
    /// When the database can't tell.
    pub async fn catch_up(&self) -> Result<Status, StatusError> {
        let worked = self
            .sources
            .iter()
            .map(|source| source.context.clone().catch_up());
        let worked: HashSet<String> = join_all(worked).await.into_iter().flatten().collect();
        let viewed = view::status(self).await;
        let mut status = viewed.map_err(|error| error.status_error())?;
        for source in &mut status.sources {
            // What a Source no longer has is not what it is in step with; the daemon ends it.
            source
                .sets
                .retain(|set| worked.contains(&set.capability_list));
        }
        Ok(status)
    }

    /// Lets [`catch_up`](Self::catch_up) finish what is under way, and end.
    pub fn interrupt(&self) {
        self.stop.cancel();
    }

    /// Waits until the database is found to be damaged: then nothing comes of going on.
    pub async fn damaged(&self) {
        self.store.damaged().await;
    }

    /// What has been done for each Source, in the order of the configuration.
    #[must_use]
    pub fn counts(&self) -> Vec<Counts> {
        let followed = self.sources.iter();
        followed
            .map(|source| source.context.progress.counts())
            .collect()
    }

    /// How many changes of each Source are known and not applied yet; 0 where the database can't tell just now.
    pub async fn pending(&self) -> Vec<u64> {
        let pending = self.sources.iter().map(async |source| {
            let pending = self.store.pending(source.context.name()).await;
            pending.unwrap_or_default()
        });
        join_all(pending).await
    }
}

impl SourceContext {
    /// Brings one Source in step; answers which of its sets were worked on.
    async fn catch_up(self: Arc<Self>) -> Vec<String> {
        let mut worked = Vec::new();
        let root = self.source.mirror.clone();
        let opening = tokio::task::spawn_blocking(move || Mirror::open(&root)).await;
        let mirror = match opening {
            Ok(Ok(mirror)) => mirror,
            Ok(Err(error)) => {
                self.fail(error.code(), error.to_string());
                return worked;
            }
            Err(_) => {
                let error = EngineError::Interrupted;
                self.fail(error.code(), error.to_string());
                return worked;
            }
        };
        self.applying(Arc::new(mirror), self.work_through(&mut worked))
            .await;
        worked
    }

    /// Has tasks carried out while work goes on; ends that, in order, when the work ends or is to stop.
    pub(super) async fn applying(
        self: &Arc<Self>,
        mirror: Arc<Mirror>,
        work: impl Future<Output = ()>,
    ) {
        let applier = tokio::spawn(Applier::new(Arc::clone(self), mirror).run());
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = work => {}
        }
        self.stop.cancel();
        if let Err(error) = applier.await {
            tracing::error!(code = "applier", source = self.name(), %error, "the applier ended badly");
        }
    }

    async fn work_through(self: &Arc<Self>, worked: &mut Vec<String>) {
        let sets = match self.find_sets_patiently().await {
            Ok(sets) => sets,
            Err(error) => {
                self.fail(error.code(), error.to_string());
                // They need nothing of the entry point to be brought in step.
                self.known_sets().await
            }
        };
        worked.extend(sets.iter().map(|set| set.capability_list.to_string()));
        join_all(sets.into_iter().map(|set| self.catch_up_set(set))).await;
        self.drain().await;
    }

    async fn find_sets_patiently(&self) -> Result<Vec<SetRecord>, EngineError> {
        let mut tries = 0;
        let found = loop {
            let known = KnownSets {
                followed: &HashSet::new(),
                had_resourcesync: self.had_resourcesync().await?,
            };
            let (limit, mut way) = (self.limits.document, KnownWay::default());
            let found = find_sets(&self.client, &self.source, limit, known, &mut way).await;
            let error = match found {
                Ok(found) => break found,
                Err(error) => error,
            };
            tries += 1;
            let Some(pause) = pause(tries, None, &TRIES) else {
                return Err(error);
            };
            tokio::time::sleep(pause).await;
        };
        let mut sets = Vec::new();
        for set in &found.sets {
            sets.push(self.begin_set(set).await?);
        }
        match found.status_error {
            Some(error) => self.fail(error.code(), error.to_string()),
            None => self
                .runtime_status
                .note_source(self.name(), SourceState::Ok, None),
        }
        Ok(sets)
    }

    async fn known_sets(&self) -> Vec<SetRecord> {
        let mut known = self.store.sets(self.name()).await.unwrap_or_default();
        known.retain(|set| is_wanted(&self.source, &set.capability_list));
        known
    }

    async fn catch_up_set(self: &Arc<Self>, record: SetRecord) {
        let id = record.id;
        // Nobody sends a command.
        let (_, commands) = mpsc::channel(1);
        match SetWorker::new(Arc::clone(self), record, commands).await {
            Ok(worker) => worker.catch_up().await,
            Err(error) => self
                .runtime_status
                .note_set(id, |facts| facts.failing = Some(error.status_error())),
        }
    }

    /// Waits until there is nothing left to do, or nothing moves any more.
    pub(super) async fn drain(&self) {
        let mut wakes = self.store.wakes();
        let stalled = PATIENCE + self.client.timeout();
        let mut moved = (self.moved(), clock::now().mono);
        loop {
            let now = clock::now();
            match self.store.next_due(self.name()).await {
                Ok(None) => return,
                Ok(Some(due)) if due > now.plus(PATIENCE).wall => return,
                Ok(Some(_)) => {}
                Err(error) => {
                    tracing::error!(code = error.code(), source = self.name(), %error, "the tasks can't be read")
                }
            }
            if self.has_stalled(&mut moved, now.mono, stalled) {
                tracing::warn!(
                    code = "stalled",
                    source = self.name(),
                    "nothing moves any more: the rest is left to another run"
                );
                return;
            }
            tokio::time::sleep(PACE.0).await;
            let name = self.name();
            let woken = async {
                while let Ok(wake) = wakes.recv().await {
                    if matches!(wake, Wake::Tasks(source) if source == name) {
                        break;
                    }
                }
            };
            // Whether woken or not, the next look is due.
            let _ = tokio::time::timeout(PACE.1, woken).await;
        }
    }

    fn has_stalled(&self, moved: &mut (u64, Moment), now: Moment, longest: Duration) -> bool {
        let moved_now = self.moved();
        if moved_now != moved.0 {
            *moved = (moved_now, now);
        }
        now.saturating_duration_since(moved.1) > longest
    }

    /// A number that grows while work goes on. What is fetched again and again for a disk that refuses it does not count.
    fn moved(&self) -> u64 {
        let counts = self.progress.counts();
        let bytes = if self.runtime_status.is_refused(self.name()) {
            0
        } else {
            counts.bytes
        };
        counts.documents + counts.applied + counts.failed + bytes
    }

    fn fail(&self, code: &str, message: String) {
        tracing::warn!(
            code,
            source = self.name(),
            error = message,
            "a Source can't be brought in step"
        );
        let status_error = StatusError::new(code, message, clock::now().wall);
        self.runtime_status
            .note_source(self.name(), SourceState::Failing, Some(status_error));
    }
}

impl SetWorker {
    /// Polls once and works the inbox off.
    async fn catch_up(mut self) {
        if let Err(error) = self.work_through().await {
            self.tell(&error);
        }
    }

    async fn work_through(&mut self) -> Result<(), EngineError> {
        let now = clock::now();
        let set = self.record.id;
        self.context
            .runtime_status
            .note_set(set, |facts| facts.last_poll_at = Some(now.wall));
        let begins = self.record.baseline == BaselineState::Missing;
        // Before the poll: what fails in this run has had its tries.
        self.retry_failed(now.wall).await?;
        let looked = self.look().await;
        self.context
            .runtime_status
            .note_set(set, |facts| facts.looked = true);
        if let Err(error) = looked {
            self.tell(&error);
        }
        while self.can_follow() {
            self.work_inbox().await?;
            // Nothing more comes in; but what is held has its turn only when its wait is over.
            let Some(deadline) = self.sequencer.next_deadline() else {
                break;
            };
            tokio::time::sleep_until(Instant::from_std(deadline)).await;
        }
        // The daemon would wait for a Change List that reaches over the gap. There is no later here.
        if !self.sequencer.gaps().is_empty() && !begins {
            self.read_snapshot().await?;
        }
        Ok(())
    }
}
