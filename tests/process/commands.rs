//! The commands except `run`, `sync`, `audit`, `discover` and `demo`.

use std::io::{BufRead, BufReader, pipe};
use std::process::Stdio;

use resyncd::status::{FailedResource, Status};
use resyncd_testkit::{Fault, SampleSource};

use crate::support::process::{Home, Running, command, program, signal, text, wait_for_exit};
use crate::support::{NAME, SET, eventually, resources, soon};

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_sets_and_its_exit_status_shows_failures() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    for command in [&["status"][..], &["status", "--live"]] {
        let output = home.run_command(command);
        assert_eq!(output.status.code(), Some(3), "no daemon");
        assert!(
            text(&output.stderr).contains(&home.status.to_string()),
            "{output:?}"
        );
    }

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
    let output = home.run_command(&["status", "--live"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// A Source that the daemon does not know yet keeps none of the others from being polled.
#[tokio::test(flavor = "multi_thread")]
async fn poll_of_all_sources_goes_on_after_one_that_the_daemon_does_not_know() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let _running = home.run();
    home.settled(&source).await;
    let config = std::fs::read_to_string(&home.config).unwrap();
    let new = "[[source]]\nname = \"new\"\nurl = \"https://example.org/\"\nmirror = \"new\"\n";
    let with_new = config.replacen("[[source]]", &format!("{new}[[source]]"), 1);
    std::fs::write(&home.config, with_new).unwrap();
    for command in ["poll", "retry"] {
        let output = home.run_command(&[command]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("no Source \"new\""));
        assert!(text(&output.stdout).contains(NAME), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_of_named_sources_and_again_and_again() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let mirror = home.folder().join("other");
    let other = format!(
        "\n[[source]]\nname = \"other\"\nurl = \"{}\"\nmirror = \"{}\"\n",
        source.url(),
        mirror.display()
    );
    let config = std::fs::read_to_string(&home.config).unwrap();
    std::fs::write(&home.config, config + &other).unwrap();
    let _running = home.run();
    home.until_status("both are in sync", |status| {
        let sets = status.sources.iter().flat_map(|source| &source.sets);
        let are_ok = status.sources.iter().all(|source| source.state == "ok");
        are_ok && sets.filter(|set| set.state == "in-sync").count() == 2
    })
    .await;
    let output = home.run_command(&["status"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let table = text(&output.stdout);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("SOURCE "), "{table}");
    assert!(
        rows[1].starts_with(&format!("{NAME} ")) && rows[2].starts_with("other "),
        "{table}"
    );
    assert!(rows.iter().all(|row| row.chars().count() <= 80), "{table}");

    let output = home.run_command(&["status", "other"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let details = text(&output.stdout);
    assert!(
        details.starts_with("other: ok (") && details.contains("3 resources, 192 B"),
        "{details}"
    );
    let output = home.run_command(&["status", "other", "--json"]);
    let status: Status = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = status.sources.iter().map(|source| &source.name).collect();
    assert_eq!(names, ["other"]);
    let output = home.run_command(&["status", "unknown"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");

    // After a second it may be printed again before the signal comes; after a day it is not.
    for (watch, printed, most) in [("--watch=1", 2, usize::MAX), ("--watch=86400", 1, 0)] {
        let mut watching = command(&home.config)
            .args(["status", "other", watch])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
        let mut titles = lines.filter(|line| line.as_ref().unwrap().starts_with("other: ok ("));
        for _ in 0..printed {
            assert!(titles.next().is_some(), "{watch}: it is printed again");
        }
        signal(&watching, "INT");
        let more = titles.count();
        assert!(more <= most, "{watch}: {more}");
        assert_eq!(wait_for_exit(&mut watching).await.code(), Some(0));
    }
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
async fn deletions_held_back_are_listed_and_rejected() {
    let source = SampleSource::start(resources(150)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let unreachable = home.run_command(&["approve", NAME, "--list"]);
    assert_eq!(unreachable.status.code(), Some(3), "no daemon");
    let both = home.run_command(&["approve", NAME, "--list", "--reject"]);
    assert_eq!(both.status.code(), Some(2));
    let _running = home.run();
    home.settled(&source).await;
    let run = |arguments: &[&str]| {
        let output = home.run_command(&[&["approve", NAME], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stdout)
    };
    assert_eq!(run(&["--list"]), "no deletions are held back\n");
    for number in 0..120 {
        source.delete(SET, &format!("r{number:04}.txt"));
    }
    source.notify_and_publish(SET).await.unwrap();
    home.until("held back", |set| set.held_deletions == 120)
        .await;
    let output = home.run_command(&["status"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let page = text(&output.stdout);
    assert!(
        page.starts_with(&format!("! {NAME}: 120 deletions are held back")),
        "{page}"
    );
    assert!(page.contains("held-deletions"), "{page}");
    // There are no colours where nobody sees them, unless they are forced.
    let coloured = |variables: &[(&str, &str)]| {
        let mut command = command(&home.config);
        let command = command.arg("status").envs(variables.iter().copied());
        let output = command.output().unwrap();
        text(&output.stdout).contains("\u{1b}[")
    };
    assert!(!coloured(&[]) && coloured(&[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));

    let listed = run(&["--list"]);
    assert_eq!(listed.lines().count(), 122, "{listed}");
    let uri = source.resource_uri(SET, "r0007.txt").to_string();
    assert!(listed.contains(&format!("\n{uri} (")), "{listed}");
    assert!(
        listed.contains("\n120 deletions are held back\n"),
        "{listed}"
    );
    // The last line names the command that decides about these and no others.
    let set = home.until("the status", |_| true).await;
    let through = set.held_through.unwrap();
    let command = format!("`resyncd approve {NAME} --through {through}`");
    assert!(listed.contains(&command), "{listed}");
    let none = run(&["--through", "0"]);
    assert_eq!(none, format!("{NAME}: no deletions are approved\n"));
    let none = run(&["--reject", "--through", "0", "--json"]);
    assert_eq!(none, format!("{{\"rejected\":0,\"source\":\"{NAME}\"}}\n"));
    let set = home.until("the status", |_| true).await;
    assert_eq!(set.held_deletions, 120);
    let would_delete = run(&["--dry-run"]);
    assert_eq!(would_delete.matches("would delete: ").count(), 120);
    let would_keep = run(&["--dry-run", "--reject"]);
    assert_eq!(would_keep.matches("would keep: ").count(), 120);
    let set = home.until("the status", |_| true).await;
    assert_eq!(set.held_deletions, 120);

    let rejected = run(&["--reject"]);
    assert_eq!(
        rejected,
        format!("{NAME}: 120 deletions are rejected; the files stay\n")
    );
    let set = home.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!((set.resources, set.held_deletions), (150, 0));
    let output = home.run_command(&["status"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rejected = run(&["--list", "--rejected"]);
    assert!(
        rejected.ends_with("\n120 deletions are rejected; the files stay\n"),
        "{rejected}"
    );
    assert!(rejected.contains(&format!("\n{uri} (")), "{rejected}");
    let held = run(&["--undo-reject"]);
    assert_eq!(held, format!("{NAME}: 120 deletions are held back again\n"));
    let none = run(&["--list", "--rejected"]);
    assert_eq!(none, "no deletions are rejected\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_is_listed_logged_once_and_tried_again() {
    const PATH: &str = "/set1/res/r0001.txt";
    let source = SampleSource::start(resources(3)).await.unwrap();
    source.fail(PATH, Fault::Status(404), usize::MAX);
    let home = Home::new(&source.url(), "");
    for command in ["failed", "held", "retry", "poll"] {
        let output = home.run_command(&[command]);
        assert_eq!(output.status.code(), Some(3), "{command}: no daemon");
        assert!(!home.folder().join("state").exists(), "{command}");
        let output = home.run_command(&[command, "unknown"]);
        assert_eq!(output.status.code(), Some(2), "{command}");
    }
    let path = home.folder().join("log");
    let file = std::fs::File::create(&path).unwrap();
    let log = async |part: &str| {
        eventually(part, None, async || {
            let text = std::fs::read_to_string(&path).unwrap();
            match text.matches(part).count() {
                1 => Ok(text),
                found => Err(format!("{found} times: {text}")),
            }
        })
        .await
    };
    let _running = Running::start(command(&home.config).env("RUST_LOG", "info").stderr(file));
    home.until("failed", |set| !set.attention.is_empty()).await;
    let begun = log("attention needed").await;
    assert!(
        begun.contains("failed-resources") && begun.contains("resyncd retry"),
        "{begun}"
    );
    let run = |arguments: &[&str]| {
        let output = home.run_command(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stdout)
    };
    let listed = run(&["failed"]);
    let uri = source.resource_uri(SET, "r0001.txt").to_string();
    assert_eq!(listed.lines().count(), 1, "{listed}");
    for part in [NAME, &uri, "[not-found]", "since 20", "next try 20"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let row: FailedResource = serde_json::from_str(&run(&["failed", NAME, "--json"])).unwrap();
    assert_eq!(row.uri, uri);
    let status = home.run_command(&["status", "--json"]);
    assert_eq!(status.status.code(), Some(1), "{status:?}");

    assert_eq!(run(&["poll"]), format!("{NAME}: poll requested\n"));
    source.heal(PATH);
    let retried = run(&["retry", NAME]);
    // It may have been tried by now.
    let answers = ["1 failed change is tried again", "nothing has failed"];
    let answers = answers.map(|answer| format!("{NAME}: {answer}\n"));
    assert!(answers.contains(&retried), "{retried}");
    home.settled(&source).await;
    assert_eq!(run(&["failed"]), "nothing has failed\n");
    log("attention no longer needed").await;
    log("attention needed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_is_listed_and_changed_without_a_daemon() {
    const PATH: &str = "/set1/res/r0140.txt";
    let source = SampleSource::start(resources(150)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let run = |arguments: &[&str]| {
        let output = home.run_command(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stdout)
    };
    let running = home.run();
    home.settled(&source).await;
    source.fail(PATH, Fault::Status(404), usize::MAX);
    source.update(SET, "r0140.txt", "new");
    for number in 0..120 {
        source.delete(SET, &format!("r{number:04}.txt"));
    }
    source.notify_and_publish(SET).await.unwrap();
    home.until("held back and failed", |set| {
        set.held_deletions == 120 && set.failed == 1
    })
    .await;
    let lists = [
        &["held"][..],
        &["held", NAME, "--json"],
        &["approve", NAME, "--list"],
    ];
    let through_daemon = lists.map(run);
    let failed = || {
        let row: FailedResource = serde_json::from_str(&run(&["failed", "--json"])).unwrap();
        (row.uri, row.code, row.since)
    };
    let failed_of_daemon = failed();
    // A daemon that is not found has the state: nothing is changed beside it.
    let config = std::fs::read_to_string(&home.config).unwrap();
    let elsewhere = config.replace(&home.status.to_string(), "127.0.0.1:1");
    std::fs::write(&home.config, elsewhere).unwrap();
    let beside = home.run_command(&["approve", NAME]);
    assert_eq!(beside.status.code(), Some(3), "{beside:?}");
    assert!(
        text(&beside.stderr).contains("[state-locked]"),
        "{beside:?}"
    );
    std::fs::write(&home.config, config).unwrap();
    assert_eq!(running.stop().await.code(), Some(0));

    assert_eq!(lists.map(run), through_daemon);
    assert_eq!(failed(), failed_of_daemon);
    let held = &through_daemon[0];
    let uri = source.resource_uri(SET, "r0007.txt").to_string();
    assert!(held.contains(&format!("\n{NAME}: {uri} (")), "{held}");
    assert!(held.ends_with("\n120 deletions are held back\n"), "{held}");
    assert_eq!(through_daemon[1].lines().count(), 120);
    let when = "no daemon runs: the next `resyncd run` or `resyncd sync` does it\n";
    let rejected = run(&["approve", NAME, "--reject"]);
    assert_eq!(
        rejected,
        format!("{NAME}: 120 deletions are rejected; the files stay\n{when}")
    );
    assert_eq!(run(&["held"]), "no deletions are held back\n");
    assert_eq!(run(&["held", "--rejected"]).lines().count(), 121);
    let undone = run(&["approve", NAME, "--undo-reject", "--json"]);
    assert_eq!(undone, format!("{{\"held\":120,\"source\":\"{NAME}\"}}\n"));
    let approved = run(&["approve", NAME]);
    assert_eq!(
        approved,
        format!("{NAME}: 120 deletions are approved\n{when}")
    );
    source.heal(PATH);
    let retried = run(&["retry"]);
    assert_eq!(
        retried,
        format!("{NAME}: 1 failed change is tried again\n{when}")
    );
    run(&["sync"]);
    home.assert_mirrored(&source, &[SET]);
    assert_eq!(run(&["failed"]), "nothing has failed\n");
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
    hub.configure(|hub| hub.granting = resyncd_testkit::Granting::Refuse(500));
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
        "failed",
        "held",
        "retry",
        "poll",
        "restore",
        "unsubscribe",
        "demo",
        "completions",
        "man",
        "explain",
        "version",
    ] {
        let help = program().args([command, "--help"]).output().unwrap();
        assert_eq!(help.status.code(), Some(0), "{command}");
        assert!(text(&help.stdout).contains("Usage:"), "{command}");
    }
    let version = program().arg("version").output().unwrap();
    assert_eq!(version.status.code(), Some(0));
    let line = text(&version.stdout);
    let beginning = format!("resyncd {} (commit ", env!("CARGO_PKG_VERSION"));
    assert!(
        line.starts_with(&beginning) && line.ends_with(")\n"),
        "{line}"
    );
    let help = program().arg("--help").output().unwrap();
    let help = text(&help.stdout);
    for part in ["Examples:", "Exit status:", "RUST_LOG", "RESYNCD_CONFIG"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert!(!help.contains('\u{1b}'), "colours in a pipe: {help}");
    let unknown = program().arg("nonsense").output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
}

/// A pipe whose reader has closed it.
#[test]
fn codes_are_explained() {
    let explain = |code: &str| program().args(["explain", code]).output().unwrap();
    let explained = explain("[mirror-locked]");
    assert_eq!(explained.status.code(), Some(0));
    assert_eq!(
        text(&explained.stdout),
        "mirror-locked: another process uses the mirror\n\
         What to do: stop it, or give each its own mirror\n"
    );
    let without_remedy = explain("bad-loc");
    assert_eq!(
        text(&without_remedy.stdout),
        "bad-loc: an entry has no valid `loc`; it was ignored\n"
    );
    let unknown = explain("mirror-lock");
    assert_eq!(unknown.status.code(), Some(2));
    assert_eq!(
        text(&unknown.stderr),
        "resyncd: no code is `mirror-lock`; the most similar one is `mirror-locked` [unknown-code]\n"
    );
}

#[test]
fn manual_pages_and_completions_are_those_of_the_commands() {
    let folder = tempfile::tempdir().unwrap();
    let written = program().arg("man").arg(folder.path()).output().unwrap();
    assert_eq!(written.status.code(), Some(0));
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let sync = page("resyncd-sync.1");
    assert!(
        sync.contains(r"\-\-dry\-run") && sync.contains(".SH EXIT STATUS"),
        "{sync}"
    );
    let own = program().arg("man").output().unwrap();
    assert_eq!(text(&own.stdout), page("resyncd.1"));
    for shell in ["bash", "zsh", "fish"] {
        let completions = program().args(["completions", shell]).output().unwrap();
        assert_eq!(completions.status.code(), Some(0));
        assert!(text(&completions.stdout).contains("unsubscribe"), "{shell}");
    }
    let nowhere = folder.path().join("nowhere");
    let failed = program().arg("man").arg(&nowhere).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("cannot write"), "{failed:?}");
}

fn closed_pipe() -> Stdio {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    writer.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_end_as_usual_where_nobody_reads_their_output() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let url = source.url();
    for arguments in [
        &["check"][..],
        &["version"],
        &["--help"],
        &["discover", &url],
        &["discover", &url, "--json"],
        &["sync"],
        &["audit"],
        &["audit", "--json"],
        &["status"],
        &["unsubscribe"],
        &["sync", "unknown"],
    ] {
        let usual = home.run_command(arguments).status.code();
        for (standard_output, standard_error) in [
            (closed_pipe(), Stdio::null()),
            (closed_pipe(), closed_pipe()),
        ] {
            let mut command = command(&home.config);
            command.args(arguments).env("RUST_LOG", "trace");
            command.stdout(standard_output).stderr(standard_error);
            assert_eq!(
                command.status().unwrap().code(),
                usual,
                "{arguments:?} in {home:?}",
                home = home.folder()
            );
        }
    }
    let _running = home.run();
    home.settled(&source).await;
    let mut command = command(&home.config);
    let status = command.args(["status", "--json"]).stdout(closed_pipe());
    assert_eq!(status.status().unwrap().code(), Some(0));
}

#[test]
fn lost_output_is_a_failure() {
    let home = Home::new("http://127.0.0.1:1/", "");
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = command(&home.config);
    let output = command.arg("check").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("[output]"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_is_asked_at_an_address_without_the_configuration() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let address = home.status.to_string();
    let run = |arguments: &[&str]| {
        let mut command = command(std::path::Path::new("/nonexistent/config.toml"));
        command
            .args(arguments)
            .args(["--address", &address])
            .output()
            .unwrap()
    };
    assert_eq!(run(&["status"]).status.code(), Some(3), "no daemon");
    let _running = home.run();
    home.settled(&source).await;
    let output = run(&["status"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("in-sync"), "{output:?}");
    let output = run(&["approve", NAME]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = run(&["approve", "unknown"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    // No path of another operation.
    let output = run(&["approve", &format!("{NAME}/poll?")]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    // The daemon knows its Sources.
    let output = run(&["poll"]);
    assert_eq!(
        text(&output.stdout).trim(),
        format!("{NAME}: poll requested")
    );
    assert_eq!(text(&run(&["failed"]).stdout).trim(), "nothing has failed");
    let output = run(&["status", "--token-file", "/nonexistent/token"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn log_levels_that_are_not_understood_are_reported() {
    let home = Home::new("http://127.0.0.1:1/", "");
    for (levels, is_reported) in [("info=what=ever", true), ("info", false)] {
        let mut command = command(&home.config);
        let output = command
            .arg("sync")
            .env("RUST_LOG", levels)
            .output()
            .unwrap();
        let log = text(&output.stderr);
        assert_eq!(log.contains("rust-log-ignored"), is_reported, "{log}");
    }
}

#[test]
fn configuration_is_also_given_by_its_short_option() {
    let home = Home::new("http://127.0.0.1:1/", "");
    let mut command = program();
    let output = command.arg("-c").arg(&home.config).arg("check").output();
    let output = output.unwrap();
    assert_eq!(text(&output.stdout), "ok\n", "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_other_servers_are_recognized() {
    use std::io::{Read, Write};
    let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = web.local_addr().unwrap().to_string();
    // An error of a web server, a page, and a protocol that is not HTTP.
    let answers = [
        "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno",
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>",
        "SSH-2.0-OpenSSH_9.2\r\n",
    ];
    let serving = std::thread::spawn(move || {
        for answer in answers.into_iter().chain(answers) {
            let (mut stream, _) = web.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    for more in [None, Some("--live")] {
        for answer in answers {
            let mut command = program();
            let command = command.args(["status", "--address", &address]).args(more);
            let output = command.output().unwrap();
            assert_eq!(output.status.code(), Some(3), "{answer}: {output:?}");
            let message = text(&output.stderr);
            assert!(message.contains("[not-resyncd]"), "{answer}: {message}");
        }
    }
    serving.join().unwrap();
}
