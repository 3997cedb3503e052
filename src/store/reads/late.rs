//! Compares entries whose time was covered before with what is known of their resources. Nothing is written: of a document that
//! is read again, most entries are known.

use chrono::DateTime;
use resourcesync::{ChangeKind, Interval, SourceTime};
use resyncd_core::{Applied, Desired, LateChange, Stated, Voice};

use crate::store::change::{Change, Origin};
use crate::store::ids::SetId;
use crate::store::sql::Connection;
use crate::store::tables::task::TaskState;
use crate::store::tx::batch_context::BatchContext;
use crate::store::tx::statements::{Resource, entry_of};
use crate::store::{Store, StoreError};

impl Store {
    /// What each of these changes means. For a caller on a blocking thread.
    pub fn compare_late<'a>(
        &self,
        set: SetId,
        source: &str,
        changes: impl Iterator<Item = &'a Change>,
    ) -> Result<Vec<LateChange>, StoreError> {
        self.read_blocking(|sql| {
            let context = context(sql, set, source)?;
            changes
                .map(|change| compare(&context, resource_of(sql, &context, change)?, change))
                .collect()
        })
    }

    /// As [`compare_late`](Self::compare_late), for changes of a Change Set: it may state the deletion of what the Sitemap names with the
    /// same time. The draft of version 0.1 has both in its examples: the Change Set alone states what has happened then. For a caller on a
    /// blocking thread.
    pub fn compare_late_of_change_set<'a>(
        &self,
        set: SetId,
        source: &str,
        changes: impl Iterator<Item = &'a Change>,
    ) -> Result<Vec<LateChange>, StoreError> {
        self.read_blocking(|sql| {
            let context = context(sql, set, source)?;
            changes
                .map(|change| {
                    let resource = resource_of(sql, &context, change)?;
                    compare_of_change_set(&context, resource, change)
                })
                .collect()
        })
    }

    /// The earliest of these covered intervals with a change that is known: one of its time was applied or is pending, or it happened
    /// before the end of the interval, and what is known of its resource is not older. For a caller on a blocking thread.
    pub fn earliest_known(
        &self,
        set: SetId,
        source: &str,
        changes: &[(Interval, Change)],
    ) -> Result<Option<Interval>, StoreError> {
        self.read_blocking(|sql| {
            let context = context(sql, set, source)?;
            let mut earliest: Option<Interval> = None;
            for (interval, change) in changes {
                let is_earlier = earliest.is_none_or(|earliest| *interval < earliest);
                if !is_earlier {
                    continue;
                }
                let resource = resource_of(sql, &context, change)?;
                if is_known(&context, resource, *interval, change)? {
                    earliest = Some(*interval);
                }
            }
            Ok(earliest)
        })
    }
}

fn context<'a>(
    sql: &'a Connection,
    set: SetId,
    source: &'a str,
) -> Result<BatchContext<'a>, StoreError> {
    BatchContext::read(sql, set, source, Origin::ChangeList, DateTime::UNIX_EPOCH)
}

fn resource_of(
    sql: &Connection,
    context: &BatchContext<'_>,
    change: &Change,
) -> Result<Option<Resource>, StoreError> {
    let state = context.state_of(&change.uri)?;
    state
        .map(|state| Resource::read(sql, context, state))
        .transpose()
}

fn compare(
    context: &BatchContext<'_>,
    resource: Option<Resource>,
    change: &Change,
) -> Result<LateChange, StoreError> {
    // What has no time can't be distinguished from what was read before.
    if change.changed_at.is_none() {
        return Ok(LateChange::Known);
    }
    let Some(mut resource) = resource else {
        return Ok(match change.kind {
            ChangeKind::Deleted => LateChange::Same,
            ChangeKind::Created | ChangeKind::Updated => LateChange::News,
        });
    };
    let task = resource.state.task.as_ref();
    let is_interrupted = task.is_some_and(|it| it.state == TaskState::Interrupted);
    let is_pending = task.is_some();
    let entry = entry_of(context.set, change, Stated::Change(change.kind));
    Ok(match resource.apply(&entry, true) {
        Applied::News if is_pending => LateChange::News,
        Applied::News if resource.decide(context)?.desired == Desired::Settled => LateChange::Same,
        Applied::News => LateChange::News,
        Applied::Known if is_interrupted => LateChange::News,
        Applied::Known | Applied::Older(_) => LateChange::Known,
    })
}

fn compare_of_change_set(
    context: &BatchContext<'_>,
    mut resource: Option<Resource>,
    change: &Change,
) -> Result<LateChange, StoreError> {
    let own = resource
        .as_mut()
        .and_then(|resource| resource.stated_by(context.set, Voice::Source));
    let ends_listed = own.is_some_and(|own| {
        let is_listed = matches!(own.entry.stated, Stated::Listed(_));
        let is_of_its_time = [own.entry.at, own.entry.lastmod].contains(&change.changed_at);
        change.kind == ChangeKind::Deleted && is_listed && is_of_its_time
    });
    Ok(match compare(context, resource, change)? {
        LateChange::Known if ends_listed => LateChange::Ends,
        compared => compared,
    })
}

fn is_known(
    context: &BatchContext<'_>,
    resource: Option<Resource>,
    interval: Interval,
    change: &Change,
) -> Result<bool, StoreError> {
    if change.changed_at.is_some()
        && let Some(resource) = &resource
    {
        let mut stated = resource.statements.iter().map(|it| &it.entry);
        if stated.any(|it| [it.at, it.lastmod].contains(&change.changed_at)) {
            return Ok(true);
        }
    }
    let latest = change.changed_at.map(SourceTime::latest_possible);
    let is_covered = latest.is_some_and(|latest| latest < interval.until());
    Ok(is_covered && compare_of_change_set(context, resource, change)? != LateChange::News)
}
