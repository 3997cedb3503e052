//! Downloads a resource from one candidate, a small one into memory, a large one into a staged file: counted and hashed as it is
//! received, then compared with the announced length and digests.

use std::sync::Arc;

use resourcesync::SourceTime;
use resourcesync::media_type::media_type_essence;
use resyncd_core::{
    Candidate, ErrorClass, Expected, Redaction, ResourceUri, ServedVersion, latest_plausible,
};
use resyncd_fetch::{AllowedHosts, Content, SizeLimit, Wanted};
use resyncd_mirror::{Mirror, MirrorError, Staged};

use super::coding::ContentVerifier;
use super::context::ApplyContext;
use super::former_versions::{Served, is_asked_again};
use super::received::{BodyMemory, Received, ReceivedResource};
use super::task_error::{FORMER_VERSION, TaskError};
use crate::clock;
use crate::status::StatusError;
use crate::store::Task;

/// How much of a stated media type a message shows, in characters.
const LONGEST_TYPE: usize = 100;
/// How many bytes are buffered before they are written.
const WRITE: usize = 256 * 1024;

/// What a candidate answered.
pub(crate) enum FetchOutcome {
    /// The representation.
    Fetched(Box<ReceivedResource>),
    /// 304: the mirror has it.
    NotModified,
    /// It is served in this type, which the configuration does not select.
    Unselected(String),
}

/// What the `Memento-Datetime` of an answer must be (RFC 7089, section 2.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionCheck {
    /// It is not asked for: of a resource.
    Any,
    /// Not in the future, if there is one: of an announced memento.
    NotInFuture,
    /// This time, if there is one: of a memento that a TimeMap names.
    Exactly(SourceTime),
    /// There must be one, not later than `at`, and later than `after`: of a TimeGate, which may not know the version yet. `asked`: the
    /// time that is asked for.
    AsOf {
        at: SourceTime,
        after: Option<SourceTime>,
        asked: SourceTime,
    },
}

impl VersionCheck {
    /// The time that is asked for.
    fn as_of(self) -> Option<SourceTime> {
        match self {
            Self::AsOf { asked, .. } => Some(asked),
            Self::Any | Self::NotInFuture | Self::Exactly(_) => None,
        }
    }

    /// The same, asking for the end of the version's second: a request states whole seconds, and a TimeGate that knows fractions has
    /// none of this version at the begin of its second. `None`: that is what is asked for.
    pub(crate) fn at_end_of_second(self) -> Option<Self> {
        let Self::AsOf { at, after, asked } = self else {
            return None;
        };
        let begin = at.micros() - at.micros().rem_euclid(1_000_000);
        let end = SourceTime::from_micros(begin.saturating_add(1_000_000));
        (begin != at.micros() && asked != end).then_some(Self::AsOf {
            at,
            after,
            asked: end,
        })
    }

    /// The times of versions are whole seconds.
    fn check(self, found: Option<SourceTime>) -> Result<(), TaskError> {
        let second = |at: SourceTime| at.micros().div_euclid(1_000_000);
        let Some(found) = found.filter(|_| self != Self::Any) else {
            return match self {
                Self::AsOf { .. } => Err(TaskError::NoMemento),
                Self::Any | Self::NotInFuture | Self::Exactly(_) => Ok(()),
            };
        };
        let other = |how, code| Err(TaskError::OtherMemento { found, how, code });
        if found > latest_plausible(clock::now().wall) {
            return other("in the future", "memento-in-future");
        }
        match self {
            Self::AsOf { at, .. } if second(found) > second(at) => {
                other("later than the time requested", "memento-too-late")
            }
            // Two versions may have one second.
            Self::AsOf {
                at,
                after: Some(after),
                ..
            } if second(found) <= second(after) && second(found) < second(at) => {
                other("not later than the version before", "memento-too-early")
            }
            Self::Exactly(at) if second(found) != second(at) => {
                other("not the time requested", "other-memento")
            }
            _ => Ok(()),
        }
    }
}

/// Whether an error may pass by itself, after hours too.
pub(crate) fn may_pass(error: &TaskError) -> bool {
    match error {
        TaskError::Fetch(error) => error.is_absent() || error.class() == ErrorClass::Retry,
        TaskError::OtherMemento { code, .. } => *code == "memento-too-early",
        _ => false,
    }
}

