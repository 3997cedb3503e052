//! ZIP files (sections 11.2 and 13.2; APPNOTE 6.3.3), read by the crate `rawzip` in constant memory.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flate2::CrcReader;
use flate2::bufread::DeflateDecoder;
use rawzip::{
    CompressionMethod, CreatorSystem, ErrorKind, FileReader, MAX_CENTRAL_DIRECTORY_RECORD_SIZE,
    ZipArchive, ZipFileHeaderRecord,
};

use super::error::PackageError;
use super::file_tree::{FileTree, Method, Stored, is_folder};
use super::member::MemberReader;
use super::section::Section;
use super::unpacked::is_out_of_proportion;

/// The usual signatures: a member, the end of an empty file, or the mark of a split one.
const SIGNATURES: [&[u8]; 3] = [LOCAL_HEADER, b"PK\x05\x06", b"PK\x07\x08"];
const LOCAL_HEADER: &[u8] = b"PK\x03\x04";

/// The length of the fixed part of a local header, in bytes.
const LOCAL_LENGTH: u64 = 30;

/// The maximum length of the record at the end with its comment.
const MAX_END: u64 = 22 + u16::MAX as u64;

/// The upper half of code page 437, the encoding of names without the UTF-8 flag.
const CODE_PAGE_437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐\
└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// Whether a file of the format usually begins so.
pub(super) fn begins(start: &[u8]) -> bool {
    SIGNATURES.iter().any(|sign| start.starts_with(sign))
}

/// Reads the directory of a file with at most `limit` members, also of one that begins with something else.
pub(super) fn read_directory(
    file: &Arc<File>,
    length: u64,
    limit: usize,
) -> Result<FileTree, PackageError> {
    let mut buffer = vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
    let reader = FileReader::from(file.try_clone()?);
    let archive = find_directory(file, &reader, length, &mut buffer)?;
    let mut tree = FileTree::new(file, limit);
    let mut entries = archive.entries(&mut buffer);
    while let Some(entry) = entries.next_entry().map_err(damaged)? {
        let name = entry.file_path();
        let name = decode(name.as_ref());
        let stored = Stored {
            at: entry.local_header_offset(),
            packed: entry.compressed_size_hint(),
            length: entry.uncompressed_size_hint(),
            check: entry.crc32(),
            method: method(&entry, &name),
        };
        tree.add(&name, stored)?;
    }
    // Without ZIP64 the number has 16 bits, and some tools write more members than that.
    let (count, stated) = (tree.len() as u64, archive.entries_hint());
    if count != stated && count % (1 << 16) != stated {
        let reason = "the directory has another number of members than stated";
        return Err(PackageError::damaged(reason));
    }
    tree.check_overlaps(LOCAL_LENGTH, archive.directory_offset())?;
    tree.finish();
    Ok(tree)
}

/// Finds the directory. The signature of its end may also occur in the comment after it, or in the bytes of a member.
fn find_directory<'a>(
    file: &File,
    reader: &'a FileReader,
    length: u64,
    buffer: &mut [u8],
) -> Result<ZipArchive<&'a FileReader>, PackageError> {
    let mut begin = [0; 4];
    let is_first = file.read_exact_at(&mut begin, 0).is_ok() && begin == LOCAL_HEADER;
    let first = length.saturating_sub(MAX_END);
    let mut end = length;
    loop {
        let locator = ZipArchive::with_max_search_space(end - first);
        let at = match locator.locate_in_reader(reader, buffer, end) {
            // If the file begins with an archive, one with something before it is a member of it, and the rest is missing.
            Ok(archive) if is_first && has_prefix(file, &archive)? => archive.eocd_offset(),
            Ok(archive) => return Ok(archive),
            Err((_, error)) => error.eocd_offset().ok_or_else(|| damaged(error))?,
        };
        end = at + 3;
    }
}

/// Whether the directory is not where the record at the end states it, relative to the beginning of the file.
fn has_prefix(file: &File, archive: &ZipArchive<&FileReader>) -> Result<bool, PackageError> {
    let mut stated = [0; 4];
    file.read_exact_at(&mut stated, archive.eocd_offset() + 16)?;
    let stated = u32::from_le_bytes(stated);
    Ok(stated != u32::MAX && u64::from(stated) != archive.directory_offset())
}

fn method(entry: &ZipFileHeaderRecord<'_>, name: &str) -> Method {
    if is_folder(name) {
        return Method::Folder;
    }
    let on_unix = entry.version_made_by().creator_system() == CreatorSystem::UNIX;
    if on_unix && entry.mode().is_symlink() {
        return Method::NotFile;
    }
    match entry.compression_method() {
        _ if entry.flags().is_encrypted() => Method::Encrypted,
        CompressionMethod::STORE => Method::Stored,
        CompressionMethod::DEFLATE => Method::Deflated,
        other => Method::Unknown(other.as_u16()),
    }
}

/// A name as text: UTF-8 if valid, as many tools do not set the flag, else code page 437.
fn decode(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name) {
        return Cow::Borrowed(text);
    }
    let decoded = name.iter().filter_map(|byte| match byte.checked_sub(0x80) {
        None => Some(char::from(*byte)),
        Some(upper) => CODE_PAGE_437.chars().nth(upper.into()),
    });
    Cow::Owned(decoded.collect())
}

/// Opens a member: [`Method::Stored`] or [`Method::Deflated`].
pub(super) fn member(file: &Arc<File>, stored: &Stored) -> Result<MemberReader, PackageError> {
    let is_deflated = stored.method == Method::Deflated;
    if is_deflated && is_out_of_proportion(stored.length, stored.packed) {
        return Err(PackageError::Expansion);
    }
    let mut header = [0; LOCAL_LENGTH as usize];
    file.read_exact_at(&mut header, stored.at)?;
    if !header.starts_with(LOCAL_HEADER) {
        let reason = "no local header at the position in the directory";
        return Err(PackageError::bad_member(reason));
    }
    let before = [[header[26], header[27]], [header[28], header[29]]];
    let before = before.map(|length| u64::from(u16::from_le_bytes(length)));
    let start = stored.at + LOCAL_LENGTH + before[0] + before[1];
    let section = Section::new(file, start, stored.packed);
    let bytes: Box<dyn Read + Send> = if is_deflated {
        Box::new(DeflateDecoder::new(section.buffered()))
    } else {
        Box::new(section)
    };
    let verified = Verified {
        bytes: CrcReader::new(bytes),
        stored: stored.clone(),
        read: 0,
    };
    Ok(MemberReader::new(verified, Some(stored.length)))
}

/// The decompressed bytes of a member, verified by the length and the checksum in the directory before the last of them is
/// returned. Not by the verifier of `rawzip`: that is only made of what takes more memory than [`Stored`].
struct Verified {
    bytes: CrcReader<Box<dyn Read + Send>>,
    stored: Stored,
    read: u64,
}

impl Read for Verified {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let read = self.bytes.read(bytes)?;
        self.read += read as u64;
        let (actual, stated) = (self.read, self.stored.length);
        if read > 0 && actual < stated {
            return Ok(read);
        }
        if actual != stated {
            let reason = format!("{actual} bytes read of {stated} that are stated");
            return Err(PackageError::bad_member(reason).into());
        }
        if self.bytes.crc().sum() != self.stored.check {
            return Err(PackageError::bad_member("checksum mismatch").into());
        }
        Ok(read)
    }
}

fn damaged(error: rawzip::Error) -> PackageError {
    match error.into_kind() {
        ErrorKind::IO(error) => PackageError::of_decoder(error),
        kind => PackageError::damaged(kind),
    }
}
