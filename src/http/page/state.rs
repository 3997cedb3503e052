//! What the handlers of the page need.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::http::rejection_counters::RejectionCounters;
use crate::status::Operations;
use crate::store::Store;

/// How many open pages are informed of news: a small part of the connections of the listener, which each one occupies. Others look at
/// an interval.
pub(super) const MAX_STREAMS: usize = 32;

#[derive(Clone)]
pub(super) struct PageState {
    pub(super) operations: Arc<dyn Operations>,
    pub(super) store: Arc<Store>,
    pub(super) stop: CancellationToken,
    pub(super) rejections: RejectionCounters,
    pub(super) streams: Arc<Semaphore>,
}

impl PageState {
    pub(super) fn new(
        operations: Arc<dyn Operations>,
        store: Arc<Store>,
        stop: CancellationToken,
        rejections: RejectionCounters,
    ) -> Self {
        Self {
            operations,
            store,
            stop,
            rejections,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        }
    }
}
