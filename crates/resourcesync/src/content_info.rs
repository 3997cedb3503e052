//! What is stated of a representation.

use super::Digest;

/// What a document states of the bytes of a representation: the attributes `length`, `type` and `hash` of `rs:md` and `rs:ln`
/// (section 7). Nothing of it is required.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ContentInfo {
    /// The length, in bytes.
    pub length: Option<u64>,
    /// The media type.
    pub media_type: Option<String>,
    /// The digests, of supported algorithms.
    pub hashes: Vec<Digest>,
}

impl ContentInfo {
    /// Whether a stated length or digest can verify the bytes. A media type can't.
    pub fn is_verifiable(&self) -> bool {
        self.length.is_some() || !self.hashes.is_empty()
    }

    /// Adds what another statement of the same bytes states besides. Where they differ this one counts.
    pub fn complete_with(&mut self, other: &Self) {
        self.length = self.length.or(other.length);
        self.media_type = self.media_type.take().or_else(|| other.media_type.clone());
        for hash in &other.hashes {
            let algorithm = hash.algorithm();
            if self.hashes.iter().all(|own| own.algorithm() != algorithm) {
                self.hashes.push(hash.clone());
            }
        }
    }

    /// Whether both state the same of the bytes. They may name different media types.
    pub fn states_same_bytes(&self, other: &Self) -> bool {
        self.length == other.length && self.hashes == other.hashes
    }
}
