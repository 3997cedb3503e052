//! The examples of the core, section 14, with each key of the configuration in turn, and the sample Source, which publishes every relation.

use resyncd::config::Config;
use resyncd_testkit::SampleOptions;
use serde_json::Value;

use crate::support::{
    Examples, KEYS, NAME, Rig, SET, Way, client, has_no_poll_due, resources, send, until_verified,
};

/// Mirrors the examples without a key, and with each key.
async fn mirror_with_each_key(way: Way) {
    for key in KEYS {
        let examples = Examples::start(way).await;
        let rig = Rig::follow(examples.source.clone(), |config| {
            key.configure(&examples, config);
        })
        .await;
        let mut since = 0;
        if way.is_of_changes() {
            until_verified(&rig.source).await;
            rig.until("the bases are mirrored", |set| {
                let is_active = |set: &resyncd::status::SetStatus| {
                    set.channels.iter().all(|channel| channel.state == "active")
                };
                set.state == "in-sync"
                    && set.pending == 0
                    && is_active(set)
                    && has_no_poll_due(set, &rig.config.sources[0])
            })
            .await;
            Examples::until_bases_are_stored(&rig.operator).await;
            since = rig.operator.last_change().await;
            examples.publish().await;
        }
        if way != Way::Push {
            rig.operator.poll(NAME).await;
        }
        let mirror = &rig.config.sources[0].mirror;
        examples.check(&key, &rig.operator, mirror, since, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_are_mirrored_with_each_key_by_a_resource_list() {
    mirror_with_each_key(Way::ResourceList).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_are_mirrored_with_each_key_by_a_resource_dump() {
    mirror_with_each_key(Way::ResourceDump).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_are_mirrored_with_each_key_by_a_push() {
    mirror_with_each_key(Way::Push).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_are_mirrored_with_each_key_by_a_change_list() {
    mirror_with_each_key(Way::ChangeList).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_are_mirrored_with_each_key_by_a_change_dump() {
    mirror_with_each_key(Way::ChangeDump).await;
}

/// The sample Source publishes every relation, and serves what its links lead to.
#[tokio::test(flavor = "multi_thread")]
async fn sample_source_publishes_every_relation() {
    let options = SampleOptions {
        metadata: true,
        related: true,
        ..resources(2)
    };
    // By a notification of another origin's hub nothing is patched.
    let trusting = |config: &mut Config| config.sources[0].trust_hub = Some(true);
    let rig = Rig::start_with(options, trusting).await;
    rig.settled().await;
    let relations = async |name: &str| {
        let shown = rig.operator.resource(&rig.uri(name)).await.unwrap();
        let links = shown["links"].as_array().unwrap().iter();
        let of = |link: &Value, key: &str| link[key].as_str().unwrap().to_owned();
        let links = links.map(|link| (of(link, "rel"), of(link, "href")));
        links.collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for (name, expected) in [
        ("r0000.txt", &["describedby", "collection"][..]),
        ("r0000.dc.xml", &["describes", "profile", "collection"]),
        ("mirrored.txt", &["duplicate"]),
        ("guide", &["alternate", "alternate"]),
        ("guide.txt", &["canonical"]),
        ("catalog.json", &[]),
        ("news.txt", &["memento", "timegate", "timemap"]),
        ("copied.txt", &["via"]),
    ] {
        let links = relations(name).await;
        let rels: Vec<_> = links.iter().map(|(rel, _)| rel.as_str()).collect();
        assert_eq!(rels, expected, "{name}");
        found.extend(links);
    }
    // Identifiers need not be served.
    let is_name = |rel: &str| ["profile", "collection"].contains(&rel);
    for (rel, href) in found.iter().filter(|(rel, _)| !is_name(rel)) {
        let answer = send(|| client().get(href)).await;
        assert!(answer.status().is_success(), "{rel} {href}: {answer:?}");
    }

    let since = rig.operator.last_change().await;
    let second = "{\"title\":\"Catalog\",\"version\":2}\n";
    rig.source.update(SET, "catalog.json", second);
    rig.source.update(SET, "news.txt", "The second news.\n");
    rig.source.notify_and_publish(SET).await.unwrap();
    let line = rig.until_in_feed(since, "catalog.json").await;
    assert_eq!(line.by.as_deref(), Some("patch"));
    assert_eq!(rig.source.hits("/set1/res/catalog.json"), 1);
    rig.until_mirrored().await;
    rig.until_in_feed(since, "news.txt").await;
    let links = relations("news.txt").await;
    let memento = send(|| client().get(&links[0].1)).await;
    assert!(memento.headers().contains_key("memento-datetime"));
    assert_eq!(memento.text().await.unwrap(), "The second news.\n");
    let map = send(|| client().get(&links[2].1))
        .await
        .text()
        .await
        .unwrap();
    assert_eq!(map.matches("rel=\"memento\"").count(), 2, "{map}");
    // The first version, by its time.
    let old = || {
        let request = client().get(&links[1].1);
        request.header("Accept-Datetime", "Thu, 01 Jan 2015 00:00:00 GMT")
    };
    assert_eq!(send(old).await.text().await.unwrap(), "The first news.\n");
    rig.assert_mirrored();
}
