//! What distinguishes one version of a representation from the next (RFC 9110, section 8.8).

use url::Url;

/// The validators that a server sent with a version, for a later conditional request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// The `ETag` header, as it was sent.
    pub etag: Option<String>,
    /// The `Last-Modified` header, as it was sent.
    pub last_modified: Option<String>,
}

impl Validators {
    /// Whether a request can't be made conditional with them.
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

/// The version of a representation that a server sent, and where: validators mean nothing at another URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedVersion {
    /// Where it was served, after redirects.
    pub url: Url,
    /// Its validators.
    pub validators: Validators,
}
