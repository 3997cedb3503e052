//! Versions that are stored while the daemon is killed, and the command that lists and backfills them.

use std::path::PathBuf;
use std::time::Duration;

use resourcesync::{Algorithm, Digest, Entry, Link, SourceTime};
use resyncd_core::version_name;
use resyncd_fetch::format_http_date;
use resyncd_testkit::{ChannelHub, Fault, SampleOptions, SampleSource};

use crate::support::process::Home;
use crate::support::{
    Files, NAME, SET, change, change_list, difference, eventually, files, path_of, resources, time,
};

const VERSIONS: &str = "notifications = false\nversions = \"versions\"";
const CHANGES: &str = "/set1/changelist.xml";
/// How many resources there are, and how often each changes.
const RESOURCES: usize = 20;
const CHANGES_EACH: usize = 3;

async fn source(number: usize) -> SampleSource {
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(number)
    };
    SampleSource::start(options).await.unwrap()
}

fn folder(home: &Home) -> PathBuf {
    home.folder().join("versions")
}

/// The path of a version, relative to their folder.
fn path(source: &SampleSource, name: &str, at: SourceTime) -> String {
    let resource = path_of(&source.resource_uri(SET, name));
    format!("{resource}/{}", version_name(at).unwrap())
}

/// Publishes a Change List of these changes, and has it polled.
async fn announce(source: &SampleSource, home: &Home, entries: &[Entry]) {
    let set = home.until("the status", |_| true).await;
    let from = time(set.synced_until.unwrap());
    let list = change_list(from, None, None, entries);
    source.put_document(CHANGES, "application/xml", list);
    home.operator.poll(NAME).await;
}

/// All stored versions are among these, byte by byte.
fn assert_among(expected: &Files, found: &Files) {
    for (path, bytes) in found {
        let whole = expected.get(path);
        assert!(
            whole == Some(bytes),
            "{path}: {} bytes, of {:?}",
            bytes.len(),
            whole.map(Vec::len)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_whole_and_none_is_lost_when_the_daemon_is_killed() {
    let source = source(RESOURCES).await;
    let home = Home::new(&source.url(), VERSIONS);
    let mut running = home.run();
    home.settled(&source).await;
    let mut expected = files(&folder(&home));
    assert_eq!(expected.len(), RESOURCES);
    let mut entries = Vec::new();
    for step in 0..CHANGES_EACH {
        for number in 0..RESOURCES {
            let (name, bytes) = (
                format!("r{number:04}.txt"),
                format!("{step} {number}").repeat(5000),
            );
            let at = source.update(SET, &name, bytes.clone());
            let mut entry = change(&source.resource_uri(SET, &name), at);
            entry.md.content.hashes = vec![Digest::of(Algorithm::Sha256, bytes.as_bytes())];
            let memento = format!("/m/{step}/{number}");
            source.put_document(&memento, "text/plain", bytes.clone());
            let href = source.base().join(&memento).unwrap();
            entry.links.push(Link::new("memento", href));
            entries.push(entry);
            expected.insert(path(&source, &name, at), bytes.into_bytes());
        }
        source.advance(Duration::from_secs(1));
    }
    source.fail("/m/*", Fault::Slow(Duration::from_millis(100)), usize::MAX);
    announce(&source, &home, &entries).await;
    for stored in [RESOURCES + 5, RESOURCES + 20, RESOURCES + 40] {
        let what = format!("{stored} versions are stored");
        eventually(&what, None, async || {
            let found = files(&folder(&home));
            assert_among(&expected, &found);
            (found.len() >= stored)
                .then_some(())
                .ok_or(found.len().to_string())
        })
        .await;
        running.kill();
        assert_among(&expected, &files(&folder(&home)));
        running = home.run();
    }
    source.heal("/m/*");
    eventually("every version is stored", None, async || {
        let found = files(&folder(&home));
        assert_among(&expected, &found);
        if found.len() == expected.len() {
            Ok(())
        } else {
            Err(difference(&expected, &found))
        }
    })
    .await;
    home.settled(&source).await;
    let status = home
        .until_status("nothing waits", |status| {
            let versions = status.sources[0].versions.as_ref().unwrap();
            versions.pending == 0
        })
        .await;
    assert_eq!(status.sources[0].versions.as_ref().unwrap().failed, 0);
    assert_eq!(running.stop().await.code(), Some(0));
    let work = folder(&home).join(".resyncd/work");
    assert!(std::fs::read_dir(work).unwrap().next().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_listed_and_backfilled_with_a_daemon_and_without_one() {
    let source = source(3).await;
    let home = Home::new(&source.url(), VERSIONS);
    let running = home.run();
    home.settled(&source).await;
    let old =
        [1_000_000_000, 1_000_086_400].map(|second| SourceTime::from_micros(second * 1_000_000));
    let mut map = String::new();
    for (number, at) in old.iter().enumerate() {
        source.put_document(
            &format!("/old/{number}"),
            "text/plain",
            format!("old {number}"),
        );
        let at = format_http_date(*at).unwrap();
        map += &format!("</old/{number}>; rel=\"memento\"; datetime=\"{at}\",\n");
    }
    source.put_document("/map", "application/link-format", map);
    let name = "r0001.txt";
    let uri = source.resource_uri(SET, name);
    let updated = source.update(SET, name, "updated");
    let mut entry = change(&uri, updated);
    entry
        .links
        .push(Link::new("timemap", source.base().join("/map").unwrap()));
    announce(&source, &home, &[entry]).await;
    let stored = folder(&home).join(path(&source, name, updated));
    eventually("the update is stored", None, async || {
        stored.exists().then_some(()).ok_or(String::new())
    })
    .await;
    home.settled(&source).await;

    let run = |arguments: &[&str]| {
        let output = home.run_command(&[&["versions", uri.as_str()], arguments].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{arguments:?}: {text}{errors}"
        );
        text
    };
    assert_eq!(run(&[]).lines().count(), 2);
    let with_daemon = run(&["--backfill"]);
    let lines: Vec<&str> = with_daemon.lines().collect();
    assert_eq!(lines.len(), 4, "{with_daemon}");
    assert_eq!(
        lines[0],
        format!(
            "2001-09-09T01:46:40Z  5 bytes  {}",
            path(&source, name, old[0])
        )
    );
    for (number, at) in old.into_iter().enumerate() {
        let bytes = std::fs::read(folder(&home).join(path(&source, name, at))).unwrap();
        assert_eq!(bytes, format!("old {number}").as_bytes());
    }
    assert_eq!(running.stop().await.code(), Some(0));
    assert_eq!(run(&["--source", NAME]), with_daemon);
    let hits = source.hits("/old/0");
    assert_eq!(run(&["--backfill"]), with_daemon);
    assert_eq!(source.hits("/old/0"), hits, "it is not fetched again");
    let json = run(&["--json"]);
    let rows = json.lines().map(|line| serde_json::from_str(line).unwrap());
    let rows: Vec<serde_json::Value> = rows.collect();
    assert_eq!((rows.len(), rows[0]["state"].as_str()), (4, Some("stored")));

    let none = home.run_command(&["versions", uri.as_str(), "--source", "other"]);
    assert_eq!(none.status.code(), Some(2));
    let no_map = source.resource_uri(SET, "r0002.txt");
    let no_map = home.run_command(&["versions", no_map.as_str(), "--backfill"]);
    assert_eq!(no_map.status.code(), Some(1));
    assert!(
        String::from_utf8(no_map.stderr)
            .unwrap()
            .contains("[no-time-map]")
    );
}
