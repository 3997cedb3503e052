//! What an audit expects: what a scratch database was told by the Source's documents, and what the state database knows of it.

use resyncd_core::Offer;

use super::*;

/// The statements of a Resource List of the second 10 and of changes, merged with the state database.
struct Merged {
    audit_db: AuditDb,
    _stated: World,
}

impl Merged {
    async fn of(
        known: &World,
        listed: Vec<Change>,
        changes: Vec<Change>,
        wants: impl Fn(&ResourceUri) -> bool,
    ) -> Self {
        let stated = World::in_folder().await;
        stated.list(stated.set, 10, listed).await;
        let batch = ChangeBatch {
            origin: Origin::ChangeList,
            ..stated.batch(stated.set, changes, Some(end()))
        };
        stated.store.ingest(batch).await.unwrap();
        let times = ListTimes {
            set: stated.set,
            at: at(10),
            entries_at: at(10),
        };
        let audit_db = AuditDb::open(
            stated.folder.path(),
            &database::place(known.folder.path()),
            SOURCE,
        )
        .unwrap();
        audit_db.merge_known(&[times], wants, |_, _| true).unwrap();
        Self {
            audit_db,
            _stated: stated,
        }
    }

    fn expected<T>(&self, view: impl Fn(Expectation) -> T) -> Vec<T> {
        let expectations = self.audit_db.expectations(ResourceId(0), 9).unwrap();
        assert_eq!(self.audit_db.expected().unwrap(), expectations.len() as u64);
        expectations.into_iter().map(view).collect()
    }
}

/// As `name:length`.
fn sized(expectation: Expectation) -> String {
    let name = expectation.uri.url().path().trim_start_matches('/');
    match expectation.content.length {
        Some(length) => format!("{name}:{length}"),
        None => format!("{name}:?"),
    }
}

#[tokio::test]
async fn later_change_in_the_database_replaces_the_statement_of_a_list() {
    let world = World::new().await;
    let announced = ["older", "newer", "gone", "unlisted", "unwanted"];
    let time = |name: &str| if name == "older" { 9 } else { 11 };
    let known = announced.map(|name| with_content(updated(name, time(name)), "known"));
    world.announce(known.into()).await;
    world.work("known").await;
    world.announce(vec![deleted("gone", 12)]).await;
    world.work("").await;
    let on_its_way = with_content(updated("newer", 13), "on its way");
    world.announce(vec![on_its_way]).await;

    let listed = ["older", "newer", "gone", "lacking"];
    let listed = listed.map(|name| with_content(updated(name, 1), "x"));
    let wants = |uri: &ResourceUri| !uri.as_str().contains("unwanted");
    let merged = Merged::of(&world, listed.into(), Vec::new(), wants).await;
    assert_eq!(
        merged.expected(sized),
        ["older:1", "newer:5", "lacking:1", "unlisted:5"]
    );
    let is_known = merged.expected(|expectation| expectation.is_known);
    assert_eq!(is_known, [true, true, false, true]);
    let place = |name: &str| {
        let path = format!("example.org/{name}");
        merged.audit_db.path_state(&path).unwrap()
    };
    let facts = |place: PathState| (place.expected, place.known, place.live);
    assert_eq!(facts(place("newer")), (true, true, true));
    assert_eq!(facts(place("gone")), (false, true, false));
    assert_eq!(facts(place("unwanted")), (false, true, true));
    assert_eq!(place("stray"), PathState::default());

    let files = KnownFiles::open(&database::place(world.folder.path()))
        .unwrap()
        .unwrap();
    let newer = files.of(SOURCE, Some(uri("newer").as_str()), None);
    let newer = newer.unwrap().unwrap();
    assert!(newer.pending && !newer.deleted);
    let gone = files.of(SOURCE, None, Some("example.org/gone")).unwrap();
    assert!(gone.unwrap().deleted);
    assert!(!files.is_behind(SOURCE).unwrap());
}

#[tokio::test]
async fn paths_are_those_of_the_database() {
    let world = World::new().await;
    // The same host and path without TLS, and first.
    let [first, second] = ["http", "https"].map(|scheme| Change {
        uri: ResourceUri::parse(&format!("{scheme}://example.org:8080/a")).unwrap(),
        ..updated("a", 9)
    });
    world.announce(vec![first, updated("b", 9)]).await;
    let published = world.due().await.into_iter().map(|task| {
        let is_moved = task.uri == uri("b");
        let publication = publication(task, "x");
        TaskResult::Published(if is_moved {
            Publication {
                path: "example.org/elsewhere".to_owned(),
                ..publication
            }
        } else {
            publication
        })
    });
    world.complete(published.collect()).await;
    let made = made_path(&second.uri).to_string();
    let listed = vec![second, updated("b", 1)];
    let merged = Merged::of(&world, listed, Vec::new(), |_| true).await;
    let paths = merged.expected(|expectation| expectation.path);
    assert_eq!(paths, [made.as_str(), "example.org/elsewhere"]);
}

