//! Times of the Source: W3C Datetime, as in sections 5 to 7 and appendix A of the specification.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};

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
    /// the `T`, no time zone (which is then UTC), `+0900`, a comma, no dashes or colons. What databases and programs write for no
    /// date (`0000-00-00`, `-0001-11-30`, `0001-01-01`) is counted as [`Oddity::ZeroDate`], anything else as
    /// [`Oddity::BadDatetime`].
    #[must_use]
    pub fn parse_w3c(text: &str, oddities: &mut Oddities) -> Option<Self> {
        if let Some(time) = parse_plain(text) {
            return Some(time);
        }
        let text = text.trim();
        let Some((time, form)) = Scanner::new(text).datetime() else {
            oddities.add(if text.starts_with("0000") {
                Oddity::ZeroDate
            } else {
                Oddity::BadDatetime
            });
            return None;
        };
        if time.0 < BEHIND_ZERO_DATES {
            oddities.add(Oddity::ZeroDate);
            return None;
        }
        if form == Form::Odd {
            oddities.add(Oddity::DatetimeForm);
        }
        Some(time)
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
        match Scanner::new(text.trim()).datetime() {
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

/// A datetime in the form that nearly all have, `2013-01-03T10:00:00Z`; `None` for everything else, which may be valid in
/// another form.
fn parse_plain(text: &str) -> Option<SourceTime> {
    let text: &[u8; 20] = text.as_bytes().try_into().ok()?;
    let is_separated = text[4] == b'-'
        && text[7] == b'-'
        && text[10] == b'T'
        && text[13] == b':'
        && text[16] == b':'
        && text[19] == b'Z';
    if !is_separated {
        return None;
    }
    let number = |at: usize| {
        let (tens, ones) = (text[at].wrapping_sub(b'0'), text[at + 1].wrapping_sub(b'0'));
        (tens <= 9 && ones <= 9).then(|| u32::from(tens) * 10 + u32::from(ones))
    };
    let year = i32::try_from(number(0)? * 100 + number(2)?).ok()?;
    let (month, day) = (number(5)?, number(8)?);
    let (hour, minute, second) = (number(11)?, number(14)?, number(17)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = i64::from(hour * 3600 + minute * 60 + second);
    let days = NaiveDate::from_ymd_opt(year, month, day)?.to_epoch_days();
    let time = SourceTime(i64::from(days) * MICROS_PER_DAY + seconds * MICROS_PER_SECOND);
    (time.0 >= BEHIND_ZERO_DATES).then_some(time)
}

/// Parses a datetime from left to right. chrono's parsers reject the short forms of W3C Datetime.
struct Scanner<'a> {
    rest: &'a [u8],
    form: Form,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            rest: text.as_bytes(),
            form: Form::W3c,
        }
    }

    fn datetime(mut self) -> Option<(SourceTime, Form)> {
        let date = self.date()?;
        let mut micros = 0;
        if self.time_follows() {
            micros = self.time()?;
            micros -= self.zone()? * 60 * MICROS_PER_SECOND;
        } else if !self.rest.is_empty() {
            // A date without a time has no zone in W3C Datetime, but may have one in XML Schema.
            micros -= self.zone()? * 60 * MICROS_PER_SECOND;
            self.form = Form::Odd;
        }
        if !self.rest.is_empty() {
            return None;
        }
        let midnight = date.and_hms_opt(0, 0, 0)?.and_utc().timestamp_micros();
        Some((
            SourceTime::from_micros(midnight.checked_add(micros)?),
            self.form,
        ))
    }

    fn date(&mut self) -> Option<NaiveDate> {
        let year = self.year()?;
        let dashed = self.rest.first() == Some(&b'-');
        if !dashed && !self.rest.first().is_some_and(u8::is_ascii_digit) {
            return NaiveDate::from_ymd_opt(year, 1, 1);
        }
        if !self.accept(b'-') {
            self.form = Form::Odd;
        }
        let month = self.two_digits()?;
        let day = if dashed {
            if self.accept(b'-') {
                self.two_digits()?
            } else {
                1
            }
        } else {
            self.two_digits()?
        };
        NaiveDate::from_ymd_opt(year, month, day)
    }

    /// Four digits. Four to six digits after a sign: such years are outside W3C Datetime.
    fn year(&mut self) -> Option<i32> {
        let negative = self.rest.first() == Some(&b'-');
        if negative || self.rest.first() == Some(&b'+') {
            self.rest = &self.rest[1..];
            self.form = Form::Odd;
            let digits = self.count_digits();
            if !(4..=6).contains(&digits) {
                return None;
            }
            let year = i32::try_from(self.number(digits)?).ok()?;
            return Some(if negative { -year } else { year });
        }
        i32::try_from(self.number(4)?).ok()
    }

    fn time_follows(&mut self) -> bool {
        let length = match self.rest {
            [b'T', ..] => 1,
            [b't', ..] => {
                self.form = Form::Odd;
                1
            }
            [b' ', ..] => {
                self.form = Form::Odd;
                let word = self.rest.iter().position(|byte| *byte != b' ');
                let word = word.unwrap_or(self.rest.len());
                // ` UTC` after a date is a zone, not a time.
                if !self.rest.get(word).is_some_and(u8::is_ascii_digit) {
                    return false;
                }
                word
            }
            _ => return false,
        };
        self.rest = &self.rest[length..];
        true
    }

    /// The time of day, in microseconds since midnight.
    fn time(&mut self) -> Option<i64> {
        let hour = self.two_digits()?;
        let mut minute = 0;
        let mut second = 0;
        let mut fraction = 0;
        if self.colon_or_digits() {
            minute = self.two_digits()?;
            if self.colon_or_digits() {
                second = self.two_digits()?;
                fraction = self.fraction()?;
            }
        } else {
            self.form = Form::Odd;
        }
        // A leap second and the midnight at the end of a day stand for the moment after.
        let ends_day = hour == 24 && minute == 0 && second == 0 && fraction == 0;
        if (hour > 23 && !ends_day) || minute > 59 || second > 60 {
            return None;
        }
        if ends_day || second == 60 {
            self.form = Form::Odd;
        }
        let seconds = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
        Some(seconds * MICROS_PER_SECOND + fraction)
    }

    /// Whether two more digits of the time follow.
    fn colon_or_digits(&mut self) -> bool {
        if self.accept(b':') {
            return true;
        }
        let bare = self.rest.first().is_some_and(u8::is_ascii_digit);
        if bare {
            self.form = Form::Odd;
        }
        bare
    }

    /// The decimals of a second, in microseconds.
    fn fraction(&mut self) -> Option<i64> {
        match self.rest.first() {
            Some(b'.') => {}
            Some(b',') => self.form = Form::Odd,
            _ => return Some(0),
        }
        self.rest = &self.rest[1..];
        let digits = self.count_digits();
        let (decimals, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if decimals.is_empty() {
            return None;
        }
        let padded = decimals.iter().copied().chain(std::iter::repeat(b'0'));
        Some(
            padded
                .take(6)
                .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')),
        )
    }

    /// The offset from UTC in minutes east; none means UTC.
    fn zone(&mut self) -> Option<i64> {
        while self.accept(b' ') {
            self.form = Form::Odd;
        }
        let sign = match self.rest {
            [] => {
                self.form = Form::Odd;
                return Some(0);
            }
            b"Z" => {
                self.rest = &[];
                return Some(0);
            }
            zone if [b"z".as_slice(), b"UTC", b"GMT", b"UT"].contains(&zone) => {
                self.form = Form::Odd;
                self.rest = &[];
                return Some(0);
            }
            [b'+', ..] => 1,
            [b'-', ..] => -1,
            _ => return None,
        };
        self.rest = &self.rest[1..];
        let hours = self.two_digits()?;
        let colon = self.accept(b':');
        if !colon {
            self.form = Form::Odd;
        }
        let minutes = if self.rest.is_empty() && !colon {
            0
        } else {
            self.two_digits()?
        };
        (hours <= 23 && minutes <= 59).then(|| sign * (i64::from(hours) * 60 + i64::from(minutes)))
    }

    fn accept(&mut self, byte: u8) -> bool {
        let found = self.rest.first() == Some(&byte);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn count_digits(&self) -> usize {
        let other = self.rest.iter().position(|byte| !byte.is_ascii_digit());
        other.unwrap_or(self.rest.len())
    }

    fn two_digits(&mut self) -> Option<u32> {
        self.number(2)
    }

    fn number(&mut self, digits: usize) -> Option<u32> {
        let (number, rest) = self.rest.split_at_checked(digits)?;
        self.rest = rest;
        number.iter().try_fold(0, |sum, byte| {
            byte.is_ascii_digit()
                .then(|| sum * 10 + u32::from(byte - b'0'))
        })
    }
}

#[cfg(test)]
mod tests;
