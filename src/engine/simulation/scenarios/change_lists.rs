//! Change Lists: what leads from one to the next (indexes, pages, links, the Capability List), and what they cover together.

use resourcesync::{Capability, Entry, Head, Link, Root, SourceTime, write_document};

use super::super::documents::{self, head};
use super::super::handwritten::{Page, uri};
use super::super::packages::{PackageForm, PackageNo};
use super::super::source::DumpOffer;
use super::*;

const CAPABILITY_LIST: &str = "set0/capabilitylist.xml";

/// The interval that a Change List states; one that is open states no end.
type Stated = (SourceTime, Option<SourceTime>);

/// Lets the Capability List name the Resource List, and other documents.
fn offer_all(world: &World, others: &[(&str, Capability)]) {
    let mut list = Head::new(Root::Urlset, Capability::CapabilityList);
    let up = uri(".well-known/resourcesync");
    list.links.push(Link::new("up", up));
    let resources = ("set0/resourcelist.xml", Capability::ResourceList);
    let named = [&resources].into_iter().chain(others);
    let entries: Vec<Entry> = named
        .map(|(path, capability)| {
            let mut entry = Entry::new(uri(path));
            entry.md.capability = Some(capability.clone());
            entry
        })
        .collect();
    world.write(CAPABILITY_LIST, write_document(&list, &entries));
}

/// Lets the Capability List name the Resource List, and these Change Lists.
fn offer(world: &World, lists: &[&str]) {
    let lists: Vec<_> = lists
        .iter()
        .map(|&path| (path, Capability::ChangeList))
        .collect();
    offer_all(world, &lists);
}

/// What the Source has changed since a time, and before another.
pub(super) fn changes(world: &World, (from, until): Stated) -> Vec<Entry> {
    let scene = world.stage.scene();
    let source = &scene.source;
    let listed = source
        .changes
        .iter()
        .filter(|it| from <= it.at && until.is_none_or(|until| it.at < until));
    listed.map(|it| documents::change(source, it)).collect()
}

/// A Change List with these entries. `links`: relations and paths.
fn change_list((from, until): Stated, links: &[(&str, &str)], entries: &[Entry]) -> Vec<u8> {
    let mut head = head(Root::Urlset, Capability::ChangeList, 0);
    (head.md.from, head.md.until) = (Some(from), until);
    let links = links.iter();
    head.links
        .extend(links.map(|(rel, path)| Link::new(*rel, uri(path))));
    write_document(&head, entries)
}

/// Writes an open Change List that begins at that time, and has these entries.
pub(super) fn write_entries(world: &World, path: &str, from: SourceTime, entries: &[Entry]) {
    world.write(path, change_list((from, None), &[], entries));
}

/// Writes a Change List of all that has changed within its interval.
pub(super) fn write_list(world: &World, path: &str, stated: Stated, links: &[(&str, &str)]) {
    let entries = changes(world, stated);
    world.write(path, change_list(stated, links, &entries));
}

/// Writes an index of these Change Lists.
fn write_index(world: &World, path: &str, from: SourceTime, lists: &[(&str, Stated)]) {
    let mut head = head(Root::Sitemapindex, Capability::ChangeList, 0);
    head.md.from = Some(from);
    let lists = lists.iter().map(|(path, (from, until))| {
        let mut entry = Entry::new(uri(path));
        (entry.md.from, entry.md.until) = (Some(*from), *until);
        entry
    });
    world.write(path, write_document(&head, &lists.collect::<Vec<_>>()));
}

/// A resource changes, and a second passes. Returns the time after that.
pub(super) async fn change(world: &mut World, resource: ResourceNo) -> SourceTime {
    world.act(&Act::Change(resource));
    world.pass(1000).await;
    world.now()
}

/// The handwritten documents that a poll requests, but for the Capability List at its begin; one that is tried again at once
/// counts once.
pub(super) async fn poll_requests(world: &mut World) -> Vec<String> {
    world.take_requested();
    world.act(&poll());
    world.pass(1500).await;
    let mut requested = world.take_requested();
    requested.dedup();
    if requested.first().is_some_and(|it| it == CAPABILITY_LIST) {
        requested.remove(0);
    }
    requested
}

