//! What is written is read back equal, as XML and through serde.

#![cfg(all(feature = "read", feature = "write"))]
#![allow(
    clippy::unwrap_used,
    reason = "a test panics where its preconditions fail"
)]

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use resourcesync::uri::parse_uri;
use resourcesync::{
    Algorithm, Capability, ChangeFrequency, ChangeKind, ContentInfo, Digest, Entry, Head, Link,
    Metadata, Root, SourceTime, read_document, write_document,
};
use url::Url;

fn time() -> impl Strategy<Value = SourceTime> {
    // From the year 2 to 9999.
    (-62_000_000_000_000_000_i64..253_000_000_000_000_000).prop_map(SourceTime::from_micros)
}

fn uri() -> impl Strategy<Value = Url> {
    "[a-z]{1,8}(\\.[a-z]{2,5})?/[a-zA-Z0-9äß&<>'\" ?=;%_.~-]{0,20}"
        .prop_filter_map("a URI", |text| parse_uri(&format!("http://{text}")).ok())
}

/// Text of an attribute: white space at its ends, and other control characters, are not kept.
fn text() -> impl Strategy<Value = String> {
    "[a-z<&\"'>äß][a-zA-Z0-9 <&\"'>äß;+/.-]{0,12}[a-z<&\"'>äß]"
}

fn content() -> impl Strategy<Value = ContentInfo> {
    let algorithms = [
        Algorithm::Md5,
        Algorithm::Sha1,
        Algorithm::Sha256,
        Algorithm::Sha384,
        Algorithm::Sha512,
    ];
    let hashes = prop::sample::subsequence(algorithms.to_vec(), 0..=2)
        .prop_map(|algorithms| algorithms.iter().map(|&it| Digest::of(it, b"x")).collect());
    (option::of(any::<u64>()), option::of(text()), hashes).prop_map(
        |(length, media_type, hashes)| ContentInfo {
            length,
            media_type,
            hashes,
        },
    )
}

fn link() -> impl Strategy<Value = Link> {
    let stated = (option::of(1..999_999_u32), option::of(time()), content());
    let texts = (option::of(text()), option::of(text()));
    ("[a-z]{1,9}", uri(), stated, texts).prop_map(
        |(rel, href, (pri, modified, content), (encoding, path))| Link {
            pri,
            modified,
            content,
            encoding,
            path,
            ..Link::new(rel, href)
        },
    )
}

fn change() -> impl Strategy<Value = ChangeKind> {
    prop::sample::select(vec![
        ChangeKind::Created,
        ChangeKind::Updated,
        ChangeKind::Deleted,
    ])
}

fn entry(capability: Capability) -> impl Strategy<Value = Entry> {
    let is_change = matches!(
        capability,
        Capability::ChangeList | Capability::ChangeDumpManifest | Capability::ChangeNotification
    );
    let frequency = prop::sample::select(vec![ChangeFrequency::Always, ChangeFrequency::Yearly]);
    let times = (option::of(time()), option::of(time()));
    (
        (uri(), times, option::of(frequency)),
        (change(), content(), option::of(text())),
        vec(link(), 0..3),
    )
        .prop_map(
            move |((loc, (lastmod, datetime), frequency), (change, content, path), links)| Entry {
                lastmod,
                md: Metadata {
                    change: is_change.then_some(change),
                    datetime,
                    content,
                    path,
                    ..Metadata::default()
                },
                links,
                frequency,
                ..Entry::new(loc)
            },
        )
}

fn document() -> impl Strategy<Value = (Head, Vec<Entry>)> {
    let kinds = vec![
        Capability::Description,
        Capability::CapabilityList,
        Capability::ResourceList,
        Capability::ResourceDump,
        Capability::ResourceDumpManifest,
        Capability::ChangeList,
        Capability::ChangeDump,
        Capability::ChangeDumpManifest,
        Capability::ChangeNotification,
    ];
    let roots = prop::sample::select(vec![Root::Urlset, Root::Sitemapindex]);
    (prop::sample::select(kinds), roots).prop_flat_map(|(capability, root)| {
        let times = (option::of(time()), option::of(time()));
        let entries = vec(entry(capability.clone()), 0..4);
        (times, vec(link(), 0..3), entries).prop_map(move |((from, at), links, entries)| {
            let mut head = Head::new(root, capability.clone());
            (head.md.from, head.md.at, head.links) = (from, at, links);
            (head, entries)
        })
    })
}

proptest! {
    #[test]
    fn every_kind_of_document_is_read_as_it_was_written((head, entries) in document()) {
        let base = Url::parse("http://example.com/document.xml").unwrap();
        let written = write_document(&head, &entries);
        let read = read_document(&written, &base).unwrap();
        prop_assert_eq!(read.head, head);
        prop_assert_eq!(read.entries, entries);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn every_document_is_deserialized_as_it_was_serialized((head, entries) in document()) {
        let text = serde_json::to_string(&(&head, &entries)).unwrap();
        let read: (Head, Vec<Entry>) = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read, (head, entries));
    }
}
