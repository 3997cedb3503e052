//! Resource Dumps that the simulated Source does not publish: indexes, dumps that prove less than they seem to, packages that fail, and
//! dumps of version 0.1.

use resourcesync::{Capability, Entry, Head, Link, Root, write_document};

use super::super::handwritten::uri;
use super::super::source::DumpOffer;
use super::change_sets::{SITEMAP, document, draft_settings};
use super::dump_documents::*;
use super::dumps::{files, with_resource_dump};
use super::*;
use crate::config::Baseline;

/// What the mirror has when the baseline is there.
const FIRST: [(ResourceNo, u32); 3] = [(0, 1), (1, 1), (2, 1)];

/// A head of the time of now.
fn head_now(world: &World, capability: Capability) -> Head {
    let mut head = head_of(capability);
    head.md.at = Some(world.now());
    head
}

/// A package of what these resources are now.
fn bytes_of(world: &World, named: &[ResourceNo]) -> Vec<u8> {
    let head = head_now(world, Capability::ResourceDumpManifest);
    package(&head, resources(world, named))
}

/// Serves a package of what these resources are now, and returns its entry.
fn write_resources(world: &World, path: &str, named: &[ResourceNo]) -> Entry {
    write_archive(world, path, bytes_of(world, named))
}

/// Serves a dump of the time of now.
fn write_dump(world: &World, path: &str, packages: &[Entry]) {
    write(
        world,
        path,
        &head_now(world, Capability::ResourceDump),
        packages,
    );
}

/// The same as bytes.
fn dump(world: &World, packages: &[Entry]) -> Vec<u8> {
    write_document(&head_now(world, Capability::ResourceDump), packages)
}

/// The same of an index.
fn index(world: &World, dumps: &[Entry]) -> Vec<u8> {
    let head = Head {
        root: Root::Sitemapindex,
        ..head_now(world, Capability::ResourceDump)
    };
    write_document(&head, dumps)
}

/// An entry of an index which states the type of what a dump has.
fn typed(path: &str, media_type: &str) -> Entry {
    let mut entry = Entry::new(uri(path));
    entry.md.content.media_type = Some(media_type.to_owned());
    entry
}

/// A world whose Source offers the dump that the scenario writes, and nothing else. Nothing is read yet.
fn with_dump(run: impl AsyncFnOnce(&mut World)) {
    simulate(habits(ChangeLists::Absent), settings(), async |world| {
        offer(world, &[(Capability::ResourceDump, DUMP)]);
        run(world).await;
    });
}

/// The same with the Resource List beside the dump.
fn with_list_and_dump(habits: Habits, run: impl AsyncFnOnce(&mut World)) {
    simulate(habits, settings(), async |world| {
        let offered = [
            (Capability::ResourceList, LIST),
            (Capability::ResourceDump, DUMP),
        ];
        offer(world, &offered);
        run(world).await;
    });
}

/// A dump is read in place of the Resource List unless the configuration prefers that; where there is only one of them, that one is.
#[test]
fn configuration_decides_between_list_and_dump() {
    for (baseline, offer, packages) in [
        (Baseline::List, DumpOffer::Beside, 0),
        (Baseline::List, DumpOffer::InPlace, 1),
        (Baseline::Dump, DumpOffer::Absent, 0),
        (Baseline::Dump, DumpOffer::Beside, 1),
        (Baseline::Auto, DumpOffer::Beside, 1),
    ] {
        let settings = Settings {
            baseline,
            ..settings()
        };
        simulate(with_resource_dump(offer), settings, async |world| {
            world.pass(5000).await;
            let context = format!("{baseline:?} {offer:?}");
            assert_eq!(files(world), FIRST, "{context}");
            assert_eq!(error(world).await, None, "{context}");
            assert_eq!(world.requests().packages, packages, "{context}");
        });
    }
}

