//! Resources that are members of several sets: what one set states of them does not undo what another states.

use url::Url;

use super::*;

/// A resource that the mirror has, of two sets.
async fn of_two_sets() -> (World, SetId) {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    for set in [world.set, other] {
        world.list(set, 10, vec![created("a", 5)]).await;
    }
    world.work("1").await;
    (world, other)
}

async fn counts(world: &World, other: SetId) -> [u64; 2] {
    [world.totals(world.set).await.0, world.totals(other).await.0]
}

/// The Source answers that the resource of the one due deletion exists.
async fn left(world: &World, is_same: bool) {
    let task = world.due().await.remove(0);
    assert!(task.kind == ChangeKind::Deleted && task.is_shared);
    world
        .complete(vec![TaskResult::Left { task, is_same }])
        .await;
}

#[tokio::test]
async fn change_that_a_deletion_of_another_set_replaced_is_requested_again() {
    let (world, other) = of_two_sets().await;
    world.announce_in(other, vec![updated("a", 20)]).await;
    world.announce_in(world.set, vec![deleted("a", 21)]).await;
    let claimed = async || {
        let progress = Some((coverage(40), Vec::new()));
        let end = BatchCommit { progress, ..end() };
        let batch = world.batch(other, Vec::new(), Some(end));
        world.store.apply(batch).await.unwrap();
        let statistics = world.store.set_statistics(other).await.unwrap();
        statistics.synced_until
    };
    assert_eq!(claimed().await, Some(at(20)));
    left(&world, false).await;
    assert_eq!(claimed().await, Some(at(20)), "the change is not applied");
    assert_eq!(world.due_names().await, ["updated a"]);
    assert_eq!(counts(&world, other).await, [0, 1]);
    world.work("2").await;
    assert!(world.due().await.is_empty());
}

#[tokio::test]
async fn change_of_another_set_ends_a_pending_deletion() {
    let (world, other) = of_two_sets().await;
    world.announce_in(world.set, vec![deleted("a", 21)]).await;
    world.announce_in(other, vec![updated("a", 20)]).await;
    assert_eq!(world.due_names().await, ["updated a"]);
    assert_eq!(counts(&world, other).await, [0, 1]);
}

#[tokio::test]
async fn resource_that_is_the_same_is_not_requested_again() {
    let (world, other) = of_two_sets().await;
    world.announce_in(world.set, vec![deleted("a", 20)]).await;
    left(&world, true).await;
    assert!(world.due().await.is_empty());
    assert_eq!(counts(&world, other).await, [0, 1]);
}

#[tokio::test]
async fn deletion_in_both_sets_at_one_time_removes_the_resource() {
    let (world, other) = of_two_sets().await;
    for set in [world.set, other] {
        world.announce_in(set, vec![deleted("a", 20)]).await;
    }
    let due = world.due().await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    assert!(!due[0].is_shared, "no set is left that has it");
    world.work("").await;
    assert_eq!(counts(&world, other).await, [0, 0]);
}

#[tokio::test]
async fn resource_that_moves_to_another_set_stays() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    world.list(world.set, 10, vec![created("a", 5)]).await;
    world.list(other, 10, Vec::new()).await;
    world.work("1").await;
    world.announce_in(world.set, vec![deleted("a", 20)]).await;
    world.announce_in(other, vec![created("a", 20)]).await;
    assert_eq!(counts(&world, other).await, [0, 1]);
    assert!(!world.due_names().await.contains(&"deleted a".to_owned()));
    world.work("1").await;
    world.announce_in(other, vec![deleted("a", 30)]).await;
    let due = world.due().await;
    assert!(due[0].kind == ChangeKind::Deleted && !due[0].is_shared);
}

#[tokio::test]
async fn leaving_a_set_twice_counts_once() {
    let (world, other) = of_two_sets().await;
    world.announce_in(world.set, vec![deleted("a", 20)]).await;
    let task = world.due().await.remove(0);
    assert!(task.is_shared);
    // The Resource List of the set does not name it any more, either.
    world.list(world.set, 30, Vec::new()).await;
    let left = TaskResult::Left {
        task,
        is_same: true,
    };
    world.complete(vec![left]).await;
    assert_eq!(counts(&world, other).await, [0, 1]);
}

/// A set that is followed, and another one that was never read and delays a deletion of the first one.
async fn with_waiting_deletion() -> (World, SetId) {
    let world = World::new().await;
    world.list(world.set, 10, vec![created("a", 5)]).await;
    world.work("1").await;
    let other = begin(&world.store, "other.xml").await;
    world.announce(vec![deleted("a", 20)]).await;
    let task = world.due().await.remove(0);
    let unread: Vec<&str> = task.unread_sets.iter().map(Url::as_str).collect();
    assert_eq!(unread, ["https://example.org/other.xml"]);
    assert_eq!(task.awaits_since, None);
    world.complete(vec![waits(&world, task)]).await;
    assert!(world.due().await.is_empty());
    (world, other)
}

fn waits(world: &World, task: Task) -> TaskResult {
    let failure = TaskFailure {
        awaits_sets: true,
        ..failure_of(Some(world.now + chrono::TimeDelta::hours(1)))
    };
    TaskResult::Failed { task, failure }
}

async fn note_read(world: &World, set: SetId) {
    let noting = world.store.note_read(SOURCE, set, world.now);
    noting.await.unwrap();
}

#[tokio::test]
async fn deletion_that_waits_for_a_set_is_due_once_that_is_read() {
    let (world, other) = with_waiting_deletion().await;
    world.list(other, 30, Vec::new()).await;
    assert!(world.due().await.is_empty(), "only its list was read");
    let mut wakes = world.store.wakes();
    note_read(&world, other).await;
    assert_eq!(woken(&mut wakes), [Wake::Tasks(SOURCE.to_owned())]);
    let task = world.due().await.remove(0);
    assert!(task.unread_sets.is_empty());
    assert_eq!(task.awaits_since, Some(world.now));
}

#[tokio::test]
async fn deletion_that_waits_for_a_set_is_due_once_that_is_not_followed() {
    let (world, other) = with_waiting_deletion().await;
    let ending = world.store.end_set(SOURCE, other, world.now);
    ending.await.unwrap();
    assert!(world.due().await.remove(0).unread_sets.is_empty());
}

#[tokio::test]
async fn deletion_that_waits_for_a_set_ends_when_that_names_the_resource() {
    let (world, other) = with_waiting_deletion().await;
    world.list(other, 5, vec![created("a", 5)]).await;
    note_read(&world, other).await;
    assert!(world.due().await.is_empty());
    assert_eq!(counts(&world, other).await, [0, 1]);
}

#[tokio::test]
async fn deletion_waits_from_its_first_try_and_not_for_a_set_that_was_read_meanwhile() {
    let (mut world, other) = with_waiting_deletion().await;
    let first = world.now;
    world.now += chrono::TimeDelta::hours(2);
    let task = world.due().await.remove(0);
    world.complete(vec![waits(&world, task)]).await;
    world.now += chrono::TimeDelta::hours(2);
    let task = world.due().await.remove(0);
    assert_eq!(task.awaits_since, Some(first));
    world.list(other, 30, Vec::new()).await;
    note_read(&world, other).await;
    world.complete(vec![waits(&world, task)]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    // A newer deletion waits anew.
    world.announce(vec![deleted("a", 40)]).await;
    assert_eq!(world.due().await[0].awaits_since, None);
}
