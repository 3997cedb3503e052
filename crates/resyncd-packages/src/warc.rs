//! WARC files (ISO 28500), plain or with a gzip member for each record.
//!
//! A record is found by its URI, or by its own identifier; the path in a manifest may be either, and is otherwise passed over. Of the
//! records of a URI the last one counts by its `WARC-Date`. Nothing is unpacked: a record is read where it is, so that opening takes
//! some bytes for each record, and reading takes a buffer.
//!
//! The manifest is the record at the URI that the entry of the package states (`contents`), or else one whose URI ends in
//! `manifest.xml`; it may be a `metadata` record, which is nothing else. A WARC need not have a manifest. Then one is made of what its
//! records state; it does not state that it is one, so that nothing follows from what it does not name.

mod head;
mod made;
mod payload;

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::sync::Arc;

use flate2::bufread::GzDecoder;
use resourcesync::media_type::GZIP_MAGIC;
use resourcesync::uri::parse_uri;
use resourcesync::{Capability, DocumentReader};
use url::Url;

use self::head::{HttpHead, RecordHead, RecordKind};
use self::made::MadeManifest;
use self::payload::{Input, RecordFile};
use super::error::PackageError;
use super::member::MemberReader;
use crate::unpacked::is_out_of_proportion;

/// The maximum number of records with a payload: each takes more memory than a member with the name of a file.
const MAX_RECORDS: usize = 300_000;

/// How many records may be the manifest.
const MAX_MANIFESTS: usize = 16;

/// How many bytes may follow a record in its gzip member, in bytes: two ends of a line.
const MAX_TRAILER: u64 = 1024;

const SIGNATURE: &[u8] = b"WARC/";

/// Whether the first record begins so, plain or compressed.
pub(super) fn begins(start: &[u8]) -> bool {
    let mut unpacked = [0; SIGNATURE.len()];
    let is_packed = GzDecoder::new(start).read_exact(&mut unpacked).is_ok();
    start.starts_with(SIGNATURE) || is_packed && unpacked == SIGNATURE
}

/// Opens a file of this length that begins so; `None` if it must be decompressed as a whole first.
pub(super) fn open(
    file: &Arc<File>,
    length: u64,
    start: &[u8],
) -> Result<Option<Warc>, PackageError> {
    let is_gzip = start.starts_with(&GZIP_MAGIC);
    let file = RecordFile {
        file: Arc::clone(file),
        length,
        is_gzip,
    };
    let mut warc = Warc {
        hashes: RandomState::new(),
        file: file.clone(),
        records: Index::default(),
        metadata: Index::default(),
        payloads: HashMap::new(),
        members: 0,
        with_payload: 0,
        manifest: None,
    };
    let (mut at, mut read) = (0, 0_u64);
    while at < length {
        let mut section = file.section(at);
        let mut input = file.records(&mut section);
        let mut left = 0;
        // Otherwise empty lines at the end.
        if let Some(head) = RecordHead::read(&mut input)? {
            let mut block = input.by_ref().take(head.length);
            // What holds no response does not matter.
            let is_found = head.kind != RecordKind::Response
                || HttpHead::read(&mut block).is_ok_and(|http| http.status == 200);
            left = block.limit();
            warc.members += 1;
            if is_found {
                warc.add(&head, at)?;
            }
            read = read.saturating_add(head.length);
            if is_gzip && is_out_of_proportion(read, length) {
                return Err(PackageError::Expansion);
            }
        }
        if is_gzip {
            if !ends_after(input, left).map_err(PackageError::of_decoder)? {
                return Ok(None);
            }
            left = 0;
        } else {
            drop(input);
        }
        let position = section.get_ref().at - section.buffer().len() as u64;
        at = position.saturating_add(left);
    }
    if at > length {
        return Err(PackageError::damaged("cut short"));
    }
    for index in [&warc.records, &warc.metadata] {
        if warc.manifest.is_none() {
            let manifests = index.manifests.iter();
            let manifests = manifests.filter_map(|uri| warc.payload_of(index.newest.get(uri)?));
            warc.manifest = find_manifest(&file, manifests)?;
        }
    }
    Ok(Some(warc))
}

