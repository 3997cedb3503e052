//! Publishes executed tasks, many at once: first the files, then their records in one transaction.
//!
//! Each batch costs syncs and a commit, whatever its size. So while a Source has many tasks, batches are gathered for a moment; where
//! it has few, each is published at once. Where they are many, the files of the next batch are written and synced while one is
//! published, because both wait for the disk. But nothing of it is published before that one is committed.
//!
//! Nothing is published into a mirror whose folder is not at its path any more: the tasks wait, as after a disk error.
//!
//! A panic fails the task that causes it, no more: after the panic of a batch its tasks are executed again, and each of them is
//! published by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use resourcesync::{Algorithm, Digest, SourceTime};
use resyncd_mirror::{
    CompletedFile, FileDescription, Mirror, MirrorError, MirrorPath, file_time, made_folder,
    path_if_blocked, path_if_freed, publication_path,
};
use tokio::sync::mpsc;

use super::adoption::Adopted;
use super::context::ApplyContext;
use super::execute::TaskOutcome;
use super::received::{Description, ReceivedBytes, ReceivedResource};
use super::task_error::{TaskError, publication_failure};
use crate::clock;
use crate::engine::restarts::{Panicked, Restarts, catch_panic};
use crate::engine::store_retries::rest_unless_stopped;
use crate::status::{StatusError, apply_delay};
use crate::store::{
    Publication, ResourceId, SourceAnswer, StoreError, StoredVersion, Task, TaskFailure, TaskResult,
};

/// How many tasks are published at once at most.
const BATCH: usize = 512;
/// How long a batch is gathered at most while many tasks are queued.
const GATHER: Duration = Duration::from_millis(25);
/// So many files are written by several threads, and are on disk before they are published.
const MANY: usize = 32;
/// The pause after the panic of a batch.
const PAUSE: Duration = Duration::from_secs(2);

/// An executed task.
pub(super) struct ExecutedTask {
    pub(super) task: Task,
    pub(super) outcome: TaskOutcome,
}

/// An executed task, one of many: what was fetched is in a staged file.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every task is the largest"
)]
enum WrittenTask {
    Fetched(Task, CompletedFile, Description),
    Other(ExecutedTask),
}

impl ExecutedTask {
    fn failed(task: Task, error: &MirrorError) -> Self {
        let outcome = TaskOutcome::Failed(publication_failure(error));
        Self { task, outcome }
    }

    /// Writes what was fetched to a staged file. Where that is not possible the task has failed. It may block.
    fn written(self, mirror: &Mirror) -> WrittenTask {
        let Self { task, outcome } = self;
        let TaskOutcome::Fetched(resource) = outcome else {
            return WrittenTask::Other(Self { task, outcome });
        };
        let ReceivedResource { bytes, description } = *resource;
        match bytes.into_file_of_many(mirror, description.lastmod) {
            Ok(file) => WrittenTask::Fetched(task, file, description),
            Err(error) => WrittenTask::Other(Self::failed(task, &error)),
        }
    }
}

/// Publishes what is queued until the queue is closed; sends which tasks are committed.
pub(super) async fn publish_all(
    context: Arc<ApplyContext>,
    mut queue: mpsc::Receiver<ExecutedTask>,
    committed: mpsc::UnboundedSender<Vec<ResourceId>>,
) {
    let publisher = Publisher {
        restarts: Mutex::new(Restarts::of("publisher", context.name())),
        context,
        committed,
        suspects: Mutex::default(),
    };
    let first = publisher.gather(&mut queue).await;
    let mut batches = publisher.prepare(first).await;
    while !batches.is_empty() {
        let publishing = publisher.publish_batches(batches);
        batches = match tokio::join!(publishing, publisher.gather_ahead(&mut queue)).1 {
            Ahead::Prepared(batches) => batches,
            // All that is executed meanwhile becomes one batch, and not many small ones.
            Ahead::Few(few) => {
                let batch = with_executed(few, publisher.most_at_once(), &mut queue);
                publisher.prepare(batch).await
            }
        };
    }
}

/// What was gathered while a batch was published.
enum Ahead {
    Prepared(Vec<Batch>),
    /// What is executed until the batch is published is to be added.
    Few(Vec<ExecutedTask>),
}

/// Adds what was executed meanwhile, up to `most` in all.
fn with_executed(
    mut few: Vec<ExecutedTask>,
    most: usize,
    queue: &mut mpsc::Receiver<ExecutedTask>,
) -> Vec<ExecutedTask> {
    while few.len() < most
        && let Ok(executed) = queue.try_recv()
    {
        few.push(executed);
    }
    few
}

/// The next executed tasks, `most` at most; none once the queue is closed. As long as there are many more to come, it is waited for so
/// many, but not longer than [`GATHER`].
async fn gather<T>(
    queue: &mut mpsc::Receiver<T>,
    most: usize,
    are_many: impl Fn() -> bool,
) -> Vec<T> {
    // Without room for a full batch: it would be held for as long as nothing is executed, by each Source.
    let mut batch = Vec::new();
    queue.recv_many(&mut batch, most).await;
    let gathering = async {
        while !batch.is_empty() && batch.len() < most && are_many() {
            let more = most - batch.len();
            if queue.recv_many(&mut batch, more).await == 0 {
                break;
            }
        }
    };
    // What was received by then is in the batch.
    let _ = tokio::time::timeout(GATHER, gathering).await;
    batch
}

/// Tasks that are published together.
struct Batch {
    /// Which they are.
    revisions: Vec<(ResourceId, i64)>,
    /// The task, if there is one only: if its publication panics it fails.
    only: Option<Task>,
    /// Their files are on disk, if they are many. An error: writing them has panicked.
    executed: Result<Vec<ExecutedTask>, Panicked>,
}

struct Publisher {
    context: Arc<ApplyContext>,
    committed: mpsc::UnboundedSender<Vec<ResourceId>>,
    /// The tasks of batches that have panicked: resource and revision. At most one a resource.
    suspects: Mutex<HashMap<ResourceId, i64>>,
    /// The panics that could not even be stored.
    restarts: Mutex<Restarts>,
}

impl Publisher {
    async fn gather_ahead(&self, queue: &mut mpsc::Receiver<ExecutedTask>) -> Ahead {
        let gathered = self.gather(queue).await;
        if are_many_fetched(&gathered) {
            Ahead::Prepared(self.prepare(gathered).await)
        } else {
            Ahead::Few(gathered)
        }
    }

    async fn gather(&self, queue: &mut mpsc::Receiver<ExecutedTask>) -> Vec<ExecutedTask> {
        gather(queue, self.most_at_once(), || {
            self.context.has_many_queued()
        })
        .await
    }

    /// How many tasks are published at once. Where few files may be open, more of them would be synced one by one.
    fn most_at_once(&self) -> usize {
        self.context.mirror.most_together().clamp(MANY, BATCH)
    }

