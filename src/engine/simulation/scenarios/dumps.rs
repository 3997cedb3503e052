//! Resource Dumps and Change Dumps: which one is read, what it proves, and what is read in its place.

use super::super::source::DumpOffer;
use super::*;

/// Only snapshots: no document lists changes.
pub(super) fn with_resource_dump(resource_dump: DumpOffer) -> Habits {
    Habits {
        resource_dump,
        ..habits(ChangeLists::Absent)
    }
}

/// The Change Dump and no Change List.
fn with_change_dump(change_lists: ChangeLists) -> Habits {
    Habits {
        change_dump: DumpOffer::InPlace,
        ..habits(change_lists)
    }
}

pub(super) fn files(world: &World) -> Vec<(ResourceNo, u32)> {
    let scene = world.stage.scene();
    scene
        .files
        .iter()
        .map(|(&no, &version)| (no, version))
        .collect()
}

/// A change whose notification is lost, what happens then, and a change that is announced: the gap is between them.
fn around_a_gap(meanwhile: &[Act]) -> Vec<Act> {
    let mut acts = vec![
        Act::Change(0),
        Act::Pass(10),
        Act::Publish(0, Fate::Lost),
        Act::Pass(1000),
    ];
    acts.extend_from_slice(meanwhile);
    acts.extend([
        Act::Change(1),
        Act::Pass(10),
        Act::WriteChangeLists(0),
        Act::Publish(0, AT_ONCE),
        Act::Pass(10_000),
    ]);
    acts
}

/// The bytes come out of the package, and no resource is requested by itself; with a copy of the manifest likewise, because most of the
/// package is needed.
#[test]
fn baseline_is_made_from_the_resource_dump() {
    for manifest_copies in [false, true] {
        for parts in [0, 3] {
            let habits = Habits {
                manifest_copies,
                parts,
                ..with_resource_dump(DumpOffer::Beside)
            };
            let (found, requests) =
                run_and(habits, &[], async |world| (files(world), world.requests()));
            assert_eq!(found, [(0, 1), (1, 1), (2, 1)], "{parts} {manifest_copies}");
            assert_eq!(requests.contents, 0, "{parts} {manifest_copies}");
        }
    }
}

/// A Resource List that is newer than the dump is read in the same poll, and what it proves absent is deleted.
#[test]
fn resource_list_is_read_after_an_older_dump() {
    let acts = [Act::Change(0), Act::Delete(1), Act::WriteResourceList(0)];
    let found = simulate(
        with_resource_dump(DumpOffer::Beside),
        settings(),
        async |world| {
            // Before the daemon has read anything.
            world.stage.set_moment(world.moment() + 1000);
            acts.iter().for_each(|act| world.act(act));
            world.pass(20_000).await;
            (files(world), world.requests().packages)
        },
    );
    assert_eq!(found, (vec![(0, 2), (2, 1)], 1));
}

/// A dump that can't be read delays nothing where there is a Resource List.
#[test]
fn resource_list_is_read_in_place_of_a_dump_that_cannot_be() {
    for place in [SimulatedDocument::ResourceDump, SimulatedDocument::Packages] {
        for fault in [Fault::Gone, Fault::Unavailable, Fault::CutShort] {
            let habits = Habits {
                faulty_first: Some((place, fault)),
                ..with_resource_dump(DumpOffer::Beside)
            };
            let found = run_and(habits, &[], async |world| files(world));
            assert_eq!(found, [(0, 1), (1, 1), (2, 1)], "{place:?} {fault:?}");
        }
    }
}

/// Where there is no Resource List, a dump that can't be read is a failure, and it is read once it is there.
#[test]
fn dump_that_cannot_be_read_is_read_later() {
    for place in [SimulatedDocument::ResourceDump, SimulatedDocument::Packages] {
        for fault in [Fault::Gone, Fault::Unavailable, Fault::CutShort] {
            let habits = Habits {
                faulty_first: Some((place, fault)),
                ..with_resource_dump(DumpOffer::InPlace)
            };
            let (before, after) = run_and(habits, &[], async |world| {
                let before = (files(world).len(), errors(world).await[0].is_some());
                world.act(&Act::Fail(0, place, None));
                world.pass(900_000).await;
                (
                    before,
                    (files(world).len(), errors(world).await[0].is_some()),
                )
            });
            let context = format!("{place:?} {fault:?}");
            assert_eq!((before, after), ((0, true), (3, false)), "{context}");
        }
    }
}

/// Where nothing else states what there is, a later dump is read at the next poll: what it has is stored, what it does not have is
/// deleted. An unchanged one is not read again.
#[test]
fn later_dump_is_followed_where_there_is_no_list() {
    for manifest_copies in [false, true] {
        let habits = Habits {
            manifest_copies,
            ..with_resource_dump(DumpOffer::InPlace)
        };
        let acts = [
            Act::Pass(10_000),
            Act::Change(0),
            Act::Delete(1),
            Act::WriteResourceDump(0),
            Act::Pass(900_000),
        ];
        let (found, again) = run_and(habits, &acts, async |world| {
            let found = files(world);
            let before = world.requests().documents;
            world.pass(900_000).await;
            (found, world.requests().documents - before)
        });
        assert_eq!(found, [(0, 2), (2, 1)], "{manifest_copies}");
        // The Capability List and the dump.
        assert_eq!(again, 2, "{manifest_copies}");
    }
}

