//! Documents that are rejected, and their error codes.

use std::io::{self, BufReader, Read};

use proptest::prelude::*;

use super::super::xml::{MAX_ATTRIBUTES, MAX_DEPTH, MAX_EVENT_BYTES};
use super::super::*;
use super::{WHOLE, base, read, read_odd, urlset};

fn check_rejected(text: &str, code: &str) {
    match read(text) {
        Ok(document) => panic!("{text} was read as {document:?}"),
        Err(error) => assert_eq!(error.code(), code, "{error}: {text}"),
    }
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
fn xml_of_another_kind_is_rejected() {
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
        check_rejected(text, code);
    }
}

#[test]
fn malformed_xml_is_rejected() {
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
        check_rejected(&urlset("resourcelist", inside), code);
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
fn entity_expansion_is_rejected() {
    let text = r#"<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol">
        <!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
        <!ENTITY lol3 "&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;">]>
        <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>&lol3;</loc></url></urlset>"#;
    check_rejected(text, "doctype");
}

#[test]
fn other_encodings_are_rejected() {
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
fn every_limit_is_enforced() {
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
fn an_input_error_retains_its_kind_and_source() {
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
            panic!("no input error, cut at {end}");
        };
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "over the limit");
    }
}

#[test]
fn after_an_error_every_call_fails() {
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

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..WHOLE.len()) {
        let _ = read_document(&bytes, &base());
        let mut damaged = WHOLE.as_bytes().to_vec();
        let end = (at + bytes.len() / 10).min(damaged.len());
        damaged.splice(at..end, bytes);
        let _ = read_document(&damaged, &base());
    }

    #[test]
    fn arbitrary_markup_does_not_panic(pieces in prop::collection::vec(prop::sample::select(vec![
        "<", ">", "/", "!", "?", "--", "[CDATA[", "]]>", "&", ";", "#", "x", "'", "\"", "=", " ",
        "<url>", "</url>", "<loc>", "</loc>", "<rs:md", "rs:ln", "</urlset>", "é", "http://a/",
    ]), 0..40)) {
        let _ = read(&urlset("changelist", &pieces.concat()));
    }
}