    async fn prepare(&self, executed: Vec<ExecutedTask>) -> Vec<Batch> {
        let mut batches = Vec::new();
        for batch in self.split(executed) {
            let tasks = batch.iter().map(|ExecutedTask { task, .. }| task);
            batches.push(Batch {
                revisions: tasks.map(|task| (task.resource, task.revision)).collect(),
                only: match &batch[..] {
                    [executed] => Some(executed.task.clone()),
                    _ => None,
                },
                executed: stage_many(&self.context.mirror, batch).await,
            });
        }
        batches
    }

    async fn publish_batches(&self, batches: Vec<Batch>) {
        for batch in batches {
            self.publish_batch(batch).await;
        }
    }

    /// Divides executed tasks into batches: each suspect is one by itself, after all others.
    fn split(
        &self,
        finished: Vec<ExecutedTask>,
    ) -> impl Iterator<Item = Vec<ExecutedTask>> + use<> {
        let mut known = self.suspects.lock();
        let (suspects, others): (Vec<_>, Vec<_>) =
            finished.into_iter().partition(|ExecutedTask { task, .. }| {
                known.remove(&task.resource) == Some(task.revision)
            });
        let others = Some(others).filter(|others| !others.is_empty());
        let suspects = suspects.into_iter().map(|suspect| vec![suspect]);
        others.into_iter().chain(suspects)
    }

    async fn publish_batch(&self, batch: Batch) {
        let Batch {
            revisions,
            only,
            executed,
        } = batch;
        let ids: Vec<ResourceId> = revisions.iter().map(|&(id, _)| id).collect();
        if self.try_to_publish(executed).await.is_err() {
            // Also one that fails: it may panic again after the next poll.
            self.suspects.lock().extend(revisions);
            match only {
                None => self.pause_after_panic(&ids).await,
                Some(task) => {
                    if self.fail(task).await.is_err() {
                        return self.postpone(ids).await;
                    }
                }
            }
        }
        // After the executor has ended nothing receives it.
        let _ = self.committed.send(ids);
    }

    async fn try_to_publish(
        &self,
        executed: Result<Vec<ExecutedTask>, Panicked>,
    ) -> Result<(), Panicked> {
        let (context, batch) = (&self.context, executed?);
        let store = &context.source.store;
        let event = "database error; nothing is published, retrying";
        if !until_stored(context, event, || store.confirm_place()).await? {
            return Ok(());
        }
        let (mirror, deletes) = (Arc::clone(&context.mirror), context.source.source.delete);
        let versions = context.source.versions.clone();
        let publishing = tokio::task::spawn_blocking(move || {
            let mut results = publish(&mirror, deletes, batch);
            if let Some(versions) = versions {
                versions.store_published(&mirror, &mut results, clock::now().wall);
            }
            results
        });
        let results = publishing.await.map_err(|_| Panicked)?;
        if results.iter().any(is_of_missing_mirror) {
            context.source.mirror_doubted.notify_one();
        }
        catch_panic(commit_results(context, results)).await?
    }

    /// After the panic of a batch: its tasks are still in the database, and are executed again.
    async fn pause_after_panic(&self, ids: &[ResourceId]) {
        let context = &self.context;
        tracing::error!(
            code = "publisher",
            source = context.name(),
            tasks = ids.len(),
            "publishing panicked; each of its tasks is executed again, and published by itself"
        );
        doubt(context, ids).await;
        let pause = tokio::time::sleep(PAUSE);
        // The result is the stop.
        let _ = context.source.stop.run_until_cancelled(pause).await;
    }

    /// Stores that the publication of a task has panicked. The file may have been changed all the same.
    async fn fail(&self, task: Task) -> Result<(), Panicked> {
        let failure = TaskFailure {
            is_in_doubt: true,
            ..self.context.failure(&task, TaskError::Panicked)
        };
        let failed = vec![TaskResult::Failed { task, failure }];
        catch_panic(commit_results(&self.context, failed)).await?
    }

    /// Has a task executed again whose failure can't be stored, after a pause that grows. Others are published meanwhile.
    async fn postpone(&self, ids: Vec<ResourceId>) {
        doubt(&self.context, &ids).await;
        let (_, pause) = self.restarts.lock().after_panic();
        let (committed, stop) = (self.committed.downgrade(), self.context.source.stop.clone());
        tokio::spawn(async move {
            // The result is the stop.
            let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            if let Some(committed) = committed.upgrade() {
                let _ = committed.send(ids);
            }
        });
    }
}

fn are_many_fetched(executed: &[ExecutedTask]) -> bool {
    let is_fetched = |executed: &&ExecutedTask| matches!(executed.outcome, TaskOutcome::Fetched(_));
    executed.iter().filter(is_fetched).count() >= MANY
}

/// Where files are many, has them all on disk before they are published; few are written and synced when they are.
async fn stage_many(
    mirror: &Arc<Mirror>,
    executed: Vec<ExecutedTask>,
) -> Result<Vec<ExecutedTask>, Panicked> {
    if !are_many_fetched(&executed) {
        return Ok(executed);
    }
    let share = executed.len().div_ceil(mirror.writers());
    let mut rest = executed.into_iter();
    let mut writing = Vec::new();
    loop {
        let part: Vec<ExecutedTask> = rest.by_ref().take(share).collect();
        if part.is_empty() {
            break;
        }
        let mirror = Arc::clone(mirror);
        writing.push(tokio::task::spawn_blocking(move || {
            let written = part.into_iter().map(|executed| executed.written(&mirror));
            written.collect::<Vec<_>>()
        }));
    }
    // All of them have ended when this returns, also where one has panicked.
    let written = futures_util::future::join_all(writing).await;
    let written: Result<Vec<_>, _> = written.into_iter().collect();
    let written = written.map_err(|_| Panicked)?.into_iter().flatten();
    let (mirror, written) = (Arc::clone(mirror), written.collect());
    let syncing = tokio::task::spawn_blocking(move || sync(&mirror, written));
    syncing.await.map_err(|_| Panicked)
}

/// Syncs the files of executed tasks. For a blocking thread.
fn sync(mirror: &Mirror, written: Vec<WrittenTask>) -> Vec<ExecutedTask> {
    let mut synced = Vec::with_capacity(written.len());
    let (mut files, mut fetched): (Vec<CompletedFile>, Vec<(Task, Description)>) =
        Default::default();
    for written in written {
        match written {
            WrittenTask::Fetched(task, file, description) => {
                files.push(file);
                fetched.push((task, description));
            }
            WrittenTask::Other(other) => synced.push(other),
        }
    }
    let paths = fetched.iter().map(|(task, _)| task.path.as_str());
    let results = mirror.sync(files, paths);
    let results = fetched.into_iter().zip(results);
    synced.extend(results.map(|((task, description), file)| match file {
        Ok(file) => {
            let bytes = ReceivedBytes::Staged(file);
            let resource = ReceivedResource { bytes, description };
            let outcome = TaskOutcome::Fetched(Box::new(resource));
            ExecutedTask { task, outcome }
        }
        Err(error) => ExecutedTask::failed(task, &error),
    }));
    synced
}

