//! Tar files, plain and compressed: valid and hostile ones.

use ::tar::{Builder, EntryType, Header};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;

const MANIFEST: &[u8] = b"<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"><url><loc>http://a/b</loc></url></urlset>";

/// A header of this type, name and stated length.
fn header(kind: EntryType, name: &str, length: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_mode(0o644);
    header.set_size(length);
    if let Some(gnu) = header.as_gnu_mut() {
        gnu.set_real_size(0);
    }
    header.set_cksum();
    header
}

/// A member as it is in a file, valid or not.
fn raw(header: &Header, bytes: &[u8]) -> Vec<u8> {
    let fill = bytes.len().next_multiple_of(512) - bytes.len();
    [&header.as_bytes()[..], bytes, &vec![0; fill]].concat()
}

fn file(name: &str, bytes: &[u8]) -> Vec<u8> {
    raw(&header(EntryType::Regular, name, bytes.len() as u64), bytes)
}

/// A tar file of the crate `tar`.
fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, *bytes).unwrap();
    }
    tar.into_inner().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

#[test]
fn tar_files_are_read_plain_and_compressed() {
    let long = "folder/".repeat(40) + "long";
    let plain = tar(&[
        ("manifest.xml", MANIFEST),
        ("res/a", b"one"),
        ("./res/b", &[7; 2000]),
        (&long, b"long"),
        ("empty", b""),
    ]);
    let (first, second) = plain.split_at(700);
    for (kind, bytes) in [
        ("tar", plain.clone()),
        ("tar without an end", plain[..plain.len() - 1024].to_vec()),
        ("gzip", gzip(&plain)),
        ("several gzip members", [gzip(first), gzip(second)].concat()),
        ("zstd", zstd(&plain)),
        (
            "several frames, and one to skip",
            [
                &zstd(first)[..],
                b"\x50\x2a\x4d\x18\x03\0\0\0abc",
                &zstd(second),
            ]
            .concat(),
        ),
    ] {
        let package = open(&bytes).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(read(&package, "/res/a").unwrap(), b"one", "{kind}");
        assert_eq!(read(&package, "res/b").unwrap(), [7; 2000], "{kind}");
        assert_eq!(read(&package, &long).unwrap(), b"long", "{kind}");
        assert_eq!(read(&package, "empty").unwrap(), b"", "{kind}");
        assert_eq!(code(&package, "res/c"), "no-member", "{kind}");
        assert!(package.member("/srv/dump/res/a").unwrap().is_rebased());
        let base = Url::parse("http://source/p.tar").unwrap();
        let mut manifest = package.manifest(&base, 1 << 20).unwrap();
        let entry = manifest.next_entry().unwrap().unwrap();
        assert_eq!(entry.loc.as_str(), "http://a/b", "{kind}");
        let error = package.manifest(&base, 10).unwrap_err();
        assert_eq!(error.code(), "too-large", "{kind}");
    }
    let package = open(&tar(&[("a", b"")])).unwrap();
    let base = Url::parse("http://source/p.tar").unwrap();
    assert_eq!(
        package.manifest(&base, 9).unwrap_err().code(),
        "no-manifest"
    );
}

#[test]
fn extended_headers_of_pax_are_read() {
    let record = |key: &str, value: &str| {
        let rest = format!(" {key}={value}\n");
        let length = rest.len() + 2;
        assert!((10..100).contains(&length));
        format!("{length}{rest}")
    };
    let pax = |records: &str| {
        let header = header(EntryType::XHeader, "x", records.len() as u64);
        raw(&header, records.as_bytes())
    };
    let global = raw(&header(EntryType::XGlobalHeader, "g", 3), b"???");
    let named = [
        global,
        pax(&record("path", "res/\u{e9}")),
        file("x", b"one"),
    ]
    .concat();
    assert_eq!(read(&open(&named).unwrap(), "res/\u{e9}").unwrap(), b"one");
    // The length of the header counts for what is too long for it.
    let sized = raw(&header(EntryType::Regular, "a", 0), b"12345");
    let sized = [pax(&record("size", "5")), sized, file("b", b"two")].concat();
    let package = open(&sized).unwrap();
    assert_eq!(read(&package, "a").unwrap(), b"12345");
    assert_eq!(read(&package, "b").unwrap(), b"two");
    let sparse = [pax(&record("GNU.sparse.major", "1")), file("a", b"1")].concat();
    assert_eq!(code(&open(&sparse).unwrap(), "a"), "bad-member");
    for bad in [
        "nonsense",
        &record("size", "-1"),
        &record("size", "99999999999999999999"),
    ] {
        let package = open(&[pax(bad), file("a", b"1")].concat());
        assert_eq!(package.unwrap_err().code(), "bad-package", "{bad}");
    }
}

