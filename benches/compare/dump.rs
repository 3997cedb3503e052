//! A first copy from a Resource Dump of many small members: downloaded, unpacked, verified and synced, against `unzip` of the same
//! packages, which are there already, and one `sync`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::harness::{Bench, BenchResult, Home, Timed, by_turns, timed};
use super::site::{LISTED_AT, Nginx, Site, document, first_content, sha_256};
use super::table::{Goal, Line};

/// Of a member, in bytes.
const SIZE: usize = 1024;
const PACKAGES: usize = 10;

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let members = bench.size(100_000, 1_000);
    let site = Site::without_files(bench, "http", members, SIZE, first_content)?;
    let packages = write_dump(&site)?;
    site.write_capability_list(&[("resourcedump", "resourcedump.xml")])?;
    let _nginx = Nginx::of_site(bench, &site)?;

    let mut ours = || {
        let home = Home::of_source(bench, &site.capability_list(), "baseline = \"dump\"")?;
        let timed = bench.sync(&home)?;
        site.compare(&home.mirror())?;
        Ok(timed)
    };
    let unzip = bench.peers.find("unzip")?;
    let mut theirs = || {
        let folder = bench.folder()?;
        let timed = unpack(&unzip, &packages, folder.path())?;
        std::fs::remove_file(folder.path().join("manifest.xml"))?;
        site.compare_folder(folder.path())?;
        Ok(timed)
    };
    let [ours, theirs] = by_turns(bench.rounds(), [&mut ours, &mut theirs])?;
    let what = format!("first copy of a dump: {PACKAGES} packages, {members} members of 1 KiB");
    let line = Line::new(what)
        .resyncd(ours)
        .peer(format!("unzip and sync: {theirs}"))
        .ratio(ours.seconds() / theirs.seconds(), Goal::AtMost(2.0, ""));
    Ok(vec![line])
}

fn unpack(unzip: &Path, packages: &[PathBuf], folder: &Path) -> BenchResult<Timed> {
    let mut total = Timed::default();
    for package in packages {
        let mut unzip = Command::new(unzip);
        unzip.args(["-q", "-o"]).arg(package).arg("-d").arg(folder);
        total = total + timed(&mut unzip)?;
    }
    Ok(total + timed(&mut Command::new("sync"))?)
}

/// Writes the Resource Dump and its packages; returns the packages.
fn write_dump(site: &Site) -> BenchResult<Vec<PathBuf>> {
    let mut packages = Vec::new();
    let mut entries = String::new();
    let members = site.resources.div_ceil(PACKAGES);
    for (part, begin) in (0..site.resources).step_by(members).enumerate() {
        let name = format!("package-{part}.zip");
        let path = site.root().join(&name);
        let mut package = ZipWriter::new(BufWriter::new(File::create(&path)?));
        let options = SimpleFileOptions::default();
        let mut listed = String::new();
        for number in begin..site.resources.min(begin + members) {
            let path = Site::path(number);
            listed += &site.entry(number, &format!(" path=\"/{path}\""));
            package.start_file(path, options)?;
            package.write_all(&site.body(number))?;
        }
        package.start_file("manifest.xml", options)?;
        let md = format!("capability=\"resourcedump-manifest\" at=\"{LISTED_AT}\"");
        package.write_all(document("urlset", &md, &listed).as_bytes())?;
        package.finish()?.flush()?;

        let bytes = std::fs::read(&path)?;
        entries += &format!(
            "<url><loc>{}/{name}</loc><lastmod>{LISTED_AT}</lastmod>\
             <rs:md type=\"application/zip\" length=\"{}\" hash=\"sha-256:{}\"/></url>\n",
            site.base(),
            bytes.len(),
            sha_256(&bytes)
        );
        packages.push(path);
    }
    let md = format!("capability=\"resourcedump\" at=\"{LISTED_AT}\"");
    std::fs::write(
        site.root().join("resourcedump.xml"),
        document("urlset", &md, &entries),
    )?;
    Ok(packages)
}
