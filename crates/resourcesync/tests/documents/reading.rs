//! Single documents, parsed by the reader alone.

use resourcesync::{Capability, ChangeKind, Document};

use crate::read_with_oddities;

const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;
const UP: &str = "<rs:ln rel='up' href='http://example.com/capabilities.xml'/>";

fn document(md: &str, inside: &str) -> String {
    format!("<urlset {NAMESPACES}>{UP}<rs:md {md}/>{inside}</urlset>")
}

fn locs(document: &Document) -> Vec<&str> {
    let entries = document.entries.iter();
    entries.map(|entry| entry.loc.as_str()).collect()
}

#[test]
fn misspelt_capabilities_are_recognized() {
    for (spelling, capability, at) in [
        ("changelistindex", "changelist", "from"),
        ("resourceList", "resourcelist", "at"),
        ("resourcecelist", "resourcelist", "at"),
        ("resourceindex", "resourcelist", "at"),
        ("ResourceDump", "resourcedump", "at"),
        ("resourcedump_manifest", "resourcedump-manifest", "at"),
        ("Change-List", "changelist", "from"),
    ] {
        let md = format!("capability='{spelling}' {at}='2026-03-01'");
        let read = read_with_oddities(&document(&md, ""), "capability-spelling=1");
        assert_eq!(read.head.md.capability.unwrap().as_str(), capability);
    }
}

#[test]
fn two_md_elements_are_combined() {
    let md = "capability='changelist' from='2026-03-01'";
    let entry = "<url><rs:md change='updated'/><rs:md length='4' change='deleted'/><rs:ln rel='up' href='/x'/>
        <lastmod>2026-03-02</lastmod><loc>/a</loc></url>";
    let read = read_with_oddities(&document(md, entry), "several-metadata=1 relative-uri=2");
    let entry = &read.entries[0];
    assert_eq!(
        entry.md.change,
        Some(ChangeKind::Updated),
        "the first value is used"
    );
    assert_eq!(entry.md.content.length, Some(4));
    assert_eq!(entry.loc.as_str(), "http://example.com/a");
}

#[test]
fn digests_are_read_over_several_lines_and_in_base64() {
    let entry = "<url><loc>http://example.com/a</loc><rs:md hash='md5:900150983cd24fb0d6963f7d28e17f72
        sha-1:qZk+NkcGgWq6PiVxeFDCbJzQ2J0= sha-256:ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0 crc32:352441c2'/></url>";
    let md = "capability='resourcelist' at='2026-03-01'";
    let read = read_with_oddities(&document(md, entry), "unknown-digest=1 digest-encoding=2");
    let shown: Vec<String> = read.entries[0]
        .md
        .content
        .hashes
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        shown,
        [
            "md5:900150983cd24fb0d6963f7d28e17f72",
            "sha-1:a9993e364706816aba3e25717850c26c9cd0d89d",
            "sha-256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ]
    );
}

#[test]
fn manifests_preserve_paths_verbatim() {
    let entries = "<url><loc>http://example.com/a</loc><rs:md path='/resources/a'/></url>
        <url><loc>http://example.com/b</loc><rs:md path='resources/b'/></url>
        <url><loc>http://example.com/c</loc><rs:md path='/home/someone/export/c.txt'/></url>
        <url><loc>http://example.com/d</loc><rs:md path='C:\\export\\d e.txt '/></url>";
    let md = "capability='resourcedump-manifest' at='2026-03-01'";
    let read = read_with_oddities(&document(md, entries), "");
    let paths = read.entries.iter().map(|entry| entry.md.path.as_deref());
    let expected = [
        "/resources/a",
        "resources/b",
        "/home/someone/export/c.txt",
        "C:\\export\\d e.txt ",
    ];
    assert!(paths.eq(expected.map(Some)));
}

