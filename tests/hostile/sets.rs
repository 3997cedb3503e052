//! Sets without end: a Source whose sets come and go leaves memory, database, status and metrics as they were; former sets with files
//! count towards `[limits] sets`; and new sets have a pace. `RESYNCD_SETS` is how many come and go.

use std::fs;

use resourcesync::{Capability, ChangeKind};
use resyncd::status::SourceStatus;
use resyncd_testkit::{Fault, SampleSource};
use rusqlite::{Connection, OpenFlags};
use url::Url;

use crate::hostile::PROCESSOR;
use crate::support::process::Home;
use crate::support::site::{entry, urlset};
use crate::support::{NAME, SET, eventually, files, resources, soon};

const DESCRIPTION: &str = "/.well-known/resourcesync";
const XML: &str = "application/xml";
/// How many sets come and go, unless `RESYNCD_SETS` is set.
const SETS: usize = 240;
/// How many a reading of the description names.
const A_READING: usize = 80;

/// A document of a set, which the sample Source may not know.
fn document_of(source: &SampleSource, set: &str, file: &str) -> Url {
    source.base().join(&format!("/{set}/{file}")).unwrap()
}

/// Names these sets in the Source Description, and has a framework notification ask for its next reading.
async fn advertise(source: &SampleSource, sets: &[String]) {
    let marked = r#"<rs:md capability="capabilitylist"/>"#;
    let entries: String = sets
        .iter()
        .map(|set| {
            entry(
                document_of(source, set, "capabilitylist.xml").as_str(),
                marked,
            )
        })
        .collect();
    source.put_document(DESCRIPTION, XML, urlset("description", "", &entries));
    let uri = source.base().join(DESCRIPTION).unwrap();
    let news = source.framework_entry(uri, Capability::Description, ChangeKind::Updated);
    let notification = source.framework(SET, &[news]);
    for delivery in source.publish(&notification).await.unwrap() {
        assert!(delivery.is_accepted(), "{delivery:?}");
    }
}

async fn source_status(home: &Home) -> Option<SourceStatus> {
    let status = home.operator.try_status().await?;
    status.sources.into_iter().next()
}

