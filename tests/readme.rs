//! The commands, examples and test names in README.md, README.ja.md, SECURITY.md, docs/ and what is shipped with the program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use resyncd::config::Config;
use resyncd::metrics::{FAMILIES, MetricKind};
use resyncd_testkit::{ChannelHub, SampleOptions, SampleSource};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::free_address;

const README: &str = include_str!("../README.md");

/// The code blocks of a language in a page, without their fences.
fn blocks(page: &'static str, language: &str) -> Vec<&'static str> {
    page.split("\n```")
        .filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n'))
        .collect()
}

#[test]
fn readme_is_short() {
    assert!(README.lines().count() <= 150 && README.len() <= 9000);
}

/// The anchor that a heading has on the pages of a forge.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = Vec::new();
    for place in [
        "README.md",
        "README.ja.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs",
        "contrib/README.md",
        "benches/README.md",
        "fuzz/README.md",
    ] {
        texts(&root.join(place), &mut pages);
    }
    let mut count = 0;
    for (page, text) in &pages {
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link}", page.display());
            if !anchor.is_empty() {
                let target = std::fs::read_to_string(target).unwrap();
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                let exists = headings.any(|heading| anchor_of(heading) == anchor);
                assert!(exists, "{}: {link}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn configurations_to_begin_with_are_valid() {
    let configurations = blocks(include_str!("../docs/tutorial/first-mirror.md"), "toml");
    assert_eq!(configurations.len(), 2);
    for text in configurations {
        let config = Config::parse(text, Path::new("/srv/resyncd.toml")).unwrap();
        assert_eq!(config.state_dir, Path::new("/srv/state"));
        assert_eq!(*config.sources[0].mirror, *Path::new("/srv/mirror"));
    }
}

/// A command line of the program that a page or a file shows.
struct Shown {
    /// Where it is.
    file: String,
    /// As it is written there.
    text: String,
    /// Its arguments, once with what is optional and once without.
    arguments: Vec<Vec<String>>,
}

impl Shown {
    /// The command line that a text is; `None`: it is none of this program.
    fn of(file: &Path, text: &str) -> Option<Self> {
        const BEFORE: [&str; 4] = [
            "sudo -u resyncd ",
            "podman exec resyncd ",
            "ExecReload=",
            "ExecStart=",
        ];
        let words: Vec<&str> = text.split_whitespace().collect();
        let line = words.join(" ");
        let line = line.split(" #").next()?.split(" | ").next()?;
        let line = BEFORE
            .iter()
            .fold(line, |line, it| line.strip_prefix(it).unwrap_or(line));
        let arguments = match line.strip_prefix("cargo run --release -- ") {
            Some(arguments) => arguments,
            None => {
                let (program, arguments) = line.split_once(' ')?;
                let is_own = program == "resyncd" || program.ends_with("/resyncd");
                Some(arguments).filter(|_| is_own)?
            }
        };
        if arguments.contains('…') {
            return None;
        }
        let without = remove_optional(arguments);
        let with = arguments.replace(['[', ']'], "");
        let parse = |line: &str| line.split_whitespace().map(value_of).collect();
        let arguments = [without.as_str(), with.as_str()].map(parse);
        Some(Self {
            file: file.display().to_string(),
            text: text.to_owned(),
            arguments: arguments.into(),
        })
    }
}

/// A line without what is in brackets.
fn remove_optional(line: &str) -> String {
    let mut parts = line.split('[');
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        rest += part.split_once(']').map_or(part, |(_, after)| after);
    }
    rest
}

/// What a word stands for.
fn value_of(word: &str) -> String {
    match word {
        "N" | "NUMBER" => "1".to_owned(),
        "ADDRESS" => "127.0.0.1:8462".to_owned(),
        "NAME" => "example".to_owned(),
        word => word.trim_matches('\'').to_owned(),
    }
}

/// The files below a folder that a person reads, or one file.
fn texts(place: &Path, found: &mut Vec<(PathBuf, String)>) {
    if place.is_dir() {
        for entry in std::fs::read_dir(place).unwrap() {
            texts(&entry.unwrap().path(), found);
        }
    } else if let Ok(text) = std::fs::read_to_string(place) {
        found.push((place.to_owned(), text));
    }
}

/// Every command line of the program in the pages for people, in the files that they may copy, and in the unit.
fn shown_commands() -> Vec<Shown> {
    const PLACES: [&str; 9] = [
        "README.md",
        "README.ja.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "config.example.toml",
        "docs",
        "contrib",
        "systemd",
        "benches/README.md",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for place in PLACES {
        texts(&root.join(place), &mut files);
    }
    let mut shown = Vec::new();
    for (file, text) in files {
        let file = file.strip_prefix(root).unwrap();
        let is_page = file.extension().is_some_and(|extension| extension == "md");
        // Of a page, each second part is a code block, which may be in an item of a list.
        let fence = if is_page { "\n```" } else { "\0" };
        let lines = text.lines().map(|line| match line.trim_start() {
            line if line.starts_with("```") => line,
            _ => line,
        });
        let text = lines.collect::<Vec<&str>>().join("\n");
        for (number, part) in text.split(fence).enumerate() {
            let template = part.replace("{{ $labels.source }}", "NAME");
            if !is_page || number % 2 == 1 {
                let lines = template.lines().map(str::trim);
                shown.extend(lines.filter_map(|line| Shown::of(file, line)));
            }
            if !is_page || number % 2 == 0 {
                let spans = template.split('`').skip(1).step_by(2);
                shown.extend(spans.filter_map(|span| Shown::of(file, span)));
            }
        }
    }
    shown
}

#[test]
fn every_command_that_is_shown_is_accepted() {
    let shown = shown_commands();
    for Shown {
        file,
        text,
        arguments,
    } in &shown
    {
        for arguments in arguments {
            // A command that is only named.
            if let [command] = arguments.as_slice() {
                let program = resyncd::cli::command_line();
                let exists = program.find_subcommand(command).is_some();
                assert!(exists, "{file}: {text}");
                continue;
            }
            let line = std::iter::once("resyncd").chain(arguments.iter().map(String::as_str));
            let parsed = resyncd::cli::command_line().try_get_matches_from(line);
            assert!(parsed.is_ok(), "{file}: {text}: {}", parsed.unwrap_err());
        }
    }
    for file in [
        "README.md",
        "docs/how-to/backup.md",
        "docs/reference/command-line.md",
        "docs/reference/codes.md",
        "contrib/prometheus/resyncd.rules.yml",
        "systemd/resyncd.service",
    ] {
        assert!(shown.iter().any(|shown| shown.file == file), "{file}");
    }
    assert!(shown.len() > 60, "{}", shown.len());
}

/// Those that need neither a Source nor a daemon are run.
#[test]
fn commands_that_are_shown_do_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    // Nobody listens there.
    let text = "state_dir = \"state\"\n[status]\nlisten = \"127.0.0.1:1\"\n\
        [[source]]\nname = \"example\"\nurl = \"https://library.org/\"\nmirror = \"mirror\"\nnotifications = false\n";
    std::fs::write(&config, text).unwrap();
    let mut run = BTreeSet::new();
    for shown in shown_commands() {
        for mut arguments in shown.arguments {
            // The one that is shown is another one.
            for argument in &mut arguments {
                if argument.starts_with('/') {
                    let is_folder = argument.ends_with('/');
                    *argument = if is_folder { "./" } else { "copy.db" }.to_owned();
                }
            }
            while let Some(at) = arguments
                .iter()
                .position(|it| it == "--config" || it == "-c" || it == "--address")
            {
                arguments.drain(at..at + 2);
            }
            let code = match arguments.first().map(String::as_str) {
                // It asks the Source.
                Some("config") if arguments.iter().any(|it| it.contains("://")) => continue,
                Some("config") => 0,
                Some("check") if arguments.len() == 1 => 0,
                Some("approve" | "backup") if arguments.len() == 1 => continue,
                Some("approve" | "failed" | "held" | "poll" | "retry" | "status") => 3,
                // It is in the configuration.
                Some("forget") if !arguments.iter().any(|it| it == "--former-sets") => 1,
                // There is no database.
                Some("backup") => 1,
                _ => continue,
            };
            if !run.insert(arguments.clone()) {
                continue;
            }
            let mut command = Command::new(env!("CARGO_BIN_EXE_resyncd"));
            let command = command.arg("--config").arg(&config).args(&arguments);
            let output = command.current_dir(folder.path()).output().unwrap();
            assert_eq!(
                output.status.code(),
                Some(code),
                "{arguments:?}: {output:?}"
            );
        }
    }
    let commands: BTreeSet<&str> = run.iter().map(|it| it[0].as_str()).collect();
    let expected = [
        "approve", "backup", "check", "config", "failed", "forget", "held", "poll", "retry",
        "status",
    ];
    assert_eq!(commands, BTreeSet::from(expected));
}

/// How long a daemon may take to be in sync, and a command to end.
const LIMIT: Duration = Duration::from_secs(180);

/// Runs a command with a configuration; returns its exit status, and what it has printed.
fn run(folder: &Path, config: &Path, arguments: &[String]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_resyncd"));
    let command = command.arg("--config").arg(config).args(arguments);
    let command = command.env_remove("NOTIFY_SOCKET").current_dir(folder);
    let output = command.output().unwrap();
    (output.status.code(), format!("{arguments:?}: {output:?}"))
}

/// Those that need more are run with a Source, and with a daemon that follows it, in the order in which they can succeed.
#[tokio::test(flavor = "multi_thread")]
async fn commands_that_are_shown_succeed_with_a_source_and_a_daemon() {
    let options = SampleOptions {
        resources_per_set: 3,
        hub: ChannelHub::None,
        ..SampleOptions::default()
    };
    let source = SampleSource::start(options).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (callback, status, url) = (free_address(), free_address(), source.url());
    let write = |file: &str, name: &str| {
        let text = format!(
            "state_dir = \"state\"\n[callback]\nlisten = \"{callback}\"\n[status]\nlisten = \"{status}\"\n\
            [http]\nallow_private_addresses = true\n\
            [[source]]\nname = \"{name}\"\nurl = \"{url}\"\nmirror = \"{name}\"\nnotifications = false\n"
        );
        let path = folder.path().join(file);
        std::fs::write(&path, text).unwrap();
        path
    };
    let config = write("config.toml", "example");
    let without_it = write("other.toml", "other");
    let mut shown = BTreeSet::new();
    for mut arguments in shown_commands().into_iter().flat_map(|it| it.arguments) {
        while let Some(at) = arguments
            .iter()
            .position(|it| it == "--config" || it == "-c")
        {
            arguments.drain(at..at + 2);
        }
        for argument in &mut arguments {
            // What is shown is another one.
            if argument.starts_with("https://") || argument == "URL" {
                argument.clone_from(&url);
            } else if argument.starts_with('/') && argument.ends_with('/') {
                // Two copies of the same second have the same name.
                let name = format!("backups{}/", shown.len());
                std::fs::create_dir(folder.path().join(&name)).unwrap();
                *argument = name;
            } else if argument.starts_with('/') {
                *argument = "copy.db".to_owned();
            } else if argument == "127.0.0.1:8462" {
                *argument = status.to_string();
            }
        }
        shown.insert(arguments);
    }
    let mut run_commands = BTreeSet::new();
    // Each with the exit status that it has here.
    let mut run_all = |config: &Path, names: &[&str], without: &str| {
        for arguments in &shown {
            let Some(name) = arguments.first().filter(|it| names.contains(&it.as_str())) else {
                continue;
            };
            let is_named_only = arguments.len() == 1
                && ["approve", "forget", "discover", "backup", "config"].contains(&name.as_str());
            if is_named_only || arguments.iter().any(|it| it.starts_with(without)) {
                continue;
            }
            let (code, shown) = run(folder.path(), config, arguments);
            assert_eq!(code, Some(0), "{shown}");
            run_commands.insert(arguments.join(" "));
        }
    };
    run_all(&config, &["version", "config", "check", "discover"], "…");
    let (code, synced) = run(folder.path(), &config, &["sync".to_owned()]);
    assert_eq!(code, Some(0), "{synced}");
    run_all(&config, &["sync", "audit"], "…");

    let mut daemon = Command::new(env!("CARGO_BIN_EXE_resyncd"));
    let daemon = daemon.arg("--config").arg(&config).arg("run");
    let daemon = daemon
        .env_remove("NOTIFY_SOCKET")
        .current_dir(folder.path());
    let mut daemon = Ended(daemon.stderr(Stdio::null()).spawn().unwrap());
    let begun = resyncd::clock::now().mono;
    while run(folder.path(), &config, &["status".to_owned()]).0 != Some(0) {
        assert!(begun.elapsed() < LIMIT, "the daemon is not in sync");
    }
    let names = [
        "status", "approve", "failed", "held", "poll", "retry", "backup",
    ];
    run_all(&config, &names, "--watch");
    let former = shown
        .iter()
        .filter(|it| it.contains(&"--former-sets".to_owned()));
    for arguments in former {
        let (code, shown) = run(folder.path(), &config, arguments);
        assert_eq!(code, Some(0), "{shown}");
    }
    kill_process(Pid::from_child(&daemon.0), Signal::TERM).unwrap();
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
    run_all(&config, &["unsubscribe"], "…");
    let forgets = shown.iter().filter(|it| it[0] == "forget" && it.len() > 1);
    for arguments in forgets.filter(|it| !it.contains(&"--former-sets".to_owned())) {
        let (code, synced) = run(folder.path(), &config, &["sync".to_owned()]);
        assert_eq!(code, Some(0), "{synced}");
        let (code, shown) = run(folder.path(), &without_it, arguments);
        assert_eq!(code, Some(0), "{shown}");
    }
    for part in [
        "discover http",
        "sync",
        "audit --repair",
        "poll",
        "backup",
        "check --environment",
    ] {
        assert!(
            run_commands.iter().any(|it| it.starts_with(part)),
            "{part}: {run_commands:?}"
        );
    }
}

/// A process that is killed on drop.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn first_two_commands_are_the_demo_and_the_tests() {
    let first: Vec<_> = blocks(README, "sh").into_iter().map(str::trim).collect();
    assert_eq!(first, ["cargo run --release -- demo", "cargo test"]);
}

