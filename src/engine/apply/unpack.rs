//! Executes a task from a member of an open package.

use std::io::Read;
use std::sync::Arc;

use resourcesync::Mismatch;
use resyncd_core::Expected;
use resyncd_fetch::{FetchError, SizeLimit};
use resyncd_mirror::Staged;
use resyncd_packages::{MemberReader, PackageError};

use super::coding::ContentVerifier;
use super::context::ApplyContext;
use super::members::PackageMember;
use super::received::ReceivedResource;
use super::task_error::TaskError;
use crate::store::Task;

/// How much is read and written at once, in bytes.
const CHUNK: usize = 256 * 1024;

/// A member that was found at another path than the one that is stated.
const UNPROVEN: TaskError = TaskError::UnusableCandidate {
    code: "unproven-member",
    why: "it is not at the path that the manifest states, and nothing verifies the one that was found",
};
/// The work has returned nothing: it may have panicked on the bytes of the member.
const UNREAD: TaskError = TaskError::UnusableCandidate {
    code: "interrupted",
    why: "the work was interrupted",
};

/// Copies the member at a path to a staged file and verifies it, as if it had been downloaded.
pub(super) async fn unpack(
    context: &Arc<ApplyContext>,
    task: &Task,
    expected: Expected,
    member: &Arc<PackageMember>,
    path: String,
) -> Result<ReceivedResource, TaskError> {
    let context = Arc::clone(context);
    let (task, member) = (task.clone(), Arc::clone(member));
    let unpacking =
        tokio::task::spawn_blocking(move || copy(&context, &task, &expected, &member, &path));
    unpacking.await.map_err(|_| UNREAD)?
}

fn copy(
    context: &ApplyContext,
    task: &Task,
    expected: &Expected,
    member: &PackageMember,
    path: &str,
) -> Result<ReceivedResource, TaskError> {
    let mut bytes = member.package.member(path)?;
    if bytes.is_rebased() && !task.content.is_verifiable() {
        return Err(UNPROVEN);
    }
    let media_type = task.content.media_type.clone();
    // As if its server had stated the coding.
    let coding = expected.encoding.clone();
    let uris = [task.uri.url()];
    let mut verifier = ContentVerifier::new(coding, &uris, media_type.as_deref(), expected);
    if let Some(length) = bytes.length() {
        verifier.check_length(length)?;
    }
    let staged = stage(context, &mut bytes, |chunk| verifier.update(chunk))?;
    let lastmod = task.lastmod.or(task.changed_at);
    let limit = context.source.limits.resource;
    let received = verifier.finish(&context.mirror, staged, limit, lastmod)?;
    // No server has served it.
    Ok(received.described(media_type, lastmod, None))
}

/// Copies a member to a staged file as it is. `verify`: is given all its bytes.
fn stage(
    context: &ApplyContext,
    bytes: &mut MemberReader,
    mut verify: impl FnMut(&[u8]) -> Result<(), Mismatch>,
) -> Result<Staged, TaskError> {
    let limit = context.source.limits.resource;
    let check_limit = |length: u64| match limit {
        Some(limit) if length > limit => Err(FetchError::TooLarge(SizeLimit::resource(limit))),
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
