//! A first copy of many small files over loopback, against plain fetchers that neither verify nor sync what they write, and against
//! the reference implementation.

use std::fmt::Write as _;
use std::process::Command;

use super::harness::{Bench, BenchResult, Home, Timed, by_turns, timed};
use super::resync::ResyncClient;
use super::site::{Nginx, Site};
use super::table::{Goal, Line};

/// Of a resource, in bytes.
const SIZE: usize = 4096;

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let site = Site::create(bench, bench.size(10_000, 300), SIZE)?;
    let _nginx = Nginx::of_site(bench, &site)?;
    let what = format!("first copy of {} resources of 4 KiB", site.resources);
    let against_curl = against_curl(bench, &site, &what);
    let mut lines = Line::or_skipped(format!("{what}, curl"), against_curl)?;
    let against_resync = against_resync(bench, &site, &what);
    lines.extend(Line::or_skipped(format!("{what}, resync"), against_resync)?);
    let against_aria2 = against_aria2(bench, &site, &what);
    lines.extend(Line::or_skipped(format!("{what}, aria2"), against_aria2)?);
    Ok(lines)
}

/// `resyncd sync` with empty folders.
fn resyncd(bench: &Bench, site: &Site) -> BenchResult<Timed> {
    let home = Home::of_source(bench, &site.capability_list(), "")?;
    let timed = bench.sync(&home)?;
    site.compare(&home.mirror())?;
    Ok(timed)
}

fn against_curl(bench: &Bench, site: &Site, what: &str) -> BenchResult<Vec<Line>> {
    let program = bench.peers.find("curl")?;
    let mut curl = || {
        let folder = bench.folder()?;
        let mut list = String::new();
        for number in 0..site.resources {
            let path = folder.path().join("files").join(Site::path(number));
            writeln!(
                list,
                "url = \"{}\"\noutput = \"{}\"",
                site.uri(number),
                path.display()
            )?;
        }
        let list_file = folder.path().join("list");
        std::fs::write(&list_file, list)?;
        let timed = timed(
            Command::new(&program)
                // Without a configuration of the user; only as the first one.
                .arg("-q")
                .args(["--silent", "--show-error", "--fail", "--create-dirs"])
                .args(["--parallel", "--parallel-max", "16", "--config"])
                .arg(list_file),
        )?;
        site.compare_folder(&folder.path().join("files"))?;
        Ok(timed)
    };
    let [ours, curl] = by_turns(bench.rounds(), [&mut || resyncd(bench, site), &mut curl])?;
    let line = Line::new(what)
        .resyncd(ours)
        .peer(format!("curl, 16 at once: {curl}"))
        .ratio(ours.seconds() / curl.seconds(), Goal::AtMost(1.0, ""));
    Ok(vec![line])
}

fn against_resync(bench: &Bench, site: &Site, what: &str) -> BenchResult<Vec<Line>> {
    let mut resync = || ResyncClient::new(bench)?.sync(bench, site);
    let [ours, resync] = by_turns(bench.rounds(), [&mut || resyncd(bench, site), &mut resync])?;
    let line = Line::new(what)
        .resyncd(ours)
        .peer(format!("resync-sync: {resync}"))
        .ratio(
            resync.seconds() / ours.seconds(),
            Goal::AtLeast(6.0, " times as fast"),
        );
    Ok(vec![line])
}

fn against_aria2(bench: &Bench, site: &Site, what: &str) -> BenchResult<Vec<Line>> {
    let program = bench.peers.find("aria2c")?;
    let mut aria2 = || {
        let folder = bench.folder()?;
        let mut list = String::new();
        for number in 0..site.resources {
            writeln!(list, "{}\n out={}", site.uri(number), Site::path(number))?;
        }
        let list_file = folder.path().join("list");
        std::fs::write(&list_file, list)?;
        let timed = timed(
            Command::new(&program)
                .args(["--quiet", "--no-conf", "--file-allocation=none"])
                .args(["--max-concurrent-downloads=16", "--input-file"])
                .arg(list_file)
                .arg("--dir")
                .arg(folder.path().join("files")),
        )?;
        site.compare_folder(&folder.path().join("files"))?;
        Ok(timed)
    };
    let [ours, aria2] = by_turns(bench.rounds(), [&mut || resyncd(bench, site), &mut aria2])?;
    let line = Line::new(what)
        .resyncd(ours)
        .peer(format!("aria2, 16 at once: {aria2}"))
        .ratio_only(ours.seconds() / aria2.seconds());
    Ok(vec![line])
}
