//! When a resource is requested again whose entry states nothing about its content.
//!
//! An entry with a URI alone, as in the first example of the specification, does not state whether the resource has changed. For
//! each new version of its list one conditional request does. The requests are spread over the time until the next poll, and their
//! number a day is limited.
//!
//! Some generators state the time of the request as `lastmod` of each entry. It is noticed by the copies that were fetched because of
//! their `lastmod` alone: once [more of them](DOUBTED_FROM) have turned out equal than different, a `lastmod` that moves states no more
//! than a URI alone.
//!
//! Must not know how requests are made, nor the store.
//!
//! Specification: core, section 10.1 (only `loc` is required); sitemaps.org, `changefreq`.

use chrono::{DateTime, TimeDelta, Utc};
use resourcesync::entries::ChangeFrequency;
use resourcesync::{ContentInfo, SourceTime};

/// The time between two requests, unless they would not fit into the spread.
const PACE: TimeDelta = TimeDelta::milliseconds(100);

/// By how many more copies must have turned out equal than different for `lastmod` to be doubted.
pub const DOUBTED_FROM: u32 = 3;
/// The most that is counted of that: a Source that states real times from now on is soon believed again.
pub const DOUBTED_MOST: u32 = 10;

/// How undated entries are checked.
#[derive(Clone, Copy, Debug)]
pub struct CheckRules {
    /// How many requests a day; 0: none.
    pub per_day: u64,
    /// Over what time those of one list are spread.
    pub spread: TimeDelta,
    /// Whether those beyond the limit are made on the next days; else they are not made.
    pub postpones: bool,
}

impl CheckRules {
    /// When the next request is made, after `used` of this day.
    #[must_use]
    pub fn next(&self, now: DateTime<Utc>, used: u64) -> Option<DateTime<Utc>> {
        let days = used.checked_div(self.per_day)?;
        if days > 0 && !self.postpones {
            return None;
        }
        let spread = self.spread.num_milliseconds().max(1);
        let place = i64::try_from(used % self.per_day).unwrap_or(i64::MAX);
        let offset = place.saturating_mul(PACE.num_milliseconds()) % spread;
        let days = i64::try_from(days).ok().and_then(TimeDelta::try_days)?;
        now.checked_add_signed(days)?
            .checked_add_signed(TimeDelta::milliseconds(offset))
    }
}

/// Whether an entry states nothing that distinguishes one version of its resource from another.
#[must_use]
pub fn is_undated(lastmod: Option<SourceTime>, content: &ContentInfo) -> bool {
    lastmod.is_none() && content.length.is_none() && content.hashes.is_empty()
}

/// Whether a resource may have changed by now that changes that often, and was as the mirror has it at `checked_at`.
#[must_use]
pub fn may_have_changed(
    frequency: Option<ChangeFrequency>,
    checked_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> bool {
    let (Some(frequency), Some(checked_at)) = (frequency, checked_at) else {
        return frequency != Some(ChangeFrequency::Never);
    };
    match frequency.period() {
        // A time in the future: the clock was set back since.
        Some(period) => checked_at > now || now - checked_at >= period,
        None => frequency != ChangeFrequency::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn requests_are_spread_and_limited() {
        let now = time("2026-01-01T00:00:00Z");
        let check = |per_day, seconds, postpones, used, expected: Option<&str>| {
            let rules = CheckRules {
                per_day,
                spread: TimeDelta::seconds(seconds),
                postpones,
            };
            let next = rules.next(now, used);
            assert_eq!(next, expected.map(time), "{rules:?} {used}");
        };
        check(0, 900, true, 0, None);
        check(10, 900, true, 0, Some("2026-01-01T00:00:00Z"));
        check(10, 900, true, 9, Some("2026-01-01T00:00:00.9Z"));
        check(10, 900, true, 10, Some("2026-01-02T00:00:00Z"));
        check(10, 900, true, 25, Some("2026-01-03T00:00:00.5Z"));
        check(10, 900, false, 9, Some("2026-01-01T00:00:00.9Z"));
        check(10, 900, false, 10, None);
        check(100_000, 900, true, 8999, Some("2026-01-01T00:14:59.9Z"));
        check(100_000, 900, true, 9000, Some("2026-01-01T00:00:00Z"));
        check(100_000, 0, true, 9000, Some("2026-01-01T00:00:00Z"));
        check(1, 900, true, u64::MAX, None);
    }

    #[test]
    fn change_frequency_is_a_hint() {
        use ChangeFrequency::{Always, Daily, Monthly, Never};
        let now = time("2026-01-10T00:00:00Z");
        let check = |frequency, checked_at: Option<&str>, expected| {
            let found = may_have_changed(frequency, checked_at.map(time), now);
            assert_eq!(found, expected, "{frequency:?} {checked_at:?}");
        };
        let yesterday = Some("2026-01-09T00:00:00Z");
        let lately = Some("2026-01-09T23:00:00Z");
        check(None, lately, true);
        check(Some(Always), lately, true);
        check(Some(Never), None, false);
        check(Some(Never), yesterday, false);
        check(Some(Daily), lately, false);
        check(Some(Daily), yesterday, true);
        check(Some(Daily), Some("2027-01-01T00:00:00Z"), true);
        check(Some(Daily), None, true);
        check(Some(Monthly), yesterday, false);
        check(Some(Monthly), Some("2025-12-01T00:00:00Z"), true);
    }
}
