//! The only joiner: what is fetched, decided, kept and published comes together here.
//!
//! A Source has a worker that finds its sets, an applier that works off its tasks, and a worker for each set. A set's
//! worker is the only one that moves its coverage; the applier is the only one that changes the mirror. They meet in the
//! [`store`](crate::store), and wake each other through it. One Source's trouble is its own: nothing waits for another's.
//!
//! ```text
//! SourceWorker ── finds ──► SetWorker ── tasks ──► store ──► Applier ── downloads ──► publisher ──► mirror, store
//!                              ▲  │
//!                  inbox, hubs │  └─ Change Lists, Resource Lists, dumps and their packages
//! ```
//!
//! The same set workers and appliers also go through everything [once](Engine::once), without hubs. An [`Audit`] looks at
//! the mirror without believing the database, and has what it finds mended by an applier.

mod applier;
mod audit;
mod baseline;
mod channels;
mod context;
mod dumps;
mod error;
mod failures;
mod inbox;
mod lists;
mod one_shot;
mod polling;
mod progress;
mod reading;
mod runtime_status;
mod set;
mod set_discovery;
#[cfg(test)]
mod simulation;
mod source;
mod view;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use chrono::{DateTime, Utc};
use futures_util::future::{BoxFuture, FutureExt, join_all};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::clock;
use crate::config::{self, Config};
use crate::fetch::Client;
use crate::status::{Ending, Operations, Status, StatusError};
use crate::store::{ChannelRecord, Store};
use crate::sync::ChannelState;

pub use audit::{Audit, ReportedFinding, Summary, Sums};
pub use progress::Counts;

use context::SourceContext;
use dumps::members::Members;
use dumps::refusals::Refusals;
use error::EngineError;
use progress::Progress;
use runtime_status::RuntimeStatus;
use set::Command;
use source::SourceWorker;

/// The daemon at work.
pub struct Engine {
    started_at: DateTime<Utc>,
    store: Arc<Store>,
    runtime_status: Arc<RuntimeStatus>,
    sources: Vec<Followed>,
    workers: tokio::sync::Mutex<JoinSet<()>>,
    stop: CancellationToken,
}

struct Followed {
    context: Arc<SourceContext>,
    /// To the Source's worker, if it has one that goes on.
    commands: Option<mpsc::Sender<Command>>,
}

impl Engine {
    /// Begins to follow every Source of the configuration. The callback listener should be bound by now: hubs verify at
    /// once.
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

    /// One whose workers have not begun.
    fn new(config: &Config, store: Arc<Store>, client: &Client, subscribes: bool) -> Self {
        let runtime_status = Arc::new(RuntimeStatus::default());
        let stop = CancellationToken::new();
        let followed = |source: &config::Source| Followed {
            context: Arc::new(SourceContext {
                source: source.clone(),
                limits: config.limits.clone(),
                connections_per_host: config.http.connections_per_host,
                store: Arc::clone(&store),
                client: client.with_credentials(&source.credentials),
                runtime_status: Arc::clone(&runtime_status),
                public_url: config.callback.public_url.clone(),
                mirror: OnceLock::new(),
                members: Members::default(),
                package_files: tokio::sync::Mutex::default(),
                refusals: Refusals::default(),
                subscribes,
                progress: Progress::default(),
                links_cut: AtomicBool::new(false),
                reliance: Mutex::default(),
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

    /// Stops following, in order: what is finished is published and kept. The subscriptions stay.
    pub async fn stop(&self) {
        self.stop.cancel();
        let mut workers = self.workers.lock().await;
        while let Some(ended) = workers.join_next().await {
            if let Err(error) = ended {
                tracing::error!(code = "worker", %error, "a worker ended badly");
            }
        }
    }

    fn source(&self, name: &str) -> Option<&Followed> {
        self.sources
            .iter()
            .find(|source| source.context.name() == name)
    }
}

impl Operations for Engine {
    fn refusing_mirror(&self) -> Option<(String, StatusError)> {
        self.runtime_status.refusing_disk(clock::now().mono)
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, StatusError>> {
        async {
            let viewed = view::status(self).await;
            viewed.map_err(|error| {
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
            // One that is full has been told already.
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
            let told = |error: crate::store::StoreError| {
                StatusError::new(error.code(), error.to_string(), clock::now().wall)
            };
            let approved = approved.map_err(told)?;
            tracing::info!(source = name, approved, "held-back deletions go on");
            Ok(Some(approved))
        }
        .boxed()
    }

    fn unsubscribe(&self, source: &str) -> BoxFuture<'_, Option<Vec<Ending>>> {
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

/// Ends a Source's subscriptions at their hubs. Somebody must be answering the callback meanwhile.
pub async fn end_subscriptions(
    store: &Arc<Store>,
    client: &Client,
    public_url: Option<&Url>,
    source: &config::Source,
) -> Vec<Ending> {
    let channels = match subscribed(store, &source.name).await {
        Ok(channels) => channels,
        Err(error) => {
            tracing::error!(code = error.code(), source = source.name, %error, "the subscriptions can't be read");
            return vec![Ending {
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
    join_all(channels.iter().map(|channel| {
        channels::subscription::end(store, client, public_url, &source.name, channel)
    }))
    .await
}

/// The channels of a Source that a hub may hold a subscription of.
async fn subscribed(store: &Arc<Store>, source: &str) -> Result<Vec<ChannelRecord>, EngineError> {
    let mut found = Vec::new();
    for set in store.sets(source).await? {
        let channels = store.channels(set.id).await?;
        found.extend(channels.into_iter().filter(|channel| {
            channel.hub.is_some()
                && matches!(
                    channel.lease.state,
                    ChannelState::Active | ChannelState::Pending | ChannelState::Expired
                )
        }));
    }
    Ok(found)
}
