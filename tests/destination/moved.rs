//! The folder of a mirror that is moved, replaced, deleted or unmounted while the daemon runs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Rig, SET, eventually, files, resources};

async fn until_ready(rig: &Rig, wanted: u16) {
    eventually(
        &format!("/readyz answers {wanted}"),
        Some(rig.wakes()),
        async || match rig.operator.get("/readyz").await {
            (status, _) if status.as_u16() == wanted => Ok(()),
            answer => Err(format!("{answer:?}")),
        },
    )
    .await;
}

/// Waits until the Source fails because its mirror is missing.
async fn until_missing(rig: &Rig) {
    let failing = eventually("the mirror is missed", Some(rig.wakes()), async || {
        let source = rig.operator.status().await.sources.remove(0);
        match source.state.as_str() {
            "failing" => Ok(source),
            _ => Err(format!("{source:#?}")),
        }
    })
    .await;
    assert_eq!(failing.error.unwrap().code, "mirror-missing");
    let attention = &failing.attention[0];
    assert_eq!(attention.code, "mirror-unusable");
    assert!(
        attention.message.contains("[mirror-missing]"),
        "{attention:?}"
    );
    assert!(failing.sets.iter().all(|set| set.state != "in-sync"));
    until_ready(rig, 503).await;
}

/// Puts an empty folder, or nothing, in the place of the mirror, and has the Source change a resource.
async fn moved_mirror_is_not_written(is_replaced: bool) {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let mirror = &rig.config.sources[0].mirror;
    let elsewhere = mirror.with_file_name("elsewhere");
    fs::rename(mirror, &elsewhere).unwrap();
    if is_replaced {
        fs::create_dir(mirror).unwrap();
    }
    let before = files(&elsewhere);
    rig.source.update(SET, "r0000.txt", "new");
    rig.source.notify_and_publish(SET).await.unwrap();
    until_missing(&rig).await;
    assert!(files(&elsewhere) == before, "nothing is written");
    if is_replaced {
        let entries = fs::read_dir(mirror).unwrap().count();
        assert_eq!(entries, 0, "nothing is written");
        fs::remove_dir(mirror).unwrap();
    }
    assert!(!mirror.exists());

    fs::rename(&elsewhere, mirror).unwrap();
    rig.until_holds("r0000.txt", "new").await;
    rig.settled().await;
    until_ready(&rig, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror_that_is_moved_away_is_missing_until_it_is_back() {
    moved_mirror_is_not_written(false).await;
}

/// As by `umount --lazy`: the empty folder below it appears.
#[tokio::test(flavor = "multi_thread")]
async fn mirror_that_an_empty_folder_replaces_is_missing_until_it_is_back() {
    moved_mirror_is_not_written(true).await;
}

/// Nothing is to be written meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn mirror_that_loses_its_id_is_missing_until_it_is_back() {
    let rig = Rig::start_with(resources(3), |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
    })
    .await;
    rig.settled().await;
    let id = rig.config.sources[0].mirror.join(".resyncd/id");
    let elsewhere = id.with_file_name("elsewhere");
    fs::rename(&id, &elsewhere).unwrap();
    until_missing(&rig).await;
    fs::rename(&elsewhere, &id).unwrap();
    rig.settled().await;
    until_ready(&rig, 200).await;
}

fn copy(from: &Path, to: &Path) {
    let copying = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copying.unwrap().success());
}

/// As one that is moved to another disk: the daemon must not go on with the deleted folder that it has open.
#[tokio::test(flavor = "multi_thread")]
async fn copy_in_place_of_a_deleted_mirror_is_used() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let mirror = &rig.config.sources[0].mirror;
    let other = mirror.with_file_name("copy");
    copy(mirror, &other);
    fs::remove_dir_all(mirror).unwrap();
    fs::rename(&other, mirror).unwrap();
    rig.source.create(SET, "new.txt", "new");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("new.txt", "new").await;
    rig.settled().await;
    until_ready(&rig, 200).await;
}
