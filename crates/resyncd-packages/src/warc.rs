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

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::sync::Arc;

use flate2::bufread::GzDecoder;
use resourcesync::media_type::GZIP_MAGIC;
use resourcesync::uri::parse_uri;
use resourcesync::{Capability, DocumentReader};
use url::Url;

use self::head::{HttpHead, RecordHead};
use self::made::MadeManifest;
use self::payload::RecordFile;
use super::archive::{Archive, Format, Opened};
use super::error::PackageError;
use super::member::MemberReader;
use crate::expansion::is_out_of_proportion;

/// The maximum number of records with a payload: each takes more memory than a member with the name of a file.
const MAX_RECORDS: usize = 300_000;

/// How many records may be the manifest.
const MAX_MANIFESTS: usize = 16;

/// WARC files.
pub(super) const FORMAT: Format = Format { begins, open };

const SIGNATURE: &[u8] = b"WARC/";

fn begins(start: &[u8]) -> bool {
    if start.starts_with(SIGNATURE) {
        return true;
    }
    let mut unpacked = [0; SIGNATURE.len()];
    let is_gzip = start.starts_with(&GZIP_MAGIC);
    is_gzip && GzDecoder::new(start).read_exact(&mut unpacked).is_ok() && unpacked == SIGNATURE
}

fn open(file: &Arc<File>, length: u64) -> Opened {
    let file = RecordFile::of(file, length)?;
    let mut scan = Scan {
        hashes: RandomState::new(),
        records: Vec::new(),
        metadata: Vec::new(),
        members: 0,
        manifests: Vec::new(),
        metadata_manifests: Vec::new(),
        read: 0,
    };
    let mut at = 0;
    while at < file.length {
        let Some(next) = scan.read_record(&file, at)? else {
            return Ok(None);
        };
        at = next;
    }
    let archive = scan.finish(file)?;
    Ok(Some(Arc::new(archive)))
}

/// What is known of a record; URIs and identifiers as hashes with a random key.
struct WarcRecord {
    uri: u64,
    id: u64,
    /// The digest of its payload, and 0 if it states none.
    digest: u64,
    /// Its URI at its time.
    moment: u64,
    /// The time in microseconds.
    date: i64,
    at: u64,
    /// Of a revisit: the identifier and the moment of the record that has its payload.
    revisits: Option<(u64, u64)>,
}

/// A record of metadata: it may be nothing but the manifest.
struct Described {
    /// Its URI, as a hash.
    uri: u64,
    date: i64,
    at: u64,
}

/// The records read so far.
struct Scan {
    hashes: RandomState,
    records: Vec<WarcRecord>,
    /// The records of metadata that have a URI.
    metadata: Vec<Described>,
    members: usize,
    /// The records that may be the manifest.
    manifests: Vec<u64>,
    /// The records of metadata that may be.
    metadata_manifests: Vec<u64>,
    /// How many bytes were decompressed.
    read: u64,
}

impl Scan {
    /// Reads the record at a position, and returns the position of the next one; `None`: what is compressed there is more than the
    /// record.
    fn read_record(&mut self, file: &RecordFile, at: u64) -> Result<Option<u64>, PackageError> {
        let mut stream = file.stream(at);
        let Some(head) = RecordHead::read(&mut stream)? else {
            // Empty lines at the end.
            return stream.next_record();
        };
        self.members += 1;
        let mut block = stream.by_ref().take(head.length);
        let has_payload = match &head {
            // What holds no response does not matter.
            head if head.is_response() => {
                HttpHead::read(&mut block).is_ok_and(|http| http.status == 200)
            }
            head => head.is_resource() || head.is_revisit(),
        };
        let left = block.limit();
        if has_payload {
            self.add(&head, at);
        } else if head.is_metadata() {
            self.add_metadata(&head, at);
        }
        if self.records.len() > MAX_RECORDS {
            return Err(PackageError::TooManyMembers { limit: MAX_RECORDS });
        }
        self.read = self.read.saturating_add(head.length);
        if file.is_gzip && is_out_of_proportion(self.read, file.length) {
            return Err(PackageError::Expansion);
        }
        stream.skip(left)?;
        stream.next_record()
    }

