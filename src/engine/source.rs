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
use super::board::SourceState;
use super::channels::Channels;
use super::following::Following;
use super::reading::{offer_of, record_of_list};
use super::set::{Command, SetWorker};
use crate::clock;
use crate::fetch::{Bounds, CapabilityList, DiscoveryError, KnownWay, pause};
use crate::mirror::Mirror;
use crate::status::Trouble;
use crate::store::{SetId, SetRecord};

/// New sets are looked for at the pace of the polls, but no more often than this.
const SHORTEST_PACE: Duration = Duration::from_secs(60);
/// The pace of that for a site without ResourceSync: its sitemaps tell their changes themselves, and it is asked for much
/// before it is known to have nothing else.
const PACE_WITHOUT_RESOURCESYNC: Duration = Duration::from_secs(3600);
/// The first pause after something that a Source needs was not there.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Follows one Source until told to stop.
pub(super) struct SourceWorker {
    following: Arc<Following>,
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

impl SourceWorker {
    pub(super) fn new(following: Arc<Following>, commands: mpsc::Receiver<Command>) -> Self {
        Self {
            following,
            commands,
            sets: HashMap::new(),
            way: KnownWay::default(),
            failures: 0,
        }
    }

    pub(super) async fn run(mut self) {
        let stop = self.following.stop.clone();
        let Some(mirror) = self.open_mirror(&stop).await else {
            return;
        };
        let applier =
            tokio::spawn(Applier::new(Arc::clone(&self.following), Arc::new(mirror)).run());
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
        for (_, set) in self.sets {
            // A worker that panicked has told so; the others end in their own time.
            let _ = set.task.await;
        }
        let _ = applier.await;
    }

