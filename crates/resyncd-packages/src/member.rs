//! Reading a member, whatever the format of its package.

use std::io::{self, BufRead, BufReader, Read};

use super::error::PackageError;

/// The bytes of a member, decompressed.
///
/// What the package states of them is verified before the last of them is returned. Its errors are [`PackageError`]s within
/// `io::Error`s.
pub struct MemberReader {
    bytes: Box<dyn Read + Send>,
    length: Option<u64>,
    pub(super) is_rebased: bool,
}

impl MemberReader {
    /// A member at the path that was asked for.
    pub(super) fn new(bytes: impl Read + Send + 'static, length: Option<u64>) -> Self {
        Self {
            bytes: Box::new(bytes),
            length,
            is_rebased: false,
        }
    }

    /// The decompressed length in bytes; `None` if it is known only at the end.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Whether it was found only without leading folders of the path, or of its name: some Sources write paths of their own
    /// machine. Then only a digest or a length proves that it is the correct member.
    pub fn is_rebased(&self) -> bool {
        self.is_rebased
    }

    /// The same with a buffer.
    pub(super) fn buffered(self) -> Box<dyn BufRead + Send> {
        Box::new(BufReader::with_capacity(64 << 10, self))
    }
}

impl Read for MemberReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData
            | io::ErrorKind::UnexpectedEof => PackageError::bad_member(error).into(),
            _ => error,
        })
    }
}
