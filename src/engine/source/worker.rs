//! The worker of one Source: finds its sets, and runs a worker for each.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use resyncd_core::ErrorClass;
use resyncd_fetch::{Bounds, DiscoveryCache};
use resyncd_mirror::{Mirror, MirrorError, MirrorId};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::discovery::{
    DiscoveredSet, KnownSets, begin_set, find_sets, had_resourcesync, leave_out, note_found,
};
use super::location::record_source_location;
use super::new_sets::NewSets;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::apply::executor::execute_tasks;
use crate::engine::channels::Channels;
use crate::engine::context::SourceContext;
use crate::engine::mirror_opening::{Accepting, open_mirror};
use crate::engine::restarts::{Panicked, Restarts, catch_panic};
use crate::engine::set::notices::note_description;
use crate::engine::set::package_files::PackageFiles;
use crate::engine::set::worker::{Command, SetWorker};
use crate::engine::store_retries::rest_unless_stopped;
use crate::status::StatusError;
use crate::store::{SetId, SetRecord};

/// Sets are discovered at the pace of the polls, but no more often than this.
const SHORTEST_PACE: Duration = Duration::from_secs(60);
/// The same for a site without ResourceSync: many URIs are requested before it is known to have nothing but its sitemaps, and
/// those are polled anyway.
const PACE_WITHOUT_RESOURCESYNC: Duration = Duration::from_secs(3600);
/// The shortest pause between two discoveries that notifications request.
const SHORTEST_REST: Duration = Duration::from_secs(2);
/// The first pause after an error.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause before a mirror is tried again that could not be opened: that requests nothing of anybody.
const LONGEST_MIRROR_PAUSE: Duration = Duration::from_secs(10);

/// That the mirror's folder is still at its path is checked at the pace of the polls, but no more often than this.
const SHORTEST_MIRROR_PACE: Duration = Duration::from_secs(5);
/// The longest time between two of these checks.
const LONGEST_MIRROR_PACE: Duration = Duration::from_secs(600);

/// Why the worker of a Source has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceEnd {
    Stopped,
    /// The mirror's folder is not at its path any more. Everything of the Source was stopped: a new worker opens what is there.
    MirrorMoved,
}

/// Follows one Source until it is stopped.
pub(crate) struct SourceWorker {
    context: Arc<SourceContext>,
    commands: mpsc::Receiver<Command>,
    sets: HashMap<SetId, FollowedSet>,
    discovery_cache: DiscoveryCache,
    new_sets: NewSets,
    failures: u32,
}

struct FollowedSet {
    capability_list: Url,
    /// Whether it is a sitemap that stands alone.
    is_implied: bool,
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

impl FollowedSet {
    /// Aborts its worker.
    async fn end(&mut self) {
        self.task.abort();
        self.ended().await;
    }

    /// Waits until its worker has ended.
    async fn ended(&mut self) {
        if !self.task.is_finished() {
            // A panic was logged by its hook.
            let _ = (&mut self.task).await;
        }
    }
}

/// Follows a set until it is stopped. A worker that panics is replaced after a pause, also one that panics while the set is loaded.
async fn follow_set(
    context: Arc<SourceContext>,
    packages: Arc<PackageFiles>,
    id: SetId,
    loaded: Result<SetWorker, Panicked>,
    mut commands: mpsc::Receiver<Command>,
) {
    let mut restarts = Restarts::of("worker of a set", context.name());
    let mut loaded = loaded.map(Some);
    loop {
        let worked = match loaded {
            Ok(Some(worker)) => worker.run(&mut commands).await,
            Ok(None) => return,
            Err(Panicked) => Err(Panicked),
        };
        let show = |error| {
            context.runtime_status.fail_set(id, error);
        };
        if worked.is_ok() || !restarts.rest(&context.stop, show).await {
            return;
        }
        loaded = load_again(&context, &packages, id).await;
    }
}

/// Distinguishes a panic, also one of the store, from other errors.
async fn panic_apart<T>(
    work: impl Future<Output = Result<T, EngineError>>,
) -> Result<Result<T, EngineError>, Panicked> {
    match catch_panic(work).await? {
        Err(EngineError::Panicked(_)) => Err(Panicked),
        done => Ok(done),
    }
}

/// A worker for a set that another one has followed; `None`: it is not followed any more, or the Source is stopped.
async fn load_again(
    context: &Arc<SourceContext>,
    packages: &Arc<PackageFiles>,
    id: SetId,
) -> Result<Option<SetWorker>, Panicked> {
    let load = async || {
        let sets = context.store.sets(context.name()).await?;
        // Discovery ends a set, and begins it again.
        let Some(record) = sets.into_iter().find(|set| set.id == id) else {
            return Ok(None);
        };
        let worker = SetWorker::new(Arc::clone(context), Arc::clone(packages), record);
        worker.await.map(Some)
    };
    loop {
        match panic_apart(load()).await? {
            Ok(worker) => return Ok(worker),
            Err(error) => {
                context.note_unreadable(&error);
                tracing::error!(code = error.code(), source = context.name(), %error, "database error; set not loaded, retrying");
            }
        }
        if !rest_unless_stopped(&context.stop).await {
            return Ok(None);
        }
    }
}

impl SourceWorker {
    pub(crate) fn new(context: Arc<SourceContext>, commands: mpsc::Receiver<Command>) -> Self {
        Self {
            context,
            commands,
            sets: HashMap::new(),
            discovery_cache: DiscoveryCache::default(),
            new_sets: NewSets::default(),
            failures: 0,
        }
    }

