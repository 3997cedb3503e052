//! Duplicates of resources at other places, and what else a Source tells a resource is related to (section 14).

use resyncd::config::Config;
use resyncd::demo::{ChannelHub, Fault, SampleOptions, SampleSource};
use resyncd::protocol::{Algorithm, Digest, Entry, Link};
use serde_json::{Value, json};
use url::Url;

use crate::support::{NAME, Rig, SET, change, change_list, eventually, resources, time};

const CHANGES: &str = "/set1/changelist.xml";

/// A Source that is polled when it is asked to be, and a place for duplicates.
async fn rig(change: impl FnOnce(&mut Config)) -> (Rig, SampleSource) {
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let rig = Rig::start_with(options.clone(), change).await;
    rig.settled().await;
    rig.source.wait_for_hits(CHANGES, 1).await;
    (rig, SampleSource::start(options).await.unwrap())
}

fn path(name: &str) -> String {
    format!("/set1/res/{name}")
}

/// An update that tells the digest of these bytes.
fn update(rig: &Rig, name: &str, bytes: &str) -> Entry {
    let mut entry = bare_update(rig, name, bytes);
    entry.md.length = Some(bytes.len() as u64);
    entry.md.hashes = vec![Digest::of(Algorithm::Sha256, bytes.as_bytes())];
    entry
}

/// An update that tells nothing of the bytes.
fn bare_update(rig: &Rig, name: &str, bytes: &str) -> Entry {
    let at = rig.source.update(SET, name, bytes.to_owned());
    change(&rig.source.resource_uri(SET, name), at)
}

/// Puts a duplicate at a path of a place, and tells of it.
fn put(entry: &mut Entry, place: &SampleSource, path: &str, pri: u32, bytes: &str) {
    place.put_document(path, "text/plain", bytes.to_owned());
    let mut link = Link::new("duplicate", place.base().join(path).unwrap());
    link.pri = Some(pri);
    entry.links.push(link);
}

