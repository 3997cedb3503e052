//! Makes finished tasks visible, many at once: files first, then, in one transaction, what the database says of them.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::sync::mpsc;

use super::adoption::Adopted;
use super::download::{Description, Fetched, TaskOutcome};
use crate::clock;
use crate::engine::context::SourceContext;
use crate::mirror::{CompletedFile, Mirror, MirrorError, MirrorPath, file_time, made_path};
use crate::protocol::SourceTime;
use crate::status::StatusError;
use crate::store::{Origin, Publication, ResourceId, Task, TaskFailure, TaskResult};

/// How many tasks are published at once.
const BATCH: usize = 256;
/// The pause after the disk or the database refused to take something.
const PAUSE: Duration = Duration::from_secs(2);

/// A task that was carried out.
pub(in crate::engine) struct Finished {
    pub(in crate::engine) task: Task,
    pub(in crate::engine) outcome: TaskOutcome,
}

/// Publishes what comes in until nothing more can come; tells which tasks are concluded.
pub(in crate::engine) async fn publish_all(
    context: Arc<SourceContext>,
    mirror: Arc<Mirror>,
    mut queue: mpsc::Receiver<Finished>,
    concluded: mpsc::UnboundedSender<Vec<ResourceId>>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let finished = std::mem::take(&mut batch);
        let ids = finished
            .iter()
            .map(|finished| finished.task.resource)
            .collect();
        let (mirror, deletes) = (Arc::clone(&mirror), context.source.delete);
        let publishing = tokio::task::spawn_blocking(move || publish(&mirror, deletes, finished));
        match publishing.await {
            Ok(conclusions) => conclude(&context, conclusions).await,
            // The tasks are still in the database, and are done again.
            Err(error) => {
                tracing::error!(code = "publisher", source = context.name(), %error, "publishing ended badly")
            }
        }
        // Once the applier has gone, nobody asks which tasks are done.
        let _ = concluded.send(ids);
    }
}

