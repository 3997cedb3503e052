//! Resource Lists and Change Lists in parts: what of them is read, and what is concluded from what was not.

use std::time::Duration;

use resyncd::config::Filter;
use resyncd::demo::{ChannelHub, SampleOptions};

use crate::support::{NAME, Rig, SET, client, eventually, resources};

const INDEX: &str = "/set1/resourcelist.xml";
const A: &str = "/set1/a.xml";
const B: &str = "/set1/b.xml";
const C: &str = "/set1/c.xml";
/// What the three lists name at first.
const ALL: [&str; 5] = [
    "r0000.txt",
    "r0001.txt",
    "r0002.txt",
    "r0003.txt",
    "r0004.txt",
];
const XMLNS: &str = "xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\"";
const RESOURCE_LIST: &str = "<rs:md capability=\"resourcelist\"/>";

/// A list of resources, all of them as they were in January.
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

/// An index of lists, each with the day in January that it tells; 0 is none.
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
    let source = resyncd::demo::SampleSource::start(options).await.unwrap();
    source.fail(INDEX, resyncd::demo::Fault::Status(503), usize::MAX);
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

/// Waits until the mirror holds these, and no others.
async fn until_mirrored(rig: &Rig, names: &[&str]) {
    eventually(
        "the mirror holds what is listed",
        Some(rig.wakes()),
        async || {
            let held: Vec<String> = (0..9)
                .map(|number| format!("r{number:04}.txt"))
                .filter(|name| rig.mirrored(name).is_some())
                .collect();
            if held == names {
                Ok(())
            } else {
                Err(format!("{held:?}"))
            }
        },
    )
    .await;
    rig.until("in step", |set| {
        set.state == "in-sync" && set.resources == names.len() as u64
    })
    .await;
}

/// Requests for the documents since `before`, and how many of them were answered 304.
fn asked(rig: &Rig, before: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let now = hits(rig).into_iter();
    now.zip(before)
        .map(|(now, before)| (now.0 - before.0, now.1 - before.1))
        .collect()
}

fn hits(rig: &Rig) -> Vec<(u64, u64)> {
    [INDEX, A, B, C]
        .map(|path| (rig.source.hits(path), rig.source.hits_not_modified(path)))
        .to_vec()
}

