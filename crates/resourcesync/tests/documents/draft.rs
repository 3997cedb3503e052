//! The dialect of the draft of version 0.1 (13 August 2012): its own examples, word for word.
//!
//! In examples 4.3 to 4.5 the last tag lacks its slash, which is counted; the end tags of 5.7 have a prefix that is not declared, and in
//! 3.11 a tag lacks its angle bracket.

use std::fmt::Write;

use resourcesync::{Document, Entry, read_document};
use url::Url;

use crate::base;

macro_rules! example {
    ($number:literal) => {
        (
            $number,
            include_str!(concat!("draft-0.1/", $number, ".xml")),
        )
    };
}

/// The documents among the examples; that of 5.5 is within a stanza.
const EXAMPLES: [(&str, &str); 28] = [
    example!("2.1"),
    example!("2.3"),
    example!("2.4"),
    example!("2.5"),
    example!("2.6"),
    example!("3.2"),
    example!("3.3"),
    example!("3.4"),
    example!("3.5"),
    example!("3.6"),
    example!("3.7"),
    example!("3.8"),
    example!("3.9"),
    example!("3.10"),
    example!("3.11"),
    example!("4.1"),
    example!("4.2"),
    example!("4.3"),
    example!("4.4"),
    example!("4.5"),
    example!("5.1"),
    example!("5.2"),
    example!("5.3"),
    example!("5.4"),
    example!("5.6"),
    example!("6.1"),
    example!("6.2"),
    example!("6.3"),
];

