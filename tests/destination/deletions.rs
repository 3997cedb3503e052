//! Deletion requires proof, and approval when there are many deletions at once.

use std::time::Duration;

use resyncd::config::Config;
use resyncd_testkit::{ChannelHub, Fault, SampleOptions};

use crate::support::{NAME, Rig, SET, path_of, resources};

fn polled(resources_per_set: usize) -> SampleOptions {
    SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(resources_per_set)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_that_a_newer_resource_list_lacks_is_deleted() {
    let rig = Rig::start_with(polled(5), |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
    })
    .await;
    rig.settled().await;
    let since = rig.operator.last_change().await;
    rig.source.delete(SET, "r0003.txt");
    rig.source.refresh_resource_list(SET);
    let line = rig.until_in_feed(since, "r0003.txt").await;
    assert_eq!(
        (line.change.as_str(), line.origin.as_str()),
        ("deleted", "resource-list")
    );
    rig.until_mirrored().await;
    rig.until("four resources", |set| {
        set.resources == 4 && set.state == "in-sync"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_deletions_at_once_wait_for_approval() {
    let rig = Rig::start(resources(300)).await;
    // A poll would apply those that are stated by then: too few to be held back.
    rig.idle().await;
    for number in 0..150 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.update(SET, "r0299.txt", "not held back");
    let notification = rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0299.txt", "not held back").await;
    let set = rig
        .until("held back", |set| set.held_deletions == 150)
        .await;
    assert_eq!((set.state.as_str(), set.resources), ("catching-up", 300));
    assert!(rig.mirrored("r0000.txt").is_some());
    let until = crate::support::time(set.synced_until.unwrap());
    assert!(
        until < notification.interval.unwrap().until(),
        "deletions are still held back"
    );

    // Approval for an unknown Source is rejected.
    let (status, _) = rig.operator.post("/sources/unknown/approve").await;
    assert_eq!(status, 404);
    let (status, body) = rig.operator.post(&format!("/sources/{NAME}/approve")).await;
    assert_eq!(status, 202, "{body}");
    rig.until_mirrored().await;
    rig.until("deletions applied", |set| {
        set.held_deletions == 0 && set.resources == 150 && set.state == "in-sync"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn absence_of_most_of_a_small_set_waits_for_approval() {
    let rig = Rig::start_with(polled(100), |_| {}).await;
    rig.settled().await;
    for number in 0..95 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.refresh_resource_list(SET);
    rig.operator.poll(NAME).await;
    let set = rig.until("held back", |set| set.held_deletions == 95).await;
    assert_eq!(set.resources, 100);
    assert!(rig.mirrored("r0000.txt").is_some());
    rig.operator.post(&format!("/sources/{NAME}/approve")).await;
    rig.until("applied", |set| {
        set.resources == 5 && set.state == "in-sync"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn absence_of_a_few_resources_of_a_small_set_is_applied() {
    let rig = Rig::start_with(polled(20), |_| {}).await;
    rig.settled().await;
    for number in 0..10 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.refresh_resource_list(SET);
    rig.operator.poll(NAME).await;
    rig.until("applied", |set| {
        set.resources == 10 && set.state == "in-sync"
    })
    .await;
}

/// What a Change List states needs no guess.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_most_of_a_small_set_is_applied_where_it_is_stated() {
    let rig = Rig::start(resources(100)).await;
    rig.idle().await;
    for number in 0..95 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("applied", |set| {
        set.resources == 5 && set.state == "in-sync"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_held_back_are_dropped_when_the_resources_return_to_the_list() {
    let rig = Rig::start_with(polled(300), |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
    })
    .await;
    rig.settled().await;
    let contents = rig.source.state(SET);
    for number in 0..200 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.refresh_resource_list(SET);
    rig.until("held back", |set| set.held_deletions == 200)
        .await;
    // The next list has the resources again, unchanged.
    for number in 0..200 {
        let name = format!("r{number:04}.txt");
        let bytes = contents[&rig.uri(&name)].clone();
        rig.source.create(SET, &name, bytes);
    }
    rig.source.refresh_resource_list(SET);
    rig.until("no deletion is held back", |set| {
        set.held_deletions == 0 && set.resources == 300 && set.state == "in-sync"
    })
    .await;
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn file_of_a_deleted_resource_is_retained_if_delete_is_off() {
    let rig = Rig::start_with(resources(3), |config| config.sources[0].delete = false).await;
    rig.settled().await;
    let (since, bytes) = (
        rig.operator.last_change().await,
        rig.mirrored("r0001.txt").unwrap(),
    );
    rig.source.delete(SET, "r0001.txt");
    rig.source.notify_and_publish(SET).await.unwrap();
    let line = rig.until_in_feed(since, "r0001.txt").await;
    assert_eq!(line.change, "deleted");
    // A deletion with a length has left the file.
    assert_eq!(line.length, Some(bytes.len() as u64));
    assert_eq!(rig.mirrored("r0001.txt"), Some(bytes));
    let known = rig.operator.resource(&rig.uri("r0001.txt")).await.unwrap();
    assert_eq!(known["deleted"], true);
    rig.until("two resources", |set| {
        set.resources == 2 && set.state == "in-sync"
    })
    .await;
    // The resource is created again, over the retained file.
    rig.source.create(SET, "r0001.txt", "again");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    rig.until("three resources", |set| {
        set.resources == 3 && set.state == "in-sync"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_a_crash_left_uncommitted_is_deleted_with_its_resource() {
    // The resource's URI answers neither what it has nor that it is gone.
    let trusting = |config: &mut Config| config.sources[0].trust_hub = Some(true);
    let rig = Rig::start_with(resources(3), trusting).await;
    rig.settled().await;
    let uri = rig.source.resource_uri(SET, "new.txt");
    rig.source.fail(uri.path(), Fault::Status(503), usize::MAX);
    rig.source.create(SET, "new.txt", "never committed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("task pending", |set| set.pending + set.failed > 0)
        .await;
    // The state after a crash between publishing the file and the commit.
    let path = rig.config.sources[0].mirror.join(path_of(&uri));
    std::fs::write(&path, "never committed").unwrap();
    rig.source.delete(SET, "new.txt");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.settled().await;
    assert!(!path.exists());
}
