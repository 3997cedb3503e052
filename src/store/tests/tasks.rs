use chrono::TimeDelta;

use super::*;

#[tokio::test]
async fn latest_change_is_the_task() {
    let world = World::new().await;
    world
        .announce(vec![created("a", 10), updated("a", 12), updated("a", 11)])
        .await;
    assert_eq!(world.due_names().await, ["updated a"]);
    assert_eq!(world.due().await[0].changed_at, Some(at(12)));
    assert_eq!(world.statistics().await.pending, 1);
    world.announce(vec![deleted("a", 13)]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.announce(vec![created("a", 13)]).await;
    assert_eq!(
        world.due_names().await,
        ["created a"],
        "the later entry of the same second"
    );
}

#[tokio::test]
async fn result_of_an_older_task_leaves_the_newer_one() {
    let world = World::new().await;
    world.announce(vec![created("a", 10)]).await;
    let old = world.due().await.remove(0);
    world.announce(vec![updated("a", 11)]).await;
    world.complete(vec![published(old.clone(), "old")]).await;
    let new = world.due().await.remove(0);
    assert_eq!((new.changed_at, new.live), (Some(at(11)), true));
    assert_eq!(new.live_hashes, sha256("old"));
    // A failure of the old task does not count for the new one.
    world.complete(vec![failed(old, None)]).await;
    assert_eq!(world.due().await[0].attempts, 0);
    world.complete(vec![published(new, "new")]).await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.totals(world.set).await, (1, 3));
}

#[tokio::test]
async fn repeated_change_does_not_restart_its_task() {
    let world = World::new().await;
    world.announce(vec![created("b", 5)]).await;
    world.work("1").await;
    let announced = || vec![with_content(updated("a", 10), "x"), deleted("b", 10)];
    assert_eq!(world.announce(announced()).await.tasks, 2);
    let in_progress = world.due().await;
    assert_eq!(
        world.announce(announced()).await,
        BatchResult {
            tasks: 0,
            known: 2,
            held_back: 0,
            contradicted: 0,
            unfollowed: 0,
        }
    );
    let failed = in_progress
        .into_iter()
        .map(|task| failed(task, Some(world.now)));
    world.complete(failed.collect()).await;
    world.announce(announced()).await;
    assert!(world.due().await.iter().all(|task| task.attempts == 1));
    world
        .announce(vec![with_content(updated("a", 10), "y"), deleted("b", 11)])
        .await;
    assert!(world.due().await.iter().all(|task| task.attempts == 0));
    world.work("y").await;
    assert_eq!(
        world.announce(announced()).await.tasks,
        1,
        "content that differs from the mirror's is fetched"
    );
}

/// The result of a task that was dropped while it was in progress does not complete the next one.
#[tokio::test]
async fn dropped_task_does_not_end_its_successor() {
    let world = World::new().await;
    world
        .announce(vec![with_content(created("a", 10), "x")])
        .await;
    world.work("x").await;
    world
        .announce(vec![with_content(updated("a", 20), "y")])
        .await;
    let dropped = world.due().await.remove(0);
    world
        .list(world.set, 30, vec![with_content(created("a", -1), "x")])
        .await;
    assert!(world.due().await.is_empty());
    world
        .announce(vec![with_content(updated("a", 40), "z")])
        .await;
    world.complete(vec![published(dropped, "y")]).await;
    assert_eq!(world.due().await[0].changed_at, Some(at(40)));
}

#[tokio::test]
async fn errors_of_failed_tasks_are_counted_by_code() {
    let world = World::new().await;
    let names = ["a", "b", "c"];
    world
        .announce(names.map(|name| created(name, 10)).to_vec())
        .await;
    let results = world.due().await.into_iter().map(|task| {
        let is_slow = task.uri.to_string().ends_with("/b");
        let failure = TaskFailure {
            code: if is_slow { "timeout" } else { "not-found" },
            message: "failed".to_owned(),
            retry_at: NEVER,
            is_given_up: true,
            counts: true,
            answer: None,
            is_in_doubt: false,
            awaits_sets: false,
        };
        TaskResult::Failed { task, failure }
    });
    world.complete(results.collect()).await;
    let statistics = world.statistics().await;
    assert_eq!(statistics.failed, 3);
    let found = statistics.failures.into_iter();
    let found: Vec<(String, u64)> = found.map(|it| (it.code, it.count)).collect();
    assert_eq!(
        found,
        [("not-found".to_owned(), 2), ("timeout".to_owned(), 1)]
    );
}

