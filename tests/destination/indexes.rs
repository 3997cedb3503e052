//! Indexes of Resource Lists and Change Lists: which parts are read, and what unread parts prove.

use std::time::Duration;

use resyncd::config::Filter;
use resyncd_testkit::{ChannelHub, SampleOptions};

use crate::support::{NAME, Rig, SET, client, eventually, resources};

const INDEX: &str = "/set1/resourcelist.xml";
const A: &str = "/set1/a.xml";
const B: &str = "/set1/b.xml";
const C: &str = "/set1/c.xml";
/// The resources that the three parts name at first.
const ALL: [&str; 5] = [
    "r0000.txt",
    "r0001.txt",
    "r0002.txt",
    "r0003.txt",
    "r0004.txt",
];
const XMLNS: &str = "xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\"";
const RESOURCE_LIST: &str = "<rs:md capability=\"resourcelist\"/>";

/// Serves a part; every entry has the same `lastmod`.
fn put_list(rig: &Rig, path: &str, names: &[&str]) {
    let entries: String = names
        .iter()
        .map(|name| {
            let loc = rig.uri(name);
            format!("<url><loc>{loc}</loc><lastmod>2026-01-01T00:00:01Z</lastmod></url>\n")
        })
        .collect();
    let list = format!("<urlset {XMLNS}>{RESOURCE_LIST}\n{entries}</urlset>");
    rig.source.put_document(path, "application/xml", list);
}

/// Serves an index. Each part has the day of its `lastmod` in January 2026; 0: no `lastmod`.
fn put_index(rig: &Rig, lists: &[(&str, u32)]) {
    let entries: String = lists
        .iter()
        .map(|(path, day)| {
            let loc = rig.source.base().join(path).unwrap();
            let lastmod = match day {
                0 => String::new(),
                day => format!("<lastmod>2026-01-{day:02}T10:07:31Z</lastmod>"),
            };
            format!("<sitemap><loc>{loc}</loc>{lastmod}</sitemap>\n")
        })
        .collect();
    let index = format!("<sitemapindex {XMLNS}>{RESOURCE_LIST}\n{entries}</sitemapindex>");
    rig.source.put_document(INDEX, "application/xml", index);
}

/// A Source that is polled every second, whose Resource List is an index without `at`.
async fn indexed(lists: &[(&str, u32)]) -> Rig {
    let options = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(9)
    };
    let source = resyncd_testkit::SampleSource::start(options).await.unwrap();
    source.fail(INDEX, resyncd_testkit::Fault::Status(503), usize::MAX);
    let rig = Rig::follow(source, |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
    })
    .await;
    put_list(&rig, A, &["r0000.txt", "r0001.txt"]);
    put_list(&rig, B, &["r0002.txt", "r0003.txt"]);
    put_list(&rig, C, &["r0004.txt"]);
    put_index(&rig, lists);
    rig.source.heal(INDEX);
    until_mirrored(&rig, &ALL).await;
    rig
}

/// Waits until the mirror holds exactly these resources.
async fn until_mirrored(rig: &Rig, names: &[&str]) {
    eventually("listed resources mirrored", Some(rig.wakes()), async || {
        let mirrored: Vec<String> = (0..9)
            .map(|number| format!("r{number:04}.txt"))
            .filter(|name| rig.mirrored(name).is_some())
            .collect();
        if mirrored == names {
            Ok(())
        } else {
            Err(format!("{mirrored:?}"))
        }
    })
    .await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.resources == names.len() as u64
    })
    .await;
}

/// For each document, the numbers of requests and of 304 answers since `before`.
fn requests_since(rig: &Rig, before: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let now = hits(rig).into_iter();
    now.zip(before)
        .map(|(now, before)| (now.0 - before.0, now.1 - before.1))
        .collect()
}

fn hits(rig: &Rig) -> Vec<(u64, u64)> {
    [INDEX, A, B, C]
        .map(|path| rig.source.hits_and_not_modified(path))
        .to_vec()
}