/// A dump whose packages are missing proves no absence.
#[test]
fn dump_whose_packages_are_missing_deletes_nothing() {
    let habits = with_resource_dump(DumpOffer::InPlace);
    let acts = [
        Act::Pass(10_000),
        Act::Fail(0, SimulatedDocument::Packages, Some(Fault::Gone)),
        Act::Delete(1),
        Act::WriteResourceDump(0),
        Act::Pass(900_000),
    ];
    let (found, errors) = run_and(habits, &acts, async |world| {
        (files(world), errors(world).await)
    });
    assert_eq!(found, [(0, 1), (1, 1), (2, 1)]);
    assert!(errors[0].is_some());
}

/// The Resource List has become an older one: the dump, which is newer, is read in its place.
#[test]
fn newer_dump_is_read_in_place_of_an_older_list() {
    let acts = [
        Act::Pass(10_000),
        Act::Change(3),
        Act::WriteResourceList(0),
        poll(),
        Act::Pass(5000),
        Act::Change(0),
        Act::Pass(1000),
        Act::WriteResourceDump(0),
        Act::RestoreResourceList(0),
        poll(),
        Act::Pass(5000),
    ];
    let (file, errors) = run_and(
        with_resource_dump(DumpOffer::Beside),
        &acts,
        async |world| (version(world, 0), errors(world).await),
    );
    assert_eq!(file, Some(2));
    // The list is reported all the same.
    assert_eq!(errors, [Some("older-resource-list".to_owned())]);
}

/// A dump that is older than what was read last is not read, and reported.
#[test]
fn older_dump_is_reported() {
    let habits = with_resource_dump(DumpOffer::InPlace);
    let acts = [
        Act::Pass(10_000),
        Act::Change(3),
        Act::WriteResourceDump(0),
        poll(),
        Act::Pass(5000),
        Act::RestoreResourceDump(0),
        poll(),
        Act::Pass(5000),
    ];
    let (file, errors) = run_and(habits, &acts, async |world| {
        (version(world, 3), errors(world).await)
    });
    assert_eq!(file, Some(1));
    assert_eq!(errors, [Some("older-resource-list".to_owned())]);
}

/// A notification is lost: the Change Dump has the change and its bytes.
#[test]
fn gap_is_filled_from_the_change_dump() {
    let acts = [
        Act::Change(0),
        Act::Delete(1),
        Act::Pass(10),
        Act::Publish(0, Fate::Lost),
        Act::Pass(1000),
        Act::Delete(2),
        Act::Pass(10),
        Act::WriteChangeLists(0),
        Act::Publish(0, AT_ONCE),
        Act::Pass(6000),
    ];
    for change_lists in [ChangeLists::Open, ChangeLists::Index] {
        let (found, open, contents) =
            run_and(with_change_dump(change_lists), &acts, async |world| {
                (files(world), gaps(world).await, world.requests().contents)
            });
        let expected = vec![(0, 2)];
        // Three for the baseline.
        assert_eq!(
            (found, open, contents),
            (expected, 0, 3),
            "{change_lists:?}"
        );
    }
}

/// Where Change Lists don't reach back to a gap, the Change Dump is read, too: the list of the time of the gap is replaced and gone.
#[test]
fn gap_before_the_change_lists_is_filled_from_the_change_dump() {
    for is_gone in [false, true] {
        let habits = Habits {
            change_dump: DumpOffer::Beside,
            ..habits(ChangeLists::Replaced)
        };
        let fault = is_gone.then_some(Fault::Gone);
        let acts = around_a_gap(&[
            Act::RollOver(0),
            Act::Fail(0, SimulatedDocument::ClosedChangeLists, fault),
        ]);
        let (found, open, requests) = run_and(habits, &acts, async |world| {
            (files(world), gaps(world).await, world.requests())
        });
        assert_eq!((found, open), (vec![(0, 2), (1, 2), (2, 1)], 0));
        assert_eq!(requests.packages > 0, is_gone, "{requests:?}");
    }
}

/// A package that does not state where it begins begins where the one before it ends.
#[test]
fn package_without_a_beginning_follows_the_one_before_it() {
    let habits = Habits {
        lists_say_from: false,
        ..with_change_dump(ChangeLists::Index)
    };
    let mut acts = vec![
        Act::RollOver(0),
        poll(),
        Act::Pass(1000),
        // It would close the gap.
        Act::Fail(0, SimulatedDocument::ResourceList, Some(Fault::Unavailable)),
        Act::Publish(0, AT_ONCE),
        Act::Pass(1000),
    ];
    acts.extend(around_a_gap(&[Act::RollOver(0)]));
    let (found, open) = run_and(habits, &acts, async |world| {
        (files(world), gaps(world).await)
    });
    assert_eq!((found, open), (vec![(0, 2), (1, 2), (2, 1)], 0));
}

