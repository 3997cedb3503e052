//! Tests of the store with a database in a temporary folder.

mod audit_state;
mod channels;
pub(crate) mod commit_hook;
mod corruption;
pub(crate) mod database;
mod deletion_guard;
mod dumps;
mod feed;
mod former_sets;
mod gaps;
mod hub_claims;
mod inbox;
mod linked;
mod lists;
mod moving;
#[cfg(feature = "postgres")]
mod nodes;
mod opening;
mod parts;
mod plans;
mod random_steps;
mod related;
mod repair;
mod repeated_deliveries;
mod reports;
mod shared;
mod size;
mod spellings;
mod superseded;
mod synced_until;
mod tasks;
mod trim;
mod versions;

use std::collections::HashSet;
use std::sync::{Arc, mpsc};

use chrono::{DateTime, Utc};
use resourcesync::{Algorithm, Capability, ChangeKind, ContentInfo, Digest, Interval, SourceTime};
use resyncd_core::{
    Channel, Coverage, Gap, GapReason, HubUri, LateChange, ResourceUri, TopicUri, Transport,
};
use resyncd_mirror::{made_path, plain_path};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;

use self::database::place;
use super::writer::Tx;
use super::*;

const SOURCE: &str = "demo";

/// A store with one set of one Source.
struct World {
    folder: TempDir,
    store: Arc<Store>,
    set: SetId,
    now: DateTime<Utc>,
}

fn at(seconds: i64) -> SourceTime {
    SourceTime::from_micros(seconds * 1_000_000)
}

fn uri(name: &str) -> ResourceUri {
    ResourceUri::parse(&format!("https://example.org/{name}")).unwrap()
}

/// A change as a document states it. `time`: in seconds; below zero, none is stated.
fn change(name: &str, kind: ChangeKind, time: i64) -> Change {
    Change {
        uri: uri(name),
        kind,
        changed_at: (time >= 0).then(|| at(time)),
        lastmod: None,
        content: ContentInfo::default(),
        links: Vec::new(),
        authority: uri(name).authority(),
        overtaken: false,
        frequency: None,
        encoding: None,
        unconfirmed: false,
        standing: None,
        has_cut_links: false,
        linked: Vec::new(),
        version: VersionRule::Ignored,
    }
}

fn created(name: &str, time: i64) -> Change {
    change(name, ChangeKind::Created, time)
}

fn updated(name: &str, time: i64) -> Change {
    change(name, ChangeKind::Updated, time)
}

fn deleted(name: &str, time: i64) -> Change {
    change(name, ChangeKind::Deleted, time)
}

fn sha256(content: &str) -> Vec<Digest> {
    vec![Digest::of(Algorithm::Sha256, content.as_bytes())]
}

fn with_content(change: Change, content: &str) -> Change {
    Change {
        content: ContentInfo {
            hashes: sha256(content),
            length: Some(content.len() as u64),
            ..change.content
        },
        ..change
    }
}

fn coverage(until: i64) -> Coverage {
    [Interval::before(at(until))].into_iter().collect()
}

fn end() -> DocumentEnd {
    DocumentEnd::new(DeletionRules {
        max_share: 0.1,
        of_absence: false,
        holds_all: false,
    })
}

fn publication(task: Task, content: &str) -> Publication {
    Publication {
        path: task.path.clone(),
        length: content.len() as u64,
        media_type: None,
        encoding: None,
        hashes: sha256(content),
        lastmod: task.lastmod,
        version: None,
        has_new_bytes: true,
        is_patched: false,
        stored_version: StoredVersion::Ignored,
        task,
    }
}

fn published(task: Task, content: &str) -> TaskResult {
    TaskResult::Published(publication(task, content))
}

/// Later than anything in these tests.
const NEVER: DateTime<Utc> = DateTime::from_timestamp(9_000_000_000, 0).unwrap();

