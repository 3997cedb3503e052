//! Bits of the database that are not what they were.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use resyncd::clock;
use resyncd::protocol::ResourceUri;
use resyncd::store::{Store, StoreError, TasksInProgress};

use crate::process::Home;
use crate::support::{LIMIT, NAME, Rig, SET, resources, soon};

/// A pseudo-random sequence of ours, so that a failure comes again.
struct Seed(u64);

impl Seed {
    fn below(&mut self, end: usize) -> usize {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    /// Flips a bit of a file; answers in which byte.
    fn flip(&mut self, path: &Path) -> usize {
        let mut bytes = fs::read(path).unwrap();
        let at = self.below(bytes.len());
        bytes[at] ^= 1 << self.below(8);
        fs::write(path, bytes).unwrap();
        at
    }
}

/// All that a daemon asks of its database while it works, and something that it writes.
async fn ask(store: &Arc<Store>, uris: &[ResourceUri]) -> Result<String, StoreError> {
    let now = clock::now().wall;
    let mut told = String::new();
    for set in store.sets(NAME).await? {
        told += &format!("{:?} {:?}", set.capability_list, set.offers);
        told += &format!("{:?}", store.progress(set.id).await?);
        told += &format!("{:?}", store.deliveries(set.id, 0, 100).await?.len());
        let numbers = store.set_statistics(set.id).await?;
        told += &format!(
            "{} {} {}",
            numbers.resources, numbers.bytes, numbers.pending
        );
        for channel in store.channels(set.id).await? {
            told += &format!("{} {}", channel.topic, channel.hub_name());
        }
        store.retry_failed(set.id, NAME, now).await?;
    }
    for uri in uris {
        if let Some(view) = store.resource(uri).await? {
            told += &format!(
                "{} {:?} {:?} {}\n",
                view.uri, view.path, view.length, view.hashes
            );
        }
    }
    for line in store.feed(0, 1000).await? {
        told += &format!("{} {} {:?}\n", line.seq, line.uri, line.path);
    }
    store
        .due_tasks(NAME, now, 100, TasksInProgress::default())
        .await?;
    Ok(told)
}

#[tokio::test(flavor = "multi_thread")]
async fn flipped_bit_is_harmless_or_has_the_database_set_aside() {
    const FLIPS: usize = 120;
    let mut rig = Rig::start(resources(60)).await;
    rig.settled().await;
    let uris: Vec<ResourceUri> = (0..60)
        .map(|number| ResourceUri::parse(&rig.uri(&format!("r{number:04}.txt"))).unwrap())
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let (whole, state) = (folder.path().join("whole"), folder.path().join("state"));
    fs::create_dir(&whole).unwrap();
    // While it runs, for there is a log beside the database only then.
    for name in ["resyncd.db", "resyncd.db-wal"] {
        fs::copy(rig.config.state_dir.join(name), whole.join(name)).unwrap();
    }
    rig.stop_daemon().await;
    let tidy = rig.config.state_dir.join("resyncd.db");

    let (mut seed, mut right) = (Seed(20_130_101), String::new());
    let (mut harmless, mut aside, mut met, mut unseen, mut shorter) = (0, 0, 0, 0, 0);
    for round in 0..=FLIPS {
        fs::create_dir(&state).unwrap();
        let at = match round % 3 {
            0 | 1 => {
                fs::copy(&tidy, state.join("resyncd.db")).unwrap();
                "resyncd.db"
            }
            _ => {
                for name in ["resyncd.db", "resyncd.db-wal"] {
                    fs::copy(whole.join(name), state.join(name)).unwrap();
                }
                "resyncd.db-wal"
            }
        };
        let byte = match round {
            0 => 0,
            _ => seed.flip(&state.join(at)),
        };
        let store = Store::open(&state).unwrap();
        let answer = soon("an answer", ask(&store, &uris)).await;
        let is_met = tokio::time::timeout(Duration::ZERO, store.damaged())
            .await
            .is_ok();
        let is_aside = state.join("resyncd.db.damaged-1").exists();
        match answer {
            Ok(answer) if round == 0 => {
                assert!(!answer.is_empty() && !is_met && !is_aside);
                right = answer;
            }
            Ok(_) if is_aside => aside += 1,
            _ if is_met => {
                met += 1;
                drop(store);
                let store = Store::open(&state).unwrap();
                assert!(state.join("resyncd.db.damaged-1").exists(), "{at} {byte}");
                ask(&store, &uris).await.unwrap();
            }
            Ok(answer) if answer == right => harmless += 1,
            // A log that ends early is an earlier state: what is missing comes with the next poll.
            Ok(_) if at == "resyncd.db-wal" => shorter += 1,
            // What a value was before it was another one, nobody can know.
            Ok(_) => unseen += 1,
            Err(error) => panic!("{at}, byte {byte}: {error} is met again and again"),
        }
        // Whoever still reads would be surprised.
        fs::remove_dir_all(&state).unwrap();
    }
    println!(
        "{FLIPS} flips: {harmless} harmless, {aside} set aside at once, {met} by a restart, {shorter} an earlier state, {unseen} unseen"
    );
    assert!(aside > 0 && unseen < FLIPS / 5, "{unseen} unseen");
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_follows_on_whatever_bit_was_flipped() {
    let mut seed = Seed(20_171_010);
    let mut rig = Rig::start(resources(12)).await;
    rig.settled().await;
    for round in 0..5 {
        rig.stop_daemon().await;
        let at = seed.flip(&rig.config.state_dir.join("resyncd.db"));
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
async fn damage_that_is_met_at_work_ends_the_daemon_and_the_next_one_rebuilds() {
    let source = resyncd::demo::SampleSource::start(resources(30))
        .await
        .unwrap();
    let home = Home::new(&source.url(), "");
    let mut running = home.run();
    home.settled(&source).await;
    let hits = source.traffic().0;
    // As if the disk had lost the tables: the file is as long as it was, and what is in it is not.
    let database = home.folder().join("state/resyncd.db");
    let length = fs::metadata(&database).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(&database).unwrap();
    let log = home.folder().join("state/resyncd.db-wal");
    let log = fs::OpenOptions::new().write(true).open(&log).unwrap();
    let junk = vec![0x5a; usize::try_from(length).unwrap()];
    std::os::unix::fs::FileExt::write_all_at(&file, &junk, 0).unwrap();
    let junk = vec![0x5a; usize::try_from(log.metadata().unwrap().len()).unwrap()];
    std::os::unix::fs::FileExt::write_all_at(&log, &junk, 0).unwrap();
    source.update(SET, "r0001.txt", "unheard");
    source.notify_and_publish(SET).await.unwrap();
    assert_eq!(running.ended().await.code(), Some(1));
    assert!(source.traffic().0 >= hits);

    let fetched = || -> u64 {
        let paths = (0..30).map(|number| format!("/set1/res/r{number:04}.txt"));
        paths.map(|path| source.hits(&path)).sum()
    };
    let before = fetched();
    let running = home.run();
    home.settled(&source).await;
    assert!(fetched() <= before + 1, "only what had changed");
    let aside = home.folder().join("state/resyncd.db.damaged-1");
    assert!(aside.exists());
    assert_eq!(running.stop().await.code(), Some(0));
}