/// Where Change Lists state what follows, the Resource List is not needed beside a dump: that it can't be read is no failure.
#[test]
fn baseline_from_a_dump_needs_no_list() {
    for resource_dump in [DumpOffer::Beside, DumpOffer::InPlace] {
        let habits = Habits {
            resource_dump,
            faulty_first: Some((SimulatedDocument::ResourceList, Fault::Unavailable)),
            ..habits(ChangeLists::Open)
        };
        simulate(habits, settings(), async |world| {
            world.pass(5000).await;
            assert_eq!(files(world), FIRST, "{resource_dump:?}");
            assert_eq!(error(world).await, None, "{resource_dump:?}");
            assert_eq!(world.requests().contents, 0, "{resource_dump:?}");
        });
    }
}

/// The dumps of an index are one dump: each is read once, and what none of them names is deleted.
#[test]
fn dumps_of_an_index_are_one_dump() {
    with_dump(async |world| {
        let one = write_resources(world, "one.zip", &[0, 1]);
        let two = write_resources(world, "two.zip", &[2]);
        write_dump(world, "a.xml", &[one]);
        write_dump(world, "b.xml", std::slice::from_ref(&two));
        let dumps = ["a.xml", "b.xml"].map(|path| Entry::new(uri(path)));
        world.write(DUMP, index(world, &dumps));
        world.pass(5000).await;
        let all = [DUMP, "a.xml", "one.zip", "b.xml", "two.zip"];
        assert_eq!(requested(world), all);
        assert_eq!((files(world), error(world).await), (FIRST.to_vec(), None));
        world.act(&Act::Delete(1));
        world.pass(1000).await;
        let one = write_resources(world, "one.zip", &[0]);
        write_dump(world, "a.xml", &[one]);
        write_dump(world, "b.xml", &[two]);
        world.write(DUMP, index(world, &dumps));
        poll_now(world).await;
        assert_eq!(files(world), [(0, 1), (2, 1)]);
        assert_eq!(error(world).await, None);
    });
}

/// What an entry of an index names that can't be read is unknown: the other dumps are read, nothing is deleted, and it is a failure until the
/// index is repaired.
#[test]
fn index_with_an_entry_that_cannot_be_read_deletes_nothing() {
    with_dump(async |world| {
        let one = write_resources(world, "one.zip", &[0, 1, 2]);
        write_dump(world, DUMP, &[one]);
        world.pass(5000).await;
        world.act(&Act::Delete(1));
        world.act(&Act::Change(0));
        world.pass(1000).await;
        let one = write_resources(world, "one.zip", &[0, 2]);
        write_dump(world, "a.xml", &[one]);
        let whole = index(world, &[Entry::new(uri("a.xml"))]);
        world.write(DUMP, nameless(whole.clone()));
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)]);
        assert_eq!(error(world).await, Some("bad-entries".to_owned()));
        world.write(DUMP, whole);
        poll_now(world).await;
        assert_eq!(files(world), [(0, 2), (2, 1)]);
        assert_eq!(error(world).await, None);
    });
}

/// A dump deletes what it does not name only if nothing about it is in doubt; the status states what is.
#[test]
fn absence_from_a_dump_proves_nothing_where_anything_is_in_doubt() {
    let capability = " capability=\"resourcedump\"";
    let of_manifest = " capability=\"resourcedump-manifest\"";
    let draft = "<rs:ln rel=\"http://www.openarchives.org/rs/dump\" href=\"/other.zip\"/><rs:md";
    for (doubt, code) in [
        ("nothing", None),
        ("stated", Some("unstated-capability")),
        ("draft", Some("draft-absence")),
        ("nameless", Some("bad-entries")),
        ("undated", Some("untold-time")),
        ("stated manifest", Some("unproven-manifest")),
        ("draft manifest", Some("unproven-manifest")),
        ("nameless manifest", Some("unproven-manifest")),
    ] {
        with_dump(async |world| {
            let one = write_resources(world, "one.zip", &[0, 1, 2]);
            write_dump(world, DUMP, &[one]);
            world.pass(5000).await;
            assert_eq!((files(world), error(world).await), (FIRST.to_vec(), None));
            // In doubt, the dump has not everything that there is.
            if code.is_none() {
                world.act(&Act::Delete(1));
            }
            world.act(&Act::Change(0));
            world.pass(1000).await;
            let head = head_now(world, Capability::ResourceDumpManifest);
            let named = resources(world, &[0, 2]);
            let edit = |manifest| match doubt {
                "stated manifest" => replaced(manifest, of_manifest, ""),
                "draft manifest" => replaced(manifest, "<rs:md", draft),
                "nameless manifest" => nameless(manifest),
                _ => manifest,
            };
            let one = write_edited_package(world, "one.zip", &head, named, edit);
            let whole = dump(world, &[one]);
            let at = format!(" at=\"{}\"", world.now());
            let edited = match doubt {
                "stated" => replaced(whole, capability, ""),
                "draft" => replaced(whole, "<rs:md", draft),
                "nameless" => nameless(whole),
                "undated" => replaced(whole, &at, ""),
                _ => whole,
            };
            world.write(DUMP, edited);
            poll_now(world).await;
            let left = if code.is_some() { Some(1) } else { None };
            assert_eq!(version(world, 1), left, "{doubt}");
            assert_eq!(version(world, 0), Some(2), "{doubt}");
            assert_eq!(error(world).await.as_deref(), code, "{doubt}");
        });
    }
}