/// Commits the results of tasks. While that fails nothing more is published: every file must have its record. A panic has
/// committed nothing, or is one after the commit.
async fn commit_results(context: &ApplyContext, results: Vec<TaskResult>) -> Result<(), Panicked> {
    report(context, &results);
    let (results, store) = (Arc::new(results), &context.source.store);
    let event = "database error; results of tasks not committed, retrying";
    let committed = until_stored(context, event, || {
        store.complete(clock::now().wall, Arc::clone(&results))
    });
    if committed.await? {
        results.iter().for_each(|result| count(context, result));
        context.source.counters.observe_commit(results.len());
    }
    Ok(())
}

/// Repeats an access to the database until it succeeds. `false`: the Source was stopped. The files are complete; what has no record is
/// executed again, or found to be in doubt, at the next start. Fails if the store panics.
async fn until_stored<F: Future<Output = Result<(), StoreError>>>(
    context: &ApplyContext,
    event: &'static str,
    access: impl Fn() -> F,
) -> Result<bool, Panicked> {
    let (store, stop) = (&context.source.store, &context.source.stop);
    loop {
        let Err(error) = access().await else {
            return Ok(true);
        };
        store.note_unreadable(context.name(), &error);
        tracing::error!(code = error.code(), source = context.name(), %error, "{event}");
        if matches!(error, StoreError::Panicked) {
            return Err(Panicked);
        }
        if !rest_unless_stopped(stop).await {
            store.mark_unclean_shutdown();
            return Ok(false);
        }
    }
}

/// Records that the files of these resources may have been changed without a record. While that fails nothing more is published: a task
/// that is executed again without doubt may find its file unchanged.
async fn doubt(context: &ApplyContext, resources: &[ResourceId]) {
    if try_to_doubt(context, resources).await.is_ok() {
        return;
    }
    for &resource in resources {
        if try_to_doubt(context, &[resource]).await.is_err() {
            context.source.store.mark_unclean_shutdown();
        }
    }
}

async fn try_to_doubt(context: &ApplyContext, resources: &[ResourceId]) -> Result<bool, Panicked> {
    let store = &context.source.store;
    let event = "database error; files in doubt not recorded";
    until_stored(context, event, || store.doubt(resources.to_vec())).await
}

fn report(context: &ApplyContext, results: &[TaskResult]) {
    let source = context.name();
    for result in results {
        match result {
            TaskResult::Published(Publication {
                task,
                path,
                has_new_bytes,
                ..
            }) => {
                report_disk_ok(context, task);
                if *has_new_bytes {
                    tracing::debug!(source, uri = %task.uri, path, change = task.kind.as_str(), "applied");
                }
            }
            TaskResult::Removed { task, .. } => {
                report_disk_ok(context, task);
                tracing::debug!(source, uri = %task.uri, "removed");
            }
            TaskResult::Unselected { task, served } => {
                tracing::debug!(source, uri = %task.uri, media_type = served, "type not selected");
            }
            TaskResult::Served { task, .. } => {
                report_disk_ok(context, task);
                if !task.unconfirmed {
                    tracing::debug!(code = "left-set", source, uri = %task.uri,
                        "resource deleted in one set is still served, and listed in another set; keeping the file");
                }
            }
            TaskResult::Failed { task, failure } => {
                let TaskFailure {
                    code,
                    message,
                    is_given_up,
                    counts,
                    ..
                } = failure;
                let uri = &task.uri;
                if !counts {
                    report_disk_error(context, task, failure);
                    continue;
                }
                report_disk_ok(context, task);
                // What robots.txt states is logged once for all.
                let is_disallowed = failure.answer == Some(SourceAnswer::Disallowed);
                let is_first = *is_given_up && !task.was_given_up && !is_disallowed;
                if is_first {
                    tracing::warn!(code, source, %uri, error = message, "resource given up; trying again with growing pauses");
                } else {
                    tracing::debug!(code, source, %uri, error = message, "resource unavailable; retrying");
                }
            }
        }
    }
}

fn count(context: &ApplyContext, result: &TaskResult) {
    match result {
        TaskResult::Published(Publication {
            task,
            has_new_bytes,
            is_patched,
            ..
        }) if *has_new_bytes => {
            count_change(context, task);
            if *is_patched {
                let runtime_status = &context.source.runtime_status;
                runtime_status.note_set_of_task(task.set, |facts| facts.patched += 1);
            }
        }
        TaskResult::Removed { task, .. } if task.live => count_change(context, task),
        _ => {}
    }
    match result {
        TaskResult::Failed { failure, .. } if !failure.is_given_up => {}
        TaskResult::Failed { .. } => context.source.progress.count_failed(),
        TaskResult::Published(_)
        | TaskResult::Removed { .. }
        | TaskResult::Served { .. }
        | TaskResult::Unselected { .. } => {
            context.source.progress.count_applied();
        }
    }
}

/// Counts a change that was applied.
fn count_change(context: &ApplyContext, task: &Task) {
    let (counters, origin) = (&context.source.counters, task.origin.code());
    let now = clock::now().wall;
    let changed_at = task.changed_at.map(SourceTime::to_datetime);
    let delay = apply_delay(origin, changed_at, now);
    if let Some(delay) = delay {
        counters.observe_delay(origin, delay);
    }
    let recent_changes = &context.source.recent_changes;
    recent_changes.count(now, task.kind.as_str(), delay);
    // Last: a change that is counted is so with its delay.
    counters.count_change(task.set.0, origin, task.kind.as_str());
}

/// Logs once that the mirror can't be written.
fn report_disk_error(context: &ApplyContext, task: &Task, failure: &TaskFailure) {
    let (source, now) = (context.name(), clock::now());
    let TaskFailure { code, message, .. } = failure;
    // Paths in the error are those in the mirror.
    let mirror = context.source.source.mirror.display();
    let message = &format!("mirror {mirror}: {message}");
    let status_error = StatusError::new(code, message.as_str(), now.wall);
    let runtime_status = &context.source.runtime_status;
    if runtime_status.note_disk_error(source, Some(task.resource), status_error, now.mono) {
        tracing::error!(
            code,
            source,
            error = message,
            "mirror can't be written; tasks wait"
        );
    }
}

/// Logs once that the mirror can be written again.
fn report_disk_ok(context: &ApplyContext, task: &Task) {
    let source = context.name();
    if context
        .source
        .runtime_status
        .clear_disk_error(source, Some(task.resource))
    {
        tracing::info!(source, "mirror can be written again");
    }
}

