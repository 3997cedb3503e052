//! `[xmpp]`.

use resyncd::config::{Config, Environment};

use super::{MINIMAL, parse};

const PASSWORD: &str = "correct horse battery";

#[test]
fn account_is_read_with_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(folder.path().join("password"), format!("{PASSWORD}\n")).unwrap();
    let environment = Environment::of(&[("PASSWORD", PASSWORD)]);
    for password in ["password_file = \"password\"", "password = \"${PASSWORD}\""] {
        let text = format!(
            "{MINIMAL}[xmpp]\njid = \"Me@Example.net\"\n{password}\nserver = \"127.0.0.1:15222\"\n"
        );
        let config = Config::parse_in(&text, &path, &environment).unwrap();
        let account = config.xmpp.as_ref().unwrap();
        assert_eq!(
            (account.user.as_str(), account.domain.as_str()),
            ("me", "example.net")
        );
        assert_eq!(account.password.expose(), PASSWORD);
        assert_eq!(account.server, Some(("127.0.0.1".to_owned(), 15222)));
        let shown = format!("{config:?}") + &config.redaction().redact(&format!("echo {PASSWORD}"));
        assert!(!shown.contains("horse"), "{shown}");
        let without = parse(MINIMAL).unwrap();
        assert_eq!(without.xmpp, None);
        assert_eq!(without.changes_to(&config).restart_required, ["xmpp"]);
    }
}

#[test]
fn faults_of_the_account_are_reported_with_their_keys() {
    for (table, key, code) in [
        ("jid = \"example.net\"", "xmpp.jid", "out-of-range"),
        ("jid = \"me@example.net\"", "xmpp.password_file", "bad-auth"),
        (
            "jid = \"me@example.net\"\npassword = \"plain\"",
            "xmpp.password",
            "plain-secret",
        ),
        ("server = \"host:port\"", "xmpp.server", "out-of-range"),
        ("resource = \"r\"", "xmpp.resource", "unknown-key"),
    ] {
        let faults = parse(&format!("{MINIMAL}[xmpp]\n{table}\n")).unwrap_err();
        let found: Vec<_> = faults
            .iter()
            .map(|fault| (fault.key.as_str(), fault.code))
            .collect();
        assert_eq!(found, [(key, code)], "{table}");
    }
    assert_eq!(parse(&format!("{MINIMAL}[xmpp]\n")).unwrap().xmpp, None);
}
