//! The listener for Destinations: which request is for what.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Response};
use bytes::Bytes;
use chrono::DateTime;
use percent_encoding::percent_decode_str;
use resyncd_mirror::{MirrorError, MirrorReader};

use super::answer::SentFile;
use super::documents::{SetDocument, SetDocuments, write_description, write_sitemap};
use super::mementos::{MEMENTO, TIME_GATE, TIME_MAP};
use super::spool::DocumentError;
use super::uris::{CHANGES, DESCRIPTION, DOCUMENTS, DUMP, FRAMEWORK, HUB, WELL_KNOWN};
use super::{PublishedSource, Publisher};
use crate::http::{BearerToken, Peer, RejectionCounters, require_token};

/// The longest request for a dump, in bytes.
const LONGEST_DUMP: usize = 4 << 20;
/// The longest form of a subscriber, in bytes.
const LONGEST_FORM: usize = 16 << 10;

/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What a request is answered with.
pub(super) enum Answered {
    File(SentFile),
    Response(Response),
}

/// Why a request is not answered as it asks.
#[derive(Debug)]
pub(super) enum Refusal {
    NotFound,
    /// The resource was deleted.
    Gone,
    BadMethod,
    /// The time of a version that is asked for can't be read.
    BadDatetime,
    /// A request for a dump can't be read.
    BadDump,
    /// Only this machine may ask for a dump.
    NotLocal,
    /// Other dumps are being made.
    DumpsBusy,
    /// The hub refuses a subscriber.
    BadSubscription,
    BadCallback,
    UnknownTopic,
    SecretTooLong,
    HubFull,
    HubBusy,
    Failed(&'static str, String),
}

impl<E: Into<DocumentError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        match error.into() {
            DocumentError::Missing => Self::NotFound,
            DocumentError::Busy => Self::DumpsBusy,
            error => Self::Failed(error.code(), error.to_string()),
        }
    }
}

impl Refusal {
    pub(super) fn of_file(error: &MirrorError) -> Self {
        match error {
            // It is being removed, and its row goes next.
            MirrorError::Missing { .. } => Self::Gone,
            error => Self::Failed(error.code(), error.to_string()),
        }
    }

    /// The status and the text of the answer.
    fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "Nothing is published here. [not-published]",
            ),
            Self::Gone => (StatusCode::GONE, "The resource has been deleted. [deleted]"),
            Self::BadMethod => (
                StatusCode::METHOD_NOT_ALLOWED,
                "Only GET and HEAD are answered. [bad-method]",
            ),
            Self::BadDatetime => (
                StatusCode::BAD_REQUEST,
                "Accept-Datetime has no date of HTTP. [bad-accept-datetime]",
            ),
            Self::BadDump => (
                StatusCode::BAD_REQUEST,
                "The body must be {\"uris\": [URI, …]}, 10,000 of one Source at most, or {\"set\": CAPABILITY-LIST, \"since\": SEQ}. [bad-dump]",
            ),
            Self::NotLocal => (
                StatusCode::FORBIDDEN,
                "Dumps are made for this machine only, unless [publish] token_file is set. [dumps-local]",
            ),
            Self::DumpsBusy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Other dumps are being made. [dumps-busy]",
            ),
            Self::BadSubscription => (
                StatusCode::BAD_REQUEST,
                "hub.mode, hub.topic and hub.callback are needed, and the mode must be subscribe or unsubscribe. [bad-subscription]",
            ),
            Self::BadCallback => (
                StatusCode::BAD_REQUEST,
                "hub.callback must be an http or https URL without a user name. [bad-callback]",
            ),
            Self::UnknownTopic => (
                StatusCode::NOT_FOUND,
                "hub.topic is none that is published here. [unknown-topic]",
            ),
            Self::SecretTooLong => (
                StatusCode::BAD_REQUEST,
                "hub.secret must be shorter than 200 bytes. [secret-too-long]",
            ),
            Self::HubFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "This hub has no room for another subscription. [hub-full]",
            ),
            Self::HubBusy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many subscriptions are being verified; try again later. [hub-busy]",
            ),
            Self::Failed(..) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Try again later. [unavailable]",
            ),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        if let Self::Failed(code, message) = &self {
            tracing::warn!(code, message, "a request for what is published failed");
        }
        let (status, text) = self.answer();
        let mut response = (status, format!("{text}\n")).into_response();
        let headers = response.headers_mut();
        match status {
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
            }
            _ => {}
        }
        response
    }
}

