//! Where the files are.

use crate::support::{Rig, SET, resources};

/// Creates resources of these names, pushes them, and waits until each is known; where each is kept.
async fn kept(rig: &Rig, names: &[&str]) -> Vec<String> {
    let since = rig.operator.last_change().await;
    for name in names {
        rig.source.create(SET, name, format!("content of {name}"));
    }
    rig.source.notify_and_publish(SET).await.unwrap();
    let mut paths = Vec::new();
    for name in names {
        let line = rig.until_in_feed(since, name).await;
        let path = line.path.unwrap();
        let known = rig.operator.resource(&rig.uri(name)).await.unwrap();
        assert_eq!(known["path"].as_str(), Some(path.as_str()));
        let bytes = std::fs::read(rig.config.sources[0].mirror.join(&path)).unwrap();
        assert_eq!(bytes, format!("content of {name}").into_bytes(), "{path}");
        paths.push(path);
    }
    paths
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_and_query_have_names_of_their_own() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let host = rig.source.base().authority().to_owned();
    let paths = kept(&rig, &["folder/", "page.txt?x=1", "folder/page.txt"]).await;
    let expected = ["folder/%index", "page.txt%3Fx=1", "folder/page.txt"];
    for (path, expected) in paths.iter().zip(expected) {
        assert_eq!(*path, format!("{host}/set1/res/{expected}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_and_folder_of_one_name_are_both_kept() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let mut paths = kept(&rig, &["a", "a/b", "a/b/c"]).await;
    paths.extend(kept(&rig, &["x/y/z", "x/y", "x"]).await);
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 6, "{paths:?}");
    // Deleted and created anew, in the other order.
    for name in ["a", "a/b", "a/b/c"] {
        rig.source.delete(SET, name);
    }
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("deleted", |set| {
        set.resources == 6 && set.state == "in-sync"
    })
    .await;
    kept(&rig, &["a/b/c", "a/b", "a"]).await;
}

/// The daemon was killed when the files were in their places, and the database did not know yet.
#[tokio::test(flavor = "multi_thread")]
async fn file_that_made_way_before_a_crash_is_not_in_the_way_after_it() {
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let paths = kept(&rig, &["a", "b/c"]).await;
    rig.stop_daemon().await;
    for (name, bytes) in [
        ("a", None),
        ("b/c", None),
        ("a/d", Some("new")),
        ("b", Some("new")),
    ] {
        match bytes {
            Some(bytes) => drop(rig.source.create(SET, name, bytes)),
            None => drop(rig.source.delete(SET, name)),
        }
    }
    let mirror = rig.config.sources[0].mirror.clone();
    let file_that_was = mirror.join(&paths[0]);
    std::fs::remove_file(&file_that_was).unwrap();
    std::fs::create_dir(&file_that_was).unwrap();
    std::fs::write(file_that_was.join("d"), "new").unwrap();
    let folder_that_was = mirror.join(&paths[1]).parent().unwrap().to_owned();
    std::fs::remove_dir_all(&folder_that_was).unwrap();
    std::fs::write(&folder_that_was, "new").unwrap();
    rig.start_daemon().await;
    rig.until_mirrored().await;
    rig.settled().await;
    assert_eq!(rig.set().await.failed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_name_leaves_the_mirror() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let long = format!("{}.txt", "n".repeat(300));
    let names = [
        "..%2F..%2Fescape.txt",
        "%2e%2e%5cback.txt",
        ".resyncd",
        "a%00b",
        long.as_str(),
    ];
    let mirror = rig.config.sources[0].mirror.clone();
    for path in kept(&rig, &names).await {
        let file = mirror.join(&path).canonicalize().unwrap();
        assert!(file.starts_with(mirror.canonicalize().unwrap()), "{path}");
        assert!(path.split('/').all(|name| name.len() <= 255), "{path}");
    }
}
