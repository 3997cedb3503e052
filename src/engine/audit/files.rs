//! Compares the files with what is expected of them.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures_util::{StreamExt, TryStreamExt, stream};
use resourcesync::{ContentInfo, Digest, Mismatch, SourceTime, Verifier};
use resyncd_core::ResourceUri;
use resyncd_mirror::{MirrorError, MirrorFile, MirrorPath, MirrorReader, file_time};
use tokio_util::sync::CancellationToken;

use super::context::AuditContext;
use crate::clock;
use crate::config::Source;
use crate::engine::EngineError;
use crate::engine::progress::Progress;
use crate::store::{AuditDb, Expectation, Finding, FindingKind, KnownFile, ResourceId};

/// How many expectations are read from the audit database at once.
const PAGE: usize = 512;
/// How many of them a thread compares at a time.
const A_THREAD: usize = 16;
/// How many times as long as it reads an audit rests that has time.
const RESTS: u32 = 3;

/// What a file should be, as far as it is stated.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpectedFile {
    pub(super) content: ContentInfo,
    pub(super) lastmod: Option<SourceTime>,
}

impl ExpectedFile {
    /// As the record of the file states it.
    pub(super) fn of(known: &KnownFile) -> Self {
        Self {
            content: ContentInfo {
                length: known.length,
                media_type: None,
                hashes: known.hashes.clone(),
            },
            lastmod: known.lastmod,
        }
    }
}

/// How a file compares.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileState {
    /// As expected.
    Right {
        /// Its length, in bytes.
        length: u64,
        /// The digests that were computed.
        hashes: Vec<Digest>,
        /// It has another time. That is no error where a digest is stated.
        misdated: bool,
    },
    /// Not there.
    Missing,
    /// It differs.
    Altered {
        /// In what, by stable names.
        differs: Vec<&'static str>,
        length: u64,
        hashes: Vec<Digest>,
    },
    /// It can't be read.
    Unreadable(MirrorError),
}

impl AuditContext {
    /// Compares every file that is expected.
    pub(super) async fn compare(
        &self,
        audit_db: &Arc<AuditDb>,
        reader: Option<&Arc<MirrorReader>>,
    ) -> Result<(), EngineError> {
        let at_once = std::thread::available_parallelism().map_or(2, usize::from);
        let at_once = if self.rests { 1 } else { at_once.clamp(2, 8) };
        let mut after = ResourceId(0);
        loop {
            let page = audit_db.expectations(after, PAGE)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = last.id;
            let groups: Vec<Vec<Expectation>> =
                page.chunks(A_THREAD).map(<[Expectation]>::to_vec).collect();
            let comparing = groups.into_iter().map(|group| {
                let (reader, progress) = (reader.cloned(), Arc::clone(&self.progress));
                let (repairs, rests) = (self.repair.is_some(), self.rests);
                async move {
                    let began = clock::now().mono;
                    let comparing = tokio::task::spawn_blocking(move || {
                        compare_group(reader.as_deref(), group, repairs, &progress)
                    });
                    let compared = comparing.await;
                    if rests {
                        let took = clock::now().mono.saturating_duration_since(began);
                        tokio::time::sleep(took.saturating_mul(RESTS)).await;
                    }
                    compared.map_err(|error| EngineError::of_join(&error, "the mirror"))
                }
            });
            let mut found = stream::iter(comparing).buffer_unordered(at_once);
            while let Some(findings) = found.try_next().await? {
                audit_db.add_findings(&findings)?;
            }
        }
    }
}

/// Finds the files that are not expected; returns how many of deleted resources stay. For a blocking thread.
pub(super) fn find_extras(
    audit_db: &AuditDb,
    reader: &MirrorReader,
    source: &Source,
    stop: &CancellationToken,
) -> Result<u64, EngineError> {
    let wants = |uri: &ResourceUri| source.filter.wants(uri);
    let mut kept = 0;
    let mut findings = Vec::new();
    for path in reader.files() {
        if stop.is_cancelled() {
            return Err(EngineError::Interrupted);
        }
        let path = path?;
        let place = audit_db.path_state(path.as_str())?;
        if place.expected {
            continue;
        }
        if !source.delete && place.known && place.uri.as_ref().is_some_and(wants) {
            kept += 1;
            continue;
        }
        findings.push(Finding {
            set: place.set,
            uri: place.uri.map(|uri| uri.to_string()),
            ..finding(FindingKind::Extra, path.as_str())
        });
        if findings.len() >= PAGE {
            audit_db.add_findings(&findings)?;
            findings.clear();
        }
    }
    audit_db.add_findings(&findings)?;
    Ok(kept)
}

