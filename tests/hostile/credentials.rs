//! User names and passwords are sent to their own origin only, and never shown.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::HeaderMap;
use resyncd::config::Config;
use resyncd_fetch::{Client, Credentials};
use tokio::net::TcpListener;
use websub::{Mode, SubscriptionRequest, Verification};

use crate::support::process::{Home, command};
use crate::support::site::{Site, entry, ok, redirect, status, urlset};
use crate::support::{client, eventually, free_address};

/// The credentials of the configuration, and the header that is sent for them.
const CONFIGURED: &str = "me:s%40cret";
const CONFIGURED_HEADER: &str = "Basic bWU6c0BjcmV0";
/// The credentials of URIs in documents.
const IN_DOCUMENTS: &str = "them:hunter2";
/// Texts that must not appear anywhere: the passwords, plain and encoded.
const HIDDEN: &[&str] = &[
    "s%40cret",
    "s@cret",
    "hunter2",
    "bWU6c0Bjcm",
    "dGhlbTpodW50ZXIy",
];

/// The requested paths, each with its `Authorization` header.
type Log = Arc<Mutex<Vec<(String, Option<String>)>>>;

fn record(log: &Log, path: &str, headers: &HeaderMap) {
    assert!(!headers.contains_key("cookie") && !headers.contains_key("referer"));
    let header = headers.get("authorization");
    let header = header.map(|header| header.to_str().unwrap().to_owned());
    log.lock().unwrap().push((path.to_owned(), header));
}

/// A server of another origin that sets a cookie.
async fn foreign_site(log: &Log) -> Site {
    let log = Arc::clone(log);
    Site::start(Ipv4Addr::LOCALHOST, |_| {
        move |path: &str, headers: &_| {
            record(&log, path, headers);
            let mut answer = ok("foreign");
            answer
                .headers_mut()
                .insert("set-cookie", "a=b".parse().unwrap());
            answer
        }
    })
    .await
}

