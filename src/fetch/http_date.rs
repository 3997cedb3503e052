//! HTTP dates (RFC 9110, section 5.6.7), and the `Retry-After` header (section 10.2.3).

use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// Parses an HTTP date in any of its three forms. The day of the week is ignored: it is redundant, and sometimes wrong.
pub(super) fn parse_http_date(text: &str) -> Option<DateTime<Utc>> {
    let text = text.trim();
    let (weekday, rest) = text
        .split_once([',', ' '])
        .map(|(weekday, rest)| (weekday, rest.trim()))?;
    if !weekday.chars().all(|c| c.is_ascii_alphabetic()) {
        return None;
    }
    [
        "%d %b %Y %H:%M:%S GMT", // Sun, 06 Nov 1994 08:49:37 GMT
        "%d %b %Y %H:%M:%S UTC",
        "%d-%b-%y %H:%M:%S GMT", // Sunday, 06-Nov-94 08:49:37 GMT
        "%b %e %H:%M:%S %Y",     // Sun Nov  6 08:49:37 1994
    ]
    .iter()
    .find_map(|form| NaiveDateTime::parse_from_str(rest, form).ok())
    .map(|time| time.and_utc())
}

/// The pause that a server asks for: seconds, or until a date.
pub(super) fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // A number that is too large is saturated.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until = parse_http_date(value)?;
    Some((until - now).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_forms_are_parsed() {
        let expected = DateTime::from_timestamp(784_111_777, 0);
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            " Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 6 08:49:37 1994",
        ] {
            assert_eq!(parse_http_date(text), expected, "{text}");
        }
        for text in ["", "never", "1994-11-06", "Sun, 99 Nov 1994 08:49:37 GMT"] {
            assert_eq!(parse_http_date(text), None, "{text}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = DateTime::from_timestamp(784_111_777, 0).unwrap();
        for (value, expected) in [
            ("120", Some(Duration::from_secs(120))),
            (
                "99999999999999999999999",
                Some(Duration::from_secs(u64::MAX)),
            ),
            (
                "Sun, 06 Nov 1994 08:50:37 GMT",
                Some(Duration::from_secs(60)),
            ),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(Duration::ZERO)),
            ("-1", None),
            ("soon", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(retry_after(&headers, now), expected, "{value}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
