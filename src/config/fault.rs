//! The faults of a configuration file: line, key and reason.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use resyncd_core::one_line;

/// One fault of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// The file, as given on the command line.
    pub file: PathBuf,
    /// The line, from 1; `None` if the fault concerns the file as a whole.
    pub line: Option<usize>,
    /// The key with its table, such as `http.timeout` or `source[example].lease`. A Source without a readable name is identified by its
    /// position, such as `source[#2]`. Empty if the fault concerns no key.
    pub key: String,
    /// The stable code of the fault, in kebab-case.
    pub code: &'static str,
    /// The explanation for the operator.
    pub message: String,
}

impl fmt::Display for ConfigFault {
    /// `FILE:LINE: KEY: MESSAGE [CODE]` on one line; line and key are omitted if there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.file.display().to_string();
        if let Some(line) = self.line {
            text.push_str(&format!(":{line}"));
        }
        text.push_str(": ");
        if !self.key.is_empty() {
            text.push_str(&format!("{}: ", self.key));
        }
        text.push_str(&format!("{} [{}]", self.message, self.code));
        // Keys and file names may contain line breaks and terminal escape sequences.
        f.write_str(&one_line(&text, usize::MAX))
    }
}

/// All faults of a configuration file, in the order of their lines; not empty if returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFaults(pub Vec<ConfigFault>);

impl ConfigFaults {
    /// A single fault, if the rest of the file cannot be checked.
    pub(super) fn one(file: &Path, line: Option<usize>, key: &str, kind: &FaultKind) -> Self {
        Self(vec![fault(file, line, key, kind)])
    }

    /// The number of faults.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no faults.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The faults, in the order of their lines.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigFault> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a ConfigFaults {
    type Item = &'a ConfigFault;
    type IntoIter = std::slice::Iter<'a, ConfigFault>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ConfigFaults {
    /// One fault per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigFaults {}

pub(super) fn fault(file: &Path, line: Option<usize>, key: &str, kind: &FaultKind) -> ConfigFault {
    ConfigFault {
        file: file.to_owned(),
        line,
        key: key.to_owned(),
        code: kind.code(),
        message: kind.to_string(),
    }
}

/// The line of a byte of the text, counted from 1.
pub(super) fn line_at(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// Declares the kinds of faults: what each has, its stable code in kebab-case, and its explanation.
macro_rules! fault_kinds {
    ($($kind:ident $(($($content:ty),*))? => $code:literal, $message:literal;)*) => {
        /// The kind of a fault; [`ConfigFault`] adds its place.
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        pub(super) enum FaultKind {
            $(#[error($message)] $kind $(($($content),*))?,)*
        }

        impl FaultKind {
            /// The stable code, in kebab-case.
            pub(super) fn code(&self) -> &'static str {
                match self {
                    $(Self::$kind { .. } => $code,)*
                }
            }
        }
    };
}

fault_kinds! {
    Unreadable(String) => "unreadable", "cannot be read: {0}";
    Syntax(String) => "syntax", "{0}";
    DuplicateKey => "duplicate-key", "defined twice";
    UnknownKey(String) => "unknown-key", "unknown key{0}";
    UnknownTable(String) => "unknown-table", "unknown table{0}";
    WrongType(String, &'static str) => "wrong-type", "expected {0}, found {1}";
    MissingKey => "missing-key", "required key is missing";
    NoSource => "no-source", "no [[source]] is configured";
    BadDuration(String) => "bad-duration", "{0:?} is not a duration: an integer and ms, s, m, h or d, such as \"15m\"";
    BadSize(String) => "bad-size", "{0:?} is not a size: an integer, alone or with kB, KiB, MB, MiB, GB, GiB, TB or TiB, such as \"64MiB\"";
    BadPercentage(String) => "bad-percentage", "{0:?} is not a percentage from \"0%\" to \"100%\"";
    BadAddress(String) => "bad-address", "{0:?} is not an IP address with a port, such as \"127.0.0.1:8461\" or \"[::1]:8461\"";
    BadUrl(String) => "bad-url", "{0}";
    BadHost(String) => "bad-host", "{0:?} is not a host, such as \"example.com\" or \"example.com:8080\"";
    BadGlob(String) => "bad-glob", "{0}";
    BadMediaType(String) => "bad-media-type", "{0:?} is not a media type, such as \"application/pdf\" or \"text/*\"";
    BadName(String) => "bad-name", "{0:?} is not a name: one or more of a to z, 0 to 9 and -";
    BadPath(String) => "bad-path", "{0:?} is not a path";
    BadUserAgent(String) => "bad-user-agent",
        "{0:?} is not a valid header: it must be printable ASCII, not empty, without leading or trailing spaces";
    BadChoice(String, String) => "bad-choice", "{0:?} is not one of {1}";
    OutOfRange(String) => "out-of-range", "{0}";
    DuplicateName(String) => "duplicate-name", "{0}";
    DuplicateMirror(String) => "duplicate-mirror", "{0}";
    NestedMirror(String) => "nested-mirror", "{0}";
    MirrorInState(String) => "mirror-in-state", "{0}";
    SameListener(String) => "same-listener", "{0}";
    NoSecret(String) => "no-secret", "{0}";
    PlainSecret(String) => "plain-secret", "{0}";
    BadSecret(String) => "bad-secret", "{0}";
    BadAuth(String) => "bad-auth", "{0}";
    BadCertificate(String) => "bad-certificate", "{0}";
    BadHook(String) => "bad-hook", "{0}";
    // Valid, but hardly meant.
    Unexpanded(String) => "not-replaced", "{0}";
    VeryShort(String) => "very-short", "{0}";
    Placeholder(String) => "placeholder", "{0}";
    NotAFolder(String) => "not-a-folder", "{0}";
    ReadableSecret(String) => "secret-readable", "{0}";
    Unencrypted(String) => "unencrypted", "{0}";
    PrivateName(String) => "private-name", "{0}";
    IgnoredException(String) => "no-proxy-ignored", "{0}";
    UncheckedCredential(String) => "credential-not-checked", "{0}";
    ExposedStatus(SocketAddr) => "status-exposed",
        "other machines can reach {0}, and whoever does can read the status and approve deletions: set `token_file`, or listen on \
         a loopback address";
}
