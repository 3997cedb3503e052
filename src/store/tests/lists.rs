use resyncd_core::Validators;
use url::Url;

use super::*;

async fn baseline(world: &World) -> BaselineState {
    world.store.sets(SOURCE).await.unwrap()[0].baseline
}

#[tokio::test]
async fn baseline_is_done_when_its_tasks_are_completed_or_given_up() {
    let world = World::new().await;
    assert_eq!(baseline(&world).await, BaselineState::Missing);
    world
        .list(world.set, 10, vec![created("a", -1), created("b", -1)])
        .await;
    assert_eq!(baseline(&world).await, BaselineState::Listed);
    assert_eq!(
        world.store.sets(SOURCE).await.unwrap()[0].list_at,
        Some(at(10))
    );
    let mut tasks = world.due().await;
    world.complete(vec![published(tasks.remove(0), "1")]).await;
    assert_eq!(baseline(&world).await, BaselineState::Listed);
    assert!(!world.statistics().await.baseline_done);
    world.complete(vec![failed(tasks.remove(0), None)]).await;
    assert_eq!(baseline(&world).await, BaselineState::Done);
    world.list(world.set, 20, vec![created("c", -1)]).await;
    assert_eq!(
        baseline(&world).await,
        BaselineState::Done,
        "once done, it stays so"
    );
}

#[tokio::test]
async fn documents_are_read_again_when_another_filter_is_in_force() {
    let world = World::new().await;
    let (store, set) = (&world.store, world.set);
    let uri = Url::parse("http://source/changelist.xml").unwrap();
    let record = || DocumentRecord {
        uri: uri.to_string(),
        validators: Validators::default(),
        digest: [0; 32],
    };
    let read_with = async |filter: &str| {
        let found = store.read_with_filter(set, filter).await.unwrap();
        let known = store.document(set, &uri).await.unwrap();
        let reads_again = known.is_none();
        if reads_again {
            let end = DocumentEnd {
                documents: vec![record()],
                read: Some(Interval::before(at(20))),
                ..end()
            };
            let batch = world.batch(set, Vec::new(), Some(end));
            store.ingest(batch).await.unwrap();
        }
        (
            reads_again,
            found.filter,
            found.read.map(|read| read.until()),
        )
    };
    let expect = |reads_again, filter: &str, read_until: Option<i64>| {
        (reads_again, Some(filter.to_owned()), read_until.map(at))
    };
    assert_eq!(read_with("a").await, expect(true, "a", None));
    assert_eq!(read_with("a").await, expect(false, "a", Some(20)));
    // No Resource List was read yet.
    let (reads_again, filter, _) = read_with("b").await;
    assert_eq!((reads_again, filter.as_deref()), (true, Some("b")));
    world.list(set, 10, Vec::new()).await;
    // Until one is read with the other filter, that of the list stays, and the documents are read again but once.
    assert_eq!(read_with("c").await, expect(true, "b", Some(10)));
    assert_eq!(read_with("c").await, expect(false, "b", Some(20)));
    assert_eq!(read_with("b").await, expect(true, "b", Some(10)));
    assert_eq!(read_with("b").await, expect(false, "b", Some(20)));
}

#[tokio::test]
async fn baseline_is_done_also_when_another_set_announces_its_last_resource() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    world.list(world.set, 10, vec![created("a", -1)]).await;
    world.announce_in(other, vec![updated("a", 15)]).await;
    world.work("1").await;
    assert_eq!(baseline(&world).await, BaselineState::Done);

    // The mirror has the resource as another set announces it.
    let third = begin(&world.store, "third.xml").await;
    let listed = vec![with_content(created("a", 16), "2")];
    world.list(third, 20, listed).await;
    assert_eq!(world.due_names().await, ["updated a"]);
    let listed = vec![with_content(created("a", 17), "1")];
    world.list(other, 30, listed).await;
    assert!(world.due().await.is_empty());
    let sets = world.store.sets(SOURCE).await.unwrap();
    assert_eq!(sets[2].baseline, BaselineState::Done);
}

#[tokio::test]
async fn empty_baseline_is_done_at_once() {
    let world = World::new().await;
    world.list(world.set, 10, Vec::new()).await;
    assert_eq!(baseline(&world).await, BaselineState::Done);
}

#[tokio::test]
async fn resources_may_be_named_in_any_order_and_again() {
    let world = World::new().await;
    let entries = |names: &str| -> Vec<Change> {
        let names = names.chars().map(String::from);
        names.map(|name| created(&name, -1)).collect()
    };
    world.list(world.set, 10, entries("abcdefgh")).await;
    world.work("1").await;
    let lists = [
        "abcdefgh",
        "hgfedcba",
        "abcabcdefghaa",
        "acegbdfh",
        "cdabghef",
    ];
    let mut time = 10;
    for names in lists {
        time += 10;
        world.list(world.set, time, entries(names)).await;
        assert!(world.due().await.is_empty(), "{names}");
    }
    // Those around them are named.
    world.list(world.set, time + 10, entries("abdeghabd")).await;
    assert_eq!(world.due_names().await, ["deleted c", "deleted f"]);
}

