//! `sync`: one synchronization without a daemon.

use std::net::Ipv4Addr;
use std::process::{Output, Stdio};
use std::time::Duration;

use resourcesync::Capability;
use resyncd_testkit::{DumpOptions, Fault, SampleOptions, SampleSource};

use crate::support::process::{
    Home, command, isolated_command, program, signal, text, wait_for_exit,
};
use crate::support::{SET, client, files, only_pages, resources, soon};

#[track_caller]
fn assert_output(output: &Output, status: i32, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    let message = text(&output.stdout);
    for part in parts {
        assert!(message.contains(part), "{part}: {output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_makes_the_baseline_then_applies_changes_and_never_subscribes() {
    let options = SampleOptions {
        sets: vec!["set1".into(), "set2".into()],
        entries_per_list: 20,
        ..resources(50)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    let output = home.run_command(&["sync"]);
    assert_output(
        &output,
        0,
        &["set1/capabilitylist.xml: in-sync", "50 resources"],
    );
    home.assert_mirrored(&source, &["set1", "set2"]);
    for stream in [&output.stdout, &output.stderr] {
        assert!(!stream.contains(&0x1b), "{output:?}");
    }

    source.update("set1", "r0001.txt", "another text");
    source.create("set2", "new.txt", "new");
    source.delete("set2", "r0000.txt");
    assert_output(&home.run_command(&["sync", "sample"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &["set1", "set2"]);
    assert!(source.hub().unwrap().subscriptions().is_empty());
    let unknown = home.run_command(&["sync", "unknown"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_ends_sets_that_are_gone_and_former_ones_with_files_count() {
    let options = SampleOptions {
        sets: vec!["set1".into(), "set2".into()],
        ..resources(2)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "[limits]\nsets = 2");
    let followed = |output: &Output| {
        let shown = text(&output.stdout);
        ["set1", "set2", "set3"].map(|set| shown.contains(&format!("{set}/capabilitylist.xml: ")))
    };
    assert_eq!(followed(&home.run_command(&["sync"])), [true, true, false]);
    let before = files(&home.mirror);
    source.remove_set("set2");
    source.add_set("set3");
    let output = home.run_command(&["sync"]);
    assert_eq!(followed(&output), [true, false, false], "{output:?}");
    assert!(text(&output.stderr).contains("set-ended"), "{output:?}");
    assert_eq!(files(&home.mirror), before);
    // One that returns has its place.
    source.remove_set("set3");
    source.add_set("set2");
    assert_output(
        &home.run_command(&["sync"]),
        0,
        &["set2/capabilitylist.xml: in-sync"],
    );
}

/// The lines of `--json`.
fn rows(output: &Output) -> Vec<serde_json::Value> {
    let text = text(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_prints_what_would_be_done_and_changes_nothing() {
    let source = SampleSource::start(resources(4)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let path = |name: &str| format!("/set1/res/{name}");
    let uri = |name: &str| source.resource_uri(SET, name).to_string();
    let first = home.run_command(&["sync", "--dry-run"]);
    let create = format!("sample: would create {}", uri("r0000.txt"));
    assert_output(&first, 1, &[&create, "\n4 to create; 256 B to fetch\n"]);
    assert!(!home.mirror.exists() && !home.folder().join("state").exists());
    assert_eq!(source.hits(&path("r0000.txt")), 0);

    let running = home.run();
    // A poll would find the changes.
    home.idle(&source).await;
    let nothing = home.run_command(&["sync", "--dry-run"]);
    assert_output(&nothing, 0, &["nothing to do"]);
    source.update(SET, "r0001.txt", "another text");
    source.create(SET, "new.txt", "new");
    source.delete(SET, "r0002.txt");
    let before = files(&home.mirror);
    let hits = source.hits(&path("r0001.txt"));
    // Beside the daemon, which does not know of the changes.
    let output = home.run_command(&["sync", "--dry-run", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let mut found = rows(&output);
    let summary = found.pop().unwrap();
    assert_eq!(summary["type"], "summary");
    assert_eq!(
        (&summary["in_sync"], &summary["sources"]),
        (&false.into(), &1.into())
    );
    let would = &summary["would"];
    for (action, count) in [("create", 1), ("update", 1), ("delete", 1), ("check", 0)] {
        assert_eq!(would[action], count, "{summary}");
    }
    let of_source = found.pop().unwrap();
    assert_eq!(
        (&of_source["type"], &of_source["name"]),
        (&"source".into(), &"sample".into())
    );
    assert_eq!(of_source["mirror"], home.mirror.to_str().unwrap());
    let changes = found.iter().map(|row| {
        assert_eq!(
            (&row["type"], &row["source"]),
            (&"change".into(), &"sample".into())
        );
        (
            row["action"].as_str().unwrap(),
            row["uri"].as_str().unwrap().to_owned(),
        )
    });
    let mut changes: Vec<_> = changes.collect();
    changes.sort();
    assert_eq!(
        changes,
        [
            ("create", uri("new.txt")),
            ("delete", uri("r0002.txt")),
            ("update", uri("r0001.txt")),
        ]
    );
    assert_eq!(files(&home.mirror), before);
    assert_eq!(source.hits(&path("r0001.txt")), hits);
    let set = home.until("the status", |_| true).await;
    assert_eq!(set.pending, 0);
    assert_eq!(running.stop().await.code(), Some(0));

    assert_output(&home.run_command(&["sync"]), 0, &["in-sync"]);
    assert_output(
        &home.run_command(&["sync", "--dry-run"]),
        0,
        &["nothing to do"],
    );
    source.fail("/set1/capabilitylist.xml", Fault::Status(404), usize::MAX);
    let failed = home.run_command(&["sync", "--dry-run"]);
    assert_eq!(
        failed.status.code(),
        Some(1),
        "more may have changed: {failed:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn json_of_a_sync_is_the_status_of_each_source_and_a_summary() {
    let source = SampleSource::start(resources(4)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let output = home.run_command(&["sync", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rows = rows(&output);
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(rows[0]["sets"][0]["resources"], 4);
    assert_eq!(
        rows[1],
        serde_json::json!({ "type": "summary", "sources": 1, "in_sync": true, "interrupted": false })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn source_with_dumps_only_is_synced_from_them() {
    let options = SampleOptions {
        resource_list: false,
        change_list: false,
        dumps: DumpOptions {
            resource_dump: true,
            change_dump: true,
            entries_per_package: 20,
            contents: false,
            ..DumpOptions::default()
        },
        ..resources(50)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    let output = home.run_command(&["sync"]);
    assert_output(&output, 0, &["in-sync", "50 resources"]);
    home.assert_mirrored(&source, &["set1"]);
    source.update(SET, "r0001.txt", "another text");
    source.create(SET, "new.txt", "new");
    source.delete(SET, "r0000.txt");
    source.pack_changes(SET);
    assert_output(&home.run_command(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &["set1"]);
    for name in ["r0001.txt", "new.txt"] {
        assert_eq!(source.hits(&format!("/set1/res/{name}")), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_is_rejected_during_a_daemon_and_preserves_its_subscriptions() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    let output = home.run_command(&["sync"]);
    assert_output(&output, 1, &[]);
    let message = text(&output.stderr);
    assert!(
        message.contains("another resyncd is running") && message.contains("state-locked"),
        "{message}"
    );

    assert_eq!(running.stop().await.code(), Some(0));
    source.create(SET, "later.txt", "later");
    assert_output(&home.run_command(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &[SET]);
    assert_eq!(source.hub().unwrap().subscriptions().len(), 2);
    // The daemon still has its channels.
    let running = home.run();
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_processes_the_inbox_and_reports_a_gap() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    // The reorder window of the daemon is longer than its life.
    let home = Home::new(&source.url(), "");
    let long = std::fs::read_to_string(&home.config)
        .unwrap()
        .replace("300ms", "5m");
    let short = std::fs::read_to_string(&home.config).unwrap();
    std::fs::write(&home.config, long).unwrap();
    let running = home.run();
    home.settled(&source).await;
    source.freeze_change_list(SET, true);
    source.create(SET, "lost.txt", "lost");
    source.notify(SET);
    source.create(SET, "held.txt", "held");
    source.notify_and_publish(SET).await.unwrap();
    home.until("held", |set| set.channels.iter().any(|c| c.held == 1))
        .await;
    running.kill();

    std::fs::write(&home.config, short).unwrap();
    let output = home.run_command(&["sync"]);
    assert_output(&output, 1, &[": gap,", "[missing-notification]"]);
    let found = files(&home.mirror);
    assert!(found.keys().any(|path| path.ends_with("held.txt")));
    source.freeze_change_list(SET, false);
    assert_output(&home.run_command(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &[SET]);
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_list_closes_a_gap_before_the_change_list() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    source.freeze_change_list(SET, true);
    source.create(SET, "lost.txt", "lost");
    source.notify(SET);
    source.create(SET, "next.txt", "next");
    source.notify_and_publish(SET).await.unwrap();
    home.until("gap", |set| set.state == "gap").await;
    assert_eq!(running.stop().await.code(), Some(0));
    source.refresh_resource_list(SET);
    assert_output(&home.run_command(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &[SET]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_source_does_not_keep_others_from_being_synced() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    // Bound, so that no other test gets the port, and not listening.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = closed.local_addr().unwrap();
    let more = format!(
        "[[source]]\nname = \"gone\"\nurl = \"http://{address}/\"\nmirror = \"mirror-of-gone\""
    );
    let home = Home::new(&source.url(), &more);
    let output = home.run_command(&["sync"]);
    assert_output(&output, 1, &["in-sync", "gone: failing", "[connect]"]);
    home.assert_mirrored(&source, &[SET]);
    assert_output(&home.run_command(&["sync", "sample"]), 0, &["in-sync"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn known_sets_are_synced_without_an_entry_point_and_their_channels_stay() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
    for path in ["/", "/.well-known/*", "/.wellknown/*", "/robots.txt"] {
        source.fail(path, Fault::Status(404), usize::MAX);
    }
    source.remove_channel(SET, &Capability::FrameworkNotification);
    source.create(SET, "later.txt", "later");
    let output = home.run_command(&["sync"]);
    assert_output(&output, 1, &["sample: failing", ": in-sync"]);
    home.assert_mirrored(&source, &[SET]);
    // Only a daemon unsubscribes from a channel that is no longer offered: it can answer the hub.
    let counts = source.hub().unwrap().counts();
    assert_eq!((counts.requested, counts.subscribed), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_that_cannot_be_fetched_are_reported() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    source.fail("/set1/res/r0001.txt", Fault::Status(404), usize::MAX);
    let home = Home::new(&source.url(), "");
    let output = home.run_command(&["sync"]);
    let parts = [
        "1 resources can't be fetched [resources-failed]",
        "r0001.txt",
        "[not-found]",
    ];
    assert_output(&output, 1, &parts);
    assert_eq!(files(&home.mirror).len(), 2);
    assert_eq!(source.hits("/set1/res/r0001.txt"), 3, "attempts of one run");
    source.heal("/set1/res/r0001.txt");
    assert_output(&home.run_command(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &[SET]);
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_with_a_long_retry_after_is_left_pending() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let later = Fault::Unavailable { retry_after: 3600 };
    source.fail("/set1/res/r0001.txt", later, 1);
    let home = Home::new(&source.url(), "");
    let output = home.run_command(&["sync"]);
    assert_output(&output, 1, &["1 changes are not applied yet [pending]"]);
    assert_eq!(files(&home.mirror).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_deletions_are_held_back_and_reported() {
    let source = SampleSource::start(resources(150)).await.unwrap();
    let home = Home::new(&source.url(), "");
    assert_output(&home.run_command(&["sync"]), 0, &["in-sync"]);
    for number in 0..120 {
        source.delete(SET, &format!("r{number:04}.txt"));
    }
    let output = home.run_command(&["sync"]);
    assert_output(
        &output,
        1,
        &["120 deletions are held back", "[deletions-held]"],
    );
    assert_eq!(files(&home.mirror).len(), 150);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_sync_keeps_what_is_applied() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    for name in ["INT", "TERM"] {
        source.fail("/set1/res/r0002.txt", Fault::Stalled, 1);
        let before = source.hits("/set1/res/r0002.txt");
        let mut child = command(&home.config)
            .arg("sync")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        soon(
            "request for the last resource started",
            source.wait_for_hits("/set1/res/r0002.txt", before + 1),
        )
        .await;
        crate::support::eventually("other resources mirrored", None, async || {
            match files(&home.mirror).len() {
                2 => Ok(()),
                other => Err(other.to_string()),
            }
        })
        .await;
        signal(&child, name);
        assert_eq!(wait_for_exit(&mut child).await.code(), Some(1), "SIG{name}");
        let output = child.wait_with_output().unwrap();
        assert!(text(&output.stdout).contains("interrupted"), "{output:?}");
    }
    assert_output(&home.run_command(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &[SET]);
    assert_eq!(source.hits("/set1/res/r0000.txt"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_parts_and_dead_sitemaps_are_named_and_fail_the_run() {
    let source = SampleSource::start(only_pages()).await.unwrap();
    for path in ["/", "/.well-known/resourcesync"] {
        source.fail(path, Fault::Status(404), usize::MAX);
    }
    let put = |path: &str, text: &str| source.put_document(path, "text/plain", text.to_owned());
    put("/robots.txt", "Sitemap: /index.xml\nSitemap: /gone.xml\n");
    let sitemap = |root: &str, entry: &str, paths: &[&str]| {
        let entries: String = paths
            .iter()
            .map(|path| format!("<{entry}><loc>{path}</loc></{entry}>"))
            .collect();
        format!(r#"<{root} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</{root}>"#)
    };
    let parts = ["/1.xml", "/absent1.xml", "/absent2.xml"];
    put("/index.xml", &sitemap("sitemapindex", "sitemap", &parts));
    put("/1.xml", &sitemap("urlset", "url", &["/a"]));
    put("/a", "a");
    let home = Home::new(&source.url(), "");
    let output = home.run_command(&["sync"]);
    assert_output(
        &output,
        1,
        &[
            "index.xml: failing, not up to date yet; 1 resources",
            "2 parts of its indexes can't be read [dead-parts]",
            "2 of 3 parts of ",
            "gone.xml: failing",
        ],
    );
    let log = text(&output.stderr);
    for path in ["/absent1.xml", "/absent2.xml"] {
        let is_named = |line: &&str| line.contains("part of an index") && line.contains(path);
        assert_eq!(log.lines().filter(is_named).count(), 1, "{path}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_gives_empty_pages_of_the_database_back() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    assert_output(&home.run_command(&["sync"]), 0, &["in-sync"]);
    let database = home.folder().join("state/resyncd.db");
    let database = rusqlite::Connection::open(database).unwrap();
    // As the tasks of a first copy do.
    let leave_pages = "CREATE TABLE filler (content BLOB); INSERT INTO filler VALUES (zeroblob(2000000)); DROP TABLE filler";
    database.execute_batch(leave_pages).unwrap();
    let empty_pages = || -> i64 {
        let pages = database.pragma_query_value(None, "freelist_count", |row| row.get(0));
        pages.unwrap()
    };
    assert!(empty_pages() > 400);
    assert_output(&home.run_command(&["sync"]), 0, &["in-sync"]);
    assert_eq!(empty_pages(), 0);
}

/// A Source whose Resource List has 800 kB, which arrive in chunks of one byte; it ends with the test.
async fn trickling_source() -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let urlset = |capability: &str, more: &str| {
        format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
             <rs:md capability=\"{capability}\"/>{more}</urlset>"
        )
    };
    let offer = |path: &str, capability: &str| {
        format!("<url><loc>{base}/{path}</loc><rs:md capability=\"{capability}\"/></url>")
    };
    let description = urlset("description", &offer("set.xml", "capabilitylist"));
    let capabilities = urlset("capabilitylist", &offer("list.xml", "resourcelist"));
    let list = urlset("resourcelist", &"<!--xx-->\n".repeat(80_000));
    let chunked: String = list
        .chars()
        .map(|byte| format!("1\r\n{byte}\r\n"))
        .collect();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n";
    let whole = move |body: &str| format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let answers = [
        ("/.well-known/resourcesync", whole(&description)),
        ("/set.xml", whole(&capabilities)),
        (
            "/list.xml",
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunked}0\r\n\r\n"),
        ),
    ];
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let length = connection.read(&mut request).await.unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let found = answers.iter().find(|(known, _)| *known == path);
            let missing =
                "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let answer = found.map_or(missing, |(_, answer)| answer);
            // A client that has gone away needs no answer.
            let _ = connection.write_all(answer.as_bytes()).await;
        }
    });
    base
}

/// The seconds of processor that `times` of a shell states for what it has run: user and system.
fn processor_seconds(times: &str) -> f64 {
    let last = times.lines().last().unwrap();
    let of = |time: &str| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        60.0 * minutes.parse::<f64>().unwrap() + seconds.parse::<f64>().unwrap()
    };
    last.split_whitespace().map(of).sum()
}

/// The seconds of processor that one thread takes to read the document at `url`.
fn seconds_to_read(url: String) -> f64 {
    let reading = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let body = runtime.unwrap().block_on(async {
            let answer = client().get(url).send().await.unwrap();
            answer.bytes().await.unwrap()
        });
        assert!(body.len() > 800_000);
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(spent).unwrap().as_secs_f64()
    });
    reading.join().unwrap()
}

/// The chunks arrive together: what each of them costs is a wake-up of whoever reads the body.
#[tokio::test(flavor = "multi_thread")]
async fn document_in_chunks_of_one_byte_takes_little_processor_time() {
    let base = trickling_source().await;
    let list = format!("{base}/list.xml");
    let seconds_to_read = tokio::task::spawn_blocking(|| seconds_to_read(list));
    let seconds_to_read = seconds_to_read.await.unwrap();
    let home = Home::new(&base, "");
    let mut wrong = Vec::new();
    for arguments in [
        vec!["sync".to_owned()],
        vec!["discover".to_owned(), base.clone()],
        vec!["audit".to_owned()],
    ] {
        let mut shell = isolated_command("sh");
        shell.args(["-c", "\"$0\" \"$@\"; status=$?; times >&2; exit $status"]);
        shell
            .arg(program().get_program())
            .arg("--config")
            .arg(&home.config);
        let output = tokio::task::spawn_blocking({
            shell.args(&arguments);
            move || shell.output().unwrap()
        });
        let output = output.await.unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let seconds = processor_seconds(&text(&output.stderr));
        if seconds > 5.0 * seconds_to_read {
            wrong.push(format!(
                "{arguments:?}: {seconds} s, {seconds_to_read} s to read"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
