use resourcesync::{ContentInfo, Link};
use resyncd_core::{Criteria, ServedVersion, Standing, Validators};

use super::*;

fn link(rel: &str) -> Link {
    Link::new(rel, "https://example.org/other".parse().unwrap())
}

fn linked(change: Change, rels: &[&str]) -> Change {
    Change {
        links: rels.iter().map(|rel| link(rel)).collect(),
        ..change
    }
}

fn served(task: Task, etag: Option<&str>, is_new: bool) -> TaskResult {
    TaskResult::Published(Publication {
        media_type: is_new.then(|| "text/plain".to_owned()),
        version: etag.map(|etag| ServedVersion {
            url: task.uri.url().clone(),
            validators: Validators {
                etag: Some(etag.to_owned()),
                last_modified: None,
            },
        }),
        has_new_bytes: is_new,
        ..publication(task, "1")
    })
}

impl World {
    async fn rels(&self, name: &str) -> Vec<String> {
        let known = self.store.resource(&uri(name)).await.unwrap().unwrap();
        known.links.into_iter().map(|link| link.rel).collect()
    }
}

#[tokio::test]
async fn links_are_stored_with_all_attributes() {
    let world = World::new().await;
    let announced = Link {
        pri: Some(3),
        modified: Some(at(5)),
        content: ContentInfo {
            length: Some(7),
            media_type: Some("text/html".to_owned()),
            hashes: sha256("content"),
        },
        encoding: Some("gzip".to_owned()),
        path: Some("/a".to_owned()),
        ..link("duplicate")
    };
    let change = Change {
        links: vec![announced.clone(), link("via")],
        ..created("a", 10)
    };
    world.announce(vec![change]).await;
    assert_eq!(world.due().await[0].links, [announced.clone(), link("via")]);
    world.work("1").await;
    let known = world.store.resource(&uri("a")).await.unwrap().unwrap();
    assert_eq!(known.links, [announced, link("via")]);
}

#[tokio::test]
async fn links_are_those_of_the_change_that_was_applied_last() {
    let world = World::new().await;
    world
        .announce(vec![linked(created("a", 10), &["via"])])
        .await;
    world.work("1").await;
    assert_eq!(world.rels("a").await, ["via"]);
    // Announced again: its links are those that are stated now, and nothing is fetched.
    world
        .announce(vec![linked(created("a", 10), &["via", "collection"])])
        .await;
    assert_eq!(world.rels("a").await, ["via", "collection"]);
    world.announce(vec![created("a", 10)]).await;
    assert!(world.rels("a").await.is_empty());
    assert!(world.due().await.is_empty());

    world.announce(vec![updated("a", 11)]).await;
    world.work("2").await;
    assert!(world.rels("a").await.is_empty());
    world
        .list(world.set, 20, vec![linked(created("a", -1), &["memento"])])
        .await;
    assert_eq!(world.rels("a").await, ["memento"]);
    world
        .announce(vec![linked(deleted("a", 21), &["via"])])
        .await;
    world.work("").await;
    assert!(world.rels("a").await.is_empty());
}

#[tokio::test]
async fn later_links_reach_the_pending_task() {
    let world = World::new().await;
    world.announce(vec![created("a", 10)]).await;
    let applied = world
        .announce(vec![linked(created("a", 10), &["duplicate"])])
        .await;
    assert_eq!(applied.tasks, 1);
    // Fewer links replace them, and are no reason to begin anew.
    let applied = world.announce(vec![created("a", 10)]).await;
    assert_eq!(applied.tasks, 0);
    assert!(world.due().await[0].links.is_empty());
}

#[tokio::test]
async fn pending_update_that_a_list_states_in_an_unselected_way_waits() {
    let world = World::new().await;
    world.list(world.set, 10, vec![created("a", -1)]).await;
    world.work("1").await;
    world.announce(vec![updated("a", 11)]).await;
    let task = world.due().await.remove(0);
    let unselected = Change {
        standing: Some(Standing {
            has_type: false,
            lacks: Criteria::NONE,
            gives: Criteria::NONE,
            selection: 1,
        }),
        ..created("a", -1)
    };
    world.list(world.set, 20, vec![unselected]).await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.statistics().await.pending, 0);
    // An attempt that was under way and fails changes nothing.
    world.complete(vec![failed(task, None)]).await;
    assert_eq!(world.statistics().await.failed, 0);
}

#[tokio::test]
async fn tasks_are_queued_by_the_host_of_their_first_candidate() {
    let world = World::new().await;
    let elsewhere = |host: &str| Change {
        authority: host.to_owned(),
        ..created("a", 10)
    };
    world.announce(vec![elsewhere("one.example")]).await;
    let mut changed = elsewhere("two.example");
    changed.content.length = Some(1);
    world.announce(vec![changed]).await;
    assert_eq!(world.due().await[0].authority, "two.example");
}

