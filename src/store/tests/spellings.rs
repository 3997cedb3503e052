//! One resource, however its URI is written.

use super::*;

/// Equivalent URIs, beside `https://example.org/~a%2F`.
const SPELLINGS: [&str; 4] = [
    "https://example.org/~a%2F",
    "http://example.org/~a%2F",
    "https://example.org/%7Ea%2f",
    "http://example.org:80/%7ea%2F",
];

fn parsed(text: &str) -> ResourceUri {
    ResourceUri::parse(text).unwrap()
}

fn spelled(text: &str, change: Change) -> Change {
    Change {
        uri: parsed(text),
        ..change
    }
}

async fn found(world: &World, text: &str) -> (String, Option<String>) {
    let view = world.store.resource(&parsed(text)).await.unwrap().unwrap();
    (view.uri.to_string(), view.path)
}

#[tokio::test]
async fn resource_is_found_by_any_spelling_and_has_the_last_one_of_the_source() {
    for last in SPELLINGS {
        for unconfirmed in [false, true] {
            let first = SPELLINGS[0];
            let mut world = World::new().await;
            world.announce(vec![spelled(first, created("", 10))]).await;
            world.work("x").await;
            let again = Change {
                unconfirmed,
                ..spelled(last, updated("", 20))
            };
            world.announce(vec![again]).await;
            world.work("y").await;
            let shown = if unconfirmed {
                first.to_owned()
            } else {
                parsed(last).to_string()
            };
            for reopened in [false, true] {
                if reopened {
                    world = world.reopened();
                }
                for text in SPELLINGS {
                    let path = Some("example.org/~a%2F".to_owned());
                    assert_eq!(found(&world, text).await, (shown.clone(), path));
                    let search = FeedSearch {
                        uri: Some(parsed(text)),
                        ..FeedSearch::newest(9)
                    };
                    let entries = world.store.newest_changes(search).await.unwrap().entries;
                    assert_eq!(entries.len(), 2, "{last}, {text}");
                    assert!(entries.iter().all(|entry| entry.uri == shown));
                }
            }
        }
    }
}

#[tokio::test]
async fn older_statement_does_not_decide_how_a_uri_is_written() {
    let world = World::new().await;
    let [first, second, ..] = SPELLINGS;
    world.announce(vec![spelled(first, created("", 20))]).await;
    world.work("x").await;
    world.announce(vec![spelled(second, updated("", 10))]).await;
    assert_eq!(found(&world, second).await.0, first);
    // It states the same as is known, and later.
    world
        .list(
            world.set,
            30,
            vec![with_content(spelled(second, updated("", 20)), "x")],
        )
        .await;
    assert_eq!(found(&world, first).await.0, second);
    assert!(world.due().await.is_empty());
}

/// What a sender may have requested that may not speak for the Source: without TLS only where the Source itself does so.
#[tokio::test]
async fn other_scheme_is_another_origin() {
    let world = World::new().await;
    let with_port = "http://example.org:8080/a";
    world
        .announce(vec![
            spelled("https://example.org/a", created("", 10)),
            spelled(with_port, created("", 10)),
        ])
        .await;
    for (text, resource, origin) in [
        ("https://example.org/a", true, true),
        ("http://example.org/a", true, false),
        ("https://example.org/new", false, true),
        ("http://example.org/new", false, false),
        ("http://example.org.evil.example/", false, false),
        ("http://example.org:8080/new", false, true),
        ("https://example.org:8080/a", false, false),
        ("https://example.org:8443/a", false, false),
    ] {
        let named = world
            .store
            .named_by_source(world.set, SOURCE, [parsed(text)])
            .unwrap();
        let expected = NamedBySource { resource, origin };
        assert_eq!(named[&parsed(text)], expected, "{text}");
    }
}

#[tokio::test]
async fn resources_of_another_host_or_port_are_others() {
    let world = World::new().await;
    let others = [
        "https://example.org/a",
        "https://example.net/a",
        "https://example.org:8443/a",
        "http://example.org:443/a",
        "https://example.org/a%2Fb",
        "https://example.org/A",
    ];
    let changes = others.map(|text| spelled(text, created("", 10)));
    world.announce(changes.into()).await;
    let due = world.due().await;
    let paths: HashSet<&str> = due.iter().map(|task| task.path.as_str()).collect();
    assert_eq!((due.len(), paths.len()), (others.len(), others.len()));
}

/// As the documents write it and as the database has it.
#[tokio::test]
async fn audit_takes_all_spellings_for_one_resource() {
    for text in SPELLINGS {
        let world = World::new().await;
        world
            .announce(vec![spelled(SPELLINGS[0], created("", 10))])
            .await;
        world.work("x").await;
        let stated = World::in_folder().await;
        let listed = vec![spelled(text, updated("", 1))];
        stated.list(stated.set, 20, listed).await;
        let changed = with_content(spelled(SPELLINGS[1], updated("", 30)), "y");
        stated.announce(vec![changed]).await;
        let times = ListTimes {
            set: stated.set,
            at: at(20),
            entries_at: at(20),
        };
        let folder = world.folder.path();
        let audit_db = AuditDb::open(stated.folder.path(), &place(folder), SOURCE).unwrap();
        audit_db
            .merge_known(&[times], |_| true, |_, _| true)
            .unwrap();
        let expected = audit_db.expectations(ResourceId(0), 9).unwrap();
        let [expectation] = expected.as_slice() else {
            panic!("{expected:?}");
        };
        assert_eq!(expectation.path, "example.org/~a%2F");
        assert_eq!(expectation.uri.as_str(), SPELLINGS[1]);
        assert!(expectation.is_known && !expectation.content.hashes.is_empty());
        let files = KnownFiles::open(&place(folder)).unwrap().unwrap();
        assert!(files.of(SOURCE, Some(text), None).unwrap().is_some());
    }
}
