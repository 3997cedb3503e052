//! Authentication without sending the password, by SCRAM (RFC 5802, RFC 7677), which also proves that the server knows it.
//!
//! Nothing else is used: a server that could ask for the password itself would get it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// How many iterations a server may ask for: fewer do not protect the password, more only cost time.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4096..=500_000;
/// The longest message of a server, in bytes.
const LONGEST: usize = 8 << 10;

/// Why authentication fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScramError {
    /// The server's message is not as RFC 5802 requires.
    #[error("the server violates SCRAM: {0}")]
    Violation(&'static str),
    /// The server does not know the password.
    #[error("the server does not prove that it knows the password")]
    Unproven,
}

/// A hash function of SCRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mechanism {
    Sha256,
    Sha1,
}

impl Mechanism {
    /// Those that are used, the best first.
    pub(super) const ALL: [Self; 2] = [Self::Sha256, Self::Sha1];

    /// The name in SASL.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha1 => "SCRAM-SHA-1",
        }
    }

    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha256 => hmac::<Hmac<Sha256>>(key, parts),
            Self::Sha1 => hmac::<Hmac<Sha1>>(key, parts),
        }
    }

    fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha1 => Sha1::digest(bytes).to_vec(),
        }
    }

    /// `Hi` of RFC 5802: PBKDF2 with one block.
    fn salted(self, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
        match self {
            Self::Sha256 => pbkdf2::<Hmac<Sha256>>(password, salt, iterations),
            Self::Sha1 => pbkdf2::<Hmac<Sha1>>(password, salt, iterations),
        }
    }
}

fn hmac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    // HMAC takes keys of any length.
    let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else {
        return Vec::new();
    };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

fn pbkdf2<M: Mac + KeyInit + Clone>(password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
    let Ok(keyed) = <M as KeyInit>::new_from_slice(password.as_bytes()) else {
        return Vec::new();
    };
    let mut mac = keyed.clone();
    mac.update(salt);
    mac.update(&1_u32.to_be_bytes());
    let mut last = mac.finalize().into_bytes();
    let mut result = last.to_vec();
    for _ in 1..iterations {
        let mut mac = keyed.clone();
        mac.update(&last);
        last = mac.finalize().into_bytes();
        for (sum, byte) in result.iter_mut().zip(last.iter()) {
            *sum ^= byte;
        }
    }
    result
}

/// An authentication that has begun.
pub(super) struct Scram {
    mechanism: Mechanism,
    password: String,
    nonce: String,
    bare: String,
}

/// An authentication that the server has yet to confirm.
#[derive(Debug)]
pub(super) struct Proof {
    /// What is sent to the server.
    pub(super) message: String,
    /// What the server has to send.
    signature: Vec<u8>,
}

impl Scram {
    /// Begins one. `nonce`: what no other authentication has.
    pub(super) fn new(mechanism: Mechanism, user: &str, password: &str, nonce: &str) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Self {
            mechanism,
            password: password.to_owned(),
            nonce: nonce.to_owned(),
            bare: format!("n={user},r={nonce}"),
        }
    }

    /// The first message, without channel binding.
    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Answers the challenge of the server. It takes a while: a second at most.
    pub(super) fn answer(&self, challenge: &[u8]) -> Result<Proof, ScramError> {
        let violation = |why| Err(ScramError::Violation(why));
        let challenge = match std::str::from_utf8(challenge) {
            Ok(text) if text.len() <= LONGEST => text,
            _ => return violation("the challenge is no text, or too long"),
        };
        let mut fields = challenge.split(',');
        let mut field = |name: &str| fields.next().and_then(|it| it.strip_prefix(name));
        let (Some(nonce), Some(salt), Some(iterations)) = (field("r="), field("s="), field("i="))
        else {
            return violation("the challenge is incomplete, or has an extension");
        };
        let is_longer = nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce);
        if !is_longer || nonce.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return violation("the challenge is not to this request");
        }
        let Ok(salt) = STANDARD.decode(salt) else {
            return violation("the salt is not base64");
        };
        let iterations = iterations.parse().ok();
        let Some(iterations) = iterations.filter(|count| ITERATIONS.contains(count)) else {
            return violation("the number of iterations is below 4096 or above 500,000");
        };
        let mechanism = self.mechanism;
        let salted = mechanism.salted(&self.password, &salt, iterations);
        let client_key = mechanism.hmac(&salted, &[b"Client Key"]);
        let server_key = mechanism.hmac(&salted, &[b"Server Key"]);
        let unproven = format!("c={},r={nonce}", STANDARD.encode("n,,"));
        let parts = [
            self.bare.as_bytes(),
            b",",
            challenge.as_bytes(),
            b",",
            unproven.as_bytes(),
        ];
        let signature = mechanism.hmac(&mechanism.hash(&client_key), &parts);
        let proof: Vec<u8> = client_key
            .iter()
            .zip(&signature)
            .map(|(a, b)| a ^ b)
            .collect();
        Ok(Proof {
            message: format!("{unproven},p={}", STANDARD.encode(proof)),
            signature: mechanism.hmac(&server_key, &parts),
        })
    }
}

impl Proof {
    /// Checks the last message of the server.
    pub(super) fn check(&self, last: &[u8]) -> Result<(), ScramError> {
        let text = std::str::from_utf8(last).unwrap_or_default();
        let value = text.split(',').next().and_then(|it| it.strip_prefix("v="));
        let value = value.and_then(|it| STANDARD.decode(it).ok());
        match value {
            Some(value) if value == self.signature => Ok(()),
            _ => Err(ScramError::Unproven),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_specifications_are_computed() {
        for (mechanism, nonce, challenge, answer, last) in [
            // RFC 5802, section 5.
            (
                Mechanism::Sha1,
                "fyko+d2lbbFgONRv9qkxdawL",
                "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
                "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
                "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            ),
            // RFC 7677, section 3.
            (
                Mechanism::Sha256,
                "rOprNGfwEbeRWgbNEkqO",
                "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
                "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
                "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            ),
        ] {
            let scram = Scram::new(mechanism, "user", "pencil", nonce);
            assert_eq!(scram.first(), format!("n,,n=user,r={nonce}"));
            let proof = scram.answer(challenge.as_bytes()).unwrap();
            assert_eq!(proof.message, answer);
            assert_eq!(proof.check(last.as_bytes()), Ok(()));
            for wrong in ["", "v=", "e=invalid-proof", "v=AAAA"] {
                assert_eq!(proof.check(wrong.as_bytes()), Err(ScramError::Unproven));
            }
        }
    }

    #[test]
    fn challenges_that_weaken_or_overload_are_rejected() {
        let scram = Scram::new(Mechanism::Sha1, "a,b=c", "pencil", "abc");
        assert_eq!(scram.first(), "n,,n=a=2Cb=3Dc,r=abc");
        for challenge in [
            "",
            "r=abcd,s=AAAA",
            "r=abc,s=AAAA,i=4096",
            "r=xabcd,s=AAAA,i=4096",
            "m=x,r=abcd,s=AAAA,i=4096",
            "r=abcd,s=?,i=4096",
            "r=abcd,s=AAAA,i=4095",
            "r=abcd,s=AAAA,i=500001",
            "r=abcd,s=AAAA,i=99999999999",
            "r=ab\u{7f}cd,s=AAAA,i=4096",
        ] {
            let error = scram.answer(challenge.as_bytes()).unwrap_err();
            assert!(matches!(error, ScramError::Violation(_)), "{challenge}");
        }
    }
}
