//! The configuration file: TOML → [`Config`], or every fault that it has.

use std::fs;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Callback, Config, Http, Limits, Status};
use crate::config::defaults::STATE_DIR;
use crate::config::fault::{Faults, Problem};
use crate::config::overlap::{tell_equal_listeners, tell_equal_names, tell_shared_folders};
use crate::config::section::{Findings, Placed, Section, dotted, fault, table_of};
use crate::config::source::{DURATION, assign, read_sources, source_label};
use crate::config::syntax::{Mended, is_duplicate, line_at, mend};
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
            .retain(|fault| fault.code != Problem::NoSource.code());
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
    let unreadable = |line, why: String| {
        let problem = Problem::Unreadable(why);
        Faults(vec![fault(path, line, "", &problem)])
    };
    let bytes = fs::read(path).map_err(|error| unreadable(None, error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| {
        let sound = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = sound.iter().filter(|byte| **byte == b'\n').count() + 1;
        unreadable(Some(line), "not UTF-8".to_owned())
    })
}

/// What the text says, as far as it can be told, and all that is wrong with it.
fn examine(text: &str, path: &Path) -> (Option<Config>, Faults) {
    let file = match std::path::absolute(path) {
        Ok(file) => file,
        Err(error) => {
            let problem = Problem::Unreadable(error.to_string());
            return (None, Faults(vec![fault(path, None, "", &problem)]));
        }
    };
    let folder = file.parent().unwrap_or(&file);
    let (text, single) = double_brackets(text);
    let mended = mend(&text);
    let mut findings = Findings::new(path, &mended.text, &mended.unknown);
    let (document, _) = DeTable::parse_recoverable(&mended.text);
    let document = document.get_ref();
    tell_slips(&mut findings, &mended, document);
    for line in single {
        let problem = Problem::WrongType {
            expected: "[[source]]",
            found: "[source]",
        };
        findings.add(Some(line), "source", &problem);
    }
    let config = (!mended.hopeless).then(|| read(&mut findings, document, folder));
    (config, findings.into_faults())
}

/// The whole document; what is returned is only good for anything when nothing was found wrong.
fn read<'t>(findings: &mut Findings<'_>, document: &'t DeTable<'t>, folder: &Path) -> Config {
    let mut top = Section::new(findings, "", String::new(), document, None);
    let state_dir = top
        .path("state_dir", folder)
        .unwrap_or_else(|| STATE_DIR.into());
    let state_dir = top.placed("state_dir", state_dir);

    let mut callback = Callback::default();
    let mut callback_at = Placed {
        value: callback.listen,
        line: None,
        key: "callback.listen".to_owned(),
    };
    if let Some(mut section) = open(findings, document, "callback") {
        let listen = section.text("listen", ADDRESS, parse_address);
        assign(&mut callback.listen, listen);
        callback_at = section.placed("listen", callback.listen);
        callback.public_url = section.text("public_url", "a URL", parse_public_url);
    }

    let mut status = Status::default();
    let mut status_at = Placed {
        value: status.listen,
        line: None,
        key: "status.listen".to_owned(),
    };
    if let Some(mut section) = open(findings, document, "status") {
        let listen = section.text("listen", ADDRESS, parse_address);
        assign(&mut status.listen, listen);
        status_at = section.placed("listen", status.listen);
        assign(&mut status.hosts, section.list("hosts", parse_host));
    }
    tell_equal_listeners(findings, &callback_at, &status_at);

    let http = open(findings, document, "http").map_or_else(Http::default, read_http);
    let limits = open(findings, document, "limits").map_or_else(Limits::default, read_limits);
    let read = read_sources(findings, document.get("source"), folder);
    tell_equal_names(findings, &read.names);
    tell_shared_folders(findings, &state_dir, &read.mirrors);
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
        section.reject("inbox", &Problem::OutOfRange(text));
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
    findings: &'s mut Findings<'f>,
    document: &'s DeTable<'s>,
    name: &'static str,
) -> Option<Section<'s, 'f>> {
    let value = document.get(name)?;
    let table = table_of(
        findings,
        name,
        "a table that begins with its name in single brackets",
        value,
    )?;
    let line = findings.line(value.span());
    Some(Section::new(
        findings,
        name,
        name.to_owned(),
        table,
        Some(line),
    ))
}

/// Makes `[[source]]` of each `[source]`, a slip that would hide all Sources before it, and tells their lines.
fn double_brackets(text: &str) -> (String, Vec<usize>) {
    let mut single = Vec::new();
    let mut lines = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        let head = line.split('#').next().unwrap_or_default();
        if head.trim() == "[source]" {
            single.push(index + 1);
            lines.push("[[source]]");
        } else {
            lines.push(line);
        }
    }
    (lines.join("\n"), single)
}

/// Tells what is no TOML, and what is given twice.
fn tell_slips(findings: &mut Findings<'_>, mended: &Mended, document: &DeTable<'_>) {
    let mut places = Vec::new();
    list_keys(&mended.text, document, "", &mut places);
    for slip in &mended.slips {
        let place = places.iter().find(|place| place.line == slip.line);
        let line = mended.text.lines().nth(slip.line - 1).unwrap_or_default();
        let key = match place {
            Some(place) => &place.key,
            // A table that begins again further down is there by then.
            None if line.starts_with('[') => line.trim_matches(['[', ']']),
            None => "",
        };
        let problem = Problem::Syntax(slip.message.clone());
        findings.add(Some(slip.line), key, &problem);
    }
    let (_, errors) = DeTable::parse_recoverable(&mended.text);
    for error in errors.iter().filter(|error| is_duplicate(error)) {
        let Some(span) = error.span() else { continue };
        let line = line_at(&mended.text, span.start) + 1;
        if mended.unknown.contains(&line) {
            continue;
        }
        let text = mended.text.get(span).unwrap_or_default();
        let source = mended.text.lines().nth(line - 1).unwrap_or_default();
        let table = places
            .iter()
            .filter(|place| place.is_table && place.line <= line)
            .max_by_key(|place| place.line);
        let key = match table {
            Some(table) if !source.trim_start().starts_with('[') => dotted(&table.key, text),
            _ => text.to_owned(),
        };
        let problem = if error.message() == "duplicate key" {
            Problem::DuplicateKey
        } else {
            Problem::Syntax(error.message().to_owned())
        };
        findings.add(Some(line), &key, &problem);
    }
}

/// Where a key is.
struct KeyPlace {
    line: usize,
    key: String,
    is_table: bool,
}

/// Where all the keys of a table are, for what the parser says of a place only.
fn list_keys(text: &str, table: &DeTable<'_>, label: &str, places: &mut Vec<KeyPlace>) {
    let mut list = |key: String, value: &Spanned<DeValue<'_>>, start: usize| {
        let inner = value.get_ref().as_table();
        places.push(KeyPlace {
            line: line_at(text, start) + 1,
            key: key.clone(),
            is_table: inner.is_some(),
        });
        if let Some(inner) = inner {
            list_keys(text, inner, &key, places);
        }
    };
    for (key, value) in table {
        if let (true, Some(array)) = (key.get_ref() == "source", value.get_ref().as_array()) {
            for (index, item) in array.iter().enumerate() {
                let name = item.get_ref().as_table();
                let name = name.map_or_else(String::new, |table| source_label(index, table));
                list(name, item, item.span().start);
            }
        } else {
            list(dotted(label, key.get_ref()), value, key.span().start);
        }
    }
}
