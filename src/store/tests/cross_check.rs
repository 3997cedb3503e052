//! What only a hub has stated, and a list of the Source confirms or contradicts.

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

    /// What is to be compared with a list of the seconds from `from` to `until`: URIs and states.
    async fn unconfirmed(&self, from: i64, until: i64) -> Vec<Unconfirmed> {
        let found = self.store.unconfirmed(self.set, at(from), at(until), 100);
        found.await.unwrap()
    }

    /// A list confirms some statements and contradicts the others.
    /// Returns how many of them lead to something.
    async fn conclude(&self, confirmed: Vec<Unconfirmed>, contradicted: Vec<Unconfirmed>) -> u64 {
        let comparison = Comparison {
            set: self.set,
            source: SOURCE.to_owned(),
            confirmed,
            contradicted,
            rules: end().rules,
        };
        let concluded = self.store.conclude_comparison(self.now, comparison);
        let concluded = concluded.await.unwrap();
        concluded.asked + concluded.forgotten.len() as u64
    }

    /// The Source answers that the resource of the one due deletion exists.
    async fn served(&self) {
        let task = self.due().await.remove(0);
        assert!(task.kind == ChangeKind::Deleted && task.contradicted);
        let is_same = true;
        self.complete(vec![TaskResult::Contradicted { task, is_same }])
            .await;
    }

    fn late(&self, change: Change) -> LateChange {
        let late = Change {
            overtaken: true,
            ..change
        };
        let compared = self
            .store
            .compare_late(self.set, SOURCE, [&late].into_iter());
        compared.unwrap()[0]
    }
}

#[tokio::test]
async fn only_what_a_hub_states_within_the_interval_is_compared_and_once() {
    let world = World::with_resource("a").await;
    world.announce(vec![created("b", 20)]).await;
    world.announce(vec![by_hub(updated("a", 20))]).await;
    assert!(world.unconfirmed(5, 30).await.is_empty(), "not applied yet");
    world.work("2").await;
    assert!(world.unconfirmed(21, 30).await.is_empty());
    assert!(world.unconfirmed(5, 20).await.is_empty());
    let found = world.unconfirmed(20, 21).await;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (&found[0].uri, found[0].state),
        (&uri("a"), UnconfirmedState::Live)
    );
    assert_eq!(world.conclude(found, Vec::new()).await, 0);
    assert!(world.unconfirmed(5, 30).await.is_empty());
    assert!(world.due().await.is_empty());
    // Another change is compared again.
    world.announce(vec![by_hub(updated("a", 25))]).await;
    world.work("3").await;
    assert_eq!(world.unconfirmed(5, 30).await.len(), 1);
}

#[tokio::test]
async fn resource_that_the_list_does_not_have_is_asked_for() {
    for is_served in [true, false] {
        let world = World::with_resource("a").await;
        world.announce(vec![by_hub(updated("a", 20))]).await;
        world.work("2").await;
        assert_eq!(world.late(deleted("a", 15)), LateChange::Known);
        let found = world.unconfirmed(5, 30).await;
        assert_eq!(world.conclude(Vec::new(), found).await, 1);
        assert_eq!(world.due_names().await, ["deleted a"]);
        let claimed = world.statistics().await.synced_until;
        assert_eq!(claimed, Some(at(40)), "it was claimed already");
        if is_served {
            world.served().await;
            assert!(world.unconfirmed(5, 30).await.is_empty(), "asked once");
        } else {
            world.work("").await;
        }
        assert!(world.due().await.is_empty());
        assert_eq!(world.totals(world.set).await.0, u64::from(is_served));
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
            .complete(vec![TaskResult::Contradicted { task, is_same }])
            .await;
        for change in [with_content(updated("a", 15), "former"), deleted("a", 16)] {
            world.announce(vec![change]).await;
            let task = world.due().await.remove(0);
            assert!(task.is_older, "{task:?}");
            assert!(task.content.hashes.is_empty(), "{task:?}");
        }
    }
}

/// A resource that the Source has deleted before the hub states that it was updated: the deletion looks older.
#[tokio::test]
async fn deletion_that_a_failed_update_of_a_hub_hides_is_asked_for() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(updated("a", 20))]).await;
    let task = world.due().await.remove(0);
    assert!(world.unconfirmed(5, 30).await.is_empty(), "in progress");
    world.complete(vec![failed(task, None)]).await;
    assert_eq!(world.late(deleted("a", 15)), LateChange::Known);
    let found = world.unconfirmed(5, 30).await;
    assert_eq!(found[0].state, UnconfirmedState::Unserved { live: true });
    assert_eq!(world.conclude(Vec::new(), found).await, 1);
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.work("").await;
    assert_eq!(world.totals(world.set).await.0, 0);
    assert_eq!(world.statistics().await.failed, 0);
}

