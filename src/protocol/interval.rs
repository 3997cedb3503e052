//! A stretch of the Source's own time.

use super::SourceTime;

/// A half-open stretch of the Source's own time: `from` belongs to it, `until` does not.
///
/// It may be empty (`from` = `until`), but never runs backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    from: SourceTime,
    until: SourceTime,
}

impl Interval {
    /// The interval, or `None` if it runs backwards.
    #[must_use]
    pub fn new(from: SourceTime, until: SourceTime) -> Option<Self> {
        (from <= until).then_some(Self { from, until })
    }

    /// Everything before a moment: what a Resource List of that moment tells.
    #[must_use]
    pub fn before(until: SourceTime) -> Self {
        Self {
            from: SourceTime::MIN,
            until,
        }
    }

    /// Where it begins.
    #[must_use]
    pub fn from(&self) -> SourceTime {
        self.from
    }

    /// Where it ends; that moment itself lies outside.
    #[must_use]
    pub fn until(&self) -> SourceTime {
        self.until
    }

    /// Whether it holds no time at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from == self.until
    }

    /// What both share; `None` where they share no time.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let shared = Self::new(self.from.max(other.from), self.until.min(other.until))?;
        (!shared.is_empty()).then_some(shared)
    }

    /// Whether a moment lies within it or at one of its two ends. Times are often whole seconds, so that a change at a
    /// boundary may belong to either side.
    #[must_use]
    pub fn touches(&self, moment: SourceTime) -> bool {
        self.from <= moment && moment <= self.until
    }
}
