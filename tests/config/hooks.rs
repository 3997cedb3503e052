//! `[[source.hook]]`.

use std::path::Path;
use std::time::Duration;

use resyncd::config::{Config, Environment, HookAction};

use super::{EXAMPLE, MINIMAL, parse};

/// 32 bytes.
const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

#[test]
fn commands_and_urls_are_read_with_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(folder.path().join("secret"), format!("{SECRET}\n")).unwrap();
    let text = format!(
        "{MINIMAL}\
         [[source.hook]]\nname = \"index\"\ncommand = [\"./index\", \"-\"]\ntimeout = \"5m\"\nlines = 7\n\
         [[source.hook]]\nname = \"portal\"\nurl = \"https://p.example/hook\"\nsecret_file = \"secret\"\n\
         [[source.hook]]\nname = \"q\"\nurl = \"https://q.example/\"\nsecret = \"${{SECRET}}\"\n"
    );
    let environment = Environment::of(&[("SECRET", SECRET)]);
    let config = Config::parse_in(&text, &path, &environment).unwrap();
    let hooks = &config.sources[0].hooks;
    let names: Vec<&str> = hooks.iter().map(|hook| hook.name.as_str()).collect();
    assert_eq!(names, ["index", "portal", "q"]);
    let HookAction::Command { program, arguments } = &hooks[0].action else {
        panic!("{hooks:?}");
    };
    assert_eq!(program, &folder.path().join("index"));
    assert_eq!(arguments, &["-"]);
    assert_eq!(
        (hooks[0].timeout, hooks[0].lines),
        (Duration::from_secs(300), 7)
    );
    for hook in &hooks[1..] {
        let HookAction::Webhook { secret, .. } = &hook.action else {
            panic!("{hook:?}");
        };
        assert_eq!(secret.bytes(), b"01234567890123456789012345678901");
        assert_eq!((hook.timeout, hook.lines), (Duration::from_secs(60), 1000));
    }
    let shown = format!("{config:?}") + &config.redaction().redact(&format!("echo {SECRET}"));
    assert!(!shown.contains(&SECRET[6..]), "{shown}");
}

#[test]
fn faults_of_hooks_are_reported_with_their_keys() {
    let url = "url = \"https://p.example/\"";
    for (hook, key, code) in [
        ("", "source[a].hook[#1].command", "bad-hook"),
        ("command = []", "source[a].hook[#1].command", "bad-hook"),
        (
            "command = [\"index\"]",
            "source[a].hook[#1].command",
            "bad-hook",
        ),
        (
            "command = \"/bin/index\"",
            "source[a].hook[#1].command",
            "wrong-type",
        ),
        (url, "source[a].hook[#1].secret_file", "bad-hook"),
        (
            &format!("{url}\ncommand = [\"/bin/true\"]"),
            "source[a].hook[#1].url",
            "bad-hook",
        ),
        (
            &format!("{url}\nsecret = \"{SECRET}\""),
            "source[a].hook[#1].secret",
            "plain-secret",
        ),
        (
            &format!("{url}\nsecret = \"x${{BAD}}\""),
            "source[a].hook[#1].secret",
            "bad-secret",
        ),
        (
            &format!("{url}\nsecret_file = \"/nowhere\""),
            "source[a].hook[#1].secret_file",
            "no-secret",
        ),
        (
            "url = \"https://me:x@p.example/\"",
            "source[a].hook[#1].url",
            "bad-url",
        ),
        (
            "command = [\"/bin/true\"]\nlines = 0",
            "source[a].hook[#1].lines",
            "out-of-range",
        ),
        (
            "command = [\"/bin/true\"]\ntimeout = \"0s\"",
            "source[a].hook[#1].timeout",
            "out-of-range",
        ),
        (
            "command = [\"/bin/true\"]\nname = \"A\"",
            "source[a].hook[#1].name",
            "bad-name",
        ),
        (
            "name = \"x\"\ncommand = [\"/bin/true\"]\n[[source.hook]]\nname = \"x\"\ncommand = [\"/bin/true\"]",
            "source[a].hook[#2].name",
            "duplicate-name",
        ),
        (
            "command = [\"/bin/true\"]\n[[source.hook]]\nname = \"x\"\ncommand = [\"/bin/true\"]",
            "source[a].hook[#2].name",
            "bad-hook",
        ),
        (
            "name = \"x\"\ncommand = [\"/bin/true\"]\n[[source.hook]]\ncommand = [\"/bin/true\"]",
            "source[a].hook[#2].name",
            "bad-hook",
        ),
        (
            "command = [\"/bin/true\"]\nurl_ = \"x\"",
            "source[a].hook[#1].url_",
            "unknown-key",
        ),
    ] {
        let text = format!("{MINIMAL}[[source.hook]]\n{hook}\n");
        let environment = Environment::of(&[("BAD", "short")]);
        let faults = Config::parse_in(&text, Path::new("/etc/config.toml"), &environment);
        let faults = faults.unwrap_err();
        let found: Vec<_> = faults.iter().map(|it| (it.key.as_str(), it.code)).collect();
        assert_eq!(found, [(key, code)], "{hook}");
    }
    let faults = parse(&format!(
        "{MINIMAL}[source.hook]\ncommand = [\"/bin/true\"]\n"
    ));
    assert_eq!(
        faults.unwrap_err().iter().next().unwrap().code,
        "wrong-type"
    );
    let hook =
        |number| format!("[[source.hook]]\nname = \"{number}\"\ncommand = [\"/bin/true\"]\n");
    let many: String = (1..=17).map(hook).collect();
    let faults = parse(&format!("{MINIMAL}{many}")).unwrap_err();
    let codes: Vec<_> = faults.iter().map(|fault| fault.code).collect();
    assert_eq!(codes, ["out-of-range"]);
}

