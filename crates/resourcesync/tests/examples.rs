//! The examples work together: one writes the documents of a Source, the others read them.

#![cfg(all(feature = "read", feature = "write"))]
#![allow(
    clippy::unwrap_used,
    reason = "a test panics where its preconditions fail"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Cargo builds the examples beside the tests.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    folder.join("examples").join(name)
}

/// Runs an example in a folder; returns whether it succeeded, and what it printed.
fn run(folder: &Path, name: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program(name));
    let output = command.args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("{name}: {error}"));
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.success(), text)
}

#[test]
fn documents_are_written_read_followed_and_checked() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("examples");
    std::fs::create_dir_all(&folder).unwrap();
    let run = |name: &str, arguments: &[&str]| run(&folder, name, arguments);
    let lines = |(succeeded, text): (bool, String)| {
        assert!(succeeded, "{text}");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };

    assert_eq!(lines(run("write_source", &["."])).len(), 5);
    let uri = "http://example.com/list.xml";
    assert_eq!(
        lines(run("read_resource_list", &["resourcelist.xml", uri])),
        [
            "As of 2013-01-03T09:00:00Z:",
            "http://example.com/res1 (20 bytes)"
        ]
    );
    let since = "2013-01-03T09:00:00Z";
    assert_eq!(
        lines(run("follow_change_list", &["changelist.xml", uri, since])),
        ["updated 2013-01-03T09:00:00Z http://example.com/res1"]
    );
    let (succeeded, _) = run("follow_change_list", &["changelist.xml", uri, "2012"]);
    assert!(!succeeded, "changes before the list are missing");

    let resource = "http://example.com/res1";
    for (bytes, is_right) in [
        ("The first resource.\n", true),
        ("The other resource.\n", false),
    ] {
        std::fs::write(folder.join("res1"), bytes).unwrap();
        let (succeeded, text) = run("check_file", &["resourcelist.xml", resource, "res1"]);
        assert_eq!(succeeded, is_right, "{text}");
    }
}
