//! The entries of Change Lists: which of them are news, in what order they count, and what is ingested together.

use resourcesync::{Capability, Entry, Head, Link, Root, SourceTime, write_document};

use super::super::handwritten::uri;
use super::change_lists::{begun_with, change, changes, is_mirrored, poll_requests, write_entries};
use super::change_sets::{TYPE, document, draft_settings, updated};
use super::notifications::{announce_of, front};
use super::*;

/// A world that has read the Resource List and the open Change List `a.xml`, which has no entries.
fn begun(run: impl AsyncFnOnce(&mut World, SourceTime)) {
    begun_with(habits(ChangeLists::Absent), settings(), run);
}

/// What has changed since a time, as a Change List states it.
fn listed(world: &World, from: SourceTime) -> Vec<Entry> {
    changes(world, (from, None))
}

fn all_versions(world: &World) -> Vec<Option<u32>> {
    let resources = 0..RESOURCES;
    resources.map(|it| version(world, it)).collect()
}

/// Where an entry of a time that was covered before stands in a list, beside those that change all resources within one moment,
/// and how many entries are before them.
#[derive(Clone, Copy, Debug)]
struct OneMoment {
    before: usize,
    has_known: bool,
}

/// What has changed within one moment is ingested in one transaction, however long the list is, and whatever is listed between:
/// wherever the process ends, either all of it is applied or nothing.
#[test]
fn changes_of_one_moment_are_applied_together() {
    let cases = [(0, false, 8), (0, true, 8), (998, false, 2), (998, true, 2)];
    for (before, has_known, steps) in cases {
        let case = OneMoment { before, has_known };
        let ends = (0..steps).map(|step| crash_within(case, step));
        let outcomes: Vec<bool> = ends.collect();
        // The first end of the process was too early, and the last too late to make a difference.
        assert_eq!(outcomes.first(), Some(&false), "{case:?} {outcomes:?}");
        assert_eq!(outcomes.last(), Some(&true), "{case:?} {outcomes:?}");
    }
}

/// Reads a list of changes that all happened in one moment; the process ends at a step, and then no document is available.
/// Returns whether they were applied.
fn crash_within(case: OneMoment, step: u64) -> bool {
    let settings = Settings {
        latency: 40,
        ..settings()
    };
    let mut is_applied = false;
    begun_with(
        habits(ChangeLists::Absent),
        settings,
        async |world, begin| {
            // The time of the first change is covered for good once a later one is known.
            change(world, 1).await;
            change(world, 2).await;
            write_entries(world, "a.xml", begin, &listed(world, begin));
            world.act(&poll());
            world.pass(5000).await;
            world.act(&Act::Burst(1, case.before));
            world.pass(1000).await;
            let known = listed(world, begin).remove(0);
            world.act(&Act::ChangeAll);
            let moment = world.now();
            let mut entries = listed(world, begin);
            if case.has_known {
                let last = entries.len() - 3;
                entries.insert(last, known);
            }
            world.pass(1000).await;
            write_entries(world, "a.xml", begin, &entries);
            let now = all_versions(world);
            // The Capability List takes 40 ms, and then the Change List.
            let acts = [
                Act::Crash(step),
                poll(),
                Act::Pass(70),
                Act::Documents(false),
                Act::Pass(5000),
            ];
            world.run(&acts).await;
            let found = all_versions(world);
            let has_changed = |resource: usize| found[resource] != now[resource];
            let others = [0, 2, 3, 4, 5].map(has_changed);
            is_applied = others[0];
            assert_eq!(others, [is_applied; 5], "{case:?} {step} {moment}");
            world.act(&Act::Documents(true));
            world.pass(20_000).await;
            assert!(is_mirrored(world), "{case:?} {step}");
        },
    );
    is_applied
}

