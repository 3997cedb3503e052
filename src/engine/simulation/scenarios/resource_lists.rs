//! Resource Lists: the parts of an index, pages, lists without a time, plain Sitemaps, and what proves that a resource is gone.

use resourcesync::SourceTime;

use super::super::handwritten::uri;
use super::super::source::{DumpOffer, digest};
use super::*;

/// Where the Resource List is.
pub(super) const LIST: &str = "set0/resourcelist.xml";

/// Where the Capability List is, or the Sitemap or Resource List that stands for it.
pub(super) const CAPABILITIES: &str = "set0/capabilitylist.xml";

/// The head of a Resource List that does not state its time.
const UNTIMED: &str = "<rs:md capability=\"resourcelist\"/>";

/// Only Resource Lists: no document lists changes.
fn absent() -> Habits {
    habits(ChangeLists::Absent)
}

/// The document at the place of the Capability List is configured as a set, because it may be no Capability List.
pub(super) fn standalone_settings() -> Settings {
    Settings {
        configure: |source| source.sets.push(uri(CAPABILITIES)),
        ..settings()
    }
}

fn document(root: &str, attributes: &str, content: &str) -> String {
    format!(
        "<{root} {attributes} xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\" \
         xmlns:xhtml=\"http://www.w3.org/1999/xhtml\">{content}</{root}>"
    )
}

pub(super) fn urlset(content: &str) -> String {
    document("urlset", "", content)
}

fn index(content: &str) -> String {
    document("sitemapindex", "", content)
}

/// The head of a document of a capability, with its times.
pub(super) fn md(capability: &str, times: &[(&str, SourceTime)]) -> String {
    let times = times.iter();
    let times: String = times
        .map(|(name, time)| format!(" {name}=\"{time}\""))
        .collect();
    format!("<rs:md capability=\"{capability}\"{times}/>")
}

/// The head of a Resource List of that time.
fn of(at: SourceTime) -> String {
    md("resourcelist", &[("at", at)])
}

/// The link to the page after this one.
fn next(path: &str) -> String {
    format!("<rs:ln rel=\"next\" href=\"{}\"/>", uri(path))
}

/// The entry of an index.
fn part(path: &str) -> String {
    format!("<sitemap><loc>{}</loc></sitemap>", uri(path))
}

/// The entry of an index that states the type of what the part names.
fn typed_part(path: &str, media_type: &str) -> String {
    let uri = uri(path);
    format!("<sitemap><loc>{uri}</loc><rs:md type=\"{media_type}\"/></sitemap>")
}

/// The link of a Sitemap to a Change Set.
fn change_set(which: &str, path: &str) -> String {
    let uri = uri(path);
    format!("<xhtml:link href=\"{uri}\" rel=\"{which} http://www.openarchives.org/rs/changeset\"/>")
}

/// A Change Set of the last changes of resources.
fn changes(world: &World, resources: &[ResourceNo]) -> String {
    let entries = resources.iter().map(|&resource| {
        let (uri, at) = (
            uri(&format!("resource/{resource}")),
            world.changed_at(resource),
        );
        format!("<url><loc>{uri}</loc><lastmod rs:type=\"updated\">{at}</lastmod></url>")
    });
    document(
        "urlset",
        "rs:type=\"changeset\"",
        &entries.collect::<String>(),
    )
}

/// The entry of a resource as it is now, with its last change.
fn named(world: &World, resource: ResourceNo) -> String {
    let (uri, at) = (
        uri(&format!("resource/{resource}")),
        world.changed_at(resource),
    );
    format!("<url><loc>{uri}</loc><lastmod>{at}</lastmod></url>")
}

/// The same of several.
fn all_named(world: &World, resources: &[ResourceNo]) -> String {
    let resources = resources.iter();
    resources.map(|&resource| named(world, resource)).collect()
}

/// The entry of a resource that states nothing of it.
fn untold(resource: ResourceNo) -> String {
    format!(
        "<url><loc>{}</loc></url>",
        uri(&format!("resource/{resource}"))
    )
}

/// A second passes before the daemon works.
pub(super) fn wait(world: &World) {
    world.stage.set_moment(world.moment() + 1000);
}

/// The handwritten documents that a poll requests.
pub(super) async fn poll_requests(world: &mut World) -> Vec<String> {
    world.take_requested();
    poll_now(world).await;
    world.take_requested()
}

