//! A Source that names private addresses in every place and every spelling: resyncd never connects to them.
//!
//! The Source is at an address that the client treats as public. Every spelling leads to a listener of its own, a canary, which
//! counts connections. The counters must stay 0.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use resourcesync::{Algorithm, Digest};
use resyncd_core::HubUri;
use resyncd_fetch::{Client, HubAnswer};
use tokio::net::{TcpListener, TcpStream};
use url::Url;
use websub::{Mode, SubscriptionRequest};

use crate::support::site::{
    GuardedDaemon, PUBLIC, Site, entry, guarded_client, number, ok, redirect, status, urlset,
};
use crate::support::{files, soon};

/// Spellings of private addresses and of URIs that are mistaken for one; `PORT` is the port of the canary.
const SPELLINGS: &[&str] = &[
    // IPv4, as `inet_aton` parses it.
    "http://127.0.0.1:PORT/",
    "http://127.0.0.1.:PORT/",
    "http://127.1:PORT/",
    "http://127.0.1:PORT/",
    "http://2130706433:PORT/",
    "http://0x7f000001:PORT/",
    "http://0X7F000001:PORT/",
    "http://0x7f.1:PORT/",
    "http://0x7f.0x0.0x0.0x1:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://0177.1:PORT/",
    "http://017700000001:PORT/",
    "http://127.0.0.0x1:PORT/",
    "http://127.127.127.127:PORT/",
    "http://127.255.255.254:PORT/",
    "http://0:PORT/",
    "http://0x0:PORT/",
    "http://0.0.0.0:PORT/",
    "http://00000000000:PORT/",
    // Characters that are decoded or normalized.
    "http://%31%32%37.0.0.1:PORT/",
    "http://127%2e0%2E0%2e1:PORT/",
    "http://127%E3%80%820.0.1:PORT/",
    "http://127。0。0。1:PORT/",
    "http://127．0．0．1:PORT/",
    "http://127｡0｡0｡1:PORT/",
    "http://①②⑦.0.0.1:PORT/",
    "http://①②⑦.⓪.⓪.①:PORT/",
    "http://１２７.０.０.１:PORT/",
    "http://𝟏𝟐𝟕.𝟎.𝟎.𝟏:PORT/",
    "http://12\u{ad}7.0.0.1:PORT/",
    "http://127\u{200b}.0.0.1:PORT/",
    // IPv6, and IPv4 embedded in it.
    "http://[::1]:PORT/",
    "http://[0:0:0:0:0:0:0:1]:PORT/",
    "http://[0000:0000:0000:0000:0000:0000:0000:0001]:PORT/",
    "http://[::0.0.0.1]:PORT/",
    "http://[::]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::FFFF:7F00:0001]:PORT/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:PORT/",
    "http://[::ffff:0.0.0.0]:PORT/",
    "http://[::127.0.0.1]:PORT/",
    "http://[::ffff:0:127.0.0.1]:PORT/",
    "http://[64:ff9b::7f00:1]:PORT/",
    "http://[64:ff9b::127.0.0.1]:PORT/",
    "http://[64:ff9b:1::7f00:1]:PORT/",
    "http://[2002:7f00:1::]:PORT/",
    "http://[2002:7f00:1::1]:PORT/",
    "http://[2001:0:7f00:1::]:PORT/",
    "http://[2001::80ff:fffe]:PORT/",
    "http://[fe80::1]:PORT/",
    "http://[fec0::1]:PORT/",
    "http://[fd00::1]:PORT/",
    "http://[ff02::1]:PORT/",
    "http://[100::1]:PORT/",
    "http://[::1%25lo]:PORT/",
    "http://[::1%lo]:PORT/",
    "http://[fe80::1%25lo]:PORT/",
    // Names.
    "http://localhost:PORT/",
    "http://localhost.:PORT/",
    "http://LOCALHOST:PORT/",
    "http://a.localhost:PORT/",
    "http://loc%61lhost:PORT/",
    "http://ｌｏｃａｌｈｏｓｔ:PORT/",
    "http://ℓocalhost:PORT/",
    // Other parts of a URI that look like the host.
    "http://8.8.8.8@127.0.0.1:PORT/",
    "http://example.com:80@127.0.0.1:PORT/",
    "http://example.com%2F@127.0.0.1:PORT/",
    "http://me:secret@localhost:PORT/",
    "http://127.0.0.1:PORT#@8.8.8.8/",
    "http://127.0.0.1:PORT?@8.8.8.8/",
    "http://127.0.0.1:PORT\\@8.8.8.8/",
    // Slashes, white space, case, ports.
    "http:\\\\127.0.0.1:PORT\\",
    "http:/127.0.0.1:PORT/",
    "http:127.0.0.1:PORT/",
    "http:////127.0.0.1:PORT/",
    "//127.0.0.1:PORT/",
    "\\\\127.0.0.1:PORT\\",
    "HTTP://127.0.0.1:PORT/",
    "  http://127.0.0.1:PORT/  ",
    "ht\ttp://127.0.0.1:PORT/",
    "http://127.0.0\t.1:PORT/",
    "http://127.0.0.1:00PORT/",
    "https://127.0.0.1:PORT/",
    "https://[::1]:PORT/",
    // Other schemes.
    "ftp://127.0.0.1:PORT/",
    "ws://127.0.0.1:PORT/",
    "gopher://127.0.0.1:PORT/_GET",
    "jar:http://127.0.0.1:PORT!/",
    "file:///etc/passwd",
    "data:text/plain,PORT",
];