/// Changes the mirror. For a blocking thread.
pub(super) fn publish(
    mirror: &Mirror,
    deletes: bool,
    finished: Vec<ExecutedTask>,
) -> Vec<TaskResult> {
    if let Err(error) = mirror.check_place() {
        return refused(finished, &error);
    }
    let mut results = Vec::with_capacity(finished.len());
    let mut removals = Vec::new();
    let mut fetched = Vec::new();
    for ExecutedTask { task, outcome } in finished {
        match outcome {
            // Also without a record: a crash may have come between a file and its commit. A removal that a person requests
            // ignores `delete = false`.
            TaskOutcome::Remove if deletes || task.origin.is_of_person() => removals.push(task),
            TaskOutcome::Remove => results.push(TaskResult::Removed {
                file_stays: task.live,
                task,
            }),
            TaskOutcome::Fetched(file) => fetched.push((task, *file)),
            TaskOutcome::Adopted(adopted) => results.push(adopt(task, adopted)),
            TaskOutcome::Same { lastmod } => results.push(touch(mirror, task, lastmod)),
            TaskOutcome::Served { is_same } => results.push(TaskResult::Served { task, is_same }),
            TaskOutcome::Unselected { served } => {
                results.push(TaskResult::Unselected { task, served });
            }
            TaskOutcome::Failed(failure) => results.push(TaskResult::Failed { task, failure }),
        }
    }
    // First, so that a file may make way for a folder of its name, and the other way round.
    remove(mirror, removals, &mut results);
    publish_files(mirror, fetched, &mut results);
    remove_unrecorded(mirror, results)
}

fn is_of_missing_mirror(result: &TaskResult) -> bool {
    matches!(result, TaskResult::Failed { failure, .. } if failure.code == "mirror-missing")
}

/// What becomes of tasks whose mirror is not there: nothing is changed, and what was read of its files proves nothing.
fn refused(finished: Vec<ExecutedTask>, error: &MirrorError) -> Vec<TaskResult> {
    let refused = |ExecutedTask { task, outcome }| match outcome {
        TaskOutcome::Failed(failure) => TaskResult::Failed { task, failure },
        _ => failed(task, error),
    };
    finished.into_iter().map(refused).collect()
}

/// Where the mirror may have a file of a task's resource without a record, beside the path that the resource has: the plain path
/// was blocked, or free again, when the file was published, and a crash lost the record. `None` where every file has its record.
fn unrecorded_path(task: &Task, path: &str) -> Option<MirrorPath> {
    if has_certain_record(task) {
        None
    } else {
        path_if_blocked(path, &task.uri).or_else(|| path_if_freed(path, &task.uri))
    }
}

fn has_certain_record(task: &Task) -> bool {
    task.live && !task.live_doubted
}

/// Removes such files of resources that were published elsewhere: nothing else would ever replace or remove them.
fn remove_unrecorded(mirror: &Mirror, results: Vec<TaskResult>) -> Vec<TaskResult> {
    let mut made_folders: HashMap<String, bool> = HashMap::new();
    // Few hosts have such a folder: without it there is no file to remove.
    let mut may_exist = |task: &Task| {
        if has_certain_record(task) {
            return false;
        }
        let folder = made_folders.entry(made_folder(&task.uri));
        *folder.or_insert_with_key(|folder| mirror.may_have_folder(folder))
    };
    let path = |result: &TaskResult| match result {
        TaskResult::Published(Publication { task, path, .. }) if may_exist(task) => {
            unrecorded_path(task, path)
        }
        _ => None,
    };
    let paths: Vec<Option<MirrorPath>> = results.iter().map(path).collect();
    let may_exist: Vec<MirrorPath> = paths.iter().flatten().cloned().collect();
    if may_exist.is_empty() {
        return results;
    }
    let mut removals = mirror.remove(&may_exist).into_iter();
    let removed = paths
        .into_iter()
        .map(|path| path.and_then(|_| removals.next()));
    results
        .into_iter()
        .zip(removed)
        .map(|(result, removed)| match (result, removed) {
            // What blocks the path is no file of a resource.
            (result, None | Some(Ok(_) | Err(MirrorError::Blocked { .. }))) => result,
            (TaskResult::Published(Publication { task, .. }), Some(Err(error))) => {
                failed_in_doubt(task, &error)
            }
            (result, Some(Err(_))) => result,
        })
        .collect()
}

fn remove(mirror: &Mirror, tasks: Vec<Task>, results: &mut Vec<TaskResult>) {
    let mut named = Vec::new();
    let mut paths = Vec::new();
    for task in tasks {
        match MirrorPath::parse(&task.path) {
            Ok(path) => {
                let unrecorded = unrecorded_path(&task, &task.path);
                let before = paths.len();
                paths.extend(std::iter::once(path).chain(unrecorded));
                named.push((task, paths.len() - before));
            }
            Err(error) => results.push(failed(task, &error.into())),
        }
    }
    let mut removals = mirror.remove(&paths).into_iter();
    for (task, files) in named {
        // All results of the task, whatever the first one is: the next ones are those of the next task.
        let mut removed: Vec<Result<bool, MirrorError>> = removals.by_ref().take(files).collect();
        // What blocks the made path is no file of a resource.
        let unrecorded = removed.split_off(1).into_iter();
        let unrecorded =
            unrecorded.filter(|removed| !matches!(removed, Err(MirrorError::Blocked { .. })));
        let mut errors = removed
            .into_iter()
            .chain(unrecorded)
            .filter_map(Result::err);
        results.push(match errors.next() {
            None => TaskResult::Removed {
                task,
                file_stays: false,
            },
            Some(error) => failed_in_doubt(task, &error),
        });
    }
}

/// A file on its way to a path of the mirror.
struct PlacedFile {
    task: Task,
    description: Description,
    path: MirrorPath,
}

fn publish_files(
    mirror: &Mirror,
    fetched: Vec<(Task, ReceivedResource)>,
    results: &mut Vec<TaskResult>,
) {
    let mut first = Vec::with_capacity(fetched.len());
    for (task, ReceivedResource { bytes, description }) in fetched {
        let file = match bytes.into_file(mirror, description.lastmod) {
            Ok(file) => file,
            Err(error) => {
                results.push(failed(task, &error));
                continue;
            }
        };
        let file = file.described(described(&description));
        let path = freed_path(&task, &description)
            .unwrap_or_else(|| publication_path(&task.path, &task.uri));
        let placed = PlacedFile {
            task,
            description,
            path,
        };
        first.push((file, placed));
    }
    let mut again = Vec::new();
    let mut blocked = Vec::new();
    for (file, placed) in place(mirror, first, results) {
        match path_if_blocked(placed.path.as_str(), &placed.task.uri) {
            Some(path) => again.push((file, PlacedFile { path, ..placed })),
            None => blocked.push((file, placed)),
        }
    }
    blocked.extend(place(mirror, again, results));
    for (_, placed) in blocked {
        results.push(failed(
            placed.task,
            &MirrorError::Blocked {
                path: placed.path.to_string(),
            },
        ));
    }
}

fn described(description: &Description) -> FileDescription {
    let mut hashes = description.hashes.iter();
    let sha256 = hashes.find(|digest| digest.algorithm() == Algorithm::Sha256);
    FileDescription {
        media_type: description.media_type.clone(),
        digest: sha256.cloned(),
    }
}

