//! Subscriptions that move: to another hub, another name of the topic, another public URL. The tables of `resyncd_core::channel` have
//! the order of the attempts.

use resourcesync::Capability;
use resyncd_testkit::{Granting, Hub, HubOptions, SampleSource, Subscription};
use websub::Mode;

use crate::support::{NAME, Rig, SET, eventually, resources, soon};
use crate::websub::{advertising, check_push, delivery, status_of, subscribed, topic_path, verify};

/// Changes resources that are not announced, until the hub counts as silent: the first poll is only the reference, also the first one
/// after a subscription that was verified late.
async fn fall_silent(rig: &Rig) {
    rig.idle().await;
    for round in 0..3 {
        rig.source.update(SET, "r0001.txt", format!("{round}"));
        rig.source.notify(SET);
        rig.operator.poll(NAME).await;
        rig.until_holds("r0001.txt", &round.to_string()).await;
    }
}

async fn subscription(hub: &Hub, topic: &str) -> Subscription {
    soon("subscribed", hub.wait_for_subscription(topic)).await
}

async fn until_error(rig: &Rig, code: Option<&str>) {
    eventually("the error", Some(rig.wakes()), async || {
        let error = rig.channel().await.error;
        if error.as_ref().map(|error| error.code.as_str()) == code {
            Ok(())
        } else {
            Err(format!("{error:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_hub_is_left_for_the_next_one() {
    let silent = Hub::start(HubOptions::default()).await.unwrap();
    let working = Hub::start(HubOptions::default()).await.unwrap();
    let hubs = [silent.uri().as_str(), working.uri().as_str()];
    let source = advertising(HubOptions::default(), &hubs).await;
    // The topic names no others.
    source.put_document(&topic_path(&source), "text/plain", "no links here");
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    let topic = rig.changes().to_string();
    let first = subscription(&silent, &topic).await;
    fall_silent(&rig).await;
    let second = subscription(&working, &topic).await;
    assert_ne!(first.callback, second.callback);
    assert_ne!(first.secret, second.secret);
    let left = silent.wait_for_counts(|counts| counts.unsubscribed == 1);
    soon("the silent hub is left", left).await;
    // A verification does not prove that the hub delivers.
    rig.settled().await;
    assert_eq!(rig.channel().await.hub.unwrap(), working.uri().as_str());
    until_error(&rig, Some("push-silent")).await;
    // The hub that was left can neither deliver nor end the new subscription.
    let late = delivery(&first, b"late", first.secret.as_deref());
    assert_eq!(status_of(late).await, 410);
    verify(&first.callback, Mode::Denied, &topic, None, None).await;
    assert_eq!(rig.channel().await.state, "active");
    assert_eq!(rig.set().await.channels.len(), 2, "one of each kind");

    rig.source.freeze_change_list(SET, true);
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0001.txt", "pushed");
    let body = rig.source.notify(SET).body;
    assert!(working.deliver(&topic, body).await[0].is_accepted());
    let line = rig.until_in_feed(since, "r0001.txt").await;
    assert_eq!(line.origin, "notification");
    until_error(&rig, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_name_of_a_silent_topic_is_subscribed_to() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let hub = source.hub().unwrap().clone();
    let own = format!("{}own-name", source.base());
    let page = format!(
        "<html><head><link rel=hub href='{}'><link rel=self href='/own-name'></head>",
        hub.uri()
    );
    source.put_document(&topic_path(&source), "text/html", page);
    let rig = Rig::follow(source, |_| {}).await;
    let topic = subscribed(&rig).await.topic;
    assert_eq!(rig.channel().await.subscribed_topic, topic);
    fall_silent(&rig).await;
    subscription(&hub, &own).await;
    rig.settled().await;
    let channel = rig.channel().await;
    assert_eq!(
        (channel.topic, channel.subscribed_topic),
        (topic.clone(), own)
    );
    eventually("the first one has ended", None, async || {
        let left = hub.subscriptions();
        if left.iter().any(|left| left.topic == topic) {
            Err(format!("{left:?}"))
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_public_url_is_subscribed_with_and_the_old_callback_ends() {
    let mut rig = Rig::start(resources(3)).await;
    let first = subscribed(&rig).await;
    check_push(&rig, "pushed").await;
    rig.stop_daemon().await;
    let url = rig.config.callback.public_url.as_ref().unwrap();
    let moved = url.join("/moved/").unwrap();
    rig.config.callback.public_url = Some(moved.clone());
    rig.start_daemon().await;
    let is_moved = |subscription: &Subscription| subscription.callback.starts_with(moved.as_str());
    eventually("moved", None, async || {
        let found = rig.hub().subscriptions();
        if found.len() == 2 && found.iter().all(is_moved) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    rig.settled().await;
    let late = delivery(&first, b"late", first.secret.as_deref());
    assert_eq!(status_of(late).await, 410);
    check_push(&rig, "pushed again").await;
    let requests = rig.hub().counts().requested;
    rig.stop_daemon().await;
    rig.start_daemon().await;
    rig.settled().await;
    assert_eq!(rig.hub().counts().requested, requests, "it stays there");
}

#[tokio::test(flavor = "multi_thread")]
async fn running_lease_continues_until_another_hub_has_verified() {
    let rig = Rig::start(resources(3)).await;
    let first = subscribed(&rig).await;
    let other = Hub::start(HubOptions {
        granting: Granting::Refuse(503),
        ..HubOptions::default()
    })
    .await
    .unwrap();
    let list = rig.source.capability_list(SET);
    let text = crate::support::client()
        .get(list.clone())
        .send()
        .await
        .unwrap();
    let text = text.text().await.unwrap();
    let moved = text.replace(rig.hub().uri().as_str(), other.uri().as_str());
    rig.source
        .put_document(list.path(), "application/xml", moved);
    // The topics name no others.
    for topic in [rig.changes(), rig.framework()] {
        let path = topic.url().path();
        rig.source.put_document(path, "text/plain", "no links here");
    }
    rig.operator.poll(NAME).await;
    rig.until("refused", |set| {
        set.channels.iter().all(|channel| channel.error.is_some())
    })
    .await;
    assert_eq!(rig.channel().await.state, "active");
    check_push(&rig, "pushed meanwhile").await;
    other.configure(|hub| hub.granting = Granting::Accept(202));
    let second = subscription(&other, &first.topic).await;
    assert_ne!(first.callback, second.callback);
    soon(
        "the first hub is left",
        rig.hub().wait_for_counts(|counts| counts.unsubscribed == 2),
    )
    .await;
    let channels = rig.settled().await.channels;
    assert!(
        channels
            .iter()
            .all(|channel| channel.hub.as_deref() == Some(other.uri().as_str()))
    );
    assert_eq!(
        rig.source
            .topic(SET, &Capability::ChangeNotification)
            .as_str(),
        second.topic
    );
}
