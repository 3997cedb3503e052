//! What an audit copies from the state database and merges into what the Source's documents state.

use super::*;

/// The statements of a Resource List of the second 10, merged with the state database.
struct Merged(AuditDb);

impl Merged {
    fn of(world: &World, listed: Vec<Change>, wants: impl Fn(&ResourceUri) -> bool) -> Self {
        let audit_db = AuditDb::begin().unwrap();
        audit_db
            .record_entries(1, 1, StatementKind::ResourceList { at: at(10) }, &listed)
            .unwrap();
        let folder = world.folder.path();
        assert!(
            audit_db
                .copy_known(folder, SOURCE, wants, |_, _| true)
                .unwrap()
        );
        audit_db.merge_known(Some(at(10))).unwrap();
        Self(audit_db)
    }

    fn expected<T>(&self, view: impl Fn(Expectation) -> T) -> Vec<T> {
        let expectations = self.0.expectations(0, 9).unwrap();
        expectations.into_iter().map(view).collect()
    }
}

/// As `name:length`.
fn sized(expectation: Expectation) -> String {
    let name = expectation.uri.url().path().trim_start_matches('/');
    format!("{name}:{}", expectation.content.length.unwrap())
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
    let merged = Merged::of(&world, listed.into(), wants);
    assert_eq!(
        merged.expected(sized),
        ["older:1", "newer:5", "lacking:1", "unlisted:5"]
    );
    let is_known = merged.expected(|expectation| expectation.is_known);
    assert_eq!(is_known, [true, true, false, true]);
    let place = |name: &str| merged.0.path_state(&format!("example.org/{name}")).unwrap();
    let facts = |place: PathState| (place.expected, place.known, place.live);
    assert_eq!(facts(place("newer")), (true, true, true));
    assert_eq!(facts(place("gone")), (false, true, false));
    assert_eq!(facts(place("unwanted")), (false, false, true));
    assert_eq!(place("stray"), PathState::default());

    let files = KnownFiles::open(world.folder.path()).unwrap().unwrap();
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
    let merged = Merged::of(&world, vec![second, updated("b", 1)], |_| true);
    let paths = merged.expected(|expectation| expectation.path);
    assert_eq!(paths, [made.as_str(), "example.org/elsewhere"]);
}

#[tokio::test]
async fn time_of_the_newest_list_is_known() {
    let world = World::new().await;
    let listed_at = |list: &str| {
        let files = KnownFiles::open(world.folder.path()).unwrap().unwrap();
        let uri = format!("https://example.org/{list}").parse().unwrap();
        files.listed_at(SOURCE, &uri).unwrap()
    };
    assert_eq!(listed_at("capabilitylist.xml"), None);
    world.list(world.set, 20, Vec::new()).await;
    assert_eq!(listed_at("capabilitylist.xml"), Some(at(20)));
    assert_eq!(listed_at("another.xml"), None);
}

#[test]
fn missing_database_is_no_error_and_a_newer_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let audit_db = AuditDb::begin().unwrap();
    assert!(
        !audit_db
            .copy_known(folder.path(), SOURCE, |_| true, |_, _| true)
            .unwrap()
    );
    assert!(KnownFiles::open(folder.path()).unwrap().is_none());
    let newer = Connection::open(folder.path().join(crate::store::schema::DATABASE)).unwrap();
    newer.pragma_update(None, "user_version", 9999).unwrap();
    let copied = audit_db.copy_known(folder.path(), SOURCE, |_| true, |_, _| true);
    assert_eq!(copied.unwrap_err().code(), "newer-schema");
}
