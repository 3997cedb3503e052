//! What the handlers of the status listener need.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::rejection_counters::RejectionCounters;
use crate::engine::Engine;
use crate::store::Store;

/// How many streams of the feed are open at once: a small part of the connections of the listener, which each one occupies.
pub(super) const MAX_STREAMS: usize = 64;
/// The same of open pages that are informed of news. Others look at an interval.
pub(super) const MAX_PAGES: usize = 32;

#[derive(Clone)]
pub(super) struct OperatorState {
    pub(super) engine: Arc<Engine>,
    pub(super) store: Arc<Store>,
    /// The counters of both listeners.
    pub(super) rejections: RejectionCounters,
    /// Ends the streams.
    pub(super) stop: CancellationToken,
    /// A permit for each stream of the feed.
    pub(super) streams: Arc<Semaphore>,
    /// A permit for each open page.
    pub(super) pages: Arc<Semaphore>,
}
