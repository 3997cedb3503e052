//! Starts and stops the workers of all Sources, and executes the operators' requests.
//!
//! Invariants: when the stop returns, every task that was in progress is published and committed, or pending as before; the
//! subscriptions stay.
//!
//! Must not know what a worker does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::{BoxFuture, FutureExt, join_all};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::activity_log::log_activity;
use super::apply::members::Members;
use super::attention_log::log_attentions;
use super::channels::{EndingSource, Unfollowed};
use super::context::SourceContext;
use super::error::EngineError;
use super::heartbeats::Heartbeats;
use super::package_places::{PackagePlaces, SharedPlaces};
use super::progress::Progress;
use super::recent_changes::{self, RESTORED, RecentChanges};
use super::restarts::restarting;
use super::runtime_status::RuntimeStatus;
use super::set::worker::Command;
use super::source::worker::SourceWorker;
use super::status_view::{self, failed_resource, held_deletion};
use super::trimming::{TrimRules, trim};
use crate::clock;
use crate::config::{self, Config};
use crate::fetch::Client;
use crate::metrics::{Counters, exposition};
use crate::status::{
    Activity, FailedResource, HeldDeletion, Operations, Page, Status, StatusError,
    UnsubscribeResult,
};
use crate::store::{FeedSearch, FollowedSets, ResourceId, Store, StoreError};

/// How often it is recorded that the daemon runs.
const UPTIME_INTERVAL: Duration = Duration::from_secs(15);

/// The workers of a daemon, or of a single run.
pub struct Engine {
    started_at: DateTime<Utc>,
    pub(super) store: Arc<Store>,
    pub(super) runtime_status: Arc<RuntimeStatus>,
    counters: Counters,
    heartbeats: Heartbeats,
    pub(super) sources: Vec<FollowedSource>,
    /// For what belongs to no Source of the configuration.
    client: Client,
    public_url: Option<Url>,
    workers: tokio::sync::Mutex<JoinSet<()>>,
    /// Whether a worker has ended by a panic, and was not started again.
    has_panicked: AtomicBool,
    pub(super) stop: CancellationToken,
}

