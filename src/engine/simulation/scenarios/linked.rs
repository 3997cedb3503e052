//! Resources that are fetched because the entries of others link to them, as the configuration has it. Those of the simulated
//! Source are created late: no document lists them.

use ChangeKind::{Deleted, Updated};
use resourcesync::{Capability, Entry, Head, Link, Root, SourceTime, write_document};
use resyncd_core::{LinkRules, MediaRange};
use url::Url;

use super::super::handwritten::uri;
use super::super::source::digest;
use super::notifications::{announce, announce_of, begun, front, stated};
use super::*;
use crate::config::Filter;

/// Metadata records are followed, and representations as plain text.
fn following() -> Settings {
    Settings {
        configure: |source| {
            let text = MediaRange::parse("text/plain").unwrap();
            source.filter = Filter::everything().following(LinkRules::new(true, vec![text]));
        },
        ..settings()
    }
}

/// The resource that only links name.
const LINKED: ResourceNo = 3;

fn describedby() -> Link {
    Link::new("describedby", uri(&format!("resource/{LINKED}")))
}

/// The entry of an update with a link.
fn naming(resource: ResourceNo, at: SourceTime, link: Link) -> Entry {
    let mut entry = stated(resource, Updated, at);
    entry.links.push(link);
    entry
}

impl World {
    /// The Source changes a resource; returns when.
    async fn owner_changes(&mut self, resource: ResourceNo) -> SourceTime {
        self.pass(1000).await;
        self.act(&Act::Change(resource));
        self.pass(10).await;
        self.changed_at(resource)
    }

    /// The Source changes the linked resource, and no document says so.
    async fn linked_changes(&mut self) -> SourceTime {
        self.pass(1000).await;
        self.act(&Act::ChangeLate(LINKED));
        self.pass(10).await;
        self.changed_at(LINKED)
    }

    async fn linked_is_deleted(&mut self) -> SourceTime {
        self.pass(1000).await;
        self.act(&Act::DeleteLate(LINKED));
        self.pass(10).await;
        self.changed_at(LINKED)
    }

    /// A hub announces changes. Returns how many resources are requested then.
    async fn requests_after(&mut self, entries: &[Entry]) -> u64 {
        let before = self.requests().contents;
        announce(self, entries).await;
        self.pass(2000).await;
        self.requests().contents - before
    }
}

/// A world whose linked resource was fetched because of the first one.
fn linked(run: impl AsyncFnOnce(&mut World)) {
    begun(habits(ChangeLists::Open), following(), async |world| {
        world.linked_changes().await;
        let at = world.owner_changes(0).await;
        let requests = world.requests_after(&[naming(0, at, describedby())]).await;
        assert_eq!((requests, version(world, LINKED)), (2, Some(1)));
        run(world).await;
    });
}

/// What the rules select is fetched, and nothing else. A metadata record without a type is one only at a host of the Source:
/// elsewhere it is the name of a format.
#[test]
fn links_are_followed_as_configured() {
    let alternate = |media_type: &str| {
        let mut link = Link::new("alternate", describedby().href);
        link.content.media_type = Some(media_type.to_owned());
        link
    };
    let elsewhere = Url::parse("http://elsewhere.example/format").unwrap();
    let elsewhere = Link::new("describedby", elsewhere);
    for (settings, link, is_followed) in [
        (following(), describedby(), true),
        (following(), alternate("text/plain"), true),
        (following(), alternate("text/html"), false),
        (following(), elsewhere, false),
        (settings(), describedby(), false),
    ] {
        begun(habits(ChangeLists::Open), settings, async |world| {
            world.linked_changes().await;
            let at = world.owner_changes(0).await;
            let entry = naming(0, at, link.clone());
            let requests = world.requests_after(&[entry]).await;
            let found = (requests, version(world, LINKED));
            let expected = if is_followed { (2, Some(1)) } else { (1, None) };
            assert_eq!(found, expected, "{link:?}");
        });
    }
}

