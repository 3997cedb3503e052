//! What a Change List, or several, cover.
//!
//! Invariants: a list without `from` covers nothing; an open list covers no more than up to its newest entry; two lists are
//! joined only if there is no hole between them.
//!
//! Must not know what is covered already: that is the [`Sequencer`](super::Sequencer)'s.
//!
//! Specification: core, sections 12.1 and 12.2 (`from`, `until`).

use resourcesync::{Interval, SourceTime};

use super::Gap;

/// What a Change List, or an index of them, covers. An index covers what its lists cover in total: its own `from` applies to
/// all of them, also where their intervals leave a second between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The beginning; `None`: not stated, so that nothing is covered.
    pub from: Option<SourceTime>,
    /// The end.
    pub until: Option<SourceTime>,
}

impl Span {
    /// The span of one list. A closed one covers what it states. An open one, without `until`, covers up to its newest entry
    /// and no further: it may lag behind.
    #[must_use]
    pub fn new(
        from: Option<SourceTime>,
        until: Option<SourceTime>,
        newest: Option<SourceTime>,
    ) -> Self {
        Self {
            from,
            until: until.or(newest),
        }
    }

    /// The span of this list and of the one that was read after it: of both if there is no hole between them, else of the
    /// later one.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let is_unbroken =
            matches!((self.until, next.from), (Some(until), Some(from)) if from <= until);
        Self {
            from: match self.from {
                Some(from) if is_unbroken => next.from.map(|next| next.min(from)),
                _ => next.from,
            },
            until: next.until.max(self.until.filter(|_| is_unbroken)),
        }
    }

    /// Whether it reaches back to the beginning of each of these gaps.
    #[must_use]
    pub fn reaches(self, gaps: &[Gap]) -> bool {
        let mut gaps = gaps.iter();
        gaps.all(|gap| self.from.is_some_and(|from| from <= gap.interval.from()))
    }

    /// What Change Lists and Change Dumps cover together. The dumps were read for what the lists do not reach back to; if they end
    /// before the lists begin, neither covers what lies between, unless a held notification does (`has_held`).
    #[must_use]
    pub fn of_lists_and_dumps(
        lists: Option<Self>,
        dumps: Option<Self>,
        has_held: bool,
    ) -> Option<Self> {
        let (Some(lists), Some(dumps)) = (lists, dumps) else {
            return lists.or(dumps);
        };
        if lists.from.is_some() && !has_held {
            return Some(dumps.then(lists));
        }
        Some(Self {
            from: lists.from.into_iter().chain(dumps.from).min(),
            until: lists.until.max(dumps.until),
        })
    }

    /// The covered interval; empty if only its beginning is known, `None` if not even that.
    pub fn interval(self) -> Option<Interval> {
        let from = self.from?;
        Interval::new(from, self.until.map_or(from, |until| until.max(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A span; negative: not stated.
    fn span((from, until): (i64, i64)) -> Span {
        let time = |time: i64| (time >= 0).then(|| SourceTime::from_micros(time));
        Span {
            from: time(from),
            until: time(until),
        }
    }

    #[test]
    fn lists_are_joined_if_there_is_no_hole_between_them() {
        for (one, next, both) in [
            ((0, 10), (10, 20), (0, 20)),
            ((0, 15), (10, 20), (0, 20)),
            ((0, 30), (10, 20), (0, 30)),
            ((5, 10), (0, 20), (0, 20)),
            ((0, 10), (11, 20), (11, 20)),
            ((0, -1), (10, 20), (10, 20)),
            ((-1, 10), (10, 20), (10, 20)),
            ((0, 10), (-1, 20), (-1, 20)),
            ((0, 10), (10, -1), (0, 10)),
        ] {
            assert_eq!(span(one).then(span(next)), span(both), "{one:?} {next:?}");
        }
    }

    #[test]
    fn dumps_are_joined_with_lists_if_nothing_is_between_them() {
        for (lists, dumps, has_held, expected) in [
            (None, None, false, None),
            (Some((5, 9)), None, false, Some((5, 9))),
            (None, Some((0, 4)), true, Some((0, 4))),
            (Some((4, 9)), Some((0, 4)), false, Some((0, 9))),
            // A hole: what is held may be in it.
            (Some((5, 9)), Some((0, 4)), false, Some((5, 9))),
            (Some((5, 9)), Some((0, 4)), true, Some((0, 9))),
            (Some((-1, 9)), Some((0, 4)), false, Some((0, 9))),
            (Some((5, 9)), Some((-1, 12)), true, Some((5, 12))),
        ] {
            let together = Span::of_lists_and_dumps(lists.map(span), dumps.map(span), has_held);
            assert_eq!(
                together,
                expected.map(span),
                "{lists:?} {dumps:?} {has_held}"
            );
        }
    }
}