/// Whether the mirror is what the Source is.
pub(super) fn is_mirrored(world: &World) -> bool {
    world.stage.scene().differing().is_empty()
}

/// The mirror is what the Source is, and known to be so up to the last change of that resource.
async fn assert_synced(world: &World, last: ResourceNo) {
    assert!(is_mirrored(world), "{last}");
    assert_eq!(errors(world).await, [None], "{last}");
    assert_eq!(gaps(world).await, 0, "{last}");
    assert_eq!(claim(world).await, Some(world.changed_at(last)), "{last}");
}

/// A world that has read the Resource List and the open Change List `a.xml`, which has no entries. `run` gets the time at which
/// both begin.
fn begun(run: impl AsyncFnOnce(&mut World, SourceTime)) {
    begun_with(habits(ChangeLists::Absent), settings(), run);
}

pub(super) fn begun_with(
    habits: Habits,
    settings: Settings,
    run: impl AsyncFnOnce(&mut World, SourceTime),
) {
    simulate(habits, settings, async |world| {
        let begin = world.now();
        offer(world, &["a.xml"]);
        write_list(world, "a.xml", (begin, None), &[]);
        world.pass(5000).await;
        assert!(is_mirrored(world));
        run(world, begin).await;
    });
}

/// How the changes of two resources are listed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// In one list.
    Whole,
    /// In two pages.
    Pages,
    /// In two lists that an index names, which is offered.
    Index,
    /// In two lists that an index names, to which the closed one links, which is offered.
    LinkedIndex,
    /// In a closed list and the one after it, which are offered both.
    Offered,
}

const FORMS: [Form; 5] = [
    Form::Whole,
    Form::Pages,
    Form::Index,
    Form::LinkedIndex,
    Form::Offered,
];

impl Form {
    /// Has the first resource change, and then the second, and lists that from `begin` on. Returns where the last list begins.
    async fn list(self, world: &mut World, begin: SourceTime) -> SourceTime {
        let middle = change(world, 0).await;
        world.pass(1000).await;
        change(world, 1).await;
        let (first, second) = ((begin, Some(middle)), (middle, None));
        match self {
            Self::Whole => {}
            Self::Pages => {
                let entries = changes(world, first);
                let page = change_list((begin, None), &[("next", "b.xml")], &entries);
                world.write("a.xml", page);
            }
            Self::Index => {
                write_list(world, "c.xml", first, &[]);
                let lists = [("c.xml", first), ("b.xml", second)];
                write_index(world, "index.xml", begin, &lists);
                offer(world, &["index.xml"]);
            }
            Self::LinkedIndex => {
                write_list(world, "a.xml", first, &[("index", "index.xml")]);
                let lists = [("a.xml", first), ("b.xml", second)];
                write_index(world, "index.xml", begin, &lists);
            }
            Self::Offered => {
                write_list(world, "a.xml", first, &[]);
                offer(world, &["a.xml", "b.xml"]);
            }
        }
        self.write_last(world, begin, middle);
        middle
    }

    /// Writes the list, or the page, that may state more later.
    fn write_last(self, world: &World, begin: SourceTime, middle: SourceTime) {
        match self {
            Self::Whole => write_list(world, "a.xml", (begin, None), &[]),
            Self::Pages => {
                let entries = changes(world, (middle, None));
                world.write("b.xml", change_list((begin, None), &[], &entries));
            }
            Self::Index | Self::LinkedIndex | Self::Offered => {
                write_list(world, "b.xml", (middle, None), &[]);
            }
        }
    }
}

