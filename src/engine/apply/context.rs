//! What the execution of a task needs.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use resyncd_core::HostCircuitBreaker;
use resyncd_fetch::Client;
use resyncd_mirror::Mirror;

use super::former_versions::FormerVersions;
use super::task_error::TaskError;
use crate::engine::context::SourceContext;
use crate::store::{Task, TaskFailure};

/// So many queued tasks are many.
const MANY: usize = 32;

/// The handles of a Source's executor, or of what fetches its versions.
pub(crate) struct ApplyContext {
    pub(crate) source: Arc<SourceContext>,
    /// Where files are staged and published: the mirror, or the folder of versions.
    pub(crate) mirror: Arc<Mirror>,
    /// Which hosts of duplicates are skipped because they keep failing.
    pub(super) breaker: Mutex<HostCircuitBreaker>,
    pub(super) former_versions: Mutex<FormerVersions>,
    /// Whether the mirror had no files when the executor began: then a file without a record is rare, and is downloaded again
    /// instead of being looked for before every download.
    pub(super) was_empty: bool,
    /// How many tasks are queued and not begun.
    queued: AtomicUsize,
}

impl ApplyContext {
    pub(crate) fn new(source: Arc<SourceContext>, mirror: Arc<Mirror>, was_empty: bool) -> Self {
        Self {
            source,
            mirror,
            breaker: Mutex::default(),
            former_versions: Mutex::default(),
            was_empty,
            queued: AtomicUsize::new(0),
        }
    }

    /// Notes how many tasks are queued and not begun.
    pub(super) fn note_queued(&self, queued: usize) {
        self.queued.store(queued, Ordering::Relaxed);
    }

    /// Whether so many tasks are queued that a little delay of each saves time for all.
    pub(super) fn has_many_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed) >= MANY
    }

    /// The client that requests the resource of a task. What no document of the Source names is never requested with its credentials.
    pub(super) fn client_of(&self, task: &Task) -> Cow<'_, Client> {
        if task.is_named {
            Cow::Borrowed(&self.source.client)
        } else {
            Cow::Owned(self.source.client.without_credentials())
        }
    }

    /// What an error makes of a task.
    pub(super) fn failure(&self, task: &Task, error: TaskError) -> TaskFailure {
        error.into_failure(task, &self.source.client)
    }

    /// The Source's name.
    pub(crate) fn name(&self) -> &str {
        self.source.name()
    }
}
