//! An executor that runs for as long as some work that makes tasks, and the wait for those tasks: for single runs and repairs.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use resyncd_mirror::Mirror;

use super::executor::execute_tasks;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::restarts::panic_as_error;
use crate::store::{StoreError, Wake};

/// Tasks that become due later than this are left to another run: longer than the pauses between the tries of one resource.
const LONGEST_WAIT: Duration = Duration::from_secs(100);
/// The shortest and the longest pause between two queries of the pending tasks.
const PACE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// How many times as long as a query a pause is at least: where a Source has thousands of hosts, it costs two look-ups for each.
const SHARE: u32 = 10;

/// Executes tasks while `work` runs; then, or when the run is interrupted, stops the executor in order. So it does if the work
/// panics, which is an error.
pub(crate) async fn with_executor(
    context: &Arc<SourceContext>,
    mirror: Arc<Mirror>,
    work: impl Future<Output = ()>,
) -> Result<(), EngineError> {
    let executor = tokio::spawn(execute_tasks(Arc::clone(context), mirror));
    let worked = until_stopped(context, work).await;
    context.stop.cancel();
    if let Err(error) = executor.await {
        tracing::error!(code = "applier", source = context.name(), %error, "executor panicked");
    }
    worked
}

/// Runs `work` until it ends or the run is interrupted. If the work panics, that is an error.
pub(crate) async fn until_stopped(
    context: &SourceContext,
    work: impl Future<Output = ()>,
) -> Result<(), EngineError> {
    let work = async {
        work.await;
        Ok(())
    };
    tokio::select! {
        () = context.stop.cancelled() => Ok(()),
        worked = panic_as_error(&context.source.url, work) => worked,
    }
}

/// What a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    TasksAndVersions,
    Versions,
}

/// Waits until nothing is left, or will be due soon, or nothing makes progress any more.
pub(crate) async fn drain(context: &SourceContext, awaited: Awaited) {
    let mut wakes = context.store.wakes();
    let limit = LONGEST_WAIT + context.client.timeout();
    let mut last = (progress_of(context, awaited), clock::now().mono);
    loop {
        let now = clock::now();
        match next_due(context, awaited).await {
            Ok(None) => return,
            Ok(Some(due)) if due > now.plus(LONGEST_WAIT).wall => return,
            Ok(Some(_)) => {}
            Err(error) => {
                tracing::error!(code = error.code(), source = context.name(), %error, "database error; what is due not read, retrying")
            }
        }
        let progress = progress_of(context, awaited);
        if progress != last.0 {
            last = (progress, now.mono);
        }
        if now.mono.saturating_duration_since(last.1) > limit {
            tracing::warn!(
                code = "stalled",
                source = context.name(),
                "no task makes progress any more; the rest is left to another run"
            );
            return;
        }
        let queried = clock::now().mono.saturating_duration_since(now.mono);
        let pause = queried.saturating_mul(SHARE).clamp(PACE.0, PACE.1);
        tokio::time::sleep(pause).await;
        let name = context.name();
        let is_of_source = |wake: &Wake| matches!(wake, Wake::Tasks(source) if source == name);
        let woken = Wake::until(&mut wakes, is_of_source);
        // After the time-out it is queried anyway.
        let _ = tokio::time::timeout(PACE.1, woken).await;
    }
}

/// When the first of the tasks is due, or of the versions that can be stored.
async fn next_due(
    context: &SourceContext,
    awaited: Awaited,
) -> Result<Option<DateTime<Utc>>, StoreError> {
    let of_tasks = match awaited {
        Awaited::TasksAndVersions => context.store.next_due(context.name()).await?,
        Awaited::Versions => None,
    };
    // Only a daemon waits for a folder that can't be used. One that is being opened is waited for.
    let facts = context.runtime_status.source(context.name());
    if context.versions.is_none() || facts.versions_error.is_some() {
        return Ok(of_tasks);
    }
    let now = clock::now().wall;
    let of_versions = context.store.due_versions(context.name(), now, 0).await?;
    let due = [of_tasks, of_versions.next_due];
    Ok(due.into_iter().flatten().min())
}

/// A number that grows while there is progress. Bytes that a full disk rejects, and that are downloaded again and again, don't
/// count.
fn progress_of(context: &SourceContext, awaited: Awaited) -> u64 {
    let counts = context.progress.counts();
    if awaited == Awaited::Versions {
        return counts.versions;
    }
    let bytes = if context.runtime_status.has_disk_error(context.name()) {
        0
    } else {
        counts.bytes
    };
    counts.documents + counts.applied + counts.failed + counts.versions + bytes
}
