//! Why a task failed, and when it is tried again.

use std::time::Duration;

use chrono::TimeDelta;
use resourcesync::{Mismatch, SourceTime};
use resyncd_core::ErrorClass;
use resyncd_fetch::{Bounds, Client, FetchError};
use resyncd_mirror::MirrorError;
use tokio::task::JoinError;
use url::Url;

use super::former_versions::PAUSES;
use crate::clock;
use crate::store::{Task, TaskFailure, UNSELECTED_TYPE};

/// How often a resource is tried, and with what pauses, before it is given up until the next poll.
const TRIES: Bounds = Bounds {
    tries: 6,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};
/// How often a resource is tried that the server answers 404 for: it may have been announced a moment too early.
const TRIES_IF_ABSENT: Bounds = Bounds { tries: 3, ..TRIES };
/// The pause before a deletion that waits for another set is tried again, unless that set is read before.
const SET_PAUSE: TimeDelta = TimeDelta::hours(1);
/// The pause after a disk error.
const DISK_PAUSE: TimeDelta = TimeDelta::seconds(10);

/// The code of an answer that may be the former version, and of the notice that it was accepted.
pub(super) const FORMER_VERSION: &str = "former-version";

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum TaskError {
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
    pub(in crate::engine) fn of_join(error: &JoinError) -> Self {
        match error.is_panic() {
            true => Self::Panicked,
            false => Self::Interrupted,
        }
    }

    pub(in crate::engine) fn code(&self) -> &'static str {
        match self {
            Self::Fetch(error) => error.code(),
            Self::Mirror(error) => error.code(),
            Self::Mismatch(mismatch) => mismatch.code(),
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
    pub(in crate::engine) fn into_failure(self, task: &Task, client: &Client) -> TaskFailure {
        let pause = |tried, asked, bounds: &Bounds| {
            let pause = client.pause(tried, asked, bounds)?;
            Some(TimeDelta::from_std(pause).unwrap_or(TimeDelta::hours(1)))
        };
        let now = clock::now().wall;
        let tried = task.attempts + 1;
        let (wait, counts) = match &self {
            Self::Mirror(error) if error.class() == ErrorClass::Fatal => (Some(DISK_PAUSE), false),
            Self::Interrupted => (Some(TimeDelta::zero()), true),
            Self::AwaitsSet(_) => (Some(SET_PAUSE), true),
            Self::Mirror(_) | Self::Panicked | Self::UnselectedType(_) => (None, true),
            Self::Mismatch(_)
            | Self::Stale { .. }
            | Self::TypeMismatch { .. }
            | Self::NoMemento
            | Self::OtherMemento { .. } => (pause(tried, None, &TRIES), true),
            Self::FormerVersion { .. } => (PAUSES.get(task.attempts as usize).copied(), true),
            Self::StillServed => (pause(tried, None, &TRIES_IF_ABSENT), true),
            Self::Fetch(error) if error.is_absent() => (pause(tried, None, &TRIES_IF_ABSENT), true),
            Self::Fetch(error) if error.class() == ErrorClass::Retry => {
                (pause(tried, error.retry_after(), &TRIES), true)
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
            is_in_doubt: false,
            awaits_sets: matches!(&self, Self::AwaitsSet(_)),
        }
    }
}

/// The failure of a task whose result could not be published. What is missing was removed a moment ago: the next try fetches it.
pub(super) fn publication_failure(error: &MirrorError) -> TaskFailure {
    let is_fatal = error.class() == ErrorClass::Fatal;
    let again = is_fatal || matches!(error, MirrorError::Missing { .. });
    let wait = again.then_some(DISK_PAUSE);
    TaskFailure {
        code: error.code(),
        message: error.to_string(),
        retry_at: wait.map(|wait| clock::now().wall + wait),
        counts: !is_fatal,
        is_absent: false,
        is_in_doubt: false,
        awaits_sets: false,
    }
}
