//! Starts and stops the workers of all Sources, and executes the operators' requests.
//!
//! Invariants: when the stop returns, every task that was in progress is published and committed, or pending as before; the
//! subscriptions stay.
//!
//! Must not know what a worker does.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures_util::future::{BoxFuture, FutureExt, join_all};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::apply::members::Members;
use super::channels;
use super::context::SourceContext;
use super::error::EngineError;
use super::progress::Progress;
use super::runtime_status::RuntimeStatus;
use super::set::worker::Command;
use super::source::worker::SourceWorker;
use super::status_view;
use crate::clock;
use crate::config::{self, Config};
use crate::fetch::Client;
use crate::status::{Operations, Status, StatusError, UnsubscribeResult};
use crate::store::{ChannelRecord, Store, StoreError};

/// The workers of a daemon, or of a single run.
pub struct Engine {
    started_at: DateTime<Utc>,
    pub(super) store: Arc<Store>,
    pub(super) runtime_status: Arc<RuntimeStatus>,
    pub(super) sources: Vec<FollowedSource>,
    workers: tokio::sync::Mutex<JoinSet<()>>,
    pub(super) stop: CancellationToken,
}

pub(super) struct FollowedSource {
    pub(super) context: Arc<SourceContext>,
    /// To the Source's worker; `None` in a single run.
    commands: Option<mpsc::Sender<Command>>,
}

impl Engine {
    /// Starts to follow every Source of the configuration. The callback listener must be bound before: hubs verify at once.
    #[must_use]
    pub fn start(config: &Config, store: Arc<Store>, client: &Client) -> Arc<Self> {
        let mut engine = Self::new(config, store, client, true);
        let mut workers = JoinSet::new();
        for source in &mut engine.sources {
            let (commands, receiver) = mpsc::channel(4);
            source.commands = Some(commands);
            workers.spawn(SourceWorker::new(Arc::clone(&source.context), receiver).run());
        }
        engine.workers = tokio::sync::Mutex::new(workers);
        Arc::new(engine)
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
        let followed = |source: &config::Source| FollowedSource {
            context: Arc::new(SourceContext {
                source: source.clone(),
                limits: config.limits.clone(),
                connections_per_host: config.http.connections_per_host,
                store: Arc::clone(&store),
                client: client.with_credentials(&source.credentials),
                runtime_status: Arc::clone(&runtime_status),
                public_url: config.callback.public_url.clone(),
                members: Members::default(),
                subscribes,
                progress: Progress::default(),
                rediscover: Notify::new(),
                stop: stop.child_token(),
                retired: CancellationToken::new(),
            }),
            commands: None,
        };
        Self {
            started_at: clock::now().wall,
            sources: config.sources.iter().map(followed).collect(),
            store,
            runtime_status,
            workers: tokio::sync::Mutex::default(),
            stop,
        }
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
        status_view::status(self.started_at, contexts).await
    }

    fn source(&self, name: &str) -> Option<&FollowedSource> {
        self.sources
            .iter()
            .find(|source| source.context.name() == name)
    }
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
            let status_error = |error: StoreError| {
                StatusError::new(error.code(), error.to_string(), clock::now().wall)
            };
            let approved = approved.map_err(status_error)?;
            tracing::info!(source = name, approved, "held-back deletions approved");
            Ok(Some(approved))
        }
        .boxed()
    }

    fn unsubscribe(&self, source: &str) -> BoxFuture<'_, Option<Vec<UnsubscribeResult>>> {
        let found = self
            .source(source)
            .map(|source| Arc::clone(&source.context));
        async move {
            let context = found?;
            context.retired.cancel();
            let public_url = context.public_url.as_ref();
            Some(
                end_subscriptions(&context.store, &context.client, public_url, &context.source)
                    .await,
            )
        }
        .boxed()
    }
}

/// Ends a Source's subscriptions at their hubs. The callback must be served meanwhile.
pub async fn end_subscriptions(
    store: &Arc<Store>,
    client: &Client,
    public_url: Option<&Url>,
    source: &config::Source,
) -> Vec<UnsubscribeResult> {
    let channels = match subscribed(store, &source.name).await {
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
    let Some(public_url) = public_url else {
        return Vec::new();
    };
    let client = &client.with_credentials(&source.credentials);
    join_all(
        channels
            .iter()
            .map(|channel| channels::end(store, client, public_url, source, channel)),
    )
    .await
}

/// The channels of a Source that a hub may have a subscription of.
async fn subscribed(store: &Arc<Store>, source: &str) -> Result<Vec<ChannelRecord>, EngineError> {
    let mut found = Vec::new();
    for set in store.sets(source).await? {
        let channels = store.channels(set.id).await?;
        found.extend(
            channels
                .into_iter()
                .filter(|record| record.channel().may_be_subscribed()),
        );
    }
    Ok(found)
}
