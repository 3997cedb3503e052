//! The size of the program, without what is for debuggers only.

use std::process::Command;

use super::harness::{Bench, BenchResult, timed};
use super::table::{Goal, Line};

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let what = "size of the program without debug information";
    if cfg!(debug_assertions) && std::env::var_os("RESYNCD_PROGRAM").is_none() {
        return Ok(vec![Line::skipped(what, "not a release build")]);
    }
    let folder = bench.folder()?;
    let copy = folder.path().join("resyncd");
    let mut objcopy = Command::new(bench.peers.find("objcopy")?);
    timed(objcopy.arg("--strip-debug").args([&bench.program, &copy]))?;
    let megabytes = std::fs::metadata(copy)?.len() as f64 / 1e6;
    let line = Line::new(what)
        .resyncd(format!("{megabytes:.1} MB"))
        .goal(megabytes, Goal::AtMost(20.0, " MB"));
    Ok(vec![line])
}
