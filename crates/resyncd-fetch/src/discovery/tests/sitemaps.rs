//! Sites without ResourceSync: their sitemaps are sets.

use super::*;

fn plain(entries: &[&str]) -> String {
    document("urlset", "", &[], entries)
}

/// A long sitemap: its entries are not guessed to be Capability Lists.
fn long() -> String {
    let entries: Vec<String> = (0..30).map(|n| format!("=/page{n}")).collect();
    plain(&entries.iter().map(String::as_str).collect::<Vec<_>>())
}

fn unclosed(document: &str) -> String {
    document.replace("</urlset>", "")
}

const HTML: &str = "<html>nothing";

/// Discovery from `entry` ends with exactly these sitemaps as sets.
async fn check_implied(pages: &[(&str, String)], entry: &str, sets: &[&str]) -> Discovery {
    let found = check(pages, entry, sets).await;
    assert!(found.is_implied(), "{found:?}");
    for set in &found.sets {
        assert!(set.is_implied());
        assert_eq!(set.capabilities[0].uri, set.uri);
    }
    found
}

/// Discovery from `entry` finds nothing, for that reason.
async fn check_nothing(pages: &[(&str, String)], entry: &str, code: &str) {
    let (site, _) = site(pages).await;
    let error = discover(&site, entry).await.unwrap_err();
    assert_eq!(error.code(), code, "from {entry}: {error}");
}

#[tokio::test]
async fn sitemap_without_resourcesync_is_a_set() {
    let index = document("sitemapindex", "", &[], &["=/a.xml", "=/b.xml"]);
    for sitemap in [plain(&["=/page"]), long(), index, plain(&[])] {
        let pages = [
            ("/maps/1.xml", sitemap),
            ("/a.xml", plain(&["=/page"])),
            ("/b.xml", long()),
            ("/page", HTML.into()),
            // Only the entry point is the set.
            ("/robots.txt", "Sitemap: /a.xml".into()),
            ("/sitemap.xml", long()),
        ];
        check_implied(&pages, "/maps/1.xml", &["/maps/1.xml"]).await;
    }
}

#[tokio::test]
async fn each_sitemap_of_robots_txt_is_a_set() {
    let robots = "User-agent: *\nSitemap: /1.xml\nSitemap: /2.xml\nSitemap: /404.xml\nSitemap: /feed\nSitemap: /1.xml";
    let pages = [
        ("/robots.txt", robots.into()),
        ("/1.xml", plain(&["=/page"])),
        ("/2.xml", long()),
        ("/feed", "<rss><channel/></rss>".into()),
        ("/sitemap.xml", long()),
        ("/page", HTML.into()),
    ];
    for entry in ["/", "/page", "/robots.txt", "/absent"] {
        let found = check_implied(&pages, entry, &["/1.xml", "/2.xml"]).await;
        let failed: Vec<_> = found
            .failed
            .iter()
            .map(|(uri, error)| (uri.path(), error.code()))
            .collect();
        assert_eq!(
            failed,
            [("/404.xml", "not-found"), ("/feed", "unsupported-feed")]
        );
    }
    // Those of a sitemap that was given are not followed, read or not.
    let found = check_implied(&pages, "/sitemap.xml", &["/sitemap.xml"]).await;
    assert_eq!(found.failed, []);
}

#[tokio::test]
async fn usual_path_of_a_sitemap_is_tried_last() {
    let pages = [
        ("/", HTML.into()),
        ("/robots.txt", "User-agent: *".into()),
        ("/sitemap.xml", long()),
    ];
    check_implied(&pages, "/", &["/sitemap.xml"]).await;
    // 403 for hidden folders does not mean that there is ResourceSync.
    let forbidding = [(WELL, "403".into()), ("/sitemap.xml", long())];
    check_implied(&forbidding, "/", &["/sitemap.xml"]).await;
    let page = [("/", HTML.into()), ("/sitemap.xml", HTML.into())];
    check_nothing(&page, "/", "no-source-description").await;
}

