//! What a daemon costs that has nothing to do: how often its threads wake up in a minute, and its memory. It follows a hundred
//! Sources that are in sync, and no poll is due; against one that follows a single Source, in the same minute. What a daemon does at
//! intervals for itself is in both, so that the difference is what is done for each Source although nothing is due.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::daemon::Daemon;
use super::harness::{Bench, BenchResult, Home, mebibytes, runtime, source_table};
use super::site::{LASTMOD, LISTED_AT, XMLNS, sha_256};
use super::table::{Goal, Line};

const SOURCES: usize = 100;
const CONTENT: &str = "a resource\n";
/// Connections of the first poll are closed when they were idle for a minute.
const REST: Duration = Duration::from_secs(75);
const MEASURED: Duration = Duration::from_secs(60);
const SHORT_REST: Duration = Duration::from_secs(15);
const SHORT_MEASURED: Duration = Duration::from_secs(10);
/// How long the daemon may take to be in sync.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let runtime = runtime()?;
    let address = runtime.block_on(serve())?;
    let (many, few) = (home(bench, address, SOURCES)?, home(bench, address, 1)?);
    let mut daemon = Daemon::start(bench, &many)?;
    let mut other = Daemon::start(bench, &few)?;
    daemon.until_settled(SOURCES, TIMEOUT)?;
    other.until_settled(1, TIMEOUT)?;

    let (rest, measured) = if bench.short {
        (SHORT_REST, SHORT_MEASURED)
    } else {
        (REST, MEASURED)
    };
    std::thread::sleep(rest);
    let before = (daemon.wake_ups()?, other.wake_ups()?);
    let cpu = daemon.cpu()?;
    std::thread::sleep(measured);
    let after = (daemon.wake_ups()?, other.wake_ups()?);
    let cpu = daemon.cpu()? - cpu;
    let (memory, other_memory) = (daemon.memory()?, other.memory()?);
    daemon.expect_no_warnings()?;
    daemon.stop()?;
    other.stop()?;

    let (wake_ups, of_one) = (after.0.since(&before.0), after.1.since(&before.1));
    let more = u32::try_from(wake_ups.saturating_sub(of_one))?;
    let megabytes = mebibytes(memory) * 1.048_576;
    let seconds = measured.as_secs();
    Ok(vec![
        Line::new(format!(
            "wake-ups in {seconds} s, {SOURCES} Sources, nothing due"
        ))
        .resyncd(format!(
            "{wake_ups}, {more} more (CPU {} ms)",
            cpu.as_millis()
        ))
        .peer(format!("{of_one}, 1 Source"))
        // A fraction of one wake-up a Source: it happens, but not for each of them.
        .goal(f64::from(more), Goal::AtMost(50.0, " more")),
        Line::new(format!("resident memory, {SOURCES} Sources"))
            .resyncd(format!("{megabytes:.1} MB"))
            .peer(format!(
                "{:.1} MB, 1 Source",
                mebibytes(other_memory) * 1.048_576
            ))
            .goal(megabytes, Goal::AtMost(40.0, " MB")),
    ])
}

/// The home of a daemon that follows so many Sources, and polls them once a day.
fn home(bench: &Bench, address: SocketAddr, sources: usize) -> BenchResult<Home> {
    let tables = (0..sources).map(|number| {
        let url = format!("http://{address}/{number}/capabilitylist.xml");
        source_table(
            &format!("source{number}"),
            &url,
            "notifications = false\npoll_interval = \"1d\"",
        )
    });
    Home::create(bench, "", &tables.collect::<String>())
}

/// Serves Sources of one resource each.
async fn serve() -> BenchResult<SocketAddr> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let answer = move |Path((source, file)): Path<(usize, String)>| async move {
        answer(&format!("http://{address}/{source}"), &file)
    };
    let router = Router::new().route("/{source}/{file}", get(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

fn answer(base: &str, file: &str) -> Response {
    let (head, loc, md) = match file {
        "capabilitylist.xml" => (
            "capability=\"capabilitylist\"".to_owned(),
            "resourcelist.xml",
            "capability=\"resourcelist\"".to_owned(),
        ),
        "resourcelist.xml" => (
            format!("capability=\"resourcelist\" at=\"{LISTED_AT}\""),
            "resource.txt",
            format!(
                "hash=\"sha-256:{}\" length=\"{}\" type=\"text/plain\"",
                sha_256(CONTENT.as_bytes()),
                CONTENT.len()
            ),
        ),
        "resource.txt" => return ([(CONTENT_TYPE, "text/plain")], CONTENT).into_response(),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let lastmod = match loc {
        "resource.txt" => format!("<lastmod>{LASTMOD}</lastmod>"),
        _ => String::new(),
    };
    let document = format!(
        "<urlset {XMLNS}>\n<rs:md {head}/>\n<url><loc>{base}/{loc}</loc>{lastmod}<rs:md {md}/></url>\n</urlset>\n"
    );
    ([(CONTENT_TYPE, "application/xml")], document).into_response()
}
