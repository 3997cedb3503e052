//! The streaming reader of documents.

use std::io::BufRead;

use url::Url;

use super::{Document, Entry, Head, Oddities};

/// Why a document could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// placeholder
    #[error("not a document")]
    NotXml,
}

impl ReadError {
    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        todo!()
    }
}

/// Reads a document an entry at a time; memory does not depend on its length.
pub struct DocumentReader<R: BufRead> {
    input: R,
}

impl<R: BufRead> DocumentReader<R> {
    /// Reads up to the first entry.
    pub fn open(input: R, base: &Url) -> Result<Self, ReadError> {
        todo!("{base} {:?}", Self { input }.input.fill_buf().is_ok())
    }
    /// What stands before the entries (after the last entry also what came late).
    pub fn head(&self) -> &Head {
        todo!()
    }
    /// The next entry; `None` once the document has ended as it should.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        todo!()
    }
    /// What was odd so far.
    pub fn oddities(&self) -> &Oddities {
        todo!()
    }
}

/// Reads a whole document that is at hand.
pub fn read_document(bytes: &[u8], base: &Url) -> Result<Document, ReadError> {
    todo!("{bytes:?} {base}")
}