#[test]
fn what_is_no_file_or_leads_out_of_the_package_is_not_read() {
    for (kind, name) in [
        (EntryType::Symlink, "a"),
        (EntryType::Link, "a"),
        (EntryType::Char, "a"),
        (EntryType::Block, "a"),
        (EntryType::Fifo, "a"),
        (EntryType::GNUSparse, "a"),
        (EntryType::new(b'?'), "a"),
        (EntryType::Regular, "/a"),
        (EntryType::Regular, "../a"),
        (EntryType::Regular, "b/../a"),
        (EntryType::Continuous, "..\\a"),
    ] {
        let member = raw(&header(kind, name, 0), b"");
        let package = open(&[member, file("z", b"after")].concat()).unwrap();
        assert_eq!(code(&package, name), "bad-member", "{kind:?} {name}");
        assert_eq!(read(&package, "z").unwrap(), b"after");
    }
    let folder = open(&raw(&header(EntryType::Directory, "a/", 0), b"")).unwrap();
    assert_eq!(code(&folder, "a"), "no-member");
}

#[test]
fn hostile_lengths_and_headers_are_rejected() {
    let huge = |kind, length| raw(&header(kind, "a", length), b"");
    let chain = huge(EntryType::XHeader, 0).repeat(17);
    let mut damaged = file("b", b"two");
    damaged[0] = b'c';
    for (what, rest) in [
        ("half of the addressable", huge(EntryType::Regular, 1 << 63)),
        ("all of it", huge(EntryType::Regular, u64::MAX)),
        ("one byte too long", huge(EntryType::Regular, 1)),
        ("a folder", huge(EntryType::Directory, 1 << 40)),
        ("a long name", huge(EntryType::GNULongName, 1 << 40)),
        ("an extended header", huge(EntryType::XHeader, 1 << 40)),
        ("too many of them", [chain, file("b", b"")].concat()),
        ("another checksum", damaged),
        ("half a header", file("b", b"")[..300].to_vec()),
    ] {
        let package = open(&[file("a", b"one"), rest].concat());
        assert_eq!(package.unwrap_err().code(), "bad-package", "{what}");
    }
    // An extended header is not taken into memory, even if it is all there.
    let long = vec![b'n'; (1 << 20) + 1];
    let long = raw(
        &header(EntryType::GNULongName, "n", long.len() as u64),
        &long,
    );
    let package = open(&[long, file("a", b"")].concat());
    assert_eq!(package.unwrap_err().code(), "bad-package");
    // Of two members of one name it is not known which one is meant.
    let twice = open(&[file("a", b"one"), file("a", b"two")].concat()).unwrap();
    assert_eq!(code(&twice, "a"), "ambiguous-member");
}

#[test]
fn damaged_compression_is_rejected() {
    let plain = tar(&[("a", &b"0123456789".repeat(1000))]);
    for packed in [gzip(&plain), zstd(&plain)] {
        for length in [5, 30, packed.len() / 2, packed.len() - 5] {
            let code = open(&packed[..length]).unwrap_err().code();
            assert_eq!(code, "bad-package", "{length} of {}", packed.len());
        }
        let mut flipped = packed.clone();
        let last = flipped.len() - 6;
        flipped[last] ^= 1;
        // Of zstd only the last four bytes are its checksum.
        let error = open(&flipped).err().map(|error| error.code());
        assert!(matches!(error, Some("bad-package") | None), "{error:?}");
    }
    let wide = b"\x28\xb5\x2f\xfd\x00\xa0\x01\0\0";
    assert_eq!(
        open(wide).unwrap_err().code(),
        "bad-package",
        "a window of 1 GiB"
    );
}

#[test]
fn bombs_are_not_unpacked() {
    let length = 70 << 20;
    let bomb = raw(
        &header(EntryType::Regular, "zeros", length),
        &vec![0; length as usize],
    );
    for packed in [gzip(&bomb), zstd(&bomb)] {
        assert!(packed.len() < 1 << 20);
        assert_eq!(open(&packed).unwrap_err().code(), "expansion");
        let limited = Package::open(on_disk(&packed), &std::env::temp_dir(), Some(1 << 20));
        assert_eq!(limited.unwrap_err().code(), "too-large");
    }
    // Compressed twice it is in no format that is read.
    let twice = open(&gzip(&gzip(&tar(&[("a", b"")]))));
    assert_eq!(twice.unwrap_err().code(), "unsupported-package");
}

#[test]
fn unpacking_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let packed = gzip(&tar(&[("a", b"one")]));
    let package = Package::open(on_disk(&packed), folder.path(), None).unwrap();
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    assert_eq!(read(&package, "a").unwrap(), b"one");
    let gone = folder.path().join("gone");
    let error = Package::open(on_disk(&packed), &gone, None).unwrap_err();
    assert_eq!(error.code(), "io");
}
