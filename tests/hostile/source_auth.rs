//! What `[source.auth]` states is sent to the Source's own origins only, and never shown.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, Version};
use resyncd::config::{Config, Environment};
use resyncd_core::ResourceUri;
use resyncd_fetch::{AllowedHosts, Client};
use tempfile::TempDir;

use crate::hostile::tls_site::TlsSite;
use crate::support::process::{Home, command, text};
use crate::support::site::{Site, entry, ok, redirect, status, urlset};
use crate::support::{CLIENT_CERTIFICATE, NAMING_AUTHORITY, eventually};

const TOKEN: &str = "t0ken-0f-the-s0urce";
const API_KEY: &str = "k3y-0f-the-s0urce";

/// The requested paths, each with whether it had both credentials, and whether it had any of them.
type Log = Arc<Mutex<Vec<(String, bool, bool)>>>;

fn note(log: &Log, path: &str, headers: &HeaderMap) -> bool {
    let is = |name: &str, value: String| headers.get(name).is_some_and(|header| *header == value);
    let has_both =
        is("authorization", format!("Bearer {TOKEN}")) && is("x-api-key", API_KEY.into());
    let has_any = headers.contains_key("authorization") || headers.contains_key("x-api-key");
    log.lock()
        .unwrap()
        .push((path.to_owned(), has_both, has_any));
    has_both
}

/// A site that notes the requests, and serves anything to anybody.
async fn open_site(log: &Log) -> Site {
    let log = Arc::clone(log);
    Site::start(Ipv4Addr::LOCALHOST, |_| {
        move |path: &str, headers: &_| {
            note(&log, path, headers);
            ok("served")
        }
    })
    .await
}

/// A Source that requires both credentials. Some of its resources are at `files`, and some at a foreign site.
async fn source(log: &Log, files: &Site, foreign: &Site) -> Site {
    let log = Arc::clone(log);
    let (files, foreign) = (files.url("/file"), foreign.url("/"));
    Site::start(Ipv4Addr::LOCALHOST, |address| {
        let own = format!("http://{address}");
        let caps = entry(
            &format!("{own}/caps.xml"),
            r#"<rs:md capability="capabilitylist"/>"#,
        );
        let description = urlset("description", "", &caps);
        let hub = format!(
            r#"<rs:md capability="change-notification"/><rs:ln rel="hub" href="{foreign}hub"/>"#
        );
        let caps = entry(
            &format!("{own}/list.xml"),
            r#"<rs:md capability="resourcelist"/>"#,
        ) + &entry(&format!("{own}/topic"), &hub);
        let caps = urlset("capabilitylist", "", &caps);
        let list = entry(&format!("{own}/own"), "")
            + &entry(&format!("{own}/redirected"), "")
            + &entry(files.as_str(), "")
            + &entry(&format!("{foreign}foreign"), "");
        let list = urlset("resourcelist", "", &list);
        move |path: &str, headers: &_| {
            if !note(&log, path, headers) {
                return status(401);
            }
            match path {
                "/.well-known/resourcesync" => ok(description.clone()),
                "/caps.xml" => ok(caps.clone()),
                "/list.xml" => ok(list.clone()),
                "/redirected" => redirect(302, &format!("{foreign}target")),
                "/own" => ok("own"),
                _ => status(403),
            }
        }
    })
    .await
}

/// The environment that the configuration needs: the key, and a credential as systemd loads it.
fn with_secrets<'c>(command: &'c mut Command, folder: &Path) -> &'c mut Command {
    std::fs::create_dir_all(folder.join("credentials")).unwrap();
    std::fs::write(folder.join("credentials/token"), format!("{TOKEN}\n")).unwrap();
    command
        .env("API_KEY", API_KEY)
        .env("CREDENTIALS_DIRECTORY", folder.join("credentials"))
}

