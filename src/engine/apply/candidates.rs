//! Fetches a resource from one candidate after another, until one of them has the right bytes.
//!
//! The candidates, in their order: a patch of the version that the mirror has; the member of an open package, which needs no
//! request; then the URIs, in the order of [`plan_candidates`]. No member is used where only the type that the Source serves decides
//! whether the resource is selected.

use std::sync::Arc;

use resourcesync::{ContentInfo, Link};
use resyncd_core::{
    Candidate, DeliveryFaultKind, Expected, ResourceUri, ServedVersion, plan_candidates,
};
use resyncd_fetch::{AllowedHosts, FetchError};

use super::context::ApplyContext;
use super::download::{FetchOutcome, VersionCheck, download};
use super::members::PackageMember;
use super::patching::{PatchCandidate, has_patch, patch, plan_patch};
use super::received::ReceivedResource;
use super::task_error::TaskError;
use super::unpack::unpack;
use crate::clock;
use crate::engine::contradictions::note_contradiction;
use crate::store::{Task, TaskFailure};

/// The URIs that a resource may be fetched from, the first one first, without duplicates on hosts that are not allowed.
pub(crate) fn candidates_of(
    hosts: &[String],
    uri: &ResourceUri,
    expected: &Expected,
    links: &[Link],
) -> Vec<Candidate> {
    let hosts = AllowedHosts::new(hosts);
    let mut candidates = plan_candidates(uri, expected, links);
    candidates.retain(|candidate| candidate.is_own || hosts.allows(candidate.uri.url()));
    candidates
}

/// What a task states of the bytes.
fn expected_of(task: &Task) -> Expected {
    Expected {
        content: task.content.clone(),
        encoding: task.encoding.clone(),
        modified: task.lastmod.or(task.changed_at),
    }
}

/// A place from which the bytes of a task can be fetched.
enum TaskCandidate {
    Patch(PatchCandidate),
    /// With the path of the representation.
    Member(Arc<PackageMember>, String),
    Uri(Candidate),
}

/// The candidates of a task, the first one first.
fn plan(context: &ApplyContext, task: &Task) -> impl Iterator<Item = TaskCandidate> {
    let source = &context.source;
    let member = source.members.of(task);
    let patch = plan_patch(context, task, member.as_ref());
    if patch.is_none() && has_patch(context, task) {
        note_missed(context, task);
    }
    let uris = candidates_of(
        &source.source.hosts,
        &task.uri,
        &expected_of(task),
        &task.links,
    );
    // A package states no types.
    let selection = source.source.filter.selection();
    let needs_type = selection.needs_served_type(task.content.media_type.as_deref());
    let member = member.filter(|_| !needs_type).and_then(|member| {
        let path = member.path.clone()?;
        Some(TaskCandidate::Member(member, path))
    });
    let patch = patch.map(TaskCandidate::Patch);
    let uris = uris.into_iter().map(TaskCandidate::Uri);
    patch.into_iter().chain(member).chain(uris)
}

/// Fetches a task's resource. Fails only when every candidate has failed, and then with the error of its own URI.
pub(super) async fn fetch(
    context: &Arc<ApplyContext>,
    task: &Task,
    known: Option<&ServedVersion>,
) -> Result<FetchOutcome, TaskFailure> {
    if task.unconfirmed {
        return fetch_own(context, task, known).await;
    }
    let mut failed: Option<TaskFailure> = None;
    let mut is_absent = false;
    for candidate in plan(context, task) {
        let candidate = match candidate {
            TaskCandidate::Uri(candidate) => candidate,
            TaskCandidate::Patch(candidate) => match try_patch(context, task, candidate).await {
                Ok(Some(fetched)) => return Ok(FetchOutcome::Fetched(Box::new(fetched))),
                Ok(None) => continue,
                Err(error) => return Err(context.failure(task, error)),
            },
            TaskCandidate::Member(member, path) => {
                match unpack(context, task, expected_of(task), &member, path).await {
                    Ok(fetched) => return Ok(FetchOutcome::Fetched(Box::new(fetched))),
                    Err(error) if error.is_of_candidate() => {
                        let members = &context.source.members;
                        members.withdraw_unusable(context.name(), &member, error.code(), &error);
                        continue;
                    }
                    Err(error) => return Err(context.failure(task, error)),
                }
            }
        };
        // Where the Source answers that there is nothing, a candidate that nothing verifies is not used.
        let is_unverified = is_absent && !candidate.expected.content.is_verifiable();
        if is_unverified || is_skipped(context, &candidate) {
            continue;
        }
        let known = known.filter(|_| candidate.is_own);
        let error = match download(context, task, &candidate, known, VersionCheck::Any).await {
            Ok(outcome) => {
                count(context, &candidate, None);
                return Ok(outcome);
            }
            Err(error) => error,
        };
        if !error.is_of_candidate() {
            return Err(context.failure(task, error));
        }
        match &error {
            TaskError::Fetch(FetchError::TooLarge(_)) => {}
            TaskError::Fetch(error) if candidate.is_own => is_absent = error.is_absent(),
            _ => count(context, &candidate, Some(&error)),
        }
        let failure = context.failure(task, error);
        failed = Some(match failed {
            None => failure,
            Some(before) if candidate.is_own => after_others(failure, before),
            Some(before) => after_others(before, failure),
        });
    }
    // The resource's own URI is always a candidate.
    Err(failed.unwrap_or_else(|| context.failure(task, TaskError::Interrupted)))
}

