//! Limits how many deliveries of one channel are read at once, because they are read into memory. A hub that sends slowly, or
//! too much, delays its own channel only.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::ChannelId;

/// How many deliveries of a channel are read at once.
const AT_ONCE: usize = 4;
/// How long a delivery waits for a permit.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// One semaphore per channel.
#[derive(Clone, Default)]
pub(super) struct KeyedSemaphore {
    channels: Arc<Mutex<HashMap<ChannelId, Arc<Semaphore>>>>,
}

impl KeyedSemaphore {
    /// Acquires a permit of the channel; `None` if that takes too long.
    pub(super) async fn acquire(&self, channel: ChannelId) -> Option<OwnedSemaphorePermit> {
        let semaphore = {
            let mut channels = self.channels.lock();
            let entry = channels.entry(channel);
            Arc::clone(entry.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))))
        };
        let permit = tokio::time::timeout(ACQUIRE_TIMEOUT, semaphore.acquire_owned()).await;
        permit.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn permits_of_a_channel_are_bounded_and_independent_of_other_channels() {
        let permits = KeyedSemaphore::default();
        let (busy, other) = (ChannelId(1), ChannelId(2));
        let mut acquired = Vec::new();
        for _ in 0..AT_ONCE {
            acquired.push(permits.acquire(busy).await.unwrap());
        }
        let waiting = tokio::time::timeout(2 * ACQUIRE_TIMEOUT, permits.acquire(busy)).await;
        assert!(matches!(waiting, Ok(None)), "the wait ends by itself");
        assert!(permits.acquire(other).await.is_some());
        drop(acquired.pop());
        assert!(permits.acquire(busy).await.is_some());
    }
}