/// The routes of the listener.
pub fn site_router(publisher: Arc<Publisher>, rejections: RejectionCounters) -> Router {
    let token = publisher.settings.token.clone();
    let guard = BearerToken::new(token, "publish", &[], rejections);
    Router::new()
        .fallback(answer)
        .with_state(publisher)
        .layer(from_fn_with_state(guard, require_token))
}

async fn answer(State(publisher): State<Arc<Publisher>>, request: Request) -> Response {
    let (method, headers) = (request.method().clone(), request.headers().clone());
    match publisher.answered(request).await {
        Ok(Answered::File(file)) => file.answer(&method, &headers),
        Ok(Answered::Response(response)) => response,
        Err(refusal) => refusal.into_response(),
    }
}

/// The body of a request, if it is no longer than that, and arrives in time.
async fn body_of(request: Request, longest: usize) -> Option<Bytes> {
    let reading = axum::body::to_bytes(request.into_body(), longest);
    tokio::time::timeout(BODY_TIMEOUT, reading).await.ok()?.ok()
}

impl Publisher {
    async fn answered(self: &Arc<Self>, request: Request) -> Result<Answered, Refusal> {
        let path = request.uri().path();
        let own = path.strip_prefix(self.uris.prefix());
        let path = own.unwrap_or(path.trim_start_matches('/')).to_owned();
        match *request.method() {
            Method::GET | Method::HEAD => {
                let query = request.uri().query();
                self.at(&path, query, request.headers()).await
            }
            Method::POST if path == HUB => {
                let form = body_of(request, LONGEST_FORM).await;
                let form = form.and_then(|form| String::from_utf8(form.into()).ok());
                self.subscribe(form.as_deref().unwrap_or_default()).await?;
                Ok(Answered::Response(StatusCode::ACCEPTED.into_response()))
            }
            Method::POST if path == DUMP && self.has_dumps() => {
                let peer = request.extensions().get::<Peer>().copied();
                let is_local = peer.is_some_and(|peer| peer.is_local(request.headers()));
                // It takes time, and bandwidth.
                if self.settings.token.is_none() && !is_local {
                    return Err(Refusal::NotLocal);
                }
                let body = body_of(request, LONGEST_DUMP).await;
                let dump = self.dump(&body.ok_or(Refusal::BadDump)?).await?;
                Ok(Answered::Response(dump))
            }
            _ => Err(Refusal::BadMethod),
        }
    }

    /// What is at a path.
    async fn at(
        &self,
        path: &str,
        query: Option<&str>,
        request: &HeaderMap,
    ) -> Result<Answered, Refusal> {
        match path {
            "" => return Ok(Answered::Response(self.front_page())),
            WELL_KNOWN => return self.description(None).await,
            "sitemap.xml" => return self.sitemap().await,
            "robots.txt" => return Ok(Answered::Response(self.robots())),
            _ => {}
        }
        let (source, rest) = path.split_once('/').ok_or(Refusal::NotFound)?;
        let source = self.source(source).ok_or(Refusal::NotFound)?;
        let document = rest.strip_prefix(DOCUMENTS);
        let Some(document) = document.and_then(|rest| rest.strip_prefix('/')) else {
            return self.content(source, rest).await;
        };
        if document == DESCRIPTION {
            return self.description(Some(source)).await;
        }
        let (folder, name) = document.split_once('/').ok_or(Refusal::NotFound)?;
        // The name of a version may be a URI.
        let with_query = || match query {
            Some(query) if name.contains(":/") => format!("{name}?{query}"),
            _ => name.to_owned(),
        };
        match folder {
            TIME_GATE => self.time_gate(&source, &with_query(), request).await,
            TIME_MAP => self.time_map(&source, &with_query()).await,
            MEMENTO => self.memento(&source, &with_query()).await,
            folder => {
                let set = self.set_in(&source, folder).await?;
                match name.strip_suffix(".zip") {
                    Some(package) => self.package(source, set, package).await,
                    None => self.document_of(set, name).await,
                }
            }
        }
    }

    /// The Source Description of a Source, or of all.
    async fn description(&self, source: Option<PublishedSource>) -> Result<Answered, Refusal> {
        let key = source.as_ref().map_or(WELL_KNOWN, |source| &source.name);
        let key = key.to_owned();
        let sources = match source {
            Some(source) => vec![source],
            None => self.sources().to_vec(),
        };
        let mut sets = Vec::new();
        for source in &sources {
            sets.extend(self.sets(source).await?);
        }
        let since = sets.iter().map(|set| set.set.since).max();
        let since = since.unwrap_or(DateTime::UNIX_EPOCH);
        let version = format!(
            "{:?}",
            sets.iter().map(|set| set.set.id).collect::<Vec<_>>()
        );
        let made = self.made(&key, &version, false, move |_, _, output| {
            write_description(&sets, output)?;
            Ok(since)
        });
        let made = made.await?;
        Ok(Answered::File(SentFile::made(&made, XML)))
    }

