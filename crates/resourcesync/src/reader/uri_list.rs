//! A sitemap as plain text: a URI on each line (sitemaps.org, "Other Sitemap formats"). Lines that begin with `#` are comments
//! (RFC 2483, section 5).

use std::io::BufRead;

use super::ReadError;
use super::input::{DocumentInput, EventPlace};

/// The lines of a document, one at a time, in constant memory.
pub(super) struct UriList<R> {
    input: DocumentInput<R>,
    line: Vec<u8>,
}

impl<R: BufRead> UriList<R> {
    pub(super) fn new(input: DocumentInput<R>) -> Self {
        Self {
            input,
            line: Vec::new(),
        }
    }

    /// The next line that is neither empty nor a comment, without surrounding white space; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<String>, ReadError> {
        loop {
            self.line.clear();
            self.input.begin_event();
            if let Err(error) = self.input.read_until(b'\n', &mut self.line) {
                return Err(self.input.error(error));
            }
            if self.line.is_empty() {
                return Ok(None);
            }
            let line = String::from_utf8_lossy(&self.line);
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                return Ok(Some(line.to_owned()));
            }
        }
    }

    /// Where the last line begins.
    pub(super) fn event(&self) -> EventPlace<'_> {
        self.input.event()
    }

    /// How many sequences of bytes were not readable so far.
    pub(super) fn damaged(&self) -> u64 {
        self.input.unreadable()
    }
}
