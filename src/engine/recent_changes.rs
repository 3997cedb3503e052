//! Counts what was applied of a Source in the last hour and the last day, for the diagrams of the page.
//!
//! Invariants: the memory is bounded: a column for each minute of the hour and each quarter of an hour of the day. Counting does no I/O.
//! A day may have millions of changes, so they are counted as they are applied. After a start the newest entries of the feed, a bounded
//! number, are counted as well, and what is not known is not claimed: [`Activity::since`]. When the clock was ahead and is set back, the
//! changes counted meanwhile have no known time: they are left out.
//!
//! Must not know how the counts are shown.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;

use crate::status::{Activity, AppliedCounts, DELAY_BOUNDS, apply_delay};
use crate::store::FeedExcerpt;

/// How many entries of the feed are counted at the start.
pub(super) const RESTORED: usize = 5_000;

const MINUTE: i64 = 60;
const QUARTER: i64 = 15 * MINUTE;
const HOUR_COLUMNS: i64 = 60;
const DAY_COLUMNS: i64 = 96;

/// The counts of one Source.
#[derive(Debug)]
pub(super) struct RecentChanges(Mutex<RecentCounts>);

#[derive(Debug)]
struct RecentCounts {
    since: DateTime<Utc>,
    hour: Columns,
    day: Columns,
}

/// The counts of equal stretches of time, by their number since 1970.
#[derive(Debug)]
struct Columns {
    /// The length of a stretch, in seconds.
    seconds: i64,
    most: i64,
    counts: BTreeMap<i64, AppliedCounts>,
}

impl Columns {
    fn new(seconds: i64, most: i64) -> Self {
        Self {
            seconds,
            most,
            counts: BTreeMap::new(),
        }
    }

    fn number(&self, time: DateTime<Utc>) -> i64 {
        time.timestamp().div_euclid(self.seconds)
    }

    fn add(&mut self, time: DateTime<Utc>, counts: &AppliedCounts) {
        let number = self.number(time);
        self.counts.entry(number).or_default().add(counts);
    }

    /// Removes those that are not shown any more at that time, and those of a time that has not come yet; returns whether there were any of
    /// those. What is counted at about the same time may begin the next one early.
    fn advance(&mut self, now: DateTime<Utc>) -> bool {
        let number = self.number(now);
        while let Some((&first, _)) = self.counts.first_key_value()
            && first <= number - self.most
        {
            self.counts.pop_first();
        }
        let mut was_ahead = false;
        while let Some((&last, _)) = self.counts.last_key_value()
            && last > number + 1
        {
            self.counts.pop_last();
            was_ahead = true;
        }
        was_ahead
    }

    /// Those up to that time, oldest first.
    fn until(&self, now: DateTime<Utc>) -> Vec<AppliedCounts> {
        let last = self.number(now);
        let numbers = last - self.most + 1..=last;
        let counts = numbers.map(|number| self.counts.get(&number).copied().unwrap_or_default());
        counts.collect()
    }
}

impl RecentChanges {
    /// Nothing was counted before that time.
    pub(super) fn since(now: DateTime<Utc>) -> Self {
        Self(Mutex::new(RecentCounts {
            since: now,
            hour: Columns::new(MINUTE, HOUR_COLUMNS),
            day: Columns::new(QUARTER, DAY_COLUMNS),
        }))
    }

    /// Counts a change that was applied now. `change`: `created`, `updated` or `deleted`. `delay`: that of [`apply_delay`].
    pub(super) fn count(&self, now: DateTime<Utc>, change: &str, delay: Option<Duration>) {
        let mut counts = self.0.lock();
        let RecentCounts { since, hour, day } = &mut *counts;
        // The clock was ahead.
        if hour.advance(now) | day.advance(now) || *since > now {
            *since = now;
        }
        counts.add(now, change, delay);
    }
}

impl RecentCounts {
    fn add(&mut self, at: DateTime<Utc>, change: &str, delay: Option<Duration>) {
        let mut one = AppliedCounts::default();
        match change {
            "created" => one.created = 1,
            "deleted" => one.deleted = 1,
            _ => one.updated = 1,
        }
        if let Some(delay) = delay {
            let bounds = DELAY_BOUNDS.iter();
            let class = bounds.take_while(|&&bound| delay.as_secs_f64() > bound);
            one.delays[class.count()] = 1;
        }
        self.hour.add(at, &one);
        self.day.add(at, &one);
    }
}

