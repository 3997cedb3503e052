//! Disks on which the mirror or the state can't be written. The tests simulate them by a limit on the length of files, which a
//! parent may set on its child at any time without privileges.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use resyncd_testkit::{DumpOptions, SampleOptions, SampleSource};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::process::{Home, Running};
use crate::support::{SET, eventually, resources, until_verified};

const MIB: usize = 1 << 20;

/// A daemon that survives failing writes: without the trap, SIGXFSZ would end it.
fn run(home: &Home) -> Running {
    home.run_in_shell("trap '' XFSZ; exec \"$0\" \"$@\"")
}

/// Limits the length of the files that a process writes, in bytes; `None` removes the limit.
fn limit(process: &Running, longest: Option<usize>) {
    let limit = Rlimit {
        current: longest.map(|longest| longest as u64),
        maximum: None,
    };
    let process = Pid::from_raw(i32::try_from(process.id()).unwrap());
    prlimit(process, Resource::Fsize, limit).unwrap();
}

async fn until_ready(home: &Home, wanted: u16) -> String {
    eventually(
        &format!("/readyz answers {wanted}"),
        None,
        async || match home.operator.get("/readyz").await {
            (status, body) if status.as_u16() == wanted => Ok(body),
            answer => Err(format!("{answer:?}")),
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror_on_a_failing_disk_waits_and_everything_else_continues() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let other = SampleSource::start(resources(3)).await.unwrap();
    let more = format!(
        "[[source]]\nname = \"other\"\nurl = \"{}\"\nmirror = \"other\"\nreorder_window = \"300ms\"",
        other.url()
    );
    let home = Home::new(&source.url(), &more);
    let running = home.run_in_shell("trap '' XFSZ; exec \"$0\" \"$@\" 2>\"${2%/*}/log\"");
    home.settled(&source).await;
    home.until_status("the other Source is in sync, too", |status| {
        let mut sets = status.sources[1].sets.iter();
        sets.any(|set| {
            let mut channels = set.channels.iter();
            set.state == "in-sync" && channels.all(|channel| channel.state == "active")
        })
    })
    .await;
    until_verified(&other).await;
    until_ready(&home, 200).await;

    // Longer than the database and its log become in this test.
    limit(&running, Some(16 * MIB));
    source.update(SET, "r0001.txt", "long ".repeat(4 * MIB));
    source.update(SET, "r0002.txt", "short");
    source.notify_and_publish(SET).await.unwrap();
    let not_ready = until_ready(&home, 503).await;
    assert!(
        not_ready.contains("\"io\"") && not_ready.contains("sample"),
        "{not_ready}"
    );
    let set = home
        .until("one task is pending", |set| {
            set.pending == 1 && set.error.is_some()
        })
        .await;
    assert_eq!((set.state.as_str(), set.failed), ("catching-up", 0));
    assert_eq!(set.error.unwrap().code, "io");
    other.update(SET, "r0001.txt", "another mirror");
    other.notify_and_publish(SET).await.unwrap();
    source.update(SET, "r0000.txt", "beside it");
    source.notify_and_publish(SET).await.unwrap();
    let mirrored = |mirror: &str, url: String, name: &str| {
        let path = format!(
            "{mirror}/{}{SET}/res/{name}",
            url.trim_start_matches("http://")
        );
        std::fs::read(home.folder().join(path)).unwrap()
    };
    eventually("all other changes are applied", None, async || {
        let found = [
            mirrored("other", other.url(), "r0001.txt"),
            mirrored("mirror", source.url(), "r0000.txt"),
            mirrored("mirror", source.url(), "r0002.txt"),
        ];
        let wanted: [&[u8]; 3] = [b"another mirror", b"beside it", b"short"];
        if found.each_ref().map(Vec::as_slice) == wanted {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    assert!(
        mirrored("mirror", source.url(), "r0001.txt").len() < MIB,
        "the old version is still there"
    );
    until_ready(&home, 503).await;

    limit(&running, None);
    home.settled(&source).await;
    until_ready(&home, 200).await;
    assert_eq!(running.stop().await.code(), Some(0));
    let log = std::fs::read_to_string(home.folder().join("log")).unwrap();
    let reports = log.matches("mirror can't be written; tasks wait").count();
    assert_eq!(reports, 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unwritable_state_answers_hubs_503_and_recovers() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = run(&home);
    // A poll would fail to write.
    home.idle(&source).await;

    limit(&running, Some(0));
    source.freeze_change_list(SET, true);
    source.update(SET, "r0001.txt", "delayed");
    let notification = source.notify(SET);
    let deliveries = source.publish(&notification).await.unwrap();
    assert_eq!(deliveries[0].status, Some(503), "{deliveries:?}");
    let not_ready = until_ready(&home, 503).await;
    assert!(not_ready.contains("\"code\":\"database\""), "{not_ready}");
    let status = home.operator.status().await;
    let attention = status.attention.first();
    let attention = attention.unwrap_or_else(|| panic!("{status:#?}"));
    assert_eq!(attention.code, "database-unwritable");
    assert!(attention.next_step.contains("state_dir"), "{attention:?}");
    assert_eq!(
        home.until("the status", |_| true).await.state,
        "in-sync",
        "reading requests are answered"
    );
    assert_eq!(home.operator.get("/healthz").await.0, 200);
    assert_eq!(home.operator.changes(0).await.len(), 3);

    limit(&running, None);
    // Nothing is to be written meanwhile: the daemon tests whether it can write.
    until_ready(&home, 200).await;
    let deliveries = source.publish(&notification).await.unwrap();
    assert!(deliveries[0].is_accepted(), "{deliveries:?}");
    home.settled(&source).await;
    let attention = home.operator.status().await.attention;
    assert!(attention.is_empty(), "{attention:?}");
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_is_not_ready_until_a_refused_delivery_would_fit() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = run(&home);
    home.settled(&source).await;
    source.freeze_change_list(SET, true);
    source.update(SET, "r0001.txt", "delayed");
    let mut long = source.notify(SET);
    let mut body = long.body.to_vec();
    body.extend_from_slice(
        format!("<!--{}-->", " ".repeat(50_000))
            .repeat(60)
            .as_bytes(),
    );
    long.body = body.into();

    let written = ["resyncd.db", "resyncd.db-wal"].map(|name| {
        let file = home.folder().join("state").join(name);
        std::fs::metadata(file).map_or(0, |file| file.len() as usize)
    });
    limit(
        &running,
        written.into_iter().max().map(|longest| longest + MIB),
    );
    let deliveries = source.publish(&long).await.unwrap();
    assert_eq!(deliveries[0].status, Some(503), "{deliveries:?}");
    assert_eq!(home.operator.get("/readyz").await.0, 503);
    // What is short can still be written.
    source.update(SET, "r0002.txt", "short");
    let short = source.notify(SET);
    let deliveries = source.publish(&short).await.unwrap();
    assert!(deliveries[0].is_accepted(), "{deliveries:?}");
    for _ in 0..3 {
        let (status, body) = home.operator.get("/readyz").await;
        assert_eq!(status, 503, "{body}");
    }

    limit(&running, None);
    until_ready(&home, 200).await;
    assert!(source.publish(&long).await.unwrap()[0].is_accepted());
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn state_writes_that_fail_during_work_lose_nothing() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = run(&home);
    home.settled(&source).await;
    source.freeze_change_list(SET, true);
    for round in 0..6 {
        for number in 0..10 {
            source.create(SET, &format!("n{round}-{number}.txt"), "new");
        }
        let notification = source.notify(SET);
        let publishing = source.publish(&notification);
        let failing = async {
            // At another moment of the work in each round.
            tokio::time::sleep(std::time::Duration::from_millis(3 * round)).await;
            limit(&running, Some(0));
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            limit(&running, None);
        };
        let (deliveries, ()) = tokio::join!(publishing, failing);
        if !deliveries.unwrap()[0].is_accepted() {
            assert!(source.publish(&notification).await.unwrap()[0].is_accepted());
        }
    }
    home.settled(&source).await;
    let set = home.until("the status", |_| true).await;
    assert!(set.gaps.is_empty(), "{:?}", set.gaps);
    let lines = home.operator.changes(0).await;
    let reports = lines.iter().filter(|line| line.uri.contains("/n"));
    assert_eq!(reports.count(), 60, "one feed line for each");
}

#[tokio::test(flavor = "multi_thread")]
async fn package_that_does_not_fit_on_disk_is_reported_and_retried() {
    let source = SampleSource::start(SampleOptions {
        resource_list: false,
        dumps: DumpOptions {
            resource_dump: true,
            ..DumpOptions::default()
        },
        ..resources(3)
    })
    .await
    .unwrap();
    // Incompressible bytes.
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    let noise: Vec<u8> = noise.take(5 * MIB).collect();
    source.create(SET, "long.bin", noise);
    source.refresh_resource_dump(SET);
    let home = Home::new(&source.url(), "");
    let running = home.run_in_shell("trap '' XFSZ; ulimit -S -f 4096; exec \"$0\" \"$@\"");
    home.until_status("the daemon answers", |_| true).await;
    let not_ready = until_ready(&home, 503).await;
    assert!(
        not_ready.contains("\"io\"") && not_ready.contains("sample"),
        "{not_ready}"
    );
    limit(&running, None);
    home.settled(&source).await;
    until_ready(&home, 200).await;
}

/// Runs only if `RESYNCD_SMALL_DISK` names a folder on a small file system: mounting one needs privileges. State and mirror are
/// both in that folder.
#[tokio::test(flavor = "multi_thread")]
async fn full_file_system_is_reported_and_retried() {
    let Some(disk) = std::env::var_os("RESYNCD_SMALL_DISK") else {
        println!("skipped: RESYNCD_SMALL_DISK names no small file system");
        return;
    };
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::below(disk.as_ref(), &source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    let ballast = home.folder().join("ballast");
    assert!(fill(&ballast) < 64 * MIB, "not a small file system");
    // Before anything is to be written.
    let (status, not_ready) = home.operator.get("/readyz").await;
    assert_eq!(status, 503, "{not_ready}");
    assert!(not_ready.contains("\"disk-full\""), "{not_ready}");
    let attention = home.operator.status().await.attention;
    let attention = attention.first().unwrap();
    assert_eq!(attention.code, "database-unwritable");
    assert!(attention.next_step.contains("free space"), "{attention:?}");
    source.freeze_change_list(SET, true);
    source.update(SET, "r0001.txt", "long ".repeat(MIB));
    let notification = source.notify(SET);
    let deliveries = source.publish(&notification).await.unwrap();
    let not_ready = until_ready(&home, 503).await;
    assert!(not_ready.contains("\"disk-full\""), "{not_ready}");
    assert_eq!(home.until("the status", |_| true).await.resources, 3);
    std::fs::remove_file(&ballast).unwrap();
    if !deliveries[0].is_accepted() {
        assert!(source.publish(&notification).await.unwrap()[0].is_accepted());
    }
    home.settled(&source).await;
    until_ready(&home, 200).await;
    let attention = home.operator.status().await.attention;
    assert!(attention.is_empty(), "{attention:?}");
    assert_eq!(running.stop().await.code(), Some(0));
}

/// Runs only if `RESYNCD_FEW_INODES` names a folder on a file system with few inodes, as `RESYNCD_SMALL_DISK`.
#[tokio::test(flavor = "multi_thread")]
async fn last_inodes_are_left_to_others() {
    let Some(disk) = std::env::var_os("RESYNCD_FEW_INODES") else {
        println!("skipped: RESYNCD_FEW_INODES names no file system with few inodes");
        return;
    };
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::below(disk.as_ref(), &source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    let free = || rustix::fs::statvfs(home.folder()).unwrap().f_favail;
    assert!((100..10_000).contains(&free()), "{} free inodes", free());
    let ballast = home.folder().join("ballast");
    std::fs::create_dir(&ballast).unwrap();
    // Less than 1% of 2,000.
    let mut number = 0;
    while free() > 15 {
        File::create(ballast.join(number.to_string())).unwrap();
        number += 1;
    }
    for number in 0..10 {
        source.create(SET, &format!("folder{number}/new.txt"), "new");
    }
    source.notify_and_publish(SET).await.unwrap();
    let not_ready = until_ready(&home, 503).await;
    assert!(not_ready.contains("\"disk-full\""), "{not_ready}");
    // Some are for the files of the database.
    assert!(free() >= 10, "{} free inodes", free());
    std::fs::remove_dir_all(&ballast).unwrap();
    home.settled(&source).await;
    until_ready(&home, 200).await;
    assert_eq!(running.stop().await.code(), Some(0));
}

/// Writes until the disk is full; returns the number of bytes written.
fn fill(path: &Path) -> usize {
    let mut file = File::create(path).unwrap();
    let (mut filled, mut piece) = (0, MIB);
    while piece > 0 && filled < 64 * MIB {
        match file.write(&vec![0; piece]) {
            Ok(written) => filled += written,
            Err(_) => piece /= 4,
        }
    }
    filled
}
