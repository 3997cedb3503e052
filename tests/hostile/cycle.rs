//! A cycle of everything that a daemon does: a baseline, pushes, a poll, a renewal, a Resource List without some resources. And
//! the invariants that must hold at whatever step of the cycle the daemon was killed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use resourcesync::SourceTime;
use resyncd::clock;
use resyncd::store::Store;
use resyncd_core::ResourceUri;
use resyncd_testkit::{ChannelHub, HubOptions, Notification, SampleOptions, SampleSource};
use url::Url;

use crate::hostile::traced::Crash;
use crate::support::completeness::{content_of_length, is_complete};
use crate::support::process::Home;
use crate::support::{FeedLine, NAME, SET, eventually, files};

const RESOURCE_LIST: &str = "/set1/resourcelist.xml";
/// The lease that the hub grants at first, so that it is renewed during the cycle.
const SHORT_LEASE: Duration = Duration::from_secs(5);
const LONG_LEASE: Duration = Duration::from_secs(10 * 86_400);
/// After how many requests the hub grants long leases, however far the cycle is. Of one channel, the daemon sends twelve in a row, and
/// then one in five minutes: on a busy machine, short leases would use them up before the baseline is done.
const MOST_SHORT_LEASES: u64 = 8;

/// How many resources of the baseline are in folders of their own: they are published many at once.
const WIDE: usize = 40;

/// A Source, the home of the daemon that follows it, and every version of every resource.
pub(crate) struct Cycle {
    pub(crate) source: SampleSource,
    pub(crate) home: Home,
    history: RefCell<BTreeMap<String, Vec<Version>>>,
    number: Cell<usize>,
    /// The numbers of requests to the hub, and of those that it had verified or tried to, while it granted short leases.
    requested_before: Cell<u64>,
    verified_before: Cell<u64>,
    grants_long_leases: Cell<bool>,
    /// The number of changes at the Source so far.
    pub(crate) happened: Arc<AtomicUsize>,
}

/// A version of a resource; without bytes, a deletion.
struct Version {
    at: SourceTime,
    bytes: Option<String>,
    /// The number of changes at the Source before this one.
    happened: usize,
}

impl Cycle {
    /// A Source of sixty resources: in folders, with a query, one with a final slash, one with a made path.
    pub(crate) async fn new() -> Self {
        let hub = HubOptions {
            max_lease: SHORT_LEASE,
            ..HubOptions::default()
        };
        let source = SampleSource::start(SampleOptions {
            resources_per_set: 0,
            whole_seconds: true,
            hub: ChannelHub::Own(hub),
            ..SampleOptions::default()
        })
        .await
        .unwrap();
        let home = Home::new(&source.url(), "");
        let cycle = Self {
            source,
            home,
            history: RefCell::default(),
            number: Cell::new(0),
            requested_before: Cell::new(0),
            verified_before: Cell::new(0),
            grants_long_leases: Cell::new(false),
            happened: Arc::default(),
        };
        for number in 0..10 {
            cycle.write(&format!("r{number}.txt"));
        }
        for name in [
            "f/a", "f/b", "f/c", "f/g/h/a", "f/g/h/b", "a", "d/e", "folder/",
        ] {
            cycle.write(name);
        }
        cycle.write("page.txt?x=1");
        cycle.write(&long_name());
        (0..WIDE).for_each(|n| cycle.write(&format!("w/{n}/a")));
        cycle.source.refresh_resource_list(SET);
        cycle
    }

    /// Creates or updates a resource. No two contents have the same length.
    fn write(&self, name: &str) {
        self.number.set(self.number.get() + 1);
        let number = self.number.get();
        let bytes = content_of_length(number, 700 + 151 * number);
        let uri = self.source.resource_uri(SET, name).to_string();
        let at = if self.source.state(SET).contains_key(&uri) {
            self.source.update(SET, name, bytes.clone())
        } else {
            self.source.create(SET, name, bytes.clone())
        };
        self.record(uri, at, Some(bytes));
    }

