//! `forget`: what a Source has left is deleted, beside a daemon and without one.

use resyncd_testkit::SampleSource;

use crate::process::reload::{reload, table, until_settled, write_sources};
use crate::support::process::{Home, text};
use crate::support::{NAME, SET, files, resources, soon, until_verified};

/// Waits until the hub has ended both subscriptions: it does so a moment after they were confirmed.
async fn until_unsubscribed(source: &SampleSource) {
    let hub = source.hub().unwrap();
    let ended = hub.wait_for_counts(|counts| counts.unsubscribed == 2);
    soon("unsubscribed", ended).await;
    assert!(hub.subscriptions().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_source_is_forgotten_beside_the_daemon_with_its_files() {
    let start = || SampleSource::start(resources(3));
    let (kept, removed) = (start().await.unwrap(), start().await.unwrap());
    let home = Home::new(&kept.url(), "");
    let (of_kept, of_removed) = (
        table(NAME, &kept.url(), ""),
        table("removed", &removed.url(), ""),
    );
    write_sources(&home, &[of_kept.clone(), of_removed.clone()]);
    let running = home.run();
    until_settled(&home, &[NAME, "removed"]).await;
    let mirror = home.folder().join("mirror-of-removed");
    let foreign = mirror.join("notes.txt");
    std::fs::write(&foreign, "not ours").unwrap();

    let run = |arguments: &[&str]| {
        let output = home.run_command(&[&["forget"], arguments].concat());
        let shown = text(&output.stdout) + &text(&output.stderr);
        (output.status.code().unwrap(), shown)
    };
    let (status, shown) = run(&["removed"]);
    assert_eq!(status, 1, "{shown}");
    assert!(shown.contains("source-followed"), "{shown}");
    // The daemon follows it still.
    write_sources(&home, std::slice::from_ref(&of_kept));
    let (status, shown) = run(&["removed", "--delete-files"]);
    assert_eq!(status, 1, "{shown}");
    assert!(shown.contains("source-followed"), "{shown}");
    let (status, shown) = run(&["unknown"]);
    assert_eq!(status, 2, "{shown}");
    assert!(shown.contains("unknown-source"), "{shown}");
    assert_eq!(files(&mirror).len(), 4);

    reload(&home, &running).await;
    let last = home.operator.last_change().await;
    let (status, shown) = run(&["removed", "--delete-files"]);
    assert_eq!(status, 0, "{shown}");
    assert!(
        shown.contains("3 resources forgotten; 3 files deleted"),
        "{shown}"
    );
    assert_eq!(files(&mirror).len(), 1, "the foreign one");
    assert!(foreign.exists());
    let lines = home.operator.changes(last).await;
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in &lines {
        let found = (
            line.change.as_str(),
            line.origin.as_str(),
            line.source.as_str(),
        );
        assert_eq!(found, ("deleted", "forget", "removed"));
        assert!(line.path.is_some() && line.length.is_none());
        assert_eq!(home.operator.resource(&line.uri).await, None);
    }
    let status = until_settled(&home, &[NAME]).await;
    assert!(status.former_sources.is_empty());
    until_unsubscribed(&removed).await;
    let (status, shown) = run(&["removed"]);
    assert_eq!(status, 2, "{shown}");

    // It can be followed again.
    write_sources(&home, &[of_kept, of_removed]);
    reload(&home, &running).await;
    until_settled(&home, &[NAME, "removed"]).await;
    until_verified(&removed).await;
    assert_eq!(files(&mirror).len(), 4);
    removed.create(SET, "new.txt", "new");
    removed.notify_and_publish(SET).await.unwrap();
    home.until_status("the change is counted", |status| {
        status.sources[1].sets[0].resources == 4
    })
    .await;
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_source_is_forgotten_without_a_daemon() {
    let start = || SampleSource::start(resources(3));
    let (kept, one, other) = (
        start().await.unwrap(),
        start().await.unwrap(),
        start().await.unwrap(),
    );
    let home = Home::new(&kept.url(), "");
    let of_kept = table(NAME, &kept.url(), "");
    let (of_one, of_other) = (
        table("one", &one.url(), ""),
        table("other", &other.url(), ""),
    );
    write_sources(&home, &[of_kept.clone(), of_one, of_other]);
    let running = home.run();
    until_settled(&home, &[NAME, "one", "other"]).await;
    assert_eq!(running.stop().await.code(), Some(0));
    write_sources(&home, &[of_kept]);

    let run = |arguments: &[&str]| {
        let output = home.run_command(&[&["forget"], arguments].concat());
        let shown = text(&output.stdout) + &text(&output.stderr);
        (output.status.code().unwrap(), shown)
    };
    let (status, shown) = run(&["one"]);
    assert_eq!(status, 0, "{shown}");
    assert!(
        shown.contains("3 resources forgotten; the files stay in"),
        "{shown}"
    );
    assert_eq!(files(&home.folder().join("mirror-of-one")).len(), 3);
    until_unsubscribed(&one).await;
    let (status, shown) = run(&["one", "--delete-files"]);
    assert_eq!(status, 2, "{shown}");
    let (status, shown) = run(&["other", "--delete-files"]);
    assert_eq!(status, 0, "{shown}");
    assert!(files(&home.folder().join("mirror-of-other")).is_empty());

    let running = home.run();
    let status = until_settled(&home, &[NAME]).await;
    assert!(status.former_sources.is_empty());
    let lines = home.operator.changes(0).await;
    let deleted = lines.iter().filter(|line| line.change == "deleted");
    let deleted: Vec<_> = deleted.map(|line| line.source.as_str()).collect();
    assert_eq!(deleted, ["other"; 3]);
    assert_eq!(running.stop().await.code(), Some(0));
}
