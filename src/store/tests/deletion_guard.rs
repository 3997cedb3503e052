use super::*;

use chrono::TimeDelta;

fn many(count: usize) -> Vec<Change> {
    (0..count).map(|n| created(&format!("r{n}"), -1)).collect()
}

/// A set of so many resources that the mirror has.
async fn world_of(count: usize) -> World {
    let world = World::new().await;
    world.list(world.set, 10, many(count)).await;
    world.work("1").await;
    world
}

/// Tells of a deletion in a document of its own, which is carried out at once unless it is held back; answers whether it is.
async fn delete(world: &World, number: usize) -> bool {
    let change = deleted(&format!("r{number}"), 20 + i64::try_from(number).unwrap());
    let held = world.tell(vec![change]).await.held;
    world.work("").await;
    held > 0
}

#[tokio::test]
async fn deletions_one_by_one_are_held_back_as_those_of_one_document() {
    let mut world = world_of(150).await;
    for number in 0..100 {
        assert!(!delete(&world, number).await, "{number}");
    }
    assert!(delete(&world, 100).await);
    assert!(delete(&world, 101).await);
    assert_eq!(world.sums(world.set).await.0, 50);
    assert_eq!(world.numbers().await.held_deletions, 2);

    // Ten seconds later those that were carried out don't count any more; those that are held back wait for a person.
    world.now += TimeDelta::seconds(9);
    assert!(delete(&world, 102).await);
    world.now += TimeDelta::seconds(2);
    assert!(!delete(&world, 103).await);
    assert_eq!(world.numbers().await.held_deletions, 3);
}

#[tokio::test]
async fn share_is_of_what_the_set_had() {
    let world = world_of(1500).await;
    for number in 0..150 {
        assert!(!delete(&world, number).await, "{number}");
    }
    assert!(delete(&world, 150).await, "more than a tenth of 1500");
}

#[tokio::test]
async fn what_has_come_back_does_not_count() {
    let world = world_of(150).await;
    for round in 0..110 {
        let time = 100 + 10 * round;
        assert_eq!(world.tell(vec![deleted("r0", time)]).await.held, 0);
        world.work("").await;
        world.tell(vec![created("r0", time + 5)]).await;
        world.work("again").await;
    }
    // Deleted by one document, and taken back by the next before it was done.
    let all = |time| (1..90).map(move |n| (format!("r{n}"), time));
    let deletions = all(2000).map(|(name, time)| deleted(&name, time));
    assert_eq!(world.tell(deletions.collect()).await.held, 0);
    let updates = all(2001).map(|(name, time)| updated(&name, time));
    world.tell(updates.collect()).await;
    world.work("once more").await;
    let deletions = (50..140).map(|n| deleted(&format!("r{n}"), 3000));
    assert_eq!(world.tell(deletions.collect()).await.held, 0);
}

#[tokio::test]
async fn told_twice_counts_once() {
    let world = world_of(150).await;
    let deletions = |time| (0..60).map(move |n| deleted(&format!("r{n}"), time));
    assert_eq!(world.tell(deletions(20).collect()).await.held, 0);
    assert_eq!(world.tell(deletions(21).collect()).await.held, 0);
    world.work("").await;
    assert_eq!(world.sums(world.set).await.0, 90);
}

#[tokio::test]
async fn approval_begins_anew() {
    let world = world_of(300).await;
    for number in 0..=100 {
        delete(&world, number).await;
    }
    assert_eq!(world.store.approve_deletions("another").await.unwrap(), 0);
    assert!(delete(&world, 101).await);
    assert_eq!(world.store.approve_deletions(SOURCE).await.unwrap(), 2);
    world.work("").await;
    for number in 102..202 {
        assert!(!delete(&world, number).await, "{number}");
    }
    assert!(delete(&world, 202).await);
}

#[tokio::test]
async fn clock_that_was_wrong_holds_nothing_back_for_ever() {
    let mut world = world_of(150).await;
    world.now += TimeDelta::days(1000);
    for number in 0..100 {
        delete(&world, number).await;
    }
    world.now -= TimeDelta::days(1000);
    assert!(!delete(&world, 100).await);
}
