//! Histories: what the Source, the network and the process's luck do, one act after the other.

use std::time::Duration;

use proptest::prelude::*;
use resyncd::sync::Limits;

use super::network::Fate;
use super::source::{Boundary, ChangeLists, Habits, RESOURCES, ResourceNo, SetNo};
use super::world::{Settings, World};

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Change(ResourceNo),
    Delete(ResourceNo),
    /// One resource changes so often within one moment.
    Burst(ResourceNo, usize),
    /// It is deleted and created again within one moment.
    Recreate(ResourceNo),
    /// All resources change within one moment.
    ChangeAll,
    Publish(SetNo, Fate),
    /// As an old draft has it: without an interval.
    PublishBare(SetNo),
    /// Milliseconds.
    Pass(u64),
    WriteChangeLists(SetNo),
    RollOver(SetNo),
    DropOldLists(SetNo),
    WriteResourceList(SetNo),
    /// After so many more steps, the process ends.
    Crash(u64),
    /// From now on, documents, or contents, can be had or can't.
    Documents(bool),
    Contents(bool),
}

/// A world, and what happens in it.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) habits: Habits,
    pub(crate) settings: Settings,
    pub(crate) acts: Vec<Act>,
    /// Whether the Source writes a last Resource List, even if its Change Lists tell everything.
    pub(crate) last_resource_list: bool,
}

impl History {
    /// Lives through it, and on until everything has come to rest.
    pub(crate) fn live(&self) -> World {
        let mut world = World::new(self.habits.clone(), self.settings);
        world.pass(5000);
        for act in &self.acts {
            world.act(act);
        }
        world.heal(self.needs_resource_list(), REST);
        world
    }

    fn needs_resource_list(&self) -> bool {
        let forgets = |act: &Act| match act {
            Act::DropOldLists(_) => true,
            Act::RollOver(_) => self.habits.change_lists != ChangeLists::Index,
            _ => false,
        };
        self.last_resource_list
            || self.habits.change_lists == ChangeLists::Absent
            || !self.habits.lists_say_from
            || self.acts.iter().any(forgets)
    }
}

/// How long the world goes on after the last act, in milliseconds: longer than the patience with a gap.
const REST: u64 = 3 * 3600 * 1000;

impl World {
    pub(crate) fn act(&mut self, act: &Act) {
        let moment = self.moment;
        let last = self.source.habits.sets - 1;
        match *act {
            Act::Change(resource) => {
                self.source.change(moment, resource, false);
            }
            Act::Delete(resource) => {
                if self.source.content(resource).is_some() {
                    self.source.change(moment, resource, true);
                }
            }
            Act::Burst(resource, times) => {
                for _ in 0..times {
                    self.source.change(moment, resource, false);
                }
            }
            Act::Recreate(resource) => {
                self.source.change(moment, resource, true);
                self.source.change(moment, resource, false);
            }
            Act::ChangeAll => {
                for resource in 0..RESOURCES {
                    self.source.change(moment, resource, false);
                }
            }
            Act::Publish(set, fate) => self.publish(set.min(last), false, fate),
            Act::PublishBare(set) => self.publish(set.min(last), true, Fate::Delivered(20)),
            Act::Pass(millis) => self.pass(millis),
            Act::WriteChangeLists(set) => self.source.write_change_lists(set.min(last)),
            Act::RollOver(set) => self.source.roll_over(moment, set.min(last)),
            Act::DropOldLists(set) => self.source.drop_old_lists(set.min(last)),
            Act::WriteResourceList(set) => self.source.write_resource_list(set.min(last), moment),
            Act::Crash(after) => self.crash_at = Some(self.steps + after),
            Act::Documents(can_be_had) => self.documents_down = !can_be_had,
            Act::Contents(can_be_had) => self.contents_down = !can_be_had,
        }
    }

    /// The Source falls silent, and writes its documents a last time; the network heals.
    pub(crate) fn heal(&mut self, with_resource_list: bool, rest: u64) {
        self.pass(2000);
        (self.documents_down, self.contents_down) = (false, false);
        // Where documents tell of a moment that is not over, its last word is not known as such before there is a later
        // one: a notification of it that comes again, and very late, may be newer. So the last change has a moment of its
        // own.
        if self.source.habits.boundary != Boundary::Exact {
            self.pass(60_000);
            for resource in [0, 1, 2] {
                self.source.change(self.moment, resource, false);
            }
            self.pass(2000);
        }
        for set in 0..self.source.habits.sets {
            self.source.write_change_lists(set);
            if with_resource_list {
                self.source.write_resource_list(set, self.moment);
            }
        }
        self.pass(rest);
        self.converged();
    }
}

