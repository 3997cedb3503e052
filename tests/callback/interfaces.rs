//! Interfaces that get no request.

use std::net::Ipv4Addr;

use resyncd::config::CallbackProtocols;
use resyncd::status::CountedError;
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use crate::callback::callback_site::{
    CallbackSite, Follower, PROTOCOL, SITEMAP, SUBSCRIBE, interface, listed, sitemap,
};
use crate::support::site::{GuardedDaemon, PUBLIC};
use crate::support::{NAME, soon};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_posted_to_a_protocol_that_is_not_configured() {
    const OTHER: &str = "http://example.com/protocol/other";
    for configured in [&[][..], &[OTHER]] {
        let site = CallbackSite::of(&["/a"]).await;
        let follower = Follower::start_with(site, |config| {
            config.sources[0].callback_protocols = CallbackProtocols::new(configured);
        })
        .await;
        let is_not_configured = |notice: &CountedError| notice.code == "protocol-not-configured";
        let set = follower
            .until("in sync, with a notice", |set| {
                set.state == "in-sync" && set.notices.iter().any(is_not_configured)
            })
            .await;
        let notice = set.notices.iter().find(|it| is_not_configured(it));
        let message = &notice.unwrap().message;
        assert!(message.contains(PROTOCOL), "{message}");
        assert!(message.contains(&follower.site.url(SUBSCRIBE)), "{message}");
        assert!(set.channels.is_empty(), "{set:#?}");
        follower.until_mirrored(&[("/a", "a")]).await;
        // The Sitemap comes to name one that is.
        if let [other] = configured {
            let site = &follower.site;
            let link = interface(&site.url(SUBSCRIBE), other);
            site.put(SITEMAP, &sitemap("13", &link, &[listed("/a", "08")]));
            assert!(site.posted().is_empty());
            follower.destination.operator.poll(NAME).await;
            site.until_registered(1).await;
            let set = follower.settled().await;
            assert!(!set.notices.iter().any(is_not_configured), "{set:#?}");
        }
        assert_eq!(follower.site.posted().len(), configured.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interfaces_at_private_addresses_are_not_requested() {
    let canary = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = canary.local_addr().unwrap().port();
    for spelling in [
        "http://127.0.0.1:PORT/",
        "http://localhost:PORT/",
        "http://2130706433:PORT/",
        "http://[::ffff:127.0.0.1]:PORT/",
        "/moved",
    ] {
        let site = CallbackSite::start(PUBLIC).await;
        let to = format!("http://127.0.0.1:{port}/");
        site.redirect("/moved", &to);
        site.put("/a", "a");
        let uri = spelling.replace("PORT", &port.to_string());
        let links = interface(&uri, PROTOCOL);
        site.put(SITEMAP, &sitemap("12", &links, &[listed("/a", "08")]));
        let url = Url::parse(&site.url(SITEMAP)).unwrap();
        let daemon = GuardedDaemon::follow_with(url, |source| {
            source.callback_protocols = CallbackProtocols::new([PROTOCOL]);
        })
        .await;
        let sets = daemon
            .until("rejected", |sets| {
                let mut channels = sets.iter().flat_map(|set| &set.channels);
                channels.any(|channel| channel.error.is_some())
            })
            .await;
        let channel = &sets[0].channels[0];
        let error = channel.error.as_ref().unwrap();
        // The callback is handed on to no other origin, whatever its address.
        let expected = match spelling {
            "/moved" => "registration-refused",
            _ => "forbidden-address",
        };
        assert_eq!(error.code, expected, "{spelling}: {error:?}");
        assert_eq!(channel.state, "pending", "{spelling}");
    }
    // An own connection is the first one.
    let own = TcpStream::connect(canary.local_addr().unwrap());
    let own = own.await.unwrap();
    let (_, first) = soon("connected", canary.accept()).await.unwrap();
    assert_eq!(first, own.local_addr().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn interface_without_a_public_url_is_a_notice_that_names_the_key() {
    let site = CallbackSite::of(&["/a"]).await;
    let follower = Follower::start_with(site, |config| config.callback.public_url = None).await;
    let is_wanted = |notice: &CountedError| notice.code == "no-public-url";
    let set = follower
        .until("in sync, with a notice", |set| {
            set.state == "in-sync" && set.notices.iter().any(is_wanted)
        })
        .await;
    let notice = set.notices.iter().find(|it| is_wanted(it)).unwrap();
    let key = "[callback] public_url";
    assert!(notice.message.contains(key), "{notice:?}");
    assert!(set.channels.is_empty(), "{set:#?}");
    assert!(follower.site.posted().is_empty());
}
