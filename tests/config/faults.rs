//! The faults of configuration files: messages, lines and keys.

use std::collections::BTreeSet;

use resyncd::config::Config;

use super::{MINIMAL, parse};

/// Each fault as `LINE KEY CODE`.
fn faults(text: &str) -> Vec<String> {
    let Err(faults) = parse(text) else {
        return Vec::new();
    };
    let number = |line: Option<usize>| line.map_or("-".to_owned(), |line| line.to_string());
    faults
        .iter()
        .map(|fault| format!("{} {} {}", number(fault.line), fault.key, fault.code))
        .collect()
}

fn check(text: &str, expected: &[&str]) {
    assert_eq!(faults(text), expected, "{text}\n{:?}", parse(text).err());
}

/// Checks a file that begins with the minimal configuration, so that the first line of the text is line 5.
fn check_after_minimal(text: &str, expected: &[&str]) {
    check(&format!("{MINIMAL}{text}"), expected);
}

#[test]
fn inbox_is_at_least_one_notification() {
    let text = format!("[limits]\nnotification = \"1GiB\"\n{MINIMAL}");
    assert_eq!(parse(&text).unwrap().limits.inbox, 1 << 30);
    let text = format!("[limits]\ninbox = \"1MiB\"\n{MINIMAL}");
    assert_eq!(parse(&text).unwrap().limits.notification, 1 << 20);
    check(
        &format!("[limits]\nnotification = \"1GiB\"\ninbox = \"1MiB\"\n{MINIMAL}"),
        &["3 limits.inbox out-of-range"],
    );
}

#[test]
fn file_of_a_token_must_hold_one() {
    let folder = tempfile::tempdir().unwrap();
    let parse = |name: &str| {
        let path = folder.path().join("config.toml");
        let text = format!("[status]\ntoken_file = {name:?}\n{MINIMAL}");
        let parsed = Config::parse(&text, &path);
        parsed.map(|config| config.status.token.map(|token| token.expose().to_owned()))
    };
    for (name, text, expected) in [
        ("good", "0123456789abcdef\n", Ok(Some("0123456789abcdef"))),
        ("short", "0123456789abcde\n", Err("out-of-range")),
        ("empty", "", Err("out-of-range")),
        (
            "two lines",
            "0123456789abcdef\n0123456789abcdef\n",
            Err("out-of-range"),
        ),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
        let found = parse(name).map_err(|faults| faults.0[0].code);
        assert_eq!(
            found.as_ref().map(Option::as_deref),
            expected.as_ref().copied(),
            "{name}"
        );
    }
    assert_eq!(parse("").unwrap(), None);
    for name in ["absent", "."] {
        let faults = parse(name).unwrap_err();
        let fault = &faults.0[0];
        let found = (fault.line, fault.key.as_str(), fault.code);
        assert_eq!(found, (Some(2), "status.token_file", "unreadable"));
    }
}

#[test]
fn all_semantic_faults_are_listed_with_their_lines() {
    let text = r#"state_dir = ""
[callback]
listen = "localhost:8461"
public_url = "https://d.example/?a=b"
[http]
timeout = "60"
conections_per_host = 8
[[source]]
name = "My Source"
url = "example.com"
lease = 10
[[source]]
name = "b"
url = "http://b.example/"
mirror = "/srv/b"
include = [
  "*.pdf",
  "[a",
]
"#;
    check(
        text,
        &[
            "1 state_dir bad-path",
            "3 callback.listen bad-address",
            "4 callback.public_url bad-url",
            "6 http.timeout bad-duration",
            "7 http.conections_per_host unknown-key",
            "8 source[My Source].mirror missing-key",
            "9 source[My Source].name bad-name",
            "10 source[My Source].url bad-url",
            "11 source[My Source].lease wrong-type",
            "18 source[b].include bad-glob",
        ],
    );
}

#[test]
fn text_that_is_not_toml_has_one_fault_with_its_line_and_key() {
    for (text, expected) in [
        (
            "state_dir = /var/lib/resyncd\n[http]\ntimeout = 60s\n",
            "1 state_dir syntax",
        ),
        (
            "[http]\ntimeout = 60s\nretries = 1\n",
            "2 http.timeout syntax",
        ),
        ("[http\ntimeout = 60s\n", "1 http syntax"),
        ("what is this\n", "1 what syntax"),
        ("[[source]]\nname = \"a\n", "2 source[#1].name syntax"),
        (
            "[[source]]\nname = \"a\"\nname = \"b\"\n",
            "3 source[#1].name duplicate-key",
        ),
        ("[http]\n[status]\n[http]\n", "3 http duplicate-key"),
        ("\u{b}", "1  syntax"),
    ] {
        check(text, &[expected]);
    }
    let page = "<p>not a configuration</p>\n".repeat(1000);
    check(&page, &["1  syntax"]);
}

