//! What a Change List covers by its own statement (section 12.1).

use resourcesync::{DocumentSummary, SourceTime};
use resyncd_core::Span;

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
