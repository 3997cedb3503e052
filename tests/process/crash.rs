//! What a daemon that is killed has lost: nothing.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use resyncd::clock;
use resyncd::demo::{
    DumpOptions, Fault, HubEvent, SampleOptions, SampleSource, Traffic, TrafficOptions, Verifying,
};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::process::Home;
use crate::support::{SET, resources, soon};
use crate::whole::{Watch, content, is_whole};

const RESOURCE_LIST: &str = "/set1/resourcelist.xml";

/// How many resources a baseline has that is to be caught in the act.
const MANY: usize = 400;

fn create_all(source: &SampleSource) {
    for number in 0..MANY {
        source.create(SET, &format!("r{number}.txt"), content(number));
    }
}

/// Starts the daemon three times and kills it, each time when it has so many resources more.
async fn kill_at_work(home: &Home, more: u64) {
    for round in 1..=3 {
        let running = home.run();
        home.until("part of the baseline", |set| set.resources >= more * round)
            .await;
        let set = home.set().await.unwrap();
        assert!(
            set.resources < MANY as u64,
            "it was to be caught in the act"
        );
        running.kill();
    }
}

fn fetched_singly(source: &SampleSource) -> u64 {
    let hits = |number| source.hits(&format!("/set1/res/r{number}.txt"));
    (0..MANY).map(hits).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_midst_of_the_baseline_it_goes_on_where_it_was() {
    let source = SampleSource::start(resources(0)).await.unwrap();
    create_all(&source);
    source.refresh_resource_list(SET);
    // Slow enough to be caught in the act.
    source.fail(
        "/set1/res/*",
        Fault::Slow(Duration::from_millis(150)),
        usize::MAX,
    );
    let home = Home::new(&source.url(), "");
    let watch = Watch::start(&home, Duration::ZERO, is_whole);
    kill_at_work(&home, 60).await;
    let running = home.run();
    home.settled(&source).await;
    assert!(watch.end() > 0);
    let callbacks = source.hub().unwrap().subscriptions();
    assert_eq!(callbacks.len(), 2, "no second subscription was made");
    let fetched = fetched_singly(&source);
    assert!(
        fetched < 400 + 3 * 100,
        "{fetched} requests for 400 resources: what was done was not done again"
    );
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_midst_of_a_dump_it_goes_on_with_the_package_it_was_at() {
    let options = SampleOptions {
        resource_list: false,
        dumps: DumpOptions {
            resource_dump: true,
            entries_per_package: 100,
            contents: false,
            ..DumpOptions::default()
        },
        ..resources(0)
    };
    let source = SampleSource::start(options).await.unwrap();
    create_all(&source);
    source.refresh_resource_dump(SET);
    // Slow enough to be caught in the act.
    let packages = "/set1/resourcedump-*";
    source.fail(packages, Fault::Slow(Duration::from_secs(1)), usize::MAX);
    let home = Home::new(&source.url(), "");
    let watch = Watch::start(&home, Duration::ZERO, is_whole);
    kill_at_work(&home, 90).await;
    let running = home.run();
    home.settled(&source).await;
    assert!(watch.end() > 0);
    let hits = |number| {
        let path = format!("/set1/resourcedump-{number:04}.zip");
        source.hits(&path) - source.hits_not_modified(&path)
    };
    let fetched: Vec<u64> = (0..4).map(hits).collect();
    assert!(
        fetched.iter().sum::<u64>() <= 4 + 3,
        "{fetched:?}: what was done was not done again"
    );
    let singly = fetched_singly(&source);
    assert!(singly <= 3 * 100, "{singly} requests for single resources");
    let left = std::fs::read_dir(home.mirror.join(".resyncd/packages"));
    assert_eq!(left.unwrap().count(), 0);
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_midst_of_pushes_it_loses_nothing() {
    let source = SampleSource::start(resources(0)).await.unwrap();
    for number in 0..30 {
        source.create(SET, &format!("r{number}.txt"), content(number));
    }
    source.refresh_resource_list(SET);
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    running.kill();
    let hub = source.hub().unwrap();
    let callbacks = |hub: &resyncd::demo::Hub| {
        let mut found: Vec<_> = hub
            .subscriptions()
            .into_iter()
            .map(|s| s.callback)
            .collect();
        found.sort();
        found
    };
    let (asked, before) = (hub.counts().requested, callbacks(hub));
    let lists = source.hits(RESOURCE_LIST);
    let watch = Watch::start(&home, Duration::ZERO, is_whole);
    let mut change = 0;
    for _round in 0..4 {
        // Changes while it is down.
        source.update(SET, "r0.txt", content(1000 + change));
        source.notify_and_publish(SET).await.unwrap();
        let running = home.run();
        home.until("it answers", |_| true).await;
        for _ in 0..40 {
            change += 1;
            let name = format!("r{}.txt", change % 30);
            source.update(SET, &name, content(change));
            source.notify_and_publish(SET).await.unwrap();
        }
        running.kill();
    }
    let running = home.run();
    home.settled(&source).await;
    assert!(watch.end() > 0);
    assert_eq!(callbacks(hub), before, "the callbacks stay");
    assert_eq!(hub.counts().requested, asked, "the hub was not asked again");
    assert_eq!(
        source.hits(RESOURCE_LIST),
        lists,
        "there was no second baseline"
    );
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_applied_after_a_crash() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let mut running = home.run();
    home.settled(&source).await;
    // Nothing but the notifications tells of the changes.
    source.freeze_change_list(SET, true);
    for round in 0..5 {
        for number in 0..10 {
            let name = format!("n{round}-{number}.txt");
            source.create(SET, &name, format!("pushed in round {round}"));
        }
        let notification = source.notify(SET);
        let deliveries = source.publish(&notification).await.unwrap();
        assert!(deliveries[0].is_accepted());
        running.kill();
        running = home.run();
        home.until("it answers", |_| true).await;
    }
    home.until_mirrored(&source).await;
    // A file is in its place a moment before the feed tells of it.
    let set = home.until("in step", |set| set.state == "in-sync").await;
    let lines = home.operator.changes(0).await;
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.origin == "notification")
            .count(),
        50,
        "each was applied once, though it was killed in between"
    );
    assert!(lines.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert!(set.gaps.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_was_not_verified_before_a_crash_is_made_again() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let hub = source.hub().unwrap();
    // It takes the requests, and calls when nobody is there.
    hub.configure(|options| options.verifying = Verifying::Never);
    let home = Home::new(&source.url(), "");
    let running = home.run();
    soon("asked", hub.wait_for_counts(|counts| counts.requested == 2)).await;
    home.until_mirrored(&source).await;
    running.kill();
    hub.configure(|options| options.verifying = Verifying::AfterAnswer);
    let running = home.run();
    home.settled(&source).await;
    assert_eq!(
        hub.counts().requested,
        4,
        "each channel was asked for once more"
    );
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn held_notifications_outlive_a_crash() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    source.freeze_change_list(SET, true);
    source.create(SET, "first.txt", "first");
    let first = source.notify(SET);
    source.create(SET, "second.txt", "second");
    source.notify_and_publish(SET).await.unwrap();
    running.kill();
    let _running = home.run();
    home.until("a gap, or still held", |set| {
        !set.channels.is_empty() && set.last_poll_at.is_some()
    })
    .await;
    source.publish(&first).await.unwrap();
    home.until_mirrored(&source).await;
    home.until("in step", |set| set.state == "in-sync").await;
}

/// How many kills there are in the storm, unless `RESYNCD_KILLS` says otherwise; `RESYNCD_KILL_SEED` says which.
const KILLS: u64 = 4;

/// How many changes a notification of the storm tells.
const CHANGES: usize = 20;

/// Keeps changing the Source, hundreds of times in a second, until it is told to stop; how many changes there were.
async fn keep_changing(mut traffic: Traffic, stop: CancellationToken) -> (Traffic, usize) {
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = 0;
    while !stop.is_cancelled() {
        pace.tick().await;
        traffic.step(CHANGES).await;
        changes += CHANGES;
    }
    (traffic, changes)
}

/// A number below another one, that looks random (SplitMix64).
fn below(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % bound
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_and_kills_under_heavy_traffic_end_in_step() {
    let asked = |name| {
        std::env::var(name)
            .ok()
            .map(|number| number.parse().unwrap())
    };
    let kills: u64 = asked("RESYNCD_KILLS").unwrap_or(KILLS);
    let seed: u64 = asked("RESYNCD_KILL_SEED").unwrap_or(1);
    let source = SampleSource::start(resources(0)).await.unwrap();
    // A tenth of so few names goes in a moment, over and over.
    let more = "poll_interval = \"2s\"\nmax_delete = \"100%\"";
    let home = Home::new(&source.url(), more);
    let mut traffic = Traffic::new(
        source.clone(),
        TrafficOptions {
            seed,
            names: 200,
            changes_per_list: 300,
            lists_retained: 2,
            lost: 150,
            doubled: 150,
            reordered: 150,
            ..TrafficOptions::default()
        },
    );
    traffic.step(200).await;
    source.refresh_resource_list(SET);
    let hub = source.hub().unwrap();
    println!("{kills} kills with RESYNCD_KILL_SEED={seed}");
    let begun = clock::now().mono;
    let watch = Watch::start(&home, Duration::from_millis(20), is_whole);
    let stop = CancellationToken::new();
    let changing = tokio::spawn(keep_changing(traffic, stop.clone()));
    let mut dice = seed;
    // Gaps are to be expected.
    let start = || home.run_with([("RUST_LOG", Path::new("error"))]);
    for kill in 1..=kills {
        let mark = hub.mark();
        let running = start();
        if below(&mut dice, 2) == 0 {
            // Whatever it is at: perhaps not even listening.
            let moment = Duration::from_millis(below(&mut dice, 500));
            tokio::time::sleep(moment).await;
        } else {
            let (seen, enough) = (Cell::new(0), 1 + below(&mut dice, 30));
            let taken = |event: &HubEvent| {
                let taken =
                    matches!(event, HubEvent::Delivered(delivery) if delivery.is_accepted());
                seen.set(seen.get() + u64::from(taken));
                seen.get() == enough
            };
            soon("some deliveries", hub.wait_after(mark, taken)).await;
        }
        running.kill();
        if kill % 4 == 0 {
            let running = start();
            home.until("it answers", |_| true).await;
            assert_eq!(running.stop().await.code(), Some(0));
        }
    }
    let running = start();
    stop.cancel();
    let (_, changes) = soon("the traffic", changing).await.unwrap();
    source.refresh_resource_list(SET);
    home.settled(&source).await;
    let looked = watch.end();
    let (state, set) = (source.state(SET), home.set().await.unwrap());
    let bytes: usize = state.values().map(|bytes| bytes.len()).sum();
    assert_eq!(
        (set.resources as usize, set.bytes as usize),
        (state.len(), bytes)
    );
    // Who follows the feed has what the Source has.
    let lines = home.operator.changes(0).await;
    assert!(lines.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let mut told = BTreeMap::new();
    for line in &lines {
        match line.change.as_str() {
            "deleted" => told.remove(&line.uri),
            _ => told.insert(line.uri.clone(), line.length),
        };
    }
    let lengths = |(uri, bytes): (&String, &bytes::Bytes)| (uri.clone(), Some(bytes.len() as u64));
    assert_eq!(told, state.iter().map(lengths).collect());
    let counts = hub.counts();
    println!(
        "{kills} kills and {} stops in {:?}; {changes} changes, {} deliveries acknowledged and {} not; \
         {} changes applied, {looked} looks at a file",
        kills / 4,
        clock::now().mono - begun,
        counts.delivered,
        counts.undelivered,
        lines.len(),
    );
    assert_eq!(hub.subscriptions().len(), 2, "one a channel");
    assert_eq!(running.stop().await.code(), Some(0));
    let work = std::fs::read_dir(home.mirror.join(".resyncd/work"));
    assert_eq!(work.unwrap().count(), 0);
}
