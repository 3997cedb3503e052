//! Resources that belong to several sets: what one set states of them does not undo what another states.

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
    assert!(task.kind == ChangeKind::Deleted && task.asks);
    world
        .complete(vec![TaskResult::Served { task, is_same }])
        .await;
}

#[tokio::test]
async fn change_that_a_deletion_of_another_set_replaced_is_requested_again() {
    let (world, other) = of_two_sets().await;
    world.announce_in(other, vec![updated("a", 20)]).await;
    world.announce_in(world.set, vec![deleted("a", 21)]).await;
    let claimed = async || {
        let progress = Some((coverage(40), Vec::new()));
        let end = DocumentEnd { progress, ..end() };
        let batch = world.batch(other, Vec::new(), Some(end));
        world.store.ingest(batch).await.unwrap();
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

/// The set's list ends the deletion, and does not state the change once more.
#[tokio::test]
async fn change_that_an_ended_deletion_had_replaced_is_requested_again() {
    let (world, other) = of_two_sets().await;
    world.announce_in(other, vec![updated("a", 20)]).await;
    world.announce_in(world.set, vec![deleted("a", 21)]).await;
    let mut wakes = world.store.wakes();
    world.list(other, 40, vec![created("a", 5)]).await;
    assert_eq!(world.due_names().await, ["updated a"]);
    assert!(woken(&mut wakes).contains(&Wake::Tasks(SOURCE.to_owned())));
    let claimed = async || {
        let statistics = world.store.set_statistics(other).await.unwrap();
        statistics.synced_until
    };
    assert_eq!(claimed().await, Some(at(10)), "it is not applied");
    world.work("2").await;
    assert_eq!(claimed().await, Some(at(40)));
    assert!(world.due().await.is_empty());
    assert_eq!(counts(&world, other).await, [0, 1]);
}

#[tokio::test]
async fn change_of_another_set_ends_a_pending_deletion() {
    let (world, other) = of_two_sets().await;
    world.announce_in(world.set, vec![deleted("a", 21)]).await;
    world.announce_in(other, vec![updated("a", 20)]).await;
    assert_eq!(world.due_names().await, ["updated a"]);
    assert_eq!(counts(&world, other).await, [0, 1]);
}

/// The process was killed while it removed the file: it may be gone.
#[tokio::test]
async fn resource_in_doubt_that_has_only_left_a_set_is_requested_again() {
    let (world, other) = of_two_sets().await;
    world.announce_in(world.set, vec![deleted("a", 20)]).await;
    world.store.mark_unclean_shutdown();
    let world = world.reopened();
    world.announce_in(other, vec![updated("a", 3)]).await;
    left(&world, false).await;
    assert_eq!(world.due_names().await, ["updated a"]);
    world.work("1").await;
    assert!(world.due().await.is_empty());
    assert_eq!(counts(&world, other).await, [0, 1]);
}

/// The same where a newer list ends the deletion.
#[tokio::test]
async fn resource_in_doubt_that_a_newer_list_names_wakes_the_worker() {
    let (world, other) = of_two_sets().await;
    world.announce_in(world.set, vec![deleted("a", 20)]).await;
    world.store.mark_unclean_shutdown();
    let world = world.reopened();
    let mut wakes = world.store.wakes();
    let list = world.reading(other, 30);
    let entries = vec![created("a", 5)];
    let listed = world
        .store
        .ingest_listed(&list, world.now, entries, &NamedSoFar::default());
    assert_eq!(listed.done().await.unwrap().tasks, 1);
    assert_eq!(world.due_names().await, ["updated a"]);
    assert_eq!(woken(&mut wakes), [Wake::Tasks(SOURCE.to_owned())]);
}

/// The set that has announced it last is not followed any more.
#[tokio::test]
async fn resource_in_doubt_is_restored_for_a_set_that_is_followed() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    for set in [world.set, other] {
        world.list(set, 10, vec![created("a", 5)]).await;
    }
    let task = world.due().await.remove(0);
    assert_eq!(task.set, world.set);
    world.work("1").await;
    let end = |set| world.store.end_set(SOURCE, set, world.now);
    end(world.set).await.unwrap();
    world.store.doubt(vec![task.resource]).await.unwrap();
    let due = world.due().await;
    assert_eq!(world.due_names().await, ["updated a"]);
    assert_eq!(due[0].set, other);
    world.work("1").await;
    end(other).await.unwrap();
    world.store.doubt(vec![task.resource]).await.unwrap();
    assert!(world.due().await.is_empty(), "nobody follows it");
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
    // Of the set that has stated it first.
    world.announce(vec![created("a", 15)]).await;
    let due = world.due().await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    assert!(!due[0].asks, "no set is left that has it");
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
    assert!(due[0].kind == ChangeKind::Deleted && !due[0].asks);
}

#[tokio::test]
async fn leaving_a_set_twice_counts_once() {
    let (world, other) = of_two_sets().await;
    world.announce_in(world.set, vec![deleted("a", 20)]).await;
    let task = world.due().await.remove(0);
    assert!(task.asks);
    // The Resource List of the set does not name it any more, either.
    world.list(world.set, 30, Vec::new()).await;
    let left = TaskResult::Served {
        task,
        is_same: true,
    };
    world.complete(vec![left]).await;
    assert_eq!(counts(&world, other).await, [0, 1]);
}

/// A resource that one set has deleted at 20, while the other one, which has never named it, was read up to 10.
async fn deleted_by_one_set() -> (World, SetId) {
    deleted_by_one_set_until(20).await
}

/// The same where the set that has deleted it was read up to a time.
async fn deleted_by_one_set_until(until: i64) -> (World, SetId) {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    world.list(world.set, 10, vec![created("a", 5)]).await;
    world.list(other, 10, Vec::new()).await;
    world.work("1").await;
    world.announce_until(vec![deleted("a", 20)], until).await;
    world.work("").await;
    assert_eq!(counts(&world, other).await, [0, 0]);
    (world, other)
}

#[tokio::test]
async fn older_change_of_a_set_that_is_behind_undoes_a_deletion_of_another_set() {
    let (world, other) = deleted_by_one_set().await;
    world.announce_in(other, vec![created("a", 15)]).await;
    assert_eq!(world.due_names().await, ["created a"]);
    world.announce(vec![deleted("a", 20)]).await;
    assert_eq!(world.due_names().await, ["created a"], "it is repeated");
    world.work("2").await;
    assert_eq!(counts(&world, other).await, [0, 1]);
    world.announce(vec![deleted("a", 20)]).await;
    assert!(world.due().await.is_empty());
}

#[tokio::test]
async fn entry_of_an_older_list_of_another_set_undoes_a_deletion() {
    let (world, other) = deleted_by_one_set().await;
    world.list(other, 12, vec![created("a", 11)]).await;
    assert_eq!(world.due_names().await, ["created a"]);
    world.work("2").await;
    assert_eq!(counts(&world, other).await, [0, 1]);
}

#[tokio::test]
async fn older_change_of_a_set_that_was_read_up_to_a_deletion_undoes_nothing() {
    let (world, other) = deleted_by_one_set().await;
    let progress = Some((coverage(20), Vec::new()));
    let end = DocumentEnd { progress, ..end() };
    let batch = world.batch(other, Vec::new(), Some(end));
    world.store.ingest(batch).await.unwrap();
    world.announce_in(other, vec![created("a", 15)]).await;
    assert!(world.due().await.is_empty());
}

#[tokio::test]
async fn set_that_is_behind_states_a_deletion_as_well() {
    for time in [18, 20] {
        let (world, other) = deleted_by_one_set().await;
        let changes = vec![created("a", 15), deleted("a", time)];
        world.announce_in(other, changes).await;
        assert!(world.due().await.is_empty(), "deleted at {time}");
        let listed = world.list(other, 30, Vec::new()).await;
        assert_eq!(listed.tasks, 0, "it does not belong to the set");
    }
}

/// Completes the one due task, which the Source answers with 404 for the last time.
async fn answered_as_absent(world: &World) {
    let task = world.due().await.remove(0);
    assert!(world.due().await.len() == 1 && task.kind == ChangeKind::Created);
    world.complete(vec![failed_as_absent(task)]).await;
}

#[tokio::test]
async fn resource_that_is_gone_is_not_requested_for_an_older_change_of_another_set_again() {
    let (world, other) = deleted_by_one_set().await;
    world.announce_in(other, vec![created("a", 15)]).await;
    answered_as_absent(&world).await;
    // The entry is read again at each poll.
    world.announce_in(other, vec![created("a", 15)]).await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.list(other, 30, Vec::new()).await.tasks, 0);
}

