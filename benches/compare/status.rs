//! How long the status and the metrics take while a million changes are pending, given up or held back.
//!
//! They are written into the database before the daemon starts, and the Source is not reachable, so that none of them is executed.

use chrono::TimeDelta;
use resourcesync::SourceTime;
use resyncd::clock;
use rusqlite::params;

use super::daemon::Daemon;
use super::harness::{Bench, BenchResult, Home, NAME, free_address, mebibytes, settle};
use super::known::create;
use super::latencies::Latencies;
use super::table::{Goal, Line};

const TASKS: usize = 1_000_000;
/// Of eight changes so many are pending, and the rest of them given up or held back.
const PENDING: usize = 4;
const FAILED: usize = 2;
const PATHS: [&str; 2] = ["/status", "/metrics"];
/// The errors of the changes that were tried.
const CODES: [&str; 4] = ["timeout", "http-503", "wrong-digest", "connect"];

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let base = format!("http://{}", free_address()?);
    let url = format!("{base}/capabilitylist.xml");
    let home = Home::of_source(bench, &url, "notifications = false")?;
    let tasks = bench.size(TASKS, 20_000);
    insert_tasks(&home, &base, tasks)?;
    settle();
    let daemon = Daemon::start(bench, &home)?;
    expect_tasks(&daemon, tasks)?;
    let mut latencies = PATHS.map(|_| Vec::new());
    for _ in 0..bench.size(300, 30) {
        for (path, latencies) in PATHS.iter().zip(&mut latencies) {
            let asked = clock::now().mono;
            let answer = daemon.get(path)?;
            latencies.push(clock::now().mono - asked);
            if answer.code != 200 {
                return Err(format!("{path} answered {}: {}", answer.code, answer.body).into());
            }
        }
    }
    expect_tasks(&daemon, tasks)?;
    let memory = mebibytes(daemon.memory()?);
    daemon.stop()?;
    let lines = PATHS.into_iter().zip(latencies).map(|(path, latencies)| {
        let latencies = Latencies::new(latencies);
        Line::new(format!("GET {path}, {tasks} unfinished changes, median"))
            .resyncd(format!("{latencies}, {memory:.0} MiB"))
            .goal(latencies.millis(50), Goal::AtMost(5.0, " ms"))
    });
    Ok(lines.collect())
}

/// Writes changes of as many resources into the database: of half of them the first attempt has failed and the second is due
/// tomorrow, a quarter was given up, and a quarter are deletions that are held back.
fn insert_tasks(home: &Home, base: &str, tasks: usize) -> BenchResult<()> {
    let mut database = create(&home.state())?;
    let now = clock::now().wall;
    let micros = |time| SourceTime::from(time).micros();
    let (now, tomorrow) = (micros(now), micros(now + TimeDelta::days(1)));
    let transaction = database.transaction()?;
    transaction.execute(
        "INSERT INTO source_set (id, source, capability_list, baseline, resources, bytes, held_since)
         VALUES (1, ?1, ?2, 'done', ?3, ?3 * 1000, ?4)",
        params![NAME, format!("{base}/capabilitylist.xml"), i64::try_from(tasks)?, now],
    )?;
    transaction.execute("INSERT INTO coverage VALUES (1, ?1, ?2)", [i64::MIN, now])?;
    {
        let mut resource = transaction.prepare(
            "INSERT INTO resource (id, source, identity, set_id, length, media_type, lastmod, changed_at, applied_at)
             VALUES (?1, ?2, ?3, 1, 1000, x'01', ?4, ?4, ?4)",
        )?;
        let mut member = transaction
            .prepare("INSERT INTO member (set_id, resource_id, named_by) VALUES (1, ?1, 0)")?;
        let mut task = transaction.prepare(
            "INSERT INTO task (resource_id, source, set_id, authority, kind, changed_at, since, hashes, origin, state, attempts,
                 not_before, error_code, error_message, error_at, given_up_since)
             VALUES (?1, ?2, 1, ?3, ?4, ?5, ?5, '', 'change-list', ?6, 1, ?7, ?8, ?9, ?10, ?11)",
        )?;
        let authority = base.trim_start_matches("http://");
        for number in 0..tasks {
            let (id, uri) = (
                i64::try_from(number + 1)?,
                format!("{base}/resources/{number:07}"),
            );
            resource.execute(params![id, NAME, uri, now])?;
            member.execute([id])?;
            let state = state(number);
            let (kind, code) = match state {
                "held" => ("deleted", None),
                _ => ("updated", Some(CODES[number % CODES.len()])),
            };
            let message = code.map(|_| "the first attempt has failed");
            let failed_at = code.map(|_| now);
            let given_up = (state == "failed").then_some(now);
            task.execute(params![
                id, NAME, authority, kind, now, state, tomorrow, code, message, failed_at, given_up
            ])?;
        }
    }
    transaction.execute(
        "INSERT INTO tally (set_id, state, kind, code, n)
         SELECT set_id, state, CASE kind WHEN 'deleted' THEN 'deletion' ELSE 'update' END, COALESCE(error_code, ''), COUNT(*)
         FROM task GROUP BY 1, 2, 3, 4",
        [],
    )?;
    transaction.commit()?;
    Ok(())
}

/// The state of a change, as the database has it.
fn state(number: usize) -> &'static str {
    match number % 8 {
        nth if nth < PENDING => "ready",
        nth if nth < PENDING + FAILED => "failed",
        _ => "held",
    }
}

/// Checks that the daemon counts all of them.
fn expect_tasks(daemon: &Daemon, tasks: usize) -> BenchResult<()> {
    let sets = daemon.sets()?;
    let counted = sets
        .first()
        .map(|set| (set.pending, set.failed, set.held_deletions));
    let of = |wanted| (0..tasks).filter(|&number| state(number) == wanted).count() as u64;
    let expected = (of("ready"), of("failed"), of("held"));
    if counted == Some(expected) {
        return Ok(());
    }
    Err(format!("the status counts {counted:?}, not {expected:?}").into())
}
