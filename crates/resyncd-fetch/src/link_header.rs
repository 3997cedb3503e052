//! The HTTP Link header (RFC 8288), as far as discovery and WebSub use it. TimeMaps have the same grammar.

use std::fmt::Write as _;

use resourcesync::uri::{resolve_reference, without_userinfo};
use url::Url;

/// One link of a Link header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderLink {
    /// One relation type, in lower case unless it is a URI. A link with several relations becomes several of these.
    pub rel: String,
    /// The target, resolved against the URL of the request.
    pub href: Url,
}

/// The maximum number of links of a value: a page has a few.
const MAX_LINKS: usize = 100;

/// Parses one Link header value. Invalid links are ignored, and so are links whose `anchor` is another resource than the
/// requested one, and those beyond the first 100.
#[must_use]
pub fn parse_link_header(value: &str, base: &Url) -> Vec<HeaderLink> {
    let mut links = Vec::new();
    let mut rest = value;
    while let Some((target, behind)) = next_target(rest).filter(|_| links.len() < MAX_LINKS) {
        let (parameters, behind) = parse_parameters(behind);
        rest = behind;
        let Ok(href) = resolve_reference(base, target.trim()) else {
            continue;
        };
        if !parameters
            .anchor
            .is_none_or(|anchor| is_here(&anchor, base))
        {
            continue;
        }
        let rels = parameters.rel.unwrap_or_default();
        let rels = rels.split_ascii_whitespace().take(MAX_LINKS - links.len());
        links.extend(rels.map(|rel| HeaderLink {
            rel: if rel.contains(':') {
                rel.to_owned()
            } else {
                rel.to_ascii_lowercase()
            },
            href: without_userinfo(href.clone()),
        }));
    }
    links
}

/// Writes a Link header value from pairs of relation and target: `("hub", "http://hub.example.com/")`.
#[must_use]
pub fn format_link_header(links: &[(&str, &str)]) -> String {
    let mut value = String::new();
    for (rel, href) in links {
        if !value.is_empty() {
            value.push_str(", ");
        }
        let href = href.trim().replace('>', "%3E");
        let rel = rel.replace('\\', "\\\\").replace('"', "\\\"");
        // Writing to a String can't fail.
        let _ = write!(value, "<{href}>; rel=\"{rel}\"");
    }
    // A line break would end the header.
    value.retain(|c| !c.is_control());
    value
}

/// The text between the next `<` and `>`, and the rest.
pub(super) fn next_target(text: &str) -> Option<(&str, &str)> {
    text.split_once('<')?.1.split_once('>')
}

/// The parameters in use; the first of each, as RFC 8288 (section 3) requires.
#[derive(Default)]
pub(super) struct Parameters {
    pub(super) rel: Option<String>,
    pub(super) anchor: Option<String>,
    pub(super) datetime: Option<String>,
}

/// Parses `; name=value` until a comma ends the link; returns the rest after the comma.
pub(super) fn parse_parameters(mut text: &str) -> (Parameters, &str) {
    let mut parameters = Parameters::default();
    loop {
        text = text.trim_start_matches([' ', '\t', ';']);
        if let Some(behind) = text.strip_prefix(',') {
            return (parameters, behind);
        }
        if text.is_empty() {
            return (parameters, text);
        }
        let end = text.find(['=', ';', ',']).unwrap_or(text.len());
        let name = text[..end].trim();
        text = &text[end..];
        let mut value = None;
        if let Some(behind) = text.strip_prefix('=') {
            let (read, behind) = parse_value(behind.trim_start());
            value = Some(read);
            text = behind;
        }
        let slot = match name.to_ascii_lowercase().as_str() {
            "rel" => &mut parameters.rel,
            "anchor" => &mut parameters.anchor,
            "datetime" => &mut parameters.datetime,
            _ => continue,
        };
        if slot.is_none() {
            *slot = value;
        }
    }
}

