//! Why a worker could not do its work for now.

use crate::clock;
use crate::fetch::{DiscoveryError, FetchError};
use crate::mirror::MirrorError;
use crate::protocol::{Capability, ReadError};
use crate::status::Trouble;
use crate::store::StoreError;

/// Why a worker could not do its work for now. All of these pass: the worker tells it and tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
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
    #[error("{0} entries of it can't be read")]
    BadEntries(u64),
    #[error("the Change Lists begin at {0}, after the Resource List")]
    LateChangeList(String),
    #[error("an index of indexes goes too deep")]
    NestedIndex,
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
            Self::Mirror(error) => error.code(),
            Self::Discovery(error) => error.code(),
            Self::Fetch { error, .. } => error.code(),
            Self::Read(error) | Self::BadDocument { error, .. } => error.code(),
            Self::WrongCapability { .. } => "wrong-capability",
            Self::NoResourceList => "no-resource-list",
            Self::OlderResourceList(_) => "older-resource-list",
            Self::BadEntries(_) => "bad-entries",
            Self::LateChangeList(_) => "change-list-starts-late",
            Self::NestedIndex => "nested-index",
            Self::Random(_) => "no-random-numbers",
            Self::Interrupted => "interrupted",
        }
    }

    /// As the status tells it.
    pub(super) fn trouble(&self) -> Trouble {
        Trouble::new(self.code(), self.to_string(), clock::now().wall)
    }
}