/// Pages that state no time are of the time of their newest entry, whichever page that is on.
#[test]
fn pages_without_times_are_as_new_as_their_newest_entry() {
    simulate(absent(), settings(), async |world| {
        wait(world);
        world.act(&Act::Change(1));
        wait(world);
        let first = UNTIMED.to_owned() + &next("p2.xml") + &all_named(world, &[0, 2]);
        world.write(LIST, urlset(&first));
        world.write("p2.xml", urlset(&(UNTIMED.to_owned() + &named(world, 1))));
        world.pass(5000).await;
        assert_eq!(claim(world).await, Some(world.changed_at(1)));
        assert_eq!(versions(world), [Some(1), Some(2), Some(1)]);
    });
}

/// A list is as old as its oldest page, also where that has not changed since it was read.
#[test]
fn list_is_as_old_as_its_oldest_page() {
    simulate(absent(), settings(), async |world| {
        wait(world);
        let old = world.now();
        world.write("p2.xml", urlset(&(of(old) + &all_named(world, &[1, 2]))));
        wait(world);
        world.act(&Act::Change(1));
        wait(world);
        for round in 0..3 {
            let first = of(world.now()) + &next("p2.xml") + &named(world, 0);
            world.write(LIST, urlset(&first));
            poll_now(world).await;
            assert_eq!(claim(world).await, Some(old), "{round}");
        }
        let new = world.now();
        world.write("p2.xml", urlset(&(of(new) + &all_named(world, &[1, 2]))));
        world.pass(1000).await;
        let first = of(world.now()) + &next("p2.xml") + &named(world, 0);
        world.write(LIST, urlset(&first));
        poll_now(world).await;
        assert_eq!(claim(world).await, Some(new));
        assert_eq!(versions(world), [Some(1), Some(2), Some(1)]);
    });
}

/// An older page names what was deleted since, as a newer notification states: it does not come back, and nothing is requested.
#[test]
fn older_page_does_not_restore_what_was_deleted_since() {
    simulate(absent(), settings(), async |world| {
        world.pass(5000).await;
        let second = of(world.now()) + &all_named(world, &[1, 2]);
        world.write("p2.xml", urlset(&second));
        world.pass(1000).await;
        world.act(&Act::Delete(1));
        world.pass(10).await;
        world.act(&Act::Publish(0, AT_ONCE));
        world.pass(1000).await;
        assert_eq!(versions(world), [Some(1), None, Some(1)]);
        let first = of(world.now()) + &next("p2.xml") + &named(world, 0);
        world.write(LIST, urlset(&first));
        let contents = world.requests().contents;
        poll_now(world).await;
        assert_eq!(world.requests().contents, contents);
        assert_eq!(versions(world), [Some(1), None, Some(1)]);
        assert!(world.database().await.tasks.is_empty());
    });
}

/// What pages of different times do not name may have moved while they were read. It is deleted once two whole readings have not named
/// it; the first reading was none, because it skipped what had not changed.
#[test]
fn absence_from_pages_of_different_times_is_confirmed() {
    simulate(absent(), settings(), async |world| {
        world.pass(5000).await;
        world.act(&Act::Delete(1));
        world.pass(1000).await;
        world.write("p2.xml", urlset(&(of(world.now()) + &named(world, 2))));
        world.pass(1000).await;
        let first = of(world.now()) + &next("p2.xml") + &named(world, 0);
        world.write(LIST, urlset(&first));
        let requested = poll_requests(world).await;
        assert_eq!(requested, [LIST, "p2.xml"].repeat(3));
        assert_eq!(versions(world), [Some(1), None, Some(1)]);
        // Pages of one time need no second reading.
        world.act(&Act::Delete(2));
        world.pass(1000).await;
        let at = of(world.now());
        world.write("p2.xml", urlset(&at));
        world.write(LIST, urlset(&(at + &next("p2.xml") + &named(world, 0))));
        assert_eq!(poll_requests(world).await, [LIST, "p2.xml"]);
        assert_eq!(versions(world), [Some(1), None, None]);
    });
}

