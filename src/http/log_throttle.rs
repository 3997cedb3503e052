//! Limits how often the same rejection is logged: rejected requests must not fill the journal. Each one is still counted.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long the same rejection is not logged again.
const QUIET: Duration = Duration::from_secs(60);
/// How many kinds of rejections are remembered; beyond that every one is logged.
const MOST: usize = 10_000;

/// When each kind of rejection was last logged.
#[derive(Clone, Debug)]
pub(super) struct LogThrottle<K> {
    logged: Arc<Mutex<HashMap<K, Instant>>>,
}

impl<K: Eq + Hash> LogThrottle<K> {
    /// Whether to log a rejection of this kind now; if so, not again for a minute.
    pub(super) fn should_log(&self, kind: K, now: Instant) -> bool {
        let mut logged = self.logged.lock();
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < QUIET;
        if logged.get(&kind).is_some_and(is_recent) {
            return false;
        }
        if logged.len() >= MOST {
            logged.retain(|_, at| is_recent(at));
        }
        if logged.len() < MOST {
            logged.insert(kind, now);
        }
        true
    }
}

impl<K> Default for LogThrottle<K> {
    fn default() -> Self {
        Self {
            logged: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn same_rejection_is_logged_once_a_minute() {
        let throttle = LogThrottle::default();
        let now = clock::now().mono;
        let at = |seconds| now + Duration::from_secs(seconds);
        assert!(throttle.should_log((1, "unsigned"), at(0)));
        assert!(!throttle.should_log((1, "unsigned"), at(59)));
        assert!(throttle.should_log((1, "too-large"), at(59)));
        assert!(throttle.should_log((2, "unsigned"), at(59)));
        assert!(throttle.should_log((1, "unsigned"), at(60)));
    }

    #[test]
    fn number_of_remembered_rejections_is_bounded() {
        let throttle = LogThrottle::default();
        let now = clock::now().mono;
        for number in 0..2 * MOST {
            assert!(throttle.should_log(number, now));
        }
        assert_eq!(throttle.logged.lock().len(), MOST);
        assert!(throttle.should_log(MOST, now + QUIET));
        assert_eq!(throttle.logged.lock().len(), 1);
    }
}
