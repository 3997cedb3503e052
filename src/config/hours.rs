//! The hours of a day.

use chrono::{DateTime, Local, NaiveTime, TimeDelta, Utc};

use super::fault::Parsed;

/// A stretch of each day, by the clock of this machine; over midnight if it ends before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayHours {
    begin: NaiveTime,
    end: NaiveTime,
}

impl DayHours {
    /// The hours between two different times.
    #[must_use]
    pub fn new(begin: NaiveTime, end: NaiveTime) -> Self {
        Self { begin, end }
    }

    /// Parses hours such as `22:00-06:00`; `None`: an empty text, for the whole day.
    pub(super) fn parse(text: &str) -> Parsed<Option<Self>> {
        let bad =
            || reason!("bad-hours": "{text:?} is no stretch of a day, such as \"22:00-06:00\"");
        if text.is_empty() {
            return Ok(None);
        }
        let time = |text: &str| NaiveTime::parse_from_str(text, "%H:%M").map_err(|_| bad());
        let (begin, end) = text.split_once('-').ok_or_else(bad)?;
        let (begin, end) = (time(begin)?, time(end)?);
        ensure!(begin != end, "bad-hours": "{text:?} is no stretch of a day: it ends when it begins");
        Ok(Some(Self::new(begin, end)))
    }

    /// How long it is until they begin; `None`: it is within them. A change of the local time until then does not count.
    #[must_use]
    pub fn begin_in(&self, now: DateTime<Utc>) -> Option<TimeDelta> {
        self.begin_after(now.with_timezone(&Local).time())
    }

    fn begin_after(&self, time: NaiveTime) -> Option<TimeDelta> {
        let (begun, ended) = (time >= self.begin, time >= self.end);
        let is_within = if self.begin < self.end {
            begun && !ended
        } else {
            begun || !ended
        };
        let wait = self.begin - time;
        let wait = if begun {
            wait + TimeDelta::days(1)
        } else {
            wait
        };
        (!is_within).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_may_pass_midnight() {
        for (hours, at, expected) in [
            ("08:00-18:00", "08:00", None),
            ("08:00-18:00", "17:59", None),
            ("08:00-18:00", "18:00", Some(14 * 60)),
            ("08:00-18:00", "07:30", Some(30)),
            ("22:00-06:00", "22:00", None),
            ("22:00-06:00", "00:00", None),
            ("22:00-06:00", "05:59", None),
            ("22:00-06:00", "06:00", Some(16 * 60)),
            ("22:00-06:00", "21:59", Some(1)),
        ] {
            let hours = DayHours::parse(hours).unwrap().unwrap();
            let time = NaiveTime::parse_from_str(at, "%H:%M").unwrap();
            let expected = expected.map(TimeDelta::minutes);
            assert_eq!(hours.begin_after(time), expected, "{hours:?} {at}");
        }
        assert_eq!(DayHours::parse("").unwrap(), None);
        for bad in ["22:00", "22-06", "22:00-24:01", "08:00-08:00", "night"] {
            assert_eq!(DayHours::parse(bad).unwrap_err().code, "bad-hours", "{bad}");
        }
    }
}
