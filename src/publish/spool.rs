//! Documents that were made, as files without a name: who asks for the same one again gets the same bytes, and nothing of a long one is in
//! memory.
//!
//! Invariants: a document is made once for all who ask for it at a time. One that is out of date is passed on only for a few times as long as
//! it takes to make it, so that making documents takes no more than a part of one processor, however many ask for them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use resyncd_mirror::MirrorFile;
use sha2::{Digest as _, Sha256};

use super::uris::hexadecimal;
use crate::clock;
use crate::store::StoreError;

/// For how long a document stays that nobody asks for.
const IDLE: Duration = Duration::from_secs(60);
/// For how long a document counts as up to date at most: that a resource has only left one of several sets is no change.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How many bytes of documents stay at most, besides those that are being sent.
const MOST_BYTES: u64 = 512 << 20;
/// How many times as long as it takes to make a document it is passed on although it is out of date.
const REUSED: u32 = 5;

/// Why a document can't be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum DocumentError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of it can't be read, or the temporary file can't be written.
    #[error("it can't be made: {0}")]
    Io(#[from] io::Error),
    /// There is no such document.
    #[error("nothing is published here")]
    Missing,
    /// Other dumps are being made.
    #[error("other dumps are being made")]
    Busy,
    /// It would have more entries or bytes than a document may have (the core, section 7).
    #[error("the document is too long")]
    TooLong,
}

impl DocumentError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Io(_) => "io",
            Self::Missing => "not-published",
            Self::Busy => "dumps-busy",
            Self::TooLong => "too-large",
        }
    }
}

/// A document that was made.
pub(super) struct Spooled {
    pub(super) file: Arc<MirrorFile>,
    pub(super) length: u64,
    /// A digest of its bytes.
    pub(super) etag: String,
    /// The time of what it states.
    pub(super) modified: DateTime<Utc>,
    /// What it was made of: it is up to date while that is the same.
    version: String,
    made_at: Instant,
    cost: Duration,
}

/// Writes the file of a document.
pub(super) struct SpoolWriter {
    file: BufWriter<File>,
    hash: Sha256,
    length: u64,
    begun_at: Instant,
}

impl SpoolWriter {
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        Ok(Self {
            file: BufWriter::with_capacity(1 << 16, tempfile::tempfile_in(folder)?),
            hash: Sha256::new(),
            length: 0,
            begun_at: clock::now().mono,
        })
    }

    /// How many bytes there are.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Completes the document.
    pub(super) fn finish(self, modified: DateTime<Utc>, version: String) -> io::Result<Spooled> {
        let digest = self.hash.finalize();
        let etag = hexadecimal(&digest[..12]);
        let made_at = clock::now().mono;
        Ok(Spooled {
            file: Arc::new(
                self.file
                    .into_inner()
                    .map_err(io::IntoInnerError::into_error)?
                    .into(),
            ),
            length: self.length,
            etag,
            modified,
            version,
            made_at,
            cost: made_at.saturating_duration_since(self.begun_at),
        })
    }
}

impl Write for SpoolWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The documents that stay.
pub(super) struct Spool {
    folder: PathBuf,
    documents: Mutex<HashMap<String, Place>>,
}

#[derive(Clone)]
struct Place {
    document: Arc<tokio::sync::Mutex<Option<Arc<Spooled>>>>,
    asked_at: Instant,
    bytes: u64,
}

impl Spool {
    /// `folder`: on a disk, where documents of many gigabytes may be.
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            documents: Mutex::default(),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The document of a name, made now unless there is one of that version, or one that may still be passed on.
    pub(super) async fn get(
        &self,
        name: &str,
        version: &str,
        make: impl Future<Output = Result<Spooled, DocumentError>>,
    ) -> Result<Arc<Spooled>, DocumentError> {
        let now = clock::now().mono;
        let place = {
            let mut documents = self.documents.lock();
            self.remove_idle(&mut documents, now);
            let place = documents.entry(name.to_owned()).or_insert_with(|| Place {
                document: Arc::default(),
                asked_at: now,
                bytes: 0,
            });
            place.asked_at = now;
            Arc::clone(&place.document)
        };
        let mut document = place.lock().await;
        if let Some(known) = &*document {
            let age = clock::now().mono.saturating_duration_since(known.made_at);
            let is_current = known.version == version && age < LONGEST;
            if is_current || age < known.cost * REUSED {
                return Ok(Arc::clone(known));
            }
        }
        let made = match make.await {
            Ok(made) => Arc::new(made),
            Err(error) => {
                // Nothing is remembered of what there is not.
                if document.is_none() {
                    self.documents.lock().remove(name);
                }
                return Err(error);
            }
        };
        *document = Some(Arc::clone(&made));
        if let Some(place) = self.documents.lock().get_mut(name) {
            place.bytes = made.length;
        }
        Ok(made)
    }

    /// Removes what nobody has asked for lately, and the oldest beyond the most bytes.
    fn remove_idle(&self, documents: &mut HashMap<String, Place>, now: Instant) {
        documents.retain(|_, place| now.saturating_duration_since(place.asked_at) < IDLE);
        while documents.values().map(|place| place.bytes).sum::<u64>() > MOST_BYTES {
            let oldest = documents.iter().min_by_key(|(_, place)| place.asked_at);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else {
                return;
            };
            documents.remove(&name);
        }
    }
}
