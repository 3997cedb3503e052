//! Detects that push has silently stopped: a hub that has lost a subscription reports nothing, so only polls can show it.

/// The number of polls in a row with undelivered changes after which push counts as stopped.
const MISSED: u32 = 2;

/// Compares the polls of one set with the deliveries of its channel.
///
/// A poll that finds changes while nothing has been received since the poll before has found undelivered changes. One such
/// poll proves little: the notification may still be on its way. A poll that finds nothing proves nothing either way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushWatchdog {
    /// The deliveries received by the last poll; `None` before the first.
    received: Option<u64>,
    missed: u32,
}

impl PushWatchdog {
    /// Records a poll. `received`: the number of deliveries that the channel had received when the poll began. `found`: whether
    /// it found unknown changes while no gap was open. Returns whether push counts as stopped; if so, the count starts again.
    ///
    /// The first poll is only the reference: it finds what happened before the subscription.
    pub fn polled(&mut self, received: u64, found: bool) -> bool {
        match self.received.replace(received) {
            Some(before) if before == received => self.missed += u32::from(found),
            _ => self.missed = 0,
        }
        let stopped = self.missed >= MISSED;
        if stopped {
            *self = Self::default();
        }
        stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each poll has the deliveries received by then, and whether it found changes; `stopped` is the index of the poll at
    /// which push counts as stopped.
    fn check(polls: &[(u64, bool)], stopped: Option<usize>) {
        let mut watchdog = PushWatchdog::default();
        let found = polls
            .iter()
            .position(|&(received, found)| watchdog.polled(received, found));
        assert_eq!(found, stopped, "{polls:?}");
    }

    #[test]
    fn two_polls_in_a_row_with_undelivered_changes_stop_push() {
        check(&[(0, false), (0, true), (0, true)], Some(2));
        check(&[(7, false), (7, true), (7, true)], Some(2));
        // The first poll finds what happened before the subscription.
        check(&[(0, true), (0, true)], None);
        check(&[(0, true), (0, true), (0, true)], Some(2));
    }

    #[test]
    fn poll_without_changes_proves_nothing() {
        check(&[(0, false), (0, false), (0, false), (0, false)], None);
        check(&[(0, false), (0, true), (0, false), (0, true)], Some(3));
    }

    #[test]
    fn delivery_resets_the_count() {
        check(&[(0, false), (0, true), (1, false), (1, true)], None);
        // A poll finds changes just before their notification arrives.
        check(
            &[(0, false), (0, true), (1, true), (2, true), (3, true)],
            None,
        );
    }

    #[test]
    fn count_starts_again_after_push_has_stopped() {
        let mut watchdog = PushWatchdog::default();
        for round in 0..3 {
            assert!(!watchdog.polled(5, true), "round {round}");
            assert!(!watchdog.polled(5, true), "round {round}");
            assert!(watchdog.polled(5, true), "round {round}");
        }
    }
}
