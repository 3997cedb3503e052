//! Histories that once failed, in short, and those that one decision depends on.

use std::collections::BTreeMap;
use std::time::Duration;

use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::Limits;

use super::daemon::Filtering;
use super::history::{Act, History};
use super::network::Fate;
use super::source::{
    Boundary, ChangeLists, DumpOffer, Fault, Habits, Offered, PartForm, RESOURCES, ResourceNo,
    ServerValidators, SimulatedDocument,
};
use super::stage::Order;
use super::world::{Settings, World, simulate};

mod change_dumps;
mod change_lists;
mod change_sets;
mod cross_checks;
mod draft_deletions;
mod dump_documents;
mod dumps;
mod entries;
mod failures;
mod linked;
mod notifications;
mod one_shot;
mod polling;
mod reports;
mod resource_dumps;
mod resource_lists;
mod spellings;

const PART_FORMS: [PartForm; 3] = [PartForm::Dated, PartForm::Undated, PartForm::Pages];
const AT_ONCE: Fate = Fate::Delivered(1);
const HOUR: u64 = 3_600_000;

fn settings() -> Settings {
    let default = Settings::default();
    Settings {
        limits: Limits {
            held_notifications: 2,
            ..default.limits
        },
        ..default
    }
}

fn habits(change_lists: ChangeLists) -> Habits {
    Habits {
        change_lists,
        ..Habits::default()
    }
}

/// Without trust in the hub.
fn wary_settings() -> Settings {
    Settings {
        trusts_hub: false,
        ..settings()
    }
}

/// Runs a history to its end.
fn run(habits: Habits, acts: &[Act]) {
    run_with(habits, settings(), acts);
}

fn run_with(habits: Habits, settings: Settings, acts: &[Act]) {
    let history = History {
        habits,
        settings,
        acts: acts.to_vec(),
        last_resource_list: false,
    };
    history.run();
}

/// Runs a history, passes the world to `look`, and continues until the mirror equals the Source.
fn run_and<T>(habits: Habits, acts: &[Act], look: impl AsyncFnOnce(&mut World) -> T) -> T {
    simulate(habits, settings(), async |world| {
        world.pass(5000).await;
        world.run(acts).await;
        let found = look(world).await;
        world.settle(true, 3 * HOUR).await;
        found
    })
}

/// As [`run_and`]: the version of a resource's file after the last act.
fn version_after(habits: Habits, acts: &[Act], resource: ResourceNo) -> Option<u32> {
    run_and(habits, acts, async |world| version(world, resource))
}

/// The version of a resource's file; `None` if there is no file.
fn version(world: &World, resource: ResourceNo) -> Option<u32> {
    world.stage.scene().files.get(&resource).copied()
}

/// The versions of the files of the resources that exist at first.
fn versions(world: &World) -> [Option<u32>; 3] {
    [0, 1, 2].map(|resource| version(world, resource))
}

fn poll() -> Act {
    Act::Order(Order::Poll(0))
}

/// Polls the first set, and lets what is found be fetched.
async fn poll_now(world: &mut World) {
    world.act(&poll());
    world.pass(5000).await;
}

/// Up to when the first set claims to be in sync.
async fn claim(world: &World) -> Option<SourceTime> {
    world.database().await.sets[0].synced_until
}

/// The codes of the notices of the first set, and how often each was noted.
async fn notices(world: &World) -> Vec<(String, u64)> {
    let set = world.status().await.remove(0);
    let notices = set.notices.into_iter();
    notices.map(|notice| (notice.code, notice.count)).collect()
}

async fn codes_of_notices(world: &World) -> Vec<String> {
    let notices = notices(world).await.into_iter();
    notices.map(|(code, _)| code).collect()
}

async fn has_notice(world: &World, code: &str) -> bool {
    codes_of_notices(world).await.iter().any(|it| it == code)
}

async fn gaps(world: &World) -> usize {
    world.database().await.sets[0].gaps.len()
}

/// The codes of what the status reports of each set.
async fn errors(world: &World) -> Vec<Option<String>> {
    let status = world.status().await;
    let errors = status.into_iter().map(|set| set.error);
    errors.map(|error| error.map(|error| error.code)).collect()
}

/// One baseline, one notification, and the end of the process at each step.
#[test]
fn notification_is_applied_wherever_the_process_ends() {
    for step in 0..40 {
        let acts = [
            Act::Change(1),
            Act::Pass(1000),
            Act::Crash(step),
            Act::Publish(0, AT_ONCE),
            Act::Pass(60_000),
        ];
        run(Habits::default(), &acts);
    }
}

/// The later change replaces the task of the earlier one; neither is applied.
#[test]
fn replaced_task_holds_back_what_is_claimed() {
    let twice = [
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
    run(habits(ChangeLists::Open), &twice);
}

/// What is absent from a Resource List was deleted at some time before the list, not at its time.
#[test]
fn absence_holds_back_what_is_claimed_to_the_list_before() {
    let deleted = [
        Act::Delete(0),
        Act::Pass(60_000),
        Act::WriteResourceList(0),
        Act::Pass(900_000),
    ];
    run(habits(ChangeLists::Absent), &deleted);
}

#[test]
fn newest_first_list_keeps_the_order_within_one_moment() {
    let habits = Habits {
        newest_first: true,
        ..habits(ChangeLists::Open)
    };
    let acts = [
        Act::Change(1),
        Act::Pass(10),
        Act::Burst(0, 10),
        Act::Recreate(2),
        Act::WriteChangeLists(0),
        Act::Pass(900_000),
    ];
    let content = run_and(habits, &acts, async |world| {
        world.stage.scene().source.content(2)
    });
    assert_eq!(content, Some(3));
}

/// The Source has begun its only Change List anew, and nothing has changed since.
#[test]
fn late_change_list_without_entries_is_a_gap() {
    let acts = [
        Act::Change(0),
        Act::Publish(0, Fate::Lost),
        Act::Pass(1000),
        Act::RollOver(0),
        Act::Pass(900_000),
    ];
    let found = run_and(habits(ChangeLists::Open), &acts, async |world| {
        gaps(world).await
    });
    assert_eq!(found, 1);
}

/// A list that was closed within a second is the only one to list the rest of that second.
#[test]
fn closed_list_is_read_although_notifications_cover_it() {
    let habits = Habits {
        whole_seconds: true,
        boundary: Boundary::Loose,
        ..habits(ChangeLists::Index)
    };
    let acts = [
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
    run(habits, &acts);
}

/// What was added to a Change List before another one took its place is read from it, also by a new process.
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
        acts.push(Act::Pass(905_000));
        let (found, unsettled) = run_and(habits(ChangeLists::Replaced), &acts, async |world| {
            // Before there is another Resource List.
            (gaps(world).await, world.unsettled(false).await)
        });
        assert_eq!((found, unsettled), (0, None), "{crash}");
    }
}

/// After a lost notification, the next one has no interval, and states the last change of a burst within one second.
#[test]
fn burst_is_read_to_its_last_change() {
    let history = History {
        habits: Habits {
            whole_seconds: true,
            ..habits(ChangeLists::Open)
        },
        settings: Settings {
            poll_interval: Duration::from_secs(60),
            download: 0,
            ..settings()
        },
        acts: vec![
            Act::Pass(72),
            Act::Publish(0, Fate::Lost),
            Act::Pass(160),
            Act::Burst(0, 10),
            Act::WriteChangeLists(0),
            Act::PublishBare(0),
        ],
        last_resource_list: false,
    };
    history.run();
}

