//! Packages with false numbers, and files of other formats.

use proptest::prelude::*;

use super::*;

#[test]
fn other_formats_are_recognized_and_rejected() {
    let inner = zip(&[("manifest.xml", b"<urlset/>")]);
    for (beginning, name) in [
        (b"".as_slice(), "empty"),
        (b"\xfd7zXZ\0\0\x04", "xz"),
        (b"BZh91AY", "bzip2"),
        (b"<!DOCTYPE html><html>", "HTML or XML"),
        (b"\xef\xbb\xbf\n <html>", "HTML or XML"),
        (b"{\"error\": 1}", "JSON"),
        (b"no such dump", "an unknown format"),
        (&gzip(b"no package"), "gzip of an unknown format"),
        (&gzip(b""), "gzip of an unknown format"),
    ] {
        let error = open(beginning).unwrap_err();
        assert_eq!(error.code(), "unsupported-package", "{name}");
        assert!(error.to_string().ends_with(name), "{error}");
    }
    // Even if it ends with a ZIP file.
    let hidden = [b"\x1f\x8b\x08\0".as_slice(), &inner].concat();
    assert_eq!(open(&hidden).unwrap_err().code(), "bad-package");
    assert_eq!(
        open(b"PK\x03\x04 and no more").unwrap_err().code(),
        "bad-package"
    );
}

#[test]
fn a_member_of_another_length_than_stated_is_rejected() {
    let bytes = b"0123456789".repeat(100);
    let lie = |change: &dyn Fn(&mut Raw), of: Raw| {
        let mut raw = of;
        change(&mut raw);
        let package = open(&raw_zip(&[raw, Raw::stored("after", b"after")])).unwrap();
        assert_eq!(read(&package, "after").unwrap(), b"after");
        code(&package, "a")
    };
    let stored = || Raw::stored("a", &bytes);
    let deflated = || Raw::deflated("a", &bytes);
    assert_eq!(lie(&|_| {}, stored()), "none");
    assert_eq!(lie(&|_| {}, deflated()), "none");
    for raw in [stored(), deflated()] {
        assert_eq!(lie(&|raw| raw.length -= 1, raw.clone()), "bad-member");
        assert_eq!(lie(&|raw| raw.length += 1, raw.clone()), "bad-member");
        assert_eq!(lie(&|raw| raw.crc ^= 1, raw.clone()), "bad-member");
        assert_eq!(
            lie(&|raw| raw.packed_length -= 5, raw.clone()),
            "bad-member"
        );
        assert_eq!(lie(&|raw| raw.header = Some(1), raw.clone()), "bad-member");
        assert_eq!(lie(&|raw| raw.flags = 1, raw.clone()), "encrypted-member");
        assert_eq!(lie(&|raw| raw.method = 12, raw), "unsupported-compression");
    }
    assert_eq!(lie(&|raw| raw.packed[0] = 0xff, deflated()), "bad-member");
    assert_eq!(lie(&|raw| raw.method = 8, stored()), "bad-member");
}

#[test]
fn a_damaged_member_never_returns_all_its_bytes() {
    let mut raw = Raw::deflated("a", &b"0123456789".repeat(20_000));
    raw.crc ^= 1;
    let mut member = open(&raw_zip(&[raw])).unwrap().member("a").unwrap();
    let mut bytes = Vec::new();
    let error = PackageError::from(member.read_to_end(&mut bytes).unwrap_err());
    assert_eq!(error.code(), "bad-member");
    assert!(bytes.len() < 200_000);
    assert!(member.read(&mut [0; 10]).is_err());
}

/// A deflated member of this number of zeros, without having them in memory.
fn zeros(length: u64) -> Raw {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    let mut crc = flate2::Crc::new();
    let block = vec![0; 1 << 20];
    for _ in 0..length >> 20 {
        encoder.write_all(&block).unwrap();
        crc.update(&block);
    }
    let packed = encoder.finish().unwrap();
    Raw {
        method: 8,
        crc: crc.sum(),
        length: u32::try_from(length).unwrap(),
        packed_length: u32::try_from(packed.len()).unwrap(),
        packed,
        ..Raw::stored("zeros", b"")
    }
}

