//! The only module that reads the system clocks.
//!
//! The core gets a [`Now`] as a value and never reads a clock, so that tests control the time. `clippy.toml` bans the clocks
//! everywhere else.
//!
//! Must not know any other module.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use chrono::{DateTime, Utc};
use resyncd_core::Now;

/// What [`now`] returns in place of the moment by the system clocks.
static REPLACEMENT: OnceLock<fn() -> Now> = OnceLock::new();

/// Replaces the clocks of this process. Only the first replacement counts.
pub fn replace(clock: fn() -> Now) {
    let _ = REPLACEMENT.set(clock);
}

/// The current moment.
#[must_use]
pub fn now() -> Now {
    REPLACEMENT.get().map_or_else(system, |clock| clock())
}

/// The current moment by the system clocks.
#[allow(
    clippy::disallowed_methods,
    reason = "the only place that reads the clocks"
)]
#[must_use]
pub fn system() -> Now {
    Now {
        wall: DateTime::<Utc>::from(SystemTime::now()),
        mono: Instant::now(),
    }
}