/// A resource was fetched after its last change, but before that was announced. Without a digest nothing shows that, so that it
/// is fetched once more.
#[test]
fn change_that_is_announced_late_is_fetched_again() {
    let once = vec![
        Act::WriteChangeLists(0),
        Act::Publish(0, AT_ONCE),
        Act::WriteResourceList(0),
        Act::Pass(51),
        Act::DropOldLists(0),
        Act::RollOver(0),
        Act::Burst(0, 10),
        Act::Publish(0, Fate::Delivered(104)),
    ];
    let history = History {
        habits: Habits {
            hashes: false,
            lists_say_from: false,
            validators: ServerValidators::Nothing,
            ..habits(ChangeLists::Index)
        },
        settings: Settings {
            poll_interval: Duration::from_secs(60),
            download: 3000,
            latency: 700,
            ..settings()
        },
        acts: vec![once; 10].concat(),
        last_resource_list: false,
    };
    history.run();
}

/// The last statement of a moment is not undone by a late notification of the same moment.
#[test]
fn late_deletion_does_not_undo_a_creation_of_the_same_moment() {
    let habits = Habits {
        boundary: Boundary::Eager,
        ..habits(ChangeLists::Open)
    };
    let acts = [
        Act::Pass(10),
        Act::Publish(0, AT_ONCE),
        Act::Delete(0),
        Act::Publish(0, Fate::Doubled(2, 20_000)),
        Act::Change(0),
        Act::Pass(1000),
        Act::Publish(0, AT_ONCE),
        Act::Pass(25_000),
    ];
    let is_there = run_and(habits, &acts, async |world| {
        world.stage.scene().files.contains_key(&0)
    });
    assert!(is_there);
}

/// A Resource List has left a resource out that another set still has. A notification states its deletion at the very end of its
/// interval, and an update before that, which the list has covered: the update does not make it belong to the set again.
#[test]
fn covered_update_does_not_outlive_the_deletion_in_its_own_document() {
    let habits = Habits {
        sets: 2,
        boundary: Boundary::Eager,
        hashes: false,
        lists_say_from: false,
        validators: ServerValidators::LastModified,
        ..habits(ChangeLists::Open)
    };
    let acts = [
        Act::Change(5),
        Act::Publish(0, AT_ONCE),
        Act::Pass(401),
        Act::Crash(40),
        Act::Change(2),
        Act::Contents(false),
        Act::Change(3),
        Act::Publish(0, Fate::Delivered(29)),
        Act::Pass(2842),
        Act::Publish(0, Fate::Delivered(21_730)),
        Act::Publish(1, Fate::Delivered(91)),
        Act::ChangeAll,
        Act::Pass(88),
        Act::Recreate(5),
        Act::Publish(0, Fate::Delivered(172)),
        Act::WriteResourceList(1),
        Act::Publish(1, Fate::Delivered(5278)),
        Act::Pass(1185),
        Act::Pass(363),
        Act::Pass(3787),
    ];
    let settings = Settings {
        poll_interval: Duration::from_secs(60),
        download: 0,
        latency: 0,
        max_delete: 0.1,
        trusts_hub: true,
        ..settings()
    };
    run_with(habits, settings, &acts);
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
    let opened = run_and(habits(ChangeLists::Open), &acts, async |world| {
        world.requests().gaps
    });
    assert!(opened > 0);
}

/// Sets that share a resource share its task: what one of them claims waits for it, whichever has announced it.
#[test]
fn shared_task_holds_back_every_set() {
    let habits = Habits {
        sets: 2,
        ..habits(ChangeLists::Open)
    };
    let acts = [
        Act::Contents(false),
        Act::Change(2),
        Act::Pass(1000),
        Act::Publish(0, AT_ONCE),
        Act::Pass(10),
        Act::Publish(1, AT_ONCE),
        Act::Pass(1000),
    ];
    run(habits, &acts);
}

/// A resource that leaves one of its sets stays in the mirror, by whichever document of that set this is learned; it goes
/// with the set that it is left in.
#[test]
fn resource_that_leaves_one_set_goes_with_the_other() {
    let habits = Habits {
        sets: 2,
        ..habits(ChangeLists::Open)
    };
    for leaving in [0, 1] {
        for announced in [
            Act::Publish(leaving, AT_ONCE),
            Act::WriteResourceList(leaving),
        ] {
            let mut acts = vec![
                Act::Change(2),
                Act::Pass(2000),
                Act::Publish(1 - leaving, AT_ONCE),
                Act::Pass(2000),
                Act::Leave(2, leaving),
                Act::Pass(2000),
                announced,
                Act::Pass(1_000_000),
            ];
            let left = run_and(habits.clone(), &acts, async |world| version(world, 2));
            acts.extend([Act::Delete(2), Act::Pass(2000)]);
            acts.extend([Act::Publish(1 - leaving, AT_ONCE), Act::Pass(1_000_000)]);
            let gone = run_and(habits.clone(), &acts, async |world| version(world, 2));
            assert_eq!((left, gone), (Some(2), None), "{leaving}");
        }
    }
}

/// An update of one set is pending when the other set announces that the resource has left it, and is deleted in its own set before the
/// Source can be asked: what is claimed still waits for the update.
#[test]
fn deletion_that_another_set_has_replaced_holds_back_what_is_claimed() {
    let habits = Habits {
        sets: 2,
        ..habits(ChangeLists::Open)
    };
    let acts = [
        Act::Contents(false),
        Act::Change(2),
        Act::Pass(1000),
        Act::Publish(1, AT_ONCE),
        Act::Pass(1000),
        Act::Leave(2, 0),
        Act::Pass(1000),
        Act::Publish(0, AT_ONCE),
        Act::Pass(1000),
        Act::Delete(2),
        Act::Pass(1000),
        Act::Publish(1, AT_ONCE),
        Act::Pass(1000),
    ];
    run(habits, &acts);
}

/// A resource leaves one set, changes, and is deleted in the other. The first set has only Change Lists at first, and they are read after
/// the second one's list does not name it any more: neither its update nor its leaving ends that deletion.
#[test]
fn older_changes_of_a_set_that_is_read_late_do_not_end_a_deletion() {
    let habits = Habits {
        sets: 2,
        hashes: false,
        lists_say_from: false,
        offered_first: Offered::ChangeListsOnly,
        ..habits(ChangeLists::Open)
    };
    let settings = Settings {
        poll_interval: Duration::from_secs(60),
        download: 3000,
        ..settings()
    };
    let acts = [
        Act::Change(2),
        Act::Pass(400),
        Act::Leave(2, 0),
        Act::Pass(300),
        Act::ChangeAll,
        Act::Pass(3000),
        Act::RollOver(1),
        Act::Publish(1, Fate::Delivered(3500)),
        Act::Pass(5000),
        Act::DeleteAll,
        Act::Crash(28),
    ];
    run_with(habits, settings, &acts);
}

/// Two sets, of which the first one cannot be read at first.
fn with_unread_set(change_lists: ChangeLists) -> Habits {
    Habits {
        sets: 2,
        faulty_first: Some((SimulatedDocument::ResourceList, Fault::Unavailable)),
        ..habits(change_lists)
    }
}

