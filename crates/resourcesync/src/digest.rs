//! Digests of a representation: the `hash` attribute (section 7).

use std::fmt;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha384, Sha512};

use super::{Oddities, Oddity};

/// A digest algorithm of the `hash` attribute (section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
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

impl Algorithm {
    const ALL: [Self; 5] = [
        Self::Md5,
        Self::Sha1,
        Self::Sha256,
        Self::Sha384,
        Self::Sha512,
    ];

    /// Its token in the `hash` attribute.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha-1",
            Self::Sha256 => "sha-256",
            Self::Sha384 => "sha-384",
            Self::Sha512 => "sha-512",
        }
    }

    /// The algorithm of a token, in any case, with or without dashes: `sha-256`, `SHA256`.
    #[must_use]
    pub fn parse(token: &str) -> Option<Self> {
        // Fast path: lists are long, and nearly all spell it correctly.
        for known in Self::ALL {
            if known.as_str() == token {
                return Some(known);
            }
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

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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

    /// A digest from its hexadecimal form, in any case; `None` if it has another length, or is none.
    fn from_hex(algorithm: Algorithm, text: &str) -> Option<Self> {
        let mut digest = Self::zero(algorithm);
        let length = algorithm.digest_length();
        let is_digest =
            text.len() == 2 * length && decode_hex(text.as_bytes(), &mut digest.bytes[..length]);
        is_digest.then_some(digest)
    }

    /// Computes the digest of bytes in memory.
    #[must_use]
    pub fn of(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(bytes);
        hasher.finish()
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
        let mut digests: Vec<Self> = Vec::new();
        // Nearly all state one digest.
        if let Some(digest) = parse_plain_hash(text) {
            digests.reserve_exact(1);
            digests.push(digest);
            return digests;
        }
        for token in text.split_whitespace() {
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
        write!(f, "{}:", self.algorithm)?;
        write_hex(self.bytes(), f)
    }
}

/// A single digest as the specification writes it; `None` for everything else, which may be valid in another form.
fn parse_plain_hash(text: &str) -> Option<Digest> {
    let (algorithm, value) = text.split_once(':')?;
    let mut all = Algorithm::ALL.into_iter();
    let algorithm = all.find(|known| known.as_str() == algorithm)?;
    Digest::from_hex(algorithm, value)
}

fn parse_hash(token: &str, oddities: &mut Oddities) -> Option<Digest> {
    let (algorithm, value) = token.split_once(':')?;
    let algorithm = Algorithm::parse(algorithm)?;
    // The two encodings of a digest never have the same length, so that there is no ambiguity.
    if let Some(bytes) = from_hex(value) {
        return Digest::new(algorithm, &bytes);
    }
    let digest = Digest::new(algorithm, &from_base64(value)?)?;
    oddities.add(Oddity::DigestEncoding);
    Some(digest)
}

/// The digest of a type and its value in base64 or hexadecimal, as the draft of version 0.1 has it; `None` if it is none, or of an
/// unknown algorithm.
#[must_use]
pub(crate) fn parse_digest(algorithm: &str, value: &str) -> Option<Digest> {
    let algorithm = Algorithm::parse(algorithm)?;
    // As above, the length decides.
    let bytes = from_hex(value).or_else(|| from_base64(value))?;
    Digest::new(algorithm, &bytes)
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    const PLAIN: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
    const FOR_URLS: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
    PLAIN.decode(text).or_else(|_| FOR_URLS.decode(text)).ok()
}

/// Decodes hexadecimal in any case.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![0; text.len() / 2];
    decode_hex(text.as_bytes(), &mut bytes).then_some(bytes)
}

/// Decodes hexadecimal in any case; returns whether it is, and of that length.
fn decode_hex(text: &[u8], bytes: &mut [u8]) -> bool {
    let (pairs, odd) = text.as_chunks::<2>();
    if !odd.is_empty() || pairs.len() != bytes.len() {
        return false;
    }
    let mut found = 0;
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let (high, low) = (
            HEX_DIGITS[usize::from(*high)],
            HEX_DIGITS[usize::from(*low)],
        );
        found |= high | low;
        *byte = (high << 4) | (low & 0xf);
    }
    found != NO_DIGIT
}

