use std::time::Duration;

use super::*;
use crate::clock;
use crate::store::corruption::{Check, Damage};
use crate::store::schema;

/// A database in which an index has lost what it should have, which no query that goes by the table sees.
async fn with_damage() -> TempDir {
    let world = World::new().await;
    let changes = (0..400).map(|number| created(&format!("name-{number:04}"), 10));
    world.tell(changes.collect()).await;
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
async fn look_at_the_whole_finds_what_no_query_has_met() {
    let folder = with_damage().await;
    let path = folder.path().join("resyncd.db");
    let damage = Arc::new(Damage::of(&path));
    let check = Check::begin(&path, Arc::clone(&damage)).unwrap();
    let met = tokio::time::timeout(Duration::from_secs(180), damage.met());
    met.await.expect("it finds the damage");
    drop(check);
    assert!(damage.was_met(), "the next start knows");
}

#[tokio::test]
async fn look_at_the_whole_that_is_interrupted_tells_of_nothing() {
    let World { folder, store, .. } = World::new().await;
    let path = folder.path().join("resyncd.db");
    let damage = Arc::new(Damage::of(&path));
    for _ in 0..20 {
        drop(Check::begin(&path, Arc::clone(&damage)).unwrap());
    }
    drop(store);
    assert!(!damage.was_met());
}

#[tokio::test]
async fn damaged_index_is_found_before_the_database_is_used() {
    let folder = with_damage().await;
    let store = Store::open(folder.path()).unwrap();
    assert!(store.sets(SOURCE).await.unwrap().is_empty());
    assert!(folder.path().join("resyncd.db.damaged-1").exists());
}

#[tokio::test]
async fn feed_goes_on_with_greater_numbers_when_the_database_was_set_aside() {
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
        world.tell(names.into()).await;
        world.work("1").await;
        // As whoever follows it asks.
        let lines = world.store.feed(last, 9).await.unwrap();
        assert_eq!(lines.len(), 2, "round {round}");
        last = lines[1].seq;
        folder = world.folder;
        drop(world.store);
        let path = folder.path().join("resyncd.db");
        std::fs::write(&path, "no database any more".repeat(1000)).unwrap();
    }
    // A program that reads JSON as JavaScript does can tell one number from the next.
    assert!(last < 1 << 53);
}

#[tokio::test]
async fn row_that_makes_no_sense_has_the_next_start_set_the_database_aside_but_not_for_ever() {
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
        let met = tokio::time::timeout(Duration::ZERO, store.damaged()).await;
        // Databases set aside again and again are not what is wrong.
        assert_eq!(met.is_ok(), round <= 3, "round {round}");
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