/// A resource moves from one page to the other while they are read: it is deleted only if none of two readings in a row has named it.
#[test]
fn resource_that_moves_between_pages_stays() {
    simulate(absent(), settings(), async |world| {
        world.pass(5000).await;
        world.act(&Act::Delete(2));
        world.pass(1000).await;
        world.write("p2.xml", urlset(&(of(world.now()) + &named(world, 0))));
        world.pass(1000).await;
        let without = of(world.now()) + &next("p2.xml");
        let with = without.clone() + &named(world, 1);
        let [without, with] = [urlset(&without), urlset(&with)];
        let pages = [without.clone(), with.clone(), without, with];
        world.write_in_turn(LIST, pages);
        poll_now(world).await;
        assert_eq!(versions(world), [Some(1), Some(1), None]);
    });
}

/// A list that does not state what it is may name only a part of what there is: nothing is deleted, and the status says why.
#[test]
fn list_that_does_not_state_what_it_is_proves_no_absence() {
    simulate(absent(), settings(), async |world| {
        world.pass(5000).await;
        world.act(&Act::Delete(1));
        world.pass(1000).await;
        world.write(LIST, urlset(&all_named(world, &[0, 2])));
        poll_now(world).await;
        assert_eq!(versions(world), [Some(1); 3]);
        assert_eq!(
            errors(world).await,
            [Some("unstated-capability".to_owned())]
        );
        let stated = of(world.now()) + &all_named(world, &[0, 2]);
        world.write(LIST, urlset(&stated));
        poll_now(world).await;
        assert_eq!(versions(world), [Some(1), None, Some(1)]);
        assert_eq!(errors(world).await, [None]);
    });
}

/// A document without entries that states nothing is what a Source serves that has lost its data: it is no list, and moves nothing.
#[test]
fn empty_document_that_states_nothing_is_no_list() {
    simulate(absent(), settings(), async |world| {
        world.pass(5000).await;
        let before = claim(world).await;
        world.act(&Act::Delete(1));
        world.pass(1000).await;
        world.write(LIST, urlset(""));
        poll_now(world).await;
        assert_eq!(errors(world).await, [Some("empty-document".to_owned())]);
        assert_eq!(claim(world).await, before);
        assert_eq!(versions(world), [Some(1); 3]);
    });
    // A set of a Sitemap may have no resources at all.
    simulate(absent(), standalone_settings(), async |world| {
        world.write(CAPABILITIES, urlset(&all_named(world, &[0, 1, 2])));
        world.pass(5000).await;
        world.write(CAPABILITIES, urlset(""));
        poll_now(world).await;
        assert_eq!(errors(world).await, [None]);
        assert_eq!(versions(world), [Some(1); 3]);
    });
}

/// The same of a part of an index: what it named stays.
#[test]
fn empty_part_that_states_nothing_proves_no_absence() {
    simulate(absent(), settings(), async |world| {
        world.write(
            "a.xml",
            urlset(&(UNTIMED.to_owned() + &all_named(world, &[0, 1]))),
        );
        world.write("b.xml", urlset(&(UNTIMED.to_owned() + &named(world, 2))));
        let parts = part("a.xml") + &part("b.xml");
        world.write(LIST, index(&(of(world.now()) + &parts)));
        world.pass(5000).await;
        assert_eq!(versions(world), [Some(1); 3]);
        world.write("b.xml", urlset(""));
        world.write(LIST, index(&(of(world.now()) + &parts)));
        poll_now(world).await;
        assert_eq!(errors(world).await, [Some("empty-document".to_owned())]);
        assert_eq!(versions(world), [Some(1); 3]);
    });
}

/// A Resource List that stands for a set proves what is gone, unless a Change Set or a dump of the draft belongs to it, which does not say
/// that a document names everything.
#[test]
fn list_that_stands_for_a_set_proves_absence_unless_it_names_a_change_set() {
    for names in [false, true] {
        simulate(absent(), standalone_settings(), async |world| {
            let link = if names {
                change_set("current", "a.xml")
            } else {
                String::new()
            };
            world.write("a.xml", changes(world, &[0]));
            let head = of(world.now()) + &link;
            world.write(
                CAPABILITIES,
                urlset(&(head + &all_named(world, &[0, 1, 2]))),
            );
            world.pass(5000).await;
            assert_eq!(versions(world), [Some(1); 3]);
            world.act(&Act::Delete(1));
            world.pass(1000).await;
            let head = of(world.now()) + &link;
            world.write(CAPABILITIES, urlset(&(head + &all_named(world, &[0, 2]))));
            world.pass(2 * HOUR).await;
            assert_eq!(version(world, 1).is_some(), names);
        });
    }
}

