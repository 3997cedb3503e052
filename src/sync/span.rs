//! What Change Lists prove (section 12).

use crate::protocol::{Interval, SourceTime};

/// What a Change List, or an index of them, covers. An index covers what its lists cover together: its own `from` holds
/// for all of them, also where their intervals leave a second between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// From where on every change is told; `None`: it does not say, and proves nothing.
    pub from: Option<SourceTime>,
    /// Up to where.
    pub until: Option<SourceTime>,
}

impl Span {
    /// A closed list covers what it says. An open one, without `until`, covers up to its newest entry, no further: it may
    /// lag behind.
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

    /// What this list and the one that was read after it cover: both of them together, if there is no hole between them.
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

    /// The interval that is proven; empty where nothing but its beginning is known, `None` where not even that is.
    #[must_use]
    pub fn interval(self) -> Option<Interval> {
        let from = self.from?;
        Interval::new(from, self.until.map_or(from, |until| until.max(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_cover_together_what_they_cover_without_a_hole() {
        let span = |(from, until): (i64, i64)| {
            let time = |time: i64| (time >= 0).then(|| SourceTime::from_micros(time));
            Span {
                from: time(from),
                until: time(until),
            }
        };
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
}
