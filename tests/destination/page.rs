//! The page at `GET /` and what belongs to it, without a browser; `browser.rs` has what needs one.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderMap, LOCATION, ORIGIN};
use reqwest::{Method, RequestBuilder, StatusCode};
use resourcesync::Link;
use resyncd::config::Secret;
use resyncd_testkit::{ChannelHub, Fault, SampleOptions, SampleSource};
use url::Url;

use crate::support::{
    NAME, Rig, SET, change, change_list, eventually, path_of, resources, send, soon, time,
};

/// What a browser accepts when it shows a page.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// A Source that is polled on request only.
fn polled(number: usize) -> SampleOptions {
    SampleOptions {
        hub: ChannelHub::None,
        ..resources(number)
    }
}

/// A request as a browser sends it; redirects are not followed.
fn browse(rig: &Rig, method: Method, path: &str) -> RequestBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .pool_max_idle_per_host(0)
        .redirect(reqwest::redirect::Policy::none())
        .timeout(Duration::from_secs(60))
        .build()
        .unwrap();
    let url = format!("http://{}{path}", rig.config.status.listen);
    client.request(method, url).header(ACCEPT, BROWSER)
}

async fn answer(rig: &Rig, path: &str) -> (StatusCode, HeaderMap, String) {
    let answer = send(|| browse(rig, Method::GET, path)).await;
    let (status, headers) = (answer.status(), answer.headers().clone());
    (status, headers, answer.text().await.unwrap())
}

/// A page that must be there.
async fn page(rig: &Rig, path: &str) -> String {
    let (status, _, text) = answer(rig, path).await;
    assert_eq!(status, StatusCode::OK, "{path}: {text}");
    text
}

