//! Resources of the sample Source with related ones: at least one of each relation of the core, section 14.
//!
//! | resource | relation | what it leads to |
//! |---|---|---|
//! | `mirrored.txt` | `duplicate` | the same bytes at another URI |
//! | `guide` | `alternate` | `guide.html` and `guide.txt`, its representations; the second one is a resource, too |
//! | `guide.txt` | `canonical` | `guide` |
//! | `catalog.json` | `…/terms/patch` | how each version becomes the next one (JSON Patch) |
//! | `news.txt` | `memento`, `timegate`, `timemap` | its versions (RFC 7089) |
//! | `copied.txt` | `via` | the original that it was copied from |
//!
//! The record of [`SampleOptions::metadata`](super::SampleOptions::metadata) has `describes`, `describedby`, `profile` and `collection`.
//!
//! Invariant: versions and patches do not grow without bound; the oldest are dropped.

use std::collections::VecDeque;

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use resourcesync::{Algorithm, ContentInfo, Digest, Entry, Link, SourceTime};
use serde_json::{Map, Value, json};
use url::Url;

use super::documents::SetUris;
use super::resource::Resource;
use super::served::{Negotiated, Representation, ServedFile};

const MIRRORED: &str = "mirrored.txt";
const GENERIC: &str = "guide";
const SPECIFIC: &str = "guide.txt";
const CATALOG: &str = "catalog.json";
const NEWS: &str = "news.txt";
const COPIED: &str = "copied.txt";

const DUPLICATE: &str = "mirror/mirrored.txt";
const HTML: &str = "representations/guide.html";
const ORIGINAL: &str = "original/copied.txt";
const PATCHES: &str = "patches/";
const VERSIONS: &str = "versions/";
const TIMEGATE: &str = "timegate/";
const TIMEMAP: &str = "timemap/";

const PATCH_RELATION: &str = "http://www.openarchives.org/rs/terms/patch";
const JSON_PATCH: &str = "application/json-patch";
/// How many versions, and how many patches, are retained.
const RETAINED: usize = 50;

/// What belongs to the resources of one set.
#[derive(Debug, Default)]
pub(super) struct Related {
    /// The versions of the news, oldest first.
    versions: VecDeque<Resource>,
    /// The patches of the catalog, oldest first, with their numbers.
    patches: VecDeque<(u64, Bytes)>,
    catalog: Option<Bytes>,
}

/// The resources and their first bytes.
pub(super) fn first_resources() -> impl Iterator<Item = (&'static str, Bytes)> {
    let all = [
        (MIRRORED, "The same at two places.\n"),
        (GENERIC, "<p>How to use it.</p>\n"),
        (SPECIFIC, "How to use it.\n"),
        (CATALOG, "{\"title\":\"Catalog\",\"version\":1}\n"),
        (NEWS, "The first news.\n"),
        (COPIED, "From elsewhere.\n"),
    ];
    all.into_iter()
        .map(|(name, text)| (name, Bytes::from_static(text.as_bytes())))
}

impl Related {
    /// Notes a new version of a resource.
    pub(super) fn note(&mut self, uris: &SetUris, resource: &mut Resource) {
        if resource.uri == uris.resource(GENERIC) {
            resource.media_type = "text/html";
        }
        if resource.uri == uris.resource(NEWS) {
            push(&mut self.versions, resource.clone());
        }
        if resource.uri == uris.resource(CATALOG) {
            let before = self.catalog.replace(resource.bytes.clone());
            let patch = before.and_then(|before| json_patch(&before, &resource.bytes));
            let number = self.patches.back().map_or(1, |(number, _)| number + 1);
            // A version that no patch leads to has one that is empty: numbers are those of changes.
            push(&mut self.patches, (number, patch.unwrap_or_default()));
        }
    }

    /// Adds the links of a resource to its entry. `changes`: the entry states a change.
    pub(super) fn relate(&self, uris: &SetUris, entry: &mut Entry, changes: bool) {
        let is = |name: &str| entry.loc == uris.resource(name);
        let to = |rel: &str, file: &str| Link::new(rel, uris.file(file));
        let content = entry.md.content.clone();
        let mut links = Vec::new();
        if is(MIRRORED) {
            links.push(Link {
                pri: Some(1),
                content,
                ..to("duplicate", DUPLICATE)
            });
        } else if is(GENERIC) {
            let html = Link {
                content,
                ..to("alternate", HTML)
            };
            let mut text = Link::new("alternate", uris.resource(SPECIFIC));
            text.content.media_type = Some("text/plain".to_owned());
            links.extend([html, text]);
        } else if is(SPECIFIC) {
            links.push(Link::new("canonical", uris.resource(GENERIC)));
        } else if is(CATALOG) && changes {
            links.extend(self.patch_link(uris));
        } else if is(NEWS) {
            if let Some(version) = self.versions.back() {
                links.push(Link {
                    content,
                    modified: Some(version.lastmod),
                    ..Link::new("memento", version_uri(uris, version))
                });
            }
            links.push(Link::new("timegate", of_news(uris, TIMEGATE)));
            let mut map = Link::new("timemap", of_news(uris, TIMEMAP));
            map.content.media_type = Some("application/link-format".to_owned());
            links.push(map);
        } else if is(COPIED) {
            links.push(Link {
                content,
                modified: entry.lastmod,
                ..to("via", ORIGINAL)
            });
        }
        entry.links.extend(links);
    }

