//! The worker of one Source: finds its sets, and has a worker follow each.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::EngineError;
use super::applier::Applier;
use super::channels::Channels;
use super::context::SourceContext;
use super::runtime_status::SourceState;
use super::set::{Command, SetWorker};
use super::set_discovery::{FoundSet, KnownSets, find_sets, is_wanted};
use crate::clock;
use crate::fetch::{Bounds, KnownWay, pause};
use crate::mirror::{Mirror, MirrorError};
use crate::status::StatusError;
use crate::store::{SetId, SetRecord};

/// New sets are looked for at the pace of the polls, but no more often than this.
const SHORTEST_PACE: Duration = Duration::from_secs(60);
/// The pace of that for a site without ResourceSync: its sitemaps tell their changes themselves, and it is asked for much
/// before it is known to have nothing else.
const PACE_WITHOUT_RESOURCESYNC: Duration = Duration::from_secs(3600);
/// The first pause after something that a Source needs was not there.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause before a mirror that could not be opened is tried again: nobody elsewhere is asked for anything.
const LONGEST_MIRROR_PAUSE: Duration = Duration::from_secs(10);

/// Follows one Source until told to stop.
pub(super) struct SourceWorker {
    context: Arc<SourceContext>,
    commands: mpsc::Receiver<Command>,
    sets: HashMap<SetId, FollowedSet>,
    way: KnownWay,
    failures: u32,
}

struct FollowedSet {
    capability_list: Url,
    /// Whether it is a sitemap that stands alone.
    is_implied: bool,
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

impl FollowedSet {
    /// Has its worker end, wherever it is.
    async fn end(&mut self) {
        self.task.abort();
        self.ended().await;
    }

    /// Waits until its worker has ended.
    async fn ended(&mut self) {
        if !self.task.is_finished() {
            // A worker that panicked has told so.
            let _ = (&mut self.task).await;
        }
    }
}

impl SourceWorker {
    pub(super) fn new(context: Arc<SourceContext>, commands: mpsc::Receiver<Command>) -> Self {
        Self {
            context,
            commands,
            sets: HashMap::new(),
            way: KnownWay::default(),
            failures: 0,
        }
    }

    pub(super) async fn run(mut self) {
        let stop = self.context.stop.clone();
        let Some(mirror) = self.open_mirror(&stop).await else {
            return;
        };
        let applier = tokio::spawn(Applier::new(Arc::clone(&self.context), Arc::new(mirror)).run());
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
        for set in self.sets.values_mut() {
            set.ended().await;
        }
        let _ = applier.await;
    }

