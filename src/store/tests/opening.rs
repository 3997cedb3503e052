use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::store::schema;

#[tokio::test]
async fn second_process_is_locked_out() {
    let world = World::new().await;
    let second = Store::open(place(world.folder.path()));
    assert!(matches!(second, Err(StoreError::Locked(_))));
    let World { folder, store, .. } = world;
    drop(store);
    assert!(Store::open(place(folder.path())).is_ok());
}

#[tokio::test]
async fn secrets_of_hubs_are_for_the_owner_alone() {
    let world = World::new().await;
    for name in ["resyncd.db", "resyncd.db-wal", "resyncd.db-shm"] {
        let metadata = std::fs::metadata(world.folder.path().join(name)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn schema_of_another_number_is_refused_and_left_alone() {
    for (number, code) in [(9999, "newer-schema"), (1, "earlier-schema")] {
        let World { folder, store, .. } = World::new().await;
        drop(store);
        let path = folder.path().join("resyncd.db");
        let database = Connection::open(&path).unwrap();
        database
            .pragma_update(None, "user_version", number)
            .unwrap();
        drop(database);
        let before = std::fs::read(&path).unwrap();
        let error = Store::open(place(folder.path())).err().unwrap();
        assert_eq!(error.code(), code);
        let advice = ["install that version again", "move the database away"];
        let message = error.to_string();
        assert!(
            advice.iter().all(|part| message.contains(part)),
            "{message}"
        );
        assert!(std::fs::read(&path).unwrap() == before, "changed");
        let files = std::fs::read_dir(folder.path()).unwrap();
        assert!(
            files
                .flatten()
                .all(|file| !file.file_name().to_string_lossy().contains("damaged"))
        );
    }
}

#[tokio::test]
async fn damaged_database_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resyncd.db");
    for n in 1..=2 {
        std::fs::write(
            &path,
            "This was a database once, but it is none any more. ".repeat(100),
        )
        .unwrap();
        let store = Store::open(place(folder.path())).unwrap();
        assert!(store.sets(SOURCE).await.unwrap().is_empty());
        assert!(
            folder
                .path()
                .join(format!("resyncd.db.damaged-{n}"))
                .exists()
        );
    }
}

#[tokio::test]
async fn damaged_schema_is_set_aside() {
    let World { folder, store, .. } = World::new().await;
    drop(store);
    let path = folder.path().join("resyncd.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100..4096].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    assert!(Store::open(place(folder.path())).is_ok());
    assert!(folder.path().join("resyncd.db.damaged-1").exists());
}

#[tokio::test]
async fn state_is_the_same_after_a_restart() {
    let world = World::new().await;
    let channel = world.channel().await;
    world
        .store
        .receive(world.now, channel, b"one".to_vec(), 100, None)
        .await
        .unwrap();
    let gap = Gap {
        interval: Interval::new(at(20), at(30)).unwrap(),
        reason: GapReason::TooManyHeld,
        since: world.now,
    };
    let known: Coverage = [
        Interval::before(at(20)),
        Interval::new(at(30), at(40)).unwrap(),
    ]
    .into_iter()
    .collect();
    let progress = Some((known.clone(), vec![gap.clone()]));
    let batch = world.batch(
        world.set,
        vec![created("a", 10)],
        Some(DocumentEnd { progress, ..end() }),
    );
    world.store.ingest(batch).await.unwrap();
    let World {
        folder, store, set, ..
    } = world;
    drop(store);
    let store = Store::open(place(folder.path())).unwrap();
    assert_eq!(store.progress(set).await.unwrap(), (known, vec![gap]));
    assert_eq!(store.deliveries(set, 0, 10).await.unwrap()[0].body, b"one");
    assert_eq!(begin(&store, "capabilitylist.xml").await, set);
    assert_eq!(store.set_statistics(set).await.unwrap().pending, 1);
}

/// The plan of a frequent query must not scan a table.
#[test]
fn frequent_queries_use_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let database = schema::open(&folder.path().join("plan.db")).unwrap();
    for query in [
        "SELECT MIN(not_before) FROM task WHERE source = 'a' AND state = 'ready' AND authority = 'b' AND not_before > 3",
        "SELECT MIN(authority) FROM task WHERE source = 'a' AND state = 'ready' AND authority > 'b'",
        "SELECT * FROM task JOIN resource ON resource.id = task.resource_id WHERE task.source = 'a' AND task.state = 'ready'
         AND task.authority = 'b' AND task.not_before <= 3 ORDER BY task.not_before, task.resource_id",
        "SELECT since FROM task WHERE set_id = 1 AND state NOT IN ('rejected', 'unavailable') ORDER BY since LIMIT 1",
        "SELECT MIN(given_up_since) FROM task WHERE set_id = 1 AND given_up_since IS NOT NULL",
        "SELECT resource_id FROM task WHERE source = 'a' AND given_up_since IS NOT NULL AND resource_id > 1
         ORDER BY resource_id LIMIT 9",
        "SELECT since FROM task WHERE set_id = 1 AND state NOT IN ('rejected', 'unavailable')
         AND EXISTS (SELECT 1 FROM member WHERE member.set_id = 2 AND member.resource_id = task.resource_id)
         ORDER BY since LIMIT 1",
        "SELECT other.id FROM source_set AS own
         JOIN source_set AS other ON other.source = own.source AND other.id <> own.id WHERE own.id = 1",
        "SELECT until_time FROM coverage WHERE set_id = 1 ORDER BY from_time LIMIT 1",
        "UPDATE task SET since = 1 WHERE resource_id IN (
         SELECT resource_id FROM task WHERE since > 1 AND state NOT IN ('rejected', 'unavailable') AND set_id = 1 LIMIT 9)",
        "SELECT resource_id FROM task WHERE since > 1 AND state NOT IN ('rejected', 'unavailable') AND set_id IN (SELECT other.id FROM source_set AS own
         JOIN source_set AS other ON other.source = own.source AND other.id <> own.id WHERE own.id = 1)
         AND EXISTS (SELECT 1 FROM member WHERE member.set_id = 1 AND member.resource_id = task.resource_id) LIMIT 9",
        "SELECT 1 FROM task WHERE set_id = 1 AND state = 'undecided'",
        "SELECT COUNT(*) FROM task JOIN resource ON resource.id = task.resource_id WHERE task.set_id = 1 AND task.kind = 'deleted'
         AND resource.applied_at IS NOT NULL AND resource.deleted = 0",
        "SELECT 1 FROM task WHERE set_id = 1 AND state = 'ready' AND origin IN ('resource-list', 'resource-dump')",
        "UPDATE task SET state = 'ready' WHERE source = 'a' AND state = 'held'",
        "UPDATE task SET state = 'ready' WHERE source = 'a' AND given_up_since IS NOT NULL AND state IN ('ready', 'failed')",
        "UPDATE task SET state = 'ready' WHERE set_id = 1 AND state = 'failed'",
        "SELECT 1 FROM resource WHERE source = 'a' AND path = 'b'",
        "SELECT resource_id, named_by FROM member WHERE set_id = 1 AND resource_id > 2 AND named_by <> 2 ORDER BY resource_id LIMIT 9",
        "SELECT part.id FROM part JOIN source_set ON source_set.id = part.set_id WHERE part.set_id = 1 AND part.uri = 'a'",
        "SELECT id, channel_id, body FROM inbox WHERE id IN (1, 2, 3) ORDER BY id",
        "SELECT * FROM feed JOIN source_set ON source_set.id = feed.set_id WHERE seq > 1 ORDER BY seq LIMIT 3",
        "SELECT * FROM resource WHERE identity = 'a' AND source IN (SELECT DISTINCT source FROM source_set)",
        "SELECT 1 FROM member WHERE resource_id = 1 AND set_id <> 2",
        "SELECT * FROM channel WHERE token = 'a' OR next_token = 'a'",
        "SELECT 1 FROM channel WHERE id <> 1 AND former_of IS NULL AND (topic = 'a' OR subscribed_topic = 'a')",
    ] {
        let mut explain = database.prepare_cached(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
        let steps: Vec<String> =
            explain.query_map([], |row| row.get(3)).unwrap().collect::<Result<_, _>>().unwrap();
        let bad = steps.iter().any(|step| step.starts_with("SCAN") && !step.contains("source_set"));
        assert!(!bad, "{query}: {steps:?}");
        let sorts = steps.iter().any(|step| step.contains("TEMP B-TREE FOR ORDER BY"));
        assert!(!sorts, "{query}: {steps:?}");
    }
}

#[tokio::test]
async fn write_that_panics_changes_nothing_and_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(place(folder.path())).unwrap();
    let list = url::Url::parse("https://example.org/set").unwrap();
    let of_panic = list.clone();
    let panicking = store.write::<(), _>(move |tx| {
        crate::store::tables::source_set::follow(tx.sql, SOURCE, &of_panic)?;
        panic!("a write panics")
    });
    let followed = store.begin_set("another", &list);
    let (panicked, followed) = tokio::join!(panicking, followed);
    assert_eq!(panicked.unwrap_err().code(), "panicked");
    followed.unwrap();
    assert!(store.sets(SOURCE).await.unwrap().is_empty());
    assert!(store.answers().await);
}

/// SQLite copies the pages that a savepoint changes. In a file, the copies would be most of what is written; without a limit, those of
/// a change of all tasks would fill the memory.
#[test]
fn copies_for_savepoints_are_in_memory_up_to_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let database = schema::open(&folder.path().join("copies.db")).unwrap();
    let database = database.sqlite().unwrap();
    let mut options = database.prepare("PRAGMA compile_options").unwrap();
    let options = options
        .query_map([], |row| row.get::<_, String>(0))
        .unwrap();
    let options: Vec<String> = options.collect::<Result<_, _>>().unwrap();
    assert!(
        options.contains(&"STMTJRNL_SPILL=8388608".to_owned()),
        "{options:?}"
    );
    let temporary = database.pragma_query_value(None, "temp_store", |row| row.get::<_, i64>(0));
    assert_eq!(temporary.unwrap(), 0, "what is larger is in files");
}
