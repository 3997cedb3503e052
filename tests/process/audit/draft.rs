//! Sources of the draft of version 0.1.

use std::fs;

use resyncd_testkit::SampleSource;

use super::{assert_found, sync};
use crate::support::process::Home;
use crate::support::{only_pages, path_of};

const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:xhtml="http://www.w3.org/1999/xhtml""#;

#[tokio::test(flavor = "multi_thread")]
async fn mirror_is_compared_with_the_sitemap_and_the_change_sets_since() {
    let source = SampleSource::start(only_pages()).await.unwrap();
    let put = |path: &str, text: &str| {
        source.put_document(path, "text/plain", text.to_owned());
    };
    let document = |root: &str, links: &[(&str, &str)], entries: &[(&str, &str)]| {
        let links: String = links
            .iter()
            .map(|(which, path)| {
                let rel = format!("{which} http://www.openarchives.org/rs/changeset");
                format!("<xhtml:link rel=\"{rel}\" href=\"{path}\"/>")
            })
            .collect();
        let entries: String = entries
            .iter()
            .map(|(path, what)| format!("<url><loc>{path}</loc>{what}</url>"))
            .collect();
        let modified = "<xhtml:meta name=\"DCTERMS.modified\" content=\"2012-08-08T12:00:00Z\"/>";
        format!("<urlset {root} {NAMESPACES}>{modified}{links}{entries}</urlset>")
    };
    for page in ["/a", "/b", "/d"] {
        put(page, page);
    }
    let (eight, nine) = (
        "<lastmod>2012-08-08T08:00:00Z</lastmod>",
        "<lastmod>2012-08-08T09:00:00Z</lastmod>",
    );
    let expired = "<expires>2012-08-08T10:00:00Z</expires>";
    let listed = [("/a", eight), ("/b", nine), ("/c", expired)];
    let current = ("current", "/sets/2.xml");
    put("/sitemap.xml", &document("", &[current], &listed));
    let changes = [
        (
            "/b",
            "<lastmod rs:type=\"created\">2012-08-08T09:00:00Z</lastmod>",
        ),
        (
            "/a",
            "<lastmod rs:type=\"updated\">2012-08-08T13:00:00Z</lastmod>",
        ),
    ];
    let is_set = "rs:type=\"changeset\"";
    put("/sets/1.xml", &document(is_set, &[], &changes));
    let changes = [
        (
            "/d",
            "<lastmod rs:type=\"created\">2012-08-08T14:00:00Z</lastmod>",
        ),
        ("/b", "<expires>2012-08-08T15:00:00Z</expires>"),
    ];
    put(
        "/sets/2.xml",
        &document(is_set, &[("prev", "/sets/1.xml")], &changes),
    );
    let home = Home::new(&format!("{}sitemap.xml", source.url()), "");
    sync(&home);
    let hits = source.hits("/sets/1.xml");
    assert_found(&home.run_command(&["audit", "--json"]), 0, &[]);
    assert!(source.hits("/sets/1.xml") > hits, "the audit reads it, too");
    let file = |page: &str| {
        home.mirror
            .join(path_of(&source.base().join(page).unwrap()))
    };
    fs::remove_file(file("/a")).unwrap();
    let found = home.run_command(&["audit", "--json"]);
    assert_found(&found, 1, &["missing a"]);
    let mended = home.run_command(&["audit", "--json", "--repair"]);
    assert_found(&mended, 0, &["+missing a"]);
    assert_eq!(fs::read_to_string(file("/a")).unwrap(), "/a");
    assert!(!file("/b").exists() && !file("/c").exists());
}
