use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::clock;
use crate::store::corruption::{Check, Damage};
use crate::store::schema;

/// A database with a damaged index, which no query on the table alone meets.
async fn with_damage() -> TempDir {
    let world = World::new().await;
    // Only paths that are not plain are in the index. So few are on its first page, from the end.
    let changes = (0..20).map(|number| created(&format!("name-{number:04}//"), 10));
    world.announce(changes.collect()).await;
    let World { folder, store, .. } = world;
    drop(store);
    let path = folder.path().join("resyncd.db");
    let database = Connection::open(&path).unwrap();
    let leaf: i64 = database
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'resource_path'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let page: i64 = database
        .pragma_query_value(None, "page_size", |row| row.get(0))
        .unwrap();
    drop(database);
    let mut bytes = std::fs::read(&path).unwrap();
    let end = usize::try_from(leaf * page).unwrap();
    bytes[end - 200..end].fill(0x5a);
    std::fs::write(&path, bytes).unwrap();
    folder
}

#[tokio::test]
async fn integrity_check_finds_damage_that_no_query_meets() {
    let folder = with_damage().await;
    let path = folder.path().join("resyncd.db");
    let damage = Arc::new(Damage::of(&path));
    let check = Check::begin(&path, Arc::clone(&damage)).unwrap();
    let found = tokio::time::timeout(Duration::from_secs(180), damage.found());
    found.await.expect("the check finds the damage");
    drop(check);
    assert!(damage.was_found(), "the next start knows");
}

/// Whether a database was not set aside, and nothing has begun to end the process.
async fn is_kept(folder: &TempDir, store: &Store) -> bool {
    let damaged = tokio::time::timeout(Duration::ZERO, store.damaged()).await;
    damaged.is_err() && !folder.path().join("resyncd.db.damaged-1").exists()
}

/// One flipped bit in the name of a column: the database passes the integrity check, and no query that names the column works.
#[tokio::test]
async fn flipped_bit_in_the_schema_is_repaired() {
    let World {
        folder, store, set, ..
    } = World::new().await;
    let feed = store.feed_id().to_owned();
    drop(store);
    let database = Connection::open(folder.path().join("resyncd.db")).unwrap();
    database
        .pragma_update(None, "writable_schema", true)
        .unwrap();
    let damage = "UPDATE sqlite_schema SET sql = replace(sql, 'silences', 'silencds') WHERE name = 'channel'";
    assert_eq!(database.execute(damage, []).unwrap(), 1);
    drop(database);
    for _ in 0..2 {
        let store = Store::open(folder.path()).unwrap();
        store.channels(set).await.unwrap();
        assert!(is_kept(&folder, &store).await);
        assert_eq!(store.feed_id(), feed);
    }
}

/// The database passes the integrity check.
#[tokio::test]
async fn broken_schema_is_an_error_and_resets_nothing() {
    for (object, from, to) in [
        ("channel", "silences", "silencesx"),
        ("task", "error_at", "error_atx"),
    ] {
        let World {
            folder, store, set, ..
        } = World::new().await;
        let feed = store.feed_id().to_owned();
        drop(store);
        let path = folder.path().join("resyncd.db");
        let database = Connection::open(&path).unwrap();
        database
            .pragma_update(None, "writable_schema", true)
            .unwrap();
        let damage = "UPDATE sqlite_schema SET sql = replace(sql, ?1, ?2) WHERE name = ?3 AND sql LIKE '%' || ?1 || '%'";
        assert_eq!(
            database.execute(damage, [from, to, object]).unwrap(),
            1,
            "{from}"
        );
        drop(database);
        for _ in 0..2 {
            let store = Store::open(folder.path()).unwrap();
            let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
            let error = match object {
                "channel" => store.channels(set).await.unwrap_err(),
                _ => store
                    .retry_failed(set, SOURCE, now, None)
                    .await
                    .unwrap_err(),
            };
            assert_eq!(error.code(), "database", "{error}");
            assert!(is_kept(&folder, &store).await, "{to}");
            assert_eq!(store.feed_id(), feed);
        }
    }
}

#[tokio::test]
async fn marker_of_an_earlier_process_leads_to_a_check_only() {
    let World { folder, store, .. } = World::new().await;
    let feed = store.feed_id().to_owned();
    drop(store);
    let marker = folder.path().join("resyncd.db.damage-met");
    std::fs::write(&marker, "an error").unwrap();
    let store = Store::open(folder.path()).unwrap();
    assert!(is_kept(&folder, &store).await && !marker.exists());
    assert_eq!(store.feed_id(), feed);
    assert_eq!(store.sets(SOURCE).await.unwrap().len(), 1);
}

#[tokio::test]
async fn interrupted_integrity_check_reports_no_damage() {
    let World { folder, store, .. } = World::new().await;
    let path = folder.path().join("resyncd.db");
    let damage = Arc::new(Damage::of(&path));
    for _ in 0..20 {
        drop(Check::begin(&path, Arc::clone(&damage)).unwrap());
    }
    drop(store);
    assert!(!damage.was_found());
}

