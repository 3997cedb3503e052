//! Limits how many bytes of deliveries of one channel are in memory at once. A hub that sends slowly, or too much, delays its own
//! channel only.
//!
//! A short delivery needs no room in the budget: how many of them there are is limited by the connections of the listener. So they
//! do not wait for long ones, and all that wait share a commit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::ChannelId;

/// How many deliveries of the greatest length a channel may have in memory at once.
const LONGEST_AT_ONCE: usize = 4;
/// The budget counts in units of so many bytes.
const UNIT: u64 = 1024;
/// How long a delivery waits for room.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A budget for each channel.
#[derive(Clone)]
pub(super) struct DeliveryBudget {
    /// The greatest length of a delivery, in units.
    longest: u32,
    channels: Arc<Mutex<HashMap<ChannelId, Arc<Semaphore>>>>,
}

/// The room of one delivery in the budget of its channel, until it is dropped.
pub(super) type Reservation = OwnedSemaphorePermit;

impl DeliveryBudget {
    /// For deliveries of at most `longest` bytes.
    pub(super) fn new(longest: u64) -> Self {
        Self {
            longest: units(longest),
            channels: Arc::default(),
        }
    }

    /// Reserves room for a delivery of so many bytes, or of the greatest length if it has more; `None` if that takes too long.
    pub(super) async fn reserve(&self, channel: ChannelId, bytes: u64) -> Option<Reservation> {
        let budget = {
            let mut channels = self.channels.lock();
            let entry = channels.entry(channel);
            let all = LONGEST_AT_ONCE.saturating_mul(self.longest as usize);
            let all = all.min(Semaphore::MAX_PERMITS);
            Arc::clone(entry.or_insert_with(|| Arc::new(Semaphore::new(all))))
        };
        let needed = units(bytes).min(self.longest);
        let reserving = tokio::time::timeout(RESERVE_TIMEOUT, budget.acquire_many_owned(needed));
        reserving.await.ok()?.ok()
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: u64 = 100 << 10;

    #[tokio::test(start_paused = true)]
    async fn bytes_of_a_channel_are_bounded_and_independent_of_other_channels() {
        let budget = DeliveryBudget::new(LONGEST);
        let (busy, other) = (ChannelId(1), ChannelId(2));
        let mut reserved = Vec::new();
        for _ in 0..LONGEST_AT_ONCE {
            reserved.push(budget.reserve(busy, LONGEST).await.unwrap());
        }
        let waiting = tokio::time::timeout(2 * RESERVE_TIMEOUT, budget.reserve(busy, 1)).await;
        assert!(matches!(waiting, Ok(None)), "the wait ends by itself");
        assert!(budget.reserve(other, LONGEST).await.is_some());
        drop(reserved.pop());
        assert!(budget.reserve(busy, LONGEST).await.is_some());
        // Two of half the length have room for one of the whole.
        for _ in 0..2 {
            reserved.push(budget.reserve(busy, LONGEST / 2).await.unwrap());
        }
        assert!(budget.reserve(busy, 1).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn delivery_that_is_too_long_reserves_as_much_as_the_longest_one() {
        let budget = DeliveryBudget::new(LONGEST);
        let mut reserved = Vec::new();
        for _ in 0..LONGEST_AT_ONCE {
            reserved.push(budget.reserve(ChannelId(1), u64::MAX).await.unwrap());
        }
        assert!(budget.reserve(ChannelId(1), 1).await.is_none());
    }
}