pub(crate) fn habits() -> impl Strategy<Value = Habits> {
    let boundary = prop_oneof![
        3 => Just(Boundary::Exact),
        1 => Just(Boundary::Eager),
        2 => Just(Boundary::Loose),
    ];
    let change_lists = prop_oneof![
        1 => Just(ChangeLists::Absent),
        2 => Just(ChangeLists::Open),
        3 => Just(ChangeLists::Index),
        2 => Just(ChangeLists::Replaced),
    ];
    let overlap = prop_oneof![3 => Just(0_i64), 1 => 1..3000_i64];
    let clock_ahead = prop_oneof![Just(0_i64), Just(-7200_i64), Just(300_i64)];
    let often = prop::bool::weighted(0.9);
    let rarely = prop::bool::weighted(0.3);
    (
        (1..=2_usize, any::<bool>(), boundary, any::<bool>()),
        (overlap, change_lists, rarely, often, clock_ahead),
    )
        .prop_map(|((sets, whole_seconds, boundary, hashes), rest)| {
            let (overlap, change_lists, newest_first, lists_say_from, clock_ahead) = rest;
            Habits {
                sets,
                whole_seconds,
                boundary,
                hashes,
                overlap,
                change_lists,
                newest_first,
                lists_say_from,
                clock_ahead,
            }
        })
}

pub(crate) fn settings(polls: impl Strategy<Value = u64>) -> impl Strategy<Value = Settings> {
    let held = prop_oneof![Just(2_usize), Just(5), Just(1024)];
    let download = prop_oneof![Just(0_u64), Just(300), Just(3000)];
    (held, polls, download).prop_map(|(held_notifications, polls, download)| Settings {
        limits: Limits {
            reorder_window: Duration::from_secs(5),
            held_notifications,
        },
        poll_interval: Duration::from_secs(polls),
        download,
    })
}

/// What the Source does by itself.
pub(crate) fn change() -> impl Strategy<Value = Act> {
    let resource = || 0..RESOURCES;
    prop_oneof![
        6 => resource().prop_map(Act::Change),
        3 => resource().prop_map(Act::Delete),
        1 => resource().prop_map(|resource| Act::Burst(resource, 10)),
        2 => resource().prop_map(Act::Recreate),
        1 => Just(Act::ChangeAll),
    ]
}

/// How long nothing happens: moments, seconds, and seldom longer than any wait.
pub(crate) fn pass() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => 1..400_u64,
        4 => 400..4000_u64,
        1 => 4000..20_000_u64,
        1 => 20_000..1_200_000_u64,
    ]
    .prop_map(Act::Pass)
}

fn fate() -> impl Strategy<Value = Fate> {
    let delay = || prop_oneof![6 => 1..200_u64, 3 => 200..6000_u64, 1 => 6000..60_000_u64];
    prop_oneof![
        6 => delay().prop_map(Fate::Delivered),
        2 => Just(Fate::Lost),
        2 => (delay(), delay()).prop_map(|(first, second)| Fate::Doubled(first, second)),
        1 => delay().prop_map(Fate::Coalesced),
    ]
}

/// Everything that can happen.
pub(crate) fn history(longest: usize) -> impl Strategy<Value = History> {
    let set = || 0..2_usize;
    let act = prop_oneof![
        8 => change(),
        8 => (set(), fate()).prop_map(|(set, fate)| Act::Publish(set, fate)),
        10 => pass(),
        2 => set().prop_map(Act::WriteChangeLists),
        1 => set().prop_map(Act::RollOver),
        1 => set().prop_map(Act::DropOldLists),
        1 => set().prop_map(Act::WriteResourceList),
        1 => set().prop_map(Act::PublishBare),
        2 => (0..40_u64).prop_map(Act::Crash),
        1 => any::<bool>().prop_map(Act::Documents),
        1 => any::<bool>().prop_map(Act::Contents),
    ];
    let polls = prop_oneof![Just(60_u64), Just(900)];
    (
        habits(),
        settings(polls),
        prop::collection::vec(act, 0..longest),
        any::<bool>(),
    )
        .prop_map(|(habits, settings, acts, last_resource_list)| History {
            habits,
            settings,
            acts,
            last_resource_list,
        })
}
