//! What somebody must not achieve who has learnt the address of a callback, or looks for it.

use std::net::Ipv4Addr;

use chrono::{SecondsFormat, TimeDelta};
use futures_util::future::join_all;
use resyncd::clock;
use resyncd::config::Filter;
use resyncd_core::{LinkRules, MediaRange};
use url::Url;

use crate::callback::callback_site::{
    CHANGE_SET, CallbackSite, Follower, SITEMAP, SUBSCRIBE, change_set, changed, deliver, expired,
    listed, sitemap, undated_sitemap,
};
use crate::support::{NAME, client, send};

#[tokio::test(flavor = "multi_thread")]
async fn unknown_addresses_and_other_requests_are_rejected() {
    let follower = Follower::start(CallbackSite::of(&["/a"]).await).await;
    follower.settled().await;
    let callback = follower.site.until_registered(1).await;
    let (base, token) = callback.rsplit_once('/').unwrap();
    let guess = "0".repeat(token.len());
    for (path, expected) in [
        (format!("{base}/{guess}"), 404),
        (format!("{base}/{}", &token[1..]), 404),
        (format!("{base}/elsewhere/{token}"), 404),
        (format!("{base}/"), 404),
    ] {
        let status = deliver(&path, change_set(&[expired("/a", "13")])).await;
        assert_eq!(status, expected, "{path}");
    }
    // Nothing is verified.
    let topic = follower.site.url(SUBSCRIBE);
    let query = format!("?hub.mode=subscribe&hub.challenge=x&hub.topic={topic}");
    let asked = format!("{callback}{query}");
    let answer = send(|| client().get(&asked)).await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["allow"]),
        (405, &"POST".parse().unwrap())
    );
    let channel = follower.processed(0).await;
    assert_eq!((channel.rejected, channel.state.as_str()), (0, "active"));
    follower.until_mirrored(&[("/a", "a")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_delivery_and_what_is_no_change_set_are_rejected() {
    let site = CallbackSite::of(&["/a"]).await;
    let follower = Follower::start_with(site, |config| {
        config.limits.notification = 1000;
        config.limits.inbox = 10_000;
    })
    .await;
    follower.settled().await;
    let site = &follower.site;
    assert_eq!(site.push(&"x".repeat(1001)).await, 413);
    for body in [
        "",
        "callbackURI=x",
        "<urlset",
        "<feed xmlns=\"http://www.w3.org/2005/Atom\"/>",
    ] {
        assert_eq!(site.push(body).await, 200, "it is stored: {body}");
    }
    let channel = follower
        .until_channel("rejected", |channel| channel.rejected == 5)
        .await;
    assert_eq!((channel.received, channel.applied), (4, 0));
    site.put("/a", "changed");
    site.push(&change_set(&[changed("/a", "updated", "13")]))
        .await;
    follower.until_mirrored(&[("/a", "changed")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_is_rejected_and_a_poll_finds_what_it_has_hidden() {
    let site = CallbackSite::with_change_set(&["/a"]).await;
    let follower = Follower::start(site).await;
    follower.settled().await;
    let site = &follower.site;
    let callback = site.until_registered(1).await;
    let mut number = 0;
    loop {
        let batch = (0..40).map(|_| {
            number += 1;
            let body = change_set(&[format!("<!-- {number} -->")]);
            deliver(&callback, body)
        });
        let answers = join_all(batch).await;
        assert!(
            answers.iter().all(|it| matches!(it.as_u16(), 200 | 429)),
            "{answers:?}"
        );
        if answers.iter().any(|it| it.as_u16() == 429) {
            break;
        }
        // The rate allows no more, as long as a test may take.
        assert!(number < 480, "all of {number} are accepted");
    }
    assert!(number >= 120, "{number}");
    let channel = follower
        .until_channel("counted", |channel| {
            channel.inbox == 0 && channel.rejected > 0
        })
        .await;
    assert_eq!(channel.received + channel.rejected, number);
    // The flood sets no pace: the poll that checks it is not due at once.
    follower
        .until("idle", |set| {
            set.state == "in-sync" && set.next_poll_at > set.last_poll_at
        })
        .await;
    site.put("/a", "hidden by the flood");
    site.put(CHANGE_SET, &change_set(&[changed("/a", "updated", "13")]));
    follower.destination.operator.poll(NAME).await;
    follower
        .until_mirrored(&[("/a", "hidden by the flood")])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_that_nothing_confirms_is_not_applied() {
    for trusted in [None, Some(true)] {
        let site = CallbackSite::with_change_set(&["/a", "/b", "/c"]).await;
        let follower = Follower::start_with(site, |config| {
            // It speaks of hubs.
            config.sources[0].trust_hub = trusted;
            config.sources[0].max_delete = 1.0;
        })
        .await;
        follower.settled().await;
        let site = &follower.site;
        let all = ["/a", "/b", "/c"].map(|path| expired(path, "13"));
        site.remove("/c");
        assert_eq!(site.push(&change_set(&all)).await, 200);
        follower.until_mirrored(&[("/a", "a"), ("/b", "b")]).await;
        follower
            .until_channel("contradicted", |channel| {
                let error = channel.error.as_ref();
                error.is_some_and(|error| error.code == "hub-contradicted")
            })
            .await;
        follower.processed(1).await;
        follower.until_mirrored(&[("/a", "a"), ("/b", "b")]).await;
        // A Change Set states one of the two, whatever is served.
        site.put(
            CHANGE_SET,
            &change_set(&[expired("/a", "13"), expired("/c", "13")]),
        );
        follower.destination.operator.poll(NAME).await;
        follower.until_mirrored(&[("/b", "b")]).await;
        // And a Sitemap the other.
        let links = site.interface(SUBSCRIBE);
        site.put("/d", "d");
        let entries = [expired("/b", "13"), listed("/d", "14")];
        site.put(SITEMAP, &sitemap("15", &links, &entries));
        follower.destination.operator.poll(NAME).await;
        follower.until_mirrored(&[("/d", "d")]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_that_of_the_source_whatever_is_pushed() {
    let follower = Follower::start(CallbackSite::of(&["/a"]).await).await;
    follower.settled().await;
    let site = &follower.site;
    site.put("/elsewhere", "forged");
    let mirror = "alternate http://www.openarchives.org/rs/mirror";
    let forged = format!(
        "<url><loc>{{site}}/z</loc><lastmod rs:type=\"created\">2012-08-08T13:00:00Z</lastmod>\
         <xhtml:link rel=\"{mirror}\" href=\"{{site}}/elsewhere\"/></url>"
    );
    site.push(&change_set(&[forged])).await;
    follower
        .until("decided", |set| {
            let channel = &set.channels[0];
            channel.received == 1 && channel.inbox == 0 && set.pending == 0
        })
        .await;
    follower.until_mirrored(&[("/a", "a")]).await;
    site.put("/a", "true");
    let entries = [listed("/a", "14")];
    site.put(
        SITEMAP,
        &sitemap("15", &site.interface(SUBSCRIBE), &entries),
    );
    follower.destination.operator.poll(NAME).await;
    follower.until_mirrored(&[("/a", "true")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_hosts_are_not_requested_for_what_is_pushed() {
    let follower = Follower::start(CallbackSite::of(&["/a"]).await).await;
    follower.settled().await;
    let foreign = CallbackSite::start(Ipv4Addr::new(127, 0, 0, 3)).await;
    foreign.put("/b", "foreign");
    let site = &follower.site;
    site.put("/a", "changed");
    let there = changed("/b", "created", "13").replace("{site}", &foreign.url(""));
    let entries = [there, changed("/a", "updated", "13")];
    site.push(&change_set(&entries)).await;
    follower.until_mirrored(&[("/a", "changed")]).await;
    follower.processed(1).await;
    follower.until_mirrored(&[("/a", "changed")]).await;
    assert!(foreign.requested().is_empty());
    let set = follower.settled().await;
    let mut notices = set.notices.iter();
    let noted = notices.find(|it| it.code == "foreign-resources");
    assert_eq!(noted.map(|it| it.count), Some(1), "{set:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_that_was_absent_for_a_moment_is_restored() {
    let site = CallbackSite::of(&["/a", "/b"]).await;
    let links = site.interface(SUBSCRIBE);
    let entries = |hour: &str| [listed("/a", hour), listed("/b", "08")];
    site.put(SITEMAP, &undated_sitemap(&links, &entries("08")));
    let follower = Follower::start_with(site, |config| {
        config.sources[0].max_delete = 1.0;
    })
    .await;
    follower.settled().await;
    follower.until_mirrored(&[("/a", "a"), ("/b", "b")]).await;
    let site = &follower.site;
    site.remove("/b");
    site.push(&change_set(&[expired("/b", "13")])).await;
    follower.until_mirrored(&[("/a", "a")]).await;
    follower.processed(1).await;
    site.put("/b", "b");
    site.put(SITEMAP, &undated_sitemap(&links, &entries("09")));
    follower.destination.operator.poll(NAME).await;
    follower.until_mirrored(&[("/a", "a"), ("/b", "b")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_that_is_yet_to_come_hides_no_change() {
    let follower = Follower::start(CallbackSite::of(&["/a"]).await).await;
    follower.settled().await;
    let site = &follower.site;
    let updated_at = |minutes: i64| {
        let time = clock::now().wall + TimeDelta::minutes(minutes);
        let time = time.to_rfc3339_opts(SecondsFormat::Micros, true);
        format!("<url><loc>{{site}}/a</loc><lastmod rs:type=\"updated\">{time}</lastmod></url>")
    };
    site.put("/a", "asked for");
    site.push(&change_set(&[updated_at(4)])).await;
    follower.until_mirrored(&[("/a", "asked for")]).await;
    follower.processed(1).await;
    site.put("/a", "changed since");
    site.push(&change_set(&[updated_at(0)])).await;
    follower.until_mirrored(&[("/a", "changed since")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_of_what_is_pushed_are_not_followed() {
    let site = CallbackSite::of(&["/a"]).await;
    let follower = Follower::start_with(site, |config| {
        let rules = LinkRules::new(true, vec![MediaRange::parse("*/*").unwrap()]);
        config.sources[0].filter = Filter::everything().following(rules);
    })
    .await;
    follower.settled().await;
    let foreign = CallbackSite::start(Ipv4Addr::new(127, 0, 0, 3)).await;
    foreign.put("/x.pdf", "foreign");
    let site = &follower.site;
    site.put("/own.xml", "own");
    site.put("/a", "changed");
    let there = foreign.url("/x.pdf");
    let entry = format!(
        "<url><loc>{{site}}/a</loc><lastmod rs:type=\"updated\">2012-08-08T13:00:00Z</lastmod>\
         <rs:ln rel=\"alternate\" type=\"application/pdf\" href=\"{there}\"/>\
         <rs:ln rel=\"describedby\" type=\"text/xml\" href=\"{{site}}/own.xml\"/></url>"
    );
    site.push(&change_set(&[entry])).await;
    follower.until_mirrored(&[("/a", "changed")]).await;
    follower.processed(1).await;
    follower.until_mirrored(&[("/a", "changed")]).await;
    assert!(foreign.requested().is_empty());
    assert!(!site.requested().contains(&"/own.xml".to_owned()));
    // Those that the Source states are.
    let stated = "<url><loc>{site}/a</loc><lastmod>2012-08-08T14:00:00Z</lastmod>\
        <rs:ln rel=\"describedby\" type=\"text/xml\" href=\"{site}/own.xml\"/></url>";
    let interface = site.interface(SUBSCRIBE);
    site.put(SITEMAP, &sitemap("14", &interface, &[stated.to_owned()]));
    follower.destination.operator.poll(NAME).await;
    let both = [("/a", "changed"), ("/own.xml", "own")];
    follower.until_mirrored(&both).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_change_set_is_left_to_a_poll() {
    let follower = Follower::start(CallbackSite::of(&["/a"]).await).await;
    follower.settled().await;
    let site = &follower.site;
    let entry = |number: usize| changed(&format!("/none/{number}"), "created", "13");
    let entries: Vec<String> = (0..=1000).map(entry).collect();
    site.push(&change_set(&entries)).await;
    follower
        .until_channel("rejected", |channel| channel.rejected == 1)
        .await;
    follower.processed(1).await;
    let is_asked = |path: &String| path.starts_with("/none");
    assert!(!site.requested().iter().any(is_asked));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_is_forgotten() {
    let follower = Follower::start(CallbackSite::of(&["/a"]).await).await;
    follower.settled().await;
    let site = &follower.site;
    // One without a time, and one with.
    let undated = "<url><loc>{site}/none</loc></url>".to_owned();
    site.push(&change_set(&[undated, changed("/never", "created", "13")]))
        .await;
    let channel = follower.processed(1).await;
    assert_eq!(channel.applied, 1);
    let set = follower.settled().await;
    assert_eq!((set.failed, set.resources), (0, 1), "{set:#?}");
    let asked = || {
        let paths = site.requested().into_iter();
        let paths = paths.filter(|path| path == "/none" || path == "/never");
        paths.count()
    };
    let before = asked();
    assert!(before >= 2, "{before}");
    site.put("/a", "changed");
    let links = site.interface(SUBSCRIBE);
    site.put(SITEMAP, &sitemap("15", &links, &[listed("/a", "14")]));
    follower.destination.operator.poll(NAME).await;
    follower.until_mirrored(&[("/a", "changed")]).await;
    follower.settled().await;
    assert_eq!(asked(), before);
    // Once it exists, another delivery creates it.
    site.put("/none", "made");
    site.push(&change_set(&[changed("/none", "created", "16")]))
        .await;
    follower
        .until_mirrored(&[("/a", "changed"), ("/none", "made")])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_and_digests_of_what_is_pushed_are_not_used() {
    let follower = Follower::start(CallbackSite::of(&["/a"]).await).await;
    follower.settled().await;
    let site = &follower.site;
    let asked = || {
        let paths = site.requested().into_iter();
        paths.filter(|path| path == "/a").count()
    };
    let before = asked();
    site.put("/a", "changed");
    let entry = "<url><loc>{site}/a</loc><lastmod rs:type=\"updated\">2012-08-08T13:00:00Z</lastmod>\
         <rs:size>3</rs:size><rs:fixity type=\"md5\">900150983cd24fb0d6963f7d28e17f72</rs:fixity></url>";
    site.push(&change_set(&[entry.to_owned()])).await;
    follower.until_mirrored(&[("/a", "changed")]).await;
    follower.processed(1).await;
    assert_eq!(asked(), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_ports_are_not_requested_for_what_is_pushed() {
    let follower = Follower::start(CallbackSite::of(&["/a"]).await).await;
    follower.settled().await;
    let other = CallbackSite::start(Ipv4Addr::LOCALHOST).await;
    other.put("/b", "of another service");
    let site = &follower.site;
    site.put("/a", "changed");
    let there = changed("/b", "created", "13").replace("{site}", &other.url(""));
    let entries = [there, changed("/a", "updated", "13")];
    site.push(&change_set(&entries)).await;
    follower.until_mirrored(&[("/a", "changed")]).await;
    follower.processed(1).await;
    follower.until_mirrored(&[("/a", "changed")]).await;
    assert!(other.requested().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_requested_with_credentials_because_it_is_pushed() {
    let site = CallbackSite::with_change_set(&["/a"]).await;
    let signed_in = site.url("/").replace("http://", "http://user:password@");
    let follower = Follower::start_with(site, |config| {
        let credentials = &mut config.sources[0].credentials;
        let _ = credentials.extract(Url::parse(&signed_in).unwrap());
    })
    .await;
    follower.settled().await;
    let site = &follower.site;
    site.put("/a", "changed");
    site.put("/account/end", "ended");
    let entries = [
        changed("/account/end", "created", "13"),
        changed("/a", "updated", "13"),
    ];
    let listed = [changed("/a", "created", "08"), entries[1].clone()];
    site.put(CHANGE_SET, &change_set(&listed));
    site.push(&change_set(&entries)).await;
    // The poll that is due then brings what the Change Set lists.
    follower.until_mirrored(&[("/a", "changed")]).await;
    follower.processed(1).await;
    let requested = site.requested();
    assert!(
        requested.iter().all(|it| !it.contains("/account/end")),
        "{requested:#?}"
    );
}