    /// A mirror that can't be had is this Source's trouble alone: it is told, and tried again.
    async fn open_mirror(&mut self, stop: &CancellationToken) -> Option<Mirror> {
        loop {
            let root = self.context.source.mirror.clone();
            let opening = tokio::task::spawn_blocking(move || Mirror::open(&root))
                .await
                .ok()?;
            match opening {
                Ok(mirror) => {
                    self.context
                        .runtime_status
                        .note_taken(self.context.name(), None);
                    self.failures = 0;
                    return Some(mirror);
                }
                Err(error) => {
                    if error.is_transient() {
                        self.note_refusal(&error);
                    }
                    self.fail(error.code(), error.to_string());
                }
            }
            let pause = self.pause().min(LONGEST_MIRROR_PAUSE);
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn follow(&mut self) {
        if let Err(error) = self.resume().await {
            self.fail(error.code(), error.to_string());
        }
        loop {
            let pause = match self.discover().await {
                Ok(pace) => {
                    self.failures = 0;
                    self.context.runtime_status.note_source(
                        self.context.name(),
                        SourceState::Ok,
                        None,
                    );
                    self.context.source.poll_interval.max(pace)
                }
                Err(error) => {
                    self.fail(error.code(), error.to_string());
                    self.pause()
                }
            };
            self.rest(pause).await;
        }
    }

    /// Goes on with the sets that were followed before: they need nothing of the Source to be served.
    async fn resume(&mut self) -> Result<(), EngineError> {
        for record in self.context.store.sets(self.context.name()).await? {
            if is_wanted(&self.context.source, &record.capability_list) {
                self.start(record).await?;
            }
        }
        Ok(())
    }

    /// Finds out which sets there are now; answers how soon to look again at the earliest.
    async fn discover(&mut self) -> Result<Duration, EngineError> {
        let context = Arc::clone(&self.context);
        // The Capability Lists of these are their workers' to look at.
        let followed: HashSet<Url> = self
            .sets
            .values()
            .filter(|set| !set.is_implied && !set.task.is_finished())
            .map(|set| set.capability_list.clone())
            .collect();
        let known = KnownSets {
            followed: &followed,
            had_resourcesync: context.had_resourcesync().await?,
        };
        let limit = context.limits.document;
        let found = find_sets(
            &context.client,
            &context.source,
            limit,
            known,
            &mut self.way,
        )
        .await?;
        for set in &found.sets {
            self.follow_set(set).await?;
        }
        for (uri, oddities) in &found.oddities {
            context.note_description(self.sets.keys(), uri, oddities);
        }
        if let Some(error) = found.status_error {
            return Err(error.into());
        }
        if let Some(advertised) = &found.advertised {
            self.end_others(advertised).await?;
        }
        Ok(if found.has_resourcesync {
            SHORTEST_PACE
        } else {
            PACE_WITHOUT_RESOURCESYNC
        })
    }

    async fn follow_set(&mut self, found: &FoundSet) -> Result<(), EngineError> {
        if self
            .sets
            .values()
            .any(|set| set.capability_list == found.uri && !set.task.is_finished())
        {
            return Ok(());
        }
        let record = self.context.begin_set(found).await?;
        tracing::info!(source = self.context.name(), set = %found.uri, "following a set");
        self.start(record).await
    }

    async fn start(&mut self, record: SetRecord) -> Result<(), EngineError> {
        let (id, capability_list) = (record.id, record.capability_list.clone());
        let is_implied = record.is_implied();
        let (commands, receiver) = mpsc::channel(4);
        let worker = SetWorker::new(Arc::clone(&self.context), record, receiver).await?;
        let task = tokio::spawn(worker.run());
        self.sets.insert(
            id,
            FollowedSet {
                capability_list,
                is_implied,
                commands,
                task,
            },
        );
        Ok(())
    }

    /// Ends the sets that the Source no longer has. Their files stay: that a set is gone is no proof that its resources are.
    async fn end_others(&mut self, current: &[Url]) -> Result<(), EngineError> {
        let gone: Vec<SetId> = self
            .sets
            .iter()
            .filter(|(_, set)| !current.contains(&set.capability_list))
            .map(|(&id, _)| id)
            .collect();
        for id in gone {
            let Some(set) = self.sets.get_mut(&id) else {
                continue;
            };
            tracing::warn!(code = "set-ended", source = self.context.name(), set = %set.capability_list,
                "the Source no longer has this set: it is not followed any more, and its files stay");
            set.end().await;
            let mut channels = Channels::new(Arc::clone(&self.context), id);
            channels.follow(&[]).await?;
            channels.detach();
            self.context.store.end_set(id).await?;
            // Not before: what the database refuses is done again.
            self.sets.remove(&id);
        }
        Ok(())
    }

    async fn rest(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.context.rediscover.notified() => {}
            Some(command) = self.commands.recv() => {
                for set in self.sets.values() {
                    // One that is full has been told already.
                    let _ = set.commands.try_send(command);
                }
            }
        }
    }

    fn fail(&mut self, code: &str, message: String) {
        let name = self.context.name();
        let known = self.context.runtime_status.source(name).error;
        if !known.is_some_and(|known| known.code == code && known.message == message) {
            tracing::warn!(
                code,
                source = name,
                error = message,
                "a Source can't be reached; trying goes on"
            );
        }
        let status_error = StatusError::new(code, message, clock::now().wall);
        self.context
            .runtime_status
            .note_source(name, SourceState::Failing, Some(status_error));
        self.failures = self.failures.saturating_add(1);
    }

    fn note_refusal(&self, error: &MirrorError) {
        let now = clock::now();
        let status_error = StatusError::new(error.code(), error.to_string(), now.wall);
        let (runtime_status, name) = (&self.context.runtime_status, self.context.name());
        runtime_status.note_refusal(name, None, status_error, now.mono);
    }

    fn pause(&self) -> Duration {
        let longest = self.context.source.poll_interval.max(FIRST_PAUSE);
        let bounds = Bounds {
            tries: u32::MAX,
            first: FIRST_PAUSE,
            longest,
        };
        pause(self.failures, None, &bounds).unwrap_or(longest)
    }
}