/// Counts the newest entries of the feed for the Sources that they are of, by their names, and notes since when all are counted. Nothing
/// may have been counted before. The clock may have been set back, so that older entries have later times: those of a time that has not
/// come yet are left out.
pub(super) fn restore(
    excerpt: &FeedExcerpt,
    sources: &HashMap<&str, &RecentChanges>,
    now: DateTime<Utc>,
) {
    let day_ago = now - TimeDelta::seconds(QUARTER * DAY_COLUMNS);
    let entries = excerpt.entries.iter();
    let recent = entries.filter(|entry| (day_ago..=now).contains(&entry.applied_at));
    for entry in recent {
        let changed_at = entry.changed_at.map(|time| time.to_datetime());
        let delay = apply_delay(&entry.origin, changed_at, entry.applied_at);
        if let Some(counts) = sources.get(entry.source.as_str()) {
            let mut counts = counts.0.lock();
            counts.add(entry.applied_at, &entry.change, delay);
        }
    }
    let since = if excerpt.next.is_none() && !excerpt.was_trimmed {
        day_ago
    } else {
        // Its minute may be counted in part.
        let oldest = excerpt.entries.last().map(|oldest| oldest.applied_at);
        oldest.unwrap_or(now).clamp(day_ago, now)
    };
    for counts in sources.values() {
        let mut counts = counts.0.lock();
        counts.since = counts.since.min(since);
    }
}

