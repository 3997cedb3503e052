//! The only module that reads the system clocks.
//!
//! The core gets a [`Now`] as a value and never reads a clock, so that tests control the time. `clippy.toml` bans the clocks
//! everywhere else.
//!
//! Must not know any other module.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime};

use chrono::{DateTime, TimeDelta, Utc};
use resyncd_core::Now;

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
