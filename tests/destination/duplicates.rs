//! Duplicates of resources on other hosts, and related resources (section 14).

use resourcesync::{Algorithm, ContentInfo, Digest, Entry, Link};
use resyncd::config::Config;
use resyncd_testkit::{ChannelHub, Fault, SampleOptions, SampleSource};
use serde_json::{Value, json};
use url::Url;

use super::faults::until_retried;
use crate::support::{NAME, Rig, SET, change, change_list, eventually, resources, time};

const CHANGES: &str = "/set1/changelist.xml";

/// A Source that is polled on request, and a host of duplicates.
async fn rig(change: impl FnOnce(&mut Config)) -> (Rig, SampleSource) {
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let rig = Rig::start_with(options.clone(), change).await;
    rig.idle().await;
    (rig, SampleSource::start(options).await.unwrap())
}

fn path(name: &str) -> String {
    format!("/set1/res/{name}")
}

/// An update that states length and digest of these bytes.
pub(super) fn update(rig: &Rig, name: &str, bytes: &str) -> Entry {
    let mut entry = bare_update(rig, name, bytes);
    entry.md.content.length = Some(bytes.len() as u64);
    entry.md.content.hashes = vec![Digest::of(Algorithm::Sha256, bytes.as_bytes())];
    entry
}

/// An update that states neither length nor digest.
fn bare_update(rig: &Rig, name: &str, bytes: &str) -> Entry {
    let at = rig.source.update(SET, name, bytes.to_owned());
    change(&rig.source.resource_uri(SET, name), at)
}

/// Serves a duplicate, and adds a link to it to the entry.
fn put(entry: &mut Entry, host: &SampleSource, path: &str, pri: u32, bytes: &str) {
    host.put_document(path, "text/plain", bytes.to_owned());
    let mut link = Link::new("duplicate", host.base().join(path).unwrap());
    link.pri = Some(pri);
    entry.links.push(link);
}

