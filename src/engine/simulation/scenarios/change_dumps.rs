//! Change Dumps that the simulated Source does not publish: indexes and what leads to them, packages that fail, and those that state little.

use resourcesync::{Capability, Entry, Head, Link, Root, SourceTime, write_document};

use super::super::documents::change;
use super::super::handwritten::uri;
use super::super::source::bytes;
use super::dump_documents::*;
use super::dumps::files;
use super::notifications::{announce, front};
use super::*;

/// What the mirror has in the beginning.
const FIRST: [(ResourceNo, u32); 3] = [(0, 1), (1, 1), (2, 1)];

fn dump_head(from: SourceTime, until: Option<SourceTime>) -> Head {
    head_between(Capability::ChangeDump, Some(from), until)
}

fn manifest_head(from: SourceTime, until: SourceTime) -> Head {
    head_between(Capability::ChangeDumpManifest, Some(from), Some(until))
}

fn between(mut entry: Entry, from: SourceTime, until: SourceTime) -> Entry {
    (entry.md.from, entry.md.until) = (Some(from), Some(until));
    entry
}

/// Serves a package of the changes between two times, and returns its entry.
fn write_changes(world: &World, path: &str, from: SourceTime, until: SourceTime) -> Entry {
    let named = changes(world, from, until);
    let entry = write_package(world, path, &manifest_head(from, until), named);
    between(entry, from, until)
}

/// Serves the dump that is offered, open.
fn write_dump(world: &World, from: SourceTime, packages: &[Entry]) {
    write(world, DUMP, &dump_head(from, None), packages);
}

/// Serves an index of dumps.
fn write_index(world: &World, path: &str, from: SourceTime, dumps: &[Entry]) {
    let head = Head {
        root: Root::Sitemapindex,
        ..dump_head(from, None)
    };
    write(world, path, &head, dumps);
}

/// The entry with a copy of its manifest, which is served.
fn with_copy(world: &World, mut entry: Entry, path: &str, manifest: Vec<u8>) -> Entry {
    world.write(path, manifest);
    entry.links.push(Link::new("contents", uri(path)));
    entry
}

/// Something happens within a second; returns when that second is over.
async fn after(world: &mut World, act: Act) -> SourceTime {
    world.pass(1000).await;
    world.act(&act);
    world.pass(1000).await;
    world.now()
}

/// A world whose baseline is there, with a document of changes at [`DUMP`] that has none yet. `run` gets the time at which it begins.
fn begun_with(capability: &Capability, run: impl AsyncFnOnce(&mut World, SourceTime)) {
    simulate(habits(ChangeLists::Absent), settings(), async |world| {
        let start = world.now();
        let offered = [(Capability::ResourceList, LIST), (capability.clone(), DUMP)];
        offer(world, &offered);
        let head = head_between(capability.clone(), Some(start), None);
        write(world, DUMP, &head, &[]);
        world.pass(5000).await;
        assert_eq!((files(world), error(world).await), (FIRST.to_vec(), None));
        assert_eq!(claim(world).await, Some(start));
        run(world, start).await;
    });
}

/// The same with a Change Dump.
fn begun(run: impl AsyncFnOnce(&mut World, SourceTime)) {
    begun_with(&Capability::ChangeDump, run);
}

