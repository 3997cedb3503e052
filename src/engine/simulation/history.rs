//! Histories: what the Source, the network, the operator and the process's luck do, one act after the other.

use std::time::Duration;

use proptest::prelude::*;
use resyncd_core::Limits;

use super::daemon::Filtering;
use super::network::Fate;
use super::source::{
    Boundary, ChangeLists, DumpOffer, Fault, Habits, Offered, PartForm, RESOURCES, ResourceNo,
    ServerValidators, SetNo, SimulatedDocument,
};
use super::stage::{Order, Requests};
use super::world::{Settings, World, simulate};
use crate::config::Baseline;

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Change(ResourceNo),
    Delete(ResourceNo),
    /// A resource of two sets leaves one of them.
    Leave(ResourceNo, SetNo),
    /// It changes, or is deleted, and no document lists that until [`ListLate`](Self::ListLate).
    ChangeLate(ResourceNo),
    DeleteLate(ResourceNo),
    /// Change Lists are written that list what was withheld from them.
    ListLate(SetNo),
    /// One resource changes so often within one moment.
    Burst(ResourceNo, usize),
    /// It is deleted and created again within one moment.
    Recreate(ResourceNo),
    /// All resources change within one moment.
    ChangeAll,
    DeleteAll,
    /// Of these, there may be more than a hundred.
    DeleteMore,
    Publish(SetNo, Fate),
    /// As an old draft has it: without an interval.
    PublishBare(SetNo),
    /// A framework notification: a document was published anew.
    Framework(SetNo, SimulatedDocument, Fate),
    /// Milliseconds.
    Pass(u64),
    WriteChangeLists(SetNo),
    RollOver(SetNo),
    DropOldLists(SetNo),
    WriteResourceList(SetNo),
    WriteResourceDump(SetNo),
    /// The Resource List before is published again.
    RestoreResourceList(SetNo),
    /// The Resource Dump before is published again.
    RestoreResourceDump(SetNo),
    /// The Resource Lists and the Resource Dumps are divided into so many parts from now on.
    Divide(usize),
    /// After so many more steps of the store, the process ends.
    Crash(u64),
    /// After so many more commits of a worker, one fails.
    FailCommit(u64),
    /// After so many more of its queries, one fails.
    FailQuery(u64),
    /// From now on, documents, or resources, are available or not.
    Documents(bool),
    Contents(bool),
    /// A document can't be read from now on, or can be again.
    Fail(SetNo, SimulatedDocument, Option<Fault>),
    /// What the Capability List names changes.
    Offer(SetNo, Offered),
    Order(Order),
}

/// A world, and what happens in it.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) habits: Habits,
    pub(super) settings: Settings,
    pub(super) acts: Vec<Act>,
    /// Whether the Source writes a last Resource List, even if its Change Lists list everything.
    pub(super) last_resource_list: bool,
}

/// What came of a history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) requests: Requests,
    pub(super) moment: u64,
    pub(super) changes: usize,
    pub(super) trace: u64,
}

/// The most parts of a Resource List.
pub(super) const MOST_PARTS: usize = 3;

/// How long the world goes on after the last act, in milliseconds: longer than the patience with a gap.
const REST: u64 = 3 * 3600 * 1000;

