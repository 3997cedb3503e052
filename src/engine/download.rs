//! One task, carried out up to the point where it becomes visible: the bytes are in a working file, counted, hashed, held
//! against what was told, and on disk.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use futures_util::FutureExt;

use super::following::Following;
use crate::clock;
use crate::fetch::{AllowedHosts, Bounds, Content, Disposition, FetchError, pause};
use crate::mirror::{Mirror, MirrorError, MirrorPath, Staged, Whole};
use crate::protocol::{Algorithm, ChangeKind, Digest, Hashing, SourceTime};
use crate::store::{Origin, Task, TaskFailure};

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
pub(super) enum Outcome {
    /// A whole, verified working file.
    Fetched(Box<Fetched>),
    /// The file is as told already, but for its time.
    Same { lastmod: Option<SourceTime> },
    /// The file is to be removed.
    Remove,
    /// It did not work.
    Failed(TaskFailure),
}

/// A resource in a working file.
pub(super) struct Fetched {
    pub(super) whole: Whole,
    pub(super) length: u64,
    pub(super) media_type: Option<String>,
    pub(super) hashes: Vec<Digest>,
    pub(super) lastmod: Option<SourceTime>,
}

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error("{got} bytes came where {told} were told")]
    Length { told: u64, got: u64 },
    #[error("the bytes have {got} where {told} was told")]
    Digest { told: Digest, got: Digest },
    #[error("the work was interrupted")]
    Interrupted,
    #[error("this program failed; the log tells where")]
    Panicked,
}

impl Failure {
    fn code(&self) -> &'static str {
        match self {
            Self::Fetch(error) => error.code(),
            Self::Mirror(error) => error.code(),
            Self::Length { .. } => "length-mismatch",
            Self::Digest { .. } => "digest-mismatch",
            Self::Interrupted => "interrupted",
            Self::Panicked => "panicked",
        }
    }

    /// What becomes of the task. A full disk is not the resource's fault: it waits, however long that takes.
    fn of(self, task: &Task) -> TaskFailure {
        let now = clock::now().wall;
        let tried = task.attempts + 1;
        let (wait, counts) = match &self {
            Self::Mirror(error) if error.is_transient() => (Some(DISK_PAUSE), false),
            Self::Interrupted => (Some(TimeDelta::zero()), true),
            Self::Mirror(_) | Self::Panicked => (None, true),
            Self::Length { .. } | Self::Digest { .. } => (wait_for(tried, None, &TRIES), true),
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
pub(super) async fn carry_out(
    following: &Arc<Following>,
    mirror: &Arc<Mirror>,
    task: &Task,
) -> Outcome {
    let carrying = AssertUnwindSafe(carry_out_unguarded(following, mirror, task)).catch_unwind();
    carrying
        .await
        .unwrap_or_else(|_| Outcome::Failed(Failure::Panicked.of(task)))
}

async fn carry_out_unguarded(
    following: &Arc<Following>,
    mirror: &Arc<Mirror>,
    task: &Task,
) -> Outcome {
    if task.kind == ChangeKind::Deleted {
        return Outcome::Remove;
    }
    if is_known_by_digest(task) && is_in_place(mirror, task).await {
        return Outcome::Same {
            lastmod: task.lastmod.or(task.changed_at),
        };
    }
    match fetch(following, mirror, task).await {
        Ok(fetched) => Outcome::Fetched(Box::new(fetched)),
        Err(failure) => Outcome::Failed(failure.of(task)),
    }
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

async fn fetch(
    following: &Following,
    mirror: &Arc<Mirror>,
    task: &Task,
) -> Result<Fetched, Failure> {
    let hosts = AllowedHosts::new(&following.source.hosts);
    let got = following
        .client
        .get_content(&task.uri, &hosts, following.limits.resource, None)
        .await?;
    let content = got.ok_or(Failure::Interrupted)?;
    let media_type = task
        .media_type
        .clone()
        .or_else(|| content.media_type().map(str::to_owned));
    let lastmod = task.lastmod.or(content.last_modified()).or(task.changed_at);
    let (whole, length, hashes) = copy(following, content, mirror, task, lastmod).await?;
    Ok(Fetched {
        whole,
        length,
        media_type,
        hashes,
        lastmod,
    })
}

/// Copies a representation to a working file and verifies it on the way.
async fn copy(
    following: &Following,
    mut content: Content,
    mirror: &Arc<Mirror>,
    task: &Task,
    lastmod: Option<SourceTime>,
) -> Result<(Whole, u64, Vec<Digest>), Failure> {
    // One of our own, so that later a document may tell the same bytes by another digest than this one did.
    let algorithms = task
        .hashes
        .iter()
        .map(Digest::algorithm)
        .chain([Algorithm::Sha256]);
    let mut hashing = Hashing::new(algorithms);
    let mut staged: Option<Staged> = None;
    let mut waiting: Vec<u8> = Vec::new();
    let mut length = 0_u64;
    while let Some(chunk) = content.chunk().await? {
        hashing.update(&chunk);
        following.progress.count_bytes(chunk.len());
        length += chunk.len() as u64;
        if let Some(told) = task.length.filter(|&told| length > told) {
            return Err(Failure::Length { told, got: length });
        }
        waiting.extend_from_slice(&chunk);
        if waiting.len() >= WRITE {
            staged = Some(write(mirror, staged.take(), std::mem::take(&mut waiting)).await?);
        }
    }
    // The connection is of use to others while the file is synced.
    drop(content);
    if let Some(told) = task.length.filter(|&told| length != told) {
        return Err(Failure::Length { told, got: length });
    }
    let hashes = hashing.finish();
    for told in &task.hashes {
        if let Some(got) = hashes
            .iter()
            .find(|got| got.algorithm() == told.algorithm() && *got != told)
        {
            return Err(Failure::Digest {
                told: told.clone(),
                got: got.clone(),
            });
        }
    }
    let mirror = Arc::clone(mirror);
    let finishing = tokio::task::spawn_blocking(move || {
        let mut staged = staged.map_or_else(|| mirror.stage(), Ok)?;
        staged.write(&waiting)?;
        staged.finish(lastmod)
    });
    let whole = finishing.await.map_err(|_| Failure::Interrupted)??;
    Ok((whole, length, hashes))
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
