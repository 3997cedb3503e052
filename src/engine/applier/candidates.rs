//! Fetches a resource from one place after another, until one of them has the right bytes.

use std::sync::{Arc, PoisonError};

use super::download::{Failure, FetchOutcome, fetch_from};
use crate::clock;
use crate::engine::context::SourceContext;
use crate::fetch::{AllowedHosts, FetchError};
use crate::mirror::Mirror;
use crate::protocol::{Link, ResourceUri, ServedVersion};
use crate::store::{Task, TaskFailure};
use crate::sync::{Candidate, Expected, plan_candidates};

impl SourceContext {
    /// The places that a resource may be fetched from, the first one first. A duplicate on a host that is not allowed is none.
    pub(in crate::engine) fn candidates(
        &self,
        uri: &ResourceUri,
        expected: &Expected,
        links: &[Link],
    ) -> Vec<Candidate> {
        let hosts = AllowedHosts::new(&self.source.hosts);
        let mut candidates = plan_candidates(uri, expected, links);
        candidates.retain(|candidate| candidate.is_own || hosts.allows(candidate.uri.url()));
        candidates
    }

    fn passes_over(&self, candidate: &Candidate) -> bool {
        let reliance = self.reliance.lock().unwrap_or_else(PoisonError::into_inner);
        !candidate.is_own && reliance.passes_over(clock::now(), &candidate.uri.authority())
    }

    /// Counts what came of a duplicate for or against its host.
    fn note(&self, candidate: &Candidate, failure: Option<&Failure>) {
        if candidate.is_own {
            return;
        }
        let host = candidate.uri.authority();
        let mut reliance = self.reliance.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(failure) = failure else {
            return reliance.succeeded(&host);
        };
        tracing::debug!(code = failure.code(), source = self.name(), duplicate = %candidate.uri, error = %failure, "a duplicate is of no use");
        if let Some(rest) = reliance.failed(clock::now(), &host) {
            tracing::warn!(code = "duplicates-passed-over", source = self.name(), host, seconds = rest.as_secs(),
                error = %failure, "a host of duplicates keeps failing: it is passed over for a while");
        }
    }
}

/// What a task tells of the bytes.
pub(in crate::engine) fn expected_of(task: &Task) -> Expected {
    Expected {
        length: task.length,
        hashes: task.hashes.clone(),
        modified: task.lastmod.or(task.changed_at),
    }
}

/// Fetches a task's resource. Fails only when every place has failed, and then as its own URI did.
pub(in crate::engine) async fn fetch(
    context: &SourceContext,
    mirror: &Arc<Mirror>,
    task: &Task,
    known: Option<&ServedVersion>,
) -> Result<FetchOutcome, TaskFailure> {
    let mut failed: Option<TaskFailure> = None;
    let mut is_absent = false;
    for candidate in context.candidates(&task.uri, &expected_of(task), &task.links) {
        // Where the Source says that there is nothing, something that nothing proves is no better.
        let is_worse = is_absent && !candidate.expected.is_told();
        if is_worse || context.passes_over(&candidate) {
            continue;
        }
        let known = known.filter(|_| candidate.is_own);
        let failure = match fetch_from(context, mirror, task, &candidate, known).await {
            Ok(got) => {
                context.note(&candidate, None);
                return Ok(got);
            }
            Err(failure) => failure,
        };
        match &failure {
            // Nothing is the matter with the place.
            Failure::Mirror(_) | Failure::Interrupted | Failure::Panicked => {
                return Err(failure.of(task));
            }
            Failure::Fetch(FetchError::TooLarge { .. }) => {}
            Failure::Fetch(error) if candidate.is_own => is_absent = error.is_absent(),
            _ => context.note(&candidate, Some(&failure)),
        }
        let failure = failure.of(task);
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
    // The own URI is always among the places.
    Err(failed.unwrap_or_else(|| Failure::Interrupted.of(task)))
}
