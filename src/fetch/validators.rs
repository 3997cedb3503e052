//! What tells one version of a representation from the next (RFC 9110, sections 8.8 and 13.1).

use reqwest::RequestBuilder;
use reqwest::header::{ETAG, HeaderMap, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use serde::{Deserialize, Serialize};

use super::http_date::parse_http_date;
use crate::protocol::SourceTime;

/// What a server told of a version, to ask later whether it is still the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validators {
    /// The `ETag` header, as it was sent.
    pub etag: Option<String>,
    /// The `Last-Modified` header, as it was sent.
    pub last_modified: Option<String>,
}

impl Validators {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        Self {
            etag: text(ETAG),
            last_modified: text(LAST_MODIFIED),
        }
    }

    /// Whether there is nothing to ask with.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    /// Makes a request conditional.
    pub(super) fn condition(known: Option<&Self>, request: RequestBuilder) -> RequestBuilder {
        let Some(known) = known else { return request };
        let mut request = request;
        if let Some(etag) = &known.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        if let Some(time) = &known.last_modified {
            request = request.header(IF_MODIFIED_SINCE, time);
        }
        request
    }
}

/// When the server says that it was last modified.
pub(super) fn last_modified(headers: &HeaderMap) -> Option<SourceTime> {
    parse_http_date(headers.get(LAST_MODIFIED)?.to_str().ok()?).map(SourceTime::from)
}
