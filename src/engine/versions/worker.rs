//! The worker that stores the versions of a Source which the mirror does not store by itself.
//!
//! Some are fetched at once. An error concerns one version; while the folder can't be used all of them wait, and the mirror does not.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use resourcesync::SourceTime;
use resyncd_mirror::Mirror;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fetch::{WAITS, store_version};
use super::opening::{code_of, open_versions};
use super::time_map::read_time_map;
use crate::clock;
use crate::engine::apply::context::ApplyContext;
use crate::engine::context::SourceContext;
use crate::engine::restarts::{Restarts, catch_panic};
use crate::engine::versions::folder::VersionsFolder;
use crate::status::StatusError;
use crate::store::{ResourceId, StoreError, VersionKind, VersionResult, VersionTask, Wake};

/// How many versions are fetched at once.
const AT_ONCE: usize = 4;
/// The pause after an error of the database or of the folder.
const PAUSE: Duration = Duration::from_secs(5);
/// The pause between two queries of what is due.
const PACE: Duration = Duration::from_millis(250);
/// The longest wait for a wake, and the pause between two searches for versions that wait for nothing any more.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Stores versions until it is stopped. A worker that panics is replaced after a pause.
pub(crate) async fn store_versions(
    context: &Arc<SourceContext>,
    folder: &VersionsFolder,
    mirror: &Arc<Mirror>,
) {
    let mut restarts = Restarts::of("store of versions", context.name());
    while catch_panic(work(context, folder, mirror)).await.is_err()
        && restarts.rest(&context.stop, |_| {}).await
    {}
}

/// Opens the folder once; a failure is retried by the worker.
pub(crate) async fn begin_versions(context: &SourceContext, folder: &VersionsFolder) {
    if let Err(error) = open_versions(context, folder).await {
        note(context, folder, code_of(&error), &error.to_string());
    }
}

async fn work(context: &Arc<SourceContext>, folder: &VersionsFolder, mirror: &Arc<Mirror>) {
    let opening = open_retrying(context, folder);
    let Some(versions) = context.stop.run_until_cancelled(opening).await else {
        return;
    };
    note_usable(context);
    let apply = Arc::new(ApplyContext::new(Arc::clone(context), versions, true));
    let worker = VersionsWorker {
        apply,
        mirror: Arc::clone(mirror),
        in_progress: HashSet::new(),
        running: JoinSet::new(),
        checked: None,
    };
    worker.run().await;
}