#[tokio::test]
async fn file_in_doubt_of_a_resource_that_is_gone_is_removed() {
    let (world, other) = deleted_by_one_set().await;
    world.announce_in(other, vec![created("a", 15)]).await;
    world.store.mark_unclean_shutdown();
    let world = world.reopened();
    answered_as_absent(&world).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.work("").await;
    assert!(world.due().await.is_empty());
}

#[tokio::test]
async fn resource_that_is_gone_is_missed_only_if_its_list_is_newer_than_the_deletion() {
    for (time, failed) in [(12, 0), (20, 0), (30, 1)] {
        let (world, other) = deleted_by_one_set().await;
        world.list(other, time, vec![created("a", 11)]).await;
        answered_as_absent(&world).await;
        let statistics = world.store.set_statistics(other).await.unwrap();
        assert_eq!(statistics.failed, failed, "list of {time}");
    }
}

#[tokio::test]
async fn older_change_of_a_set_that_has_stated_a_deletion_as_well_undoes_nothing() {
    let (world, other) = deleted_by_one_set().await;
    for change in [deleted("a", 20), created("a", 15)] {
        world.announce_in(other, vec![change]).await;
        assert!(world.due().await.is_empty());
    }
}

#[tokio::test]
async fn deletion_by_one_set_does_not_end_what_a_third_one_has_stated() {
    let (world, other) = deleted_by_one_set().await;
    let third = begin(&world.store, "third.xml").await;
    world.list(third, 10, Vec::new()).await;
    world.announce_in(other, vec![created("a", 15)]).await;
    world.announce_in(third, vec![created("a", 16)]).await;
    world.announce_in(other, vec![deleted("a", 18)]).await;
    assert_eq!(world.due_names().await, ["created a"]);
    world.work("2").await;
    assert_eq!(counts(&world, other).await, [0, 0]);
    assert_eq!(world.totals(third).await.0, 1);
}