/// A set's list states late that a resource was created and updated, and that it has left the set since, to which it
/// never belonged: only another set has it. Then the update is no news of this set.
#[test]
fn late_update_before_a_deletion_in_its_list_is_no_news() {
    let habits = Habits {
        sets: 2,
        ..habits(ChangeLists::Open)
    };
    begun_with(habits, settings(), async |world, begin| {
        let acts = [
            Act::ChangeLate(5),
            Act::Pass(1000),
            Act::ListLate(1),
            Act::Order(Order::Poll(1)),
            Act::Pass(1000),
            Act::ChangeLate(5),
            Act::Pass(1000),
        ];
        world.run(&acts).await;
        change(world, 0).await;
        let last = listed(world, begin).split_off(2);
        write_entries(world, "a.xml", begin, &last);
        poll_requests(world).await;
        assert_eq!((version(world, 0), version(world, 5)), (Some(2), Some(1)));
        world.act(&Act::Leave(5, 0));
        world.pass(1000).await;
        write_entries(world, "a.xml", begin, &listed(world, begin));
        poll_requests(world).await;
        assert_eq!(version(world, 5), Some(1));
        let database = world.database().await;
        let has_resource = |set: usize| {
            let mut resources = database.sets[set].resources.iter();
            resources.any(|it| it.ends_with("/5"))
        };
        assert_eq!([0, 1].map(has_resource), [false, true]);
    });
}

/// A deletion that states an impossible time has that of the entry before it: whenever the list is read again, it does not
/// remove what was created since.
#[test]
fn deletion_of_an_impossible_time_is_not_repeated() {
    let never = SourceTime::from_micros(0);
    let far_ahead = SourceTime::from_micros(4_000_000_000_000_000);
    for impossible in [never, far_ahead] {
        begun(async |world, begin| {
            let write = |world: &World| {
                let mut entries = listed(world, begin);
                entries[1].md.datetime = Some(impossible);
                write_entries(world, "a.xml", begin, &entries);
            };
            change(world, 1).await;
            world.act(&Act::Delete(0));
            world.pass(1000).await;
            write(world);
            poll_requests(world).await;
            assert_eq!(version(world, 0), None, "{impossible}");
            for resource in [0, 2, 1] {
                change(world, resource).await;
                write(world);
                poll_requests(world).await;
                assert_eq!(version(world, 0), Some(3), "{impossible} {resource}");
                assert!(is_mirrored(world), "{impossible}");
            }
        });
    }
}

/// Versions of resources are stored.
fn storing_settings() -> Settings {
    Settings {
        configure: |source| source.versions = Some(source.mirror.with_file_name("versions").into()),
        ..settings()
    }
}

/// Has each entry name its version, at a place of its own.
fn with_mementos(mut entries: Vec<Entry>) -> Vec<Entry> {
    for (number, entry) in entries.iter_mut().enumerate() {
        let memento = uri(&format!("memento/{number}"));
        entry.links.push(Link::new("memento", memento));
    }
    entries
}

/// A version that an entry names is stored, also where the change is no news because its time was covered before.
#[test]
fn version_of_a_covered_change_is_stored() {
    begun_with(
        habits(ChangeLists::Absent),
        storing_settings(),
        async |world, begin| {
            world.act(&Act::ChangeLate(1));
            world.pass(1000).await;
            change(world, 1).await;
            let entries = with_mementos(listed(world, begin));
            write_entries(world, "a.xml", begin, &entries[1..]);
            poll_requests(world).await;
            assert_eq!(world.versions_to_store().await, 1);
            write_entries(world, "a.xml", begin, &entries);
            poll_requests(world).await;
            assert_eq!(world.versions_to_store().await, 2);
        },
    );
}

/// The same in a notification that is dated before its changes, after a later one.
#[test]
fn versions_of_changes_that_are_overtaken_are_stored() {
    begun_with(
        habits(ChangeLists::Absent),
        storing_settings(),
        async |world, begin| {
            let covered = front(world).await;
            world.pass(1000).await;
            let middle = world.now();
            world.pass(1000).await;
            world.act(&Act::ChangeLate(1));
            world.pass(1000).await;
            change(world, 1).await;
            let entries = with_mementos(listed(world, begin));
            announce_of(world, (covered, world.now()), &entries[1..]).await;
            world.pass(1000).await;
            assert_eq!(world.versions_to_store().await, 1);
            announce_of(world, (covered, middle), &entries).await;
            world.pass(1000).await;
            assert_eq!(world.versions_to_store().await, 2);
            assert!(is_mirrored(world));
        },
    );
}