/// It is commented out in the example, because a default configuration has none.
#[test]
fn hook_of_the_example_has_the_defaults() {
    let (_, hook) = EXAMPLE.split_once("# [[source.hook]]\n").unwrap();
    let lines = hook.lines().filter_map(|line| line.strip_prefix("# "));
    let keys = lines.filter(|line| {
        let key = line.split_once(" = ").map_or(" ", |(key, _)| key);
        !key.contains(' ')
    });
    let keys: Vec<&str> = keys.collect();
    let all = [
        "name",
        "command",
        "url",
        "secret_file",
        "secret_credential",
        "secret",
        "timeout",
        "lines",
        "files",
    ];
    let names: Vec<&str> = keys
        .iter()
        .map(|key| key.split_once(' ').unwrap().0)
        .collect();
    assert_eq!(names, all);
    let chosen = keys
        .iter()
        .filter(|key| !key.starts_with("url") && !key.starts_with("secret"));
    let text = format!(
        "{MINIMAL}[[source.hook]]\n{}\n",
        chosen.copied().collect::<Vec<_>>().join("\n")
    );
    let config = parse(&text).unwrap();
    let hook = &config.sources[0].hooks[0];
    assert_eq!(hook.name, "index");
    assert_eq!((hook.timeout, hook.lines), (Duration::from_secs(60), 1000));
    assert!(!hook.files);
}

#[test]
fn hooks_are_shown_without_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(folder.path().join("secret"), SECRET).unwrap();
    let text = format!(
        "{MINIMAL}[[source.hook]]\nurl = \"https://p.example/hook\"\nsecret_file = \"secret\"\n"
    );
    std::fs::write(&path, text).unwrap();
    let shown = Config::effective(&path).unwrap();
    let (_, hook) = shown.split_once("\n[[source.hook]]\n").unwrap();
    let file = folder.path().join("secret");
    for line in [
        "# name is not set",
        "url = \"https://p.example/hook\"",
        &format!("secret_file = \"{}\"", file.display()),
        "timeout = \"60s\"  # default",
        "lines = 1000  # default",
    ] {
        assert!(hook.lines().any(|it| it == line), "{line}: {hook}");
    }
    assert!(!shown.contains("whsec_"), "{shown}");
    std::fs::write(&path, shown).unwrap();
    Config::load(&path).unwrap();
    let schema = Config::schema();
    let hook = &schema["properties"]["source"]["items"]["properties"]["hook"];
    assert_eq!(hook["type"], "array");
    let keys = &hook["items"]["properties"];
    assert_eq!(keys["timeout"]["default"], "60s");
    assert_eq!(keys["lines"]["default"], 1000);
    assert_eq!(keys["command"]["type"], "array");
    assert!(keys["command"].get("default").is_none());
    let text = keys["command"]["description"].as_str().unwrap();
    assert!(text.starts_with("A program with its arguments."), "{text}");
}

#[test]
fn secret_that_is_written_as_a_list_is_not_shown() {
    let written = |action| {
        format!("{MINIMAL}[[source.hook]]\nname = \"a\"\n{action}\nsecret = [\"{SECRET}\"]\n")
    };
    for action in ["url = \"https://p.example/\"", ""] {
        let shown = parse(&written(action)).unwrap_err().to_string();
        assert!(shown.contains("source[a].hook[#1]"), "{shown}");
        assert!(!shown.contains(&SECRET[6..]), "{shown}");
    }
    // A command has none: what is written is ignored.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, written("command = [\"/bin/true\"]")).unwrap();
    let shown = Config::effective(&path).unwrap();
    assert!(!shown.contains(&SECRET[6..]), "{shown}");
}