/// What a person copies from README.md is in its translation as well.
#[test]
fn translation_of_the_readme_has_its_commands() {
    let translation = include_str!("../README.ja.md");
    let lines: BTreeSet<&str> = translation.lines().map(str::trim).collect();
    let commands = blocks(README, "bash").into_iter().flat_map(str::lines);
    let missing: Vec<&str> = commands.filter(|line| !lines.contains(line)).collect();
    assert!(missing.is_empty(), "not in README.ja.md: {missing:?}");
}

#[test]
fn example_of_the_feed_is_json() {
    for line in blocks(include_str!("../docs/reference/feed.md"), "json") {
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
    let appendix = include_str!("../docs/developing/guarantees.md");
    let (root, mut code) = (Path::new(env!("CARGO_MANIFEST_DIR")), String::new());
    for folder in ["src", "crates", "tests"] {
        append_code(&root.join(folder), &mut code);
    }
    let (mut count, targets) = (0, "targets!(");
    for guarantee in appendix.split("\n### ").skip(1) {
        let title = guarantee.lines().next().unwrap();
        let tests = guarantee.split_once("\nTests: ");
        let tests = tests.unwrap_or_else(|| panic!("no test of: {title}")).1;
        let tests = tests.split("\n\n").next().unwrap();
        assert!(tests.contains('`'), "no test of: {title}");
        for test in tests.split('`').skip(1).step_by(2) {
            let prefix = test.trim_end_matches('…');
            let is_target = code.contains(targets) && tests.contains("tests/fuzzing.rs");
            let exists = code.contains(&format!("fn {prefix}"));
            assert!(exists || is_target, "there is no test {test}");
            count += 1;
        }
    }
    assert!(count > 300, "{count}");
}

/// What names states and kinds rather than codes of errors, besides the demo, the simulation and the tests.
const WITHOUT_CODES: [&str; 9] = [
    "resyncd-testkit",
    "simulation",
    "tests",
    "tables",
    "metrics/counters",
    "store/change.rs",
    "crates/websub",
    "resyncd-core/src/transport.rs",
    "engine/runtime_status.rs",
];

/// The files of the program below a folder, without their tests, and without some of them.
fn sources(folder: &Path, without: &[&str], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let shown = path.to_str().unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_code = path.is_dir() || path.extension().is_some_and(|it| it == "rs");
        if !is_code || name == "tests" || without.iter().any(|it| shown.contains(&format!("/{it}")))
        {
            continue;
        }
        if path.is_dir() {
            sources(&path, without, found);
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

/// The codes that a file of the program has: those that a function `…code` returns or an enumeration names, those of log lines and of
/// errors that are made in place, those in brackets behind messages, and those of constants.
fn codes_of(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for function in ["fn code(", "fn code;", "fn sqlite_code("] {
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
    // `"code": "message"`
    for call in ["reason!(", "ensure!(", "reject!(", "doubt!("] {
        for (at, _) in code.match_indices(call) {
            let before = code[at..].split("\":").next();
            let before = before.filter(|before| !before.contains(';'));
            found.extend(before.and_then(|before| before.rsplit('"').next()));
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
    let (mut files, mut tables) = (Vec::new(), Vec::new());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    sources(&root.join("src"), &WITHOUT_CODES, &mut files);
    sources(&root.join("crates"), &WITHOUT_CODES, &mut files);
    sources(&root.join("src/store/tables"), &["tests"], &mut tables);
    let page = include_str!("../docs/reference/codes.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut documented = BTreeSet::new();
    for row in rows {
        let (code, sentence) = row.split_once("` | ").unwrap();
        assert!(sentence.len() > 10, "{code} has no sentence");
        assert!(documented.insert(code.to_owned()), "{code} is there twice");
    }
    let used: BTreeSet<String> = files.iter().flat_map(|file| codes_of(file)).collect();
    let missing: Vec<_> = used.difference(&documented).collect();
    assert!(missing.is_empty(), "not in codes.md: {missing:?}");
    let is_there = |code: &&String| {
        let forms = [format!("\"{code}\""), format!("[{code}]\"")];
        let mut all = files.iter().chain(&tables);
        all.any(|file| forms.iter().any(|form| file.contains(form)))
    };
    let unused: Vec<_> = documented.iter().filter(|code| !is_there(code)).collect();
    assert!(unused.is_empty(), "of no error: {unused:?}");
    assert!(used.len() > 150, "{used:?}");
}

/// The names in a text that follow a mark, up to what is no part of a name.
fn names_after<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    let is_end = |character: char| !character.is_ascii_alphanumeric() && character != '_';
    let names = text.split(mark).skip(1);
    names.map(move |rest| rest.split(is_end).next().unwrap())
}

/// What Grafana reads of a dashboard that is imported. That its queries can be parsed is checked by `.ci/run metrics`.
#[test]
fn dashboard_is_one_that_grafana_can_import() {
    let dashboard = include_str!("../contrib/grafana/resyncd.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    assert!(dashboard["title"].is_string() && dashboard["uid"].is_string());
    assert!(dashboard["schemaVersion"].is_u64());
    assert!(dashboard.get("id").is_none_or(serde_json::Value::is_null));
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables: Vec<&str> = variables
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    let (mut ids, mut occupied) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        assert!(
            ["stat", "timeseries"].contains(&panel["type"].as_str().unwrap()),
            "{title}"
        );
        assert!(panel["fieldConfig"]["defaults"].is_object(), "{title}");
        let [x, y, width, height] =
            ["x", "y", "w", "h"].map(|it| panel["gridPos"][it].as_u64().unwrap());
        assert!(width > 0 && height > 0 && x + width <= 24, "{title}");
        for place in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(occupied.insert(place), "{title} covers another panel");
        }
        let mut queries = BTreeSet::new();
        for target in panel["targets"].as_array().unwrap() {
            assert!(queries.insert(target["refId"].as_str().unwrap()), "{title}");
            assert_eq!(target["datasource"]["type"], "prometheus", "{title}");
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            let query = target["expr"].as_str().unwrap();
            for variable in names_after(query, "$") {
                assert!(variables.contains(&variable), "{title}: ${variable}");
            }
            let mut families = FAMILIES.iter().filter(|family| query.contains(family.name));
            let labels = families.next().unwrap().labels;
            let legend = target["legendFormat"].as_str().unwrap();
            for label in names_after(legend, "{{") {
                let is_left = match query.split_once(" by (") {
                    Some((_, by)) => by.split(')').next().unwrap().contains(label),
                    None => labels.contains(&label) || ["instance", "job"].contains(&label),
                };
                assert!(is_left, "{title}: {label} of {query}");
            }
            for by in query.split(" by (").skip(1) {
                let by = by.split(')').next().unwrap().split(", ");
                for label in by {
                    let exists = labels.contains(&label) || label == "le";
                    assert!(exists, "{title}: {label} of {query}");
                }
            }
        }
        assert!(!queries.is_empty(), "{title}");
    }
}

#[test]
fn metrics_of_the_alerts_and_the_dashboard_exist() {
    let dashboard = include_str!("../contrib/grafana/resyncd.json");
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
