//! Change Lists in any order, and with any times or none.

use crate::site::{
    Follower, Site, capability_list, change_list, changed, document, entry, listed, resource_list,
};
use crate::support::{Destination, eventually};

/// A Source that has told its changes in this list before it was followed, and tells them after.
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
    follower.holds(&now).await;
    follower.shows(oddities).await;

    let site = Site::with_lists(&resource_list(&(listed("/gone") + &listed("/kept")))).await;
    site.put("/kept", "kept");
    site.put("/gone", "gone");
    let follower = Follower::start(site).await;
    follower
        .holds(&[("/gone", "gone"), ("/kept", "kept")])
        .await;
    let site = &follower.site;
    site.remove("/gone");
    site.put("/again", "again");
    site.put("/changed", "changed");
    site.put("/changes.xml", changes);
    follower.poll().await;
    follower.holds(&now).await;
    follower.shows(oddities).await;
}

/// What happened, in the order of time: one resource went and came again, one went.
fn story() -> Vec<String> {
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
async fn order_as_it_should_be_is_not_odd() {
    check(&change_list(&story().concat()), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_with_the_newest_first_ends_the_same() {
    let mut story = story();
    story.reverse();
    check(
        &change_list(&story.concat()),
        &["/changes.xml newest-first=1"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grouped_by_kind_of_change_ends_the_same() {
    let mut story = story();
    story.sort_by_key(|entry| entry.contains("deleted"));
    story.sort_by_key(|entry| !entry.contains("created"));
    check(&change_list(&story.concat()), &["/changes.xml unordered=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_of_no_kind_ends_the_same() {
    let story = story();
    let shuffled: String = [5, 0, 6, 3, 1, 4, 2]
        .map(|n: usize| story[n].as_str())
        .concat();
    check(&change_list(&shuffled), &["/changes.xml unordered=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_within_one_second_is_that_of_the_document_also_backwards() {
    let mut story = [
        changed("/changed", "created", "02T01:00:00"),
        changed("/again", "created", "02T02:00:00"),
        changed("/again", "deleted", "02T02:00:00"),
        changed("/again", "created", "02T02:00:00"),
        changed("/gone", "created", "02T03:00:00"),
        changed("/gone", "deleted", "02T03:00:00"),
    ];
    check(&change_list(&story.concat()), &[]).await;
    story.reverse();
    check(
        &change_list(&story.concat()),
        &["/changes.xml newest-first=1"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_list_without_from_is_applied() {
    let list = change_list(&story().concat()).replace(" from=\"2026-03-01T00:00:00Z\"", "");
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
    follower.holds(&[("/kept", "kept")]).await;
    let site = &follower.site;
    site.put("/kept", "altered");
    site.put("/new", "new");
    let lastmod = "<lastmod>2026-03-02T00:00:00Z</lastmod>";
    let changes = entry("/kept", lastmod) + &entry("/new", lastmod);
    site.put("/changes.xml", &change_list(&changes));
    follower.poll().await;
    follower
        .holds(&[("/kept", "altered"), ("/new", "new")])
        .await;
    follower.shows(&["/changes.xml bad-change=2"]).await;
}

/// A Change List of some days in March.
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
    follower.holds(&[("/gone", "gone"), ("/new", "new")]).await;
    let site = &follower.site;
    site.remove("/gone");
    site.put(
        "/2.xml",
        &part("02", None, &changed("/gone", "deleted", "02T12:00:00")),
    );
    // Some indexes change with every list, others stay as they are.
    site.put("/index.xml", &format!("{index}<!-- again -->"));
    follower.poll().await;
    follower.holds(&[("/new", "new")]).await;
    follower.shows(oddities).await;
}

fn parts(name: &str, of_each: &str, times: (&str, &str)) -> String {
    let (from, until) = times;
    let first = format!("{from}=\"2026-03-01T00:00:00Z\" {until}=\"2026-03-02T00:00:00Z\"");
    let second = format!("{from}=\"2026-03-02T00:00:00Z\"");
    let part = |path: &str, times: &str| entry(path, &format!("<rs:md {of_each} {times}/>"));
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
    follower.holds(&[("/kept", "kept"), ("/new", "new")]).await;
    follower.shows(&[]).await;
}

/// An entry of an index of Change Lists.
fn named(path: &str, span: (&str, &str)) -> String {
    let (from, until) = span;
    entry(path, &format!("<rs:md from=\"{from}\" until=\"{until}\"/>")).replace("url>", "sitemap>")
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_which_an_entry_cannot_be_read_proves_nothing() {
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
    let whole = named("/1.xml", FIRST) + &named("/2.xml", SECOND);
    let bad = whole.replace("{site}/1.xml", "http://");
    let md = "capability=\"changelist\" from=\"2026-03-01T00:00:00Z\"";
    let nested = document(
        "sitemapindex",
        md,
        &named("/inner.xml", (FIRST.0, SECOND.1)),
    );
    for is_nested in [false, true] {
        let index = document("sitemapindex", md, &bad);
        if is_nested {
            site.put("/inner.xml", &index);
        }
        site.put("/changes.xml", if is_nested { &nested } else { &index });
        let destination = Destination::start(site.url("/").parse().unwrap(), |_| {}).await;
        eventually("told", Some(destination.wakes()), async || {
            let status = destination.operator.status().await;
            let set = status.sources.iter().flat_map(|source| &source.sets).next();
            let told = set.and_then(|set| set.error.as_ref());
            let is_read = set.is_some_and(|set| set.resources == 2);
            match told {
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
    site.put("/changes.xml", &document("sitemapindex", md, &whole));
    let follower = Follower::start(site).await;
    let set = follower
        .holds(&[("/a", "a"), ("/b", "b"), ("/c", "c")])
        .await;
    assert_eq!(set.synced_until.unwrap(), SECOND.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_list_that_ends_in_a_time_that_cannot_be_covers_what_it_tells() {
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
        eventually("covered", Some(destination.wakes()), async || {
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
async fn change_lists_that_stand_side_by_side_are_read_one_after_the_other() {
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
        .holds(&[("/a", "a"), ("/b", "b"), ("/c", "c")])
        .await;
    let more = created + &changed("/d", "created", "05T00:00:00");
    follower.site.put("/2.xml", &open(&more));
    follower.poll().await;
    let set = follower
        .holds(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d")])
        .await;
    assert_eq!(set.synced_until.unwrap(), "2026-03-05T00:00:00Z");
    assert!(set.gaps.is_empty());
}
