//! `synced_until` of a set: every earlier change has been applied.

use super::*;

#[tokio::test]
async fn synced_until_is_held_back_to_the_oldest_change_that_is_not_applied() {
    let world = World::new().await;
    let until = async || world.statistics().await.synced_until;
    world.announce_until(Vec::new(), 5).await;
    assert_eq!(until().await, None, "there is no baseline yet");
    world.list(world.set, 10, Vec::new()).await;
    assert_eq!(until().await, Some(at(10)));
    world
        .announce_until(vec![created("b", 15), created("a", 12)], 20)
        .await;
    assert_eq!(until().await, Some(at(12)));
    let tasks = world.due().await;
    let oldest = tasks
        .into_iter()
        .find(|task| kind_and_name(task) == "created a")
        .unwrap();
    world.complete(vec![published(oldest, "1")]).await;
    assert_eq!(until().await, Some(at(15)));
    let task = world.due().await.remove(0);
    world.complete(vec![failed(task, None)]).await;
    assert_eq!(until().await, Some(at(15)), "given up is not applied");
    world
        .store
        .retry_failed(world.set, SOURCE, world.now, None)
        .await
        .unwrap();
    world.work("1").await;
    assert_eq!(until().await, Some(at(20)));
    world.announce_until(vec![updated("a", -1)], 25).await;
    assert_eq!(until().await, None, "nobody knows how old it is");
    world.work("2").await;
    assert_eq!(until().await, Some(at(25)));
    world.announce_until(vec![updated("a", 30)], 25).await;
    assert_eq!(
        until().await,
        Some(at(25)),
        "what comes after does not move it"
    );
    world.work("2").await;
    // A task stands also for the pending one that it replaces, and for an older change that is announced late.
    world.announce_until(vec![updated("a", 31)], 34).await;
    world.announce_until(vec![updated("a", 33)], 34).await;
    assert_eq!(until().await, Some(at(31)));
    world.announce_until(vec![updated("b", 33)], 34).await;
    world.work("3").await;
    world.announce_until(vec![updated("b", 38)], 40).await;
    world.announce_until(vec![updated("b", 36)], 40).await;
    assert_eq!(until().await, Some(at(36)));
    world.announce_until(vec![updated("b", 30)], 40).await;
    assert_eq!(until().await, Some(at(36)), "older than what is here");
    world.work("4").await;
    // Sets that share a resource share its task.
    let other = begin(&world.store, "other.xml").await;
    let shared = world.batch(other, vec![updated("b", 22)], Some(end()));
    world.store.ingest(shared).await.unwrap();
    let shared = world.batch(other, vec![updated("b", 39)], Some(end()));
    world.store.ingest(shared).await.unwrap();
    assert_eq!(until().await, Some(at(39)));
    world.work("5").await;
    world.announce_until(Vec::new(), 25).await;
    let broken: Coverage = [
        Interval::before(at(25)),
        Interval::new(at(40), at(50)).unwrap(),
    ]
    .into_iter()
    .collect();
    let batch = world.batch(
        world.set,
        Vec::new(),
        Some(DocumentEnd {
            progress: Some((broken, Vec::new())),
            ..end()
        }),
    );
    world.store.ingest(batch).await.unwrap();
    assert_eq!(
        until().await,
        Some(at(25)),
        "beyond a gap nothing is proven"
    );
}

/// With times of full seconds a resource may change again within the second of the version that the mirror has.
#[tokio::test]
async fn synced_until_stops_at_a_second_that_may_have_more_changes() {
    let world = World::new().await;
    let until = async || world.statistics().await.synced_until;
    world.list(world.set, 10, Vec::new()).await;
    world
        .announce_until(vec![with_content(created("a", 11), "first")], 11)
        .await;
    world.work("first").await;
    assert_eq!(until().await, Some(at(11)));
    // A change of the next second is pending when another change of this second is announced.
    world
        .announce_until(vec![with_content(updated("a", 12), "third")], 11)
        .await;
    world
        .announce_until(vec![with_content(updated("a", 11), "second")], 12)
        .await;
    assert_eq!(until().await, Some(at(11)));
    world.work("third").await;
    assert_eq!(until().await, Some(at(12)));
}

/// A change beyond the coverage is pending when a Resource List is read that does not name its resource: what happened to the
/// resource between the two is not known.
#[tokio::test]
async fn resource_list_holds_back_for_what_is_pending_beyond_the_coverage() {
    let world = World::new().await;
    let until = async || world.statistics().await.synced_until;
    world.list(world.set, 10, Vec::new()).await;
    world.announce_until(vec![created("a", 30)], 20).await;
    assert_eq!(until().await, Some(at(20)));
    world.list(world.set, 25, Vec::new()).await;
    assert_eq!(until().await, Some(at(20)));
    world.work("1").await;
    assert_eq!(until().await, Some(at(25)));
}
