//! Executes a Source's tasks: several hosts at once, several resources of a host at once, so that one that fails or is slow does
//! not delay the others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Fuse;
use resyncd_core::{ClockStepDetector, Now};
use resyncd_mirror::Mirror;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::context::ApplyContext;
use super::execute::{TaskOutcome, execute};
use super::publisher::{ExecutedTask, publish_all};
use crate::clock;
use crate::engine::context::SourceContext;
use crate::engine::restarts::{Panicked, Restarts, catch_panic};
use crate::engine::store_retries::STORE_PAUSE;
use crate::engine::versions::worker::store_versions;
use crate::store::{DueTasks, ResourceId, SetRecord, StoreError, Task, TasksInProgress, Wake};

/// How many tasks of a host are queued at most. When half of what was queued has been started, more are read, if there are more.
const AHEAD: usize = 256;
/// While tasks are queued, more that have become due are read no more often: each commit of results reports some.
const REFILL_PAUSE: Duration = Duration::from_millis(10);
/// How many downloads of a Source there are at once over all hosts, unless one host alone may have more; of each host no more than
/// `connections_per_host` count. A Source may name any number of hosts; file descriptors are for all Sources and the listeners.
const AT_ONCE: usize = 64;
/// So many of them are for hosts that have none: where hosts that never answer have several downloads each, a task of another host that
/// becomes due later does not wait for them.
const RESERVED: usize = 16;
/// How many executed tasks may wait to be published.
const FINISHED: usize = 512;

/// Executes the tasks of a Source, and stores its versions, until it is stopped.
pub(crate) async fn execute_tasks(context: Arc<SourceContext>, mirror: Arc<Mirror>) {
    disregard_robots_of_sets(&context).await;
    let Some(versions) = context.versions.clone() else {
        return execute_restarting(context, mirror).await;
    };
    // It opens its folder: a disk that does not answer delays no task.
    let storing = store_versions(&context, &versions, &mirror);
    let executing = execute_restarting(Arc::clone(&context), Arc::clone(&mirror));
    tokio::join!(executing, storing);
    versions.close();
}

/// Has robots.txt disregarded if the known sets of the Source have ResourceSync documents: tasks are executed before these are read.
async fn disregard_robots_of_sets(context: &SourceContext) {
    match context.store.sets(context.name()).await {
        Ok(sets) => {
            let is_followed = |set: &SetRecord| context.source.wants_set(&set.capability_list);
            let mut followed = sets.iter().filter(|set| is_followed(set));
            if followed.any(SetRecord::has_resourcesync) {
                context.client.disregard_robots();
            }
        }
        Err(error) => {
            // It is reported where the sets are loaded, which disregards it as well.
            tracing::debug!(code = error.code(), source = context.name(), %error, "database error; sets not read");
        }
    }
}

/// Executes tasks. An executor that panics is replaced after a pause.
async fn execute_restarting(context: Arc<SourceContext>, mirror: Arc<Mirror>) {
    let mut restarts = Restarts::of("executor", context.name());
    let show = |error| context.runtime_status.note_executor(context.name(), error);
    loop {
        show(None);
        let of_check = Arc::clone(&mirror);
        // It ends with the first file that is found.
        let checking = tokio::task::spawn_blocking(move || of_check.files().next().is_none());
        let was_empty = checking.await.unwrap_or(false);
        let executor = Executor::new(Arc::clone(&context), Arc::clone(&mirror), was_empty);
        let has_panicked = executor.run().await.is_err();
        if !has_panicked
            || !restarts
                .rest(&context.stop, |error| show(Some(error)))
                .await
        {
            return;
        }
    }
}

/// What is left of the tasks that were queued.
#[derive(Clone, Copy, Debug)]
enum Left {
    Nothing,
    /// Less than half of what was queued of a host that may have more.
    Little,
    Enough,
}

/// When the tasks that are due are read next.
#[derive(Clone, Copy, Debug, Default)]
struct Refill {
    /// Whether more may have become due than were read.
    is_stale: bool,
    is_reading: bool,
    /// Whether the database has failed.
    has_failed: bool,
}

