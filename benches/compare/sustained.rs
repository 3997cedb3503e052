//! How many pushed changes a second the daemon follows for minutes, and whether its memory stays as it is; against the rate at which
//! `wrk` requests one resource of the same nginx, with as many connections and without a disk.
//!
//! The bench is the Source: it overwrites files that nginx serves and delivers notifications of them through a hub. It does so as
//! fast as the daemon puts the files in place, with a limited number of changes that are not yet in place.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use resourcesync::SourceTime;
use resyncd::clock;
use resyncd_testkit::{Hub, HubDelivery, HubOptions};

use super::arrivals::Arrivals;
use super::daemon::Daemon;
use super::harness::{Bench, BenchResult, Home, mebibytes, runtime, settle};
use super::site::{LISTED_AT, Nginx, Site, XMLNS, compare_files, content, sha_256};
use super::table::{Goal, Line};

/// Small resources, in bytes.
const SIZE: usize = 1024;
/// Changes in one notification.
const BATCH: usize = 50;
/// Changes that are published and not yet in place.
const WINDOW: usize = 2000;
/// As the daemon has by default.
const CONNECTIONS: usize = 8;
/// The path of the topic.
const TOPIC: &str = "notifications.xml";
/// How often the memory is read.
const SAMPLING: Duration = Duration::from_secs(1);
/// How long the daemon may take to be in sync, or to put the next file in place.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let wrk = bench.peers.find("wrk")?;
    let site = Site::create(bench, bench.size(20_000, 4000), SIZE)?;
    site.write_capability_list(&[
        ("resourcelist", "resourcelist.xml"),
        ("change-notification", TOPIC),
    ])?;
    let topic = format!("<urlset {XMLNS}><rs:md capability=\"change-notification\"/></urlset>");
    std::fs::write(site.root().join(TOPIC), topic)?;
    let _nginx = Nginx::of_site(bench, &site)?;
    let runtime = runtime()?;
    let hub = runtime.block_on(Hub::start(HubOptions::default()))?;
    let keys = format!("hub = \"{}\"\ntrust_hub = true", hub.uri());
    let home = Home::of_source(bench, &site.capability_list(), &keys)?;
    let mut daemon = Daemon::start(bench, &home)?;
    daemon.until_settled(1, TIMEOUT)?;
    site.compare(&home.mirror())?;

    let seconds = bench.size(10, 1);
    let mut ceiling = requests_per_second(&wrk, &site, seconds)?;
    settle();
    let duration = if bench.short {
        Duration::from_secs(5)
    } else {
        Duration::from_secs(60 * bench.minutes)
    };
    let mut pushing = Pushing::new(&site, &hub, &home)?;
    let cpu = daemon.cpu()?;
    let (rate, memory) = runtime.block_on(pushing.follow(&daemon, duration))?;
    let cpu = daemon.cpu()? - cpu;
    // A file is in place before it is recorded.
    daemon.until_settled(1, TIMEOUT)?;
    pushing.compare(&home.mirror())?;
    daemon.expect_no_warnings()?;
    settle();
    ceiling = f64::midpoint(ceiling, requests_per_second(&wrk, &site, seconds)?);
    let peak = mebibytes(daemon.peak_memory()?);
    daemon.stop()?;

    let per_change = cpu.as_secs_f64() * 1e6 / f64::from(u32::try_from(pushing.made)?);
    let minutes = duration.as_secs_f64() / 60.0;
    // In the first quarter caches are filled.
    let quarter = memory.len() / 4;
    let (early, late) = (
        median(&memory[quarter..=2 * quarter]),
        median(&memory[3 * quarter..]),
    );
    Ok(vec![
        Line::new(format!(
            "pushed changes for {minutes:.1} minutes, {SIZE} bytes each"
        ))
        .resyncd(format!(
            "{rate:.0}/s (CPU {per_change:.0} µs each), {} late",
            pushing.late
        ))
        .peer(format!(
            "{ceiling:.0} GET/s of one URI, wrk with {CONNECTIONS} connections"
        ))
        .ratio(rate / ceiling, Goal::AtLeast(0.2, "")),
        Line::new("memory in the second and in the last quarter of that time")
            .resyncd(format!("{late:.0} MiB (peak {peak:.0} MiB)"))
            .peer(format!("{early:.0} MiB"))
            .ratio(late / early, Goal::AtMost(1.1, "")),
    ])
}

/// The middle of some sizes, in MiB.
fn median(sizes: &[u64]) -> f64 {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    mebibytes(sizes[sizes.len() / 2])
}

/// The rate of `wrk` for one resource, which nginx has in memory.
fn requests_per_second(wrk: &Path, site: &Site, seconds: usize) -> BenchResult<f64> {
    let output = Command::new(wrk)
        .args([
            "-t2".to_owned(),
            format!("-c{CONNECTIONS}"),
            format!("-d{seconds}s"),
        ])
        .arg(site.uri(0))
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    if !output.status.success() || text.contains("Non-2xx") {
        return Err(format!("wrk failed: {text}").into());
    }
    let rate = text
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"));
    Ok(rate.ok_or("wrk states no rate")?.trim().parse()?)
}

