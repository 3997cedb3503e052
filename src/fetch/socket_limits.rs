//! The limits of the WebSockets of one Source.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// How many a Source may have.
pub(super) const MOST_SOCKETS: usize = 256;
/// How many of them may be in the middle of a long message.
pub(super) const MOST_LONG: usize = 4;

/// The WebSockets of one Source. Clones share the limits.
#[derive(Clone)]
pub(super) struct SocketLimits {
    /// One permit for each that is open.
    pub(super) open: Arc<Semaphore>,
    /// One permit for each that is in the middle of a long message.
    pub(super) long: Arc<Semaphore>,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self {
            open: Arc::new(Semaphore::new(MOST_SOCKETS)),
            long: Arc::new(Semaphore::new(MOST_LONG)),
        }
    }
}
