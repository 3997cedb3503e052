//! `demo`: a changing folder that is published, and a daemon that follows it, all on loopback.

mod changes;
mod layer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use changes::{ChangingFolder, FILES};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use layer::lossy_router;
use resourcesync::uri::parse_uri;
use resyncd_fetch::FetchError;
use resyncd_mirror::FileLock;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::audit::summary_text;
use super::daemon::{Daemon, StartError};
use super::exit_status::{FAILED, FAULTS, OK};
use super::failure::Failure;
use super::logging;
use super::output;
use super::stop_signals::StopSignals;
use crate::config::{Config, LogFormat, PublishedFolder, Source};
use crate::engine::Audit;
use crate::engine::Engine;
use crate::http::{BoundListener, RejectionCounters, bind, serve};
use crate::status::{SetStatus, StatusError};
use crate::store::{FeedEntry, Store, StoreError, Wake};

/// The folder of the demo's state and mirror.
const FOLDER: &str = "resyncd-demo";
/// The name of the Source, on both sides.
const NAME: &str = "demo";
/// The port of the Source, so that a configuration can name it; another one if it is not free.
const PORT: u16 = 8463;
/// How long the last changes may take to be applied at the end. Another signal ends the wait.
const SETTLING: Duration = Duration::from_secs(120);
/// The time between two checks of that.
const PACE: Duration = Duration::from_millis(100);

/// A free port of loopback.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(super) struct DemoArguments {
    /// Changes of resources per second, on average
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    changes_per_second: f64,
}

pub(super) async fn demo(arguments: &DemoArguments) -> Result<u8, Failure> {
    if !(arguments.changes_per_second > 0.0 && arguments.changes_per_second <= 1000.0) {
        let text = "--changes-per-second must be above 0 and at most 1000 [out-of-range]";
        return Err(Failure::new(FAULTS, text));
    }
    run(arguments).await?;
    Ok(OK)
}

/// The failure of something in the folder.
fn folder_failed(error: impl Display) -> Failure {
    Failure::new(FAILED, format!("./{FOLDER}: {error}"))
}

/// Prints lines: on a terminal above the addresses, which stay in sight.
#[derive(Clone)]
struct Screen {
    addresses: Option<ProgressBar>,
}

impl Screen {
    fn of(bars: Option<&MultiProgress>, addresses: &str) -> Self {
        let addresses = bars.map(|bars| {
            let style = ProgressStyle::with_template("{msg}").expect("the template is one");
            let line = bars.add(ProgressBar::no_length().with_style(style));
            line.set_message(addresses.to_owned());
            line
        });
        Self { addresses }
    }

    fn print(&self, line: &str) {
        match &self.addresses {
            Some(addresses) => addresses.suspend(|| println!("{line}")),
            None => println!("{line}"),
        }
    }

    /// Removes the addresses.
    fn end(&self) {
        if let Some(addresses) = &self.addresses {
            addresses.finish_and_clear();
        }
    }
}

/// How many changes were applied, by kind and by the document that announced them.
#[derive(Debug, Default, PartialEq, Eq)]
struct ChangeTally {
    kinds: BTreeMap<String, u64>,
    origins: BTreeMap<String, u64>,
}

impl ChangeTally {
    fn count(&mut self, entry: &FeedEntry) {
        *self.kinds.entry(entry.change.clone()).or_default() += 1;
        *self.origins.entry(entry.origin.clone()).or_default() += 1;
    }

    /// `12 changes applied: 8 created, 4 updated; 10 by notification, 2 by change-list`.
    fn text(&self) -> String {
        let all: u64 = self.kinds.values().sum();
        let listed = |counts: &BTreeMap<String, u64>, by: &str| {
            let counts = counts.iter();
            let texts: Vec<_> = counts
                .map(|(name, count)| format!("{count} {by}{name}"))
                .collect();
            texts.join(", ")
        };
        match all {
            0 => "no changes applied".to_owned(),
            all => format!(
                "{all} changes applied: {}; {}",
                listed(&self.kinds, ""),
                listed(&self.origins, "by ")
            ),
        }
    }
}

