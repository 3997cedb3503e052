//! Values that are valid and can hardly be meant, such as a poll each millisecond. They change nothing: `check` and the start of
//! the daemon warn of them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use resourcesync::uri::has_userinfo;
use resyncd_core::hide_userinfo;
use resyncd_fetch::{is_in_the_clear, is_private_name};
use toml::de::DeTable;
use url::{Host, Url};

use super::Config;
use crate::config::environment::Environment;
use crate::config::fault::{ConfigFaults, FaultKind};
use crate::config::file::{CLASSES, FileReader, read_text};
use crate::config::proxies::{parse_proxy, proxies_of_environment, unusable_exceptions};
use crate::config::table_reader::{Class, dotted, parse_path};
use crate::config::value::{parse_address, parse_duration, parse_url};

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
    pub fn warnings(path: &Path) -> ConfigFaults {
        Self::warnings_in(path, &Environment::of_process().checking())
    }

    /// As [`warnings`](Self::warnings), in an environment.
    #[must_use]
    pub fn warnings_in(path: &Path, environment: &Environment) -> ConfigFaults {
        let warnings = read_text(path).and_then(|text| {
            super::file::examine(&text, path, environment, |file, _, _| {
                file.faults();
                warn(file);
                file.faults()
            })
        });
        warnings.unwrap_or_default()
    }
}

/// Adds the warnings of a file that was read.
fn warn(file: &mut FileReader<'_>) {
    let tables = std::mem::take(&mut file.tables);
    let http = tables.iter().find(|(kind, ..)| *kind == "http");
    let http = http.map(|(.., table)| *table);
    let allows_private = http.is_some_and(|it| flag(it, "allow_private_addresses"));
    let proxy = http.and_then(|it| text_of(it, "proxy"));
    if proxy.is_none_or(str::is_empty) {
        for (key, kind) in warnings_of_environment(file.environment) {
            file.add(None, key, &kind);
        }
    }
    for (kind, label, table) in &tables {
        examine(file, kind, label, table, allows_private);
    }
}

/// The text that a key has.
fn text_of<'t>(table: &'t DeTable<'_>, key: &str) -> Option<&'t str> {
    table.get(key)?.get_ref().as_str()
}

/// The texts of a list.
fn texts_of<'t>(table: &'t DeTable<'_>, key: &str) -> impl Iterator<Item = &'t str> {
    let list = table.get(key).and_then(|it| it.get_ref().as_array());
    list.into_iter()
        .flatten()
        .filter_map(|it| it.get_ref().as_str())
}

fn flag(table: &DeTable<'_>, key: &str) -> bool {
    table.get(key).and_then(|it| it.get_ref().as_bool()) == Some(true)
}

/// The warnings of the proxies of the environment: the keys that take their place, and the reasons.
fn warnings_of_environment(environment: &Environment) -> Vec<(&'static str, FaultKind)> {
    let Ok(proxies) = proxies_of_environment(environment, Vec::new()) else {
        // It is a fault.
        return Vec::new();
    };
    let mut used: Vec<&Url> = Vec::new();
    for scheme in ["http", "https"] {
        used.extend(proxies.of_scheme(scheme));
    }
    if used.is_empty() {
        return Vec::new();
    }
    used.dedup();
    let exposed = used.into_iter().filter_map(password_of_proxy);
    let exposed = exposed.map(|kind| ("http.proxy", kind));
    let ignored = unusable_exceptions(environment).into_iter().map(|text| {
        let text = hide_userinfo(&text);
        let text = format!(
            "{text:?} in NO_PROXY of the environment is neither a host nor a network, such as 10.0.0.0/8: it is ignored, and what \
             it stands for is requested through the proxy"
        );
        ("http.no_proxy", FaultKind::IgnoredException(text))
    });
    exposed.chain(ignored).collect()
}

