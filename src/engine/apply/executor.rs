//! Executes a Source's tasks: several hosts at once, several resources of a host at once, so that one that fails or is slow does
//! not delay the others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::context::ApplyContext;
use super::execute::{TaskOutcome, execute};
use super::publisher::{ExecutedTask, publish_all};
use crate::clock::{self, ClockStepDetector, Now};
use crate::engine::context::SourceContext;
use crate::engine::restarts::{Panicked, Restarts, catch_panic};
use crate::mirror::Mirror;
use crate::store::{ResourceId, Task, TasksInProgress, Wake};

/// How many tasks of a host are queued.
const AHEAD: usize = 64;
/// How many downloads of a Source there are at once over all hosts, unless one host alone may have more. A Source may name any
/// number of hosts; file descriptors are for all Sources and the listeners.
const AT_ONCE: usize = 64;
/// How many executed tasks may wait to be published.
const FINISHED: usize = 256;
/// The pause after a database error.
const STORE_PAUSE: Duration = Duration::from_secs(2);

/// Executes the tasks of a Source until it is stopped. An executor that panics is replaced after a pause.
pub(in crate::engine) async fn execute_tasks(context: Arc<SourceContext>, mirror: Arc<Mirror>) {
    let mut restarts = Restarts::of("executor", context.name());
    let runtime_status = &context.runtime_status;
    loop {
        let executor = Executor::new(Arc::clone(&context), Arc::clone(&mirror));
        if executor.run().await.is_ok() {
            return;
        }
        let (error, pause) = restarts.after_panic();
        runtime_status.note_executor(context.name(), Some(error));
        tokio::select! {
            () = context.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        runtime_status.note_executor(context.name(), None);
    }
}

/// The executor of one Source.
pub(in crate::engine) struct Executor {
    context: Arc<ApplyContext>,
    queues: HashMap<String, VecDeque<Task>>,
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
    pub(in crate::engine) fn new(context: Arc<SourceContext>, mirror: Arc<Mirror>) -> Self {
        Self {
            context: Arc::new(ApplyContext::new(context, mirror)),
            queues: HashMap::new(),
            busy: HashMap::new(),
            in_progress: HashSet::new(),
            downloads: JoinSet::new(),
            next_due: None,
            clock_steps: None,
        }
    }

    /// Works until it is stopped; what is executed by then is still published. After a panic, too: then the next executor of the
    /// Source begins when this has returned.
    pub(in crate::engine) async fn run(mut self) -> Result<(), Panicked> {
        let (finished, queue) = mpsc::channel(FINISHED);
        let (concluded_sender, concluded) = mpsc::unbounded_channel();
        let publishing = publish_all(Arc::clone(&self.context), queue, concluded_sender);
        let publisher = tokio::spawn(publishing);
        let worked = catch_panic(self.work(&finished, concluded)).await;
        self.downloads.shutdown().await;
        drop(finished);
        let published = publisher.await;
        worked.and(published.map_err(|_| Panicked))
    }

    /// Works until it is stopped, or the publisher has ended.
    async fn work(
        &mut self,
        finished: &mpsc::Sender<ExecutedTask>,
        mut concluded: mpsc::UnboundedReceiver<Vec<ResourceId>>,
    ) {
        let mut wakes = self.context.source.store.wakes();
        let stop = self.context.source.stop.clone();
        let mut is_stale = true;
        loop {
            if is_stale {
                is_stale = !self.refill().await;
            }
            self.dispatch();
            let next_due = self.next_due.unwrap_or_else(|| {
                Instant::from_std(clock::now().mono + Duration::from_secs(3600))
            });
            let pause = Instant::from_std(clock::now().mono + STORE_PAUSE);
            tokio::select! {
                () = stop.cancelled() => break,
                Some(done) = self.downloads.join_next() => {
                    if let Ok((task, outcome)) = done {
                        self.free(&task.authority);
                        if finished.send(ExecutedTask { task, outcome }).await.is_err() {
                            break;
                        }
                    }
                }
                ids = concluded.recv() => {
                    let Some(ids) = ids else { break };
                    ids.iter().for_each(|id| { self.in_progress.remove(id); });
                    // A newer task of the resource was not returned while this one was in progress.
                    is_stale = true;
                }
                wake = wakes.recv() => is_stale |= match wake {
                    Ok(Wake::Tasks(source)) => source == self.context.name(),
                    Err(RecvError::Lagged(_)) => true,
                    Ok(_) | Err(RecvError::Closed) => false,
                },
                () = tokio::time::sleep_until(next_due) => { self.next_due = None; is_stale = true; }
                () = tokio::time::sleep_until(pause), if is_stale => {}
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
                tracing::error!(code = error.code(), source = name, %error, "retry times can't be moved; retrying");
                return false;
            }
        }
        self.clock_steps = Some(trial);
        true
    }

    /// Queues the tasks that are due; `false` on a database error.
    async fn refill(&mut self) -> bool {
        let now = clock::now();
        if !self.move_waits(now).await {
            return false;
        }
        let name = self.context.name();
        let queued = self
            .queues
            .iter()
            .map(|(authority, queue)| (authority.clone(), queue.len()))
            .collect();
        let in_progress = TasksInProgress {
            resources: self.in_progress.clone(),
            queued,
        };
        match self
            .context
            .source
            .store
            .due_tasks(name, now.wall, AHEAD, in_progress)
            .await
        {
            Ok((due, next)) => {
                for task in due {
                    self.in_progress.insert(task.resource);
                    self.queues
                        .entry(task.authority.clone())
                        .or_default()
                        .push_back(task);
                }
                self.next_due = next.map(|next| {
                    Instant::from_std(now.mono + (next - now.wall).to_std().unwrap_or_default())
                });
                true
            }
            Err(error) => {
                tracing::error!(code = error.code(), source = name, %error, "due tasks can't be read; retrying");
                false
            }
        }
    }

    /// Starts as many downloads as there may be.
    fn dispatch(&mut self) {
        let most = AT_ONCE.max(self.context.source.connections_per_host);
        while self.downloads.len() < most
            && let Some(task) = self.next_task()
        {
            #[cfg(test)]
            tests::panic_once(&task);
            *self.busy.entry(task.authority.clone()).or_default() += 1;
            let context = Arc::clone(&self.context);
            self.downloads.spawn(async move {
                let outcome = execute(&context, &task).await;
                (task, outcome)
            });
        }
    }

    /// The next task of the host with the fewest downloads: as long as there are more places than hosts that do not answer, those
    /// do not delay the others.
    fn next_task(&mut self) -> Option<Task> {
        let busy = |host: &String| self.busy.get(host).copied().unwrap_or_default();
        let hosts = self.queues.keys().map(|host| (busy(host), host));
        let (_, host) = hosts
            .filter(|&(busy, _)| busy < self.context.source.connections_per_host)
            .min()?;
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
    use reqwest::{Request, Response};
    use url::Url;

    use super::*;
    use crate::engine::test_source::{NAME, TestSource};
    use crate::fetch::FetchError;
    use crate::fetch::transport::Transport;
    use crate::protocol::{ChangeKind, ResourceUri};
    use crate::store::{Change, ChangeBatch, Origin};

    /// The executor panics the first time that it begins a task of this resource.
    const RESOURCE: &str = "https://example.org/panic-of-an-executor";
    static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    pub(super) fn panic_once(task: &Task) {
        let is_due = task.uri.as_str() == RESOURCE && !HAS_PANICKED.swap(true, Ordering::SeqCst);
        assert!(!is_due, "a test");
    }

    /// Sends that it was asked for something, and does not answer.
    struct Silent(mpsc::UnboundedSender<()>);

    impl Transport for Silent {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            let _ = self.0.send(());
            std::future::pending().boxed()
        }
    }

    #[tokio::test]
    async fn executor_that_panics_is_started_again() {
        let url = Url::parse("https://example.org/").unwrap();
        let (requests, mut requested) = mpsc::unbounded_channel();
        let source = TestSource::new(&url, |client| {
            client.with_transport(Arc::new(Silent(requests)))
        });
        let (store, context) = (&source.store, &source.context);
        let set = store.begin_set(NAME, &url).await.unwrap().id;
        let created = Change {
            kind: ChangeKind::Created,
            ..Change::deletion(ResourceUri::parse(RESOURCE).unwrap(), None)
        };
        let applied = store.apply(ChangeBatch {
            set,
            source: NAME.to_owned(),
            origin: Origin::Notification,
            now: clock::now().wall,
            begins: true,
            changes: vec![created],
            end: None,
        });
        assert_eq!(applied.await.unwrap().tasks, 1);
        let executing = tokio::spawn(execute_tasks(
            Arc::clone(context),
            Arc::clone(&source.mirror),
        ));
        let requested = tokio::time::timeout(LIMIT, requested.recv()).await;
        assert_eq!(requested.unwrap(), Some(()), "the task is executed");
        assert!(HAS_PANICKED.load(Ordering::SeqCst));
        let error = context.runtime_status.source(NAME).executor_error;
        assert!(error.is_none(), "it works again");
        context.stop.cancel();
        tokio::time::timeout(LIMIT, executing)
            .await
            .unwrap()
            .unwrap();
    }
}
