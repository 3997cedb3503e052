//! Documents that are rejected, and their error codes.

use std::io::{self, BufReader, Read};

use proptest::prelude::*;

use super::super::input::MAX_EVENT_BYTES;
use super::super::xml::{MAX_ATTRIBUTES, MAX_DEPTH};
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
            "html-page",
        ),
        ("<rss version=\"2.0\"><channel/></rss>", "unsupported-feed"),
        (
            "<feed xmlns=\"http://www.w3.org/2005/Atom\"/>",
            "unsupported-feed",
        ),
        (
            "<r:RDF xmlns:r=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\"/>",
            "unsupported-feed",
        ),
        ("<!DOCTYPE html><html><br></html>", "html-page"),
        ("<table><tr/></table>", "html-page"),
        ("<tables/>", "wrong-root"),
        (
            "<urlset xmlns=\"http://www.google.com/schemas/sitemap-image/1.1\"/>",
            "wrong-namespace",
        ),
        (
            "<urlset xmlns=\"http://example.org/schemas/sitemap/0.9\"/>",
            "wrong-namespace",
        ),
        ("<s:urlset/>", "wrong-namespace"),
        (
            "<rs:urlset xmlns:rs=\"http://www.openarchives.org/rs/terms/\"/>",
            "wrong-namespace",
        ),
        (
            "<?xml version=\"1.0\" encoding=\"ISO-2022-JP\"?><urlset/>",
            "unsupported-encoding",
        ),
        ("<!-- c --><?xml version=\"1.0\"?><urlset/>", "not-xml"),
        ("&lt;urlset/>", "not-xml"),
    ] {
        check_rejected(text, code);
    }
}

#[test]
fn error_states_what_is_there_in_place_of_a_document() {
    for (text, what) in [
        ("", "an empty body"),
        (" \n", "an empty body"),
        ("\u{feff}", "an empty body"),
        (" {\"error\": 1}", "JSON"),
        ("\u{feff}[]", "JSON"),
        (
            "<html><title>Log in</title>",
            "an HTML page in place of a document, with the title \"Log in\"",
        ),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("received {what}")),
            "{text}: {error}"
        );
    }
}

#[test]
fn malformed_xml_is_rejected() {
    for (inside, code) in [
        ("<url><loc>http://example.com/</url></loc>", "not-xml"),
        ("<url a=b></url>", "not-xml"),
        ("<url a=\"b\" a=\"c\"></url>", "not-xml"),
        ("<url a></url>", "not-xml"),
        ("</urlset>", "trailing-content"),
        ("</urlset><urlset>", "trailing-content"),
        ("</urlset>text<urlset>", "trailing-content"),
        ("<rs:md at=\"2013&nbsp;\"/>", "not-xml"),
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
fn utf32_is_rejected() {
    let utf32 = |bytes: fn(u32) -> [u8; 4]| -> Vec<u8> {
        WHOLE.chars().flat_map(|c| bytes(c.into())).collect()
    };
    let marked = |bytes: fn(u32) -> [u8; 4]| {
        let mark = bytes(0xfeff).to_vec();
        [mark, utf32(bytes)].concat()
    };
    for bytes in [
        utf32(u32::to_be_bytes),
        utf32(u32::to_le_bytes),
        marked(u32::to_be_bytes),
        marked(u32::to_le_bytes),
    ] {
        let error = read_document(&bytes, &base()).unwrap_err();
        assert_eq!(error.code(), "unsupported-encoding", "{error}");
    }
}

#[test]
fn errors_have_their_line_and_column() {
    for (text, code, place) in [
        ("<a/>\n", "wrong-root", "line 1, column 1"),
        ("<!-- é\n-->é", "not-xml", "line 2, column 4"),
        (
            "<?xml version='1.0'?>\n  <!DOCTYPE a>",
            "doctype",
            "line 2, column 3",
        ),
        (
            "<urlset>\n<url>\n <loc>é</url>",
            "not-xml",
            "line 3, column 8",
        ),
        ("<urlset>\n<url a=b/>", "not-xml", "line 2, column 1"),
        ("<urlset>\n<url>\n", "cut-short", "line 3, column 1"),
        (
            "<urlset>\r\n</urlset>\r\nx",
            "trailing-content",
            "line 2, column 10",
        ),
        (
            "<urlset>\n<x:md/></urlset>",
            "wrong-namespace",
            "line 2, column 1",
        ),
        (
            "<urlset>\n<rs:md/></urlset>",
            "wrong-namespace",
            "line 2, column 1",
        ),
        (
            "<?xml version='1.0' encoding='x-unknown'?>\n<urlset>\u{e9}",
            "cut-short",
            "line 2, column 10",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert_eq!(error.code(), code, "{error}: {text}");
        assert!(error.to_string().contains(place), "{error}: {text}");
    }
}

#[test]
fn a_web_page_is_named_by_its_title() {
    let error = read("<!DOCTYPE html>\n<html><title>Sign in</title><br>").unwrap_err();
    let message = "received an HTML page in place of a document, with the title \"Sign in\"";
    assert_eq!(error.to_string(), message);
    // Where the first bytes do not show it.
    let comment = format!("<!--{}-->", "c".repeat(20_000));
    for page in ["<!DOCTYPE HTML><HTML/>", "<HTML></HTML>"] {
        let error = read(&format!("{comment}{page}")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "received an HTML page in place of a document"
        );
        assert_eq!(error.code(), "html-page");
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
        "<url></a></url><url><loc>http://example.com/</loc></url>",
    );
    let mut reader = DocumentReader::open(text.as_bytes(), &base()).unwrap();
    assert_eq!(reader.next_entry().unwrap_err().code(), "not-xml");
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
