//! Packages of Resource Dumps (section 11): members, and unusable packages.

use resourcesync::{Algorithm, Digest};
use resyncd::clock;
use resyncd::config::Baseline;
use resyncd_testkit::{ChannelHub, Fault, MemberFault, PathForm, SampleOptions, SampleSource};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::packing::{
    DUMP, HEAD, LIST, damage, dumped, gzip, only_dumped, package, package_fetches, packages_left,
    poll_twice, put_zip, single_fetches, tar_of, warc_record,
};
use crate::support::{NAME, Rig, SET, eventually, files};

const MANIFEST: &str = "capability=\"resourcedump-manifest\"";

#[tokio::test(flavor = "multi_thread")]
async fn many_members_are_published_in_batches() {
    let mut options = dumped(2300);
    options.dumps.entries_per_package = 5000;
    let rig = Rig::start(options).await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 2300
    })
    .await;
    rig.assert_mirrored();
    assert_eq!(single_fetches(&rig, 2300), 0);
    assert_eq!(rig.source.hits(&package(0)), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_found_in_every_form_of_path() {
    for paths in [PathForm::NoSlash, PathForm::Local] {
        let mut options = dumped(12);
        options.dumps.paths = paths;
        let rig = Rig::start(options).await;
        rig.settled().await;
        assert_eq!(single_fetches(&rig, 12), 0, "{paths:?}");
    }
}

/// Serves a dump with one package at a path, of which the entry states that type.
fn put_archive(source: &SampleSource, path: &str, media_type: Option<&str>, bytes: Vec<u8>) {
    let at = source.boundary();
    let stated = media_type.map(|it| format!("<rs:md type=\"{it}\"/>"));
    let dump = format!(
        r#"{HEAD}<rs:md capability="resourcedump" at="{at}"/><url><loc>{path}</loc>{}</url></urlset>"#,
        stated.unwrap_or_default()
    );
    source.put_document(DUMP, "application/xml", dump);
    source.put_document(path, "application/octet-stream", bytes);
}

/// A manifest of the first resources of the set, whose members are r0, r1 and so on.
fn manifest_of(source: &SampleSource, resources: usize) -> String {
    let at = source.boundary();
    let entries: String = (0..resources)
        .map(|number| {
            format!("<url><loc>/set1/res/r{number:04}.txt</loc><rs:md path=\"/r{number}\"/></url>")
        })
        .collect();
    format!(r#"{HEAD}<rs:md {MANIFEST} at="{at}"/>{entries}</urlset>"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_that_are_tar_files_are_read() {
    for (path, media_type, pack) in [
        ("/set1/own.tar", Some("application/x-tar"), None),
        ("/set1/own.tgz", None, Some(gzip as fn(&[u8]) -> Vec<u8>)),
        ("/set1/own", Some("application/gzip"), Some(gzip)),
        ("/set1/own.tar.zst", Some("application/zstd"), Some(zstd)),
        ("/set1/own", Some("application/octet-stream"), Some(zstd)),
    ] {
        let source = SampleSource::start(only_dumped(3)).await.unwrap();
        let members = [("r0", "zero"), ("r1", "one"), ("r2", "two")];
        let tar = tar_of(&manifest_of(&source, 3), &members);
        let bytes = pack.map_or(tar.clone(), |pack| pack(&tar));
        put_archive(&source, path, media_type, bytes);
        let rig = Rig::follow(source, |_| {}).await;
        let set = rig
            .until("in sync", |set| {
                set.state == "in-sync" && set.resources == 3
            })
            .await;
        assert!(set.error.is_none(), "{path} {media_type:?}: {set:#?}");
        assert_eq!(rig.mirrored("r0001.txt").unwrap(), b"one", "{path}");
        assert_eq!(single_fetches(&rig, 3), 0, "{path}");
        assert_eq!(rig.source.hits(path), 1, "{path}");
        assert_eq!(packages_left(&rig), 0, "{path}");
    }
}

/// The records of a WARC with resources of these names and bytes.
fn warc_of(source: &SampleSource, kind: &str, resources: &[(&str, &str)]) -> Vec<Vec<u8>> {
    let at = source.boundary().to_string();
    let record = |(name, text): &(&str, &str)| {
        let uri = source.base().join(&format!("/set1/res/{name}")).unwrap();
        let block = match kind {
            "response" => format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\n\r\n",
                text.len()
            ),
            _ => (*text).to_owned(),
        };
        warc_record(kind, uri.as_str(), &at, &block)
    };
    resources.iter().map(record).collect()
}

const RESOURCES: [(&str, &str); 3] = [
    ("r0000.txt", "zero"),
    ("r0001.txt", "one"),
    ("r0002.txt", "two"),
];

#[tokio::test(flavor = "multi_thread")]
async fn packages_that_are_warc_files_are_read() {
    for (kind, path, is_packed) in [
        ("resource", "/set1/own.warc", false),
        ("response", "/set1/own.warc.gz", true),
    ] {
        let source = SampleSource::start(only_dumped(3)).await.unwrap();
        let mut records = warc_of(&source, kind, &RESOURCES);
        let manifest = manifest_of(&source, 3);
        let at = source.boundary().to_string();
        let uri = "http://example.org/manifest.xml";
        records.insert(0, warc_record("resource", uri, &at, &manifest));
        if is_packed {
            records = records.iter().map(|record| gzip(record)).collect();
        }
        put_archive(&source, path, Some("application/warc"), records.concat());
        let rig = Rig::follow(source, |_| {}).await;
        let set = rig
            .until("in sync", |set| {
                set.state == "in-sync" && set.resources == 3
            })
            .await;
        assert!(set.error.is_none(), "{kind}: {set:#?}");
        assert_eq!(rig.mirrored("r0001.txt").unwrap(), b"one", "{kind}");
        assert_eq!(single_fetches(&rig, 3), 0, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn warc_without_a_manifest_is_applied_and_deletes_nothing() {
    let rig = Rig::start(SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..only_dumped(4)
    })
    .await;
    rig.settled().await;
    let source = &rig.source;
    source.advance(std::time::Duration::from_secs(2));
    let warc = warc_of(source, "resource", &RESOURCES).concat();
    put_archive(source, "/set1/own.warc", None, warc);
    rig.operator.poll(NAME).await;
    rig.until_holds("r0001.txt", "one").await;
    rig.until_holds("r0002.txt", "two").await;
    let set = rig.until("reported", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "unproven-manifest");
    assert_eq!(set.resources, 4);
    assert!(rig.mirrored("r0003.txt").is_some());
    assert_eq!(single_fetches(&rig, 4), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn baseline_is_made_from_a_warc_without_a_manifest() {
    let source = SampleSource::start(only_dumped(3)).await.unwrap();
    let warc = warc_of(&source, "response", &RESOURCES).concat();
    put_archive(&source, "/set1/own.warc", None, warc);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.until("applied", |set| set.resources == 3).await;
    assert_eq!(rig.mirrored("r0001.txt").unwrap(), b"one", "{set:#?}");
    let set = rig.until("reported", |set| set.error.is_some()).await;
    assert_eq!(set.error.unwrap().code, "unproven-manifest");
    assert_eq!(single_fetches(&rig, 3), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_of_a_manifest_states_what_a_warc_without_one_has() {
    let source = SampleSource::start(only_dumped(3)).await.unwrap();
    let warc = warc_of(&source, "resource", &RESOURCES).concat();
    put_archive(&source, "/set1/own.warc", None, warc);
    let at = source.boundary();
    let manifest = manifest_of(&source, 3);
    source.put_document("/set1/contents.xml", "application/xml", manifest);
    let dump = format!(
        r#"{HEAD}<rs:md capability="resourcedump" at="{at}"/><url><loc>/set1/own.warc</loc>
        <rs:ln rel="contents" href="/set1/contents.xml"/></url></urlset>"#
    );
    source.put_document(DUMP, "application/xml", dump);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig
        .until("in sync", |set| {
            set.state == "in-sync" && set.resources == 3
        })
        .await;
    assert!(set.error.is_none(), "{set:#?}");
    assert_eq!(rig.mirrored("r0002.txt").unwrap(), b"two");
    assert_eq!(single_fetches(&rig, 3), 0);
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_tar_file_that_are_no_files_are_fetched_from_their_own_uris() {
    let source = SampleSource::start(only_dumped(2)).await.unwrap();
    let mut tar = tar_of(&manifest_of(&source, 2), &[("r0", "zero")]);
    tar.truncate(tar.len() - 1024);
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_path("r1").unwrap();
    link.set_link_name("/etc/passwd").unwrap();
    link.set_size(0);
    link.set_cksum();
    tar.extend(link.as_bytes());
    put_archive(&source, "/set1/own.tar", Some("application/x-tar"), tar);
    let rig = Rig::follow(source, |_| {}).await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 2
    })
    .await;
    let state = rig.source.state(SET);
    let own = &state[&rig.uri("r0001.txt")];
    assert_eq!(rig.mirrored("r0000.txt").unwrap(), b"zero");
    assert_eq!(rig.mirrored("r0001.txt").unwrap(), **own);
    assert_eq!(single_fetches(&rig, 2), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn package_that_is_a_compression_bomb_is_reported_and_the_list_is_used() {
    let source = SampleSource::start(dumped(3)).await.unwrap();
    let bomb = gzip(&vec![0; 65 << 20]);
    put_archive(&source, "/set1/own.tar.gz", None, bomb);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.settled().await;
    assert_eq!(set.error.unwrap().code, "expansion");
    assert_eq!(rig.source.hits(LIST), 1);
    assert_eq!(packages_left(&rig), 0);
}

/// Serves a dump with one package written by the test.
fn put_package(source: &SampleSource, capability: &str, entries: &str, members: &[(&str, &str)]) {
    let at = source.boundary();
    let dump = format!(
        r#"{HEAD}<rs:md capability="resourcedump" at="{at}"/><url><loc>/set1/own.zip</loc></url></urlset>"#
    );
    source.put_document(DUMP, "application/xml", dump);
    let manifest = format!(r#"{HEAD}<rs:md {capability} at="{at}"/>{entries}</urlset>"#);
    put_zip(source, "/set1/own.zip", &manifest, members);
}

#[tokio::test(flavor = "multi_thread")]
async fn member_without_digest_is_read_only_at_its_manifest_path() {
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
    rig.until("in sync", |set| {
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
async fn coded_member_is_stored_as_the_same_entry_over_http_is() {
    const TEXT: &str = "<b> & the text, the text, the text</b>";
    let coded = gzip(TEXT.as_bytes());
    let digest = |bytes: &[u8]| Digest::of(Algorithm::Sha256, bytes).to_string();
    let (of_text, of_coded) = (digest(TEXT.as_bytes()), digest(&coded));
    let coded_md =
        |member: usize, md: &str| format!("<rs:md path=\"/r{member}\" encoding=\"gzip\" {md}/>");
    let draft_md = |member: usize, digest: &str| {
        let (_, hex) = digest.split_once(':').unwrap();
        format!(
            "<rs:path>r{member}</rs:path><rs:contentencoding>gzip</rs:contentencoding><rs:fixity type=\"sha-256\">{hex}</rs:fixity>"
        )
    };
    // What is stated, the member, and what the mirror has.
    let cases: [(String, &[u8], &[u8]); 7] = [
        (
            coded_md(0, &format!("hash=\"{of_text}\" length=\"{}\"", TEXT.len())),
            &coded,
            TEXT.as_bytes(),
        ),
        (
            coded_md(
                1,
                &format!("hash=\"{of_coded}\" length=\"{}\"", coded.len()),
            ),
            &coded,
            &coded,
        ),
        (
            coded_md(2, &format!("length=\"{}\"", coded.len())),
            &coded,
            &coded,
        ),
        (coded_md(3, ""), &coded, TEXT.as_bytes()),
        (
            coded_md(4, &format!("hash=\"{of_text}\"")),
            TEXT.as_bytes(),
            TEXT.as_bytes(),
        ),
        (draft_md(5, &of_text), &coded, TEXT.as_bytes()),
        (draft_md(6, &of_coded), &coded, &coded),
    ];
    let source = SampleSource::start(only_dumped(cases.len())).await.unwrap();
    let at = source.boundary();
    let entries: String = cases
        .iter()
        .enumerate()
        .map(|(number, (md, ..))| format!("<url><loc>/set1/res/r{number:04}.txt</loc>{md}</url>"))
        .collect();
    let manifest = format!("{HEAD}<rs:md {MANIFEST} at=\"{at}\"/>{entries}</urlset>");
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let mut add = |name: &str, bytes: &[u8]| {
        zip.start_file(name, zip::write::SimpleFileOptions::default())
            .unwrap();
        std::io::Write::write_all(&mut zip, bytes).unwrap();
    };
    add("manifest.xml", manifest.as_bytes());
    for (number, (_, member, _)) in cases.iter().enumerate() {
        add(&format!("r{number}"), member);
    }
    let package = zip.finish().unwrap().into_inner();
    put_archive(&source, "/set1/own.zip", None, package);
    let rig = Rig::follow(source, |_| {}).await;
    rig.until("applied", |set| set.resources == cases.len() as u64)
        .await;
    for (number, (md, _, stored)) in cases.iter().enumerate() {
        let name = format!("r{number:04}.txt");
        assert_eq!(rig.mirrored(&name).as_deref(), Some(*stored), "{md}");
    }
    assert_eq!(single_fetches(&rig, cases.len()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn manifest_of_another_capability_is_rejected() {
    for (capability, code) in [
        ("capability=\"changelist\"", "wrong-capability"),
        ("", "unproven-manifest"),
    ] {
        let source = SampleSource::start(only_dumped(1)).await.unwrap();
        let entries = "<url><loc>/set1/res/r0000.txt</loc><rs:md path=\"/r0\"/></url>";
        put_package(&source, capability, entries, &[("r0", "from the package")]);
        let rig = Rig::follow(source, |_| {}).await;
        let set = rig.until("error reported", |set| set.error.is_some()).await;
        assert_eq!(set.error.unwrap().code, code);
    }
}

/// Serves a dump of two packages, and returns it; `query` follows the second URI in the manifest of the first one.
fn put_two_packages(source: &SampleSource, query: &str) -> String {
    let at = source.boundary();
    let pack = |path: &str, entries: &str, members: &[(&str, &str)]| {
        let manifest = format!(r#"{HEAD}<rs:md {MANIFEST} at="{at}"/>{entries}</urlset>"#);
        let length = put_zip(source, path, &manifest, members);
        format!("<url><loc>{path}</loc><lastmod>{at}</lastmod><rs:md length=\"{length}\"/></url>")
    };
    let entry = |number: usize, query: &str| {
        format!(
            "<url><loc>/set1/res/r000{number}.txt{query}</loc><rs:md path=\"/r{number}\"/></url>"
        )
    };
    let packages = [
        pack(
            "/set1/one.zip",
            &[entry(0, ""), entry(1, query)].concat(),
            &[("r0", "zero"), ("r1", "one")],
        ),
        pack("/set1/two.zip", &entry(2, ""), &[("r2", "two")]),
    ];
    let dump = format!(
        r#"{HEAD}<rs:md capability="resourcedump" at="{at}"/>{}</urlset>"#,
        packages.concat()
    );
    source.put_document(DUMP, "application/xml", dump.clone());
    dump
}

/// A Source whose generator damages entries damages those of all its documents.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_dump_beside_a_damaged_list_is_fetched_once() {
    let source = SampleSource::start(dumped(3)).await.unwrap();
    let at = source.boundary();
    let broken = "<url><loc>/set1/res/r0001.txt?a=1&b=2</loc></url></urlset>";
    let dump = put_two_packages(&source, "").replace("</urlset>", broken);
    let list = format!(r#"{HEAD}<rs:md capability="resourcelist" at="{at}"/>{broken}"#);
    for (path, document) in [(DUMP, dump), (LIST, list)] {
        source.put_document(path, "application/xml", document);
    }
    let rig = Rig::follow(source, |config| {
        config.sources[0].baseline = Baseline::Dump;
    })
    .await;
    rig.until("failing", |set| set.state == "failing").await;
    poll_twice(&rig, LIST).await;
    for package in ["/set1/one.zip", "/set1/two.zip"] {
        assert_eq!(rig.source.hits(package), 1, "{package}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn package_with_a_damaged_manifest_proves_nothing_and_is_fetched_once() {
    let source = SampleSource::start(only_dumped(3)).await.unwrap();
    put_two_packages(&source, "?a=1&b=2");
    let rig = Rig::follow(source, |_| {}).await;
    rig.until_holds("r0000.txt", "zero").await;
    rig.until_holds("r0002.txt", "two").await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    let error = set.error.unwrap();
    assert_eq!(error.code, "bad-entries");
    assert!(error.message.contains("/set1/one.zip"), "{error:?}");
    assert_eq!((set.resources, set.synced_until), (2, None));
    poll_twice(&rig, DUMP).await;
    let set = rig.set().await;
    assert_eq!(set.error.unwrap().code, "bad-entries");
    for package in ["/set1/one.zip", "/set1/two.zip"] {
        assert_eq!(rig.source.hits(package), 1, "{package}");
    }
    assert_eq!(packages_left(&rig), 0);
    // Repaired, it is another version.
    put_two_packages(&rig.source, "");
    rig.operator.poll(NAME).await;
    rig.until_holds("r0001.txt", "one").await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 3 && set.error.is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_copy_of_a_manifest_proves_nothing() {
    let mut options = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..only_dumped(25)
    };
    options.dumps.contents = true;
    let rig = Rig::start(options).await;
    let claimed = rig.settled().await.synced_until;
    rig.source.update(SET, "r0001.txt", "new");
    rig.source.refresh_resource_dump(SET);
    let copy = "/set1/resourcedump-0000-manifest.xml";
    damage(&rig, copy, "r0002.txt").await;
    rig.operator.poll(NAME).await;
    rig.until_holds("r0001.txt", "new").await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    assert_eq!(set.error.unwrap().code, "bad-entries");
    assert_eq!(set.synced_until, claimed);
    rig.source.remove_document(copy);
    rig.operator.poll(NAME).await;
    let set = rig.settled().await;
    assert!(set.error.is_none(), "{set:#?}");
    assert_eq!(package_fetches(&rig, 3), [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_wrong_members_are_fetched_from_their_own_uris() {
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
async fn unavailable_resource_does_not_delay_the_others() {
    let source = SampleSource::start(dumped(25)).await.unwrap();
    source.spoil_member(SET, "r0003.txt", Some(MemberFault::Missing));
    source.refresh_resource_dump(SET);
    source.fail("/set1/res/r0003.txt", Fault::Status(404), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig
        .until("one task failed", |set| {
            set.failed == 1 && set.resources == 24
        })
        .await;
    assert_eq!(set.error.unwrap().code, "not-found");
    assert_eq!(package_fetches(&rig, 3), [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn package_with_a_wrong_digest_is_not_used() {
    let source = SampleSource::start(dumped(25)).await.unwrap();
    source.fail(&package(1), Fault::WrongBytes, usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    // The Resource List replaces the dump. Members of the first package are not fetched again.
    assert_eq!(rig.source.hits(LIST), 1);
    assert_eq!(single_fetches(&rig, 25), 15);
    let set = rig.set().await;
    assert_eq!(set.error.unwrap().code, "digest-mismatch");
    assert_eq!(packages_left(&rig), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_package_is_not_fetched_at_every_poll() {
    let source = SampleSource::start(only_dumped(25)).await.unwrap();
    source.fail(&package(1), Fault::WrongBytes, usize::MAX);
    let begin = clock::now().mono;
    let rig = Rig::follow(source, |_| {}).await;
    rig.until("failing", |set| set.state == "failing").await;
    rig.source.wait_for_hits(DUMP, 3).await;
    let set = rig.set().await;
    assert_eq!(set.error.unwrap().code, "digest-mismatch");
    // The package after it is read.
    let fetches = package_fetches(&rig, 3);
    assert_eq!((fetches[0], fetches[2]), (1, 1));
    // It is not fetched again for at least half a minute.
    let elapsed = clock::now().mono - begin;
    let most = 1 + elapsed.as_secs() / 30;
    assert!((1..=most).contains(&fetches[1]), "{fetches:?} {most}");
    // A new version is fetched.
    rig.source.heal(&package(1));
    rig.source.create(SET, "new.txt", "new");
    rig.source.refresh_resource_dump(SET);
    rig.settled().await;
    assert_eq!(single_fetches(&rig, 25), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_package_is_retried_without_a_list() {
    let source = SampleSource::start(only_dumped(25)).await.unwrap();
    source.fail(&package(1), Fault::Status(404), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    assert_eq!(set.error.unwrap().code, "not-found");
    rig.source.heal(&package(1));
    rig.settled().await;
    // Packages that were read are not fetched again.
    let fetches = package_fetches(&rig, 3);
    assert_eq!((fetches[0], fetches[2]), (1, 1));
    assert!(fetches[1] >= 2, "{fetches:?}");
    assert_eq!(single_fetches(&rig, 25), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_package_does_not_delay_later_packages() {
    for indexed in [false, true] {
        let mut options = only_dumped(25);
        options.dumps.indexed = indexed;
        let source = SampleSource::start(options).await.unwrap();
        source.fail(&package(1), Fault::Status(404), usize::MAX);
        let rig = Rig::follow(source, |_| {}).await;
        let set = rig
            .until("other packages applied", |set| {
                set.resources == 15 && set.state == "failing"
            })
            .await;
        assert_eq!(set.error.unwrap().code, "not-found");
        assert_eq!(set.synced_until, None, "the baseline is incomplete");
        rig.source.heal(&package(1));
        rig.settled().await;
        assert_eq!(single_fetches(&rig, 25), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_package_is_resumed() {
    let source = SampleSource::start(dumped(10)).await.unwrap();
    source.fail(&package(0), Fault::Truncated, 1);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    assert_eq!(package_fetches(&rig, 1), [2]);
    assert_eq!(single_fetches(&rig, 10), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_download_of_an_abandoned_package_is_removed() {
    let source = SampleSource::start(dumped(10)).await.unwrap();
    source.fail(&package(0), Fault::Truncated, 1);
    source.fail(&package(0), Fault::Status(404), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    rig.settled().await;
    assert_eq!(single_fetches(&rig, 10), 10);
    eventually(
        "no package file",
        Some(rig.wakes()),
        async || match packages_left(&rig) {
            0 => Ok(()),
            count => Err(format!("{count} files")),
        },
    )
    .await;
}

/// Serves a dump whose package is in no format that is read.
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
async fn unsupported_package_is_reported_and_the_list_is_used() {
    let source = SampleSource::start(dumped(3)).await.unwrap();
    put_unsupported(&source, false);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.settled().await;
    assert_eq!(set.error.unwrap().code, "unsupported-package");
    assert_eq!(rig.source.hits(LIST), 1);
    assert_eq!(rig.source.hits("/set1/dump.tar.xz"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn package_whose_bytes_are_of_no_format_that_is_read_is_unsupported() {
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
async fn members_of_an_unsupported_package_are_fetched_singly_without_a_list() {
    let source = SampleSource::start(only_dumped(3)).await.unwrap();
    put_unsupported(&source, true);
    let rig = Rig::follow(source, |_| {}).await;
    assert_eq!(rig.settled().await.resources, 3);
    assert_eq!(single_fetches(&rig, 3), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn set_with_only_unsupported_packages_fails() {
    let source = SampleSource::start(only_dumped(3)).await.unwrap();
    put_unsupported(&source, false);
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig.until("failing", |set| set.state == "failing").await;
    assert_eq!(set.error.unwrap().code, "unsupported-package");
}

#[tokio::test(flavor = "multi_thread")]
async fn package_is_fetched_only_if_the_copy_of_its_manifest_has_enough_news() {
    let mut options = only_dumped(35);
    options.dumps.contents = true;
    let mut rig = Rig::start(options).await;
    rig.settled().await;
    assert_eq!(package_fetches(&rig, 4), [1, 1, 1, 1]);

    // One of the first ten resources is new, six of the next ten, none of the others; one is deleted.
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
    rig.until("in sync", |set| {
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
async fn filter_is_applied_to_the_members_of_a_package() {
    let rig = Rig::start_with(dumped(12), |config| {
        let exclude = ["*/r0001.txt", "*/r0002.txt"];
        config.sources[0].filter =
            resyncd::config::Filter::matching::<&str>(&[], &exclude).unwrap();
    })
    .await;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 10
    })
    .await;
    assert_eq!(rig.mirrored("r0001.txt"), None);
    assert_eq!(single_fetches(&rig, 12), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_member_is_rejected() {
    let source = SampleSource::start(dumped(3)).await.unwrap();
    source.create(SET, "large.txt", vec![b'x'; 5000]);
    source.refresh_resource_dump(SET);
    let rig = Rig::follow(source, |config| config.limits.resource = Some(1000)).await;
    let set = rig
        .until("one task failed", |set| {
            set.failed == 1 && set.resources == 3
        })
        .await;
    let error = set.error.unwrap();
    assert_eq!(error.code, "too-large");
    assert!(
        error.message.contains("1000 bytes ([limits] resource)"),
        "{error:?}"
    );
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
async fn restart_in_the_middle_of_a_package_does_not_fetch_it_again() {
    let mut options = only_dumped(3000);
    options.dumps.entries_per_package = 5000;
    let mut rig = Rig::start(options).await;
    rig.until("some resources", |set| set.resources > 0).await;
    rig.stop_daemon().await;
    let before = files(&rig.config.sources[0].mirror).len();
    rig.start_daemon().await;
    rig.until("in sync", |set| {
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
async fn oversized_package_is_not_fetched_and_the_list_is_used() {
    let rig = Rig::start_with(dumped(12), |config| config.limits.package = Some(500)).await;
    let set = rig
        .until("in sync", |set| {
            set.state == "in-sync" && set.resources == 12
        })
        .await;
    let error = set.error.unwrap();
    assert_eq!(error.code, "too-large");
    assert!(
        error.message.contains("500 bytes ([limits] package)"),
        "{error:?}"
    );
    assert_eq!(single_fetches(&rig, 12), 12);
}
