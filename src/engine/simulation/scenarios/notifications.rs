//! The inbox: notifications of odd forms, and deliveries over channels of other transports.

use resourcesync::{Capability, Entry, Head, Link, Root, SourceTime, write_document};
use resyncd_core::{Channel, DeliveryFaultKind, TopicUri, Transport};
use url::Url;

use super::super::documents::topic;
use super::super::handwritten::uri;
use super::super::source::digest;
use super::*;
use crate::clock;
use crate::config::Filter;
use crate::store::{CallbackKeys, ChannelId, ChannelRecord, Receipt};

const CHANGES: Capability = Capability::ChangeNotification;
const FRAMEWORK: Capability = Capability::FrameworkNotification;
const DESCRIPTION: &str = ".well-known/resourcesync";

/// What a change notification of these entries is, with its interval if it states one.
pub(super) fn notification(
    interval: Option<(SourceTime, SourceTime)>,
    entries: &[Entry],
) -> Vec<u8> {
    let mut head = Head::new(Root::Urlset, CHANGES);
    (head.md.from, head.md.until) = interval.unzip();
    write_document(&head, entries)
}

/// The entry of a change of a resource.
pub(super) fn stated(
    resource: ResourceNo,
    kind: ChangeKind,
    at: impl Into<Option<SourceTime>>,
) -> Entry {
    let mut entry = Entry::new(uri(&format!("resource/{resource}")));
    entry.md.change = Some(kind);
    entry.md.datetime = at.into();
    entry
}

/// The channel of a set that a hub delivers notifications of a kind to.
async fn channel(world: &World, set: usize, kind: &Capability) -> ChannelId {
    let id = world.database().await.sets[set].id;
    let channels = world.store().channels(id).await.unwrap();
    let found = channels.iter().find(|channel| channel.kind == *kind);
    found.unwrap().id
}

/// Adds a channel of another transport to the first set.
async fn add_channel(
    world: &World,
    kind: &Capability,
    transport: Transport,
    uri: &str,
) -> ChannelId {
    let set = world.database().await.sets[0].id;
    let topic = TopicUri::of_channel(Url::parse(uri).unwrap()).unwrap();
    let channel = Channel::without_hubs(transport, clock::now().wall, &topic);
    let keys = CallbackKeys {
        token: uri.to_owned(),
        secret: None,
    };
    let added = world.store().insert_channel(set, kind, channel, keys);
    added.await.unwrap().id
}

async fn record(world: &World, channel: ChannelId) -> ChannelRecord {
    world.store().channel(channel).await.unwrap().unwrap()
}

/// What is wrong with the deliveries of the first set's hub.
pub(super) async fn fault(world: &World) -> Option<DeliveryFaultKind> {
    let channel = channel(world, 0, &CHANGES).await;
    record(world, channel).await.fault.map(|fault| fault.kind)
}

async fn deliver(world: &World, channel: ChannelId, body: Vec<u8>) -> Receipt {
    deliver_as(world, channel, body, None).await
}

/// Delivers a body of which the hub states another topic than that of the channel.
async fn deliver_as(
    world: &World,
    channel: ChannelId,
    body: Vec<u8>,
    stated_topic: Option<TopicUri>,
) -> Receipt {
    let now = clock::now().wall;
    let room = 1 << 20;
    let received = world
        .store()
        .receive(now, channel, body, room, stated_topic);
    received.await.unwrap()
}

/// Delivers changes by the hub of the first set, as all those since what is known so far.
pub(super) async fn announce(world: &World, entries: &[Entry]) {
    announce_of(world, (front(world).await, world.now()), entries).await;
}

/// Delivers changes by the hub of the first set, as all those of an interval.
pub(super) async fn announce_of(
    world: &World,
    interval: (SourceTime, SourceTime),
    entries: &[Entry],
) {
    let hub = channel(world, 0, &CHANGES).await;
    let receipt = deliver(world, hub, notification(Some(interval), entries)).await;
    assert_eq!(receipt, Receipt::Stored);
}

/// The end of what is known of the first set.
pub(super) async fn front(world: &World) -> SourceTime {
    let database = world.database().await;
    database.sets[0].coverage.front().unwrap()
}