/// Downloads a task's resource, or a version of it, from one candidate, conditionally if a `known` version is given.
pub(crate) async fn download(
    context: &ApplyContext,
    task: &Task,
    candidate: &Candidate,
    known: Option<&ServedVersion>,
    check: VersionCheck,
) -> Result<FetchOutcome, TaskError> {
    let source = &context.source;
    let _work = source.works_on(&format!("download of {}", task.uri));
    let hosts = AllowedHosts::new(&source.source.hosts);
    let limit = source.limits.resource.map(SizeLimit::resource);
    let is_current = candidate.is_own && check == VersionCheck::Any;
    let wanted = Wanted {
        media_type: task.content.media_type.as_deref(),
        coding: coding_of_try(task.attempts, &candidate.expected),
        as_of: check.as_of(),
        past_caches: is_current && is_asked_again(clock::now(), task, &candidate.expected),
        is_verified: !candidate.expected.content.hashes.is_empty(),
    };
    let client = context.client_of(task);
    let content = client
        .get_representation(&candidate.uri, &hosts, limit, known, wanted)
        .await?;
    if is_current {
        let served = content.as_ref().map_or(Served::Known, |content| {
            Served::Version(content.last_modified())
        });
        reject_former(context, task, candidate, served)?;
    }
    let Some(mut content) = content else {
        return Ok(FetchOutcome::NotModified);
    };
    check.check(content.memento_datetime())?;
    if let Some(served) = unselected_type(&content, task, context)
        && !is_linked(context, task).await
    {
        // The server of a duplicate may not know the type.
        return if candidate.is_own {
            Ok(FetchOutcome::Unselected(served))
        } else {
            Err(TaskError::UnselectedType(served))
        };
    }
    if !candidate.is_own {
        reject_stale(&content, &candidate.expected)?;
    }
    if !source.source.allow_type_mismatch {
        let secrets = source.client.redaction();
        reject_page(&mut content, &candidate.expected, task, secrets).await?;
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
    let received = receive(context, candidate, content, lastmod).await?;
    Ok(FetchOutcome::Fetched(Box::new(
        received.described(media_type, lastmod, version),
    )))
}

/// The coding that is asked for, which alternates with the tries: the length and digests that are stated may describe the
/// coded bytes, which a server does not send unasked, or those that are not coded. Where nothing verifies them, no coding is.
fn coding_of_try(attempts: u32, expected: &Expected) -> Option<&str> {
    let stated = expected.encoding.as_deref();
    let is_coded = (attempts % 2 == 1) != stated.is_some();
    (is_coded && expected.content.is_verifiable()).then_some(stated.unwrap_or("gzip"))
}

/// Rejects what may be the version before the announced one, unless it was asked for often enough; that is noted.
fn reject_former(
    context: &ApplyContext,
    task: &Task,
    candidate: &Candidate,
    served: Served,
) -> Result<(), TaskError> {
    let (now, expected) = (clock::now(), &candidate.expected);
    let mut former_versions = context.former_versions.lock();
    if former_versions.check(now, task, expected, served)? {
        let message =
            "the server answers with versions that are older than announced; they were accepted";
        let notice = StatusError::new(FORMER_VERSION, message, now.wall);
        tracing::info!(code = notice.code, source = context.name(), uri = %task.uri, "version that is older than announced accepted");
        let runtime_status = &context.source.runtime_status;
        runtime_status.note_set_of_task(task.set, |facts| facts.notices.add(notice, 1));
    }
    Ok(())
}

/// Rejects a duplicate that is older than announced, where no digest verifies it. Its date has whole seconds.
fn reject_stale(content: &Content<'_>, expected: &Expected) -> Result<(), TaskError> {
    match (expected.modified, content.last_modified()) {
        (Some(announced), Some(got))
            if expected.content.hashes.is_empty()
                && announced.micros() - got.micros() >= 1_000_000 =>
        {
            Err(TaskError::Stale { announced, got })
        }
        _ => Ok(()),
    }
}

/// The type that a representation is served in, if it is not selected, and none is stated.
fn unselected_type(content: &Content<'_>, task: &Task, context: &ApplyContext) -> Option<String> {
    let source = &context.source;
    let selection = source.source.filter.selection();
    let stated = task.content.media_type.as_deref();
    let served = content.media_type()?;
    let is_unselected = selection.needs_served_type(stated) && !selection.wants_type(Some(served));
    let secrets = source.client.redaction();
    is_unselected.then(|| secrets.excerpt(served, LONGEST_TYPE))
}

/// Whether the entry of another resource names that of a task: then it is wanted whatever its type is.
pub(super) async fn is_linked(context: &ApplyContext, task: &Task) -> bool {
    // If that can't be read, its result can't be stored either.
    let store = &context.source.store;
    store.is_linked(task.resource).await.unwrap_or(false)
}

/// The names of files that are no web pages, by their extensions.
const FILES: [&str; 28] = [
    "bz2", "csv", "doc", "docx", "epub", "gif", "gz", "jp2", "jpeg", "jpg", "json", "jsonld",
    "mp3", "mp4", "nt", "pdf", "png", "ps", "rdf", "tar", "tif", "tiff", "ttl", "txt", "wav",
    "xls", "xml", "zip",
];
const PAGES: [&str; 3] = ["htm", "html", "xhtml"];

/// Rejects a web page in place of a file where no digest decides: it is one for signing in, or of an error. A file is what is stated to be
/// of another type, or was served in another one before, or has the name of one. Where no type is stated the bytes must be those of a page,
/// too: some servers call everything a page of which they know no type.
async fn reject_page(
    content: &mut Content<'_>,
    expected: &Expected,
    task: &Task,
    secrets: &Redaction,
) -> Result<(), TaskError> {
    let is_page = |essence: &str| matches!(essence, "text/html" | "application/xhtml+xml");
    if !content.media_type().is_some_and(is_page) || !expected.content.hashes.is_empty() {
        return Ok(());
    }
    // What is stated where the type is unknown.
    let is_any = |essence: &String| {
        matches!(
            essence.as_str(),
            "application/octet-stream" | "binary/octet-stream" | "*/*"
        )
    };
    let essence = |media_type: &Option<String>| {
        let essence = media_type.as_deref().map(media_type_essence);
        essence.filter(|it| it.contains('/') && !is_any(it))
    };
    let has_extension = |of: &[&str]| extension(&task.uri).is_some_and(|it| of.contains(&&*it));
    let (other, how) = if task.content.media_type.is_some() {
        (essence(&task.content.media_type), "was stated")
    } else if task.live && essence(&task.live_type).is_some() {
        let before = essence(&task.live_type).filter(|_| !has_extension(&PAGES));
        (before, "was served before")
    } else {
        let named = extension(&task.uri).filter(|_| has_extension(&FILES));
        (named.map(|it| format!(".{it}")), "is its name")
    };
    let Some(other) = other.filter(|other| !is_page(other)) else {
        return Ok(());
    };
    let is_stated = task.content.media_type.is_some();
    if is_stated || content.coding().is_some() || begins_page(content.first_bytes().await?) {
        return Err(TaskError::TypeMismatch {
            other: secrets.excerpt(&other, LONGEST_TYPE),
            how,
        });
    }
    Ok(())
}

/// Whether these are the first bytes of a web page.
fn begins_page(bytes: &[u8]) -> bool {
    const TAGS: [&str; 6] = [
        "<!doctype html",
        "<html",
        "<head>",
        "<body",
        "<script",
        "<meta ",
    ];
    let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]);
    let begin = begin.trim_start_matches('\u{feff}').trim_start();
    let begin = begin.to_ascii_lowercase();
    begin.starts_with('<') && TAGS.iter().any(|tag| begin.contains(tag))
}

