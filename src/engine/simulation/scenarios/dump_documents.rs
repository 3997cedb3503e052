//! Dumps that a scenario writes by hand, of any form. What their packages have is what the simulated Source has.

use resourcesync::{
    Algorithm, Capability, Digest, Entry, Head, Link, Root, SourceTime, write_document,
};

use super::super::documents::{change, head, listed};
use super::super::handwritten::uri;
use super::super::packages::{archive, pack};
use super::super::source::Change;
use super::*;

/// The Capability List of the simulated Source's only set.
pub(super) const CAPABILITY_LIST: &str = "set0/capabilitylist.xml";
/// Its Resource List.
pub(super) const LIST: &str = "set0/resourcelist.xml";
/// The dump that a scenario writes.
pub(super) const DUMP: &str = "dump.xml";

/// What a package names, and the changes that it has the bytes of.
pub(super) type Named = Vec<(Entry, Change)>;

/// Serves a Capability List that names these documents.
pub(super) fn offer(world: &World, documents: &[(Capability, &str)]) {
    let named = documents.iter().map(|(capability, path)| {
        let mut entry = Entry::new(uri(path));
        entry.md.capability = Some(capability.clone());
        entry
    });
    let mut head = Head::new(Root::Urlset, Capability::CapabilityList);
    let description = uri(".well-known/resourcesync");
    head.links.push(Link::new("up", description));
    let named: Vec<Entry> = named.collect();
    world.write(CAPABILITY_LIST, write_document(&head, &named));
}

/// The head of a document of the set.
pub(super) fn head_of(capability: Capability) -> Head {
    head(Root::Urlset, capability, 0)
}

/// The same, of a document with changes from one time to another.
pub(super) fn head_between(
    capability: Capability,
    from: Option<SourceTime>,
    until: Option<SourceTime>,
) -> Head {
    let mut head = head_of(capability);
    (head.md.from, head.md.until) = (from, until);
    head
}

/// The resources as they are now.
pub(super) fn resources(world: &World, resources: &[ResourceNo]) -> Named {
    let scene = world.stage.scene();
    let changes = resources.iter();
    let changes = changes.map(|&no| scene.source.last_change(no).unwrap().clone());
    changes
        .map(|change| (listed(&scene.source, &change), change))
        .collect()
}

/// What has changed from one time until another.
pub(super) fn changes(world: &World, from: SourceTime, until: SourceTime) -> Named {
    let scene = world.stage.scene();
    let all = scene.source.changes.iter();
    all.filter(|it| from <= it.at && it.at < until)
        .map(|it| (change(&scene.source, it), it.clone()))
        .collect()
}

/// The manifest of a package.
pub(super) fn manifest(head: &Head, named: Named) -> Vec<u8> {
    pack(head, named).0
}

/// A package.
pub(super) fn package(head: &Head, named: Named) -> Vec<u8> {
    let (manifest, members) = pack(head, named);
    archive(manifest, members)
}

/// Serves a package whose manifest is edited before, and returns the entry of a dump for it.
pub(super) fn write_edited_package(
    world: &World,
    path: &str,
    head: &Head,
    named: Named,
    edit: impl FnOnce(Vec<u8>) -> Vec<u8>,
) -> Entry {
    let (manifest, members) = pack(head, named);
    write_archive(world, path, archive(edit(manifest), members))
}

/// Serves a package, and returns the entry of a dump for it.
pub(super) fn write_package(world: &World, path: &str, head: &Head, named: Named) -> Entry {
    write_edited_package(world, path, head, named, |manifest| manifest)
}

/// Serves these bytes as a package, and returns the entry of a dump for it.
pub(super) fn write_archive(world: &World, path: &str, bytes: Vec<u8>) -> Entry {
    let mut entry = Entry::new(uri(path));
    entry.md.content.media_type = Some("application/zip".to_owned());
    entry.md.content.length = Some(bytes.len() as u64);
    entry.md.content.hashes = vec![Digest::of(Algorithm::Sha256, &bytes)];
    world.write(path, bytes);
    entry
}

/// Serves a document.
pub(super) fn write(world: &World, path: &str, head: &Head, entries: &[Entry]) {
    world.write(path, write_document(head, entries));
}

/// A document with a part replaced that it has.
pub(super) fn replaced(document: Vec<u8>, part: &str, other: &str) -> Vec<u8> {
    let text = String::from_utf8(document).unwrap();
    assert!(text.contains(part), "{text}");
    text.replacen(part, other, 1).into_bytes()
}

/// A document with one more entry, which is damaged.
pub(super) fn damaged(document: Vec<u8>) -> Vec<u8> {
    let entry = "<url><loc>&nothing;</loc></url></urlset>";
    replaced(document, "</urlset>", entry)
}

/// A document with one more entry, which names nothing.
pub(super) fn nameless(document: Vec<u8>) -> Vec<u8> {
    let (entry, end) = if document.windows(13).any(|it| it == b"<sitemapindex") {
        ("<sitemap></sitemap>", "</sitemapindex>")
    } else {
        ("<url></url>", "</urlset>")
    };
    replaced(document, end, &format!("{entry}{end}"))
}

/// The handwritten pages that were requested since this was asked last, but the Capability List.
pub(super) fn requested(world: &World) -> Vec<String> {
    let mut requested = world.take_requested();
    requested.retain(|path| path != CAPABILITY_LIST);
    requested
}

/// How often a page was requested since this was asked last.
pub(super) fn times_requested(world: &World, path: &str) -> usize {
    let requested = world.take_requested();
    requested.iter().filter(|it| *it == path).count()
}

/// The code of the error of the set.
pub(super) async fn error(world: &World) -> Option<String> {
    errors(world).await.remove(0)
}
