//! How the driver of a channel waits.

use std::time::Duration;

use chrono::{DateTime, Utc};
use resyncd_core::Now;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::clock;
use crate::store::{ChannelId, Wake};

/// The longest single wait: the wall clock may be set during it.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Waits until a time of the wall clock, or until the stored channel changes.
///
/// The clock may have been set since `begun`, and `until` may be a time of either clock: the shorter wait is right.
pub(super) async fn wait(
    wakes: &mut broadcast::Receiver<Wake>,
    id: ChannelId,
    until: DateTime<Utc>,
    begun: Now,
) {
    let now = clock::now();
    let pause = (until - now.wall.max(begun.wall))
        .to_std()
        .unwrap_or_default()
        .min(LONGEST_WAIT);
    let deadline = Instant::from_std(now.mono + pause);
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => return,
            wake = wakes.recv() => match wake {
                Ok(Wake::Channel(_, channel)) if channel == id => return,
                Err(RecvError::Lagged(_)) => return,
                Ok(_) => {}
                // The store outlives the drivers.
                Err(RecvError::Closed) => std::future::pending().await,
            },
        }
    }
}
