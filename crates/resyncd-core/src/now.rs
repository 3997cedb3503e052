//! A moment on the clocks of this machine, as a value: nothing here reads a clock, so that tests control the time.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};

/// One moment on both clocks of this machine.
///
/// The wall clock may jump: it dates leases and what people read. The monotonic clock never goes back: it measures every wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The time of day, UTC.
    pub wall: DateTime<Utc>,
    /// The monotonic clock.
    pub mono: Instant,
}

impl Now {
    /// The moment `by` later on both clocks.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        let wall = chrono::Duration::from_std(by)
            .ok()
            .and_then(|by| self.wall.checked_add_signed(by));
        Self {
            wall: wall.unwrap_or(DateTime::<Utc>::MAX_UTC),
            mono: self.mono + by,
        }
    }
}

/// Detects by the monotonic clock that the wall clock was set back.
#[derive(Clone, Copy, Debug)]
pub struct ClockStepDetector {
    last: Now,
}

/// Smaller steps are drift and are ignored.
const SMALLEST_SETBACK: TimeDelta = TimeDelta::seconds(1);

impl ClockStepDetector {
    /// Starts the detection.
    #[must_use]
    pub fn since(now: Now) -> Self {
        Self { last: now }
    }

    /// By how much the wall clock was set back since the last call; `None`: it was not.
    pub fn noticed(&mut self, now: Now) -> Option<TimeDelta> {
        let passed = now.mono.saturating_duration_since(self.last.mono);
        let expected = self.last.plus(passed).wall;
        self.last = now;
        Some(expected - now.wall).filter(|&by| by >= SMALLEST_SETBACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_clock;

    #[test]
    fn wall_clock_that_is_set_back_is_detected_once() {
        let start = test_clock::now();
        let mut detector = ClockStepDetector::since(start);
        let mut at = |mono: u64, wall: i64| {
            detector.noticed(Now {
                wall: start.wall + TimeDelta::seconds(wall),
                mono: start.mono + Duration::from_secs(mono),
            })
        };
        assert_eq!(at(10, 10), None, "both clocks advance");
        assert_eq!(at(20, 86_420), None, "set forward");
        assert_eq!(at(30, 30), Some(TimeDelta::days(1)), "set back");
        assert_eq!(at(40, 40), None);
        assert_eq!(
            at(3640, 40),
            Some(TimeDelta::hours(1)),
            "the wall clock stood still"
        );
        assert_eq!(at(3640, 40), None);
    }
}
