use std::collections::BTreeSet;

use chrono::TimeDelta;
use resourcesync::Link;
use resyncd_core::Memento;

use super::*;

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

    async fn versions(&self) -> VersionsOverview {
        let query = OverviewQuery {
            source: SOURCE.to_owned(),
            with_versions: true,
        };
        let mut overview = self
            .store
            .overview(vec![query], BTreeSet::new())
            .await
            .unwrap();
        overview.sources.remove(0).versions.unwrap()
    }

    async fn version_counts(&self) -> (u64, u64) {
        let counts = self.versions().await.counts;
        (counts.pending, counts.failed)
    }

    /// Publishes what is due, and stores it as a version or not.
    async fn publish_version(&self, content: &str, is_stored: bool) {
        let due = self.due().await;
        let results = due.into_iter().map(|task| {
            let at = task.lastmod.unwrap();
            TaskResult::Published(Publication {
                stored_version: if is_stored {
                    StoredVersion::Stored(at)
                } else {
                    StoredVersion::Due(at)
                },
                ..publication(task, content)
            })
        });
        self.complete(results.collect()).await;
    }

    async fn release(&self) {
        let released = self.store.release_versions(SOURCE, self.now);
        released.await.unwrap();
    }

    async fn conclude_version(&self, result: VersionResult) {
        let task = self.due_versions().await.remove(0);
        let concluded = self.store.complete_version(self.now, task, result);
        concluded.await.unwrap();
    }
}

fn failed_version(retry_at: Option<DateTime<Utc>>) -> VersionResult {
    VersionResult::Failed(VersionFailure {
        code: "not-found",
        message: "404".to_owned(),
        retry_at,
        counts: true,
    })
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
    let last = world.versions().await.failure;
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
    let failure = failed_version;
    let later = world.now + chrono::TimeDelta::seconds(5);
    world.conclude_version(failure(Some(later))).await;
    assert!(world.due_versions().await.is_empty());
    let due = world.store.due_versions(SOURCE, later, 10).await.unwrap();
    assert_eq!((due.tasks[0].attempts, due.next_due), (1, Some(later)));
    assert_eq!(due.next_later, None);
    // What is due already does not hide what will be.
    world
        .announce(vec![only(kept("a", 5, "0", &["timegate"]))])
        .await;
    let both = world.store.due_versions(SOURCE, world.now, 10).await;
    let both = both.unwrap();
    assert_eq!(both.tasks.len(), 1);
    assert_eq!(
        (both.next_due, both.next_later),
        (Some(world.now), Some(later))
    );
    world.conclude_version(VersionResult::Stored).await;
    // A clock that was set back does not delay it for days.
    let before = world.now - TimeDelta::days(30);
    let released = world.store.release_versions(SOURCE, before);
    assert!(released.await.unwrap());
    let due = world.store.due_versions(SOURCE, before, 10).await.unwrap();
    assert_eq!(due.next_due, Some(before));
    let released = world.store.release_versions(SOURCE, before);
    assert!(!released.await.unwrap());
    world.conclude_version(failure(Some(later))).await;
    let due = world.store.due_versions(SOURCE, later, 10).await.unwrap();
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
    // None of those that wait is given up for another one.
    assert_eq!(world.version_counts().await, (1000, 500));
    let last = world.versions().await.failure;
    assert_eq!(last.unwrap().0, "too-many-versions");
    // What was given up takes no place, and is bounded too.
    for _ in 0..1000 {
        world.conclude_version(failed_version(None)).await;
    }
    assert_eq!(world.version_counts().await, (0, 1000));
    let next = only(kept("a", 1501, "1", &["memento"]));
    world.announce(vec![next]).await;
    assert_eq!(world.version_times().await, [1501]);
    // What found no place gets one when it is announced again.
    let again = only(kept("a", 1400, "1", &["memento"]));
    world.announce(vec![again]).await;
    assert_eq!(world.version_times().await, [1400, 1501]);
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
    let forgotten = store.forget_resources(now, found, FilesOfForgotten::Stay);
    forgotten.await.unwrap();
    assert_eq!(rows().await, 0);
}

#[tokio::test]
async fn backfill_has_a_version_fetched_that_was_given_up() {
    let world = World::new().await;
    world.announce(vec![kept("a", 30, "3", &["timemap"])]).await;
    world.publish_version("3", true).await;
    // The one in whole seconds, as a TimeMap has it.
    let mut missed = only(kept("a", 20, "2", &["timegate"]));
    missed.lastmod = Some(SourceTime::from_micros(20_500_000));
    let given_up = only(kept("a", 10, "1", &["timegate"]));
    world.announce(vec![given_up, missed]).await;
    for _ in 0..2 {
        world.conclude_version(failed_version(None)).await;
    }
    assert_eq!(world.version_counts().await, (0, 2));
    let mementos = [10, 20, 30].map(|time| Memento {
        uri: uri(&format!("m{time}")),
        at: at(time),
    });
    let requested = world
        .store
        .request_time_map(SOURCE, &uri("a"), world.now)
        .await;
    assert_eq!(requested.unwrap(), Some(true));
    world
        .conclude_version(VersionResult::Listed(mementos.to_vec(), None))
        .await;
    let mut due = world.due_versions().await;
    due.sort_by_key(|task| task.at);
    let found = due.iter().map(|task| {
        let place = task.links[0].href.as_str().to_owned();
        (task.at.micros(), place, task.content.hashes.clone())
    });
    let place = |name: &str| uri(name).as_str().to_owned();
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            (10_000_000, place("m10"), sha256("1")),
            (20_500_000, place("m20"), sha256("2")),
        ]
    );
    assert_eq!(world.version_counts().await, (2, 0));
}