impl History {
    /// Runs it, and on until the mirror is what the Source is.
    pub(super) fn run(&self) -> Outcome {
        simulate(self.habits.clone(), self.settings, async |world| {
            world.pass(5000).await;
            world.run(&self.acts).await;
            world.settle(self.needs_resource_list(), REST).await;
            let trace = world.trace().await;
            Outcome {
                requests: world.requests(),
                moment: world.moment(),
                changes: world.stage.scene().source.changes.len(),
                trace,
            }
        })
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

impl World {
    /// Acts, each at its moment, also while the daemon waits for an answer.
    pub(super) async fn run(&mut self, acts: &[Act]) {
        let begin = self.moment();
        let mut moment = begin;
        for act in acts {
            match act {
                Act::Pass(millis) => moment += millis,
                act => {
                    let mut scene = self.stage.scene();
                    scene.timeline.push_back((moment, act.clone()));
                }
            }
        }
        self.pass(moment - begin).await;
    }
}

pub(super) fn habits() -> impl Strategy<Value = Habits> {
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
    let rarely = || prop::bool::weighted(0.3);
    let parts = prop_oneof![3 => Just(0_usize), 1 => 1..MOST_PARTS + 1];
    let part_form = prop_oneof![
        Just(PartForm::Dated),
        Just(PartForm::Undated),
        Just(PartForm::Typed),
        Just(PartForm::Pages),
    ];
    let validators = prop_oneof![
        Just(ServerValidators::Nothing),
        Just(ServerValidators::Etag),
        Just(ServerValidators::LastModified),
    ];
    let offered_first = prop_oneof![
        6 => Just(Offered::Everything),
        1 => Just(Offered::ChangeListsOnly),
        1 => Just(Offered::Nothing),
    ];
    let faulty_first = prop::option::weighted(0.2, (place(), fault()));
    let dumps = || {
        prop_oneof![
            6 => Just(DumpOffer::Absent),
            2 => Just(DumpOffer::Beside),
            1 => Just(DumpOffer::InPlace),
        ]
    };
    (
        (1..=2_usize, any::<bool>(), boundary, any::<bool>()),
        (overlap, change_lists, rarely(), often, clock_ahead),
        (parts, part_form, prop::bool::weighted(0.1), validators),
        prop::bool::weighted(0.25),
        (offered_first, faulty_first),
        (dumps(), dumps(), any::<bool>()),
    )
        .prop_map(|(first, second, third, respells, fourth, fifth)| {
            let (sets, whole_seconds, boundary, hashes) = first;
            let (overlap, change_lists, newest_first, lists_say_from, clock_ahead) = second;
            let (parts, part_form, undated, validators) = third;
            let (offered_first, faulty_first) = fourth;
            let (resource_dump, change_dump, manifest_copies) = fifth;
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
                parts,
                part_form,
                resource_dump,
                // Its packages have the changes of the Change Lists: without those there are none.
                change_dump: match change_lists {
                    ChangeLists::Absent => DumpOffer::Absent,
                    _ => change_dump,
                },
                manifest_copies,
                undated,
                respells,
                validators,
                offered_first,
                faulty_first,
                more: 0,
            }
        })
}

pub(super) fn settings(polls: impl Strategy<Value = u64>) -> impl Strategy<Value = Settings> {
    let held = prop_oneof![Just(2_usize), Just(5), Just(1024)];
    let download = prop_oneof![Just(0_u64), Just(300), Just(3000)];
    let latency = prop_oneof![3 => Just(0_u64), 1 => Just(40), 1 => Just(700)];
    let trusts_hub = prop_oneof![2 => Just(true), 1 => Just(false)];
    let baseline = prop_oneof![
        3 => Just(Baseline::Auto),
        1 => Just(Baseline::List),
        1 => Just(Baseline::Dump),
    ];
    let settings = (held, polls, download, latency, trusts_hub, baseline);
    settings.prop_map(
        |(held_notifications, polls, download, latency, trusts_hub, baseline)| Settings {
            limits: Limits {
                reorder_window: Duration::from_secs(5),
                held_notifications,
            },
            poll_interval: Duration::from_secs(polls),
            download,
            latency,
            max_delete: 0.1,
            trusts_hub,
            baseline,
            ..Settings::default()
        },
    )
}

/// What the Source does by itself.
pub(super) fn change() -> impl Strategy<Value = Act> {
    let resource = || 0..RESOURCES;
    prop_oneof![
        12 => resource().prop_map(Act::Change),
        6 => resource().prop_map(Act::Delete),
        2 => resource().prop_map(|resource| Act::Burst(resource, 10)),
        4 => resource().prop_map(Act::Recreate),
        2 => Just(Act::ChangeAll),
        1 => Just(Act::DeleteAll),
    ]
}

/// How long nothing happens: moments, seconds, and seldom longer than any wait.
pub(super) fn pass() -> impl Strategy<Value = Act> {
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
        12 => delay().prop_map(Fate::Delivered),
        4 => Just(Fate::Lost),
        4 => (delay(), delay()).prop_map(|(first, second)| Fate::Doubled(first, second)),
        2 => delay().prop_map(Fate::Coalesced),
        1 => delay().prop_map(Fate::Garbled),
    ]
}

fn place() -> impl Strategy<Value = SimulatedDocument> {
    prop_oneof![
        1 => Just(SimulatedDocument::CapabilityList),
        3 => Just(SimulatedDocument::ResourceList),
        2 => (0..3_usize).prop_map(SimulatedDocument::Part),
        1 => Just(SimulatedDocument::ChangeListIndex),
        2 => Just(SimulatedDocument::ChangeLists),
        1 => Just(SimulatedDocument::ClosedChangeLists),
        1 => Just(SimulatedDocument::ResourceDump),
        1 => Just(SimulatedDocument::ChangeDump),
        1 => Just(SimulatedDocument::Packages),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Gone),
        Just(Fault::Unavailable),
        Just(Fault::CutShort),
    ]
}

fn filtering() -> impl Strategy<Value = Filtering> {
    prop_oneof![
        2 => Just(Filtering::Nothing),
        1 => Just(Filtering::Exclude),
        1 => Just(Filtering::Include),
        1 => Just(Filtering::Select),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        2 => (0..2_usize).prop_map(Order::Poll),
        1 => Just(Order::Approve),
        1 => (0..2_usize).prop_map(Order::Verify),
        1 => filtering().prop_map(|filtering| Order::Restart { filtering }),
    ]
}

/// Everything that can happen.
pub(super) fn history(longest: usize) -> impl Strategy<Value = History> {
    let set = || 0..2_usize;
    let offered = prop_oneof![
        2 => Just(Offered::Everything),
        1 => Just(Offered::ChangeListsOnly),
        1 => Just(Offered::Nothing),
    ];
    let act = prop_oneof![
        16 => change(),
        1 => (0..RESOURCES, set()).prop_map(|(resource, set)| Act::Leave(resource, set)),
        16 => (set(), fate()).prop_map(|(set, fate)| Act::Publish(set, fate)),
        20 => pass(),
        4 => set().prop_map(Act::WriteChangeLists),
        2 => set().prop_map(Act::RollOver),
        2 => set().prop_map(Act::DropOldLists),
        2 => set().prop_map(Act::WriteResourceList),
        1 => set().prop_map(Act::WriteResourceDump),
        1 => (0..MOST_PARTS + 1).prop_map(Act::Divide),
        2 => set().prop_map(Act::PublishBare),
        2 => (set(), place(), fate()).prop_map(|(set, about, fate)| Act::Framework(set, about, fate)),
        4 => (0..60_u64).prop_map(Act::Crash),
        2 => (0..30_u64).prop_map(Act::FailCommit),
        2 => (0..60_u64).prop_map(Act::FailQuery),
        2 => any::<bool>().prop_map(Act::Documents),
        2 => any::<bool>().prop_map(Act::Contents),
        2 => (set(), place(), prop::option::of(fault()))
            .prop_map(|(set, place, fault)| Act::Fail(set, place, fault)),
        1 => (set(), offered).prop_map(|(set, offered)| Act::Offer(set, offered)),
        2 => order().prop_map(Act::Order),
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
