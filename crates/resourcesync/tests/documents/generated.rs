//! Generators of random documents of every kind.

use proptest::option;
use proptest::prelude::*;
use resourcesync::entries::ChangeFrequency;
use resourcesync::{
    Algorithm, Capability, ChangeKind, ContentInfo, Digest, Entry, Head, Link, Metadata, Root,
    SourceTime,
};
use url::Url;

/// Every capability of the specifications.
pub(crate) const CAPABILITIES: [Capability; 10] = [
    Capability::Description,
    Capability::CapabilityList,
    Capability::ResourceList,
    Capability::ResourceDump,
    Capability::ResourceDumpManifest,
    Capability::ChangeList,
    Capability::ChangeDump,
    Capability::ChangeDumpManifest,
    Capability::ChangeNotification,
    Capability::FrameworkNotification,
];

/// A generated document.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    pub(crate) head: Head,
    pub(crate) entries: Vec<Entry>,
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// Times of the years 2 to 9999, as earlier ones stand for none: whole seconds, and down to the microsecond.
fn times() -> impl Strategy<Value = SourceTime> {
    let micros = -62_104_060_800_000_000_i64..253_402_300_800_000_000;
    let seconds = -62_104_060_800_i64..253_402_300_800;
    prop_oneof![
        seconds.prop_map(|seconds| seconds * 1_000_000),
        micros.clone().prop_map(|micros| micros / 1000 * 1000),
        micros,
    ]
    .prop_map(SourceTime::from_micros)
}

fn urls() -> impl Strategy<Value = Url> {
    prop_oneof![
        "https?://[a-z]{1,6}\\.example/[ -~é\\n]{0,20}",
        "https?://[a-z]{1,6}\\.example/[a-z]{1,4}\\?[a-z]=[ -~é€]{0,9}(&[a-z]=[0-9&;]{0,3})?",
    ]
    .prop_map(|text| url(&text))
}

/// Any text that XML can hold, without white space at its ends.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "[!-~é][ -~é\\t\\n\\r]{0,12}[!-~é]",
        prop::sample::select(vec![
            "]]>",
            "a]]>b",
            "<![CDATA[x]]>",
            "&amp;amp;",
            "&#38;",
            "&nbsp;",
            "\"it's\"",
            "<!-- -->",
            "ﬁ\u{200b}漢字 😀",
            "a\u{85}b\u{2028}c",
        ])
        .prop_map(str::to_owned),
    ]
}

/// Paths, which may end with a space.
fn paths() -> impl Strategy<Value = String> {
    prop_oneof![texts(), "/ ?[a-z]{1,5} ?/[a-z]{1,3} "]
}

fn hashes() -> impl Strategy<Value = Vec<Digest>> {
    let all = vec![
        Algorithm::Md5,
        Algorithm::Sha1,
        Algorithm::Sha256,
        Algorithm::Sha384,
        Algorithm::Sha512,
    ];
    (prop::sample::subsequence(all, 0..=5), any::<u64>()).prop_map(|(algorithms, content)| {
        let digest = |algorithm| Digest::of(algorithm, &content.to_le_bytes());
        algorithms.into_iter().map(digest).collect()
    })
}

fn capabilities() -> impl Strategy<Value = Capability> {
    prop_oneof![
        9 => prop::sample::select(CAPABILITIES.to_vec()),
        1 => "archive-[a-z]{1,5}".prop_map(Capability::Other),
    ]
}

fn links() -> impl Strategy<Value = Vec<Link>> {
    let rels = prop_oneof![
        prop::sample::select(vec!["up", "index", "hub", "duplicate", "describedby"])
            .prop_map(str::to_owned),
        "[a-zA-Z:/&]{1,8}",
    ];
    let link = (
        (rels, urls(), option::of(1..=999_999_u32)),
        (option::of(times()), hashes(), any::<Option<u64>>()),
        (
            option::of(texts()),
            option::of(texts()),
            option::of(paths()),
        ),
    );
    let link = link.prop_map(
        |((rel, href, pri), (modified, hashes, length), texts)| Link {
            rel,
            href,
            pri,
            modified,
            content: ContentInfo {
                length,
                media_type: texts.0,
                hashes,
            },
            encoding: texts.1,
            path: texts.2,
        },
    );
    prop::collection::vec(link, 0..3)
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let kinds = vec![
        ChangeKind::Created,
        ChangeKind::Updated,
        ChangeKind::Deleted,
    ];
    let moments = (
        option::of(times()),
        option::of(times()),
        option::of(times()),
        option::of(times()),
        option::of(times()),
    );
    let others = (
        option::of(capabilities()),
        option::of(prop::sample::select(kinds)),
        hashes(),
    );
    let texts = (
        any::<Option<u64>>(),
        option::of(texts()),
        option::of(texts()),
        option::of(paths()),
    );
    (moments, others, texts).prop_map(|(times, others, texts)| Metadata {
        at: times.0,
        completed: times.1,
        modified: None,
        from: times.2,
        until: times.3,
        capability: others.0,
        change: others.1,
        datetime: times.4,
        content: ContentInfo {
            length: texts.0,
            media_type: texts.1,
            hashes: others.2,
        },
        encoding: texts.2,
        path: texts.3,
    })
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let frequencies = prop::sample::select(vec![ChangeFrequency::Always, ChangeFrequency::Yearly]);
    let entry = (
        urls(),
        option::of(times()),
        metadata(),
        links(),
        option::of(frequencies),
    );
    let entry = entry.prop_map(|(loc, lastmod, md, links, frequency)| Entry {
        loc,
        lastmod,
        expires: None,
        md,
        links,
        has_cut_links: false,
        frequency,
    });
    prop::collection::vec(entry, 0..5)
}

