//! Change Lists in any order, with any times or without times.

use crate::documents::site::{
    Follower, Site, capability_list, change_list, changed, document, entry, listed, resource_list,
};
use crate::support::{Destination, eventually};

/// Follows two Sources: one publishes this list before it is followed, the other one afterwards.
async fn check(changes: &str, oddities: &[&str]) {
    let site = Site::with_lists(&resource_list(&(listed("/gone") + &listed("/kept")))).await;
    site.put("/kept", "kept");
    site.put("/again", "again");
    site.put("/changed", "changed");
    let now = [
        ("/again", "again"),
        ("/changed", "changed"),
        ("/kept", "kept"),
    ];
    site.put("/changes.xml", changes);
    let follower = Follower::start(site).await;
    follower.until_mirrored(&now).await;
    follower.until_oddities(oddities).await;

    let site = Site::with_lists(&resource_list(&(listed("/gone") + &listed("/kept")))).await;
    site.put("/kept", "kept");
    site.put("/gone", "gone");
    let follower = Follower::start(site).await;
    follower
        .until_mirrored(&[("/gone", "gone"), ("/kept", "kept")])
        .await;
    let site = &follower.site;
    site.remove("/gone");
    site.put("/again", "again");
    site.put("/changed", "changed");
    site.put("/changes.xml", changes);
    follower.poll().await;
    follower.until_mirrored(&now).await;
    follower.until_oddities(oddities).await;
}

