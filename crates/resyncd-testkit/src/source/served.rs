//! What the sample Source serves: a file, and the headers that go with it.

use bytes::Bytes;
use resourcesync::{Algorithm, Digest, SourceTime};

/// A body with its media type.
#[derive(Clone, Debug)]
pub(super) struct ServedFile {
    pub(super) media_type: String,
    pub(super) body: Bytes,
}

impl ServedFile {
    /// A ResourceSync document.
    pub(super) fn xml(body: Bytes) -> Self {
        Self {
            media_type: "application/xml".to_owned(),
            body,
        }
    }
}

/// The answer to a request for a path: the file and its headers.
#[derive(Clone, Debug)]
pub(super) struct Representation {
    pub(super) file: ServedFile,
    pub(super) etag: String,
    pub(super) lastmod: Option<SourceTime>,
    /// The value of the `Link` header; topics have one.
    pub(super) links: Option<String>,
    /// The time of the version, if it is one of several that are served.
    pub(super) memento: Option<SourceTime>,
}

/// The answer of a TimeGate (RFC 7089): where the version is that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Negotiated {
    pub(super) location: String,
    /// The value of the `Link` header.
    pub(super) links: String,
}

impl From<ServedFile> for Representation {
    /// The ETag is the digest of the body.
    fn from(file: ServedFile) -> Self {
        Self {
            etag: format!("\"{}\"", Digest::of(Algorithm::Sha256, &file.body)),
            file,
            lastmod: None,
            links: None,
            memento: None,
        }
    }
}