/// A dump of which the index states that nothing in it is selected is left out, but not where a deletion would follow from that: what
/// is missing may be there.
#[test]
fn dump_that_is_ruled_out_is_read_before_anything_is_deleted() {
    for has_moved in [true, false] {
        with_dump(async |world| {
            let filtering = Filtering::Select;
            world.act(&Act::Order(Order::Restart { filtering }));
            world.act(&Act::Change(4));
            let one = write_resources(world, "one.zip", &[0, 1, 2]);
            let two = write_resources(world, "two.zip", &[4]);
            write_dump(world, "a.xml", &[one]);
            write_dump(world, "b.xml", &[two]);
            let dumps = [
                typed("a.xml", "application/pdf"),
                typed("b.xml", "text/csv"),
            ];
            world.write(DUMP, index(world, &dumps));
            world.pass(5000).await;
            assert_eq!(requested(world), [DUMP, "a.xml", "one.zip"]);
            assert_eq!((files(world), error(world).await), (FIRST.to_vec(), None));
            if !has_moved {
                world.act(&Act::Delete(1));
            }
            world.pass(1000).await;
            let others = if has_moved { &[1, 4][..] } else { &[4] };
            let one = write_resources(world, "one.zip", &[0, 2]);
            let two = write_resources(world, "two.zip", others);
            write_dump(world, "a.xml", &[one]);
            write_dump(world, "b.xml", &[two]);
            world.write(DUMP, index(world, &dumps));
            poll_now(world).await;
            let asked = requested(world);
            assert!(asked.iter().any(|path| path == "b.xml"), "{asked:?}");
            let left = has_moved.then_some(1);
            assert_eq!(version(world, 1), left, "{has_moved}");
            assert_eq!(error(world).await, None, "{has_moved}");
        });
    }
}

/// Where the index rules out all of its dumps, they are read: nothing else would show that the selection has changed.
#[test]
fn dumps_are_read_where_all_are_ruled_out() {
    with_dump(async |world| {
        let filtering = Filtering::Select;
        world.act(&Act::Order(Order::Restart { filtering }));
        let one = write_resources(world, "one.zip", &[0, 1, 2]);
        write_dump(world, "a.xml", &[one]);
        world.write(DUMP, index(world, &[typed("a.xml", "text/csv")]));
        world.pass(5000).await;
        assert_eq!((files(world), error(world).await), (FIRST.to_vec(), None));
    });
}

