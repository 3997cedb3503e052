//! Limits how many deliveries of one channel are received at once, and how many bytes of them are in memory. A hub that sends slowly, or
//! too much, delays its own channel only.
//!
//! A short delivery needs no room in the budget of bytes. So it does not wait for long ones, and all that wait share a commit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::ChannelId;

/// How many deliveries of the greatest length a channel may have in memory at once.
const LONGEST_AT_ONCE: usize = 4;
/// How many short deliveries of a channel may be received at once, and how many long ones may be, or wait for room: a part of the connections
/// of the listener.
const AT_ONCE: usize = 64;
/// The budget counts in units of so many bytes.
const UNIT: u64 = 1024;
/// How long a delivery waits for room.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A budget for each channel.
#[derive(Clone)]
pub(super) struct DeliveryBudget {
    /// The greatest length of a delivery, in units.
    longest: u32,
    channels: Arc<Mutex<HashMap<ChannelId, ChannelBudget>>>,
}

#[derive(Clone)]
struct ChannelBudget {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
    /// In units.
    bytes: Arc<Semaphore>,
}

/// Whether a delivery needs room in the budget of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryLength {
    Short,
    Long,
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

    /// Counts a delivery that is received from now on, or waits for room, until what is returned is dropped; `None`: there are as many as there
    /// may be.
    pub(super) fn begin(
        &self,
        channel: ChannelId,
        length: DeliveryLength,
    ) -> Option<OwnedSemaphorePermit> {
        let budget = self.of_channel(channel);
        let of_length = match length {
            DeliveryLength::Short => budget.short,
            DeliveryLength::Long => budget.long,
        };
        of_length.try_acquire_owned().ok()
    }

    /// Reserves room for a delivery of so many bytes, or of the greatest length if it has more; `None` if that takes too long.
    pub(super) async fn reserve(&self, channel: ChannelId, bytes: u64) -> Option<Reservation> {
        let budget = self.of_channel(channel).bytes;
        let needed = units(bytes).min(self.longest);
        let reserving = tokio::time::timeout(RESERVE_TIMEOUT, budget.acquire_many_owned(needed));
        reserving.await.ok()?.ok()
    }

    fn of_channel(&self, channel: ChannelId) -> ChannelBudget {
        let mut channels = self.channels.lock();
        let budget = channels.entry(channel).or_insert_with(|| {
            let all = LONGEST_AT_ONCE.saturating_mul(self.longest as usize);
            ChannelBudget {
                short: Arc::new(Semaphore::new(AT_ONCE)),
                long: Arc::new(Semaphore::new(AT_ONCE)),
                bytes: Arc::new(Semaphore::new(all.min(Semaphore::MAX_PERMITS))),
            }
        });
        budget.clone()
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

    #[test]
    fn deliveries_of_a_channel_at_once_are_bounded_and_independent_of_others() {
        use DeliveryLength::{Long, Short};
        let budget = DeliveryBudget::new(LONGEST);
        let (busy, other) = (ChannelId(1), ChannelId(2));
        for (length, another) in [(Short, Long), (Long, Short)] {
            let all = (0..AT_ONCE).map(|_| budget.begin(busy, length).unwrap());
            let mut begun: Vec<_> = all.collect();
            assert!(budget.begin(busy, length).is_none(), "{length:?}");
            assert!(budget.begin(busy, another).is_some(), "{length:?}");
            assert!(budget.begin(other, length).is_some(), "{length:?}");
            drop(begun.pop());
            assert!(budget.begin(busy, length).is_some(), "{length:?}");
        }
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
