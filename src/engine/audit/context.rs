//! What every step of an audit needs.

use std::sync::{Arc, OnceLock};

use resyncd_fetch::Client;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config};
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::progress::Progress;

/// The handles of the audit of one Source.
pub(super) struct AuditContext {
    pub(super) source: config::Source,
    /// The configuration of this Source alone.
    pub(super) config: Config,
    /// That of all Sources.
    pub(super) client: Client,
    pub(super) repair: Option<Repair>,
    /// Whether files are compared with what is stated of their originals.
    pub(super) originals: bool,
    /// Whether it rests between files: it has time.
    pub(super) rests: bool,
    pub(super) progress: Arc<Progress>,
    /// How far the documents are read; not set before that.
    pub(super) reading: OnceLock<Arc<Progress>>,
    pub(super) stop: CancellationToken,
}

/// What a repair needs besides.
pub(super) struct Repair {
    pub(super) context: Arc<SourceContext>,
    pub(super) options: RepairOptions,
}

/// What a repair may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// Files that the Source does not have are removed.
    pub delete_extra: bool,
    /// The mirror may be another one than was used so far: that one is lost.
    pub new_mirror: bool,
}

/// Runs a closure off the asynchronous threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| EngineError::of_join(&error, "what an audit compares"))
}
