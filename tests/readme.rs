//! The commands, examples and test names in README.md and SECURITY.md.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics when a precondition fails"
)]

use std::path::Path;
use std::process::Command;

use resyncd::config::Config;

const README: &str = include_str!("../README.md");

/// The code blocks of a language, without their fences.
fn blocks(language: &str) -> Vec<&'static str> {
    README
        .split("\n```")
        .filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n'))
        .collect()
}

#[test]
fn configuration_of_the_readme_is_valid() {
    let configurations = blocks("toml");
    assert!(!configurations.is_empty());
    for text in configurations {
        let config = Config::parse(text, Path::new("/srv/resyncd.toml")).unwrap();
        assert_eq!(config.state_dir, Path::new("/srv/state"));
        assert_eq!(config.sources[0].mirror, Path::new("/srv/mirror"));
    }
}

#[test]
fn commands_of_the_readme_exist() {
    let mut commands = 0;
    for line in blocks("sh").into_iter().flat_map(str::lines) {
        let prefixes = [
            "cargo run --release -- ",
            "target/release/resyncd --config resyncd.toml ",
            "sudo -u resyncd resyncd ",
            "resyncd ",
        ];
        let Some(rest) = prefixes.iter().find_map(|prefix| line.strip_prefix(prefix)) else {
            continue;
        };
        let command = rest.split_whitespace().next().unwrap_or_default();
        let help = Command::new(env!("CARGO_BIN_EXE_resyncd"))
            .args([command, "--help"])
            .output()
            .unwrap();
        assert!(help.status.success(), "{line:?}: there is no {command:?}");
        commands += 1;
    }
    assert_eq!(commands, 5);
}

#[test]
fn first_two_commands_are_the_demo_and_the_tests() {
    let first: Vec<_> = blocks("sh").into_iter().take(2).map(str::trim).collect();
    assert_eq!(first, ["cargo run --release -- demo", "cargo test"]);
}

#[test]
fn example_of_the_feed_is_json() {
    for line in blocks("json") {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(entry["seq"].is_u64());
    }
}

/// Appends every Rust file below a folder.
fn append_code(folder: &Path, code: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            append_code(&path, code);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn tests_named_in_security_exist() {
    let security = include_str!("../SECURITY.md");
    let (root, mut code) = (Path::new(env!("CARGO_MANIFEST_DIR")), String::new());
    append_code(&root.join("src"), &mut code);
    append_code(&root.join("tests"), &mut code);
    let rows = security.lines().filter(|line| line.starts_with("| "));
    let (mut count, targets) = (0, "targets!(");
    for row in rows.filter(|row| row.contains('`')) {
        let tests = row.rsplit("| ").next().unwrap();
        for test in tests.split('`').skip(1).step_by(2) {
            let prefix = test.trim_end_matches('…');
            let is_target = code.contains(targets) && row.contains("tests/fuzzing.rs");
            let exists = code.contains(&format!("fn {prefix}"));
            assert!(exists || is_target, "there is no test {test}");
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}
