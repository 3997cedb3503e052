//! Starts and stops the workers of all Sources.
//!
//! Invariants: when the stop returns, every task that was in progress is published and committed, or pending as before; the
//! subscriptions stay.
//!
//! Must not know what a worker does.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use resyncd_channels::Transports;
use resyncd_fetch::Client;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::activity_log::log_activity;
use super::apply::members::Members;
use super::audits::{AuditRecords, AuditRequests, audit_sources, stored_audits};
use super::channels::Unfollowed;
use super::context::SourceContext;
use super::followed::{FollowedSource, FollowedSources, followed_sets};
use super::forget::Forgetting;
use super::heartbeats::Heartbeats;
use super::hooks::{HookHandles, Hooks, configured_hooks};
use super::notify::{NotifyErrors, tell};
use super::package_permits::{PackagePermits, shared_permits};
use super::pausing::PausedSources;
use super::read_facts::ReadFacts;
use super::recent_changes::{self, RESTORED, RecentChanges};
use super::restarts::{Restarts, catch_panic};
use super::runtime_status::RuntimeStatus;
use super::sharing::{HeldHere, share_sources};
use super::source::worker::{SourceEnd, SourceWorker};
use super::trimming::{TrimRules, trim};
use super::versions::folder::VersionsFolder;
use crate::clock;
use crate::config::{self, Config};
use crate::metrics::Counters;
use crate::status::{ConfigurationStatus, PublishStatus, StatusError};
use crate::store::{FeedSearch, FollowedSets, Store, StoreError};

/// How long a worker that has something to do may take no step: no answer, no bytes, nothing read or written.
const STALLED: Duration = Duration::from_secs(30 * 60);
/// How often it is recorded that the daemon runs.
const UPTIME_INTERVAL: Duration = Duration::from_secs(15);

/// The workers of a daemon, or of a single run.
pub struct Engine {
    pub(super) started_at: DateTime<Utc>,
    pub(super) store: Arc<Store>,
    pub(super) runtime_status: Arc<RuntimeStatus>,
    pub(super) counters: Counters,
    pub(super) heartbeats: Heartbeats,
    pub(super) sources: Arc<FollowedSources>,
    /// What the Sources share.
    pub(super) shared: SharedParts,
    pub(super) hooks: Hooks,
    /// The Sources that this node follows.
    pub(super) held: HeldHere,
    pub(super) paused: Mutex<PausedSources>,
    /// The Sources whose mirrors are being repaired: they have no workers meanwhile.
    pub(super) repairing: Mutex<BTreeSet<String>>,
    /// Which sets are followed, for what ends the subscriptions of the others.
    pub(super) followed: watch::Sender<Vec<FollowedSets>>,
    /// What is trimmed.
    pub(super) trimmed: watch::Sender<TrimRules>,
    /// The configuration in use.
    pub(super) configuration: Mutex<ConfigurationStatus>,
    /// The configuration that the engine was started with, and the Sources and `[[notify]]` of the one in use.
    pub(super) config: Mutex<Arc<Config>>,
    pub(super) audits: Mutex<AuditRecords>,
    pub(super) audit_requests: Mutex<AuditRequests>,
    pub(super) audit_requested: Arc<Notify>,
    pub(super) notify_errors: Mutex<NotifyErrors>,
    /// What is published, for the status.
    pub(super) published: Mutex<Option<PublishedStatus>>,
    /// Why the public URL does not lead to the callback listener, and since when.
    pub(super) public_url_error: Mutex<Option<StatusError>>,
    /// Held while the list of Sources is replaced, so that nothing begins meanwhile that relies on it.
    pub(super) configuring: tokio::sync::Mutex<()>,
    /// The Sources that are being forgotten.
    pub(super) forgetting: Forgetting,
    workers: tokio::sync::Mutex<JoinSet<()>>,
    /// Receives the Sources whose workers have ended because their mirrors are not where they were opened.
    moved: mpsc::UnboundedSender<Arc<SourceContext>>,
    /// Whether a worker has ended by a panic, and was not started again.
    has_panicked: AtomicBool,
    pub(super) stop: CancellationToken,
}

