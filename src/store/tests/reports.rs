//! What a person is shown and decides about: deletions that are held back or rejected, and tasks that were given up.

use std::cell::Cell;

use chrono::TimeDelta;

use super::*;
use crate::store::{DecisionResult, DeletionDecision};

/// A set of 200 resources that the mirror has, of which the deletion of 150 is held back.
async fn world_with_held_deletions() -> World {
    let world = World::new().await;
    let all = (0..200).map(|n| created(&format!("r{n}"), -1)).collect();
    world.list(world.set, 10, all).await;
    world.work("1").await;
    let deletions = (0..150).map(|n| deleted(&format!("r{n}"), 20)).collect();
    world.announce_until(deletions, 30).await;
    assert_eq!(world.statistics().await.held_deletions, 150);
    world
}

const REJECT: DeletionDecision = DeletionDecision::Reject { through: None };

async fn held_names(world: &World, after: ResourceId, limit: usize) -> Vec<String> {
    let held = world
        .store
        .held_back(SOURCE, false, after, limit)
        .await
        .unwrap();
    held.into_iter().map(|task| task.uri).collect()
}

#[tokio::test]
async fn held_back_deletions_are_listed_in_pages() {
    let world = world_with_held_deletions().await;
    let all = world
        .store
        .held_back(SOURCE, false, ResourceId(0), 1000)
        .await
        .unwrap();
    assert_eq!(all.len(), 150);
    let first = &all[0];
    assert_eq!(first.uri, uri("r0").to_string());
    assert_eq!((first.changed_at, first.length), (Some(at(20)), Some(1)));
    assert!(first.path.is_some() && first.capability_list.ends_with("/capabilitylist.xml"));
    let page = held_names(&world, all[99].resource, 2).await;
    assert_eq!(page, [all[100].uri.clone(), all[101].uri.clone()]);
    assert!(held_names(&world, all[149].resource, 2).await.is_empty());
    let of_another = world
        .store
        .held_back("another", false, ResourceId(0), 9)
        .await;
    assert!(of_another.unwrap().is_empty());
    assert_eq!(world.statistics().await.held_since, Some(world.now));
}

#[tokio::test]
async fn time_of_held_back_deletions_is_that_of_the_first_ones() {
    let mut world = world_with_held_deletions().await;
    let began = world.now;
    world.now += TimeDelta::minutes(1);
    let others = (150..160).map(|n| deleted(&format!("r{n}"), 40)).collect();
    world.announce(others).await;
    let statistics = world.statistics().await;
    assert_eq!(statistics.held_deletions, 160);
    assert_eq!(statistics.held_since, Some(began));
    world.store.approve_deletions(SOURCE).await.unwrap();
    assert_eq!(world.statistics().await.held_since, None);
}

#[tokio::test]
async fn rejected_deletions_keep_the_files_and_hold_nothing_back() {
    let world = world_with_held_deletions().await;
    assert_eq!(world.statistics().await.synced_until, Some(at(20)));
    assert_eq!(world.store.reject_deletions("another").await.unwrap(), 0);
    assert_eq!(world.store.reject_deletions(SOURCE).await.unwrap(), 150);
    assert_eq!(world.store.approve_deletions(SOURCE).await.unwrap(), 0);
    let statistics = world.statistics().await;
    assert_eq!(statistics.synced_until, Some(at(30)));
    assert_eq!((statistics.pending, statistics.held_deletions), (0, 0));
    assert_eq!((statistics.failed, statistics.resources), (0, 200));
    assert!(world.due().await.is_empty());
    assert!(held_names(&world, ResourceId(0), 9).await.is_empty());
}

/// 150 deletions are decided in three transactions here.
#[tokio::test]
async fn decision_that_ends_early_leaves_the_other_deletions_as_they_are() {
    let world = world_with_held_deletions().await;
    let decide = async |decision, steps: usize| {
        let left = Cell::new(steps);
        let goes_on = || left.replace(left.get().saturating_sub(1)) > 0;
        let store = &world.store;
        let decided = store.decide_deletions(SOURCE, decision, world.now, goes_on);
        let DecisionResult::Decided(decided) = decided.await.unwrap() else {
            panic!("more deletions are held back than were seen");
        };
        let statistics = world.statistics().await;
        let (held, rejected) = (statistics.held_deletions, statistics.rejected);
        (decided, held, rejected, statistics.pending)
    };
    let approve = DeletionDecision::Approve {
        seen: None,
        through: None,
    };
    assert_eq!(decide(REJECT, 1).await, (50, 100, 50, 0));
    assert_eq!(decide(approve, 1).await, (50, 50, 50, 50));
    assert_eq!(decide(REJECT, 9).await, (50, 0, 100, 50));
    assert_eq!(decide(DeletionDecision::Undo, 1).await, (50, 50, 50, 50));
    let since = world.statistics().await.held_since;
    assert_eq!(since, Some(world.now));
    assert_eq!(decide(DeletionDecision::Undo, 9).await, (50, 100, 0, 50));
    assert_eq!(decide(approve, 9).await, (100, 0, 0, 150));
    world.work("approved").await;
    assert_eq!(world.totals(world.set).await.0, 50);
}

