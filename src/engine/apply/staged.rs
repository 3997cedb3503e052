//! A resource in a staged file: received completely and verified, not published yet.

use crate::mirror::CompletedFile;
use crate::protocol::{Digest, ServedVersion, SourceTime};

/// A resource in a staged file.
pub(super) struct StagedResource {
    pub(super) file: CompletedFile,
    pub(super) description: Description,
}

/// What is recorded of a file besides its bytes.
pub(super) struct Description {
    pub(super) length: u64,
    pub(super) media_type: Option<String>,
    /// The content coding of its bytes; `None` if they are not coded.
    pub(super) encoding: Option<String>,
    pub(super) hashes: Vec<Digest>,
    pub(super) lastmod: Option<SourceTime>,
    /// The version that its server states; `None` if it did not come from the resource's own URI.
    pub(super) version: Option<ServedVersion>,
}
