//! What the execution of a task needs.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::context::SourceContext;
use crate::mirror::Mirror;
use crate::sync::HostCircuitBreaker;

/// The handles of a Source's executor.
pub(super) struct ApplyContext {
    pub(super) source: Arc<SourceContext>,
    pub(super) mirror: Arc<Mirror>,
    /// Which hosts of duplicates are skipped because they keep failing.
    pub(super) breaker: Mutex<HostCircuitBreaker>,
}

impl ApplyContext {
    pub(super) fn new(source: Arc<SourceContext>, mirror: Arc<Mirror>) -> Self {
        Self {
            source,
            mirror,
            breaker: Mutex::default(),
        }
    }

    /// The Source's name.
    pub(super) fn name(&self) -> &str {
        self.source.name()
    }
}
