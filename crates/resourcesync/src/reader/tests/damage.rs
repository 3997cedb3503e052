//! Local damage: what it is in is lost and counted, and nothing else.

use std::io::BufReader;

use super::super::*;
use super::{NAMESPACES, WHOLE, base, only_entry, read, read_odd, time, urlset};
use crate::{DocumentSummary, Root, SourceTime};

/// Reads a Resource List of three entries, of which the second has this content, and these oddities.
#[track_caller]
fn check(inside: &[u8], is_lost: bool, counted: &[Oddity]) -> Document {
    let entry = |n: u32| format!("<url><loc>http://example.com/{n}</loc></url>");
    let text = urlset(
        "resourcelist",
        &format!("{}<url>INSIDE</url>{}", entry(1), entry(3)),
    );
    let (before, after) = text.split_once("INSIDE").unwrap();
    let bytes = [before.as_bytes(), inside, after.as_bytes()].concat();
    let shown = String::from_utf8_lossy(inside);
    let document = read_document(&bytes, &base());
    let document = document.unwrap_or_else(|error| panic!("{error}: {shown}"));
    let mut wanted = Oddities::default();
    counted.iter().for_each(|&oddity| wanted.add(oddity));
    assert_eq!(document.oddities, wanted, "{shown}");
    let read: Vec<&str> = document
        .entries
        .iter()
        .map(|entry| entry.loc.path())
        .collect();
    let expected: &[&str] = if is_lost {
        &["/1", "/3"]
    } else {
        &["/1", "/2", "/3"]
    };
    assert_eq!(read, expected, "{shown}");
    let reader = DocumentReader::open(bytes.as_slice(), &base()).unwrap();
    let summary = DocumentSummary::read(reader, SourceTime::MAX).unwrap();
    // What can't be mirrored is not unread.
    let is_foreign = counted
        .iter()
        .any(|oddity| oddity.code().starts_with("scheme-"));
    let is_unread = is_lost && !is_foreign;
    assert_eq!(summary.bad_entries(), u64::from(is_unread), "{shown}");
    document
}

const LOC: &str = "<loc>http://example.com/2</loc>";

#[test]
fn damage_in_what_is_not_used_is_read_over() {
    for inside in [
        "<i:title xmlns:i='i'>R & D</i:title>",
        "<i:title xmlns:i='i'>a&b;c</i:title>",
        "<i:title xmlns:i='i'>a &</i:title>",
        "<i:title xmlns:i='i'>&nbsp;</i:title>",
        "<changefreq>&#0;</changefreq>",
        "<i:a xmlns:i='i' b='R&D'/>",
        "<i:a xmlns:i='i' b='&eacute; &amp;'/>",
        "<rs:md other='R & D'/>",
        "<rs:ln rel='up' href='/up' title='R & D'/>",
        "<i:a\u{a0}xmlns:i='i'\u{3000}b='\u{a0}'/>",
        "<i:a\u{a0}xmlns:i='i'>a</i:a\u{a0}>",
    ] {
        let oddities = [Oddity::BadMarkup, Oddity::RelativeUri];
        let counted = &oddities[..1 + usize::from(inside.contains("href"))];
        check(format!("{LOC}{inside}").as_bytes(), false, counted);
    }
    for inside in [
        &b"<i>caf\xe9</i>"[..],
        b"<!-- caf\xe9 -->",
        b"<i a='\xe9'/>",
    ] {
        check(
            &[LOC.as_bytes(), inside].concat(),
            false,
            &[Oddity::BadMarkup],
        );
    }
}

#[test]
fn an_entry_is_lost_whose_loc_or_metadata_is_damaged() {
    for loc in [
        &b"http://example.com/?a=1&b=2"[..],
        b"http://example.com/?a=1&b=2;",
        b"http://example.com/&nbsp;",
        b"http://example.com/&#xD800;",
        b"http://example.com/caf\xe9",
        b"<![CDATA[http://example.com/caf\xe9]]>",
    ] {
        let inside = [b"<loc>", loc, b"</loc>"].concat();
        check(&inside, true, &[Oddity::BadMarkup, Oddity::BadLoc]);
    }
    for attribute in [
        "hash='md5:&x;'",
        "type='R&D'",
        "path='/R&D'",
        "change='&deleted'",
    ] {
        let inside = format!("{LOC}<rs:md {attribute}/>");
        check(
            inside.as_bytes(),
            true,
            &[Oddity::BadMarkup, Oddity::BadEntry],
        );
    }
    let inside = [LOC.as_bytes(), b"<rs:md path='caf\xe9'/>"].concat();
    check(&inside, true, &[Oddity::BadMarkup, Oddity::BadEntry]);
    // What is optional is lost alone.
    let inside = format!("{LOC}<rs:ln rel='duplicate' href='/a?b&c'/>");
    let document = check(
        inside.as_bytes(),
        false,
        &[Oddity::BadMarkup, Oddity::BadLink],
    );
    assert!(document.entries[1].links.is_empty());
    let inside = format!("{LOC}<lastmod>2013&nbsp;</lastmod>");
    check(
        inside.as_bytes(),
        false,
        &[Oddity::BadMarkup, Oddity::BadDatetime],
    );
}

