use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use resourcesync::{Capability, Oddity};

use super::search::MAX_HOPS;
use super::*;
use crate::test_site::{self, TestSite};

mod limits;
mod repeated;
mod sitemaps;

const LIMIT: u64 = 1 << 20;

/// A document: `rel=href` links and `capability=loc` entries; an entry `=loc` names no capability.
fn document(root: &str, capability: &str, links: &[&str], entries: &[&str]) -> String {
    let entry_name = if root == "urlset" { "url" } else { "sitemap" };
    let mut xml = format!(
        r#"<?xml version="1.0"?>
<{root} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">"#
    );
    for link in links {
        let (rel, href) = link.split_once('=').unwrap();
        xml += &format!(r#"<rs:ln rel="{rel}" href="{href}"/>"#);
    }
    if !capability.is_empty() {
        xml += &format!(r#"<rs:md capability="{capability}"/>"#);
    }
    for entry in entries {
        let (capability, loc) = entry.split_once('=').unwrap();
        let md = match capability {
            "" => String::new(),
            named => format!(r#"<rs:md capability="{named}"/>"#),
        };
        xml += &format!("<{entry_name}><loc>{loc}</loc>{md}</{entry_name}>");
    }
    xml + &format!("</{root}>")
}

fn description(entries: &[&str]) -> String {
    document("urlset", "description", &[], entries)
}

fn list(entries: &[&str]) -> String {
    document(
        "urlset",
        "capabilitylist",
        &["up=/.well-known/resourcesync"],
        entries,
    )
}

type Asked = Arc<Mutex<Vec<String>>>;

/// A site of these pages, with 404 for everything else, and the paths of the requests.
async fn site(pages: &[(&str, String)]) -> (TestSite, Asked) {
    let pages: HashMap<String, String> = pages
        .iter()
        .map(|(path, page)| ((*path).to_owned(), page.clone()))
        .collect();
    let asked = Asked::default();
    let log = asked.clone();
    let site = TestSite::start(move |request| {
        let path = request.path().to_owned();
        log.lock().unwrap().push(path.clone());
        match pages.get(&path) {
            Some(page) => match page.strip_prefix("-> ") {
                Some(target) => test_site::redirect(302, target),
                None => match page.parse() {
                    Ok(code) => test_site::status(code),
                    Err(_) => test_site::ok(page.clone()),
                },
            },
            None => test_site::status(404),
        }
    })
    .await;
    (site, asked)
}

async fn discover(site: &TestSite, path: &str) -> Result<Discovery, DiscoveryError> {
    let entry = Url::parse(&site.url(path)).unwrap();
    test_site::client().discover(&entry, LIMIT).await
}

/// Discovery from `entry` ends with exactly these sets.
async fn check(pages: &[(&str, String)], entry: &str, sets: &[&str]) -> Discovery {
    let (site, _) = site(pages).await;
    let found = discover(&site, entry).await.unwrap();
    let paths: Vec<&str> = found.sets.iter().map(|set| set.uri.path()).collect();
    assert_eq!(paths, sets, "from {entry}: {:?}", found.failed);
    found
}

const WELL: &str = "/.well-known/resourcesync";

#[tokio::test]
async fn a_site_is_discovered_by_either_spelling_of_the_well_known_uri() {
    for path in WELL_KNOWN {
        let pages = [
            (
                path,
                description(&["capabilitylist=/1", "capabilitylist=/2"]),
            ),
            ("/1", list(&["resourcelist=/1/list"])),
            ("/2", list(&["changelist=/2/changes"])),
            ("/page.html", "<html>nothing".into()),
        ];
        for entry in ["/", "/page.html", "/absent", path] {
            let found = check(&pages, entry, &["/1", "/2"]).await;
            assert_eq!(found.description.unwrap().path(), path);
            assert!(found.failed.is_empty());
        }
    }
}

#[tokio::test]
async fn every_document_of_a_set_leads_to_that_set_only() {
    let pages = [
        (
            WELL,
            description(&["capabilitylist=/1", "capabilitylist=/2"]),
        ),
        ("/1", list(&["resourcelist=/index", "changelist=/changes"])),
        ("/2", list(&["resourcelist=/other"])),
        (
            "/index",
            document("sitemapindex", "resourcelist", &["up=/1"], &["=/part"]),
        ),
        (
            "/part",
            document("urlset", "resourcelist", &["index=/index"], &[]),
        ),
        ("/changes", document("urlset", "changelist", &["up=1"], &[])),
        ("/page", r#"<link rel="resourcesync" href="/1">"#.into()),
        (
            "/odd-page",
            r#"<link rel="resourcesync" href="/.well-known/resourcesync">"#.into(),
        ),
        ("/robots.txt", "Sitemap: /changes".into()),
        ("/moved", "-> /changes".into()),
    ];
    for entry in [
        "/1",
        "/index",
        "/part",
        "/changes",
        "/page",
        "/robots.txt",
        "/moved",
    ] {
        let found = check(&pages, entry, &["/1"]).await;
        assert_eq!(found.description.unwrap().path(), WELL, "{entry}");
    }
    check(&pages, "/odd-page", &["/1", "/2"]).await;
}

#[tokio::test]
async fn links_that_skip_a_level_or_form_a_cycle_are_tolerated() {
    let pages = [
        (WELL, description(&["capabilitylist=/1"])),
        ("/1", list(&["resourcelist=/skips"])),
        (
            "/skips",
            document(
                "urlset",
                "resourcelist",
                &["up=/.well-known/resourcesync"],
                &[],
            ),
        ),
        (
            "/self",
            document("urlset", "changelist", &["up=/self"], &[]),
        ),
        (
            "/ring-a",
            document("urlset", "changelist", &["up=/ring-b"], &[]),
        ),
        (
            "/ring-b",
            document(
                "urlset",
                "changelist",
                &["up=/ring-a", "index=/ring-a"],
                &[],
            ),
        ),
        ("/none", document("urlset", "resourcelist", &[], &[])),
        (
            "/broken",
            document(
                "urlset",
                "resourcelist",
                &["up=/absent", "index=/skips"],
                &[],
            ),
        ),
    ];
    for entry in ["/skips", "/self", "/ring-a", "/none", "/broken"] {
        check(&pages, entry, &["/1"]).await;
    }
}

#[tokio::test]
async fn an_endless_chain_of_up_links_is_abandoned() {
    let chain: Vec<(String, String)> = (0..20)
        .map(|n| {
            let up = format!("up=/{}", n + 1);
            (
                format!("/{n}"),
                document("urlset", "changelist", &[&up], &[]),
            )
        })
        .collect();
    let pages: Vec<(&str, String)> = chain
        .iter()
        .map(|(path, page)| (path.as_str(), page.clone()))
        .collect();
    let (site, asked) = site(&pages).await;
    let error = discover(&site, "/0").await.unwrap_err();
    assert_eq!(error.code(), "no-source-description");
    let steps = asked
        .lock()
        .unwrap()
        .iter()
        .filter(|path| path.len() <= 3)
        .count();
    assert_eq!(steps, 1 + MAX_HOPS);
}

#[tokio::test]
async fn a_failed_set_does_not_affect_the_others() {
    let pages = [
        (
            WELL,
            description(&[
                "capabilitylist=/1",
                "capabilitylist=/404",
                "=/html",
                "=/list",
                "=/cut",
                "=/2",
                "=/1",
            ]),
        ),
        ("/1", list(&["resourcelist=/r"])),
        ("/html", "<html>".into()),
        ("/list", document("urlset", "resourcelist", &[], &[])),
        ("/cut", list(&["resourcelist=/r"]).replace("</urlset>", "")),
        ("/2", list(&[])),
    ];
    let found = check(&pages, WELL, &["/1", "/2"]).await;
    let failed: Vec<(&str, &str)> = found
        .failed
        .iter()
        .map(|(uri, error)| (uri.path(), error.code()))
        .collect();
    assert_eq!(
        failed[..3],
        [
            ("/404", "not-found"),
            ("/html", "not-a-capability-list"),
            ("/list", "not-a-capability-list"),
        ]
    );
    assert_eq!(failed[3].0, "/cut");
    assert_eq!(failed.len(), 4);
}

#[tokio::test]
async fn source_descriptions_may_be_nested_up_to_a_limit() {
    let pages = [
        (
            WELL,
            document(
                "sitemapindex",
                "description",
                &[],
                &["description=/d1", "=/d2", "=/1"],
            ),
        ),
        (
            "/d1",
            description(&[
                "=/2",
                "description=/d1",
                "description=/.well-known/resourcesync",
            ]),
        ),
        ("/d2", description(&["=/2", "=/d3"])),
        ("/d3", description(&["=/d4"])),
        ("/d4", description(&["=/5"])),
        ("/1", list(&[])),
        ("/2", list(&[])),
        ("/5", list(&[])),
    ];
    check(&pages, "/", &["/1", "/2"]).await;
}

#[tokio::test]
async fn documents_without_a_capability_are_classified_by_their_entries() {
    let plain = |entries: &[&str]| document("urlset", "", &[], entries);
    let pages = [
        (WELL, plain(&["=/1", "=/page", "=ftp://example.com/x"])),
        ("/1", plain(&["resourcelist=/r", "changelist=/c"])),
        ("/page", "<html>".into()),
    ];
    let found = check(&pages, "/", &["/1"]).await;
    assert_eq!(found.sets[0].oddities.count(Oddity::NoCapability), 1);
    assert_eq!(found.sets[0].capabilities.len(), 2);

    let pages = [
        (WELL, plain(&["capabilitylist=/1"])),
        ("/1", list(&["resourcelist=/index"])),
        (
            "/index",
            document(
                "urlset",
                "",
                &["up=/1"],
                &["resourcelist=/a", "resourcelist=/b"],
            ),
        ),
    ];
    let found = check(&pages, "/index", &["/1"]).await;
    assert_eq!(found.sets[0].capabilities[0].uri.path(), "/index");
}

#[tokio::test]
async fn capability_lists_are_read_with_their_oddities() {
    let xml = r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
        <rs:ln rel="up" href="/description"/>
        <rs:ln rel="hub" href="http://hub.example.com/all"/>
        <rs:md capability="capabilitylist"/>
        <url><loc>list.xml</loc><rs:md capability="resourcelist"/></url>
        <url><loc>https://oai.example.com/oai?verb=ListRecords</loc><rs:md capability="resourcelist"/></url>
        <url><loc>mailto:somebody@example.com</loc><rs:md capability="changelist"/></url>
        <url><loc>/what</loc></url>
        <url><loc>/topic</loc><rs:md capability="change-notification"/>
            <rs:ln rel="hub" href="http://hub.example.com/second"/>
            <rs:ln rel="Hub" href="http://hub.example.com/first" pri="1"/>
            <rs:ln rel="hub" href="http://hub.example.com/second"/>
            <rs:ln rel="hub" href="ftp://hub.example.com/"/></url>
        <url><loc>/other-topic</loc><rs:md capability="change-notification"/></url>
        <url><loc>/future</loc><rs:md capability="archives"/></url>
    </urlset>"#;
    let (site, _) = site(&[("/sets/1.xml", xml.into()), ("/1", "-> /sets/1.xml".into())]).await;
    let found = discover(&site, "/1").await.unwrap();
    let set = &found.sets[0];
    assert_eq!(set.uri.as_str(), site.url("/1"), "as it was asked for");
    assert_eq!(
        set.description.as_ref().unwrap().as_str(),
        site.url("/description")
    );
    assert_eq!(found.description, set.description);
    let read: Vec<(&str, String, Vec<&str>)> = set
        .capabilities
        .iter()
        .map(|advertised| {
            (
                advertised.capability.as_str(),
                advertised.uri.to_string(),
                advertised.hubs.iter().map(|hub| hub.as_str()).collect(),
            )
        })
        .collect();
    let hubs = [
        "http://hub.example.com/first",
        "http://hub.example.com/second",
    ];
    assert_eq!(
        read,
        [
            ("resourcelist", site.url("/sets/list.xml"), vec![]),
            (
                "resourcelist",
                "https://oai.example.com/oai?verb=ListRecords".into(),
                vec![]
            ),
            ("change-notification", site.url("/topic"), hubs.to_vec()),
            (
                "change-notification",
                site.url("/other-topic"),
                vec!["http://hub.example.com/all"]
            ),
            ("archives", site.url("/future"), vec![]),
        ]
    );
    assert_eq!(set.oddities.count(Oddity::NoCapability), 1);
    assert!(set.oddities.count(Oddity::BadLoc) >= 1);
}

#[tokio::test]
async fn channels_of_a_source_description_are_not_sets() {
    let pages = [
        (
            WELL,
            description(&["framework-notification=/topic", "capabilitylist=/1"]),
        ),
        ("/1", list(&[])),
    ];
    let found = check(&pages, "/", &["/1"]).await;
    assert_eq!(found.channels.len(), 1);
    assert_eq!(
        found.channels[0].capability,
        Capability::FrameworkNotification
    );
}

#[tokio::test]
async fn link_headers_of_any_response_are_followed() {
    let site = TestSite::start(|request| match request.path() {
        "/page" => test_site::ok_with(&[("link", "</1>; rel=\"resourcesync\"")], "no XML"),
        "/list" => test_site::ok_with(
            &[("link", "</1>; rel=up")],
            document("urlset", "resourcelist", &[], &[]),
        ),
        "/film" => test_site::ok_with(
            &[("link", "</1>; rel=\"resourcesync\"")],
            vec![b'x'; 2 * LIMIT as usize + 1],
        ),
        "/1" => test_site::ok(list(&["changelist=/c"])),
        _ => test_site::status(404),
    })
    .await;
    // The last one is longer than a document may be.
    for entry in ["/page", "/list", "/film"] {
        let found = discover(&site, entry).await.unwrap();
        assert_eq!(found.sets[0].uri.path(), "/1", "{entry}");
    }
}

#[tokio::test]
async fn well_known_document_below_the_path_of_the_entry_point_is_tried() {
    let below = "/rs/source/s1/.well-known/resourcesync";
    let pages = [
        (below, description(&["capabilitylist=/1"])),
        ("/1", list(&["resourcelist=/r"])),
        ("/rs/source/s1/page.html", "<html>".into()),
    ];
    for entry in [
        "/rs/source/s1/",
        "/rs/source/s1",
        "/rs/source/s1/page.html",
        "/rs/source/s1/absent",
    ] {
        let found = check(&pages, entry, &["/1"]).await;
        assert_eq!(found.description.unwrap().path(), below, "{entry}");
    }
}

#[tokio::test]
async fn list_that_was_given_is_followed_although_its_up_leads_to_something_empty() {
    let index = |up: &str| document("sitemapindex", "resourcelist", &[up], &["=/part"]);
    for (up, page) in [
        ("up=/empty", list(&[])),
        ("up=/empty", description(&[])),
        ("up=/.well-known/resourcesync", "404".into()),
    ] {
        let pages = [
            ("/index", index(up)),
            ("/empty", page.clone()),
            (WELL, description(&[])),
            ("/part", document("urlset", "resourcelist", &[], &[])),
        ];
        let found = check(&pages, "/index", &["/index"]).await;
        assert!(found.is_implied(), "{up}");
    }
    // What is unavailable for now may be more.
    let pages = [("/index", index("up=/1")), ("/1", "503".into())];
    let (site, _) = site(&pages).await;
    let error = discover(&site, "/index").await.unwrap_err();
    assert_eq!(error.code(), "http-status");
}

#[tokio::test]
async fn dead_links_are_reported_where_others_lead_to_the_sets() {
    let links = ["up=/404", "index=/index"];
    let pages = [
        ("/list", document("urlset", "resourcelist", &links, &[])),
        (
            "/index",
            document("sitemapindex", "resourcelist", &["up=/1"], &["=/list"]),
        ),
        ("/1", list(&["resourcelist=/index"])),
    ];
    let found = check(&pages, "/list", &["/1"]).await;
    let dead: Vec<_> = found.dead_links.iter().map(|(uri, _)| uri.path()).collect();
    assert_eq!(dead, ["/404"]);
}

#[tokio::test]
async fn attempts_are_recorded_with_their_answers() {
    let pages = [
        ("/page", r#"<link rel="resourcesync" href="/cut">"#.into()),
        ("/cut", list(&["=/1"]).replace("</urlset>", "")),
        ("/robots.txt", "403".into()),
    ];
    let (site, _) = site(&pages).await;
    let client = test_site::client();
    let entry = Url::parse(&site.url("/page")).unwrap();
    let mut cache = DiscoveryCache::default();
    let error = client
        .rediscover(&entry, LIMIT, &mut cache, &HashSet::new())
        .await
        .unwrap_err();
    assert_eq!(error.code(), "cut-short");
    let tried: Vec<_> = cache
        .attempts()
        .iter()
        .map(|attempt| {
            (
                attempt.reason,
                attempt.uri.path(),
                attempt.parent,
                attempt.code,
            )
        })
        .collect();
    assert_eq!(
        tried,
        [
            ("entry", "/page", None, None),
            ("link", "/cut", Some(0), Some("cut-short")),
            (
                "well-known",
                "/page/.well-known/resourcesync",
                None,
                Some("not-found")
            ),
            ("well-known", WELL, None, Some("not-found")),
            ("well-known", WELL_KNOWN[1], None, Some("not-found")),
            ("robots", "/robots.txt", None, Some("http-status")),
        ]
    );
    assert!(cache.attempts()[5].answer.contains("403"));

    let error = discover(&site, "/absent").await.unwrap_err();
    assert_eq!(error.code(), "no-source-description");
    let message = error.to_string();
    for part in [
        "; tried: ",
        "/absent (",
        "status 404",
        "/robots.txt (",
        "status 403",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[tokio::test]
async fn describing_documents_and_channels_of_other_transports_are_found() {
    let description = description(&["=/1"])
        .replace(
            "<rs:md cap",
            r#"<rs:ln rel="describedby" href="/about"/><rs:md cap"#,
        )
        .replace(
            "</url>",
            r#"<rs:ln rel="describedBy" href="/about/1"/></url>"#,
        );
    let list = list(&[
        "resourcelist=/r",
        "change-notification=xmpp:pubsub.example.com",
        "change-notification=ws://example.com/changes",
        "framework-notification=wss://example.com/framework",
        "changelist=ws://example.com/list",
    ])
    .replacen(
        "<rs:md cap",
        r#"<rs:ln rel="describedby" href="/about/set"/><rs:md cap"#,
        1,
    );
    let found = check(&[(WELL, description), ("/1", list)], "/", &["/1"]).await;
    let paths =
        |uris: &[Url]| -> Vec<String> { uris.iter().map(|uri| uri.path().to_owned()).collect() };
    assert_eq!(paths(&found.described_by), ["/about"]);
    let set = &found.sets[0];
    assert_eq!(paths(&found.sets_described_by[&set.uri]), ["/about/1"]);
    assert_eq!(paths(&set.described_by), ["/about/set"]);
    let offered = set.capabilities.iter().map(|offer| offer.uri.scheme());
    assert_eq!(offered.collect::<Vec<_>>(), ["http", "ws", "wss"]);
    assert_eq!(set.unsupported_channels.len(), 1);
    assert_eq!(
        set.unsupported_channels[0].uri.as_str(),
        "xmpp:pubsub.example.com"
    );
    assert_eq!(set.oddities.count(Oddity::BadLoc), 1);
}

#[tokio::test]
async fn failed_discoveries_have_error_codes() {
    let cut = description(&["=/1"]).replace("</urlset>", "");
    let cases: [(&[(&str, String)], &str); 5] = [
        (&[], "no-source-description"),
        (&[("/", "<html>".into())], "no-source-description"),
        (&[(WELL, description(&[]))], "no-capability-list"),
        (&[(WELL, "500".into())], "http-status"),
        (&[("/robots.txt", "500".into())], "no-source-description"),
    ];
    for (pages, code) in cases {
        let (site, _) = site(pages).await;
        let error = discover(&site, "/").await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
    let (broken, _) = site(&[(WELL, cut)]).await;
    let error = discover(&broken, "/").await.unwrap_err();
    assert!(matches!(error, DiscoveryError::Read { .. }), "{error}");

    let unreachable = broken.url("/").replace("http:", "https:");
    let entry = Url::parse(&unreachable).unwrap();
    let error = test_site::client()
        .discover(&entry, LIMIT)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "tls");
}

#[tokio::test]
async fn a_capability_list_is_fetched_again_only_when_it_changed() {
    let site = TestSite::start(|request| {
        if request.path() != "/1" {
            test_site::ok(description(&["=/1"]))
        } else if request.header("if-none-match") == "\"a\"" {
            test_site::status(304)
        } else {
            test_site::ok_with(&[("etag", "\"a\"")], list(&["changelist=/c"]))
        }
    })
    .await;
    let client = test_site::client();
    let uri = Url::parse(&site.url("/1")).unwrap();
    let first = client
        .capability_list(&uri, None, LIMIT)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(first.capabilities.len(), 1);
    let again = client
        .capability_list(&uri, Some(&first.validators), LIMIT)
        .await;
    assert_eq!(again, Ok(None));
    let other = uri.join("/d").unwrap();
    let error = client.capability_list(&other, None, LIMIT).await;
    let error = error.unwrap_err();
    assert_eq!(error.code(), "not-a-capability-list");
    assert!(
        error.to_string().contains("a Source Description"),
        "{error}"
    );
}

#[tokio::test]
async fn a_link_to_an_unreachable_host_does_not_end_the_search() {
    let dead = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let link = format!("up=http://{dead}/1");
    let pages = [
        (WELL, description(&["=/1"])),
        ("/1", list(&["changelist=/changes"])),
        ("/changes", document("urlset", "changelist", &[&link], &[])),
    ];
    check(&pages, "/changes", &["/1"]).await;
}

#[tokio::test]
async fn source_descriptions_nested_too_deeply_are_reported() {
    let pages = [
        (WELL, description(&["description=/d1"])),
        ("/d1", description(&["description=/d2"])),
        ("/d2", description(&["description=/d3", "=/1"])),
        ("/d3", description(&["=/2"])),
        ("/1", list(&[])),
        ("/2", list(&[])),
    ];
    let found = check(&pages, "/", &["/1"]).await;
    let failed = &found.failed[..];
    assert!(
        matches!(failed, [(uri, DiscoveryError::NestedTooDeep)] if uri.path() == "/2"),
        "{failed:?}"
    );
}

#[tokio::test]
async fn source_description_index_yields_channels_and_oddities_of_all() {
    let odd = document(
        "urlset",
        "source-description",
        &["hub=http://hub.example.com/"],
        &["capabilitylist=/2", "FrameworkNotification=/topic2"],
    );
    let pages = [
        (
            WELL,
            document(
                "sitemapindex",
                "description",
                &[],
                &["description=/d1", "=/d2"],
            ),
        ),
        (
            "/d1",
            description(&["capabilitylist=/1", "framework-notification=/topic1"]),
        ),
        ("/d2", odd),
        ("/1", list(&[])),
        ("/2", list(&[])),
    ];
    let found = check(&pages, "/", &["/1", "/2"]).await;
    let channels: Vec<_> = found
        .channels
        .iter()
        .map(|channel| (channel.uri.path(), channel.hubs.len()))
        .collect();
    assert_eq!(channels, [("/topic1", 0), ("/topic2", 1)]);
    let spellings: Vec<_> = found
        .oddities
        .iter()
        .map(|(uri, oddities)| (uri.path(), oddities.count(Oddity::CapabilitySpelling)))
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(spellings, [("/d2", 2)]);
}
