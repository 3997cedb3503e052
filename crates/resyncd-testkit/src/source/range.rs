//! Range requests (RFC 9110, section 14).

use std::ops::Range;

use axum::http::HeaderMap;
use axum::http::header::{IF_RANGE, RANGE};

use super::served::Representation;

/// The part of a body that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// The complete body.
    Full,
    /// These bytes.
    Part(Range<usize>),
    /// Bytes beyond its end: 416.
    Unsatisfiable,
}

impl RequestedRange {
    /// A request for several ranges is answered with the complete body, as the specification allows.
    pub(super) fn of(headers: &HeaderMap, found: &Representation) -> Self {
        let text = |name| headers.get(name)?.to_str().ok();
        if text(IF_RANGE).is_some_and(|validator| validator != found.etag) {
            return Self::Full;
        }
        let range = text(RANGE).and_then(|range| range.trim().strip_prefix("bytes="));
        range
            .and_then(|range| parse(range, found.file.body.len()))
            .unwrap_or(Self::Full)
    }
}

/// Parses a single range of a body of that length; `None` if it is not one.
fn parse(range: &str, length: usize) -> Option<RequestedRange> {
    let (first, last) = range.split_once('-')?;
    let part = match (first.trim(), last.trim()) {
        ("", suffix) => length.saturating_sub(suffix.parse().ok()?)..length,
        (first, "") => first.parse().ok()?..length,
        (first, last) => {
            let last: usize = last.parse().ok()?;
            first.parse().ok()?..last.saturating_add(1).min(length)
        }
    };
    Some(if part.is_empty() {
        RequestedRange::Unsatisfiable
    } else {
        RequestedRange::Part(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_ranges_are_parsed_and_others_ignored() {
        for (range, expected) in [
            ("0-", Some(RequestedRange::Part(0..10))),
            ("4-", Some(RequestedRange::Part(4..10))),
            ("4-6", Some(RequestedRange::Part(4..7))),
            ("4-60", Some(RequestedRange::Part(4..10))),
            ("-3", Some(RequestedRange::Part(7..10))),
            ("-30", Some(RequestedRange::Part(0..10))),
            ("10-", Some(RequestedRange::Unsatisfiable)),
            ("-0", Some(RequestedRange::Unsatisfiable)),
            ("6-4", Some(RequestedRange::Unsatisfiable)),
            ("0-1,3-4", None),
            ("x", None),
        ] {
            assert_eq!(parse(range, 10), expected, "{range}");
        }
    }
}
