//! Baselines from Resource Dumps: few requests, the same mirror.

use std::time::Duration;

use resourcesync::{Capability, SourceTime};
use resyncd::config::{Baseline, Config};
use resyncd_testkit::{ChannelHub, Fault, MemberFault, SampleOptions, SampleSource};

use super::packing::{
    DUMP, HEAD, LIST, damage, dumped, only_dumped, package, package_fetches, packages_left,
    poll_twice, single_fetches,
};
use crate::support::{LIMIT, NAME, Rig, SET, time};

#[tokio::test(flavor = "multi_thread")]
async fn baseline_from_a_resource_dump_takes_few_requests() {
    let at = SourceTime::from_micros(1_767_398_400_123_456);
    let rig = Rig::start(SampleOptions {
        start: Some(at),
        ..dumped(25)
    })
    .await;
    let set = rig.settled().await;
    assert_eq!((set.resources, set.pending, set.failed), (25, 0, 0));
    assert_eq!(set.error, None);
    assert_eq!(
        set.synced_until.as_deref(),
        Some("2026-01-03T00:00:00.123456Z")
    );
    assert_eq!(package_fetches(&rig, 4), [1, 1, 1, 0]);
    assert_eq!(single_fetches(&rig, 25), 0);
    assert_eq!(rig.source.hits(LIST), 0);
    let lines = rig.operator.changes(0).await;
    assert_eq!(lines.len(), 25);
    assert!(lines.iter().all(|line| line.origin == "resource-dump"));
    let known = rig.operator.resource(&rig.uri("r0003.txt")).await.unwrap();
    assert_eq!(known["type"], "text/plain");
    assert_eq!(packages_left(&rig), 0);

    // Later changes are followed as in any other set.
    rig.source.update(SET, "r0001.txt", "new");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0001.txt", "new").await;
    assert_eq!(package_fetches(&rig, 3), [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_part_of_a_resource_dump_index_is_read() {
    let mut options = only_dumped(35);
    options.dumps.indexed = true;
    let rig = Rig::start(options).await;
    assert_eq!(rig.settled().await.resources, 35);
    assert_eq!(rig.source.hits("/set1/resourcedump-0003.xml"), 1);
    assert_eq!(package_fetches(&rig, 4), [1, 1, 1, 1]);
    assert_eq!(single_fetches(&rig, 35), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_that_was_given_up_is_read_from_the_next_dump() {
    let source = SampleSource::start(SampleOptions {
        // No subscription causes another poll, which would retry the resource.
        hub: ChannelHub::None,
        ..only_dumped(5)
    })
    .await
    .unwrap();
    source.spoil_member(SET, "r0003.txt", Some(MemberFault::Missing));
    source.refresh_resource_dump(SET);
    source.fail("/set1/res/*", Fault::Status(403), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    rig.until("the poll has ended", |set| set.next_poll_at.is_some())
        .await;
    rig.until("one task failed", |set| set.failed == 1).await;
    let hits = rig.source.hits("/set1/res/r0003.txt");
    assert!(hits >= 1, "{hits}");
    rig.source.spoil_member(SET, "r0003.txt", None);
    rig.source.set_change_list(SET, false);
    rig.source.refresh_resource_dump(SET);
    rig.operator.poll(NAME).await;
    rig.settled().await;
    // Its own URI still answers 403.
    let line = rig.until_in_feed(0, "r0003.txt").await;
    assert_eq!(line.origin, "resource-dump");
}

#[tokio::test(flavor = "multi_thread")]
async fn baseline_uses_the_configured_document() {
    for (configured, dump, list, from_dump) in [
        (Baseline::Auto, true, true, true),
        (Baseline::Auto, true, false, true),
        (Baseline::Auto, false, true, false),
        (Baseline::List, true, true, false),
        (Baseline::List, true, false, true),
        (Baseline::Dump, true, true, true),
        (Baseline::Dump, false, true, false),
    ] {
        let mut options = dumped(12);
        options.dumps.resource_dump = dump;
        options.resource_list = list;
        let rig = Rig::start_with(options, |config| config.sources[0].baseline = configured).await;
        rig.settled().await;
        let case = format!("{configured:?}, dump: {dump}, list: {list}");
        assert_eq!(rig.source.hits(&package(0)) > 0, from_dump, "{case}");
        assert_eq!(single_fetches(&rig, 12) == 0, from_dump, "{case}");
        assert_eq!(rig.source.hits(LIST) == 0, from_dump, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn set_without_list_and_dump_reports_no_resource_list() {
    let mut options = only_dumped(3);
    options.dumps.resource_dump = false;
    let rig = Rig::start(options).await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    assert_eq!(set.error.unwrap().code, "no-resource-list");
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_that_a_newer_dump_lacks_is_deleted_without_a_list() {
    let rig = Rig::start_with(
        SampleOptions {
            change_list: false,
            ..only_dumped(25)
        },
        |config| config.sources[0].poll_interval = Duration::from_secs(1),
    )
    .await;
    rig.settled().await;
    let since = rig.operator.last_change().await;
    rig.source.delete(SET, "r0003.txt");
    let at = rig.source.refresh_resource_dump(SET);
    let line = rig.until_in_feed(since, "r0003.txt").await;
    assert_eq!(
        (line.change.as_str(), line.origin.as_str()),
        ("deleted", "resource-dump")
    );
    rig.until_mirrored().await;
    rig.until("in sync", |set| {
        set.state == "in-sync"
            && set.resources == 24
            && set.synced_until.as_ref().map(time) >= Some(at)
    })
    .await;
    // The same dump is not read twice.
    let (dumps, packages) = (rig.source.hits(DUMP), package_fetches(&rig, 3));
    rig.source.wait_for_hits(DUMP, dumps + 2).await;
    assert_eq!(package_fetches(&rig, 3), packages);
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_that_is_not_read_completely_deletes_nothing() {
    for (removed, replacement) in [
        ("capability=\"resourcedump\"", ""),
        ("<url>", "<url><loc>http://</loc></url><url>"),
    ] {
        let source = SampleSource::start(SampleOptions {
            change_list: false,
            ..only_dumped(3)
        })
        .await
        .unwrap();
        let rig = Rig::follow(source, |_| {}).await;
        // A poll would read the dump before it is spoilt.
        rig.idle().await;
        let deleted = rig.mirrored("r0001.txt");
        rig.source.delete(SET, "r0001.txt");
        rig.source.update(SET, "r0002.txt", "new");
        rig.source.refresh_resource_dump(SET);
        let url = rig.source.base().join(DUMP).unwrap();
        let text = crate::support::client().get(url).send().await.unwrap();
        let text = text.text().await.unwrap();
        let invalid = text.replacen(removed, replacement, 1);
        assert_ne!(text, invalid, "{removed}");
        rig.source.put_document(DUMP, "application/xml", invalid);
        rig.operator.poll(NAME).await;
        rig.until_holds("r0002.txt", "new").await;
        rig.until("error reported", |set| {
            set.state == "in-sync" && set.error.is_some() && set.resources == 3
        })
        .await;
        assert_eq!(rig.mirrored("r0001.txt"), deleted, "{removed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_dump_claims_and_deletes_nothing_until_it_is_repaired() {
    // The dump, the index of dumps, and one of its dumps.
    for (indexed, damaged, lost) in [
        (false, DUMP, "resourcedump-0001.zip"),
        (true, DUMP, "resourcedump-0001.xml"),
        (true, "/set1/resourcedump-0001.xml", "resourcedump-0001.zip"),
    ] {
        let mut options = SampleOptions {
            change_list: false,
            hub: ChannelHub::None,
            ..only_dumped(25)
        };
        options.dumps.indexed = indexed;
        let rig = Rig::start(options).await;
        let claimed = rig.settled().await.synced_until;
        rig.source.delete(SET, "r0001.txt");
        rig.source.update(SET, "r0002.txt", "new");
        rig.source.update(SET, "r0024.txt", "new");
        let at = rig.source.refresh_resource_dump(SET);
        damage(&rig, damaged, lost).await;
        rig.operator.poll(NAME).await;
        // The packages before and after the one that is unknown are read.
        rig.until_holds("r0002.txt", "new").await;
        rig.until_holds("r0024.txt", "new").await;
        let set = rig.until("failing", |set| set.state == "failing").await;
        assert_eq!(set.error.unwrap().code, "bad-entries", "{damaged}");
        assert_eq!((set.dead_parts, set.synced_until), (1, claimed));
        // The document is read again at each poll, the packages are not.
        let packages = package_fetches(&rig, 3);
        poll_twice(&rig, damaged).await;
        assert_eq!(package_fetches(&rig, 3), packages, "{damaged}");
        assert!(rig.mirrored("r0001.txt").is_some(), "{damaged}");
        rig.source.remove_document(damaged);
        rig.operator.poll(NAME).await;
        rig.until_mirrored().await;
        rig.until("in sync", |set| {
            let reached = set.synced_until.as_ref().map(time);
            set.state == "in-sync" && set.error.is_none() && reached >= Some(at)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_during_the_baseline_continues_with_the_next_package() {
    let source = SampleSource::start(only_dumped(45)).await.unwrap();
    source.fail(&package(2), Fault::Stalled, 1);
    // The stalled request does not time out before the stop.
    let patient = |config: &mut Config| config.http.timeout = 10 * LIMIT;
    let mut rig = Rig::follow(source, patient).await;
    rig.until("twenty resources", |set| set.resources == 20)
        .await;
    rig.source.wait_for_hits(&package(2), 1).await;
    rig.stop_daemon().await;
    rig.start_daemon().await;
    rig.settled().await;
    assert_eq!(package_fetches(&rig, 5), [1, 1, 2, 1, 1]);
    assert_eq!(single_fetches(&rig, 45), 0);
    assert_eq!(rig.operator.changes(0).await.len(), 45);
    assert_eq!(packages_left(&rig), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_replaced_during_the_baseline_is_read_from_the_start() {
    let mut options = only_dumped(25);
    options.dumps.contents = true;
    let source = SampleSource::start(options).await.unwrap();
    source.fail(&package(2), Fault::Stalled, 1);
    // The stalled request does not time out before the stop.
    let patient = |config: &mut Config| config.http.timeout = 10 * LIMIT;
    let mut rig = Rig::follow(source, patient).await;
    rig.until("twenty resources", |set| set.resources == 20)
        .await;
    rig.source.wait_for_hits(&package(2), 1).await;
    rig.stop_daemon().await;
    rig.source.delete(SET, "r0001.txt");
    rig.source.refresh_resource_dump(SET);
    rig.start_daemon().await;
    rig.settled().await;
    assert_eq!(rig.set().await.resources, 24);
    // Mirrored resources are not fetched again. One resource has moved from the third package to the second.
    assert_eq!(package_fetches(&rig, 2), [1, 1]);
    assert_eq!(single_fetches(&rig, 25), 1);
    assert_eq!(rig.source.hits("/set1/res/r0020.txt"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_during_the_baseline_overrides_the_dump() {
    let source = SampleSource::start(only_dumped(25)).await.unwrap();
    source.fail(&package(1), Fault::Slow(Duration::from_secs(1)), 1);
    let rig = Rig::follow(source, |_| {}).await;
    rig.source.wait_for_hits(&package(1), 1).await;
    rig.source.update(SET, "r0012.txt", "newer than the dump");
    rig.source.delete(SET, "r0022.txt");
    rig.source.update(SET, "r0001.txt", "also newer");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.settled().await;
    assert_eq!(rig.set().await.resources, 24);
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_labelled_resourcelist_is_accepted() {
    let source = SampleSource::start(only_dumped(12)).await.unwrap();
    let url = source.base().join(DUMP).unwrap();
    let text = crate::support::client().get(url).send().await.unwrap();
    let text = text.text().await.unwrap();
    let invalid = text.replace("capability=\"resourcedump\"", "capability=\"resourcelist\"");
    assert_ne!(text, invalid);
    source.put_document(DUMP, "application/xml", invalid);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    assert_eq!(single_fetches(&rig, 12), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_dump_of_another_capability_is_rejected() {
    let source = SampleSource::start(only_dumped(3)).await.unwrap();
    let capability = Capability::ChangeList;
    let invalid =
        format!(r#"{HEAD}<rs:md capability="{capability}" at="2020-01-01T00:00:00Z"/></urlset>"#);
    source.put_document(DUMP, "application/xml", invalid);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    assert_eq!(set.error.unwrap().code, "wrong-capability");
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_is_closed_by_the_list_not_by_another_dump() {
    let rig = Rig::start(SampleOptions {
        change_list: false,
        ..dumped(12)
    })
    .await;
    rig.settled().await;
    rig.source.create(SET, "lost.txt", "lost");
    rig.source.notify(SET);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("gap", |set| set.state == "gap").await;
    rig.source.refresh_resource_dump(SET);
    rig.source.refresh_resource_list(SET);
    rig.until("gap closed", |set| set.state == "in-sync").await;
    rig.until_mirrored().await;
    assert_eq!(package_fetches(&rig, 2), [1, 1]);
    assert_eq!(rig.source.hits("/set1/res/lost.txt"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_set_has_its_own_dump() {
    let sets = vec!["set1".to_owned(), "set2".to_owned()];
    let mut rig = Rig::start(SampleOptions {
        sets: sets.clone(),
        ..only_dumped(25)
    })
    .await;
    rig.sets = sets;
    rig.settled().await;
    let other = rig
        .until_named("set2", "in sync", |set| set.state == "in-sync")
        .await;
    assert_eq!(other.resources, 25);
    rig.until_mirrored().await;
    assert_eq!(single_fetches(&rig, 25), 0);
    assert_eq!(packages_left(&rig), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_that_lacks_many_resources_holds_deletions_back() {
    let mut options = only_dumped(300);
    options.change_list = false;
    options.dumps.entries_per_package = 5000;
    let rig = Rig::start(options).await;
    rig.settled().await;
    for number in 0..150 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.refresh_resource_dump(SET);
    rig.operator.poll(NAME).await;
    rig.until("held back", |set| set.held_deletions == 150)
        .await;
    let (status, body) = rig.operator.post(&format!("/sources/{NAME}/approve")).await;
    assert_eq!(status, 202, "{body}");
    rig.until_mirrored().await;
}

/// A Source with a list and a dump of twelve resources, without Change List and hub.
async fn listed_and_dumped() -> SampleSource {
    SampleSource::start(SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..dumped(12)
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn list_newer_than_the_dump_is_read_right_after_the_baseline() {
    let source = listed_and_dumped().await;
    source.update(SET, "r0001.txt", "newer than the dump");
    source.delete(SET, "r0002.txt");
    source.refresh_resource_list(SET);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    assert_eq!(package_fetches(&rig, 2), [1, 1]);
    assert_eq!(single_fetches(&rig, 12), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_newer_than_the_list_is_followed() {
    let source = listed_and_dumped().await;
    source.update(SET, "r0001.txt", "newer than the list");
    source.delete(SET, "r0002.txt");
    source.refresh_resource_dump(SET);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    let set = rig.until("error reported", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "older-resource-list");
    rig.source.update(SET, "r0003.txt", "newest");
    rig.source.refresh_resource_dump(SET);
    rig.operator.poll(NAME).await;
    rig.settled().await;
    rig.source.delete(SET, "r0004.txt");
    rig.source.refresh_resource_list(SET);
    rig.operator.poll(NAME).await;
    rig.settled().await;
    rig.until("no error", |set| set.error.is_none()).await;
}
