use std::io::{self, BufReader, Read};

use proptest::prelude::*;
use url::Url;

use super::xml::{MAX_ATTRIBUTES, MAX_DEPTH, MAX_EVENT_BYTES};
use super::*;
use crate::protocol::ChangeKind;

const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;

/// Something of everything, so that there is a lot to cut in two.
const WHOLE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<?xml-stylesheet type="text/xsl" href="style.xsl"?>
<!-- a list -->
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
  xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:x="http://example.com/x">
  <rs:ln rel="up" href="http://example.com/capabilitylist.xml"/>
  <rs:md capability="changelist" from='2013-01-03T00:00:00Z' until="2013-01-04T00:00:00Z"/>
  <x:unknown a="b &lt; c"><x:url/>text &amp; more é</x:unknown>
  <url>
    <loc>http://example.com/res1?a=1&amp;b=&#x32;</loc>
    <lastmod>2013-01-03T01:00:00Z</lastmod>
    <changefreq>daily</changefreq>
    <rs:md change="updated" hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6
      sha-256:854f61290e2e197a11bc91063afce22e43f8ccc655237050ace766adc68dc784" length="8876" type="text/html"/>
    <rs:ln rel="duplicate" pri="2" href="http://mirror.example.com/res1" modified="2013-01-02"/>
  </url><!-- between > the entries -->
  <url><loc><![CDATA[http://example.com/é?x=1&y=2]]></loc><rs:md change="deleted" datetime="2013-01-03T02:00:00Z"/></url>
</urlset>"#;

fn base() -> Url {
    Url::parse("http://example.com/sets/1/list.xml").unwrap()
}

fn read(text: &str) -> Result<Document, ReadError> {
    read_document(text.as_bytes(), &base())
}

/// A document of that capability with this inside.
fn urlset(capability: &str, inside: &str) -> String {
    format!(r#"<urlset {NAMESPACES}><rs:md capability="{capability}"/>{inside}</urlset>"#)
}

fn time(text: &str) -> Option<SourceTime> {
    Some(text.parse().unwrap())
}

/// Reads a document that is odd in exactly these ways.
fn read_odd(text: &str, counted: &[Oddity]) -> Document {
    let document = read(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut wanted = Oddities::default();
    counted.iter().for_each(|oddity| wanted.add(*oddity));
    assert_eq!(document.oddities, wanted, "{text}");
    document
}

/// The only entry of a Resource List with this entry, which is odd in exactly these ways.
fn only_entry(inside: &str, counted: &[Oddity]) -> Entry {
    let text = urlset("resourcelist", &format!("<url>{inside}</url>"));
    let mut entries = read_odd(&text, counted).entries;
    assert_eq!(entries.len(), 1, "{text}");
    entries.remove(0)
}

fn check_refused(text: &str, code: &str) {
    match read(text) {
        Ok(document) => panic!("{text} was read as {document:?}"),
        Err(error) => assert_eq!(error.code(), code, "{error}: {text}"),
    }
}

#[test]
fn everything_that_a_document_says_is_read() {
    let document = read_odd(WHOLE, &[]);
    let head = &document.head;
    assert_eq!(head.root, Root::Urlset);
    assert_eq!(head.md.capability, Some(Capability::ChangeList));
    assert_eq!(head.md.from, time("2013-01-03"));
    assert_eq!(head.md.until, time("2013-01-04"));
    let up = head.link("UP").unwrap();
    assert_eq!(up.as_str(), "http://example.com/capabilitylist.xml");

    let [first, second] = document.entries.as_slice() else {
        panic!("{document:?}");
    };
    assert_eq!(first.loc.as_str(), "http://example.com/res1?a=1&b=2");
    assert_eq!(first.lastmod, time("2013-01-03T01:00Z"));
    assert_eq!(first.md.change, Some(ChangeKind::Updated));
    assert_eq!(first.md.hashes.len(), 2);
    assert_eq!(first.md.length, Some(8876));
    assert_eq!(first.md.media_type.as_deref(), Some("text/html"));
    let duplicate = first.links("Duplicate").next().unwrap();
    assert_eq!(duplicate.href.as_str(), "http://mirror.example.com/res1");
    assert_eq!(
        (duplicate.pri, duplicate.modified),
        (Some(2), time("2013-01-02"))
    );

    assert_eq!(second.loc.as_str(), "http://example.com/%C3%A9?x=1&y=2");
    assert_eq!(second.md.change, Some(ChangeKind::Deleted));
    assert_eq!(second.changed_at(), time("2013-01-03T02:00:00Z"));
}

#[test]
fn a_document_cut_at_any_byte_is_an_error() {
    for end in 0..WHOLE.len() {
        let cut = &WHOLE.as_bytes()[..end];
        let error = read_document(cut, &base()).unwrap_err();
        let expected = if end == 0 { "not-xml" } else { "cut-short" };
        assert_eq!(error.code(), expected, "at {end}: {error}");
    }
    for whole in [
        WHOLE.to_owned(),
        format!("\u{feff}{WHOLE}\n<!-- end --><?end?>\n"),
    ] {
        assert!(read(&whole).is_ok());
    }
}

#[test]
fn a_document_may_come_byte_by_byte() {
    let with_mark = format!("\u{feff}{WHOLE}");
    let mut reader =
        DocumentReader::open(BufReader::with_capacity(1, with_mark.as_bytes()), &base()).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        entries.push(entry);
    }
    let document = read(WHOLE).unwrap();
    assert_eq!(entries, document.entries);
    assert_eq!(reader.head(), &document.head);
    assert_eq!(reader.oddities(), &document.oddities);
    assert_eq!(reader.next_entry().unwrap(), None);
}

#[test]
fn other_prefixes_mean_the_same() {
    let text = r#"<s:sitemapindex xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9">
        <md xmlns="http://www.openarchives.org/rs/terms/" capability="resourcelist" at="2013-01-03"/>
        <s:sitemap><s:loc>http://example.com/1.xml</s:loc>
        <r:md xmlns:r="http://www.openarchives.org/rs/terms/" x:at="2012" at="2013" xmlns:x="http://example.com/x"/>
        </s:sitemap></s:sitemapindex>"#;
    let document = read_odd(text, &[]);
    assert_eq!(document.head.root, Root::Sitemapindex);
    assert_eq!(document.head.md.at, time("2013-01-03"));
    assert_eq!(document.entries[0].md.at, time("2013-01-01"));
}

#[test]
fn namespaces_in_other_spellings_are_understood_and_counted_once_each() {
    for (sitemap, rs, odd) in [
        (
            "http://www.sitemaps.org/schemas/sitemap/0.9",
            "http://www.openarchives.org/rs/terms",
            1,
        ),
        (
            "http://www.sitemaps.org/schemas/sitemap/0.9",
            "https://www.openarchives.org/rs/terms/",
            1,
        ),
        (
            "https://www.sitemaps.org/schemas/sitemap/0.9",
            "http://www.openarchives.org/rs/terms/",
            1,
        ),
        (
            " http://www.sitemaps.org/schemas/sitemap/0.9/",
            "https://www.openarchives.org/rs/terms",
            2,
        ),
    ] {
        let text = format!(
            r#"<urlset xmlns="{sitemap}" xmlns:rs="{rs}"><rs:md capability="resourcelist"/>
            <url><loc>http://example.com/1</loc><rs:md length="5"/></url>
            <url><loc>http://example.com/2</loc><rs:md length="6"/></url></urlset>"#
        );
        let document = read_odd(&text, &vec![Oddity::Namespace; odd]);
        assert_eq!(document.entries[1].md.length, Some(6));
    }
}

#[test]
fn what_is_no_such_document_is_refused_with_a_code_that_tells_why() {
    for (text, code) in [
        ("", "not-xml"),
        ("  \n", "not-xml"),
        ("{\"json\": true}", "not-xml"),
        ("\u{1f}\u{8b}\u{8}", "not-xml"),
        ("404 <b>Not found</b>", "not-xml"),
        ("<?xml version=\"1.0\"?>", "cut-short"),
        (
            "<html><head><title>Hello</title></head></html>",
            "wrong-root",
        ),
        ("<rss version=\"2.0\"><channel/></rss>", "wrong-root"),
        ("<!DOCTYPE html><html><br></html>", "doctype"),
        ("<urlset><url/></urlset>", "wrong-namespace"),
        (
            "<urlset xmlns=\"http://www.google.com/schemas/sitemap/0.84\"/>",
            "wrong-namespace",
        ),
        ("<s:urlset/>", "wrong-namespace"),
        (
            "<rs:urlset xmlns:rs=\"http://www.openarchives.org/rs/terms/\"/>",
            "wrong-namespace",
        ),
        (
            "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><urlset/>",
            "unsupported-encoding",
        ),
        ("<!-- c --><?xml version=\"1.0\"?><urlset/>", "not-xml"),
        ("&lt;urlset/>", "not-xml"),
    ] {
        check_refused(text, code);
    }
}

#[test]
fn what_is_not_well_formed_is_refused() {
    for (inside, code) in [
        ("<url><loc>http://example.com/</url></loc>", "not-xml"),
        ("<url><loc>http://example.com/?a&b</loc></url>", "not-xml"),
        ("<url a=b></url>", "not-xml"),
        ("<url a=\"b\" a=\"c\"></url>", "not-xml"),
        ("<url a></url>", "not-xml"),
        ("</urlset>", "trailing-content"),
        ("</urlset><urlset>", "trailing-content"),
        ("</urlset>text<urlset>", "trailing-content"),
        ("<url><loc>&#xD800;</loc></url>", "not-xml"),
        ("<url><loc>&nbsp;</loc></url>", "entity"),
        ("<url><loc a=\"&eacute;\"/></url>", "entity"),
        ("<url><changefreq>&copy;</changefreq></url>", "entity"),
        ("<url><xx:md change=\"deleted\"/></url>", "wrong-namespace"),
        ("<!DOCTYPE urlset>", "doctype"),
    ] {
        check_refused(&urlset("resourcelist", inside), code);
    }
    for behind in [
        "x",
        "<a/>",
        "&amp;",
        "<![CDATA[ ]]>",
        "<?xml version=\"1.0\"?>",
    ] {
        let text = format!("{}{behind}", urlset("resourcelist", ""));
        assert!(read(&text).is_err(), "{text}");
    }
}

#[test]
fn a_billion_laughs_are_refused() {
    let text = r#"<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol">
        <!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
        <!ENTITY lol3 "&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;">]>
        <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>&lol3;</loc></url></urlset>"#;
    check_refused(text, "doctype");
}

#[test]
fn bytes_in_another_encoding_are_refused() {
    let utf16 = |bytes: fn(u16) -> [u8; 2]| WHOLE.encode_utf16().flat_map(bytes).collect();
    let latin1 = urlset("resourcelist", "<url><loc>http://example.com/E</loc></url>")
        .bytes()
        .map(|byte| if byte == b'E' { 0xe9 } else { byte })
        .collect();
    let marked: Vec<u8> = [0xff, 0xfe, b'<', 0].to_vec();
    for bytes in [
        utf16(u16::to_be_bytes),
        utf16(u16::to_le_bytes),
        latin1,
        marked,
    ] {
        let bytes: Vec<u8> = bytes;
        let error = read_document(&bytes, &base()).unwrap_err();
        assert_eq!(error.code(), "unsupported-encoding", "{error}");
    }
}

#[test]
fn nothing_grows_beyond_its_limit() {
    let long = "x".repeat(MAX_EVENT_BYTES);
    let deep = |levels: usize| format!("{}{}", "<a>".repeat(levels), "</a>".repeat(levels));
    let wide = |attributes: usize| {
        let attributes: String = (0..attributes).map(|n| format!(" a{n}=''")).collect();
        format!("<a{attributes}/>")
    };
    let many_links = "<rs:ln rel='x' href='http://example.com/'/>".repeat(30_000);
    for (inside, code) in [
        (deep(MAX_DEPTH), "too-deep"),
        (wide(MAX_ATTRIBUTES + 1), "too-many-attributes"),
        (
            format!("<url><loc>http://example.com/{long}</loc></url>"),
            "event-too-large",
        ),
        (
            format!("<url><rs:md path='{long}'/></url>"),
            "event-too-large",
        ),
        (format!("<!--{long}-->"), "event-too-large"),
        (format!("<?p {long}?>"), "event-too-large"),
        (format!("<!DOCTYPE a [{long}]>"), "event-too-large"),
        (format!("<{long}/>"), "event-too-large"),
        (format!("<a>&{long};</a>"), "event-too-large"),
        (
            format!("<url><loc>{}</loc></url>", "x&amp;".repeat(300_000)),
            "event-too-large",
        ),
        (format!("<url>{many_links}</url>"), "event-too-large"),
        (many_links, "event-too-large"),
    ] {
        let error = read(&urlset("resourcelist", &inside)).unwrap_err();
        assert_eq!(error.code(), code, "{error}: {:.50}", inside);
    }
    for inside in [
        deep(MAX_DEPTH - 1),
        wide(MAX_ATTRIBUTES),
        "<!-- - -->".repeat(10_000),
    ] {
        read_odd(&urlset("resourcelist", &inside), &[]);
    }
}

#[test]
fn an_error_of_the_stream_keeps_its_kind_and_source() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "over the limit",
            ))
        }
    }
    for end in [0, 2, 300, WHOLE.len() - 1] {
        let input = BufReader::new(WHOLE.as_bytes()[..end].chain(Broken));
        let read = || {
            let mut reader = DocumentReader::open(input, &base())?;
            while reader.next_entry()?.is_some() {}
            Ok(())
        };
        let Err(ReadError::Io(error)) = read() else {
            panic!("no error of the stream, cut at {end}");
        };
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "over the limit");
    }
}

