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

    /// The interval that is proven; empty where nothing but its beginning is known, `None` where not even that is.
    #[must_use]
    pub fn interval(self) -> Option<Interval> {
        let from = self.from?;
        Interval::new(from, self.until.map_or(from, |until| until.max(from)))
    }
}
