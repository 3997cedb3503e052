//! Renewal, denial and loss of a subscription (WebSub, sections 5.2 and 6). The tables of `sync::channel` and `sync::lease`
//! test the pauses in detail, on a clock of their own.

use std::time::Duration;

use resyncd::demo::{Granting, HubEvent, HubOptions, SampleSource};
use resyncd::protocol::Capability;

use crate::support::{NAME, Rig, SET, resources, soon};
use crate::{check_push, requested_after, subscribed, with_hub};

fn granting_seconds(seconds: u64) -> HubOptions {
    HubOptions {
        max_lease: Duration::from_secs(seconds),
        ..HubOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_is_renewed_in_time_with_the_same_callback_and_secret() {
    let rig = Rig::start(with_hub(granting_seconds(12))).await;
    let first = subscribed(&rig).await;
    let topic = rig.changes().to_string();
    let mut mark = rig.hub().mark();
    for round in 0..2 {
        let request = requested_after(rig.hub(), mark, &topic).await;
        mark = rig.hub().mark();
        assert_eq!(request.callback, first.callback, "round {round}");
        assert_eq!(request.secret, first.secret);
        assert_eq!(rig.channel().await.state, "active");
    }
    assert_eq!(rig.hub().subscriptions().len(), 2);
    assert_eq!(rig.hub().counts().not_verified, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_without_an_interruption_causes_no_poll() {
    let rig = Rig::start(with_hub(granting_seconds(6))).await;
    let first = subscribed(&rig).await;
    let topic = rig.changes().to_string();
    let polled = rig.settled().await.last_poll_at;
    let mut mark = rig.hub().mark();
    for _ in 0..3 {
        // A poll would have been due after the renewal before this one.
        let request = requested_after(rig.hub(), mark, &topic).await;
        assert_eq!(request.callback, first.callback);
        mark = rig.hub().mark();
    }
    let set = rig.set().await;
    assert_eq!(set.last_poll_at, polled);
    assert_eq!(rig.channel().await.state, "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn running_lease_stays_active_while_its_renewal_fails() {
    let rig = Rig::start(with_hub(granting_seconds(16))).await;
    subscribed(&rig).await;
    let topic = rig.changes().to_string();
    rig.hub()
        .configure(|hub| hub.granting = Granting::Refuse(503));
    let mark = rig.hub().mark();
    requested_after(rig.hub(), mark, &topic).await;
    rig.until("reported", |set| {
        set.channels.iter().all(|c| c.error.is_some())
    })
    .await;
    let channel = rig.channel().await;
    assert_eq!(channel.state, "active");
    assert_eq!(channel.error.unwrap().code, "hub-refused");
    check_push(&rig, "pushed during the renewal").await;
    let mark = rig.hub().mark();
    rig.hub().configure(|hub| {
        hub.granting = Granting::Accept(202);
        hub.max_lease = Duration::from_secs(600);
    });
    requested_after(rig.hub(), mark, &topic).await;
    rig.until("renewed", |set| {
        set.channels
            .iter()
            .all(|c| c.state == "active" && c.error.is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_is_reported_and_retried() {
    let rig = Rig::start(with_hub(HubOptions {
        granting: Granting::Refuse(503),
        ..HubOptions::default()
    }))
    .await;
    let topic = rig.changes().to_string();
    let mut mark = 0;
    for round in 0..3 {
        requested_after(rig.hub(), mark, &topic).await;
        mark = rig.hub().mark();
        if round == 1 {
            let set = rig
                .until("refused", |set| {
                    set.state == "in-sync" && set.channels.iter().all(|c| c.error.is_some())
                })
                .await;
            let status_error = set.channels[0].error.clone().unwrap();
            assert_eq!(status_error.code, "hub-refused");
            assert!(status_error.message.contains("503"), "{status_error:?}");
            rig.hub()
                .configure(|hub| hub.granting = Granting::Accept(202));
        }
    }
    rig.until("active, without an error", |set| {
        set.channels
            .iter()
            .all(|channel| channel.state == "active" && channel.error.is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_channel_is_reported_polled_and_requested_again() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let topic = source.topic(SET, &Capability::ChangeNotification);
    let hub = source.hub().unwrap().clone();
    hub.deny(topic.as_str(), "not for you");
    let rig = Rig::follow(source, |config| {
        config.sources[0].poll_interval = Duration::from_secs(1)
    })
    .await;
    soon(
        "denied",
        hub.wait_for(|event| matches!(event, HubEvent::Denied { .. })),
    )
    .await;
    let set = rig
        .until("denied, and in sync", |set| {
            set.state == "in-sync" && set.channels.iter().any(|c| c.state == "denied")
        })
        .await;
    let mut channels = set.channels.into_iter();
    let denied = channels.find(|channel| channel.state == "denied").unwrap();
    let error = denied.error.unwrap();
    assert_eq!(error.code, "denied");
    assert!(error.message.contains("not for you"), "{error:?}");
    rig.source.update(SET, "r0001.txt", "polled");
    rig.until_mirrored().await;

    hub.allow(topic.as_str());
    soon("requested again", hub.wait_for_subscription(topic.as_str())).await;
    rig.until("active", |set| {
        set.channels
            .iter()
            .all(|c| c.state == "active" && c.error.is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_that_the_hub_ends_is_polled_and_requested_again() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let topic = rig.changes().to_string();
    rig.hub().deny(&topic, "maintenance");
    assert_eq!(rig.hub().end(&topic, "maintenance").await, 1);
    assert_eq!(rig.channel().await.state, "denied");
    rig.source.update(SET, "r0001.txt", "missed");
    rig.source.notify_and_publish(SET).await.unwrap();
    // After a denial there is a poll, and then a new subscription.
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    rig.hub().allow(&topic);
    soon("requested again", rig.hub().wait_for_subscription(&topic)).await;
    rig.until("active", |set| {
        set.channels.iter().all(|c| c.state == "active")
    })
    .await;
    check_push(&rig, "pushed again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_subscription_is_detected_and_requested_anew() {
    let rig = Rig::start(resources(3)).await;
    let first = subscribed(&rig).await;
    check_push(&rig, "pushed").await;
    let topic = rig.changes().to_string();
    assert_eq!(rig.hub().forget(&topic), 1);
    rig.hub()
        .configure(|hub| hub.granting = Granting::Refuse(503));
    // These are not delivered. The first poll after the delivered one is only the reference.
    for round in 0..3 {
        if round < 2 {
            assert_eq!(rig.channel().await.state, "active", "before round {round}");
        }
        rig.source.update(SET, "r0001.txt", format!("{round}"));
        rig.source.notify_and_publish(SET).await.unwrap();
        rig.operator.poll(NAME).await;
        rig.until_holds("r0001.txt", &round.to_string()).await;
    }
    rig.until("expired", |set| {
        set.channels.iter().any(|c| c.state == "expired")
    })
    .await;
    rig.hub()
        .configure(|hub| hub.granting = Granting::Accept(202));
    let again = soon("subscribed anew", rig.hub().wait_for_subscription(&topic)).await;
    assert_eq!(
        (again.callback, again.secret),
        (first.callback, first.secret)
    );
    rig.settled().await;
    // The verification does not prove that the hub delivers again.
    let silent = |code: Option<&str>| code == Some("push-silent");
    until_error(&rig, silent).await;
    check_push(&rig, "pushed again").await;
    until_error(&rig, |code| code.is_none()).await;
}

/// Waits until the code of the channel's error is as wanted.
async fn until_error(rig: &Rig, wanted: impl Fn(Option<&str>) -> bool) {
    rig.until("the error", |set| {
        let mut channels = set.channels.iter();
        let channel = channels.find(|channel| channel.kind == "change-notification");
        let error = channel.and_then(|channel| channel.error.as_ref());
        wanted(error.map(|error| error.code.as_str()))
    })
    .await;
}
