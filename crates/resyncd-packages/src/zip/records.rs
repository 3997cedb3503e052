//! The records at the end of a ZIP file, and those of its directory, as bytes (APPNOTE 6.3.3, sections 4.3 and 4.5.3).
//!
//! They are not read by the crate `zip`, which allocates unbounded memory for hostile numbers.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt;

use crate::error::PackageError;
use crate::section::Section;

const END: [u8; 4] = *b"PK\x05\x06";
const END_64: [u8; 4] = *b"PK\x06\x06";
const END_64_LOCATOR: [u8; 4] = *b"PK\x06\x07";
const CENTRAL_HEADER: [u8; 4] = *b"PK\x01\x02";
const LOCAL_HEADER: [u8; 4] = *b"PK\x03\x04";

/// The length of the fixed part of the end record, and of the ZIP64 records before it.
const END_LENGTH: usize = 22;
const END_64_LENGTH: usize = 56;
const LOCATOR_LENGTH: usize = 20;
const CENTRAL_LENGTH: usize = 46;

/// The length of the fixed part of a local header, in bytes.
pub(super) const LOCAL_LENGTH: u64 = 30;

/// The maximum length of the end record with its comment.
const MAX_END: u64 = END_LENGTH as u64 + u16::MAX as u64;

/// The location of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectoryLocation {
    pub(super) start: u64,
    pub(super) length: u64,
    /// The number of headers.
    pub(super) count: u64,
    /// The number of bytes before the archive; all positions in it are relative to its begin.
    pub(super) prefix: u64,
}

/// Finds the directory of a file of this length.
pub(super) fn find_directory(file: &File, length: u64) -> Result<DirectoryLocation, PackageError> {
    let tail_at = length.saturating_sub(MAX_END);
    let mut tail = vec![0; (length - tail_at) as usize];
    read_exact_at(file, &mut tail, tail_at)?;
    let mut beginning = [0; 4];
    let is_first = length >= 4 && {
        read_exact_at(file, &mut beginning, 0)?;
        beginning == LOCAL_HEADER
    };
    let last = tail.len().checked_sub(END_LENGTH);
    let ends = last.into_iter().flat_map(|last| (0..=last).rev());
    for at in ends.filter(|at| tail[*at..].starts_with(&END)) {
        let end = &tail[at..];
        let comment = usize::from(u16_at(end, 20));
        // The signature may also occur in a comment, or in the bytes of a member.
        if END_LENGTH + comment > end.len() {
            continue;
        }
        let location = read_end(file, end, tail_at + at as u64)?;
        // If the file begins with an archive, one with a prefix is a member of it, and the rest is missing.
        if let Some(location) = location.filter(|location| location.prefix == 0 || !is_first) {
            return Ok(location);
        }
    }
    Err(damaged("no directory; it may be cut short"))
}

/// The location of the directory that the end record states; `None` if it is impossible.
fn read_end(file: &File, end: &[u8], at: u64) -> Result<Option<DirectoryLocation>, PackageError> {
    let (mut count, mut length, mut start) = (
        u64::from(u16_at(end, 10)),
        u64::from(u32_at(end, 12)),
        u64::from(u32_at(end, 16)),
    );
    let mut directory_end = at;
    if let Some((position, record)) = read_end_64(file, at)? {
        count = u64_at(&record, 32);
        length = u64_at(&record, 40);
        start = u64_at(&record, 48);
        directory_end = position;
    }
    // The directory ends where the records begin; if it begins later than stated, the archive has a prefix.
    let prefix = directory_end
        .checked_sub(length)
        .and_then(|actual| actual.checked_sub(start));
    Ok(prefix.map(|prefix| DirectoryLocation {
        start: start + prefix,
        length,
        count,
        prefix,
    }))
}

/// The ZIP64 end record before the end record, and its position.
fn read_end_64(file: &File, end: u64) -> Result<Option<(u64, [u8; END_64_LENGTH])>, PackageError> {
    let Some(locator_at) = end.checked_sub(LOCATOR_LENGTH as u64) else {
        return Ok(None);
    };
    let mut locator = [0; LOCATOR_LENGTH];
    read_exact_at(file, &mut locator, locator_at)?;
    if !locator.starts_with(&END_64_LOCATOR) {
        return Ok(None);
    }
    // At the stated position, or directly before the locator if the archive has a prefix.
    let directly_before = locator_at.checked_sub(END_64_LENGTH as u64);
    let mut record = [0; END_64_LENGTH];
    for at in [Some(u64_at(&locator, 8)), directly_before] {
        let fits = |at: &u64| {
            at.checked_add(END_64_LENGTH as u64)
                .is_some_and(|end| end <= locator_at)
        };
        let Some(at) = at.filter(fits) else { continue };
        read_exact_at(file, &mut record, at)?;
        if record.starts_with(&END_64) {
            return Ok(Some((at, record)));
        }
    }
    Err(damaged("the ZIP64 record is missing"))
}

