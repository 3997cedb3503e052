//! Dumps: a ZIP with a manifest, made while it is sent (the core, sections 11 and 13).
//!
//! Invariants: nothing of a package is in memory as a whole, and on disk only one of at most [`MOST_KEPT`] bytes that a document names; no more
//! than [`AT_ONCE`] are made at once; the manifest, which is the last member, states what the package has.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::stream;
use resourcesync::{
    Capability, ChangeKind, DocumentWriter, Entry, Head, Root, SourceTime, Verifier,
};
use resyncd_mirror::MirrorReader;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::answer::SentFile;
use super::documents::{CHANGES_A_LIST, SetDocument, SetDocuments};
use super::site::{Answered, Refusal};
use super::spool::{DocumentError, SpoolWriter};
use super::uris::{CHANGE_DUMP, RESOURCE_DUMP};
use super::{PublishedSource, Publisher, resource_at};
use crate::clock;
use crate::store::{PublishedChange, PublishedRows, StoreError};

/// How many packages are made at once.
pub(super) const AT_ONCE: usize = 4;
/// How many bytes a package has at most that is passed on again while it is current: it is made before it is sent.
const MOST_KEPT: u64 = 128 << 20;
/// How many resources a request may name.
const MOST_NAMED: usize = 10_000;
/// How many resources a package of changes has at most: those of a Change List.
const MOST_CHANGED: usize = CHANGES_A_LIST as usize;
/// The pieces of a package that wait to be sent, and how long each is.
const PIECES: usize = 4;
const PIECE: usize = 256 << 10;
/// The name of the manifest in a package.
/// The slowest rate at which a package may be read, in bytes a second, once that was waited for so long: whoever reads more slowly has the
/// place of others.
const SLOWEST: u64 = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(60);
const MANIFEST: &str = "manifest.xml";

/// What a request asks a package of.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum DumpRequest {
    /// The current files of these URIs, as they are published or of the originals.
    Named { uris: Vec<String> },
    /// What of a set has changed after a number of the feed.
    Since { set: String, since: i64 },
}

/// What a package has.
struct Package {
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
    fn of_page(
        source: &PublishedSource,
        set: &SetDocuments,
        rows: &PublishedRows<'_>,
        page: i64,
    ) -> Result<Self, DocumentError> {
        let mut package = Self::new(source, Capability::ResourceDumpManifest);
        // It has all changes up to the newest one.
        package.head.md.at = Some(SourceTime::from(rows.state(&set.set)?.at));
        rows.resources(set.set.id, set.page_range(page), |resource| {
            let path = resource.view.path.clone();
            package.members.push((set.form.resource(&resource), path));
            Ok::<_, DocumentError>(())
        })?;
        if package.members.is_empty() {
            return Err(DocumentError::Missing);
        }
        Ok(package)
    }

    /// What has changed after a number of the feed and up to another one: of each resource the last change.
    fn of_changes(
        source: &PublishedSource,
        set: &SetDocuments,
        rows: &PublishedRows<'_>,
        (after, until): (i64, i64),
        (from, end): (DateTime<Utc>, Option<DateTime<Utc>>),
    ) -> Result<Self, DocumentError> {
        let mut package = Self::new(source, Capability::ChangeDumpManifest);
        let mut last: HashMap<String, PublishedChange> = HashMap::new();
        let (mut newest, mut is_cut) = ((after, from), false);
        rows.changes(set.set.id, (after, until), |change| {
            is_cut = last.len() >= MOST_CHANGED && !last.contains_key(&change.row.uri);
            if !is_cut {
                newest = (change.row.seq, change.row.at);
                last.insert(change.row.uri.clone(), change);
            }
            Ok::<_, DocumentError>(!is_cut)
        })?;
        let mut changes: Vec<PublishedChange> = last.into_values().collect();
        changes.sort_by_key(|change| change.row.seq);
        package.head.md.from = Some(SourceTime::from(from));
        let end = end.filter(|_| !is_cut).unwrap_or(newest.1);
        package.head.md.until = Some(SourceTime::from(end));
        package.until = Some(if is_cut { newest.0 } else { until });
        for change in &changes {
            let Some(entry) = set.form.change(&source.name, change) else {
                continue;
            };
            // What was deleted may have been created again since.
            let resource = change.resource.as_ref();
            let resource = resource.filter(|_| entry.md.change != Some(ChangeKind::Deleted));
            let path = resource.and_then(|resource| resource.view.path.clone());
            package.members.push((entry, path));
        }
        Ok(package)
    }

