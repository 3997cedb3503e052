//! What a server, or a document, must not achieve.

use std::net::Ipv4Addr;

use resyncd::status::ChannelStatus;
use tokio::net::TcpListener;
use url::Url;

use crate::support::site::{GuardedDaemon, PUBLIC};
use crate::support::socket_site::{CHANGES, DESCRIPTION, FRAMEWORK, Follower, SocketSite};
use crate::support::{NAME, soon};

#[tokio::test(flavor = "multi_thread")]
async fn full_inbox_stops_reading_and_loses_nothing() {
    let site = SocketSite::of(&[]).await;
    // While its baseline is made a set does not process what was received.
    site.hold(Some("/list.xml"));
    let message = |number: usize| {
        let name = format!("/r{number:02}");
        site.put(&name, "pushed");
        site.notification(&site.change(&name, "created", "03-01T00:00:00"))
    };
    let messages: Vec<String> = (0..20).map(message).collect();
    let room = messages[0].len() as u64 * 3;
    let follower = Follower::start_with(site, |config| {
        config.limits.notification = room;
        config.limits.inbox = room;
    })
    .await;
    let site = &follower.site;
    site.until_opened(2).await;
    for message in &messages {
        site.send(CHANGES, message.clone());
    }
    // The status reads what was received before the error: the last one of those may have come between.
    let is_full = |channel: &ChannelStatus| channel.error.is_some() && channel.received >= 3;
    let channel = follower.until_channel("the inbox is full", is_full).await;
    assert_eq!(channel.error.unwrap().code, "inbox-full");
    assert_eq!((channel.state.as_str(), channel.received), ("active", 3));
    site.hold(None);
    let names: Vec<String> = (0..20).map(|number| format!("/r{number:02}")).collect();
    let expected: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "pushed")).collect();
    follower.until_mirrored(&expected).await;
    let channel = follower
        .until_channel("the error is over", |channel| channel.error.is_none())
        .await;
    assert_eq!((channel.received, channel.rejected), (20, 0));
    assert_eq!(site.opened(), 2, "the connection was never interrupted");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_message_is_rejected_and_the_next_connection_works() {
    let site = SocketSite::of(&["/a"]).await;
    let follower = Follower::start_with(site, |config| {
        config.limits.notification = 1000;
        config.limits.inbox = 10_000;
    })
    .await;
    follower.settled(2).await;
    let site = &follower.site;
    site.send(CHANGES, "x".repeat(1001));
    let channel = follower
        .until_channel("rejected", |channel| channel.rejected == 1)
        .await;
    assert_eq!(channel.received, 0);
    site.until_opened(3).await;
    follower.settled(2).await;
    site.put("/a", "changed");
    let changed = site.change("/a", "updated", "03-01T00:00:00");
    site.send(CHANGES, site.notification(&changed));
    follower.until_mirrored(&[("/a", "changed")]).await;
}

