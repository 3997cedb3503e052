//! Memory, time and database of a daemon that knows millions of resources.
//!
//! The resources are written into the database before the daemon starts, as a baseline would have left them; no file was fetched,
//! and the mirror is empty. The Source generates its lists while it serves them, and they list what is known, so that nothing is
//! fetched.

use std::fs;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use futures_util::{StreamExt as _, stream};
use resyncd::clock;
use resyncd::store::Store;
use resyncd_testkit::{SampleOptions, SampleSource};
use rusqlite::{Connection, OpenFlags, params};

use super::daemon::Daemon;
use super::harness::{Bench, BenchResult, Home, NAME, mebibytes, runtime, settle};
use super::site::{Nginx, Site, XMLNS};
use super::table::{Goal, Line};

const ENTRIES_A_LIST: usize = 50_000;
/// As many as the largest Source known has, and a tenth.
const MANY: usize = 2_600_000;
const FEW: usize = 260_000;
/// Lists of one entry.
const LISTS: usize = 20_000;
/// The length of resources of which only the database counts, in bytes.
const SMALL: usize = 16;
/// Beyond it the bench fails.
const MEMORY_LIMIT: Goal = Goal::AtMost(100.0, " MiB");
/// Of a resource in the database, beyond its URI; larger than the goal, so that only growth breaks it.
const SIZE_LIMIT: Goal = Goal::AtMost(600.0, " B");
/// How long reading the lists may take.
const TIMEOUT: Duration = Duration::from_secs(900);
/// The modification time of all resources, in microseconds since 1970.
const LASTMOD: i64 = 1_767_225_601_000_000;

/// Reads an index of lists of 50,000 entries each, with digests: many resources, and a tenth of them.
pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let many = read_lists(bench, bench.size(MANY, 100_000))?;
    let few = read_lists(bench, bench.size(FEW, 50_000))?;
    let megabytes = many.peak * 1.048_576;
    Ok(vec![
        Line::new(format!(
            "peak memory, Resource List Index read, {} resources known",
            many.entries
        ))
        .resyncd(format!("{:.1} MB, {:.1} s", megabytes, many.seconds))
        .goal(megabytes, Goal::AtMost(100.0, " MB"))
        .limit(many.peak, MEMORY_LIMIT),
        Line::new(format!("the same, against {} resources known", few.entries))
            .resyncd(format!("{:.1} MiB", many.peak))
            .peer(format!("{:.1} MiB, {:.1} s", few.peak, few.seconds))
            .ratio(many.peak / few.peak, Goal::AtMost(1.2, "")),
    ])
}

/// The reading of a Resource List.
struct Reading {
    entries: usize,
    seconds: f64,
    /// The peak of the memory, in MiB.
    peak: f64,
}

fn read_lists(bench: &Bench, entries: usize) -> BenchResult<Reading> {
    let runtime = runtime()?;
    let source = runtime.block_on(Source::start(entries, ENTRIES_A_LIST, true))?;
    let home = home_of(bench, &source)?;
    settle();
    let started = clock::now().mono;
    let mut daemon = Daemon::start(bench, &home)?;
    daemon.until_logged("Resource List read", 1, TIMEOUT)?;
    let seconds = (clock::now().mono - started).as_secs_f64();
    expect_no_tasks(&home)?;
    let peak = mebibytes(daemon.peak_memory()?);
    daemon.stop()?;
    Ok(Reading {
        entries: source.resources,
        seconds,
        peak,
    })
}

/// Reads an index of as many lists as it has entries, without modification times: all are read once, and then requested
/// conditionally.
pub(crate) fn lists(bench: &Bench) -> BenchResult<Vec<Line>> {
    let runtime = runtime()?;
    let source = runtime.block_on(Source::start(bench.size(LISTS, 2000), 1, false))?;
    let home = home_of(bench, &source)?;
    settle();
    let mut daemon = Daemon::start(bench, &home)?;
    let mut lines = Vec::new();
    for (round, what) in ["read", "unchanged"].into_iter().enumerate() {
        let begun = clock::now().mono;
        if round > 0 {
            daemon.poll(NAME)?;
        }
        daemon.until_logged("Resource List read", round + 1, TIMEOUT)?;
        let seconds = (clock::now().mono - begun).as_secs_f64();
        let requests = source.requests.swap(0, Ordering::Relaxed);
        let peak = mebibytes(daemon.peak_memory()?);
        lines.push(
            Line::new(format!("{} lists of one entry, {what}", source.lists))
                .resyncd(format!(
                    "{seconds:.1} s, {requests} requests, {peak:.1} MiB"
                ))
                .limit(peak, MEMORY_LIMIT),
        );
    }
    expect_no_tasks(&home)?;
    daemon.stop()?;
    Ok(lines)
}

