use super::*;

fn by_hub(change: Change) -> Change {
    Change {
        unconfirmed: true,
        ..change
    }
}

impl World {
    /// Ingests a Change List that states every change from `from` to `until`, in seconds.
    async fn change_list(&self, (from, until): (i64, i64), changes: Vec<Change>) -> BatchResult {
        let end = BatchCommit {
            complete_for: Interval::new(at(from), at(until)),
            ..end()
        };
        let batch = ChangeBatch {
            origin: Origin::ChangeList,
            ..self.batch(self.set, changes, Some(end))
        };
        self.store.apply(batch).await.unwrap()
    }

    /// A resource that the mirror has since the 10th second.
    async fn with_resource(name: &str) -> Self {
        let world = Self::new().await;
        world
            .announce(vec![with_content(created(name, 10), "1")])
            .await;
        world.work("1").await;
        world
    }
}

#[tokio::test]
async fn confirmed_changes_are_no_contradictions() {
    let world = World::with_resource("a").await;
    let update = with_content(updated("a", 20), "2");
    let deletion = deleted("b", 21);
    world
        .announce(vec![by_hub(update.clone()), by_hub(deletion.clone())])
        .await;
    world.work("2").await;
    let listed = world
        .change_list((5, 30), vec![update.clone(), deletion.clone()])
        .await;
    assert_eq!((listed.tasks, listed.contradictions.count), (0, 0));
    // A list that does not have them any more is not compared with what was confirmed.
    let listed = world.change_list((5, 30), Vec::new()).await;
    assert_eq!((listed.tasks, listed.contradictions.count), (0, 0));
}

#[tokio::test]
async fn change_that_the_list_does_not_have_is_contradicted_once() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(updated("a", 20))]).await;
    world.work("1").await;
    // Not yet covered.
    assert_eq!(
        world
            .change_list((5, 20), Vec::new())
            .await
            .contradictions
            .count,
        0
    );
    let listed = world.change_list((5, 30), Vec::new()).await;
    assert_eq!(listed.contradictions.count, 1);
    assert_eq!(listed.contradictions.first, Some(uri("a")));
    assert!(
        world.due().await.is_empty(),
        "the file is the Source's answer"
    );
    assert_eq!(
        world
            .change_list((5, 30), Vec::new())
            .await
            .contradictions
            .count,
        0
    );
    // The time of the hub hides nothing.
    world
        .announce(vec![with_content(updated("a", 15), "3")])
        .await;
    assert_eq!(world.due_names().await, ["updated a"]);
}

#[tokio::test]
async fn resource_that_only_a_hub_has_deleted_is_restored() {
    for pending in [false, true] {
        let world = World::with_resource("a").await;
        world.announce(vec![by_hub(deleted("a", 20))]).await;
        if !pending {
            world.work("").await;
            assert_eq!(world.totals(world.set).await.0, 0);
        }
        let listed = world.change_list((5, 30), Vec::new()).await;
        assert_eq!(listed.contradictions.count, 1, "{pending}");
        let expected = if pending { "updated a" } else { "created a" };
        assert_eq!(world.due_names().await, [expected]);
        assert!(!world.due().await.remove(0).unconfirmed);
        world.work("1").await;
        assert_eq!(world.totals(world.set).await.0, 1);
    }
}

/// A list that has the change at the same time, and states something else of it.
#[tokio::test]
async fn other_statement_of_the_same_change_is_contradicted_and_counts() {
    for applied in [false, true] {
        for (stated, listed) in [
            (
                with_content(updated("a", 20), "hub"),
                with_content(updated("a", 20), "source"),
            ),
            (deleted("a", 20), with_content(updated("a", 20), "source")),
            (with_content(updated("a", 20), "hub"), deleted("a", 20)),
        ] {
            let world = World::with_resource("a").await;
            world.announce(vec![by_hub(stated)]).await;
            if applied {
                world.work("hub").await;
            }
            let late = Change {
                late: true,
                ..listed.clone()
            };
            let compared = world
                .store
                .compare_late(world.set, SOURCE, [&late].into_iter());
            assert_eq!(compared.unwrap(), [LateChange::News]);
            let result = world.change_list((5, 30), vec![late]).await;
            assert_eq!(
                (result.tasks, result.contradictions.count),
                (1, 1),
                "{listed:?}"
            );
            let task = world.due().await.remove(0);
            assert_eq!((task.kind, task.unconfirmed), (listed.kind, false));
        }
    }
}