/// A dump of an index that can't be read keeps no later one from being read, but nothing is covered until it can be.
#[test]
fn dump_that_fails_does_not_keep_later_ones_of_its_index_from_being_read() {
    for fault in ["absent", "unavailable", "cut short", "another document"] {
        begun(async |world, start| {
            let first = after(world, Act::Change(0)).await;
            let one = write_changes(world, "one.zip", start, first);
            let second = after(world, Act::Change(1)).await;
            let two = write_changes(world, "two.zip", first, second);
            write(world, "b.xml", &dump_head(first, Some(second)), &[two]);
            let whole = write_document(&dump_head(start, Some(first)), [&one]);
            match fault {
                "absent" => world.write_status("a.xml", 404),
                "unavailable" => world.write_status("a.xml", 503),
                "cut short" => world.write("a.xml", &whole[..whole.len() / 2]),
                _ => write(world, "a.xml", &head_of(Capability::ResourceDump), &[]),
            }
            let dumps = [
                between(Entry::new(uri("a.xml")), start, first),
                between(Entry::new(uri("b.xml")), first, second),
            ];
            write_index(world, DUMP, start, &dumps);
            poll_now(world).await;
            assert_eq!(files(world), [(0, 1), (1, 2), (2, 1)], "{fault}");
            assert!(error(world).await.is_some(), "{fault}");
            assert_eq!(claim(world).await, Some(start), "{fault}");
            assert_eq!(gaps(world).await, 0, "{fault}");
            world.write("a.xml", whole);
            poll_now(world).await;
            assert_eq!(files(world), [(0, 2), (1, 2), (2, 1)], "{fault}");
            assert_eq!(error(world).await, None, "{fault}");
            assert_eq!(claim(world).await, Some(second), "{fault}");
        });
    }
}

/// An index need not state the intervals of its dumps: what they state counts, also where one of them could be read only later.
#[test]
fn dumps_of_an_index_that_states_no_intervals_cover_what_they_state() {
    begun(async |world, start| {
        let first = after(world, Act::Change(0)).await;
        let one = write_changes(world, "one.zip", start, first);
        let second = after(world, Act::Change(1)).await;
        let two = write_changes(world, "two.zip", first, second);
        write(world, "b.xml", &dump_head(first, Some(second)), &[two]);
        world.write_status("a.xml", 503);
        let dumps = ["a.xml", "b.xml"].map(|path| Entry::new(uri(path)));
        write_index(world, DUMP, start, &dumps);
        poll_now(world).await;
        assert_eq!(claim(world).await, Some(start));
        write(world, "a.xml", &dump_head(start, Some(first)), &[one]);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 2), (2, 1)]);
        assert_eq!(claim(world).await, Some(second));
    });
}

/// A dump of an index that has not changed is read again as long as a package of it could not be.
#[test]
fn dump_of_an_index_is_read_again_until_all_of_its_packages_were() {
    begun(async |world, start| {
        let first = after(world, Act::Change(0)).await;
        let one = write_changes(world, "one.zip", start, first);
        write(world, "a.xml", &dump_head(start, Some(first)), &[one]);
        let a = between(Entry::new(uri("a.xml")), start, first);
        write_index(world, DUMP, start, std::slice::from_ref(&a));
        poll_now(world).await;
        assert_eq!(claim(world).await, Some(first));
        let second = after(world, Act::Change(1)).await;
        let two = write_changes(world, "two.zip", first, second);
        world.write_status("two.zip", 404);
        write(world, "b.xml", &dump_head(first, Some(second)), &[two]);
        let b = between(Entry::new(uri("b.xml")), first, second);
        write_index(world, DUMP, start, &[a, b]);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)]);
        assert_eq!(error(world).await, Some("not-found".to_owned()));
        assert_eq!(claim(world).await, Some(first));
        write_changes(world, "two.zip", first, second);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 2), (2, 1)]);
        assert_eq!(error(world).await, None);
        assert_eq!(claim(world).await, Some(second));
    });
}

/// A world with a closed dump that links to an index. `run` gets the time at which the dump begins, and at which it ends.
fn with_closed_dump(run: impl AsyncFnOnce(&mut World, SourceTime, SourceTime)) {
    begun(async |world, start| {
        let first = after(world, Act::Change(0)).await;
        let one = write_changes(world, "one.zip", start, first);
        let mut closed = dump_head(start, Some(first));
        closed.links.push(Link::new("index", uri("index.xml")));
        write(world, DUMP, &closed, &[one]);
        run(world, start, first).await;
    });
}

/// Serves the index of a closed dump and of one that follows it with a change; returns when that one ends.
async fn write_index_of_closed(
    world: &mut World,
    start: SourceTime,
    first: SourceTime,
) -> SourceTime {
    let second = after(world, Act::Change(1)).await;
    let two = write_changes(world, "two.zip", first, second);
    write(world, "b.xml", &dump_head(first, None), &[two]);
    let dumps = [
        between(Entry::new(uri(DUMP)), start, first),
        Entry::new(uri("b.xml")),
    ];
    write_index(world, "index.xml", start, &dumps);
    second
}