impl Refill {
    /// `has_paused`: whether the pause after the last reading is over.
    fn is_due(self, left: Left, has_paused: bool) -> bool {
        !self.is_reading
            && match left {
                _ if self.has_failed => has_paused,
                Left::Nothing => self.is_stale,
                Left::Little => true,
                Left::Enough => self.is_stale && has_paused,
            }
    }

    /// Whether the end of the pause is waited for.
    fn is_waiting(self) -> bool {
        !self.is_reading && (self.is_stale || self.has_failed)
    }
}

/// The places for downloads that are left.
struct Places {
    /// For hosts with fewer downloads than `connections_per_host`.
    connections: usize,
    /// For hosts with as many, or more.
    streams: usize,
}

/// The executor of one Source.
pub(crate) struct Executor {
    context: Arc<ApplyContext>,
    queues: HashMap<String, VecDeque<Task>>,
    /// The hosts that may have more tasks that are due than are queued, and how many of each were queued by the last reading.
    full: HashMap<String, usize>,
    /// Downloads in progress, by host.
    busy: HashMap<String, usize>,
    /// Tasks that are queued or in progress.
    in_progress: HashSet<ResourceId>,
    downloads: JoinSet<(Task, TaskOutcome)>,
    next_due: Option<Instant>,
    /// `None` before the first query: the wall clock may have been set while nothing ran.
    clock_steps: Option<ClockStepDetector>,
}

impl Executor {
    /// `was_empty`: whether the mirror has no files.
    pub(crate) fn new(context: Arc<SourceContext>, mirror: Arc<Mirror>, was_empty: bool) -> Self {
        Self {
            context: Arc::new(ApplyContext::new(context, mirror, was_empty)),
            queues: HashMap::new(),
            full: HashMap::new(),
            busy: HashMap::new(),
            in_progress: HashSet::new(),
            downloads: JoinSet::new(),
            next_due: None,
            clock_steps: None,
        }
    }

    /// Works until it is stopped; what is executed by then is still published. After a panic, too: then the next executor of the
    /// Source begins when this has returned.
    pub(crate) async fn run(mut self) -> Result<(), Panicked> {
        let (finished, queue) = mpsc::channel(FINISHED);
        let (committed_sender, committed) = mpsc::unbounded_channel();
        let publishing = publish_all(Arc::clone(&self.context), queue, committed_sender);
        let publisher = tokio::spawn(self.context.source.watched("publisher", publishing));
        let worked = catch_panic(self.work(&finished, committed)).await;
        self.downloads.shutdown().await;
        drop(finished);
        let published = publisher.await;
        worked.and(published.map_err(|_| Panicked))
    }

    /// Works until it is stopped, or the publisher has ended.
    async fn work(
        &mut self,
        finished: &mpsc::Sender<ExecutedTask>,
        mut committed: mpsc::UnboundedReceiver<Vec<ResourceId>>,
    ) {
        let mut wakes = self.context.source.store.wakes();
        let stop = self.context.source.stop.clone();
        let mut refill = Refill {
            is_stale: true,
            ..Refill::default()
        };
        let pause = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(pause);
        // Downloads begin and end meanwhile.
        let mut reading = Fuse::terminated();
        loop {
            if refill.is_due(self.left(), pause.is_elapsed()) {
                let has_moved = self.move_waits(clock::now()).await;
                // What is reported from here on may be missing in what is read.
                refill = Refill {
                    is_stale: false,
                    is_reading: has_moved,
                    has_failed: !has_moved,
                };
                if has_moved {
                    reading = self.read_due_tasks().boxed().fuse();
                }
                pause.set(tokio::time::sleep(STORE_PAUSE));
            }
            self.dispatch();
            let next_due = self.next_due.unwrap_or_else(|| {
                Instant::from_std(clock::now().mono + Duration::from_secs(3600))
            });
            tokio::select! {
                () = stop.cancelled() => break,
                (began, due) = &mut reading => {
                    let has_read = self.queue(began, due);
                    refill.is_reading = false;
                    refill.has_failed = !has_read;
                    let length = if has_read { REFILL_PAUSE } else { STORE_PAUSE };
                    pause.set(tokio::time::sleep(length));
                }
                Some(done) = self.downloads.join_next() => {
                    if let Ok((task, outcome)) = done {
                        self.free(&task.authority);
                        if finished.send(ExecutedTask { task, outcome }).await.is_err() {
                            break;
                        }
                    }
                }
                ids = committed.recv() => {
                    let Some(ids) = ids else { break };
                    ids.iter().for_each(|id| { self.in_progress.remove(id); });
                    // A newer task of the resource was not returned while this one was in progress.
                    refill.is_stale = true;
                }
                wake = wakes.recv() => refill.is_stale |= match wake {
                    Ok(Wake::Tasks(source)) => source == self.context.name(),
                    Err(RecvError::Lagged(_)) => true,
                    Ok(_) | Err(RecvError::Closed) => false,
                },
                () = tokio::time::sleep_until(next_due) => { self.next_due = None; refill.is_stale = true; }
                () = &mut pause, if refill.is_waiting() => {}
            }
        }
    }

