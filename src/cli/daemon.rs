//! The daemon: starts the database, the listeners and the engine in order, and stops them in order.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::Config;
use crate::engine::{Engine, followed_sets};
use crate::fetch::{Client, FetchError};
use crate::http::{
    BoundListener, Callback, RejectionCounters, bind, callback_router, operator_router, serve,
};
use crate::status::Operations;
use crate::store::{Store, StoreError, Wake};

/// Why the daemon can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A listener cannot be bound.
    #[error("{which} cannot listen on {address}: {error}")]
    Listen {
        /// The section of the configuration.
        which: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
    /// The HTTP client cannot be created.
    #[error("cannot create the HTTP client: {0}")]
    Client(#[from] FetchError),
}

impl StartError {
    /// The stable code of the error, in kebab-case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Listen { .. } => "listen",
            Self::Client(error) => error.code(),
        }
    }
}

/// A running daemon.
pub struct Daemon {
    /// The database.
    pub store: Arc<Store>,
    /// The address of the callback listener; `None` if no Source has `notifications` and no subscription is to be ended.
    pub callback: Option<SocketAddr>,
    /// The address of the status listener.
    pub status: SocketAddr,
    engine: Arc<Engine>,
    callback_listener: RunningListener,
    status_listener: RunningListener,
}

/// A listener that is being served.
pub(super) struct RunningListener {
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Opens the database, binds the listeners and starts to follow the Sources.
    ///
    /// If the port of the public URL is 0, it becomes the port of the callback listener: for tests and the demo.
    ///
    /// # Errors
    /// [`StartError`]; then nothing runs.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let client = Client::of_config(&config)?;
        Self::start_with(config, client).await
    }

    /// As [`start`](Self::start), with this client instead of one that the configuration describes.
    pub async fn start_with(mut config: Config, client: Client) -> Result<Self, StartError> {
        let store = Store::open(&config.state_dir)?;
        let status = listen("[status]", config.status.listen).await?;
        let now = clock::now().wall;
        store
            .leave_unfollowed(now, followed_sets(&config.sources))
            .await?;
        let renewed = store.note_start(now).await?;
        if renewed > 0 {
            tracing::info!(subscriptions = renewed, "subscribing anew after a downtime");
        }
        let is_notified = config.sources.iter().any(|source| source.notifications);
        let callback = if is_notified {
            Some(bind_callback(&mut config).await?)
        } else if store.has_ending_channels().await? {
            // Without it hubs can't confirm the end of a subscription, and end it with its lease.
            let bound = bind_callback(&mut config).await;
            bound
                .inspect_err(|error| {
                    tracing::warn!(code = "callback-unavailable", %error, "subscriptions can't be ended: no callback listener");
                })
                .ok()
        } else {
            None
        };
        let (status_address, callback_address) =
            (status.address, callback.as_ref().map(|bound| bound.address));
        let rejections = RejectionCounters::default();
        let callback_listener =
            RunningListener::start_callback(callback, &config, &store, rejections.clone());
        let engine = Engine::start(&config, Arc::clone(&store), &client).await?;
        if callback_address.is_some() && !is_notified {
            let listener = callback_listener.stop.clone();
            tokio::spawn(stop_after_endings(Arc::clone(&store), listener));
        }
        let stop = CancellationToken::new();
        let operations = Arc::clone(&engine) as Arc<dyn Operations>;
        let router = operator_router(
            operations,
            Arc::clone(&store),
            &config.status,
            stop.clone(),
            rejections.clone(),
        );
        let status_listener = RunningListener {
            task: Some(tokio::spawn(serve(
                status,
                router,
                stop.clone(),
                rejections,
            ))),
            stop,
        };
        Ok(Self {
            store,
            callback: callback_address,
            status: status_address,
            engine,
            callback_listener,
            status_listener,
        })
    }

    /// The operations that the status endpoint calls.
    pub(super) fn operations(&self) -> &dyn Operations {
        &*self.engine
    }

    /// Returns once the database and a thread for blocking work have answered: whether the database and the workers have not
    /// ended. It hangs if one of them does.
    pub(super) async fn works(&self) -> bool {
        if !self.store.answers().await {
            return false;
        }
        self.store.serves_workers().await;
        let thread = tokio::task::spawn_blocking(|| ()).await;
        thread.is_ok() && self.engine.workers_run().await
    }

    /// Stops in order: the callback listener, the engine with its work in progress, the status listener.
    pub async fn stop(self) {
        self.callback_listener.stop().await;
        self.engine.stop().await;
        self.status_listener.stop().await;
    }
}

impl RunningListener {
    /// Serves the callback listener, if it is bound.
    pub(super) fn start_callback(
        bound: Option<BoundListener>,
        config: &Config,
        store: &Arc<Store>,
        rejections: RejectionCounters,
    ) -> Self {
        let stop = CancellationToken::new();
        let task = bound.map(|bound| {
            let prefix = config
                .callback
                .public_url
                .as_ref()
                .map_or("/", |url| url.path());
            let limits = &config.limits;
            let (store, counters) = (Arc::clone(store), rejections.clone());
            let (longest, inbox) = (limits.notification, limits.inbox);
            let secrets = config.redaction();
            let callback = Callback::new(store, prefix, longest, inbox, counters, &secrets);
            tokio::spawn(serve(
                bound,
                callback_router(callback),
                stop.clone(),
                rejections,
            ))
        });
        Self { stop, task }
    }

    pub(super) async fn stop(self) {
        self.stop.cancel();
        if let Some(task) = self.task {
            // A listener that panicked has nothing left to drain.
            let _ = task.await;
        }
    }
}

/// Stops the callback listener once the last subscription has ended: hubs verify that, and nothing else is expected of them.
async fn stop_after_endings(store: Arc<Store>, listener: CancellationToken) {
    let mut wakes = store.wakes();
    // After a database error, the next wake.
    while !matches!(store.has_ending_channels().await, Ok(false)) {
        let woken = async {
            loop {
                match wakes.recv().await {
                    Ok(Wake::Channel(..)) | Err(RecvError::Lagged(_)) => break true,
                    Ok(_) => {}
                    Err(RecvError::Closed) => break false,
                }
            }
        };
        tokio::select! {
            () = listener.cancelled() => return,
            is_open = woken => if !is_open { return },
        }
    }
    tracing::info!("every subscription has ended; the callback listener stops");
    listener.cancel();
}

async fn listen(which: &'static str, address: SocketAddr) -> Result<BoundListener, StartError> {
    bind(address).await.map_err(|error| StartError::Listen {
        which,
        address,
        error,
    })
}

/// Binds the callback listener.
pub(super) async fn bind_callback(config: &mut Config) -> Result<BoundListener, StartError> {
    let bound = listen("[callback]", config.callback.listen).await?;
    if let Some(url) = config
        .callback
        .public_url
        .as_mut()
        .filter(|url| url.port() == Some(0))
    {
        // Fails only for URLs that cannot have a port; this one has one.
        let _ = url.set_port(Some(bound.address.port()));
    }
    Ok(bound)
}
