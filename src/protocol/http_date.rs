//! HTTP dates (RFC 9110, section 5.6.7): of headers, and of the datetimes of Memento (RFC 7089, section 2.1).

use chrono::{DateTime, Datelike as _, NaiveDate, NaiveDateTime, Utc};
use resourcesync::SourceTime;

/// Parses an HTTP date in any of its three forms. The day of the week is ignored: it is redundant, and sometimes wrong.
#[must_use]
pub fn parse_http_date(text: &str) -> Option<DateTime<Utc>> {
    let text = text.trim();
    parse_imf_fixdate(text).or_else(|| parse_any_form(text))
}

fn parse_any_form(text: &str) -> Option<DateTime<Utc>> {
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

/// Parses a date that is exactly as RFC 9110 prefers it (section 5.6.7, IMF-fixdate), as nearly all are, with its day of the week: many
/// times as fast as by a format. `None`: it may be a date in another form.
#[must_use]
pub fn parse_imf_fixdate(text: &str) -> Option<DateTime<Utc>> {
    // Sun, 06 Nov 1994 08:49:37 GMT
    let bytes: &[u8; 29] = text.as_bytes().try_into().ok()?;
    let (weekday, month) = (&bytes[..3], &bytes[8..11]);
    let is_form =
        [3, 4, 7, 11, 16, 19, 22].map(|at| bytes[at]) == *b",    ::" && bytes.ends_with(b" GMT");
    let number = |at: std::ops::Range<usize>| {
        let digits = bytes[at].iter();
        digits.copied().try_fold(0, |number, digit| {
            let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
            Some(number * 10 + digit)
        })
    };
    let month = MONTHS
        .iter()
        .position(|name| *name == month)
        .filter(|_| is_form)?;
    let year = i32::try_from(number(12..16)?).ok()?;
    let date = NaiveDate::from_ymd_opt(year, u32::try_from(month + 1).ok()?, number(5..7)?)?;
    let time = date.and_hms_opt(number(17..19)?, number(20..22)?, number(23..25)?)?;
    let day = usize::try_from(date.weekday().num_days_from_monday()).ok()?;
    (WEEKDAYS[day] == weekday).then(|| time.and_utc())
}

const WEEKDAYS: [&[u8]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Writes an HTTP date: the time to the second, without its fraction; `None` outside of the years 0 to 9999.
#[must_use]
pub fn format_http_date(time: SourceTime) -> Option<String> {
    let text = time.to_datetime().format("%a, %d %b %Y %H:%M:%S GMT");
    is_four_digits(time).then(|| text.to_string())
}

/// Whether the year of a time has four digits.
pub(super) fn is_four_digits(time: SourceTime) -> bool {
    (0..=9999).contains(&time.to_datetime().year())
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
    fn preferred_form_is_parsed_as_any_form_is() {
        for (text, is_preferred) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", true),
            ("Thu, 01 Jan 1970 00:00:00 GMT", true),
            ("Thu, 29 Feb 2024 23:59:59 GMT", true),
            ("Sat, 01 Jan 0000 00:00:00 GMT", true),
            // Another day of the week, a leap second, another zone, and other forms.
            ("Mon, 06 Nov 1994 08:49:37 GMT", false),
            ("Sat, 31 Dec 2016 23:59:60 GMT", false),
            ("Sun, 06 Nov 1994 08:49:37 UTC", false),
            ("Sunday, 06-Nov-94 08:49:37 GMT", false),
            ("Sun,  6 Nov 1994 08:49:37 GMT", false),
            ("Sun, 06 nov 1994 08:49:37 GMT", false),
            ("Sun, 06 Nov +994 08:49:37 GMT", false),
            // No dates.
            ("Wed, 29 Feb 2023 08:49:37 GMT", false),
            ("Sun, 06 Nov 1994 24:49:37 GMT", false),
            ("Sun, 06 Nov 1994 08.49.37 GMT", false),
            ("Sun, 06 Nov 1994 08:49:37 GM\u{e9}", false),
            ("", false),
        ] {
            let preferred = parse_imf_fixdate(text);
            assert_eq!(preferred.is_some(), is_preferred, "{text}");
            if let Some(time) = preferred {
                assert_eq!(parse_any_form(text), Some(time), "{text}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_the_preferred_form(seconds in -62_167_219_200_i64..253_402_300_800) {
            let time = DateTime::from_timestamp(seconds, 0);
            let text = format_http_date(time.unwrap().into()).unwrap();
            proptest::prop_assert_eq!(parse_imf_fixdate(&text), time);
            proptest::prop_assert_eq!(parse_any_form(&text), time);
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