/// Counts what is written.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn zip_bombs_are_rejected() {
    let bomb = zeros(32 << 20);
    assert_eq!(
        code(
            &open(&raw_zip(std::slice::from_ref(&bomb))).unwrap(),
            "zeros"
        ),
        "expansion"
    );
    // With a small stated length.
    for length in [1000, 1 << 20] {
        let lying = Raw {
            length,
            ..bomb.clone()
        };
        let package = open(&raw_zip(&[lying])).unwrap();
        let mut member = package.member("zeros").unwrap();
        let mut written = Counted(0);
        let read = std::io::copy(&mut member, &mut written);
        assert_eq!(PackageError::from(read.unwrap_err()).code(), "bad-member");
        assert!(written.0 <= u64::from(length) + (64 << 10));
    }
    // The expansion of short members is not limited.
    let package = open(&raw_zip(&[zeros(4 << 20)])).unwrap();
    assert_eq!(code(&package, "zeros"), "none");
}

#[test]
fn a_manifest_that_is_a_zip_bomb_is_too_large() {
    let manifest = Raw {
        name: b"manifest.xml".to_vec(),
        ..zeros(20 << 20)
    };
    let base = Url::parse("http://source/p.zip").unwrap();
    let manifest_of = |raw: Raw| {
        open(&raw_zip(&[raw]))
            .unwrap()
            .manifest(&base, 1 << 20)
            .unwrap_err()
            .code()
    };
    assert_eq!(manifest_of(manifest.clone()), "expansion");
    assert_eq!(
        manifest_of(Raw {
            length: 2 << 20,
            ..manifest.clone()
        }),
        "too-large"
    );
    assert_eq!(
        manifest_of(Raw {
            crc: 0,
            ..Raw::stored("manifest.xml", b"<urlset/>")
        }),
        "bad-member"
    );
}

#[test]
fn members_that_overlap_are_rejected() {
    let zeros = zeros(1 << 20);
    let twin = |header| Raw {
        name: b"twin".to_vec(),
        packed: Vec::new(),
        header: Some(header),
        ..zeros.clone()
    };
    // The same bytes twice, and bytes that begin within those of another member.
    for header in [0, 40] {
        let error = open(&raw_zip(&[zeros.clone(), twin(header)])).unwrap_err();
        assert_eq!(error.to_string(), "the package is damaged: members overlap");
    }
    // Bytes of the directory.
    let beyond = Raw {
        packed_length: 2000,
        length: 2000,
        ..Raw::stored("a", b"")
    };
    assert_eq!(open(&raw_zip(&[beyond])).unwrap_err().code(), "bad-package");
}

#[test]
fn a_package_within_a_package_is_a_member() {
    let mut inner = raw_zip(&[zeros(4 << 20)]);
    for _ in 0..5 {
        inner = zip(&[("a.zip", &inner), ("b.zip", &inner)]);
    }
    let package = open(&inner).unwrap();
    assert_eq!(
        Some(read(&package, "b.zip").unwrap().len() as u64),
        package.member("b.zip").unwrap().length()
    );
    assert_eq!(code(&package, "zeros"), "no-member");
}

#[test]
fn a_truncated_package_is_not_mistaken_for_one_within_it() {
    let inner = raw_zip(&[Raw::stored("manifest.xml", b"of the inner one")]);
    let outer = raw_zip(&[Raw::stored("a", b""), Raw::stored("inner.zip", &inner)]);
    let end_of_inner = 30 + 1 + 30 + 9 + inner.len();
    assert!(outer[..end_of_inner].ends_with(&inner));
    for more in 0..40 {
        let cut = open(&outer[..end_of_inner + more]);
        assert_eq!(cut.unwrap_err().code(), "bad-package");
    }
}

#[test]
fn more_than_65535_members_are_read() {
    // As some tools do without ZIP64.
    let members: Vec<Raw> = (0..65_540)
        .map(|number| Raw::stored(&format!("{number}"), b""))
        .collect();
    let package = open(&raw_zip(&members)).unwrap();
    assert_eq!(package.members(), 65_540);
    assert_eq!(code(&package, "65539"), "none");
}

proptest! {
    #[test]
    fn arbitrary_bytes_in_a_package_do_not_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let members = [Raw::deflated("a", &[7; 1000]), Raw::stored("manifest.xml", b"<urlset/>")];
        let mut bytes = raw_zip(&members);
        for (at, value) in changes {
            let at = at.index(bytes.len() - 4);
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            if let Ok(package) = open(bytes) {
                let read = read(&package, "a");
                prop_assert!(read.is_err() || read.unwrap() == [7; 1000]);
                let base = Url::parse("http://source/p.zip").unwrap();
                let _ = package.manifest(&base, 1 << 20);
            }
        }
    }
}

