//! The limits of what a Source may have.

use std::time::Duration;

use resyncd::config::Config;
use resyncd::status::SetStatus;
use resyncd::store::Store;
use resyncd_testkit::{ChannelHub, SampleOptions, SampleSource};

use super::packing::only_dumped;
use crate::support::{Rig, SET, eventually, resources};

#[tokio::test(flavor = "multi_thread")]
async fn resources_beyond_the_limit_are_reported_and_nothing_is_lost() {
    let limit = |config: &mut Config| config.limits.resources = Some(3);
    let mut rig = Rig::start_with(resources(3), limit).await;
    rig.settled().await;
    rig.source.create(SET, "one-more.txt", "more");
    rig.source.notify_and_publish(SET).await.unwrap();
    let is_full = |code: &str| code == "too-many-resources";
    let set = rig
        .until("the limit is reported", |set| {
            set.error.as_ref().is_some_and(|error| is_full(&error.code))
        })
        .await;
    assert_eq!((set.resources, set.held_deletions), (3, 0));
    assert!(rig.mirrored("one-more.txt").is_none());
    assert!(rig.mirrored("r0001.txt").is_some());
    // Once it is raised, what was not read is read.
    rig.stop_daemon().await;
    rig.config.limits.resources = None;
    rig.start_daemon().await;
    rig.settled().await;
    rig.until_holds("one-more.txt", "more").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sets_beyond_the_limit_are_reported_and_not_followed() {
    let options = SampleOptions {
        sets: ["set1", "set2", "set3"].map(str::to_owned).to_vec(),
        ..resources(2)
    };
    let rig = Rig::start_with(options, |config| config.limits.sets = 2).await;
    let source = eventually("the limit is reported", None, async || {
        let status = rig.operator.status().await;
        let source = status.sources.into_iter().next().unwrap();
        let is_notice = |code: &str| code == "too-many-sets";
        // The notice is shown before the discovery has ended.
        let is_discovered = source.state == "ok";
        if is_discovered && source.notices.iter().any(|notice| is_notice(&notice.code)) {
            Ok(source)
        } else {
            Err(format!("{source:?}"))
        }
    })
    .await;
    assert_eq!(source.sets.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_of_the_feed_is_told_that_entries_were_removed() {
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let last = rig.operator.changes(0).await[2].seq;
    rig.stop_daemon().await;
    let store = Store::open(&rig.config.state_dir).unwrap();
    let now = resyncd::clock::now().wall;
    // Its position is stored, so that what it reads next stays for some time.
    assert_eq!(store.feed_read_until(now).await.unwrap(), Some(0));
    let later = now + chrono::TimeDelta::days(1);
    store.trim_feed(later).await.unwrap();
    drop(store);
    rig.start_daemon().await;
    let (status, body) = rig.operator.get("/changes?since=1").await;
    assert_eq!(status, 410, "{body}");
    assert!(body.contains("feed-trimmed"), "{body}");
    assert_eq!(rig.operator.events(1).await.status(), 410);
    for path in ["/changes", &format!("/changes?since={last}")] {
        assert_eq!(rig.operator.get(path).await.0, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_with_a_uri_beyond_the_limit_is_not_complete_and_deletes_nothing() {
    let polled = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(3)
    };
    let short = |config: &mut Config| {
        config.limits.uri = 256;
        config.sources[0].poll_interval = Duration::from_secs(1);
    };
    let mut rig = Rig::start_with(polled, short).await;
    rig.settled().await;
    let long = format!("{}/{}.txt", "a".repeat(150), "b".repeat(150));
    rig.source.create(SET, &long, "long");
    rig.source.create(SET, "short.txt", "short");
    rig.source.delete(SET, "r0001.txt");
    rig.source.refresh_resource_list(SET);
    rig.until_holds("short.txt", "short").await;
    let is_long = |set: &SetStatus| set.oddities.iter().any(|oddity| oddity.code == "long-uri");
    let set = rig.until("the long URI is reported", |set| {
        is_long(set) && set.state == "failing"
    });
    assert_eq!(set.await.unread, 1);
    let polls = rig.source.hits("/set1/resourcelist.xml");
    rig.source
        .wait_for_hits("/set1/resourcelist.xml", polls + 2)
        .await;
    assert!(
        rig.mirrored("r0001.txt").is_some(),
        "an incomplete list deletes nothing"
    );
    // Once it is raised, the list is complete.
    rig.stop_daemon().await;
    rig.config.limits.uri = 1024;
    rig.start_daemon().await;
    rig.until_holds(&long, "long").await;
    rig.until_mirrored().await;
    assert!(rig.mirrored("r0001.txt").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn manifest_with_a_uri_beyond_the_limit_is_not_complete() {
    let options = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..only_dumped(3)
    };
    let source = SampleSource::start(options).await.unwrap();
    let long = format!("{}/{}.txt", "a".repeat(150), "b".repeat(150));
    source.create(SET, &long, "long");
    source.refresh_resource_dump(SET);
    let mut rig = Rig::follow(source, |config| config.limits.uri = 256).await;
    let set = rig
        .until("the others are mirrored", |set| {
            set.resources == 3 && set.state == "failing"
        })
        .await;
    assert_eq!(set.error.unwrap().code, "bad-entries");
    assert_eq!(set.synced_until, None);
    // Once it is raised, the manifest is complete.
    rig.stop_daemon().await;
    rig.config.limits.uri = 1024;
    rig.start_daemon().await;
    rig.settled().await;
}
