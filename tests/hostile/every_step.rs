//! Kills the daemon before any step of its work, or has the step fail. A step is a write, sync, link, rename or unlink, including those
//! of the database.
//!
//! `RESYNCD_STEPS` selects the steps at which it is killed, `RESYNCD_FAULTS` those that fail: `all`, a number for that step and all
//! later ones, `/5` for every fifth; unset, a small sample. Where processes can't be traced, the tests print so and do nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use resyncd::clock;
use tokio::runtime::Builder;

use crate::hostile::PROCESSOR;
use crate::hostile::cycle::Cycle;
use crate::hostile::linked_steps::LinkedCycle;
use crate::hostile::reverts::{RevertingCycle, toggle};
use crate::hostile::traced::{Fault, RunReport, Traced, Tracer};
use crate::hostile::versions::VersionsCycle;
use crate::support::completeness::{Watch, is_complete};
use crate::support::process::Home;

/// How many steps are tried by default.
const SAMPLE: usize = 4;
/// How many cycles run concurrently: most of a cycle is waiting.
const CYCLES_AT_ONCE: usize = 8;
/// After this number of cycles whose step never came, no later step is tried.
const MISSES: usize = 5;
/// The number of no step.
const NO_STEP: usize = 0;

/// Runs the cycle with one fault and checks the invariants.
async fn run_cycle(tracer: &Tracer, fault: Fault) -> RunReport {
    let cycle = Cycle::new().await;
    let watch = Watch::start(&cycle.home, Duration::from_millis(50), is_complete);
    let traced = Traced::start(
        &cycle.home,
        tracer,
        fault,
        Arc::clone(&cycle.happened),
        || {},
    );
    cycle.run().await;
    let settled = async || {
        cycle.settled().await;
        cycle.check_end().await;
    };
    let report = end_run(traced, &cycle.home, settled).await;
    watch.end();
    if let Some(crash) = &report.crash {
        cycle.check_crash(crash).await;
    }
    report
}

/// Stops the daemon. Its fault may still come while it stops: the end is checked on a daemon without a fault.
async fn end_run(traced: Traced, home: &Home, settled: impl AsyncFn()) -> RunReport {
    let report = traced.stop(&settled).await;
    if report.crash.is_none() {
        let restarted = home.run();
        settled().await;
        assert_eq!(restarted.stop().await.code(), Some(0));
    }
    report
}

/// Runs the cycle in which the Source reverts its changes, with one fault.
async fn run_reverting_cycle(tracer: &Tracer, fault: Fault) -> RunReport {
    let cycle = RevertingCycle::new().await;
    let source = Arc::clone(&cycle.source);
    let revert = move || toggle(&source);
    let traced = Traced::start(&cycle.home, tracer, fault, Arc::default(), revert);
    cycle.run(&traced).await;
    traced.stop(async || cycle.settled().await).await
}

/// Runs the cycle of resources that links name, with one fault.
async fn run_linked_cycle(tracer: &Tracer, fault: Fault) -> RunReport {
    let cycle = LinkedCycle::new().await;
    let watch = Watch::start(&cycle.home, Duration::from_millis(50), is_complete);
    let traced = Traced::start(&cycle.home, tracer, fault, Arc::default(), || {});
    cycle.run().await;
    let settled = async || {
        cycle.settled().await;
        cycle.check_feed().await;
    };
    let report = end_run(traced, &cycle.home, settled).await;
    watch.end();
    report
}

/// Runs the cycle in which versions are stored, with one fault.
async fn run_versions_cycle(tracer: &Tracer, fault: Fault) -> RunReport {
    let cycle = VersionsCycle::new().await;
    let traced = Traced::start(&cycle.home, tracer, fault, Arc::default(), || {});
    cycle.settled().await;
    traced.stop(async || cycle.settled().await).await
}

/// Prints the fault if the test panics, and ends the other workers.
struct StepReporter<'a>(Fault, &'a AtomicUsize);

#[allow(clippy::print_stdout, reason = "the test reports its progress")]
impl Drop for StepReporter<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed at {:?}", self.0);
            self.1.store(MISSES, Ordering::Relaxed);
        }
    }
}

/// Runs a cycle for each fault, several concurrently, until no step is left.
fn run_cycles(
    faults: impl Iterator<Item = Fault> + Send,
    run: &(impl AsyncFn(Fault) -> RunReport + Sync),
) -> Vec<RunReport> {
    let (faults, reports) = (Mutex::new(faults), Mutex::new(Vec::new()));
    let misses = AtomicUsize::new(0);
    let worker = || {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        while misses.load(Ordering::Relaxed) < MISSES {
            let Some(fault) = faults.lock().unwrap().next() else {
                return;
            };
            let reporter = StepReporter(fault, &misses);
            let report = runtime.block_on(run(fault));
            drop(reporter);
            if report.hit.is_none() {
                misses.fetch_add(1, Ordering::Relaxed);
            }
            reports.lock().unwrap().push(report);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..CYCLES_AT_ONCE {
            scope.spawn(worker);
        }
    });
    reports.into_inner().unwrap()
}