    pub(crate) async fn run(mut self) -> SourceEnd {
        let stop = self.context.stop.clone();
        let Some(mirror) = self.open_mirror(&stop).await else {
            return SourceEnd::Stopped;
        };
        if !self.record_location(mirror.id(), &stop).await {
            return SourceEnd::Stopped;
        }
        let mirror = Arc::new(mirror);
        let packages = PackageFiles::new(Arc::clone(&self.context), &mirror);
        self.begin_counts().await;
        let moved = mirror_moved(Arc::clone(&self.context), Arc::clone(&mirror));
        let executing = execute_tasks(Arc::clone(&self.context), mirror);
        let executor = tokio::spawn(self.context.watched("executor", executing));
        let end = tokio::select! {
            () = stop.cancelled() => SourceEnd::Stopped,
            () = moved => SourceEnd::MirrorMoved,
            () = self.follow_restarting(Arc::new(packages)) => SourceEnd::Stopped,
        };
        stop.cancel();
        for set in self.sets.values_mut() {
            set.ended().await;
        }
        let _ = executor.await;
        end
    }

    /// Begins to count for the sets in the database: their tasks are executed before they are loaded, and also if they can't be.
    async fn begin_counts(&self) {
        let context = &self.context;
        match context.store.sets(context.name()).await {
            Ok(sets) => {
                let wanted = |set: &&SetRecord| context.source.wants_set(&set.capability_list);
                for set in sets.iter().filter(wanted) {
                    let list = set.capability_list.as_str();
                    context.counters.begin_set(set.id.0, list);
                }
            }
            Err(error) => {
                // It is reported where the sets are loaded. Until then nothing is counted for them.
                tracing::debug!(code = error.code(), source = context.name(), %error, "database error; sets not read");
            }
        }
    }

    /// Records where the Source is; while that fails it is retried. Returns whether the Source is to be followed still.
    async fn record_location(&mut self, mirror: &MirrorId, stop: &CancellationToken) -> bool {
        while let Err(error) = record_source_location(&self.context, mirror).await {
            self.fail(&error.into());
            if !rest_unless_stopped(stop).await {
                return false;
            }
        }
        self.failures = 0;
        !stop.is_cancelled()
    }

    /// Opens the mirror; while that fails it is retried, and the other Sources are not affected.
    async fn open_mirror(&mut self, stop: &CancellationToken) -> Option<Mirror> {
        loop {
            match open_mirror(&self.context, Accepting::Known).await {
                Ok(mirror) => {
                    self.context
                        .runtime_status
                        .clear_disk_error(self.context.name(), None);
                    self.context
                        .runtime_status
                        .note_opened_mirror(self.context.name());
                    self.failures = 0;
                    return Some(mirror);
                }
                Err(EngineError::Interrupted) => return None,
                Err(error) => self.fail_to_open_mirror(&error),
            }
            let pause = self.pause().min(LONGEST_MIRROR_PAUSE);
            self.note_next_try(pause);
            stop.run_until_cancelled(tokio::time::sleep(pause)).await?;
        }
    }

