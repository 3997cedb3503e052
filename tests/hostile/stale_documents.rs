//! Stale documents, as served by a cache or a restored backup: nothing is reverted or deleted, and the set continues with newer
//! documents.

use std::time::Duration;

use resourcesync::{Capability, Entry, Head, Root, write_document};
use resyncd_testkit::{ChannelHub, DumpOptions, SampleOptions, SampleSource};

use crate::support::{NAME, Rig, SET, capability_list, client, resources, soon, time};

const RESOURCE_LIST: &str = "/set1/resourcelist.xml";
const CHANGE_LIST: &str = "/set1/changelist.xml";

/// A document as the Source serves it now.
async fn served(rig: &Rig, path: &str) -> Vec<u8> {
    let url = rig.source.base().join(path).unwrap();
    let answer = client().get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    answer.bytes().await.unwrap().to_vec()
}

/// Has the Source serve a document of a test, and waits for a poll that requests it.
async fn serve_again(rig: &Rig, path: &str, body: &[u8]) {
    rig.source
        .put_document(path, "application/xml", body.to_vec());
    polled(rig, path).await;
}

async fn polled(rig: &Rig, path: &str) {
    let hits = rig.source.hits(path);
    rig.operator.poll(NAME).await;
    soon("polled", rig.source.wait_for_hits(path, hits + 1)).await;
}

async fn until_error(rig: &Rig, code: &str) {
    rig.until(code, |set| {
        set.error.as_ref().map(|error| error.code.as_str()) == Some(code)
    })
    .await;
}

/// A set that has only a Resource List.
fn only_listed() -> SampleOptions {
    SampleOptions {
        hub: ChannelHub::None,
        change_list: false,
        ..resources(5)
    }
}

/// Makes a change of each kind.
fn change_all(rig: &Rig) {
    rig.source.create(SET, "new.txt", "created");
    rig.source.update(SET, "r0001.txt", "updated");
    rig.source.delete(SET, "r0002.txt");
}

