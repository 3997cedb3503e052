use resourcesync::Link;
use resyncd_core::{LinkedAs, LinkedResource};

use super::*;

/// A change whose entry links to these alternates.
fn linking(change: Change, names: &[&str]) -> Change {
    let linked = names.iter().map(|name| alternate(name, None));
    with_linked(change, linked.collect())
}

fn alternate(name: &str, content: Option<&str>) -> LinkedResource {
    let content = content.map(|content| with_content(created(name, -1), content).content);
    LinkedResource {
        uri: uri(name),
        linked_as: LinkedAs::Alternate,
        modified: None,
        content: content.unwrap_or_default(),
        encoding: None,
    }
}

fn with_linked(change: Change, linked: Vec<LinkedResource>) -> Change {
    let links = linked
        .iter()
        .map(|it| Link::new(it.linked_as.rel(), it.uri.url().clone()));
    Change {
        links: links.collect(),
        linked,
        ..change
    }
}

impl World {
    /// The names of what the mirror has.
    async fn live(&self, names: &[&str]) -> Vec<String> {
        let mut live = Vec::new();
        for name in names {
            let known = self.store.resource(&uri(name)).await.unwrap();
            if known.is_some_and(|known| !known.deleted) {
                live.push((*name).to_owned());
            }
        }
        live
    }
}

#[tokio::test]
async fn linked_resource_lives_as_long_as_an_entry_links_to_it() {
    let world = World::new().await;
    let first = vec![linking(created("a", -1), &["x", "y"]), created("b", -1)];
    world.list(world.set, 10, first).await;
    let tasks = ["created a", "created b", "created x", "created y"];
    assert_eq!(world.due_names().await, tasks);
    world.work("1").await;
    assert_eq!(world.totals(world.set).await, (4, 4));
    // A list that names neither, and one that links to one of them only.
    let second = vec![linking(created("a", -1), &["x", "y"]), created("b", -1)];
    world.list(world.set, 20, second).await;
    assert!(world.due().await.is_empty());
    let third = vec![linking(created("a", -1), &["x"]), created("b", -1)];
    world.list(world.set, 30, third).await;
    assert_eq!(world.due_names().await, ["deleted y"]);
    world.work("").await;
    // It is linked to again, and the owner is deleted.
    let fourth = vec![linking(created("a", -1), &["x", "y"]), created("b", -1)];
    world.list(world.set, 40, fourth).await;
    assert_eq!(world.due_names().await, ["created y"]);
    world.work("1").await;
    world.list(world.set, 50, vec![created("b", -1)]).await;
    assert_eq!(world.due_names().await, ["deleted a"]);
    world.work("").await;
    assert_eq!(world.due_names().await, ["deleted x", "deleted y"]);
    world.work("").await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.live(&["a", "b", "x", "y"]).await, ["b"]);
    assert_eq!(world.totals(world.set).await, (1, 1));
    let lines = world.store.feed(0, 100).await.unwrap();
    let of_x = lines
        .iter()
        .filter(|line| line.uri == uri("x").as_str())
        .map(|line| line.change.as_str());
    assert_eq!(of_x.collect::<Vec<_>>(), ["created", "deleted"]);
}

#[tokio::test]
async fn resource_that_is_listed_too_is_requested_once_and_stays() {
    for listed_first in [false, true] {
        let world = World::new().await;
        let owner = || with_linked(created("b", -1), vec![alternate("x", Some("1"))]);
        let own = || with_content(created("x", -1), "1");
        let both = if listed_first {
            vec![own(), owner()]
        } else {
            vec![owner(), own()]
        };
        world.list(world.set, 10, both).await;
        assert_eq!(world.due_names().await, ["created b", "created x"]);
        world.work("1").await;
        world.list(world.set, 20, vec![own(), owner()]).await;
        assert!(world.due().await.is_empty());
        // Only links name it, and then only the list.
        world.list(world.set, 30, vec![owner()]).await;
        assert!(world.due().await.is_empty());
        world
            .list(world.set, 40, vec![own(), created("b", -1)])
            .await;
        assert!(world.due().await.is_empty());
        world.list(world.set, 50, vec![created("b", -1)]).await;
        assert_eq!(world.due_names().await, ["deleted x"]);
        world.work("").await;
        assert_eq!(world.totals(world.set).await, (1, 1));
    }
}

