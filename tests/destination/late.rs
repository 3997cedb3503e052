//! Changes that are stated after others that happened later: an entry is news if it is newer than what is known of its own
//! resource, whatever time is covered already.

use resourcesync::{Capability, ChangeKind, Entry, Head, Root, SourceTime, write_document};
use resyncd_testkit::{ChannelHub, Notification, SampleOptions};

use crate::support::{NAME, Rig, SET, capability_list, change, change_list, resources, time};

const XML: &str = "application/xml";

/// A Source whose Change List the test writes.
async fn with_own_change_list() -> (Rig, SourceTime) {
    let options = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(4)
    };
    let rig = Rig::start_with(options, |_| {}).await;
    rig.settled().await;
    let start = time(rig.set().await.synced_until.unwrap());
    let base = rig.source.base();
    let capabilities = capability_list(&[
        (
            &base.join("/set1/resourcelist.xml").unwrap(),
            Capability::ResourceList,
        ),
        (&base.join("/changes.xml").unwrap(), Capability::ChangeList),
    ]);
    rig.source
        .put_document("/set1/capabilitylist.xml", XML, capabilities);
    (rig, start)
}

fn entry(rig: &Rig, name: &str, kind: ChangeKind, bytes: &'static str) -> Entry {
    let source = &rig.source;
    let at = match kind {
        ChangeKind::Created => source.create(SET, name, bytes),
        ChangeKind::Updated => source.update(SET, name, bytes),
        ChangeKind::Deleted => source.delete(SET, name),
    };
    let mut entry = change(&source.resource_uri(SET, name), at);
    entry.md.change = Some(kind);
    entry
}

async fn read(rig: &Rig, start: SourceTime, entries: &[Entry]) {
    let list = change_list(start, None, None, entries);
    rig.source.put_document("/changes.xml", XML, list);
    rig.operator.poll(NAME).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_appear_between_known_ones_are_applied() {
    use ChangeKind::{Created, Deleted, Updated};
    for newest_first in [false, true] {
        let (rig, start) = with_own_change_list().await;
        let created = entry(&rig, "late.txt", Created, "late");
        let updated = entry(&rig, "r0000.txt", Updated, "late");
        let deleted = entry(&rig, "r0001.txt", Deleted, "");
        let known = entry(&rig, "r0002.txt", Updated, "in time");
        let last = entry(&rig, "r0003.txt", Updated, "in time");
        let mut entries = vec![known, last];
        if newest_first {
            entries.reverse();
        }
        read(&rig, start, &entries).await;
        rig.until_holds("r0003.txt", "in time").await;
        let set = rig.until("in sync", |set| set.state == "in-sync").await;
        assert!(rig.mirrored("late.txt").is_none());
        let place = if newest_first { 2 } else { 0 };
        entries.splice(place..place, [created, updated, deleted]);
        read(&rig, start, &entries).await;
        rig.until_mirrored().await;
        let again = rig.until("in sync", |set| set.state == "in-sync").await;
        assert_eq!(again.synced_until, set.synced_until);
        // Read once more, nothing is news.
        let since = rig.operator.last_change().await;
        entries.push(entry(&rig, "r0002.txt", Updated, "last"));
        read(&rig, start, &entries).await;
        rig.until_holds("r0002.txt", "last").await;
        // The file is in place before its line is in the feed.
        rig.until("in sync", |set| set.state == "in-sync").await;
        let lines = rig.operator.changes(since).await;
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
}

/// An update that was listed late was replaced since: the document states both, and only the newer one is fetched.
#[tokio::test(flavor = "multi_thread")]
async fn of_late_entries_of_a_resource_only_the_newest_counts() {
    use ChangeKind::{Created, Deleted, Updated};
    let (rig, start) = with_own_change_list().await;
    let created = entry(&rig, "a.txt", Created, "a");
    let deleted = entry(&rig, "a.txt", Deleted, "");
    let last = entry(&rig, "r0003.txt", Updated, "in time");
    read(&rig, start, std::slice::from_ref(&last)).await;
    rig.until_holds("r0003.txt", "in time").await;
    let next = entry(&rig, "r0003.txt", Updated, "next");
    let hits = rig
        .source
        .hits(rig.source.resource_uri(SET, "a.txt").path());
    read(&rig, start, &[created, deleted, last, next]).await;
    rig.until_holds("r0003.txt", "next").await;
    rig.until("in sync", |set| set.state == "in-sync" && set.failed == 0)
        .await;
    assert_eq!(
        rig.source
            .hits(rig.source.resource_uri(SET, "a.txt").path()),
        hits
    );
}

/// A change that is too big for one notification is sent in two, of the same interval.
#[tokio::test(flavor = "multi_thread")]
async fn second_notification_of_an_interval_is_applied() {
    let rig = Rig::start(resources(4)).await;
    // A poll would bring both updates, so that the second notification had no news.
    rig.idle().await;
    let entries = ["r0000.txt", "r0001.txt"].map(|name| {
        let at = rig.source.update(SET, name, "in two parts");
        change(&rig.source.resource_uri(SET, name), at)
    });
    let whole = rig.source.notify(SET);
    let interval = whole.interval.unwrap();
    for entry in entries {
        let mut head = Head::new(Root::Urlset, Capability::ChangeNotification);
        (head.md.from, head.md.until) = (Some(interval.from()), Some(interval.until()));
        let half = Notification {
            entries: 1,
            body: write_document(&head, [&entry]).into(),
            ..whole.clone()
        };
        rig.source.publish(&half).await.unwrap();
    }
    rig.until_mirrored().await;
    rig.until("both applied", |set| {
        let applied: u64 = set.channels.iter().map(|channel| channel.applied).sum();
        set.state == "in-sync" && applied == 2
    })
    .await;
}
