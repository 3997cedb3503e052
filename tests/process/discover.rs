//! `discover`: what a Source offers.

use std::fmt::Write as _;
use std::process::Output;

use resyncd::demo::{ChannelHub, Fault, SampleOptions, SampleSource};
use serde_json::Value;

use crate::process::{Home, program, text};
use crate::support::{SET, resources};

const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;

/// Runs `discover` to its end, where loopback may be fetched.
async fn discover(arguments: &[&str]) -> Output {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let running = tokio::task::spawn_blocking(move || {
        let home = Home::new("http://127.0.0.1/", "");
        let mut all = vec!["discover"];
        all.extend(arguments.iter().map(String::as_str));
        home.tell(&all)
    });
    running.await.unwrap()
}

/// What `discover --json` tells of an entry point where something is found.
async fn json(url: &str) -> Value {
    let told = discover(&[url, "--json"]).await;
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    serde_json::from_slice(&told.stdout).unwrap()
}

fn document(capability: &str, entries: &str) -> String {
    format!(r#"<urlset {NAMESPACES}><rs:md capability="{capability}"/>{entries}</urlset>"#)
}

fn put(source: &SampleSource, path: &str, body: impl Into<String>) {
    source.put_document(path, "application/xml", body.into());
}

fn entry(path: &str, capability: &str) -> String {
    format!(r#"<url><loc>{path}</loc><rs:md capability="{capability}"/></url>"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn sets_are_told_with_their_documents_channels_and_hubs() {
    let source = SampleSource::start(SampleOptions {
        sets: vec![SET.into(), "set2".into()],
        entries_per_list: 4,
        ..resources(10)
    })
    .await
    .unwrap();
    source.update(SET, "r0000.txt", "new");
    source.delete(SET, "r0001.txt");
    let told = json(&source.url()).await;
    assert_eq!(
        told["description"],
        format!("{}.well-known/resourcesync", source.url())
    );
    assert_eq!(
        (&told["error"], &told["implied"]),
        (&Value::Null, &false.into())
    );
    let sets = told["sets"].as_array().unwrap();
    assert_eq!(sets.len(), 2);
    assert_eq!(
        sets[0]["capability_list"],
        source.capability_list(SET).as_str()
    );
    let documents = sets[0]["capabilities"].as_array().unwrap();
    let [list, changes] = &documents[..] else {
        panic!("{documents:#?}")
    };
    assert_eq!(list["capability"], "resourcelist");
    assert_eq!(
        list["uri"],
        source.document_uri(SET, "resourcelist.xml").as_str()
    );
    assert_eq!(
        (&list["index"], &list["entries"]),
        (&true.into(), &3.into())
    );
    assert!(list["at"].is_string(), "{list:#}");
    assert_eq!(changes["capability"], "changelist");
    assert_eq!(
        (&changes["index"], &changes["entries"]),
        (&false.into(), &2.into())
    );
    assert_eq!(
        (&changes["updated"], &changes["deleted"]),
        (&1.into(), &1.into())
    );
    assert!(changes["from"].is_string(), "{changes:#}");
    let channels = sets[0]["channels"].as_array().unwrap();
    let kinds: Vec<_> = channels.iter().map(|channel| &channel["kind"]).collect();
    assert_eq!(kinds, ["change-notification", "framework-notification"]);
    let hub = source.hub().unwrap().uri().to_string();
    assert_eq!(channels[0]["hubs"], serde_json::json!([hub]));

    let told = discover(&[&source.url()]).await;
    assert_eq!(told.status.code(), Some(0));
    let tree = text(&told.stdout);
    for part in [
        "\n  set http://",
        "\n    resourcelist index http://",
        "3 lists",
        "2 changes (1 updated, 1 deleted)",
        "\n    change-notification http://",
        &format!("\n      hub {hub}"),
    ] {
        assert!(tree.contains(part), "{part}: {tree}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_entry_point_leads_to_the_set() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let page = format!(
        r#"<link rel="resourcesync" href="{}">"#,
        source.capability_list(SET)
    );
    put(&source, "/page", page);
    put(&source, "/robots.txt", "Sitemap: /set1/resourcelist.xml");
    for path in [
        "",
        "page",
        "robots.txt",
        ".well-known/resourcesync",
        "set1/capabilitylist.xml",
        "set1/resourcelist.xml",
        "set1/changelist.xml",
    ] {
        let told = json(&format!("{}{path}", source.url())).await;
        assert_eq!(
            told["sets"][0]["capability_list"],
            source.capability_list(SET).as_str(),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_in_its_place_and_ends_nothing() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let mut entries = String::new();
    for (path, capability) in [
        ("/dump.xml", "resourcedump"),
        ("/absent.xml", "changelist"),
        ("/list.xml", "changelist"),
        ("/oai", "archives"),
        ("/topic", "change-notification"),
    ] {
        entries += &entry(path, capability);
    }
    put(
        &source,
        "/set1/capabilitylist.xml",
        document("capabilitylist", &entries),
    );
    let packages = r#"<url><loc>/1.zip</loc><rs:md length="1000"/></url><url><loc>/2.zip</loc><rs:md length="24"/></url><url/>"#;
    put(&source, "/dump.xml", document("resourcedump", packages));
    put(&source, "/list.xml", document("resourcelist", ""));
    let sets = entry("/set1/capabilitylist.xml", "capabilitylist")
        + &entry("/gone.xml", "Capability-List");
    put(
        &source,
        "/.well-known/resourcesync",
        document("description", &sets),
    );
    let told = json(&source.url()).await;
    let documents = told["sets"][0]["capabilities"].as_array().unwrap();
    let codes: Vec<_> = documents
        .iter()
        .map(|one| one["error"]["code"].as_str())
        .collect();
    assert_eq!(
        codes,
        [None, Some("not-found"), Some("wrong-capability"), None]
    );
    assert_eq!(documents[0]["entries"], 2);
    assert_eq!(documents[0]["bytes"], 1024);
    assert_eq!(documents[0]["oddities"]["bad-loc"], 1);
    assert_eq!(documents[3]["looked_into"], false);
    assert_eq!(told["failed"][0]["error"]["code"], "not-found");
    assert_eq!(told["oddities"][0]["oddities"]["capability-spelling"], 1);
    assert_eq!(source.hits("/1.zip") + source.hits("/oai"), 0);

    let tree = text(&discover(&[&source.url()]).await.stdout);
    for part in [
        "2 packages, 1024 bytes",
        "[not-found]",
        "[wrong-capability]",
        "oddities: bad-loc 1",
        "capability-spelling 1",
        "no hub is advertised",
        "not read",
    ] {
        assert!(tree.contains(part), "{part}: {tree}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn source_of_very_many_documents_is_looked_into_for_a_part_only() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let mut sets = String::new();
    for number in 0..60 {
        let list = entry(&format!("/{number}/r"), "resourcelist")
            + &entry(&format!("/{number}/c"), "changelist");
        put(
            &source,
            &format!("/{number}"),
            document("capabilitylist", &list),
        );
        put(
            &source,
            &format!("/{number}/r"),
            document("resourcelist", ""),
        );
        put(&source, &format!("/{number}/c"), document("changelist", ""));
        write!(sets, "<url><loc>/{number}</loc></url>").unwrap();
    }
    put(
        &source,
        "/.well-known/resourcesync",
        document("description", &sets),
    );
    let told = json(&source.url()).await;
    assert_eq!(told["sets"].as_array().unwrap().len(), 60);
    assert_eq!(told["left_out"], 20);
    assert_eq!(told["sets"][49]["capabilities"][1]["looked_into"], true);
    assert_eq!(told["sets"][50]["capabilities"][0]["looked_into"], false);
    assert_eq!((source.hits("/49/c"), source.hits("/50/r")), (1, 0));
    let tree = text(&discover(&[&source.url()]).await.stdout);
    assert!(tree.contains("20 documents were not read"), "{tree}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scheme_may_be_left_out_and_a_sitemap_is_a_set() {
    let source = SampleSource::start(SampleOptions {
        hub: ChannelHub::None,
        ..resources(1)
    })
    .await
    .unwrap();
    for path in ["/", "/.well-known/resourcesync"] {
        source.fail(path, Fault::Status(404), usize::MAX);
    }
    put(
        &source,
        "/sitemap.xml",
        format!(
            "<urlset {NAMESPACES}><url><loc>/a</loc><lastmod>2026-01-01</lastmod></url></urlset>"
        ),
    );
    let url = source.url();
    let told = json(url.trim_start_matches("http://").trim_end_matches('/')).await;
    assert_eq!(told["url"], url);
    assert_eq!(told["implied"], true);
    assert_eq!(told["sets"][0]["implied"], true);
    assert_eq!(
        told["sets"][0]["capability_list"],
        format!("{url}sitemap.xml")
    );
    let list = &told["sets"][0]["capabilities"][0];
    assert_eq!(list["entries"], 1);
    assert_eq!(list["latest"], "2026-01-01T00:00:00Z");
    let tree = text(&discover(&[&url]).await.stdout);
    assert!(tree.contains("no ResourceSync"), "{tree}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_found_is_told_with_its_reason() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    for path in ["/", "/.well-known/resourcesync"] {
        source.fail(path, Fault::Status(404), usize::MAX);
    }
    let told = discover(&[&source.url()]).await;
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(
        text(&told.stderr).contains("[no-source-description]"),
        "{told:?}"
    );
    assert!(told.stdout.is_empty(), "{told:?}");
    let told = discover(&[&source.url(), "--json"]).await;
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    let json: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(json["error"]["code"], "no-source-description");
    assert_eq!(json["url"], source.url());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_configuration_is_needed_but_the_one_that_is_named_must_be_there() {
    let run = |config: Option<&str>, url: &str| {
        let mut command = program();
        command.args(["discover", url]);
        command.env_remove("RESYNCD_CONFIG");
        if let Some(config) = config {
            command.args(["--config", config]);
        }
        command.output().unwrap()
    };
    // By default nothing on this machine may be fetched.
    let told = run(None, "http://127.0.0.1:1/");
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(
        text(&told.stderr).contains("[forbidden-address]"),
        "{told:?}"
    );
    let told = run(Some("/nonexistent/config.toml"), "http://127.0.0.1:1/");
    assert_eq!(told.status.code(), Some(2), "{told:?}");
    // Whoever looks around need not follow anybody yet.
    let source = SampleSource::start(resources(1)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    for (sources, status) in [("", 0), ("source = 1\n", 2), ("nothing = 1\n", 2)] {
        let settings = format!("{sources}[http]\nallow_private_addresses = true\n");
        std::fs::write(&config, settings).unwrap();
        let told = run(config.to_str(), &source.url());
        assert_eq!(told.status.code(), Some(status), "{sources}: {told:?}");
    }
    for url in ["ftp://example.org/", "/etc/passwd", "", "two words"] {
        let told = run(None, url);
        assert_eq!(told.status.code(), Some(2), "{url:?}: {told:?}");
    }
}