#[test]
fn start_tag_of_the_root_at_the_very_end_is_its_end() {
    let entry = "<url><loc>http://example.com/a</loc></url>";
    let begin = urlset("resourcelist", entry);
    let begin = begin.strip_suffix("</urlset>").unwrap();
    for end in ["<urlset>", "\n<urlset>\r\n\t ", "<urlset\n >"] {
        let document = read_odd(&format!("{begin}{end}"), &[Oddity::RootReopened]);
        assert_eq!(document.entries.len(), 1, "{end:?}");
    }
    let prefixed = |end: &str| {
        let begin = begin.replacen("<urlset xmlns", "<s:urlset xmlns:s", 1);
        let begin = begin.replace("url>", "s:url>").replace("loc>", "s:loc>");
        format!("{begin}{end}")
    };
    read_odd(&prefixed("<s:urlset>"), &[Oddity::RootReopened]);
    // Everything else is a document that was cut.
    let mut cut: Vec<String> = [
        "",
        "<urlset",
        "<urlset ",
        "<urlset/>",
        "<urlset a=\"b\">",
        "<sitemapindex>",
        "<s:urlset>",
        "<urlse>",
        "<urlset>text",
        "<urlset>&#32;",
        "<urlset><![CDATA[ ]]>",
        "<urlset><!-- -->",
        "<urlset> <urlset>",
        "<urlset></urlset>",
        "<urlset><url/>",
        "<urlset><url></url> ",
        "<urlset><rs:md capability=\"resourcelist\"/>",
        "<url><urlset>",
        "<url><loc>http://example.com/b</loc><urlset>",
    ]
    .iter()
    .map(|end| format!("{begin}{end}"))
    .collect();
    cut.push(prefixed("<urlset>"));
    // Nothing has ended before.
    cut.push(format!("<urlset {NAMESPACES}>\n<urlset>"));
    cut.push(format!("<urlset {NAMESPACES}><url><urlset>"));
    for text in cut {
        let error = read(&text).unwrap_err();
        assert_eq!(error.code(), "cut-short", "{text}");
    }
    // It may be another element.
    read_odd(&format!("{begin}<urlset> </urlset></urlset>"), &[]);
}

#[test]
fn document_with_a_reopened_root_that_was_cut_is_incomplete() {
    let end = WHOLE.rfind("</urlset>").unwrap();
    let reopened = format!("{}<urlset>", &WHOLE[..end]);
    let whole = read(WHOLE).unwrap();
    let read_whole = read_odd(&reopened, &[Oddity::RootReopened]);
    assert_eq!(read_whole.entries, whole.entries);
    for end in 1..reopened.len() {
        let error = read_document(&reopened.as_bytes()[..end], &base()).unwrap_err();
        assert_eq!(error.code(), "cut-short", "at {end}: {error}");
    }
    for size in 1..12 {
        let pieces = BufReader::with_capacity(size, reopened.as_bytes());
        let mut reader = DocumentReader::open(pieces, &base()).unwrap();
        while reader.next_entry().unwrap().is_some() {}
        assert_eq!(reader.oddities(), &read_whole.oddities, "by {size}");
    }
}

#[test]
fn spaces_that_are_not_ascii_separate_attributes() {
    let entry = only_entry(
        "<loc>http://example.com/1</loc><rs:md\u{a0}length='5'\u{a0} type='a\u{a0}b'\u{2003}/>",
        &[Oddity::BadMarkup],
    );
    assert_eq!(entry.md.content.length, Some(5));
    assert_eq!(entry.md.content.media_type.as_deref(), Some("a\u{a0}b"));
    let text = urlset(
        "resourcelist",
        "<url\u{a0}a='b'><loc>http://example.com/1</loc></url>",
    )
    .replace(" xmlns:rs", "\u{a0}xmlns:rs");
    let document = read_odd(&text, &[Oddity::BadMarkup, Oddity::BadMarkup]);
    assert_eq!(document.entries.len(), 1);
}

#[test]
fn a_list_whose_continuation_cannot_be_read_is_not_complete() {
    let next = "<rs:ln rel='next' href='/list?page=2&size=9'/>";
    let text = urlset("resourcelist", next);
    let counted = [Oddity::BadMarkup, Oddity::BadLink, Oddity::BadEntry];
    read_odd(&text, &counted);
    let other = text.replace("'next'", "'describedby'");
    read_odd(&other, &counted[..2]);
}

