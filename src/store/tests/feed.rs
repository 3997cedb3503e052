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
    let store = Store::open(place(folder.path())).unwrap();
    assert_eq!(store.feed_id(), first);
    drop(store);
    // Set aside.
    let path = folder.path().join(schema::DATABASE);
    std::fs::write(&path, "no database any more".repeat(1000)).unwrap();
    let store = Store::open(place(folder.path())).unwrap();
    let second = store.feed_id().to_owned();
    drop(store);
    // Lost.
    std::fs::remove_file(&path).unwrap();
    let third = Store::open(place(folder.path()))
        .unwrap()
        .feed_id()
        .to_owned();
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
    let store = Store::open(place(folder.path())).unwrap();
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
    let (_, listing) = begun.await.unwrap();
    let mut listing = listing.unwrap();
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
        assert!(begun.await.unwrap().1.is_none(), "{source:?} {set:?}");
    }
}

#[tokio::test]
async fn newest_entries_are_found_in_a_bounded_part_of_the_feed() {
    let world = World::new().await;
    let check = async |search: FeedSearch, expected: &[i64], next: Option<i64>| {
        let found = world.store.newest_changes(search.clone()).await.unwrap();
        let numbers: Vec<i64> = found.entries.iter().map(|entry| entry.seq).collect();
        assert_eq!(
            (numbers.as_slice(), found.next),
            (expected, next),
            "{search:?}"
        );
    };
    check(FeedSearch::newest(9), &[], None).await;
    for name in ["a", "b", "a"] {
        let time = 10
            + world
                .store
                .newest_changes(FeedSearch::newest(9))
                .await
                .unwrap()
                .entries
                .len();
        let time = i64::try_from(time).unwrap();
        world.announce(vec![updated(name, time)]).await;
        world.work(&time.to_string()).await;
    }
    check(FeedSearch::newest(9), &[3, 2, 1], None).await;
    check(FeedSearch::newest(2), &[3, 2], Some(2)).await;
    let before = |before| FeedSearch {
        before: Some(before),
        ..FeedSearch::newest(2)
    };
    check(before(2), &[1], None).await;
    check(before(i64::MIN), &[], None).await;
    check(before(i64::MAX), &[3, 2], Some(2)).await;
    let uri = world
        .store
        .newest_changes(FeedSearch::newest(1))
        .await
        .unwrap();
    let uri = ResourceUri::parse(&uri.entries[0].uri).unwrap();
    let of_uri = |limit| FeedSearch {
        uri: Some(uri.clone()),
        ..FeedSearch::newest(limit)
    };
    check(of_uri(9), &[3, 1], None).await;
    check(of_uri(1), &[3], Some(3)).await;
    let of_source = |source: &str| FeedSearch {
        source: Some(source.to_owned()),
        ..FeedSearch::newest(9)
    };
    check(of_source("unknown"), &[], None).await;
    let source = world
        .store
        .newest_changes(FeedSearch::newest(1))
        .await
        .unwrap();
    check(of_source(&source.entries[0].source), &[3, 2, 1], None).await;
}

#[tokio::test]
async fn search_in_the_feed_reads_no_more_than_its_part() {
    let world = World::new().await;
    world.announce(vec![created("a", 10)]).await;
    world.work("1").await;
    let oldest = world
        .store
        .newest_changes(FeedSearch::newest(1))
        .await
        .unwrap();
    let uri = Some(ResourceUri::parse(&oldest.entries[0].uri).unwrap());
    // Many changes of others follow.
    world
        .store
        .write(|tx| {
            tx.sql.execute_batch(
                "INSERT INTO removed_resource (id, identity, uri, last)
                     VALUES (-1, '//example.org/other', 'https://example.org/other', 1000000000000);
                 WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 50000)
                 INSERT INTO feed (seq, applied_at, set_id, resource_id, change, path, length, changed_at, origin)
                 SELECT 1 + n, applied_at, set_id, -1, change, path, length, changed_at, origin
                 FROM feed, number WHERE seq = 1;
                 UPDATE feed_number SET last = 50001",
            )?;
            Ok(())
        })
        .await
        .unwrap();
    let mut before = None;
    for round in 0.. {
        let search = FeedSearch {
            uri: uri.clone(),
            before,
            ..FeedSearch::newest(9)
        };
        let found = world.store.newest_changes(search).await.unwrap();
        if let [entry] = found.entries.as_slice() {
            assert_eq!((entry.seq, found.next, round), (1, None, 2));
            return;
        }
        assert!(found.entries.is_empty());
        before = Some(found.next.expect("the oldest entry was not read yet"));
    }
}

#[tokio::test]
async fn entries_that_are_unreadable_do_not_end_a_page() {
    let world = World::new().await;
    let names = ["a", "b", "c", "d"];
    world
        .announce(names.map(|name| created(name, 10)).into())
        .await;
    world.work("1").await;
    world
        .store
        .write(|tx| {
            let damage = "UPDATE feed SET links = 'no links' WHERE seq IN (2, 3)";
            Ok(tx.sql.execute_batch(damage)?)
        })
        .await
        .unwrap();
    let numbers = |entries: Vec<FeedEntry>| -> Vec<i64> {
        entries.into_iter().map(|entry| entry.seq).collect()
    };
    for (since, limit, expected) in [(1, 1, &[4][..]), (0, 2, &[1, 4]), (0, 9, &[1, 4])] {
        let found = world.store.feed(since, limit).await.unwrap();
        assert_eq!(numbers(found), expected, "{since} {limit}");
    }
    for (before, limit, expected) in [(4, 1, &[1][..]), (5, 2, &[4, 1]), (5, 9, &[4, 1])] {
        let search = FeedSearch {
            before: Some(before),
            ..FeedSearch::newest(limit)
        };
        let found = world.store.newest_changes(search).await.unwrap();
        assert_eq!(numbers(found.entries), expected, "{before} {limit}");
    }
}