/// Others of the same number take the place of some that were seen, and one is deleted again at another time.
#[tokio::test]
async fn decision_is_of_the_deletions_that_were_seen() {
    let world = world_with_held_deletions().await;
    let through = world.statistics().await.held_through;
    assert!(through.is_some());
    let again = (0..10).map(|n| updated(&format!("r{n}"), 40)).collect();
    world.announce(again).await;
    let others = (150..160).map(|n| deleted(&format!("r{n}"), 50));
    let later = (10..15).map(|n| deleted(&format!("r{n}"), 50));
    assert_eq!(
        world
            .announce(others.chain(later).collect())
            .await
            .held_back,
        15
    );
    assert_eq!(world.statistics().await.held_deletions, 150);
    let decide = async |decision| {
        let store = &world.store;
        let decided = store.decide_deletions(SOURCE, decision, world.now, || true);
        let decided = decided.await.unwrap();
        (decided, world.statistics().await.held_deletions)
    };
    let approve = |seen, through| DeletionDecision::Approve { seen, through };
    let none = (DecisionResult::Decided(0), 150);
    assert_eq!(decide(approve(None, Some(0))).await, none);
    let fewer = DeletionDecision::Reject { through: Some(0) };
    assert_eq!(decide(fewer).await, none);
    let (held, seen) = (150, 149);
    let more = DecisionResult::MoreHeldBack { held, seen };
    assert_eq!(decide(approve(Some(149), through)).await, (more, 150));
    let decided = decide(approve(Some(150), through)).await;
    assert_eq!(decided, (DecisionResult::Decided(135), 15));
    let names = held_names(&world, ResourceId(0), 99).await;
    let expected = (10..15)
        .chain(150..160)
        .map(|n| uri(&format!("r{n}")).to_string());
    assert_eq!(names, expected.collect::<Vec<_>>());
    // They have a number of their own, and it is not given again.
    let later = world.statistics().await.held_through;
    assert!(later > through);
    let decided = decide(DeletionDecision::Reject { through: later }).await;
    assert_eq!(decided, (DecisionResult::Decided(15), 0));
    assert_eq!(world.statistics().await.held_through, later);
    let rejected = world.store.held_back(SOURCE, true, ResourceId(0), 99);
    let rejected = rejected.await.unwrap();
    let rejected: Vec<_> = rejected.into_iter().map(|task| task.uri).collect();
    assert_eq!(rejected, names);
    let undone = decide(DeletionDecision::Undo).await;
    assert_eq!(undone, (DecisionResult::Decided(15), 15));
    let undone = decide(DeletionDecision::Reject { through: later }).await;
    assert_eq!(undone, (DecisionResult::Decided(0), 15));
}

/// Documents state undated deletions again and again.
#[tokio::test]
async fn deletion_that_is_stated_again_keeps_the_number_that_was_seen() {
    let world = World::new().await;
    let all = (0..200).map(|n| created(&format!("r{n}"), -1)).collect();
    world.list(world.set, 10, all).await;
    world.work("1").await;
    let deletions = |count: usize| (0..count).map(|n| deleted(&format!("r{n}"), -1)).collect();
    assert_eq!(world.announce(deletions(150)).await.held_back, 150);
    let through = world.statistics().await.held_through;
    // The same, and others besides.
    assert_eq!(world.announce(deletions(150)).await.held_back, 0);
    assert_eq!(world.announce(deletions(155)).await.held_back, 5);
    let decide = async |decision| {
        let store = &world.store;
        let decided = store.decide_deletions(SOURCE, decision, world.now, || true);
        decided.await.unwrap()
    };
    let seen = DeletionDecision::Reject { through };
    assert_eq!(decide(seen).await, DecisionResult::Decided(150));
    assert_eq!(held_names(&world, ResourceId(0), 999).await.len(), 5);
    // What was decided is another matter when it is held back later.
    assert_eq!(
        decide(DeletionDecision::Undo).await,
        DecisionResult::Decided(150)
    );
    assert_eq!(decide(seen).await, DecisionResult::Decided(0));
}