pub(super) struct FollowedSource {
    pub(super) context: Arc<SourceContext>,
    /// To the Source's worker; `None` in a single run.
    commands: Option<mpsc::Sender<Command>>,
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
        engine.restore_recent_changes().await;
        let mut workers = JoinSet::new();
        for source in &mut engine.sources {
            let (commands, receiver) = mpsc::channel(4);
            source.commands = Some(commands);
            let following = SourceWorker::new(Arc::clone(&source.context), receiver).run();
            workers.spawn(source.context.watched("worker of the Source", following));
        }
        let (store, stop) = (Arc::clone(&engine.store), engine.stop.clone());
        let recording = restarting("record of the uptime", stop.clone(), move || {
            record_uptime(Arc::clone(&store), stop.clone())
        });
        let heartbeats = &engine.heartbeats;
        workers.spawn(heartbeats.watched("record of the uptime", recording));
        let (store, stop) = (Arc::clone(&engine.store), engine.stop.clone());
        let rules = TrimRules::of(config);
        let trimming = restarting("trimming", stop.clone(), move || {
            trim(Arc::clone(&store), rules.clone(), stop.clone())
        });
        workers.spawn(heartbeats.watched("trimming", trimming));
        let contexts = engine.sources.iter();
        let contexts: Vec<_> = contexts.map(|it| Arc::clone(&it.context)).collect();
        let (stop, of_activity) = (engine.stop.clone(), contexts.clone());
        let logging = restarting("log of attentions", stop.clone(), move || {
            log_attentions(contexts.clone(), stop.clone())
        });
        workers.spawn(heartbeats.watched("log of attentions", logging));
        let (store, stop) = (Arc::clone(&engine.store), engine.stop.clone());
        let logging = restarting("log of activity", stop.clone(), move || {
            log_activity(Arc::clone(&store), of_activity.clone(), stop.clone())
        });
        workers.spawn(heartbeats.watched("log of activity", logging));
        let unfollowed = Unfollowed {
            store: Arc::clone(&engine.store),
            client: client.clone(),
            runtime_status: Arc::clone(&engine.runtime_status),
            public_url: engine.public_url.as_ref().map(Url::to_string),
            followed: followed_sets(&config.sources),
            stop: engine.stop.clone(),
        };
        let ending = move || unfollowed.clone().end_all();
        let ending = restarting("end of subscriptions", engine.stop.clone(), ending);
        workers.spawn(heartbeats.watched("end of subscriptions", ending));
        engine.workers = tokio::sync::Mutex::new(workers);
        Ok(Arc::new(engine))
    }

    /// An engine without workers.
    pub(super) fn new(
        config: &Config,
        store: Arc<Store>,
        client: &Client,
        subscribes: bool,
    ) -> Self {
        let runtime_status = Arc::new(RuntimeStatus::default());
        let stop = CancellationToken::new();
        let places = SharedPlaces::default();
        let counters = Counters::default();
        let heartbeats = Heartbeats::default();
        let followed = |source: &config::Source| FollowedSource {
            context: Arc::new(SourceContext {
                source: source.clone(),
                limits: config.limits.clone(),
                connections_per_host: config.http.connections_per_host,
                streams_per_host: config.http.streams_per_host,
                store: Arc::clone(&store),
                client: client
                    .for_source(source, config.limits.third_party_requests)
                    .with_counters(counters.of_source(&source.name)),
                counters: counters.of_source(&source.name),
                runtime_status: Arc::clone(&runtime_status),
                public_url: config.callback.public_url.clone(),
                members: Members::default(),
                package_places: PackagePlaces::new(places.clone()),
                subscribes,
                delivery_panics: Mutex::default(),
                progress: Progress::default(),
                heartbeats: heartbeats.clone(),
                recent_changes: RecentChanges::since(clock::now().wall),
                rediscover: Notify::new(),
                stop: stop.child_token(),
                retired: CancellationToken::new(),
            }),
            commands: None,
        };
        Self {
            started_at: clock::now().wall,
            sources: config.sources.iter().map(followed).collect(),
            client: client.clone(),
            public_url: config.callback.public_url.clone(),
            store,
            runtime_status,
            counters,
            heartbeats,
            workers: tokio::sync::Mutex::default(),
            has_panicked: AtomicBool::new(false),
            stop,
        }
    }

    /// Counts what earlier processes have applied of late.
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
        let counts = |name: &str| Some(&self.source(name)?.context.recent_changes);
        let since = recent_changes::restore(&excerpt, counts, clock::now().wall);
        recent_changes::reach_back(self.sources.iter().map(recent_changes_of), since);
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
    pub async fn workers_move(&self) {
        self.heartbeats.all().await;
    }

    /// The names of the workers that [`workers_move`](Self::workers_move) waits for.
    pub fn unmoved_workers(&self) -> Vec<String> {
        self.heartbeats.missing()
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
        let contexts = self.sources.iter().map(|source| &*source.context);
        let mut status = status_view::status(self.started_at, contexts).await?;
        let sources = self.sources.iter().map(|source| &source.context.source);
        let followed = followed_sets(sources);
        let channels = self.store.unfollowed_channels(followed).await?;
        status.unfollowed = status_view::unfollowed(&self.runtime_status, channels);
        status.hosts = status_view::hosts(self.client.host_loads());
        Ok(status)
    }

    fn source(&self, name: &str) -> Option<&FollowedSource> {
        self.sources
            .iter()
            .find(|source| source.context.name() == name)
    }

    /// The Source of that name, or all; `None` if there is none of that name.
    fn selected(&self, name: Option<&str>) -> Option<Vec<&SourceContext>> {
        match name {
            Some(name) => Some(vec![&*self.source(name)?.context]),
            None => Some(self.sources.iter().map(|source| &*source.context).collect()),
        }
    }

    async fn failed_page(
        &self,
        sources: Vec<&SourceContext>,
        page: Page,
    ) -> Result<Vec<FailedResource>, StoreError> {
        let mut found = Vec::new();
        for context in sources {
            let (after, limit) = (ResourceId(page.after), page.limit);
            let tasks = self.store.given_up(context.name(), after, limit).await?;
            found.extend(tasks.into_iter().map(|task| failed_resource(context, task)));
        }
        found.sort_by_key(|resource| resource.id);
        found.truncate(page.limit);
        Ok(found)
    }

    async fn held_page(
        &self,
        sources: Vec<&SourceContext>,
        page: Page,
    ) -> Result<Vec<HeldDeletion>, StoreError> {
        let mut found = Vec::new();
        for context in sources {
            let (after, limit) = (ResourceId(page.after), page.limit);
            let tasks = self.store.held_back(context.name(), after, limit).await?;
            found.extend(tasks.into_iter().map(|task| held_deletion(context, task)));
        }
        found.sort_by_key(|deletion| deletion.id);
        found.truncate(page.limit);
        Ok(found)
    }
}

