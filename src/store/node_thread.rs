//! The thread of a node: it renews the lease, and passes on what other nodes have committed.
//!
//! The server tells of that at once on a connection that listens. What is told meanwhile is lost when that ends, and a pooler tells
//! nothing: so it is looked for at intervals as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::broadcast;

use super::corruption::Damage;
use super::error::StoreError;
use super::nodes::{self, Place, RENEWAL};
use super::place::StatePlace;
use super::sql::Connection;
use super::wake::Wake;
use crate::clock;

/// How often it is looked for what nothing tells of.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a wait is that nothing ends: so long the end of the thread takes.
const SLICE: Duration = Duration::from_millis(100);

pub(super) struct NodeThread {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NodeThread {
    pub(super) fn start(
        state: StatePlace,
        place: Place,
        wakes: broadcast::Sender<Wake>,
        damage: Arc<Damage>,
    ) -> Result<Self, StoreError> {
        let ends = Arc::new(AtomicBool::new(false));
        let node = WorkingNode {
            state,
            fence: place.fence,
            wakes,
            damage,
            ends: Arc::clone(&ends),
        };
        let mut last = place.last_wake;
        let working = move || {
            while !node.ends() {
                if let Err(error) = node.work(&mut last) {
                    tracing::debug!(code = error.code(), %error, "database error; the lease of the node is not renewed");
                }
                node.rest(INTERVAL);
            }
        };
        let thread = std::thread::Builder::new().name("store-node".into());
        let thread = thread.spawn(working).map_err(StoreError::Thread)?;
        Ok(Self {
            ends,
            thread: Some(thread),
        })
    }
}

impl Drop for NodeThread {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct WorkingNode {
    state: StatePlace,
    fence: i64,
    wakes: broadcast::Sender<Wake>,
    damage: Arc<Damage>,
    ends: Arc<AtomicBool>,
}

impl WorkingNode {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn rest(&self, pause: Duration) {
        let end = clock::now().mono + pause;
        while !self.ends() && clock::now().mono < end {
            std::thread::sleep(SLICE);
        }
    }

    /// Works until the node ends, or a connection does.
    fn work(&self, last: &mut i64) -> Result<(), StoreError> {
        let sql = self.state.open_for_queries()?;
        let listening = self.state.listen()?;
        let mut renewed: Option<Instant> = None;
        while !self.ends() {
            if renewed.is_none_or(|renewed| clock::now().mono.duration_since(renewed) >= RENEWAL) {
                if !nodes::renew(&sql, self.fence)? {
                    self.damage.replace();
                    return Ok(());
                }
                renewed = Some(clock::now().mono);
            }
            for wake in nodes::wakes_since(&sql, self.fence, last)? {
                // There may be no receiver.
                let _ = self.wakes.send(wake);
            }
            match &listening {
                Some(listening) => self.listen(listening)?,
                None => self.rest(INTERVAL),
            }
        }
        Ok(())
    }

    /// Waits until the server tells of something, or the interval is over.
    fn listen(&self, listening: &Connection) -> Result<(), StoreError> {
        let end = clock::now().mono + INTERVAL;
        while !self.ends() && clock::now().mono < end && !listening.is_told(SLICE)? {}
        Ok(())
    }
}
