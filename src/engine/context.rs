//! The handles that everything which works on one Source shares.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use resourcesync::uri::BaseUri;
use resyncd_channels::Transports;
use resyncd_fetch::Client;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::apply::members::Members;
use super::error::EngineError;
use super::heartbeats::{Heartbeats, Work};
use super::package_permits::PackagePermits;
use super::progress::Progress;
use super::read_facts::ReadFacts;
use super::recent_changes::RecentChanges;
use super::runtime_status::RuntimeStatus;
use super::versions::folder::VersionsFolder;
use crate::config;
use crate::metrics::SourceCounters;
use crate::store::Store;

/// One Source that is followed.
pub(super) struct SourceContext {
    pub(super) source: config::Source,
    pub(super) limits: config::LimitsConfig,
    pub(super) connections_per_host: usize,
    pub(super) streams_per_host: usize,
    pub(super) store: Arc<Store>,
    pub(super) client: Client,
    /// What channels are opened with.
    pub(super) transports: Transports,
    pub(super) runtime_status: Arc<RuntimeStatus>,
    /// What is counted for `GET /metrics`.
    pub(super) counters: SourceCounters,
    /// The beginning of callback URIs; `None`: no channel can be subscribed to.
    pub(super) public_url: Option<Url>,
    /// The members of open packages.
    pub(super) members: Members,
    /// Where versions are stored; `None`: they are not.
    pub(super) versions: Option<Arc<VersionsFolder>>,
    /// The permits of packages in progress.
    pub(super) package_permits: PackagePermits,
    /// Whether channels are subscribed to, renewed and ended at all: a single run does not.
    pub(super) subscribes: bool,
    /// How often the processing of a delivery in the inbox has panicked, by its number there. It outlives the workers that panic.
    pub(super) delivery_panics: Mutex<HashMap<i64, u32>>,
    /// How far the work has come.
    pub(super) progress: Arc<Progress>,
    /// What was read of the documents, for who runs once.
    pub(super) read_facts: ReadFacts,
    /// Whether its workers respond.
    pub(super) heartbeats: Heartbeats,
    /// What was applied recently.
    pub(super) recent_changes: RecentChanges,
    /// Makes the Source's worker discover its sets again.
    pub(super) rediscover: Notify,
    /// Notified when the mirror's folder was not at its path.
    pub(super) mirror_doubted: Notify,
    /// Ends the workers.
    pub(super) stop: CancellationToken,
    /// Cancelled when the subscriptions are being ended for good: no channel is subscribed to any more.
    pub(super) retired: CancellationToken,
}

impl SourceContext {
    /// What the references of a document with that URI are resolved against.
    pub(super) fn base_uri<'a>(&self, uri: &'a Url) -> BaseUri<'a> {
        BaseUri {
            uri,
            max_bytes: self.limits.uri,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.source.name
    }

    /// Notes the error if it is that of a row of the Source that can't be read: the Source is shown as failing.
    pub(super) fn note_unreadable(&self, error: &EngineError) {
        if let EngineError::Store(error) = error {
            self.store.note_unreadable(self.name(), error);
        }
    }

    /// Runs a worker of the Source, which is expected to respond.
    pub(super) fn watched<T, F: Future<Output = T>>(
        &self,
        worker: &str,
        work: F,
    ) -> impl Future<Output = T> + use<T, F> {
        let name = format!("{worker} (Source {})", self.name());
        self.heartbeats.watched(&name, work)
    }

    /// A worker of the Source works on something that takes its steps, until the result is dropped.
    pub(super) fn works_on(&self, what: &str) -> Work {
        let counters = self.counters.clone();
        let name = format!("{what} (Source {})", self.name());
        self.heartbeats.work(name, move || counters.steps())
    }
}
