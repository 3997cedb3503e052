//! The faults of a configuration file: line, key and reason.

use std::fmt;
use std::ops::Deref;
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
        let line = self.line.map(|line| format!(":{line}"));
        let (file, line) = (self.file.display(), line.unwrap_or_default());
        let key = match self.key.as_str() {
            "" => String::new(),
            key => format!("{key}: "),
        };
        let text = format!("{file}{line}: {key}{} [{}]", self.message, self.code);
        // Keys and file names may contain line breaks and terminal escape sequences.
        f.write_str(&one_line(&text, usize::MAX))
    }
}

/// All faults of a configuration file, in the order of their lines; not empty if returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFaults(pub Vec<ConfigFault>);

impl Deref for ConfigFaults {
    type Target = [ConfigFault];

    fn deref(&self) -> &Self::Target {
        &self.0
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
        let lines: Vec<_> = self.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigFaults {}

/// Why a value is rejected, or doubted: a [`ConfigFault`] without its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} [{code}]")]
pub(crate) struct Reason {
    /// The stable code, in kebab-case.
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// A value, or why there is none.
pub(crate) type Parsed<T> = Result<T, Reason>;

/// A [`Reason`] of a code and a message, which is a format.
macro_rules! reason {
    ($code:literal: $($message:tt)+) => {
        $crate::config::fault::Reason {
            code: $code,
            message: format!($($message)+),
        }
    };
}

/// Returns this reason from a function, unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $code:literal: $($message:tt)+) => {
        if !$condition {
            return Err(reason!($code: $($message)+));
        }
    };
}

/// Adds a fault at a key, or at a located value.
macro_rules! reject {
    ($reader:expr, $at:expr, $code:literal: $($message:tt)+) => {
        $reader.reject($at, reason!($code: $($message)+))
    };
}

impl Reason {
    /// The fault at a place; `line`: from 1, `None` if it is of the file as a whole.
    pub(super) fn at(self, file: &Path, line: Option<usize>, key: &str) -> ConfigFault {
        ConfigFault {
            file: file.to_owned(),
            line,
            key: key.to_owned(),
            code: self.code,
            message: self.message,
        }
    }

    /// The only fault of a file, because nothing else can be checked.
    pub(super) fn alone(self, file: &Path, line: Option<usize>, key: &str) -> ConfigFaults {
        ConfigFaults(vec![self.at(file, line, key)])
    }
}

/// The line of a byte of the text, counted from 1.
pub(super) fn line_at(text: &[u8], offset: usize) -> usize {
    let before = &text[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
