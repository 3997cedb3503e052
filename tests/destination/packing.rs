//! Sources with Resource Dumps, and counts of their requests.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use resyncd_testkit::{DumpOptions, SampleOptions};

pub(crate) use crate::support::put_zip;
use crate::support::{NAME, Rig, client, resources};

/// Start of a document written by a test.
pub(crate) const HEAD: &str = r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">"#;
pub(crate) const LIST: &str = "/set1/resourcelist.xml";
pub(crate) const DUMP: &str = "/set1/resourcedump.xml";

/// A set with a Resource Dump of packages of ten.
pub(crate) fn dumped(resources_per_set: usize) -> SampleOptions {
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

/// A set with a Resource Dump and no Resource List.
pub(crate) fn only_dumped(resources_per_set: usize) -> SampleOptions {
    SampleOptions {
        resource_list: false,
        ..dumped(resources_per_set)
    }
}

pub(crate) fn package(number: usize) -> String {
    format!("/set1/resourcedump-{number:04}.zip")
}

/// Number of requests for the first `resources` of the set.
pub(crate) fn single_fetches(rig: &Rig, resources: usize) -> u64 {
    let path = |number| format!("/set1/res/r{number:04}.txt");
    (0..resources)
        .map(|number| rig.source.hits(&path(number)))
        .sum()
}

/// Number of requests for each of the first packages.
pub(crate) fn package_fetches(rig: &Rig, packages: usize) -> Vec<u64> {
    (0..packages)
        .map(|number| rig.source.hits(&package(number)))
        .collect()
}

/// Number of files in the package folder of the mirror.
pub(crate) fn packages_left(rig: &Rig) -> usize {
    let folder = rig.config.sources[0].mirror.join(".resyncd/packages");
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

/// A tar file with its manifest first.
pub(crate) fn tar_of(manifest: &str, members: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let manifest = ("manifest.xml", manifest);
    for (name, text) in [&manifest].into_iter().chain(members) {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap()
}

/// A record of a WARC, with a gzip member of its own if it is packed.
pub(crate) fn warc_record(kind: &str, uri: &str, date: &str, block: &str) -> Vec<u8> {
    let media_type = match kind {
        "response" => "application/http; msgtype=response",
        _ => "text/plain",
    };
    let length = block.len();
    let record = format!(
        "WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\nWARC-Date: {date}\r\nContent-Type: {media_type}\r\n\
         Content-Length: {length}\r\n\r\n{block}\r\n\r\n"
    );
    record.into_bytes()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Serves a document of the Source with a bare ampersand in the URI that ends so.
pub(crate) async fn damage(rig: &Rig, path: &str, uri: &str) {
    let document = rig.source.base().join(path).unwrap();
    let response = client().get(document).send().await.unwrap();
    let text = response.text().await.unwrap();
    let (whole, damaged) = (format!("{uri}</loc>"), format!("{uri}?a=1&b=2</loc>"));
    assert!(text.contains(&whole), "{text}");
    let damaged = text.replace(&whole, &damaged);
    rig.source.put_document(path, "application/xml", damaged);
}

/// Waits for two more polls, of which each requests the document.
pub(crate) async fn poll_twice(rig: &Rig, path: &str) {
    for _ in 0..2 {
        let before = rig.source.hits(path);
        rig.operator.poll(NAME).await;
        rig.source.wait_for_hits(path, before + 1).await;
    }
}
