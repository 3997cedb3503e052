//! Whether the deletions of a document are released, or held back until a person approves them.
//!
//! They are held back if they are too many at once, or if the list that they follow from names nothing at all: a Source
//! publishes such a list when it could not make the right one. "At once" means within ten seconds, because a broken Source may
//! announce its deletions one by one. The time is no longer, because a Source whose resources come and go all the time must
//! not wait for a person. Those that only a hub states that is not the Source count over a day as well: it is not the Source's
//! resources that come and go then.

use chrono::{DateTime, TimeDelta, Utc};
use resyncd_core::needs_approval;

use super::batch_context::BatchContext;
use crate::store::error::StoreError;
use crate::store::ids::SetId;
use crate::store::sql::Connection;
use crate::store::tables::recent_deletions::{self, RecentDeletions};
use crate::store::tables::tally::Tallied;
use crate::store::tables::{last_hold, linked, source_set, task};

/// How long a released deletion counts together with later ones.
const AT_ONCE: TimeDelta = TimeDelta::seconds(10);
/// The same for those that only a hub states.
const AT_ONCE_UNCONFIRMED: TimeDelta = TimeDelta::days(1);

/// How many deletions at once are few, however small the set is.
const FEW: u64 = 100;
/// The same where absence from a list counts among them: a list may lack what its author could not read.
const FEW_ABSENT: u64 = 10;

/// When deletions wait for a person.
#[derive(Clone, Copy, Debug)]
pub struct DeletionRules {
    /// The share of a set, 0 to 1, of which more than that (and more than a few) at once is held back.
    pub max_share: f64,
    /// Whether they follow from what a list does not name.
    pub of_absence: bool,
    /// Whether all of them are held back, however few: the list that they follow from names nothing at all.
    pub holds_all: bool,
}

/// Whether a set has recent deletions that are of no day that counts.
pub(super) fn has_old(
    sql: &Connection,
    set: SetId,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let from = now - AT_ONCE_UNCONFIRMED;
    Ok(recent_deletions::any_outside(
        sql,
        set,
        from,
        now + AT_ONCE,
    )?)
}

/// Forgets what does not count any more of the recent deletions of a set.
pub(super) fn forget_old(
    sql: &Connection,
    set: SetId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    // Rows of a time to come were written before our clock was corrected.
    Ok(recent_deletions::delete_outside(
        sql,
        set,
        now - AT_ONCE,
        now + AT_ONCE,
        now - AT_ONCE_UNCONFIRMED,
    )?)
}

/// Decides the deletions of other sets that an entry of this one has led to: so many at once as are few are released.
pub(super) fn decide_deletions_of_others(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
) -> Result<(), StoreError> {
    let rules = DeletionRules {
        max_share: 0.0,
        of_absence: false,
        holds_all: false,
    };
    for set in context.deletions_of_others.take() {
        decide_deletions(sql, set, context.now, rules)?;
    }
    Ok(())
}

/// Releases the undecided deletions of a set or holds all of them back, and returns how many are held back. They count
/// together with those that are held back already, and with those released recently and not undone since.
pub(super) fn decide_deletions(
    sql: &Tallied<'_>,
    set: SetId,
    now: DateTime<Utc>,
    rules: DeletionRules,
) -> Result<u64, StoreError> {
    if !task::has_undecided(sql, set)? {
        return Ok(0);
    }
    forget_old(sql, set, now)?;
    let is_unconfirmed = task::has_unconfirmed_deletions(sql, set)?;
    // A day's deletions count for others of a hub only.
    let since = if is_unconfirmed {
        now - AT_ONCE_UNCONFIRMED
    } else {
        now - AT_ONCE
    };
    let unreleased =
        task::count_unreleased(sql, set, since)? + linked::count_dependent(sql, set, since)?;
    let resources = source_set::totals(sql, set)?.resources;
    let few = if rules.of_absence { FEW_ABSENT } else { FEW };
    let exceeds = |recent: &RecentDeletions| {
        let deletions = unreleased + recent.all;
        needs_approval(deletions, resources + recent.applied, few, rules.max_share)
    };
    // The exact count is needed only where the upper bound exceeds the share.
    let hold = (rules.holds_all && unreleased > 0)
        || (exceeds(&recent_deletions::estimate(sql, set, since)?)
            && exceeds(&recent_deletions::count(sql, set, since)?));
    if !hold && rules.max_share < 1.0 {
        recent_deletions::insert_undecided(sql, set, now)?;
        recent_deletions::insert_dependent(sql, set, now)?;
    }
    if hold && !task::any_held_back(sql, set)? {
        source_set::set_held_since(sql, set, now)?;
    }
    if hold {
        let number = last_hold::next(sql)?;
        Ok(task::hold_undecided(sql, set, number)? as u64)
    } else {
        task::release_undecided(sql, set)?;
        Ok(0)
    }
}
