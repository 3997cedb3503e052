//! The Sources that are followed: a list that a reload replaces.
//!
//! Invariant: a list never changes: who has read it goes on with the Sources that it has.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::context::SourceContext;
use super::set::worker::Command;
use crate::config;
use crate::store::FollowedSets;

/// A Source that is followed.
#[derive(Clone)]
pub(super) struct FollowedSource {
    pub(super) context: Arc<SourceContext>,
    /// To the Source's worker; `None`: there is none.
    pub(super) commands: Option<mpsc::Sender<Command>>,
    /// Cancelled when the worker has ended, and with it all that it has started.
    pub(super) ended: CancellationToken,
}

impl FollowedSource {
    /// A Source without a worker: in a single run, or while it is paused.
    pub(super) fn without_worker(context: Arc<SourceContext>) -> Self {
        let ended = CancellationToken::new();
        ended.cancel();
        Self {
            context,
            commands: None,
            ended,
        }
    }

    /// Stops the worker, and waits until it has ended: tasks in progress are published and committed first.
    pub(super) async fn stop(&self) {
        self.context.stop.cancel();
        self.ended.cancelled().await;
    }
}

/// The Sources that are followed, in the order of the configuration.
pub(super) struct FollowedSources(RwLock<Arc<[FollowedSource]>>);

impl FollowedSources {
    pub(super) fn new(sources: Vec<FollowedSource>) -> Self {
        Self(RwLock::new(sources.into()))
    }

    /// The list as it is now.
    pub(super) fn current(&self) -> Arc<[FollowedSource]> {
        Arc::clone(&self.0.read())
    }

    pub(super) fn replace(&self, sources: Vec<FollowedSource>) {
        *self.0.write() = sources.into();
    }

    pub(super) fn contexts(&self) -> Vec<Arc<SourceContext>> {
        let sources = self.current();
        let contexts = sources.iter().map(|source| Arc::clone(&source.context));
        contexts.collect()
    }

    pub(super) fn find(&self, name: &str) -> Option<FollowedSource> {
        let sources = self.current();
        let found = sources.iter().find(|source| source.context.name() == name);
        found.cloned()
    }

    /// Which sets are followed, and with channels or without.
    pub(super) fn sets(&self) -> Vec<FollowedSets> {
        let sources = self.current();
        followed_sets(sources.iter().map(|source| &source.context.source))
    }
}

/// Which sets the configuration follows, and with channels or without.
pub fn followed_sets<'a>(
    sources: impl IntoIterator<Item = &'a config::Source>,
) -> Vec<FollowedSets> {
    let followed = |source: &config::Source| FollowedSets {
        source: source.name.clone(),
        sets: source.sets.clone(),
        notifications: source.notifications,
    };
    sources.into_iter().map(followed).collect()
}
