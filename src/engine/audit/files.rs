//! The files themselves, held against what they should be.

use std::fs::File;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio_util::sync::CancellationToken;

use super::Audit;
use crate::engine::EngineError;
use crate::engine::progress::Progress;
use crate::mirror::{MirrorError, MirrorPath, MirrorReader, file_time};
use crate::protocol::{Digest, Mismatch, SourceTime, Verifier};
use crate::store::{AuditDb, Expectation, Finding, FindingKind, KnownFile};

/// How many expectations are taken from the ledger at once.
const PAGE: usize = 512;
/// How many of them a thread looks at before it tells.
const A_THREAD: usize = 16;
/// What a file should be, as far as that is told.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) length: Option<u64>,
    pub(super) hashes: Vec<Digest>,
    pub(super) lastmod: Option<SourceTime>,
}

impl Facts {
    /// What the database says of a file.
    pub(super) fn of(known: &KnownFile) -> Self {
        Self {
            length: known.length,
            hashes: known.hashes.clone(),
            lastmod: known.lastmod,
        }
    }
}

/// What a file is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// As it should be, as far as is told.
    Right {
        /// Its length, in bytes.
        length: u64,
        /// The digests that were computed.
        hashes: Vec<Digest>,
        /// It does not have the time that was told. Where a digest is told, that does not count against it.
        misdated: bool,
    },
    /// Not there.
    Missing,
    /// Something else.
    Altered {
        /// In what, by stable names.
        differs: Vec<&'static str>,
        length: u64,
        hashes: Vec<Digest>,
    },
    /// It can't be read.
    Unreadable(MirrorError),
}

impl Audit {
    /// Compares every file that is expected.
    pub(super) async fn compare(
        &self,
        audit_db: &Arc<AuditDb>,
        reader: Option<&Arc<MirrorReader>>,
    ) -> Result<(), EngineError> {
        let at_once = std::thread::available_parallelism().map_or(2, usize::from);
        let mut after = 0;
        loop {
            let page = audit_db.expectations(after, PAGE)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = last.id;
            let groups: Vec<Vec<Expectation>> =
                page.chunks(A_THREAD).map(<[Expectation]>::to_vec).collect();
            let looking = groups.into_iter().map(|group| {
                let (reader, progress) = (reader.cloned(), Arc::clone(&self.progress));
                let mending = self.mending.is_some();
                async move {
                    let looking = tokio::task::spawn_blocking(move || {
                        look_at(reader.as_deref(), group, mending, &progress)
                    });
                    looking.await.map_err(|_| EngineError::Interrupted)
                }
            });
            let mut found = stream::iter(looking).buffer_unordered(at_once.clamp(2, 8));
            while let Some(findings) = found.try_next().await? {
                audit_db.add_findings(&findings)?;
            }
        }
    }
}

/// Finds the files that are not expected; answers how many of those are kept. For a blocking thread.
pub(super) fn find_extras(
    audit_db: &AuditDb,
    reader: &MirrorReader,
    deletes: bool,
    stop: &CancellationToken,
) -> Result<u64, EngineError> {
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
        if !deletes && place.known {
            kept += 1;
            continue;
        }
        findings.push(Finding {
            set: place.set,
            uri: place.uri,
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

fn look_at(
    reader: Option<&MirrorReader>,
    group: Vec<Expectation>,
    mending: bool,
    progress: &Progress,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for expectation in group {
        let facts = Facts {
            length: expectation.length,
            hashes: expectation.hashes.clone(),
            lastmod: expectation.lastmod,
        };
        let seen = reader.map_or(Seen::Missing, |reader| {
            examine(reader, &expectation.path, &facts, progress)
        });
        progress.count_applied();
        let found = |kind| Finding {
            set: Some(expectation.set),
            uri: Some(expectation.uri.to_string()),
            expected: Some(expectation.id),
            ..finding(kind, &expectation.path)
        };
        findings.extend(match seen {
            Seen::Right {
                length,
                hashes,
                misdated,
            } if mending && (misdated || !expectation.is_known) && !hashes.is_empty() => {
                Some(Finding {
                    length: Some(length),
                    hashes,
                    ..found(FindingKind::Unknown)
                })
            }
            Seen::Right { .. } => None,
            Seen::Missing => Some(found(FindingKind::Missing)),
            Seen::Altered {
                differs,
                length,
                hashes,
            } => Some(Finding {
                differs: differs.into_iter().map(str::to_owned).collect(),
                length: Some(length),
                hashes,
                ..found(FindingKind::Altered)
            }),
            Seen::Unreadable(error) => Some(Finding {
                differs: vec!["unreadable".to_owned()],
                code: Some(error.code().to_owned()),
                message: Some(error.to_string()),
                ..found(FindingKind::Altered)
            }),
        });
    }
    findings
}

/// What is wrong with a file.
fn finding(kind: FindingKind, path: &str) -> Finding {
    Finding {
        path: Some(path.to_owned()),
        ..Finding::new(kind)
    }
}

/// Looks at one file. For a blocking thread.
pub(super) fn examine(
    reader: &MirrorReader,
    path: &str,
    facts: &Facts,
    progress: &Progress,
) -> Seen {
    let opened = MirrorPath::parse(path).and_then(|path| reader.open_file(&path));
    let file = match opened {
        Ok(file) => file,
        // What is in the way of a file is not the file.
        Err(MirrorError::Missing { .. } | MirrorError::Blocked { .. }) => return Seen::Missing,
        Err(error) => return Seen::Unreadable(error),
    };
    match compare(file, facts, progress) {
        Ok(seen) => seen,
        Err(error) => Seen::Unreadable(MirrorError::reading(path, &error)),
    }
}

fn compare(mut file: File, facts: &Facts, progress: &Progress) -> std::io::Result<Seen> {
    let metadata = file.metadata()?;
    let length = metadata.len();
    let mut differs = Vec::new();
    let mut hashes = Vec::new();
    let mut verifier = Verifier::new(facts.length, &facts.hashes);
    let mut mismatch = verifier.check_length(length).err();
    if mismatch.is_none() && !facts.hashes.is_empty() {
        verifier.read_all(&mut file, |read| progress.count_bytes(read))?;
        let (verified, found) = verifier.compare();
        (hashes, mismatch) = (verified.digests, found);
    }
    differs.extend(mismatch.map(|mismatch| match mismatch {
        Mismatch::Length { .. } => "length",
        Mismatch::Digest { .. } => "digest",
    }));
    let modified = DateTime::<Utc>::from(metadata.modified()?).timestamp();
    let told = |time| DateTime::<Utc>::from(file_time(time)).timestamp();
    let misdated = facts.lastmod.is_some_and(|time| told(time) != modified);
    // Only a digest tells more.
    if misdated && facts.hashes.is_empty() {
        differs.push("lastmod");
    }
    Ok(if differs.is_empty() {
        Seen::Right {
            length,
            hashes,
            misdated,
        }
    } else {
        Seen::Altered {
            differs,
            length,
            hashes,
        }
    })
}