/// The size of the database, and how long it takes to open it.
pub(crate) fn database(bench: &Bench) -> BenchResult<Vec<Line>> {
    let resources = bench.size(50_000, 2000);
    let what = format!("database after a first copy of {resources}, bytes a resource");
    let mut lines = Line::or_skipped(&what, size_of_site(bench, resources, &what))?;
    lines.push(size_of_sample(bench, resources)?);
    lines.push(start(bench)?);
    Ok(lines)
}

/// Copies a site with the ETags of nginx.
fn size_of_site(bench: &Bench, resources: usize, what: &str) -> BenchResult<Vec<Line>> {
    let site = Site::create(bench, resources, SMALL)?;
    let _nginx = Nginx::of_site(bench, &site)?;
    let home = Home::of_source(bench, &site.capability_list(), "")?;
    bench.sync(&home)?;
    let line = database_size(&home, resources, Line::new(what))?;
    Ok(vec![line])
}

/// Copies the sample Source, whose ETags are digests.
fn size_of_sample(bench: &Bench, resources: usize) -> BenchResult<Line> {
    let runtime = runtime()?;
    let source = runtime.block_on(SampleSource::start(SampleOptions {
        resources_per_set: resources,
        resource_size: SMALL,
        ..SampleOptions::default()
    }))?;
    let home = Home::of_source(bench, &source.url(), "notifications = false")?;
    bench.sync(&home)?;
    database_size(&home, resources, Line::new("the same, ETags of 73 bytes"))
}

/// Divides what the database of a first copy has grown to.
fn database_size(home: &Home, resources: usize, line: Line) -> BenchResult<Line> {
    let database = open(&home.state())?;
    let (known, uris) = database.query_row(
        "SELECT COUNT(*), SUM(LENGTH(uri)) FROM resource WHERE deleted = 0",
        [],
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
    )?;
    let (known, uris) = (u64::try_from(known)?, u64::try_from(uris)?);
    if known != resources as u64 {
        return Err(format!("{known} resources are known, not {resources}").into());
    }
    let feed = database.query_row(
        "SELECT SUM(pgsize) FROM dbstat WHERE name = 'feed'",
        [],
        |row| row.get::<_, i64>(0),
    )?;
    let feed = u64::try_from(feed)?;
    drop(database);
    let size = fs::metadata(home.state().join("resyncd.db"))?.len();
    let (each, uri, feed) = (per(size, known), per(uris, known), per(feed, known));
    Ok(line
        .resyncd(format!(
            "{:.0} beyond the {uri:.0} of its URI; {feed:.0} of all are the feed's",
            each - uri
        ))
        .goal(each - uri, Goal::AtMost(250.0, " B"))
        .limit(each - uri, SIZE_LIMIT))
}

#[allow(clippy::cast_precision_loss, reason = "it is only printed")]
fn per(bytes: u64, resources: u64) -> f64 {
    bytes as f64 / resources as f64
}

/// Starts a daemon that knows many resources, several times.
fn start(bench: &Bench) -> BenchResult<Line> {
    let runtime = runtime()?;
    let resources = bench.size(MANY, 100_000);
    let source = runtime.block_on(Source::start(resources, ENTRIES_A_LIST, true))?;
    let home = home_of(bench, &source)?;
    settle();
    let mut starts = Vec::new();
    for _ in 0..bench.rounds() {
        let daemon = Daemon::start(bench, &home)?;
        starts.push(daemon.ready_after);
        daemon.stop()?;
    }
    starts.sort_unstable();
    let median = starts[starts.len() / 2].as_secs_f64();
    Ok(Line::new(format!(
        "start until /readyz, {} resources known",
        source.resources
    ))
    .resyncd(format!("{median:.2} s"))
    .goal(median, Goal::AtMost(1.0, " s")))
}

/// A Source that has only lists.
struct Source {
    base: String,
    resources: usize,
    /// The last list may have fewer.
    entries_a_list: usize,
    lists: usize,
    /// Whether the index and its lists state times.
    states_times: bool,
    requests: AtomicU64,
}

