//! The manifest of a WARC that has none: an entry for each URI, as its last record states it. It is written while it is read.

use std::io::{self, Read, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use resourcesync::{DocumentWriter, Entry, Head, Metadata, Root, SourceTime};

use super::head::{HttpHead, RecordHead};
use super::payload::{RecordFile, parse_digest};
use crate::error::PackageError;

/// A manifest that is being made. It states no capability.
pub(super) struct MadeManifest {
    file: Arc<RecordFile>,
    /// The positions of the records.
    places: Arc<Vec<u64>>,
    next: usize,
    written: Written,
    /// `None` before the beginning and after the end.
    writer: Option<DocumentWriter<Written>>,
    has_begun: bool,
    /// How much of what is written was read.
    read: usize,
}

/// What is written and not read yet.
#[derive(Clone, Debug, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MadeManifest {
    pub(super) fn new(file: Arc<RecordFile>, places: Arc<Vec<u64>>) -> Self {
        Self {
            file,
            places,
            next: 0,
            written: Written::default(),
            writer: None,
            has_begun: false,
            read: 0,
        }
    }

    /// Writes the next piece; `false` after the end.
    fn write_more(&mut self) -> io::Result<bool> {
        if !self.has_begun {
            self.has_begun = true;
            let head = Head {
                root: Root::Urlset,
                md: Metadata::default(),
                links: Vec::new(),
                interfaces: Vec::new(),
                is_change_set: false,
            };
            self.writer = Some(DocumentWriter::start(self.written.clone(), &head)?);
            return Ok(true);
        }
        let Some(writer) = &mut self.writer else {
            return Ok(false);
        };
        if let Some(at) = self.places.get(self.next) {
            self.next += 1;
            if let Some(entry) = entry_of(&self.file, *at)? {
                writer.entry(&entry)?;
            }
        } else if let Some(writer) = self.writer.take() {
            writer.finish()?;
        }
        Ok(true)
    }
}

impl Read for MadeManifest {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            {
                let mut written = self.written.0.lock();
                let left = &written[self.read..];
                let count = left.len().min(bytes.len());
                if count > 0 || bytes.is_empty() {
                    bytes[..count].copy_from_slice(&left[..count]);
                    self.read += count;
                    return Ok(count);
                }
                written.clear();
                self.read = 0;
            }
            if !self.write_more()? {
                return Ok(0);
            }
        }
    }
}

/// What a record states of its resource; `None` if that can't be fetched over HTTP, either.
fn entry_of(file: &RecordFile, at: u64) -> Result<Option<Entry>, PackageError> {
    let mut stream = file.stream(at);
    let Some(head) = RecordHead::read(&mut stream)? else {
        return Ok(None);
    };
    let Some(uri) = &head.uri else {
        return Ok(None);
    };
    if !matches!(uri.scheme(), "http" | "https") {
        return Ok(None);
    }
    let mut entry = Entry::new(uri.clone());
    entry.lastmod = head.date.map(SourceTime::from_micros);
    let digest = head.payload_digest.as_deref().and_then(parse_digest);
    let content = &mut entry.md.content;
    if head.is_resource() {
        content.length = Some(head.length);
        content.media_type = head.content_type();
        content.hashes.extend(digest);
    } else if head.is_response() {
        let http = HttpHead::read(&mut stream)?;
        // The digest of what is coded is not that of the resource.
        let is_plain = !http.is_chunked && http.codings.is_empty();
        content.hashes.extend(digest.filter(|_| is_plain));
        content.media_type = http.content_type;
        let known = http
            .last_modified
            .filter(|it| entry.lastmod.is_none_or(|at| *it <= at));
        entry.lastmod = known.or(entry.lastmod);
    }
    Ok(Some(entry))
}
