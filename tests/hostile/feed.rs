//! A Source whose resources change all the time: its feed is bounded, and no reader misses what is newest.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use resourcesync::Link;
use resyncd::config::{Hook, HookAction};
use rusqlite::Connection;
use url::Url;

use crate::hostile::PROCESSOR;
use crate::support::{FeedLine, Rig, SET, eventually, resources};

/// How many resources change, and how many entries there are of that before the last change of each.
const RESOURCES: usize = 4;
const ENTRIES: usize = 16_000;
/// How many entries stay as they are, and how many more there are at most until a pass over them begins.
const RECENT: i64 = 10_000;
const GROWTH: i64 = 5000;
/// How long the links of an entry are at most, in the database.
const LINK_BYTES: i64 = 8 << 10;

/// As many long links as an entry of a document may have.
fn links() -> Vec<Link> {
    let target = |n| format!("http://example.org/{n}/{}", "c".repeat(150));
    let links = (0..64).map(|n| Link::new("collection", Url::parse(&target(n)).unwrap()));
    links.collect()
}

/// Adds entries to the feed, of changes of the resources that change all the time.
fn add_entries(rig: &Rig) {
    let database = Connection::open(rig.config.state_dir.join("resyncd.db")).unwrap();
    let add = format!(
        "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {ENTRIES} / {RESOURCES})
         INSERT INTO feed (applied_at, set_id, resource_id, change, path, length, changed_at, origin)
         SELECT feed.applied_at, feed.set_id, resource_id, 'u', feed.path, feed.length, feed.changed_at, origin
         FROM number JOIN feed JOIN resource ON resource.id = resource_id
         WHERE feed.change = 'c' AND uri LIKE '%/r000_.txt' AND uri < '{}' ORDER BY n",
        rig.uri(&name(RESOURCES))
    );
    assert_eq!(database.execute(&add, []).unwrap(), ENTRIES);
    let number = "UPDATE feed_number SET last = (SELECT MAX(seq) FROM feed)";
    assert_eq!(database.execute(number, []).unwrap(), 1);
}

fn name(n: usize) -> String {
    format!("r{n:04}.txt")
}

/// How many entries the feed has in the database, and how many bytes the links of an entry have at most.
fn stored(rig: &Rig) -> (i64, i64) {
    let database = Connection::open(rig.config.state_dir.join("resyncd.db")).unwrap();
    database.busy_timeout(Duration::from_secs(60)).unwrap();
    let counts = "SELECT COUNT(*), MAX(LENGTH(COALESCE(links, ''))) FROM feed";
    database
        .query_row(counts, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
}

fn last_of_each(lines: &[FeedLine]) -> BTreeMap<&str, &FeedLine> {
    lines.iter().map(|line| (line.uri.as_str(), line)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_of_resources_that_change_all_the_time_is_bounded_and_has_the_newest_of_each() {
    let _permit = PROCESSOR.read().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines");
    let script = "test -e \"$0.ok\" || exit 1; cat >> \"$0\"";
    let action = HookAction::Command {
        program: "/bin/sh".into(),
        arguments: ["-c", script, file.to_str().unwrap()]
            .map(str::to_owned)
            .into(),
    };
    let mut rig = Rig::start_with(resources(RESOURCES), |config| {
        config.sources[0].hooks = vec![Hook::new("index", action)];
        // What it pushes is in the feed with its links.
        config.sources[0].trust_hub = Some(true);
    })
    .await;
    rig.settled().await;
    let (still, gone) = (name(RESOURCES), "gone.txt");
    let old = rig.operator.changes(0).await[0].seq;
    // One that changes no more, and one that is deleted.
    rig.source.create(SET, &still, "stays");
    rig.source.create(SET, gone, "soon gone");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.settled().await;
    rig.source.delete(SET, gone);
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.settled().await;
    rig.stop_daemon().await;
    add_entries(&rig);
    rig.start_daemon().await;
    rig.settled().await;
    rig.source.set_links(SET, &name(0), links());
    for n in 0..RESOURCES {
        rig.source.update(SET, &name(n), format!("the last of {n}"));
    }
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.settled().await;

    let bound = RECENT + i64::try_from(RESOURCES).unwrap() + 2 + GROWTH;
    let (_, longest) = eventually("the feed is bounded", None, async || {
        let (entries, longest) = stored(&rig);
        if entries <= bound {
            Ok((entries, longest))
        } else {
            Err(format!("{entries} entries"))
        }
    })
    .await;
    assert!(longest <= LINK_BYTES, "{longest}");

    // A reader at an old position has the newest of all that follows.
    let lines = rig.operator.changes(old).await;
    assert!(lines.is_sorted_by_key(|line| line.seq));
    let newest = last_of_each(&lines);
    for n in 0..RESOURCES {
        let line = newest[rig.uri(&name(n)).as_str()];
        let length = format!("the last of {n}").len();
        assert_eq!(
            (line.change.as_str(), line.length),
            ("updated", Some(length as u64))
        );
    }
    assert_eq!(newest[rig.uri(gone).as_str()].change, "deleted");
    assert_eq!(newest[rig.uri(&still).as_str()].change, "created");
    let cut = newest[rig.uri(&name(0)).as_str()];
    let collections = cut.collections.as_ref().unwrap().len();
    assert!((1..64).contains(&collections), "{collections}");
    assert_eq!(cut.links_left_out, Some(true));
    let known = rig.operator.resource(&cut.uri).await.unwrap();
    assert_eq!(known["links"].as_array().unwrap().len(), 64);
    assert_eq!(
        newest[rig.uri(&name(1)).as_str()].links_left_out,
        None,
        "it has room for all of its links"
    );

    // So has a hook that has accepted nothing until now.
    fs::write(folder.path().join("lines.ok"), "").unwrap();
    let end = lines.last().unwrap().seq;
    eventually("the hook has the newest", Some(rig.wakes()), async || {
        let hook = rig.operator.status().await.sources[0].hooks[0].clone();
        if hook.position >= Some(end) {
            Ok(())
        } else {
            Err(format!("{hook:?}"))
        }
    })
    .await;
    let text = fs::read_to_string(&file).unwrap();
    let accepted: Vec<FeedLine> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let accepted = last_of_each(&accepted);
    for (uri, line) in &newest {
        assert_eq!(accepted[uri], *line);
    }
    let source = rig.operator.status().await.sources.remove(0);
    assert!(
        source
            .notices
            .iter()
            .all(|notice| notice.code != "hook-missed-changes"),
        "{:?}",
        source.notices
    );
}
