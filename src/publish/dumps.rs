//! Dumps: a ZIP with a manifest, made while it is sent (the core, sections 11 and 13).
//!
//! Invariants: nothing of a package is on disk or in memory as a whole; no more than [`AT_ONCE`] are made at once; the manifest, which is the
//! last member, states what the package has.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::stream;
use percent_encoding::percent_decode_str;
use resourcesync::{Capability, DocumentWriter, Entry, Head, Root, SourceTime, Verifier};
use resyncd_core::ResourceUri;
use resyncd_mirror::MirrorReader;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::documents::{CHANGES_A_LIST, SetDocument, SetDocuments};
use super::spool::DocumentError;
use super::{PublishedSource, Publisher};
use crate::clock;
use crate::store::{PublishedChange, PublishedResource, PublishedRows};

/// How many packages are made at once.
pub(super) const AT_ONCE: usize = 4;
/// How many resources a request may name.
const MOST_NAMED: usize = 10_000;
/// How many resources a package of changes has at most: those of a Change List.
const MOST_CHANGED: usize = CHANGES_A_LIST as usize;
/// The pieces of a package that wait to be sent, and how long each is.
const PIECES: usize = 4;
const PIECE: usize = 256 << 10;
/// How long a reader may take nothing.
const STALLED: Duration = Duration::from_secs(60);
/// The name of the manifest in a package.
const MANIFEST: &str = "manifest.xml";

/// What a request asks a package of.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum DumpRequest {
    /// The current files of these URIs, as they are published or of the originals.
    #[serde(rename_all = "snake_case")]
    Named { uris: Vec<String> },
    /// What of a set has changed after a number of the feed.
    Since { set: String, since: i64 },
}

/// What a package has.
pub(super) struct Package {
    source: PublishedSource,
    head: Head,
    /// The entry of each member, and the path of its file in the mirror; `None`: it has none.
    members: Vec<(Entry, Option<String>)>,
    /// The number of the feed up to which it has the changes.
    until: Option<i64>,
}

impl Package {
    fn new(source: &PublishedSource, capability: Capability) -> Self {
        Self {
            source: source.clone(),
            head: Head::new(Root::Urlset, capability),
            members: Vec::new(),
            until: None,
        }
    }

    /// The current files of a range of rows.
    pub(super) fn of_page(
        source: &PublishedSource,
        set: &SetDocuments,
        rows: &PublishedRows<'_>,
        page: i64,
    ) -> Result<Self, DocumentError> {
        let mut package = Self::new(source, Capability::ResourceDumpManifest);
        // It has all changes up to the newest one.
        package.head.md.at = Some(SourceTime::from(rows.state(&set.set)?.at));
        rows.resources(set.set.id, set.page_range(page), |resource| {
            package.put(set, &resource);
            Ok::<_, DocumentError>(())
        })?;
        Ok(package)
    }

    /// What has changed after a number of the feed and up to another one: of each resource the last change.
    pub(super) fn of_changes(
        source: &PublishedSource,
        set: &SetDocuments,
        rows: &PublishedRows<'_>,
        (after, until): (i64, i64),
        (from, end): (DateTime<Utc>, Option<DateTime<Utc>>),
    ) -> Result<Self, DocumentError> {
        let mut package = Self::new(source, Capability::ChangeDumpManifest);
        let mut last: HashMap<String, PublishedChange> = HashMap::new();
        let mut newest = (after, from);
        let read = rows.changes(set.set.id, (after, until), |change| {
            if last.len() >= MOST_CHANGED && !last.contains_key(&change.uri) {
                return Err(DocumentError::TooLong);
            }
            newest = (change.seq, change.at);
            last.insert(change.uri.clone(), change);
            Ok(())
        });
        let is_cut = match read {
            Ok(()) => false,
            Err(DocumentError::TooLong) => true,
            Err(error) => return Err(error),
        };
        let mut changes: Vec<PublishedChange> = last.into_values().collect();
        changes.sort_by_key(|change| change.seq);
        package.head.md.from = Some(SourceTime::from(from));
        let end = end.filter(|_| !is_cut).unwrap_or(newest.1);
        package.head.md.until = Some(SourceTime::from(end));
        package.until = Some(if is_cut { newest.0 } else { until });
        for change in &changes {
            let path = change
                .resource
                .as_ref()
                .and_then(|resource| resource.view.path.clone());
            let entry = set.form.change(&source.name, change);
            package.members.extend(entry.map(|entry| (entry, path)));
        }
        Ok(package)
    }

