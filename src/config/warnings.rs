//! Values that are valid and can hardly be meant, such as a poll each millisecond. They change nothing: `check` and the start of
//! the daemon warn of them.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use resourcesync::uri::has_userinfo;
use resyncd_core::hide_userinfo;
use resyncd_fetch::{is_at_or_below, is_in_the_clear, is_private_name};
use toml::de::DeTable;
use url::{Host, Url};

use super::Config;
use crate::config::environment::Environment;
use crate::config::fault::{ConfigFaults, Reason};
use crate::config::file::{CLASSES, FileReader, FoundTable, read_text};
use crate::config::proxies::{listed_exceptions, parse_proxy};
use crate::config::secret::keys_of_secret;
use crate::config::table_reader::{Class, dotted, parse_path};
use crate::config::value::{parse_address, parse_duration, parse_url};

/// The durations that may be too short: table, key, the milliseconds of the shortest one that is usual, and what shorter ones do.
const DURATIONS: [(&str, &str, u64, &str); 3] = [
    (
        "source",
        "poll_interval",
        1000,
        "the Source would be requested without pause",
    ),
    (
        "source",
        "lease",
        300_000,
        "after the first times it is renewed every five minutes only",
    ),
    ("http", "timeout", 100, "most servers need longer to answer"),
];
/// The domains that stand for others in documentation (RFC 2606, RFC 6761).
const PLACEHOLDERS: [&str; 5] = [
    "example.com",
    "example.net",
    "example.org",
    "example",
    "invalid",
];

/// A warning, if a condition holds.
macro_rules! doubt {
    ($condition:expr, $code:literal: $($message:tt)+) => {
        $condition.then(|| reason!($code: $($message)+))
    };
}

impl Config {
    /// What is valid in a configuration file, and can hardly be meant; empty if the file is not valid.
    #[must_use]
    pub fn warnings(path: &Path) -> ConfigFaults {
        Self::warnings_in(path, &Environment::of_process().checking())
    }

    /// As [`warnings`](Self::warnings), in an environment.
    #[must_use]
    pub fn warnings_in(path: &Path, environment: &Environment) -> ConfigFaults {
        let warnings = read_text(path).and_then(|text| {
            super::file::examine(&text, path, environment, |file, config| {
                file.faults();
                warn(file, &config);
                file.faults()
            })
        });
        warnings.unwrap_or_default()
    }
}

/// Adds the warnings of a file that was read.
fn warn(file: &mut FileReader<'_>, config: &Config) {
    let proxies = &config.http.proxies;
    let mut used: Vec<_> = proxies.http.iter().chain(&proxies.https).collect();
    used.dedup();
    let mut tables = file.tables.iter().filter(|(kind, ..)| *kind == "http");
    let is_of_file = tables.any(|(.., table)| text_of(table, "proxy").is_some());
    if !is_of_file && !used.is_empty() {
        for reason in used.into_iter().filter_map(password_of_proxy) {
            file.add(None, "http.proxy", reason);
        }
        let listed = listed_exceptions(file.environment).into_iter();
        for (text, _) in listed.filter(|(_, parsed)| parsed.is_err()) {
            let shown = hide_userinfo(&text);
            let reason = reason!("no-proxy-ignored":
                "{shown:?} in NO_PROXY of the environment is neither a host nor a network, such as 10.0.0.0/8: it is ignored, and what \
                 it stands for is requested through the proxy");
            file.add(None, "http.no_proxy", reason);
        }
    }
    for table in std::mem::take(&mut file.tables) {
        examine(file, config, &table);
    }
}

/// The text that a key has, unless it is empty.
fn text_of<'t>(table: &'t DeTable<'_>, key: &str) -> Option<&'t str> {
    let text = table.get(key)?.get_ref().as_str();
    text.filter(|text| !text.is_empty())
}

/// The URLs of a list.
fn urls_of(table: &DeTable<'_>, key: &str) -> impl Iterator<Item = Url> {
    let list = table.get(key).and_then(|it| it.get_ref().as_array());
    let texts = list.into_iter().flatten();
    let texts = texts.filter_map(|it| it.get_ref().as_str());
    texts.filter_map(|it| parse_url(it).ok())
}