/// Any document that the writer can write, valid or not.
pub(crate) fn documents() -> impl Strategy<Value = Generated> {
    let head = (any::<bool>(), metadata(), links());
    (head, entries()).prop_map(|((is_index, md, links), entries)| {
        let root = if is_index {
            Root::Sitemapindex
        } else {
            Root::Urlset
        };
        let head = Head {
            root,
            md,
            links,
            interfaces: Vec::new(),
            is_change_set: false,
        };
        Generated { head, entries }
    })
}

/// Documents of a capability that conform to the specification, with all permitted attributes.
pub(crate) fn conforming(capability: Capability) -> impl Strategy<Value = Generated> {
    (documents(), times(), times())
        .prop_map(move |(generated, one, other)| conform(generated, &capability, one, other))
}

fn conform(
    generated: Generated,
    capability: &Capability,
    one: SourceTime,
    other: SourceTime,
) -> Generated {
    let Generated {
        mut head,
        mut entries,
    } = generated;
    let is_one_of = |these: &[Capability]| these.contains(capability);
    let can_be_index = is_one_of(&[
        Capability::ResourceList,
        Capability::ResourceDump,
        Capability::ChangeList,
        Capability::ChangeDump,
    ]);
    if !can_be_index && *capability != Capability::Description {
        head.root = Root::Urlset;
    }
    let has_document_entries = head.root == Root::Sitemapindex
        || is_one_of(&[Capability::ResourceDump, Capability::ChangeDump]);
    head.md.capability = Some(capability.clone());
    head.links
        .retain(|link| !link.rel.eq_ignore_ascii_case("up"));
    if *capability != Capability::Description {
        let up = Link::new("up", url("http://example.com/above.xml"));
        head.links.push(up);
    }
    let states_changes = is_one_of(&[
        Capability::ChangeList,
        Capability::ChangeDump,
        Capability::ChangeDumpManifest,
        Capability::ChangeNotification,
    ]);
    if states_changes {
        (head.md.at, head.md.completed) = (None, None);
        head.md.from = Some(one);
        if *capability == Capability::ChangeNotification {
            head.md.until = Some(other);
        }
    } else {
        (head.md.from, head.md.until) = (None, None);
        head.md.at = Some(one);
    }
    let mut seen = Vec::new();
    for entry in &mut entries {
        let md = &mut entry.md;
        md.capability = match capability {
            Capability::Description => Some(Capability::CapabilityList),
            Capability::CapabilityList | Capability::FrameworkNotification => md
                .capability
                .take()
                .filter(|capability| !seen.contains(capability)),
            _ => None,
        };
        seen.extend(md.capability.clone());
        if states_changes {
            (md.at, md.completed) = (None, None);
        } else {
            (md.from, md.until) = (None, None);
        }
        if is_one_of(&[
            Capability::ChangeList,
            Capability::ChangeDumpManifest,
            Capability::ChangeNotification,
            Capability::FrameworkNotification,
        ]) {
            md.change = md.change.or(Some(ChangeKind::Updated));
            entry.lastmod = entry.lastmod.or(Some(one));
        }
    }
    let all = entries.iter_mut().map(|entry| &mut entry.md);
    for md in all.chain([&mut head.md]) {
        for (begin, end) in [
            (&mut md.from, &mut md.until),
            (&mut md.at, &mut md.completed),
        ] {
            if end.is_some() && *end < *begin {
                std::mem::swap(begin, end);
            }
        }
    }
    entries.sort_by_key(|entry| {
        if has_document_entries {
            entry.md.from
        } else {
            entry.changed_at()
        }
    });
    Generated { head, entries }
}