#[tokio::test]
async fn sitemaps_of_the_usual_generators_are_tried_one_after_the_other() {
    let places = [
        "/sitemap.xml",
        "/sitemap_index.xml",
        "/wp-sitemap.xml",
        "/sitemap.xml.gz",
    ];
    for (n, place) in places.into_iter().enumerate() {
        let mut pages = vec![("/", HTML.into()), (place, long())];
        // An answer of 200 for what does not exist is no sitemap.
        pages.extend(places[..n].iter().map(|absent| (*absent, HTML.into())));
        let others = places[n + 1..].iter();
        pages.extend(others.map(|other| (*other, plain(&["=/other"]))));
        check_implied(&pages, "/", &[place]).await;
    }
    // Which of them is the sitemap is in doubt: the set would be another one tomorrow.
    let doubtful = [("/sitemap.xml", "503".into()), ("/wp-sitemap.xml", long())];
    check_nothing(&doubtful, "/", "no-source-description").await;
}

#[tokio::test]
async fn sitemap_links_of_the_page_at_the_entry_point_are_followed() {
    let html = "<html><head><link rel=sitemap type=application/xml href=/maps/1.xml>\
        <link rel='alternate sitemap' href=/maps/2.xml></head>\
        <body><link rel=sitemap href=/maps/3.xml>";
    let pages = [
        ("/", html.to_owned()),
        ("/page", html.to_owned()),
        ("/maps/1.xml", long()),
        ("/maps/2.xml", plain(&["=/page"])),
        ("/maps/3.xml", long()),
        ("/sitemap.xml", long()),
    ];
    for entry in ["/", "/page"] {
        let found = check_implied(&pages, entry, &["/maps/1.xml", "/maps/2.xml"]).await;
        assert_eq!(found.replaced_entry, None);
    }
    // Those of robots.txt come first, and what fails is reported with the others.
    let mut with_robots = pages.to_vec();
    with_robots.push(("/robots.txt", "Sitemap: /maps/3.xml".into()));
    check_implied(&with_robots, "/", &["/maps/3.xml"]).await;
    let mut dead = pages.to_vec();
    dead[2].1 = "404".into();
    let found = check_implied(&dead, "/", &["/maps/2.xml"]).await;
    assert_eq!(found.failed[0].1.code(), "not-found");
    // A ResourceSync document is preferred.
    let mut described = pages.to_vec();
    described.extend([
        (WELL, description(&["=/1"])),
        ("/1", list(&["resourcelist=/list"])),
    ]);
    check(&described, "/", &["/1"]).await;
}

#[tokio::test]
async fn standalone_resource_list_is_a_set_and_an_index_replaces_its_parts() {
    let part = document("urlset", "resourcelist", &["index=/index", "up=/404"], &[]);
    let index = document("sitemapindex", "resourcelist", &[], &["=/part"]);
    let pages = [("/part", part), ("/index", index)];
    check_implied(&pages, "/index", &["/index"]).await;
    check_implied(&pages, "/part", &["/index"]).await;
    // An index that links to itself, and two that link to each other.
    let ring = |index: &str| document("urlset", "resourcelist", &[index], &[]);
    let rings = [
        ("/self", ring("index=/self")),
        ("/a", ring("index=/b")),
        ("/b", ring("index=/a")),
    ];
    check_implied(&rings, "/self", &["/self"]).await;
    check_implied(&rings, "/a", &["/a", "/b"]).await;
    let beside = [
        rings[0].clone(),
        ("/other", long()),
        ("/robots.txt", "Sitemap: /self\nSitemap: /other".into()),
    ];
    check_implied(&beside, "/", &["/self", "/other"]).await;
    // The index fails: the part remains.
    check_implied(&pages[..1], "/part", &["/part"]).await;
}

