//! Links to documents in web pages and robots.txt (section 6.3).

use resourcesync::uri::{resolve_reference, without_userinfo};
use url::Url;

use super::link_tags::LinkTags;

/// The maximum number of links of a page.
const MAX_LINKS: usize = 20;

/// The maximum number of sitemaps of a robots.txt.
const MAX_SITEMAPS: usize = 200;

/// The targets of `<link rel="resourcesync">` in a page; the first ones.
pub(super) fn links_of_page(text: &str, url: &Url) -> Vec<Url> {
    let links = LinkTags::of(text, url).filter(|link| link.relates("resourcesync"));
    distinct(links.map(|link| link.href), MAX_LINKS)
}

/// The sitemaps that a page names: the targets of the `Sitemap` lines in a robots.txt, or of `<link rel="sitemap">` in the head; the
/// first ones.
pub(super) fn sitemaps_of_page(text: &str, url: &Url) -> Vec<Url> {
    if url.path().ends_with("/robots.txt") {
        distinct(sitemap_lines(text, url), MAX_SITEMAPS)
    } else {
        let links = LinkTags::of_head(text, url).filter(|link| link.relates("sitemap"));
        distinct(links.map(|link| link.href), MAX_LINKS)
    }
}

/// The first different ones.
fn distinct(found: impl Iterator<Item = Url>, limit: usize) -> Vec<Url> {
    let mut links: Vec<Url> = Vec::new();
    for link in found.map(without_userinfo) {
        if links.contains(&link) {
            continue;
        }
        links.push(link);
        if links.len() == limit {
            break;
        }
    }
    links
}

fn sitemap_lines(text: &str, url: &Url) -> impl Iterator<Item = Url> {
    text.trim_start_matches('\u{feff}')
        .split(['\r', '\n'])
        .filter_map(|line| line.split_once(':'))
        .filter(|(field, _)| field.trim().eq_ignore_ascii_case("sitemap"))
        .filter_map(move |(_, value)| {
            let value = value.split('#').next().unwrap_or_default();
            resolve_reference(url, value.trim()).ok()
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Find = fn(&str, &Url) -> Vec<Url>;

    fn check(find: Find, page: &str, text: &str, expected: &[&str]) {
        let base = Url::parse("http://example.com/a/").unwrap();
        let found = find(text, &base.join(page).unwrap());
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
            "<head><base href='http://example.com/'><link rel=resourcesync href=list.xml>",
        ] {
            check(links_of_page, "page.html", html, list);
        }
        check(
            links_of_page,
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
            check(links_of_page, "page.html", html, &[]);
        }
    }

    #[test]
    fn sitemaps_are_found_in_robots_txt() {
        let robots = "User-agent: *\nDisallow: /x\nsitemap : http://example.com/1.xml # one\nSitemap: /2.xml\r\n";
        let expected = ["http://example.com/1.xml", "http://example.com/2.xml"];
        check(sitemaps_of_page, "/robots.txt", robots, &expected);
        check(
            sitemaps_of_page,
            "/robots.txt",
            &format!("\u{feff}{}", "Sitemap: /2.xml"),
            &expected[1..],
        );
        check(sitemaps_of_page, "/page.html", robots, &[]);
        // The line ends of old Macs.
        let old = "User-agent: *\rDisallow: /x\rSitemap: http://example.com/1.xml # one\rSitemap: /2.xml\r";
        check(sitemaps_of_page, "/robots.txt", old, &expected);
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "(<link|<!--|rel=|href|resourcesync|[<>/='\" \\-é]|.){0,40}") {
            let url = Url::parse("http://example.com/").unwrap();
            let _ = (links_of_page(&text, &url), sitemaps_of_page(&text, &url));
        }
    }
}
