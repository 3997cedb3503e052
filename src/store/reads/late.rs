//! Compares entries whose time was covered before with what is known of their resources. Nothing is written: of a document that
//! is read again, most entries are known.

use resourcesync::{Interval, SourceTime};
use resyncd_core::{LateChange, Pending, ends_listed, plan_late};
use rusqlite::Connection;

use crate::store::change::Change;
use crate::store::ids::SetId;
use crate::store::tables::{membership, resource, source_set};
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
            let listed_at = source_set::list_at(sql, set)?;
            changes
                .map(|change| compare(sql, set, source, listed_at, change))
                .collect()
        })
    }

    /// As [`compare_late`](Self::compare_late), for changes of a Change Set. Its Sitemap ends no membership, so that it counts only for
    /// what it names. For a caller on a blocking thread.
    pub fn compare_late_of_change_set<'a>(
        &self,
        set: SetId,
        source: &str,
        changes: impl Iterator<Item = &'a Change>,
    ) -> Result<Vec<LateChange>, StoreError> {
        self.read_blocking(|sql| {
            let sitemap = Sitemap::read(sql, set)?;
            changes
                .map(|change| sitemap.compare(sql, source, change))
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
            let sitemap = Sitemap::read(sql, set)?;
            let mut earliest: Option<Interval> = None;
            for (interval, change) in changes {
                let is_earlier = earliest.is_none_or(|earliest| *interval < earliest);
                if is_earlier && sitemap.knows(sql, source, *interval, change)? {
                    earliest = Some(*interval);
                }
            }
            Ok(earliest)
        })
    }
}

/// The Sitemap of a set of version 0.1, as it was read last.
struct Sitemap {
    set: SetId,
    at: Option<SourceTime>,
    generation: i64,
}

impl Sitemap {
    fn read(sql: &Connection, set: SetId) -> Result<Self, StoreError> {
        Ok(Self {
            set,
            at: source_set::list_at(sql, set)?,
            generation: source_set::generation(sql, set)?,
        })
    }

    fn compare(
        &self,
        sql: &Connection,
        source: &str,
        change: &Change,
    ) -> Result<LateChange, StoreError> {
        let Some(state) = resource::state(sql, source, &change.uri, self.set)? else {
            return compare(sql, self.set, source, None, change);
        };
        let is_named = membership::is_named(sql, self.set, state.id, self.generation)?;
        let listed_at = self.at.filter(|_| is_named);
        let announced = change.announced();
        let (known, pending) = (state.known.as_ref(), state.pending.as_ref());
        match compare(sql, self.set, source, listed_at, change)? {
            LateChange::Known if ends_listed(&announced, known, pending) => Ok(LateChange::Ends),
            planned => Ok(planned),
        }
    }

    fn knows(
        &self,
        sql: &Connection,
        source: &str,
        interval: Interval,
        change: &Change,
    ) -> Result<bool, StoreError> {
        if is_recorded(sql, self.set, source, change)? {
            return Ok(true);
        }
        let latest = change.changed_at.map(SourceTime::latest_possible);
        let is_covered = latest.is_some_and(|latest| latest < interval.until());
        Ok(is_covered && self.compare(sql, source, change)? != LateChange::News)
    }
}

/// Whether a change of that time of that resource was applied, or is pending.
fn is_recorded(
    sql: &Connection,
    set: SetId,
    source: &str,
    change: &Change,
) -> Result<bool, StoreError> {
    let Some(state) = resource::state(sql, source, &change.uri, set)? else {
        return Ok(false);
    };
    let known = state.known.as_ref();
    let times = [
        known.and_then(|known| known.changed_at),
        known.and_then(|known| known.lastmod),
        state
            .pending
            .as_ref()
            .and_then(|pending| pending.changed_at),
    ];
    Ok(change.changed_at.is_some() && times.contains(&change.changed_at))
}

fn compare(
    sql: &Connection,
    set: SetId,
    source: &str,
    listed_at: Option<SourceTime>,
    change: &Change,
) -> Result<LateChange, StoreError> {
    let state = resource::state(sql, source, &change.uri, set)?;
    let Some(state) = &state else {
        return Ok(plan_late(&change.announced(), None, None, None));
    };
    let known = state.known.as_ref();
    // A list that was read completely has ended the membership of what it does not name.
    let listed_at = listed_at.filter(|_| state.membership.is_some());
    // A request for a resource whose entry states nothing is no change, and a deletion that is interrupted is stated again.
    let is_check = |pending: &&Pending| {
        known.is_some() && state.is_pending_of_own_list && pending.changed_at.is_none()
    };
    let pending = state.pending.as_ref();
    let pending = pending.filter(|pending| !state.is_interrupted && !is_check(pending));
    Ok(plan_late(&change.announced(), known, pending, listed_at))
}