/// A world that has its baseline.
pub(super) fn begun(habits: Habits, settings: Settings, run: impl AsyncFnOnce(&mut World)) {
    simulate(habits, settings, async |world| {
        world.pass(5000).await;
        run(world).await;
    });
}

/// A notification of a time that was covered has news only if it states a change that was not known.
#[test]
fn covered_notification_counts_as_applied_only_if_a_change_has_appeared_late() {
    begun(habits(ChangeLists::Open), settings(), async |world| {
        let hub = channel(world, 0, &CHANGES).await;
        let begin = front(world).await;
        world.act(&Act::ChangeLate(0));
        let late = stated(0, ChangeKind::Updated, world.changed_at(0));
        world.pass(100).await;
        world.act(&Act::Change(1));
        let known = stated(1, ChangeKind::Updated, world.changed_at(1));
        world.pass(100).await;
        let covered = Some((begin, world.now()));
        world.pass(100).await;
        announce(world, std::slice::from_ref(&known)).await;
        world.pass(1000).await;
        let counts = async |world: &World| {
            let record = record(world, hub).await;
            (record.applied, record.duplicate, record.rejected)
        };
        assert_eq!(counts(world).await, (1, 0, 0));
        let again = notification(covered, std::slice::from_ref(&known));
        deliver(world, hub, again).await;
        world.pass(1000).await;
        assert_eq!(counts(world).await, (1, 1, 0));
        deliver(world, hub, notification(covered, &[late, known])).await;
        world.pass(1000).await;
        assert_eq!(counts(world).await, (2, 1, 0));
        assert_eq!([0, 1].map(|it| version(world, it)), [Some(2); 2]);
        assert!(notices(world).await.is_empty());
    });
}

/// The same bytes are the same notification only where they state a time: otherwise another change may have the same.
#[test]
fn notification_is_repeated_only_if_it_states_a_time() {
    for kind in [CHANGES, FRAMEWORK] {
        for is_dated in [true, false] {
            let habits = Habits {
                undated: !is_dated,
                ..habits(ChangeLists::Open)
            };
            begun(habits, settings(), async |world| {
                let pushed = "ws://source.example/pushed";
                let channel = add_channel(world, &kind, Transport::Websocket, pushed).await;
                world.act(&Act::Change(0));
                let mut entry = stated(0, ChangeKind::Updated, world.changed_at(0));
                if kind == FRAMEWORK {
                    entry.loc = uri("set0/changes1.xml");
                    entry.md.capability = Some(Capability::ChangeList);
                }
                entry.md.datetime.take_if(|_| !is_dated);
                let body = write_document(&Head::new(Root::Urlset, kind.clone()), [&entry]);
                let first = deliver(world, channel, body.clone()).await;
                world.pass(1000).await;
                let second = deliver(world, channel, body).await;
                let expected = if is_dated {
                    Receipt::Known
                } else {
                    Receipt::Stored
                };
                assert_eq!((first, second), (Receipt::Stored, expected), "{kind:?}");
                world.pass(1000).await;
                let waiting = world.database().await.inbox.len();
                assert_eq!(waiting, 0, "{kind:?} {is_dated}");
            });
        }
    }
}

/// Deliveries that the hub, or the document itself, states to be for another set cover nothing of this one. Where an unknown
/// document is named, that is only odd.
#[test]
fn notification_for_another_set_is_rejected() {
    let other_topic = TopicUri::try_from(topic(1, &CHANGES)).unwrap();
    for (up, stated_topic, is_rejected) in [
        ("set0/capabilitylist.xml", None, false),
        ("elsewhere.xml", None, false),
        ("set1/capabilitylist.xml", None, true),
        ("set0/capabilitylist.xml", Some(other_topic), true),
    ] {
        let habits = Habits {
            sets: 2,
            ..habits(ChangeLists::Open)
        };
        begun(habits, settings(), async |world| {
            let hub = channel(world, 0, &CHANGES).await;
            let begin = front(world).await;
            // Of both sets.
            world.act(&Act::Change(2));
            let entry = stated(2, ChangeKind::Updated, world.changed_at(2));
            world.pass(100).await;
            let mut head = Head::new(Root::Urlset, CHANGES);
            (head.md.from, head.md.until) = (Some(begin), Some(world.now()));
            head.links.push(Link::new("up", uri(up)));
            let body = write_document(&head, [&entry]);
            let before = world.requests().change_lists;
            deliver_as(world, hub, body, stated_topic).await;
            world.pass(1000).await;
            let record = record(world, hub).await;
            let counts = (record.applied, record.rejected);
            let fault = record.fault.map(|fault| fault.kind);
            let is_polled = world.requests().change_lists > before;
            let found = (counts, fault, version(world, 2), is_polled);
            let expected = if is_rejected {
                ((0, 1), Some(DeliveryFaultKind::Misdirected), Some(1), true)
            } else {
                ((1, 0), None, Some(2), false)
            };
            assert_eq!(found, expected, "{up}");
        });
    }
}