    /// The patch of the last change; `None`: there is none.
    fn patch_link(&self, uris: &SetUris) -> Option<Link> {
        let (number, patch) = self.patches.back()?;
        let content = ContentInfo {
            length: Some(patch.len() as u64),
            media_type: Some(JSON_PATCH.to_owned()),
            hashes: vec![Digest::of(Algorithm::Sha256, patch)],
        };
        let link = Link::new(PATCH_RELATION, uris.file(&format!("{PATCHES}{number}")));
        (!patch.is_empty()).then_some(Link { content, ..link })
    }

    /// What is served at a path of the set that is no resource. `resource` finds the bytes of one by its name.
    pub(super) fn find(
        &self,
        uris: &SetUris,
        file: &str,
        resource: impl Fn(&str) -> Option<Bytes>,
    ) -> Option<Representation> {
        let copy = |name, media_type: &str| {
            let body = resource(name)?;
            let media_type = media_type.to_owned();
            Some(ServedFile { media_type, body }.into())
        };
        match file {
            DUPLICATE => return copy(MIRRORED, "text/plain"),
            HTML => return copy(GENERIC, "text/html"),
            ORIGINAL => return copy(COPIED, "text/plain"),
            _ => {}
        }
        if let Some(number) = file.strip_prefix(PATCHES) {
            let number: u64 = number.parse().ok()?;
            let found = self.patches.iter().find(|(known, _)| *known == number);
            let body = found.map(|(_, patch)| patch.clone())?;
            let media_type = JSON_PATCH.to_owned();
            return (!body.is_empty()).then(|| ServedFile { media_type, body }.into());
        }
        if file.starts_with(TIMEMAP) {
            let is_of_news = uris.file(file) == of_news(uris, TIMEMAP);
            return is_of_news.then(|| self.time_map(uris).into());
        }
        let uri = uris.file(file);
        let version = file
            .starts_with(VERSIONS)
            .then(|| self.versions.iter().find(|it| version_uri(uris, it) == uri))??;
        let file = ServedFile {
            media_type: version.media_type.to_owned(),
            body: version.bytes.clone(),
        };
        let mut found = Representation::from(file);
        found.memento = Some(version.lastmod);
        found.links = Some(format!(
            "<{}>; rel=\"original\", <{}>; rel=\"timegate\", <{}>; rel=\"timemap\"; type=\"application/link-format\"",
            uris.resource(NEWS),
            of_news(uris, TIMEGATE),
            of_news(uris, TIMEMAP)
        ));
        Some(found)
    }

    /// The answer of the TimeGate: the version of that time, or else the oldest one; without a time, the newest one.
    pub(super) fn negotiate(
        &self,
        uris: &SetUris,
        file: &str,
        wanted: Option<DateTime<Utc>>,
    ) -> Option<Negotiated> {
        if !file.starts_with(TIMEGATE) || uris.file(file) != of_news(uris, TIMEGATE) {
            return None;
        }
        // HTTP dates have whole seconds.
        let is_then = |version: &&Resource| {
            wanted.is_none_or(|wanted| {
                version.lastmod.to_datetime().timestamp() <= wanted.timestamp()
            })
        };
        let found = self.versions.iter().rfind(is_then);
        let version = found.or_else(|| self.versions.front())?;
        Some(Negotiated {
            location: version_uri(uris, version).to_string(),
            links: format!("<{}>; rel=\"original\"", uris.resource(NEWS)),
        })
    }

    fn time_map(&self, uris: &SetUris) -> ServedFile {
        let mut map = format!(
            "<{}>;rel=\"original\",\n<{}>;rel=\"timegate\",\n<{}>;rel=\"self\";type=\"application/link-format\"",
            uris.resource(NEWS),
            of_news(uris, TIMEGATE),
            of_news(uris, TIMEMAP)
        );
        for version in &self.versions {
            let (uri, date) = (version_uri(uris, version), http_date(version.lastmod));
            map.push_str(&format!(",\n<{uri}>;rel=\"memento\";datetime=\"{date}\""));
        }
        map.push('\n');
        ServedFile {
            media_type: "application/link-format".to_owned(),
            body: map.into(),
        }
    }
}

fn push<T>(all: &mut VecDeque<T>, new: T) {
    if all.len() == RETAINED {
        all.pop_front();
    }
    all.push_back(new);
}

/// The time as HTTP writes it.
pub(super) fn http_date(time: SourceTime) -> String {
    let date = time.to_datetime().format("%a, %d %b %Y %H:%M:%S GMT");
    date.to_string()
}

fn of_news(uris: &SetUris, service: &str) -> Url {
    uris.file(&format!("{service}{}", uris.resource(NEWS)))
}

