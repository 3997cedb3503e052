//! What only a hub has stated that is not trusted to speak for the Source, and what the Source's own lists say about it.

use ChangeKind::{Created, Deleted, Updated};
use resyncd_core::DeliveryFaultKind::Contradicted;

use super::notifications::{announce, begun, fault, stated};
use super::*;

/// How long it takes until an update is given up that the Source does not serve.
const TRIES: u64 = 150_000;

/// Changes a resource, writes the Change Lists, and reads them.
async fn list_and_poll(world: &mut World, resource: ResourceNo) {
    world.act(&Act::Change(resource));
    world.pass(10).await;
    world.act(&Act::ListLate(0));
    world.act(&poll());
    world.pass(5000).await;
}

/// A resource that only a hub has announced, and that the Source neither lists nor serves, is forgotten, and the hub's fault is
/// shown.
#[test]
fn resource_that_the_source_neither_lists_nor_serves_is_forgotten() {
    begun(habits(ChangeLists::Open), wary_settings(), async |world| {
        world.pass(2000).await;
        let at = world.now();
        world.pass(10).await;
        announce(world, &[stated(3, Created, at)]).await;
        world.pass(TRIES).await;
        assert_eq!(world.database().await.tasks.len(), 0);
        assert_eq!(fault(world).await, Some(Contradicted));
        list_and_poll(world, 0).await;
        assert_eq!(world.database().await.tasks.len(), 0);
        assert_eq!(world.status().await[0].resources, 3);
    });
}

/// What a Change List states as the hub has is not asked for again.
#[test]
fn what_a_change_list_confirms_is_not_asked_for() {
    begun(habits(ChangeLists::Open), wary_settings(), async |world| {
        world.pass(2000).await;
        let acts = [
            Act::Change(0),
            Act::Pass(10),
            Act::Delete(1),
            Act::Pass(10),
            Act::Publish(0, AT_ONCE),
            Act::Pass(5000),
        ];
        world.run(&acts).await;
        let found = [0, 1].map(|it| version(world, it));
        assert_eq!(found, [Some(2), None]);
        let before = world.requests().contents;
        list_and_poll(world, 2).await;
        assert_eq!(world.requests().contents, before + 1);
        assert_eq!(fault(world).await, None);
    });
}

/// Where a Change List does not have a deletion that a hub has stated, the Source is asked whether there is the resource by now.
#[test]
fn deletion_that_a_change_list_does_not_have_is_asked_for() {
    begun(habits(ChangeLists::Open), wary_settings(), async |world| {
        world.pass(2000).await;
        world.act(&Act::DeleteLate(1));
        let at = world.changed_at(1);
        world.pass(10).await;
        announce(world, &[stated(1, Deleted, at)]).await;
        world.pass(5000).await;
        assert_eq!(version(world, 1), None);
        world.act(&Act::ChangeLate(1));
        world.pass(5000).await;
        assert_eq!(version(world, 1), None);
        world.act(&Act::Change(0));
        world.pass(10).await;
        world.act(&Act::WriteChangeLists(0));
        world.act(&poll());
        world.pass(5000).await;
        assert_eq!(version(world, 1), Some(3));
        // It is asked once.
        let before = world.requests().contents;
        world.act(&Act::Change(0));
        world.pass(10).await;
        world.act(&Act::WriteChangeLists(0));
        world.act(&poll());
        world.pass(5000).await;
        assert_eq!(world.requests().contents, before + 1);
    });
}

/// The last entry of a Change List before the time that a hub states decides: what the list has deleted by then exists only if
/// it says so.
#[test]
fn update_after_a_listed_deletion_is_contradicted() {
    begun(habits(ChangeLists::Open), wary_settings(), async |world| {
        world.pass(2000).await;
        world.act(&Act::ChangeLate(0));
        world.pass(10).await;
        world.act(&Act::DeleteLate(0));
        world.pass(2000).await;
        let at = world.now();
        world.pass(10).await;
        announce(world, &[stated(0, Updated, at)]).await;
        world.pass(TRIES).await;
        assert_eq!(version(world, 0), Some(1));
        list_and_poll(world, 1).await;
        assert_eq!(version(world, 0), None);
    });
}

/// A Resource List that does not name what only a hub has stated contradicts the hub, and is followed; one that names it does not.
#[test]
fn resource_list_that_contradicts_the_hub_is_followed() {
    begun(
        habits(ChangeLists::Absent),
        wary_settings(),
        async |world| {
            let read = async |world: &mut World| {
                world.act(&Act::WriteResourceList(0));
                world.pass(1000).await;
                world.act(&Act::Publish(0, AT_ONCE));
                world.pass(1000).await;
                world.act(&poll());
                world.pass(5000).await;
            };
            world.act(&Act::ChangeLate(3));
            let at = world.changed_at(3);
            world.pass(10).await;
            announce(world, &[stated(3, Created, at)]).await;
            world.pass(1000).await;
            read(world).await;
            assert_eq!((version(world, 3), fault(world).await), (Some(1), None));
            world.act(&Act::Change(3));
            let at = world.changed_at(3);
            world.pass(10).await;
            announce(world, &[stated(3, Updated, at)]).await;
            world.pass(1000).await;
            world.act(&Act::DeleteLate(3));
            world.pass(1000).await;
            read(world).await;
            let found = (version(world, 3), fault(world).await);
            assert_eq!(found, (None, Some(Contradicted)));
        },
    );
}

/// A Resource List restores what only a hub has stated to be deleted. That is the hub's fault if nothing has changed since the
/// time that it states.
#[test]
fn resource_list_restores_what_a_hub_has_deleted() {
    for (recreated_after, expected) in [(1000, Some(Contradicted)), (4000, None)] {
        let habits = habits(ChangeLists::Absent);
        begun(habits, wary_settings(), async |world| {
            world.act(&Act::DeleteLate(1));
            // The hub's clock is ahead.
            let ahead = {
                let scene = world.stage.scene();
                scene.source.stamp(scene.moment + 3000)
            };
            world.pass(10).await;
            announce(world, &[stated(1, Deleted, ahead)]).await;
            world.pass(recreated_after).await;
            assert_eq!(version(world, 1), None);
            world.act(&Act::ChangeLate(1));
            world.pass(5000).await;
            world.act(&Act::WriteResourceList(0));
            world.pass(1000).await;
            world.act(&Act::Publish(0, AT_ONCE));
            world.pass(1000).await;
            world.act(&poll());
            world.pass(5000).await;
            let found = (version(world, 1), fault(world).await);
            assert_eq!(found, (Some(3), expected), "{recreated_after}");
        });
    }
}