#[tokio::test]
async fn failed_task_is_delayed_and_then_given_up_with_its_attempts_counted_on() {
    let world = World::new().await;
    let mut wakes = world.store.wakes();
    world.announce(vec![created("a", 10)]).await;
    let later = world.now + chrono::TimeDelta::seconds(30);
    let task = world.due().await.remove(0);
    let failure = TaskFailure {
        code: "timeout",
        message: "too slow".to_owned(),
        retry_at: later,
        is_given_up: false,
        counts: true,
        answer: None,
        is_in_doubt: false,
        awaits_sets: false,
    };
    world
        .complete(vec![TaskResult::Failed { task, failure }])
        .await;
    let due = world
        .store
        .due_tasks(SOURCE, world.now, 8, TasksInProgress::default())
        .await
        .unwrap();
    assert_eq!((due.tasks.len(), due.next_due), (0, Some(later)));
    let mut due = world
        .store
        .due_tasks(SOURCE, later, 8, TasksInProgress::default())
        .await
        .unwrap();
    assert_eq!(
        (due.tasks.len(), due.tasks[0].attempts, due.next_due),
        (1, 1, None)
    );

    world
        .complete(vec![failed(due.tasks.remove(0), None)])
        .await;
    let statistics = world.statistics().await;
    assert_eq!((statistics.pending, statistics.failed), (0, 1));
    let crate::store::CountedFailure { code, message, .. } = statistics.failures[0].clone();
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("not-found", "https://example.org/a: 404")
    );
    woken(&mut wakes);
    world
        .store
        .retry_failed(world.set, SOURCE, world.now, None)
        .await
        .unwrap();
    assert_eq!(woken(&mut wakes), [Wake::Tasks(SOURCE.to_owned())]);
    let task = world.due().await.remove(0);
    assert_eq!(task.attempts, 2);
    world
        .store
        .retry_failed(world.set, SOURCE, world.now, None)
        .await
        .unwrap();
    assert!(woken(&mut wakes).is_empty(), "nothing to wake for");
}

/// What fails while a single run is in progress has used up its tries.
#[tokio::test]
async fn tasks_that_have_failed_since_a_time_stay_failed() {
    let mut world = World::new().await;
    let second = TimeDelta::seconds(1);
    // As if the clock had been set back after the last one.
    for (name, after) in [("before", 0), ("since", 1), ("later", 9)] {
        world.announce(vec![created(name, 10)]).await;
        let task = world.due().await.remove(0);
        let at = world.now + second * after;
        let results = Arc::new(vec![failed(task, None)]);
        world.store.complete(at, results).await.unwrap();
    }
    let since = Some(world.now + second);
    world.now += second * 2;
    let retried = world
        .store
        .retry_failed(world.set, SOURCE, world.now, since);
    retried.await.unwrap();
    assert_eq!(world.due_names().await, ["created before", "created later"]);
}

#[tokio::test]
async fn each_host_gets_its_share_and_no_task_is_returned_twice() {
    let world = World::new().await;
    let mut changes: Vec<Change> = (0..5).map(|n| created(&format!("r{n}"), 10)).collect();
    let elsewhere = ResourceUri::parse("https://elsewhere.example/x").unwrap();
    changes.push(Change {
        authority: elsewhere.authority(),
        uri: elsewhere,
        ..created("x", 10)
    });
    world.announce(changes).await;
    let due = world
        .store
        .due_tasks(SOURCE, world.now, 2, TasksInProgress::default())
        .await
        .unwrap();
    assert_eq!(due.tasks.len(), 3);
    let of_source = due.tasks.last().unwrap().authority.clone();
    assert_eq!(
        due.full,
        HashSet::from([of_source]),
        "the other host has no more than one"
    );
    let in_progress = due.tasks.iter().map(|task| task.resource).collect();
    let rest = world.due_without(in_progress).await;
    assert_eq!(rest.len(), 3);
    let none = world
        .store
        .due_tasks("another", world.now, 2, TasksInProgress::default())
        .await
        .unwrap();
    assert!(none.tasks.is_empty());
}

#[tokio::test]
async fn totals_follow_creation_update_and_deletion_in_every_set() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    world
        .announce(vec![created("a", 10), created("b", 10)])
        .await;
    world.work("123").await;
    assert_eq!(
        (world.totals(world.set).await, world.totals(other).await),
        ((2, 6), (0, 0))
    );
    // It joins another set without a download, and counts in both.
    world.announce_in(other, vec![created("a", 10)]).await;
    assert_eq!(
        (world.totals(world.set).await, world.totals(other).await),
        ((2, 6), (1, 3))
    );
    world.announce_in(other, vec![updated("a", 11)]).await;
    world.work("12345").await;
    assert_eq!(
        (world.totals(world.set).await, world.totals(other).await),
        ((2, 8), (1, 5))
    );
    world.announce(vec![deleted("a", 12)]).await;
    world.work("").await;
    assert_eq!(
        (world.totals(world.set).await, world.totals(other).await),
        ((1, 3), (0, 0))
    );
    world.announce(vec![created("a", 13)]).await;
    world.work("1").await;
    assert_eq!(world.totals(world.set).await, (2, 4));
    world.announce(vec![deleted("never-here", 13)]).await;
    world.work("").await;
    assert_eq!(world.totals(world.set).await, (2, 4));
}

