//! How much of the database a resource takes.

use resyncd_core::{ServedVersion, Validators};
use rusqlite::Connection;

use super::*;
use crate::store::schema::DATABASE;

/// The tables and indexes that have a row of each resource after a first copy.
const LARGE: &str = "'resource', 'sqlite_autoindex_resource_1', 'resource_path', 'member', 'member_of', 'statement', 'feed'";
const RESOURCES: u32 = 2000;

/// Completes all tasks, with the name of each resource as its content.
async fn copy_all(world: &World) {
    loop {
        let tasks = world.due().await;
        if tasks.is_empty() {
            break;
        }
        let results = tasks.into_iter().map(|task| {
            let content = task.uri.url().path()[1..].to_owned();
            let version = ServedVersion {
                url: task.uri.url().clone(),
                validators: Validators {
                    etag: Some("\"67430b6d-3e8\"".to_owned()),
                    last_modified: Some("Sun, 24 Nov 2024 11:18:05 GMT".to_owned()),
                },
            };
            TaskResult::Published(Publication {
                version: Some(version),
                media_type: Some("text/plain".to_owned()),
                ..publication(task, &content)
            })
        });
        world.complete(results.collect()).await;
    }
}

/// A resource as most are: with a digest, a media type, and the validators of a server.
#[tokio::test]
async fn resource_takes_few_bytes_beyond_its_uri() {
    let world = World::new().await;
    let names = (0..RESOURCES).map(|number| format!("set1/res/r{number:04}.txt"));
    let entries = names.map(|name| {
        let mut entry = with_content(created(&name, 10), &name);
        entry.content.media_type = Some("text/plain".to_owned());
        entry.lastmod = Some(at(10));
        entry
    });
    world.list(world.set, 20, entries.collect()).await;
    copy_all(&world).await;
    let bytes = world.store.read(|sql| {
        let all =
            format!("SELECT name, SUM(pgsize) FROM dbstat WHERE name IN ({LARGE}) GROUP BY name");
        let mut all = sql.prepare_cached(&all)?;
        let all = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(all.collect::<Result<Vec<(String, u32)>, _>>()?)
    });
    let bytes = bytes.await.unwrap();
    let uri = u32::try_from(uri("set1/res/r0000.txt").as_str().len()).unwrap();
    let each = bytes.iter().map(|(_, bytes)| bytes).sum::<u32>() / RESOURCES - uri;
    let parts: Vec<String> = bytes
        .iter()
        .map(|(name, bytes)| format!("{name}: {}", bytes / RESOURCES))
        .collect();
    println!("{each} beyond the {uri} of the URI; {}", parts.join(", "));
    assert!(each < 240, "{each}: {parts:?}");
}

/// Each write of a list that is read again costs as much for few resources as for many.
#[tokio::test]
async fn list_that_is_read_again_writes_no_row_of_a_resource() {
    let world = World::new().await;
    let entries: Vec<Change> = (0..10_000)
        .map(|number| {
            let name = format!("r{number:05}");
            let entry = with_content(created(&name, 10), &name);
            Change {
                lastmod: Some(at(10)),
                ..entry
            }
        })
        .collect();
    world.list(world.set, 20, entries.clone()).await;
    copy_all(&world).await;
    let database = Connection::open(world.folder.path().join(DATABASE)).unwrap();
    let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
    let is_busy: bool = database.query_row(truncate, [], |row| row.get(0)).unwrap();
    assert!(!is_busy);
    world.list(world.set, 30, entries).await;
    let log = world.folder.path().join("resyncd.db-wal");
    let bytes = std::fs::metadata(log).unwrap().len();
    assert_eq!(world.due_names().await, [""; 0]);
    println!("{bytes} bytes of WAL");
    assert!(bytes < 100_000, "{bytes}");
}