#[tokio::test]
async fn resource_of_several_owners_goes_with_the_last_one() {
    let world = World::new().await;
    let owners = vec![
        linking(created("a", 11), &["x"]),
        linking(created("b", 12), &["x"]),
    ];
    world.announce(owners).await;
    world.work("1").await;
    world.announce(vec![deleted("a", 20)]).await;
    world.work("").await;
    assert!(world.due().await.is_empty());
    let known = world.store.resource(&uri("x")).await.unwrap().unwrap();
    let rels: Vec<&str> = known.links.iter().map(|link| link.rel.as_str()).collect();
    let hrefs: Vec<&str> = known.links.iter().map(|link| link.href.as_str()).collect();
    assert_eq!((rels, hrefs), (vec!["canonical"], vec![uri("b").as_str()]));
    world.announce(vec![updated("b", 30)]).await;
    assert_eq!(world.due_names().await, ["deleted x", "updated b"]);
    // Before that is done, it is linked to again.
    world
        .announce(vec![linking(updated("b", 31), &["x"])])
        .await;
    assert_eq!(world.due_names().await, ["updated b", "updated x"]);
    world.work("2").await;
    assert_eq!(world.live(&["a", "b", "x"]).await, ["b", "x"]);
}

#[tokio::test]
async fn ring_of_links_keeps_nothing() {
    let world = World::new().await;
    let ring = || {
        vec![
            linking(created("a", -1), &["b"]),
            linking(created("b", -1), &["a"]),
            created("c", -1),
        ]
    };
    world.list(world.set, 10, ring()).await;
    world.work("1").await;
    world.list(world.set, 20, ring()).await;
    assert!(world.due().await.is_empty());
    world.list(world.set, 30, vec![created("c", -1)]).await;
    for _ in 0..2 {
        world.work("").await;
    }
    assert!(world.due().await.is_empty());
    assert_eq!(world.live(&["a", "b", "c"]).await, ["c"]);
    assert_eq!(world.totals(world.set).await.0, 1);
}

#[tokio::test]
async fn stated_deletion_of_a_linked_resource_counts_until_a_later_entry_links_to_it() {
    let world = World::new().await;
    world
        .announce(vec![linking(created("a", 10), &["x"])])
        .await;
    world.work("1").await;
    world.announce(vec![deleted("x", 20)]).await;
    world.work("").await;
    world
        .announce(vec![linking(created("a", 10), &["x"])])
        .await;
    assert!(world.due().await.is_empty());
    world
        .announce(vec![linking(updated("a", 30), &["x"])])
        .await;
    assert_eq!(world.due_names().await, ["created x", "updated a"]);
    world.work("2").await;
    assert_eq!(world.live(&["a", "x"]).await, ["a", "x"]);
}

#[tokio::test]
async fn links_that_only_a_hub_does_not_state_are_not_ended() {
    let world = World::new().await;
    let stated =
        |change: Change, content: Option<&str>| with_linked(change, vec![alternate("x", content)]);
    let by_hub = |change: Change| Change {
        unconfirmed: true,
        ..change
    };
    world
        .announce(vec![stated(created("a", 10), Some("1"))])
        .await;
    world.work("1").await;
    // Without the link.
    world.announce(vec![by_hub(updated("a", 20))]).await;
    assert_eq!(world.due_names().await, ["updated a"]);
    world.work("2").await;
    // It hides nothing that the Source states.
    world
        .announce(vec![stated(updated("a", 30), Some("4"))])
        .await;
    assert!(world.due_names().await.contains(&"updated x".to_owned()));
    assert_eq!(world.live(&["a", "x"]).await, ["a", "x"]);
}

