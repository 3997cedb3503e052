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

/// The kind of a fault; [`ConfigFault`] adds its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FaultKind {
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("{0}")]
    Syntax(String),
    #[error("defined twice")]
    DuplicateKey,
    #[error("unknown key{0}")]
    UnknownKey(String),
    #[error("unknown table{0}")]
    UnknownTable(String),
    #[error("expected {expected}, found {found}")]
    WrongType {
        expected: String,
        found: &'static str,
    },
    #[error("required key is missing")]
    MissingKey,
    #[error("no [[source]] is configured")]
    NoSource,
    #[error("{0:?} is not a duration: an integer and ms, s, m, h or d, such as \"15m\"")]
    BadDuration(String),
    #[error(
        "{0:?} is not a size: an integer, alone or with kB, KiB, MB, MiB, GB, GiB, TB or TiB, such as \"64MiB\""
    )]
    BadSize(String),
    #[error("{0:?} is not a percentage from \"0%\" to \"100%\"")]
    BadPercentage(String),
    #[error("{0:?} is not an IP address with a port, such as \"127.0.0.1:8461\" or \"[::1]:8461\"")]
    BadAddress(String),
    #[error("{0}")]
    BadUrl(String),
    #[error("{0:?} is not a host, such as \"example.com\" or \"example.com:8080\"")]
    BadHost(String),
    #[error("{0}")]
    BadGlob(String),
    #[error("{0:?} is not a media type, such as \"application/pdf\" or \"text/*\"")]
    BadMediaType(String),
    #[error("{0:?} is not a name: one or more of a to z, 0 to 9 and -")]
    BadName(String),
    #[error("{0:?} is not a path")]
    BadPath(String),
    #[error(
        "{0:?} is not a valid header: it must be printable ASCII, not empty, without leading or trailing spaces"
    )]
    BadUserAgent(String),
    #[error("{found:?} is not one of {choices}")]
    BadChoice { found: String, choices: String },
    #[error("{0}")]
    OutOfRange(String),
    #[error("{0}")]
    DuplicateName(String),
    #[error("{0}")]
    DuplicateMirror(String),
    #[error("{0}")]
    NestedMirror(String),
    #[error("{0}")]
    MirrorInState(String),
    #[error("{0}")]
    SameListener(String),
    #[error("{0}")]
    NoSecret(String),
    #[error("{0}")]
    PlainSecret(String),
    #[error("{0}")]
    BadSecret(String),
    #[error("{0}")]
    BadAuth(String),
    #[error("{0}")]
    BadCertificate(String),
    #[error("{0}")]
    BadHook(String),
    // Valid, but hardly meant.
    #[error("{0}")]
    Unexpanded(String),
    #[error("{0}")]
    VeryShort(String),
    #[error("{0}")]
    Placeholder(String),
    #[error("{0}")]
    NotAFolder(String),
    #[error("{0}")]
    ReadableSecret(String),
    #[error("{0}")]
    Unencrypted(String),
    #[error("{0}")]
    PrivateName(String),
    #[error("{0}")]
    IgnoredException(String),
    #[error("{0}")]
    UncheckedCredential(String),
    #[error(
        "other machines can reach {0}, and whoever does can read the status and approve deletions: set `token_file`, or listen on \
         a loopback address"
    )]
    ExposedStatus(SocketAddr),
}

impl FaultKind {
    /// The stable code, in kebab-case.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::Syntax(_) => "syntax",
            Self::DuplicateKey => "duplicate-key",
            Self::UnknownKey(_) => "unknown-key",
            Self::UnknownTable(_) => "unknown-table",
            Self::WrongType { .. } => "wrong-type",
            Self::MissingKey => "missing-key",
            Self::NoSource => "no-source",
            Self::BadDuration(_) => "bad-duration",
            Self::BadSize(_) => "bad-size",
            Self::BadPercentage(_) => "bad-percentage",
            Self::BadAddress(_) => "bad-address",
            Self::BadUrl(_) => "bad-url",
            Self::BadHost(_) => "bad-host",
            Self::BadGlob(_) => "bad-glob",
            Self::BadMediaType(_) => "bad-media-type",
            Self::BadName(_) => "bad-name",
            Self::BadPath(_) => "bad-path",
            Self::BadUserAgent(_) => "bad-user-agent",
            Self::BadChoice { .. } => "bad-choice",
            Self::OutOfRange(_) => "out-of-range",
            Self::DuplicateName(_) => "duplicate-name",
            Self::DuplicateMirror(_) => "duplicate-mirror",
            Self::NestedMirror(_) => "nested-mirror",
            Self::MirrorInState(_) => "mirror-in-state",
            Self::SameListener(_) => "same-listener",
            Self::NoSecret(_) => "no-secret",
            Self::PlainSecret(_) => "plain-secret",
            Self::BadSecret(_) => "bad-secret",
            Self::BadAuth(_) => "bad-auth",
            Self::BadCertificate(_) => "bad-certificate",
            Self::BadHook(_) => "bad-hook",
            Self::Unexpanded(_) => "not-replaced",
            Self::VeryShort(_) => "very-short",
            Self::Placeholder(_) => "placeholder",
            Self::NotAFolder(_) => "not-a-folder",
            Self::ReadableSecret(_) => "secret-readable",
            Self::Unencrypted(_) => "unencrypted",
            Self::PrivateName(_) => "private-name",
            Self::IgnoredException(_) => "no-proxy-ignored",
            Self::UncheckedCredential(_) => "credential-not-checked",
            Self::ExposedStatus(_) => "status-exposed",
        }
    }
}
