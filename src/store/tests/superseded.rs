//! Tasks that are superseded while they are in progress: what they have done to the mirror is undone.

use super::*;

/// A resource that the mirror has, and a task of it that was superseded while it was in progress.
async fn in_progress(change: Change) -> (World, Task) {
    let world = World::new().await;
    let listed = with_content(created("a", -1), "first");
    world.list(world.set, 10, vec![listed]).await;
    world.work("first").await;
    world.announce_until(vec![change], 16).await;
    let task = world.due().await.remove(0);
    let again = with_content(created("a", -1), "first");
    world.list(world.set, 20, vec![again]).await;
    assert!(world.due().await.is_empty(), "it is superseded");
    (world, task)
}

#[tokio::test]
async fn file_removed_by_a_superseded_task_is_fetched_again() {
    let (world, task) = in_progress(deleted("a", 15)).await;
    let removed = TaskResult::Removed {
        task,
        file_stays: false,
    };
    world.complete(vec![removed]).await;
    assert_eq!(world.totals(world.set).await, (0, 0));
    let due = world.due().await;
    assert_eq!(world.due_names().await, ["created a"]);
    assert!(!due[0].live);
    assert_eq!(
        due[0].content.hashes,
        sha256("first"),
        "the list has stated it"
    );
    assert_eq!(
        world.statistics().await.synced_until,
        Some(at(20)),
        "`synced_until` is not lowered"
    );
    world.work("first").await;
    assert_eq!(world.totals(world.set).await, (1, 5));
    assert!(world.due().await.is_empty());
    world.list(world.set, 30, Vec::new()).await;
    assert_eq!(
        world.due_names().await,
        ["deleted a"],
        "it belongs to the set"
    );
}

#[tokio::test]
async fn restored_resource_that_the_source_does_not_have_fails_until_the_next_list() {
    let (world, task) = in_progress(deleted("a", 15)).await;
    world
        .complete(vec![TaskResult::Removed {
            task,
            file_stays: false,
        }])
        .await;
    let task = world.due().await.remove(0);
    world.complete(vec![failed_as_absent(task)]).await;
    assert!(world.due().await.is_empty());
    let statistics = world.statistics().await;
    assert_eq!(
        (statistics.pending, statistics.failed),
        (0, 1),
        "it is listed"
    );
    world.list(world.set, 30, Vec::new()).await;
    assert_eq!(world.statistics().await.failed, 0);
}

#[tokio::test]
async fn bytes_published_by_a_superseded_task_are_replaced() {
    let (world, task) = in_progress(with_content(updated("a", 15), "second")).await;
    world.complete(vec![published(task, "second")]).await;
    assert_eq!(world.totals(world.set).await, (1, 6));
    let due = world.due().await;
    assert_eq!(world.due_names().await, ["updated a"]);
    assert_eq!(
        (&due[0].content.hashes, due[0].content.length),
        (&sha256("first"), Some(5))
    );
    assert_eq!(due[0].live_hashes, sha256("second"));
    world.work("first").await;
    assert_eq!(world.totals(world.set).await, (1, 5));
    assert!(world.due().await.is_empty());
    let feed = world.store.feed(0, 9).await.unwrap();
    let lengths: Vec<_> = feed.iter().map(|line| line.length).collect();
    assert_eq!(lengths, [Some(5), Some(6), Some(5)]);
}

fn failed_in_doubt(task: Task) -> TaskResult {
    let failure = TaskFailure {
        is_in_doubt: true,
        ..failure_of(Some(DateTime::UNIX_EPOCH))
    };
    TaskResult::Failed { task, failure }
}

/// It may have been renamed into place, and the folder could not be synced.
#[tokio::test]
async fn file_that_a_superseded_task_may_have_changed_is_fetched_again() {
    let (world, task) = in_progress(with_content(updated("a", 15), "second")).await;
    world.complete(vec![failed_in_doubt(task)]).await;
    let due = world.due().await;
    assert_eq!(world.due_names().await, ["updated a"]);
    assert!(due[0].live_doubted);
    world.work("first").await;
    assert!(world.due().await.is_empty());
    let statistics = world.statistics().await;
    assert_eq!((statistics.pending, statistics.failed), (0, 0));
}

