//! robots.txt of sites without ResourceSync: what it disallows is not requested, and its `Crawl-delay` is respected.

use std::time::{Duration, Instant};

use resyncd::config::Config;
use resyncd::status::{FailedResource, SetStatus};
use resyncd_testkit::SampleSource;

use super::sitemaps::{FOUR, SITEMAP, every_second, put, site, sitemap, until, until_files};
use crate::support::{NAME, Rig, eventually, resources};

const PAGES: [&str; 4] = ["/a", "/b", "/c", "/d"];
const ROBOTS: &str = "/robots.txt";
/// What most tests have of it: two of the four pages are disallowed.
const RULES: &str = "User-agent: resyncd\nDisallow: /b\nDisallow: /c\n";

/// A site of four pages in [`SITEMAP`]. `head`: that of the sitemap.
async fn site_with(robots: &str, head: &str) -> SampleSource {
    let source = site(&PAGES).await;
    put(&source, ROBOTS, robots);
    put(&source, SITEMAP, sitemap(&source, head, &FOUR));
    source
}

async fn follow(source: SampleSource, change: impl FnOnce(&mut Config)) -> Rig {
    Rig::follow(source, |config| {
        every_second(config);
        change(config);
    })
    .await
}

fn hits(rig: &Rig) -> [u64; 4] {
    PAGES.map(|page| rig.source.hits(page))
}

async fn failed(rig: &Rig) -> Vec<FailedResource> {
    let (_, body) = rig.operator.get("/failed").await;
    let lines = body.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn is_in_sync(set: &SetStatus) -> bool {
    set.state == "in-sync"
}

fn lacks_two(set: &SetStatus) -> bool {
    is_in_sync(set) && set.unavailable == 2
}

#[tokio::test(flavor = "multi_thread")]
async fn disallowed_pages_are_unavailable_at_once_and_never_requested() {
    let rig = follow(site_with(RULES, "").await, |_| {}).await;
    let set = until(&rig, SITEMAP, "in sync", lacks_two).await;
    assert_eq!((set.resources, set.failed, set.error), (2, 0, None));
    assert!(set.attention.is_empty(), "{:?}", set.attention);
    until_files(&rig, &["/a", "/d"]).await;
    for row in failed(&rig).await {
        let is_named =
            row.message.contains("robots.txt") && row.message.contains("`robots = false`");
        assert!(row.unavailable && is_named, "{row:?}");
        assert_eq!(row.code, "disallowed-by-robots");
    }
    assert_eq!(failed(&rig).await.len(), 2);

    // What is new of them is not requested either.
    let news = FOUR.map(|(page, _)| (page, "2026-02-01"));
    put(&rig.source, SITEMAP, sitemap(&rig.source, "", &news));
    eventually("pages fetched", Some(rig.wakes()), async || {
        match hits(&rig) {
            [a, _, _, d] if a > 1 && d > 1 => Ok(()),
            hits => Err(format!("{hits:?}")),
        }
    })
    .await;
    until(&rig, SITEMAP, "in sync", lacks_two).await;
    rig.operator.retry(NAME).await;
    let polled = rig.source.hits(SITEMAP);
    rig.source.wait_for_hits(SITEMAP, polled + 2).await;
    until(&rig, SITEMAP, "in sync", lacks_two).await;
    assert_eq!(hits(&rig)[1..3], [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn page_that_robots_txt_allows_again_is_fetched() {
    let mut rig = follow(site_with(RULES, "").await, |_| {}).await;
    until(&rig, SITEMAP, "in sync", lacks_two).await;
    rig.stop_daemon().await;
    put(&rig.source, ROBOTS, RULES.replace("Disallow: /b\n", ""));
    rig.start_daemon().await;
    rig.operator.retry(NAME).await;
    until_files(&rig, &["/a", "/b", "/d"]).await;
    until(&rig, SITEMAP, "in sync", |set| {
        is_in_sync(set) && set.unavailable == 1
    })
    .await;
    assert_eq!(hits(&rig)[2], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn crawl_delay_is_the_pause_between_two_requests() {
    let source = site_with("User-agent: *\nCrawl-delay: 1\n", "").await;
    let began = Instant::now();
    let rig = Rig::follow(source, |_| {}).await;
    until_files(&rig, &PAGES).await;
    // The sitemap, and then each page.
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(4), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn robots_txt_is_ignored_where_the_configuration_says_so() {
    let source = site_with(RULES, "").await;
    let rig = follow(source, |config| config.sources[0].robots = false).await;
    until_files(&rig, &PAGES).await;
    until(&rig, SITEMAP, "in sync", |set| {
        is_in_sync(set) && set.unavailable == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn source_with_resourcesync_documents_is_mirrored_whatever_its_robots_txt_disallows() {
    let nothing = "User-agent: *\nDisallow: /\nCrawl-delay: 60\n";
    let source = SampleSource::start(resources(4)).await.unwrap();
    put(&source, ROBOTS, nothing);
    let mut rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    rig.stop_daemon().await;
    rig.source.update("set1", "r0000.txt", "changed meanwhile");
    rig.start_daemon().await;
    rig.until_mirrored().await;
    assert_eq!(rig.source.hits(ROBOTS), 0, "it is not asked for");

    // A Resource List that stands alone, and a Sitemap of version 0.1.
    let change_set = "<xhtml:link xmlns:xhtml=\"http://www.w3.org/1999/xhtml\" \
        rel=\"current http://www.openarchives.org/rs/changeset\" href=\"/changes.xml\"/>";
    for head in [r#"<rs:md capability="resourcelist"/>"#, change_set] {
        let rig = follow(site_with(nothing, head).await, |_| {}).await;
        until_files(&rig, &PAGES).await;
    }
}
