//! What an audit that repairs writes.

use super::*;
use crate::store::Adoption;

async fn repair(world: &World, changes: Vec<Change>) {
    let changes = changes
        .into_iter()
        .map(|change| (Some(world.set), change))
        .collect();
    world
        .store
        .repair(SOURCE, world.now, changes)
        .await
        .unwrap();
}

fn adoption(world: &World, change: Change, content: &str) -> Adoption {
    Adoption {
        path: plain_path(&change.uri).unwrap().to_string(),
        length: content.len() as u64,
        hashes: sha256(content),
        set: Some(world.set),
        change,
    }
}

#[tokio::test]
async fn repair_fetches_a_resource_that_the_database_has_as_current() {
    let world = World::new().await;
    let announced = || vec![with_content(updated("a", 10), "x")];
    world.announce(announced()).await;
    world.work("x").await;
    // The list states an older change than the one that the mirror has.
    let listed = with_content(updated("a", 5), "x");
    repair(&world, vec![listed, with_content(created("b", 5), "y")]).await;
    let due = world.due().await;
    let facts: Vec<_> = due
        .iter()
        .map(|task| (task.kind, task.origin, task.changed_at))
        .collect();
    let audit = Origin::Audit;
    assert_eq!(
        facts,
        [
            (ChangeKind::Updated, audit, Some(at(10))),
            (ChangeKind::Created, audit, Some(at(5))),
        ]
    );
    let status_error = world.store.task_error(SOURCE, &uri("a")).await;
    assert_eq!(status_error.unwrap().unwrap().0, "ready");
    world.work("x").await;
    let status_error = world.store.task_error(SOURCE, &uri("a")).await;
    assert_eq!(status_error.unwrap(), None);
    let feed = world.store.feed(0, 9).await.unwrap();
    assert_eq!(feed.last().unwrap().origin, "audit");
}

#[tokio::test]
async fn newer_pending_change_is_not_replaced_by_a_repair() {
    let world = World::new().await;
    let announced = ["a", "b"].map(|name| with_content(updated(name, 10), "x"));
    world.announce(announced.into()).await;
    world.work("x").await;
    world
        .announce(vec![
            with_content(updated("a", 12), "newer"),
            deleted("b", 12),
        ])
        .await;
    let listed = ["a", "b"].map(|name| with_content(updated(name, 10), "x"));
    repair(&world, listed.into()).await;
    let due = world.due().await;
    let facts: Vec<_> = due
        .iter()
        .map(|task| (task.kind, task.origin, task.changed_at))
        .collect();
    assert_eq!(
        facts,
        [
            (ChangeKind::Updated, Origin::Audit, Some(at(12))),
            (ChangeKind::Deleted, Origin::Notification, Some(at(12))),
        ]
    );
    assert_eq!(due[0].content.hashes, sha256("newer"));
}

#[tokio::test]
async fn deletion_of_a_repair_is_not_held_back() {
    let world = World::new().await;
    let names: Vec<String> = (0..150).map(|number| format!("r{number}")).collect();
    let announced = names.iter().map(|name| created(name, 10)).collect();
    world.announce(announced).await;
    while !world.due().await.is_empty() {
        world.work("x").await;
    }
    let deletions = names[..120].iter().map(|name| deleted(name, -1)).collect();
    repair(&world, deletions).await;
    while !world.due().await.is_empty() {
        world.work("x").await;
    }
    let statistics = world.store.set_statistics(world.set).await.unwrap();
    assert_eq!((statistics.resources, statistics.held_deletions), (30, 0));
}

#[tokio::test]
async fn correct_file_is_adopted() {
    let world = World::new().await;
    world
        .announce(vec![with_content(updated("old", 3), "old")])
        .await;
    world.work("old").await;
    let adoptions = vec![
        adoption(&world, updated("new", 5), "new one"),
        adoption(&world, updated("old", 5), "longer"),
        // Its path belongs to another resource.
        Adoption {
            path: "example.org/old".to_owned(),
            ..adoption(&world, updated("other", 5), "x")
        },
    ];
    let adopted = world.store.adopt(SOURCE, world.now, adoptions).await;
    assert_eq!(
        adopted.unwrap(),
        [uri("new").to_string(), uri("old").to_string()]
    );
    let statistics = world.store.set_statistics(world.set).await.unwrap();
    assert_eq!((statistics.resources, statistics.bytes), (2, 13));
    assert!(world.due().await.is_empty());
    let view = world.store.resource(&uri("new")).await.unwrap().unwrap();
    assert_eq!(view.path.as_deref(), Some("example.org/new"));
    assert_eq!(view.changed_at, Some(at(5)));
    // It is known now: a list that names it again requires no download.
    world
        .announce(vec![with_content(updated("new", 5), "new one")])
        .await;
    assert!(world.due().await.is_empty());
}

#[tokio::test]
async fn repair_hides_no_list_that_was_read_while_it_was_in_progress() {
    let world = World::new().await;
    repair(&world, vec![created("a", 10)]).await;
    let started = world.due().await;
    world.announce(vec![created("a", 12)]).await;
    world.list(world.set, 20, Vec::new()).await;
    let results = started.into_iter().map(|task| published(task, "x"));
    world.complete(results.collect()).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
}

#[tokio::test]
async fn adopted_file_of_a_deleted_resource_is_of_the_set_that_has_it() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    world.announce_in(other, vec![created("a", 10)]).await;
    world.work("x").await;
    world.announce_in(other, vec![deleted("a", 12)]).await;
    world.work("x").await;
    let adopted = vec![adoption(&world, with_content(created("a", 14), "x"), "x")];
    let (store, now) = (&world.store, world.now);
    store.adopt(SOURCE, now, adopted).await.unwrap();
    world.list(world.set, 20, Vec::new()).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
}

/// A list of another set replaces the task of the repair, and ends: the set of the file does not name the resource.
#[tokio::test]
async fn file_of_a_repair_is_removed_if_no_list_names_it_at_its_end() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    world.list(world.set, 10, vec![created("a", 5)]).await;
    world.announce(vec![deleted("a", 12)]).await;
    world.work("").await;
    repair(&world, vec![created("a", 14)]).await;
    let started = world.due().await;
    world.list(other, 16, vec![created("a", 5)]).await;
    world.list(other, 17, Vec::new()).await;
    let results = started.into_iter().map(|task| published(task, "x"));
    world.complete(results.collect()).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
}
