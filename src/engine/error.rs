//! Why a worker could not do its work for now.

use url::Url;

use crate::clock;
use crate::fetch::{DiscoveryError, Disposition, FetchError, PackageError};
use crate::mirror::MirrorError;
use crate::protocol::{Capability, Mismatch, ReadError};
use crate::status::StatusError;
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
    #[error(
        "the Capability List offers neither a Resource List nor a Resource Dump to make the baseline from"
    )]
    NoResourceList,
    #[error("the Resource List or Resource Dump at {0} is older than one that was read before")]
    OlderResourceList(String),
    #[error("{0} names nothing, and does not say what it is")]
    EmptyDocument(String),
    #[error("the package {uri} is {media_type}, and not a ZIP file")]
    UnsupportedPackage { uri: String, media_type: String },
    #[error("{uri}: {error}")]
    Package { uri: String, error: PackageError },
    #[error("{uri}: {mismatch}")]
    PackageMismatch { uri: String, mismatch: Mismatch },
    #[error("{message}")]
    RejectedPackage { code: &'static str, message: String },
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error("{0} entries of it can't be read")]
    BadEntries(u64),
    #[error("{count} entries of {document} can't be read: what they lead to is not known")]
    UnreadEntries { document: String, count: u64 },
    #[error("the Change Lists begin at {0}, after the Resource List")]
    LateChangeList(String),
    #[error("an index of indexes goes too deep")]
    NestedIndex,
    #[error("an index names too many lists")]
    TooManyLists,
    #[error("a notification has more than {0} entries")]
    TooManyEntries(usize),
    #[error("no random numbers can be had: {0}")]
    Random(String),
    #[error("the work was interrupted")]
    Interrupted,
}

impl EngineError {
    pub(super) fn of_package(uri: &Url, error: PackageError) -> Self {
        Self::Package {
            uri: uri.to_string(),
            error,
        }
    }

    /// Whether it is a package of a kind that is not understood.
    pub(super) fn is_unsupported(&self) -> bool {
        let is_package = matches!(
            self,
            Self::UnsupportedPackage { .. } | Self::Package { .. } | Self::RejectedPackage { .. }
        );
        is_package && self.code() == "unsupported-package"
    }

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
            Self::EmptyDocument(_) => "empty-document",
            Self::UnsupportedPackage { .. } => "unsupported-package",
            Self::Package { error, .. } => error.code(),
            Self::PackageMismatch { mismatch, .. } => mismatch.code(),
            Self::RejectedPackage { code, .. } => code,
            Self::BadEntries(_) | Self::UnreadEntries { .. } => "bad-entries",
            Self::LateChangeList(_) => "change-list-starts-late",
            Self::NestedIndex => "nested-index",
            Self::TooManyLists => "too-many-lists",
            Self::TooManyEntries(_) => "too-many-entries",
            Self::Random(_) => "no-random-numbers",
            Self::Interrupted => "interrupted",
        }
    }

    /// Whether a document can't be had, and not only for now.
    pub(super) fn is_permanent(&self) -> bool {
        match self {
            Self::Fetch { error, .. } => error.disposition() == Disposition::GiveUp,
            Self::Read(_) | Self::BadDocument { .. } => true,
            _ => false,
        }
    }

    /// Whether a Source may have it for ever: it is the Source's own, and does not come of the way to it, or of us.
    pub(super) fn is_source_fault(&self) -> bool {
        let is_ours = matches!(
            self,
            Self::Store(_) | Self::Mirror(_) | Self::Random(_) | Self::Interrupted
        );
        !is_ours && !self.is_transient()
    }

    /// Whether it may be gone the next time, and with it whatever else comes from there.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Fetch { error, .. } => {
                matches!(error.disposition(), Disposition::RetryLater { .. })
            }
            _ => false,
        }
    }

    /// As the status tells it.
    pub(super) fn status_error(&self) -> StatusError {
        StatusError::new(self.code(), self.to_string(), clock::now().wall)
    }
}
