//! What the workers have in common after a database error: the one who has met it logs it or shows it, rests, and tries again. The
//! work waits, nothing is given up.
//!
//! Two others have a pause of their own: the callback listener a shorter one, because a hub waits for its answer, and the worker of the
//! versions a longer one, which is also that after an error of its folder.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The pause after a database error.
pub(super) const STORE_PAUSE: Duration = Duration::from_secs(2);

/// Rests after a database error; returns whether the work goes on: `false` if it is stopped meanwhile.
pub(super) async fn rest_unless_stopped(stop: &CancellationToken) -> bool {
    let rested = stop.run_until_cancelled(tokio::time::sleep(STORE_PAUSE));
    rested.await.is_some()
}