/// The number of faults at each kind of step.
fn kinds(reports: &[RunReport]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for hit in reports.iter().filter_map(|report| report.hit.as_deref()) {
        *kinds.entry(kind(hit)).or_default() += 1;
    }
    kinds
}

/// The call and the kind of file of a step.
fn kind(step: &str) -> String {
    let (call, path) = step.split_once(' ').unwrap();
    let place = match path.rsplit_once('/') {
        Some((_, name)) if name.starts_with("resyncd.db") => name,
        _ if path.contains("/.resyncd/work/") => "working file",
        _ if path.contains("/.resyncd") => "own folder",
        _ if path.contains("/mirror") => "mirror",
        _ if path.contains("/versions") => "versions",
        _ => "state",
    };
    format!("{call}, {place}")
}

/// Runs a cycle once for each step that the environment variable selects.
#[allow(clippy::print_stdout, reason = "the test reports its progress")]
fn try_steps(
    variable: &str,
    fault: fn(usize) -> Fault,
    run: impl AsyncFn(&Tracer, Fault) -> RunReport + Sync,
) {
    let tracer = match Tracer::new() {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIPPED, no step was tried: {why}"),
    };
    // Not beside the tests that open thousands of connections.
    let _permit = PROCESSOR.blocking_read();
    let started = clock::now().mono;
    let run = async |fault| run(&tracer, fault).await;
    let complete = run_cycles(std::iter::once(fault(NO_STEP)), &run);
    let steps = complete[0].steps.len();
    println!("the cycle takes {steps} steps");
    // The number of steps differs from cycle to cycle.
    let last = 2 * steps;
    let selected: Vec<usize> = match std::env::var(variable).as_deref() {
        Ok("all") => (1..=last).collect(),
        Ok(some) => match some.strip_prefix('/') {
            Some(step) => (1..=last).step_by(step.parse().unwrap()).collect(),
            // That step and all later ones.
            None => (some.parse().unwrap()..=last).collect(),
        },
        Err(_) => {
            let sample = (1..=SAMPLE).map(|n| n * steps / (SAMPLE + 1));
            // Few steps sync the whole file system.
            let names = complete[0].steps.iter().zip(1..);
            let whole =
                names.filter_map(|(name, step)| name.starts_with("syncfs ").then_some(step));
            sample.chain(whole.take(SAMPLE)).collect()
        }
    };
    let reports = run_cycles(selected.into_iter().map(fault), &run);
    let kinds = kinds(&reports);
    for (kind, hit) in &kinds {
        println!("{hit:6} at: {kind}");
    }
    let (hit, took) = (kinds.values().sum::<usize>(), clock::now().mono - started);
    println!("{hit} steps, in {took:?}");
    assert!(hit > 0);
}

#[test]
fn kill_at_any_step_loses_nothing() {
    try_steps("RESYNCD_STEPS", Fault::Kill, run_cycle);
}

#[test]
fn failure_of_any_step_loses_nothing() {
    try_steps("RESYNCD_FAULTS", Fault::Fail, run_cycle);
}

#[test]
fn kill_at_any_step_of_a_change_that_the_source_reverts_leaves_the_former_version() {
    try_steps("RESYNCD_STEPS", Fault::Kill, run_reverting_cycle);
}

#[test]
fn failure_of_any_step_of_a_change_that_the_source_reverts_leaves_the_former_version() {
    try_steps("RESYNCD_FAULTS", Fault::Fail, run_reverting_cycle);
}

#[test]
fn kill_at_any_step_of_following_links_leaves_what_entries_name() {
    try_steps("RESYNCD_STEPS", Fault::Kill, run_linked_cycle);
}

#[test]
fn failure_of_any_step_of_following_links_leaves_what_entries_name() {
    try_steps("RESYNCD_FAULTS", Fault::Fail, run_linked_cycle);
}

#[test]
fn kill_at_any_step_stores_every_version_whole() {
    try_steps("RESYNCD_STEPS", Fault::Kill, run_versions_cycle);
}

#[test]
fn failure_of_any_step_stores_every_version_whole() {
    try_steps("RESYNCD_FAULTS", Fault::Fail, run_versions_cycle);
}