/// Changes ordered by time: one resource is deleted and created again, another one is deleted.
fn history() -> Vec<String> {
    vec![
        changed("/again", "created", "02T00:00:00"),
        changed("/changed", "created", "02T01:00:00"),
        changed("/again", "deleted", "02T02:00:00"),
        changed("/changed", "updated", "02T03:00:00"),
        changed("/gone", "updated", "02T04:00:00"),
        changed("/again", "created", "02T05:00:00"),
        changed("/gone", "deleted", "02T06:00:00"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn order_by_time_is_not_an_oddity() {
    check(&change_list(&history().concat()), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_newest_first_has_the_same_result() {
    let mut history = history();
    history.reverse();
    check(
        &change_list(&history.concat()),
        &["/changes.xml newest-first=1"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_grouped_by_kind_of_change_has_the_same_result() {
    let mut history = history();
    history.sort_by_key(|entry| entry.contains("deleted"));
    history.sort_by_key(|entry| !entry.contains("created"));
    check(
        &change_list(&history.concat()),
        &["/changes.xml unordered=1"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_at_random_has_the_same_result() {
    let history = history();
    let shuffled: String = [5, 0, 6, 3, 1, 4, 2]
        .map(|n: usize| history[n].as_str())
        .concat();
    check(&change_list(&shuffled), &["/changes.xml unordered=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_within_one_second_is_that_of_the_document_in_either_direction() {
    let mut history = [
        changed("/changed", "created", "02T01:00:00"),
        changed("/again", "created", "02T02:00:00"),
        changed("/again", "deleted", "02T02:00:00"),
        changed("/again", "created", "02T02:00:00"),
        changed("/gone", "created", "02T03:00:00"),
        changed("/gone", "deleted", "02T03:00:00"),
    ];
    check(&change_list(&history.concat()), &[]).await;
    history.reverse();
    check(
        &change_list(&history.concat()),
        &["/changes.xml newest-first=1"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_list_without_from_is_applied() {
    let list = change_list(&history().concat()).replace(" from=\"2026-03-01T00:00:00Z\"", "");
    check(&list, &["/changes.xml no-from=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_list_without_lastmod_is_applied() {
    let dated = |path: &str, change: &str, time: &str| {
        let md = format!("<rs:md change=\"{change}\" datetime=\"2026-03-02T0{time}:00:00Z\"/>");
        entry(path, &md)
    };
    let changes = [
        dated("/changed", "created", "1"),
        dated("/again", "deleted", "2"),
        dated("/again", "created", "3"),
        dated("/gone", "deleted", "4"),
    ];
    check(&change_list(&changes.concat()), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_list_without_any_times_is_applied_in_its_order() {
    let undated = |path: &str, change: &str| entry(path, &format!("<rs:md change=\"{change}\"/>"));
    let changes = [
        undated("/changed", "created"),
        undated("/again", "deleted"),
        undated("/again", "created"),
        undated("/gone", "updated"),
        undated("/gone", "deleted"),
    ];
    check(
        &change_list(&changes.concat()),
        &["/changes.xml no-change-time=5"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_list_without_kinds_of_change_is_applied() {
    let site = Site::with_lists(&resource_list(&listed("/kept"))).await;
    site.put("/kept", "kept");
    let follower = Follower::start(site).await;
    follower.until_mirrored(&[("/kept", "kept")]).await;
    let site = &follower.site;
    site.put("/kept", "altered");
    site.put("/new", "new");
    let lastmod = "<lastmod>2026-03-02T00:00:00Z</lastmod>";
    let changes = entry("/kept", lastmod) + &entry("/new", lastmod);
    site.put("/changes.xml", &change_list(&changes));
    follower.poll().await;
    follower
        .until_mirrored(&[("/kept", "altered"), ("/new", "new")])
        .await;
    follower
        .until_oddities(&["/changes.xml bad-change=2"])
        .await;
}

/// A Change List of an interval in March 2026.
fn part(from: &str, until: Option<&str>, entries: &str) -> String {
    let until = until.map(|until| format!(" until=\"2026-03-{until}T00:00:00Z\""));
    let md = format!(
        "capability=\"changelist\" from=\"2026-03-{from}T00:00:00Z\"{}",
        until.unwrap_or_default()
    );
    document("urlset", &md, entries)
}

async fn check_index(index: &str, oddities: &[&str]) {
    let site = Site::with_lists(&resource_list(&listed("/gone"))).await;
    site.put("/gone", "gone");
    site.put("/new", "new");
    let first = changed("/new", "created", "01T12:00:00");
    site.put("/1.xml", &part("01", Some("02"), &first));
    site.put("/2.xml", &part("02", None, ""));
    let lists = [("resourcelist", "/list.xml"), ("changelist", "/index.xml")];
    site.put("/capabilities.xml", &capability_list(&lists));
    site.put("/index.xml", index);
    let follower = Follower::start(site).await;
    follower
        .until_mirrored(&[("/gone", "gone"), ("/new", "new")])
        .await;
    let site = &follower.site;
    site.remove("/gone");
    site.put(
        "/2.xml",
        &part("02", None, &changed("/gone", "deleted", "02T12:00:00")),
    );
    // Some Sources change the index with every list.
    site.put("/index.xml", &format!("{index}<!-- again -->"));
    follower.poll().await;
    follower.until_mirrored(&[("/new", "new")]).await;
    follower.until_oddities(oddities).await;
}

fn parts(name: &str, md: &str, times: (&str, &str)) -> String {
    let (from, until) = times;
    let first = format!("{from}=\"2026-03-01T00:00:00Z\" {until}=\"2026-03-02T00:00:00Z\"");
    let second = format!("{from}=\"2026-03-02T00:00:00Z\"");
    let part = |path: &str, times: &str| entry(path, &format!("<rs:md {md} {times}/>"));
    (part("/1.xml", &first) + &part("/2.xml", &second)).replace("url>", &format!("{name}>"))
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_change_lists_is_followed() {
    let md = "capability=\"changelist\" from=\"2026-03-01T00:00:00Z\"";
    let parts = parts("sitemap", "", ("from", "until"));
    check_index(&document("sitemapindex", md, &parts), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_change_lists_with_the_newest_first_is_followed() {
    let md = "capability=\"changelist\" from=\"2026-03-01T00:00:00Z\"";
    let parts = parts("sitemap", "", ("from", "until"));
    let second = parts.find("</sitemap>").unwrap() + "</sitemap>".len();
    let parts = format!("{}{}", &parts[second..], &parts[..second]);
    let index = document("sitemapindex", md, &parts);
    check_index(&index, &["/index.xml newest-first=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_change_lists_with_at_for_from_is_followed() {
    let md = "capability=\"changelist\" at=\"2026-03-01T00:00:00Z\"";
    let parts = parts("sitemap", "", ("at", "completed"));
    let index = document("sitemapindex", md, &parts);
    check_index(&index, &["/index.xml wrong-interval=3"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_change_lists_as_a_urlset_is_followed() {
    let md = "capability=\"changelist\" from=\"2026-03-01T00:00:00Z\"";
    let parts = parts("url", "capability=\"changelist\"", ("from", "until"));
    let index = document("urlset", md, &parts);
    check_index(&index, &["/index.xml index-as-urlset=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_change_lists_without_any_times_is_followed() {
    let md = "capability=\"changelist\"";
    let parts = (entry("/1.xml", "") + &entry("/2.xml", "")).replace("url>", "sitemap>");
    check_index(
        &document("sitemapindex", md, &parts),
        &["/index.xml no-from=1"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_indexes_of_change_lists_is_followed() {
    let site = Site::with_lists(&resource_list(&listed("/kept"))).await;
    site.put("/kept", "kept");
    site.put("/new", "new");
    let md = "capability=\"changelist\" from=\"2026-03-01T00:00:00Z\"";
    let inner = parts("sitemap", "", ("from", "until"));
    site.put("/march.xml", &document("sitemapindex", md, &inner));
    let outer = entry("/march.xml", "<rs:md from=\"2026-03-01T00:00:00Z\"/>");
    let outer = document("sitemapindex", md, &outer.replace("url>", "sitemap>"));
    site.put("/changes.xml", &outer);
    site.put("/1.xml", &part("01", Some("02"), ""));
    site.put(
        "/2.xml",
        &part("02", None, &changed("/new", "created", "02T12:00:00")),
    );
    let follower = Follower::start(site).await;
    follower
        .until_mirrored(&[("/kept", "kept"), ("/new", "new")])
        .await;
    follower.until_oddities(&[]).await;
}

/// An entry of an index of Change Lists.
fn named(path: &str, span: (&str, &str)) -> String {
    let (from, until) = span;
    entry(path, &format!("<rs:md from=\"{from}\" until=\"{until}\"/>")).replace("url>", "sitemap>")
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_change_lists_with_an_unreadable_entry_proves_nothing() {
    const FIRST: (&str, &str) = ("2026-03-01T00:00:00Z", "2026-03-03T00:00:00Z");
    const SECOND: (&str, &str) = ("2026-03-03T00:00:00Z", "2026-03-05T00:00:00Z");
    let site = Site::with_lists(&resource_list(&listed("/a"))).await;
    site.put("/a", "a");
    site.put("/b", "b");
    site.put("/c", "c");
    let list = |(from, until), changes: &str| {
        let md = format!("capability=\"changelist\" from=\"{from}\" until=\"{until}\"");
        document("urlset", &md, changes)
    };
    site.put(
        "/1.xml",
        &list(FIRST, &changed("/b", "created", "02T00:00:00")),
    );
    site.put(
        "/2.xml",
        &list(SECOND, &changed("/c", "created", "04T00:00:00")),
    );
    let valid = named("/1.xml", FIRST) + &named("/2.xml", SECOND);
    let invalid = valid.replace("{site}/1.xml", "http://");
    let md = "capability=\"changelist\" from=\"2026-03-01T00:00:00Z\"";
    let nested = document(
        "sitemapindex",
        md,
        &named("/inner.xml", (FIRST.0, SECOND.1)),
    );
    for is_nested in [false, true] {
        let index = document("sitemapindex", md, &invalid);
        if is_nested {
            site.put("/inner.xml", &index);
        }
        site.put("/changes.xml", if is_nested { &nested } else { &index });
        let destination = Destination::start(site.url("/").parse().unwrap(), |_| {}).await;
        eventually("error reported", Some(destination.wakes()), async || {
            let status = destination.operator.status().await;
            let set = status.sources.iter().flat_map(|source| &source.sets).next();
            let error = set.and_then(|set| set.error.as_ref());
            let is_read = set.is_some_and(|set| set.resources == 2);
            match error {
                Some(error) if error.code == "bad-entries" && is_read => {
                    let until = set.unwrap().synced_until.clone().unwrap();
                    assert_eq!(until, FIRST.0);
                    Ok(())
                }
                _ => Err(format!("{status:#?}")),
            }
        })
        .await;
    }
    site.put("/changes.xml", &document("sitemapindex", md, &valid));
    let follower = Follower::start(site).await;
    let set = follower
        .until_mirrored(&[("/a", "a"), ("/b", "b"), ("/c", "c")])
        .await;
    assert_eq!(set.synced_until.unwrap(), SECOND.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_list_with_an_impossible_until_covers_its_entries() {
    let site = Site::with_lists(&resource_list(&listed("/a"))).await;
    site.put("/a", "a");
    site.put("/b", "b");
    let created = changed("/b", "created", "04T00:00:01");
    let md = "capability=\"changelist\" from=\"2026-03-01T00:00:00Z\"";
    let list = document(
        "urlset",
        &format!("{md} until=\"9999-12-31T23:59:59Z\""),
        &created,
    );
    let span = ("2026-03-01T00:00:00Z", "9999-12-31T23:59:59Z");
    let index = document("sitemapindex", md, &named("/1.xml", span));
    site.put("/1.xml", &document("urlset", md, &created));
    for changes in [list, index] {
        site.put("/changes.xml", &changes);
        let url = site.url("/").parse().unwrap();
        let destination = Destination::start(url, |_| {}).await;
        eventually("interval covered", Some(destination.wakes()), async || {
            let status = destination.operator.status().await;
            let set = status.sources.iter().flat_map(|source| &source.sets).next();
            let until = set.and_then(|set| set.synced_until.as_deref());
            if until == Some("2026-03-04T00:00:01Z") {
                Ok(())
            } else {
                Err(format!("{status:#?}"))
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_change_lists_of_a_capability_list_are_read() {
    let site = Site::with_lists(&resource_list(&listed("/a"))).await;
    site.put(
        "/capabilities.xml",
        &capability_list(&[
            ("resourcelist", "/list.xml"),
            ("changelist", "/1.xml"),
            ("changelist", "/2.xml"),
        ]),
    );
    let closed =
        "capability=\"changelist\" from=\"2026-03-01T00:00:00Z\" until=\"2026-03-03T00:00:00Z\"";
    let first = document("urlset", closed, &changed("/b", "created", "02T00:00:00"));
    let open = |changes: &str| {
        let md = "capability=\"changelist\" from=\"2026-03-03T00:00:00Z\"";
        document("urlset", md, changes)
    };
    site.put("/1.xml", &first);
    let created = changed("/c", "created", "04T00:00:00");
    site.put("/2.xml", &open(&created));
    for name in ["a", "b", "c", "d"] {
        site.put(&format!("/{name}"), name);
    }
    let follower = Follower::start(site).await;
    follower
        .until_mirrored(&[("/a", "a"), ("/b", "b"), ("/c", "c")])
        .await;
    let extended = created + &changed("/d", "created", "05T00:00:00");
    follower.site.put("/2.xml", &open(&extended));
    follower.poll().await;
    let set = follower
        .until_mirrored(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d")])
        .await;
    assert_eq!(set.synced_until.unwrap(), "2026-03-05T00:00:00Z");
    assert!(set.gaps.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_in_a_change_list_are_not_resources() {
    let site = Site::with_lists(&resource_list(&listed("/a"))).await;
    site.put("/a", "a");
    let names = ["/1.tar.xz", "/2", "/3", "/4.tar.xz"];
    for name in names {
        site.put(name, "an archive");
    }
    let span = "from=\"2026-03-01T00:00:00Z\" until=\"2026-03-02T00:00:00Z\"";
    let packages = entry("/1.tar.xz", &format!("<rs:md {span}/>"))
        + &entry(
            "/2",
            &format!("<rs:md {span} type=\"application/x-7z-compressed\"/>"),
        )
        + &entry(
            "/3",
            &format!("<rs:md {span} type=\"application/x-tar+xz\"/>"),
        )
        + &entry(
            "/4.tar.xz",
            &format!("<rs:md {span} capability=\"changedump\"/>"),
        );
    let mixed = packages.clone() + &changed("/b", "created", "02T00:00:00");
    site.put("/b", "b");
    site.put("/changes.xml", &change_list(&packages));
    let follower = Follower::start(site).await;
    let unsupported = |set: &resyncd::status::SetStatus| {
        let error = set.error.as_ref();
        set.state == "failing" && error.is_some_and(|error| error.code == "unsupported-package")
    };
    let claimed = Some("2026-03-01T00:00:00Z");
    follower
        .until("unsupported", |set| {
            unsupported(set) && set.synced_until.as_deref() == claimed
        })
        .await;
    follower.site.put("/changes.xml", &change_list(&mixed));
    follower.poll().await;
    let set = follower
        .until("changes applied", |set| {
            unsupported(set) && set.resources == 2
        })
        .await;
    assert_eq!((set.pending, set.failed), (0, 0));
    for name in names {
        assert_eq!(follower.site.hits(name), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn package_of_no_stated_type_in_a_change_list_is_no_resource() {
    let site = Site::with_lists(&resource_list(&listed("/a"))).await;
    site.put("/a", "a");
    site.put("/1", "7z");
    let md = "<rs:md from=\"2026-03-01T00:00:00Z\" until=\"2026-03-02T00:00:00Z\" \
        type=\"application/octet-stream\"/>";
    site.put("/changes.xml", &change_list(&entry("/1", md)));
    let follower = Follower::start(site).await;
    let set = follower
        .until("unsupported", |set| {
            let error = set.error.as_ref();
            error.is_some_and(|error| error.code == "unsupported-package")
        })
        .await;
    assert_eq!((set.state.as_str(), set.resources), ("failing", 1));
    assert_eq!(set.synced_until.as_deref(), Some("2026-03-01T00:00:00Z"));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_index_of_a_closed_change_list_is_a_notice() {
    let site = Site::with_lists(&resource_list(&listed("/a"))).await;
    site.put("/a", "a");
    site.put("/b", "b");
    let md =
        "capability=\"changelist\" from=\"2026-03-01T00:00:00Z\" until=\"2026-03-03T00:00:00Z\"";
    let link = "<rs:ln rel=\"index\" href=\"{site}/absent.xml\"/>";
    let list = document("urlset", md, &changed("/b", "created", "02T00:00:00"));
    site.put(
        "/changes.xml",
        &list.replace("<rs:md", &format!("{link}<rs:md")),
    );
    let follower = Follower::start(site).await;
    let set = follower.until_mirrored(&[("/a", "a"), ("/b", "b")]).await;
    let set = if set.notices.is_empty() {
        follower
            .until("notice", |set| !set.notices.is_empty())
            .await
    } else {
        set
    };
    assert_eq!((set.state.as_str(), set.error), ("in-sync", None));
    assert_eq!(set.notices[0].code, "dead-index");
    assert!(set.notices[0].message.contains("/absent.xml"));
}

/// As alexanarch has them: dated by day, the newest first; one of the day before yesterday appears between the others.
#[tokio::test(flavor = "multi_thread")]
async fn change_that_appears_late_in_a_list_dated_by_day_is_applied() {
    let on = |path: &str, change: &str, day: u32| {
        let inside = format!("<lastmod>2026-03-{day:02}</lastmod><rs:md change=\"{change}\"/>");
        entry(path, &inside)
    };
    let site = Site::with_lists(&resource_list(&(listed("/a") + &listed("/d")))).await;
    for path in ["/a", "/b", "/c", "/d", "/late"] {
        site.put(path, "0");
    }
    let (new, old) = (on("/c", "created", 5), on("/b", "created", 3));
    site.put("/changes.xml", &change_list(&format!("{new}{old}")));
    let follower = Follower::start(site).await;
    let before = [("/a", "0"), ("/b", "0"), ("/c", "0"), ("/d", "0")];
    follower.until_mirrored(&before).await;
    let late = on("/late", "created", 4) + &on("/d", "deleted", 4) + &on("/a", "updated", 4);
    follower.site.put("/a", "1");
    follower
        .site
        .put("/changes.xml", &change_list(&format!("{new}{late}{old}")));
    follower.poll().await;
    let after = [("/a", "1"), ("/b", "0"), ("/c", "0"), ("/late", "0")];
    follower.until_mirrored(&after).await;
}

/// As Heratio has it: a window that moves on, with the deletions after all other changes.
#[tokio::test(flavor = "multi_thread")]
async fn window_of_changes_that_moves_on_is_followed() {
    let site = Site::with_lists(&resource_list(&(listed("/a") + &listed("/d")))).await;
    for path in ["/a", "/b", "/c", "/d"] {
        site.put(path, "0");
    }
    let list = |from: u32, entries: &str| {
        let md = format!("capability=\"changelist\" from=\"2026-03-{from:02}T00:00:00Z\"");
        document("urlset", &md, entries)
    };
    let b = changed("/b", "created", "04T00:00:00");
    site.put("/changes.xml", &list(1, &b));
    let follower = Follower::start(site).await;
    follower
        .until_mirrored(&[("/a", "0"), ("/b", "0"), ("/d", "0")])
        .await;
    let c = changed("/c", "created", "06T00:00:00");
    let d = changed("/d", "deleted", "05T00:00:00");
    follower.site.put("/changes.xml", &list(3, &(b + &c + &d)));
    follower.poll().await;
    let set = follower
        .until_mirrored(&[("/a", "0"), ("/b", "0"), ("/c", "0")])
        .await;
    assert!(set.gaps.is_empty(), "{set:?}");
}

/// As a cache in front of the Source answers that has not expired yet.
#[tokio::test(flavor = "multi_thread")]
async fn former_version_is_not_taken_for_the_announced_one() {
    let former = ("last-modified", "Sun, 01 Feb 2026 00:00:00 GMT");
    // It answers 304 where it is asked with an ETag.
    let headers: [&[_]; 2] = [&[former, ("etag", "\"1\"")], &[former]];
    let list = resource_list(&(listed("/a") + &listed("/b")));
    let site = Site::with_lists(&list).await;
    for (path, headers) in ["/a", "/b"].into_iter().zip(headers) {
        site.put_bytes(path, headers, b"first".to_vec());
    }
    let follower = Follower::start(site).await;
    follower
        .until_mirrored(&[("/a", "first"), ("/b", "first")])
        .await;
    let hits = ["/a", "/b"].map(|path| follower.site.hits(path));
    let now = chrono::Utc::now().format("%Y-%m-%dT%H:%M:%SZ");
    let inside = format!("<lastmod>{now}</lastmod><rs:md change=\"updated\"/>");
    let changes = entry("/a", &inside) + &entry("/b", &inside);
    for path in ["/a", "/b"] {
        // A cache forwards such a request.
        let (asked, newer) = (("cache-control", "no-cache"), [("etag", "\"2\"")]);
        follower
            .site
            .put_variant(path, asked, &newer, b"second".to_vec());
    }
    follower.site.put("/changes.xml", &change_list(&changes));
    follower.poll().await;
    follower
        .until_mirrored(&[("/a", "second"), ("/b", "second")])
        .await;
    let found = ["/a", "/b"].map(|path| follower.site.hits(path));
    assert_eq!(found, hits.map(|before| before + 2));
}
