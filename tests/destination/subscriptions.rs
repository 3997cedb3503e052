//! Subscriptions and deliveries across restarts. `tests/websub` has the requirements of WebSub itself.

use std::time::Duration;

use resyncd_testkit::{ChannelHub, Hub, HubOptions, SampleOptions, Submission, Subscription};

use crate::support::{NAME, Rig, SET, resources, soon};

async fn subscribed(rig: &Rig) -> Subscription {
    rig.settled().await;
    soon(
        "subscribed",
        rig.hub().wait_for_subscription(rig.changes().as_str()),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn advertised_external_hub_is_used() {
    let hub = Hub::start(HubOptions::default()).await.unwrap();
    let rig = Rig::start(SampleOptions {
        hub: ChannelHub::External {
            hub: hub.uri().clone(),
            submission: Submission::Payload,
        },
        ..resources(3)
    })
    .await;
    rig.settled().await;
    soon("the hub is done", hub.wait_until_processed()).await;
    rig.source.update(SET, "r0001.txt", "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    assert_eq!(hub.subscriptions().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_inbox_answers_503() {
    let rig = Rig::start_with(resources(3), |config| {
        config.limits.inbox = 3_000;
        config.sources[0].reorder_window = Duration::from_secs(600);
    })
    .await;
    // A poll would make room in the inbox.
    rig.idle().await;
    rig.source.create(SET, "first.txt", "first");
    let first = rig.source.notify(SET);
    let mut is_unavailable = false;
    for number in 0..10 {
        rig.source.create(SET, &format!("n{number}.txt"), "n");
        let notification = rig.source.notify(SET);
        let deliveries = rig.source.publish(&notification).await.unwrap();
        is_unavailable |= deliveries[0].status == Some(503);
    }
    assert!(is_unavailable);
    assert!(rig.channel().await.rejected > 0, "the rejection is counted");
    rig.source.publish(&first).await.unwrap();
    // The changes that the hub could not deliver come from the Change List.
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_survive_a_restart() {
    let mut rig = Rig::start(resources(3)).await;
    let first = subscribed(&rig).await;
    let requests = rig.hub().counts().requested;
    rig.stop_daemon().await;
    assert_eq!(
        rig.hub().subscriptions().len(),
        2,
        "a stop does not unsubscribe"
    );
    rig.source
        .update(SET, "r0001.txt", "changed during downtime");
    rig.source.notify(SET);
    rig.start_daemon().await;
    rig.settled().await;
    rig.source.update(SET, "r0002.txt", "pushed");
    let deliveries = {
        let notification = rig.source.notify(SET);
        rig.source.publish(&notification).await.unwrap()
    };
    assert_eq!(deliveries[0].callback, first.callback);
    assert!(deliveries[0].is_accepted());
    rig.until_mirrored().await;
    assert_eq!(rig.hub().counts().requested, requests, "no new request");
    assert_eq!(
        rig.source.hits("/set1/resourcelist.xml"),
        1,
        "no second baseline"
    );
}
