//! Measures how fast a daemon follows a Source. Both run in this process and communicate over loopback, so that this program and the
//! disk are measured, not a network.
//!
//! - **baseline**: from the start of the daemon until the feed has the last of 1,000 resources of 1 KiB;
//! - **push**: from the delivery of a notification of one change to the hub until that change is in the feed, after the file was
//!   published and both were committed;
//! - **batch**: the same for one notification of 1,000 changes.
//!
//! Notifications are measured with `trust_hub = true` and without, where the Source confirms what its hub states.
//!
//! The mirror and the database are on the disk that `target` is on. At the end the mirror is compared with the Source.
//! Run it with `cargo bench`.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use resyncd::cli::Daemon;
use resyncd::clock;
use resyncd::config::{Config, Source};
use resyncd::demo::{SampleOptions, SampleSource};
use resyncd::protocol::Capability;
use resyncd::store::{FeedEntry, Wake};
use tokio::sync::broadcast::error::RecvError;
use url::Url;

const SET: &str = "set1";
const RESOURCES: usize = 1000;
const RESOURCE_SIZE: usize = 1024;
const BASELINES: usize = 5;
const PUSHES: usize = 500;
/// How long a measurement may take at most.
const TIMEOUT: Duration = Duration::from_secs(60);

type BenchResult<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> BenchResult<()> {
    let cores = std::thread::available_parallelism()?;
    println!(
        "baseline_and_push: {cores} cores, {RESOURCES} resources of {RESOURCE_SIZE} bytes, loopback"
    );
    let mut baselines = Vec::new();
    for _ in 0..BASELINES {
        let run = Run::start(Some(true)).await?;
        baselines.push(run.baseline);
        run.stop().await?;
    }
    report("baseline", &mut baselines);
    push("hub trusted", Some(true)).await?;
    push("hub not trusted", None).await
}

/// Measures notifications. `trust_hub`: as in the configuration; the hub has another origin than the Source.
async fn push(hub: &str, trust_hub: Option<bool>) -> BenchResult<()> {
    let mut run = Run::start(trust_hub).await?;
    run.wait_for_subscription().await?;
    let mut pushes = Vec::new();
    for number in 0..PUSHES {
        pushes.push(run.push(number, 1).await?);
    }
    report(&format!("push, {hub}"), &mut pushes);
    let mut batches = Vec::new();
    for number in 0..5 {
        batches.push(run.push(PUSHES + number, RESOURCES).await?);
    }
    report(&format!("batch, {hub}"), &mut batches);
    run.compare()?;
    run.stop().await
}

/// A Source and the daemon that follows it.
struct Run {
    source: SampleSource,
    daemon: Daemon,
    folder: tempfile::TempDir,
    /// The number of the last feed entry that was read.
    last_seq: i64,
    baseline: Duration,
}

impl Run {
    /// Starts both, and waits for the baseline.
    async fn start(trust_hub: Option<bool>) -> BenchResult<Self> {
        let source = SampleSource::start(SampleOptions {
            sets: vec![SET.to_owned()],
            resources_per_set: RESOURCES,
            resource_size: RESOURCE_SIZE,
            ..SampleOptions::default()
        })
        .await?;
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let config = configuration(folder.path(), source.base(), trust_hub);
        let started = clock::now().mono;
        let daemon = Daemon::start(config).await?;
        let mut run = Self {
            source,
            daemon,
            folder,
            last_seq: 0,
            baseline: Duration::ZERO,
        };
        run.wait_for_changes(RESOURCES).await?;
        run.baseline = clock::now().mono - started;
        Ok(run)
    }

    async fn wait_for_subscription(&self) -> BenchResult<()> {
        let topic = self.source.topic(SET, &Capability::ChangeNotification);
        let hub = self.source.hub().ok_or("the Source has no hub")?;
        tokio::time::timeout(TIMEOUT, hub.wait_for_subscription(topic.as_str())).await?;
        Ok(())
    }