/// A closed dump states nothing more: what follows it is in the index that it links to. One that does not exist is only noted, one that
/// can't be fetched is a failure.
#[test]
fn closed_dump_leads_to_its_index() {
    with_closed_dump(async |world, start, first| {
        world.write_status("index.xml", 404);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)]);
        assert_eq!(error(world).await, None);
        assert_eq!(codes_of_notices(world).await, ["dead-index"]);
        assert_eq!(claim(world).await, Some(first));
        world.write_status("index.xml", 503);
        poll_now(world).await;
        assert!(error(world).await.is_some());
        assert_eq!(codes_of_notices(world).await, [""; 0]);
        let second = write_index_of_closed(world, start, first).await;
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 2), (2, 1)]);
        assert_eq!(error(world).await, None);
        assert_eq!(codes_of_notices(world).await, [""; 0]);
        assert_eq!(claim(world).await, Some(second));
    });
}

/// An index that can't be fetched when the closed dump is read is fetched with the next poll.
#[test]
fn index_of_a_closed_dump_is_fetched_later() {
    with_closed_dump(async |world, start, first| {
        world.write_status("index.xml", 503);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)]);
        let second = write_index_of_closed(world, start, first).await;
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 2), (2, 1)]);
        assert_eq!(claim(world).await, Some(second));
    });
}

/// A dump that has become an older version of itself is reported until it is the newer one again.
#[test]
fn older_change_dump_is_reported() {
    begun(async |world, start| {
        let first = after(world, Act::Change(0)).await;
        let one = write_changes(world, "one.zip", start, first);
        let second = after(world, Act::Change(1)).await;
        let two = write_changes(world, "two.zip", first, second);
        let packages = [one, two];
        for (packages, expected) in [
            (&packages[..], None),
            (&packages[..1], Some("older-change-dump")),
            (&packages[..], None),
        ] {
            write_dump(world, start, packages);
            poll_now(world).await;
            assert_eq!(error(world).await.as_deref(), expected);
            assert_eq!(claim(world).await, Some(second));
        }
    });
}

/// Of several dumps the first counts that can be read; if none can, the error of the first one does.
#[test]
fn one_of_several_dumps_is_enough() {
    begun(async |world, start| {
        let offered = [
            (Capability::ChangeDump, "gone.xml"),
            (Capability::ChangeDump, DUMP),
        ];
        offer(world, &offered);
        world.write_status("gone.xml", 410);
        let first = after(world, Act::Change(0)).await;
        let one = write_changes(world, "one.zip", start, first);
        write_dump(world, start, &[one]);
        poll_now(world).await;
        assert_eq!((error(world).await, version(world, 0)), (None, Some(2)));
        assert_eq!(claim(world).await, Some(first));
        world.write_status(DUMP, 404);
        poll_now(world).await;
        assert_eq!(error(world).await, Some("gone".to_owned()));
        assert_eq!(claim(world).await, Some(first));
    });
}

/// Some Sources list packages of changes in a Change List: it is read as a Change Dump. If it states changes as well, these are applied,
/// and it covers nothing.
#[test]
fn change_list_of_packages_is_read_as_a_change_dump() {
    begun_with(&Capability::ChangeList, async |world, start| {
        let head = head_between(Capability::ChangeList, Some(start), None);
        let first = after(world, Act::Change(0)).await;
        let one = write_changes(world, "one.zip", start, first);
        write(world, DUMP, &head, std::slice::from_ref(&one));
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)]);
        assert_eq!(error(world).await, None);
        assert_eq!(claim(world).await, Some(first));
        // Three for the baseline.
        assert_eq!(world.requests().contents, 3);
        let second = after(world, Act::Change(1)).await;
        let two = write_changes(world, "two.zip", first, second);
        after(world, Act::Change(2)).await;
        let other = {
            let scene = world.stage.scene();
            change(&scene.source, scene.source.last_change(2).unwrap())
        };
        write(world, DUMP, &head, &[one, two, other]);
        requested(world);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 1), (2, 2)]);
        assert_eq!(error(world).await, Some("unsupported-package".to_owned()));
        assert_eq!(claim(world).await, Some(first));
        assert!(!requested(world).iter().any(|path| path == "two.zip"));
    });
}

