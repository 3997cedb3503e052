//! Baseline, push and polls.

use std::net::Ipv4Addr;
use std::sync::Arc;

use resyncd::config::Config;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;

use crate::support::socket_site::{CHANGES, DESCRIPTION, FRAMEWORK, Follower, SocketSite};
use crate::support::{AUTHORITY, NAME, eventually, tls_server};

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_pushed_as_text_or_binary() {
    let follower = Follower::start(SocketSite::of(&["/a", "/b"]).await).await;
    follower.settled(2).await;
    follower.until_mirrored(&[("/a", "a"), ("/b", "b")]).await;
    let site = &follower.site;
    let channel = follower.until_channel("shown", |_| true).await;
    assert_eq!(channel.transport, "websocket");
    assert_eq!(channel.topic, site.socket(CHANGES));
    let dates = (channel.lease_expires_at, channel.renew_at);
    assert_eq!((channel.hub, dates), (None, (None, None)));

    site.put("/a", "changed");
    let updated = site.notification(&site.change("/a", "updated", "03-01T00:00:00"));
    site.send(CHANGES, updated);
    follower
        .until_mirrored(&[("/a", "changed"), ("/b", "b")])
        .await;
    site.put("/c", "created");
    site.remove("/b");
    let entries = site.change("/c", "created", "03-02T00:00:00")
        + &site.change("/b", "deleted", "03-02T00:00:01");
    site.send(CHANGES, Message::binary(site.notification(&entries)));
    follower
        .until_mirrored(&[("/a", "changed"), ("/c", "created")])
        .await;
    let channel = follower.until_channel("counted", |it| it.inbox == 0).await;
    assert_eq!((channel.received, channel.rejected), (2, 0));
    assert_eq!(site.opened(), 2, "they were never interrupted");
}

