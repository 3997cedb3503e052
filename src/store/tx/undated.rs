//! Checks of entries that state nothing about their content: each becomes a task that requests the resource again.

use chrono::{DateTime, Utc};
use resourcesync::ChangeKind;
use resyncd_core::{CheckRules, Pending, is_undated, may_have_changed};
use rusqlite::Connection;

use super::batch_context::BatchContext;
use super::put_task::put_task_at;
use crate::store::change::{Change, Origin};
use crate::store::error::StoreError;
use crate::store::ids::SetId;
use crate::store::tables::resource::ResourceState;
use crate::store::tables::source_set;
use crate::store::tables::tally::Tallied;

/// Whether the resource of an entry that states nothing is requested already because a list named it before.
pub(super) fn is_planned(state: &ResourceState, entry: &Change) -> bool {
    let is_update = |pending: &Pending| pending.kind == ChangeKind::Updated;
    is_undated(entry.lastmod, &entry.content)
        && state.is_pending_of_own_list
        && state.pending.as_ref().is_some_and(is_update)
}

/// Plans the check of a resource whose entry states nothing but another `lastmod` than before, where the times of the set are doubted.
/// Returns whether one is planned, now or before; if not, the entry counts as it is. `checks`: `None`, if the list is not new.
pub(super) fn plan_doubted(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    checks: Option<&mut UndatedChecks>,
    state: &ResourceState,
    entry: &Change,
) -> Result<bool, StoreError> {
    let known = state.known.as_ref();
    let is_certain = known.is_some_and(|known| !known.deleted && !known.is_doubted);
    let states_time_only = entry.lastmod.is_some() && is_undated(None, &entry.content);
    if !is_certain
        || !states_time_only
        || context.origin != Origin::ResourceList
        || !source_set::doubts_lastmod(sql, context.set)?
    {
        return Ok(false);
    }
    // The time of the change stays: it is recorded once the check has ended, so that the same entry is no news any more.
    let undated = Change {
        lastmod: None,
        ..entry.clone()
    };
    if is_planned(state, &undated) {
        return Ok(true);
    }
    match checks {
        // It was planned when the list was new.
        None => Ok(true),
        Some(_) if state.pending.is_some() => Ok(false),
        Some(checks) => checks.put(sql, context, state, &undated),
    }
}

/// The checks of one batch of entries.
pub(super) struct UndatedChecks {
    rules: CheckRules,
    /// In days since 1970.
    day: i64,
    /// How many of that day were made or planned, and how many of them before this batch.
    used: u64,
    before: u64,
}

impl UndatedChecks {
    pub(super) fn read(
        sql: &Connection,
        set: SetId,
        rules: CheckRules,
        now: DateTime<Utc>,
    ) -> Result<Self, StoreError> {
        let day = now.timestamp().div_euclid(24 * 3600);
        let before = source_set::checks_on(sql, set, day)?;
        Ok(Self {
            rules,
            day,
            used: before,
            before,
        })
    }

    /// Plans the check of a resource that the mirror has and the list names, if its entry states nothing. Returns whether one is planned, now or before.
    pub(super) fn plan(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        state: &ResourceState,
        entry: &Change,
    ) -> Result<bool, StoreError> {
        if is_planned(state, entry) {
            return Ok(true);
        }
        if !is_undated(entry.lastmod, &entry.content)
            || !may_have_changed(entry.frequency, state.applied_at, context.now)
            || state.pending.is_some()
        {
            return Ok(false);
        }
        self.put(sql, context, state, entry)
    }

    /// Returns whether the check is made at all.
    fn put(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        state: &ResourceState,
        entry: &Change,
    ) -> Result<bool, StoreError> {
        let Some(due) = self.rules.next(context.now, self.used) else {
            return Ok(false);
        };
        let check = Change {
            kind: ChangeKind::Updated,
            ..entry.clone()
        };
        self.used += u64::from(put_task_at(sql, context, state.id, &check, due)?);
        Ok(true)
    }

    pub(super) fn save(&self, sql: &Connection, set: SetId) -> Result<(), StoreError> {
        if self.used > self.before {
            source_set::set_checks(sql, set, self.day, self.used)?;
        }
        Ok(())
    }
}
