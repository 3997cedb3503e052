//! Changes that are pushed. `cargo bench` measures their latency.

use resyncd::store::Wake;
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;

use crate::support::{Rig, SET, eventually, resources, soon, time};

const CHANGE_LIST: &str = "/set1/changelist.xml";

#[tokio::test(flavor = "multi_thread")]
async fn pushed_creation_update_and_deletion_are_applied_and_in_the_feed() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let polls = rig.source.hits(CHANGE_LIST);
    let since = rig.operator.last_change().await;

    let created_at = rig.source.create(SET, "new.txt", "one");
    rig.source.notify_and_publish(SET).await.unwrap();
    let created = rig.until_in_feed(since, "new.txt").await;
    assert_eq!(rig.mirrored("new.txt").unwrap(), b"one");
    assert_eq!(
        (created.change.as_str(), created.origin.as_str()),
        ("created", "notification")
    );
    assert_eq!(created.length, Some(3));
    assert_eq!(created.changed_at, Some(created_at.to_string()));
    assert_eq!(created.source, "sample");
    assert_eq!(created.set, rig.source.capability_list(SET).to_string());
    let known = rig.operator.resource(&rig.uri("new.txt")).await.unwrap();
    assert_eq!(known["path"].as_str(), created.path.as_deref());
    assert_eq!(known["length"], 3);
    assert_eq!(known["deleted"], false);
    assert_eq!(known["type"], "text/plain");
    assert!(
        known["hash"].as_str().unwrap().starts_with("sha-256:"),
        "{known}"
    );

    rig.source.update(SET, "new.txt", "two!");
    rig.source.notify_and_publish(SET).await.unwrap();
    let updated = rig.until_in_feed(created.seq, "new.txt").await;
    assert_eq!(rig.mirrored("new.txt").unwrap(), b"two!");
    assert_eq!(
        (updated.change.as_str(), updated.length),
        ("updated", Some(4))
    );

    let deleted_at = rig.source.delete(SET, "new.txt");
    rig.source.notify_and_publish(SET).await.unwrap();
    let deleted = rig.until_in_feed(updated.seq, "new.txt").await;
    assert_eq!(rig.mirrored("new.txt"), None);
    assert_eq!(
        (deleted.change.as_str(), deleted.path.clone()),
        ("deleted", created.path)
    );
    assert_eq!(deleted.length, None);
    let known = rig.operator.resource(&rig.uri("new.txt")).await.unwrap();
    assert_eq!(known["deleted"], true);
    assert_eq!(
        known["changed_at"],
        Value::String(deleted_at.to_string()),
        "{known}"
    );

    assert!(since < created.seq && created.seq < updated.seq && updated.seq < deleted.seq);
    assert_eq!(
        rig.source.hits(CHANGE_LIST),
        polls,
        "no notification needed a poll"
    );
    let set = rig.settled().await;
    assert!(time(set.synced_until.unwrap()) > deleted_at);
    assert_eq!(set.resources, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_push_is_applied_at_its_first_delivery_without_a_poll() {
    const PUSHES: usize = 100;
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let polls = rig.source.hits(CHANGE_LIST);
    for number in 0..PUSHES {
        rig.source
            .update(SET, "r0001.txt", format!("content number {number}"));
        let notification = rig.source.notify(SET);
        let mut wakes = rig.wakes();
        let publishing = {
            let source = rig.source.clone();
            tokio::spawn(async move { source.publish(&notification).await.unwrap() })
        };
        soon("change applied", async {
            // Of those that came before a pause of this thread, only the latest are received.
            while !matches!(
                wakes.recv().await,
                Ok(Wake::Feed(_)) | Err(RecvError::Lagged(_))
            ) {}
        })
        .await;
        let deliveries = publishing.await.unwrap();
        assert!(deliveries.iter().all(|delivery| delivery.attempts == 1));
    }
    rig.assert_mirrored();
    let channel = rig.channel().await;
    assert_eq!((channel.received, channel.applied), (100, 100));
    assert_eq!((channel.duplicate, channel.gaps, channel.held), (0, 0, 0));
    assert_eq!(rig.source.hits(CHANGE_LIST), polls);
}

#[tokio::test(flavor = "multi_thread")]
async fn burst_of_changes_is_applied() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    for number in 0..200 {
        rig.source.create(
            SET,
            &format!("burst/{number}.txt"),
            format!("burst {number}"),
        );
    }
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    let set = rig
        .until("in sync", |set| {
            set.state == "in-sync" && set.resources == 203
        })
        .await;
    assert_eq!(set.channels[0].gaps, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_notification_is_counted_and_applied_once() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0001.txt", "new");
    let notification = rig.source.notify(SET);
    rig.source.publish(&notification).await.unwrap();
    rig.source.publish(&notification).await.unwrap();
    rig.until_in_feed(since, "r0001.txt").await;
    eventually("duplicate counted", Some(rig.wakes()), async || {
        match rig.channel().await {
            channel if channel.duplicate == 1 => Ok(()),
            channel => Err(format!("{channel:?}")),
        }
    })
    .await;
    let channel = rig.channel().await;
    assert_eq!((channel.received, channel.applied), (2, 1));
    assert_eq!(rig.operator.changes(since).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_of_several_changes_of_a_resource_wins() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    rig.source.update(SET, "r0000.txt", "first");
    rig.source.delete(SET, "r0000.txt");
    rig.source.create(SET, "r0000.txt", "last");
    rig.source.update(SET, "r0001.txt", "deleted next");
    rig.source.delete(SET, "r0001.txt");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    rig.until("two resources", |set| {
        set.resources == 2 && set.state == "in-sync"
    })
    .await;
}
