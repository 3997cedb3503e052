//! How the driver of a channel waits.

use std::time::Duration;

use chrono::{DateTime, Utc};
use resyncd_core::Now;
use tokio::sync::broadcast;
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
    let is_of_channel = |wake: &Wake| matches!(wake, Wake::Channel(_, of) if *of == id);
    // The result is the end of the time.
    let _ = tokio::time::timeout_at(deadline, Wake::until(wakes, is_of_channel)).await;
}
