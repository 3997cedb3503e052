//! Several nodes of one database. They need a server: without one these tests find nothing to do.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use resyncd_fetch::Authorities;

use super::database::server_url;
use super::*;
use crate::store::sql::params;

/// Ends a test that would hang.
const LIMIT: Duration = Duration::from_secs(180);

/// A database that several nodes may work on, each with a folder of its own.
struct Nodes {
    folders: Vec<TempDir>,
    sql: super::super::sql::Connection,
}

impl Nodes {
    /// `None`: there is no server.
    fn new(number: usize) -> Option<Self> {
        let folders: Vec<TempDir> = (0..number).map(|_| tempfile::tempdir().unwrap()).collect();
        let place = place(folders[0].path());
        place.is_on_server().then(|| Self {
            sql: place.open().unwrap(),
            folders,
        })
    }

    /// Where the node of that number has its state.
    fn place(&self, number: usize) -> StatePlace {
        let mut place = place(self.folders[0].path()).of_node(format!("node-{number}"));
        place.folder = self.folders[number].path().to_owned();
        place
    }

    fn open(&self, number: usize) -> Arc<Store> {
        Store::open(self.place(number).shared()).unwrap()
    }

    /// Makes what a node holds, or has left, older than that.
    fn age(&self) {
        let older = "UPDATE held_source SET since = since - 3600000000";
        self.sql.execute(older, []).unwrap();
    }

    /// Has the lease of a node run out, while the others have renewed theirs, and another one take what it has held.
    async fn take_over(&self, number: usize, by: &Arc<Store>, source: &str) {
        let mut held = HeldSources::default();
        // The node may renew it again before.
        while held.held.is_empty() {
            self.expire(number);
            held = share(by, &[source]).await;
        }
        assert_eq!(names(&held), ["", source]);
    }

    fn expire(&self, number: usize) {
        let sound = "UPDATE node SET sound = sound - 3600000000";
        self.sql.execute(sound, []).unwrap();
        let expired = "UPDATE node SET until = 1 WHERE name = ?1";
        self.sql
            .execute(expired, [format!("node-{number}")])
            .unwrap();
    }
}

/// Passes on what is sent to the server, and loses the answer to the first commit that it is told of.
fn lose_an_answer(server: &str, loses: &Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (server, loses) = (server.to_owned(), Arc::clone(loses));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, loses) = (client.unwrap(), Arc::clone(&loses));
            let mut upstream = TcpStream::connect(&server).unwrap();
            let (mut answers, mut answered) =
                (upstream.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut answered));
            std::thread::spawn(move || {
                let mut buffer = [0; 65536];
                while let Ok(length @ 1..) = client.read(&mut buffer) {
                    let sent = &buffer[..length];
                    if sent.ends_with(b"COMMIT\0") && loses.swap(false, Ordering::SeqCst) {
                        client.shutdown(Shutdown::Both).unwrap();
                        upstream.write_all(sent).unwrap();
                        return;
                    }
                    upstream.write_all(sent).unwrap();
                }
            });
        }
    });
    port
}

/// What was committed must not be done again, also if nobody has heard of it.
#[tokio::test]
async fn commit_whose_answer_is_lost_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let Some(url) = server_url(folder.path()) else {
        return;
    };
    let server = url::Url::parse(&url).unwrap();
    let at = format!("{}:{}", server.host_str().unwrap(), server.port().unwrap());
    let loses = Arc::new(AtomicBool::new(false));
    let port = lose_an_answer(&at, &loses);
    let mut through = server.clone();
    through.set_port(Some(port)).unwrap();
    let place = StatePlace::from(folder.path());
    let place = place.on_server(through.as_str(), Some(""), None, &Authorities::default());
    let store = Store::open(place).unwrap();
    loses.store(true, Ordering::SeqCst);
    let now = clock::now().wall;
    store.pause("a", now).await.unwrap();
    assert!(!loses.load(Ordering::SeqCst), "the answer was not lost");
    assert_eq!(store.paused().await.unwrap().len(), 1);
    store.resume("a").await.unwrap();
    assert_eq!(store.paused().await.unwrap(), []);
}

async fn share(store: &Arc<Store>, configured: &[&str]) -> HeldSources {
    let configured = configured.iter().map(|name| (*name).to_owned()).collect();
    store.share_sources(configured).await.unwrap()
}