#[test]
fn after_an_error_there_is_never_an_end() {
    let text = urlset(
        "resourcelist",
        "<url>&x;</url><url><loc>http://example.com/</loc></url>",
    );
    let mut reader = DocumentReader::open(text.as_bytes(), &base()).unwrap();
    assert_eq!(reader.next_entry().unwrap_err().code(), "entity");
    for _ in 0..3 {
        assert_eq!(reader.next_entry().unwrap_err().code(), "cut-short");
    }
}

#[test]
fn a_loc_is_found_whatever_white_space_is_in_it() {
    for (loc, expected, counted) in [
        (
            "\n      http://example.com/a\n    ",
            "http://example.com/a",
            None,
        ),
        (
            "http://example.com/a\n      /b",
            "http://example.com/a/b",
            None,
        ),
        ("http://exam\r\n\tple.com/a", "http://example.com/a", None),
        ("http://example.com/a b", "http://example.com/a%20b", None),
        (
            "http://example.com/<!-- x -->a<?p?>b",
            "http://example.com/ab",
            None,
        ),
        ("ws://example.com/channel", "ws://example.com/channel", None),
        (
            "2.xml",
            "http://example.com/sets/1/2.xml",
            Some(Oddity::RelativeUri),
        ),
        (
            "/res?x",
            "http://example.com/res?x",
            Some(Oddity::RelativeUri),
        ),
        (
            "//other.example/a",
            "http://other.example/a",
            Some(Oddity::RelativeUri),
        ),
    ] {
        let counted: Vec<Oddity> = counted.into_iter().collect();
        let entry = only_entry(&format!("<loc>{loc}</loc>"), &counted);
        assert_eq!(entry.loc.as_str(), expected);
    }
}

