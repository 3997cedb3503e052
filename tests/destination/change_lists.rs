//! Change Lists that are closed or replaced: which one is the next (section 12.1).

use resyncd::demo::{ChannelHub, Fault, SampleOptions};
use resyncd::protocol::{Capability, Entry, SourceTime};
use url::Url;

use crate::support::{
    NAME, Rig, SET, capability_list, change, change_list, change_list_index, resources, soon, time,
};

const CAPABILITIES: &str = "/set1/capabilitylist.xml";
const RESOURCES: &str = "/set1/resourcelist.xml";
const XML: &str = "application/xml";

/// A Source whose Change Lists the test writes.
struct Lists {
    rig: Rig,
    /// Where the first list begins.
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
        rig.settled().await;
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

    /// Polls, and waits until the mirror is what the Source is; without a gap, and without a Resource List.
    async fn poll(&self) {
        let lists = self.rig.source.hits(RESOURCES);
        self.rig.operator.poll(NAME).await;
        self.rig.until_mirrored().await;
        let set = self
            .rig
            .until("in step", |set| set.state == "in-sync")
            .await;
        assert!(set.gaps.is_empty() && set.error.is_none(), "{set:?}");
        assert_eq!(self.rig.source.hits(RESOURCES), lists);
    }
}

/// A list is replaced by another; what was added to the former one last is not lost. `restart`: the daemon was not there
/// when it happened.
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

    // Once is enough.
    let hits = lists.rig.source.hits("/1.xml");
    lists.rig.source.wait_for_hits("/2.xml", 1).await;
    let next = lists.rig.source.hits("/2.xml");
    lists.rig.operator.poll(NAME).await;
    lists.rig.source.wait_for_hits("/2.xml", next + 1).await;
    assert_eq!(lists.rig.source.hits("/1.xml"), hits);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_list_that_is_replaced_is_read_to_its_end() {
    check_replaced(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_list_that_is_replaced_meanwhile_is_read_to_its_end() {
    check_replaced(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_list_that_is_gone_leaves_a_gap_for_the_resource_list() {
    let lists = Lists::new().await;
    let first = lists.update("r0000.txt", "first");
    lists.put("/1.xml", change_list(lists.start, None, None, &[first]));
    lists.put(CAPABILITIES, lists.naming("/1.xml"));
    lists.poll().await;

    lists.update("r0001.txt", "told by nobody");
    let begins = lists.rig.source.boundary();
    let next = lists.update("r0002.txt", "next");
    lists.rig.source.remove_document("/1.xml");
    lists.put("/2.xml", change_list(begins, None, None, &[next]));
    lists.put(CAPABILITIES, lists.naming("/2.xml"));
    lists.rig.operator.poll(NAME).await;
    let set = lists.rig.until("a gap", |set| set.state == "gap").await;
    assert_eq!(set.gaps[0].reason, "change-list-starts-late");
    lists.rig.source.refresh_resource_list(SET);
    lists.rig.operator.poll(NAME).await;
    lists.rig.until_mirrored().await;
    lists
        .rig
        .until("in step", |set| set.state == "in-sync")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_list_leads_back_to_the_capability_list_for_the_next_one() {
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
    // Each time that it is asked for, the Capability List names the next one.
    for (path, list) in [("/caps-1.xml", "/1.xml"), ("/caps-2.xml", "/2.xml")] {
        lists.put(path, lists.naming(list));
        let source = &lists.rig.source;
        source.fail(CAPABILITIES, Fault::Redirect(path.to_owned()), 1);
    }
    lists.put(CAPABILITIES, lists.naming("/3.xml"));
    let asked = lists.rig.source.hits(CAPABILITIES);
    lists.poll().await;
    assert_eq!(lists.rig.source.hits(CAPABILITIES), asked + 3);
    assert_eq!(lists.rig.source.hits("/3.xml"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_list_that_stays_the_named_one_is_not_read_in_circles() {
    let lists = Lists::new().await;
    let first = lists.update("r0000.txt", "first");
    let until = lists.rig.source.boundary();
    lists.put(
        "/1.xml",
        change_list(lists.start, Some(until), None, &[first]),
    );
    lists.put(CAPABILITIES, lists.naming("/1.xml"));
    let asked = lists.rig.source.hits(CAPABILITIES);
    lists.poll().await;
    soon(
        "the Capability List is asked again",
        lists.rig.source.wait_for_hits(CAPABILITIES, asked + 2),
    )
    .await;
    assert_eq!(lists.rig.source.hits("/1.xml"), 1);
    lists.rig.operator.poll(NAME).await;
    lists.rig.source.wait_for_hits("/1.xml", 2).await;
    assert_eq!(lists.rig.source.hits(CAPABILITIES), asked + 3);
    assert_eq!(lists.rig.source.hits_not_modified("/1.xml"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_a_closed_list_is_followed_although_the_list_stays_the_same() {
    let lists = Lists::new().await;
    let index = lists.uri("/index.xml");
    let first = lists.update("r0000.txt", "first");
    let begins = lists.rig.source.boundary();
    let mut entries = vec![
        lists.update("r0001.txt", "second"),
        lists.update(
            "r0003.txt",
            "beyond the moment at which the first list was closed",
        ),
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
    // Each was sent once, and after that only asked whether it is the same.
    for path in ["/1.xml", "/index.xml"] {
        let source = &lists.rig.source;
        let (hits, same) = (source.hits(path), source.hits_not_modified(path));
        assert_eq!((hits - same, hits > 1), (1, true), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_followed_where_there_is_nothing_to_make_a_baseline_from() {
    let options = SampleOptions {
        resource_list: false,
        hub: ChannelHub::None,
        ..resources(2)
    };
    let rig = Rig::start(options).await;
    rig.source.create(SET, "new.txt", "new");
    rig.operator.poll(NAME).await;
    rig.until_holds("new.txt", "new").await;
    rig.source.delete(SET, "new.txt");
    rig.operator.poll(NAME).await;
    rig.until_in_feed(1, "new.txt").await;
    assert_eq!(rig.mirrored("new.txt"), None);
    // What there was before, nobody has told.
    let set = rig.set().await;
    assert_eq!((set.state.as_str(), set.synced_until), ("failing", None));
    assert_eq!(set.error.unwrap().code, "no-resource-list");
}