    /// What a Change List has that is closed with a number.
    pub(super) fn of_span(
        source: &PublishedSource,
        set: &SetDocuments,
        rows: &PublishedRows<'_>,
        until: i64,
    ) -> Result<Self, DocumentError> {
        let spans = rows.spans(&set.set, set.oldest, CHANGES_A_LIST)?;
        let mut closed = spans.iter().filter(|span| span.closed.is_some());
        let span = closed.find(|span| span.until == until);
        let span = span.ok_or(DocumentError::Missing)?;
        let (numbers, times) = ((span.after, span.until), (span.from, span.closed));
        Self::of_changes(source, set, rows, numbers, times)
    }

    fn put(&mut self, set: &SetDocuments, resource: &PublishedResource) {
        let entry = set.form.resource(resource);
        self.members.push((entry, resource.view.path.clone()));
    }

    /// Writes the package.
    fn write(self, output: impl Write) -> io::Result<()> {
        let mirror = MirrorReader::open(&self.source.root).map_err(io::Error::other)?;
        let mut zip = ZipWriter::new_stream(output);
        // What is downloaded is often compressed already; and nobody waits for a processor.
        let stored = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored)
            .large_file(true);
        let mut manifest = Vec::new();
        let mut writer = DocumentWriter::start(&mut manifest, &self.head)?;
        for (mut entry, path) in self.members {
            if let Some(path) = path {
                let parsed = self.source.parse_path(&path).map_err(io::Error::other)?;
                // One that is gone by now is in the next Change List.
                let Ok(mut file) = mirror.open_file(&parsed) else {
                    continue;
                };
                zip.start_file(path.as_str(), stored)?;
                let mut verifier = Verifier::new(None, &[]);
                let mut piece = vec![0; PIECE];
                loop {
                    let read = file.read(&mut piece)?;
                    if read == 0 {
                        break;
                    }
                    zip.write_all(&piece[..read])?;
                    verifier.update(&piece[..read]).map_err(io::Error::other)?;
                }
                let verified = verifier.finish().map_err(io::Error::other)?;
                let content = &mut entry.md.content;
                content.length = Some(verified.length);
                // The manifest is of the bytes that are here.
                if !verified
                    .digests
                    .iter()
                    .all(|digest| content.hashes.contains(digest))
                {
                    content.hashes = verified.digests;
                }
                entry.md.path = Some(path);
            }
            writer.entry(&entry)?;
        }
        writer.finish()?;
        zip.start_file(MANIFEST, stored)?;
        zip.write_all(&manifest)?;
        zip.finish()?;
        Ok(())
    }

    /// The answer with the package. `permit`: held until it has been sent.
    pub(super) fn answer(self, permit: OwnedSemaphorePermit) -> Response {
        let (sender, receiver) = mpsc::channel(PIECES);
        let until = self.until;
        tokio::task::spawn_blocking(move || {
            let output = io::BufWriter::with_capacity(PIECE, PieceSender(sender.clone()));
            if let Err(error) = self.write(output) {
                // Whoever reads it learns from the missing end that it is not whole.
                tracing::debug!(%error, "a dump was not sent completely");
                let _ = sender.blocking_send(Err(error));
            }
            drop(permit);
        });
        let pieces = stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        });
        let mut response = Body::from_stream(pieces).into_response();
        let headers = response.headers_mut();
        let zip = header::HeaderValue::from_static("application/zip");
        headers.insert(header::CONTENT_TYPE, zip);
        if let Some(until) = until {
            headers.insert(SEQ, until.into());
        }
        response
    }
}

/// The header with the number of the feed up to which a package has the changes.
const SEQ: header::HeaderName = header::HeaderName::from_static("resyncd-seq");

/// Sends what is written to it.
struct PieceSender(mpsc::Sender<io::Result<Bytes>>);

impl Write for PieceSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        // Who reads nothing does not keep others from their dumps.
        let sending = self.0.send_timeout(Ok(piece), STALLED);
        let sent = Handle::current().block_on(sending);
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why there is no package.
pub(super) enum NoPackage {
    BadRequest,
    Unknown,
    Busy,
    Failed(DocumentError),
}

impl<E: Into<DocumentError>> From<E> for NoPackage {
    fn from(error: E) -> Self {
        match error.into() {
            DocumentError::Missing => Self::Unknown,
            error => Self::Failed(error),
        }
    }
}

