//! Dumps.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use reqwest::header::{IF_NONE_MATCH, IF_RANGE, RANGE};
use reqwest::{Method, StatusCode};
use resourcesync::{Capability, ChangeKind, Document, read_document};
use resyncd::config::Baseline;
use url::Url;
use zip::ZipArchive;

use super::Published;
use crate::support::{Destination, NAME, SET, client, eventually, send};

/// The members of a package, by name.
fn members(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).unwrap();
    let length = zip.len();
    let read = |index| {
        let mut member = zip.by_index(index).unwrap();
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        (member.name().unwrap().into_owned(), bytes)
    };
    (0..length).map(read).collect()
}

/// The manifest of a package, whose members are checked against it.
fn manifest(bytes: &[u8], base: &Url) -> Document {
    let members = members(bytes);
    let manifest = read_document(&members["manifest.xml"], base).unwrap();
    let paths = manifest
        .entries
        .iter()
        .filter_map(|entry| Some((entry, entry.md.path.as_ref()?)));
    for (entry, path) in paths.clone() {
        let bytes = &members[path];
        assert_eq!(entry.md.content.length, Some(bytes.len() as u64));
        let hash = resourcesync::Digest::of(resourcesync::Algorithm::Sha256, bytes);
        assert!(entry.md.content.hashes.contains(&hash));
    }
    assert_eq!(paths.count() + 1, members.len());
    manifest
}

async fn ask(published: &Published, body: String) -> (StatusCode, Option<i64>, Vec<u8>) {
    let url = published.base.join("dump").unwrap();
    let answer = send(|| client().post(url.clone()).body(body.clone())).await;
    let seq = answer.headers().get("resyncd-seq");
    let seq = seq.map(|seq| seq.to_str().unwrap().parse().unwrap());
    (answer.status(), seq, answer.bytes().await.unwrap().to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_dump_has_what_is_published_and_is_a_baseline() {
    let published = Published::of(5).await;
    let url = published.of_set("resourcedump.xml").await;
    let dump = published.document(&url).await;
    assert_eq!(dump.head.md.capability, Some(Capability::ResourceDump));
    let package = published.get(&dump.entries[0].loc).await;
    assert_eq!(package.header("content-type"), "application/zip");
    let manifest = manifest(&package.body, &published.base);
    assert_eq!(manifest.entries.len(), 5);
    // It stays while it is current.
    let etag = package.header("etag");
    let asked = &[(IF_NONE_MATCH, etag)];
    let again = published.answer(Method::GET, &dump.entries[0].loc, asked);
    assert_eq!(again.await.status, StatusCode::NOT_MODIFIED);
    let asked = &[(RANGE, "bytes=2-"), (IF_RANGE, etag)];
    let rest = published.answer(Method::GET, &dump.entries[0].loc, asked);
    assert_eq!(rest.await.body, package.body[2..]);
    let destination = Destination::start(published.description(), |config| {
        config.sources[0].baseline = Baseline::Dump;
    })
    .await;
    let set = destination
        .until("in sync", |set| set.state == "in-sync")
        .await;
    assert_eq!(set.resources, 5);
    let lines = destination.operator.changes(0).await;
    assert!(
        lines.iter().all(|line| line.origin == "resource-dump"),
        "{lines:#?}"
    );

    published.rig.source.update(SET, "r0001.txt", "another one");
    published.rig.source.notify_and_publish(SET).await.unwrap();
    eventually("another package", None, async || {
        let package = published.get(&dump.entries[0].loc).await;
        let members = members(&package.body);
        if members.values().any(|text| text == b"another one") {
            Ok(())
        } else {
            Err(format!("{members:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn package_is_made_of_uris_or_of_what_has_changed() {
    let published = Published::of(5).await;
    let since = published.rig.operator.last_change().await;
    let named = [
        published.file("r0001.txt").to_string(),
        published.rig.uri("r0002.txt"),
    ];
    let (status, _, bytes) =
        ask(&published, serde_json::json!({ "uris": named }).to_string()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(manifest(&bytes, &published.base).entries.len(), 2);

    published.rig.source.update(SET, "r0001.txt", "once");
    published.rig.source.notify_and_publish(SET).await.unwrap();
    published.rig.settled().await;
    published.rig.source.update(SET, "r0001.txt", "twice");
    published.rig.source.delete(SET, "r0003.txt");
    published.rig.source.notify_and_publish(SET).await.unwrap();
    published.rig.settled().await;
    let list = published.capability_list().await;
    let (_, seq, bytes) = eventually("all changes", None, async || {
        let request = serde_json::json!({ "set": list.as_str(), "since": since }).to_string();
        let (status, seq, bytes) = ask(&published, request).await;
        assert_eq!(status, StatusCode::OK);
        let number = manifest(&bytes, &published.base).entries.len();
        if number == 2 {
            Ok((status, seq, bytes))
        } else {
            Err(number.to_string())
        }
    })
    .await;
    let changes = manifest(&bytes, &published.base);
    let kinds: Vec<_> = changes
        .entries
        .iter()
        .map(|entry| entry.md.change.unwrap())
        .collect();
    assert!(
        kinds.contains(&ChangeKind::Updated) && kinds.contains(&ChangeKind::Deleted),
        "{kinds:?}"
    );
    let updated = changes
        .entries
        .iter()
        .find(|entry| entry.md.change == Some(ChangeKind::Updated))
        .unwrap();
    assert_eq!(members(&bytes)[updated.md.path.as_ref().unwrap()], b"twice");
    assert!(seq.unwrap() > since);

    // The number goes on from there.
    let request = serde_json::json!({ "set": list.as_str(), "since": seq }).to_string();
    let (status, _, bytes) = ask(&published, request).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(manifest(&bytes, &published.base).entries.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_for_dumps_get_a_clear_error() {
    let published = Published::of(2).await;
    let list = published.capability_list().await;
    for (body, status, code) in [
        ("{}".to_owned(), 400, "bad-dump"),
        ("[]".to_owned(), 400, "bad-dump"),
        ("not JSON".to_owned(), 400, "bad-dump"),
        (r#"{"uris": []}"#.to_owned(), 400, "bad-dump"),
        (
            r#"{"uris": ["http://127.0.0.1:1/a"]}"#.to_owned(),
            404,
            "not-published",
        ),
        (
            r#"{"set": "http://127.0.0.1:1/a", "since": 0}"#.to_owned(),
            404,
            "not-published",
        ),
        (
            serde_json::json!({ "set": list.as_str(), "since": 1_000_000_000 }).to_string(),
            404,
            "not-published",
        ),
    ] {
        let (found, _, text) = ask(&published, body.clone()).await;
        let text = String::from_utf8(text).unwrap();
        assert_eq!(found.as_u16(), status, "{body}: {text}");
        assert!(text.ends_with(&format!("[{code}]\n")), "{body}: {text}");
    }
    let url = published.base.join("dump").unwrap();
    let passed_on = send(|| {
        let asked = client().post(url.clone()).body(r#"{"uris": []}"#);
        asked.header("x-forwarded-for", "192.0.2.1")
    })
    .await;
    assert_eq!(passed_on.status(), StatusCode::FORBIDDEN);
    let missing = published
        .base
        .join(&format!("{NAME}/.rs/000000000000/resourcedump-0.zip"))
        .unwrap();
    assert_eq!(published.get(&missing).await.status, StatusCode::NOT_FOUND);
}