/// However changes are listed, all of them are found, and what is added later as well; of what is closed and known, nothing is
/// read again but a list that is offered, because only that leads to the others.
#[test]
fn changes_are_found_in_each_form_of_their_lists() {
    for form in FORMS {
        begun(async |world, begin| {
            let middle = form.list(world, begin).await;
            let requested = poll_requests(world).await;
            let first: &[&str] = match form {
                Form::Whole => &["a.xml"],
                Form::Pages => &["a.xml", "b.xml"],
                Form::Index => &["a.xml", "index.xml", "c.xml", "b.xml"],
                Form::LinkedIndex => &["a.xml", "index.xml", "a.xml", "b.xml"],
                Form::Offered => &["a.xml", CAPABILITY_LIST, "b.xml"],
            };
            assert_eq!(requested, first, "{form:?}");
            assert_synced(world, 1).await;
            change(world, 2).await;
            form.write_last(world, begin, middle);
            let requested = poll_requests(world).await;
            let second: &[&str] = match form {
                Form::Whole => &["a.xml"],
                Form::Pages => &["a.xml", "b.xml"],
                Form::Index => &["index.xml", "b.xml"],
                Form::LinkedIndex => &["a.xml", "index.xml", "b.xml"],
                Form::Offered => &["a.xml", "b.xml"],
            };
            assert_eq!(requested, second, "{form:?}");
            assert_synced(world, 2).await;
        });
    }
}

/// What has not changed is asked for, and not transferred again. Where the server states only when a document was modified,
/// that holds once the time distinguishes its versions: not within the second in which it was written.
#[test]
fn unchanged_documents_are_not_transferred_again() {
    for validators in [ServerValidators::Etag, ServerValidators::LastModified] {
        for form in FORMS {
            let habits = Habits {
                validators,
                ..habits(ChangeLists::Absent)
            };
            begun_with(habits, settings(), async |world, begin| {
                form.list(world, begin).await;
                for _ in 0..2 {
                    poll_requests(world).await;
                    world.pass(2000).await;
                }
                let before = world.requests();
                poll_requests(world).await;
                let now = world.requests();
                let found = (
                    now.documents - before.documents,
                    now.unchanged - before.unchanged,
                );
                assert!(found.0 > 1 && found.0 == found.1, "{form:?} {found:?}");
                assert_synced(world, 1).await;
            });
        }
    }
}

/// While a list or a page can't be read, the others are applied, and nothing is covered but by a closed list that is offered by
/// itself.
#[test]
fn list_that_cannot_be_read_holds_back_what_is_claimed() {
    for (form, status) in [
        (Form::Pages, 404),
        (Form::Pages, 503),
        (Form::Index, 404),
        (Form::Index, 503),
        (Form::LinkedIndex, 503),
    ] {
        begun(async |world, begin| {
            let middle = form.list(world, begin).await;
            world.write_status("b.xml", status);
            poll_requests(world).await;
            assert_eq!(version(world, 0), Some(2), "{form:?} {status}");
            assert!(errors(world).await[0].is_some(), "{form:?} {status}");
            let claimed = match form {
                Form::LinkedIndex => middle,
                _ => begin,
            };
            assert_eq!(claim(world).await, Some(claimed), "{form:?} {status}");
            change(world, 2).await;
            form.write_last(world, begin, middle);
            world.pass(10_000).await;
            assert_synced(world, 2).await;
        });
    }
}

/// A list may be gone that an index names to which a closed list links: that index is there, and the poll fails.
#[test]
fn list_of_a_linked_index_may_be_gone() {
    begun(async |world, begin| {
        Form::LinkedIndex.list(world, begin).await;
        world.write_status("b.xml", 404);
        let index = world.write_page("index.xml", Page::Status(404)).unwrap();
        poll_requests(world).await;
        assert!(has_notice(world, "dead-index").await);
        world.write_page("index.xml", index);
        poll_requests(world).await;
        assert!(!has_notice(world, "dead-index").await);
        assert!(errors(world).await[0].is_some());
    });
}

