//! Publishes executed tasks, many at once: first the files, then their records in one transaction.
//!
//! A panic fails the task that causes it, no more: after the panic of a batch its tasks are executed again, and each of them is
//! published by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::sync::mpsc;

use super::adoption::Adopted;
use super::context::ApplyContext;
use super::download::DownloadError;
use super::execute::TaskOutcome;
use super::staged::{Description, StagedResource};
use crate::clock;
use crate::engine::restarts::{Panicked, Restarts, catch_panic};
use crate::error_class::ErrorClass;
use crate::mirror::{CompletedFile, Mirror, MirrorError, file_time};
use crate::mirror_path::{MirrorPath, made_path};
use crate::protocol::SourceTime;
use crate::status::StatusError;
use crate::store::{Origin, Publication, ResourceId, StoreError, Task, TaskFailure, TaskResult};

/// How many tasks are published at once.
const BATCH: usize = 256;
/// The pause after a database error, or the panic of a batch.
const PAUSE: Duration = Duration::from_secs(2);

/// An executed task.
pub(super) struct ExecutedTask {
    pub(super) task: Task,
    pub(super) outcome: TaskOutcome,
}

/// Publishes what is queued until the queue is closed; sends which tasks are concluded.
pub(super) async fn publish_all(
    context: Arc<ApplyContext>,
    mut queue: mpsc::Receiver<ExecutedTask>,
    concluded: mpsc::UnboundedSender<Vec<ResourceId>>,
) {
    let mut publisher = Publisher {
        restarts: Restarts::of("publisher", context.name()),
        context,
        concluded,
        suspects: HashMap::new(),
    };
    let mut batch = Vec::with_capacity(BATCH);
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        for batch in publisher.split(std::mem::take(&mut batch)) {
            publisher.publish_batch(batch).await;
        }
    }
}

struct Publisher {
    context: Arc<ApplyContext>,
    concluded: mpsc::UnboundedSender<Vec<ResourceId>>,
    /// The tasks of batches that have panicked: resource and version. At most one a resource.
    suspects: HashMap<ResourceId, i64>,
    /// The panics that could not even be stored.
    restarts: Restarts,
}

impl Publisher {
    /// Divides executed tasks into batches: each suspect is one by itself, after all others.
    fn split(
        &mut self,
        finished: Vec<ExecutedTask>,
    ) -> impl Iterator<Item = Vec<ExecutedTask>> + use<> {
        let (suspects, others): (Vec<_>, Vec<_>) =
            finished.into_iter().partition(|ExecutedTask { task, .. }| {
                self.suspects.remove(&task.resource) == Some(task.version)
            });
        let others = Some(others).filter(|others| !others.is_empty());
        let suspects = suspects.into_iter().map(|suspect| vec![suspect]);
        others.into_iter().chain(suspects)
    }

    async fn publish_batch(&mut self, batch: Vec<ExecutedTask>) {
        let tasks = batch.iter().map(|ExecutedTask { task, .. }| task);
        let versions: Vec<(ResourceId, i64)> =
            tasks.map(|task| (task.resource, task.version)).collect();
        let ids: Vec<ResourceId> = versions.iter().map(|&(id, _)| id).collect();
        let only = match &batch[..] {
            [finished] => Some(finished.task.clone()),
            _ => None,
        };
        if self.try_to_publish(batch).await.is_err() {
            // Also one that fails: it may panic again after the next poll.
            self.suspects.extend(versions);
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
        let _ = self.concluded.send(ids);
    }

    async fn try_to_publish(&self, batch: Vec<ExecutedTask>) -> Result<(), Panicked> {
        let context = &self.context;
        let (mirror, deletes) = (Arc::clone(&context.mirror), context.source.source.delete);
        let publishing = tokio::task::spawn_blocking(move || publish(&mirror, deletes, batch));
        let conclusions = publishing.await.map_err(|_| Panicked)?;
        catch_panic(conclude(context, conclusions)).await?
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
        tokio::select! {
            () = context.source.stop.cancelled() => {}
            () = tokio::time::sleep(PAUSE) => {}
        }
    }

    /// Stores that the publication of a task has panicked. The file may have been changed all the same.
    async fn fail(&self, task: Task) -> Result<(), Panicked> {
        let failure = TaskFailure {
            is_in_doubt: true,
            ..DownloadError::Panicked.into_failure(&task)
        };
        let failed = vec![TaskResult::Failed { task, failure }];
        catch_panic(conclude(&self.context, failed)).await?
    }

    /// Has a task executed again whose failure can't be stored, after a pause that grows. Others are published meanwhile.
    async fn postpone(&mut self, ids: Vec<ResourceId>) {
        doubt(&self.context, &ids).await;
        let (_, pause) = self.restarts.after_panic();
        let (concluded, stop) = (self.concluded.downgrade(), self.context.source.stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
            if let Some(concluded) = concluded.upgrade() {
                let _ = concluded.send(ids);
            }
        });
    }
}

