//! Packages as they are, and as they should not be.

use std::io::{Cursor, Read, Seek, SeekFrom, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::*;

fn on_disk(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file
}

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

fn open(bytes: &[u8]) -> Result<Package, PackageError> {
    Package::open(on_disk(bytes))
}

fn read(package: &Package, path: &str) -> Result<Vec<u8>, PackageError> {
    let mut member = package.member(path)?;
    let mut bytes = Vec::new();
    member.read_to_end(&mut bytes)?;
    assert_eq!(member.length(), bytes.len() as u64);
    Ok(bytes)
}

#[test]
fn members_are_found_by_the_path_of_the_manifest() {
    let package = open(&zip(&[("res/a", b"one"), ("./res/b", b"two")])).unwrap();
    for (path, bytes) in [
        ("/res/a", "one"),
        ("res/a", "one"),
        ("./res/a", "one"),
        ("\\res\\a", "one"),
        ("/res/b", "two"),
        ("/home/me/dump/res/b", "two"),
    ] {
        assert_eq!(read(&package, path).unwrap(), bytes.as_bytes(), "{path}");
    }
    assert_eq!(package.member("/res/c").unwrap_err().code(), "no-member");
}