#[test]
fn declared_encodings_apply_where_the_bytes_are_not_utf8() {
    let list = |label: &str, loc: &[u8]| {
        let before = format!(
            "<?xml version='1.0' encoding='{label}'?><urlset {NAMESPACES}>
             <rs:ln rel='up' href='http://example.com/up'/>
             <rs:md capability='resourcelist' at='2013'/><url><loc>http://example.com/"
        );
        let after = b"</loc></url></urlset>";
        [before.as_bytes(), loc, after].concat()
    };
    for (label, loc, path) in [
        ("ISO-8859-1", &b"caf\xe9"[..], "/caf%C3%A9"),
        ("windows-1252", b"\x80", "/%E2%82%AC"),
        ("ISO-8859-1", "café".as_bytes(), "/caf%C3%A9"),
        ("utf-16", b"cafe", "/cafe"),
        ("x-unknown", "café".as_bytes(), "/caf%C3%A9"),
    ] {
        let document = read_document(&list(label, loc), &base()).unwrap();
        assert_eq!(document.entries[0].loc.path(), path, "{label}");
        assert_eq!(document.oddities.to_string(), "encoding=1", "{label}");
    }
    let utf16 = |bytes: fn(u16) -> [u8; 2], mark: bool| -> Vec<u8> {
        let text = String::from_utf8(list("UTF-16", "café".as_bytes())).unwrap();
        let text = if mark {
            format!("\u{feff}{text}")
        } else {
            text
        };
        text.encode_utf16().flat_map(bytes).collect()
    };
    for mark in [true, false] {
        for bytes in [utf16(u16::to_le_bytes, mark), utf16(u16::to_be_bytes, mark)] {
            let document = read_document(&bytes, &base()).unwrap();
            assert_eq!(document.entries[0].loc.path(), "/caf%C3%A9");
        }
    }
}

#[test]
fn resources_elsewhere_than_on_the_web_are_read_from_a_duplicate_or_counted() {
    let foreign = "<loc>ftp://example.com/2</loc>";
    let scheme = Oddity::SchemeFtp;
    check(foreign.as_bytes(), true, &[scheme]);
    let duplicate = format!(
        "{foreign}<rs:md length='5'/><rs:ln rel='duplicate' pri='1' href='file:///2'/>
         <rs:ln rel='duplicate' pri='3' href='http://example.com/3'/>
         <rs:ln rel='duplicate' pri='2' href='http://example.com/2' length='6' type='text/plain'/>"
    );
    let document = check(duplicate.as_bytes(), false, &[scheme]);
    let content = &document.entries[1].md.content;
    assert_eq!(content.length, Some(5), "what the entry states counts");
    assert_eq!(content.media_type.as_deref(), Some("text/plain"));
    for (loc, code) in [
        ("file:///etc/hostname", "scheme-file"),
        ("mailto:me@example.com", "scheme-mailto"),
        ("urn:isbn:1", "scheme-urn"),
        ("gopher://example.com/", "scheme-other"),
    ] {
        let entry = format!("<url><loc>{loc}</loc></url>");
        let found = read(&urlset("resourcelist", &entry)).unwrap().oddities;
        assert_eq!(found.to_string(), format!("{code}=1"));
    }
    // A channel is no resource.
    let channel =
        "<url><loc>ws://example.com/</loc><rs:md capability='change-notification'/></url>";
    let document = read_odd(&urlset("capabilitylist", channel), &[]);
    assert_eq!(document.entries[0].loc.scheme(), "ws");
}

#[test]
fn ends_before_their_begins_are_counted_and_are_no_ends() {
    let md = "<rs:md from='2013-02' until='2013-01' at='2013-02' completed='2013-01'/>";
    let text = urlset(
        "changelist",
        &format!("<url><loc>/1</loc><rs:md change='updated'/>{md}</url>"),
    )
    .replace("from=\"2013-01-01\"", "from='2013-02' until='2013-01'");
    let document = read(&text).unwrap();
    let counted = document.oddities.to_string();
    assert!(counted.contains("until-before-from=2"), "{counted}");
    assert!(counted.contains("completed-before-at=1"), "{counted}");
    assert_eq!(document.head.md.until, time("2013-01"));
    assert_eq!(document.head.md.closed_at(SourceTime::MAX), None);
}