/// The names of the sets that are followed, in the order of the names.
fn followed(status: &SourceStatus) -> Vec<String> {
    let names = status.sets.iter().map(|set| {
        let path = set.capability_list.rsplit('/').nth(1);
        path.unwrap_or_default().to_owned()
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Waits until the Source's status satisfies a condition.
async fn until(home: &Home, what: &str, wanted: impl Fn(&SourceStatus) -> bool) -> SourceStatus {
    eventually(what, None, async || match source_status(home).await {
        Some(status) if wanted(&status) => Ok(status),
        status => Err(format!("{status:?}")),
    })
    .await
}

/// Waits until these sets are followed, no others, and all of them were polled.
async fn until_followed(home: &Home, sets: &[String]) {
    let mut sets = sets.to_vec();
    sets.sort();
    let wanted = |status: &SourceStatus| {
        followed(status) == sets && status.sets.iter().all(|set| set.last_poll_at.is_some())
    };
    until(home, "the sets are followed", wanted).await;
}

/// What a daemon has of its sets, as far as it is seen from outside.
#[derive(Debug)]
struct Footprint {
    /// The length of `GET /status`, in bytes.
    status: usize,
    /// The lines of `GET /metrics`.
    samples: usize,
    /// The rows of the database, but for its own bookkeeping, and those of the inbox.
    rows: i64,
    /// The pages of the database that are used, in bytes.
    database: i64,
    /// The resident memory, in bytes.
    memory: u64,
}

impl Footprint {
    async fn of(home: &Home, process: u32) -> Self {
        let (_, status) = home.operator.get("/status").await;
        let (_, metrics) = home.operator.get("/metrics").await;
        let database = home.folder().join("state/resyncd.db");
        let sql = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let pragma = |name: &str| -> i64 {
            sql.pragma_query_value(None, name, |row| row.get(0))
                .unwrap()
        };
        let mut names = sql
            .prepare(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('inbox', 'delivered') AND name NOT LIKE 'sqlite%'",
            )
            .unwrap();
        let names = names.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let rows = names.map(|name| {
            let count = format!("SELECT COUNT(*) FROM {}", name.unwrap());
            sql.query_row(&count, [], |row| row.get::<_, i64>(0))
                .unwrap()
        });
        Self {
            status: status.len(),
            samples: metrics.lines().count(),
            rows: rows.sum(),
            database: (pragma("page_count") - pragma("freelist_count")) * pragma("page_size"),
            memory: resident_memory(process),
        }
    }
}

fn resident_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let digits = line.unwrap().replace(|c: char| !c.is_ascii_digit(), "");
    digits.parse::<u64>().unwrap() * 1024
}

/// A Source of one set whose channel announces what changes above the sets.
async fn source_of_one_set(number_of_resources: usize) -> SampleSource {
    SampleSource::start(resources(number_of_resources))
        .await
        .unwrap()
}

/// Serves a set with an empty list, one resource that is gone, and long URIs that it offers.
fn serve_set(source: &SampleSource, set: &str) {
    let uri = |file: &str| document_of(source, set, file);
    let long = format!("list.xml?{}", "x".repeat(6000));
    let offered =
        |uri, capability: &str| entry(uri, &format!(r#"<rs:md capability="{capability}"/>"#));
    let offers = offered(uri(&long).as_str(), "resourcelist");
    source.put_document(
        uri("capabilitylist.xml").path(),
        XML,
        urlset("capabilitylist", "", &offers),
    );
    let list = uri(&long);
    let path = format!("{}?{}", list.path(), list.query().unwrap());
    let gone = entry(uri("gone").as_str(), "");
    source.put_document(&path, XML, urlset("resourcelist", "", &gone));
}

#[tokio::test(flavor = "multi_thread")]
async fn sets_that_come_and_go_leave_memory_and_database_as_they_were() {
    let _permit = PROCESSOR.write().await;
    let sets = std::env::var("RESYNCD_SETS").map_or(SETS, |sets| sets.parse().unwrap());
    let source = source_of_one_set(3).await;
    let home = Home::new(&source.url(), "[limits]\nsets = 5000");
    let daemon = home.run();
    home.settled(&source).await;
    let mut before = None;
    let mut known = 0;
    while known < sets {
        let names = known..known + A_READING;
        let mut names: Vec<String> = names.map(|number| format!("come{number}")).collect();
        names.iter().for_each(|set| serve_set(&source, set));
        // One of them has channels.
        source.add_set(&format!("channels{known}"));
        names.push(format!("channels{known}"));
        let its_resources = format!("/channels{known}/res/*");
        source.fail(&its_resources, Fault::Status(404), usize::MAX);
        known += names.len();
        names.push(SET.to_owned());
        advertise(&source, &names).await;
        until_followed(&home, &names).await;
        advertise(&source, &[SET.to_owned()]).await;
        until_followed(&home, &[SET.to_owned()]).await;
        if before.is_none() {
            before = Some(settled_footprint(&home, &source, daemon.id(), None).await);
        }
    }
    let before = before.unwrap();
    let after = settled_footprint(&home, &source, daemon.id(), Some(&before)).await;
    println!("{before:?} {after:?}");
    assert!(
        after.memory < before.memory + (64 << 20),
        "{before:?} {after:?}"
    );
}

/// The footprint once no subscription is to be ended any more, and it is no larger than the one before.
async fn settled_footprint(
    home: &Home,
    source: &SampleSource,
    process: u32,
    before: Option<&Footprint>,
) -> Footprint {
    home.until_status("all subscriptions have ended", |status| {
        status.unfollowed.is_empty()
    })
    .await;
    // What has ended is removed at the next reading.
    advertise(source, &[SET.to_owned()]).await;
    eventually("nothing is left of the sets", None, async || {
        let now = Footprint::of(home, process).await;
        let is_small = before.is_none_or(|before| {
            now.status <= before.status + 500
                && now.samples <= before.samples + 10
                && now.rows <= before.rows + 20
                && now.database <= before.database + (256 << 10)
        });
        if is_small {
            Ok(now)
        } else {
            Err(format!("{before:?} {now:?}"))
        }
    })
    .await
}

fn has_notice(status: &SourceStatus, code: &str) -> bool {
    status.notices.iter().any(|notice| notice.code == code)
}

#[tokio::test(flavor = "multi_thread")]
async fn former_sets_with_files_count_until_they_are_forgotten() {
    let source = source_of_one_set(3).await;
    let home = Home::new(&source.url(), "[limits]\nsets = 3");
    let _daemon = home.run();
    home.settled(&source).await;
    let names = |sets: &[&str]| -> Vec<String> { sets.iter().map(|&set| set.to_owned()).collect() };
    ["set2", "set3", "set4"]
        .iter()
        .for_each(|set| source.add_set(set));
    let first = names(&[SET, "set2", "set3"]);
    advertise(&source, &first).await;
    let mirrored = |status: &SourceStatus| {
        followed(status) == first
            && status
                .sets
                .iter()
                .all(|set| set.state == "in-sync" && set.resources == 3)
    };
    until(&home, "all sets are mirrored", mirrored).await;
    let before = files(&home.mirror);

    // Another one takes the place of two, whose files stay.
    let second = names(&[SET, "set4"]);
    advertise(&source, &second).await;
    let status = until(&home, "the limit is reported", |status| {
        followed(status) == [SET] && !status.attention.is_empty()
    })
    .await;
    assert_eq!(
        status.attention[0].code, "too-many-former-sets",
        "{status:?}"
    );
    assert!(has_notice(&status, "too-many-sets"), "{status:?}");
    assert_eq!(files(&home.mirror), before);
    // One that returns has its place.
    let third = names(&[SET, "set2"]);
    advertise(&source, &third).await;
    until(&home, "the set is followed again", |status| {
        followed(status) == third && status.sets.iter().all(|set| set.state == "in-sync")
    })
    .await;
    assert_eq!(files(&home.mirror), before);

    // Once they are forgotten there is a place.
    advertise(&source, &second).await;
    until(&home, "the set has ended again", |status| {
        followed(status) == [SET]
    })
    .await;
    let answer = home
        .operator
        .post(&format!("/sources/{NAME}/forget-former-sets"))
        .await;
    assert_eq!(answer.0, 202, "{answer:?}");
    eventually("the files are deleted", None, async || {
        match files(&home.mirror).len() {
            3 => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await;
    let status = eventually("the new set is followed", None, async || {
        advertise(&source, &second).await;
        match source_status(&home).await {
            Some(status) if followed(&status) == second => Ok(status),
            status => Err(format!("{status:?}")),
        }
    })
    .await;
    assert!(!has_notice(&status, "former-sets"), "{status:?}");
    soon("in sync", async {
        until(&home, "no attention is left", |status| {
            status.attention.is_empty() && !has_notice(status, "too-many-sets")
        })
        .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_sets_have_a_pace() {
    /// The lowest limit that is also the number of new sets at once.
    const MOST: usize = 100;
    const NEW: usize = 40;
    let source = source_of_one_set(0).await;
    let home = Home::new(&source.url(), &format!("[limits]\nsets = {MOST}"));
    let _daemon = home.run();
    home.settled(&source).await;
    // They leave nothing behind, so that there is a place for each; but not at once.
    let mut came = 1;
    let status = loop {
        let names = came..came + NEW;
        let mut names: Vec<String> = names.map(|number| format!("come{number}")).collect();
        names.iter().for_each(|set| serve_empty_set(&source, set));
        names.push(SET.to_owned());
        advertise(&source, &names).await;
        let status = until(&home, "the description is read", |status| {
            let now = followed(status);
            let are_known = now.iter().all(|set| names.contains(set));
            let is_read = now.len() == names.len() || has_notice(status, "too-many-new-sets");
            are_known && is_read && status.state == "ok"
        })
        .await;
        came += followed(&status).len() - 1;
        if has_notice(&status, "too-many-new-sets") {
            break status;
        }
        assert!(came <= MOST, "{came} sets came");
    };
    assert_eq!(came, MOST, "{:?}", followed(&status));
    assert!(
        status.attention.is_empty(),
        "it passes by itself: {status:?}"
    );
}

/// Serves a set without any resource.
fn serve_empty_set(source: &SampleSource, set: &str) {
    let uri = |file: &str| document_of(source, set, file);
    let offers = entry(
        uri("list.xml").as_str(),
        r#"<rs:md capability="resourcelist"/>"#,
    );
    source.put_document(
        uri("capabilitylist.xml").path(),
        XML,
        urlset("capabilitylist", "", &offers),
    );
    source.put_document(uri("list.xml").path(), XML, urlset("resourcelist", "", ""));
}
