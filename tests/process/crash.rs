//! Daemons that are killed: nothing that was acknowledged is lost.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use resyncd::clock;
use resyncd_testkit::{
    DumpOptions, Fault, HubEvent, SampleOptions, SampleSource, Traffic, TrafficOptions, Verifying,
};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::support::completeness::{Watch, content, is_complete};
use crate::support::process::Home;
use crate::support::{SET, resources, soon};

const RESOURCE_LIST: &str = "/set1/resourcelist.xml";

/// Number of resources of a baseline during which the daemon is killed.
const MANY: usize = 400;

fn create_all(source: &SampleSource) {
    for number in 0..MANY {
        source.create(SET, &format!("r{number}.txt"), content(number));
    }
}

/// Starts and kills the daemon three times, each time after `more` further resources.
async fn kill_during_baseline(source: &SampleSource, home: &Home, more: u64) {
    for round in 1..=3 {
        let running = home.run();
        // A kill between storing a verification and answering it would lose the subscription.
        let subscribed = source.hub().unwrap();
        let subscribed = subscribed.wait_for_counts(|counts| counts.subscribed >= 2);
        soon("subscribed", subscribed).await;
        let set = home
            .until("part of the baseline", |set| set.resources >= more * round)
            .await;
        assert!(
            set.resources < MANY as u64,
            "killed before the baseline ended"
        );
        running.kill();
    }
}