/// The extension of the name of a resource, in lower case. A name with a colon is that of a page about a file, as wikis have them.
fn extension(uri: &ResourceUri) -> Option<String> {
    let name = uri.url().path_segments()?.next_back()?;
    let (_, extension) = name.rsplit_once('.').filter(|_| !name.contains(':'))?;
    Some(extension.to_ascii_lowercase())
}

/// Receives a representation into memory or a staged file, and verifies it.
async fn receive(
    context: &ApplyContext,
    candidate: &Candidate,
    mut content: Content<'_>,
    lastmod: Option<SourceTime>,
) -> Result<Received, TaskError> {
    let coding = content.coding().map(str::to_owned);
    let uris = [content.url(), candidate.uri.url()];
    let mut verifier =
        ContentVerifier::new(coding, &uris, content.media_type(), &candidate.expected);
    let mut staged: Option<Staged> = None;
    let mirror = &context.mirror;
    // What is coded is decoded from a file.
    let mut room = if verifier.is_coded() {
        None
    } else {
        BodyMemory::of_body(content.length())
    };
    let stated = content
        .length()
        .and(room.as_ref())
        .map_or(0, BodyMemory::length);
    let mut buffer: Vec<u8> = Vec::with_capacity(stated);
    while let Some(chunk) = content.chunk().await? {
        context.source.progress.count_bytes(chunk.len());
        verifier.update(&chunk)?;
        buffer.extend_from_slice(&chunk);
        if buffer.len() >= WRITE {
            room = None;
            staged = Some(write(mirror, staged.take(), std::mem::take(&mut buffer)).await?);
        }
    }
    // Frees the connection while the file is synced.
    drop(content);
    let buffer = match BodyMemory::hold(room, buffer) {
        Ok(held) => return verifier.finish_in_memory(held),
        Err(buffer) => buffer,
    };
    let (mirror, limit) = (Arc::clone(mirror), context.source.limits.resource);
    let finishing = tokio::task::spawn_blocking(move || {
        let mut staged = staged.map_or_else(|| mirror.stage(), Ok)?;
        staged.write(&buffer)?;
        verifier.finish(&mirror, staged, limit, lastmod)
    });
    finishing
        .await
        .map_err(|error| TaskError::of_join(&error))?
}

