//! Whether push has silently stopped: a hub that has forgotten a subscription says nothing, and only polls can tell.

/// So many polls in a row that find what no notification told end the trust in a channel.
const MISSED: u32 = 2;

/// What the polls of one set tell about its channel.
///
/// A poll that finds changes while nothing was received since the poll before it has missed something. One alone proves
/// little: the notification may still be on its way. A poll that finds nothing proves nothing either way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushWatchdog {
    /// How many deliveries had been received at the last poll; `None`: there was none that could be compared with.
    received: Option<u64>,
    missed: u32,
}

impl PushWatchdog {
    /// Notes a poll. `received`: how many deliveries the channel had received when it began. `found`: whether it found changes
    /// that were not known, and no gap was open. Answers whether push is to be taken as stopped; then the count begins anew.
    ///
    /// The first poll only takes the measure: it finds what happened while nobody listened.
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

    /// Polls, each with what was received by then and whether it found changes; the poll at which push counts as stopped.
    fn check(polls: &[(u64, bool)], stopped: Option<usize>) {
        let mut silence = PushWatchdog::default();
        let found = polls
            .iter()
            .position(|&(received, found)| silence.polled(received, found));
        assert_eq!(found, stopped, "{polls:?}");
    }

    #[test]
    fn two_polls_in_a_row_that_find_what_nothing_told_end_the_trust() {
        check(&[(0, false), (0, true), (0, true)], Some(2));
        check(&[(7, false), (7, true), (7, true)], Some(2));
        // The first finds what happened before anybody listened.
        check(&[(0, true), (0, true)], None);
        check(&[(0, true), (0, true), (0, true)], Some(2));
    }

    #[test]
    fn poll_that_finds_nothing_proves_nothing() {
        check(&[(0, false), (0, false), (0, false), (0, false)], None);
        check(&[(0, false), (0, true), (0, false), (0, true)], Some(3));
    }

    #[test]
    fn whatever_is_received_restores_the_trust() {
        check(&[(0, false), (0, true), (1, false), (1, true)], None);
        // Changes that a poll finds a moment before their notification comes.
        check(
            &[(0, false), (0, true), (1, true), (2, true), (3, true)],
            None,
        );
    }

    #[test]
    fn count_begins_anew_once_it_was_told() {
        let mut silence = PushWatchdog::default();
        for round in 0..3 {
            assert!(!silence.polled(5, true), "round {round}");
            assert!(!silence.polled(5, true), "round {round}");
            assert!(silence.polled(5, true), "round {round}");
        }
    }
}
