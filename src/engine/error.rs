//! The error of the engine: why a worker could not finish an operation.
//!
//! Every operation that fails is repeated later. The [class](ErrorClass) of the error decides what happens until then.
//!
//! Invariants: each error has a stable code, the same in status, feed, metrics and logs; codes of other modules are passed on
//! unchanged.
//!
//! Must not know what a worker does about an error.

use std::fmt::Display;

use resourcesync::{Capability, Mismatch, ReadError};
use resyncd_core::{DeliveryFaultKind, ErrorClass, TopicUri};
use resyncd_fetch::{DiscoveryError, FetchError};
use resyncd_mirror::MirrorError;
use resyncd_packages::PackageError;
use tokio::task::JoinError;
use url::Url;

use crate::clock;
use crate::status::StatusError;
use crate::store::StoreError;

/// Why a worker could not finish an operation.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    #[error(transparent)]
    Store(StoreError),
    #[error("{0}; further ones are not read: see [limits] resources")]
    TooManyResources(StoreError),
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error("{uri}: {error}")]
    Fetch { uri: String, error: FetchError },
    #[error("not a document: {0}")]
    Read(#[from] ReadError),
    #[error("{uri} is not a document: {error}")]
    BadDocument { uri: String, error: ReadError },
    #[error("{document} is a {found}; expected a {wanted}")]
    WrongCapability {
        document: String,
        wanted: Capability,
        found: Capability,
    },
    #[error("{document} is a list of URIs as plain text; expected a {wanted}")]
    UriList {
        document: String,
        wanted: Capability,
    },
    #[error(
        "the Capability List offers neither a Resource List nor a Resource Dump for the baseline"
    )]
    NoResourceList,
    #[error("the Resource List or Resource Dump {0} is older than one that was read before")]
    OlderResourceList(String),
    #[error("{0} has no entries and states no capability")]
    EmptyDocument(String),
    #[error("the package {uri} is {media_type}, which is not read")]
    UnsupportedPackage { uri: String, media_type: String },
    #[error("{0} lists packages among changes: what they hold is not read")]
    MixedPackages(String),
    #[error("{uri}: {error}")]
    Package { uri: String, error: PackageError },
    #[error("{uri}: {mismatch}")]
    PackageMismatch { uri: String, mismatch: Mismatch },
    #[error("{message}")]
    RejectedPackage { code: &'static str, message: String },
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// Its own error has been reported.
    #[error("the mirror can't be written: the members of a package are not waited for")]
    UnwrittenMembers,
    #[error("{0} entries can't be read")]
    BadEntries(u64),
    #[error("{count} entries of {document} can't be read: what they name is unknown")]
    UnreadEntries { document: String, count: u64 },
    #[error("the Change Lists begin at {0}, after the time of the Resource List")]
    LateChangeList(String),
    #[error("{0} was read already as a page of its list: what follows it is unknown")]
    RepeatedPage(String),
    #[error("{dead} of {parts} parts of {document} can't be read: {named}")]
    DeadParts {
        document: String,
        dead: u64,
        parts: u64,
        /// The errors of the first ones.
        named: String,
        first: Box<EngineError>,
    },
    #[error("the index {0} names no document that can be read")]
    EmptyIndex(String),
    #[error("indexes are nested too deeply: {0} is not read")]
    NestedIndex(String),
    #[error("an index names too many lists")]
    TooManyLists,
    #[error("a list states more than {0} changes of times that were read before")]
    TooManyLateChanges(usize),
    #[error("a notification has more than {0} entries")]
    TooManyEntries(usize),
    #[error("the delivery states {link} {uri}, of another channel or another set")]
    Misdirected { link: &'static str, uri: TopicUri },
    #[error("resyncd panicked while it read {0}; see the log")]
    Panicked(String),
    #[error("random numbers are unavailable: {0}")]
    Random(String),
    #[error("the operation was interrupted")]
    Interrupted,
}

impl From<StoreError> for EngineError {
    /// The limit of a Source is no failure of the database.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::TooManyResources(_) => Self::TooManyResources(error),
            // Nor is a panic: it may be due to what a Source has sent.
            StoreError::Panicked => Self::Panicked("the database".to_owned()),
            error => Self::Store(error),
        }
    }
}

impl EngineError {
    /// The error of reading `what` on a blocking thread that has returned nothing.
    pub(super) fn of_join(error: &JoinError, what: impl Display) -> Self {
        if error.is_panic() {
            Self::Panicked(what.to_string())
        } else {
            Self::Interrupted
        }
    }

    pub(super) fn of_package(uri: &Url, error: PackageError) -> Self {
        Self::Package {
            uri: uri.to_string(),
            error,
        }
    }

    /// Whether a package is of an unsupported type.
    pub(super) fn is_unsupported(&self) -> bool {
        let is_package = matches!(
            self,
            Self::UnsupportedPackage { .. } | Self::Package { .. } | Self::RejectedPackage { .. }
        );
        is_package && self.code() == "unsupported-package"
    }