/// Deleted, and created again while the deletion was in progress.
#[tokio::test]
async fn resource_created_again_during_its_deletion_stays_in_its_set() {
    let world = World::new().await;
    world.announce(vec![created("a", 10)]).await;
    world.work("1").await;
    world.announce(vec![deleted("a", 11)]).await;
    let task = world.due().await.remove(0);
    world.announce(vec![created("a", 12)]).await;
    world
        .complete(vec![TaskResult::Removed {
            task,
            file_stays: false,
        }])
        .await;
    assert_eq!(world.totals(world.set).await, (0, 0));
    world.work("22").await;
    assert_eq!(world.totals(world.set).await, (1, 2));
    world.list(world.set, 20, Vec::new()).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
}

#[tokio::test]
async fn feed_lists_applied_changes_in_order_and_wakes_once() {
    let world = World::new().await;
    let mut wakes = world.store.wakes();
    world
        .announce(vec![
            created("a", 10),
            created("b", 10),
            deleted("never-here", 10),
        ])
        .await;
    assert_eq!(woken(&mut wakes), [Wake::Tasks(SOURCE.to_owned())]);
    world.work("1").await;
    assert_eq!(
        woken(&mut wakes),
        [Wake::Tasks(SOURCE.to_owned()), Wake::Feed(2)]
    );
    world
        .announce(vec![updated("b", 11), deleted("a", 11)])
        .await;
    let mut tasks = world.due().await;
    tasks.sort_by_key(|task| task.kind == ChangeKind::Deleted);
    let same = Publication {
        has_new_bytes: false,
        ..publication(tasks.remove(0), "1")
    };
    world
        .complete(vec![
            TaskResult::Published(same),
            TaskResult::Removed {
                task: tasks.remove(0),
                file_stays: false,
            },
        ])
        .await;
    let entries = world.store.feed(0, 10).await.unwrap();
    let lines: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                entry.seq,
                entry.change.as_str(),
                entry.uri.as_str(),
                entry.path.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            (1, "created", "https://example.org/a", Some("example.org/a")),
            (2, "created", "https://example.org/b", Some("example.org/b")),
            (3, "deleted", "https://example.org/a", Some("example.org/a")),
        ]
    );
    assert_eq!(entries[0].origin, "notification");
    assert_eq!(entries[0].set, "https://example.org/capabilitylist.xml");
    assert_eq!(world.store.feed(1, 1).await.unwrap()[0].seq, 2);
}

#[tokio::test]
async fn two_resources_with_one_plain_path_get_two_paths() {
    let world = World::new().await;
    // The path has no scheme.
    let [first, second] = ["https", "http"].map(|scheme| Change {
        uri: ResourceUri::parse(&format!("{scheme}://example.org:8080/a")).unwrap(),
        ..created("a", 10)
    });
    let made = made_path(&second.uri).to_string();
    world.announce(vec![first, second]).await;
    let mut paths: Vec<String> = world
        .due()
        .await
        .into_iter()
        .map(|task| task.path)
        .collect();
    paths.sort();
    assert_eq!(paths, [made.as_str(), "example.org:8080/a"]);
    let without_plain_path = created("c%3Fd", 10);
    assert_eq!(plain_path(&without_plain_path.uri), None);
    let made = made_path(&without_plain_path.uri).to_string();
    world.announce(vec![without_plain_path]).await;
    assert!(world.due().await.iter().any(|task| task.path == made));
}

#[tokio::test]
async fn due_times_move_with_a_clock_that_is_set_back() {
    for days in [1, 3650] {
        let mut world = World::new().await;
        world
            .announce(vec![created("a", 10), created("b", 10)])
            .await;
        let task = world.due().await.remove(0);
        let soon = world.now + TimeDelta::seconds(60);
        world.complete(vec![failed(task, Some(soon))]).await;
        let back = TimeDelta::days(days);
        world.now -= back;
        assert!(world.due().await.is_empty());
        let shift = world.store.shift_due_times(SOURCE, world.now, back);
        shift.await.unwrap();
        assert_eq!(world.due_names().await, ["created b"], "{days}");
        world.now += TimeDelta::seconds(60);
        assert_eq!(world.due().await.len(), 2, "{days}");
    }
}

