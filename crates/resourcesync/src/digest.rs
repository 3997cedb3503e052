//! Digests of a representation: the `hash` attribute (section 7).

use std::fmt;
use std::sync::LazyLock;

use data_encoding::{BASE64, Encoding, HEXLOWER, HEXLOWER_PERMISSIVE};
use md5::Md5;
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha384, Sha512};

use super::named::named;
use super::{Oddities, Oddity};

named! {
    fn as_str;
    /// A digest algorithm of the `hash` attribute (section 7).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Algorithm {
        /// `md5`
        Md5 = "md5",
        /// `sha-1`
        Sha1 = "sha-1",
        /// `sha-256`
        Sha256 = "sha-256",
        /// `sha-384`
        Sha384 = "sha-384",
        /// `sha-512`
        Sha512 = "sha-512",
    }
}

impl Algorithm {
    /// The algorithm of a token, in any case, with or without dashes: `sha-256`, `SHA256`.
    #[must_use]
    pub fn parse(token: &str) -> Option<Self> {
        // Fast path: lists are long, and nearly all spell it correctly.
        let mut all = Self::ALL.iter().copied();
        if let Some(known) = all.find(|known| known.as_str() == token) {
            return Some(known);
        }
        let mut plain = token.trim().to_ascii_lowercase();
        plain.retain(|c| !matches!(c, '-' | '_'));
        match plain.as_str() {
            "md5" => Some(Self::Md5),
            "sha1" | "sha" => Some(Self::Sha1),
            "sha256" => Some(Self::Sha256),
            "sha384" => Some(Self::Sha384),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// The length of its digests, in bytes.
    pub fn digest_length(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

/// The length of the longest digest, in bytes.
const MAX_DIGEST: usize = 64;

/// One digest of a representation (section 7, the `hash` attribute).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    /// Its bytes, and zeros after them. Lists are long, so that it is in one piece.
    bytes: [u8; MAX_DIGEST],
}

impl Digest {
    /// A digest from its bytes; `None` if digests of the algorithm have another length.
    #[must_use]
    pub fn new(algorithm: Algorithm, bytes: &[u8]) -> Option<Self> {
        let mut digest = Self::zero(algorithm);
        if bytes.len() != algorithm.digest_length() {
            return None;
        }
        digest.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(digest)
    }

    fn zero(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            bytes: [0; MAX_DIGEST],
        }
    }

    /// A digest from its hexadecimal or base64 form, and whether it was base64; `None` if it has another length, or is none.
    fn decode(algorithm: Algorithm, text: &str) -> Option<(Self, bool)> {
        let mut digest = Self::zero(algorithm);
        let bytes = &mut digest.bytes[..algorithm.digest_length()];
        let is_hex = text.len() == 2 * bytes.len()
            && HEXLOWER_PERMISSIVE
                .decode_mut(text.as_bytes(), bytes)
                .is_ok();
        if is_hex {
            return Some((digest, false));
        }
        // Hexadecimal of another length is no base64, either.
        if text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let text = text.trim_end_matches('=');
        let decoded = LENIENT_BASE64.decode(text.as_bytes()).ok()?;
        Some((Self::new(algorithm, &decoded)?, true))
    }

    /// Computes the digest of bytes in memory.
    #[must_use]
    pub fn of(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let mut hashing = Hashing::new([algorithm]);
        hashing.update(bytes);
        hashing.finish().remove(0)
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Reads a `hash` attribute: digests separated by white space.
    ///
    /// Base64 (standard or URL-safe, padded or not) is read as well, and counted as [`Oddity::DigestEncoding`]. A digest that is
    /// invalid, of an unknown algorithm, or contradicts the first one of the same algorithm is ignored and counted as
    /// [`Oddity::UnknownDigest`]. The result has at most one digest of each algorithm.
    #[must_use]
    pub fn parse_hashes(text: &str, oddities: &mut Oddities) -> Vec<Self> {
        // Nearly all state one digest.
        let mut digests: Vec<Self> = Vec::with_capacity(1);
        for token in text.split_ascii_whitespace() {
            let Some(digest) = parse_hash(token, oddities) else {
                oddities.add(Oddity::UnknownDigest);
                continue;
            };
            let first = digests
                .iter()
                .find(|first| first.algorithm == digest.algorithm);
            match first {
                None => digests.push(digest),
                Some(first) if *first == digest => {}
                Some(_) => oddities.add(Oddity::UnknownDigest),
            }
        }
        digests
    }

    /// The bytes of the digest.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.digest_length()]
    }
}

impl fmt::Display for Digest {
    /// As in the `hash` attribute: `sha-256:` and hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, HEXLOWER.encode(self.bytes()))
    }
}

fn parse_hash(token: &str, oddities: &mut Oddities) -> Option<Digest> {
    let (algorithm, value) = token.split_once(':')?;
    let (digest, is_base64) = Digest::decode(Algorithm::parse(algorithm)?, value)?;
    if is_base64 {
        oddities.add(Oddity::DigestEncoding);
    }
    Some(digest)
}

/// The digest of a type and its value in base64 or hexadecimal, as the draft of version 0.1 has it; `None` if it is none, or of an
/// unknown algorithm.
#[must_use]
pub(crate) fn parse_digest(algorithm: &str, value: &str) -> Option<Digest> {
    let (digest, _) = Digest::decode(Algorithm::parse(algorithm)?, value)?;
    Some(digest)
}

/// Base64, standard or URL-safe, without padding.
static LENIENT_BASE64: LazyLock<Encoding> = LazyLock::new(|| {
    let mut lenient = BASE64.specification();
    lenient.padding = None;
    lenient.check_trailing_bits = false;
    lenient.translate.from.push_str("-_");
    lenient.translate.to.push_str("+/");
    lenient.encoding().expect("valid, as a test shows")
});

/// Computes several digests of the same bytes as they arrive.
pub(super) struct Hashing {
    hashers: Vec<(Algorithm, Box<dyn DynDigest + Send + Sync>)>,
}

impl Hashing {
    /// Computes one digest of each of these algorithms.
    pub(super) fn new(algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        let mut hashing = Self {
            hashers: Vec::new(),
        };
        for algorithm in algorithms {
            let mut known = hashing.hashers.iter();
            // A document must not be able to cause the same work twice.
            if known.all(|(known, _)| *known != algorithm) {
                hashing.hashers.push((
                    algorithm,
                    match algorithm {
                        Algorithm::Md5 => Box::new(Md5::default()),
                        Algorithm::Sha1 => Box::new(Sha1::default()),
                        Algorithm::Sha256 => Box::new(Sha256::default()),
                        Algorithm::Sha384 => Box::new(Sha384::default()),
                        Algorithm::Sha512 => Box::new(Sha512::default()),
                    },
                ));
            }
        }
        hashing
    }

