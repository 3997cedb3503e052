//! Checks of entries that state nothing about their content: each becomes a task that requests the resource again.

use chrono::{DateTime, Utc};
use resourcesync::ChangeKind;
use resyncd_core::{CheckRules, is_undated, may_have_changed};

use super::batch_context::BatchContext;
use super::statements::Resource;
use crate::store::change::{Change, Origin};
use crate::store::error::StoreError;
use crate::store::ids::SetId;
use crate::store::sql::Connection;
use crate::store::tables::source_set;
use crate::store::tables::tally::Tallied;

/// Whether the resource of an entry that states nothing is requested already because a list named it before.
pub(super) fn is_planned(resource: &Resource, set: SetId) -> bool {
    let task = resource.state.task.as_ref();
    task.is_some_and(|task| task.set == set && task.is_check())
}

/// Whether an entry states nothing but another `lastmod` than before, where the times of the set are doubted: then only a check shows
/// whether the resource has changed.
pub(super) fn is_doubted(
    sql: &Connection,
    context: &BatchContext<'_>,
    resource: &Resource,
    entry: &Change,
) -> Result<bool, StoreError> {
    let known = resource.state.known.as_ref();
    let is_certain = known.is_some_and(|known| !known.deleted && !known.is_doubted);
    let states_time_only = entry.lastmod.is_some() && is_undated(None, &entry.content);
    Ok(is_certain
        && states_time_only
        && context.origin == Origin::ResourceList
        && source_set::doubts_lastmod(sql, context.set)?)
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

    /// Plans the check of a resource that the mirror has and the list names, if its entry states nothing.
    pub(super) fn plan(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        resource: &mut Resource,
        entry: &Change,
    ) -> Result<(), StoreError> {
        let may_have_changed =
            may_have_changed(entry.frequency, resource.state.applied_at, context.now);
        if is_undated(entry.lastmod, &entry.content)
            && may_have_changed
            && resource.is_live()
            && resource.state.task.is_none()
        {
            self.put(sql, context, resource, entry)?;
        }
        Ok(())
    }

    /// Plans a check. Returns whether it is made at all.
    pub(super) fn put(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        resource: &mut Resource,
        entry: &Change,
    ) -> Result<bool, StoreError> {
        let Some(due) = self.rules.next(context.now, self.used) else {
            return Ok(false);
        };
        let check = Change {
            kind: ChangeKind::Updated,
            lastmod: None,
            ..entry.clone()
        };
        resource.put_check(sql, context, &check, due)?;
        self.used += 1;
        Ok(true)
    }

    pub(super) fn save(&self, sql: &Connection, set: SetId) -> Result<(), StoreError> {
        if self.used > self.before {
            source_set::set_checks(sql, set, self.day, self.used)?;
        }
        Ok(())
    }
}
