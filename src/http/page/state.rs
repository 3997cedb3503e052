//! What the handlers of the page need.

use std::sync::Arc;

use axum::response::Response;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::answer::{database_failed, operation_failed};
use crate::engine::Engine;
use crate::http::rejection_counters::RejectionCounters;
use crate::status::Status;
use crate::store::{FeedExcerpt, FeedSearch, Store};

/// How many open pages are informed of news: a small part of the connections of the listener, which each one occupies. Others look at
/// an interval.
pub(super) const MAX_STREAMS: usize = 32;

#[derive(Clone)]
pub(super) struct PageState {
    pub(super) engine: Arc<Engine>,
    pub(super) store: Arc<Store>,
    pub(super) stop: CancellationToken,
    pub(super) rejections: RejectionCounters,
    pub(super) streams: Arc<Semaphore>,
}

impl PageState {
    pub(super) fn new(
        engine: Arc<Engine>,
        store: Arc<Store>,
        stop: CancellationToken,
        rejections: RejectionCounters,
    ) -> Self {
        Self {
            engine,
            store,
            stop,
            rejections,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        }
    }

    /// The status; else the page of the error. `root`: the way from the page to `/`.
    pub(super) async fn status(&self, root: &'static str) -> Result<Status, Response> {
        let status = self.engine.status().await;
        status.map_err(|error| operation_failed(root, &error))
    }

    /// The last changes; else the page of the error.
    pub(super) async fn changes(
        &self,
        root: &'static str,
        search: FeedSearch,
    ) -> Result<FeedExcerpt, Response> {
        let changes = self.store.newest_changes(search).await;
        changes.map_err(|error| database_failed(root, &error))
    }
}