    fn delete(&self, name: &str) {
        let at = self.source.delete(SET, name);
        self.record(self.source.resource_uri(SET, name).to_string(), at, None);
    }

    fn record(&self, uri: String, at: SourceTime, bytes: Option<String>) {
        let mut history = self.history.borrow_mut();
        let happened = self.happened.fetch_add(1, Ordering::SeqCst);
        history.entry(uri).or_default().push(Version {
            at,
            bytes,
            happened,
        });
    }

    /// Runs the cycle. The daemon may be killed at any moment, and is started again.
    pub(crate) async fn run(&self) {
        let source = &self.source;
        let hub = source.hub().unwrap();
        self.settled().await;
        // Settling may take longer than a short lease: renewals add to the requests, and a kill can lose a confirmed one.
        let counts = hub.counts();
        let (requested, confirmed) = (counts.requested, counts.subscribed);
        assert!(
            requested >= 2 && requested <= confirmed + 4,
            "{requested} requests to the hub, {confirmed} confirmed"
        );
        self.grant_long_leases();
        let lists = source.hits(RESOURCE_LIST);

        // From here on only notifications state the changes.
        source.freeze_change_list(SET, true);
        for name in [
            "new.txt",
            "f/new.txt",
            "n/e/w.txt",
            "r0.txt",
            "f/a",
            "page.txt?x=1",
        ] {
            self.write(name);
        }
        for name in ["r1.txt", "f/g/h/a", "f/g/h/b", "r2.txt", "a"] {
            self.delete(name);
        }
        self.write("r2.txt");
        self.write("a/b");
        self.push().await;
        self.delete("a/b");
        self.write("a");
        self.delete("r2.txt");
        self.write("r2.txt");
        self.write(&long_name());
        self.delete("folder/");
        self.push().await;
        assert_eq!(self.gaps().await, 0, "no acknowledged notification is lost");

        // A notification is lost, and a poll finds its changes.
        source.freeze_change_list(SET, false);
        self.write("r3.txt");
        self.write("polled.txt");
        self.delete("r4.txt");
        source.notify(SET);
        self.home.operator.poll_in_the_end(NAME).await;
        self.until_in_sync().await;
        assert_eq!(source.hits(RESOURCE_LIST), lists, "no second baseline");

        // A renewal is followed by a poll; from here on none is due.
        self.renewed().await;

        // Deletions that only the Resource List shows, by absence.
        self.delete("r5.txt");
        self.delete("d/e");
        source.notify(SET);
        source.roll_change_list(SET);
        source.drop_old_change_lists(SET, 0);
        self.write("r6.txt");
        source.refresh_resource_list(SET);
        let next = source.notify(SET);
        self.deliver(&next).await;
        self.until_in_sync().await;
        let read = source.hits(RESOURCE_LIST) - lists;
        assert!(
            (1..=3).contains(&read),
            "the Resource List was read {read} times"
        );
    }

    /// From here on, the hub grants long leases.
    fn grant_long_leases(&self) {
        if self.grants_long_leases.replace(true) {
            return;
        }
        let hub = self.source.hub().unwrap();
        let counts = hub.counts();
        self.verified_before
            .set(counts.subscribed + counts.not_verified);
        hub.configure(|options| options.max_lease = LONG_LEASE);
        // A renewal that was under way may have got either lease: it is verified after, and may have been requested before.
        self.requested_before.set(hub.counts().requested);
    }

    fn bound_short_leases(&self) {
        if self.source.hub().unwrap().counts().requested >= MOST_SHORT_LEASES {
            self.grant_long_leases();
        }
    }

    /// Waits until every channel has the long lease.
    async fn renewed(&self) {
        self.home
            .until("renewed", |set| {
                let far = clock::now().wall + LONG_LEASE / 2;
                let renewed = |at: &String| {
                    at.parse()
                        .is_ok_and(|at: chrono::DateTime<chrono::Utc>| at > far)
                };
                let mut channels = set.channels.iter();
                channels.all(|channel| channel.lease_expires_at.as_ref().is_some_and(renewed))
            })
            .await;
    }

