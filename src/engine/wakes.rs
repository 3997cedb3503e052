//! Waits for a change of the store.

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::store::Wake;

/// Returns when there was a wake that is wanted, or there may have been one.
pub(super) async fn until_woken(wakes: &mut Receiver<Wake>, is_wanted: impl Fn(&Wake) -> bool) {
    loop {
        match wakes.recv().await {
            Ok(wake) if is_wanted(&wake) => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            // The store outlives who waits.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