/// The warning of a proxy that gets a password over the network. It speaks plain HTTP.
fn password_of_proxy(proxy: &Url) -> Option<FaultKind> {
    (has_userinfo(proxy) && is_in_the_clear(proxy)).then(|| {
        let host = proxy.host_str().unwrap_or_default();
        FaultKind::Unencrypted(format!(
            "the user name and password for the proxy {host} are sent to it unencrypted: use one on this machine, or one that needs none"
        ))
    })
}

/// Examines one table. `allows_private`: whether private addresses may be contacted.
fn examine(
    warnings: &mut FileReader<'_>,
    kind: &str,
    label: &str,
    table: &DeTable<'_>,
    allows_private: bool,
) {
    let folder = warnings.folder;
    let passes_over_credentials = warnings.environment.passes_over_credentials();
    let text = |key: &str| text_of(table, key);
    let mut warning = |key: &str, kind: Option<FaultKind>| {
        if let (Some(kind), Some(value)) = (kind, table.get(key)) {
            warnings.add_at(value.span(), &dotted(label, key), &kind);
        }
    };
    for ((_, key), class) in CLASSES.iter().filter(|((table, _), _)| *table == kind) {
        let Some(value) = text(key).filter(|value| !value.is_empty()) else {
            continue;
        };
        if matches!(class, Class::Folder | Class::PublicFile | Class::SecretFile) {
            warning(key, unexpanded(value));
        }
        match class {
            Class::Folder => warning(key, not_a_folder(value, folder)),
            Class::SecretFile => {
                // The key may be in another file.
                let has_key = ["key", "key_file", "key_credential"]
                    .iter()
                    .any(|key| text(key).is_some_and(|text| !text.is_empty()));
                if *key != "certificate_file" || !has_key {
                    warning(key, readable_by_all(value, folder));
                }
            }
            Class::Credential if kind != "source.hook" && passes_over_credentials => {
                warning(key, Some(unchecked_credential(value)));
            }
            Class::PublicUrl => {
                let url = parse_url(value).ok();
                warning(key, url.as_ref().and_then(placeholder));
                let refused = url.filter(|_| !allows_private);
                warning(key, refused.and_then(|url| private_host(kind, &url)));
            }
            _ => {}
        }
    }
    match kind {
        "source" => {
            warning("url", credentials_in_the_clear(table));
            warning("sets", credentials_of_sets_in_the_clear(table));
            warning("hub", secret_in_the_clear(table));
        }
        "source.auth" if has_secret(table) => warning("origins", origins_in_the_clear(table)),
        "status" => {
            let has_token = text("token_file").is_some_and(|path| !path.is_empty());
            let listen = text("listen").and_then(|text| parse_address(text).ok());
            let exposed = listen.filter(|it| !has_token && !it.ip().is_loopback());
            warning("listen", exposed.map(FaultKind::ExposedStatus));
        }
        "http" => {
            let proxy = text("proxy").and_then(|it| parse_proxy(it).ok());
            warning("proxy", proxy.as_ref().and_then(password_of_proxy));
        }
        _ => {}
    }
    for (_, key, usual, effect) in DURATIONS.into_iter().filter(|(table, ..)| *table == kind) {
        let short = text(key).filter(|it| parse_duration(it).is_ok_and(|it| it < usual));
        warning(
            key,
            short.map(|text| FaultKind::VeryShort(format!("{text:?} is very short: {effect}"))),
        );
    }
}

/// The warning of a path in which a shell would replace something.
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

/// The warning of a folder where something else is, or that something else is in the way of.
fn not_a_folder(path: &str, folder: &Path) -> Option<FaultKind> {
    let path = parse_path(path, folder).ok()?;
    let existing = path.ancestors().find(|path| path.exists())?;
    (!existing.is_dir()).then(|| {
        let shown = existing.display();
        FaultKind::NotAFolder(format!("{shown} is not a folder, and must be one"))
    })
}

/// The warning of a secret that every user can read.
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