/// How many deletions are pending.
async fn pending_deletions(world: &World) -> usize {
    let tasks = world.database().await.tasks.into_iter();
    tasks
        .filter(|task| task.kind == ChangeKind::Deleted)
        .count()
}

/// Whether a set has the resource that another one deletes is not known before it is read: what the Source serves stays.
#[test]
fn resource_that_a_set_has_which_was_never_read_stays() {
    let announced = [
        (ChangeLists::Open, Act::Publish(1, AT_ONCE)),
        (ChangeLists::Absent, Act::WriteResourceList(1)),
    ];
    for (change_lists, announced) in announced {
        let habits = with_unread_set(change_lists);
        let mut acts = vec![
            Act::Pass(2000),
            Act::Leave(2, 1),
            Act::Pass(2000),
            announced,
            Act::Pass(1_000_000),
        ];
        let look = async |world: &mut World| (version(world, 2), pending_deletions(world).await);
        let unread = run_and(habits.clone(), &acts, look);
        assert_eq!(unread, (Some(1), 1), "{change_lists:?}");
        acts.extend([
            Act::Fail(0, SimulatedDocument::ResourceList, None),
            Act::Pass(1_000_000),
        ]);
        let read = run_and(habits, &acts, look);
        assert_eq!(read, (Some(1), 0), "{change_lists:?}");
    }
}

/// Its Resource List is not all of a set: what the Change List adds counts, too.
#[test]
fn resource_that_only_the_change_list_of_the_unread_set_has_stays() {
    let settings = Settings {
        latency: 700,
        download: 0,
        ..settings()
    };
    let acts = [
        Act::Pass(2000),
        Act::Change(5),
        Act::Pass(2000),
        Act::WriteChangeLists(0),
        Act::Publish(1, AT_ONCE),
        Act::Pass(2000),
        Act::Leave(5, 1),
        Act::Pass(2000),
        Act::Publish(1, AT_ONCE),
        Act::Pass(2000),
        Act::Fail(0, SimulatedDocument::ResourceList, None),
        Act::Pass(1_000_000),
    ];
    simulate(
        with_unread_set(ChangeLists::Open),
        settings,
        async |world| {
            world.pass(5000).await;
            world.run(&acts).await;
            assert_eq!(
                (version(world, 5), pending_deletions(world).await),
                (Some(1), 0)
            );
        },
    );
}

/// A deletion is applied at once if the Source does not serve the resource. Else it is once the other set is read and does not
/// have it; and after a day in any case.
#[test]
fn deletion_does_not_wait_for_ever_for_a_set_that_was_never_read() {
    let habits = with_unread_set(ChangeLists::Open);
    let deleted = |available, later: &[Act]| {
        let mut acts = vec![
            Act::Pass(2000),
            Act::Contents(available),
            Act::Delete(2),
            Act::Pass(2000),
            Act::Publish(1, AT_ONCE),
            Act::Pass(5000),
        ];
        acts.extend_from_slice(later);
        version_after(habits.clone(), &acts, 2)
    };
    assert_eq!(deleted(true, &[]), None);
    assert_eq!(deleted(false, &[]), Some(1));
    let read = [
        Act::WriteResourceList(0),
        Act::Fail(0, SimulatedDocument::ResourceList, None),
        Act::Pass(1_000_000),
    ];
    assert_eq!(deleted(false, &read), None);
    assert_eq!(deleted(false, &[Act::Pass(20 * HOUR)]), Some(1));
    assert_eq!(deleted(false, &[Act::Pass(26 * HOUR)]), None);
}

/// A notification was applied before the baseline. What the baseline lists of the same resource, which the mirror lacks, holds
/// back what is claimed.
#[test]
fn task_older_than_the_baseline_holds_back_what_is_claimed() {
    let habits = Habits {
        offered_first: Offered::ChangeListsOnly,
        ..habits(ChangeLists::Absent)
    };
    let acts = [
        Act::Contents(false),
        Act::ChangeAll,
        Act::Pass(10),
        Act::Publish(0, AT_ONCE),
        Act::Pass(2000),
        Act::Offer(0, Offered::Everything),
        Act::Pass(60_000),
    ];
    run(habits, &acts);
}

/// A resource of the baseline is given up. It may be missing from any time on, not only from its last modification.
#[test]
fn resource_that_never_was_fetched_holds_back_what_is_claimed() {
    let habits = Habits {
        offered_first: Offered::ChangeListsOnly,
        ..habits(ChangeLists::Open)
    };
    let acts = [
        Act::Change(1),
        Act::Pass(1000),
        Act::WriteResourceList(0),
        Act::Change(2),
        Act::WriteChangeLists(0),
        Act::Contents(false),
        Act::Offer(0, Offered::Everything),
        Act::Pass(1_800_000),
    ];
    run(habits, &acts);
}

/// What the operator excludes, and can't be fetched any more, is not retried for ever.
#[test]
fn task_that_is_excluded_does_not_stay() {
    let acts = [
        Act::Change(4),
        Act::Contents(false),
        Act::Pass(10),
        Act::Publish(0, AT_ONCE),
        Act::Pass(1000),
        Act::Order(Order::Restart {
            filtering: Filtering::Exclude,
        }),
        Act::Delete(4),
        Act::Pass(1000),
    ];
    run(habits(ChangeLists::Open), &acts);
}

/// An update that is not selected waits; it goes when the operator excludes its resource, too.
#[test]
fn unselected_task_stays_until_its_resource_is_excluded() {
    let restart = |filtering| Act::Order(Order::Restart { filtering });
    let mut acts = vec![
        Act::Change(4),
        Act::Contents(false),
        Act::Pass(10),
        Act::Publish(0, AT_ONCE),
        Act::Pass(1000),
        restart(Filtering::Select),
        Act::Pass(1000),
    ];
    let tasks = |acts: &[Act]| {
        run_and(habits(ChangeLists::Absent), acts, async |world| {
            world.database().await.tasks.len()
        })
    };
    assert_eq!(tasks(&acts), 1);
    acts.extend([restart(Filtering::Include), Act::Pass(1000)]);
    assert_eq!(tasks(&acts), 0);
}

/// What was excluded, and is not any more, is fetched, although no Change List lists it.
#[test]
fn resource_that_is_included_again_is_fetched() {
    for filtering in [Filtering::Exclude, Filtering::Include] {
        let acts = [
            Act::Order(Order::Restart { filtering }),
            Act::Change(4),
            Act::WriteChangeLists(0),
            Act::Pass(10),
            Act::Publish(0, AT_ONCE),
            Act::Pass(900_000),
            Act::RollOver(0),
            Act::WriteResourceList(0),
            Act::Pass(900_000),
            Act::Order(Order::Restart {
                filtering: Filtering::Nothing,
            }),
            Act::Pass(60_000),
        ];
        let file = version_after(habits(ChangeLists::Open), &acts, 4);
        assert_eq!(file, Some(1), "{filtering:?}");
    }
}