#[tokio::test]
async fn resource_that_the_list_does_not_name_any_more_is_deleted() {
    let world = World::new().await;
    world
        .list(
            world.set,
            10,
            vec![created("a", -1), created("b", -1), created("c", -1)],
        )
        .await;
    world.work("1").await;
    world.announce(vec![updated("b", 25)]).await;
    world.work("2").await;
    world
        .announce(vec![created("d", 15), created("e", 25)])
        .await;
    let result = world.list(world.set, 20, vec![created("a", -1)]).await;
    assert_eq!(
        world.due_names().await,
        ["created e", "deleted c", "deleted d"]
    );
    assert_eq!(
        result.tasks, 2,
        "what is absent, and is not newer than the list"
    );
    world.work("3").await;
    assert_eq!(world.totals(world.set).await.0, 3);
    world.list(world.set, 30, vec![created("a", -1)]).await;
    assert_eq!(world.due_names().await, ["deleted b", "deleted e"]);
}

#[tokio::test]
async fn absent_resource_of_another_set_only_leaves() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    world
        .list(world.set, 10, vec![created("a", -1), created("b", -1)])
        .await;
    world.list(other, 10, vec![created("a", -1)]).await;
    world.work("12").await;
    assert_eq!(
        (world.totals(world.set).await, world.totals(other).await),
        ((2, 4), (1, 2))
    );
    world.list(world.set, 20, vec![created("b", -1)]).await;
    assert!(world.due().await.is_empty());
    assert_eq!(
        (world.totals(world.set).await, world.totals(other).await),
        ((1, 2), (1, 2))
    );
    world.list(other, 20, Vec::new()).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
}

#[tokio::test]
async fn listed_resource_is_not_deleted_by_an_older_change() {
    let world = World::new().await;
    world.list(world.set, 10, vec![created("a", -1)]).await;
    world.work("1").await;
    world.announce(vec![deleted("a", 15)]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.list(world.set, 20, vec![created("a", -1)]).await;
    assert!(world.due().await.is_empty());
    // A newer list names the absent resource again.
    world.list(world.set, 30, Vec::new()).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.list(world.set, 40, vec![created("a", -1)]).await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.totals(world.set).await.0, 1);
}

#[tokio::test]
async fn newer_list_replaces_the_tasks_of_an_older_one() {
    let world = World::new().await;
    world
        .list(
            world.set,
            10,
            vec![with_content(created("a", -1), "old"), created("b", -1)],
        )
        .await;
    world
        .list(world.set, 20, vec![with_content(created("a", -1), "new")])
        .await;
    let tasks = world.due().await;
    let a = tasks
        .iter()
        .find(|task| kind_and_name(task) == "created a")
        .unwrap();
    assert_eq!(a.content.hashes, sha256("new"));
    assert_eq!(world.due_names().await, ["created a", "deleted b"]);
    // The same list again, as after a restart, restarts no task.
    let revision = a.revision;
    world
        .list(world.set, 20, vec![with_content(created("a", -1), "new")])
        .await;
    let again = world.due().await;
    assert_eq!(
        again
            .iter()
            .find(|task| kind_and_name(task) == "created a")
            .unwrap()
            .revision,
        revision
    );
}

#[tokio::test]
async fn resource_deleted_after_the_snapshot_stays_deleted() {
    let world = World::new().await;
    world.list(world.set, 10, vec![created("a", -1)]).await;
    world.work("1").await;
    world.announce(vec![deleted("a", 25)]).await;
    world.work("").await;
    world.list(world.set, 20, vec![created("a", -1)]).await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.totals(world.set).await, (0, 0));
    world.list(world.set, 30, vec![created("a", -1)]).await;
    assert_eq!(world.due_names().await, ["created a"]);
}

fn many(count: usize) -> Vec<Change> {
    (0..count).map(|n| created(&format!("r{n}"), -1)).collect()
}

