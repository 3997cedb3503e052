use super::*;
use crate::protocol::{Link, Memento};

/// An update whose version is stored, with links of these relations.
fn kept(name: &str, time: i64, content: &str, rels: &[&str]) -> Change {
    let links = rels.iter().map(|rel| {
        let href = format!("https://example.org/{rel}/{name}/{time}");
        Link::new(*rel, href.parse().unwrap())
    });
    Change {
        links: links.collect(),
        lastmod: Some(at(time)),
        version: VersionRule::Stored,
        ..with_content(updated(name, time), content)
    }
}

fn only(change: Change) -> Change {
    Change {
        version: VersionRule::OnlyStored,
        ..change
    }
}

impl World {
    async fn due_versions(&self) -> Vec<VersionTask> {
        let due = self.store.due_versions(SOURCE, self.now, 100);
        due.await.unwrap().tasks
    }

    async fn version_times(&self) -> Vec<i64> {
        let due = self.due_versions().await.into_iter();
        due.map(|task| task.at.micros() / 1_000_000).collect()
    }

    async fn version_counts(&self) -> (u64, u64) {
        let (counts, _) = self.store.version_counts(SOURCE).await.unwrap();
        (counts.pending, counts.failed)
    }

    /// Publishes what is due, and stores it as a version or not.
    async fn publish_version(&self, content: &str, is_stored: bool) {
        let due = self.due().await;
        let results = due.into_iter().map(|task| {
            let at = task.lastmod.unwrap();
            TaskResult::Published(Publication {
                stored_version: match is_stored {
                    true => StoredVersion::Stored(at),
                    false => StoredVersion::Due(at),
                },
                ..publication(task, content)
            })
        });
        self.complete(results.collect()).await;
    }

    async fn conclude_version(&self, result: VersionResult) {
        let task = self.due_versions().await.remove(0);
        let concluded = self.store.complete_version(self.now, task, result);
        concluded.await.unwrap();
    }
}

#[tokio::test]
async fn version_waits_for_the_task_of_its_resource() {
    let world = World::new().await;
    world.announce(vec![kept("a", 10, "1", &["memento"])]).await;
    assert!(world.due_versions().await.is_empty());
    assert_eq!(world.version_counts().await, (1, 0));
    world.publish_version("1", true).await;
    assert_eq!(world.version_counts().await, (0, 0));
    // It is not stored again.
    world
        .announce(vec![only(kept("a", 10, "1", &["memento"]))])
        .await;
    assert_eq!(world.version_counts().await, (0, 0));

    // Without a digest nothing proves that the resource's own URI serves it.
    let mut bare = kept("a", 20, "2", &["memento"]);
    bare.content = ContentInfo::default();
    world.announce(vec![bare]).await;
    assert_eq!(world.version_times().await, [20]);
    world.conclude_version(VersionResult::Stored).await;

    // It is not stored with the publication: it is later.
    world.announce(vec![kept("a", 30, "3", &[])]).await;
    assert_eq!(world.version_counts().await, (0, 0));
    world.publish_version("3", false).await;
    let due = world.due_versions().await;
    assert_eq!((due.len(), due[0].at, due[0].live), (1, at(30), true));
    assert_eq!(due[0].live_at, [Some(at(30)), Some(at(30))]);
}

