//! Reads the `[[source]]` tables of the configuration file.

use std::path::PathBuf;

use resourcesync::uri::parse_uri;
use resyncd_core::{HubUri, LinkRules, MediaRange, Selection, hide_userinfo};
use resyncd_fetch::{Credentials, PaceLimits};
use url::Url;

use super::{Baseline, CallbackProtocols, Filter, Signatures, Source};
use crate::config::auth::read_auth;
use crate::config::fault::FaultKind;
use crate::config::hook::read_hooks;
use crate::config::table_reader::{Class, Located, TableReader};
use crate::config::value::{
    parse_bandwidth, parse_duration, parse_host, parse_lease, parse_nonzero_duration, parse_url,
};

/// The Sources of a file, as far as they are valid.
#[derive(Default)]
pub(super) struct Sources {
    /// Valid only if no fault was found.
    pub(super) sources: Vec<Source>,
    pub(super) names: Vec<Located<String>>,
    pub(super) mirrors: Vec<Located<PathBuf>>,
}

/// Reads all Sources.
pub(super) fn read_sources(document: &mut TableReader<'_, '_>) -> Sources {
    let mut read = Sources::default();
    let number = document.tables("source", "source", |_, mut section| {
        read_source(&mut section, &mut read);
    });
    if number == 0 {
        document.reject_table("source", &FaultKind::NoSource);
    }
    read
}

fn read_source(section: &mut TableReader<'_, '_>, read: &mut Sources) {
    let mut source = parse_source(section);
    if let Some(auth) = read_auth(&mut section.table("auth"), &source) {
        source.credentials.set_auth(auth);
    }
    source.hooks = read_hooks(section);
    // The names and folders of several Sources are compared. That of versions is one of a mirror: nothing else may be in it, and it is
    // in no other.
    if section.is_set("name") {
        read.names
            .push(section.located("name", source.name.clone()));
    }
    if section.is_set("mirror") {
        read.mirrors
            .push(section.located("mirror", source.mirror.clone()));
    }
    if let Some(versions) = &source.versions {
        read.mirrors
            .push(section.located("versions", versions.clone()));
    }
    read.sources.push(source);
}

/// Reads the keys of a Source, without its tables. What is required and missing is a fault; the other keys are
/// still checked.
pub(super) fn parse_source(section: &mut TableReader<'_, '_>) -> Source {
    for key in ["name", "url", "mirror"] {
        section.require(key);
    }
    let mut credentials = Credentials::default();
    let url = section.optional_text("url", Class::PublicUrl, "a URL", parse_url);
    let url = url.unwrap_or_else(placeholder_url);
    let hub = section.text("hub", Class::PublicUrl, "a URL", parse_hub);
    let sets = section.list("sets", parse_url);
    Source {
        name: section.label("name").unwrap_or_default(),
        url: credentials.extract(url),
        hub: hub.map(|url| hub_at(credentials.extract(url))),
        sets: sets
            .into_iter()
            .map(|set| credentials.extract(set))
            .collect(),
        credentials,
        mirror: section.folder("mirror"),
        notifications: section.flag("notifications"),
        poll_interval: section.duration("poll_interval", parse_nonzero_duration),
        reorder_window: section.duration("reorder_window", parse_duration),
        pace: PaceLimits {
            requests_per_second: Some(section.decimal("requests_per_second", 0.0..=1000.0))
                .filter(|requests| *requests > 0.0),
            connections_per_host: section.number_or_none("connections_per_host", 0..=256),
            bandwidth: section.size_or_none("bandwidth", parse_bandwidth),
        },
        robots: section.flag("robots"),
        lease: section.duration("lease", parse_lease),
        baseline: section.choice("baseline", &BASELINES),
        allow_type_mismatch: section.flag("allow_type_mismatch"),
        patches: section.flag("patches"),
        versions: section.content("versions", Class::Folder, |path| Ok(Some(path.into()))),
        undated_per_day: section.number("undated_per_day", 0..=1_000_000_000),
        stale_after: section.duration_or_never("stale_after"),
        delete: section.flag("delete"),
        max_delete: section.share("max_delete"),
        signatures: section.choice("signatures", &SIGNATURES),
        trust_hub: section.optional_flag("trust_hub"),
        callback_protocols: CallbackProtocols::new(section.list("callback_protocols", read_uri)),
        hosts: section.list("hosts", parse_host),
        filter: read_filter(section),
        hooks: Vec::new(),
    }
}

fn read_filter(section: &mut TableReader<'_, '_>) -> Filter {
    let include = section.list("include", parse_glob);
    let exclude = section.list("exclude", parse_glob);
    let selection = Selection::new(
        section.list("types", parse_media_range),
        section.list("collections", read_uri),
        section.list("profiles", read_uri),
    );
    // Whether metadata that no list names is wanted.
    let metadata = section.choice("metadata", &[("listed", false), ("follow", true)]);
    let representations = section.list("representations", parse_media_range);
    match Filter::selecting(&include, &exclude, selection) {
        Ok(filter) => filter.following(LinkRules::new(metadata, representations)),
        // Each pattern is valid, but together they exceed a limit.
        Err(error) => {
            let key = if include.is_empty() {
                "exclude"
            } else {
                "include"
            };
            section.reject(key, &FaultKind::BadGlob(error.to_string()));
            Filter::everything()
        }
    }
}

const BASELINES: [(&str, Baseline); 3] = [
    ("auto", Baseline::Auto),
    ("list", Baseline::List),
    ("dump", Baseline::Dump),
];
const SIGNATURES: [(&str, Signatures); 2] =
    [("required", Signatures::Required), ("off", Signatures::Off)];

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
