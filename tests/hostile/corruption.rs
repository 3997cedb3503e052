//! Flipped bits and other damage of the database.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use resyncd::clock;
use resyncd::config::Source;
use resyncd::store::{Store, StoreError, TasksInProgress};
use resyncd_core::ResourceUri;
use resyncd_testkit::SampleSource;

use crate::support::process::Home;
use crate::support::{LIMIT, NAME, Rig, SET, eventually, resources, soon};

/// A pseudo-random sequence with a fixed seed, so that failures are reproducible.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    /// Flips a bit of a file; returns the index of its byte.
    fn flip(&mut self, path: &Path) -> usize {
        let mut bytes = fs::read(path).unwrap();
        let at = self.below(bytes.len());
        bytes[at] ^= 1 << self.below(8);
        fs::write(path, bytes).unwrap();
        at
    }
}

/// Runs the queries of a working daemon, and one that writes; returns their results as text.
async fn query(store: &Arc<Store>, uris: &[ResourceUri]) -> Result<String, StoreError> {
    let now = clock::now().wall;
    let mut answers = String::new();
    for set in store.sets(NAME).await? {
        answers += &format!("{:?} {:?}", set.capability_list, set.offers);
        answers += &format!("{:?}", store.progress(set.id).await?);
        answers += &format!("{:?}", store.deliveries(set.id, 0, 100).await?.len());
        let statistics = store.set_statistics(set.id).await?;
        answers += &format!(
            "{} {} {}",
            statistics.resources, statistics.bytes, statistics.pending
        );
        for channel in store.channels(set.id).await? {
            answers += &format!("{} {}", channel.topic, channel.hub_name());
        }
        store.retry_failed(set.id, NAME, now, None).await?;
    }
    for uri in uris {
        if let Some(view) = store.resource(uri).await? {
            answers += &format!(
                "{} {:?} {:?} {}\n",
                view.uri, view.path, view.length, view.hashes
            );
        }
    }
    for line in store.feed(0, 1000).await? {
        answers += &format!("{} {} {:?}\n", line.seq, line.uri, line.path);
    }
    store
        .due_tasks(NAME, now, 100, TasksInProgress::default())
        .await?;
    Ok(answers)
}

#[tokio::test(flavor = "multi_thread")]
async fn flipped_bit_is_harmless_or_an_error_or_the_database_is_set_aside() {
    const FLIPS: usize = 120;
    let mut rig = Rig::start(resources(60)).await;
    // The database and its log are copied one after the other: nothing may be written meanwhile.
    rig.idle().await;
    let uris: Vec<ResourceUri> = (0..60)
        .map(|number| ResourceUri::parse(&rig.uri(&format!("r{number:04}.txt"))).unwrap())
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let (intact, state) = (folder.path().join("intact"), folder.path().join("state"));
    fs::create_dir(&intact).unwrap();
    // Copied while the daemon runs, because the write-ahead log exists only then.
    for name in ["resyncd.db", "resyncd.db-wal"] {
        fs::copy(rig.config.state_dir.join(name), intact.join(name)).unwrap();
    }
    rig.stop_daemon().await;
    let checkpointed = rig.config.state_dir.join("resyncd.db");

    let (mut random, mut expected) = (Random(20_130_101), String::new());
    let (mut harmless, mut set_aside, mut at_restart, mut shown) = (0, 0, 0, 0);
    let (mut undetected, mut earlier_state) = (0, 0);
    for round in 0..=FLIPS {
        fs::create_dir(&state).unwrap();
        let at = match round % 3 {
            0 | 1 => {
                fs::copy(&checkpointed, state.join("resyncd.db")).unwrap();
                "resyncd.db"
            }
            _ => {
                for name in ["resyncd.db", "resyncd.db-wal"] {
                    fs::copy(intact.join(name), state.join(name)).unwrap();
                }
                "resyncd.db-wal"
            }
        };
        let byte = match round {
            0 => 0,
            _ => random.flip(&state.join(at)),
        };
        let store = Store::open(&state).unwrap();
        let answer = soon("the queries", query(&store, &uris)).await;
        let is_damaged = tokio::time::timeout(Duration::ZERO, store.damaged())
            .await
            .is_ok();
        let is_set_aside = state.join("resyncd.db.damaged-1").exists();
        match answer {
            Ok(answer) if round == 0 => {
                assert!(!answer.is_empty() && !is_damaged && !is_set_aside);
                expected = answer;
            }
            Ok(_) if is_set_aside => set_aside += 1,
            _ if is_damaged => {
                at_restart += 1;
                drop(store);
                // A process that another test is starting has the lock, too, until it executes its program.
                let store = eventually("the store is closed", None, async || {
                    match Store::open(&state) {
                        Err(StoreError::Locked(_)) => Err("it is locked".to_owned()),
                        opened => Ok(opened.unwrap()),
                    }
                })
                .await;
                assert!(state.join("resyncd.db.damaged-1").exists(), "{at} {byte}");
                query(&store, &uris).await.unwrap();
            }
            Ok(answer) if answer == expected => harmless += 1,
            // A log that ends early is an earlier state of the database: the next poll repairs it.
            Ok(_) if at == "resyncd.db-wal" => earlier_state += 1,
            // A flipped bit within a stored value can't be detected.
            Ok(_) => undetected += 1,
            // What resyncd can't read is shown; SQLite has found nothing wrong.
            Err(error) => {
                let code = error.code();
                assert!(
                    matches!(code, "database-row" | "database"),
                    "{at}, byte {byte}: {error}"
                );
                shown += 1;
            }
        }
        fs::remove_dir_all(&state).unwrap();
    }
    println!(
        "{FLIPS} flips: {harmless} harmless, {set_aside} set aside on opening, {at_restart} set aside at the restart, {shown} shown, {earlier_state} an earlier state, {undetected} undetected"
    );
    assert!(
        set_aside > 0 && undetected < FLIPS / 5,
        "{undetected} undetected"
    );
}

