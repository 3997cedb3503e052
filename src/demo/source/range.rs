//! Requests for a part of something (RFC 9110, section 14).

use std::ops::Range;

use axum::http::HeaderMap;
use axum::http::header::{IF_RANGE, RANGE};

use super::world::Found;

/// What of a body is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// All of it.
    Whole,
    /// These bytes of it.
    Part(Range<usize>),
    /// Bytes that it does not have.
    Beyond,
}

impl Asked {
    /// Several ranges at once are answered with the whole, as the specification allows.
    pub(super) fn of(headers: &HeaderMap, found: &Found) -> Self {
        let text = |name| headers.get(name)?.to_str().ok();
        if text(IF_RANGE).is_some_and(|validator| validator != found.etag) {
            return Self::Whole;
        }
        let range = text(RANGE).and_then(|range| range.trim().strip_prefix("bytes="));
        range
            .and_then(|range| parse(range, found.document.body.len()))
            .unwrap_or(Self::Whole)
    }
}

/// A single range of that many bytes; `None`, if it makes no sense.
fn parse(range: &str, length: usize) -> Option<Asked> {
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
        Asked::Beyond
    } else {
        Asked::Part(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_or_passed_over() {
        for (range, expected) in [
            ("0-", Some(Asked::Part(0..10))),
            ("4-", Some(Asked::Part(4..10))),
            ("4-6", Some(Asked::Part(4..7))),
            ("4-60", Some(Asked::Part(4..10))),
            ("-3", Some(Asked::Part(7..10))),
            ("-30", Some(Asked::Part(0..10))),
            ("10-", Some(Asked::Beyond)),
            ("-0", Some(Asked::Beyond)),
            ("6-4", Some(Asked::Beyond)),
            ("0-1,3-4", None),
            ("x", None),
        ] {
            assert_eq!(parse(range, 10), expected, "{range}");
        }
    }
}