/// What is no hexadecimal digit; no digit has one of its upper bits.
const NO_DIGIT: u8 = 0xff;

/// The values of the hexadecimal digits.
const HEX_DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

/// Writes hexadecimal in lower case.
fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Computes several digests of the same bytes as they arrive.
#[derive(Clone, Debug, Default)]
pub(super) struct Hashing {
    hashers: Vec<Hasher>,
}

impl Hashing {
    /// Computes one digest of each of these algorithms.
    pub(super) fn new(algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        let mut hashers: Vec<Hasher> = Vec::new();
        for algorithm in algorithms {
            // A document must not be able to cause the same work twice.
            if !hashers.iter().any(|hasher| hasher.algorithm() == algorithm) {
                hashers.push(Hasher::new(algorithm));
            }
        }
        Self { hashers }
    }

    /// Adds the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        for hasher in &mut self.hashers {
            hasher.update(bytes);
        }
    }

    /// The digests, in the order of the algorithms.
    pub(super) fn finish(self) -> Vec<Digest> {
        self.hashers.into_iter().map(Hasher::finish).collect()
    }
}

#[derive(Clone, Debug)]
enum Hasher {
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Md5 => Self::Md5(Md5::new()),
            Algorithm::Sha1 => Self::Sha1(Sha1::new()),
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha384 => Self::Sha384(Sha384::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Md5(_) => Algorithm::Md5,
            Self::Sha1(_) => Algorithm::Sha1,
            Self::Sha256(_) => Algorithm::Sha256,
            Self::Sha384(_) => Algorithm::Sha384,
            Self::Sha512(_) => Algorithm::Sha512,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(hasher) => hasher.update(bytes),
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha384(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    fn finish(self) -> Digest {
        let algorithm = self.algorithm();
        let mut digest = Digest::zero(algorithm);
        let bytes = &mut digest.bytes[..algorithm.digest_length()];
        match self {
            Self::Md5(hasher) => bytes.copy_from_slice(&hasher.finalize()),
            Self::Sha1(hasher) => bytes.copy_from_slice(&hasher.finalize()),
            Self::Sha256(hasher) => bytes.copy_from_slice(&hasher.finalize()),
            Self::Sha384(hasher) => bytes.copy_from_slice(&hasher.finalize()),
            Self::Sha512(hasher) => bytes.copy_from_slice(&hasher.finalize()),
        }
        digest
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
        fn a_plain_digest_is_read_as_any_other(
            name in "md5|sha-1|sha-256|SHA-1|md6|",
            text in "[0-9a-fA-F]{0,3}[0-9a-fA-F]{28,29}([0-9a-fA-F]{8})?([0-9a-f]{24})?[0-9a-g ]?",
        ) {
            let text = format!("{name}:{text}");
            let mut oddities = Oddities::default();
            let general: Vec<_> = text
                .split_whitespace()
                .filter_map(|token| parse_hash(token, &mut oddities))
                .collect();
            if let Some(plain) = parse_plain_hash(&text) {
                prop_assert_eq!(general, vec![plain]);
                prop_assert!(oddities.is_empty());
            }
        }

        #[test]
        fn hexadecimal_is_decoded_in_any_case(text in "[0-9a-fA-F]{0,70}|[0-9a-gF\u{e9}]{0,6}") {
            let digits: Option<Vec<u8>> = text
                .chars()
                .map(|digit| digit.to_digit(16).map(|value| u8::try_from(value).unwrap()))
                .collect();
            let expected = digits
                .filter(|digits| digits.len() & 1 == 0)
                .map(|digits| digits.chunks(2).map(|pair| (pair[0] << 4) | pair[1]).collect());
            prop_assert_eq!(from_hex(&text), expected);
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "(md5|sha-256):.{0,70}") {
            let _ = Digest::parse_hashes(&text, &mut Oddities::default());
        }
    }
}
