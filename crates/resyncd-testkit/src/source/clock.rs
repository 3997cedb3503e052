//! The Source's own clock.

use std::time::Duration;

use resourcesync::SourceTime;

use crate::Clock;

const SECOND: i64 = 1_000_000;

/// The Source's own clock: it never goes back, whatever the clock behind it does.
///
/// The intervals rely on two properties of its moments: a boundary is after every earlier change, and no later change is before it.
/// For that the clock runs ahead of the wall clock if necessary: by a microsecond per change, or by a second per boundary if times
/// are whole seconds.
#[derive(Clone, Debug)]
pub(super) struct SampleClock {
    /// What it follows.
    clock: Clock,
    /// Fixed at this moment; `None`: follows the clock behind it.
    still: Option<i64>,
    /// By how much it was moved, in microseconds.
    moved: i64,
    /// The resolution of times, in microseconds.
    step: i64,
    /// The latest moment that was returned.
    last: i64,
    /// Whether a change has the latest moment.
    used: bool,
}

impl SampleClock {
    /// A clock that is fixed at `still` until it is moved, or follows the clock behind it.
    pub(super) fn new(clock: Clock, still: Option<SourceTime>, whole_seconds: bool) -> Self {
        Self {
            clock,
            still: still.map(SourceTime::micros),
            moved: 0,
            step: if whole_seconds { SECOND } else { 1 },
            last: i64::MIN,
            used: false,
        }
    }

    /// Moves it forward.
    pub(super) fn advance(&mut self, by: Duration) {
        self.moved += i64::try_from(by.as_micros()).unwrap_or(i64::MAX / 4);
    }

    /// The moment of a change; unique unless times are whole seconds.
    pub(super) fn change(&mut self) -> SourceTime {
        let earliest = if self.step == SECOND {
            self.last
        } else {
            self.after_last()
        };
        self.give(earliest, true)
    }

    /// A moment after all changes so far and not after later ones.
    pub(super) fn boundary(&mut self) -> SourceTime {
        let earliest = self.after_last();
        self.give(earliest, false)
    }

    fn after_last(&self) -> i64 {
        self.last
            .saturating_add(if self.used { self.step } else { 0 })
    }

    fn give(&mut self, earliest: i64, used: bool) -> SourceTime {
        let reading = self
            .still
            .unwrap_or_else(|| SourceTime::from((self.clock)()).micros());
        let reading = reading + self.moved;
        self.last = earliest.max(reading - reading.rem_euclid(self.step));
        self.used = used;
        SourceTime::from_micros(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_changes_are_unique_and_boundaries_separate_them() {
        let mut clock = SampleClock::new(
            crate::system_clock,
            Some(SourceTime::from_micros(10)),
            false,
        );
        let moments: Vec<i64> = [
            clock.change(),
            clock.change(),
            clock.boundary(),
            clock.change(),
        ]
        .into_iter()
        .map(SourceTime::micros)
        .collect();
        assert_eq!(moments, [10, 11, 12, 12]);
        assert_eq!(clock.boundary().micros(), 13);
        assert_eq!(clock.boundary().micros(), 13, "nothing happened between");
    }

    #[test]
    fn changes_of_one_interval_only_share_whole_seconds() {
        let mut clock = SampleClock::new(
            crate::system_clock,
            Some(SourceTime::from_micros(2_500_000)),
            true,
        );
        assert_eq!(clock.change().micros(), 2 * SECOND);
        assert_eq!(clock.change().micros(), 2 * SECOND);
        assert_eq!(clock.boundary().micros(), 3 * SECOND);
        assert_eq!(clock.change().micros(), 3 * SECOND);
        clock.advance(Duration::from_secs(60));
        assert_eq!(clock.change().micros(), 62 * SECOND);
    }

    #[test]
    fn clock_follows_the_wall_clock_and_never_goes_back() {
        let mut clock = SampleClock::new(crate::system_clock, None, false);
        let first = clock.change();
        assert!(first.micros() > 1_700_000_000 * SECOND);
        assert!(clock.change() > first);
    }
}