#[tokio::test]
async fn many_links_that_vanish_at_once_are_held_back() {
    let world = World::new().await;
    let names: Vec<String> = (0..120).map(|n| format!("r{n}")).collect();
    let list = |is_linking: bool| {
        let entries = names.iter().map(|name| {
            if is_linking {
                linking(created(name, -1), &[&format!("{name}.pdf")])
            } else {
                created(name, -1)
            }
        });
        entries.collect::<Vec<_>>()
    };
    world.list(world.set, 10, list(true)).await;
    world.work("1").await;
    assert_eq!(world.totals(world.set).await.0, 240);
    assert_eq!(world.list(world.set, 20, list(false)).await.held_back, 120);
    assert!(world.due().await.is_empty());
    // They are back in the next list.
    world.list(world.set, 30, list(true)).await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.statistics().await.held_deletions, 0);
    assert_eq!(world.totals(world.set).await.0, 240);
}

#[tokio::test]
async fn files_that_go_with_deleted_resources_count_with_them() {
    let world = World::new().await;
    let names: Vec<String> = (0..60).map(|n| format!("r{n}")).collect();
    let entries = names.iter().map(|name| {
        let (one, two) = (format!("{name}.pdf"), format!("{name}.xml"));
        linking(created(name, -1), &[&one, &two])
    });
    world.list(world.set, 10, entries.collect()).await;
    world.work("1").await;
    // 40 of 180 are no more than 100, but with their representations they are 120.
    let deletions = names[..40].iter().enumerate();
    let deletions = deletions.map(|(n, name)| deleted(name, 20 + n as i64));
    assert_eq!(world.announce(deletions.collect()).await.held_back, 40);
    assert!(world.due().await.is_empty());
    let held = world.store.held_back(SOURCE, false, ResourceId(0), 99);
    let linked: Vec<u64> = held.await.unwrap().iter().map(|it| it.linked).collect();
    assert_eq!(linked, [2; 40]);
    let approved = world.store.approve_deletions(SOURCE).await;
    assert_eq!(approved.unwrap(), 40);
    for _ in 0..2 {
        world.work("").await;
    }
    assert!(world.due().await.is_empty());
    assert_eq!(world.totals(world.set).await.0, 60);
}

#[tokio::test]
async fn files_that_deleted_resources_share_count_once() {
    let world = World::new().await;
    let names: Vec<String> = (0..60).map(|n| format!("r{n}")).collect();
    let pdfs: Vec<String> = (0..90).map(|n| format!("{n}.pdf")).collect();
    let pdfs: Vec<&str> = pdfs.iter().map(String::as_str).collect();
    let entries = names.iter().enumerate().map(|(n, name)| {
        // Ten pairs, each of which links to nine.
        let of_pair = (n / 2) * 9;
        let shared = pdfs.get(of_pair..of_pair + 9).unwrap_or_default();
        linking(created(name, -1), shared)
    });
    world.list(world.set, 10, entries.collect()).await;
    world.work("1").await;
    assert_eq!(world.totals(world.set).await.0, 150);
    // Half of the pairs: what they share stays.
    let halves = (0..20).step_by(2).map(|n| deleted(&format!("r{n}"), 20));
    assert_eq!(world.announce(halves.collect()).await.held_back, 0);
    world.work("").await;
    assert_eq!(world.totals(world.set).await.0, 140);
    // The others, with 90 files: no more than 100 of their own, and more together.
    let rest = (1..20).step_by(2).chain(20..22);
    let rest = rest.map(|n| deleted(&format!("r{n}"), 60));
    assert_eq!(world.announce(rest.collect()).await.held_back, 12);
    assert!(world.due().await.is_empty());
}

#[tokio::test]
async fn set_that_an_owner_leaves_keeps_nothing_of_it() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    let owner = || linking(created("a", -1), &["x"]);
    world.list(world.set, 10, vec![owner()]).await;
    world.work("1").await;
    world.list(other, 10, vec![owner()]).await;
    world.work("1").await;
    assert_eq!(world.totals(other).await.0, 2);
    world.list(world.set, 20, Vec::new()).await;
    world.work("").await;
    assert_eq!(world.totals(world.set).await.0, 0);
    assert_eq!(world.live(&["a", "x"]).await, ["a", "x"]);
    world.list(other, 20, Vec::new()).await;
    for _ in 0..2 {
        world.work("").await;
    }
    assert_eq!(world.live(&["a", "x"]).await, [""; 0]);
    assert_eq!(world.totals(other).await, (0, 0));
}