fn version_uri(uris: &SetUris, version: &Resource) -> Url {
    let time = version.lastmod.to_datetime();
    let time = time.to_rfc3339_opts(SecondsFormat::Micros, true);
    let time = time.replace(['-', ':'], "");
    uris.file(&format!("{VERSIONS}{time}/{NEWS}"))
}

/// How an object becomes another one: its members are added, replaced and removed. `None`: one of the two is no object, or they are
/// the same.
fn json_patch(before: &[u8], after: &[u8]) -> Option<Bytes> {
    let object = |bytes: &[u8]| serde_json::from_slice::<Map<String, Value>>(bytes).ok();
    let (before, after) = (object(before)?, object(after)?);
    let path = |key: &str| format!("/{}", key.replace('~', "~0").replace('/', "~1"));
    let removed = before.keys().filter(|key| !after.contains_key(*key));
    let mut operations: Vec<Value> = removed
        .map(|key| json!({"op": "remove", "path": path(key)}))
        .collect();
    for (key, value) in &after {
        let op = match before.get(key) {
            Some(known) if known == value => continue,
            Some(_) => "replace",
            None => "add",
        };
        operations.push(json!({"op": op, "path": path(key), "value": value}));
    }
    let patch = serde_json::to_vec(&operations).ok()?;
    (!operations.is_empty()).then(|| patch.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_of_an_object_states_its_members() {
        let patch = |before: &str, after: &str| {
            let patch = json_patch(before.as_bytes(), after.as_bytes());
            patch.map(|patch| String::from_utf8(patch.to_vec()).unwrap())
        };
        assert_eq!(
            patch(r#"{"a":1,"b/c":2,"d":3}"#, r#"{"a":1,"d":[],"e":{}}"#).as_deref(),
            Some(
                r#"[{"op":"remove","path":"/b~1c"},{"op":"replace","path":"/d","value":[]},{"op":"add","path":"/e","value":{}}]"#
            )
        );
        for (before, after) in [("[]", "{}"), ("{}", "x"), (r#"{"a":1}"#, r#"{"a":1}"#)] {
            assert_eq!(patch(before, after), None);
        }
    }

    #[test]
    fn time_gate_leads_to_the_version_of_a_time() {
        let uris = SetUris::new(Url::parse("http://127.0.0.1:1/").unwrap(), "set1");
        let mut related = Related::default();
        let gate = format!("{TIMEGATE}{}", uris.resource(NEWS));
        let at = |text: &str| text.parse::<SourceTime>().unwrap();
        let (first, second) = (at("2026-01-01T00:00:00.5Z"), at("2026-01-02T00:00:00Z"));
        assert!(related.negotiate(&uris, &gate, None).is_none());
        for (time, text) in [(first, "one"), (second, "two")] {
            let mut resource = Resource::new(uris.resource(NEWS), Bytes::from(text), time);
            related.note(&uris, &mut resource);
        }
        for (wanted, text) in [
            (None, "two"),
            (Some(first), "one"),
            (Some(at("2026-01-01T23:59:59Z")), "one"),
            (Some(second), "two"),
            (Some(at("2030-01-01T00:00:00Z")), "two"),
            (Some(at("2000-01-01T00:00:00Z")), "one"),
        ] {
            let wanted = wanted.map(SourceTime::to_datetime);
            let found = related.negotiate(&uris, &gate, wanted).unwrap();
            let file = found
                .location
                .strip_prefix("http://127.0.0.1:1/set1/")
                .unwrap();
            let version = related.find(&uris, file, |_| None).unwrap();
            assert_eq!(version.file.body, text);
            assert!(version.memento.is_some());
        }
        assert!(
            related
                .negotiate(&uris, "timegate/http://other/", None)
                .is_none()
        );
        let map = related.time_map(&uris);
        let map = String::from_utf8(map.body.to_vec()).unwrap();
        assert_eq!(map.matches("rel=\"memento\"").count(), 2);
        assert!(
            map.contains("datetime=\"Thu, 01 Jan 2026 00:00:00 GMT\""),
            "{map}"
        );
    }

    #[test]
    fn versions_and_patches_are_limited() {
        let uris = SetUris::new(Url::parse("http://127.0.0.1:1/").unwrap(), "set1");
        let mut related = Related::default();
        for number in 0..2 * RETAINED {
            let time = SourceTime::from_micros(1_700_000_000_000_000 + number as i64);
            for (name, text) in [
                (NEWS, "x".to_owned()),
                (CATALOG, format!("{{\"n\":{number}}}")),
            ] {
                let mut resource = Resource::new(uris.resource(name), Bytes::from(text), time);
                related.note(&uris, &mut resource);
            }
        }
        assert_eq!(
            (related.versions.len(), related.patches.len()),
            (RETAINED, RETAINED)
        );
        assert!(related.find(&uris, "patches/100", |_| None).is_some());
        assert!(related.find(&uris, "patches/1", |_| None).is_none());
    }
}