    /// A mirror that can't be had is this Source's trouble alone: it is told, and tried again.
    async fn open_mirror(&mut self, stop: &CancellationToken) -> Option<Mirror> {
        loop {
            let root = self.following.source.mirror.clone();
            let opening = tokio::task::spawn_blocking(move || Mirror::open(&root))
                .await
                .ok()?;
            match opening {
                Ok(mirror) => return Some(mirror),
                Err(error) => self.fail(error.code(), error.to_string()),
            }
            let pause = self.pause();
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
                    self.following
                        .board
                        .note_source(self.following.name(), SourceState::Ok, None);
                    self.following.source.poll_interval.max(pace)
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
        for record in self.following.store.sets(self.following.name()).await? {
            if self.is_wanted(&record.capability_list) {
                self.start(record).await?;
            }
        }
        Ok(())
    }

    fn is_wanted(&self, capability_list: &Url) -> bool {
        let named = &self.following.source.sets;
        named.is_empty() || named.contains(capability_list)
    }

    /// Finds out which sets there are now; answers how soon to look again at the earliest.
    async fn discover(&mut self) -> Result<Duration, EngineError> {
        let following = Arc::clone(&self.following);
        // The Capability Lists of these are their workers' to look at.
        let followed: HashSet<Url> = self
            .sets
            .values()
            .filter(|set| !set.is_implied && !set.task.is_finished())
            .map(|set| set.capability_list.clone())
            .collect();
        let named = following.source.sets.clone();
        let (url, limit) = (&following.source.url, following.limits.document);
        let found = following
            .client
            .rediscover(url, limit, &mut self.way, &followed)
            .await;
        let found = match found {
            Ok(found) if found.is_implied() && self.had_resourcesync().await? => {
                Err(DiscoveryError::NoSourceDescription(url.clone()))
            }
            found => found,
        };
        let found = match found {
            Ok(found) => found,
            // What is named needs no discovery.
            Err(error) if !named.is_empty() => {
                for uri in &named {
                    self.follow_set(uri, None).await?;
                }
                return match error {
                    DiscoveryError::NoSourceDescription(_) => Ok(PACE_WITHOUT_RESOURCESYNC),
                    error => Err(error.into()),
                };
            }
            Err(error) => return Err(error.into()),
        };
        for (uri, error) in &found.failed {
            tracing::warn!(code = error.code(), source = following.name(), set = %uri, %error, "a set can't be had yet");
        }
        let is_implied = found.is_implied();
        let mut current = found.followed;
        for list in &found.sets {
            current.push(list.uri.clone());
            if self.is_wanted(&list.uri) {
                let set = self.follow_set(&list.uri, Some(list)).await?;
                following.note_document(set, &list.uri, None, &list.oddities);
            }
        }
        for (uri, _) in found.failed {
            // What is advertised and can't be had is followed all the same: its worker tells what is wrong with it, and goes
            // on trying. A sitemap that was never seen is not known to be one.
            if self.is_wanted(&uri) && !is_implied {
                self.follow_set(&uri, None).await?;
            }
            current.push(uri);
        }
        // And so is what is named by the configuration alone.
        for uri in named {
            self.follow_set(&uri, None).await?;
            current.push(uri);
        }
        for (uri, oddities) in &found.oddities {
            following.note_description(self.sets.keys(), uri, oddities);
        }
        self.end_others(&current).await?;
        Ok(if is_implied {
            PACE_WITHOUT_RESOURCESYNC
        } else {
            SHORTEST_PACE
        })
    }

    /// Whether sets with Capability Lists are followed that discovery has found. Such a Source is not taken for a site without
    /// ResourceSync because they can't be found for now: its sets would end, and its whole site be fetched.
    async fn had_resourcesync(&self) -> Result<bool, EngineError> {
        let following = &self.following;
        let records = following.store.sets(following.name()).await?;
        Ok(records.iter().any(|record| {
            let uri = &record.capability_list;
            self.is_wanted(uri) && !following.source.sets.contains(uri) && !record.is_implied()
        }))
    }

    async fn follow_set(
        &mut self,
        uri: &Url,
        list: Option<&CapabilityList>,
    ) -> Result<SetId, EngineError> {
        let mut followed = self.sets.iter();
        if let Some((&id, _)) =
            followed.find(|(_, set)| set.capability_list == *uri && !set.task.is_finished())
        {
            return Ok(id);
        }
        let store = &self.following.store;
        let mut record = store.begin_set(self.following.name(), uri).await?;
        if let Some(list) = list {
            record.offers = list.capabilities.iter().map(offer_of).collect();
            store
                .save_offers(record.id, &record.offers, record_of_list(list))
                .await?;
        }
        tracing::info!(source = self.following.name(), set = %uri, "following a set");
        let id = record.id;
        self.start(record).await?;
        Ok(id)
    }

    async fn start(&mut self, record: SetRecord) -> Result<(), EngineError> {
        let (id, capability_list) = (record.id, record.capability_list.clone());
        let is_implied = record.is_implied();
        let (commands, receiver) = mpsc::channel(4);
        let worker = SetWorker::new(Arc::clone(&self.following), record, receiver).await?;
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
            if let Some(set) = self.sets.remove(&id) {
                tracing::warn!(code = "set-ended", source = self.following.name(), set = %set.capability_list,
                    "the Source no longer has this set: it is not followed any more, and its files stay");
                set.task.abort();
                let _ = set.task.await;
                let mut channels = Channels::new(Arc::clone(&self.following), id);
                channels.follow(&[]).await?;
                channels.detach();
                self.following.store.end_set(id).await?;
            }
        }
        Ok(())
    }

    async fn rest(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.following.rediscover.notified() => {}
            Some(command) = self.commands.recv() => {
                for set in self.sets.values() {
                    // One that is full has been told already.
                    let _ = set.commands.try_send(command);
                }
            }
        }
    }

    fn fail(&mut self, code: &str, message: String) {
        let name = self.following.name();
        let known = self.following.board.source(name).error;
        if !known.is_some_and(|known| known.code == code && known.message == message) {
            tracing::warn!(
                code,
                source = name,
                error = message,
                "a Source can't be reached; trying goes on"
            );
        }
        let trouble = Trouble::new(code, message, clock::now().wall);
        self.following
            .board
            .note_source(name, SourceState::Failing, Some(trouble));
        self.failures = self.failures.saturating_add(1);
    }

    fn pause(&self) -> Duration {
        let longest = self.following.source.poll_interval.max(FIRST_PAUSE);
        let bounds = Bounds {
            tries: u32::MAX,
            first: FIRST_PAUSE,
            longest,
        };
        pause(self.failures, None, &bounds).unwrap_or(longest)
    }
}
