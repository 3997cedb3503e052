//! The size of the program as distributions install it: without debug information and symbols.

use std::process::Command;

use super::harness::{Bench, BenchResult, timed};
use super::table::{Goal, Line};

/// Beyond it the bench fails; larger than the goal, so that only growth breaks it.
const LIMIT: Goal = Goal::AtMost(30.0, " MB");

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let what = "size of the program without debug information and symbols";
    if cfg!(debug_assertions) && std::env::var_os("RESYNCD_PROGRAM").is_none() {
        return Ok(vec![Line::skipped(what, "not a release build")]);
    }
    let stripped = size_after(bench, "--strip-all")?;
    let with_symbols = size_after(bench, "--strip-debug")?;
    let line = Line::new(what)
        .resyncd(format!(
            "{stripped:.1} MB, with symbols {with_symbols:.1} MB"
        ))
        .goal(stripped, Goal::AtMost(25.0, " MB"))
        .limit(stripped, LIMIT);
    Ok(vec![line])
}

/// The size of a copy of the program, in MB, after objcopy has removed something.
fn size_after(bench: &Bench, option: &str) -> BenchResult<f64> {
    let folder = bench.folder()?;
    let copy = folder.path().join("resyncd");
    let mut objcopy = Command::new(bench.peers.find("objcopy")?);
    timed(objcopy.arg(option).args([&bench.program, &copy]))?;
    Ok(std::fs::metadata(copy)?.len() as f64 / 1e6)
}