/// The warning of a Source that gets credentials over http.
fn credentials_in_the_clear(source: &DeTable<'_>) -> Option<FaultKind> {
    let url = parse_url(text_of(source, "url")?).ok()?;
    let has_any = auth_of(source).is_some_and(has_secret) || has_userinfo(&url);
    (has_any && is_in_the_clear(&url)).then(|| {
        let text = "the credentials of the Source are sent unencrypted: use https";
        FaultKind::Unencrypted(text.to_owned())
    })
}

/// The warning of sets of a Source that get credentials over http: their own, or those of the Source if its URL is http as well.
fn credentials_of_sets_in_the_clear(source: &DeTable<'_>) -> Option<FaultKind> {
    let url = parse_url(text_of(source, "url")?).ok()?;
    let has_auth = url.scheme() == "http" && auth_of(source).is_some_and(has_secret);
    let sets = texts_of(source, "sets").filter_map(|set| parse_url(set).ok());
    let sets = sets.filter(|set| has_auth || has_userinfo(set));
    sent_in_the_clear(sets)
}

/// The warning of origins that get the credentials of a Source over http.
fn origins_in_the_clear(auth: &DeTable<'_>) -> Option<FaultKind> {
    sent_in_the_clear(texts_of(auth, "origins").filter_map(|origin| parse_url(origin).ok()))
}

/// The warning of the first of these URLs that is http.
fn sent_in_the_clear(mut urls: impl Iterator<Item = Url>) -> Option<FaultKind> {
    let url = urls.find(is_in_the_clear)?;
    let origin = url.origin().ascii_serialization();
    let text = format!("the credentials of the Source are sent to {origin} unencrypted: use https");
    Some(FaultKind::Unencrypted(text))
}

fn auth_of<'t>(source: &'t DeTable<'_>) -> Option<&'t DeTable<'t>> {
    source.get("auth")?.get_ref().as_table()
}

/// Whether `[source.auth]` has any secret.
fn has_secret(auth: &DeTable<'_>) -> bool {
    auth.iter().any(|(key, value)| {
        let is_secret = key.get_ref() != "origins";
        is_secret && value.get_ref().as_str().is_some_and(|it| !it.is_empty())
    })
}

/// The warning of a hub that gets the secret of a subscription, or a password, over http.
fn secret_in_the_clear(source: &DeTable<'_>) -> Option<FaultKind> {
    let is_used = text_of(source, "signatures") != Some("off");
    let hub = parse_url(text_of(source, "hub")?).ok()?;
    if !is_used && has_userinfo(&hub) {
        return sent_in_the_clear(std::iter::once(hub));
    }
    (is_used && is_in_the_clear(&hub)).then(|| {
        FaultKind::Unencrypted(
            "the secret of the subscription is sent to the hub unencrypted: whoever reads it can sign notifications; use https"
                .to_owned(),
        )
    })
}

/// The warning of a credential that this process does not have.
fn unchecked_credential(name: &str) -> FaultKind {
    FaultKind::UncheckedCredential(format!(
        "the contents of the credential {name:?} are not checked: systemd gives it to the daemon only (LoadCredential=)"
    ))
}

/// The warning of a URL whose host only a private network has, while private addresses may not be contacted.
fn private_host(table: &str, url: &Url) -> Option<FaultKind> {
    let (kind, is_private) = match url.host()? {
        Host::Domain(name) => ("a name", is_private_name(name)),
        Host::Ipv4(it) => (
            "an address",
            it.is_loopback() || it.is_private() || it.is_link_local(),
        ),
        Host::Ipv6(it) => (
            "an address",
            it.is_loopback() || it.is_unique_local() || it.is_unicast_link_local(),
        ),
    };
    let host = url.host_str()?;
    let what = match table {
        "callback" => "hubs outside this network can't reach it",
        _ if kind == "a name" => {
            "resyncd sends no requests to it (forbidden-address) unless the name has a public address"
        }
        _ => "resyncd sends no requests to it (forbidden-address)",
    };
    is_private.then(|| {
        FaultKind::PrivateName(format!(
            "{host} is {kind} of a private network: {what}; if this is intended, set `allow_private_addresses` of [http] to true"
        ))
    })
}

/// The warning of a URL of documentation.
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
