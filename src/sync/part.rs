//! Whether a list that an index names must be read again.

use std::ops::RangeInclusive;

use chrono::{DateTime, TimeDelta, Utc};

use super::sequencer::FUTURE_TOLERANCE;
use crate::protocol::SourceTime;

/// How long the word of an index is believed that a list has not changed: some write times there that never move.
const BELIEVED_FOR: TimeDelta = TimeDelta::days(1);
/// A time on a quarter of an hour may be a date that somebody wrote as a time, in whatever zone: it is over when that day
/// has ended everywhere.
const QUARTER_MICROS: i64 = 15 * 60 * 1_000_000;
const DATE_MICROS: i64 = 2 * 24 * 3600 * 1_000_000;
/// Any other time is whole minutes at worst.
const MINUTE_MICROS: i64 = 60 * 1_000_000;

/// What is known of a list that an index named before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownPart {
    /// Whether it was read whole, with what is wanted now.
    pub is_whole: bool,
    /// Whether this reading of the index has read it, or found it unchanged, already.
    pub is_done: bool,
    /// The time that the index told of it, if that was proof when the list was read, or asked for, last.
    pub told: Option<SourceTime>,
    /// When its server was asked for it last, on our clock.
    pub asked_at: Option<DateTime<Utc>>,
}

/// What to do with a list that an index names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartPlan {
    /// Nothing: it comes twice in one reading.
    Pass,
    /// It is unchanged, by the word of its index.
    Keep,
    /// Ask its server whether it has changed.
    Ask,
    /// Read it in any case.
    Read,
}

/// Decides what to do with a list. `told`: the time that its index tells of it now.
#[must_use]
pub fn plan_part(
    known: Option<KnownPart>,
    told: Option<SourceTime>,
    now: DateTime<Utc>,
) -> PartPlan {
    let Some(known) = known else {
        return PartPlan::Read;
    };
    if known.is_done {
        return PartPlan::Pass;
    }
    if !known.is_whole {
        return PartPlan::Read;
    }
    let is_believed = known
        .asked_at
        .is_some_and(|asked_at| believed(now).contains(&asked_at));
    if known.told.is_some() && known.told == told && is_believed {
        PartPlan::Keep
    } else {
        PartPlan::Ask
    }
}

/// When a server must have been asked for a list whose index says that it has not changed. Not in the future: our clock was
/// set back, and how long ago it was asked can't be said.
#[must_use]
pub fn believed(now: DateTime<Utc>) -> RangeInclusive<DateTime<Utc>> {
    now.checked_sub_signed(BELIEVED_FOR).unwrap_or(now)..=now
}

/// The time that an index tells of a list, if it is proof for whoever reads the list `now`: a time that is not over yet
/// may stand for a later change, too.
#[must_use]
pub fn proof_of_part(told: Option<SourceTime>, now: DateTime<Utc>) -> Option<SourceTime> {
    // Its clock may run behind ours as much as it may run ahead.
    let now = now.checked_sub_signed(FUTURE_TOLERANCE).unwrap_or(now);
    told.filter(|told| {
        let length = if told.micros() % QUARTER_MICROS == 0 {
            DATE_MICROS
        } else {
            MINUTE_MICROS
        };
        told.micros().saturating_add(length) <= now.timestamp_micros()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn list_is_read_asked_for_or_kept_by_what_is_known_of_it() {
        let now = time("2026-01-10T12:00:00Z");
        let told: Option<SourceTime> = Some("2026-01-05T10:07:31Z".parse().unwrap());
        let whole = KnownPart {
            is_whole: true,
            is_done: false,
            told,
            asked_at: Some(time("2026-01-10T11:00:00Z")),
        };
        let check = |known, told, plan| assert_eq!(plan_part(known, told, now), plan, "{known:?}");
        check(None, told, PartPlan::Read);
        check(Some(whole), told, PartPlan::Keep);
        check(Some(whole), None, PartPlan::Ask);
        check(Some(whole), Some(now.into()), PartPlan::Ask);
        let untold = KnownPart {
            told: None,
            ..whole
        };
        check(Some(untold), None, PartPlan::Ask);
        check(Some(untold), told, PartPlan::Ask);
        let half = KnownPart {
            is_whole: false,
            ..whole
        };
        check(Some(half), told, PartPlan::Read);
        let done = KnownPart {
            is_done: true,
            ..half
        };
        check(Some(done), told, PartPlan::Pass);
        let long_ago = KnownPart {
            asked_at: Some(time("2026-01-09T11:00:00Z")),
            ..whole
        };
        check(Some(long_ago), told, PartPlan::Ask);
        let to_come = KnownPart {
            asked_at: Some(time("2036-01-10T12:00:00Z")),
            ..whole
        };
        check(Some(to_come), told, PartPlan::Ask);
    }

    #[test]
    fn time_that_is_not_over_proves_nothing() {
        let check = |told: &str, now: &str, proves: bool| {
            let told = Some(told.parse().unwrap());
            let proof = proof_of_part(told, time(now));
            assert_eq!(proof, told.filter(|_| proves), "{told:?} {now}");
        };
        check("2026-01-05T10:07:31Z", "2026-01-05T10:07:32Z", false);
        check("2026-01-05T10:07:31Z", "2026-01-05T10:18:00Z", false);
        check("2026-01-05T10:07:31Z", "2026-01-05T10:19:00Z", true);
        check("2026-01-05", "2026-01-06T12:00:00Z", false);
        check("2026-01-05T00:00:00+05:30", "2026-01-06T12:00:00Z", false);
        check("2026-01-05", "2026-01-07T00:11:00Z", true);
        check("2026-01-05T10:07:31Z", "2026-01-04T00:00:00Z", false);
        assert_eq!(proof_of_part(None, time("2026-01-05T10:07:32Z")), None);
    }
}
