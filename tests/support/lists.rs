//! Documents that a test writes itself instead of having the sample Source write them.

use std::io::{Cursor, Write};

use resourcesync::{Capability, ChangeKind, Entry, Head, Link, Root, SourceTime, write_document};
use resyncd_testkit::SampleSource;
use url::Url;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// An update of a resource.
pub(crate) fn change(uri: &Url, at: SourceTime) -> Entry {
    let mut entry = Entry::new(uri.clone());
    entry.lastmod = Some(at);
    entry.md.change = Some(ChangeKind::Updated);
    entry.md.datetime = Some(at);
    entry
}

/// A Change List; closed if `until` is given.
pub(crate) fn change_list(
    from: SourceTime,
    until: Option<SourceTime>,
    index: Option<&Url>,
    entries: &[Entry],
) -> Vec<u8> {
    let mut head = Head::new(Root::Urlset, Capability::ChangeList);
    head.md.from = Some(from);
    head.md.until = until;
    head.links
        .extend(index.map(|index| Link::new("index", index.clone())));
    write_document(&head, entries)
}

/// A Change List index of `(uri, from, until)`.
pub(crate) fn change_list_index(lists: &[(&Url, SourceTime, Option<SourceTime>)]) -> Vec<u8> {
    let mut head = Head::new(Root::Sitemapindex, Capability::ChangeList);
    head.md.from = lists.first().map(|list| list.1);
    let entries: Vec<Entry> = lists
        .iter()
        .map(|&(uri, from, until)| {
            let mut entry = Entry::new(uri.clone());
            entry.md.from = Some(from);
            entry.md.until = until;
            entry
        })
        .collect();
    write_document(&head, &entries)
}

/// A Capability List.
pub(crate) fn capability_list(documents: &[(&Url, Capability)]) -> Vec<u8> {
    let head = Head::new(Root::Urlset, Capability::CapabilityList);
    let entries: Vec<Entry> = documents
        .iter()
        .map(|(uri, capability)| {
            let mut entry = Entry::new((*uri).clone());
            entry.md.capability = Some(capability.clone());
            entry
        })
        .collect();
    write_document(&head, &entries)
}

/// Serves a package written by the test; returns its length in bytes.
pub(crate) fn put_zip(
    source: &SampleSource,
    path: &str,
    manifest: &str,
    members: &[(&str, &str)],
) -> usize {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let manifest = ("manifest.xml", manifest);
    for (name, text) in [&manifest].into_iter().chain(members) {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    let zip = zip.finish().unwrap().into_inner();
    let length = zip.len();
    source.put_document(path, "application/zip", zip);
    length
}
