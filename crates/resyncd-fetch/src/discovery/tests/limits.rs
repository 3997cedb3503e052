//! What a discovery holds is limited, whatever the documents list.

use std::sync::atomic::{AtomicUsize, Ordering};

use resyncd_core::{MAX_HUBS, MAX_OFFERS};

use super::*;
use crate::capability_list::bytes_of;

const MIB: usize = 1 << 20;

/// What the URIs of the sets of a discovery take, in bytes.
fn held(found: &Discovery) -> usize {
    let offers = found.sets.iter().flat_map(|set| &set.capabilities);
    let uris = offers.flat_map(|offer| {
        let hubs = offer.hubs.iter().map(|hub| hub.url());
        hubs.chain([&offer.uri]).map(bytes_of)
    });
    uris.sum()
}

fn path_of(length: usize, name: &str) -> String {
    format!("/{}/{name}", "p".repeat(length))
}

fn entries(capability: &str, times: usize, links: &str) -> String {
    let entry =
        |n| format!("<url><loc>?{n}</loc><rs:md capability=\"{capability}\"/>{links}</url>");
    let all: String = (0..times).map(entry).collect();
    all
}

/// A document with these entries, and hubs in its head.
fn listing(capability: &str, head: &str, entries: &str) -> String {
    let empty = document("urlset", capability, &[], &[]);
    let (before, _) = empty.rsplit_once("</urlset>").unwrap();
    format!("{before}{head}{entries}</urlset>")
}

#[tokio::test]
async fn offers_of_a_set_are_limited_in_number_and_length() {
    for (length, most) in [(10, 64 << 10), (7000, 256 << 10)] {
        let lists: Vec<String> = (0..8).map(|n| path_of(length, &n.to_string())).collect();
        let named: Vec<String> = lists
            .iter()
            .map(|list| format!("capabilitylist={list}"))
            .collect();
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        let long = listing("capabilitylist", "", &entries("changelist", 2000, ""));
        let mut pages = vec![("/.well-known/resourcesync", description(&named))];
        pages.extend(lists.iter().map(|list| (list.as_str(), long.clone())));
        let (site, _) = site(&pages).await;
        let found = discover(&site, "/").await.unwrap();
        assert_eq!(found.sets.len(), lists.len());
        for set in &found.sets {
            assert!(set.capabilities.len() <= MAX_OFFERS);
            assert!(set.oddities.count(Oddity::TooManyOffers) >= 1000);
        }
        let held = held(&found);
        assert!(held <= lists.len() * most, "{held}");
    }
}

#[tokio::test]
async fn channel_has_ten_hubs() {
    let hubs: String = (0..60)
        .map(|n| format!("<rs:ln rel=\"hub\" href=\"http://h{n}.example/\"/>"))
        .collect();
    for (head, of_entry) in [(hubs.as_str(), ""), ("", hubs.as_str())] {
        let channels = entries("change-notification", 1, of_entry);
        let list = listing("capabilitylist", head, &channels);
        let (site, _) = site(&[("/list", list)]).await;
        let found = discover(&site, "/list").await.unwrap();
        let set = &found.sets[0];
        assert_eq!(set.capabilities[0].hubs.len(), MAX_HUBS);
        assert_eq!(set.capabilities[0].hubs[0].as_str(), "http://h0.example/");
        assert_eq!(set.oddities.count(Oddity::TooManyHubs), 1);
    }
}

#[tokio::test]
async fn discovery_ends_before_its_uris_fill_the_memory() {
    let nested: Vec<String> = (0..12).map(|n| path_of(7500, &n.to_string())).collect();
    let named: Vec<String> = nested.iter().map(|list| format!("={list}")).collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let many = listing("description", "", &entries("capabilitylist", 1000, ""));
    let mut pages = vec![("/.well-known/resourcesync", description(&named))];
    pages.extend(nested.iter().map(|list| (list.as_str(), many.clone())));
    let (site, asked) = site(&pages).await;
    let mut cache = DiscoveryCache::default();
    let url = Url::parse(&site.url("/")).unwrap();
    let found = test_site::client()
        .rediscover(&url, LIMIT, &mut cache, &HashSet::new())
        .await;
    assert_eq!(found.unwrap_err().code(), "discovery-too-large");
    assert!(
        asked.lock().unwrap().len() < 20,
        "what they list was requested"
    );
    let documents = cache.documents.values();
    let held: usize = documents.map(|(role, _)| role.held_bytes()).sum();
    assert!(held <= 64 * MIB, "{held}");
}

#[tokio::test]
async fn description_with_too_long_uris_is_cut_and_counted() {
    let path = path_of(7500, "description");
    let many = listing("description", "", &entries("description", 1300, ""));
    let (site, _) = site(&[(path.as_str(), many)]).await;
    let (client, url) = (test_site::client(), Url::parse(&site.url(&path)).unwrap());
    let known = examine(&client, &url, None, LIMIT);
    let DocumentRole::Description(found) = known.await.unwrap().0 else {
        panic!("another document");
    };
    assert_eq!(found.oddities.count(Oddity::TooManyOffers), 1);
    assert!((1000..1300).contains(&found.lists.len()));
}

#[tokio::test]
async fn discovery_takes_time_in_proportion_to_the_length() {
    let hub = |n| format!("<rs:ln rel=\"hub\" href=\"http://h{n}.example/\"/>");
    let hubs = |times: usize| -> String { (0..times).map(hub).collect() };
    let channel = |links: &str| entries("change-notification", 1, links);
    let shapes: [&dyn Fn(usize) -> String; 4] = [
        &|times| listing("capabilitylist", "", &channel(&hubs(times))),
        &|times| listing("capabilitylist", &hubs(times), &channel("")),
        &|times| {
            listing(
                "capabilitylist",
                &hubs(20),
                &entries("change-notification", times, ""),
            )
        },
        &|times| listing("description", "", &entries("x", times, &hubs(4))),
    ];
    for (n, shape) in shapes.iter().enumerate() {
        let (site, _) = site(&[("/short", shape(500)), ("/long", shape(4000))]).await;
        let client = test_site::client();
        let time_of = async |path: &str| {
            let url = Url::parse(&site.url(path)).unwrap();
            let begin = test_site::now().mono;
            examine(&client, &url, None, 8 * LIMIT).await.unwrap();
            test_site::now().mono - begin
        };
        let mut tries = 0;
        // A busy machine may disturb a measurement, but not each of them.
        loop {
            let (short, long) = (time_of("/short").await, time_of("/long").await);
            if long < 30 * short {
                break;
            }
            tries += 1;
            assert!(tries < 8, "shape {n}: {short:?}, then {long:?}");
        }
    }
}

#[tokio::test]
async fn long_file_that_is_no_document_is_given_up_at_its_beginning() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let site = TestSite::start(move |request| {
        if request.path() != "/film.pdf" {
            return test_site::status(404);
        }
        let count = count.clone();
        let chunks = (0..1024).map(move |_| {
            count.fetch_add(64 << 10, Ordering::SeqCst);
            Ok::<_, std::io::Error>(b"%PDF-1.7".repeat(8 << 10))
        });
        let body = axum::body::Body::from_stream(futures_util::stream::iter(chunks));
        test_site::ok(body)
    })
    .await;
    let entry = Url::parse(&site.url("/film.pdf")).unwrap();
    let found = test_site::client().discover(&entry, 1 << 30).await;
    assert_eq!(found.unwrap_err().code(), "no-source-description");
    // What is on its way is not counted by the client.
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < 32 << 20, "{sent}");
}