impl Source {
    async fn start(
        resources: usize,
        entries_a_list: usize,
        states_times: bool,
    ) -> BenchResult<Arc<Self>> {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let source = Arc::new(Self {
            base: format!("http://{}", listener.local_addr()?),
            resources,
            entries_a_list,
            lists: resources.div_ceil(entries_a_list),
            states_times,
            requests: AtomicU64::new(0),
        });
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&source));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(source)
    }

    fn uri(&self, number: usize) -> String {
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

    fn list_in_index(&self, number: usize) -> String {
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

    fn entry(&self, number: usize) -> String {
        format!(
            "<url><loc>{}</loc><lastmod>2026-01-01T00:00:01Z</lastmod><rs:md hash=\"{}\" length=\"1000\" type=\"text/plain\"/></url>\n",
            self.uri(number),
            hash(number)
        )
    }
}

/// A generated digest.
fn hash(number: usize) -> String {
    format!("sha-256:{:064x}", digest(number))
}

/// The same as a row has it.
fn packed(number: usize) -> Vec<u8> {
    let sha256: &[u8] = &[3];
    [sha256, &[0; 16], &digest(number).to_be_bytes()].concat()
}

fn digest(number: usize) -> u128 {
    (number as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
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
                .and_then(|number| number.parse::<usize>().ok());
            let Some(number) = number.filter(|&number| number < source.lists) else {
                return reply(StatusCode::NOT_FOUND, &etag, Body::empty());
            };
            let begin = number * source.entries_a_list;
            streamed(
                &source,
                "urlset",
                begin..source.resources.min(begin + source.entries_a_list),
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
    numbers: Range<usize>,
    entry: fn(&Source, usize) -> String,
) -> Body {
    let source = Arc::clone(source);
    let begin = stream::iter([source.head(root)]);
    let steps = numbers.clone().step_by(500);
    let pieces = steps.map(move |from| {
        (from..numbers.end.min(from + 500))
            .fold(String::new(), |text, number| text + &entry(&source, number))
    });
    let end = stream::iter([format!("</{root}>")]);
    let all = begin.chain(stream::iter(pieces)).chain(end);
    Body::from_stream(all.map(|text| Ok::<_, std::convert::Infallible>(Bytes::from(text))))
}

/// The home of a daemon that knows all resources of a Source.
fn home_of(bench: &Bench, source: &Source) -> BenchResult<Home> {
    let url = format!("{}/capabilitylist.xml", source.base);
    let keys = "notifications = false\npoll_interval = \"1d\"";
    let home = Home::of_source(bench, &url, keys)?;
    insert_resources(&home.state(), source)?;
    Ok(home)
}

/// Writes all resources of a Source into the database, as a baseline would have left them.
fn insert_resources(state: &Path, source: &Source) -> BenchResult<()> {
    let mut database = create(state)?;
    let transaction = database.transaction()?;
    transaction.execute(
        "INSERT INTO source_set (id, source, capability_list, baseline, resources, bytes) VALUES (1, ?1, ?2, 'done', ?3, ?3 * 1000)",
        params![NAME, format!("{}/capabilitylist.xml", source.base), i64::try_from(source.resources)?],
    )?;
    transaction.execute(
        "INSERT INTO coverage VALUES (1, ?1, ?2)",
        [i64::MIN, LASTMOD],
    )?;
    {
        let mut resource = transaction.prepare(
            "INSERT INTO resource (id, source, identity, set_id, length, media_type, hashes, lastmod, changed_at, applied_at)
             VALUES (?1, ?2, ?3, 1, 1000, x'01', ?4, ?5, ?5, ?5)",
        )?;
        let mut member = transaction
            .prepare("INSERT INTO member (set_id, resource_id, named_by) VALUES (1, ?1, 0)")?;
        for number in 0..source.resources {
            let (uri, id) = (source.uri(number), i64::try_from(number + 1)?);
            resource.execute(params![id, NAME, uri, packed(number), LASTMOD])?;
            member.execute([id])?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Creates a database with the schema of this version, to be filled fast.
pub(super) fn create(state: &Path) -> BenchResult<Connection> {
    drop(Store::open(state)?);
    let database = Connection::open(state.join("resyncd.db"))?;
    database.pragma_update(None, "cache_size", -262_144)?;
    database.pragma_update(None, "synchronous", "OFF")?;
    Ok(database)
}

/// Opens the database of a daemon, which may run, to read it.
fn open(state: &Path) -> BenchResult<Connection> {
    let path = state.join("resyncd.db");
    Ok(Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY,
    )?)
}

/// Checks that nothing changed.
fn expect_no_tasks(home: &Home) -> BenchResult<()> {
    let tasks: i64 =
        open(&home.state())?.query_row("SELECT COUNT(*) FROM task", [], |row| row.get(0))?;
    if tasks == 0 {
        return Ok(());
    }
    Err(format!("{tasks} tasks were created for unchanged resources").into())
}