    /// Whether the server states that there is no such document.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Self::Fetch { error, .. } if error.is_absent())
    }

    /// The stable code.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Store(error) | Self::TooManyResources(error) => error.code(),
            Self::Mirror(error) => error.code(),
            Self::UnwrittenMembers => "mirror-unusable",
            Self::Discovery(error) => error.code(),
            Self::Fetch { error, .. } => error.code(),
            Self::Read(error) | Self::BadDocument { error, .. } => error.code(),
            Self::WrongCapability { .. } | Self::UriList { .. } => "wrong-capability",
            Self::NoResourceList => "no-resource-list",
            Self::OlderResourceList(_) => "older-resource-list",
            Self::EmptyDocument(_) => "empty-document",
            Self::UnsupportedPackage { .. } | Self::MixedPackages(_) => "unsupported-package",
            Self::Package { error, .. } => error.code(),
            Self::PackageMismatch { mismatch, .. } => mismatch.code(),
            Self::RejectedPackage { code, .. } => code,
            Self::BadEntries(_) | Self::UnreadEntries { .. } => "bad-entries",
            Self::LateChangeList(_) => "change-list-starts-late",
            Self::RepeatedPage(_) => "repeated-page",
            Self::DeadParts { first, .. } => first.code(),
            Self::EmptyIndex(_) => "empty-index",
            Self::NestedIndex(_) => "nested-index",
            Self::TooManyLists => "too-many-lists",
            Self::TooManyLateChanges(_) => "too-many-late-changes",
            Self::TooManyEntries(_) => "too-many-entries",
            Self::Misdirected { .. } => DeliveryFaultKind::Misdirected.code(),
            Self::Panicked(_) => "panicked",
            Self::Random(_) => "no-random-numbers",
            Self::Interrupted => "interrupted",
        }
    }

    /// The class. A document that makes the program panic does so until it changes. An error of a package counts as the Source's also if
    /// the disk failed, because the changes are followed meanwhile.
    pub(super) fn class(&self) -> ErrorClass {
        match self {
            Self::Store(_) | Self::UnwrittenMembers | Self::Random(_) | Self::Interrupted => {
                ErrorClass::Fatal
            }
            Self::Mirror(error) => error.class(),
            Self::Fetch { error, .. } => error.class(),
            Self::Discovery(error) => error.class(),
            Self::Read(_)
            | Self::BadDocument { .. }
            | Self::WrongCapability { .. }
            | Self::UriList { .. }
            | Self::NoResourceList
            | Self::OlderResourceList(_)
            | Self::EmptyDocument(_)
            | Self::UnsupportedPackage { .. }
            | Self::MixedPackages(_)
            | Self::Package { .. }
            | Self::PackageMismatch { .. }
            | Self::RejectedPackage { .. }
            | Self::BadEntries(_)
            | Self::UnreadEntries { .. }
            | Self::LateChangeList(_)
            | Self::RepeatedPage(_)
            | Self::DeadParts { .. }
            | Self::EmptyIndex(_)
            | Self::NestedIndex(_)
            | Self::TooManyLists
            | Self::TooManyEntries(_)
            | Self::TooManyLateChanges(_)
            | Self::TooManyResources(_)
            | Self::Panicked(_)
            | Self::Misdirected { .. } => ErrorClass::Unusable,
        }
    }

    /// Whether nothing more can be done until the error passes.
    pub(super) fn is_fatal(&self) -> bool {
        self.class() == ErrorClass::Fatal
    }

    /// Whether the Source must change something before the operation can succeed.
    pub(super) fn is_unusable(&self) -> bool {
        self.class() == ErrorClass::Unusable
    }

    /// Whether the error may pass by itself.
    pub(super) fn is_transient(&self) -> bool {
        self.class() == ErrorClass::Retry
    }

    /// The error as the status reports it.
    pub(super) fn status_error(&self) -> StatusError {
        StatusError::new(self.code(), self.to_string(), clock::now().wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        use ErrorClass::{Fatal, Retry, Unusable};
        let text = String::new;
        let uri = Url::parse("http://example.org/").unwrap();
        let fetching = |error| EngineError::Fetch { uri: text(), error };
        let rejected = EngineError::RejectedPackage {
            code: "bad-package",
            message: text(),
        };
        let wrong = EngineError::WrongCapability {
            document: text(),
            wanted: Capability::ResourceList,
            found: Capability::ChangeList,
        };
        for (error, class) in [
            (StoreError::Closed.into(), Fatal),
            (StoreError::Panicked.into(), Unusable),
            (MirrorError::Missing { path: text() }.into(), Unusable),
            (
                MirrorError::Locked {
                    root: text().into(),
                }
                .into(),
                Retry,
            ),
            (DiscoveryError::NestedTooDeep.into(), Unusable),
            (fetching(FetchError::Timeout), Retry),
            (fetching(FetchError::Expansion), Unusable),
            (
                EngineError::of_package(&uri, PackageError::NoManifest),
                Unusable,
            ),
            (rejected, Unusable),
            (wrong, Unusable),
            (EngineError::NoResourceList, Unusable),
            (EngineError::OlderResourceList(text()), Unusable),
            (EngineError::EmptyDocument(text()), Unusable),
            (EngineError::BadEntries(1), Unusable),
            (EngineError::LateChangeList(text()), Unusable),
            (EngineError::RepeatedPage(text()), Unusable),
            (EngineError::EmptyIndex(text()), Unusable),
            (EngineError::NestedIndex(text()), Unusable),
            (EngineError::TooManyLists, Unusable),
            (EngineError::TooManyEntries(1), Unusable),
            (StoreError::TooManyResources(1).into(), Unusable),
            (EngineError::Panicked(text()), Unusable),
            (EngineError::UnwrittenMembers, Fatal),
            (EngineError::Random(text()), Fatal),
            (EngineError::Interrupted, Fatal),
        ] {
            assert_eq!(error.class(), class, "{error:?}");
        }
    }
}