/// The same where nothing but the Resource Dump was read before.
#[test]
fn resource_that_is_included_again_is_fetched_after_a_baseline_from_a_dump() {
    for resource_dump in [DumpOffer::Beside, DumpOffer::InPlace] {
        let habits = Habits {
            resource_dump,
            ..habits(ChangeLists::Open)
        };
        let restart = |filtering| Act::Order(Order::Restart { filtering });
        simulate(habits, settings(), async |world| {
            let acts = [
                Act::Documents(false),
                restart(Filtering::Exclude),
                Act::Change(4),
                Act::Pass(2000),
                Act::WriteResourceList(0),
                Act::WriteResourceDump(0),
                Act::RollOver(0),
                Act::DropOldLists(0),
                Act::Pass(2000),
                Act::Documents(true),
                Act::Pass(60_000),
            ];
            world.run(&acts).await;
            assert!(world.requests().packages > 0);
            assert_eq!(version(world, 4), None);
            world.act(&restart(Filtering::Nothing));
            world.pass(60_000).await;
            assert_eq!(version(world, 4), Some(1), "{resource_dump:?}");
        });
    }
}

/// A change that the filter excludes is read in a Change List, which is closed then, and one that it does not exclude in the next one.
async fn change_while_excluded(world: &mut World) {
    let acts = [
        Act::Order(Order::Restart {
            filtering: Filtering::Exclude,
        }),
        Act::Change(4),
        Act::WriteChangeLists(0),
        Act::Pass(10),
        poll(),
        Act::Pass(5000),
        Act::RollOver(0),
        Act::Pass(5000),
        Act::Change(1),
        Act::Pass(5000),
        Act::WriteChangeLists(0),
        poll(),
        Act::Pass(5000),
    ];
    world.run(&acts).await;
    assert_eq!((version(world, 1), version(world, 4)), (Some(2), None));
}

/// The daemon begins again without a filter, and the excluded change is found.
async fn find_what_was_excluded(world: &mut World) {
    world.act(&Act::Order(Order::Restart {
        filtering: Filtering::Nothing,
    }));
    world.pass(60_000).await;
    assert_eq!(version(world, 4), Some(1));
}

/// What the filter excluded when a Change List was read is read again with that list, although it is closed and its time is covered.
#[test]
fn change_that_was_excluded_is_found_in_a_closed_change_list() {
    for validators in [ServerValidators::Etag, ServerValidators::Nothing] {
        let habits = Habits {
            validators,
            ..habits(ChangeLists::Index)
        };
        simulate(habits, settings(), async |world| {
            world.pass(5000).await;
            change_while_excluded(world).await;
            find_what_was_excluded(world).await;
        });
    }
}

/// A filter that is in force only while the Resource List can't be read has changes left out as well.
#[test]
fn change_that_was_excluded_is_found_although_no_list_was_read_meanwhile() {
    let fail = |fault| Act::Fail(0, SimulatedDocument::ResourceList, fault);
    simulate(habits(ChangeLists::Index), settings(), async |world| {
        world.pass(5000).await;
        world.act(&fail(Some(Fault::Unavailable)));
        change_while_excluded(world).await;
        world.act(&fail(None));
        find_what_was_excluded(world).await;
    });
}

/// A baseline can't be made, and it is unknown when one can: changes are applied meanwhile, and the status states the error.
#[test]
fn changes_are_followed_without_a_baseline() {
    for fault in [Fault::Gone, Fault::CutShort] {
        let habits = Habits {
            faulty_first: Some((SimulatedDocument::ResourceList, fault)),
            ..habits(ChangeLists::Open)
        };
        let acts = [
            Act::Change(3),
            Act::Pass(10),
            Act::Publish(0, AT_ONCE),
            Act::Pass(10_000),
        ];
        let (file, errors) = run_and(habits, &acts, async |world| {
            let file = version(world, 3);
            (file, errors(world).await)
        });
        assert_eq!(file, Some(1), "{fault:?}");
        assert!(errors[0].is_some(), "{fault:?}");
    }
}

/// A baseline can't be made for the moment: notifications wait for it, in the inbox.
#[test]
fn notifications_wait_for_a_baseline_that_is_only_late() {
    let habits = Habits {
        faulty_first: Some((SimulatedDocument::ResourceList, Fault::Unavailable)),
        ..habits(ChangeLists::Open)
    };
    let acts = [
        Act::Change(3),
        Act::Pass(10),
        Act::Publish(0, AT_ONCE),
        Act::Pass(10_000),
    ];
    let (file, inbox) = run_and(habits, &acts, async |world| {
        let file = version(world, 3);
        (file, world.database().await.inbox.len())
    });
    assert_eq!((file, inbox), (None, 1));
}

/// A notification without times waits for the baseline, which is newer: what it announces is known by then.
#[test]
fn undated_notification_does_not_undo_a_newer_baseline() {
    for boundary in [Boundary::Exact, Boundary::Loose] {
        let habits = Habits {
            boundary,
            undated: true,
            faulty_first: Some((SimulatedDocument::ResourceList, Fault::Unavailable)),
            ..habits(ChangeLists::Absent)
        };
        let acts = [
            Act::Delete(0),
            Act::Pass(10),
            Act::Publish(0, AT_ONCE),
            Act::Pass(119_000),
            Act::Change(0),
            Act::Pass(1000),
            Act::WriteResourceList(0),
            Act::Fail(0, SimulatedDocument::ResourceList, None),
            Act::Pass(900_000),
        ];
        let file = version_after(habits, &acts, 0);
        assert_eq!(file, Some(3), "{boundary:?}");
    }
}

/// A notification without an interval waits for the baseline. The resource was deleted before that, and the baseline does not
/// name it: it is given up without a failure.
#[test]
fn announced_resource_that_is_gone_is_no_failure() {
    let habits = Habits {
        hashes: false,
        faulty_first: Some((SimulatedDocument::ResourceList, Fault::Unavailable)),
        ..habits(ChangeLists::Absent)
    };
    let acts = [
        Act::Change(4),
        Act::Pass(10),
        Act::PublishBare(0),
        Act::Pass(119_000),
        Act::Delete(4),
        Act::Pass(1000),
        Act::WriteResourceList(0),
        Act::Fail(0, SimulatedDocument::ResourceList, None),
        Act::Pass(900_000),
    ];
    let tasks = run_and(habits, &acts, async |world| world.database().await.tasks);
    assert!(tasks.is_empty(), "{tasks:?}");
}

/// Changes that are listed after others that happened later, in a time that is covered: created, updated, deleted.
#[test]
fn late_changes_are_applied() {
    for (change_lists, newest_first, hashes) in [
        (ChangeLists::Open, false, true),
        (ChangeLists::Open, true, true),
        (ChangeLists::Open, true, false),
        (ChangeLists::Index, false, true),
        (ChangeLists::Replaced, false, false),
    ] {
        let habits = Habits {
            newest_first,
            hashes,
            ..habits(change_lists)
        };
        let acts = [
            Act::Pass(2000),
            Act::ChangeLate(0),
            Act::ChangeLate(RESOURCES - 1),
            Act::DeleteLate(1),
            Act::Pass(2000),
            Act::Change(2),
            Act::Pass(2000),
            Act::WriteChangeLists(0),
            Act::Publish(0, AT_ONCE),
            Act::Pass(900_000),
            Act::ListLate(0),
            Act::Pass(910_000),
        ];
        let found = run_and(habits, &acts, async |world| {
            [0, 1, 2, RESOURCES - 1].map(|resource| version(world, resource))
        });
        assert_eq!(
            found,
            [Some(2), None, Some(2), Some(1)],
            "{change_lists:?} {newest_first} {hashes}"
        );
    }
}