#[tokio::test]
async fn set_that_is_behind_a_deletion_shares_what_another_set_creates_again() {
    for is_list in [false, true] {
        let (world, other) = deleted_by_one_set().await;
        world.announce(vec![created("a", 25)]).await;
        if is_list {
            world.list(other, 22, vec![created("a", 11)]).await;
        } else {
            world.announce_in(other, vec![created("a", 15)]).await;
        }
        assert_eq!(world.due().await.len(), 1);
        world.work("2").await;
        assert_eq!(counts(&world, other).await, [1, 1]);
        world.announce(vec![deleted("a", 30)]).await;
        assert!(world.due().await[0].asks);
    }
}

#[tokio::test]
async fn resource_that_is_gone_is_missed_while_a_list_that_is_newer_than_the_deletion_is_read() {
    let (world, other) = deleted_by_one_set().await;
    let list = world.reading(other, 30);
    world.store.begin_list(other).await.unwrap();
    let entries = vec![created("a", 11)];
    let listed = world
        .store
        .ingest_listed(&list, world.now, entries, &NamedSoFar::default());
    listed.done().await.unwrap();
    answered_as_absent(&world).await;
    let statistics = world.store.set_statistics(other).await.unwrap();
    assert_eq!(statistics.failed, 1);
}

#[tokio::test]
async fn deletion_that_is_later_than_the_list_of_its_set_ends_what_that_has_stated() {
    let (world, other) = deleted_by_one_set().await;
    world.list(other, 12, vec![created("a", 11)]).await;
    world.announce_in(other, vec![deleted("a", 20)]).await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.list(other, 30, Vec::new()).await.tasks, 0);
}