/// So many that a person decides, whatever the Source answers at the moment.
#[tokio::test]
async fn many_resources_that_lists_do_not_have_are_held_back() {
    let world = World::new().await;
    let all = || (0..200).map(|number| created(&format!("r{number}"), 10));
    world.announce(all().collect()).await;
    world.work("1").await;
    let updates = (0..150).map(|number| by_hub(updated(&format!("r{number}"), 20)));
    world.announce(updates.collect()).await;
    world.work("2").await;
    let found = world.unconfirmed(5, 30).await;
    assert_eq!(found.len(), 100);
    assert_eq!(world.conclude(Vec::new(), found).await, 100);
    assert_eq!(world.due().await.len(), 100, "a hundred are not too many");
    let found = world.unconfirmed(5, 30).await;
    assert_eq!(world.conclude(Vec::new(), found).await, 50);
    assert_eq!(world.due().await.len(), 100);
    assert_eq!(world.statistics().await.held_deletions, 50);
}

#[tokio::test]
async fn resource_whose_deletion_is_contradicted_is_requested_again() {
    for is_served in [true, false] {
        let world = World::with_resource("a").await;
        world.announce(vec![by_hub(deleted("a", 20))]).await;
        world.work("").await;
        assert_eq!(world.totals(world.set).await.0, 0);
        let found = world.unconfirmed(5, 30).await;
        assert_eq!(found[0].state, UnconfirmedState::Deleted);
        assert_eq!(world.conclude(Vec::new(), found).await, 1);
        assert_eq!(world.due_names().await, ["created a"]);
        let claimed = world.statistics().await.synced_until;
        assert_eq!(claimed, Some(at(40)), "it was claimed already");
        // What the Source states of an earlier time is known: what it serves now is asked for.
        assert_eq!(world.late(updated("a", 15)), LateChange::Known);
        let task = world.due().await.remove(0);
        if is_served {
            world.complete(vec![published(task, "1")]).await;
            assert_eq!(world.totals(world.set).await.0, 1);
        } else {
            world.complete(vec![failed_as_absent(task)]).await;
            assert_eq!(world.statistics().await.failed, 0);
            assert_eq!(world.totals(world.set).await.0, 0);
        }
        assert!(world.due().await.is_empty());
        assert!(
            world.unconfirmed(5, 30).await.is_empty(),
            "it is not reported again"
        );
    }
}

#[tokio::test]
async fn resource_that_only_a_hub_knows_and_nobody_serves_is_dropped() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(created("b", 20))]).await;
    let task = world.due().await.remove(0);
    world.complete(vec![failed(task, None)]).await;
    assert_eq!(world.statistics().await.failed, 1);
    let found = world.unconfirmed(5, 30).await;
    assert_eq!(found[0].state, UnconfirmedState::Unserved { live: false });
    assert_eq!(world.conclude(found, Vec::new()).await, 0);
    assert_eq!(world.statistics().await.failed, 1);
    let found = world.unconfirmed(5, 30).await;
    assert_eq!(world.conclude(Vec::new(), found).await, 1);
    let statistics = world.statistics().await;
    assert_eq!((statistics.failed, statistics.pending), (0, 0));
    assert!(world.unconfirmed(5, 30).await.is_empty());
}

/// The process was killed while it executed the task: the file may be there.
#[tokio::test]
async fn file_without_record_of_a_dropped_resource_is_removed() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(created("b", 20))]).await;
    world.store.mark_unclean_shutdown();
    let world = world.reopened();
    let task = world.due().await.remove(0);
    world.complete(vec![failed(task, None)]).await;
    let found = world.unconfirmed(5, 30).await;
    assert_eq!(found[0].state, UnconfirmedState::Unserved { live: false });
    assert_eq!(world.conclude(Vec::new(), found).await, 1);
    assert_eq!(world.due_names().await, ["deleted b"]);
    let asks_first = world.due().await.remove(0).unconfirmed;
    assert!(asks_first, "the Source may serve it by now");
    let claimed = world.statistics().await.synced_until;
    assert_eq!(claimed, Some(at(40)), "it was claimed already");
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
async fn resource_that_another_document_names_is_not_dropped() {
    let world = World::with_resource("a").await;
    let other = begin(&world.store, "other.xml").await;
    world.list(other, 15, vec![created("b", 12)]).await;
    world.announce(vec![by_hub(updated("b", 20))]).await;
    let task = world.due().await.remove(0);
    world.complete(vec![failed(task, None)]).await;
    assert!(world.unconfirmed(5, 30).await.is_empty());
}

