//! Executes a task by a patch: the Source states how the version that the mirror has becomes the new one (core, section 14.4).
//!
//! It is tried only where it can be right: the entry states a digest of the result, and the task follows the version that the mirror
//! has. The file is read and must have the digests that the database knows; the result must have the stated ones. So a patch never
//! publishes anything that a download would not.
//!
//! Invariant: few patches are applied at once, and those that are downloaded take a bounded amount of memory together.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use resourcesync::{ChangeKind, ContentInfo, Link, Mismatch, Verified, Verifier};
use resyncd_core::ResourceUri;
use resyncd_fetch::{AllowedHosts, SizeLimit, Wanted};
use resyncd_mirror::MirrorPath;
use resyncd_packages::PackageError;
use resyncd_patches::{MAX_PATCH_BYTES, PatchError, PatchKind, apply_patch};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::context::ApplyContext;
use super::members::PackageMember;
use super::received::{BodyMemory, Received, ReceivedBytes, ReceivedResource};
use super::task_error::TaskError;
use crate::store::{Origin, Task};

/// The relation of a patch (core, section 14.4).
const PATCH: &str = "http://www.openarchives.org/rs/terms/patch";

/// How many patches are applied at once, of all Sources together: each may take its limits of memory and time.
static APPLYING: Semaphore = Semaphore::const_new(2);
/// How long a patch waits for those of other Sources. Then its resource is fetched.
const WAIT: Duration = Duration::from_secs(5);
/// How many bytes of patches may be in memory until they are applied, of all Sources together.
static FREE: Semaphore = Semaphore::const_new(64 << 20);

/// Where a patch is.
enum PatchLocation {
    /// In an open package, at this path.
    Member(Arc<PackageMember>, String),
    Uri(ResourceUri),
}

/// A patch that makes the new version of a task's file.
pub(super) struct PatchCandidate {
    kind: PatchKind,
    /// What is stated of the patch itself.
    content: ContentInfo,
    place: PatchLocation,
}

impl PatchCandidate {
    /// The host that it is downloaded from; `None`: it is in a package.
    pub(super) fn authority(&self) -> Option<String> {
        match &self.place {
            PatchLocation::Uri(uri) => Some(uri.authority()),
            PatchLocation::Member(..) => None,
        }
    }
}

const CODED: TaskError = TaskError::UnusableCandidate {
    code: "patch-coded",
    why: "the server has coded the patch",
};
const OTHER_FILE: TaskError = TaskError::UnusableCandidate {
    code: "patch-base",
    why: "the file is not the one that was published",
};
const NO_ROOM: TaskError = TaskError::UnusableCandidate {
    code: "patch-limit",
    why: "too many patches are applied at once",
};

/// The kind of the patch that a link names; `None`: it names none, or one of an unknown kind.
pub(crate) fn patch_kind(link: &Link) -> Option<PatchKind> {
    let media_type = link.content.media_type.as_deref()?;
    let is_patch = link.rel.eq_ignore_ascii_case(PATCH);
    PatchKind::of_media_type(media_type).filter(|_| is_patch)
}

/// Whether a task has a patch of a known type, for a file that the mirror has.
pub(super) fn has_patch(context: &ApplyContext, task: &Task) -> bool {
    let states_changes = matches!(
        task.origin,
        Origin::Notification | Origin::ChangeList | Origin::ChangeDump
    );
    context.source.source.patches
        && states_changes
        && task.kind == ChangeKind::Updated
        && task.live
        && task.links.iter().any(|link| patch_kind(link).is_some())
}

