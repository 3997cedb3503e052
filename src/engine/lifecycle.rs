//! Starts and stops the workers of all Sources, and executes the operators' requests.
//!
//! Invariants: when the stop returns, every task that was in progress is published and committed, or pending as before; the
//! subscriptions stay.
//!
//! Must not know what a worker does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use resyncd_channels::Transports;
use resyncd_core::ResourceUri;
use resyncd_fetch::Client;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::activity_log::log_activity;
use super::apply::members::Members;
use super::attention;
use super::attention_log::AttentionLog;
use super::channels::{EndingSource, Unfollowed, end_subscriptions};
use super::context::SourceContext;
use super::error::EngineError;
use super::followed::{FollowedSource, FollowedSources, followed_sets};
use super::forget::{ForgetError, ForgetRequest, Forgetting, forget_source};
use super::heartbeats::Heartbeats;
use super::hooks::{HookHandles, Hooks, configured_hooks};
use super::package_permits::{PackagePermits, SharedPermits};
use super::read_facts::ReadFacts;
use super::recent_changes::{self, RESTORED, RecentChanges};
use super::restarts::{catch_panic, restarting};
use super::runtime_status::RuntimeStatus;
use super::set::worker::Command;
use super::source::worker::{SourceEnd, SourceWorker};
use super::status_view::{self, failed_resource, held_deletion};
use super::trimming::{TrimRules, trim};
use super::versions::folder::VersionsFolder;
use super::versions::view::versions_of;
use crate::clock;
use crate::config::{self, Config};
use crate::metrics::{Counters, exposition};
use crate::status::{
    Activity, ConfigurationStatus, FailedResource, Forgotten, FormerSource, HeldDeletion,
    Operations, Page, ResourceVersion, SeenDeletions, Status, StatusError, UnsubscribeResult,
};
use crate::store::{
    DecisionResult, DeletionDecision, FeedSearch, FollowedSets, ResourceId, SetId, SetTotals,
    Store, StoreError,
};

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
    heartbeats: Heartbeats,
    pub(super) sources: Arc<FollowedSources>,
    /// What the Sources share.
    shared: SharedParts,
    pub(super) hooks: Hooks,
    /// Which sets are followed, for what ends the subscriptions of the others.
    pub(super) followed: watch::Sender<Vec<FollowedSets>>,
    /// What is trimmed.
    pub(super) trimmed: watch::Sender<TrimRules>,
    /// The configuration in use.
    pub(super) configuration: Arc<Mutex<ConfigurationStatus>>,
    /// Why the public URL does not lead to the callback listener, and since when.
    public_url_error: Mutex<Option<StatusError>>,
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

