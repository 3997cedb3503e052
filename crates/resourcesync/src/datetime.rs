//! Times of the Source: W3C Datetime, as in sections 5 to 7 and appendix A of the specification.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, SecondsFormat, Utc};

use super::{Oddities, Oddity};

/// A moment on the *Source's* clock, in whole microseconds (section 7: W3C Datetime).
///
/// A separate type, so that it is never compared with the time of this machine by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceTime(i64);

/// A text that is not a W3C Datetime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a W3C datetime")]
pub struct DatetimeError(pub String);

impl SourceTime {
    /// The earliest time.
    pub const MIN: Self = Self(i64::MIN);
    /// The latest time.
    pub const MAX: Self = Self(i64::MAX);

    /// Parses a W3C Datetime (`2013`, `2013-01`, `2013-01-03`, `2013-01-03T10:00Z`, with seconds, with decimals, with an
    /// offset); a short form stands for the begin of its period. Decimals beyond the microsecond are cut off.
    ///
    /// Other unambiguous forms are read as well and counted as [`Oddity::DatetimeForm`]: a space or a small `t` instead of
    /// the `T`, no time zone (which is then UTC), `UTC`, `+0900`. What databases and programs write for no
    /// date (`0000-00-00`, `-0001-11-30`, `0001-01-01`) is counted as [`Oddity::ZeroDate`], anything else as
    /// [`Oddity::BadDatetime`].
    #[must_use]
    pub fn parse_w3c(text: &str, oddities: &mut Oddities) -> Option<Self> {
        let text = text.trim();
        match parse(text) {
            Some((time, _)) if time.0 < BEHIND_ZERO_DATES => oddities.add(Oddity::ZeroDate),
            Some((time, Form::W3c)) => return Some(time),
            Some((time, Form::Odd)) => {
                oddities.add(Oddity::DatetimeForm);
                return Some(time);
            }
            None if text.starts_with("0000") || text.starts_with("-0001") => {
                oddities.add(Oddity::ZeroDate);
            }
            None => oddities.add(Oddity::BadDatetime),
        }
        None
    }

    /// From microseconds since 1970.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Whether it may stand for a whole day: some Sources write only the date, which is parsed as the begin of the day.
    pub fn may_be_a_date(self) -> bool {
        self.0 % MICROS_PER_DAY == 0
    }

    /// The latest moment that it may stand for: the end of its day if it [may be a date](Self::may_be_a_date).
    pub fn latest_possible(self) -> Self {
        if self.may_be_a_date() {
            Self(self.0.saturating_add(MICROS_PER_DAY - 1))
        } else {
            self
        }
    }

    /// As a date and time, clamped to the range of chrono.
    pub fn to_datetime(self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0).unwrap_or(if self.0 < 0 {
            DateTime::<Utc>::MIN_UTC
        } else {
            DateTime::<Utc>::MAX_UTC
        })
    }
}

impl From<DateTime<Utc>> for SourceTime {
    fn from(time: DateTime<Utc>) -> Self {
        Self(time.timestamp_micros())
    }
}

impl fmt::Display for SourceTime {
    /// RFC 3339 in UTC, with as many decimals as needed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            &self
                .to_datetime()
                .to_rfc3339_opts(SecondsFormat::AutoSi, true),
        )
    }
}

impl FromStr for SourceTime {
    type Err = DatetimeError;

    /// Accepts all forms that [`SourceTime::parse_w3c`] accepts.
    fn from_str(text: &str) -> Result<Self, DatetimeError> {
        match parse(text.trim()) {
            Some((time, _)) => Ok(time),
            None => Err(DatetimeError(text.to_owned())),
        }
    }
}

/// Whether a datetime has the form of W3C Datetime.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    W3c,
    Odd,
}

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 24 * 3600 * MICROS_PER_SECOND;

/// The begin of the year 2: what is earlier is not a date, but stands for none.
const BEHIND_ZERO_DATES: i64 = -62_104_060_800 * MICROS_PER_SECOND;

/// The time of a text without surrounding white space, and the form of the text.
fn parse(text: &str) -> Option<(SourceTime, Form)> {
    let is_year = |year: &[u8]| year.iter().all(u8::is_ascii_digit);
    let begins_with_year =
        text.starts_with(['+', '-']) || text.as_bytes().get(..4).is_some_and(is_year);
    if !begins_with_year || text.ends_with(':') {
        return None;
    }
    // chrono needs a time with seconds. What is short stands for the begin of its period.
    let whole = match (text.len(), text.split_at_checked(16)) {
        (4, _) => Cow::Owned(format!("{text}-01-01T00:00:00Z")),
        (7, _) => Cow::Owned(format!("{text}-01T00:00:00Z")),
        (10, _) => Cow::Owned(format!("{text}T00:00:00Z")),
        (_, Some((minutes, zone))) if zone.is_empty() || zone.starts_with(['Z', '+', '-']) => {
            Cow::Owned(format!("{minutes}:00{zone}"))
        }
        _ => Cow::Borrowed(text),
    };
    if let Ok(time) = DateTime::parse_from_rfc3339(&whole) {
        let is_odd = whole.bytes().any(|byte| matches!(byte, b't' | b'z' | b' '));
        let form = if is_odd { Form::Odd } else { Form::W3c };
        return Some((time.to_utc().into(), form));
    }
    // Its relaxed form needs a zone with minutes.
    let mut zones = ["", "Z", ":00"].into_iter();
    let time = zones.find_map(|end| format!("{whole}{end}").parse::<DateTime<Utc>>().ok())?;
    Some((time.into(), Form::Odd))
}

#[cfg(test)]
mod tests;
