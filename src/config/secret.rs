//! Secrets of the configuration, which stand in files of their own.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use resourcesync::{Algorithm, Digest};

use crate::config::fault::FaultKind;

/// The shortest and the longest secret, in bytes.
const SHORTEST: usize = 16;
const LONGEST: usize = 1024;

/// A secret that others present, such as a bearer token. It is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret of 16 to 1024 visible ASCII characters; `None` for any other text.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_long_enough = (SHORTEST..=LONGEST).contains(&text.len());
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        (is_long_enough && is_visible).then(|| Self(text.to_owned()))
    }

    /// Reads the only line of a file; the error is for a person.
    pub fn of_file(path: &Path) -> Result<Self, String> {
        Self::read(path).map_err(|kind| format!("{kind} [{}]", kind.code()))
    }

    /// Reads the only line of a file.
    pub(super) fn read(path: &Path) -> Result<Self, FaultKind> {
        let shown = path.display();
        let unreadable = |error| FaultKind::Unreadable(format!("{shown}: {error}"));
        let is_file = path.metadata().map_err(unreadable)?.is_file();
        if !is_file {
            return Err(FaultKind::Unreadable(format!("{shown}: not a file")));
        }
        let mut text = String::new();
        let longest = LONGEST as u64 + 2;
        let read = File::open(path).and_then(|file| file.take(longest).read_to_string(&mut text));
        read.map_err(unreadable)?;
        Self::new(text.trim_end_matches(['\r', '\n'])).ok_or_else(|| {
            FaultKind::OutOfRange(format!(
                "{shown} must hold one line of {SHORTEST} to {LONGEST} visible ASCII characters"
            ))
        })
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether a text is the secret. The time does not depend on how much of it is right.
    pub fn is(&self, text: &str) -> bool {
        let digest = |text: &str| Digest::of(Algorithm::Sha256, text.as_bytes()).to_string();
        let (own, other) = (digest(&self.0), digest(text));
        let differences = own.bytes().zip(other.bytes());
        differences.fold(0, |found, (own, other)| found | (own ^ other)) == 0
    }
}

/// The secret that the requests of a web hook are signed with. It is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret {
    text: String,
    bytes: Vec<u8>,
}

impl WebhookSecret {
    /// `text`: as it is configured, `bytes`: what it stands for.
    #[must_use]
    pub fn new(text: &str, bytes: Vec<u8>) -> Self {
        Self {
            text: text.to_owned(),
            bytes,
        }
    }

    /// The key of the signature.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What no text may repeat.
    pub(super) fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_compared_completely_and_not_shown() {
        let secret = Secret::new("0123456789abcdef").unwrap();
        for (text, expected) in [
            ("0123456789abcdef", true),
            ("0123456789abcdeF", false),
            ("0123456789abcde", false),
            ("0123456789abcdef0", false),
            ("", false),
        ] {
            assert_eq!(secret.is(text), expected, "{text}");
        }
        assert!(!format!("{secret:?}").contains("0123"));
        for bad in [
            "",
            "0123456789abcde",
            "0123456789 abcdef",
            &"x".repeat(1025),
        ] {
            assert!(Secret::new(bad).is_none(), "{bad}");
        }
    }
}