#[tokio::test]
async fn no_version_waits_for_a_task_that_has_ended() {
    let waiting = async || {
        let world = World::new().await;
        world.announce(vec![kept("a", 10, "1", &["memento"])]).await;
        assert!(world.due_versions().await.is_empty());
        world
    };
    // A list does not name it.
    let world = waiting().await;
    world.list(world.set, 100, Vec::new()).await;
    let task = world.due().await.remove(0);
    assert_eq!(task.kind, ChangeKind::Deleted);
    let removed = TaskResult::Removed {
        task,
        file_stays: false,
    };
    world.complete(vec![removed]).await;
    assert_eq!(world.version_times().await, [10]);
    // What only a hub has stated takes the place of its task, and is no version.
    let world = waiting().await;
    let by_hub = Change {
        unconfirmed: true,
        ..updated("a", 20)
    };
    world.announce(vec![by_hub]).await;
    let task = world.due().await.remove(0);
    assert!(task.unconfirmed);
    let timeless = Publication {
        stored_version: StoredVersion::Timeless,
        ..publication(task, "2")
    };
    world.complete(vec![TaskResult::Published(timeless)]).await;
    assert_eq!(world.version_times().await, [10]);
    // Its task is not selected any more.
    let world = waiting().await;
    let task = world.due().await.remove(0);
    let sql = move |tx: &mut Tx<'_>| Ok(tables::task::unselect(tx.sql, task.resource)?);
    world.store.write(sql).await.unwrap();
    world.release().await;
    assert_eq!(world.version_times().await, [10]);
}

#[tokio::test]
async fn version_that_is_not_wanted_is_requested_once() {
    let world = World::new().await;
    world.announce(vec![kept("a", 20, "2", &[])]).await;
    world.publish_version("2", true).await;
    let announced = || vec![only(kept("a", 10, "1", &["memento"]))];
    world.announce(announced()).await;
    let unwanted = VersionResult::Unwanted("text/html".to_owned());
    world.conclude_version(unwanted).await;
    world.announce(announced()).await;
    assert!(world.due_versions().await.is_empty());
    assert_eq!(world.version_counts().await, (0, 0));
    let (_, shown) = world
        .store
        .versioned_resource(SOURCE, &uri("a"))
        .await
        .unwrap()
        .unwrap();
    assert!(shown.is_empty(), "{shown:?}");
    // Unless the configuration selects its type.
    for (selected, times) in [("image/png", vec![]), ("text/html", vec![10])] {
        let selects = |served: &str| served == selected;
        let reselected = world.store.reselect_versions(SOURCE, world.now, selects);
        reselected.await.unwrap();
        assert_eq!(world.version_times().await, times, "{selected}");
    }
    world.conclude_version(VersionResult::Stored).await;
    // The resource itself is served in a type that is not selected.
    world.announce(vec![kept("b", 10, "1", &["memento"])]).await;
    let task = world.due().await.remove(0);
    let unselected = || TaskResult::Unselected {
        task: task.clone(),
        served: "text/html".to_owned(),
    };
    world.complete(vec![unselected()]).await;
    world.announce(vec![kept("b", 10, "1", &["memento"])]).await;
    world.release().await;
    assert_eq!(world.version_counts().await, (0, 0));
    assert!(world.due_versions().await.is_empty());
}

#[tokio::test]
async fn versions_of_a_forgotten_resource_are_not_due() {
    let world = World::new().await;
    world.announce(vec![kept("a", 30, "3", &["timemap"])]).await;
    world.publish_version("3", true).await;
    let requested = world
        .store
        .request_time_map(SOURCE, &uri("a"), world.now)
        .await;
    assert_eq!(requested.unwrap(), Some(true));
    let reading = world.due_versions().await.remove(0);
    let found = world.store.begin_forgetting(SOURCE).await.unwrap();
    let (store, now) = (&world.store, world.now);
    let forgotten = store.forget_resources(now, found, FilesOfForgotten::Stay);
    forgotten.await.unwrap();
    let memento = Memento {
        uri: uri("m"),
        at: at(10),
    };
    let read = VersionResult::Listed(vec![memento], None);
    store.complete_version(now, reading, read).await.unwrap();
    let due = store.due_versions(SOURCE, now, 10).await.unwrap();
    assert_eq!((due.tasks.len(), due.next_due), (0, None));
}