#[tokio::test]
async fn sitemap_beside_resourcesync_is_not_a_set() {
    let rs = [
        (WELL, description(&["=/1"])),
        ("/1", list(&["resourcelist=/list"])),
        (
            "/robots.txt",
            "Sitemap: /sitemap.xml\nSitemap: /list".into(),
        ),
        ("/sitemap.xml", long()),
    ];
    for entry in ["/", "/sitemap.xml", "/robots.txt"] {
        check(&rs, entry, &["/1"]).await;
    }
    // The Resource List among the sitemaps leads to its Capability List.
    let by_robots = [
        (
            "/robots.txt",
            "Sitemap: /sitemap.xml\nSitemap: /list".into(),
        ),
        ("/list", document("urlset", "resourcelist", &["up=/1"], &[])),
        ("/1", list(&["resourcelist=/list"])),
        ("/sitemap.xml", long()),
    ];
    check(&by_robots, "/", &["/1"]).await;
    // A sitemap of few entries may be a Source Description.
    let disguised = [
        ("/sitemap.xml", plain(&["=/page", "=/1"])),
        ("/page", HTML.into()),
        ("/1", list(&["changelist=/c"])),
    ];
    let found = check(&disguised, "/sitemap.xml", &["/1"]).await;
    assert!(!found.is_uncertain);
    // It may have named others.
    let mut damaged = disguised.clone();
    damaged[0].1 = unclosed(&damaged[0].1);
    let found = check(&damaged, "/sitemap.xml", &["/1"]).await;
    assert!(found.is_uncertain);
    // The Resource List is the sitemap at the usual path, without links to it.
    let usual = [
        (
            "/sitemap.xml",
            document("urlset", "resourcelist", &["up=/1"], &[]),
        ),
        ("/1", list(&["resourcelist=/sitemap.xml"])),
    ];
    assert!(!check(&usual, "/", &["/1"]).await.is_implied());
    let nested = [
        (WELL, document("sitemapindex", "", &[], &["=/d"])),
        ("/d", plain(&["=/1"])),
        ("/1", list(&["changelist=/c"])),
    ];
    check(&nested, "/", &["/1"]).await;
}

#[tokio::test]
async fn failures_do_not_make_a_site_one_without_resourcesync() {
    let sitemap = ("/sitemap.xml", long());
    let cut = description(&["=/1"]).replace("</urlset>", "");
    let linked = document("urlset", "resourcelist", &["up=/1"], &[]);
    let cases = [
        (vec![(WELL, "503".into())], "http-status"),
        (vec![(WELL, cut)], "cut-short"),
        (
            vec![(WELL, unclosed(&plain(&["=/page"])))],
            "no-source-description",
        ),
        (vec![(WELL, description(&[]))], "no-capability-list"),
        (
            vec![(WELL, plain(&["=/1"])), ("/1", "500".into())],
            "http-status",
        ),
        (vec![("/", "500".into())], "http-status"),
        (vec![("/robots.txt", "500".into())], "no-source-description"),
        (
            vec![
                ("/robots.txt", "Sitemap: /list".into()),
                ("/list", linked),
                ("/1", "502".into()),
            ],
            "no-source-description",
        ),
        (
            vec![
                ("/robots.txt", "Sitemap: /500".into()),
                ("/500", "500".into()),
            ],
            "no-source-description",
        ),
    ];
    for (mut pages, code) in cases {
        pages.push(sitemap.clone());
        check_nothing(&pages, "/", code).await;
    }
    // A Change List as entry point does not mean the site's pages.
    let lonely = [
        ("/changes", document("urlset", "changelist", &[], &[])),
        sitemap,
    ];
    check_nothing(&lonely, "/changes", "no-source-description").await;
}

