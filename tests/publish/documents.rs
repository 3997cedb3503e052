//! The documents, and Destinations that follow them.

use std::path::Path;

use resourcesync::{Capability, ChangeKind, Root};
use resyncd::clock;
use resyncd::status::SetStatus;
use resyncd::store::{back_up, restore};
use resyncd_testkit::ChannelHub;

use super::losing::LosingProxy;
use super::{Published, publish, until_equal};
use crate::support::{Destination, NAME, SET, eventually, resources};

#[tokio::test(flavor = "multi_thread")]
async fn documents_state_what_the_mirror_has_and_what_has_changed() {
    let published = Published::of(5).await;
    let list = published.capability_list().await;
    let well_known = published.base.join(".well-known/resourcesync").unwrap();
    let description = published.document(&well_known).await;
    assert_eq!(description.entries[0].loc, list);
    let capabilities = published.document(&list).await;
    assert_eq!(capabilities.head.link("up"), Some(&published.description()));
    let offered = capabilities
        .entries
        .iter()
        .filter_map(|entry| entry.md.capability.clone());
    let offered: Vec<Capability> = offered.collect();
    assert_eq!(
        offered,
        [
            Capability::ResourceList,
            Capability::ChangeList,
            Capability::ResourceDump,
            Capability::ChangeDump,
            Capability::ChangeNotification,
            Capability::FrameworkNotification
        ]
    );
    let resources = published
        .document(&published.of_set("resourcelist.xml").await)
        .await;
    assert_eq!(resources.head.md.at, resources.head.md.completed);
    assert_eq!(resources.entries.len(), 5);
    for entry in &resources.entries {
        let original = entry.links.iter().find(|link| link.is("via")).unwrap();
        assert_eq!(original.content, entry.md.content);
        assert_eq!(original.modified, entry.lastmod);
        assert_eq!(original.href.port(), published.rig.source.base().port());
        let file = published.get(&entry.loc).await;
        let hash = resourcesync::Digest::of(resourcesync::Algorithm::Sha256, &file.body);
        assert!(entry.md.content.hashes.contains(&hash));
        assert_eq!(entry.md.content.length, Some(file.body.len() as u64));
    }

    published.rig.source.update(SET, "r0001.txt", "new");
    published.rig.source.delete(SET, "r0002.txt");
    published.rig.source.create(SET, "more.txt", "more");
    published.rig.source.notify_and_publish(SET).await.unwrap();
    published.rig.settled().await;
    let index = published
        .document(&published.of_set("changelist.xml").await)
        .await;
    assert_eq!(index.head.root, Root::Sitemapindex);
    let open = index.entries.last().unwrap();
    assert_eq!((open.md.from, open.md.until), (index.head.md.from, None));
    let changes = published.document(&open.loc).await;
    let from = changes.head.md.from.unwrap();
    let mut kinds: Vec<_> = changes
        .entries
        .iter()
        .map(|entry| entry.md.change.unwrap())
        .collect();
    kinds.sort_by_key(|kind| kind.as_str());
    assert_eq!(
        kinds,
        [
            ChangeKind::Created,
            ChangeKind::Deleted,
            ChangeKind::Updated
        ]
    );
    let times = changes
        .entries
        .iter()
        .map(|entry| entry.md.datetime.unwrap());
    let times: Vec<_> = times.collect();
    assert!(times.is_sorted_by(|one, other| one < other), "{times:?}");
    assert!(resources.head.md.at.unwrap() < times[0] && from < times[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn capability_list_names_what_describes_the_original() {
    let published = Published::start(resources(1), |_| {}).await;
    let source = &published.rig.source;
    let path = "/set1/capabilitylist.xml";
    let list = source.base().join(path).unwrap();
    let stated = published.get(&list).await.text();
    let stated = stated.replacen(
        "<rs:md",
        r#"<rs:ln rel="describedby" href="/about"/><rs:md"#,
        1,
    );
    source.put_document(path, "application/xml", stated);
    published.rig.operator.poll(NAME).await;
    let about = source.base().join("/about").unwrap();
    eventually("described", None, async || {
        let list = published.document(&published.capability_list().await).await;
        if list.head.link("describedby") == Some(&about) {
            Ok(())
        } else {
            Err(format!("{:?}", list.head))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_of_a_set_without_a_complete_copy() {
    let options = resyncd_testkit::SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let source = resyncd_testkit::SampleSource::start(options).await.unwrap();
    source.fail(
        "/set1/res/r0001.txt",
        resyncd_testkit::Fault::Unavailable { retry_after: 1 },
        usize::MAX,
    );
    let rig = crate::support::Rig::follow(source, publish).await;
    let address = rig.daemon().publish.unwrap();
    let base = url::Url::parse(&format!("http://{address}/")).unwrap();
    let published = Published { rig, base };
    published
        .rig
        .until("two of three", |set| set.resources == 2)
        .await;
    let description = published.document(&published.description()).await;
    assert!(description.entries.is_empty());
    let robots = published.base.join("robots.txt").unwrap();
    let robots = published.get(&robots).await.text();
    let (_, sitemap) = robots.split_once("Sitemap: ").unwrap();
    let sitemap = url::Url::parse(sitemap.trim_end()).unwrap();
    assert_eq!(lists_of(&published.get(&sitemap).await.text()), [""; 0]);

    published.rig.source.heal("/set1/res/r0001.txt");
    published.rig.operator.retry(crate::support::NAME).await;
    published.until_published().await;
    let list = published.of_set("resourcelist.xml").await;
    let sitemap = published.get(&sitemap).await.text();
    assert_eq!(lists_of(&sitemap), [list.as_str()]);
}

/// What an index of plain sitemaps names.
fn lists_of(index: &str) -> Vec<&str> {
    let named = index.split("<loc>").skip(1);
    named
        .map(|rest| rest.split_once("</loc>").unwrap().0)
        .collect()
}

/// Stops the daemon, has something done with the folder of its database, starts it again, and checks that the Change Lists begin anew.
async fn check_begins_anew(lose: impl FnOnce(&Path)) {
    let mut published = Published::of(3).await;
    let index = published.of_set("changelist.xml").await;
    let before = published.document(&index).await.head.md.from.unwrap();
    let address = published.rig.daemon().publish.unwrap();
    published.rig.stop_daemon().await;
    lose(&published.rig.config.state_dir);
    published.rig.config.publish.listen = address;
    published.rig.start_daemon().await;
    published.rig.settled().await;
    published.until_published().await;
    // The documents are where they were.
    let after = published.document(&index).await.head.md.from.unwrap();
    assert!(after > before, "{before} {after}");
    let list = published.of_set("resourcelist.xml").await;
    assert_eq!(published.document(&list).await.entries.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_lists_begin_anew_after_a_lost_database() {
    check_begins_anew(|state| {
        for entry in std::fs::read_dir(state).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_lists_begin_anew_after_a_backup_is_restored() {
    check_begins_anew(|state| {
        let backup = state.with_file_name("backup.db");
        let now = clock::now().wall;
        back_up(&state.into(), &backup, now).unwrap();
        restore(&state.into(), &backup, now).unwrap();
    })
    .await;
}

/// The first publishes what it mirrors, and so does the second. A delivery to the second is lost, and one to the third.
#[tokio::test(flavor = "multi_thread")]
async fn changes_reach_the_third_of_a_chain_by_push_and_lost_ones_by_the_next() {
    let published = Published::of(20).await;
    let mut proxies = Vec::new();
    let relaying = Destination::start(published.description(), |config| {
        publish(config);
        config.sources[0].poll_interval = std::time::Duration::from_secs(86_400);
        proxies.push(LosingProxy::put_before(config));
    })
    .await;
    until_equal_to_rig(&relaying, &published).await;
    let relayed = relaying.published().unwrap();
    let description = relayed
        .join(&format!("{NAME}/.rs/description.xml"))
        .unwrap();
    let last = Destination::start(description, |config| {
        config.sources[0].poll_interval = std::time::Duration::from_secs(86_400);
        proxies.push(LosingProxy::put_before(config));
    })
    .await;
    until_equal(&last, &relaying, &relayed).await;
    for (destination, what) in [
        (&relaying, "the second is subscribed"),
        (&last, "the third is subscribed"),
    ] {
        destination
            .until(what, |set| {
                set.channels.iter().all(|channel| channel.state == "active")
            })
            .await;
    }

    published.rig.source.update(SET, "r0001.txt", "new");
    published.rig.source.delete(SET, "r0002.txt");
    published.rig.source.notify_and_publish(SET).await.unwrap();
    let changed = eventually("the change arrives", Some(last.wakes()), async || {
        let lines = last.operator.changes(0).await;
        let updated = lines.iter().find(|line| line.change == "updated").cloned();
        let deleted = lines.iter().any(|line| line.change == "deleted");
        updated.filter(|_| deleted).ok_or(format!("{lines:#?}"))
    })
    .await;
    assert_eq!(changed.origin, "notification");
    // There is one link to the origin, however long the chain is.
    assert_eq!(changed.via, Some(vec![published.rig.uri("r0001.txt")]));
    until_equal(&last, &relaying, &relayed).await;
    let set = last.until("no gap", |set| set.state == "in-sync").await;
    assert!(
        set.channels.iter().all(|channel| channel.gaps == 0),
        "{set:#?}"
    );

    let until_seen = async |name: &str| {
        eventually("published", Some(published.rig.wakes()), async || {
            let list = published.of_set("changelist-open.xml").await;
            let list = published.get(&list).await.text();
            if list.contains(name) {
                Ok(())
            } else {
                Err(list)
            }
        })
        .await;
    };
    for (proxy, destination, names) in [
        (&proxies[0], &relaying, ["lost0.txt", "next0.txt"]),
        (&proxies[1], &last, ["lost1.txt", "next1.txt"]),
    ] {
        let [lost, next] = names;
        proxy.lose_next();
        published.rig.source.create(SET, lost, lost);
        published.rig.source.notify_and_publish(SET).await.unwrap();
        until_seen(lost).await;
        proxy.until_lost().await;
        published.rig.source.create(SET, next, next);
        published.rig.source.notify_and_publish(SET).await.unwrap();
        until_equal_to_rig(&relaying, &published).await;
        until_equal(&last, &relaying, &relayed).await;
        let has_gap = |set: &SetStatus| set.channels.iter().any(|channel| channel.gaps == 1);
        destination.until("the gap was seen", has_gap).await;
        // An entry follows its file.
        let origin = eventually("its entry", Some(destination.wakes()), async || {
            let lines = destination.operator.changes(0).await;
            let line = lines.iter().find(|line| line.uri.ends_with(lost));
            line.map(|line| line.origin.clone())
                .ok_or(format!("{lines:#?}"))
        })
        .await;
        assert_eq!(origin, "change-list");
    }
}

async fn until_equal_to_rig(destination: &Destination, published: &Published) {
    let folder = format!("127.0.0.1:{}/{NAME}/", published.base.port().unwrap());
    eventually(
        "equal to the first mirror",
        Some(destination.wakes()),
        async || {
            let expected = crate::support::files(&published.rig.config.sources[0].mirror);
            let expected = expected
                .into_iter()
                .map(|(path, bytes)| (format!("{folder}{path}"), bytes));
            let found = crate::support::files(&destination.config.sources[0].mirror);
            let difference = crate::support::difference(&expected.collect(), &found);
            if difference.is_empty() {
                Ok(())
            } else {
                Err(difference)
            }
        },
    )
    .await;
}