/// What was modified by the time that its link states is not fetched again, whenever its owner changes. A time that can't be
/// true counts as none: it may have changed with its owner.
#[test]
fn linked_resource_is_fetched_again_if_it_may_have_changed() {
    let never = SourceTime::from_micros(0);
    let far = SourceTime::from_micros(4_000_000_000_000_000);
    for (is_stated, time) in [
        (true, None),
        (false, None),
        (false, Some(never)),
        (false, Some(far)),
    ] {
        begun(habits(ChangeLists::Open), following(), async |world| {
            let modified = world.linked_changes().await;
            let mut link = describedby();
            link.modified = if is_stated { Some(modified) } else { time };
            let at = world.owner_changes(0).await;
            let requests = world.requests_after(&[naming(0, at, link.clone())]).await;
            assert_eq!((requests, version(world, LINKED)), (2, Some(1)));
            // What the link states then is no longer true.
            world.linked_changes().await;
            let at = world.owner_changes(0).await;
            let requests = world.requests_after(&[naming(0, at, link)]).await;
            let found = (requests, version(world, LINKED));
            let expected = if is_stated {
                (1, Some(1))
            } else {
                (2, Some(2))
            };
            assert_eq!(found, expected, "{is_stated} {time:?}");
        });
    }
}

/// Of two entries that state different bytes the later one counts.
#[test]
fn link_of_an_older_representation_is_not_followed() {
    for is_later in [true, false] {
        begun(habits(ChangeLists::Open), following(), async |world| {
            let before = world.now();
            world.linked_changes().await;
            let second = world.linked_changes().await;
            let mut link = describedby();
            link.modified = Some(second);
            link.content.hashes = vec![digest(LINKED, 2)];
            let at = world.owner_changes(0).await;
            let requests = world.requests_after(&[naming(0, at, link.clone())]).await;
            assert_eq!((requests, version(world, LINKED)), (2, Some(2)));
            // The same bytes are not requested, whatever the time.
            link.modified = Some(world.now());
            let at = world.owner_changes(0).await;
            let requests = world.requests_after(&[naming(0, at, link.clone())]).await;
            assert_eq!((requests, version(world, LINKED)), (1, Some(2)));
            let (time, version_no) = if is_later {
                (world.linked_changes().await, 3)
            } else {
                (before, 1)
            };
            link.modified = Some(time);
            link.content.hashes = vec![digest(LINKED, version_no)];
            let at = world.owner_changes(1).await;
            let requests = world.requests_after(&[naming(1, at, link)]).await;
            let found = (requests, version(world, LINKED));
            let expected = if is_later { (2, Some(3)) } else { (1, Some(2)) };
            assert_eq!(found, expected, "{is_later}");
        });
    }
}

/// A later entry that links to a resource which is being fetched has it fetched once more: it may have changed since. An
/// earlier one does not.
#[test]
fn link_of_a_resource_that_is_being_fetched_counts_if_it_is_later() {
    for is_later in [true, false] {
        let slow = Settings {
            download: 5000,
            ..following()
        };
        begun(habits(ChangeLists::Open), slow, async |world| {
            world.linked_changes().await;
            // No document lists it yet.
            world.act(&Act::ChangeLate(1));
            let earlier = world.changed_at(1);
            let at = world.owner_changes(0).await;
            announce(world, &[naming(0, at, describedby())]).await;
            world.pass(100).await;
            world.linked_changes().await;
            let entry = if is_later {
                let at = world.owner_changes(1).await;
                naming(1, at, describedby())
            } else {
                naming(1, earlier, describedby())
            };
            announce(world, &[entry]).await;
            world.pass(20_000).await;
            let expected = if is_later { 2 } else { 1 };
            assert_eq!(version(world, LINKED), Some(expected), "{is_later}");
        });
    }
}

/// A change that states its deletion counts, unless a later entry names it that did not before.
#[test]
fn linked_resource_whose_deletion_is_stated_is_restored_by_a_later_link() {
    // An entry that has named it before.
    linked(async |world| {
        let deletion = stated(LINKED, Deleted, world.linked_is_deleted().await);
        let at = world.owner_changes(0).await;
        let entries = [deletion, naming(0, at, describedby())];
        let requests = world.requests_after(&entries).await;
        assert_eq!((requests, version(world, LINKED)), (1, None));
    });
    // A new one, and it was created again.
    linked(async |world| {
        let deletion = stated(LINKED, Deleted, world.linked_is_deleted().await);
        world.linked_changes().await;
        let at = world.owner_changes(1).await;
        let entries = [deletion, naming(1, at, describedby())];
        let requests = world.requests_after(&entries).await;
        assert_eq!((requests, version(world, LINKED)), (2, Some(3)));
    });
    // A new one that is older than the deletion. The document has no order.
    linked(async |world| {
        let at = world.owner_changes(1).await;
        let deletion = stated(LINKED, Deleted, world.linked_is_deleted().await);
        let last = stated(2, Updated, world.owner_changes(2).await);
        let entries = [deletion, naming(1, at, describedby()), last];
        let requests = world.requests_after(&entries).await;
        assert_eq!((requests, version(world, LINKED)), (2, None));
    });
}