/// Each would cause requests for the Source Description and all that it leads to.
#[tokio::test(flavor = "multi_thread")]
async fn flood_of_framework_notifications_does_not_set_the_pace_of_discovery() {
    const MESSAGES: u64 = 60;
    const MOST_DISCOVERIES: usize = 25;
    let site = SocketSite::of(&["/a"]).await;
    let follower = Follower::start(site).await;
    follower.settled(2).await;
    let site = &follower.site;
    let before = site.requests_of(DESCRIPTION);
    for sent in 1..=MESSAGES {
        // None of them is like another.
        let message = format!(
            "{}<!-- {sent} -->",
            site.framework(DESCRIPTION, "description")
        );
        site.send(FRAMEWORK, message);
        let has_come = |channel: &ChannelStatus| {
            channel.kind == "framework-notification" && channel.received == sent
        };
        follower
            .until("received", |set| set.channels.iter().any(has_come))
            .await;
    }
    let discoveries = site.requests_of(DESCRIPTION) - before;
    assert!(discoveries <= MOST_DISCOVERIES, "{discoveries}");
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_never_connected_to() {
    let canary = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = canary.local_addr().unwrap().port();
    for spelling in [
        "ws://127.0.0.1:PORT/",
        "wss://127.0.0.1:PORT/",
        "ws://localhost:PORT/",
        "ws://2130706433:PORT/",
        "ws://[::ffff:127.0.0.1]:PORT/",
        "ws://%31%32%37.0.0.1:PORT/",
        "ws://a.localhost:PORT/",
    ] {
        let site = SocketSite::start(PUBLIC).await;
        let uri = spelling.replace("PORT", &port.to_string());
        site.offer(&[], &[(uri, "change-notification")]);
        site.list(&[]);
        let url = Url::parse(&site.url("/")).unwrap();
        let daemon = GuardedDaemon::follow(url).await;
        let sets = daemon
            .until("rejected", |sets| {
                let mut channels = sets.iter().flat_map(|set| &set.channels);
                channels.any(|channel| channel.error.is_some())
            })
            .await;
        let channel = &sets[0].channels[0];
        let error = channel.error.as_ref().unwrap();
        assert_eq!(error.code, "forbidden-address", "{spelling}: {error:?}");
        assert_eq!(channel.state, "pending", "{spelling}");
    }
    // An own connection is the first one.
    let own = tokio::net::TcpStream::connect(canary.local_addr().unwrap());
    let own = own.await.unwrap();
    let (_, first) = soon("connected", canary.accept()).await.unwrap();
    assert_eq!(first, own.local_addr().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_sent_to_their_own_origin_only() {
    let foreign = SocketSite::start(Ipv4Addr::LOCALHOST).await;
    let site = SocketSite::of(&["/a"]).await;
    let channels = [
        (site.socket(CHANGES), "change-notification"),
        (foreign.socket(FRAMEWORK), "framework-notification"),
    ];
    site.offer(&[], &channels);
    let url = format!("http://me:secret@{}/", site.address);
    let follower = Follower::start_with(site, |config| {
        let source = &mut config.sources[0];
        source.url = source.credentials.extract(Url::parse(&url).unwrap());
    })
    .await;
    follower.settled(2).await;
    let expected = Some("Basic bWU6c2VjcmV0".to_owned());
    assert_eq!(follower.site.authorizations_of(CHANGES), [expected]);
    assert_eq!(foreign.authorizations_of(FRAMEWORK), [None]);
    let mut pages = follower.site.authorizations().into_iter();
    assert!(pages.all(|header| header.is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_server_of_the_source_speaks_for_it() {
    let foreign = SocketSite::start(Ipv4Addr::LOCALHOST).await;
    let site = SocketSite::of(&["/a", "/b"]).await;
    site.offer(&[], &[(foreign.socket(CHANGES), "change-notification")]);
    let follower = Follower::start(site).await;
    follower.settled(1).await;
    let site = &follower.site;
    let deletion = site.notification(&site.change("/a", "deleted", "03-01T00:00:00"));
    foreign.send(CHANGES, deletion);
    site.put("/b", "changed");
    let update = site.notification(&site.change("/b", "updated", "03-01T00:00:00"));
    foreign.send(CHANGES, update);
    follower
        .until_mirrored(&[("/a", "a"), ("/b", "changed")])
        .await;
    follower.until("decided", |set| set.pending == 0).await;
    follower
        .until_mirrored(&[("/a", "a"), ("/b", "changed")])
        .await;
    site.offer(&[], &[(site.socket(CHANGES), "change-notification")]);
    follower.destination.operator.poll(NAME).await;
    site.until_opened(1).await;
    follower.settled(1).await;
    let deletion = site.notification(&site.change("/a", "deleted", "03-05T00:00:00"));
    site.send(CHANGES, deletion);
    follower.until_mirrored(&[("/b", "changed")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_of_another_origin_names_elsewhere_is_not_requested() {
    let foreign = SocketSite::start(Ipv4Addr::LOCALHOST).await;
    foreign.put("/evil", "evil");
    let site = SocketSite::of(&["/a"]).await;
    site.offer(&[], &[(foreign.socket(CHANGES), "change-notification")]);
    let follower = Follower::start(site).await;
    follower.settled(1).await;
    let site = &follower.site;
    site.put("/a", "changed");
    let changes = foreign.change("/evil", "created", "03-01T00:00:00")
        + &site.change("/a", "updated", "03-01T00:00:00");
    foreign.send(CHANGES, site.notification(&changes));
    follower.until_mirrored(&[("/a", "changed")]).await;
    follower.until("decided", |set| set.pending == 0).await;
    follower.until_mirrored(&[("/a", "changed")]).await;
    assert_eq!(foreign.requests_of("/evil"), 0);
}
