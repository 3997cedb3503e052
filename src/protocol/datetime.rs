//! The Source's clock: W3C Datetime, as sections 5 to 7 and appendix A of the specification use it.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};

/// A moment on the *Source's* clock, in whole microseconds.
///
/// It is a type of its own so that it is never compared with the time of this machine by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceTime(i64);

/// Why a text is not a W3C Datetime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a W3C datetime")]
pub struct DatetimeError(pub String);

impl SourceTime {
    /// Before everything that a Source could tell of.
    pub const MIN: Self = Self(i64::MIN);

    /// From microseconds since 1970.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.0
    }

    /// As a date and time, clamped to what can be written.
    #[must_use]
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
    /// RFC 3339 in UTC, with as many decimals as it needs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            &self
                .to_datetime()
                .to_rfc3339_opts(SecondsFormat::AutoSi, true),
        )
    }
}