async fn open_retrying(context: &SourceContext, folder: &VersionsFolder) -> Arc<Mirror> {
    loop {
        match open_versions(context, folder).await {
            Ok(opened) => return opened,
            Err(error) => note(context, folder, code_of(&error), &error.to_string()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

struct VersionsWorker {
    apply: Arc<ApplyContext>,
    mirror: Arc<Mirror>,
    in_progress: HashSet<(ResourceId, SourceTime)>,
    running: JoinSet<(ResourceId, SourceTime)>,
    /// When versions that wait for nothing were searched for last.
    checked: Option<std::time::Instant>,
}

impl VersionsWorker {
    async fn run(mut self) {
        let context = Arc::clone(&self.apply.source);
        let mut wakes = context.store.wakes();
        let mut is_stale = true;
        // What else wakes the worker does not delay what is due.
        let mut due_at = Instant::from_std(clock::now().mono);
        loop {
            if is_stale && self.running.len() < AT_ONCE {
                let wait = self.refill().await.unwrap_or(PAUSE);
                due_at = Instant::from_std(clock::now().mono + wait);
                is_stale = false;
            }
            tokio::select! {
                () = context.stop.cancelled() => break,
                Some(done) = self.running.join_next() => {
                    match done {
                        Ok(done) => { self.in_progress.remove(&done); }
                        // It was logged; it is tried again when the others are done.
                        Err(_) if self.running.is_empty() => {
                            self.in_progress.clear();
                            tokio::time::sleep(PAUSE).await;
                        }
                        Err(_) => {}
                    }
                    is_stale = true;
                }
                wake = wakes.recv() => is_stale |= match wake {
                    Ok(Wake::Versions(source)) => source == context.name(),
                    Err(RecvError::Lagged(_)) => true,
                    Ok(_) | Err(RecvError::Closed) => false,
                },
                () = tokio::time::sleep_until(due_at), if !is_stale => is_stale = true,
            }
        }
        self.running.shutdown().await;
    }

    /// Releases what waits for nothing any more, at the begin and from time to time.
    async fn release(&mut self) -> Result<(), StoreError> {
        let (context, now) = (&self.apply.source, clock::now());
        let is_recent = |at| now.mono.saturating_duration_since(at) < LONGEST_WAIT;
        if self.checked.is_some_and(is_recent) {
            return Ok(());
        }
        let (store, name) = (&context.store, context.name());
        if self.checked.is_none() {
            // The configuration may select more than it did.
            let selection = context.source.filter.selection();
            let selects = |served: &str| selection.wants_type(Some(served));
            store.reselect_versions(name, now.wall, selects).await?;
        }
        store.release_versions(name, now.wall).await?;
        self.checked = Some(now.mono);
        Ok(())
    }

    /// Begins what is due. Returns how long nothing more is; `None`: the database can't be read.
    async fn refill(&mut self) -> Option<Duration> {
        if let Err(error) = self.release().await {
            let source = self.apply.name();
            self.apply.source.store.note_unreadable(source, &error);
            tracing::error!(code = error.code(), source, %error, "database error; waiting versions not read, retrying");
            return None;
        }
        let (context, now) = (Arc::clone(&self.apply.source), clock::now().wall);
        let limit = AT_ONCE + self.in_progress.len();
        let due = match context.store.due_versions(context.name(), now, limit).await {
            Ok(due) => due,
            Err(error) => {
                context.store.note_unreadable(context.name(), &error);
                tracing::error!(code = error.code(), source = context.name(), %error, "database error; due versions not read, retrying");
                return None;
            }
        };
        for task in due.tasks {
            let key = (task.resource, task.at);
            if self.in_progress.contains(&key) {
                continue;
            }
            // What ends wakes.
            if self.running.len() == AT_ONCE {
                break;
            }
            self.in_progress.insert(key);
            let (apply, mirror) = (Arc::clone(&self.apply), Arc::clone(&self.mirror));
            let storing = async move {
                execute(&apply, &mirror, task).await;
                key
            };
            let watched = context.watched("version", storing);
            self.running.spawn(watched);
        }
        // What is in progress delays nothing that becomes due.
        let next = due.next_later.map_or(LONGEST_WAIT, |next| {
            (next - now).to_std().unwrap_or_default().max(PACE)
        });
        Some(next.min(LONGEST_WAIT))
    }
}

/// Stores one version, or reads one TimeMap, and records the result. While that fails it is retried.
async fn execute(apply: &Arc<ApplyContext>, mirror: &Arc<Mirror>, task: VersionTask) {
    let context = &apply.source;
    let result = match task.kind {
        VersionKind::TimeMap => Ok(read_time_map(apply, &task).await),
        VersionKind::Announced | VersionKind::Listed => store_version(apply, mirror, &task).await,
    };
    let result = match result {
        Ok(result) => result,
        Err(error) => {
            context.store.note_unreadable(apply.name(), &error);
            tracing::error!(code = error.code(), source = apply.name(), %error, "database error; version not looked up, retrying");
            tokio::time::sleep(PAUSE).await;
            return;
        }
    };
    report(apply, &task, &result);
    if is_progress(&result) {
        context.progress.count_version();
    }
    while let Err(error) = context
        .store
        .complete_version(clock::now().wall, task.clone(), result.clone())
        .await
    {
        context.store.note_unreadable(apply.name(), &error);
        tracing::error!(code = error.code(), source = apply.name(), %error, "database error; version not recorded, retrying");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether something was done: a full disk, or a wait for the resource, is no progress.
fn is_progress(result: &VersionResult) -> bool {
    !matches!(result, VersionResult::Failed(failure) if !failure.counts)
}

fn report(apply: &ApplyContext, task: &VersionTask, result: &VersionResult) {
    let (context, source, uri, at) = (&apply.source, apply.name(), &task.uri, task.at);
    match result {
        VersionResult::Stored => {
            note_usable(context);
            tracing::debug!(source, %uri, %at, "version stored");
        }
        VersionResult::Unwanted(served) => {
            tracing::debug!(source, %uri, %at, media_type = served, "version not selected");
        }
        VersionResult::Pointless => {}
        VersionResult::Listed(found, _) => {
            tracing::info!(source, %uri, versions = found.len(), "TimeMap read");
        }
        VersionResult::Failed(failure) if !failure.counts && failure.code != WAITS => {
            if let Some(folder) = &context.versions {
                note(context, folder, failure.code, &failure.message);
            }
        }
        VersionResult::Failed(failure) => {
            let (code, error) = (failure.code, &failure.message);
            match failure.retry_at {
                Some(_) => {
                    tracing::debug!(code, source, %uri, %at, error, "version not stored; retrying")
                }
                None => tracing::warn!(code, source, %uri, %at, error, "version given up"),
            }
        }
    }
}

/// Notes why the folder can't be used, and logs it once.
fn note(context: &SourceContext, folder: &VersionsFolder, code: &'static str, message: &str) {
    let (source, root) = (context.name(), folder.root().display());
    let message = format!("the folder of versions {root} cannot be used: {message}");
    let mut is_news = false;
    context.runtime_status.change_source(source, |facts| {
        let before = facts.versions_error.take();
        let at = before.as_ref().map(|before| before.at.clone());
        is_news = before.is_none_or(|before| before.code != code);
        let error = StatusError::new(code, message.as_str(), clock::now().wall);
        facts.versions_error = Some(StatusError {
            at: at.unwrap_or_else(|| error.at.clone()),
            ..error
        });
    });
    if is_news {
        tracing::error!(
            code,
            source,
            error = message,
            "versions are not stored; the mirror goes on"
        );
    }
}

fn note_usable(context: &SourceContext) {
    let mut was_not = false;
    let source = context.name();
    context.runtime_status.change_source(source, |facts| {
        was_not = facts.versions_error.take().is_some();
    });
    if was_not {
        tracing::info!(source, "versions can be stored again");
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::{ChangeKind, Link};
    use resyncd_core::ResourceUri;
    use url::Url;

    use super::*;
    use crate::engine::apply::temporary_executor::{Awaited, drain};
    use crate::engine::tests::TestSource;
    use crate::store::{Change, VersionRule};
    use crate::test_clock::SimulatedClock;

    /// Waits for a version that nothing stores, as where its resource is never fetched. Returns whether the wait ends.
    async fn ends(clock: Arc<SimulatedClock>) -> bool {
        let url = Url::parse("https://example.org/").unwrap();
        let source = TestSource::new(&url, |client| client);
        let uri = ResourceUri::parse("https://example.org/a").unwrap();
        let at = "2013-01-03T18:00:00Z".parse().unwrap();
        let memento = Url::parse("https://example.org/m").unwrap();
        let change = Change {
            kind: ChangeKind::Created,
            links: vec![Link::new("memento", memento)],
            version: VersionRule::Stored,
            ..Change::deletion(uri, Some(at))
        };
        source.announce(vec![change]).await;
        let moving = async {
            for second in 1..10_000 {
                clock.set(second * 1000);
                tokio::time::sleep(PACE).await;
            }
        };
        tokio::select! {
            () = drain(&source.context, Awaited::Versions) => true,
            () = moving => false,
        }
    }

    #[test]
    fn wait_for_versions_ends_where_none_makes_progress() {
        // The clock is one of the thread.
        let waiting = std::thread::spawn(|| {
            let clock = SimulatedClock::new(clock::now());
            clock.install();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build();
            runtime.unwrap().block_on(ends(clock))
        });
        assert!(waiting.join().unwrap());
    }
}