#[tokio::test]
async fn resource_that_only_a_hub_knows_is_dropped() {
    let world = World::new().await;
    world.announce(vec![by_hub(created("forged", 20))]).await;
    let task = world.due().await.remove(0);
    world.complete(vec![failed_as_absent(task)]).await;
    assert_eq!(world.statistics().await.failed, 1);
    assert_eq!(
        world
            .change_list((5, 30), Vec::new())
            .await
            .contradictions
            .count,
        1
    );
    assert_eq!(world.statistics().await.failed, 0);
    // One that stands for a change of the Source as well is requested.
    world.announce(vec![by_hub(updated("b", 20))]).await;
    let listed = world.change_list((5, 30), vec![created("b", 15)]).await;
    assert_eq!(listed.contradictions.count, 1);
    let task = world.due().await.remove(0);
    assert!(!task.unconfirmed && task.changed_at.is_none());
}

#[tokio::test]
async fn resource_list_contradicts_and_confirms_what_a_hub_has_stated() {
    let listed = |name: &str, content| Change {
        lastmod: Some(at(10)),
        ..with_content(created(name, 10), content)
    };
    let world = World::with_resource("a").await;
    world
        .announce(vec![with_content(created("b", 10), "1"), created("c", 10)])
        .await;
    world.work("1").await;
    let stated = vec![
        by_hub(deleted("a", 20)),
        by_hub(with_content(updated("b", 20), "hub")),
        by_hub(deleted("c", 20)),
    ];
    world.announce(stated).await;
    world.work("hub").await;
    let result = world
        .list(world.set, 30, vec![listed("a", "1"), listed("b", "1")])
        .await;
    assert_eq!(result.contradictions.count, 2);
    assert_eq!(world.due_names().await, ["created a", "updated b"]);
    world.work("1").await;
    let again = world
        .list(world.set, 40, vec![listed("a", "1"), listed("b", "1")])
        .await;
    assert_eq!((again.tasks, again.contradictions.count), (0, 0));
}

#[tokio::test]
async fn absence_from_a_list_confirms_a_pending_deletion_of_a_hub() {
    let world = World::with_resource("a").await;
    world.announce(vec![by_hub(deleted("a", 20))]).await;
    assert!(world.due().await.remove(0).unconfirmed);
    world.list(world.set, 30, Vec::new()).await;
    assert!(!world.due().await.remove(0).unconfirmed);
}

/// The deletion is executed only if the Source does not serve the resource.
#[tokio::test]
async fn update_of_a_hub_does_not_replace_a_deletion_of_the_source() {
    let world = World::with_resource("a").await;
    world.announce(vec![deleted("a", 20)]).await;
    assert!(!world.due().await.remove(0).unconfirmed);
    world.announce(vec![by_hub(updated("a", 25))]).await;
    let task = world.due().await.remove(0);
    assert!(task.kind == ChangeKind::Deleted && task.unconfirmed);
}

/// What the Source states of a change that was applied is compared once more: what was claimed remains claimed.
#[tokio::test]
async fn comparison_does_not_take_back_what_was_claimed() {
    let world = World::with_resource("a").await;
    world
        .announce_until(vec![by_hub(updated("a", 20))], 30)
        .await;
    world.work("2").await;
    let claimed = world.statistics().await.synced_until;
    for time in [20, 15] {
        let stated = Change {
            late: true,
            ..updated("a", time)
        };
        world.announce(vec![stated]).await;
        assert_eq!(world.due_names().await, ["updated a"], "{time}");
        assert_eq!(world.statistics().await.synced_until, claimed, "{time}");
    }
}
