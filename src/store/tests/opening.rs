use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::protocol::{Oddities, ServedVersion, Validators, parse_hashes};
use crate::store::schema;

#[tokio::test]
async fn second_process_is_locked_out() {
    let world = World::new().await;
    let second = Store::open(world.folder.path());
    assert!(matches!(second, Err(StoreError::Locked(_))));
    let World { folder, store, .. } = world;
    drop(store);
    assert!(Store::open(folder.path()).is_ok());
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
async fn newer_schema_is_refused_and_left_alone() {
    let World { folder, store, .. } = World::new().await;
    drop(store);
    let path = folder.path().join("resyncd.db");
    let database = Connection::open(&path).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    drop(database);
    let refused = Store::open(folder.path());
    assert!(matches!(
        refused,
        Err(StoreError::NewerSchema { found: 99, .. })
    ));
    let files = std::fs::read_dir(folder.path()).unwrap();
    assert!(
        files
            .flatten()
            .all(|file| !file.file_name().to_string_lossy().contains("damaged"))
    );
}

/// A database of the version with so many steps of the schema, with these rows, opened by this version.
fn of_version(version: usize, rows: &[&str]) -> World {
    let folder = tempfile::tempdir().unwrap();
    let database = Connection::open(folder.path().join("resyncd.db")).unwrap();
    for sql in schema::STEPS[..version].iter().chain(rows) {
        database.execute_batch(sql).unwrap();
    }
    let version = i64::try_from(version).unwrap();
    database
        .pragma_update(None, "user_version", version)
        .unwrap();
    drop(database);
    World {
        store: Store::open(folder.path()).unwrap(),
        folder,
        set: SetId(1),
        now: DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
    }
}

/// The version before the step of the schema that has this text.
fn version_before(text: &str) -> usize {
    let step = schema::STEPS.iter().position(|step| step.contains(text));
    step.unwrap_or_else(|| panic!("no step has {text:?}"))
}

/// The objects of a schema with their SQL, without comments and optional space, those of a table in their order; and the rows that each
/// table has.
fn schema_of(database: &Connection) -> Vec<(String, String, i64)> {
    let query = "SELECT name, coalesce(sql, ''), type = 'table' FROM sqlite_schema ORDER BY type, tbl_name, rowid";
    let mut objects = database.prepare(query).unwrap();
    let objects = objects.query_map([], |row| <(String, String, bool)>::try_from(row));
    let objects = objects.unwrap().map(Result::unwrap);
    let with_rows = objects.map(|(name, sql, is_table)| {
        let lines = sql.lines().map(|line| line.split("--").next().unwrap());
        let words = lines.flat_map(str::split_whitespace);
        let mut sql = words.collect::<Vec<_>>().join(" ");
        for sign in [",", "(", ")"] {
            for spaced in [format!(" {sign}"), format!("{sign} ")] {
                sql = sql.replace(&spaced, sign);
            }
        }
        let count = format!("SELECT COUNT(*) FROM \"{name}\"");
        let rows = is_table.then(|| database.query_row(&count, [], |row| row.get(0)).unwrap());
        (name, sql, rows.unwrap_or(0))
    });
    with_rows.collect()
}

#[test]
fn new_database_has_the_schema_that_all_migrations_make() {
    let folder = tempfile::tempdir().unwrap();
    let new = schema::open(&folder.path().join("new.db")).unwrap();
    let migrated = Connection::open_in_memory().unwrap();
    migrated.execute_batch(&schema::STEPS.concat()).unwrap();
    let (new, migrated) = (schema_of(&new), schema_of(&migrated));
    assert!(new.len() > 70, "{}", new.len());
    for (new, migrated) in new.iter().zip(&migrated) {
        assert_eq!(new, migrated);
    }
    assert_eq!(new.len(), migrated.len());
}

/// A database of the first schema, with a set, a resource in the mirror, and a due update of it.
#[tokio::test]
async fn database_of_the_first_version_keeps_working() {
    let rows = "INSERT INTO source_set (id, source, capability_list, baseline, resources, bytes)
         VALUES (1, 'demo', 'https://example.org/capabilitylist.xml', 'done', 1, 3);
         INSERT INTO coverage (set_id, from_time, until_time) VALUES (1, 0, 20000000);
         INSERT INTO document (set_id, uri, etag, digest) VALUES (1, 'https://example.org/c', 'e', zeroblob(32));
         INSERT INTO resource (id, source, uri, set_id, path, length, changed_at, applied_at)
         VALUES (1, 'demo', 'https://example.org/a', 1, 'example.org/a', 3, 10000000, 10000000);
         INSERT INTO member (set_id, resource_id, generation) VALUES (1, 1, 0);
         INSERT INTO task (resource_id, source, set_id, authority, kind, changed_at, hashes, origin, state)
         VALUES (1, 'demo', 1, 'example.org', 'updated', 20000000, '', 'change-list', 'ready');
         INSERT INTO channel (set_id, kind, topic, subscribed_topic, hub, advertised_hubs, known_hubs, token, state, failures)
         VALUES (1, 'change-notification', 'https://example.org/t', 'https://example.org/u', 'https://hub.example/', '', '',
                 'token', 'active', 0);
         INSERT INTO inbox (channel_id, received_at, body) VALUES (1, 0, X'6162');";
    let world = of_version(1, &[rows]);
    let record = world.store.sets(SOURCE).await.unwrap().remove(0);
    assert_eq!((record.id, record.open_list), (world.set, None));
    let document = "https://example.org/c".parse().unwrap();
    let document = world.store.document(world.set, &document).await.unwrap();
    assert_eq!(document.unwrap().validators.etag.as_deref(), Some("e"));
    // A running subscription is at the hub that was asked last; the address that it was given is not known.
    let channel = world.store.channels(world.set).await.unwrap().remove(0);
    let own = channel.callbacks.own.unwrap();
    assert_eq!(
        (own.hub.as_str(), own.topic.as_str()),
        ("https://hub.example/", "https://example.org/u")
    );
    assert_eq!(own.base, None);
    assert_eq!(channel.inbox, 1, "deliveries are counted");
    assert_eq!(channel.transport.code(), "websub");
    assert_eq!(world.statistics().await.pending, 1, "tasks are counted");
    let task = world.due().await.remove(0);
    assert!(task.live && task.links.is_empty() && task.live_version.is_none());
    let known = world.store.resource(&uri("a")).await.unwrap().unwrap();
    assert_eq!((known.length, known.links), (Some(3), Vec::new()));
    world.work("1234").await;
    assert_eq!(world.totals(world.set).await, (1, 4));
    world.announce(vec![created("b", 30)]).await;
    world.work("1").await;
    assert_eq!(world.totals(world.set).await, (2, 5));
}

/// A database of the time when rows had all of their texts: two live resources with an update, a deleted one, and the feed.
const ROWS_OF_TEXTS: &str = "
    INSERT INTO source_set (id, source, capability_list, baseline, was_read, resources, bytes)
        VALUES (1, 'demo', 'https://example.org/capabilitylist.xml', 'done', 1, 2, 6);
    INSERT INTO coverage (set_id, from_time, until_time) VALUES (1, 0, 20000000);
    INSERT INTO task_count (set_id) VALUES (1);
    INSERT INTO resource_count (source, resources) VALUES ('demo', 3);
    INSERT INTO resource (id, source, uri, set_id, path, length, media_type, hashes, lastmod, changed_at, change, applied_at,
                          deleted, served_by, etag, last_modified)
    VALUES (1, 'demo', 'https://example.org/a', 1, 'example.org/a', 3, 'text/plain',
            'md5:900150983cd24fb0d6963f7d28e17f72 sha-256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
            9000000, 10000000, NULL, 10000000, 0, 'https://example.org/a', '\"900150983cd24fb0d6963f7d28e17f72\"',
            'Tue, 24 Nov 2026 02:31:13 GMT'),
           (2, 'demo', 'https://example.org/b', 1, 'example.org/%made/00/b', 3, NULL, '', NULL, 10000000, 'created', 10000000,
            0, 'https://cdn.example/b', 'W/\"1\"', NULL),
           (3, 'demo', 'https://example.org/c', 1, 'example.org/c', 3, NULL, '', NULL, 11000000, 'deleted', 11000000,
            1, NULL, NULL, NULL);
    INSERT INTO member (set_id, resource_id, generation) VALUES (1, 1, 0), (1, 2, 0);
    INSERT INTO task (resource_id, source, set_id, authority, kind, changed_at, hashes, origin, state)
    VALUES (1, 'demo', 1, 'example.org', 'updated', 20000000, '', 'change-list', 'ready'),
           (2, 'demo', 1, 'example.org', 'updated', 20000000, '', 'change-list', 'ready');
    INSERT INTO feed (seq, applied_at, source, set_id, uri, change, path, length, changed_at, origin)
    VALUES (1, 10000000, 'demo', 1, 'https://example.org/a', 'created', 'example.org/a', 3, 9000000, 'resource-list'),
           (2, 10000000, 'demo', 1, 'https://example.org/b', 'created', 'example.org/%made/00/b', 3, 10000000, 'notification'),
           (3, 11000000, 'demo', 1, 'https://example.org/c', 'deleted', NULL, NULL, 11000000, 'change-list');";

/// Where the state was called `weighed`, an interrupted process may have left a deletion in it.
#[tokio::test]
async fn undecided_deletion_of_an_earlier_version_is_decided() {
    let left = "UPDATE task SET kind = 'deleted', state = 'weighed' WHERE resource_id = 1;
        INSERT INTO part (set_id, uri, told, kept) VALUES (1, 'https://example.org/list', 5, 7);";
    let world = of_version(version_before("RENAME COLUMN told"), &[ROWS_OF_TEXTS, left]);
    let read = async || {
        let query = "SELECT task.state, task_count.undecided, part.stated_at, part.unchanged
             FROM task JOIN task_count USING (set_id) JOIN part USING (set_id) WHERE task.resource_id = 1";
        let read = world.store.read(move |sql| {
            let found = |row: &rusqlite::Row<'_>| <(String, i64, i64, i64)>::try_from(row);
            Ok(sql.query_row(query, [], found)?)
        });
        read.await.unwrap()
    };
    assert_eq!(read().await, ("undecided".to_owned(), 1, 5, 7));
    // It waits until a document states it again.
    world.announce(vec![created("d", 30)]).await;
    assert_eq!(read().await, ("interrupted".to_owned(), 1, 5, 7));
    world.announce(vec![deleted("a", 40)]).await;
    assert_eq!(read().await, ("ready".to_owned(), 0, 5, 7));
}

#[tokio::test]
async fn rows_of_texts_are_read_as_before() {
    let world = of_version(version_before("shorter form"), &[ROWS_OF_TEXTS]);
    assert_eq!(copies(world.folder.path()).len(), 1);
    let known = async |name: &str| world.store.resource(&uri(name)).await.unwrap().unwrap();
    let a = known("a").await;
    assert_eq!(a.path.as_deref(), Some("example.org/a"));
    assert_eq!(a.media_type.as_deref(), Some("text/plain"));
    assert_eq!(
        a.hashes,
        "md5:900150983cd24fb0d6963f7d28e17f72 sha-256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    let b = known("b").await;
    assert_eq!(b.path.as_deref(), Some("example.org/%made/00/b"));
    assert_eq!(b.hashes, "");
    assert!(known("c").await.deleted);
    let tasks = world.due().await;
    let versions = tasks.iter().map(|task| {
        let version = task.live_version.as_ref().unwrap();
        let validators = &version.validators;
        let (etag, time) = (&validators.etag, &validators.last_modified);
        (version.url.as_str(), etag.as_deref(), time.as_deref())
    });
    assert_eq!(
        versions.collect::<Vec<_>>(),
        [
            (
                "https://example.org/a",
                Some("\"900150983cd24fb0d6963f7d28e17f72\""),
                Some("Tue, 24 Nov 2026 02:31:13 GMT")
            ),
            ("https://cdn.example/b", Some("W/\"1\""), None),
        ]
    );
    assert_eq!(
        tasks[0].live_hashes,
        parse_hashes(&a.hashes, &mut Oddities::default())
    );
    let feed = world.store.feed(0, 9).await.unwrap();
    let entries = feed.iter().map(|entry| {
        (
            entry.source.as_str(),
            entry.uri.as_str(),
            entry.change.as_str(),
            entry.path.as_deref(),
            entry.origin.as_str(),
        )
    });
    assert_eq!(
        entries.collect::<Vec<_>>(),
        [
            (
                "demo",
                "https://example.org/a",
                "created",
                Some("example.org/a"),
                "resource-list"
            ),
            (
                "demo",
                "https://example.org/b",
                "created",
                Some("example.org/%made/00/b"),
                "notification"
            ),
            (
                "demo",
                "https://example.org/c",
                "deleted",
                None,
                "change-list"
            ),
        ]
    );
    // The rows take the shorter forms as they change.
    let served = tasks.into_iter().map(|task| {
        let version = Some(ServedVersion {
            url: task.uri.url().clone(),
            validators: Validators {
                etag: Some("\"0123456789abcdef\"".to_owned()),
                last_modified: Some("Wed, 25 Nov 2026 02:31:13 GMT".to_owned()),
            },
        });
        let publication = publication(task, "1234");
        TaskResult::Published(Publication {
            version,
            ..publication
        })
    });
    world.complete(served.collect()).await;
    assert_eq!(world.totals(world.set).await, (2, 8));
    world
        .announce(vec![updated("a", 30), updated("b", 30), created("d", 30)])
        .await;
    let again = world.due().await;
    for task in &again[..2] {
        let version = task.live_version.clone().unwrap();
        assert_eq!(version.url, *task.uri.url());
        let validators = version.validators;
        assert_eq!(validators.etag.as_deref(), Some("\"0123456789abcdef\""));
        assert_eq!(
            validators.last_modified.as_deref(),
            Some("Wed, 25 Nov 2026 02:31:13 GMT")
        );
        assert_eq!(task.live_hashes, sha256("1234"));
    }
    let paths: Vec<_> = again.iter().map(|task| task.path.as_str()).collect();
    assert_eq!(
        paths,
        ["example.org/a", "example.org/%made/00/b", "example.org/d"]
    );
    // Each path belongs to its resource, stored or not.
    let files = KnownFiles::open(world.folder.path()).unwrap().unwrap();
    for (path, is_deleted) in [
        ("example.org/a", Some(false)),
        ("example.org/%made/00/b", Some(false)),
        ("example.org/c", Some(true)),
        ("example.org/d", Some(false)),
        ("example.org/b", None),
        ("example.org/e", None),
    ] {
        let found = files.of(SOURCE, None, Some(path)).unwrap();
        assert_eq!(
            found.as_ref().map(|file| file.deleted),
            is_deleted,
            "{path}"
        );
        if let Some(found) = found {
            assert_eq!(found.path.as_deref(), Some(path));
        }
    }
    let of_http = ["a", "c", "d"].map(|name| Change {
        uri: ResourceUri::parse(&format!("http://example.org/{name}")).unwrap(),
        ..created(name, 40)
    });
    let of_http_paths = of_http
        .clone()
        .map(|change| made_path(&change.uri).to_string());
    world.announce(of_http.to_vec()).await;
    let tasks = world.due().await;
    let paths = tasks
        .into_iter()
        .filter(|task| task.uri.url().scheme() == "http");
    assert_eq!(
        paths.map(|task| task.path).collect::<Vec<_>>(),
        of_http_paths
    );
}

/// The files in a folder that the migration has made.
fn copies(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut copies: Vec<_> = names
        .filter(|name| name.contains("before-upgrade"))
        .collect();
    copies.sort();
    copies
}

#[test]
fn database_is_copied_before_it_is_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resyncd.db");
    let of_version = |version: usize| {
        let _ = fs::remove_file(&path);
        let database = Connection::open(&path).unwrap();
        for step in &schema::STEPS[..version] {
            database.execute_batch(step).unwrap();
        }
        database
            .pragma_update(None, "user_version", i64::try_from(version).unwrap())
            .unwrap();
        let set = "INSERT INTO source_set (source, capability_list) VALUES ('demo', 'https://example.org/c')";
        database.execute(set, []).unwrap();
    };
    drop(Store::open(folder.path()).unwrap());
    assert_eq!(copies(folder.path()), [""; 0], "a new database");
    of_version(2);
    drop(Store::open(folder.path()).unwrap());
    assert_eq!(copies(folder.path()), ["resyncd-before-upgrade-2.db"]);
    let copy = folder.path().join("resyncd-before-upgrade-2.db");
    let database = Connection::open(&copy).unwrap();
    let version: i64 = database
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    let sets: i64 = database
        .query_row("SELECT COUNT(*) FROM source_set", [], |row| row.get(0))
        .unwrap();
    assert_eq!((version, sets), (2, 1));
    drop(database);
    drop(Store::open(folder.path()).unwrap());
    assert_eq!(copies(folder.path()).len(), 1, "nothing is migrated");

    // Only the last one is retained.
    of_version(3);
    drop(Store::open(folder.path()).unwrap());
    assert_eq!(copies(folder.path()), ["resyncd-before-upgrade-3.db"]);
}

#[test]
fn database_that_cannot_be_copied_is_not_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resyncd.db");
    let database = Connection::open(&path).unwrap();
    database.execute_batch(schema::STEPS[0]).unwrap();
    database.pragma_update(None, "user_version", 1).unwrap();
    drop(database);
    // Something that is no file.
    fs::create_dir(folder.path().join("resyncd-before-upgrade-1.db.unfinished")).unwrap();
    let error = Store::open(folder.path()).err().unwrap();
    assert_eq!(error.code(), "state-folder", "{error}");
    let database = Connection::open(&path).unwrap();
    let version: i64 = database
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, 1);
}

