//! Which hosts of duplicates are relied on: one that keeps failing is passed over for a while, so that it does not cost
//! every resource its time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::clock::Now;

/// So many failures in a row, and a host is passed over.
const PATIENCE: u32 = 3;
/// For how long, the first time; each failure after that doubles it.
const FIRST_REST: Duration = Duration::from_secs(60);
/// For how long at most.
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// How many failing hosts are remembered: they come from outside.
const MOST_HOSTS: usize = 1024;

/// The hosts of duplicates that have failed. Runs on the monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct HostCircuitBreaker {
    failing: HashMap<String, Failing>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    times: u32,
    until: Instant,
}

impl HostCircuitBreaker {
    /// Whether a host is passed over now.
    #[must_use]
    pub fn passes_over(&self, now: Now, host: &str) -> bool {
        self.failing
            .get(host)
            .is_some_and(|failing| failing.times >= PATIENCE && now.mono < failing.until)
    }

    /// Notes that a host had what it should have.
    pub fn succeeded(&mut self, host: &str) {
        self.failing.remove(host);
    }

    /// Notes that a host did not; answers for how long it is passed over, if it is from now on.
    pub fn failed(&mut self, now: Now, host: &str) -> Option<Duration> {
        if !self.failing.contains_key(host) && self.failing.len() >= MOST_HOSTS {
            self.failing
                .retain(|_, failing| failing.times >= PATIENCE && now.mono < failing.until);
            if self.failing.len() >= MOST_HOSTS {
                return None;
            }
        }
        let failing = self.failing.entry(host.to_owned()).or_insert(Failing {
            times: 0,
            until: now.mono,
        });
        // Requests that were under way when the rest began say nothing new.
        if failing.times >= PATIENCE && now.mono < failing.until {
            return None;
        }
        failing.times = failing.times.saturating_add(1);
        let doublings = failing.times.checked_sub(PATIENCE)?;
        let rest = FIRST_REST
            .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
            .min(LONGEST_REST);
        failing.until = now.mono + rest;
        Some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_host_that_keeps_failing_is_passed_over_for_longer_and_longer() {
        let start = clock::now();
        let mut reliance = HostCircuitBreaker::default();
        let mut now = start;
        assert_eq!(reliance.failed(now, "a"), None);
        assert_eq!(reliance.failed(now, "a"), None);
        assert!(!reliance.passes_over(now, "a"));
        for seconds in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
            let rest = Duration::from_secs(seconds);
            assert_eq!(reliance.failed(now, "a"), Some(rest));
            assert_eq!(reliance.failed(now, "a"), None, "it is told once");
            assert!(reliance.passes_over(now, "a") && !reliance.passes_over(now, "b"));
            now = now.plus(rest);
            assert!(!reliance.passes_over(now, "a"), "it gets another chance");
        }
        reliance.succeeded("a");
        assert_eq!(reliance.failed(now, "a"), None);
        assert!(!reliance.passes_over(now, "a"));
    }

    #[test]
    fn failing_hosts_do_not_pile_up() {
        let now = clock::now();
        let mut reliance = HostCircuitBreaker::default();
        for n in 0..5000 {
            for _ in 0..PATIENCE {
                let _ = reliance.failed(now, &n.to_string());
            }
        }
        assert!(reliance.failing.len() <= MOST_HOSTS);
    }
}