/// Whether a gzip member ends after so many more bytes of its record.
fn ends_after(mut input: Input<'_>, left: u64) -> io::Result<bool> {
    if io::copy(&mut input.by_ref().take(left), &mut io::sink())? < left {
        return Err(io::Error::other("cut short"));
    }
    let mut trailer = Vec::new();
    let mut rest = input.take(MAX_TRAILER);
    rest.read_to_end(&mut trailer)?;
    Ok(rest.limit() > 0 && trailer.iter().all(|byte| b"\r\n".contains(byte)))
}

/// A record of a URI.
#[derive(Clone, Copy)]
struct Version {
    /// In microseconds.
    date: i64,
    at: u64,
    /// Of a revisit: what may name the record that has its payload, and 0 for what it does not state.
    revisits: Option<[u64; 3]>,
}

/// The newest records by their URIs.
#[derive(Default)]
struct Index {
    newest: HashMap<u64, Version>,
    /// The URIs of those that may be the manifest.
    manifests: Vec<u64>,
}

impl Index {
    fn add(&mut self, uri: u64, is_manifest: bool, version: Version) {
        let known = self.newest.entry(uri).or_insert(version);
        if version.date >= known.date {
            *known = version;
        }
        let has_room = self.manifests.len() < MAX_MANIFESTS;
        if is_manifest && has_room && !self.manifests.contains(&uri) {
            self.manifests.push(uri);
        }
    }
}

/// The record that is a manifest: one that states that it is one, or else the only one that is a document at all.
fn find_manifest(
    file: &RecordFile,
    candidates: impl IntoIterator<Item = u64>,
) -> Result<Option<u64>, PackageError> {
    let Ok(base) = parse_uri("http://manifest.invalid/") else {
        return Ok(None);
    };
    let (mut stated, mut others) = (Vec::new(), Vec::new());
    for at in candidates {
        let member = payload::open(file, at).ok();
        let read = member.and_then(|it| DocumentReader::open(it.buffered(), &base).ok());
        match read.as_ref().map(|read| &read.head().md.capability) {
            Some(Some(Capability::ResourceDumpManifest | Capability::ChangeDumpManifest)) => {
                stated.push(at)
            }
            Some(None) => others.push(at),
            Some(Some(_)) | None => {}
        }
    }
    let found = if stated.is_empty() { others } else { stated };
    match found[..] {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        _ => Err(PackageError::AmbiguousMember("manifest.xml".to_owned())),
    }
}

/// An open WARC. URIs, identifiers and digests are hashes with a random key.
pub(super) struct Warc {
    hashes: RandomState,
    file: RecordFile,
    /// The records with a payload.
    records: Index,
    /// The records of metadata: one may be nothing but the manifest.
    metadata: Index,
    /// The positions of payloads by identifier, by URI with time, and by digest.
    payloads: HashMap<u64, u64>,
    /// The number of records.
    pub(super) members: usize,
    with_payload: usize,
    /// The position of the record that is the manifest; `None` if one is made of what the records state.
    pub(super) manifest: Option<u64>,
}

