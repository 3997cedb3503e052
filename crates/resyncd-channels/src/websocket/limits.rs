//! The limits of the WebSockets of one Source.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// How many a Source may have.
pub(crate) const MOST_SOCKETS: usize = 256;
/// How many of them may have a long message in memory, or a part of one.
pub(crate) const MOST_LONG: usize = 4;

/// The WebSockets of one Source. Clones share the limits.
#[derive(Clone)]
pub(crate) struct SocketLimits {
    /// One permit for each that is open.
    pub(crate) open: Arc<Semaphore>,
    /// One permit for each long message, from its middle until it is dropped.
    pub(crate) long: Arc<Semaphore>,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self {
            open: Arc::new(Semaphore::new(MOST_SOCKETS)),
            long: Arc::new(Semaphore::new(MOST_LONG)),
        }
    }
}