/// Nothing but a plain Sitemap states its resources: an entry without a time is checked, although the newest time of the Sitemap is older
/// than what is known of the resource.
#[test]
fn plain_sitemap_is_never_older_than_what_is_known() {
    simulate(absent(), standalone_settings(), async |world| {
        wait(world);
        world.act(&Act::Change(1));
        wait(world);
        world.write(CAPABILITIES, urlset(&all_named(world, &[0, 1, 2])));
        world.pass(5000).await;
        assert_eq!(versions(world), [Some(1), Some(2), Some(1)]);
        world.act(&Act::Change(1));
        world.pass(1000).await;
        world.write(
            CAPABILITIES,
            urlset(&(all_named(world, &[0, 2]) + &untold(1))),
        );
        poll_now(world).await;
        assert_eq!(versions(world), [Some(1), Some(3), Some(1)]);
    });
}

/// Entries that state nothing are requested again as soon as their list is new; where nothing is subscribed to, all of them at once.
#[test]
fn untold_entries_of_a_new_list_are_checked_at_once() {
    let settings = Settings {
        download: 0,
        ..settings()
    };
    simulate(absent(), settings, async |world| {
        world.pass(5000).await;
        (0..3).for_each(|resource| world.act(&Act::Change(resource)));
        world.pass(1000).await;
        let entries: String = (0..3).map(untold).collect();
        world.write(LIST, urlset(&(of(world.now()) + &entries)));
        world.act(&poll());
        world.pass(50).await;
        assert_eq!(versions(world), [Some(2); 3]);
    });
}

/// A resource that two parts named: one that is skipped because it has not changed names it still. It is deleted once none does.
#[test]
fn resource_of_two_parts_is_deleted_once_none_names_it() {
    simulate(absent(), settings(), async |world| {
        let write = |world: &World, path: &str, resources: &[ResourceNo]| {
            world.write(
                path,
                urlset(&(UNTIMED.to_owned() + &all_named(world, resources))),
            );
            let parts = part("a.xml") + &part("b.xml");
            world.write(LIST, index(&(of(world.now()) + &parts)));
        };
        write(world, "a.xml", &[0, 1]);
        write(world, "b.xml", &[1, 2]);
        world.pass(5000).await;
        assert_eq!(versions(world), [Some(1); 3]);
        write(world, "a.xml", &[0]);
        assert_eq!(poll_requests(world).await, [LIST, "a.xml", "b.xml"]);
        assert_eq!(versions(world), [Some(1); 3]);
        world.act(&Act::Delete(1));
        world.pass(1000).await;
        write(world, "b.xml", &[2]);
        poll_now(world).await;
        assert_eq!(versions(world), [Some(1), None, Some(1)]);
    });
}

/// Parts that are unavailable: after some of them the rest is left to another poll, because it is not the part. Those that are gone are
/// passed over, all of them.
#[test]
fn reading_ends_after_many_unavailable_parts() {
    for (status, expected) in [(503, 4), (404, 9)] {
        simulate(absent(), settings(), async |world| {
            world.pass(5000).await;
            let paths: Vec<String> = (0..9).map(|number| format!("p{number}.xml")).collect();
            paths
                .iter()
                .for_each(|path| world.write_status(path, status));
            let parts: String = paths.iter().map(|path| part(path)).collect();
            world.write(LIST, index(&(of(world.now()) + &parts)));
            world.take_requested();
            world.act(&poll());
            world.pass(100).await;
            let requested = world.take_requested();
            let requested = paths.iter().filter(|path| requested.contains(path));
            assert_eq!(requested.count(), expected, "{status}");
            assert!(errors(world).await[0].is_some(), "{status}");
            assert_eq!(versions(world), [Some(1); 3], "{status}");
        });
    }
}