    /// Adds the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        for (_, hasher) in &mut self.hashers {
            hasher.update(bytes);
        }
    }

    /// The digests, in the order of the algorithms.
    pub(super) fn finish(self) -> Vec<Digest> {
        let finish = |(algorithm, mut hasher): (Algorithm, Box<dyn DynDigest + Send + Sync>)| {
            let mut digest = Digest::zero(algorithm);
            let bytes = &mut digest.bytes[..algorithm.digest_length()];
            let finished = hasher.finalize_into_reset(bytes);
            finished.expect("digest of the length of its algorithm");
            digest
        };
        self.hashers.into_iter().map(finish).collect()
    }
}

impl fmt::Debug for Hashing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithms = self.hashers.iter().map(|(algorithm, _)| algorithm);
        f.debug_list().entries(algorithms).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MD5: &str = "md5:900150983cd24fb0d6963f7d28e17f72";
    const SHA1: &str = "sha-1:a9993e364706816aba3e25717850c26c9cd0d89d";
    const SHA256: &str = "sha-256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    /// Checks the digests of an attribute (as displayed) and the counted oddities.
    fn check(text: &str, expected: &[&str], counted: &[Oddity]) {
        let mut oddities = Oddities::default();
        let digests = Digest::parse_hashes(text, &mut oddities);
        let shown: Vec<String> = digests.iter().map(Digest::to_string).collect();
        assert_eq!(shown, expected, "{text:?}");
        let mut wanted = Oddities::default();
        counted.iter().for_each(|oddity| wanted.add(*oddity));
        assert_eq!(oddities, wanted, "{text:?}");
    }

    #[test]
    fn digests_are_read_in_the_form_of_the_specification() {
        check("", &[], &[]);
        check(MD5, &[MD5], &[]);
        check(&format!("{MD5}\n     {SHA256}"), &[MD5, SHA256], &[]);
        check(&format!(" {SHA1} {SHA1} "), &[SHA1], &[]);
    }

    #[test]
    fn digests_are_read_in_other_spellings() {
        check(&MD5.to_uppercase(), &[MD5], &[]);
        check(&SHA256.replace("sha-256", "SHA256"), &[SHA256], &[]);
        check(&SHA1.replace("sha-1", "sha1"), &[SHA1], &[]);
        for base64 in [
            "md5:kAFQmDzST7DWlj99KOF/cg==",
            "md5:kAFQmDzST7DWlj99KOF/cg",
            "MD5:kAFQmDzST7DWlj99KOF_cg==",
            "md5:kAFQmDzST7DWlj99KOF_cg",
        ] {
            check(base64, &[MD5], &[Oddity::DigestEncoding]);
        }
        check(
            "sha-256:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=",
            &[SHA256],
            &[Oddity::DigestEncoding],
        );
    }

    #[test]
    fn invalid_digests_are_ignored_and_counted() {
        for text in [
            "md5",
            "md5:",
            "md5:xyz",
            "md5:900150983cd24fb0d6963f7d28e17f7",
            "md5:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            // 64 digits of base64 would be a SHA-384.
            "sha-384:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "crc32:352441c2",
            ":900150983cd24fb0d6963f7d28e17f72",
        ] {
            check(text, &[], &[Oddity::UnknownDigest]);
            check(&format!("{text} {SHA1}"), &[SHA1], &[Oddity::UnknownDigest]);
        }
        let other = Digest::of(Algorithm::Md5, b"other");
        check(&format!("{MD5} {other}"), &[MD5], &[Oddity::UnknownDigest]);
    }

    #[test]
    fn each_algorithm_is_computed_once_in_the_given_order() {
        let mut hashing = Hashing::new([Algorithm::Sha256, Algorithm::Md5, Algorithm::Sha256]);
        hashing.update(b"a");
        hashing.update(b"bc");
        let digests = hashing.finish();
        assert_eq!(digests[0].to_string(), SHA256);
        assert_eq!(digests[1].to_string(), MD5);
        assert_eq!(digests.len(), 2);
        assert_eq!(Digest::of(Algorithm::Sha1, b"abc").to_string(), SHA1);
    }

    proptest! {
        #[test]
        fn displayed_digests_parse(content in any::<Vec<u8>>()) {
            for algorithm in [
                Algorithm::Md5,
                Algorithm::Sha1,
                Algorithm::Sha256,
                Algorithm::Sha384,
                Algorithm::Sha512,
            ] {
                let digest = Digest::of(algorithm, &content);
                let mut oddities = Oddities::default();
                prop_assert_eq!(digest.bytes().len(), algorithm.digest_length());
                prop_assert_eq!(Digest::parse_hashes(&digest.to_string(), &mut oddities), vec![digest]);
                prop_assert!(oddities.is_empty());
            }
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "(md5|sha-256):.{0,70}") {
            let _ = Digest::parse_hashes(&text, &mut Oddities::default());
        }
    }
}
