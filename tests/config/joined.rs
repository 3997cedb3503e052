//! Files that the file includes, and variables of the environment that set keys.

use std::fs;
use std::path::Path;
use std::time::Duration;

use resyncd::config::{Config, ConfigFaults, Environment};

fn source(name: &str) -> String {
    format!(
        "[[source]]\nname = \"{name}\"\nurl = \"http://{name}.example/\"\nmirror = \"{name}\"\n"
    )
}

/// Writes files into a folder; the first one is the configuration.
fn load(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Config, ConfigFaults> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("conf.d")).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let path = folder.path().join(files[0].0);
    let text = fs::read_to_string(&path).unwrap();
    let config = Config::parse_in(&text, &path, &Environment::of(variables));
    // Names of the folder are for nobody.
    config.map_err(|mut faults| {
        for fault in &mut faults.0 {
            if let Ok(inner) = fault.file.strip_prefix(folder.path()) {
                fault.file = inner.to_owned();
            }
        }
        faults
    })
}

/// The file, the line, the key and the code of each fault.
fn places(
    found: Result<Config, ConfigFaults>,
) -> Vec<(String, Option<usize>, String, &'static str)> {
    let faults = found.unwrap_err();
    let place = |it: &resyncd::config::ConfigFault| {
        (
            it.file.display().to_string(),
            it.line,
            it.key.clone(),
            it.code,
        )
    };
    faults.iter().map(place).collect()
}

#[test]
fn included_files_are_read_in_the_order_of_their_names() {
    let (first, b, a) = (source("first"), source("b"), source("a"));
    let main =
        format!("include = [\"conf.d/*.toml\", \"more.toml\"]\n[feed]\nkeep = \"1d\"\n{first}");
    let more = "# no line break at the end\n[[notify]]\nname = \"n\"\nping = \"http://p.example/\"";
    let config = load(
        &[
            ("config.toml", &main),
            ("conf.d/b.toml", &b),
            (
                "conf.d/a.toml",
                &format!("{a}[source.auth]\norigins = []\n"),
            ),
            ("conf.d/c.txt", "not one of them"),
            ("more.toml", more),
        ],
        &[],
    )
    .unwrap();
    let names: Vec<&str> = config.sources.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["first", "a", "b"]);
    // Relative to the folder of the main file.
    let mirrors = config.sources.iter().map(|it| it.mirror.parent().unwrap());
    let mirrors: std::collections::BTreeSet<&Path> = mirrors.collect();
    assert_eq!(mirrors.len(), 1);
    assert_eq!(config.notify.len(), 1);
    assert_eq!(config.feed.keep, Some(Duration::from_secs(86_400)));
    // A folder without such files is none of them.
    let none = format!("include = [\"conf.d/*.toml\"]\n{}", source("first"));
    assert_eq!(
        load(&[("config.toml", &none)], &[]).unwrap().sources.len(),
        1
    );
}

#[test]
fn faults_name_the_file_that_they_are_in() {
    let main = format!("include = [\"conf.d/*.toml\"]\n{}", source("a"));
    let of = |text: &str| {
        places(load(
            &[("config.toml", &main), ("conf.d/x.toml", text)],
            &[],
        ))
    };
    let file = || "conf.d/x.toml".to_owned();
    let twice = source("a");
    assert_eq!(
        of(&format!("\n\n{twice}lease = \"soon\"\n")),
        [
            (
                file(),
                Some(4),
                "source[a].name".to_owned(),
                "duplicate-name"
            ),
            (
                file(),
                Some(6),
                "source[a].mirror".to_owned(),
                "duplicate-mirror"
            ),
            (
                file(),
                Some(7),
                "source[a].lease".to_owned(),
                "bad-duration"
            ),
        ]
    );
    assert_eq!(
        of("\n[feed\n"),
        [(file(), Some(2), "feed".to_owned(), "syntax")]
    );
    assert_eq!(
        of("# a key\nstate_dir = \"x\"\n"),
        [(file(), Some(2), "state_dir".to_owned(), "bad-include")]
    );
    assert_eq!(
        of("include = [\"y.toml\"]\n"),
        [(file(), Some(1), "include".to_owned(), "bad-include")]
    );
    let with_feed = format!("[feed]\nkeep = \"1d\"\n{}", source("b"));
    let twice = format!(
        "include = [\"x.toml\"]\n[feed]\nkeep = \"2d\"\n{}",
        source("a")
    );
    let found = places(load(
        &[("config.toml", &twice), ("x.toml", &with_feed)],
        &[],
    ));
    assert_eq!(found[0].0, "x.toml");
    assert_eq!((found[0].1, found[0].3), (Some(1), "duplicate-key"));
    let missing = format!("include = [\"z.toml\"]\n{}", source("a"));
    let found = places(load(&[("config.toml", &missing)], &[]));
    assert_eq!((found[0].0.as_str(), found[0].3), ("z.toml", "unreadable"));
    let found = places(load(
        &[("config.toml", &format!("include = 7\n{}", source("a")))],
        &[],
    ));
    assert_eq!((found[0].2.as_str(), found[0].3), ("include", "wrong-type"));
}

#[test]
fn variables_take_precedence_over_the_files() {
    let text = format!(
        "state_dir = \"x\"\n[http]\ntimeout = \"7s\"\nconnections_per_host = 3\n{}",
        source("a")
    );
    let variables = [
        ("RESYNCD__STATE_DIR", "/var/elsewhere"),
        ("RESYNCD__HTTP__TIMEOUT", "5s"),
        ("RESYNCD__HTTP__ALLOW_PRIVATE_ADDRESSES", "true"),
        ("RESYNCD__STATUS__HOSTS", "[\"s.example\"]"),
        ("RESYNCD__FEED__KEEP", "0"),
        ("RESYNCD_CONFIG", "/of/no/key"),
        ("RESYNCD__LIMITS__SETS", ""),
    ];
    let config = load(&[("config.toml", &text)], &variables).unwrap();
    assert_eq!(config.state_dir, Path::new("/var/elsewhere"));
    assert_eq!(config.http.timeout, Duration::from_secs(5));
    assert_eq!(
        (
            config.http.connections_per_host,
            config.http.allow_private_addresses
        ),
        (3, true)
    );
    assert_eq!(config.status.hosts, ["s.example"]);
    assert_eq!((config.feed.keep, config.limits.sets), (None, 1000));
    for (name, value, key, code) in [
        (
            "RESYNCD__HTTP__TIMEOUT",
            "soon",
            "http.timeout",
            "bad-duration",
        ),
        ("RESYNCD__HTTP__CONNECTIONS_PER_HOST", "many", "", "syntax"),
        (
            "RESYNCD__HTTP__CONNECTIONS_PER_HOST",
            "0",
            "http.connections_per_host",
            "out-of-range",
        ),
        ("RESYNCD__HTTP__TIME", "5s", "", "unknown-key"),
        (
            "RESYNCD__SOURCE__URL",
            "http://b.example/",
            "",
            "unknown-key",
        ),
        ("RESYNCD__INCLUDE", "[]", "", "unknown-key"),
        (
            "RESYNCD__XMPP__PASSWORD",
            "plain",
            "xmpp.password",
            "plain-secret",
        ),
    ] {
        let found = places(load(&[("config.toml", &text)], &[(name, value)]));
        let (file, line, of, found) = &found[0];
        assert_eq!(
            (file.as_str(), *line, *found),
            (name, None, code),
            "{value}"
        );
        assert!(of == key || code == "syntax", "{of}");
    }
}
