//! Times in various forms.

use resourcesync::{Algorithm, Digest};

use crate::documents::site::{Follower, Site, document, entry};

/// Follows a Resource List and a Change List with these times, which must be in this order.
async fn check(times: [&str; 4], oddities: &[&str]) {
    let [baseline, before, changed, later] = times;
    let lastmod = |time: &str| format!("<lastmod>{time}</lastmod>");
    let listed = entry("/a", &lastmod(before)) + &entry("/gone", &lastmod(before));
    let md = format!("capability=\"resourcelist\" at=\"{baseline}\"");
    let site = Site::with_lists(&document("urlset", &md, &listed)).await;
    let change = |path: &str, change: &str, time: &str| {
        let md = format!("<rs:md change=\"{change}\"/>");
        entry(path, &(lastmod(time) + &md))
    };
    let md = format!("capability=\"changelist\" from=\"{baseline}\"");
    let first = change("/b", "created", changed);
    site.put("/changes.xml", &document("urlset", &md, &first));
    site.put("/a", "a");
    site.put("/b", "b");
    site.put("/gone", "gone");
    let follower = Follower::start(site).await;
    follower
        .until_mirrored(&[("/a", "a"), ("/b", "b"), ("/gone", "gone")])
        .await;
    let site = &follower.site;
    site.put("/b", "altered");
    site.remove("/gone");
    let extended = first + &change("/b", "updated", later) + &change("/gone", "deleted", later);
    site.put("/changes.xml", &document("urlset", &md, &extended));
    follower.poll().await;
    follower
        .until_mirrored(&[("/a", "a"), ("/b", "altered")])
        .await;
    follower.until_oddities(oddities).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_with_day_precision_are_accepted() {
    check(
        ["2026-03-02", "2026-03-01", "2026-03-03", "2026-03-04"],
        &[],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_the_day_of_the_baseline_are_not_lost() {
    check(
        ["2026-03-02", "2026-03-01", "2026-03-02", "2026-03-02"],
        &[],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_without_a_zone_are_utc() {
    check(
        [
            "2026-03-02T00:00:00",
            "2026-03-01T12:00:00.25",
            "2026-03-02T12:00:00",
            "2026-03-02T13:00:00",
        ],
        &["/changes.xml datetime-form=4", "/list.xml datetime-form=3"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_with_a_space_are_accepted() {
    check(
        [
            "2026-03-02 00:00:00Z",
            "2026-03-01 12:00:00Z",
            "2026-03-02 12:00:00Z",
            "2026-03-02 13:00:00Z",
        ],
        &["/changes.xml datetime-form=4", "/list.xml datetime-form=3"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_with_an_offset_are_ordered() {
    check(
        [
            "2026-03-02T09:00:00+09:00",
            "2026-03-01T12:00:00+09:00",
            "2026-03-02T10:00:00+09:00",
            "2026-03-02T00:30:00-01:00",
        ],
        &[],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_time_marked_as_utc_is_accepted_and_reported() {
    let in_hours = |hours: i64| {
        let now = resyncd::clock::now().wall + chrono::TimeDelta::hours(hours);
        now.format("%Y-%m-%dT%H:%M:%SZ").to_string()
    };
    // A Source nine hours east of Greenwich.
    let [baseline, before, changed, later] = [7, 6, 8, 9].map(in_hours);
    check(
        [&baseline, &before, &changed, &later],
        &["/changes.xml future-time=3", "/list.xml future-time=2"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_with_day_precision_after_a_baseline_of_that_morning_are_not_lost() {
    let md = "capability=\"resourcelist\" at=\"2026-03-02T10:00:00Z\"";
    let list = document("urlset", md, &entry("/a", "<lastmod>2026-03-01</lastmod>"));
    let site = Site::with_lists(&list).await;
    let put = |site: &Site, changes: &[(&str, &str, &str)]| {
        let entries = changes.iter().map(|(path, change, text)| {
            let hash = Digest::of(Algorithm::Sha256, text.as_bytes());
            let md = format!("<rs:md change=\"{change}\" hash=\"{hash}\"/>");
            site.put(path, text);
            entry(path, &format!("<lastmod>2026-03-02</lastmod>{md}"))
        });
        let entries: String = entries.collect();
        let md = "capability=\"changelist\" from=\"2026-03-02\"";
        site.put("/changes.xml", &document("urlset", md, &entries));
    };
    put(&site, &[]);
    site.put("/a", "a");
    let follower = Follower::start(site).await;
    follower.until_mirrored(&[("/a", "a")]).await;
    let site = &follower.site;
    put(site, &[("/b", "created", "b"), ("/a", "updated", "noon")]);
    follower.poll().await;
    follower
        .until_mirrored(&[("/a", "noon"), ("/b", "b")])
        .await;
    put(
        site,
        &[
            ("/b", "created", "b"),
            ("/a", "updated", "noon"),
            ("/a", "updated", "evening"),
        ],
    );
    follower.poll().await;
    follower
        .until_mirrored(&[("/a", "evening"), ("/b", "b")])
        .await;
}