#[tokio::test]
async fn rejections_that_are_undone_at_once_have_one_number() {
    let world = world_with_held_deletions().await;
    world.store.reject_deletions(SOURCE).await.unwrap();
    let before = world.statistics().await.held_through;
    let store = &world.store;
    let undo = async || {
        let undone = store.decide_deletions(SOURCE, DeletionDecision::Undo, world.now, || true);
        undone.await.unwrap()
    };
    assert_eq!(undo().await, DecisionResult::Decided(150));
    let held = store.held_back(SOURCE, false, ResourceId(0), 999);
    let mut numbers: Vec<u64> = held.await.unwrap().iter().map(|task| task.hold).collect();
    numbers.dedup();
    let after = world.statistics().await.held_through;
    assert_eq!(numbers, Vec::from_iter(after));
    assert!(after > before);
    // Nothing is left to be undone.
    assert_eq!(undo().await, DecisionResult::Decided(0));
    assert_eq!(world.statistics().await.held_through, after);
}

#[tokio::test]
async fn decision_stays_in_what_was_committed_when_the_process_ends() {
    let world = world_with_held_deletions().await;
    let left = Cell::new(2);
    let goes_on = || left.replace(left.get() - 1) > 0;
    let store = &world.store;
    let decided = store.decide_deletions(SOURCE, REJECT, world.now, goes_on);
    assert_eq!(decided.await.unwrap(), DecisionResult::Decided(100));
    let world = world.reopened();
    let statistics = world.statistics().await;
    assert_eq!((statistics.held_deletions, statistics.rejected), (50, 100));
    assert_eq!(world.store.reject_deletions(SOURCE).await.unwrap(), 50);
    assert_eq!(world.statistics().await.rejected, 150);
}

#[tokio::test]
async fn rejection_outlives_repeated_statements_and_restarts() {
    let world = world_with_held_deletions().await;
    world.store.reject_deletions(SOURCE).await.unwrap();
    let world = world.reopened();
    // The same document again, and a newer Resource List that does not name them either.
    let again = (0..150).map(|n| deleted(&format!("r{n}"), 20)).collect();
    assert_eq!(world.announce(again).await.held_back, 0);
    let others = (150..200).map(|n| created(&format!("r{n}"), -1)).collect();
    assert_eq!(world.list(world.set, 50, others).await.held_back, 0);
    assert!(world.due().await.is_empty());
    let statistics = world.statistics().await;
    assert_eq!(statistics.held_deletions, 0);
    assert_eq!(statistics.synced_until, Some(at(50)));
    assert_eq!(world.totals(world.set).await.0, 200);
}

#[tokio::test]
async fn undated_deletion_that_was_rejected_is_not_decided_again() {
    let world = World::new().await;
    let all = (0..200).map(|n| created(&format!("r{n}"), -1)).collect();
    world.list(world.set, 10, all).await;
    world.work("1").await;
    let deletions = |count: usize| (0..count).map(|n| deleted(&format!("r{n}"), -1)).collect();
    assert_eq!(world.announce(deletions(150)).await.held_back, 150);
    world.store.reject_deletions(SOURCE).await.unwrap();
    // So few would be applied at once.
    assert_eq!(world.announce(deletions(20)).await.held_back, 0);
    assert!(world.due().await.is_empty());
}

#[tokio::test]
async fn rejection_outlives_the_confirmation_of_what_a_hub_has_stated() {
    let world = World::new().await;
    let all = (0..200).map(|n| created(&format!("r{n}"), -1)).collect();
    world.list(world.set, 10, all).await;
    world.work("1").await;
    let by_hub = |n| Change {
        unconfirmed: true,
        ..deleted(&format!("r{n}"), 20)
    };
    assert_eq!(
        world
            .announce((0..150).map(by_hub).collect())
            .await
            .held_back,
        150
    );
    world.store.reject_deletions(SOURCE).await.unwrap();
    // So few would be applied at once.
    let confirmed = (0..20).map(|n| deleted(&format!("r{n}"), 20)).collect();
    assert_eq!(world.announce(confirmed).await.held_back, 0);
    assert!(world.due().await.is_empty());
}