/// A Capability List that names nothing is a reported failure, and what it names later is followed.
#[test]
fn set_without_documents_waits_for_them() {
    let habits = Habits {
        offered_first: Offered::Nothing,
        ..habits(ChangeLists::Open)
    };
    let acts = [
        Act::Change(0),
        Act::Pass(10),
        Act::Publish(0, AT_ONCE),
        Act::Pass(10_000),
    ];
    let found = run_and(habits, &acts, async |world| errors(world).await);
    assert_eq!(found, [Some("no-resource-list".to_owned())]);
}

/// A list of the index, or a page, is gone: the others are read, and nothing is deleted for what it may have named.
#[test]
fn part_that_is_gone_proves_no_absence() {
    for part_form in PART_FORMS {
        let habits = Habits {
            parts: 3,
            part_form,
            ..habits(ChangeLists::Absent)
        };
        let acts = [
            Act::Fail(0, SimulatedDocument::Part(1), Some(Fault::Gone)),
            Act::Change(0),
            Act::WriteResourceList(0),
            Act::Pass(900_000),
        ];
        let (files, errors) = run_and(habits, &acts, async |world| {
            let files: Vec<usize> = world.stage.scene().files.keys().copied().collect();
            (files, errors(world).await)
        });
        assert_eq!(files, [0, 1, 2], "{part_form:?}");
        assert!(errors[0].is_some(), "{part_form:?}");
    }
}

/// A part of which the index states that nothing in it is selected is left out: nothing is deleted for that, what another part names no
/// longer is deleted, and the part is read once it is selected.
#[test]
fn part_that_is_ruled_out_proves_no_absence() {
    let habits = Habits {
        parts: 3,
        part_form: PartForm::Typed,
        offered_first: Offered::Nothing,
        ..habits(ChangeLists::Absent)
    };
    let restart = |filtering| Act::Order(Order::Restart { filtering });
    let mut acts = vec![
        Act::Change(4),
        Act::WriteResourceList(0),
        restart(Filtering::Select),
        Act::Offer(0, Offered::Everything),
        Act::Pass(1_800_000),
    ];
    let files = |acts: &[Act]| {
        run_and(habits.clone(), acts, async |world| {
            let scene = world.stage.scene();
            scene.files.keys().copied().collect::<Vec<ResourceNo>>()
        })
    };
    assert_eq!(files(&acts), [0, 1, 2]);
    acts.extend([
        Act::Delete(1),
        Act::WriteResourceList(0),
        Act::Pass(1_800_000),
    ]);
    assert_eq!(files(&acts), [0, 2]);
    acts.extend([restart(Filtering::Nothing), Act::Pass(1_800_000)]);
    assert_eq!(files(&acts), [0, 2, 4]);
}

/// What a part named before, and names no longer, is deleted, once all parts were read.
#[test]
fn resource_that_leaves_its_part_is_deleted() {
    for part_form in PART_FORMS {
        let habits = Habits {
            parts: 3,
            part_form,
            ..habits(ChangeLists::Absent)
        };
        let acts = [
            Act::Pass(900_000),
            Act::Delete(1),
            Act::WriteResourceList(0),
            Act::Pass(900_000),
        ];
        let is_there = run_and(habits, &acts, async |world| {
            world.stage.scene().files.contains_key(&1)
        });
        assert!(!is_there, "{part_form:?}");
    }
}

/// The index names fewer parts, or becomes one list, or a list becomes an index: what the parts before named and nothing names
/// now is deleted, and what another one names now stays.
#[test]
fn parts_that_are_named_no_more_are_forgotten() {
    for part_form in PART_FORMS {
        for (before, after) in [(3, 2), (3, 0), (0, 3), (2, 3), (1, 0)] {
            let habits = Habits {
                parts: before,
                part_form,
                ..habits(ChangeLists::Absent)
            };
            let acts = [
                Act::Pass(900_000),
                Act::Delete(2),
                Act::Divide(after),
                Act::Pass(910_000),
            ];
            let (files, documents) = run_and(habits, &acts, async |world| {
                let files: Vec<usize> = world.stage.scene().files.keys().copied().collect();
                let before = world.requests().documents;
                world.pass(900_000).await;
                (files, world.requests().documents - before)
            });
            assert_eq!(files, [0, 1], "{before} to {after}");
            // Once in a poll interval, each document at most once.
            assert!(
                documents <= 2 + after as u64,
                "{before} to {after}: {documents}"
            );
        }
    }
}

/// A closed list of the index can't be read for a while: the open one is read meanwhile, and proves nothing before its begin.
#[test]
fn closed_list_that_is_unavailable_is_read_later() {
    for fault in [Fault::Gone, Fault::Unavailable, Fault::CutShort] {
        let place = SimulatedDocument::ClosedChangeLists;
        let acts = [
            Act::Change(0),
            Act::Pass(10),
            Act::RollOver(0),
            Act::Change(1),
            Act::Pass(10),
            Act::Publish(0, Fate::Lost),
            Act::WriteChangeLists(0),
            Act::Fail(0, place, Some(fault)),
            Act::Order(Order::Poll(0)),
            Act::Pass(1000),
        ];
        let (before, after) = run_and(habits(ChangeLists::Index), &acts, async |world| {
            let before = world.stage.scene().files.clone();
            world.act(&Act::Fail(0, place, None));
            world.pass(5000).await;
            (before, world.stage.scene().files.clone())
        });
        let shown = |files: &BTreeMap<_, u32>| (files[&0], files[&1]);
        assert_eq!(
            (shown(&before), shown(&after)),
            ((1, 2), (2, 2)),
            "{fault:?}"
        );
    }
}

/// A Resource List that is older than the one that was read last is not read, and reported.
#[test]
fn older_resource_list_is_reported() {
    let acts = [
        Act::Pass(10_000),
        Act::Change(3),
        Act::WriteResourceList(0),
        Act::Order(Order::Poll(0)),
        Act::Pass(5000),
        Act::RestoreResourceList(0),
        Act::Order(Order::Poll(0)),
        Act::Pass(5000),
    ];
    let (file, errors) = run_and(habits(ChangeLists::Absent), &acts, async |world| {
        let file = version(world, 3);
        (file, errors(world).await)
    });
    assert_eq!(file, Some(1));
    assert_eq!(errors, [Some("older-resource-list".to_owned())]);
}

/// A Resource List that names nothing deletes nothing until the operator approves it.
#[test]
fn deletions_of_an_empty_list_wait_for_approval() {
    let acts = [
        Act::DeleteAll,
        Act::WriteResourceList(0),
        Act::Pass(900_000),
    ];
    let held = run_and(habits(ChangeLists::Absent), &acts, async |world| {
        let tasks = world.database().await.tasks;
        let held = tasks.iter().filter(|task| task.state == "held").count();
        let files = world.stage.scene().files.len();
        world.act(&Act::Order(Order::Approve));
        world.pass(1000).await;
        (held, files, world.stage.scene().files.len())
    });
    assert_eq!(held, (3, 3, 0));
}