/// What the contexts of all Sources are made of. A reload does not change it.
struct SharedParts {
    limits: config::LimitsConfig,
    connections_per_host: usize,
    streams_per_host: usize,
    /// For what belongs to no Source of the configuration.
    transports: Transports,
    public_url: Option<Url>,
    package_permits: SharedPermits,
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
        engine.restore_recent_changes().await;
        let sources = engine.sources.contexts().into_iter();
        let mut workers = engine.workers.lock().await;
        let sources = sources.map(|context| start_worker(&mut workers, &engine.moved, context));
        engine.sources.replace(sources.collect());
        let (store, stop) = (Arc::clone(&engine.store), engine.stop.clone());
        let recording = restarting("record of the uptime", stop.clone(), move || {
            record_uptime(Arc::clone(&store), stop.clone())
        });
        let heartbeats = &engine.heartbeats;
        workers.spawn(heartbeats.watched("record of the uptime", recording));
        let (store, stop) = (Arc::clone(&engine.store), engine.stop.clone());
        let rules = engine.trimmed.subscribe();
        let trimming = restarting("trimming", stop.clone(), move || {
            trim(Arc::clone(&store), rules.clone(), stop.clone())
        });
        workers.spawn(heartbeats.watched("trimming", trimming));
        let log = AttentionLog {
            store: Arc::clone(&engine.store),
            runtime_status: Arc::clone(&engine.runtime_status),
            configuration: Arc::clone(&engine.configuration),
            sources: Arc::clone(&engine.sources),
            stop: engine.stop.clone(),
        };
        let logging = move || log.clone().run();
        let logging = restarting("log of attentions", engine.stop.clone(), logging);
        workers.spawn(heartbeats.watched("log of attentions", logging));
        let (store, stop) = (Arc::clone(&engine.store), engine.stop.clone());
        let sources = Arc::clone(&engine.sources);
        let logging = restarting("log of activity", stop.clone(), move || {
            log_activity(Arc::clone(&store), Arc::clone(&sources), stop.clone())
        });
        workers.spawn(heartbeats.watched("log of activity", logging));
        let unfollowed = Unfollowed {
            store: Arc::clone(&engine.store),
            transports: engine.shared.transports.clone(),
            runtime_status: Arc::clone(&engine.runtime_status),
            public_url: engine.shared.public_url.as_ref().map(Url::to_string),
            followed: engine.followed.subscribe(),
            stop: engine.stop.clone(),
        };
        let ending = move || unfollowed.clone().end_all();
        let ending = restarting("end of subscriptions", engine.stop.clone(), ending);
        workers.spawn(heartbeats.watched("end of subscriptions", ending));
        drop(workers);
        let configured = configured_hooks(&config.sources);
        engine.store.retain_hooks(configured).await?;
        engine.start_hooks(&config.sources).await;
        let engine = Arc::new(engine);
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
                package_permits: SharedPermits::default(),
                subscribes,
            },
            hooks: Hooks::default(),
            followed: watch::Sender::new(followed_sets(&config.sources)),
            trimmed: watch::Sender::new(TrimRules::of(config)),
            configuration: Arc::new(Mutex::new(ConfigurationStatus::loaded(
                started_at,
                Vec::new(),
            ))),
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
        let sources = sources.map(|source| FollowedSource {
            context: engine.context(source),
            commands: None,
            ended: CancellationToken::new(),
        });
        engine.sources.replace(sources.collect());
        engine
    }

    /// What everything shares that works on a Source.
    fn context(&self, source: &config::Source) -> Arc<SourceContext> {
        let SharedParts {
            limits,
            connections_per_host,
            streams_per_host,
            transports,
            public_url,
            package_permits,
            subscribes,
        } = &self.shared;
        let counters = self.counters.of_source(&source.name);
        let client = source
            .client(transports.client(), limits.third_party_requests)
            .with_counters(Arc::new(counters.clone()));
        let versions = source.versions.clone();
        let own_connections = source.pace.connections_per_host;
        Arc::new(SourceContext {
            source: source.clone(),
            limits: limits.clone(),
            connections_per_host: own_connections.unwrap_or(*connections_per_host),
            streams_per_host: own_connections.unwrap_or(*streams_per_host),
            store: Arc::clone(&self.store),
            transports: transports.for_source(client.clone()),
            client,
            counters,
            runtime_status: Arc::clone(&self.runtime_status),
            public_url: public_url.clone(),
            members: Members::default(),
            versions: versions.map(|root| Arc::new(VersionsFolder::at(root))),
            package_permits: PackagePermits::new(package_permits.clone()),
            subscribes: *subscribes,
            delivery_panics: Mutex::default(),
            progress: Arc::default(),
            read_facts: ReadFacts::new(!subscribes),
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
            .map(|source| start_worker(&mut workers, &self.moved, self.context(source)))
            .collect()
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

    /// Starts the hooks of these Sources that do not run.
    pub(super) async fn start_hooks(&self, sources: &[config::Source]) {
        let mut workers = self.workers.lock().await;
        let handles = self.hook_handles();
        self.hooks
            .start(&handles, sources, &self.stop, &mut workers);
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

    /// Runs something besides the workers that the stop waits for.
    async fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.workers.lock().await.spawn(work);
    }

    /// Counts what earlier processes have applied recently.
    async fn restore_recent_changes(&self) {
        let newest = FeedSearch::newest(RESTORED);
        let excerpt = match self.store.newest_changes(newest).await {
            Ok(excerpt) => excerpt,
            Err(error) => {
                // What the workers read fails as well, and is reported.
                tracing::debug!(code = error.code(), %error, "database error; earlier changes are not counted");
                return;
            }
        };
        let contexts = self.sources.contexts();
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

    /// The status of all Sources.
    pub(super) async fn status_of_sources(&self) -> Result<Status, EngineError> {
        // Noted first: a configuration is never shown as loaded with Sources and hooks of the former one.
        let configuration = self.configuration.lock().clone();
        let contexts = self.sources.contexts();
        let (store, runtime_status) = (&self.store, &self.runtime_status);
        let status = status_view::status(store, runtime_status, self.started_at, &contexts);
        let mut status = status.await?;
        let channels = self.store.unfollowed_channels(self.sources.sets()).await?;
        status.unfollowed = status_view::unfollowed(&self.runtime_status, channels);
        status.former_sources = self.former_sources().await?;
        status
            .attention
            .extend(attention::of_configuration(&configuration));
        status.configuration = configuration;
        let public_url = self.public_url_error.lock().clone();
        // A router may not lead requests from inside to its own public address.
        let public_url =
            public_url.filter(|_| !status_view::has_delivery_since(&status, self.started_at));
        status
            .attention
            .extend(public_url.as_ref().map(attention::of_public_url));
        let mut loads = self.shared.transports.client().host_loads();
        for context in self.sources.contexts() {
            // Others share their limits.
            if context.source.pace.connections_per_host.is_some() {
                loads.extend(context.client.host_loads());
            }
        }
        status.hosts = status_view::hosts(loads);
        Ok(status)
    }

    /// Decides on the held-back deletions of a Source; returns how many, `None` if there is no such Source.
    fn decide(
        &self,
        source: &str,
        decision: DeletionDecision,
    ) -> BoxFuture<'_, Result<Option<u64>, StatusError>> {
        let found = self.source(source);
        async move {
            let Some(source) = found else { return Ok(None) };
            let (store, stop) = (Arc::clone(&self.store), self.stop.clone());
            let name = source.context.name().to_owned();
            let deciding = async move {
                let (now, goes_on) = (clock::now().wall, || !stop.is_cancelled());
                let decided = store.decide_deletions(&name, decision, now, goes_on);
                let decided = decided.await?;
                let DecisionResult::Decided(deletions) = decided else {
                    return Ok(decided);
                };
                let event = match decision {
                    DeletionDecision::Approve { .. } => "held-back deletions approved",
                    DeletionDecision::Reject { .. } => {
                        "held-back deletions rejected; the files stay"
                    }
                    DeletionDecision::Undo => "rejected deletions are held back again",
                };
                tracing::info!(source = name, deletions, "{event}");
                Ok(decided)
            };
            match self.complete("decision on deletions", deciding).await? {
                DecisionResult::Decided(deletions) => Ok(Some(deletions)),
                DecisionResult::MoreHeldBack { held, seen } => {
                    Err(more_held(source.context.name(), held, seen))
                }
            }
        }
        .boxed()
    }

    /// Runs a long operation to its end, or until the stop, also if the request for it is cut off.
    async fn complete<T: Send + 'static>(
        &self,
        name: &str,
        operation: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StatusError> {
        let (result, results) = oneshot::channel();
        let running = async move {
            let _ = result.send(catch_panic(operation).await);
        };
        let watched = self.heartbeats.watched(name, running);
        self.spawn(watched).await;
        match results.await {
            Ok(Ok(done)) => done.map_err(store_failed),
            Ok(Err(_)) | Err(_) => Err(store_failed(StoreError::Panicked)),
        }
    }

    /// Has the TimeMaps of a resource read; returns of how many Sources.
    pub(super) async fn request_time_maps(
        &self,
        sources: &[Arc<SourceContext>],
        uri: &ResourceUri,
    ) -> Result<u64, StatusError> {
        let now = clock::now().wall;
        let failed = |code: &str, message: String| StatusError::new(code, message, now);
        let (mut requested, mut is_known) = (0, false);
        let storing = sources.iter().filter(|it| it.versions.is_some());
        let storing: Vec<&Arc<SourceContext>> = storing.collect();
        if storing.is_empty() {
            let message = "no versions are stored: `versions` is not set in the configuration";
            return Err(failed("no-versions", message.to_owned()));
        }
        for context in storing {
            let request = self.store.request_time_map(context.name(), uri, now);
            let request = request.await.map_err(store_failed)?;
            is_known |= request.is_some();
            requested += u64::from(request == Some(true));
        }
        match (requested, is_known) {
            (0, true) => {
                let message = format!("the Source links to no TimeMap of {uri}");
                Err(failed("no-time-map", message))
            }
            (0, false) => {
                let message = format!("no resource {uri} is known");
                Err(failed("unknown-resource", message))
            }
            _ => Ok(requested),
        }
    }

    /// The Sources that are not followed any more, and were not forgotten.
    async fn former_sources(&self) -> Result<Vec<FormerSource>, StoreError> {
        let mut former = Vec::new();
        for location in self.store.locations().await? {
            if self.sources.find(&location.name).is_none() {
                let totals = match self.store.set_totals(&location.name).await {
                    Err(error) if self.store.note_unreadable(&location.name, &error) => Vec::new(),
                    totals => totals?,
                };
                former.push(status_view::former_source(location, &totals));
            }
        }
        Ok(former)
    }

    fn source(&self, name: &str) -> Option<FollowedSource> {
        self.sources.find(name)
    }

    /// The Source of that name, or all; `None` if there is none of that name.
    fn selected(&self, name: Option<&str>) -> Option<Vec<Arc<SourceContext>>> {
        match name {
            Some(name) => Some(vec![self.source(name)?.context]),
            None => Some(self.sources.contexts()),
        }
    }

    /// Plans the deletion of what only sets of a Source have that are not followed any more; returns how many resources.
    async fn delete_former_sets(&self, source: &config::Source) -> Result<u64, StoreError> {
        let (name, now) = (source.name.as_str(), clock::now().wall);
        let totals = self.store.set_totals(name).await?.into_iter();
        let former = totals.filter(|set| status_view::is_former(source, set));
        let former: Vec<SetTotals> = former.collect();
        // One that is only not selected would need its memberships to go on.
        for set in former.iter().filter(|set| set.is_ended) {
            self.store.leave_shared(set.id).await?;
        }
        let former: Vec<SetId> = former.into_iter().map(|set| set.id).collect();
        let mut planned = 0;
        for &set in &former {
            let mut after = ResourceId(0);
            while let Some((last, resources)) = self
                .store
                .delete_next_of_former(name, now, set, &former, after)
                .await?
            {
                after = last;
                planned += resources as u64;
            }
        }
        Ok(planned)
    }

    /// Forgets a Source that is not followed.
    async fn forget_unfollowed(
        &self,
        name: &str,
        delete_files: bool,
    ) -> Result<Forgotten, StatusError> {
        let failed = |error: ForgetError| {
            StatusError::new(error.code(), error.to_string(), clock::now().wall)
        };
        let configuring = self.configuring.lock().await;
        if self.source(name).is_some() {
            return Err(failed(ForgetError::Followed(name.to_owned())));
        }
        let begun = self.forgetting.begin(name, &self.stop).map_err(failed)?;
        drop(configuring);
        let sources = self.sources.current();
        let mirrors = sources.iter().map(|source| &source.context.source);
        let request = ForgetRequest {
            name: name.to_owned(),
            delete_files,
            mirrors: mirrors
                .map(|source| (source.name.clone(), source.mirror.clone()))
                .collect(),
        };
        let store = Arc::clone(&self.store);
        let ending = EndingSource::unfollowed(
            name,
            &self.shared.transports,
            self.shared.public_url.as_ref(),
        );
        let (result, forgotten) = oneshot::channel();
        // It goes on if the request for it is cut off.
        let forgetting = async move {
            let forgetting = forget_source(&store, &ending, &request, begun.stop());
            let _ = result.send(catch_panic(forgetting).await);
            drop(begun);
        };
        let watched = self.heartbeats.watched("forgetting a Source", forgetting);
        self.spawn(watched).await;
        match forgotten.await {
            Ok(Ok(forgotten)) => forgotten.map_err(failed),
            Ok(Err(_)) | Err(_) => Err(failed(ForgetError::Interrupted)),
        }
    }

    async fn failed_page(
        &self,
        sources: Vec<Arc<SourceContext>>,
        page: Page,
    ) -> Result<Vec<FailedResource>, StoreError> {
        let mut found = Vec::new();
        for context in sources {
            let (after, limit) = (ResourceId(page.after), page.limit);
            let tasks = self.store.given_up(context.name(), after, limit).await?;
            found.extend(
                tasks
                    .into_iter()
                    .map(|task| failed_resource(&context, task)),
            );
        }
        found.sort_by_key(|resource| resource.id);
        found.truncate(page.limit);
        Ok(found)
    }

    async fn held_page(
        &self,
        sources: Vec<Arc<SourceContext>>,
        is_rejected: bool,
        page: Page,
    ) -> Result<Vec<HeldDeletion>, StoreError> {
        let mut found = Vec::new();
        for context in sources {
            let (after, limit) = (ResourceId(page.after), page.limit);
            let (name, store) = (context.name(), &self.store);
            let tasks = store.held_back(name, is_rejected, after, limit).await?;
            found.extend(tasks.into_iter().map(|task| held_deletion(&context, task)));
        }
        found.sort_by_key(|deletion| deletion.id);
        found.truncate(page.limit);
        Ok(found)
    }
}

fn store_failed(error: StoreError) -> StatusError {
    StatusError::new(error.code(), error.to_string(), clock::now().wall)
}

/// The error of an approval of fewer deletions than are held back.
fn more_held(source: &str, held: u64, seen: u64) -> StatusError {
    let message = format!(
        "nothing is approved: {held} deletions of {source} are held back by now, and {seen} were shown; look at them again (the page \
         of the Source, or `resyncd approve {source} --list`), then approve"
    );
    StatusError::new("more-deletions-held", message, clock::now().wall)
}

impl Operations for Engine {
    fn unwritable_mirror(&self) -> Option<(String, StatusError)> {
        self.runtime_status.recent_disk_error(clock::now().mono)
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, StatusError>> {
        async {
            let status = self.status_of_sources().await;
            status.map_err(|error| {
                StatusError::new(error.code(), error.to_string(), clock::now().wall)
            })
        }
        .boxed()
    }

    fn metrics(&self, status: &Status) -> Result<String, StatusError> {
        exposition(status, &self.counters).map_err(|error| {
            let message = format!("the metrics cannot be encoded: {error}");
            StatusError::new("metrics", message, clock::now().wall)
        })
    }

    fn is_followed(&self, source: Option<&str>, set: Option<&str>) -> bool {
        let Some(selected) = self.selected(source) else {
            return false;
        };
        let names = |context: &Arc<SourceContext>, list: &str| {
            let mut sets = context.source.sets.iter();
            sets.any(|set| set.as_str() == list)
        };
        set.is_none_or(|list| selected.iter().any(|context| names(context, list)))
    }

    fn versions<'a>(
        &'a self,
        source: Option<&'a str>,
        uri: &'a ResourceUri,
    ) -> BoxFuture<'a, Result<Option<Vec<ResourceVersion>>, StatusError>> {
        let selected = self.selected(source);
        async move {
            let Some(sources) = selected else {
                return Ok(None);
            };
            let mut versions = Vec::new();
            for context in &sources {
                let found = versions_of(context, uri).await;
                versions.extend(found.map_err(|error| error.status_error())?);
            }
            Ok(Some(versions))
        }
        .boxed()
    }

    fn backfill<'a>(
        &'a self,
        source: Option<&'a str>,
        uri: &'a ResourceUri,
    ) -> BoxFuture<'a, Result<Option<u64>, StatusError>> {
        let selected = self.selected(source);
        async move {
            let Some(sources) = selected else {
                return Ok(None);
            };
            self.request_time_maps(&sources, uri).await.map(Some)
        }
        .boxed()
    }

    fn poll(&self, source: &str) -> bool {
        let Some(followed) = self.source(source) else {
            return false;
        };
        if let Some(commands) = &followed.commands {
            // A full queue has a command already.
            let _ = commands.try_send(Command::Poll);
        }
        true
    }

    fn approve(
        &self,
        source: &str,
        seen: SeenDeletions,
    ) -> BoxFuture<'_, Result<Option<u64>, StatusError>> {
        let decision = DeletionDecision::Approve {
            seen: seen.held,
            through: seen.through,
        };
        self.decide(source, decision)
    }

    fn reject(
        &self,
        source: &str,
        through: Option<u64>,
    ) -> BoxFuture<'_, Result<Option<u64>, StatusError>> {
        self.decide(source, DeletionDecision::Reject { through })
    }

    fn undo_reject(&self, source: &str) -> BoxFuture<'_, Result<Option<u64>, StatusError>> {
        self.decide(source, DeletionDecision::Undo)
    }

    fn retry(&self, source: &str) -> BoxFuture<'_, Result<Option<u64>, StatusError>> {
        let found = self.source(source);
        async move {
            let Some(source) = found else { return Ok(None) };
            let (store, stop) = (Arc::clone(&self.store), self.stop.clone());
            let name = source.context.name().to_owned();
            let retrying = async move {
                let goes_on = || !stop.is_cancelled();
                let retried = store.retry_given_up(&name, clock::now().wall, goes_on);
                let versions = store.retry_versions(&name, clock::now().wall);
                let retried = retried.await? + versions.await?;
                tracing::info!(source = name, retried, "failed changes are tried again");
                Ok(retried)
            };
            self.complete("retry of failed changes", retrying)
                .await
                .map(Some)
        }
        .boxed()
    }

    fn failed(
        &self,
        source: Option<&str>,
        page: Page,
    ) -> BoxFuture<'_, Result<Option<Vec<FailedResource>>, StatusError>> {
        let selected = self.selected(source);
        async move {
            let Some(sources) = selected else {
                return Ok(None);
            };
            let found = self.failed_page(sources, page).await;
            found.map(Some).map_err(store_failed)
        }
        .boxed()
    }

    fn held(
        &self,
        source: Option<&str>,
        is_rejected: bool,
        page: Page,
    ) -> BoxFuture<'_, Result<Option<Vec<HeldDeletion>>, StatusError>> {
        let selected = self.selected(source);
        async move {
            let Some(sources) = selected else {
                return Ok(None);
            };
            let found = self.held_page(sources, is_rejected, page).await;
            found.map(Some).map_err(store_failed)
        }
        .boxed()
    }

    fn activity(&self, source: Option<&str>) -> Option<Activity> {
        let sources = self.selected(source)?;
        let counts = sources.iter().map(|context| &context.recent_changes);
        Some(recent_changes::activity(counts, clock::now().wall))
    }

    fn unsubscribe(&self, source: &str) -> BoxFuture<'_, Option<Vec<UnsubscribeResult>>> {
        let found = self.source(source).map(|source| source.context);
        let (name, public_url) = (source.to_owned(), self.shared.public_url.as_ref());
        let transports = &self.shared.transports;
        async move {
            let Some(context) = found else {
                let ending = EndingSource::unfollowed(&name, transports, public_url);
                let ended = end_subscriptions(&self.store, &ending).await;
                return Some(ended).filter(|ended| !ended.is_empty());
            };
            context.retired.cancel();
            let ending = EndingSource::of(&context.source, transports, public_url);
            Some(end_subscriptions(&self.store, &ending).await)
        }
        .boxed()
    }

    fn forget(
        &self,
        source: &str,
        delete_files: bool,
    ) -> BoxFuture<'_, Result<Forgotten, StatusError>> {
        let name = source.to_owned();
        async move { self.forget_unfollowed(&name, delete_files).await }.boxed()
    }

    fn forget_former_sets(&self, source: &str) -> BoxFuture<'_, Result<Option<u64>, StatusError>> {
        let found = self.source(source);
        async move {
            let Some(source) = found else { return Ok(None) };
            let deletions = self.delete_former_sets(&source.context.source).await;
            let deletions = deletions.map_err(store_failed)?;
            let name = source.context.name();
            tracing::info!(
                source = name,
                deletions,
                "resources of former sets are deleted"
            );
            Ok(Some(deletions))
        }
        .boxed()
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
    let restarting = async move {
        while let Some(ended) = moved.recv().await {
            let Some(engine) = engine.upgrade() else {
                return;
            };
            engine.restart(ended).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = restarting => {}
    }
}

/// Records at intervals, and at the end, that the daemon runs: after a longer downtime it subscribes anew.
async fn record_uptime(store: Arc<Store>, stop: CancellationToken) {
    loop {
        let has_stopped = tokio::select! {
            () = stop.cancelled() => true,
            () = tokio::time::sleep(UPTIME_INTERVAL) => false,
        };
        if let Err(error) = store.note_running(clock::now().wall).await {
            // What else is written fails as well, and is reported.
            tracing::debug!(code = error.code(), %error, "database error; the uptime is not recorded");
        }
        if has_stopped {
            return;
        }
    }
}
