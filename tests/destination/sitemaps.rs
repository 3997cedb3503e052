//! Sites without ResourceSync: plain sitemaps are polled.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use resyncd::config::Config;
use resyncd::status::{SetStatus, SourceStatus};
use resyncd_testkit::{Fault, SampleSource};

use crate::support::{NAME, Rig, SET, eventually, files, only_pages, path_of, resources};

pub(super) const SITEMAP: &str = "/sitemap.xml";

/// A sitemap of pages and their times.
pub(super) fn sitemap(source: &SampleSource, head: &str, pages: &[(&str, &str)]) -> String {
    let mut xml = format!(
        r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">{head}"#
    );
    for (page, lastmod) in pages {
        let loc = source.base().join(page).unwrap();
        write!(
            xml,
            "<url><loc>{loc}</loc><lastmod>{lastmod}</lastmod></url>"
        )
        .unwrap();
    }
    xml + "</urlset>"
}

pub(super) fn put(source: &SampleSource, path: &str, text: impl Into<String>) {
    source.put_document(path, "text/plain", text.into());
}

/// A site of these pages. The content of each is its path.
pub(super) async fn site(pages: &[&str]) -> SampleSource {
    let source = SampleSource::start(only_pages()).await.unwrap();
    for path in ["/", "/.well-known/resourcesync"] {
        source.fail(path, Fault::Status(404), usize::MAX);
    }
    for page in pages {
        put(&source, page, *page);
    }
    source
}

pub(super) fn every_second(config: &mut Config) {
    config.sources[0].poll_interval = Duration::from_secs(1);
}

/// A site of four pages in [`SITEMAP`], followed and in sync.
async fn followed() -> Rig {
    let pages = ["/a", "/b", "/c", "/d"];
    let source = site(&pages).await;
    let text = sitemap(&source, "", &FOUR);
    put(&source, SITEMAP, text);
    let rig = Rig::follow(source, every_second).await;
    until(&rig, SITEMAP, "in sync", |set| set.state == "in-sync").await;
    until_files(&rig, &["/a", "/b", "/c", "/d"]).await;
    rig
}

pub(super) const FOUR: [(&str, &str); 4] = [
    ("/a", "2026-01-01"),
    ("/b", "2026-01-02T08:00:00Z"),
    ("/c", "2026-01-03"),
    ("/d", "2026-01-04T00:00:00Z"),
];

async fn sets(rig: &Rig) -> Vec<SetStatus> {
    let status = rig.operator.status().await;
    status
        .sources
        .into_iter()
        .flat_map(|one| one.sets)
        .collect()
}

/// Waits until the set of a sitemap satisfies a condition.
pub(super) async fn until(
    rig: &Rig,
    path: &str,
    what: &str,
    wanted: impl Fn(&SetStatus) -> bool,
) -> SetStatus {
    let uri = rig.source.base().join(path).unwrap();
    eventually(what, Some(rig.wakes()), async || {
        let all = sets(rig).await;
        let found = all.iter().find(|set| set.capability_list == uri.as_str());
        match found {
            Some(set) if wanted(set) => Ok(set.clone()),
            _ => Err(format!("{all:#?}")),
        }
    })
    .await
}

/// Waits until the Source has a state: its sets are followed before its discovery has ended.
async fn until_source(rig: &Rig, state: &str) -> SourceStatus {
    eventually(state, Some(rig.wakes()), async || {
        let source = rig.operator.status().await.sources.remove(0);
        if source.state == state {
            Ok(source)
        } else {
            Err(format!("{source:#?}"))
        }
    })
    .await
}

