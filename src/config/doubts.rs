//! Values that are valid and can hardly be meant, such as a poll each millisecond. They change nothing: `check` and the start of
//! the daemon warn of them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use toml::de::DeTable;
use url::{Host, Url};

use super::Config;
use crate::config::fault::{ConfigFaults, FaultCollector, FaultKind};
use crate::config::file::{folder_of, read_text};
use crate::config::syntax::parse_toml;
use crate::config::table_reader::{Located, TableReader, parse_path};
use crate::config::value::{parse_duration, parse_url};

/// The keys of paths, by table.
const PATHS: [(&str, &str); 10] = [
    ("", "state_dir"),
    ("status", "token_file"),
    ("http", "ca_file"),
    ("source", "mirror"),
    ("source.auth", "bearer_file"),
    ("source.auth", "basic_file"),
    ("source.auth", "header_file"),
    ("source.auth", "certificate_file"),
    ("source.auth", "key_file"),
    ("source.hook", "secret_file"),
];
/// The keys of folders among them.
const FOLDERS: [&str; 2] = ["state_dir", "mirror"];
/// The keys of files among them that hold no secret.
const PUBLIC_FILES: [&str; 1] = ["ca_file"];
/// The keys of URLs, by table.
const URLS: [(&str, &str); 2] = [("callback", "public_url"), ("source", "url")];
/// The durations that may be too short: table, key, the shortest one that is usual, and what shorter ones do.
const DURATIONS: [(&str, &str, Duration, &str); 3] = [
    (
        "source",
        "poll_interval",
        Duration::from_secs(1),
        "the Source would be requested without pause",
    ),
    (
        "source",
        "lease",
        Duration::from_secs(5 * 60),
        "after the first times it is renewed every five minutes only",
    ),
    (
        "http",
        "timeout",
        Duration::from_millis(100),
        "most servers need longer to answer",
    ),
];
/// The domains that stand for others in documentation (RFC 2606, RFC 6761).
const PLACEHOLDERS: [&str; 3] = ["example.com", "example.net", "example.org"];
const PLACEHOLDER_ENDS: [&str; 2] = ["example", "invalid"];

impl Config {
    /// What is valid in a configuration file, and can hardly be meant; empty if the file is not valid.
    #[must_use]
    pub fn doubts(path: &Path) -> ConfigFaults {
        let (Ok(text), Ok(folder)) = (read_text(path), folder_of(path)) else {
            return ConfigFaults::default();
        };
        let Ok(document) = parse_toml(&text) else {
            return ConfigFaults::default();
        };
        let mut doubts = FaultCollector::new(path, &text);
        examine(&mut doubts, "", String::new(), &document, &folder);
        for table in ["callback", "status", "http"] {
            if let Some(section) = document.get(table).and_then(|it| it.get_ref().as_table()) {
                examine(&mut doubts, table, table.to_owned(), section, &folder);
            }
        }
        let sources = document
            .get("source")
            .and_then(|it| it.get_ref().as_array());
        for source in sources.into_iter().flatten() {
            if let Some(section) = source.get_ref().as_table() {
                let name = section.get("name").and_then(|it| it.get_ref().as_str());
                let label = format!("source[{}]", name.unwrap_or_default());
                examine(&mut doubts, "source", label.clone(), section, &folder);
                let auth = section.get("auth").and_then(|it| it.get_ref().as_table());
                if let Some(auth) = auth {
                    let label = format!("{label}.auth");
                    examine(&mut doubts, "source.auth", label, auth, &folder);
                }
                let hooks = section.get("hook").and_then(|it| it.get_ref().as_array());
                for (index, hook) in hooks.into_iter().flatten().enumerate() {
                    if let Some(hook) = hook.get_ref().as_table() {
                        let label = format!("{label}.hook[#{}]", index + 1);
                        examine(&mut doubts, "source.hook", label, hook, &folder);
                    }
                }
            }
        }
        doubts.into_faults()
    }
}

