//! The daemon as the simulation runs it: the real store, mirror, client, discovery and set workers, without the loops that
//! wait.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use resourcesync::Capability;
use resyncd_core::{ChannelState, MediaRange, Selection, TopicUri, Transport};
use resyncd_fetch::{Bounds, Client, DiscoveryCache};
use resyncd_mirror::Mirror;
use tokio::sync::broadcast;

use super::documents::{Target, topic};
use super::downloads::Downloads;
use super::source::{EXCLUDED, Notification, RESOURCES, SetNo, type_of};
use super::stage::Stage;
use super::world::Settings;
use crate::clock;
use crate::config::{Config, Filter, Signatures, Source};
use crate::engine::apply::stepping::Stepper;
use crate::engine::context::SourceContext;
use crate::engine::set::package_files::PackageFiles;
use crate::engine::set::worker::SetWorker;
use crate::engine::source::discovery::{KnownSets, begin_set, find_sets, had_resourcesync};
use crate::engine::{Engine, EngineError};
use crate::status::SetStatus;
use crate::store::{CallbackKeys, ChannelId, ChannelRecord, Receipt, SetRecord, Store, Wake};

/// The label of the only Source.
pub(super) const NAME: &str = "source";
/// How the operator excludes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filtering {
    /// Not.
    Nothing,
    Exclude,
    /// By including all others.
    Include,
    /// By its type.
    Select,
}

impl Filtering {
    fn filter(self) -> Filter {
        let pattern = |resource| format!("*/{resource}");
        let others = (0..RESOURCES).filter(|&resource| resource != EXCLUDED);
        let (included, excluded): (Vec<String>, Vec<String>) = match self {
            Self::Nothing => Default::default(),
            Self::Select => {
                let types = vec![MediaRange::parse(type_of(0)).unwrap()];
                let selection = Selection::new(types, Vec::new(), Vec::new());
                return Filter::selecting::<&str>(&[], &[], selection).unwrap();
            }
            Self::Exclude => (Vec::new(), vec![pattern(EXCLUDED)]),
            Self::Include => (others.map(pattern).collect(), Vec::new()),
        };
        Filter::matching(&included, &excluded).unwrap()
    }
}

/// The pause between two runs of discovery, in milliseconds.
const DISCOVERY_PAUSE: u64 = 10_000;

/// The part of the daemon that the stage and the world use.
pub(super) struct Inside {
    pub(super) store: Arc<Store>,
    pub(super) context: Arc<SourceContext>,
    pub(super) stepper: Stepper,
    pub(super) downloads: tokio::sync::Mutex<Downloads>,
    channels: Mutex<BTreeMap<(SetNo, bool), ChannelId>>,
    engine: Engine,
}

/// A set that is followed.
pub(super) struct Worker {
    pub(super) set: SetNo,
    pub(super) worker: SetWorker,
    pub(super) is_awake: bool,
    /// After an error of the database, when the worker goes on.
    pub(super) paused_until: u64,
}

impl Worker {
    /// When it has something to do.
    pub(super) fn next_event(&self, stage: &Stage) -> u64 {
        let due = if self.is_awake {
            0
        } else {
            stage.clock().millis_of(self.worker.next_deadline())
        };
        due.max(self.paused_until)
    }
}

pub(super) struct Daemon {
    pub(super) inside: Arc<Inside>,
    pub(super) workers: Vec<Worker>,
    packages: Arc<PackageFiles>,
    wakes: broadcast::Receiver<Wake>,
    /// When discovery runs next; `None`: once something requests it.
    discover_at: Option<u64>,
}

thread_local! {
    // Loading the certificates takes longer than a history.
    static CLIENT: Client = {
        let tries = Bounds { tries: 2, first: Duration::ZERO, longest: Duration::ZERO };
        let http = Config::new("/", Vec::new()).http;
        Client::new(&http, crate::clock::now)
            .unwrap()
            .with_document_retries(tries)
            .with_package_retries(tries)
    };
}

