//! Fetches a resource from one candidate after another, until one of them has the right bytes.

use super::context::ApplyContext;
use super::download::{DownloadError, FetchOutcome, download};
use crate::clock;
use crate::fetch::{AllowedHosts, FetchError};
use crate::protocol::{Link, ResourceUri, ServedVersion};
use crate::store::{Task, TaskFailure};
use crate::sync::{Candidate, Expected, plan_candidates};

/// The URIs that a resource may be fetched from, the first one first, without duplicates on hosts that are not allowed.
pub(in crate::engine) fn candidates_of(
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
        length: task.length,
        hashes: task.hashes.clone(),
        modified: task.lastmod.or(task.changed_at),
    }
}

/// Fetches a task's resource. Fails only when every candidate has failed, and then with the error of its own URI.
pub(super) async fn fetch(
    context: &ApplyContext,
    task: &Task,
    known: Option<&ServedVersion>,
) -> Result<FetchOutcome, TaskFailure> {
    let mut failed: Option<TaskFailure> = None;
    let mut is_absent = false;
    let hosts = &context.source.source.hosts;
    for candidate in candidates_of(hosts, &task.uri, &expected_of(task), &task.links) {
        // Where the Source answers that there is nothing, a candidate that nothing verifies is not used.
        let is_unverified = is_absent && !candidate.expected.is_verifiable();
        if is_unverified || is_skipped(context, &candidate) {
            continue;
        }
        let known = known.filter(|_| candidate.is_own);
        let error = match download(context, task, &candidate, known).await {
            Ok(outcome) => {
                count(context, &candidate, None);
                return Ok(outcome);
            }
            Err(error) => error,
        };
        match &error {
            // The error is not the candidate's.
            DownloadError::Mirror(_) | DownloadError::Interrupted | DownloadError::Panicked => {
                return Err(error.into_failure(task));
            }
            DownloadError::Fetch(FetchError::TooLarge { .. }) => {}
            DownloadError::Fetch(error) if candidate.is_own => is_absent = error.is_absent(),
            _ => count(context, &candidate, Some(&error)),
        }
        let failure = error.into_failure(task);
        failed = Some(match failed {
            None => failure,
            Some(before) if candidate.is_own => TaskFailure {
                retry_at: failure.retry_at.or(before.retry_at),
                ..failure
            },
            Some(before) => TaskFailure {
                retry_at: before.retry_at.or(failure.retry_at),
                ..before
            },
        });
    }
    // The resource's own URI is always a candidate.
    Err(failed.unwrap_or_else(|| DownloadError::Interrupted.into_failure(task)))
}

fn is_skipped(context: &ApplyContext, candidate: &Candidate) -> bool {
    let breaker = context.breaker.lock();
    !candidate.is_own && breaker.skips(clock::now(), &candidate.uri.authority())
}

/// Counts a success or an error of a duplicate's host.
fn count(context: &ApplyContext, candidate: &Candidate, error: Option<&DownloadError>) {
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
