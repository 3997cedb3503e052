//! Runs that end by themselves: each set is polled once.

use super::super::daemon::NAME;
use super::*;

/// A Source whose only Change List begins after its Resource List: what has happened between them is a gap, and only another Resource List
/// may close it.
const BEGINS_LATE: [Act; 5] = [
    Act::Pass(1000),
    Act::Change(0),
    Act::Pass(1000),
    Act::RollOver(0),
    Act::Pass(1000),
];

/// The Resource List can't be read at first.
fn without_list() -> Habits {
    Habits {
        faulty_first: Some((SimulatedDocument::ResourceList, Fault::Unavailable)),
        ..habits(ChangeLists::Open)
    }
}

/// It can be read from now on.
fn repair_list(world: &mut World) {
    world.act(&Act::Fail(0, SimulatedDocument::ResourceList, None));
}

async fn was_read(world: &World) -> bool {
    world.store().sets(NAME).await.unwrap()[0].was_read
}

/// The daemon would wait for a Change List that reaches over a gap; a run that ends before reads the Resource List.
#[test]
fn gap_is_closed_by_the_resource_list() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        world.pass(5000).await;
        world.run(&BEGINS_LATE).await;
        world.act(&Act::WriteResourceList(0));
        world.run_once().await;
        // The change is being fetched.
        let database = world.database().await;
        assert_eq!((gaps(world).await, database.tasks.len()), (0, 1));
    });
}

/// A run that makes the baseline has read the Resource List already, and does not request it twice.
#[test]
fn baseline_is_not_followed_by_another_reading_of_the_resource_list() {
    simulate(without_list(), settings(), async |world| {
        world.pass(5000).await;
        world.run(&BEGINS_LATE).await;
        repair_list(world);
        let before = world.requests().documents;
        world.run_once().await;
        // The Capability List, the Resource List and the Change List.
        assert_eq!(world.requests().documents - before, 3);
        assert_eq!(gaps(world).await, 1);
    });
}

/// A set counts as read once a run has read all that states what it has.
#[test]
fn set_counts_as_read_after_a_complete_run() {
    simulate(without_list(), settings(), async |world| {
        world.pass(5000).await;
        world.run_once().await;
        assert!(!was_read(world).await);
        repair_list(world);
        world.run_once().await;
        assert!(was_read(world).await);
    });
}
