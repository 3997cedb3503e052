//! Reads the `[[source]]` tables of the configuration file.

use std::path::{Path, PathBuf};

use resourcesync::uri::parse_uri;
use resyncd_core::{HubUri, LinkRules, MediaRange, Selection, hide_userinfo};
use resyncd_fetch::{Credentials, PaceLimits};
use url::Url;

use super::{
    Baseline, CallbackProtocols, DayHours, Filter, ObjectSettings, PublishConfig, Signatures,
    Source,
};
use crate::config::auth::read_auth;
use crate::config::fault::Parsed;
use crate::config::hook::read_hooks;
use crate::config::overlap::{check_folders, check_names};
use crate::config::publish::{FoundFolders, check_private};
use crate::config::table_reader::{Class, Located, TableReader, flag, text};
use crate::config::value::{
    parse_bandwidth, parse_duration, parse_host, parse_lease, parse_nonzero_duration, parse_url,
};

/// Reads all Sources. They are valid only if no fault was found.
pub(super) fn read_sources(
    document: &mut TableReader<'_, '_>,
    state_dir: &Located<PathBuf>,
    objects: &ObjectSettings,
    publish: &PublishConfig,
    published: FoundFolders,
) -> Vec<Source> {
    let FoundFolders {
        mut names,
        paths: mut mirrors,
        folders,
    } = published;
    let mut sources = Vec::new();
    let number = document.tables("source", "source", |_, mut section| {
        let mut source = read_source(&mut section);
        check_private(&mut section, &source, publish);
        names.extend(section.valid("name", &source.name));
        mirrors.extend(section.valid("mirror", &source.mirror.to_path_buf()));
        // The folder of versions is one of a mirror: nothing else may be in it, and it is in no other.
        let versions = source.versions.as_deref().map(Path::to_path_buf);
        mirrors.extend(versions.and_then(|versions| section.valid("versions", &versions)));
        objects.complete(&mut source.mirror, &source.name);
        if let Some(versions) = &mut source.versions {
            objects.complete(versions, &format!("{}-versions", source.name));
        }
        sources.push(source);
    });
    if number == 0 && folders.is_empty() {
        reject!(document, "source", "no-source": "no [[source]] is configured");
    }
    check_names(document.file, &names);
    check_folders(document.file, state_dir, &mirrors);
    sources
}

fn read_source(section: &mut TableReader<'_, '_>) -> Source {
    let mut source = parse_source(section);
    if let Some(auth) = read_auth(&mut section.table("auth"), &source) {
        source.credentials.set_auth(auth);
    }
    source.hooks = read_hooks(section);
    source
}

/// Reads the keys of a Source, without its tables. What is required and missing is a fault; the other keys are
/// still checked.
pub(super) fn parse_source(section: &mut TableReader<'_, '_>) -> Source {
    for key in ["name", "url", "mirror"] {
        if !section.is_present(key) {
            reject!(section, key, "missing-key": "required key is missing");
        }
    }
    let mut credentials = Credentials::default();
    let url = section.optional("url", Class::PublicUrl, text("a URL", parse_url));
    let url = url.unwrap_or_else(placeholder_url);
    let hub = section.value("hub", Class::PublicUrl, text("a URL", parse_hub));
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
        mirror: section.place("mirror"),
        notifications: section.flag("notifications"),
        poll_interval: section.duration("poll_interval", parse_nonzero_duration),
        reorder_window: section.duration("reorder_window", parse_duration),
        pace: PaceLimits {
            requests_per_second: section.decimal_or_none("requests_per_second", 0.0..=1000.0),
            connections_per_host: section.number_or_none("connections_per_host", 0..=256),
            bandwidth: section.size_or_none("bandwidth", parse_bandwidth),
        },
        robots: section.flag("robots"),
        lease: section.duration("lease", parse_lease),
        baseline: section.choice("baseline", &BASELINES),
        hours: section.value(
            "hours",
            Class::Any,
            text("hours of a day such as \"22:00-06:00\"", DayHours::parse),
        ),
        allow_type_mismatch: section.flag("allow_type_mismatch"),
        patches: section.flag("patches"),
        versions: Some(section.place("versions"))
            .filter(|place| !place.to_path_buf().as_os_str().is_empty()),
        undated_per_day: section.number("undated_per_day", 0..=1_000_000_000),
        stale_after: section.duration_or_never("stale_after"),
        audit_every: section.duration_or_never("audit_every"),
        delete: section.flag("delete"),
        max_delete: section.share("max_delete"),
        signatures: section.choice("signatures", &SIGNATURES),
        trust_hub: section.optional("trust_hub", Class::Any, flag),
        callback_protocols: CallbackProtocols::new(section.list("callback_protocols", read_uri)),
        hosts: section.list("hosts", parse_host),
        filter: read_filter(section),
        publish: section.flag("publish"),
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
            reject!(section, key, "bad-glob": "{error}");
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

fn parse_hub(text: &str) -> Parsed<Option<Url>> {
    if text.is_empty() {
        return Ok(None);
    }
    parse_url(text).map(Some)
}

fn hub_at(url: Url) -> HubUri {
    HubUri::try_from(url).expect("parse_url accepts http and https only")
}

fn parse_glob(text: &str) -> Parsed<String> {
    match Filter::matching(&[text], &[]) {
        Ok(_) if !text.is_empty() => Ok(text.to_owned()),
        Ok(_) => Err(reason!("bad-glob": "an empty pattern matches nothing")),
        Err(error) => Err(reason!("bad-glob": "{error}")),
    }
}

fn parse_media_range(text: &str) -> Parsed<MediaRange> {
    let bad = || reason!("bad-media-type": "{text:?} is not a media type, such as \"application/pdf\" or \"text/*\"");
    MediaRange::parse(text).ok_or_else(bad)
}

/// A URI of any scheme: it is compared, and not requested.
fn read_uri(text: &str) -> Parsed<String> {
    let parsed = parse_uri(text.trim());
    let bad = |error| reason!("bad-url": "{:?} is not a URI: {error}", hide_userinfo(text));
    parsed.map(String::from).map_err(bad)
}

fn placeholder_url() -> Url {
    parse_uri("http://localhost/").expect("a constant URL can be parsed")
}
