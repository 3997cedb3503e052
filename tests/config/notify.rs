//! `[[notify]]`.

use std::path::Path;
use std::time::Duration;

use resyncd::config::{Config, Environment, NotifyAction, NotifyFormat};

use super::{EXAMPLE, MINIMAL, parse};

/// 32 bytes.
const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
const COMMAND: &str = "command = [\"/bin/true\"]";

#[test]
fn ways_of_being_told_are_read_with_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(
        folder.path().join("smtp"),
        "smtps://me:pa55word@m.example\n",
    )
    .unwrap();
    let text = format!(
        "[[notify]]\nname = \"a\"\ncommand = [\"./tell\", \"-\"]\non = [\"stale\"]\nafter = \"0\"\nrepeat = \"1d\"\n\
         [[notify]]\nname = \"b\"\nurl = \"https://b.example/plain\"\nsecret = \"${{SECRET}}\"\n\
         [[notify]]\nname = \"c\"\nurl = \"https://c.example/${{PATH_OF_C}}\"\nformat = \"slack\"\n\
         [[notify]]\nname = \"d\"\nmail = \"Me <me@d.example>, you@d.example\"\nsmtp_file = \"smtp\"\n\
         [[notify]]\nname = \"e\"\nping = \"https://e.example/ping\"\n{MINIMAL}"
    );
    let environment = Environment::of(&[("SECRET", SECRET), ("PATH_OF_C", "t0ken-of-c")]);
    let config = Config::parse_in(&text, &path, &environment).unwrap();
    let [a, b, c, d, e] = config.notify.as_slice() else {
        panic!("{config:?}");
    };
    assert_eq!(
        (a.on.as_slice(), a.after),
        (&["stale".to_owned()][..], Duration::ZERO)
    );
    assert_eq!(a.repeat, Some(Duration::from_secs(86_400)));
    assert!(a.tells("stale") && !a.tells("held-deletions") && !a.tells_ends());
    let NotifyAction::Command { program, arguments } = &a.action else {
        panic!("{a:?}");
    };
    assert_eq!(program, &folder.path().join("tell"));
    assert_eq!(arguments, &["-"]);
    // What is omitted has its default.
    assert_eq!((b.after, b.repeat), (Duration::from_secs(300), None));
    assert!(b.tells("held-deletions") && b.tells("failing") && b.tells_ends());
    let NotifyAction::Request {
        url,
        format,
        secret,
    } = &b.action
    else {
        panic!("{b:?}");
    };
    assert_eq!(url.expose().as_str(), "https://b.example/plain");
    assert_eq!((*format, secret.is_some()), (NotifyFormat::Json, true));
    let NotifyAction::Request {
        url,
        format,
        secret,
    } = &c.action
    else {
        panic!("{c:?}");
    };
    assert_eq!(url.expose().as_str(), "https://c.example/t0ken-of-c");
    assert_eq!((*format, secret.is_none()), (NotifyFormat::Slack, true));
    let NotifyAction::Mail { to, from, server } = &d.action else {
        panic!("{d:?}");
    };
    assert_eq!((to.iter().count(), from.is_none()), (2, true));
    assert!(server.is_some());
    assert!(matches!(e.action, NotifyAction::Ping { .. }));

    let echo = config
        .redaction()
        .redact("echo https://c.example/t0ken-of-c");
    let shown = format!("{config:?} {echo}");
    for secret in [&SECRET[6..], "t0ken-of-c", "pa55word"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    std::fs::write(&path, text.replace("${PATH_OF_C}", "plain-t0ken")).unwrap();
    let effective = Config::effective(&path).unwrap();
    assert_eq!(effective.matches("[[notify]]").count(), 5);
    assert!(!effective.contains("plain-t0ken"), "{effective}");
}