/// The patch that may make the new version of a task's file; `None`: there is none, or it is not known whether it is one of the
/// version that the mirror has.
pub(super) fn plan_patch(
    context: &ApplyContext,
    task: &Task,
    member: Option<&Arc<PackageMember>>,
) -> Option<PatchCandidate> {
    let is_proven = !task.content.hashes.is_empty() && !task.live_hashes.is_empty();
    let is_short = task
        .live_length
        .is_none_or(|length| length <= MAX_PATCH_BYTES);
    // Of a coded representation the digest may be that of the coded bytes.
    let is_plain = task.encoding.is_none();
    let is_usable = is_proven && is_short && is_plain && !task.has_replaced && !task.unconfirmed;
    if !has_patch(context, task) || !is_usable {
        return None;
    }
    let hosts = AllowedHosts::new(&context.source.source.hosts);
    let candidate = |link: &Link| {
        let packed = member.zip(link.path.clone());
        let place = match packed {
            Some((member, path)) => PatchLocation::Member(Arc::clone(member), path),
            None => {
                let uri = ResourceUri::try_from(link.href.clone()).ok()?;
                // The resource itself is no patch of itself.
                let is_allowed = uri != task.uri && hosts.allows(uri.url());
                PatchLocation::Uri(Some(uri).filter(|_| is_allowed)?)
            }
        };
        Some(PatchCandidate {
            kind: patch_kind(link)?,
            content: link.content.clone(),
            place,
        })
    };
    let mut links: Vec<&Link> = task.links.iter().collect();
    links.sort_by_key(|link| link.pri.unwrap_or(u32::MAX));
    links.into_iter().find_map(candidate)
}

/// Makes the new version of a task's file, and verifies it.
pub(super) async fn patch(
    context: &Arc<ApplyContext>,
    task: &Task,
    candidate: PatchCandidate,
) -> Result<ReceivedResource, TaskError> {
    let PatchCandidate {
        kind,
        content,
        place,
    } = candidate;
    let downloaded = match &place {
        PatchLocation::Uri(uri) => Some(download(context, uri, &content).await?),
        PatchLocation::Member(..) => None,
    };
    let permit = tokio::time::timeout(WAIT, APPLYING.acquire()).await;
    let permit = permit.ok().and_then(Result::ok).ok_or(NO_ROOM)?;
    let (context, task) = (Arc::clone(context), task.clone());
    let applying = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let (patch, _room) = match (place, downloaded) {
            (PatchLocation::Member(member, path), _) => {
                (unpack(&context, &member, &path, &content)?, None)
            }
            (PatchLocation::Uri(_), downloaded) => downloaded.unwrap_or_default(),
        };
        apply(&context, &task, kind, &patch)
    });
    let applied = applying.await;
    applied.map_err(|error| TaskError::of_join(&error))?
}

