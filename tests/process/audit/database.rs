//! Audits with a lost database, with changes from notifications, and with a running daemon.

use chrono::{DateTime, TimeDelta, Utc};
use resyncd::clock;
use resyncd_testkit::DumpOptions;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn lost_database_is_rebuilt_without_fetching() {
    let source = SampleSource::start(resources(5)).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    fs::remove_dir_all(home.folder().join("state")).unwrap();
    alter(&file(&source, &home, SET, "r0001.txt"), |bytes| {
        bytes[0] ^= 1
    });
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 1, &["altered r0001.txt digest"]);
    assert!(!home.folder().join("state").exists());
    let output = home.run_command(&["audit", "--repair", "--json"]);
    assert_found(&output, 0, &["+altered r0001.txt digest"]);
    assert_eq!(lines(&output).1["adopted"], 4);
    sync(&home);
    home.assert_mirrored(&source, &[SET]);
    let fetched = |name: &str| source.hits(&format!("/set1/res/{name}"));
    assert_eq!((fetched("r0000.txt"), fetched("r0004.txt")), (1, 1));
    let running = home.run();
    home.settled(&source).await;
    let set = home.until("the status", |_| true).await;
    assert_eq!(set.resources, 5);
    // The feed has a line for adopted files, too.
    let feed = home.operator.changes(0).await;
    let mut fed: Vec<_> = feed.iter().map(|line| line.uri.clone()).collect();
    fed.sort();
    let all = (0..5).map(|number| source.resource_uri(SET, &format!("r{number:04}.txt")));
    assert_eq!(fed, all.map(String::from).collect::<Vec<_>>());
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_from_notifications_that_no_list_states_are_not_findings() {
    let source = SampleSource::start(resources(4)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    source.freeze_change_list(SET, true);
    source.update(SET, "r0000.txt", "newer than the lists");
    source.create(SET, "new.txt", "newer than the lists");
    source.delete(SET, "r0001.txt");
    source.notify_and_publish(SET).await.unwrap();
    home.settled(&source).await;
    assert_found(&home.run_command(&["audit", "--json"]), 0, &[]);
    alter(&file(&source, &home, SET, "new.txt"), |bytes| bytes[0] ^= 1);
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 1, &["altered new.txt digest"]);
    assert_eq!(running.stop().await.code(), Some(0));
}

/// Checks that an audit waits while the daemon is behind. Where a busy machine keeps the daemon behind for longer than any audit waits,
/// what it lacked is found, and not any more once it was applied.
async fn audit_while_behind(home: &Home, source: &SampleSource) {
    /// How long an audit waits at least.
    const WAIT: TimeDelta = TimeDelta::seconds(3);
    let begun = clock::now().wall;
    let output = home.run_command(&["audit", "--json"]);
    if !found(&output).is_empty() {
        home.settled(source).await;
        let last = home.operator.changes(0).await.pop().unwrap();
        let applied: DateTime<Utc> = last.applied_at.parse().unwrap();
        assert!(applied - begun > WAIT, "{output:?}, {last:?}");
        let again = home.run_command(&["audit", "--json"]);
        return assert_found(&again, 0, &[]);
    }
    assert_found(&output, 0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_of_a_running_daemon_is_read_only() {
    let source = SampleSource::start(resources(10)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    for round in 0..5 {
        source.update(SET, "r0003.txt", format!("round {round}"));
        source.create(SET, &format!("new{round}.txt"), "new");
        source.delete(SET, &format!("r{:04}.txt", round + 5));
        source.notify_and_publish(SET).await.unwrap();
        audit_while_behind(&home, &source).await;
    }
    // The daemon is behind for longer.
    source.fail("/set1/res/r0003.txt", Fault::Slow(SECOND), 1);
    source.update(SET, "r0003.txt", "slow");
    source.notify_and_publish(SET).await.unwrap();
    audit_while_behind(&home, &source).await;
    // The only repair that the daemon does not make itself.
    let output = home.run_command(&["audit", "--repair", "--new-mirror"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = text(&output.stderr);
    assert!(
        message.contains("another resyncd is running") && message.contains("state-locked"),
        "{message}"
    );
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_running_daemon_has_pending_is_no_difference() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let configured = fs::read_to_string(&home.config).unwrap();
    let patient = configured.replace("[http]\n", "[http]\ntimeout = \"1h\"\n");
    fs::write(&home.config, patient).unwrap();
    let running = home.run();
    home.settled(&source).await;
    source.fail("/set1/res/r0000.txt", Fault::Slow(3600 * SECOND), 1);
    source.update(SET, "r0000.txt", "requested, not answered");
    source.notify_and_publish(SET).await.unwrap();
    home.until("it is pending", |set| set.pending == 1).await;
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 0, &[]);
    let (_, summary) = lines(&output);
    assert_eq!(
        (&summary["pending"], &summary["right"]),
        (&1.into(), &2.into()),
        "{summary}"
    );
    let output = home.run_command(&["audit"]);
    assert!(
        text(&output.stdout).contains(
            "2 right, 0 missing, 0 altered, 0 extra, 0 unreachable, 1 pending in the daemon"
        ),
        "{output:?}"
    );
    assert_eq!(running.stop().await.code(), Some(0));
    // Nobody works on it.
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 1, &["altered r0000.txt length"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_mirror_is_made_anew_only_when_that_is_requested() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    assert_eq!(home.run_command(&["sync"]).status.code(), Some(0));
    fs::remove_dir_all(&home.mirror).unwrap();
    for command in [
        &["sync"][..],
        &["sync", "--dry-run"],
        &["audit", "--repair"],
    ] {
        let output = home.run_command(command);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let messages = text(&output.stdout) + &text(&output.stderr);
        assert!(messages.contains("[mirror-missing]"), "{output:?}");
        assert!(!home.mirror.exists(), "nothing is written: {output:?}");
    }
    let output = home.run_command(&["audit", "--repair", "--new-mirror"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    home.assert_mirrored(&source, &[SET]);
    assert_eq!(home.run_command(&["sync"]).status.code(), Some(0));
    let audit = home.run_command(&["audit"]);
    assert_eq!(audit.status.code(), Some(0), "{audit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn source_that_offers_dumps_only_is_audited_by_its_packages() {
    let options = SampleOptions {
        dumps: DumpOptions {
            resource_dump: true,
            entries_per_package: 10,
            ..DumpOptions::default()
        },
        resource_list: false,
        ..resources(3)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    let planned = home.run_command(&["sync", "--dry-run"]);
    assert!(text(&planned.stdout).contains("3 to create"), "{planned:?}");
    sync(&home);
    fs::remove_file(file(&source, &home, SET, "r0001.txt")).unwrap();
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 1, &["missing r0001.txt"]);
    let mut left = fs::read_dir(home.folder().join("state")).unwrap();
    let is_scratch = |name: &str| name.contains("scratch");
    assert!(!left.any(|entry| is_scratch(entry.unwrap().file_name().to_str().unwrap())));
    let output = home.run_command(&["audit", "--json", "--repair"]);
    assert_found(&output, 0, &["+missing r0001.txt"]);
}