    /// Retry times are stored as dates: when the wall clock was set back they are moved with it. `false` on a database error.
    async fn move_waits(&mut self, now: Now) -> bool {
        let mut trial = self.clock_steps.unwrap_or(ClockStepDetector::since(now));
        let noticed = trial.noticed(now);
        let name = self.context.name();
        if let Some(by) = noticed {
            tracing::warn!(
                code = "clock-set-back",
                source = name,
                by = by.num_seconds(),
                "clock was set back"
            );
        }
        if noticed.is_some() || self.clock_steps.is_none() {
            let by = noticed.unwrap_or_default();
            if let Err(error) = self
                .context
                .source
                .store
                .shift_due_times(name, now.wall, by)
                .await
            {
                self.context.source.store.note_unreadable(name, &error);
                tracing::error!(code = error.code(), source = name, %error, "database error; retry times not moved, retrying");
                return false;
            }
        }
        self.clock_steps = Some(trial);
        true
    }

    /// What is left to be started. It is little as soon as that is so for one host: else no more would be started than are queued until
    /// those that are executed have been published.
    fn left(&self) -> Left {
        let queued = |host: &String| self.queues.get(host).map_or(0, VecDeque::len);
        let mut full = self.full.iter();
        if full.any(|(host, were_queued)| queued(host) < were_queued.div_ceil(2)) {
            Left::Little
        } else if self.queues.is_empty() {
            Left::Nothing
        } else {
            Left::Enough
        }
    }

    /// The tasks that are due, and when they were.
    fn read_due_tasks(&self) -> impl Future<Output = (Now, Result<DueTasks, StoreError>)> + use<> {
        let queues = self.queues.iter();
        let in_progress = TasksInProgress {
            resources: self.in_progress.clone(),
            queued: queues
                .map(|(authority, queue)| (authority.clone(), queue.len()))
                .collect(),
        };
        let (context, now) = (Arc::clone(&self.context), clock::now());
        async move {
            if let Some(wait) = context.source.wait_for_hours(now.wall).await {
                let next_due = Some(now.wall + wait);
                let nothing = DueTasks {
                    next_due,
                    ..DueTasks::default()
                };
                return (now, Ok(nothing));
            }
            let store = &context.source.store;
            let due = store.due_tasks(context.name(), now.wall, AHEAD, in_progress);
            (now, due.await)
        }
    }

    /// Queues the tasks that were due at a time; `false` if they could not be read.
    fn queue(&mut self, at: Now, due: Result<DueTasks, StoreError>) -> bool {
        let due = match due {
            Ok(due) => due,
            Err(error) => {
                let context = &self.context;
                context.source.store.note_unreadable(context.name(), &error);
                tracing::error!(code = error.code(), source = context.name(), %error, "database error; due tasks not read, retrying");
                return false;
            }
        };
        for task in due.tasks {
            self.in_progress.insert(task.resource);
            self.queues
                .entry(task.authority.clone())
                .or_default()
                .push_back(task);
        }
        let queued = |host: &String| self.queues.get(host).map_or(0, VecDeque::len);
        let full = due.full.into_iter();
        self.full = full
            .map(|host| {
                let queued = queued(&host);
                (host, queued)
            })
            .collect();
        self.next_due = due
            .next_due
            .map(|next| Instant::from_std(at.mono + (next - at.wall).to_std().unwrap_or_default()));
        true
    }

