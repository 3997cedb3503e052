//! The Source's own clock.

use std::time::Duration;

use crate::clock;
use crate::protocol::SourceTime;

const SECOND: i64 = 1_000_000;

/// The Source's own clock: it never goes back, whatever the clock behind it does.
///
/// The moments it gives to changes and to boundaries keep two promises, on which the intervals rest: a boundary lies after every
/// change before it, and no later change lies before it. To keep them the clock runs ahead of the wall clock where it must: by a
/// microsecond a change, or by a second a boundary when times are whole seconds.
#[derive(Clone, Debug)]
pub(super) struct SampleClock {
    /// Stands still at this moment; `None`: the wall clock.
    still: Option<i64>,
    /// How far it was moved, in microseconds.
    moved: i64,
    /// What a time stamp is a multiple of, in microseconds.
    step: i64,
    /// The latest moment that was given out.
    last: i64,
    /// Whether a change bears the latest moment.
    used: bool,
}

impl SampleClock {
    /// A clock that stands still at `still` until it is moved, or follows the wall clock.
    pub(super) fn new(still: Option<SourceTime>, whole_seconds: bool) -> Self {
        Self {
            still: still.map(SourceTime::micros),
            moved: 0,
            step: if whole_seconds { SECOND } else { 1 },
            last: i64::MIN,
            used: false,
        }
    }

    /// Moves it on.
    pub(super) fn advance(&mut self, by: Duration) {
        self.moved += i64::try_from(by.as_micros()).unwrap_or(i64::MAX / 4);
    }

    /// The moment of a change. It is the only one that bears it, unless times are whole seconds.
    pub(super) fn change(&mut self) -> SourceTime {
        let earliest = if self.step == SECOND {
            self.last
        } else {
            self.after_last()
        };
        self.give(earliest, true)
    }

    /// A moment that parts the changes so far from those to come.
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
            .unwrap_or_else(|| SourceTime::from(clock::now().wall).micros());
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
    fn changes_never_share_a_moment_and_boundaries_part_them() {
        let mut clock = SampleClock::new(Some(SourceTime::from_micros(10)), false);
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
    fn whole_seconds_are_shared_within_an_interval_only() {
        let mut clock = SampleClock::new(Some(SourceTime::from_micros(2_500_000)), true);
        assert_eq!(clock.change().micros(), 2 * SECOND);
        assert_eq!(clock.change().micros(), 2 * SECOND);
        assert_eq!(clock.boundary().micros(), 3 * SECOND);
        assert_eq!(clock.change().micros(), 3 * SECOND);
        clock.advance(Duration::from_secs(60));
        assert_eq!(clock.change().micros(), 62 * SECOND);
    }

    #[test]
    fn it_follows_the_wall_clock_and_never_goes_back() {
        let mut clock = SampleClock::new(None, false);
        let first = clock.change();
        assert!(first.micros() > 1_700_000_000 * SECOND);
        assert!(clock.change() > first);
    }
}