    /// How many bytes its members have.
    fn length(&self) -> u64 {
        let members = self.members.iter().filter(|(_, path)| path.is_some());
        let lengths = members.map(|(entry, _)| entry.md.content.length.unwrap_or(0));
        lengths.fold(0, u64::saturating_add)
    }

    /// Writes the package.
    fn write(self, output: &mut impl Write) -> io::Result<()> {
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
                // A package without it would state that there is none.
                let mut file = mirror.open_file(&parsed).map_err(io::Error::other)?;
                // Below a folder: none is the manifest.
                let path = format!("resources/{path}");
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
    fn answer(self, permit: OwnedSemaphorePermit) -> Response {
        let (sender, receiver) = mpsc::channel(PIECES);
        let until = self.until;
        tokio::task::spawn_blocking(move || {
            let mut output = io::BufWriter::with_capacity(PIECE, PieceSender(sender.clone()));
            let written = self.write(&mut output).and_then(|()| output.flush());
            if let Err(error) = written {
                // Whoever reads it learns from the missing end that it is not whole.
                tracing::debug!(%error, "a dump was not sent completely");
                let _ = sender.blocking_send(Err(error));
            }
            drop(permit);
        });
        let begun = (receiver, Pace::default(), clock::now().mono);
        let pieces = stream::unfold(begun, |(mut receiver, mut pace, given_at)| async move {
            pace.waited += clock::now().mono.saturating_duration_since(given_at);
            let piece = if pace.is_too_slow() {
                // The connection ends, and with the receiver the place.
                Err(io::ErrorKind::TimedOut.into())
            } else {
                receiver.recv().await?
            };
            pace.sent += piece.as_ref().map_or(0, Bytes::len) as u64;
            Some((piece, (receiver, pace, clock::now().mono)))
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
        // The listener ends the connection of who reads nothing.
        let sent = self.0.blocking_send(Ok(piece));
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Publisher {
    /// The right to make a package.
    fn dump_permit(&self) -> Result<OwnedSemaphorePermit, DocumentError> {
        let permit = Arc::clone(&self.dumps).try_acquire_owned();
        permit.map_err(|_| DocumentError::Busy)
    }

    /// A package that a dump names, by its name without `.zip`. It stays while it is current, unless it is long.
    pub(super) async fn package(
        &self,
        source: PublishedSource,
        set: SetDocuments,
        name: &str,
    ) -> Result<Answered, Refusal> {
        let parsed = name.rsplit_once('-').filter(|_| set.dumps);
        let parsed = parsed.and_then(|(kind, number)| Some((kind, number.parse().ok()?)));
        let (kind, number): (_, i64) = parsed.ok_or(Refusal::NotFound)?;
        let is_of_changes = kind == CHANGE_DUMP;
        // One name for each.
        let is_name = format!("{kind}-{number}") == name;
        if !is_name || !(is_of_changes || kind == RESOURCE_DUMP) {
            return Err(Refusal::NotFound);
        }
        let state = self.state(&set).await?;
        if !is_of_changes && !set.may_have(SetDocument::ResourceListPage(number), state.last) {
            return Err(Refusal::NotFound);
        }
        let version = set.snapshot_version(&state);
        let key = set.topic(&format!("{name}.zip")).path().to_owned();
        let mut long = None;
        let making = async {
            let permit = self.dump_permit()?;
            let reading = self.store.published_document(move |rows| {
                Ok(if is_of_changes {
                    let span = set.span(rows, Some(number));
                    span.and_then(|span| {
                        let (numbers, times) = ((span.after, span.until), (span.from, span.closed));
                        Package::of_changes(&source, &set, rows, numbers, times)
                    })
                } else {
                    Package::of_page(&source, &set, rows, number)
                })
            });
            let package = reading.await??;
            if package.length() > MOST_KEPT {
                long = Some((package, permit));
                return Err(DocumentError::TooLong);
            }
            let (head, version) = (&package.head.md, version.clone());
            let modified = head.at.or(head.until).map(|time| time.to_datetime());
            let modified = modified.unwrap_or_else(|| clock::now().wall);
            let mut output = SpoolWriter::new(self.spool.folder())?;
            let writing = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                package.write(&mut output)?;
                output.finish(modified, version)
            });
            Ok(writing.await.map_err(io::Error::other)??)
        };
        let made = self.spool.get(&key, &version, making).await;
        if let Some((package, permit)) = long {
            return Ok(Answered::Response(package.answer(permit)));
        }
        Ok(Answered::File(SentFile::made(&*made?, "application/zip")))
    }

    /// The package that a request asks for.
    pub(super) async fn dump(&self, body: &[u8]) -> Result<Response, Refusal> {
        let request = serde_json::from_slice(body).map_err(|_| Refusal::BadDump)?;
        let permit = self.dump_permit()?;
        let package = match request {
            DumpRequest::Named { uris } => self.package_of(uris).await?,
            DumpRequest::Since { set, since } => self.package_since(&set, since).await?,
        };
        Ok(package.answer(permit))
    }

    async fn package_of(&self, uris: Vec<String>) -> Result<Package, Refusal> {
        if uris.is_empty() || uris.len() > MOST_NAMED {
            return Err(Refusal::BadDump);
        }
        let (base, sources) = (self.uris.at("").to_string(), self.sources());
        let finding = self.store.published_document(move |rows| {
            let mut found = Vec::new();
            for uri in &uris {
                let named = resource_at(rows, &sources, &base, uri)?;
                found.push(named.map(|(index, view)| (sources[index].clone(), view)));
            }
            let found: Option<Vec<_>> = found.into_iter().collect();
            let resources = found.unwrap_or_default().into_iter();
            let resources = resources.map(|(source, view)| Ok((source, rows.resource(view)?)));
            // It has all changes up to the newest one.
            let at = rows.newest_time()?;
            Ok((resources.collect::<Result<Vec<_>, StoreError>>()?, at))
        });
        let (resources, at) = finding.await?;
        let (source, _) = resources.first().ok_or(Refusal::NotFound)?;
        let mut package = Package::new(source, Capability::ResourceDumpManifest);
        package.head.md.at = at.map(SourceTime::from);
        let form = self.form_of(source);
        let mut named = HashSet::new();
        for (of, resource) in &resources {
            if of != source {
                return Err(Refusal::BadDump);
            }
            if named.insert(resource.view.id) {
                let path = resource.view.path.clone();
                package.members.push((form.resource(resource), path));
            }
        }
        Ok(package)
    }

    async fn package_since(&self, list: &str, since: i64) -> Result<Package, Refusal> {
        for source in &*self.sources() {
            for set in self.sets(source).await? {
                let is_named = set.uri(SetDocument::CapabilityList).as_str() == list
                    || set.set.capability_list.as_str() == list;
                if is_named {
                    let source = source.clone();
                    let making = self.store.published_document(move |rows| {
                        Ok(package_after(&source, &set, rows, since))
                    });
                    return Ok(making.await??);
                }
            }
        }
        Err(Refusal::NotFound)
    }
}

/// What has changed after a number, which must be one that the Change Lists reach back to.
fn package_after(
    source: &PublishedSource,
    set: &SetDocuments,
    rows: &PublishedRows<'_>,
    since: i64,
) -> Result<Package, DocumentError> {
    let spans = set.spans(rows)?;
    let first = spans.first().ok_or(DocumentError::Missing)?;
    let end = spans.last().map_or(since, |open| open.until);
    if since < first.after || since > end {
        return Err(DocumentError::Missing);
    }
    let from = rows.time_of(since)?.unwrap_or(first.from);
    Package::of_changes(source, set, rows, (since, end), (from, None))
}

/// How fast a package is read.
#[derive(Default)]
struct Pace {
    /// In bytes.
    sent: u64,
    /// How long it was waited for the reader.
    waited: Duration,
}

impl Pace {
    fn is_too_slow(&self) -> bool {
        let least = self.waited.as_secs().saturating_mul(SLOWEST);
        self.waited > PATIENCE && self.sent < least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_are_too_slow_lose_their_place() {
        for (sent, seconds, expected) in [
            (0, 0, false),
            (0, 60, false),
            (0, 61, true),
            (61 * SLOWEST - 1, 61, true),
            (61 * SLOWEST, 61, false),
            (1 << 40, 86_400, false),
            (1 << 30, 86_400, true),
        ] {
            let waited = Duration::from_secs(seconds);
            let pace = Pace { sent, waited };
            assert_eq!(pace.is_too_slow(), expected, "{sent} {seconds}");
        }
    }
}
