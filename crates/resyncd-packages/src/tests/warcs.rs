//! WARC files, plain and compressed: valid and hostile ones.

use resourcesync::{Algorithm, Digest};

use super::*;

const URI: &str = "http://example.org/a";

/// A record with these fields besides those that all have.
fn record(kind: &str, uri: &str, date: &str, fields: &[&str], block: &[u8]) -> Vec<u8> {
    let mut head = format!("WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\n");
    head.push_str(&format!(
        "WARC-Date: {date}\r\nContent-Length: {}\r\n",
        block.len()
    ));
    for field in fields {
        head.push_str(field);
        head.push_str("\r\n");
    }
    [head.as_bytes(), b"\r\n", block, b"\r\n\r\n"].concat()
}

fn resource(uri: &str, bytes: &[u8]) -> Vec<u8> {
    record("resource", uri, "2026-01-01T00:00:00Z", &[], bytes)
}

/// A record of an HTTP response with status 200.
fn response(headers: &str, body: &[u8], fields: &[&str]) -> Vec<u8> {
    let block = [b"HTTP/1.1 200 OK\r\n", headers.as_bytes(), b"\r\n", body].concat();
    let http = "Content-Type: application/http; msgtype=response";
    let fields: Vec<&str> = fields.iter().copied().chain([http]).collect();
    record("response", URI, "2026-01-01T00:00:00Z", &fields, &block)
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

fn sha1(bytes: &[u8]) -> String {
    let digest = Digest::of(Algorithm::Sha1, bytes).to_string();
    digest.replace("sha-1:", "sha1:")
}

/// The URIs that the manifest names, with their times.
fn named(package: &Package) -> Vec<(String, String)> {
    let base = Url::parse("http://source/p.warc").unwrap();
    let mut manifest = package.manifest(&base, 1 << 20).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = manifest.next_entry().unwrap() {
        let lastmod = entry.lastmod.map(|time| time.to_string());
        found.push((entry.loc.to_string(), lastmod.unwrap_or_default()));
    }
    found
}

#[test]
fn records_are_read_plain_and_compressed() {
    let records = [
        record(
            "warcinfo",
            "urn:x",
            "2026-01-01T00:00:00Z",
            &[],
            b"software: x",
        ),
        resource(URI, b"one"),
        record(
            "request",
            URI,
            "2026-01-02T00:00:00Z",
            &[],
            b"GET / HTTP/1.1\r\n\r\n",
        ),
        resource("<http://example.org/b>", &[7; 100_000]),
        resource("http://example.org/empty", b""),
    ];
    let plain = records.concat();
    let by_record: Vec<u8> = records.iter().flat_map(|record| gzip(record)).collect();
    for (kind, bytes) in [
        ("plain", plain.clone()),
        ("by record", by_record),
        ("as a whole", gzip(&plain)),
    ] {
        let package = open(&bytes).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(package.members(), 5, "{kind}");
        assert!(package.makes_manifest(), "{kind}");
        assert_eq!(read(&package, URI).unwrap(), b"one", "{kind}");
        assert_eq!(
            read(&package, "http://example.org/b").unwrap(),
            [7; 100_000]
        );
        assert_eq!(read(&package, "http://example.org/empty").unwrap(), b"");
        assert_eq!(code(&package, "http://example.org/c"), "no-member");
        assert_eq!(
            package.path_of(Some("/r".to_owned()), URI).as_deref(),
            Some(URI)
        );
        assert_eq!(package.path_of(None, "http://example.org/c"), None);
        assert_eq!(named(&package).len(), 3, "{kind}");
    }
}

#[test]
fn http_is_undone_and_digests_are_verified() {
    let body = b"0123456789".repeat(30);
    let chunks = |body: &[u8]| {
        let (first, second) = body.split_at(7);
        let length = format!("{:X};x=y\r\n", second.len());
        [
            b"7\r\n",
            first,
            b"\r\n",
            length.as_bytes(),
            second,
            b"\r\n0\r\nT: x\r\n\r\n",
        ]
        .concat()
    };
    let digest = |bytes: &[u8]| format!("WARC-Payload-Digest: {}", sha1(bytes));
    let coded = gzip(&body);
    let (chunked, both) = (chunks(&body), chunks(&coded));
    for (headers, stored, of) in [
        ("", &body, &body),
        ("Transfer-Encoding: chunked\r\n", &chunked, &chunked),
        ("Transfer-Encoding: chunked\r\n", &chunked, &body),
        ("Content-Encoding: gzip\r\n", &coded, &coded),
        (
            "Transfer-Encoding: chunked\r\nContent-Encoding: x-gzip\r\n",
            &both,
            &coded,
        ),
        // Undone before it was stored.
        (
            "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n",
            &body,
            &body,
        ),
    ] {
        let good = open(&response(headers, stored, &[&digest(of)])).unwrap();
        assert_eq!(read(&good, URI).unwrap(), body, "{headers}");
        let bad = open(&response(headers, stored, &[&digest(b"other")])).unwrap();
        assert_eq!(code(&bad, URI), "bad-member", "{headers}");
        let bad = format!("WARC-Block-Digest: {}", sha1(b"other"));
        let bad = open(&response(headers, stored, &[&bad])).unwrap();
        assert_eq!(code(&bad, URI), "bad-member", "{headers}");
    }
    let base32 = "WARC-Payload-Digest: sha1:WP74V65CFWCUP6V34HMRWOBATTVZEIY2";
    let unlike = open(&response("", b"x", &[base32])).unwrap();
    assert_eq!(code(&unlike, URI), "bad-member");
    let unknown = open(&response("", b"x", &["WARC-Payload-Digest: crc:1"])).unwrap();
    assert_eq!(read(&unknown, URI).unwrap(), b"x");
    // A short stream, and what does not belong to it; a stream without end that has nothing.
    let junk = [zlib(b"x"), vec![0; 17 << 20]].concat();
    let nothing = gzip(b"").repeat(1 << 20);
    for (headers, stored, expected) in [
        (
            "Content-Encoding: deflate, gzip\r\n",
            &gzip(&junk)[..],
            "expansion",
        ),
        (
            "Content-Encoding: gzip, gzip\r\n",
            &gzip(&nothing),
            "expansion",
        ),
        (
            "Content-Encoding: br\r\n",
            &b"x"[..],
            "unsupported-compression",
        ),
        ("Transfer-Encoding: chunked\r\n", b"5\r\n123", "bad-member"),
        ("Content-Encoding: gzip\r\n", &coded[..20], "bad-member"),
        (
            "Content-Encoding: gzip\r\n",
            &gzip(&vec![0; 17 << 20]),
            "expansion",
        ),
    ] {
        let package = open(&response(headers, stored, &[])).unwrap();
        assert_eq!(code(&package, URI), expected, "{headers}");
    }
}

#[test]
fn last_record_of_a_uri_counts_and_revisits_are_resolved() {
    let at = |date: &str, bytes: &[u8]| record("resource", URI, date, &[], bytes);
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    let package = open(&[at(new, b"new"), at(old, b"old")].concat()).unwrap();
    assert_eq!(read(&package, URI).unwrap(), b"new");
    assert_eq!(named(&package), [(URI.to_owned(), new.to_owned())]);

    let other = "http://example.org/other";
    let id = "WARC-Record-ID: <urn:uuid:1>";
    let first = record(
        "resource",
        other,
        old,
        &[id, "WARC-Payload-Digest: sha1:x"],
        b"same",
    );
    for field in [
        "WARC-Refers-To: <urn:uuid:1>",
        "WARC-Refers-To-Target-URI: http://example.org/other\r\nWARC-Refers-To-Date: 2026-01-01T00:00:00Z",
        "WARC-Payload-Digest: sha1:x",
    ] {
        let revisit = record("revisit", URI, new, &[field], b"");
        let package = open(&[at(old, b"old"), first.clone(), revisit].concat()).unwrap();
        assert_eq!(read(&package, URI).unwrap(), b"same", "{field}");
        assert_eq!(read(&package, "<urn:uuid:1>").unwrap(), b"same");
    }
    let revisit = record("revisit", URI, new, &["WARC-Refers-To: <urn:uuid:2>"], b"");
    let package = open(&[at(old, b"old"), revisit].concat()).unwrap();
    assert_eq!(code(&package, URI), "bad-member");
    // Only what was found counts.
    let missing = response("", b"", &[]);
    let missing = String::from_utf8(missing)
        .unwrap()
        .replace("200 OK", "404 No");
    let package = open(&[at(old, b"old"), missing.into_bytes()].concat()).unwrap();
    assert_eq!(read(&package, URI).unwrap(), b"old");
}

#[test]
fn manifest_is_the_record_of_that_name() {
    let manifest = |capability: &str| {
        format!(
            r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
            {capability}<url><loc>{URI}</loc></url></urlset>"#
        )
    };
    let stated = manifest(r#"<rs:md capability="resourcedump-manifest"/>"#);
    let plain = manifest("");
    let records = |manifests: &[(&str, &str)]| {
        let records = manifests.iter();
        let records = records.map(|(uri, text)| resource(uri, text.as_bytes()));
        open(
            &records
                .chain([resource(URI, b"one")])
                .collect::<Vec<_>>()
                .concat(),
        )
    };
    let of_page = ("http://example.org/app/manifest.xml", "<manifest/>");
    let stated = ("http://example.org/manifest.xml", stated.as_str());
    let unstated = ("http://example.org/x/manifest.xml", plain.as_str());
    for (manifests, is_made, names) in [
        (&[stated][..], false, 1),
        (&[of_page, stated, unstated], false, 1),
        (&[unstated], false, 1),
        (&[of_page], true, 2),
    ] {
        let package = records(manifests).unwrap();
        assert_eq!(package.makes_manifest(), is_made, "{manifests:?}");
        assert_eq!(named(&package).len(), names, "{manifests:?}");
    }
    let twice = ("http://example.org/other/manifest.xml", plain.as_str());
    let error = records(&[unstated, twice]).unwrap_err();
    assert_eq!(error.code(), "ambiguous-member");
}

const STATED: &str = r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
    <rs:md capability="resourcedump-manifest"/><url><loc>http://example.org/named</loc></url></urlset>"#;

#[test]
fn manifest_may_be_a_record_of_any_kind_or_the_one_that_the_dump_names() {
    let date = "2026-01-01T00:00:00Z";
    let http = ["Content-Type: application/http; msgtype=response"];
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n\r\n{STATED}");
    let by_name = "http://example.org/manifest.xml";
    let other = "http://example.org/contents";
    for (kind, uri, fields, block, contents, is_made) in [
        ("resource", by_name, &[][..], STATED, None, false),
        ("metadata", by_name, &[], STATED, None, false),
        ("response", by_name, &http, answer.as_str(), None, false),
        ("resource", other, &[], STATED, Some(other), false),
        ("metadata", other, &[], STATED, Some(other), false),
        ("response", other, &http, &answer, Some(other), false),
        // Nothing says that it is the manifest.
        ("metadata", other, &[], STATED, None, true),
        ("metadata", by_name, &[], "hops: 1", None, true),
        ("metadata", other, &[], "hops: 1", Some(other), true),
        ("request", by_name, &[], STATED, Some(by_name), true),
    ] {
        let manifest = record(kind, uri, date, fields, block.as_bytes());
        let records = [resource(URI, b"one"), manifest];
        let packed: Vec<u8> = records.iter().flat_map(|record| gzip(record)).collect();
        let contents = contents.map(|contents| Url::parse(contents).unwrap());
        for bytes in [records.concat(), packed] {
            let package = open(&bytes).unwrap().with_manifest_at(contents.as_ref());
            let case = format!("{kind} {uri} {contents:?}");
            assert_eq!(package.makes_manifest(), is_made, "{case}");
            let names = named(&package);
            let expected = if is_made {
                names.iter().any(|(uri, _)| uri == URI)
            } else {
                names[0].0 == "http://example.org/named"
            };
            assert!(expected, "{case}: {names:?}");
            assert_eq!(read(&package, URI).unwrap(), b"one", "{case}");
        }
    }
    // The record that the dump names counts, and of its versions the last one.
    let older = STATED.replace("named", "older");
    let records = [
        resource(by_name, older.as_bytes()),
        record(
            "metadata",
            other,
            "2026-01-02T00:00:00Z",
            &[],
            STATED.as_bytes(),
        ),
        record("metadata", other, date, &[], older.as_bytes()),
    ];
    let contents = Url::parse(other).unwrap();
    let package = open(&records.concat()).unwrap();
    let package = package.with_manifest_at(Some(&contents));
    assert_eq!(named(&package)[0].0, "http://example.org/named");
}

#[test]
fn hostile_records_are_rejected() {
    let lying = |length: &str| {
        format!("WARC/1.0\r\nWARC-Type: resource\r\nContent-Length: {length}\r\n\r\nx")
    };
    let long = "x".repeat(70_000);
    let lines = "a: b\r\n".repeat(20_000);
    for (what, bytes, expected) in [
        ("endless", lying("9223372036854775807"), "bad-package"),
        (
            "more than addressable",
            lying("99999999999999999999"),
            "bad-package",
        ),
        ("negative", lying("-1"), "bad-package"),
        ("no length", "WARC/1.0\r\n\r\n".to_owned(), "bad-package"),
        (
            "no end of the header",
            "WARC/1.0\r\nWARC-Type: x".to_owned(),
            "bad-package",
        ),
        (
            "a long line",
            format!("WARC/1.0\r\nA: {long}\r\n\r\n"),
            "bad-package",
        ),
        (
            "many lines",
            format!("WARC/1.0\r\n{lines}\r\n"),
            "bad-package",
        ),
        (
            "no record",
            "WARC/1.0\r\nContent-Length: 0\r\n\r\nnonsense\r\n".to_owned(),
            "bad-package",
        ),
    ] {
        let plain = open(bytes.as_bytes()).unwrap_err();
        assert_eq!(plain.code(), expected, "{what}");
        let packed = open(&gzip(bytes.as_bytes())).unwrap_err();
        let codes = ["bad-package", "expansion"];
        assert!(codes.contains(&packed.code()), "{what}: {packed}");
    }
    let bomb = gzip(&resource(URI, &vec![0; 20 << 20]));
    assert_eq!(open(&bomb).unwrap_err().code(), "expansion");
    // A response of which the header does not end is no reason to reject the others.
    let endless = response(&format!("A: {long}\r\n"), b"", &[]);
    let package = open(&[endless, resource("http://example.org/b", b"two")].concat()).unwrap();
    assert_eq!(code(&package, URI), "no-member");
    assert_eq!(read(&package, "http://example.org/b").unwrap(), b"two");
    // A part of a record is not a resource.
    let part = record(
        "resource",
        URI,
        "2026-01-01T00:00:00Z",
        &["WARC-Segment-Number: 1"],
        b"x",
    );
    assert_eq!(code(&open(&part).unwrap(), URI), "no-member");
}

#[test]
fn truncated_warc_is_an_error_or_has_fewer_records() {
    let records = [
        resource(URI, b"one"),
        resource("http://example.org/b", b"two"),
    ];
    let packed: Vec<u8> = records.iter().flat_map(|record| gzip(record)).collect();
    for whole in [records.concat(), packed] {
        for length in 5..whole.len() {
            if let Ok(package) = open(&whole[..length]) {
                let found = read(&package, URI);
                assert!(found.is_err() || found.unwrap() == b"one", "{length}");
            }
        }
    }
}

/// Made by warcio (PyPI): a manifest, a response in chunks and with a content coding, and a revisit of it.
#[test]
fn warc_files_of_warcio_are_read() {
    for bytes in [
        &include_bytes!("../../../../fuzz/corpus/package/warcio")[..],
        include_bytes!("../../../../fuzz/corpus/package/warcio_gzip"),
    ] {
        let package = open(bytes).unwrap();
        assert!(!package.makes_manifest());
        assert_eq!(named(&package).len(), 2);
        assert_eq!(read(&package, "http://example.com/a").unwrap(), b"one");
        assert_eq!(read(&package, "http://example.com/b").unwrap(), b"one");
    }
}
