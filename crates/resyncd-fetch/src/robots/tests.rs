use std::cell::RefCell;

use parking_lot::Mutex;
use reqwest::{Request, Response};
use resyncd_core::{Now, ResourceUri};

use super::*;
use crate::test_site::{self, TestSite};
use crate::{AllowedHosts, HttpNetwork};

thread_local! {
    static LATER: RefCell<Duration> = const { RefCell::new(Duration::ZERO) };
}

/// The time, later by what has passed.
fn now() -> Now {
    test_site::now().plus(LATER.with_borrow(|later| *later))
}

fn pass(hours: f64) {
    LATER.with_borrow_mut(|later| *later += Duration::from_secs_f64(hours * 3600.0));
}

fn client() -> Client {
    let client = Client::new(&test_site::http(), now).unwrap();
    client.with_robots("source")
}

/// A site and its robots.txt, or else the status that it is answered with, and what was requested.
struct Site {
    site: TestSite,
    robots: Arc<Mutex<Result<String, u16>>>,
    requested: Arc<Mutex<Vec<String>>>,
}

impl Site {
    async fn start(robots: &str) -> Self {
        let robots = Arc::new(Mutex::new(Ok(robots.to_owned())));
        let requested = Arc::new(Mutex::new(Vec::new()));
        let (of_site, seen) = (Arc::clone(&robots), Arc::clone(&requested));
        let site = TestSite::start(move |request| {
            seen.lock().push(request.path().to_owned());
            match (request.path(), &*of_site.lock()) {
                ("/robots.txt", Ok(text)) => test_site::ok(text.clone()),
                ("/robots.txt", Err(status)) => test_site::status(*status),
                ("/leads-to-private", _) => test_site::redirect(302, "/private/a"),
                _ => test_site::ok("content"),
            }
        })
        .await;
        Self {
            site,
            robots,
            requested,
        }
    }

