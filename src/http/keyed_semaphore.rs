//! Deliveries that are being read are in memory, so that each channel gets a few turns at once: a hub that sends slowly, or
//! too much, holds up its own channel and no other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::ChannelId;

/// How many deliveries of a channel are read at once.
const AT_ONCE: usize = 4;
/// How long one waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// The turns of all channels.
#[derive(Clone, Default)]
pub(super) struct KeyedSemaphore {
    channels: Arc<Mutex<HashMap<ChannelId, Arc<Semaphore>>>>,
}

impl KeyedSemaphore {
    /// Waits for a channel's turn; `None` if that takes too long.
    pub(super) async fn take(&self, channel: ChannelId) -> Option<OwnedSemaphorePermit> {
        let turns = {
            let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
            let turns = channels.entry(channel);
            Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))))
        };
        let turn = tokio::time::timeout(PATIENCE, turns.acquire_owned()).await;
        turn.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn channel_has_so_many_turns_and_no_more_and_holds_up_no_other() {
        let turns = KeyedSemaphore::default();
        let (busy, other) = (ChannelId(1), ChannelId(2));
        let mut taken = Vec::new();
        for _ in 0..AT_ONCE {
            taken.push(turns.take(busy).await.unwrap());
        }
        let waiting = tokio::time::timeout(2 * PATIENCE, turns.take(busy)).await;
        assert!(matches!(waiting, Ok(None)), "the wait ends by itself");
        assert!(turns.take(other).await.is_some());
        drop(taken.pop());
        assert!(turns.take(busy).await.is_some());
    }
}
