//! The configuration file: TOML → [`Config`], or every fault that it has.

use std::fs;
use std::path::Path;

use toml::de::DeTable;

use super::{Callback, Config, Http, Limits, Status};
use crate::config::defaults::STATE_DIR;
use crate::config::fault::{FaultCollector, FaultKind, Faults};
use crate::config::overlap::{check_folders, check_listeners, check_names};
use crate::config::section::{Located, Section, table_of};
use crate::config::source::{DURATION, assign, read_sources};
use crate::config::syntax::parse_toml;
use crate::config::value::{
    parse_address, parse_host, parse_nonzero_duration, parse_nonzero_size, parse_public_url,
    parse_size, parse_user_agent,
};

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`Faults`], every one that the file has, each with its line; a file that cannot be read has one.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        Self::parse(&read_text(path)?, path)
    }

    /// The same for who follows no Source: there may be none.
    ///
    /// # Errors
    /// [`Faults`], as with [`Config::load`].
    pub fn load_without_sources(path: &Path) -> Result<Self, Faults> {
        let (config, mut faults) = examine(&read_text(path)?, path);
        faults
            .0
            .retain(|fault| fault.code != FaultKind::NoSource.code());
        config.filter(|_| faults.is_empty()).ok_or(faults)
    }

    /// Reads the text of a configuration file; `path` is what the file is called, and relative paths in it begin at its
    /// folder.
    ///
    /// # Errors
    /// [`Faults`], every one that the text has, each with its line.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Faults> {
        let (config, faults) = examine(text, path);
        config.filter(|_| faults.is_empty()).ok_or(faults)
    }
}

fn read_text(path: &Path) -> Result<String, Faults> {
    let unreadable = |line, why: String| Faults::one(path, line, "", &FaultKind::Unreadable(why));
    let bytes = fs::read(path).map_err(|error| unreadable(None, error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        unreadable(Some(line), "not UTF-8".to_owned())
    })
}

/// Reads a text as far as it is valid, and collects its faults. Text that is not TOML has one fault and no configuration.
fn examine(text: &str, path: &Path) -> (Option<Config>, Faults) {
    let file = match std::path::absolute(path) {
        Ok(file) => file,
        Err(error) => {
            let kind = FaultKind::Unreadable(error.to_string());
            return (None, Faults::one(path, None, "", &kind));
        }
    };
    let folder = file.parent().unwrap_or(&file);
    let document = match parse_toml(text) {
        Ok(document) => document,
        Err(fault) => {
            let faults = Faults::one(path, Some(fault.line), &fault.key, &fault.kind);
            return (None, faults);
        }
    };
    let mut faults = FaultCollector::new(path, text);
    let config = read(&mut faults, &document, folder);
    (Some(config), faults.into_faults())
}

/// The whole document; what is returned is only good for anything when nothing was found wrong.
fn read<'t>(faults: &mut FaultCollector<'_>, document: &'t DeTable<'t>, folder: &Path) -> Config {
    let mut top = Section::new(faults, "", String::new(), document, None);
    let state_dir = top
        .path("state_dir", folder)
        .unwrap_or_else(|| STATE_DIR.into());
    let state_dir = top.located("state_dir", state_dir);

    let mut callback = Callback::default();
    let mut callback_at = Located {
        value: callback.listen,
        line: None,
        key: "callback.listen".to_owned(),
    };
    if let Some(mut section) = open(faults, document, "callback") {
        let listen = section.text("listen", ADDRESS, parse_address);
        assign(&mut callback.listen, listen);
        callback_at = section.located("listen", callback.listen);
        callback.public_url = section.text("public_url", "a URL", parse_public_url);
    }

    let mut status = Status::default();
    let mut status_at = Located {
        value: status.listen,
        line: None,
        key: "status.listen".to_owned(),
    };
    if let Some(mut section) = open(faults, document, "status") {
        let listen = section.text("listen", ADDRESS, parse_address);
        assign(&mut status.listen, listen);
        status_at = section.located("listen", status.listen);
        assign(&mut status.hosts, section.list("hosts", parse_host));
    }
    check_listeners(faults, &callback_at, &status_at);

    let http = open(faults, document, "http").map_or_else(Http::default, read_http);
    let limits = open(faults, document, "limits").map_or_else(Limits::default, read_limits);
    let read = read_sources(faults, document.get("source"), folder);
    check_names(faults, &read.names);
    check_folders(faults, &state_dir, &read.mirrors);
    Config {
        state_dir: state_dir.value,
        callback,
        status,
        http,
        limits,
        sources: read.sources,
    }
}

fn read_http(mut section: Section<'_, '_>) -> Http {
    let mut http = Http::default();
    let connections = section.number("connections_per_host", 1..=256);
    assign(&mut http.connections_per_host, connections);
    let timeout = section.text("timeout", DURATION, parse_nonzero_duration);
    assign(&mut http.timeout, timeout);
    let agent = section.text("user_agent", "a text", parse_user_agent);
    assign(&mut http.user_agent, agent);
    let private = section.flag("allow_private_addresses");
    assign(&mut http.allow_private_addresses, private);
    http
}

fn read_limits(mut section: Section<'_, '_>) -> Limits {
    let mut limits = Limits::default();
    let document = section.text("document", SIZE, parse_nonzero_size);
    assign(&mut limits.document, document);
    let resource = section.text("resource", SIZE, parse_size);
    limits.resource = resource.filter(|size| *size > 0);
    let package = section.text("package", SIZE, parse_size);
    limits.package = package.filter(|size| *size > 0);
    let notification = section.text("notification", SIZE, parse_nonzero_size);
    let inbox = section.text("inbox", SIZE, parse_nonzero_size);
    // A notification that is allowed, but fits in no inbox, would be put off for ever: the one that is told goes before
    // the default of the other.
    if let (Some(notification), Some(inbox)) = (notification, inbox)
        && inbox < notification
    {
        let text = "smaller than one notification may be (limits.notification)".to_owned();
        section.reject("inbox", &FaultKind::OutOfRange(text));
    }
    limits.notification =
        notification.unwrap_or_else(|| limits.notification.min(inbox.unwrap_or(u64::MAX)));
    limits.inbox = inbox.unwrap_or_else(|| limits.inbox.max(limits.notification));
    let held = section.number("held_notifications", 0..=1_000_000);
    assign(&mut limits.held_notifications, held);
    limits
}

const ADDRESS: &str = "an address such as \"127.0.0.1:8461\"";
const SIZE: &str = "a size such as \"64MiB\"";

/// A table of the document, if it is there.
fn open<'s, 'f>(
    faults: &'s mut FaultCollector<'f>,
    document: &'s DeTable<'s>,
    name: &'static str,
) -> Option<Section<'s, 'f>> {
    let value = document.get(name)?;
    let table = table_of(
        faults,
        name,
        "a table that begins with its name in single brackets",
        value,
    )?;
    let line = faults.line(value.span());
    Some(Section::new(
        faults,
        name,
        name.to_owned(),
        table,
        Some(line),
    ))
}