impl IntoResponse for NoPackage {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::BadRequest => (
                StatusCode::BAD_REQUEST,
                "The body must be {\"uris\": [URI, …]}, 10,000 of one Source at most, or {\"set\": CAPABILITY-LIST, \"since\": SEQ}. [bad-dump]",
            ),
            Self::Unknown => (
                StatusCode::NOT_FOUND,
                "Nothing of that is published. [not-published]",
            ),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Other dumps are being made. [dumps-busy]",
            ),
            Self::Failed(error) => {
                tracing::warn!(code = error.code(), %error, "a dump was not made");
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    "Try again later. [unavailable]",
                )
            }
        };
        let again = [(header::RETRY_AFTER, "10")];
        let text = format!("{text}\n");
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return (status, again, text).into_response();
        }
        (status, text).into_response()
    }
}

impl Publisher {
    /// The right to make a package.
    pub(super) fn dump_permit(&self) -> Result<OwnedSemaphorePermit, NoPackage> {
        Arc::clone(&self.dumps)
            .try_acquire_owned()
            .map_err(|_| NoPackage::Busy)
    }

    /// The package that a request asks for.
    pub(super) async fn dump(&self, body: &[u8]) -> Result<Response, NoPackage> {
        let request = serde_json::from_slice(body).map_err(|_| NoPackage::BadRequest)?;
        let permit = self.dump_permit()?;
        let package = match request {
            DumpRequest::Named { uris } => self.package_of(uris).await?,
            DumpRequest::Since { set, since } => self.package_since(&set, since).await?,
        };
        Ok(package.answer(permit))
    }

    async fn package_of(&self, uris: Vec<String>) -> Result<Package, NoPackage> {
        if uris.is_empty() || uris.len() > MOST_NAMED {
            return Err(NoPackage::BadRequest);
        }
        let mut package: Option<Package> = None;
        for uri in uris {
            let (source, resource) = self.published_at(&uri).await?.ok_or(NoPackage::Unknown)?;
            let package = package
                .get_or_insert_with(|| Package::new(&source, Capability::ResourceDumpManifest));
            if package.source != source {
                return Err(NoPackage::BadRequest);
            }
            let entry = self.form_of(&source).resource(&resource);
            package.members.push((entry, resource.view.path));
        }
        let mut package = package.ok_or(NoPackage::BadRequest)?;
        package.head.md.at = Some(SourceTime::from(clock::now().wall));
        Ok(package)
    }

    /// The resource that is published at a URI, or of which that is the original.
    async fn published_at(
        &self,
        uri: &str,
    ) -> Result<Option<(PublishedSource, PublishedResource)>, NoPackage> {
        let base = self.uris.at("");
        if let Some(path) = uri.strip_prefix(base.as_str()) {
            let Some((name, path)) = path.split_once('/') else {
                return Ok(None);
            };
            let (Some(source), Ok(path)) =
                (self.source(name), percent_decode_str(path).decode_utf8())
            else {
                return Ok(None);
            };
            let (name, path) = (name.to_owned(), path.into_owned());
            let found = self
                .store
                .published(move |rows| rows.file(&name, &path))
                .await?;
            let found = found.filter(|found| !found.view.deleted);
            return Ok(found.map(|found| (source, found)));
        }
        let Ok(uri) = ResourceUri::parse(uri) else {
            return Ok(None);
        };
        for source in &*self.sources() {
            let (name, uri) = (source.name.clone(), uri.clone());
            let found = self
                .store
                .published(move |rows| rows.of_uri(&name, &uri))
                .await?;
            if let Some(found) = found {
                return Ok(Some((source.clone(), found)));
            }
        }
        Ok(None)
    }

    async fn package_since(&self, list: &str, since: i64) -> Result<Package, NoPackage> {
        for source in &*self.sources() {
            for set in self.sets(source).await? {
                let is_named = set.uri(SetDocument::CapabilityList).as_str() == list
                    || set.set.capability_list.as_str() == list;
                if is_named {
                    let source = source.clone();
                    let making = self
                        .store
                        .published(move |rows| Ok(package_after(&source, &set, rows, since)));
                    return Ok(making.await??);
                }
            }
        }
        Err(NoPackage::Unknown)
    }
}

/// What has changed after a number, which must be one that the Change Lists reach back to.
fn package_after(
    source: &PublishedSource,
    set: &SetDocuments,
    rows: &PublishedRows<'_>,
    since: i64,
) -> Result<Package, DocumentError> {
    let spans = rows.spans(&set.set, set.oldest, CHANGES_A_LIST)?;
    let first = spans.first().ok_or(DocumentError::Missing)?;
    let end = spans.last().map_or(since, |open| open.until);
    if since < first.after || since > end {
        return Err(DocumentError::Missing);
    }
    let from = rows.time_of(since)?.unwrap_or(first.from);
    Package::of_changes(source, set, rows, (since, end), (from, None))
}
