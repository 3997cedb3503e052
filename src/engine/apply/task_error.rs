//! Why a task failed, and when it is tried again.

use std::time::Duration;

use chrono::TimeDelta;
use resourcesync::{Mismatch, SourceTime};
use resyncd_core::ErrorClass;
use resyncd_fetch::{Bounds, Client, FetchError};
use resyncd_mirror::MirrorError;
use resyncd_packages::PackageError;
use resyncd_patches::PatchError;
use tokio::task::JoinError;
use url::Url;

use super::former_versions::PAUSES;
use crate::clock;
use crate::store::{SourceAnswer, Task, TaskFailure, UNSELECTED_TYPE};

/// How often a resource is tried before it counts as failed. The pauses grow on after that: an outage that has lasted for a while may
/// last for as long again.
const TRIES: Bounds = Bounds {
    tries: 6,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(3600),
};
/// The same of a resource that the server answers 404 for: it may have been announced a moment too early.
const TRIES_IF_ABSENT: Bounds = Bounds {
    tries: 3,
    longest: Duration::from_secs(24 * 3600),
    ..TRIES
};
/// The same of a resource that the server refuses.
const TRIES_IF_REFUSED: Bounds = Bounds {
    tries: 1,
    ..TRIES_IF_ABSENT
};
/// The same where nothing may pass by itself: something else has to change.
const ONE_TRY: Bounds = Bounds {
    tries: 1,
    first: Duration::from_secs(60),
    ..TRIES
};
/// The pause before a deletion that waits for another set is tried again, unless that set is read before.
const SET_PAUSE: TimeDelta = TimeDelta::hours(1);
/// The pause before a resource is tried again that robots.txt disallows: that is requested once a day.
const ROBOTS_PAUSE: TimeDelta = TimeDelta::days(1);
/// The pause after a disk error.
const DISK_PAUSE: TimeDelta = TimeDelta::seconds(10);
/// The pause after a result that the mirror can't have, as one whose path is not possible.
const UNPUBLISHED_PAUSE: TimeDelta = TimeDelta::hours(1);

/// The code of an answer that may be the former version, and of the notice that it was accepted.
pub(super) const FORMER_VERSION: &str = "former-version";

/// Why a task failed, or one of its candidates.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// What was received, or made by a patch, is not as stated.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    #[error(transparent)]
    Package(#[from] PackageError),
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// A package member or a patch can't be used.
    #[error("{why}")]
    UnusableCandidate {
        code: &'static str,
        why: &'static str,
    },
    #[error("it was last modified at {got} where {announced} was announced")]
    Stale {
        announced: SourceTime,
        got: SourceTime,
    },
    #[error(
        "the answer is the version of {got} where {announced} was announced: a cache may lag behind"
    )]
    FormerVersion {
        announced: SourceTime,
        got: SourceTime,
    },
    #[error(
        "the server sent an HTML page where {other} {how}; allow_type_mismatch in the configuration accepts it"
    )]
    TypeMismatch { other: String, how: &'static str },
    #[error("it is served as {0}, which `types` in the configuration does not name")]
    UnselectedType(String),
    #[error("the Source still serves a resource whose deletion was announced")]
    StillServed,
    #[error(
        "the deletion waits until {0}, which may have the resource as well, has been read completely once"
    )]
    AwaitsSet(Url),
    #[error("the answer has no Memento-Datetime: it is no version of a certain time")]
    NoMemento,
    #[error("the answer is the version of {found}, which is {how}")]
    OtherMemento {
        found: SourceTime,
        how: &'static str,
        code: &'static str,
    },
    #[error("the work was interrupted")]
    Interrupted,
    #[error("resyncd panicked; see the log")]
    Panicked,
}

impl TaskError {
    /// The error of work on a blocking thread that has returned nothing.
    pub(crate) fn of_join(error: &JoinError) -> Self {
        if error.is_panic() {
            Self::Panicked
        } else {
            Self::Interrupted
        }
    }

