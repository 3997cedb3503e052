//! The manifest of a WARC that has none: an entry for each URI, as its last record states it. It is written while it is read.

use std::io::{self, BufRead, Cursor, Read};

use resourcesync::uri::is_web;
use resourcesync::{DocumentWriter, Entry, Head, SourceTime};

use super::head::{HttpHead, RecordHead, RecordKind};
use super::payload::{RecordFile, parse_digest};
use crate::error::PackageError;

/// A manifest that is being made. It states no capability.
pub(super) struct MadeManifest {
    file: RecordFile,
    /// The positions of the records.
    places: std::vec::IntoIter<u64>,
    /// `None` after the end.
    writer: Option<DocumentWriter<Vec<u8>>>,
    /// What is written and not read yet.
    written: Cursor<Vec<u8>>,
}

impl MadeManifest {
    pub(super) fn new(file: RecordFile, places: Vec<u64>) -> io::Result<Self> {
        Ok(Self {
            file,
            places: places.into_iter(),
            writer: Some(DocumentWriter::start(Vec::new(), &Head::default())?),
            written: Cursor::default(),
        })
    }
}

impl Read for MadeManifest {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.written.fill_buf()?.is_empty()
            && let Some(mut writer) = self.writer.take()
        {
            let Some(at) = self.places.next() else {
                self.written = Cursor::new(writer.finish()?);
                break;
            };
            if let Some(entry) = entry_of(&self.file, at)? {
                writer.entry(&entry)?;
            }
            self.written = Cursor::new(std::mem::take(writer.get_mut()));
            self.writer = Some(writer);
        }
        self.written.read(bytes)
    }
}

/// What a record states of its resource; `None` if that can't be fetched over HTTP, either.
fn entry_of(file: &RecordFile, at: u64) -> Result<Option<Entry>, PackageError> {
    let mut record = file.records(file.section(at));
    let Some(head) = RecordHead::read(&mut record)? else {
        return Ok(None);
    };
    let Some(uri) = head.uri.filter(is_web) else {
        return Ok(None);
    };
    let mut entry = Entry::new(uri);
    entry.lastmod = head.date.map(SourceTime::from_micros);
    let digest = head.payload_digest.as_deref().and_then(parse_digest);
    let content = &mut entry.md.content;
    if head.kind == RecordKind::Resource {
        content.length = Some(head.length);
        content.media_type = head.content_type;
        content.hashes.extend(digest);
    } else if head.kind == RecordKind::Response {
        let http = HttpHead::read(&mut record)?;
        // The digest of what is coded is not that of the resource.
        let is_plain = !http.is_chunked && http.codings.is_empty();
        content.hashes.extend(digest.filter(|_| is_plain));
        content.media_type = http.content_type;
        let is_known = |it: &SourceTime| entry.lastmod.is_none_or(|at| *it <= at);
        entry.lastmod = http.last_modified.filter(is_known).or(entry.lastmod);
    }
    Ok(Some(entry))
}
