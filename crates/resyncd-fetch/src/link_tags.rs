//! The `link` tags of a text that may be HTML, XML or neither.
//!
//! Pages are seldom well formed, so that this only searches for tags named `link`, with any prefix. Comments, CDATA sections
//! and scripts are skipped. A `base` tag applies to what follows it.

use resourcesync::uri::resolve_reference;
use url::Url;

/// A `link` tag that has a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LinkTag {
    rel: String,
    /// The target.
    pub(super) href: Url,
}

impl LinkTag {
    /// Whether that relation is among its relations.
    pub(super) fn relates(&self, wanted: &str) -> bool {
        let mut rels = self.rel.split_ascii_whitespace();
        rels.any(|rel| rel.eq_ignore_ascii_case(wanted))
    }
}

/// An iterator over the `link` tags of a text.
pub(super) struct LinkTags<'a> {
    rest: &'a str,
    /// The base of relative targets: the URL of the text, unless it has a `base` tag.
    base: Url,
    has_base_tag: bool,
    /// Tags such as `/head` that end the search.
    ends: &'static [&'static str],
}

impl<'a> LinkTags<'a> {
    /// All tags of a text at that URL.
    pub(super) fn of(text: &'a str, url: &Url) -> Self {
        Self {
            rest: text,
            base: url.clone(),
            has_base_tag: false,
            ends: &[],
        }
    }

    /// The tags about the document itself: those in the head of a page, and before the first entry of a feed. What follows
    /// may be user-generated.
    pub(super) fn of_head(text: &'a str, url: &Url) -> Self {
        Self {
            ends: &["/head", "body", "entry", "item", "url", "sitemap"],
            ..Self::of(text, url)
        }
    }

    fn skip(&mut self, until: &str) {
        self.rest = match self.rest.find(until) {
            Some(end) => &self.rest[end..],
            None => "",
        };
    }
}

impl Iterator for LinkTags<'_> {
    type Item = LinkTag;

    fn next(&mut self) -> Option<LinkTag> {
        loop {
            let start = self.rest.find('<')?;
            self.rest = &self.rest[start + 1..];
            if self.rest.starts_with("!--") {
                self.skip("-->");
                continue;
            }
            if self.rest.starts_with("![CDATA[") {
                self.skip("]]>");
                continue;
            }
            let (name, behind) = tag_name(self.rest);
            self.rest = behind;
            if self.ends.iter().any(|end| name.eq_ignore_ascii_case(end)) {
                self.rest = "";
                return None;
            }
            if name.eq_ignore_ascii_case("script") {
                self.skip("</script");
                continue;
            }
            let is_base = name.eq_ignore_ascii_case("base");
            let local = name.rsplit(':').next().unwrap_or_default();
            if !is_base && !local.eq_ignore_ascii_case("link") {
                continue;
            }
            let (attributes, behind) = attributes(self.rest);
            self.rest = behind;
            let value = |wanted: &str| {
                attributes
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
                    .map(|(_, value)| *value)
            };
            let href = value("href").map(|href| href.trim().replace("&amp;", "&"));
            let Some(href) = href.and_then(|href| resolve_reference(&self.base, &href).ok()) else {
                continue;
            };
            if is_base {
                if !self.has_base_tag {
                    self.has_base_tag = true;
                    self.base = href;
                }
            } else if let Some(rel) = value("rel") {
                let rel = rel.to_owned();
                return Some(LinkTag { rel, href });
            }
        }
    }
}

/// The name of a tag, and the rest.
fn tag_name(tag: &str) -> (&str, &str) {
    let end = tag
        .char_indices()
        .find(|&(at, c)| c.is_ascii_whitespace() || matches!(c, '>' | '<') || (c == '/' && at > 0))
        .map_or(tag.len(), |(at, _)| at);
    tag.split_at(end)
}

/// The attributes of a tag, and the rest.
fn attributes(tag: &str) -> (Vec<(&str, &str)>, &str) {
    let mut found = Vec::new();
    let mut rest = tag;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        if rest.is_empty() || rest.starts_with(['>', '<']) {
            return (found, rest);
        }
        // The first character always belongs to the name, even `=`.
        let end = rest
            .char_indices()
            .skip(1)
            .find(|(_, c)| c.is_ascii_whitespace() || matches!(c, '=' | '>' | '/' | '<'))
            .map_or(rest.len(), |(at, _)| at);
        let (name, behind) = rest.split_at(end);
        rest = behind.trim_ascii_start();
        let Some(assigned) = rest.strip_prefix('=') else {
            found.push((name, ""));
            continue;
        };
        let assigned = assigned.trim_ascii_start();
        let (value, behind) = match assigned.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let quoted = &assigned[1..];
                quoted.split_once(quote).unwrap_or((quoted, ""))
            }
            _ => {
                let end = assigned
                    .find(|c: char| c.is_ascii_whitespace() || c == '>')
                    .unwrap_or(assigned.len());
                assigned.split_at(end)
            }
        };
        found.push((name, value));
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url() -> Url {
        Url::parse("http://example.com/a/b").unwrap()
    }

    fn hubs(text: &str) -> Vec<String> {
        let links = LinkTags::of_head(text, &url()).filter(|link| link.relates("hub"));
        links.map(|link| link.href.path().to_owned()).collect()
    }

    #[test]
    fn links_of_feeds_and_pages_are_found() {
        for text in [
            "<feed xmlns='http://www.w3.org/2005/Atom'><link rel='hub' href='/h'/><entry>",
            "<rss><channel><link>http://x/</link><atom:link rel=\"hub\" href=\"/h\"/><item>",
            "<!DOCTYPE html><HTML><HEAD><LINK REL=hub HREF=/h></HEAD>",
            "<a:link href='/h' rel='self hub'/>",
            "<head><script>if (a<b) '<link rel=hub href=/no>'</script><link rel=hub href=/h>",
            "<head><base target=x><base href=../><base href=/no/><link rel=hub href=h>",
        ] {
            assert_eq!(hubs(text), ["/h"], "{text}");
        }
    }

    #[test]
    fn links_in_untrusted_parts_are_ignored() {
        for text in [
            "<head></head><body><link rel=hub href=/no>",
            "<html><body><link rel=hub href=/no>",
            "<feed><entry><link rel='hub' href='/no'/></entry></feed>",
            "<rss><channel><item><atom:link rel='hub' href='/no'/></item>",
            "<urlset><url><link rel='hub' href='/no'/></url></urlset>",
            "<!-- <link rel=hub href=/no> --><![CDATA[<link rel=hub href=/no>]]>",
            "<blink rel=hub href=/no><link:x rel=hub href=/no><linked rel=hub href=/no>",
        ] {
            assert_eq!(hubs(text), [""; 0], "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "(<link|<base|<a:|<!--|<!\\[CDATA\\[|<script|rel=|href|[<>/='\" \\-é]|.){0,40}") {
            let _ = LinkTags::of_head(&text, &url()).count();
        }
    }
}
