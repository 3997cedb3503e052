//! `[source.auth]`, proxies and authorities: what is read from where, and the faults.

use std::path::Path;

use resyncd::config::{Config, ConfigFaults, Environment, Source};
use resyncd_core::Redaction;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use url::Url;

use crate::support::client_tls::{CLIENT_CERTIFICATE, NAMING_AUTHORITY};

const VARIABLES: &[(&str, &str)] = &[
    ("TOKEN", "t0ken"),
    ("NAME", "me"),
    ("PASSWORD", "pass:word"),
    ("SPACED", "two words"),
];

/// A folder with files of secrets and credentials.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("credentials")).unwrap();
    write("credentials/loaded", "l0aded\n");
    write("token", "fr0m-a-file\r\n");
    write("two-lines", "a\nb\n");
    write("empty", "");
    write("long", &"x".repeat(20_000));
    write("headers", "X-Id: 1\nX-Secret: s3cret\n");
    write("client.pem", CLIENT_CERTIFICATE);
    let (chain, key) =
        CLIENT_CERTIFICATE.split_at(CLIENT_CERTIFICATE.find("-----BEGIN P").unwrap());
    write("chain.pem", chain);
    write("key.pem", key);
    write("ca.pem", NAMING_AUTHORITY);
    write("encrypted.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n");
    folder
}

/// Parses a Source, whose URL is on line 3, with a `[source.auth]` that begins on line 6.
fn parse(folder: &TempDir, url: &str, source: &str, auth: &str) -> Result<Config, ConfigFaults> {
    let text = format!(
        "[[source]]\nname = \"a\"\nurl = \"{url}\"\nmirror = \"/srv/a\"\n{source}\n[source.auth]\n{auth}\n"
    );
    let loaded = folder.path().join("credentials");
    let mut variables = VARIABLES.to_vec();
    variables.push(("CREDENTIALS_DIRECTORY", loaded.to_str().unwrap()));
    let environment = Environment::of(&variables);
    Config::parse_in(&text, &folder.path().join("config.toml"), &environment)
}

fn headers(source: &Source, url: &str) -> Vec<String> {
    let headers = source.credentials.headers_for(&Url::parse(url).unwrap());
    headers
        .iter()
        .map(|header| format!("{}: {}", header.name, header.value))
        .collect()
}

#[test]
fn secrets_are_read_from_files_credentials_and_variables() {
    let folder = folder();
    for (auth, expected) in [
        ("", &[][..]),
        ("bearer = \"${TOKEN}\"", &["authorization: Bearer t0ken"]),
        (
            "bearer = \"a-${TOKEN}-${NAME}\"",
            &["authorization: Bearer a-t0ken-me"],
        ),
        (
            "bearer_file = \"token\"",
            &["authorization: Bearer fr0m-a-file"],
        ),
        (
            "bearer_credential = \"loaded\"",
            &["authorization: Bearer l0aded"],
        ),
        // "me:pass:word"
        (
            "basic = \"${NAME}:${PASSWORD}\"",
            &["authorization: Basic bWU6cGFzczp3b3Jk"],
        ),
        ("header = \"X-Api-Key: ${TOKEN}\"", &["x-api-key: t0ken"]),
        (
            "header_file = \"headers\"",
            &["x-id: 1", "x-secret: s3cret"],
        ),
        (
            "header = \"Authorization: Token ${TOKEN}\"",
            &["authorization: Token t0ken"],
        ),
        (
            "bearer = \"${TOKEN}\"\nheader_file = \"headers\"",
            &["authorization: Bearer t0ken", "x-id: 1", "x-secret: s3cret"],
        ),
    ] {
        let config = parse(&folder, "https://a.org/", "", auth).unwrap();
        let source = &config.sources[0];
        assert_eq!(headers(source, "https://a.org/x"), expected, "{auth}");
        let shown = format!("{config:?}");
        for (_, secret) in
            VARIABLES
                .iter()
                .chain(&[("", "l0aded"), ("", "fr0m-a-file"), ("", "s3cret")])
        {
            let is_hidden = *secret == "me" || !shown.contains(secret);
            assert!(is_hidden, "{secret}: {shown}");
        }
        for header in expected {
            let secret = header.rsplit(' ').next().unwrap();
            let redacted = config.redaction().redact(&format!("you sent {secret}, no"));
            let is_short = secret.len() < 4;
            assert_eq!(
                redacted == "you sent [redacted], no",
                !is_short,
                "{redacted}"
            );
        }
    }
    for auth in [
        "certificate_file = \"client.pem\"",
        "certificate_file = \"chain.pem\"\nkey_file = \"key.pem\"",
    ] {
        let config = parse(&folder, "https://a.org/", "", auth).unwrap();
        let certificate = config.sources[0].credentials.certificate().unwrap();
        let (chain, key) = (certificate.chain(), certificate.key().secret_der());
        let expected = CLIENT_CERTIFICATE.as_bytes();
        let expected_chain: Vec<_> = CertificateDer::pem_slice_iter(expected).flatten().collect();
        let expected_key = PrivateKeyDer::from_pem_slice(expected).unwrap();
        assert_eq!(chain, expected_chain, "{auth}");
        assert_eq!(key, expected_key.secret_der(), "{auth}");
        assert!(!format!("{certificate:?}").contains("BEGIN"));
    }
}

