//! Signatures (section 7): an HMAC of the body as it was sent.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::hmac;

/// The method of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureMethod {
    /// `sha1`
    Sha1,
    /// `sha256`
    Sha256,
    /// `sha384`
    Sha384,
    /// `sha512`
    Sha512,
}

impl SignatureMethod {
    /// Its name in the header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    fn key(self, secret: &[u8]) -> hmac::Key {
        let algorithm = match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::Key::new(algorithm, secret)
    }

    /// The method of that name, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512]
            .into_iter()
            .find(|method| method.as_str().eq_ignore_ascii_case(text.trim()))
    }
}

/// How many signatures of one request are read.
const MOST_SIGNATURES: usize = 8;

/// A signature of an `X-Hub-Signature` header (section 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    method: SignatureMethod,
    bytes: Vec<u8>,
}

impl Signature {
    /// Parses a header value; `None` if it has no known method or is not hexadecimal.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let (method, bytes) = value.split_once('=')?;
        Some(Self {
            method: SignatureMethod::parse(method)?,
            bytes: Some(HEXLOWER_PERMISSIVE.decode(bytes.trim().as_bytes()).ok()?)
                .filter(|bytes| !bytes.is_empty())?,
        })
    }

    /// The signatures of all header values of a request; a value may list several. Only the first eight are read: each one
    /// is compared with the whole body.
    #[must_use]
    pub fn parse_all<'a>(values: impl Iterator<Item = &'a str>) -> Vec<Self> {
        let listed = values.flat_map(|value| value.split([',', ';', ' ', '\t']));
        listed
            .filter_map(Self::parse)
            .take(MOST_SIGNATURES)
            .collect()
    }

    /// Signs a body.
    #[must_use]
    pub fn sign(method: SignatureMethod, secret: &[u8], body: &[u8]) -> Self {
        let bytes = hmac::sign(&method.key(secret), body).as_ref().to_vec();
        Self { method, bytes }
    }

    /// Whether it is the signature of that body; compared in constant time.
    #[must_use]
    pub fn verifies(&self, secret: &[u8], body: &[u8]) -> bool {
        hmac::verify(&self.method.key(secret), body, &self.bytes).is_ok()
    }

    /// The method.
    pub fn method(&self) -> SignatureMethod {
        self.method
    }
}

impl fmt::Display for Signature {
    /// As in the header: `sha256=` and hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hexadecimal = HEXLOWER.encode(&self.bytes);
        write!(f, "{}={hexadecimal}", self.method.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_match_the_test_vectors_of_rfc_4231_and_2202() {
        let (secret, body) = (
            b"Jefe".as_slice(),
            b"what do ya want for nothing?".as_slice(),
        );
        for (method, expected) in [
            (
                SignatureMethod::Sha1,
                "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
            ),
            (
                SignatureMethod::Sha256,
                "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                SignatureMethod::Sha384,
                "sha384=af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e\
                 8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                SignatureMethod::Sha512,
                "sha512=164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ] {
            let signature = Signature::sign(method, secret, body);
            assert_eq!(signature.to_string(), expected);
            let read = Signature::parse(&expected.to_uppercase()).unwrap();
            assert_eq!((&read, read.method()), (&signature, method));
            assert!(read.verifies(secret, body));
            assert!(!read.verifies(b"jefe", body));
            assert!(!read.verifies(secret, &body[1..]));
        }
    }

    #[test]
    fn all_signatures_of_a_request_are_read() {
        let sign = |method| Signature::sign(method, b"k", b"b").to_string();
        let (one, other) = (sign(SignatureMethod::Sha1), sign(SignatureMethod::Sha256));
        let count = |values: &[&str]| Signature::parse_all(values.iter().copied()).len();
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[&one]), 1);
        assert_eq!(count(&[&one, &other]), 2);
        assert_eq!(count(&[&format!("{one},{other}")]), 2);
        assert_eq!(count(&[&format!("{one}, {other}")]), 2);
        assert_eq!(count(&["md5=00", &other, "nonsense"]), 1);
        assert_eq!(count(&[one.as_str(); 100]), MOST_SIGNATURES);
    }

    #[test]
    fn invalid_and_truncated_signatures_are_rejected() {
        for value in [
            "",
            "sha256",
            "sha256=",
            "sha256=xyz",
            "sha256=abc",
            "md5=00",
            "=00",
        ] {
            assert_eq!(Signature::parse(value), None, "{value}");
        }
        // A prefix of the correct signature.
        let whole = Signature::sign(SignatureMethod::Sha256, b"k", b"b").to_string();
        assert!(!Signature::parse(&whole[..9]).unwrap().verifies(b"k", b"b"));
    }
}
