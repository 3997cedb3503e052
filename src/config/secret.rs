//! Secrets of the configuration. Each is where the configuration says that it is: in a file, in a credential of systemd
//! (`LoadCredential=`), or in environment variables that the file names as `${VARIABLE}`. One that is written into the file itself
//! is a fault.
//!
//! Invariant: no fault repeats a secret.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use resourcesync::{Algorithm, Digest};
use url::Url;

use crate::config::environment::{CREDENTIALS, Environment};
use crate::config::fault::Parsed;
use crate::config::table_reader::{Class, Located, TableReader, parse_path, text};

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
        Self::read(path).map_err(|reason| reason.to_string())
    }

    /// Reads the only line of a file.
    pub(super) fn read(path: &Path) -> Parsed<Self> {
        let shown = path.display();
        let bytes = read_beginning(path, LONGEST as u64 + 2);
        let text = bytes
            .and_then(|bytes| io::read_to_string(&*bytes))
            .map_err(|error| reason!("unreadable": "cannot be read: {shown}: {error}"))?;
        let secret = Self::new(text.trim_end_matches(['\r', '\n']));
        secret.ok_or_else(|| {
            reason!("out-of-range": "{shown} must hold one line of {SHORTEST} to {LONGEST} visible ASCII characters")
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

/// A URL that may be a secret, such as that of a webhook of Slack. It is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateUrl(Url);

impl PrivateUrl {
    /// A URL that is not shown.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self(url)
    }

    /// The URL itself.
    #[must_use]
    pub fn expose(&self) -> &Url {
        &self.0
    }
}

impl fmt::Debug for PrivateUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateUrl(…)")
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

/// The keys that a secret may be given by.
pub(super) fn keys_of_secret(name: &str) -> [String; 3] {
    [
        name.to_owned(),
        format!("{name}_file"),
        format!("{name}_credential"),
    ]
}

/// Whether one of the three keys of a secret is there.
pub(super) fn is_secret_given(section: &TableReader<'_, '_>, name: &str) -> bool {
    let keys = keys_of_secret(name);
    keys.iter().any(|key| section.is_given(key))
}

/// Reads a secret from where one of its three keys says, and locates it at that key. So are its faults.
pub(super) fn read_secret<T>(
    section: &mut TableReader<'_, '_>,
    name: &str,
    longest: u64,
    parse: impl Fn(&str) -> Parsed<T>,
) -> Option<Located<T>> {
    read_hidden(section, name, longest, false, parse)
}

/// Reads what may be a secret: as [`read_secret`], but it may also be written into the file.
pub(super) fn read_private<T>(
    section: &mut TableReader<'_, '_>,
    name: &str,
    longest: u64,
    parse: impl Fn(&str) -> Parsed<T>,
) -> Option<Located<T>> {
    read_hidden(section, name, longest, true, parse)
}

fn read_hidden<T>(
    section: &mut TableReader<'_, '_>,
    name: &str,
    longest: u64,
    may_be_plain: bool,
    parse: impl Fn(&str) -> Parsed<T>,
) -> Option<Located<T>> {
    const CLASSES: [Class; 3] = [Class::Secret, Class::SecretFile, Class::Credential];
    let keys = keys_of_secret(name);
    for (key, class) in keys.iter().zip(CLASSES) {
        section.classify(key, class);
    }
    let all = keys.iter().zip(CLASSES);
    let mut given = all.filter(|(key, _)| section.is_given(key));
    let (key, class) = given.next()?;
    if let Some((second, _)) = given.next() {
        reject!(section, second, "bad-auth": "only one of `{name}`, `{name}_file` and `{name}_credential` can be set");
    }
    let (folder, environment) = (section.file.folder, section.file.environment);
    let read = |text: &str| {
        let secret = match class {
            Class::Secret if may_be_plain && !text.contains("${") => Some(text.to_owned()),
            Class::Secret => Some(expand(text, name, environment)?),
            Class::SecretFile => Some(read_file(&parse_path(text, folder)?, longest)?),
            _ => read_credential(text, longest, environment)?,
        };
        secret.map(|secret| parse(&secret)).transpose()
    };
    let value = section.optional(key, class.clone(), text("a string", read))??;
    Some(section.located(key, value))
}

/// The text with the values of the environment variables that it names as `${VARIABLE}`, at least one.
fn expand(text: &str, name: &str, environment: &Environment) -> Parsed<String> {
    let plain = || {
        reason!("plain-secret":
            "a secret does not belong in this file: write \"${{VARIABLE}}\" for an environment variable, or use `{name}_file` or \
             `{name}_credential`")
    };
    let is_name = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let (variables, rest) = split_variables(text);
    let mut expanded = String::new();
    for &(before, variable) in &variables {
        if variable.is_empty() || !is_name(variable) {
            return Err(plain());
        }
        let value = environment.get(variable);
        let absent = || reason!("no-secret": "the environment variable {variable} is not set");
        expanded.extend([before, &value.ok_or_else(absent)?]);
    }
    if variables.is_empty() || rest.contains("${") {
        return Err(plain());
    }
    Ok(expanded + rest)
}

/// The environment variables that a text names as `${VARIABLE}`, each with what stands before it, and the text behind them.
pub(super) fn split_variables(mut text: &str) -> (Vec<(&str, &str)>, &str) {
    let mut variables = Vec::new();
    while let Some((before, after)) = text.split_once("${")
        && let Some((variable, after)) = after.split_once('}')
    {
        variables.push((before, variable));
        text = after;
    }
    (variables, text)
}

/// The text of a file, without the line breaks at its end.
fn read_file(path: &Path, longest: u64) -> Parsed<String> {
    let shown = path.display();
    let unreadable = |why| reason!("no-secret": "{shown} can't be read: {why}");
    let bytes = read_beginning(path, longest + 1).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > longest {
        return Err(unreadable(format!("larger than {longest} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| unreadable("not UTF-8".to_owned()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// The first bytes of a file, at most so many.
fn read_beginning(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a credential that systemd has loaded for the unit; `None`: it is not needed here.
fn read_credential(name: &str, longest: u64, environment: &Environment) -> Parsed<Option<String>> {
    let is_path = name.contains(['/', '\0']) || matches!(name, "." | "..");
    ensure!(!is_path, "bad-auth": "{name:?} is not the name of a credential: it has no path");
    if environment.passes_over_credentials() {
        return Ok(None);
    }
    let absent = || {
        reason!("no-secret":
            "there is no credential {name}: {CREDENTIALS} is not set, as systemd does for a unit with LoadCredential={name}:FILE")
    };
    let folder = environment.get(CREDENTIALS).ok_or_else(absent)?;
    read_file(&Path::new(&folder).join(name), longest).map(Some)
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