/// Waits for a poll that begins after now, and ends.
async fn wait_for_poll(rig: &Rig) {
    let hits = rig.source.hits(INDEX);
    rig.source.wait_for_hits(INDEX, hits + 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_index_costs_one_request() {
    let rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    wait_for_poll(&rig).await;
    let before = hits(&rig);
    wait_for_poll(&rig).await;
    wait_for_poll(&rig).await;
    let requests = requests_since(&rig, &before);
    // The last one may not be answered yet.
    assert!(requests[0].1 + 1 >= requests[0].0, "{requests:?}");
    assert_eq!(requests[1..], [(0, 0); 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_changed_part_of_an_index_is_read() {
    let rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    wait_for_poll(&rig).await;
    let before = hits(&rig);
    put_list(&rig, B, &["r0003.txt", "r0005.txt"]);
    put_index(&rig, &[(A, 5), (B, 8), (C, 7)]);
    until_mirrored(
        &rig,
        &[
            "r0000.txt",
            "r0001.txt",
            "r0003.txt",
            "r0004.txt",
            "r0005.txt",
        ],
    )
    .await;
    wait_for_poll(&rig).await;
    let requests = requests_since(&rig, &before);
    assert!(requests[0].1 >= 1, "later polls get 304: {requests:?}");
    assert_eq!(requests[1..], [(0, 0), (1, 0), (0, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_without_lastmod_are_requested_conditionally() {
    let rig = indexed(&[(A, 0), (B, 0), (C, 0)]).await;
    wait_for_poll(&rig).await;
    let before = hits(&rig);
    wait_for_poll(&rig).await;
    let unchanged = requests_since(&rig, &before);
    for list in &unchanged[1..] {
        assert!(list.0 >= 1 && list.1 + 1 >= list.0, "{unchanged:?}");
    }
    put_list(&rig, B, &["r0003.txt", "r0005.txt"]);
    until_mirrored(
        &rig,
        &[
            "r0000.txt",
            "r0001.txt",
            "r0003.txt",
            "r0004.txt",
            "r0005.txt",
        ],
    )
    .await;
    let requests = requests_since(&rig, &before);
    let downloads = |list: &(u64, u64)| list.0 - list.1;
    assert!(downloads(&requests[2]) >= 1, "{requests:?}");
    assert!(
        downloads(&requests[1]) <= 1 && requests[1].0 >= 2,
        "{requests:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_a_part_removed_from_the_index_are_deleted() {
    let rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    let before = hits(&rig);
    put_index(&rig, &[(A, 5), (C, 8)]);
    until_mirrored(&rig, &["r0000.txt", "r0001.txt", "r0004.txt"]).await;
    assert_eq!(requests_since(&rig, &before)[1..3], [(0, 0), (0, 0)]);
    // The part returns unchanged: its resources are mirrored again.
    put_index(&rig, &[(A, 5), (B, 6), (C, 9)]);
    until_mirrored(
        &rig,
        &[
            "r0000.txt",
            "r0001.txt",
            "r0002.txt",
            "r0003.txt",
            "r0004.txt",
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entry_that_moves_to_another_part_is_not_deleted() {
    let rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    let since = rig.operator.last_change().await;
    // To a later part and to an earlier one.
    put_list(&rig, A, &["r0000.txt", "r0002.txt"]);
    put_list(&rig, B, &["r0001.txt", "r0003.txt"]);
    put_index(&rig, &[(A, 8), (B, 8), (C, 7)]);
    wait_for_poll(&rig).await;
    wait_for_poll(&rig).await;
    put_list(&rig, C, &["r0004.txt", "r0000.txt"]);
    put_list(&rig, A, &["r0002.txt"]);
    put_index(&rig, &[(A, 9), (B, 8), (C, 9)]);
    wait_for_poll(&rig).await;
    wait_for_poll(&rig).await;
    let lines = rig.operator.changes(since).await;
    assert!(lines.is_empty(), "{lines:?}");
    // It is deleted when the part that it moved to no longer names it.
    put_list(&rig, C, &["r0004.txt"]);
    put_index(&rig, &[(A, 9), (B, 8), (C, 10)]);
    until_mirrored(&rig, &["r0001.txt", "r0002.txt", "r0003.txt", "r0004.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_of_two_parts_is_deleted_when_neither_names_it() {
    let rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    let since = rig.operator.last_change().await;
    put_list(&rig, A, &["r0000.txt", "r0001.txt", "r0002.txt"]);
    put_index(&rig, &[(A, 8), (B, 6), (C, 7)]);
    wait_for_poll(&rig).await;
    wait_for_poll(&rig).await;
    put_list(&rig, A, &["r0000.txt", "r0001.txt"]);
    put_index(&rig, &[(A, 9), (B, 6), (C, 7)]);
    wait_for_poll(&rig).await;
    wait_for_poll(&rig).await;
    assert!(rig.operator.changes(since).await.is_empty());
    put_list(&rig, B, &["r0003.txt"]);
    put_index(&rig, &[(A, 9), (B, 10), (C, 7)]);
    until_mirrored(&rig, &["r0000.txt", "r0001.txt", "r0003.txt", "r0004.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_filter_is_applied_to_unchanged_parts() {
    let mut rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    rig.stop_daemon().await;
    let mirror = rig.config.sources[0].mirror.clone();
    rig.config.sources[0].filter = Filter::matching(&[], &["*r0002.txt"]).unwrap();
    // A new mirror, made with the filter.
    std::fs::remove_dir_all(&rig.config.state_dir).unwrap();
    std::fs::remove_dir_all(&mirror).unwrap();
    rig.start_daemon().await;
    until_mirrored(&rig, &["r0000.txt", "r0001.txt", "r0003.txt", "r0004.txt"]).await;
    rig.stop_daemon().await;
    rig.config.sources[0].filter = Filter::everything();
    rig.start_daemon().await;
    until_mirrored(&rig, &ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_that_a_changed_filter_excludes_stays() {
    let mut rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    rig.stop_daemon().await;
    rig.config.sources[0].filter = Filter::matching(&[], &["*r0002.txt"]).unwrap();
    // The lists lose an included and an excluded resource. Only the included one is deleted.
    put_list(&rig, A, &["r0000.txt"]);
    put_list(&rig, B, &["r0003.txt"]);
    put_index(&rig, &[(A, 8), (B, 9), (C, 7)]);
    rig.start_daemon().await;
    until_mirrored(&rig, &["r0000.txt", "r0002.txt", "r0003.txt", "r0004.txt"]).await;
}

/// Some Sources list the newest part first, and state `from` only for the parts.
#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_change_list_index_are_read_oldest_first_in_any_order() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    let lists = rig.source.hits(INDEX);
    rig.source.freeze_change_list(SET, true);
    rig.source.create(SET, "lost.txt", "lost");
    rig.source.notify(SET);
    rig.source.roll_change_list(SET);
    rig.source.create(SET, "lost-too.txt", "lost");
    rig.source.notify(SET);
    rig.source.roll_change_list(SET);
    rig.source.freeze_change_list(SET, false);
    let path = "/set1/changelist.xml";
    let url = rig.source.base().join(path).unwrap();
    let index = client()
        .get(url)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    rig.source.freeze_change_list(SET, true);
    rig.source
        .put_document(path, "application/xml", newest_first(&index));
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.source.freeze_change_list(SET, false);
    rig.operator.poll(NAME).await;
    rig.until("gap closed", |set| set.state == "in-sync").await;
    rig.until_mirrored().await;
    assert_eq!(rig.source.hits(INDEX), lists, "no Resource List was needed");
}

/// The index with its entries in reverse order and without `from` in its head.
fn newest_first(index: &str) -> String {
    let (head, rest) = index.split_once("<sitemap>").unwrap();
    let (entries, tail) = rest.rsplit_once("</sitemap>").unwrap();
    let entries: Vec<&str> = entries.split("</sitemap>").collect();
    assert!(entries.len() > 1, "{index}");
    let (before, md) = head.split_once(" from=\"").unwrap();
    let (_, after) = md.split_once('"').unwrap();
    let mut reversed = format!("{before}{after}");
    for entry in entries.iter().rev() {
        let entry = entry.trim_start().trim_start_matches("<sitemap>");
        reversed.push_str(&format!("<sitemap>{entry}</sitemap>"));
    }
    reversed + tail
}
