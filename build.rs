//! Records the commit that the program is built from, for `resyncd version`.
//!
//! The environment variable `RESYNCD_COMMIT` states it, for builds outside of a repository. Otherwise a release build asks Git. A
//! debug build does not: each commit would compile everything again. Without either nothing is recorded, and the build succeeds.

#![allow(clippy::print_stdout, reason = "Cargo reads the output")]

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RESYNCD_COMMIT");
    let stated = env::var("RESYNCD_COMMIT").ok();
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = stated.or_else(|| is_release.then(head).flatten());
    let is_plain = |commit: &String| {
        (1..=64).contains(&commit.len()) && commit.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if let Some(commit) = commit.filter(is_plain) {
        println!("cargo::rustc-env=RESYNCD_BUILD_COMMIT={commit}");
    }
}

/// The commit that is checked out, with `-modified` if files differ from it.
fn head() -> Option<String> {
    // The repository of another project may surround a source archive of this one.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let commit = git(&[
        "describe",
        "--always",
        "--abbrev=12",
        "--exclude=*",
        "--dirty=-modified",
    ])?;
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file]);
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    for path in ["src", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={path}");
    }
    Some(commit)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
