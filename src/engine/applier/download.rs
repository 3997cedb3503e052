//! One task, carried out up to the point where it becomes visible: the bytes are in a working file, counted, hashed, held
//! against what was told, and on disk. From which places they are had is `candidates`' to say.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use futures_util::FutureExt;

use super::adoption::{Adopted, adopt};
use super::candidates;
use crate::clock;
use crate::engine::context::SourceContext;
use crate::engine::dumps::unpack::{UnpackError, unpack};
use crate::fetch::{AllowedHosts, Bounds, Content, Disposition, FetchError, pause};
use crate::mirror::{CompletedFile, Mirror, MirrorError, MirrorPath, Staged};
use crate::protocol::{
    ChangeKind, Digest, Mismatch, ServedVersion, SourceTime, Verified, Verifier,
};
use crate::store::{Origin, Task, TaskFailure};
use crate::sync::{Candidate, Expected};

/// How often a resource is tried, and with what pauses, before it is given up until the next poll.
const TRIES: Bounds = Bounds {
    tries: 6,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};
/// How often one is tried that the server says is not there: it may have been told of a moment too early.
const TRIES_IF_ABSENT: Bounds = Bounds { tries: 3, ..TRIES };
/// The pause after the disk refused to take something.
const DISK_PAUSE: TimeDelta = TimeDelta::seconds(10);
/// How many bytes are collected before they are written: a small file is written in one step.
const WRITE: usize = 256 * 1024;

/// What came of a task, short of publishing it.
pub(in crate::engine) enum TaskOutcome {
    /// A whole, verified working file.
    Fetched(Box<Fetched>),
    /// The file is as told already, but for its time.
    Same { lastmod: Option<SourceTime> },
    /// The file was in its place already, though the database did not know.
    Adopted(Adopted),
    /// The file is to be removed.
    Remove,
    /// It did not work.
    Failed(TaskFailure),
}

/// A resource in a working file.
pub(in crate::engine) struct Fetched {
    pub(in crate::engine) whole: CompletedFile,
    pub(in crate::engine) description: Description,
}

/// What there is to tell of a file besides its bytes.
pub(in crate::engine) struct Description {
    pub(in crate::engine) length: u64,
    pub(in crate::engine) media_type: Option<String>,
    pub(in crate::engine) hashes: Vec<Digest>,
    pub(in crate::engine) lastmod: Option<SourceTime>,
    pub(in crate::engine) version: Option<ServedVersion>,
}

/// What a place answered.
pub(in crate::engine) enum FetchOutcome {
    /// The representation.
    Fetched(Box<Fetched>),
    /// That it is the one that the mirror has.
    NotModified,
}

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum Failure {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    #[error("it was last modified {got}, where {told} was told")]
    Stale { told: SourceTime, got: SourceTime },
    #[error("the work was interrupted")]
    Interrupted,
    #[error("this program failed; the log tells where")]
    Panicked,
}

impl Failure {
    pub(in crate::engine) fn code(&self) -> &'static str {
        match self {
            Self::Fetch(error) => error.code(),
            Self::Mirror(error) => error.code(),
            Self::Mismatch(mismatch) => mismatch.code(),
            Self::Stale { .. } => "stale-duplicate",
            Self::Interrupted => "interrupted",
            Self::Panicked => "panicked",
        }
    }

    /// What becomes of the task. A full disk is not the resource's fault: it waits, however long that takes.
    pub(in crate::engine) fn of(self, task: &Task) -> TaskFailure {
        let now = clock::now().wall;
        let tried = task.attempts + 1;
        let (wait, counts) = match &self {
            Self::Mirror(error) if error.is_transient() => (Some(DISK_PAUSE), false),
            Self::Interrupted => (Some(TimeDelta::zero()), true),
            Self::Mirror(_) | Self::Panicked => (None, true),
            Self::Mismatch(_) | Self::Stale { .. } => (wait_for(tried, None, &TRIES), true),
            Self::Fetch(error) if error.is_absent() => {
                (wait_for(tried, None, &TRIES_IF_ABSENT), true)
            }
            Self::Fetch(error) => match error.disposition() {
                Disposition::RetryLater { after } => (wait_for(tried, after, &TRIES), true),
                Disposition::GiveUp => (None, true),
            },
        };
        let retry_at = wait.map(|wait| now + wait);
        TaskFailure {
            code: self.code(),
            message: self.to_string(),
            retry_at,
            counts,
        }
    }
}

