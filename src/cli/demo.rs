//! `demo`: a sample Source that keeps changing, its hub, and this daemon following it, all on loopback.

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
use super::stop_signals::StopSignals;
use super::{FAILED, OK};
use crate::config::{Config, Source};
use crate::demo::{
    DemoError, Fate, SampleOptions, SampleSource, Traffic, TrafficEvent, TrafficOptions,
};
use crate::protocol::Capability;
use crate::store::{FeedEntry, Store, Wake};

/// Where the demo keeps everything.
const FOLDER: &str = "resyncd-demo";
/// The Source's one set.
const SET: &str = "set1";
/// How many resources it begins with.
const RESOURCES: usize = 300;

/// What `demo` may be told.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many resources change in a second, on average
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    changes_per_second: f64,
}

/// Why the demo can't go on.
#[derive(Debug, thiserror::Error)]
enum DemoFailure {
    #[error("./{FOLDER}: {0}")]
    Folder(#[from] io::Error),
    #[error("another demo is running in ./{FOLDER}")]
    Running,
    #[error("signals can't be listened to: {0}")]
    Signals(io::Error),
    #[error("the sample Source: {0}")]
    Source(#[from] DemoError),
    #[error("{0}")]
    Daemon(#[from] StartError),
}

pub(super) async fn demo(arguments: &Arguments) -> u8 {
    if !(arguments.changes_per_second > 0.0 && arguments.changes_per_second <= 1000.0) {
        eprintln!("resyncd: --changes-per-second must be above 0 and at most 1000 [out-of-range]");
        return super::FAULTS;
    }
    match run(arguments).await {
        Ok(()) => OK,
        Err(error) => {
            eprintln!("resyncd: {error}");
            FAILED
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), DemoFailure> {
    let folder = std::path::absolute(FOLDER)?;
    let _lock = begin_afresh(&folder)?;
    let mut signals = StopSignals::listen().map_err(DemoFailure::Signals)?;
    let options = SampleOptions {
        sets: vec![SET.to_owned()],
        resources_per_set: RESOURCES,
        ..SampleOptions::default()
    };
    let source = SampleSource::start(options).await?;
    let daemon = Daemon::start(configuration(&folder, source.base())).await?;
    println!(
        "A sample Source with {RESOURCES} resources:  {}",
        source.url()
    );
    println!("its mirror:    {}", folder.join("mirror").display());
    println!(
        "the status:    http://{}/  (and /status, /changes)",
        daemon.status
    );
    println!(
        "Changes come {} times a second; Ctrl-C ends it.\n",
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
            Some(event) = events.recv() => print_mishap(&event),
        }
    }
    println!("\nstopping");
    stop.cancel();
    // It prints, and may have been cut off in the middle of a line; nothing depends on it.
    let _ = printing.await;
    daemon.stop().await;
    println!("stopped; the mirror stays in ./{FOLDER}/mirror until the next demo");
    Ok(())
}

/// Takes away what an earlier demo left: its Source is gone. Nothing else is ever removed.
fn begin_afresh(folder: &Path) -> Result<File, DemoFailure> {
    std::fs::create_dir_all(folder)?;
    let lock = File::create(folder.join("lock"))?;
    if lock.try_lock().is_err() {
        return Err(DemoFailure::Running);
    }
    for left in ["state", "mirror"] {
        match std::fs::remove_dir_all(folder.join(left)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(lock)
}

fn configuration(folder: &Path, source: Url) -> Config {
    let mut followed = Source::new("demo", source, folder.join("mirror"));
    // A lost notification is meant to be noticed while somebody is looking.
    followed.reorder_window = Duration::from_secs(2);
    followed.poll_interval = Duration::from_secs(60);
    let mut config = Config::new(folder.join("state"), vec![followed]);
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    config.callback.listen = any_port;
    config.callback.public_url = Url::parse("http://127.0.0.1:0/").ok();
    config.status.listen = any_port;
    config.http.allow_private_addresses = true;
    config
}

/// Changes begin once somebody listens; a hub that keeps silent is waited for no longer than this.
async fn wait_for_subscription(source: &SampleSource) {
    if let Some(hub) = source.hub() {
        let topic = source.topic(SET, &Capability::ChangeNotification);
        // Without a subscription the changes come by polling: that works, too.
        let _ = tokio::time::timeout(
            Duration::from_secs(5),
            hub.wait_for_subscription(topic.as_str()),
        )
        .await;
    }
}

/// Prints a line for each change that was applied.
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

/// Prints what the Source did; that it published a notification is no news.
fn print_mishap(event: &TrafficEvent) {
    if !matches!(
        event,
        TrafficEvent::Notified {
            fate: Fate::Published,
            ..
        }
    ) {
        println!("        the Source: {event}");
    }
}