#[test]
fn source_table_with_single_brackets_is_checked_completely() {
    check(
        "[source]\nname = \"A\"\nurl = \"ftp://a.example/\"\nmirror = \"/srv/a\"\n",
        &[
            "1 source wrong-type",
            "2 source[A].name bad-name",
            "3 source[A].url bad-url",
        ],
    );
    check_after_minimal("[source]\nname = \"b\"\n", &["5 source[#2] wrong-type"]);
}

#[test]
fn source_and_its_required_keys_must_be_present() {
    check("", &["- source no-source"]);
    check("source = []\n", &["1 source no-source"]);
    check("source = 1\n", &["1 source wrong-type"]);
    check("source = [1]\n", &["1 source[#1] wrong-type"]);
    check(
        "\n[[source]]\n",
        &[
            "2 source[#1].mirror missing-key",
            "2 source[#1].name missing-key",
            "2 source[#1].url missing-key",
        ],
    );
    check(
        &format!("{MINIMAL}[[source]]\nname = \"\"\nurl = 1\nmirror = \"/srv/b\"\n"),
        &["6 source[#2].name bad-name", "7 source[#2].url wrong-type"],
    );
}

#[test]
fn unknown_keys_and_tables_are_faults() {
    check_after_minimal("leese = \"1d\"\n", &["5 source[a].leese unknown-key"]);
    check_after_minimal(
        "[source.more]\nx = 1\n",
        &["5 source[a].more unknown-table"],
    );
    check_after_minimal("[http]\n\n\nlisten = 1\n", &["8 http.listen unknown-key"]);
    check_after_minimal("[htp]\n", &["5 htp unknown-table"]);
    check_after_minimal("[[sources]]\n", &["5 sources unknown-table"]);
    check_after_minimal("[\"a.b\\n\"]\n", &["5 a.b\n unknown-table"]);
    check(
        &format!("retries = 1\n{MINIMAL}"),
        &["1 retries unknown-key"],
    );
}

#[test]
fn unknown_keys_get_a_hint() {
    let hint = |text: &str| parse(text).unwrap_err().0[0].message.clone();
    let source = |line: &str| hint(&format!("{MINIMAL}{line}\n"));
    assert_eq!(
        source("poll-interval = 1"),
        "unknown key; did you mean poll_interval?"
    );
    assert_eq!(
        source("public_url = 1"),
        "unknown key; it belongs in [callback]"
    );
    assert_eq!(
        source("state_dir = 1"),
        "unknown key; it belongs before the first table"
    );
    assert_eq!(source("ulr = 1"), "unknown key; did you mean url?");
    assert_eq!(source("hsots = 1"), "unknown key; did you mean hosts?");
    assert_eq!(source("cookie = 1"), "unknown key");
    assert_eq!(source("[limit]"), "unknown table; did you mean limits?");
    assert_eq!(
        hint(&format!("lease = \"1d\"\n{MINIMAL}")),
        "unknown key; it belongs in [[source]]"
    );
}

#[test]
fn values_of_another_type_are_faults() {
    for line in [
        "notifications = \"yes\"",
        "allow_type_mismatch = 1",
        "patches = 1",
        "versions = true",
        "undated_per_day = \"1\"",
        "delete = 1",
        "poll_interval = 900",
        "max_delete = 0.1",
        "sets = \"http://a.example/1.xml\"",
        "hosts = [\"a.example\", 1]",
        "hub = false",
        "trust_hub = \"yes\"",
        "callback_protocols = \"http://a.example/callback\"",
        "baseline = []",
        "lease = 2026-01-01",
        "include = {}",
    ] {
        let key = line.split(' ').next().unwrap();
        check_after_minimal(
            &format!("{line}\n"),
            &[&format!("5 source[a].{key} wrong-type")],
        );
    }
    for line in [
        "[[http]]",
        "[http]\ntimeout = 60",
        "[http]\nconnections_per_host = \"8\"",
        "[http]\nallow_private_addresses = \"true\"",
        "[limits]\ndocument = 1000",
        "[limits]\nheld_notifications = 1.5",
        "[callback]\nlisten = 8461",
    ] {
        let found = faults(&format!("{MINIMAL}{line}\n"));
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert!(found[0].ends_with(" wrong-type"), "{line}: {found:?}");
    }
}