#[test]
fn an_entry_without_a_usable_loc_loses_no_other() {
    for bad in [
        "",
        "<loc/>",
        "<loc> \n </loc>",
        "<loc>http://</loc>",
        "<x:loc xmlns:x='x'>http://example.com/</x:loc>",
    ] {
        let inside = format!(
            "<url><loc>http://example.com/1</loc></url><url>{bad}</url><url><loc>http://example.com/2</loc></url>"
        );
        let document = read_odd(&urlset("resourcelist", &inside), &[Oddity::BadLoc]);
        assert_eq!(document.entries.len(), 2, "{bad}");
    }
}

#[test]
fn several_metadata_are_taken_together_and_the_first_wins() {
    let entry = only_entry(
        "<rs:md length='1' hash='md5:1584abdf8ebdc9802ac0c6a7402c03b6'/><loc>http://example.com/1</loc>
         <rs:md length='2' type='text/plain' hash='md5:00000000000000000000000000000000
         sha-1:a9993e364706816aba3e25717850c26c9cd0d89d'/>",
        &[Oddity::SeveralMetadata],
    );
    assert_eq!(entry.md.length, Some(1));
    assert_eq!(entry.md.media_type.as_deref(), Some("text/plain"));
    let hashes: Vec<String> = entry.md.hashes.iter().map(ToString::to_string).collect();
    assert_eq!(hashes[0], "md5:1584abdf8ebdc9802ac0c6a7402c03b6");
    assert_eq!(hashes[1], "sha-1:a9993e364706816aba3e25717850c26c9cd0d89d");
    assert_eq!(hashes.len(), 2);

    let text = urlset(
        "changelist",
        "<rs:md capability='resourcelist' from='2013'/>",
    );
    let head = read_odd(&text, &[Oddity::SeveralMetadata]).head;
    assert_eq!(head.md.capability, Some(Capability::ChangeList));
    assert_eq!(head.md.from, time("2013"));
}

