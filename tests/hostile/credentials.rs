//! User names and passwords: to their own origin, and to nobody's eyes.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::http::HeaderMap;
use resyncd::config::{Config, Credentials};
use resyncd::fetch::Client;

use crate::process::{Home, command, free_address};
use crate::site::{Site, entry, ok, redirect, status, urlset};
use crate::support::eventually;

/// What the configuration has, as `me:s%40cret` and as what is sent of it.
const OURS: &str = "me:s%40cret";
const OURS_SENT: &str = "Basic bWU6c0BjcmV0";
/// What documents have.
const THEIRS: &str = "them:hunter2";
/// What must not be seen anywhere: the passwords, as they are and encoded.
const HIDDEN: &[&str] = &[
    "s%40cret",
    "s@cret",
    "hunter2",
    "bWU6c0Bjcm",
    "dGhlbTpodW50ZXIy",
];

/// Who was asked for what, and with which credentials.
type Log = Arc<Mutex<Vec<(String, Option<String>)>>>;

fn note(log: &Log, path: &str, headers: &HeaderMap) {
    assert!(!headers.contains_key("cookie") && !headers.contains_key("referer"));
    let sent = headers.get("authorization");
    let sent = sent.map(|sent| sent.to_str().unwrap().to_owned());
    log.lock().unwrap().push((path.to_owned(), sent));
}

/// Another server: it would like a password, and a cookie.
async fn elsewhere(log: &Log) -> Site {
    let log = Arc::clone(log);
    Site::start(Ipv4Addr::LOCALHOST, |_| {
        move |path: &str, headers: &_| {
            note(&log, path, headers);
            let mut answer = ok("elsewhere");
            answer
                .headers_mut()
                .insert("set-cookie", "a=b".parse().unwrap());
            answer
        }
    })
    .await
}

