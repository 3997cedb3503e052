//! What only a hub has stated that may not speak for the Source, and what the Source states and answers then.

use super::*;

fn by_hub(change: Change) -> Change {
    Change {
        unconfirmed: true,
        ..change
    }
}

impl World {
    /// A resource that the mirror has since the 10th second. Every change until the 40th is known.
    async fn with_resource(name: &str) -> Self {
        let world = Self::new().await;
        world.list(world.set, 10, vec![created(name, 5)]).await;
        world.work("1").await;
        world.announce_until(Vec::new(), 40).await;
        world
    }

    /// A Change List of those changes covers the times before that second.
    async fn cover_until(&self, until: i64, changes: Vec<Change>) -> BatchResult {
        let covered = DocumentEnd {
            read: Some(Interval::before(at(until))),
            ..end()
        };
        let batch = self.batch(self.set, changes, Some(covered));
        self.store.ingest(batch).await.unwrap()
    }
}

/// The Source was asked because of a hub: what it has served may have been created after a change that it states only now.
#[tokio::test]
async fn change_before_an_answer_of_the_source_is_older_than_the_answer() {
    for first in [Some(at(5)), None] {
        let world = World::new().await;
        let first = Change {
            changed_at: first,
            ..created("a", 5)
        };
        world.announce(vec![first]).await;
        world.work("1").await;
        world.announce(vec![by_hub(deleted("a", 20))]).await;
        let task = world.due().await.remove(0);
        let is_same = true;
        world
            .complete(vec![TaskResult::Served { task, is_same }])
            .await;
        for change in [with_content(updated("a", 15), "former"), deleted("a", 16)] {
            world.announce(vec![change]).await;
            let task = world.due().await.remove(0);
            assert!(task.asks, "{task:?}");
            assert!(task.content.hashes.is_empty(), "{task:?}");
        }
    }
}

#[tokio::test]
async fn resource_that_only_a_hub_knows_and_nobody_serves_is_dropped() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(created("b", 20))]).await;
    let task = world.due().await.remove(0);
    world.complete(vec![failed_as_absent(task)]).await;
    let statistics = world.statistics().await;
    assert_eq!((statistics.failed, statistics.pending), (0, 0));
}

/// The process was killed while it executed the task: the file may be there.
#[tokio::test]
async fn file_without_record_of_a_dropped_resource_is_removed() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(created("b", 20))]).await;
    world.store.mark_unclean_shutdown();
    let world = world.reopened();
    let task = world.due().await.remove(0);
    world.complete(vec![failed_as_absent(task)]).await;
    assert_eq!(world.due_names().await, ["deleted b"]);
    world.work("").await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.totals(world.set).await.0, 1);
    let feed = world.store.feed(0, 9).await.unwrap();
    assert_eq!(feed.len(), 1, "nobody has learned of it");
    // The Source may state it all the same.
    world.announce(vec![created("b", 15)]).await;
    assert_eq!(world.due_names().await, ["created b"]);
}

#[tokio::test]
async fn resource_list_contradicts_what_only_a_hub_has_stated() {
    let world = World::with_resource("a").await;
    world.list(world.set, 12, vec![created("a", 5)]).await;
    assert!(world.due().await.is_empty());
    let stated = vec![by_hub(deleted("a", 20)), by_hub(created("b", 21))];
    world.announce_until(stated, 40).await;
    world.work("2").await;
    let of = |name: &str, lastmod: i64| Change {
        lastmod: Some(at(lastmod)),
        ..created(name, lastmod)
    };
    let listed = world.list(world.set, 30, vec![of("a", 5)]).await;
    assert_eq!((listed.tasks, listed.contradicted), (2, 2));
    assert_eq!(world.due_names().await, ["created a", "deleted b"]);
    // The same of what the Source itself has stated is no contradiction.
    world.work("1").await;
    world
        .announce_until(vec![deleted("a", 42), created("b", 43)], 60)
        .await;
    world.work("3").await;
    let listed = world.list(world.set, 50, vec![of("a", 5)]).await;
    assert_eq!((listed.tasks, listed.contradicted), (2, 0));
}