fn single_fetches(source: &SampleSource) -> u64 {
    let hits = |number| source.hits(&format!("/set1/res/r{number}.txt"));
    (0..MANY).map(hits).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn baseline_continues_after_kills() {
    let source = SampleSource::start(resources(0)).await.unwrap();
    create_all(&source);
    source.refresh_resource_list(SET);
    // Does not end before the kills.
    let last = "/set1/res/r39*";
    source.fail(last, Fault::Stalled, usize::MAX);
    source.fail(
        "/set1/res/*",
        Fault::Slow(Duration::from_millis(150)),
        usize::MAX,
    );
    let home = Home::new(&source.url(), "");
    let watch = Watch::start(&home, Duration::ZERO, is_complete);
    kill_during_baseline(&source, &home, 60).await;
    source.heal(last);
    let running = home.run();
    home.settled(&source).await;
    assert!(watch.end() > 0);
    let callbacks = source.hub().unwrap().subscriptions();
    assert_eq!(callbacks.len(), 2, "no second subscription");
    let fetched = single_fetches(&source);
    assert!(
        fetched < 400 + 3 * 100,
        "{fetched} requests for 400 resources: mirrored ones were fetched again"
    );
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn baseline_from_a_dump_continues_after_kills_with_the_current_package() {
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
    // Does not end before the kills.
    let last = "/set1/resourcedump-0003.zip";
    source.fail(last, Fault::Stalled, usize::MAX);
    let packages = "/set1/resourcedump-*";
    source.fail(packages, Fault::Slow(Duration::from_secs(1)), usize::MAX);
    let home = Home::new(&source.url(), "");
    let watch = Watch::start(&home, Duration::ZERO, is_complete);
    kill_during_baseline(&source, &home, 90).await;
    source.heal(last);
    let running = home.run();
    home.settled(&source).await;
    assert!(watch.end() > 0);
    let hits = |number| {
        let path = format!("/set1/resourcedump-{number:04}.zip");
        let (hits, not_modified) = source.hits_and_not_modified(&path);
        hits - not_modified
    };
    let fetched: Vec<u64> = (0..3).map(hits).collect();
    assert!(
        fetched.iter().sum::<u64>() <= 3 + 3,
        "{fetched:?}: packages were fetched again"
    );
    let single = single_fetches(&source);
    assert!(single <= 3 * 100, "{single} requests for single resources");
    let left = std::fs::read_dir(home.mirror.join(".resyncd/packages"));
    assert_eq!(left.unwrap().count(), 0);
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pushed_change_is_lost_by_kills() {
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
    let callbacks = |hub: &resyncd_testkit::Hub| {
        let mut found: Vec<_> = hub
            .subscriptions()
            .into_iter()
            .map(|s| s.callback)
            .collect();
        found.sort();
        found
    };
    let (requests, before) = (hub.counts().requested, callbacks(hub));
    let lists = source.hits(RESOURCE_LIST);
    let watch = Watch::start(&home, Duration::ZERO, is_complete);
    let mut change = 0;
    for _round in 0..4 {
        // A change during downtime.
        source.update(SET, "r0.txt", content(1000 + change));
        source.notify_and_publish(SET).await.unwrap();
        let running = home.run();
        home.until("status available", |_| true).await;
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
    assert_eq!(callbacks(hub), before, "the callbacks do not change");
    assert_eq!(
        hub.counts().requested,
        requests,
        "no new subscription request"
    );
    assert_eq!(source.hits(RESOURCE_LIST), lists, "no second baseline");
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_notifications_are_applied_after_a_crash() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let mut running = home.run();
    home.settled(&source).await;
    // Only the notifications announce the changes.
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
        home.until("status available", |_| true).await;
    }
    home.until_mirrored(&source).await;
    // A file is published shortly before its line is in the feed.
    let set = home.until("in sync", |set| set.state == "in-sync").await;
    let lines = home.operator.changes(0).await;
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.origin == "notification")
            .count(),
        50,
        "each change is applied once"
    );
    assert!(lines.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert!(set.gaps.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_request_without_verification_before_a_crash_is_repeated() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let hub = source.hub().unwrap();
    // The hub accepts the requests and does not verify them.
    hub.configure(|options| options.verifying = Verifying::Never);
    let home = Home::new(&source.url(), "");
    let running = home.run();
    soon(
        "requested",
        hub.wait_for_counts(|counts| counts.requested == 2),
    )
    .await;
    home.until_mirrored(&source).await;
    running.kill();
    hub.configure(|options| options.verifying = Verifying::AfterAnswer);
    let running = home.run();
    home.settled(&source).await;
    assert_eq!(hub.counts().requested, 4, "one more request per channel");
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn held_notifications_survive_a_crash() {
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
    home.until("restarted", |set| {
        !set.channels.is_empty() && set.last_poll_at.is_some()
    })
    .await;
    source.publish(&first).await.unwrap();
    home.until_mirrored(&source).await;
    home.until("in sync", |set| set.state == "in-sync").await;
}

/// Default number of kills under traffic; set with `RESYNCD_KILLS`. `RESYNCD_KILL_SEED` sets the seed.
const KILLS: u64 = 4;

/// Number of changes in a notification of that traffic.
const CHANGES: usize = 20;

/// Changes the Source hundreds of times per second until it is stopped. Returns the number of changes.
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

/// A pseudorandom number below `bound` (SplitMix64).
fn below(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % bound
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_and_stops_under_heavy_traffic_end_in_sync() {
    let number_from = |name| {
        std::env::var(name)
            .ok()
            .map(|number| number.parse().unwrap())
    };
    let kills: u64 = number_from("RESYNCD_KILLS").unwrap_or(KILLS);
    let seed: u64 = number_from("RESYNCD_KILL_SEED").unwrap_or(1);
    let source = SampleSource::start(resources(0)).await.unwrap();
    // With so few names, a tenth of them is deleted within a moment.
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
    let watch = Watch::start(&home, Duration::from_millis(20), is_complete);
    let stop = CancellationToken::new();
    let changing = tokio::spawn(keep_changing(traffic, stop.clone()));
    let mut dice = seed;
    // Warnings of gaps are expected.
    let start = || home.run_with([("RUST_LOG", Path::new("error"))]);
    for kill in 1..=kills {
        let mark = hub.mark();
        let running = start();
        if below(&mut dice, 2) == 0 {
            // At any moment, even before it listens.
            let moment = Duration::from_millis(below(&mut dice, 500));
            tokio::time::sleep(moment).await;
        } else {
            let (accepted, limit) = (Cell::new(0), 1 + below(&mut dice, 30));
            let reached = |event: &HubEvent| {
                let is_accepted =
                    matches!(event, HubEvent::Delivered(delivery) if delivery.is_accepted());
                accepted.set(accepted.get() + u64::from(is_accepted));
                accepted.get() == limit
            };
            soon("some deliveries", hub.wait_after(mark, reached)).await;
        }
        running.kill();
        if kill % 4 == 0 {
            let running = start();
            home.until("status available", |_| true).await;
            assert_eq!(running.stop().await.code(), Some(0));
        }
    }
    let running = start();
    stop.cancel();
    let (_, changes) = soon("end of the traffic", changing).await.unwrap();
    source.refresh_resource_list(SET);
    home.settled(&source).await;
    let files_read = watch.end();
    let (state, set) = (source.state(SET), home.until("the status", |_| true).await);
    let bytes: usize = state.values().map(|bytes| bytes.len()).sum();
    assert_eq!(
        (set.resources as usize, set.bytes as usize),
        (state.len(), bytes)
    );
    // A follower of the feed has the state of the Source.
    let lines = home.operator.changes(0).await;
    assert!(lines.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let mut followed = BTreeMap::new();
    for line in &lines {
        match line.change.as_str() {
            "deleted" => followed.remove(&line.uri),
            _ => followed.insert(line.uri.clone(), line.length),
        };
    }
    let lengths = |(uri, bytes): (&String, &bytes::Bytes)| (uri.clone(), Some(bytes.len() as u64));
    assert_eq!(followed, state.iter().map(lengths).collect());
    let counts = hub.counts();
    println!(
        "{kills} kills and {} stops in {:?}; {changes} changes, {} deliveries acknowledged and {} not; \
         {} changes applied, {files_read} files read",
        kills / 4,
        clock::now().mono - begun,
        counts.delivered,
        counts.undelivered,
        lines.len(),
    );
    assert_eq!(hub.subscriptions().len(), 2, "one per channel");
    assert_eq!(running.stop().await.code(), Some(0));
    let work = std::fs::read_dir(home.mirror.join(".resyncd/work"));
    assert_eq!(work.unwrap().count(), 0);
}
