//! SIGHUP: the daemon reads its configuration again.

use std::process::Command;

use chrono::{DateTime, TimeDelta};
use resyncd::status::{SetStatus, SourceStatus, Status};
use resyncd_testkit::{Fault, SampleSource};
use tokio::net::UnixDatagram;

use crate::support::process::{Home, Running, text};
use crate::support::{FeedLine, NAME, SET, eventually, files, resources, soon, until_verified};

/// A `[[source]]`; `more`: further lines.
pub(crate) fn table(name: &str, url: &str, more: &str) -> String {
    format!(
        "[[source]]\nname = \"{name}\"\nurl = \"{url}\"\nmirror = \"mirror-of-{name}\"\nreorder_window = \"300ms\"\n{more}\n"
    )
}

/// The configuration file of the daemon without its Sources.
pub(crate) fn head(home: &Home) -> String {
    let text = std::fs::read_to_string(&home.config).unwrap();
    text.split("[[source]]").next().unwrap().to_owned()
}

/// Replaces the Sources in the configuration file.
pub(crate) fn write_sources(home: &Home, tables: &[String]) {
    std::fs::write(&home.config, head(home) + &tables.concat()).unwrap();
}

fn source<'a>(status: &'a Status, name: &str) -> Option<&'a SourceStatus> {
    status.sources.iter().find(|source| source.name == name)
}

/// Whether a Source has sets that are all in sync, with channels that are all active.
fn is_settled(source: &SourceStatus) -> bool {
    let sets = source.sets.iter();
    let mut settled = sets.map(|set| {
        set.state == "in-sync" && set.channels.iter().all(|channel| channel.state == "active")
    });
    !source.sets.is_empty() && settled.all(|is_settled| is_settled)
}

/// Whether no poll of a set is due: one is, after a subscription was verified.
fn is_idle(set: &SetStatus) -> bool {
    let time = |text: &Option<String>| DateTime::parse_from_rfc3339(text.as_deref()?).ok();
    let (Some(last), Some(next)) = (time(&set.last_poll_at), time(&set.next_poll_at)) else {
        return false;
    };
    // As in the configuration of each.
    let (interval, lease) = (TimeDelta::minutes(15), TimeDelta::days(10));
    let verified = set.channels.iter();
    let mut verified =
        verified.filter_map(|channel| Some(time(&channel.lease_expires_at)? - lease));
    last + interval <= next && verified.all(|verified| verified <= last)
}

/// Waits until exactly these Sources are followed, and all are in sync.
pub(crate) async fn until_settled(home: &Home, names: &[&str]) -> Status {
    home.until_status("the Sources are in sync", |status| {
        let found: Vec<&str> = status.sources.iter().map(|it| it.name.as_str()).collect();
        found == names && status.sources.iter().all(is_settled)
    })
    .await
}