/// A package that can't be fetched keeps no other one from being read. What precedes it is covered; what follows it is not, and is no gap
/// either: the package may only be late.
#[test]
fn package_that_fails_leaves_open_what_follows_it() {
    for failing in [0, 1] {
        begun(async |world, start| {
            let first = after(world, Act::Change(0)).await;
            let one = write_changes(world, "one.zip", start, first);
            let second = after(world, Act::Change(1)).await;
            let two = write_changes(world, "two.zip", first, second);
            write_dump(world, start, &[one, two]);
            world.write_status(["one.zip", "two.zip"][failing], 404);
            poll_now(world).await;
            let (expected, claimed) = match failing {
                0 => ([(0, 1), (1, 2), (2, 1)], start),
                _ => ([(0, 2), (1, 1), (2, 1)], first),
            };
            assert_eq!(files(world), expected);
            assert_eq!(error(world).await, Some("not-found".to_owned()));
            let covered = (claim(world).await, gaps(world).await);
            assert_eq!(covered, (Some(claimed), 0), "{failing}");
            write_changes(world, "one.zip", start, first);
            write_changes(world, "two.zip", first, second);
            poll_now(world).await;
            assert_eq!(files(world), [(0, 2), (1, 2), (2, 1)]);
            assert_eq!(error(world).await, None);
            assert_eq!(claim(world).await, Some(second));
        });
    }
}

/// A package that can't be read is read later, also if notifications cover its time and a later package was read: the hub may have withheld
/// what it states.
#[test]
fn package_that_fails_is_read_later_although_its_time_is_covered() {
    begun(async |world, start| {
        let channel = Capability::ChangeNotification;
        let topic = format!("set0/{}", channel.as_str());
        let offered = [
            (Capability::ResourceList, LIST),
            (Capability::ChangeDump, DUMP),
            (channel, &topic),
        ];
        offer(world, &offered);
        poll_now(world).await;
        let first = after(world, Act::ChangeLate(0)).await;
        let one = write_changes(world, "one.zip", start, first);
        let second = after(world, Act::ChangeLate(1)).await;
        let two = write_changes(world, "two.zip", first, second);
        world.pass(5000).await;
        announce(world, &[]).await;
        world.pass(5000).await;
        assert_eq!(claim(world).await, Some(front(world).await));
        write_dump(world, start, &[one, two]);
        world.write_status("one.zip", 503);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 1), (1, 2), (2, 1)]);
        assert!(error(world).await.is_some());
        write_changes(world, "one.zip", start, first);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 2), (2, 1)]);
        assert_eq!(error(world).await, None);
    });
}

/// A damaged entry of a manifest may state a change that nothing else states: what the others state is applied, and nothing is covered. The
/// package is not downloaded again until it is another one.
#[test]
fn package_with_a_damaged_entry_covers_nothing() {
    begun(async |world, start| {
        let first = after(world, Act::Change(0)).await;
        let head = manifest_head(start, first);
        let named = changes(world, start, first);
        let one = write_edited_package(world, "one.zip", &head, named, damaged);
        write_dump(world, start, &[between(one, start, first)]);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)]);
        assert_eq!(error(world).await, Some("bad-entries".to_owned()));
        assert_eq!(claim(world).await, Some(start));
        requested(world);
        poll_now(world).await;
        assert!(!requested(world).iter().any(|path| path == "one.zip"));
        assert_eq!(error(world).await, Some("bad-entries".to_owned()));
        let one = write_changes(world, "one.zip", start, first);
        write_dump(world, start, &[one]);
        poll_now(world).await;
        assert_eq!(error(world).await, None);
        assert_eq!(claim(world).await, Some(first));
    });
}