#[test]
fn a_list_of_uris_is_a_plain_sitemap() {
    let text = "\u{feff}http://example.com/1\r\n\n# a comment\n http://example.com/2?a&b \nexample\nftp://example.com/\nhttp://example.com/3";
    let counted = [
        Oddity::UriList,
        Oddity::NoCapability,
        Oddity::BadLoc,
        Oddity::BadLoc,
    ];
    let read_all = |bytes: &[u8]| {
        let mut reader = DocumentReader::open_sitemap(bytes, &base())?;
        let mut uris = Vec::new();
        while let Some(entry) = reader.next_entry()? {
            assert_eq!(entry, Entry::new(entry.loc.clone()));
            uris.push(entry.loc.to_string());
        }
        assert_eq!(reader.head().root, Root::Urlset);
        Ok::<_, ReadError>((uris, reader.oddities().clone()))
    };
    let (uris, oddities) = read_all(text.as_bytes()).unwrap();
    let mut wanted = Oddities::default();
    counted.iter().for_each(|&oddity| wanted.add(oddity));
    assert_eq!(oddities, wanted);
    let expected = [
        "http://example.com/1",
        "http://example.com/2?a&b",
        "http://example.com/3",
    ];
    assert_eq!(uris, expected);
    let long = format!(
        "http://example.com/\nhttp://example.com/{}",
        "x".repeat(70_000)
    );
    let error = read_all(long.as_bytes()).unwrap_err();
    assert_eq!(error.code(), "event-too-large");
    let (_, oddities) = read_all(b"http://example.com/\nhttp://example.com/caf\xe9\n").unwrap();
    let counted = "no-capability=1 bad-loc=1 bad-markup=1 uri-list=1";
    assert_eq!(oddities.to_string(), counted);
    // Where a ResourceSync document is expected it is none.
    assert_eq!(read(text).unwrap_err().code(), "not-xml");
}

/// Reads a document whose end may be damaged; returns the paths of its entries.
fn read_tolerantly(text: &str) -> Result<(Vec<String>, Oddities), ReadError> {
    let mut reader = DocumentReader::open(text.as_bytes(), &base())?.tolerating_damaged_end();
    let mut paths = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        paths.push(entry.loc.path().to_owned());
    }
    assert!(reader.next_entry()?.is_none());
    Ok((paths, reader.oddities().clone()))
}

#[test]
fn entries_before_a_damaged_end_of_a_plain_sitemap_are_read() {
    let begin = r#"<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
        <url><loc>http://example.com/a</loc><lastmod>2024-01-01</lastmod></url>
        <url><loc>http://example.com/b</loc></url>"#;
    for end in [
        "",
        "\n",
        "</url",
        "</urlset",
        "<url><loc>http://example.com/c",
        "<url><loc>http://example.com/c</loc>",
        "\0\0\0",
        "</urlset>\0\0\0",
        "</urlset>\n<script>track()</script>",
        "</urlset><br />\n<b>Notice</b>: Undefined variable $x in sitemap.php",
        "</urlset>Notice: Undefined variable",
    ] {
        let text = format!("{begin}{end}");
        let (paths, oddities) =
            read_tolerantly(&text).unwrap_or_else(|error| panic!("{end}: {error}"));
        assert_eq!(paths, ["/a", "/b"], "{end}");
        assert_eq!(oddities.count(Oddity::DamagedEnd), 1, "{end}");
        // What a cut entry names is unknown.
        let is_cut = end.starts_with("<url>");
        assert_eq!(oddities.bad_entries(), u64::from(is_cut), "{end}");
        assert!(read(&text).is_err(), "{end}");
    }
    let whole = read_tolerantly(&format!("{begin}</urlset>\n<!-- made in 0.3 s -->\n")).unwrap();
    assert_eq!(whole.1.count(Oddity::DamagedEnd), 0);
    // An index, too: what it lists is read.
    let index = r#"<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
        <sitemap><loc>http://example.com/1.xml</loc></sitemap>"#;
    assert_eq!(read_tolerantly(index).unwrap().0, ["/1.xml"]);
}

#[test]
fn damaged_end_of_anything_else_is_an_error() {
    let sitemap = r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">"#;
    let entry = "<url><loc>http://example.com/a</loc></url>";
    let cut = |text: &str| text.replace("</urlset>", "");
    for text in [
        cut(&urlset("resourcelist", entry)),
        cut(&urlset("changelist", entry)),
        urlset("resourcelist", entry) + "<script/>",
        // ResourceSync without a capability.
        format!("<urlset {NAMESPACES}><rs:ln rel='up' href='/up'/>{entry}"),
        format!("<urlset {NAMESPACES}>{entry}<url><loc>/b</loc><rs:md change='updated'/></url>"),
        format!("<urlset {NAMESPACES}><url><loc>/b</loc><rs:md capability='changelist'/></url>"),
        // No entry is sound.
        sitemap.to_owned(),
        format!("{sitemap}<url><loc>http://example.com/a</loc>"),
        format!("{sitemap}</urlset><script/>"),
        // Damage in the middle.
        format!("{sitemap}{entry}</url>{entry}</urlset>"),
    ] {
        assert!(read_tolerantly(&text).is_err(), "{text}");
    }
}