/// After a restore of a backup the numbers begin far above the last one.
#[tokio::test]
async fn search_in_the_feed_finds_what_is_before_a_jump_of_its_numbers() {
    let world = World::new().await;
    world.announce(vec![created("a", 10)]).await;
    world.work("1").await;
    world
        .store
        .write(|tx| {
            tx.sql
                .execute_batch("UPDATE feed_number SET last = 1700000000000000")?;
            Ok(())
        })
        .await
        .unwrap();
    let search = |uri: Option<ResourceUri>, source: Option<String>| FeedSearch {
        uri,
        source,
        ..FeedSearch::newest(9)
    };
    for numbers in [&[1][..], &[1_700_000_000_000_001, 1]] {
        let newest = FeedSearch::newest(9);
        let newest = world.store.newest_changes(newest).await.unwrap();
        let uri = newest
            .entries
            .last()
            .map(|it| ResourceUri::parse(&it.uri).unwrap());
        let source = newest.entries.last().map(|entry| entry.source.clone());
        for search in [search(None, None), search(uri, None), search(None, source)] {
            let found = world.store.newest_changes(search.clone()).await.unwrap();
            let found_numbers: Vec<i64> = found.entries.iter().map(|entry| entry.seq).collect();
            assert_eq!(found_numbers, numbers, "{search:?}");
            assert_eq!(found.next, None, "{search:?}");
        }
        if numbers.len() == 1 {
            world.announce(vec![updated("a", 20)]).await;
            world.work("2").await;
        }
    }
}

async fn removed_resources(world: &World) -> i64 {
    let count = world.store.read(|sql| {
        let all = "SELECT COUNT(*) FROM removed_resource";
        Ok(sql.query_row(all, [], |row| row.get(0))?)
    });
    count.await.unwrap()
}

/// Entries name the row of their resource, and rows are removed before the entries.
#[tokio::test]
async fn entries_have_the_uri_of_a_resource_that_has_no_row() {
    let world = World::new().await;
    world
        .announce(vec![created("a", 10), created("b", 10)])
        .await;
    world.work("1").await;
    while let found = world.store.begin_forgetting(SOURCE).await.unwrap()
        && !found.is_empty()
    {
        let (store, now) = (&world.store, world.now);
        let forgotten = store.forget_resources(now, found, FilesOfForgotten::Removed);
        forgotten.await.unwrap();
    }
    world.store.end_forgetting_resources(SOURCE).await.unwrap();
    // They are no entries of the resources that come next.
    world
        .announce(vec![created("c", 20), created("d", 20)])
        .await;
    world.work("1").await;
    let feed = world.store.feed(0, 9).await.unwrap();
    let entries: Vec<_> = feed
        .iter()
        .map(|entry| (entry.change.as_str(), entry.uri.clone()))
        .collect();
    let expected = [
        ("created", "a"),
        ("created", "b"),
        ("deleted", "a"),
        ("deleted", "b"),
        ("created", "c"),
        ("created", "d"),
    ];
    let expected = expected.map(|(change, name)| (change, uri(name).to_string()));
    assert_eq!(entries, expected);
    let of_removed = FeedSearch {
        uri: Some(uri("b")),
        ..FeedSearch::newest(9)
    };
    let found = world.store.newest_changes(of_removed).await.unwrap();
    let found: Vec<_> = found.entries.iter().map(|entry| entry.seq).collect();
    assert_eq!(found, [feed[3].seq, feed[1].seq]);

    assert_eq!(removed_resources(&world).await, 2);
    let later = world.now + TimeDelta::days(1);
    for (until, remaining) in [(feed[2].seq, 2), (feed[3].seq, 0)] {
        world.store.trim_read_feed(later, until).await.unwrap();
        assert!(!world.store.trim_removed_resources().await.unwrap());
        assert_eq!(removed_resources(&world).await, remaining);
    }
    let last = world.store.feed(feed[3].seq, 9).await.unwrap();
    assert_eq!(last[1].uri, uri("d").to_string());
}

#[tokio::test]
async fn removed_resource_leaves_its_uri_only_if_an_entry_may_name_it() {
    let world = World::new().await;
    world.announce(vec![created("a", 10)]).await;
    world.work("1").await;
    // Never applied.
    world.announce(vec![created("b", 20)]).await;
    while world.store.forget_next(SOURCE).await.unwrap() > 0 {}
    assert_eq!(removed_resources(&world).await, 1);

    // Its entry is gone before its row.
    world.announce(vec![created("c", 30)]).await;
    world.work("1").await;
    let later = world.now + TimeDelta::days(1);
    world.store.trim_feed(later).await.unwrap();
    world.store.trim_removed_resources().await.unwrap();
    while world.store.forget_next(SOURCE).await.unwrap() > 0 {}
    assert_eq!(removed_resources(&world).await, 0);
}
