use super::*;

fn dump(digest: u8) -> DumpProgress {
    DumpProgress {
        uri: "https://example.org/resourcedump.xml".to_owned(),
        digest: [digest; 32],
    }
}

fn package(name: &str, version: &str, proves: bool) -> PackageRecord {
    PackageRecord {
        uri: format!("https://example.org/{name}"),
        version: version.to_owned(),
        proves,
    }
}

impl World {
    fn dump_of(&self, time: i64) -> ListProgress {
        ListProgress {
            origin: Origin::ResourceDump,
            ..self.reading(self.set, time)
        }
    }

    /// What is known of a package.
    async fn known_package(&self, package: &PackageRecord) -> Option<PackageRecord> {
        let (uri, version, named) = (&package.uri, &package.version, NamedSoFar::default());
        let known = self.store.package(self.set, uri, version, &named);
        known.await.unwrap()
    }

    /// Ingests the entries of a package.
    async fn take_dumped(&self, dump: &ListProgress, name: &str, entries: Vec<Change>) {
        let named = NamedSoFar::default();
        let listed = self.store.ingest_listed(dump, self.now, entries, &named);
        listed.done().await.unwrap();
        let record = package(name, "1", true);
        let ending = self.store.end_package(self.set, record, &named);
        ending.await.unwrap();
    }

    async fn needed(&self, time: Option<i64>, entries: Vec<Change>) -> u64 {
        let (store, set) = (Arc::clone(&self.store), self.set);
        let counting = tokio::task::spawn_blocking(move || {
            store.count_needed(set, SOURCE, time.map(at), &entries)
        });
        counting.await.unwrap().unwrap()
    }

    async fn tasks_of(&self, names: &[&str]) -> Vec<(String, bool, bool)> {
        let uris = names.iter().map(|name| uri(name)).collect();
        let tasks = self.store.tasks_of(SOURCE, self.now, uris).await.unwrap();
        tasks
            .iter()
            .map(|found| (kind_and_name(&found.task), found.given_up, found.due))
            .collect()
    }

    async fn fail(&self, retry_at: Option<DateTime<Utc>>) {
        let due = self.due().await.into_iter();
        self.complete(due.map(|task| failed(task, retry_at)).collect())
            .await;
    }
}

#[tokio::test]
async fn dump_continues_until_it_ends_changes_or_is_superseded() {
    let world = World::new().await;
    let (store, set) = (&world.store, world.set);
    let named = NamedSoFar::default();
    assert_eq!(store.dump_in_progress(set).await.unwrap(), None);
    assert!(!store.begin_dump(set, dump(1)).await.unwrap());
    let read = package("1.zip", "5 bytes", true);
    store.end_package(set, read.clone(), &named).await.unwrap();
    assert_eq!(world.known_package(&read).await, Some(read.clone()));
    assert!(store.begin_dump(set, dump(1)).await.unwrap(), "it goes on");
    assert!(world.known_package(&read).await.is_some());
    assert_eq!(store.dump_in_progress(set).await.unwrap(), Some(dump(1)));

    assert!(
        !store.begin_dump(set, dump(2)).await.unwrap(),
        "another one"
    );
    assert_eq!(world.known_package(&read).await, None);

    store.begin_list(set).await.unwrap();
    assert_eq!(store.dump_in_progress(set).await.unwrap(), None);
    assert!(!store.begin_dump(set, dump(2)).await.unwrap(), "superseded");

    store.end_package(set, read.clone(), &named).await.unwrap();
    let end = DocumentEnd {
        listed: Some(at(10)),
        ..end()
    };
    let ending = world.batch(set, Vec::new(), Some(end));
    store.ingest(ending).await.unwrap();
    assert_eq!(store.dump_in_progress(set).await.unwrap(), None);
    assert_eq!(world.known_package(&read).await, None);
}

#[tokio::test]
async fn package_record_is_replaced_by_one_that_proves_less() {
    let world = World::new().await;
    let (store, set) = (&world.store, world.set);
    let named = NamedSoFar::default();
    store.begin_dump(set, dump(1)).await.unwrap();
    for read in [package("1.zip", "a", true), package("1.zip", "b", false)] {
        store.end_package(set, read.clone(), &named).await.unwrap();
        assert_eq!(world.known_package(&read).await, Some(read));
    }
}

#[tokio::test]
async fn resources_named_by_an_interrupted_dump_are_not_absent() {
    let world = World::new().await;
    world
        .list(
            world.set,
            10,
            vec![created("a", -1), created("b", -1), created("c", -1)],
        )
        .await;
    world.work("1").await;
    world.store.begin_dump(world.set, dump(1)).await.unwrap();
    let interrupted = world.dump_of(20);
    let first = vec![created("a", -1)];
    world.take_dumped(&interrupted, "1.zip", first).await;
    assert!(world.store.begin_dump(world.set, dump(1)).await.unwrap());
    let list = world.dump_of(20);
    let first = package("1.zip", "1", true);
    let (set, version) = (world.set, &first.version);
    let known = world.store.package(set, &first.uri, version, &list.named);
    assert!(known.await.unwrap().is_some());
    let second = vec![created("b", -1)];
    world.take_dumped(&list, "2.zip", second).await;
    let mut search = AbsentSearch::new(true, None);
    while let Some(absent) = world
        .store
        .delete_absent(&list, world.now, &mut search, |_| true)
        .await
        .unwrap()
    {
        assert_eq!(absent.tasks, 1);
    }
    world.end_document().await;
    assert_eq!(world.due_names().await, ["deleted c"]);
    assert_eq!(world.due().await[0].origin, Origin::ResourceDump);
}

