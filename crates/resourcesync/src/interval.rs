//! Intervals of the Source's time.

use super::SourceTime;

/// A half-open interval of the Source's time: `from` is inside, `until` is not (section 12.1).
///
/// It may be empty (`from` = `until`); `from` is never later than `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    from: SourceTime,
    until: SourceTime,
}

impl Interval {
    /// The interval, or `None` if `from` is later than `until`.
    #[must_use]
    pub fn new(from: SourceTime, until: SourceTime) -> Option<Self> {
        (from <= until).then_some(Self { from, until })
    }

    /// All time before a moment: what a Resource List of that moment covers.
    #[must_use]
    pub fn before(until: SourceTime) -> Self {
        Self {
            from: SourceTime::MIN,
            until,
        }
    }

    /// The begin.
    pub fn from(&self) -> SourceTime {
        self.from
    }

    /// The end, which is outside.
    pub fn until(&self) -> SourceTime {
        self.until
    }

    /// Whether it contains no time.
    pub fn is_empty(&self) -> bool {
        self.from == self.until
    }

    /// The time that both contain; `None` if there is none.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let shared = Self::new(self.from.max(other.from), self.until.min(other.until))?;
        (!shared.is_empty()).then_some(shared)
    }

    /// Whether a moment is inside or at one of the two ends. Times are often rounded to seconds, so that a change at an end
    /// may belong to either side.
    pub fn touches(&self, moment: SourceTime) -> bool {
        self.from <= moment && moment <= self.until
    }
}