/// Reads what is published; `None`: it can't be read now.
pub type PublishedStatus = Arc<dyn Fn() -> BoxFuture<'static, Option<PublishStatus>> + Send + Sync>;

/// What the contexts of all Sources are made of. A reload does not change it.
pub(super) struct SharedParts {
    limits: config::LimitsConfig,
    connections_per_host: usize,
    streams_per_host: usize,
    /// For what belongs to no Source of the configuration.
    pub(super) transports: Transports,
    pub(super) public_url: Option<Url>,
    package_permits: Arc<Semaphore>,
    /// Whether channels are subscribed to.
    subscribes: bool,
}

impl Engine {
    /// Starts to follow every Source of the configuration. The callback listener must be bound before: hubs verify at once.
    /// Fails if the database can't be written.
    pub async fn start(
        config: &Config,
        store: Arc<Store>,
        client: &Client,
    ) -> Result<Arc<Self>, StoreError> {
        store.limit_resources(config.limits.resources).await?;
        let mut engine = Self::new(config, store, client, true);
        let (sender, moved) = mpsc::unbounded_channel();
        engine.moved = sender;
        if engine.store.is_shared() {
            engine.held = HeldHere::none();
        }
        engine
            .restore_recent_changes(&engine.sources.contexts())
            .await;
        *engine.audits.lock() = stored_audits(&engine.store).await?;
        *engine.paused.lock() = engine.store.paused().await?.into_iter().collect();
        let sources = engine.sources.contexts().into_iter();
        let mut workers = engine.workers.lock().await;
        let sources = sources.map(|context| engine.follow(&mut workers, context));
        engine.sources.replace(sources.collect());
        let (store, stop) = (Arc::clone(&engine.store), engine.stop.clone());
        engine.start_restarting(&mut workers, "record of the uptime", move || {
            record_uptime(Arc::clone(&store), stop.clone())
        });
        let (store, stop) = (Arc::clone(&engine.store), engine.stop.clone());
        let rules = engine.trimmed.subscribe();
        engine.start_restarting(&mut workers, "trimming", move || {
            trim(Arc::clone(&store), rules.clone(), stop.clone())
        });
        let (store, stop) = (Arc::clone(&engine.store), engine.stop.clone());
        let sources = Arc::clone(&engine.sources);
        engine.start_restarting(&mut workers, "log of activity", move || {
            log_activity(Arc::clone(&store), Arc::clone(&sources), stop.clone())
        });
        drop(workers);
        let unfollowed = Unfollowed {
            store: Arc::clone(&engine.store),
            transports: engine.shared.transports.clone(),
            runtime_status: Arc::clone(&engine.runtime_status),
            public_url: engine.shared.public_url.as_ref().map(Url::to_string),
            followed: engine.followed.subscribe(),
        };
        let ending = move |stop| unfollowed.clone().end_all(stop);
        engine.run_leading("end of subscriptions", ending).await;
        let configured = configured_hooks(&config.sources);
        engine.store.retain_hooks(configured).await?;
        engine.adapt_hooks(&config.sources).await;
        let engine = Arc::new(engine);
        let telling = Arc::downgrade(&engine);
        let telling = move |stop| tell(Weak::clone(&telling), stop);
        engine.run_leading("notifications", telling).await;
        if engine.store.is_shared() {
            engine.share().await?;
            let (sharing, stop) = (Arc::downgrade(&engine), engine.stop.clone());
            let mut workers = engine.workers.lock().await;
            engine.start_restarting(&mut workers, "sharing of Sources", move || {
                share_sources(Weak::clone(&sharing), stop.clone())
            });
        }
        let mut workers = engine.workers.lock().await;
        let (auditing, stop) = (Arc::downgrade(&engine), engine.stop.clone());
        engine.start_restarting(&mut workers, "audits", move || {
            audit_sources(Weak::clone(&auditing), stop.clone())
        });
        drop(workers);
        let restarting = restart_moved(Arc::downgrade(&engine), moved, engine.stop.clone());
        let watched = engine.heartbeats.watched("restart of Sources", restarting);
        engine.spawn(watched).await;
        Ok(engine)
    }

