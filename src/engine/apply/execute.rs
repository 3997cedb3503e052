//! Executes one task, up to the point where the result becomes visible.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use chrono::TimeDelta;
use futures_util::FutureExt;
use url::Url;

use super::adoption::{Adopted, adopt};
use super::candidates;
use super::context::ApplyContext;
use super::download::{DownloadError, FetchOutcome};
use super::staged::StagedResource;
use crate::clock;
use crate::error_class::ErrorClass;
use crate::fetch::{AllowedHosts, Content, FetchError};
use crate::mirror::Mirror;
use crate::mirror_path::MirrorPath;
use crate::protocol::{ChangeKind, ServedVersion, SourceTime};
use crate::store::{Origin, Task, TaskFailure};

/// How long a deletion waits for a set that was never read completely.
const LONGEST_WAIT: TimeDelta = TimeDelta::days(1);

/// The result of a task before it is published.
pub(super) enum TaskOutcome {
    /// A staged file.
    Fetched(Box<StagedResource>),
    /// The file has the announced content already; only its time is set.
    Same { lastmod: Option<SourceTime> },
    /// The file was in its place already, and not in the database.
    Adopted(Adopted),
    /// The file is to be removed.
    Remove,
    /// The resource is to be deleted for one of its sets, and the Source still serves it.
    Left {
        /// Whether it serves what the mirror has, as far as that can be told.
        is_same: bool,
    },
    /// The resource is to be deleted, as only a hub has stated or as a list contradicts a hub, and the Source still serves it.
    Contradicted {
        /// Whether it serves what the mirror has, as far as that can be told.
        is_same: bool,
    },
    /// It could not be executed.
    Failed(TaskFailure),
}

/// Executes a task. A panic fails the one task, no more.
pub(super) async fn execute(context: &Arc<ApplyContext>, task: &Task) -> TaskOutcome {
    let executing = AssertUnwindSafe(execute_unguarded(context, task)).catch_unwind();
    executing
        .await
        .unwrap_or_else(|_| TaskOutcome::Failed(DownloadError::Panicked.into_failure(task)))
}

async fn execute_unguarded(context: &Arc<ApplyContext>, task: &Task) -> TaskOutcome {
    let mirror = &context.mirror;
    if task.kind == ChangeKind::Deleted {
        return if task.origin == Origin::Audit {
            TaskOutcome::Remove
        } else if task.is_shared || task.unconfirmed {
            confirm_removal(context, task).await
        } else {
            remove_unless_awaited(context, task).await
        };
    }
    // What only a hub states of the bytes proves nothing of those of the Source.
    if !task.unconfirmed
        && let Some(adopted) = adopt(mirror, task).await
    {
        return TaskOutcome::Adopted(adopted);
    }
    let by_digest = !task.unconfirmed && is_known_by_digest(task);
    let mut known = known_version(task);
    if by_digest || known.is_some() {
        let in_place = is_in_place(mirror, task).await;
        if by_digest && in_place {
            return TaskOutcome::Same {
                lastmod: task.lastmod.or(task.changed_at),
            };
        }
        known = known.filter(|_| in_place);
    }
    match candidates::fetch(context, task, known.as_ref()).await {
        Ok(FetchOutcome::Fetched(fetched)) => {
            if task.contradicted {
                candidates::report_contradiction(context, task, "the Source serves it").await;
            }
            TaskOutcome::Fetched(fetched)
        }
        Ok(FetchOutcome::NotModified) => TaskOutcome::Same {
            lastmod: task.lastmod,
        },
        Err(failure) => TaskOutcome::Failed(failure),
    }
}

/// A resource may be in another set that was never read completely: then what the Source serves stays until that set is read,
/// which decides; but not for ever, because such a set may never be readable.
async fn remove_unless_awaited(context: &Arc<ApplyContext>, task: &Task) -> TaskOutcome {
    let wanted = &context.source.source.sets;
    let is_wanted = |set: &&Url| wanted.is_empty() || wanted.contains(set);
    let has_waited = |since| clock::now().wall - since >= LONGEST_WAIT;
    let awaited = task.unread_sets.iter().find(is_wanted);
    let Some(set) = awaited.filter(|_| !task.awaits_since.is_some_and(has_waited)) else {
        return TaskOutcome::Remove;
    };
    match ask(context, task).await {
        Err(error) if error.is_absent() => TaskOutcome::Remove,
        // Any other answer, or none, does not state that the resource is gone.
        _ => TaskOutcome::Failed(DownloadError::AwaitsSet(set.clone()).into_failure(task)),
    }
}

