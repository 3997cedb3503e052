//! The commands, examples and test names in README.md, SECURITY.md and docs/operations.md.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics when a precondition fails"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use resyncd::config::Config;
use resyncd::metrics::{FAMILIES, MetricKind};

const README: &str = include_str!("../README.md");
const OPERATIONS: &str = include_str!("../docs/operations.md");

/// The code blocks of a language in README.md, without their fences.
fn blocks(language: &str) -> Vec<&'static str> {
    blocks_of(README, language)
}

/// The code blocks of a language in a page, without their fences.
fn blocks_of<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    page.split("\n```")
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
fn commands_of_the_pages_exist() {
    assert_eq!(commands_of(README), 5);
    assert_eq!(commands_of(OPERATIONS), 2);
}

/// Has the program explain each command in the code blocks of a page; returns their number.
fn commands_of(page: &str) -> usize {
    let mut commands = 0;
    for line in blocks_of(page, "sh").into_iter().flat_map(str::lines) {
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
    commands
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

/// The files of the program below a folder, without their tests, and without what has no codes of errors: the demo, the
/// simulation, and the names of states and kinds.
fn sources(folder: &Path, found: &mut Vec<String>) {
    const WITHOUT: [&str; 8] = [
        "demo",
        "simulation",
        "tests",
        "tables",
        "metrics/counters",
        "store/change.rs",
        "sync/lease.rs",
        "engine/runtime_status.rs",
    ];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let shown = path.to_str().unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name == "tests" || WITHOUT.iter().any(|it| shown.contains(&format!("/{it}"))) {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            found.push(code.to_owned());
        }
    }
}

fn is_code(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.starts_with(|first: char| first.is_ascii_lowercase()) && text.bytes().all(is_letter)
}

/// The text literals of a piece of code.
fn literals(code: &str) -> impl Iterator<Item = &str> {
    code.split('"').skip(1).step_by(2)
}

/// The block that begins with the first brace of a piece of code.
fn block(code: &str) -> &str {
    let mut depth = 0;
    let end = code.char_indices().find(|(_, character)| {
        depth += i32::from(*character == '{') - i32::from(*character == '}');
        *character == '}' && depth == 0
    });
    &code[..end.map_or(code.len(), |(end, _)| end)]
}

/// The codes that a file of the program has: those that a function `…code` returns, those of log lines and of errors that are
/// made in place, those in brackets behind messages, and those of constants.
fn codes_of(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for function in ["fn code(", "fn sqlite_code("] {
        for (at, _) in code.match_indices(function) {
            found.extend(literals(block(&code[at..])));
        }
    }
    let calls = [
        "code = \"",
        "code: \"",
        "StatusError::new(\"",
        "status_error(\"",
        "reject(callback, channel, \"",
        "rejections.count(\"",
        "return Some((\"",
        "Some((\"",
        "Err((\"",
        "|_| (\"",
    ];
    for call in calls {
        for (at, _) in code.match_indices(call) {
            found.extend(literals(&code[at..]).next());
        }
    }
    for (at, _) in code.match_indices("error_response(") {
        let arguments = code[at..].split(';').next().unwrap();
        let is_call = arguments.contains("StatusCode::");
        found.extend(literals(arguments).next().filter(|_| is_call));
    }
    for line in code.lines() {
        let is_constant = line.contains("const ") && line.contains("str");
        if is_constant
            && ["CODE", "DEAD_LINK", "LEFT_OUT", "TRANSPORT"]
                .iter()
                .any(|it| line.contains(it))
        {
            found.extend(literals(line));
        }
        // `resyncd: … [code]`
        if let Some((_, rest)) = line.rsplit_once(" [")
            && let Some((name, _)) = rest.split_once("]\"")
        {
            found.push(name);
        }
    }
    let found = found.into_iter().filter(|name| is_code(name));
    found.map(str::to_owned).collect()
}

#[test]
fn every_code_has_its_sentence() {
    let mut files = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    sources(&root, &mut files);
    let page = include_str!("../docs/codes.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut documented = BTreeSet::new();
    for row in rows {
        let (code, sentence) = row.split_once("` | ").unwrap();
        assert!(sentence.len() > 10, "{code} has no sentence");
        assert!(documented.insert(code.to_owned()), "{code} is there twice");
    }
    let used: BTreeSet<String> = files.iter().flat_map(|file| codes_of(file)).collect();
    let missing: Vec<_> = used.difference(&documented).collect();
    assert!(missing.is_empty(), "not in docs/codes.md: {missing:?}");
    let is_there = |code: &&String| {
        let forms = [format!("\"{code}\""), format!("[{code}]\"")];
        files
            .iter()
            .any(|file| forms.iter().any(|form| file.contains(form)))
    };
    let unused: Vec<_> = documented.iter().filter(|code| !is_there(code)).collect();
    assert!(unused.is_empty(), "of no error: {unused:?}");
    assert!(used.len() > 150, "{used:?}");
}

#[test]
fn documented_metrics_are_those_of_the_program() {
    let rows = FAMILIES.iter().map(|family| {
        let labels: Vec<String> = family.labels.iter().map(|it| format!("`{it}`")).collect();
        let (name, kind) = (family.name, family.kind.name());
        format!(
            "| `{name}` | {kind} | {} | {} |",
            labels.join(", "),
            family.help
        )
    });
    let documented = include_str!("../docs/metrics.md").lines();
    let documented = documented.filter(|line| line.starts_with("| `resyncd_"));
    let documented: Vec<&str> = documented.collect();
    assert_eq!(documented, rows.collect::<Vec<String>>());
}

#[test]
fn metrics_of_the_alerts_and_the_dashboard_exist() {
    let dashboard = include_str!("../contrib/grafana/resyncd.json");
    let _: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let alerts = include_str!("../contrib/prometheus/resyncd.rules.yml");
    let tests_of_alerts = include_str!("../contrib/prometheus/resyncd.rules.test.yml");
    let (mut found, text) = (0, [dashboard, alerts, tests_of_alerts].join("\n"));
    let is_end = |character: char| !character.is_ascii_alphanumeric() && character != '_';
    for word in text.split(is_end) {
        if !word.starts_with("resyncd_") {
            continue;
        }
        let ends = ["_bucket", "_sum", "_count"];
        let base = ends.iter().find_map(|end| word.strip_suffix(end));
        let exists = FAMILIES.iter().any(|family| match family.kind {
            MetricKind::Histogram => base == Some(family.name),
            MetricKind::Counter | MetricKind::Gauge => word == family.name,
        });
        assert!(exists, "there is no metric {word}");
        found += 1;
    }
    assert!(found > 30, "{found}");
}