    /// Changes so many resources, publishes one notification of them, and waits until all are in the feed.
    async fn push(&mut self, number: usize, changes: usize) -> BenchResult<Duration> {
        for change in 0..changes {
            let name = format!("r{:04}.txt", (number + change) % RESOURCES);
            let line = format!("{name} of push {number}\n");
            let bytes: Vec<u8> = line.bytes().cycle().take(RESOURCE_SIZE).collect();
            self.source.update(SET, &name, bytes);
        }
        let notification = self.source.notify(SET);
        let started = clock::now().mono;
        let published = self.source.publish(&notification);
        let (deliveries, entries) = tokio::join!(published, self.next_entries(changes));
        let elapsed = clock::now().mono - started;
        deliveries?;
        let entries = entries?;
        if entries.iter().any(|entry| entry.origin != "notification") {
            return Err("a change has another origin than its notification".into());
        }
        self.last_seq += i64::try_from(entries.len())?;
        Ok(elapsed)
    }

    async fn wait_for_changes(&mut self, changes: usize) -> BenchResult<()> {
        let entries = self.next_entries(changes).await?;
        self.last_seq = entries.last().map_or(self.last_seq, |entry| entry.seq);
        Ok(())
    }

    /// Waits until the feed has so many more entries.
    async fn next_entries(&self, changes: usize) -> BenchResult<Vec<FeedEntry>> {
        let mut wakes = self.daemon.store.wakes();
        let mut entries = Vec::new();
        let reading = async {
            loop {
                let since = entries
                    .last()
                    .map_or(self.last_seq, |entry: &FeedEntry| entry.seq);
                entries.extend(self.daemon.store.feed(since, RESOURCES).await?);
                if entries.len() >= changes {
                    return Ok(entries);
                }
                loop {
                    match wakes.recv().await {
                        Ok(Wake::Feed(_)) | Err(RecvError::Lagged(_)) => break,
                        Ok(_) => {}
                        Err(RecvError::Closed) => return Err("the daemon stopped".into()),
                    }
                }
            }
        };
        tokio::time::timeout(TIMEOUT, reading).await?
    }

    /// Checks that the mirror equals the Source.
    fn compare(&self) -> BenchResult<()> {
        let host = self.source.base();
        let host = host.authority().to_owned();
        for (uri, bytes) in self.source.state(SET) {
            let path = Url::parse(&uri)?.path().trim_start_matches('/').to_owned();
            let file = self.folder.path().join("mirror").join(&host).join(path);
            if std::fs::read(&file)? != bytes {
                return Err(format!("{} differs from the Source", file.display()).into());
            }
        }
        println!("the mirror equals the Source");
        Ok(())
    }

    async fn stop(self) -> BenchResult<()> {
        self.daemon.stop().await;
        self.folder.close()?;
        Ok(())
    }
}

fn configuration(folder: &Path, source: Url, trust_hub: Option<bool>) -> Config {
    let mut followed = Source::new("bench", source, folder.join("mirror"));
    followed.trust_hub = trust_hub;
    let mut config = Config::new(folder.join("state"), vec![followed]);
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    config.callback.listen = any_port;
    config.callback.public_url = Url::parse("http://127.0.0.1:0/").ok();
    config.status.listen = any_port;
    config.http.allow_private_addresses = true;
    config
}

fn report(what: &str, durations: &mut [Duration]) {
    durations.sort_unstable();
    let at = |percent: usize| {
        // The nearest-rank method.
        let rank = (durations.len() * percent).div_ceil(100).max(1);
        durations[rank - 1].as_secs_f64() * 1000.0
    };
    println!(
        "{what:24} n={:<4} median {:8.1} ms   95th percentile {:8.1} ms   slowest {:8.1} ms",
        durations.len(),
        at(50),
        at(95),
        at(100)
    );
}
