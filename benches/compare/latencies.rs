//! Percentiles of durations.

use std::fmt;
use std::time::Duration;

/// Durations that are in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn new(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        Self(durations)
    }

    /// The nearest rank: so many percent are not longer, in milliseconds.
    pub(crate) fn millis(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        let found = self.0.get(rank - 1).copied().unwrap_or_default();
        found.as_secs_f64() * 1000.0
    }
}

impl FromIterator<Duration> for Latencies {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        Self::new(durations.into_iter().collect())
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:.1} ms, p99 {:.1} ms",
            self.millis(50),
            self.millis(99)
        )
    }
}
