//! Limits the deliveries of channels whose sender nothing identifies: whoever has learnt the address could have the daemon read
//! documents, and request what they name, without end.
//!
//! Deliveries that exceed the rate are rejected. Nothing is lost by that: the last one that was accepted is followed by a poll, which comes
//! later than those that were rejected.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::store::ChannelId;

/// How many units a channel may use at once.
const BURST: u32 = 120;
/// How long it takes until a channel may use another one.
const INTERVAL: Duration = Duration::from_millis(500);
/// How many bytes of a delivery are a unit. Each delivery is one more.
const UNIT: u64 = 64 << 10;
/// How many channels are remembered. The ones that have used nothing of late are forgotten.
const MOST: usize = 10_000;

/// A leaky bucket for each channel.
#[derive(Clone, Default)]
pub(super) struct DeliveryRate {
    /// When each bucket will be empty.
    empty_at: Arc<Mutex<HashMap<ChannelId, Instant>>>,
}

impl DeliveryRate {
    /// Counts a delivery that begins; `false`: there were too many.
    pub(super) fn admits(&self, channel: ChannelId, now: Instant) -> bool {
        let mut empty_at = self.empty_at.lock();
        if empty_at.len() >= MOST {
            empty_at.retain(|_, at| *at > now);
        }
        let at = empty_at.get(&channel).map_or(now, |at| (*at).max(now));
        let is_full = at.saturating_duration_since(now) > INTERVAL * (BURST - 1);
        if is_full || empty_at.len() >= MOST && !empty_at.contains_key(&channel) {
            return false;
        }
        empty_at.insert(channel, at + INTERVAL);
        true
    }

    /// Counts the bytes of a delivery that was read. They may be more than what is left: the next ones wait for that.
    pub(super) fn charge(&self, channel: ChannelId, bytes: u64, now: Instant) {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        if units > 0 {
            let mut empty_at = self.empty_at.lock();
            let at = empty_at.get(&channel).map_or(now, |at| (*at).max(now));
            empty_at.insert(channel, at + INTERVAL.saturating_mul(units));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const BUSY: ChannelId = ChannelId(1);

    /// How many deliveries are accepted at once.
    fn accepted(rate: &DeliveryRate, now: Instant) -> u32 {
        let mut count = 0;
        while rate.admits(BUSY, now) {
            count += 1;
        }
        count
    }

    #[test]
    fn deliveries_beyond_the_rate_are_rejected_until_time_has_passed() {
        let (rate, now) = (DeliveryRate::default(), clock::now().mono);
        assert_eq!(accepted(&rate, now), BURST);
        assert!(rate.admits(ChannelId(2), now), "another channel");
        for (passed, expected) in [(0, 0), (3, 3), (3, 0), (5, 2), (1000, BURST)] {
            let now = now + INTERVAL * passed;
            assert_eq!(accepted(&rate, now), expected, "{passed}");
        }
    }

    #[test]
    fn bytes_count_as_deliveries_do() {
        let (rate, now) = (DeliveryRate::default(), clock::now().mono);
        rate.charge(BUSY, UNIT - 1, now);
        assert_eq!(accepted(&rate, now), BURST);
        let now = now + INTERVAL * BURST;
        rate.charge(BUSY, UNIT * 20, now);
        assert_eq!(accepted(&rate, now), BURST - 20);
        let now = now + INTERVAL * BURST;
        rate.charge(BUSY, UNIT * 200, now);
        assert_eq!(accepted(&rate, now), 0);
        assert_eq!(accepted(&rate, now + INTERVAL * 80), 0);
        assert_eq!(accepted(&rate, now + INTERVAL * 81), 1);
        rate.charge(BUSY, u64::MAX, now);
        assert_eq!(accepted(&rate, now), 0);
    }
}
