//! One task, carried out from a package that is at hand.

use std::io::Read;
use std::sync::Arc;

use super::members::Member;
use crate::engine::applier::download::{Description, Fetched};
use crate::engine::context::SourceContext;
use crate::fetch::PackageError;
use crate::mirror::{Mirror, MirrorError};
use crate::protocol::{Mismatch, Verifier};
use crate::store::Task;

/// How much is read and written at once, in bytes.
const CHUNK: usize = 256 * 1024;

/// Why a member could not be taken.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum UnpackError {
    /// The mirror's trouble, not the member's.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Package(#[from] PackageError),
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    #[error("it is larger than {limit} bytes")]
    TooLarge { limit: u64 },
    #[error(
        "it is not where the manifest says, and nothing proves that what was found is the right one"
    )]
    Unproven,
    #[error("the work was interrupted")]
    Interrupted,
}

impl UnpackError {
    /// The stable name of the error.
    pub(in crate::engine) fn code(&self) -> &'static str {
        match self {
            Self::Mirror(error) => error.code(),
            Self::Package(error) => error.code(),
            Self::Mismatch(mismatch) => mismatch.code(),
            Self::TooLarge { .. } => "too-large",
            Self::Unproven => "unproven-member",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Copies a member to a working file and verifies it on the way, as if it had been fetched.
pub(in crate::engine) async fn unpack(
    context: &Arc<SourceContext>,
    mirror: &Arc<Mirror>,
    task: &Task,
    member: &Arc<Member>,
) -> Result<Fetched, UnpackError> {
    let (context, mirror) = (Arc::clone(context), Arc::clone(mirror));
    let (task, member) = (task.clone(), Arc::clone(member));
    let unpacking = tokio::task::spawn_blocking(move || copy(&context, &mirror, &task, &member));
    unpacking.await.map_err(|_| UnpackError::Interrupted)?
}

fn copy(
    context: &SourceContext,
    mirror: &Mirror,
    task: &Task,
    member: &Member,
) -> Result<Fetched, UnpackError> {
    let mut bytes = member.package.member(&member.path)?;
    if bytes.is_rebased() && task.length.is_none() && task.hashes.is_empty() {
        return Err(UnpackError::Unproven);
    }
    let length = bytes.length();
    let mut verifier = Verifier::new(task.length, &task.hashes);
    verifier.check_length(length)?;
    if let Some(limit) = context.limits.resource.filter(|&limit| length > limit) {
        return Err(UnpackError::TooLarge { limit });
    }
    let mut staged = mirror.stage()?;
    let mut chunk = vec![0; CHUNK.min(usize::try_from(length).unwrap_or(CHUNK)).max(1)];
    loop {
        let read = bytes.read(&mut chunk).map_err(PackageError::from)?;
        if read == 0 {
            break;
        }
        verifier.update(&chunk[..read])?;
        context.progress.count_bytes(read);
        staged.write(&chunk[..read])?;
    }
    let verified = verifier.finish()?;
    let lastmod = task.lastmod.or(task.changed_at);
    Ok(Fetched {
        whole: staged.finish(lastmod)?,
        description: Description {
            length: verified.length,
            media_type: task.media_type.clone(),
            hashes: verified.digests,
            lastmod,
            // No server has served it by itself.
            version: None,
        },
    })
}
