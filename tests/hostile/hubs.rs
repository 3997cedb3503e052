//! A hub of another origin than the Source that makes up notifications. It knows the secret, and signs them.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use chrono::TimeDelta;
use resourcesync::{Algorithm, ChangeKind, Digest, Entry, Link};
use resyncd::config::{Config, Filter};
use resyncd::status::SetStatus;
use resyncd_core::{LinkRules, MediaRange};
use resyncd_testkit::{Fault, Hub, HubOptions, Notification, SampleOptions, SampleSource};
use tokio::net::TcpListener;
use url::Url;

use crate::support::process::Home;
use crate::support::site::{Site, entry, ok, serve_behind_tls, urlset};
use crate::support::{
    AUTHORITY, NAME, Rig, SET, change, change_list, eventually, resources, time, was_polled_since,
};

const RESOURCE: &str = "r0001.txt";

/// A notification that the hub makes up. Its interval begins where the last one ended.
fn forge(rig: &Rig, entries: &[Entry]) -> Notification {
    // An interval that the Source knows: what it would have stated is replaced.
    let genuine = rig.source.notify(SET);
    let interval = genuine.interval.unwrap();
    let body = change_list(interval.from(), Some(interval.until()), None, entries);
    Notification {
        body: Bytes::from(body),
        ..genuine
    }
}

/// An entry for content that only the hub has.
fn forged_update(rig: &Rig, bytes: &str, elsewhere: &SampleSource) -> Entry {
    let uri = rig.source.resource_uri(SET, RESOURCE);
    elsewhere.put_document("/forged", "text/plain", bytes.to_owned());
    let mut entry = change(&uri, rig.source.boundary());
    entry.md.content.length = Some(bytes.len() as u64);
    entry.md.content.hashes = vec![Digest::of(Algorithm::Sha256, bytes.as_bytes())];
    let copy = elsewhere.base().join("/forged").unwrap();
    entry.links.push(Link::new("duplicate", copy));
    entry
}

fn forged_deletion(rig: &Rig, name: &str) -> Entry {
    let uri = rig.source.resource_uri(SET, name);
    let mut entry = change(&uri, rig.source.boundary());
    entry.md.change = Some(ChangeKind::Deleted);
    entry
}

/// After so many seconds the Source changes a resource, and its Change List is polled: that covers all of them.
async fn cover(rig: &Rig, seconds: u64) {
    rig.source.advance(Duration::from_secs(seconds));
    rig.source.update(SET, "r0002.txt", "changed by the Source");
    rig.operator.poll(NAME).await;
}

