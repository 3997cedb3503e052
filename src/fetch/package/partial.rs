//! What there is of a package on disk, and what is known of it.
//!
//! Two files: `NAME.part`, the bytes that have come, and `NAME.json`, what the server said of them. The name is the SHA-256
//! of the URI, so that nothing from outside becomes a file's name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::protocol::{Algorithm, Digest, Validators};

/// A package that is being fetched, or was: as much of it as is on disk.
///
/// Only one of them at a time can have the same folder and URI. What there is stays when it is dropped; [`remove`] takes it
/// away. Only when it is whole it is on disk for certain: after a power cut the bytes of an unfinished one may be wrong, which
/// the checksums in the package tell later.
///
/// [`remove`]: Self::remove
#[derive(Debug)]
pub struct PartialPackage {
    folder: PathBuf,
    name: String,
    uri: String,
    file: File,
    received: u64,
    note: Note,
}

/// What the server said of the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) validators: Validators,
    /// Whether the time of its last change tells it from every other version (RFC 9110, section 8.8.2.2).
    pub(super) is_dated: bool,
    /// How long it is, as the server said.
    pub(super) length: Option<u64>,
    /// Whether all of it is here, and on disk.
    pub(super) whole: bool,
}

/// The note with the URI that it is of, as it is on disk.
#[derive(Serialize, Deserialize)]
struct Written<N> {
    uri: String,
    #[serde(flatten)]
    note: N,
}

impl PartialPackage {
    /// Opens what there is of the package at that URI; nothing at first. Blocks.
    ///
    /// # Errors
    /// `WouldBlock`, when it is open already, or a download that was dropped still writes; others of the file system.
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
            note: Note::default(),
        };
        match partial.read_note() {
            Some(note) if !note.whole || note.length == Some(partial.received) => {
                partial.note = note;
            }
            // Bytes of which nothing is known are of no use.
            _ => partial.begin(Note::default())?,
        }
        Ok(partial)
    }

    /// What a package's files are called, without their endings: 64 hexadecimal digits.
    #[must_use]
    pub fn name(uri: &Url) -> String {
        let digest = Digest::of(Algorithm::Sha256, uri.as_str().as_bytes()).to_string();
        let hex = digest.rsplit(':').next();
        hex.unwrap_or_default().to_owned()
    }

    /// How many bytes there are.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// How long the server says that it is, in bytes.
    pub fn length(&self) -> Option<u64> {
        self.note.length
    }

    /// Whether all of it is there, and on disk. That does not mean that it is a good one.
    pub fn is_whole(&self) -> bool {
        self.note.whole
    }

    /// The file, to read; `None` unless all of it is there. As long as somebody has it, the package counts as open.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn file(&self) -> io::Result<Option<File>> {
        if !self.is_whole() {
            return Ok(None);
        }
        self.file.try_clone().map(Some)
    }

    /// Takes away what there is of it. Blocks.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove(self) -> io::Result<()> {
        // The note goes last: bytes without one are nobody's, and are thrown away.
        for path in [self.part_path(), self.note_path()] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn note(&self) -> &Note {
        &self.note
    }

    /// Throws away what there is, and notes what is to come. Blocks.
    pub(super) fn begin(&mut self, note: Note) -> io::Result<()> {
        // In this order, also on disk: a note must never be found with bytes of another version.
        self.file.set_len(0)?;
        if self.received > 0 {
            self.file.sync_all()?;
        }
        self.received = 0;
        self.note = note;
        self.write_note()
    }

    /// Notes how long all of it is, if that is news. Blocks.
    pub(super) fn note_length(&mut self, length: u64) -> io::Result<()> {
        if self.note.length == Some(length) {
            return Ok(());
        }
        self.note.length = Some(length);
        self.write_note()
    }

    /// Adds bytes at the end. Blocks.
    pub(super) fn append(&mut self, chunks: &[bytes::Bytes]) -> io::Result<()> {
        for chunk in chunks {
            self.file.write_all_at(chunk, self.received)?;
            self.received += chunk.len() as u64;
        }
        Ok(())
    }

    /// Notes that all of it is there, once it is on disk. Blocks for that.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        // What was cut off by a failed write may be behind what counts.
        self.file.set_len(self.received)?;
        self.file.sync_all()?;
        self.note.length = Some(self.received);
        self.note.whole = true;
        self.write_note()?;
        File::open(&self.folder)?.sync_all()
    }

    fn read_note(&self) -> Option<Note> {
        let written = fs::read(self.note_path()).ok()?;
        let written: Written<Note> = serde_json::from_slice(&written).ok()?;
        (written.uri == self.uri).then_some(written.note)
    }

    fn write_note(&self) -> io::Result<()> {
        let new = self.folder.join(format!("{}.new", self.name));
        let note = serde_json::to_vec(&Written {
            uri: self.uri.clone(),
            note: &self.note,
        })?;
        fs::write(&new, note)?;
        File::open(&new)?.sync_all()?;
        fs::rename(new, self.note_path())
    }

    fn part_path(&self) -> PathBuf {
        self.folder.join(format!("{}.part", self.name))
    }

    fn note_path(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.name))
    }
}
