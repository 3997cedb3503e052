//! Finds workers that no longer respond.
//!
//! A worker waits most of the time: for answers, for a time, for other workers. However long that takes, it is no fault of the
//! daemon. But whenever the runtime wakes it, it must come back: a worker that blocks, or goes round and round, keeps a thread of the
//! runtime that all Sources share. So every worker is woken from time to time, and answers as soon as it is polled.
//!
//! A worker may also wait for something that never comes, and block no thread. So one that works on something states it
//! ([`Heartbeats::work`]), with a number that changes with each step: answers, also errors, bytes that are received, batches that are
//! written. What has taken no step for long stalls. What waits for people, packages or disks is none of that.
//!
//! Invariant: a worker that waits is woken by nothing but a call of [`Heartbeats::all`]; at rest this costs nothing.
//!
//! Must not know what a worker does, nor what follows from one that does not respond.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The heartbeats of all workers.
#[derive(Clone, Debug, Default)]
pub(super) struct Heartbeats(Arc<Mutex<Workers>>);

#[derive(Debug, Default)]
struct Workers {
    next: u64,
    running: BTreeMap<u64, Arc<WatchedWorker>>,
    working: BTreeMap<u64, WorkInHand>,
}

/// What a worker works on.
struct WorkInHand {
    name: String,
    steps: StepCounter,
    /// The number that was found last, and when that was found first; `None`: it was not looked at.
    found: Option<(u64, Instant)>,
}

/// Returns a number that changes with each step; `None`: it waits for what may take any time.
type StepCounter = Box<dyn Fn() -> Option<u64> + Send>;

impl fmt::Debug for WorkInHand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Working");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}

impl WorkInHand {
    /// Whether it had taken no step for so long at the last check.
    fn stalls(&mut self, now: Instant, limit: Duration) -> bool {
        let steps = (self.steps)();
        match (steps, self.found) {
            (Some(steps), Some((found, since))) if steps == found => {
                now.saturating_duration_since(since) >= limit
            }
            (steps, _) => {
                self.found = steps.map(|steps| (steps, now));
                false
            }
        }
    }
}

/// A worker until it has ended, or what it works on until this is dropped.
#[derive(Debug)]
pub(super) struct Work {
    of: Heartbeats,
    number: u64,
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut workers = self.of.0.lock();
        workers.running.remove(&self.number);
        workers.working.remove(&self.number);
    }
}

#[derive(Debug)]
struct WatchedWorker {
    name: String,
    pulse: Mutex<Pulse>,
}

#[derive(Debug, Default)]
struct Pulse {
    /// Wakes the worker; `None` before it is polled for the first time.
    waker: Option<Waker>,
    /// To be answered when it is polled next.
    asked: Vec<oneshot::Sender<()>>,
}

impl WatchedWorker {
    /// The worker is being polled.
    fn beat(&self, waker: &Waker) {
        let mut pulse = self.pulse.lock();
        match &mut pulse.waker {
            Some(known) => known.clone_from(waker),
            unknown => *unknown = Some(waker.clone()),
        }
        for ask in pulse.asked.drain(..) {
            // Nobody may wait for it any more.
            let _ = ask.send(());
        }
    }

    /// Wakes the worker. The answer is an error once it has ended.
    fn ask(&self) -> oneshot::Receiver<()> {
        let (ask, answer) = oneshot::channel();
        let waker = {
            let mut pulse = self.pulse.lock();
            pulse.asked.push(ask);
            pulse.waker.clone()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        answer
    }

    fn owes_answer(&self) -> bool {
        self.pulse.lock().asked.iter().any(|ask| !ask.is_closed())
    }
}

impl Heartbeats {
    /// Runs a worker, which is expected to respond from now on until it ends.
    pub(super) fn watched<T, F: Future<Output = T>>(
        &self,
        name: &str,
        work: F,
    ) -> impl Future<Output = T> + use<T, F> {
        let worker = Arc::new(WatchedWorker {
            name: name.to_owned(),
            pulse: Mutex::default(),
        });
        let running = self.begin(|workers, number| {
            workers.running.insert(number, Arc::clone(&worker));
        });
        // Large, and not to be moved.
        let mut work = Box::pin(work);
        async move {
            let _running = running;
            poll_fn(|context| {
                worker.beat(context.waker());
                work.as_mut().poll(context)
            })
            .await
        }
    }

    fn begin(&self, insert: impl FnOnce(&mut Workers, u64)) -> Work {
        let mut workers = self.0.lock();
        let number = workers.next;
        workers.next += 1;
        insert(&mut workers, number);
        let of = self.clone();
        Work { of, number }
    }

    /// Returns when every worker has moved since the call, or has ended.
    pub(super) async fn all(&self) {
        let workers = self.workers();
        // The answers of workers that end come when nobody holds them any more.
        let answers: Vec<_> = workers.into_iter().map(|worker| worker.ask()).collect();
        join_all(answers).await;
    }

