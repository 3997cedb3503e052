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
use resyncd_core::ResourceUri;
use resyncd_fetch::{Bounds, Client, DiscoveryCache, pause};
use tokio::task::JoinSet;
use url::Url;

use super::apply::temporary_executor::{Awaited, drain, until_stopped, with_executor};
use super::context::SourceContext;
use super::error::EngineError;
use super::lifecycle::Engine;
use super::mirror_opening::{Accepting, open_mirror};
use super::progress::Counts;
use super::restarts::panic_as_error;
use super::set::notices::note_unread_entries;
use super::set::package_files::PackageFiles;
use super::set::worker::SetWorker;
use super::source::discovery::{
    DiscoveredSets, KnownSets, begin_set, find_sets, had_resourcesync, leave_out, note_found,
};
use super::source::location::record_source_location;
use super::source::new_sets::NewSets;
use super::versions::worker::{begin_versions, store_versions};
use crate::clock;
use crate::config::{Baseline, Config, StoreSettings};
use crate::status::{Status, StatusError};
use crate::store::{ScratchFolder, SetRecord, Store, StoreError};

/// The configuration of a run that changes nothing: with the database and the mirrors of a scratch folder. Lists are read where both are
/// offered: they state what the packages of a dump have, and are short.
#[must_use]
pub fn in_scratch_folder(config: &Config, folder: &ScratchFolder) -> Config {
    let mut config = config.clone();
    config.state_dir = folder.state();
    config.store = StoreSettings::default();
    for source in &mut config.sources {
        source.mirror = folder.mirror(&source.name).into();
        if source.baseline == Baseline::Auto {
            source.baseline = Baseline::List;
        }
    }
    config
}

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
        self.run(Applying::Apply).await
    }

    /// Gives empty pages of the database back to the file system, as the daemon does while it runs: the tasks of a first copy leave
    /// many. May be dropped at any time.
    pub async fn shrink_database(&self) {
        loop {
            match self.store.shrink().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::debug!(code = error.code(), %error, "database error; empty pages stay");
                    return;
                }
            }
        }
    }

    /// Has the TimeMaps of a resource read, and stores the versions that they name; nothing else of the Sources is read or changed.
    /// Ends early, and in order, once it is [interrupted](Self::interrupt).
    pub async fn backfill_versions(&self, uri: &ResourceUri) -> Result<(), StatusError> {
        let contexts = self.sources.contexts();
        self.request_time_maps(&contexts, uri).await?;
        for context in contexts.iter().filter(|context| context.versions.is_some()) {
            let mirror = match open_mirror(context, Accepting::Known).await {
                Ok(mirror) => Arc::new(mirror),
                Err(error) => return Err(error.status_error()),
            };
            let Some(versions) = &context.versions else {
                continue;
            };
            begin_versions(context, versions).await;
            let storing = async {
                let draining = drain(context, Awaited::Versions);
                // The result is the stop.
                let _ = context.stop.run_until_cancelled(draining).await;
                context.stop.cancel();
            };
            tokio::join!(store_versions(context, versions, &mirror), storing);
            versions.close();
        }
        Ok(())
    }

    /// As [`catch_up`](Self::catch_up), but leaves the changes that are due in the database, as tasks: no resource is fetched,
    /// and nothing is deleted.
    pub async fn plan(&self) -> Result<Status, StatusError> {
        self.run(Applying::Leave).await
    }

    async fn run(&self, applying: Applying) -> Result<Status, StatusError> {
        // Tasks of their own: what arrives for one of them neither wakes the main thread nor has the others polled.
        let mut sources = JoinSet::new();
        for context in self.sources.contexts() {
            sources.spawn(async move {
                let polled = catch_up(Arc::clone(&context), applying).await;
                context.progress.note_end();
                polled
            });
        }
        let polled: HashSet<String> = sources.join_all().await.into_iter().flatten().collect();
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
        let contexts = self.sources.contexts().into_iter();
        contexts.map(|context| context.progress.counts()).collect()
    }

    /// How many tasks of each Source are pending; 0 where the database can't be read.
    pub async fn pending(&self) -> Vec<u64> {
        let contexts = self.sources.contexts().into_iter();
        let pending = contexts.map(async |context| {
            let pending = self.store.pending(context.name()).await;
            pending.unwrap_or_default()
        });
        join_all(pending).await
    }
}

