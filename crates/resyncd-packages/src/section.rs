//! A section of a file that can be read concurrently with others.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// How much is read at once, in bytes.
const BUFFER: usize = 32 << 10;

/// A section of a file with its own position, so that any number of them can read one file concurrently.
#[derive(Debug)]
pub(super) struct Section {
    file: Arc<File>,
    /// The position in the file.
    pub(super) at: u64,
    end: u64,
}

impl Section {
    /// The `length` bytes from `start`.
    pub(super) fn new(file: &Arc<File>, start: u64, length: u64) -> Self {
        Self {
            file: Arc::clone(file),
            at: start,
            end: start.saturating_add(length),
        }
    }

    pub(super) fn buffered(self) -> BufReader<Self> {
        BufReader::with_capacity(BUFFER, self)
    }
}

impl Read for Section {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_sub(self.at);
        // What a member begins with is seen before what is wrong further on, however much is asked for.
        let wanted = left.min(bytes.len().min(BUFFER) as u64) as usize;
        let read = loop {
            match self.file.read_at(&mut bytes[..wanted], self.at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.at += read as u64;
        Ok(read)
    }
}