#[tokio::test]
async fn damaged_index_is_found_before_the_database_is_used() {
    let folder = with_damage().await;
    let store = Store::open(folder.path()).unwrap();
    assert!(store.sets(SOURCE).await.unwrap().is_empty());
    assert!(folder.path().join("resyncd.db.damaged-1").exists());
}

#[tokio::test]
async fn feed_continues_with_greater_numbers_after_the_database_was_set_aside() {
    let mut folder = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 0..3 {
        let store = Store::open(folder.path()).unwrap();
        let set = begin(&store, "capabilitylist.xml").await;
        let now = clock::now().wall;
        let world = World {
            folder,
            store,
            set,
            now,
        };
        let names = ["a", "b"].map(|name| created(name, 10));
        world.announce(names.into()).await;
        world.work("1").await;
        // As a reader of the feed does.
        let lines = world.store.feed(last, 9).await.unwrap();
        assert_eq!(lines.len(), 2, "round {round}");
        last = lines[1].seq;
        folder = world.folder;
        drop(world.store);
        let path = folder.path().join("resyncd.db");
        std::fs::write(&path, "no database any more".repeat(1000)).unwrap();
    }
    // JavaScript can represent these numbers exactly.
    assert!(last < 1 << 53);
}

#[tokio::test]
async fn unreadable_row_is_left_out_and_resets_nothing() {
    // Of the set, of a channel, of the resource, of a task, of an entry of the feed, of the location.
    for damage in [
        "UPDATE source_set SET offers = 'no offers' WHERE source = 'damaged'",
        "UPDATE source_set SET capability_list = 'no URI' WHERE source = 'damaged'",
        "UPDATE channel SET topic = 'no URI' WHERE set_id IN (SELECT id FROM source_set WHERE source = 'damaged')",
        "UPDATE channel SET failures = 'no number' WHERE set_id IN (SELECT id FROM source_set WHERE source = 'damaged')",
        "UPDATE resource SET spelling = 'no URI' WHERE source = 'damaged'",
        "UPDATE feed SET links = 'no links' WHERE set_id IN (SELECT id FROM source_set WHERE source = 'damaged')",
        "UPDATE followed_source SET url = X'ff' WHERE name = 'damaged'",
    ] {
        let world = World::new().await;
        world.channel().await;
        let fill = "
            INSERT INTO source_set (id, source, capability_list) VALUES (9, 'damaged', 'https://example.net/capabilitylist.xml');
            INSERT INTO channel (set_id, kind, topic, subscribed_topic, advertised_hubs, known_hubs, token, state, failures, transport)
                VALUES (9, 'change-notification', 'https://example.net/t', 'https://example.net/t', '', '', 't', 'active', 0, 'websub');
            INSERT INTO resource (id, source, identity, set_id, applied_at, length) VALUES (9, 'damaged', '//example.net/a', 9, 1, 1);
            INSERT INTO followed_source (name, url) VALUES ('damaged', 'https://example.net/');
            INSERT INTO feed (applied_at, set_id, change, path, length, origin, resource_id)
                VALUES (1, 9, 'c', '', 1, 'n', 9);";
        let World { folder, store, .. } = world;
        let feed = store.feed_id().to_owned();
        drop(store);
        let database = schema::open(&folder.path().join("resyncd.db")).unwrap();
        database.execute_batch(fill).unwrap();
        assert_eq!(database.execute(damage, []).unwrap(), 1, "{damage}");
        drop(database);
        let store = Store::open(folder.path()).unwrap();
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        // What is read for all Sources together.
        store.note_start(now).await.unwrap();
        store.leave_unfollowed(now, Vec::new()).await.unwrap();
        store.unfollowed_channels(Vec::new()).await.unwrap();
        store.subscribed_sources().await.unwrap();
        store.locations().await.unwrap();
        store.feed(0, 1).await.unwrap();
        store.newest_changes(FeedSearch::newest(9)).await.unwrap();
        let (_, mut listing) = store.begin_listing(None, None).await.unwrap();
        while let Some((_, next)) = store.next_listed(listing.unwrap()).await.unwrap() {
            listing = Some(next);
        }
        let queries = [SOURCE, "damaged"].map(|source| OverviewQuery {
            source: source.to_owned(),
            with_versions: true,
        });
        let overview = store
            .overview(queries.to_vec(), BTreeSet::new())
            .await
            .unwrap();
        assert_eq!(overview.sources[0].sets.len(), 1, "{damage}");
        assert_eq!(overview.sources[0].sets[0].channels.len(), 1, "{damage}");
        let row = store.unreadable_row("damaged");
        assert!(row.is_some_and(|row| !row.message.is_empty()), "{damage}");
        assert_eq!(store.unreadable_row(SOURCE), None);
        assert!(is_kept(&folder, &store).await, "{damage}");
        assert_eq!(store.feed_id(), feed);
    }
}
