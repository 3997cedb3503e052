//! `demo`: a changing sample Source, its hub and a daemon that follows it, all on loopback.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use resourcesync::Capability;
use resourcesync::uri::parse_uri;
use resyncd_fetch::FetchError;
use resyncd_mirror::FileLock;
use resyncd_testkit::{
    DemoError, SampleOptions, SampleSource, Traffic, TrafficEvent, TrafficOptions, Transmission,
};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::audit::summary_text;
use super::daemon::Daemon;
use super::exit_status::{FAILED, FAULTS, OK};
use super::failure::Failure;
use super::logging;
use super::output;
use super::stop_signals::StopSignals;
use crate::config::{Config, LogFormat, Source};
use crate::engine::Audit;
use crate::engine::Engine;
use crate::status::{SetStatus, StatusError};
use crate::store::{FeedEntry, Store, Wake};

/// The folder of the demo's state and mirror.
const FOLDER: &str = "resyncd-demo";
/// The Source's one set.
const SET: &str = "set1";
/// How many resources the Source has at first.
const RESOURCES: usize = 300;
/// The port of the Source, so that a configuration can name it; another one if it is not free.
const PORT: u16 = 8463;
/// How long the last changes may take to be applied at the end. Another signal ends the wait.
const SETTLING: Duration = Duration::from_secs(120);
/// The time between two checks of that.
const PACE: Duration = Duration::from_millis(100);

/// The Source's resources with related ones, and their relations.
const RELATED: [(&str, &str); 7] = [
    ("r0000.txt", "describedby, collection"),
    ("mirrored.txt", "duplicate"),
    ("guide", "alternate"),
    ("guide.txt", "canonical"),
    (
        "catalog.json",
        "patch: its next version is made from the one before",
    ),
    ("news.txt", "memento, timegate, timemap"),
    ("copied.txt", "via"),
];

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

/// The failure of the sample Source.
fn source_failed(error: DemoError) -> Failure {
    Failure::new(FAILED, format!("the sample Source: {error}"))
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
    let options = SampleOptions {
        sets: vec![SET.to_owned()],
        resources_per_set: RESOURCES,
        metadata: true,
        related: true,
        ..SampleOptions::default()
    };
    let source = start_source(options).await.map_err(source_failed)?;
    let config = configuration(&folder, source.base());
    let daemon = Daemon::start(config.clone()).await?;
    println!(
        "Sample Source with {RESOURCES} resources:  {}",
        source.url()
    );
    let described = source.resource_uri(SET, "r0000.txt");
    let record = source.resource_uri(SET, "r0000.dc.xml");
    println!("metadata:  {record} describes {described}");
    println!(
        "related resources (GET /resource?uri=URI of the status address lists the links of one):"
    );
    for (name, relations) in RELATED {
        println!("  {}  {relations}", source.resource_uri(SET, name));
    }
    println!("mirror:  {}", folder.join("mirror").display());
    println!(
        "status:  http://{}/  (and /status, /changes)",
        daemon.status
    );
    println!(
        "{} changes per second; Ctrl-C stops the demo.\n",
        arguments.changes_per_second
    );

    wait_for_subscription(&source).await;
    let screen = Screen::of(
        bars.as_ref(),
        &format!(
            "Source {}  status http://{}/  Ctrl-C stops",
            source.url(),
            daemon.status
        ),
    );
    let (stop, changed) = (CancellationToken::new(), CancellationToken::new());
    let printing = print_changes(Arc::clone(&daemon.store), screen.clone(), changed.clone());
    let printing = tokio::spawn(printing);
    let traffic = TrafficOptions {
        set: SET.to_owned(),
        changes_per_second: arguments.changes_per_second,
        ..TrafficOptions::default()
    };
    let mut events = Traffic::run(source.clone(), traffic, stop.clone());
    {
        let changing = change_related(&source, daemon.engine());
        tokio::pin!(changing);
        let mut is_changed = false;
        loop {
            tokio::select! {
                () = signals.wait() => break,
                () = &mut changing, if !is_changed => is_changed = true,
                Some(event) = events.recv() => {
                    print_event(&screen, &event);
                    // Nobody is watching any more.
                    if output::is_closed() {
                        break;
                    }
                }
            }
        }
    }
    stop.cancel();
    screen
        .print("\nstopping: applying the last changes, then comparing the mirror with the Source");
    tokio::select! {
        () = settle(daemon.engine(), events) => {}
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
    println!("{}", tally.text());
    println!("stopped; the mirror stays in ./{FOLDER}/mirror until the next demo");
    Ok(())
}

/// Starts the Source at its usual port, or at another one if that is not free.
async fn start_source(options: SampleOptions) -> Result<SampleSource, DemoError> {
    let usual = SampleOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
        ..options.clone()
    };
    match SampleSource::start(usual).await {
        Err(DemoError::Listen { .. }) => SampleSource::start(options).await,
        started => started,
    }
}