/// Waits until the mirror holds exactly these pages.
pub(super) async fn until_files(rig: &Rig, pages: &[&str]) {
    let base = rig.source.base();
    let wanted: Vec<String> = pages
        .iter()
        .map(|page| path_of(&base.join(page).unwrap()))
        .collect();
    eventually("pages mirrored", Some(rig.wakes()), async || {
        let found: Vec<String> = files(&rig.config.sources[0].mirror).into_keys().collect();
        if found == wanted {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
}

/// Waits until a page in the mirror has these bytes.
pub(super) async fn until_holds(rig: &Rig, page: &str, bytes: &str) {
    let path = path_of(&rig.source.base().join(page).unwrap());
    eventually("page updated", Some(rig.wakes()), async || {
        let found = files(&rig.config.sources[0].mirror).remove(&path);
        match found {
            Some(found) if found == bytes.as_bytes() => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await;
}

fn hits(rig: &Rig) -> BTreeMap<&'static str, u64> {
    let pages = ["/a", "/b", "/c", "/d"];
    pages
        .into_iter()
        .map(|page| (page, rig.source.hits(page)))
        .collect()
}

/// Publishes a sitemap, and waits until it has been ingested: the next request for it is answered 304.
async fn publish(rig: &Rig, text: String) {
    put(&rig.source, SITEMAP, text);
    let unchanged = rig.source.hits_not_modified(SITEMAP);
    eventually("sitemap ingested", None, async || {
        let now = rig.source.hits_not_modified(SITEMAP);
        if now > unchanged {
            Ok(())
        } else {
            Err(now.to_string())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_sitemap_is_followed_by_lastmod_and_deletes_nothing() {
    let rig = followed().await;
    let set = until(&rig, SITEMAP, "notice shown", |set| !set.notices.is_empty()).await;
    assert_eq!((set.resources, set.channels.len()), (4, 0));
    assert_eq!((&set.error, &set.errors[..]), (&None, &[][..]));
    let notice = &set.notices[0];
    assert_eq!(notice.code, "unstated-capability");
    assert!(notice.message.contains("are not deleted"), "{notice:?}");

    // An unchanged sitemap costs one conditional request per poll.
    let (requests, unchanged) = (
        rig.source.hits(SITEMAP),
        rig.source.hits_not_modified(SITEMAP),
    );
    let before = hits(&rig);
    rig.source.wait_for_hits(SITEMAP, requests + 3).await;
    let (requests, unchanged) = (
        rig.source.hits(SITEMAP) - requests,
        rig.source.hits_not_modified(SITEMAP) - unchanged,
    );
    // Another one may be answered between the two numbers.
    assert!(
        requests <= unchanged + 1,
        "{unchanged} of {requests} answered 304"
    );
    assert_eq!(hits(&rig), before);

    // One page has a new `lastmod`, another is no longer listed, a third has changed without a new `lastmod`.
    for page in ["/b", "/c"] {
        put(&rig.source, page, "new");
    }
    let mut pages = FOUR;
    pages[1].1 = "2026-01-03T10:00:00Z";
    publish(&rig, sitemap(&rig.source, "", &pages[1..])).await;
    until_files(&rig, &["/a", "/b", "/c", "/d"]).await;
    eventually("page fetched", Some(rig.wakes()), async || {
        let found = hits(&rig);
        if found["/b"] > before["/b"] {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    let set = until(&rig, SITEMAP, "in sync", |set| set.state == "in-sync").await;
    assert_eq!(set.resources, 4, "unlisted pages are retained");
    let expected = BTreeMap::from([
        ("/a", before["/a"]),
        ("/b", before["/b"] + 1),
        ("/c", before["/c"]),
        ("/d", before["/d"]),
    ]);
    assert_eq!(
        hits(&rig),
        expected,
        "only the page with a new lastmod is fetched"
    );
}

/// As generators leave it that need a last call, that a time limit ends, or that print their notices.
#[tokio::test(flavor = "multi_thread")]
async fn entries_of_a_sitemap_with_a_damaged_end_are_mirrored_and_delete_nothing() {
    let rig = followed().await;
    for (day, end) in ["", "</urlset>\n<script>track()</script>", "</urlset>\0\0"]
        .into_iter()
        .enumerate()
    {
        let lastmod = format!("2026-02-0{}", day + 1);
        put(&rig.source, "/b", &*lastmod);
        let text = sitemap(&rig.source, "", &[("/a", FOUR[0].1), ("/b", &lastmod)]);
        publish(&rig, text.replace("</urlset>", end)).await;
        until_holds(&rig, "/b", &lastmod).await;
    }
    let set = until(&rig, SITEMAP, "damage shown", |set| {
        let mut oddities = set.oddities.iter();
        set.state == "in-sync" && oddities.any(|oddity| oddity.code == "damaged-end")
    })
    .await;
    assert_eq!((set.resources, set.unread, &set.error), (4, 0, &None));
    until_files(&rig, &["/a", "/b", "/c", "/d"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sitemap_that_loses_its_newest_page_is_still_followed() {
    let rig = followed().await;
    let before = hits(&rig);
    publish(&rig, sitemap(&rig.source, "", &FOUR[..3])).await;
    let mut pages = FOUR;
    pages[0].1 = "2026-01-02T12:00:00Z";
    publish(&rig, sitemap(&rig.source, "", &pages[..3])).await;
    eventually("page fetched", Some(rig.wakes()), async || {
        let found = hits(&rig);
        if found["/a"] > before["/a"] {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    let set = until(&rig, SITEMAP, "in sync", |set| set.state == "in-sync").await;
    assert_eq!(set.error, None);
    assert_eq!(set.notices[0].code, "unstated-capability");
    until_files(&rig, &["/a", "/b", "/c", "/d"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_lastmod_in_the_future_is_a_change() {
    let rig = followed().await;
    let mut pages = FOUR;
    for time in ["2999-01-01", "2999-01-02"] {
        let before = hits(&rig);
        // Such as a local time east of Greenwich that is marked as UTC.
        pages[3].1 = time;
        put(&rig.source, "/d", time);
        publish(&rig, sitemap(&rig.source, "", &pages)).await;
        eventually("page fetched", Some(rig.wakes()), async || {
            let found = hits(&rig);
            if found["/d"] > before["/d"] {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_list_without_at_that_loses_its_newest_resource_is_still_followed() {
    let source = site(&["/a", "/b", "/c", "/d"]).await;
    let head = r#"<rs:md capability="resourcelist"/>"#;
    put(&source, SITEMAP, sitemap(&source, head, &FOUR));
    let rig = Rig::follow(source, every_second).await;
    until(&rig, SITEMAP, "in sync", |set| set.state == "in-sync").await;
    publish(&rig, sitemap(&rig.source, head, &FOUR[1..3])).await;
    let reported = |set: &SetStatus| {
        let code = set.error.as_ref().map(|error| error.code.as_str());
        set.state == "in-sync" && code == Some("older-resource-list")
    };
    // An outdated copy of the list would be the same, so it proves no deletion.
    until(&rig, SITEMAP, "older list reported", reported).await;
    until_files(&rig, &["/a", "/b", "/c", "/d"]).await;
    let mut pages = FOUR;
    pages[2].1 = "2026-01-05";
    publish(&rig, sitemap(&rig.source, head, &pages[1..3])).await;
    until_files(&rig, &["/b", "/c"]).await;
    until(&rig, SITEMAP, "in sync", |set| {
        set.state == "in-sync" && set.error.is_none() && set.resources == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sitemap_of_robots_txt_is_a_set_and_survives_a_restart() {
    let source = site(&["/a", "/b", "/c", "/d"]).await;
    put(
        &source,
        "/robots.txt",
        "Sitemap: /1.xml\nSitemap: /index.xml\n",
    );
    put(&source, "/1.xml", sitemap(&source, "", &FOUR[..2]));
    put(&source, "/2.xml", sitemap(&source, "", &FOUR[2..]));
    put(&source, "/index.xml", index(&source, &["/2.xml"]));
    let mut rig = Rig::follow(source, every_second).await;
    for path in ["/1.xml", "/index.xml"] {
        let set = until(&rig, path, "in sync", |set| set.state == "in-sync").await;
        assert_eq!(set.resources, 2);
    }
    until_files(&rig, &["/a", "/b", "/c", "/d"]).await;
    rig.stop_daemon().await;
    let mut pages = FOUR;
    pages[0].1 = "2026-02-01";
    put(&rig.source, "/a", "changed during downtime");
    put(&rig.source, "/1.xml", sitemap(&rig.source, "", &pages[..2]));
    rig.start_daemon().await;
    until_holds(&rig, "/a", "changed during downtime").await;
    until(&rig, "/1.xml", "in sync", |set| set.state == "in-sync").await;
    assert_eq!(sets(&rig).await.len(), 2);
}

/// A sitemap index of these sitemaps.
fn index(source: &SampleSource, parts: &[&str]) -> String {
    let mut xml =
        r#"<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">"#.to_owned();
    for part in parts {
        let loc = source.base().join(part).unwrap();
        write!(xml, "<sitemap><loc>{loc}</loc></sitemap>").unwrap();
    }
    xml + "</sitemapindex>"
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_sitemap_of_an_index_is_reported_and_does_not_delay_the_others() {
    let source = site(&["/a", "/b", "/c", "/d"]).await;
    let parts = ["/absent.xml", "/page.xml", "/1.xml"];
    put(&source, SITEMAP, index(&source, &parts));
    put(&source, "/page.xml", "<html>not here</html>");
    put(&source, "/1.xml", sitemap(&source, "", &FOUR));
    let rig = Rig::follow(source, every_second).await;
    until_files(&rig, &["/a", "/b", "/c", "/d"]).await;
    // The parts are counted before the poll has failed.
    let set = until(&rig, SITEMAP, "failing", |set| {
        set.dead_parts == 2 && set.state == "failing"
    })
    .await;
    assert_eq!(set.synced_until, None);
    let error = set.error.unwrap();
    assert_eq!(error.code, "not-found");
    for part in ["2 of 3 parts of ", "/absent.xml", "/page.xml"] {
        assert!(error.message.contains(part), "{part}: {error:?}");
    }
    let counts = |set: &SetStatus| -> Vec<(String, u64)> {
        let rows = set.errors.iter();
        rows.map(|row| (row.code.clone(), row.count)).collect()
    };
    assert_eq!(set.errors.len(), 2, "{:?}", set.errors);
    // The Source has no other set.
    let source = until_source(&rig, "failing").await;
    assert_eq!(source.error.unwrap().code, "not-found");
    // What can be read is followed, and not read again while it is unchanged.
    let before = rig.source.downloads("/1.xml");
    let mut pages = FOUR;
    pages[0].1 = "2026-02-01";
    rig.source.fail("/1.xml", Fault::Status(503), usize::MAX);
    until(&rig, SITEMAP, "failing for now", |set| {
        counts(set).contains(&("http-status".to_owned(), 1))
    })
    .await;
    put(&rig.source, "/a", "meanwhile");
    put(&rig.source, "/1.xml", sitemap(&rig.source, "", &pages));
    rig.source.heal("/1.xml");
    until_holds(&rig, "/a", "meanwhile").await;
    assert!(before <= 2, "{before} downloads of an unchanged part");
    // The dead ones are tried again.
    for path in ["/absent.xml", "/page.xml"] {
        put(&rig.source, path, sitemap(&rig.source, "", &FOUR[3..]));
    }
    let set = until(&rig, SITEMAP, "in sync", |set| set.state == "in-sync").await;
    assert_eq!((set.dead_parts, set.error, set.errors.len()), (0, None, 0));
    assert_eq!(rig.operator.status().await.sources[0].state, "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn index_without_a_usable_entry_proves_nothing() {
    let source = site(&["/a"]).await;
    put(&source, SITEMAP, index(&source, &[]));
    let rig = Rig::follow(source, every_second).await;
    let set = until(&rig, SITEMAP, "failing", |set| set.state == "failing").await;
    assert_eq!(set.error.unwrap().code, "empty-index");
    assert_eq!(set.synced_until, None);
    put(&rig.source, SITEMAP, index(&rig.source, &["/1.xml"]));
    put(&rig.source, "/1.xml", sitemap(&rig.source, "", &FOUR[..1]));
    until(&rig, SITEMAP, "in sync", |set| set.state == "in-sync").await;
    until_files(&rig, &["/a"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_sitemap_of_robots_txt_is_a_failing_set_until_it_is_back() {
    let source = site(&["/a", "/b", "/c", "/d"]).await;
    let robots = "Sitemap: /1.xml\nSitemap: /gone.xml\nSitemap: /down.xml\n";
    put(&source, "/robots.txt", robots);
    put(&source, "/1.xml", sitemap(&source, "", &FOUR[..2]));
    source.fail("/down.xml", Fault::Status(503), usize::MAX);
    let mut rig = Rig::follow(source, every_second).await;
    until(&rig, "/1.xml", "in sync", |set| set.state == "in-sync").await;
    for (path, code) in [("/gone.xml", "not-found"), ("/down.xml", "http-status")] {
        let set = until(&rig, path, "failing", |set| set.state == "failing").await;
        assert_eq!(set.error.unwrap().code, code);
    }
    until_source(&rig, "ok").await;
    // The next start knows them, too.
    rig.stop_daemon().await;
    rig.start_daemon().await;
    until(&rig, "/gone.xml", "failing", |set| set.state == "failing").await;
    rig.source.heal("/down.xml");
    put(
        &rig.source,
        "/gone.xml",
        sitemap(&rig.source, "", &FOUR[2..3]),
    );
    put(
        &rig.source,
        "/down.xml",
        sitemap(&rig.source, "", &FOUR[3..]),
    );
    for path in ["/1.xml", "/gone.xml", "/down.xml"] {
        until(&rig, path, "in sync", |set| set.state == "in-sync").await;
    }
    until_files(&rig, &["/a", "/b", "/c", "/d"]).await;
    assert_eq!(sets(&rig).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_sitemap_is_followed_at_any_path() {
    let source = site(&["/a", "/b", "/c", "/d"]).await;
    put(&source, "/deep/map.xml", sitemap(&source, "", &FOUR[..2]));
    put(&source, "/other.xml", sitemap(&source, "", &FOUR[2..]));
    let named = source.base().join("/deep/map.xml").unwrap();
    // At first no document names a sitemap; later robots.txt names another one.
    let rig = Rig::follow(source, |config| {
        every_second(config);
        config.sources[0].sets = vec![named];
    })
    .await;
    until(&rig, "/deep/map.xml", "in sync", |set| {
        set.state == "in-sync"
    })
    .await;
    until_files(&rig, &["/a", "/b"]).await;
    until_source(&rig, "ok").await;
    put(&rig.source, "/robots.txt", "Sitemap: /other.xml");
    let requests = rig.source.hits("/other.xml");
    rig.operator.poll(NAME).await;
    rig.source.wait_for_hits("/other.xml", requests + 1).await;
    let polled = rig.source.hits("/deep/map.xml");
    rig.source.wait_for_hits("/deep/map.xml", polled + 2).await;
    until_files(&rig, &["/a", "/b"]).await;
    assert_eq!(sets(&rig).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn source_without_description_for_now_does_not_become_a_plain_site() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    put(&rig.source, "/page", "a page");
    put(
        &rig.source,
        SITEMAP,
        sitemap(&rig.source, "", &[("/page", "2026-01-01")]),
    );
    for path in ["/", "/.well-known/resourcesync"] {
        rig.source.fail(path, Fault::Status(404), usize::MAX);
    }
    rig.operator.poll(NAME).await;
    eventually("error reported", Some(rig.wakes()), async || {
        let status = rig.operator.status().await;
        let error = status.sources[0].error.clone();
        match error {
            Some(error) if error.code == "no-source-description" => Ok(()),
            error => Err(format!("{error:?}")),
        }
    })
    .await;
    assert!(rig.source.hits(SITEMAP) > 0, "the sitemap was found");
    rig.source.update(SET, "r0000.txt", "still followed");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    assert_eq!(sets(&rig).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn sitemap_that_returns_is_followed_from_its_former_state() {
    let source = site(&["/a", "/b", "/c", "/d"]).await;
    let both = "Sitemap: /1.xml\nSitemap: /2.xml\n";
    put(&source, "/robots.txt", both);
    put(&source, "/1.xml", sitemap(&source, "", &FOUR[..2]));
    put(&source, "/2.xml", sitemap(&source, "", &FOUR[2..]));
    let rig = Rig::follow(source, every_second).await;
    for path in ["/1.xml", "/2.xml"] {
        until(&rig, path, "in sync", |set| set.state == "in-sync").await;
    }
    put(&rig.source, "/robots.txt", "Sitemap: /2.xml");
    rig.operator.poll(NAME).await;
    eventually("one set", Some(rig.wakes()), async || {
        let all = sets(&rig).await;
        if all.len() == 1 {
            Ok(())
        } else {
            Err(format!("{all:#?}"))
        }
    })
    .await;
    let mut pages = FOUR;
    pages[0].1 = "2026-02-01";
    put(&rig.source, "/a", "meanwhile");
    put(&rig.source, "/1.xml", sitemap(&rig.source, "", &pages[..2]));
    put(&rig.source, "/robots.txt", both);
    rig.operator.poll(NAME).await;
    until_holds(&rig, "/a", "meanwhile").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_set_is_followed_although_discovery_fails() {
    let source = site(&["/a", "/b", "/c", "/d"]).await;
    put(&source, SITEMAP, sitemap(&source, "", &FOUR));
    let well_known = "/.well-known/resourcesync";
    source.heal(well_known);
    source.fail(well_known, Fault::Status(503), usize::MAX);
    let named = source.base().join(SITEMAP).unwrap();
    let rig = Rig::follow(source, |config| {
        every_second(config);
        config.sources[0].sets = vec![named];
    })
    .await;
    until(&rig, SITEMAP, "in sync", |set| set.state == "in-sync").await;
    until_files(&rig, &["/a", "/b", "/c", "/d"]).await;
    let source = until_source(&rig, "failing").await;
    assert_eq!(source.error.unwrap().code, "http-status");
}