async fn until_contradicted(rig: &Rig) {
    eventually("the channel shows it", None, async || {
        let channel = rig.channel().await;
        match &channel.error {
            Some(error) if error.code == "hub-contradicted" => Ok(()),
            _ => Err(format!("{channel:#?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_only_the_hub_has_is_not_mirrored() {
    for trusted in [None, Some(true)] {
        let elsewhere = SampleSource::start(SampleOptions::default()).await.unwrap();
        let rig = Rig::start_with(resources(3), |config| {
            config.sources[0].trust_hub = trusted;
        })
        .await;
        rig.idle().await;
        rig.source.advance(Duration::from_secs(1));
        let before = rig.mirrored(RESOURCE);
        let entry = forged_update(&rig, "forged by the hub", &elsewhere);
        let deliveries = rig.source.publish(&forge(&rig, &[entry])).await.unwrap();
        assert!(deliveries[0].is_accepted(), "{deliveries:?}");
        if trusted.is_some() {
            // What the operator has allowed.
            rig.until_holds(RESOURCE, "forged by the hub").await;
            continue;
        }
        until_contradicted(&rig).await;
        rig.until("nothing is pending", |set| set.pending == 0)
            .await;
        assert_eq!(rig.mirrored(RESOURCE), before);
        assert_eq!(elsewhere.hits("/forged"), 0, "the hub's URI was requested");
        // The Source itself changes the resource.
        rig.source.update(SET, RESOURCE, "changed by the Source");
        rig.source.notify_and_publish(SET).await.unwrap();
        rig.until_holds(RESOURCE, "changed by the Source").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_that_the_source_serves_are_not_deleted_for_a_hub() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    rig.source.advance(Duration::from_secs(1));
    rig.source.delete(SET, "r0002.txt");
    let entries = [
        forged_deletion(&rig, RESOURCE),
        forged_deletion(&rig, "r0002.txt"),
    ];
    rig.source.publish(&forge(&rig, &entries)).await.unwrap();
    rig.until("the true deletion is applied", |set| set.resources == 2)
        .await;
    until_contradicted(&rig).await;
    rig.until("nothing is pending", |set| set.pending == 0)
        .await;
    assert!(rig.mirrored(RESOURCE).is_some() && rig.mirrored("r0002.txt").is_none());
}

/// The hub announces a change with the digest of the former version: the mirror has it. The Change List states the truth.
#[tokio::test(flavor = "multi_thread")]
async fn forged_digest_of_the_former_version_does_not_hide_a_change() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let former = String::from_utf8(rig.mirrored(RESOURCE).unwrap()).unwrap();
    let at = rig.source.update(SET, RESOURCE, "the newer version");
    let mut entry = change(&rig.source.resource_uri(SET, RESOURCE), at);
    entry.md.content.length = Some(former.len() as u64);
    entry.md.content.hashes = vec![Digest::of(Algorithm::Sha256, former.as_bytes())];
    let forged = forge(&rig, &[entry]);
    rig.source.publish(&forged).await.unwrap();
    rig.until("the notification is processed", |set| {
        set.channels.iter().any(|channel| channel.applied > 0)
    })
    .await;
    rig.operator.poll(NAME).await;
    rig.until_holds(RESOURCE, "the newer version").await;
}

/// The hub announces a deletion while the resource is not available for a moment. The Change List does not have the deletion.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_that_the_change_list_does_not_have_is_undone_and_reported() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let before = rig.mirrored(RESOURCE);
    rig.source.advance(Duration::from_secs(1));
    let path = rig.source.resource_uri(SET, RESOURCE).path().to_owned();
    rig.source.fail(&path, Fault::Status(404), 1);
    let entry = forged_deletion(&rig, RESOURCE);
    rig.source.publish(&forge(&rig, &[entry])).await.unwrap();
    rig.until("the deletion is applied", |set| set.resources == 2)
        .await;
    cover(&rig, 5).await;
    rig.until("the resource is back", |set| set.resources == 3)
        .await;
    assert_eq!(rig.mirrored(RESOURCE), before);
    until_contradicted(&rig).await;
}

/// The hub announces a change with a time that is yet to come, and the resource is deleted before that.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_that_the_time_of_a_hub_has_hidden_is_applied_and_reported() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let notification = rig.source.notify(SET);
    let ahead = notification.interval.unwrap().until().to_datetime() + TimeDelta::seconds(60);
    let entry = change(&rig.source.resource_uri(SET, RESOURCE), ahead.into());
    rig.source.publish(&forge(&rig, &[entry])).await.unwrap();
    rig.until("the notification is applied", |set| {
        set.pending == 0 && set.channels.iter().any(|channel| channel.applied > 0)
    })
    .await;
    rig.source.advance(Duration::from_secs(1));
    rig.source.delete(SET, RESOURCE);
    cover(&rig, 120).await;
    rig.until("the deletion is applied", |set| set.resources == 2)
        .await;
    assert_eq!(rig.mirrored(RESOURCE), None);
    until_contradicted(&rig).await;
}

/// The Source deletes a resource, and the hub announces a change of it with a later time: the deletion looks older.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_before_an_update_that_the_hub_makes_up_is_applied_and_reported() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    rig.source.advance(Duration::from_secs(1));
    rig.source.delete(SET, RESOURCE);
    rig.source.advance(Duration::from_secs(1));
    let uri = rig.source.resource_uri(SET, RESOURCE);
    let entry = change(&uri, rig.source.boundary());
    rig.source.publish(&forge(&rig, &[entry])).await.unwrap();
    rig.until("the update is given up", |set| set.failed == 1)
        .await;
    cover(&rig, 5).await;
    rig.until("the deletion is applied", |set| set.resources == 2)
        .await;
    until_contradicted(&rig).await;
}

/// A resource that the Source neither lists nor serves does not keep the set from being in sync for ever.
#[tokio::test(flavor = "multi_thread")]
async fn resource_that_the_hub_makes_up_is_forgotten() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    rig.source.advance(Duration::from_secs(1));
    let nothing = rig.source.resource_uri(SET, "nothing.txt");
    let entry = change(&nothing, rig.source.boundary());
    rig.source.publish(&forge(&rig, &[entry])).await.unwrap();
    eventually("the Source is asked", None, async || {
        let hits = rig.source.hits(nothing.path());
        (hits > 0).then_some(()).ok_or("not yet".to_owned())
    })
    .await;
    rig.until("the request has ended", |set| set.pending == 0)
        .await;
    cover(&rig, 5).await;
    rig.until("it is forgotten", |set| set.state == "in-sync")
        .await;
    until_contradicted(&rig).await;
}

/// A site of somebody else that serves anything, and counts the requests.
pub(crate) async fn site_of_somebody_else() -> (Site, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let site = Site::start(Ipv4Addr::LOCALHOST, |_| {
        move |_: &str, _: &_| {
            counted.fetch_add(1, Ordering::SeqCst);
            ok("evil")
        }
    });
    (site.await, requests)
}

fn with_credentials(config: &mut Config) {
    let source = &mut config.sources[0];
    let mut url = source.url.clone();
    url.set_username("me").unwrap();
    url.set_password(Some("secret")).unwrap();
    source.url = source.credentials.extract(url);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_others_are_not_requested_because_a_hub_names_them() {
    const MOST: usize = 50_000;
    let (elsewhere, requests) = site_of_somebody_else().await;
    let rig = Rig::start_with(resources(3), |config| {
        config.limits.notification = 32 << 20;
        config.limits.inbox = 64 << 20;
    })
    .await;
    for named in [1, MOST] {
        rig.idle().await;
        rig.source.advance(Duration::from_secs(1));
        let bytes = format!("changed while {named} are named");
        let at = rig.source.update(SET, RESOURCE, bytes.clone());
        let entry = |number: usize| {
            let mut entry = change(&elsewhere.url(&format!("/{number}.exe")), at);
            entry.md.change = Some(ChangeKind::Created);
            entry
        };
        let entries: Vec<Entry> = (0..named).map(entry).collect();
        let before = rig.set().await;
        let deliveries = rig.source.publish(&forge(&rig, &entries)).await.unwrap();
        assert!(deliveries[0].is_accepted(), "{deliveries:?}");
        // Their notification covers nothing: a poll finds what the Source has changed.
        rig.until_holds(RESOURCE, &bytes).await;
        let polled = rig
            .until("a poll has found none of them", |set| {
                let is_read = set.channels.iter().all(|channel| channel.inbox == 0);
                let is_polled = was_polled_since(&before, set, &rig.config.sources[0]);
                is_polled && is_read && set.state == "in-sync"
            })
            .await;
        assert_eq!((polled.resources, polled.pending), (3, 0));
        assert_eq!(requests.load(Ordering::SeqCst), 0, "of {named}");
        let is_noted = polled
            .notices
            .iter()
            .any(|it| it.code == "foreign-resources");
        assert!(is_noted, "{polled:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_requested_with_credentials_because_a_hub_names_it() {
    const ADMIN: &str = "/admin/delete-everything";
    let source = SampleSource::start(resources(3)).await.unwrap();
    source.put_document(ADMIN, "text/plain", "deleted");
    let rig = Rig::follow(source, with_credentials).await;
    for kind in [
        ChangeKind::Created,
        ChangeKind::Updated,
        ChangeKind::Deleted,
    ] {
        rig.idle().await;
        rig.source.advance(Duration::from_secs(1));
        let admin = rig
            .source
            .base()
            .join(&format!("{ADMIN}?really=1"))
            .unwrap();
        let mut entry = change(&admin, rig.source.boundary());
        entry.md.change = Some(kind);
        let bytes = format!("changed while it is {kind:?}");
        let at = rig.source.update(SET, RESOURCE, bytes.clone());
        let listed = change(&rig.source.resource_uri(SET, RESOURCE), at);
        let before = rig.set().await;
        let forged = forge(&rig, &[entry, listed]);
        rig.source.publish(&forged).await.unwrap();
        rig.until_holds(RESOURCE, &bytes).await;
        let polled = rig
            .until("polled", |set| {
                let is_polled = was_polled_since(&before, set, &rig.config.sources[0]);
                is_polled && set.pending == 0
            })
            .await;
        assert_eq!((polled.resources, polled.failed), (3, 0));
        assert_eq!(rig.source.hits(ADMIN), 0, "{kind:?}");
    }
}

/// A Source behind https that lists a resource without TLS. Its hub is of another origin.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_requested_without_tls_because_a_hub_names_it() {
    let hub = Hub::start(HubOptions::default()).await.unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let own = format!("https://{}", listener.local_addr().unwrap());
    let topic = format!("{own}/topic");
    let without_tls: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&without_tls);
    let site = Site::start(Ipv4Addr::LOCALHOST, |address| {
        tokio::spawn(serve_behind_tls(listener, address));
        let channel = format!(
            r#"<rs:md capability="change-notification"/><rs:ln rel="hub" href="{}"/>"#,
            hub.uri()
        );
        let list = entry(
            &format!("{own}/list.xml"),
            r#"<rs:md capability="resourcelist"/>"#,
        );
        let caps = urlset("capabilitylist", "", &(list + &entry(&topic, &channel)));
        let listed = entry(
            &format!("http://{address}/listed"),
            "<lastmod>2024-01-01T00:00:00Z</lastmod>",
        );
        let list = urlset("resourcelist", "", &listed);
        move |path: &str, headers: &HeaderMap| {
            if headers["host"] == address.to_string().as_str() {
                noted.lock().unwrap().push(path.to_owned());
            }
            match path {
                "/caps.xml" => ok(caps.clone()),
                "/list.xml" => ok(list.clone()),
                _ => ok("resource"),
            }
        }
    })
    .await;
    let home = Home::new(&format!("{own}/caps.xml"), "");
    let authority = home.folder().join("authority.pem");
    std::fs::write(&authority, AUTHORITY).unwrap();
    let _running = home.run_with([("SSL_CERT_FILE", &authority)]);
    let before = home
        .until("subscribed and in sync", |set| {
            let mut channels = set.channels.iter();
            set.state == "in-sync" && channels.any(|channel| channel.state == "active")
        })
        .await;
    let pushed = Url::parse(&format!("{own}/pushed")).unwrap();
    let entries = [site.url("/listed"), site.url("/unlisted"), pushed].map(|uri| {
        let mut entry = change(&uri, time("2024-01-02T00:00:00Z"));
        entry.md.change = Some(ChangeKind::Created);
        entry
    });
    let (from, until) = (time("2024-01-01T00:00:00Z"), time("2024-01-03T00:00:00Z"));
    let body = change_list(from, Some(until), None, &entries);
    let deliveries = hub.deliver(&topic, body.into()).await;
    assert!(deliveries[0].is_accepted(), "{deliveries:?}");
    let is_applied = |set: &SetStatus| set.resources > before.resources && set.pending == 0;
    home.until("what is behind https is mirrored", is_applied)
        .await;
    assert_eq!(*without_tls.lock().unwrap(), ["/listed"], "without TLS");
    let polled = home
        .until("a poll is done", |set| {
            is_applied(set) && set.last_poll_at != before.last_poll_at && set.state == "in-sync"
        })
        .await;
    assert_eq!(*without_tls.lock().unwrap(), ["/listed"], "without TLS");
    assert_eq!(polled.resources, 2);
    let mut notices = polled.notices.iter();
    let notice = notices.find(|notice| notice.code == "foreign-resources");
    assert_eq!(notice.map(|notice| notice.count), Some(2));
}

/// What the Source lists needs no poll; what it does not list yet is found by one.
#[tokio::test(flavor = "multi_thread")]
async fn listed_resource_is_requested_with_credentials_and_without_a_poll() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let rig = Rig::follow(source, with_credentials).await;
    rig.idle().await;
    let before = rig.set().await;
    rig.source.advance(Duration::from_secs(1));
    rig.source.update(SET, RESOURCE, "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds(RESOURCE, "pushed").await;
    let after = rig.set().await;
    assert_eq!(after.last_poll_at, before.last_poll_at);
    rig.source.advance(Duration::from_secs(1));
    rig.source.create(SET, "new.txt", "found by a poll");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("new.txt", "found by a poll").await;
    rig.until("polled", |set| {
        was_polled_since(&after, set, &rig.config.sources[0])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_a_hub_states_are_not_followed() {
    let (elsewhere, requests) = site_of_somebody_else().await;
    let rig = Rig::start_with(resources(3), |config| {
        let rules = LinkRules::new(true, vec![MediaRange::parse("*/*").unwrap()]);
        config.sources[0].filter = Filter::everything().following(rules);
    })
    .await;
    rig.idle().await;
    rig.source.put_document("/own.xml", "text/xml", "<own/>");
    let at = rig.source.update(SET, RESOURCE, "changed by the Source");
    let mut entry = change(&rig.source.resource_uri(SET, RESOURCE), at);
    let own = rig.source.base().join("/own.xml").unwrap();
    for (rel, href) in [
        ("alternate", elsewhere.url("/evil.pdf")),
        ("describedby", elsewhere.url("/evil.xml")),
        ("duplicate", elsewhere.url("/evil.txt")),
        ("describedby", own),
    ] {
        let mut link = Link::new(rel, href);
        link.content.media_type = Some("application/pdf".to_owned());
        entry.links.push(link);
    }
    rig.source.publish(&forge(&rig, &[entry])).await.unwrap();
    rig.until_holds(RESOURCE, "changed by the Source").await;
    let set = rig
        .until("nothing is pending", |set| set.pending == 0)
        .await;
    assert_eq!(set.resources, 3);
    assert_eq!(requests.load(Ordering::SeqCst), 0);
    assert_eq!(rig.source.hits("/own.xml"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_of_a_notification_count_once_the_source_states_them() {
    let rig = Rig::start_with(resources(3), |config| {
        let rules = LinkRules::new(true, Vec::new());
        config.sources[0].filter = Filter::everything().following(rules);
    })
    .await;
    rig.idle().await;
    rig.source.put_document("/own.xml", "text/xml", "<own/>");
    let own = rig.source.base().join("/own.xml").unwrap();
    let mut link = Link::new("describedby", own);
    link.content.media_type = Some("text/xml".to_owned());
    rig.source.set_links(SET, RESOURCE, vec![link]);
    rig.source.update(SET, RESOURCE, "described");
    let before = rig.set().await;
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds(RESOURCE, "described").await;
    let set = rig
        .until("nothing is pending", |set| set.pending == 0)
        .await;
    assert_eq!((set.resources, rig.source.hits("/own.xml")), (3, 0));
    assert_eq!(set.last_poll_at, before.last_poll_at);
    // Its Change List has the links, too.
    rig.operator.poll(NAME).await;
    rig.until("the record is fetched", |set| {
        set.resources == 4 && set.pending == 0
    })
    .await;
    assert_eq!(rig.source.hits("/own.xml"), 1);
}