#[tokio::test(flavor = "multi_thread")]
async fn framework_notification_causes_a_poll() {
    let site = SocketSite::of(&["/a"]).await;
    let channel = [(site.socket(FRAMEWORK), "framework-notification")];
    site.offer(&[("/changes.xml", "changelist")], &channel);
    site.list_changes(&[]);
    let follower = Follower::start(site).await;
    follower.settled(1).await;
    let site = &follower.site;
    site.put("/a", "changed");
    site.list_changes(&[("/a", "updated", "03-01T00:00:00")]);
    // Example 5.2: the time of the change is not stated.
    site.send(FRAMEWORK, site.framework("/changes.xml", "changelist"));
    follower.until_mirrored(&[("/a", "changed")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn framework_notification_of_the_description_causes_a_discovery() {
    let site = SocketSite::of(&["/a"]).await;
    let follower = Follower::start(site).await;
    follower.settled(2).await;
    let site = &follower.site;
    let before = site.requests_of(DESCRIPTION);
    site.send(FRAMEWORK, site.framework(DESCRIPTION, "description"));
    eventually("it is read again", None, async || {
        let requests = site.requests_of(DESCRIPTION);
        (requests > before)
            .then_some(())
            .ok_or(format!("{requests}"))
    })
    .await;
}

/// A Source with a Change List.
async fn with_changes(names: &[&str]) -> SocketSite {
    let site = SocketSite::of(names).await;
    let channel = [(site.socket(CHANGES), "change-notification")];
    site.offer(&[("/changes.xml", "changelist")], &channel);
    site.list_changes(&[]);
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_of_either_side_is_followed_by_a_poll() {
    let mut follower = Follower::start(with_changes(&["/a"]).await).await;
    follower.settled(1).await;
    let site = &follower.site;
    site.put("/a", "missed");
    let first = ("/a", "updated", "03-01T00:00:00");
    site.list_changes(&[first]);
    site.drop_connections();
    follower.until_mirrored(&[("/a", "missed")]).await;
    site.until_opened(2).await;

    follower.destination.stop().await;
    follower.site.until_ended().await;
    let site = &follower.site;
    site.put("/a", "missed again");
    site.list_changes(&[first, ("/a", "updated", "03-02T00:00:00")]);
    follower.destination.start_again().await;
    follower.until_mirrored(&[("/a", "missed again")]).await;
    // Until then the status may be that of the former process.
    follower.site.until_opened(3).await;
    follower.settled(1).await;
    let site = &follower.site;
    site.put("/a", "pushed");
    let pushed = site.change("/a", "updated", "03-03T00:00:00");
    site.send(CHANGES, site.notification(&pushed));
    follower.until_mirrored(&[("/a", "pushed")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn set_is_polled_where_no_connection_can_be_opened() {
    let site = with_changes(&["/a"]).await;
    site.refuse(true);
    let follower = Follower::start(site).await;
    let channel = follower
        .until_channel("refused", |channel| channel.error.is_some())
        .await;
    assert_eq!(channel.state, "pending");
    assert_eq!(channel.error.unwrap().code, "http-status");
    let site = &follower.site;
    site.put("/a", "changed");
    site.list_changes(&[("/a", "updated", "03-01T00:00:00")]);
    follower
        .until("in sync", |set| set.state == "in-sync")
        .await;
    follower.destination.operator.poll(NAME).await;
    follower.until_mirrored(&[("/a", "changed")]).await;
    site.refuse(false);
    follower.settled(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_that_has_fallen_silent_is_opened_anew() {
    let follower = Follower::start(with_changes(&["/a"]).await).await;
    follower.settled(1).await;
    let site = &follower.site;
    let days = ["01", "02", "03", "04"];
    let dates = days.map(|day| format!("03-{day}T00:00:00"));
    for number in 1..=dates.len() {
        let text = format!("version {number}");
        site.put("/a", &text);
        let changes = dates[..number].iter();
        let changes: Vec<_> = changes
            .map(|date| ("/a", "updated", date.as_str()))
            .collect();
        site.list_changes(&changes);
        follower.destination.operator.poll(NAME).await;
        follower.until_mirrored(&[("/a", &text)]).await;
        follower.settled(1).await;
    }
    site.until_opened(2).await;
    let channel = follower
        .until_channel("active", |channel| channel.state == "active")
        .await;
    let error = channel.error.unwrap();
    assert_eq!(error.code, "push-silent");
    assert_eq!(
        error.message,
        "polls find changes that the Source has not sent"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_over_tls_trusts_the_authorities_of_requests() {
    let acceptor = TlsAcceptor::from(Arc::new(tls_server()));
    let tls = SocketSite::start_with(Ipv4Addr::LOCALHOST, Some(acceptor)).await;
    let site = SocketSite::of(&["/a"]).await;
    let channel = format!("wss://{}{CHANGES}", tls.address);
    site.offer(&[], &[(channel, "change-notification")]);
    let follower = Follower::start(site).await;
    let channel = follower
        .until_channel("rejected", |channel| channel.error.is_some())
        .await;
    assert_eq!(channel.error.unwrap().code, "tls");
    let Follower { site, .. } = follower;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authority.pem");
    std::fs::write(&file, AUTHORITY).unwrap();
    let text = format!(
        "[http]\nca_file = {file:?}\n[[source]]\nname = \"a\"\nurl = \"http://a.example/\"\nmirror = \"/a\"\n"
    );
    let path = folder.path().join("config.toml");
    let configured = Config::parse(&text, &path).unwrap();
    let trusting = |config: &mut Config| config.http.authorities = configured.http.authorities;
    let follower = Follower::start_with(site, trusting).await;
    follower.settled(1).await;
    let site = &follower.site;
    site.put("/a", "changed");
    let changed = site.change("/a", "updated", "03-01T00:00:00");
    tls.send(CHANGES, site.notification(&changed));
    follower.until_mirrored(&[("/a", "changed")]).await;
}
