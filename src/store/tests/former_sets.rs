//! What stays of sets that are not followed any more.

use chrono::TimeDelta;
use resyncd_core::ChannelState;

use super::*;

impl World {
    /// How many rows a table has that fulfil a condition.
    async fn rows(&self, table: &'static str, condition: &'static str) -> i64 {
        let counted = self.store.read(move |sql| {
            let count = format!("SELECT COUNT(*) FROM {table} WHERE {condition}");
            Ok(sql.query_row(&count, [], |row| row.get(0))?)
        });
        counted.await.unwrap()
    }

    async fn end(&self, set: SetId) {
        let ending = self.store.end_set(SOURCE, set, self.now);
        ending.await.unwrap();
    }

    async fn trim_sets(&self, days: i64) {
        let now = self.now + TimeDelta::days(days);
        self.store.trim_sets(Some(SOURCE), now).await.unwrap();
    }

    /// How many sets there are, and how many of them count towards the limit.
    async fn sets(&self) -> (i64, usize) {
        let counted = self.store.counted_sets(SOURCE).await.unwrap();
        (self.rows("source_set", "1 = 1").await, counted.len())
    }
}

/// A task that was given up is tried again, and its set ends by a clock that was read before that: the task seems to be at rest.
#[tokio::test]
async fn result_for_a_set_that_is_gone_fails_no_other() {
    let world = World::new().await;
    let set = begin(&world.store, "other.xml").await;
    world.list(set, 10, vec![created("absent", 5)]).await;
    let absent = world.due().await.remove(0);
    world.complete(vec![failed(absent.clone(), None)]).await;
    world.announce(vec![created("other", 20)]).await;
    let other = world.due().await.remove(0);
    world.end(set).await;
    assert_eq!(world.sets().await, (1, 1));
    world
        .complete(vec![failed_as_absent(absent), published(other, "1")])
        .await;
    assert_eq!(world.rows("task", "1 = 1").await, 0);
    assert_eq!(world.rows("resource", "applied_at IS NOT NULL").await, 1);
}

#[tokio::test]
async fn set_that_returns_is_published_only_with_a_copy() {
    let world = World::new().await;
    let set = begin(&world.store, "other.xml").await;
    world.list(set, 10, vec![created("file", 5)]).await;
    for task in world.due().await {
        world.complete(vec![published(task, "1")]).await;
    }
    let publish = async || {
        let sources = vec![SOURCE.to_owned()];
        let publishing = world.store.publish_sources(world.now, sources);
        publishing.await.unwrap();
        world.rows("published_set", "1 = 1").await
    };
    assert_eq!(publish().await, 1);
    world.end(set).await;
    assert_eq!(begin(&world.store, "other.xml").await, set);
    assert_eq!(publish().await, 0);
}

#[tokio::test]
async fn set_that_ends_leaves_nothing_but_its_files() {
    let world = World::new().await;
    let set = begin(&world.store, "other.xml").await;
    // Resources with a higher number stay: the last number of all is not used again.
    let names = ["file", "pending", "given-up", "gone", "failing", "last"];
    let listed = names.map(|name| created(name, 5));
    world.list(set, 10, listed.to_vec()).await;
    let mut pending = Vec::new();
    for task in world.due().await {
        let result = match task.uri.as_str().rsplit('/').next().unwrap() {
            "pending" | "failing" => {
                pending.push(task);
                continue;
            }
            "given-up" => failed(task, None),
            "gone" => failed_as_absent(task),
            _ => published(task, "1"),
        };
        world.complete(vec![result]).await;
    }
    world.end(set).await;
    assert_eq!(world.sets().await, (2, 2));
    assert_eq!(world.rows("resource", "1 = 1").await, 4);
    assert_eq!(world.rows("task", "1 = 1").await, 2);
    for table in ["coverage", "gap", "document", "part", "dump"] {
        assert_eq!(world.rows(table, "1 = 1").await, 0, "{table}");
    }
    assert_eq!(world.rows("source_set", "baseline <> 'missing'").await, 0);
    // What is executed still is published, or goes once it is given up.
    for task in pending {
        let result = if task.uri.as_str().ends_with("pending") {
            published(task, "1")
        } else {
            failed(task, None)
        };
        world.complete(vec![result]).await;
    }
    world.trim_sets(0).await;
    assert_eq!(world.rows("resource", "1 = 1").await, 3);
    assert_eq!(world.rows("member", "1 = 1").await, 3);
    assert_eq!(world.rows("task", "1 = 1").await, 0);
    assert_eq!(world.sets().await, (2, 2));
    assert_eq!(world.store.known_resources(SOURCE).await.unwrap(), 3);

    // If it returns it begins with its baseline, and uses them.
    begin(&world.store, "other.xml").await;
    world.list(set, 20, listed[..2].to_vec()).await;
    assert_eq!(world.due_names().await, ["deleted last"]);
}