    /// Follows the Source. After a panic it goes on after a pause; the workers of the sets are not affected.
    async fn follow_restarting(&mut self, packages: Arc<PackageFiles>) {
        let context = Arc::clone(&self.context);
        let mut restarts = Restarts::of("worker of the Source", context.name());
        let show = |error| context.runtime_status.fail_source(context.name(), error);
        while catch_panic(self.follow(&packages)).await.is_err()
            && restarts.rest(&context.stop, show).await
        {
            self.discovery_cache = DiscoveryCache::default();
        }
    }

    async fn follow(&mut self, packages: &Arc<PackageFiles>) {
        if let Err(error) = self.resume(packages).await {
            self.fail(&error);
        }
        loop {
            let (runtime_status, now) = (&self.context.runtime_status, clock::now().wall);
            runtime_status.change_source(self.context.name(), |facts| {
                facts.last_request_at = Some(now);
            });
            let pause = match self.discover(packages).await {
                Ok(pace) => {
                    self.failures = 0;
                    let (runtime_status, name) =
                        (&self.context.runtime_status, self.context.name());
                    if let Some(since) = runtime_status.recover_source(name) {
                        tracing::info!(source = name, since, "Source can be read again");
                    }
                    self.context.source.poll_interval.max(pace)
                }
                Err(error) => {
                    self.fail(&error);
                    let pause = self.pause();
                    self.note_next_try(pause);
                    pause
                }
            };
            self.rest(pause).await;
        }
    }

    /// Continues with the sets in the database, before the Source is asked for its sets.
    async fn resume(&mut self, packages: &Arc<PackageFiles>) -> Result<(), EngineError> {
        for record in self.context.store.sets(self.context.name()).await? {
            let followed = self.sets.get(&record.id);
            let is_running = followed.is_some_and(|set| !set.task.is_finished());
            if !is_running && self.context.source.wants_set(&record.capability_list) {
                self.start(packages, record).await?;
            }
        }
        Ok(())
    }

    /// Discovers the sets; returns the shortest pause before that is done again.
    async fn discover(&mut self, packages: &Arc<PackageFiles>) -> Result<Duration, EngineError> {
        let context = Arc::clone(&self.context);
        // The workers of these poll their Capability Lists themselves.
        let followed: HashSet<Url> = self
            .sets
            .values()
            .filter(|set| !set.is_implied && !set.task.is_finished())
            .map(|set| set.capability_list.clone())
            .collect();
        let known = KnownSets {
            followed: &followed,
            had_resourcesync: had_resourcesync(&context).await?,
        };
        let mut found = find_sets(
            &context.client,
            &context.source,
            &context.limits,
            known,
            &mut self.discovery_cache,
        )
        .await?;
        // The others take the places of those that end.
        if let (None, Some(advertised)) = (&found.error, &found.advertised) {
            self.end_others(advertised).await?;
        }
        leave_out(&context, &mut found, &mut self.new_sets).await?;
        let running = self.sets.values().filter(|set| !set.task.is_finished());
        let running: HashSet<Url> = running.map(|set| set.capability_list.clone()).collect();
        for set in found.sets.iter().filter(|set| !running.contains(&set.uri)) {
            self.follow_set(packages, set).await?;
        }
        note_found(&context, &found).await?;
        for (uri, oddities) in &found.oddities {
            note_description(&context, self.sets.keys(), uri, oddities);
        }
        if let Some(error) = found.error {
            return Err(error.into());
        }
        Ok(if found.has_resourcesync {
            SHORTEST_PACE
        } else {
            PACE_WITHOUT_RESOURCESYNC
        })
    }

    async fn follow_set(
        &mut self,
        packages: &Arc<PackageFiles>,
        found: &DiscoveredSet,
    ) -> Result<(), EngineError> {
        let record = begin_set(&self.context, found).await?;
        tracing::info!(source = self.context.name(), set = %found.uri, "following a set");
        self.start(packages, record).await
    }

    async fn start(
        &mut self,
        packages: &Arc<PackageFiles>,
        record: SetRecord,
    ) -> Result<(), EngineError> {
        let (id, capability_list) = (record.id, record.capability_list.clone());
        let is_implied = record.is_implied();
        let (commands, receiver) = mpsc::channel(4);
        let (context, packages) = (Arc::clone(&self.context), Arc::clone(packages));
        let loading = SetWorker::new(Arc::clone(&context), Arc::clone(&packages), record);
        // A set that can't be loaded keeps no other one from being followed.
        let loaded = match panic_apart(loading).await {
            Ok(worker) => Ok(worker?),
            Err(Panicked) => Err(Panicked),
        };
        let name = format!("worker of the set {capability_list}");
        let following = follow_set(Arc::clone(&context), packages, id, loaded, receiver);
        let task = tokio::spawn(context.watched(&name, following));
        self.sets.insert(
            id,
            FollowedSet {
                capability_list,
                is_implied,
                commands,
                task,
            },
        );
        Ok(())
    }

