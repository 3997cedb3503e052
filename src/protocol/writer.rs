//! The writer of documents.

use std::io::{self, Write};

use super::{Entry, Head};

/// Writes a document an entry at a time.
pub struct DocumentWriter<W: Write> {
    output: W,
}

impl<W: Write> DocumentWriter<W> {
    /// Writes the head.
    pub fn start(output: W, head: &Head) -> io::Result<Self> {
        todo!("{head:?} {:?}", Self { output }.output.flush().is_ok())
    }
    /// Writes one entry.
    pub fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        todo!("{entry:?}")
    }
    /// Writes the end.
    pub fn finish(self) -> io::Result<W> {
        todo!()
    }
}

/// Writes a whole document.
pub fn write_document<'a>(head: &Head, entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u8> {
    todo!("{head:?} {}", entries.into_iter().count())
}