fn resource_page(uri: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    format!("/page/resource?{}", query.append_pair("uri", uri).finish())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_needs_nothing_from_elsewhere() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let subscriptions = rig.hub().subscriptions();
    assert_eq!(subscriptions.len(), 2);
    let resource = resource_page(&rig.uri("r0001.txt"));
    let source = format!("/page/sources/{NAME}");
    for (path, status, media_type, part) in [
        ("/", 200, "text/html; charset=utf-8", "in-sync"),
        (
            source.as_str(),
            200,
            "text/html; charset=utf-8",
            "change-notification",
        ),
        (
            resource.as_str(),
            200,
            "text/html; charset=utf-8",
            "/set1/res/r0001.txt</code>",
        ),
        (
            "/page/style.css",
            200,
            "text/css; charset=utf-8",
            "prefers-color-scheme",
        ),
        (
            "/page/script.js",
            200,
            "text/javascript; charset=utf-8",
            "EventSource",
        ),
        ("/page/icon.svg", 200, "image/svg+xml", "<svg"),
        (
            "/page/sources/unknown",
            404,
            "text/html; charset=utf-8",
            "unknown-source",
        ),
        (
            "/page/resource?uri=javascript:alert(1)",
            400,
            "text/html; charset=utf-8",
            "bad-uri",
        ),
        ("/page/resource", 400, "text/html; charset=utf-8", "bad-uri"),
        ("/page/file", 400, "text/html; charset=utf-8", "bad-uri"),
        (
            "/page/find?part=res",
            200,
            "text/html; charset=utf-8",
            "r0002.txt</a>",
        ),
        (
            "/page/resource?uri=http://unknown.example/",
            404,
            "text/html; charset=utf-8",
            "Nothing was applied",
        ),
    ] {
        let (found, headers, text) = answer(&rig, path).await;
        assert_eq!(found.as_u16(), status, "{path}: {text}");
        assert!(text.contains(part), "{path}: {text}");
        for (name, value) in [
            ("content-type", media_type),
            ("content-security-policy", POLICY),
            ("referrer-policy", "same-origin"),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(headers[name], value, "{path} {name}");
        }
        for subscription in &subscriptions {
            let token = subscription.callback.rsplit('/').next().unwrap();
            let secret = subscription.secret.as_deref().unwrap();
            assert!(
                !text.contains(token) && !text.contains(secret),
                "{path}: {text}"
            );
        }
        // The policy forbids them: they would not work.
        for inline in ["style=", "<style", "onclick", "onload", "<script>"] {
            assert!(!text.contains(inline), "{path}: {inline}: {text}");
        }
        // What is loaded is relative.
        for attribute in text.split(['<', '>']).filter(|tag| {
            ["link ", "script ", "img ", "form "]
                .iter()
                .any(|name| tag.starts_with(name))
        }) {
            assert!(!attribute.contains("//"), "{path}: {attribute}");
        }
        let head = send(|| browse(&rig, Method::HEAD, path)).await;
        assert_eq!(head.status().as_u16(), status, "{path}");
        assert_eq!(head.headers()["content-type"], media_type, "{path}");
        assert_eq!(head.text().await.unwrap(), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_get_text_at_the_first_page() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let answer = rig.operator.response("/").await;
    assert_eq!(
        answer.headers()["content-type"],
        "text/plain; charset=utf-8"
    );
    assert_eq!(answer.headers()["vary"], "accept");
    let text = answer.text().await.unwrap();
    assert!(
        text.starts_with("resyncd ") && text.contains("in-sync"),
        "{text}"
    );
    let (_, headers, _) = self::answer(&rig, "/").await;
    assert_eq!(headers["vary"], "accept");
}

#[tokio::test(flavor = "multi_thread")]
async fn applied_changes_are_shown_with_their_delay_and_in_the_diagrams() {
    let mut rig = Rig::start(resources(3)).await;
    // A poll would apply the change before its notification.
    rig.idle().await;
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0001.txt", "new");
    rig.source.notify_and_publish(SET).await.unwrap();
    let line = rig.until_in_feed(since, "r0001.txt").await;
    let row = format!("<tr data-seq=\"{}\">", line.seq);
    let source = format!("/page/sources/{NAME}");
    let resource = resource_page(&line.uri);
    for path in ["/", source.as_str(), resource.as_str()] {
        let text = page(&rig, path).await;
        let (_, changes) = text.split_once(&row).unwrap();
        let (row, _) = changes.split_once("</tr>").unwrap();
        assert!(
            row.contains("updated") && row.contains("notification"),
            "{row}"
        );
        assert!(row.contains(&format!(">{}</a>", line.uri)), "{row}");
        let delays = [" ms</td>", " s</td>"];
        assert!(delays.iter().any(|it| row.contains(it)), "{row}");
    }
    // Three were created by the first copy.
    let counted = "4 changes in the last hour: 3 created, 1 updated, 0 deleted";
    let delay = "Of 1 announced change in the last hour";
    for _ in 0..2 {
        // It is counted after it is in the feed.
        eventually("the change is counted", Some(rig.wakes()), async || {
            let text = page(&rig, "/").await;
            let is_counted = text.contains(counted) && text.contains(delay);
            is_counted.then_some(()).ok_or(text)
        })
        .await;
        // Counted from the feed then.
        rig.stop_daemon().await;
        rig.start_daemon().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_is_seen_opening_and_closing() {
    let rig = Rig::start(resources(3)).await;
    rig.idle().await;
    rig.source.freeze_change_list(SET, true);
    rig.source.create(SET, "lost.txt", "lost");
    drop(rig.source.notify(SET));
    rig.source.create(SET, "next.txt", "next");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("gap", |set| set.state == "gap").await;
    let source = format!("/page/sources/{NAME}");
    let text = page(&rig, &source).await;
    assert!(text.contains("<rect class=\"gap\""), "{text}");
    assert!(
        text.contains("Gap open for") && text.contains("missing-notification"),
        "{text}"
    );
    assert!(text.contains("1 gap is open"), "{text}");
    let text = page(&rig, "/").await;
    let row = "<tr data-name=\"sample\" data-state=\"gap\">";
    assert!(
        text.contains(row) && text.contains("1 set has a gap"),
        "{text}"
    );
    let (_, text) = rig.operator.get("/").await;
    assert!(
        text.contains("gap from ") && text.contains("[missing-notification"),
        "{text}"
    );
    rig.source.freeze_change_list(SET, false);
    rig.operator.poll(NAME).await;
    let set = rig.until("closed", |set| set.state == "in-sync").await;
    let closed = &set.closed_gaps[0];
    assert_eq!(
        (set.closed_gaps.len(), closed.reason.as_str()),
        (1, "missing-notification")
    );
    assert!(time(&closed.from) < time(&closed.until), "{closed:?}");
    assert!(time(&closed.since) <= time(&closed.closed_at), "{closed:?}");
    let text = page(&rig, &source).await;
    assert!(!text.contains("<rect class=\"gap\""), "{text}");
    assert!(text.contains("<rect class=\"closed\""), "{text}");
    assert!(
        text.contains("Gap closed at") && text.contains("no gap is open, 1 closed"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_are_answered_with_the_way_back_and_guarded() {
    const PATH: &str = "/set1/res/r0001.txt";
    let source = SampleSource::start(polled(3)).await.unwrap();
    source.fail(PATH, Fault::Status(404), usize::MAX);
    let rig = Rig::follow(source, |_| {}).await;
    rig.until("failed", |set| {
        set.failed == 1 && set.next_poll_at.is_some()
    })
    .await;
    let text = page(&rig, "/").await;
    assert!(text.contains("Needs attention"), "{text}");
    let action = "action=\"./sources/sample/retry?back=front\"";
    assert!(text.contains(action), "{text}");
    let text = page(&rig, &format!("/page/sources/{NAME}")).await;
    for part in [
        "action=\"../../sources/sample/retry?back=source\"",
        "action=\"../../sources/sample/poll?back=source\"",
        "not-found",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }

    rig.source.heal(PATH);
    for (path, expected, done) in [
        (
            "/sources/sample/retry?back=front",
            "/?done=retried",
            "1 change of sample tried again.",
        ),
        (
            "/sources/sample/poll?back=front",
            "/?done=polled",
            "sample is being polled.",
        ),
        (
            "/sources/sample/pause?back=source",
            "/page/sources/sample?done=paused",
            "sample is paused.",
        ),
        (
            "/sources/sample/resume?back=source",
            "/page/sources/sample?done=resumed",
            "sample is resumed.",
        ),
        (
            "/sources/sample/approve?back=source",
            "/page/sources/sample?done=approved",
            "0 deletions of sample approved.",
        ),
        (
            "/sources/sample/reject?back=front",
            "/?done=rejected",
            "0 deletions of sample rejected",
        ),
    ] {
        let answer = send(|| browse(&rig, Method::POST, path)).await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER, "{path}");
        let base = Url::parse(&format!("http://{}{path}", rig.config.status.listen)).unwrap();
        let location = answer.headers()[LOCATION].to_str().unwrap();
        let target = base.join(location).unwrap();
        assert_eq!(target.origin(), base.origin());
        let target = &target[url::Position::BeforePath..];
        assert!(target.starts_with(expected), "{target}");
        let text = page(&rig, target).await;
        assert!(text.contains(done), "{path}: {text}");
        // A link of another site to the same page claims nothing.
        let link = send(|| follow_link(&rig, target)).await;
        assert_eq!(link.status(), StatusCode::OK, "{path}");
        let text = link.text().await.unwrap();
        assert!(!text.contains(done), "{path}: {text}");
    }
    rig.settled().await;

    let unknown = send(|| browse(&rig, Method::POST, "/sources/unknown/approve?back=front")).await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
    assert!(unknown.text().await.unwrap().contains("<!DOCTYPE html>"));
    // A form of another site.
    for path in ["approve", "reject", "retry", "poll"] {
        let path = format!("/sources/{NAME}/{path}");
        let foreign = || browse(&rig, Method::POST, &path).header(ORIGIN, "http://evil.example");
        assert_eq!(send(foreign).await.status(), StatusCode::FORBIDDEN);
        let cross = || browse(&rig, Method::POST, &path).header("Sec-Fetch-Site", "cross-site");
        assert_eq!(send(cross).await.status(), StatusCode::FORBIDDEN);
        let by_get = send(|| browse(&rig, Method::GET, &path)).await;
        assert_eq!(by_get.status(), StatusCode::METHOD_NOT_ALLOWED);
        // What a program gets is as ever, also if it would accept HTML.
        let (status, _) = rig.operator.post(&path).await;
        assert_eq!(status, StatusCode::ACCEPTED);
        let program = send(|| browse(&rig, Method::POST, &path)).await;
        assert_eq!(program.status(), StatusCode::ACCEPTED);
    }
}

/// A request of a browser that has followed a link of a page of another site.
fn follow_link(rig: &Rig, path: &str) -> RequestBuilder {
    let request = browse(rig, Method::GET, path);
    let request = request.header("Sec-Fetch-Site", "cross-site");
    let request = request.header("Sec-Fetch-Mode", "navigate");
    request.header("Sec-Fetch-Dest", "document")
}

#[tokio::test(flavor = "multi_thread")]
async fn links_of_other_sites_lead_to_the_pages_only() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let source = format!("/page/sources/{NAME}");
    let resource = resource_page(&rig.uri("r0001.txt"));
    for path in ["/", source.as_str(), resource.as_str()] {
        let answer = send(|| follow_link(&rig, path)).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let policy = &answer.headers()["cross-origin-opener-policy"];
        assert_eq!(policy, "same-origin", "{path}");
        // A frame, an image and a script of another site get nothing.
        for (mode, dest) in [
            ("navigate", "iframe"),
            ("no-cors", "image"),
            ("no-cors", "script"),
            ("cors", "empty"),
        ] {
            let foreign = || {
                let request = browse(&rig, Method::GET, path);
                let request = request.header("Sec-Fetch-Site", "cross-site");
                let request = request.header("Sec-Fetch-Mode", mode);
                request.header("Sec-Fetch-Dest", dest)
            };
            let answer = send(foreign).await;
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path} {dest}");
        }
        let rebound = || follow_link(&rig, path).header("Host", "evil.example");
        let rebound = send(rebound).await;
        assert_eq!(rebound.status(), StatusCode::FORBIDDEN, "{path}");
    }
    for path in ["/status", "/changes", "/page/events", "/page/script.js"] {
        let answer = send(|| follow_link(&rig, path)).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_that_are_held_back_are_approved_by_a_form() {
    let rig = Rig::start(polled(300)).await;
    rig.settled().await;
    for number in 0..120 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.refresh_resource_list(SET);
    rig.operator.poll(NAME).await;
    rig.until("held back", |set| set.held_deletions == 120)
        .await;
    let text = page(&rig, "/").await;
    let warning = "This approves 120 deletions of sample: the files are removed from the mirror.";
    assert!(text.contains(warning), "{text}");
    let text = page(&rig, &format!("/page/sources/{NAME}")).await;
    assert!(
        text.contains(warning) && text.contains("/held?source=sample"),
        "{text}"
    );
    assert_eq!(text.matches("/set1/res/r").count() % 50, 0, "{text}");
    let through = rig.set().await.held_through.unwrap();
    for operation in ["approve", "reject"] {
        let action = format!(
            "action=\"../../sources/sample/{operation}?back=source&#38;through={through}\""
        );
        assert!(text.contains(&action), "{text}");
    }
    // Meanwhile others take the place of some that the page has shown, and more are held back.
    for number in 0..20 {
        rig.source.create(SET, &format!("r{number:04}.txt"), "back");
    }
    for number in 120..230 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.refresh_resource_list(SET);
    rig.operator.poll(NAME).await;
    rig.until("others held back", |set| set.held_deletions == 210)
        .await;
    let approve = |query: &str| format!("/sources/{NAME}/approve?{query}");
    let (status, text) = rig.operator.post(&approve("held=209")).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let error: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(error["error"]["code"], "more-deletions-held");
    let late = send(|| browse(&rig, Method::POST, &approve("back=source&held=209"))).await;
    assert_eq!(late.status(), StatusCode::CONFLICT);
    let text = late.text().await.unwrap();
    assert!(
        text.contains("more-deletions-held") && text.contains("210 deletions of sample"),
        "{text}"
    );
    assert_eq!(rig.set().await.held_deletions, 210, "none was approved");
    let shown = approve(&format!("back=source&through={through}"));
    let answer = send(|| browse(&rig, Method::POST, &shown)).await;
    let location = answer.headers()[LOCATION].to_str().unwrap().to_owned();
    assert!(location.ends_with("count=100"), "{location}");
    let set = rig.until("deleted", |set| set.resources == 200).await;
    assert_eq!(set.held_deletions, 110, "the others were not seen");
    for number in 120..230 {
        assert!(rig.mirrored(&format!("r{number:04}.txt")).is_some());
    }
    let (status, _) = rig.operator.post(&approve("held=110")).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    rig.until("deleted", |set| set.resources == 90).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_source_writes_stays_text() {
    let rig = Rig::start(polled(3)).await;
    rig.idle().await;
    let from = time(rig.set().await.synced_until.unwrap());
    // Such a name is normalized; its quotes and angle brackets are text in the page.
    let name = "a\"'><script>alert(1)</script>&.txt";
    let at = rig.source.create(SET, name, "content");
    let mut entry = change(&rig.source.resource_uri(SET, name), at);
    let uri = entry.loc.to_string();
    let hostile = "\"><img src=x onerror=alert(2)>";
    entry.md.content.media_type = Some("text/<script>alert(3)</script>".to_owned());
    let href = Url::parse("https://a.example/'\"><script>alert(4)</script>").unwrap();
    entry.links.push(Link::new(hostile, href));
    let list = change_list(from, None, None, &[entry]);
    rig.source
        .put_document("/set1/changelist.xml", "application/xml", list);
    rig.operator.poll(NAME).await;
    let applied = eventually("applied", Some(rig.wakes()), async || {
        let lines = rig.operator.changes(0).await;
        let found = lines.into_iter().find(|line| line.uri.contains("alert"));
        found.ok_or("not applied".to_owned())
    });
    let applied = applied.await;
    let source = format!("/page/sources/{NAME}");
    let resource = resource_page(&uri);
    let query = "/?done=approved&source=<script>alert(5)</script>&count=1";
    for path in ["/", source.as_str(), resource.as_str(), query] {
        let text = page(&rig, path).await;
        assert!(
            !text.contains("<script>") && !text.contains("<img"),
            "{path}: {text}"
        );
        assert!(path == query || text.contains("alert"), "{path}: {text}");
    }
    let text = page(&rig, &resource).await;
    assert!(
        text.contains("&#60;img src=x onerror=alert(2)&#62;"),
        "{text}"
    );
    assert_eq!(applied.uri, uri);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_require_the_token() {
    const TOKEN: &str = "a-token-of-the-operator";
    let rig = Rig::start_with(resources(1), |config| {
        config.status.token = Secret::new(TOKEN);
    })
    .await;
    let source = format!("/page/sources/{NAME}");
    for path in [
        "/",
        source.as_str(),
        "/page/style.css",
        "/page/script.js",
        "/page/events",
    ] {
        let without = send(|| browse(&rig, Method::GET, path)).await;
        assert_eq!(without.status(), StatusCode::UNAUTHORIZED, "{path}");
        let with = send(|| browse(&rig, Method::GET, path).bearer_auth(TOKEN)).await;
        assert_eq!(with.status(), StatusCode::OK, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_pages_are_sent_news_and_are_few() {
    const STREAMS: usize = 32;
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let stream = send(|| browse(&rig, Method::GET, "/page/events")).await;
        assert_eq!(stream.status(), StatusCode::OK);
        assert_eq!(stream.headers()["content-type"], "text/event-stream");
        assert_eq!(stream.headers()["x-accel-buffering"], "no");
        open.push(stream);
    }
    let refused = send(|| browse(&rig, Method::GET, "/page/events")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    // Pages take no room from readers of the feed.
    assert_eq!(rig.operator.events(0).await.status(), StatusCode::OK);
    // The first one comes at once, so that the page knows that it is heard.
    let mut stream = open.pop().unwrap();
    for event in ["at once", "of a change, or after a while"] {
        let found = soon(event, stream.chunk()).await.unwrap().unwrap();
        assert!(found.starts_with(b"event: news"), "{event}: {found:?}");
        rig.source.update(SET, "r0001.txt", "new");
        rig.source.notify_and_publish(SET).await.unwrap();
    }
    drop(stream);
    eventually("a page that is closed makes room", None, async || {
        let stream = send(|| browse(&rig, Method::GET, "/page/events")).await;
        match stream.status() {
            StatusCode::OK => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
}

/// What needs no browser of the script: its connections, and what it says of them.
#[test]
#[allow(clippy::print_stdout, reason = "a test that is skipped says so")]
fn script_has_connections_only_while_it_is_seen_and_says_live_only_if_it_is() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("node")
        .arg(folder.join("tests/destination/page_script.js"))
        .arg(folder.join("src/http/page/assets/script.js"))
        .output();
    match output {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => println!("skipped: node can't be run: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_changes_of_a_source_are_reached() {
    let rig = Rig::start(polled(70)).await;
    rig.settled().await;
    let path = format!("/page/sources/{NAME}");
    let text = page(&rig, &path).await;
    assert_eq!(text.matches("<tr data-seq=").count(), 50);
    let (_, link) = text.split_once("<p><a href=\"../../").unwrap();
    let (link, _) = link.split_once('"').unwrap();
    assert!(link.contains("?before="), "{link}");
    let text = page(&rig, &format!("/{link}")).await;
    assert_eq!(text.matches("<tr data-seq=").count(), 20);
    assert!(text.contains("Earlier changes"), "{text}");
    assert!(!text.contains("?before="), "{text}");
}

/// Starts a daemon that follows a site by so many Sources; every other one fails, because nothing is at its address. Waits until that is
/// known of all.
pub(crate) async fn many_sources(number: usize) -> Rig {
    let nowhere = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let nowhere = nowhere.unwrap();
    let rig = Rig::start_with(polled(3), |config| {
        for number in 1..number {
            let mut source = config.sources[0].clone();
            source.name = format!("site-{number:02}").parse().unwrap();
            source.mirror = source
                .mirror
                .with_file_name(format!("mirror-{number}"))
                .into();
            if number % 2 == 1 {
                source.url = format!("http://{nowhere}/").parse().unwrap();
            }
            config.sources.push(source);
        }
    })
    .await;
    let known = eventually("the state of all", Some(rig.wakes()), async || {
        let status = rig.operator.status().await;
        let states = status.sources.iter().map(|it| it.state_with_sets());
        let states: Vec<_> = states.collect();
        let number_of = |state: &str| states.iter().filter(|it| **it == state).count();
        let is_known =
            number_of("failing") == number / 2 && number_of("in-sync") == number.div_ceil(2);
        is_known.then_some(()).ok_or(format!("{states:?}"))
    });
    known.await;
    rig
}

/// The names of the Sources in the table of the first page.
fn names(text: &str) -> Vec<&str> {
    let rows = text.split("<tr data-name=\"").skip(1);
    rows.map(|row| row.split('"').next().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_are_rows_of_a_table_which_a_form_filters() {
    let rig = many_sources(40).await;
    let text = page(&rig, "/").await;
    assert_eq!(names(&text).len(), 40, "{text}");
    assert_eq!(names(&text)[20], NAME, "those that fail are first");
    assert!(!text.contains("<article"), "{text}");
    let failing = "data-state=\"failing\"";
    assert_eq!(text.matches(failing).count(), 20, "{text}");
    assert!(
        text.contains("<code>connect</code> <span class=\"more\">next try <time")
            // On a busy machine that time has come by now.
            && (text.contains(">in ") || text.contains(">now<")),
        "{text}"
    );
    assert!(text.contains("3 changes in the last 24 hours"), "{text}");
    for (query, expected) in [
        ("name=SITE-1", 10),
        ("state=in-sync", 20),
        ("name=site-1&state=in-sync", 5),
        ("name=&state=", 40),
    ] {
        let text = page(&rig, &format!("/?{query}")).await;
        assert_eq!(names(&text).len(), expected, "{query}: {text}");
    }
    let text = page(&rig, "/?name=site-07&state=failing").await;
    assert_eq!(names(&text), ["site-07"]);
    assert!(text.contains("value=\"site-07\""), "{text}");
    assert!(text.contains("<option selected>failing</option>"), "{text}");
    let text = page(&rig, "/page/sources/site-07").await;
    assert!(
        text.contains("Failing since") && text.contains("Next try: "),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_say_what_is_paused_former_or_needs_a_restart() {
    let mut rig = many_sources(2).await;
    assert_eq!(rig.operator.post("/sources/sample/pause").await.0, 202);
    let text = page(&rig, "/").await;
    let row = "<tr data-name=\"sample\" data-state=\"paused\">";
    assert!(text.contains(row), "{text}");
    let resume = "sources/sample/resume?back=front\"";
    assert!(text.contains(resume), "{text}");
    // What stands in backticks elsewhere is code here.
    let code = "<code>resyncd resume sample</code> resumes it";
    assert!(text.contains(code) && !text.contains('`'), "{text}");
    let text = page(&rig, "/page/sources/sample").await;
    let resume = "sources/sample/resume?back=source\"";
    assert!(
        text.contains("Paused since") && text.contains(resume),
        "{text}"
    );
    assert!(!text.contains("sources/sample/pause"), "{text}");

    let mut changed = rig.config.clone();
    changed.state_dir = rig.folder.path().join("elsewhere");
    rig.daemon().reload(changed).await.unwrap();
    let text = page(&rig, "/").await;
    let key = "only a restart applies: <code>state_dir</code>.";
    assert!(text.contains(key), "{text}");
    rig.stop_daemon().await;
    rig.config.sources.clear();
    rig.start_daemon().await;
    let text = page(&rig, "/").await;
    assert!(
        text.contains("<code>resyncd config --starter URL</code>") && names(&text).is_empty(),
        "{text}"
    );
    assert!(
        text.contains("<strong>sample</strong> is not followed any more. 3 resources"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_found_by_a_part_of_their_uris() {
    let rig = Rig::start(polled(70)).await;
    rig.settled().await;
    let find = |part: &str| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        format!("/page/find?{}", query.append_pair("part", part).finish())
    };
    let base = rig.source.base().to_string();
    for (part, expected) in [
        ("r0007", 1),
        ("res/r001", 10),
        (" r0007 ", 1),
        ("R0007", 0),
        ("%", 0),
        ("nothing", 0),
        (&format!("{base}set1/res/r002"), 10),
        (&base.replacen("http:", "https:", 1), 0),
        ("http://elsewhere.example/", 0),
        ("http", 50),
    ] {
        let text = page(&rig, &find(part)).await;
        let rows = text.matches("<td class=\"uri\">").count();
        assert_eq!(rows, expected, "{part}: {text}");
        assert_eq!(text.contains("Look further"), expected == 50, "{part}");
    }
    let text = page(&rig, &find("r00")).await;
    let (link, _) = text.split_once("\">Look further").unwrap();
    let (_, link) = link.rsplit_once("href=\"").unwrap();
    let link = link.replace("&#38;", "&");
    let text = page(&rig, &format!("/page/find{link}")).await;
    assert_eq!(text.matches("<td class=\"uri\">").count(), 20, "{text}");
    assert!(
        !text.contains("Look further") && text.contains("r0050.txt"),
        "{text}"
    );
    let uri = rig.uri("r0007.txt");
    let exact = send(|| browse(&rig, Method::GET, &find(&uri))).await;
    assert_eq!(exact.status(), StatusCode::SEE_OTHER);
    let location = exact.headers()[LOCATION].to_str().unwrap();
    assert_eq!(location, format!("..{}", resource_page(&uri)));
}

/// The page of the file of a resource.
fn file_page(uri: &str) -> String {
    resource_page(uri).replacen("resource", "file", 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_shown_in_a_sandbox_and_never_from_outside_the_mirror() {
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand what a picture has";
    let rig = Rig::start(polled(3)).await;
    rig.idle().await;
    let html = "<!DOCTYPE html><script>alert(1)</script>";
    rig.source.create(SET, "page.html", html);
    rig.source.create(
        SET,
        "image.svg",
        "<svg xmlns='http://www.w3.org/2000/svg'/>",
    );
    rig.source.create(SET, "picture.html", PNG.to_vec());
    rig.source.create(SET, "long.txt", vec![b'x'; 5 << 20]);
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    rig.settled().await;
    let text = "text/plain; charset=utf-8";
    for (name, media_type, length) in [
        ("page.html", text, html.len()),
        ("image.svg", text, 41),
        ("picture.html", "image/png", PNG.len()),
        ("long.txt", text, 4 << 20),
    ] {
        let path = file_page(&rig.uri(name));
        let answer = send(|| browse(&rig, Method::GET, &path)).await;
        assert_eq!(answer.status(), StatusCode::OK, "{name}");
        let headers = answer.headers().clone();
        for (header, value) in [
            ("content-type", media_type),
            ("content-security-policy", "default-src 'none'; sandbox"),
            ("x-content-type-options", "nosniff"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            let found: Vec<_> = headers.get_all(header).iter().collect();
            assert_eq!(found, [value], "{name} {header}");
        }
        assert_eq!(answer.bytes().await.unwrap().len(), length, "{name}");
        // No link of another site leads there.
        let link = send(|| follow_link(&rig, &path)).await;
        assert_eq!(link.status(), StatusCode::FORBIDDEN, "{name}");
    }
    let text = page(&rig, &resource_page(&rig.uri("page.html"))).await;
    let excerpt = "&#60;script&#62;alert(1)&#60;/script&#62;</pre>";
    assert!(
        text.contains(excerpt) && !text.contains("<script>"),
        "{text}"
    );
    let text = page(&rig, &resource_page(&rig.uri("picture.html"))).await;
    assert!(
        text.contains("<img class=\"preview\" src=\"../page/file?"),
        "{text}"
    );

    // Somebody replaces the file by a symlink that leads out of the mirror.
    let secret = rig.folder.path().join("secret");
    std::fs::write(&secret, "a secret").unwrap();
    let uri = rig.source.resource_uri(SET, "r0001.txt");
    let file = rig.config.sources[0].mirror.join(path_of(&uri));
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&secret, &file).unwrap();
    for (name, code) in [
        ("r0001.txt", "path-blocked"),
        ("unknown.txt", "missing-file"),
    ] {
        let (status, _, text) = answer(&rig, &file_page(&rig.uri(name))).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{name}");
        assert!(text.contains(code) && !text.contains("a secret"), "{text}");
    }
    let text = page(&rig, &resource_page(&rig.uri("r0001.txt"))).await;
    assert!(!text.contains("a secret"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn first_copy_shows_what_is_done_of_what_is_known() {
    let source = SampleSource::start(polled(20)).await.unwrap();
    for number in 5..20 {
        let path = format!("/set1/res/r{number:04}.txt");
        source.fail(&path, Fault::Status(503), usize::MAX);
    }
    let rig = Rig::follow(source, |_| {}).await;
    rig.until("five are copied", |set| {
        (set.state.as_str(), set.resources, set.pending) == ("baseline", 5, 15)
    })
    .await;
    let text = page(&rig, &format!("/page/sources/{NAME}")).await;
    let progress = "5 of 20 resources that are known so far (25 %)";
    assert!(text.contains(progress), "{text}");
    let text = page(&rig, "/").await;
    let row = "<span class=\"state baseline\">baseline</span>";
    assert!(text.contains(row) && text.contains(" 25 %</td>"), "{text}");
}
