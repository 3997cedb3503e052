//! The listener for Destinations: which request is for what.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use chrono::DateTime;
use percent_encoding::percent_decode_str;
use resourcesync::Algorithm;
use resyncd_mirror::{MirrorError, MirrorReader};

use super::answer::SentFile;
use super::documents::{SetDocument, write_description, write_sitemap};
use super::dumps::{NoPackage, Package};
use super::hub::Refused;
use super::mementos::Answered;
use super::spool::{DocumentError, Spooled};
use super::uris::{
    CHANGE_DUMP, CHANGES, DESCRIPTION, DOCUMENTS, DUMP, FRAMEWORK, HUB, RESOURCE_DUMP, WELL_KNOWN,
    folder_of,
};
use super::{PublishedSource, Publisher};
use crate::http::{BearerToken, Peer, RejectionCounters, require_token};
use crate::store::{PublishedResource, StoreError};

/// The longest request for a dump, in bytes.
const LONGEST_DUMP: usize = 4 << 20;
/// The longest form of a subscriber, in bytes.
const LONGEST_FORM: usize = 16 << 10;

/// Why a request is not answered with a file.
#[derive(Debug)]
pub(super) enum Refusal {
    NotFound,
    /// The time of a version that is asked for can't be read.
    BadDatetime,
    /// The resource was deleted.
    Gone,
    Failed(&'static str, String),
}

impl From<DocumentError> for Refusal {
    fn from(error: DocumentError) -> Self {
        match error {
            DocumentError::Missing => Self::NotFound,
            error => Self::Failed(error.code(), error.to_string()),
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.code(), error.to_string())
    }
}

impl From<MirrorError> for Refusal {
    fn from(error: MirrorError) -> Self {
        Self::Failed(error.code(), error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "Nothing is published here. [not-published]",
            ),
            Self::BadDatetime => (
                StatusCode::BAD_REQUEST,
                "Accept-Datetime has no date of HTTP. [bad-accept-datetime]",
            ),
            Self::Gone => (StatusCode::GONE, "The resource has been deleted. [deleted]"),
            Self::Failed(code, message) => {
                tracing::warn!(code, message, "a request for what is published failed");
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    "Try again later. [unavailable]",
                )
            }
        };
        (status, plain(text)).into_response()
    }
}