/// Publishes a Change List of these changes, and requests a poll.
pub(super) async fn announce(rig: &Rig, entries: &[Entry]) {
    let from = time(rig.set().await.synced_until.unwrap());
    let list = change_list(from, None, None, entries);
    rig.source.put_document(CHANGES, "application/xml", list);
    rig.operator.poll(NAME).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_of_highest_priority_is_fetched_instead_of_the_resource() {
    let (rig, host) = rig(|_| {}).await;
    let own = rig.source.hits(&path("r0001.txt"));
    let mut entry = update(&rig, "r0001.txt", "updated");
    put(&mut entry, &host, "/second", 2, "updated");
    put(&mut entry, &host, "/first", 1, "updated");
    let ftp = Url::parse("ftp://127.0.0.1/first").unwrap();
    entry.links.push(Link {
        pri: Some(0),
        ..Link::new("duplicate", ftp)
    });
    announce(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "updated").await;
    rig.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!(host.hits("/first"), 1);
    assert_eq!(host.hits("/second"), 0);
    assert_eq!(rig.source.hits(&path("r0001.txt")), own);
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn source_is_used_at_once_when_duplicates_fail() {
    let (rig, host) = rig(|_| {}).await;
    let own = rig.source.hits(&path("r0001.txt"));
    let mut entry = update(&rig, "r0001.txt", "updated");
    put(&mut entry, &host, "/absent", 1, "updated");
    host.remove_document("/absent");
    put(&mut entry, &host, "/wrong", 2, "outdate");
    put(&mut entry, &host, "/long", 3, "updated, and more");
    put(&mut entry, &host, "/cut", 4, "updated");
    host.fail("/cut", Fault::Truncated, 1);
    announce(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "updated").await;
    let set = rig.until("in sync", |set| set.state == "in-sync").await;
    assert!(set.error.is_none(), "{set:?}");
    for path in ["/absent", "/wrong", "/long", "/cut"] {
        // After three consecutive failures the host is skipped.
        assert_eq!(host.hits(path), u64::from(path != "/cut"), "{path}");
    }
    assert_eq!(rig.source.hits(&path("r0001.txt")), own + 1);
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_is_fetched_when_the_source_fails() {
    let (rig, host) = rig(|_| {}).await;
    let own = rig.source.hits(&path("r0001.txt"));
    // The bytes can't be verified: the duplicate is the last candidate.
    let mut entry = bare_update(&rig, "r0001.txt", "updated");
    put(&mut entry, &host, "/copy", 1, "updated");
    announce(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "updated").await;
    rig.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!(host.hits("/copy"), 0);
    assert_eq!(rig.source.hits(&path("r0001.txt")), own + 1);

    rig.source
        .fail(&path("r0001.txt"), Fault::Status(403), usize::MAX);
    let mut entry = bare_update(&rig, "r0001.txt", "again");
    put(&mut entry, &host, "/copy", 1, "again");
    announce(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "again").await;
    rig.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!(host.hits("/copy"), 1);

    // 410 is a definite answer: the duplicate is not tried.
    rig.source.heal(&path("r0001.txt"));
    rig.source
        .fail(&path("r0001.txt"), Fault::Status(410), usize::MAX);
    let mut entry = bare_update(&rig, "r0001.txt", "gone");
    put(&mut entry, &host, "/copy", 1, "the version before");
    announce(&rig, &[entry]).await;
    let set = rig.until("error reported", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "gone");
    assert_eq!(host.hits("/copy"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_fails_only_if_every_candidate_fails() {
    let (rig, host) = rig(|_| {}).await;
    let own = path("r0001.txt");
    rig.source.fail(&own, Fault::Status(403), usize::MAX);
    let mut entry = update(&rig, "r0001.txt", "updated");
    put(&mut entry, &host, "/copy", 1, "outdate");
    announce(&rig, &[entry]).await;
    let set = rig
        .until("error reported", |set| {
            set.error.is_some() && set.pending + set.failed == 1
        })
        .await;
    // It is retried although its own URI answers 403: the duplicate may be correct by then.
    assert_eq!(set.error.unwrap().code, "http-status");
    host.put_document("/copy", "text/plain", "updated");
    until_retried(&rig, "in sync", |set| set.state == "in-sync").await;
    rig.until_holds("r0001.txt", "updated").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_older_than_the_change_is_rejected() {
    let (rig, _) = rig(|_| {}).await;
    // Its resources have the announced length, but an old Last-Modified.
    let host = SampleSource::start(SampleOptions {
        hub: ChannelHub::None,
        start: Some(time("2020-01-01T00:00:00Z")),
        ..resources(3)
    })
    .await
    .unwrap();
    host.update(SET, "r0001.txt", "outdate");
    let mut entry = bare_update(&rig, "r0001.txt", "updated");
    entry.md.content.length = Some(7);
    let copy = host.resource_uri(SET, "r0001.txt");
    entry.links.push(Link::new("duplicate", copy));
    announce(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "updated").await;
    rig.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!(host.hits(&path("r0001.txt")), 1);
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_on_hosts_that_are_not_allowed_are_never_requested() {
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let source = SampleSource::start(options.clone()).await.unwrap();
    let host = SampleSource::start(options).await.unwrap();
    let allowed = format!("127.0.0.1:{}", source.base().port().unwrap());
    let rig = Rig::follow(source, |config| config.sources[0].hosts = vec![allowed]).await;
    rig.settled().await;
    let mut entry = update(&rig, "r0001.txt", "updated");
    put(&mut entry, &host, "/copy", 1, "updated");
    announce(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "updated").await;
    assert_eq!(host.traffic().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_host_of_duplicates_is_skipped() {
    let (rig, host) = rig(|config| config.http.connections_per_host = 1).await;
    let updates = |round: u32| {
        let entries = (0..3).map(|n| {
            let name = format!("r000{n}.txt");
            let mut entry = update(&rig, &name, &format!("round {round}"));
            put(&mut entry, &host, &format!("/{n}"), 1, "wrong");
            entry
        });
        entries.collect::<Vec<Entry>>()
    };
    announce(&rig, &updates(1)).await;
    rig.until_mirrored().await;
    assert_eq!(host.traffic().0, 3);
    announce(&rig, &updates(2)).await;
    rig.until_mirrored().await;
    assert_eq!(host.traffic().0, 3, "the host is skipped");
}

#[tokio::test(flavor = "multi_thread")]
async fn related_resources_are_listed_with_a_resource() {
    let (rig, _) = rig(|_| {}).await;
    let links = async |rig: &Rig| {
        let known = rig.operator.resource(&rig.uri("r0001.txt")).await;
        known.unwrap()["links"].clone()
    };
    assert_eq!(links(&rig).await, json!([]));
    let href = |path: &str| {
        Url::parse("http://example.com/")
            .unwrap()
            .join(path)
            .unwrap()
    };
    let mut entry = update(&rig, "r0001.txt", "updated");
    let digest = Digest::of(Algorithm::Md5, b"record");
    entry.links.push(Link {
        modified: Some(time("2013-01-01T12:00:00Z")),
        content: ContentInfo {
            length: Some(6),
            media_type: Some("application/xml".to_owned()),
            hashes: vec![digest.clone()],
        },
        ..Link::new("describedby", href("record.xml"))
    });
    entry.links.push(Link {
        pri: Some(1),
        path: Some("/patch".to_owned()),
        ..Link::new("http://www.openarchives.org/rs/terms/patch", href("diff"))
    });
    entry.links.push(Link::new(
        "collection",
        Url::parse("urn:example:all").unwrap(),
    ));
    let expected = json!([
        {"rel": "describedby", "href": "http://example.com/record.xml", "modified": "2013-01-01T12:00:00Z", "length": 6,
         "type": "application/xml", "hash": digest.to_string()},
        {"rel": "http://www.openarchives.org/rs/terms/patch", "href": "http://example.com/diff", "pri": 1, "path": "/patch"},
        {"rel": "collection", "href": "urn:example:all"},
    ]);
    let until_linked = async |rig: &Rig, expected: &Value| {
        eventually("links listed", Some(rig.wakes()), async || {
            let found = links(rig).await;
            if found == *expected {
                Ok(())
            } else {
                Err(found.to_string())
            }
        })
        .await;
    };
    announce(&rig, &[entry.clone()]).await;
    rig.until_holds("r0001.txt", "updated").await;
    until_linked(&rig, &expected).await;
    assert_eq!(rig.source.hits("/set1/resourcelist.xml"), 1);

    // The same change with one more link.
    let mut extended = entry;
    extended.links.push(Link::new("via", href("original")));
    let mut expected = expected;
    expected
        .as_array_mut()
        .unwrap()
        .push(json!({"rel": "via", "href": "http://example.com/original"}));
    announce(&rig, &[extended]).await;
    until_linked(&rig, &expected).await;

    announce(&rig, &[update(&rig, "r0001.txt", "without")]).await;
    until_linked(&rig, &json!([])).await;
}