#[tokio::test]
async fn link_is_followed_though_its_entry_is_older_than_what_is_known() {
    let world = World::new().await;
    let links = [Link::new("alternate", uri("x").url().clone())];
    let before = Change {
        links: links.to_vec(),
        ..created("a", 50)
    };
    world.announce(vec![before]).await;
    world.work("1").await;
    // The list is older, and is read again because more is wanted than before.
    let entry = Change {
        lastmod: Some(at(50)),
        ..linking(created("a", 50), &["x"])
    };
    world.list(world.set, 40, vec![entry]).await;
    assert_eq!(world.due_names().await, ["created x"]);
}

#[tokio::test]
async fn dropped_task_of_a_linked_resource_is_planned_again() {
    let world = World::new().await;
    world
        .announce(vec![linking(created("a", 10), &["x"])])
        .await;
    let world = world.reopened();
    let tasks = world.due().await;
    let (of_a, of_x): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|it| it.uri == uri("a"));
    world.complete(vec![published(of_a[0].clone(), "1")]).await;
    world
        .complete(vec![failed_as_absent(of_x[0].clone())])
        .await;
    assert_eq!(world.statistics().await.failed, 1);
    // The link is gone, and with it what could not be fetched.
    world.announce(vec![updated("a", 20)]).await;
    for _ in 0..2 {
        world.work("2").await;
    }
    assert_eq!(world.statistics().await.failed, 0);
    assert_eq!(world.live(&["a", "x"]).await, ["a"]);
}

#[tokio::test]
async fn links_to_what_another_set_lists_do_not_override_what_that_set_states() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    let listed = || Change {
        links: vec![Link::new("via", uri("origin").url().clone())],
        ..with_content(created("x", -1), "1")
    };
    let owner = |content: &str| with_linked(created("a", -1), vec![alternate("x", Some(content))]);
    let rels = async || {
        let known = world.store.resource(&uri("x")).await.unwrap().unwrap();
        let rels = known.links.into_iter().map(|link| link.rel);
        rels.collect::<Vec<_>>()
    };
    world.list(other, 10, vec![listed()]).await;
    world.work("1").await;
    let before = world.store.feed(0, 100).await.unwrap().len();
    // The link states something else: it is not news.
    world.list(world.set, 10, vec![owner("2")]).await;
    assert_eq!(world.due_names().await, ["created a"]);
    world.work("3").await;
    assert_eq!(rels().await, ["via"]);
    // Both are read again.
    for time in [20, 30] {
        world.list(other, time, vec![listed()]).await;
        world.list(world.set, time, vec![owner("2")]).await;
        assert!(world.due().await.is_empty());
    }
    assert_eq!(rels().await, ["via"]);
    // One of two owners names it no longer.
    let both = vec![owner("2"), linking(created("b", -1), &["x"])];
    world.list(world.set, 40, both).await;
    world.work("4").await;
    let one = vec![owner("2"), created("b", -1)];
    world.list(world.set, 50, one).await;
    assert!(world.due().await.is_empty());
    assert_eq!(rels().await, ["via"]);
    let lines = world.store.feed(0, 100).await.unwrap();
    let news = lines[before..]
        .iter()
        .filter(|line| line.uri == uri("x").as_str());
    assert_eq!(news.count(), 0);
    // The other set lists it no longer: the link keeps it, and then nothing does.
    world.list(other, 60, Vec::new()).await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.live(&["x"]).await, ["x"]);
    world
        .list(world.set, 70, vec![created("a", -1), created("b", -1)])
        .await;
    assert_eq!(world.due_names().await, ["deleted x"]);
}

