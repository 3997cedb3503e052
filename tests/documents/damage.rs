//! Documents that are damaged in places, or of other formats: what can be read is mirrored, and what can't be read is counted and
//! deletes nothing.

use resyncd::status::SetStatus;

use crate::documents::site::{
    Follower, Site, capability_list, document, entry, listed, resource_list,
};
use crate::support::eventually;

fn has_error(set: &SetStatus, code: &str) -> bool {
    set.error.as_ref().is_some_and(|error| error.code == code)
}

/// A site with a Resource List and nothing else.
async fn site_of_list(list: &str) -> Site {
    let site = Site::with_lists(list).await;
    let offers = [("resourcelist", "/list.xml")];
    site.put("/capabilities.xml", &capability_list(&offers));
    site
}

/// A Resource List of a later time.
fn later_list(entries: &str) -> String {
    let md = r#"capability="resourcelist" at="2026-03-02T00:00:00Z""#;
    document("urlset", md, entries)
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_entry_loses_only_itself_and_deletes_nothing() {
    let site = site_of_list(&resource_list(&[listed("/a"), listed("/b")].concat())).await;
    for path in ["/a", "/b", "/c", "/d"] {
        site.put(path, path);
    }
    let follower = Follower::start(site).await;
    follower.until_mirrored(&[("/a", "/a"), ("/b", "/b")]).await;
    // The second entry may be /b: nobody can know.
    let entries = [
        listed("/a"),
        entry("/b?x=1&y=2", ""),
        entry(
            "/c",
            "<x:caption xmlns:x=\"x\">R & D&nbsp;caf\u{e9}</x:caption>",
        ),
        entry("/d", "<rs:md\u{a0}type=\"text/plain\"\u{a0}length=\"2\"/>"),
    ];
    let list = later_list(&entries.concat()).replace("{site}", &follower.site.url(""));
    let latin1 = list.chars().map(|c| {
        if c == '\u{e9}' {
            vec![0xe9]
        } else {
            c.to_string().into_bytes()
        }
    });
    let bytes = latin1.collect::<Vec<_>>().concat();
    follower.site.put_bytes("/list.xml", &[], bytes);
    follower.poll().await;
    let mirrored = follower.until("reported", |set| {
        set.resources == 4 && set.pending == 0 && has_error(set, "bad-entries")
    });
    let set = mirrored.await;
    // What the unread entry names is unknown: the list proves nothing.
    assert_eq!((set.state.as_str(), set.unread), ("failing", 1));
    let error = set.error.unwrap();
    assert!(error.message.contains("1 entries"), "{error:?}");
    let expected = ["/list.xml bad-loc=1", "/list.xml bad-markup=5"];
    follower.until_oddities(&expected).await;
    // Repaired, it proves that /b is gone.
    let repaired = [listed("/a"), listed("/c"), listed("/d")].concat();
    follower.site.put("/list.xml", &later_list(&repaired));
    follower.poll().await;
    let left = [("/a", "/a"), ("/c", "/c"), ("/d", "/d")];
    follower.until_mirrored(&left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn part_that_is_repaired_to_its_former_bytes_is_complete_again() {
    let index = |day: &str| {
        let md = format!("capability=\"resourcelist\" at=\"2026-03-{day}T00:00:00Z\"");
        let part = entry("/part.xml", "").replace("url>", "sitemap>");
        document("sitemapindex", &md, &part)
    };
    let site = site_of_list(&index("01")).await;
    let whole = resource_list(&[listed("/a"), listed("/b")].concat());
    site.put("/part.xml", &whole);
    for path in ["/a", "/b"] {
        site.put(path, path);
    }
    let follower = Follower::start(site).await;
    let both = [("/a", "/a"), ("/b", "/b")];
    follower.until_mirrored(&both).await;
    let damaged = [listed("/a"), entry("/b?x=1&y=2", "")].concat();
    follower.site.put("/part.xml", &resource_list(&damaged));
    follower.site.put("/list.xml", &index("02"));
    follower.poll().await;
    let set = follower
        .until("reported", |set| has_error(set, "bad-entries"))
        .await;
    assert_eq!((set.state.as_str(), set.unread), ("failing", 1));
    follower.site.put("/part.xml", &whole);
    follower.poll().await;
    assert_eq!(follower.until_mirrored(&both).await.unread, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn latin1_document_is_read_in_the_encoding_that_it_declares() {
    let site = Site::with_lists("").await;
    site.put("/caf%C3%A9", "coffee");
    let list = resource_list(&listed("/cafX")).replace("{site}", &site.url(""));
    let list = format!("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>{list}");
    let bytes = list
        .bytes()
        .map(|byte| if byte == b'X' { 0xe9 } else { byte });
    site.put_bytes("/list.xml", &[], bytes.collect());
    let follower = Follower::start(site).await;
    follower
        .until("mirrored", |set| set.resources == 1 && set.error.is_none())
        .await;
    follower.until_oddities(&["/list.xml encoding=1"]).await;
}

/// Follows a plain sitemap at this path until so many resources are mirrored.
async fn follow(site: Site, path: &str, resources: u64) -> Follower {
    let follower = Follower::start_at(site, path).await;
    follower
        .until("mirrored", |set| {
            set.resources == resources && set.pending == 0
        })
        .await;
    follower
}

#[tokio::test(flavor = "multi_thread")]
async fn sitemap_without_namespace_is_followed() {
    let site = Site::start().await;
    site.put("/a", "0");
    site.put(
        "/sitemap.xml",
        "<urlset><url><loc>{site}/a</loc></url></urlset>",
    );
    let follower = follow(site, "/sitemap.xml", 1).await;
    let oddities = follower.oddities().await;
    assert!(
        oddities.contains(&"/sitemap.xml namespace-spelling=1".to_owned()),
        "{oddities:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sitemap_entries_in_a_urlset_are_documents_and_not_resources() {
    let site = Site::start().await;
    let part = |path: &str| format!("<sitemap><loc>{{site}}{path}</loc></sitemap>");
    let parts = [part("/1.xml"), part("/2.xml")].concat();
    let urlset = |inside: &str| {
        format!("<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">{inside}</urlset>")
    };
    site.put("/sitemap.xml", &urlset(&parts));
    for path in ["/a", "/b", "/c"] {
        site.put(path, path);
    }
    site.put("/1.xml", &urlset(&[listed("/a"), listed("/b")].concat()));
    site.put("/2.xml", &urlset(&listed("/c")));
    let follower = follow(site, "/sitemap.xml", 3).await;
    let oddities = follower.oddities().await;
    assert!(
        oddities.contains(&"/sitemap.xml mixed-entries=1".to_owned()),
        "{oddities:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn text_sitemap_is_followed() {
    let site = Site::start().await;
    for path in ["/a", "/b"] {
        site.put(path, path);
    }
    site.put("/sitemap.txt", "\u{feff}{site}/a\r\n{site}/b\r\n");
    let follower = follow(site, "/sitemap.txt", 2).await;
    let oddities = follower.oddities().await;
    assert!(
        oddities.contains(&"/sitemap.txt uri-list=1".to_owned()),
        "{oddities:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_is_said_to_be_unsupported() {
    let site = Site::start().await;
    site.put(
        "/feed.xml",
        "<rss version=\"2.0\"><channel><title>News</title></channel></rss>",
    );
    let follower = Follower::start_at(site, "/feed.xml").await;
    eventually("reported", Some(follower.destination.wakes()), async || {
        let source = follower
            .destination
            .operator
            .status()
            .await
            .sources
            .remove(0);
        match source.error {
            Some(error) if error.code == "unsupported-feed" && error.message.contains("RSS") => {
                Ok(())
            }
            error => Err(format!("{error:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_elsewhere_than_on_the_web_are_mirrored_from_duplicates_or_counted() {
    let duplicate = "<rs:ln rel=\"duplicate\" href=\"{site}/a\"/>";
    let foreign = |inside: &str| format!("<url><loc>ftp://example.com/a</loc>{inside}</url>");
    let (b, c) = (listed("/b"), listed("/c"));
    let first = format!("{}{b}{c}", foreign(duplicate));
    let site = site_of_list(&resource_list(&first)).await;
    for name in ["/a", "/b", "/c"] {
        site.put(name, "0");
    }
    let follower = Follower::start(site).await;
    let all = [("/a", "0"), ("/b", "0"), ("/c", "0")];
    follower.until_mirrored(&all).await;
    follower.until_oddities(&["/list.xml scheme-ftp=1"]).await;
    // What can't be mirrored is counted, and does not keep the list from proving what is gone.
    let later = format!("{}{c}", foreign(""));
    follower.site.put("/list.xml", &later_list(&later));
    follower.poll().await;
    follower.until_mirrored(&[("/c", "0")]).await;
    follower.until_oddities(&["/list.xml scheme-ftp=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_values_and_dates_that_stand_for_none_are_reported() {
    let md = "<rs:md hash=\"\" length=\"\" completed=\"2026-01-01\" at=\"2026-01-02\"/>";
    let inside = format!("<lastmod>-0001-11-30T00:00:00+00:00</lastmod>{md}");
    let site = Site::with_lists(&resource_list(&entry("/a", &inside))).await;
    site.put("/a", "0");
    let follower = Follower::start(site).await;
    follower.until_mirrored(&[("/a", "0")]).await;
    follower
        .until_oddities(&[
            "/list.xml completed-before-at=1",
            "/list.xml empty-hash=1",
            "/list.xml empty-length=1",
            "/list.xml zero-date=1",
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_in_place_of_a_document_is_reported_with_its_title() {
    let site = Site::with_lists(&resource_list(&listed("/a"))).await;
    site.put("/a", "0");
    let follower = Follower::start(site).await;
    follower.until_mirrored(&[("/a", "0")]).await;
    let page = "<html><head><meta charset=utf-8><title>Please\n sign in</title></head><body>";
    follower.site.put("/changes.xml", page);
    follower.poll().await;
    let set = follower
        .until("reported", |set| has_error(set, "html-page"))
        .await;
    let message = set.error.unwrap().message;
    let expected =
        "received an HTML page in place of a document, with the title \"Please sign in\"";
    assert!(
        message.contains(expected) && message.contains("/changes.xml"),
        "{message}"
    );
}
