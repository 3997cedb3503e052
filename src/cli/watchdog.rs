//! Feeds systemd's watchdog (sd_watchdog_enabled(3)) while the daemon works.
//!
//! It is fed after each probe of what all Sources share: the database's writer, its readers, the threads for blocking work and
//! the workers. A probe that hangs is not repeated, and systemd restarts the service. An error is an answer: a full disk is no
//! reason to restart. Nor is a Source that hangs: its failure stays its own.

use std::time::Duration;

/// How many probes there are in the time of the watchdog.
const PROBES: u32 = 4;

/// Feeds the watchdog for ever; `limit`: the time within which it must be fed. `probe` returns whether the daemon works.
pub(super) async fn feed<F: Future<Output = bool>>(
    limit: Duration,
    mut probe: impl FnMut() -> F,
    mut fed: impl FnMut(),
) {
    let mut pace = tokio::time::interval(limit / PROBES);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        if probe().await {
            fed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);

    /// How often it is fed in ten times the limit, if the probe numbered `from` and those after it do not answer, or do not
    /// find the daemon working.
    async fn fed(from: u32, answers: bool) -> u32 {
        let (probes, fed) = (Cell::new(0), Cell::new(0));
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
        let feeding = feed(LIMIT, probe, || fed.set(fed.get() + 1));
        let ended = tokio::time::timeout(LIMIT * 10, feeding).await;
        assert!(ended.is_err(), "it never ends");
        fed.get()
    }

    #[tokio::test(start_paused = true)]
    async fn watchdog_is_fed_while_the_daemon_works_and_not_afterwards() {
        assert!(fed(u32::MAX, true).await >= 10 * PROBES);
        assert_eq!(fed(5, false).await, 4, "a probe hangs");
        assert_eq!(fed(5, true).await, 4, "a worker has died");
    }
}
