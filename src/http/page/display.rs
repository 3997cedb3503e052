//! How the page writes times, numbers and links.
//!
//! Invariant: only `http` and `https` URIs become links, whatever a Source states.

use std::fmt::Display;

use chrono::{DateTime, Utc};

use crate::status::rfc3339;

/// A time, for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// RFC 3339.
    pub(super) iso: String,
    /// In UTC.
    pub(super) shown: String,
    /// How long ago it was, or when it will be.
    pub(super) ago: String,
}

impl Moment {
    pub(super) fn of(time: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        Self {
            iso: rfc3339(time),
            shown: time.format("%Y-%m-%d %H:%M:%S").to_string(),
            ago: ago((now - time).num_seconds()),
        }
    }

    /// As [`of`](Self::of), of a time that the status states; one that can't be read is shown as it is.
    pub(super) fn parse(text: &str, now: DateTime<Utc>) -> Self {
        match time(text) {
            Some(time) => Self::of(time, now),
            None => Self {
                iso: text.to_owned(),
                shown: text.to_owned(),
                ago: "?".to_owned(),
            },
        }
    }
}

/// A time as the status states it.
pub(super) fn time(text: &str) -> Option<DateTime<Utc>> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    Some(time.to_utc())
}

fn ago(seconds: i64) -> String {
    match seconds {
        0 => "now".to_owned(),
        1.. => format!("{} ago", duration(seconds)),
        _ => format!("in {}", duration(-seconds)),
    }
}

/// A length of time with one unit, or two if the first is small.
pub(super) fn duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..60 => format!("{seconds} s"),
        60..600 => format!("{minutes} min {} s", seconds % 60),
        600..7200 => format!("{minutes} min"),
        7200..172_800 => format!("{hours} h"),
        _ => format!("{days} days"),
    }
}

/// A whole number, not below zero, with its thousands apart.
pub(super) fn number(number: impl Display) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things.
pub(super) fn counted(count: u64, one: &str, several: &str) -> String {
    format!(
        "{} {}",
        number(count),
        if count == 1 { one } else { several }
    )
}

/// A length in bytes. The templates pass references.
pub(super) fn bytes(bytes: &u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if *bytes < 1000 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (*bytes as f64 / 1000.0, 0);
    // What would be rounded to a thousand is one of the next unit.
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// The parts of a text, and whether each is code: what stands between two backticks.
pub(super) fn parts(text: &str) -> Vec<(bool, &str)> {
    let parts: Vec<&str> = text.split('`').collect();
    let is_paired = parts.len() % 2 == 1;
    if !is_paired {
        return vec![(false, text)];
    }
    let parts = parts.into_iter().zip([false, true].into_iter().cycle());
    parts.map(|(part, is_code)| (is_code, part)).collect()
}

/// Whether a text from outside becomes a link.
pub(super) fn is_web(text: &str) -> bool {
    let schemes = ["http://", "https://"];
    schemes.iter().any(|scheme| text.starts_with(scheme))
}

/// The path and query of the page of a resource.
pub(super) fn resource_page(root: &str, uri: &str) -> String {
    let uri: String = url::form_urlencoded::byte_serialize(uri.as_bytes()).collect();
    format!("{root}page/resource?uri={uri}")
}

/// The path of the page of a Source. Its name has only letters, digits and `-`.
pub(super) fn source_page(root: &str, name: &str) -> String {
    let name: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("{root}page/sources/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_their_unit() {
        for (seconds, expected) in [
            (0, "0 s"),
            (59, "59 s"),
            (61, "1 min 1 s"),
            (600, "10 min"),
            (7199, "119 min"),
            (7200, "2 h"),
            (172_799, "47 h"),
            (172_800, "2 days"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
        assert_eq!(ago(0), "now");
        assert_eq!(ago(5), "5 s ago");
        assert_eq!(ago(-5), "in 5 s");
    }

    #[test]
    fn numbers_are_readable() {
        for (value, expected) in [
            (0u64, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1234567, "1,234,567"),
        ] {
            assert_eq!(number(value), expected);
        }
        for (value, expected) in [
            (999, "999 B"),
            (1000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (1_234_567_890, "1.2 GB"),
            (u64::MAX, "18446.7 PB"),
        ] {
            assert_eq!(bytes(&value), expected);
        }
        assert_eq!(counted(1, "gap", "gaps"), "1 gap");
        assert_eq!(counted(0, "gap", "gaps"), "0 gaps");
    }

    #[test]
    fn text_between_backticks_is_code() {
        let expected = [(false, "run "), (true, "resyncd retry a"), (false, "")];
        assert_eq!(parts("run `resyncd retry a`"), expected);
        assert_eq!(parts("plain"), [(false, "plain")]);
        assert_eq!(parts("it`s"), [(false, "it`s")]);
    }

    #[test]
    fn only_web_addresses_become_links() {
        for (text, is_link) in [
            ("http://a.example/", true),
            ("https://a.example/", true),
            ("javascript:alert(1)", false),
            ("data:text/html,x", false),
            (" http://a.example/", false),
            ("//a.example/", false),
            ("/etc/passwd", false),
            ("", false),
        ] {
            assert_eq!(is_web(text), is_link, "{text:?}");
        }
    }

    #[test]
    fn uri_of_a_resource_is_one_parameter_of_its_page() {
        let page = resource_page("./", "http://a.example/?a=1&b=<\">#c");
        let expected = "./page/resource?uri=http%3A%2F%2Fa.example%2F%3Fa%3D1%26b%3D%3C%22%3E%23c";
        assert_eq!(page, expected);
    }
}