#[tokio::test]
async fn resource_that_only_another_set_lists_still_keeps_the_links_that_are_stated_there() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    let listed = || Change {
        links: vec![Link::new("via", uri("origin").url().clone())],
        ..with_content(created("x", -1), "1")
    };
    let owner = || linking(created("a", -1), &["x"]);
    world.list(world.set, 10, vec![owner(), listed()]).await;
    world.work("1").await;
    world.list(other, 10, vec![listed()]).await;
    // This set only links to it from here on.
    world.list(world.set, 20, vec![owner()]).await;
    assert!(world.due().await.is_empty());
    let known = world.store.resource(&uri("x")).await.unwrap().unwrap();
    assert_eq!(known.links[0].rel, "via");
    world.list(world.set, 30, vec![created("a", -1)]).await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.live(&["a", "x"]).await, ["a", "x"]);
    assert_eq!(
        (world.totals(world.set).await.0, world.totals(other).await.0),
        (1, 1)
    );
}

#[tokio::test]
async fn links_that_were_cut_end_nothing() {
    let world = World::new().await;
    let cut = |change: Change| Change {
        has_cut_links: true,
        ..change
    };
    let first = vec![linking(created("a", -1), &["x", "y"])];
    world.list(world.set, 10, first).await;
    world.work("1").await;
    // More links than are read precede one of them, and then both.
    let second = vec![cut(linking(created("a", -1), &["x"]))];
    world.list(world.set, 20, second).await;
    assert!(world.due().await.is_empty());
    world.announce(vec![cut(updated("a", 30))]).await;
    assert_eq!(world.due_names().await, ["updated a"]);
    world.work("2").await;
    assert_eq!(world.live(&["a", "x", "y"]).await, ["a", "x", "y"]);
    // What is read completely decides again.
    world
        .announce(vec![linking(updated("a", 40), &["y"])])
        .await;
    assert_eq!(
        world.due_names().await,
        ["deleted x", "updated a", "updated y"]
    );
}

#[tokio::test]
async fn files_that_go_with_released_deletions_count_with_the_next_ones() {
    let world = World::new().await;
    let names: Vec<String> = (0..60).map(|n| format!("r{n}")).collect();
    let entries = names.iter().map(|name| {
        let (one, two) = (format!("{name}.pdf"), format!("{name}.xml"));
        linking(created(name, -1), &[&one, &two])
    });
    world.list(world.set, 10, entries.collect()).await;
    world.work("1").await;
    assert_eq!(world.totals(world.set).await.0, 180);
    // With their representations they are 60, then 54, at once: more than 100 together, whether the first ones are executed by then.
    let deletions = |range: std::ops::Range<usize>| {
        let deletions = names[range].iter().map(|name| deleted(name, 20));
        deletions.collect::<Vec<_>>()
    };
    assert_eq!(world.announce(deletions(0..20)).await.held_back, 0);
    assert_eq!(world.announce(deletions(20..38)).await.held_back, 18);
    world.work("").await;
    world.work("").await;
    assert_eq!(world.totals(world.set).await.0, 120);
    let more = world.announce(vec![deleted("r50", 20)]).await;
    assert_eq!(more.held_back, 1);
}

#[tokio::test]
async fn file_of_several_owners_counts_with_the_last_one_that_is_deleted() {
    let world = World::new().await;
    let shared: Vec<String> = (0..60).map(|n| format!("{n}.pdf")).collect();
    let shared: Vec<&str> = shared.iter().map(String::as_str).collect();
    let more: Vec<String> = (60..110).map(|n| format!("{n}.pdf")).collect();
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let entries = vec![
        linking(created("a", -1), &shared),
        linking(created("b", -1), &shared),
        linking(created("c", -1), &more),
        created("d", -1),
    ];
    world.list(world.set, 10, entries).await;
    world.work("1").await;
    // One after the other, before any of them is executed.
    assert_eq!(world.announce(vec![deleted("a", 20)]).await.held_back, 0);
    assert_eq!(world.announce(vec![deleted("b", 20)]).await.held_back, 0);
    assert_eq!(world.announce(vec![deleted("c", 20)]).await.held_back, 1);
}

