//! What a Change List covers by its own statement (section 12.1).

use crate::protocol::{DocumentSummary, Interval, SourceTime};
use crate::sync::Span;

/// The span that a Change List covers.
pub(super) fn span_of(summary: &DocumentSummary) -> Span {
    Span::new(summary.begins_at(), summary.until, summary.newest)
}

/// The last moment that a list covers, perhaps not completely: its `until`, or the time of its newest entry, unless that may
/// stand for a day that is not over.
pub(super) fn end_of(summary: &DocumentSummary) -> Option<SourceTime> {
    let newest = summary.newest.filter(|newest| !newest.may_be_a_date());
    summary.until.or(newest)
}

/// The interval of which a list states every change, however late it lists some of them.
pub(super) fn complete_for(summary: &DocumentSummary) -> Option<Interval> {
    Interval::new(summary.begins_at()?, end_of(summary)?)
}
