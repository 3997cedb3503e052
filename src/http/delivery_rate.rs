//! Limits the deliveries of channels whose sender nothing identifies: whoever has learnt the address could have the daemon read
//! documents, and request what they name, without end.
//!
//! Deliveries that exceed the rate are rejected. Nothing is lost by that: each of them causes a poll, as those do that are accepted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::store::ChannelId;

/// How many units a channel may use at once.
const BURST: u32 = 120;
/// How long it takes until a channel may use another one.
const INTERVAL: Duration = Duration::from_millis(500);
/// How many bytes of a delivery are a unit. Each delivery is one more. So much may name a hundred resources, each of which is requested.
const UNIT: u64 = 4 << 10;
/// How many units a channel has used at most, so that a long delivery does not lock out others for more than a minute.
const MOST_USED: u32 = 2 * BURST;
/// How many channels are remembered. The ones that have used nothing recently are forgotten.
const MOST: usize = 10_000;

/// A leaky bucket for each channel.
#[derive(Clone, Default)]
pub(super) struct DeliveryRate {
    /// When each bucket will be empty.
    empty_at: Arc<Mutex<HashMap<ChannelId, Instant>>>,
}

impl DeliveryRate {
    /// Counts a delivery that begins; or returns how long none is accepted, because there were too many.
    pub(super) fn admit(&self, channel: ChannelId, now: Instant) -> Result<(), Duration> {
        let mut empty_at = self.empty_at.lock();
        if empty_at.len() >= MOST {
            empty_at.retain(|_, at| *at > now);
        }
        let at = empty_at.get(&channel).map_or(now, |at| (*at).max(now));
        let used = at.saturating_duration_since(now);
        let surplus = used.saturating_sub(INTERVAL * (BURST - 1));
        if !surplus.is_zero() {
            return Err(surplus);
        }
        if empty_at.len() >= MOST && !empty_at.contains_key(&channel) {
            return Err(INTERVAL * BURST);
        }
        empty_at.insert(channel, at + INTERVAL);
        Ok(())
    }

    /// Counts the bytes of a delivery that was read, completely or not. They may be more than what is left: the next ones wait for that.
    pub(super) fn charge(&self, channel: ChannelId, bytes: u64, now: Instant) {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        if units > 0 {
            let mut empty_at = self.empty_at.lock();
            let at = empty_at.get(&channel).map_or(now, |at| (*at).max(now));
            let until = at + INTERVAL.saturating_mul(units).min(INTERVAL * MOST_USED);
            empty_at.insert(channel, until.min(now + INTERVAL * MOST_USED));
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
        while rate.admit(BUSY, now).is_ok() {
            count += 1;
        }
        count
    }

    #[test]
    fn deliveries_beyond_the_rate_are_rejected_until_time_has_passed() {
        let (rate, now) = (DeliveryRate::default(), clock::now().mono);
        assert_eq!(accepted(&rate, now), BURST);
        assert_eq!(rate.admit(ChannelId(2), now), Ok(()), "another channel");
        assert_eq!(rate.admit(BUSY, now), Err(INTERVAL));
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
        // None locks out the others for longer than a minute.
        for _ in 0..3 {
            rate.charge(BUSY, u64::MAX, now);
            let pause = INTERVAL * (MOST_USED - BURST + 1);
            assert_eq!(rate.admit(BUSY, now), Err(pause));
            assert!(pause < Duration::from_secs(61));
        }
    }
}
