//! A circuit breaker for the hosts of duplicates: one that keeps failing is skipped for a while, so that it does not delay
//! every resource.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::Now;

/// The number of failures in a row after which a host is skipped.
const FAILURES_BEFORE_SKIP: u32 = 3;
/// How long it is skipped the first time; each further failure doubles it.
const FIRST_REST: Duration = Duration::from_secs(60);
/// The longest time for which a host is skipped.
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// The limit on failing hosts in memory: documents of the Source name them.
const MAX_HOSTS: usize = 1024;

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
    /// Whether a host is skipped now.
    pub fn skips(&self, now: Now, host: &str) -> bool {
        self.failing.get(host).is_some_and(|failing| {
            failing.times >= FAILURES_BEFORE_SKIP && now.mono < failing.until
        })
    }

    /// Records that a host has served a valid duplicate.
    pub fn succeeded(&mut self, host: &str) {
        self.failing.remove(host);
    }

    /// Records a failure. Returns for how long the host is skipped, if that begins now.
    pub fn failed(&mut self, now: Now, host: &str) -> Option<Duration> {
        if !self.failing.contains_key(host) && self.failing.len() >= MAX_HOSTS {
            self.failing.retain(|_, failing| {
                failing.times >= FAILURES_BEFORE_SKIP && now.mono < failing.until
            });
            if self.failing.len() >= MAX_HOSTS {
                return None;
            }
        }
        let failing = self.failing.entry(host.to_owned()).or_insert(Failing {
            times: 0,
            until: now.mono,
        });
        // Requests that were in progress when the pause began do not extend it.
        if failing.times >= FAILURES_BEFORE_SKIP && now.mono < failing.until {
            return None;
        }
        failing.times = failing.times.saturating_add(1);
        let doublings = failing.times.checked_sub(FAILURES_BEFORE_SKIP)?;
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
    use crate::test_clock;

    #[test]
    fn failing_host_is_skipped_for_growing_pauses() {
        let start = test_clock::now();
        let mut breaker = HostCircuitBreaker::default();
        let mut now = start;
        assert_eq!(breaker.failed(now, "a"), None);
        assert_eq!(breaker.failed(now, "a"), None);
        assert!(!breaker.skips(now, "a"));
        for seconds in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
            let rest = Duration::from_secs(seconds);
            assert_eq!(breaker.failed(now, "a"), Some(rest));
            assert_eq!(breaker.failed(now, "a"), None, "reported once");
            assert!(breaker.skips(now, "a") && !breaker.skips(now, "b"));
            now = now.plus(rest);
            assert!(!breaker.skips(now, "a"), "tried again after the pause");
        }
        breaker.succeeded("a");
        assert_eq!(breaker.failed(now, "a"), None);
        assert!(!breaker.skips(now, "a"));
    }

    #[test]
    fn number_of_failing_hosts_in_memory_is_bounded() {
        let now = test_clock::now();
        let mut breaker = HostCircuitBreaker::default();
        for n in 0..5000 {
            for _ in 0..FAILURES_BEFORE_SKIP {
                let _ = breaker.failed(now, &n.to_string());
            }
        }
        assert!(breaker.failing.len() <= MAX_HOSTS);
    }
}
