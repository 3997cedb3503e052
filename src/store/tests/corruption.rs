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

/// One flipped bit in the name of a column: the database passes the integrity check.
#[tokio::test]
async fn damaged_schema_is_found_by_the_first_statement() {
    let World { folder, store, .. } = World::new().await;
    drop(store);
    let path = folder.path().join("resyncd.db");
    let database = Connection::open(&path).unwrap();
    database
        .execute_batch(
            "PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = replace(sql, 'silences', 'silencds') WHERE name = 'channel';",
        )
        .unwrap();
    drop(database);
    let store = Store::open(folder.path()).unwrap();
    let set = store.sets(SOURCE).await.unwrap().remove(0);
    store.channels(set.id).await.unwrap_err();
    store.damaged().await;
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    assert!(folder.path().join("resyncd.db.damaged-1").exists());
    assert!(store.sets(SOURCE).await.unwrap().is_empty());
}

/// The same in a trigger, which a statement meets that names neither it nor the column.
#[tokio::test]
async fn damaged_trigger_is_found_by_the_first_write() {
    for (from, to) in [
        ("OLD.state = ", "OLD.stbte = "),
        ("UPDATE task_count", "UPDATE task_counu"),
        ("task_count SET", "task_count S%T"),
    ] {
        let World { folder, store, .. } = World::new().await;
        drop(store);
        let path = folder.path().join("resyncd.db");
        let database = Connection::open(&path).unwrap();
        database
            .pragma_update(None, "writable_schema", true)
            .unwrap();
        let damage = "UPDATE sqlite_schema SET sql = replace(sql, ?1, ?2) WHERE name = 'task_changed' AND sql LIKE '%' || ?1 || '%'";
        assert_eq!(database.execute(damage, [from, to]).unwrap(), 1, "{from}");
        drop(database);
        let store = Store::open(folder.path()).unwrap();
        if folder.path().join("resyncd.db.damaged-1").exists() {
            // What can't be parsed is found by the opening.
            continue;
        }
        let set = store.sets(SOURCE).await.unwrap().remove(0);
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let retrying = store.retry_failed(set.id, SOURCE, now, None);
        retrying.await.unwrap_err();
        let found = tokio::time::timeout(Duration::from_secs(180), store.damaged());
        found.await.unwrap_or_else(|_| panic!("{to} is not found"));
    }
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
async fn unreadable_row_has_the_database_set_aside_at_most_three_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resyncd.db");
    for round in 1..=4 {
        let store = Store::open(folder.path()).unwrap();
        let set = begin(&store, "capabilitylist.xml").await;
        drop(store);
        let database = schema::open(&path).unwrap();
        let offers = "UPDATE source_set SET offers = 'no offers' WHERE id = ?1";
        database.execute(offers, [set.0]).unwrap();
        drop(database);

        let store = Store::open(folder.path()).unwrap();
        let error = store.sets(SOURCE).await.unwrap_err();
        assert_eq!(error.code(), "database-row");
        let found = tokio::time::timeout(Duration::ZERO, store.damaged()).await;
        // After three databases were set aside the database is not the cause.
        assert_eq!(found.is_ok(), round <= 3, "round {round}");
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        let rebuilt = store.sets(SOURCE).await.is_ok_and(|sets| sets.is_empty());
        assert_eq!(rebuilt, round <= 3, "round {round}");
    }
    let names = std::fs::read_dir(folder.path()).unwrap();
    let aside = names.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("resyncd.db.damaged-")
    });
    assert_eq!(aside.count(), 3);
}