#[test]
fn manifests_of_change_dumps_may_omit_change() {
    let entries = "<url><loc>http://example.com/a</loc><lastmod>2026-03-01</lastmod><rs:md path='/a'/></url>
        <url><loc>http://example.com/b</loc><lastmod>2026-03-02</lastmod><rs:md change='deleted'/></url>";
    let md = "capability='changedump-manifest' from='2026-03-01'";
    let read = read_with_oddities(&document(md, entries), "bad-change=1");
    assert_eq!(read.entries[0].md.change, None);
    assert_eq!(read.entries[0].md.path.as_deref(), Some("/a"));
}

#[test]
fn change_dump_labelled_changelist_lists_packages() {
    let entry = "<url><loc>http://example.com/1.tar.xz</loc><lastmod>2026-03-01</lastmod>
        <rs:md type='application/x-xz' length='9' from='2026-03-01' until='2026-03-02'/>
        <rs:ln rel='contents' href='http://example.com/1.xml' type='application/xml'/></url>";
    let md = "capability='changelist' from='2026-03-01'";
    let read = read_with_oddities(&document(md, entry), "bad-change=1");
    assert_eq!(read.head.md.capability, Some(Capability::ChangeList));
    let contents = read.entries[0].links("contents").next().unwrap();
    assert_eq!(contents.href.as_str(), "http://example.com/1.xml");
    assert_eq!(locs(&read), ["http://example.com/1.tar.xz"]);
}

#[test]
fn oddities_of_a_document_depend_on_its_capability() {
    let dated = |path: &str, day: &str| {
        format!(
            "<url><loc>http://example.com/{path}</loc><lastmod>2026-03-{day}</lastmod><rs:md change='updated'/></url>"
        )
    };
    let backwards = dated("a", "03") + &dated("b", "02") + &dated("c", "02");
    let mixed = dated("a", "03") + &dated("b", "02") + &dated("c", "03");
    for (md, inside, oddities) in [
        (
            "capability='changelist' from='2026'",
            &*backwards,
            "newest-first=1",
        ),
        (
            "capability='changedump-manifest' from='2026'",
            &mixed,
            "unordered=1",
        ),
        (
            "capability='change-notification' from='2026' until='2026'",
            &mixed,
            "unordered=1",
        ),
        (
            "capability='change-notification' from='2026'",
            "",
            "no-until=1",
        ),
        (
            "capability='change-notification'",
            "",
            "no-from=1 no-until=1",
        ),
        ("capability='framework-notification'", &mixed, ""),
        ("capability='resourcelist' at='2026'", &mixed, ""),
        ("capability='resourcelist'", "", "no-at=1"),
        (
            "capability='resourcelist' at='2026' until='2026'",
            "",
            "wrong-interval=1",
        ),
        (
            "capability='resourcedump' from='2026'",
            "",
            "wrong-interval=1",
        ),
        (
            "capability='changedump' at='2026' completed='2026'",
            "",
            "wrong-interval=1",
        ),
        ("capability='changedump'", "", "no-from=1"),
        ("capability='description'", "", "wrong-up=1"),
        (
            "capability='capabilitylist'",
            "<url><loc>/capabilities.xml</loc><rs:md capability='resourcelist'/></url>",
            "relative-uri=1 wrong-up=1",
        ),
        (
            "capability='capabilitylist'",
            "<url><loc>/1</loc><rs:md capability='oai'/></url><url><loc>/2</loc><rs:md capability='oai'/></url>",
            "relative-uri=2",
        ),
        ("", &mixed, "no-capability=1"),
    ] {
        read_with_oddities(&document(md, inside), oddities);
    }
    let itself = "<rs:ln rel='up' href='http://example.com/sets/1/list.xml'/>";
    let text = document("capability='changelist' from='2026'", "").replace(UP, itself);
    read_with_oddities(&text, "wrong-up=1");
}

#[test]
fn more_than_50_000_entries_are_an_oddity() {
    let entries = |count: usize| "<url><loc>http://example.com/a</loc></url>".repeat(count);
    let md = "capability='resourcelist' at='2026'";
    read_with_oddities(&document(md, &entries(50_000)), "");
    read_with_oddities(&document(md, &entries(50_001)), "too-many-entries=1");
}
