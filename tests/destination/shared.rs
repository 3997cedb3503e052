//! Resources that belong to several sets.

use resourcesync::{Capability, ChangeKind, Entry, Head, Root, write_document};
use resyncd_testkit::{ChannelHub, Fault, SampleOptions, SampleSource};

use super::packing::poll_twice;
use crate::support::{NAME, Rig, SET, capability_list, change, change_list, resources, time};

const XML: &str = "application/xml";
const OTHER: &str = "set2";
const AT: &str = "2026-01-02T00:00:00Z";

const NAMES: [&str; 3] = ["r0000.txt", "r0001.txt", "r0002.txt"];

/// Two sets: one lists all resources, the other one some of the same.
async fn two_sets(of_other: &[&str]) -> SampleSource {
    let options = SampleOptions {
        sets: vec![SET.to_owned(), OTHER.to_owned()],
        change_list: false,
        hub: ChannelHub::None,
        ..resources(3)
    };
    let source = SampleSource::start(options).await.unwrap();
    for (set, names) in [(SET, &NAMES[..]), (OTHER, of_other)] {
        let entries = names.iter().map(|name| {
            let mut entry = Entry::new(source.resource_uri(SET, name));
            entry.lastmod = Some(time("2026-01-01T00:00:00Z"));
            entry
        });
        let entries: Vec<Entry> = entries.collect();
        let mut head = Head::new(Root::Urlset, Capability::ResourceList);
        head.md.at = Some(time(AT));
        let list = write_document(&head, &entries);
        source.put_document(&format!("/{set}/resourcelist.xml"), XML, list);
        let base = source.base();
        let uri = |file: &str| base.join(&format!("/{set}/{file}.xml")).unwrap();
        let capabilities = capability_list(&[
            (&uri("resourcelist"), Capability::ResourceList),
            (&uri("changes"), Capability::ChangeList),
        ]);
        source.put_document(&format!("/{set}/capabilitylist.xml"), XML, capabilities);
        source.put_document(
            &format!("/{set}/changes.xml"),
            XML,
            change_list(time(AT), None, None, &[]),
        );
    }
    source
}

/// Two sets that list all resources of the first one.
async fn sharing() -> Rig {
    let rig = Rig::follow(two_sets(&NAMES).await, |_| {}).await;
    for set in [SET, OTHER] {
        until_resources(&rig, set, 3).await;
    }
    rig
}

async fn until_resources(rig: &Rig, set: &str, count: u64) {
    rig.until_named(set, "resources", |set| {
        set.resources == count && set.state == "in-sync" && set.pending == 0
    })
    .await;
}

/// A Change List of a set that states a deletion.
fn put_deletion(rig: &Rig, set: &str, name: &str, at: &str) {
    put_deletions(rig, set, &[name], at);
}

fn put_deletions(rig: &Rig, set: &str, names: &[&str], at: &str) {
    let deletions = names.iter().map(|name| {
        let mut deletion = change(&rig.source.resource_uri(SET, name), time(at));
        deletion.md.change = Some(ChangeKind::Deleted);
        deletion
    });
    let deletions: Vec<Entry> = deletions.collect();
    let list = change_list(time(AT), None, None, &deletions);
    rig.source
        .put_document(&format!("/{set}/changes.xml"), XML, list);
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_that_leaves_one_of_two_sets_stays() {
    let rig = sharing().await;
    let since = rig.operator.last_change().await;
    put_deletion(&rig, SET, "r0001.txt", "2026-01-03T00:00:00Z");
    rig.operator.poll(NAME).await;
    until_resources(&rig, SET, 2).await;
    until_resources(&rig, OTHER, 3).await;
    assert!(rig.mirrored("r0001.txt").is_some());
    assert!(rig.operator.changes(since).await.is_empty());
    // The same entry, read again, costs no further request.
    let hits = rig
        .source
        .hits(rig.source.resource_uri(SET, "r0001.txt").path());
    put_deletion(&rig, SET, "r0001.txt", "2026-01-03T00:00:00Z");
    poll_twice(&rig, "/set1/changes.xml").await;
    // The last set drops it.
    put_deletion(&rig, OTHER, "r0001.txt", "2026-01-04T00:00:00Z");
    rig.operator.poll(NAME).await;
    until_resources(&rig, OTHER, 2).await;
    assert!(rig.mirrored("r0001.txt").is_none());
    assert_eq!(
        rig.source
            .hits(rig.source.resource_uri(SET, "r0001.txt").path()),
        hits
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_that_is_not_served_any_more_goes_from_both_sets() {
    let rig = sharing().await;
    rig.source.delete(SET, "r0001.txt");
    put_deletion(&rig, SET, "r0001.txt", "2026-01-03T00:00:00Z");
    rig.operator.poll(NAME).await;
    until_resources(&rig, SET, 2).await;
    until_resources(&rig, OTHER, 2).await;
    assert!(rig.mirrored("r0001.txt").is_none());
}

/// Whether a set has the resources that another one deletes is not known before it is read.
#[tokio::test(flavor = "multi_thread")]
async fn deletions_of_one_set_wait_for_another_that_was_never_read() {
    let [gone, shared, unlisted] = NAMES;
    let list = "/set2/resourcelist.xml";
    let source = two_sets(&[shared]).await;
    source.fail(list, Fault::Status(503), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    until_resources(&rig, SET, 3).await;
    let since = rig.operator.last_change().await;

    rig.source.delete(SET, gone);
    put_deletions(&rig, SET, &NAMES, "2026-01-03T00:00:00Z");
    rig.operator.poll(NAME).await;
    let waiting = rig
        .until_named(SET, "what is not served is removed", |set| {
            let error = set.error.as_ref();
            set.resources == 2 && error.is_some_and(|error| error.code == "deletion-waits")
        })
        .await;
    assert_eq!(
        (waiting.state.as_str(), waiting.pending),
        ("catching-up", 2)
    );
    let mirrored = || NAMES.map(|name| rig.mirrored(name).is_some());
    assert_eq!(mirrored(), [false, true, true]);

    rig.source.heal(list);
    rig.operator.poll(NAME).await;
    until_resources(&rig, SET, 0).await;
    until_resources(&rig, OTHER, 1).await;
    assert_eq!(mirrored(), [false, true, false]);
    let feed = rig.operator.changes(since).await.into_iter();
    let feed: Vec<(String, String)> = feed.map(|line| (line.change, line.uri)).collect();
    let deleted = |name| ("deleted".to_owned(), rig.uri(name));
    assert_eq!(feed, [deleted(gone), deleted(unlisted)]);
}

/// The set that is behind states a time before that at which another set dropped the resource.
#[tokio::test(flavor = "multi_thread")]
async fn resource_that_left_one_set_is_mirrored_for_another_that_is_behind() {
    let rig = Rig::follow(two_sets(&[]).await, |_| {}).await;
    until_resources(&rig, SET, 3).await;
    until_resources(&rig, OTHER, 0).await;
    let [moved, ..] = NAMES;
    put_deletion(&rig, SET, moved, "2026-01-05T00:00:00Z");
    rig.operator.poll(NAME).await;
    until_resources(&rig, SET, 2).await;
    assert!(rig.mirrored(moved).is_none());

    let created = change(
        &rig.source.resource_uri(SET, moved),
        time("2026-01-04T00:00:00Z"),
    );
    let list = change_list(time(AT), None, None, &[created]);
    rig.source.put_document("/set2/changes.xml", XML, list);
    rig.operator.poll(NAME).await;
    until_resources(&rig, OTHER, 1).await;
    until_resources(&rig, SET, 2).await;
    assert!(rig.mirrored(moved).is_some());
}