    /// Publishes a notification of the changes and waits until they are applied.
    async fn push(&self) {
        let notification = self.source.notify(SET);
        self.deliver(&notification).await;
        self.until_in_sync().await;
    }

    /// Publishes a notification until it is acknowledged.
    async fn deliver(&self, notification: &Notification) {
        eventually("acknowledged", None, async || {
            let deliveries = self.source.publish(notification).await.unwrap();
            if deliveries.iter().any(|delivery| delivery.is_accepted()) {
                return Ok(());
            }
            if deliveries.is_empty() && self.is_unverified().await {
                // There is no subscription: only a poll of the Change List finds the changes.
                self.source.freeze_change_list(SET, false);
                self.home.operator.poll_in_the_end(NAME).await;
                return Ok(());
            }
            Err(format!("{deliveries:#?}"))
        })
        .await;
    }

    /// Whether the hub has no subscription because the daemon was killed between storing a verification and answering it. The
    /// daemon takes the channel for active, until polls find changes that were not pushed.
    async fn is_unverified(&self) -> bool {
        let set = self.home.until("the status", |_| true).await;
        let unverified = self.source.hub().unwrap().counts().not_verified > 0;
        unverified && set.channels.iter().all(|channel| channel.state == "active")
    }

    async fn gaps(&self) -> usize {
        self.home.until("the status", |_| true).await.gaps.len()
    }

    /// Waits until the mirror equals the Source and the set is in sync. No two contents are the same, so that comparing contents
    /// suffices and paths need not be known.
    pub(crate) async fn until_in_sync(&self) {
        eventually("the mirror equals the Source", None, async || {
            self.bound_short_leases();
            let state: BTreeSet<Vec<u8>> = self
                .source
                .state(SET)
                .into_values()
                .map(Vec::from)
                .collect();
            let files = files(&self.home.mirror);
            if files.len() == state.len() && files.values().all(|bytes| state.contains(bytes)) {
                return Ok(());
            }
            Err(format!("{:#?} for {} resources", files.keys(), state.len()))
        })
        .await;
        self.home
            .until("in sync", |set| set.state == "in-sync" && set.pending == 0)
            .await;
    }

    /// The same, and waits until every channel is active.
    pub(crate) async fn settled(&self) {
        self.until_in_sync().await;
        self.home
            .until("every channel active", |set| {
                self.bound_short_leases();
                set.channels.len() == 2
                    && set.channels.iter().all(|channel| channel.state == "active")
            })
            .await;
    }

    /// The index of the version of a resource with these bytes; `None` if there is no such version.
    fn version(&self, uri: &str, bytes: &[u8]) -> Option<usize> {
        let history = self.history.borrow();
        let mut versions = history.get(uri)?.iter();
        versions.position(|v| v.bytes.as_ref().is_some_and(|v| v.as_bytes() == bytes))
    }

