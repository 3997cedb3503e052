//! The files.

use std::io::Read;

use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE,
};
use reqwest::{Method, StatusCode};
use resyncd_testkit::ChannelHub;

use super::Published;
use crate::support::{SET, eventually, resources};

#[tokio::test(flavor = "multi_thread")]
async fn file_is_answered_with_validators_ranges_and_in_a_sandbox() {
    let published = Published::of(3).await;
    let url = published.file("r0001.txt");
    let full = published.get(&url).await;
    assert_eq!(full.status, StatusCode::OK);
    assert_eq!(full.body, published.rig.mirrored("r0001.txt").unwrap());
    let length = full.body.len();
    for (name, expected) in [
        ("content-type", "text/plain"),
        ("content-length", &*length.to_string()),
        ("accept-ranges", "bytes"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(full.header(name), expected, "{name}");
    }
    assert!(full.header("content-security-policy").contains("sandbox"));
    assert!(full.header("link").contains("rel=\"resourcesync\""));
    let (etag, modified) = (full.header("etag"), full.header("last-modified"));
    let last = length - 1;
    for (headers, status, expected) in [
        (vec![(IF_NONE_MATCH, etag)], 304, ""),
        (vec![(IF_NONE_MATCH, "\"other\"")], 200, &*full.text()),
        (
            vec![(IF_NONE_MATCH, "\"other\""), (IF_MODIFIED_SINCE, modified)],
            200,
            &*full.text(),
        ),
        (vec![(IF_MODIFIED_SINCE, modified)], 304, ""),
        (
            vec![(IF_MODIFIED_SINCE, "Tue, 15 Nov 1994 12:45:26 GMT")],
            200,
            &*full.text(),
        ),
        (vec![(RANGE, "bytes=0-3")], 206, &full.text()[..4]),
        (vec![(RANGE, "bytes=4-")], 206, &full.text()[4..]),
        (vec![(RANGE, "bytes=-2")], 206, &full.text()[length - 2..]),
        (vec![(RANGE, "bytes=0-1,3-4")], 200, &*full.text()),
        (vec![(RANGE, "bytes=99999-")], 416, ""),
        (vec![(RANGE, "lines=0-1")], 200, &*full.text()),
        (
            vec![(RANGE, "bytes=0-3"), (IF_RANGE, etag)],
            206,
            &full.text()[..4],
        ),
        (
            vec![(RANGE, "bytes=0-3"), (IF_RANGE, "\"other\"")],
            200,
            &*full.text(),
        ),
        // A file is sent as it is.
        (vec![(ACCEPT_ENCODING, "gzip")], 200, &*full.text()),
    ] {
        let answer = published.answer(Method::GET, &url, &headers).await;
        assert_eq!(
            (answer.status.as_u16(), &*answer.text()),
            (status, expected),
            "{headers:?}"
        );
        match status {
            206 => assert!(
                answer
                    .header("content-range")
                    .ends_with(&format!("/{length}")),
                "{headers:?}"
            ),
            416 => assert_eq!(answer.header("content-range"), format!("bytes */{length}")),
            _ => {}
        }
    }
    let range = published
        .answer(Method::GET, &url, &[(RANGE, "bytes=0-99999")])
        .await;
    assert_eq!(
        range.header("content-range"),
        format!("bytes 0-{last}/{length}")
    );
    let head = published.answer(Method::HEAD, &url, &[]).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    assert_eq!(head.header("content-length"), length.to_string());
    assert_eq!(head.header("etag"), etag);
    let posted = published.answer(Method::POST, &url, &[]).await;
    assert_eq!(posted.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_file_is_gone_and_an_unknown_one_is_not_found() {
    let published = Published::of(3).await;
    let (changed, deleted) = (published.file("r0001.txt"), published.file("r0002.txt"));
    let before = published.get(&changed).await;
    published.rig.source.update(SET, "r0001.txt", "new");
    published.rig.source.delete(SET, "r0002.txt");
    published.rig.source.notify_and_publish(SET).await.unwrap();
    published.rig.settled().await;
    let after = published.get(&changed).await;
    assert_eq!(after.text(), "new");
    assert_ne!(after.header("etag"), before.header("etag"));
    assert_eq!(published.get(&deleted).await.status, StatusCode::GONE);
    for path in [
        "sample/127.0.0.1/never.txt",
        "sample/../sample/.resyncd/mirror.id",
        "sample/.resyncd/mirror.id",
        "sample/%2e%2e/state/resyncd.db",
        "sample/..%2fstate/resyncd.db",
        "sample/",
        "sample",
        "other/127.0.0.1/r0001.txt",
        "sample/.rs/000000000000/resourcelist.xml",
    ] {
        let url = published.base.join(path).unwrap();
        let answer = published.get(&url).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn document_is_compressed_for_who_accepts_it() {
    let published = Published::of(3).await;
    let url = published.of_set("resourcelist.xml").await;
    let plain = published.get(&url).await;
    let gzip = published
        .answer(Method::GET, &url, &[(ACCEPT_ENCODING, "br, gzip")])
        .await;
    assert_eq!(gzip.header("content-encoding"), "gzip");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&*gzip.body)
        .read_to_string(&mut text)
        .unwrap();
    // Another one may have been made meanwhile, of another moment.
    assert_eq!(text.len(), plain.body.len());
    assert_ne!(gzip.header("etag"), plain.header("etag"));
    for (sent, etag) in [
        ("identity", plain.header("etag")),
        ("gzip", gzip.header("etag")),
    ] {
        let headers = [(ACCEPT_ENCODING, sent), (IF_NONE_MATCH, etag)];
        let again = published.answer(Method::GET, &url, &headers).await;
        assert_eq!(again.status, StatusCode::NOT_MODIFIED, "{sent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_content_the_entries_name_the_originals() {
    let published = Published::start(resources(3), |config| config.publish.content = false).await;
    let list = published
        .document(&published.of_set("resourcelist.xml").await)
        .await;
    assert_eq!(list.entries.len(), 3);
    for entry in &list.entries {
        assert_eq!(entry.loc.port(), published.rig.source.base().port());
        assert!(entry.links.iter().all(|link| !link.is("via")));
    }
    let answer = published.get(&published.file("r0001.txt")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_read_without_the_token() {
    let options = resyncd_testkit::SampleOptions {
        hub: ChannelHub::None,
        ..resources(2)
    };
    let rig = crate::support::Rig::start_with(options, |config| {
        super::publish(config);
        config.publish.token = resyncd::config::Secret::new("0123456789-is-the-token");
    })
    .await;
    rig.idle().await;
    let address = rig.daemon().publish.unwrap();
    let base = url::Url::parse(&format!("http://{address}/")).unwrap();
    let published = Published { rig, base };
    let url = published.base.join(".well-known/resourcesync").unwrap();
    for wrong in ["", "Bearer other", "Basic 0123456789-is-the-token"] {
        let answer = published
            .answer(Method::GET, &url, &[(AUTHORIZATION, wrong)])
            .await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{wrong}");
        assert!(answer.header("www-authenticate").starts_with("Bearer"));
        let answer = published
            .answer(
                Method::GET,
                &published.file("r0001.txt"),
                &[(AUTHORIZATION, wrong)],
            )
            .await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{wrong}");
    }
    eventually("read with the token", None, async || {
        let right = [(AUTHORIZATION, "Bearer 0123456789-is-the-token")];
        let answer = published.answer(Method::GET, &url, &right).await;
        let is_read = answer.status == StatusCode::OK && answer.text().contains("capabilitylist");
        is_read.then_some(()).ok_or(answer.text())
    })
    .await;
}
