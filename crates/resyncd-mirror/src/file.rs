//! A published file that is open for reading.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::SystemTime;

use resourcesync::Digest;

use super::objects::ObjectFile;

/// A published file that is open for reading. Its content does not change, even if another version is published meanwhile; of an object
/// reading fails then.
pub struct MirrorFile(Content);

enum Content {
    Disk(File),
    #[cfg_attr(
        not(feature = "objects"),
        expect(dead_code, reason = "made by object stores")
    )]
    Object(Box<dyn ObjectFile>),
}

impl MirrorFile {
    #[cfg(feature = "objects")]
    pub(super) fn of_object(object: impl ObjectFile + 'static) -> Self {
        Self(Content::Object(Box::new(object)))
    }

    /// Its length, in bytes.
    pub fn length(&self) -> io::Result<u64> {
        match &self.0 {
            Content::Disk(file) => file.metadata().map(|found| found.len()),
            Content::Object(object) => Ok(object.length()),
        }
    }

    /// The time of the resource, or when it was written.
    pub fn modified(&self) -> io::Result<SystemTime> {
        match &self.0 {
            Content::Disk(file) => file.metadata()?.modified(),
            Content::Object(object) => Ok(object.modified()),
        }
    }

    /// What distinguishes it from any other file that is or was at its path.
    pub fn version(&self) -> io::Result<String> {
        match &self.0 {
            Content::Disk(file) => {
                let found = file.metadata()?;
                let (inode, seconds, part) = (found.ino(), found.mtime(), found.mtime_nsec());
                Ok(format!("{inode:x}-{seconds:x}-{part:x}-{:x}", found.len()))
            }
            Content::Object(object) => Ok(object.version()),
        }
    }

    /// Reads a part of it; an error if that is not there.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.0 {
            Content::Disk(file) => file.read_exact_at(buffer, offset),
            Content::Object(object) => {
                let bytes = object.read_at(offset, buffer.len() as u64)?;
                let part = bytes
                    .get(..buffer.len())
                    .ok_or(io::ErrorKind::UnexpectedEof)?;
                buffer.copy_from_slice(part);
                Ok(())
            }
        }
    }

    /// Whether it is read without a request.
    #[must_use]
    pub fn is_on_disk(&self) -> bool {
        matches!(self.0, Content::Disk(_))
    }

    /// The file, if it is on this machine's disk.
    #[must_use]
    pub fn into_disk(self) -> Option<File> {
        match self.0 {
            Content::Disk(file) => Some(file),
            Content::Object(_) => None,
        }
    }

    /// The SHA-256 that an object was stored with; `None` of a file on disk.
    #[must_use]
    pub fn stored_digest(&self) -> Option<&Digest> {
        match &self.0 {
            Content::Disk(_) => None,
            Content::Object(object) => object.digest(),
        }
    }

    /// Sets its time.
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        match &self.0 {
            Content::Disk(file) => file.set_modified(time),
            Content::Object(object) => object.set_modified(time),
        }
    }

    /// Has it on disk, also if somebody else has put it there.
    pub fn sync(&self) -> io::Result<()> {
        match &self.0 {
            Content::Disk(file) => file.sync_all(),
            Content::Object(_) => Ok(()),
        }
    }

    /// Device and inode, of a file on disk.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        match &self.0 {
            Content::Disk(file) => {
                let found = file.metadata().ok()?;
                Some((found.dev(), found.ino()))
            }
            Content::Object(_) => None,
        }
    }
}

impl fmt::Debug for MirrorFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version().unwrap_or_default();
        write!(f, "MirrorFile({version})")
    }
}

impl From<File> for MirrorFile {
    fn from(file: File) -> Self {
        Self(Content::Disk(file))
    }
}

impl Read for MirrorFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Content::Disk(file) => file.read(buffer),
            Content::Object(object) => object.read(buffer),
        }
    }
}

impl Seek for MirrorFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        match &mut self.0 {
            Content::Disk(file) => file.seek(position),
            Content::Object(object) => object.seek(position),
        }
    }
}
