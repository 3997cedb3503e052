//! Reads the `[[source]]` tables of the configuration file.

use std::path::{Path, PathBuf};

use resourcesync::uri::parse_uri;
use resyncd_core::{HubUri, LinkRules, MediaRange, Selection, hide_userinfo};
use resyncd_fetch::PaceLimits;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use url::Url;

use super::{Baseline, CallbackProtocols, Filter, Signatures, Source};
use crate::config::auth::read_auth;
use crate::config::environment::Environment;
use crate::config::fault::{FaultCollector, FaultKind};
use crate::config::hook::read_hooks;
use crate::config::table_reader::{Located, TableReader, table_of, wrong_type};
use crate::config::value::{
    parse_bandwidth, parse_duration, parse_duration_or_never, parse_host, parse_lease, parse_name,
    parse_nonzero_duration, parse_share, parse_url,
};

/// The Sources of a file, as far as they are valid.
#[derive(Default)]
pub(super) struct Sources {
    /// Valid only if no fault was found.
    pub(super) sources: Vec<Source>,
    pub(super) names: Vec<Located<String>>,
    pub(super) mirrors: Vec<Located<PathBuf>>,
}

/// The prefix of a Source's keys in faults: by name, or else by position from 1.
fn source_label(index: usize, table: &DeTable<'_>) -> String {
    let name = table.get("name").and_then(|name| name.get_ref().as_str());
    match name {
        Some(name) if !name.is_empty() => format!("source[{name}]"),
        _ => format!("source[#{}]", index + 1),
    }
}

/// Reads all Sources.
pub(super) fn read_sources<'t>(
    faults: &mut FaultCollector<'_>,
    value: Option<&'t Spanned<DeValue<'t>>>,
    folder: &Path,
    environment: &Environment,
) -> Sources {
    const EXPECTED: &str = "[[source]]";
    let mut read = Sources::default();
    let Some(value) = value else {
        faults.add(None, "source", &FaultKind::NoSource);
        return read;
    };
    let line = faults.line(value.span());
    match value.get_ref() {
        DeValue::Array(array) if array.is_empty() => {
            faults.add(Some(line), "source", &FaultKind::NoSource);
        }
        DeValue::Array(array) => {
            for (index, item) in array.iter().enumerate() {
                let line = faults.line(item.span());
                let label = format!("source[#{}]", index + 1);
                if let Some(table) = table_of(faults, &label, EXPECTED, item) {
                    let label = source_label(index, table);
                    let mut section = TableReader::new(faults, "source", label, table, Some(line));
                    read_source(&mut section, folder, environment, &mut read);
                }
            }
        }
        other => {
            faults.add(Some(line), "source", &wrong_type(EXPECTED, other));
            // `[source]` instead of `[[source]]`: its keys are still checked.
            if let DeValue::Table(table) = other {
                let label = source_label(0, table);
                let mut section = TableReader::new(faults, "source", label, table, Some(line));
                read_source(&mut section, folder, environment, &mut read);
            }
        }
    }
    read
}

fn read_source(
    section: &mut TableReader<'_, '_>,
    folder: &Path,
    environment: &Environment,
    read: &mut Sources,
) {
    let name = section.required("name", "a name", parse_name);
    let url = section.required("url", "a URL", parse_url);
    let mirror = section.required_path("mirror", folder);
    if let Some(name) = &name {
        read.names.push(section.located("name", name.clone()));
    }
    if let Some(mirror) = &mirror {
        read.mirrors.push(section.located("mirror", mirror.clone()));
    }
    let versions = section.optional_path("versions", folder);
    // It is one: nothing else may be in it, and it is in no other.
    if let Some(versions) = &versions {
        read.mirrors
            .push(section.located("versions", versions.clone()));
    }
    // Missing keys are faults already; the others are still checked.
    let url = url.unwrap_or_else(placeholder_url);
    let mut source = Source::new(name.unwrap_or_default(), url, mirror.unwrap_or_default());

    let sets = section.list("sets", parse_url);
    assign(&mut source.notifications, section.flag("notifications"));
    let pace = section.text("poll_interval", DURATION, parse_nonzero_duration);
    assign(&mut source.poll_interval, pace);
    let window = section.text("reorder_window", DURATION, parse_duration);
    assign(&mut source.reorder_window, window);
    let requests = section.decimal("requests_per_second", 0.0..=1000.0);
    let connections = section.number("connections_per_host", 0..=256);
    let bandwidth = section.text("bandwidth", "a size such as \"2MiB\"", parse_bandwidth);
    source.pace = PaceLimits {
        requests_per_second: requests.filter(|requests| *requests > 0.0),
        connections_per_host: connections.filter(|connections| *connections > 0),
        bandwidth: bandwidth.filter(|bytes| *bytes > 0),
    };
    assign(&mut source.robots, section.flag("robots"));
    let lease = section.text("lease", DURATION, parse_lease);
    assign(&mut source.lease, lease);
    let baseline = section.text("baseline", BASELINES, parse_baseline);
    assign(&mut source.baseline, baseline);
    let allows = section.flag("allow_type_mismatch");
    assign(&mut source.allow_type_mismatch, allows);
    assign(&mut source.patches, section.flag("patches"));
    source.versions = versions;
    let undated = section.number("undated_per_day", 0..=1_000_000_000);
    assign(
        &mut source.undated_per_day,
        undated.map(|undated| undated as u64),
    );
    let stale = section.text("stale_after", DURATION, parse_duration_or_never);
    source.stale_after = stale.filter(|after| !after.is_zero());
    assign(&mut source.delete, section.flag("delete"));
    let share = section.text("max_delete", "a percentage such as \"10%\"", parse_share);
    assign(&mut source.max_delete, share);
    let signatures = section.text("signatures", SIGNATURES, parse_signatures);
    assign(&mut source.signatures, signatures);
    let hub = section.text("hub", "a URL", parse_hub).flatten();
    source.hub = hub.map(|url| hub_at(source.credentials.extract(url)));
    source.trust_hub = section.flag("trust_hub");
    let protocols = section.list("callback_protocols", read_uri);
    let protocols = protocols.map(CallbackProtocols::new);
    assign(&mut source.callback_protocols, protocols);
    let sets = sets.unwrap_or_default().into_iter();
    source.sets = sets.map(|set| source.credentials.extract(set)).collect();
    assign(&mut source.hosts, section.list("hosts", parse_host));
    assign(&mut source.filter, read_filter(section));
    let auth = section.table("auth", "source.auth", "[source.auth]");
    let auth = auth.and_then(|mut section| read_auth(&mut section, folder, environment, &source));
    if let Some(auth) = auth {
        source.credentials.set_auth(auth);
    }
    source.hooks = read_hooks(section, folder, environment);
    read.sources.push(source);
}

