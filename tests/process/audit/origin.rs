//! `audit --origin`: files are also compared with what is stated of their originals (core, section 14.8).

use resourcesync::{Algorithm, Capability, Digest, Entry, Head, Link, Root, write_document};
use resyncd_testkit::{ChannelHub, SampleOptions, SampleSource};
use serde_json::{Value, json};

use super::{alter, file, lines, sync};
use crate::support::process::{Home, text};
use crate::support::{SET, eventually, resources};

/// A Source that republishes resources of another one: two are stated to be the same as the original, one to be another one, of one
/// only the length is stated, and of one nothing.
async fn republishing() -> (SampleSource, SampleSource) {
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(6)
    };
    let source = SampleSource::start(options.clone()).await.unwrap();
    let original = SampleSource::start(options).await.unwrap();
    let mut head = Head::new(Root::Urlset, Capability::ResourceList);
    head.md.at = Some(source.boundary());
    let mut entries = Vec::new();
    for (uri, bytes) in source.state(SET) {
        let mut entry = Entry::new(uri.parse().unwrap());
        entry.md.content.length = Some(bytes.len() as u64);
        entry.md.content.hashes = vec![Digest::of(Algorithm::Sha256, &bytes)];
        let name = uri.rsplit('/').next().unwrap();
        let mut via = Link::new("via", original.resource_uri(SET, name));
        let stated = &mut via.content;
        match name {
            "r0000.txt" => stated.hashes = vec![Digest::of(Algorithm::Sha256, &bytes)],
            "r0001.txt" => stated.hashes = vec![Digest::of(Algorithm::Md5, &bytes)],
            "r0002.txt" => stated.hashes = vec![Digest::of(Algorithm::Md5, b"another version")],
            "r0003.txt" => stated.length = Some(bytes.len() as u64),
            _ => {}
        }
        if name != "r0005.txt" {
            entry.links.push(via);
        }
        entries.push(entry);
    }
    let list = write_document(&head, &entries);
    source.put_document("/set1/resourcelist.xml", "application/xml", list);
    (source, original)
}

/// The lines about originals, as `name outcome differs reason`, sorted.
fn originals(lines: &[Value]) -> Vec<String> {
    let lines = lines.iter().filter(|line| line["type"] == "original");
    let mut found: Vec<String> = lines
        .map(|line| {
            let named = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            assert_eq!(
                line["original"].as_str().unwrap().rsplit('/').next(),
                line["uri"].as_str().unwrap().rsplit('/').next()
            );
            assert!(named("set").ends_with("/capabilitylist.xml"), "{line}");
            let name = named("path").rsplit('/').next().unwrap().to_owned();
            let differs = line["differs"].as_array().unwrap().iter();
            let differs: Vec<_> = differs.map(|it| it.as_str().unwrap()).collect();
            let parts = [name, named("outcome"), differs.join(","), named("reason")];
            parts
                .join(" ")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_compared_with_what_is_stated_of_their_originals() {
    let (source, original) = republishing().await;
    let home = Home::new(&source.url(), "");
    sync(&home);
    let plain = home.run_command(&["audit", "--json"]);
    assert_eq!(plain.status.code(), Some(0), "{plain:?}");
    let (found, summary) = lines(&plain);
    assert_eq!(
        (originals(&found), summary.get("originals")),
        (vec![], None)
    );

    let output = home.run_command(&["audit", "--origin", "--json"]);
    let (found, summary) = lines(&output);
    let expected = [
        "r0002.txt differs digest",
        "r0003.txt unknown no-digest",
        "r0004.txt unknown no-digest",
    ];
    assert_eq!(originals(&found), expected);
    // The mirror is what its Source states, which differs from the original.
    assert_eq!(summary["in_sync"], true);
    let sums = json!({"same": 2, "differing": 1, "unknown": 2});
    assert_eq!(summary["originals"], sums);
    let of_source = found.iter().find(|line| line["type"] == "source");
    assert_eq!(of_source.unwrap()["originals"], sums);
    assert_eq!(output.status.code(), Some(1));

    let output = home.run_command(&["audit", "--origin"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let page = text(&output.stdout);
    for expected in [
        "in sync: 6 compared, 6 right",
        "by what is stated of the originals: 2 same, 1 differing, 2 unknown",
        "r0002.txt (digest)",
        "r0003.txt (no digest is stated)",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }

    // A file that is missing, and one that was altered.
    std::fs::remove_file(file(&source, &home, SET, "r0000.txt")).unwrap();
    alter(&file(&source, &home, SET, "r0001.txt"), |bytes| {
        bytes[0] ^= 1
    });
    let (found, _) = lines(&home.run_command(&["audit", "--origin", "--json"]));
    let found = originals(&found);
    assert_eq!(
        found[..2],
        ["r0000.txt unknown no-file", "r0001.txt differs digest"]
    );
    // What is repaired is compared afterwards.
    let repaired = home.run_command(&["audit", "--origin", "--repair", "--json"]);
    let (found, summary) = lines(&repaired);
    assert_eq!(originals(&found), expected);
    assert_eq!(summary["originals"], sums);
    assert_eq!(original.traffic().0, 0, "no original is requested");

    // The repaired resource has its links as before.
    let running = home.run();
    let name = "r0000.txt";
    let uri = source.resource_uri(SET, name);
    let via = original.resource_uri(SET, name).to_string();
    let shown = eventually("the daemon answers", None, async || {
        home.operator
            .try_status()
            .await
            .ok_or("no status".to_owned())?;
        Ok(home.operator.resource(uri.as_str()).await.unwrap())
    });
    assert_eq!(shown.await["via"], json!([via]));
    let feed = home.operator.changes(0).await;
    let repaired = feed.iter().rfind(|line| line.uri == uri.as_str()).unwrap();
    assert_eq!(
        (repaired.origin.as_str(), &repaired.via),
        ("audit", &Some(vec![via]))
    );
    assert_eq!(running.stop().await.code(), Some(0));
}

/// A later change is no longer republished.
#[tokio::test(flavor = "multi_thread")]
async fn newest_statement_of_the_original_counts() {
    let (source, _original) = republishing().await;
    source.update(SET, "r0002.txt", "our own now");
    let home = Home::new(&source.url(), "");
    sync(&home);
    let output = home.run_command(&["audit", "--origin", "--json"]);
    let (_, summary) = lines(&output);
    let sums = json!({"same": 2, "differing": 0, "unknown": 2});
    assert_eq!(summary["originals"], sums);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