/// The warning of a proxy that gets a password over the network. It speaks plain HTTP.
fn password_of_proxy(proxy: &Url) -> Option<Reason> {
    let host = proxy.host_str().unwrap_or_default();
    doubt!(has_userinfo(proxy) && is_in_the_clear(proxy), "unencrypted":
        "the user name and password for the proxy {host} are sent to it unencrypted: use one on this machine, or one that needs none")
}

/// Examines one table.
fn examine(file: &mut FileReader<'_>, config: &Config, &(kind, ref label, table): &FoundTable<'_>) {
    let folder = file.folder;
    let passes_over_credentials = file.environment.passes_over_credentials();
    let text = |key: &str| text_of(table, key);
    let has_key = keys_of_secret("key").iter().any(|key| text(key).is_some());
    let mut warn = |key: &str, reason: Option<Reason>| {
        if let (Some(reason), Some(value)) = (reason, table.get(key)) {
            file.add_at(value.span(), &dotted(label, key), reason);
        }
    };
    for ((_, key), class) in CLASSES.iter().filter(|((table, _), _)| *table == kind) {
        let Some(value) = text(key) else { continue };
        if matches!(class, Class::Folder | Class::PublicFile | Class::SecretFile) {
            warn(key, unexpanded(value));
        }
        match class {
            Class::Folder => warn(key, not_a_folder(value, folder)),
            // A private key may be in another file than the certificate.
            Class::SecretFile if *key == "certificate_file" && has_key => {}
            Class::SecretFile => warn(key, readable_by_all(value, folder)),
            Class::Credential if kind != "source.hook" && passes_over_credentials => {
                warn(key, Some(unchecked_credential(value)));
            }
            Class::PublicUrl => {
                let url = parse_url(value).ok();
                warn(key, url.as_ref().and_then(placeholder));
                let refused = url.filter(|_| !config.http.allow_private_addresses);
                warn(key, refused.and_then(|url| private_host(kind, &url)));
            }
            _ => {}
        }
    }
    match kind {
        "source" => {
            warn("url", credentials_in_the_clear(table));
            warn("sets", credentials_of_sets_in_the_clear(table));
            warn("hub", secret_in_the_clear(table));
        }
        "source.auth" if has_secret(table) => {
            warn("origins", sent_in_the_clear(urls_of(table, "origins")));
        }
        "status" if text("token_file").is_none() => {
            let listen = text("listen").and_then(|text| parse_address(text).ok());
            let exposed = listen.filter(|it| !it.ip().is_loopback());
            warn("listen", exposed.map(exposed_status));
        }
        "http" => {
            let proxy = text("proxy").and_then(|it| parse_proxy(it).ok());
            warn("proxy", proxy.as_ref().and_then(password_of_proxy));
        }
        _ => {}
    }
    for (_, key, usual, effect) in DURATIONS.into_iter().filter(|(table, ..)| *table == kind) {
        let usual = Duration::from_millis(usual);
        let short = text(key).filter(|it| parse_duration(it).is_ok_and(|it| it < usual));
        warn(
            key,
            short.map(|text| reason!("very-short": "{text:?} is very short: {effect}")),
        );
    }
}

/// The warning of a path in which a shell would replace something.
fn unexpanded(path: &str) -> Option<Reason> {
    let is_variable = |(at, _): (usize, &str)| {
        let after = path[at + 1..].chars().next();
        after.is_some_and(|after| after.is_ascii_alphabetic() || matches!(after, '_' | '{' | '('))
    };
    let is_home = path == "~" || path.starts_with("~/");
    let is_unexpanded = is_home || path.match_indices('$').any(is_variable);
    doubt!(is_unexpanded, "not-replaced": "{path:?} is taken as it is: ~ and $VARIABLES are not replaced")
}

/// The warning of a folder where something else is, or that something else is in the way of.
fn not_a_folder(path: &str, folder: &Path) -> Option<Reason> {
    let path = parse_path(path, folder).ok()?;
    let existing = path.ancestors().find(|path| path.exists())?;
    let shown = existing.display();
    doubt!(!existing.is_dir(), "not-a-folder": "{shown} is not a folder, and must be one")
}

/// The warning of a secret that every user can read.
fn readable_by_all(path: &str, folder: &Path) -> Option<Reason> {
    let path = parse_path(path, folder).ok()?;
    let mode = path.metadata().ok()?.permissions().mode() & 0o777;
    let who = format!("{} can be read by every user", path.display());
    doubt!(mode & 0o004 != 0, "secret-readable": "{who} (mode {mode:03o}): make it readable by the daemon's user only")
}

