//! Resource Lists and their entries.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use resourcesync::{Algorithm, Digest};
use resyncd::config::Filter;
use resyncd::status::SetStatus;

use crate::documents::site::{
    Follower, Site, capability_list, change_list, changed, document, entry, listed, resource_list,
};
use crate::support::{eventually, files, time};

/// A Source without Change Lists.
async fn without_change_list(resource_list: &str) -> Site {
    let site = Site::with_lists(resource_list).await;
    site.put(
        "/capabilities.xml",
        &capability_list(&[("resourcelist", "/list.xml")]),
    );
    site
}

/// Follows a list whose second version names another resource in place of the first.
async fn check_baseline(list: impl Fn(&str, &str) -> String, oddity: &str) {
    let site = without_change_list(&list("/a", "01")).await;
    site.put("/a", "a");
    site.put("/b", "b");
    let follower = Follower::start(site).await;
    let set = follower.until_mirrored(&[("/a", "a")]).await;
    assert_eq!(set.synced_until.as_deref(), Some("2026-03-01T00:00:00Z"));
    follower.site.put("/list.xml", &list("/b", "04"));
    follower.poll().await;
    follower.until_mirrored(&[("/b", "b")]).await;
    follower.until_oddities(&[oddity]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_list_without_at_has_the_time_of_its_newest_entry() {
    let list = |path: &str, day: &str| {
        let lastmod = format!("<lastmod>2026-03-{day}T00:00:00Z</lastmod>");
        document(
            "urlset",
            "capability=\"resourcelist\"",
            &entry(path, &lastmod),
        )
    };
    check_baseline(list, "/list.xml no-at=1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_list_with_from_has_the_time_of_its_newest_entry() {
    let list = |path: &str, day: &str| {
        let lastmod = format!("<lastmod>2026-03-{day}T00:00:00Z</lastmod>");
        let md = format!("capability=\"resourcelist\" from=\"2026-03-{day}T00:00:00Z\"");
        document("urlset", &md, &entry(path, &lastmod))
    };
    check_baseline(list, "/list.xml wrong-interval=1").await;
}

const FOUR: [&str; 4] = ["/a", "/b", "/c", "/d"];

/// A list of that day in March 2026 whose generator states the time of the request for each entry.
fn list_of_requests(day: u32) -> String {
    let time = format!("2026-03-{day:02}T00:00:00Z");
    let entries: String = FOUR
        .iter()
        .map(|path| entry(path, &format!("<lastmod>{time}</lastmod>")))
        .collect();
    document(
        "urlset",
        &format!("capability=\"resourcelist\" at=\"{time}\""),
        &entries,
    )
}

/// Follows four resources without validators, of which a second list has stated new times, although none has changed.
async fn with_times_of_requests(per_day: u64) -> Follower {
    let site = without_change_list(&list_of_requests(1)).await;
    FOUR.iter().for_each(|path| site.put(path, path));
    let follower = Follower::start_with(site, "/", |source| source.undated_per_day = per_day).await;
    follower
        .until_mirrored(&FOUR.map(|path| (path, path)))
        .await;
    follower.site.put("/list.xml", &list_of_requests(2));
    follower.poll().await;
    let set = until_of_day(&follower, 2).await;
    assert_eq!(hits_of_four(&follower), [2; 4]);
    assert_eq!(notices(&set), ["doubted-lastmod"]);
    follower
}

async fn until_of_day(follower: &Follower, day: u32) -> SetStatus {
    let until = format!("2026-03-{day:02}T00:00:00Z");
    follower
        .until("in sync", |set| {
            set.state == "in-sync" && set.synced_until.as_ref() == Some(&until) && set.undated == 0
        })
        .await
}

fn hits_of_four(follower: &Follower) -> [usize; 4] {
    FOUR.map(|path| follower.site.hits(path))
}

fn notices(set: &SetStatus) -> Vec<&str> {
    let codes = set.notices.iter().map(|notice| notice.code.as_str());
    codes.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn times_of_requests_are_not_taken_for_modifications() {
    let follower = with_times_of_requests(2).await;
    follower.site.put("/a", "altered");
    follower.site.put("/list.xml", &list_of_requests(3));
    follower.poll().await;
    let is_checked = |set: &SetStatus| set.undated == 2 && set.pending == 0;
    let set = follower.until("two checked", is_checked).await;
    assert_eq!(set.state, "in-sync");
    assert_eq!(set.synced_until.as_deref(), Some("2026-03-02T00:00:00Z"));
    assert_eq!(notices(&set), ["doubted-lastmod"]);
    assert_eq!(hits_of_four(&follower), [3, 3, 2, 2]);
    assert_eq!(follower.mirrored()[0].1, "altered");
    // The others come first, and not on this day.
    follower.site.put("/list.xml", &list_of_requests(4));
    follower.poll().await;
    let set = follower.until("planned", |set| set.undated == 4).await;
    assert_eq!((set.state.as_str(), set.pending), ("in-sync", 0));
    assert_eq!(hits_of_four(&follower), [3, 3, 2, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_believed_again_once_copies_differ() {
    let follower = with_times_of_requests(1000).await;
    FOUR.iter()
        .for_each(|path| follower.site.put(path, "altered"));
    follower.site.put("/list.xml", &list_of_requests(3));
    follower.poll().await;
    let set = until_of_day(&follower, 3).await;
    assert_eq!(notices(&set), [""; 0]);
    assert_eq!(hits_of_four(&follower), [3; 4]);
    assert!(follower.mirrored().iter().all(|page| page.1 == "altered"));
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_lastmod_alone_is_a_change() {
    let list = |at: &str, day: &str| {
        let lastmod = |day: &str| format!("<lastmod>2026-02-{day}T00:00:00Z</lastmod>");
        let entries = entry("/a", &lastmod(day)) + &entry("/b", &lastmod("01"));
        let md = format!("capability=\"resourcelist\" at=\"2026-03-{at}T00:00:00Z\"");
        document("urlset", &md, &entries)
    };
    let site = without_change_list(&list("01", "01")).await;
    site.put("/a", "a");
    site.put("/b", "b");
    let follower = Follower::start(site).await;
    follower.until_mirrored(&[("/a", "a"), ("/b", "b")]).await;
    let hits = follower.site.hits("/b");
    follower.site.put("/a", "altered");
    follower.site.put("/list.xml", &list("02", "03"));
    follower.poll().await;
    follower
        .until_mirrored(&[("/a", "altered"), ("/b", "b")])
        .await;
    assert_eq!(
        follower.site.hits("/b"),
        hits,
        "unchanged resource is not fetched"
    );
    follower.until_oddities(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn elements_in_any_order_are_read() {
    let text = "text";
    let digest = Digest::of(Algorithm::Sha256, text.as_bytes());
    let entries = format!(
        "<url><rs:md hash=\"{digest}\"/><rs:ln rel=\"describedby\" href=\"/about\"/>
         <lastmod>2026-02-01T00:00:00Z</lastmod><loc>{{site}}/a</loc>
         <rs:md length=\"{}\" type=\"text/plain\"/></url>",
        text.len()
    );
    let list = resource_list(&entries);
    // In the head, `rs:md` before `rs:ln`.
    let (up, md) = (list.find("<rs:ln").unwrap(), list.find("<rs:md").unwrap());
    let end = list[md..].find("/>").unwrap() + md + 2;
    let list = format!(
        "{}{}{}{}",
        &list[..up],
        &list[md..end],
        &list[up..md],
        &list[end..]
    );
    let site = Site::with_lists(&list).await;
    site.put("/a", text);
    let follower = Follower::start(site).await;
    follower.until_mirrored(&[("/a", text)]).await;
    follower
        .until_oddities(&["/list.xml relative-uri=1", "/list.xml several-metadata=1"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn digests_in_any_encoding_are_checked() {
    let of = |algorithm, text: &str| Digest::of(algorithm, text.as_bytes());
    let md5 = |text: &str| of(Algorithm::Md5, text);
    let sha = |text: &str| of(Algorithm::Sha256, text);
    let hashed = |path: &str, hash: &str| {
        let md = format!("<lastmod>2026-02-01T00:00:00Z</lastmod><rs:md hash=\"{hash}\"/>");
        entry(path, &md)
    };
    let base64 = format!("md5:{}", STANDARD.encode(md5("base64").bytes()));
    let for_urls = format!("SHA256:{}", URL_SAFE_NO_PAD.encode(sha("urls").bytes()));
    let several = format!(
        "{}\n      {}\tcrc32:1234abcd",
        md5("several"),
        sha("several")
    );
    let unknown = "blake3:af1349b9f5f9a1a6a0404dea36dcc949 xxh64:1";
    let wrong = format!("md5:{}", STANDARD.encode(md5("another").bytes()));
    let entries = [
        hashed("/base64", &base64),
        hashed("/several", &several),
        hashed("/unknown", unknown),
        hashed("/urls", &for_urls),
        hashed("/wrong", &wrong),
    ];
    let site = Site::with_lists(&resource_list(&entries.concat())).await;
    for name in ["base64", "several", "unknown", "urls", "wrong"] {
        site.put(&format!("/{name}"), name);
    }
    let follower = Follower::start(site).await;
    let set = follower
        .until("one digest mismatch", |set| {
            // It is tried for half a minute, and then given up.
            (set.resources, set.pending + set.failed) == (4, 1) && set.error.is_some()
        })
        .await;
    assert_eq!(set.error.unwrap().code, "digest-mismatch");
    follower
        .until_oddities(&["/list.xml digest-encoding=3", "/list.xml unknown-digest=3"])
        .await;
    follower.site.put("/wrong", "another");
    follower.retry().await;
    let names = ["/base64", "/several", "/unknown", "/urls", "/wrong"];
    let pages = names.map(|name| (name, name.trim_start_matches('/')));
    let pages = pages.map(|(path, text)| (path, if path == "/wrong" { "another" } else { text }));
    follower.until_mirrored(&pages).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn loc_with_white_space_or_without_host_is_resolved() {
    let entries = [
        "<url><loc>\n      {site}/a\n    </loc></url>",
        "<url><loc>{site}\n      /deep/\n      b</loc></url>",
        "<url><loc>/c</loc><rs:ln rel=\"describedBy\" href=\"about/c\"/></url>",
        "<url><loc>d</loc></url>",
        "<url><loc>{site}/e f</loc></url>",
        "<url><loc>   </loc></url>",
    ];
    let site = Site::with_lists(&resource_list(&entries.concat())).await;
    let pages = [
        ("/a", "a"),
        ("/c", "c"),
        ("/d", "d"),
        ("/deep/b", "b"),
        ("/e%20f", "f"),
    ];
    pages.iter().for_each(|(path, text)| site.put(path, text));
    let follower = Follower::start(site).await;
    let set = follower.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 5
    });
    assert_eq!(set.await.error.unwrap().code, "bad-entries");
    follower
        .until_oddities(&["/list.xml bad-loc=1", "/list.xml relative-uri=3"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_markup_is_ignored() {
    let list = resource_list(
        "<!-- a > comment --><i:all xmlns:i=\"http://example.com/i\"><i:url><i:loc>{site}/no</i:loc></i:url></i:all>
         <url><i:image xmlns:i=\"http://example.com/i\"><i:loc>{site}/no</i:loc><loc>{site}/no</loc></i:image>
         <loc>{site}/<!-- in the middle -->a</loc><priority>0.5</priority><changefreq>daily</changefreq>
         <rs:md i:change=\"deleted\" xmlns:i=\"http://example.com/i\" type=\"text/plain\"/></url>",
    );
    let list = format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<?xml-stylesheet type=\"text/xsl\" href=\"/style.xsl\"?>\n<!-- made by hand -->\n{list}<!-- the end -->\n"
    );
    let site = Site::with_lists(&list).await;
    site.put("/a", "a");
    let follower = Follower::start(site).await;
    follower.until_mirrored(&[("/a", "a")]).await;
    follower.until_oddities(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gzip_is_recognized_by_name_or_header_alone() {
    let site = Site::with_lists("").await;
    let lists = [
        ("resourcelist", "/list.xml.gz"),
        ("changelist", "/changes.xml"),
    ];
    site.put("/capabilities.xml", &capability_list(&lists));
    site.put_gzip("/list.xml.gz", &resource_list(&listed("/a")), false);
    let changes = change_list(&changed("/b", "created", "02T00:00:00"));
    site.put_gzip("/changes.xml", &changes, true);
    site.put("/a", "a");
    site.put_gzip("/b", "mirrored as it is served", false);
    let follower = Follower::start(site).await;
    let set = follower.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 2
    });
    assert!(set.await.error.is_none());
    follower.until_oddities(&[]).await;
    follower.site.put("/b", "b");
    let changes = change_list(&changed("/b", "updated", "02T00:00:01"));
    follower.site.put_gzip("/changes.xml", &changes, true);
    follower.poll().await;
    follower.until_mirrored(&[("/a", "a"), ("/b", "b")]).await;
}

/// Follows an index of two lists, one of which may be in an inner index.
async fn check_index(index: &str, oddities: &[&str]) {
    let site = without_change_list(index).await;
    let md = "capability=\"resourcelist\" at=\"2026-03-01T00:00:00Z\"";
    let part = entry("/2.xml", "<rs:md at=\"2026-03-01T00:00:00Z\"/>");
    let inner = document("sitemapindex", md, &part.replace("url>", "sitemap>"));
    site.put("/inner.xml", &inner);
    site.put("/1.xml", &resource_list(&listed("/a")));
    site.put("/2.xml", &resource_list(&(listed("/b") + &listed("/c"))));
    let pages = [("/a", "a"), ("/b", "b"), ("/c", "c")];
    pages.iter().for_each(|(path, text)| site.put(path, text));
    let follower = Follower::start(site).await;
    follower.until_mirrored(&pages).await;
    follower.until_oddities(oddities).await;

    // Only absence from all lists deletes.
    let newer = |page: &str| page.replace("2026-03-01", "2026-03-04");
    let site = &follower.site;
    site.put("/list.xml", &newer(index));
    site.put("/inner.xml", &newer(&inner));
    site.put("/1.xml", &newer(&resource_list(&listed("/b"))));
    site.put("/2.xml", &newer(&resource_list(&listed("/c"))));
    follower.poll().await;
    follower.until_mirrored(&pages[1..]).await;
    follower.until_oddities(oddities).await;
}

fn index(root: &str, paths: [&str; 2], md: &str) -> String {
    let parts = paths.map(|path| entry(path, md)).concat();
    let md = "capability=\"resourcelist\" at=\"2026-03-01T00:00:00Z\"";
    let name = if root == "urlset" { "url>" } else { "sitemap>" };
    document(root, md, &parts.replace("url>", name))
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_resource_lists_is_followed() {
    let times = "<rs:md at=\"2026-03-01T00:00:00Z\"/>";
    check_index(&index("sitemapindex", ["/1.xml", "/2.xml"], times), &[]).await;
    // No capability, no times, no link `up`.
    let plain = "<sitemapindex xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"
        xmlns:rs=\"http://www.openarchives.org/rs/terms/\"><rs:md capability=\"resourcelist\" at=\"2026-03-01\"/>
        <sitemap><loc>/1.xml</loc></sitemap><sitemap><loc>/2.xml</loc></sitemap></sitemapindex>";
    check_index(plain, &["/list.xml no-up=1", "/list.xml relative-uri=2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_resource_lists_as_a_urlset_is_followed() {
    let md = "<rs:md capability=\"resourcelist\"/>";
    let index = index("urlset", ["/1.xml", "/2.xml"], md);
    check_index(&index, &["/list.xml index-as-urlset=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_indexes_is_followed() {
    let index = index("sitemapindex", ["/1.xml", "/inner.xml"], "");
    check_index(&index, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_as_a_urlset_without_capabilities_is_followed() {
    for (times, oddities) in [
        (
            "<rs:md at=\"2026-03-01T00:00:00Z\"/>",
            &["/list.xml index-as-urlset=1"][..],
        ),
        (
            "<rs:md at=\"\"/>",
            &["/list.xml bad-datetime=2", "/list.xml index-as-urlset=1"],
        ),
    ] {
        let index = index("urlset", ["/1.xml", "/2.xml"], times);
        check_index(&index, oddities).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_with_names_of_documents_are_resources() {
    let list = resource_list(&(entry("/a.xml", "") + &entry("/b.xml", "")));
    let site = without_change_list(&list).await;
    site.put("/a.xml", "<a/>");
    site.put("/b.xml", "<b/>");
    let follower = Follower::start(site).await;
    let set = follower
        .until_mirrored(&[("/a.xml", "<a/>"), ("/b.xml", "<b/>")])
        .await;
    assert_eq!(set.dead_parts, 0);
}

/// A chain of indexes: the Resource List names the first one and itself, each names the next one, and the last one a list.
async fn chain_of_indexes(levels: usize) -> Site {
    let level = |number: usize| format!("/level{number}.xml");
    let first = index("sitemapindex", ["/list.xml", &level(1)], "");
    let site = without_change_list(&first).await;
    for number in 1..levels {
        let next = index("sitemapindex", [&level(number + 1), &level(1)], "");
        site.put(&level(number), &next);
    }
    site.put(&level(levels), &resource_list(&listed("/a")));
    site.put("/a", "a");
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn index_many_levels_deep_that_names_itself_is_read() {
    let follower = Follower::start(chain_of_indexes(10).await).await;
    follower.until_mirrored(&[("/a", "a")]).await;
    follower
        .until_oddities(&["/level1.xml index-ring=1", "/list.xml index-ring=1"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_nested_too_deeply_is_named() {
    let follower = Follower::start(chain_of_indexes(20).await).await;
    let set = follower
        .until("failing", |set| {
            set.state == "failing" && set.error.is_some()
        })
        .await;
    let error = set.error.unwrap();
    assert_eq!((error.code.as_str(), set.dead_parts), ("nested-index", 1));
    assert!(error.message.contains("/level16.xml"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_entry_of_an_index_is_a_dead_part() {
    let md = "capability=\"resourcelist\" at=\"2026-03-01T00:00:00Z\"";
    let parts = entry("/1.xml", "").replace("url>", "sitemap>") + "<sitemap/>";
    let site = without_change_list(&document("sitemapindex", md, &parts)).await;
    site.put("/1.xml", &resource_list(&listed("/a")));
    site.put("/a", "a");
    let follower = Follower::start(site).await;
    until_has(&follower, "/a").await;
    let set = follower
        .until("failing", |set| {
            set.state == "failing" && set.dead_parts == 1
        })
        .await;
    assert_eq!(set.error.unwrap().code, "bad-entries");
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_list_is_read_completely() {
    let others: String = (0..50_000)
        .map(|n| listed(&format!("/others/{n}")))
        .collect();
    let site = Site::with_lists(&resource_list(&(others + &listed("/a")))).await;
    site.put("/a", "a");
    let follower = Follower::start_with(site, "/", |source| {
        source.filter = Filter::matching(&[], &["*/others/*".to_owned()]).unwrap();
    })
    .await;
    follower.until_mirrored(&[("/a", "a")]).await;
    follower
        .until_oddities(&["/list.xml too-many-entries=1"])
        .await;
}

/// Waits until the mirror has a page, possibly among others.
async fn until_has(follower: &Follower, path: &str) {
    let mirror = &follower.destination.config.sources[0].mirror;
    eventually(path, Some(follower.destination.wakes()), async || {
        let found = files(mirror);
        let is_there = found.keys().any(|name| name.ends_with(path));
        is_there.then_some(()).ok_or(format!("{:?}", found.keys()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_part_of_an_index_does_not_delay_later_parts() {
    let md = "capability=\"resourcelist\" at=\"2026-03-01T00:00:00Z\"";
    let parts = ["/1.xml", "/2.xml", "/3.xml"];
    let parts = parts.map(|path| entry(path, "")).concat();
    let index = document("sitemapindex", md, &parts.replace("url>", "sitemap>"));
    let site = without_change_list(&index).await;
    site.put("/1.xml", &resource_list(&listed("/a")));
    site.put("/3.xml", &resource_list(&listed("/c")));
    for name in ["a", "b", "c"] {
        site.put(&format!("/{name}"), name);
    }
    let follower = Follower::start(site).await;
    until_has(&follower, "/a").await;
    until_has(&follower, "/c").await;
    let set = follower
        .until("error reported", |set| {
            set.error
                .as_ref()
                .is_some_and(|error| error.code == "not-found")
        })
        .await;
    assert_eq!(set.synced_until, None, "the baseline is incomplete");
    // It will not be back within seconds, and all parts are requested with it.
    let micros = |text: &Option<String>| text.as_ref().map(|text| time(text).micros());
    follower
        .until("next poll at the poll interval", |set| {
            let times = micros(&set.next_poll_at).zip(micros(&set.last_poll_at));
            times.is_some_and(|(next, last)| next - last > 600_000_000)
        })
        .await;
    follower.site.put("/2.xml", &resource_list(&listed("/b")));
    follower.poll().await;
    follower
        .until_mirrored(&[("/a", "a"), ("/b", "b"), ("/c", "c")])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_in_a_list_with_a_constant_at_are_applied() {
    let list = |time: &str| {
        let md = "capability=\"resourcelist\" at=\"2020-01-01T00:00:00Z\"";
        let lastmod = format!("<lastmod>{time}</lastmod>");
        document("urlset", md, &entry("/a", &lastmod))
    };
    let site = without_change_list(&list("2026-02-01T00:00:00Z")).await;
    site.put("/a", "a");
    let follower = Follower::start(site).await;
    follower.until_mirrored(&[("/a", "a")]).await;
    follower.site.put("/a", "altered");
    follower
        .site
        .put("/list.xml", &list("2026-03-01T00:00:00Z"));
    follower.poll().await;
    follower.until_mirrored(&[("/a", "altered")]).await;
}