#[tokio::test]
async fn older_change_counts_once_the_set_that_has_stated_the_deletion_is_not_followed_any_more() {
    let (world, other) = deleted_by_one_set().await;
    let ending = world.store.end_set(SOURCE, world.set, world.now);
    ending.await.unwrap();
    world.announce_in(other, vec![created("a", 15)]).await;
    assert_eq!(world.due_names().await, ["created a"]);
}

#[tokio::test]
async fn older_change_of_the_set_that_has_deleted_a_resource_undoes_nothing() {
    let (world, other) = deleted_by_one_set_until(12).await;
    world.announce_in(other, vec![deleted("a", 20)]).await;
    world.announce(vec![created("a", 15)]).await;
    assert!(world.due().await.is_empty());
}

/// The changes of both sets, newest first.
#[tokio::test]
async fn change_before_a_deletion_that_its_own_set_has_stated_undoes_no_deletion_of_another_set() {
    for is_known in [true, false] {
        let world = World::new().await;
        let other = begin(&world.store, "other.xml").await;
        if is_known {
            world.announce(vec![created("a", 15)]).await;
            world.work("1").await;
        }
        for set in [world.set, other] {
            for change in [deleted("a", 20), created("a", 15)] {
                world.announce_in(set, vec![change]).await;
            }
        }
        let expected: &[&str] = if is_known { &["deleted a"] } else { &[] };
        assert_eq!(world.due_names().await, expected, "{is_known}");
        assert!(world.due().await.iter().all(|task| !task.asks));
        let older_list = world.list(other, 18, vec![created("a", 15)]).await;
        assert_eq!(older_list.tasks, 0);
        assert_eq!(world.due_names().await, expected, "{is_known}");
        world.work("").await;
        assert_eq!(counts(&world, other).await, [0, 0]);
        world.announce_in(other, vec![created("a", 25)]).await;
        assert_eq!(world.due_names().await, ["created a"]);
    }
}

