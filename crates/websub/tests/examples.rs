//! The example runs: it checks by itself what each side receives.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where its preconditions fail"
)]

use std::path::Path;
use std::process::Command;

#[test]
fn subscription_works_with_both_sides() {
    // Cargo builds the examples beside the tests.
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let name = format!("subscription{}", std::env::consts::EXE_SUFFIX);
    let output = Command::new(folder.join("examples").join(name))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
