//! Baselines from Resource Dumps: few requests, and the same mirror.

use std::io::{Cursor, Write};
use std::time::Duration;

use resyncd::config::Baseline;
use resyncd::demo::{DumpOptions, Fault, MemberFault, PathForm, SampleOptions, SampleSource};
use resyncd::protocol::{Capability, SourceTime};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::support::{NAME, Rig, SET, eventually, files, resources, time};

/// How a document of our own begins.
const HEAD: &str = r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">"#;
const MANIFEST: &str = "capability=\"resourcedump-manifest\"";

const LIST: &str = "/set1/resourcelist.xml";
const DUMP: &str = "/set1/resourcedump.xml";

/// A set with a Resource Dump of packages of ten.
fn dumped(resources_per_set: usize) -> SampleOptions {
    SampleOptions {
        dumps: DumpOptions {
            resource_dump: true,
            entries_per_package: 10,
            contents: false,
            ..DumpOptions::default()
        },
        ..resources(resources_per_set)
    }
}

/// The same, and no Resource List.
fn only_dumped(resources_per_set: usize) -> SampleOptions {
    SampleOptions {
        resource_list: false,
        ..dumped(resources_per_set)
    }
}

fn package(number: usize) -> String {
    format!("/set1/resourcedump-{number:04}.zip")
}

/// How often the first resources of the set were fetched by themselves.
fn single_fetches(rig: &Rig, resources: usize) -> u64 {
    let path = |number| format!("/set1/res/r{number:04}.txt");
    (0..resources)
        .map(|number| rig.source.hits(&path(number)))
        .sum()
}

/// How often the first packages were fetched.
fn package_fetches(rig: &Rig, packages: usize) -> Vec<u64> {
    (0..packages)
        .map(|number| rig.source.hits(&package(number)))
        .collect()
}

