//! A single run: every set is polled, its inbox is processed, its tasks are executed, and then the run ends.
//!
//! Invariants: the workers are the daemon's, but they subscribe to nothing, and leave existing subscriptions as they are; a run
//! ends although a Source fails. A worker that panics is not started again: the next run begins where this one ends.
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
use super::restarts::panic_as_error;
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
        let status = Box::pin(self.status_of_sources());
        let status = panic_as_error("the status", status).await;
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
    // On the heap, as the other large futures: they are moved into the guards.
    let work = Box::pin(catch_up_sets(&context, &packages, &mut polled));
    if let Err(error) = with_executor(&context, mirror, work).await {
        fail(&context, error.code(), error.to_string());
    }
    polled
}

async fn catch_up_sets(
    context: &Arc<SourceContext>,
    packages: &Arc<PackageFiles>,
    polled: &mut Vec<String>,
) {
    let finding = Box::pin(find_sets_retrying(context));
    let sets = match panic_as_error(&context.source.url, finding).await {
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
    let (id, capability_list) = (record.id, record.capability_list.clone());
    let catching_up = Box::pin(async {
        let worker = SetWorker::new(Arc::clone(context), Arc::clone(packages), record);
        worker.await?.catch_up().await;
        Ok(())
    });
    if let Err(error) = panic_as_error(&capability_list, catching_up).await {
        let (code, source) = (error.code(), context.name());
        tracing::error!(code, source, set = %capability_list, %error, "set can't be brought in sync");
        context
            .runtime_status
            .note_set(id, |facts| facts.failing = Some(error.status_error()));
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

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;
    use crate::config::Source;
    use crate::engine::test_source::{Answering, NAME};

    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    /// Runs once with two sets in the database, where the request for this URL panics and others are answered with 404. Returns the
    /// error of the Source, and those of the sets.
    async fn errors(panics: &'static str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let url = Url::parse("https://example.org/source").unwrap();
        for set in ["https://example.org/1", "https://example.org/2"] {
            let set = Url::parse(set).unwrap();
            store.begin_set(NAME, &set).await.unwrap();
        }
        let source = Source::new(NAME, url, folder.path().join("mirror"));
        let config = Config::new(folder.path(), vec![source]);
        let client = Client::new(&config.http).unwrap();
        let client = client.with_transport(Arc::new(Answering(move |url: &Url| {
            assert_ne!(url.as_str(), panics, "a test");
            Some(404)
        })));
        let engine = Engine::once(&config, Arc::clone(&store), &client);
        let engine = engine.await.unwrap();
        let status = tokio::time::timeout(LIMIT, engine.catch_up()).await;
        let mut status = status.expect("it ends").unwrap();
        let source = status.sources.remove(0);
        assert_eq!(source.state, "failing");
        let sets = source.sets.into_iter().map(|set| set.error);
        let errors = std::iter::once(source.error).chain(sets);
        errors.map(|error| error.unwrap().code).collect()
    }

    #[tokio::test]
    async fn panic_in_a_single_run_is_an_error_of_what_it_concerns() {
        let absent = "not-found";
        let source = errors("https://example.org/source").await;
        assert_eq!(source, ["panicked", absent, absent]);
        let set = errors("https://example.org/1").await;
        assert_eq!(set[1..], ["panicked", absent]);
    }
}
