//! Counts rejected requests that belong to no Source and no channel; those that do are counted with their channel. Remembers which
//! probes of the callback were among them: whoever has sent one learns whether it has arrived here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

/// The target of the events of rejected requests: each kind is logged once a minute, because anybody can send them, and all are counted.
pub const REJECTED: &str = "resyncd::http::rejected";
/// The beginning of a token that no callback has: a request for it finds out where the public URL leads.
pub const PROBE: &str = "probe-";
/// How many probes are remembered, and how long their tokens may be, in bytes.
const MOST_PROBES: usize = 256;
const LONGEST_PROBE: usize = 80;

/// Requests that the listeners have rejected since the daemon started, by code.
#[derive(Clone, Debug, Default)]
pub struct RejectionCounters(Arc<Mutex<Rejections>>);

#[derive(Debug, Default)]
struct Rejections {
    counts: BTreeMap<&'static str, u64>,
    /// The tokens of the last probes, oldest first.
    probes: VecDeque<String>,
}

impl RejectionCounters {
    /// Counts a rejection.
    pub(super) fn count(&self, code: &'static str) {
        let mut rejections = self.0.lock();
        let count = rejections.counts.entry(code).or_default();
        *count = count.saturating_add(1);
    }

    /// Counts a request for a callback that there is not.
    pub(super) fn count_unknown_callback(&self, token: &str) {
        self.count("unknown-callback");
        if token.starts_with(PROBE) && token.len() <= LONGEST_PROBE {
            let mut rejections = self.0.lock();
            if rejections.probes.len() >= MOST_PROBES {
                rejections.probes.pop_front();
            }
            rejections.probes.push_back(token.to_owned());
        }
    }

    /// Whether a probe with that token has arrived at the callback listener recently.
    #[must_use]
    pub fn has_probe(&self, token: &str) -> bool {
        self.0.lock().probes.iter().any(|probe| probe == token)
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let rejections = self.0.lock();
        let named = rejections.counts.iter();
        named
            .map(|(code, count)| ((*code).to_owned(), *count))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_known_by_their_tokens_and_bounded() {
        let rejections = RejectionCounters::default();
        let token = |number: usize| format!("{PROBE}{number}");
        for number in 0..MOST_PROBES + 10 {
            rejections.count_unknown_callback(&token(number));
            rejections.count_unknown_callback(&format!("other-{number}"));
        }
        assert!(!rejections.has_probe(&token(9)) && rejections.has_probe(&token(10)));
        assert!(rejections.has_probe(&token(MOST_PROBES + 9)));
        assert!(!rejections.has_probe("other-10") && !rejections.has_probe(PROBE));
        let long = PROBE.repeat(LONGEST_PROBE);
        rejections.count_unknown_callback(&long);
        assert!(!rejections.has_probe(&long));
        let counted = 2 * (MOST_PROBES as u64 + 10) + 1;
        assert_eq!(rejections.counts()["unknown-callback"], counted);
    }
}