#[tokio::test]
async fn rejection_ends_with_a_new_statement_of_the_source() {
    let world = world_with_held_deletions().await;
    world.store.reject_deletions(SOURCE).await.unwrap();
    // A new deletion is decided by itself.
    world.announce_until(vec![deleted("r0", 60)], 70).await;
    assert_eq!(world.due_names().await, ["deleted r0"]);
    assert_eq!(world.statistics().await.synced_until, Some(at(60)));
    world.work("").await;
    assert_eq!(world.totals(world.set).await.0, 199);
    // So is an update, and the mirror is behind from it on, and not from the rejected deletion.
    world.announce_until(vec![updated("r1", 75)], 80).await;
    assert_eq!(world.due_names().await, ["updated r1"]);
    assert_eq!(world.statistics().await.synced_until, Some(at(75)));
    world.work("2").await;
    // A list that names the resources again ends the rest: the same deletions count as new.
    let named = (1..200).map(|n| created(&format!("r{n}"), -1)).collect();
    world.list(world.set, 90, named).await;
    let deletions = (2..150).map(|n| deleted(&format!("r{n}"), 100)).collect();
    assert_eq!(world.announce(deletions).await.held_back, 148);
}

#[tokio::test]
async fn given_up_task_is_reported_until_it_is_done() {
    let mut world = World::new().await;
    let began = world.now;
    let reported = async |world: &World| {
        let tasks = world.store.given_up(SOURCE, ResourceId(0), 10).await;
        tasks.unwrap()
    };
    world
        .announce(vec![created("a", 20), created("b", 20)])
        .await;
    let tasks = world.due().await;
    let soon = Some(world.now + TimeDelta::minutes(1));
    let fails = tasks.into_iter().map(|task| failed(task, soon)).collect();
    world.complete(fails).await;
    assert!(reported(&world).await.is_empty(), "it is tried again");
    assert_eq!(world.statistics().await.given_up_since, None);

    world.now += TimeDelta::minutes(2);
    let given_up = world.now;
    let tasks = world.due().await;
    let fails = tasks.into_iter().map(|task| failed(task, None)).collect();
    world.complete(fails).await;
    let found = reported(&world).await;
    assert_eq!(found.len(), 2);
    let first = &found[0];
    assert_eq!(first.uri, uri("a").to_string());
    assert_eq!(
        (first.code.as_str(), first.message.as_str()),
        ("not-found", "404")
    );
    assert_eq!((first.since, first.due), (given_up, Some(NEVER)));
    assert!(given_up > began);
    let next = world.store.given_up(SOURCE, first.resource, 10).await;
    assert_eq!(next.unwrap()[0].uri, uri("b").to_string());

    // It is so while it is tried again, by a person or by a poll.
    world.now += TimeDelta::minutes(2);
    let store = &world.store;
    assert_eq!(
        store
            .retry_given_up("another", world.now, || true)
            .await
            .unwrap(),
        0
    );
    let mut wakes = store.wakes();
    assert_eq!(
        store
            .retry_given_up(SOURCE, world.now, || true)
            .await
            .unwrap(),
        2
    );
    assert_eq!(woken(&mut wakes), [Wake::Tasks(SOURCE.to_owned())]);
    let statistics = world.statistics().await;
    assert_eq!((statistics.failed, statistics.pending), (0, 2));
    assert_eq!(statistics.given_up_since, Some(given_up));
    assert_eq!(reported(&world).await[0].due, Some(world.now));
    let tasks = world.due().await;
    let later = Some(world.now + TimeDelta::hours(1));
    let fails = tasks.into_iter().map(|task| failed(task, later)).collect();
    world.complete(fails).await;
    assert_eq!(reported(&world).await[0].since, given_up);
    assert!(world.due().await.is_empty());
    assert_eq!(
        world
            .store
            .retry_given_up(SOURCE, world.now, || true)
            .await
            .unwrap(),
        2
    );

    // Given up once more, it is so since the first time.
    world.now += TimeDelta::minutes(2);
    let tasks = world.due().await;
    let fails = tasks.into_iter().map(|task| failed(task, None)).collect();
    world.complete(fails).await;
    let found = reported(&world).await;
    assert_eq!((found[0].since, found[0].due), (given_up, Some(NEVER)));
    assert_eq!(world.statistics().await.given_up_since, Some(given_up));
    world
        .store
        .retry_given_up(SOURCE, world.now, || true)
        .await
        .unwrap();

    // A newer change is another task.
    world.announce(vec![updated("a", 30)]).await;
    let names: Vec<String> = reported(&world)
        .await
        .into_iter()
        .map(|it| it.uri)
        .collect();
    assert_eq!(names, [uri("b").to_string()]);
    world.work("1").await;
    assert!(reported(&world).await.is_empty());
    assert_eq!(world.statistics().await.given_up_since, None);
}