#[tokio::test]
async fn change_before_its_deletion_brings_no_resource_back_into_the_set_that_it_has_left() {
    let (world, other) = of_two_sets().await;
    world.announce_in(world.set, vec![deleted("a", 20)]).await;
    left(&world, true).await;
    world.announce_in(world.set, vec![created("a", 15)]).await;
    assert!(world.due().await.is_empty());
    assert_eq!(counts(&world, other).await, [0, 1]);
    // The deletion is the other set's then.
    for set in [other, world.set] {
        world.announce_in(set, vec![deleted("a", 30)]).await;
    }
    world.announce_in(other, vec![created("a", 25)]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
}

/// The list states the time of the last modification, which was before the deletion.
#[tokio::test]
async fn deletion_that_is_read_again_does_not_end_what_a_newer_list_has_stated() {
    let world = World::new().await;
    world.list(world.set, 10, vec![created("a", 5)]).await;
    world.work("1").await;
    world.announce_until(vec![deleted("a", 20)], 21).await;
    world.work("").await;
    world.list(world.set, 30, vec![created("a", 11)]).await;
    world.announce(vec![deleted("a", 20)]).await;
    assert_eq!(world.due_names().await, ["created a"]);
    let deletion = [deleted("a", 20)];
    let late = world.store.compare_late(world.set, SOURCE, deletion.iter());
    assert_eq!(late.unwrap(), [LateChange::Known]);
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
    assert!(noting.await.unwrap());
}

#[tokio::test]
async fn deletion_that_waits_for_a_set_is_due_once_that_is_read() {
    let (world, other) = with_waiting_deletion().await;
    let noting = world.store.note_read(SOURCE, other, world.now);
    assert!(!noting.await.unwrap(), "it has no baseline");
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
    assert_eq!(world.due_names().await, ["updated a"]);
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

/// A person rejects the deletion that has taken the place of a change of another set: that change is not applied yet.
#[tokio::test]
async fn change_that_a_rejected_deletion_had_replaced_is_requested_again() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    let names: Vec<String> = (0..150).map(|number| format!("n{number}")).collect();
    for set in [world.set, other] {
        let listed = names.iter().map(|name| created(name, 5)).collect();
        world.list(set, 10, listed).await;
    }
    world.work("1").await;
    world.announce_in(other, vec![updated("n7", 20)]).await;
    let gone = names.iter().map(|name| deleted(name, 21)).collect();
    assert_eq!(world.announce_in(world.set, gone).await.held_back, 150);
    let mut wakes = world.store.wakes();
    let rejected = world.store.reject_deletions(SOURCE).await;
    assert_eq!(rejected.unwrap(), 150);
    assert_eq!(world.due_names().await, ["updated n7"]);
    assert_eq!(world.due().await[0].set, other);
    assert_eq!(woken(&mut wakes), [Wake::Tasks(SOURCE.to_owned())]);
    let progress = Some((coverage(40), Vec::new()));
    let end = DocumentEnd { progress, ..end() };
    let batch = world.batch(other, Vec::new(), Some(end));
    world.store.ingest(batch).await.unwrap();
    let claimed = async || {
        let statistics = world.store.set_statistics(other).await.unwrap();
        statistics.synced_until
    };
    assert_eq!(claimed().await, Some(at(20)));
    world.work("2").await;
    assert_eq!(claimed().await, Some(at(40)));
    assert_eq!(counts(&world, other).await, [149, 150]);
}

/// The document that has stated it breaks off, and the set leaves the resource to the other one: the deletion is decided all the same.
#[tokio::test]
async fn deletion_of_a_document_that_broke_off_is_decided_although_its_set_has_left() {
    for is_absent in [true, false] {
        let (world, other) = of_two_sets().await;
        let broken_off = world.batch(world.set, vec![deleted("a", 21)], None);
        world.store.ingest(broken_off).await.unwrap();
        world.list(world.set, 30, Vec::new()).await;
        assert_eq!(world.due_names().await, ["deleted a"]);
        if is_absent {
            world.work("").await;
        } else {
            left(&world, true).await;
        }
        assert!(world.due().await.is_empty());
        let statistics = world.statistics().await;
        assert_eq!(statistics.pending, 0);
        assert_eq!(statistics.synced_until, Some(at(30)));
        assert_eq!(counts(&world, other).await, [0, u64::from(!is_absent)]);
    }
}

/// A set is followed no longer. What it has announced of the resources that another set has is that set's.
#[tokio::test]
async fn tasks_of_a_set_that_has_ended_are_those_of_the_set_that_shares_them() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    let names: Vec<String> = (0..150).map(|number| format!("n{number}")).collect();
    let listed = || names.iter().map(|name| created(name, 5)).collect();
    for set in [world.set, other] {
        world.list(set, 10, listed()).await;
    }
    let (mut failing, rest): (Vec<Task>, Vec<Task>) =
        (world.due().await.into_iter()).partition(|task| task.uri == uri("n3"));
    let results = rest.into_iter().map(|task| published(task, "1"));
    world.complete(results.collect()).await;
    world.complete(vec![failed(failing.remove(0), None)]).await;
    world.announce_in(other, vec![updated("n7", 20)]).await;
    let gone = names.iter().filter(|name| *name != "n3");
    let gone = gone.map(|name| deleted(name, 21)).collect();
    assert_eq!(world.announce_in(world.set, gone).await.held_back, 149);
    let end = world.store.end_set(SOURCE, world.set, world.now);
    end.await.unwrap();
    let retry = world.store.retry_failed(other, SOURCE, world.now, None);
    retry.await.unwrap();
    assert_eq!(world.due_names().await, ["created n3", "updated n7"]);
    let of_other = async || world.store.set_statistics(other).await.unwrap();
    assert_eq!(of_other().await.pending, 2);
    assert_eq!(of_other().await.held_deletions, 0);
    world.work("2").await;
    assert_eq!(of_other().await.synced_until, Some(at(10)));
    assert_eq!(of_other().await.resources, 150);
    // Should it be followed again, it has left what it was to delete: nothing states that once more.
    begin(&world.store, "capabilitylist.xml").await;
    assert_eq!(counts(&world, other).await, [1, 150]);
}

