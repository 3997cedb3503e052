//! What a document is, as far as its first bytes show it: a web page with its title, JSON, or a list of URIs as plain text.

use std::borrow::Cow;

use quick_xml::escape::unescape;

use super::error::clip;

/// What the first bytes show.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Nothing else than that it may be XML.
    Unknown,
    /// A web page.
    Html {
        /// Its title, if it is near the begin.
        title: Option<String>,
    },
    /// An object or an array of JSON.
    Json,
    /// A URI on each line.
    UriList,
}

/// The tags that a web page may begin with.
const HTML: [&[u8]; 12] = [
    b"<!doctype html",
    b"<html",
    b"<head",
    b"<body",
    b"<title",
    b"<meta",
    b"<script",
    b"<h1",
    b"<div",
    b"<p",
    b"<center",
    b"<table",
];

impl Beginning {
    /// What these first bytes of a document show.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut rest = bytes.trim_ascii_start();
        if begins_with(rest, b"http://") || begins_with(rest, b"https://") {
            let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let is_uri = line
                .trim_ascii_end()
                .iter()
                .all(|byte| !byte.is_ascii_whitespace() && *byte != b'<');
            return if is_uri { Self::UriList } else { Self::Unknown };
        }
        if rest.starts_with(b"{") || rest.starts_with(b"[") {
            return Self::Json;
        }
        // Comments and instructions may precede the first tag.
        while let Some(end) = if rest.starts_with(b"<!--") {
            find(rest, b"-->").map(|at| at + 3)
        } else if rest.starts_with(b"<?") {
            find(rest, b"?>").map(|at| at + 2)
        } else {
            None
        } {
            rest = rest[end..].trim_ascii_start();
        }
        let is_html = HTML.iter().any(|tag| {
            let next = rest.get(tag.len());
            let ends = next.is_none_or(|&byte| byte.is_ascii_whitespace() || b"/>".contains(&byte));
            begins_with(rest, tag) && ends
        });
        if is_html {
            Self::Html { title: title(rest) }
        } else {
            Self::Unknown
        }
    }
}

fn begins_with(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes
        .get(..prefix.len())
        .is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|found| found == wanted)
}

/// The title of a page, on one line and without control characters.
fn title(html: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(html).to_ascii_lowercase();
    let begin = text.find("<title")?;
    let begin = begin + text[begin..].find('>')? + 1;
    let end = begin + text[begin..].find('<')?;
    // Small letters are as long as capital ones in ASCII.
    let original = String::from_utf8_lossy(html);
    let title = original.get(begin..end)?;
    let title = unescape(title).unwrap_or(Cow::Borrowed(title));
    let words: Vec<&str> = title
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let title = clip(&words.join(" "));
    (!title.is_empty()).then_some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_pages_are_recognized_with_their_title() {
        let html = |title: Option<&str>| Beginning::Html {
            title: title.map(str::to_owned),
        };
        for (text, title) in [
            ("<!DOCTYPE html><html><br>", None),
            (
                " \n<!doctype HTML public '-//W3C//DTD HTML 4.01//EN'><title>A</title>",
                Some("A"),
            ),
            (
                "<html lang=en><head><TITLE id=x>\n 404 &ndash;\tnot  found</TITLE>",
                Some("404 &ndash; not found"),
            ),
            (
                "<!-- a --><?xml version='1.0'?>\n<html/><title>R&amp;D \u{7}</title>",
                Some("R&D"),
            ),
            ("<head><title></title>", None),
            ("<title>cut", None),
            ("<script>1</script><title>é</title>", Some("é")),
        ] {
            assert_eq!(Beginning::of(text.as_bytes()), html(title), "{text}");
        }
        for text in [
            "",
            "<urlset>",
            "<?xml version='1.0'?><urlset><title>A</title>",
            "<!DOCTYPE urlset>",
            "<!-- <html> -->",
            "<!-- <html>",
            "<path/>",
            "<html:urlset>",
            "404 <b>Not found</b>",
        ] {
            assert_eq!(Beginning::of(text.as_bytes()), Beginning::Unknown, "{text}");
        }
    }

    #[test]
    fn lists_of_uris_are_recognized_by_their_first_line() {
        for text in [
            "http://a/",
            "\n https://a/b?c=d&e\r\nx y",
            "HTTP://a/\n<urlset>",
        ] {
            assert_eq!(Beginning::of(text.as_bytes()), Beginning::UriList, "{text}");
        }
        for text in ["ftp://a/", "http://a/ b", "see http://a/", "http://a/<br>"] {
            assert_eq!(Beginning::of(text.as_bytes()), Beginning::Unknown, "{text}");
        }
    }
}
