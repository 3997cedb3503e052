//! For tests of other modules: what [`Store`](crate::store::Store) does not do or show, over a connection of its own.

use std::path::Path;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::Capability;
use resyncd_core::{Channel, HubUri, TopicUri};

use crate::clock;
use crate::store::place::StatePlace;
use crate::store::query_threads::Lane;
use crate::store::query_threads::tests::OccupiedQueryThreads;
use crate::store::sql::{Connection, params};
use crate::store::tables::resource_count;
use crate::store::tables::values::Micros;
use crate::store::transfer::{Table, tables};
use crate::store::{
    CallbackKeys, ChannelRecord, DecisionResult, DeletionDecision, SetId, Store, StoreError,
};

/// The variable that has the URL of a PostgreSQL database, whose state the tests use then: each folder a schema of its own.
#[cfg(feature = "postgres")]
const SERVER: &str = "RESYNCD_TEST_POSTGRES";

/// Where a test has its state: in a folder, or in a database on a server.
#[cfg(feature = "postgres")]
pub(crate) fn place(folder: &Path) -> StatePlace {
    let place = StatePlace::from(folder);
    match server_url(folder) {
        Some(url) => place.on_server(&url, None, None, &resyncd_fetch::Authorities::default()),
        None => place,
    }
}

/// The database of a test that has its state in this folder otherwise; `None`: there is no server.
#[cfg(feature = "postgres")]
pub(crate) fn server_url(folder: &Path) -> Option<String> {
    let server = std::env::var(SERVER).ok()?;
    let name: String = folder.display().to_string();
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_lowercase();
    let all = StatePlace::from(folder);
    let all = all.on_server(&server, None, None, &resyncd_fetch::Authorities::default());
    let all = all.connect().unwrap().unwrap();
    let make = format!("CREATE SCHEMA IF NOT EXISTS {name}");
    all.execute_batch(&make).unwrap();
    Some(format!("{server}?options=-c%20search_path%3D{name}"))
}

/// Where a test has its state.
#[cfg(not(feature = "postgres"))]
pub(crate) fn place(folder: &Path) -> StatePlace {
    folder.into()
}

/// The database of a folder.
pub(crate) struct TestDatabase(Connection);

impl TestDatabase {
    /// Opens a database that a [`Store`](crate::store::Store) has created. It may be open there as well.
    pub(crate) fn open(folder: &Path) -> Self {
        Self(place(folder).open().unwrap())
    }

    /// Adds entries to the feed, of updates of one resource that were applied at these times.
    pub(crate) fn add_feed_entries(
        &self,
        source: &str,
        applied_at: impl IntoIterator<Item = DateTime<Utc>>,
    ) {
        let set = "INSERT INTO source_set (id, source, capability_list) VALUES (1, ?1, 'http://a.example/') ON CONFLICT DO NOTHING";
        self.0.execute(set, [source]).unwrap();
        let resource = "INSERT INTO removed_resource (id, identity, uri, last)
            VALUES (-1, '//a.example/a', 'http://a.example/a', 1000000000000) ON CONFLICT DO NOTHING";
        self.0.execute(resource, []).unwrap();
        for applied_at in applied_at {
            self.0
                .execute(
                    "UPDATE feed_number SET last = last + 1, at = MAX(at, ?1)",
                    [Micros(applied_at)],
                )
                .unwrap();
            let entry =
                "INSERT INTO feed (seq, applied_at, set_id, resource_id, change, path, origin)
                SELECT last, ?1, 1, -1, 'updated', '', 'change-list' FROM feed_number";
            self.0.execute(entry, [Micros(applied_at)]).unwrap();
        }
    }

    /// Lets an entry of the feed have been applied at another time.
    pub(crate) fn set_applied_at(&self, number: i64, applied_at: DateTime<Utc>) {
        let older = "UPDATE feed SET applied_at = ?1 WHERE seq = ?2";
        self.0
            .execute(older, params![Micros(applied_at), number])
            .unwrap();
    }