/// A failed task, to be tried again at a time, or given up.
fn failed(task: Task, retry_at: Option<DateTime<Utc>>) -> TaskResult {
    let failure = failure_of(retry_at);
    TaskResult::Failed { task, failure }
}

/// The last attempt was answered with 404 or 410.
fn failed_as_absent(task: Task) -> TaskResult {
    let failure = TaskFailure {
        answer: Some(SourceAnswer::Absent),
        ..failure_of(None)
    };
    TaskResult::Failed { task, failure }
}

fn failure_of(retry_at: Option<DateTime<Utc>>) -> TaskFailure {
    TaskFailure {
        code: "not-found",
        message: "404".to_owned(),
        retry_at: retry_at.unwrap_or(NEVER),
        is_given_up: retry_at.is_none(),
        counts: true,
        answer: None,
        is_in_doubt: false,
        awaits_sets: false,
    }
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_hooked(folder.path()).unwrap();
        Self::of(folder, store).await
    }

    /// One whose database is SQLite's, whatever that of the tests is.
    async fn in_folder() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        Self::of(folder, store).await
    }

    async fn of(folder: TempDir, store: Arc<Store>) -> Self {
        let set = begin(&store, "capabilitylist.xml").await;
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        Self {
            folder,
            store,
            set,
            now,
        }
    }

    /// The same after the process has ended and the database was opened again.
    fn reopened(self) -> Self {
        drop(self.store);
        let store = Store::open_hooked(self.folder.path()).unwrap();
        Self { store, ..self }
    }

    /// Keeps the writer busy until it is released, so that the jobs that follow share a commit.
    async fn busy_writer(&self) -> (mpsc::Sender<()>, JoinHandle<Result<(), StoreError>>) {
        let (release, released) = mpsc::channel::<()>();
        let (sender, started) = oneshot::channel();
        let store = Arc::clone(&self.store);
        let busy = tokio::spawn(async move {
            let job = move |_: &mut Tx<'_>| {
                let _ = sender.send(());
                let _ = released.recv();
                Ok(())
            };
            store.write(job).await
        });
        started.await.unwrap();
        (release, busy)
    }

    async fn channel(&self) -> ChannelId {
        let topic = TopicUri::parse("https://example.org/notifications").unwrap();
        let hubs = [HubUri::parse("https://hub.example.org/").unwrap()];
        let kind = Capability::ChangeNotification;
        let keys = CallbackKeys {
            token: "token".to_owned(),
            secret: None,
        };
        let adding = self
            .store
            .add_channel(self.now, self.set, &kind, &topic, &hubs, keys);
        adding.await.unwrap().id
    }

    /// A channel over a WebSocket.
    async fn connection(&self) -> ChannelId {
        let uri = url::Url::parse("wss://example.org/changes").unwrap();
        let topic = TopicUri::of_channel(uri).unwrap();
        let channel = Channel::without_hubs(Transport::Websocket, self.now, &topic);
        let kind = Capability::FrameworkNotification;
        let keys = CallbackKeys {
            token: "unused".to_owned(),
            secret: None,
        };
        let adding = self.store.insert_channel(self.set, &kind, channel, keys);
        adding.await.unwrap().id
    }

    fn batch(&self, set: SetId, changes: Vec<Change>, end: Option<DocumentEnd>) -> ChangeBatch {
        ChangeBatch {
            set,
            source: SOURCE.to_owned(),
            origin: Origin::Notification,
            now: self.now,
            begins: true,
            changes,
            end,
        }
    }

    async fn announce(&self, changes: Vec<Change>) -> BatchResult {
        self.announce_in(self.set, changes).await
    }

    async fn announce_in(&self, set: SetId, changes: Vec<Change>) -> BatchResult {
        let batch = self.batch(set, changes, Some(end()));
        self.store.ingest(batch).await.unwrap()
    }

    /// Ingests a document that covers everything before `until`, in seconds.
    async fn announce_until(&self, changes: Vec<Change>, until: i64) {
        let progress = Some((coverage(until), Vec::new()));
        let end = DocumentEnd { progress, ..end() };
        let batch = self.batch(self.set, changes, Some(end));
        self.store.ingest(batch).await.unwrap();
    }

    /// Ends a document whose changes were ingested before.
    async fn end_document(&self) {
        let last = ChangeBatch {
            begins: false,
            ..self.batch(self.set, Vec::new(), Some(end()))
        };
        self.store.ingest(last).await.unwrap();
    }

    /// A reading of a Resource List that has named nothing so far.
    fn reading(&self, set: SetId, time: i64) -> ListProgress {
        ListProgress {
            set,
            source: SOURCE.to_owned(),
            origin: Origin::ResourceList,
            at: at(time),
            checks: None,
            named: NamedSoFar::default(),
        }
    }

    /// Ingests a complete Resource List.
    async fn list(&self, set: SetId, time: i64, entries: Vec<Change>) -> BatchResult {
        let list = self.reading(set, time);
        self.store.begin_list(set).await.unwrap();
        let listed = self
            .store
            .ingest_listed(&list, self.now, entries, &NamedSoFar::default());
        let mut sum = listed.done().await.unwrap();
        let mut search = AbsentSearch::new(true, None);
        while let Some(absent) = self
            .store
            .delete_absent(&list, self.now, &mut search, |_| true)
            .await
            .unwrap()
        {
            sum.add(absent);
        }
        let end = DocumentEnd {
            progress: Some((coverage(time), Vec::new())),
            listed: Some(at(time)),
            ..end()
        };
        let batch = ChangeBatch {
            origin: Origin::ResourceList,
            begins: false,
            ..self.batch(set, Vec::new(), Some(end))
        };
        sum.held_back = self.store.ingest(batch).await.unwrap().held_back;
        sum
    }

    async fn due(&self) -> Vec<Task> {
        self.due_without(HashSet::new()).await
    }

    async fn due_without(&self, in_progress: HashSet<ResourceId>) -> Vec<Task> {
        let due = self
            .store
            .due_tasks(
                SOURCE,
                self.now,
                usize::MAX,
                TasksInProgress {
                    resources: in_progress,
                    ..TasksInProgress::default()
                },
            )
            .await;
        due.unwrap().tasks
    }

    /// The kinds and names of the due tasks, sorted.
    async fn due_names(&self) -> Vec<String> {
        let tasks = self.due().await;
        let mut names: Vec<String> = tasks.iter().map(kind_and_name).collect();
        names.sort();
        names
    }

    async fn complete(&self, results: Vec<TaskResult>) {
        self.store
            .complete(self.now, Arc::new(results))
            .await
            .unwrap();
    }

    /// Completes all due tasks; every file's content is `content`.
    async fn work(&self, content: &str) {
        let tasks = self.due().await;
        let done = tasks.into_iter().map(|task| match task.kind {
            ChangeKind::Deleted => TaskResult::Removed {
                task,
                file_stays: false,
            },
            _ => published(task, content),
        });
        self.complete(done.collect()).await;
    }

    async fn statistics(&self) -> SetStatistics {
        self.store.set_statistics(self.set).await.unwrap()
    }

    async fn totals(&self, set: SetId) -> (u64, u64) {
        let statistics = self.store.set_statistics(set).await.unwrap();
        (statistics.resources, statistics.bytes)
    }
}

async fn begin(store: &Arc<Store>, list: &str) -> SetId {
    let uri = format!("https://example.org/{list}").parse().unwrap();
    store.begin_set(SOURCE, &uri).await.unwrap().id
}

fn kind_and_name(task: &Task) -> String {
    let name = task.uri.as_str().rsplit('/').next().unwrap();
    format!("{} {name}", task.kind.as_str())
}

/// The wakes that were sent by now: a wake is sent after its commit, and before the caller's answer.
fn woken(wakes: &mut broadcast::Receiver<Wake>) -> Vec<Wake> {
    std::iter::from_fn(|| wakes.try_recv().ok()).collect()
}