/// Changes the resources whose changes have a patch or a version as soon as the mirror has their first versions. They are in the next
/// notification of the traffic.
async fn change_related(source: &SampleSource, engine: &Engine) {
    loop {
        let status = engine.status().await.ok();
        let mut sets = status.iter().flat_map(|status| &status.sources);
        let is_copied = sets.any(|source| source.sets.iter().any(|set| set.state == "in-sync"));
        if is_copied {
            break;
        }
        tokio::time::sleep(PACE).await;
    }
    source.update(
        SET,
        "catalog.json",
        "{\"title\":\"Catalog\",\"version\":2}\n",
    );
    source.update(SET, "news.txt", "The second news.\n");
}

/// Waits until a poll that began after the Source's last change has ended and nothing is left to be applied, for some time at most:
/// notifications that were lost are noticed only by the next one, or by a poll.
async fn settle(engine: &Engine, mut events: mpsc::Receiver<TrafficEvent>) {
    let settling = async {
        // The traffic has ended when nothing can send an event any more.
        while events.recv().await.is_some() {}
        // A set's polls follow one another: when the second one begins, the first one has ended.
        for _ in 0..2 {
            begin_poll(engine).await;
        }
        let is_settled = |set: &SetStatus| set.state == "in-sync" && set.pending == 0;
        while !set_status(engine).await.as_ref().is_some_and(is_settled) {
            tokio::time::sleep(PACE).await;
        }
    };
    // The audit shows what is missing then.
    let _ = tokio::time::timeout(SETTLING, settling).await;
}

/// Requests a poll until one has begun.
async fn begin_poll(engine: &Engine) {
    let last = async || set_status(engine).await.and_then(|set| set.last_poll_at);
    let before = last().await;
    while last().await == before {
        // It is followed, and nobody pauses it before.
        let _ = engine.poll("demo");
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
    std::fs::create_dir_all(folder).map_err(folder_failed)?;
    let lock = File::create(folder.join("lock")).map_err(folder_failed)?;
    let running = |_| Failure::new(FAILED, format!("another demo is running in ./{FOLDER}"));
    let lock = FileLock::try_new(lock).map_err(running)?;
    for folder_name in ["state", "mirror"] {
        match std::fs::remove_dir_all(folder.join(folder_name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(folder_failed(error));
            }
            _ => {}
        }
    }
    Ok(lock)
}

fn configuration(folder: &Path, url: Url) -> Config {
    let mut source = Source::new("demo", url, folder.join("mirror"));
    // A lost notification is to be noticed while the demo is watched.
    source.reorder_window = Duration::from_secs(2);
    source.poll_interval = Duration::from_secs(60);
    // The hub is the Source's own, on another port. What only a hub states is fetched from the resource's own URI, and not patched.
    source.trust_hub = Some(true);
    let mut config = Config::new(folder.join("state"), vec![source]);
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    config.callback.listen = any_port;
    config.callback.public_url = parse_uri("http://127.0.0.1:0/").ok();
    config.status.listen = any_port;
    config.http.allow_private_addresses = true;
    config
}

/// Waits, at most 5 s, until the daemon has subscribed: changes start then.
async fn wait_for_subscription(source: &SampleSource) {
    if let Some(hub) = source.hub() {
        let topic = source.topic(SET, &Capability::ChangeNotification);
        // Without a subscription the daemon polls.
        let _ = tokio::time::timeout(
            Duration::from_secs(5),
            hub.wait_for_subscription(topic.as_str()),
        )
        .await;
    }
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
    let by_patch = if entry.is_patched { ", by patch" } else { "" };
    let line = format!(
        "{:>6}  {:8} {what}  ({}{by_patch})",
        entry.seq, entry.change, entry.origin
    );
    screen.print(&line);
}

/// Prints what the traffic did, except that a notification was published.
fn print_event(screen: &Screen, event: &TrafficEvent) {
    if !matches!(
        event,
        TrafficEvent::Notified {
            transmission: Transmission::Published,
            ..
        }
    ) {
        screen.print(&format!("        Source: {event}"));
    }
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
