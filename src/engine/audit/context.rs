//! What every step of an audit needs.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::config;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::progress::Progress;
use crate::fetch::Client;

/// The handles of the audit of one Source.
pub(super) struct AuditContext {
    pub(super) source: config::Source,
    pub(super) limits: config::LimitsConfig,
    /// The folder of the database.
    pub(super) state: PathBuf,
    pub(super) client: Client,
    pub(super) repair: Option<Repair>,
    pub(super) progress: Arc<Progress>,
    pub(super) stop: CancellationToken,
}

/// What a repair needs besides.
pub(super) struct Repair {
    pub(super) context: Arc<SourceContext>,
    pub(super) delete_extra: bool,
}

/// Runs a closure off the asynchronous threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| EngineError::of_join(&error, "what an audit compares"))
}