    fn add(&mut self, head: &RecordHead, at: u64) {
        let Some(uri) = &head.uri else {
            return;
        };
        let refers = (&head.refers_to, &head.refers_to_uri, head.refers_to_date);
        let hash = |text: &Option<String>| text.as_ref().map_or(0, |text| self.hash(text));
        let moment = |uri: &Url, date: Option<i64>| self.hashes.hash_one((uri.as_str(), date));
        let revisited = refers.1.as_ref().map(|uri| moment(uri, refers.2));
        let is_revisit = head.is_revisit();
        let record = WarcRecord {
            uri: self.hash(uri.as_str()),
            id: hash(&head.id),
            digest: hash(&head.payload_digest),
            moment: moment(uri, head.date),
            date: head.date.unwrap_or(i64::MIN),
            at,
            revisits: is_revisit.then(|| (hash(refers.0), revisited.unwrap_or_default())),
        };
        self.records.push(record);
        if is_named_manifest(uri) && !is_revisit && self.manifests.len() < MAX_MANIFESTS {
            self.manifests.push(at);
        }
    }

    fn add_metadata(&mut self, head: &RecordHead, at: u64) {
        // Crawlers write one for each response: those beyond the limit are no manifest, and nothing else is lost.
        let has_room = self.metadata.len() < MAX_RECORDS;
        let Some(uri) = head.uri.as_ref().filter(|_| has_room) else {
            return;
        };
        self.metadata.push(Described {
            uri: self.hash(uri.as_str()),
            date: head.date.unwrap_or(i64::MIN),
            at,
        });
        if is_named_manifest(uri) && self.metadata_manifests.len() < MAX_MANIFESTS {
            self.metadata_manifests.push(at);
        }
    }

    fn hash(&self, text: &str) -> u64 {
        self.hashes.hash_one(text)
    }

    fn finish(mut self, file: RecordFile) -> Result<Warc, PackageError> {
        let payloads = payloads_of_revisits(&self.records);
        let mut entries: Vec<NamedRecord> = self
            .records
            .iter()
            .map(|record| NamedRecord {
                name: record.uri,
                date: record.date,
                at: record.at,
                payload: match record.revisits {
                    None => Some(record.at),
                    Some((id, moment)) => [id, moment, record.digest]
                        .iter()
                        .find_map(|key| payloads.get(key).copied()),
                },
            })
            .collect();
        entries.sort_unstable_by_key(|entry| (entry.name, entry.date, entry.at));
        let count = entries.len();
        let last = |index: usize, entries: &[NamedRecord]| {
            index + 1 == count || entries[index + 1].name != entries[index].name
        };
        let mut places: Vec<u64> = (0..count)
            .filter(|index| last(*index, &entries))
            .map(|index| entries[index].at)
            .collect();
        places.sort_unstable();
        let by_id = self.records.iter().filter(|record| record.id != 0);
        entries.extend(by_id.map(|record| NamedRecord {
            name: record.id,
            date: record.date,
            at: record.at,
            payload: record.revisits.is_none().then_some(record.at),
        }));
        entries.sort_unstable_by_key(|entry| (entry.name, entry.date, entry.at));
        let newest: HashSet<u64> = places.iter().copied().collect();
        let file = Arc::new(file);
        let manifests = self.manifests.iter().filter(|at| newest.contains(*at));
        let mut manifest = find_manifest(&file, manifests)?;
        let metadata = &mut self.metadata;
        metadata.sort_unstable_by_key(|record| (record.uri, record.date, record.at));
        // Of one URI the last one counts.
        metadata.reverse();
        metadata.dedup_by_key(|record| record.uri);
        if manifest.is_none() {
            let newest: HashSet<u64> = self.metadata.iter().map(|record| record.at).collect();
            let manifests = self.metadata_manifests.iter();
            manifest = find_manifest(&file, manifests.filter(|at| newest.contains(*at)))?;
        }
        Ok(Warc {
            hashes: self.hashes,
            file,
            entries,
            places: Arc::new(places),
            metadata: self.metadata,
            members: self.members,
            manifest,
        })
    }
}

fn is_named_manifest(uri: &Url) -> bool {
    uri.path().to_ascii_lowercase().ends_with("manifest.xml")
}

