//! Cost of polling an unchanged Source: one 304 answer per document that can announce changes.

use resourcesync::{Capability, ChangeKind};
use resyncd_testkit::{ChannelHub, SampleOptions};

use crate::support::{NAME, Rig, SET, resources, soon};

const CAPABILITIES: &str = "/set1/capabilitylist.xml";
const CHANGES: &str = "/set1/changelist.xml";
const DESCRIPTION: &str = "/.well-known/resourcesync";

async fn polled() -> Rig {
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let rig = Rig::start(options).await;
    rig.idle().await;
    rig
}

/// Polls and discovers sets; `last` is the document that the poll requests last. Returns the numbers of requests and of
/// body bytes.
async fn poll(rig: &Rig, last: &str) -> (u64, u64) {
    let (requests, bytes) = rig.source.traffic();
    let (hits, discoveries) = (rig.source.hits(last), rig.source.hits(DESCRIPTION));
    rig.operator.poll(NAME).await;
    rig.source.wait_for_hits(DESCRIPTION, discoveries + 1).await;
    rig.source.wait_for_hits(last, hits + 1).await;
    let now = rig.source.traffic();
    (now.0 - requests, now.1 - bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_of_an_unchanged_source_is_three_304_answers() {
    let rig = polled().await;
    for _ in 0..3 {
        assert_eq!(poll(&rig, CHANGES).await, (3, 0));
    }
    assert_eq!(rig.source.hits_not_modified(CHANGES), 3);
    // The first of them had the validators of the discovery.
    assert_eq!(rig.source.hits_not_modified(CAPABILITIES), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_of_an_unchanged_index_requests_only_its_open_list() {
    let rig = polled().await;
    for name in ["a.txt", "b.txt", "c.txt"] {
        rig.source.roll_change_list(SET);
        rig.source.create(SET, name, name);
    }
    // After the previous list was closed.
    rig.source.create(SET, "d.txt", "d");
    let open = "/set1/changelist-0004.xml";
    poll(&rig, open).await;
    rig.until_mirrored().await;
    rig.until("in sync", |set| set.state == "in-sync").await;
    for _ in 0..3 {
        assert_eq!(poll(&rig, open).await, (4, 0));
    }
    // The index does not change while its open list grows.
    let unchanged = rig.source.hits_not_modified(CHANGES);
    rig.source.update(SET, "r0001.txt", "in the open list");
    let before = rig.source.traffic().0;
    poll(&rig, open).await;
    rig.until_mirrored().await;
    rig.until("in sync", |set| set.state == "in-sync").await;
    // Four documents, and the resource.
    assert_eq!(rig.source.traffic().0 - before, 5);
    assert_eq!(rig.source.hits_not_modified(CHANGES), unchanged + 1);
    // The index changes: closed lists that were read are still not requested.
    rig.source.roll_change_list(SET);
    rig.source.update(SET, "r0002.txt", "in the next list");
    rig.source
        .update(SET, "r0001.txt", "in the next list again");
    poll(&rig, "/set1/changelist-0005.xml").await;
    rig.until_mirrored().await;
    rig.until("in sync", |set| set.state == "in-sync").await;
    for closed in ["/set1/changelist-0001.xml", "/set1/changelist-0002.xml"] {
        assert_eq!(rig.source.hits(closed), 1, "{closed}");
    }
    assert_eq!(poll(&rig, "/set1/changelist-0005.xml").await, (4, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_does_not_download_documents_of_followed_sets() {
    let names: Vec<String> = (0..20).map(|n| format!("set{n}")).collect();
    let rig = Rig::start(SampleOptions {
        sets: names.clone(),
        ..resources(1)
    })
    .await;
    for name in &names {
        rig.until_named(name, "in sync", |set| {
            set.state == "in-sync" && set.channels.iter().all(|c| c.state == "active")
        })
        .await;
    }
    soon("the hub is done", rig.hub().wait_until_processed()).await;
    let downloads = |path: &str| rig.source.downloads(path);
    let capability_lists = || -> Vec<u64> {
        let path = |name: &String| format!("/{name}/capabilitylist.xml");
        names.iter().map(|name| downloads(&path(name))).collect()
    };
    let before = (downloads(DESCRIPTION), capability_lists());
    for round in 1..=3 {
        let hits = rig.source.hits(DESCRIPTION);
        let uri = rig.source.base().join(DESCRIPTION).unwrap();
        let entry = rig
            .source
            .framework_entry(uri, Capability::Description, ChangeKind::Updated);
        let notification = rig.source.framework("set1", &[entry]);
        rig.source.publish(&notification).await.unwrap();
        rig.source.wait_for_hits(DESCRIPTION, hits + 1).await;
        assert_eq!(rig.source.hits_not_modified(DESCRIPTION), round);
    }
    assert_eq!((downloads(DESCRIPTION), capability_lists()), before);

    // A new set costs a download of its Capability List.
    rig.source.add_set("late");
    let uri = rig.source.base().join(DESCRIPTION).unwrap();
    let entry = rig
        .source
        .framework_entry(uri, Capability::Description, ChangeKind::Updated);
    let notification = rig.source.framework("set1", &[entry]);
    rig.source.publish(&notification).await.unwrap();
    rig.until_named("late", "followed", |set| set.state == "in-sync")
        .await;
    assert_eq!(
        (downloads(DESCRIPTION), capability_lists()),
        (before.0 + 1, before.1)
    );
}
