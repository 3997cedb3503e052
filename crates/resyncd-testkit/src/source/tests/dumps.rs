//! The dumps that the sample Source publishes, read back.

use std::io::{Cursor, Read};

use reqwest::header::{IF_RANGE, RANGE};
use resourcesync::{Algorithm, Digest};
use zip::ZipArchive;

use super::*;
use crate::{DumpOptions, Fault, MemberFault, PathForm};

fn both() -> SampleOptions {
    SampleOptions {
        dumps: DumpOptions {
            resource_dump: true,
            change_dump: true,
            ..DumpOptions::default()
        },
        ..SampleOptions::default()
    }
}

/// The members of the package of an entry, by name.
async fn unpack(entry: &Entry) -> BTreeMap<String, Vec<u8>> {
    let (status, headers, body) = get(entry.loc.clone()).await;
    assert_eq!(
        (status, &headers["Content-Type"]),
        (200, &"application/zip".parse().unwrap())
    );
    assert_eq!(entry.md.content.length, Some(body.len() as u64));
    assert_eq!(
        entry.md.content.hashes,
        [Digest::of(Algorithm::Sha256, &body)]
    );
    let mut zip = ZipArchive::new(Cursor::new(body)).unwrap();
    let mut members = BTreeMap::new();
    for index in 0..zip.len() {
        let mut member = zip.by_index(index).unwrap();
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        members.insert(member.name().unwrap().into_owned(), bytes);
    }
    members
}

fn manifest_of(entry: &Entry, members: &BTreeMap<String, Vec<u8>>) -> Document {
    let manifest = read_document(&members["manifest.xml"], &entry.loc).unwrap();
    assert!(manifest.oddities.is_empty(), "{}", manifest.oddities);
    manifest
}

#[tokio::test]
async fn a_resource_dump_is_a_snapshot_of_every_resource() {
    let mut options = both();
    options.dumps.entries_per_package = 2;
    let source = source(options).await;
    source.create("set1", "later.txt", "not in the dump");
    let list = read(source.capability_list("set1")).await;
    let offered: Vec<&str> = list.entries.iter().map(capability_of).collect();
    assert_eq!(
        offered[..4],
        ["resourcelist", "changelist", "resourcedump", "changedump"]
    );

    let dump = read(list.entries[2].loc.clone()).await;
    assert_eq!(dump.head.md.capability, Some(Capability::ResourceDump));
    assert_eq!(dump.head.md.at, Some(SourceTime::from_micros(START)));
    assert_eq!(dump.entries.len(), 2);
    let mut found = BTreeMap::new();
    for entry in &dump.entries {
        let members = unpack(entry).await;
        let manifest = manifest_of(entry, &members);
        let copy = entry.links("contents").next().unwrap();
        assert_eq!(read(copy.href.clone()).await, manifest);
        assert_eq!(
            manifest.head.md.capability,
            Some(Capability::ResourceDumpManifest)
        );
        assert_eq!(manifest.head.md.at, dump.head.md.at);
        for entry in &manifest.entries {
            let path = entry.md.path.as_ref().unwrap().strip_prefix('/').unwrap();
            found.insert(entry.loc.to_string(), Bytes::from(members[path].clone()));
        }
    }
    let mut expected = source.state("set1");
    expected.remove(source.resource_uri("set1", "later.txt").as_str());
    assert_eq!(found, expected);

    let at = source.refresh_resource_dump("set1");
    let dump = read(source.document_uri("set1", "resourcedump.xml")).await;
    assert_eq!(dump.head.md.at, Some(at));
    let manifest = manifest_of(&dump.entries[1], &unpack(&dump.entries[1]).await);
    assert_eq!(manifest.entries.len(), 2);
}

