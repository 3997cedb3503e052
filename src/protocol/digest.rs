//! Digests of a representation: the `hash` attribute (section 7).

/// A digest algorithm that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// `md5`
    Md5,
    /// `sha-1`
    Sha1,
    /// `sha-256`
    Sha256,
    /// `sha-384`
    Sha384,
    /// `sha-512`
    Sha512,
}

/// One digest of a representation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    bytes: Vec<u8>,
}

/// Reads a `hash` attribute.
pub fn parse_hashes(text: &str, oddities: &mut super::Oddities) -> Vec<Digest> {
    todo!("{text} {oddities:?}")
}

/// Digests being computed while bytes pass by.
pub struct Hashing {}

impl Hashing {
    /// Starts the digests of these algorithms.
    pub fn new(algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        let _ = algorithms.into_iter().count();
        todo!()
    }
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        todo!("{bytes:?}")
    }
    /// The digests, in the order that was asked for.
    pub fn finish(self) -> Vec<Digest> {
        todo!()
    }
}

impl Digest {
    /// A digest from its bytes; `None` if the algorithm has another length.
    pub fn new(algorithm: Algorithm, bytes: Vec<u8>) -> Option<Self> {
        todo!("{algorithm:?} {bytes:?}")
    }
    /// Of some bytes at hand.
    pub fn of(algorithm: Algorithm, bytes: &[u8]) -> Self {
        todo!("{algorithm:?} {bytes:?}")
    }
    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
    /// The digest itself.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    // Display: `sha-256:hex`, as in the attribute
}