/// The bytes of a patch, and the room in memory that they take.
type DownloadedPatch = (Vec<u8>, Option<SemaphorePermit<'static>>);

async fn download(
    context: &ApplyContext,
    uri: &ResourceUri,
    content: &ContentInfo,
) -> Result<DownloadedPatch, TaskError> {
    let source = &context.source;
    let hosts = AllowedHosts::new(&source.source.hosts);
    let limit = match source.limits.resource {
        Some(limit) if limit < MAX_PATCH_BYTES => SizeLimit::resource(limit),
        _ => SizeLimit::new(MAX_PATCH_BYTES, "the limit of patches"),
    };
    let wanted = Wanted {
        media_type: content.media_type.as_deref(),
        ..Wanted::default()
    };
    let answer = source
        .client
        .get_representation(uri, &hosts, Some(limit), None, wanted);
    // Without a condition there is no answer that it is unchanged.
    let mut answer = answer.await?.ok_or(OTHER_FILE)?;
    if answer.coding().is_some() {
        return Err(CODED);
    }
    let mut verifier = Verifier::new(content.length, &content.hashes);
    let (mut bytes, mut room) = (Vec::new(), None::<SemaphorePermit<'static>>);
    while let Some(chunk) = answer.chunk().await? {
        let taken = u32::try_from(chunk.len()).ok();
        let taken = taken.and_then(|taken| FREE.try_acquire_many(taken).ok());
        let taken = taken.ok_or(NO_ROOM)?;
        match &mut room {
            Some(room) => room.merge(taken),
            None => room = Some(taken),
        }
        source.progress.count_bytes(chunk.len());
        verifier.update(&chunk)?;
        bytes.extend_from_slice(&chunk);
    }
    verifier.finish()?;
    Ok((bytes, room))
}

/// Reads a patch from a package.
fn unpack(
    context: &ApplyContext,
    member: &PackageMember,
    path: &str,
    content: &ContentInfo,
) -> Result<Vec<u8>, TaskError> {
    let mut packed = member.package.member(path)?;
    let mut verifier = Verifier::new(content.length, &content.hashes);
    if let Some(length) = packed.length() {
        verifier.check_length(length)?;
    }
    let bytes = read_short(&mut packed).map_err(PackageError::from)?;
    let bytes = bytes.ok_or(PatchError::Limit("too long"))?;
    context.source.progress.count_bytes(bytes.len());
    verifier.update(&bytes)?;
    verifier.finish()?;
    Ok(bytes)
}

/// All bytes of an input; `None`: there are more than a patch may have.
fn read_short(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    input.take(MAX_PATCH_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= MAX_PATCH_BYTES))
}

/// Applies a patch to the file of a task. For a blocking thread.
fn apply(
    context: &ApplyContext,
    task: &Task,
    kind: PatchKind,
    patch: &[u8],
) -> Result<ReceivedResource, TaskError> {
    let before = read_file(context, task).ok_or(OTHER_FILE)?;
    // After a kill the result may be in its place already.
    if let Ok(verified) = verify(task, &before) {
        return stage(context, task, before, verified);
    }
    let mut known = Verifier::of_announced_only(task.live_length, &task.live_hashes);
    let is_known = known.update(&before).is_ok() && known.finish().is_ok();
    if !is_known {
        return Err(OTHER_FILE);
    }
    let mut mismatch = None;
    for result in apply_patch(kind, &before, patch, task.content.length)? {
        match verify(task, &result) {
            Ok(verified) => return stage(context, task, result, verified),
            Err(error) => mismatch = mismatch.or(Some(error)),
        }
    }
    Err(match mismatch {
        Some(mismatch) => mismatch.into(),
        None => PatchError::Limit("the result is too long").into(),
    })
}

/// The file of a task; `None`: it can't be read, or is too long for a patch.
fn read_file(context: &ApplyContext, task: &Task) -> Option<Vec<u8>> {
    let path = MirrorPath::parse(&task.path).ok()?;
    let mut file = context.mirror.open_file(&path).ok()?;
    read_short(&mut file).ok().flatten()
}

fn verify(task: &Task, bytes: &[u8]) -> Result<Verified, Mismatch> {
    let mut verifier = Verifier::new(task.content.length, &task.content.hashes);
    verifier.check_length(bytes.len() as u64)?;
    verifier.update(bytes)?;
    verifier.finish()
}

fn stage(
    context: &ApplyContext,
    task: &Task,
    bytes: Vec<u8>,
    verified: Verified,
) -> Result<ReceivedResource, TaskError> {
    let lastmod = task.lastmod.or(task.changed_at);
    let room = BodyMemory::of_body(Some(verified.length));
    let bytes = match BodyMemory::hold(room, bytes) {
        Ok(held) => ReceivedBytes::InMemory(held),
        Err(bytes) => {
            let mut staged = context.mirror.stage()?;
            staged.write(&bytes)?;
            ReceivedBytes::Staged(staged.finish(lastmod)?)
        }
    };
    let received = Received {
        bytes,
        verified,
        encoding: None,
    };
    // No server has served it.
    let mut patched = received.described(task.content.media_type.clone(), lastmod, None);
    patched.description.is_patched = true;
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn patch_is_what_a_link_of_its_relation_names() {
        for (rel, media_type, kind) in [
            (PATCH, Some("application/json-patch"), Some(PatchKind::Json)),
            (PATCH, Some("application/x-tiff-diff"), None),
            (PATCH, None, None),
            ("patch", Some("application/json-patch"), None),
        ] {
            let mut link = Link::new(rel, Url::parse("http://example.com/p").unwrap());
            link.content.media_type = media_type.map(str::to_owned);
            assert_eq!(patch_kind(&link), kind, "{rel} {media_type:?}");
        }
    }
}
