//! Measures the time and memory of reading Resource Lists whose entries are all known, so that nothing is fetched.
//!
//! - **two million**: an index of 40 lists of 50,000 entries each, every one with a digest;
//! - **50,000 lists**: an index of as many lists of one entry each, without modification times: all of them are read once and
//!   then requested conditionally.
//!
//! The daemon is a separate process, the release build; the Source is this process, which generates the lists while it serves
//! them. The resources are written into the daemon's database before it starts, as a baseline would have left them; no file was
//! fetched, and the mirror is empty.
//!
//! It fails if reading exceeds the memory limit or finds changes. Run it with `cargo bench --bench two_million`; the number of
//! entries is an optional argument.

#![allow(clippy::print_stdout, reason = "the benchmark prints its results")]

use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use futures_util::stream;
use resyncd::clock;
use resyncd::store::Store;
use rusqlite::{Connection, params};
use tempfile::TempDir;

const ENTRIES: u64 = 2_000_000;
const ENTRIES_A_LIST: u64 = 50_000;
const LISTS: u64 = 50_000;
const MEMORY_LIMIT: u64 = 100 << 20;
/// How long a measurement may take at most.
const TIMEOUT: Duration = Duration::from_secs(600);

const XMLNS: &str = "xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\"";

type BenchResult<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> BenchResult<()> {
    let argument = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    let entries: u64 = argument.unwrap_or(ENTRIES).next_multiple_of(ENTRIES_A_LIST);
    let cores = std::thread::available_parallelism()?;
    println!("two_million: {cores} cores, loopback, all entries known");

    let many = Source::start(entries / ENTRIES_A_LIST, ENTRIES_A_LIST, true).await?;
    let home = Home::of(&many)?;
    let daemon = home.run()?;
    daemon.report("two million", &many, daemon.wait_for_list()?)?;
    home.expect_no_tasks()?;
    drop(daemon);

    let lists = Source::start(LISTS * entries / ENTRIES, 1, false).await?;
    let home = Home::of(&lists)?;
    let daemon = home.run()?;
    daemon.report("50,000 lists, read", &lists, daemon.wait_for_list()?)?;
    home.poll().await?;
    daemon.report("50,000 lists, unchanged", &lists, daemon.wait_for_list()?)?;
    home.expect_no_tasks()
}

/// A Source that has only lists.
struct Source {
    base: String,
    lists: u64,
    entries_a_list: u64,
    /// Whether the index and its lists state times.
    states_times: bool,
    requests: AtomicU64,
}

impl Source {
    async fn start(lists: u64, entries_a_list: u64, states_times: bool) -> BenchResult<Arc<Self>> {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let source = Arc::new(Self {
            base: format!("http://{}", listener.local_addr()?),
            lists,
            entries_a_list,
            states_times,
            requests: AtomicU64::new(0),
        });
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&source));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(source)
    }

    fn uri(&self, number: u64) -> String {
        format!("{}/resources/{number:07}", self.base)
    }

    /// The root and head of a list or an index.
    fn head(&self, root: &str) -> String {
        let at = if self.states_times {
            " at=\"2026-01-05T10:07:31Z\""
        } else {
            ""
        };
        format!("<{root} {XMLNS}><rs:md capability=\"resourcelist\"{at}/>\n")
    }

    fn list_in_index(&self, number: u64) -> String {
        let lastmod = if self.states_times {
            "<lastmod>2026-01-05T10:07:31Z</lastmod>"
        } else {
            ""
        };
        format!(
            "<sitemap><loc>{}/list/{number}</loc>{lastmod}</sitemap>\n",
            self.base
        )
    }

    fn entry(&self, number: u64) -> String {
        format!(
            "<url><loc>{}</loc><lastmod>2026-01-01T00:00:01Z</lastmod><rs:md hash=\"{}\" length=\"1000\" type=\"text/plain\"/></url>\n",
            self.uri(number),
            hash(number)
        )
    }
}

/// A made-up digest.
fn hash(number: u64) -> String {
    format!(
        "sha-256:{:064x}",
        u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    )
}

