//! Workers that are started again after a panic.
//!
//! A panic is a fault of this program. It must not stop what has nothing to do with it: it is logged, shown in the status, and the
//! worker is started again, after a pause that grows while that does not help.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use resyncd_fetch::{Bounds, pause};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::error::EngineError;
use crate::clock;
use crate::status::StatusError;

/// The pauses before a worker is started again.
const PAUSES: Bounds = Bounds {
    tries: u32::MAX,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(600),
};
/// A worker that has worked for longer starts anew with the shortest pause.
const LASTING: Duration = Duration::from_secs(3600);
/// The stable code of the panic of a worker.
pub(super) const CODE: &str = "worker-panicked";

/// What has panicked. The hook for panics has printed the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Panicked;

/// Runs some work, and catches its panic. What the work has left in memory must not be relied on afterwards.
pub(super) fn catch_panic<T>(
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Panicked>> {
    // No function that is async: it would have room for the work twice.
    let caught = AssertUnwindSafe(work).catch_unwind();
    caught.map(|done| done.map_err(|_| Panicked))
}

/// Runs some work on `what`. A panic becomes an error.
pub(super) async fn panic_as_error<T>(
    what: impl Display,
    work: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, EngineError> {
    let panicked = |Panicked| Err(EngineError::Panicked(what.to_string()));
    catch_panic(work).await.unwrap_or_else(panicked)
}

/// The restarts of one worker.
pub(super) struct Restarts {
    worker: &'static str,
    /// The Source that it works on; empty: none.
    source: String,
    panics: u32,
    began: Instant,
}

impl Restarts {
    /// A worker begins.
    pub(super) fn of(worker: &'static str, source: &str) -> Self {
        Self {
            worker,
            source: source.to_owned(),
            panics: 0,
            began: clock::now().mono,
        }
    }

    /// Logs that the worker has panicked. Returns the error for the status, and the pause before the worker is started again.
    pub(super) fn after_panic(&mut self) -> (StatusError, Duration) {
        let now = clock::now();
        if now.mono.saturating_duration_since(self.began) > LASTING {
            self.panics = 0;
        }
        self.panics = self.panics.saturating_add(1);
        let pause = pause(self.panics, None, &PAUSES).unwrap_or(PAUSES.longest);
        self.began = now.mono + pause;
        let (worker, source, seconds) = (self.worker, &self.source, pause.as_secs_f32());
        tracing::error!(
            code = CODE,
            source,
            worker,
            seconds,
            "worker panicked; starting it again after a pause"
        );
        let message = format!("the {worker} panicked; see the log");
        (StatusError::new(CODE, message, now.wall), pause)
    }

    /// After a panic of the worker: logs it, has it shown, and waits until the worker is to be started again. `false`: it is not, because
    /// `stop` was cancelled.
    pub(super) async fn rest(
        &mut self,
        stop: &CancellationToken,
        show: impl FnOnce(StatusError),
    ) -> bool {
        let (error, pause) = self.after_panic();
        show(error);
        stop.run_until_cancelled(sleep(pause)).await.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_is_started_again_until_it_ends() {
        let (mut restarts, stop) = (Restarts::of("test", ""), CancellationToken::new());
        let (mut started, mut shown) = (0, 0);
        while catch_panic(async { assert!(started == 3, "a panic of a test") })
            .await
            .is_err()
        {
            assert!(restarts.rest(&stop, |_| shown += 1).await);
            started += 1;
        }
        assert_eq!((started, shown), (3, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_is_not_started_again_after_the_stop() {
        let (mut restarts, stop) = (Restarts::of("test", ""), CancellationToken::new());
        stop.cancel();
        let begun = tokio::time::Instant::now();
        assert!(!restarts.rest(&stop, |_| {}).await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut restarts = Restarts::of("test", "");
        let pauses: Vec<Duration> = (0..20).map(|_| restarts.after_panic().1).collect();
        assert!(pauses[0] < 2 * PAUSES.first);
        assert!(pauses[19] > PAUSES.longest / 3 && pauses[19] < 2 * PAUSES.longest);
    }
}
