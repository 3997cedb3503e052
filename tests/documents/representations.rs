//! Representations as servers negotiate them: by media type, and coded.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, ZlibEncoder};
use resourcesync::{Algorithm, Digest};
use resyncd::status::StatusError;

use crate::documents::site::{
    Follower, Site, change_list, changed, entry, gzip, listed, resource_list,
};

const TEXT: &[u8] =
    b"a text that is long enough to be compressed, compressed, compressed, and again compressed";

/// A Source of one resource at `/a` with these attributes of its `rs:md`.
async fn site_of(md: &str) -> Site {
    let inside = format!("<lastmod>2026-02-01T00:00:00Z</lastmod><rs:md {md}/>");
    Site::with_lists(&resource_list(&entry("/a", &inside))).await
}

/// Attributes that state the length and the digest of these bytes.
fn stated(bytes: &[u8]) -> String {
    let digest = Digest::of(Algorithm::Sha256, bytes);
    format!("length=\"{}\" hash=\"{digest}\"", bytes.len())
}

/// Follows a site until `/a` is mirrored with these bytes, and `GET /resource` shows this coding.
async fn until_mirrored(site: Site, bytes: &[u8], coding: Option<&str>) -> Follower {
    let follower = Follower::start(site).await;
    let text = String::from_utf8_lossy(bytes).into_owned();
    follower.until_mirrored(&[("/a", &text)]).await;
    let uri = follower.site.url("/a");
    let shown = follower.destination.operator.resource(&uri).await.unwrap();
    assert_eq!(shown["encoding"].as_str(), coding, "{shown}");
    assert_eq!(
        shown["length"].as_u64(),
        Some(bytes.len() as u64),
        "{shown}"
    );
    follower
}

