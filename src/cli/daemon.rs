//! The daemon: starts the database, the listeners and the engine in order, and stops them in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use resyncd_core::hide_userinfo;
use resyncd_fetch::{Bounds, Client, FetchError, pause};
use tokio::sync::Mutex;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::public_url::{is_loopback, leads_to_listener};
use crate::clock;
use crate::config::{Config, ConfigChanges};
use crate::engine::{Engine, followed_sets};
use crate::http::{
    BoundListener, Callback, RejectionCounters, SharedRedaction, answer_nodes, bind,
    callback_router, operator_router, operator_routes, serve,
};
use crate::publish::{Publisher, publish, site_router};
use crate::status::{Status, StatusError};
use crate::store::{Store, StoreError, Wake};

/// The code of a public URL that does not lead here.
const PUBLIC_URL: &str = "public-url-unreachable";
/// The pauses before the public URL is tried again.
const PROBES: Bounds = Bounds {
    tries: u32::MAX,
    first: Duration::from_secs(60),
    longest: Duration::from_secs(3600),
};

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
    /// The address of the callback listener; `None` if nothing is to be delivered to it and no subscription is to be ended.
    pub callback: Option<SocketAddr>,
    /// The address of the status listener.
    pub status: SocketAddr,
    engine: Arc<Engine>,
    /// What [`works`](Self::works) waits for.
    probed: parking_lot::Mutex<Probed>,
    /// Also held while it is reloaded.
    configured: Mutex<Configured>,
    secrets: SharedRedaction,
    rejections: RejectionCounters,
    status_listener: RunningListener,
    /// The address of the listener for Destinations; `None`: nothing is published.
    pub publish: Option<SocketAddr>,
    publication: Option<Publication>,
}

/// What is published, and its listener.
struct Publication {
    publisher: Arc<Publisher>,
    listener: RunningListener,
}

/// What the daemon can't work without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probed {
    Database,
    QueryThreads,
    BlockingThreads,
    Workers,
}

/// What a reload may change.
struct Configured {
    /// The configuration in use.
    config: Config,
    callback_listener: RunningListener,
    /// Stops the callback listener once the last subscription has ended; `None`: it is needed for others.
    endings: Option<AbortHandle>,
    /// Finds out whether the public URL leads to the callback listener; `None`: nothing is pushed to it.
    probing: Option<AbortHandle>,
}

