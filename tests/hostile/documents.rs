//! Documents that are none, are others, or are not whole: refused before anything is done for them.

use crate::PROCESSOR;
use crate::doors::{Door, Guarded};

const PAGE: &str = "<html><head><title>Sorry</title></head><body><p>We are down</p></body></html>";
const RSS: &str = "<?xml version=\"1.0\"?><rss version=\"2.0\"><channel><title>t</title><link>http://example.com/</link></channel></rss>";

/// The document with another capability.
fn relabelled(whole: &str, capability: &str) -> String {
    let at = whole.find("capability=\"").unwrap() + "capability=\"".len();
    let end = at + whole[at..].find('"').unwrap();
    format!("{}{capability}{}", &whole[..at], &whole[end..])
}

#[tokio::test(flavor = "multi_thread")]
async fn no_door_takes_what_is_something_else() {
    let _turn = PROCESSOR.read().await;
    for door in Door::ALL {
        let guarded = Guarded::start(door).await;
        let whole = guarded.whole.clone();
        let other = match door {
            Door::ChangeList | Door::Notification => "resourcelist",
            _ => "changelist",
        };
        let no_namespace = whole.replace("http://www.sitemaps.org/schemas/sitemap/0.9", "urn:x");
        let no_root = whole.replace("urlset", "sitemap");
        let second = format!("{whole}{}", &whole[whole.find("<urlset").unwrap_or(0)..]);
        for (what, text, codes) in [
            ("a web page", PAGE.to_owned(), &["wrong-root"][..]),
            (
                "a page with a doctype",
                format!("<!DOCTYPE html>{PAGE}"),
                &["doctype"],
            ),
            (
                "a page that is no XML",
                "<html><br><p>".to_owned(),
                &["wrong-root", "cut-short"],
            ),
            ("a feed", RSS.to_owned(), &["wrong-root"]),
            ("nothing", String::new(), &["not-xml"]),
            ("white space", " \n ".to_owned(), &["not-xml"]),
            ("JSON", "{}".to_owned(), &["not-xml"]),
            ("text", "Service unavailable".to_owned(), &["not-xml"]),
            (
                "another capability",
                relabelled(&whole, other),
                &["wrong-capability"],
            ),
            (
                "another namespace",
                no_namespace,
                &["wrong-namespace", "wrong-root"],
            ),
            ("another root", no_root, &["wrong-root"]),
            ("a second root", second, &["trailing-content"]),
            ("text behind", format!("{whole}more"), &["trailing-content"]),
            (
                "no end",
                whole
                    .replace("</urlset>", "")
                    .replace("</sitemapindex>", ""),
                &["cut-short"],
            ),
        ] {
            guarded.refuses(what, text.into_bytes(), codes).await;
        }
        if door == Door::Notification {
            let index = whole
                .replace("<urlset", "<sitemapindex")
                .replace("</urlset>", "</sitemapindex>")
                .replace("<url>", "<sitemap>")
                .replace("</url>", "</sitemap>");
            let codes = &["wrong-root"];
            guarded.refuses("an index", index.into_bytes(), codes).await;
        }
        guarded.recovers().await;
    }
}

/// As a Source serves that has lost its own database. It does not say what it is, so that it proves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn no_door_takes_a_list_of_nothing_for_the_end_of_all() {
    let _turn = PROCESSOR.read().await;
    const NOTHING: &str = r#"<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"></urlset>"#;
    for door in Door::ALL {
        let guarded = Guarded::start(door).await;
        let index = NOTHING.replace("urlset", "sitemapindex");
        for (what, text) in [("an empty list", NOTHING), ("an empty index", &index)] {
            guarded.learns_nothing(what, text.into()).await;
        }
        guarded.recovers().await;
    }
}

/// In steps, because each is a poll; the reader's own tests cut at every byte.
#[tokio::test(flavor = "multi_thread")]
async fn no_door_takes_what_is_cut_short() {
    let _turn = PROCESSOR.read().await;
    for door in Door::ALL {
        let guarded = Guarded::start(door).await;
        let whole = guarded.whole.trim_end().as_bytes();
        let step = whole.len() / 12 + 1;
        let ends = (1..whole.len()).step_by(step);
        for end in ends.chain(whole.len() - 10..whole.len()) {
            let cut = whole[..end].to_vec();
            let what = format!("the first {end} of {} bytes", whole.len());
            guarded.refuses(&what, cut, &["cut-short", "not-xml"]).await;
        }
        guarded.recovers().await;
    }
}