/// While the Resource List that is read in place of a damaged dump can't be read either, the packages of the dump are not downloaded again:
/// they would prove nothing. Those of a repaired dump are.
#[test]
fn damaged_dump_is_not_downloaded_again_beside_a_list() {
    let place = SimulatedDocument::Part(1);
    for is_dump_repaired in [true, false] {
        let habits = Habits {
            parts: 2,
            faulty_first: Some((place, Fault::Unavailable)),
            ..habits(ChangeLists::Absent)
        };
        with_list_and_dump(habits, async |world| {
            let one = write_resources(world, "one.zip", &[0, 1, 2]);
            let whole = dump(world, &[one]);
            world.write(DUMP, damaged(whole.clone()));
            world.pass(1000).await;
            assert_eq!(requested(world), [DUMP, "one.zip"]);
            assert!(error(world).await.is_some());
            poll_now(world).await;
            let asked = requested(world);
            assert!(asked.len() > 1 && asked.iter().all(|path| path == DUMP));
            let expected = if is_dump_repaired {
                world.write(DUMP, whole);
                None
            } else {
                world.act(&Act::Fail(0, place, None));
                Some("bad-entries")
            };
            poll_now(world).await;
            let downloads = times_requested(world, "one.zip");
            assert_eq!(downloads, usize::from(is_dump_repaired));
            if is_dump_repaired {
                world.act(&Act::Fail(0, place, None));
                poll_now(world).await;
            }
            assert_eq!(error(world).await.as_deref(), expected);
            assert_eq!(files(world), FIRST);
        });
    }
}

/// Where nothing else states what there is, a package that fails keeps no other one from being read. Beside a Resource List the dump is
/// given up at once.
#[test]
fn package_that_fails_ends_a_dump_only_beside_a_list() {
    let run = async |world: &mut World| {
        let one = bytes_of(world, &[0]);
        let packages = [
            write_archive(world, "one.zip", one.clone()),
            write_resources(world, "two.zip", &[1, 2]),
        ];
        write_dump(world, DUMP, &packages);
        world.write_status("one.zip", 404);
        world.pass(1000).await;
        assert_eq!(error(world).await, Some("not-found".to_owned()));
        (one, files(world), requested(world).concat())
    };
    with_dump(async |world| {
        let (one, found, asked) = run(world).await;
        assert_eq!(found, [(1, 1), (2, 1)]);
        assert_eq!(asked, "dump.xmlone.ziptwo.zip");
        world.write("one.zip", one);
        poll_now(world).await;
        assert_eq!((files(world), error(world).await), (FIRST.to_vec(), None));
        assert_eq!(times_requested(world, "two.zip"), 0);
    });
    with_list_and_dump(habits(ChangeLists::Absent), async |world| {
        let (_, found, asked) = run(world).await;
        assert_eq!((found, asked.as_str()), (FIRST.to_vec(), "dump.xmlone.zip"));
    });
}

/// A package that turned out to be unusable is downloaded again after pauses that double, as long as it is the same version.
#[test]
fn unusable_package_is_downloaded_again_after_growing_pauses() {
    with_dump(async |world| {
        let write_bad = |world: &World, version: usize| {
            let paths = ["one.zip", "two.zip"];
            let packages = paths.map(|path| {
                world.write(path, "PK\u{3}\u{4} and no more");
                let mut entry = Entry::new(uri(path));
                entry.md.content.length = Some(16).filter(|_| version == 0);
                entry
            });
            let good = write_resources(world, "good.zip", &[0, 1, 2]);
            write_dump(world, DUMP, &[&packages[..], &[good]].concat());
        };
        write_bad(world, 0);
        world.pass(1000).await;
        let asked = [DUMP, "one.zip", "two.zip", "good.zip"];
        assert_eq!(requested(world), asked);
        assert_eq!(error(world).await, Some("bad-package".to_owned()));
        // Several polls within the first pause.
        world.pass(50_000).await;
        let asked = requested(world);
        assert!(asked.len() > 3 && asked.iter().all(|path| path == DUMP));
        world.pass(6 * HOUR).await;
        let asked = requested(world);
        for path in ["one.zip", "two.zip"] {
            let times = asked.iter().filter(|it| *it == path).count();
            assert!((3..=8).contains(&times), "{times}");
        }
        // Another version is tried at once, and its pauses begin anew.
        write_bad(world, 1);
        poll_now(world).await;
        assert_eq!(times_requested(world, "one.zip"), 1);
        world.pass(1000 * 900).await;
        assert!(times_requested(world, "one.zip") > 0);
        assert_eq!(files(world), FIRST);
    });
}

