//! Reads an object piece by piece.

use std::io::{self, Read, Seek, SeekFrom};
use std::time::SystemTime;

use bytes::Bytes;
use object_store::{Error, GetOptions, GetRange, ObjectMeta, PutMode};
use resourcesync::Digest;

use super::ObjectFile;
use super::runtime::block_on;
use super::store::{Content, Objects, Stored};
use crate::file::{FileMetadata, FileVersion};

/// How much is requested at once, in bytes.
const PIECE: u64 = 4 << 20;

pub(super) struct ObjectReader {
    objects: Objects,
    meta: ObjectMeta,
    stored: Stored,
    position: u64,
    /// What follows the position, as far as it was received.
    piece: Bytes,
}

impl ObjectReader {
    pub(super) fn new(objects: Objects, meta: ObjectMeta, stored: Stored) -> Self {
        Self {
            objects,
            meta,
            stored,
            position: 0,
            piece: Bytes::new(),
        }
    }

    async fn request(&self, offset: u64, most: u64) -> Result<Bytes, Error> {
        let end = offset.saturating_add(most).min(self.meta.size);
        if offset >= end {
            return Ok(Bytes::new());
        }
        let options = GetOptions {
            // Another object of this key is not the one that was opened.
            if_match: self.meta.e_tag.clone(),
            range: Some(GetRange::Bounded(offset..end)),
            ..GetOptions::default()
        };
        let store = &self.objects.store;
        let answer = store.get_opts(&self.meta.location, options).await?;
        answer.bytes().await
    }

    /// At most so many bytes that follow.
    pub(super) async fn next(&mut self, most: u64) -> Result<Bytes, Error> {
        let bytes = self.request(self.position, most).await?;
        self.position += bytes.len() as u64;
        Ok(bytes)
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.piece.is_empty() {
            let request = self.request(self.position, PIECE);
            self.piece = block_on(request).map_err(io::Error::other)?;
        }
        let read = buffer.len().min(self.piece.len());
        buffer[..read].copy_from_slice(&self.piece.split_to(read));
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for ObjectReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.meta.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        self.piece = Bytes::new();
        Ok(self.position)
    }
}

impl ObjectFile for ObjectReader {
    fn read_at(&self, offset: u64, most: u64) -> io::Result<Vec<u8>> {
        let bytes = block_on(self.request(offset, most));
        bytes.map(Into::into).map_err(io::Error::other)
    }

    fn metadata(&self) -> FileMetadata {
        let tag = self.meta.e_tag.as_deref().unwrap_or_default();
        // It is a part of another tag.
        let plain = tag.chars().filter(char::is_ascii_alphanumeric);
        let written = self.meta.last_modified.timestamp_micros();
        let version = format!("{}-{written:x}", plain.collect::<String>());
        let modified = self.stored.modified;
        FileMetadata {
            length: self.meta.size,
            modified: modified.unwrap_or_else(|| self.meta.last_modified.into()),
            version: FileVersion::Object(version),
        }
    }

    fn digest(&self) -> Option<&Digest> {
        self.stored.description.digest.as_ref()
    }

    fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        let (objects, meta) = (self.objects.clone(), self.meta.clone());
        let stored = Stored {
            modified: Some(time),
            ..self.stored.clone()
        };
        let (key, length) = (meta.location.clone(), meta.size);
        let mut again = Content::Object(Box::new(Self::new(objects.clone(), meta, stored.clone())));
        let storing = objects.send(&mut again, length, &key, &stored, PutMode::Overwrite);
        block_on(storing).map_err(io::Error::other)
    }
}
