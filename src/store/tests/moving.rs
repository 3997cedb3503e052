//! A state that is moved to another database, or becomes one of an earlier time.

use chrono::TimeDelta;
use rusqlite::types::Value;

use super::*;
use crate::store::sql::{Connection, Row};
use crate::store::transfer::{Table, tables};

/// The rows of all tables, in any order.
fn rows(place: &StatePlace) -> Vec<(String, Vec<String>)> {
    let sql: Connection = place.open().unwrap();
    let rows_of = |Table { name, columns, .. }: Table| {
        let columns = columns.join(", ");
        let mut query = sql
            .prepare_cached(&format!("SELECT {columns} FROM {name}"))
            .unwrap();
        let read = |row: &Row<'_>| {
            let values = (0..columns.split(", ").count()).map(|at| row.get::<_, Value>(at));
            values.collect::<Result<Vec<_>, _>>()
        };
        let rows = query.query_map([], read).unwrap();
        let mut rows: Vec<String> = rows.map(|row| format!("{:?}", row.unwrap())).collect();
        rows.sort();
        (name, rows)
    };
    tables().unwrap().into_iter().map(rows_of).collect()
}

async fn with_a_feed() -> (TempDir, String) {
    let world = World::new().await;
    world.channel().await;
    let listed = vec![created("a", 5), with_content(created("b", 6), "b")];
    world.list(world.set, 10, listed).await;
    world.work("1").await;
    world
        .announce(vec![deleted("a", 20), updated("b", 21)])
        .await;
    let feed = world.store.feed_id().to_owned();
    (world.folder, feed)
}

#[tokio::test]
async fn state_that_was_moved_has_the_same_rows_and_goes_on_with_its_feed() {
    let (folder, feed) = with_a_feed().await;
    let other = tempfile::tempdir().unwrap();
    let (from, to) = (place(folder.path()), StatePlace::from(other.path()));
    let before = rows(&from);
    let moved = move_state(&from, &to).unwrap().unwrap();
    let all: usize = before.iter().map(|(_, rows)| rows.len()).sum();
    assert_eq!(moved, all as u64);
    assert_eq!(rows(&to), before);
    let store = Store::open(to.clone()).unwrap();
    assert_eq!(store.feed_id(), feed);
    let error = move_state(&from, &to).unwrap_err();
    assert_eq!(error.code(), "state-locked");
    drop(store);
    let error = move_state(&from, &to).unwrap_err();
    assert_eq!(error.code(), "state-exists");
    let nothing = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let moved = move_state(&nothing.path().into(), &empty.path().into());
    assert_eq!(moved.unwrap(), None);
}

/// Ids that were given before are not given again, also where their rows are gone.
#[tokio::test]
async fn delivery_is_stored_after_all_others_were_processed_and_the_state_was_moved() {
    let world = World::new().await;
    let channel = world.channel().await;
    world.deliver(channel, "before", TimeDelta::zero()).await;
    world.work_off(DeliveryOutcome::Applied).await;
    let World {
        folder,
        store,
        set,
        now,
    } = world;
    drop(store);
    let other = tempfile::tempdir().unwrap();
    let to = StatePlace::from(other.path());
    move_state(&place(folder.path()), &to).unwrap();
    let moved = World {
        store: Store::open(to).unwrap(),
        folder: other,
        set,
        now,
    };
    let receipt = moved.deliver(channel, "after", TimeDelta::zero()).await;
    assert_eq!(receipt, Receipt::Stored);
}

#[tokio::test]
async fn new_feed_has_another_id_and_greater_numbers() {
    let (folder, feed) = with_a_feed().await;
    let now = DateTime::from_timestamp(1_900_000_000, 0).unwrap();
    let id = begin_another_feed(&place(folder.path()), now).unwrap();
    assert_ne!(id, feed);
    let store = Store::open(place(folder.path())).unwrap();
    assert_eq!(store.feed_id(), id);
    let last = store
        .read(|sql| Ok(crate::store::tables::feed::last_number(sql)?))
        .await;
    assert!(last.unwrap() >= now.timestamp_micros());
}