#[test]
fn a_head_may_come_late() {
    let text = format!(
        "<urlset {NAMESPACES}><url><loc>http://example.com/1</loc></url>
        <rs:md capability='resourcelist' at='2013'/>
        <url><loc>http://example.com/2</loc></url><rs:ln rel='UP' href='http://example.com/up'/></urlset>"
    );
    let document = read_odd(&text, &[Oddity::LateHead, Oddity::LateHead]);
    assert_eq!(document.head.md.capability, Some(Capability::ResourceList));
    assert!(document.head.link("up").is_some());
    assert_eq!(document.entries.len(), 2);
}

#[test]
fn a_plain_sitemap_is_a_document_without_a_capability() {
    let text = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url>
        <loc>http://example.com/1</loc><lastmod>2013-01-03</lastmod><priority>0.5</priority></url></urlset>";
    let document = read_odd(text, &[Oddity::NoCapability]);
    assert_eq!(document.entries[0].lastmod, time("2013-01-03"));
}

#[test]
fn entries_are_read_under_the_name_of_the_other_root() {
    let inside = "<sitemap><loc>http://example.com/1</loc></sitemap><url><loc>http://example.com/2</loc></url>";
    let document = read_odd(&urlset("resourcelist", inside), &[Oddity::MixedEntries]);
    assert_eq!(document.entries.len(), 2);
}

