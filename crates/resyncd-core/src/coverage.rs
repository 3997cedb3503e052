//! Coverage: the intervals of the Source's own time in which every change is known.
//!
//! It states what need not be fetched again. It never states that an entry may be ignored: that depends on what is known of
//! the entry's own resource.
//!
//! Invariants: the intervals are half-open, sorted, disjoint, and do not touch; covering an interval never shrinks the
//! coverage.
//!
//! Must not know what covered an interval, nor our clock.
//!
//! Specification: Change Notification 1.0.1, section 3 (consecutive intervals); core, sections 10.1 and 12.1 (`at`, `from`,
//! `until`).

use resourcesync::{Interval, SourceTime};

/// The covered intervals of a set. The first one begins with the baseline, which covers everything before its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    covered: Vec<Interval>,
}

impl Coverage {
    /// The intervals, oldest first.
    pub fn intervals(&self) -> &[Interval] {
        &self.covered
    }

    /// Adds an interval; intervals that touch or overlap are joined.
    pub fn cover(&mut self, interval: Interval) {
        if interval.is_empty() {
            return;
        }
        let first = self
            .covered
            .partition_point(|covered| covered.until() < interval.from());
        let last = self
            .covered
            .partition_point(|covered| covered.from() <= interval.until());
        let joined = self.covered[first..last]
            .iter()
            .fold(interval, |joined, covered| {
                Interval::new(
                    joined.from().min(covered.from()),
                    joined.until().max(covered.until()),
                )
                .unwrap_or(joined)
            });
        self.covered.splice(first..last, [joined]);
    }

    /// The end of the last interval, where the next notification should begin. `None` before the baseline.
    pub fn front(&self) -> Option<SourceTime> {
        self.covered.last().map(Interval::until)
    }

    /// The end of the first interval: before it nothing is missing. `None` before the baseline.
    pub fn unbroken_until(&self) -> Option<SourceTime> {
        self.covered.first().map(Interval::until)
    }

    /// Whether a moment is covered.
    pub fn contains(&self, moment: SourceTime) -> bool {
        let after = self
            .covered
            .partition_point(|covered| covered.from() <= moment);
        after > 0 && moment < self.covered[after - 1].until()
    }

    /// The parts of an interval that are not covered.
    #[must_use]
    pub fn missing(&self, within: Interval) -> Vec<Interval> {
        let mut missing = Vec::new();
        let mut from = within.from();
        for covered in &self.covered {
            if covered.until() <= from {
                continue;
            }
            if covered.from() >= within.until() {
                break;
            }
            missing.extend(Interval::new(from, covered.from()).filter(|hole| !hole.is_empty()));
            from = covered.until();
        }
        missing.extend(Interval::new(from, within.until()).filter(|hole| !hole.is_empty()));
        missing
    }

    /// The holes between the covered intervals, oldest first.
    pub fn holes(&self) -> impl Iterator<Item = Interval> {
        self.covered
            .windows(2)
            .filter_map(|pair| Interval::new(pair[0].until(), pair[1].from()))
    }
}

impl FromIterator<Interval> for Coverage {
    fn from_iter<I: IntoIterator<Item = Interval>>(intervals: I) -> Self {
        let mut coverage = Self::default();
        for interval in intervals {
            coverage.cover(interval);
        }
        coverage
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(from: i64, until: i64) -> Interval {
        Interval::new(
            SourceTime::from_micros(from),
            SourceTime::from_micros(until),
        )
        .unwrap()
    }

    fn check(covered: &[(i64, i64)], expected: &[(i64, i64)]) {
        let coverage: Coverage = covered
            .iter()
            .map(|&(from, until)| span(from, until))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|&(from, until)| span(from, until))
            .collect();
        assert_eq!(coverage.intervals(), expected, "after covering {covered:?}");
    }

    #[test]
    fn intervals_that_touch_or_overlap_become_one() {
        check(&[], &[]);
        check(&[(0, 10)], &[(0, 10)]);
        check(&[(0, 10), (10, 20)], &[(0, 20)]);
        check(&[(10, 20), (0, 10)], &[(0, 20)]);
        check(&[(0, 10), (11, 20)], &[(0, 10), (11, 20)]);
        check(&[(0, 10), (20, 30), (5, 25)], &[(0, 30)]);
        check(
            &[(0, 10), (20, 30), (40, 50), (12, 35)],
            &[(0, 10), (12, 35), (40, 50)],
        );
        check(&[(0, 10), (20, 30), (40, 50), (10, 40)], &[(0, 50)]);
        check(&[(0, 30), (10, 20)], &[(0, 30)]);
        check(&[(0, 10), (15, 15)], &[(0, 10)]);
    }

    #[test]
    fn missing_parts_lie_between_covered_intervals() {
        let coverage: Coverage = [span(0, 10), span(20, 30)].into_iter().collect();
        assert_eq!(coverage.missing(span(5, 35)), [span(10, 20), span(30, 35)]);
        assert_eq!(coverage.missing(span(0, 10)), []);
        assert_eq!(coverage.missing(span(12, 14)), [span(12, 14)]);
        assert_eq!(coverage.holes().collect::<Vec<_>>(), [span(10, 20)]);
        for (moment, covered) in [
            (0, true),
            (9, true),
            (10, false),
            (19, false),
            (20, true),
            (30, false),
        ] {
            assert_eq!(
                coverage.contains(SourceTime::from_micros(moment)),
                covered,
                "{moment}"
            );
        }
        assert_eq!(coverage.front(), Some(SourceTime::from_micros(30)));
        assert_eq!(coverage.unbroken_until(), Some(SourceTime::from_micros(10)));
    }

    proptest! {
        /// The order in which intervals are covered does not matter, and each moment is covered if one of them contains it.
        #[test]
        fn coverage_is_the_union_of_the_covered_intervals(
            mut parts in proptest::collection::vec((0_i64..60, 0_i64..12), 0..24),
            query in (0_i64..60, 0_i64..20),
        ) {
            let forwards: Coverage = parts.iter().map(|&(from, length)| span(from, from + length)).collect();
            let is_covered = |moment: i64| parts.iter().any(|&(from, length)| from <= moment && moment < from + length);
            for moment in 0..80 {
                let covered = forwards.missing(span(moment, moment + 1)).is_empty();
                prop_assert_eq!(covered, is_covered(moment));
            }
            let within = span(query.0, query.0 + query.1);
            let missing: i64 = forwards.missing(within).iter().map(|hole| hole.until().micros() - hole.from().micros()).sum();
            let expected = (query.0..query.0 + query.1).filter(|&moment| !is_covered(moment)).count();
            prop_assert_eq!(missing, i64::try_from(expected).unwrap());
            parts.reverse();
            let backwards: Coverage = parts.iter().map(|&(from, length)| span(from, from + length)).collect();
            prop_assert_eq!(&forwards, &backwards);
            prop_assert!(forwards.intervals().windows(2).all(|pair| pair[0].until() < pair[1].from()));
        }
    }
}