#[tokio::test]
async fn too_many_deletions_wait_for_approval() {
    let world = World::new().await;
    world.list(world.set, 10, many(150)).await;
    world.work("1").await;
    let result = world.list(world.set, 20, many(49)).await;
    assert_eq!(result.held_back, 101);
    let statistics = world.statistics().await;
    assert_eq!((statistics.pending, statistics.held_deletions), (0, 101));
    // They may have been deleted directly after the first list.
    assert_eq!(statistics.synced_until, Some(at(10)));
    assert!(world.due().await.is_empty());
    // Announced again, they are still held back, with another one.
    assert_eq!(world.list(world.set, 21, many(49)).await.tasks, 0);
    assert_eq!(world.announce(vec![deleted("r0", 30)]).await.held_back, 1);
    assert_eq!(world.statistics().await.held_deletions, 102);
    // A resource that is listed again is not.
    world.announce(vec![updated("r100", 31)]).await;
    assert_eq!(world.due_names().await, ["updated r100"]);

    let mut wakes = world.store.wakes();
    assert_eq!(world.store.approve_deletions("another").await.unwrap(), 0);
    assert!(woken(&mut wakes).is_empty());
    assert_eq!(world.store.approve_deletions(SOURCE).await.unwrap(), 101);
    // Three transactions.
    assert_eq!(woken(&mut wakes), vec![Wake::Tasks(SOURCE.to_owned()); 3]);
    // Approved deletions stay approved if they are announced again before they are executed; but the newer list names r0.
    let mut listed = many(49);
    listed.push(created("r100", -1));
    world.list(world.set, 40, listed).await;
    assert_eq!(world.statistics().await.held_deletions, 0);
    world.work("1").await;
    assert_eq!(world.totals(world.set).await.0, 50);
    assert_eq!(world.store.approve_deletions(SOURCE).await.unwrap(), 0);
}

#[tokio::test]
async fn hundred_deletions_or_a_tenth_are_released() {
    let world = World::new().await;
    world.list(world.set, 10, many(1500)).await;
    world.work("1").await;
    let deletions = |from: usize, until: usize| {
        (from..until)
            .map(|n| deleted(&format!("r{n}"), 20))
            .collect()
    };
    assert_eq!(world.announce(deletions(0, 150)).await.held_back, 0);
    // In small parts it is as many: pending deletions count, too.
    assert_eq!(world.announce(deletions(150, 151)).await.held_back, 1);
    world.work("").await;
    assert_eq!(world.totals(world.set).await.0, 1350);
}

#[tokio::test]
async fn deletions_are_undecided_until_their_document_ends() {
    let world = World::new().await;
    world.announce(vec![created("a", 10)]).await;
    world.work("1").await;
    let part = world.batch(world.set, vec![deleted("a", 20)], None);
    world.store.ingest(part).await.unwrap();
    assert!(world.due().await.is_empty());
    world.end_document().await;
    assert_eq!(world.due_names().await, ["deleted a"]);
}

/// Each step continues where the last one ended.
#[tokio::test]
async fn absent_resources_of_a_long_list_are_found_in_steps() {
    let world = World::new().await;
    world.list(world.set, 10, many(2500)).await;
    let result = world.list(world.set, 20, many(1)).await;
    assert_eq!(result.tasks, 2499);
    let again = world.list(world.set, 30, many(1)).await;
    assert_eq!(again.tasks, 0);
}

/// A list whose pages were made one after the other: what one reading does not name may have moved, what two do not is absent.
#[tokio::test]
async fn resource_that_was_named_in_one_of_two_readings_is_not_absent() {
    let world = World::new().await;
    let first = vec![created("a", -1), created("b", -1), created("c", -1)];
    world.list(world.set, 10, first).await;
    world.work("1").await;
    let mut named_before = None;
    for name in ["a", "b"] {
        world.store.begin_list(world.set).await.unwrap();
        let list = world.reading(world.set, 20);
        let (entries, named) = (vec![created(name, -1)], NamedSoFar::default());
        let listed = world.store.ingest_listed(&list, world.now, entries, &named);
        listed.done().await.unwrap();
        assert!(world.store.has_absent_resources(&list).await.unwrap());
        let mut search = AbsentSearch::new(true, named_before.replace(list.named.clone()));
        let is_second = search.named_before.is_some();
        while is_second
            && let Some(_) = world
                .store
                .delete_absent(&list, world.now, &mut search, |_| true)
                .await
                .unwrap()
        {}
    }
    world.end_document().await;
    assert_eq!(world.due_names().await, ["deleted c"]);
}

/// Of two entries of a resource the one with the later modification counts, in any order and at each reading.
#[tokio::test]
async fn newer_one_of_two_entries_of_a_resource_counts() {
    let entry = |lastmod: i64, content: &str| Change {
        lastmod: Some(at(lastmod)),
        ..with_content(created("a", lastmod), content)
    };
    for reversed in [false, true] {
        let world = World::new().await;
        let mut entries = vec![entry(1, "old"), entry(2, "new")];
        if reversed {
            entries.reverse();
        }
        for time in [10, 20, 30] {
            world.list(world.set, time, entries.clone()).await;
            let due = world.due().await;
            let wanted: Vec<_> = due.iter().map(|task| task.content.hashes.clone()).collect();
            let expected = if time == 10 {
                vec![sha256("new")]
            } else {
                vec![]
            };
            assert_eq!(wanted, expected, "{reversed} {time}");
            world.work("new").await;
        }
    }
}