fn read_filter(section: &mut TableReader<'_, '_>) -> Option<Filter> {
    let mut patterns = |key: &str| section.list(key, parse_glob).unwrap_or_default();
    let (include, exclude) = (patterns("include"), patterns("exclude"));
    let types = section.list("types", parse_media_range);
    let collections = section.list("collections", read_uri);
    let profiles = section.list("profiles", read_uri);
    let selection = Selection::new(
        types.unwrap_or_default(),
        collections.unwrap_or_default(),
        profiles.unwrap_or_default(),
    );
    let representations = section.list("representations", parse_media_range);
    let metadata = section.text("metadata", METADATA, parse_metadata);
    let linked = LinkRules::new(
        metadata.unwrap_or_default(),
        representations.unwrap_or_default(),
    );
    match Filter::selecting(&include, &exclude, selection) {
        Ok(filter) => Some(filter.following(linked)),
        // Each pattern is valid, but together they exceed a limit.
        Err(error) => {
            let key = if include.is_empty() {
                "exclude"
            } else {
                "include"
            };
            section.reject(key, &FaultKind::BadGlob(error.to_string()));
            None
        }
    }
}

/// Describes a duration in faults.
pub(super) const DURATION: &str = "a duration such as \"15m\"";
const BASELINES: &str = "\"auto\", \"list\" or \"dump\"";
const METADATA: &str = "\"listed\" or \"follow\"";
const SIGNATURES: &str = "\"required\" or \"off\"";

/// Replaces a default by the configured value, if there is one.
pub(super) fn assign<T>(default: &mut T, configured: Option<T>) {
    if let Some(value) = configured {
        *default = value;
    }
}

fn parse_baseline(text: &str) -> Result<Baseline, FaultKind> {
    match text {
        "auto" => Ok(Baseline::Auto),
        "list" => Ok(Baseline::List),
        "dump" => Ok(Baseline::Dump),
        _ => Err(FaultKind::BadChoice {
            found: text.to_owned(),
            choices: BASELINES,
        }),
    }
}

/// Whether metadata that no list names is wanted.
fn parse_metadata(text: &str) -> Result<bool, FaultKind> {
    match text {
        "listed" => Ok(false),
        "follow" => Ok(true),
        _ => Err(FaultKind::BadChoice {
            found: text.to_owned(),
            choices: METADATA,
        }),
    }
}

fn parse_signatures(text: &str) -> Result<Signatures, FaultKind> {
    match text {
        "required" => Ok(Signatures::Required),
        "off" => Ok(Signatures::Off),
        _ => Err(FaultKind::BadChoice {
            found: text.to_owned(),
            choices: SIGNATURES,
        }),
    }
}

fn parse_hub(text: &str) -> Result<Option<Url>, FaultKind> {
    if text.is_empty() {
        return Ok(None);
    }
    parse_url(text).map(Some)
}

fn hub_at(url: Url) -> HubUri {
    HubUri::try_from(url).expect("parse_url accepts http and https only")
}

fn parse_glob(text: &str) -> Result<String, FaultKind> {
    match Filter::matching(&[text], &[]) {
        Ok(_) if !text.is_empty() => Ok(text.to_owned()),
        Ok(_) => Err(FaultKind::BadGlob(
            "an empty pattern matches nothing".to_owned(),
        )),
        Err(error) => Err(FaultKind::BadGlob(error.to_string())),
    }
}

fn parse_media_range(text: &str) -> Result<MediaRange, FaultKind> {
    MediaRange::parse(text).ok_or_else(|| FaultKind::BadMediaType(text.to_owned()))
}

/// A URI of any scheme: it is compared, and not requested.
fn read_uri(text: &str) -> Result<String, FaultKind> {
    let parsed = parse_uri(text.trim());
    parsed.map(String::from).map_err(|error| {
        FaultKind::BadUrl(format!("{:?} is not a URI: {error}", hide_userinfo(text)))
    })
}

fn placeholder_url() -> Url {
    parse_uri("http://localhost/").expect("a constant URL can be parsed")
}