/// A listener that is being served.
pub(super) struct RunningListener {
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Opens the database, binds the listeners and starts to follow the Sources.
    ///
    /// If the port of the public URL is 0, it becomes the port of the callback listener: for tests.
    ///
    /// # Errors
    /// [`StartError`]; then nothing runs.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let client = config.client()?;
        Self::start_with(config, client).await
    }

    /// As [`start`](Self::start), with this client instead of one that the configuration describes.
    pub async fn start_with(mut config: Config, client: Client) -> Result<Self, StartError> {
        let store = Store::open(config.state().shared())?;
        let status = listen("[status]", config.status.listen).await?;
        let now = clock::now().wall;
        store
            .leave_unfollowed(now, followed_sets(&config.sources))
            .await?;
        let renewed = store.note_start(now).await?;
        if renewed > 0 {
            tracing::info!(
                subscriptions = renewed,
                "renewing subscriptions after a downtime"
            );
        }
        let configured = config.clone();
        let is_notified = config.has_callback();
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
        let published = if config.publishes() {
            Some(listen("[publish]", config.publish.listen).await?)
        } else {
            None
        };
        let publish = published.as_ref().map(|bound| bound.address);
        let (status_address, callback_address) =
            (status.address, callback.as_ref().map(|bound| bound.address));
        let rejections = RejectionCounters::default();
        let secrets = SharedRedaction::new(&config.redaction());
        let callback_listener = RunningListener::start_callback(
            callback,
            &config,
            &store,
            rejections.clone(),
            secrets.clone(),
        );
        let engine = Engine::start(&config, Arc::clone(&store), &client).await?;
        let endings = (callback_address.is_some() && !is_notified).then(|| {
            let listener = callback_listener.stop.clone();
            let stopping = stop_after_endings(Arc::clone(&store), listener);
            tokio::spawn(stopping).abort_handle()
        });
        let probing = probe_public_url(&config, &engine, &rejections);
        let publication = match published {
            Some(bound) => {
                let parts = (&store, &client);
                Some(Publication::start(bound, &config, &engine, parts, &rejections).await?)
            }
            None => None,
        };
        let stop = CancellationToken::new();
        let parts = (Arc::clone(&engine), Arc::clone(&store));
        let routes = operator_routes(parts.0, parts.1, stop.clone(), rejections.clone());
        let answering = answer_nodes(Arc::clone(&store), routes.clone(), stop.clone());
        let parts = (Arc::clone(&store), rejections.clone());
        let router = operator_router(routes, parts.0, &config.status, parts.1);
        let serving = serve(status, router, stop.clone(), rejections.clone());
        let task = tokio::spawn(async {
            tokio::join!(serving, answering);
        });
        let status_listener = RunningListener {
            task: Some(task),
            stop,
        };
        Ok(Self {
            store,
            callback: callback_address,
            status: status_address,
            engine,
            probed: parking_lot::Mutex::new(Probed::Database),
            configured: Mutex::new(Configured {
                config: configured,
                callback_listener,
                endings,
                probing,
            }),
            secrets,
            rejections,
            status_listener,
            publish,
            publication,
        })
    }

    /// What follows the Sources.
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Applies another configuration: its Sources, and how long the feed stays. Sources that it does not change are not touched.
    /// Returns what it changes, with the keys that only a restart applies.
    ///
    /// # Errors
    /// [`StartError::Listen`] if the callback listener is needed and can't be bound; then nothing was changed.
    pub async fn reload(&self, config: Config) -> Result<ConfigChanges, StartError> {
        let mut configured = self.configured.lock().await;
        let changes = configured.config.changes_to(&config);
        let next = Config {
            sources: config.sources,
            feed: config.feed,
            ..configured.config.clone()
        };
        self.serve_callback(&mut configured, &next).await?;
        if next.has_callback() != configured.config.has_callback() {
            if let Some(probing) = configured.probing.take() {
                probing.abort();
            }
            self.engine.note_public_url(None);
            configured.probing = probe_public_url(&next, &self.engine, &self.rejections);
        }
        // Those of Sources that end are removed from what their hubs state meanwhile, too.
        let mut all = next.clone();
        let former = configured.config.sources.iter().cloned();
        all.sources.extend(former);
        self.secrets.replace(&all.redaction());
        let keys = changes.restart_required.clone();
        self.engine.reload(&next, keys).await;
        if let Some(publication) = &self.publication {
            publication.publisher.reload(&next);
        }
        configured.config = next;
        Ok(changes)
    }

    /// Records why a configuration was not reloaded.
    pub fn refuse_configuration(&self, error: StatusError) {
        self.engine.refuse_configuration(error);
    }

    /// Has the callback listener run if a Source of the configuration needs it.
    async fn serve_callback(
        &self,
        configured: &mut Configured,
        config: &Config,
    ) -> Result<(), StartError> {
        if !config.has_callback() {
            return Ok(());
        }
        if let Some(endings) = configured.endings.take() {
            endings.abort();
        }
        let listener = &mut configured.callback_listener;
        if listener.task.is_some() && !listener.stop.is_cancelled() {
            return Ok(());
        }
        if let Some(stopping) = listener.task.take() {
            // A listener that panicked has nothing left to drain.
            let _ = stopping.await;
        }
        let mut config = config.clone();
        let bound = bind_callback(&mut config).await?;
        *listener = RunningListener::start_callback(
            Some(bound),
            &config,
            &self.store,
            self.rejections.clone(),
            self.secrets.clone(),
        );
        Ok(())
    }

    /// Returns once the database, a thread for blocking work and every worker have answered: whether the database and the workers
    /// have not ended, and make progress. It hangs if one of them does. Not to be called while another call waits.
    pub(super) async fn works(&self) -> bool {
        let probes = |next: Probed| *self.probed.lock() = next;
        probes(Probed::Database);
        if !self.store.answers().await {
            return false;
        }
        probes(Probed::QueryThreads);
        self.store.serves_workers().await;
        probes(Probed::BlockingThreads);
        if tokio::task::spawn_blocking(|| ()).await.is_err() {
            return false;
        }
        probes(Probed::Workers);
        self.engine.workers_respond().await;
        let stalled = self.engine.stalled_workers();
        if !stalled.is_empty() {
            tracing::error!(
                code = "watchdog-not-fed",
                workers = stalled.join(", "),
                "workers are stalled; systemd restarts the daemon unless they make progress"
            );
            return false;
        }
        self.engine.workers_run().await
    }

    /// What a call of [`works`](Self::works) waits for, in words.
    pub(super) fn unanswered(&self) -> String {
        let probed = *self.probed.lock();
        match probed {
            Probed::Database => "the writer or the look-ups of the database".to_owned(),
            Probed::QueryThreads => "the threads that read the database for the workers".to_owned(),
            Probed::BlockingThreads => "the threads for blocking work".to_owned(),
            Probed::Workers => self.engine.unmoved_workers().join(", "),
        }
    }

    /// The status of all Sources.
    pub(super) async fn status_of_sources(&self) -> Result<Status, StatusError> {
        self.engine.own_status(false).await
    }

    /// The same, but no longer than that: what hangs then ends with the process, which loses nothing that was acknowledged or
    /// committed. Returns whether everything has stopped, and else reports what has not.
    pub(super) async fn stop_within(self, limit: Duration) -> bool {
        let engine = Arc::clone(&self.engine);
        let stopped = tokio::time::timeout(limit, self.stop()).await.is_ok();
        if !stopped {
            tracing::error!(
                code = "stop-incomplete",
                waits_for = engine.running_workers().join(", "),
                "stop timed out; exiting while workers run"
            );
        }
        stopped
    }

    /// Stops in order: the callback listener, the engine with its work in progress, the status listener.
    pub async fn stop(self) {
        let configured = self.configured.into_inner();
        if let Some(probing) = &configured.probing {
            probing.abort();
        }
        configured.callback_listener.stop().await;
        if let Some(publication) = self.publication {
            publication.listener.stop().await;
        }
        self.engine.stop().await;
        self.status_listener.stop().await;
    }
}