fn compare_group(
    reader: Option<&MirrorReader>,
    group: Vec<Expectation>,
    repairs: bool,
    progress: &Progress,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for expectation in group {
        let expected = ExpectedFile {
            content: expectation.content.clone(),
            lastmod: expectation.lastmod,
        };
        let seen = reader.map_or(FileState::Missing, |reader| {
            examine(reader, &expectation.path, &expected, progress)
        });
        progress.count_applied();
        let found = |kind| Finding {
            set: expectation.set,
            uri: Some(expectation.uri.to_string()),
            expected: Some(expectation.id),
            ..finding(kind, &expectation.path)
        };
        findings.extend(match seen {
            FileState::Right {
                length,
                hashes,
                misdated,
            } if repairs && (misdated || !expectation.is_known) && !hashes.is_empty() => {
                Some(Finding {
                    length: Some(length),
                    hashes,
                    ..found(FindingKind::Unknown)
                })
            }
            FileState::Right { .. } => None,
            FileState::Missing => Some(found(FindingKind::Missing)),
            FileState::Altered {
                differs,
                length,
                hashes,
            } => Some(Finding {
                differs: differs.into_iter().map(str::to_owned).collect(),
                length: Some(length),
                hashes,
                ..found(FindingKind::Altered)
            }),
            FileState::Unreadable(error) => Some(Finding {
                differs: vec!["unreadable".to_owned()],
                code: Some(error.code().to_owned()),
                message: Some(error.to_string()),
                ..found(FindingKind::Altered)
            }),
        });
    }
    findings
}

/// A finding about a file.
fn finding(kind: FindingKind, path: &str) -> Finding {
    Finding {
        path: Some(path.to_owned()),
        ..Finding::new(kind)
    }
}

/// Compares one file. For a blocking thread.
pub(super) fn examine(
    reader: &MirrorReader,
    path: &str,
    expected: &ExpectedFile,
    progress: &Progress,
) -> FileState {
    let parsed = MirrorPath::parse(path).map_err(MirrorError::from);
    let opened = parsed.and_then(|path| reader.open_file(&path));
    let file = match opened {
        Ok(file) => file,
        // A folder in its place is not the file.
        Err(MirrorError::Missing { .. } | MirrorError::Blocked { .. }) => {
            return FileState::Missing;
        }
        Err(error) => return FileState::Unreadable(error),
    };
    match compare(file, expected, progress) {
        Ok(seen) => seen,
        Err(error) => FileState::Unreadable(MirrorError::reading(path, &error)),
    }
}

fn compare(
    mut file: MirrorFile,
    expected: &ExpectedFile,
    progress: &Progress,
) -> std::io::Result<FileState> {
    let metadata = file.metadata()?;
    let length = metadata.length;
    let mut differs = Vec::new();
    let mut hashes = Vec::new();
    let mut verifier = Verifier::new(expected.content.length, &expected.content.hashes);
    let mut mismatch = verifier.check_length(length).err();
    let stated = &expected.content.hashes;
    if mismatch.is_none() && file.is_stored_with(stated) {
        hashes.clone_from(stated);
    } else if mismatch.is_none() && !stated.is_empty() {
        verifier.read_all(&mut file, |read| progress.count_bytes(read))?;
        let (verified, found) = verifier.compare();
        (hashes, mismatch) = (verified.digests, found);
    }
    differs.extend(mismatch.map(|mismatch| match mismatch {
        Mismatch::Length { .. } => "length",
        Mismatch::Digest { .. } => "digest",
    }));
    let modified = DateTime::<Utc>::from(metadata.modified).timestamp();
    let stated = |time| DateTime::<Utc>::from(file_time(time)).timestamp();
    let misdated = expected
        .lastmod
        .is_some_and(|time| stated(time) != modified);
    // Without a digest only the time distinguishes versions.
    if misdated && expected.content.hashes.is_empty() {
        differs.push("lastmod");
    }
    Ok(if differs.is_empty() {
        FileState::Right {
            length,
            hashes,
            misdated,
        }
    } else {
        FileState::Altered {
            differs,
            length,
            hashes,
        }
    })
}