    /// Checks the invariants at the moment of a kill: files are complete, and the database never states more than the files.
    pub(crate) async fn check_crash(&self, crash: &Crash) {
        for (path, bytes) in &crash.files {
            assert!(is_complete(bytes), "{path}: {} bytes", bytes.len());
        }
        if !crash.state.join("resyncd.db").exists() {
            assert!(crash.files.is_empty());
            return;
        }
        let store = Store::open(&crash.state).unwrap();
        let uris: Vec<String> = self.history.borrow().keys().cloned().collect();
        for uri in uris {
            let parsed = ResourceUri::try_from(Url::parse(&uri).unwrap()).unwrap();
            let known = store.resource(&parsed).await.unwrap();
            let files = crash.files.iter();
            let its_files: Vec<(&String, usize)> = files
                .filter_map(|(path, bytes)| Some((path, self.version(&uri, bytes)?)))
                .collect();
            assert!(its_files.len() <= 1, "{its_files:?} of {uri}");
            let file = its_files.first().map(|(_, version)| *version);
            let Some(known) = known else { continue };
            let history = self.history.borrow();
            let versions = &history[&uri];
            let stated = versions.iter().rposition(|version| match &version.bytes {
                Some(bytes) => !known.deleted && Some(bytes.len() as u64) == known.length,
                // A deletion that was found by absence has the time of the Resource List, which is later.
                None => known.deleted && known.changed_at >= Some(version.at),
            });
            let stated = stated.unwrap_or_else(|| panic!("no such version: {known:#?}"));
            match file {
                // The file has the version of the database, or a later one that was published but not committed.
                Some(file) if !known.deleted => {
                    assert!(file >= stated, "{file}, {known:#?}");
                    assert_eq!(Some(its_files[0].0), known.path.as_ref());
                }
                Some(file) => assert!(file > stated, "{file}, {known:#?}"),
                None if known.deleted => {}
                None => assert!(
                    versions[stated..]
                        .iter()
                        .any(|later| later.bytes.is_none() && later.happened < crash.happened),
                    "its file is missing: {known:#?}"
                ),
            }
        }
        let lines_of_feed = store.feed(0, usize::MAX >> 1).await.unwrap();
        assert!(
            lines_of_feed
                .windows(2)
                .all(|pair| pair[0].seq < pair[1].seq)
        );
    }

    /// Checks the invariants at the end of the cycle.
    pub(crate) async fn check_end(&self) {
        let lines = self.home.operator.changes(0).await;
        assert!(lines.windows(2).all(|pair| pair[0].seq < pair[1].seq));
        let mut distinct = BTreeSet::new();
        let mut present: BTreeMap<&str, &FeedLine> = BTreeMap::new();
        for line in &lines {
            let change = (&line.uri, &line.change, &line.changed_at, line.length);
            assert!(distinct.insert(change), "duplicate line: {line:#?}");
            if line.change == "deleted" {
                present.remove(line.uri.as_str());
            } else {
                present.insert(&line.uri, line);
            }
        }
        // A client that follows the feed has the same resources as the Source.
        let state = self.source.state(SET);
        assert_eq!(
            present.keys().copied().collect::<Vec<_>>(),
            state.keys().map(String::as_str).collect::<Vec<_>>()
        );
        for (uri, bytes) in &state {
            let line = present[uri.as_str()];
            assert_eq!(line.length, Some(bytes.len() as u64), "{line:#?}");
            let known = self.home.operator.resource(uri).await.unwrap();
            assert_eq!(known["length"].as_u64(), line.length, "{uri}");
            assert_eq!(known["path"].as_str(), line.path.as_deref(), "{uri}");
            let file = std::fs::read(self.home.mirror.join(line.path.as_ref().unwrap()));
            assert_eq!(file.unwrap(), *bytes, "{uri}");
        }
        let set = self.home.until("the status", |_| true).await;
        let bytes: usize = state.values().map(|bytes| bytes.len()).sum();
        assert_eq!(
            (set.resources as usize, set.bytes as usize),
            (state.len(), bytes)
        );
        assert_eq!((set.gaps.len(), set.failed), (0, 0));
        let hub = self.source.hub().unwrap();
        let counts = hub.counts();
        let unverified = counts.not_verified as usize;
        let subscriptions = hub.subscriptions().len();
        assert!(
            subscriptions <= 2 && subscriptions + unverified >= 2,
            "one subscription for each channel"
        );
        let verified = counts.subscribed + counts.not_verified - self.verified_before.get();
        assert!(
            verified >= 2,
            "{verified} more requests verified by the hub"
        );
        let requested = counts.requested - self.requested_before.get();
        assert!(requested <= 4, "{requested} more requests to the hub");
        assert_eq!(working_files(&self.home.mirror), 0);
    }
}

fn working_files(mirror: &Path) -> usize {
    let folders = ["work", "packages"].map(|name| mirror.join(".resyncd").join(name));
    let entries = folders
        .into_iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok());
    entries.flatten().count()
}

/// A name that is too long for a file.
fn long_name() -> String {
    format!("{}.txt", "n".repeat(300))
}
