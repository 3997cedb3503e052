//! `sync`: once through, and out.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Output, Stdio};

use resyncd::demo::{DumpOptions, Fault, SampleOptions, SampleSource};
use resyncd::protocol::Capability;

use crate::process::{Home, command, ended, signal, text};
use crate::support::{SET, files, resources, soon};

#[track_caller]
fn assert_ended(told: &Output, status: i32, parts: &[&str]) {
    assert_eq!(told.status.code(), Some(status), "{told:?}");
    let said = text(&told.stdout);
    for part in parts {
        assert!(said.contains(part), "{part}: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_makes_the_baseline_then_catches_up_and_subscribes_to_nothing() {
    let options = SampleOptions {
        sets: vec!["set1".into(), "set2".into()],
        entries_per_list: 20,
        ..resources(50)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    let told = home.tell(&["sync"]);
    assert_ended(
        &told,
        0,
        &["set1/capabilitylist.xml: in-sync", "50 resources"],
    );
    home.assert_mirrored(&source, &["set1", "set2"]);
    for output in [&told.stdout, &told.stderr] {
        assert!(!output.contains(&0x1b), "{told:?}");
    }

    source.update("set1", "r0001.txt", "another text");
    source.create("set2", "new.txt", "new");
    source.delete("set2", "r0000.txt");
    assert_ended(&home.tell(&["sync", "sample"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &["set1", "set2"]);
    assert!(source.hub().unwrap().subscriptions().is_empty());
    let nobody = home.tell(&["sync", "nobody"]);
    assert_eq!(nobody.status.code(), Some(2), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_packages_all_it_has_is_synced_from_its_dumps() {
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
    let told = home.tell(&["sync"]);
    assert_ended(&told, 0, &["in-sync", "50 resources"]);
    home.assert_mirrored(&source, &["set1"]);
    source.update(SET, "r0001.txt", "another text");
    source.create(SET, "new.txt", "new");
    source.delete(SET, "r0000.txt");
    source.pack_changes(SET);
    assert_ended(&home.tell(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &["set1"]);
    for name in ["r0001.txt", "new.txt"] {
        assert_eq!(source.hits(&format!("/set1/res/{name}")), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_refuses_beside_a_daemon_and_leaves_the_daemons_subscriptions() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    let told = home.tell(&["sync"]);
    assert_ended(&told, 1, &[]);
    let said = text(&told.stderr);
    assert!(
        said.contains("another resyncd is running") && said.contains("state-locked"),
        "{said}"
    );

    assert_eq!(running.stop().await.code(), Some(0));
    source.create(SET, "later.txt", "later");
    assert_ended(&home.tell(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &[SET]);
    assert_eq!(source.hub().unwrap().subscriptions().len(), 2);
    // The daemon finds its channels as it left them.
    let running = home.run();
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_the_inbox_is_worked_off_and_a_gap_is_told() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    // The daemon holds the notification longer than it lives.
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
    let told = home.tell(&["sync"]);
    assert_ended(&told, 1, &[": gap,", "[missing-notification]"]);
    let found = files(&home.mirror);
    assert!(found.keys().any(|path| path.ends_with("held.txt")));
    source.freeze_change_list(SET, false);
    assert_ended(&home.tell(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &[SET]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_list_closes_a_gap_that_the_change_list_does_not_reach() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    source.freeze_change_list(SET, true);
    source.create(SET, "lost.txt", "lost");
    source.notify(SET);
    source.create(SET, "next.txt", "next");
    source.notify_and_publish(SET).await.unwrap();
    home.until("a gap", |set| set.state == "gap").await;
    assert_eq!(running.stop().await.code(), Some(0));
    source.refresh_resource_list(SET);
    assert_ended(&home.tell(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &[SET]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sources_trouble_keeps_no_other_from_being_synced() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let more = format!(
        "[[source]]\nname = \"gone\"\nurl = \"http://{address}/\"\nmirror = \"mirror-of-gone\""
    );
    let home = Home::new(&source.url(), &more);
    let told = home.tell(&["sync"]);
    assert_ended(&told, 1, &["in-sync", "gone: failing", "[connect]"]);
    home.assert_mirrored(&source, &[SET]);
    assert_ended(&home.tell(&["sync", "sample"]), 0, &["in-sync"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_entry_point_the_known_sets_are_synced_and_their_channels_left_alone() {
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
    let told = home.tell(&["sync"]);
    assert_ended(&told, 1, &["sample: failing", ": in-sync"]);
    home.assert_mirrored(&source, &[SET]);
    // That a channel is offered no more is for the daemon to act on: it can answer the hub.
    let counts = source.hub().unwrap().counts();
    assert_eq!((counts.requested, counts.subscribed), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_that_cannot_be_had_are_told() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    source.fail("/set1/res/r0001.txt", Fault::Status(404), usize::MAX);
    let home = Home::new(&source.url(), "");
    let told = home.tell(&["sync"]);
    let parts = [
        "1 resources can't be fetched [resources-failed]",
        "r0001.txt",
        "[not-found]",
    ];
    assert_ended(&told, 1, &parts);
    assert_eq!(files(&home.mirror).len(), 2);
    assert_eq!(
        source.hits("/set1/res/r0001.txt"),
        3,
        "the tries of one run"
    );
    source.heal("/set1/res/r0001.txt");
    assert_ended(&home.tell(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &[SET]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_had_in_an_hour_is_left_to_another_run() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let later = Fault::Unavailable { retry_after: 3600 };
    source.fail("/set1/res/r0001.txt", later, 1);
    let home = Home::new(&source.url(), "");
    let told = home.tell(&["sync"]);
    assert_ended(&told, 1, &["1 changes are not applied yet [pending]"]);
    assert_eq!(files(&home.mirror).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_deletions_are_held_back_and_told() {
    let source = SampleSource::start(resources(150)).await.unwrap();
    let home = Home::new(&source.url(), "");
    assert_ended(&home.tell(&["sync"]), 0, &["in-sync"]);
    for number in 0..120 {
        source.delete(SET, &format!("r{number:04}.txt"));
    }
    let told = home.tell(&["sync"]);
    assert_ended(
        &told,
        1,
        &["120 deletions are held back", "[deletions-held]"],
    );
    assert_eq!(files(&home.mirror).len(), 150);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_it_keeps_what_is_finished() {
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
            "the last one is under way",
            source.wait_for_hits("/set1/res/r0002.txt", before + 1),
        )
        .await;
        crate::support::eventually("the others are there", None, async || {
            match files(&home.mirror).len() {
                2 => Ok(()),
                other => Err(other.to_string()),
            }
        })
        .await;
        signal(&child, name);
        assert_eq!(ended(&mut child).await.code(), Some(1), "SIG{name}");
        let told = child.wait_with_output().unwrap();
        assert!(text(&told.stdout).contains("interrupted"), "{told:?}");
    }
    assert_ended(&home.tell(&["sync"]), 0, &["in-sync"]);
    home.assert_mirrored(&source, &[SET]);
    assert_eq!(source.hits("/set1/res/r0000.txt"), 1);
}