impl Warc {
    fn add(&mut self, head: &RecordHead, at: u64) -> Result<(), PackageError> {
        let Some(uri) = &head.uri else {
            return Ok(());
        };
        let hash = |text: Option<&str>| text.map_or(0, |text| self.hashes.hash_one(text));
        let moment = |uri: &Url, date: Option<i64>| self.hashes.hash_one((uri.as_str(), date));
        let digest = hash(head.payload_digest.as_deref());
        let revisited = head.refers_to_uri.as_ref();
        let revisited = revisited.map_or(0, |uri| moment(uri, head.refers_to_date));
        let is_revisit = head.kind == RecordKind::Revisit;
        let version = Version {
            date: head.date.unwrap_or(i64::MIN),
            at,
            revisits: is_revisit.then(|| [hash(head.refers_to.as_deref()), revisited, digest]),
        };
        let keys = [hash(head.id.as_deref()), moment(uri, head.date), digest];
        let key = hash(Some(uri.as_str()));
        let is_manifest = uri.path().to_ascii_lowercase().ends_with("manifest.xml");
        match head.kind {
            RecordKind::Other => return Ok(()),
            // Crawlers write one for each response: those beyond the limit are no manifest, and nothing else is lost.
            RecordKind::Metadata => {
                if self.metadata.newest.len() < MAX_RECORDS {
                    self.metadata.add(key, is_manifest, version);
                }
                return Ok(());
            }
            RecordKind::Resource | RecordKind::Response => {
                for key in keys.into_iter().filter(|key| *key != 0) {
                    self.payloads.entry(key).or_insert(at);
                }
            }
            RecordKind::Revisit => {}
        }
        self.records.add(key, is_manifest && !is_revisit, version);
        self.with_payload += 1;
        if self.with_payload > MAX_RECORDS {
            return Err(PackageError::TooManyMembers(MAX_RECORDS));
        }
        Ok(())
    }

    /// The position of the record that has the payload of another one.
    fn payload_of(&self, version: &Version) -> Option<u64> {
        match version.revisits {
            None => Some(version.at),
            Some(keys) => keys.iter().find_map(|key| self.payloads.get(key).copied()),
        }
    }

    fn hash_of(&self, name: &str) -> u64 {
        match parse_uri(name) {
            Ok(uri) => self.hashes.hash_one(uri.as_str()),
            Err(_) => self.hashes.hash_one(name),
        }
    }

    /// Whether there is a record of a URI or an identifier, also if another package has its payload.
    fn names(&self, name: &str) -> bool {
        let hash = self.hash_of(name);
        self.records.newest.contains_key(&hash) || self.payloads.contains_key(&hash)
    }

    /// The position of the payload of a URI or an identifier.
    fn find(&self, name: &str) -> Option<u64> {
        let hash = self.hash_of(name);
        match self.records.newest.get(&hash) {
            Some(version) => self.payload_of(version),
            None => self.payloads.get(&hash).copied(),
        }
    }

    /// Names the record that is the manifest, as the entry of the package does (`contents`). It changes nothing if there is no such
    /// record, or it is no manifest.
    pub(super) fn name_manifest(&mut self, uri: &Url) {
        let payload = self.find(uri.as_str());
        let hash = self.hashes.hash_one(uri.as_str());
        let described = self.metadata.newest.get(&hash).map(|record| record.at);
        let mut candidates = payload.into_iter().chain(described);
        // At most one of a call: none of them is ambiguous.
        let named = candidates.find_map(|at| find_manifest(&self.file, [at]).ok().flatten());
        self.manifest = named.or(self.manifest);
    }

    /// Opens the manifest, or the one that is made.
    pub(super) fn manifest(&self) -> Result<MemberReader, PackageError> {
        if let Some(at) = self.manifest {
            return payload::open(&self.file, at);
        }
        let newest = self.records.newest.values();
        let mut places: Vec<u64> = newest.map(|record| record.at).collect();
        places.sort_unstable();
        let made = MadeManifest::new(self.file.clone(), places)?;
        Ok(MemberReader::new(made, None))
    }

    /// Opens the payload of a URI or an identifier.
    pub(super) fn member(&self, path: &str) -> Result<MemberReader, PackageError> {
        match self.find(path) {
            Some(payload) => payload::open(&self.file, payload),
            None if self.names(path) => Err(PackageError::bad_member(
                "it revisits a record that is not in the package",
            )),
            None => Err(PackageError::NoMember(path.to_owned())),
        }
    }

    /// The path of the payload of a URI: the one that a manifest states if it finds a record, else the URI.
    pub(super) fn path_of(&self, path: Option<String>, uri: &str) -> Option<String> {
        let uri = Some(uri.to_owned());
        let mut names = path.into_iter().chain(uri);
        names.find(|name| self.names(name))
    }
}
