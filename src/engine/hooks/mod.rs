//! The hooks of the Sources: programs and receivers of requests that get what was applied.
//!
//! Each hook has a worker, which belongs to no worker of its Source: a reload that changes hooks does not touch the Source, and one that
//! changes the Source does not touch its hooks. A hook is identified by the label of its Source and its name.
//!
//! | module | what it does |
//! |---|---|
//! | `worker` | the worker of one hook |
//! | `command` | runs its program |
//! | `copies` | copies files for it, where the mirror is in an object store |
//! | `delivery` | waits for the answer to a request; why something is not accepted |
//! | `leftover_processes` | ends what the program has started and left behind |
//!
//! Invariants: a hook is stopped before another one with its name begins; a hook that is not configured retains nothing of the feed.

pub(super) mod command;
mod copies;
pub(super) mod delivery;
mod leftover_processes;
mod worker;

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
pub(super) use worker::HookHandles;
use worker::{HookTarget, HookWorker};

use super::restarts::{Restarts, catch_panic};
use super::runtime_status::HookFacts;
use crate::config::{self, HookAction};

/// A hook with a worker.
struct RunningHook {
    target: Arc<HookTarget>,
    stop: CancellationToken,
    /// Cancelled when the worker has ended.
    ended: CancellationToken,
}

/// The hooks of all Sources.
#[derive(Default)]
pub(super) struct Hooks(parking_lot::Mutex<Vec<RunningHook>>);

/// The hooks that are configured, each with its Source and its name.
pub(super) fn configured_hooks(sources: &[config::Source]) -> Vec<(String, String)> {
    let hooks = sources.iter().flat_map(|source| {
        let hooks = source.hooks.iter();
        hooks.map(|hook| (source.name.clone(), hook.name.clone()))
    });
    hooks.collect()
}

impl HookTarget {
    fn is_of(&self, source: &config::Source, hook: &config::Hook) -> bool {
        (&self.source, &*self.mirror, &self.hook) == (&source.name, &*source.mirror, hook)
    }

    fn is_configured(&self, sources: &[config::Source]) -> bool {
        sources
            .iter()
            .any(|source| source.hooks.iter().any(|hook| self.is_of(source, hook)))
    }
}

impl Hooks {
    /// Stops the hooks that the configuration does not have, and those that it changes: what they run is ended.
    pub(super) async fn stop_others(&self, handles: &HookHandles, sources: &[config::Source]) {
        let (stay, others): (Vec<_>, Vec<_>) = std::mem::take(&mut *self.0.lock())
            .into_iter()
            .partition(|running| running.target.is_configured(sources));
        self.0.lock().extend(stay);
        for other in &others {
            other.stop.cancel();
        }
        join_all(others.iter().map(|other| other.ended.cancelled())).await;
        for other in &others {
            let HookTarget { source, hook, .. } = &*other.target;
            handles.runtime_status.end_hook(source, &hook.name);
        }
    }

    /// Starts the hooks of the configuration that do not run.
    pub(super) fn start(
        &self,
        handles: &HookHandles,
        sources: &[config::Source],
        stop: &CancellationToken,
        workers: &mut JoinSet<()>,
    ) {
        let mut running = self.0.lock();
        let hooks = sources
            .iter()
            .flat_map(|source| source.hooks.iter().map(move |hook| (source, hook)));
        for (number, (source, hook)) in hooks.enumerate() {
            let kind = match hook.action {
                HookAction::Command { .. } => "command",
                HookAction::Webhook { .. } => "url",
            };
            let runtime_status = &handles.runtime_status;
            runtime_status.note_hook(&source.name, &hook.name, |facts: &mut HookFacts| {
                facts.number = number;
                facts.status.name.clone_from(&hook.name);
                facts.status.kind = kind.to_owned();
            });
            if running.iter().any(|it| it.target.is_of(source, hook)) {
                continue;
            }
            let target = Arc::new(HookTarget {
                source: source.name.clone(),
                mirror: source.mirror.clone(),
                hook: hook.clone(),
            });
            let (stop, ended) = (stop.child_token(), CancellationToken::new());
            running.push(RunningHook {
                target: Arc::clone(&target),
                stop: stop.clone(),
                ended: ended.clone(),
            });
            let name = format!("hook {} (Source {})", hook.name, source.name);
            let of_worker = handles.clone();
            let work = async move {
                // Dropped last, also after a panic.
                let _guard = ended.drop_guard();
                let start =
                    || HookWorker::new(Arc::clone(&target), of_worker.clone(), stop.clone()).run();
                let mut restarts = Restarts::of("hook", "");
                while catch_panic(start()).await.is_err() && restarts.rest(&stop, |_| {}).await {}
            };
            workers.spawn(handles.heartbeats.watched(&name, work));
        }
    }
}