/// Commits the results of tasks. While that fails nothing more is published: every file must have its record. A panic has
/// committed nothing, or is one after the commit.
async fn conclude(context: &ApplyContext, conclusions: Vec<TaskResult>) -> Result<(), Panicked> {
    report(context, &conclusions);
    let conclusions = Arc::new(conclusions);
    loop {
        match complete(context, Arc::clone(&conclusions)).await {
            Ok(()) => {
                let counted = conclusions.iter();
                counted.for_each(|conclusion| count(context, conclusion));
                return Ok(());
            }
            Err(StoreError::Panicked) => return Err(Panicked),
            Err(error) => {
                tracing::error!(code = error.code(), source = context.name(), %error, "results of tasks can't be committed; retrying");
                tokio::select! {
                    // The files are complete; tasks without a committed result are executed again.
                    () = context.source.stop.cancelled() => {
                        context.source.store.lose_results();
                        return Ok(());
                    }
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
    }
}

async fn complete(
    context: &ApplyContext,
    conclusions: Arc<Vec<TaskResult>>,
) -> Result<(), StoreError> {
    #[cfg(test)]
    if conclusions.iter().any(tests::panics_the_store) {
        return Err(StoreError::Panicked);
    }
    let store = &context.source.store;
    store.complete(clock::now().wall, conclusions).await
}

/// Records that the files of these resources may have been changed without a record.
async fn doubt(context: &ApplyContext, resources: &[ResourceId]) {
    let store = &context.source.store;
    if let Err(error) = store.doubt(resources.to_vec()).await {
        tracing::error!(code = error.code(), source = context.name(), %error, "database error; doubts about files are recorded at the next start");
        store.lose_results();
    }
}

fn report(context: &ApplyContext, conclusions: &[TaskResult]) {
    let source = context.name();
    for conclusion in conclusions {
        match conclusion {
            TaskResult::Published(Publication {
                task, path, news, ..
            }) => {
                report_disk_ok(context, task);
                if *news {
                    tracing::debug!(source, uri = %task.uri, path, change = task.kind.as_str(), "applied");
                }
            }
            TaskResult::Removed { task, .. } => {
                report_disk_ok(context, task);
                tracing::debug!(source, uri = %task.uri, "removed");
            }
            TaskResult::Contradicted { task, .. } => report_disk_ok(context, task),
            TaskResult::Left { task, .. } => {
                report_disk_ok(context, task);
                tracing::debug!(code = "left-set", source, uri = %task.uri,
                    "resource deleted in one set is still served and in another one; keeping the file");
            }
            TaskResult::Failed { task, failure } => {
                let TaskFailure {
                    code,
                    message,
                    retry_at,
                    counts,
                    ..
                } = failure;
                let uri = &task.uri;
                if !counts {
                    report_disk_error(context, task, failure);
                    continue;
                }
                report_disk_ok(context, task);
                if retry_at.is_some() {
                    tracing::debug!(code, source, %uri, error = message, "resource unavailable; retrying");
                } else {
                    tracing::warn!(code, source, %uri, error = message, "resource given up until the next poll");
                }
            }
        }
    }
}

fn count(context: &ApplyContext, conclusion: &TaskResult) {
    match conclusion {
        TaskResult::Failed { failure, .. } if failure.retry_at.is_some() => {}
        TaskResult::Failed { .. } => context.source.progress.count_failed(),
        TaskResult::Published(_)
        | TaskResult::Removed { .. }
        | TaskResult::Left { .. }
        | TaskResult::Contradicted { .. } => {
            context.source.progress.count_applied();
        }
    }
}

/// Logs once that the mirror can't be written.
fn report_disk_error(context: &ApplyContext, task: &Task, failure: &TaskFailure) {
    let (source, now) = (context.name(), clock::now());
    let TaskFailure { code, message, .. } = failure;
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
    #[cfg(test)]
    tests::panic_while_published(&finished);
    let mut conclusions = Vec::with_capacity(finished.len());
    let mut removals = Vec::new();
    let mut fetched = Vec::new();
    for ExecutedTask { task, outcome } in finished {
        match outcome {
            // Also without a record: a crash may have come between a file and its commit. A removal that an audit requests
            // ignores `delete = false`.
            TaskOutcome::Remove if deletes || task.origin == Origin::Audit => removals.push(task),
            TaskOutcome::Remove => conclusions.push(TaskResult::Removed {
                kept: task.live,
                task,
            }),
            TaskOutcome::Fetched(file) => fetched.push((task, *file)),
            TaskOutcome::Adopted(adopted) => conclusions.push(adopt(task, adopted)),
            TaskOutcome::Same { lastmod } => conclusions.push(touch(mirror, task, lastmod)),
            TaskOutcome::Left { is_same } => conclusions.push(TaskResult::Left { task, is_same }),
            TaskOutcome::Contradicted { is_same } => {
                conclusions.push(TaskResult::Contradicted { task, is_same });
            }
            TaskOutcome::Failed(failure) => conclusions.push(TaskResult::Failed { task, failure }),
        }
    }
    // First, so that a file may make way for a folder of its name, and the other way round.
    remove(mirror, removals, &mut conclusions);
    publish_files(mirror, fetched, &mut conclusions);
    conclusions
}

fn remove(mirror: &Mirror, tasks: Vec<Task>, conclusions: &mut Vec<TaskResult>) {
    let mut named = Vec::new();
    for task in tasks {
        match MirrorPath::parse(&task.path) {
            Ok(path) => named.push((task, path)),
            Err(error) => conclusions.push(failed(task, &error.into())),
        }
    }
    let paths: Vec<MirrorPath> = named.iter().map(|(_, path)| path.clone()).collect();
    for ((task, _), removed) in named.into_iter().zip(mirror.remove(&paths)) {
        conclusions.push(match removed {
            Ok(_) => TaskResult::Removed { task, kept: false },
            Err(error) => failed_in_doubt(task, &error),
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
    fetched: Vec<(Task, StagedResource)>,
    conclusions: &mut Vec<TaskResult>,
) {
    let first = fetched.into_iter().map(|(task, fetched)| {
        let StagedResource { file, description } = fetched;
        let path = MirrorPath::parse(&task.path).unwrap_or_else(|_| made_path(&task.uri));
        let placed = PlacedFile {
            task,
            description,
            path,
        };
        (file, placed)
    });
    let blocked = place(mirror, first.collect(), conclusions);
    // Where a folder or a file is in the way of the plain path, the made one is used.
    let again = blocked.into_iter().map(|(file, placed)| {
        let path = made_path(&placed.task.uri);
        (file, PlacedFile { path, ..placed })
    });
    for (_, placed) in place(mirror, again.collect(), conclusions) {
        conclusions.push(failed(
            placed.task,
            &MirrorError::Blocked {
                path: placed.path.to_string(),
            },
        ));
    }
}

/// Publishes files; returns those whose path is blocked.
fn place(
    mirror: &Mirror,
    files: Vec<(CompletedFile, PlacedFile)>,
    conclusions: &mut Vec<TaskResult>,
) -> Vec<(CompletedFile, PlacedFile)> {
    let (publications, placed): (Vec<_>, Vec<_>) = files
        .into_iter()
        .map(|(file, placed)| ((file, placed.path.clone()), placed))
        .unzip();
    let mut blocked = Vec::new();
    for (placed, outcome) in placed.into_iter().zip(mirror.publish(publications)) {
        match outcome {
            Ok(()) => conclusions.push(published(placed)),
            Err(unpublished) => match unpublished.file {
                Some(file) if matches!(unpublished.error, MirrorError::Blocked { .. }) => {
                    blocked.push((file, placed))
                }
                // It may have been renamed.
                _ => conclusions.push(failed_in_doubt(placed.task, &unpublished.error)),
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
    let Description {
        length,
        media_type,
        encoding,
        hashes,
        lastmod,
        version,
    } = description;
    let same = task.live
        && task.origin != Origin::Audit
        && task.live_length == Some(length)
        && hashes.iter().any(|hash| task.live_hashes.contains(hash));
    TaskResult::Published(Publication {
        task,
        path: path.to_string(),
        length,
        media_type,
        encoding,
        hashes,
        lastmod,
        version,
        news: !same,
    })
}

/// A file that was there before its record. It is an entry of the feed, which is as new as the database.
fn adopt(task: Task, adopted: Adopted) -> TaskResult {
    TaskResult::Published(Publication {
        path: task.path.clone(),
        length: adopted.length,
        media_type: task.content.media_type.clone(),
        encoding: None,
        hashes: adopted.hashes,
        lastmod: adopted.lastmod,
        version: None,
        news: true,
        task,
    })
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
        Ok(_) => TaskResult::Published(Publication {
            path: task.path.clone(),
            length: task.live_length.unwrap_or_default(),
            media_type: task.content.media_type.clone(),
            encoding: None,
            hashes: task.live_hashes.clone(),
            lastmod,
            version: None,
            news: false,
            task,
        }),
        // It was removed a moment ago: the next try fetches it.
        Err(error) => failed(task, &error),
    }
}

/// A task that may have changed the file all the same: the rename or the removal may be on disk.
fn failed_in_doubt(task: Task, error: &MirrorError) -> TaskResult {
    match failed(task, error) {
        TaskResult::Failed { task, failure } => TaskResult::Failed {
            task,
            failure: TaskFailure {
                is_in_doubt: true,
                ..failure
            },
        },
        result => result,
    }
}

fn failed(task: Task, error: &MirrorError) -> TaskResult {
    let is_fatal = error.class() == ErrorClass::Fatal;
    let again = is_fatal || matches!(error, MirrorError::Missing { .. });
    let wait = again.then_some(TimeDelta::seconds(10));
    let failure = TaskFailure {
        code: error.code(),
        message: error.to_string(),
        retry_at: wait.map(|wait| clock::now().wall + wait),
        counts: !is_fatal,
        is_absent: false,
        is_in_doubt: false,
        awaits_sets: false,
    };
    TaskResult::Failed { task, failure }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;
    use url::Url;

    use super::*;
    use crate::engine::test_source::{NAME, TestSource};
    use crate::protocol::{ChangeKind, ResourceUri};
    use crate::store::{Change, ChangeBatch, TasksInProgress};

    /// The publication of a resource with this path panics.
    const WHILE_PUBLISHED: &str = "/panic-while-published";
    /// The store panics when it is to store that a resource with this path was published.
    const WHILE_STORED: &str = "/panic-while-stored";
    /// The store panics whatever it is to store about a resource with this path.
    const WHATEVER_IS_STORED: &str = "/panic-whatever-is-stored";
    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    pub(super) fn panic_while_published(finished: &[ExecutedTask]) {
        let mut paths = finished.iter().map(|it| it.task.uri.url().path());
        assert!(!paths.any(|path| path == WHILE_PUBLISHED), "a test");
    }

    pub(super) fn panics_the_store(result: &TaskResult) -> bool {
        match result {
            TaskResult::Published(Publication { task, .. }) => {
                [WHILE_STORED, WHATEVER_IS_STORED].contains(&task.uri.url().path())
            }
            TaskResult::Failed { task, .. } => task.uri.url().path() == WHATEVER_IS_STORED,
            _ => false,
        }
    }

    fn uri(path: &str) -> ResourceUri {
        ResourceUri::parse(&format!("https://example.org{path}")).unwrap()
    }

    /// A Source whose tasks a test executes, and a publisher.
    struct Publishing {
        source: TestSource,
        queue: mpsc::Sender<ExecutedTask>,
        concluded: mpsc::UnboundedReceiver<Vec<ResourceId>>,
        publisher: JoinHandle<()>,
    }

    impl Publishing {
        /// Announces resources with these paths.
        async fn of(paths: &[&str]) -> Self {
            let url = Url::parse("https://example.org/").unwrap();
            let source = TestSource::new(&url, |client| client);
            let set = source.store.begin_set(NAME, &url).await.unwrap().id;
            let created = |path: &&str| Change {
                kind: ChangeKind::Created,
                ..Change::deletion(uri(path), None)
            };
            let applied = source.store.apply(ChangeBatch {
                set,
                source: NAME.to_owned(),
                origin: Origin::Notification,
                now: clock::now().wall,
                begins: true,
                changes: paths.iter().map(created).collect(),
                end: None,
            });
            assert_eq!(applied.await.unwrap().tasks, paths.len() as u64);
            let (source_context, mirror) = (Arc::clone(&source.context), &source.mirror);
            let context = ApplyContext::new(source_context, Arc::clone(mirror));
            let (queue, queued) = mpsc::channel(BATCH);
            let (sender, concluded) = mpsc::unbounded_channel();
            let publisher = tokio::spawn(publish_all(Arc::new(context), queued, sender));
            Self {
                source,
                queue,
                concluded,
                publisher,
            }
        }

        async fn due(&self) -> Vec<Task> {
            let (now, none) = (clock::now().wall, TasksInProgress::default());
            let due = self.source.store.due_tasks(NAME, now, BATCH, none);
            due.await.unwrap().0
        }

        /// Executes what is due, has it published in one batch, and waits until all of it is concluded. Returns how many tasks
        /// there were.
        async fn execute(&mut self) -> usize {
            let due = self.due().await;
            let mut missing = due.len();
            // The publisher receives nothing before this awaits something.
            for task in due.clone() {
                let mut staged = self.source.mirror.stage().unwrap();
                staged.write(task.uri.as_str().as_bytes()).unwrap();
                let fetched = StagedResource {
                    file: staged.finish(None).unwrap(),
                    description: Description {
                        length: task.uri.as_str().len() as u64,
                        media_type: None,
                        encoding: None,
                        hashes: Vec::new(),
                        lastmod: None,
                        version: None,
                    },
                };
                let outcome = TaskOutcome::Fetched(Box::new(fetched));
                assert!(self.queue.try_send(ExecutedTask { task, outcome }).is_ok());
            }
            while missing > 0 {
                let concluded = tokio::time::timeout(LIMIT, self.concluded.recv()).await;
                missing -= concluded.unwrap().unwrap().len();
            }
            due.len()
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

    #[tokio::test]
    async fn publication_that_panics_fails_one_task() {
        for fatal in [WHILE_PUBLISHED, WHILE_STORED] {
            let mut publishing = Publishing::of(&["/a", fatal, "/b"]).await;
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
            let error = store.task_error(NAME, uri(fatal).as_str()).await.unwrap();
            assert_eq!(error.unwrap().0, "panicked", "{fatal}");
            assert_eq!(publishing.source.context.progress.counts().failed, 1);
            publishing.end().await;
        }
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
