//! What a simulation does to the store as its observer: it ends the process at a commit, lets a job or a query fail or panic, and looks
//! at the database after each commit: the tally must be that of the tasks.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use resourcesync::{ChangeKind, Digest, SourceTime};
use resyncd_core::{Coverage, Gap};

use crate::store::observer::{Observer, Step};
use crate::store::reads::statistics::synced_until;
use crate::store::sql::Connection;
use crate::store::tables::tally::{TALLIED, TallyKey};
use crate::store::tables::values::{DigestList, column};
use crate::store::tables::{coverage, gap};
use crate::store::tests::database::place;
use crate::store::{BaselineState, ChannelId, Origin, SetId, Store, StoreError};

type Watch = Box<dyn FnMut(&Snapshot) + Send>;
type IsFatal = Box<dyn Fn(&Step<'_>) -> bool + Send>;

/// Queries and jobs whose failure may be passed over: it costs a request, and no more. They are of the members of a package, which are
/// fetched by their own URIs where nobody waits for them.
const PASSED_OVER: [&str; 2] = ["::tasks_of", "::make_due"];

/// Counts the steps of the store: one before and one after each commit. The process may end at each of them: then nothing
/// is committed any more, and no query succeeds until [`resume`](Self::resume).
#[derive(Default)]
pub(crate) struct CommitHook {
    steps: AtomicU64,
    /// The step at which the process ends, plus one; 0: at none.
    stop_at: AtomicU64,
    is_stopped: AtomicBool,
    queries: AtomicU64,
    /// How many more jobs succeed before one fails, plus one; 0: none fails.
    fail_after: AtomicU64,
    /// How many more queries succeed before one fails, plus one; 0: none fails.
    fail_query_after: AtomicU64,
    /// Whether jobs and queries may fail now.
    may_fail: AtomicBool,
    /// How many have failed, but for those that may be passed over.
    failures: AtomicU64,
    is_fatal: Mutex<Option<IsFatal>>,
    /// How many changes the connection had made when the database was shown last.
    changes: AtomicU64,
    watch: Mutex<Option<Watch>>,
}

impl CommitHook {
    /// How many steps there have been.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// How many queries there have been.
    pub(crate) fn queries(&self) -> u64 {
        self.queries.load(Ordering::SeqCst)
    }

    /// Ends the process after so many more steps.
    pub(crate) fn stop_after(&self, steps: u64) {
        let at = self.steps() + steps;
        self.stop_at.store(at + 1, Ordering::SeqCst);
    }

    /// Whether the process has ended.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// A new process begins.
    pub(crate) fn resume(&self) {
        self.stop_at.store(0, Ordering::SeqCst);
        self.is_stopped.store(false, Ordering::SeqCst);
    }

    /// Lets one job fail, after so many more of those that [may](Self::let_fail).
    pub(crate) fn fail_after(&self, jobs: u64) {
        self.fail_after.store(jobs + 1, Ordering::SeqCst);
    }

    /// Lets one query fail, after so many more of those that [may](Self::let_fail).
    pub(crate) fn fail_query_after(&self, queries: u64) {
        self.fail_query_after.store(queries + 1, Ordering::SeqCst);
    }

    /// How many jobs and queries have failed, but for those that may be passed over.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::SeqCst)
    }

    /// Sets whether jobs and queries may fail from now on, and returns whether they could before.
    pub(crate) fn let_fail(&self, may_fail: bool) -> bool {
        self.may_fail.swap(may_fail, Ordering::SeqCst)
    }

    /// Lets each query panic whose name has that part.
    pub(crate) fn panic_at_query(&self, part: &'static str) {
        self.panic_at(move |step| matches!(step, Step::Query(name) if name.contains(part)));
    }

    /// Lets each job panic after which a query finds a row.
    pub(crate) fn panic_after(&self, query: &'static str) {
        let finds = move |sql: &Connection| sql.prepare_cached(query).unwrap().exists([]).unwrap();
        self.panic_at(move |step| matches!(step, Step::Job(_, sql) if finds(sql)));
    }

    /// Lets steps panic.
    pub(crate) fn panic_at(&self, is_fatal: impl Fn(&Step<'_>) -> bool + Send + 'static) {
        *self.is_fatal.lock() = Some(Box::new(is_fatal));
    }

    fn fails(&self, after: &AtomicU64, name: &str) -> bool {
        if !self.may_fail.load(Ordering::SeqCst) {
            return false;
        }
        let left = after.load(Ordering::SeqCst);
        after.store(left.saturating_sub(1), Ordering::SeqCst);
        let is_passed_over = PASSED_OVER.iter().any(|part| name.contains(part));
        self.failures
            .fetch_add(u64::from(left == 1 && !is_passed_over), Ordering::SeqCst);
        left == 1
    }

    /// Shows the database to `watch` after each commit that changes it.
    pub(crate) fn watch(&self, watch: impl FnMut(&Snapshot) + Send + 'static) {
        *self.watch.lock() = Some(Box::new(watch));
    }

    /// Counts one step, unless the process has ended; returns false if it has, or ends now.
    pub(crate) fn step(&self) -> bool {
        if self.is_stopped() {
            return false;
        }
        let step = self.steps.fetch_add(1, Ordering::SeqCst);
        if self.stop_at.load(Ordering::SeqCst) == step + 1 {
            self.is_stopped.store(true, Ordering::SeqCst);
        }
        !self.is_stopped()
    }

    fn show(&self, connection: &Connection) {
        let changes = connection.total_changes();
        let has_changes = self.changes.swap(changes, Ordering::SeqCst) != changes;
        if has_changes {
            check_tally(connection);
        }
        if has_changes && let Some(watch) = self.watch.lock().as_mut() {
            let snapshot = Snapshot::read(connection).expect("the database can be read");
            watch(&snapshot);
        }
    }
}

/// Compares the tally with the tasks.
fn check_tally(connection: &Connection) {
    let rows = |query: &str| -> Vec<(TallyKey, i64)> {
        let mut query = connection.prepare_cached(query).unwrap();
        let rows = query.query_map([], |row| Ok((TallyKey::from_row(row)?, row.get(4)?)));
        rows.unwrap().map(Result::unwrap).collect()
    };
    let counted =
        format!("SELECT {TALLIED}, COUNT(*) FROM task GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4");
    let tally = "SELECT set_id, state, kind, code, n FROM tally ORDER BY 1, 2, 3, 4";
    assert_eq!(rows(tally), rows(&counted));
}

impl Observer for CommitHook {
    /// So few that the jobs of tests take several steps.
    fn rows_a_step(&self, most: usize) -> usize {
        if most < 1000 { 2 } else { 50 }
    }

    fn observe(&self, step: Step<'_>) -> rusqlite::Result<()> {
        let is_fatal = self.is_fatal.lock().as_ref().is_some_and(|it| it(&step));
        assert!(!is_fatal, "a test");
        let succeeds = match step {
            Step::Query(name) => {
                self.queries.fetch_add(1, Ordering::SeqCst);
                !self.is_stopped() && !self.fails(&self.fail_query_after, name)
            }
            Step::Job(name, _) => self.step() && !self.fails(&self.fail_after, name),
            Step::Committed(connection) => {
                self.show(connection);
                self.step()
            }
        };
        if succeeds {
            Ok(())
        } else {
            Err(rusqlite::Error::InvalidQuery)
        }
    }
}

impl Store {
    /// Opens a database that a test controls.
    pub(crate) fn open_hooked(folder: &Path) -> Result<Arc<Self>, StoreError> {
        Self::open_observed(place(folder), Arc::new(CommitHook::default()))
    }

    /// What controls the database.
    pub(crate) fn commit_hook(&self) -> &CommitHook {
        let observer: &dyn Any = &*self.observer;
        observer.downcast_ref().expect("opened for that")
    }

    /// Reads the database as it is now.
    pub(crate) async fn snapshot(self: &Arc<Self>) -> Result<Snapshot, StoreError> {
        self.read(Snapshot::read).await
    }
}

/// What the database states of the sets and resources of its only Source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// By the order of their rows.
    pub(crate) sets: Vec<SetSnapshot>,
    pub(crate) resources: Vec<ResourceSnapshot>,
    pub(crate) tasks: Vec<TaskSnapshot>,
    /// The deliveries that are not worked on yet, with their channels.
    pub(crate) inbox: Vec<(i64, ChannelId)>,
}