    /// An engine without workers.
    pub(super) fn new(
        config: &Config,
        store: Arc<Store>,
        client: &Client,
        subscribes: bool,
    ) -> Self {
        let started_at = clock::now().wall;
        let engine = Self {
            started_at,
            sources: Arc::new(FollowedSources::new(Vec::new())),
            shared: SharedParts {
                limits: config.limits.clone(),
                connections_per_host: config.http.connections_per_host,
                streams_per_host: config.http.streams_per_host,
                transports: config.transports(client.clone()),
                public_url: config.callback.public_url.clone(),
                package_permits: shared_permits(),
                subscribes,
            },
            hooks: Hooks::default(),
            held: HeldHere::all(),
            paused: Mutex::default(),
            repairing: Mutex::default(),
            followed: watch::Sender::new(followed_sets(&config.sources)),
            trimmed: watch::Sender::new(TrimRules::of(config)),
            configuration: Mutex::new(ConfigurationStatus::loaded(started_at, Vec::new())),
            config: Mutex::new(Arc::new(config.clone())),
            audits: Mutex::default(),
            audit_requests: Mutex::default(),
            audit_requested: Arc::default(),
            notify_errors: Mutex::default(),
            published: Mutex::default(),
            public_url_error: Mutex::default(),
            configuring: tokio::sync::Mutex::default(),
            forgetting: Forgetting::default(),
            store,
            runtime_status: Arc::default(),
            counters: Counters::default(),
            heartbeats: Heartbeats::default(),
            workers: tokio::sync::Mutex::default(),
            moved: mpsc::unbounded_channel().0,
            has_panicked: AtomicBool::new(false),
            stop: CancellationToken::new(),
        };
        let sources = config.sources.iter();
        let sources = sources.map(|source| FollowedSource::without_worker(engine.context(source)));
        engine.sources.replace(sources.collect());
        engine
    }

    /// What everything shares that works on a Source.
    fn context(&self, source: &config::Source) -> Arc<SourceContext> {
        let shared = &self.shared;
        let counters = self.counters.of_source(&source.name);
        let client = source
            .client(
                shared.transports.client(),
                shared.limits.third_party_requests,
            )
            .with_counters(Arc::new(counters.clone()));
        let versions = source.versions.clone();
        let own_connections = source.pace.connections_per_host;
        Arc::new(SourceContext {
            source: source.clone(),
            limits: shared.limits.clone(),
            connections_per_host: own_connections.unwrap_or(shared.connections_per_host),
            streams_per_host: own_connections.unwrap_or(shared.streams_per_host),
            store: Arc::clone(&self.store),
            transports: shared.transports.for_source(client.clone()),
            client,
            counters,
            runtime_status: Arc::clone(&self.runtime_status),
            public_url: shared.public_url.clone(),
            members: Members::default(),
            versions: versions.map(|root| Arc::new(VersionsFolder::at(root))),
            package_permits: PackagePermits::new(shared.package_permits.clone()),
            subscribes: shared.subscribes,
            delivery_panics: Mutex::default(),
            progress: Arc::default(),
            read_facts: ReadFacts::new(!shared.subscribes),
            heartbeats: self.heartbeats.clone(),
            recent_changes: RecentChanges::since(clock::now().wall),
            rediscover: Notify::new(),
            mirror_doubted: Notify::new(),
            stop: self.stop.child_token(),
            retired: CancellationToken::new(),
        })
    }