/// Parses a token or a quoted string; returns the rest.
fn parse_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        return (text[..end].trim().to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    // The closing quote is missing: the value ends with the text.
    (value, "")
}

/// Whether an anchor is the requested resource, or a part of it.
fn is_here(anchor: &str, base: &Url) -> bool {
    let without_fragment = |url: &Url| {
        let mut url = url.clone();
        url.set_fragment(None);
        url
    };
    resolve_reference(base, anchor)
        .is_ok_and(|anchor| without_fragment(&anchor) == without_fragment(base))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn base() -> Url {
        Url::parse("http://example.com/a/b").unwrap()
    }

    /// Checks the relations and targets of a header value.
    fn check(value: &str, expected: &[(&str, &str)]) {
        let links = parse_link_header(value, &base());
        let found: Vec<(&str, &str)> = links
            .iter()
            .map(|link| (link.rel.as_str(), link.href.as_str()))
            .collect();
        assert_eq!(found, expected, "{value}");
    }

    #[test]
    fn links_are_parsed_in_the_forms_of_the_rfc() {
        check("", &[]);
        check(
            "<http://hub.example.com/>; rel=\"hub\", <http://example.com/t>; rel=self",
            &[
                ("hub", "http://hub.example.com/"),
                ("self", "http://example.com/t"),
            ],
        );
        check(
            "<c>; rel=\"Self resourcesync http://example.com/Rel\"",
            &[
                ("self", "http://example.com/a/c"),
                ("resourcesync", "http://example.com/a/c"),
                ("http://example.com/Rel", "http://example.com/a/c"),
            ],
        );
        check(
            r#"</x?a=1,2;3>; title="a \"quoted\", <odd>; rel=no"; rel="hub""#,
            &[("hub", "http://example.com/x?a=1,2;3")],
        );
        check(
            "</1>; rel=first; rel=second",
            &[("first", "http://example.com/1")],
        );
    }

    #[test]
    fn malformed_parts_do_not_hide_other_links() {
        let hub = [("hub", "http://example.com/hub")];
        for value in [
            "</hub> ; rel = \"hub\" ",
            "</hub>;;rel=hub;",
            "</hub>;REL=HUB",
            " , ,</hub>; rel=\"hub\",,",
            "</1>; rel, </hub>; rel=hub",
            "</1>, </hub>; rel=hub",
            "<http://[>; rel=x, </hub>; rel=hub",
            "</hub>; crossorigin; rel=hub",
            "</hub>; rel=\"hub",
            "junk </hub>; rel=hub, <unfinished; rel=x",
            "< /hub >; rel=hub",
            "</hub> rel=hub",
        ] {
            check(value, &hub);
        }
    }

    #[test]
    fn links_of_another_resource_are_ignored() {
        check("</hub>; rel=hub; anchor=\"/other\"", &[]);
        check(
            "</hub>; rel=hub; anchor=\"#part\"",
            &[("hub", "http://example.com/hub")],
        );
    }

    #[test]
    fn line_breaks_are_removed() {
        assert_eq!(
            format_link_header(&[("hub", "http://h/\r\nX: y"), ("a\"b", "http://x/>")]),
            r#"<http://h/X: y>; rel="hub", <http://x/%3E>; rel="a\"b""#
        );
    }

    proptest! {
        #[test]
        fn formatted_links_parse(links in prop::collection::vec(("[a-z]{1,8}", "http://[a-z]{1,5}/[a-z,;=?&]{0,9}"), 0..5)) {
            let pairs: Vec<(&str, &str)> = links.iter().map(|(rel, href)| (rel.as_str(), href.as_str())).collect();
            let read = parse_link_header(&format_link_header(&pairs), &base());
            let expected: Vec<HeaderLink> = links
                .iter()
                .map(|(rel, href)| HeaderLink { rel: rel.clone(), href: Url::parse(href).unwrap() })
                .collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn arbitrary_text_does_not_panic(value in r#"[<>;,="\\ a-zé]{0,60}"#) {
            let _ = parse_link_header(&value, &base());
        }
    }
}