fn recent_changes_of(source: &FollowedSource) -> &RecentChanges {
    &source.context.recent_changes
}

fn store_failed(error: StoreError) -> StatusError {
    StatusError::new(error.code(), error.to_string(), clock::now().wall)
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
        exposition(status, &self.counters)
            .map_err(|error| StatusError::new(error.code(), error.to_string(), clock::now().wall))
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

    fn approve(&self, source: &str) -> BoxFuture<'_, Result<Option<u64>, StatusError>> {
        let found = self
            .source(source)
            .map(|source| source.context.name().to_owned());
        async move {
            let Some(name) = found else { return Ok(None) };
            let approved = self.store.approve_deletions(&name).await;
            let approved = approved.map_err(store_failed)?;
            tracing::info!(source = name, approved, "held-back deletions approved");
            Ok(Some(approved))
        }
        .boxed()
    }

    fn reject(&self, source: &str) -> BoxFuture<'_, Result<Option<u64>, StatusError>> {
        let found = self.source(source);
        async move {
            let Some(source) = found else { return Ok(None) };
            let name = source.context.name();
            let rejected = self.store.reject_deletions(name).await;
            let rejected = rejected.map_err(store_failed)?;
            tracing::info!(
                source = name,
                rejected,
                "held-back deletions rejected; the files stay"
            );
            Ok(Some(rejected))
        }
        .boxed()
    }

    fn retry(&self, source: &str) -> BoxFuture<'_, Result<Option<u64>, StatusError>> {
        let found = self.source(source);
        async move {
            let Some(source) = found else { return Ok(None) };
            let name = source.context.name();
            let retried = self.store.retry_given_up(name, clock::now().wall).await;
            let retried = retried.map_err(store_failed)?;
            tracing::info!(source = name, retried, "failed changes are tried again");
            Ok(Some(retried))
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
        page: Page,
    ) -> BoxFuture<'_, Result<Option<Vec<HeldDeletion>>, StatusError>> {
        let selected = self.selected(source);
        async move {
            let Some(sources) = selected else {
                return Ok(None);
            };
            let found = self.held_page(sources, page).await;
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
        let found = self
            .source(source)
            .map(|source| Arc::clone(&source.context));
        let (name, public_url) = (source.to_owned(), self.public_url.as_ref());
        async move {
            let Some(context) = found else {
                let ending = EndingSource::unfollowed(&name, &self.client, public_url);
                let ended = end_subscriptions(&self.store, &ending).await;
                return Some(ended).filter(|ended| !ended.is_empty());
            };
            context.retired.cancel();
            let ending = EndingSource::of(&context.source, &self.client, public_url);
            Some(end_subscriptions(&self.store, &ending).await)
        }
        .boxed()
    }
}

/// Which sets the configuration follows, and with channels or without.
pub fn followed_sets<'a>(
    sources: impl IntoIterator<Item = &'a config::Source>,
) -> Vec<FollowedSets> {
    let followed = |source: &config::Source| FollowedSets {
        source: source.name.clone(),
        sets: source.sets.clone(),
        notifications: source.notifications,
    };
    sources.into_iter().map(followed).collect()
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

/// Ends a Source's subscriptions at their hubs, also those of sets that are no longer followed. The callback must be served
/// meanwhile.
pub async fn end_subscriptions(
    store: &Arc<Store>,
    source: &EndingSource,
) -> Vec<UnsubscribeResult> {
    let channels = match store.subscribed_channels(&source.name).await {
        Ok(channels) => channels,
        Err(error) => {
            tracing::error!(code = error.code(), source = source.name, %error, "subscriptions can't be read");
            return vec![UnsubscribeResult {
                source: source.name.clone(),
                topic: String::new(),
                hub: String::new(),
                confirmed: false,
                message: error.to_string(),
            }];
        }
    };
    join_all(channels.iter().map(|channel| source.end(store, channel))).await
}