/// A copy of the manifest shows how much of a package is needed: where that is little, the package is not downloaded.
#[test]
fn package_is_downloaded_only_if_most_of_it_is_needed() {
    for is_needed in [true, false] {
        begun(async |world, start| {
            let mut first = after(world, Act::Change(0)).await;
            if !is_needed {
                after(world, Act::Delete(1)).await;
                first = after(world, Act::Delete(2)).await;
            }
            let one = write_changes(world, "one.zip", start, first);
            let copy = manifest(&manifest_head(start, first), changes(world, start, first));
            write_dump(world, start, &[with_copy(world, one, "copy.xml", copy)]);
            requested(world);
            poll_now(world).await;
            assert_eq!(version(world, 0), Some(2), "{is_needed}");
            assert_eq!(files(world).len(), if is_needed { 3 } else { 1 });
            let is_downloaded = times_requested(world, "one.zip") > 0;
            assert_eq!(is_downloaded, is_needed);
            let contents = world.requests().contents;
            assert_eq!(contents, if is_needed { 3 } else { 4 });
            let found = (error(world).await, claim(world).await);
            assert_eq!(found, (None, Some(first)), "{is_needed}");
        });
    }
}

/// Where the copy of a manifest has a damaged entry, what the others state is applied, and nothing is covered.
#[test]
fn copy_of_a_manifest_with_a_damaged_entry_covers_nothing() {
    begun(async |world, start| {
        after(world, Act::Change(0)).await;
        after(world, Act::Delete(1)).await;
        let first = after(world, Act::Delete(2)).await;
        let one = write_changes(world, "one.zip", start, first);
        let copy = manifest(&manifest_head(start, first), changes(world, start, first));
        let one = with_copy(world, one, "copy.xml", damaged(copy));
        write_dump(world, start, &[one]);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2)]);
        assert_eq!(error(world).await, Some("bad-entries".to_owned()));
        assert_eq!(claim(world).await, Some(start));
    });
}

/// The copy of a manifest is no more than a help: where it can't be used, the package is read.
#[test]
fn package_is_read_where_the_copy_of_its_manifest_cannot_be() {
    for fault in ["absent", "unavailable", "another document"] {
        begun(async |world, start| {
            let first = after(world, Act::Change(0)).await;
            let one = write_changes(world, "one.zip", start, first);
            let other = head_of(Capability::ResourceList);
            let one = with_copy(world, one, "copy.xml", manifest(&other, Vec::new()));
            match fault {
                "absent" => world.write_status("copy.xml", 404),
                "unavailable" => world.write_status("copy.xml", 503),
                _ => {}
            }
            write_dump(world, start, &[one]);
            requested(world);
            poll_now(world).await;
            assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)], "{fault}");
            assert_eq!(times_requested(world, "one.zip"), 1, "{fault}");
            assert_eq!(error(world).await, None, "{fault}");
            assert_eq!(claim(world).await, Some(first), "{fault}");
        });
    }
}

/// What the records of a WARC hold does not state what has changed: only a manifest does, its own or the copy of one.
#[test]
fn copy_of_the_manifest_states_the_changes_of_a_package_that_has_none() {
    begun(async |world, start| {
        let first = after(world, Act::Change(0)).await;
        let write = |world: &World, path: &str| {
            let mut entry = write_archive(world, path, record_of(world, 0));
            entry.md.content.media_type = Some("application/warc".to_owned());
            between(entry, start, first)
        };
        write_dump(world, start, &[write(world, "one.warc")]);
        poll_now(world).await;
        assert_eq!(files(world), FIRST);
        assert_eq!(error(world).await, Some("no-manifest".to_owned()));
        assert_eq!(claim(world).await, Some(start));
        let copy = manifest(&manifest_head(start, first), changes(world, start, first));
        let two = with_copy(world, write(world, "two.warc"), "copy.xml", copy);
        write_dump(world, start, &[two]);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)]);
        assert_eq!(error(world).await, None);
        assert_eq!(claim(world).await, Some(first));
        // Three for the baseline.
        assert_eq!(world.requests().contents, 3);
    });
}