/// A framework notification of a document at that path.
fn framework(world: &World, path: &str, capability: Capability, kind: ChangeKind) -> Vec<u8> {
    let mut entry = Entry::new(uri(path));
    entry.md.capability = Some(capability);
    entry.md.change = Some(kind);
    entry.md.datetime = Some(world.now());
    write_document(&Head::new(Root::Urlset, FRAMEWORK), [&entry])
}

/// What a framework notification leads to: whether the set is polled, and whether its Source is discovered again. A hint leads
/// to a poll in any case, because nobody has proved that it is true.
#[test]
fn framework_notification_leads_to_the_documents_that_it_names() {
    use Capability::{CapabilityList, ChangeDump, ChangeList, Description, ResourceList};
    use ChangeKind::{Deleted, Updated};
    let own = "set0/capabilitylist.xml";
    for is_hint in [false, true] {
        begun(habits(ChangeLists::Open), settings(), async |world| {
            let channel = if is_hint {
                let pushed = "ws://source.example/pushed";
                add_channel(world, &FRAMEWORK, Transport::Websocket, pushed).await
            } else {
                channel(world, 0, &FRAMEWORK).await
            };
            let mut entry = Entry::new(uri(own));
            entry.md.capability = Some(CapabilityList);
            let head = Head::new(Root::Urlset, Description);
            world.write(DESCRIPTION, write_document(&head, [&entry]));
            for (path, capability, kind, polls, discovers) in [
                (own, CapabilityList, Updated, true, false),
                (own, CapabilityList, Deleted, true, true),
                (
                    "set9/capabilitylist.xml",
                    CapabilityList,
                    Updated,
                    is_hint,
                    true,
                ),
                (DESCRIPTION, Description, Updated, is_hint, true),
                ("set0/changes1.xml", ChangeList, Updated, true, false),
                ("set0/changedump.xml", ChangeDump, Updated, true, false),
                // There are others that state changes.
                ("set0/resourcelist.xml", ResourceList, Updated, false, false),
            ] {
                // A regular poll is between them.
                world.pass(1_000_000).await;
                world.take_requested();
                let before = world.requests().change_lists;
                let body = framework(world, path, capability, kind);
                deliver(world, channel, body).await;
                world.pass(1000).await;
                // What a poll has asked for last.
                world.pass(1).await;
                let is_polled = world.requests().change_lists > before;
                let is_discovered = !world.take_requested().is_empty();
                let found = (is_polled, is_discovered);
                assert_eq!(found, (polls, discovers), "{path} {kind:?} {is_hint}");
            }
        });
    }
}

/// The first one is polled for at once, others within two seconds together: neither a hub nor anybody else sets the pace of the polls.
#[test]
fn hints_of_new_documents_do_not_set_the_pace_of_the_polls() {
    for is_hint in [false, true] {
        begun(habits(ChangeLists::Open), settings(), async |world| {
            let channel = if is_hint {
                let pushed = "ws://source.example/pushed";
                add_channel(world, &FRAMEWORK, Transport::Websocket, pushed).await
            } else {
                channel(world, 0, &FRAMEWORK).await
            };
            let mut polls = Vec::new();
            for pause in [100, 100, 5000] {
                let before = world.requests().change_lists;
                let path = "set0/changes1.xml";
                let body = framework(world, path, Capability::ChangeList, ChangeKind::Updated);
                deliver(world, channel, body).await;
                world.pass(pause).await;
                polls.push(world.requests().change_lists - before);
            }
            assert_eq!(polls, [1, 0, 1], "{is_hint}");
        });
    }
}

