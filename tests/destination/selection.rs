//! Selecting resources by their types, their collections and the metadata that describes them (sections 14.5 and 14.7).

use std::collections::BTreeMap;
use std::time::Duration;

use resyncd::config::{Config, Filter};
use resyncd_core::{MediaRange, Selection};
use resyncd_testkit::{ChannelHub, SampleOptions, SampleSource};

use crate::support::{FeedLine, Rig, eventually, resources, soon};

const LIST: &str = "/set1/resourcelist.xml";
const DC: &str = "http://purl.org/dc/terms/";
const XMLNS: &str = "xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\"";

pub(super) fn selecting(types: &[&str], collections: &[&str], profiles: &[&str]) -> Filter {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let types = types.iter().map(|it| MediaRange::parse(it).unwrap());
    let selection = Selection::new(types.collect(), texts(collections), texts(profiles));
    Filter::selecting::<&str>(&[], &[], selection).unwrap()
}

/// An entry of day `day` of January 2026, with these elements after `lastmod`.
fn entry(rig: &Rig, name: &str, day: u32, more: &str) -> String {
    let loc = rig.uri(name);
    format!("<url><loc>{loc}</loc><lastmod>2026-01-{day:02}T00:00:00Z</lastmod>{more}</url>\n")
}

fn type_of(media_type: &str) -> String {
    format!("<rs:md type=\"{media_type}\"/>")
}

/// Serves the Resource List as of day `day` of February 2026.
fn put_list(rig: &Rig, day: u32, entries: &[String]) {
    let md = format!("<rs:md capability=\"resourcelist\" at=\"2026-02-{day:02}T00:00:00Z\"/>");
    let list = format!("<urlset {XMLNS}>{md}\n{}</urlset>", entries.concat());
    rig.source.put_document(LIST, "application/xml", list);
}

fn put(rig: &Rig, name: &str, media_type: &str) {
    let path = format!("/set1/res/{name}");
    rig.source
        .put_document(&path, media_type, format!("bytes of {name}"));
}

fn hits(rig: &Rig, name: &str) -> u64 {
    rig.source.hits(&format!("/set1/res/{name}"))
}

/// A Source that is polled every second; the caller serves its list, and lets it be read.
async fn polled(change: impl FnOnce(&mut Config)) -> Rig {
    let options = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(0)
    };
    let source = SampleSource::start(options).await.unwrap();
    source.fail(LIST, resyncd_testkit::Fault::Status(503), usize::MAX);
    Rig::follow(source, |config| {
        config.sources[0].poll_interval = Duration::from_secs(1);
        change(config);
    })
    .await
}

/// Waits until the mirror has exactly these of the named resources, and everything is in sync.
pub(super) async fn until_mirrored(rig: &Rig, all: &[&str], wanted: &[&str]) {
    eventually(
        "selected resources mirrored",
        Some(rig.wakes()),
        async || {
            let has = |name: &&&str| rig.mirrored(name).is_some();
            let mirrored: Vec<&str> = all.iter().filter(has).copied().collect();
            if mirrored == wanted {
                Ok(())
            } else {
                Err(format!("{mirrored:?}"))
            }
        },
    )
    .await;
    let count = wanted.len() as u64;
    rig.until("in sync", |set| {
        set.state == "in-sync" && set.resources == count && set.pending == 0 && set.failed == 0
    })
    .await;
}

