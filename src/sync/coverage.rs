//! What is known: the stretches of the Source's own time in which every change has been told.

use crate::protocol::{Interval, SourceTime};

/// A sorted list of disjoint intervals that do not touch each other. The first begins with the baseline, which covers
/// everything before its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    known: Vec<Interval>,
}

impl Coverage {
    /// The intervals, oldest first.
    #[must_use]
    pub fn intervals(&self) -> &[Interval] {
        &self.known
    }

    /// Adds what has become known; what touches or overlaps becomes one.
    pub fn cover(&mut self, interval: Interval) {
        if interval.is_empty() {
            return;
        }
        let first = self
            .known
            .partition_point(|known| known.until() < interval.from());
        let last = self
            .known
            .partition_point(|known| known.from() <= interval.until());
        let joined = self.known[first..last]
            .iter()
            .fold(interval, |joined, known| {
                Interval::new(
                    joined.from().min(known.from()),
                    joined.until().max(known.until()),
                )
                .unwrap_or(joined)
            });
        self.known.splice(first..last, [joined]);
    }

    /// Where the next notification should begin: the end of the last interval. `None` before the baseline.
    #[must_use]
    pub fn front(&self) -> Option<SourceTime> {
        self.known.last().map(Interval::until)
    }

    /// Up to where nothing is missing: the end of the first interval. `None` before the baseline.
    #[must_use]
    pub fn unbroken_until(&self) -> Option<SourceTime> {
        self.known.first().map(Interval::until)
    }

    /// Whether a moment is known.
    #[must_use]
    pub fn contains(&self, moment: SourceTime) -> bool {
        let after = self.known.partition_point(|known| known.from() <= moment);
        after > 0 && moment < self.known[after - 1].until()
    }

    /// The stretches within an interval that are not known.
    #[must_use]
    pub fn missing(&self, within: Interval) -> Vec<Interval> {
        let mut missing = Vec::new();
        let mut from = within.from();
        for known in &self.known {
            if known.until() <= from {
                continue;
            }
            if known.from() >= within.until() {
                break;
            }
            missing.extend(Interval::new(from, known.from()).filter(|hole| !hole.is_empty()));
            from = known.until();
        }
        missing.extend(Interval::new(from, within.until()).filter(|hole| !hole.is_empty()));
        missing
    }

    /// The holes between the intervals.
    pub fn holes(&self) -> impl Iterator<Item = Interval> {
        self.known
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
    fn what_is_missing_lies_between_what_is_known() {
        let coverage: Coverage = [span(0, 10), span(20, 30)].into_iter().collect();
        assert_eq!(coverage.missing(span(5, 35)), [span(10, 20), span(30, 35)]);
        assert_eq!(coverage.missing(span(0, 10)), []);
        assert_eq!(coverage.missing(span(12, 14)), [span(12, 14)]);
        assert_eq!(coverage.holes().collect::<Vec<_>>(), [span(10, 20)]);
        for (moment, known) in [
            (0, true),
            (9, true),
            (10, false),
            (19, false),
            (20, true),
            (30, false),
        ] {
            assert_eq!(
                coverage.contains(SourceTime::from_micros(moment)),
                known,
                "{moment}"
            );
        }
        assert_eq!(coverage.front(), Some(SourceTime::from_micros(30)));
        assert_eq!(coverage.unbroken_until(), Some(SourceTime::from_micros(10)));
    }

    proptest! {
        /// The order in which intervals are covered does not matter, and moment by moment the list says the same as the set.
        #[test]
        fn coverage_is_the_union_of_what_was_covered(
            mut parts in proptest::collection::vec((0_i64..60, 0_i64..12), 0..24),
            asked in (0_i64..60, 0_i64..20),
        ) {
            let forwards: Coverage = parts.iter().map(|&(from, length)| span(from, from + length)).collect();
            let moments = |moment: i64| parts.iter().any(|&(from, length)| from <= moment && moment < from + length);
            for moment in 0..80 {
                let missing = forwards.missing(span(moment, moment + 1)).is_empty();
                prop_assert_eq!(missing, moments(moment));
            }
            let within = span(asked.0, asked.0 + asked.1);
            let missing: i64 = forwards.missing(within).iter().map(|hole| hole.until().micros() - hole.from().micros()).sum();
            let expected = (asked.0..asked.0 + asked.1).filter(|&moment| !moments(moment)).count();
            prop_assert_eq!(missing, i64::try_from(expected).unwrap());
            parts.reverse();
            let backwards: Coverage = parts.iter().map(|&(from, length)| span(from, from + length)).collect();
            prop_assert_eq!(&forwards, &backwards);
            prop_assert!(forwards.intervals().windows(2).all(|pair| pair[0].until() < pair[1].from()));
        }
    }
}