impl Publication {
    async fn start(
        bound: BoundListener,
        config: &Config,
        engine: &Engine,
        (store, client): (&Arc<Store>, &Client),
        rejections: &RejectionCounters,
    ) -> Result<Self, StoreError> {
        let opening = Publisher::open(config, Arc::clone(store), client, bound.url());
        let publisher = Arc::new(opening.await?);
        let working = Arc::clone(&publisher);
        let work = move |stop| publish(Arc::clone(&working), stop);
        engine.run_leading("publication", work).await;
        let shown = Arc::clone(&publisher);
        engine.show_published(Arc::new(move || {
            let publisher = Arc::clone(&shown);
            Box::pin(async move { publisher.status().await })
        }));
        let stop = CancellationToken::new();
        let router = site_router(Arc::clone(&publisher), rejections.clone());
        let serving = serve(bound, router, stop.clone(), rejections.clone());
        let listener = RunningListener {
            stop,
            task: Some(tokio::spawn(serving)),
        };
        Ok(Self {
            publisher,
            listener,
        })
    }
}

impl RunningListener {
    /// Serves the callback listener, if it is bound.
    pub(super) fn start_callback(
        bound: Option<BoundListener>,
        config: &Config,
        store: &Arc<Store>,
        rejections: RejectionCounters,
        secrets: SharedRedaction,
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
            let callback = Callback::new(store, prefix, longest, inbox, counters, secrets);
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

/// Finds out whether the public URL leads to the callback listener, and again after pauses while it does not: that is shown and logged,
/// and stops nothing. `None`: no notification is expected, or only from this machine.
fn probe_public_url(
    config: &Config,
    engine: &Arc<Engine>,
    rejections: &RejectionCounters,
) -> Option<AbortHandle> {
    let url = config.callback.public_url.clone();
    let url = url.filter(|url| config.has_callback() && !is_loopback(url))?;
    let (engine, rejections) = (Arc::clone(engine), rejections.clone());
    let http = config.http.clone();
    let probing = async move {
        let mut failures = 0;
        while let Err(reason) = leads_to_listener(&url, &http, &rejections).await {
            failures += 1;
            let shown = hide_userinfo(url.as_str());
            let message = format!("the public URL {shown} {reason}");
            if failures == 1 {
                tracing::warn!(code = PUBLIC_URL, "{message}");
            }
            let error = StatusError::new(PUBLIC_URL, message, clock::now().wall);
            engine.note_public_url(Some(error));
            let pause = pause(failures, None, &PROBES);
            tokio::time::sleep(pause.unwrap_or(PROBES.longest)).await;
        }
        if failures > 0 {
            tracing::info!(public_url = %hide_userinfo(url.as_str()), "the public URL leads to this daemon");
        }
        engine.note_public_url(None);
    };
    Some(tokio::spawn(probing).abort_handle())
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;

    use futures_util::future::BoxFuture;
    use parking_lot::Mutex;
    use reqwest::{Request, Response};
    use resyncd_fetch::HttpNetwork;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
    use tokio::sync::watch;
    use url::Url;

    use super::super::watchdog;
    use super::*;
    use crate::config::Source;

    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);
    /// The time within which the watchdog must be fed: short, so that the test is.
    const WATCHDOG: Duration = Duration::from_millis(200);

    /// Answers no request. The worker that requests something blocks its thread until it is released.
    struct Blocking {
        begun: UnboundedSender<()>,
        released: Mutex<mpsc::Receiver<()>>,
    }

    impl HttpNetwork for Blocking {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            Box::pin(async {
                let _ = self.begun.send(());
                let _ = self.released.lock().recv();
                std::future::pending().await
            })
        }
    }