/// The lists that an index names next are requested before the one in hand is ingested, so that nothing waits for each of them
/// in turn.
#[test]
fn next_lists_of_an_index_are_requested_ahead() {
    for commit in 0..8 {
        begun(async |world, begin| {
            let second = change(world, 0).await;
            let third = change(world, 1).await;
            change(world, 2).await;
            let lists = [
                ("b.xml", (begin, Some(second))),
                ("c.xml", (second, Some(third))),
                ("d.xml", (third, None)),
            ];
            for (path, stated) in lists {
                write_list(world, path, stated, &[]);
            }
            write_index(world, "index.xml", begin, &lists);
            offer(world, &["index.xml"]);
            world.act(&Act::FailCommit(commit));
            let requested = poll_requests(world).await;
            if requested.iter().any(|path| path == "b.xml") {
                let all = ["a.xml", "index.xml", "b.xml", "c.xml", "d.xml"];
                assert_eq!(requested, all, "{commit}");
            }
            world.pass(5000).await;
            assert_synced(world, 2).await;
        });
    }
}

/// An index covers all from the begin of its first list to the end of its last one, also where that was read by itself before
/// and need not be read again: between two of its lists nothing has happened.
#[test]
fn index_covers_what_is_between_its_lists() {
    begun(async |world, begin| {
        let first = (begin, Some(change(world, 0).await));
        world.pass(1000).await;
        let opened = world.now();
        let second = (opened, Some(change(world, 1).await));
        let third = (world.now(), None);
        world.pass(1000).await;
        change(world, 2).await;
        world.write_status("first.xml", 503);
        write_list(world, "second.xml", second, &[]);
        write_list(world, "third.xml", third, &[]);
        let lists = [("first.xml", first), ("second.xml", second)];
        write_index(world, "index.xml", begin, &lists);
        offer(world, &["index.xml"]);
        poll_requests(world).await;
        assert!(errors(world).await[0].is_some());
        assert_eq!(claim(world).await, Some(begin));
        offer(world, &["second.xml", "third.xml"]);
        poll_requests(world).await;
        assert_eq!(gaps(world).await, 1);
        write_list(world, "first.xml", first, &[]);
        offer(world, &["index.xml"]);
        let requested = poll_requests(world).await;
        assert_eq!(requested, ["third.xml", "index.xml", "first.xml"]);
        assert_synced(world, 2).await;
    });
}

/// The index that a closed list links to may be gone, which a notice states: the Capability List names what follows. One that
/// is only unavailable may name other lists, so that the poll fails.
#[test]
fn dead_index_is_passed_over() {
    for (status, is_dead) in [(404, true), (410, true), (503, false)] {
        begun(async |world, begin| {
            let middle = change(world, 0).await;
            let (closed, open) = ((begin, Some(middle)), (middle, None));
            let links = [("index", "index.xml")];
            write_list(world, "a.xml", closed, &links);
            world.write_status("index.xml", status);
            poll_requests(world).await;
            assert_eq!(has_notice(world, "dead-index").await, is_dead, "{status}");
            assert_eq!(errors(world).await[0].is_none(), is_dead, "{status}");
            change(world, 1).await;
            write_list(world, "b.xml", open, &[]);
            offer(world, &["a.xml", "b.xml"]);
            let requested = poll_requests(world).await;
            assert_eq!(requested, ["a.xml", "index.xml", "b.xml"], "{status}");
            assert_synced(world, 1).await;
            assert_eq!(has_notice(world, "dead-index").await, is_dead, "{status}");
            let lists = [("a.xml", closed), ("b.xml", open)];
            write_index(world, "index.xml", begin, &lists);
            poll_requests(world).await;
            assert!(!has_notice(world, "dead-index").await, "{status}");
            assert_synced(world, 1).await;
        });
    }
}

/// What a closed list links to as its index may be no index: then the list covers its own interval, and the link leads nowhere.
#[test]
fn link_to_what_is_no_index_leads_nowhere() {
    begun(async |world, begin| {
        let closed = (begin, Some(change(world, 0).await));
        write_list(world, "a.xml", closed, &[("index", "b.xml")]);
        let open = (world.now(), None);
        change(world, 1).await;
        write_list(world, "b.xml", open, &[]);
        let requested = poll_requests(world).await;
        assert_eq!(requested, ["a.xml", "b.xml", CAPABILITY_LIST]);
        assert_eq!(version(world, 1), Some(1));
        assert_eq!(claim(world).await, closed.1);
        // The Capability List names what follows.
        offer(world, &["a.xml", "b.xml"]);
        poll_requests(world).await;
        assert_synced(world, 1).await;
    });
}

