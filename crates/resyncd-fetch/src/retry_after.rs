//! The `Retry-After` header (RFC 9110, section 10.2.3).

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::parse_http_date;

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
