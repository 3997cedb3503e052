//! The only module that reads the system clocks.
//!
//! The core gets a [`Now`] as a value and never reads a clock, so that tests control the time. `clippy.toml` bans the clocks
//! everywhere else.
//!
//! Must not know any other module.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

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

/// By how much tests have moved the wall clock, in microseconds.
static SET_BY: AtomicI64 = AtomicI64::new(0);

/// Moves the wall clock of this process by `from_right` from the correct time, as an operator or a time server may do. Only for
/// tests that run in a process of their own.
#[doc(hidden)]
pub fn set_wall(from_right: TimeDelta) {
    let micros = from_right.num_microseconds().unwrap_or_default();
    SET_BY.store(micros, Ordering::Relaxed);
}

/// The current moment.
#[allow(
    clippy::disallowed_methods,
    reason = "the only place that reads the clocks"
)]
#[must_use]
pub fn now() -> Now {
    #[cfg(test)]
    if let Some(now) = simulated::now() {
        return now;
    }
    Now {
        wall: DateTime::<Utc>::from(SystemTime::now())
            + TimeDelta::microseconds(SET_BY.load(Ordering::Relaxed)),
        mono: Instant::now(),
    }
}

/// A clock that a simulation moves, for the threads on which it is installed.
#[cfg(test)]
pub(crate) mod simulated {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::Now;

    thread_local! {
        static INSTALLED: RefCell<Option<Arc<SimulatedClock>>> = const { RefCell::new(None) };
    }

    /// Both clocks of a simulated machine. They move only when they are set.
    #[derive(Debug)]
    pub(crate) struct SimulatedClock {
        base: Now,
        millis: AtomicU64,
    }

    impl SimulatedClock {
        pub(crate) fn new(base: Now) -> Arc<Self> {
            Arc::new(Self {
                base,
                millis: AtomicU64::new(0),
            })
        }

        /// Sets the clock to so many milliseconds after its base.
        pub(crate) fn set(&self, millis: u64) {
            self.millis.store(millis, Ordering::SeqCst);
        }

        pub(crate) fn now(&self) -> Now {
            let millis = self.millis.load(Ordering::SeqCst);
            self.base.plus(Duration::from_millis(millis))
        }

        /// The milliseconds after the base of a moment on the monotonic clock, rounded up.
        pub(crate) fn millis_of(&self, mono: std::time::Instant) -> u64 {
            let micros = mono.saturating_duration_since(self.base.mono).as_micros();
            u64::try_from(micros.div_ceil(1000)).unwrap_or(u64::MAX)
        }

        /// Makes this clock the one that [`now`](super::now) reads on the current thread.
        pub(crate) fn install(self: &Arc<Self>) {
            INSTALLED.set(Some(Arc::clone(self)));
        }
    }

    /// The clock of the current thread, for a thread that it starts.
    pub(crate) fn installed() -> Option<Arc<SimulatedClock>> {
        INSTALLED.with_borrow(Option::clone)
    }

    pub(super) fn now() -> Option<Now> {
        INSTALLED.with_borrow(|clock| clock.as_ref().map(|clock| clock.now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_that_is_set_back_is_detected_once() {
        let start = now();
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