impl Daemon {
    /// Begins with what the store has.
    pub(super) async fn start(
        stage: &Arc<Stage>,
        store: &Arc<Store>,
        folder: &Path,
        settings: &Settings,
        filtering: Filtering,
    ) -> Result<Self, EngineError> {
        let mut source = Source::new(NAME, Target::Description.url(), folder.join("mirror"));
        source.poll_interval = settings.poll_interval;
        source.reorder_window = settings.limits.reorder_window;
        source.signatures = Signatures::Off;
        source.trust_hub = Some(settings.trusts_hub);
        source.max_delete = settings.max_delete;
        source.baseline = settings.baseline;
        source.filter = filtering.filter();
        (settings.configure)(&mut source);
        let mut config = Config::new(folder, vec![source]);
        config.limits.held_notifications = settings.limits.held_notifications;
        let client = CLIENT
            .with(Client::clone)
            .with_network(Arc::clone(stage) as _);
        let engine = Engine::new(&config, Arc::clone(store), &client, false);
        let context = engine.sources.contexts().remove(0);
        let mirror = Arc::new(Mirror::open(&context.source.mirror)?);
        let packages = Arc::new(PackageFiles::new(Arc::clone(&context), &mirror));
        let inside = Arc::new(Inside {
            store: Arc::clone(store),
            stepper: Stepper::new(Arc::clone(&context), mirror),
            context,
            downloads: tokio::sync::Mutex::new(Downloads::new(store, settings.download)),
            channels: Mutex::default(),
            engine,
        });
        stage.enter(&inside);
        let mut daemon = Self {
            wakes: store.wakes(),
            inside,
            workers: Vec::new(),
            packages,
            discover_at: Some(stage.moment()),
        };
        for record in store.sets(NAME).await? {
            daemon.follow(record).await?;
        }
        Ok(daemon)
    }

    /// Follows a set, with channels that a hub has verified.
    async fn follow(&mut self, record: SetRecord) -> Result<(), EngineError> {
        let set = Target::set(record.capability_list.as_str());
        if self.workers.iter().any(|worker| worker.set == set) {
            return Ok(());
        }
        let store = &self.inside.store;
        let known = store.channels(record.id).await?;
        let kinds = [
            (false, Capability::ChangeNotification),
            (true, Capability::FrameworkNotification),
        ];
        for (is_framework, kind) in kinds {
            let channel = known.iter().find(|channel| channel.kind == kind);
            let id = match channel {
                Some(channel) => channel.id,
                None => {
                    let topic = TopicUri::try_from(topic(set, &kind)).unwrap();
                    let keys = CallbackKeys {
                        token: topic.to_string(),
                        secret: None,
                    };
                    let now = clock::now().wall;
                    let added = store.add_channel(now, record.id, &kind, &topic, &[], keys);
                    added.await?.id
                }
            };
            let mut channels = self.inside.channels.lock();
            channels.insert((set, is_framework), id);
        }
        let context = Arc::clone(&self.inside.context);
        let packages = Arc::clone(&self.packages);
        self.workers.push(Worker {
            set,
            worker: SetWorker::new(context, packages, record).await?,
            is_awake: true,
            paused_until: 0,
        });
        Ok(())
    }

    /// Discovers the sets of the Source, if that is due.
    pub(super) async fn discover(&mut self, now: u64) -> Result<(), EngineError> {
        let asked = self.inside.context.rediscover.notified().now_or_never();
        if asked.is_none() && self.discover_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        let context = Arc::clone(&self.inside.context);
        let followed = self.workers.iter();
        let followed = followed
            .map(|worker| worker.worker.state.record.capability_list.clone())
            .collect();
        let known = KnownSets {
            followed: &followed,
            had_resourcesync: had_resourcesync(&context).await?,
        };
        let (limits, mut cache) = (&context.limits, DiscoveryCache::default());
        let found = find_sets(&context.client, &context.source, limits, known, &mut cache).await;
        match found {
            Ok(found) => {
                for set in &found.sets {
                    let record = begin_set(&context, set).await?;
                    self.follow(record).await?;
                }
                self.discover_at = None;
            }
            Err(EngineError::Store(error)) => return Err(error.into()),
            Err(_) => self.discover_at = Some(now + DISCOVERY_PAUSE),
        }
        Ok(())
    }

