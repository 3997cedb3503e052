//! All that a Source does to its mirror: a baseline, pushes, a poll, a Resource List that lacks something, a renewal. And what
//! must hold, at whatever step of it the daemon was killed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use resyncd::clock;
use resyncd::demo::{ChannelHub, HubOptions, Notification, SampleOptions, SampleSource};
use resyncd::protocol::{ResourceUri, SourceTime};
use resyncd::store::Store;
use url::Url;

use crate::process::Home;
use crate::support::{FeedLine, NAME, SET, client, eventually, files};
use crate::traced::Scene;
use crate::whole::{content_of_length, is_whole};

const RESOURCE_LIST: &str = "/set1/resourcelist.xml";
/// The lease that the hub grants at first: it is renewed within the cycle.
const SHORT_LEASE: Duration = Duration::from_secs(5);
const LONG_LEASE: Duration = Duration::from_secs(10 * 86_400);

/// A Source, the home of the daemon that follows it, and all that the Source ever had.
pub(crate) struct Cycle {
    pub(crate) source: SampleSource,
    pub(crate) home: Home,
    history: RefCell<BTreeMap<String, Vec<Version>>>,
    number: Cell<usize>,
    /// How often the hub was asked while it granted short leases only.
    asked: Cell<u64>,
    /// How much has happened at the Source.
    pub(crate) happened: Arc<AtomicUsize>,
}

/// What a resource was at a time; no bytes: it was deleted.
struct Version {
    at: SourceTime,
    bytes: Option<String>,
    /// How much had happened before.
    happened: usize,
}