/// The set that is behind names the resource at an earlier time, and states then that it has left: the other set's deletion is newer, and no
/// set has the resource.
#[tokio::test]
async fn older_changes_of_another_set_do_not_end_a_newer_deletion() {
    let (world, other) = of_two_sets().await;
    world.list(other, 15, Vec::new()).await;
    world.announce(vec![updated("a", 20)]).await;
    world.work("2").await;
    world.list(world.set, 30, Vec::new()).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    let older = vec![updated("a", 17), deleted("a", 18)];
    world.announce_in(other, older).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    assert!(!world.due().await[0].asks);
    world.work("").await;
    assert_eq!(counts(&world, other).await, [0, 0]);
}

/// The set that is behind states that the resource has left it before the deletion that the other one has stated.
#[tokio::test]
async fn older_deletion_of_another_set_does_not_end_a_newer_one() {
    let (world, other) = of_two_sets().await;
    world.announce(vec![updated("a", 20)]).await;
    world.work("2").await;
    world.announce(vec![deleted("a", 30)]).await;
    world.announce_in(other, vec![deleted("a", 15)]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.work("").await;
    assert_eq!(counts(&world, other).await, [0, 0]);
}

/// A set that is read late names a resource, before what another set has stated of it.
async fn named_before() -> (World, SetId) {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    world.list(world.set, 1, Vec::new()).await;
    world.list(other, 10, vec![created("a", 5)]).await;
    world.work("1").await;
    world.announce_in(world.set, vec![updated("a", 3)]).await;
    assert_eq!(counts(&world, other).await, [1, 1]);
    (world, other)
}

/// It also states that the resource has left it.
async fn left_before(deleted_at: i64) -> (World, SetId) {
    let (world, other) = named_before().await;
    world
        .announce_in(world.set, vec![deleted("a", deleted_at)])
        .await;
    (world, other)
}

#[tokio::test]
async fn resource_leaves_a_set_that_was_read_late() {
    let (world, other) = left_before(4).await;
    assert_eq!(counts(&world, other).await, [0, 1]);
    world.announce_in(other, vec![deleted("a", 20)]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.work("").await;
    assert_eq!(counts(&world, other).await, [0, 0]);
}

/// The deletion is older than what the set itself has stated.
#[tokio::test]
async fn resource_stays_in_a_set_that_has_named_it_since() {
    let (world, other) = left_before(2).await;
    assert_eq!(counts(&world, other).await, [1, 1]);
    // Named once more, and then by a list, which states no time at which it was named.
    world.announce_in(world.set, vec![updated("a", 4)]).await;
    world.announce_in(world.set, vec![deleted("a", 3)]).await;
    assert_eq!(counts(&world, other).await, [1, 1]);
    world.list(world.set, 6, vec![created("a", 1)]).await;
    world.announce_in(world.set, vec![deleted("a", 5)]).await;
    assert_eq!(counts(&world, other).await, [1, 1]);
    world.announce_in(other, vec![deleted("a", 20)]).await;
    left(&world, true).await;
    assert_eq!(counts(&world, other).await, [1, 0]);
}

/// Nobody would be asked whether the hub is right; and with equal times the later document wins.
#[tokio::test]
async fn resource_does_not_leave_a_set_by_what_only_a_hub_states_or_an_earlier_document() {
    let by_hub = Change {
        unconfirmed: true,
        ..deleted("a", 4)
    };
    let of_earlier_document = Change {
        overtaken: true,
        ..deleted("a", 3)
    };
    for change in [by_hub, of_earlier_document] {
        let (world, other) = left_before(2).await;
        world.announce_in(world.set, vec![change]).await;
        assert_eq!(counts(&world, other).await, [1, 1]);
    }
}

/// No other set is left that has it.
#[tokio::test]
async fn resource_that_only_a_late_set_has_goes_with_its_deletion() {
    let (world, other) = named_before().await;
    world.announce_in(other, vec![deleted("a", 20)]).await;
    left(&world, true).await;
    world.announce_in(world.set, vec![deleted("a", 4)]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
}
