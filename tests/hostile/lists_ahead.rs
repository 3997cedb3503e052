//! The next list of an index is requested while the one in hand waits for the database; and what was begun ends with the reading,
//! or with the process.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use chrono::{DateTime, Utc};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use resyncd::clock;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::eventually;
use crate::support::process::{Home, Running};
use crate::support::site::{NAMESPACES, Site, entry, ok, status, urlset};

const MIB: usize = 1 << 20;
const RESOURCE_LISTS: &str = "resourcelist";
const CHANGE_LISTS: &str = "changelist";

/// What the server does, and what it sees. Before the first list is served the database is locked: no entry of it can be ingested.
#[derive(Default)]
struct Server {
    /// The database that is to be locked.
    database: Mutex<Option<PathBuf>>,
    lock: Mutex<Option<Lock>>,
    /// Whether the end of the second list is withheld.
    withholds: AtomicBool,
    /// How many of its answers have not ended.
    withheld: Arc<AtomicUsize>,
    /// Whether the second list was requested while the database was locked.
    is_early: AtomicBool,
}

struct Lock {
    connection: Connection,
    since: DateTime<Utc>,
}

/// An answer that has not ended.
struct Unended(Arc<AtomicUsize>);

impl Drop for Unended {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn open(database: &Path) -> Connection {
    let connection = Connection::open(database).unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    connection
}

impl Server {
    /// A site of one set, with an index of two lists of that capability with a resource each. Where they are Change Lists, there is
    /// also a Resource List with another resource.
    async fn start(self: &Arc<Self>, capability: &'static str) -> Site {
        let server = Arc::clone(self);
        let is_of_changes = capability == CHANGE_LISTS;
        Site::start(Ipv4Addr::LOCALHOST, move |address| {
            let base = format!("http://{address}");
            let leading_to = |path: &str, capability: &str| {
                let md = format!(r#"<rs:md capability="{capability}"/>"#);
                entry(&format!("{base}/{path}"), &md)
            };
            let description = leading_to("caps.xml", "capabilitylist");
            let description = urlset("description", "", &description);
            let mut caps = leading_to("index.xml", capability);
            if is_of_changes {
                caps += &leading_to("list.xml", RESOURCE_LISTS);
            }
            let caps = urlset("capabilitylist", "", &caps);
            let lists: String = ["1.xml", "2.xml"]
                .map(|list| format!("<sitemap><loc>{base}/{list}</loc></sitemap>"))
                .concat();
            let time = if is_of_changes { "from" } else { "at" };
            let index = format!(
                r#"<sitemapindex {NAMESPACES}><rs:md capability="{capability}" {time}="2024-01-01T00:00:00Z"/>{lists}</sitemapindex>"#
            );
            let list = move |number: usize, capability: &str| {
                let more = if capability == CHANGE_LISTS {
                    let time = format!("2024-01-02T00:00:0{number}Z");
                    format!(
                        r#"<lastmod>{time}</lastmod><rs:md change="created" datetime="{time}"/>"#
                    )
                } else {
                    "<lastmod>2023-01-01T00:00:00Z</lastmod>".to_owned()
                };
                let resource = entry(&format!("{base}/r/{number}"), &more);
                ok(urlset(capability, "", &resource))
            };
            move |path: &str, _: &_| match path {
                "/.well-known/resourcesync" => ok(description.clone()),
                "/caps.xml" => ok(caps.clone()),
                "/index.xml" => ok(index.clone()),
                "/list.xml" if is_of_changes => list(0, RESOURCE_LISTS),
                "/1.xml" => {
                    server.lock();
                    list(1, capability)
                }
                "/2.xml" => {
                    server.note_second();
                    if server.withholds.load(Ordering::SeqCst) {
server.withheld()
                        } else {
list(2, capability)
                        }
                }
                path if path.starts_with("/r/") => ok(path.to_owned()),
                _ => status(404),
            }
        })
        .await
    }

    fn lock(&self) {
        let database = self.database.lock();
        if let Some(database) = database.as_deref() {
            self.lock.lock().get_or_insert_with(|| {
                let connection = open(database);
                connection.execute_batch("BEGIN IMMEDIATE").unwrap();
                let since = clock::now().wall;
                Lock { connection, since }
            });
        }
    }

    fn note_second(&self) {
        if let Some(lock) = &*self.lock.lock() {
            let count = "SELECT count(*) FROM resource WHERE uri LIKE '%/r/1'";
            let ingested = lock.connection.query_row(count, [], |row| row.get(0));
            assert_eq!(ingested, Ok(0_i64));
            self.is_early.store(true, Ordering::SeqCst);
        }
    }

    /// The begin of a list that is too long for the memory, and no more.
    fn withheld(&self) -> Response {
        self.withheld.fetch_add(1, Ordering::SeqCst);
        let unended = Unended(Arc::clone(&self.withheld));
        let begin = Bytes::from(vec![b' '; 2 * MIB]);
        let pieces = stream::iter([Ok::<_, io::Error>(begin)]).chain(stream::pending());
        ok(Body::from_stream(pieces.inspect(move |_| {
            let _ = &unended;
        })))
    }

    /// Waits until something is so that happens while the database is locked.
    async fn until_locked_and(&self, what: &str, home: &Home, is_so: impl Fn() -> bool) {
        eventually(what, None, async || {
            if is_so() {
                return Ok(());
            }
            let set = home.set().await;
            let error = set.as_ref().and_then(|set| set.error.as_ref());
            let failed_at = error.and_then(|error| error.at.parse::<DateTime<Utc>>().ok());
            // On a slow machine the daemon waits for the lock in vain. Then it begins again.
            let mut lock = self.lock.lock();
            lock.take_if(|lock| failed_at.is_some_and(|failed_at| failed_at > lock.since));
            Err(format!("{set:#?}"))
        })
        .await;
    }

    /// Does not lock the database any more; returns a connection to it, which has the lock if it was locked.
    fn end_of_locking(&self) -> Connection {
        let database = self.database.lock().take().unwrap();
        let lock = self.lock.lock().take();
        lock.map_or_else(|| open(&database), |lock| lock.connection)
    }
}

/// The server of an index of that capability, and a daemon that has not been started. No request of it times out.
async fn prepare(capability: &'static str) -> (Arc<Server>, Site, Home) {
    let server = Arc::new(Server::default());
    let site = server.start(capability).await;
    let home = Home::new(site.url("/").as_str(), "");
    let text = std::fs::read_to_string(&home.config).unwrap();
    let text = text.replace("[http]\n", "[http]\ntimeout = \"1h\"\n");
    std::fs::write(&home.config, text).unwrap();
    let database = home.folder().join("state/resyncd.db");
    *server.database.lock() = Some(database);
    (server, site, home)
}

/// How many long files without a name a process has open.
fn unnamed_files(process: &Running) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap();
    let is_unnamed = |file: &PathBuf| {
        let target = std::fs::read_link(file).unwrap_or_default();
        let length = std::fs::metadata(file).map_or(0, |file| file.len());
        target.to_string_lossy().ends_with(" (deleted)") && length >= MIB as u64
    };
    let files = open.filter_map(|file| Some(file.ok()?.path()));
    files.filter(is_unnamed).count()
}

/// Waits until a part of the second list is in a file, while the first one is not ingested yet.
async fn until_downloading(server: &Server, home: &Home, daemon: &Running) {
    let what = "a part of the second list is in a file while the first one is not ingested";
    server
        .until_locked_and(what, home, || unnamed_files(daemon) > 0)
        .await;
}

/// Checks that the second list of an index is requested before the first one is ingested. `resources`: how many there are in all.
async fn check_that_next_list_is_early(capability: &'static str, resources: u64) {
    let (server, _site, home) = prepare(capability).await;
    let _daemon = home.run();
    let what = "the second list is requested while the first one can't be ingested";
    let is_early = || server.is_early.load(Ordering::SeqCst);
    server.until_locked_and(what, &home, is_early).await;
    drop(server.end_of_locking());
    home.until("in sync", |set| {
        set.state == "in-sync" && set.resources == resources
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_resource_list_is_requested_before_the_one_in_hand_is_ingested() {
    check_that_next_list_is_early(RESOURCE_LISTS, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_change_list_is_requested_before_the_one_in_hand_is_ingested() {
    check_that_next_list_is_early(CHANGE_LISTS, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fatal_error_of_a_list_ends_the_downloads_of_the_next_ones() {
    let (server, _site, home) = prepare(RESOURCE_LISTS).await;
    server.withholds.store(true, Ordering::SeqCst);
    let daemon = home.run();
    until_downloading(&server, &home, &daemon).await;
    server.withholds.store(false, Ordering::SeqCst);
    let database = server.end_of_locking();
    let failing = "CREATE TRIGGER failing BEFORE INSERT ON resource BEGIN SELECT RAISE(ABORT, 'failed by a test'); END";
    database.execute_batch(failing).unwrap();
    if !database.is_autocommit() {
        database.execute_batch("COMMIT").unwrap();
    }
    home.until("the failure is reported", |set| {
        let error = set.error.as_ref();
        error.is_some_and(|error| error.message.contains("failed by a test"))
    })
    .await;
    eventually("nothing is left of the second list", None, async || {
        let left = (
            server.withheld.load(Ordering::SeqCst),
            unnamed_files(&daemon),
        );
        if left == (0, 0) {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    database.execute_batch("DROP TRIGGER failing").unwrap();
    home.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_while_lists_are_fetched_ahead_leaves_no_file() {
    let (server, _site, home) = prepare(RESOURCE_LISTS).await;
    server.withholds.store(true, Ordering::SeqCst);
    let temporary = TempDir::new().unwrap();
    let daemon = home.run_with([("TMPDIR", temporary.path())]);
    until_downloading(&server, &home, &daemon).await;
    daemon.kill();
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    server.withholds.store(false, Ordering::SeqCst);
    drop(server.end_of_locking());
    let _daemon = home.run();
    home.until("in sync", |set| {
        set.state == "in-sync" && set.resources == 2
    })
    .await;
}
