//! Isolation and recovery: failing Sources, hubs that lose subscriptions, stops, restarts, a damaged database.

use std::time::Duration;

use resyncd::config::Source;
use resyncd_testkit::{Fault, SampleSource};
use url::Url;

use crate::support::{LIMIT, NAME, Rig, SET, eventually, resources};

#[tokio::test(flavor = "multi_thread")]
async fn failing_sources_do_not_affect_the_others() {
    let stalled = SampleSource::start(resources(20)).await.unwrap();
    stalled.fail("/set1/res/*", Fault::Stalled, usize::MAX);
    let rig = Rig::start_with(resources(20), |config| {
        let folder = config.state_dir.parent().unwrap().to_owned();
        let unreachable = Url::parse("http://127.0.0.1:1/").unwrap();
        for (name, url) in [("stalled", stalled.base()), ("unreachable", unreachable)] {
            let source = Source::new(name, url, folder.join(name));
            config.sources.insert(0, source);
        }
    })
    .await;
    let mirror = rig.config.sources[2].mirror.clone();
    let set = rig.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!(set.resources, 20);
    rig.source.update(SET, "r0001.txt", "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    let file = mirror.join(crate::support::path_of(
        &rig.source.resource_uri(SET, "r0001.txt"),
    ));
    eventually(
        "update mirrored",
        Some(rig.wakes()),
        async || match std::fs::read(&file) {
            Ok(bytes) if bytes == b"pushed" => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
    eventually("state of each Source", Some(rig.wakes()), async || {
        let status = rig.operator.status().await;
        let mut states = status.sources.iter().map(|source| source.state.as_str());
        let found = [states.next(), states.next(), states.next()].map(Option::unwrap);
        if found == ["failing", "ok", "ok"] && status.sources[1].sets[0].state == "baseline" {
            Ok(())
        } else {
            Err(format!("{status:#?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_does_not_wait_for_stalled_requests() {
    let mut rig = Rig::start_with(resources(5), |config| {
        // A stop that waited for a stalled request would exceed the limit of the test.
        config.http.timeout = 10 * LIMIT;
    })
    .await;
    // A poll that stalls keeps the notification from being read.
    rig.idle().await;
    rig.source
        .fail("/set1/res/r0001.txt", Fault::Stalled, usize::MAX);
    rig.source
        .fail("/set1/changelist.xml", Fault::Stalled, usize::MAX);
    let hits = rig.source.hits("/set1/res/r0001.txt");
    let polls = rig.source.hits("/set1/changelist.xml");
    rig.source.update(SET, "r0001.txt", "later");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.source
        .wait_for_hits("/set1/res/r0001.txt", hits + 1)
        .await;
    rig.operator.poll(NAME).await;
    rig.source
        .wait_for_hits("/set1/changelist.xml", polls + 1)
        .await;
    rig.stop_daemon().await;
    rig.source.heal("/set1/res/r0001.txt");
    rig.source.heal("/set1/changelist.xml");
    rig.start_daemon().await;
    rig.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_finds_changes_when_the_hub_loses_the_subscription() {
    let rig = Rig::start_with(resources(5), |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
    })
    .await;
    rig.settled().await;
    let since = rig.operator.last_change().await;
    assert_eq!(rig.hub().forget(rig.changes().as_str()), 1);
    rig.source.update(SET, "r0001.txt", "not pushed");
    assert!(
        rig.source
            .publish(&rig.source.notify(SET))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        rig.until_in_feed(since, "r0001.txt").await.origin,
        "change-list"
    );
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_survives_a_restart() {
    let mut rig = Rig::start(resources(5)).await;
    rig.settled().await;
    rig.source.freeze_change_list(SET, true);
    rig.source.create(SET, "lost.txt", "lost");
    rig.source.notify(SET);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    let before = rig.until("gap", |set| set.state == "gap").await;
    rig.stop_daemon().await;
    rig.start_daemon().await;
    let after = rig
        .until("gap after the restart", |set| set.state == "gap")
        .await;
    assert_eq!(
        (&after.gaps[0].from, &after.gaps[0].since),
        (&before.gaps[0].from, &before.gaps[0].since)
    );
    rig.source.freeze_change_list(SET, false);
    rig.until("gap closed", |set| set.state == "in-sync").await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_back_deletions_survive_a_restart() {
    let mut rig = Rig::start(resources(150)).await;
    // A poll would apply those that are stated by then: too few to be held back.
    rig.idle().await;
    for number in 0..110 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("held back", |set| set.held_deletions == 110)
        .await;
    rig.stop_daemon().await;
    rig.start_daemon().await;
    let set = rig
        .until("held back after the restart", |set| {
            set.last_poll_at.is_some()
        })
        .await;
    assert_eq!((set.held_deletions, set.resources), (110, 150));
    rig.operator.post(&format!("/sources/{NAME}/approve")).await;
    rig.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_database_is_set_aside_and_rebuilt() {
    let mut rig = Rig::start(resources(5)).await;
    rig.settled().await;
    rig.stop_daemon().await;
    let database = rig.config.state_dir.join("resyncd.db");
    std::fs::write(
        &database,
        "this is not a database, only some other text".repeat(200),
    )
    .unwrap();
    rig.source.delete(SET, "r0003.txt");
    rig.source.refresh_resource_list(SET);
    rig.start_daemon().await;
    let set = rig.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!(set.resources, 4);
    rig.until_holds(
        "r0001.txt",
        std::str::from_utf8(&rig.source.state(SET)[&rig.uri("r0001.txt")]).unwrap(),
    )
    .await;
}