async fn write(
    mirror: &Arc<Mirror>,
    staged: Option<Staged>,
    bytes: Vec<u8>,
) -> Result<Staged, TaskError> {
    let mirror = Arc::clone(mirror);
    let writing = tokio::task::spawn_blocking(move || {
        let mut staged = staged.map_or_else(|| mirror.stage(), Ok)?;
        staged.write(&bytes)?;
        Ok::<_, MirrorError>(staged)
    });
    Ok(writing
        .await
        .map_err(|error| TaskError::of_join(&error))??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datetimes_of_mementos_are_checked() {
        let time = |text: &str| -> SourceTime { text.parse().unwrap() };
        let at = time("2013-01-03T18:00:00.5Z");
        let after = Some(time("2013-01-02T18:00:00Z"));
        let as_of = |after| VersionCheck::AsOf {
            at,
            after,
            asked: at,
        };
        let future = "9000-01-01";
        for (check, found, expected) in [
            (VersionCheck::Any, None, None),
            (VersionCheck::Any, Some(future), None),
            (VersionCheck::NotInFuture, None, None),
            (VersionCheck::NotInFuture, Some("2020-01-01"), None),
            (
                VersionCheck::NotInFuture,
                Some(future),
                Some("memento-in-future"),
            ),
            (as_of(None), None, Some("no-memento")),
            (as_of(None), Some("2013-01-03T18:00:00Z"), None),
            (
                as_of(None),
                Some("2013-01-03T18:00:01Z"),
                Some("memento-too-late"),
            ),
            (as_of(None), Some(future), Some("memento-in-future")),
            (as_of(None), Some("2012-01-01"), None),
            (as_of(after), Some("2013-01-03"), None),
            (
                as_of(after),
                Some("2013-01-02T18:00:00Z"),
                Some("memento-too-early"),
            ),
            (
                as_of(Some(time("2013-01-03T18:00:00.2Z"))),
                Some("2013-01-03T18:00:00Z"),
                None,
            ),
            (
                as_of(Some(time("2013-01-03T18:00:00.2Z"))),
                Some("2013-01-03T17:59:59Z"),
                Some("memento-too-early"),
            ),
            (VersionCheck::Exactly(at), None, None),
            (
                VersionCheck::Exactly(at),
                Some("2013-01-03T18:00:00Z"),
                None,
            ),
            (
                VersionCheck::Exactly(at),
                Some("2013-01-03"),
                Some("other-memento"),
            ),
        ] {
            let code = check.check(found.map(time)).err().map(|error| error.code());
            assert_eq!(code, expected, "{check:?} {found:?}");
        }
    }
}