#[test]
fn origins_are_those_that_the_configuration_names() {
    let folder = folder();
    let more = "sets = [\"https://b.org/caps\", \"http://a.org/caps\"]\nhub = \"https://hub.org/\"\nhosts = [\"c.org\"]";
    let auth = "bearer = \"${TOKEN}\"\norigins = [\"https://d.org:8443\"]";
    let config = parse(&folder, "https://a.org/x", more, auth).unwrap();
    for (url, is_own) in [
        ("https://a.org/", true),
        ("https://a.org:443/y?z", true),
        ("https://b.org/", true),
        ("https://d.org:8443/", true),
        ("https://d.org/", false),
        ("https://a.org:8443/", false),
        ("https://www.a.org/", false),
        ("https://a.org.evil.org/", false),
        // Not encrypted, though a set is.
        ("http://a.org/", false),
        ("http://a.org:443/", false),
        ("https://hub.org/", false),
        ("https://c.org/", false),
    ] {
        assert_eq!(
            !headers(&config.sources[0], url).is_empty(),
            is_own,
            "{url}"
        );
    }
    let config = parse(&folder, "http://a.org/", "", "bearer = \"${TOKEN}\"").unwrap();
    assert!(headers(&config.sources[0], "https://a.org/").is_empty());
    assert!(!headers(&config.sources[0], "http://a.org/").is_empty());
    assert_eq!(Redaction::default().redact("t0ken"), "t0ken");
}