    /// Wakes the workers that something has happened to.
    pub(super) async fn wake(&mut self) {
        let mut has_tasks = false;
        loop {
            let wake = match self.wakes.try_recv() {
                Ok(wake) => Some(wake),
                Err(broadcast::error::TryRecvError::Lagged(_)) => None,
                Err(_) => break,
            };
            has_tasks |= matches!(wake, Some(Wake::Tasks(_)) | None);
            for worker in &mut self.workers {
                worker.is_awake |= worker.worker.react(wake.as_ref()).await;
            }
        }
        if has_tasks {
            self.inside.downloads.lock().await.look();
        }
    }

    /// When the daemon has something to do next.
    pub(super) async fn next_event(&self, stage: &Stage) -> u64 {
        let workers = self.workers.iter().map(|worker| worker.next_event(stage));
        let downloads = self.inside.downloads.lock().await.next_event();
        let next = workers.chain(downloads).chain(self.discover_at);
        next.min().unwrap_or(u64::MAX)
    }
}

impl Inside {
    /// Stores a delivery, as the callback does. `None`: the process has ended.
    pub(super) async fn receive(
        &self,
        notification: &Notification,
        body: Vec<u8>,
    ) -> Option<Receipt> {
        let is_framework = matches!(notification.content, super::source::Content::Framework(..));
        let channel = {
            let channels = self.channels.lock();
            // Before the set is followed, nothing is subscribed to.
            *channels.get(&(notification.set, is_framework))?
        };
        let room = self.context.limits.inbox;
        let received = self
            .store
            .receive(clock::now().wall, channel, body, room, None);
        received.await.ok()
    }

    /// The hub verifies the subscription to the change notifications of a set.
    pub(super) async fn verify(&self, set: SetNo) {
        let channel = self.channels.lock().get(&(set, false)).copied();
        let expires_at = clock::now().wall + chrono::TimeDelta::days(10);
        if let Some(channel) = channel {
            let verified = self.store.change_channel(channel, true, move |channel| {
                channel.lease.state = ChannelState::Active;
                channel.lease.expires_at = Some(expires_at);
                channel.begun += 1;
            });
            // A process that ends meanwhile has not answered.
            let _ = verified.await;
        }
    }

    /// A notification of a set is missed that came over a transport without intervals.
    pub(super) async fn miss(&self, set: SetNo) {
        let channel = self.channels.lock()[&(set, false)];
        let channel = self.store.channel(channel).await.unwrap().unwrap();
        let transport = Transport::Callback;
        let channel = ChannelRecord {
            transport,
            ..channel
        };
        self.store.report_missed_notification(&channel);
    }

    /// Whether the hub is relied on to deliver the change notifications of a set.
    pub(super) async fn is_subscribed(&self, set: SetNo) -> bool {
        let channel = self.channels.lock()[&(set, false)];
        let channel = self.store.channel(channel).await.unwrap();
        channel.is_some_and(|channel| channel.lease.state == ChannelState::Active)
    }

    /// How many versions are to be stored, as the status states it; `None`: versions are not stored.
    pub(super) async fn versions_to_store(&self) -> Option<u64> {
        let status = self.engine.status_of_sources().await.ok()?;
        let versions = status.sources.first()?.versions.as_ref()?;
        Some(versions.pending)
    }

    /// As the status endpoint states it.
    pub(super) async fn status(&self) -> Result<Vec<SetStatus>, EngineError> {
        let status = self.engine.status_of_sources().await?;
        Ok(status
            .sources
            .into_iter()
            .flat_map(|source| source.sets)
            .collect())
    }
}
