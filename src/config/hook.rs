//! Reads `[[source.hook]]`: programs and web hooks that get the changes of a Source.
//!
//! Invariant: no fault repeats a secret.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use resourcesync::uri::has_userinfo;
use url::Url;

use crate::config::fault::Parsed;
use crate::config::secret::{WebhookSecret, is_secret_given, read_secret};
use crate::config::table_reader::{Class, TableReader, bad_path, parse_path, text};
use crate::config::value::{parse_nonzero_duration, parse_url};

/// How many hooks a Source may have: each may run a process.
const MOST_HOOKS: usize = 16;
/// The prefix of the secret of a web hook.
const SECRET_PREFIX: &str = "whsec_";
/// The lengths that a secret may have, in bytes, as Standard Webhooks recommends.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// The longest text of a secret, in bytes.
pub(super) const LONGEST_SECRET: u64 = 200;

/// Who gets the changes of a Source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its name among the hooks of the Source: `[a-z0-9-]`. Without one in the file, its number from 1.
    pub name: String,
    /// What is done.
    pub action: HookAction,
    /// How long one run, or one request, may take.
    pub timeout: Duration,
    /// How many lines of the feed one run gets at most.
    pub lines: usize,
    /// Whether the program reads the files: those in an object store are copied for it.
    pub files: bool,
}

/// What a hook does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAction {
    /// Runs a program, which gets lines of the feed on its standard input.
    Command {
        /// The program, as an absolute path.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// Sends a request, which announces the end of the feed.
    Webhook {
        /// Where it is sent.
        url: Url,
        /// What it is signed with.
        secret: WebhookSecret,
    },
}

impl Hook {
    /// A hook with default settings.
    #[must_use]
    pub fn new(name: impl Into<String>, action: HookAction) -> Self {
        let (timeout, lines, files) = TableReader::absent("source.hook", read_run);
        Self {
            name: name.into(),
            action,
            timeout,
            lines,
            files,
        }
    }
}

/// Reads the hooks of a Source.
pub(super) fn read_hooks(source: &mut TableReader<'_, '_>) -> Vec<Hook> {
    let mut hooks: Vec<Hook> = Vec::new();
    let (mut has_nameless, mut is_reported) = (false, false);
    source.tables("hook", "source.hook", |number, mut section| {
        has_nameless |= !section.is_present("name");
        let Some(hook) = read_hook(&mut section, number) else {
            return;
        };
        // The position in the feed belongs to the name: a number would be another hook's after the next change of the file.
        if has_nameless && !hooks.is_empty() && !is_reported {
            is_reported = true;
            reject!(section, "name", "bad-hook": "each of several hooks of a Source needs a `name`");
        }
        if hooks.iter().any(|other| other.name == hook.name) {
            reject!(section, "name", "duplicate-name": "two hooks of the Source are named {:?}", hook.name);
        }
        // The first that is too many; the others are counted on.
        if hooks.len() == MOST_HOOKS {
            reject!(section, "name", "out-of-range": "a Source can have {MOST_HOOKS} hooks");
        }
        hooks.push(hook);
    });
    hooks
}

/// How long a run may take, how many lines it gets, and whether it reads the files.
fn read_run(section: &mut TableReader<'_, '_>) -> (Duration, usize, bool) {
    let timeout = section.duration("timeout", parse_nonzero_duration);
    let lines = section.number("lines", 1..=100_000);
    (timeout, lines, section.flag("files"))
}

/// `None`: it has a fault, or a secret that this process cannot read.
fn read_hook(section: &mut TableReader<'_, '_>, number: usize) -> Option<Hook> {
    let name = section.label("name");
    let (timeout, lines, files) = read_run(section);
    let command = read_command(section);
    let url = section.optional("url", Class::Url, text("a URL", parse_hook_url));
    let action = match (section.is_present("command"), section.is_present("url")) {
        (true, true) => {
            reject!(section, "url", "bad-hook": "a hook has either `command` or `url`");
            None
        }
        (false, false) => {
            reject!(section, "command", "bad-hook": "a hook needs `command` or `url`");
            None
        }
        (true, false) => {
            let (program, arguments) = command?;
            Some(HookAction::Command { program, arguments })
        }
        (false, true) => {
            let url = url?;
            let secret = read_secret(section, "secret", LONGEST_SECRET, parse_secret);
            if !is_secret_given(section, "secret") {
                reject!(section, "secret_file", "bad-hook":
                    "a web hook needs `secret_file`, `secret_credential` or `secret`: its requests are signed");
            }
            let secret = secret?.value;
            Some(HookAction::Webhook { url, secret })
        }
    };
    Some(Hook {
        name: name.unwrap_or_else(|| number.to_string()),
        action: action?,
        timeout,
        lines,
        files,
    })
}

/// Parses a secret of Standard Webhooks: `whsec_` and 24 to 64 bytes in base64.
pub(super) fn parse_secret(text: &str) -> Parsed<WebhookSecret> {
    let encoded = text.strip_prefix(SECRET_PREFIX);
    let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
    let bytes = bytes.filter(|bytes| SECRET_BYTES.contains(&bytes.len()));
    let bad = || reason!("bad-secret": "a secret is `whsec_` and 24 to 64 random bytes in base64");
    Ok(WebhookSecret::new(text, bytes.ok_or_else(bad)?))
}

fn parse_hook_url(text: &str) -> Parsed<Url> {
    let url = parse_url(text)?;
    ensure!(!has_userinfo(&url), "bad-url": "the requests are signed: the URL has neither a user name nor a password");
    Ok(url)
}

/// The program of `command` and its arguments, if they are there and have no fault.
pub(super) fn read_command(section: &mut TableReader<'_, '_>) -> Option<(PathBuf, Vec<String>)> {
    let command = section.optional_list("command", |text| {
        if text.contains('\0') {
            Err(bad_path(text))
        } else {
            Ok(text.to_owned())
        }
    });
    let found = command_of(&command?, section.file.folder);
    let reject = |reason| section.reject("command", reason);
    found.map_err(reject).ok()
}

/// The program and its arguments. No shell interprets them, and nothing is searched for.
fn command_of(command: &[String], folder: &Path) -> Parsed<(PathBuf, Vec<String>)> {
    let missing = || reason!("bad-hook": "a command begins with the path of a program");
    let (program, arguments) = command.split_first().ok_or_else(missing)?;
    ensure!(program.contains('/'), "bad-hook":
        "{program:?} is no path: a program is not searched for, and no shell is used; write such as [\"/usr/bin/{program}\"]");
    Ok((parse_path(program, folder)?, arguments.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_have_the_form_of_standard_webhooks() {
        let bytes = [7; 24];
        let good = format!("{SECRET_PREFIX}{}", STANDARD.encode(bytes));
        let secret = parse_secret(&good).unwrap();
        assert_eq!(secret.bytes(), bytes);
        assert_eq!(format!("{secret:?}"), "WebhookSecret(…)");
        let short = format!("{SECRET_PREFIX}{}", STANDARD.encode([7; 23]));
        let long = format!("{SECRET_PREFIX}{}", STANDARD.encode([7; 65]));
        let plain = STANDARD.encode(bytes);
        for bad in ["", "whsec_", "whsec_?", &short, &long, &plain] {
            let error = parse_secret(bad).unwrap_err().message;
            assert!(
                error.contains("whsec_") && !error.contains(&plain),
                "{error}"
            );
        }
    }
}