/// Publishes a Change List of these changes, and has the Source polled.
async fn tell(rig: &Rig, entries: &[Entry]) {
    let from = time(rig.set().await.synced_until.unwrap());
    let list = change_list(from, None, None, entries);
    rig.source.put_document(CHANGES, "application/xml", list);
    rig.operator.poll(NAME).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_of_highest_priority_spares_the_source() {
    let (rig, place) = rig(|_| {}).await;
    let own = rig.source.hits(&path("r0001.txt"));
    let mut entry = update(&rig, "r0001.txt", "updated");
    put(&mut entry, &place, "/second", 2, "updated");
    put(&mut entry, &place, "/first", 1, "updated");
    let ftp = Url::parse("ftp://127.0.0.1/first").unwrap();
    entry.links.push(Link {
        pri: Some(0),
        ..Link::new("duplicate", ftp)
    });
    tell(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "updated").await;
    rig.until("in step", |set| set.state == "in-sync").await;
    assert_eq!(place.hits("/first"), 1);
    assert_eq!(place.hits("/second"), 0);
    assert_eq!(rig.source.hits(&path("r0001.txt")), own);
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_that_fail_are_made_up_for_at_once() {
    let (rig, place) = rig(|_| {}).await;
    let own = rig.source.hits(&path("r0001.txt"));
    let mut entry = update(&rig, "r0001.txt", "updated");
    put(&mut entry, &place, "/absent", 1, "updated");
    place.remove_document("/absent");
    put(&mut entry, &place, "/wrong", 2, "outdate");
    put(&mut entry, &place, "/long", 3, "updated, and more");
    put(&mut entry, &place, "/cut", 4, "updated");
    place.fail("/cut", Fault::Truncated, 1);
    tell(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "updated").await;
    let set = rig.until("in step", |set| set.state == "in-sync").await;
    assert!(set.error.is_none(), "{set:?}");
    for path in ["/absent", "/wrong", "/long", "/cut"] {
        // After three failures in a row the host is passed over.
        assert_eq!(place.hits(path), u64::from(path != "/cut"), "{path}");
    }
    assert_eq!(rig.source.hits(&path("r0001.txt")), own + 1);
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_stands_in_for_a_source_that_fails() {
    let (rig, place) = rig(|_| {}).await;
    let own = rig.source.hits(&path("r0001.txt"));
    // Nothing proves these bytes: the duplicate is asked only when there is no other way.
    let mut entry = bare_update(&rig, "r0001.txt", "updated");
    put(&mut entry, &place, "/copy", 1, "updated");
    tell(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "updated").await;
    rig.until("in step", |set| set.state == "in-sync").await;
    assert_eq!(place.hits("/copy"), 0);
    assert_eq!(rig.source.hits(&path("r0001.txt")), own + 1);

    rig.source
        .fail(&path("r0001.txt"), Fault::Status(403), usize::MAX);
    let mut entry = bare_update(&rig, "r0001.txt", "again");
    put(&mut entry, &place, "/copy", 1, "again");
    tell(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "again").await;
    rig.until("in step", |set| set.state == "in-sync").await;
    assert_eq!(place.hits("/copy"), 1);

    // That there is nothing is an answer, too.
    rig.source.heal(&path("r0001.txt"));
    rig.source
        .fail(&path("r0001.txt"), Fault::Status(410), usize::MAX);
    let mut entry = bare_update(&rig, "r0001.txt", "gone");
    put(&mut entry, &place, "/copy", 1, "what was there before");
    tell(&rig, &[entry]).await;
    let set = rig.until("told", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "gone");
    assert_eq!(place.hits("/copy"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_fails_only_if_every_place_does() {
    let (rig, place) = rig(|_| {}).await;
    let own = path("r0001.txt");
    rig.source.fail(&own, Fault::Status(403), usize::MAX);
    let mut entry = update(&rig, "r0001.txt", "updated");
    put(&mut entry, &place, "/copy", 1, "outdate");
    tell(&rig, &[entry]).await;
    let set = rig
        .until("told", |set| set.error.is_some() && set.pending == 1)
        .await;
    // It is tried again, although its own URI is refused for good: the duplicate may be right by then.
    assert_eq!(set.error.unwrap().code, "http-status");
    place.put_document("/copy", "text/plain", "updated");
    rig.until_holds("r0001.txt", "updated").await;
    rig.until("in step", |set| set.state == "in-sync").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_that_is_older_than_the_change_is_not_taken() {
    let (rig, _) = rig(|_| {}).await;
    // Its resources have the length that is told, but date from long ago.
    let place = SampleSource::start(SampleOptions {
        hub: ChannelHub::None,
        start: Some(time("2020-01-01T00:00:00Z")),
        ..resources(3)
    })
    .await
    .unwrap();
    place.update(SET, "r0001.txt", "outdate");
    let mut entry = bare_update(&rig, "r0001.txt", "updated");
    entry.md.length = Some(7);
    let copy = place.resource_uri(SET, "r0001.txt");
    entry.links.push(Link::new("duplicate", copy));
    tell(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "updated").await;
    rig.until("in step", |set| set.state == "in-sync").await;
    assert_eq!(place.hits(&path("r0001.txt")), 1);
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_on_other_hosts_than_the_allowed_ones_are_never_asked() {
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let source = SampleSource::start(options.clone()).await.unwrap();
    let place = SampleSource::start(options).await.unwrap();
    let host = format!("127.0.0.1:{}", source.base().port().unwrap());
    let rig = Rig::follow(source, |config| config.sources[0].hosts = vec![host]).await;
    rig.settled().await;
    let mut entry = update(&rig, "r0001.txt", "updated");
    put(&mut entry, &place, "/copy", 1, "updated");
    tell(&rig, &[entry]).await;
    rig.until_holds("r0001.txt", "updated").await;
    assert_eq!(place.traffic().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn host_of_duplicates_that_keeps_failing_is_passed_over() {
    let (rig, place) = rig(|config| config.http.connections_per_host = 1).await;
    let told = |round: u32| {
        let entries = (0..3).map(|n| {
            let name = format!("r000{n}.txt");
            let mut entry = update(&rig, &name, &format!("round {round}"));
            put(&mut entry, &place, &format!("/{n}"), 1, "wrong");
            entry
        });
        entries.collect::<Vec<Entry>>()
    };
    tell(&rig, &told(1)).await;
    rig.until_mirrored().await;
    assert_eq!(place.traffic().0, 3);
    tell(&rig, &told(2)).await;
    rig.until_mirrored().await;
    assert_eq!(place.traffic().0, 3, "it is left alone for a while");
}

#[tokio::test(flavor = "multi_thread")]
async fn related_resources_are_told_with_a_resource() {
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
        length: Some(6),
        media_type: Some("application/xml".to_owned()),
        hashes: vec![digest.clone()],
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
        eventually("the links", Some(rig.wakes()), async || {
            let found = links(rig).await;
            if found == *expected {
                Ok(())
            } else {
                Err(found.to_string())
            }
        })
        .await;
    };
    tell(&rig, &[entry.clone()]).await;
    rig.until_holds("r0001.txt", "updated").await;
    until_linked(&rig, &expected).await;
    assert_eq!(rig.source.hits("/set1/resourcelist.xml"), 1);

    // The same change, with one link more.
    let mut more = entry;
    more.links.push(Link::new("via", href("original")));
    let mut expected = expected;
    expected
        .as_array_mut()
        .unwrap()
        .push(json!({"rel": "via", "href": "http://example.com/original"}));
    tell(&rig, &[more]).await;
    until_linked(&rig, &expected).await;

    tell(&rig, &[update(&rig, "r0001.txt", "without")]).await;
    until_linked(&rig, &json!([])).await;
}