/// The Source's changes and notifications.
struct Pushing<'a> {
    site: &'a Site,
    hub: &'a Hub,
    arrivals: Arrivals,
    /// The version of each resource.
    versions: Vec<usize>,
    /// The resources that are changed and not yet in place.
    pending: HashSet<usize>,
    /// How many changes there were.
    made: usize,
    /// The number of the next resource, and how often it was not changed because its previous change was still pending.
    next: usize,
    late: usize,
    /// Where the next notification begins.
    covered: SourceTime,
}

impl<'a> Pushing<'a> {
    /// `home` has all resources.
    fn new(site: &'a Site, hub: &'a Hub, home: &Home) -> BenchResult<Self> {
        let mirror = home.mirror();
        let files = (0..site.resources).map(|number| site.mirrored(&mirror, number));
        let mut folders: Vec<_> = files
            .filter_map(|file| Some(file.parent()?.to_owned()))
            .collect();
        folders.dedup();
        Ok(Self {
            site,
            hub,
            arrivals: Arrivals::watch(folders.iter().map(|folder| folder.as_path()))?,
            versions: vec![0; site.resources],
            pending: HashSet::new(),
            made: 0,
            next: 0,
            late: 0,
            covered: LISTED_AT.parse().map_err(|_| "no time")?,
        })
    }

    /// Changes resources as fast as they are put in place; returns the rate, and the daemon's memory once a second.
    async fn follow(
        &mut self,
        daemon: &Daemon,
        duration: Duration,
    ) -> BenchResult<(f64, Vec<u64>)> {
        let begun = clock::now().mono;
        let mut memory = vec![daemon.memory()?];
        let mut last = begun;
        loop {
            let now = clock::now().mono;
            let elapsed = now - begun;
            if elapsed >= SAMPLING * u32::try_from(memory.len())? {
                memory.push(daemon.memory()?);
            }
            if elapsed < duration {
                while self.pending.len() + BATCH <= WINDOW {
                    self.publish().await?;
                }
            } else if self.pending.is_empty() {
                break;
            }
            let arrival = tokio::time::timeout(TIMEOUT, self.arrivals.next()).await;
            let mut arrival = Some(arrival.map_err(|_| "a change was not applied")??);
            while let Some(arrived) = arrival {
                if !self.pending.remove(&arrived.number) {
                    return Err(
                        format!("resource {} was put in place twice", arrived.number).into(),
                    );
                }
                last = arrived.at;
                arrival = self.arrivals.try_next();
            }
        }
        let rate = f64::from(u32::try_from(self.made)?) / (last - begun).as_secs_f64();
        Ok((rate, memory))
    }

    /// The next resource without a pending change; its change is pending from now on. There is one: more resources exist than
    /// changes may be pending.
    fn next_resource(&mut self) -> usize {
        loop {
            let number = self.next;
            self.next = (number + 1) % self.site.resources;
            if self.pending.insert(number) {
                return number;
            }
            self.late += 1;
        }
    }

    /// Changes the next resources and delivers the notification.
    async fn publish(&mut self) -> BenchResult<()> {
        let (base, covered) = (self.site.base(), self.covered);
        // Times of the Source are microseconds: each change has its own.
        let now = SourceTime::from(clock::now().wall);
        let mut at = now.max(covered).micros();
        let until = SourceTime::from_micros(at + i64::try_from(BATCH)? + 1);
        let mut body = format!(
            "<urlset {XMLNS}>\n<rs:ln rel=\"up\" href=\"{base}/capabilitylist.xml\"/>\n\
             <rs:md capability=\"change-notification\" from=\"{covered}\" until=\"{until}\"/>\n"
        );
        for _ in 0..BATCH {
            let number = self.next_resource();
            self.made += 1;
            at += 1;
            self.versions[number] += 1;
            let bytes = content(number, self.versions[number], SIZE);
            // It has the same length: no reader can see an empty file.
            let file = OpenOptions::new()
                .write(true)
                .open(self.site.root().join(Site::path(number)))?;
            file.write_all_at(&bytes, 0)?;
            let time = SourceTime::from_micros(at);
            writeln!(
                body,
                "<url><loc>{}</loc><lastmod>{time}</lastmod><rs:md change=\"updated\" datetime=\"{time}\" \
                 hash=\"sha-256:{}\" length=\"{SIZE}\" type=\"text/plain\"/></url>",
                self.site.uri(number),
                sha_256(&bytes)
            )?;
        }
        body.push_str("</urlset>\n");
        self.covered = until;
        let topic = format!("{base}/{TOPIC}");
        let deliveries = self.hub.deliver(&topic, Bytes::from(body)).await;
        if deliveries.iter().all(HubDelivery::is_accepted) && deliveries.len() == 1 {
            Ok(())
        } else {
            Err(format!("not delivered: {deliveries:?}").into())
        }
    }

    /// Checks that the mirror has the last version of all resources.
    fn compare(&self, mirror: &Path) -> BenchResult<()> {
        compare_files(
            &mirror.join(self.site.address.to_string()),
            self.site.resources,
            Site::path,
            |number| content(number, self.versions[number], SIZE),
        )
    }
}