#[test]
fn bad_values_are_left_out_and_counted() {
    let loc = "<loc>http://example.com/1</loc>";
    for (inside, oddity) in [
        ("<lastmod>yesterday</lastmod>", Oddity::BadDatetime),
        ("<lastmod/>", Oddity::BadDatetime),
        ("<rs:md at=''/>", Oddity::BadDatetime),
        ("<rs:md length='12 bytes'/>", Oddity::BadNumber),
        ("<rs:md length='-1'/>", Oddity::BadNumber),
        ("<rs:md change='moved'/>", Oddity::BadChange),
        ("<rs:md hash='crc32:00'/>", Oddity::UnknownDigest),
        ("<rs:ln rel='up'/>", Oddity::BadLink),
        ("<rs:ln href='http://example.com/'/>", Oddity::BadLink),
        ("<rs:ln rel='up' href='http://'/>", Oddity::BadLink),
    ] {
        let entry = only_entry(&format!("{loc}{inside}"), &[oddity]);
        assert_eq!(
            entry,
            Entry::new(Url::parse("http://example.com/1").unwrap())
        );
    }
    let inside =
        "<rs:md type='' encoding=' ' path='' capability=''/><changefreq>never</changefreq>";
    let entry = only_entry(&format!("{loc}{inside}"), &[]);
    assert_eq!(entry.md, Metadata::default());
}

