//! The counts of a set, and the time up to which it is in sync.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::SourceTime;
use resyncd_core::{Coverage, Gap};

use crate::store::ids::SetId;
use crate::store::query_threads::Lane;
use crate::store::sql::Connection;
use crate::store::tables::source_set::{self, BaselineState};
use crate::store::tables::tally::{self, TalliedKind, TallyKey};
use crate::store::tables::task::status::{CountedFailure, first_failure};
use crate::store::tables::task::{self, TaskState, report};
use crate::store::tables::{coverage, gap, last_hold};
use crate::store::{Store, StoreError};

/// The maximum number of error codes of a set's tasks that are counted.
const MAX_CODES: usize = 10;

/// The status of a set, as far as the database has it.
#[derive(Clone, Debug, Default)]
pub struct SetStatistics {
    /// Resources that the mirror has.
    pub resources: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Changes that are not applied yet.
    pub pending: u64,
    /// Resources of which it is not known whether they have changed: their entries state nothing, and they are requested again.
    pub undated: u64,
    /// Whether a `lastmod` that has moved is not believed.
    pub doubts_lastmod: bool,
    /// Changes that were given up for now.
    pub failed: u64,
    /// Changes of resources that the Source has refused, or lacked, for a week.
    pub unavailable: u64,
    /// When the first change was given up of those that were not applied since, also while they are tried again. Not of
    /// those that are unavailable.
    pub given_up_since: Option<DateTime<Utc>>,
    /// Deletions that are held back.
    pub held_deletions: u64,
    /// Since when there are such deletions.
    pub held_since: Option<DateTime<Utc>>,
    /// The number up to which they were held back; deletions that are held back later get higher ones. `None`: there are none.
    pub held_through: Option<u64>,
    /// Deletions that a person has rejected: the files stay.
    pub rejected: u64,
    /// The errors of the failed ones, the most frequent code first; if none has failed, that of one that is retried.
    pub failures: Vec<CountedFailure>,
    /// Whether the baseline is done.
    pub baseline_done: bool,
    /// The time up to which every change is known to have been applied.
    pub synced_until: Option<SourceTime>,
    /// The newest time that a document of the set states for itself or for a change in it.
    pub newest: Option<SourceTime>,
    /// The intervals of the Source's time in which every change is known.
    pub coverage: Coverage,
    /// The gaps, oldest first.
    pub gaps: Vec<Gap>,
}

impl Store {
    /// The statistics of a set.
    pub async fn set_statistics(self: &Arc<Self>, set: SetId) -> Result<SetStatistics, StoreError> {
        self.read_in(Lane::Reports, move |sql| statistics(sql, set))
            .await
    }

    /// How many tasks of a Source are ready.
    pub async fn pending(self: &Arc<Self>, source: &str) -> Result<u64, StoreError> {
        let source = source.to_owned();
        self.read_in(Lane::Reports, move |sql| {
            Ok(tally::ready_of_source(sql, &source)?)
        })
        .await
    }
}

/// As [`Store::set_statistics`], as a part of another query.
pub(super) fn statistics(sql: &Connection, set: SetId) -> Result<SetStatistics, StoreError> {
    let totals = source_set::totals(sql, set)?;
    let tally = tally::of_set(sql, set)?;
    let count = |counts: &dyn Fn(TaskState, TalliedKind) -> bool| -> u64 {
        let counted = tally.iter().filter(|(it, _)| counts(it.state, it.kind));
        counted.map(|(_, tasks)| tasks).sum()
    };
    let in_state = |state| count(&|it, _| it == state);
    let undated = count(&|state, kind| state == TaskState::Ready && kind == TalliedKind::Check);
    let held_deletions = in_state(TaskState::HeldBack);
    let coverage = coverage::of_set(sql, set)?;
    Ok(SetStatistics {
        resources: totals.resources,
        bytes: totals.bytes,
        pending: in_state(TaskState::Ready) - undated
            + in_state(TaskState::Undecided)
            + in_state(TaskState::Interrupted),
        undated,
        doubts_lastmod: source_set::doubts_lastmod(sql, set)?,
        failed: in_state(TaskState::Failed),
        unavailable: in_state(TaskState::Unavailable),
        given_up_since: report::first_given_up(sql, set)?,
        held_deletions,
        held_since: source_set::held_since(sql, set)?.filter(|_| held_deletions > 0),
        // Also without any: what another set holds back meanwhile has a higher one.
        held_through: Some(last_hold::get(sql)?),
        rejected: count(&|state, kind| {
            state == TaskState::Unwanted && kind == TalliedKind::Deletion
        }),
        failures: failures(sql, &tally)?,
        baseline_done: totals.baseline == BaselineState::Done,
        synced_until: synced_until(sql, set, totals.baseline)?,
        newest: coverage.front(),
        coverage,
        gaps: gap::of_set(sql, set)?,
    })
}

/// The errors of the failed tasks of a set, the most frequent code first; if none has failed, that of one that is retried.
fn failures(
    sql: &Connection,
    tally: &[(TallyKey, u64)],
) -> Result<Vec<CountedFailure>, StoreError> {
    let failed = failures_of(sql, tally, |state| state == TaskState::Failed)?;
    if failed.is_empty() {
        // What is not selected has not failed, and what is unavailable is counted as such.
        let mut others = failures_of(sql, tally, |state| {
            !matches!(state, TaskState::Unwanted | TaskState::Unavailable)
        })?;
        others.truncate(1);
        return Ok(others);
    }
    Ok(failed)
}