async fn run(arguments: &DemoArguments) -> Result<(), Failure> {
    let (bars, _summaries) = logging::start_with_bars(LogFormat::Auto);
    let folder = std::path::absolute(FOLDER).map_err(folder_failed)?;
    let _lock = prepare_folder(&folder)?;
    let mut signals = StopSignals::listen()?;
    let mut changing = ChangingFolder::create(&folder.join("source")).map_err(folder_failed)?;
    let (source, url) = tokio::select! {
        started = start_source(&folder) => started?,
        () = signals.wait() => return Ok(()),
    };
    let (config, layer) = configuration(&folder, url.clone()).await?;
    let (stop, changed) = (CancellationToken::new(), CancellationToken::new());
    let (callback, known_callback) = watch::channel(None);
    let (events, mut lossy) = mpsc::unbounded_channel();
    let router = lossy_router(known_callback, events)
        .map_err(|error| Failure::new(FAILED, error.to_string()))?;
    let forwarding = serve(layer, router, stop.clone(), RejectionCounters::default());
    let forwarding = tokio::spawn(forwarding);
    let daemon = Daemon::start(config.clone()).await?;
    callback.send_replace(daemon.callback);
    println!("Sample Source with {FILES} resources:  {url}");
    println!("its files:  {}", folder.join("source").display());
    println!("mirror:  {}", folder.join("mirror").display());
    println!(
        "status:  http://{}/  (and /status, /changes)",
        daemon.status
    );
    println!(
        "{} changes per second; Ctrl-C stops the demo.\n",
        arguments.changes_per_second
    );

    wait_for_subscription(daemon.engine()).await;
    let screen = Screen::of(
        bars.as_ref(),
        &format!(
            "Source {url}  status http://{}/  Ctrl-C stops",
            daemon.status
        ),
    );
    let printing = print_changes(Arc::clone(&daemon.store), screen.clone(), changed.clone());
    let printing = tokio::spawn(printing);
    {
        let changes = changing.change(arguments.changes_per_second);
        tokio::pin!(changes);
        // Until nobody is watching any more.
        while !output::is_closed() {
            tokio::select! {
                () = signals.wait() => break,
                error = &mut changes => return Err(folder_failed(error)),
                Some(event) = lossy.recv() => screen.print(&format!("        hub: {event}")),
            }
        }
    }
    screen
        .print("\nstopping: applying the last changes, then comparing the mirror with the Source");
    tokio::select! {
        () = settle(daemon.engine(), &folder, &url) => {}
        () = signals.wait() => {}
    }
    changed.cancel();
    // A printer that panicked changes nothing else.
    let tally = printing.await.unwrap_or_default();
    daemon.stop().await;
    screen.end();
    tokio::select! {
        audited = audit(&config) => match audited? {
            Ok(text) => println!("audit: {text}"),
            Err(StatusError { code, message, .. }) => println!("audit: {message} [{code}]"),
        },
        () = signals.wait() => println!("audit interrupted"),
    }
    stop.cancel();
    // One that panicked has ended as well.
    let _ = forwarding.await;
    source.stop().await;
    println!("{}", tally.text());
    println!("stopped; the mirror stays in ./{FOLDER}/mirror until the next demo");
    Ok(())
}

/// Publishes the files, at the usual port, or at another one if that is not free. Returns the URL of the Source.
async fn start_source(folder: &Path) -> Result<(Daemon, Url), Failure> {
    let mut config = Config::new(folder.join("source-state"), Vec::new());
    config.status.listen = ANY_PORT;
    config.publish.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    config.http.allow_private_addresses = true;
    config.folders = vec![PublishedFolder {
        name: NAME.to_owned(),
        path: folder.join("source"),
    }];
    let daemon = match Daemon::start(config.clone()).await {
        Err(StartError::Listen { .. }) => {
            config.publish.listen = ANY_PORT;
            Daemon::start(config).await?
        }
        started => started?,
    };
    let address = daemon.publish.unwrap_or(ANY_PORT);
    let url = parse_uri(&format!("http://{address}/")).map_err(folder_failed)?;
    let is_published = async || {
        let sets = daemon.store.published(|rows| rows.sets(NAME)).await;
        Ok::<_, StoreError>(!sets?.is_empty())
    };
    while !is_published().await.map_err(folder_failed)? {
        tokio::time::sleep(PACE).await;
    }
    Ok((daemon, url))
}

/// Waits until the mirror has what the folder of the Source has, and nothing is left to be applied, for some time at most: notifications
/// that were lost are noticed only by the next one, or by a poll.
async fn settle(engine: &Engine, folder: &Path, url: &Url) {
    let host = url.authority();
    let mirror = folder.join("mirror").join(host).join(NAME);
    let is_settled = async || {
        let set = set_status(engine).await;
        let is_applied = set.is_some_and(|set| set.state == "in-sync" && set.pending == 0);
        is_applied && texts_of(&mirror).ok() == texts_of(&folder.join("source")).ok()
    };
    let settling = async {
        while !is_settled().await {
            begin_poll(engine).await;
        }
    };
    // The audit shows what is missing then.
    let _ = tokio::time::timeout(SETTLING, settling).await;
}

/// The files of a folder with their contents.
fn texts_of(folder: &Path) -> io::Result<BTreeMap<OsString, Vec<u8>>> {
    let entries = fs::read_dir(folder)?.map(|entry| {
        let entry = entry?;
        Ok((entry.file_name(), fs::read(entry.path())?))
    });
    entries.collect()
}

/// Requests a poll until one has begun.
async fn begin_poll(engine: &Engine) {
    let last = async || set_status(engine).await.and_then(|set| set.last_poll_at);
    let before = last().await;
    while last().await == before {
        // It is followed, and nobody pauses it before.
        let _ = engine.poll(NAME);
        tokio::time::sleep(PACE).await;
    }
}