/// The warning of a status that other machines can read.
fn exposed_status(at: SocketAddr) -> Reason {
    reason!("status-exposed":
        "other machines can reach {at}, and whoever does can read the status and approve deletions: set `token_file`, or listen on \
         a loopback address")
}

/// The warning of a Source that gets credentials over http.
fn credentials_in_the_clear(source: &DeTable<'_>) -> Option<Reason> {
    let url = parse_url(text_of(source, "url")?).ok()?;
    let has_any = auth_of(source).is_some_and(has_secret) || has_userinfo(&url);
    doubt!(has_any && is_in_the_clear(&url), "unencrypted": "the credentials of the Source are sent unencrypted: use https")
}

/// The warning of sets of a Source that get credentials over http: their own, or those of the Source if its URL is http as well.
fn credentials_of_sets_in_the_clear(source: &DeTable<'_>) -> Option<Reason> {
    let url = parse_url(text_of(source, "url")?).ok()?;
    let has_auth = url.scheme() == "http" && auth_of(source).is_some_and(has_secret);
    let sets = urls_of(source, "sets").filter(|set| has_auth || has_userinfo(set));
    sent_in_the_clear(sets)
}

/// The warning of the first of these URLs that is http.
fn sent_in_the_clear(mut urls: impl Iterator<Item = Url>) -> Option<Reason> {
    let origin = urls.find(is_in_the_clear)?.origin().ascii_serialization();
    Some(
        reason!("unencrypted": "the credentials of the Source are sent to {origin} unencrypted: use https"),
    )
}

fn auth_of<'t>(source: &'t DeTable<'_>) -> Option<&'t DeTable<'t>> {
    source.get("auth")?.get_ref().as_table()
}

/// Whether `[source.auth]` has any secret.
fn has_secret(auth: &DeTable<'_>) -> bool {
    let mut keys = auth.keys().map(|key| key.get_ref().as_ref());
    keys.any(|key| key != "origins" && text_of(auth, key).is_some())
}

/// The warning of a hub that gets the secret of a subscription, or a password, over http.
fn secret_in_the_clear(source: &DeTable<'_>) -> Option<Reason> {
    let hub = parse_url(text_of(source, "hub")?).ok()?;
    if text_of(source, "signatures") == Some("off") {
        return sent_in_the_clear(Some(hub).into_iter().filter(has_userinfo));
    }
    doubt!(is_in_the_clear(&hub), "unencrypted":
        "the secret of the subscription is sent to the hub unencrypted: whoever reads it can sign notifications; use https")
}

/// The warning of a credential that this process does not have.
fn unchecked_credential(name: &str) -> Reason {
    reason!("credential-not-checked":
        "the contents of the credential {name:?} are not checked: systemd gives it to the daemon only (LoadCredential=)")
}

/// The warning of a URL whose host only a private network has, while private addresses may not be contacted.
fn private_host(table: &str, url: &Url) -> Option<Reason> {
    let (host, is_name) = (url.host_str()?, url.domain().is_some());
    let is_private = match url.host()? {
        Host::Domain(name) => is_private_name(name),
        Host::Ipv4(it) => it.is_loopback() || it.is_private() || it.is_link_local(),
        Host::Ipv6(it) => it.is_loopback() || it.is_unique_local() || it.is_unicast_link_local(),
    };
    let kind = if is_name { "a name" } else { "an address" };
    let no_requests = "resyncd sends no requests to it (forbidden-address)";
    let what = match table {
        "callback" => "hubs outside this network can't reach it".to_owned(),
        _ if is_name => format!("{no_requests} unless the name has a public address"),
        _ => no_requests.to_owned(),
    };
    doubt!(is_private, "private-name":
        "{host} is {kind} of a private network: {what}; if this is intended, set `allow_private_addresses` of [http] to true")
}

/// The warning of a URL of documentation.
fn placeholder(url: &Url) -> Option<Reason> {
    let host = url.domain()?.trim_end_matches('.');
    let mut domains = PLACEHOLDERS.iter();
    let is_example = domains.any(|domain| is_at_or_below(host, domain));
    doubt!(is_example, "placeholder": "{host} is a domain of examples: set the real one")
}
