//! Tasks that are called off while they are under way: what they have done to the mirror is put right.

use super::*;

/// A resource that the mirror has, and a task of it that has been taken.
async fn under_way(change: Change) -> (World, Task) {
    let world = World::new().await;
    let listed = with_content(created("a", -1), "first");
    world.list(world.set, 10, vec![listed]).await;
    world.work("first").await;
    world.tell_until(vec![change], 16).await;
    let task = world.due().await.remove(0);
    let again = with_content(created("a", -1), "first");
    world.list(world.set, 20, vec![again]).await;
    assert!(world.due().await.is_empty(), "it is called off");
    (world, task)
}

#[tokio::test]
async fn file_that_went_although_it_was_listed_again_comes_back() {
    let (world, task) = under_way(deleted("a", 15)).await;
    let removed = TaskResult::Removed { task, kept: false };
    world.complete(vec![removed]).await;
    assert_eq!(world.sums(world.set).await, (0, 0));
    let due = world.due().await;
    assert_eq!(world.due_names().await, ["created a"]);
    assert!(!due[0].live);
    assert!(
        due[0].hashes.is_empty() && due[0].length.is_none(),
        "nobody knows whether the Source has told what the mirror computes by itself"
    );
    assert_eq!(
        world.numbers().await.synced_until,
        Some(at(20)),
        "what was claimed is not taken back"
    );
    world.work("first").await;
    assert_eq!(world.sums(world.set).await, (1, 5));
    assert!(world.due().await.is_empty());
    world.list(world.set, 30, Vec::new()).await;
    assert_eq!(world.due_names().await, ["deleted a"], "it is a member");
}

#[tokio::test]
async fn bytes_that_came_although_others_were_listed_since_are_replaced() {
    let (world, task) = under_way(with_content(updated("a", 15), "second")).await;
    world.complete(vec![published(task, "second")]).await;
    assert_eq!(world.sums(world.set).await, (1, 6));
    let due = world.due().await;
    assert_eq!(world.due_names().await, ["updated a"]);
    assert_eq!((&due[0].hashes, due[0].length), (&sha256("first"), Some(5)));
    assert_eq!(due[0].live_hashes, sha256("second"));
    world.work("first").await;
    assert_eq!(world.sums(world.set).await, (1, 5));
    assert!(world.due().await.is_empty());
    let feed = world.store.feed(0, 9).await.unwrap();
    let lengths: Vec<_> = feed.iter().map(|line| line.length).collect();
    assert_eq!(lengths, [Some(5), Some(6), Some(5)]);
}

#[tokio::test]
async fn what_has_changed_nothing_is_left_alone() {
    let (world, task) = under_way(with_content(updated("a", 15), "second")).await;
    let same = Publication {
        news: false,
        ..publication(task, "first")
    };
    world.complete(vec![TaskResult::Published(same)]).await;
    assert!(world.due().await.is_empty());
}

#[tokio::test]
async fn what_came_although_it_was_deleted_goes_again() {
    let world = World::new().await;
    world.tell(vec![created("a", 10)]).await;
    world.work("first").await;
    world.tell(vec![deleted("a", 15)]).await;
    world.work("").await;
    world.tell(vec![created("a", 15)]).await;
    let task = world.due().await.remove(0);
    world.tell(vec![deleted("a", 15)]).await;
    assert!(world.due().await.is_empty(), "it is called off");
    world.complete(vec![published(task, "second")]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.work("").await;
    assert_eq!(world.sums(world.set).await, (0, 0));
}
