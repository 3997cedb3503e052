//! Counts rejected requests that belong to no Source and no channel; those that do are counted with their channel.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Requests that the listeners have rejected since the daemon started, by code.
#[derive(Clone, Debug, Default)]
pub struct RejectionCounters(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl RejectionCounters {
    /// Counts a rejection.
    pub(super) fn count(&self, code: &'static str) {
        let mut counts = self.0.lock();
        let count = counts.entry(code).or_default();
        *count = count.saturating_add(1);
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let counts = self.0.lock();
        let named = counts.iter();
        named
            .map(|(code, count)| ((*code).to_owned(), *count))
            .collect()
    }
}
