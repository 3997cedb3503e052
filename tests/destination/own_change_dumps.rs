//! Change Dumps unlike those of the sample Source: other forms, unreadable entries, impossible times.

use std::time::Duration;

use resourcesync::{Capability, SourceTime};
use resyncd_testkit::SampleSource;

use super::change_dumps::{DUMP, fetches, only_dumped, polled};
use super::packing::{HEAD, gzip, put_zip, tar_of, warc_record};
use crate::support::{NAME, Rig, SET, capability_list, time};

/// Serves a Change Dump with one package written by the test.
pub(super) fn put_package(
    source: &SampleSource,
    capability: &str,
    manifest: &str,
    members: &[(&str, &str)],
) {
    let until = source.boundary();
    let manifest = format!(
        r#"{HEAD}<rs:md capability="changedump-manifest" from="2020-01-01T00:00:00Z" until="{until}"/>{manifest}</urlset>"#
    );
    put_zip(source, "/set1/own.zip", &manifest, members);
    // The dump comes last: whoever polls meanwhile finds no former package at its place, or none.
    let dump = format!(
        r#"{HEAD}<rs:md capability="{capability}" from="2020-01-01T00:00:00Z"/>
        <url><loc>/set1/own.zip</loc><rs:md type="application/zip" until="{until}"/></url></urlset>"#
    );
    source.put_document(DUMP, "application/xml", dump);
}

