//! The stored versions of resources (Memento, RFC 7089): a TimeGate, a TimeMap and the versions, of Sources with `versions`.

use std::fs::File;
use std::time::SystemTime;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use chrono::{DateTime, Utc};
use httpdate::{fmt_http_date, parse_http_date};
use percent_encoding::percent_decode_str;
use resourcesync::SourceTime;
use resyncd_core::{parse_version_name, version_name};
use resyncd_mirror::{MirrorPath, MirrorReader, publication_paths};
use url::Url;

use super::answer::SentFile;
use super::site::{Answered, Refusal};
use super::spool::DocumentError;
use super::uris::DOCUMENTS;
use super::{PublishedSource, Publisher};
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
    /// Their times, oldest first.
    times: Vec<DateTime<Utc>>,
}

impl Publisher {
    async fn versions(&self, source: &PublishedSource, path: &str) -> Result<Versions, Refusal> {
        if source.versions.is_none() || !self.settings.content {
            return Err(Refusal::NotFound);
        }
        let path = percent_decode_str(path).decode_utf8();
        let path = path.map_err(|_| Refusal::NotFound)?.into_owned();
        let source = source.clone();
        let finding = self.store.published(move |rows| {
            let Some(view) = rows.file(&source.name, &path)? else {
                return Ok(None);
            };
            let times = rows.versions(view.id)?;
            Ok(Some(Versions {
                source,
                view,
                path,
                times,
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

    fn memento_uri(&self, versions: &Versions, at: DateTime<Utc>) -> Option<Url> {
        let name = version_name(SourceTime::from(at))?;
        Some(self.of(
            &versions.source,
            &format!("{MEMENTO}/{name}"),
            &versions.path,
        ))
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
        let is_wanted =
            |at: &&DateTime<Utc>| wanted.is_none_or(|wanted| at.timestamp() <= wanted.timestamp());
        let found = versions
            .times
            .iter()
            .rev()
            .find(is_wanted)
            .or(versions.times.first());
        let place = found.and_then(|at| self.memento_uri(&versions, *at));
        let place = place.ok_or(Refusal::NotFound)?;
        let headers = [
            (header::LOCATION, place.to_string()),
            (header::VARY, "accept-datetime".to_owned()),
            (header::LINK, self.links_of(&versions)),
        ];
        Ok(Answered::Response(
            (StatusCode::FOUND, headers).into_response(),
        ))
    }

    fn links_of(&self, versions: &Versions) -> String {
        let original = self.uris.file(&versions.source.name, &versions.path);
        let links = self.version_links(&versions.source, &versions.path);
        format!("<{original}>; rel=\"original\", {links}")
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
        let original = self.uris.file(&source.name, &versions.path);
        let mut text = format!(
            "<{original}>;rel=\"original\",\n<{own}>;rel=\"self\";type=\"application/link-format\",\n<{gate}>;rel=\"timegate\""
        );
        for &at in &versions.times {
            if let Some(uri) = self.memento_uri(&versions, at) {
                let at = fmt_http_date(SystemTime::from(at));
                text.push_str(&format!(",\n<{uri}>;rel=\"memento\";datetime=\"{at}\""));
            }
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
        let (name, path) = path.split_once('/').ok_or(Refusal::NotFound)?;
        let at = parse_version_name(name).ok_or(Refusal::NotFound)?;
        let versions = self.versions(source, path).await?;
        let (root, path) = (source.versions.clone(), versions.path.clone());
        let (uri, name) = (versions.view.uri.clone(), name.to_owned());
        let opening = tokio::task::spawn_blocking(move || -> Option<File> {
            let folder = MirrorReader::open(&root?).ok()?;
            publication_paths(&path, &uri).find_map(|place| {
                let place = MirrorPath::parse(&format!("{place}/{name}")).ok()?;
                folder.open_file(&place).ok()
            })
        });
        let file = opening.await.ok().flatten().ok_or(Refusal::NotFound)?;
        let file = SentFile::of(file, &versions.view).map_err(DocumentError::from)?;
        let at = at.to_datetime();
        Ok(Answered::File(SentFile {
            modified: Some(at),
            headers: vec![
                (DATETIME, fmt_http_date(SystemTime::from(at))),
                (header::LINK, self.links_of(&versions)),
            ],
            ..file
        }))
    }
}
