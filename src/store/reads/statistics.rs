//! The counts of a set, and the time up to which it is in sync.

use std::sync::Arc;

use rusqlite::Connection;

use crate::protocol::SourceTime;
use crate::store::ids::SetId;
use crate::store::readers::Lane;
use crate::store::tables::source_set::{self, BaselineState};
use crate::store::tables::task::status::CountedFailure;
use crate::store::tables::task::{self, TaskState, status};
use crate::store::tables::{coverage, gap};
use crate::store::{Store, StoreError};
use crate::sync::Gap;

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
    /// Changes that were given up until the next poll.
    pub failed: u64,
    /// Deletions that are held back.
    pub held_deletions: u64,
    /// The errors of the failed ones, the most frequent code first; if none has failed, that of one that is retried.
    pub failures: Vec<CountedFailure>,
    /// Whether the baseline is done.
    pub baseline_done: bool,
    /// The time up to which every change is known to have been applied.
    pub synced_until: Option<SourceTime>,
    /// The newest time that a document of the set states for itself or for a change in it.
    pub newest: Option<SourceTime>,
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
            Ok(status::count_ready(sql, &source)?)
        })
        .await
    }
}

fn statistics(sql: &Connection, set: SetId) -> Result<SetStatistics, StoreError> {
    let totals = source_set::totals(sql, set)?;
    let baseline_done = totals.baseline == BaselineState::Done;
    let mut statistics = SetStatistics {
        resources: totals.resources,
        bytes: totals.bytes,
        failures: status::failures_of_set(sql, set, MAX_CODES)?,
        baseline_done,
        gaps: gap::of_set(sql, set)?,
        ..SetStatistics::default()
    };
    for (state, count) in status::count_by_state(sql, set)? {
        match state {
            TaskState::Failed => statistics.failed = count,
            TaskState::HeldBack => statistics.held_deletions = count,
            TaskState::Ready | TaskState::Undecided | TaskState::Interrupted => {
                statistics.pending += count;
            }
        }
    }
    statistics.undated = status::count_checks(sql, set)?;
    statistics.pending = statistics.pending.saturating_sub(statistics.undated);
    statistics.newest = coverage::newest(sql, set)?;
    statistics.synced_until = synced_until(sql, set, totals.baseline)?;
    Ok(statistics)
}

/// Once the baseline is done, the end of the unbroken coverage, held back to the oldest change in it that is not applied yet, also where another set has
/// announced it that shares the resource.
pub(in crate::store) fn synced_until(
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
    let mut oldest = vec![task::oldest_since(sql, set)?];
    for other in source_set::sharing_with(sql, set)? {
        oldest.push(task::oldest_shared_since(sql, other, set)?);
    }
    // `None` is the least: a change of unknown time may be as old as any.
    let oldest = oldest.into_iter().flatten().min();
    Ok(oldest.map_or(Some(unbroken), |oldest| oldest.min(Some(unbroken))))
}