async fn answer(State(source): State<Arc<Source>>, uri: Uri, headers: HeaderMap) -> Response<Body> {
    source.requests.fetch_add(1, Ordering::Relaxed);
    let etag = format!("\"{}\"", uri.path());
    if headers
        .get(IF_NONE_MATCH)
        .is_some_and(|known| known == etag.as_str())
    {
        return reply(StatusCode::NOT_MODIFIED, &etag, Body::empty());
    }
    let body = match uri.path() {
        "/capabilitylist.xml" => Body::from(format!(
            "<urlset {XMLNS}><rs:md capability=\"capabilitylist\"/><url><loc>{}/index.xml</loc><rs:md capability=\"resourcelist\"/></url></urlset>",
            source.base
        )),
        "/index.xml" => streamed(
            &source,
            "sitemapindex",
            0..source.lists,
            Source::list_in_index,
        ),
        path => {
            let number = path
                .strip_prefix("/list/")
                .and_then(|number| number.parse::<u64>().ok());
            let Some(number) = number.filter(|&number| number < source.lists) else {
                return reply(StatusCode::NOT_FOUND, &etag, Body::empty());
            };
            let begin = number * source.entries_a_list;
            streamed(
                &source,
                "urlset",
                begin..begin + source.entries_a_list,
                Source::entry,
            )
        }
    };
    reply(StatusCode::OK, &etag, body)
}

fn reply(status: StatusCode, etag: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Ok(etag) = etag.parse() {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}

/// A document that is generated while it is sent.
fn streamed(
    source: &Arc<Source>,
    root: &'static str,
    numbers: std::ops::Range<u64>,
    entry: fn(&Source, u64) -> String,
) -> Body {
    let source = Arc::clone(source);
    let begin = stream::iter([source.head(root)]);
    let steps = numbers.clone().step_by(500);
    let pieces = steps.map(move |from| {
        (from..numbers.end.min(from + 500))
            .fold(String::new(), |text, number| text + &entry(&source, number))
    });
    let end = stream::iter([format!("</{root}>")]);
    use futures_util::StreamExt as _;
    let all = begin.chain(stream::iter(pieces)).chain(end);
    Body::from_stream(all.map(|text| Ok::<_, std::convert::Infallible>(Bytes::from(text))))
}

/// The folders of a daemon that knows all resources of a Source.
struct Home {
    folder: TempDir,
    config: PathBuf,
    status: SocketAddr,
}

impl Home {
    fn of(source: &Source) -> BenchResult<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let status = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let config = folder.path().join("config.toml");
        std::fs::write(
            &config,
            format!(
                "state_dir = \"state\"\n[status]\nlisten = \"{status}\"\n[http]\nallow_private_addresses = true\n\
                 [[source]]\nname = \"scale\"\nurl = \"{}/capabilitylist.xml\"\nmirror = \"mirror\"\n\
                 notifications = false\npoll_interval = \"1d\"\n",
                source.base
            ),
        )?;
        let started = clock::now().mono;
        insert_resources(&folder.path().join("state"), source)?;
        println!(
            "{:24} {:8} entries {:6.1} s",
            "inserted",
            source.lists * source.entries_a_list,
            (clock::now().mono - started).as_secs_f64()
        );
        Ok(Self {
            folder,
            config,
            status,
        })
    }

    fn run(&self) -> BenchResult<Daemon> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_resyncd"))
            .arg("--config")
            .arg(&self.config)
            .arg("run")
            .env("RUST_LOG", "info")
            .current_dir(self.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = child
            .stderr
            .take()
            .ok_or("the daemon has no standard error")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(log).lines().map_while(Result::ok);
            lines
                .map_while(|line| sender.send(line).ok())
                .for_each(drop);
        });
        Ok(Daemon { child, lines })
    }

    /// Checks that nothing changed.
    fn expect_no_tasks(&self) -> BenchResult<()> {
        let database = Connection::open(self.folder.path().join("state/resyncd.db"))?;
        let tasks: i64 = database.query_row("SELECT COUNT(*) FROM task", [], |row| row.get(0))?;
        if tasks == 0 {
            Ok(())
        } else {
            Err(format!("{tasks} tasks were created for unchanged resources").into())
        }
    }

    async fn poll(&self) -> BenchResult<()> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut connection = tokio::net::TcpStream::connect(self.status).await?;
        let request = "POST /sources/scale/poll HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        connection.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        if answer.starts_with("HTTP/1.1 202") {
            Ok(())
        } else {
            Err(answer.into())
        }
    }
}

