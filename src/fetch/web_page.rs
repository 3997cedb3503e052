//! What is not a document but may lead to one: web pages and robots.txt (section 6.3).

use url::Url;

/// More links than this are not looked at.
const MOST_LINKS: usize = 20;

/// The targets of a page's `<link rel="resourcesync">`, or of a robots.txt's `Sitemap` lines.
pub(super) fn links_of_page(text: &str, base: &Url) -> Vec<Url> {
    let found: Vec<String> = if base.path().ends_with("/robots.txt") {
        sitemap_lines(text)
    } else {
        resourcesync_links(text)
    };
    let mut links: Vec<Url> = Vec::new();
    for link in found.iter().filter_map(|href| base.join(href).ok()) {
        if links.len() < MOST_LINKS && !links.contains(&link) {
            links.push(link);
        }
    }
    links
}

fn sitemap_lines(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(field, _)| field.trim().eq_ignore_ascii_case("sitemap"))
        .map(|(_, value)| {
            value
                .split('#')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        })
        .collect()
}

/// Pages are seldom well formed, so this looks for `link` tags and nothing else. Comments are passed over.
fn resourcesync_links(html: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.find("-->").map_or("", |end| &comment[end..]);
            continue;
        }
        let is_link = rest
            .get(..4)
            .is_some_and(|tag| tag.eq_ignore_ascii_case("link") && !is_name(&rest[4..]));
        if !is_link {
            continue;
        }
        let (attributes, behind) = attributes(&rest[4..]);
        rest = behind;
        let value = |wanted: &str| {
            attributes
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
                .map(|(_, value)| *value)
        };
        let relates = value("rel").is_some_and(|rel| {
            rel.split_ascii_whitespace()
                .any(|rel| rel.eq_ignore_ascii_case("resourcesync"))
        });
        if let (true, Some(href)) = (relates, value("href")) {
            found.push(href.trim().replace("&amp;", "&"));
        }
    }
    found
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-')
}

/// The attributes of a tag, and what stands behind it.
fn attributes(tag: &str) -> (Vec<(&str, &str)>, &str) {
    let mut found = Vec::new();
    let mut rest = tag;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        if rest.is_empty() || rest.starts_with(['>', '<']) {
            return (found, rest);
        }
        // A name may begin with anything but what ends it; `=` first belongs to the name.
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

    fn check(page: &str, text: &str, expected: &[&str]) {
        let base = Url::parse("http://example.com/a/").unwrap();
        let found = links_of_page(text, &base.join(page).unwrap());
        let found: Vec<&str> = found.iter().map(Url::as_str).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn resourcesync_links_are_found_in_pages() {
        let list = &["http://example.com/list.xml"][..];
        for html in [
            r#"<html><head><link rel="resourcesync" href="http://example.com/list.xml"/>"#,
            "<LINK HREF='/list.xml' REL='alternate ResourceSync'>",
            "<link rel=resourcesync href=/list.xml>",
            "<link\n  type=\"application/xml\" rel = \"resourcesync\"\n  href = \" /list.xml \" >",
            "<p><<link rel=resourcesync href=/list.xml>",
            "<!-- <link rel=resourcesync href=/no> --><link rel=resourcesync href=/list.xml>",
            "<link rel=resourcesync href=/list.xml><link rel=resourcesync href=/list.xml>",
        ] {
            check("page.html", html, list);
        }
        check(
            "page.html",
            "<link rel=resourcesync href='../x?a=1&amp;b=2'>",
            &["http://example.com/x?a=1&b=2"],
        );
        for html in [
            "",
            "<link rel=stylesheet href=/list.xml>",
            "<linked rel=resourcesync href=/list.xml>",
            "<a rel=resourcesync href=/list.xml>",
            "<link rel=resourcesync>",
            "<!-- <link rel=resourcesync href=/no>",
            "<link",
            "<linké",
            "<linéx",
            "<xéé",
        ] {
            check("page.html", html, &[]);
        }
    }

    #[test]
    fn sitemaps_are_found_in_robots_txt() {
        let robots = "User-agent: *\nDisallow: /x\nsitemap : http://example.com/1.xml # one\nSitemap: /2.xml\r\n";
        let expected = ["http://example.com/1.xml", "http://example.com/2.xml"];
        check("/robots.txt", robots, &expected);
        check("/page.html", robots, &[]);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(<link|<!--|rel=|href|resourcesync|[<>/='\" \\-é]|.){0,40}") {
            let _ = links_of_page(&text, &Url::parse("http://example.com/").unwrap());
        }
    }
}
