//! How long a pushed change takes, from the moment at which the hub posts the notification until the file is in place; against the
//! least that a program can do without a notification and a database: GET, write, fsync, rename.
//!
//! Both get 200 changes a second of the same Source by turns, each sent when it is due, whatever became of those before. The hub
//! has another origin than the Source, so that the daemon trusts it only if that is configured; both are measured. Then the same
//! with 1,000 changes in one notification.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use resyncd::clock;
use resyncd_testkit::{HubDelivery, SampleOptions, SampleSource};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use url::Url;

use super::arrivals::{Arrival, Arrivals};
use super::daemon::Daemon;
use super::harness::{Bench, BenchResult, Home, mebibytes, runtime, settle};
use super::latencies::Latencies;
use super::site::content;
use super::table::{Goal, Line};

const SET: &str = "set1";
/// As many as change in one round: none changes again before it is in place.
const RESOURCES: usize = 2000;
/// Changes in one notification.
const BATCH: usize = 1000;
const SIZE: usize = 1024;
/// Between two changes: 200 a second.
const PACE: Duration = Duration::from_millis(5);
/// How many resources the bare fetcher requests at once; as many as the daemon by default.
const AT_ONCE: usize = 8;
/// How long the daemon may take to be in sync, or to apply a change.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Measures with a hub that is trusted, and with one that is not.
pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let mut lines = Vec::new();
    for is_trusted in [true, false] {
        lines.extend(with_hub(bench, is_trusted)?);
    }
    Ok(lines)
}

fn with_hub(bench: &Bench, is_trusted: bool) -> BenchResult<Vec<Line>> {
    let runtime = runtime()?;
    let source = runtime.block_on(SampleSource::start(SampleOptions {
        sets: vec![SET.to_owned()],
        resources_per_set: RESOURCES,
        resource_size: SIZE,
        ..SampleOptions::default()
    }))?;
    let keys = format!("trust_hub = {is_trusted}");
    let home = Home::of_source(bench, &source.url(), &keys)?;
    let mut daemon = Daemon::start(bench, &home)?;
    daemon.until_settled(1, TIMEOUT)?;

    let host = home.mirror().join(source.base().authority());
    let folder = host.join(SET).join("res");
    let bare = bench.folder()?;
    let mut changes = Changes {
        source,
        arrivals: Arrivals::watch([folder.as_path()])?,
        bare: Arc::new(Bare::new(bare.path())?),
        made: 0,
    };
    let each = bench.size(RESOURCES, 200);
    let (mut pushes, mut gets) = (Vec::new(), Vec::new());
    let mut cpu = Duration::ZERO;
    for _ in 0..bench.rounds() {
        settle();
        let before = daemon.cpu()?;
        pushes.extend(runtime.block_on(changes.pushes(each))?);
        cpu += daemon.cpu()? - before;
        settle();
        gets.extend(runtime.block_on(changes.gets(each))?);
    }
    let (mut batches, mut bare_batches) = (Vec::new(), Vec::new());
    for _ in 0..bench.size(5, 1) {
        settle();
        batches.push(runtime.block_on(changes.batch(BATCH))?);
        settle();
        bare_batches.push(runtime.block_on(changes.bare_batch(BATCH))?);
    }

    // A file is in place before it is recorded.
    daemon.until_settled(1, TIMEOUT)?;
    changes.compare(&host)?;
    expect_origin(&daemon, pushes.len() + batches.len() * BATCH)?;
    daemon.expect_no_warnings()?;
    let peak = mebibytes(daemon.peak_memory()?);
    daemon.stop()?;

    let hub = if is_trusted {
        "hub trusted"
    } else {
        "hub not trusted"
    };
    let per_push = cpu.as_secs_f64() * 1000.0 / f64::from(u32::try_from(pushes.len())?);
    let (pushes, gets) = (Latencies::new(pushes), Latencies::new(gets));
    let (batches, bare_batches) = (Latencies::new(batches), Latencies::new(bare_batches));
    let ratio = |percent| pushes.millis(percent) / gets.millis(percent);
    let batch = batches.millis(50) / bare_batches.millis(50);
    Ok(vec![
        Line::new(format!(
            "push until the file is in place, 200/s, {hub}, median"
        ))
        .resyncd(format!(
            "{:.1} ms (CPU {per_push:.2} ms each, {peak:.0} MiB)",
            pushes.millis(50)
        ))
        .peer(format!(
            "{:.1} ms, GET + write + fsync + rename",
            gets.millis(50)
        ))
        .ratio(ratio(50), Goal::AtMost(3.0, "")),
        Line::new(format!(
            "push until the file is in place, 200/s, {hub}, 99th percentile"
        ))
        .resyncd(format!("{:.1} ms", pushes.millis(99)))
        .peer(format!("{:.1} ms", gets.millis(99)))
        .ratio(ratio(99), Goal::AtMost(10.0, "")),
        Line::new(format!(
            "one notification of {BATCH} changes until all are in place, {hub}"
        ))
        .resyncd(format!("{:.0} ms", batches.millis(50)))
        .peer(format!(
            "{:.0} ms, the same bare, {AT_ONCE} at once",
            bare_batches.millis(50)
        ))
        .ratio_only(batch),
    ])
}

/// Checks that so many changes were applied, and that all were stated by notifications.
fn expect_origin(daemon: &Daemon, changes: usize) -> BenchResult<()> {
    let limit = changes + RESOURCES + 1;
    let feed = daemon.get(&format!("/changes?since={RESOURCES}&limit={limit}"))?;
    let pushed = r#""origin":"notification""#;
    let (all, of_pushes) = feed.body.lines().fold((0, 0), |(all, of_pushes), line| {
        (all + 1, of_pushes + usize::from(line.contains(pushed)))
    });
    if (all, of_pushes) == (changes, changes) {
        return Ok(());
    }
    Err(format!(
        "of {all} changes in the feed {of_pushes} have come by notification, of {changes} pushed"
    )
    .into())
}