/// An index names a part twice in a row: it is requested once.
#[test]
fn part_that_is_named_twice_is_requested_once() {
    simulate(absent(), settings(), async |world| {
        world.write(
            "a.xml",
            urlset(&(UNTIMED.to_owned() + &all_named(world, &[0, 1, 2]))),
        );
        let parts = part("a.xml").repeat(2);
        world.write(LIST, index(&(of(world.now()) + &parts)));
        world.pass(5000).await;
        assert_eq!(world.take_requested(), [LIST, "a.xml"]);
        assert_eq!(versions(world), [Some(1); 3]);
    });
}

/// A part of which the index states that nothing in it is selected is not even requested, neither in its turn nor before.
#[test]
fn part_that_is_ruled_out_is_not_requested() {
    simulate(absent(), settings(), async |world| {
        world.act(&Act::Order(Order::Restart {
            filtering: Filtering::Select,
        }));
        world.act(&Act::Change(4));
        wait(world);
        world.write(
            "a.xml",
            urlset(&(UNTIMED.to_owned() + &all_named(world, &[0, 1, 2]))),
        );
        world.write("b.xml", urlset(&(UNTIMED.to_owned() + &named(world, 4))));
        let parts = typed_part("a.xml", "application/pdf") + &typed_part("b.xml", "text/csv");
        world.write(LIST, index(&(of(world.now()) + &parts)));
        world.pass(5000).await;
        assert_eq!(world.take_requested(), [LIST, "a.xml"]);
        assert_eq!(versions(world), [Some(1); 3]);
    });
}

/// A part counts as read only if all of its entries are stored: where a commit fails, none of them is left out later.
#[test]
fn part_of_which_a_commit_fails_is_read_again() {
    for commits in 0..14 {
        simulate(absent(), settings(), async |world| {
            let many = named(world, 0).repeat(1000);
            let entries = many.clone() + &all_named(world, &[1, 2]) + &many;
            world.write("a.xml", urlset(&(UNTIMED.to_owned() + &entries)));
            world.write(LIST, index(&(of(world.now()) + &part("a.xml"))));
            world.act(&Act::FailCommit(commits));
            world.pass(20_000).await;
            assert_eq!(versions(world), [Some(1); 3], "{commits}");
        });
    }
}

/// The first part of a Sitemap index that names a Change Set stands for the Capability List: it is polled for what it names, and where it is
/// gone, another part may.
#[test]
fn part_of_a_sitemap_names_the_change_set() {
    simulate(absent(), standalone_settings(), async |world| {
        world.write("x.xml", changes(world, &[0]));
        world.write("y.xml", changes(world, &[1]));
        let first = change_set("current", "x.xml") + &all_named(world, &[0, 1]);
        world.write("a.xml", urlset(&first));
        let second = change_set("current", "y.xml") + &named(world, 2);
        world.write("b.xml", urlset(&second));
        world.write("c.xml", urlset(&named(world, 0)));
        let parts = part("c.xml") + &part("a.xml") + &part("b.xml");
        world.write(CAPABILITIES, index(&(UNTIMED.to_owned() + &parts)));
        world.pass(5000).await;
        let requested = world.take_requested();
        assert!(requested.contains(&"x.xml".to_owned()), "{requested:?}");
        assert_eq!(poll_requests(world).await[..2], ["a.xml", "x.xml"]);
        world.act(&Act::Change(2));
        world.pass(1000).await;
        let before = change_set("prev", "x.xml") + "<url>";
        let current = changes(world, &[0, 2]).replacen("<url>", &before, 1);
        world.write("z.xml", current);
        // It may have been written before the index was read: only a Sitemap that is older than it was is an old copy.
        let written = world.changed_at(0);
        let written = format!("<xhtml:meta name=\"DCTERMS.modified\" content=\"{written}\"/>");
        let first = change_set("current", "z.xml") + &written + &all_named(world, &[0, 1]);
        world.write("a.xml", urlset(&first));
        let requested = poll_requests(world).await;
        assert!(requested.contains(&"z.xml".to_owned()), "{requested:?}");
        assert!(!requested.contains(&"y.xml".to_owned()), "{requested:?}");
        assert_eq!(version(world, 2), Some(2));
        world.write_status("a.xml", 404);
        world.write("b.xml", urlset(&(second + &all_named(world, &[0, 1]))));
        poll_now(world).await;
        let requested = poll_requests(world).await;
        assert!(requested.contains(&"y.xml".to_owned()), "{requested:?}");
        assert_eq!(versions(world), [Some(1), Some(1), Some(2)]);
    });
}