/// A row with what resyncd never writes, as a fault of the disk or of the memory may leave it: SQLite finds nothing wrong.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_row_fails_its_source_and_no_other() {
    const OTHER: &str = "other";
    let of_set = "set_id IN (SELECT id FROM source_set WHERE source = 'other')";
    for damage in [
        "UPDATE source_set SET offers = 'no offers' WHERE source = 'other'".to_owned(),
        "UPDATE source_set SET capability_list = 'no URI' WHERE source = 'other'".to_owned(),
        format!("UPDATE channel SET topic = 'no URI' WHERE {of_set}"),
        format!("UPDATE channel SET advertised_hubs = 'http://[' WHERE {of_set}"),
        format!("UPDATE resource SET hashes = X'ff' WHERE {of_set}"),
        format!("UPDATE feed SET links = 'no links' WHERE {of_set}"),
    ] {
        let other = SampleSource::start(resources(3)).await.unwrap();
        let mut rig = Rig::start_with(resources(3), |config| {
            let mirror = config.sources[0].mirror.with_file_name(OTHER);
            config
                .sources
                .push(Source::new(OTHER, other.base(), mirror));
        })
        .await;
        rig.settled().await;
        let status_of_other = async |rig: &Rig| rig.operator.status().await.sources.remove(1);
        eventually("the other is in sync", Some(rig.wakes()), async || {
            let source = status_of_other(&rig).await;
            match source.sets.first() {
                Some(set) if set.state == "in-sync" => Ok(()),
                _ => Err(format!("{source:#?}")),
            }
        })
        .await;
        let feed = rig.daemon().store.feed_id().to_owned();
        let database = rusqlite::Connection::open(rig.config.state_dir.join("resyncd.db"));
        let changed = database.unwrap().execute(&damage, []).unwrap();
        assert!(changed > 0, "{damage}");
        for round in ["while it runs", "after a restart"] {
            other.update(SET, "r0001.txt", round);
            // A channel that can't be read accepts nothing.
            let _ = other.notify_and_publish(SET).await;
            rig.operator.poll(OTHER).await;
            rig.operator.changes(0).await;
            let status = eventually("the other fails", Some(rig.wakes()), async || {
                let source = status_of_other(&rig).await;
                match source.state.as_str() {
                    "failing" => Ok(source),
                    _ => Err(format!("{damage}, {round}: {source:#?}")),
                }
            })
            .await;
            assert_eq!(status.error.unwrap().code, "database-row", "{damage}");
            let attention = status.attention.iter();
            let attention = attention.filter(|it| it.code == "database-row");
            let attention: Vec<_> = attention.collect();
            assert_eq!(attention.len(), 1, "{damage}");
            assert!(attention[0].next_step.contains("backup"), "{attention:?}");
            rig.source.update(SET, "r0001.txt", round);
            rig.source.notify_and_publish(SET).await.unwrap();
            rig.until_holds("r0001.txt", round).await;
            rig.settled().await;
            let healthy = &rig.operator.status().await.sources[0];
            assert_eq!(healthy.state, "ok", "{damage}");
            assert!(healthy.attention.is_empty(), "{healthy:#?}");
            let damaged = rig.daemon().store.damaged();
            let is_damaged = tokio::time::timeout(Duration::ZERO, damaged).await.is_ok();
            assert!(!is_damaged, "{damage}");
            rig.stop_daemon().await;
            rig.start_daemon().await;
            assert_eq!(rig.daemon().store.feed_id(), feed, "{damage}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn marker_of_damage_resets_no_sound_database() {
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let feed = rig.daemon().store.feed_id().to_owned();
    rig.stop_daemon().await;
    let marker = rig.config.state_dir.join("resyncd.db.damage-met");
    fs::write(&marker, "as an earlier process has left it").unwrap();
    rig.start_daemon().await;
    rig.settled().await;
    assert_eq!(rig.daemon().store.feed_id(), feed);
    assert!(!marker.exists(), "it is not checked again");
    assert!(!rig.config.state_dir.join("resyncd.db.damaged-1").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_recovers_from_any_flipped_bit() {
    let mut random = Random(20_171_010);
    let mut rig = Rig::start(resources(12)).await;
    rig.settled().await;
    for round in 0..5 {
        rig.stop_daemon().await;
        let at = random.flip(&rig.config.state_dir.join("resyncd.db"));
        rig.start_daemon().await;
        let content = format!("in round {round}");
        rig.source.update(SET, "r0002.txt", content.clone());
        rig.source.notify(SET);
        let deadline = clock::now().mono + LIMIT;
        while rig.mirrored("r0002.txt") != Some(content.clone().into_bytes()) {
            let damaged = rig.daemon().store.clone();
            let pace = Duration::from_millis(100);
            let is_damaged = tokio::time::timeout(pace, damaged.damaged()).await.is_ok();
            drop(damaged);
            if is_damaged {
                rig.stop_daemon().await;
                rig.start_daemon().await;
            }
            rig.operator.poll(NAME).await;
            assert!(clock::now().mono < deadline, "round {round}, byte {at}");
        }
    }
    rig.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_found_while_running_stops_the_daemon_and_the_next_start_rebuilds() {
    let source = resyncd_testkit::SampleSource::start(resources(30))
        .await
        .unwrap();
    let home = Home::new(&source.url(), "");
    let mut running = home.run();
    home.settled(&source).await;
    let hits = source.traffic().0;
    // As if the disk had lost the tables: the files have their length, but not their content.
    let database = home.folder().join("state/resyncd.db");
    let length = fs::metadata(&database).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(&database).unwrap();
    let log = home.folder().join("state/resyncd.db-wal");
    let log = fs::OpenOptions::new().write(true).open(&log).unwrap();
    let junk = vec![0x5a; usize::try_from(length).unwrap()];
    std::os::unix::fs::FileExt::write_all_at(&file, &junk, 0).unwrap();
    let junk = vec![0x5a; usize::try_from(log.metadata().unwrap().len()).unwrap()];
    std::os::unix::fs::FileExt::write_all_at(&log, &junk, 0).unwrap();
    source.update(SET, "r0001.txt", "during the damage");
    source.notify_and_publish(SET).await.unwrap();
    assert_eq!(running.wait_for_exit().await.code(), Some(1));
    assert!(source.traffic().0 >= hits);

    let fetched = || -> u64 {
        let paths = (0..30).map(|number| format!("/set1/res/r{number:04}.txt"));
        paths.map(|path| source.hits(&path)).sum()
    };
    let before = fetched();
    let running = home.run();
    home.settled(&source).await;
    assert!(
        fetched() <= before + 1,
        "only the changed resource is fetched again"
    );
    let set_aside = home.folder().join("state/resyncd.db.damaged-1");
    assert!(set_aside.exists());
    assert_eq!(running.stop().await.code(), Some(0));
}