/// What is stated of a package decides whether it is worth to be downloaded: its type, or where that is generic or missing its name.
#[test]
fn package_of_a_type_that_is_not_read_is_not_downloaded() {
    for (path, media_type, is_read) in [
        ("one.zip", Some("application/zip"), true),
        ("one.zip", Some("application/octet-stream"), true),
        ("one.tar.xz", Some("application/zip"), true),
        ("one.zip", Some("application/x-7z-compressed"), false),
        ("one.tar.xz", Some("application/octet-stream"), false),
        ("one.tar.xz", None, false),
    ] {
        with_dump(async |world| {
            let mut one = write_resources(world, path, &[0, 1, 2]);
            one.md.content.media_type = media_type.map(str::to_owned);
            write_dump(world, DUMP, &[one]);
            world.pass(1000).await;
            let context = format!("{path} {media_type:?}");
            assert_eq!(times_requested(world, path) > 0, is_read, "{context}");
            let expected = if is_read { 3 } else { 0 };
            assert_eq!(files(world).len(), expected, "{context}");
            let code = (!is_read).then(|| "unsupported-package".to_owned());
            assert_eq!(error(world).await, code, "{context}");
        });
    }
}

/// A package that is another one than its entry announces is not read.
#[test]
fn package_with_another_digest_is_not_read() {
    with_dump(async |world| {
        let one = write_resources(world, "one.zip", &[0, 1, 2]);
        let mut other = one.clone();
        other.md.content.hashes = write_resources(world, "other.zip", &[0]).md.content.hashes;
        write_dump(world, DUMP, &[other]);
        world.pass(1000).await;
        assert_eq!(files(world), []);
        assert_eq!(error(world).await, Some("digest-mismatch".to_owned()));
        write_dump(world, DUMP, &[one]);
        poll_now(world).await;
        assert_eq!((files(world), error(world).await), (FIRST.to_vec(), None));
    });
}

/// The work ends while a package is being read, and the Source replaces the package: what is on disk is of the older version. It is
/// downloaded anew, and in the end no file of a package is left.
#[test]
fn package_on_disk_is_not_taken_for_another_version() {
    let mut left = 0;
    for commit in 0..8 {
        for path in ["one.zip", "two.zip"] {
            let habits = Habits {
                validators: ServerValidators::Nothing,
                ..habits(ChangeLists::Absent)
            };
            simulate(habits, settings(), async |world| {
                offer(world, &[(Capability::ResourceDump, DUMP)]);
                let one = write_resources(world, "one.zip", &[0, 1, 2]);
                write_dump(world, DUMP, &[one]);
                world.act(&Act::FailCommit(commit));
                world.pass(1000).await;
                left += world.package_files();
                world.act(&Act::Change(0));
                world.pass(500).await;
                let other = write_resources(world, path, &[0, 1, 2]);
                write_dump(world, DUMP, &[other]);
                world.pass(5000).await;
                // A poll that needed the package has ended.
                assert_eq!(world.package_files(), 0, "{commit} {path}");
                poll_now(world).await;
                assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)], "{commit} {path}");
                assert_eq!(error(world).await, None, "{commit} {path}");
                assert_eq!(world.package_files(), 0, "{commit} {path}");
            });
        }
    }
    assert!(left > 0);
}

/// A server that is busy is asked for a package once more at once, and then with the next poll.
#[test]
fn package_is_tried_twice_in_a_poll() {
    with_dump(async |world| {
        let bytes = bytes_of(world, &[0, 1, 2]);
        let one = write_archive(world, "one.zip", bytes.clone());
        write_dump(world, DUMP, &[one]);
        world.write_status("one.zip", 503);
        world.pass(1000).await;
        assert_eq!(requested(world), [DUMP, "one.zip", "one.zip"]);
        world.write("one.zip", bytes);
        poll_now(world).await;
        assert_eq!((files(world), error(world).await), (FIRST.to_vec(), None));
    });
}

/// A package is downloaded on for as long as each try receives something of it.
#[test]
fn package_that_arrives_in_pieces_is_read() {
    with_dump(async |world| {
        let bytes = bytes_of(world, &[0, 1, 2]);
        let one = write_archive(world, "one.zip", bytes.clone());
        write_dump(world, DUMP, &[one]);
        world.write_pieces("one.zip", bytes.clone(), bytes.len() / 5);
        world.pass(1000).await;
        assert_eq!(times_requested(world, "one.zip"), 6);
        assert_eq!((files(world), error(world).await), (FIRST.to_vec(), None));
    });
}

