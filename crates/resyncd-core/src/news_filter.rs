//! Selects the changes of a document that may be news, by their times.
//!
//! Invariant: in doubt a change is included. It is then compared with what is known of its resource, so that a change with a
//! time that is included needlessly changes nothing, and one that is left out wrongly would be lost.
//!
//! Must not know resources, their contents, or how a document was received.
//!
//! Specification: core, section 12.1 (`from`, `until`); Change Notification 1.0.1, section 3.

use resourcesync::{ChangeKind, Interval, SourceTime};

/// Which changes of a document may be news: those in intervals that were not covered before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewsFilter {
    /// The interval that the document states; `None`: every change is included.
    pub(super) stated: Option<Interval>,
    /// The parts of it that were not covered.
    pub(super) missing: Vec<Interval>,
    /// The end of what was covered and read.
    pub(super) front: Option<SourceTime>,
    /// The time from which on changes are overtaken: later documents have been read.
    pub(super) overtaken_from: Option<SourceTime>,
    /// Whether the document is a Change Set of version 0.1.
    pub(super) of_change_set: bool,
}

impl NewsFilter {
    /// Includes every change.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            stated: None,
            missing: Vec::new(),
            front: None,
            overtaken_from: None,
            of_change_set: false,
        }
    }

    /// The same of a Change Set of version 0.1.
    #[must_use]
    pub fn of_change_set(self) -> Self {
        Self {
            of_change_set: true,
            ..self
        }
    }

    /// Whether the document is a Change Set of version 0.1.
    pub fn is_of_change_set(&self) -> bool {
        self.of_change_set
    }

    /// Whether a change of that time is overtaken: a later document of the same time has been read. The change may be unknown
    /// nevertheless, but it does not replace one of the same time.
    pub fn is_overtaken(&self, changed_at: Option<SourceTime>) -> bool {
        matches!((self.overtaken_from, changed_at), (Some(from), Some(changed_at)) if from <= changed_at)
    }

    /// Whether a change of that time may be news. Times are often whole seconds, so that a change at a boundary may belong to
    /// either side, or whole days, of which a part is covered. A change that is dated outside its own document is included as
    /// well. So is one without a time, but for a deletion in a document that is covered, with its end, by later ones: it might
    /// remove what those have stated.
    pub fn includes(&self, change: Option<ChangeKind>, changed_at: Option<SourceTime>) -> bool {
        let Some(changed_at) = changed_at else {
            return change != Some(ChangeKind::Deleted) || !self.is_document_overtaken();
        };
        let Some(stated) = self.stated else {
            return true;
        };
        let latest = changed_at.latest_possible();
        let may_be_in =
            |missing: &Interval| missing.from() <= latest && changed_at <= missing.until();
        !stated.touches(changed_at)
            || self.front.is_none_or(|front| latest >= front)
            || self.missing.iter().any(may_be_in)
    }

    /// Whether the document is covered by later ones, up to its end and beyond. Where it states no end, what it states without a time may
    /// be later than the newest of its changes.
    pub fn is_document_overtaken(&self) -> bool {
        let is_passed = |until: SourceTime| {
            self.front.is_some_and(|front| until < front) && self.is_overtaken(Some(until))
        };
        let until = self.stated.map(|stated| stated.until());
        self.missing.is_empty() && until.is_some_and(is_passed)
    }
}