/// Changes of the Source, and how long it takes to follow them.
struct Changes {
    source: SampleSource,
    arrivals: Arrivals,
    bare: Arc<Bare>,
    /// How many there were.
    made: usize,
}

impl Changes {
    /// Changes the next resource; returns its number.
    fn change(&mut self) -> usize {
        let (number, version) = (self.made % RESOURCES, 1 + self.made / RESOURCES);
        self.made += 1;
        let bytes = content(number, version, SIZE);
        self.source.update(SET, &name(number), bytes);
        number
    }

    /// Publishes a change at each tick; returns how long each took.
    async fn pushes(&mut self, changes: usize) -> BenchResult<Vec<Duration>> {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut sent = HashMap::new();
        let mut published = JoinSet::new();
        let mut latencies = Vec::with_capacity(changes);
        let mut left = changes;
        while latencies.len() < changes {
            tokio::select! {
                biased;
                arrival = within_timeout(&mut self.arrivals) => {
                    let Arrival { number, at } = arrival?;
                    let since: Instant = sent.remove(&number).ok_or("a file was put in place twice")?;
                    latencies.push(at - since);
                }
                _ = pace.tick(), if left > 0 => {
                    left -= 1;
                    let number = self.change();
                    let notification = self.source.notify(SET);
                    let source = self.source.clone();
                    sent.insert(number, clock::now().mono);
                    published.spawn(async move { source.publish(&notification).await });
                }
            }
        }
        while let Some(deliveries) = published.join_next().await {
            expect_accepted(&deliveries??)?;
        }
        Ok(latencies)
    }

    /// Publishes one notification of many changes; returns how long all of them took.
    async fn batch(&mut self, changes: usize) -> BenchResult<Duration> {
        for _ in 0..changes {
            self.change();
        }
        let notification = self.source.notify(SET);
        let sent = clock::now().mono;
        let source = self.source.clone();
        let published = tokio::spawn(async move { source.publish(&notification).await });
        let mut last = sent;
        for _ in 0..changes {
            last = within_timeout(&mut self.arrivals).await?.at;
        }
        expect_accepted(&published.await??)?;
        Ok(last - sent)
    }

    /// Fetches a resource at each tick; returns how long each took.
    async fn gets(&self, count: usize) -> BenchResult<Vec<Duration>> {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut fetched = JoinSet::new();
        for number in 0..count {
            pace.tick().await;
            let (bare, uri) = (Arc::clone(&self.bare), self.uri(number));
            fetched.spawn(async move {
                let begun = clock::now().mono;
                bare.fetch(uri, number).await?;
                BenchResult::Ok(clock::now().mono - begun)
            });
        }
        let mut latencies = Vec::with_capacity(count);
        while let Some(latency) = fetched.join_next().await {
            latencies.push(latency??);
        }
        Ok(latencies)
    }

    /// Fetches many resources; returns how long all of them took.
    async fn bare_batch(&self, count: usize) -> BenchResult<Duration> {
        let begun = clock::now().mono;
        let fetches = (0..count).map(|number| self.bare.fetch(self.uri(number), number));
        let mut fetches = futures_util::stream::iter(fetches).buffer_unordered(AT_ONCE);
        while let Some(fetched) = fetches.next().await {
            fetched?;
        }
        Ok(clock::now().mono - begun)
    }

    fn uri(&self, number: usize) -> Url {
        self.source.resource_uri(SET, &name(number % RESOURCES))
    }

    /// Checks that the mirror of the Source's host has the bytes of all resources.
    fn compare(&self, host: &Path) -> BenchResult<()> {
        for (uri, bytes) in self.source.state(SET) {
            let path = Url::parse(&uri)?.path().trim_start_matches('/').to_owned();
            let file = host.join(path);
            if fs::read(&file)? != bytes {
                return Err(format!("{} differs from the Source", file.display()).into());
            }
        }
        Ok(())
    }
}

/// The name that the sample Source gives to a resource.
fn name(number: usize) -> String {
    format!("r{number:04}.txt")
}

async fn within_timeout(arrivals: &mut Arrivals) -> BenchResult<Arrival> {
    let arrival = tokio::time::timeout(TIMEOUT, arrivals.next()).await;
    arrival.map_err(|_| "a change was not applied")?
}

fn expect_accepted(deliveries: &[HubDelivery]) -> BenchResult<()> {
    if deliveries.len() == 1 && deliveries.iter().all(HubDelivery::is_accepted) {
        return Ok(());
    }
    Err(format!("not delivered: {deliveries:?}").into())
}

/// The least that puts a resource in place without losing it with the power.
struct Bare {
    client: reqwest::Client,
    folder: PathBuf,
}

impl Bare {
    fn new(folder: &Path) -> BenchResult<Self> {
        // Fails if it is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]);
        Ok(Self {
            client: client.build()?,
            folder: folder.to_owned(),
        })
    }

    async fn fetch(&self, uri: Url, number: usize) -> BenchResult<()> {
        let answer = self.client.get(uri).send().await?.error_for_status()?;
        let bytes = answer.bytes().await?;
        // Several versions of a resource may be in progress.
        let temporary = self.folder.join(format!("{number}.part"));
        let file = self.folder.join(name(number % RESOURCES));
        let written = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
            let mut written = File::create(&temporary)?;
            written.write_all(&bytes)?;
            written.sync_all()?;
            fs::rename(temporary, file)
        });
        Ok(written.await??)
    }
}
