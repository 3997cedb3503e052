//! Which changes of a document are to be looked at.

use crate::protocol::{Interval, SourceTime};

/// Which changes of a document are news: those of the stretches that were not known before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewsFilter {
    pub(super) stated: Option<Interval>,
    pub(super) missing: Vec<Interval>,
    pub(super) front: Option<SourceTime>,
    /// From when on later documents have told already what happened.
    pub(super) late_from: Option<SourceTime>,
}

impl NewsFilter {
    /// Everything is to be looked at.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            stated: None,
            missing: Vec::new(),
            front: None,
            late_from: None,
        }
    }

    /// Whether a change of that time is told too late: a later document has told of the same time. It may have been the
    /// first to tell it, but it has not the last word.
    #[must_use]
    pub fn is_late(&self, changed_at: Option<SourceTime>) -> bool {
        matches!((self.late_from, changed_at), (Some(from), Some(changed_at)) if from <= changed_at)
    }

    /// Whether a change of that time must be looked at. In doubt it is: times are often whole seconds, so that a change at
    /// a boundary may belong to either side, or whole days, of which a part is known; and a change dated outside its own
    /// document is looked at, too.
    #[must_use]
    pub fn includes(&self, changed_at: Option<SourceTime>) -> bool {
        let (Some(stated), Some(changed_at)) = (self.stated, changed_at) else {
            return true;
        };
        let latest = changed_at.latest_possible();
        let may_be_in =
            |missing: &Interval| missing.from() <= latest && changed_at <= missing.until();
        !stated.touches(changed_at)
            || self.front.is_none_or(|front| latest >= front)
            || self.missing.iter().any(may_be_in)
    }
}