    /// The names of the workers that a call of `all` waits for.
    pub(super) fn missing(&self) -> Vec<String> {
        let owing = self.workers().into_iter();
        let owing = owing.filter(|worker| worker.owes_answer());
        owing.map(|worker| worker.name.clone()).collect()
    }

    /// A worker works on something, until the result is dropped. `steps` returns a number that changes with each step; `None`: it
    /// waits for what may take any time.
    pub(super) fn work(
        &self,
        name: String,
        steps: impl Fn() -> Option<u64> + Send + 'static,
    ) -> Work {
        let working = WorkInHand {
            name,
            steps: Box::new(steps),
            found: None,
        };
        self.begin(|workers, number| {
            workers.working.insert(number, working);
        })
    }

    /// The names of the workers that work on something and have taken no step for so long, as far as calls of this show it.
    pub(super) fn stalled(&self, now: Instant, limit: Duration) -> Vec<String> {
        let mut workers = self.0.lock();
        let working = workers.working.values_mut();
        let stalled = working.filter_map(|it| it.stalls(now, limit).then(|| it.name.clone()));
        stalled.collect()
    }

    /// The names of all workers.
    pub(super) fn running(&self) -> Vec<String> {
        let workers = self.workers().into_iter();
        workers.map(|worker| worker.name.clone()).collect()
    }

    fn workers(&self) -> Vec<Arc<WatchedWorker>> {
        self.0.lock().running.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::poll;

    use super::*;

    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    async fn all_move(heartbeats: &Heartbeats) {
        let moved = tokio::time::timeout(LIMIT, heartbeats.all()).await;
        assert!(moved.is_ok(), "{:?}", heartbeats.missing());
    }

    #[tokio::test]
    async fn worker_that_waits_moves_and_one_that_ended_is_not_asked() {
        let heartbeats = Heartbeats::default();
        all_move(&heartbeats).await;
        let waiting = heartbeats.watched("waiting", std::future::pending::<()>());
        let waiting = tokio::spawn(waiting);
        for _ in 0..3 {
            all_move(&heartbeats).await;
        }
        let ended = tokio::spawn(heartbeats.watched("ended", async { 7 }));
        assert_eq!(ended.await.unwrap(), 7);
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert!(heartbeats.workers().is_empty());
        all_move(&heartbeats).await;
    }

    #[tokio::test]
    async fn worker_that_is_not_polled_is_missing_until_it_ends() {
        let heartbeats = Heartbeats::default();
        let _waiting = tokio::spawn(heartbeats.watched("waiting", std::future::pending::<()>()));
        let stalled = heartbeats.watched("stalled", std::future::pending::<()>());
        let mut asking = Box::pin(heartbeats.all());
        assert!(poll!(&mut asking).is_pending());
        while heartbeats.missing() != ["stalled"] {
            tokio::task::yield_now().await;
        }
        assert!(poll!(&mut asking).is_pending());
        drop(stalled);
        tokio::time::timeout(LIMIT, asking).await.unwrap();
        assert!(heartbeats.missing().is_empty());
    }

    #[test]
    fn work_without_a_step_stalls_and_what_waits_for_others_does_not() {
        const LONG: Duration = Duration::from_secs(60);
        let heartbeats = Heartbeats::default();
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        let work = heartbeats.work("worker".to_owned(), move || {
            Some(counted.load(Ordering::Relaxed)).filter(|&steps| steps != 7)
        });
        let begun = crate::clock::now().mono;
        let stalls = |after: u64| {
            let now = begun + Duration::from_secs(after);
            !heartbeats.stalled(now, LONG).is_empty()
        };
        // The first look begins the time, and each step begins it anew.
        assert!(!stalls(0) && !stalls(59) && stalls(60) && stalls(61));
        steps.store(1, Ordering::Relaxed);
        assert!(!stalls(62) && !stalls(121) && stalls(122));
        assert_eq!(heartbeats.stalled(begun + LONG * 3, LONG), ["worker"]);
        steps.store(7, Ordering::Relaxed);
        assert!(!stalls(200) && !stalls(300));
        steps.store(1, Ordering::Relaxed);
        assert!(!stalls(301) && !stalls(360) && stalls(361));
        drop(work);
        assert!(!stalls(500));
    }

    /// The same as on a deadlock, or in an endless loop.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn worker_that_blocks_its_thread_is_missing() {
        let heartbeats = Heartbeats::default();
        let (begun, begins) = oneshot::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let blocking = tokio::spawn(heartbeats.watched("blocking", async move {
            let _ = begun.send(());
            let _ = released.recv();
        }));
        begins.await.unwrap();
        let mut asking = Box::pin(heartbeats.all());
        assert!(poll!(&mut asking).is_pending());
        assert_eq!(heartbeats.missing(), ["blocking"]);
        drop(release);
        tokio::time::timeout(LIMIT, asking).await.unwrap();
        blocking.await.unwrap();
    }
}
