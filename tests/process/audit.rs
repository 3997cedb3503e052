//! `audit`: the mirror, file by file, against what the Source says now.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};

use resyncd::demo::{Fault, SampleOptions, SampleSource};
use serde_json::Value;

use crate::process::{Home, command, ended, signal, text};
use crate::support::{SET, files, path_of, resources, soon};

mod absence;
mod database;

const SECOND: Duration = Duration::from_secs(1);

/// The file of a resource.
fn file(source: &SampleSource, home: &Home, set: &str, name: &str) -> PathBuf {
    home.mirror.join(path_of(&source.resource_uri(set, name)))
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Writes other bytes, and leaves the file's time as it was.
fn alter(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let time = modified(path);
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
    date(path, time);
}

fn date(path: &Path, time: SystemTime) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// The objects of `--json`, each by `type`, and the last one by itself.
fn lines(told: &Output) -> (Vec<Value>, Value) {
    let mut lines: Vec<Value> = text(&told.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let last = lines.pop().unwrap();
    assert_eq!(last["type"], "summary", "{told:?}");
    (lines, last)
}

/// What was found: `kind name differs`, sorted; with `+` in front if it was repaired.
fn found(told: &Output) -> Vec<String> {
    let (lines, _) = lines(told);
    let findings = lines.iter().filter(|line| line["type"] == "finding");
    let mut found: Vec<String> = findings
        .map(|finding| {
            let named = finding["path"].as_str().or(finding["uri"].as_str());
            let name = named.unwrap().rsplit('/').next().unwrap();
            let differs = finding["differs"].as_array().unwrap().iter();
            let differs: Vec<_> = differs.map(|differs| differs.as_str().unwrap()).collect();
            let repaired = if finding["mended"] == true { "+" } else { "" };
            let kind = finding["kind"].as_str().unwrap();
            let code = finding["code"].as_str().unwrap_or_default();
            format!("{repaired}{kind} {name} {}{code}", differs.join(","))
                .trim()
                .to_owned()
        })
        .collect();
    found.sort();
    found
}

#[track_caller]
fn assert_found(told: &Output, status: i32, expected: &[&str]) {
    assert_eq!(found(told), expected, "{told:?}");
    assert_eq!(told.status.code(), Some(status), "{told:?}");
}

#[track_caller]
fn sync(home: &Home) {
    let told = home.tell(&["sync"]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_in_step_is_found_so() {
    let options = SampleOptions {
        sets: vec!["set1".into(), "set2".into()],
        entries_per_list: 20,
        ..resources(50)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    // The Resource Lists know nothing of this; the Change Lists do, and one of them is closed.
    source.update("set1", "r0001.txt", "another text");
    source.delete("set1", "r0002.txt");
    source.roll_change_list("set1");
    source.create("set1", "new.txt", "new");
    source.update("set1", "new.txt", "newer");
    source.create("set2", "r0002b.txt", "more");
    sync(&home);
    let told = home.tell(&["audit"]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    let said = text(&told.stdout);
    assert!(
        said.contains("in sync: 101 compared, 101 right, 0 missing"),
        "{said}"
    );
    for output in [&told.stdout, &told.stderr] {
        assert!(!output.contains(&0x1b), "{told:?}");
    }
    let told = home.tell(&["audit", "--json", "sample"]);
    assert_found(&told, 0, &[]);
    let (sources, summary) = lines(&told);
    assert_eq!(sources[0]["type"], "source");
    assert_eq!(sources[0]["compared"], 101);
    assert_eq!(summary["in_sync"], true);
    let nobody = home.tell(&["audit", "nobody"]);
    assert_eq!(nobody.status.code(), Some(2), "{nobody:?}");
    let told = home.tell(&["audit", "--delete-extra"]);
    assert_eq!(told.status.code(), Some(2), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deviations_are_found_and_repaired() {
    let source = SampleSource::start(resources(8)).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    let at = |name: &str| file(&source, &home, SET, name);
    alter(&at("r0001.txt"), |bytes| bytes[3] ^= 1);
    alter(&at("r0002.txt"), |bytes| bytes.push(b'x'));
    fs::remove_file(at("r0003.txt")).unwrap();
    // The digest is told, and says that this one is right.
    let told_time = modified(&at("r0004.txt"));
    date(&at("r0004.txt"), told_time + 2 * SECOND);
    fs::write(at("stray.txt"), "nobody's").unwrap();
    // Somebody has put a folder where a file should be.
    fs::remove_file(at("r0005.txt")).unwrap();
    fs::create_dir(at("r0005.txt")).unwrap();

    let told = home.tell(&["audit", "--json"]);
    let expected = [
        "altered r0001.txt digest",
        "altered r0002.txt length",
        "extra stray.txt",
        "missing r0003.txt",
        "missing r0005.txt",
    ];
    assert_found(&told, 1, &expected);
    let told = home.tell(&["audit"]);
    let said = text(&told.stdout);
    assert!(
        said.contains("not in sync: 8 compared, 4 right, 2 missing, 2 altered, 1 extra"),
        "{said}"
    );
    // It has only looked.
    assert_eq!(home.tell(&["audit", "--json"]).stdout, told_again(&home));

    fs::remove_dir(at("r0005.txt")).unwrap();
    let fetched = source.hits("/set1/res/r0004.txt");
    let told = home.tell(&["audit", "--repair", "--json"]);
    let expected = [
        "+altered r0001.txt digest",
        "+altered r0002.txt length",
        "+missing r0003.txt",
        "+missing r0005.txt",
        "extra stray.txt",
    ];
    assert_found(&told, 1, &expected);
    assert!(at("stray.txt").exists());
    assert_eq!(modified(&at("r0004.txt")), told_time);
    assert_eq!(source.hits("/set1/res/r0004.txt"), fetched);
    let told = home.tell(&["audit", "--repair", "--delete-extra"]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    assert!(text(&told.stdout).contains("1 repaired"), "{told:?}");
    home.assert_mirrored(&source, &[SET]);
    assert_found(&home.tell(&["audit", "--json"]), 0, &[]);

    let running = home.run();
    home.settled(&source).await;
    let feed = home.operator.changes(0).await;
    let mut repaired: Vec<_> = feed
        .iter()
        .filter(|line| line.origin == "audit")
        .map(|line| format!("{} {}", line.change, line.uri.rsplit('/').next().unwrap()))
        .collect();
    repaired.sort();
    let expected = [
        "updated r0001.txt",
        "updated r0002.txt",
        "updated r0003.txt",
        "updated r0005.txt",
    ];
    assert_eq!(repaired, expected);
    assert_eq!(running.stop().await.code(), Some(0));
}

fn told_again(home: &Home) -> Vec<u8> {
    home.tell(&["audit", "--json"]).stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn without_digests_length_and_time_decide() {
    let options = SampleOptions {
        digests: false,
        ..resources(4)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    let at = |name: &str| file(&source, &home, SET, name);
    alter(&at("r0000.txt"), |bytes| bytes.truncate(3));
    date(&at("r0001.txt"), modified(&at("r0001.txt")) + 2 * SECOND);
    let told = home.tell(&["audit", "--json"]);
    assert_found(
        &told,
        1,
        &["altered r0000.txt length", "altered r0001.txt lastmod"],
    );
    // Nobody can say whether the bytes of the second are right.
    let fetched = source.hits("/set1/res/r0001.txt");
    let told = home.tell(&["audit", "--repair", "--json"]);
    assert_found(
        &told,
        0,
        &["+altered r0000.txt length", "+altered r0001.txt lastmod"],
    );
    assert_eq!(source.hits("/set1/res/r0001.txt"), fetched + 1);
    assert_found(&home.tell(&["audit", "--json"]), 0, &[]);
    home.assert_mirrored(&source, &[SET]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_source_does_not_deliver_is_unreachable() {
    let source = SampleSource::start(resources(4)).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    fs::remove_file(file(&source, &home, SET, "r0000.txt")).unwrap();
    fs::remove_file(file(&source, &home, SET, "r0001.txt")).unwrap();
    source.fail("/set1/res/r0001.txt", Fault::Status(404), usize::MAX);
    let told = home.tell(&["audit", "--json"]);
    assert_found(
        &told,
        1,
        &["missing r0000.txt", "unreachable r0001.txt not-found"],
    );
    let told = home.tell(&["audit", "--repair", "--json"]);
    assert_found(
        &told,
        1,
        &["+missing r0000.txt", "unreachable r0001.txt not-found"],
    );
    source.heal("/set1/res/r0001.txt");
    let told = home.tell(&["audit", "--repair", "--json"]);
    assert_found(&told, 0, &["+missing r0001.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_it_ends() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    fs::remove_file(file(&source, &home, SET, "r0002.txt")).unwrap();
    for (arguments, path) in [
        (&["audit"][..], "/set1/resourcelist.xml"),
        (&["audit", "--repair"], "/set1/res/r0002.txt"),
    ] {
        source.fail(path, Fault::Stalled, 1);
        let before = source.hits(path);
        let mut child = command(&home.config)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        soon("it is under way", source.wait_for_hits(path, before + 1)).await;
        signal(&child, "INT");
        assert_eq!(ended(&mut child).await.code(), Some(1), "{arguments:?}");
        let told = child.wait_with_output().unwrap();
        assert!(text(&told.stdout).contains("[interrupted]"), "{told:?}");
    }
    let told = home.tell(&["audit", "--repair", "--json"]);
    assert_found(&told, 0, &["+missing r0002.txt"]);
}