#[test]
fn odd_values_are_read_and_counted() {
    let loc = "<loc>http://example.com/1</loc>";
    let entry = only_entry(
        &format!("{loc}<lastmod> 2013-01-03 10:00:00 </lastmod>"),
        &[Oddity::DatetimeForm],
    );
    assert_eq!(entry.lastmod, time("2013-01-03T10:00Z"));
    let entry = only_entry(
        &format!("{loc}<rs:md hash='md5:kAFQmDzST7DWlj99KOF/cg=='/>"),
        &[Oddity::DigestEncoding],
    );
    assert_eq!(
        entry.md.hashes[0].to_string(),
        "md5:900150983cd24fb0d6963f7d28e17f72"
    );
    let entry = only_entry(
        &format!("{loc}<rs:ln rel=' describedBy ' href='../meta.xml'/>"),
        &[Oddity::RelativeUri],
    );
    let link = entry.links("describedby").next().unwrap();
    assert_eq!(link.href.as_str(), "http://example.com/sets/meta.xml");
    assert_eq!(link.rel, "describedBy");
    let entry = only_entry(
        &format!("{loc}<rs:md capability='resourceList' change='Created'/>"),
        &[Oddity::CapabilitySpelling],
    );
    assert_eq!(entry.md.change, Some(ChangeKind::Created));
    // The notification specifications say that the link to the hub stands within the loc.
    let entry = only_entry(
        "<loc>http://example.com/1<rs:ln rel='hub' href='http://hub.example.com/'/></loc>",
        &[],
    );
    assert!(entry.links("hub").next().is_some());
}

#[test]
fn elements_of_other_vocabularies_say_nothing() {
    let entry = only_entry(
        "<i:image xmlns:i='http://www.google.com/schemas/sitemap-image/1.1'><i:loc>http://example.com/i.png</i:loc>
         <rs:md length='9'/><loc>http://example.com/no</loc><md length='9'/></i:image>
         <video:title>not declared</video:title>
         <loc>http://example.com/1</loc>",
        &[],
    );
    assert_eq!(
        entry,
        Entry::new(Url::parse("http://example.com/1").unwrap())
    );
}

#[test]
fn a_missing_change_counts_where_one_is_needed() {
    let plain = "<url><loc>http://example.com/1</loc></url>";
    let unknown = "<url><loc>http://example.com/1</loc><rs:md change='x'/></url>";
    let list = "<url><loc>http://example.com/1.xml</loc><rs:md capability='changelist'/></url>";
    for (capability, inside, odd) in [
        ("changelist", plain, true),
        ("changelist", unknown, true),
        ("changelist", list, false),
        ("change-notification", plain, true),
        ("changedump-manifest", plain, true),
        ("framework-notification", list, true),
        ("changedump", plain, false),
        ("resourcelist", plain, false),
        ("capabilitylist", list, false),
    ] {
        let counted = if odd {
            vec![Oddity::BadChange]
        } else {
            Vec::new()
        };
        read_odd(&urlset(capability, inside), &counted);
    }
    let index = format!(
        "<sitemapindex {NAMESPACES}><rs:md capability='changelist'/><sitemap><loc>http://example.com/1.xml</loc></sitemap></sitemapindex>"
    );
    read_odd(&index, &[]);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..WHOLE.len()) {
        let _ = read_document(&bytes, &base());
        let mut spoilt = WHOLE.as_bytes().to_vec();
        let end = (at + bytes.len() / 10).min(spoilt.len());
        spoilt.splice(at..end, bytes);
        let _ = read_document(&spoilt, &base());
    }

    #[test]
    fn no_markup_panics(pieces in prop::collection::vec(prop::sample::select(vec![
        "<", ">", "/", "!", "?", "--", "[CDATA[", "]]>", "&", ";", "#", "x", "'", "\"", "=", " ",
        "<url>", "</url>", "<loc>", "</loc>", "<rs:md", "rs:ln", "</urlset>", "é", "http://a/",
    ]), 0..40)) {
        let _ = read(&urlset("changelist", &pieces.concat()));
    }
}
