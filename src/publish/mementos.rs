//! The stored versions of resources (Memento, RFC 7089): a TimeGate, a TimeMap and the versions, of Sources with `versions`. Each is at the
//! path of a file and, as archives have it, at its URI or that of its original.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use chrono::{DateTime, NaiveDateTime, Utc};
use httpdate::parse_http_date;
use percent_encoding::percent_decode_str;
use resourcesync::SourceTime;
use resourcesync::uri::parse_uri;
use resyncd_core::version_name;
use resyncd_mirror::{MirrorFile, MirrorPath, MirrorReader, publication_paths};
use url::Url;

use super::answer::{SentFile, http_date};
use super::site::{Answered, Refusal};
use super::spool::DocumentError;
use super::uris::DOCUMENTS;
use super::{PublishedSource, Publisher, resource_at};
use crate::store::ResourceView;

/// The folders of the three, among the documents of a Source.
pub(super) const TIME_GATE: &str = "timegate";
pub(super) const TIME_MAP: &str = "timemap";
pub(super) const MEMENTO: &str = "memento";

const DATETIME: header::HeaderName = header::HeaderName::from_static("memento-datetime");

/// The versions of a resource.
struct Versions {
    source: PublishedSource,
    view: ResourceView,
    path: String,
    /// The URI of what was asked for.
    original: Url,
    /// Oldest first.
    all: Vec<Version>,
}

/// A version, of a time that HTTP can state.
struct Version {
    at: DateTime<Utc>,
    /// The name of its file.
    name: String,
    /// Its time in the form of HTTP.
    date: String,
}

impl Version {
    fn of(at: DateTime<Utc>) -> Option<Self> {
        let name = version_name(SourceTime::from(at))?;
        let date = http_date(at)?;
        Some(Self { at, name, date })
    }
}

/// The URI that is a name, also if a proxy has made one slash of two.
fn named_uri(name: &str) -> Option<Url> {
    let (scheme, rest) = name.split_once(":/")?;
    let is_http = matches!(scheme, "http" | "https");
    let uri = format!("{scheme}://{}", rest.trim_start_matches('/'));
    parse_uri(&uri).ok().filter(|_| is_http)
}

impl Publisher {
    /// `name`: the path of a file, or a URI.
    async fn versions(&self, source: &PublishedSource, name: &str) -> Result<Versions, Refusal> {
        if source.versions.is_none() || !self.settings.content {
            return Err(Refusal::NotFound);
        }
        let (source, uri) = (source.clone(), named_uri(name));
        let path = percent_decode_str(name).decode_utf8();
        let path = path.map_err(|_| Refusal::NotFound)?.into_owned();
        let (uris, base) = (self.uris.clone(), self.uris.at("").to_string());
        let finding = self.store.published(move |rows| {
            let found = match &uri {
                Some(uri) => {
                    let sources = std::slice::from_ref(&source);
                    resource_at(rows, sources, &base, uri.as_str())?.map(|(_, view)| view)
                }
                None => rows.file(&source.name, &path)?,
            };
            let found = found.and_then(|view| Some((view.path.clone()?, view)));
            let Some((path, view)) = found else {
                return Ok(None);
            };
            let all = rows.versions(view.id)?;
            let all = all.into_iter().filter_map(Version::of).collect();
            let original = uri.unwrap_or_else(|| uris.file(&source.name, &path));
            Ok(Some(Versions {
                source,
                view,
                path,
                original,
                all,
            }))
        });
        finding.await?.ok_or(Refusal::NotFound)
    }

    /// Where the versions of a file are listed and negotiated: the value of `Link`.
    pub(super) fn version_links(&self, source: &PublishedSource, path: &str) -> String {
        let (gate, map) = (
            self.of(source, TIME_GATE, path),
            self.of(source, TIME_MAP, path),
        );
        format!(
            "<{gate}>; rel=\"timegate\", <{map}>; rel=\"timemap\"; type=\"application/link-format\""
        )
    }

    /// One of the three for a file.
    fn of(&self, source: &PublishedSource, kind: &str, path: &str) -> Url {
        self.uris
            .file(&source.name, &format!("{DOCUMENTS}/{kind}/{path}"))
    }

    fn memento_uri(&self, versions: &Versions, version: &Version) -> Url {
        let kind = format!("{MEMENTO}/{}", version.name);
        self.of(&versions.source, &kind, &versions.path)
    }

