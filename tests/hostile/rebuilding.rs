//! A database that is lost or locked, and a mirror that two daemons are configured for.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use resyncd_testkit::{SampleOptions, SampleSource};
use rusqlite::Connection;

use crate::support::process::Home;
use crate::support::{Rig, SET, eventually, files, path_of, resources};

/// How often each resource was fetched.
fn fetched(rig: &Rig, count: usize) -> Vec<u64> {
    let hits = |number| rig.source.hits(&format!("/set1/res/r{number:04}.txt"));
    (0..count).map(hits).collect()
}

fn file_of(rig: &Rig, name: &str) -> PathBuf {
    let path = path_of(&rig.source.resource_uri(SET, name));
    rig.config.sources[0].mirror.join(path)
}

/// Checks that after the loss of the database only three altered files are fetched again.
async fn check_lost(options: SampleOptions) {
    const COUNT: usize = 20;
    let mut rig = Rig::start(SampleOptions {
        resources_per_set: COUNT,
        ..options
    })
    .await;
    rig.settled().await;
    rig.stop_daemon().await;
    let before = fetched(&rig, COUNT);
    let state = rig.config.state_dir.clone();
    fs::remove_dir_all(state).unwrap();
    let altered = file_of(&rig, "r0003.txt");
    let mut bytes = fs::read(&altered).unwrap();
    bytes[0] ^= 1;
    fs::write(&altered, bytes).unwrap();
    fs::write(file_of(&rig, "r0004.txt"), "cut").unwrap();
    fs::remove_file(file_of(&rig, "r0005.txt")).unwrap();

    rig.start_daemon().await;
    rig.settled().await;
    let after = fetched(&rig, COUNT);
    for number in 0..COUNT {
        let more = u64::from((3..=5).contains(&number));
        assert_eq!(after[number], before[number] + more, "r{number:04}.txt");
    }
    // The feed starts again, too.
    let lines = rig.operator.changes(0).await;
    assert_eq!(lines.len(), COUNT);
    let known = rig.operator.resource(&rig.uri("r0000.txt")).await.unwrap();
    assert!(known["length"].as_u64() > Some(0), "{known}");
    assert!(
        known["hash"].as_str().unwrap().contains("sha-256:"),
        "{known}"
    );
    // Notifications are applied as before.
    rig.source.update(SET, "r0000.txt", "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0000.txt", "pushed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn intact_files_are_not_fetched_again_when_the_database_is_lost() {
    check_lost(SampleOptions::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_digests_length_and_time_identify_an_intact_file() {
    check_lost(SampleOptions {
        digests: false,
        ..SampleOptions::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn symlink_is_not_adopted_as_an_intact_file() {
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    rig.stop_daemon().await;
    let before = fetched(&rig, 3);
    fs::remove_dir_all(&rig.config.state_dir).unwrap();
    let (file, outside) = (
        file_of(&rig, "r0001.txt"),
        rig.folder.path().join("outside"),
    );
    fs::rename(&file, &outside).unwrap();
    symlink(&outside, &file).unwrap();
    let bytes = fs::read(&outside).unwrap();
    rig.start_daemon().await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 3
    })
    .await;
    assert_eq!(fetched(&rig, 3), [before[0], before[1] + 1, before[2]]);
    assert!(file.is_symlink());
    assert_eq!(fs::read(&outside).unwrap(), bytes);
    let known = rig.operator.resource(&rig.uri("r0001.txt")).await.unwrap();
    assert!(known["path"].as_str().unwrap().contains("%made"), "{known}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_daemons_never_share_a_mirror() {
    let source = SampleSource::start(resources(5)).await.unwrap();
    let (first, second) = (Home::new(&source.url(), ""), Home::new(&source.url(), ""));
    let text = fs::read_to_string(&second.config).unwrap();
    let shared = format!("mirror = \"{}\"", first.mirror.display());
    fs::write(&second.config, text.replace("mirror = \"mirror\"", &shared)).unwrap();
    let running = first.run();
    first.settled(&source).await;
    let before = files(&first.mirror);
    let _second = second.run();
    let status = second
        .until_status("the second daemon is rejected", |status| {
            status.sources[0].state == "failing"
        })
        .await;
    let error = status.sources[0].error.clone().unwrap();
    assert_eq!(error.code, "mirror-locked", "{error:?}");
    source.update(SET, "r0001.txt", "by the first");
    source.notify_and_publish(SET).await.unwrap();
    first.settled(&source).await;
    assert_eq!(files(&first.mirror).len(), before.len());
    assert!(
        status.sources[0].sets.is_empty(),
        "the second daemon has read nothing"
    );
    source.refresh_resource_list(SET);
    let hits = source.hits("/set1/res/r0001.txt");

    assert_eq!(running.stop().await.code(), Some(0));
    second
        .until("the second daemon takes over", |set| {
            set.state == "in-sync" && set.resources == 5
        })
        .await;
    assert_eq!(
        source.hits("/set1/res/r0001.txt"),
        hits,
        "the intact file is adopted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn database_locked_by_another_process_is_retried_and_hubs_get_503() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let holder = Connection::open(rig.config.state_dir.join("resyncd.db")).unwrap();
    holder.busy_timeout(Duration::from_secs(60)).unwrap();
    rig.source.freeze_change_list(SET, true);
    // A short lock, as by a backup, delays the delivery, but does not fail it.
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    rig.source.update(SET, "r0000.txt", "in time");
    let notification = rig.source.notify(SET);
    let releasing = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        holder.execute_batch("ROLLBACK").unwrap();
    };
    let (deliveries, ()) = tokio::join!(rig.source.publish(&notification), releasing);
    assert!(deliveries.unwrap()[0].is_accepted());
    rig.until_holds("r0000.txt", "in time").await;
    rig.until("nothing pending", |set| set.pending == 0).await;

    rig.hub().configure(|hub| hub.attempts = 1);
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    rig.source.update(SET, "r0001.txt", "late");
    let notification = rig.source.notify(SET);
    // A long lock fails the delivery; the hub will send it again.
    let deliveries = rig.source.publish(&notification).await.unwrap();
    assert_eq!(deliveries[0].status, Some(503), "{deliveries:?}");
    assert_eq!(
        rig.set().await.resources,
        3,
        "reading requests are answered"
    );
    holder.execute_batch("ROLLBACK").unwrap();
    eventually("ready again", None, async || {
        match rig.operator.get("/readyz").await {
            (status, _) if status == 200 => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    })
    .await;
    assert!(rig.source.publish(&notification).await.unwrap()[0].is_accepted());
    rig.until_holds("r0001.txt", "late").await;
}