#[tokio::test]
async fn sitemap_that_fails_temporarily_is_reported_with_the_others() {
    let pages = [
        (
            "/robots.txt",
            "Sitemap: /1.xml\nSitemap: /2.xml\nSitemap: /3.xml".into(),
        ),
        ("/1.xml", "503".into()),
        ("/2.xml", long()),
        ("/3.xml", long().replacen("</url>", "", 1)),
    ];
    for entry in ["/", "/robots.txt"] {
        let found = check_implied(&pages, entry, &["/2.xml"]).await;
        let failed: Vec<_> = found
            .failed
            .iter()
            .map(|(uri, error)| (uri.path(), error.code()))
            .collect();
        assert_eq!(failed, [("/1.xml", "http-status"), ("/3.xml", "not-xml")]);
    }
}

#[tokio::test]
async fn guesses_are_limited_in_number_and_length() {
    let many: String = (0..100).map(|n| format!("Sitemap: /{n}.xml\n")).collect();
    // Longer than the maximum of a guess.
    let padding = format!("<!-- {} -->", " ".repeat(60_000)).repeat(20);
    let film = list(&["resourcelist=/r"]).replace("</urlset>", &(padding + "</urlset>"));
    let site = TestSite::start(move |request| match request.path() {
        "/robots.txt" => test_site::ok(many.clone()),
        "/film" => test_site::ok(film.clone()),
        "/few.xml" => test_site::ok(plain(&["=/film"])),
        path if path.ends_with(".xml") => test_site::ok(long()),
        _ => test_site::status(404),
    })
    .await;
    let entry = Url::parse(&site.url("/")).unwrap();
    let found = test_site::client().discover(&entry, LIMIT).await.unwrap();
    assert_eq!((found.sets.len(), found.failed.len()), (63, 37));
    assert_eq!(found.failed[0].1.code(), "too-many-documents");

    let few = entry.join("few.xml").unwrap();
    let found = test_site::client().discover(&few, 16 << 20).await.unwrap();
    assert!(found.is_implied(), "{found:?}");
}

#[tokio::test]
async fn named_set_may_be_a_sitemap() {
    let pages = [
        ("/sitemap.xml", long()),
        ("/1", list(&["changelist=/c"])),
        ("/changes", document("urlset", "changelist", &[], &[])),
        ("/page", HTML.into()),
    ];
    let (site, _) = site(&pages).await;
    let client = test_site::client();
    let named = async |path| {
        let uri = Url::parse(&site.url(path)).unwrap();
        let found = client.named_set(&uri, LIMIT).await;
        found
            .map(|set| set.is_implied())
            .map_err(|error| error.code())
    };
    assert_eq!(named("/sitemap.xml").await, Ok(true));
    assert_eq!(named("/1").await, Ok(false));
    for path in ["/changes", "/page"] {
        assert_eq!(named(path).await, Err("not-a-capability-list"));
    }
    // A sitemap is not accepted as a Capability List.
    let uri = Url::parse(&site.url("/sitemap.xml")).unwrap();
    let strict = client.capability_list(&uri, None, LIMIT).await;
    assert_eq!(strict.unwrap_err().code(), "not-a-capability-list");
}

/// A document of version 0.1 that names these Change Sets: `which=href`.
fn draft(root: &str, change_sets: &[&str], entries: &str) -> String {
    let link = |named: &&str| {
        let (which, href) = named.split_once('=').unwrap();
        format!(
            r#"<xhtml:link rel="{which} http://www.openarchives.org/rs/changeset" href="{href}"/>"#
        )
    };
    let links: String = change_sets.iter().map(link).collect();
    format!(
        r#"<urlset {root} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"
             xmlns:xhtml="http://www.w3.org/1999/xhtml">{links}{entries}</urlset>"#
    )
}

const CHANGES: &str = r#"<url><loc>/res1</loc><lastmod rs:type="updated">2012-08-08T08:15:00Z</lastmod></url>
    <url><loc>/res2</loc><expires>2012-08-08T13:22:00Z</expires></url>"#;
const PAGES: &str = "<url><loc>/res1</loc><lastmod>2012-08-08T08:15:00Z</lastmod></url>";