    /// Whether another candidate may do: the error is that of the candidate, not of the mirror or of the work itself.
    pub(super) fn is_of_candidate(&self) -> bool {
        !matches!(self, Self::Mirror(_) | Self::Interrupted | Self::Panicked)
    }

    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Fetch(error) => error.code(),
            Self::Mirror(error) => error.code(),
            Self::Mismatch(mismatch) => mismatch.code(),
            Self::Package(error) => error.code(),
            Self::Patch(error) => error.code(),
            Self::UnusableCandidate { code, .. } => code,
            Self::Stale { .. } => "stale-duplicate",
            Self::FormerVersion { .. } => FORMER_VERSION,
            Self::TypeMismatch { .. } => "type-mismatch",
            Self::UnselectedType(_) => UNSELECTED_TYPE,
            Self::StillServed => "still-served",
            Self::AwaitsSet(_) => "deletion-waits",
            Self::NoMemento => "no-memento",
            Self::OtherMemento { code, .. } => code,
            Self::Interrupted => "interrupted",
            Self::Panicked => "panicked",
        }
    }

    /// The failure of the task, with the time of its retry. A full disk does not count as a try.
    pub(crate) fn into_failure(self, task: &Task, client: &Client) -> TaskFailure {
        let answer = match &self {
            Self::Fetch(FetchError::Disallowed { .. }) => Some(SourceAnswer::Disallowed),
            Self::Fetch(error) if error.is_absent() => Some(SourceAnswer::Absent),
            Self::Fetch(error) if error.is_refusal() => Some(SourceAnswer::Refused),
            Self::Fetch(_) | Self::AwaitsSet(_) | Self::Interrupted | Self::Panicked => None,
            Self::Mirror(_)
            | Self::Mismatch(_)
            | Self::Package(_)
            | Self::Patch(_)
            | Self::UnusableCandidate { .. }
            | Self::Stale { .. }
            | Self::FormerVersion { .. }
            | Self::TypeMismatch { .. }
            | Self::UnselectedType(_)
            | Self::StillServed
            | Self::NoMemento
            | Self::OtherMemento { .. } => Some(SourceAnswer::Served),
        };
        let asked = match &self {
            Self::Fetch(error) => error.retry_after(),
            _ => None,
        };
        let tried = task.attempts + 1;
        let after = |wait: TimeDelta| (wait, false);
        let growing = |bounds: &Bounds| {
            let pause = client.pause_after(tried, asked, bounds);
            let wait = TimeDelta::from_std(pause).unwrap_or(TimeDelta::days(1));
            (wait, tried >= bounds.tries)
        };
        let (wait, is_given_up) = match &self {
            Self::Mirror(error) if error.class() == ErrorClass::Fatal => after(DISK_PAUSE),
            Self::Interrupted => after(TimeDelta::zero()),
            Self::AwaitsSet(_) => after(SET_PAUSE),
            Self::Mirror(_)
            | Self::Panicked
            | Self::UnselectedType(_)
            | Self::Package(_)
            | Self::Patch(_)
            | Self::UnusableCandidate { .. } => growing(&ONE_TRY),
            Self::Mismatch(_)
            | Self::Stale { .. }
            | Self::TypeMismatch { .. }
            | Self::NoMemento
            | Self::OtherMemento { .. } => growing(&TRIES),
            Self::FormerVersion { .. } => PAUSES
                .get(task.attempts as usize)
                .map_or_else(|| growing(&TRIES), |wait| after(*wait)),
            Self::StillServed => growing(&TRIES_IF_ABSENT),
            Self::Fetch(FetchError::Disallowed { .. }) => (ROBOTS_PAUSE, true),
            Self::Fetch(error) if error.is_absent() => growing(&TRIES_IF_ABSENT),
            Self::Fetch(error) if error.is_refusal() => growing(&TRIES_IF_REFUSED),
            Self::Fetch(error) if error.class() == ErrorClass::Retry => growing(&TRIES),
            Self::Fetch(_) => growing(&ONE_TRY),
        };
        TaskFailure {
            code: self.code(),
            message: self.to_string(),
            retry_at: clock::now().wall + wait,
            is_given_up,
            counts: !matches!(&self, Self::Mirror(error) if error.class() == ErrorClass::Fatal),
            answer,
            is_in_doubt: false,
            awaits_sets: matches!(&self, Self::AwaitsSet(_)),
        }
    }
}

/// The failure of a task whose result could not be published. What is missing was removed a moment ago: the next try fetches it.
pub(super) fn publication_failure(error: &MirrorError) -> TaskFailure {
    let is_fatal = error.class() == ErrorClass::Fatal;
    let again = is_fatal || matches!(error, MirrorError::Missing { .. });
    let wait = if again { DISK_PAUSE } else { UNPUBLISHED_PAUSE };
    TaskFailure {
        code: error.code(),
        message: error.to_string(),
        retry_at: clock::now().wall + wait,
        is_given_up: !again,
        counts: !is_fatal,
        answer: Some(SourceAnswer::Served),
        is_in_doubt: false,
        awaits_sets: false,
    }
}