    /// Starts as many downloads as there may be.
    fn dispatch(&mut self) {
        while let Some(task) = self.next_task() {
            *self.busy.entry(task.authority.clone()).or_default() += 1;
            let context = Arc::clone(&self.context);
            let executing = async move {
                let outcome = execute(&context, &task).await;
                (task, outcome)
            };
            let watched = self.context.source.watched("task", executing);
            self.downloads.spawn(watched);
        }
        let queued = self.queues.values().map(VecDeque::len).sum();
        self.context.note_queued(queued);
    }

    /// The places that are left. Over HTTP/2 a host may have more downloads than connections. Those have places of their own, as
    /// many over all hosts as one host may need: hosts that occupy them without answering leave the others their connections.
    fn places(&self) -> Places {
        let source = &self.context.source;
        let connections = source.connections_per_host;
        let busy = self.busy.values();
        let beyond: usize = busy.map(|busy| busy.saturating_sub(connections)).sum();
        let within = self.downloads.len().saturating_sub(beyond);
        let most_beyond = source.streams_per_host.saturating_sub(connections);
        Places {
            connections: AT_ONCE.max(connections + RESERVED).saturating_sub(within),
            streams: most_beyond.saturating_sub(beyond),
        }
    }

    /// The next task of the host with the fewest downloads: as long as there are more places than hosts that do not answer, those
    /// do not delay the others.
    fn next_task(&mut self) -> Option<Task> {
        let places = self.places();
        let source = &self.context.source;
        let may_begin = |busy: usize, queue: &VecDeque<Task>| {
            let left = match busy {
                0 => places.connections,
                busy if busy < source.connections_per_host => {
                    places.connections.saturating_sub(RESERVED)
                }
                _ => places.streams,
            };
            let at_once = |task: &Task| source.client.at_once(task.uri.url());
            left > 0 && (busy == 0 || queue.front().is_some_and(|task| busy < at_once(task)))
        };
        let busy = |host: &String| self.busy.get(host).copied().unwrap_or_default();
        let hosts = self.queues.iter();
        let hosts = hosts.map(|(host, queue)| (busy(host), host, queue));
        let (_, host, _) = hosts
            .filter(|&(busy, _, queue)| may_begin(busy, queue))
            .min_by_key(|&(busy, host, _)| (busy, host))?;
        let host = host.clone();
        let queue = self.queues.get_mut(&host)?;
        let task = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&host);
        }
        task
    }

    fn free(&mut self, authority: &str) {
        if let Some(busy) = self.busy.get_mut(authority) {
            *busy = busy.saturating_sub(1);
            if *busy == 0 {
                self.busy.remove(authority);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use reqwest::{Request, Response, Version};
    use resourcesync::ChangeKind;
    use resyncd_core::ResourceUri;
    use resyncd_fetch::{FetchError, HttpNetwork};
    use tokio::sync::oneshot;
    use tracing::Level;
    use url::Url;

    use super::*;
    use crate::engine::tests::{NAME, TestSource};
    use crate::store::{Change, Step};
    use crate::test_log::PanickingLog;

    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    /// Sends that it was asked for something, and does not answer.
    struct Silent(mpsc::UnboundedSender<()>);

    impl HttpNetwork for Silent {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            let _ = self.0.send(());
            std::future::pending().boxed()
        }
    }

    /// Fails every request.
    struct FailingNetwork;

    impl HttpNetwork for FailingNetwork {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            std::future::ready(Err(FetchError::Timeout)).boxed()
        }
    }

    /// The host of a request, and what lets it be answered.
    type HeldRequest = (String, oneshot::Sender<()>);

    /// Sends each request, and answers it over HTTP/2 when it is let.
    struct Holding(mpsc::UnboundedSender<HeldRequest>);

    impl HttpNetwork for Holding {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            async move {
                let (answer, answered) = oneshot::channel();
                let host = request.url().host_str().unwrap().to_owned();
                let _ = self.0.send((host, answer));
                if answered.await.is_err() {
                    return std::future::pending().await;
                }
                let answer = axum::http::Response::builder();
                let answer = answer.version(Version::HTTP_2).body(Vec::new());
                Ok(answer.unwrap().into())
            }
            .boxed()
        }
    }

    /// Waits for the next request, which is one to that host.
    async fn next_of(
        host: &str,
        requested: &mut mpsc::UnboundedReceiver<HeldRequest>,
    ) -> oneshot::Sender<()> {
        let next = tokio::time::timeout(LIMIT, requested.recv()).await;
        let (requested_of, answer) = next.expect("a request").unwrap();
        assert_eq!(requested_of, host);
        answer
    }

    /// So many new resources of a host.
    fn created(host: &str, count: usize) -> Vec<Change> {
        let created = |number| {
            let uri = format!("https://{host}/{number}");
            Change {
                kind: ChangeKind::Created,
                ..Change::deletion(ResourceUri::parse(&uri).unwrap(), None)
            }
        };
        (0..count).map(created).collect()
    }

    #[test]
    fn tasks_are_read_when_few_are_queued_and_after_a_pause_otherwise() {
        let idle = Refill::default();
        let stale = Refill {
            is_stale: true,
            ..idle
        };
        let reading = Refill {
            is_reading: true,
            ..stale
        };
        let failed = Refill {
            has_failed: true,
            ..idle
        };
        // Whether it is due with nothing, little and enough left: at once, and after the pause.
        for (refill, at_once, after_pause) in [
            (idle, [false, true, false], [false, true, false]),
            (stale, [true, true, false], [true, true, true]),
            (reading, [false, false, false], [false, false, false]),
            (failed, [false, false, false], [true, true, true]),
        ] {
            let is_due = |has_paused| {
                [Left::Nothing, Left::Little, Left::Enough]
                    .map(|left| refill.is_due(left, has_paused))
            };
            assert_eq!(is_due(false), at_once, "{refill:?}");
            assert_eq!(is_due(true), after_pause, "{refill:?}");
        }
        // What becomes due only by the pause waits for it.
        let waiting = [idle, stale, reading, failed].map(Refill::is_waiting);
        assert_eq!(waiting, [false, true, false, true]);
    }

    #[tokio::test]
    async fn tasks_are_read_while_those_before_them_are_not_concluded() {
        let url = Url::parse("https://example.org/").unwrap();
        let source = TestSource::new(&url, |client| client.with_network(Arc::new(FailingNetwork)));
        source.announce(created("example.org", 3 * AHEAD)).await;
        let mirror = Arc::clone(&source.mirror);
        let mut executor = Executor::new(Arc::clone(&source.context), mirror, true);
        let (finished, mut queue) = mpsc::channel(3 * AHEAD);
        let (_concluding, committed) = mpsc::unbounded_channel();
        let receiving = async {
            for _ in 0..3 * AHEAD {
                queue.recv().await.unwrap();
            }
        };
        tokio::select! {
            () = executor.work(&finished, committed) => panic!("it was not stopped"),
            received = tokio::time::timeout(LIMIT, receiving) => received.unwrap(),
        }
    }

    #[tokio::test]
    async fn http2_host_gets_as_many_requests_as_its_limit_has_grown_to_and_delays_no_other() {
        let url = Url::parse("https://example.org/").unwrap();
        let (requests, mut requested) = mpsc::unbounded_channel();
        let source = TestSource::new(&url, |client| {
            client.with_network(Arc::new(Holding(requests)))
        });
        let context = &source.context;
        let (connections, most) = (context.connections_per_host, context.streams_per_host);
        assert!(most > AT_ONCE && AT_ONCE >= 3 * connections);
        source.announce(created("example.org", 5 * most)).await;
        let executing = tokio::spawn(execute_tasks(
            Arc::clone(context),
            Arc::clone(&source.mirror),
        ));
        // The first one goes alone. After that so many are held as there may be at once, and then answered together.
        let first = next_of("example.org", &mut requested).await;
        first.send(()).unwrap();
        let mut held = Vec::new();
        while held.len() < most {
            held.push(next_of("example.org", &mut requested).await);
            if held.len() < most && held.len() == context.client.at_once(&url) {
                held.drain(..).for_each(|answer| answer.send(()).unwrap());
            }
        }
        assert_eq!(context.client.at_once(&url), most);

        // A second one grows too, but what exceeds its connections is occupied.
        source.announce(created("example.net", 5 * AT_ONCE)).await;
        let first = next_of("example.net", &mut requested).await;
        first.send(()).unwrap();
        let mut held_too: Vec<oneshot::Sender<()>> = Vec::new();
        for _ in 0..2 {
            for answer in held_too.drain(..) {
                answer.send(()).unwrap();
            }
            while held_too.len() < connections {
                held_too.push(next_of("example.net", &mut requested).await);
            }
        }
        let other = Url::parse("https://example.net/").unwrap();
        assert!(context.client.at_once(&other) > connections);

        // A third one gets its places.
        source.announce(created("example.com", 1)).await;
        let _third = next_of("example.com", &mut requested).await;
        context.stop.cancel();
        tokio::time::timeout(LIMIT, executing)
            .await
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn silent_hosts_leave_places_for_a_host_that_is_named_later() {
        let url = Url::parse("https://example.org/").unwrap();
        let (requests, mut requested) = mpsc::unbounded_channel();
        let source = TestSource::new(&url, |client| {
            client.with_network(Arc::new(Holding(requests)))
        });
        let context = &source.context;
        let connections = context.connections_per_host;
        let silent = AT_ONCE.div_ceil(connections);
        let silent = (0..silent).map(|number| format!("silent-{number}.example"));
        let silent: Vec<String> = silent.collect();
        let of_silent = silent.iter().flat_map(|host| created(host, connections));
        source.announce(of_silent.collect()).await;
        let executing = tokio::spawn(execute_tasks(
            Arc::clone(context),
            Arc::clone(&source.mirror),
        ));
        let mut held = Vec::new();
        for host in &silent {
            held.push(next_of(host, &mut requested).await);
        }
        source.announce(created("later.example", 1)).await;
        // The first request of a host goes alone for a moment only.
        loop {
            let next = tokio::time::timeout(LIMIT, requested.recv()).await;
            let (host, answer) = next.expect("a request").unwrap();
            held.push(answer);
            if host == "later.example" {
                break;
            }
        }
        assert!(held.len() <= AT_ONCE - RESERVED + 1);
        context.stop.cancel();
        tokio::time::timeout(LIMIT, executing)
            .await
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn executor_that_panics_is_started_again() {
        let url = Url::parse("https://example.org/").unwrap();
        let (requests, mut requested) = mpsc::unbounded_channel();
        let source = TestSource::new(&url, |client| {
            client.with_network(Arc::new(Silent(requests)))
        });
        let context = &source.context;
        let uri = "https://example.org/resource";
        let created = Change {
            kind: ChangeKind::Created,
            ..Change::deletion(ResourceUri::parse(uri).unwrap(), None)
        };
        source.announce(vec![created]).await;
        // It logs that the tasks can't be read, the first time.
        let log = PanickingLog::of("resyncd::engine::apply::executor", Level::ERROR);
        let may_read = AtomicBool::new(false);
        source.store.commit_hook().panic_at(move |step| {
            let is_reading = matches!(step, Step::Query(name) if name.contains("::due_tasks"));
            is_reading && !may_read.swap(true, Ordering::SeqCst)
        });
        let executing = tokio::spawn(execute_tasks(
            Arc::clone(context),
            Arc::clone(&source.mirror),
        ));
        let requested = tokio::time::timeout(LIMIT, requested.recv()).await;
        assert_eq!(requested.unwrap(), Some(()), "the task is executed");
        // The request is never answered.
        let (heartbeats, now) = (&context.heartbeats, clock::now().mono);
        assert!(
            heartbeats
                .running()
                .contains(&format!("task (Source {NAME})"))
        );
        assert!(heartbeats.stalled(now, LIMIT).is_empty());
        let stalled = heartbeats.stalled(now + LIMIT, LIMIT);
        assert_eq!(stalled, [format!("download of {uri} (Source {NAME})")]);
        assert_eq!(log.panics(), 1);
        let error = context.runtime_status.source(NAME).executor_error;
        assert!(error.is_none(), "it works again");
        context.stop.cancel();
        tokio::time::timeout(LIMIT, executing)
            .await
            .unwrap()
            .unwrap();
    }
}
