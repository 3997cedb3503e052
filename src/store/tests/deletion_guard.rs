use chrono::TimeDelta;

use super::*;

fn many(count: usize) -> Vec<Change> {
    (0..count).map(|n| created(&format!("r{n}"), -1)).collect()
}

/// A set of `count` resources that the mirror has.
async fn world_of(count: usize) -> World {
    let world = World::new().await;
    world.list(world.set, 10, many(count)).await;
    world.work("1").await;
    world
}

/// Announces a deletion in a document of its own and executes it, unless it is held back; returns whether it is.
async fn delete(world: &World, number: usize) -> bool {
    let change = deleted(&format!("r{number}"), 20 + i64::try_from(number).unwrap());
    let held = world.announce(vec![change]).await.held_back;
    world.work("").await;
    held > 0
}

#[tokio::test]
async fn deletions_in_single_documents_are_held_back_as_those_of_one_document() {
    let mut world = world_of(150).await;
    for number in 0..100 {
        assert!(!delete(&world, number).await, "{number}");
    }
    assert!(delete(&world, 100).await);
    assert!(delete(&world, 101).await);
    assert_eq!(world.totals(world.set).await.0, 50);
    assert_eq!(world.statistics().await.held_deletions, 2);

    // After ten seconds the executed ones do not count any more; the held-back ones wait for a person.
    world.now += TimeDelta::seconds(9);
    assert!(delete(&world, 102).await);
    world.now += TimeDelta::seconds(2);
    assert!(!delete(&world, 103).await);
    assert_eq!(world.statistics().await.held_deletions, 3);
}

#[tokio::test]
async fn share_is_that_of_the_set_before_the_deletions() {
    let world = world_of(1500).await;
    for number in 0..150 {
        assert!(!delete(&world, number).await, "{number}");
    }
    assert!(delete(&world, 150).await, "more than a tenth of 1500");
}

#[tokio::test]
async fn undone_deletions_do_not_count() {
    let world = world_of(150).await;
    for round in 0..110 {
        let time = 100 + 10 * round;
        assert_eq!(world.announce(vec![deleted("r0", time)]).await.held_back, 0);
        world.work("").await;
        world.announce(vec![created("r0", time + 5)]).await;
        world.work("again").await;
    }
    // Deleted by one document, and created again by the next before the deletion was executed.
    let all = |time| (1..90).map(move |n| (format!("r{n}"), time));
    let deletions = all(2000).map(|(name, time)| deleted(&name, time));
    assert_eq!(world.announce(deletions.collect()).await.held_back, 0);
    let updates = all(2001).map(|(name, time)| updated(&name, time));
    world.announce(updates.collect()).await;
    world.work("once more").await;
    let deletions = (50..140).map(|n| deleted(&format!("r{n}"), 3000));
    assert_eq!(world.announce(deletions.collect()).await.held_back, 0);
}

#[tokio::test]
async fn repeated_deletion_counts_once() {
    let world = world_of(150).await;
    let deletions = |time| (0..60).map(move |n| deleted(&format!("r{n}"), time));
    assert_eq!(world.announce(deletions(20).collect()).await.held_back, 0);
    assert_eq!(world.announce(deletions(21).collect()).await.held_back, 0);
    world.work("").await;
    assert_eq!(world.totals(world.set).await.0, 90);
}

#[tokio::test]
async fn recent_deletions_do_not_count_after_an_approval() {
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
async fn corrected_clock_releases_deletions() {
    let mut world = world_of(150).await;
    world.now += TimeDelta::days(1000);
    for number in 0..100 {
        delete(&world, number).await;
    }
    world.now -= TimeDelta::days(1000);
    assert!(!delete(&world, 100).await);
}

/// The process ends in the middle of a document of 105 deletions, of which the first hundred would not be too many.
#[tokio::test]
async fn share_is_that_of_the_whole_document_also_after_a_crash() {
    for listed in [false, true] {
        let world = world_of(1000).await;
        let deletions: Vec<Change> = (0..105).map(|n| deleted(&format!("r{n}"), 20)).collect();
        let first = ChangeBatch {
            origin: Origin::ChangeList,
            ..world.batch(world.set, deletions[..100].to_vec(), None)
        };
        world.store.ingest(first).await.unwrap();
        // Another document ends before that one is read again.
        let held = world.announce(vec![updated("r900", 30)]).await.held_back;
        assert_eq!(held, 0);
        assert_eq!(world.due_names().await, ["updated r900"]);
        world.work("2").await;
        if listed {
            // A Resource List that does not name the resources decides it.
            let named = (105..1000).map(|n| created(&format!("r{n}"), -1));
            assert_eq!(
                world.list(world.set, 40, named.collect()).await.held_back,
                105
            );
        } else {
            assert_eq!(world.announce(deletions).await.held_back, 105);
        }
        assert!(world.due().await.is_empty());
        assert_eq!(world.statistics().await.held_deletions, 105);
    }
}

/// Deletes a resource every few minutes, as only a hub has stated; each is confirmed by the Source.
#[tokio::test]
async fn deletions_that_only_a_hub_states_count_for_a_day() {
    let mut world = world_of(300).await;
    let delete = async |world: &World, number: usize, unconfirmed: bool| {
        let time = 20 + i64::try_from(number).unwrap();
        let change = Change {
            unconfirmed,
            ..deleted(&format!("r{number}"), time)
        };
        let held = world.announce(vec![change]).await.held_back;
        world.work("").await;
        held > 0
    };
    for number in 0..100 {
        assert!(!delete(&world, number, true).await, "{number}");
        world.now += TimeDelta::minutes(10);
    }
    assert!(delete(&world, 100, true).await);
    assert!(!delete(&world, 101, false).await, "the Source's own");
    world.now += TimeDelta::days(1);
    assert!(!delete(&world, 102, true).await);
}