#[test]
fn faults_of_auth_have_line_and_key_and_no_secret() {
    let folder = folder();
    let https = "https://a.org/";
    for (url, auth, expected) in [
        (https, "bearer = \"s3cret\"", &["7 bearer plain-secret"][..]),
        (
            https,
            "bearer = \"s3cret${TOKEN\"",
            &["7 bearer plain-secret"],
        ),
        (https, "bearer = \"${}\"", &["7 bearer plain-secret"]),
        (https, "bearer = \"${NOT_SET}\"", &["7 bearer no-secret"]),
        (https, "bearer = \"${SPACED}\"", &["7 bearer bad-secret"]),
        (https, "bearer = 1", &["7 bearer wrong-type"]),
        (
            https,
            "bearer_file = \"absent\"",
            &["7 bearer_file no-secret"],
        ),
        (https, "bearer_file = \".\"", &["7 bearer_file no-secret"]),
        (
            https,
            "bearer_file = \"two-lines\"",
            &["7 bearer_file bad-secret"],
        ),
        (
            https,
            "bearer_file = \"empty\"",
            &["7 bearer_file bad-secret"],
        ),
        (
            https,
            "bearer_file = \"long\"",
            &["7 bearer_file no-secret"],
        ),
        (
            https,
            "bearer_credential = \"other\"",
            &["7 bearer_credential no-secret"],
        ),
        (
            https,
            "bearer_credential = \"../token\"",
            &["7 bearer_credential bad-auth"],
        ),
        (
            https,
            "bearer = \"${TOKEN}\"\nbearer_file = \"token\"",
            &["8 bearer_file bad-auth"],
        ),
        (
            https,
            "bearer = \"${TOKEN}\"\nbasic = \"a:${PASSWORD}\"",
            &["8 basic bad-auth"],
        ),
        (
            https,
            "bearer = \"${TOKEN}\"\nheader = \"Authorization: ${TOKEN}\"",
            &["8 header bad-auth"],
        ),
        (
            "https://me:s3cret@a.org/",
            "bearer = \"${TOKEN}\"",
            &["7 bearer bad-auth"],
        ),
        ("https://me:s3cret@a.org/", "header = \"X: ${TOKEN}\"", &[]),
        (https, "basic = \"${TOKEN}\"", &["7 basic bad-secret"]),
        (https, "header = \"${TOKEN}\"", &["7 header bad-secret"]),
        (
            https,
            "header = \"Host: ${TOKEN}\"",
            &["7 header bad-secret"],
        ),
        (
            https,
            "header = \"If-None-Match: ${TOKEN}\"",
            &["7 header bad-secret"],
        ),
        (
            https,
            "header = \"a b: ${TOKEN}\"",
            &["7 header bad-secret"],
        ),
        (
            https,
            "certificate_file = \"chain.pem\"",
            &["7 certificate_file bad-secret"],
        ),
        (
            https,
            "certificate_file = \"key.pem\"",
            &["7 certificate_file bad-secret"],
        ),
        (https, "key_file = \"key.pem\"", &["7 key_file bad-auth"]),
        (
            https,
            "certificate_file = \"ca.pem\"\nkey_file = \"key.pem\"",
            &["7 certificate_file bad-secret"],
        ),
        (
            https,
            "certificate_file = \"chain.pem\"\nkey_file = \"encrypted.pem\"",
            &["7 certificate_file bad-secret"],
        ),
        (
            "http://a.org/",
            "certificate_file = \"client.pem\"",
            &["7 certificate_file bad-auth"],
        ),
        (
            https,
            "origins = [\"http://b.org\"]",
            &["7 origins bad-url"],
        ),
        (
            https,
            "origins = [\"https://b.org/x\"]",
            &["7 origins bad-url"],
        ),
        (
            https,
            "origins = [\"https://me:s3cret@b.org\"]",
            &["7 origins bad-url"],
        ),
        (https, "origins = [\"b.org\"]", &["7 origins bad-url"]),
        (https, "token = \"s3cret\"", &["7 token unknown-key"]),
    ] {
        let faults = parse(&folder, url, "", auth).err().unwrap_or_default();
        let shown: Vec<String> = faults
            .iter()
            .map(|fault| {
                let key = fault.key.strip_prefix("source[a].auth.");
                format!("{} {} {}", fault.line.unwrap(), key.unwrap(), fault.code)
            })
            .collect();
        assert_eq!(shown, expected, "{auth}: {faults}");
        let text = format!("{faults} {faults:?}");
        for secret in ["s3cret", "t0ken", "fr0m-a-file", "MIGHAgEAMBMG"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    let text = "[[source]]\nname = \"a\"\nurl = \"https://a.org/\"\nmirror = \"/a\"\nauth = 1\nbearer = \"x\"\n";
    let faults = Config::parse(text, Path::new("/c.toml")).unwrap_err();
    let shown: Vec<_> = faults
        .iter()
        .map(|fault| (fault.key.as_str(), fault.code))
        .collect();
    assert_eq!(
        shown,
        [
            ("source[a].auth", "wrong-type"),
            ("source[a].bearer", "unknown-key")
        ]
    );
    assert!(
        faults.to_string().contains("it belongs in [source.auth]"),
        "{faults}"
    );
}

#[test]
fn faults_of_proxies_and_authorities_are_named() {
    let folder = folder();
    for (http, environment, expected) in [
        (
            "proxy = \"socks5://p.org\"",
            None,
            &["2 http.proxy bad-url"][..],
        ),
        ("proxy = \"https://p.org\"", None, &["2 http.proxy bad-url"]),
        (
            "proxy = \"\"",
            Some("https://p.org"),
            &["- http.proxy bad-url"],
        ),
        ("", Some("p.org:3128"), &[]),
        ("proxy = \"off\"", Some("https://p.org"), &[]),
        ("proxy = \"p.org:3128\"", Some("https://p.org"), &[]),
        (
            "no_proxy = [\"10.0.0.0/33\"]",
            None,
            &["2 http.no_proxy bad-host"],
        ),
        ("ca_file = \"absent\"", None, &["2 http.ca_file unreadable"]),
        (
            "ca_file = \"token\"",
            None,
            &["2 http.ca_file bad-certificate"],
        ),
        ("ca_file = \"ca.pem\"", None, &[]),
    ] {
        let text = format!(
            "[http]\n{http}\n[[source]]\nname = \"a\"\nurl = \"https://a.org/\"\nmirror = \"/a\"\n"
        );
        let variables: Vec<_> = environment
            .map(|value| ("HTTPS_PROXY", value))
            .into_iter()
            .collect();
        let environment = Environment::of(&variables);
        let parsed = Config::parse_in(&text, &folder.path().join("c.toml"), &environment);
        let faults = parsed.err().unwrap_or_default();
        let shown: Vec<String> = faults
            .iter()
            .map(|fault| {
                let line = fault.line.map_or("-".to_owned(), |line| line.to_string());
                format!("{line} {} {}", fault.key, fault.code)
            })
            .collect();
        assert_eq!(shown, expected, "{http}: {faults}");
    }
}