    async fn sitemap(&self) -> Result<Answered, Refusal> {
        let (mut sets, mut version) = (Vec::new(), String::new());
        for source in &*self.sources() {
            for set in self.sets(source).await? {
                let state = self.state(&set).await?;
                version.push_str(&format!(
                    "{:?} {};",
                    set.set.id,
                    set.snapshot_version(&state)
                ));
                sets.push(set);
            }
        }
        let made = self.made("sitemap.xml", &version, false, move |rows, at, output| {
            let mut lists = Vec::new();
            for set in &sets {
                lists.extend(set.lists(rows)?);
            }
            write_sitemap(&lists, output)?;
            Ok(at)
        });
        let made = made.await?;
        Ok(Answered::File(SentFile::made(&made, XML)))
    }

    /// A document of a set, or a topic of its channels.
    async fn document_of(&self, set: SetDocuments, name: &str) -> Result<Answered, Refusal> {
        let list = set.uri(SetDocument::CapabilityList);
        let mut links = format!("<{list}>; rel=\"resourcesync\"");
        if matches!(name, CHANGES | FRAMEWORK) {
            let topic = set.topic(name);
            // In one line: some clients read the first only.
            links.push_str(&format!(", {}", self.topic_links(topic.as_str())));
        }
        if name == CHANGES && self.built_in.is_none() {
            let headers = [(header::CONTENT_TYPE, XML), (header::LINK, &*links)];
            let body = self.announced(&set).await?.body;
            return Ok(Answered::Response((headers, body).into_response()));
        }
        let document = match name {
            // What a topic stands for, for who asks for it itself.
            CHANGES => Some(SetDocument::ChangeList(None)),
            FRAMEWORK => Some(SetDocument::CapabilityList),
            name => SetDocument::parse(name),
        };
        let made = self
            .document(set, document.ok_or(Refusal::NotFound)?)
            .await?;
        Ok(Answered::File(SentFile {
            headers: vec![(header::LINK, links)],
            ..SentFile::made(&made, XML)
        }))
    }

    /// A file of a mirror or a folder.
    async fn content(&self, source: PublishedSource, path: &str) -> Result<Answered, Refusal> {
        if !self.settings.content {
            return Err(Refusal::NotFound);
        }
        let path = percent_decode_str(path).decode_utf8().ok();
        let path = path.and_then(|path| source.parse_path(&path).ok());
        let path = path.ok_or(Refusal::NotFound)?;
        let mut link = self.uris.description(&source.name).to_string();
        link = format!("<{link}>; rel=\"resourcesync\"");
        if source.versions.is_some() {
            link.push_str(&format!(", {}", self.version_links(&source, path.as_str())));
        }
        // The file is opened where its row was read: another thread would cost more than both.
        let finding = self.store.published(move |rows| {
            let found = rows.file(&source.name, path.as_str())?;
            Ok(found.map(|view| {
                let mirror = MirrorReader::open(&source.root);
                let opened = mirror.and_then(|mirror| mirror.open_file(&path));
                (view, opened)
            }))
        });
        let (view, opened) = finding.await?.ok_or(Refusal::NotFound)?;
        if view.deleted {
            return Err(Refusal::Gone);
        }
        let file = opened.map_err(|error| Refusal::of_file(&error))?;
        let mut file = SentFile::of(file, &view).map_err(DocumentError::from)?;
        file.headers.push((header::LINK, link));
        Ok(Answered::File(file))
    }

    /// A page that leads programs and people to the Source Description.
    fn front_page(&self) -> Response {
        let description = self.uris.at(WELL_KNOWN);
        Html(format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>ResourceSync</title>\n\
             <link rel=\"resourcesync\" href=\"{description}\"></head>\n\
             <body><p>What is published here can be followed by ResourceSync: <a href=\"{description}\">Source Description</a>.</p></body></html>\n"
        ))
        .into_response()
    }

    fn robots(&self) -> Response {
        let sitemap = self.uris.at("sitemap.xml");
        format!("User-agent: *\nAllow: /\n\nSitemap: {sitemap}\n").into_response()
    }
}

const XML: &str = "application/xml";