#[tokio::test(flavor = "multi_thread")]
async fn next_dump_after_a_closed_one_is_found_in_the_index() {
    let rig = polled(only_dumped()).await;
    let source = &rig.source;
    let begin = source.boundary();
    source.advance(Duration::from_secs(1));
    let end = source.boundary();
    let index = r#"<rs:ln rel="index" href="/set1/dumps.xml"/>"#;
    let closed = format!(
        r#"{HEAD}<rs:md capability="changedump" from="2020-01-01T00:00:00Z" until="{end}"/>{index}
        <url><loc>/set1/first.zip</loc><rs:md type="application/zip" until="{end}"/></url></urlset>"#
    );
    let entry = |name: &str, at: SourceTime| {
        format!(
            "<url><loc>/set1/res/{name}</loc><lastmod>{at}</lastmod><rs:md path=\"/{name}\"/></url>"
        )
    };
    let manifest = |md: &str, entries: &str| {
        format!(r#"{HEAD}<rs:md capability="changedump-manifest" {md}/>{entries}</urlset>"#)
    };
    let first = manifest(&format!(r#"until="{end}""#), &entry("first.txt", begin));
    put_zip(source, "/set1/first.zip", &first, &[("first.txt", "1")]);
    source.put_document(DUMP, "application/xml", closed);
    // The next dump is not published yet.
    rig.until_holds("first.txt", "1").await;
    let next = |packages: &str| {
        format!(r#"{HEAD}<rs:md capability="changedump" from="{end}"/>{index}{packages}</urlset>"#)
    };
    let package = |name: &str, at: SourceTime| {
        format!("<url><loc>/set1/{name}.zip</loc><lastmod>{at}</lastmod></url>")
    };
    let sitemap = HEAD.replace("urlset", "sitemapindex");
    let list = format!(
        r#"{sitemap}<rs:md capability="changedump" from="2020-01-01T00:00:00Z"/>
        <sitemap><loc>{DUMP}</loc><rs:md from="2020-01-01T00:00:00Z" until="{end}"/></sitemap>
        <sitemap><loc>/set1/next.xml</loc><rs:md from="{end}"/></sitemap></sitemapindex>"#
    );
    let mut packages = String::new();
    for name in ["second", "third"] {
        source.advance(Duration::from_secs(1));
        let at = source.boundary();
        let member = format!("{name}.txt");
        let manifest = manifest(&format!(r#"from="{end}""#), &entry(&member, at));
        put_zip(
            source,
            &format!("/set1/{name}.zip"),
            &manifest,
            &[(&member, "2")],
        );
        packages.push_str(&package(name, at));
        source.put_document("/set1/next.xml", "application/xml", next(&packages));
        source.put_document("/set1/dumps.xml", "application/xml", list.clone());
        rig.until_holds(&member, "2").await;
        rig.until("in sync", |set| {
            set.state == "in-sync" && set.synced_until.as_ref().map(time) >= Some(at)
        })
        .await;
    }
    for name in ["first", "second", "third"] {
        assert_eq!(source.hits(&format!("/set1/{name}.zip")), 1, "{name}");
        assert_eq!(fetches(&rig, &format!("{name}.txt")), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_labelled_changelist_with_a_manifest_newest_first_is_accepted() {
    let rig = polled(only_dumped()).await;
    let older = rig.source.boundary();
    rig.source.advance(Duration::from_secs(1));
    let newer = rig.source.boundary();
    let manifest = format!(
        r#"<url><loc>/set1/res/r0001.txt</loc><lastmod>{newer}</lastmod><rs:md path="new/r1"/></url>
        <url><loc>/set1/res/r0002.txt</loc><lastmod>{newer}</lastmod><rs:md change="deleted"/></url>
        <url><loc>/set1/res/r0001.txt</loc><lastmod>{older}</lastmod><rs:md path="old/r1"/></url>
        <url><loc>/set1/res/n.txt</loc><lastmod>{older}</lastmod><rs:md change="created" path="old/n"/></url>"#
    );
    let members = [("old/r1", "old"), ("new/r1", "new"), ("old/n", "n")];
    put_package(&rig.source, "changelist", &manifest, &members);
    rig.until_holds("r0001.txt", "new").await;
    rig.until_holds("n.txt", "n").await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 3
    })
    .await;
    assert_eq!(rig.mirrored("r0002.txt"), None);
    let lines = rig.operator.changes(0).await;
    let last = lines.iter().rfind(|line| line.uri == rig.uri("r0001.txt"));
    assert_eq!(last.unwrap().change, "updated");
    assert_eq!((fetches(&rig, "r0001.txt"), fetches(&rig, "n.txt")), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn package_of_a_change_dump_that_is_a_tar_file_is_read() {
    let rig = polled(only_dumped()).await;
    let (source, from) = (&rig.source, "2020-01-01T00:00:00Z");
    let until = source.boundary();
    let manifest = format!(
        r#"{HEAD}<rs:md capability="changedump-manifest" from="{from}" until="{until}"/>
        <url><loc>/set1/res/r0001.txt</loc><lastmod>{until}</lastmod><rs:md change="updated" path="r1"/></url>
        <url><loc>/set1/res/r0002.txt</loc><lastmod>{until}</lastmod><rs:md change="deleted"/></url></urlset>"#
    );
    let tar = gzip(&tar_of(&manifest, &[("r1", "new")]));
    source.put_document("/set1/own.tar.gz", "application/gzip", tar);
    let dump = format!(
        r#"{HEAD}<rs:md capability="changedump" from="{from}"/>
        <url><loc>/set1/own.tar.gz</loc><rs:md type="application/gzip" until="{until}"/></url></urlset>"#
    );
    source.put_document(DUMP, "application/xml", dump);
    let before = fetches(&rig, "r0001.txt");
    rig.until_holds("r0001.txt", "new").await;
    rig.until("deleted", |set| {
        set.state == "in-sync" && set.resources == 2
    })
    .await;
    assert_eq!(rig.mirrored("r0002.txt"), None);
    assert_eq!(fetches(&rig, "r0001.txt"), before);
}

/// Its records state neither deletions nor the times of changes.
#[tokio::test(flavor = "multi_thread")]
async fn change_dump_of_a_warc_without_a_manifest_is_reported_and_not_applied() {
    let rig = polled(only_dumped()).await;
    let source = &rig.source;
    let (uri, until) = (rig.uri("r0001.txt"), source.boundary().to_string());
    let before = rig.mirrored("r0001.txt");
    let warc = warc_record("resource", &uri, &until, "new");
    source.put_document("/set1/own.warc", "application/warc", warc);
    let dump = format!(
        r#"{HEAD}<rs:md capability="changedump" from="2020-01-01T00:00:00Z"/>
        <url><loc>/set1/own.warc</loc><rs:md type="application/warc" until="{until}"/></url></urlset>"#
    );
    source.put_document(DUMP, "application/xml", dump);
    let set = rig.until("reported", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "no-manifest");
    assert_eq!(rig.mirrored("r0001.txt"), before);
}

/// A package with a new version of one resource; returns its interval.
fn put_package_of_update(source: &SampleSource) -> (&'static str, String) {
    let (from, until) = ("2020-01-01T00:00:00Z", source.boundary().to_string());
    let manifest = format!(
        r#"{HEAD}<rs:md capability="changedump-manifest" from="{from}" until="{until}"/>
        <url><loc>/set1/res/r0001.txt</loc><lastmod>{until}</lastmod><rs:md change="updated" path="r1"/></url></urlset>"#
    );
    put_zip(source, "/set1/own.zip", &manifest, &[("r1", "new")]);
    (from, until)
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_in_a_change_list_are_read_as_a_change_dump() {
    let rig = polled(only_dumped()).await;
    let source = &rig.source;
    let (from, until) = put_package_of_update(source);
    let list = format!(
        r#"{HEAD}<rs:md capability="changelist" from="{from}"/>
        <url><loc>/set1/own.zip</loc><rs:md from="{from}" until="{until}"/></url></urlset>"#
    );
    source.put_document("/set1/packages.xml", "application/xml", list);
    let uri = |path: &str| source.base().join(path).unwrap();
    let offers = capability_list(&[
        (&uri("/set1/resourcelist.xml"), Capability::ResourceList),
        (&uri("/set1/packages.xml"), Capability::ChangeList),
    ]);
    source.put_document("/set1/capabilitylist.xml", "application/xml", offers);
    rig.until_holds("r0001.txt", "new").await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.error.is_none() && set.resources == 3
    })
    .await;
    let polls = source.hits("/set1/packages.xml");
    source.wait_for_hits("/set1/packages.xml", polls + 2).await;
    assert_eq!(source.hits("/set1/own.zip"), 1);
    assert_eq!(fetches(&rig, "r0001.txt"), 1, "by the baseline");
}

/// As an index of Change Lists is, and what it names.
#[tokio::test(flavor = "multi_thread")]
async fn index_of_change_dumps_is_fetched_again_only_if_it_has_changed() {
    let rig = polled(only_dumped()).await;
    let source = &rig.source;
    let (from, until) = put_package_of_update(source);
    let dump = format!(
        r#"{HEAD}<rs:md capability="changedump" from="{from}"/>
        <url><loc>/set1/own.zip</loc><rs:md type="application/zip" until="{until}"/></url></urlset>"#
    );
    source.put_document("/set1/own.xml", "application/xml", dump);
    let sitemap = HEAD.replace("urlset", "sitemapindex");
    let index = format!(
        r#"{sitemap}<rs:md capability="changedump" from="{from}"/>
        <sitemap><loc>/set1/own.xml</loc></sitemap></sitemapindex>"#
    );
    source.put_document(DUMP, "application/xml", index);
    rig.until_holds("r0001.txt", "new").await;
    let (polls, unchanged) = (source.hits(DUMP), source.hits_not_modified(DUMP));
    source.wait_for_hits(DUMP, polls + 3).await;
    assert!(source.hits_not_modified(DUMP) > unchanged);
    assert!(source.hits_not_modified("/set1/own.xml") > 0);
    assert_eq!(source.hits("/set1/own.zip"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_dump_of_another_capability_is_rejected() {
    let rig = polled(only_dumped()).await;
    put_package(&rig.source, "resourcelist", "", &[]);
    let set = rig.until("error reported", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "wrong-capability");
    assert_eq!(rig.source.hits("/set1/own.zip"), 0);
}

/// The times of one package: in the dump, in its manifest and in its entry.
struct PackageTimes {
    package: &'static str,
    manifest: &'static str,
    entry: Option<&'static str>,
}

/// Serves a dump of two packages, each with one update: the first has these times, the second is open.
fn put_with_times(
    rig: &Rig,
    round: usize,
    times: &PackageTimes,
    [first, second]: [&str; 2],
) -> SourceTime {
    let source = &rig.source;
    let at = source.update(SET, "r0001.txt", first.to_owned());
    let lastmod = times.entry.map_or(at.to_string(), str::to_owned);
    let later = source.update(SET, "r0002.txt", second.to_owned());
    let put = |number: usize, name: &str, lastmod: &str, md: &str, text: &str| {
        let manifest = format!(
            r#"{HEAD}<rs:md capability="changedump-manifest" {md}/><url><loc>/set1/res/{name}</loc>
            <lastmod>{lastmod}</lastmod><rs:md change="updated" path="/{name}"/></url></urlset>"#
        );
        let path = format!("/set1/times-{round}-{number}.zip");
        put_zip(source, &path, &manifest, &[(name, text)]);
        path
    };
    let begin = r#"from="2020-01-01T00:00:00Z""#;
    let first = put(1, "r0001.txt", &lastmod, times.manifest, first);
    let second = put(2, "r0002.txt", &later.to_string(), begin, second);
    let package_times = times.package;
    let dump = format!(
        r#"{HEAD}<rs:md capability="changedump" {begin}/>
        <url><loc>{first}</loc><lastmod>{at}</lastmod><rs:md type="application/zip" {package_times}/></url>
        <url><loc>{second}</loc><lastmod>{later}</lastmod></url></urlset>"#
    );
    source.put_document(DUMP, "application/xml", dump);
    later
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_times_of_a_package_delay_no_changes() {
    const FAR: &str = r#"from="9998-01-01T00:00:00Z" until="9999-12-31T23:59:59Z""#;
    const ALL: &str = r#"from="0001-01-01T00:00:00Z" until="9999-12-31T23:59:59Z""#;
    const BACKWARDS: &str = r#"from="2025-01-01T00:00:00Z" until="2021-01-01T00:00:00Z""#;
    const FAR_BACK: &str = r#"from="9999-12-31T23:59:59Z" until="0001-01-01T00:00:00Z""#;
    const EMPTY: &str = r#"from="2021-01-01T00:00:00Z" until="2021-01-01T00:00:00Z""#;
    const LONG_AGO: &str = r#"from="1970-01-01T00:00:00Z" until="1971-01-01T00:00:00Z""#;
    let rig = polled(only_dumped()).await;
    let both = |times| (times, times, None);
    let cases = [
        both(FAR),
        (FAR, "", None),
        ("", FAR, None),
        (FAR, FAR, Some("9999-12-31T23:59:59Z")),
        both(ALL),
        ("", ALL, Some("0001-01-01T00:00:00Z")),
        both(BACKWARDS),
        both(FAR_BACK),
        both(EMPTY),
        (EMPTY, "", None),
        ("", LONG_AGO, None),
    ];
    for (round, (package, manifest, entry)) in cases.into_iter().enumerate() {
        let times = PackageTimes {
            package,
            manifest,
            entry,
        };
        let texts = [format!("first {round}"), format!("second {round}")];
        let until = put_with_times(&rig, round, &times, [&texts[0], &texts[1]]);
        rig.operator.poll(NAME).await;
        rig.until_holds("r0002.txt", &texts[1]).await;
        rig.until_holds("r0001.txt", &texts[0]).await;
        let what = format!("covered: {package} {manifest} {entry:?}");
        let set = rig
            .until(&what, |set| {
                let reached = set.synced_until.as_ref().map(time);
                set.state == "in-sync" && reached >= Some(until)
            })
            .await;
        assert_eq!(set.gaps.len(), 0, "{what}");
        let end = time(set.synced_until.unwrap());
        assert!(end <= rig.source.boundary(), "{what}: {end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_with_an_unreadable_entry_proves_nothing() {
    let rig = polled(only_dumped()).await;
    let known = time(rig.set().await.synced_until.unwrap());
    rig.source.create(SET, "lost.txt", "lost");
    let until = rig.source.boundary();
    let at = rig.source.create(SET, "next.txt", "next");
    let end = rig.source.boundary();
    let manifest = format!(
        r#"{HEAD}<rs:md capability="changedump-manifest" until="{end}"/><url><loc>/set1/res/next.txt</loc>
        <lastmod>{at}</lastmod><rs:md change="created" path="/next"/></url></urlset>"#
    );
    put_zip(
        &rig.source,
        "/set1/next.zip",
        &manifest,
        &[("next", "next")],
    );
    let dump = format!(
        r#"{HEAD}<rs:md capability="changedump" from="2020-01-01T00:00:00Z"/>
        <url><loc>http://</loc><rs:md until="{until}"/></url>
        <url><loc>/set1/next.zip</loc><rs:md until="{end}"/></url></urlset>"#
    );
    rig.source.put_document(DUMP, "application/xml", dump);
    rig.until_holds("next.txt", "next").await;
    let set = rig.until("error reported", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "bad-entries");
    assert_eq!(time(set.synced_until.unwrap()), known);
    rig.source.refresh_resource_list(SET);
    rig.until_mirrored().await;
}