#[tokio::test]
async fn packages_of_a_change_dump_adjoin_and_have_every_change() {
    for indexed in [false, true] {
        let mut options = both();
        options.dumps.entries_per_package = 3;
        options.dumps.indexed = indexed;
        let source = source(options).await;
        source.update("set1", "r0000.txt", "once");
        source.update("set1", "r0000.txt", "twice");
        source.delete("set1", "r0000.txt");
        source.create("set1", "new.txt", "new");
        assert_eq!(source.pack_changes("set1"), 2);
        assert_eq!(
            source.pack_changes("set1"),
            1,
            "an interval without changes is published, too"
        );

        let top = read(source.document_uri("set1", "changedump.xml")).await;
        assert_eq!(top.head.md.capability, Some(Capability::ChangeDump));
        assert_eq!(top.head.root == Root::Sitemapindex, indexed);
        let mut packages = Vec::new();
        for entry in top.entries {
            if indexed {
                let dump = read(entry.loc).await;
                assert_eq!(
                    (dump.head.md.from, dump.head.md.until),
                    (entry.md.from, entry.md.until)
                );
                assert!(dump.head.link("index").is_some());
                packages.extend(dump.entries);
            } else {
                packages.push(entry);
            }
        }
        let mut until = top.head.md.from;
        let mut read_back = Vec::new();
        for package in &packages {
            assert_eq!(package.md.from, until);
            until = package.md.until;
            let members = unpack(package).await;
            let manifest = manifest_of(package, &members);
            assert_eq!(
                (manifest.head.md.from, manifest.head.md.until),
                (package.md.from, until)
            );
            for entry in manifest.entries {
                assert!(entry.changed_at() >= package.md.from && entry.changed_at() < until);
                let path = entry.md.path.as_ref().map(|path| &path[1..]);
                let bytes = path.map(|path| String::from_utf8(members[path].clone()).unwrap());
                read_back.push((entry.md.change.unwrap(), bytes));
            }
        }
        assert_eq!(
            read_back,
            [
                (ChangeKind::Updated, Some("once".to_owned())),
                (ChangeKind::Updated, Some("twice".to_owned())),
                (ChangeKind::Deleted, None),
                (ChangeKind::Created, Some("new".to_owned())),
            ]
        );
        assert_eq!(source.drop_old_change_packages("set1", 1), 2);
        let top = read(source.document_uri("set1", "changedump.xml")).await;
        assert_eq!(
            (top.entries.len(), top.head.md.from),
            (1, packages[2].md.from)
        );
    }
}

#[tokio::test]
async fn member_faults_and_path_forms_are_as_configured() {
    for (paths, beginning) in [
        (PathForm::NoSlash, "resources/r000"),
        (PathForm::Local, "/srv/source/dump/resources/r000"),
    ] {
        let mut options = both();
        options.resource_list = false;
        options.dumps.paths = paths;
        options.dumps.contents = false;
        let source = source(options).await;
        let list = read(source.capability_list("set1")).await;
        assert_eq!(capability_of(&list.entries[0]), "changelist");
        assert_eq!(
            get(source.document_uri("set1", "resourcelist.xml")).await.0,
            404
        );
        source.spoil_member("set1", "r0000.txt", Some(MemberFault::Missing));
        source.spoil_member("set1", "r0001.txt", Some(MemberFault::WrongBytes));
        source.refresh_resource_dump("set1");
        let dump = read(source.document_uri("set1", "resourcedump.xml")).await;
        assert!(dump.entries[0].links.is_empty());
        let members = unpack(&dump.entries[0]).await;
        let manifest = manifest_of(&dump.entries[0], &members);
        assert_eq!(manifest.entries.len(), 3);
        for entry in &manifest.entries {
            assert!(entry.md.path.as_ref().unwrap().starts_with(beginning));
        }
        assert!(!members.contains_key("resources/r0000.txt"));
        let wrong = Digest::of(Algorithm::Sha256, &members["resources/r0001.txt"]);
        assert_ne!(manifest.entries[1].md.content.hashes, [wrong]);
        let right = Digest::of(Algorithm::Sha256, &members["resources/r0002.txt"]);
        assert_eq!(manifest.entries[2].md.content.hashes, [right]);
    }
}

#[tokio::test]
async fn range_requests_are_answered_for_the_stated_version() {
    let source = source(both()).await;
    let uri = source.document_uri("set1", "resourcedump-0000.zip");
    let (_, headers, whole) = get(uri.clone()).await;
    let client = serving::client(LIMIT).unwrap();
    let ask = async |range: &str, etag: &str| {
        let request = client.get(uri.clone()).header(RANGE, range);
        let answer = request.header(IF_RANGE, etag).send().await.unwrap();
        let status = answer.status().as_u16();
        let range = answer.headers().get("Content-Range").cloned();
        (status, range, answer.bytes().await)
    };
    let etag = headers[ETAG].to_str().unwrap();
    let (status, range, part) = ask("bytes=100-", etag).await;
    let length = whole.len();
    let content_range = format!("bytes 100-{}/{length}", length - 1);
    assert_eq!((status, range), (206, Some(content_range.parse().unwrap())));
    assert_eq!(part.unwrap(), whole.slice(100..));
    let (status, _, all) = ask("bytes=100-", "\"another\"").await;
    assert_eq!((status, all.unwrap()), (200, whole.clone()));
    assert_eq!(ask(&format!("bytes={length}-"), etag).await.0, 416);
    source.fail(uri.path(), Fault::Truncated, 1);
    assert!(ask("bytes=100-", etag).await.2.is_err());
}
