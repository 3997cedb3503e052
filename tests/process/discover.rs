//! `discover`: the sets and documents of a Source.

use std::fmt::Write as _;
use std::process::Output;

use resyncd_testkit::{ChannelHub, Fault, SampleOptions, SampleSource};
use serde_json::Value;

use crate::support::process::{Home, program, text};
use crate::support::{SET, only_pages, resources};

const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;

/// Runs `discover` with access to loopback addresses.
async fn discover(arguments: &[&str]) -> Output {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let running = tokio::task::spawn_blocking(move || {
        let home = Home::new("http://127.0.0.1/", "");
        let mut all = vec!["discover"];
        all.extend(arguments.iter().map(String::as_str));
        home.run_command(&all)
    });
    running.await.unwrap()
}

/// The output of `discover --json` for an entry point that leads to a Source.
async fn json(url: &str) -> Value {
    let output = discover(&[url, "--json"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
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
async fn sets_are_listed_with_documents_channels_and_hubs() {
    let source = SampleSource::start(SampleOptions {
        sets: vec![SET.into(), "set2".into()],
        entries_per_list: 4,
        ..resources(10)
    })
    .await
    .unwrap();
    source.update(SET, "r0000.txt", "new");
    source.delete(SET, "r0001.txt");
    let found = json(&source.url()).await;
    assert_eq!(
        found["description"],
        format!("{}.well-known/resourcesync", source.url())
    );
    assert_eq!(
        (&found["error"], &found["implied"]),
        (&Value::Null, &false.into())
    );
    let sets = found["sets"].as_array().unwrap();
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
    assert_eq!(channels[0]["transport"], "websub");

    let output = discover(&[&source.url()]).await;
    assert_eq!(output.status.code(), Some(0));
    let tree = text(&output.stdout);
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
        let found = json(&format!("{}{path}", source.url())).await;
        assert_eq!(
            found["sets"][0]["capability_list"],
            source.capability_list(SET).as_str(),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_listed_with_their_document_and_end_nothing() {
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
    let found = json(&source.url()).await;
    let documents = found["sets"][0]["capabilities"].as_array().unwrap();
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
    assert_eq!(found["failed"][0]["error"]["code"], "not-found");
    assert_eq!(found["oddities"][0]["oddities"]["capability-spelling"], 1);
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
async fn documents_beyond_the_limit_are_not_read() {
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
    let found = json(&source.url()).await;
    assert_eq!(found["sets"].as_array().unwrap().len(), 60);
    assert_eq!(found["left_out"], 20);
    assert_eq!(found["sets"][49]["capabilities"][1]["looked_into"], true);
    assert_eq!(found["sets"][50]["capabilities"][0]["looked_into"], false);
    assert_eq!((source.hits("/49/c"), source.hits("/50/r")), (1, 0));
    let tree = text(&discover(&[&source.url()]).await.stdout);
    assert!(tree.contains("20 documents were not read"), "{tree}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scheme_may_be_omitted_and_a_sitemap_is_a_set() {
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
    let found = json(url.trim_start_matches("http://").trim_end_matches('/')).await;
    assert_eq!(found["url"], url);
    assert_eq!(found["implied"], true);
    assert_eq!(found["sets"][0]["implied"], true);
    assert_eq!(
        found["sets"][0]["capability_list"],
        format!("{url}sitemap.xml")
    );
    let list = &found["sets"][0]["capabilities"][0];
    assert_eq!(list["entries"], 1);
    assert_eq!(list["latest"], "2026-01-01T00:00:00Z");
    let tree = text(&discover(&[&url]).await.stdout);
    assert!(tree.contains("no ResourceSync"), "{tree}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_discovery_reports_its_reason() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    for path in ["/", "/.well-known/resourcesync"] {
        source.fail(path, Fault::Status(404), usize::MAX);
    }
    let output = discover(&[&source.url()]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("[no-source-description]"),
        "{output:?}"
    );
    let tree = text(&output.stdout);
    for (reason, path) in [
        ("entry", ""),
        ("well-known", ".well-known/resourcesync"),
        ("robots", "robots.txt"),
        ("sitemap", "sitemap.xml"),
        ("sitemap", "sitemap_index.xml"),
        ("sitemap", "wp-sitemap.xml"),
        ("sitemap", "sitemap.xml.gz"),
    ] {
        let line = format!(
            "\n  {reason} {}{path}: the server answered with status 404",
            source.url()
        );
        assert!(tree.contains(&line), "{line}: {tree}");
    }
    let output = discover(&[&source.url(), "--json"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["error"]["code"], "no-source-description");
    assert_eq!(json["url"], source.url());
    let tried = json["tried"].as_array().unwrap();
    assert_eq!(tried.len(), 8, "{tried:#?}");
    assert_eq!(tried[0]["code"], "not-found");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_parts_of_an_index_are_listed() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let parts: String = ["/1.xml", "/2.xml", "/absent.xml"]
        .map(|path| format!("<sitemap><loc>{path}</loc></sitemap>"))
        .concat();
    put(
        &source,
        "/set1/resourcelist.xml",
        document("resourcelist", &parts).replace("urlset", "sitemapindex"),
    );
    put(&source, "/1.xml", document("resourcelist", ""));
    source.fail("/2.xml", Fault::Status(410), usize::MAX);
    let found = json(&source.url()).await;
    let list = &found["sets"][0]["capabilities"][0];
    let dead = list["dead_parts"].as_array().unwrap();
    let dead: Vec<_> = dead
        .iter()
        .map(|part| (part["uri"].as_str().unwrap(), &part["error"]["code"]))
        .collect();
    let uri = |path: &str| source.base().join(path).unwrap().to_string();
    assert_eq!(
        dead,
        [
            (uri("/2.xml").as_str(), &"gone".into()),
            (uri("/absent.xml").as_str(), &"not-found".into())
        ]
    );
    assert_eq!(list["parts_not_tried"], 0);
    let tree = text(&discover(&[&source.url()]).await.stdout);
    for part in [
        "2 parts can't be fetched",
        "/2.xml",
        "[gone]",
        "[not-found]",
    ] {
        assert!(tree.contains(part), "{part}: {tree}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_describes_a_set_and_unsupported_channels_are_shown() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let entries = entry("/set1/resourcelist.xml", "resourcelist")
        + &entry("xmpp:pubsub.example.com", "change-notification")
        + &entry("ws://example.com/changes", "change-notification");
    let list = document("capabilitylist", &entries).replacen(
        "<rs:md",
        r#"<rs:ln rel="describedby" href="/about"/><rs:md"#,
        1,
    );
    put(&source, "/set1/capabilitylist.xml", list);
    let found = json(&source.url()).await;
    let set = &found["sets"][0];
    let about = source.base().join("/about").unwrap().to_string();
    assert_eq!(set["describedby"], serde_json::json!([about]));
    let (socket, other) = (&set["channels"][0], &set["channels"][1]);
    assert_eq!(socket["topic"], "ws://example.com/changes");
    assert_eq!(socket["transport"], "websocket");
    assert!(socket["error"].is_null() && other["transport"].is_null());
    assert_eq!(other["topic"], "xmpp:pubsub.example.com");
    assert_eq!(other["error"]["code"], "unsupported-transport");
    let tree = text(&discover(&[&source.url()]).await.stdout);
    for part in [
        &format!("described by {about}"),
        "transport websocket",
        "a transport that is not supported yet",
    ] {
        assert!(tree.contains(part), "{part}: {tree}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_is_optional_but_a_named_one_must_exist() {
    let run = |config: Option<&str>, url: &str| {
        let mut command = program();
        command.args(["discover", url]);
        command.env_remove("RESYNCD_CONFIG");
        if let Some(config) = config {
            command.args(["--config", config]);
        }
        command.output().unwrap()
    };
    // A private address that a person has typed is contacted.
    let output = run(None, "http://127.0.0.1:1/");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("[connect]"), "{output:?}");
    let output = run(Some("/nonexistent/config.toml"), "http://127.0.0.1:1/");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    // A configuration without Sources is enough for `discover`.
    let source = SampleSource::start(resources(1)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    for (sources, status) in [("", 0), ("source = 1\n", 2), ("nothing = 1\n", 2)] {
        let settings = format!("{sources}[http]\nallow_private_addresses = true\n");
        std::fs::write(&config, settings).unwrap();
        let output = run(config.to_str(), &source.url());
        assert_eq!(output.status.code(), Some(status), "{sources}: {output:?}");
    }
    for url in ["ftp://example.org/", "/etc/passwd", "", "two words"] {
        let output = run(None, url);
        assert_eq!(output.status.code(), Some(2), "{url:?}: {output:?}");
    }
}

/// The sample Source stands for a proxy: it answers the requests for another host.
#[tokio::test(flavor = "multi_thread")]
async fn proxies_of_the_environment_are_used_without_a_configuration() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let url = "http://source.example/.well-known/resourcesync";
    let commands = [&["discover", url][..], &["config", "--starter", url]];
    for (exceptions, passes) in [("", true), ("source.example", false)] {
        for arguments in commands {
            let before = source.hits("/.well-known/resourcesync");
            let mut command = program();
            command.args(arguments).env("HTTP_PROXY", source.url());
            command.env("NO_PROXY", exceptions);
            let output = command.output().unwrap();
            let passed = source.hits("/.well-known/resourcesync") > before;
            assert_eq!(passed, passes, "{arguments:?}: {output:?}");
        }
    }
    for arguments in commands {
        let mut command = program();
        let output = command
            .args(arguments)
            .env("HTTP_PROXY", "socks5://p.example");
        let output = output.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stdout).is_empty() && text(&output.stderr).contains("HTTP_PROXY"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn private_address_is_contacted_only_where_a_person_has_typed_it() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let other = SampleSource::start(resources(1)).await.unwrap();
    let run = |url: &str| {
        let mut command = program();
        command.args(["discover", url, "--json"]);
        command.output().unwrap()
    };
    let output = run(&source.url());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["sets"].as_array().unwrap().len(), 1);

    // The same server, named otherwise by a document.
    let elsewhere = other.capability_list(SET).to_string();
    let elsewhere = elsewhere.replace("127.0.0.1", "127.0.0.2");
    let sets =
        entry("/set1/capabilitylist.xml", "capabilitylist") + &entry(&elsewhere, "capabilitylist");
    put(
        &source,
        "/.well-known/resourcesync",
        document("description", &sets),
    );
    let output = run(&source.url());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["failed"][0]["capability_list"], elsewhere);
    assert_eq!(found["failed"][0]["error"]["code"], "forbidden-address");
}

#[tokio::test(flavor = "multi_thread")]
async fn entry_point_that_leads_to_nothing_is_reported_where_the_site_has_more() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    put(&source, "/page.html", "<html><title>A page</title></html>");
    for (path, answer) in [("gone.xml", "status 404"), ("page.html", "page")] {
        let entry = format!("{}{path}", source.url());
        let found = json(&entry).await;
        let notice = &found["notices"][0];
        assert_eq!(notice["code"], "entry-replaced");
        let message = notice["message"].as_str().unwrap();
        let through = format!("found instead through {}.well-known/", source.url());
        for part in [entry.as_str(), answer, &through] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let tree = text(&discover(&[&entry]).await.stdout);
        assert!(tree.contains("[entry-replaced]"), "{tree}");
    }
    // A site means what it has at the usual places.
    for path in ["", "set1/capabilitylist.xml", "set1/changelist.xml"] {
        let found = json(&format!("{}{path}", source.url())).await;
        assert_eq!(found["notices"], serde_json::json!([]), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_fails_where_nothing_it_found_can_be_read() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    for path in ["/set1/resourcelist.xml", "/set1/changelist.xml"] {
        source.fail(path, Fault::Status(404), usize::MAX);
    }
    let output = discover(&[&source.url()]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("[nothing-readable]"),
        "{output:?}"
    );
    assert!(text(&output.stdout).contains("[not-found]"), "{output:?}");
    source.fail("/set1/capabilitylist.xml", Fault::Status(404), usize::MAX);
    let output = discover(&[&source.url()]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// What servers answer in place of a document, with how a message describes it, and its advice.
const NO_DOCUMENTS: [(&str, &str, &str); 3] = [
    (
        "<!DOCTYPE html><title>Log in</title>",
        "an HTML page in place of a document, with the title \"Log in\"",
        "[source.auth]",
    ),
    (" {\"error\": 1}", "JSON in place of a document", "an API"),
    (
        "",
        "an empty body in place of a document",
        "ask the operator",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_source_description_is_described() {
    for (body, what, advice) in NO_DOCUMENTS {
        let source = SampleSource::start(resources(1)).await.unwrap();
        source.fail("/", Fault::Status(404), usize::MAX);
        put(&source, "/.well-known/resourcesync", body);
        let output = discover(&[&source.url()]).await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let line = format!("{}.well-known/resourcesync: received {what}", source.url());
        let printed = text(&output.stderr) + &text(&output.stdout);
        for part in [line.as_str(), advice] {
            assert!(printed.contains(part), "{part}: {output:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_capability_list_is_described() {
    for (body, what, advice) in NO_DOCUMENTS {
        let source = SampleSource::start(resources(1)).await.unwrap();
        put(&source, "/set1/capabilitylist.xml", body);
        let output = discover(&[&source.url()]).await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let printed = text(&output.stderr) + &text(&output.stdout);
        let list = source.capability_list(SET);
        for part in [list.as_str(), what, advice, "[not-a-capability-list]"] {
            assert!(printed.contains(part), "{part}: {output:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_a_401_states_where_the_credentials_belong() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    for path in ["/", "/.well-known/resourcesync"] {
        source.fail(path, Fault::Status(401), usize::MAX);
    }
    let output = discover(&[&source.url()]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("https://USER:PASSWORD@HOST/"),
        "{output:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_counted_by_type_and_collection() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let entry = |name: &str, media_type: &str, collections: &[&str]| {
        let link = |uri: &&str| format!(r#"<rs:ln rel="Collection" href="{uri}"/>"#);
        let links: String = collections.iter().map(link).collect();
        format!(r#"<url><loc>/{name}</loc><rs:md type="{media_type}"/>{links}</url>"#)
    };
    let entries = [
        entry("a", "text/html; charset=utf-8", &["http://e.org/c"]),
        entry("b", "Text/HTML", &["http://e.org/c", "http://e.org/d"]),
        entry("c", "application/pdf", &[]),
    ];
    let list = format!(
        r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="resourcelist" at="2026-01-01T00:00:00Z"/>{}</urlset>"#,
        entries.concat()
    );
    put(&source, "/set1/resourcelist.xml", list);
    let output = discover(&[&source.url(), "--json"]).await;
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = &found["sets"][0]["capabilities"][0];
    assert_eq!(
        (&list["types"], &list["collections"]),
        (
            &serde_json::json!({"text/html": 2, "application/pdf": 1}),
            &serde_json::json!({"http://e.org/c": 2, "http://e.org/d": 1})
        )
    );
    let output = discover(&[&source.url()]).await;
    let tree = text(&output.stdout);
    for part in ["type text/html: 2\n", "collection http://e.org/d: 1\n"] {
        assert!(tree.contains(part), "{part}: {tree}");
    }
}

/// Runs `config --starter` without a configuration file that has Sources.
async fn starter(url: String) -> Output {
    let running = tokio::task::spawn_blocking(move || {
        let home = Home::new("http://127.0.0.1/", "");
        home.run_command(&["config", "--starter", &url])
    });
    running.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn starter_is_a_configuration_that_check_accepts_and_that_follows_the_source() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let output = starter(source.url()).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = text(&output.stdout);
    let list = source.capability_list(SET);
    for part in [
        &format!("url = \"{}\"\n", source.base()),
        "name = \"127-0-0-1\"\n",
        "mirror = \"/srv/mirror/127-0-0-1\"\n",
        "allow_private_addresses = true\n",
        &format!("# sets = [\"{list}\"]\n"),
        "# public_url = ",
        "resourcelist (3 entries)",
        "change-notification at ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let home = Home::new("http://127.0.0.1/", "");
    std::fs::write(&home.config, &text).unwrap();
    let checked = home.run_command(&["check"]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let folder = home.folder().to_str().unwrap();
    let here = text
        .replace("/var/lib/resyncd", &format!("{folder}/state"))
        .replace("/srv/mirror/127-0-0-1", &format!("{folder}/mirror"));
    std::fs::write(&home.config, here).unwrap();
    let synchronized = tokio::task::spawn_blocking(move || {
        let output = home.run_command(&["sync"]);
        (home, output)
    });
    let (home, output) = synchronized.await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    home.assert_mirrored(&source, &[SET]);
}

#[tokio::test(flavor = "multi_thread")]
async fn starter_of_a_place_without_a_source_is_an_error_and_no_file() {
    let options = SampleOptions {
        sets: Vec::new(),
        ..resources(0)
    };
    let source = SampleSource::start(options).await.unwrap();
    source.fail("/", Fault::Status(404), usize::MAX);
    let output = starter(format!("{}nothing/here", source.url())).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let error = text(&output.stderr);
    assert!(
        error.starts_with("resyncd: ") && error.contains('['),
        "{error}"
    );
    for arguments in [
        &["config"][..],
        &["config", "--schema", "--starter", "x.example"],
    ] {
        let refused = program().args(arguments).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
}

const CHANGE_SET: &str =
    r#"<xhtml:link rel="current http://www.openarchives.org/rs/changeset" href="/changes.xml"/>"#;
const NODE: &str = r#"<xhtml:link href="xmpp:pubsub.example.com" rs:protocol="http://xmpp.org/extensions/xep-0060.html" rs:pubsubnode="n"/>"#;
const CALLBACK: &str =
    r#"<xhtml:link href="/subscribe" rs:protocol="http://example.com/protocol/callback"/>"#;

/// A document of the draft of version 0.1; `root`: attributes of its root element.
fn draft(root: &str, inside: &str) -> String {
    format!(
        r#"<urlset {root} {NAMESPACES} xmlns:xhtml="http://www.w3.org/1999/xhtml">{inside}</urlset>"#
    )
}

/// A Source that follows the draft only, with these links in the head of its Sitemap.
async fn draft_source(links: &[&str]) -> SampleSource {
    let source = SampleSource::start(only_pages()).await.unwrap();
    let listed = "<url><loc>/a</loc></url>";
    put(
        &source,
        "/sitemap.xml",
        draft("", &(links.concat() + listed)),
    );
    let deleted = "<url><loc>/b</loc><expires>2012-08-08T13:22:00Z</expires></url>";
    put(
        &source,
        "/changes.xml",
        draft(r#"rs:type="changeset""#, deleted),
    );
    source
}

#[tokio::test(flavor = "multi_thread")]
async fn source_of_the_draft_is_shown_with_what_it_names() {
    let dump = r#"<xhtml:link rel="http://www.openarchives.org/rs/dump" href="/dump.zip"/>"#;
    let source = draft_source(&[CHANGE_SET, dump, NODE, CALLBACK]).await;
    let url = format!("{}sitemap.xml", source.url());
    let found = json(&url).await;
    let set = &found["sets"][0];
    assert_eq!(
        (&set["capability_list"], &set["dialect"], &set["implied"]),
        (&url.clone().into(), &"0.1".into(), &true.into())
    );
    assert_eq!(set["oddities"]["draft-0.1"], 1);
    let offered = set["capabilities"].as_array().unwrap().iter();
    let offered: Vec<_> = offered
        .map(|offered| {
            let (capability, is_read) = (&offered["capability"], &offered["looked_into"]);
            (capability.as_str().unwrap(), is_read.as_bool().unwrap())
        })
        .collect();
    // A package is not read.
    let expected = [
        ("resourcelist", true),
        ("changelist", true),
        ("resourcedump", false),
    ];
    assert_eq!(offered, expected);
    assert_eq!(set["capabilities"][1]["deleted"], 1);
    let channels = set["channels"].as_array().unwrap();
    let topics: Vec<_> = channels.iter().map(|it| it["topic"].as_str()).collect();
    let callback = format!("{}subscribe", source.url());
    let node = "xmpp:pubsub.example.com?;node=n";
    assert_eq!(topics, [Some(node), Some(callback.as_str())]);
    let transports: Vec<_> = channels.iter().map(|it| &it["transport"]).collect();
    assert_eq!(transports, ["xmpp", "callback"]);
    let protocol = "http://example.com/protocol/callback";
    assert_eq!(channels[1]["protocol"], protocol);
    let codes: Vec<_> = channels.iter().map(|it| &it["error"]["code"]).collect();
    assert_eq!(codes, ["no-xmpp-account", "protocol-not-configured"]);
    let configured = format!("callback_protocols = [\"{protocol}\"]\n");
    let home = Home::new(&source.url(), &configured);
    let arguments = url.clone();
    let output =
        tokio::task::spawn_blocking(move || home.run_command(&["discover", &arguments, "--json"]));
    let output = output.await.unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let channel = &found["sets"][0]["channels"][1];
    assert_eq!(channel["transport"], "callback");
    assert!(channel["error"].is_null(), "{channel}");
    let shown = text(&discover(&[&url]).await.stdout);
    for part in [
        "\n  ResourceSync 0.1 (draft): a Sitemap stands for the Source Description\n",
        "of the draft of version 0.1",
        &format!("change-notification {callback}\n      protocol {protocol}\n"),
        "transport xmpp\n",
        "transport callback\n",
        "is not one of callback_protocols [protocol-not-configured]",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("no ResourceSync"), "{shown}");
    assert_eq!(found["dialect"], "0.1");
}

/// The configuration of a Source at an entry point: `tables` before it, `more` keys of it.
fn configured(url: &str, tables: &str, more: &str) -> Home {
    let home = Home::new("http://127.0.0.1/", "");
    let mirror = home.mirror.display();
    let source =
        format!("[[source]]\nname = \"sample\"\nurl = \"{url}\"\nmirror = \"{mirror}\"\n{more}");
    let folder = home.folder().display();
    let text = format!(
        "state_dir = \"{folder}/state\"\n{tables}\n[http]\nallow_private_addresses = true\n{source}"
    );
    std::fs::write(&home.config, text).unwrap();
    std::fs::write(home.folder().join("password"), "secret\n").unwrap();
    home
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reason_why_a_channel_cannot_be_used_is_shown() {
    let other =
        r#"<xhtml:link href="mailto:changes@example.com" rs:protocol="http://example.com/mail"/>"#;
    let nameless =
        r#"<xhtml:link href="xmpp:other.example.com" rs:protocol="http://example.com/xmpp"/>"#;
    let source = draft_source(&[CHANGE_SET, NODE, CALLBACK, other, nameless]).await;
    let websub = SampleSource::start(resources(1)).await.unwrap();
    let url = format!("{}sitemap.xml", source.url());
    let protocol = "http://example.com/protocol/callback";
    let with_protocol = format!("callback_protocols = [\"{protocol}\"]\n");
    let with_url = "[callback]\npublic_url = \"https://d.example.net/hooks/\"\n";
    let with_account =
        "[xmpp]\njid = \"me@example.net\"\npassword_file = \"password\"\nserver = \"127.0.0.1\"\n";
    let both = format!("{with_url}{with_account}");
    let unsupported = &[
        "unsupported-transport: a transport that is not supported yet: the scheme mailto",
        "unsupported-transport: a transport that is not supported yet: XMPP without the name of a node",
    ];
    let account = "no-xmpp-account: it needs an XMPP account: [xmpp] jid is not set";
    let callback = "it needs a callback: [callback] public_url is not set";
    let unknown = format!("its protocol {protocol} is not one of callback_protocols");
    for (url, tables, more, expected) in [
        (
            &url,
            "",
            "",
            vec![
                account.to_owned(),
                format!("protocol-not-configured: {unknown}; {callback}"),
            ],
        ),
        (
            &url,
            with_url,
            "",
            vec![
                account.to_owned(),
                format!("protocol-not-configured: {unknown}"),
            ],
        ),
        (
            &url,
            with_account,
            &*with_protocol,
            vec![String::new(), format!("no-public-url: {callback}")],
        ),
        (&url, &*both, &*with_protocol, vec![String::new(); 2]),
        (
            &url,
            &*both,
            "notifications = false\n",
            vec![
                "notifications-off: `notifications` is false".to_owned(),
                format!("notifications-off: `notifications` is false; {unknown}"),
            ],
        ),
        (
            &websub.url(),
            "",
            "",
            vec![format!("no-public-url: {callback}"); 2],
        ),
        (&websub.url(), with_url, "", vec![String::new(); 2]),
    ] {
        let mut expected = expected;
        if url.contains("sitemap") {
            expected.extend(unsupported.map(str::to_owned));
        }
        let home = configured(url, tables, more);
        let entry = url.clone();
        let running = tokio::task::spawn_blocking(move || {
            let run = |arguments: &[&str]| {
                let output = home.run_command(arguments);
                assert_eq!(output.status.code(), Some(0), "{output:?}");
                output.stdout
            };
            let json = run(&["discover", &entry, "--json"]);
            (json, run(&["discover", &entry]))
        });
        let (json, tree) = running.await.unwrap();
        let (json, tree): (Value, _) = (serde_json::from_slice(&json).unwrap(), text(&tree));
        let channels = json["sets"][0]["channels"].as_array().unwrap();
        let found = channels.iter().map(|channel| match &channel["error"] {
            Value::Null => String::new(),
            error => format!(
                "{}: {}",
                error["code"].as_str().unwrap(),
                error["message"].as_str().unwrap()
            ),
        });
        assert_eq!(found.collect::<Vec<_>>(), expected, "{tables}{more}");
        for reason in expected.iter().filter(|reason| !reason.is_empty()) {
            let (code, message) = reason.split_once(": ").unwrap();
            let line = format!("! {message} [{code}]\n");
            assert!(tree.contains(&line), "{line}: {tree}");
        }
    }
    let shown = text(&discover(&[&url]).await.stdout);
    for part in [
        "change-notification mailto:changes@example.com\n      protocol http://example.com/mail\n",
        "change-notification xmpp:other.example.com\n      protocol http://example.com/xmpp\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn starter_of_a_source_of_the_draft_has_what_its_channels_need() {
    let source = draft_source(&[CHANGE_SET, NODE, CALLBACK]).await;
    let output = starter(format!("{}sitemap.xml", source.url())).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = text(&output.stdout);
    let protocols = "callback_protocols = [\"http://example.com/protocol/callback\"]\n";
    for part in [
        "# It follows the draft of ResourceSync 0.1. What it offers:\n",
        "\n[callback]\n",
        "\n[xmpp]\n",
        "# jid = ",
        "# password_file = ",
        &format!("\n# {protocols}"),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Without the marks of the comments it is valid, too.
    let home = Home::new("http://127.0.0.1/", "");
    let password = home.folder().join("password");
    std::fs::write(&password, "secret\n").unwrap();
    let filled = text
        .replace("# public_url", "public_url")
        .replace("# jid", "jid")
        .replace("# password_file", "password_file")
        .replace(
            "/etc/resyncd/xmpp.password",
            &password.display().to_string(),
        )
        .replace("# callback_protocols", "callback_protocols");
    for config in [&text, &filled] {
        std::fs::write(&home.config, config).unwrap();
        let checked = home.run_command(&["check"]);
        assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    }
    let other = SampleSource::start(resources(1)).await.unwrap();
    let text = starter(other.url()).await.stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(
        !text.contains("[xmpp]") && !text.contains("callback_protocols"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sitemap_of_the_draft_that_is_too_long_to_be_read_completely_is_one_of_the_draft() {
    let source = draft_source(&[CHANGE_SET]).await;
    let mut entries = String::new();
    for number in 0..20_010 {
        write!(entries, "<url><loc>/{number}</loc></url>").unwrap();
    }
    put(
        &source,
        "/sitemap.xml",
        draft("", &(CHANGE_SET.to_owned() + &entries)),
    );
    let found = json(&format!("{}sitemap.xml", source.url())).await;
    assert_eq!(found["dialect"], "0.1");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_set_leads_to_its_source_with_and_without_a_type() {
    let source = draft_source(&[CHANGE_SET]).await;
    put(&source, "/robots.txt", "Sitemap: /sitemap.xml");
    let sitemap = format!("{}sitemap.xml", source.url());
    let changed =
        r#"<url><loc>/a</loc><lastmod rs:type="updated">2012-08-08T08:15:00Z</lastmod></url>"#;
    for (root, links) in [
        (r#"rs:type="changeset""#, ""),
        ("", ""),
        ("", CHANGE_SET),
        (
            "",
            r#"<xhtml:link rel="prev http://www.openarchives.org/rs/changeset" href="/before.xml"/>"#,
        ),
    ] {
        let set = draft(root, &(links.to_owned() + changed));
        put(&source, "/changes.xml", set);
        let found = json(&format!("{}changes.xml", source.url())).await;
        let sets = found["sets"].as_array().unwrap().iter();
        let sets: Vec<_> = sets.map(|set| &set["capability_list"]).collect();
        assert_eq!(sets, [sitemap.as_str()], "{root}{links}");
        assert_eq!(found["notices"], serde_json::json!([]), "{root}{links}");
        let changes = &found["sets"][0]["capabilities"][1];
        assert_eq!(changes["uri"], format!("{}changes.xml", source.url()));
    }
}

/// What a terminal must not get as it is: it controls the terminal, or lets text appear as another.
fn is_deceptive(character: char) -> bool {
    (character.is_control() && character != '\n')
        || "\u{202e}\u{2066}\u{2028}\u{2029}\u{61c}\u{200b}\u{feff}\u{ad}\u{e0041}"
            .contains(character)
}

/// Media types, names of collections, capabilities and URIs of relations are the Source's texts.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_source_states_deceives_a_terminal() {
    const DECEPTIVE: &str = "a/\u{202e}b\u{2066}c\u{2028}d\u{2029}\u{61c}\u{200b}\u{feff}\u{ad}\u{e0041}\u{9b}31m\u{85}z";
    let source = SampleSource::start(resources(3)).await.unwrap();
    let entries = format!(
        r#"<url><loc>http://a.example/r</loc><rs:md type="{DECEPTIVE}"/><rs:ln rel="collection" href="http://a.example/c"/></url>"#
    );
    put(
        &source,
        "/set1/resourcelist.xml",
        document("resourcelist", &entries),
    );
    let capabilities = format!(
        "{}{}",
        entry("resourcelist.xml", "resourcelist"),
        entry("other.xml", DECEPTIVE)
    );
    put(
        &source,
        "/set1/capabilitylist.xml",
        document("capabilitylist", &capabilities),
    );
    let url = format!("{}set1/capabilitylist.xml", source.url());
    let tree = text(&discover(&[&url]).await.stdout);
    assert!(tree.contains("a/\\u{202e}b\\u{2066}c\\u{2028}d"), "{tree}");
    let json = text(&discover(&[&url, "--json"]).await.stdout);
    for output in [&tree, &json] {
        assert!(!output.chars().any(is_deceptive), "{output:?}");
    }
    // The values of JSON are those of the Source.
    let found: Value = serde_json::from_str(&json).unwrap();
    assert!(found.to_string().contains(DECEPTIVE), "{json}");
}