/// Change Sets at `/set.xml`, and whether it is certain that each is one.
fn change_sets() -> [(String, bool); 5] {
    [
        (draft(r#"rs:type="changeset""#, &[], CHANGES), true),
        (draft("", &["prev=/old.xml"], CHANGES), true),
        (draft("", &["current=/set.xml"], CHANGES), true),
        (draft("", &["prev=/old.xml"], ""), true),
        (draft("", &[], CHANGES), false),
    ]
}

#[tokio::test]
async fn change_set_leads_to_the_sitemap_that_names_it() {
    let map = draft("", &["current=/set.xml"], PAGES);
    for (set, _) in change_sets() {
        let pages = [
            ("/set.xml", set.clone()),
            ("/map.xml", map.clone()),
            ("/pages.xml", long()),
            (
                "/robots.txt",
                "Sitemap: /pages.xml\nSitemap: /gone.xml\nSitemap: /map.xml".into(),
            ),
        ];
        let found = check_implied(&pages, "/set.xml", &["/map.xml"]).await;
        assert_eq!(found.replaced_entry, None, "{set}");
        assert_eq!(found.failed, [], "{set}");
        let offered = found.sets[0].capabilities.iter();
        let offered: Vec<&str> = offered.map(|offer| offer.uri.path()).collect();
        assert_eq!(offered, ["/map.xml", "/set.xml"], "{set}");
        // The Sitemap is at its usual path.
        let usual = [("/set.xml", set), ("/sitemap.xml", map.clone())];
        check_implied(&usual, "/set.xml", &["/sitemap.xml"]).await;
    }
    // A historical one leads there by the current one.
    let old = draft("", &["current=/set.xml", "prev=/older.xml"], CHANGES);
    let pages = [("/old.xml", old), ("/sitemap.xml", map)];
    check_implied(&pages, "/old.xml", &["/sitemap.xml"]).await;
}

#[tokio::test]
async fn change_set_that_no_sitemap_names_is_no_list_of_a_sites_pages() {
    let other = draft("", &["current=/other.xml"], PAGES);
    for (set, is_certain) in change_sets() {
        let pages = [
            ("/set.xml", set),
            ("/map.xml", other.clone()),
            ("/robots.txt", "Sitemap: /map.xml".into()),
            ("/sitemap.xml", long()),
        ];
        if is_certain {
            check_nothing(&pages, "/set.xml", "no-source-description").await;
        } else {
            // It may be a Sitemap whose entries state changes, as in example 3.4 of the draft.
            check_implied(&pages, "/set.xml", &["/set.xml"]).await;
        }
    }
}

#[tokio::test]
async fn sitemap_that_names_change_sets_is_followed_itself() {
    let mixed = CHANGES.to_owned() + PAGES;
    for (links, entries) in [
        (&["current=/set.xml"][..], CHANGES),
        (&["current=/set.xml"], PAGES),
        (&["current=/set.xml", "prev=/old.xml"], PAGES),
        (&["prev=/old.xml"], &*mixed),
    ] {
        let map = draft("", &["current=/set.xml"], PAGES);
        let pages = [
            ("/part.xml", draft("", links, entries)),
            ("/sitemap.xml", map.clone()),
            ("/map.xml", map),
            ("/robots.txt", "Sitemap: /map.xml".into()),
        ];
        check_implied(&pages, "/part.xml", &["/part.xml"]).await;
    }
}

#[tokio::test]
async fn change_set_leads_to_its_sitemap_beside_an_empty_source_description() {
    for (set, _) in change_sets() {
        let pages = [
            (WELL, description(&[])),
            ("/set.xml", set),
            ("/map.xml", draft("", &["current=/set.xml"], PAGES)),
            ("/robots.txt", "Sitemap: /map.xml".into()),
        ];
        check_implied(&pages, "/set.xml", &["/map.xml"]).await;
    }
}