/// The process is killed before the result of a superseded task is stored.
#[tokio::test]
async fn superseded_task_is_undone_after_a_kill() {
    for (change, expected) in [
        (with_content(updated("a", 15), "second"), "updated a"),
        (deleted("a", 15), "updated a"),
    ] {
        let (world, _) = in_progress(change).await;
        world.store.mark_unclean_shutdown();
        let world = world.reopened();
        let due = world.due().await;
        assert_eq!(world.due_names().await, [expected]);
        assert!(due[0].live_doubted);
        world.work("first").await;
        assert!(world.due().await.is_empty());
        assert_eq!(world.totals(world.set).await, (1, 5));
    }
}

/// A deleted resource, and the task that creates it again, which was dropped while it was executed.
async fn superseded_creation() -> (World, Task) {
    let world = World::new().await;
    world.announce(vec![created("a", 10)]).await;
    world.work("first").await;
    world.announce(vec![deleted("a", 15)]).await;
    world.work("").await;
    world.announce(vec![created("a", 15)]).await;
    let task = world.due().await.remove(0);
    world.announce(vec![deleted("a", 15)]).await;
    assert!(world.due().await.is_empty(), "it is superseded");
    (world, task)
}

#[tokio::test]
async fn file_of_a_superseded_creation_is_removed_after_a_kill() {
    let (world, _) = superseded_creation().await;
    world.store.mark_unclean_shutdown();
    let world = world.reopened();
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.work("").await;
    assert_eq!(world.totals(world.set).await, (0, 0));
}

#[tokio::test]
async fn superseded_task_whose_result_is_stored_is_not_undone_after_a_kill() {
    let (world, task) = in_progress(with_content(updated("a", 15), "second")).await;
    let same = Publication {
        has_new_bytes: false,
        ..publication(task, "first")
    };
    world.complete(vec![TaskResult::Published(same)]).await;
    world.store.mark_unclean_shutdown();
    assert!(world.reopened().due().await.is_empty());
    let (world, _) = in_progress(with_content(updated("a", 15), "second")).await;
    assert!(world.reopened().due().await.is_empty(), "an end in order");
}

#[tokio::test]
async fn superseded_task_without_effect_is_not_undone() {
    let (world, task) = in_progress(with_content(updated("a", 15), "second")).await;
    let same = Publication {
        has_new_bytes: false,
        ..publication(task, "first")
    };
    world.complete(vec![TaskResult::Published(same)]).await;
    assert!(world.due().await.is_empty());
}

#[tokio::test]
async fn file_published_by_a_superseded_task_is_removed_again() {
    let (world, task) = superseded_creation().await;
    world.complete(vec![published(task, "second")]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.work("").await;
    assert_eq!(world.totals(world.set).await, (0, 0));
}

/// The file that the mirror had been to get may be there, and its record was lost with the process.
#[tokio::test]
async fn file_in_doubt_of_a_dropped_creation_is_removed() {
    let world = World::new().await;
    for (change, content) in [(created("a", 10), "first"), (deleted("a", 15), "")] {
        world.announce(vec![change]).await;
        world.work(content).await;
    }
    world.announce(vec![created("a", 15)]).await;
    world.store.mark_unclean_shutdown();
    let world = world.reopened();
    assert_eq!(world.due_names().await, ["created a"]);
    world.announce(vec![deleted("a", 15)]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.work("").await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.totals(world.set).await, (0, 0));
}

#[tokio::test]
async fn task_that_restores_a_resource_in_doubt_wakes_its_worker() {
    let world = World::new().await;
    world.announce(vec![created("a", 10)]).await;
    let id = world.due().await[0].resource;
    world.work("first").await;
    let mut wakes = world.store.wakes();
    world.store.doubt(vec![id]).await.unwrap();
    assert_eq!(world.due_names().await, ["updated a"]);
    assert_eq!(woken(&mut wakes), [Wake::Tasks(SOURCE.to_owned())]);
    world.store.doubt(vec![id]).await.unwrap();
    assert!(woken(&mut wakes).is_empty(), "it has a task");
}

/// A document that drops the task of a resource in doubt need not be ingested to its end.
#[tokio::test]
async fn task_in_place_of_a_dropped_one_wakes_its_worker() {
    let world = World::new().await;
    for (change, content) in [(created("a", 10), "first"), (deleted("a", 15), "")] {
        world.announce(vec![change]).await;
        world.work(content).await;
    }
    world.announce(vec![created("a", 15)]).await;
    world.store.mark_unclean_shutdown();
    let world = world.reopened();
    let mut wakes = world.store.wakes();
    let begin = world.batch(world.set, vec![deleted("a", 15)], None);
    assert_eq!(world.store.ingest(begin).await.unwrap().tasks, 1);
    world.end_document().await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    assert!(woken(&mut wakes).contains(&Wake::Tasks(SOURCE.to_owned())));
}