#[tokio::test]
async fn expiry_of_what_only_a_hub_has_stated_is_no_contradiction() {
    let world = World::with_resource("a").await;
    world.list(world.set, 12, vec![created("a", 5)]).await;
    world
        .announce_until(vec![by_hub(created("b", 21))], 40)
        .await;
    world.work("2").await;
    let listed = vec![created("a", 5), deleted("b", 25)];
    let listed = world.list(world.set, 30, listed).await;
    assert_eq!((listed.tasks, listed.contradicted), (1, 0));
    assert_eq!(world.due_names().await, ["deleted b"]);
}

#[tokio::test]
async fn resource_that_has_returned_since_a_hub_stated_its_deletion_is_no_contradiction() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(deleted("a", 20))]).await;
    world.work("").await;
    let returned = Change {
        lastmod: Some(at(25)),
        ..created("a", 25)
    };
    let listed = world.list(world.set, 30, vec![returned]).await;
    assert_eq!((listed.tasks, listed.contradicted), (1, 0));
}

/// Which of the two is newer is not known. It was claimed already that both were applied.
#[tokio::test]
async fn update_before_the_time_of_a_hub_is_fetched_and_does_not_lower_the_claim() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(updated("a", 20))]).await;
    world.work("2").await;
    for time in [15, 20] {
        world.announce(vec![updated("a", time)]).await;
        assert_eq!(world.due_names().await, ["updated a"], "{time}");
        let claimed = world.statistics().await.synced_until;
        assert_eq!(claimed, Some(at(40)), "{time}");
    }
}

/// A hub has stated that a resource was deleted and created again within one moment, and the Source states the same. So it does of
/// changes that have followed each other so quickly that only the last was ever fetched.
#[tokio::test]
async fn changes_of_the_very_time_of_a_hub_do_not_lower_the_claim() {
    let of = |change: Change, bytes: &str| with_content(change, bytes);
    for (known, stated) in [
        ("2", vec![deleted("a", 20), created("a", 20)]),
        (
            "2",
            vec![of(updated("a", 20), "1"), of(updated("a", 20), "2")],
        ),
        (
            "3",
            vec![of(updated("a", 20), "2"), of(updated("a", 41), "3")],
        ),
        (
            "2",
            vec![deleted("a", 20), created("a", 20), updated("a", 41)],
        ),
    ] {
        let world = World::with_resource("a").await;
        world.announce(vec![by_hub(created("a", 20))]).await;
        world.work(known).await;
        for count in 1..=stated.len() {
            world.announce(stated[..count].to_vec()).await;
            let claimed = world.statistics().await.synced_until;
            assert_eq!(claimed, Some(at(40)), "{:?}", &stated[..count]);
        }
        world.work(known).await;
        assert_eq!(world.totals(world.set).await.0, 1);
        let claimed = world.statistics().await.synced_until;
        assert_eq!(claimed, Some(at(40)), "{stated:?}");
    }
}

/// What the Source states of a later time is missing for certain.
#[tokio::test]
async fn later_change_than_the_time_of_a_hub_lowers_the_claim() {
    for change in [updated("a", 21), deleted("a", 21)] {
        let world = World::with_resource("a").await;
        world.announce(vec![by_hub(updated("a", 20))]).await;
        world.work("2").await;
        world.announce(vec![change]).await;
        let claimed = world.statistics().await.synced_until;
        assert_eq!(claimed, Some(at(21)));
    }
}