async fn set_status(engine: &Engine) -> Option<SetStatus> {
    let status = engine.status().await.ok()?;
    status.sources.first()?.sets.first().cloned()
}

/// Compares the mirror with the Source.
async fn audit(config: &Config) -> Result<Result<String, StatusError>, FetchError> {
    let client = config.client()?;
    let audits = Audit::comparing(config, &client);
    let (sender, mut findings) = mpsc::channel(64);
    let comparing = async {
        let mut texts = Vec::new();
        for audit in &audits {
            texts.push(audit.run(&sender).await.map(|done| summary_text(&done)));
        }
        drop(sender);
        texts.into_iter().collect::<Result<Vec<_>, _>>()
    };
    // Only their numbers are printed.
    let reading = async { while findings.recv().await.is_some() {} };
    let (texts, ()) = tokio::join!(comparing, reading);
    Ok(texts.map(|texts| texts.join("; ")))
}

/// Removes the state and the mirror of an earlier demo, whose Source is gone, and nothing else.
fn prepare_folder(folder: &Path) -> Result<FileLock, Failure> {
    fs::create_dir_all(folder).map_err(folder_failed)?;
    let lock = File::create(folder.join("lock")).map_err(folder_failed)?;
    let running = |_| Failure::new(FAILED, format!("another demo is running in ./{FOLDER}"));
    let lock = FileLock::try_new(lock).map_err(running)?;
    for folder_name in ["source", "source-state", "state", "mirror"] {
        match fs::remove_dir_all(folder.join(folder_name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(folder_failed(error));
            }
            _ => {}
        }
    }
    Ok(lock)
}

/// The configuration of the daemon, and the listener of what is in front of its callback listener.
async fn configuration(folder: &Path, url: Url) -> Result<(Config, BoundListener), Failure> {
    let layer = bind(ANY_PORT).await.map_err(|error| StartError::Listen {
        which: "[callback]",
        address: ANY_PORT,
        error,
    })?;
    let mut source = Source::new(NAME, url, folder.join("mirror"));
    // A lost notification is to be noticed while the demo is watched.
    source.reorder_window = Duration::from_secs(2);
    source.poll_interval = Duration::from_secs(60);
    let mut config = Config::new(folder.join("state"), vec![source]);
    config.callback.listen = ANY_PORT;
    config.callback.public_url = parse_uri(&format!("http://{}/", layer.address)).ok();
    config.status.listen = ANY_PORT;
    config.http.allow_private_addresses = true;
    Ok((config, layer))
}

/// Waits, at most 10 s, until the daemon has subscribed: changes start then.
async fn wait_for_subscription(engine: &Engine) {
    let is_subscribed = |set: SetStatus| {
        let mut channels = set.channels.iter();
        channels.any(|channel| channel.state == "active") && set.state == "in-sync"
    };
    let subscribing = async {
        while !set_status(engine).await.is_some_and(is_subscribed) {
            tokio::time::sleep(PACE).await;
        }
    };
    // Without a subscription the daemon polls.
    let _ = tokio::time::timeout(Duration::from_secs(10), subscribing).await;
}

/// Prints one line per applied change, and counts them.
async fn print_changes(store: Arc<Store>, screen: Screen, stop: CancellationToken) -> ChangeTally {
    let mut wakes = store.wakes();
    let (mut printed, mut tally) = (0, ChangeTally::default());
    loop {
        for entry in store.feed(printed, 1000).await.unwrap_or_default() {
            printed = entry.seq;
            tally.count(&entry);
            print_change(&screen, &entry);
        }
        tokio::select! {
            () = stop.cancelled() => return tally,
            wake = wakes.recv() => match wake {
                Ok(Wake::Feed(_)) | Err(RecvError::Lagged(_)) => {}
                Ok(_) => continue,
                Err(RecvError::Closed) => return tally,
            },
        }
    }
}

fn print_change(screen: &Screen, entry: &FeedEntry) {
    let what = entry.path.as_deref().unwrap_or(&entry.uri);
    let (seq, change, origin) = (entry.seq, &entry.change, &entry.origin);
    screen.print(&format!("{seq:>6}  {change:8} {what}  ({origin})"));
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn tally_states_kinds_and_origins() {
        let mut tally = ChangeTally::default();
        assert_eq!(tally.text(), "no changes applied");
        for (change, origin) in [
            ("updated", "notification"),
            ("created", "resource-list"),
            ("updated", "change-list"),
        ] {
            tally.count(&FeedEntry {
                seq: 1,
                applied_at: DateTime::UNIX_EPOCH,
                source: String::new(),
                set: String::new(),
                uri: String::new(),
                change: change.to_owned(),
                path: None,
                length: None,
                changed_at: None,
                origin: origin.to_owned(),
                links: Vec::new(),
                are_links_left_out: false,
                is_patched: false,
            });
        }
        assert_eq!(
            tally.text(),
            "3 changes applied: 1 created, 2 updated; 1 by change-list, 1 by notification, 1 by resource-list"
        );
    }
}
