//! Why a worker could not do its work for now.

use crate::clock;
use crate::fetch::{DiscoveryError, Disposition, FetchError};
use crate::protocol::{Capability, ReadError};
use crate::status::Trouble;
use crate::store::StoreError;

/// Why a worker could not do its work for now. All of these pass: the worker tells it and tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error("{uri}: {error}")]
    Fetch { uri: String, error: FetchError },
    #[error("not a document: {0}")]
    Read(#[from] ReadError),
    #[error("{uri} is not a document: {error}")]
    BadDocument { uri: String, error: ReadError },
    #[error("{document} is a {found} where a {wanted} was expected")]
    WrongCapability {
        document: String,
        wanted: Capability,
        found: Capability,
    },
    #[error("the Capability List offers no Resource List to make the baseline from")]
    NoResourceList,
    #[error("the Resource List at {0} is older than one that was read before")]
    OlderResourceList(String),
    #[error("an index of indexes goes too deep")]
    NestedIndex,
    #[error("an index names too many lists")]
    TooManyLists,
    #[error("no random numbers can be had: {0}")]
    Random(String),
    #[error("the work was interrupted")]
    Interrupted,
}

impl EngineError {
    /// The stable name of the error.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Discovery(error) => error.code(),
            Self::Fetch { error, .. } => error.code(),
            Self::Read(error) | Self::BadDocument { error, .. } => error.code(),
            Self::WrongCapability { .. } => "wrong-capability",
            Self::NoResourceList => "no-resource-list",
            Self::OlderResourceList(_) => "older-resource-list",
            Self::NestedIndex => "nested-index",
            Self::TooManyLists => "too-many-lists",
            Self::Random(_) => "no-random-numbers",
            Self::Interrupted => "interrupted",
        }
    }

    /// Whether a document can't be had, and not only for now.
    pub(super) fn is_lasting(&self) -> bool {
        match self {
            Self::Fetch { error, .. } => error.disposition() == Disposition::GiveUp,
            Self::Read(_) | Self::BadDocument { .. } => true,
            _ => false,
        }
    }

    /// As the status tells it.
    pub(super) fn trouble(&self) -> Trouble {
        Trouble::new(self.code(), self.to_string(), clock::now().wall)
    }
}