#[test]
fn zip64_numbers_are_read_and_checked() {
    // Numbers that do not fit are in the extra field, in a fixed order.
    let zip64 = |numbers: &[u64]| {
        let field: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let length = u16::try_from(field.len()).unwrap().to_le_bytes();
        [&[0x99, 0x99, 2, 0, 7, 7, 1, 0][..], &length, &field].concat()
    };
    let large = |extra| Raw {
        length: u32::MAX,
        packed_length: u32::MAX,
        header: Some(u32::MAX),
        extra,
        ..Raw::stored("a", b"bytes")
    };
    let package = open(&raw_zip(&[large(zip64(&[5, 5, 0]))])).unwrap();
    assert_eq!(read(&package, "a").unwrap(), b"bytes");
    for numbers in [
        &[5, 5][..],
        &[5, u64::MAX, 0],
        &[5, 5, u64::MAX],
        &[5, u64::MAX - 30, 30],
    ] {
        let error = open(&raw_zip(&[large(zip64(numbers))])).unwrap_err();
        assert_eq!(error.code(), "bad-package", "{numbers:?}");
    }
    let package = open(&raw_zip(&[large(zip64(&[u64::MAX, 5, 0]))])).unwrap();
    assert_eq!(code(&package, "a"), "bad-member");

    // The records at the end: huge numbers take no memory.
    let mut bytes = raw_zip(&[Raw::stored("a", b"bytes")]);
    let end = bytes.split_off(bytes.len() - 22);
    let with_end = |numbers: [u64; 4], at: u64| {
        let record = [44, 0, 0].map(u64::to_le_bytes).concat();
        let numbers = numbers.map(u64::to_le_bytes).concat();
        let locator = [&[0; 4][..], &at.to_le_bytes(), &[1, 0, 0, 0]].concat();
        let record = [&bytes[..], b"PK\x06\x06", &record[..20], &numbers].concat();
        open(&[&record[..], b"PK\x06\x07", &locator, &end].concat())
    };
    let (at, start) = (bytes.len() as u64, 36);
    let package = with_end([1, 1, at - start, start], at).unwrap();
    assert_eq!(read(&package, "a").unwrap(), b"bytes");
    for (numbers, at) in [
        ([1, 1, u64::MAX, start], at),
        ([1, 1, at - start, u64::MAX], at),
        ([1, 1, at, 1], at),
        ([1, 1, 0, 0], at),
        ([1 << 40, 1 << 40, at - start, start], at),
    ] {
        assert_eq!(with_end(numbers, at).unwrap_err().code(), "bad-package");
    }
    // The record is where the locator states it.
    let elsewhere = with_end([1, 1, at - start, start], u64::MAX);
    assert_eq!(elsewhere.unwrap_err().code(), "bad-package");
}

#[test]
fn many_false_ends_of_a_zip_file_are_passed_over() {
    let ends = b"PK\x05\x06".repeat(30_000);
    assert_eq!(open(&ends).unwrap_err().code(), "bad-package");
}

#[test]
fn the_number_of_members_is_limited() {
    let names: Vec<String> = (0..10).map(|number| format!("res/{number}")).collect();
    let members: Vec<Raw> = names.iter().map(|name| Raw::stored(name, b"")).collect();
    let bytes = raw_zip(&members);
    let file = Arc::new(on_disk(&bytes));
    let directory = |limit| crate::zip::read_directory(&file, bytes.len() as u64, limit);
    assert_eq!(directory(10).unwrap().len(), 10);
    assert_eq!(directory(9).unwrap_err().code(), "too-many-members");

    // The number in the end record is not trusted.
    for claimed in [9, 11, 0, u16::MAX] {
        let mut lying = bytes.clone();
        let at = lying.len() - 12;
        lying[at..at + 2].copy_from_slice(&claimed.to_le_bytes());
        assert_eq!(open(&lying).unwrap_err().code(), "bad-package");
    }
}

#[test]
fn members_are_read_concurrently() {
    let content = |number: usize| vec![u8::try_from(number).unwrap(); 300_000 + number];
    let contents: Vec<Vec<u8>> = (0..8).map(content).collect();
    let names: Vec<String> = (0..8).map(|number| format!("res/{number}")).collect();
    let members: Vec<(&str, &[u8])> = names
        .iter()
        .zip(&contents)
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    let package = open(&zip(&members)).unwrap();
    std::thread::scope(|scope| {
        for (name, bytes) in &members {
            let package = package.clone();
            scope.spawn(move || assert!(read(&package, name).unwrap() == *bytes));
        }
    });
}