#[tokio::test]
async fn set_that_nothing_names_is_gone_and_its_number_does_not_return() {
    let world = World::new().await;
    let first = begin(&world.store, "other.xml").await;
    world.list(first, 10, Vec::new()).await;
    world.end(first).await;
    assert_eq!(world.sets().await, (1, 1));
    let second = begin(&world.store, "other.xml").await;
    assert_ne!(first, second);
    let statistics = world.store.set_statistics(second).await.unwrap();
    assert_eq!(statistics.resources, 0);
}

#[tokio::test]
async fn set_that_only_the_feed_or_a_deletion_names_does_not_count() {
    let world = World::new().await;
    world.list(world.set, 10, vec![created("kept", 5)]).await;
    let set = begin(&world.store, "other.xml").await;
    world.list(set, 10, vec![created("a", 5)]).await;
    world.work("1").await;
    world.announce_in(set, vec![deleted("a", 20)]).await;
    world.work("").await;
    world.end(set).await;
    assert_eq!(world.sets().await, (2, 1));
    // Neither the deletion that is remembered for a day, nor the entries, nor the row of the resource name it any more.
    world.trim_sets(2).await;
    assert_eq!(world.sets().await, (2, 1));
    assert_eq!(world.rows("loss", "1 = 1").await, 0);
    let strange = world.store.write(move |tx| {
        tx.sql
            .execute("DELETE FROM feed WHERE set_id = ?1", [set])?;
        let other =
            "UPDATE resource SET set_id = (SELECT MIN(id) FROM source_set) WHERE set_id = ?1";
        tx.sql.execute(other, [set])?;
        Ok(())
    });
    strange.await.unwrap();
    world.trim_sets(2).await;
    assert_eq!(world.sets().await, (1, 1));
}

#[tokio::test]
async fn set_stays_until_its_channels_have_ended() {
    let world = World::new().await;
    let id = world.channel().await;
    let activate = |channel: &mut Channel| channel.lease.state = ChannelState::Active;
    let changing = world.store.change_channel(id, false, activate);
    changing.await.unwrap();
    world.end(world.set).await;
    assert_eq!(world.sets().await, (1, 1));
    for is_over in [false, true] {
        let now = world.now;
        let changing = world.store.change_channel(id, false, move |channel| {
            channel.leave(now);
            if is_over {
                channel.lease.state = ChannelState::Unsubscribed;
            }
        });
        changing.await.unwrap();
        world.trim_sets(0).await;
        let left = i64::from(!is_over);
        assert_eq!(world.rows("channel", "1 = 1").await, left);
        assert_eq!(world.sets().await.0, left);
    }
}

/// It names the set that it was of when it began.
#[tokio::test]
async fn set_stays_while_the_result_of_a_dropped_task_may_arrive() {
    let world = World::new().await;
    let set = begin(&world.store, "other.xml").await;
    world.list(set, 10, vec![created("a", 5)]).await;
    let task = world.due().await.remove(0);
    world.list(world.set, 10, vec![created("a", 5)]).await;
    world.end(set).await;
    world.store.leave_shared(set).await.unwrap();
    world.trim_sets(0).await;
    assert_eq!(world.sets().await.0, 2);
    world.complete(vec![published(task, "1")]).await;
    assert_eq!(world.totals(world.set).await.0, 1);
}

#[tokio::test]
async fn former_set_leaves_what_others_have() {
    let world = World::new().await;
    let set = begin(&world.store, "other.xml").await;
    let names = ["a", "b", "c", "d", "e"];
    world
        .list(set, 10, names.map(|name| created(name, 5)).to_vec())
        .await;
    world.work("1").await;
    world.end(set).await;
    let shared = names[..4].iter().map(|name| created(name, 5));
    world.list(world.set, 10, shared.collect()).await;
    assert_eq!(world.totals(set).await.0, 5);
    world.store.leave_shared(set).await.unwrap();
    assert_eq!(world.totals(set).await.0, 1);
    assert_eq!(world.totals(world.set).await.0, 4);
}

/// Such as of a site whose documents have moved with it: what the former set has stated, no document states any more.
#[tokio::test]
async fn earlier_modification_counts_once_the_set_of_the_later_one_has_ended() {
    let world = World::new().await;
    let former = begin(&world.store, "former.xml").await;
    let modified = |seconds| Change {
        lastmod: Some(at(seconds)),
        ..created("a", seconds)
    };
    world.list(former, 30, vec![modified(20)]).await;
    world.work("x").await;
    world.list(world.set, 40, vec![modified(10)]).await;
    assert!(world.due().await.is_empty());
    world.end(former).await;
    world.list(world.set, 50, vec![modified(10)]).await;
    assert_eq!(world.due().await.len(), 1);
}