/// Most of a package is needed, or little: it is fetched, or the resources one by one, as the copy of its manifest shows.
#[test]
fn package_is_fetched_where_most_of_it_is_needed() {
    let habits = Habits {
        resource_dump: DumpOffer::InPlace,
        manifest_copies: true,
        ..absent()
    };
    simulate(habits, settings(), async |world| {
        world.pass(10_000).await;
        for (changed, packages, contents) in [(&[0][..], 0, 1), (&[1, 2], 1, 0)] {
            changed.iter().for_each(|&it| world.act(&Act::Change(it)));
            world.pass(1000).await;
            world.act(&Act::WriteResourceDump(0));
            let before = world.requests();
            poll_now(world).await;
            let requests = world.requests();
            assert_eq!(requests.packages - before.packages, packages, "{changed:?}");
            assert_eq!(requests.contents - before.contents, contents, "{changed:?}");
        }
        assert_eq!(versions(world), [Some(2); 3]);
    });
}

/// Of a package of changes only those count that are news.
#[test]
fn package_of_changes_is_fetched_for_its_news() {
    let habits = Habits {
        change_dump: DumpOffer::InPlace,
        manifest_copies: true,
        ..habits(ChangeLists::Open)
    };
    simulate(habits, settings(), async |world| {
        world.pass(10_000).await;
        for changed in [&[0, 1, 2][..], &[0]] {
            for &resource in changed {
                world.act(&Act::Change(resource));
                world.pass(1000).await;
            }
            world.act(&Act::WriteChangeLists(0));
            let before = world.requests();
            poll_now(world).await;
            let requests = world.requests();
            assert_eq!(requests.packages - before.packages, 1, "{changed:?}");
            assert_eq!(requests.contents, before.contents, "{changed:?}");
        }
        assert_eq!(versions(world), [Some(3), Some(2), Some(2)]);
    });
}

/// What a manifest announces to have expired needs no bytes.
#[test]
fn expired_entries_of_a_package_need_nothing_of_it() {
    let habits = Habits {
        change_dump: DumpOffer::InPlace,
        manifest_copies: true,
        ..habits(ChangeLists::Open)
    };
    simulate(habits, settings(), async |world| {
        world.pass(10_000).await;
        let begin = world.now();
        world.act(&Act::Change(0));
        world.act(&Act::Delete(1));
        world.act(&Act::Delete(2));
        world.pass(10_000).await;
        world.act(&Act::WriteChangeLists(0));
        let head = md("changedump-manifest", &[("from", begin)]);
        let hash = digest(0, 2);
        let at = world.changed_at(0);
        let uri = |resource| uri(&format!("resource/{resource}"));
        let mut entries = format!(
            "<url><loc>{}</loc><rs:md change=\"updated\" datetime=\"{at}\" hash=\"{hash}\"/></url>",
            uri(0)
        );
        for resource in [1, 2] {
            entries += &format!(
                "<url><loc>{}</loc><expires>{at}</expires>\
                 <rs:md change=\"updated\" datetime=\"{at}\"/></url>",
                uri(resource)
            );
        }
        world.write("set0/changes1.manifest", urlset(&(head + &entries)));
        let before = world.requests();
        poll_now(world).await;
        let requests = world.requests();
        assert_eq!(requests.packages, before.packages);
        assert_eq!(requests.contents - before.contents, 1);
        assert_eq!(versions(world), [Some(2), None, None]);
    });
}

/// The batches of a long list are committed while the next ones are read: a list of which one failed is read again.
#[test]
fn long_list_is_read_again_wherever_a_commit_fails() {
    for commit in 0..8 {
        simulate(absent(), settings(), async |world| {
            world.pass(5000).await;
            world.act(&Act::Change(1));
            world.pass(10).await;
            // The first batch alone has what has changed.
            let entries = [
                named(world, 1),
                named(world, 0).repeat(1000),
                named(world, 2),
            ];
            world.write(
                LIST,
                urlset(&format!("{}{}", of(world.now()), entries.concat())),
            );
            world.act(&Act::FailCommit(commit));
            for _ in 0..2 {
                poll_now(world).await;
            }
            assert_eq!(versions(world), [Some(1), Some(2), Some(1)], "{commit}");
        });
    }
}
