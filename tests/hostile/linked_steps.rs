//! A Source whose entries link to what no list names, and a daemon that follows the links: from the first copy to the end of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use resourcesync::{Algorithm, ContentInfo, Digest, Link};
use resyncd_testkit::{ChannelHub, SampleOptions, SampleSource};

use crate::support::completeness::content_of_length;
use crate::support::process::Home;
use crate::support::{Files, NAME, SET, eventually, files, resources};

const FOLLOWING: &str =
    "metadata = \"follow\"\nrepresentations = [\"application/pdf\"]\npoll_interval = \"2s\"";
const OWNERS: [&str; 2] = ["r0000.txt", "r0001.txt"];

/// The Source, the home of the daemon, and what links name at present.
pub(crate) struct LinkedCycle {
    source: SampleSource,
    pub(crate) home: Home,
    /// The contents of what links name, by URI.
    linked: RefCell<BTreeMap<String, String>>,
    number: Cell<usize>,
}

impl LinkedCycle {
    /// A Source without a hub: polls find all changes, and a daemon that is started again polls.
    pub(crate) async fn new() -> Self {
        let options = SampleOptions {
            hub: ChannelHub::None,
            ..resources(0)
        };
        let source = SampleSource::start(options).await.unwrap();
        let home = Home::new(&source.url(), FOLLOWING);
        let cycle = Self {
            source,
            home,
            linked: RefCell::default(),
            number: Cell::new(0),
        };
        for name in OWNERS.into_iter().chain(["r0002.txt"]) {
            cycle.source.create(SET, name, cycle.content());
        }
        let pdf = cycle.put("alternate", "a.pdf", "application/pdf");
        let record = cycle.put("describedby", "a.xml", "text/xml");
        cycle.source.set_links(SET, OWNERS[0], vec![pdf, record]);
        cycle.source.refresh_resource_list(SET);
        cycle
    }

    /// Changes what links name, and what they are, until there are none. The daemon may be killed at any moment, and is started again.
    pub(crate) async fn run(&self) {
        self.settled().await;
        // Another version, for two owners; a record that is linked to no longer, and one that is new.
        let pdf = self.put("alternate", "a.pdf", "application/pdf");
        let record = self.put("describedby", "b.xml", "text/xml");
        self.end("a.xml");
        self.change(OWNERS[0], vec![pdf.clone()]);
        self.change(OWNERS[1], vec![pdf, record.clone()]);
        self.polled().await;
        // An owner is deleted, and the other one's links stay.
        self.source.delete(SET, OWNERS[0]);
        self.polled().await;
        self.end("a.pdf");
        self.change(OWNERS[1], vec![record]);
        self.polled().await;
        // The last one goes with its owner.
        self.end("b.xml");
        self.source.delete(SET, OWNERS[1]);
        self.polled().await;
    }

    /// A content. No two have the same length.
    fn content(&self) -> String {
        self.number.set(self.number.get() + 1);
        let number = self.number.get();
        content_of_length(number, 900 + 170 * number)
    }

    /// Serves a version of a resource that no list names, and returns a link to it.
    fn put(&self, rel: &str, name: &str, media_type: &str) -> Link {
        let bytes = self.content();
        let uri = self.source.resource_uri(SET, name);
        self.source
            .put_document(uri.path(), media_type, bytes.clone());
        let content = ContentInfo {
            length: Some(bytes.len() as u64),
            media_type: Some(media_type.to_owned()),
            hashes: vec![Digest::of(Algorithm::Sha256, bytes.as_bytes())],
        };
        self.linked.borrow_mut().insert(uri.to_string(), bytes);
        Link {
            content,
            ..Link::new(rel, uri)
        }
    }

    /// Notes that no link names it any more; it is served still.
    fn end(&self, name: &str) {
        let uri = self.source.resource_uri(SET, name);
        self.linked.borrow_mut().remove(uri.as_str());
    }

    fn change(&self, name: &str, links: Vec<Link>) {
        self.source.set_links(SET, name, links);
        self.source.update(SET, name, self.content());
    }

    async fn polled(&self) {
        self.home.operator.poll_in_the_end(NAME).await;
        self.settled().await;
    }

    /// What the mirror is to have.
    fn wanted(&self) -> Files {
        let listed = self.source.state(SET).into_iter();
        let listed = listed.map(|(uri, bytes)| (uri, bytes.to_vec()));
        let linked = self.linked.borrow().clone().into_iter();
        let linked = linked.map(|(uri, bytes)| (uri, bytes.into_bytes()));
        let path = |uri: String| uri.trim_start_matches("http://").to_owned();
        let all = listed.chain(linked);
        all.map(|(uri, bytes)| (path(uri), bytes)).collect()
    }

    /// Waits until the mirror has exactly what entries name and link to, and the set is in sync.
    pub(crate) async fn settled(&self) {
        let wanted = self.wanted();
        eventually("exactly what is named", None, async || {
            let (files, set) = (files(&self.home.mirror), self.home.set().await);
            let is_done = set.as_ref().is_some_and(|set| {
                let is_complete = set.resources as usize == wanted.len() && set.failed == 0;
                set.state == "in-sync" && set.pending == 0 && is_complete
            });
            if is_done && files == wanted {
                Ok(())
            } else {
                Err(format!(
                    "{:?} for {:?}, {set:#?}",
                    files.keys(),
                    wanted.keys()
                ))
            }
        })
        .await;
    }

    /// Checks that who follows the feed has what the mirror has.
    pub(crate) async fn check_feed(&self) {
        let mut present = BTreeSet::new();
        for line in self.home.operator.changes(0).await {
            match line.change.as_str() {
                "deleted" => present.remove(&line.uri),
                _ => present.insert(line.uri),
            };
        }
        let wanted: BTreeSet<String> = self.wanted().into_keys().collect();
        let path = |uri: String| uri.trim_start_matches("http://").to_owned();
        assert_eq!(
            present.into_iter().map(path).collect::<BTreeSet<_>>(),
            wanted
        );
    }
}