/// The plain path of a resource that has the made one, if it may be free by now. A file goes there that has new bytes, because the feed
/// states its path with them; where the mirror has one at the made path that is certain, because it is in doubt until that one is removed.
fn freed_path(task: &Task, description: &Description) -> Option<MirrorPath> {
    let moves = !task.live || has_certain_record(task) && !has_bytes(task, description);
    path_if_freed(&task.path, &task.uri).filter(|_| moves)
}

fn has_bytes(task: &Task, description: &Description) -> bool {
    let recorded = task.recorded_file();
    recorded.is_some_and(|file| file.has_bytes(description.length, &description.hashes))
}

/// Publishes files; returns those whose path is blocked.
fn place(
    mirror: &Mirror,
    files: Vec<(CompletedFile, PlacedFile)>,
    results: &mut Vec<TaskResult>,
) -> Vec<(CompletedFile, PlacedFile)> {
    let (publications, placed): (Vec<_>, Vec<_>) = files
        .into_iter()
        .map(|(file, placed)| ((file, placed.path.clone()), placed))
        .unzip();
    let mut blocked = Vec::new();
    for (placed, outcome) in placed.into_iter().zip(mirror.publish(publications)) {
        match outcome {
            Ok(()) => results.push(published(placed)),
            Err(unpublished) => match unpublished.file {
                Some(file) if matches!(unpublished.error, MirrorError::Blocked { .. }) => {
                    blocked.push((file, placed))
                }
                // It may have been renamed.
                _ => results.push(failed_in_doubt(placed.task, &unpublished.error)),
            },
        }
    }
    blocked
}

fn published(placed: PlacedFile) -> TaskResult {
    let PlacedFile {
        task,
        description,
        path,
    } = placed;
    let same = has_bytes(&task, &description);
    let Description {
        length,
        media_type,
        encoding,
        hashes,
        lastmod,
        version,
        is_patched,
    } = description;
    TaskResult::Published(Publication {
        task,
        path: path.to_string(),
        length,
        media_type,
        encoding,
        hashes,
        lastmod,
        version,
        has_new_bytes: !same,
        is_patched,
        stored_version: StoredVersion::Ignored,
    })
}

/// A file that was there before its record. It is an entry of the feed, which is as new as the database.
fn adopt(task: Task, adopted: Adopted) -> TaskResult {
    TaskResult::Published(Publication {
        has_new_bytes: true,
        ..in_place(task, adopted.length, adopted.hashes, adopted.lastmod)
    })
}

/// The publication of a file that was in its place already.
fn in_place(
    task: Task,
    length: u64,
    hashes: Vec<Digest>,
    lastmod: Option<SourceTime>,
) -> Publication {
    Publication {
        path: task.path.clone(),
        length,
        media_type: task.content.media_type.clone(),
        encoding: None,
        hashes,
        lastmod,
        version: None,
        has_new_bytes: false,
        is_patched: false,
        stored_version: StoredVersion::Ignored,
        task,
    }
}

/// Sets the announced time of a file that has the right bytes already.
fn touch(mirror: &Mirror, task: Task, lastmod: Option<SourceTime>) -> TaskResult {
    let touched = MirrorPath::parse(&task.path)
        .map_err(MirrorError::from)
        .and_then(|path| mirror.open_file(&path))
        .map(|file| {
            // A file whose time can't be set, as one of another owner, has the right bytes nevertheless.
            lastmod.map(|time| file.set_modified(file_time(time)))
        });
    match touched {
        Ok(_) => {
            let (length, hashes) = (
                task.live_length.unwrap_or_default(),
                task.live_hashes.clone(),
            );
            TaskResult::Published(in_place(task, length, hashes, lastmod))
        }
        // It was removed a moment ago: the next try fetches it.
        Err(error) => failed(task, &error),
    }
}

/// A task that may have changed the file all the same: the rename or the removal may be on disk.
fn failed_in_doubt(task: Task, error: &MirrorError) -> TaskResult {
    let failure = TaskFailure {
        is_in_doubt: true,
        ..publication_failure(error)
    };
    TaskResult::Failed { task, failure }
}