#[test]
fn invalid_values_are_faults() {
    for (line, code) in [
        ("poll_interval = \"0s\"", "out-of-range"),
        ("poll_interval = \"15 minutes\"", "bad-duration"),
        ("reorder_window = \"-1s\"", "bad-duration"),
        ("lease = \"1500ms\"", "out-of-range"),
        ("lease = \"9999d\"", "out-of-range"),
        ("max_delete = \"110%\"", "bad-percentage"),
        ("max_delete = \"10\"", "bad-percentage"),
        ("baseline = \"Auto\"", "bad-choice"),
        ("signatures = \"none\"", "bad-choice"),
        ("hub = \"hub.example\"", "bad-url"),
        ("sets = [\"/sets/1.xml\"]", "bad-url"),
        ("hosts = [\"http://a.example\"]", "bad-host"),
        ("include = [\"{a\"]", "bad-glob"),
        ("exclude = [\"\"]", "bad-glob"),
        ("types = [\"pdf\"]", "bad-media-type"),
        ("collections = [\"c\"]", "bad-url"),
        ("profiles = [\"\"]", "bad-url"),
        ("metadata = \"all\"", "bad-choice"),
        ("representations = [\"pdf\"]", "bad-media-type"),
    ] {
        let key = line.split(' ').next().unwrap();
        check_after_minimal(
            &format!("{line}\n"),
            &[&format!("5 source[a].{key} {code}")],
        );
    }
    for (text, expected) in [
        (
            "[http]\nconnections_per_host = 0",
            "6 http.connections_per_host out-of-range",
        ),
        (
            "[http]\nconnections_per_host = 257",
            "6 http.connections_per_host out-of-range",
        ),
        (
            "[http]\nconnections_per_host = -1",
            "6 http.connections_per_host out-of-range",
        ),
        (
            "[http]\nstreams_per_host = 0",
            "6 http.streams_per_host out-of-range",
        ),
        (
            "[http]\nstreams_per_host = 1001",
            "6 http.streams_per_host out-of-range",
        ),
        ("[http]\ntimeout = \"0s\"", "6 http.timeout out-of-range"),
        (
            "[http]\nuser_agent = \"\"",
            "6 http.user_agent bad-user-agent",
        ),
        (
            "[limits]\ndocument = \"64 mega\"",
            "6 limits.document bad-size",
        ),
        (
            "[limits]\ndocument = \"0\"",
            "6 limits.document out-of-range",
        ),
        (
            "[limits]\nresource = \"99999999TiB\"",
            "6 limits.resource out-of-range",
        ),
        (
            "[limits]\nheld_notifications = 99999999999999999999",
            "6 limits.held_notifications out-of-range",
        ),
        (
            "[callback]\npublic_url = \"ftp://d.example/\"",
            "6 callback.public_url bad-url",
        ),
        (
            "[callback]\npublic_url = \"http://d.example/#a\"",
            "6 callback.public_url bad-url",
        ),
        (
            "[status]\nlisten = \"127.0.0.1\"",
            "6 status.listen bad-address",
        ),
        ("[limits]\n[status]\n[limits]", "7 limits duplicate-key"),
    ] {
        check_after_minimal(&format!("{text}\n"), &[expected]);
    }
}

#[test]
fn listeners_on_the_same_address_are_faults() {
    let clash = |callback: &str, status: &str, expected: &[&str]| {
        check_after_minimal(
            &format!("[callback]\nlisten = \"{callback}\"\n[status]\nlisten = \"{status}\"\n"),
            expected,
        );
    };
    clash(
        "127.0.0.1:1",
        "127.0.0.1:1",
        &["8 status.listen same-listener"],
    );
    clash(
        "0.0.0.0:1",
        "127.0.0.1:1",
        &["8 status.listen same-listener"],
    );
    clash("127.0.0.1:1", "127.0.0.2:1", &[]);
    clash("127.0.0.1:0", "127.0.0.1:0", &[]);
    check_after_minimal(
        "[callback]\nlisten = \"127.0.0.1:8462\"\n",
        &["6 callback.listen same-listener"],
    );
}

