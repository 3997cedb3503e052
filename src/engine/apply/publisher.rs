//! Publishes executed tasks, many at once: first the files, then their records in one transaction.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::sync::mpsc;

use super::adoption::Adopted;
use super::context::ApplyContext;
use super::execute::TaskOutcome;
use super::staged::{Description, StagedResource};
use crate::clock;
use crate::engine::restarts::{Panicked, catch_panic};
use crate::error_class::ErrorClass;
use crate::mirror::{CompletedFile, Mirror, MirrorError, file_time};
use crate::mirror_path::{MirrorPath, made_path};
use crate::protocol::SourceTime;
use crate::status::StatusError;
use crate::store::{Origin, Publication, ResourceId, Task, TaskFailure, TaskResult};

/// How many tasks are published at once.
const BATCH: usize = 256;
/// The pause after a database error or a panic.
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
    let mut batch = Vec::with_capacity(BATCH);
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let finished = std::mem::take(&mut batch);
        let ids: Vec<ResourceId> = finished
            .iter()
            .map(|finished| finished.task.resource)
            .collect();
        let (mirror, deletes) = (Arc::clone(&context.mirror), context.source.source.delete);
        let publishing = tokio::task::spawn_blocking(move || publish(&mirror, deletes, finished));
        let published = match publishing.await {
            Ok(conclusions) => catch_panic(conclude(&context, conclusions)).await,
            Err(_) => Err(Panicked),
        };
        if published.is_err() {
            tracing::error!(
                code = "publisher",
                source = context.name(),
                "publishing panicked; retrying"
            );
            doubt(&context, &ids).await;
            // The tasks are still in the database, and are executed again.
            tokio::select! {
                () = context.source.stop.cancelled() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        // After the executor has ended nothing receives it.
        let _ = concluded.send(ids);
    }
}

/// Commits the results of tasks. While that fails nothing more is published: every file must have its record.
async fn conclude(context: &ApplyContext, conclusions: Vec<TaskResult>) {
    report(context, &conclusions);
    let conclusions = Arc::new(conclusions);
    loop {
        match context
            .source
            .store
            .complete(clock::now().wall, Arc::clone(&conclusions))
            .await
        {
            Ok(()) => {
                let counted = conclusions.iter();
                return counted.for_each(|conclusion| count(context, conclusion));
            }
            Err(error) => {
                tracing::error!(code = error.code(), source = context.name(), %error, "results of tasks can't be committed; retrying");
                tokio::select! {
                    // The files are complete; tasks without a committed result are executed again.
                    () = context.source.stop.cancelled() => return context.source.store.lose_results(),
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
    }
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
    };
    TaskResult::Failed { task, failure }
}