    /// Ends the sets that the Source no longer advertises. Their files stay: the absence of a set does not prove the deletion of
    /// its resources.
    async fn end_others(&mut self, current: &[Url]) -> Result<(), EngineError> {
        let current: HashSet<&Url> = current.iter().collect();
        let gone: Vec<SetId> = self
            .sets
            .iter()
            .filter(|(_, set)| !current.contains(&set.capability_list))
            .map(|(&id, _)| id)
            .collect();
        for id in gone {
            let Some(set) = self.sets.get_mut(&id) else {
                continue;
            };
            tracing::warn!(code = "set-ended", source = self.context.name(), set = %set.capability_list,
                "set no longer advertised; it is not followed any more, its files stay");
            set.end().await;
            let mut channels = Channels::new(&self.context, id);
            channels.follow(&[]).await?;
            channels.detach();
            let now = clock::now().wall;
            let (store, name) = (&self.context.store, self.context.name());
            store.end_set(name, id, now).await?;
            self.context.counters.end_set(id.0);
            self.context.runtime_status.end_set(id);
            // Last: after a database error all of this is repeated.
            self.sets.remove(&id);
        }
        Ok(())
    }

    async fn rest(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = rediscovery_due(&self.context.rediscover) => {}
            Some(command) = self.commands.recv() => {
                for set in self.sets.values() {
                    // A full queue has a command already.
                    let _ = set.commands.try_send(command);
                }
            }
        }
    }

    fn fail(&mut self, error: &EngineError) {
        let status_error = self.log_failure(error.code(), error.to_string());
        let (runtime_status, name) = (&self.context.runtime_status, self.context.name());
        self.context.note_unreadable(error);
        runtime_status.fail_source(name, status_error);
    }

    /// Shows when a Source that fails is tried next.
    fn note_next_try(&self, pause: Duration) {
        let (runtime_status, next) = (&self.context.runtime_status, clock::now().plus(pause).wall);
        runtime_status.change_source(self.context.name(), |facts| {
            facts.next_try_at = Some(next);
        });
    }

    /// Records why the mirror can't be opened.
    fn fail_to_open_mirror(&mut self, error: &EngineError) {
        let message = match error {
            EngineError::Mirror(error) => error.of_opening(),
            error => error.to_string(),
        };
        let status_error = self.log_failure(error.code(), message);
        let (runtime_status, name) = (&self.context.runtime_status, self.context.name());
        runtime_status.note_unopened_mirror(name, status_error, error.status_error());
        if let EngineError::Mirror(error) = error
            && error.class() == ErrorClass::Fatal
        {
            let now = clock::now();
            let status_error = StatusError::new(error.code(), error.to_string(), now.wall);
            runtime_status.note_disk_error(name, None, status_error, now.mono);
        }
    }

    /// Counts an error of the Source, and logs it unless it is shown already. Returns it as it is to be shown.
    fn log_failure(&mut self, code: &str, message: String) -> StatusError {
        let name = self.context.name();
        let known = self.context.runtime_status.source(name).error;
        if !known.is_some_and(|known| known.code == code && known.message == message) {
            tracing::warn!(
                code,
                source = name,
                error = message,
                "Source failing; retrying"
            );
        }
        self.failures = self.failures.saturating_add(1);
        StatusError::new(code, message, clock::now().wall)
    }

    fn pause(&self) -> Duration {
        let longest = self.context.source.poll_interval.max(FIRST_PAUSE);
        let bounds = Bounds {
            tries: u32::MAX,
            first: FIRST_PAUSE,
            longest,
        };
        let pause = self.context.client.pause(self.failures, None, &bounds);
        pause.unwrap_or(longest)
    }
}

