//! Works off a Source's tasks: several hosts at once, several resources of a host at once, and no resource's trouble holds
//! up the others.

mod adoption;
mod candidates;
pub(super) mod download;
pub(super) mod publisher;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::context::SourceContext;
use crate::clock::{self, ClockStepDetector, Now};
use crate::mirror::Mirror;
use crate::store::{ResourceId, Taken, Task, Wake};
use download::{TaskOutcome, execute};
use publisher::{Finished, publish_all};

/// How many tasks of a host are taken from the database at once.
const AHEAD: usize = 64;
/// How many downloads of a Source there are at once over all hosts, unless one host alone may have more. A Source may name any
/// number of hosts; file descriptors are for all Sources and the listeners.
const AT_ONCE: usize = 64;
/// How many finished downloads may wait to be published.
const FINISHED: usize = 256;
/// The pause after the database refused to tell what is due.
const STORE_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Applier {
    context: Arc<SourceContext>,
    mirror: Arc<Mirror>,
    queues: HashMap<String, VecDeque<Task>>,
    /// Requests under way, for each host.
    busy: HashMap<String, usize>,
    /// Tasks that were taken from the database and are not concluded.
    taken: HashSet<ResourceId>,
    downloads: JoinSet<(Task, TaskOutcome)>,
    next_due: Option<Instant>,
    /// `None` before the first look: the wall clock may have been set while nothing ran.
    clock_steps: Option<ClockStepDetector>,
}

impl Applier {
    pub(super) fn new(context: Arc<SourceContext>, mirror: Arc<Mirror>) -> Self {
        // There is one applier a Source.
        let _ = context.mirror.set(Arc::downgrade(&mirror));
        Self {
            context,
            mirror,
            queues: HashMap::new(),
            busy: HashMap::new(),
            taken: HashSet::new(),
            downloads: JoinSet::new(),
            next_due: None,
            clock_steps: None,
        }
    }

    /// Works until told to stop; what is finished by then is still published.
    pub(super) async fn run(mut self) {
        let mut wakes = self.context.store.wakes();
        let (finished, queue) = mpsc::channel(FINISHED);
        let (concluded_sender, mut concluded) = mpsc::unbounded_channel();
        let publishing = publish_all(
            Arc::clone(&self.context),
            Arc::clone(&self.mirror),
            queue,
            concluded_sender,
        );
        let publisher = tokio::spawn(publishing);
        let stop = self.context.stop.clone();
        let mut look = true;
        loop {
            if look {
                look = !self.refill().await;
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
                        // The publisher ends only after this side has gone.
                        let _ = finished.send(Finished { task, outcome }).await;
                    }
                }
                Some(ids) = concluded.recv() => {
                    let ids: Vec<ResourceId> = ids;
                    ids.iter().for_each(|id| { self.taken.remove(id); });
                    // A change that came meanwhile was told while its resource still counted as taken.
                    look = true;
                }
                wake = wakes.recv() => look |= match wake {
                    Ok(Wake::Tasks(source)) => source == self.context.name(),
                    Err(RecvError::Lagged(_)) => true,
                    Ok(_) | Err(RecvError::Closed) => false,
                },
                () = tokio::time::sleep_until(next_due) => { self.next_due = None; look = true; }
                () = tokio::time::sleep_until(pause), if look => {}
            }
        }
        self.downloads.shutdown().await;
        drop(finished);
        if let Err(error) = publisher.await {
            tracing::error!(code = "publisher", source = self.context.name(), %error, "the publisher ended badly");
        }
    }

    /// Waits are kept as dates: where the wall clock was set back, they move with it. `false` if that failed and must be tried again.
    async fn mend_waits(&mut self, now: Now) -> bool {
        let mut trial = self.clock_steps.unwrap_or(ClockStepDetector::since(now));
        let noticed = trial.noticed(now);
        let name = self.context.name();
        if let Some(by) = noticed {
            tracing::warn!(
                code = "clock-set-back",
                source = name,
                by = by.num_seconds(),
                "the clock was set back"
            );
        }
        if noticed.is_some() || self.clock_steps.is_none() {
            let by = noticed.unwrap_or_default();
            if let Err(error) = self.context.store.mend_waits(name, now.wall, by).await {
                tracing::error!(code = error.code(), source = name, %error, "the waits of tasks can't be mended");
                return false;
            }
        }
        self.clock_steps = Some(trial);
        true
    }

    /// Takes what is due from the database; `false` if that failed and must be tried again.
    async fn refill(&mut self) -> bool {
        let now = clock::now();
        if !self.mend_waits(now).await {
            return false;
        }
        let name = self.context.name();
        let waiting = self
            .queues
            .iter()
            .map(|(authority, queue)| (authority.clone(), queue.len()))
            .collect();
        let taken = Taken {
            under_way: self.taken.clone(),
            waiting,
        };
        match self
            .context
            .store
            .due_tasks(name, now.wall, AHEAD, taken)
            .await
        {
            Ok((due, next)) => {
                for task in due {
                    self.taken.insert(task.resource);
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
                tracing::error!(code = error.code(), source = name, %error, "the tasks can't be read");
                false
            }
        }
    }

    /// Starts as many downloads as there may be.
    fn dispatch(&mut self) {
        let most = AT_ONCE.max(self.context.connections_per_host);
        while self.downloads.len() < most
            && let Some(task) = self.next_task()
        {
            *self.busy.entry(task.authority.clone()).or_default() += 1;
            let (context, mirror) = (Arc::clone(&self.context), Arc::clone(&self.mirror));
            self.downloads.spawn(async move {
                let outcome = execute(&context, &mirror, &task).await;
                (task, outcome)
            });
        }
    }

    /// The next task of the host that has the fewest downloads: who does not answer keeps no place from who does, as long as
    /// there are more places than such hosts.
    fn next_task(&mut self) -> Option<Task> {
        let busy = |host: &String| self.busy.get(host).copied().unwrap_or_default();
        let hosts = self.queues.keys().map(|host| (busy(host), host));
        let (_, host) = hosts
            .filter(|&(busy, _)| busy < self.context.connections_per_host)
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