/// Serves an earlier baseline document and the current one alternately. `refresh` makes the current one.
async fn check_baseline(options: SampleOptions, path: &str, refresh: impl Fn(&SampleSource)) {
    let rig = Rig::start(options).await;
    rig.settled().await;
    let stale = served(&rig, path).await;
    change_all(&rig);
    refresh(&rig.source);
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    rig.settled().await;
    let since = rig.operator.last_change().await;
    for round in 0..2 {
        serve_again(&rig, path, &stale).await;
        until_error(&rig, "older-resource-list").await;
        rig.assert_mirrored();
        assert_eq!(rig.operator.last_change().await, since, "round {round}");
        rig.source.remove_document(path);
        polled(&rig, path).await;
        let healed = rig.until("healed", |set| set.error.is_none()).await;
        assert_eq!((healed.pending, healed.failed), (0, 0));
        rig.assert_mirrored();
        assert_eq!(rig.operator.last_change().await, since, "round {round}");
    }
    serve_again(&rig, path, &stale).await;
    rig.source.update(SET, "r0003.txt", "newer");
    rig.source.remove_document(path);
    refresh(&rig.source);
    rig.operator.poll(NAME).await;
    rig.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_resource_list_reverts_nothing() {
    check_baseline(only_listed(), RESOURCE_LIST, |source| {
        source.refresh_resource_list(SET);
    })
    .await;
}

/// A document without the times of its entries, so that only its own time shows that it is stale.
fn without_lastmod(list: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(list.to_vec()).unwrap();
    let mut pieces = text.split("<lastmod>");
    let mut rest = pieces.next().unwrap().to_owned();
    for piece in pieces {
        rest += piece.split_once("</lastmod>").unwrap().1;
    }
    rest.into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_a_stale_resource_list_are_not_fetched() {
    let rig = Rig::start(only_listed()).await;
    rig.settled().await;
    let stale = without_lastmod(&served(&rig, RESOURCE_LIST).await);
    // It names a resource that was deleted before the baseline.
    let gone = "/set1/res/gone.txt";
    rig.source.put_document(gone, "text/plain", "gone");
    let named = format!("<url><loc>{gone}</loc></url></urlset>");
    let stale = String::from_utf8(stale)
        .unwrap()
        .replace("</urlset>", &named);
    rig.source.update(SET, "r0001.txt", "updated");
    rig.source.refresh_resource_list(SET);
    let new = without_lastmod(&served(&rig, RESOURCE_LIST).await);
    serve_again(&rig, RESOURCE_LIST, &new).await;
    rig.settled().await;
    let fetched = rig.source.hits("/set1/res/r0001.txt");
    serve_again(&rig, RESOURCE_LIST, stale.as_bytes()).await;
    until_error(&rig, "older-resource-list").await;
    // Its statement about the resource matches neither the mirror nor the Source.
    serve_again(&rig, RESOURCE_LIST, &new).await;
    let healed = rig.until("healed", |set| set.error.is_none()).await;
    assert_eq!((healed.pending, healed.failed), (0, 0));
    assert_eq!(rig.source.hits("/set1/res/r0001.txt"), fetched);
    assert_eq!(rig.source.hits(gone), 0);
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_resource_dump_reverts_nothing() {
    let dumped = SampleOptions {
        resource_list: false,
        dumps: DumpOptions {
            resource_dump: true,
            ..DumpOptions::default()
        },
        ..only_listed()
    };
    check_baseline(dumped, "/set1/resourcedump.xml", |source| {
        source.refresh_resource_dump(SET);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_are_applied_beside_a_stale_resource_list() {
    let rig = Rig::start(SampleOptions {
        change_list: false,
        ..resources(5)
    })
    .await;
    rig.settled().await;
    let stale = served(&rig, RESOURCE_LIST).await;
    change_all(&rig);
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.source.refresh_resource_list(SET);
    polled(&rig, RESOURCE_LIST).await;
    rig.settled().await;
    serve_again(&rig, RESOURCE_LIST, &stale).await;
    until_error(&rig, "older-resource-list").await;
    rig.source.update(SET, "r0003.txt", "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_change_list_reverts_nothing() {
    let rig = Rig::start(SampleOptions {
        hub: ChannelHub::None,
        ..resources(5)
    })
    .await;
    rig.settled().await;
    rig.source.update(SET, "r0001.txt", "first");
    rig.operator.poll(NAME).await;
    rig.until_holds("r0001.txt", "first").await;
    let stale = served(&rig, CHANGE_LIST).await;
    change_all(&rig);
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    rig.settled().await;
    let since = rig.operator.last_change().await;
    let covered = rig.set().await.synced_until;
    let fetched = rig.source.hits("/set1/res/r0001.txt");
    for round in 0..2 {
        serve_again(&rig, CHANGE_LIST, &stale).await;
        until_error(&rig, "older-change-list").await;
        rig.assert_mirrored();
        assert_eq!(rig.set().await.synced_until, covered, "round {round}");
        rig.source.remove_document(CHANGE_LIST);
        polled(&rig, CHANGE_LIST).await;
        let healed = rig.until("healed", |set| set.error.is_none()).await;
        assert_eq!((healed.pending, healed.state.as_str()), (0, "in-sync"));
        assert_eq!(rig.operator.last_change().await, since, "round {round}");
    }
    assert_eq!(rig.source.hits("/set1/res/r0001.txt"), fetched);
    serve_again(&rig, CHANGE_LIST, &stale).await;
    rig.source.update(SET, "r0003.txt", "newer");
    rig.source.remove_document(CHANGE_LIST);
    rig.operator.poll(NAME).await;
    rig.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_change_dump_reverts_nothing() {
    const DUMP: &str = "/set1/changedump.xml";
    for indexed in [false, true] {
        let mut rig = Rig::start(SampleOptions {
            dumps: DumpOptions {
                change_dump: true,
                indexed,
                ..DumpOptions::default()
            },
            ..only_listed()
        })
        .await;
        rig.settled().await;
        rig.source.update(SET, "r0001.txt", "first");
        rig.source.pack_changes(SET);
        rig.operator.poll(NAME).await;
        rig.until_holds("r0001.txt", "first").await;
        let stale = served(&rig, DUMP).await;
        change_all(&rig);
        rig.source.pack_changes(SET);
        rig.operator.poll(NAME).await;
        rig.until_mirrored().await;
        rig.settled().await;
        let since = rig.operator.last_change().await;
        let covered = rig.set().await.synced_until;
        for round in 0..3 {
            serve_again(&rig, DUMP, &stale).await;
            if round < 2 {
                until_error(&rig, "older-change-dump").await;
            } else {
                // A restart forgets that a newer document was read before.
                rig.stop_daemon().await;
                rig.start_daemon().await;
                rig.settled().await;
            }
            assert_eq!(rig.set().await.synced_until, covered, "round {round}");
            rig.assert_mirrored();
            rig.source.remove_document(DUMP);
            polled(&rig, DUMP).await;
            let healed = rig.until("healed", |set| set.error.is_none()).await;
            assert_eq!((healed.pending, healed.state.as_str()), (0, "in-sync"));
            assert_eq!(rig.operator.last_change().await, since, "round {round}");
        }
        for package in 1..=2 {
            let path = format!("/set1/changedump-{package:04}.zip");
            assert!(rig.source.hits(&path) <= 1, "{path}");
        }
        serve_again(&rig, DUMP, &stale).await;
        rig.source.update(SET, "r0003.txt", "newer");
        rig.source.pack_changes(SET);
        rig.source.remove_document(DUMP);
        rig.operator.poll(NAME).await;
        rig.until_mirrored().await;
        rig.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_capability_list_deletes_nothing() {
    let rig = Rig::start(resources(5)).await;
    rig.settled().await;
    // It is older than the Change Lists, the channels and most of the resources.
    let stale = "/set1/old.xml";
    let list = rig.source.base().join(stale).unwrap();
    let old_list = capability_list(&[(&list, Capability::ResourceList)]);
    let mut head = Head::new(Root::Urlset, Capability::ResourceList);
    head.md.at = Some(time("2020-01-01"));
    let only = Entry::new(rig.source.resource_uri(SET, "r0000.txt"));
    rig.source
        .put_document(stale, "application/xml", write_document(&head, &[only]));
    let path = "/set1/capabilitylist.xml";
    for round in 0..2 {
        serve_again(&rig, path, &old_list).await;
        soon("read", rig.source.wait_for_hits(stale, 1)).await;
        until_error(&rig, "older-resource-list").await;
        rig.assert_mirrored();
        rig.source.remove_document(path);
        polled(&rig, path).await;
        rig.source
            .update(SET, "r0001.txt", format!("polled {round}"));
        rig.operator.poll(NAME).await;
        rig.settled().await;
        rig.source
            .update(SET, "r0002.txt", format!("pushed {round}"));
        rig.source.notify_and_publish(SET).await.unwrap();
        rig.until_mirrored().await;
    }
}

/// A set whose documents are older than `stale_after` is in sync as far as anybody can know, and waits for a person.
#[tokio::test(flavor = "multi_thread")]
async fn source_that_publishes_nothing_for_long_is_reported() {
    const YEAR: u64 = 365 * 24 * 3600;
    for stale_after in [None, Some(Duration::from_secs(30 * 24 * 3600))] {
        let options = SampleOptions {
            start: Some(time("2020-01-01T00:00:00Z")),
            ..resources(3)
        };
        let rig = Rig::start_with(options, |config| {
            config.sources[0].stale_after = stale_after;
        })
        .await;
        let set = rig.settled().await;
        assert!(set.newest_document_at.unwrap().starts_with("2020-01-01"));
        assert!(set.seconds_since_newest_document.unwrap() > 5 * YEAR);
        assert_eq!(set.state, "in-sync");
        let stale = set.attention.iter().find(|it| it.code == "stale");
        assert_eq!(stale.is_some(), stale_after.is_some());
        assert!(stale.is_none_or(|it| it.message.contains("stale_after")));
    }
    // A Source that publishes is not.
    let rig = Rig::start_with(resources(3), |config| {
        config.sources[0].stale_after = Some(Duration::from_secs(30 * 24 * 3600));
    })
    .await;
    let set = rig.settled().await;
    assert!(set.attention.iter().all(|it| it.code != "stale"));
}