/// The Source's own creation is older than what the hub has stated, and the task stands for both.
#[tokio::test]
async fn resource_that_the_source_has_stated_before_the_hub_is_not_dropped() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(created("b", 20))]).await;
    world.announce(vec![created("b", 15)]).await;
    let task = world.due().await.remove(0);
    world.complete(vec![failed(task, None)]).await;
    assert!(world.unconfirmed(5, 30).await.is_empty());
    assert_eq!(world.statistics().await.failed, 1);
}

/// The hub repeats its statement before the Source was asked.
#[tokio::test]
async fn question_that_a_repeated_statement_drops_is_asked_again() {
    let world = World::with_resource("a").await;
    let update = with_content(by_hub(updated("a", 20)), "2");
    world.announce(vec![update.clone()]).await;
    world.work("2").await;
    let found = world.unconfirmed(5, 30).await;
    assert_eq!(world.conclude(Vec::new(), found).await, 1);
    world.announce(vec![update]).await;
    assert!(world.due().await.is_empty());
    let found = world.unconfirmed(5, 30).await;
    assert_eq!(world.conclude(Vec::new(), found).await, 1);
    assert_eq!(world.due_names().await, ["deleted a"]);
}

#[tokio::test]
async fn what_has_changed_since_the_comparison_is_left_alone() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(updated("a", 20))]).await;
    world.work("2").await;
    let found = world.unconfirmed(5, 30).await;
    // A task.
    world.announce(vec![by_hub(deleted("a", 21))]).await;
    assert_eq!(world.conclude(Vec::new(), found.clone()).await, 0);
    assert_eq!(world.due_names().await, ["deleted a"]);
    // Another change.
    world.work("").await;
    assert_eq!(world.conclude(Vec::new(), found.clone()).await, 0);
    // The Source's own statement.
    world.announce(vec![updated("a", 22)]).await;
    world.work("3").await;
    assert_eq!(world.conclude(Vec::new(), found).await, 0);
    assert!(world.unconfirmed(5, 30).await.is_empty());
}

#[tokio::test]
async fn resource_list_contradicts_what_only_a_hub_has_stated() {
    let world = World::with_resource("a").await;
    world.list(world.set, 12, vec![created("a", 10)]).await;
    assert!(world.due().await.is_empty());
    let stated = vec![by_hub(deleted("a", 20)), by_hub(created("b", 21))];
    world.announce_until(stated, 40).await;
    world.work("2").await;
    let of = |name: &str, lastmod: i64| Change {
        lastmod: Some(at(lastmod)),
        ..created(name, lastmod)
    };
    let listed = world.list(world.set, 30, vec![of("a", 10)]).await;
    assert_eq!((listed.tasks, listed.contradicted), (2, 2));
    assert_eq!(world.due_names().await, ["created a", "deleted b"]);
    // The same of what the Source itself has stated is no contradiction.
    world.work("1").await;
    world
        .announce_until(vec![deleted("a", 42), created("b", 43)], 60)
        .await;
    world.work("3").await;
    let listed = world.list(world.set, 50, vec![of("a", 10)]).await;
    assert_eq!((listed.tasks, listed.contradicted), (2, 0));
}

#[tokio::test]
async fn expiry_of_what_only_a_hub_has_stated_is_no_contradiction() {
    let world = World::with_resource("a").await;
    world.list(world.set, 12, vec![created("a", 10)]).await;
    world
        .announce_until(vec![by_hub(created("b", 21))], 40)
        .await;
    world.work("2").await;
    let listed = vec![created("a", 10), deleted("b", 25)];
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
            .complete(vec![TaskResult::Contradicted { task, is_same }])
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
    for (time, expected) in [(30, 40), (31, 31)] {
        world.announce(vec![updated("a", time)]).await;
        let claimed = world.statistics().await.synced_until;
        assert_eq!(claimed, Some(at(expected)), "{time}");
    }
}