fn failed(task: Task, error: &MirrorError) -> TaskResult {
    let failure = publication_failure(error);
    TaskResult::Failed { task, failure }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    use resourcesync::ChangeKind;
    use resyncd_core::ResourceUri;
    use resyncd_fetch::{Client, HttpSettings};
    use resyncd_mirror::{DiskCall, made_path};
    use tokio::task::JoinHandle;
    use url::Url;

    use super::super::received::BodyMemory;
    use super::*;
    use crate::engine::tests::{NAME, TestSource};
    use crate::store::{Change, TasksInProgress};

    /// The disk panics when it gets the file of a resource with this path.
    const WHILE_PUBLISHED: &str = "/panic-while-published";
    /// The disk panics when it gets the bytes of a resource with this path, the first time.
    const WHILE_WRITTEN: &str = "/panic-while-written";
    /// The store panics when it is to store that a resource with this path was published.
    const WHILE_STORED: &str = "/panic-while-stored";
    /// The store panics whatever it is to store about a resource with this path.
    const WHATEVER_IS_STORED: &str = "/panic-whatever-is-stored";
    const STORED: &str = "SELECT 1 FROM resource LEFT JOIN task ON task.resource_id = resource.id
        WHERE (uri LIKE '%/panic-while-stored' AND applied_at IS NOT NULL)
           OR (uri LIKE '%/panic-whatever-is-stored' AND (applied_at IS NOT NULL OR error_code IS NOT NULL))";
    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    fn uri(path: &str) -> ResourceUri {
        ResourceUri::parse(&format!("https://example.org{path}")).unwrap()
    }

    /// So many paths.
    fn numbered(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("/{number}")).collect()
    }

    fn staged(mirror: &Mirror, bytes: &str) -> ReceivedResource {
        let mut file = mirror.stage().unwrap();
        file.write(bytes.as_bytes()).unwrap();
        let file = file.finish(None).unwrap();
        received(bytes, ReceivedBytes::Staged(file))
    }

    fn in_memory(bytes: &str) -> ReceivedResource {
        let room = BodyMemory::of_body(Some(bytes.len() as u64)).unwrap();
        let held = room.fill(bytes.as_bytes().to_vec());
        let held = held.unwrap_or_else(|_| panic!("they fit"));
        received(bytes, ReceivedBytes::InMemory(held))
    }

    fn received(text: &str, bytes: ReceivedBytes) -> ReceivedResource {
        ReceivedResource {
            bytes,
            description: Description {
                length: text.len() as u64,
                media_type: None,
                encoding: None,
                hashes: Vec::new(),
                lastmod: None,
                version: None,
                is_patched: false,
            },
        }
    }

    /// A Source whose tasks a test executes, and a publisher.
    struct Publishing {
        source: TestSource,
        context: Arc<ApplyContext>,
        queue: mpsc::Sender<ExecutedTask>,
        committed: mpsc::UnboundedReceiver<Vec<ResourceId>>,
        publisher: JoinHandle<()>,
    }

    impl Publishing {
        /// Announces resources with these paths.
        async fn of(paths: &[impl AsRef<str>]) -> Self {
            let url = Url::parse("https://example.org/").unwrap();
            let source = TestSource::new(&url, |client| client);
            let created = |path: &str| Change {
                kind: ChangeKind::Created,
                ..Change::deletion(uri(path), None)
            };
            let changes = paths.iter().map(|path| created(path.as_ref()));
            source.announce(changes.collect()).await;
            source.store.commit_hook().panic_after(STORED);
            let was_written = AtomicBool::new(false);
            source.disk.panic_at(move |call, of| match call {
                DiskCall::Write => {
                    of.ends_with(WHILE_WRITTEN.as_bytes())
                        && !was_written.swap(true, Ordering::SeqCst)
                }
                DiskCall::Rename => *of == WHILE_PUBLISHED.as_bytes()[1..],
                _ => false,
            });
            let (source_context, mirror) = (Arc::clone(&source.context), &source.mirror);
            let context = ApplyContext::new(source_context, Arc::clone(mirror), true);
            let context = Arc::new(context);
            let (queue, queued) = mpsc::channel(BATCH);
            let (sender, committed) = mpsc::unbounded_channel();
            let publisher = tokio::spawn(publish_all(Arc::clone(&context), queued, sender));
            Self {
                source,
                context,
                queue,
                committed,
                publisher,
            }
        }

        async fn due(&self) -> Vec<Task> {
            let (now, none) = (clock::now().wall, TasksInProgress::default());
            let due = self.source.store.due_tasks(NAME, now, BATCH, none);
            due.await.unwrap().tasks
        }

        /// Has the bytes of a task published.
        fn finish(&self, task: &Task, fetched: ReceivedResource) {
            let outcome = TaskOutcome::Fetched(Box::new(fetched));
            let task = task.clone();
            assert!(self.queue.try_send(ExecutedTask { task, outcome }).is_ok());
        }

        /// How many files are staged, with a name or without one.
        fn staged(&self) -> usize {
            let work = self.source.mirror.root().join(".resyncd/work");
            let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            let targets = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
            let unnamed = work.join("#").into_os_string().into_string().unwrap();
            let is_unnamed = |target: &PathBuf| target.to_string_lossy().starts_with(&unnamed);
            std::fs::read_dir(&work).unwrap().count() + targets.filter(is_unnamed).count()
        }

        /// Executes what is due, has it published in one batch, and waits until all of it is committed. Returns how many tasks
        /// there were.
        async fn execute(&mut self) -> usize {
            let due = self.due().await;
            // The publisher receives nothing before this awaits something.
            for task in &due {
                let text = task.uri.as_str();
                let fetched = if text.ends_with(WHILE_WRITTEN) {
                    in_memory(text)
                } else {
                    staged(&self.source.mirror, text)
                };
                self.finish(task, fetched);
            }
            self.commit(due.len()).await;
            due.len()
        }

        /// Waits until so many tasks are committed.
        async fn commit(&mut self, tasks: usize) {
            let mut missing = tasks;
            while missing > 0 {
                let committed = tokio::time::timeout(LIMIT, self.committed.recv()).await;
                missing -= committed.unwrap().unwrap().len();
            }
        }

        /// Whether the file of a resource is published, and recorded.
        async fn is_applied(&self, path: &str) -> bool {
            let recorded = self.source.store.resource(&uri(path)).await.unwrap();
            recorded.is_some_and(|recorded| {
                let path = MirrorPath::parse(&recorded.path.unwrap()).unwrap();
                self.source.mirror.open_file(&path).is_ok()
            })
        }

        async fn end(self) {
            drop(self.queue);
            let ended = tokio::time::timeout(LIMIT, self.publisher).await;
            ended.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_gathered_only_while_many_tasks_are_queued() {
        let (sender, mut queue) = mpsc::channel(2 * BATCH);
        let send = |numbers: std::ops::Range<usize>| {
            for number in numbers {
                sender.try_send(number).unwrap();
            }
        };
        send(0..2);
        assert_eq!(gather(&mut queue, BATCH, || false).await, [0, 1]);

        send(0..1);
        let mut full = Box::pin(gather(&mut queue, BATCH, || true));
        assert!(futures_util::poll!(&mut full).is_pending());
        send(1..BATCH + 3);
        assert_eq!(full.await, (0..BATCH).collect::<Vec<_>>());

        // The last tasks may take long: what has been executed does not wait for them.
        assert_eq!(
            gather(&mut queue, BATCH, || true).await,
            [BATCH, BATCH + 1, BATCH + 2]
        );

        send(0..5);
        assert_eq!(gather(&mut queue, 3, || true).await, [0, 1, 2]);
        assert_eq!(gather(&mut queue, 3, || true).await, [3, 4]);

        send(0..1);
        drop(sender);
        assert_eq!(gather(&mut queue, BATCH, || true).await, [0]);
        assert!(gather(&mut queue, BATCH, || true).await.is_empty());
    }

    /// A kill between the publication of a file whose plain path was blocked and its commit leaves a file without a record.
    #[tokio::test]
    async fn file_without_record_at_the_made_path_is_removed() {
        let publishing = Publishing::of(&["/a", "/b", "/c"]).await;
        let mirror = &publishing.source.mirror;
        let tasks = publishing.due().await;
        let task = tasks.iter().find(|task| task.uri == uri("/a")).unwrap();
        let made = mirror.root().join(made_path(&uri("/a")).as_str());
        let write_made = || {
            std::fs::create_dir_all(made.parent().unwrap()).unwrap();
            std::fs::write(&made, "bytes").unwrap();
        };
        let fetched = || TaskOutcome::Fetched(Box::new(staged(mirror, "a")));
        let adopted = || {
            TaskOutcome::Adopted(Adopted {
                length: 1,
                hashes: Vec::new(),
                lastmod: None,
            })
        };
        let doubted = Task {
            live: true,
            live_doubted: true,
            ..task.clone()
        };
        let recorded = Task {
            live: true,
            ..task.clone()
        };
        for (what, task, deletes, outcome, remains) in [
            ("created", task, true, fetched(), false),
            ("adopted", task, true, adopted(), false),
            ("deleted", task, true, TaskOutcome::Remove, false),
            ("delete = false", task, false, TaskOutcome::Remove, true),
            ("updated", &doubted, true, fetched(), false),
            ("removed", &doubted, true, TaskOutcome::Remove, false),
            ("without doubt", &recorded, true, fetched(), true),
        ] {
            write_made();
            // The others of the batch have no such file.
            let others = tasks.iter().filter(|other| other.uri != task.uri);
            let others = others.map(|other| (other.clone(), fetched()));
            let batch = others.chain([(task.clone(), outcome)]);
            let batch = batch.map(|(task, outcome)| ExecutedTask { task, outcome });
            let results = publish(mirror, deletes, batch.collect());
            assert_eq!(results.len(), 3, "{what}");
            let has_failed = |result: &TaskResult| matches!(result, TaskResult::Failed { .. });
            assert!(!results.iter().any(has_failed), "{what}");
            assert_eq!(made.exists(), remains, "{what}");
        }

        // A folder that is no resource's blocks nothing; while the plain path is blocked the file is replaced.
        std::fs::remove_file(&made).unwrap();
        std::fs::create_dir(&made).unwrap();
        let executed = |outcome| ExecutedTask {
            task: task.clone(),
            outcome,
        };
        let results = publish(mirror, true, vec![executed(fetched())]);
        assert!(matches!(&results[..], [TaskResult::Published(it)] if it.path == task.path));
        std::fs::remove_dir(&made).unwrap();
        write_made();
        let plain = mirror.root().join(&task.path);
        std::fs::remove_file(&plain).unwrap();
        std::fs::create_dir(&plain).unwrap();
        let results = publish(mirror, true, vec![executed(fetched())]);
        assert!(matches!(&results[..], [TaskResult::Published(it)] if it.path != task.path));
        assert_eq!(std::fs::read(&made).unwrap(), b"a");
        publishing.end().await;
    }

    #[tokio::test]
    async fn resource_gets_its_own_path_once_that_is_free() {
        let mut publishing = Publishing::of(&["/a/b"]).await;
        let (plain, made) = ("example.org/a/b", made_path(&uri("/a/b")).to_string());
        let root = publishing.source.mirror.root().to_owned();
        let in_the_way = root.join("example.org/a");
        std::fs::create_dir_all(in_the_way.parent().unwrap()).unwrap();
        std::fs::write(&in_the_way, "").unwrap();
        let path = async |publishing: &Publishing| {
            let recorded = publishing.source.store.resource(&uri("/a/b")).await;
            recorded.unwrap().unwrap().path.unwrap()
        };
        let update = async |publishing: &mut Publishing, second: i64| {
            let changed_at = SourceTime::from_micros(second * 1_000_000);
            let change = Change {
                kind: ChangeKind::Updated,
                ..Change::deletion(uri("/a/b"), Some(changed_at))
            };
            publishing.source.announce(vec![change]).await;
            assert_eq!(publishing.execute().await, 1);
        };
        assert_eq!(publishing.execute().await, 1);
        update(&mut publishing, 1).await;
        assert_eq!(path(&publishing).await, made);
        assert_eq!(publishing.due().await.len(), 0);

        std::fs::remove_file(&in_the_way).unwrap();
        update(&mut publishing, 2).await;
        assert_eq!(path(&publishing).await, plain);
        assert!(root.join(plain).exists());
        let due = publishing.due().await;
        assert!(due.len() == 1 && due[0].live_doubted, "{due:?}");
        assert_eq!(publishing.execute().await, 1);
        assert!(!root.join(&made).exists());
        update(&mut publishing, 3).await;
        assert_eq!(path(&publishing).await, plain);
        assert_eq!(publishing.due().await.len(), 0);
        publishing.end().await;
    }

    /// The record follows the file, and what is published in doubt removes the other one. A kill may come between any two steps.
    #[tokio::test]
    async fn file_at_the_made_path_gives_way_to_one_at_the_plain_path() {
        let publishing = Publishing::of(&["/a"]).await;
        let mirror = &publishing.source.mirror;
        let due = publishing.due().await;
        let (plain, made) = (due[0].path.clone(), made_path(&uri("/a")).to_string());
        let task = |path: &str, live_doubted| Task {
            live: true,
            live_doubted,
            path: path.to_owned(),
            ..due[0].clone()
        };
        let fetched = || TaskOutcome::Fetched(Box::new(staged(mirror, "a")));
        let both = [&plain, &made];
        for (what, task, outcome, remain) in [
            ("new version", task(&made, false), fetched(), &both[..]),
            ("recorded", task(&plain, true), fetched(), &both[..1]),
            ("not recorded", task(&made, true), fetched(), &both[1..]),
            ("deleted", task(&plain, true), TaskOutcome::Remove, &[]),
            (
                "not recorded, deleted",
                task(&made, true),
                TaskOutcome::Remove,
                &[],
            ),
        ] {
            for path in both {
                let path = mirror.root().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "former").unwrap();
            }
            let results = publish(mirror, true, vec![ExecutedTask { task, outcome }]);
            let found = both
                .into_iter()
                .filter(|path| mirror.root().join(path).exists());
            assert!(found.eq(remain.iter().copied()), "{what}");
            if let [TaskResult::Published(published)] = &results[..] {
                assert_eq!(&published.path, remain[0], "{what}");
            }
        }
        publishing.end().await;
    }

    #[tokio::test]
    async fn nothing_is_changed_in_a_mirror_that_was_moved() {
        let publishing = Publishing::of(&["/a", "/b", "/c", "/d"]).await;
        let mirror = &publishing.source.mirror;
        let due = publishing.due().await;
        let [a, b, c, d] = &due[..] else {
            panic!("{due:?}")
        };
        let executed = |task: &Task, outcome| ExecutedTask {
            task: task.clone(),
            outcome,
        };
        let fetched = || TaskOutcome::Fetched(Box::new(in_memory("new")));
        let published = publish(mirror, true, vec![executed(a, fetched())]);
        assert!(matches!(published[..], [TaskResult::Published(_)]));
        let elsewhere = mirror.root().with_file_name("elsewhere");
        std::fs::rename(mirror.root(), &elsewhere).unwrap();
        let client = Client::new(&HttpSettings::default(), clock::now).unwrap();
        let refusal = TaskError::Interrupted.into_failure(d, &client);
        let batch = vec![
            executed(a, TaskOutcome::Remove),
            executed(b, fetched()),
            executed(c, TaskOutcome::Same { lastmod: None }),
            executed(d, TaskOutcome::Failed(refusal)),
        ];
        let results = publish(mirror, true, batch);
        let failures = results.iter().map(|result| match result {
            TaskResult::Failed { failure, .. } => {
                (failure.code, failure.counts, !failure.is_given_up)
            }
            result => panic!("{result:?}"),
        });
        let missing = ("mirror-missing", false, true);
        let expected = [missing, missing, missing, ("interrupted", true, true)];
        assert_eq!(failures.collect::<Vec<_>>(), expected);
        assert!(elsewhere.join(&a.path).exists() && !elsewhere.join(&b.path).exists());
        std::fs::rename(&elsewhere, mirror.root()).unwrap();
        publishing.end().await;
    }

    #[tokio::test]
    async fn removals_that_fail_are_those_of_their_tasks() {
        let publishing = Publishing::of(&["/a", "/b"]).await;
        let mirror = &publishing.source.mirror;
        let [a, b] = ["/a", "/b"].map(uri);
        let due = publishing.due().await;
        let task_of = |uri: &ResourceUri| due.iter().find(|task| task.uri == *uri).unwrap().clone();
        let symlink_at = |path: &str| {
            let path = mirror.root().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink("nowhere", path).unwrap();
        };
        let removal = |task| ExecutedTask {
            task,
            outcome: TaskOutcome::Remove,
        };
        // The first one may have two files.
        let recorded = Task {
            live: true,
            ..task_of(&b)
        };
        symlink_at(&task_of(&a).path);
        symlink_at(&recorded.path);
        let batch = vec![removal(task_of(&a)), removal(recorded)];
        let results = publish(mirror, true, batch);
        let has_failed = |result: &TaskResult| matches!(result, TaskResult::Failed { .. });
        assert!(results.len() == 2 && results.iter().all(has_failed));

        // Nothing of the resource is at its made path.
        std::fs::remove_file(mirror.root().join(&task_of(&a).path)).unwrap();
        symlink_at(made_path(&a).as_str());
        let results = publish(mirror, true, vec![removal(task_of(&a))]);
        assert!(matches!(results[..], [TaskResult::Removed { .. }]));
        publishing.end().await;
    }

    /// Every file must have its record.
    #[tokio::test]
    async fn nothing_is_published_while_a_batch_is_committed() {
        let mut publishing = Publishing::of(&numbered(2 * MANY)).await;
        let due = publishing.due().await;
        let (first, next) = due.split_at(MANY);
        publishing.context.note_queued(usize::MAX);
        // The publisher gets the answer after the commit.
        let (commits, commit) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let hook = publishing.source.store.commit_hook();
        hook.watch(move |_| {
            let _ = commits.send(());
            // Ends at once when the test has ended.
            let _ = released.recv();
        });
        let finish = |task: &Task| publishing.finish(task, in_memory(task.uri.as_str()));
        first.iter().for_each(finish);
        let waiting = tokio::task::spawn_blocking(move || commit.recv_timeout(LIMIT));
        waiting.await.unwrap().unwrap();

        next.iter().for_each(finish);
        let is_staged = async {
            while publishing.staged() < MANY {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LIMIT, is_staged).await.unwrap();
        let root = publishing.source.mirror.root().to_owned();
        for _ in 0..50 {
            assert_eq!(publishing.staged(), MANY);
            assert!(next.iter().all(|task| !root.join(&task.path).exists()));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(release);
        publishing.commit(due.len()).await;
        for task in &due {
            let bytes = std::fs::read(root.join(&task.path)).unwrap();
            assert_eq!(bytes, task.uri.as_str().as_bytes());
            assert!(publishing.is_applied(task.uri.url().path()).await);
        }
        publishing.end().await;
    }

    #[tokio::test]
    async fn few_tasks_that_are_executed_while_a_batch_is_published_are_one_batch() {
        let mut publishing = Publishing::of(&numbered(MANY + 6)).await;
        let due = publishing.due().await;
        publishing.context.note_queued(usize::MAX);
        let (release, released) = std::sync::mpsc::channel::<()>();
        let hook = publishing.source.store.commit_hook();
        hook.watch(move |_| {
            let _ = released.recv();
        });
        let (first, next) = due.split_at(MANY);
        let finish = |task: &Task| publishing.finish(task, in_memory(task.uri.as_str()));
        first.iter().for_each(finish);
        let received = async || {
            while publishing.queue.capacity() < BATCH {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let limited = tokio::time::timeout(LIMIT, received());
        limited.await.unwrap();
        let is_publishing = async {
            while publishing.staged() > 0
                || !publishing
                    .source
                    .mirror
                    .root()
                    .join(&first[0].path)
                    .exists()
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LIMIT, is_publishing).await.unwrap();
        publishing.context.note_queued(0);
        finish(&next[0]);
        let limited = tokio::time::timeout(LIMIT, received());
        limited.await.unwrap();
        next[1..].iter().for_each(finish);
        drop(release);
        for expected in [MANY, 6] {
            let committed = tokio::time::timeout(LIMIT, publishing.committed.recv()).await;
            assert_eq!(committed.unwrap().unwrap().len(), expected);
        }
        publishing.end().await;
    }

    #[tokio::test]
    async fn tasks_whose_writing_panics_are_published_one_by_one() {
        let mut paths = numbered(MANY - 1);
        paths.push(WHILE_WRITTEN.to_owned());
        let mut publishing = Publishing::of(&paths).await;
        assert_eq!(publishing.execute().await, MANY);
        let due = publishing.due().await;
        assert_eq!(due.len(), MANY, "nothing of the batch is recorded");
        assert!(due.iter().all(|task| task.live_doubted));
        assert_eq!(publishing.execute().await, MANY);
        assert_eq!(publishing.due().await.len(), 0);
        for path in paths {
            assert!(publishing.is_applied(&path).await, "{path}");
        }
        publishing.end().await;
    }

    #[tokio::test]
    async fn publication_that_panics_fails_one_task() {
        let few_and_many = [
            (WHILE_PUBLISHED, 0),
            (WHILE_PUBLISHED, MANY),
            (WHILE_STORED, 0),
        ];
        for (fatal, queued) in few_and_many {
            let mut publishing = Publishing::of(&["/a", fatal, "/b"]).await;
            publishing.context.note_queued(queued);
            assert_eq!(publishing.execute().await, 3);
            let due = publishing.due().await;
            assert_eq!(due.len(), 3, "{fatal}: nothing of the batch is recorded");
            assert!(due.iter().all(|task| task.live_doubted), "{fatal}");
            assert_eq!(publishing.execute().await, 3);
            assert_eq!(publishing.due().await.len(), 0, "{fatal}");
            for path in ["/a", "/b"] {
                assert!(publishing.is_applied(path).await, "{fatal}: {path}");
            }
            let store = &publishing.source.store;
            let error = store.task_error(NAME, &uri(fatal)).await.unwrap();
            assert_eq!(error.unwrap().0, "panicked", "{fatal}");
            assert_eq!(publishing.source.context.progress.counts().failed, 1);
            publishing.end().await;
        }
    }

    /// If they were executed without doubt, a server that has reverted the change would be believed that the file is the same.
    #[tokio::test]
    async fn tasks_of_a_batch_that_panics_wait_until_their_doubts_are_stored() {
        let mut publishing = Publishing::of(&["/a", WHILE_PUBLISHED]).await;
        let hook = publishing.source.store.commit_hook();
        hook.let_fail(true);
        hook.fail_after(0);
        assert_eq!(publishing.execute().await, 2);
        let due = publishing.due().await;
        assert_eq!(due.len(), 2);
        assert!(due.iter().all(|task| task.live_doubted));
        publishing.end().await;
    }

    #[tokio::test]
    async fn panic_that_cannot_be_stored_stops_no_other_task() {
        let mut publishing = Publishing::of(&["/a", WHATEVER_IS_STORED]).await;
        assert_eq!(publishing.execute().await, 2);
        assert_eq!(publishing.execute().await, 2);
        assert!(publishing.is_applied("/a").await);
        assert_eq!(publishing.execute().await, 1, "it is tried again");
        assert!(publishing.due().await[0].live_doubted);
        publishing.end().await;
    }
}
