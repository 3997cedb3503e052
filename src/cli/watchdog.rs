//! Feeds systemd's watchdog (sd_watchdog_enabled(3)) while the daemon works.
//!
//! It is fed after each probe of what all Sources share: the database's writer, its readers, the threads for blocking work, and the
//! runtime with every worker on it. A probe that hangs is not repeated, and systemd restarts the service; the log names before what
//! it hangs at. An error is an answer: a full disk is no reason to restart. Nor is a Source that does not answer: its worker
//! waits, and responds when it is woken. A worker that blocks takes a thread from all Sources.

use std::pin::pin;
use std::time::Duration;

/// How many probes there are in the time of the watchdog.
const PROBES: u32 = 4;

/// Feeds the watchdog for ever; `limit`: the time within which it must be fed. `probe` returns whether the daemon works; `late` is
/// called once about each probe that takes long.
pub(super) async fn feed<F: Future<Output = bool>>(
    limit: Duration,
    mut probe: impl FnMut() -> F,
    mut late: impl FnMut(),
    mut fed: impl FnMut(),
) {
    let mut pace = tokio::time::interval(limit / PROBES);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        let mut probing = pin!(probe());
        let works = match tokio::time::timeout(limit / PROBES, &mut probing).await {
            Ok(works) => works,
            Err(_) => {
                late();
                probing.await
            }
        };
        if works {
            fed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);

    /// How often it is fed in ten times the limit, and how many probes are reported to be late, if the probe numbered `from` and
    /// those after it do not answer, or do not find the daemon working.
    async fn fed(from: u32, answers: bool) -> (u32, u32) {
        let (probes, fed, late) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let probe = || {
            probes.set(probes.get() + 1);
            let number = probes.get();
            async move {
                if number >= from && !answers {
                    std::future::pending::<()>().await;
                }
                number < from
            }
        };
        let count = |counter: &Cell<u32>| counter.set(counter.get() + 1);
        let feeding = feed(LIMIT, probe, || count(&late), || count(&fed));
        let ended = tokio::time::timeout(LIMIT * 10, feeding).await;
        assert!(ended.is_err(), "it never ends");
        (fed.get(), late.get())
    }

    #[tokio::test(start_paused = true)]
    async fn watchdog_is_fed_while_the_daemon_works_and_not_afterwards() {
        let (often, late) = fed(u32::MAX, true).await;
        assert!(often >= 10 * PROBES && late == 0);
        assert_eq!(fed(5, false).await, (4, 1), "a probe hangs");
        assert_eq!(fed(5, true).await, (4, 0), "a worker has died");
    }
}