/// The Source's answer contradicts a deletion that a hub has stated, because the resource was created again meanwhile; then its list
/// states both.
#[tokio::test]
async fn deletion_that_the_source_has_contradicted_does_not_lower_the_claim() {
    for is_same in [true, false] {
        let world = World::with_resource("a").await;
        world.announce(vec![by_hub(deleted("a", 20))]).await;
        let task = world.due().await.remove(0);
        world
            .complete(vec![TaskResult::Served { task, is_same }])
            .await;
        world.work("2").await;
        // The hub states it again.
        world.announce(vec![by_hub(deleted("a", 20))]).await;
        let claimed = world.statistics().await.synced_until;
        assert_eq!(claimed, Some(at(40)));
        let stated = [deleted("a", 20), created("a", 41)];
        for count in 1..=stated.len() {
            world.announce(stated[..count].to_vec()).await;
            let claimed = world.statistics().await.synced_until;
            assert_eq!(claimed, Some(at(40)), "{:?}", &stated[..count]);
        }
    }
}

/// The Source states, one after the other, what it may have served already when a hub had stated the last of it.
#[tokio::test]
async fn updates_until_the_time_of_a_hub_do_not_lower_the_claim_one_by_one() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(updated("a", 30))]).await;
    world.work("3").await;
    for time in [20, 25] {
        world.announce(vec![updated("a", time)]).await;
        assert_eq!(world.due_names().await, ["updated a"], "{time}");
        let claimed = world.statistics().await.synced_until;
        assert_eq!(claimed, Some(at(40)), "{time}");
        world.work("3").await;
    }
    // One that the Source has made later is pending.
    world.announce(vec![updated("a", 45)]).await;
    world.announce(vec![updated("a", 31)]).await;
    let claimed = world.statistics().await.synced_until;
    assert_eq!(claimed, Some(at(31)), "the hub had not stated it");
}

/// A Change List covers the time of what a hub has stated.
#[tokio::test]
async fn documents_that_cover_what_a_hub_has_stated_contradict_it_or_confirm_it() {
    let cases = [
        // The Source has deleted it before, at the same time, or later.
        (updated("a", 50), None, vec![deleted("a", 45)], 1),
        (updated("a", 50), None, vec![deleted("a", 60)], 0),
        (updated("a", 50), None, vec![updated("a", 49)], 0),
        (updated("a", 50), None, vec![], 0),
        // The Source has not served it for a moment.
        (deleted("a", 50), Some(false), vec![], 1),
        (deleted("a", 50), Some(false), vec![deleted("a", 49)], 0),
        (deleted("a", 50), Some(false), vec![created("a", 60)], 0),
        // It has: that was reported then.
        (deleted("a", 50), Some(true), vec![], 0),
    ];
    for (claim, served, listed, contradicted) in cases {
        let world = World::with_resource("a").await;
        let case = format!("{:?} {served:?} {listed:?}", claim.kind);
        world.announce(vec![by_hub(claim)]).await;
        let task = world.due().await.remove(0);
        let result = match served {
            None => published(task, "1"),
            Some(true) => TaskResult::Served {
                task,
                is_same: true,
            },
            Some(false) => TaskResult::Removed {
                task,
                file_stays: false,
            },
        };
        world.complete(vec![result]).await;
        let ended = world.cover_until(100, listed).await;
        assert_eq!(ended.contradicted, contradicted, "{case}");
    }
}

#[tokio::test]
async fn resource_that_only_a_hub_has_made_up_is_contradicted_by_the_documents_of_its_time() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(created("b", 50))]).await;
    let task = world.due().await.remove(0);
    world.complete(vec![failed_as_absent(task)]).await;
    let ended = world.cover_until(100, Vec::new()).await;
    assert_eq!(ended.contradicted, 1);
}

/// The request stands for both.
#[tokio::test]
async fn list_holds_back_for_what_it_states_beside_the_request_of_a_hub() {
    let world = World::new().await;
    world.announce(vec![by_hub(created("a", 20))]).await;
    world.list(world.set, 10, vec![created("a", 5)]).await;
    assert_eq!(world.due_names().await, ["created a"]);
    assert_eq!(world.statistics().await.synced_until, None);
    world.work("1").await;
    assert_eq!(world.statistics().await.synced_until, Some(at(10)));
}