/// A line of text.
fn plain(text: &str) -> String {
    format!("{text}\n")
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
    let path = request.uri().path();
    let path = path
        .strip_prefix(publisher.uris.prefix())
        .unwrap_or(path.trim_start_matches('/'));
    let method = request.method().clone();
    if method == Method::POST && path == HUB {
        return subscription(&publisher, request).await;
    }
    if method == Method::POST && path == DUMP && publisher.has_dumps() {
        return dump(&publisher, request).await;
    }
    if method != Method::GET && method != Method::HEAD {
        let allowed = [(header::ALLOW, "GET, HEAD")];
        let text = plain("Only GET and HEAD are answered. [bad-method]");
        return (StatusCode::METHOD_NOT_ALLOWED, allowed, text).into_response();
    }
    if let Some(package) = publisher.package_at(path).await {
        return package.unwrap_or_else(IntoResponse::into_response);
    }
    if let Some(versions) = publisher.versions_of(path, request.headers()).await {
        return match versions {
            Ok(Answered::File(file)) => file.answer(&method, request.headers()).await,
            Ok(Answered::Response(response)) => response,
            Err(refusal) => refusal.into_response(),
        };
    }
    match publisher.file_at(path).await {
        Ok(file) => file.answer(&method, request.headers()).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// The answer to a request for a dump. Without a token only this machine may ask for one: it takes time, and bandwidth.
async fn dump(publisher: &Arc<Publisher>, request: Request) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let is_local = peer.is_some_and(|peer| peer.is_local(request.headers()));
    if publisher.settings.token.is_none() && !is_local {
        let text = "Dumps are made for this machine only, unless [publish] token_file is set. [dumps-local]";
        return (StatusCode::FORBIDDEN, plain(text)).into_response();
    }
    match axum::body::to_bytes(request.into_body(), LONGEST_DUMP).await {
        Ok(body) => publisher
            .dump(&body)
            .await
            .unwrap_or_else(IntoResponse::into_response),
        Err(_) => NoPackage::BadRequest.into_response(),
    }
}

/// The answer of the hub to a request of a subscriber (WebSub, section 5.1).
async fn subscription(publisher: &Arc<Publisher>, request: Request) -> Response {
    let body = axum::body::to_bytes(request.into_body(), LONGEST_FORM).await;
    let form = body
        .ok()
        .and_then(|body| String::from_utf8(body.into()).ok());
    let refused = match form {
        Some(form) => publisher.subscribe(&form).await,
        None => Err(Refused::BadForm),
    };
    let Err(refused) = refused else {
        return StatusCode::ACCEPTED.into_response();
    };
    let (status, is_temporary) = refused.status();
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let text = format!("{refused} [{}]\n", refused.code());
    if is_temporary {
        (status, [(header::RETRY_AFTER, "60")], text).into_response()
    } else {
        (status, text).into_response()
    }
}

impl Publisher {
    async fn file_at(&self, path: &str) -> Result<SentFile, Refusal> {
        match path {
            "" => return Ok(self.front_page()?),
            WELL_KNOWN => return self.description(None).await,
            "sitemap.xml" => return self.sitemap().await,
            "robots.txt" => return Ok(self.robots()?),
            _ => {}
        }
        let (source, rest) = path.split_once('/').ok_or(Refusal::NotFound)?;
        let source = self.source(source).ok_or(Refusal::NotFound)?;
        match rest
            .strip_prefix(DOCUMENTS)
            .and_then(|rest| rest.strip_prefix('/'))
        {
            Some(DESCRIPTION) => self.description(Some(source)).await,
            Some(document) => self.document_at(&source, document).await,
            None => self.content(&source, rest).await,
        }
    }

    /// The answer with versions of a resource; `None`: nothing else is at a path.
    async fn versions_of(
        &self,
        path: &str,
        request: &HeaderMap,
    ) -> Option<Result<Answered, Refusal>> {
        let (source, rest) = path.split_once('/')?;
        let rest = rest.strip_prefix(DOCUMENTS)?.strip_prefix('/')?;
        self.versions_at(&self.source(source)?, rest, request).await
    }

    /// The Source Description of a Source, or of all.
    async fn description(&self, source: Option<PublishedSource>) -> Result<SentFile, Refusal> {
        let key = source
            .as_ref()
            .map_or(WELL_KNOWN, |source| &source.name)
            .to_owned();
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
        Ok(self.sent(&made.await?))
    }

    async fn sitemap(&self) -> Result<SentFile, Refusal> {
        let mut sets = Vec::new();
        for source in &*self.sources() {
            sets.extend(self.sets(source).await?);
        }
        let made = self.made("sitemap.xml", "", false, move |rows, at, output| {
            let mut lists = Vec::new();
            for set in &sets {
                lists.extend(set.lists(rows)?);
            }
            write_sitemap(&lists, output)?;
            Ok(at)
        });
        Ok(self.sent(&made.await?))
    }

    /// A document of a set, by its path below the documents of the Source.
    async fn document_at(&self, source: &PublishedSource, path: &str) -> Result<SentFile, Refusal> {
        let (folder, name) = path.split_once('/').ok_or(Refusal::NotFound)?;
        let mut sets = self.sets(source).await?.into_iter();
        let set = sets.find(|set| folder_of(&set.set) == folder);
        let set = set.ok_or(Refusal::NotFound)?;
        let (document, is_topic) = match name {
            // What a topic stands for, for who asks for it itself.
            CHANGES => (SetDocument::ChangeList(None), true),
            FRAMEWORK => (SetDocument::CapabilityList, true),
            name => (SetDocument::parse(name).ok_or(Refusal::NotFound)?, false),
        };
        let list = set.uri(SetDocument::CapabilityList);
        let mut links = vec![format!("<{list}>; rel=\"resourcesync\"")];
        if is_topic {
            let topic = self.uris.of_set(&set.set, name);
            links.push(self.topic_links(topic.as_str()));
        }
        let mut file = if name == CHANGES && self.built_in.is_none() {
            let text = self.announced_notification(set).await?;
            self.short(&text, "application/xml")?
        } else {
            self.sent(&self.document(set, document).await?)
        };
        // In one line: some clients read the first only.
        file.headers.push((header::LINK, links.join(", ")));
        Ok(file)
    }

    /// The answer with a package of a dump; `None`: nothing else is at a path.
    async fn package_at(&self, path: &str) -> Option<Result<Response, NoPackage>> {
        let path = path.strip_suffix(".zip").filter(|_| self.has_dumps())?;
        let parts: Vec<&str> = path.split('/').collect();
        let [source, DOCUMENTS, folder, name] = parts[..] else {
            return None;
        };
        let (kind, number) = name.rsplit_once('-')?;
        let number: i64 = number.parse().ok()?;
        if kind != RESOURCE_DUMP && kind != CHANGE_DUMP {
            return None;
        }
        let source = self.source(source)?;
        let making = async {
            let mut sets = self.sets(&source).await?.into_iter();
            let set = sets.find(|set| folder_of(&set.set) == folder);
            let set = set.ok_or(NoPackage::Unknown)?;
            let permit = self.dump_permit()?;
            let is_of_changes = kind == CHANGE_DUMP;
            let making = self.store.published_document(move |rows| {
                Ok(if is_of_changes {
                    Package::of_span(&source, &set, rows, number)
                } else {
                    Package::of_page(&source, &set, rows, number)
                })
            });
            Ok(making.await??.answer(permit))
        };
        Some(making.await)
    }

    fn sent(&self, made: &Arc<Spooled>) -> SentFile {
        SentFile {
            file: Arc::clone(&made.file),
            length: made.length,
            etag: made.etag.clone(),
            modified: Some(made.modified),
            media_type: "application/xml".to_owned(),
            encoding: None,
            is_compressible: true,
            headers: Vec::new(),
        }
    }

    /// A file of a mirror or a folder.
    async fn content(&self, source: &PublishedSource, path: &str) -> Result<SentFile, Refusal> {
        if !self.settings.content {
            return Err(Refusal::NotFound);
        }
        let path = percent_decode_str(path)
            .decode_utf8()
            .map_err(|_| Refusal::NotFound)?;
        let path = source.parse_path(&path).map_err(|_| Refusal::NotFound)?;
        let (name, root) = (source.name.clone(), source.root.clone());
        // The file is opened where its row was read: another thread would cost more than both.
        let finding = self.store.published(move |rows| {
            let found = rows.file(&name, path.as_str())?;
            Ok(found.map(|found| {
                let opened = MirrorReader::open(&root).and_then(|mirror| mirror.open_file(&path));
                (found, opened)
            }))
        });
        let (found, opened) = finding.await?.ok_or(Refusal::NotFound)?;
        let file = match opened {
            _ if found.view.deleted => return Err(Refusal::Gone),
            // It is being removed, and its row goes next.
            Err(MirrorError::Missing { .. }) => return Err(Refusal::Gone),
            opened => opened?,
        };
        self.sent_content(source, file, &found)
    }

    fn sent_content(
        &self,
        source: &PublishedSource,
        file: File,
        found: &PublishedResource,
    ) -> Result<SentFile, Refusal> {
        let failed = |error: std::io::Error| Refusal::Failed("io", error.to_string());
        let metadata = file.metadata().map_err(failed)?;
        let view = &found.view;
        let sha256 = found
            .hashes
            .iter()
            .find(|digest| digest.algorithm() == Algorithm::Sha256);
        // A file that has just taken the place of the one that is recorded is another one.
        let (inode, seconds, part) = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
        let of_file = format!("{inode:x}-{seconds:x}-{part:x}-{:x}", metadata.len());
        let etag = match sha256.filter(|_| view.length == Some(metadata.len())) {
            Some(digest) => {
                let bytes = digest.bytes()[..8].iter();
                let digest: String = bytes.map(|byte| format!("{byte:02x}")).collect();
                format!("{digest}-{of_file}")
            }
            None => of_file,
        };
        let description = self.uris.description(&view.source);
        let mut link = format!("<{description}>; rel=\"resourcesync\"");
        if let (Some(_), Some(path)) = (&source.versions, &view.path) {
            link.push_str(", ");
            link.push_str(&self.version_links(source, path));
        }
        Ok(SentFile {
            length: metadata.len(),
            file: Arc::new(file),
            etag,
            modified: view.lastmod.map(|at| at.to_datetime()).or(view.applied_at),
            media_type: view
                .media_type
                .clone()
                .unwrap_or_else(|| "application/octet-stream".to_owned()),
            encoding: view.encoding.clone(),
            is_compressible: false,
            headers: vec![(header::LINK, link)],
        })
    }

    /// A page that leads programs and people to the Source Description.
    fn front_page(&self) -> Result<SentFile, DocumentError> {
        let description = self.uris.at(WELL_KNOWN);
        let page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>ResourceSync</title>\n\
             <link rel=\"resourcesync\" href=\"{description}\"></head>\n\
             <body><p>What is published here can be followed by ResourceSync: <a href=\"{description}\">Source Description</a>.</p></body></html>\n"
        );
        self.short(page.as_bytes(), "text/html; charset=utf-8")
    }

    fn robots(&self) -> Result<SentFile, DocumentError> {
        let sitemap = self.uris.at("sitemap.xml");
        self.short(
            format!("User-agent: *\nAllow: /\n\nSitemap: {sitemap}\n").as_bytes(),
            "text/plain; charset=utf-8",
        )
    }

    /// A short text.
    fn short(&self, text: &[u8], media_type: &str) -> Result<SentFile, DocumentError> {
        let mut output = super::SpoolWriter::new(self.spool.folder())?;
        std::io::Write::write_all(&mut output, text)?;
        let made = output.finish(DateTime::UNIX_EPOCH, String::new())?;
        let mut file = self.sent(&Arc::new(made));
        file.modified = None;
        media_type.clone_into(&mut file.media_type);
        Ok(file)
    }
}
