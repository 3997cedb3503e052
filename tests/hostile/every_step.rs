//! The daemon is killed at any step of its work, or finds it to fail: each write, fsync, rename and unlink, its database's
//! among them.
//!
//! `RESYNCD_STEPS` says at which it is killed, `RESYNCD_FAULTS` which of them fails: `all`, a number for that one and those after
//! it, `/5` for each fifth; without it, a few of them. Where no process may trace another, the tests say so and do nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use resyncd::clock;
use tokio::runtime::Builder;

use crate::PROCESSOR;
use crate::cycle::Cycle;
use crate::traced::{Blow, Life, Traced, Tracer};
use crate::whole::{Watch, is_whole};

/// How many of the steps are tried when nothing else is asked for.
const SAMPLE: usize = 12;
/// How many cycles go on at once: most of a cycle is waiting.
const AT_ONCE: usize = 8;
/// So many cycles in which the step never came, and the steps are at their end.
const BEYOND: usize = 5;
/// A step that never comes.
const NEVER: usize = 0;

/// Lives through the cycle with its one blow, and checks all that must hold.
async fn live(tracer: &Tracer, blow: Blow) -> Life {
    let cycle = Cycle::new().await;
    let watch = Watch::start(&cycle.home, Duration::from_millis(50), is_whole);
    let traced = Traced::start(&cycle.home, tracer, blow, Arc::clone(&cycle.happened));
    cycle.live().await;
    // It may be killed until it has ended: only the one after it can be asked all that is to be asked.
    let settled = async || {
        cycle.settled().await;
        cycle.check_end().await;
    };
    let life = traced.stop(settled).await;
    if life.scene.is_none() {
        let again = cycle.home.run();
        settled().await;
        assert_eq!(again.stop().await.code(), Some(0));
    }
    watch.end();
    if let Some(scene) = &life.scene {
        cycle.check_scene(scene).await;
    }
    life
}

/// Tells which step it was that went wrong.
struct Telling<'a>(Blow, &'a AtomicUsize);

#[allow(clippy::print_stdout, reason = "it is what the test says")]
impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("that was {:?}", self.0);
            // The others need not go on.
            self.1.store(BEYOND, Ordering::Relaxed);
        }
    }
}

/// Lives through a cycle for each blow that comes, several at once, until there are no more.
fn live_through(tracer: &Tracer, blows: impl Iterator<Item = Blow> + Send) -> Vec<Life> {
    let (blows, lives) = (Mutex::new(blows), Mutex::new(Vec::new()));
    let beyond = AtomicUsize::new(0);
    let worker = || {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        while beyond.load(Ordering::Relaxed) < BEYOND {
            let Some(blow) = blows.lock().unwrap().next() else {
                return;
            };
            let telling = Telling(blow, &beyond);
            let life = runtime.block_on(live(tracer, blow));
            drop(telling);
            if life.met.is_none() {
                beyond.fetch_add(1, Ordering::Relaxed);
            }
            lives.lock().unwrap().push(life);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(worker);
        }
    });
    lives.into_inner().unwrap()
}

/// How many blows there were at each kind of step.
fn kinds(lives: &[Life]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for met in lives.iter().filter_map(|life| life.met.as_deref()) {
        *kinds.entry(kind(met)).or_default() += 1;
    }
    kinds
}

/// A step without what differs from one to the next.
fn kind(step: &str) -> String {
    let (call, path) = step.split_once(' ').unwrap();
    let place = match path.rsplit_once('/') {
        Some((_, name)) if name.starts_with("resyncd.db") => name,
        _ if path.contains("/.resyncd/work/") => "working file",
        _ if path.contains("/.resyncd") => "own folder",
        _ if path.contains("/mirror") => "mirror",
        _ => "state",
    };
    format!("{call}, {place}")
}

/// Lives through the cycle once for each of the steps that the variable asks for.
#[allow(clippy::print_stdout, reason = "it is what the test says")]
fn try_steps(variable: &str, blow: fn(usize) -> Blow) {
    let tracer = match Tracer::new() {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIPPED, nothing was tried: {why}"),
    };
    // Many daemons at once are no company for thousands of connections.
    let _turn = PROCESSOR.blocking_read();
    let begun = clock::now().mono;
    let whole = live_through(&tracer, std::iter::once(blow(NEVER)));
    let steps = whole[0].steps.len();
    println!("the cycle takes {steps} steps");
    // One cycle takes a few more than another.
    let last = 2 * steps;
    let chosen: Vec<usize> = match std::env::var(variable).as_deref() {
        Ok("all") => (1..=last).collect(),
        Ok(some) => match some.strip_prefix('/') {
            Some(step) => (1..=last).step_by(step.parse().unwrap()).collect(),
            // The one that went wrong, and those that come after it.
            None => (some.parse().unwrap()..=last).collect(),
        },
        Err(_) => (1..=SAMPLE).map(|n| n * steps / (SAMPLE + 1)).collect(),
    };
    let lives = live_through(&tracer, chosen.into_iter().map(blow));
    let kinds = kinds(&lives);
    for (kind, met) in &kinds {
        println!("{met:6} at: {kind}");
    }
    let (met, took) = (kinds.values().sum::<usize>(), clock::now().mono - begun);
    println!("{met} steps, in {took:?}");
    assert!(met > 0);
}

#[test]
fn killed_at_any_step_it_loses_nothing() {
    try_steps("RESYNCD_STEPS", Blow::Kill);
}

#[test]
fn whatever_step_fails_once_it_loses_nothing() {
    try_steps("RESYNCD_FAULTS", Blow::Fail);
}