    /// Lets nothing else write until what it returns is dropped.
    pub(crate) fn lock(&self) -> TestLock<'_> {
        self.0.begin().unwrap();
        TestLock(&self.0)
    }

    /// Asserts that nothing is left of the only Source but the feed and what its entries name.
    pub(crate) fn assert_source_forgotten(&self) {
        let mut checked = 0;
        for Table {
            name: table,
            columns,
            ..
        } in tables().unwrap()
        {
            let has = |name: &str| columns.iter().any(|column| column == name);
            let concerns = ["source", "set_id", "resource_id", "channel_id", "mirror"];
            if !concerns.iter().any(|name| has(name)) {
                continue;
            }
            let but = match table.as_str() {
                "feed" => continue,
                "source_set" => {
                    "WHERE ended = 0 OR resources + bytes + was_read > 0 OR baseline <> 'missing'"
                }
                "resource_count" => "WHERE resources > 0",
                _ => "",
            };
            let count = format!("SELECT COUNT(*) FROM {table} {but}");
            let left: i64 = self.0.query_row(&count, [], |row| row.get(0)).unwrap();
            assert_eq!(left, 0, "{table}");
            checked += 1;
        }
        assert!(checked > 15, "{checked}");
    }
}

/// The lock of a database, until it is dropped.
pub(crate) struct TestLock<'a>(&'a Connection);

impl Drop for TestLock<'_> {
    fn drop(&mut self) {
        self.0.roll_back().unwrap();
    }
}

impl Store {
    /// Adds a channel over WebSub.
    pub(crate) async fn add_channel(
        self: &Arc<Self>,
        now: DateTime<Utc>,
        set: SetId,
        kind: &Capability,
        topic: &TopicUri,
        hubs: &[HubUri],
        keys: CallbackKeys,
    ) -> Result<ChannelRecord, StoreError> {
        let channel = Channel::new(now, topic, hubs);
        self.insert_channel(set, kind, channel, keys).await
    }

    /// Releases the held-back deletions of a Source and returns their number.
    pub(crate) async fn approve_deletions(
        self: &Arc<Self>,
        source: &str,
    ) -> Result<u64, StoreError> {
        let decision = DeletionDecision::Approve {
            seen: None,
            through: None,
        };
        self.decide_all(source, decision).await
    }

    /// Rejects the held-back deletions of a Source and returns their number.
    pub(crate) async fn reject_deletions(
        self: &Arc<Self>,
        source: &str,
    ) -> Result<u64, StoreError> {
        self.decide_all(source, DeletionDecision::Reject { through: None })
            .await
    }

    async fn decide_all(
        self: &Arc<Self>,
        source: &str,
        decision: DeletionDecision,
    ) -> Result<u64, StoreError> {
        let now = clock::now().wall;
        let decided = self.decide_deletions(source, decision, now, || true);
        match decided.await? {
            DecisionResult::Decided(deletions) => Ok(deletions),
            more @ DecisionResult::MoreHeldBack { .. } => panic!("{more:?}"),
        }
    }

    /// How many resources of a Source are known, also those that are not in its mirror.
    pub(crate) async fn known_resources(self: &Arc<Self>, source: &str) -> Result<u64, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| Ok(resource_count::of_source(sql, &source)?))
            .await
    }

    /// Occupies the threads that answer hubs and watchers.
    pub(crate) fn occupy_lookups(&self) -> OccupiedQueryThreads {
        self.query_threads.occupy(&[Lane::Lookups])
    }

    /// Occupies the thread that writes until the sender is dropped.
    pub(crate) async fn occupy_writer(&self) -> std::sync::mpsc::Sender<()> {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (begun, begins) = tokio::sync::oneshot::channel();
        drop(self.begin_write(move |_| {
            let _ = begun.send(());
            let _ = released.recv();
            Ok(())
        }));
        begins.await.unwrap();
        release
    }

    /// Occupies the threads that answer the workers.
    pub(crate) fn occupy_workers(&self) -> OccupiedQueryThreads {
        self.query_threads.occupy(&[Lane::Work])
    }

    /// Occupies the threads that read the status and the feed.
    pub(crate) fn occupy_reports(&self) -> OccupiedQueryThreads {
        self.query_threads.occupy(&[Lane::Reports])
    }
}