    /// Redirects to the version of a time: the last one that is not later.
    pub(super) async fn time_gate(
        &self,
        source: &PublishedSource,
        path: &str,
        request: &HeaderMap,
    ) -> Result<Answered, Refusal> {
        let versions = self.versions(source, path).await?;
        let stated = request.get("accept-datetime").map(HeaderValue::to_str);
        let wanted = match stated {
            Some(text) => {
                let parsed = text.ok().and_then(|text| parse_http_date(text).ok());
                Some(DateTime::<Utc>::from(parsed.ok_or(Refusal::BadDatetime)?))
            }
            None => None,
        };
        // Stated times have no fractions of a second.
        let is_wanted = |version: &&Version| {
            wanted.is_none_or(|wanted| version.at.timestamp() <= wanted.timestamp())
        };
        let found = versions.all.iter().rev().find(is_wanted);
        let found = found.or(versions.all.first()).ok_or(Refusal::NotFound)?;
        let (place, links) = (self.memento_uri(&versions, found), self.links_of(&versions));
        let date = &found.date;
        let headers = [
            (header::LOCATION, place.to_string()),
            (header::VARY, "accept-datetime".to_owned()),
            (
                header::LINK,
                format!("{links}, <{place}>; rel=\"memento\"; datetime=\"{date}\""),
            ),
        ];
        Ok(Answered::Response(
            (StatusCode::FOUND, headers).into_response(),
        ))
    }

    fn links_of(&self, versions: &Versions) -> String {
        let links = self.version_links(&versions.source, &versions.path);
        format!("<{}>; rel=\"original\", {links}", versions.original)
    }

    /// The list of the versions (RFC 7089, section 5).
    pub(super) async fn time_map(
        &self,
        source: &PublishedSource,
        path: &str,
    ) -> Result<Answered, Refusal> {
        let versions = self.versions(source, path).await?;
        let own = self.of(source, TIME_MAP, &versions.path);
        let gate = self.of(source, TIME_GATE, &versions.path);
        let mut text = format!(
            "<{}>;rel=\"original\",\n<{own}>;rel=\"self\";type=\"application/link-format\",\n<{gate}>;rel=\"timegate\"",
            versions.original
        );
        for version in &versions.all {
            let (uri, date) = (self.memento_uri(&versions, version), &version.date);
            text.push_str(&format!(",\n<{uri}>;rel=\"memento\";datetime=\"{date}\""));
        }
        text.push('\n');
        let headers = [(header::CONTENT_TYPE, "application/link-format")];
        Ok(Answered::Response((headers, text).into_response()))
    }

    /// A version.
    pub(super) async fn memento(
        &self,
        source: &PublishedSource,
        path: &str,
    ) -> Result<Answered, Refusal> {
        let (stated, path) = path.split_once('/').ok_or(Refusal::NotFound)?;
        let versions = self.versions(source, path).await?;
        // Archives name a version by its second.
        let of_archives = NaiveDateTime::parse_from_str(stated, "%Y%m%d%H%M%S").ok();
        let is_stated = |version: &&Version| match of_archives {
            Some(second) => version.at.timestamp() == second.and_utc().timestamp(),
            None => version.name == stated,
        };
        let found = versions.all.iter().find(is_stated);
        let Version { at, name, date } = found.ok_or(Refusal::NotFound)?;
        let name = name.clone();
        let (root, path) = (source.versions.clone(), versions.path.clone());
        let uri = versions.view.uri.clone();
        let opening = tokio::task::spawn_blocking(move || -> Option<MirrorFile> {
            let folder = MirrorReader::open(&root?).ok()?;
            publication_paths(&path, &uri).find_map(|place| {
                let place = MirrorPath::parse(&format!("{place}/{name}")).ok()?;
                folder.open_file(&place).ok()
            })
        });
        let file = opening.await.ok().flatten().ok_or(Refusal::NotFound)?;
        let file = SentFile::of(file, &versions.view).map_err(DocumentError::from)?;
        Ok(Answered::File(SentFile {
            modified: Some(*at),
            headers: vec![
                (DATETIME, date.clone()),
                (header::LINK, self.links_of(&versions)),
            ],
            ..file
        }))
    }
}