    fn configuration(folder: &std::path::Path) -> Config {
        let url = Url::parse("https://example.org/").unwrap();
        let source = Source {
            notifications: false,
            ..Source::new("example", url, folder.join("mirror"))
        };
        let mut config = Config::new(folder.join("state"), vec![source]);
        config.status.listen = (Ipv4Addr::LOCALHOST, 0).into();
        config
    }

    /// Feeds a watchdog of this daemon, and returns what counts the feedings.
    fn watch(daemon: &Arc<Daemon>) -> (JoinHandle<()>, watch::Receiver<u64>) {
        let (feeding, fed) = watch::channel(0);
        let daemon = Arc::clone(daemon);
        let task = tokio::spawn(async move {
            let note_fed = || feeding.send_modify(|count| *count += 1);
            watchdog::feed(WATCHDOG, || daemon.works(), || {}, note_fed).await;
        });
        (task, fed)
    }

    async fn until_unanswered(daemon: &Daemon, what: &str) {
        let waiting = async {
            while !daemon.unanswered().contains(what) {
                tokio::time::sleep(WATCHDOG / 10).await;
            }
        };
        tokio::time::timeout(LIMIT, waiting).await.unwrap();
    }

    async fn until_fed(fed: &mut watch::Receiver<u64>, times: u64) {
        let last = *fed.borrow() + times;
        let feeding = fed.wait_for(|count| *count >= last);
        drop(tokio::time::timeout(LIMIT, feeding).await.unwrap().unwrap());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn watchdog_is_not_fed_while_a_worker_or_the_writer_is_stalled() {
        let folder = tempfile::tempdir().unwrap();
        let config = configuration(folder.path());
        let (begun, mut begins) = unbounded_channel();
        let (release_worker, released) = mpsc::channel();
        let released = Mutex::new(released);
        let client = config.client().unwrap();
        let client = client.with_network(Arc::new(Blocking { begun, released }));
        let daemon = Arc::new(Daemon::start_with(config, client).await.unwrap());
        tokio::time::timeout(LIMIT, begins.recv()).await.unwrap();

        let (task, mut fed) = watch(&daemon);
        until_unanswered(&daemon, "worker of the Source (Source example)").await;
        tokio::time::sleep(WATCHDOG * 10).await;
        assert_eq!(
            *fed.borrow(),
            0,
            "the worker was stalled from the beginning"
        );
        // From now on it waits for an answer, for ever. That is none of its faults.
        drop(release_worker);
        until_fed(&mut fed, 3).await;

        let release_writer = daemon.store.occupy_writer().await;
        let before = *fed.borrow();
        tokio::time::sleep(WATCHDOG * 10).await;
        // A probe may have passed the writer before.
        assert!(*fed.borrow() <= before + 1);
        until_unanswered(&daemon, "writer").await;
        drop(release_writer);
        until_fed(&mut fed, 3).await;

        task.abort();
        let _ = task.await;
        Arc::into_inner(daemon).unwrap().stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn stop_does_not_wait_for_ever_for_a_worker() {
        let folder = tempfile::tempdir().unwrap();
        let config = configuration(folder.path());
        let (begun, mut begins) = unbounded_channel();
        let (release_worker, released) = mpsc::channel();
        let released = Mutex::new(released);
        let client = config.client().unwrap();
        let client = client.with_network(Arc::new(Blocking { begun, released }));
        let daemon = Daemon::start_with(config, client).await.unwrap();
        tokio::time::timeout(LIMIT, begins.recv()).await.unwrap();
        let engine = Arc::clone(&daemon.engine);
        let stopping = tokio::time::timeout(LIMIT, daemon.stop_within(WATCHDOG));
        assert!(!stopping.await.unwrap());
        let running = engine.running_workers().join(", ");
        assert!(
            running.contains("worker of the Source (Source example)"),
            "{running}"
        );
        drop(release_worker);
        let stopped = tokio::time::timeout(LIMIT, engine.stop()).await;
        assert!(stopped.is_ok(), "{:?}", engine.running_workers());
        assert_eq!(engine.running_workers(), Vec::<String>::new());
    }
}