/// Where the payloads are that revisits refer to, by identifier, moment or digest.
fn payloads_of_revisits(records: &[WarcRecord]) -> HashMap<u64, u64> {
    let revisits = records.iter().filter_map(|record| {
        let (id, moment) = record.revisits?;
        Some([id, moment, record.digest])
    });
    let wanted: HashSet<u64> = revisits.flatten().filter(|key| *key != 0).collect();
    let mut found = HashMap::new();
    for record in records.iter().filter(|record| record.revisits.is_none()) {
        for key in [record.id, record.moment, record.digest] {
            if wanted.contains(&key) {
                found.entry(key).or_insert(record.at);
            }
        }
    }
    found
}

/// The record that is a manifest: one that states that it is one, or else the only one that is a document at all.
fn find_manifest<'a>(
    file: &Arc<RecordFile>,
    candidates: impl Iterator<Item = &'a u64>,
) -> Result<Option<u64>, PackageError> {
    let base = parse_uri("http://manifest.invalid/").ok();
    let (mut stated, mut others) = (Vec::new(), Vec::new());
    for at in candidates {
        let Ok(member) = payload::open(file, *at) else {
            continue;
        };
        let read = base
            .as_ref()
            .and_then(|base| DocumentReader::open(member.buffered(), base).ok());
        match read.map(|read| read.head().md.capability.clone()) {
            Some(Some(Capability::ResourceDumpManifest | Capability::ChangeDumpManifest)) => {
                stated.push(*at)
            }
            Some(None) => others.push(*at),
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

/// A URI or an identifier, and the record that it names.
struct NamedRecord {
    name: u64,
    date: i64,
    at: u64,
    /// The position of the record that has its payload.
    payload: Option<u64>,
}

/// An open WARC.
struct Warc {
    hashes: RandomState,
    file: Arc<RecordFile>,
    /// By name, and of one name by time.
    entries: Vec<NamedRecord>,
    /// The positions of the records that count.
    places: Arc<Vec<u64>>,
    /// The records of metadata, the last one of each URI.
    metadata: Vec<Described>,
    members: usize,
    manifest: Option<u64>,
}

impl Warc {
    fn find(&self, name: &str) -> Option<&NamedRecord> {
        let hash = match parse_uri(name) {
            Ok(uri) => self.hashes.hash_one(uri.as_str()),
            Err(_) => self.hashes.hash_one(name),
        };
        let end = self.entries.partition_point(|entry| entry.name <= hash);
        let last = self.entries[..end].last();
        last.filter(|entry| entry.name == hash)
    }
}

impl Archive for Warc {
    fn name_manifest(&mut self, uri: &Url) {
        let payload = self.find(uri.as_str()).and_then(|entry| entry.payload);
        let hash = self.hashes.hash_one(uri.as_str());
        let described = self.metadata.iter().find(|record| record.uri == hash);
        let candidates = payload.into_iter().chain(described.map(|record| record.at));
        // At most one of a call: none of them is ambiguous.
        let mut found =
            candidates.filter_map(|at| find_manifest(&self.file, [at].iter()).ok().flatten());
        if let Some(named) = found.next() {
            self.manifest = Some(named);
        }
    }

    fn manifest(&self) -> Result<MemberReader, PackageError> {
        match self.manifest {
            Some(at) => payload::open(&self.file, at),
            None => {
                let made = MadeManifest::new(Arc::clone(&self.file), Arc::clone(&self.places));
                Ok(MemberReader::new(Box::new(made), None))
            }
        }
    }

    fn member(&self, path: &str) -> Result<MemberReader, PackageError> {
        let entry = self.find(path);
        let entry = entry.ok_or_else(|| PackageError::NoMember(path.to_owned()))?;
        let payload = entry.payload.ok_or_else(|| {
            let reason = "it revisits a record that is not in the package";
            PackageError::BadMember(reason.to_owned())
        })?;
        payload::open(&self.file, payload)
    }

    fn members(&self) -> usize {
        self.members
    }

    fn path_of(&self, path: Option<String>, uri: &str) -> Option<String> {
        path.filter(|path| self.find(path).is_some())
            .or_else(|| self.find(uri).map(|_| uri.to_owned()))
    }

    fn makes_manifest(&self) -> bool {
        self.manifest.is_none()
    }
}