/// A Source that requires a password. Some of its resources are on another server, or are redirected there.
async fn source(log: &Log, foreign_site: SocketAddr) -> Site {
    let log = Arc::clone(log);
    Site::start(Ipv4Addr::LOCALHOST, |address| {
        let own = format!("http://{address}");
        let foreign_base = format!("http://{IN_DOCUMENTS}@{foreign_site}");
        let caps = format!("http://{IN_DOCUMENTS}@{address}/caps.xml");
        let description = entry(&caps, r#"<rs:md capability="capabilitylist"/>"#);
        let description = urlset("description", "", &description);
        let hub = format!(
            r#"<rs:md capability="change-notification"/><rs:ln rel="hub" href="{foreign_base}/hub"/>"#
        );
        let caps = entry(
            &format!("{own}/list.xml"),
            r#"<rs:md capability="resourcelist"/>"#,
        ) + &entry(&format!("{own}/topic"), &hub);
        let caps = urlset("capabilitylist", "", &caps);
        let list = entry(&format!("{own}/own"), "")
            + &entry(&format!("{own}/redirected"), "")
            + &entry(&format!("{own}/failing"), "")
            + &entry(&format!("http://{IN_DOCUMENTS}@{address}/marked"), "")
            + &entry(&format!("{foreign_base}/foreign"), "");
        let list = urlset("resourcelist", "", &list);
        move |path: &str, headers: &_| {
            record(&log, path, headers);
            if headers
                .get("authorization")
                .is_none_or(|header| header != CONFIGURED_HEADER)
            {
                return status(401);
            }
            match path {
                "/.well-known/resourcesync" => ok(description.clone()),
                "/caps.xml" => ok(caps.clone()),
                "/list.xml" => ok(list.clone()),
                "/redirected" => redirect(302, &format!("{foreign_base}/target")),
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
async fn passwords_are_sent_to_their_own_origin_only_and_never_shown() {
    let (source_log, foreign_log) = (Log::default(), Log::default());
    let foreign_server = foreign_site(&foreign_log).await;
    let site = source(&source_log, address(&foreign_server)).await;
    let url = format!("http://{CONFIGURED}@{}/", address(&site));
    let home = Home::new(&url, "");
    let log_file = home.folder().join("log");
    let file = std::fs::File::create(&log_file).unwrap();
    let mut daemon = command(&home.config);
    daemon
        .arg("run")
        .env("RUST_LOG", "trace")
        .stdout(Stdio::null());
    let mut daemon = daemon.stderr(file).spawn().unwrap();
    let set = eventually("every resource was tried", None, async || {
        match home.set().await {
            Some(set)
                if set.resources == 4
                    && set.failed == 1
                    && !foreign_log
                        .lock()
                        .unwrap()
                        .iter()
                        .all(|(path, _)| path != "/hub") =>
            {
                Ok(set)
            }
            set => Err(format!("{set:#?}")),
        }
    })
    .await;
    assert_eq!(set.error.unwrap().code, "http-status");
    let mut shown = String::new();
    for path in ["/", "/status", "/changes", "/resources", "/metrics"] {
        shown += &home.operator.get(path).await.1;
    }
    let _ = daemon.kill();
    let _ = daemon.wait();
    for command in [
        &["check"][..],
        &["discover", &url],
        &["discover", "--json", &url],
    ] {
        let output = home.run_command(command);
        shown += &String::from_utf8_lossy(&output.stdout);
        shown += &String::from_utf8_lossy(&output.stderr);
    }
    shown += &std::fs::read_to_string(&log_file).unwrap();
    assert!(shown.contains("/own") && shown.contains("TRACE"));
    for hidden in HIDDEN {
        let at = shown
            .find(hidden)
            .map(|at| shown[at.saturating_sub(200)..].chars().take(400));
        assert!(
            at.is_none(),
            "{hidden}: {}",
            at.unwrap().collect::<String>()
        );
    }
    // The Source received its credentials with every request, the other server received none.
    for (path, header) in source_log.lock().unwrap().iter() {
        assert_eq!(header.as_deref(), Some(CONFIGURED_HEADER), "{path}");
    }
    let foreign_log = foreign_log.lock().unwrap();
    for (path, header) in foreign_log.iter() {
        assert_eq!(*header, None, "{path}");
    }
    for path in ["/target", "/foreign", "/hub"] {
        assert!(
            foreign_log.iter().any(|(requested, _)| requested == path),
            "{path}"
        );
    }
}

#[test]
fn passwords_of_sets_and_hubs_are_bound_to_their_origins() {
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
        "http://me:hunter1@a example/",
        "http://me:hunter/1@a.example/",
        "me:hunter1@a.example",
    ] {
        let faults = write(bad).unwrap_err().to_string();
        assert!(
            faults.contains("bad-url") && !faults.contains("hunter"),
            "{faults}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn password_is_sent_again_when_a_redirect_returns_to_its_origin() {
    let log = Log::default();
    let own = Arc::clone(&log);
    let site = Site::start(Ipv4Addr::LOCALHOST, |_| {
        move |path: &str, headers: &_| {
            record(&own, path, headers);
            ok("home")
        }
    })
    .await;
    let home = site.url("/home").to_string();
    let foreign_log = Log::default();
    let foreign = Arc::clone(&foreign_log);
    let foreign_server = Site::start(Ipv4Addr::LOCALHOST, |_| {
        move |path: &str, headers: &_| {
            record(&foreign, path, headers);
            redirect(302, &home)
        }
    })
    .await;
    let mut credentials = Credentials::default();
    let mut url = site.url("/");
    url.set_username("me").unwrap();
    url.set_password(Some("s%40cret")).unwrap();
    let _ = credentials.extract(url);
    let http = resyncd_fetch::HttpSettings {
        allow_private_addresses: true,
        ..Default::default()
    };
    let client = Client::new(&http, resyncd::clock::now)
        .unwrap()
        .with_credentials(&credentials);
    let got = client.get_document(&foreign_server.url("/away"), 99).await;
    assert!(got.is_ok());
    assert_eq!(*foreign_log.lock().unwrap(), [("/away".to_owned(), None)]);
    let header = Some(CONFIGURED_HEADER.to_owned());
    assert_eq!(*log.lock().unwrap(), [("/home".to_owned(), header)]);
}

/// Whether any part of a long text is shown.
fn shows_part(shown: &str, secret: &str) -> bool {
    let parts = (0..=secret.len() - 8).map(|at| &secret[at..at + 8]);
    parts.into_iter().any(|part| shown.contains(part))
}

/// A Source that is its own hub. The hub refuses every request with all that was in it, and from the second on also denies the
/// subscription with the same. The Resource List is a page with the header of the request as its title.
async fn echoing_source(secrets: &Arc<Mutex<Vec<String>>>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let own = format!("http://{address}");
    let caps = entry(
        &format!("{own}/caps.xml"),
        r#"<rs:md capability="capabilitylist"/>"#,
    );
    let description = urlset("description", "", &caps);
    let hub =
        format!(r#"<rs:md capability="change-notification"/><rs:ln rel="hub" href="{own}/hub"/>"#);
    let list = entry(
        &format!("{own}/list.xml"),
        r#"<rs:md capability="resourcelist"/>"#,
    );
    let caps = urlset(
        "capabilitylist",
        "",
        &(list + &entry(&format!("{own}/topic"), &hub)),
    );
    let secrets = Arc::clone(secrets);
    let has_refused = Arc::new(AtomicBool::new(false));
    let app = Router::new().fallback(move |request: Request| {
        let (description, caps, secrets) =
            (description.clone(), caps.clone(), Arc::clone(&secrets));
        let has_refused = Arc::clone(&has_refused);
        async move {
            let header = request.headers()["authorization"]
                .to_str()
                .unwrap()
                .to_owned();
            match request.uri().path() {
                "/.well-known/resourcesync" => ok(description),
                "/caps.xml" => ok(caps),
                "/list.xml" => ok(format!(
                    "<html><head><title>you sent {header}</title></head></html>"
                )),
                "/hub" => {
                    let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
                    let body = String::from_utf8(body.to_vec()).unwrap();
                    let form = SubscriptionRequest::parse_form(&body).unwrap();
                    let token = form.callback.rsplit('/').next().unwrap().to_owned();
                    let secret = form.secret.clone().unwrap();
                    secrets.lock().unwrap().extend([token, secret.clone()]);
                    let denial = Verification {
                        mode: Mode::Denied,
                        topic: form.topic,
                        challenge: None,
                        lease_seconds: None,
                        reason: Some(format!("denied: {header} {body} \"{}\"", form.callback)),
                    };
                    let url = format!("{}?{}", form.callback, denial.to_query());
                    // Not at the first request: a denial that comes before the answer would make that unimportant.
                    if has_refused.swap(true, Ordering::SeqCst) {
                        tokio::spawn(client().get(url).send());
                    }
                    let mut answer = ok(format!(
                        "{} {secret} {header} {body}",
                        "refused ".repeat(20)
                    ));
                    *answer.status_mut() = 403.try_into().unwrap();
                    answer
                }
                _ => status(404),
            }
        }
    });
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn echoed_secrets_are_never_shown_or_stored() {
    let secrets = Arc::new(Mutex::new(Vec::new()));
    let address = echoing_source(&secrets).await;
    let home = Home::new(&format!("http://{CONFIGURED}@{address}/"), "");
    let log_file = home.folder().join("log");
    let file = std::fs::File::create(&log_file).unwrap();
    let mut daemon = command(&home.config);
    daemon
        .arg("run")
        .env("RUST_LOG", "resyncd=trace")
        .stdout(Stdio::null());
    let mut daemon = daemon.stderr(file).spawn().unwrap();
    let log = || std::fs::read_to_string(&log_file).unwrap();
    home.until_status("the daemon runs", |_| true).await;
    eventually("refusal, denial and page are reported", None, async || {
        let log = log();
        let has = |text: &str| log.contains(text);
        let shown = home.operator.get("/status").await.1;
        let all = has("refused refused") && has("denied: ") && shown.contains("you sent");
        all.then_some(()).ok_or(log + &shown)
    })
    .await;
    let mut shown = String::new();
    for path in ["/", "/status", "/metrics"] {
        shown += &home.operator.get(path).await.1;
    }
    let _ = daemon.kill();
    let _ = daemon.wait();
    let output = home.run_command(&["discover"]);
    shown += &String::from_utf8_lossy(&output.stdout);
    shown += &log();
    assert!(shown.contains("[redacted]"), "{shown}");
    for secret in secrets.lock().unwrap().iter() {
        assert!(!shows_part(&shown, secret), "{secret}: {shown}");
    }
    let mut stored = Vec::new();
    for name in ["resyncd.db", "resyncd.db-wal"] {
        stored.extend(std::fs::read(home.folder().join("state").join(name)).unwrap_or_default());
    }
    let stored = String::from_utf8_lossy(&stored);
    for hidden in HIDDEN {
        assert!(!shown.contains(hidden), "{hidden}: {shown}");
        assert!(!stored.contains(hidden), "{hidden} is in the database");
    }
}

/// A token in place of the user name is as secret as a password.
#[tokio::test(flavor = "multi_thread")]
async fn token_as_a_user_name_is_not_shown() {
    const TOKEN: &str = "t0ken-0f-m3";
    // `TOKEN:` in base64.
    const ENCODED: &str = "dDBrZW4tMGYtbTM6";
    let site = Site::start(Ipv4Addr::LOCALHOST, |address| {
        let own = format!("http://{address}");
        let caps = r#"<rs:md capability="capabilitylist"/>"#;
        let caps = entry(&format!("{own}/caps.xml"), caps);
        let description = urlset("description", "", &caps);
        let list = r#"<rs:md capability="resourcelist"/>"#;
        let list = entry(&format!("{own}/list.xml"), list);
        let caps = urlset("capabilitylist", "", &list);
        move |path: &str, headers: &HeaderMap| {
            let header = headers["authorization"].to_str().unwrap();
            assert_eq!(header, format!("Basic {ENCODED}"));
            match path {
                "/.well-known/resourcesync" => ok(description.clone()),
                "/caps.xml" => ok(caps.clone()),
                // As a server does that says who may not read it.
                _ => ok(format!(
                    "<html><head><title>{TOKEN} has sent {header}</title></head></html>"
                )),
            }
        }
    })
    .await;
    let url = format!("http://{TOKEN}@{}/", address(&site));
    let home = Home::new(&url, "");
    for (command, is_echoed) in [
        (&["check"][..], false),
        (&["config", "--effective"], false),
        (&["discover", &url], false),
        (&["discover", "--json", &url], false),
        (&["sync"], true),
    ] {
        let output = home.run_command(command);
        let shown = [output.stdout, output.stderr].concat();
        let shown = String::from_utf8(shown).unwrap();
        for hidden in [TOKEN, ENCODED] {
            assert!(!shown.contains(hidden), "{command:?}: {shown}");
        }
        assert!(!is_echoed || shown.contains("has sent"), "{shown}");
    }
}