/// A Source behind a password. Some of its resources are elsewhere, or are redirected there.
async fn source(log: &Log, elsewhere: SocketAddr) -> Site {
    let log = Arc::clone(log);
    Site::start(Ipv4Addr::LOCALHOST, |address| {
        let own = format!("http://{address}");
        let theirs = format!("http://{THEIRS}@{elsewhere}");
        let caps = format!("http://{THEIRS}@{address}/caps.xml");
        let description = entry(&caps, r#"<rs:md capability="capabilitylist"/>"#);
        let description = urlset("description", "", &description);
        let hub = format!(
            r#"<rs:md capability="change-notification"/><rs:ln rel="hub" href="{theirs}/hub"/>"#
        );
        let caps = entry(
            &format!("{own}/list.xml"),
            r#"<rs:md capability="resourcelist"/>"#,
        ) + &entry(&format!("{own}/topic"), &hub);
        let caps = urlset("capabilitylist", "", &caps);
        let list = entry(&format!("{own}/own"), "")
            + &entry(&format!("{own}/redirected"), "")
            + &entry(&format!("{own}/failing"), "")
            + &entry(&format!("http://{THEIRS}@{address}/marked"), "")
            + &entry(&format!("{theirs}/theirs"), "");
        let list = urlset("resourcelist", "", &list);
        move |path: &str, headers: &_| {
            note(&log, path, headers);
            if headers
                .get("authorization")
                .is_none_or(|sent| sent != OURS_SENT)
            {
                return status(401);
            }
            match path {
                "/.well-known/resourcesync" => ok(description.clone()),
                "/caps.xml" => ok(caps.clone()),
                "/list.xml" => ok(list.clone()),
                "/redirected" => redirect(302, &format!("{theirs}/target")),
                "/own" | "/marked" => ok("own"),
                _ => status(403),
            }
        }
    })
    .await
}

fn address(site: &Site) -> SocketAddr {
    site.url("/").socket_addrs(|| None).unwrap()[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_go_to_their_own_origin_and_are_never_shown() {
    let (own_log, other_log) = (Log::default(), Log::default());
    let other = elsewhere(&other_log).await;
    let site = source(&own_log, address(&other)).await;
    let url = format!("http://{OURS}@{}/", address(&site));
    let home = Home::new(&url, "");
    let logged = home.folder().join("log");
    let file = std::fs::File::create(&logged).unwrap();
    let mut daemon = command(&home.config);
    daemon
        .arg("run")
        .env("RUST_LOG", "trace")
        .stdout(Stdio::null());
    let mut daemon = daemon.stderr(file).spawn().unwrap();
    let set = eventually("tried all", None, async || match home.set().await {
        Some(set)
            if set.resources == 4
                && set.failed == 1
                && !other_log
                    .lock()
                    .unwrap()
                    .iter()
                    .all(|(path, _)| path != "/hub") =>
        {
            Ok(set)
        }
        set => Err(format!("{set:#?}")),
    })
    .await;
    assert_eq!(set.error.unwrap().code, "http-status");
    let mut told = String::new();
    for path in ["/", "/status", "/changes", "/metrics"] {
        told += &home.operator.get(path).await.1;
    }
    let _ = daemon.kill();
    let _ = daemon.wait();
    for command in [
        &["check"][..],
        &["discover", &url],
        &["discover", "--json", &url],
    ] {
        let output = home.tell(command);
        told += &String::from_utf8_lossy(&output.stdout);
        told += &String::from_utf8_lossy(&output.stderr);
    }
    told += &std::fs::read_to_string(&logged).unwrap();
    assert!(told.contains("/own") && told.contains("TRACE"));
    for hidden in HIDDEN {
        let at = told
            .find(hidden)
            .map(|at| told[at.saturating_sub(200)..].chars().take(400));
        assert!(
            at.is_none(),
            "{hidden}: {}",
            at.unwrap().collect::<String>()
        );
    }
    // The Source got its own with every request, the other one got nothing.
    for (path, sent) in own_log.lock().unwrap().iter() {
        assert_eq!(sent.as_deref(), Some(OURS_SENT), "{path}");
    }
    let other_log = other_log.lock().unwrap();
    for (path, sent) in other_log.iter() {
        assert_eq!(*sent, None, "{path}");
    }
    for path in ["/target", "/theirs", "/hub"] {
        assert!(other_log.iter().any(|(asked, _)| asked == path), "{path}");
    }
}

#[test]
fn passwords_of_sets_and_hubs_are_for_their_own_origins() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let write = |url: &str| {
        let listen = free_address();
        let text = format!(
            "state_dir = \"state\"\n[callback]\npublic_url = \"http://{listen}/\"\n[[source]]\nname = \"a\"\nmirror = \"m\"\n\
             url = \"{url}\"\nsets = [\"http://me:3cret@c.example/caps\"]\nhub = \"https://me:2cret@b.example/hub\"\n"
        );
        std::fs::write(&file, text).unwrap();
        Config::load(&file)
    };
    let config = write("http://me:1cret@a.example/").unwrap();
    let source = &config.sources[0];
    assert_eq!(source.url.as_str(), "http://a.example/");
    assert_eq!(source.sets[0].as_str(), "http://c.example/caps");
    assert_eq!(
        source.hub.as_ref().unwrap().as_str(),
        "https://b.example/hub"
    );
    let shown = format!("{config:?}");
    assert!(!shown.contains("cret"), "{shown}");
    for (url, expected) in [
        ("http://a.example/x", "http://me:1cret@a.example/x"),
        ("https://b.example/", "https://me:2cret@b.example/"),
        ("http://c.example/", "http://me:3cret@c.example/"),
        ("https://a.example/", "https://a.example/"),
    ] {
        let signed = source.credentials.sign_in(&url.parse().unwrap());
        assert_eq!(signed.as_str(), expected);
    }
    for bad in [
        "http://me:1cret@a example/",
        "http://me:1c/ret@a.example/",
        "me:1cret@a.example",
    ] {
        let faults = write(bad).unwrap_err().to_string();
        assert!(
            faults.contains("bad-url") && !faults.contains("1c"),
            "{faults}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn password_comes_back_when_a_redirect_leads_home() {
    let log = Log::default();
    let own = Arc::clone(&log);
    let site = Site::start(Ipv4Addr::LOCALHOST, |_| {
        move |path: &str, headers: &_| {
            note(&own, path, headers);
            ok("home")
        }
    })
    .await;
    let home = site.url("/home").to_string();
    let away = Log::default();
    let theirs = Arc::clone(&away);
    let other = Site::start(Ipv4Addr::LOCALHOST, |_| {
        move |path: &str, headers: &_| {
            note(&theirs, path, headers);
            redirect(302, &home)
        }
    })
    .await;
    let mut credentials = Credentials::default();
    let mut url = site.url("/");
    url.set_username("me").unwrap();
    url.set_password(Some("s%40cret")).unwrap();
    let _ = credentials.extract(url);
    let http = resyncd::config::HttpConfig {
        allow_private_addresses: true,
        ..Default::default()
    };
    let client = Client::new(&http).unwrap().with_credentials(&credentials);
    let got = client.get_document(&other.url("/away"), None, 99).await;
    assert!(got.is_ok());
    assert_eq!(*away.lock().unwrap(), [("/away".to_owned(), None)]);
    let sent = Some(OURS_SENT.to_owned());
    assert_eq!(*log.lock().unwrap(), [("/home".to_owned(), sent)]);
}
