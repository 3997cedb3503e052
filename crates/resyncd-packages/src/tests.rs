//! Valid and hostile packages.

mod hostile;
mod names;
mod producers;
mod tars;
mod warcs;

use std::io::{Cursor, Read, Write};

use ::zip::write::SimpleFileOptions;
use ::zip::{CompressionMethod, ZipWriter};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use url::Url;

use super::*;

fn on_disk(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn open(bytes: &[u8]) -> Result<Package, PackageError> {
    Package::open(on_disk(bytes), &std::env::temp_dir(), None)
}

fn read(package: &Package, path: &str) -> Result<Vec<u8>, PackageError> {
    let mut member = package.member(path)?;
    let mut bytes = Vec::new();
    member.read_to_end(&mut bytes)?;
    assert!(
        member
            .length()
            .is_none_or(|length| length == bytes.len() as u64)
    );
    Ok(bytes)
}

/// The code of the error of reading a member.
fn code(package: &Package, path: &str) -> &'static str {
    match read(package, path) {
        Ok(_) => "none",
        Err(error) => error.code(),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A ZIP file of the crate `zip`: every other member is deflated.
fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (number, (name, bytes)) in members.iter().enumerate() {
        let method = [CompressionMethod::Deflated, CompressionMethod::Stored][number % 2];
        let options = SimpleFileOptions::default().compression_method(method);
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A member as it is written into a ZIP file, valid or not.
#[derive(Clone)]
struct Raw {
    name: Vec<u8>,
    packed: Vec<u8>,
    method: u16,
    flags: u16,
    crc: u32,
    /// The entry in the directory.
    packed_length: u32,
    length: u32,
    header: Option<u32>,
    extra: Vec<u8>,
    unix_mode: u32,
}

impl Raw {
    fn stored(name: &str, bytes: &[u8]) -> Self {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        Self {
            name: name.into(),
            packed: bytes.to_vec(),
            method: 0,
            flags: 0,
            crc: crc.sum(),
            packed_length: u32::try_from(bytes.len()).unwrap(),
            length: u32::try_from(bytes.len()).unwrap(),
            header: None,
            extra: Vec::new(),
            unix_mode: 0o100_644,
        }
    }

    fn deflated(name: &str, bytes: &[u8]) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        let packed = encoder.finish().unwrap();
        Self {
            method: 8,
            packed_length: u32::try_from(packed.len()).unwrap(),
            packed,
            ..Self::stored(name, bytes)
        }
    }
}

/// Writes a ZIP file of these members, valid or not.
fn raw_zip(members: &[Raw]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut directory = Vec::new();
    for raw in members {
        let header = u32::try_from(bytes.len()).unwrap();
        let shared = [raw.flags, raw.method, 0, 0x21]
            .map(u16::to_le_bytes)
            .concat();
        let numbers = [raw.crc, raw.packed_length, raw.length]
            .map(u32::to_le_bytes)
            .concat();
        let length = u16::try_from(raw.name.len()).unwrap().to_le_bytes();
        bytes.extend([b"PK\x03\x04\x14\0", &shared[..], &numbers, &length, &[0; 2]].concat());
        bytes.extend(&raw.name);
        bytes.extend(&raw.packed);

        let extra = u16::try_from(raw.extra.len()).unwrap().to_le_bytes();
        directory.extend([b"PK\x01\x02\x14\x03\x14\0", &shared[..], &numbers].concat());
        directory.extend([&length[..], &extra, &[0; 6]].concat());
        directory.extend((raw.unix_mode << 16).to_le_bytes());
        directory.extend(raw.header.unwrap_or(header).to_le_bytes());
        directory.extend([&raw.name[..], &raw.extra].concat());
    }
    // Like tools without ZIP64.
    let count = (members.len() as u16).to_le_bytes();
    let start = u32::try_from(bytes.len()).unwrap().to_le_bytes();
    let length = u32::try_from(directory.len()).unwrap().to_le_bytes();
    bytes.extend(directory);
    bytes.extend(
        [
            b"PK\x05\x06\0\0\0\0",
            &count[..],
            &count,
            &length,
            &start,
            &[0; 2],
        ]
        .concat(),
    );
    bytes
}