/// The errors of the tasks in those states, the most frequent code first.
fn failures_of(
    sql: &Connection,
    tally: &[(TallyKey, u64)],
    is_meant: impl Fn(TaskState) -> bool,
) -> Result<Vec<CountedFailure>, StoreError> {
    let mut by_code: BTreeMap<&str, Vec<&(TallyKey, u64)>> = BTreeMap::new();
    for tallied in tally {
        let (key, _) = tallied;
        if is_meant(key.state) && !key.code.is_empty() {
            by_code.entry(&key.code).or_default().push(tallied);
        }
    }
    let mut failures = Vec::new();
    for (code, tallied) in by_code {
        let mut first = None;
        for (key, _) in &tallied {
            let other = first_failure(sql, key.set, key.state, code)?;
            first = first.into_iter().chain(other).min_by_key(|it| it.resource);
        }
        // A code without a task would be a fault of the tally.
        let Some(first) = first else { continue };
        let count = tallied.iter().map(|(_, tasks)| tasks).sum();
        let failure = CountedFailure {
            code: code.to_owned(),
            message: first.message,
            at: first.at,
            count,
        };
        failures.push((first.resource, failure));
    }
    failures.sort_by_key(|(first, failure)| (Reverse(failure.count), *first));
    failures.truncate(MAX_CODES);
    Ok(failures.into_iter().map(|(_, failure)| failure).collect())
}

/// Once the baseline is done, the end of the unbroken coverage, held back to the oldest change in it that is not applied yet, also where another set has
/// announced it that shares the resource.
pub(crate) fn synced_until(
    sql: &Connection,
    set: SetId,
    baseline: BaselineState,
) -> Result<Option<SourceTime>, StoreError> {
    if baseline != BaselineState::Done {
        return Ok(None);
    }
    let Some(unbroken) = coverage::unbroken_until(sql, set)? else {
        return Ok(None);
    };
    let mut until = task::before_oldest(sql, set, Some(unbroken))?;
    for other in source_set::sharing_with(sql, set)? {
        until = task::before_oldest_shared(sql, (other, set), until)?;
    }
    Ok(until)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::store::schema;

    /// A set with so many tasks of each kind; returns what the statistics of it are, and how many steps SQLite needs for them.
    fn counted(tasks: i64) -> (SetStatistics, u64) {
        let folder = tempfile::tempdir().unwrap();
        let mut database = schema::open(&folder.path().join("counted.db")).unwrap();
        let set = "INSERT INTO source_set (id, source, capability_list, baseline) VALUES (1, 's', 'c', 'done')";
        database.execute(set, []).unwrap();
        let coverage = "INSERT INTO coverage (set_id, from_time, until_time) VALUES (1, 0, 9)";
        database.execute(coverage, []).unwrap();
        for number in 0..5 * tasks {
            let (state, code, origin) = match number % 5 {
                0 => ("ready", None, "notification"),
                1 => ("ready", Some("timeout"), "notification"),
                2 => ("ready", None, "resource-list"),
                3 => ("failed", Some("not-found"), "resource-list"),
                _ => ("held", None, "notification"),
            };
            let resource = "INSERT INTO resource (id, source, identity, set_id) VALUES (?1, 's', 'u' || ?1, 1)";
            database.execute(resource, [number]).unwrap();
            database
                .execute(
                    "INSERT INTO task (resource_id, source, set_id, authority, kind, since, hashes, origin, state,
                         error_code, error_message, error_at)
                     VALUES (?1, 's', 1, 'a', 'updated', ?1, '', ?2, ?3, ?4, 'm', 1)",
                    rusqlite::params![number, origin, state, code],
                )
                .unwrap();
        }
        for (state, kind, code) in [
            ("ready", "update", ""),
            ("ready", "update", "timeout"),
            ("ready", "check", ""),
            ("failed", "check", "not-found"),
            ("held", "update", ""),
        ] {
            let tally =
                "INSERT INTO tally (set_id, state, kind, code, n) VALUES (1, ?1, ?2, ?3, ?4)";
            database
                .execute(tally, rusqlite::params![state, kind, code, tasks])
                .unwrap();
        }
        // Of the statements that are prepared first.
        statistics(&database, SetId(1)).unwrap();
        let steps = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&steps);
        let count = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            false
        };
        let sqlite = database.sqlite_mut().unwrap();
        sqlite.progress_handler(1, Some(count)).unwrap();
        let statistics = statistics(&database, SetId(1)).unwrap();
        (statistics, steps.load(Ordering::Relaxed))
    }

    #[test]
    fn statistics_take_no_longer_for_more_tasks() {
        let (few, steps) = counted(2);
        assert!(steps > 0);
        let (many, more_steps) = counted(300);
        assert_eq!(more_steps, steps);
        for (found, tasks) in [(few, 2), (many, 300)] {
            assert_eq!((found.pending, found.undated), (2 * tasks, tasks));
            assert_eq!((found.failed, found.held_deletions), (tasks, tasks));
            let failure = &found.failures[0];
            assert_eq!((found.failures.len(), failure.count), (1, tasks));
            let (code, message) = (failure.code.as_str(), failure.message.as_str());
            assert_eq!((code, message), ("not-found", "u3: m"));
        }
    }
}
