//! What a document is, as far as its first bytes show it: a web page with its title, JSON, or a list of URIs as plain text.

use std::borrow::Cow;

use memchr::memmem;
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

/// The elements that a web page may begin with.
const HTML: [&str; 11] = [
    "html", "head", "body", "title", "meta", "script", "h1", "div", "p", "center", "table",
];

impl Beginning {
    /// What these first bytes of a document show.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut rest = bytes.trim_ascii_start();
        if begins_with(rest, "http://") || begins_with(rest, "https://") {
            let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let is_of_uri = |byte: &u8| !byte.is_ascii_whitespace() && *byte != b'<';
            if line.trim_ascii_end().iter().all(is_of_uri) {
                return Self::UriList;
            }
        }
        if rest.starts_with(b"{") || rest.starts_with(b"[") {
            return Self::Json;
        }
        // Comments and instructions may precede the first tag.
        loop {
            let end = match rest {
                [b'<', b'!', b'-', b'-', ..] => "-->",
                [b'<', b'?', ..] => "?>",
                _ => break,
            };
            let Some(at) = memmem::find(rest, end.as_bytes()) else {
                break;
            };
            rest = rest[at + end.len()..].trim_ascii_start();
        }
        let tag = rest.strip_prefix(b"<").unwrap_or_default();
        let is_html = HTML.iter().chain(&["!doctype html"]).any(|name| {
            let next = tag.get(name.len());
            let ends = next.is_none_or(|&byte| byte.is_ascii_whitespace() || b"/>".contains(&byte));
            begins_with(tag, name) && ends
        });
        if is_html {
            Self::Html { title: title(rest) }
        } else {
            Self::Unknown
        }
    }
}

fn begins_with(bytes: &[u8], prefix: &str) -> bool {
    let begin = bytes.get(..prefix.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(prefix.as_bytes()))
}

/// The title of a page, on one line and without control characters.
fn title(html: &[u8]) -> Option<String> {
    let html = String::from_utf8_lossy(html);
    // Small letters are as long as capital ones in ASCII.
    let small = html.to_ascii_lowercase();
    let begin = small.find("<title")?;
    let begin = begin + small[begin..].find('>')? + 1;
    let (title, _) = html[begin..].split_once('<')?;
    let title = unescape(title).unwrap_or(Cow::Borrowed(title));
    let words = title.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
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