/// A list that the Capability List names no longer is read once more, for what was added to it; if it is gone or can't be read,
/// the one in its place counts alone.
#[test]
fn list_that_was_replaced_may_be_gone() {
    for status in [200, 404, 503] {
        begun(async |world, begin| {
            change(world, 0).await;
            write_list(world, "b.xml", (begin, None), &[]);
            if status != 200 {
                world.write_status("a.xml", status);
            }
            offer(world, &["b.xml"]);
            let requested = poll_requests(world).await;
            assert_eq!(requested, ["a.xml", "b.xml"], "{status}");
            assert_synced(world, 0).await;
            assert_eq!(poll_requests(world).await, ["b.xml"], "{status}");
        });
    }
}

/// An error of the database ends a poll, wherever it occurs, and is not taken for one of a document: the world watches over
/// that.
#[test]
fn database_error_ends_the_reading_of_change_lists() {
    for query in 0..12 {
        // A closed list leads to the Capability List once more.
        begun(async |world, begin| {
            Form::Offered.list(world, begin).await;
            world.act(&Act::FailQuery(query));
            poll_requests(world).await;
            world.pass(3000).await;
            assert_synced(world, 1).await;
        });
        // The list before is read once more.
        begun(async |world, begin| {
            change(world, 0).await;
            write_list(world, "b.xml", (begin, None), &[]);
            offer(world, &["b.xml"]);
            world.act(&Act::FailQuery(query));
            poll_requests(world).await;
            world.pass(3000).await;
            assert_synced(world, 0).await;
        });
    }
}

/// A list with a damaged entry moves nothing, and is an error at each poll until it is whole, also where an earlier version of
/// it was read.
#[test]
fn damaged_list_is_an_error_at_each_poll() {
    begun(async |world, begin| {
        let stated = (begin, None);
        change(world, 0).await;
        write_list(world, "a.xml", stated, &[]);
        poll_requests(world).await;
        assert_synced(world, 0).await;
        change(world, 1).await;
        change(world, 2).await;
        let whole = change_list(stated, &[], &changes(world, stated));
        let text = String::from_utf8(whole.clone()).unwrap();
        let damaged = text.replace("resource/1</loc>", "resource/1?a=1&b=2</loc>");
        assert_ne!(damaged, text);
        world.write("a.xml", damaged);
        for _ in 0..3 {
            poll_requests(world).await;
            assert_eq!(errors(world).await, [Some("bad-entries".to_owned())]);
            assert_eq!(claim(world).await, Some(world.changed_at(0)));
            assert_eq!(version(world, 2), Some(2));
        }
        world.write("a.xml", whole);
        poll_requests(world).await;
        assert_synced(world, 2).await;
    });
}

/// A closed list and the one after it leave out some time: nothing that is listed later will fill that, so that the Resource
/// List is read at once.
#[test]
fn hole_between_two_lists_is_filled_from_the_resource_list() {
    begun(async |world, begin| {
        let closed = change(world, 0).await;
        let opened = change(world, 2).await;
        change(world, 1).await;
        write_list(world, "a.xml", (begin, Some(closed)), &[]);
        write_list(world, "b.xml", (opened, None), &[]);
        offer(world, &["a.xml", "b.xml"]);
        world.act(&Act::WriteResourceList(0));
        poll_requests(world).await;
        assert!(is_mirrored(world));
        assert_eq!(gaps(world).await, 0);
    });
}