#[derive(Clone, Debug)]
pub(crate) struct SetSnapshot {
    pub(crate) id: SetId,
    pub(crate) capability_list: String,
    pub(crate) baseline: BaselineState,
    pub(crate) generation: i64,
    pub(crate) coverage: Coverage,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) synced_until: Option<SourceTime>,
    /// The URIs of its resources.
    pub(crate) resources: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct ResourceSnapshot {
    pub(crate) uri: String,
    pub(crate) changed_at: Option<SourceTime>,
    pub(crate) deleted: bool,
    pub(crate) is_applied: bool,
    pub(crate) hashes: Vec<Digest>,
}

#[derive(Clone, Debug)]
pub(crate) struct TaskSnapshot {
    pub(crate) uri: String,
    pub(crate) set: SetId,
    pub(crate) kind: ChangeKind,
    pub(crate) changed_at: Option<SourceTime>,
    pub(crate) since: Option<SourceTime>,
    pub(crate) hashes: Vec<Digest>,
    pub(crate) origin: Origin,
    pub(crate) state: String,
    pub(crate) unconfirmed: bool,
}

impl Snapshot {
    fn read(sql: &Connection) -> Result<Self, StoreError> {
        let mut snapshot = Self::default();
        let mut query = sql.prepare_cached(
            "SELECT id, capability_list, baseline, generation FROM source_set ORDER BY id",
        )?;
        let mut rows = query.query([])?;
        while let Some(found) = rows.next()?.as_ref() {
            let (id, baseline) = (found.get(0)?, column(found, 2)?);
            snapshot.sets.push(SetSnapshot {
                id,
                capability_list: found.get(1)?,
                baseline,
                generation: found.get(3)?,
                coverage: coverage::of_set(sql, id)?,
                gaps: gap::of_set(sql, id)?,
                synced_until: synced_until(sql, id, baseline)?,
                resources: sql
                    .prepare_cached(
                        "SELECT resource.uri FROM member JOIN resource ON resource.id = member.resource_id
                         WHERE member.set_id = ?1",
                    )?
                    .query_map([id], |row| row.get(0))?
                    .collect::<Result<_, _>>()?,
            });
        }
        let mut query = sql.prepare_cached(
            "SELECT uri, changed_at, deleted, applied_at IS NOT NULL, hashes FROM resource ORDER BY id",
        )?;
        let mut rows = query.query([])?;
        while let Some(found) = rows.next()?.as_ref() {
            snapshot.resources.push(ResourceSnapshot {
                uri: found.get(0)?,
                changed_at: column(found, 1)?,
                deleted: found.get(2)?,
                is_applied: found.get(3)?,
                hashes: found.get::<_, DigestList<Vec<Digest>>>(4)?.0,
            });
        }
        let mut query = sql.prepare_cached(
            "SELECT resource.uri, task.set_id, task.kind, task.changed_at, task.since, task.hashes, task.origin, task.state, task.unconfirmed
             FROM task JOIN resource ON resource.id = task.resource_id ORDER BY task.resource_id",
        )?;
        let mut rows = query.query([])?;
        while let Some(found) = rows.next()?.as_ref() {
            snapshot.tasks.push(TaskSnapshot {
                uri: found.get(0)?,
                set: found.get(1)?,
                kind: column(found, 2)?,
                changed_at: column(found, 3)?,
                since: column(found, 4)?,
                hashes: found.get::<_, DigestList<Vec<Digest>>>(5)?.0,
                origin: column(found, 6)?,
                state: found.get(7)?,
                unconfirmed: found.get(8)?,
            });
        }
        let mut query = sql.prepare_cached("SELECT id, channel_id FROM inbox ORDER BY id")?;
        let mut rows = query.query([])?;
        while let Some(found) = rows.next()?.as_ref() {
            snapshot.inbox.push((found.get(0)?, found.get(1)?));
        }
        Ok(snapshot)
    }
}