/// A WARC with one record: what a resource is now.
fn record_of(world: &World, resource: ResourceNo) -> Vec<u8> {
    let (at, uri) = (
        world.changed_at(resource),
        uri(&format!("resource/{resource}")),
    );
    let content = {
        let scene = world.stage.scene();
        bytes(resource, scene.source.content(resource).unwrap())
    };
    let head = format!(
        "WARC/1.1\r\nWARC-Type: resource\r\nWARC-Target-URI: {uri}\r\nWARC-Date: {at}\r\n\
         Content-Length: {}\r\n\r\n",
        content.len()
    );
    [head.as_bytes(), &content, b"\r\n\r\n"].concat()
}

/// A package whose entry states nothing that distinguishes its versions is read with each version of the dump; another one is not
/// downloaded again.
#[test]
fn package_is_read_again_unless_its_entry_shows_that_it_is_the_same() {
    for has_version in [true, false] {
        begun(async |world, start| {
            let first = after(world, Act::Change(0)).await;
            let write_version = |world: &World, until: SourceTime| {
                let head = head_between(Capability::ChangeDumpManifest, Some(start), None);
                write_package(world, "one.zip", &head, changes(world, start, until));
            };
            write_version(world, first);
            let mut one = Entry::new(uri("one.zip"));
            one.lastmod = Some(first).filter(|_| has_version);
            let dump = write_document(&dump_head(start, None), [&one]);
            world.write(DUMP, dump.clone());
            poll_now(world).await;
            assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)]);
            let second = after(world, Act::Change(1)).await;
            write_version(world, second);
            requested(world);
            world.write(DUMP, [&dump[..], b"<!-- again -->"].concat());
            poll_now(world).await;
            assert_eq!(times_requested(world, "one.zip"), usize::from(!has_version));
            let expected = if has_version { 1 } else { 2 };
            assert_eq!(version(world, 1), Some(expected));
            assert_eq!(error(world).await, None);
        });
    }
}

/// The changes of two acts in the packages of two dumps of an index, each with a copy of its manifest. Returns when the last one ends.
async fn write_two_dumps(world: &mut World, start: SourceTime, acts: [Act; 2]) -> SourceTime {
    let mut from = start;
    for (act, (number, path)) in acts.into_iter().zip(["a.xml", "b.xml"].iter().enumerate()) {
        let until = after(world, act).await;
        let package = write_changes(world, &format!("{number}.zip"), from, until);
        let copy = manifest(&manifest_head(from, until), changes(world, from, until));
        let package = with_copy(world, package, &format!("{number}.xml"), copy);
        write(world, path, &dump_head(from, Some(until)), &[package]);
        from = until;
    }
    let dumps = ["a.xml", "b.xml"].map(|path| Entry::new(uri(path)));
    write_index(world, DUMP, start, &dumps);
    from
}

/// An error of the database is none of a dump or of a package: the work ends, and begins anew.
#[test]
fn change_dumps_are_read_wherever_the_database_fails() {
    for access in 0..10 {
        for fail in [Act::FailQuery(access), Act::FailCommit(access)] {
            begun(async |world, start| {
                let acts = [Act::Delete(1), Act::Delete(2)];
                let end = write_two_dumps(world, start, acts).await;
                world.act(&fail);
                poll_now(world).await;
                assert_eq!(files(world), [(0, 1)], "{fail:?}");
                assert_eq!(error(world).await, None, "{fail:?}");
                assert_eq!(claim(world).await, Some(end), "{fail:?}");
            });
        }
    }
}

/// The same where the packages are downloaded.
#[test]
fn packages_of_changes_are_read_wherever_the_database_fails() {
    for access in 0..40 {
        for fail in [Act::FailQuery(access), Act::FailCommit(access)] {
            begun(async |world, start| {
                let acts = [Act::Change(0), Act::Change(1)];
                let end = write_two_dumps(world, start, acts).await;
                world.act(&fail);
                poll_now(world).await;
                assert_eq!(files(world), [(0, 2), (1, 2), (2, 1)], "{fail:?}");
                assert_eq!(error(world).await, None, "{fail:?}");
                assert_eq!(claim(world).await, Some(end), "{fail:?}");
            });
        }
    }
}