#[tokio::test]
async fn version_that_is_replaced_is_fetched_or_missed() {
    let world = World::new().await;
    world
        .announce(vec![
            kept("a", 10, "1", &["memento"]),
            kept("b", 10, "1", &[]),
        ])
        .await;
    world
        .announce(vec![kept("a", 20, "2", &[]), kept("b", 20, "2", &[])])
        .await;
    assert_eq!(world.version_times().await, [10]);
    assert_eq!(world.version_counts().await, (1, 1));
    let (_, last) = world.store.version_counts(SOURCE).await.unwrap();
    assert_eq!(last.unwrap().0, "version-missed");
    let (_, waiting) = world
        .store
        .versioned_resource(SOURCE, &uri("b"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (waiting.len(), waiting[0].at, waiting[0].failed),
        (1, Some(at(10)), true)
    );
    // What is nowhere is not tried again.
    assert_eq!(
        world.store.retry_versions(SOURCE, world.now).await.unwrap(),
        0
    );
    // A deletion releases it, too.
    let world = World::new().await;
    world.announce(vec![kept("a", 10, "1", &["memento"])]).await;
    world
        .announce(vec![Change {
            version: VersionRule::Stored,
            ..deleted("a", 20)
        }])
        .await;
    assert_eq!(world.version_times().await, [10]);
}

#[tokio::test]
async fn older_entries_announce_versions_that_have_a_place() {
    let world = World::new().await;
    world.announce(vec![kept("a", 30, "3", &[])]).await;
    world.publish_version("3", true).await;
    let older = [
        kept("a", 10, "1", &["memento"]),
        kept("a", 20, "2", &[]),
        kept("unknown", 10, "1", &["memento"]),
    ];
    world.announce(older.map(only).to_vec()).await;
    assert_eq!(world.version_times().await, [10]);
    // An entry of the version that the mirror has, and that is not stored yet.
    let world = World::new().await;
    let ignored = |change| Change {
        version: VersionRule::Ignored,
        ..change
    };
    world.announce(vec![ignored(kept("a", 30, "3", &[]))]).await;
    world.work("3").await;
    world.announce(vec![only(kept("a", 30, "3", &[]))]).await;
    assert_eq!(world.version_times().await, [30]);
    // What only a hub states announces nothing.
    let by_hub = Change {
        unconfirmed: true,
        ..kept("a", 40, "4", &["memento"])
    };
    world.announce(vec![by_hub]).await;
    assert_eq!(world.version_times().await, [30]);
}

#[tokio::test]
async fn failed_versions_are_tried_again_and_given_up() {
    let world = World::new().await;
    world.announce(vec![kept("a", 20, "2", &[])]).await;
    world.publish_version("2", true).await;
    world
        .announce(vec![only(kept("a", 10, "1", &["timegate"]))])
        .await;
    let failure = |retry_at| {
        VersionResult::Failed(VersionFailure {
            code: "not-found",
            message: "404".to_owned(),
            retry_at,
            counts: true,
        })
    };
    let later = world.now + chrono::TimeDelta::seconds(5);
    world.conclude_version(failure(Some(later))).await;
    assert!(world.due_versions().await.is_empty());
    let due = world.store.due_versions(SOURCE, later, 10).await.unwrap();
    assert_eq!((due.tasks[0].attempts, due.next_due), (1, Some(later)));
    let given_up = world
        .store
        .complete_version(later, due.tasks[0].clone(), failure(None));
    given_up.await.unwrap();
    assert_eq!(world.version_counts().await, (0, 1));
    // The same entry does not begin anew, another one does.
    world
        .announce(vec![only(kept("a", 10, "1", &["timegate"]))])
        .await;
    assert_eq!(world.version_counts().await, (0, 1));
    world
        .announce(vec![only(kept("a", 10, "1", &["memento", "timegate"]))])
        .await;
    assert_eq!(world.version_times().await, [10]);
    world.conclude_version(failure(None)).await;
    assert_eq!(
        world.store.retry_versions(SOURCE, world.now).await.unwrap(),
        1
    );
    assert_eq!(world.version_times().await, [10]);
}

#[tokio::test]
async fn time_map_adds_the_versions_that_are_not_stored() {
    let world = World::new().await;
    let request = async |name: &str| {
        world
            .store
            .request_time_map(SOURCE, &uri(name), world.now)
            .await
            .unwrap()
    };
    assert_eq!(request("a").await, None);
    world.announce(vec![kept("a", 30, "3", &[])]).await;
    world.publish_version("3", true).await;
    assert_eq!(request("a").await, Some(false));
    world.announce(vec![kept("a", 40, "4", &["timemap"])]).await;
    world.publish_version("4", true).await;
    let mementos = [10, 30, 40].map(|time| Memento {
        uri: uri(&format!("m{time}")),
        at: at(time),
    });
    for _ in 0..2 {
        assert_eq!(request("a").await, Some(true));
        let task = world.due_versions().await.remove(0);
        assert_eq!(task.kind, VersionKind::TimeMap);
        assert_eq!(
            task.links[0].href.as_str(),
            "https://example.org/timemap/a/40"
        );
        let read = VersionResult::Listed(mementos.to_vec(), None);
        let added = world
            .store
            .complete_version(world.now, task, read)
            .await
            .unwrap();
        let due = world.due_versions().await;
        let listed = due
            .iter()
            .filter(|task| task.kind == VersionKind::Listed)
            .count();
        assert_eq!((due.len(), listed), (added, added));
        if added == 1 {
            assert_eq!(due[0].links[0].href.as_str(), "https://example.org/m10");
            world.conclude_version(VersionResult::Stored).await;
        }
    }
    assert_eq!(world.version_counts().await, (0, 0));
    // What of it was not used stays visible.
    request("a").await;
    let unused = VersionFailure {
        code: "time-map-cut",
        message: "too long".to_owned(),
        retry_at: None,
        counts: true,
    };
    world
        .conclude_version(VersionResult::Listed(Vec::new(), Some(unused)))
        .await;
    let (_, waiting) = world
        .store
        .versioned_resource(SOURCE, &uri("a"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((waiting[0].at, waiting[0].failed), (None, true));
}

#[tokio::test]
async fn versions_of_a_resource_that_wait_are_bounded() {
    let world = World::new().await;
    world.announce(vec![kept("a", 5000, "1", &[])]).await;
    world.publish_version("1", true).await;
    for step in 0..3 {
        let entries = (0..500).map(|n| only(kept("a", 1 + 500 * step + n, "1", &["memento"])));
        world.announce(entries.collect()).await;
    }
    assert_eq!(world.version_counts().await, (999, 1));
    let (_, last) = world.store.version_counts(SOURCE).await.unwrap();
    assert_eq!(last.unwrap().0, "too-many-versions");
}

#[tokio::test]
async fn versions_go_with_the_row_of_their_resource() {
    let world = World::new().await;
    world.announce(vec![kept("a", 10, "1", &["memento"])]).await;
    world.publish_version("1", true).await;
    world
        .announce(vec![only(kept("a", 5, "0", &["memento"]))])
        .await;
    let rows = async || {
        let count = world.store.read(|sql| {
            let both =
                "SELECT (SELECT COUNT(*) FROM version) + (SELECT COUNT(*) FROM version_task)";
            Ok(sql.query_row(both, [], |row| row.get::<_, i64>(0))?)
        });
        count.await.unwrap()
    };
    assert_eq!(rows().await, 2);
    let found = world.store.begin_forgetting(SOURCE).await.unwrap();
    let (store, now) = (&world.store, world.now);
    let forgotten = store.forget_resources(SOURCE, now, found, FilesOfForgotten::Stay);
    forgotten.await.unwrap();
    assert_eq!(rows().await, 0);
}
