//! The only place that asks what time it is.
//!
//! The core takes a [`Now`] as a value and never asks by itself, so that a test can move time as it likes.

use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, Utc};

/// One moment on both clocks of this machine.
///
/// The wall clock may jump: it dates leases and what people read. The monotonic clock never goes back:
/// it times every wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The time of day, UTC.
    pub wall: DateTime<Utc>,
    /// The monotonic clock.
    pub mono: Instant,
}

impl Now {
    /// The moment that lies `by` later on both clocks.
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

/// What time it is.
#[allow(clippy::disallowed_methods, reason = "this is the one place that asks")]
#[must_use]
pub fn now() -> Now {
    Now {
        wall: DateTime::<Utc>::from(SystemTime::now()),
        mono: Instant::now(),
    }
}