/// Where the Change Lists prove enough, no package is downloaded.
#[test]
fn change_dump_beside_change_lists_is_not_read() {
    let habits = Habits {
        change_dump: DumpOffer::Beside,
        ..habits(ChangeLists::Index)
    };
    let acts = around_a_gap(&[]);
    let (found, requests) = run_and(habits, &acts, async |world| {
        (files(world), world.requests())
    });
    let expected = vec![(0, 2), (1, 2), (2, 1)];
    assert_eq!((found, requests.packages), (expected, 0));
}

/// A package that can't be read closes no gap; once it can be read, it does.
#[test]
fn package_that_cannot_be_read_closes_no_gap() {
    for fault in [Fault::Gone, Fault::Unavailable, Fault::CutShort] {
        let place = SimulatedDocument::Packages;
        let acts = [
            Act::Change(0),
            Act::Pass(10),
            Act::RollOver(0),
            Act::Publish(0, Fate::Lost),
            Act::Pass(1000),
            Act::Change(1),
            Act::Pass(10),
            Act::WriteChangeLists(0),
            Act::Fail(0, place, Some(fault)),
            // It would close the gap.
            Act::Fail(0, SimulatedDocument::ResourceList, Some(Fault::Unavailable)),
            Act::Publish(0, AT_ONCE),
            Act::Pass(10_000),
        ];
        let (before, after) = run_and(with_change_dump(ChangeLists::Index), &acts, async |world| {
            let before = (version(world, 0), gaps(world).await);
            world.act(&Act::Fail(0, place, None));
            world.pass(900_000).await;
            (before, (version(world, 0), gaps(world).await))
        });
        assert_eq!((before, after), ((Some(1), 1), (Some(2), 0)), "{fault:?}");
    }
}

/// Packages that were read before the process ended are not downloaded again.
#[test]
fn baseline_from_a_dump_goes_on_after_the_end_of_the_process() {
    let habits = Habits {
        parts: 3,
        ..with_resource_dump(DumpOffer::InPlace)
    };
    let mut crashes = 0;
    for step in 0..40 {
        let requests = simulate(habits.clone(), settings(), async |world| {
            world.act(&Act::Crash(step));
            world.pass(30_000).await;
            assert_eq!(files(world), [(0, 1), (1, 1), (2, 1)], "{step}");
            world.requests()
        });
        // The one that was in progress is.
        let most = 3 + requests.crashes;
        assert!(requests.packages <= most, "{step}: {requests:?}");
        crashes += requests.crashes;
    }
    assert!(crashes > 20, "{crashes}");
}

/// The process ends at each third step of a baseline from a dump, and of a gap that a Change Dump fills.
#[test]
fn dumps_are_read_wherever_the_process_ends() {
    let habits = Habits {
        resource_dump: DumpOffer::Beside,
        parts: 2,
        ..with_change_dump(ChangeLists::Index)
    };
    let acts = [
        Act::Pass(3000),
        Act::Change(0),
        Act::Delete(1),
        Act::Pass(10),
        Act::Publish(0, Fate::Lost),
        Act::RollOver(0),
        Act::Pass(1000),
        Act::WriteChangeLists(0),
        Act::Publish(0, AT_ONCE),
        Act::Pass(60_000),
    ];
    // Until the process ends no more.
    for step in (0..).step_by(3) {
        let crashes = simulate(habits.clone(), settings(), async |world| {
            world.act(&Act::Crash(step));
            world.run(&acts).await;
            let crashes = world.requests().crashes;
            world.settle(true, 3 * HOUR).await;
            crashes
        });
        if crashes == 0 {
            assert!(step > 60, "{step}");
            return;
        }
    }
}

/// Only a hub has stated the newer change when the mirror got it from the Source. The Change Dump has the older one, too: its package states
/// what the resource was then, and not what the Source has now.
#[test]
fn older_package_does_not_undo_what_the_source_has_answered() {
    let habits = Habits {
        hashes: false,
        lists_say_from: false,
        ..with_change_dump(ChangeLists::Index)
    };
    let acts = [
        Act::Change(0),
        Act::Pass(1),
        Act::RollOver(0),
        Act::Change(0),
        Act::Pass(1),
        Act::Publish(0, AT_ONCE),
        Act::Pass(1000),
        poll(),
        Act::Pass(10_000),
    ];
    run_with(habits, wary_settings(), &acts);
}

/// A query that fails while a dump is read ends the poll, which is repeated.
#[test]
fn query_that_fails_while_a_dump_is_read_is_repeated() {
    for (manifest_copies, dumps) in [(false, DumpOffer::InPlace), (true, DumpOffer::Beside)] {
        for queries in 0..30 {
            let habits = Habits {
                manifest_copies,
                resource_dump: dumps,
                ..with_change_dump(ChangeLists::Open)
            };
            let acts = [
                Act::Change(0),
                Act::FailQuery(queries),
                Act::WriteChangeLists(0),
                Act::WriteResourceDump(0),
                poll(),
                Act::Pass(10_000),
            ];
            let found = run_and(habits, &acts, async |world| files(world));
            assert_eq!(found, [(0, 2), (1, 1), (2, 1)], "{dumps:?} {queries}");
        }
    }
}