#[tokio::test(flavor = "multi_thread")]
async fn source_auth_is_sent_to_the_origins_of_the_source_only_and_never_shown() {
    let (own_log, files_log, foreign_log) = (Log::default(), Log::default(), Log::default());
    let files = open_site(&files_log).await;
    let foreign = open_site(&foreign_log).await;
    let site = source(&own_log, &files, &foreign).await;
    let url = site.url("/").to_string();
    let auth = format!(
        "[source.auth]\nbearer_credential = \"token\"\nheader = \"X-Api-Key: ${{API_KEY}}\"\norigins = [\"{}\"]\n",
        files.url("/")
    );
    let home = Home::new(&url, &auth);
    let log_file = home.folder().join("log");
    let file = std::fs::File::create(&log_file).unwrap();
    let mut daemon = command(&home.config);
    with_secrets(&mut daemon, home.folder())
        .arg("run")
        .env("RUST_LOG", "trace")
        .stdout(Stdio::null());
    let mut daemon = daemon.stderr(file).spawn().unwrap();
    let was_asked = || {
        let log = foreign_log.lock().unwrap();
        log.iter().any(|(path, ..)| path == "/hub")
    };
    eventually(
        "all resources and the hub were requested",
        None,
        async || match home.set().await {
            Some(set) if set.resources == 4 && set.pending == 0 && was_asked() => Ok(()),
            set => Err(format!("{set:#?}")),
        },
    )
    .await;
    let mut shown = String::new();
    for path in ["/", "/status", "/changes", "/resources", "/metrics"] {
        shown += &home.operator.get(path).await.1;
    }
    // A command that asks the daemon needs none of the secrets.
    let output = home.run_command(&["failed"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let _ = daemon.kill();
    let _ = daemon.wait();
    for arguments in [
        &["check"][..],
        &["config", "--effective"],
        &["discover", &url],
    ] {
        let mut command = command(&home.config);
        let command = with_secrets(&mut command, home.folder()).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        shown += &text(&output.stdout);
        shown += &text(&output.stderr);
    }
    shown += &std::fs::read_to_string(&log_file).unwrap();
    for name in ["resyncd.db", "resyncd.db-wal"] {
        let stored = std::fs::read(home.folder().join("state").join(name)).unwrap_or_default();
        shown += &String::from_utf8_lossy(&stored);
    }
    assert!(shown.contains("/own") && shown.contains("TRACE"));
    for hidden in [TOKEN, API_KEY] {
        let at = shown.find(hidden);
        let around = at.map(|at| &shown[at.saturating_sub(200)..]);
        let around = around.map(|text| text.chars().take(400).collect::<String>());
        assert_eq!(around, None, "{hidden}");
    }
    for (log, is_own) in [(&own_log, true), (&files_log, true), (&foreign_log, false)] {
        let log = log.lock().unwrap();
        assert!(!log.is_empty());
        for (path, has_both, has_any) in log.iter() {
            assert_eq!((*has_both, *has_any), (is_own, is_own), "{path}");
        }
    }
    for path in ["/target", "/foreign", "/hub"] {
        let log = foreign_log.lock().unwrap();
        assert!(
            log.iter().any(|(requested, ..)| requested == path),
            "{path}"
        );
    }

    // Without its environment the configuration is not valid, and what is missing is named.
    let output = home.run_command(&["check"]);
    let faults = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{faults}");
    assert!(
        faults.contains("API_KEY is not set") && faults.contains("[no-secret]"),
        "{faults}"
    );
}

/// systemd gives the credentials of a unit to its daemon, and not to the `check` of its `ExecReload=`.
#[test]
fn check_passes_over_credentials_that_only_the_daemon_has() {
    let auth = "[source.auth]\nbearer_credential = \"token\"\n";
    let home = Home::new("http://127.0.0.1/", auth);
    let run = |argument: &str, folder: Option<&Path>| {
        let mut command = command(&home.config);
        command.env_remove("CREDENTIALS_DIRECTORY").arg(argument);
        command.envs(folder.map(|folder| ("CREDENTIALS_DIRECTORY", folder)));
        let output = command.output().unwrap();
        let shown = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), shown)
    };
    let (status, shown) = run("check", None);
    assert_eq!(status, Some(0), "{shown}");
    assert!(
        shown.contains("credential-not-checked") && shown.contains("\"token\""),
        "{shown}"
    );
    // The daemon needs them, and so does whoever has a folder of them.
    let (status, shown) = run("run", None);
    assert_eq!(status, Some(2), "{shown}");
    assert!(shown.contains("LoadCredential=token:FILE"), "{shown}");
    for argument in ["check", "run"] {
        let (status, shown) = run(argument, Some(home.folder()));
        assert_eq!(status, Some(2), "{shown}");
        assert!(shown.contains("[no-secret]"), "{shown}");
    }
    std::fs::write(home.folder().join("token"), TOKEN).unwrap();
    let (status, shown) = run("check", Some(home.folder()));
    assert_eq!(status, Some(0), "{shown}");
    assert!(!shown.contains("credential-not-checked"), "{shown}");
}