/// The failure of a task of which another candidate has failed, too: it is given up once both are, and tried again as long as one is not.
fn after_others(failure: TaskFailure, other: TaskFailure) -> TaskFailure {
    TaskFailure {
        retry_at: if failure.is_given_up {
            other.retry_at
        } else {
            failure.retry_at
        },
        is_given_up: failure.is_given_up && other.is_given_up,
        ..failure
    }
}

/// Makes the representation by a patch; `None`: it can't be used. Fails only with errors that are not the patch's.
async fn try_patch(
    context: &Arc<ApplyContext>,
    task: &Task,
    candidate: PatchCandidate,
) -> Result<Option<ReceivedResource>, TaskError> {
    let own = task.uri.authority();
    let other_host = candidate.authority().filter(|host| *host != own);
    let is_skipped = |host: &String| context.breaker.lock().skips(clock::now(), host);
    if other_host.as_ref().is_some_and(is_skipped) {
        note_missed(context, task);
        return Ok(None);
    }
    let patched = patch(context, task, candidate).await;
    if let Some(host) = other_host {
        let mut breaker = context.breaker.lock();
        match &patched {
            Ok(_) => breaker.succeeded(&host),
            Err(TaskError::Fetch(_)) => {
                breaker.failed(clock::now(), &host);
            }
            Err(_) => {}
        }
    }
    match patched {
        Ok(patched) => return Ok(Some(patched)),
        Err(error) if !error.is_of_candidate() => return Err(error),
        Err(error) => {
            let code = error.code();
            tracing::debug!(code, source = context.name(), uri = %task.uri, %error, "patch unusable; fetching its resource");
            // A package may have nothing but the patch: nobody is to wait for that any more.
            let member = context.source.members.of(task);
            if let Some(member) = member.filter(|member| member.path.is_none()) {
                context
                    .source
                    .members
                    .withdraw_unusable(context.name(), &member, code, &error);
            }
        }
    }
    note_missed(context, task);
    Ok(None)
}

/// Counts a change whose patch was not used.
fn note_missed(context: &ApplyContext, task: &Task) {
    if task.attempts == 0 {
        let runtime_status = &context.source.runtime_status;
        runtime_status.note_set_of_task(task.set, |facts| facts.patch_missed += 1);
    }
}

/// Fetches a resource that only a hub has announced, from its own URI. If the Source still serves something else after the usual
/// tries, that is published: it is the Source's own statement, and its notification may have overtaken it only for a while.
async fn fetch_own(
    context: &Arc<ApplyContext>,
    task: &Task,
    known: Option<&ServedVersion>,
) -> Result<FetchOutcome, TaskFailure> {
    let own = |expected| Candidate {
        uri: task.uri.clone(),
        is_own: true,
        expected,
    };
    let announced = own(expected_of(task));
    let error = match download(context, task, &announced, known, VersionCheck::Any).await {
        Ok(outcome) => return Ok(outcome),
        Err(error) => error,
    };
    // A web page in place of another type is one for signing in, or of an error: it contradicts nothing.
    let contradicts = matches!(error, TaskError::Mismatch(_));
    let failure = context.failure(task, error);
    if !contradicts || !failure.is_given_up {
        return Err(failure);
    }
    let as_served = Task {
        content: ContentInfo {
            media_type: task.content.media_type.clone(),
            ..ContentInfo::default()
        },
        lastmod: None,
        ..task.clone()
    };
    let any = own(Expected::default());
    let served = download(context, &as_served, &any, None, VersionCheck::Any).await;
    let served = served.map_err(|error| context.failure(task, error))?;
    report_contradiction(context, task, &failure.message).await;
    Ok(served)
}

/// Reports that the Source's own answer is another than what its hub has stated.
pub(super) async fn report_contradiction(context: &ApplyContext, task: &Task, found: &str) {
    let (kind, source) = (DeliveryFaultKind::Contradicted, context.name());
    tracing::warn!(code = kind.code(), source, uri = %task.uri, change = task.kind.as_str(), found,
        "the Source's answer contradicts what was delivered; following the Source");
    note_contradiction(&context.source, task.set).await;
}

fn is_skipped(context: &ApplyContext, candidate: &Candidate) -> bool {
    let breaker = context.breaker.lock();
    !candidate.is_own && breaker.skips(clock::now(), &candidate.uri.authority())
}

/// Counts a success or an error of a duplicate's host.
fn count(context: &ApplyContext, candidate: &Candidate, error: Option<&TaskError>) {
    if candidate.is_own {
        return;
    }
    let host = candidate.uri.authority();
    let mut breaker = context.breaker.lock();
    let Some(error) = error else {
        return breaker.succeeded(&host);
    };
    tracing::debug!(code = error.code(), source = context.name(), duplicate = %candidate.uri, %error, "duplicate unusable");
    if let Some(pause) = breaker.failed(clock::now(), &host) {
        tracing::warn!(code = "duplicates-passed-over", source = context.name(), host, seconds = pause.as_secs(),
            %error, "host of duplicates keeps failing; skipping it for a while");
    }
}