/// Has the daemon reload, and waits until it has done so, or has refused.
pub(crate) async fn reload(home: &Home, running: &Running) -> Status {
    let before = home.operator.status().await.configuration;
    running.signal("HUP");
    home.until_status("reloaded", |status| status.configuration != before)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_adds_changes_and_removes_sources_and_touches_no_other() {
    let start = || SampleSource::start(resources(3));
    let (kept, changed, removed, added) = (
        start().await.unwrap(),
        start().await.unwrap(),
        start().await.unwrap(),
        start().await.unwrap(),
    );
    let home = Home::new(&kept.url(), "");
    let of_kept = table("kept", &kept.url(), "");
    let of_removed = table("removed", &removed.url(), "");
    write_sources(
        &home,
        &[
            of_kept.clone(),
            table("changed", &changed.url(), ""),
            of_removed,
        ],
    );
    let running = home.run();
    until_settled(&home, &["kept", "changed", "removed"]).await;
    let before = home
        .until_status("no poll is due", |status| {
            is_idle(&status.sources[0].sets[0])
        })
        .await;
    let of_hub = |source: &SampleSource| source.hub().unwrap().counts().requested;
    let (requested, traffic) = (of_hub(&kept), kept.traffic());

    write_sources(
        &home,
        &[
            table("added", &added.url(), ""),
            of_kept,
            table("changed", &changed.url(), "lease = \"1d\""),
        ],
    );
    let status = reload(&home, &running).await;
    assert_eq!(status.configuration.error, None);
    assert!(status.configuration.restart_required.is_empty());
    let status = until_settled(&home, &["added", "kept", "changed"]).await;
    let polled =
        |status: &Status, name: &str| source(status, name).unwrap().sets[0].last_poll_at.clone();
    assert_eq!(polled(&status, "kept"), polled(&before, "kept"));
    assert_ne!(polled(&status, "changed"), polled(&before, "changed"));
    assert_eq!(of_hub(&kept), requested, "no subscription is begun again");
    assert_eq!(kept.traffic(), traffic, "nothing is requested again");

    // The removed one ends its subscriptions; what it has stays.
    let hub = removed.hub().unwrap();
    let ended = hub.wait_for_counts(|counts| counts.unsubscribed == 2);
    soon("unsubscribed", ended).await;
    assert!(hub.subscriptions().is_empty());
    let former = &status.former_sources;
    assert_eq!(former.len(), 1, "{former:?}");
    assert_eq!(
        (former[0].name.as_str(), former[0].resources),
        ("removed", 3)
    );
    let mirror = home.folder().join("mirror-of-removed");
    assert_eq!(files(&mirror).len(), 3);
    assert_eq!(former[0].mirror.as_deref(), mirror.to_str());
    assert!(before.former_sources.is_empty());
    let shown = home.run_command(&["status"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let shown = text(&shown.stdout);
    assert!(shown.contains("resyncd forget removed"), "{shown}");
    let (_, metrics) = home.operator.get("/metrics").await;
    assert!(!metrics.contains("source=\"removed\""), "{metrics}");

    // The others are followed still.
    for source in [&kept, &added, &changed] {
        until_verified(source).await;
        source.create(SET, "new.txt", "new");
        source.notify_and_publish(SET).await.unwrap();
    }
    for name in ["kept", "added", "changed"] {
        let mirror = home.folder().join(format!("mirror-of-{name}"));
        eventually("the change is mirrored", None, async || {
            let found = files(&mirror).len();
            (found == 4).then_some(()).ok_or(format!("{name}: {found}"))
        })
        .await;
    }
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn download_of_an_untouched_source_goes_on_during_a_reload() {
    let start = || SampleSource::start(resources(3));
    let (kept, removed, added) = (
        start().await.unwrap(),
        start().await.unwrap(),
        start().await.unwrap(),
    );
    let home = Home::new(&kept.url(), "");
    let patient = head(&home).replace("[http]\n", "[http]\ntimeout = \"1h\"\n");
    let of_kept = table("kept", &kept.url(), "");
    let of_removed = table("removed", &removed.url(), "");
    std::fs::write(&home.config, format!("{patient}{of_kept}{of_removed}")).unwrap();
    let running = home.run();
    until_settled(&home, &["kept", "removed"]).await;
    until_verified(&kept).await;
    let path = format!("/{SET}/res/stalled.txt");
    kept.fail(&path, Fault::Stalled, 1);
    kept.create(SET, "stalled.txt", "it takes an hour");
    kept.notify_and_publish(SET).await.unwrap();
    soon("the download begins", kept.wait_for_hits(&path, 1)).await;
    write_sources(&home, &[of_kept, table("added", &added.url(), "")]);
    reload(&home, &running).await;
    let status = home
        .until_status("the new Source is in sync", |status| {
            source(status, "added").is_some_and(is_settled)
        })
        .await;
    let set = &source(&status, "kept").unwrap().sets[0];
    assert_eq!((set.pending, set.failed), (1, 0));
    assert_eq!(kept.hits(&path), 1, "it was not requested again");
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn faulty_configuration_is_refused_and_the_former_one_stays() {
    let sample = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&sample.url(), "");
    let running = home.run();
    home.settled(&sample).await;
    let good = std::fs::read_to_string(&home.config).unwrap();
    let loaded_at = home.operator.status().await.configuration.loaded_at;

    std::fs::write(
        &home.config,
        format!("{good}colour = \"red\"\nlease = \"soon\"\n"),
    )
    .unwrap();
    let refused = reload(&home, &running).await;
    let error = refused.configuration.error.unwrap();
    assert_eq!(error.code, "configuration-refused");
    for part in ["config.toml:", "colour", "1 more"] {
        assert!(error.message.contains(part), "{part}: {}", error.message);
    }
    assert_eq!(refused.configuration.loaded_at, loaded_at);
    assert_eq!(refused.sources.len(), 1);
    assert_eq!(refused.attention[0].code, "configuration-refused");
    // The file can't be read for the address.
    let shown = home.run_command(&["status", "--address", &home.status.to_string()]);
    assert_eq!(shown.status.code(), Some(1), "it waits for a person");
    let page = text(&shown.stdout);
    assert!(
        page.starts_with("! the configuration was not reloaded"),
        "{page}"
    );
    let (_, front) = home.operator.get("/").await;
    assert!(front.contains("configuration-refused"), "{front}");
    let (_, metrics) = home.operator.get("/metrics").await;
    assert!(
        metrics.contains("\nresyncd_config_last_reload_successful 0\n"),
        "{metrics}"
    );
    sample.create(SET, "new.txt", "new");
    sample.notify_and_publish(SET).await.unwrap();
    home.until_mirrored(&sample).await;

    // Keys that are not applied are named, and the rest is.
    let of_another = table("another", &sample.url(), "");
    let other = good.replace("[http]\n", "[http]\ntimeout = \"61s\"\n") + &of_another;
    std::fs::write(&home.config, other).unwrap();
    let reloaded = reload(&home, &running).await;
    assert_eq!(reloaded.configuration.error, None);
    assert_eq!(reloaded.configuration.restart_required, ["http.timeout"]);
    assert!(reloaded.configuration.loaded_at > loaded_at);
    let status = until_settled(&home, &[NAME, "another"]).await;
    assert!(status.attention.is_empty());
    let (_, metrics) = home.operator.get("/metrics").await;
    assert!(
        metrics.contains("\nresyncd_config_last_reload_successful 1\n"),
        "{metrics}"
    );
    let shown = home.run_command(&["status"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let page = text(&shown.stdout);
    assert!(page.contains("restart to apply: http.timeout"), "{page}");
    assert_eq!(running.stop().await.code(), Some(0));
}

/// A `[[source.hook]]` that runs a script of the shell, whose `$0` is a file of the daemon's folder.
fn hook(home: &Home, name: &str, script: &str) -> String {
    let file = home.folder().join(name);
    let script = script.replace('"', "\\\"");
    let shown = file.display();
    format!(
        "[[source.hook]]\nname = \"{name}\"\ncommand = [\"/bin/sh\", \"-c\", \"{script}\", \"{shown}\"]\n"
    )
}

async fn until_file(home: &Home, name: &str) -> String {
    let file = home.folder().join(name);
    eventually("a file is written", None, async || {
        let found = std::fs::read_to_string(&file);
        found.map_err(|error| error.to_string())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_adds_changes_and_removes_hooks_and_touches_no_source() {
    let sample = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&sample.url(), "");
    let of_sample = |hooks: &str| table(NAME, &sample.url(), hooks);
    write_sources(&home, &[of_sample("")]);
    let running = home.run();
    until_settled(&home, &[NAME]).await;
    home.until_status("no poll is due", |status| {
        is_idle(&status.sources[0].sets[0])
    })
    .await;
    until_verified(&sample).await;
    let traffic = sample.traffic();

    let lines = hook(&home, "lines", "cat > \"$0.new\"; mv \"$0.new\" \"$0\"");
    // It would run for ever, and its process is in the file.
    let endless = "echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; sleep 100000";
    let endless = hook(&home, "endless", endless);
    write_sources(&home, &[of_sample(&format!("{lines}{endless}"))]);
    let status = reload(&home, &running).await;
    assert_eq!(status.configuration.error, None);
    let fed = until_file(&home, "lines").await;
    let (_, feed) = home.operator.get("/changes?since=0").await;
    assert_eq!(fed, feed);
    let pid = until_file(&home, "endless").await;
    let process = std::path::Path::new("/proc").join(pid.trim());
    let status = home
        .until_status("the hooks have run", |status| {
            let hooks = &status.sources[0].hooks;
            hooks.len() == 2 && hooks[0].behind == Some(0) && hooks[1].running
        })
        .await;
    let position = status.sources[0].hooks[0].position;
    let shown = home.run_command(&["status"]);
    let shown = text(&shown.stdout);
    assert!(
        shown.contains("hook lines (command): waiting; position"),
        "{shown}"
    );

    // The one that is removed is ended; the other one goes on where it is.
    std::fs::remove_file(home.folder().join("lines")).unwrap();
    let changed = format!("{lines}timeout = \"5m\"\n");
    write_sources(&home, &[of_sample(&changed)]);
    let status = reload(&home, &running).await;
    assert!(!process.exists(), "{pid}");
    assert_eq!(status.sources[0].hooks.len(), 1);
    let status = home
        .until_status("the hook goes on", |status| {
            let hooks = &status.sources[0].hooks;
            hooks[0].position == position && hooks[0].accepted == 0
        })
        .await;
    assert_eq!(status.sources[0].state, "ok");
    assert_eq!(sample.traffic(), traffic, "nothing is requested again");
    sample.update(SET, "r0001.txt", "news");
    sample.notify_and_publish(SET).await.unwrap();
    let fed = until_file(&home, "lines").await;
    assert!(
        fed.contains("r0001.txt") && !fed.contains("r0000.txt"),
        "{fed}"
    );

    // What runs when the daemon stops is ended, too.
    write_sources(&home, &[of_sample(&endless)]);
    std::fs::remove_file(home.folder().join("endless")).unwrap();
    reload(&home, &running).await;
    let pid = until_file(&home, "endless").await;
    assert_eq!(running.stop().await.code(), Some(0));
    let process = std::path::Path::new("/proc").join(pid.trim());
    assert!(!process.exists(), "{pid}");
}

/// Whether a process handles a signal, by proc(5).
fn handles_hangup(id: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 == 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn hangup_during_start_and_stop_does_not_kill() {
    let sample = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&sample.url(), "");
    let mut running = home.run();
    eventually("the signal is handled", None, async || {
        let handled = handles_hangup(running.id());
        handled.then_some(()).ok_or("not yet".to_owned())
    })
    .await;
    // The file has changed since it was read, or is about to be read.
    write_sources(&home, &[table("another", &sample.url(), "")]);
    running.signal("HUP");
    until_settled(&home, &["another"]).await;
    running.signal("TERM");
    let mut pace = tokio::time::interval(std::time::Duration::from_millis(1));
    for _ in 0..20 {
        // Fails once the process has ended.
        let _ = Command::new("kill")
            .args(["-HUP", &running.id().to_string()])
            .output();
        pace.tick().await;
    }
    assert_eq!(running.wait_for_exit().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_binds_the_callback_listener_once_it_is_needed() {
    let sample = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&sample.url(), "");
    write_sources(
        &home,
        &[table(NAME, &sample.url(), "notifications = false")],
    );
    let running = home.run();
    until_settled(&home, &[NAME]).await;
    assert!(sample.hub().unwrap().subscriptions().is_empty());
    write_sources(&home, &[table(NAME, &sample.url(), "")]);
    reload(&home, &running).await;
    let hub = sample.hub().unwrap();
    let subscribed = hub.wait_for_counts(|counts| counts.subscribed == 2);
    soon("subscribed", subscribed).await;
    until_settled(&home, &[NAME]).await;
    // And without: they are ended.
    write_sources(
        &home,
        &[table(NAME, &sample.url(), "notifications = false")],
    );
    reload(&home, &running).await;
    let ended = hub.wait_for_counts(|counts| counts.unsubscribed == 2);
    soon("unsubscribed", ended).await;
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_url_or_mirror_leaves_the_former_files() {
    let start = || SampleSource::start(resources(3));
    let (one, other) = (start().await.unwrap(), start().await.unwrap());
    let home = Home::new(&one.url(), "");
    write_sources(&home, &[table(NAME, &one.url(), "")]);
    let running = home.run();
    until_settled(&home, &[NAME]).await;
    let mirror = home.folder().join(format!("mirror-of-{NAME}"));
    assert_eq!(files(&mirror).len(), 3);

    write_sources(&home, &[table(NAME, &other.url(), "")]);
    reload(&home, &running).await;
    let status = home
        .until_status("the sets of the other URL", |status| {
            let sets: Vec<_> = status.sources[0].sets.iter().collect();
            let is_other = |list: &str| list.starts_with(&other.url());
            sets.len() == 1 && is_other(&sets[0].capability_list) && is_settled(&status.sources[0])
        })
        .await;
    assert_eq!(files(&mirror).len(), 6);
    let notices = &status.sources[0].notices;
    let former = notices.iter().find(|notice| notice.code == "former-sets");
    assert_eq!(former.unwrap().count, 3, "{notices:?}");
    let last = home.operator.last_change().await;
    let output = home.run_command(&["forget", NAME, "--former-sets"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("3"), "{output:?}");
    home.until_status("the files of the former set are deleted", |status| {
        status.sources[0].notices.is_empty()
    })
    .await;
    assert_eq!(files(&mirror).len(), 3);
    let lines = home.operator.changes(last).await;
    let is_forgotten = |line: &FeedLine| line.change == "deleted" && line.origin == "forget";
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines.iter().all(is_forgotten), "{lines:?}");

    // Another mirror is filled; what was moved there is not fetched again.
    let moved = home.folder().join("moved");
    let tree = other.base().authority().to_owned();
    std::fs::create_dir_all(&moved).unwrap();
    std::fs::rename(mirror.join(&tree), moved.join(&tree)).unwrap();
    let fetched = other.hits("/set1/res/r0000.txt");
    let of_moved = table(NAME, &other.url(), "").replace(&format!("mirror-of-{NAME}"), "moved");
    write_sources(&home, &[of_moved]);
    reload(&home, &running).await;
    until_settled(&home, &[NAME]).await;
    eventually("the mirror is complete", None, async || {
        let found = files(&moved).len();
        (found == 3).then_some(()).ok_or(found.to_string())
    })
    .await;
    assert_eq!(other.hits("/set1/res/r0000.txt"), fetched);
    assert!(files(&mirror).is_empty());
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_is_notified_when_a_reload_begins_and_ends() {
    let sample = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&sample.url(), "");
    let path = home.folder().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let received = async || {
        loop {
            let mut bytes = [0; 1024];
            let length = soon("notified", socket.recv(&mut bytes)).await.unwrap();
            let message = text(&bytes[..length]);
            // What `systemctl status` shows comes in between.
            if !message.starts_with("STATUS=") {
                break message;
            }
        }
    };
    let running = home.run_with([("NOTIFY_SOCKET", &path)]);
    assert_eq!(received().await.trim(), "READY=1");
    running.signal("HUP");
    let reloading = received().await;
    // sd_notify(3): both in one message.
    for part in ["RELOADING=1", "MONOTONIC_USEC="] {
        assert!(reloading.contains(part), "{part}: {reloading}");
    }
    assert_eq!(received().await.trim(), "READY=1");
    // A faulty configuration, too.
    std::fs::write(&home.config, "nothing").unwrap();
    running.signal("HUP");
    assert!(received().await.contains("RELOADING=1"));
    assert_eq!(received().await.trim(), "READY=1");
    assert_eq!(running.stop().await.code(), Some(0));
}
