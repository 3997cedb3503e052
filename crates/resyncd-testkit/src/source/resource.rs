//! One resource of the sample Source.

use bytes::Bytes;
use resourcesync::{Algorithm, Digest, SourceTime};
use url::Url;

/// The current state of a resource.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) uri: Url,
    pub(super) bytes: Bytes,
    pub(super) lastmod: SourceTime,
    pub(super) digest: Digest,
    pub(super) media_type: &'static str,
}

impl Resource {
    pub(super) fn new(uri: Url, bytes: Bytes, lastmod: SourceTime) -> Self {
        let media_type = media_type(uri.path());
        let digest = Digest::of(Algorithm::Sha256, &bytes);
        Self {
            uri,
            bytes,
            lastmod,
            digest,
            media_type,
        }
    }
}

/// The path and query of a resource's URI: the request target that returns it.
pub(super) fn path_and_query(uri: &Url) -> &str {
    &uri[url::Position::BeforePath..url::Position::AfterQuery]
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("txt") => "text/plain",
        Some("html") => "text/html",
        Some("xml") => "application/xml",
        Some("json") => "application/json",
        Some("pdf") => "application/pdf",
        _ => "application/octet-stream",
    }
}
