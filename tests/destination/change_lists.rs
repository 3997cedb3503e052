//! Finding the next Change List when one is closed or replaced (section 12.1).

use resourcesync::{Capability, Entry, Head, Root, SourceTime, write_document};
use resyncd_testkit::{ChannelHub, Fault, SampleOptions};
use url::Url;

use super::packing::poll_twice;
use crate::support::{
    NAME, Rig, SET, capability_list, change, change_list, change_list_index, resources, soon, time,
};

const CAPABILITIES: &str = "/set1/capabilitylist.xml";
const RESOURCES: &str = "/set1/resourcelist.xml";
const XML: &str = "application/xml";

/// A Source with Change Lists written by the test.
struct Lists {
    rig: Rig,
    /// `from` of the first list.
    start: SourceTime,
}

impl Lists {
    async fn new() -> Self {
        let rig = Rig::start_with(
            SampleOptions {
                change_list: false,
                hub: ChannelHub::None,
                ..resources(4)
            },
            |_| {},
        )
        .await;
        rig.idle().await;
        let start = time(rig.set().await.synced_until.unwrap());
        Self { rig, start }
    }

    fn uri(&self, path: &str) -> Url {
        self.rig.source.base().join(path).unwrap()
    }

    /// An update of a resource.
    fn update(&self, name: &str, bytes: &str) -> Entry {
        let at = self.rig.source.update(SET, name, bytes.to_owned());
        change(&self.rig.source.resource_uri(SET, name), at)
    }

    fn put(&self, path: &str, document: Vec<u8>) {
        self.rig.source.put_document(path, XML, document);
    }

    /// The Capability List that names this Change List.
    fn naming(&self, list: &str) -> Vec<u8> {
        capability_list(&[
            (&self.uri(RESOURCES), Capability::ResourceList),
            (&self.uri(list), Capability::ChangeList),
        ])
    }

    /// Polls, and waits until mirror and Source are equal. There must be no gap, and no fetch of the Resource List.
    async fn poll(&self) {
        let lists = self.rig.source.hits(RESOURCES);
        self.rig.operator.poll(NAME).await;
        self.rig.until_mirrored().await;
        let set = self.rig.idle().await;
        assert!(set.gaps.is_empty() && set.error.is_none(), "{set:?}");
        assert_eq!(self.rig.source.hits(RESOURCES), lists);
    }
}