#[tokio::test(flavor = "multi_thread")]
async fn stated_type_is_asked_for() {
    let site = site_of("type=\"text/turtle\"").await;
    site.put_bytes("/a", &[("content-type", "text/html")], b"<html>".to_vec());
    let turtle = [("content-type", "text/turtle")];
    site.put_variant("/a", ("accept", "text/turtle"), &turtle, TEXT.to_vec());
    until_mirrored(site, TEXT, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stated_type_is_cut_and_redacted_in_messages() {
    let long = format!("application/http://user:password@host/{}", "x".repeat(5000));
    let site = site_of(&format!("type=\"{long}\"")).await;
    let html = [("content-type", "text/html")];
    site.put_bytes("/a", &html, TEXT.to_vec());
    let follower = Follower::start(site).await;
    let reported = |error: &StatusError| error.code == "type-mismatch";
    let set = follower
        .until("reported", |set| set.error.as_ref().is_some_and(reported))
        .await;
    let message = set.error.unwrap().message;
    assert!(message.contains("application/http"), "{message}");
    assert!(message.len() < 500, "{message}");
    assert!(!message.contains("password"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_in_place_of_another_type_is_reported_unless_a_digest_proves_it() {
    let html = [("content-type", "text/html; charset=utf-8")];
    let site = site_of("type=\"application/pdf\"").await;
    site.put_bytes("/a", &html, TEXT.to_vec());
    let follower = Follower::start(site).await;
    let is_reported = |code: &str| code == "type-mismatch";
    let set = follower
        .until("reported", |set| {
            set.error
                .as_ref()
                .is_some_and(|error| is_reported(&error.code))
        })
        .await;
    assert_eq!(set.resources, 0);
    assert_eq!(set.pending + set.failed, 1);

    let proven = site_of(&format!("type=\"application/pdf\" {}", stated(TEXT))).await;
    proven.put_bytes("/a", &html, TEXT.to_vec());
    until_mirrored(proven, TEXT, None).await;

    let allowed = site_of("type=\"application/pdf\"").await;
    allowed.put_bytes("/a", &html, TEXT.to_vec());
    let follower =
        Follower::start_with(allowed, "/", |source| source.allow_type_mismatch = true).await;
    follower.until("mirrored", |set| set.resources == 1).await;
}

/// A page for signing in, where no entry states a type, as in each sitemap.
#[tokio::test(flavor = "multi_thread")]
async fn page_in_place_of_a_file_is_reported_where_no_type_is_stated() {
    const PAGE: &str = "<html>Please sign in</html>";
    let html = [("content-type", "text/html; charset=utf-8")];
    let is_reported = |error: &StatusError| error.code == "type-mismatch";
    let files = ["/a.pdf", "/b", "/old.php"];
    let pages = ["/c", "/d.html", "/e.jsp", "/File:Photo.jpg"];
    // Its server calls everything a page.
    let careless = "/f.csv";
    let entries: String = files
        .iter()
        .chain(&pages)
        .chain([&careless])
        .map(|path| listed(path))
        .collect();
    let site = Site::with_lists(&resource_list(&entries)).await;
    site.put_bytes(careless, &html, b"a,<html>".to_vec());
    for path in files {
        let pdf = [("content-type", "application/pdf")];
        site.put_bytes(path, &pdf, b"%PDF".to_vec());
    }
    for path in pages {
        site.put_bytes(path, &html, b"<html>first".to_vec());
    }
    let follower = Follower::start(site).await;
    let mirrored = |pages: &'static str, more: &[(&'static str, &'static str)]| {
        let mut expected: Vec<(&str, &str)> = vec![
            ("/File:Photo.jpg", pages),
            ("/a.pdf", "%PDF"),
            ("/b", "%PDF"),
            ("/c", pages),
            ("/d.html", pages),
            ("/e.jsp", pages),
            (careless, "a,<html>"),
            ("/old.php", "%PDF"),
        ];
        expected.extend(more);
        expected.sort_unstable();
        expected
    };
    follower.until_mirrored(&mirrored("<html>first", &[])).await;

    let site = &follower.site;
    site.put_bytes("/login", &html, PAGE.as_bytes().to_vec());
    let new = ["/new.xml", "/new.JPG", "/new"];
    for path in files.iter().chain(&new) {
        site.put_redirect(path, "/login");
    }
    for path in pages {
        site.put_bytes(path, &html, b"<html>second".to_vec());
    }
    let at = "02T00:00:00";
    let updated = files
        .iter()
        .chain(&pages)
        .map(|path| changed(path, "updated", at));
    let created = new.iter().map(|path| changed(path, "created", at));
    let changes: String = updated.chain(created).collect();
    site.put("/changes.xml", &change_list(&changes));
    follower.poll().await;
    let set = follower
        .until("reported", |set| {
            set.resources == 9
                && set.pending + set.failed == 5
                && set.error.as_ref().is_some_and(is_reported)
        })
        .await;
    assert_eq!(set.state, "catching-up");
    let expected = mirrored("<html>second", &[("/new", PAGE)]);
    let expected = expected
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    assert_eq!(follower.mirrored(), expected.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn coded_bytes_are_published_as_what_is_stated_describes_them() {
    let (coded, zipped) = ([("content-encoding", "gzip")], gzip(TEXT));
    for (md, bytes, coding) in [
        (stated(TEXT), TEXT, None),
        (stated(&zipped), &zipped[..], Some("gzip")),
        (String::new(), TEXT, None),
        (format!("length=\"{}\"", TEXT.len()), TEXT, None),
    ] {
        let site = site_of(&md).await;
        site.put_bytes("/a", &coded, zipped.clone());
        until_mirrored(site, bytes, coding).await;
    }
    // A header that was left on.
    let site = site_of(&stated(TEXT)).await;
    site.put_bytes("/a", &coded, TEXT.to_vec());
    until_mirrored(site, TEXT, None).await;
}

/// Bytes in the format of zlib, and without it.
fn deflated(bytes: &[u8]) -> [Vec<u8>; 2] {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
    zlib.write_all(bytes).unwrap();
    raw.write_all(bytes).unwrap();
    [zlib.finish().unwrap(), raw.finish().unwrap()]
}

/// As stores of objects and others send them, unasked.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_decoded_whatever_list_of_codings_is_stated() {
    let [zlib, raw] = deflated(TEXT);
    let cases = [
        ("/a", "gzip,aws-chunked", gzip(TEXT)),
        ("/b", "aws-chunked", TEXT.to_vec()),
        ("/c", "gzip,", gzip(TEXT)),
        ("/d", "X-GZIP", gzip(TEXT)),
        ("/e", "deflate", zlib),
        ("/f", "deflate", raw.clone()),
        ("/g", "deflate, gzip", gzip(&raw)),
        ("/h", "deflate, gzip", TEXT.to_vec()),
        // Padded with zeros, and in two members.
        ("/i", "gzip", [gzip(TEXT), vec![0; 700]].concat()),
        (
            "/j",
            "gzip",
            [gzip(&TEXT[..3]), gzip(&TEXT[3..]), vec![0]].concat(),
        ),
    ];
    let entries: String = cases.iter().map(|(path, ..)| listed(path)).collect();
    let site = Site::with_lists(&resource_list(&entries)).await;
    let [zlib, _] = deflated(&site.expand(&resource_list(&entries)));
    site.put_bytes("/list.xml", &[("content-encoding", "deflate")], zlib);
    let [_, raw] = deflated(&site.expand(&change_list("")));
    site.put_bytes("/changes.xml", &[("content-encoding", "deflate")], raw);
    for (path, coding, bytes) in &cases {
        site.put_bytes(path, &[("content-encoding", coding)], bytes.clone());
    }
    let text = std::str::from_utf8(TEXT).unwrap();
    let expected: Vec<(&str, &str)> = cases.iter().map(|(path, ..)| (*path, text)).collect();
    Follower::start(site).await.until_mirrored(&expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn coding_that_cannot_be_decoded_is_reported_and_not_stored() {
    let coded = b"\x8b\x05\x80 like brotli".to_vec();
    let is_reported =
        |error: &StatusError| error.code == "unsupported-coding" && error.message.contains("br");
    for path in ["/a", "/list.xml"] {
        let site = site_of("").await;
        site.put_bytes(path, &[("content-encoding", "br")], coded.clone());
        let follower = Follower::start(site).await;
        let set = follower
            .until("reported", |set| {
                set.error.as_ref().is_some_and(is_reported)
            })
            .await;
        assert_eq!(set.resources, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn coded_representation_is_asked_for_where_the_plain_one_is_not_what_is_stated() {
    let zipped = gzip(TEXT);
    let site = site_of(&stated(&zipped)).await;
    site.put_bytes("/a", &[], TEXT.to_vec());
    let coded = [("content-encoding", "gzip")];
    site.put_variant("/a", ("accept-encoding", "gzip"), &coded, zipped.clone());
    until_mirrored(site, &zipped, Some("gzip")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stated_coding_is_asked_for_first() {
    for (coding, bytes, is_verifiable) in [
        ("gzip", gzip(TEXT), true),
        // It can't be decoded, and is verified as it is.
        ("br", b"\x8b\x05\x80 like brotli".to_vec(), true),
        ("br", b"\x8b\x05\x80 like brotli".to_vec(), false),
    ] {
        let md = if is_verifiable {
            stated(&bytes)
        } else {
            String::new()
        };
        let site = site_of(&format!("encoding=\"{coding}\" {md}")).await;
        site.put_bytes("/a", &[], TEXT.to_vec());
        let headers = [("content-encoding", coding)];
        site.put_variant("/a", ("accept-encoding", coding), &headers, bytes.clone());
        let expected = if is_verifiable { &bytes[..] } else { TEXT };
        let follower = until_mirrored(site, expected, is_verifiable.then_some(coding)).await;
        assert_eq!(follower.site.hits("/a"), 1, "{coding} {is_verifiable}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_is_compressed_by_its_name_before_a_redirect_is_not_decoded() {
    let inside = "<lastmod>2026-02-01T00:00:00Z</lastmod>";
    let site = Site::with_lists(&resource_list(&entry("/a.gz", inside))).await;
    let zipped = gzip(TEXT);
    site.put_redirect("/a.gz", "/blob");
    site.put_bytes("/blob", &[("content-encoding", "gzip")], zipped.clone());
    let follower = Follower::start(site).await;
    let zipped = String::from_utf8_lossy(&zipped);
    follower.until_mirrored(&[("/a.gz", &zipped)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_coding_is_not_published() {
    let site = site_of("").await;
    let mut zipped = gzip(TEXT);
    zipped.truncate(zipped.len() - 9);
    site.put_bytes("/a", &[("content-encoding", "gzip")], zipped);
    let follower = Follower::start(site).await;
    let set = follower
        .until("reported", |set| {
            set.error
                .as_ref()
                .is_some_and(|error| error.code == "bad-gzip")
        })
        .await;
    assert_eq!(set.resources, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn coded_bomb_is_not_published() {
    let site = site_of("").await;
    let bomb = gzip(&vec![0; 65 << 20]);
    site.put_bytes("/a", &[("content-encoding", "gzip")], bomb);
    let follower = Follower::start(site).await;
    let set = follower
        .until("reported", |set| {
            let code = set.error.as_ref().map(|error| error.code.as_str());
            code == Some("expansion")
        })
        .await;
    assert_eq!(set.resources, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn memento_is_fetched_where_the_uri_serves_a_newer_version() {
    let memento = "<rs:ln rel=\"memento\" href=\"{site}/1/a\"/>";
    let inside = format!("<rs:md {}/>{memento}", stated(TEXT));
    let site = Site::with_lists(&resource_list(&entry("/a", &inside))).await;
    site.put("/a", "newer");
    site.put_bytes("/1/a", &[], TEXT.to_vec());
    let follower = Follower::start(site).await;
    let text = String::from_utf8_lossy(TEXT).into_owned();
    follower.until_mirrored(&[("/a", &text)]).await;
    assert_eq!(follower.site.hits("/a"), 1);
}