fn read(text: &str) -> Document {
    let document = read_document(text.as_bytes(), &base());
    document.unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn example(number: &str) -> Document {
    let found = EXAMPLES.iter().find(|(known, _)| *known == number);
    read(found.unwrap().1)
}

/// What an entry states, in short.
fn shown(entry: &Entry) -> String {
    let md = &entry.md;
    let mut shown = entry.loc.path().trim_start_matches('/').to_owned();
    if let Some(change) = md.change {
        write!(shown, " {}", change.as_str()).unwrap();
    }
    let times = [
        ("", entry.changed_at()),
        ("expires ", entry.expires.filter(|_| md.change.is_none())),
    ];
    for (what, time) in times {
        if let Some(time) = time {
            let time = time.to_string();
            let time = time.trim_start_matches("2012-08-08T");
            write!(shown, " {what}{}", time.trim_end_matches('Z')).unwrap();
        }
    }
    for text in md.content.hashes.iter().map(ToString::to_string) {
        write!(shown, " {text}").unwrap();
    }
    if let Some(length) = md.content.length {
        write!(shown, " {length}").unwrap();
    }
    let texts = [&md.content.media_type, &md.encoding, &md.path];
    for text in texts.into_iter().flatten() {
        write!(shown, " {text}").unwrap();
    }
    for link in &entry.links {
        write!(shown, " <{}> {}", link.rel, link.href).unwrap();
    }
    shown
}

#[track_caller]
fn check(number: &str, capability: Option<&str>, entries: &[&str]) {
    let document = example(number);
    let found = document.head.md.capability.as_ref();
    assert_eq!(found.map(|it| it.as_str()), capability, "{number}");
    let found: Vec<String> = document.entries.iter().map(shown).collect();
    assert_eq!(found, entries, "{number}");
}

#[test]
fn examples_of_the_draft_are_read_and_reported_once() {
    for (number, text) in EXAMPLES {
        let document = read(text);
        let expected = match number {
            "2.1" => "no-capability=1",
            "4.3" => "root-reopened=1 draft-0.1=1",
            // Its change has no kind.
            "4.4" => "root-reopened=1 draft-0.1=1 bad-change=1",
            "4.5" => "root-reopened=1 other-protocol=1 draft-0.1=1",
            _ => "draft-0.1=1",
        };
        assert_eq!(document.oddities.to_string(), expected, "{number}");
        let is_dated = document.head.md.modified == Some("2012-08-08T16:30:00Z".parse().unwrap());
        assert_eq!(is_dated, number != "2.1", "{number}");
    }
    let misprefixed = read(include_str!("draft-0.1/5.7.xml"));
    assert_eq!(misprefixed.oddities.to_string(), "bad-markup=3 draft-0.1=1");
    assert_eq!(misprefixed.entries, example("5.2").entries);
}

const FROGS: &str = "<collection> http://en.wikipedia.org/wiki/Category:Frogs";
const FISH: &str = "<collection> http://en.wikipedia.org/wiki/Category:Fish";
const CROCODILES: &str = "<collection> data:,Crocodiles";
const MD5: &str = "md5:436865636b20496e7465677269747921";

#[test]
fn sitemaps_state_what_resource_lists_do() {
    check("3.3", None, &["res1", "res2"]);
    check(
        "3.4",
        None,
        &["res1 created 08:15:00", "res2 expires 13:22:00"],
    );
    let other = example("3.5").entries[1].md.content.hashes[0].to_string();
    assert_eq!(other.len(), MD5.len());
    check(
        "4.2",
        None,
        &[
            &format!("res1 08:15:00 {MD5} 15672 text/html; charset=utf-8 gzip resources/res1"),
            &format!("res2 13:22:00 {other} 93660664 application/pdf compress resources/res2"),
        ],
    );
    check(
        "3.9",
        None,
        &[
            &format!("res1 08:15:00 {FROGS} {CROCODILES}"),
            &format!("res2 13:22:00 {FISH}"),
        ],
    );
    check(
        "3.11",
        None,
        &[
            &format!("sitemap1.xml 10:00:00 {FROGS} {FROGS}"),
            "sitemap2.xml 15:00:00 <collection> http://en.wikipedia.org/wiki/Category:Animals",
        ],
    );
    check(
        "4.3",
        None,
        &["res1 08:15:00 <duplicate> http://example.com/example-com-mirror/res1"],
    );
    // What it stands for are no bytes.
    check("4.5", None, &[]);
}

#[test]
fn change_sets_state_what_change_lists_do() {
    let changes = [
        "res1 updated 08:15:00",
        "res2 expires 13:22:00",
        "res3 created 14:57:00",
    ];
    check("5.2", Some("changelist"), &changes);
    check("6.1", Some("changelist"), &changes);
    check(
        "5.3",
        Some("changelist"),
        &[&format!(
            "res1 updated 08:15:00 {MD5} 15672 application/pdf gzip {FROGS} {CROCODILES}"
        )],
    );
    check(
        "4.4",
        Some("changelist"),
        &["res1 08:15:00 <http://www.openarchives.org/rs/partial> http://example.com/res1/diff251"],
    );
    check(
        "6.2",
        Some("changelist"),
        &[
            "res1 updated 08:15:00 <memento> http://example.com/20120808081500/res1",
            "res2 expires 13:22:00 <memento> http://example.com/20120808132200/res2",
            "res3 created 14:57:00 <memento> http://example.com/20120808145700/res3",
        ],
    );
    let gates = example("6.3");
    let links = gates.entries.iter().flat_map(|entry| &entry.links);
    assert!(links.clone().all(|link| link.rel == "timegate"));
    assert_eq!(links.count(), 3);
}

#[test]
fn heads_name_change_sets_dumps_and_interfaces() {
    let text = |url: Option<&Url>| url.map(Url::to_string).unwrap_or_default();
    let current = "http://example.com/changesets/most_recent.xml";
    let before = "http://example.com/changesets/20120807.xml";
    let dump = "http://example.com/dump/dump.zip";
    for (number, names) in [
        ("2.5", [current, "", ""]),
        ("2.6", [current, before, ""]),
        ("4.1", ["", "", dump]),
        ("5.1", [current, "", ""]),
        ("5.2", ["", "", ""]),
        ("5.4", ["", "", ""]),
        ("6.1", [current, before, ""]),
    ] {
        let head = example(number).head;
        let found = [
            text(head.current_change_set()),
            text(head.previous_change_set()),
            text(head.dumps().next()),
        ];
        assert_eq!(found, names, "{number}");
    }
    for (number, protocol, href, node) in [
        (
            "5.4",
            "http://xmpp.org/extensions/xep-0060.html",
            "xmpp:pubsub.example.com",
            Some("Example_Node_Name"),
        ),
        (
            "5.6",
            "http://example.com/protocol/callback",
            "http://example.com/subscribe",
            None,
        ),
    ] {
        let interfaces = example(number).head.interfaces;
        assert_eq!(interfaces.len(), 1, "{number}");
        assert_eq!(interfaces[0].protocol, protocol);
        assert_eq!(interfaces[0].href.as_str(), href);
        assert_eq!(interfaces[0].node.as_deref(), node);
    }
}

const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:xhtml="http://www.w3.org/1999/xhtml""#;

/// Reads a `urlset` with this tag and the only entry, and compares its oddities.
#[track_caller]
fn only(root: &str, inside: &str, oddities: &str) -> String {
    let loc = "<loc>http://example.com/a</loc>";
    let text = format!("<urlset {NAMESPACES} {root}><url>{loc}{inside}</url></urlset>");
    let document = read(&text);
    assert_eq!(document.oddities.to_string(), oddities, "{text}");
    document.entries.first().map(shown).unwrap_or_default()
}

#[test]
fn what_the_draft_leaves_open_is_read_as_it_is_meant() {
    for (root, inside, expected, oddities) in [
        // Kinds of change by `rs:type`, and without it.
        (
            "rs:type=\"changeset\"",
            "<lastmod rs:type=\"deleted\">2012-08-08T08:15:00Z</lastmod>",
            "a deleted 08:15:00",
            "draft-0.1=1",
        ),
        (
            "rs:type=\"ChangeSet\"",
            "<expires rs:type=\"deleted\">2012-08-08T08:15:00Z</expires>",
            "a expires 08:15:00",
            "draft-0.1=1",
        ),
        // Nothing states that it is deleted by now.
        (
            "rs:type=\"changeset\"",
            "<expires>tomorrow</expires>",
            "a",
            "bad-datetime=1 draft-0.1=1 bad-change=1 no-change-time=1",
        ),
        (
            "rs:type=\"changeset\"",
            "<expires/>",
            "a",
            "bad-datetime=1 draft-0.1=1 bad-change=1 no-change-time=1",
        ),
        (
            "rs:type=\"changeset\"",
            "<lastmod rs:type=\"moved\">2012-08-08T08:15:00Z</lastmod>",
            "a 08:15:00",
            "draft-0.1=1 bad-change=1",
        ),
        // It may lie in the future.
        (
            "",
            "<lastmod>2012-08-08T08:15:00Z</lastmod><expires>2012-08-09T08:15:00Z</expires>",
            "a 08:15:00 expires 2012-08-09T08:15:00",
            "draft-0.1=1",
        ),
        // Digests in both encodings, repeated, contradictory, unknown.
        (
            "",
            "<rs:fixity type=\"sha-1\"> qZk+NkcGgWq6PiVxeFDCbJzQ2J0= </rs:fixity>
             <rs:fixity type=\"md5\">900150983cd24fb0d6963f7d28e17f72</rs:fixity>",
            "a sha-1:a9993e364706816aba3e25717850c26c9cd0d89d md5:900150983cd24fb0d6963f7d28e17f72",
            "draft-0.1=1",
        ),
        (
            "",
            "<rs:fixity type=\"md5\">900150983cd24fb0d6963f7d28e17f72</rs:fixity>
             <rs:fixity type=\"md5\">Q2hlY2sgSW50ZWdyaXR5IQ==</rs:fixity>
             <rs:fixity type=\"crc32\">AAAA</rs:fixity><rs:fixity>AAAA</rs:fixity>",
            "a md5:900150983cd24fb0d6963f7d28e17f72",
            "unknown-digest=3 draft-0.1=1",
        ),
        (
            "",
            "<rs:size>many</rs:size><rs:size>5</rs:size>",
            "a 5",
            "bad-number=1 draft-0.1=1",
        ),
        // An rs:md counts more, wherever it stands.
        (
            "",
            "<rs:size>5</rs:size><rs:mimetype>a/b</rs:mimetype><rs:md length=\"6\"/>",
            "a 6 a/b",
            "draft-0.1=1",
        ),
        // Links of other purposes are no links of the draft.
        (
            "",
            "<xhtml:link rel=\"alternate\" hreflang=\"de\" href=\"http://example.com/de\"/>
             <xhtml:link rel=\"alternate\"/><rs:unknown/>",
            "a",
            "no-capability=1",
        ),
        (
            "",
            "<xhtml:link rel=\"DCTERMS.subject\"/>",
            "a",
            "no-capability=1 bad-link=1",
        ),
        (
            "",
            "<xhtml:meta name=\"DC.subject\" content=\"Marine biology, 50% off\"/>",
            "a <collection> data:,Marine%20biology%2C%2050%25%20off",
            "draft-0.1=1",
        ),
    ] {
        assert_eq!(only(root, inside, oddities), expected, "{inside}");
    }
}

#[test]
fn other_links_of_a_head_are_ignored() {
    let link = r#"<xhtml:link rel="alternate next prev up" href="http://example.com/x"/>"#;
    let meta = r#"<xhtml:meta name="author" content="2012"/>"#;
    let text = format!("<urlset {NAMESPACES}>{link}{meta}</urlset>");
    let document = read(&text);
    assert_eq!(document.oddities.to_string(), "no-capability=1");
    assert_eq!(document.head.links, []);
}