fn wait_for(tried: u32, asked: Option<Duration>, bounds: &Bounds) -> Option<TimeDelta> {
    pause(tried, asked, bounds)
        .map(|pause| TimeDelta::from_std(pause).unwrap_or(TimeDelta::hours(1)))
}

/// Carries a task out, up to the point where it becomes visible. A fault of this program costs the one resource, no more.
pub(in crate::engine) async fn execute(
    context: &Arc<SourceContext>,
    mirror: &Arc<Mirror>,
    task: &Task,
) -> TaskOutcome {
    let carrying = AssertUnwindSafe(execute_unguarded(context, mirror, task)).catch_unwind();
    carrying
        .await
        .unwrap_or_else(|_| TaskOutcome::Failed(Failure::Panicked.of(task)))
}

async fn execute_unguarded(
    context: &Arc<SourceContext>,
    mirror: &Arc<Mirror>,
    task: &Task,
) -> TaskOutcome {
    if task.kind == ChangeKind::Deleted {
        return TaskOutcome::Remove;
    }
    if let Some(adopted) = adopt(mirror, task).await {
        return TaskOutcome::Adopted(adopted);
    }
    let by_digest = is_known_by_digest(task);
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
    if let Some(member) = context.members.of(task) {
        match unpack(context, mirror, task, &member).await {
            Ok(fetched) => return TaskOutcome::Fetched(Box::new(fetched)),
            Err(UnpackError::Mirror(error)) => {
                return TaskOutcome::Failed(Failure::from(error).of(task));
            }
            Err(error) => context.members.refuse(context.name(), &member, &error),
        }
    }
    match candidates::fetch(context, mirror, task, known.as_ref()).await {
        Ok(FetchOutcome::Fetched(fetched)) => TaskOutcome::Fetched(fetched),
        Ok(FetchOutcome::NotModified) => TaskOutcome::Same {
            lastmod: task.lastmod,
        },
        Err(failure) => TaskOutcome::Failed(failure),
    }
}

/// The version that the server may be asked whether it is still the same. Where what was told says that it is not, or can't
/// be held against the file, it is not asked: a cache that lags behind would say that nothing has changed. Nor is it asked
/// for an audit, which asks what the bytes are.
fn known_version(task: &Task) -> Option<ServedVersion> {
    let may_be_same = task.live
        && task.origin != Origin::Audit
        && task.hashes.is_empty()
        && task
            .length
            .is_none_or(|length| task.live_length == Some(length));
    task.live_version.clone().filter(|_| may_be_same)
}

/// Whether a digest that was told is one that the file had when it was published. An audit has seen that it has not.
fn is_known_by_digest(task: &Task) -> bool {
    task.live
        && task.origin != Origin::Audit
        && task
            .length
            .is_none_or(|length| task.live_length == Some(length))
        && task
            .hashes
            .iter()
            .any(|hash| task.live_hashes.contains(hash))
}

/// Whether the file is still there, and as long as it was.
async fn is_in_place(mirror: &Arc<Mirror>, task: &Task) -> bool {
    let (mirror, path, length) = (Arc::clone(mirror), task.path.clone(), task.live_length);
    let looking = tokio::task::spawn_blocking(move || {
        let found = MirrorPath::parse(&path)
            .and_then(|path| mirror.open_file(&path))
            .ok()?;
        found.metadata().ok().map(|metadata| metadata.len())
    });
    looking
        .await
        .ok()
        .flatten()
        .is_some_and(|found| Some(found) == length)
}