/// Examines one table.
fn examine(
    doubts: &mut FaultCollector<'_>,
    kind: &'static str,
    label: String,
    table: &DeTable<'_>,
    folder: &Path,
) {
    let mut found = Vec::new();
    let section = TableReader::new(doubts, kind, label, table, None);
    let text = |key: &str| table.get(key).and_then(|it| it.get_ref().as_str());
    let mut doubt = |key: &str, kind: Option<FaultKind>| {
        found.extend(kind.map(|kind| section.located(key, kind)));
    };
    for (_, key) in PATHS.into_iter().filter(|(table, _)| *table == kind) {
        if let Some(path) = text(key) {
            doubt(key, unexpanded(path));
            let is_folder = FOLDERS.contains(&key);
            doubt(key, is_folder.then(|| not_a_folder(path, folder)).flatten());
            // The key may be in another file.
            let has_key = ["key", "key_file", "key_credential"]
                .iter()
                .any(|key| text(key).is_some_and(|text| !text.is_empty()));
            let is_public = PUBLIC_FILES.contains(&key) || (key == "certificate_file" && has_key);
            if !is_folder && !is_public && !path.is_empty() {
                doubt(key, readable_by_all(path, folder));
            }
        }
    }
    if kind == "source" {
        doubt("url", credentials_in_the_clear(table));
        doubt("hub", secret_in_the_clear(table));
    }
    for (_, key) in URLS.into_iter().filter(|(table, _)| *table == kind) {
        let url = text(key).and_then(|url| parse_url(url).ok());
        doubt(key, url.as_ref().and_then(placeholder));
    }
    for (_, key, usual, effect) in DURATIONS.into_iter().filter(|(table, ..)| *table == kind) {
        let short = text(key).filter(|it| parse_duration(it).is_ok_and(|it| it < usual));
        doubt(
            key,
            short.map(|text| FaultKind::VeryShort(format!("{text:?} is very short: {effect}"))),
        );
    }
    for Located { value, line, key } in found {
        doubts.add(line, &key, &value);
    }
}

/// The doubt of a path in which a shell would replace something.
fn unexpanded(path: &str) -> Option<FaultKind> {
    let is_variable = |(at, _): (usize, &str)| {
        let after = path[at + 1..].chars().next();
        after.is_some_and(|after| after.is_ascii_alphabetic() || matches!(after, '_' | '{' | '('))
    };
    let is_home = path == "~" || path.starts_with("~/");
    let is_unexpanded = is_home || path.match_indices('$').any(is_variable);
    is_unexpanded.then(|| {
        FaultKind::Unexpanded(format!(
            "{path:?} is taken as it is: ~ and $VARIABLES are not replaced"
        ))
    })
}

/// The doubt of a folder where something else is, or that something else is in the way of.
fn not_a_folder(path: &str, folder: &Path) -> Option<FaultKind> {
    let path = parse_path(path, folder).ok()?;
    let existing = path.ancestors().find(|path| path.exists())?;
    (!existing.is_dir()).then(|| {
        let shown = existing.display();
        FaultKind::NotAFolder(format!("{shown} is not a folder, and must be one"))
    })
}

/// The doubt of a secret that every user can read.
fn readable_by_all(path: &str, folder: &Path) -> Option<FaultKind> {
    let path = parse_path(path, folder).ok()?;
    let mode = path.metadata().ok()?.permissions().mode();
    (mode & 0o004 != 0).then(|| {
        FaultKind::ReadableSecret(format!(
            "{} can be read by every user (mode {:03o}): make it readable by the daemon's user only",
            path.display(),
            mode & 0o777
        ))
    })
}

/// The doubt of a Source that gets credentials over http.
fn credentials_in_the_clear(source: &DeTable<'_>) -> Option<FaultKind> {
    let url = parse_url(source.get("url")?.get_ref().as_str()?).ok()?;
    let is_set = |table: &DeTable<'_>| {
        table.iter().any(|(key, value)| {
            let is_secret = !key.get_ref().starts_with("origins");
            is_secret && value.get_ref().as_str().is_some_and(|it| !it.is_empty())
        })
    };
    let auth = source.get("auth").and_then(|it| it.get_ref().as_table());
    let has_any =
        auth.is_some_and(is_set) || !url.username().is_empty() || url.password().is_some();
    (has_any && is_in_the_clear(&url)).then(|| {
        let text = "the credentials of the Source are sent unencrypted: use https";
        FaultKind::Unencrypted(text.to_owned())
    })
}

/// The doubt of a hub that gets the secret of a subscription over http.
fn secret_in_the_clear(source: &DeTable<'_>) -> Option<FaultKind> {
    let text = |key: &str| source.get(key).and_then(|it| it.get_ref().as_str());
    let is_used = text("signatures") != Some("off");
    let hub = parse_url(text("hub")?).ok()?;
    (is_used && is_in_the_clear(&hub)).then(|| {
        FaultKind::Unencrypted(
            "the secret of the subscription is sent to the hub unencrypted: whoever reads it can sign notifications; use https"
                .to_owned(),
        )
    })
}

/// Whether requests leave this machine without TLS.
fn is_in_the_clear(url: &Url) -> bool {
    let is_local = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => true,
    };
    url.scheme() == "http" && !is_local
}

/// The doubt of a URL of documentation.
fn placeholder(url: &Url) -> Option<FaultKind> {
    let Some(Host::Domain(host)) = url.host() else {
        return None;
    };
    let host = host.trim_end_matches('.');
    let is_in = |domain: &str| {
        let before = host.strip_suffix(domain);
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    let mut domains = PLACEHOLDERS.iter().chain(&PLACEHOLDER_ENDS);
    domains.any(|domain| is_in(domain)).then(|| {
        FaultKind::Placeholder(format!("{host} is a domain of examples: set the real one"))
    })
}