/// Writes all resources of a Source into the database, as a baseline would have left them.
fn insert_resources(state: &Path, source: &Source) -> BenchResult<()> {
    drop(Store::open(state)?);
    let mut database = Connection::open(state.join("resyncd.db"))?;
    database.pragma_update(None, "cache_size", -262_144)?;
    database.pragma_update(None, "synchronous", "OFF")?;
    let transaction = database.transaction()?;
    transaction.execute(
        "INSERT INTO source_set (id, source, capability_list, baseline, resources, bytes) VALUES (1, 'scale', ?1, 'done', ?2, ?2 * 1000)",
        params![format!("{}/capabilitylist.xml", source.base), i64::try_from(source.lists * source.entries_a_list)?],
    )?;
    transaction.execute(
        "INSERT INTO coverage VALUES (1, ?1, 1767225601000000)",
        [i64::MIN],
    )?;
    {
        let mut resource = transaction.prepare(
            "INSERT INTO resource (id, source, uri, set_id, path, length, media_type, hashes, lastmod, changed_at, applied_at)
             VALUES (?1, 'scale', ?2, 1, ?3, 1000, 'text/plain', ?4, ?5, ?5, ?5)",
        )?;
        let mut member = transaction
            .prepare("INSERT INTO member (set_id, resource_id, generation) VALUES (1, ?1, 0)")?;
        let january = 1_767_225_601_000_000_i64;
        for number in 0..source.lists * source.entries_a_list {
            let (uri, id) = (source.uri(number), i64::try_from(number + 1)?);
            resource.execute(params![
                id,
                uri,
                uri.strip_prefix("http://"),
                hash(number),
                january
            ])?;
            member.execute([id])?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// The daemon's process and its log lines.
struct Daemon {
    child: Child,
    lines: Receiver<String>,
}

impl Daemon {
    /// Waits until a Resource List has been read; returns the time since the first request.
    fn wait_for_list(&self) -> BenchResult<Duration> {
        let started = clock::now().mono;
        loop {
            let line = self
                .lines
                .recv_timeout(TIMEOUT.saturating_sub(clock::now().mono - started))?;
            if line.contains("Resource List read") {
                return Ok(clock::now().mono - started);
            }
            if line.contains("WARN") || line.contains("ERROR") {
                return Err(line.into());
            }
        }
    }

    fn report(&self, what: &str, source: &Source, elapsed: Duration) -> BenchResult<()> {
        let peak = self.peak_memory()?;
        let entries = source.lists * source.entries_a_list;
        let mut line = format!(
            "{what:24} {entries:8} entries {:6.1} s",
            elapsed.as_secs_f64()
        );
        #[allow(clippy::cast_precision_loss, reason = "it is only printed")]
        let rate = entries as f64 / elapsed.as_secs_f64();
        write!(
            line,
            ", {rate:8.0} a second, {:6} requests",
            source.requests.swap(0, Ordering::Relaxed)
        )?;
        println!("{line}, at most {:5.1} MiB of memory", mebibytes(peak));
        if peak > MEMORY_LIMIT {
            return Err(format!(
                "{what}: more than {:.0} MiB of memory",
                mebibytes(MEMORY_LIMIT)
            )
            .into());
        }
        Ok(())
    }

    /// The peak memory of the process.
    fn peak_memory(&self) -> BenchResult<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes: u64 = line
            .ok_or("no VmHWM")?
            .trim()
            .trim_end_matches(" kB")
            .parse()?;
        Ok(kibibytes << 10)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The measurement is over: nothing is needed any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(clippy::cast_precision_loss, reason = "it is only printed")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
