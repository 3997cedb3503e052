//! `demo`: a changing sample Source, its hub and a daemon that follows it, all on loopback.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::daemon::{Daemon, StartError};
use super::exit_status::{FAILED, FAULTS, OK};
use super::output;
use super::stop_signals::StopSignals;
use crate::config::{Config, Source};
use crate::demo::{
    DemoError, SampleOptions, SampleSource, Traffic, TrafficEvent, TrafficOptions, Transmission,
};
use crate::protocol::Capability;
use crate::store::{FeedEntry, Store, Wake};

/// The folder of the demo's state and mirror.
const FOLDER: &str = "resyncd-demo";
/// The Source's one set.
const SET: &str = "set1";
/// How many resources the Source has at first.
const RESOURCES: usize = 300;

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(super) struct DemoArguments {
    /// Changes of resources per second, on average
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    changes_per_second: f64,
}

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
enum DemoFailure {
    #[error("./{FOLDER}: {0}")]
    Folder(#[from] io::Error),
    #[error("another demo is running in ./{FOLDER}")]
    Running,
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
    #[error("the sample Source: {0}")]
    Source(#[from] DemoError),
    #[error("{0}")]
    Daemon(#[from] StartError),
}

pub(super) async fn demo(arguments: &DemoArguments) -> u8 {
    if !(arguments.changes_per_second > 0.0 && arguments.changes_per_second <= 1000.0) {
        eprintln!("resyncd: --changes-per-second must be above 0 and at most 1000 [out-of-range]");
        return FAULTS;
    }
    match run(arguments).await {
        Ok(()) => OK,
        Err(error) => {
            eprintln!("resyncd: {error}");
            FAILED
        }
    }
}

async fn run(arguments: &DemoArguments) -> Result<(), DemoFailure> {
    let folder = std::path::absolute(FOLDER)?;
    let _lock = prepare_folder(&folder)?;
    let mut signals = StopSignals::listen().map_err(DemoFailure::Signals)?;
    let options = SampleOptions {
        sets: vec![SET.to_owned()],
        resources_per_set: RESOURCES,
        ..SampleOptions::default()
    };
    let source = SampleSource::start(options).await?;
    let daemon = Daemon::start(configuration(&folder, source.base())).await?;
    println!(
        "Sample Source with {RESOURCES} resources:  {}",
        source.url()
    );
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
    let stop = CancellationToken::new();
    let printing = tokio::spawn(print_changes(Arc::clone(&daemon.store), stop.clone()));
    let traffic = TrafficOptions {
        set: SET.to_owned(),
        changes_per_second: arguments.changes_per_second,
        ..TrafficOptions::default()
    };
    let mut events = Traffic::run(source.clone(), traffic, stop.clone());
    loop {
        tokio::select! {
            () = signals.wait() => break,
            Some(event) = events.recv() => {
                print_event(&event);
                // Nobody is watching any more.
                if output::is_closed() {
                    break;
                }
            }
        }
    }
    println!("\nstopping");
    stop.cancel();
    // A printer that panicked changes nothing else.
    let _ = printing.await;
    daemon.stop().await;
    println!("stopped; the mirror stays in ./{FOLDER}/mirror until the next demo");
    Ok(())
}

/// Removes the state and the mirror of an earlier demo, whose Source is gone, and nothing else.
fn prepare_folder(folder: &Path) -> Result<File, DemoFailure> {
    std::fs::create_dir_all(folder)?;
    let lock = File::create(folder.join("lock"))?;
    if lock.try_lock().is_err() {
        return Err(DemoFailure::Running);
    }
    for folder_name in ["state", "mirror"] {
        match std::fs::remove_dir_all(folder.join(folder_name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
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
    let mut config = Config::new(folder.join("state"), vec![source]);
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    config.callback.listen = any_port;
    config.callback.public_url = Url::parse("http://127.0.0.1:0/").ok();
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

/// Prints one line per applied change.
async fn print_changes(store: Arc<Store>, stop: CancellationToken) {
    let mut wakes = store.wakes();
    let mut printed = 0;
    loop {
        for entry in store.feed(printed, 1000).await.unwrap_or_default() {
            printed = entry.seq;
            print_change(&entry);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            wake = wakes.recv() => match wake {
                Ok(Wake::Feed(_)) | Err(RecvError::Lagged(_)) => {}
                Ok(_) => continue,
                Err(RecvError::Closed) => return,
            },
        }
    }
}

fn print_change(entry: &FeedEntry) {
    let what = entry.path.as_deref().unwrap_or(&entry.uri);
    println!(
        "{:>6}  {:8} {what}  ({})",
        entry.seq, entry.change, entry.origin
    );
}

/// Prints what the traffic did, except that a notification was published.
fn print_event(event: &TrafficEvent) {
    if !matches!(
        event,
        TrafficEvent::Notified {
            transmission: Transmission::Published,
            ..
        }
    ) {
        println!("        Source: {event}");
    }
}
