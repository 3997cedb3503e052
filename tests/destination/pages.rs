//! Lists that are published in pages, each of which names the one after it (`rs:ln rel="next"`).

use std::time::Duration;

use resourcesync::{Capability, Entry, Head, Link, Root, SourceTime, write_document};
use resyncd_testkit::{ChannelHub, Fault, SampleOptions, SampleSource};

use crate::support::{NAME, Rig, SET, capability_list, change, eventually, resources, soon, time};

const FIRST: &str = "/set1/resourcelist.xml";
const SECOND: &str = "/set1/resourcelist.xml?page=2";
const THIRD: &str = "/set1/resourcelist.xml?page=3";
const XML: &str = "application/xml";
const AT: &str = "2026-01-02T00:00:00Z";

fn put_page(rig: &Rig, path: &str, at: Option<&str>, names: &[&str], next: Option<&str>) {
    let mut head = Head::new(Root::Urlset, Capability::ResourceList);
    head.md.at = at.map(time);
    put(rig, path, head, next, &entries(rig, names));
}

fn put(rig: &Rig, path: &str, mut head: Head, next: Option<&str>, entries: &[Entry]) {
    let next = next.map(|next| rig.source.base().join(next).unwrap());
    head.links.extend(next.map(|next| Link::new("next", next)));
    rig.source
        .put_document(path, XML, write_document(&head, entries));
}

fn entries(rig: &Rig, names: &[&str]) -> Vec<Entry> {
    let entry = |name: &&str| {
        let mut entry = Entry::new(rig.source.resource_uri(SET, name));
        entry.lastmod = Some(time(format!("2026-01-01T00:00:0{}Z", &name[4..5])));
        entry
    };
    names.iter().map(entry).collect()
}

/// A Source without Change Lists that is polled every second. It has nine resources, of which its Resource List, in three
/// pages, names five.
async fn paged(at: Option<&str>) -> Rig {
    let options = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(9)
    };
    let source = SampleSource::start(options).await.unwrap();
    source.fail(FIRST, Fault::Status(503), usize::MAX);
    let rig = Rig::follow(source, |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
    })
    .await;
    put_page(&rig, FIRST, at, &["r0000.txt", "r0001.txt"], Some(SECOND));
    put_page(&rig, SECOND, at, &["r0002.txt", "r0003.txt"], Some(THIRD));
    put_page(&rig, THIRD, at, &["r0004.txt"], None);
    rig.source.heal(FIRST);
    until_mirrored(&rig, &[0, 1, 2, 3, 4]).await;
    rig.until("in sync", |set| set.state == "in-sync").await;
    rig
}

/// Waits until the mirror holds exactly these resources.
async fn until_mirrored(rig: &Rig, numbers: &[usize]) {
    eventually("listed resources mirrored", Some(rig.wakes()), async || {
        let mirrored: Vec<usize> = (0..9)
            .filter(|number| rig.mirrored(&format!("r{number:04}.txt")).is_some())
            .collect();
        if mirrored == numbers {
            Ok(())
        } else {
            Err(format!("{mirrored:?}"))
        }
    })
    .await;
}

