//! Change Dumps: missed changes, with content, that no Change List covers.

use std::time::Duration;

use resyncd_testkit::{ChannelHub, DumpOptions, Fault, MemberFault, Notification, SampleOptions};

use crate::support::{NAME, Rig, SET, resources, time};

const LIST: &str = "/set1/resourcelist.xml";
const CHANGES: &str = "/set1/changelist.xml";
pub(super) const DUMP: &str = "/set1/changedump.xml";

/// A set with a Change Dump.
fn dumped() -> SampleOptions {
    SampleOptions {
        dumps: DumpOptions {
            change_dump: true,
            contents: false,
            ..DumpOptions::default()
        },
        ..resources(3)
    }
}

/// A set whose changes are stated only by its Change Dump.
pub(super) fn only_dumped() -> SampleOptions {
    SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..dumped()
    }
}

pub(super) async fn polled(options: SampleOptions) -> Rig {
    let rig = Rig::start_with(options, |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
    })
    .await;
    rig.idle().await;
    rig
}

fn package(number: usize) -> String {
    format!("/set1/changedump-{number:04}.zip")
}

fn package_fetches(rig: &Rig, packages: usize) -> Vec<u64> {
    (1..=packages)
        .map(|number| rig.source.hits(&package(number)))
        .collect()
}

pub(super) fn fetches(rig: &Rig, name: &str) -> u64 {
    rig.source.hits(&format!("/set1/res/{name}"))
}

/// Removes all changes so far from the Change List.
fn forget_changes(rig: &Rig) {
    rig.source.roll_change_list(SET);
    rig.source.drop_old_change_lists(SET, 0);
}

