//! What waits for a person: it is shown with the next step, and ends when the person, or the Source, has done something about it.

use std::fs;
use std::time::Duration;

use reqwest::StatusCode;
use resyncd::status::{FailedResource, HeldDeletion, SetStatus};
use resyncd_mirror::Mirror;
use resyncd_testkit::{ChannelHub, Fault, SampleOptions, SampleSource};
use serde::de::DeserializeOwned;

use crate::support::{Exposition, NAME, Rig, SET, eventually, resources, time};

const PATH: &str = "/set1/res/r0001.txt";

/// A list of the status endpoint.
async fn list<T: DeserializeOwned>(rig: &Rig, path: &str) -> Vec<T> {
    let (status, body) = rig.operator.get(path).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let rows = body.lines().map(serde_json::from_str);
    rows.collect::<Result<_, _>>().unwrap()
}

/// Requests an operation; returns the answer.
async fn post(rig: &Rig, operation: &str) -> String {
    let path = format!("/sources/{NAME}/{operation}");
    let (status, body) = rig.operator.post(&path).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    body
}

/// The page of the Source.
async fn source_page(rig: &Rig) -> String {
    let path = format!("/page/sources/{NAME}");
    let (status, text) = rig.operator.get(&path).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    text
}

fn codes(set: &SetStatus) -> Vec<&str> {
    set.attention.iter().map(|it| it.code.as_str()).collect()
}

