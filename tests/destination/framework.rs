//! Framework notifications: documents that were published again, channels and sets that are added and removed.

use std::time::Duration;

use resourcesync::{Capability, ChangeKind};
use resyncd_testkit::{HubEvent, SampleOptions};
use websub::Mode;

use crate::support::{Rig, SET, eventually, files, resources, send, soon};

/// Publishes a framework notification of one document of the set, and checks that it is accepted.
async fn notify_framework(rig: &Rig, file: &str, capability: Capability, change: ChangeKind) {
    let uri = rig.source.document_uri(SET, file);
    let entry = rig.source.framework_entry(uri, capability, change);
    let notification = rig.source.framework(SET, &[entry]);
    let deliveries = rig.source.publish(&notification).await.unwrap();
    assert!(deliveries.iter().all(|delivery| delivery.is_accepted()));
    assert_eq!(deliveries.len(), 1);
}

async fn notify_description(rig: &Rig) {
    let uri = rig.source.base().join("/.well-known/resourcesync").unwrap();
    let entry = rig
        .source
        .framework_entry(uri, Capability::Description, ChangeKind::Updated);
    let notification = rig.source.framework(SET, &[entry]);
    rig.source.publish(&notification).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn change_list_in_a_framework_notification_is_read() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0001.txt", "new");
    notify_framework(
        &rig,
        "changelist.xml",
        Capability::ChangeList,
        ChangeKind::Updated,
    )
    .await;
    assert_eq!(
        rig.until_in_feed(since, "r0001.txt").await.origin,
        "change-list"
    );
    rig.until_mirrored().await;
    // The notification of the same change adds nothing.
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("read", |set| {
        let mut channels = set.channels.iter();
        channels.any(|channel| channel.kind == "change-notification" && channel.applied == 1)
    })
    .await;
    rig.settled().await;
    assert_eq!(rig.operator.changes(since).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_list_in_a_framework_notification_is_read_where_nothing_else_states_changes() {
    let options = SampleOptions {
        change_list: false,
        ..resources(3)
    };
    let rig = Rig::start(options).await;
    rig.settled().await;
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0001.txt", "new");
    rig.source.refresh_resource_list(SET);
    notify_framework(
        &rig,
        "resourcelist.xml",
        Capability::ResourceList,
        ChangeKind::Updated,
    )
    .await;
    assert_eq!(
        rig.until_in_feed(since, "r0001.txt").await.origin,
        "resource-list"
    );
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn channel_that_is_no_longer_advertised_is_unsubscribed() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let subscription = rig
        .hub()
        .wait_for_subscription(rig.changes().as_str())
        .await;
    rig.source
        .remove_channel(SET, &Capability::ChangeNotification);
    notify_framework(
        &rig,
        "capabilitylist.xml",
        Capability::CapabilityList,
        ChangeKind::Updated,
    )
    .await;
    soon(
        "unsubscribed at the hub",
        rig.hub().wait_for(|event| {
            matches!(event, HubEvent::Verified { mode: Mode::Unsubscribe, topic, .. } if *topic == subscription.topic)
        }),
    )
    .await;
    rig.until("channel no longer listed", |set| {
        set.channels
            .iter()
            .all(|channel| channel.kind == "framework-notification")
    })
    .await;
    let client = crate::support::client();
    let answer = send(|| client.post(&subscription.callback).body("<late/>")).await;
    assert_eq!(answer.status(), 410, "a late delivery is answered 410");
}

#[tokio::test(flavor = "multi_thread")]
async fn newly_advertised_channel_is_subscribed_to() {
    let source = resyncd_testkit::SampleSource::start(resources(3))
        .await
        .unwrap();
    source.remove_channel(SET, &Capability::ChangeNotification);
    let rig = Rig::follow(source, |_| {}).await;
    assert_eq!(rig.settled().await.channels.len(), 1);
    rig.source.add_channel(SET, Capability::ChangeNotification);
    notify_framework(
        &rig,
        "capabilitylist.xml",
        Capability::CapabilityList,
        ChangeKind::Updated,
    )
    .await;
    soon(
        "subscribed",
        rig.hub().wait_for_subscription(rig.changes().as_str()),
    )
    .await;
    rig.until("active", |set| {
        set.channels.len() == 2 && set.channels.iter().all(|channel| channel.state == "active")
    })
    .await;
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0001.txt", "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_in_feed(since, "r0001.txt").await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn channel_that_returns_is_subscribed_to_again() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let topic = rig.changes().to_string();
    let channels = |rig: &Rig| rig.hub().subscriptions().len();
    rig.source
        .remove_channel(SET, &Capability::ChangeNotification);
    notify_framework(
        &rig,
        "capabilitylist.xml",
        Capability::CapabilityList,
        ChangeKind::Updated,
    )
    .await;
    eventually("one subscription", None, async || match channels(&rig) {
        1 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    rig.source.add_channel(SET, Capability::ChangeNotification);
    notify_framework(
        &rig,
        "capabilitylist.xml",
        Capability::CapabilityList,
        ChangeKind::Updated,
    )
    .await;
    soon("subscribed", rig.hub().wait_for_subscription(&topic)).await;
    rig.settled().await;
    rig.source.update(SET, "r0001.txt", "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_set_is_followed_and_files_of_a_removed_set_stay() {
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    rig.source.add_set("set2");
    rig.sets.push("set2".to_owned());
    notify_description(&rig).await;
    let set = rig
        .until_named("set2", "followed", |set| {
            set.state == "in-sync" && set.channels.iter().all(|c| c.state == "active")
        })
        .await;
    assert_eq!((set.resources, set.channels.len()), (3, 2));
    rig.until_mirrored().await;
    soon("the hub is done", rig.hub().wait_until_processed()).await;
    assert_eq!(rig.hub().subscriptions().len(), 4);

    let before = files(&rig.config.sources[0].mirror);
    rig.source.remove_set("set2");
    notify_description(&rig).await;
    eventually(
        "no longer followed",
        Some(rig.wakes()),
        async || match rig.set_named("set2").await {
            None => Ok(()),
            Some(set) => Err(format!("{set:?}")),
        },
    )
    .await;
    eventually("unsubscribed", None, async || {
        match rig.hub().subscriptions().len() {
            2 => Ok(()),
            other => Err(format!("{other} subscriptions")),
        }
    })
    .await;
    assert_eq!(files(&rig.config.sources[0].mirror), before);

    // The set returns and is followed again.
    rig.source.add_set("set2");
    notify_description(&rig).await;
    rig.until_named("set2", "followed again", |set| {
        set.state == "in-sync" && set.channels.iter().all(|c| c.state == "active")
    })
    .await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_resource_list_is_not_fetched_while_in_sync() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let lists = rig.source.hits("/set1/resourcelist.xml");
    rig.source.refresh_resource_list(SET);
    notify_framework(
        &rig,
        "resourcelist.xml",
        Capability::ResourceList,
        ChangeKind::Created,
    )
    .await;
    // The next notification has been processed, so this one has been, too.
    rig.source.update(SET, "r0001.txt", "new");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    rig.until("both notifications applied", |set| {
        set.channels.iter().all(|channel| channel.applied == 1)
    })
    .await;
    assert_eq!(rig.source.hits("/set1/resourcelist.xml"), lists);
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_resource_list_closes_a_gap() {
    let rig = Rig::start_with(
        resyncd_testkit::SampleOptions {
            change_list: false,
            ..resources(3)
        },
        |config| config.sources[0].poll_interval = Duration::from_secs(900),
    )
    .await;
    rig.settled().await;
    rig.source.create(SET, "lost.txt", "lost");
    rig.source.notify(SET);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("gap", |set| set.state == "gap").await;
    rig.source.refresh_resource_list(SET);
    notify_framework(
        &rig,
        "resourcelist.xml",
        Capability::ResourceList,
        ChangeKind::Updated,
    )
    .await;
    rig.until("gap closed", |set| set.state == "in-sync").await;
    rig.until_mirrored().await;
}