/// What was deleted is restored by a later entry that names it, or by one that did not before; not by an earlier one that is
/// read again.
#[test]
fn linked_resource_that_was_deleted_is_restored_by_a_later_link() {
    linked(async |world| {
        let linked_at = world.changed_at(0);
        let deletion = stated(LINKED, Deleted, world.linked_is_deleted().await);
        let requests = world.requests_after(std::slice::from_ref(&deletion)).await;
        assert_eq!((requests, version(world, LINKED)), (0, None));
        world.linked_changes().await;
        // Read again in a Change List.
        let mut head = Head::new(Root::Urlset, Capability::ChangeList);
        head.md.from = Some(world.stage.scene().source.stamp(100_000));
        let up = Link::new("up", uri("set0/capabilitylist.xml"));
        head.links.push(up);
        let entries = [naming(0, linked_at, describedby()), deletion];
        world.write("set0/changes1.xml", write_document(&head, &entries));
        let before = world.requests().contents;
        world.act(&poll());
        world.pass(5000).await;
        let requests = world.requests().contents - before;
        assert_eq!((requests, version(world, LINKED)), (0, None));
        let at = world.owner_changes(0).await;
        let requests = world.requests_after(&[naming(0, at, describedby())]).await;
        assert_eq!((requests, version(world, LINKED)), (2, Some(3)));
    });
}

/// What no link names any more is deleted, unless the next notification names it again: that follows from the end of the first one.
#[test]
fn linked_resource_that_is_named_no_more_is_deleted() {
    linked(async |world| {
        world.linked_is_deleted().await;
        let at = world.owner_changes(0).await;
        let requests = world.requests_after(&[stated(0, Updated, at)]).await;
        assert_eq!((requests, version(world, LINKED)), (1, None));
    });
    linked(async |world| {
        let begin = front(world).await;
        // A deletion has a notification decide at its end.
        world.pass(1000).await;
        world.act(&Act::Delete(2));
        let gone = stated(2, Deleted, world.changed_at(2));
        let first = [gone, stated(0, Updated, world.owner_changes(0).await)];
        let end = world.now();
        world.linked_changes().await;
        let second = naming(0, world.owner_changes(0).await, describedby());
        announce_of(world, (begin, end), &first).await;
        announce_of(world, (end, world.now()), &[second]).await;
        let before = world.requests().contents;
        world.pass(2000).await;
        let requests = world.requests().contents - before;
        assert_eq!((requests, version(world, LINKED)), (2, Some(2)));
    });
}

/// Of two entries of a Resource List the one that states other bytes of a later time counts.
#[test]
fn linked_resource_is_fetched_as_the_later_entry_of_a_list_states_it() {
    simulate(habits(ChangeLists::Open), following(), async |world| {
        let mut entries = Vec::new();
        for resource in 0..3 {
            world.stage.set_moment(world.moment() + 1000);
            let mut entry = stated(resource, Updated, None);
            entry.md.change = None;
            entry.lastmod = Some(world.changed_at(resource));
            if resource > 0 {
                world.act(&Act::ChangeLate(LINKED));
                let mut link = describedby();
                link.modified = Some(world.changed_at(LINKED));
                let version = u32::try_from(resource).unwrap();
                link.content.hashes = vec![digest(LINKED, version)];
                entry.links.push(link);
            }
            entries.push(entry);
        }
        world.stage.set_moment(world.moment() + 1000);
        let mut head = Head::new(Root::Urlset, Capability::ResourceList);
        head.md.at = Some(world.now());
        let list = write_document(&head, &entries);
        world.write("set0/resourcelist.xml", list);
        world.pass(2000).await;
        let found = (version(world, LINKED), world.requests().contents);
        assert_eq!(found, (Some(2), 4));
    });
}
