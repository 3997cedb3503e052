//! Whether the time for a resource depends on how many there are: first copies of ever more resources. nginx generates them, so that
//! only the copies need the disk.

use super::harness::{Bench, BenchResult, Home, Timed, by_turns, settle};
use super::site::{LISTED_AT, Nginx, Site};
use super::table::{Goal, Line};

const SIZES: &[usize] = &[10_000, 100_000, 1_000_000, 2_600_000];
const SHORT_SIZES: &[usize] = &[200, 2_000];
/// Of a resource, in bytes.
const SIZE: usize = 1024;
/// What a resource needs of the disk, in bytes, generously: a block, its part of folders and lists, and of the database.
const DISK_A_RESOURCE: u64 = 8192;

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let sizes = if bench.short { SHORT_SIZES } else { SIZES };
    let mut lines = Vec::new();
    let mut of_smallest = None;
    // Of the last size, in seconds.
    let mut a_resource = 0.0;
    for &resources in sizes {
        let what = format!("first copy of {resources} generated resources of 1 KiB");
        let minutes = a_resource * resources as f64 / 60.0;
        if minutes > bench.minutes as f64 {
            let reason = format!("about {minutes:.0} minutes; --minutes allows them");
            lines.push(Line::skipped(what, reason));
            continue;
        }
        if bench.free_disk()? < resources as u64 * DISK_A_RESOURCE {
            lines.push(Line::skipped(what, "the disk is too full"));
            continue;
        }
        bench.progress(format_args!(
            "{resources} resources, about {minutes:.0} minutes"
        ));
        // All others are compared with the first size: it must not depend on a single run.
        let rounds = if lines.is_empty() { bench.rounds() } else { 1 };
        let [timed] = by_turns(rounds, [&mut || first_copy(bench, resources)])?;
        a_resource = timed.seconds() / resources as f64;
        let line =
            Line::new(what).resyncd(format!("{:.0} µs a resource, {timed}", a_resource * 1e6));
        let smallest = *of_smallest.get_or_insert(a_resource);
        lines.push(if lines.is_empty() {
            line
        } else {
            line.peer(format!("{} resources: {:.0} µs", sizes[0], smallest * 1e6))
                .ratio(a_resource / smallest, Goal::AtMost(1.3, ""))
        });
    }
    Ok(lines)
}

fn first_copy(bench: &Bench, resources: usize) -> BenchResult<Timed> {
    let site = Site::without_files(bench, "http", resources, SIZE, generated)?;
    site.write_resource_list(LISTED_AT)?;
    site.write_capability_list(&[("resourcelist", "resourcelist.xml")])?;
    let padding = padding(SIZE - generated_begin(0).len());
    let server = format!(
        "root {};\nlocation /data/ {{ default_type text/plain; return 200 \"$uri {padding}\"; }}",
        site.root().display()
    );
    let _nginx = Nginx::start(bench, site.address, &server)?;
    let home = Home::of_source(bench, &site.capability_list(), "")?;
    settle();
    let timed = bench.sync(&home)?;
    site.compare(&home.mirror())?;
    Ok(timed)
}

/// What that nginx answers.
fn generated(number: usize, size: usize) -> Vec<u8> {
    let mut bytes = generated_begin(number).into_bytes();
    bytes.extend(padding(size - bytes.len()).into_bytes());
    bytes
}

fn generated_begin(number: usize) -> String {
    format!("/{} ", Site::path(number))
}

fn padding(length: usize) -> String {
    "x".repeat(length)
}
