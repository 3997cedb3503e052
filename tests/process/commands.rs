//! The commands besides `run`.

use resyncd::demo::SampleSource;
use resyncd::status::Status;

use crate::process::{Home, program, text};
use crate::support::{NAME, SET, resources, soon};

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_how_everything_stands() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let told = home.tell(&["status"]);
    assert_eq!(told.status.code(), Some(3), "no daemon");
    assert!(
        text(&told.stderr).contains(&home.status.to_string()),
        "{told:?}"
    );

    let _running = home.run();
    home.settled(&source).await;
    let told = home.tell(&["status"]);
    assert_eq!(told.status.code(), Some(0));
    let page = text(&told.stdout);
    for part in [NAME, "in-sync", "3 resources", "active"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let told = home.tell(&["status", "--json"]);
    assert_eq!(told.status.code(), Some(0));
    let status: Status = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(status.sources[0].sets[0].resources, 3);

    source.freeze_change_list(SET, true);
    source.create(SET, "lost.txt", "lost");
    source.notify(SET);
    source.create(SET, "next.txt", "next");
    source.notify_and_publish(SET).await.unwrap();
    home.until("a gap", |set| set.state == "gap").await;
    let told = home.tell(&["status"]);
    assert_eq!(told.status.code(), Some(1), "a gap");
    assert!(
        text(&told.stdout).contains("missing-notification"),
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn approve_lets_deletions_go_on() {
    let source = SampleSource::start(resources(150)).await.unwrap();
    let home = Home::new(&source.url(), "");
    assert_eq!(
        home.tell(&["approve", NAME]).status.code(),
        Some(3),
        "no daemon"
    );
    assert_eq!(home.tell(&["approve", "nobody"]).status.code(), Some(2));
    let _running = home.run();
    home.settled(&source).await;
    for number in 0..120 {
        source.delete(SET, &format!("r{number:04}.txt"));
    }
    source.notify_and_publish(SET).await.unwrap();
    home.until("held back", |set| set.held_deletions == 120)
        .await;
    let told = home.tell(&["approve", NAME]);
    assert_eq!(told.status.code(), Some(0));
    assert!(text(&told.stdout).contains("120"), "{told:?}");
    home.settled(&source).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribe_works_through_the_daemon_and_without_one() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let hub = source.hub().unwrap();
    for (with_daemon, ended) in [(true, 2), (false, 4)] {
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
        let told = home.tell(&["unsubscribe", NAME]);
        assert_eq!(told.status.code(), Some(0), "{told:?}");
        assert_eq!(
            text(&told.stdout).matches("confirmed").count(),
            2,
            "{told:?}"
        );
        soon(
            "the hub has ended them",
            hub.wait_for_counts(|counts| counts.unsubscribed == ended),
        )
        .await;
        assert!(hub.subscriptions().is_empty());
        if let Some(running) = running {
            assert_eq!(running.stop().await.code(), Some(0));
        }
        // There is nothing left to end.
        let told = home.tell(&["unsubscribe"]);
        assert_eq!(told.status.code(), Some(0), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribe_tells_when_a_hub_does_not_confirm() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let hub = source.hub().unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    running.kill();
    hub.configure(|hub| hub.granting = resyncd::demo::Granting::Refuse(500));
    let told = home.tell(&["unsubscribe"]);
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(text(&told.stdout).contains("500"), "{told:?}");
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