/// What lies in the folder of packages.
fn packages_left(rig: &Rig) -> usize {
    let folder = rig.config.sources[0].mirror.join(".resyncd/packages");
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread")]
async fn baseline_from_a_resource_dump_takes_few_requests() {
    let at = SourceTime::from_micros(1_767_398_400_123_456);
    let rig = Rig::start(SampleOptions {
        start: Some(at),
        ..dumped(25)
    })
    .await;
    let set = rig.settled().await;
    assert_eq!((set.resources, set.pending, set.failed), (25, 0, 0));
    assert_eq!(set.error, None);
    assert_eq!(
        set.synced_until.as_deref(),
        Some("2026-01-03T00:00:00.123456Z")
    );
    assert_eq!(package_fetches(&rig, 4), [1, 1, 1, 0]);
    assert_eq!(single_fetches(&rig, 25), 0);
    assert_eq!(rig.source.hits(LIST), 0);
    let lines = rig.operator.changes(0).await;
    assert_eq!(lines.len(), 25);
    assert!(lines.iter().all(|line| line.origin == "resource-dump"));
    let known = rig.operator.resource(&rig.uri("r0003.txt")).await.unwrap();
    assert_eq!(known["type"], "text/plain");
    assert_eq!(packages_left(&rig), 0);

    // From then on it is a set as any other.
    rig.source.update(SET, "r0001.txt", "new");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0001.txt", "new").await;
    assert_eq!(package_fetches(&rig, 3), [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_members_are_published_in_batches() {
    let mut options = dumped(2300);
    options.dumps.entries_per_package = 5000;
    let rig = Rig::start(options).await;
    rig.until("in step", |set| {
        set.state == "in-sync" && set.resources == 2300
    })
    .await;
    rig.assert_mirrored();
    assert_eq!(single_fetches(&rig, 2300), 0);
    assert_eq!(rig.source.hits(&package(0)), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_resource_dumps_is_read_whole() {
    let mut options = only_dumped(35);
    options.dumps.indexed = true;
    let rig = Rig::start(options).await;
    assert_eq!(rig.settled().await.resources, 35);
    assert_eq!(rig.source.hits("/set1/resourcedump-0003.xml"), 1);
    assert_eq!(package_fetches(&rig, 4), [1, 1, 1, 1]);
    assert_eq!(single_fetches(&rig, 35), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_found_however_their_paths_are_written() {
    for paths in [PathForm::NoSlash, PathForm::Local] {
        let mut options = dumped(12);
        options.dumps.paths = paths;
        let rig = Rig::start(options).await;
        rig.settled().await;
        assert_eq!(single_fetches(&rig, 12), 0, "{paths:?}");
    }
}

/// A dump of one package of our own making.
fn put_package(source: &SampleSource, capability: &str, entries: &str, members: &[(&str, &str)]) {
    let at = source.boundary();
    let dump = format!(
        r#"{HEAD}<rs:md capability="resourcedump" at="{at}"/><url><loc>/set1/own.zip</loc></url></urlset>"#
    );
    source.put_document(DUMP, "application/xml", dump);
    let manifest = format!(r#"{HEAD}<rs:md {capability} at="{at}"/>{entries}</urlset>"#);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let manifest = ("manifest.xml", manifest.as_str());
    for (name, text) in [&manifest].into_iter().chain(members) {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    let zip = zip.finish().unwrap().into_inner();
    source.put_document("/set1/own.zip", "application/zip", zip);
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_nothing_proves_is_taken_only_from_where_the_manifest_says() {
    let source = SampleSource::start(only_dumped(3)).await.unwrap();
    let entries = "<url><loc>/set1/res/r0000.txt</loc><rs:md path=\"/a/r0\"/></url>
        <url><loc>/set1/res/r0001.txt</loc><rs:md path=\"/elsewhere/r1\"/></url>
        <url><loc>/set1/res/r0002.txt</loc></url>";
    let members = [
        ("a/r0", "from the package"),
        ("r1", "another's"),
        ("r2", "?"),
    ];
    put_package(&source, MANIFEST, entries, &members);
    let rig = Rig::follow(source, |_| {}).await;
    rig.until("in step", |set| {
        set.state == "in-sync" && set.resources == 3
    })
    .await;
    assert_eq!(rig.mirrored("r0000.txt").unwrap(), b"from the package");
    let state = rig.source.state(SET);
    assert_eq!(
        rig.mirrored("r0001.txt").unwrap(),
        state[&rig.uri("r0001.txt")]
    );
    assert_eq!(
        rig.mirrored("r0002.txt").unwrap(),
        state[&rig.uri("r0002.txt")]
    );
    assert_eq!(single_fetches(&rig, 3), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn manifest_that_is_something_else_is_refused() {
    for (capability, code) in [
        ("capability=\"changelist\"", "wrong-capability"),
        ("", "unproven-manifest"),
    ] {
        let source = SampleSource::start(only_dumped(1)).await.unwrap();
        let entries = "<url><loc>/set1/res/r0000.txt</loc><rs:md path=\"/r0\"/></url>";
        put_package(&source, capability, entries, &[("r0", "from the package")]);
        let rig = Rig::follow(source, |_| {}).await;
        let set = rig.until("told", |set| set.error.is_some()).await;
        assert_eq!(set.error.unwrap().code, code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_wrong_members_are_fetched_by_themselves() {
    let source = SampleSource::start(dumped(25)).await.unwrap();
    source.spoil_member(SET, "r0003.txt", Some(MemberFault::Missing));
    source.spoil_member(SET, "r0014.txt", Some(MemberFault::WrongBytes));
    source.refresh_resource_dump(SET);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    assert_eq!(single_fetches(&rig, 25), 2);
    assert_eq!(rig.source.hits("/set1/res/r0003.txt"), 1);
    assert_eq!(rig.source.hits("/set1/res/r0014.txt"), 1);
    let lines = rig.operator.changes(0).await;
    assert!(lines.iter().all(|line| line.origin == "resource-dump"));
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_that_cannot_be_had_at_all_holds_up_no_other() {
    let source = SampleSource::start(dumped(25)).await.unwrap();
    source.spoil_member(SET, "r0003.txt", Some(MemberFault::Missing));
    source.refresh_resource_dump(SET);
    source.fail("/set1/res/r0003.txt", Fault::Status(404), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig
        .until("one failed", |set| set.failed == 1 && set.resources == 24)
        .await;
    assert_eq!(set.error.unwrap().code, "not-found");
    assert_eq!(package_fetches(&rig, 3), [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_that_was_given_up_is_had_from_the_next_dump() {
    let source = SampleSource::start(only_dumped(5)).await.unwrap();
    source.spoil_member(SET, "r0003.txt", Some(MemberFault::Missing));
    source.refresh_resource_dump(SET);
    source.fail("/set1/res/*", Fault::Status(403), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    // Once from the baseline, and once more when the poll that made it has ended.
    rig.source.wait_for_hits("/set1/res/r0003.txt", 2).await;
    rig.until("one failed", |set| set.failed == 1).await;
    rig.source.spoil_member(SET, "r0003.txt", None);
    rig.source.set_change_list(SET, false);
    rig.source.refresh_resource_dump(SET);
    rig.operator.poll(NAME).await;
    rig.settled().await;
    assert_eq!(rig.source.hits("/set1/res/r0003.txt"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn package_that_is_not_what_was_told_is_not_used() {
    let source = SampleSource::start(dumped(25)).await.unwrap();
    source.fail(&package(1), Fault::WrongBytes, usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    // The Resource List is there: what the first package had is not fetched again.
    assert_eq!(rig.source.hits(LIST), 1);
    assert_eq!(single_fetches(&rig, 25), 15);
    let set = rig.set().await;
    assert_eq!(set.error.unwrap().code, "digest-mismatch");
    assert_eq!(packages_left(&rig), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn package_that_is_of_no_use_is_not_fetched_at_every_poll() {
    let source = SampleSource::start(only_dumped(25)).await.unwrap();
    source.fail(&package(1), Fault::WrongBytes, usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    rig.until("failing", |set| set.state == "failing").await;
    rig.source.wait_for_hits(DUMP, 3).await;
    let set = rig.set().await;
    assert_eq!(set.error.unwrap().code, "digest-mismatch");
    assert_eq!(package_fetches(&rig, 3), [1, 1, 0]);
    // Another version may be a better one.
    rig.source.heal(&package(1));
    rig.source.create(SET, "new.txt", "new");
    rig.source.refresh_resource_dump(SET);
    rig.settled().await;
    assert_eq!(single_fetches(&rig, 25), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn package_that_cannot_be_had_is_tried_again_where_there_is_no_list() {
    let source = SampleSource::start(only_dumped(25)).await.unwrap();
    source.fail(&package(1), Fault::Status(404), 2);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    assert_eq!(set.error.unwrap().code, "not-found");
    rig.settled().await;
    // What was read is not read again.
    assert_eq!(package_fetches(&rig, 3), [1, 3, 1]);
    assert_eq!(single_fetches(&rig, 25), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn package_that_is_cut_short_goes_on_where_it_was() {
    let source = SampleSource::start(dumped(10)).await.unwrap();
    source.fail(&package(0), Fault::Truncated, 1);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    assert_eq!(package_fetches(&rig, 1), [2]);
    assert_eq!(single_fetches(&rig, 10), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_of_a_package_that_is_not_needed_after_all_is_removed() {
    let source = SampleSource::start(dumped(10)).await.unwrap();
    source.fail(&package(0), Fault::Truncated, 1);
    source.fail(&package(0), Fault::Status(404), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    assert_eq!(single_fetches(&rig, 10), 10);
    eventually(
        "nothing is left",
        Some(rig.wakes()),
        async || match packages_left(&rig) {
            0 => Ok(()),
            left => Err(format!("{left} files")),
        },
    )
    .await;
}

/// A dump whose packages are something else.
fn put_unsupported(source: &SampleSource, contents: bool) {
    let link = if contents {
        r#"<rs:ln rel="contents" href="/set1/contents.xml"/>"#
    } else {
        ""
    };
    let at = source.boundary();
    let dump = format!(
        r#"{HEAD}<rs:md capability="resourcedump" at="{at}"/>
        <url><loc>/set1/dump.tar.xz</loc><rs:md type="application/x-xz"/>{link}</url></urlset>"#
    );
    source.put_document(DUMP, "application/xml", dump);
    let entries: String = (0..3)
        .map(|number| {
            format!("<url><loc>/set1/res/r{number:04}.txt</loc><rs:md path=\"/r{number}\"/></url>")
        })
        .collect();
    let manifest = format!(
        r#"{HEAD}<rs:md capability="resourcedump-manifest" at="2020-01-01T00:00:00Z"/>{entries}</urlset>"#
    );
    source.put_document("/set1/contents.xml", "application/xml", manifest);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_package_is_told_and_the_list_is_used() {
    let source = SampleSource::start(dumped(3)).await.unwrap();
    put_unsupported(&source, false);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.settled().await;
    assert_eq!(set.error.unwrap().code, "unsupported-package");
    assert_eq!(rig.source.hits(LIST), 1);
    assert_eq!(rig.source.hits("/set1/dump.tar.xz"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn package_whose_bytes_are_no_zip_file_is_unsupported_too() {
    let source = SampleSource::start(SampleOptions {
        digests: false,
        ..dumped(3)
    })
    .await
    .unwrap();
    put_unsupported(&source, false);
    let dump = format!(
        r#"{HEAD}<rs:md capability="resourcedump" at="2020-01-01T00:00:00Z"/>
        <url><loc>/set1/dump.zip</loc></url></urlset>"#
    );
    source.put_document(DUMP, "application/xml", dump);
    source.put_document(
        "/set1/dump.zip",
        "application/zip",
        &b"\xfd7zXZ\0 and so on"[..],
    );
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.settled().await;
    assert_eq!(set.error.unwrap().code, "unsupported-package");
    assert_eq!(packages_left(&rig), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_unsupported_package_has_is_fetched_by_itself_where_there_is_no_list() {
    let source = SampleSource::start(only_dumped(3)).await.unwrap();
    put_unsupported(&source, true);
    let rig = Rig::follow(source, |_| {}).await;
    assert_eq!(rig.settled().await.resources, 3);
    assert_eq!(single_fetches(&rig, 3), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_packages_alone_are_the_sets_trouble() {
    let source = SampleSource::start(only_dumped(3)).await.unwrap();
    put_unsupported(&source, false);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    assert_eq!(set.error.unwrap().code, "unsupported-package");
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_of_the_manifest_tells_whether_a_package_is_needed() {
    let mut options = only_dumped(35);
    options.dumps.contents = true;
    let mut rig = Rig::start(options).await;
    rig.settled().await;
    assert_eq!(package_fetches(&rig, 4), [1, 1, 1, 1]);

    // One of the first ten is new, six of the next ten, none of the others; one is gone.
    rig.stop_daemon().await;
    rig.source.set_change_list(SET, false);
    rig.source.update(SET, "r0001.txt", "new");
    for number in 10..16 {
        rig.source.update(SET, &format!("r{number:04}.txt"), "new");
    }
    rig.source.delete(SET, "r0034.txt");
    rig.source.refresh_resource_dump(SET);
    rig.start_daemon().await;
    rig.until_mirrored().await;
    rig.until("in step", |set| {
        set.state == "in-sync" && set.resources == 34
    })
    .await;
    assert_eq!(package_fetches(&rig, 4), [1, 2, 1, 1]);
    assert_eq!(single_fetches(&rig, 35), 1);
    let lines = rig.operator.changes(35).await;
    assert_eq!(lines.len(), 8);
    assert!(lines.iter().all(|line| line.origin == "resource-dump"));
}

#[tokio::test(flavor = "multi_thread")]
async fn baseline_is_made_as_the_configuration_wants_it() {
    for (wanted, dump, list, from_dump) in [
        (Baseline::Auto, true, true, true),
        (Baseline::Auto, true, false, true),
        (Baseline::Auto, false, true, false),
        (Baseline::List, true, true, false),
        (Baseline::List, true, false, true),
        (Baseline::Dump, true, true, true),
        (Baseline::Dump, false, true, false),
    ] {
        let mut options = dumped(12);
        options.dumps.resource_dump = dump;
        options.resource_list = list;
        let rig = Rig::start_with(options, |config| config.sources[0].baseline = wanted).await;
        rig.settled().await;
        let case = format!("{wanted:?}, dump: {dump}, list: {list}");
        assert_eq!(rig.source.hits(&package(0)) > 0, from_dump, "{case}");
        assert_eq!(single_fetches(&rig, 12) == 0, from_dump, "{case}");
        assert_eq!(rig.source.hits(LIST) == 0, from_dump, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn set_without_list_and_dump_says_so() {
    let mut options = only_dumped(3);
    options.dumps.resource_dump = false;
    let rig = Rig::start(options).await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    assert_eq!(set.error.unwrap().code, "no-resource-list");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_wanted_is_taken_from_a_package() {
    let rig = Rig::start_with(dumped(12), |config| {
        let exclude = ["*/r0001.txt", "*/r0002.txt"];
        config.sources[0].filter =
            resyncd::config::Filter::matching::<&str>(&[], &exclude).unwrap();
    })
    .await;
    rig.until("in step", |set| {
        set.state == "in-sync" && set.resources == 10
    })
    .await;
    assert_eq!(rig.mirrored("r0001.txt"), None);
    assert_eq!(single_fetches(&rig, 12), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_is_too_large_is_not_taken() {
    let source = SampleSource::start(dumped(3)).await.unwrap();
    source.create(SET, "large.txt", vec![b'x'; 5000]);
    source.refresh_resource_dump(SET);
    let rig = Rig::follow(source, |config| config.limits.resource = Some(1000)).await;
    let set = rig
        .until("one is too large", |set| {
            set.failed == 1 && set.resources == 3
        })
        .await;
    assert_eq!(set.error.unwrap().code, "too-large");
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_come_from_allowed_hosts_only() {
    let rig = Rig::start_with(only_dumped(3), |config| {
        config.sources[0].hosts = vec!["data.example.org".to_owned()];
    })
    .await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    assert_eq!(set.error.unwrap().code, "forbidden-host");
    assert_eq!(package_fetches(&rig, 1), [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_newer_dump_lacks_is_deleted_where_there_is_no_list() {
    let rig = Rig::start_with(
        SampleOptions {
            change_list: false,
            ..only_dumped(25)
        },
        |config| config.sources[0].poll_interval = Duration::from_secs(1),
    )
    .await;
    rig.settled().await;
    let since = rig.operator.last_change().await;
    rig.source.delete(SET, "r0003.txt");
    let at = rig.source.refresh_resource_dump(SET);
    let line = rig.until_told(since, "r0003.txt").await;
    assert_eq!(
        (line.change.as_str(), line.origin.as_str()),
        ("deleted", "resource-dump")
    );
    rig.until_mirrored().await;
    rig.until("in step", |set| {
        set.state == "in-sync"
            && set.resources == 24
            && set.synced_until.as_ref().map(time) >= Some(at)
    })
    .await;
    // The same dump is not read twice.
    let (dumps, packages) = (rig.source.hits(DUMP), package_fetches(&rig, 3));
    rig.source.wait_for_hits(DUMP, dumps + 2).await;
    assert_eq!(package_fetches(&rig, 3), packages);
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_that_cannot_be_read_whole_deletes_nothing() {
    for (what, replace) in [
        ("capability=\"resourcedump\"", ""),
        ("<url>", "<url><loc>http://</loc></url><url>"),
    ] {
        let source = SampleSource::start(SampleOptions {
            change_list: false,
            ..only_dumped(3)
        })
        .await
        .unwrap();
        let rig = Rig::follow(source, |_| {}).await;
        rig.settled().await;
        let gone = rig.mirrored("r0001.txt");
        rig.source.delete(SET, "r0001.txt");
        rig.source.update(SET, "r0002.txt", "new");
        rig.source.refresh_resource_dump(SET);
        let url = rig.source.base().join(DUMP).unwrap();
        let text = crate::support::client().get(url).send().await.unwrap();
        let text = text.text().await.unwrap();
        let odd = text.replacen(what, replace, 1);
        assert_ne!(text, odd, "{what}");
        rig.source.put_document(DUMP, "application/xml", odd);
        rig.operator.poll(NAME).await;
        rig.until_holds("r0002.txt", "new").await;
        rig.until("told", |set| {
            set.state == "in-sync" && set.error.is_some() && set.resources == 3
        })
        .await;
        assert_eq!(rig.mirrored("r0001.txt"), gone, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_in_the_middle_goes_on_with_the_next_package() {
    let source = SampleSource::start(only_dumped(45)).await.unwrap();
    source.fail(&package(2), Fault::Stalled, 1);
    let mut rig = Rig::follow(source, |_| {}).await;
    rig.until("twenty are here", |set| set.resources == 20)
        .await;
    rig.source.wait_for_hits(&package(2), 1).await;
    rig.stop_daemon().await;
    rig.start_daemon().await;
    rig.settled().await;
    assert_eq!(package_fetches(&rig, 5), [1, 1, 2, 1, 1]);
    assert_eq!(single_fetches(&rig, 45), 0);
    assert_eq!(rig.operator.changes(0).await.len(), 45);
    assert_eq!(packages_left(&rig), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_dump_in_the_middle_is_begun_anew() {
    let mut options = only_dumped(25);
    options.dumps.contents = true;
    let source = SampleSource::start(options).await.unwrap();
    source.fail(&package(2), Fault::Stalled, 1);
    let mut rig = Rig::follow(source, |_| {}).await;
    rig.until("twenty are here", |set| set.resources == 20)
        .await;
    rig.source.wait_for_hits(&package(2), 1).await;
    rig.stop_daemon().await;
    rig.source.delete(SET, "r0001.txt");
    rig.source.refresh_resource_dump(SET);
    rig.start_daemon().await;
    rig.settled().await;
    assert_eq!(rig.set().await.resources, 24);
    // What is known is not fetched again: of the second package, one resource is new that was in the third one before.
    assert_eq!(package_fetches(&rig, 2), [1, 1]);
    assert_eq!(single_fetches(&rig, 25), 1);
    assert_eq!(rig.source.hits("/set1/res/r0020.txt"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_during_the_baseline_has_the_last_word() {
    let source = SampleSource::start(only_dumped(25)).await.unwrap();
    source.fail(&package(1), Fault::Slow(Duration::from_secs(1)), 1);
    let rig = Rig::follow(source, |_| {}).await;
    rig.source.wait_for_hits(&package(1), 1).await;
    rig.source.update(SET, "r0012.txt", "newer than the dump");
    rig.source.delete(SET, "r0022.txt");
    rig.source.update(SET, "r0001.txt", "newer, too");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.settled().await;
    assert_eq!(rig.set().await.resources, 24);
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_marked_as_the_list_that_it_stands_for_is_taken() {
    let source = SampleSource::start(only_dumped(12)).await.unwrap();
    let url = source.base().join(DUMP).unwrap();
    let text = crate::support::client().get(url).send().await.unwrap();
    let text = text.text().await.unwrap();
    let odd = text.replace("capability=\"resourcedump\"", "capability=\"resourcelist\"");
    assert_ne!(text, odd);
    source.put_document(DUMP, "application/xml", odd);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    assert_eq!(single_fetches(&rig, 12), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn something_else_in_place_of_the_dump_is_refused() {
    let source = SampleSource::start(only_dumped(3)).await.unwrap();
    let capability = Capability::ChangeList;
    let odd =
        format!(r#"{HEAD}<rs:md capability="{capability}" at="2020-01-01T00:00:00Z"/></urlset>"#);
    source.put_document(DUMP, "application/xml", odd);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    assert_eq!(set.error.unwrap().code, "wrong-capability");
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_is_closed_by_the_list_and_not_by_another_dump() {
    let rig = Rig::start(SampleOptions {
        change_list: false,
        ..dumped(12)
    })
    .await;
    rig.settled().await;
    rig.source.create(SET, "lost.txt", "lost");
    rig.source.notify(SET);
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("a gap", |set| set.state == "gap").await;
    rig.source.refresh_resource_dump(SET);
    rig.source.refresh_resource_list(SET);
    rig.until("closed", |set| set.state == "in-sync").await;
    rig.until_mirrored().await;
    assert_eq!(package_fetches(&rig, 2), [1, 1]);
    assert_eq!(rig.source.hits("/set1/res/lost.txt"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_in_the_middle_of_a_package_does_not_fetch_it_again() {
    let mut options = only_dumped(3000);
    options.dumps.entries_per_package = 5000;
    let mut rig = Rig::start(options).await;
    rig.until("some are here", |set| set.resources > 0).await;
    rig.stop_daemon().await;
    let before = files(&rig.config.sources[0].mirror).len();
    rig.start_daemon().await;
    rig.until("in step", |set| {
        set.state == "in-sync" && set.resources == 3000
    })
    .await;
    rig.assert_mirrored();
    if before < 3000 {
        assert_eq!(rig.source.hits(&package(0)), 2);
        assert_eq!(rig.source.hits_not_modified(&package(0)), 1);
    }
    assert_eq!(packages_left(&rig), 0);
    assert_eq!(rig.operator.changes(0).await.len(), 3000, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_set_has_its_own_dump() {
    let sets = vec!["set1".to_owned(), "set2".to_owned()];
    let mut rig = Rig::start(SampleOptions {
        sets: sets.clone(),
        ..only_dumped(25)
    })
    .await;
    rig.sets = sets;
    rig.settled().await;
    let other = rig
        .until_named("set2", "in step", |set| set.state == "in-sync")
        .await;
    assert_eq!(other.resources, 25);
    rig.until_mirrored().await;
    assert_eq!(single_fetches(&rig, 25), 0);
    assert_eq!(packages_left(&rig), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_that_lacks_much_holds_deletions_back() {
    let mut options = only_dumped(300);
    options.change_list = false;
    options.dumps.entries_per_package = 5000;
    let rig = Rig::start(options).await;
    rig.settled().await;
    for number in 0..150 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.refresh_resource_dump(SET);
    rig.operator.poll(NAME).await;
    rig.until("held back", |set| set.held_deletions == 150)
        .await;
    let (status, body) = rig.operator.post(&format!("/sources/{NAME}/approve")).await;
    assert_eq!(status, 202, "{body}");
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn package_that_is_too_large_is_not_fetched_and_the_list_is_used() {
    let rig = Rig::start_with(dumped(12), |config| config.limits.package = Some(500)).await;
    let set = rig
        .until("in step", |set| {
            set.state == "in-sync" && set.resources == 12
        })
        .await;
    assert_eq!(set.error.unwrap().code, "too-large");
    assert_eq!(single_fetches(&rig, 12), 12);
}