    /// Starts to follow these Sources.
    pub(super) async fn start_sources(
        &self,
        sources: impl Iterator<Item = &config::Source>,
    ) -> Vec<FollowedSource> {
        let mut workers = self.workers.lock().await;
        sources
            .map(|source| self.follow(&mut workers, self.context(source)))
            .collect()
    }

    /// Starts the worker of a Source, unless another node holds it, it is paused, or its mirror is being repaired.
    fn follow(&self, workers: &mut JoinSet<()>, context: Arc<SourceContext>) -> FollowedSource {
        let is_repaired = self.repairing.lock().contains(context.name());
        let rests = is_repaired || !self.held.has(context.name());
        if rests || self.paused.lock().contains_key(context.name()) {
            FollowedSource::without_worker(context)
        } else {
            start_worker(workers, &self.moved, context)
        }
    }

    /// Shows what is published in the status.
    pub fn show_published(&self, published: PublishedStatus) {
        *self.published.lock() = Some(published);
    }

    /// Runs what one node does for all, besides the Sources: while this one leads, and until the stop, which it gets. After a panic it is
    /// started again.
    pub async fn run_leading<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &'static str,
        start: impl Fn(CancellationToken) -> F + Clone + Send + Sync + 'static,
    ) {
        let (held, stop) = (self.held.clone(), self.stop.clone());
        let mut workers = self.workers.lock().await;
        self.start_restarting(&mut workers, name, move || {
            held.clone().while_leading(start.clone(), stop.clone())
        });
    }

    /// Records why the public URL does not lead to the callback listener; `None`: it does, or need not.
    pub fn note_public_url(&self, error: Option<StatusError>) {
        let mut known = self.public_url_error.lock();
        let since = known.as_ref().map(|known| known.at.clone());
        *known = error.map(|error| StatusError {
            at: since.unwrap_or(error.at),
            ..error
        });
    }

    /// Runs the hooks of those of these Sources that this node follows, and no others.
    pub(super) async fn adapt_hooks(&self, sources: &[config::Source]) {
        let held = sources.iter().filter(|source| self.held.has(&source.name));
        let held: Vec<config::Source> = held.cloned().collect();
        let handles = self.hook_handles();
        self.hooks.stop_others(&handles, &held).await;
        let mut workers = self.workers.lock().await;
        self.hooks.start(&handles, &held, &self.stop, &mut workers);
    }

    /// What hooks work with.
    pub(super) fn hook_handles(&self) -> HookHandles {
        HookHandles {
            store: Arc::clone(&self.store),
            client: self.shared.transports.client().clone(),
            runtime_status: Arc::clone(&self.runtime_status),
            heartbeats: self.heartbeats.clone(),
        }
    }

    /// Starts a worker that belongs to no Source. After a panic it is started again.
    fn start_restarting<F: Future<Output = ()> + Send + 'static>(
        &self,
        workers: &mut JoinSet<()>,
        name: &'static str,
        mut start: impl FnMut() -> F + Send + 'static,
    ) {
        let stop = self.stop.clone();
        let work = async move {
            let mut restarts = Restarts::of(name, "");
            while catch_panic(start()).await.is_err() && restarts.rest(&stop, |_| {}).await {}
        };
        workers.spawn(self.heartbeats.watched(name, work));
    }

    /// Runs something besides the workers that the stop waits for.
    pub(super) async fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.workers.lock().await.spawn(work);
    }

    /// Counts what earlier processes have applied recently of these Sources.
    pub(super) async fn restore_recent_changes(&self, contexts: &[Arc<SourceContext>]) {
        let newest = FeedSearch::newest(RESTORED);
        let excerpt = match self.store.newest_changes(newest).await {
            Ok(excerpt) => excerpt,
            Err(error) => {
                // What the workers read fails as well, and is reported.
                tracing::debug!(code = error.code(), %error, "database error; earlier changes are not counted");
                return;
            }
        };
        let counts = contexts.iter();
        let counts = counts.map(|context| (context.name(), &context.recent_changes));
        recent_changes::restore(&excerpt, &counts.collect(), clock::now().wall);
    }

    /// Whether no worker has ended by a panic without being started again.
    pub async fn workers_run(&self) -> bool {
        let mut workers = self.workers.lock().await;
        while let Some(ended) = workers.try_join_next() {
            if ended.is_err_and(|error| error.is_panic()) {
                self.has_panicked.store(true, Ordering::Relaxed);
            }
        }
        !self.has_panicked.load(Ordering::Relaxed)
    }

    /// Returns when every worker has come back to the runtime since the call, whatever it waits for there. It hangs if one blocks.
    pub async fn workers_respond(&self) {
        self.heartbeats.all().await;
    }

    /// The names of the workers that [`workers_respond`](Self::workers_respond) waits for.
    pub fn unmoved_workers(&self) -> Vec<String> {
        self.heartbeats.missing()
    }

    /// The names of the workers that have taken no step for long, although they have something to do. To be called from time to time.
    pub fn stalled_workers(&self) -> Vec<String> {
        // A request may take that time, and is tried again.
        let limit = STALLED.max(self.shared.transports.client().timeout().saturating_mul(5));
        self.heartbeats.stalled(clock::now().mono, limit)
    }

    /// The names of the workers that have not ended.
    pub fn running_workers(&self) -> Vec<String> {
        self.heartbeats.running()
    }

    /// Stops the workers: tasks that are in progress are published and committed first. The subscriptions stay.
    pub async fn stop(&self) {
        self.stop.cancel();
        let mut workers = self.workers.lock().await;
        while let Some(ended) = workers.join_next().await {
            if let Err(error) = ended {
                tracing::error!(code = "worker", %error, "worker panicked");
            }
        }
    }
}

