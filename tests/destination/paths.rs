//! Paths of the mirrored files.

use crate::support::{Rig, SET, resources};

/// Creates and pushes resources of these names, and waits until each is mirrored. Returns their paths.
async fn create(rig: &Rig, names: &[&str]) -> Vec<String> {
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
async fn folder_and_query_have_distinct_paths() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let host = rig.source.base().authority().to_owned();
    let paths = create(&rig, &["folder/", "page.txt?x=1", "folder/page.txt"]).await;
    let expected = ["folder/%index", "page.txt%3Fx=1", "folder/page.txt"];
    for (path, expected) in paths.iter().zip(expected) {
        assert_eq!(*path, format!("{host}/set1/res/{expected}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_and_folder_of_the_same_name_are_both_mirrored() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let mut paths = create(&rig, &["a", "a/b", "a/b/c"]).await;
    paths.extend(create(&rig, &["x/y/z", "x/y", "x"]).await);
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 6, "{paths:?}");
    // Deleted and created again in reverse order.
    for name in ["a", "a/b", "a/b/c"] {
        rig.source.delete(SET, name);
    }
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("deleted", |set| {
        set.resources == 6 && set.state == "in-sync"
    })
    .await;
    create(&rig, &["a/b/c", "a/b", "a"]).await;
}

/// The daemon was killed after publishing the files and before the commit.
#[tokio::test(flavor = "multi_thread")]
async fn file_and_folder_exchanged_before_a_crash_are_mirrored_after_it() {
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let paths = create(&rig, &["a", "b/c"]).await;
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
    let former_file = mirror.join(&paths[0]);
    std::fs::remove_file(&former_file).unwrap();
    std::fs::create_dir(&former_file).unwrap();
    std::fs::write(former_file.join("d"), "new").unwrap();
    let former_folder = mirror.join(&paths[1]).parent().unwrap().to_owned();
    std::fs::remove_dir_all(&former_folder).unwrap();
    std::fs::write(&former_folder, "new").unwrap();
    rig.start_daemon().await;
    rig.until_mirrored().await;
    rig.settled().await;
    assert_eq!(rig.set().await.failed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_resource_name_escapes_the_mirror() {
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
    for path in create(&rig, &names).await {
        let file = mirror.join(&path).canonicalize().unwrap();
        assert!(file.starts_with(mirror.canonicalize().unwrap()), "{path}");
        assert!(path.split('/').all(|name| name.len() <= 255), "{path}");
    }
}
