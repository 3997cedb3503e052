//! What the README tells a newcomer is so.

use std::path::Path;
use std::process::Command;

use resyncd::config::Config;

const README: &str = include_str!("../README.md");

/// The blocks of a language, without their fences.
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
        let called = [
            "cargo run --release -- ",
            "target/release/resyncd --config resyncd.toml ",
            "sudo -u resyncd resyncd ",
            "resyncd ",
        ];
        let Some(rest) = called.iter().find_map(|call| line.strip_prefix(call)) else {
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