fn names(held: &HeldSources) -> Vec<&str> {
    held.held.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn nodes_share_sources_and_take_over_what_another_one_leaves() {
    let Some(nodes) = Nodes::new(2) else { return };
    let one = nodes.open(0);
    assert_eq!(names(&share(&one, &["a", "b"]).await), ["", "a", "b"]);
    assert_eq!(names(&share(&one, &["a", "b"]).await), ["", "a", "b"]);
    let two = nodes.open(1);
    assert_eq!(names(&share(&two, &["a", "b"]).await), [""; 0]);
    nodes.age();
    // What is given up is held until nothing works on it.
    let given_up = share(&one, &["a", "b"]).await;
    assert_eq!(given_up.given_up, ["a"]);
    assert_eq!(names(&given_up), ["", "a", "b"]);
    assert_eq!(names(&share(&two, &["a", "b"]).await), [""; 0]);
    one.give_up_sources(given_up.given_up).await.unwrap();
    assert_eq!(names(&share(&two, &["a", "b"]).await), ["a"]);
    let holders = one.holders().await.unwrap();
    let found: Vec<(&str, &str, bool)> = holders
        .iter()
        .map(|(source, it)| (&**source, &*it.name, it.is_own))
        .collect();
    assert_eq!(
        found,
        [
            ("", "node-0", true),
            ("a", "node-1", false),
            ("b", "node-0", true)
        ]
    );
    // One that ends in order is followed at once.
    drop(one);
    assert_eq!(names(&share(&two, &["a", "b"]).await), ["", "a", "b"]);
    let known = nodes.place(0).nodes().unwrap();
    let works: Vec<bool> = known.iter().map(|node| node.works).collect();
    assert_eq!(works, [false, true]);
}

#[tokio::test]
async fn node_that_was_found_dead_commits_nothing() {
    let Some(nodes) = Nodes::new(2) else { return };
    let (one, two) = (nodes.open(0), nodes.open(1));
    share(&one, &["a"]).await;
    one.pause("before", clock::now().wall).await.unwrap();
    nodes.take_over(0, &two, "a").await;
    let refused = one.pause("after", clock::now().wall).await.unwrap_err();
    assert_eq!(refused.code(), "database-held");
    tokio::time::timeout(LIMIT, one.replaced()).await.unwrap();
    let paused = two.paused().await.unwrap();
    let paused: Vec<&str> = paused.iter().map(|(source, _)| &**source).collect();
    assert_eq!(paused, ["before"]);
    // Its end changes nothing of what the other one holds.
    drop(one);
    assert_eq!(names(&share(&two, &["a"]).await), ["", "a"]);
    // The same folder with the same name is a new node.
    let again = nodes.open(0);
    again.pause("again", clock::now().wall).await.unwrap();
}

/// What the node that died was doing may have been done, as after a crash.
#[tokio::test]
async fn tasks_of_a_dead_node_are_in_doubt() {
    for is_killed in [false, true] {
        let Some(nodes) = Nodes::new(2) else { return };
        let one = World::of(tempfile::tempdir().unwrap(), nodes.open(0)).await;
        share(&one.store, &[SOURCE]).await;
        one.announce(vec![created("a", 10)]).await;
        one.work("first").await;
        one.announce(vec![updated("a", 20)]).await;
        let two = World::of(tempfile::tempdir().unwrap(), nodes.open(1)).await;
        assert!(!two.due().await[0].live_doubted);
        if is_killed {
            nodes.take_over(0, &two.store, SOURCE).await;
        } else {
            drop(one.store);
            assert_eq!(names(&share(&two.store, &[SOURCE]).await), ["", SOURCE]);
        }
        assert_eq!(two.due().await[0].live_doubted, is_killed);
    }
}

#[tokio::test]
async fn one_node_at_a_time_works_on_the_database_itself() {
    let Some(nodes) = Nodes::new(2) else { return };
    let daemon = nodes.open(0);
    let command = Store::open(nodes.place(1)).err().unwrap();
    assert_eq!(command.code(), "database-held");
    assert!(command.to_string().contains("node-0"), "{command}");
    drop(daemon);
    let command = Store::open(nodes.place(1)).unwrap();
    let daemon = Store::open(nodes.place(0).shared()).err().unwrap();
    assert_eq!(daemon.code(), "database-held");
    drop(command);
    nodes.open(0);
}

/// The server tells of what others commit; a node that it does not tell looks for it.
#[tokio::test]
async fn nodes_are_woken_by_what_others_commit() {
    let Some(nodes) = Nodes::new(2) else { return };
    let (one, two) = (nodes.open(0), nodes.open(1));
    let mut wakes = two.wakes();
    let set = SetId(7);
    one.write(move |tx| {
        tx.wake(Wake::Inbox(set));
        // That is of the node itself.
        tx.wake(Wake::Tasks("a".to_owned()));
        Ok(())
    })
    .await
    .unwrap();
    let woken = tokio::time::timeout(LIMIT, wakes.recv()).await.unwrap();
    assert_eq!(woken.unwrap(), Wake::Inbox(set));
    assert!(wakes.try_recv().is_err());
}

#[tokio::test]
async fn node_answers_what_another_one_asks() {
    let Some(nodes) = Nodes::new(2) else { return };
    let (one, two) = (nodes.open(0), nodes.open(1));
    share(&two, &["a"]).await;
    let holder = one.holder("a").await.unwrap().unwrap();
    let (asking, name) = (Arc::clone(&one), holder.clone());
    let asked = tokio::spawn(async move { asking.ask(&name, "what".to_owned(), LIMIT).await });
    let mut wakes = two.wakes();
    let (number, request) = loop {
        if let Some(found) = two.asked().await.unwrap().pop() {
            break found;
        }
        Wake::until(&mut wakes, |wake| matches!(wake, Wake::Asked(_))).await;
    };
    assert_eq!(request, "what");
    // Once.
    assert_eq!(two.asked().await.unwrap(), []);
    two.answer(number, "that".to_owned()).await.unwrap();
    assert_eq!(asked.await.unwrap().unwrap(), "that");
    let silent = one.ask(&holder, String::new(), Duration::from_millis(100));
    assert_eq!(silent.await.unwrap_err().code(), "node-not-answering");
}

#[tokio::test]
async fn sources_are_moved_and_nodes_drained() {
    let Some(nodes) = Nodes::new(2) else { return };
    let (one, place) = (nodes.open(0), nodes.place(0));
    share(&one, &["a", "b"]).await;
    assert_eq!(
        place.move_source("a", "node-1").unwrap_err().code(),
        "unknown-node"
    );
    assert_eq!(
        place.drain("node-0", true).unwrap_err().code(),
        "no-other-node"
    );
    let two = nodes.open(1);
    assert_eq!(
        place.move_source("c", "node-1").unwrap_err().code(),
        "unknown-source"
    );
    place.move_source("a", "node-1").unwrap();
    let moved = share(&one, &["a", "b"]).await;
    assert_eq!(moved.given_up, ["a"]);
    one.give_up_sources(moved.given_up).await.unwrap();
    assert_eq!(names(&share(&one, &["a", "b"]).await), ["", "b"]);
    assert_eq!(names(&share(&two, &["a", "b"]).await), ["a"]);
    assert_eq!(place.moving("a", "node-1").unwrap(), Moving::Done);
    // What that one does not take stays.
    place.move_source("b", "node-1").unwrap();
    let moved = share(&one, &["a", "b"]).await;
    one.give_up_sources(moved.given_up).await.unwrap();
    assert_eq!(place.moving("b", "node-1").unwrap(), Moving::Waits);
    nodes.age();
    assert_eq!(names(&share(&one, &["a", "b"]).await), ["", "b"]);
    assert_eq!(place.moving("b", "node-1").unwrap(), Moving::Refused);
    place.drain("node-0", true).unwrap();
    assert_eq!(
        place.drain("node-1", true).unwrap_err().code(),
        "no-other-node"
    );
    let drained = share(&one, &["a", "b"]).await;
    assert_eq!(drained.given_up, ["", "b"]);
    one.give_up_sources(drained.given_up).await.unwrap();
    assert_eq!(names(&share(&two, &["a", "b"]).await), ["", "a", "b"]);
    assert_eq!(names(&share(&one, &["a", "b"]).await), [""; 0]);
    place.drain("node-0", false).unwrap();
}

/// Whoever reads the feed never finds a number that is smaller than one that it has read.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn feed_is_in_the_order_of_commits() {
    const ENTRIES: i64 = 100;
    let Some(nodes) = Nodes::new(3) else { return };
    let reader = nodes.open(2);
    let stores = [nodes.open(0), nodes.open(1)];
    let list = url::Url::parse("https://example.org/list.xml").unwrap();
    reader.begin_set("a", &list).await.unwrap();
    let adding = stores.map(|store| {
        tokio::spawn(async move {
            for _ in 0..ENTRIES {
                let adding = store.write(move |tx| {
                    tx.sql.execute("UPDATE feed_number SET last = last + 1", [])?;
                    let entry = "INSERT INTO feed (seq, applied_at, set_id, resource_id, change, path, origin)
                        SELECT last, 1, (SELECT MIN(id) FROM source_set), -1, 'updated', '', 'change-list' FROM feed_number";
                    Ok(tx.sql.execute(entry, params![])?)
                });
                adding.await.unwrap();
            }
        })
    });
    let mut last = 0;
    while last < 2 * ENTRIES {
        let found: Vec<i64> = reader
            .read(move |sql| {
                let after = "SELECT seq FROM feed WHERE seq > ?1 ORDER BY seq";
                let mut after = sql.prepare_cached(after)?;
                let rows = after.query_map([last], |row| row.get(0))?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
            .unwrap();
        for number in found {
            assert_eq!(number, last + 1);
            last = number;
        }
    }
    for added in adding {
        added.await.unwrap();
    }
}
