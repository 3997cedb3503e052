//! The feed: its id, and positions that are none of it.

use chrono::TimeDelta;

use super::*;

#[tokio::test]
async fn feed_has_another_id_in_each_database_and_the_same_in_one() {
    let World { folder, store, .. } = World::new().await;
    let first = store.feed_id().to_owned();
    assert_eq!(first.len(), 16, "{first}");
    assert!(first.bytes().all(|byte| byte.is_ascii_hexdigit()));
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(store.feed_id(), first);
    drop(store);
    // Set aside.
    let path = folder.path().join(schema::DATABASE);
    std::fs::write(&path, "no database any more".repeat(1000)).unwrap();
    let store = Store::open(folder.path()).unwrap();
    let second = store.feed_id().to_owned();
    drop(store);
    // Lost.
    std::fs::remove_file(&path).unwrap();
    let third = Store::open(folder.path()).unwrap().feed_id().to_owned();
    assert_eq!(HashSet::from([first, second, third]).len(), 3);
}

#[tokio::test]
async fn position_beyond_the_end_is_an_error() {
    let world = World::new().await;
    let check = async |since: i64, expected: Result<usize, i64>| {
        let found = match world.store.feed(since, 9).await {
            Ok(entries) => Ok(entries.len()),
            Err(StoreError::BeyondFeed { last }) => Err(last),
            Err(error) => panic!("{since}: {error}"),
        };
        assert_eq!(found, expected, "{since}");
    };
    check(0, Ok(0)).await;
    check(1, Err(0)).await;
    world
        .announce(vec![created("a", 10), created("b", 10)])
        .await;
    world.work("1").await;
    for (since, expected) in [(-1, Ok(2)), (1, Ok(1)), (2, Ok(0)), (3, Err(2))] {
        check(since, expected).await;
    }
    // The end stays the end when its entry is removed.
    let later = world.now + TimeDelta::days(1);
    world.store.trim_feed(later).await.unwrap();
    for (since, expected) in [(2, Ok(0)), (3, Err(2)), (i64::MAX, Err(2))] {
        check(since, expected).await;
    }
}

#[tokio::test]
async fn positions_of_readers_count_for_a_week_also_in_the_next_process() {
    let World {
        folder, store, now, ..
    } = World::new().await;
    let days = TimeDelta::days;
    assert_eq!(store.feed_read_until(now).await.unwrap(), None);
    store.note_feed_reader(now, 7);
    store.note_feed_reader(now + days(2), 9);
    store.note_feed_reader(now, 8);
    assert_eq!(store.feed_read_until(now).await.unwrap(), Some(7));
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    for (later, expected) in [(0, Some(7)), (7, Some(7)), (8, Some(9)), (10, None)] {
        let found = store.feed_read_until(now + days(later)).await.unwrap();
        assert_eq!(found, expected, "after {later} days");
    }
    store.note_feed_reader(now + days(10), 3);
    let found = store.feed_read_until(now + days(10)).await.unwrap();
    assert_eq!(found, Some(3));
}

/// The names of what a listing has, and the number of its steps.
async fn listed(world: &World, source: Option<&str>, set: Option<&str>) -> (Vec<String>, usize) {
    let begun = world
        .store
        .begin_listing(source.map(str::to_owned), set.map(str::to_owned));
    let (_, mut listing) = begun.await.unwrap().unwrap();
    let (mut names, mut steps) = (Vec::new(), 0);
    while let Some((views, rest)) = world.store.next_listed(listing).await.unwrap() {
        assert!(views.len() <= 100, "{}", views.len());
        let uris = views.iter().map(|view| view.uri.as_str());
        names.extend(uris.map(|uri| uri.rsplit_once('/').unwrap().1.to_owned()));
        (listing, steps) = (rest, steps + 1);
    }
    names.sort_unstable();
    (names, steps)
}

#[tokio::test]
async fn listing_has_what_the_mirror_has_in_steps() {
    let world = World::new().await;
    let many = (0..700).map(|n| created(&format!("a{n:03}"), 10));
    world.announce(many.collect()).await;
    world.work("1").await;
    world
        .announce(vec![deleted("a000", 20), deleted("a699", 20)])
        .await;
    world.work("2").await;
    // Known, but not fetched yet.
    world.announce(vec![created("b", 30)]).await;
    let other = begin(&world.store, "other.xml").await;
    world
        .announce_in(other, vec![updated("a001", 40), created("c", 40)])
        .await;
    world.work("3").await;
    world.announce(vec![created("d", 50)]).await;
    let live: Vec<String> = (1..699)
        .map(|n| format!("a{n:03}"))
        .chain(["b", "c"].map(str::to_owned))
        .collect();
    for source in [None, Some(SOURCE)] {
        let (names, steps) = listed(&world, source, None).await;
        assert_eq!(names, live, "{source:?}");
        assert!(steps >= 7, "{steps}");
    }
    let set = "https://example.org/other.xml";
    for source in [None, Some(SOURCE)] {
        let (names, _) = listed(&world, source, Some(set)).await;
        assert_eq!(names, ["a001", "c"], "{source:?}");
    }
    for (source, set) in [
        (Some("unknown"), None),
        (None, Some("https://example.org/unknown.xml")),
        (Some("unknown"), Some(set)),
    ] {
        let begun = world
            .store
            .begin_listing(source.map(str::to_owned), set.map(str::to_owned));
        assert!(begun.await.unwrap().is_none(), "{source:?} {set:?}");
    }
}