#[tokio::test]
async fn last_owner_that_is_deleted_is_held_back_with_what_others_shared() {
    let world = World::new().await;
    let shared: Vec<String> = (0..110).map(|n| format!("{n}.pdf")).collect();
    let shared: Vec<&str> = shared.iter().map(String::as_str).collect();
    let entries = vec![
        linking(created("a", -1), &shared),
        linking(created("b", -1), &shared),
        created("c", -1),
    ];
    world.list(world.set, 10, entries).await;
    world.work("1").await;
    // Whether the first one is executed by then, or not.
    assert_eq!(world.announce(vec![deleted("a", 20)]).await.held_back, 0);
    assert_eq!(world.announce(vec![deleted("b", 20)]).await.held_back, 1);
    let held = world.store.held_back(SOURCE, false, ResourceId(0), 9);
    assert_eq!(held.await.unwrap()[0].linked, 110);
    world.work("").await;
    assert_eq!(world.totals(world.set).await.0, 112);
}

#[tokio::test]
async fn links_beyond_the_limit_of_resources_are_skipped_and_read_again() {
    let world = World::new().await;
    world.store.limit_resources(Some(3)).await.unwrap();
    let owner = |time| linking(created("a", time), &["x", "y", "z"]);
    let applied = world.announce(vec![owner(10)]).await;
    assert_eq!((applied.tasks, applied.unfollowed), (1, 1));
    assert_eq!(
        world.due_names().await,
        ["created a", "created x", "created y"]
    );
    world.work("1").await;
    // Its own updates are not concerned.
    let applied = world
        .announce(vec![linking(updated("a", 20), &["x", "y", "z"])])
        .await;
    assert_eq!((applied.tasks, applied.unfollowed), (1, 1));
    world.work("2").await;
    world.store.limit_resources(None).await.unwrap();
    let listed = world.list(world.set, 30, vec![owner(-1)]).await;
    assert_eq!(listed.unfollowed, 0);
    assert_eq!(world.due_names().await, ["created z"]);
}

/// The list is read before the deletion is executed: it is as if it was executed first.
#[tokio::test]
async fn stated_deletion_of_a_linked_resource_is_not_ended_by_the_same_links() {
    let world = World::new().await;
    let listed = || linking(created("a", -1), &["x"]);
    let first = vec![listed(), created("x", -1)];
    world.list(world.set, 10, first).await;
    world.work("1").await;
    world.announce(vec![deleted("x", 20)]).await;
    world.list(world.set, 30, vec![listed()]).await;
    assert_eq!(world.due_names().await, ["deleted x"]);
    world.work("").await;
    assert_eq!(world.live(&["a", "x"]).await, ["a"]);
}

/// An entry links to a resource again, without a digest, whose changed content was not fetched before it was to be deleted.
#[tokio::test]
async fn change_that_the_end_of_a_link_had_replaced_is_requested_again() {
    let world = World::new().await;
    let stated = |change: Change, content| with_linked(change, vec![alternate("x", Some(content))]);
    world.announce(vec![stated(created("a", 10), "1")]).await;
    world.work("1").await;
    world.announce(vec![stated(updated("a", 20), "2")]).await;
    world.announce(vec![updated("a", 22)]).await;
    let deletion = |task: &Task| task.uri == uri("x") && task.kind == ChangeKind::Deleted;
    assert!(world.due().await.iter().any(deletion));
    let listed = linking(created("a", -1), &["x"]);
    world.list(world.set, 30, vec![listed]).await;
    assert!(world.due_names().await.contains(&"updated x".to_owned()));
}

/// The owner is deleted while the changed content of what it links to was not fetched yet.
#[tokio::test]
async fn deletion_with_its_owner_stands_for_the_change_that_it_replaces() {
    let world = World::new().await;
    let stated = |change: Change, content| with_linked(change, vec![alternate("x", Some(content))]);
    let listed = vec![stated(created("a", 5), "1")];
    world.list(world.set, 10, listed).await;
    world.work("1").await;
    world
        .announce_until(vec![stated(updated("a", 20), "2")], 25)
        .await;
    world.announce_until(vec![deleted("a", 30)], 40).await;
    let due = world.due().await;
    let owner = due.into_iter().find(|task| task.uri == uri("a"));
    let task = owner.unwrap();
    world
        .complete(vec![TaskResult::Removed {
            task,
            file_stays: false,
        }])
        .await;
    assert_eq!(world.due_names().await, ["deleted x"]);
    assert_eq!(world.statistics().await.synced_until, Some(at(20)));
}
