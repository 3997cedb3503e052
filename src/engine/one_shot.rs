//! A single run: every set is polled, its inbox is processed, its tasks are executed, and then the run ends.
//!
//! Invariants: the workers are the daemon's, but they subscribe to nothing, and leave existing subscriptions as they are; a run
//! ends although a Source fails.
//!
//! Must not know documents, notifications or files: the workers do.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::apply::session::{drain, with_executor};
use super::context::SourceContext;
use super::error::EngineError;
use super::lifecycle::Engine;
use super::progress::Counts;
use super::runtime_status::SourceState;
use super::set::package_files::PackageFiles;
use super::set::worker::SetWorker;
use super::source::discovery::{
    KnownSets, begin_set, find_sets, had_resourcesync, is_wanted, note_found,
};
use crate::clock;
use crate::config::Config;
use crate::fetch::{Bounds, Client, DiscoveryCache, pause};
use crate::mirror::Mirror;
use crate::status::{Status, StatusError};
use crate::store::{SetRecord, Store, StoreError};

/// How often the discovery of the sets is tried.
const TRIES: Bounds = Bounds {
    tries: 3,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(10),
};

impl Engine {
    /// Prepares a single run. Nothing is followed before [`catch_up`](Self::catch_up). Fails if the database can't be written.
    pub async fn once(
        config: &Config,
        store: Arc<Store>,
        client: &Client,
    ) -> Result<Arc<Self>, StoreError> {
        store.limit_resources(config.limits.resources).await?;
        Ok(Arc::new(Self::new(config, store, client, false)))
    }

    /// Brings the Sources in sync as far as possible, and returns the status of their sets. Ends early, and in order, once it is
    /// [interrupted](Self::interrupt). Fails if the database can't be read.
    pub async fn catch_up(&self) -> Result<Status, StatusError> {
        let polled = self
            .sources
            .iter()
            .map(|source| catch_up(Arc::clone(&source.context)));
        let polled: HashSet<String> = join_all(polled).await.into_iter().flatten().collect();
        let status = self.status_of_sources().await;
        let mut status = status.map_err(|error| error.status_error())?;
        for source in &mut status.sources {
            // Sets that the Source no longer has don't count; the daemon ends them.
            source
                .sets
                .retain(|set| polled.contains(&set.capability_list));
        }
        Ok(status)
    }

    /// Makes [`catch_up`](Self::catch_up) finish what is in progress and end.
    pub fn interrupt(&self) {
        self.stop.cancel();
    }

    /// Waits until the database is found to be corrupt: then the run is pointless.
    pub async fn damaged(&self) {
        self.store.damaged().await;
    }

    /// The progress of each Source, in the order of the configuration.
    pub fn counts(&self) -> Vec<Counts> {
        let followed = self.sources.iter();
        followed
            .map(|source| source.context.progress.counts())
            .collect()
    }

    /// How many tasks of each Source are pending; 0 where the database can't be read.
    pub async fn pending(&self) -> Vec<u64> {
        let pending = self.sources.iter().map(async |source| {
            let pending = self.store.pending(source.context.name()).await;
            pending.unwrap_or_default()
        });
        join_all(pending).await
    }
}

/// Brings one Source in sync; returns the Capability Lists of the sets that were polled.
async fn catch_up(context: Arc<SourceContext>) -> Vec<String> {
    let mut polled = Vec::new();
    let root = context.source.mirror.clone();
    let opening = tokio::task::spawn_blocking(move || Mirror::open(&root)).await;
    let mirror = match opening {
        Ok(Ok(mirror)) => Arc::new(mirror),
        Ok(Err(error)) => {
            fail(&context, error.code(), error.to_string());
            return polled;
        }
        Err(error) => {
            let error = EngineError::of_join(&error, "the mirror");
            fail(&context, error.code(), error.to_string());
            return polled;
        }
    };
    let packages = Arc::new(PackageFiles::new(Arc::clone(&context), &mirror));
    let work = catch_up_sets(&context, &packages, &mut polled);
    with_executor(&context, mirror, work).await;
    polled
}

async fn catch_up_sets(
    context: &Arc<SourceContext>,
    packages: &Arc<PackageFiles>,
    polled: &mut Vec<String>,
) {
    let sets = match find_sets_retrying(context).await {
        Ok(sets) => sets,
        Err(error) => {
            fail(context, error.code(), error.to_string());
            // The sets in the database can be polled without the entry point.
            known_sets(context).await
        }
    };
    polled.extend(sets.iter().map(|set| set.capability_list.to_string()));
    join_all(
        sets.into_iter()
            .map(|set| catch_up_set(context, packages, set)),
    )
    .await;
    drain(context).await;
}

async fn find_sets_retrying(context: &SourceContext) -> Result<Vec<SetRecord>, EngineError> {
    let mut tries = 0;
    let found = loop {
        let known = KnownSets {
            followed: &HashSet::new(),
            had_resourcesync: had_resourcesync(context).await?,
        };
        let (limits, mut cache) = (&context.limits, DiscoveryCache::default());
        let found = find_sets(&context.client, &context.source, limits, known, &mut cache).await;
        let error = match found {
            Ok(found) => break found,
            Err(error) => error,
        };
        tries += 1;
        let Some(pause) = pause(tries, None, &TRIES) else {
            return Err(error);
        };
        tokio::time::sleep(pause).await;
    };
    let mut sets = Vec::new();
    for set in &found.sets {
        sets.push(begin_set(context, set).await?);
    }
    note_found(context, &found).await?;
    match found.error {
        Some(error) => fail(context, error.code(), error.to_string()),
        None => context
            .runtime_status
            .note_source(context.name(), SourceState::Ok, None),
    }
    Ok(sets)
}

async fn known_sets(context: &SourceContext) -> Vec<SetRecord> {
    let known = context.store.sets(context.name()).await;
    let mut known = known.unwrap_or_default();
    known.retain(|set| is_wanted(&context.source, &set.capability_list));
    known
}

async fn catch_up_set(
    context: &Arc<SourceContext>,
    packages: &Arc<PackageFiles>,
    record: SetRecord,
) {
    let id = record.id;
    let worker = SetWorker::new(Arc::clone(context), Arc::clone(packages), record);
    match worker.await {
        Ok(worker) => worker.catch_up().await,
        Err(error) => context
            .runtime_status
            .note_set(id, |facts| facts.failing = Some(error.status_error())),
    }
}

fn fail(context: &SourceContext, code: &str, message: String) {
    tracing::warn!(
        code,
        source = context.name(),
        error = message,
        "Source can't be brought in sync"
    );
    let status_error = StatusError::new(code, message, clock::now().wall);
    context
        .runtime_status
        .note_source(context.name(), SourceState::Failing, Some(status_error));
}