/// A header of the directory.
#[derive(Debug, Default)]
pub(super) struct CentralHeader {
    pub(super) name: Vec<u8>,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc: u32,
    pub(super) packed: u64,
    pub(super) length: u64,
    /// The position of the local header, relative to the begin of the archive.
    pub(super) header: u64,
    /// The Unix file mode, if it was created on Unix.
    pub(super) unix_mode: Option<u32>,
}

impl CentralHeader {
    /// Reads the next header; `None` at the end.
    pub(super) fn read(input: &mut Section) -> Result<Option<Self>, PackageError> {
        if input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut fixed = [0; CENTRAL_LENGTH];
        read_exact(input, &mut fixed)?;
        if !fixed.starts_with(&CENTRAL_HEADER) {
            return Err(damaged("invalid header in the directory"));
        }
        let mut name = vec![0; usize::from(u16_at(&fixed, 28))];
        read_exact(input, &mut name)?;
        let mut extra = vec![0; usize::from(u16_at(&fixed, 30))];
        read_exact(input, &mut extra)?;
        let mut comment = vec![0; usize::from(u16_at(&fixed, 32))];
        read_exact(input, &mut comment)?;
        let made_on_unix = fixed[5] == 3;
        let mut header = Self {
            name,
            flags: u16_at(&fixed, 8),
            method: u16_at(&fixed, 10),
            crc: u32_at(&fixed, 16),
            packed: u64::from(u32_at(&fixed, 20)),
            length: u64::from(u32_at(&fixed, 24)),
            header: u64::from(u32_at(&fixed, 42)),
            unix_mode: made_on_unix.then(|| u32_at(&fixed, 38) >> 16),
        };
        header.read_zip64(&extra)?;
        Ok(Some(header))
    }

    /// Reads the numbers that did not fit from the extra field.
    fn read_zip64(&mut self, extra: &[u8]) -> Result<(), PackageError> {
        let too_large = [&mut self.length, &mut self.packed, &mut self.header]
            .into_iter()
            .filter(|number| **number == u64::from(u32::MAX));
        let mut numbers = zip64_field(extra).chunks_exact(8);
        for number in too_large {
            match numbers.next() {
                Some(bytes) => *number = u64_at(bytes, 0),
                None => return Err(damaged("a ZIP64 number in the directory is missing")),
            }
        }
        Ok(())
    }
}

/// The ZIP64 field among the extra fields; empty if there is none.
fn zip64_field(mut extra: &[u8]) -> &[u8] {
    while extra.len() >= 4 {
        let (id, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let Some(field) = extra.get(4..4 + length) else {
            break;
        };
        if id == 1 {
            return field;
        }
        extra = &extra[4 + length..];
    }
    &[]
}

/// The position of the bytes of a member with that local header.
pub(super) fn find_bytes(file: &File, header: u64) -> Result<u64, PackageError> {
    let mut fixed = [0; LOCAL_LENGTH as usize];
    read_exact_at(file, &mut fixed, header)?;
    if !fixed.starts_with(&LOCAL_HEADER) {
        let reason = "no local header at the position in the directory";
        return Err(PackageError::BadMember(reason.to_owned()));
    }
    let name_and_extra = u64::from(u16_at(&fixed, 26)) + u64::from(u16_at(&fixed, 28));
    Ok(header + LOCAL_LENGTH + name_and_extra)
}

fn damaged(reason: &str) -> PackageError {
    PackageError::Damaged(reason.to_owned())
}

fn cut_short(error: io::Error) -> PackageError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("cut short"),
        _ => PackageError::Io(error),
    }
}

fn read_exact(input: &mut Section, bytes: &mut [u8]) -> Result<(), PackageError> {
    input.read_exact(bytes).map_err(cut_short)
}

fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> Result<(), PackageError> {
    file.read_exact_at(bytes, at).map_err(cut_short)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
