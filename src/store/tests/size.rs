//! How much of the database a resource takes.

use resyncd_core::{ServedVersion, Validators};

use super::*;

/// The tables and indexes that have a row of each resource after a first copy.
const LARGE: &str = "'resource', 'sqlite_autoindex_resource_1', 'resource_path', 'member', 'member_of', 'statement', 'feed'";
const RESOURCES: u32 = 2000;

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
    let bytes = world.store.read(|sql| {
        let all =
            format!("SELECT name, SUM(pgsize) FROM dbstat WHERE name IN ({LARGE}) GROUP BY name");
        let mut all = sql.prepare(&all)?;
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
