//! The feed: where its readers continue, and what they learn when they can't.

use std::fs;
use std::path::Path;
use std::process::Command;

use reqwest::{Response, StatusCode};
use resyncd_testkit::{Fault, SampleSource};
use serde_json::Value;

use crate::support::{FeedLine, NAME, Rig, SET, resources, soon};

/// A server-sent event; `id` and `event` are empty where it has none.
#[derive(Debug)]
struct Event {
    id: String,
    event: String,
    data: String,
}

/// The events of a text, as far as they are complete. What has no data is a comment that holds the connection open.
fn events(text: &str) -> Vec<Event> {
    let complete = text
        .rsplit_once("\n\n")
        .map_or("", |(complete, _)| complete);
    let blocks = complete.split("\n\n").filter(|it| it.contains("data:"));
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let events = blocks.map(|block| Event {
        id: field(block, "id:"),
        event: field(block, "event:"),
        data: field(block, "data:"),
    });
    events.collect()
}

/// Reads so many events of a stream, or more; fewer if it ends before.
async fn read(response: &mut Response, least: usize) -> Vec<Event> {
    let mut text = String::new();
    while events(&text).len() < least {
        let Some(chunk) = soon("an event", response.chunk()).await.unwrap() else {
            break;
        };
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    events(&text)
}

fn lines(events: &[Event]) -> Vec<FeedLine> {
    let lines = events
        .iter()
        .map(|event| serde_json::from_str(&event.data).unwrap());
    lines.collect()
}

/// Checks that a stream is nothing but one `reset`, and returns its code.
async fn reset_code(mut response: Response) -> String {
    assert_eq!(response.status(), StatusCode::OK);
    let events = read(&mut response, usize::MAX).await;
    assert_eq!(events.len(), 1, "{events:?}");
    let Event { id, event, data } = &events[0];
    assert_eq!((id.as_str(), event.as_str()), ("", "reset"));
    let data: Value = serde_json::from_str(data).unwrap();
    assert!(data["feed"].is_string(), "{data}");
    data["error"]["code"].as_str().unwrap().to_owned()
}

/// The status of an answer, and the code of its error.
async fn failure(rig: &Rig, path: &str) -> (u16, String) {
    let (status, body) = rig.operator.get(path).await;
    let body: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"));
    let code = body["error"]["code"].as_str().unwrap().to_owned();
    (status.as_u16(), code)
}

fn header(response: &Response, name: &str) -> String {
    let value = response.headers().get(name).unwrap();
    value.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn position_of_another_feed_or_beyond_the_end_is_a_conflict() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let all = rig.operator.changes(0).await;
    let (feed, last) = (all[0].feed.clone(), all[2].seq);
    assert!(all.iter().all(|line| line.feed == feed));

    let get = async |query: String| rig.operator.response(&format!("/changes?{query}")).await;
    let page = get(format!("since=0&feed={feed}&limit=2")).await;
    assert_eq!(page.status(), StatusCode::OK);
    assert_eq!(header(&page, "Resyncd-Feed"), feed);
    assert_eq!(header(&page, "Resyncd-Seq"), all[1].seq.to_string());
    let empty = get(format!("since={last}")).await;
    assert_eq!(header(&empty, "Resyncd-Seq"), last.to_string());

    let beyond = last + 1;
    for (query, expected) in [
        (format!("since={beyond}"), (409, "beyond-feed")),
        (format!("since={beyond}&feed={feed}"), (409, "beyond-feed")),
        ("since=0&feed=0000000000000000".into(), (409, "other-feed")),
        ("feed=0000000000000000".into(), (409, "other-feed")),
        ("since=abc".into(), (400, "bad-query")),
    ] {
        let (status, code) = failure(&rig, &format!("/changes?{query}")).await;
        assert_eq!((status, code.as_str()), expected, "{query}");
    }
    let refused = get(format!("since={beyond}")).await;
    assert_eq!(header(&refused, "Resyncd-Feed"), feed);

    for (query, id, expected) in [
        (format!("since={beyond}"), None, "beyond-feed"),
        ("since=0&feed=other".into(), None, "other-feed"),
        ("since=0".into(), Some(beyond.to_string()), "beyond-feed"),
        (
            "since=0".into(),
            Some(format!("other:{last}")),
            "other-feed",
        ),
        ("since=0".into(), Some("nonsense".into()), "other-feed"),
    ] {
        let response = rig.operator.events_of(&query, id.as_deref()).await;
        assert_eq!(reset_code(response).await, expected, "{query} {id:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_learns_that_the_database_was_lost() {
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let before = rig.operator.changes(0).await.remove(1);
    rig.stop_daemon().await;
    rig.start_daemon().await;
    // The same database, the same feed.
    assert_eq!(rig.operator.changes(0).await[1], before);
    rig.stop_daemon().await;
    fs::remove_dir_all(&rig.config.state_dir).unwrap();
    rig.start_daemon().await;
    rig.settled().await;
    let position = format!("since={}&feed={}", before.seq, before.feed);
    let (status, code) = failure(&rig, &format!("/changes?{position}")).await;
    assert_eq!((status, code.as_str()), (409, "other-feed"));
    let id = format!("{}:{}", before.feed, before.seq);
    let resumed = rig.operator.events_of("feed=", Some(&id)).await;
    assert_eq!(reset_code(resumed).await, "other-feed");
    let now = rig.operator.changes(0).await;
    assert_ne!(now[0].feed, before.feed);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_resumes_after_the_last_event_that_was_received() {
    let rig = Rig::start(resources(5)).await;
    rig.settled().await;
    let all = rig.operator.changes(0).await;
    let last = &all[4];
    for (query, expected) in [
        ("since=0", last.seq.to_string()),
        ("since=0&feed=", format!("{}:{}", last.feed, last.seq)),
    ] {
        let mut stream = rig.operator.events_of(query, None).await;
        let received = read(&mut stream, 2).await;
        drop(stream);
        // As a browser does: with the query of the first request.
        let id = &received[1].id;
        let mut stream = rig.operator.events_of(query, Some(id)).await;
        let resumed = read(&mut stream, 3).await;
        assert_eq!(lines(&resumed), all[2..], "{query}");
        assert_eq!(resumed[2].id, expected);
    }
    // What happens while no stream is open is not missed.
    rig.source.update(SET, "r0001.txt", "meanwhile");
    rig.source.notify_and_publish(SET).await.unwrap();
    let missed = rig.until_in_feed(last.seq, "r0001.txt").await;
    let id = format!("{}:{}", last.feed, last.seq);
    let mut stream = rig.operator.events_of("feed=", Some(&id)).await;
    assert_eq!(lines(&read(&mut stream, 1).await), [missed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_of_what_the_mirror_has_goes_on_with_the_feed() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let since = rig.operator.last_change().await;
    rig.source.delete(SET, "r0000.txt");
    rig.source.update(SET, "r0001.txt", "updated");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_in_feed(since, "r0000.txt").await;
    rig.until_in_feed(since, "r0001.txt").await;

    let last = rig.operator.changes(since).await.pop().unwrap();
    let live = ["r0001.txt", "r0002.txt"].map(|name| rig.uri(name));
    let list = rig.source.capability_list(SET);
    let mut position = String::new();
    for query in [
        String::new(),
        format!("source={NAME}"),
        format!("set={list}"),
        format!("source={NAME}&set={list}"),
    ] {
        let response = rig.operator.response(&format!("/resources?{query}")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(header(&response, "Content-Type"), "application/x-ndjson");
        let [feed, seq] = ["Resyncd-Feed", "Resyncd-Seq"].map(|name| header(&response, name));
        assert_eq!((&feed, &seq), (&last.feed, &last.seq.to_string()));
        position = format!("since={seq}&feed={feed}");
        let body = response.text().await.unwrap();
        let lines = body.lines().map(serde_json::from_str);
        let mut lines: Vec<Value> = lines.collect::<Result<_, _>>().unwrap();
        lines.sort_by_key(|line| line["uri"].to_string());
        let uris: Vec<&str> = lines.iter().filter_map(|it| it["uri"].as_str()).collect();
        assert_eq!(uris, live, "{query}");
        // A line is what is known of the resource.
        let known = rig.operator.resource(&live[0]).await.unwrap();
        assert_eq!(lines[0], known);
    }
    rig.source.update(SET, "r0002.txt", "later");
    rig.source.notify_and_publish(SET).await.unwrap();
    let later = rig.until_in_feed(last.seq, "r0002.txt").await;
    let (_, body) = rig.operator.get(&format!("/changes?{position}")).await;
    assert_eq!(serde_json::from_str::<FeedLine>(&body).unwrap(), later);

    for (query, expected) in [
        ("source=unknown", "unknown-source"),
        ("set=http://unknown.example/", "unknown-set"),
    ] {
        let (status, code) = failure(&rig, &format!("/resources?{query}")).await;
        assert_eq!((status, code.as_str()), (404, expected));
    }
}

/// Whoever begins with the listing, and goes on with the feed, need not know whether the Source could be read yet.
#[tokio::test(flavor = "multi_thread")]
async fn listing_of_a_source_without_a_set_is_empty() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let entry = source.base();
    source.fail(entry.path(), Fault::Status(503), usize::MAX);
    let list = entry.join("wanted/capabilitylist.xml").unwrap();
    source.fail(list.path(), Fault::Status(503), usize::MAX);
    let rig = Rig::follow(source, |config| config.sources[0].sets = vec![list.clone()]).await;
    for query in [
        format!("source={NAME}"),
        format!("set={list}"),
        format!("source={NAME}&set={list}"),
    ] {
        let response = rig.operator.response(&format!("/resources?{query}")).await;
        assert_eq!(response.status(), StatusCode::OK, "{query}");
        assert_eq!(header(&response, "Resyncd-Seq"), "0");
        assert_eq!(response.text().await.unwrap(), "", "{query}");
    }
    for (query, expected) in [
        ("source=unknown", "unknown-source"),
        ("set=http://unknown.example/", "unknown-set"),
    ] {
        let (status, code) = failure(&rig, &format!("/resources?{query}")).await;
        assert_eq!((status, code.as_str()), (404, expected));
    }
}

const PAGE: &str = include_str!("../../docs/tutorial/index-the-feed.md");

/// Runs a program and returns what it prints, by lines. It may request something from the daemon, which is in this process.
async fn run(program: &'static str, arguments: Vec<String>) -> Vec<String> {
    let output = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(program);
        command.args(arguments).env("NO_PROXY", "*").output()
    });
    let output = output.await.unwrap();
    let output = output.unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_the_documentation_follows_the_feed() {
    let is_missing = |program: &&&str| Command::new(**program).arg("--version").output().is_err();
    if let Some(program) = ["curl", "sqlite3"].iter().find(is_missing) {
        // `.ci/run` installs both.
        return println!("SKIPPED: {program} is not installed");
    }
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let is_index = |part: &&str| part.starts_with("sh\n") && part.contains("fts5");
    let script = PAGE.split("\n```").find(is_index).unwrap();
    let path = |name: &str| rig.folder.path().join(name);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (script_file, index_file) = (path("index.sh"), text(&path("index.db")));
    fs::write(&script_file, script.strip_prefix("sh\n").unwrap()).unwrap();
    let arguments = vec![
        text(&script_file),
        format!("http://{}", rig.config.status.listen),
        NAME.to_owned(),
        text(&rig.config.sources[0].mirror),
        index_file.clone(),
    ];
    let index = async || {
        run("sh", arguments.clone()).await;
    };
    let query = async |sql: &str| run("sqlite3", vec![index_file.clone(), sql.to_owned()]).await;
    let search = async |word: &str| {
        let found = format!("SELECT uri FROM page WHERE page MATCH '{word}' ORDER BY uri");
        query(&found).await
    };
    let publish = async |name: &str, content: Option<&str>| {
        let since = rig.operator.last_change().await;
        match content {
            Some(content) => rig.source.update(SET, name, content.to_owned()),
            None => rig.source.delete(SET, name),
        };
        rig.source.notify_and_publish(SET).await.unwrap();
        rig.until_in_feed(since, name).await;
    };
    let uris = ["r0000.txt", "r0001.txt"].map(|name| rig.uri(name));

    // Everything at first, and then what has changed.
    publish("r0000.txt", Some("the \"quick\" marmot")).await;
    index().await;
    assert_eq!(search("marmot").await, uris[..1]);
    publish("r0000.txt", Some("a badger")).await;
    publish("r0001.txt", Some("another badger")).await;
    publish("r0002.txt", None).await;
    index().await;
    assert_eq!(search("marmot").await, [""; 0]);
    assert_eq!(search("badger").await, uris);
    assert_eq!(query("SELECT COUNT(*) FROM page").await, ["2"]);
    index().await;
    assert_eq!(search("badger").await, uris);

    // What a lost database has not stated is forgotten.
    query("INSERT INTO page VALUES ('http://gone.example/', 'an old badger')").await;
    rig.stop_daemon().await;
    fs::remove_dir_all(&rig.config.state_dir).unwrap();
    rig.start_daemon().await;
    rig.settled().await;
    index().await;
    assert_eq!(query("SELECT uri FROM page ORDER BY uri").await, uris);
}