/// Waits for a poll that begins after now, and ends.
async fn wait_for_poll(rig: &Rig) {
    let hits = rig.source.hits(FIRST);
    rig.source.wait_for_hits(FIRST, hits + 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_a_resource_list_is_read() {
    for at in [Some(AT), None] {
        let rig = paged(at).await;
        wait_for_poll(&rig).await;
        let before = [SECOND, THIRD].map(|page| rig.source.downloads(page));
        put_page(&rig, SECOND, at, &["r0003.txt", "r0005.txt"], Some(THIRD));
        until_mirrored(&rig, &[0, 1, 3, 4, 5]).await;
        // The page before the last one becomes the last.
        put_page(&rig, SECOND, at, &["r0003.txt", "r0005.txt"], None);
        until_mirrored(&rig, &[0, 1, 3, 5]).await;
        let after = [SECOND, THIRD].map(|page| rig.source.downloads(page));
        if at.is_some() {
            assert_eq!(
                after[1], before[1],
                "the unchanged page is requested conditionally"
            );
        }
        assert!(after[0] > before[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_with_a_page_that_can_not_be_read_deletes_nothing() {
    let rig = paged(Some(AT)).await;
    rig.source.fail(THIRD, Fault::Status(404), usize::MAX);
    put_page(
        &rig,
        FIRST,
        Some("2026-01-03T00:00:00Z"),
        &["r0000.txt"],
        Some(SECOND),
    );
    let set = rig.until("error", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "not-found");
    wait_for_poll(&rig).await;
    until_mirrored(&rig, &[0, 1, 2, 3, 4]).await;
    assert_eq!(set.synced_until.as_deref(), Some(AT));
    rig.source.heal(THIRD);
    until_mirrored(&rig, &[0, 2, 3, 4]).await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.error.is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_that_leads_back_to_itself_ends_the_reading_and_is_reported() {
    let rig = paged(Some(AT)).await;
    put_page(&rig, THIRD, Some(AT), &["r0006.txt"], Some(SECOND));
    put_page(
        &rig,
        FIRST,
        Some("2026-01-03T00:00:00Z"),
        &["r0000.txt", "r0001.txt"],
        Some(SECOND),
    );
    let set = rig.until("error", |set| set.error.is_some()).await;
    let error = set.error.unwrap();
    assert_eq!(error.code, "repeated-page");
    assert!(error.message.contains("page=2"), "{}", error.message);
    // What the pages name is mirrored, and what they name no more is not proven to be gone.
    until_mirrored(&rig, &[0, 1, 2, 3, 4, 6]).await;
}

/// A page that was made later than the others may miss what moved from it to one before it.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_different_times_are_read_twice_before_they_delete() {
    let rig = paged(Some(AT)).await;
    let later = Some("2026-01-03T00:00:00Z");
    put_page(&rig, FIRST, later, &["r0000.txt"], Some(SECOND));
    until_mirrored(&rig, &[0, 2, 3, 4]).await;
    let set = rig.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!(
        set.synced_until.as_deref(),
        Some(AT),
        "the oldest page counts"
    );
}

/// A Source whose Change List, in two pages, begins at the time of its Resource List.
async fn paged_changes() -> (Rig, SourceTime, [Entry; 2]) {
    let options = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(4)
    };
    let rig = Rig::start_with(options, |_| {}).await;
    rig.settled().await;
    let start = time(rig.set().await.synced_until.unwrap());
    let entries = ["r0000.txt", "r0001.txt"].map(|name| update(&rig, name, "first"));
    put_changes(&rig, "/1.xml", start, Some("/2.xml"), &entries[..1]);
    put_changes(&rig, "/2.xml", start, None, &entries[1..]);
    let base = rig.source.base();
    let (listed, changed) = (base.join(FIRST).unwrap(), base.join("/1.xml").unwrap());
    let capabilities = capability_list(&[
        (&listed, Capability::ResourceList),
        (&changed, Capability::ChangeList),
    ]);
    rig.source
        .put_document("/set1/capabilitylist.xml", XML, capabilities);
    (rig, start, entries)
}

fn update(rig: &Rig, name: &str, bytes: &str) -> Entry {
    let at = rig.source.update(SET, name, bytes.to_owned());
    change(&rig.source.resource_uri(SET, name), at)
}

fn put_changes(rig: &Rig, path: &str, from: SourceTime, next: Option<&str>, entries: &[Entry]) {
    let mut head = Head::new(Root::Urlset, Capability::ChangeList);
    head.md.from = Some(from);
    put(rig, path, head, next, entries);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_a_change_list_is_read() {
    let (rig, start, [_, second]) = paged_changes().await;
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    let covered = second.changed_at().unwrap().to_string();
    rig.until("in sync", |set| {
        set.synced_until.as_deref() == Some(&covered)
    })
    .await;
    // Only the last page changes, and a page is added.
    let third = update(&rig, "r0002.txt", "second");
    let fourth = update(&rig, "r0003.txt", "second");
    let covered = fourth.changed_at().unwrap().to_string();
    put_changes(&rig, "/2.xml", start, Some("/3.xml"), &[second, third]);
    put_changes(&rig, "/3.xml", start, None, &[fourth]);
    let before = rig.source.hits_not_modified("/1.xml");
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    rig.until("in sync", |set| {
        set.synced_until.as_deref() == Some(&covered)
    })
    .await;
    assert!(rig.source.hits_not_modified("/1.xml") > before);
    // None changes but one that only an unchanged one names.
    let fifth = update(&rig, "r0000.txt", "third");
    put_changes(&rig, "/3.xml", start, None, &[fifth]);
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_list_with_a_page_that_can_not_be_read_covers_nothing() {
    let (rig, start, _) = paged_changes().await;
    rig.source.fail("/2.xml", Fault::Status(404), usize::MAX);
    rig.operator.poll(NAME).await;
    let set = rig.until("error", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "not-found");
    assert_eq!(set.synced_until, Some(start.to_string()));
    soon(
        "the first page is applied",
        rig.until_holds("r0000.txt", "first"),
    )
    .await;
    rig.source.heal("/2.xml");
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
}
