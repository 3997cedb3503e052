//! Trimming: what is not needed any more goes, and what is needed stays.

use chrono::TimeDelta;

use super::*;
use crate::store::tables::values::Column;
use crate::store::tx::settle::drop_at_rest;

impl World {
    /// Looks at all rows once, some days from now.
    async fn trim_after(&self, days: i64) {
        let now = self.now + TimeDelta::days(days);
        let mut position = TrimPosition::default();
        let deleting = [SOURCE.to_owned()];
        while let Some(next) = self
            .store
            .trim_resources(now, position, &deleting)
            .await
            .unwrap()
        {
            position = next;
        }
    }

    async fn known(&self) -> u64 {
        let known = self.store.known_resources(SOURCE).await.unwrap();
        let counted = self.store.read(|sql| {
            let rows = sql.query_row("SELECT COUNT(*) FROM resource", [], |row| {
                row.get::<_, i64>(0)
            });
            Ok(rows?)
        });
        assert_eq!(counted.await.unwrap(), i64::try_from(known).unwrap());
        known
    }

    /// Leaves nothing but the row of a resource.
    async fn strand(&self, name: &str) {
        let uri = uri(name);
        let stranded = self.store.write(move |tx| {
            let id = "SELECT id FROM resource WHERE uri = ?1";
            let id: ResourceId = tx.sql.query_row(id, [Column(&uri)], |row| row.get(0))?;
            drop_at_rest(tx.sql, id)?;
            let members = "DELETE FROM member WHERE resource_id = ?1";
            Ok(tx.sql.execute(members, [id]).map(drop)?)
        });
        stranded.await.unwrap();
    }

    fn pages(&self) -> i64 {
        let path = self.folder.path().join(schema::DATABASE);
        let sql = Connection::open(path).unwrap();
        sql.pragma_query_value(None, "page_count", |row| row.get(0))
            .unwrap()
    }
}

/// What a Destination lacks that was away since is not in the Change Lists: they must not begin before it.
#[tokio::test]
async fn change_lists_begin_behind_a_feed_that_was_trimmed_to_its_end() {
    let world = World::new().await;
    let set = begin(&world.store, "other.xml").await;
    world.list(set, 10, vec![created("first", 5)]).await;
    let complete = async || {
        for task in world.due().await {
            world.complete(vec![published(task, "1")]).await;
        }
    };
    complete().await;
    let publishing = world
        .store
        .publish_sources(world.now, vec![SOURCE.to_owned()]);
    assert_eq!(publishing.await.unwrap(), 1);
    let listed = vec![created("first", 5), created("more", 15)];
    world.list(set, 20, listed).await;
    complete().await;
    let last = world.store.feed(0, 10).await.unwrap().pop().unwrap();
    let trimming = world.store.trim_feed(world.now + TimeDelta::days(1));
    trimming.await.unwrap();
    assert!(world.store.feed(last.seq, 10).await.unwrap().is_empty());
    let spans = world.store.published(|rows| {
        let set = rows.sets(SOURCE)?.remove(0);
        rows.spans(&set, None, 1 << 15)
    });
    assert_eq!(spans.await.unwrap()[0].from, last.applied_at);
}

fn names(prefix: &str, count: usize) -> Vec<Change> {
    (0..count)
        .map(|n| created(&format!("{prefix}{n}"), 10))
        .collect()
}

#[tokio::test]
async fn resources_beyond_the_limit_are_rejected_and_nothing_else() {
    let world = World::new().await;
    world.store.limit_resources(Some(3)).await.unwrap();
    world.announce(names("a", 2)).await;
    world.work("1").await;
    let too_many = world.batch(world.set, names("b", 2), Some(end()));
    let error = world.store.ingest(too_many).await.unwrap_err();
    assert_eq!(error.code(), "too-many-resources");
    assert_eq!(world.known().await, 2, "all of it or nothing");
    // What is known goes on.
    world.announce(vec![updated("a0", 20)]).await;
    assert_eq!(world.due_names().await, ["updated a0"]);
    world.work("2").await;
    assert_eq!(world.totals(world.set).await.0, 2);
    world.announce(names("b", 1)).await;
    assert_eq!(world.known().await, 3);
    world.store.limit_resources(None).await.unwrap();
    world.announce(names("c", 2)).await;
    assert_eq!(world.known().await, 5);
}

#[tokio::test]
async fn rows_that_nothing_needs_are_removed_after_a_week() {
    let world = World::new().await;
    world.announce(names("a", 3)).await;
    world.strand("a0").await;
    world.strand("a1").await;
    world.trim_after(0).await;
    world.trim_after(6).await;
    assert_eq!(world.known().await, 3);
    // One of them is stated again.
    world.announce(vec![created("a1", 30)]).await;
    world.trim_after(8).await;
    assert_eq!(world.known().await, 2);
    assert_eq!(world.due_names().await, ["created a1", "created a2"]);
    world.announce(vec![created("a0", 30)]).await;
    world.work("1").await;
    assert_eq!(world.totals(world.set).await.0, 3);
}