/// Starts the worker of a Source.
fn start_worker(
    workers: &mut JoinSet<()>,
    moved: &mpsc::UnboundedSender<Arc<SourceContext>>,
    context: Arc<SourceContext>,
) -> FollowedSource {
    let (commands, receiver) = mpsc::channel(4);
    let ended = CancellationToken::new();
    let following = SourceWorker::new(Arc::clone(&context), receiver).run();
    let following = context.watched("worker of the Source", following);
    let guard = ended.clone().drop_guard();
    let (moved, ending) = (moved.clone(), Arc::clone(&context));
    workers.spawn(async move {
        // Dropped last, also after a panic.
        let _guard = guard;
        if following.await == SourceEnd::MirrorMoved {
            // Nothing receives it after the stop.
            let _ = moved.send(ending);
        }
    });
    FollowedSource {
        context,
        commands: Some(commands),
        ended,
    }
}

/// Starts the workers of Sources again whose mirrors are not where they were opened, until the stop.
async fn restart_moved(
    engine: Weak<Engine>,
    mut moved: mpsc::UnboundedReceiver<Arc<SourceContext>>,
    stop: CancellationToken,
) {
    let restarting = async {
        while let Some(ended) = moved.recv().await {
            let Some(engine) = engine.upgrade() else {
                return;
            };
            engine.restart(ended).await;
        }
    };
    // The result is the stop, which holds the list of the workers.
    let _ = stop.run_until_cancelled(restarting).await;
}

/// Records at intervals, and at the end, that the daemon runs: after a longer downtime it subscribes anew.
async fn record_uptime(store: Arc<Store>, stop: CancellationToken) {
    loop {
        let interval = tokio::time::sleep(UPTIME_INTERVAL);
        let has_stopped = stop.run_until_cancelled(interval).await.is_none();
        if let Err(error) = store.note_running(clock::now().wall).await {
            // What else is written fails as well, and is reported.
            tracing::debug!(code = error.code(), %error, "database error; the uptime is not recorded");
        }
        if has_stopped {
            return;
        }
    }
}