/// What was applied of these Sources together.
pub(super) fn activity<'a>(
    sources: impl Iterator<Item = &'a RecentChanges>,
    now: DateTime<Utc>,
) -> Activity {
    let mut sum = Activity {
        since: DateTime::<Utc>::MIN_UTC,
        until: now,
        hour: vec![AppliedCounts::default(); HOUR_COLUMNS as usize],
        day: vec![AppliedCounts::default(); DAY_COLUMNS as usize],
    };
    for source in sources {
        let counts = source.0.lock();
        sum.since = sum.since.max(counts.since.min(now));
        for (columns, sums) in [(&counts.hour, &mut sum.hour), (&counts.day, &mut sum.day)] {
            for (sum, column) in sums.iter_mut().zip(columns.until(now)) {
                sum.add(&column);
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::FeedEntry;

    fn at(seconds: i64) -> DateTime<Utc> {
        // The begin of a quarter of an hour.
        DateTime::UNIX_EPOCH + TimeDelta::seconds(1_000_000 * QUARTER + seconds)
    }

    fn columns(counts: &[AppliedCounts]) -> Vec<(usize, u64)> {
        let counts = counts.iter().enumerate();
        let used = counts.filter(|(_, counts)| counts.changes() > 0);
        used.map(|(column, counts)| (column, counts.changes()))
            .collect()
    }

    #[test]
    fn changes_are_counted_in_the_columns_of_their_time() {
        let (one, other) = (RecentChanges::since(at(0)), RecentChanges::since(at(5)));
        let second = Some(Duration::from_secs(1));
        one.count(at(0), "created", second);
        one.count(at(59), "updated", None);
        other.count(at(60), "deleted", Some(Duration::from_secs(1_000_000)));
        let found = activity([&one, &other].into_iter(), at(61));
        assert_eq!((found.since, found.until), (at(5), at(61)));
        assert_eq!((found.hour.len(), found.day.len()), (60, 96));
        assert_eq!(columns(&found.hour), [(58, 2), (59, 1)]);
        assert_eq!(columns(&found.day), [(95, 3)]);
        let (before, last) = (found.hour[58], found.hour[59]);
        assert_eq!((before.created, before.updated, last.deleted), (1, 1, 1));
        // A second is in the class of at most a second.
        assert_eq!((before.delays[2], before.delays.iter().sum()), (1, 1u64));
        assert_eq!(last.delays[DELAY_BOUNDS.len()], 1);
        // An hour later the minutes are over, the day is not.
        let found = activity([&one].into_iter(), at(3700));
        assert_eq!(columns(&found.hour), []);
        assert_eq!(columns(&found.day), [(91, 2)]);
    }

    #[test]
    fn columns_stay_few() {
        let counts = RecentChanges::since(at(0));
        for minute in 0..10_000 {
            counts.count(at(60 * minute), "created", None);
        }
        let kept = counts.0.lock();
        assert_eq!((kept.hour.counts.len(), kept.day.counts.len()), (60, 96));
        drop(kept);
        let found = activity([&counts].into_iter(), at(60 * 9_999));
        assert_eq!(
            found.hour.iter().map(AppliedCounts::changes).sum::<u64>(),
            60
        );
    }

    #[test]
    fn counting_goes_on_when_a_clock_that_was_ahead_is_set_back() {
        // It was a day ahead when the process was started.
        let ahead = 86_400;
        let counts = RecentChanges::since(at(ahead));
        let counted = |now: i64| {
            let found = activity([&counts].into_iter(), at(now));
            (found.since, columns(&found.hour), columns(&found.day))
        };
        for minute in 0..2000 {
            counts.count(at(ahead + 60 * minute), "created", None);
        }
        assert_eq!(counted(1), (at(1), vec![], vec![]));
        for second in 1..=3 {
            counts.count(at(second), "created", None);
        }
        // Since the first one after that, and nothing of the time that has not come.
        assert_eq!(counted(5), (at(1), vec![(59, 3)], vec![(95, 3)]));
        // Nor is it shown when it comes.
        let later = at(ahead + 600);
        let found = activity([&counts].into_iter(), later);
        assert_eq!(
            (columns(&found.hour), columns(&found.day)),
            (vec![], vec![])
        );
        // What is applied at once may be counted in another order.
        counts.count(at(60), "created", None);
        counts.count(at(59), "created", None);
        assert_eq!(counted(61).0, at(1));
        assert_eq!(counted(61).1, [(58, 4), (59, 1)]);
    }

    fn entry(seq: i64, source: &str, applied_at: DateTime<Utc>) -> FeedEntry {
        FeedEntry {
            seq,
            applied_at,
            source: source.to_owned(),
            set: "set".to_owned(),
            uri: "https://example.org/a".to_owned(),
            change: "created".to_owned(),
            path: None,
            length: None,
            changed_at: None,
            origin: "notification".to_owned(),
            links: Vec::new(),
            are_links_left_out: false,
            is_patched: false,
        }
    }

    /// The counts of the Source `a` after an excerpt of the feed was counted, and since when they are.
    fn restored(excerpt: &FeedExcerpt, now: DateTime<Utc>) -> (RecentChanges, Activity) {
        let counts = RecentChanges::since(now);
        restore(excerpt, &HashMap::from([("a", &counts)]), now);
        let found = activity([&counts].into_iter(), now);
        (counts, found)
    }

    #[test]
    fn what_an_earlier_process_has_applied_is_counted_from_the_feed() {
        let now = at(86_400);
        let entries = vec![
            entry(9, "a", at(86_399)),
            entry(8, "gone", at(86_000)),
            entry(7, "a", at(10)),
            // Too old for any column.
            entry(6, "a", at(-10)),
        ];
        for (next, expected) in [(None, at(0)), (Some(6), at(0))] {
            let entries = entries.clone();
            let excerpt = FeedExcerpt {
                entries,
                next,
                was_trimmed: false,
            };
            let (_, found) = restored(&excerpt, now);
            assert_eq!(found.since, expected);
            assert_eq!(columns(&found.hour), [(58, 1)]);
            assert_eq!(found.day.iter().map(AppliedCounts::changes).sum::<u64>(), 1);
        }
        // Older ones were not read.
        let excerpt = FeedExcerpt {
            entries: vec![entry(9, "a", at(86_399))],
            next: Some(9),
            was_trimmed: false,
        };
        assert_eq!(restored(&excerpt, now).1.since, at(86_399));
        // Older ones were removed from the feed.
        for (entries, expected) in [(vec![entry(9, "a", at(86_000))], at(86_000)), (vec![], now)] {
            let excerpt = FeedExcerpt {
                entries,
                next: None,
                was_trimmed: true,
            };
            assert_eq!(restored(&excerpt, now).1.since, expected);
        }
    }

    #[test]
    fn entries_of_a_clock_that_was_ahead_are_not_counted_and_hide_no_others() {
        let now = at(86_400);
        let entries = vec![
            entry(9, "a", at(86_399)),
            entry(8, "a", at(300_000)),
            entry(7, "a", at(-300_000)),
            entry(6, "a", at(86_000)),
        ];
        let excerpt = FeedExcerpt {
            entries,
            next: Some(6),
            was_trimmed: false,
        };
        let (counts, found) = restored(&excerpt, now);
        assert_eq!(found.since, at(86_000));
        counts.count(now, "created", None);
        let found = activity([&counts].into_iter(), now);
        assert_eq!(columns(&found.hour), [(52, 1), (58, 1), (59, 1)]);
    }
}