/// Where the newest entry comes first, the earlier ones of a resource are read as well, but for those of the same moment.
#[test]
fn earlier_versions_of_a_list_that_begins_with_the_newest_are_stored() {
    begun_with(
        habits(ChangeLists::Absent),
        storing_settings(),
        async |world, begin| {
            for _ in 0..3 {
                change(world, 1).await;
            }
            world.act(&Act::Recreate(0));
            world.pass(1000).await;
            let mut entries = with_mementos(listed(world, begin));
            entries.reverse();
            write_entries(world, "a.xml", begin, &entries);
            poll_requests(world).await;
            assert_eq!(world.versions_to_store().await, 4);
            assert!(is_mirrored(world));
        },
    );
}

/// A resource of which a list states only the URI is requested again with each version of the list, but no more of them than
/// the configuration allows for a day.
#[test]
fn resources_whose_entries_state_nothing_are_requested_again() {
    for (per_day, asked) in [(1, 1), (2, 2), (100, 3), (0, 0)] {
        let settings = Settings {
            configure: match per_day {
                0 => |source| source.undated_per_day = 0,
                1 => |source| source.undated_per_day = 1,
                2 => |source| source.undated_per_day = 2,
                _ => |source| source.undated_per_day = 100,
            },
            ..settings()
        };
        simulate(habits(ChangeLists::Absent), settings, async |world| {
            let write = |world: &World| {
                let mut list = Head::new(Root::Urlset, Capability::ResourceList);
                let up = uri("set0/capabilitylist.xml");
                list.links.push(Link::new("up", up));
                list.md.at = Some(world.now());
                let entries = [0, 1, 2].map(|it| Entry::new(uri(&format!("resource/{it}"))));
                world.write("set0/resourcelist.xml", write_document(&list, &entries));
            };
            write(world);
            world.pass(5000).await;
            assert!(is_mirrored(world));
            let before = world.requests().contents;
            if per_day > 0 {
                world.act(&Act::Change(0));
            }
            world.pass(1000).await;
            write(world);
            world.act(&poll());
            world.pass(20_000).await;
            let found = world.requests().contents - before;
            assert_eq!(found, asked, "{per_day}");
            assert!(is_mirrored(world), "{per_day}");
        });
    }
}

/// A Sitemap and a Change Set of version 0.1 may state a change and a deletion of one resource and one time: then the deletion
/// came last, also where the Change Set states it after later changes.
#[test]
fn late_deletion_of_a_change_set_ends_what_the_sitemap_lists_of_its_time() {
    let habits = Habits {
        whole_seconds: true,
        ..habits(ChangeLists::Absent)
    };
    simulate(habits, draft_settings(), async |world| {
        world.act(&Act::Change(2));
        let sitemap = world.listed();
        world.write_sitemap(&sitemap, "a.xml");
        let known = updated(1, world.changed_at(1));
        world.write("a.xml", document(TYPE, &known));
        world.pass(500).await;
        assert_eq!(version(world, 2), Some(2));
        let modified = world.changed_at(2);
        world.act(&Act::DeleteLate(2));
        assert_eq!(world.changed_at(2), modified);
        world.pass(3000).await;
        change(world, 0).await;
        let later = updated(0, world.changed_at(0));
        world.write("a.xml", document(TYPE, &(known.clone() + &later)));
        world.act(&poll());
        world.pass(5000).await;
        assert_eq!((version(world, 0), version(world, 2)), (Some(2), Some(2)));
        let deleted = updated(2, modified).replace("updated", "deleted");
        let changes = known + &deleted + &later;
        world.write("a.xml", document(TYPE, &changes));
        world.act(&poll());
        world.pass(5000).await;
        assert_eq!(version(world, 2), None);
    });
}