    /// Whether a resource is allowed.
    async fn allows(&self, client: &Client, path: &str) -> bool {
        let uri = ResourceUri::parse(&self.site.url(path)).unwrap();
        let any = AllowedHosts::any();
        match client.get_content(&uri, &any, None, None).await {
            Ok(_) => true,
            Err(FetchError::Disallowed { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn take_requested(&self) -> Vec<String> {
        std::mem::take(&mut *self.requested.lock())
    }
}

#[test]
fn product_token_is_what_precedes_the_version() {
    for (user_agent, token) in [
        ("resyncd/0.1.0", "resyncd"),
        ("me_2-x (mailto:me@example.net)", "me_2-x"),
        ("me", "me"),
    ] {
        assert_eq!(product_token(user_agent), token);
    }
}

#[tokio::test]
async fn rules_are_those_of_the_product_token() {
    let all_but = "User-agent: resyncd\nDisallow: /private\nAllow: /private/public\n";
    for (robots, allowed, disallowed) in [
        (all_but, "/private/public/a", "/private/a"),
        ("User-agent: *\nDisallow: /*.pdf$", "/a.pdf?b", "/a.pdf"),
        ("user-agent: RESYNCD\rdisallow: /a\r", "/b", "/a"),
        (
            "User-agent: resyncd\nUser-agent: b\nDisallow: /%7Ea",
            "/b",
            "/~a",
        ),
    ] {
        let (site, client) = (Site::start(robots).await, client());
        assert!(site.allows(&client, allowed).await, "{robots}");
        assert!(!site.allows(&client, disallowed).await, "{robots}");
        let requested = site.take_requested();
        assert_eq!(requested[0], "/robots.txt");
        assert_eq!(requested.len(), 2, "{requested:?}");
    }
    let others = "User-agent: resyncd-other\nDisallow: /\n\nUser-agent: *\nDisallow:\n";
    let (site, client) = (Site::start(others).await, client());
    assert!(site.allows(&client, "/a").await);
}

#[tokio::test]
async fn redirect_to_a_disallowed_resource_is_not_followed() {
    let site = Site::start("User-agent: *\nDisallow: /private").await;
    assert!(!site.allows(&client(), "/leads-to-private").await);
    assert_eq!(site.take_requested(), ["/robots.txt", "/leads-to-private"]);
}

#[tokio::test]
async fn documents_are_read_whatever_is_disallowed() {
    let (site, client) = (Site::start("User-agent: *\nDisallow: /").await, client());
    let url = Url::parse(&site.site.url("/sitemap.xml")).unwrap();
    client.read_robots(&url).await;
    client.get_document(&url, 1000).await.unwrap();
    assert_eq!(site.take_requested(), ["/robots.txt", "/sitemap.xml"]);
}

#[tokio::test]
async fn disregarded_robots_txt_is_not_requested() {
    let (site, client) = (Site::start("User-agent: *\nDisallow: /").await, client());
    let clone = client.clone();
    client.disregard_robots();
    clone
        .read_robots(&Url::parse(&site.site.url("/")).unwrap())
        .await;
    assert!(site.allows(&clone, "/a").await);
    assert_eq!(site.take_requested(), ["/a"]);
}

#[tokio::test]
async fn robots_txt_is_requested_once_a_day_and_holds_while_it_is_unreachable() {
    let (site, client) = (Site::start("User-agent: *\nDisallow: /a").await, client());
    let is_requested = || site.take_requested().contains(&"/robots.txt".to_owned());
    let disallow = Ok("User-agent: *\nDisallow: /a".to_owned());
    for (hours, answer, allowed, requested) in [
        (0.0, disallow.clone(), false, true),
        (23.9, Err(404), false, false),
        (0.2, Err(503), false, true),
        (0.9, Err(404), false, false),
        (0.2, Err(429), false, true),
        (1.1, Err(404), true, true),
        (23.9, disallow.clone(), true, false),
        (0.2, disallow.clone(), false, true),
        (24.1, Err(403), true, true),
        (24.1, Err(500), true, true),
        (1.1, disallow, false, true),
    ] {
        pass(hours);
        *site.robots.lock() = answer.clone();
        assert_eq!(site.allows(&client, "/a").await, allowed, "{answer:?}");
        assert_eq!(is_requested(), requested, "{answer:?}");
    }
    // Nothing was read before.
    for (status, allowed) in [(503, true), (404, true)] {
        *site.robots.lock() = Err(status);
        assert_eq!(site.allows(&self::client(), "/a").await, allowed);
    }
}

#[tokio::test]
async fn resources_that_are_requested_at_once_share_one_robots_txt() {
    let (site, client) = (Site::start("User-agent: *\nDisallow: /b").await, client());
    let (a, b, c) = tokio::join!(
        site.allows(&client, "/a"),
        site.allows(&client, "/b"),
        site.allows(&client, "/c"),
    );
    assert_eq!((a, b, c), (true, false, true));
    let requested = site.take_requested();
    assert_eq!(requested.len(), 3, "{requested:?}");
}

#[tokio::test]
async fn host_with_a_crawl_delay_gets_one_resource_at_a_time() {
    for (stated, delay, at_once) in [
        ("2", Some(2.0), 1),
        ("0.5", Some(0.5), 1),
        ("3600", Some(60.0), 1),
        ("0", None, 4),
        ("-1", None, 4),
        ("soon", None, 4),
    ] {
        let robots = format!("User-agent: *\nCrawl-delay: {stated}\n");
        let (site, client) = (Site::start(&robots).await, client());
        let url = Url::parse(&site.site.url("/a")).unwrap();
        let before = client.at_once(&url);
        client.read_robots(&url).await;
        let robots = client.robots.as_ref().unwrap();
        let rules = robots.known(&url).unwrap();
        assert_eq!(
            rules
                .pace
                .as_ref()
                .map(|it| it.between_requests.as_secs_f64()),
            delay,
            "{stated}"
        );
        assert_eq!(client.at_once(&url), at_once.min(before), "{stated}");
    }
}

#[tokio::test(start_paused = true)]
async fn pause_between_two_requests_is_the_crawl_delay() {
    let paused = || Now {
        mono: tokio::time::Instant::now().into_std(),
        ..test_site::now()
    };
    let stated = Robots::parse(b"User-agent: *\nCrawl-delay: 2.5\n", "resyncd");
    let rules = RobotsRules::new(stated, paused);
    let began = tokio::time::Instant::now();
    for _ in 0..3 {
        rules.wait_for_request().await;
    }
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

/// Every host has a long robots.txt.
struct LongFiles;

impl HttpNetwork for LongFiles {
    fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
        let text = "Disallow: /long\n".repeat(100_000);
        let response = axum::http::Response::new(format!("User-agent: *\n{text}"));
        std::future::ready(Ok(response.into())).boxed()
    }
}

#[tokio::test]
async fn files_of_many_hosts_take_bounded_memory() {
    let client = client().with_network(Arc::new(LongFiles));
    let robots = client.robots.as_ref().unwrap();
    let url = |host: usize| Url::parse(&format!("https://host-{host}.example/")).unwrap();
    for host in 0..20 {
        pass(0.01);
        client.read_robots(&url(host)).await;
    }
    let bytes = |host: &Arc<RobotsFile>| host.known.lock().as_ref().unwrap().bytes;
    let sum: usize = robots.hosts.lock().values().map(bytes).sum();
    assert!((1..=MOST_BYTES).contains(&sum), "{sum}");
    assert!(robots.known(&url(19)).is_some() && robots.known(&url(0)).is_none());
}