/// A configuration of one Source, with the named authority and what else `[http]`, the Source and its `[source.auth]` have.
pub(crate) fn configuration(folder: &TempDir, http: &str, url: &str, auth: &str) -> Config {
    std::fs::write(folder.path().join("ca.pem"), NAMING_AUTHORITY).unwrap();
    std::fs::write(folder.path().join("client.pem"), CLIENT_CERTIFICATE).unwrap();
    let text = format!(
        "[http]\nca_file = \"ca.pem\"\n{http}\n[[source]]\nname = \"a\"\nurl = \"{url}\"\nmirror = \"m\"\n[source.auth]\n{auth}\n"
    );
    let environment = Environment::of(&[("TOKEN", TOKEN)]);
    Config::parse_in(&text, &folder.path().join("config.toml"), &environment).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_of_the_client_is_shown_to_its_source_only() {
    let (own, other) = (TlsSite::start().await, TlsSite::start().await);
    let hub = TlsSite::start().await;
    let folder = tempfile::tempdir().unwrap();
    let auth = "certificate_file = \"client.pem\"\nbearer = \"${TOKEN}\"";
    // A hub with a password of its own.
    let url = format!(
        "{}\"\nhub = \"https://me:pass@{}/hub",
        own.url("/"),
        hub.address
    );
    let config = configuration(&folder, "allow_private_addresses = true", &url, auth);
    let shared = config.client().unwrap();
    let client = config.sources[0].client(&shared, 600);
    let shown = |site: &TlsSite| -> Vec<(String, bool, bool)> {
        let seen = site.seen().into_iter();
        seen.map(|seen| {
            let has_token = seen.headers.contains_key("authorization");
            (seen.path, seen.has_certificate, has_token)
        })
        .collect()
    };
    let get = async |client: &Client, url| {
        client.get_document(&url, 1 << 20).await.unwrap();
    };
    get(&client, own.url("/document")).await;
    assert_eq!(shown(&own), [("/document".to_owned(), true, true)]);
    get(&client, own.url(&format!("/to?{}", other.url("/target")))).await;
    assert_eq!(shown(&own), [("/to".to_owned(), true, true)]);
    assert_eq!(shown(&other), [("/target".to_owned(), false, false)]);
    get(&client, other.url("/elsewhere")).await;
    assert_eq!(shown(&other), [("/elsewhere".to_owned(), false, false)]);
    // Back at the Source each hop has them again.
    get(&client, other.url(&format!("/to?{}", own.url("/back")))).await;
    assert_eq!(shown(&other), [("/to".to_owned(), false, false)]);
    assert_eq!(shown(&own), [("/back".to_owned(), true, true)]);
    get(&client, hub.url("/hub")).await;
    let seen = hub.seen();
    assert!(!seen[0].has_certificate);
    let password = seen[0].headers["authorization"].to_str().unwrap();
    assert!(password.starts_with("Basic "), "{password}");
    // The connection on which the certificate was shown serves no other Source.
    get(&shared, own.url("/of-another")).await;
    assert_eq!(shown(&own), [("/of-another".to_owned(), false, false)]);
}

/// The handshake chooses HTTP/2. Later requests for resources expect it; they have connections of their own.
#[tokio::test(flavor = "multi_thread")]
async fn certificate_of_the_client_is_shown_over_http2() {
    const H2: &[&str] = &["h2", "http/1.1"];
    let (own, other) = (TlsSite::offering(H2).await, TlsSite::offering(H2).await);
    let folder = tempfile::tempdir().unwrap();
    let url = own.url("/").to_string();
    let auth = "certificate_file = \"client.pem\"\nbearer = \"${TOKEN}\"";
    let config = configuration(&folder, "allow_private_addresses = true", &url, auth);
    let shared = config.client().unwrap();
    let client = config.sources[0].client(&shared, 600);
    client.disregard_robots();
    let (limit, any) = (1 << 20, AllowedHosts::any());
    for site in [&own, &other] {
        let uri = ResourceUri::parse(site.url("/resource").as_str()).unwrap();
        for _ in 0..3 {
            let url = site.url("/document");
            client.get_document(&url, limit).await.unwrap();
            client.get_content(&uri, &any, None, None).await.unwrap();
        }
    }
    let to = own.url(&format!("/to?{}", other.url("/target")));
    client.get_document(&to, limit).await.unwrap();
    for (site, is_own) in [(&own, true), (&other, false)] {
        let seen = site.seen();
        assert_eq!(seen.len(), 7);
        for seen in seen {
            let has_token = seen.headers.contains_key("authorization");
            let found = (seen.version, seen.has_certificate, has_token);
            let expected = (Version::HTTP_2, is_own, is_own);
            assert_eq!(found, expected, "{}", seen.path);
        }
    }
    // The connection on which the certificate was shown serves no other Source.
    let elsewhere = own.url("/of-another");
    shared.get_document(&elsewhere, limit).await.unwrap();
    let seen = own.seen();
    assert_eq!(
        (seen[0].version, seen[0].has_certificate),
        (Version::HTTP_2, false)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn further_authority_is_trusted_where_it_is_configured() {
    let site = TlsSite::start().await;
    let folder = tempfile::tempdir().unwrap();
    let url = site.url("/").to_string();
    let mut config = configuration(&folder, "allow_private_addresses = true", &url, "");
    let client = config.client().unwrap();
    assert!(client.get_document(&site.url("/a"), 99).await.is_ok());
    config.http.authorities = Default::default();
    let client = config.client().unwrap();
    let quick = resyncd_fetch::Bounds {
        tries: 1,
        ..resyncd_fetch::Bounds::DOCUMENT
    };
    let client = client.with_document_retries(quick);
    let error = client.get_document(&site.url("/a"), 99).await;
    let error = error.err().unwrap();
    assert_eq!(error.code(), "tls");
    assert!(error.to_string().contains("[http] ca_file"), "{error}");
    assert_eq!(site.seen().len(), 1);
}
