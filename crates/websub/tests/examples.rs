//! The examples run: each checks by itself what both sides receive.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where its preconditions fail"
)]

use std::path::Path;
use std::process::Command;

#[test]
fn examples_work_with_both_sides() {
    // Cargo builds the examples beside the tests.
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    for name in ["subscription", "hub"] {
        let program = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        let output = Command::new(folder.join("examples").join(program))
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }
}