/// What a run does with the changes that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applying {
    Apply,
    Leave,
}

/// Brings one Source in sync; returns the Capability Lists of the sets that were polled.
async fn catch_up(context: Arc<SourceContext>, applying: Applying) -> Vec<String> {
    let mut polled = Vec::new();
    let mirror = match open_mirror(&context, Accepting::Known).await {
        Ok(mirror) => Arc::new(mirror),
        Err(EngineError::Mirror(error)) => {
            fail(&context, error.code(), error.of_opening());
            return polled;
        }
        Err(error) => {
            fail(&context, error.code(), error.to_string());
            return polled;
        }
    };
    if let Err(error) = record_source_location(&context, mirror.id()).await {
        fail(&context, error.code(), error.to_string());
        return polled;
    }
    let packages = Arc::new(PackageFiles::new(Arc::clone(&context), &mirror));
    // On the heap, as the other large futures: they are moved into the guards.
    let work = Box::pin(async {
        catch_up_sets(&context, &packages, &mut polled).await;
        if applying == Applying::Apply {
            drain(&context, Awaited::TasksAndVersions).await;
        }
    });
    let worked = match applying {
        Applying::Apply => with_executor(&context, mirror, work).await,
        Applying::Leave => {
            context.members.close();
            until_stopped(&context, work).await
        }
    };
    if let Err(error) = worked {
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
}

async fn find_sets_retrying(context: &SourceContext) -> Result<Vec<SetRecord>, EngineError> {
    let mut tries = 0;
    let mut found = loop {
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
    if let (None, Some(advertised)) = (&found.error, &found.advertised) {
        end_others(context, advertised).await?;
    }
    leave_out(context, &mut found, &mut NewSets::default()).await?;
    note_all_sets(context, &found);
    let mut sets = Vec::new();
    for set in &found.sets {
        sets.push(begin_set(context, set).await?);
    }
    note_found(context, &found).await?;
    match found.error {
        Some(error) => fail(context, error.code(), error.to_string()),
        None => drop(context.runtime_status.recover_source(context.name())),
    }
    Ok(sets)
}

/// Notes whether there are no sets but those that were found, and what may name others, unless the configuration names the sets.
fn note_all_sets(context: &SourceContext, found: &DiscoveredSets) {
    let (facts, source) = (&context.read_facts, &context.source);
    if found.error.is_none() && (found.advertised.is_some() || !source.sets.is_empty()) {
        facts.note_all_sets();
    }
    if !source.sets.is_empty() {
        return;
    }
    for (uri, oddities) in &found.oddities {
        note_unread_entries(context, None, uri, oddities);
    }
    if let Some(error) = &found.left_out {
        let error = StatusError::new(error.code(), error.to_string(), clock::now().wall);
        facts.note_unread(None, &source.url, error);
    }
}

/// Ends the sets that the Source no longer advertises. Their files stay, and their subscriptions until a daemon ends them.
async fn end_others(context: &SourceContext, advertised: &[Url]) -> Result<(), EngineError> {
    let (store, name) = (&context.store, context.name());
    for set in store.sets(name).await? {
        if !advertised.contains(&set.capability_list) {
            tracing::warn!(code = "set-ended", source = name, set = %set.capability_list,
                "set no longer advertised; it is not followed any more, its files stay");
            store.end_set(name, set.id, clock::now().wall).await?;
        }
    }
    Ok(())
}

async fn known_sets(context: &SourceContext) -> Vec<SetRecord> {
    let known = context.store.sets(context.name()).await;
    let mut known = known.unwrap_or_default();
    known.retain(|set| context.source.wants_set(&set.capability_list));
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
        context.note_unreadable(&error);
        let (code, source) = (error.code(), context.name());
        tracing::error!(code, source, set = %capability_list, %error, "set can't be brought in sync");
        let facts = &context.read_facts;
        facts.note_unread(Some(id), &capability_list, error.status_error());
        context.runtime_status.fail_set(id, error.status_error());
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
    let facts = &context.read_facts;
    facts.note_unread(None, &context.source.url, status_error.clone());
    context
        .runtime_status
        .fail_source(context.name(), status_error);
}

#[cfg(test)]
mod tests {
    use axum::http;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use reqwest::{Request, Response};
    use resourcesync::{ChangeKind, Interval, SourceTime};
    use resyncd_core::{Gap, GapReason};
    use resyncd_fetch::{FetchError, HttpNetwork};
    use url::Url;

    use super::*;
    use crate::config::Source;
    use crate::engine::tests::{Answering, NAME};
    use crate::store::{
        Change, ChangeBatch, DeletionRules, DocumentEnd, Origin, TaskFailure, TaskResult,
        TasksInProgress,
    };

    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    async fn run_once(
        config: &Config,
        store: &Arc<Store>,
        network: impl HttpNetwork + 'static,
    ) -> Status {
        let client = Client::new(&config.http, crate::clock::now).unwrap();
        let client = client.with_network(Arc::new(network));
        let engine = Engine::once(config, Arc::clone(store), &client);
        let engine = engine.await.unwrap();
        let status = tokio::time::timeout(LIMIT, engine.catch_up()).await;
        status.expect("it ends").unwrap()
    }

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
        let network = Answering(move |url: &Url| {
            assert_ne!(url.as_str(), panics, "a test");
            Some(404)
        });
        let mut status = run_once(&config, &store, network).await;
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

    /// The name of the file of a package.
    const PACKAGE: &str = "0123456789abcdef";

    /// A Source with a set that has a Change List, and one that has a Resource List, each of one resource.
    struct Listing;

    impl HttpNetwork for Listing {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            let list = |md: &str, of: &str, md_of: &str| {
                format!(
                    r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md {md}/><url><loc>https://example.org/{of}</loc><lastmod>2026-01-15T00:00:00Z</lastmod><rs:md {md_of}/></url></urlset>"#
                )
            };
            let (status, body) = match request.url().path() {
                "/set" => {
                    let md = r#"capability="capabilitylist""#;
                    (200, list(md, "changes", r#"capability="changelist""#))
                }
                "/changes" => {
                    let md = r#"capability="changelist" from="2026-01-01T00:00:00Z" until="2026-02-01T00:00:00Z""#;
                    (200, list(md, "listed", r#"change="created""#))
                }
                "/other" => {
                    let md = r#"capability="capabilitylist""#;
                    (200, list(md, "resources", r#"capability="resourcelist""#))
                }
                "/resources" => {
                    let md = r#"capability="resourcelist" at="2026-02-01T00:00:00Z""#;
                    (200, list(md, "listed", r#"type="text/plain""#))
                }
                "/listed" => (200, "bytes".to_owned()),
                _ => (404, String::new()),
            };
            let answer = http::Response::builder().status(status);
            let answer = answer.body(body.into_bytes()).unwrap();
            std::future::ready(Ok(answer.into())).boxed()
        }
    }

    /// As the daemon does: it has tried to fetch it, and the Source has answered that there is none.
    #[tokio::test]
    async fn resource_that_a_hub_has_made_up_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let url = Url::parse("https://example.org/set").unwrap();
        let set = store.begin_set(NAME, &url).await.unwrap().id;
        let uri = ResourceUri::parse("https://example.org/made-up").unwrap();
        let at = "2026-01-10T00:00:00Z".parse().unwrap();
        let made_up = Change {
            kind: ChangeKind::Created,
            unconfirmed: true,
            ..Change::deletion(uri.clone(), Some(at))
        };
        let now = clock::now().wall;
        let announced = store.ingest(ChangeBatch {
            set,
            source: NAME.to_owned(),
            origin: Origin::Notification,
            now,
            begins: true,
            changes: vec![made_up],
            end: None,
        });
        announced.await.unwrap();
        let due = store.due_tasks(NAME, now, 1, TasksInProgress::default());
        let failed = TaskResult::Failed {
            task: due.await.unwrap().tasks.remove(0),
            failure: TaskFailure {
                code: "not-found",
                message: "404".to_owned(),
                retry_at: now + chrono::TimeDelta::hours(1),
                is_given_up: true,
                counts: true,
                answer: Some(crate::store::SourceAnswer::Absent),
                is_in_doubt: false,
                awaits_sets: false,
            },
        };
        store.complete(now, Arc::new(vec![failed])).await.unwrap();
        assert_eq!(store.task_error(NAME, &uri).await.unwrap(), None);

        let source = Source::new(NAME, url, folder.path().join("mirror"));
        let config = Config::new(folder.path(), vec![source]);
        run_once(&config, &store, Listing).await;
        let error = store.task_error(NAME, &uri).await.unwrap();
        assert_eq!(error, None);
        let listed = ResourceUri::parse("https://example.org/listed").unwrap();
        assert!(store.resource(&listed).await.unwrap().is_some());
    }

    /// Runs once with a set that an earlier run has left in a package; returns whether the file of the package is still there.
    async fn has_package_file_after(url: &str, left: Option<DocumentEnd>) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let url = Url::parse(url).unwrap();
        let set = store.begin_set(NAME, &url).await.unwrap().id;
        if left.is_some() {
            let batch = ChangeBatch {
                set,
                source: NAME.to_owned(),
                origin: Origin::ResourceDump,
                now: clock::now().wall,
                begins: true,
                changes: Vec::new(),
                end: left,
            };
            store.ingest(batch).await.unwrap();
        }
        let package = PACKAGE.to_owned();
        let marked = store.mark_package_file_needed(set, package).await;
        marked.unwrap();
        let mirror = folder.path().join("mirror");
        let file = mirror.join(".resyncd/packages").join(PACKAGE);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "a part").unwrap();

        let config = Config::new(folder.path(), vec![Source::new(NAME, url, mirror)]);
        run_once(&config, &store, Listing).await;
        let is_needed = !store.package_files(NAME).await.unwrap().is_empty();
        assert_eq!(file.exists(), is_needed);
        is_needed
    }

    #[tokio::test]
    async fn file_of_a_package_is_removed_unless_a_gap_may_need_it() {
        assert!(!has_package_file_after("https://example.org/other", None).await);
        // The Change List reaches back to the gap, and does not cover it yet.
        let time = |text: &str| text.parse::<SourceTime>().unwrap();
        let (from, until) = ("2026-01-20T00:00:00Z", "2026-02-10T00:00:00Z");
        let gap = Gap {
            interval: Interval::new(time(from), time(until)).unwrap(),
            reason: GapReason::MissingNotification,
            since: clock::now().wall,
        };
        let later = Interval::new(time(until), time("2026-02-20T00:00:00Z"));
        let covered = [Interval::before(time(from)), later.unwrap()];
        let rules = DeletionRules {
            max_share: 1.0,
            of_absence: false,
            holds_all: false,
        };
        let left = DocumentEnd {
            progress: Some((covered.into_iter().collect(), vec![gap])),
            listed: Some(time(from)),
            ..DocumentEnd::new(rules)
        };
        assert!(has_package_file_after("https://example.org/set", Some(left)).await);
    }
}
