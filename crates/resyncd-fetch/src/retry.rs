//! Retries: a bounded number of tries, with growing pauses and jitter.
//!
//! The crate `backoff` is no longer maintained; only this file uses it.

use std::time::Duration;

use backoff::backoff::Backoff;
use backoff::exponential::ExponentialBackoff;
use resyncd_core::ErrorClass;

use super::{Client, FetchError};

/// The maximum `Retry-After` that is respected.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// The number of tries, and the pauses between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The total number of tries, at least 1.
    pub tries: u32,
    /// The pause after the first try, before jitter.
    pub first: Duration,
    /// The longest pause, before jitter.
    pub longest: Duration,
}

impl Bounds {
    /// For documents that a caller waits for.
    pub const DOCUMENT: Self = Self {
        tries: 3,
        first: Duration::from_millis(500),
        longest: Duration::from_secs(10),
    };
    /// For packages, as long as no byte is received.
    pub const PACKAGE: Self = Self {
        tries: 4,
        first: Duration::from_secs(1),
        longest: Duration::from_secs(30),
    };
}

/// How much of a pause is random.
pub(super) const JITTER: f64 = 0.5;

/// The pause after `attempt` tries (1 = after the first), with a jitter of one half; `None`: no further try.
///
/// A longer `Retry-After` (`asked`) is respected, up to an hour.
#[must_use]
pub fn pause(attempt: u32, asked: Option<Duration>, bounds: &Bounds) -> Option<Duration> {
    (attempt < bounds.tries).then(|| pause_with(JITTER, attempt, asked, bounds))
}

/// No longer than the longest, jitter and all, unless it is asked for.
fn pause_with(jitter: f64, attempt: u32, asked: Option<Duration>, bounds: &Bounds) -> Duration {
    let doublings = attempt.saturating_sub(1).min(31);
    let current = bounds
        .first
        .saturating_mul(1 << doublings)
        .min(bounds.longest);
    let mut backoff: ExponentialBackoff<backoff::SystemClock> = ExponentialBackoff {
        current_interval: current,
        randomization_factor: jitter,
        max_elapsed_time: None,
        ..ExponentialBackoff::default()
    };
    let own = backoff.next_backoff().unwrap_or(current);
    own.min(bounds.longest)
        .max(asked.unwrap_or_default().min(MAX_RETRY_AFTER))
}

impl Client {
    /// The pause after a failed request, as [`pause`] has it.
    #[must_use]
    pub fn pause(
        &self,
        attempt: u32,
        asked: Option<Duration>,
        bounds: &Bounds,
    ) -> Option<Duration> {
        (attempt < bounds.tries).then(|| self.pause_after(attempt, asked, bounds))
    }

    /// The same, however many tries there have been.
    #[must_use]
    pub fn pause_after(&self, attempt: u32, asked: Option<Duration>, bounds: &Bounds) -> Duration {
        pause_with(self.jitter, attempt, asked, bounds)
    }

    /// Retries until success, a final error, or the bounds of documents are reached; returns the error of the last try.
    ///
    /// If the server asks for a longer pause than the bounds allow, its error is returned to the caller.
    pub(super) async fn retry<T, F>(&self, mut op: impl FnMut() -> F) -> Result<T, FetchError>
    where
        F: Future<Output = Result<T, FetchError>>,
    {
        let bounds = &self.retries;
        let mut attempt = 0;
        loop {
            let error = match op().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            attempt += 1;
            if error.class() != ErrorClass::Retry {
                return Err(error);
            }
            let after = error.retry_after();
            if after.is_some_and(|after| after > bounds.longest) {
                return Err(error);
            }
            match self.pause(attempt, after, bounds) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_site;

    const BOUNDS: Bounds = Bounds {
        tries: 5,
        first: Duration::from_secs(1),
        longest: Duration::from_secs(6),
    };

    #[test]
    fn pauses_grow_up_to_the_longest_and_end() {
        for (attempt, middle) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 6.0)] {
            let pause = pause(attempt, None, &BOUNDS).unwrap().as_secs_f64();
            assert!(
                (middle * 0.49..=middle * 1.51).contains(&pause),
                "{attempt}: {pause}"
            );
        }
        assert_eq!(pause(5, None, &BOUNDS), None);
        assert_eq!(pause(5, Some(Duration::from_secs(1)), &BOUNDS), None);
    }

    #[test]
    fn retry_after_is_respected_up_to_an_hour() {
        let asked = |seconds| pause(1, Some(Duration::from_secs(seconds)), &BOUNDS);
        assert_eq!(asked(90), Some(Duration::from_secs(90)));
        assert_eq!(asked(u64::MAX), Some(MAX_RETRY_AFTER));
        assert!(asked(0).unwrap() >= Duration::from_millis(490));
    }

    proptest! {
        #[test]
        fn pauses_are_always_bounded(attempt: u32, asked: Option<u64>, first in 0_u64..1 << 40, longest in 0_u64..1 << 40) {
            let bounds = Bounds {
                tries: u32::MAX,
                first: Duration::from_millis(first),
                longest: Duration::from_millis(longest),
            };
            let most = (bounds.longest.mul_f64(1.51) + Duration::from_secs(1)).max(MAX_RETRY_AFTER);
            if let Some(pause) = pause(attempt, asked.map(Duration::from_secs), &bounds) {
                prop_assert!(pause <= most);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn temporary_errors_are_retried_and_final_ones_are_not() {
        let client = test_site::client().with_document_retries(BOUNDS);
        let tries = async |error: FetchError| {
            let mut tries = 0;
            let outcome: Result<(), _> = client
                .retry(|| {
                    tries += 1;
                    std::future::ready(Err(error.clone()))
                })
                .await;
            assert_eq!(outcome, Err(error.clone()));
            tries
        };
        let status = |status, retry_after: Option<u64>| FetchError::Status {
            status,
            retry_after: retry_after.map(Duration::from_secs),
        };
        assert_eq!(tries(FetchError::Timeout).await, 5);
        assert_eq!(tries(status(503, None)).await, 5);
        assert_eq!(tries(status(503, Some(2))).await, 5);
        assert_eq!(tries(status(503, Some(7))).await, 1);
        assert_eq!(tries(status(404, None)).await, 1);
        assert_eq!(tries(FetchError::TooManyRedirects).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn success_after_failure_is_success() {
        let client = test_site::client().with_document_retries(BOUNDS);
        let mut tries = 0;
        let outcome = client
            .retry(|| {
                tries += 1;
                std::future::ready(if tries < 3 {
                    Err(FetchError::CutShort)
                } else {
                    Ok("done")
                })
            })
            .await;
        assert_eq!(outcome, Ok("done"));
    }
}
