//! What is refused is counted each time and logged now and then: whoever sends rubbish must not fill the journal.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the same refusal is not logged again.
const QUIET: Duration = Duration::from_secs(60);
/// How many kinds of refusals are remembered.
const MOST: usize = 10_000;

/// When what was refused was logged last, by what it is about.
#[derive(Debug)]
pub(super) struct Refusals<K> {
    logged: Arc<Mutex<HashMap<K, Instant>>>,
}

impl<K: Eq + Hash> Refusals<K> {
    /// Whether a refusal is to be logged now.
    pub(super) fn is_news(&self, what: K, now: Instant) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < QUIET;
        if logged.get(&what).is_some_and(is_recent) {
            return false;
        }
        if logged.len() >= MOST {
            logged.retain(|_, at| is_recent(at));
        }
        if logged.len() < MOST {
            logged.insert(what, now);
        }
        true
    }
}

impl<K> Clone for Refusals<K> {
    fn clone(&self) -> Self {
        Self {
            logged: Arc::clone(&self.logged),
        }
    }
}

impl<K> Default for Refusals<K> {
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
    fn same_refusal_is_logged_once_a_minute() {
        let refusals = Refusals::default();
        let now = clock::now().mono;
        let at = |seconds| now + Duration::from_secs(seconds);
        assert!(refusals.is_news((1, "unsigned"), at(0)));
        assert!(!refusals.is_news((1, "unsigned"), at(59)));
        assert!(refusals.is_news((1, "too-large"), at(59)));
        assert!(refusals.is_news((2, "unsigned"), at(59)));
        assert!(refusals.is_news((1, "unsigned"), at(60)));
    }

    #[test]
    fn strangers_do_not_fill_the_memory() {
        let refusals = Refusals::default();
        let now = clock::now().mono;
        for number in 0..2 * MOST {
            assert!(refusals.is_news(number, now));
        }
        assert_eq!(refusals.logged.lock().unwrap().len(), MOST);
        assert!(refusals.is_news(MOST, now + QUIET));
        assert_eq!(refusals.logged.lock().unwrap().len(), 1);
    }
}