/// Waits until the set has been polled once more, completely.
async fn poll(rig: &Rig) {
    let before = rig.set().await.last_poll_at;
    rig.operator.poll(NAME).await;
    rig.until("polled", |set| set.last_poll_at != before).await;
    let polled = rig.source.hits(DUMP);
    rig.operator.poll(NAME).await;
    rig.source.wait_for_hits(DUMP, polled + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_before_the_change_list_is_closed_by_the_change_dump() {
    let rig = Rig::start(dumped()).await;
    rig.idle().await;
    assert_eq!(rig.source.hits(DUMP), 0, "not needed yet");
    let (since, lists) = (rig.operator.last_change().await, rig.source.hits(LIST));
    rig.source.create(SET, "lost.txt", "lost");
    rig.source.update(SET, "r0001.txt", "first");
    rig.source.update(SET, "r0001.txt", "second");
    rig.source.delete(SET, "r0002.txt");
    rig.source.notify(SET);
    rig.source.pack_changes(SET);
    forget_changes(&rig);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_in_feed(since, "next.txt").await;
    for name in ["lost.txt", "r0001.txt", "r0002.txt"] {
        let line = rig.until_in_feed(since, name).await;
        assert_eq!(line.origin, "change-dump", "{name}");
    }
    let set = rig.until("gap closed", |set| set.state == "in-sync").await;
    assert!(set.gaps.is_empty());
    rig.until_mirrored().await;
    assert_eq!(package_fetches(&rig, 1), [1]);
    assert_eq!(
        (fetches(&rig, "lost.txt"), fetches(&rig, "r0001.txt")),
        (0, 1)
    );
    assert_eq!(rig.source.hits(LIST), lists);
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_between_change_dump_and_change_list_is_closed_by_the_resource_list() {
    let rig = Rig::start(dumped()).await;
    rig.idle().await;
    rig.source.create(SET, "packed.txt", "packed");
    rig.source.notify(SET);
    rig.source.pack_changes(SET);
    rig.source.create(SET, "between.txt", "stated by neither");
    rig.source.notify(SET);
    forget_changes(&rig);
    rig.source.refresh_resource_list(SET);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    let set = rig.until("gap closed", |set| set.state == "in-sync").await;
    assert!(set.gaps.is_empty());
    assert_eq!(fetches(&rig, "packed.txt"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn source_without_change_list_is_followed_by_its_change_dump() {
    let rig = polled(only_dumped()).await;
    let lists = rig.source.hits(LIST);
    rig.source.create(SET, "new.txt", "new");
    rig.source.update(SET, "r0001.txt", "updated");
    rig.source.delete(SET, "r0002.txt");
    rig.source.pack_changes(SET);
    rig.until_mirrored().await;
    rig.source.create(SET, "newer.txt", "newer");
    rig.source.update(SET, "new.txt", "not so new");
    rig.source.pack_changes(SET);
    let until = rig.source.boundary();
    rig.until_mirrored().await;
    let set = rig
        .until("in sync", |set| {
            set.state == "in-sync" && set.resources == 4
        })
        .await;
    assert!(time(set.synced_until.unwrap()) <= until);
    assert_eq!(package_fetches(&rig, 2), [1, 1], "each once");
    assert_eq!(
        (fetches(&rig, "new.txt"), fetches(&rig, "newer.txt")),
        (0, 0)
    );
    assert_eq!(rig.source.hits(LIST), lists);
    poll(&rig).await;
    assert_eq!(package_fetches(&rig, 2), [1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_package_is_not_fetched_again_after_a_restart() {
    let mut rig = polled(only_dumped()).await;
    rig.source.create(SET, "new.txt", "new");
    rig.source.pack_changes(SET);
    rig.until_mirrored().await;
    rig.until("in sync", |set| set.state == "in-sync").await;
    rig.stop_daemon().await;
    rig.source.create(SET, "newer.txt", "newer");
    rig.source.pack_changes(SET);
    rig.start_daemon().await;
    rig.until_mirrored().await;
    assert_eq!(package_fetches(&rig, 2), [1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_change_dumps_is_followed() {
    let mut options = only_dumped();
    options.dumps.indexed = true;
    let rig = polled(options).await;
    for turn in 0..3 {
        rig.source.create(SET, &format!("n{turn}.txt"), "new");
        rig.source.update(SET, "r0001.txt", format!("turn {turn}"));
        rig.source.pack_changes(SET);
        if turn != 1 {
            rig.until_mirrored().await;
        }
    }
    assert_eq!(package_fetches(&rig, 3), [1, 1, 1]);
    rig.until("in sync", |set| set.state == "in-sync").await;
    // A closed dump that was read is not fetched again.
    let first = rig.source.hits("/set1/changedump-0001.xml");
    poll(&rig).await;
    assert_eq!(rig.source.hits("/set1/changedump-0001.xml"), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn package_whose_changes_are_all_known_is_not_fetched() {
    let mut options = dumped();
    options.dumps.contents = true;
    let rig = Rig::start(options).await;
    rig.idle().await;
    rig.source.create(SET, "known.txt", "known");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("known.txt", "known").await;
    rig.source.delete(SET, "known.txt");
    rig.source.notify(SET);
    rig.source.pack_changes(SET);
    forget_changes(&rig);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    rig.until("gap closed", |set| set.state == "in-sync").await;
    assert_eq!(package_fetches(&rig, 1), [0]);
    assert_eq!(rig.source.hits("/set1/changedump-0001-manifest.xml"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn older_version_in_a_package_never_replaces_a_newer_one() {
    for digests in [true, false] {
        let rig = Rig::start(SampleOptions {
            digests,
            ..dumped()
        })
        .await;
        // A poll would read the package before the newer change is announced.
        rig.idle().await;
        rig.source.update(SET, "r0001.txt", "older");
        rig.source.create(SET, "lost.txt", "lost");
        rig.source.notify(SET);
        rig.source.pack_changes(SET);
        forget_changes(&rig);
        // The newer change is announced before the gap is closed, and can't be fetched until then.
        rig.source
            .fail("/set1/res/r0001.txt", Fault::Status(503), 1);
        rig.source.update(SET, "r0001.txt", "newer");
        rig.source.notify_and_publish(SET).await.unwrap();
        rig.until_holds("lost.txt", "lost").await;
        assert_ne!(rig.mirrored("r0001.txt").unwrap(), b"older");
        rig.until_holds("r0001.txt", "newer").await;
        rig.until("gap closed", |set| set.state == "in-sync").await;
        rig.assert_mirrored();
        let lines = rig.operator.changes(0).await;
        let in_feed = lines.iter().filter(|line| line.uri == rig.uri("r0001.txt"));
        assert_eq!(in_feed.count(), 2, "the baseline and the newest version");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_of_several_versions_in_one_package_is_mirrored() {
    for (digests, whole_seconds) in [(true, false), (false, false), (true, true)] {
        let rig = polled(SampleOptions {
            digests,
            whole_seconds,
            ..only_dumped()
        })
        .await;
        for turn in 0..3 {
            rig.source.update(SET, "r0001.txt", format!("turn {turn}"));
            rig.source.create(SET, "again.txt", format!("turn {turn}"));
            rig.source.delete(SET, "again.txt");
        }
        rig.source.update(SET, "r0000.txt", "other");
        rig.source.advance(Duration::from_secs(2));
        rig.source.pack_changes(SET);
        rig.until_mirrored().await;
        rig.until("in sync", |set| set.state == "in-sync").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_of_changes_that_a_package_has_already_supplied_changes_nothing() {
    let rig = Rig::start(dumped()).await;
    rig.settled().await;
    rig.source.update(SET, "r0001.txt", "first");
    let first: Notification = rig.source.notify(SET);
    rig.source.update(SET, "r0001.txt", "second");
    rig.source.notify(SET);
    rig.source.pack_changes(SET);
    forget_changes(&rig);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    rig.until("gap closed", |set| set.state == "in-sync").await;
    let since = rig.operator.last_change().await;
    let duplicates = rig.channel().await.duplicate;
    rig.source.publish(&first).await.unwrap();
    rig.until("duplicate counted", |set| {
        set.channels.iter().any(|c| c.duplicate > duplicates)
    })
    .await;
    rig.source.create(SET, "after.txt", "after");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_in_feed(since, "after.txt").await;
    assert_eq!(rig.operator.changes(since).await.len(), 1);
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_wrong_members_are_fetched_from_their_own_uris() {
    let rig = polled(only_dumped()).await;
    for (name, fault) in [
        ("missing.txt", MemberFault::Missing),
        ("wrong.txt", MemberFault::WrongBytes),
    ] {
        rig.source.spoil_member(SET, name, Some(fault));
        rig.source.create(SET, name, name.to_owned());
    }
    rig.source.create(SET, "right.txt", "right");
    rig.source.pack_changes(SET);
    rig.until_mirrored().await;
    let counts = ["missing.txt", "wrong.txt", "right.txt"].map(|name| fetches(&rig, name));
    assert_eq!(counts, [1, 1, 0]);
    let lines = rig.operator.changes(3).await;
    assert!(lines.iter().all(|line| line.origin == "change-dump"));
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_of_an_unavailable_package_is_closed_by_the_resource_list() {
    let rig = Rig::start(dumped()).await;
    rig.settled().await;
    rig.source.fail(&package(1), Fault::Status(404), usize::MAX);
    rig.source.create(SET, "lost.txt", "lost");
    rig.source.notify(SET);
    rig.source.pack_changes(SET);
    forget_changes(&rig);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    let set = rig
        .until("gap with an error", |set| {
            set.state == "gap" && set.error.is_some()
        })
        .await;
    assert_eq!(set.error.unwrap().code, "not-found");
    rig.source.refresh_resource_list(SET);
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    rig.until("gap closed", |set| {
        set.state == "in-sync" && set.gaps.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_package_does_not_delay_later_packages() {
    let rig = polled(only_dumped()).await;
    rig.source.fail(&package(1), Fault::Status(404), 2);
    rig.source.create(SET, "first.txt", "first");
    rig.source.pack_changes(SET);
    rig.source.create(SET, "second.txt", "second");
    rig.source.pack_changes(SET);
    rig.until_holds("second.txt", "second").await;
    rig.until_holds("first.txt", "first").await;
    rig.until("in sync", |set| set.state == "in-sync").await;
    rig.assert_mirrored();
    assert_eq!(package_fetches(&rig, 2), [3, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_dump_replaces_an_unavailable_change_list() {
    let mut options = dumped();
    options.hub = ChannelHub::None;
    let rig = polled(options).await;
    rig.source.fail(CHANGES, Fault::Status(404), usize::MAX);
    rig.source.create(SET, "new.txt", "new");
    rig.source.pack_changes(SET);
    rig.until_mirrored().await;
    assert_eq!(fetches(&rig, "new.txt"), 0);
    let set = rig.until("error reported", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "not-found");
    rig.source.heal(CHANGES);
    rig.until("in sync", |set| set.state == "in-sync").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_deletions_of_a_package_wait_for_approval() {
    let rig = polled(SampleOptions {
        resources_per_set: 300,
        ..only_dumped()
    })
    .await;
    for number in 0..150 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.update(SET, "r0299.txt", "not held back");
    rig.source.pack_changes(SET);
    rig.until_holds("r0299.txt", "not held back").await;
    rig.until("held back", |set| set.held_deletions == 150)
        .await;
    let (status, body) = rig.operator.post(&format!("/sources/{NAME}/approve")).await;
    assert_eq!(status, 202, "{body}");
    rig.until_mirrored().await;
}