#[tokio::test]
async fn validators_belong_to_the_bytes_they_were_served_with() {
    let world = World::new().await;
    let etag = |task: &Task| {
        task.live_version
            .as_ref()
            .and_then(|v| v.validators.etag.clone())
    };
    let media_type = async || {
        let known = world.store.resource(&uri("a")).await.unwrap().unwrap();
        (known.media_type, known.lastmod)
    };
    let dated = Change {
        lastmod: Some(at(9)),
        ..created("a", 10)
    };
    world.announce(vec![dated]).await;
    let task = world.due().await.remove(0);
    assert_eq!(etag(&task), None);
    world.complete(vec![served(task, Some("1"), true)]).await;

    // The same bytes again: their validators stay.
    world.announce(vec![updated("a", 11)]).await;
    let task = world.due().await.remove(0);
    assert_eq!(etag(&task).as_deref(), Some("1"));
    world.complete(vec![served(task, None, false)]).await;
    assert_eq!(
        media_type().await,
        (Some("text/plain".to_owned()), Some(at(9)))
    );
    // The same bytes, served again.
    world.announce(vec![updated("a", 12)]).await;
    let task = world.due().await.remove(0);
    assert_eq!(etag(&task).as_deref(), Some("1"));
    world.complete(vec![served(task, Some("2"), false)]).await;
    // Other bytes, served without validators.
    world.announce(vec![updated("a", 13)]).await;
    let task = world.due().await.remove(0);
    assert_eq!(etag(&task).as_deref(), Some("2"));
    world.complete(vec![served(task, None, true)]).await;
    assert_eq!(media_type().await.1, None);
    world.announce(vec![updated("a", 14)]).await;
    assert_eq!(world.due().await[0].live_version, None);
}

#[tokio::test]
async fn validators_of_a_replaced_open_list_are_deleted() {
    let world = World::new().await;
    let list = |n: u32| -> url::Url { format!("https://example.org/{n}.xml").parse().unwrap() };
    let remembers = async |n: u32| {
        let found = world.store.document(world.set, &list(n)).await.unwrap();
        found.is_some()
    };
    for n in 1..=3 {
        let document = DocumentRecord {
            uri: list(n).to_string(),
            validators: Validators::default(),
            digest: [0; 32],
        };
        let (set, store) = (world.set, &world.store);
        store.remember_document(set, document).await.unwrap();
        store.save_open_list(set, Some(&list(n))).await.unwrap();
        let record = store.sets(SOURCE).await.unwrap().remove(0);
        assert_eq!(record.open_list, Some(list(n)));
        assert!(remembers(n).await && !remembers(n - 1).await);
    }
    // A list that is closed under the same URI is the same document.
    world.store.save_open_list(world.set, None).await.unwrap();
    assert!(remembers(3).await);
}

/// A record that describes a resource, and has what this one lacks.
fn record(name: &str, described: &str, selection: i64) -> Change {
    Change {
        links: vec![Link::new("describes", uri(described).url().clone())],
        standing: Some(Standing {
            has_type: true,
            lacks: Criteria::NONE,
            gives: Criteria::PROFILE,
            selection,
        }),
        ..created(name, 10)
    }
}

fn lacking(name: &str, selection: i64) -> Change {
    Change {
        standing: Some(Standing {
            has_type: true,
            lacks: Criteria::PROFILE,
            gives: Criteria::NONE,
            selection,
        }),
        ..created(name, 10)
    }
}

#[tokio::test]
async fn resource_waits_for_the_record_that_selects_it() {
    let world = World::new().await;
    world.announce(vec![lacking("a", 1)]).await;
    assert!(world.due().await.is_empty());
    assert_eq!(world.statistics().await.pending, 0);
    // A record of another selection gives nothing.
    world.announce(vec![record("n", "a", 2)]).await;
    assert_eq!(world.due_names().await, ["created n"]);
    world.announce(vec![record("m", "a", 1)]).await;
    assert_eq!(
        world.due_names().await,
        ["created a", "created m", "created n"]
    );
    // What is deleted gives nothing any more.
    world.work("1").await;
    let gone = Change {
        standing: lacking("m", 1).standing,
        ..deleted("m", 20)
    };
    world.announce(vec![gone, lacking("b", 1)]).await;
    world.work("1").await;
    let described = Change {
        links: vec![Link::new("describedBy", uri("m").url().clone())],
        ..lacking("c", 1)
    };
    world.announce(vec![described]).await;
    assert!(world.due().await.is_empty());
}

#[tokio::test]
async fn thousands_of_records_of_one_resource_are_bounded() {
    let world = World::new().await;
    let records = (0..3000).map(|number| record(&format!("m{number}"), "a", 1));
    let mut listed: Vec<Change> = records.collect();
    listed.insert(0, lacking("a", 1));
    world.list(world.set, 10, listed).await;
    let due = world.due().await.into_iter();
    let mut due = due.filter(|task| task.uri == uri("a"));
    let task = due.next().unwrap();
    world.complete(vec![published(task, "1")]).await;
    let known = world.store.resource(&uri("a")).await.unwrap().unwrap();
    assert_eq!(known.named_by.len(), 64);
    assert!(
        known
            .named_by
            .iter()
            .all(|(kind, _)| *kind == RelationKind::Describes)
    );
}
