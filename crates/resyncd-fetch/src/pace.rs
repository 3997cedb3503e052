//! The pace of the requests of one Source: how many per second, and how many bytes.
//!
//! A request, or the next part of a body, waits until its turn. The sum of all is what is limited, so that a pause is not made up for
//! by a burst.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Clock;

/// How fast a Source may be requested. Nothing is limited by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PaceLimits {
    /// The most requests in a second, of all kinds and to all hosts; more than 0.
    pub requests_per_second: Option<f64>,
    /// The most concurrent requests to one host, whatever version of HTTP it speaks, at least 1; `None`: as for every Source.
    pub connections_per_host: Option<usize>,
    /// The most bytes of bodies in a second, at least 1.
    pub bandwidth: Option<u64>,
}

/// The pace of one Source. What has a turn gets the next one.
pub(super) struct Pace {
    /// From one request to the next.
    pub(super) between_requests: Duration,
    bandwidth: Option<u64>,
    clock: Clock,
    next_request: Mutex<Option<Instant>>,
    next_bytes: Mutex<Option<Instant>>,
}

impl Pace {
    pub(super) fn new(between_requests: Duration, bandwidth: Option<u64>, clock: Clock) -> Self {
        Self {
            between_requests,
            bandwidth,
            clock,
            next_request: Mutex::default(),
            next_bytes: Mutex::default(),
        }
    }

    /// Waits until the next request may be sent.
    pub(super) async fn wait_for_request(&self) {
        let now = (self.clock)().mono;
        let at = {
            let mut next = self.next_request.lock();
            let at = next.map_or(now, |next| next.max(now));
            *next = Some(at + self.between_requests);
            at
        };
        tokio::time::sleep(at.saturating_duration_since(now)).await;
    }

    /// Waits until more bytes may be read.
    pub(super) async fn wait_for_bytes(&self) {
        let now = (self.clock)().mono;
        let at = self.next_bytes.lock().unwrap_or(now);
        tokio::time::sleep(at.saturating_duration_since(now)).await;
    }

    /// Counts bytes that were read.
    pub(super) fn count_bytes(&self, read: usize) {
        if let Some(bandwidth) = self.bandwidth {
            let takes = Duration::from_secs_f64(read as f64 / bandwidth as f64);
            let now = (self.clock)().mono;
            let mut next = self.next_bytes.lock();
            *next = Some(next.map_or(now, |next| next.max(now)) + takes);
        }
    }
}

#[cfg(test)]
mod tests {
    use resyncd_core::Now;

    use super::*;
    use crate::test_site;

    /// The time of the runtime, which is paused.
    fn paused() -> Now {
        Now {
            mono: tokio::time::Instant::now().into_std(),
            ..test_site::now()
        }
    }

    async fn took(work: impl Future<Output = ()>) -> Duration {
        let began = paused().mono;
        work.await;
        paused().mono - began
    }

    #[tokio::test(start_paused = true)]
    async fn requests_have_a_pause_between_them_and_none_is_saved_up() {
        let pace = Pace::new(Duration::from_secs(2), None, paused);
        let three = async || {
            for _ in 0..3 {
                pace.wait_for_request().await;
            }
        };
        assert_eq!(took(three()).await.as_secs(), 4);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(took(three()).await.as_secs(), 4);
        assert!(took(pace.wait_for_bytes()).await.is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_together_are_no_faster_than_the_bandwidth() {
        let pace = Pace::new(Duration::ZERO, Some(1000), paused);
        let body = async || {
            for _ in 0..10 {
                pace.wait_for_bytes().await;
                pace.count_bytes(500);
            }
        };
        let both = async {
            tokio::join!(body(), body());
            pace.wait_for_bytes().await;
        };
        assert_eq!(took(both).await.as_secs(), 10);
        assert!(took(pace.wait_for_request()).await.is_zero());
        assert!(took(pace.wait_for_request()).await.is_zero());
    }
}