/// One listener for each spelling, on every address of this machine.
pub(crate) struct Canaries {
    pub(crate) spellings: Vec<String>,
    connections: Vec<Arc<AtomicUsize>>,
}

impl Canaries {
    pub(crate) async fn start() -> Self {
        assert!(SPELLINGS.len() >= 60);
        let (mut spellings, mut connections) = (Vec::new(), Vec::new());
        for spelling in SPELLINGS {
            let listener = match TcpListener::bind("[::]:0").await {
                Ok(both) => both,
                Err(_) => TcpListener::bind("0.0.0.0:0").await.unwrap(),
            };
            let port = listener.local_addr().unwrap().port();
            let count = Arc::new(AtomicUsize::new(0));
            spellings.push(spelling.replace("PORT", &port.to_string()));
            connections.push(Arc::clone(&count));
            tokio::spawn(async move {
                while listener.accept().await.is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
            if connections.len() == 1 {
                let at = SocketAddr::from(([127, 0, 0, 1], port));
                drop(TcpStream::connect(at).await.unwrap());
            }
        }
        let canaries = Self {
            spellings,
            connections,
        };
        // The first canary has been connected to, to test that it counts.
        while canaries.connections[0].load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        canaries.connections[0].store(0, Ordering::SeqCst);
        canaries
    }

    pub(crate) fn list(&self, entry: impl Fn(usize, &str) -> String) -> String {
        let spellings = self.spellings.iter().enumerate();
        spellings.map(|(n, spelling)| entry(n, spelling)).collect()
    }

    pub(crate) fn assert_silent(&self) {
        for (spelling, count) in self.spellings.iter().zip(&self.connections) {
            let count = count.load(Ordering::SeqCst);
            assert_eq!(count, 0, "{spelling:?} was connected to");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_at_private_addresses_are_not_requested() {
    let canaries = Canaries::start().await;
    let list = |base: &str| {
        let private = canaries.list(|_, spelling| entry(spelling, ""));
        private + &entry(&format!("{base}/r/0"), "")
    };
    let site = Site::of_list(PUBLIC, list, |_| ok("public")).await;
    let daemon = GuardedDaemon::follow(site.url("/")).await;
    let sets = daemon
        .until("all were tried", |sets| {
            sets.len() == 1 && sets[0].resources == 1 && sets[0].pending == 0
        })
        .await;
    canaries.assert_silent();
    assert!(sets[0].failed > 40, "{sets:#?}");
    let error = sets[0].error.as_ref().unwrap();
    assert_eq!(error.code, "forbidden-address");
    let found = files(&daemon.config.sources[0].mirror);
    assert_eq!(found.into_values().collect::<Vec<_>>(), [b"public"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_at_private_addresses_are_not_requested() {
    let canaries = Canaries::start().await;
    let digest = Digest::of(Algorithm::Sha256, b"public");
    let list = |base: &str| {
        canaries.list(|n, spelling| {
            let metadata = format!(
                r#"<rs:md hash="{digest}" length="6"/><rs:ln rel="duplicate" href="{}" pri="1"/>"#,
                spelling.replace('\t', "&#9;")
            );
            entry(&format!("{base}/r/{n}"), &metadata)
        })
    };
    let site = Site::of_list(PUBLIC, list, |_| ok("public")).await;
    let daemon = GuardedDaemon::follow(site.url("/")).await;
    daemon
        .until("all from the Source itself", |sets| {
            sets.len() == 1 && sets[0].resources == SPELLINGS.len() as u64 && sets[0].pending == 0
        })
        .await;
    canaries.assert_silent();
}

/// The last candidate, where the Source itself answers with errors.
#[tokio::test(flavor = "multi_thread")]
async fn originals_at_private_addresses_are_not_requested() {
    let canaries = Canaries::start().await;
    let digest = Digest::of(Algorithm::Sha256, b"public");
    let list = |base: &str| {
        canaries.list(|n, spelling| {
            let metadata = format!(
                r#"<rs:md hash="{digest}" length="6"/><rs:ln rel="via" href="{}"/>"#,
                spelling.replace('\t', "&#9;")
            );
            entry(&format!("{base}/r/{n}"), &metadata)
        })
    };
    let site = Site::of_list(PUBLIC, list, |_| status(403)).await;
    let daemon = GuardedDaemon::follow(site.url("/")).await;
    let sets = daemon
        .until("all have failed", |sets| {
            sets.len() == 1 && sets[0].failed == SPELLINGS.len() as u64
        })
        .await;
    canaries.assert_silent();
    assert_eq!(sets[0].resources, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_to_private_addresses_are_not_followed() {
    let canaries = Canaries::start().await;
    let targets = canaries.spellings.clone();
    let list = |base: &str| canaries.list(|n, _| entry(&format!("{base}/r/{n}"), ""));
    let site = Site::of_list(PUBLIC, list, move |n| {
        redirect([301, 302, 303, 307, 308][n % 5], &targets[n])
    })
    .await;
    let daemon = GuardedDaemon::follow(site.url("/")).await;
    let sets = daemon
        .until("nearly all have failed", |sets| {
            sets.len() == 1 && sets[0].failed + 3 > SPELLINGS.len() as u64
        })
        .await;
    canaries.assert_silent();
    assert_eq!(sets[0].resources, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn sets_hubs_and_indexes_at_private_addresses_are_not_requested() {
    let canaries = Canaries::start().await;
    let spellings = canaries.spellings.clone();
    let private =
        canaries.list(|_, spelling| entry(spelling, r#"<rs:md capability="capabilitylist"/>"#));
    let site = Site::start(PUBLIC, |address| {
        let base = format!("http://{address}");
        let own = |n| {
            let loc = format!("{base}/set/{n}/caps.xml");
            entry(&loc, r#"<rs:md capability="capabilitylist"/>"#)
        };
        let own: String = (0..SPELLINGS.len()).map(own).collect();
        let description = urlset("description", "", &(own + &private));
        move |path: &str, _: &_| {
            if path == "/.well-known/resourcesync" {
                return ok(description.clone());
            }
            if !path.starts_with("/set/") {
                return status(404);
            }
            let n = number(path);
            let spelling = &spellings[n];
            let link = |rel| {
                let href = spelling.replace('\t', "&#9;");
                format!(r#"<rs:ln rel="{rel}" href="{href}"/>"#)
            };
            let of_set = |name| format!("{base}/set/{n}/{name}");
            let links = link("index") + &link("up") + &link("describedby");
            match path.rsplit('/').next() {
                Some("caps.xml") => {
                    let metadata = |capability| format!(r#"<rs:md capability="{capability}"/>"#);
                    let channel = metadata("change-notification") + &link("hub");
                    let entries = entry(&of_set("list.xml"), &metadata("resourcelist"))
                        + &entry(&of_set("changes.xml"), &metadata("changelist"))
                        + &entry(&of_set("topic"), &channel);
                    ok(urlset("capabilitylist", &link("describedby"), &entries))
                }
                Some("list.xml") => ok(urlset("resourcelist", &links, "")),
                Some("changes.xml") => ok(urlset("changelist", &links, "")),
                Some("topic") => {
                    let mut answer = ok("");
                    let link = format!("<{spelling}>; rel=hub");
                    let link = axum::http::HeaderValue::from_bytes(link.as_bytes()).unwrap();
                    answer.headers_mut().insert("link", link);
                    answer
                }
                _ => status(404),
            }
        }
    })
    .await;
    let daemon = GuardedDaemon::follow(site.url("/")).await;
    let is_own = |list: &str| list.contains("/set/");
    let sets = daemon
        .until(
            "every hub rejected, every Change List read, private sets discovered",
            |sets| {
                let own = sets.iter().filter(|set| is_own(&set.capability_list));
                let all = own.filter(|set| {
                    let rejected = set.channels.iter().all(|channel| channel.error.is_some());
                    set.channels.len() == 1 && rejected && set.last_poll_at.is_some()
                });
                let private = sets.iter().filter(|set| !is_own(&set.capability_list));
                all.count() == SPELLINGS.len() && private.count() > 10
            },
        )
        .await;
    canaries.assert_silent();
    let rejected = sets.iter().flat_map(|set| &set.channels);
    let rejected = rejected.filter(|channel| {
        let code = channel.error.as_ref().map(|error| error.code.as_str());
        code == Some("forbidden-address")
    });
    assert!(rejected.count() > 40, "{sets:#?}");
}

/// A client that may connect to [`PUBLIC`] only.
fn client() -> Client {
    let http = resyncd_fetch::HttpSettings {
        timeout: std::time::Duration::from_secs(5),
        ..Default::default()
    };
    guarded_client(&http)
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_does_not_follow_links_to_private_addresses() {
    let canaries = Canaries::start().await;
    let spellings = canaries.spellings.clone();
    let site = Site::start(PUBLIC, |_| {
        move |path: &str, _: &_| {
            let spelling = |path| &spellings[number(path)];
            if path.contains("/.well-known/") {
                return status(404);
            }
            if path.starts_with("/up/") {
                let href = spelling(path).replace('\t', "&#9;");
                let link = |rel: &str| format!(r#"<rs:ln rel="{rel}" href="{href}"/>"#);
                let links =
                    link("up") + &link("index") + &link("describedby") + &link("resourcesync");
                return ok(urlset("changelist", &links, ""));
            }
            if path.starts_with("/page/") {
                let href = spelling(path);
                let page = format!("<html><head><link rel=resourcesync href='{href}'></head>");
                let mut answer = ok(page);
                let link = format!("<{href}>; rel=resourcesync");
                let link = axum::http::HeaderValue::from_bytes(link.as_bytes()).unwrap();
                answer.headers_mut().insert("link", link);
                return answer;
            }
            if path == "/maps/robots.txt" {
                let lines = spellings
                    .iter()
                    .map(|spelling| format!("Sitemap: {spelling}\n"));
                return ok(lines.collect::<String>());
            }
            status(404)
        }
    })
    .await;
    let client = client();
    for n in 0..SPELLINGS.len() {
        for kind in ["up", "page"] {
            let entry = site.url(&format!("/{kind}/{n}"));
            let found = soon("discovery", client.discover(&entry, 1 << 20)).await;
            // The Change List alone is a result; the page is no ResourceSync document, and its links fail.
            assert!(kind == "up" || found.is_err() || !found.unwrap().failed.is_empty());
        }
    }
    let maps = site.url("/maps/robots.txt");
    let found = soon("discovery", client.discover(&maps, 1 << 20)).await;
    assert!(found.is_err() || found.unwrap().failed.len() > 40);
    canaries.assert_silent();
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_requests_do_not_reach_private_addresses() {
    let canaries = Canaries::start().await;
    let targets = canaries.spellings.clone();
    let site = Site::start(PUBLIC, |_| {
        move |path: &str, _: &_| redirect(307, &targets[number(path)])
    })
    .await;
    let request = SubscriptionRequest {
        mode: Mode::Subscribe,
        callback: "http://127.0.0.1/hooks/token".into(),
        topic: site.url("/topic").into(),
        lease_seconds: None,
        secret: Some("secret".into()),
    };
    let client = client();
    for (n, spelling) in canaries.spellings.iter().enumerate() {
        let redirected = HubUri::try_from(site.url(&format!("/hub/{n}"))).ok();
        let direct = Url::parse(spelling.trim()).ok();
        let direct = direct.and_then(|url| HubUri::try_from(url).ok());
        for hub in [redirected, direct].into_iter().flatten() {
            let asked = soon("the hub", client.ask_hub(&hub, &request)).await;
            assert!(!matches!(asked, Ok(HubAnswer::Accepted { .. })), "{hub}");
        }
    }
    canaries.assert_silent();
}