#[tokio::test]
async fn no_task_is_delayed_longer_than_the_longest_delay() {
    let mut world = World::new().await;
    world.announce(vec![created("a", 10)]).await;
    // Set back while nothing ran: the amount is unknown.
    world.now -= TimeDelta::days(3650);
    assert!(world.due().await.is_empty());
    let shift = world
        .store
        .shift_due_times(SOURCE, world.now, TimeDelta::zero());
    shift.await.unwrap();
    assert_eq!(world.due_names().await, ["created a"]);
}

/// A change that is older than the Resource List, of a resource that the list does not name and the server does not know.
#[tokio::test]
async fn resource_that_was_gone_when_the_list_was_made_is_no_failure() {
    let world = World::new().await;
    world.list(world.set, 100, vec![created("a", -1)]).await;
    world.work("1").await;
    for (time, remains) in [(50, false), (150, true)] {
        let late = Change {
            overtaken: true,
            ..created(&format!("gone{time}"), time)
        };
        world.announce(vec![late.clone()]).await;
        let task = world.due().await.remove(0);
        world.complete(vec![failed_as_absent(task)]).await;
        let failed = world.statistics().await.failed;
        assert_eq!(failed, u64::from(remains), "{time}");
        // Stated again, it is not asked for again.
        let again = world
            .store
            .compare_late(world.set, SOURCE, [&late].into_iter());
        assert_eq!(again.unwrap(), [LateChange::Known]);
    }
}

/// The same where a process that was killed may have published the file.
#[tokio::test]
async fn file_in_doubt_of_a_resource_that_was_gone_when_the_list_was_made_is_removed() {
    let world = World::new().await;
    for (change, content) in [(created("a", 10), "first"), (deleted("a", 15), "")] {
        world.announce(vec![change]).await;
        world.work(content).await;
    }
    world.list(world.set, 100, Vec::new()).await;
    let late = Change {
        overtaken: true,
        ..created("a", 50)
    };
    world.announce(vec![late]).await;
    world.store.mark_unclean_shutdown();
    let world = world.reopened();
    let task = world.due().await.remove(0);
    world.complete(vec![failed_as_absent(task)]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.work("").await;
    assert!(world.due().await.is_empty());
}

/// The same where nothing was ever recorded of the resource.
#[tokio::test]
async fn file_without_record_of_a_resource_that_was_gone_when_the_list_was_made_is_removed() {
    let world = World::new().await;
    world.list(world.set, 100, Vec::new()).await;
    let late = |name| Change {
        overtaken: true,
        ..created(name, 50)
    };
    world.announce(vec![late("a")]).await;
    world.store.mark_unclean_shutdown();
    let world = world.reopened();
    world.announce(vec![late("b")]).await;
    let due = world.due().await;
    let doubted: Vec<bool> = due.iter().map(|task| task.live_doubted).collect();
    assert_eq!(doubted, [true, false], "the kill was before");
    let absent = due.into_iter().map(failed_as_absent);
    world.complete(absent.collect()).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.work("").await;
    assert!(world.due().await.is_empty());
    assert!(world.reopened().due().await.is_empty());
}

#[tokio::test]
async fn source_that_states_what_a_hub_has_stated_confirms_the_task() {
    let world = World::new().await;
    let stated = Change {
        unconfirmed: true,
        ..with_content(created("a", 10), "one")
    };
    world.announce(vec![stated.clone()]).await;
    let before = world.due().await.remove(0);
    assert!(before.unconfirmed);
    world.announce(vec![stated.clone()]).await;
    assert!(world.due().await.remove(0).unconfirmed);
    let own = Change {
        unconfirmed: false,
        ..stated.clone()
    };
    world.announce(vec![own]).await;
    let after = world.due().await.remove(0);
    assert!(!after.unconfirmed && after.revision > before.revision);
    // A notification that arrives later changes nothing.
    world.announce(vec![stated]).await;
    assert!(!world.due().await.remove(0).unconfirmed);
}

/// A change that is stated again, by a list or a Change List, neither restarts what has failed nor is lost; another one does.
#[tokio::test]
async fn what_was_given_up_is_not_restarted_by_a_list_that_states_the_same() {
    let world = World::new().await;
    world.announce(vec![created("a", 10)]).await;
    let task = world.due().await.remove(0);
    world.complete(vec![failed(task, None)]).await;
    for at in [20, 30] {
        let listed = Change {
            lastmod: Some(super::at(10)),
            ..created("a", 10)
        };
        world.list(world.set, at, vec![listed]).await;
        world.announce(vec![created("a", 10)]).await;
        assert_eq!(world.statistics().await.failed, 1);
        assert!(world.due().await.is_empty());
    }
    world.announce(vec![updated("a", 40)]).await;
    assert_eq!(world.due().await[0].attempts, 0);
}