/// There may be a file of it.
#[tokio::test]
async fn rows_in_doubt_stay() {
    let world = World::new().await;
    world.announce(names("a", 3)).await;
    let due = world.due().await;
    let in_doubt = due.iter().find(|task| task.uri == uri("a0")).unwrap();
    world.store.doubt(vec![in_doubt.resource]).await.unwrap();
    world.strand("a0").await;
    world.strand("a1").await;
    world.trim_after(0).await;
    world.trim_after(8).await;
    assert_eq!(world.known().await, 2);
}

#[tokio::test]
async fn deletions_are_remembered_until_no_older_document_counts() {
    let world = World::new().await;
    world.list(world.set, 10, names("a", 3)).await;
    world.announce(names("last", 1)).await;
    world.work("1").await;
    world
        .announce(vec![deleted("a0", 20), deleted("a1", 40)])
        .await;
    world.store.approve_deletions(SOURCE).await.unwrap();
    world.work("1").await;
    let listed = ["a2", "last0"].map(|name| created(name, 10)).to_vec();
    world.list(world.set, 30, listed).await;
    world.trim_after(0).await;
    world.trim_after(80).await;
    assert_eq!(world.known().await, 4);
    world.trim_after(100).await;
    world.trim_after(108).await;
    // No Resource List is newer than the other deletion.
    assert_eq!(world.known().await, 3);
    world.announce(vec![created("a1", 35)]).await;
    assert!(!world.due_names().await.contains(&"created a1".to_owned()));
}

#[tokio::test]
async fn last_row_stays_so_that_no_id_is_used_twice() {
    let world = World::new().await;
    world.announce(names("a", 2)).await;
    let mut tasks = world.due().await;
    tasks.retain(|task| task.uri == uri("a0"));
    world.strand("a0").await;
    world.strand("a1").await;
    world.trim_after(0).await;
    world.trim_after(8).await;
    assert_eq!(world.known().await, 1);
    world.announce(names("c", 2)).await;
    // The result of a task whose row is gone belongs to no other resource.
    let late = tasks.into_iter().map(|task| published(task, "late"));
    world.complete(late.collect()).await;
    assert_eq!(world.due_names().await, ["created c0", "created c1"]);
    assert_eq!(world.totals(world.set).await.0, 0);
    assert!(world.store.feed(0, 9).await.unwrap().is_empty());
}

#[tokio::test]
async fn readers_of_the_feed_learn_that_entries_were_removed() {
    let mut world = World::new().await;
    world.announce(names("a", 3)).await;
    world.work("1").await;
    let before = world.store.feed(0, 9).await.unwrap();
    world.now += TimeDelta::days(1);
    world.announce(names("b", 1)).await;
    world.work("1").await;
    assert!(
        !world
            .store
            .trim_feed(world.now - TimeDelta::days(2))
            .await
            .unwrap()
    );
    assert_eq!(world.store.feed(0, 9).await.unwrap().len(), 4);
    assert!(!world.store.trim_feed(world.now).await.unwrap());
    let last = before[2].seq;
    for since in [0, before[0].seq, before[1].seq] {
        let error = world.store.feed(since, 9).await.unwrap_err();
        assert_eq!(error.code(), "feed-trimmed");
        assert!(matches!(error, StoreError::FeedTrimmed { oldest } if oldest == last));
    }
    assert_eq!(world.store.feed(last, 9).await.unwrap().len(), 1);
    // Also when all are gone: numbers go on, and positions stay known.
    world
        .store
        .trim_feed(world.now + TimeDelta::days(1))
        .await
        .unwrap();
    let error = world.store.feed(last, 9).await.unwrap_err();
    assert_eq!(error.code(), "feed-trimmed");
    world.announce(names("c", 1)).await;
    world.work("1").await;
    let after = world.store.feed(last + 1, 9).await.unwrap();
    assert_eq!(after[0].seq, last + 2);
}

#[tokio::test]
async fn database_shrinks_when_entries_are_removed() {
    let world = World::new().await;
    for round in 0..8 {
        let updates = (0..1000).map(|n| updated(&format!("a{n}"), 10 + round));
        world.announce(updates.collect()).await;
        world.work("1").await;
    }
    // What else is free counts for nothing.
    while world.store.shrink().await.unwrap() {}
    let before = world.pages();
    while world
        .store
        .trim_feed(world.now + TimeDelta::days(1))
        .await
        .unwrap()
    {}
    while world.store.shrink().await.unwrap() {}
    let after = world.pages();
    assert!(after < before - 50, "{before} pages, then {after}");
}