/// The rules about many deletions hold for each of the notifications that are applied together: what the first one deletes is few.
#[test]
fn deletions_of_notifications_that_are_applied_together_are_decided_one_by_one() {
    let habits = Habits {
        more: 120,
        ..habits(ChangeLists::Open)
    };
    begun(habits, settings(), async |world| {
        let hub = channel(world, 0, &CHANGES).await;
        let mut from = front(world).await;
        let mut bodies = Vec::new();
        for first in [RESOURCES, RESOURCES + 60] {
            let deleted = first..first + 60;
            for resource in deleted.clone() {
                world.act(&Act::Delete(resource));
            }
            let entries = deleted.map(|resource| {
                let at = world.changed_at(resource);
                stated(resource, ChangeKind::Deleted, at)
            });
            let entries: Vec<Entry> = entries.collect();
            world.pass(10).await;
            let until = world.now();
            bodies.push(notification(Some((from, until)), &entries));
            from = until;
        }
        for body in bodies {
            deliver(world, hub, body).await;
        }
        world.pass(1000).await;
        assert_eq!(record(world, hub).await.applied, 2);
        let held = world.status().await[0].held_deletions;
        let files = world.stage.scene().files.len();
        assert_eq!((held, files), (60, 3 + 60));
    });
}

/// What only a hub states is left to the Source's answer, unless the configuration, or else the place of the sender, has it
/// speak for the Source.
#[test]
fn deletion_is_asked_for_unless_the_sender_speaks_for_the_source() {
    let unset = Settings {
        configure: |source| source.trust_hub = None,
        ..settings()
    };
    let senders = [
        None,
        Some("ws://source.example/pushed"),
        Some("ws://elsewhere.example/pushed"),
    ];
    for (settings, asked) in [
        (settings(), [false; 3]),
        (wary_settings(), [true; 3]),
        (unset, [true, false, true]),
    ] {
        for (sender, is_asked) in senders.into_iter().zip(asked) {
            begun(habits(ChangeLists::Open), settings, async |world| {
                let begin = front(world).await;
                world.act(&Act::Delete(1));
                let entry = stated(1, ChangeKind::Deleted, world.changed_at(1));
                world.pass(100).await;
                let channel = match sender {
                    None => channel(world, 0, &CHANGES).await,
                    Some(uri) => add_channel(world, &CHANGES, Transport::Websocket, uri).await,
                };
                let interval = (begin, world.now());
                let before = world.requests().contents;
                deliver(world, channel, notification(Some(interval), &[entry])).await;
                world.pass(2000).await;
                let was_asked = world.requests().contents > before;
                let found = (version(world, 1), was_asked);
                assert_eq!(found, (None, is_asked), "{sender:?}");
                assert!(notices(world).await.is_empty(), "{sender:?}");
            });
        }
    }
}

/// The callback of the first set's changes, to which anybody may have sent what arrives.
async fn callback(world: &World) -> ChannelId {
    let uri = "http://source.example/callbacks";
    add_channel(world, &CHANGES, Transport::Callback, uri).await
}

/// Anybody may have stated it: only the name counts, and not what the bytes are to be, nor where else they are.
#[test]
fn what_anybody_states_of_a_representation_does_not_count() {
    begun(habits(ChangeLists::Open), settings(), async |world| {
        let callback = callback(world).await;
        let path = "elsewhere";
        world.write_status(path, 200);
        world.act(&Act::Change(0));
        let mut entry = stated(0, ChangeKind::Updated, None);
        // As it was before.
        entry.md.content.hashes = vec![digest(0, 1)];
        entry.links.push(Link::new("duplicate", uri(path)));
        let before = world.requests().contents;
        deliver(world, callback, notification(None, &[entry])).await;
        world.pass(2000).await;
        let requests = world.requests().contents - before;
        assert_eq!((version(world, 0), requests), (Some(2), 1));
        assert_eq!(world.take_requested(), Vec::<String>::new());
        assert!(notices(world).await.is_empty());
        assert_eq!(world.database().await.tasks.len(), 0);
    });
}