/// A database of the time when damaged Resource Lists and manifests counted as read completely.
#[tokio::test]
async fn damaged_documents_that_counted_as_complete_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let database = Connection::open(folder.path().join("resyncd.db")).unwrap();
    let steps = schema::STEPS.iter();
    let before: Vec<_> = steps
        .take_while(|step| !step.contains("bad_entries > 0"))
        .collect();
    for step in &before {
        database.execute_batch(step).unwrap();
    }
    let rows = format!(
        "INSERT INTO source_set (id, source, capability_list, baseline, generation)
         VALUES (1, 'demo', 'https://example.org/capabilitylist.xml', 'done', 1);
         INSERT INTO part (set_id, uri, filter, doubted, bad_entries) VALUES
             (1, 'https://example.org/damaged', 'all', 0, 1),
             (1, 'https://example.org/doubted', 'all', 1, 1),
             (1, 'https://example.org/whole', 'all', 0, 0);
         INSERT INTO dump (set_id, uri, digest, generation) VALUES (1, 'https://example.org/dump', zeroblob(32), 1);
         INSERT INTO dump_package (set_id, uri, version, proves) VALUES
             (1, 'https://example.org/damaged.zip', 'v', 0),
             (1, 'https://example.org/whole.zip', 'v', 1);
         INSERT INTO document (set_id, uri, digest)
             SELECT 1, 'https://example.org/' || value, zeroblob(32)
             FROM json_each('[\"damaged\", \"doubted\", \"whole\", \"dump\", \"changes\"]');
         PRAGMA user_version = {};",
        before.len()
    );
    database.execute_batch(&rows).unwrap();
    drop(database);
    let store = Store::open(folder.path()).unwrap();
    let url = |name: &str| url::Url::parse(&format!("https://example.org/{name}")).unwrap();
    for (name, is_known) in [
        ("damaged", false),
        ("doubted", false),
        ("whole", true),
        ("dump", false),
        ("changes", true),
    ] {
        let document = store.document(SetId(1), &url(name)).await.unwrap();
        assert_eq!(document.is_some(), is_known, "{name}");
        if let Some(part) = store.part(SetId(1), &url(name)).await.unwrap() {
            assert_eq!(part.known.is_complete, is_known, "{name}");
        }
    }
    // Although no document has changed.
    assert!(store.has_incomplete_parts(SetId(1), "all").await.unwrap());
    let package = async |name: &str| store.package(SetId(1), url(name).as_str()).await.unwrap();
    assert!(package("damaged.zip").await.is_none());
    assert!(package("whole.zip").await.is_some());
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
        let store = Store::open(folder.path()).unwrap();
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
    assert!(Store::open(folder.path()).is_ok());
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
    let store = Store::open(folder.path()).unwrap();
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
        "SELECT since FROM task WHERE set_id = 1 AND state <> 'rejected' ORDER BY since LIMIT 1",
        "SELECT MIN(given_up_since) FROM task WHERE set_id = 1 AND given_up_since IS NOT NULL",
        "SELECT resource_id FROM task WHERE source = 'a' AND given_up_since IS NOT NULL AND resource_id > 1
         ORDER BY resource_id LIMIT 9",
        "SELECT since FROM task WHERE set_id = 1 AND state <> 'rejected'
         AND EXISTS (SELECT 1 FROM member WHERE member.set_id = 2 AND member.resource_id = task.resource_id)
         ORDER BY since LIMIT 1",
        "SELECT other.id FROM source_set AS own
         JOIN source_set AS other ON other.source = own.source AND other.id <> own.id WHERE own.id = 1",
        "SELECT until_time FROM coverage WHERE set_id = 1 ORDER BY from_time LIMIT 1",
        "UPDATE task SET since = 1 WHERE resource_id IN (
         SELECT resource_id FROM task WHERE since > 1 AND state <> 'rejected' AND set_id = 1 LIMIT 9)",
        "SELECT resource_id FROM task WHERE since > 1 AND state <> 'rejected' AND set_id IN (SELECT other.id FROM source_set AS own
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
        "SELECT MAX(resource_id) FROM (SELECT resource_id FROM member WHERE set_id = 1 AND resource_id > 2
         ORDER BY resource_id LIMIT 9)",
        "SELECT member.resource_id FROM member JOIN resource ON resource.id = member.resource_id WHERE member.set_id = 1
         AND member.generation < 2 AND member.resource_id > 3 AND member.resource_id <= 4 AND NOT EXISTS (
             SELECT 1 FROM part WHERE part.id = member.part AND part.unchanged = 2 AND member.generation >= part.read)
         ORDER BY member.resource_id LIMIT 1000",
        "SELECT part.id FROM part JOIN source_set ON source_set.id = part.set_id WHERE part.set_id = 1 AND part.uri = 'a'",
        "UPDATE part SET doubted = 1 WHERE id IN (SELECT part FROM member WHERE resource_id = 1 AND part > 0)",
        "UPDATE part SET doubted = 1 WHERE set_id IN (SELECT set_id FROM member WHERE resource_id = 1 AND part = 0) AND doubted = 0",
        "SELECT id, channel_id, body FROM inbox WHERE id IN (1, 2, 3) ORDER BY id",
        "SELECT * FROM feed JOIN source_set ON source_set.id = feed.set_id WHERE seq > 1 ORDER BY seq LIMIT 3",
        "SELECT * FROM resource WHERE uri = 'a' AND source IN (SELECT DISTINCT source FROM source_set)",
        "SELECT 1 FROM member WHERE resource_id = 1 AND set_id <> 2",
        "SELECT * FROM channel WHERE token = 'a' OR next_token = 'a'",
        "SELECT 1 FROM channel WHERE id <> 1 AND former_of IS NULL AND (topic = 'a' OR subscribed_topic = 'a')",
    ] {
        let mut explain = database.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
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
    let store = Store::open(folder.path()).unwrap();
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
