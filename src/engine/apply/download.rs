//! Downloads a resource from one candidate into a staged file: counted and hashed while it is written, then compared with the
//! announced length and digests.

use std::sync::Arc;
use std::time::Duration;

use super::context::ApplyContext;
use super::staged::{Description, StagedResource};
use crate::clock;
use crate::error_class::ErrorClass;
use crate::fetch::{AllowedHosts, Bounds, Content, FetchError, pause};
use crate::mirror::{CompletedFile, Mirror, MirrorError, Staged};
use crate::protocol::{Mismatch, ServedVersion, SourceTime, Verified, Verifier};
use crate::store::{Task, TaskFailure};
use crate::sync::{Candidate, Expected};
use chrono::TimeDelta;

/// How often a resource is tried, and with what pauses, before it is given up until the next poll.
const TRIES: Bounds = Bounds {
    tries: 6,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};
/// How often a resource is tried that the server answers 404 for: it may have been announced a moment too early.
const TRIES_IF_ABSENT: Bounds = Bounds { tries: 3, ..TRIES };
/// The pause after a disk error.
const DISK_PAUSE: TimeDelta = TimeDelta::seconds(10);
/// How many bytes are buffered before they are written: a small file is written in one step.
const WRITE: usize = 256 * 1024;

/// What a candidate answered.
pub(super) enum FetchOutcome {
    /// The representation.
    Fetched(Box<StagedResource>),
    /// 304: the mirror has it.
    NotModified,
}

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DownloadError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    #[error("it was last modified at {got} where {announced} was announced")]
    Stale {
        announced: SourceTime,
        got: SourceTime,
    },
    #[error("the work was interrupted")]
    Interrupted,
    #[error("resyncd panicked; see the log")]
    Panicked,
}

impl DownloadError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Fetch(error) => error.code(),
            Self::Mirror(error) => error.code(),
            Self::Mismatch(mismatch) => mismatch.code(),
            Self::Stale { .. } => "stale-duplicate",
            Self::Interrupted => "interrupted",
            Self::Panicked => "panicked",
        }
    }

    /// The failure of the task, with the time of its retry. A full disk does not count as a try.
    pub(super) fn into_failure(self, task: &Task) -> TaskFailure {
        let now = clock::now().wall;
        let tried = task.attempts + 1;
        let (wait, counts) = match &self {
            Self::Mirror(error) if error.class() == ErrorClass::Fatal => (Some(DISK_PAUSE), false),
            Self::Interrupted => (Some(TimeDelta::zero()), true),
            Self::Mirror(_) | Self::Panicked => (None, true),
            Self::Mismatch(_) | Self::Stale { .. } => (wait_for(tried, None, &TRIES), true),
            Self::Fetch(error) if error.is_absent() => {
                (wait_for(tried, None, &TRIES_IF_ABSENT), true)
            }
            Self::Fetch(error) if error.class() == ErrorClass::Retry => {
                (wait_for(tried, error.retry_after(), &TRIES), true)
            }
            Self::Fetch(_) => (None, true),
        };
        let retry_at = wait.map(|wait| now + wait);
        let is_absent = matches!(&self, Self::Fetch(error) if error.is_absent());
        TaskFailure {
            code: self.code(),
            message: self.to_string(),
            retry_at,
            counts,
            is_absent,
        }
    }
}

fn wait_for(tried: u32, asked: Option<Duration>, bounds: &Bounds) -> Option<TimeDelta> {
    pause(tried, asked, bounds)
        .map(|pause| TimeDelta::from_std(pause).unwrap_or(TimeDelta::hours(1)))
}

/// Downloads a task's resource from one candidate, conditionally if a `known` version is given.
pub(super) async fn download(
    context: &ApplyContext,
    task: &Task,
    candidate: &Candidate,
    known: Option<&ServedVersion>,
) -> Result<FetchOutcome, DownloadError> {
    let source = &context.source;
    let hosts = AllowedHosts::new(&source.source.hosts);
    let content = source
        .client
        .get_content(&candidate.uri, &hosts, source.limits.resource, known)
        .await?;
    let Some(content) = content else {
        return Ok(FetchOutcome::NotModified);
    };
    if !candidate.is_own {
        reject_stale(&content, &candidate.expected)?;
    }
    let version = content.version().filter(|_| candidate.is_own);
    let media_type = task
        .content
        .media_type
        .clone()
        .or_else(|| content.media_type().map(str::to_owned));
    // A duplicate's Last-Modified is that of the copy.
    let served = content.last_modified().filter(|_| candidate.is_own);
    let lastmod = task.lastmod.or(served).or(task.changed_at);
    let expected = &candidate.expected;
    let (file, verified) = copy(context, content, expected, lastmod).await?;
    let description = Description {
        length: verified.length,
        media_type,
        hashes: verified.digests,
        lastmod,
        version,
    };
    Ok(FetchOutcome::Fetched(Box::new(StagedResource {
        file,
        description,
    })))
}

/// Rejects a duplicate that is older than announced, where no digest verifies it. Its date has whole seconds.
fn reject_stale(content: &Content, expected: &Expected) -> Result<(), DownloadError> {
    match (expected.modified, content.last_modified()) {
        (Some(announced), Some(got))
            if expected.content.hashes.is_empty()
                && announced.micros() - got.micros() >= 1_000_000 =>
        {
            Err(DownloadError::Stale { announced, got })
        }
        _ => Ok(()),
    }
}

/// Copies a representation to a staged file and verifies it.
async fn copy(
    context: &ApplyContext,
    mut content: Content,
    expected: &Expected,
    lastmod: Option<SourceTime>,
) -> Result<(CompletedFile, Verified), DownloadError> {
    let mut verifier = Verifier::new(expected.content.length, &expected.content.hashes);
    let mut staged: Option<Staged> = None;
    let mirror = &context.mirror;
    let mut buffer: Vec<u8> = Vec::new();
    while let Some(chunk) = content.chunk().await? {
        context.source.progress.count_bytes(chunk.len());
        verifier.update(&chunk)?;
        buffer.extend_from_slice(&chunk);
        if buffer.len() >= WRITE {
            staged = Some(write(mirror, staged.take(), std::mem::take(&mut buffer)).await?);
        }
    }
    // Frees the connection while the file is synced.
    drop(content);
    let verified = verifier.finish()?;
    let mirror = Arc::clone(mirror);
    let finishing = tokio::task::spawn_blocking(move || {
        let mut staged = staged.map_or_else(|| mirror.stage(), Ok)?;
        staged.write(&buffer)?;
        staged.finish(lastmod)
    });
    let file = finishing.await.map_err(|_| DownloadError::Interrupted)??;
    Ok((file, verified))
}

async fn write(
    mirror: &Arc<Mirror>,
    staged: Option<Staged>,
    bytes: Vec<u8>,
) -> Result<Staged, DownloadError> {
    let mirror = Arc::clone(mirror);
    let writing = tokio::task::spawn_blocking(move || {
        let mut staged = staged.map_or_else(|| mirror.stage(), Ok)?;
        staged.write(&bytes)?;
        Ok::<_, MirrorError>(staged)
    });
    Ok(writing.await.map_err(|_| DownloadError::Interrupted)??)
}