/// A list that is read after a dump states the same; it changes no task.
#[tokio::test]
async fn list_after_a_dump_restarts_no_task() {
    let world = World::new().await;
    world.store.begin_dump(world.set, dump(1)).await.unwrap();
    let announced = with_content(created("a", -1), "1");
    world
        .take_dumped(
            &world.dump_of(10),
            "1.zip",
            vec![announced.clone(), created("b", -1)],
        )
        .await;
    let revisions = |tasks: Vec<Task>| tasks.iter().map(|task| task.revision).collect::<Vec<_>>();
    let before = revisions(world.due().await);
    world
        .list(world.set, 10, vec![announced, created("b", -1)])
        .await;
    assert_eq!(revisions(world.due().await), before);
    world.list(world.set, 20, vec![created("b", -1)]).await;
    assert_eq!(world.due_names().await, ["created b", "deleted a"]);
}

#[tokio::test]
async fn needed_entries_are_counted_without_a_write() {
    let world = World::new().await;
    let entries = || {
        vec![
            with_content(created("a", 5), "1"),
            with_content(created("b", 5), "1"),
            created("c", 5),
            deleted("d", 5),
        ]
    };
    assert_eq!(world.needed(Some(10), entries()).await, 3);
    assert_eq!(world.needed(None, entries()).await, 3);
    assert!(world.store.resource(&uri("a")).await.unwrap().is_none());
    assert!(world.due().await.is_empty());

    world
        .announce(vec![with_content(created("a", 5), "1")])
        .await;
    assert_eq!(world.needed(Some(10), entries()).await, 3, "not here yet");
    world.work("1").await;
    world.announce(vec![updated("b", 20)]).await;
    assert_eq!(world.needed(Some(10), entries()).await, 1);
    assert_eq!(world.needed(None, entries()).await, 1);
}

#[tokio::test]
async fn delayed_and_failed_tasks_can_be_made_due() {
    let world = World::new().await;
    world.announce(vec![created("a", 5), deleted("z", 5)]).await;
    assert_eq!(
        world.tasks_of(&["a", "b"]).await,
        [("created a".to_owned(), false, true)]
    );
    world
        .fail(Some(world.now + chrono::TimeDelta::hours(1)))
        .await;
    assert_eq!(
        world.tasks_of(&["a"]).await,
        [("created a".to_owned(), false, false)]
    );
    let uris = vec![uri("a")];
    let found = world.store.tasks_of(SOURCE, world.now, uris).await.unwrap();
    let tasks: Vec<Task> = found.into_iter().map(|found| found.task).collect();
    let mut wakes = world.store.wakes();
    let hurrying = world.store.make_due(SOURCE, world.now, tasks.clone());
    hurrying.await.unwrap();
    assert_eq!(woken(&mut wakes), [Wake::Tasks(SOURCE.to_owned())]);
    assert_eq!(
        world.tasks_of(&["a"]).await,
        [("created a".to_owned(), false, true)]
    );

    world.fail(None).await;
    assert_eq!(
        world.tasks_of(&["a"]).await,
        [("created a".to_owned(), true, false)]
    );
    world
        .store
        .make_due(SOURCE, world.now, tasks.clone())
        .await
        .unwrap();
    assert_eq!(
        world.tasks_of(&["a"]).await,
        [("created a".to_owned(), false, true)]
    );

    // A task that a newer one has replaced is not made due.
    world.announce(vec![updated("a", 6)]).await;
    world.fail(None).await;
    world
        .store
        .make_due(SOURCE, world.now, tasks)
        .await
        .unwrap();
    assert_eq!(
        world.tasks_of(&["a"]).await,
        [("updated a".to_owned(), true, false)]
    );
}

#[tokio::test]
async fn package_files_are_needed_until_their_set_drops_them() {
    let world = World::new().await;
    let other = begin(&world.store, "other.xml").await;
    let store = &world.store;
    for (set, name) in [
        (world.set, "a"),
        (world.set, "a"),
        (world.set, "b"),
        (other, "b"),
    ] {
        store
            .mark_package_file_needed(set, name.to_owned())
            .await
            .unwrap();
    }
    let names = async || {
        let mut names: Vec<String> = store
            .package_files(SOURCE)
            .await
            .unwrap()
            .into_iter()
            .collect();
        names.sort();
        names
    };
    assert_eq!(names().await, ["a", "b"]);
    assert!(store.unmark_needed_package_files(world.set).await.unwrap());
    assert!(!store.unmark_needed_package_files(world.set).await.unwrap());
    assert_eq!(names().await, ["b"]);
    store.end_set(SOURCE, other, world.now).await.unwrap();
    assert!(names().await.is_empty());
}
