//! A section of a file that can be read concurrently with others.

use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The size of the buffer, in bytes.
const BUFFER: usize = 32 << 10;

/// A section of a file with its own position, so that any number of them can read one file concurrently.
#[derive(Debug)]
pub(super) struct Section {
    file: Arc<File>,
    end: u64,
    at: u64,
    buffer: Vec<u8>,
    /// The position of the buffer in the file.
    buffered_at: u64,
}

impl Section {
    /// The `length` bytes from `start`.
    pub(super) fn new(file: Arc<File>, start: u64, length: u64) -> Self {
        Self {
            file,
            end: start.saturating_add(length),
            at: start,
            buffer: Vec::new(),
            buffered_at: start,
        }
    }

    /// The position in the file.
    pub(super) fn position(&self) -> u64 {
        self.at
    }
}

impl BufRead for Section {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let known = self.buffered_at..self.buffered_at + self.buffer.len() as u64;
        if !known.contains(&self.at) {
            let left = self.end.saturating_sub(self.at);
            let wanted = left.min(BUFFER as u64) as usize;
            self.buffered_at = self.at;
            self.buffer.resize(wanted, 0);
            // An error must not leave zeros that look like bytes of the file.
            let read = read_at(&self.file, &mut self.buffer, self.at);
            self.buffer.truncate(*read.as_ref().unwrap_or(&0));
            read?;
        }
        let offset = (self.at - self.buffered_at) as usize;
        Ok(&self.buffer[offset..])
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount as u64;
    }
}

impl Read for Section {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(bytes)?;
        self.consume(read);
        Ok(read)
    }
}

impl Seek for Section {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.end.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match file.read_at(bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
