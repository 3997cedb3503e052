//! What a simulation does to the store: it ends the process at a commit, lets a commit or a query fail, and looks at the database after
//! each commit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use resourcesync::{ChangeKind, Digest, SourceTime};
use resyncd_core::{Coverage, Gap};
use rusqlite::Connection;

use super::reads::statistics::synced_until;
use super::tables::values::{DigestList, column};
use super::tables::{coverage, gap};
use super::{BaselineState, ChannelId, Origin, SetId, Store, StoreError};

type Watch = Box<dyn FnMut(&Snapshot) + Send>;

/// Counts the steps of the store: one before and one after each commit. The process may end at each of them: then nothing
/// is committed any more, no caller is answered and no query succeeds until [`resume`](Self::resume).
#[derive(Default)]
pub(crate) struct CommitHook {
    steps: AtomicU64,
    /// The step at which the process ends, plus one; 0: at none.
    stop_at: AtomicU64,
    is_stopped: AtomicBool,
    /// How many more commits succeed before one fails, plus one; 0: none fails.
    fail_after: AtomicU64,
    /// How many more queries succeed before one fails, plus one; 0: none fails.
    fail_query_after: AtomicU64,
    /// Whether commits and queries may fail now.
    may_fail: AtomicBool,
    /// How many have failed.
    failures: AtomicU64,
    watch: Mutex<Option<Watch>>,
}

impl CommitHook {
    /// How many steps there have been.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
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

    /// Lets one commit fail, after so many more of those that [may](Self::let_fail).
    pub(crate) fn fail_after(&self, commits: u64) {
        self.fail_after.store(commits + 1, Ordering::SeqCst);
    }

    /// Lets one query fail, after so many more of those that [may](Self::let_fail).
    pub(crate) fn fail_query_after(&self, queries: u64) {
        self.fail_query_after.store(queries + 1, Ordering::SeqCst);
    }

    /// How many commits and queries have failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::SeqCst)
    }

    /// Sets whether commits and queries may fail from now on, and returns whether they could before.
    pub(crate) fn let_fail(&self, may_fail: bool) -> bool {
        self.may_fail.swap(may_fail, Ordering::SeqCst)
    }

    /// Whether the commit that begins now fails.
    pub(super) fn fails_commit(&self) -> bool {
        self.fails(&self.fail_after)
    }

    /// Fails if the query that begins now does.
    pub(super) fn try_query(&self) -> Result<(), StoreError> {
        if self.is_stopped() {
            return Err(StoreError::Closed);
        }
        if self.fails(&self.fail_query_after) {
            Err(rusqlite::Error::InvalidQuery.into())
        } else {
            Ok(())
        }
    }

    fn fails(&self, after: &AtomicU64) -> bool {
        if !self.may_fail.load(Ordering::SeqCst) {
            return false;
        }
        let left = after.load(Ordering::SeqCst);
        after.store(left.saturating_sub(1), Ordering::SeqCst);
        self.failures
            .fetch_add(u64::from(left == 1), Ordering::SeqCst);
        left == 1
    }

    /// Shows the database to `watch` after each commit that changes it.
    pub(crate) fn watch(&self, watch: impl FnMut(&Snapshot) + Send + 'static) {
        *self.watch.lock() = Some(Box::new(watch));
    }

    /// Counts one step; returns false if the process has ended, or ends now.
    pub(crate) fn step(&self) -> bool {
        let step = self.steps.fetch_add(1, Ordering::SeqCst);
        if self.stop_at.load(Ordering::SeqCst) == step + 1 {
            self.is_stopped.store(true, Ordering::SeqCst);
        }
        !self.is_stopped()
    }

    pub(super) fn begin(&self) -> bool {
        !self.is_stopped() && self.step()
    }

    pub(super) fn committed(&self, connection: &Connection, has_changes: bool) -> bool {
        if has_changes && let Some(watch) = self.watch.lock().as_mut() {
            let snapshot = Snapshot::read(connection).expect("the database can be read");
            watch(&snapshot);
        }
        self.step()
    }
}

impl Store {
    /// The hook through which the simulation controls the store.
    pub(crate) fn commit_hook(&self) -> &CommitHook {
        &self.commit_hook
    }

    /// Lets nothing fail until what it returns is dropped: an error of the database would mean nothing.
    pub(crate) fn without_failures(&self) -> Unfailing<'_> {
        let could_fail = self.commit_hook.let_fail(false);
        Unfailing(&self.commit_hook, could_fail)
    }

    /// Reads the database as it is now.
    pub(crate) async fn snapshot(self: &std::sync::Arc<Self>) -> Result<Snapshot, StoreError> {
        self.read(Snapshot::read).await
    }
}

/// While it lives, commits and queries do not fail.
pub(crate) struct Unfailing<'a>(&'a CommitHook, bool);

impl Drop for Unfailing<'_> {
    fn drop(&mut self) {
        self.0.let_fail(self.1);
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
}

impl Snapshot {
    fn read(sql: &Connection) -> Result<Self, StoreError> {
        let mut snapshot = Self::default();
        let mut query = sql.prepare_cached(
            "SELECT id, capability_list, baseline, generation FROM source_set ORDER BY id",
        )?;
        let mut rows = query.query([])?;
        while let Some(found) = rows.next()? {
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
        while let Some(found) = rows.next()? {
            snapshot.resources.push(ResourceSnapshot {
                uri: found.get(0)?,
                changed_at: column(found, 1)?,
                deleted: found.get(2)?,
                is_applied: found.get(3)?,
                hashes: found.get::<_, DigestList<Vec<Digest>>>(4)?.0,
            });
        }
        let mut query = sql.prepare_cached(
            "SELECT resource.uri, task.set_id, task.kind, task.changed_at, task.since, task.hashes, task.origin, task.state
             FROM task JOIN resource ON resource.id = task.resource_id ORDER BY task.resource_id",
        )?;
        let mut rows = query.query([])?;
        while let Some(found) = rows.next()? {
            snapshot.tasks.push(TaskSnapshot {
                uri: found.get(0)?,
                set: found.get(1)?,
                kind: column(found, 2)?,
                changed_at: column(found, 3)?,
                since: column(found, 4)?,
                hashes: found.get::<_, DigestList<Vec<Digest>>>(5)?.0,
                origin: column(found, 6)?,
                state: found.get(7)?,
            });
        }
        let mut query = sql.prepare_cached("SELECT id, channel_id FROM inbox ORDER BY id")?;
        let mut rows = query.query([])?;
        while let Some(found) = rows.next()? {
            snapshot.inbox.push((found.get(0)?, found.get(1)?));
        }
        Ok(snapshot)
    }
}