#[tokio::test]
async fn statement_without_a_time_makes_the_expectation_uncertain() {
    let listed = ["changed", "deleted"].map(|name| with_content(updated(name, 1), "x"));
    let changes = vec![
        with_content(updated("changed", -1), "xx"),
        with_content(updated("new", -1), "xx"),
        deleted("deleted", -1),
    ];
    let nothing = World::new().await;
    let merged = Merged::of(&nothing, listed.into(), changes, |_| true).await;
    assert_eq!(merged.expected(sized), ["changed:?", "new:?"]);
    // It may exist or not: its file is not extra.
    let place = merged.audit_db.path_state("example.org/deleted");
    assert!(place.unwrap().expected);
}

#[tokio::test]
async fn known_set_begins_with_the_time_of_its_list_unless_there_are_change_lists() {
    for (capability, expected) in [
        (Capability::ResourceList, Some(at(20))),
        (Capability::ChangeList, None),
    ] {
        let (known, scratch) = (World::new().await, World::new().await);
        let offer = Offer {
            capability,
            ..Offer::implied(&"https://example.org/list".parse().unwrap())
        };
        let offers = [offer.clone()];
        let saving = known.store.save_offers(known.set, &offers, None);
        saving.await.unwrap();
        known.list(known.set, 20, Vec::new()).await;
        let files = KnownFiles::open(&database::place(known.folder.path()))
            .unwrap()
            .unwrap();
        let set = files.sets(SOURCE).unwrap().remove(0);
        scratch.store.begin_known_set(set).await.unwrap();
        let set = scratch.store.sets(SOURCE).await.unwrap().remove(0);
        assert_eq!(
            (set.list_at, set.baseline),
            (expected, BaselineState::Missing)
        );
        assert_eq!(set.offers, [offer]);
    }
}

#[tokio::test]
async fn findings_are_read_as_they_were_stored() {
    let nothing = World::new().await;
    let merged = Merged::of(&nothing, Vec::new(), Vec::new(), |_| true).await;
    let audit_db = merged.audit_db;
    let altered = Finding {
        set: Some(SetId(1)),
        uri: Some("https://example.org/a".into()),
        path: Some("example.org/a".into()),
        expected: Some(ResourceId(7)),
        differs: vec!["digest".into(), "lastmod".into()],
        length: Some(3),
        hashes: vec![Digest::of(Algorithm::Md5, b"abc")],
        ..Finding::new(FindingKind::Altered)
    };
    let extra = Finding::new(FindingKind::Extra);
    audit_db.add_findings(&[altered.clone(), extra]).unwrap();
    let all = || audit_db.next_findings(&mut 0, 9).unwrap().unwrap();
    let found = all();
    let whole = |finding: &Finding| {
        let finding = Finding {
            id: 0,
            ..finding.clone()
        };
        format!("{finding:?}")
    };
    assert_eq!(whole(&found[0]), whole(&altered));
    audit_db.drop_findings(&[found[1].id]).unwrap();
    let repaired = Finding {
        outcome: FindingOutcome::Repaired,
        ..found[0].clone()
    };
    audit_db.change_findings(&[repaired]).unwrap();
    let found = all();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].outcome, FindingOutcome::Repaired);
    let mut after = found[0].id;
    assert!(audit_db.next_findings(&mut after, 9).unwrap().is_none());
}

#[tokio::test]
async fn missing_database_is_no_error_and_a_newer_one_is() {
    let stated = World::in_folder().await;
    let folder = tempfile::tempdir().unwrap();
    let open = || AuditDb::open(stated.folder.path(), &folder.path().into(), SOURCE);
    assert!(KnownFiles::open(&folder.path().into()).unwrap().is_none());
    assert_eq!(open().unwrap().expected().unwrap(), 0);
    let newer = Connection::open(folder.path().join(crate::store::schema::DATABASE)).unwrap();
    newer.pragma_update(None, "user_version", 9999).unwrap();
    assert_eq!(open().err().unwrap().code(), "newer-schema");
}