/// The value of a metric with these labels.
async fn metric(rig: &Rig, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let (_, text) = rig.operator.get("/metrics").await;
    Exposition::parse(&text).sum(name, labels)
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_deletions_keep_their_files_until_the_source_states_something_new() {
    let options = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(150)
    };
    let mut rig = Rig::start_with(options, |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
    })
    .await;
    let set = rig.settled().await;
    assert!(set.attention.is_empty(), "{set:#?}");
    for number in 0..120 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.refresh_resource_list(SET);
    let set = rig
        .until("held back", |set| set.held_deletions == 120)
        .await;
    assert_eq!(codes(&set), ["held-deletions"]);
    let attention = &set.attention[0];
    assert!(attention.message.contains("120 deletions"), "{attention:?}");
    let next_step = format!("`resyncd approve {NAME} --reject`");
    assert!(attention.next_step.contains(&next_step), "{attention:?}");
    time(&attention.since);
    let labels = [("source", NAME), ("code", "held-deletions")];
    let attentions = "resyncd_set_attention";
    assert_eq!(metric(&rig, attentions, &labels).await, Some(1.0));
    let (_, page) = rig.operator.get("/").await;
    assert!(page.contains("held-deletions"), "{page}");

    let path = format!("/held?source={NAME}&limit=100");
    let first: Vec<HeldDeletion> = list(&rig, &path).await;
    let last = first[99].id;
    let rest: Vec<HeldDeletion> = list(&rig, &format!("/held?after={last}")).await;
    assert_eq!((first.len(), rest.len()), (100, 20));
    let held = &first[0];
    assert_eq!(held.uri, rig.uri("r0000.txt"));
    assert_eq!((held.source.as_str(), held.length), (NAME, Some(64)));
    assert_eq!(held.origin, "resource-list");
    let file = rig.config.sources[0]
        .mirror
        .join(held.path.as_ref().unwrap());
    assert!(file.is_file());
    let (status, _) = rig.operator.get("/held?source=unknown").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = rig.operator.post("/sources/unknown/reject").await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    assert_eq!(post(&rig, "reject").await, r#"{"rejected":120}"#);
    let is_over = |set: &SetStatus| set.attention.is_empty() && set.state == "in-sync";
    let set = rig.until("rejected", is_over).await;
    assert_eq!(set.rejected, 120);
    let rejected: Vec<HeldDeletion> = list(&rig, "/held?rejected=true").await;
    assert_eq!(rejected.len(), 120);
    assert_eq!(rejected[0], first[0]);
    let held: Vec<HeldDeletion> = list(&rig, "/held").await;
    assert!(held.is_empty());
    let text = source_page(&rig).await;
    assert!(text.contains("120 deletions were rejected"), "{text}");
    assert!(text.contains("undo-reject?back=source"), "{text}");
    // That can be undone.
    assert_eq!(post(&rig, "undo-reject").await, r#"{"held":120}"#);
    let set = rig.until("held", |set| set.held_deletions == 120).await;
    assert_eq!((codes(&set), set.rejected), (vec!["held-deletions"], 0));
    time(&set.attention[0].since);
    let (status, _) = rig.operator.post("/sources/unknown/undo-reject").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(post(&rig, "reject").await, r#"{"rejected":120}"#);
    rig.until("rejected", is_over).await;
    // A newer list that does not name them either, also after a restart, is nothing new.
    rig.stop_daemon().await;
    rig.start_daemon().await;
    let at = rig.source.refresh_resource_list(SET);
    let is_read = |set: &SetStatus| {
        let until = set.synced_until.as_ref();
        is_over(set) && until.is_some_and(|until| time(until) >= at)
    };
    let set = rig.until("the newer list is read", is_read).await;
    assert_eq!((set.resources, set.held_deletions), (150, 0));
    assert!(file.is_file());

    // A resource that is listed again is as any other.
    rig.source.create(SET, "r0000.txt", "listed again");
    rig.source.refresh_resource_list(SET);
    rig.until_holds("r0000.txt", "listed again").await;
    rig.source.delete(SET, "r0000.txt");
    rig.source.refresh_resource_list(SET);
    rig.until("deleted", |set| set.resources == 149).await;
    assert!(!file.exists());
    assert!(rig.mirrored("r0001.txt").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_resources_are_listed_and_tried_again() {
    let options = SampleOptions {
        // No subscription causes another poll, which would retry the resource.
        hub: ChannelHub::None,
        ..resources(10)
    };
    let source = SampleSource::start(options).await.unwrap();
    source.fail(PATH, Fault::Status(404), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig
        .until("failed", |set| {
            !set.attention.is_empty() && set.resources == 9 && set.next_poll_at.is_some()
        })
        .await;
    assert_eq!(codes(&set), ["failed-resources"]);
    // The poll has tried it again, and that has failed, too.
    rig.until("failed again", |set| set.failed == 1).await;
    let next_step = &set.attention[0].next_step;
    assert!(next_step.contains("`resyncd failed sample`"), "{next_step}");
    for path in ["/failed".to_owned(), format!("/failed?source={NAME}")] {
        let rows: Vec<FailedResource> = list(&rig, &path).await;
        assert_eq!(rows.len(), 1, "{rows:?}");
        let row = &rows[0];
        assert_eq!(
            (row.uri.clone(), row.source.as_str()),
            (rig.uri("r0001.txt"), NAME)
        );
        assert_eq!(
            (row.change.as_str(), row.code.as_str()),
            ("created", "not-found")
        );
        assert_eq!(row.set, set.capability_list);
        assert!(row.message.contains("404"), "{row:?}");
        assert_eq!(row.since, set.attention[0].since);
        assert!(row.at.is_some() && row.next_try_at.is_some(), "{row:?}");
        let after = format!("/failed?after={}", row.id);
        assert!(list::<FailedResource>(&rig, &after).await.is_empty());
    }
    let (status, _) = rig.operator.get("/failed?source=unknown").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = rig.operator.post("/sources/unknown/retry").await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    // It is tried at once, and fails again: that is the same attention.
    let hits = rig.source.hits(PATH);
    assert_eq!(post(&rig, "retry").await, r#"{"retried":1}"#);
    rig.source.wait_for_hits(PATH, hits + 1).await;
    let again = rig.until("failed", |set| set.failed == 1).await;
    assert_eq!(again.attention[0].since, set.attention[0].since);

    rig.source.heal(PATH);
    assert_eq!(post(&rig, "retry").await, r#"{"retried":1}"#);
    let set = rig.settled().await;
    assert!(set.attention.is_empty(), "{set:#?}");
    assert!(list::<FailedResource>(&rig, "/failed").await.is_empty());
    assert_eq!(post(&rig, "retry").await, r#"{"retried":0}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror_that_cannot_be_opened_is_shown_at_its_source() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let rig = Rig::follow(source, |config| {
        // As where a disk is not mounted: the folder can't be created.
        let disk = config.sources[0].mirror.with_file_name("disk");
        std::fs::write(&disk, "a file in place of the folder").unwrap();
        config.sources[0].mirror = disk.join("mirror").into();
    })
    .await;
    let shown = async |wanted: usize| {
        let what = "the attention of the Source";
        eventually(what, Some(rig.wakes()), async || {
            let source = rig.operator.status().await.sources.remove(0);
            if source.attention.len() == wanted {
                Ok(source)
            } else {
                Err(format!("{source:#?}"))
            }
        })
        .await
    };
    let source = shown(1).await;
    let attention = &source.attention[0];
    assert_eq!(
        (attention.code.as_str(), source.state.as_str()),
        ("mirror-unusable", "failing")
    );
    assert!(attention.message.contains(&source.mirror), "{attention:?}");
    assert!(attention.next_step.contains("mounted"), "{attention:?}");
    let labels = [("source", NAME), ("code", "mirror-unusable")];
    let value = metric(&rig, "resyncd_source_attention", &labels).await;
    assert_eq!(value, Some(1.0));

    // Each failed attempt to open it is the same attention.
    std::fs::remove_file(rig.config.sources[0].mirror.parent().unwrap()).unwrap();
    rig.settled().await;
    shown(0).await;
}

/// As a disk that is not mounted: the folder that it is mounted on is there, empty, and can be written.
#[tokio::test(flavor = "multi_thread")]
async fn mirror_whose_disk_is_not_mounted_is_not_filled_and_nothing_is_in_sync() {
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    rig.stop_daemon().await;
    let mirror = rig.config.sources[0].mirror.clone();
    let elsewhere = mirror.with_file_name("elsewhere");
    fs::rename(&mirror, &elsewhere).unwrap();
    fs::create_dir(&mirror).unwrap();
    rig.source.update(SET, "r0000.txt", "new");
    rig.start_daemon().await;
    let source = eventually("the mirror is missed", None, async || {
        let source = rig.operator.status().await.sources.remove(0);
        match source.state.as_str() {
            "failing" => Ok(source),
            _ => Err(format!("{source:?}")),
        }
    })
    .await;
    assert_eq!(source.error.unwrap().code, "mirror-missing");
    let attention = &source.attention[0];
    assert_eq!(attention.code, "mirror-unusable");
    assert!(
        attention.message.contains("[mirror-missing]") && attention.next_step.contains("mount"),
        "{attention:?}"
    );
    assert!(source.sets.iter().all(|set| set.state != "in-sync"));
    assert_eq!(
        fs::read_dir(&mirror).unwrap().count(),
        0,
        "nothing is written"
    );

    // Another mirror is not it either.
    let other = Mirror::open(&mirror).unwrap();
    drop(other);
    let other = fs::read(mirror.join(".resyncd/id")).unwrap();
    rig.stop_daemon().await;
    rig.start_daemon().await;
    eventually("the other mirror is rejected", None, async || {
        let source = rig.operator.status().await.sources.remove(0);
        match source.error {
            Some(error) if error.message.contains("another mirror") => Ok(()),
            error => Err(format!("{error:?}")),
        }
    })
    .await;
    assert_eq!(fs::read(mirror.join(".resyncd/id")).unwrap(), other);

    // It goes on by itself once the disk is mounted.
    fs::remove_dir_all(&mirror).unwrap();
    fs::rename(&elsewhere, &mirror).unwrap();
    rig.until_holds("r0000.txt", "new").await;
    rig.settled().await;
}

/// What a file system shows that does not distinguish names by case: what is in the mirror is found by another name, too.
#[tokio::test(flavor = "multi_thread")]
async fn mirror_where_two_resources_could_share_a_file_is_not_used() {
    for (folder, name) in [(".RESYNCD", "lock"), (".resyncd", "LOCK")] {
        let mut rig = Rig::start(resources(3)).await;
        rig.settled().await;
        rig.stop_daemon().await;
        let folder = rig.config.sources[0].mirror.join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), "").unwrap();
        rig.source.update(SET, "r0000.txt", "new");
        rig.start_daemon().await;
        let source = eventually("the mirror is refused", None, async || {
            let source = rig.operator.status().await.sources.remove(0);
            match source.state.as_str() {
                "failing" => Ok(source),
                _ => Err(format!("{source:?}")),
            }
        })
        .await;
        assert_eq!(source.error.unwrap().code, "mirror-case-insensitive");
        let attention = &source.attention[0];
        assert_eq!(attention.code, "mirror-unusable");
        assert!(attention.next_step.contains("ext4"), "{attention:?}");
        assert!(source.sets.iter().all(|set| set.state != "in-sync"));

        // It goes on by itself on another file system.
        fs::remove_file(folder.join(name)).unwrap();
        rig.until_holds("r0000.txt", "new").await;
        rig.settled().await;
    }
}

/// The request that finds it out is made as soon as the listeners are up.
#[tokio::test(flavor = "multi_thread")]
async fn public_url_that_leads_nowhere_waits_for_a_person_and_stops_nothing() {
    let rig = Rig::start_with(resources(3), |config| {
        // A name that no DNS has (RFC 6761).
        config.callback.public_url = "http://destination.invalid/hooks/".parse().ok();
    })
    .await;
    let attention = eventually("the attention", None, async || {
        let status = rig.operator.status().await;
        status
            .attention
            .first()
            .cloned()
            .ok_or("none yet".to_owned())
    })
    .await;
    assert_eq!(attention.code, "public-url-unreachable");
    let message = &attention.message;
    assert!(
        message.contains("http://destination.invalid/hooks/"),
        "{message}"
    );
    assert!(
        attention.next_step.contains("reverse proxy"),
        "{attention:?}"
    );
    let (_, page) = rig.operator.get("/").await;
    assert!(page.contains("public-url-unreachable"), "{page}");
    rig.until("in sync by polling", |set| set.state == "in-sync")
        .await;
    rig.until_mirrored().await;
}

/// Nobody but this machine could use it: it is that of a test.
#[tokio::test(flavor = "multi_thread")]
async fn public_url_of_this_machine_is_not_tried() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let status = rig.operator.status().await;
    assert!(status.attention.is_empty(), "{:?}", status.attention);
    assert_eq!(status.refused.get("unknown-callback"), None);
}
