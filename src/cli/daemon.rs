//! The daemon as a whole: the database, the listeners and the engine, started in order and stopped in order.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::engine::Engine;
use crate::fetch::{Client, FetchError};
use crate::http::{
    BoundListener, Callback, RejectionCounters, bind, callback_router, operator_router, serve,
};
use crate::status::Operations;
use crate::store::{Store, StoreError};

/// Why the daemon can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database can't be had.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An address can't be listened on.
    #[error("{which} can't listen on {address}: {error}")]
    Listen {
        /// The section of the configuration.
        which: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// The HTTP client can't be set up.
    #[error("the HTTP client can't be set up: {0}")]
    Client(#[from] FetchError),
}

impl StartError {
    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Listen { .. } => "listen",
            Self::Client(error) => error.code(),
        }
    }
}

/// A daemon at work.
pub struct Daemon {
    /// The database.
    pub store: Arc<Store>,
    /// Where hubs call; `None` where no Source wants notifications.
    pub callback: Option<SocketAddr>,
    /// Where operators look.
    pub status: SocketAddr,
    engine: Arc<Engine>,
    listening_to_hubs: Listening,
    listening_to_operators: Listening,
}

/// A listener at work.
pub(super) struct Listening {
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Opens the database, binds the listeners and begins to follow the Sources.
    ///
    /// A public URL whose port is 0 gets the port that the callback listener was given, for tests and demonstrations.
    ///
    /// # Errors
    /// [`StartError`]; then nothing runs.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let client = Client::new(&config.http)?;
        Self::start_with(config, client).await
    }

    /// As [`start`](Self::start), with a client that is there already, in place of the one that the configuration describes.
    ///
    /// # Errors
    /// [`StartError`]; then nothing runs.
    pub async fn start_with(mut config: Config, client: Client) -> Result<Self, StartError> {
        let store = Store::open(&config.state_dir)?;
        let status = listen("[status]", config.status.listen).await?;
        let callback = if config.sources.iter().any(|source| source.notifications) {
            Some(listen_for_hubs(&mut config).await?)
        } else {
            None
        };
        let (status_address, callback_address) =
            (status.address, callback.as_ref().map(|bound| bound.address));
        let tally = RejectionCounters::default();
        let listening_to_hubs = Listening::to_hubs(callback, &config, &store, tally.clone());
        let engine = Engine::start(&config, Arc::clone(&store), &client);
        let stop = CancellationToken::new();
        let operations = Arc::clone(&engine) as Arc<dyn Operations>;
        let hosts = &config.status.hosts;
        let router = operator_router(
            operations,
            Arc::clone(&store),
            hosts,
            stop.clone(),
            tally.clone(),
        );
        let listening_to_operators = Listening {
            task: Some(tokio::spawn(serve(status, router, stop.clone(), tally))),
            stop,
        };
        Ok(Self {
            store,
            callback: callback_address,
            status: status_address,
            engine,
            listening_to_hubs,
            listening_to_operators,
        })
    }

    /// Stops in order: first nothing more comes in, then what is under way is finished, then the status goes.
    pub async fn stop(self) {
        self.listening_to_hubs.stop().await;
        self.engine.stop().await;
        self.listening_to_operators.stop().await;
    }
}

impl Listening {
    /// Answers hubs.
    pub(super) fn to_hubs(
        bound: Option<BoundListener>,
        config: &Config,
        store: &Arc<Store>,
        tally: RejectionCounters,
    ) -> Self {
        let stop = CancellationToken::new();
        let task = bound.map(|bound| {
            let prefix = config
                .callback
                .public_url
                .as_ref()
                .map_or("/", |url| url.path());
            let limits = &config.limits;
            let (store, counting) = (Arc::clone(store), tally.clone());
            let callback =
                Callback::new(store, prefix, limits.notification, limits.inbox, counting);
            tokio::spawn(serve(bound, callback_router(callback), stop.clone(), tally))
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

async fn listen(which: &'static str, address: SocketAddr) -> Result<BoundListener, StartError> {
    bind(address).await.map_err(|error| StartError::Listen {
        which,
        address,
        error,
    })
}

/// Binds the callback listener.
pub(super) async fn listen_for_hubs(config: &mut Config) -> Result<BoundListener, StartError> {
    let bound = listen("[callback]", config.callback.listen).await?;
    if let Some(url) = config
        .callback
        .public_url
        .as_mut()
        .filter(|url| url.port() == Some(0))
    {
        // It fails only for URLs that can't have a port, and this one has.
        let _ = url.set_port(Some(bound.address.port()));
    }
    Ok(bound)
}
