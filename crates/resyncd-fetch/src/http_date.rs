//! HTTP dates (RFC 9110, section 5.6.7): of headers, and of the datetimes of Memento (RFC 7089, section 2.1).

use chrono::{DateTime, Datelike as _, NaiveDateTime, Utc};
use resourcesync::SourceTime;

/// Parses an HTTP date in any of its three forms. The day of the week is ignored: it is redundant, and sometimes wrong.
#[must_use]
pub fn parse_http_date(text: &str) -> Option<DateTime<Utc>> {
    let (weekday, rest) = text
        .trim()
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

/// Writes an HTTP date: the time to the second, without its fraction; `None` outside of the years 0 to 9999.
#[must_use]
pub fn format_http_date(time: SourceTime) -> Option<String> {
    let text = time.to_datetime().format("%a, %d %b %Y %H:%M:%S GMT");
    let is_four_digits = (0..=9999).contains(&time.to_datetime().year());
    is_four_digits.then(|| text.to_string())
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
    fn deviating_dates_are_parsed_and_impossible_ones_are_not() {
        for (text, is_date) in [
            // Another day of the week, a leap second, another zone, another case.
            ("Mon, 06 Nov 1994 08:49:37 GMT", true),
            ("Sat, 31 Dec 2016 23:59:60 GMT", true),
            ("Sun, 06 Nov 1994 08:49:37 UTC", true),
            ("Sun,  6 Nov 1994 08:49:37 GMT", true),
            ("Sun, 06 nov 1994 08:49:37 GMT", true),
            ("Wed, 29 Feb 2023 08:49:37 GMT", false),
            ("Sun, 06 Nov 1994 24:49:37 GMT", false),
            ("Sun, 06 Nov 1994 08.49.37 GMT", false),
            ("Sun, 06 Nov 1994 08:49:37 GM\u{e9}", false),
        ] {
            assert_eq!(parse_http_date(text).is_some(), is_date, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_parsed(seconds in -62_167_219_200_i64..253_402_300_800) {
            let time = DateTime::from_timestamp(seconds, 0);
            let text = format_http_date(time.unwrap().into()).unwrap();
            proptest::prop_assert_eq!(parse_http_date(&text), time);
        }
    }

    #[test]
    fn dates_are_written_in_the_first_form() {
        let time = SourceTime::from_micros(784_111_777_999_999);
        let text = format_http_date(time).unwrap();
        assert_eq!(text, "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(
            parse_http_date(&text),
            DateTime::from_timestamp(784_111_777, 0)
        );
        assert_eq!(format_http_date(SourceTime::MAX), None);
        assert_eq!(format_http_date(SourceTime::MIN), None);
    }
}
