//! Histories that once ended badly, told in short.

use std::time::Duration;

use resyncd::sync::Limits;

use super::history::{Act, History};
use super::network::Fate;
use super::source::{Boundary, ChangeLists, Habits};
use super::world::{Settings, World};

fn history(habits: Habits, acts: Vec<Act>) -> History {
    let settings = Settings {
        limits: Limits {
            reorder_window: Duration::from_secs(5),
            held_notifications: 2,
        },
        poll_interval: Duration::from_secs(900),
        download: 300,
    };
    History {
        habits,
        settings,
        acts,
        last_resource_list: false,
    }
}

fn habits(change_lists: ChangeLists) -> Habits {
    Habits {
        sets: 1,
        whole_seconds: false,
        boundary: Boundary::Exact,
        hashes: true,
        overlap: 0,
        change_lists,
        newest_first: false,
        lists_say_from: true,
        clock_ahead: 0,
    }
}

const AT_ONCE: Fate = Fate::Delivered(1);

/// The later change replaces the task of the earlier one; neither is applied.
#[test]
fn replaced_task_holds_back_what_is_claimed() {
    let twice = vec![
        Act::Contents(false),
        Act::Change(0),
        Act::Pass(1000),
        Act::Publish(0, AT_ONCE),
        Act::Pass(1000),
        Act::Change(0),
        Act::Pass(1000),
        Act::Publish(0, AT_ONCE),
        Act::Pass(1000),
    ];
    history(habits(ChangeLists::Open), twice).live();
}

/// What is absent from a Resource List was deleted at some time before the list, not at its time.
#[test]
fn absence_holds_back_what_is_claimed_to_the_list_before() {
    let deleted = vec![
        Act::Delete(0),
        Act::Pass(60_000),
        Act::WriteResourceList(0),
        Act::Pass(900_000),
    ];
    history(habits(ChangeLists::Absent), deleted).live();
}

#[test]
fn newest_first_list_keeps_the_order_within_one_moment() {
    let habits = Habits {
        newest_first: true,
        ..habits(ChangeLists::Open)
    };
    let acts = vec![
        Act::Change(1),
        Act::Pass(10),
        Act::Burst(0, 10),
        Act::Recreate(2),
        Act::WriteChangeLists(0),
        Act::Pass(900_000),
    ];
    let world = history(habits, acts).live();
    assert_eq!(world.source.content(2), Some(3));
}

/// The Source has begun its only Change List anew, and nothing has changed since.
#[test]
fn late_change_list_without_entries_is_a_gap() {
    let acts = [
        Act::Change(0),
        Act::Publish(0, Fate::Lost),
        Act::Pass(1000),
        Act::RollOver(0),
    ];
    let History {
        habits, settings, ..
    } = history(habits(ChangeLists::Open), Vec::new());
    let mut world = World::new(habits, settings);
    world.pass(5000);
    acts.iter().for_each(|act| world.act(act));
    world.pass(900_000);
    assert_eq!(world.disk.sets[0].gaps.len(), 1);
    world.heal(true, 3_600_000);
    assert!(world.disk.sets[0].gaps.is_empty());
}

/// A list that was closed within a second is the only one to tell of the rest of that second.
#[test]
fn closed_list_is_read_although_notifications_cover_it() {
    let habits = Habits {
        whole_seconds: true,
        boundary: Boundary::Loose,
        ..habits(ChangeLists::Index)
    };
    let acts = vec![
        Act::Publish(0, AT_ONCE),
        Act::Pass(10),
        Act::Change(3),
        Act::Publish(0, Fate::Lost),
        Act::RollOver(0),
        Act::Crash(0),
        Act::Pass(1000),
        Act::Publish(0, AT_ONCE),
        Act::Pass(1000),
    ];
    history(habits, acts).live();
}

/// What was added to a Change List before another one took its place is had from it, also by a process that was not there.
#[test]
fn list_that_is_replaced_is_read_to_its_end() {
    for crash in [false, true] {
        let mut acts = vec![
            Act::Change(1),
            Act::WriteChangeLists(0),
            Act::Pass(900_000),
            Act::Change(2),
            Act::RollOver(0),
            Act::Change(3),
            Act::WriteChangeLists(0),
        ];
        if crash {
            acts.push(Act::Crash(0));
        }
        acts.push(Act::Pass(900_000));
        let History {
            habits, settings, ..
        } = history(habits(ChangeLists::Replaced), Vec::new());
        let mut world = World::new(habits, settings);
        world.pass(5000);
        acts.iter().for_each(|act| world.act(act));
        assert!(world.disk.sets[0].gaps.is_empty(), "{crash}");
        world.heal(false, 3_600_000);
    }
}

/// A moment's last word is not taken back by a late notification of the same moment.
#[test]
fn late_deletion_does_not_undo_a_creation_of_the_same_moment() {
    let habits = Habits {
        boundary: Boundary::Eager,
        ..habits(ChangeLists::Open)
    };
    let acts = vec![
        Act::Pass(10),
        Act::Publish(0, AT_ONCE),
        Act::Delete(0),
        Act::Publish(0, Fate::Doubled(2, 20_000)),
        Act::Change(0),
        Act::Pass(1000),
        Act::Publish(0, AT_ONCE),
        Act::Pass(25_000),
    ];
    let world = history(habits, acts).live();
    assert!(world.disk.files.contains_key(&0));
}

/// Thousands of early notifications are two that are held, and gaps.
#[test]
fn held_flood_becomes_a_gap() {
    let mut acts = Vec::new();
    for _ in 0..200 {
        acts.extend([
            Act::Change(0),
            Act::Pass(5),
            Act::Publish(0, Fate::Lost),
            Act::Change(1),
            Act::Pass(5),
            Act::Publish(0, Fate::Delivered(4000)),
        ]);
    }
    acts.push(Act::Pass(10_000));
    let world = history(habits(ChangeLists::Open), acts).live();
    assert!(world.requests.gaps > 0);
}

/// Sets that share a resource share its task: what one of them claims waits for it, whoever has told of it.
#[test]
fn shared_task_holds_back_every_set() {
    let habits = Habits {
        sets: 2,
        ..habits(ChangeLists::Open)
    };
    let acts = vec![
        Act::Contents(false),
        Act::Change(2),
        Act::Pass(1000),
        Act::Publish(0, AT_ONCE),
        Act::Pass(10),
        Act::Publish(1, AT_ONCE),
        Act::Pass(1000),
    ];
    history(habits, acts).live();
}
