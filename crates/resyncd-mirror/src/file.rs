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

/// What is known of a file without its bytes.
pub struct FileMetadata {
    /// Its length, in bytes.
    pub length: u64,
    /// The time of the resource, or when it was written.
    pub modified: SystemTime,
    pub(super) version: FileVersion,
}

/// What distinguishes a file from any other one that is or was at its path, beside its length.
pub(super) enum FileVersion {
    /// Inode, and the seconds and nanoseconds of its time.
    Disk(u64, i64, i64),
    #[cfg_attr(
        not(feature = "objects"),
        expect(dead_code, reason = "made by object stores")
    )]
    Object(String),
}

impl FileMetadata {
    /// What distinguishes the file from any other one that is or was at its path.
    #[must_use]
    pub fn version(&self) -> String {
        match &self.version {
            FileVersion::Disk(inode, seconds, part) => {
                format!("{inode:x}-{seconds:x}-{part:x}-{:x}", self.length)
            }
            FileVersion::Object(version) => version.clone(),
        }
    }
}

impl MirrorFile {
    #[cfg(feature = "objects")]
    pub(super) fn of_object(object: impl ObjectFile + 'static) -> Self {
        Self(Content::Object(Box::new(object)))
    }

    /// What is known of it without its bytes. On disk it is one system call.
    pub fn metadata(&self) -> io::Result<FileMetadata> {
        match &self.0 {
            Content::Disk(file) => {
                let found = file.metadata()?;
                Ok(FileMetadata {
                    length: found.len(),
                    modified: found.modified()?,
                    version: FileVersion::Disk(found.ino(), found.mtime(), found.mtime_nsec()),
                })
            }
            Content::Object(object) => Ok(object.metadata()),
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

    /// Whether an object was stored with these digests, and no other ones: its bytes need not be fetched to compare them. Of a file on
    /// disk nothing is known.
    #[must_use]
    pub fn is_stored_with(&self, digests: &[Digest]) -> bool {
        let stored = match &self.0 {
            Content::Disk(_) => None,
            Content::Object(object) => object.digest(),
        };
        !digests.is_empty() && digests.iter().all(|digest| Some(digest) == stored)
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
        let version = self.metadata().map(|found| found.version());
        write!(f, "MirrorFile({})", version.unwrap_or_default())
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
