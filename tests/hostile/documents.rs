//! Documents of another kind, invalid documents and truncated ones are rejected without any effect, wherever they are read.

use crate::hostile::PROCESSOR;
use crate::hostile::entry_points::{EntryPoint, GuardedSet};

const PAGE: &str = "<html><head><title>Sorry</title></head><body><p>We are down</p></body></html>";
const RSS: &str = "<?xml version=\"1.0\"?><rss version=\"2.0\"><channel><title>t</title><link>http://example.com/</link></channel></rss>";

/// The document with another capability.
fn relabelled(document: &str, capability: &str) -> String {
    let at = document.find("capability=\"").unwrap() + "capability=\"".len();
    let end = at + document[at..].find('"').unwrap();
    format!("{}{capability}{}", &document[..at], &document[end..])
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_another_kind_are_rejected_everywhere() {
    let _permit = PROCESSOR.read().await;
    for entry_point in EntryPoint::ALL {
        let set = GuardedSet::start(entry_point).await;
        let document = set.document.clone();
        let other = match entry_point {
            EntryPoint::ChangeList | EntryPoint::Notification => "resourcelist",
            _ => "changelist",
        };
        let no_namespace = document.replace("http://www.sitemaps.org/schemas/sitemap/0.9", "urn:x");
        let no_root = document.replace("urlset", "sitemap");
        let second = format!(
            "{document}{}",
            &document[document.find("<urlset").unwrap_or(0)..]
        );
        for (what, text, codes) in [
            ("a web page", PAGE.to_owned(), &["html-page"][..]),
            (
                "a page with a doctype",
                format!("<!DOCTYPE html>{PAGE}"),
                &["html-page"],
            ),
            (
                "a page that is no XML",
                "<html><br><p>".to_owned(),
                &["html-page"],
            ),
            ("a feed", RSS.to_owned(), &["unsupported-feed"]),
            ("nothing", String::new(), &["not-xml"]),
            ("white space", " \n ".to_owned(), &["not-xml"]),
            ("JSON", "{}".to_owned(), &["not-xml"]),
            ("text", "Service unavailable".to_owned(), &["not-xml"]),
            (
                "another capability",
                relabelled(&document, other),
                &["wrong-capability"],
            ),
            (
                "another namespace",
                no_namespace,
                &["wrong-namespace", "wrong-root"],
            ),
            ("another root", no_root, &["wrong-root"]),
            ("a second root", second, &["trailing-content"]),
            (
                "text behind",
                format!("{document}more"),
                &["trailing-content"],
            ),
            (
                "no end",
                document
                    .replace("</urlset>", "")
                    .replace("</sitemapindex>", ""),
                &["cut-short"],
            ),
        ] {
            set.rejects(what, text.into_bytes(), codes).await;
        }
        if entry_point == EntryPoint::Notification {
            let index = document
                .replace("<urlset", "<sitemapindex")
                .replace("</urlset>", "</sitemapindex>")
                .replace("<url>", "<sitemap>")
                .replace("</url>", "</sitemap>");
            let codes = &["wrong-root"];
            set.rejects("an index", index.into_bytes(), codes).await;
        }
        set.recovers().await;
    }
}

/// As served by a Source that has lost its database. The list states no capability, so that it proves no deletion.
#[tokio::test(flavor = "multi_thread")]
async fn empty_list_without_a_capability_deletes_nothing() {
    let _permit = PROCESSOR.read().await;
    const NOTHING: &str = r#"<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"></urlset>"#;
    for entry_point in EntryPoint::ALL {
        let set = GuardedSet::start(entry_point).await;
        let index = NOTHING.replace("urlset", "sitemapindex");
        for (what, text) in [("an empty list", NOTHING), ("an empty index", &index)] {
            set.ignores(what, text.into()).await;
        }
        set.recovers().await;
    }
}

/// In steps, because each length takes a poll; the tests of the reader truncate at every byte.
#[tokio::test(flavor = "multi_thread")]
async fn truncated_documents_are_rejected_everywhere() {
    let _permit = PROCESSOR.read().await;
    for entry_point in EntryPoint::ALL {
        let set = GuardedSet::start(entry_point).await;
        let document = set.document.trim_end().as_bytes();
        let step = document.len() / 12 + 1;
        let ends = (1..document.len()).step_by(step);
        for end in ends.chain(document.len() - 10..document.len()) {
            let cut = document[..end].to_vec();
            let what = format!("the first {end} of {} bytes", document.len());
            set.rejects(&what, cut, &["cut-short", "not-xml"]).await;
        }
        set.recovers().await;
    }
}