/// Keeps what came of the tasks. While the database refuses, nothing more is published: it must know of what there is.
async fn conclude(context: &SourceContext, conclusions: Vec<TaskResult>) {
    tell(context, &conclusions);
    let conclusions = Arc::new(conclusions);
    loop {
        match context
            .store
            .conclude(clock::now().wall, Arc::clone(&conclusions))
            .await
        {
            Ok(()) => {
                let counted = conclusions.iter();
                return counted.for_each(|conclusion| count(context, conclusion));
            }
            Err(error) => {
                tracing::error!(code = error.code(), source = context.name(), %error, "what was applied can't be kept yet");
                tokio::select! {
                    // The files are whole; what the database does not know is done again.
                    () = context.stop.cancelled() => return,
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
    }
}

fn tell(context: &SourceContext, conclusions: &[TaskResult]) {
    let source = context.name();
    for conclusion in conclusions {
        match conclusion {
            TaskResult::Published(Publication {
                task, path, news, ..
            }) => {
                tell_taken(context, task);
                if *news {
                    tracing::debug!(source, uri = %task.uri, path, change = task.kind.as_str(), "applied");
                }
            }
            TaskResult::Removed { task, .. } => {
                tell_taken(context, task);
                tracing::debug!(source, uri = %task.uri, "removed");
            }
            TaskResult::Failed { task, failure } => {
                let TaskFailure {
                    code,
                    message,
                    retry_at,
                    counts,
                } = failure;
                let uri = &task.uri;
                if !counts {
                    tell_refused(context, task, failure);
                    continue;
                }
                tell_taken(context, task);
                if retry_at.is_some() {
                    tracing::debug!(code, source, %uri, error = message, "a resource can't be had yet");
                } else {
                    tracing::warn!(code, source, %uri, error = message, "a resource was given up until the next poll");
                }
            }
        }
    }
}

fn count(context: &SourceContext, conclusion: &TaskResult) {
    match conclusion {
        TaskResult::Failed { failure, .. } if failure.retry_at.is_some() => {}
        TaskResult::Failed { .. } => context.progress.count_failed(),
        TaskResult::Published(_) | TaskResult::Removed { .. } => {
            context.progress.count_applied();
        }
    }
}

/// Tells once when the mirror's disk begins to refuse files.
fn tell_refused(context: &SourceContext, task: &Task, failure: &TaskFailure) {
    let (source, now) = (context.name(), clock::now());
    let TaskFailure { code, message, .. } = failure;
    let status_error = StatusError::new(code, message.as_str(), now.wall);
    let runtime_status = &context.runtime_status;
    if runtime_status.note_refusal(source, Some(task.resource), status_error, now.mono) {
        tracing::error!(
            code,
            source,
            error = message,
            "the mirror can't be written: what is to be applied waits"
        );
    }
}

/// Tells once when the mirror's disk takes again what it refused.
fn tell_taken(context: &SourceContext, task: &Task) {
    let source = context.name();
    if context
        .runtime_status
        .note_taken(source, Some(task.resource))
    {
        tracing::info!(source, "the mirror can be written again");
    }
}

/// Changes the mirror. For a blocking thread.
pub(in crate::engine) fn publish(
    mirror: &Mirror,
    deletes: bool,
    finished: Vec<Finished>,
) -> Vec<TaskResult> {
    let mut conclusions = Vec::with_capacity(finished.len());
    let mut removals = Vec::new();
    let mut fetched = Vec::new();
    for Finished { task, outcome } in finished {
        match outcome {
            // Also of what the database does not know to be here: a crash may have come between a file and its commit. Who asks
            // an audit to remove something has asked for just that.
            TaskOutcome::Remove if deletes || task.origin == Origin::Audit => removals.push(task),
            TaskOutcome::Remove => conclusions.push(TaskResult::Removed {
                kept: task.live,
                task,
            }),
            TaskOutcome::Fetched(file) => fetched.push((task, *file)),
            TaskOutcome::Adopted(adopted) => conclusions.push(adopt(task, adopted)),
            TaskOutcome::Same { lastmod } => conclusions.push(touch(mirror, task, lastmod)),
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
            Err(error) => conclusions.push(failed(task, &error)),
        }
    }
    let paths: Vec<MirrorPath> = named.iter().map(|(_, path)| path.clone()).collect();
    for ((task, _), removed) in named.into_iter().zip(mirror.remove(&paths)) {
        conclusions.push(match removed {
            Ok(_) => TaskResult::Removed { task, kept: false },
            Err(error) => failed(task, &error),
        });
    }
}

/// What became of a file's place.
struct Placed {
    task: Task,
    description: Description,
    path: MirrorPath,
}

fn publish_files(
    mirror: &Mirror,
    fetched: Vec<(Task, Fetched)>,
    conclusions: &mut Vec<TaskResult>,
) {
    let first = fetched.into_iter().map(|(task, fetched)| {
        let Fetched { whole, description } = fetched;
        let path = MirrorPath::parse(&task.path).unwrap_or_else(|_| made_path(&task.uri));
        let placed = Placed {
            task,
            description,
            path,
        };
        (whole, placed)
    });
    let blocked = place(mirror, first.collect(), conclusions);
    // Where the plain name can't be had, because a folder or a file is in its way, one is made that always can.
    let again = blocked.into_iter().map(|(whole, placed)| {
        let path = made_path(&placed.task.uri);
        (whole, Placed { path, ..placed })
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

/// Publishes files; answers those whose place is taken.
fn place(
    mirror: &Mirror,
    files: Vec<(CompletedFile, Placed)>,
    conclusions: &mut Vec<TaskResult>,
) -> Vec<(CompletedFile, Placed)> {
    let (publications, placed): (Vec<_>, Vec<_>) = files
        .into_iter()
        .map(|(whole, placed)| ((whole, placed.path.clone()), placed))
        .unzip();
    let mut blocked = Vec::new();
    for (placed, outcome) in placed.into_iter().zip(mirror.publish(publications)) {
        match outcome {
            Ok(()) => conclusions.push(published(placed)),
            Err(unpublished) => match unpublished.whole {
                Some(whole) if matches!(unpublished.error, MirrorError::Blocked { .. }) => {
                    blocked.push((whole, placed))
                }
                _ => conclusions.push(failed(placed.task, &unpublished.error)),
            },
        }
    }
    blocked
}

fn published(placed: Placed) -> TaskResult {
    let Placed {
        task,
        description,
        path,
    } = placed;
    let Description {
        length,
        media_type,
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
        hashes,
        lastmod,
        version,
        news: !same,
    })
}

/// A file that was there before the database knew of it. To whoever follows the feed it is news: the feed is as new as the
/// database.
fn adopt(task: Task, adopted: Adopted) -> TaskResult {
    TaskResult::Published(Publication {
        path: task.path.clone(),
        length: adopted.length,
        media_type: task.media_type.clone(),
        hashes: adopted.hashes,
        lastmod: adopted.lastmod,
        version: None,
        news: true,
        task,
    })
}

/// Gives a file that has the right bytes already the time that was told with them.
fn touch(mirror: &Mirror, task: Task, lastmod: Option<SourceTime>) -> TaskResult {
    let touched = MirrorPath::parse(&task.path)
        .and_then(|path| mirror.open_file(&path))
        .map(|file| {
            // A file whose time can't be set, as one of another owner, has the right bytes all the same.
            lastmod.map(|time| file.set_modified(file_time(time)))
        });
    match touched {
        Ok(_) => TaskResult::Published(Publication {
            path: task.path.clone(),
            length: task.live_length.unwrap_or_default(),
            media_type: task.media_type.clone(),
            hashes: task.live_hashes.clone(),
            lastmod,
            version: None,
            news: false,
            task,
        }),
        // Somebody has removed it this moment: the next try fetches it.
        Err(error) => failed(task, &error),
    }
}

fn failed(task: Task, error: &MirrorError) -> TaskResult {
    let again = error.is_transient() || matches!(error, MirrorError::Missing { .. });
    let wait = again.then_some(TimeDelta::seconds(10));
    let failure = TaskFailure {
        code: error.code(),
        message: error.to_string(),
        retry_at: wait.map(|wait| clock::now().wall + wait),
        counts: !error.is_transient(),
    };
    TaskResult::Failed { task, failure }
}
