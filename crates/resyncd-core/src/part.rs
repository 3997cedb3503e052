//! Decides whether a part of an index must be read again.
//!
//! An index states for each part when it was modified last. If that time is the same as when the part was read, the part need
//! not be requested. Some Sources write times that never change, so the server is asked once a day in any case.
//!
//! A part of which the index states that nothing in it is selected is left out, as long as it was never read. That it does not name a
//! resource is unknown: where something would be deleted because no part names it, the list is read once more, with all of its parts.
//!
//! Invariants: a part that was not read completely is read; a time that is not over yet proves nothing.
//!
//! Must not know what a part contains, nor how it is fetched or stored.
//!
//! Specification: core, sections 10.2 and 12.2 (indexes), `lastmod`.

use std::ops::RangeInclusive;

use chrono::{DateTime, TimeDelta, Utc};
use resourcesync::SourceTime;

use super::sequencer::FUTURE_TOLERANCE;

/// How long an index is trusted that states a part to be unchanged: some write times there that never change.
const TRUSTED_FOR: TimeDelta = TimeDelta::days(1);
/// A time on a quarter hour (:00, :15, :30, :45) may be a date converted from any time zone; it counts as past when that day has
/// ended in every zone.
const QUARTER_MICROS: i64 = 15 * 60 * 1_000_000;
const DATE_MICROS: i64 = 2 * 24 * 3600 * 1_000_000;
/// Any other time may be rounded to whole minutes.
const MINUTE_MICROS: i64 = 60 * 1_000_000;

/// What is known of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownPart {
    /// Whether it was read completely, with the present filter.
    pub is_complete: bool,
    /// Whether it was read, or found unchanged, since the reading of the index began.
    pub is_done: bool,
    /// The time that the index stated for it when it was read or checked last, if that was [proof](unchanged_proof).
    pub announced: Option<SourceTime>,
    /// When it was requested from its server last, on our clock.
    pub asked_at: Option<DateTime<Utc>>,
}

/// What to do with a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartPlan {
    /// Nothing: the index states that nothing in it is selected. It proves no absence.
    LeftOut,
    /// Nothing: the index names it twice.
    Repeated,
    /// Nothing: the index states that it is unchanged.
    Unchanged,
    /// Request it conditionally.
    Revalidate,
    /// Request and read it in any case.
    Read,
}

/// Decides what to do with a part. `modified`: the time that the index states for it now; `is_ruled_out`: whether the index states that
/// nothing in it is selected, and this reading may leave it out.
#[must_use]
pub fn plan_part(
    known: Option<KnownPart>,
    modified: Option<SourceTime>,
    is_ruled_out: bool,
    now: DateTime<Utc>,
) -> PartPlan {
    let Some(known) = known else {
        return if is_ruled_out {
            PartPlan::LeftOut
        } else {
            PartPlan::Read
        };
    };
    if known.is_done {
        return PartPlan::Repeated;
    }
    if !known.is_complete {
        return PartPlan::Read;
    }
    let is_trusted = known
        .asked_at
        .is_some_and(|asked_at| trusted_check_times(now).contains(&asked_at));
    if known.announced.is_some() && known.announced == modified && is_trusted {
        PartPlan::Unchanged
    } else {
        PartPlan::Revalidate
    }
}

/// When a part must have been requested last for its index to be trusted. A time in the future is excluded: our clock was set
/// back, and the age of the request is unknown.
#[must_use]
pub fn trusted_check_times(now: DateTime<Utc>) -> RangeInclusive<DateTime<Utc>> {
    now.checked_sub_signed(TRUSTED_FOR).unwrap_or(now)..=now
}

/// The time that an index states for a part, if the same time can prove later that the part has not changed since `now`. A
/// time that is not over yet may also stand for a later change.
#[must_use]
pub fn unchanged_proof(modified: Option<SourceTime>, now: DateTime<Utc>) -> Option<SourceTime> {
    // The Source's clock may run behind ours by as much as it may run ahead.
    let now = now.checked_sub_signed(FUTURE_TOLERANCE).unwrap_or(now);
    modified.filter(|modified| {
        let length = if modified.micros() % QUARTER_MICROS == 0 {
            DATE_MICROS
        } else {
            MINUTE_MICROS
        };
        modified.micros().saturating_add(length) <= now.timestamp_micros()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn plan_depends_on_what_is_known_of_the_part() {
        let now = time("2026-01-10T12:00:00Z");
        let modified: Option<SourceTime> = Some("2026-01-05T10:07:31Z".parse().unwrap());
        let complete = KnownPart {
            is_complete: true,
            is_done: false,
            announced: modified,
            asked_at: Some(time("2026-01-10T11:00:00Z")),
        };
        let check = |known, modified, plan| {
            assert_eq!(plan_part(known, modified, false, now), plan, "{known:?}");
            // What was read before is read again.
            let ruled_out = known.map_or(PartPlan::LeftOut, |_| plan);
            assert_eq!(
                plan_part(known, modified, true, now),
                ruled_out,
                "{known:?}"
            );
        };
        check(None, modified, PartPlan::Read);
        check(Some(complete), modified, PartPlan::Unchanged);
        check(Some(complete), None, PartPlan::Revalidate);
        check(Some(complete), Some(now.into()), PartPlan::Revalidate);
        let without_proof = KnownPart {
            announced: None,
            ..complete
        };
        check(Some(without_proof), None, PartPlan::Revalidate);
        check(Some(without_proof), modified, PartPlan::Revalidate);
        let incomplete = KnownPart {
            is_complete: false,
            ..complete
        };
        check(Some(incomplete), modified, PartPlan::Read);
        let done = KnownPart {
            is_done: true,
            ..incomplete
        };
        check(Some(done), modified, PartPlan::Repeated);
        let long_ago = KnownPart {
            asked_at: Some(time("2026-01-09T11:00:00Z")),
            ..complete
        };
        check(Some(long_ago), modified, PartPlan::Revalidate);
        let in_future = KnownPart {
            asked_at: Some(time("2036-01-10T12:00:00Z")),
            ..complete
        };
        check(Some(in_future), modified, PartPlan::Revalidate);
    }

    #[test]
    fn time_that_is_not_over_proves_nothing() {
        let check = |modified: &str, now: &str, proves: bool| {
            let modified = Some(modified.parse().unwrap());
            let proof = unchanged_proof(modified, time(now));
            assert_eq!(proof, modified.filter(|_| proves), "{modified:?} {now}");
        };
        check("2026-01-05T10:07:31Z", "2026-01-05T10:07:32Z", false);
        check("2026-01-05T10:07:31Z", "2026-01-05T10:18:00Z", false);
        check("2026-01-05T10:07:31Z", "2026-01-05T10:19:00Z", true);
        check("2026-01-05", "2026-01-06T12:00:00Z", false);
        check("2026-01-05T00:00:00+05:30", "2026-01-06T12:00:00Z", false);
        check("2026-01-05", "2026-01-07T00:11:00Z", true);
        check("2026-01-05T10:07:31Z", "2026-01-04T00:00:00Z", false);
        assert_eq!(unchanged_proof(None, time("2026-01-05T10:07:32Z")), None);
    }
}