/// Asks the Source for a resource that is to be deleted; `None`: it serves what the mirror has.
async fn ask(context: &ApplyContext, task: &Task) -> Result<Option<Content>, FetchError> {
    let source = &context.source;
    let hosts = AllowedHosts::new(&source.source.hosts);
    let known = task.live_version.as_ref();
    let known = known.filter(|_| task.live && !task.live_doubted);
    let asked = source.client.get_content(&task.uri, &hosts, None, known);
    asked.await
}

/// A resource that is a member of another set is removed only if the Source serves it no longer; so is one whose deletion only a
/// hub has stated. The Source may be behind its own notification: it is asked some times.
async fn confirm_removal(context: &Arc<ApplyContext>, task: &Task) -> TaskOutcome {
    match ask(context, task).await {
        Ok(served) if task.contradicted || !task.is_shared => {
            still_served(context, task, served.is_none()).await
        }
        Ok(served) => TaskOutcome::Left {
            is_same: served.is_none(),
        },
        Err(error) if error.is_absent() => {
            if task.contradicted {
                // The list only lacks what the hub has stated: the answer must last.
                let failure = DownloadError::from(error).into_failure(task);
                if failure.retry_at.is_some() {
                    return TaskOutcome::Failed(failure);
                }
                candidates::report_contradiction(context, task, &failure.message).await;
            }
            TaskOutcome::Remove
        }
        Err(error) if error.class() == ErrorClass::Retry => {
            TaskOutcome::Failed(DownloadError::from(error).into_failure(task))
        }
        Err(_) if task.contradicted => TaskOutcome::Contradicted {
            is_same: !task.live_doubted,
        },
        // A server may hide in this way that there is none.
        Err(error) if !task.is_shared => {
            TaskOutcome::Failed(DownloadError::from(error).into_failure(task))
        }
        Err(_) => TaskOutcome::Left {
            is_same: !task.live_doubted,
        },
    }
}

async fn still_served(context: &ApplyContext, task: &Task, is_same: bool) -> TaskOutcome {
    if task.contradicted {
        // As the hub has stated.
        return TaskOutcome::Contradicted { is_same };
    }
    let failure = DownloadError::StillServed.into_failure(task);
    if failure.retry_at.is_some() {
        return TaskOutcome::Failed(failure);
    }
    candidates::report_contradiction(context, task, &failure.message).await;
    TaskOutcome::Contradicted { is_same }
}

/// The version for a conditional request. None where the announced length or digest differs from the file's, or can't be
/// compared with it: a cache that lags behind would answer 304. None for an audit either, which needs the bytes.
fn known_version(task: &Task) -> Option<ServedVersion> {
    let may_be_same = task.live
        && !task.live_doubted
        && task.origin != Origin::Audit
        && task.content.hashes.is_empty()
        && task
            .content
            .length
            .is_none_or(|length| task.live_length == Some(length));
    task.live_version.clone().filter(|_| may_be_same)
}

/// Whether an announced digest is one that the file had when it was published. An audit has found that it has not.
fn is_known_by_digest(task: &Task) -> bool {
    task.live
        && !task.live_doubted
        && task.origin != Origin::Audit
        && task
            .content
            .length
            .is_none_or(|length| task.live_length == Some(length))
        && task
            .content
            .hashes
            .iter()
            .any(|hash| task.live_hashes.contains(hash))
}

/// Whether the file is still there, and as long as it was. It is not hashed: where it may have been replaced without a record, it
/// is in doubt, and not compared at all.
async fn is_in_place(mirror: &Arc<Mirror>, task: &Task) -> bool {
    let (mirror, path, length) = (Arc::clone(mirror), task.path.clone(), task.live_length);
    let reading = tokio::task::spawn_blocking(move || {
        let path = MirrorPath::parse(&path).ok()?;
        let found = mirror.open_file(&path).ok()?;
        found.metadata().ok().map(|metadata| metadata.len())
    });
    reading
        .await
        .ok()
        .flatten()
        .is_some_and(|found| Some(found) == length)
}