/// An error of the database is none of a package or of a copy of a manifest: the work ends, and begins anew.
#[test]
fn resource_dump_is_read_wherever_the_database_fails() {
    for access in 0..12 {
        for fail in [Act::FailQuery(access), Act::FailCommit(access)] {
            with_list_and_dump(habits(ChangeLists::Absent), async |world| {
                let mut one = write_resources(world, "one.zip", &[0, 1, 2]);
                let head = head_now(world, Capability::ResourceDumpManifest);
                let copy = manifest(&head, resources(world, &[0, 1, 2]));
                world.write("copy.xml", copy);
                one.links.push(Link::new("contents", uri("copy.xml")));
                write_dump(world, DUMP, &[one]);
                world.act(&fail);
                world.pass(10_000).await;
                assert_eq!(files(world), FIRST, "{fail:?}");
                assert_eq!(error(world).await, None, "{fail:?}");
            });
        }
    }
}

/// The link of a Sitemap to a dump of version 0.1.
fn dump_link(path: &str) -> String {
    let uri = uri(path);
    format!("<xhtml:link href=\"{uri}\" rel=\"http://www.openarchives.org/rs/dump\"/>")
}

/// The package that a Sitemap names is read once, for the baseline; the Sitemap states what it does not have, and what follows.
#[test]
fn sitemap_is_read_after_the_dump_that_it_names() {
    simulate(
        habits(ChangeLists::Absent),
        draft_settings(),
        async |world| {
            let listed = world.listed();
            world.write(SITEMAP, document("", &(dump_link("one.zip") + &listed)));
            write_resources(world, "one.zip", &[0, 1]);
            world.pass(5000).await;
            assert_eq!((files(world), error(world).await), (FIRST.to_vec(), None));
            assert_eq!(world.requests().contents, 1);
            assert_eq!(times_requested(world, "one.zip"), 1);
            world.act(&Act::Change(0));
            world.pass(1000).await;
            let newer = world.listed();
            // The last one is an older version of the Sitemap.
            for (listed, expected) in [(newer, None), (listed, Some("older-resource-list"))] {
                world.write(SITEMAP, document("", &(dump_link("one.zip") + &listed)));
                poll_now(world).await;
                assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)]);
                assert_eq!(error(world).await.as_deref(), expected);
                assert_eq!(times_requested(world, "one.zip"), 0);
            }
        },
    );
}

/// A dump of version 0.1 that states a time in the future is not of that time: what it has does not undo a change that was read before it.
#[test]
fn dump_that_states_a_future_time_undoes_no_change() {
    simulate(
        habits(ChangeLists::Absent),
        draft_settings(),
        async |world| {
            let mut head = head_of(Capability::ResourceDumpManifest);
            head.md.at = Some("2030-01-01T00:00:00Z".parse().unwrap());
            let before_the_change = package(&head, resources(world, &[0, 1, 2]));
            world.act(&Act::Change(0));
            world.write("part.xml", document("", &world.listed()));
            // There is no baseline as long as neither the dump nor each part of the Sitemap can be read.
            world.write_status("one.zip", 404);
            world.write_status("other.xml", 404);
            let mut index = dump_link("one.zip");
            for part in ["part.xml", "other.xml"] {
                index += &format!("<sitemap><loc>{}</loc></sitemap>", uri(part));
            }
            let index = document("", &index).replace("urlset", "sitemapindex");
            world.write(SITEMAP, index);
            world.pass(5000).await;
            assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)]);
            assert_eq!(world.requests().packages, 0);
            world.write("one.zip", before_the_change);
            requested(world);
            let before = world.requests().contents;
            poll_now(world).await;
            assert!(times_requested(world, "one.zip") > 0);
            assert_eq!(files(world), [(0, 2), (1, 1), (2, 1)]);
            // The Sitemap would restore it.
            assert_eq!(world.requests().contents, before);
        },
    );
}