/// Waits for a poll that begins after now, and ends.
async fn polled(rig: &Rig) {
    let hits = rig.source.hits(INDEX);
    rig.source.wait_for_hits(INDEX, hits + 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_that_is_unchanged_costs_one_request() {
    let rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    polled(&rig).await;
    let before = hits(&rig);
    polled(&rig).await;
    polled(&rig).await;
    let asked = asked(&rig, &before);
    // The last one may not be answered yet.
    assert!(asked[0].1 + 1 >= asked[0].0, "{asked:?}");
    assert_eq!(asked[1..], [(0, 0); 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_an_index_only_the_list_that_has_changed_is_read() {
    let rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    polled(&rig).await;
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
    polled(&rig).await;
    let asked = asked(&rig, &before);
    assert!(asked[0].1 >= 1, "and then no more: {asked:?}");
    assert_eq!(asked[1..], [(0, 0), (1, 0), (0, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_an_index_tells_no_time_of_are_asked_for_and_kept_while_unchanged() {
    let rig = indexed(&[(A, 0), (B, 0), (C, 0)]).await;
    polled(&rig).await;
    let before = hits(&rig);
    polled(&rig).await;
    let unchanged = asked(&rig, &before);
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
    let asked = asked(&rig, &before);
    let are_read = |list: &(u64, u64)| list.0 - list.1;
    assert!(are_read(&asked[2]) >= 1, "{asked:?}");
    assert!(are_read(&asked[1]) <= 1 && asked[1].0 >= 2, "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_that_leaves_the_index_takes_its_entries_with_it() {
    let rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    let before = hits(&rig);
    put_index(&rig, &[(A, 5), (C, 8)]);
    until_mirrored(&rig, &["r0000.txt", "r0001.txt", "r0004.txt"]).await;
    assert_eq!(asked(&rig, &before)[1..3], [(0, 0), (0, 0)]);
    // It comes again, unchanged: what it names is here again.
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
async fn entry_that_moves_from_one_list_to_another_is_not_deleted() {
    let rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    let since = rig.operator.last_change().await;
    // Forwards and backwards.
    put_list(&rig, A, &["r0000.txt", "r0002.txt"]);
    put_list(&rig, B, &["r0001.txt", "r0003.txt"]);
    put_index(&rig, &[(A, 8), (B, 8), (C, 7)]);
    polled(&rig).await;
    polled(&rig).await;
    put_list(&rig, C, &["r0004.txt", "r0000.txt"]);
    put_list(&rig, A, &["r0002.txt"]);
    put_index(&rig, &[(A, 9), (B, 8), (C, 9)]);
    polled(&rig).await;
    polled(&rig).await;
    let told = rig.operator.changes(since).await;
    assert!(told.is_empty(), "{told:?}");
    // It is gone when the list goes that it moved to.
    put_list(&rig, C, &["r0004.txt"]);
    put_index(&rig, &[(A, 9), (B, 8), (C, 10)]);
    until_mirrored(&rig, &["r0001.txt", "r0002.txt", "r0003.txt", "r0004.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_that_two_lists_name_is_deleted_when_neither_does() {
    let rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    let since = rig.operator.last_change().await;
    put_list(&rig, A, &["r0000.txt", "r0001.txt", "r0002.txt"]);
    put_index(&rig, &[(A, 8), (B, 6), (C, 7)]);
    polled(&rig).await;
    polled(&rig).await;
    put_list(&rig, A, &["r0000.txt", "r0001.txt"]);
    put_index(&rig, &[(A, 9), (B, 6), (C, 7)]);
    polled(&rig).await;
    polled(&rig).await;
    assert!(rig.operator.changes(since).await.is_empty());
    put_list(&rig, B, &["r0003.txt"]);
    put_index(&rig, &[(A, 9), (B, 10), (C, 7)]);
    until_mirrored(&rig, &["r0000.txt", "r0001.txt", "r0003.txt", "r0004.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_that_has_changed_is_applied_to_lists_that_have_not() {
    let mut rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    rig.stop_daemon().await;
    let mirror = rig.config.sources[0].mirror.clone();
    rig.config.sources[0].filter = Filter::matching(&[], &["*r0002.txt"]).unwrap();
    // Nothing but what was there from the beginning: as if the mirror were made with the filter.
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
async fn what_a_changed_filter_leaves_out_stays() {
    let mut rig = indexed(&[(A, 5), (B, 6), (C, 7)]).await;
    rig.stop_daemon().await;
    rig.config.sources[0].filter = Filter::matching(&[], &["*r0002.txt"]).unwrap();
    // One that is wanted is gone, and that is proof of it; one that is not wanted is gone, too, which nobody looks at.
    put_list(&rig, A, &["r0000.txt"]);
    put_list(&rig, B, &["r0003.txt"]);
    put_index(&rig, &[(A, 8), (B, 9), (C, 7)]);
    rig.start_daemon().await;
    until_mirrored(&rig, &["r0000.txt", "r0002.txt", "r0003.txt", "r0004.txt"]).await;
}

/// Some Sources have the newest list first, and say only of the lists from when on they tell.
#[tokio::test(flavor = "multi_thread")]
async fn change_lists_of_an_index_are_read_oldest_first_in_whatever_order_it_has_them() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
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
    rig.until("closed", |set| set.state == "in-sync").await;
    rig.until_mirrored().await;
    assert_eq!(rig.source.hits(INDEX), lists, "no Resource List was needed");
}

/// An index whose entries come in reverse, and whose head tells no `from`.
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
