//! Why nothing was discovered, or not all of it.

use url::Url;

use super::MOST_SETS;
use crate::fetch::{Disposition, FetchError};
use crate::protocol::{Capability, ReadError};

/// Why nothing was discovered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// A document could not be fetched.
    #[error("{uri}: {error}")]
    Fetch {
        /// The document.
        uri: String,
        /// Why.
        error: FetchError,
    },
    /// A document could not be read.
    #[error("{uri} is not a document: {message}")]
    Read {
        /// The document.
        uri: String,
        /// The reader's code.
        code: &'static str,
        /// The reader's message.
        message: String,
    },
    /// Nothing that leads to a Source Description or a Capability List.
    #[error("no Source Description and no Capability List can be found from {0}")]
    NoSourceDescription(Url),
    /// A Source Description that names no Capability List.
    #[error("the Source Description {0} names no Capability List")]
    NoCapabilityList(Url),
    /// What should be a Capability List is something else.
    #[error("not a Capability List, but {}", .0.as_ref().map_or("of no capability", Capability::as_str))]
    NotACapabilityList(Option<Capability>),
    /// A Source Description so deep below others that it is not looked at any more.
    #[error("nested too deeply to be looked at")]
    NestedTooDeep,
    /// Too many documents were looked at on the way already.
    #[error("not looked at: too many documents before it")]
    TooManyDocuments,
    /// More than 10,000 sets; those after them are not followed.
    #[error("more than {MOST_SETS} sets")]
    TooManySets,
}

impl DiscoveryError {
    /// Its stable name.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Fetch { error, .. } => error.code(),
            Self::Read { code, .. } => code,
            Self::NoSourceDescription(_) => "no-source-description",
            Self::NoCapabilityList(_) => "no-capability-list",
            Self::NotACapabilityList(_) => "not-a-capability-list",
            Self::NestedTooDeep => "nested-too-deep",
            Self::TooManyDocuments => "too-many-documents",
            Self::TooManySets => "too-many-sets",
        }
    }

    pub(in crate::fetch) fn fetching(uri: &Url, error: FetchError) -> Self {
        Self::Fetch {
            uri: uri.to_string(),
            error,
        }
    }

    pub(in crate::fetch) fn reading(uri: &Url, error: &ReadError) -> Self {
        Self::Read {
            uri: uri.to_string(),
            code: error.code(),
            message: error.to_string(),
        }
    }

    /// Whether it is worth trying again soon.
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::Fetch { error, .. } => error.disposition(),
            _ => Disposition::GiveUp,
        }
    }

    /// Whether the server can't be talked to, so that asking it for something else is of no use.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Fetch {
                error: FetchError::ForbiddenAddress(_)
                    | FetchError::Scheme(_)
                    | FetchError::Dns(_)
                    | FetchError::Connect(_)
                    | FetchError::Tls(_)
                    | FetchError::Timeout,
                ..
            }
        )
    }

    /// Whether nothing answered at all: with another scheme there may be somebody.
    pub fn is_unanswered(&self) -> bool {
        matches!(
            self,
            Self::Fetch {
                error: FetchError::Connect(_) | FetchError::Tls(_) | FetchError::Timeout,
                ..
            }
        )
    }

    /// Whether there may be ResourceSync where it was met: what fails for now, or can't be read, is no proof that there is
    /// none.
    pub(super) fn leaves_doubt(&self) -> bool {
        match self {
            Self::Fetch { error, .. } => error.disposition() != Disposition::GiveUp,
            Self::NoSourceDescription(_) => false,
            _ => true,
        }
    }

    /// Whether it says no more than that there is nothing.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::Fetch { error, .. } => error.is_absent(),
            Self::NoSourceDescription(_) => true,
            _ => false,
        }
    }
}
