//! Baselines from Resource Lists.

use std::time::SystemTime;

use resourcesync::{Capability, Entry, Head, Root, SourceTime, write_document};
use resyncd::clock;
use resyncd::config::Filter;
use resyncd_testkit::{SampleOptions, SampleSource};

use crate::support::{NAME, Rig, SET, client, eventually, files, path_of, resources};

#[tokio::test(flavor = "multi_thread")]
async fn baseline_mirrors_a_thousand_resources_with_times_and_sizes() {
    let at = SourceTime::from_micros(1_767_398_400_123_456);
    let options = SampleOptions {
        start: Some(at),
        resource_size: 1024,
        ..resources(1000)
    };
    let rig = Rig::start(options).await;
    let set = rig
        .until("in sync", |set| {
            set.state == "in-sync" && set.resources == 1000
        })
        .await;
    rig.assert_mirrored();
    assert_eq!(set.bytes, 1000 * 1024);
    assert_eq!((set.pending, set.failed, set.gaps.len()), (0, 0, 0));
    assert_eq!(
        set.synced_until.as_deref(),
        Some("2026-01-03T00:00:00.123456Z")
    );
    let lastmod = SystemTime::from(at.to_datetime());
    let mirror = &rig.config.sources[0].mirror;
    for path in files(mirror).keys() {
        let modified = std::fs::metadata(mirror.join(path))
            .unwrap()
            .modified()
            .unwrap();
        assert_eq!(modified, lastmod, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_part_of_a_resource_list_index_is_read() {
    let rig = Rig::start(SampleOptions {
        entries_per_list: 10,
        ..resources(35)
    })
    .await;
    assert_eq!(rig.settled().await.resources, 35);
    assert_eq!(rig.source.hits("/set1/resourcelist-0003.xml"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_set_of_a_source_is_followed() {
    let sets = vec!["set1".to_owned(), "set2".to_owned()];
    let rig = Rig::start(SampleOptions {
        sets,
        ..resources(5)
    })
    .await;
    rig.settled().await;
    let other = rig
        .until_named("set2", "in sync", |set| set.state == "in-sync")
        .await;
    assert_eq!(other.resources, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_configured_sets_and_resources_are_mirrored() {
    let sets = vec!["set1".to_owned(), "set2".to_owned()];
    let mut rig = Rig::start_with(
        SampleOptions {
            sets,
            ..resources(5)
        },
        |config| {
            let source = &mut config.sources[0];
            source.sets = vec![source.url.join("/set2/capabilitylist.xml").unwrap()];
            let exclude = ["*/r0001.txt", "*/r0002.txt"];
            source.filter = resyncd::config::Filter::matching::<&str>(&[], &exclude).unwrap();
        },
    )
    .await;
    rig.sets = vec!["set2".to_owned()];
    let set = rig
        .until_named("set2", "in sync", |set| set.state == "in-sync")
        .await;
    assert_eq!(set.resources, 3);
    assert!(rig.set_named("set1").await.is_none());
    let found = files(&rig.config.sources[0].mirror);
    assert_eq!(found.len(), 3);
    assert!(!found.contains_key(&path_of(&rig.source.resource_uri("set2", "r0001.txt"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_without_digests_are_mirrored() {
    let rig = Rig::start(SampleOptions {
        digests: false,
        ..resources(5)
    })
    .await;
    rig.settled().await;
    rig.source.update("set1", "r0001.txt", "new");
    rig.source.notify_and_publish("set1").await.unwrap();
    rig.until_holds("r0001.txt", "new").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn source_is_discovered_from_any_entry_point() {
    for path in [
        "/",
        "/.well-known/resourcesync",
        "/set1/capabilitylist.xml",
        "/set1/resourcelist.xml",
        "/set1/changelist.xml",
    ] {
        let rig = Rig::start_with(resources(2), |config| {
            let url = &mut config.sources[0].url;
            *url = url.join(path).unwrap();
        })
        .await;
        assert_eq!(rig.settled().await.resources, 2, "{path}");
        rig.assert_mirrored();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn error_of_a_source_describes_what_it_serves_in_place_of_a_document() {
    for (body, what, advice) in [
        (
            "<html><title>Log in</title>",
            "an HTML page in place of a document, with the title \"Log in\"",
            "[source.auth]",
        ),
        ("[1, 2]", "JSON in place of a document", "an API"),
        (
            "",
            "an empty body in place of a document",
            "ask the operator",
        ),
    ] {
        for (path, is_named) in [
            ("/.well-known/resourcesync", false),
            ("/set1/capabilitylist.xml", false),
            ("/set1/capabilitylist.xml", true),
        ] {
            let source = SampleSource::start(resources(1)).await.unwrap();
            let uri = source.base().join(path).unwrap();
            source.put_document(path, "application/xml", body);
            let rig = Rig::follow(source, |config| {
                let source = &mut config.sources[0];
                if is_named {
                    source.sets = vec![uri.clone()];
                } else {
                    source.url = uri.clone();
                }
            })
            .await;
            let error = eventually(what, Some(rig.wakes()), async || {
                let source = rig.operator.status().await.sources.remove(0);
                source.error.clone().ok_or(format!("{source:#?}"))
            })
            .await;
            for part in [uri.as_str(), what, advice] {
                assert!(error.message.contains(part), "{part}: {error:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_that_a_changed_filter_admits_are_fetched_from_the_resource_list() {
    let only_one = Filter::matching(&["*/r0001.txt".to_owned()], &[]).unwrap();
    let mut rig = Rig::start_with(resources(5), |config| {
        config.sources[0].filter = only_one;
    })
    .await;
    rig.until("one resource", |set| {
        set.resources == 1 && set.state == "in-sync"
    })
    .await;
    rig.stop_daemon().await;
    rig.config.sources[0].filter = Filter::everything();
    rig.start_daemon().await;
    rig.idle().await;
    let lists = rig.source.hits("/set1/resourcelist.xml");
    rig.source.update(SET, "r0002.txt", "polled");
    rig.operator.poll(NAME).await;
    rig.until_holds("r0002.txt", "polled").await;
    rig.idle().await;
    assert_eq!(rig.source.hits("/set1/resourcelist.xml"), lists);
}

/// One part of the index is missing. Pushed and polled changes are applied nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn changes_are_applied_while_the_baseline_is_incomplete() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let url = |path: &str| source.base().join(path).unwrap();
    let list = client().get(url("/set1/resourcelist.xml")).send().await;
    let list = list.unwrap().bytes().await.unwrap();
    let mut head = Head::new(Root::Sitemapindex, Capability::ResourceList);
    head.md.at = Some(SourceTime::from(clock::now().wall));
    let lists = ["/set1/gone.xml", "/set1/here.xml"].map(|path| Entry::new(url(path)));
    let index = write_document(&head, &lists);
    source.put_document("/set1/here.xml", "application/xml", list.to_vec());
    source.put_document("/set1/resourcelist.xml", "application/xml", index);
    let rig = Rig::follow(source, |_| {}).await;
    rig.until("first part read", |set| {
        let code = set.error.as_ref().map(|error| error.code.as_str());
        set.resources == 3 && code == Some("not-found")
    })
    .await;

    rig.source.update(SET, "r0000.txt", "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0000.txt", "pushed").await;
    rig.source.update(SET, "r0001.txt", "polled");
    rig.source.delete(SET, "r0002.txt");
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    let set = rig.set().await;
    assert_eq!((set.state.as_str(), set.synced_until), ("failing", None));

    rig.source.remove_document("/set1/resourcelist.xml");
    rig.source.refresh_resource_list(SET);
    rig.operator.poll(NAME).await;
    rig.settled().await;
}