/// A list is replaced by another. Entries that were added to the former list before that are still read. `restart`: the
/// daemon is stopped while the list is replaced.
async fn check_replaced(restart: bool) {
    let mut lists = Lists::new().await;
    let mut former = vec![lists.update("r0000.txt", "first")];
    lists.put("/1.xml", change_list(lists.start, None, None, &former));
    lists.put(CAPABILITIES, lists.naming("/1.xml"));
    lists.poll().await;

    if restart {
        lists.rig.stop_daemon().await;
    }
    former.push(lists.update("r0001.txt", "second"));
    let begins = lists.rig.source.boundary();
    let next = lists.update("r0002.txt", "third");
    lists.put(
        "/1.xml",
        change_list(lists.start, Some(begins), None, &former),
    );
    lists.put("/2.xml", change_list(begins, None, None, &[next]));
    lists.put(CAPABILITIES, lists.naming("/2.xml"));
    if restart {
        lists.rig.start_daemon().await;
    }
    lists.poll().await;

    // The former list is not read again.
    let hits = lists.rig.source.hits("/1.xml");
    poll_twice(&lists.rig, "/2.xml").await;
    assert_eq!(lists.rig.source.hits("/1.xml"), hits);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_list_is_read_to_its_end_when_it_is_replaced() {
    check_replaced(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_list_is_read_to_its_end_when_it_is_replaced_during_downtime() {
    check_replaced(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_of_a_removed_change_list_is_closed_by_the_resource_list() {
    let lists = Lists::new().await;
    let first = lists.update("r0000.txt", "first");
    lists.put("/1.xml", change_list(lists.start, None, None, &[first]));
    lists.put(CAPABILITIES, lists.naming("/1.xml"));
    lists.poll().await;

    lists.update("r0001.txt", "stated by no document");
    let begins = lists.rig.source.boundary();
    let next = lists.update("r0002.txt", "next");
    lists.rig.source.remove_document("/1.xml");
    lists.put("/2.xml", change_list(begins, None, None, &[next]));
    lists.put(CAPABILITIES, lists.naming("/2.xml"));
    lists.rig.operator.poll(NAME).await;
    let set = lists.rig.until("gap", |set| set.state == "gap").await;
    assert_eq!(set.gaps[0].reason, "change-list-starts-late");
    lists.rig.source.refresh_resource_list(SET);
    lists.rig.operator.poll(NAME).await;
    lists.rig.until_mirrored().await;
    lists
        .rig
        .until("in sync", |set| set.state == "in-sync")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_list_after_a_closed_one_is_found_in_the_capability_list() {
    let lists = Lists::new().await;
    let first = lists.update("r0000.txt", "first");
    let second_begins = lists.rig.source.boundary();
    let second = lists.update("r0001.txt", "second");
    let third_begins = lists.rig.source.boundary();
    let third = lists.update("r0002.txt", "third");
    let closed = |from, until, entry| change_list(from, Some(until), None, &[entry]);
    lists.put("/1.xml", closed(lists.start, second_begins, first));
    lists.put("/2.xml", closed(second_begins, third_begins, second));
    lists.put("/3.xml", change_list(third_begins, None, None, &[third]));
    // Each request for the Capability List returns the next version.
    for (path, list) in [("/caps-1.xml", "/1.xml"), ("/caps-2.xml", "/2.xml")] {
        lists.put(path, lists.naming(list));
        let source = &lists.rig.source;
        source.fail(CAPABILITIES, Fault::Redirect(path.to_owned()), 1);
    }
    lists.put(CAPABILITIES, lists.naming("/3.xml"));
    let requests = lists.rig.source.hits(CAPABILITIES);
    lists.poll().await;
    assert_eq!(lists.rig.source.hits(CAPABILITIES), requests + 3);
    assert_eq!(lists.rig.source.hits("/3.xml"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_list_that_the_capability_list_still_names_is_read_once() {
    let lists = Lists::new().await;
    let first = lists.update("r0000.txt", "first");
    let until = lists.rig.source.boundary();
    lists.put(
        "/1.xml",
        change_list(lists.start, Some(until), None, &[first]),
    );
    lists.put(CAPABILITIES, lists.naming("/1.xml"));
    let requests = lists.rig.source.hits(CAPABILITIES);
    lists.poll().await;
    soon(
        "Capability List requested again",
        lists.rig.source.wait_for_hits(CAPABILITIES, requests + 2),
    )
    .await;
    assert_eq!(lists.rig.source.hits("/1.xml"), 1);
    lists.rig.operator.poll(NAME).await;
    lists.rig.source.wait_for_hits("/1.xml", 2).await;
    lists.rig.idle().await;
    assert_eq!(lists.rig.source.hits(CAPABILITIES), requests + 3);
    assert_eq!(lists.rig.source.hits_not_modified("/1.xml"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_an_unchanged_closed_list_is_followed() {
    let lists = Lists::new().await;
    let index = lists.uri("/index.xml");
    let first = lists.update("r0000.txt", "first");
    let begins = lists.rig.source.boundary();
    let mut entries = vec![
        lists.update("r0001.txt", "second"),
        lists.update("r0003.txt", "after the first list was closed"),
    ];
    lists.put(
        "/1.xml",
        change_list(lists.start, Some(begins), Some(&index), &[first]),
    );
    lists.put("/2.xml", change_list(begins, None, Some(&index), &entries));
    let (one, two) = (lists.uri("/1.xml"), lists.uri("/2.xml"));
    let listed = [(&one, lists.start, Some(begins)), (&two, begins, None)];
    lists.put("/index.xml", change_list_index(&listed));
    lists.put(CAPABILITIES, lists.naming("/1.xml"));
    lists.poll().await;

    entries.push(lists.update("r0002.txt", "third"));
    lists.put("/2.xml", change_list(begins, None, Some(&index), &entries));
    lists.poll().await;
    // Each was downloaded once; later requests were answered 304.
    for path in ["/1.xml", "/index.xml"] {
        let source = &lists.rig.source;
        let (hits, downloads) = (source.hits(path), source.downloads(path));
        assert_eq!((downloads, hits > 1), (1, true), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_applied_when_no_baseline_is_possible() {
    let options = SampleOptions {
        resource_list: false,
        hub: ChannelHub::None,
        ..resources(2)
    };
    let rig = Rig::start(options).await;
    rig.source.create(SET, "new.txt", "new");
    rig.operator.poll(NAME).await;
    rig.until_holds("new.txt", "new").await;
    let created = rig.until_in_feed(0, "new.txt").await;
    rig.source.delete(SET, "new.txt");
    rig.operator.poll(NAME).await;
    rig.until_in_feed(created.seq, "new.txt").await;
    assert_eq!(rig.mirrored("new.txt"), None);
    // No document states the earlier resources.
    let set = rig.set().await;
    assert_eq!((set.state.as_str(), set.synced_until), ("failing", None));
    assert_eq!(set.error.unwrap().code, "no-resource-list");
}

/// Some Sources state as `at` when they wrote the list: its entries are older. It does not state where it begins, so that it
/// shows no gap and covers nothing; its changes are applied.
#[tokio::test(flavor = "multi_thread")]
async fn time_at_which_a_list_was_written_is_not_its_begin() {
    let lists = Lists::new().await;
    let claimed = lists.rig.set().await.synced_until;
    let mut head = Head::new(Root::Urlset, Capability::ChangeList);
    let entry = lists.update("r0000.txt", "first");
    head.md.at = Some(lists.rig.source.boundary());
    lists.put("/1.xml", write_document(&head, [&entry]));
    lists.put(CAPABILITIES, lists.naming("/1.xml"));
    lists.rig.operator.poll(NAME).await;
    lists.rig.until_holds("r0000.txt", "first").await;
    let set = lists
        .rig
        .until("in sync", |set| set.state == "in-sync")
        .await;
    assert!(set.gaps.is_empty(), "{set:?}");
    assert_eq!(set.synced_until, claimed);
}