#[test]
fn sources_that_share_names_or_folders_are_faults() {
    let with = |name: &str, mirror: &str| {
        format!(
            "[[source]]\nname = \"{name}\"\nurl = \"http://b.example/\"\nmirror = \"{mirror}\"\n"
        )
    };
    for (name, mirror, expected) in [
        ("b", "/srv/b", None),
        ("b", "/srv/ab", None),
        ("a", "/srv/b", Some("6 source[a].name duplicate-name")),
        ("b", "/srv/a", Some("8 source[b].mirror duplicate-mirror")),
        ("b", "/srv/a/", Some("8 source[b].mirror duplicate-mirror")),
        (
            "b",
            "/srv/x/../a",
            Some("8 source[b].mirror duplicate-mirror"),
        ),
        ("b", "/srv/a/b", Some("8 source[b].mirror nested-mirror")),
        ("b", "/srv", Some("8 source[b].mirror nested-mirror")),
        (
            "b",
            "/var/lib/resyncd/b",
            Some("8 source[b].mirror mirror-in-state"),
        ),
        (
            "b",
            "/var/lib/resyncd",
            Some("8 source[b].mirror mirror-in-state"),
        ),
        ("b", "/var", Some("8 source[b].mirror mirror-in-state")),
    ] {
        check_after_minimal(&with(name, mirror), expected.as_slice());
    }
}

#[test]
fn folders_of_versions_are_apart_from_mirrors_and_state() {
    for (versions, expected) in [
        ("", None),
        ("/srv/v", None),
        ("/srv/b", Some("9 source[b].versions duplicate-mirror")),
        ("/srv/b/v", Some("9 source[b].versions nested-mirror")),
        ("/srv/a", Some("9 source[b].versions duplicate-mirror")),
        (
            "/var/lib/resyncd/v",
            Some("9 source[b].versions mirror-in-state"),
        ),
    ] {
        let text = format!(
            "[[source]]\nname = \"b\"\nurl = \"http://b.example/\"\nmirror = \"/srv/b\"\nversions = \"{versions}\"\n"
        );
        check_after_minimal(&text, expected.as_slice());
    }
}

#[test]
fn mirrors_that_overlap_through_symlinks_are_faults() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", folder.path().join("link")).unwrap();
    let path = folder.path().join("config.toml");
    let text = "[[source]]\nname = \"a\"\nurl = \"http://a.example/\"\nmirror = \"real/a\"\n\
                [[source]]\nname = \"b\"\nurl = \"http://b.example/\"\nmirror = \"link/a\"\n";
    std::fs::write(&path, text).unwrap();
    let faults = Config::load(&path).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults.0[0].code, "duplicate-mirror");
    assert_eq!(faults.0[0].line, Some(8));
}

#[test]
fn a_file_that_cannot_be_read_is_one_fault() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let faults = Config::load(&path).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert_eq!((faults.0[0].line, faults.0[0].code), (None, "unreadable"));
    for part in ["--config", "RESYNCD_CONFIG"] {
        assert!(faults.0[0].message.contains(part), "{faults}");
    }

    std::fs::write(&path, b"a = 1\nb = \"\xff\"\n").unwrap();
    let faults = Config::load(&path).unwrap_err();
    assert_eq!(
        (faults.0[0].line, faults.0[0].code),
        (Some(2), "unreadable")
    );
}

#[test]
fn a_fault_is_one_line_with_file_line_key_message_and_code() {
    let text = format!("{MINIMAL}lease = \"ten\"\n\"a\\n\\u001b\" = 1\n");
    let faults = parse(&text).unwrap_err().to_string();
    assert_eq!(
        faults,
        "/etc/resyncd/config.toml:5: source[a].lease: \"ten\" is not a duration: an integer and ms, s, m, h or d, \
         such as \"15m\" [bad-duration]\n\
         /etc/resyncd/config.toml:6: source[a].a\\n\\u{1b}: unknown key [unknown-key]"
    );
    let faults = parse("").unwrap_err().to_string();
    assert_eq!(
        faults,
        "/etc/resyncd/config.toml: source: no [[source]] is configured [no-source]"
    );
}

#[test]
fn messages_end_with_their_code_on_one_line() {
    let mut codes = BTreeSet::new();
    for text in [
        "a =\n[[source]\nx = [1\n",
        "[[source]]\nname = \"\\n\"\ninclude = [\"[\\n\"]\n",
    ] {
        let faults = parse(text).unwrap_err();
        assert_eq!(faults.to_string().lines().count(), faults.len());
        for fault in &faults {
            assert!(fault.to_string().ends_with(&format!(" [{}]", fault.code)));
            codes.insert(fault.code);
        }
    }
    assert!(codes.contains("syntax") && codes.contains("bad-glob"));
}