impl Cycle {
    /// A Source of twenty resources: in folders, with a query, one of a folder, one whose path has to be made.
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
            asked: Cell::new(0),
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
        self.note(uri, at, Some(bytes));
    }

    fn delete(&self, name: &str) {
        let at = self.source.delete(SET, name);
        self.note(self.source.resource_uri(SET, name).to_string(), at, None);
    }

    fn note(&self, uri: String, at: SourceTime, bytes: Option<String>) {
        let mut history = self.history.borrow_mut();
        let happened = self.happened.fetch_add(1, Ordering::SeqCst);
        history.entry(uri).or_default().push(Version {
            at,
            bytes,
            happened,
        });
    }

    /// Lives through all of it. The daemon may die at any moment, and comes back.
    pub(crate) async fn live(&self) {
        let source = &self.source;
        let hub = source.hub().unwrap();
        self.settled().await;
        // What keeps it from being settled may take longer than such a lease: a request that was confirmed was one too few.
        let counts = hub.counts();
        let (asked, confirmed) = (counts.requested, counts.subscribed);
        self.asked.set(asked);
        assert!(
            asked >= 2 && asked <= confirmed + 4,
            "the hub was asked {asked} times, and {confirmed} were confirmed"
        );
        hub.configure(|options| options.max_lease = LONG_LEASE);
        let lists = source.hits(RESOURCE_LIST);

        // From here on nothing but the notifications tells of what changes.
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
        assert_eq!(
            self.gaps().await,
            0,
            "nothing that was acknowledged is lost"
        );

        // A notification is lost, and a poll finds what it told of.
        source.freeze_change_list(SET, false);
        self.write("r3.txt");
        self.write("polled.txt");
        self.delete("r4.txt");
        source.notify(SET);
        self.poll().await;
        self.in_step().await;
        assert_eq!(source.hits(RESOURCE_LIST), lists, "no second baseline");

        // A renewal is followed by a poll: none is to come from here on.
        self.renewed().await;

        // A change that only the Resource List tells of, by what it lacks.
        self.delete("r5.txt");
        self.delete("d/e");
        source.notify(SET);
        source.roll_change_list(SET);
        source.drop_old_change_lists(SET, 0);
        self.write("r6.txt");
        source.refresh_resource_list(SET);
        let next = source.notify(SET);
        self.deliver(&next).await;
        self.in_step().await;
        let read = source.hits(RESOURCE_LIST) - lists;
        assert!((1..=3).contains(&read), "read {read} times");
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

    /// Pushes what changed; nothing else tells of it.
    async fn push(&self) {
        let notification = self.source.notify(SET);
        self.deliver(&notification).await;
        self.in_step().await;
    }

    /// Has the hub deliver a notification until it is acknowledged.
    async fn deliver(&self, notification: &Notification) {
        eventually("acknowledged", None, async || {
            let deliveries = self.source.publish(notification).await.unwrap();
            if deliveries.iter().any(|delivery| delivery.is_accepted()) {
                return Ok(());
            }
            if deliveries.is_empty() && self.is_unheard().await {
                // Nothing was acknowledged, so nobody but the Change List can tell.
                self.source.freeze_change_list(SET, false);
                self.poll().await;
                return Ok(());
            }
            Err(format!("{deliveries:#?}"))
        })
        .await;
    }

    /// Whether the hub has no subscription because the daemon died between noting a verification and answering it. To the
    /// daemon it is active: what polls find tells it otherwise in time.
    async fn is_unheard(&self) -> bool {
        let set = self.home.until("the status", |_| true).await;
        let unheard = self.source.hub().unwrap().counts().not_verified > 0;
        unheard && set.channels.iter().all(|channel| channel.state == "active")
    }

    async fn poll(&self) {
        let url = format!("http://{}/sources/{NAME}/poll", self.home.status);
        let client = client();
        eventually("asked to poll", None, async || {
            let answer = client.post(&url).send().await;
            let answer = answer.and_then(|answer| answer.error_for_status());
            answer.map_err(|error| error.to_string())
        })
        .await;
    }

    async fn gaps(&self) -> usize {
        self.home.until("the status", |_| true).await.gaps.len()
    }

    /// Waits until the mirror is what the Source is, and the daemon says so. No two contents are the same, so that nothing has
    /// to be known of paths.
    pub(crate) async fn in_step(&self) {
        eventually("the mirror is what the Source is", None, async || {
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
            .until("in step", |set| set.state == "in-sync" && set.pending == 0)
            .await;
    }

    /// The same, with every channel active.
    pub(crate) async fn settled(&self) {
        self.in_step().await;
        self.home
            .until("every channel active", |set| {
                set.channels.len() == 2
                    && set.channels.iter().all(|channel| channel.state == "active")
            })
            .await;
    }

    /// Where a resource stood in its history when it had this file; `None`: it never had.
    fn version(&self, uri: &str, bytes: &[u8]) -> Option<usize> {
        let history = self.history.borrow();
        let mut versions = history.get(uri)?.iter();
        versions.position(|v| v.bytes.as_ref().is_some_and(|v| v.as_bytes() == bytes))
    }

    /// What must hold at the moment of a kill: files are whole, and the database is not ahead of them.
    pub(crate) async fn check_scene(&self, scene: &Scene) {
        for (path, bytes) in &scene.files {
            assert!(is_whole(bytes), "{path}: {} bytes", bytes.len());
        }
        if !scene.state.join("resyncd.db").exists() {
            assert!(scene.files.is_empty());
            return;
        }
        let store = Store::open(&scene.state).unwrap();
        let uris: Vec<String> = self.history.borrow().keys().cloned().collect();
        for uri in uris {
            let parsed = ResourceUri::try_from(Url::parse(&uri).unwrap()).unwrap();
            let known = store.resource(&parsed).await.unwrap();
            let files = scene.files.iter();
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
                // A Resource List that lacks it is later than the deletion.
                None => known.deleted && known.changed_at >= Some(version.at),
            });
            let stated = stated.unwrap_or_else(|| panic!("never was so: {known:#?}"));
            match file {
                // The database says that there is a file: it is that, or a later one that was not committed yet.
                Some(file) if !known.deleted => {
                    assert!(file >= stated, "{file}, {known:#?}");
                    assert_eq!(Some(its_files[0].0), known.path.as_ref());
                }
                Some(file) => assert!(file > stated, "{file}, {known:#?}"),
                None if known.deleted => {}
                None => assert!(
                    versions[stated..]
                        .iter()
                        .any(|later| later.bytes.is_none() && later.happened < scene.happened),
                    "its file is missing: {known:#?}"
                ),
            }
        }
        let told = store.feed(0, usize::MAX >> 1).await.unwrap();
        assert!(told.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    }

    /// What must hold at the end of all.
    pub(crate) async fn check_end(&self) {
        let lines = self.home.operator.changes(0).await;
        assert!(lines.windows(2).all(|pair| pair[0].seq < pair[1].seq));
        let mut once = BTreeSet::new();
        let mut there: BTreeMap<&str, &FeedLine> = BTreeMap::new();
        for line in &lines {
            let told = (&line.uri, &line.change, &line.changed_at, line.length);
            assert!(once.insert(told), "told twice: {line:#?}");
            if line.change == "deleted" {
                there.remove(line.uri.as_str());
            } else {
                there.insert(&line.uri, line);
            }
        }
        // Who follows the feed has what the Source has.
        let state = self.source.state(SET);
        assert_eq!(
            there.keys().copied().collect::<Vec<_>>(),
            state.keys().map(String::as_str).collect::<Vec<_>>()
        );
        for (uri, bytes) in &state {
            let line = there[uri.as_str()];
            assert_eq!(line.length, Some(bytes.len() as u64), "{line:#?}");
            let known = self.home.operator.resource(uri).await.unwrap();
            assert_eq!(known["length"].as_u64(), line.length, "{uri}");
            assert_eq!(known["path"].as_str(), line.path.as_deref(), "{uri}");
            let file = std::fs::read(self.home.mirror.join(line.path.as_ref().unwrap()));
            assert_eq!(file.unwrap(), *bytes, "{uri}");
        }
        let set = self.home.set().await.unwrap();
        let bytes: usize = state.values().map(|bytes| bytes.len()).sum();
        assert_eq!(
            (set.resources as usize, set.bytes as usize),
            (state.len(), bytes)
        );
        assert_eq!((set.gaps.len(), set.failed), (0, 0));
        let hub = self.source.hub().unwrap();
        let unheard = hub.counts().not_verified as usize;
        let subscriptions = hub.subscriptions().len();
        assert!(
            subscriptions <= 2 && subscriptions + unheard >= 2,
            "one a channel"
        );
        let since = hub.counts().requested - self.asked.get();
        assert!(
            (2..=4).contains(&since),
            "the hub was asked {since} times more"
        );
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

/// A name that no file can have.
fn long_name() -> String {
    format!("{}.txt", "n".repeat(300))
}