/// More than a hundred deletions at once, and more than the share that is configured, wait for approval, whichever document
/// states them.
#[test]
fn too_many_deletions_wait_for_approval() {
    let by_list = (ChangeLists::Absent, Act::WriteResourceList(0));
    let by_changes = (ChangeLists::Open, Act::WriteChangeLists(0));
    let by_notification = (ChangeLists::Open, Act::Publish(0, AT_ONCE));
    for (change_lists, announce) in [by_list, by_changes, by_notification] {
        let habits = Habits {
            more: 110,
            ..habits(change_lists)
        };
        let acts = [
            Act::DeleteMore,
            Act::Pass(10),
            announce.clone(),
            Act::Order(Order::Poll(0)),
            Act::Pass(900_000),
        ];
        let files = run_and(habits, &acts, async |world| {
            let files = world.stage.scene().files.len();
            world.act(&Act::Order(Order::Approve));
            world.pass(1000).await;
            (files, world.stage.scene().files.len())
        });
        assert_eq!(files, (113, 3), "{announce:?}");
    }
}

/// A commit that fails has changed nothing, and what it was to prove is not believed: it is repeated.
#[test]
fn commit_that_fails_is_repeated() {
    let by_changes = [Act::WriteChangeLists(0), Act::Order(Order::Poll(0))];
    let by_notification = [Act::Pass(10), Act::Publish(0, AT_ONCE)];
    let by_list = [Act::WriteResourceList(0), Act::Order(Order::Poll(0))];
    let by_index = (ChangeLists::Index, by_changes.clone());
    let ways = [
        (ChangeLists::Open, by_changes),
        by_index,
        (ChangeLists::Open, by_notification),
        (ChangeLists::Absent, by_list),
    ];
    for (change_lists, announce) in ways {
        for commits in 0..12 {
            let mut acts = vec![Act::Change(1), Act::Pass(10), Act::FailCommit(commits)];
            acts.extend(announce.clone());
            acts.push(Act::Pass(10_000));
            let file = version_after(habits(change_lists), &acts, 1);
            assert_eq!(file, Some(2), "{change_lists:?}, {commits}");
        }
    }
}

/// A query that fails ends the poll, which is repeated; not even an error of the Capability List in that poll hides it.
#[test]
fn query_that_fails_is_repeated() {
    let ways = [ChangeLists::Open, ChangeLists::Index, ChangeLists::Absent];
    for (change_lists, is_unavailable) in ways.into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        for queries in 0..12 {
            let fault = is_unavailable.then_some(Fault::Unavailable);
            let acts = [
                Act::Change(1),
                Act::Pass(10),
                Act::WriteChangeLists(0),
                Act::WriteResourceList(0),
                Act::Fail(0, SimulatedDocument::CapabilityList, fault),
                Act::FailQuery(queries),
                poll(),
                Act::Pass(10_000),
            ];
            let file = version_after(habits(change_lists), &acts, 1);
            assert_eq!(file, Some(2), "{change_lists:?}, {fault:?}, {queries}");
        }
    }
}

/// The same before there is a baseline: an error of the Resource List does not hide it.
#[test]
fn query_that_fails_before_the_baseline_is_repeated() {
    let faulty = (SimulatedDocument::ResourceList, Fault::Unavailable);
    for queries in 0..12 {
        let habits = Habits {
            faulty_first: Some(faulty),
            ..habits(ChangeLists::Open)
        };
        let acts = [
            Act::FailQuery(queries),
            poll(),
            Act::Pass(10_000),
            Act::Fail(0, faulty.0, None),
        ];
        run(habits, &acts);
    }
}

/// A framework notification announces a document: it is read at once.
#[test]
fn framework_notification_has_documents_read() {
    let acts = [
        Act::Change(0),
        Act::WriteChangeLists(0),
        Act::Framework(0, SimulatedDocument::ChangeLists, AT_ONCE),
        Act::Pass(5000),
    ];
    let file = version_after(habits(ChangeLists::Open), &acts, 0);
    assert_eq!(file, Some(2));
}

/// A gap that the Change List does not reach over is closed by a Resource List that is announced.
#[test]
fn framework_notification_of_a_resource_list_closes_a_gap() {
    let acts = [
        Act::Change(0),
        Act::Pass(10),
        Act::Publish(0, Fate::Lost),
        Act::Pass(1000),
        Act::RollOver(0),
        Act::Change(1),
        Act::Pass(10),
        Act::Publish(0, AT_ONCE),
        Act::Pass(600_000),
        Act::WriteResourceList(0),
        Act::Framework(0, SimulatedDocument::ResourceList, AT_ONCE),
        Act::Pass(5000),
    ];
    let (file, open) = run_and(habits(ChangeLists::Open), &acts, async |world| {
        let file = version(world, 0);
        (file, gaps(world).await)
    });
    assert_eq!((file, open), (Some(2), 0));
}

/// The operator asks for a poll: it is not waited for.
#[test]
fn poll_that_is_asked_for_is_done_at_once() {
    let acts = [
        Act::Change(0),
        Act::WriteChangeLists(0),
        Act::Order(Order::Poll(0)),
        Act::Pass(1000),
    ];
    let file = version_after(habits(ChangeLists::Open), &acts, 0);
    assert_eq!(file, Some(2));
}

/// A server that sends dates of whole seconds only may change a document twice within one.
#[test]
fn document_written_twice_within_a_second_is_read_twice() {
    let habits = Habits {
        validators: ServerValidators::LastModified,
        ..habits(ChangeLists::Open)
    };
    let acts = [
        Act::Pass(895_000),
        Act::Change(0),
        Act::WriteChangeLists(0),
        Act::Pass(10),
        Act::Order(Order::Poll(0)),
        Act::Pass(10),
        Act::Change(1),
        Act::WriteChangeLists(0),
        Act::Pass(3000),
        Act::Order(Order::Poll(0)),
        Act::Pass(3000),
    ];
    let file = version_after(habits, &acts, 1);
    assert_eq!(file, Some(2));
}

/// Many changes while documents take their time: what happens during a poll is not lost.
#[test]
fn changes_during_a_poll_are_not_lost() {
    let settings = Settings {
        latency: 700,
        download: 3000,
        ..settings()
    };
    let mut acts = Vec::new();
    for number in 0..40 {
        acts.extend([
            Act::Change(number % RESOURCES),
            Act::Pass(130),
            Act::WriteChangeLists(0),
            Act::Pass(10),
            Act::Publish(0, [AT_ONCE, Fate::Lost][number % 2]),
            Act::Pass(200),
        ]);
        if number % 10 == 9 {
            acts.extend([Act::WriteResourceList(0), Act::Delete(number % RESOURCES)]);
        }
    }
    for change_lists in [ChangeLists::Absent, ChangeLists::Open, ChangeLists::Index] {
        let history = History {
            habits: Habits {
                parts: 2,
                ..habits(change_lists)
            },
            settings,
            acts: acts.clone(),
            last_resource_list: true,
        };
        history.run();
    }
}

/// A notification that can't be read is rejected, and what it would have stated is read from the Change List.
#[test]
fn rejected_notification_causes_a_poll() {
    let acts = [
        Act::Change(0),
        Act::WriteChangeLists(0),
        Act::Pass(10),
        Act::Publish(0, Fate::Garbled(1)),
        Act::Pass(5000),
    ];
    let (file, inbox) = run_and(habits(ChangeLists::Open), &acts, async |world| {
        let file = version(world, 0);
        (file, world.database().await.inbox.len())
    });
    assert_eq!((file, inbox), (Some(2), 0));
}