/// As between two lists, between a Change Dump, which is read because the list begins late, and that list.
#[test]
fn hole_between_a_dump_and_a_list_is_filled_from_the_resource_list() {
    let habits = Habits {
        change_dump: DumpOffer::Beside,
        ..habits(ChangeLists::Replaced)
    };
    begun_with(habits, settings(), async |world, begin| {
        world.act(&Act::Change(0));
        world.pass(1000).await;
        world.act(&Act::RollOver(0));
        let (key, closed) = {
            let scene = world.stage.scene();
            let list = &scene.source.published(0).lists[0];
            (list.key, list.until)
        };
        let opened = change(world, 2).await;
        change(world, 1).await;
        write_list(world, "b.xml", (opened, None), &[]);
        let mut dump = head(Root::Urlset, Capability::ChangeDump, 0);
        dump.md.from = Some(begin);
        let name = PackageNo::Changes(key).file_name(PackageForm::Archive);
        let mut package = Entry::new(uri(&format!("set0/{name}")));
        (package.md.from, package.md.until) = (Some(begin), closed);
        package.md.content.media_type = Some("application/zip".to_owned());
        world.write("dump.xml", write_document(&dump, &[package]));
        let offered = [
            ("b.xml", Capability::ChangeList),
            ("dump.xml", Capability::ChangeDump),
        ];
        offer_all(world, &offered);
        world.act(&Act::WriteResourceList(0));
        assert_eq!(poll_requests(world).await, ["a.xml", "b.xml", "dump.xml"]);
        assert_eq!(world.requests().packages, 1);
        assert!(is_mirrored(world));
        assert_eq!(gaps(world).await, 0);
    });
}

/// How many resources a poll requests.
async fn contents_of_poll(world: &mut World) -> u64 {
    let before = world.requests().contents;
    poll_requests(world).await;
    world.requests().contents - before
}

/// What the lists of an index do not have of what only a hub has stated causes no request: the Source was asked already.
#[test]
fn lists_of_an_index_are_not_asked_for_what_a_hub_has_stated() {
    for is_listed in [true, false] {
        begun_with(
            habits(ChangeLists::Absent),
            wary_settings(),
            async |world, begin| {
                change(world, 0).await;
                world.act(&Act::Publish(0, AT_ONCE));
                world.pass(5000).await;
                assert_eq!(version(world, 0), Some(2));
                if !is_listed {
                    world.stage.scene().source.withhold_last(0);
                }
                change(world, 1).await;
                let closed = (begin, Some(world.now()));
                let mut entries = changes(world, closed);
                if !is_listed {
                    entries.remove(0);
                }
                world.write("b.xml", change_list(closed, &[], &entries));
                write_index(world, "index.xml", begin, &[("b.xml", closed)]);
                offer(world, &["index.xml"]);
                let asked = contents_of_poll(world).await;
                assert_eq!(asked, 1, "{is_listed}");
            },
        );
    }
}

/// A page is a part of its list: what it does not have, another page may have, so that it contradicts no hub.
#[test]
fn page_does_not_contradict_what_a_hub_has_stated() {
    begun_with(
        habits(ChangeLists::Absent),
        wary_settings(),
        async |world, begin| {
            let middle = change(world, 0).await;
            world.act(&Act::Publish(0, AT_ONCE));
            world.pass(5000).await;
            change(world, 1).await;
            let first = changes(world, (begin, Some(middle)));
            let page = change_list((begin, None), &[("next", "b.xml")], &first);
            world.write("a.xml", page);
            let second = changes(world, (middle, None));
            world.write("b.xml", change_list((begin, None), &[], &second));
            assert_eq!(contents_of_poll(world).await, 1);
            assert_synced(world, 1).await;
        },
    );
}

/// Up to where the open list of an unchanged index reaches is not lost if the database fails once it has been read.
#[test]
fn open_list_of_an_unchanged_index_counts_wherever_the_database_fails() {
    for commit in 0..6 {
        begun(async |world, begin| {
            let middle = Form::Index.list(world, begin).await;
            poll_requests(world).await;
            assert_synced(world, 1).await;
            change(world, 2).await;
            write_list(world, "b.xml", (middle, None), &[]);
            world.act(&Act::FailCommit(commit));
            poll_requests(world).await;
            world.pass(5000).await;
            assert_synced(world, 2).await;
        });
    }
}
