//! How often something was refused that belongs to no Source and no channel: what they refuse, they count themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the listeners have refused since the daemon started, by its code.
#[derive(Clone, Debug, Default)]
pub struct RejectionCounters(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl RejectionCounters {
    /// Counts a refusal.
    pub(super) fn count(&self, code: &'static str) {
        let mut counts = self.lock();
        let count = counts.entry(code).or_default();
        *count = count.saturating_add(1);
    }

    /// All of them so far.
    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        let counts = self.lock();
        let named = counts.iter();
        named
            .map(|(code, count)| ((*code).to_owned(), *count))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