/// Documents are unavailable: the next poll comes after seconds, and not after the poll interval.
#[test]
fn poll_that_fails_is_repeated_soon() {
    let acts = [
        Act::Change(0),
        Act::WriteChangeLists(0),
        Act::Documents(false),
        Act::Order(Order::Poll(0)),
        Act::Pass(1000),
        Act::Documents(true),
        Act::Pass(10_000),
    ];
    let file = version_after(habits(ChangeLists::Open), &acts, 0);
    assert_eq!(file, Some(2));
}

/// A notification without an interval proves nothing: what was announced before it is read from the Change List.
#[test]
fn notification_without_interval_causes_a_poll() {
    let acts = [
        Act::Change(0),
        Act::Pass(10),
        Act::Publish(0, Fate::Lost),
        Act::Pass(10),
        Act::Change(1),
        Act::WriteChangeLists(0),
        Act::Pass(10),
        Act::PublishBare(0),
        Act::Pass(5000),
    ];
    let file = version_after(habits(ChangeLists::Open), &acts, 0);
    assert_eq!(file, Some(2));
}

/// The Change List is up to date: it is read as soon as a gap opens.
#[test]
fn gap_is_filled_at_once() {
    let acts = [
        Act::Change(0),
        Act::Pass(10),
        Act::Publish(0, Fate::Lost),
        Act::Pass(1000),
        Act::Change(1),
        Act::Pass(10),
        Act::WriteChangeLists(0),
        Act::Publish(0, AT_ONCE),
        Act::Pass(6000),
    ];
    let file = version_after(habits(ChangeLists::Open), &acts, 0);
    assert_eq!(file, Some(2));
}

/// The Change List lags behind the notifications: an open gap is polled for sooner than after the poll interval.
#[test]
fn open_gap_is_polled_for_soon() {
    let acts = [
        Act::Change(0),
        Act::Pass(10),
        Act::Publish(0, Fate::Lost),
        Act::Pass(1000),
        Act::Change(1),
        Act::Pass(10),
        Act::Publish(0, AT_ONCE),
        Act::Pass(20_000),
        Act::WriteChangeLists(0),
        Act::Pass(40_000),
    ];
    let (file, open) = run_and(habits(ChangeLists::Open), &acts, async |world| {
        let file = version(world, 0);
        (file, gaps(world).await)
    });
    assert_eq!((file, open), (Some(2), 0));
}

/// A Change List ends with a deletion, within a second whose later creation a notification has announced already.
#[test]
fn change_list_does_not_undo_a_creation_of_its_last_second() {
    let habits = Habits {
        whole_seconds: true,
        ..habits(ChangeLists::Open)
    };
    let acts = [
        Act::Delete(0),
        Act::WriteChangeLists(0),
        Act::Pass(300),
        Act::Change(0),
        Act::Pass(900),
        Act::Publish(0, AT_ONCE),
        Act::Pass(5000),
        Act::Order(Order::Poll(0)),
        Act::Pass(5000),
    ];
    let file = version_after(habits, &acts, 0);
    assert_eq!(file, Some(3));
}

/// A hub that verifies may have forgotten what it should have delivered before: one poll.
#[test]
fn verified_subscription_causes_a_poll() {
    let acts = [
        Act::Change(0),
        Act::WriteChangeLists(0),
        Act::Order(Order::Verify(0)),
        Act::Pass(1000),
    ];
    let file = version_after(habits(ChangeLists::Open), &acts, 0);
    assert_eq!(file, Some(2));
}

/// Polls that find what the hub has not delivered end the reliance on it.
#[test]
fn silent_hub_is_subscribed_to_anew() {
    let mut acts = vec![Act::Order(Order::Verify(0)), Act::Pass(1000)];
    for _ in 0..3 {
        acts.extend([
            Act::Change(0),
            Act::WriteChangeLists(0),
            Act::Pass(10),
            Act::Publish(0, Fate::Lost),
            Act::Pass(900_000),
        ]);
    }
    let is_subscribed = run_and(habits(ChangeLists::Open), &acts, async |world| {
        world.is_subscribed(0).await
    });
    assert!(!is_subscribed);
}

/// A hub that is not trusted has stated that a resource was deleted and created again within one moment. The Change List states the
/// same: what was claimed is claimed on.
#[test]
fn recreation_that_a_hub_has_stated_is_confirmed() {
    for hashes in [true, false] {
        for resource in [0, 1] {
            let habits = Habits {
                hashes,
                ..habits(ChangeLists::Open)
            };
            let acts = [
                Act::Recreate(0),
                Act::Pass(1),
                Act::Change(resource),
                Act::Publish(0, AT_ONCE),
                Act::Pass(2000),
                Act::WriteChangeLists(0),
                Act::Order(Order::Poll(0)),
                Act::Pass(5000),
            ];
            run_with(habits, wary_settings(), &acts);
        }
    }
}

/// A resource that a hub has announced changes again before it is fetched, and what it was meanwhile is never seen.
#[test]
fn version_that_was_served_no_more_is_not_missed() {
    let acts = [
        Act::Change(0),
        Act::Pass(1),
        Act::Change(0),
        Act::Publish(0, AT_ONCE),
        Act::Pass(150_000),
        Act::WriteChangeLists(0),
        Act::Order(Order::Poll(0)),
        Act::Pass(5000),
    ];
    run_with(habits(ChangeLists::Open), wary_settings(), &acts);
}

/// A hub that is not trusted states a deletion, and the Source serves the resource, which it has created again. Its Change List states
/// both.
#[test]
fn deletion_that_was_refuted_by_a_new_creation_is_confirmed() {
    let habits = Habits {
        hashes: false,
        validators: ServerValidators::Nothing,
        ..habits(ChangeLists::Open)
    };
    let acts = [
        Act::DeleteAll,
        Act::Pass(1),
        Act::Change(0),
        Act::Publish(0, AT_ONCE),
        Act::Pass(30_000),
        Act::WriteChangeLists(0),
        Act::Order(Order::Poll(0)),
        Act::Pass(5000),
    ];
    run_with(habits, wary_settings(), &acts);
}

/// The next notification states the deletion once more that the Source has refuted.
#[test]
fn deletion_that_was_refuted_may_be_announced_again() {
    let habits = Habits {
        overlap: 2000,
        hashes: false,
        validators: ServerValidators::Nothing,
        ..habits(ChangeLists::Absent)
    };
    let acts = [
        Act::Delete(0),
        Act::Pass(1000),
        Act::Publish(0, AT_ONCE),
        Act::Change(0),
        Act::Pass(5000),
        Act::Change(1),
        Act::Publish(0, AT_ONCE),
        Act::Pass(5000),
    ];
    run_with(habits.clone(), wary_settings(), &acts);
    let acts = [
        Act::Delete(0),
        Act::Pass(1000),
        Act::Publish(0, AT_ONCE),
        Act::Change(0),
        Act::Pass(3029),
        Act::Publish(0, Fate::Delivered(1657)),
        Act::Pass(30_000),
    ];
    let settings = Settings {
        poll_interval: Duration::from_secs(86_400),
        download: 0,
        ..wary_settings()
    };
    let habits = Habits {
        overlap: 4000,
        ..habits
    };
    run_with(habits, settings, &acts);
}

