//! What the disk can do, without a network, a database or digests: files are created, written and renamed into folders.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use resyncd::clock;
use rustix::fs::syncfs;

use super::harness::{Bench, BenchResult, Timed, by_turns};
use super::site::content;
use super::table::Line;

/// Of a file, in bytes.
const SIZE: usize = 4096;
const FOLDERS: usize = 100;
/// Files that are synced together.
const BATCH: usize = 256;

/// What is on the disk before a file gets its name.
#[derive(Clone, Copy)]
enum Syncing {
    Nothing,
    EachFile,
    EachBatch,
}

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let files = bench.size(10_000, 500);
    let [nothing, each_file, each_batch] = by_turns(
        bench.rounds(),
        [
            &mut || write_files(bench, files, Syncing::Nothing),
            &mut || write_files(bench, files, Syncing::EachFile),
            &mut || write_files(bench, files, Syncing::EachBatch),
        ],
    )?;
    let line = |how: &str, timed: Timed| {
        let each = timed.seconds() * 1e6 / files as f64;
        Line::new(format!("{files} files of 4 KiB written and renamed, {how}"))
            .peer(format!("{:.2} s, {each:.0} µs a file", timed.seconds()))
    };
    Ok(vec![
        line("no sync", nothing),
        line("fsync of each", each_file),
        line(&format!("syncfs for each {BATCH}"), each_batch),
    ])
}

fn write_files(bench: &Bench, files: usize, syncing: Syncing) -> BenchResult<Timed> {
    let folder = bench.folder()?;
    let root = folder.path();
    std::fs::create_dir(root.join("staged"))?;
    for number in 0..FOLDERS {
        std::fs::create_dir(root.join(number.to_string()))?;
    }
    let bytes = content(0, 0, SIZE);
    let file_system = File::open(root)?;
    let started = clock::now().mono;
    for begin in (0..files).step_by(BATCH) {
        let batch = begin..files.min(begin + BATCH);
        for number in batch.clone() {
            let file = stage(root, number, &bytes)?;
            if matches!(syncing, Syncing::EachFile) {
                file.sync_all()?;
            }
        }
        if matches!(syncing, Syncing::EachBatch) {
            syncfs(&file_system)?;
        }
        for number in batch {
            let name = format!("{}/{number}", number % FOLDERS);
            std::fs::rename(root.join(format!("staged/{number}")), root.join(name))?;
        }
    }
    Ok(Timed {
        wall: clock::now().mono - started,
        ..Timed::default()
    })
}

fn stage(root: &Path, number: usize, bytes: &[u8]) -> BenchResult<File> {
    let path = root.join(format!("staged/{number}"));
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}
