//! A moment for tests to begin at.

use std::time::{Instant, SystemTime};

use chrono::{DateTime, Utc};

use crate::Now;

#[allow(
    clippy::disallowed_methods,
    reason = "an Instant comes from nowhere else"
)]
pub(crate) fn now() -> Now {
    Now {
        wall: DateTime::<Utc>::from(SystemTime::now()),
        mono: Instant::now(),
    }
}