/// A list names the resource again, without a digest, before the deletion was executed: the change before it is not in the mirror.
#[tokio::test]
async fn change_that_a_deletion_had_replaced_is_requested_again_if_a_list_has_the_resource() {
    let world = World::new().await;
    let listed = with_content(created("a", 5), "1");
    world.list(world.set, 10, vec![listed]).await;
    world.work("1").await;
    let changed = with_content(updated("a", 20), "2");
    world.announce(vec![changed]).await;
    world.announce(vec![deleted("a", 21)]).await;
    world.list(world.set, 30, vec![created("a", -1)]).await;
    assert_eq!(world.due_names().await, ["updated a"]);
    assert_eq!(world.statistics().await.synced_until, Some(at(10)));
    world.work("2").await;
    assert_eq!(world.statistics().await.synced_until, Some(at(30)));
    // A deletion that has replaced nothing.
    world.announce(vec![deleted("a", 31)]).await;
    world.list(world.set, 40, vec![created("a", -1)]).await;
    assert!(world.due().await.is_empty());
}

/// The Source has answered that there is none: an update without a time does not show that the resource exists.
#[tokio::test]
async fn resource_is_absent_although_an_undated_update_of_it_has_failed() {
    for is_answered in [true, false] {
        let world = World::new().await;
        world.list(world.set, 10, vec![created("a", 5)]).await;
        world.work("1").await;
        let undated = updated("a", -1);
        assert_eq!(undated.changed_at, None);
        world.announce(vec![undated]).await;
        let task = world.due().await.remove(0);
        let timed_out = TaskFailure {
            code: "timeout",
            ..failure_of(None)
        };
        let result = if is_answered {
            failed_as_absent(task)
        } else {
            TaskResult::Failed {
                task,
                failure: timed_out,
            }
        };
        world.complete(vec![result]).await;
        let retry = world.store.retry_failed(world.set, SOURCE, world.now, None);
        retry.await.unwrap();
        world.list(world.set, 30, Vec::new()).await;
        let expected = if is_answered {
            ["deleted a"]
        } else {
            ["updated a"]
        };
        assert_eq!(world.due_names().await, expected);
    }
}

/// A site that is built anew every night states a later modification of each file, and the digest of the same bytes.
#[tokio::test]
async fn later_modification_of_the_same_bytes_is_recorded_and_costs_no_row() {
    let world = World::new().await;
    let listed = |time: i64| {
        let entry = with_content(created("a", time), "1");
        Change {
            lastmod: Some(at(time)),
            ..entry
        }
    };
    let statements = async || {
        let count = world.store.read(|sql| {
            let count = "SELECT COUNT(*) FROM statement";
            Ok(sql.query_row(count, [], |row| row.get::<_, i64>(0))?)
        });
        count.await.unwrap()
    };
    world.list(world.set, 10, vec![listed(5)]).await;
    world.work("1").await;
    for time in [15, 25] {
        world.list(world.set, time + 1, vec![listed(time)]).await;
        assert!(world.due().await.is_empty());
        let view = world.store.resource(&uri("a")).await.unwrap().unwrap();
        assert_eq!(view.lastmod, Some(at(time)));
        assert_eq!(statements().await, 0);
    }
    // A change before the last modification is older than what is known.
    world
        .announce(vec![with_content(updated("a", 20), "2")])
        .await;
    assert!(world.due().await.is_empty());
    world
        .announce(vec![with_content(updated("a", 30), "2")])
        .await;
    assert_eq!(world.due_names().await, ["updated a"]);
}

/// Pages that are written cost more than anything else that a list does.
#[tokio::test]
async fn resource_is_written_once_for_its_entry_and_its_file_and_not_for_the_same_entry() {
    let world = World::new().await;
    let counting = world.store.write(|tx| {
        Ok(tx.sql.execute_batch(
            "CREATE TEMP TABLE written (n);
             CREATE TEMP TRIGGER count_written AFTER UPDATE ON main.resource BEGIN INSERT INTO written VALUES (1); END",
        )?)
    });
    counting.await.unwrap();
    let written = async || {
        let counted = world.store.write(|tx| {
            let count = "SELECT COUNT(*) FROM temp.written";
            let count = tx.sql.query_row(count, [], |row| row.get::<_, i64>(0))?;
            tx.sql.execute("DELETE FROM temp.written", [])?;
            Ok(count)
        });
        counted.await.unwrap()
    };
    let entries = || vec![with_content(created("a", 5), "1"), created("b", 6)];
    world.list(world.set, 10, entries()).await;
    assert_eq!(written().await, 2);
    world.work("1").await;
    assert_eq!(written().await, 2);
    world.list(world.set, 20, entries()).await;
    assert!(world.due().await.is_empty());
    assert_eq!(written().await, 0);
}