/// Fetches a task's resource from one place; `known`: what that place is asked whether it is still the same.
pub(in crate::engine) async fn fetch_from(
    context: &SourceContext,
    mirror: &Arc<Mirror>,
    task: &Task,
    candidate: &Candidate,
    known: Option<&ServedVersion>,
) -> Result<FetchOutcome, Failure> {
    let hosts = AllowedHosts::new(&context.source.hosts);
    let got = context
        .client
        .get_content(&candidate.uri, &hosts, context.limits.resource, known)
        .await?;
    let Some(content) = got else {
        return Ok(FetchOutcome::NotModified);
    };
    if !candidate.is_own {
        refuse_stale(&content, &candidate.expected)?;
    }
    let version = content.version().filter(|_| candidate.is_own);
    let media_type = task
        .media_type
        .clone()
        .or_else(|| content.media_type().map(str::to_owned));
    // A duplicate's date is that of the copy.
    let served = content.last_modified().filter(|_| candidate.is_own);
    let lastmod = task.lastmod.or(served).or(task.changed_at);
    let expected = &candidate.expected;
    let (whole, verified) = copy(context, content, mirror, expected, lastmod).await?;
    let description = Description {
        length: verified.length,
        media_type,
        hashes: verified.digests,
        lastmod,
        version,
    };
    Ok(FetchOutcome::Fetched(Box::new(Fetched {
        whole,
        description,
    })))
}

/// Refuses a duplicate that is older than it should be, where no digest will tell. Its date has whole seconds.
fn refuse_stale(content: &Content, expected: &Expected) -> Result<(), Failure> {
    match (expected.modified, content.last_modified()) {
        (Some(told), Some(got))
            if expected.hashes.is_empty() && told.micros() - got.micros() >= 1_000_000 =>
        {
            Err(Failure::Stale { told, got })
        }
        _ => Ok(()),
    }
}

/// Copies a representation to a working file and verifies it on the way.
async fn copy(
    context: &SourceContext,
    mut content: Content,
    mirror: &Arc<Mirror>,
    expected: &Expected,
    lastmod: Option<SourceTime>,
) -> Result<(CompletedFile, Verified), Failure> {
    let mut verifier = Verifier::new(expected.length, &expected.hashes);
    let mut staged: Option<Staged> = None;
    let mut waiting: Vec<u8> = Vec::new();
    while let Some(chunk) = content.chunk().await? {
        context.progress.count_bytes(chunk.len());
        verifier.update(&chunk)?;
        waiting.extend_from_slice(&chunk);
        if waiting.len() >= WRITE {
            staged = Some(write(mirror, staged.take(), std::mem::take(&mut waiting)).await?);
        }
    }
    // The connection is of use to others while the file is synced.
    drop(content);
    let verified = verifier.finish()?;
    let mirror = Arc::clone(mirror);
    let finishing = tokio::task::spawn_blocking(move || {
        let mut staged = staged.map_or_else(|| mirror.stage(), Ok)?;
        staged.write(&waiting)?;
        staged.finish(lastmod)
    });
    let whole = finishing.await.map_err(|_| Failure::Interrupted)??;
    Ok((whole, verified))
}

async fn write(
    mirror: &Arc<Mirror>,
    staged: Option<Staged>,
    bytes: Vec<u8>,
) -> Result<Staged, Failure> {
    let mirror = Arc::clone(mirror);
    let writing = tokio::task::spawn_blocking(move || {
        let mut staged = staged.map_or_else(|| mirror.stage(), Ok)?;
        staged.write(&bytes)?;
        Ok::<_, MirrorError>(staged)
    });
    Ok(writing.await.map_err(|_| Failure::Interrupted)??)
}
