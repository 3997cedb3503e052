//! `audit`: the mirror, file by file, against what the Source says now.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};

use resyncd::demo::{Fault, SampleOptions, SampleSource};
use serde_json::Value;

use crate::process::{Home, command, ended, signal, text};
use crate::support::{SET, client, difference, expected_files, files, path_of, resources, soon};

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

/// What was found: `kind name differs`, sorted; with `+` in front if it was mended.
fn found(told: &Output) -> Vec<String> {
    let (lines, _) = lines(told);
    let findings = lines.iter().filter(|line| line["type"] == "finding");
    let mut found: Vec<String> = findings
        .map(|finding| {
            let named = finding["path"].as_str().or(finding["uri"].as_str());
            let name = named.unwrap().rsplit('/').next().unwrap();
            let differs = finding["differs"].as_array().unwrap().iter();
            let differs: Vec<_> = differs.map(|differs| differs.as_str().unwrap()).collect();
            let mended = if finding["mended"] == true { "+" } else { "" };
            let kind = finding["kind"].as_str().unwrap();
            let code = finding["code"].as_str().unwrap_or_default();
            format!("{mended}{kind} {name} {}{code}", differs.join(","))
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
fn assert_mirrored(source: &SampleSource, sets: &[&str], home: &Home) {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let (expected, found) = (expected_files(source, &sets), files(&home.mirror));
    assert_eq!(difference(&expected, &found), "");
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
async fn whatever_is_wrong_is_found_and_mended() {
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
    assert!(text(&told.stdout).contains("1 mended"), "{told:?}");
    assert_mirrored(&source, &[SET], &home);
    assert_found(&home.tell(&["audit", "--json"]), 0, &[]);

    let running = home.run();
    home.settled(&source).await;
    let feed = home.operator.changes(0).await;
    let mut mended: Vec<_> = feed
        .iter()
        .filter(|line| line.origin == "audit")
        .map(|line| format!("{} {}", line.change, line.uri.rsplit('/').next().unwrap()))
        .collect();
    mended.sort();
    let expected = [
        "updated r0001.txt",
        "updated r0002.txt",
        "updated r0003.txt",
        "updated r0005.txt",
    ];
    assert_eq!(mended, expected);
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
    assert_mirrored(&source, &[SET], &home);
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
async fn nothing_is_extra_while_a_list_can_not_be_read() {
    let options = SampleOptions {
        entries_per_list: 2,
        ..resources(6)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    let stray = file(&source, &home, SET, "stray.txt");
    fs::write(&stray, "nobody's").unwrap();
    fs::remove_file(file(&source, &home, SET, "r0000.txt")).unwrap();
    for list in [
        "resourcelist-0001.xml",
        "resourcelist.xml",
        "changelist.xml",
    ] {
        let path = format!("/set1/{list}");
        source.fail(&path, Fault::Status(404), usize::MAX);
        let told = home.tell(&["audit", "--repair", "--delete-extra", "--json"]);
        assert_eq!(told.status.code(), Some(1), "{told:?}");
        let found = found(&told);
        let unread = format!("unreachable {list} not-found");
        assert!(found.contains(&unread), "{found:?}");
        assert!(
            !found.iter().any(|found| found.contains("extra")),
            "{found:?}"
        );
        assert_eq!(lines(&told).1["whole"], false);
        assert!(stray.exists());
        source.heal(&path);
    }
    // What could be read was mended.
    assert!(file(&source, &home, SET, "r0000.txt").exists());
    source.fail("/*", Fault::Status(500), usize::MAX);
    let told = home.tell(&["audit"]);
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    source.heal("/*");
    let told = home.tell(&["audit", "--repair", "--delete-extra", "--json"]);
    assert_found(&told, 0, &["+extra stray.txt"]);
    assert!(!stray.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_do_not_prove_absence_call_nothing_extra() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    let list = |md: &str, more: &str| {
        let uri = source.resource_uri(SET, "r0000.txt");
        format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
             xmlns:rs=\"http://www.openarchives.org/rs/terms/\">{md}<url><loc>{uri}</loc></url>{more}</urlset>"
        )
    };
    let stated = "<rs:md capability=\"resourcelist\"/>";
    let path = "/set1/resourcelist.xml";
    source.put_document(path, "application/xml", list("", ""));
    let told = home.tell(&["audit"]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    assert!(
        text(&told.stdout).contains("nothing was called extra"),
        "{told:?}"
    );
    source.put_document(
        path,
        "application/xml",
        list(stated, "<url><lastmod>2013</lastmod></url>"),
    );
    let told = home.tell(&["audit", "--json"]);
    assert_found(&told, 1, &["unreachable resourcelist.xml bad-entries"]);
    source.put_document(path, "application/xml", list(stated, ""));
    let told = home.tell(&["audit", "--json"]);
    assert_found(&told, 1, &["extra r0001.txt", "extra r0002.txt"]);
    source.remove_document(path);

    // What happened in between, no list tells.
    source.set_change_list(SET, false);
    source.create(SET, "lost.txt", "lost");
    source.set_change_list(SET, true);
    let told = home.tell(&["audit", "--json"]);
    assert_found(
        &told,
        1,
        &["unreachable capabilitylist.xml change-list-starts-late"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn last_weeks_list_takes_nothing_back() {
    let options = SampleOptions {
        change_list: false,
        ..resources(5)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    let path = "/set1/resourcelist.xml";
    let url = source.base().join(path).unwrap();
    // Nothing but the list tells a time.
    let undated = async || {
        source.remove_document(path);
        let served = client().get(url.clone()).send().await.unwrap();
        let served = served.text().await.unwrap();
        let entries = served.split("<lastmod>").map(|part| {
            let dated = part.split_once("</lastmod>");
            dated.map_or(part, |(_, undated)| undated)
        });
        let list: String = entries.collect();
        source.put_document(path, "application/xml", list.clone());
        list
    };
    let old = undated().await;
    sync(&home);
    source.create(SET, "new.txt", "new");
    source.delete(SET, "r0002.txt");
    source.refresh_resource_list(SET);
    undated().await;
    sync(&home);
    assert_mirrored(&source, &[SET], &home);
    source.put_document(path, "application/xml", old);
    let told = home.tell(&["audit", "--repair", "--delete-extra", "--json"]);
    let older = "unreachable resourcelist.xml older-resource-list";
    assert_found(&told, 1, &[older]);
    assert_mirrored(&source, &[SET], &home);
    undated().await;
    assert_found(&home.tell(&["audit", "--json"]), 0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_database_is_made_anew_without_fetching() {
    let source = SampleSource::start(resources(5)).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    fs::remove_dir_all(home.folder().join("state")).unwrap();
    alter(&file(&source, &home, SET, "r0001.txt"), |bytes| {
        bytes[0] ^= 1
    });
    let told = home.tell(&["audit", "--json"]);
    assert_found(&told, 1, &["altered r0001.txt digest"]);
    assert!(!home.folder().join("state").exists());
    let told = home.tell(&["audit", "--repair", "--json"]);
    assert_found(&told, 0, &["+altered r0001.txt digest"]);
    assert_eq!(lines(&told).1["adopted"], 4);
    sync(&home);
    assert_mirrored(&source, &[SET], &home);
    let fetched = |name: &str| source.hits(&format!("/set1/res/{name}"));
    assert_eq!((fetched("r0000.txt"), fetched("r0004.txt")), (1, 1));
    let running = home.run();
    home.settled(&source).await;
    assert_eq!(home.set().await.unwrap().resources, 5);
    // Whoever follows the feed hears of what was not fetched, too.
    let told = home.operator.changes(0).await;
    let mut told: Vec<_> = told.iter().map(|line| line.uri.clone()).collect();
    told.sort();
    let all = (0..5).map(|number| source.resource_uri(SET, &format!("r{number:04}.txt")));
    assert_eq!(told, all.map(String::from).collect::<Vec<_>>());
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_filtered_out_is_extra_and_goes_only_when_that_is_asked_for() {
    let source = SampleSource::start(resources(4)).await.unwrap();
    let home = Home::new(&source.url(), "delete = false");
    sync(&home);
    let text = fs::read_to_string(&home.config).unwrap();
    fs::write(&home.config, text + "exclude = [\"*r0002*\"]\n").unwrap();
    let told = home.tell(&["audit", "--json"]);
    assert_found(&told, 1, &["extra r0002.txt"]);
    let told = home.tell(&["audit", "--repair", "--json"]);
    assert_found(&told, 1, &["extra r0002.txt"]);
    assert_eq!(files(&home.mirror).len(), 4);
    let told = home.tell(&["audit", "--repair", "--delete-extra", "--json"]);
    assert_found(&told, 0, &["+extra r0002.txt"]);
    assert_eq!(files(&home.mirror).len(), 3);
    let running = home.run();
    home.until("three are left", |set| {
        set.state == "in-sync" && set.resources == 3
    })
    .await;
    let feed = home.operator.changes(0).await;
    let last = feed.last().unwrap();
    assert_eq!(
        (last.change.as_str(), last.origin.as_str()),
        ("deleted", "audit")
    );
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_kept_on_purpose_are_not_extra() {
    let source = SampleSource::start(resources(4)).await.unwrap();
    let home = Home::new(&source.url(), "delete = false");
    sync(&home);
    source.delete(SET, "r0000.txt");
    sync(&home);
    source.delete(SET, "r0001.txt");
    let told = home.tell(&["audit", "--json"]);
    assert_found(&told, 0, &[]);
    assert_eq!(lines(&told).1["kept"], 2);
    let told = home.tell(&["audit", "--repair", "--delete-extra", "--json"]);
    assert_found(&told, 0, &[]);
    assert_eq!(files(&home.mirror).len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_source_has_deleted_since_is_extra() {
    let source = SampleSource::start(resources(150)).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    for number in 0..120 {
        source.delete(SET, &format!("r{number:04}.txt"));
    }
    let told = home.tell(&["audit", "--json"]);
    assert_eq!(found(&told).len(), 120, "{told:?}");
    assert_eq!(lines(&told).1["extra"], 120);
    let told = home.tell(&["audit"]);
    assert!(text(&told.stdout).contains("and 100 more"), "{told:?}");
    // A daemon would hold so many deletions back; this was asked for.
    let told = home.tell(&["audit", "--repair", "--delete-extra"]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    assert_mirrored(&source, &[SET], &home);
    sync(&home);
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_that_no_list_tells_of_count() {
    let source = SampleSource::start(resources(4)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    source.freeze_change_list(SET, true);
    source.update(SET, "r0000.txt", "newer than the lists");
    source.create(SET, "new.txt", "newer than the lists");
    source.delete(SET, "r0001.txt");
    source.notify_and_publish(SET).await.unwrap();
    home.until_mirrored(&source).await;
    assert_found(&home.tell(&["audit", "--json"]), 0, &[]);
    alter(&file(&source, &home, SET, "new.txt"), |bytes| bytes[0] ^= 1);
    let told = home.tell(&["audit", "--json"]);
    assert_found(&told, 1, &["altered new.txt digest"]);
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_daemon_it_only_looks() {
    let source = SampleSource::start(resources(10)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    for round in 0..5 {
        source.update(SET, "r0003.txt", format!("round {round}"));
        source.create(SET, &format!("new{round}.txt"), "new");
        source.delete(SET, &format!("r{:04}.txt", round + 5));
        source.notify_and_publish(SET).await.unwrap();
        // It may be behind for a moment, and is given that.
        assert_found(&home.tell(&["audit", "--json"]), 0, &[]);
    }
    // Here it is behind for more than a moment.
    source.fail("/set1/res/r0003.txt", Fault::Slow(SECOND), 1);
    source.update(SET, "r0003.txt", "slow");
    source.notify_and_publish(SET).await.unwrap();
    assert_found(&home.tell(&["audit", "--json"]), 0, &[]);
    let told = home.tell(&["audit", "--repair"]);
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    let said = text(&told.stderr);
    assert!(
        said.contains("another resyncd is running") && said.contains("state-locked"),
        "{said}"
    );
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
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