/// What is at other hosts or ports is not requested because anybody has named it: it is reported, and a poll finds what the
/// Source states.
#[test]
fn foreign_resources_that_anybody_names_are_left_to_a_poll() {
    let settings = Settings {
        configure: |source| source.filter = Filter::matching(&[], &["*/5"]).unwrap(),
        ..settings()
    };
    for (foreign, is_reported) in [
        (None, false),
        // The configuration excludes it.
        (Some("http://source.example/resource/5"), false),
        (Some("http://source.example:8080/resource/0"), true),
        (Some("http://elsewhere.example/resource/0"), true),
    ] {
        begun(habits(ChangeLists::Open), settings, async |world| {
            let callback = callback(world).await;
            world.act(&Act::Change(0));
            let mut entries = vec![stated(0, ChangeKind::Updated, world.changed_at(0))];
            if let Some(foreign) = foreign {
                let mut entry = entries[0].clone();
                entry.loc = Url::parse(foreign).unwrap();
                entries.push(entry);
            }
            let before = world.requests().change_lists;
            deliver(world, callback, notification(None, &entries)).await;
            world.pass(2000).await;
            assert_eq!(version(world, 0), Some(2), "{foreign:?}");
            let is_polled = world.requests().change_lists > before;
            assert_eq!(is_polled, is_reported, "{foreign:?}");
            let reported = vec![("foreign-resources".to_owned(), 1)];
            let expected = if is_reported { reported } else { Vec::new() };
            assert_eq!(notices(world).await, expected, "{foreign:?}");
        });
    }
}

/// Nothing that the Source does not list is requested with the account there because anybody has named it.
#[test]
fn resources_of_the_account_that_anybody_names_are_left_to_a_poll() {
    let settings = Settings {
        configure: |source| {
            source.url.set_username("user").unwrap();
            source.url = source.credentials.extract(source.url.clone());
        },
        ..settings()
    };
    begun(habits(ChangeLists::Open), settings, async |world| {
        let callback = callback(world).await;
        world.act(&Act::Change(0));
        let listed = stated(0, ChangeKind::Updated, world.changed_at(0));
        let mut unlisted = listed.clone();
        unlisted.loc = Url::parse("http://source.example/account/end").unwrap();
        let before = world.requests();
        deliver(world, callback, notification(None, &[unlisted])).await;
        world.pass(2000).await;
        assert_eq!(world.requests().contents, before.contents);
        assert!(world.requests().change_lists > before.change_lists);
        assert_eq!(version(world, 0), Some(1));
        assert!(notices(world).await.is_empty());
        deliver(world, callback, notification(None, &[listed])).await;
        world.pass(2000).await;
        assert_eq!(version(world, 0), Some(2));
    });
}

/// A gap is on record before the documents are read that may fill it: what fails or ends meanwhile does not hide it. Gaps that
/// are on record already do not matter.
#[test]
fn gap_is_recorded_before_documents_are_read_for_it() {
    let lose_one = [
        Act::Change(0),
        Act::Pass(10),
        Act::Publish(0, Fate::Lost),
        Act::Pass(1000),
        Act::Change(1),
        Act::Pass(10),
        Act::Publish(0, AT_ONCE),
        Act::Pass(100),
    ];
    for before in [0, 1] {
        // Whether the gap is on record, and the notification after it waits, once a query has failed.
        let is_recorded = |after: u64| {
            simulate(habits(ChangeLists::Absent), settings(), async |world| {
                world.pass(5000).await;
                for _ in 0..before {
                    world.run(&lose_one).await;
                    world.pass(10_000).await;
                }
                world.run(&lose_one).await;
                world.act(&Act::FailQuery(after));
                world.pass(5010).await;
                let waiting = world.database().await.inbox.len();
                (waiting, gaps(world).await) == (1, before + 1)
            })
        };
        let recorded = (0..10).find(|&after| is_recorded(after));
        assert!(recorded.is_some(), "{before}");
    }
}
