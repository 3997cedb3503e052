//! The stored versions of resources (Memento, RFC 7089): a TimeGate, a TimeMap and the versions, of Sources with `versions`.

use std::fs::File;
use std::sync::Arc;
use std::time::SystemTime;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use httpdate::{fmt_http_date, parse_http_date};
use percent_encoding::percent_decode_str;
use resourcesync::SourceTime;
use resyncd_core::{parse_version_name, version_name};
use resyncd_mirror::{MirrorPath, MirrorReader, publication_paths};
use url::Url;

use super::answer::SentFile;
use super::site::Refusal;
use super::uris::DOCUMENTS;
use super::{PublishedSource, Publisher};
use crate::store::PublishedResource;

/// The folders of the three, among the documents of a Source.
const TIME_GATE: &str = "timegate";
const TIME_MAP: &str = "timemap";
const MEMENTO: &str = "memento";

const DATETIME: header::HeaderName = header::HeaderName::from_static("memento-datetime");

/// The versions of a resource.
struct Versions {
    source: PublishedSource,
    resource: PublishedResource,
    path: String,
    /// Their times, oldest first.
    times: Vec<DateTime<Utc>>,
}

impl Publisher {
    /// The answer to a request for versions; `None`: the path is of something else.
    pub(super) async fn versions_at(
        &self,
        source: &PublishedSource,
        document: &str,
        request: &HeaderMap,
    ) -> Option<Result<Answered, Refusal>> {
        let (kind, rest) = document.split_once('/')?;
        let answered = match kind {
            TIME_GATE => self
                .time_gate(source, rest, request)
                .await
                .map(Answered::Response),
            TIME_MAP => self.time_map(source, rest).await.map(Answered::Response),
            MEMENTO => self.memento(source, rest).await.map(Answered::File),
            _ => return None,
        };
        Some(answered)
    }

    async fn versions(&self, source: &PublishedSource, path: &str) -> Result<Versions, Refusal> {
        let path = percent_decode_str(path).decode_utf8();
        let path = path.map_err(|_| Refusal::NotFound)?.into_owned();
        let (name, of) = (source.name.clone(), path.clone());
        let resource = self
            .store
            .published(move |rows| rows.file(&name, &of))
            .await?;
        let resource = resource.filter(|_| source.versions.is_some() && self.settings.content);
        let resource = resource.ok_or(Refusal::NotFound)?;
        let times = self.store.version_times(resource.view.id).await?;
        Ok(Versions {
            source: source.clone(),
            resource,
            path,
            times,
        })
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
    async fn time_gate(
        &self,
        source: &PublishedSource,
        path: &str,
        request: &HeaderMap,
    ) -> Result<Response, Refusal> {
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
        Ok((StatusCode::FOUND, headers).into_response())
    }

    fn links_of(&self, versions: &Versions) -> String {
        let original = self.uris.file(&versions.source.name, &versions.path);
        let links = self.version_links(&versions.source, &versions.path);
        format!("<{original}>; rel=\"original\", {links}")
    }

    /// The list of the versions (RFC 7089, section 5).
    async fn time_map(&self, source: &PublishedSource, path: &str) -> Result<Response, Refusal> {
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
        Ok((headers, text).into_response())
    }

    /// A version.
    async fn memento(&self, source: &PublishedSource, path: &str) -> Result<SentFile, Refusal> {
        let (name, path) = path.split_once('/').ok_or(Refusal::NotFound)?;
        let at = parse_version_name(name).ok_or(Refusal::NotFound)?;
        let versions = self.versions(source, path).await?;
        let (root, path) = (source.versions.clone(), versions.path.clone());
        let (uri, name) = (versions.resource.view.uri.clone(), name.to_owned());
        let opening = tokio::task::spawn_blocking(move || -> Option<File> {
            let folder = MirrorReader::open(&root?).ok()?;
            publication_paths(&path, &uri).find_map(|place| {
                let place = MirrorPath::parse(&format!("{place}/{name}")).ok()?;
                folder.open_file(&place).ok()
            })
        });
        let file = opening.await.ok().flatten().ok_or(Refusal::NotFound)?;
        let length = file
            .metadata()
            .map_err(|error| Refusal::Failed("io", error.to_string()))?
            .len();
        let at = at.to_datetime();
        let view = &versions.resource.view;
        let headers = vec![
            (DATETIME, fmt_http_date(SystemTime::from(at))),
            (header::LINK, self.links_of(&versions)),
        ];
        Ok(SentFile {
            file: Arc::new(file),
            length,
            // A version never changes.
            etag: format!("{:x}-{length:x}", at.timestamp_micros()),
            modified: Some(at),
            media_type: view
                .media_type
                .clone()
                .unwrap_or_else(|| "application/octet-stream".to_owned()),
            encoding: view.encoding.clone(),
            is_compressible: false,
            headers,
        })
    }
}

/// What a request for versions is answered with.
pub(super) enum Answered {
    File(SentFile),
    Response(Response),
}
