//! Compares resyncd with what else can do the same work, in one run on one machine, so that the ratios mean something where the
//! figures don't. benches/README.md describes each comparison, and how to read the table that this program prints.
//!
//! ```text
//! cargo bench --bench compare                         all of them
//! cargo bench --bench compare -- baseline dump        these only
//! cargo bench --bench compare -- --list               their names
//! cargo bench --bench compare -- --short              small sizes: whether each one runs
//! cargo bench --bench compare -- --minutes 20 scale   how long `sustained` and `scale` may take; 5 if not given
//! ```
//!
//! Without `--bench`, which `cargo bench` passes, and without names it runs in the short form: `cargo test --all-targets` runs it so.
//!
//! A comparison without its peer is skipped, with a line that names the peer. Exit status 1: a comparison failed, or a limit was
//! exceeded. A goal that was missed is printed and is no failure: it depends on the machine.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints its results"
)]

mod acceptance;
mod arrivals;
mod baseline;
mod binary;
mod daemon;
mod delayed;
mod dump;
mod floor;
mod harness;
mod idle;
mod known;
mod latencies;
mod latency;
mod list;
mod resync;
mod scale;
mod site;
mod status;
mod sustained;
mod table;
mod unchanged;

use std::process::ExitCode;

use harness::{Bench, BenchResult};
use table::{HEADING, Line};

/// One of the comparisons.
struct Comparison {
    name: &'static str,
    about: &'static str,
    run: fn(&Bench) -> BenchResult<Vec<Line>>,
}

const fn comparison(
    name: &'static str,
    about: &'static str,
    run: fn(&Bench) -> BenchResult<Vec<Line>>,
) -> Comparison {
    Comparison { name, about, run }
}

/// In the order in which they run.
const COMPARISONS: &[Comparison] = &[
    comparison("floor", "what the disk can do", floor::run),
    comparison("baseline", "a first copy over loopback", baseline::run),
    comparison("delayed", "a first copy over a slow network", delayed::run),
    comparison("unchanged", "a second run, nothing changed", unchanged::run),
    comparison("list", "reading a Resource List", list::run),
    comparison("dump", "a first copy of a Resource Dump", dump::run),
    comparison("scale", "the time a resource, by their number", scale::run),
    comparison(
        "known",
        "memory with millions of resources known",
        known::run,
    ),
    comparison("lists", "memory with many small lists", known::lists),
    comparison(
        "database",
        "the size of the database, and the start with millions of resources",
        known::database,
    ),
    comparison(
        "acceptance",
        "signed deliveries at the callback",
        acceptance::run,
    ),
    comparison(
        "latency",
        "the time from a push to a file in place",
        latency::run,
    ),
    comparison("sustained", "pushed changes for minutes", sustained::run),
    comparison(
        "status",
        "the status with a million unfinished changes",
        status::run,
    ),
    comparison("idle", "a daemon that has nothing to do", idle::run),
    comparison("binary", "the size of the program", binary::run),
];

/// The arguments of the command line.
struct Arguments {
    list: bool,
    short: bool,
    minutes: u64,
    selected: Vec<&'static Comparison>,
}

impl Arguments {
    fn parse(arguments: impl IntoIterator<Item = String>) -> BenchResult<Self> {
        let mut parsed = Self {
            list: false,
            short: false,
            minutes: 5,
            selected: Vec::new(),
        };
        let mut is_bench = false;
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                // `cargo bench` passes it to every benchmark, `cargo test --all-targets` does not.
                "--bench" => is_bench = true,
                "--list" => parsed.list = true,
                "--short" => parsed.short = true,
                "--minutes" => {
                    let minutes = arguments.next().ok_or("--minutes needs a number")?;
                    parsed.minutes = minutes.parse()?;
                }
                name => {
                    let found = COMPARISONS.iter().find(|it| it.name == name);
                    parsed.selected.push(
                        found.ok_or_else(|| format!("no comparison {name}; --list shows them"))?,
                    );
                }
            }
        }
        if parsed.selected.is_empty() {
            parsed.short |= !is_bench;
            parsed.selected = COMPARISONS.iter().collect();
        }
        Ok(parsed)
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("compare: {error}");
            return ExitCode::from(2);
        }
    };
    if arguments.list {
        for comparison in COMPARISONS {
            println!("{:12} {}", comparison.name, comparison.about);
        }
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            for fault in faults {
                eprintln!("compare: {fault}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the selected comparisons and prints the table; returns what failed and what exceeded a limit.
fn run(arguments: &Arguments) -> BenchResult<Vec<String>> {
    let bench = Bench::new(arguments.short, arguments.minutes)?;
    let mut rows = Vec::new();
    let mut faults = Vec::new();
    for Comparison { name, about, run } in &arguments.selected {
        bench.progress(format_args!("{name}: {about}"));
        match Line::or_skipped(about, run(&bench)) {
            Ok(lines) => {
                for line in lines {
                    let row = line.row(name, bench.short);
                    eprintln!("{row}");
                    faults.extend(line.broken_limit().map(|limit| format!("{name}: {limit}")));
                    rows.push(row);
                }
            }
            Err(error) => {
                eprintln!("compare: {name} failed: {error}");
                rows.push(format!("| {name} | {about} | | | | | FAILED |"));
                faults.push(format!("{name}: {error}"));
            }
        }
    }
    println!("{}\n", bench.machine()?);
    println!("Peers: {}\n", bench.peers.versions());
    println!("{HEADING}");
    for row in rows {
        println!("{row}");
    }
    Ok(faults)
}
