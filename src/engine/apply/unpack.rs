//! Executes a task from a member of an open package.

use std::io::Read;
use std::sync::Arc;

use resourcesync::{Mismatch, Verifier};
use resyncd_core::Expected;
use resyncd_fetch::{FetchError, SizeLimit};
use resyncd_mirror::{MirrorError, Staged};
use resyncd_packages::{MemberReader, PackageError};

use super::coding::{CodedContent, DecidedContent, DecodeError, is_compressed_file};
use super::context::ApplyContext;
use super::members::PackageMember;
use super::received::{Description, ReceivedBytes, ReceivedResource};
use crate::store::Task;

/// How much is read and written at once, in bytes.
const CHUNK: usize = 256 * 1024;

/// Why a member can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnpackError {
    /// The mirror's error, not the member's.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Package(#[from] PackageError),
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// Its content coding can't be undone.
    #[error(transparent)]
    Coding(FetchError),
    #[error("it is larger than {0}")]
    TooLarge(SizeLimit),
    #[error(
        "it is not at the path that the manifest states, and nothing verifies the one that was found"
    )]
    Unproven,
    #[error("the work was interrupted")]
    Interrupted,
}

impl UnpackError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Mirror(error) => error.code(),
            Self::Package(error) => error.code(),
            Self::Mismatch(mismatch) => mismatch.code(),
            Self::Coding(error) => error.code(),
            Self::TooLarge(_) => "too-large",
            Self::Unproven => "unproven-member",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Copies the member at a path to a staged file and verifies it, as if it had been downloaded.
pub(super) async fn unpack(
    context: &Arc<ApplyContext>,
    task: &Task,
    expected: Expected,
    member: &Arc<PackageMember>,
    path: String,
) -> Result<ReceivedResource, UnpackError> {
    let context = Arc::clone(context);
    let (task, member) = (task.clone(), Arc::clone(member));
    let unpacking =
        tokio::task::spawn_blocking(move || copy(&context, &task, &expected, &member, &path));
    unpacking.await.map_err(|_| UnpackError::Interrupted)?
}

fn copy(
    context: &ApplyContext,
    task: &Task,
    expected: &Expected,
    member: &PackageMember,
    path: &str,
) -> Result<ReceivedResource, UnpackError> {
    let mut bytes = member.package.member(path)?;
    if bytes.is_rebased() && !task.content.is_verifiable() {
        return Err(UnpackError::Unproven);
    }
    let DecidedContent {
        staged,
        verified,
        encoding,
    } = match expected.encoding.clone() {
        Some(label) => {
            // As if its server had stated the coding.
            let media_type = task.content.media_type.as_deref();
            let is_compressed = is_compressed_file(&[task.uri.url()], media_type);
            let mut coded = CodedContent::new(label, is_compressed, expected);
            let staged = stage(context, &mut bytes, |chunk| coded.update(chunk))?;
            coded.finish(&context.mirror, staged, context.source.limits.resource)?
        }
        None => {
            let mut verifier = Verifier::new(task.content.length, &task.content.hashes);
            if let Some(length) = bytes.length() {
                verifier.check_length(length)?;
            }
            let staged = stage(context, &mut bytes, |chunk| verifier.update(chunk))?;
            DecidedContent {
                staged,
                verified: verifier.finish()?,
                encoding: None,
            }
        }
    };
    let lastmod = task.lastmod.or(task.changed_at);
    Ok(ReceivedResource {
        bytes: ReceivedBytes::Staged(staged.finish(lastmod)?),
        description: Description {
            length: verified.length,
            media_type: task.content.media_type.clone(),
            encoding,
            hashes: verified.digests,
            lastmod,
            // No server has served it.
            version: None,
            is_patched: false,
        },
    })
}

/// Copies a member to a staged file as it is. `verify`: is given all its bytes.
fn stage(
    context: &ApplyContext,
    bytes: &mut MemberReader,
    mut verify: impl FnMut(&[u8]) -> Result<(), Mismatch>,
) -> Result<Staged, UnpackError> {
    let limit = context.source.limits.resource;
    let check_limit = |length: u64| match limit {
        Some(limit) if length > limit => Err(UnpackError::TooLarge(SizeLimit::resource(limit))),
        _ => Ok(()),
    };
    let mut size = CHUNK;
    if let Some(length) = bytes.length() {
        check_limit(length)?;
        size = size.min(usize::try_from(length).unwrap_or(CHUNK)).max(1);
    }
    let mut staged = context.mirror.stage()?;
    let (mut chunk, mut received) = (vec![0; size], 0);
    loop {
        let read = bytes.read(&mut chunk).map_err(PackageError::from)?;
        if read == 0 {
            return Ok(staged);
        }
        received += read as u64;
        check_limit(received)?;
        verify(&chunk[..read])?;
        context.source.progress.count_bytes(read);
        staged.write(&chunk[..read])?;
    }
}

impl From<DecodeError> for UnpackError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Mirror(error) => Self::Mirror(error),
            DecodeError::Mismatch(mismatch) => Self::Mismatch(mismatch),
            DecodeError::Fetch(error) => Self::Coding(error),
        }
    }
}
