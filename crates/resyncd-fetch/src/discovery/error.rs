//! Why a discovery failed, or a part of it.

use resourcesync::ReadError;
use resyncd_core::{ErrorClass, Redaction};
use url::Url;

use crate::FetchError;

/// The maximum number of sets of a Source.
pub(super) const MAX_SETS: usize = 10_000;

/// Why a discovery failed, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// A document could not be fetched.
    #[error("{uri}: {error}")]
    Fetch {
        /// The document.
        uri: String,
        /// The reason.
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
    /// Nothing leads to a Source Description or a Capability List.
    #[error("no Source Description or Capability List found from {entry}{tried}")]
    NoSourceDescription {
        /// The entry point.
        entry: Url,
        /// What was tried and what was found there, for a person.
        tried: String,
    },
    /// A Source Description without Capability Lists.
    #[error("the Source Description {0} lists no Capability List")]
    NoCapabilityList(Url),
    /// Something else in place of a Capability List.
    #[error("{uri} is not a Capability List: {found}")]
    NotACapabilityList {
        /// Where it is.
        uri: String,
        /// What it is, for a person.
        found: String,
    },
    /// A document at the URI of a sitemap that is none.
    #[error("neither a sitemap nor a ResourceSync document")]
    NotASitemap,
    /// A Source Description nested too deeply below others; it was not fetched.
    #[error("not fetched: nested too deeply")]
    NestedTooDeep,
    /// The maximum number of documents was reached before this one.
    #[error("not fetched: too many documents before it")]
    TooManyDocuments,
    /// The documents that lead to the sets have more URIs than are held in memory; what comes after them is not read.
    #[error("the documents that lead to the sets have too many URIs")]
    TooLarge,
    /// More sets than are followed, or than 10,000.
    #[error("the Source has too many sets")]
    TooManySets,
    /// More new sets than begin to be followed within a day.
    #[error("too many of its sets are new; they are followed later")]
    TooManyNewSets,
}

impl DiscoveryError {
    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Fetch { error, .. } => error.code(),
            Self::Read { code, .. } => code,
            Self::NoSourceDescription { .. } => "no-source-description",
            Self::NoCapabilityList(_) => "no-capability-list",
            Self::NotACapabilityList { .. } => "not-a-capability-list",
            Self::NotASitemap => "not-a-sitemap",
            Self::NestedTooDeep => "nested-too-deep",
            Self::TooManyDocuments => "too-many-documents",
            Self::TooLarge => "discovery-too-large",
            Self::TooManySets => "too-many-sets",
            Self::TooManyNewSets => "too-many-new-sets",
        }
    }

    /// Nothing was found from an entry point.
    pub(crate) fn nothing_from(entry: &Url) -> Self {
        Self::NoSourceDescription {
            entry: entry.clone(),
            tried: String::new(),
        }
    }

    /// The same, with what was tried.
    pub(super) fn having_tried(self, tried: String) -> Self {
        match self {
            Self::NoSourceDescription { entry, .. } => Self::NoSourceDescription { entry, tried },
            error => error,
        }
    }

    /// The reason without the document.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Fetch { error, .. } => error.to_string(),
            Self::Read { message, .. } => format!("not a document: {message}"),
            error => error.to_string(),
        }
    }

    pub(super) fn not_a_capability_list(uri: &Url, found: &impl ToString) -> Self {
        Self::NotACapabilityList {
            uri: uri.to_string(),
            found: found.to_string(),
        }
    }

    pub(crate) fn fetching(uri: &Url, error: FetchError) -> Self {
        Self::Fetch {
            uri: uri.to_string(),
            error,
        }
    }

    pub(crate) fn reading(uri: &Url, error: ReadError, secrets: &Redaction) -> Self {
        let error = error.map_text(|text| secrets.redact(text));
        Self::Read {
            uri: uri.to_string(),
            code: error.code(),
            message: error.to_string(),
        }
    }

    /// The class.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Fetch { error, .. } => error.class(),
            _ => ErrorClass::Unusable,
        }
    }

    /// Whether the server can't be reached, so that other requests to it would fail as well.
    pub(super) fn is_unreachable(&self) -> bool {
        let is_of_name = |error: &FetchError| {
            use FetchError::{Dns, ForbiddenAddress, Scheme};
            matches!(error, ForbiddenAddress(_) | Scheme(_) | Dns(_))
        };
        self.is_unanswered() || matches!(self, Self::Fetch { error, .. } if is_of_name(error))
    }

    /// Whether no server answered: with another scheme one may.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Fetch { error, .. } if error.is_unanswered())
    }

    /// Whether there may be a ResourceSync document nevertheless: a temporary failure, or a document that can't be read, does
    /// not prove that there is none.
    pub(super) fn is_inconclusive(&self) -> bool {
        match self {
            Self::Fetch { error, .. } => error.class() == ErrorClass::Retry,
            Self::NoSourceDescription { .. } => false,
            _ => true,
        }
    }

    /// Whether it only states that there is no document.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::Fetch { error, .. } => error.is_absent(),
            Self::NoSourceDescription { .. } => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        use ErrorClass::{Retry, Unusable};
        let url = Url::parse("http://example.org/").unwrap();
        let read = DiscoveryError::Read {
            uri: url.to_string(),
            code: "xml",
            message: String::new(),
        };
        let fetching = |error| DiscoveryError::fetching(&url, error);
        for (error, class) in [
            (fetching(FetchError::Timeout), Retry),
            (fetching(FetchError::Expansion), Unusable),
            (read, Unusable),
            (DiscoveryError::nothing_from(&url), Unusable),
            (DiscoveryError::NoCapabilityList(url.clone()), Unusable),
            (
                DiscoveryError::not_a_capability_list(&url, &String::new()),
                Unusable,
            ),
            (DiscoveryError::NotASitemap, Unusable),
            (DiscoveryError::NestedTooDeep, Unusable),
            (DiscoveryError::TooManyDocuments, Unusable),
            (DiscoveryError::TooLarge, Unusable),
            (DiscoveryError::TooManySets, Unusable),
            (DiscoveryError::TooManyNewSets, Unusable),
        ] {
            assert_eq!(error.class(), class, "{error:?}");
        }
    }
}