/// Waits until a list that is served now was read.
async fn until_read_again(rig: &Rig) {
    // The answer to the next but one request was begun after this.
    let hits = rig.source.hits(LIST);
    rig.source.wait_for_hits(LIST, hits + 3).await;
    rig.until("in sync", |set| set.state == "in-sync" && set.pending == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_selected_types_are_mirrored_and_others_requested_once() {
    const ALL: [&str; 4] = ["a.pdf", "b.html", "c", "d"];
    let mut rig = polled(|config| {
        config.sources[0].filter = selecting(&["Application/PDF; version=1"], &[], &[]);
    })
    .await;
    let list = |day: u32, day_of_c: u32| {
        let entries = [
            entry(&rig, "a.pdf", 1, &type_of("application/pdf")),
            entry(&rig, "b.html", 1, &type_of("text/html")),
            entry(&rig, "c", day_of_c, ""),
            entry(&rig, "d", 1, ""),
        ];
        put_list(&rig, day, &entries);
    };
    put(&rig, "a.pdf", "text/plain");
    put(&rig, "b.html", "text/html");
    put(&rig, "c", "text/html; charset=utf-8");
    put(&rig, "d", "APPLICATION/pdf;x=y");
    list(1, 1);
    rig.source.heal(LIST);
    until_mirrored(&rig, &ALL, &["a.pdf", "d"]).await;
    assert_eq!((hits(&rig, "b.html"), hits(&rig, "c")), (0, 1));
    // The same statement is not requested again, a new one is.
    list(2, 1);
    until_read_again(&rig).await;
    assert_eq!((hits(&rig, "b.html"), hits(&rig, "c")), (0, 1));
    list(3, 2);
    eventually(
        "the new version is requested",
        Some(rig.wakes()),
        async || {
            let hits = hits(&rig, "c");
            if hits == 2 {
                Ok(())
            } else {
                Err(hits.to_string())
            }
        },
    )
    .await;
    until_mirrored(&rig, &ALL, &["a.pdf", "d"]).await;
    // What was not selected is fetched once it is; what is not any more stays.
    rig.stop_daemon().await;
    rig.config.sources[0].filter = selecting(&["text/*"], &[], &[]);
    rig.start_daemon().await;
    until_mirrored(&rig, &ALL, &ALL).await;
    until_read_again(&rig).await;
    assert_eq!((hits(&rig, "b.html"), hits(&rig, "c")), (1, 3));
    assert_eq!((hits(&rig, "a.pdf"), hits(&rig, "d")), (1, 1));
    // What the Source deletes goes, selected or not.
    put_list(
        &rig,
        4,
        &[
            entry(&rig, "a.pdf", 1, &type_of("application/pdf")),
            entry(&rig, "c", 2, ""),
        ],
    );
    until_mirrored(&rig, &ALL, &["a.pdf", "c"]).await;
}

/// That a resource, or those of a list, are members of a collection.
fn collection(number: u32) -> String {
    format!("<rs:ln rel=\"collection\" href=\"http://e.org/c{number}\"/>")
}

/// An `rs:ln` to a resource of the set.
fn link(rig: &Rig, rel: &str, name: &str) -> String {
    format!("<rs:ln rel=\"{rel}\" href=\"{}\"/>", rig.uri(name))
}

fn profile() -> String {
    format!("<rs:ln rel=\"profile\" href=\"{DC}\"/>")
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_is_selected_by_the_metadata_that_describes_it_whichever_comes_first() {
    const ALL: [&str; 8] = ["a", "a.dc", "b", "b.dc", "c", "c.mods", "d", "e"];
    let mut rig = polled(|config| {
        config.sources[0].filter = selecting(&[], &[], &[DC]);
    })
    .await;
    for name in ALL {
        put(&rig, name, "text/plain");
    }
    let mods = "<rs:ln rel=\"profile\" href=\"http://www.loc.gov/mods/v3\"/>";
    let entries = [
        // The resource first, and only it states the relation; and the other way round.
        entry(&rig, "a", 1, &link(&rig, "describedBy", "a.dc")),
        entry(&rig, "a.dc", 1, &profile()),
        entry(
            &rig,
            "b.dc",
            1,
            &(profile() + &link(&rig, "describes", "b")),
        ),
        entry(&rig, "b", 1, ""),
        entry(&rig, "c", 1, &link(&rig, "describedby", "c.mods")),
        entry(
            &rig,
            "c.mods",
            1,
            &(mods.to_owned() + &link(&rig, "describes", "c")),
        ),
        entry(&rig, "d", 1, ""),
        entry(&rig, "e", 1, &link(&rig, "describedby", "a.dc")),
    ];
    put_list(&rig, 1, &entries);
    rig.source.heal(LIST);
    until_mirrored(&rig, &ALL, &["a", "a.dc", "b", "b.dc", "e"]).await;
    // A record that appears later selects what was read long before.
    let mut more = entries.to_vec();
    more.push(entry(
        &rig,
        "d.dc",
        2,
        &(profile() + &link(&rig, "describes", "d")),
    ));
    put(&rig, "d.dc", "text/plain");
    put_list(&rig, 2, &more);
    let all = [ALL.as_slice(), &["d.dc"]].concat();
    let wanted = ["a", "a.dc", "b", "b.dc", "d", "e", "d.dc"];
    until_mirrored(&rig, &all, &wanted).await;
    assert_eq!((hits(&rig, "c"), hits(&rig, "c.mods")), (0, 0));
    // So does another selection.
    rig.stop_daemon().await;
    rig.config.sources[0].filter = selecting(&[], &[], &["http://www.loc.gov/mods/v3"]);
    rig.start_daemon().await;
    until_mirrored(&rig, &all, &all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn record_selects_by_what_it_gives_although_it_is_not_wanted_itself() {
    const ALL: [&str; 4] = ["a.pdf", "a.xml", "b.pdf", "c.pdf"];
    let rig = polled(|config| {
        config.sources[0].filter = selecting(&["application/pdf"], &["http://e.org/c1"], &[DC]);
    })
    .await;
    for name in ALL {
        put(&rig, name, "application/pdf");
    }
    // In a ring: each describes the other.
    let record = type_of("text/xml") + &profile() + &link(&rig, "describes", "a.pdf");
    let record = record + &link(&rig, "describedby", "a.pdf");
    let own = link(&rig, "describedby", "a.xml") + &link(&rig, "describes", "a.xml");
    let entries = [
        entry(&rig, "a.pdf", 1, &(own + &collection(1))),
        entry(&rig, "a.xml", 1, &record),
        // It is described, and a member of another collection.
        entry(
            &rig,
            "b.pdf",
            1,
            &(link(&rig, "describedby", "a.xml") + &collection(2)),
        ),
        entry(&rig, "c.pdf", 1, &collection(1)),
    ];
    put_list(&rig, 1, &entries);
    rig.source.heal(LIST);
    until_mirrored(&rig, &ALL, &["a.pdf"]).await;
    until_read_again(&rig).await;
    until_mirrored(&rig, &ALL, &["a.pdf"]).await;
    let hits: Vec<u64> = ALL.iter().map(|name| hits(&rig, name)).collect();
    assert_eq!(hits, [1, 0, 0, 0]);
}

/// The lines of the feed that state a relation, by the name of the resource: `FIELD: VALUES`.
fn stated(lines: &[FeedLine]) -> BTreeMap<String, Vec<String>> {
    let mut stated: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines {
        let name = line.uri.rsplit('/').next().unwrap();
        for (field, uris) in [
            ("describes", &line.describes),
            ("describedby", &line.describedby),
            ("profile", &line.profile),
            ("collections", &line.collections),
        ] {
            if let Some(uris) = uris {
                let fact = format!("{field}: {}", uris.join(" "));
                stated.entry(name.to_owned()).or_default().push(fact);
            }
        }
    }
    stated
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_and_resource_state_what_describes_what() {
    const ALL: [&str; 3] = ["a", "a.dc", "b"];
    let rig = polled(|_| {}).await;
    for name in ALL {
        put(&rig, name, "text/plain");
    }
    let record = profile() + &link(&rig, "describes", "a") + &link(&rig, "duplicate", "c");
    let own = link(&rig, "describedBy", "a.mods") + &collection(1) + &collection(2);
    let entries = [
        entry(&rig, "a", 1, &own),
        entry(&rig, "a.dc", 1, &record),
        entry(&rig, "b", 1, ""),
    ];
    put_list(&rig, 1, &entries);
    rig.source.heal(LIST);
    until_mirrored(&rig, &ALL, &ALL).await;
    let facts = |facts: &[String]| facts.to_vec();
    let expected = BTreeMap::from([
        (
            "a".to_owned(),
            facts(&[
                format!("describedby: {}", rig.uri("a.mods")),
                "collections: http://e.org/c1 http://e.org/c2".to_owned(),
            ]),
        ),
        (
            "a.dc".to_owned(),
            facts(&[
                format!("describes: {}", rig.uri("a")),
                format!("profile: {DC}"),
            ]),
        ),
    ]);
    assert_eq!(stated(&rig.operator.changes(0).await), expected);
    // Only the record states that it describes the resource.
    let of = async |name: &str| {
        let found = rig.operator.resource(&rig.uri(name)).await.unwrap();
        [found["describes"].clone(), found["describedby"].clone()]
    };
    let null = serde_json::Value::Null;
    let both = serde_json::json!([rig.uri("a.mods"), rig.uri("a.dc")]);
    assert_eq!(of("a").await, [null.clone(), both]);
    assert_eq!(
        of("a.dc").await,
        [serde_json::json!([rig.uri("a")]), null.clone()]
    );
    assert_eq!(of("b").await, [null.clone(), null]);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_of_links_alone_is_a_line_only_for_those_who_ask() {
    let rig = polled(|_| {}).await;
    put(&rig, "a", "text/plain");
    let own = link(&rig, "describedby", "a.dc") + &collection(1);
    put_list(&rig, 1, &[entry(&rig, "a", 1, &own)]);
    rig.source.heal(LIST);
    until_mirrored(&rig, &["a"], &["a"]).await;
    let linked = async |since: i64| -> Vec<FeedLine> {
        let (_, body) = rig
            .operator
            .get(&format!("/changes?since={since}&links=1"))
            .await;
        let lines = body.lines().map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &FeedLine| line.change == "linked")
            .collect()
    };
    assert_eq!(linked(0).await, []);
    let last = rig.operator.last_change().await;
    let mut events = rig
        .operator
        .events_of(&format!("since={last}&links=1"), None)
        .await;
    for (day, links) in [(2, collection(2)), (3, String::new())] {
        put_list(&rig, day, &[entry(&rig, "a", 1, &links)]);
        let count = (day - 1) as usize;
        let lines = eventually("the links are others", Some(rig.wakes()), async || {
            let lines = linked(last).await;
            if lines.len() == count {
                Ok(lines)
            } else {
                Err(format!("{lines:?}"))
            }
        })
        .await;
        let line = lines.last().unwrap();
        let expected = (!links.is_empty()).then(|| vec!["http://e.org/c2".to_owned()]);
        assert_eq!((&line.describedby, &line.collections), (&None, &expected));
        assert_eq!(line.length, Some("bytes of a".len() as u64));
    }
    let mut received = String::new();
    // There may be keep-alives before.
    while !received.contains("\"change\":\"linked\"") {
        let chunk = soon("an event", events.chunk()).await.unwrap().unwrap();
        received += &String::from_utf8_lossy(&chunk);
    }
    // The file was not requested again, and those who do not ask have no such line.
    assert_eq!(hits(&rig, "a"), 1);
    assert_eq!(rig.operator.last_change().await, last);
    let known = rig.operator.resource(&rig.uri("a")).await.unwrap();
    assert_eq!(known["links"], serde_json::json!([]));
    until_read_again(&rig).await;
    assert_eq!(linked(last).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn record_of_the_sample_source_and_its_resource_are_paired() {
    let rig = Rig::start(SampleOptions {
        metadata: true,
        ..resources(2)
    })
    .await;
    assert_eq!(rig.settled().await.resources, 3);
    let record = rig.uri("r0000.dc.xml");
    let found = rig.operator.resource(&rig.uri("r0000.txt")).await.unwrap();
    assert_eq!(found["describedby"], serde_json::json!([record]));
    let last = rig.operator.last_change().await;
    rig.source.update("set1", "r0000.txt", "new");
    rig.source.notify_and_publish("set1").await.unwrap();
    let line = rig.until_in_feed(last, "r0000.txt").await;
    assert_eq!(line.describedby, Some(vec![record]));
    assert!(line.collections.is_some());
}
