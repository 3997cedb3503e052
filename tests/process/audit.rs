//! `audit`: comparison of mirror and Source, file by file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};

use resyncd_testkit::{Fault, SampleOptions, SampleSource};
use serde_json::Value;

use crate::support::process::{Home, command, signal, text, wait_for_exit};
use crate::support::{SET, files, only_pages, path_of, resources, soon};

mod absence;
mod database;
mod draft;
mod linked;
mod origin;

const SECOND: Duration = Duration::from_secs(1);

/// The file of a resource.
fn file(source: &SampleSource, home: &Home, set: &str, name: &str) -> PathBuf {
    home.mirror.join(path_of(&source.resource_uri(set, name)))
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Changes the bytes of a file, and preserves its time.
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

/// The objects of `--json`: those before the summary, and the summary.
fn lines(output: &Output) -> (Vec<Value>, Value) {
    let mut lines: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let last = lines.pop().unwrap();
    assert_eq!(last["type"], "summary", "{output:?}");
    (lines, last)
}

/// The findings as `kind name differs`, sorted, with a leading `+` if repaired.
fn found(output: &Output) -> Vec<String> {
    let (lines, _) = lines(output);
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
fn assert_found(output: &Output, status: i32, expected: &[&str]) {
    assert_eq!(found(output), expected, "{output:?}");
    assert_eq!(output.status.code(), Some(status), "{output:?}");
}

#[track_caller]
fn sync(home: &Home) {
    let output = home.run_command(&["sync"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// A file that was restored with its former time, or all times once their zone is corrected.
#[tokio::test(flavor = "multi_thread")]
async fn lastmod_that_moves_back_is_a_change() {
    for has_time in [false, true] {
        let source = SampleSource::start(only_pages()).await.unwrap();
        let put = |at: &str, lastmods: [&str; 2], bytes: &str| {
            let head = if has_time {
                format!("<rs:md capability=\"resourcelist\" at=\"2026-02-0{at}\"/>")
            } else {
                String::new()
            };
            let mut list = format!(
                "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
                 xmlns:rs=\"http://www.openarchives.org/rs/terms/\">{head}"
            );
            for (page, lastmod) in ["/a", "/b"].into_iter().zip(lastmods) {
                list += &format!("<url><loc>{page}</loc><lastmod>{lastmod}</lastmod></url>");
            }
            source.put_document("/sitemap.xml", "application/xml", list + "</urlset>");
            source.put_document("/a", "text/plain", bytes.to_owned());
        };
        let (early, late) = ("2026-01-02T00:00:00Z", "2026-01-02T09:00:00Z");
        put("1", [late, late], "new");
        source.put_document("/b", "text/plain", "b".to_owned());
        let home = Home::new(&format!("{}sitemap.xml", source.url()), "");
        sync(&home);
        put("2", [early, early], "restored");
        assert_found(
            &home.run_command(&["audit", "--json"]),
            1,
            &["altered a lastmod", "altered b lastmod"],
        );
        sync(&home);
        let a = path_of(&source.base().join("/a").unwrap());
        let found = fs::read_to_string(home.mirror.join(a)).unwrap();
        assert_eq!(found, "restored", "{has_time}");
        assert_found(&home.run_command(&["audit", "--json"]), 0, &[]);
        let unchanged = source.hits_not_modified("/b");
        assert_eq!(unchanged, 1, "it is asked for with its validators");
        put("3", [early, early], "restored");
        sync(&home);
        assert_eq!(source.hits_not_modified("/b"), unchanged, "once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_of_a_repair_states_what_it_would_do_and_the_daemon_does_it() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    alter(&file(&source, &home, SET, "r0000.txt"), |bytes| {
        bytes[0] ^= 1
    });
    fs::remove_file(file(&source, &home, SET, "r0001.txt")).unwrap();
    fs::write(file(&source, &home, SET, "extra.txt"), "extra").unwrap();
    let before = files(&home.mirror);
    let would = |arguments: &[&str]| {
        let output = home.run_command(&[&["audit", "--repair", "--dry-run"], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        output
    };
    // Beside the daemon, which is not asked for it.
    let (findings, _) = lines(&would(&["--delete-extra", "--json"]));
    let findings = findings.iter().filter(|line| line["type"] == "finding");
    let mut planned: Vec<_> = findings
        .map(|finding| {
            assert_eq!(finding["mended"], false, "{finding}");
            (
                finding["kind"].as_str().unwrap(),
                finding["would"].as_str().unwrap(),
            )
        })
        .collect();
    planned.sort_unstable();
    assert_eq!(
        planned,
        [
            ("altered", "repair"),
            ("extra", "delete"),
            ("missing", "repair")
        ]
    );
    let page = text(&would(&[]).stdout);
    assert_eq!(page.matches(", would repair").count(), 2, "{page}");
    assert_eq!(page.matches(", would delete").count(), 0, "{page}");
    assert_eq!(files(&home.mirror), before);
    // The daemon repairs, and goes on.
    let repaired = home.run_command(&["audit", "--repair", "--delete-extra"]);
    assert_eq!(repaired.status.code(), Some(0), "{repaired:?}");
    let line = text(&repaired.stdout);
    assert!(line.contains("in sync: 3 compared, 0 missing"), "{line}");
    assert!(line.contains(", 3 repaired"), "{line}");
    assert!(!file(&source, &home, SET, "extra.txt").exists());
    source.update(SET, "r0002.txt", "news");
    source.notify_and_publish(SET).await.unwrap();
    home.settled(&source).await;
    let again = home.run_command(&["audit", "--repair", "--json"]);
    let (sources, summary) = lines(&again);
    assert_eq!(
        (&sources[0]["type"], &sources[0]["compared"]),
        (&"source".into(), &3.into())
    );
    assert_eq!(
        (&summary["type"], &summary["in_sync"]),
        (&"summary".into(), &true.into())
    );
    assert_eq!(running.stop().await.code(), Some(0));
    let alone = home.run_command(&["audit", "--dry-run"]);
    assert_eq!(alone.status.code(), Some(2), "without --repair: {alone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repair_by_the_daemon_that_fails_says_so() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    // As if its disk were not mounted.
    let id = home.mirror.join(".resyncd/id");
    let kept = fs::read(&id).unwrap();
    fs::remove_file(&id).unwrap();
    let failed = home.run_command(&["audit", "--repair"]);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let line = text(&failed.stdout);
    assert!(
        line.starts_with("sample: not audited: ") && line.contains("[mirror-missing]"),
        "{line}"
    );
    fs::write(&id, kept).unwrap();
    home.settled(&source).await;
    let repaired = home.run_command(&["audit", "--repair"]);
    assert_eq!(repaired.status.code(), Some(0), "{repaired:?}");
    // What the daemon does not do is refused, and not left out.
    let refused = home.run_command(&["audit", "--repair", "--origin"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(
        text(&refused.stderr).contains("[state-locked]"),
        "{refused:?}"
    );
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror_in_sync_has_no_findings() {
    let options = SampleOptions {
        sets: vec!["set1".into(), "set2".into()],
        entries_per_list: 20,
        ..resources(50)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    // These changes are in the Change Lists only, one of which is closed.
    source.update("set1", "r0001.txt", "another text");
    source.delete("set1", "r0002.txt");
    source.roll_change_list("set1");
    source.create("set1", "new.txt", "new");
    source.update("set1", "new.txt", "newer");
    source.create("set2", "r0002b.txt", "more");
    sync(&home);
    let output = home.run_command(&["audit"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let message = text(&output.stdout);
    assert!(
        message.contains("in sync: 101 compared, 101 right, 0 missing"),
        "{message}"
    );
    for stream in [&output.stdout, &output.stderr] {
        assert!(!stream.contains(&0x1b), "{output:?}");
    }
    let output = home.run_command(&["audit", "--json", "sample"]);
    assert_found(&output, 0, &[]);
    let (sources, summary) = lines(&output);
    assert_eq!(sources[0]["type"], "source");
    assert_eq!(sources[0]["compared"], 101);
    assert_eq!(summary["in_sync"], true);
    let unknown = home.run_command(&["audit", "unknown"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let output = home.run_command(&["audit", "--delete-extra"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_robots_txt_disallows_is_unreachable_and_not_requested() {
    let source = SampleSource::start(only_pages()).await.unwrap();
    for path in ["/", "/.well-known/resourcesync"] {
        source.fail(path, Fault::Status(404), usize::MAX);
    }
    let put = |path: &str, text: &str| source.put_document(path, "text/plain", text.to_owned());
    put("/robots.txt", "User-agent: *\nDisallow: /private/");
    put(
        "/sitemap.xml",
        r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>/a</loc></url><url><loc>/private/b</loc></url></urlset>"#,
    );
    put("/a", "a");
    put("/private/b", "b");
    let home = Home::new(&source.url(), "");
    let output = home.run_command(&["sync"]);
    let shown = text(&output.stdout);
    assert!(shown.contains("1 resources are unavailable"), "{shown}");
    for arguments in [&["audit", "--json"][..], &["audit", "--json", "--repair"]] {
        let output = home.run_command(arguments);
        let (lines, _) = lines(&output);
        let finding = lines.iter().find(|line| line["type"] == "finding");
        let finding = finding.unwrap_or_else(|| panic!("{output:?}"));
        let is_named = finding.to_string().contains("disallowed-by-robots");
        assert!(is_named, "{finding}");
    }
    assert_eq!(source.hits("/private/b"), 0);
    // Once the operator wants it.
    let all = Home::new(&source.url(), "robots = false");
    all.run_command(&["sync"]);
    assert!(source.hits("/private/b") > 0);
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
    // The digest proves that this file is correct.
    let announced_time = modified(&at("r0004.txt"));
    date(&at("r0004.txt"), announced_time + 2 * SECOND);
    fs::write(at("stray.txt"), "stray").unwrap();
    // A folder in place of a file.
    fs::remove_file(at("r0005.txt")).unwrap();
    fs::create_dir(at("r0005.txt")).unwrap();

    let output = home.run_command(&["audit", "--json"]);
    let expected = [
        "altered r0001.txt digest",
        "altered r0002.txt length",
        "extra stray.txt",
        "missing r0003.txt",
        "missing r0005.txt",
    ];
    assert_found(&output, 1, &expected);
    let output = home.run_command(&["audit"]);
    let message = text(&output.stdout);
    assert!(
        message.contains("not in sync: 8 compared, 4 right, 2 missing, 2 altered, 1 extra"),
        "{message}"
    );
    // The audit has changed nothing.
    assert_eq!(
        home.run_command(&["audit", "--json"]).stdout,
        audit_again(&home)
    );

    fs::remove_dir(at("r0005.txt")).unwrap();
    let fetched = source.hits("/set1/res/r0004.txt");
    let output = home.run_command(&["audit", "--repair", "--json"]);
    let expected = [
        "+altered r0001.txt digest",
        "+altered r0002.txt length",
        "+missing r0003.txt",
        "+missing r0005.txt",
        "extra stray.txt",
    ];
    assert_found(&output, 1, &expected);
    assert!(at("stray.txt").exists());
    assert_eq!(modified(&at("r0004.txt")), announced_time);
    assert_eq!(source.hits("/set1/res/r0004.txt"), fetched);
    let output = home.run_command(&["audit", "--repair", "--delete-extra"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let message = text(&output.stdout);
    assert!(
        message.contains("stray.txt, deleted")
            && message
                .contains(" 8 right, 0 missing, 0 altered, 0 extra, 0 unreachable, 1 deleted")
            && !message.contains("repaired"),
        "{message}"
    );
    home.assert_mirrored(&source, &[SET]);
    assert_found(&home.run_command(&["audit", "--json"]), 0, &[]);

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

fn audit_again(home: &Home) -> Vec<u8> {
    home.run_command(&["audit", "--json"]).stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn without_digests_length_and_time_are_compared() {
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
    let output = home.run_command(&["audit", "--json"]);
    assert_found(
        &output,
        1,
        &["altered r0000.txt length", "altered r0001.txt lastmod"],
    );
    // The bytes of the second file can't be verified.
    let fetched = source.hits("/set1/res/r0001.txt");
    let output = home.run_command(&["audit", "--repair", "--json"]);
    assert_found(
        &output,
        0,
        &["+altered r0000.txt length", "+altered r0001.txt lastmod"],
    );
    assert_eq!(source.hits("/set1/res/r0001.txt"), fetched + 1);
    assert_found(&home.run_command(&["audit", "--json"]), 0, &[]);
    home.assert_mirrored(&source, &[SET]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_file_that_the_source_does_not_serve_is_unreachable() {
    let source = SampleSource::start(resources(4)).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    fs::remove_file(file(&source, &home, SET, "r0000.txt")).unwrap();
    fs::remove_file(file(&source, &home, SET, "r0001.txt")).unwrap();
    source.fail("/set1/res/r0001.txt", Fault::Status(404), usize::MAX);
    let output = home.run_command(&["audit", "--json"]);
    assert_found(
        &output,
        1,
        &["missing r0000.txt", "unreachable r0001.txt not-found"],
    );
    let output = home.run_command(&["audit", "--repair", "--json"]);
    assert_found(
        &output,
        1,
        &["+missing r0000.txt", "unreachable r0001.txt not-found"],
    );
    source.heal("/set1/res/r0001.txt");
    let output = home.run_command(&["audit", "--repair", "--json"]);
    assert_found(&output, 0, &["+missing r0001.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_audit_ends() {
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
        soon("request started", source.wait_for_hits(path, before + 1)).await;
        signal(&child, "INT");
        assert_eq!(
            wait_for_exit(&mut child).await.code(),
            Some(1),
            "{arguments:?}"
        );
        let output = child.wait_with_output().unwrap();
        assert!(text(&output.stdout).contains("[interrupted]"), "{output:?}");
    }
    let output = home.run_command(&["audit", "--repair", "--json"]);
    assert_found(&output, 0, &["+missing r0002.txt"]);
}
