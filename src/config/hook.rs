//! Reads `[[source.hook]]`: programs and web hooks that get the changes of a Source.
//!
//! Invariant: no fault repeats a secret.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use resourcesync::uri::has_userinfo;
use url::Url;

use crate::config::fault::FaultKind;
use crate::config::secret::WebhookSecret;
use crate::config::secret_reader::{is_secret_given, read_secret};
use crate::config::table_reader::{Class, TableReader, parse_path};
use crate::config::value::{parse_nonzero_duration, parse_url};

/// How many hooks a Source may have: each may run a process.
const MOST_HOOKS: usize = 16;
/// The prefix of the secret of a web hook.
const SECRET_PREFIX: &str = "whsec_";
/// The lengths that a secret may have, in bytes, as Standard Webhooks recommends.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// The longest text of a secret, in bytes.
const LONGEST_SECRET: u64 = 200;

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
        let (timeout, lines) = TableReader::absent("source.hook", read_bounds);
        Self {
            name: name.into(),
            action,
            timeout,
            lines,
        }
    }
}

/// Reads the hooks of a Source.
pub(super) fn read_hooks(source: &mut TableReader<'_, '_>) -> Vec<Hook> {
    let mut hooks: Vec<Hook> = Vec::new();
    let (mut is_excess, mut has_nameless, mut is_reported) = (false, false, false);
    source.tables("hook", "source.hook", |number, mut section| {
        has_nameless |= !section.is_present("name");
        let Some(hook) = read_hook(&mut section, number) else {
            return;
        };
        // The position in the feed belongs to the name: a number would be another hook's after the next change of the file.
        if has_nameless && !hooks.is_empty() && !is_reported {
            is_reported = true;
            let text = "each of several hooks of a Source needs a `name`".to_owned();
            section.reject_table("name", &FaultKind::BadHook(text));
        }
        if let Some(other) = hooks.iter().find(|other| other.name == hook.name) {
            let text = format!("two hooks of the Source are named {:?}", other.name);
            section.reject_table("name", &FaultKind::DuplicateName(text));
        }
        if hooks.len() == MOST_HOOKS && !is_excess {
            is_excess = true;
            let text = format!("a Source can have {MOST_HOOKS} hooks");
            section.reject_table("name", &FaultKind::OutOfRange(text));
        }
        hooks.push(hook);
    });
    hooks
}

/// How long a run may take, and how many lines it gets.
fn read_bounds(section: &mut TableReader<'_, '_>) -> (Duration, usize) {
    let timeout = section.duration("timeout", parse_nonzero_duration);
    (timeout, section.number("lines", 1..=100_000))
}

/// `None`: it has a fault, or a secret that this process cannot read.
fn read_hook(section: &mut TableReader<'_, '_>, number: usize) -> Option<Hook> {
    let name = section.label("name");
    let (timeout, lines) = read_bounds(section);
    let command = section.optional_list("command", |text| {
        if text.contains('\0') {
            Err(FaultKind::BadPath(text.to_owned()))
        } else {
            Ok(text.to_owned())
        }
    });
    let url = section.optional_text("url", Class::Url, "a URL", parse_hook_url);
    let has_both = section.is_present("command") && section.is_present("url");
    let action = match (command, url) {
        _ if has_both => {
            let text = "a hook has either `command` or `url`".to_owned();
            section.reject("url", &FaultKind::BadHook(text));
            None
        }
        (Some(command), _) => {
            let action = command_of(&command, section.file.folder);
            action.map_err(|kind| section.reject("command", &kind)).ok()
        }
        (None, Some(url)) => {
            let secret = read_secret(section, "secret", LONGEST_SECRET, parse_secret);
            if !is_secret_given(section, "secret") {
                let text = "a web hook needs `secret_file`, `secret_credential` or `secret`: its requests are signed";
                section.reject_table("secret_file", &FaultKind::BadHook(text.to_owned()));
            }
            let secret = secret?.value;
            Some(HookAction::Webhook { url, secret })
        }
        (None, None) => {
            if !section.is_present("command") && !section.is_present("url") {
                let text = "a hook needs `command` or `url`".to_owned();
                section.reject_table("command", &FaultKind::BadHook(text));
            }
            None
        }
    };
    Some(Hook {
        name: name.unwrap_or_else(|| number.to_string()),
        action: action?,
        timeout,
        lines,
    })
}

/// Parses a secret of Standard Webhooks: `whsec_` and 24 to 64 bytes in base64.
fn parse_secret(text: &str) -> Result<WebhookSecret, String> {
    let encoded = text.strip_prefix(SECRET_PREFIX);
    let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
    let bytes = bytes.filter(|bytes| SECRET_BYTES.contains(&bytes.len()));
    let bytes = bytes.ok_or("a secret is `whsec_` and 24 to 64 random bytes in base64")?;
    Ok(WebhookSecret::new(text, bytes))
}

fn parse_hook_url(text: &str) -> Result<Url, FaultKind> {
    let url = parse_url(text)?;
    if has_userinfo(&url) {
        let text = "the requests are signed: the URL has neither a user name nor a password";
        return Err(FaultKind::BadUrl(text.to_owned()));
    }
    Ok(url)
}

/// The program and its arguments. No shell interprets them, and nothing is searched for.
fn command_of(command: &[String], folder: &Path) -> Result<HookAction, FaultKind> {
    let Some((program, arguments)) = command.split_first() else {
        let text = "a command begins with the path of a program".to_owned();
        return Err(FaultKind::BadHook(text));
    };
    if !program.contains('/') {
        let text = format!(
            "{program:?} is no path: a program is not searched for, and no shell is used; write such as [\"/usr/bin/{program}\"]"
        );
        return Err(FaultKind::BadHook(text));
    }
    Ok(HookAction::Command {
        program: parse_path(program, folder)?,
        arguments: arguments.to_vec(),
    })
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
            let error = parse_secret(bad).unwrap_err();
            assert!(
                error.contains("whsec_") && !error.contains(&plain),
                "{error}"
            );
        }
    }
}