/// Waits until the folder at the mirror's path is not the one that is open, or has not its id any more. Other errors prove nothing:
/// what is written fails as well, and is reported.
async fn mirror_moved(context: Arc<SourceContext>, mirror: Arc<Mirror>) {
    let pace = context.source.poll_interval;
    let pace = pace.clamp(SHORTEST_MIRROR_PACE, LONGEST_MIRROR_PACE);
    loop {
        tokio::select! {
            () = tokio::time::sleep(pace) => {}
            () = context.mirror_doubted.notified() => {}
        }
        let mirror = Arc::clone(&mirror);
        let checking = tokio::task::spawn_blocking(move || {
            mirror.check_place()?;
            Mirror::check_id(mirror.place(), mirror.id())
        });
        if let Ok(Err(error @ (MirrorError::Moved { .. } | MirrorError::NotMounted { .. }))) =
            checking.await
        {
            tracing::warn!(
                code = error.code(),
                source = context.name(),
                %error,
                "the mirror is opened anew"
            );
            return;
        }
    }
}

/// Waits until something requests a discovery, and a moment has passed since the last one: a hub that sends one framework notification
/// after the other must not have the Source requested without a pause.
async fn rediscovery_due(request: &Notify) {
    tokio::join!(request.notified(), tokio::time::sleep(SHORTEST_REST));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use resyncd_fetch::RequestObserver as _;

    use super::*;
    use crate::engine::runtime_status::SourceState;
    use crate::engine::tests::{Answering, NAME, TestSource};
    use crate::store::Store;

    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);
    /// A set whose loading panics.
    const FATAL: &str = "https://example.org/fatal";

    /// Has the store panic where the set is loaded.
    fn panic_while_loading(store: &Store) {
        store.commit_hook().panic_after(
            "SELECT 1 FROM source_set
             WHERE capability_list = 'https://example.org/fatal' AND read_filter IS NOT NULL",
        );
    }

    #[tokio::test(start_paused = true)]
    async fn discoveries_that_notifications_request_have_a_pause_between_them() {
        for (requested_after, expected) in [(0, 2), (1, 2), (5, 5)] {
            let is_due_after = async |millis| {
                let request = Notify::new();
                let requesting = async {
                    tokio::time::sleep(Duration::from_secs(requested_after)).await;
                    request.notify_one();
                };
                let both = async { tokio::join!(requesting, rediscovery_due(&request)) };
                let limited = tokio::time::timeout(Duration::from_millis(millis), both);
                limited.await.is_ok()
            };
            assert!(
                !is_due_after(expected * 1000 - 10).await,
                "{requested_after}"
            );
            assert!(
                is_due_after(expected * 1000 + 10).await,
                "{requested_after}"
            );
        }
    }

    /// A Source that answers no request, and what receives the URLs that are requested. `panics_first`: whether the first request
    /// panics.
    fn silent_source(panics_first: bool) -> (TestSource, mpsc::UnboundedReceiver<Url>) {
        let url = Url::parse("https://example.org/").unwrap();
        let (requests, requested) = mpsc::unbounded_channel();
        let may_answer = AtomicBool::new(!panics_first);
        let transport = Answering(move |url: &Url| {
            assert!(may_answer.swap(true, Ordering::SeqCst), "a test");
            let _ = requests.send(url.clone());
            None
        });
        let source = TestSource::new(&url, |client| client.with_network(Arc::new(transport)));
        (source, requested)
    }

    #[tokio::test]
    async fn worker_of_a_set_that_panics_is_shown_and_started_again() {
        let (source, mut requested) = silent_source(true);
        let context = Arc::clone(&source.context);
        let packages = Arc::new(PackageFiles::new(Arc::clone(&context), &source.mirror));
        let list = Url::parse("https://example.org/set").unwrap();
        let record = context.store.begin_set(NAME, &list).await.unwrap();
        let id = record.id;
        let worker = SetWorker::new(Arc::clone(&context), Arc::clone(&packages), record);
        let loaded = Ok(worker.await.unwrap());
        let (_commands, receiver) = mpsc::channel(1);
        let following = follow_set(Arc::clone(&context), packages, id, loaded, receiver);
        let following = tokio::spawn(following);
        let requested = tokio::time::timeout(LIMIT, requested.recv()).await;
        assert_eq!(requested.unwrap(), Some(list), "it polls again");
        let error = context.runtime_status.set(id).failing.unwrap();
        assert_eq!(error.code, "worker-panicked");
        context.stop.cancel();
        tokio::time::timeout(LIMIT, following)
            .await
            .unwrap()
            .unwrap();
    }

    /// It blocks no thread, and responds whenever it is woken.
    #[tokio::test]
    async fn worker_of_a_set_stalls_that_waits_for_an_answer_that_never_comes() {
        const LONG: Duration = Duration::from_secs(1800);
        let (source, mut requested) = silent_source(false);
        let context = Arc::clone(&source.context);
        let packages = Arc::new(PackageFiles::new(Arc::clone(&context), &source.mirror));
        let list = Url::parse("https://example.org/set").unwrap();
        let record = context.store.begin_set(NAME, &list).await.unwrap();
        let worker = SetWorker::new(Arc::clone(&context), Arc::clone(&packages), record);
        let mut worker = worker.await.unwrap();
        let working = tokio::spawn(async move {
            worker.work_now().await;
        });
        let requested = tokio::time::timeout(LIMIT, requested.recv()).await;
        assert_eq!(requested.unwrap(), Some(list));
        let (heartbeats, now) = (&context.heartbeats, clock::now().mono);
        let stalled = |after: Duration| heartbeats.stalled(now + after, LONG);
        assert!(stalled(Duration::ZERO).is_empty());
        let expected = format!("worker of the set https://example.org/set (Source {NAME})");
        assert_eq!(stalled(LONG), [expected.as_str()]);
        // A package, or what others do, may take any time.
        let waiting = context.counters.wait();
        assert!(stalled(LONG * 2).is_empty() && stalled(LONG * 4).is_empty());
        drop(waiting);
        let queued = context.counters.queue();
        assert!(stalled(LONG * 5).is_empty());
        context.counters.step();
        assert!(stalled(LONG * 7).is_empty());
        assert_eq!(stalled(LONG * 8), [expected]);
        drop(queued);
        working.abort();
        assert!(working.await.unwrap_err().is_cancelled());
        assert!(stalled(LONG * 20).is_empty());
    }

    /// Runs the worker of a Source until it has requested something, or what is `awaited`.
    async fn run(
        context: &Arc<SourceContext>,
        mut requested: mpsc::UnboundedReceiver<Url>,
        awaited: Option<&Url>,
    ) {
        let (_commands, receiver) = mpsc::channel(1);
        let following = tokio::spawn(SourceWorker::new(Arc::clone(context), receiver).run());
        let requesting = async {
            while let Some(url) = requested.recv().await {
                if awaited.is_none_or(|awaited| *awaited == url) {
                    return;
                }
            }
            panic!("the worker has ended");
        };
        tokio::time::timeout(LIMIT, requesting).await.unwrap();
        context.stop.cancel();
        tokio::time::timeout(LIMIT, following)
            .await
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn worker_of_a_source_that_panics_is_shown_and_goes_on() {
        let (source, requested) = silent_source(true);
        // The worker opens it.
        drop(source.mirror);
        run(&source.context, requested, None).await;
        let facts = source.context.runtime_status.source(NAME);
        assert_eq!(facts.state, SourceState::Failing);
        assert_eq!(facts.error.unwrap().code, "worker-panicked");
    }

    #[tokio::test]
    async fn set_whose_loading_panics_keeps_no_other_from_being_followed() {
        let (source, requested) = silent_source(false);
        drop(source.mirror);
        let store = &source.store;
        panic_while_loading(store);
        let fatal = Url::parse(FATAL).unwrap();
        let fatal = store.begin_set(NAME, &fatal).await.unwrap().id;
        let other = Url::parse("https://example.org/set").unwrap();
        store.begin_set(NAME, &other).await.unwrap();
        run(&source.context, requested, Some(&other)).await;
        let error = source.context.runtime_status.set(fatal).failing.unwrap();
        assert_eq!(error.code, "worker-panicked");
    }

    /// Those that are applied before the sets have been loaded, or of a set that can't be.
    #[tokio::test]
    async fn changes_are_counted_from_the_beginning() {
        let (source, requested) = silent_source(false);
        drop(source.mirror);
        let (store, context) = (&source.store, &source.context);
        let begin = async |set: &str| {
            let set = Url::parse(set).unwrap();
            store.begin_set(NAME, &set).await.unwrap().id.0
        };
        panic_while_loading(store);
        let fatal = begin(FATAL).await;
        let ended = begin("https://example.org/ended").await;
        let now = clock::now().wall;
        let ending = store.end_set(NAME, SetId(ended), now);
        ending.await.unwrap();
        run(context, requested, None).await;
        for (set, expected) in [(fatal, Some(1)), (ended, None)] {
            context
                .counters
                .count_change(set, "notification", "created");
            assert_eq!(context.counters.changes(set), expected);
        }
    }
}