/// What a hub has stated is in two Change Lists, and the resource is fetched again between them.
#[test]
fn updates_that_a_hub_has_stated_are_confirmed_one_by_one() {
    let habits = Habits {
        hashes: false,
        ..habits(ChangeLists::Index)
    };
    let settings = Settings {
        latency: 40,
        download: 0,
        ..wary_settings()
    };
    let acts = [
        Act::Change(1),
        Act::Pass(1),
        Act::RollOver(0),
        Act::Change(1),
        Act::Pass(1),
        Act::Publish(0, AT_ONCE),
        Act::Pass(5000),
        Act::WriteChangeLists(0),
        Act::Order(Order::Poll(0)),
        Act::Pass(5000),
    ];
    run_with(habits, settings, &acts);
}

/// A Change List was written in the midst of a moment of which a hub has stated all.
#[test]
fn rest_of_a_moment_is_confirmed_by_the_next_list() {
    let habits = Habits {
        hashes: false,
        ..habits(ChangeLists::Index)
    };
    let acts = [
        Act::Recreate(0),
        Act::WriteChangeLists(0),
        Act::Change(0),
        Act::Change(0),
        Act::Pass(1),
        Act::Publish(0, AT_ONCE),
        Act::Pass(5000),
        Act::Order(Order::Poll(0)),
        Act::Pass(5000),
        Act::Change(2),
        Act::WriteChangeLists(0),
        Act::Order(Order::Poll(0)),
        Act::Pass(5000),
    ];
    run_with(habits, wary_settings(), &acts);
}

/// A notification, with or without an interval, waits for the baseline, and announces a resource that was deleted before it. The
/// deletion may be announced by another one that arrives before and after it.
#[test]
fn notification_may_announce_what_is_gone() {
    let habits = Habits {
        faulty_first: Some((SimulatedDocument::ResourceList, Fault::Unavailable)),
        ..habits(ChangeLists::Open)
    };
    let settings = Settings {
        poll_interval: Duration::from_secs(60),
        download: 0,
        ..settings()
    };
    let acts = [
        Act::Change(0),
        Act::Pass(1),
        Act::DeleteAll,
        Act::PublishBare(0),
        Act::Pass(1),
        Act::Publish(0, Fate::Doubled(1, 19)),
    ];
    let with_interval = [
        Act::Change(0),
        Act::Pass(1),
        Act::Publish(0, AT_ONCE),
        Act::Change(0),
        Act::DeleteAll,
    ];
    for acts in [&acts[..4], &acts[..], &with_interval[..]] {
        let history = History {
            habits: habits.clone(),
            settings,
            acts: acts.to_vec(),
            last_resource_list: true,
        };
        history.run();
    }
}

/// Histories that run one after the other on one thread do not depend on each other: a daemon that begins knows of no host that it is
/// slow.
#[test]
fn history_does_not_depend_on_the_one_before() {
    let history = |faulty_first| History {
        habits: Habits {
            parts: 2,
            part_form: PartForm::Undated,
            faulty_first,
            ..habits(ChangeLists::Absent)
        },
        settings: Settings {
            latency: 700,
            ..settings()
        },
        acts: vec![Act::Pass(10_000)],
        last_resource_list: true,
    };
    let first = history(None).run();
    history(Some((SimulatedDocument::ResourceList, Fault::Unavailable))).run();
    assert_eq!(history(None).run().trace, first.trace);
}

/// A set that is read late names a resource, and states that it has left it, both before what the other set has stated: then that other
/// set alone decides, and what it claims to have deleted is deleted.
#[test]
fn resource_that_has_left_a_set_that_is_read_late_is_deleted() {
    let habits = Habits {
        sets: 2,
        lists_say_from: false,
        validators: ServerValidators::Nothing,
        offered_first: Offered::ChangeListsOnly,
        ..Habits::default()
    };
    let settings = Settings {
        poll_interval: Duration::from_secs(60),
        download: 3000,
        ..settings()
    };
    let acts = [
        Act::Change(2),
        Act::Pass(1),
        Act::Leave(2, 0),
        Act::Pass(1),
        Act::ChangeAll,
        Act::Pass(1),
        Act::RollOver(1),
        Act::Publish(1, Fate::Delivered(997)),
        Act::Pass(998),
        Act::DeleteAll,
        Act::Crash(6),
    ];
    run_with(habits, settings, &acts);
}

/// Notifications without times that waited for the baseline are older than the list that it was made from: they do not replace what
/// that states, whether it was fetched meanwhile or not.
#[test]
fn undated_notifications_that_waited_do_not_replace_what_the_list_states() {
    let habits = Habits {
        undated: true,
        faulty_first: Some((SimulatedDocument::ResourceList, Fault::Unavailable)),
        ..habits(ChangeLists::Absent)
    };
    let mut acts = Vec::new();
    for _ in 0..5 {
        acts.extend([Act::Pass(11_000), Act::Publish(0, AT_ONCE), Act::Change(3)]);
    }
    acts.extend([
        Act::Pass(11_000),
        Act::WriteResourceList(0),
        Act::Fail(0, SimulatedDocument::ResourceList, None),
        poll(),
        Act::Pass(2 * HOUR),
    ]);
    let found = run_and(habits, &acts, async |world| {
        let tasks = world.database().await.tasks;
        (version(world, 3), tasks.len(), errors(world).await)
    });
    assert_eq!(found, (Some(5), 0, vec![None]));
}

/// Of a resource that was deleted and created anew within one moment, the deletion does not count, although what was created is not selected
/// any more: neither when it is read again, nor when it is read for the first time.
#[test]
fn recreation_ends_a_deletion_of_its_moment_though_not_selected() {
    let restart = Act::Order(Order::Restart {
        filtering: Filtering::Select,
    });
    let in_index = [
        Act::Recreate(4),
        Act::RollOver(0),
        Act::RollOver(0),
        Act::Recreate(4),
        Act::Framework(0, SimulatedDocument::ChangeListIndex, AT_ONCE),
        Act::RollOver(0),
        Act::Pass(1327),
        restart.clone(),
        Act::Publish(0, AT_ONCE),
        Act::Change(0),
    ];
    let in_notification = [
        Act::Recreate(4),
        Act::Recreate(4),
        Act::WriteChangeLists(0),
        poll(),
        Act::Pass(5000),
        restart.clone(),
        Act::Publish(0, AT_ONCE),
        Act::Pass(5000),
    ];
    let write_and_poll = [
        Act::Pass(1000),
        Act::WriteChangeLists(0),
        poll(),
        Act::Pass(5000),
    ];
    let in_list = [
        &[Act::Change(4)][..],
        &write_and_poll,
        &[restart, Act::Recreate(4)],
        &write_and_poll,
        &[Act::Change(0)],
        &write_and_poll,
    ];
    for (change_lists, newest_first, acts, expected) in [
        (ChangeLists::Index, false, &in_index[..], 4),
        (ChangeLists::Open, false, &in_notification, 4),
        (ChangeLists::Open, false, &in_list.concat(), 1),
        (ChangeLists::Open, true, &in_list.concat(), 1),
    ] {
        let habits = Habits {
            newest_first,
            hashes: false,
            validators: ServerValidators::Nothing,
            ..habits(change_lists)
        };
        let settings = Settings {
            poll_interval: Duration::from_secs(60),
            download: 0,
            latency: 700,
            ..settings()
        };
        let kept = simulate(habits, settings, async |world| {
            world.pass(5000).await;
            world.run(acts).await;
            world.settle(true, HOUR).await;
            version(world, 4)
        });
        assert_eq!(
            kept,
            Some(expected),
            "{change_lists:?}, {newest_first}, {acts:?}"
        );
    }
}
