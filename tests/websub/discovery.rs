//! The discovery of hub and topic (WebSub, section 4): from the Capability List, or from the topic itself.

use std::time::Duration;

use axum::http::StatusCode;
use chrono::DateTime;
use resourcesync::Capability;
use resyncd::clock;
use resyncd_testkit::{Fault, Hub, HubOptions, Verifying};
use websub::Mode;

use crate::support::{Rig, SET, client, eventually, soon};
use crate::websub::{
    BareHub, advertising, check_push, requested_after, requests, status_of, topic_path, verify,
    with_hub,
};

#[tokio::test(flavor = "multi_thread")]
async fn topic_is_read_where_the_capability_list_names_no_hub() {
    let source = advertising(HubOptions::default(), &[]).await;
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    assert_eq!(rig.hub().subscriptions().len(), 2);
    assert_eq!(rig.channel().await.hub, Some(rig.hub().uri().to_string()));
    check_push(&rig, "pushed").await;
    assert_eq!(rig.source.hits(&topic_path(&rig.source)), 1, "by HEAD");
}

#[tokio::test(flavor = "multi_thread")]
async fn self_link_of_the_topic_is_subscribed_to() {
    let source = advertising(HubOptions::default(), &[]).await;
    let hub = source.hub().unwrap().clone();
    let own = format!("{}own-name", source.base());
    let page = format!(
        "<html><head><link rel=hub href='{}'><link rel=\"self\" href=\"/own-name\"></head>
         <body><link rel=hub href='http://127.0.0.1:1/'></body></html>",
        hub.uri()
    );
    source.put_document(&topic_path(&source), "text/html", page);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    let subscription = soon("subscribed", hub.wait_for_subscription(&own)).await;
    let channel = rig.channel().await;
    assert_eq!(channel.topic, rig.changes().to_string(), "as advertised");
    let (callback, advertised) = (&subscription.callback, channel.topic.as_str());
    let denied = verify(callback, Mode::Denied, advertised, None, None);
    assert_eq!(denied.await.0, 404, "not the subscribed topic");
    rig.source.update(SET, "r0001.txt", "pushed");
    let notification = rig.source.notify(SET).body;
    let deliveries = hub.deliver(&own, notification).await;
    assert!(deliveries[0].is_accepted());
    rig.until_mirrored().await;
    // Otherwise the hub would grant the next request.
    hub.deny(&own, "over");
    assert_eq!(hub.end(&own, "over").await, 1);
    assert_eq!(rig.channel().await.state, "denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn first_of_several_hubs_that_accepts_is_used() {
    let refusing = BareHub::start(Some(StatusCode::FORBIDDEN)).await;
    let last = Hub::start(HubOptions::default()).await.unwrap();
    // Bound, so that no other test gets the port, and not listening.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let unreachable = format!("http://{}/hub", closed.local_addr().unwrap());
    let accepting = Hub::start(HubOptions::default()).await.unwrap();
    let hubs = [
        refusing.uri.as_str(),
        &unreachable,
        accepting.uri().as_str(),
        last.uri().as_str(),
    ];
    let rig = Rig::follow(advertising(HubOptions::default(), &hubs).await, |_| {}).await;
    let set = rig.settled().await;
    for channel in set.channels {
        assert_eq!(channel.hub.as_deref(), Some(hubs[2]));
        assert!(channel.error.is_none(), "{:?}", channel.error);
    }
    assert_eq!(refusing.wait_for_forms(2).await.len(), 2, "once a channel");
    soon("the hub is done", accepting.wait_until_processed()).await;
    assert_eq!(accepting.subscriptions().len(), 2);
    assert_eq!(last.counts().requested, 0);
    assert_eq!(rig.source.hits(&topic_path(&rig.source)), 0, "not needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_is_read_before_each_renewal_and_its_hubs_are_used() {
    let short = HubOptions {
        max_lease: Duration::from_secs(10),
        ..HubOptions::default()
    };
    let rig = Rig::start(with_hub(short)).await;
    rig.settled().await;
    let other = Hub::start(HubOptions::default()).await.unwrap();
    let topic = rig.changes();
    let feed = format!(
        "<feed xmlns='http://www.w3.org/2005/Atom'><link rel='hub' href='{}'/><link rel='self' href='{topic}'/></feed>",
        other.uri()
    );
    rig.source
        .put_document(&topic_path(&rig.source), "application/atom+xml", feed);
    let request = requested_after(&other, 0, topic.as_str()).await;
    let first = requests(rig.hub()).await;
    let first = first.iter().find(|first| first.topic == request.topic);
    let first = first.unwrap();
    assert_eq!(first.lease_seconds, request.lease_seconds);
    assert_ne!(
        first.callback, request.callback,
        "a hub is known by its callback"
    );
    assert_ne!(first.secret, request.secret);
    soon("moved", other.wait_for_subscription(topic.as_str())).await;
    eventually(
        "the new hub is shown",
        Some(rig.wakes()),
        async || match rig.channel().await {
            channel if channel.hub.as_deref() == Some(other.uri().as_str()) => Ok(()),
            channel => Err(format!("{:?}", channel.hub)),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn known_hubs_are_used_when_the_topic_is_unavailable() {
    let rig = Rig::start(with_hub(HubOptions {
        max_lease: Duration::from_secs(10),
        ..HubOptions::default()
    }))
    .await;
    rig.settled().await;
    let path = topic_path(&rig.source);
    rig.source.fail(&path, Fault::Status(404), usize::MAX);
    let read = rig.source.hits(&path);
    soon("read", rig.source.wait_for_hits(&path, read + 1)).await;
    // No later renewal is due during the test.
    let long = Duration::from_secs(600);
    rig.hub().configure(|hub| hub.max_lease = long);
    let set = rig.until("renewed", |set| {
        let soonest = clock::now().wall + long / 2;
        let is_renewed = |end: &String| DateTime::parse_from_rfc3339(end).unwrap() > soonest;
        set.channels.iter().all(|channel| {
            channel.state == "active" && channel.lease_expires_at.as_ref().is_some_and(is_renewed)
        })
    });
    for channel in set.await.channels {
        assert_eq!(channel.hub.as_deref(), Some(rig.hub().uri().as_str()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn channel_without_a_hub_is_reported_and_retried() {
    let source = advertising(HubOptions::default(), &[]).await;
    let path = topic_path(&source);
    source.put_document(&path, "text/plain", "no links here");
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig
        .until("reported", |set| {
            set.state == "in-sync" && set.channels.iter().any(|c| c.error.is_some())
        })
        .await;
    let channel = set.channels.iter().find(|c| c.error.is_some()).unwrap();
    assert_eq!(channel.error.as_ref().unwrap().code, "no-hub");
    assert_eq!(
        (channel.state.as_str(), channel.hub.as_deref().unwrap()),
        ("pending", "")
    );
    rig.source.remove_document(&path);
    rig.settled().await;
    check_push(&rig, "pushed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_hub_is_requested_after_a_denial() {
    let (denying, accepting) = (
        Hub::start(HubOptions::default()).await.unwrap(),
        Hub::start(HubOptions::default()).await.unwrap(),
    );
    let hubs = [denying.uri().as_str(), accepting.uri().as_str()];
    let source = advertising(HubOptions::default(), &hubs).await;
    let topic = source.topic(SET, &Capability::ChangeNotification);
    denying.deny(topic.as_str(), "not for you");
    // The topic names no others.
    source.put_document(&topic_path(&source), "text/plain", "no links here");
    let rig = Rig::follow(source, |_| {}).await;
    soon("the next", accepting.wait_for_subscription(topic.as_str())).await;
    rig.settled().await;
    assert_eq!(rig.channel().await.hub.as_deref(), Some(hubs[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_with_a_topic_that_is_not_encoded_is_confirmed() {
    let never = HubOptions {
        verifying: Verifying::Never,
        ..HubOptions::default()
    };
    let source = advertising(never, &[]).await;
    let hub = source.hub().unwrap().clone();
    let own = format!("{}a%2Fb?q=1+2&set=3", source.base());
    let page = format!(
        "<html><head><link rel=hub href='{}'><link rel=self href='{}'></head>",
        hub.uri(),
        own.replace('&', "&amp;")
    );
    source.put_document(&topic_path(&source), "text/html", page);
    let rig = Rig::follow(source, |_| {}).await;
    let callback = requested_after(&hub, 0, &own).await.callback;
    let verify = async |topic: &str| {
        let query =
            format!("hub.mode=subscribe&hub.topic={topic}&hub.challenge=c&hub.lease_seconds=60");
        status_of(client().get(format!("{callback}?{query}"))).await
    };
    assert_eq!(verify(&own.replace("set=3", "set=4")).await, 404);
    assert_eq!(rig.channel().await.rejected_verifications, 1);
    assert_eq!(verify(&own).await, 200);
    assert_eq!(rig.channel().await.state, "active");
}
