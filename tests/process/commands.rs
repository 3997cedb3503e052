//! The commands except `run`, `sync`, `audit`, `discover` and `demo`.

use resyncd::demo::SampleSource;
use resyncd::status::Status;

use crate::process::{Home, program, text};
use crate::support::{NAME, SET, resources, soon};

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_sets_and_its_exit_status_shows_failures() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let output = home.run_command(&["status"]);
    assert_eq!(output.status.code(), Some(3), "no daemon");
    assert!(
        text(&output.stderr).contains(&home.status.to_string()),
        "{output:?}"
    );

    let _running = home.run();
    home.settled(&source).await;
    let output = home.run_command(&["status"]);
    assert_eq!(output.status.code(), Some(0));
    let page = text(&output.stdout);
    for part in [NAME, "in-sync", "3 resources", "active"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let output = home.run_command(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let status: Status = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status.sources[0].sets[0].resources, 3);

    source.freeze_change_list(SET, true);
    source.create(SET, "lost.txt", "lost");
    source.notify(SET);
    source.create(SET, "next.txt", "next");
    source.notify_and_publish(SET).await.unwrap();
    home.until("gap", |set| set.state == "gap").await;
    let output = home.run_command(&["status"]);
    assert_eq!(output.status.code(), Some(1), "gap");
    assert!(
        text(&output.stdout).contains("missing-notification"),
        "{output:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn approve_applies_the_deletions_held_back() {
    let source = SampleSource::start(resources(150)).await.unwrap();
    let home = Home::new(&source.url(), "");
    assert_eq!(
        home.run_command(&["approve", NAME]).status.code(),
        Some(3),
        "no daemon"
    );
    assert_eq!(
        home.run_command(&["approve", "unknown"]).status.code(),
        Some(2)
    );
    let _running = home.run();
    home.settled(&source).await;
    for number in 0..120 {
        source.delete(SET, &format!("r{number:04}.txt"));
    }
    source.notify_and_publish(SET).await.unwrap();
    home.until("held back", |set| set.held_deletions == 120)
        .await;
    let output = home.run_command(&["approve", NAME]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("120"), "{output:?}");
    home.settled(&source).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribe_works_through_the_daemon_and_without_one() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let hub = source.hub().unwrap();
    for (with_daemon, unsubscribed) in [(true, 2), (false, 4)] {
        let home = Home::new(&source.url(), "");
        let running = home.run();
        home.settled(&source).await;
        assert_eq!(hub.subscriptions().len(), 2);
        let running = if with_daemon {
            Some(running)
        } else {
            assert_eq!(running.stop().await.code(), Some(0));
            None
        };
        let output = home.run_command(&["unsubscribe", NAME]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(
            text(&output.stdout).matches("confirmed").count(),
            2,
            "{output:?}"
        );
        soon(
            "unsubscribed at the hub",
            hub.wait_for_counts(|counts| counts.unsubscribed == unsubscribed),
        )
        .await;
        assert!(hub.subscriptions().is_empty());
        if let Some(running) = running {
            assert_eq!(running.stop().await.code(), Some(0));
        }
        // No subscription is left.
        let output = home.run_command(&["unsubscribe"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribe_reports_a_hub_that_does_not_confirm() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let hub = source.hub().unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    running.kill();
    hub.configure(|hub| hub.granting = resyncd::demo::Granting::Refuse(500));
    let output = home.run_command(&["unsubscribe"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("500"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribe_knows_a_source_that_was_removed() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let hub = source.hub().unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
    let config = std::fs::read_to_string(&home.config).unwrap();
    let renamed = config.replace(&format!("name = \"{NAME}\""), "name = \"another\"");
    assert_ne!(renamed, config);
    std::fs::write(&home.config, renamed).unwrap();
    let unknown = home.run_command(&["unsubscribe", "nobody"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let output = home.run_command(&["unsubscribe", NAME]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout).matches("confirmed").count(), 2);
    let ended = hub.wait_for_counts(|counts| counts.unsubscribed == 2);
    soon("unsubscribed at the hub", ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn help_and_version_are_printed() {
    let version = program().arg("--version").output().unwrap();
    assert_eq!(version.status.code(), Some(0));
    assert_eq!(
        text(&version.stdout),
        format!("resyncd {}\n", env!("CARGO_PKG_VERSION"))
    );
    for command in [
        "run",
        "check",
        "discover",
        "sync",
        "status",
        "approve",
        "unsubscribe",
        "demo",
    ] {
        let help = program().args([command, "--help"]).output().unwrap();
        assert_eq!(help.status.code(), Some(0), "{command}");
        assert!(text(&help.stdout).contains("Usage:"), "{command}");
    }
    let unknown = program().arg("nonsense").output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
}
