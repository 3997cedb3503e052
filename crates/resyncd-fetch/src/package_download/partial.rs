//! A package on disk that is being downloaded, and the record of the download.
//!
//! Two files: `NAME.part` has the received bytes, `NAME.json` the record of what the server stated. The name is the SHA-256 of
//! the URI, so that no remote text becomes the name of a file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use resourcesync::{Algorithm, Digest};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::ranges::DownloadRecord;

/// A package that is being downloaded, or is complete.
///
/// Only one at a time can be open for the same folder and URI. Its files remain when it is dropped; [`remove`] removes them.
/// Only a complete package is synced to disk: after a power failure the bytes of an incomplete one may be wrong, which the
/// checksums in the package show later.
///
/// [`remove`]: Self::remove
#[derive(Debug)]
pub struct PartialPackage {
    folder: PathBuf,
    name: String,
    uri: String,
    file: File,
    received: u64,
    record: DownloadRecord,
}

/// The record with its URI, as it is on disk.
#[derive(Serialize, Deserialize)]
struct StoredRecord<R> {
    uri: String,
    #[serde(flatten)]
    record: R,
}

impl PartialPackage {
    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Opens the package of a URI; empty if nothing was received. Blocks.
    ///
    /// # Errors
    /// `WouldBlock` if it is open, or a dropped download is still writing; others of the file system.
    pub fn open(folder: &Path, uri: &Url) -> io::Result<Self> {
        let name = Self::name(uri);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(folder.join(format!("{name}.part")))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut partial = Self {
            folder: folder.to_owned(),
            name,
            uri: uri.to_string(),
            received: file.metadata()?.len(),
            file,
            record: DownloadRecord::default(),
        };
        match partial.read_record() {
            Some(record) if !record.is_complete || record.length == Some(partial.received) => {
                partial.record = record;
            }
            // Bytes without a valid record are unusable.
            _ => partial.begin(DownloadRecord::default())?,
        }
        Ok(partial)
    }

    /// The name of a package's files without extensions: 64 hexadecimal digits.
    #[must_use]
    pub fn name(uri: &Url) -> String {
        let digest = Digest::of(Algorithm::Sha256, uri.as_str().as_bytes()).to_string();
        let hex = digest.rsplit(':').next();
        hex.unwrap_or_default().to_owned()
    }

    /// The number of bytes on disk.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The length that the server states, in bytes.
    pub fn length(&self) -> Option<u64> {
        self.record.length
    }

    /// Whether all bytes are on disk. They are not verified.
    pub fn is_complete(&self) -> bool {
        self.record.is_complete
    }

    /// The file for reading; `None` if it is incomplete. While it is in use, the package counts as open.
    pub fn file(&self) -> io::Result<Option<File>> {
        if !self.is_complete() {
            return Ok(None);
        }
        self.file.try_clone().map(Some)
    }

    /// Removes its files. Blocks.
    pub fn remove(self) -> io::Result<()> {
        // The record is removed last: bytes without a record are discarded.
        for path in [self.part_path(), self.record_path()] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn record(&self) -> &DownloadRecord {
        &self.record
    }

    /// Discards the received bytes, and stores the record of a new download. Blocks.
    pub(super) fn begin(&mut self, record: DownloadRecord) -> io::Result<()> {
        // In this order, also on disk: a record must never be found with bytes of another version.
        self.file.set_len(0)?;
        if self.received > 0 {
            self.file.sync_all()?;
        }
        self.received = 0;
        self.record = record;
        self.write_record()
    }

    /// Records the length of the complete package. Blocks.
    pub(super) fn record_length(&mut self, length: u64) -> io::Result<()> {
        if self.record.length == Some(length) {
            return Ok(());
        }
        self.record.length = Some(length);
        self.write_record()
    }

    /// Appends bytes. Blocks.
    pub(super) fn append(&mut self, chunks: &[bytes::Bytes]) -> io::Result<()> {
        for chunk in chunks {
            self.file.write_all_at(chunk, self.received)?;
            self.received += chunk.len() as u64;
        }
        Ok(())
    }

    /// Syncs the bytes to disk, and records that they are complete. Blocks.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        // A failed write may have left bytes after the received ones.
        self.file.set_len(self.received)?;
        self.file.sync_all()?;
        self.record.length = Some(self.received);
        self.record.is_complete = true;
        self.write_record()?;
        File::open(&self.folder)?.sync_all()
    }

    fn read_record(&self) -> Option<DownloadRecord> {
        let json = fs::read(self.record_path()).ok()?;
        let stored: StoredRecord<DownloadRecord> = serde_json::from_slice(&json).ok()?;
        (stored.uri == self.uri).then_some(stored.record)
    }

    fn write_record(&self) -> io::Result<()> {
        let new = self.folder.join(format!("{}.new", self.name));
        let json = serde_json::to_vec(&StoredRecord {
            uri: self.uri.clone(),
            record: &self.record,
        })?;
        fs::write(&new, json)?;
        File::open(&new)?.sync_all()?;
        fs::rename(new, self.record_path())
    }

    fn part_path(&self) -> PathBuf {
        self.folder.join(format!("{}.part", self.name))
    }

    fn record_path(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.name))
    }
}