#[test]
fn faults_are_reported_with_their_keys() {
    for (notify, key, code) in [
        (COMMAND, "name", "missing-key"),
        (
            "name = \"A\"\ncommand = [\"/bin/true\"]",
            "name",
            "bad-name",
        ),
        ("name = \"a\"", "name", "bad-notify"),
        (
            "name = \"a\"\nping = \"http://p.example/\"\nmail = \"me@d.example\"",
            "name",
            "bad-notify",
        ),
        ("name = \"a\"\ncommand = [\"true\"]", "command", "bad-hook"),
        ("name = \"a\"\nurl = \"ftp://p.example/\"", "url", "bad-url"),
        (
            "name = \"a\"\nurl_file = \"/nowhere\"",
            "url_file",
            "no-secret",
        ),
        (
            "name = \"a\"\nurl = \"http://p.example/\"\nformat = \"xml\"",
            "format",
            "bad-choice",
        ),
        (
            "name = \"a\"\nurl = \"http://p.example/\"\nsecret = \"plain\"",
            "secret",
            "plain-secret",
        ),
        ("name = \"a\"\nmail = \"nobody\"", "mail", "bad-mail"),
        ("name = \"a\"\nmail = \"\"", "mail", "bad-mail"),
        (
            "name = \"a\"\nmail = \"me@d.example\"\nfrom = \"@\"",
            "from",
            "bad-mail",
        ),
        (
            "name = \"a\"\nmail = \"me@d.example\"\nsmtp = \"m.example\"",
            "smtp",
            "bad-url",
        ),
        (
            "name = \"a\"\nmail = \"me@d.example\"\nsmtp = \"https://m.example\"",
            "smtp",
            "bad-url",
        ),
        (
            "name = \"a\"\non = [\"all\"]\ncommand = [\"/bin/true\"]",
            "on",
            "bad-choice",
        ),
        (
            "name = \"a\"\nafter = \"soon\"\ncommand = [\"/bin/true\"]",
            "after",
            "bad-duration",
        ),
    ] {
        let faults = parse(&format!("[[notify]]\n{notify}\n{MINIMAL}")).unwrap_err();
        let found: Vec<_> = faults.iter().map(|it| (it.key.as_str(), it.code)).collect();
        assert_eq!(
            found,
            [(format!("notify[#1].{key}").as_str(), code)],
            "{notify}"
        );
    }
    // Of two with the same name, the second one; a secret where nothing is signed.
    let twice = format!("[[notify]]\nname = \"a\"\n{COMMAND}\n").repeat(2);
    let faults = parse(&format!("{twice}{MINIMAL}")).unwrap_err();
    assert_eq!(faults[0].key, "notify[#2].name");
    assert_eq!(faults[0].code, "duplicate-name");
    let environment = Environment::of(&[("SECRET", SECRET)]);
    let text = format!("[[notify]]\nname = \"a\"\n{COMMAND}\nsecret = \"${{SECRET}}\"\n{MINIMAL}");
    let faults = Config::parse_in(&text, Path::new("/c.toml"), &environment).unwrap_err();
    assert_eq!(
        (faults[0].key.as_str(), faults[0].code),
        ("notify[#1].secret", "bad-notify")
    );
}

#[test]
fn tables_of_the_example_are_accepted_one_way_at_a_time() {
    let begin = EXAMPLE.find("# [[notify]]").unwrap();
    let end = EXAMPLE[begin..].find("\n\n\n").unwrap();
    // Comments begin with a capital letter; keys are commented out.
    let keys = EXAMPLE[begin..begin + end].lines();
    let keys = keys.filter_map(|line| line.strip_prefix("# "));
    let keys: Vec<&str> = keys.filter(|line| line.contains(" = ")).collect();
    assert!(keys.len() > 15, "{keys:?}");
    for way in ["command", "url", "mail", "ping"] {
        let others = ["command", "url", "mail", "ping"];
        let of = |line: &&&str| {
            let (key, _) = line.split_once(" = ").unwrap();
            key == way || !others.contains(&key)
        };
        let lines: Vec<&str> = keys.iter().filter(of).copied().collect();
        let text = format!("[[notify]]\n{}\n{MINIMAL}", lines.join("\n"));
        let config = parse(&text).unwrap();
        assert_eq!(config.notify[0].after, Duration::from_secs(300), "{way}");
    }
}
