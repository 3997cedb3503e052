//! The configuration file: example, defaults and faults.

mod auth;
mod faults;
mod hooks;
mod joined;
mod notify;
mod xmpp;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use resyncd::config::{
    Baseline, Config, ConfigFaults, Environment, Filter, PublishHub, Signatures, Source,
};
use resyncd_core::{LinkRules, MediaRange, ResourceUri, Selection};
use url::Url;

const EXAMPLE: &str = include_str!("../config.example.toml");

/// The minimal configuration file.
const MINIMAL: &str =
    "[[source]]\nname = \"a\"\nurl = \"http://a.example/\"\nmirror = \"/srv/a\"\n";

fn parse(text: &str) -> Result<Config, ConfigFaults> {
    Config::parse(text, Path::new("/etc/resyncd/config.toml"))
}

/// A configuration as text for comparison, without its filters: their `Debug` does not show the patterns.
fn as_text(config: &Config) -> String {
    let mut config = config.clone();
    for source in &mut config.sources {
        source.filter = Filter::everything();
    }
    format!("{config:#?}")
}

fn example_url() -> Url {
    Url::parse("https://example.com/").expect("a constant URL can be parsed")
}

#[test]
fn zero_means_never() {
    for never in ["0", "0s"] {
        let feed = format!("[feed]\nkeep = \"{never}\"\n{MINIMAL}stale_after = \"{never}\"\n");
        let config = parse(&feed).unwrap();
        assert_eq!(config.feed.keep, None, "{never}");
        assert_eq!(config.sources[0].stale_after, None, "{never}");
    }
}

#[test]
fn example_shows_the_defaults() {
    let example = parse(EXAMPLE).unwrap();
    // These keys have no default; all other values must be the defaults.
    let source = Source::new("example", example_url(), "/srv/mirror/example");
    let mut expected = Config::new("/var/lib/resyncd", vec![source]);
    let public_url = "https://destination.example.net/resyncd/";
    expected.callback.public_url = Some(Url::parse(public_url).unwrap());
    let published = "https://mirror.example.net/";
    expected.publish.public_url = Some(Url::parse(published).unwrap());
    assert_eq!(as_text(&example), as_text(&expected));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(example.http.user_agent, format!("resyncd/{version}"));
    let uri = ResourceUri::parse("http://other.example/a").unwrap();
    assert!(example.sources[0].filter.wants(&uri));
}

/// The package installs it as `/etc/resyncd/config.toml`.
#[test]
fn configuration_of_the_package_lacks_nothing_but_a_source() {
    let installed = include_str!("../packaging/debian/config.toml");
    let faults = parse(installed).unwrap_err();
    let codes: Vec<_> = faults.iter().map(|fault| fault.code).collect();
    assert_eq!(codes, ["no-source"]);
    // Comments begin with a space after the #.
    let is_key = |line: &&str| line.starts_with('#') && !line[1..].starts_with(' ');
    let keys = installed.lines().filter(is_key).map(|line| &line[1..]);
    let config = parse(&keys.collect::<Vec<_>>().join("\n")).unwrap();
    assert_eq!(*config.sources[0].mirror, *Path::new("/srv/mirror/example"));
    assert_eq!(config.state_dir, Path::new("/var/lib/resyncd"));
    assert!(config.callback.public_url.is_some());
}

#[test]
fn omitted_keys_have_their_defaults() {
    let text = "[[source]]\nname = \"example\"\nurl = \"https://example.com/\"\nmirror = \"/srv/mirror/example\"\n";
    let source = Source::new("example", example_url(), "/srv/mirror/example");
    let expected = Config::new("/var/lib/resyncd", vec![source]);
    assert_eq!(as_text(&parse(text).unwrap()), as_text(&expected));
}

/// Every key, with its value in the example.
const KEYS: [(&str, &str); 108] = [
    ("include", "[]"),
    ("state_dir", "\"/var/lib/resyncd\""),
    ("callback.listen", "\"127.0.0.1:8461\""),
    (
        "callback.public_url",
        "\"https://destination.example.net/resyncd/\"",
    ),
    ("status.listen", "\"127.0.0.1:8462\""),
    ("status.hosts", "[]"),
    ("status.token_file", "\"\""),
    ("http.connections_per_host", "8"),
    ("http.streams_per_host", "90"),
    ("http.timeout", "\"60s\""),
    ("http.user_agent", "\"resyncd/<version>\""),
    ("http.allow_private_addresses", "false"),
    ("http.allow_redirects_to_http", "false"),
    ("http.proxy", "\"\""),
    ("http.no_proxy", "[]"),
    ("http.ca_file", "\"\""),
    ("limits.document", "\"512MiB\""),
    ("limits.notification", "\"8MiB\""),
    ("limits.resource", "\"0\""),
    ("limits.package", "\"0\""),
    ("limits.inbox", "\"256MiB\""),
    ("limits.uri", "\"8KiB\""),
    ("limits.held_notifications", "1024"),
    ("limits.resources", "0"),
    ("limits.sets", "1000"),
    ("limits.third_party_requests", "600"),
    ("feed.keep", "\"90d\""),
    ("log.format", "\"auto\""),
    ("log.level", "\"info\""),
    ("xmpp.jid", "\"\""),
    ("xmpp.password", "\"\""),
    ("xmpp.password_file", "\"\""),
    ("xmpp.password_credential", "\"\""),
    ("xmpp.server", "\"\""),
    ("store.url", "\"\""),
    ("store.listen_url", "\"\""),
    ("store.password", "\"\""),
    ("store.password_file", "\"\""),
    ("store.password_credential", "\"\""),
    ("store.node", "\"\""),
    ("objects.endpoint_url", "\"\""),
    ("objects.region", "\"\""),
    ("objects.access_key_id", "\"\""),
    ("objects.secret_access_key", "\"\""),
    ("objects.secret_access_key_file", "\"\""),
    ("objects.secret_access_key_credential", "\"\""),
    ("objects.service_account_file", "\"\""),
    ("objects.account", "\"\""),
    ("objects.account_key", "\"\""),
    ("objects.account_key_file", "\"\""),
    ("objects.account_key_credential", "\"\""),
    ("publish.listen", "\"127.0.0.1:8463\""),
    ("publish.public_url", "\"https://mirror.example.net/\""),
    ("publish.content", "true"),
    ("publish.hub", "\"built-in\""),
    ("publish.keep_changes", "\"30d\""),
    ("publish.dumps", "\"on-demand\""),
    ("publish.token_file", "\"\""),
    ("source.name", "\"example\""),
    ("source.url", "\"https://example.com/\""),
    ("source.mirror", "\"/srv/mirror/example\""),
    ("source.sets", "[]"),
    ("source.notifications", "true"),
    ("source.poll_interval", "\"15m\""),
    ("source.reorder_window", "\"5s\""),
    ("source.requests_per_second", "0"),
    ("source.bandwidth", "\"0\""),
    ("source.connections_per_host", "0"),
    ("source.robots", "true"),
    ("source.lease", "\"10d\""),
    ("source.baseline", "\"auto\""),
    ("source.hours", "\"\""),
    ("source.allow_type_mismatch", "false"),
    ("source.patches", "true"),
    ("source.versions", "\"\""),
    ("source.undated_per_day", "10000"),
    ("source.stale_after", "\"0\""),
    ("source.audit_every", "\"0\""),
    ("source.publish", "false"),
    ("source.delete", "true"),
    ("source.max_delete", "\"10%\""),
    ("source.signatures", "\"required\""),
    ("source.hub", "\"\""),
    ("source.callback_protocols", "[]"),
    ("source.hosts", "[]"),
    ("source.include", "[]"),
    ("source.exclude", "[]"),
    ("source.types", "[]"),
    ("source.collections", "[]"),
    ("source.profiles", "[]"),
    ("source.metadata", "\"listed\""),
    ("source.representations", "[]"),
    ("source.auth.bearer", "\"\""),
    ("source.auth.bearer_file", "\"\""),
    ("source.auth.bearer_credential", "\"\""),
    ("source.auth.basic", "\"\""),
    ("source.auth.basic_file", "\"\""),
    ("source.auth.basic_credential", "\"\""),
    ("source.auth.header", "\"\""),
    ("source.auth.header_file", "\"\""),
    ("source.auth.header_credential", "\"\""),
    ("source.auth.certificate", "\"\""),
    ("source.auth.certificate_file", "\"\""),
    ("source.auth.certificate_credential", "\"\""),
    ("source.auth.key", "\"\""),
    ("source.auth.key_file", "\"\""),
    ("source.auth.key_credential", "\"\""),
    ("source.auth.origins", "[]"),
];

#[test]
fn example_has_every_key_and_explains_each() {
    let mut table = String::new();
    let mut found = Vec::new();
    let mut explained = false;
    for line in EXAMPLE.lines() {
        if line.starts_with('[') {
            table = format!("{}.", line.trim_matches(['[', ']']));
            explained = false;
        } else if let Some((key, value)) = line.split_once(" = ").filter(|_| !line.starts_with('#'))
        {
            // Keys that follow each other are explained together.
            assert!(explained, "{line} is not explained");
            found.push((format!("{table}{key}"), value.to_owned()));
        } else {
            explained = line.starts_with("# ");
        }
        assert!(line.len() <= 130, "{line} is too long");
    }
    let expected = KEYS.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(found, expected);
}

#[test]
fn every_key_is_read() {
    let text = r#"
state_dir = "state"
[callback]
listen = "0.0.0.0:1"
public_url = "http://d.example/x"
[status]
listen = "[::1]:2"
hosts = ["Status.Example"]
[http]
connections_per_host = 256
streams_per_host = 1000
timeout = "500ms"
user_agent = "me/1 (mailto:me@example.net)"
allow_private_addresses = true
allow_redirects_to_http = true
proxy = "http://p.example:3128"
no_proxy = ["c.example"]
[limits]
document = "1kB"
notification = "2KiB"
uri = "1kB"
resource = "3MB"
package = "5GB"
inbox = "4MiB"
held_notifications = 1_0
third_party_requests = 9
[publish]
listen = "127.0.0.1:3"
public_url = "https://m.example/x"
content = false
hub = "https://hub.example/"
keep_changes = "0"
dumps = "off"
[[publish.folder]]
name = "theses"
path = "theses"
[[source]]
name = "b-1"
url = "HTTP://B.example/a#top"
mirror = "../mirror/b"
sets = ["http://b.example/1.xml", "http://b.example/2.xml"]
notifications = false
poll_interval = "1h"
reorder_window = "0s"
robots = false
lease = "1d"
baseline = "dump"
hours = "22:00-06:00"
allow_type_mismatch = true
patches = false
versions = "kept"
undated_per_day = 7
stale_after = "30d"
audit_every = "60d"
publish = true
trust_hub = true
callback_protocols = ["HTTP://b.example/callback"]
delete = false
max_delete = "100%"
signatures = "off"
hub = "https://hub.example/publish"
hosts = ["B.Example", "c.example:8080"]
include = ["*.pdf"]
exclude = ["*/draft/*"]
types = ["Text/*", "application/pdf; version=1.7"]
collections = ["urn:x:c"]
profiles = ["http://purl.org/dc/terms"]
metadata = "follow"
representations = ["Application/PDF"]
"#;
    let config = parse(text).unwrap();
    assert_eq!(config.state_dir, PathBuf::from("/etc/resyncd/state"));
    assert_eq!(config.callback.listen.to_string(), "0.0.0.0:1");
    let public_url = config.callback.public_url.unwrap();
    assert_eq!(public_url.as_str(), "http://d.example/x/");
    assert_eq!(config.status.listen.to_string(), "[::1]:2");
    assert_eq!(config.status.hosts, ["status.example"]);
    assert_eq!(config.http.connections_per_host, 256);
    assert_eq!(config.http.streams_per_host, 1000);
    assert_eq!(config.http.timeout, Duration::from_millis(500));
    assert_eq!(config.http.user_agent, "me/1 (mailto:me@example.net)");
    assert!(config.http.allow_private_addresses);
    assert!(config.http.allow_redirects_to_http);
    let proxy = |url: &str| config.http.proxies.of(&Url::parse(url).unwrap()).is_some();
    assert!(proxy("https://b.example/") && !proxy("http://c.example/"));
    assert_eq!(config.limits.document, 1000);
    assert_eq!(config.limits.notification, 2048);
    assert_eq!(config.limits.uri, 1000);
    assert_eq!(config.limits.resource, Some(3_000_000));
    assert_eq!(config.limits.package, Some(5_000_000_000));
    assert_eq!(config.limits.inbox, 4_194_304);
    assert_eq!(config.limits.held_notifications, 10);
    assert_eq!(config.limits.third_party_requests, 9);
    let publish = &config.publish;
    assert_eq!(publish.listen.to_string(), "127.0.0.1:3");
    assert_eq!(
        publish.public_url.as_ref().unwrap().as_str(),
        "https://m.example/x/"
    );
    assert!(!publish.content && !publish.dumps);
    assert_eq!(
        publish.hub,
        PublishHub::At(Url::parse("https://hub.example/").unwrap())
    );
    assert_eq!(publish.keep_changes, None);
    let folder = &config.folders[0];
    assert_eq!(
        (&*folder.name, &*folder.path),
        ("theses", Path::new("/etc/resyncd/theses"))
    );
    let source = &config.sources[0];
    assert!(source.publish);
    assert_eq!(source.name, "b-1");
    assert_eq!(source.url.as_str(), "http://b.example/a");
    let mirror = Path::new("/etc/resyncd/../mirror/b");
    assert_eq!(*source.mirror, *mirror);
    assert_eq!(source.sets.len(), 2);
    assert!(!source.notifications);
    assert_eq!(source.poll_interval, Duration::from_secs(3600));
    assert_eq!(source.reorder_window, Duration::ZERO);
    assert!(!source.robots);
    assert_eq!(source.lease, Duration::from_secs(86_400));
    assert_eq!(source.baseline, Baseline::Dump);
    assert!(source.allow_type_mismatch);
    assert!(!source.patches);
    assert!(source.versions.as_ref().unwrap().ends_with("kept"));
    assert_eq!(source.undated_per_day, 7);
    assert_eq!(source.stale_after, Some(Duration::from_secs(30 * 86_400)));
    assert!(source.hours.is_some());
    assert_eq!(source.audit_every, Some(Duration::from_secs(60 * 86_400)));
    assert_eq!(source.trust_hub, Some(true));
    let protocols = &source.callback_protocols;
    assert!(protocols.check("http://b.example/callback").is_ok());
    assert!(protocols.check("http://b.example/").is_err());
    assert!(!source.delete);
    assert!((source.max_delete - 1.0).abs() < f64::EPSILON);
    assert_eq!(source.signatures, Signatures::Off);
    let hub = source.hub.as_ref().unwrap();
    assert_eq!(hub.as_str(), "https://hub.example/publish");
    assert_eq!(source.hosts, ["b.example", "c.example:8080"]);
    let wants = |uri: &str| source.filter.wants(&ResourceUri::parse(uri).unwrap());
    assert!(wants("http://b.example/final/a.pdf"));
    assert!(!wants("http://b.example/draft/a.pdf"));
    assert!(!wants("http://b.example/a.xml"));
    let selection = source.filter.selection();
    assert!(selection.wants_type(Some("text/html")) && !selection.wants_type(Some("image/png")));
    let uris = ["urn:x:c", "http://purl.org/dc/terms"].map(|uri| vec![uri.to_owned()]);
    let types = ["text/*", "application/pdf"].map(|it| MediaRange::parse(it).unwrap());
    let [collections, profiles] = uris;
    assert_eq!(
        *selection,
        Selection::new(types.into(), collections, profiles)
    );
    let pdf = MediaRange::parse("application/pdf").unwrap();
    assert_eq!(*source.filter.linked(), LinkRules::new(true, vec![pdf]));
}

#[test]
fn relative_paths_are_resolved_against_the_folder_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let text = format!(
        "state_dir = \"state\"\n{}",
        MINIMAL.replace("/srv/a", "./m")
    );
    std::fs::write(&path, text).unwrap();
    let config = Config::load(&path).unwrap();
    assert_eq!(config.state_dir, folder.path().join("state"));
    assert_eq!(*config.sources[0].mirror, *folder.path().join("m"));

    let here = std::env::current_dir().unwrap();
    let text = MINIMAL.replace("/srv/a", "m");
    let config = Config::parse(&text, Path::new("config.toml")).unwrap();
    assert_eq!(*config.sources[0].mirror, *here.join("m"));
}

/// The warnings of a file with this text after the minimal configuration, as `LINE KEY CODE`.
fn warnings(text: &str) -> Vec<String> {
    warnings_in(text, &[])
}

/// The same in an environment; what has no line is a doubt of the environment.
fn warnings_in(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    for (name, mode) in [("file", 0o644), ("private", 0o600)] {
        let file = folder.path().join(name);
        std::fs::write(&file, "t0ken").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    }
    Config::load(&path).unwrap();
    let shown = |doubt: &resyncd::config::ConfigFault| {
        let line = doubt
            .line
            .map_or_else(String::new, |line| format!("{line} "));
        format!("{line}{} {}", doubt.key, doubt.code)
    };
    let warnings = Config::warnings_in(&path, &Environment::of(environment));
    warnings.iter().map(shown).collect()
}

#[test]
fn what_can_hardly_be_meant_is_doubted() {
    let source = |url: &str, mirror: &str, more: &str| {
        format!("[[source]]\nname = \"a\"\nurl = \"{url}\"\nmirror = \"{mirror}\"\n{more}")
    };
    let url = "https://library.org/";
    for (text, expected) in [
        (source(url, "mirror", ""), &[][..]),
        (source(url, "/srv/a$1~", ""), &[]),
        (source("https://example.community/", "mirror", ""), &[]),
        (
            source(url, "~/mirror", ""),
            &["4 source[a].mirror not-replaced"],
        ),
        (
            source(url, "/srv/$HOME", ""),
            &["4 source[a].mirror not-replaced"],
        ),
        (
            source(url, "/srv/${A}", ""),
            &["4 source[a].mirror not-replaced"],
        ),
        (
            source(url, "file", ""),
            &["4 source[a].mirror not-a-folder"],
        ),
        (
            source(url, "file/below", ""),
            &["4 source[a].mirror not-a-folder"],
        ),
        (
            source("https://www.example.org/a", "mirror", ""),
            &["3 source[a].url placeholder"],
        ),
        (
            source(url, "mirror", "poll_interval = \"1ms\"\nlease = \"60s\"\n"),
            &[
                "5 source[a].poll_interval very-short",
                "6 source[a].lease very-short",
            ],
        ),
        (
            source(
                "http://a.library.org/",
                "mirror",
                "hub = \"http://hub.library.org/\"\n",
            ),
            &["5 source[a].hub unencrypted"],
        ),
        (
            source(
                "http://127.0.0.1/",
                "mirror",
                "sets = [\"http://localhost/\", \"http://b.library.org/1\"]\n\
                 [source.auth]\nbearer_file = \"private\"\norigins = [\"https://c.library.org\", \"http://d.library.org\"]\n",
            ),
            &[
                "3 source[a].url private-name",
                "5 source[a].sets unencrypted",
                "8 source[a].auth.origins unencrypted",
            ],
        ),
        (
            source(
                url,
                "mirror",
                "sets = [\"http://t0ken@b.library.org/\"]\nhub = \"http://t0ken@hub.library.org/\"\nsignatures = \"off\"\n",
            ),
            &[
                "5 source[a].sets unencrypted",
                "6 source[a].hub unencrypted",
            ],
        ),
        (
            format!(
                "[http]\nproxy = \"http://me:secret@proxy.library.org:3128\"\n{}",
                source(url, "mirror", "")
            ),
            &["2 http.proxy unencrypted"],
        ),
        (
            format!(
                "[http]\nproxy = \"http://me:secret@localhost:3128\"\n{}",
                source(url, "mirror", "")
            ),
            &[],
        ),
        (
            source(
                "https://web.default.svc/",
                "mirror",
                "hub = \"https://hub.lan/\"\n",
            ),
            &[
                "3 source[a].url private-name",
                "5 source[a].hub private-name",
            ],
        ),
        (
            format!(
                "[callback]\npublic_url = \"https://resyncd.internal/\"\n{}",
                source(url, "mirror", "")
            ),
            &["2 callback.public_url private-name"],
        ),
        (
            format!(
                "[callback]\npublic_url = \"https://resyncd.internal/\"\n[http]\nallow_private_addresses = true\n{}",
                source("https://web.default.svc/", "mirror", "")
            ),
            &[],
        ),
        (
            source(
                "http://a.library.org/",
                "mirror",
                "hub = \"http://hub.library.org/\"\nsignatures = \"off\"\n[source.auth]\nbearer_file = \"file\"\n",
            ),
            &[
                "3 source[a].url unencrypted",
                "8 source[a].auth.bearer_file secret-readable",
            ],
        ),
        (
            source(
                "http://127.0.0.1/",
                "mirror",
                "[http]\nallow_private_addresses = true\n[source.auth]\nbearer_file = \"private\"\n",
            ),
            &[],
        ),
        (
            source("http://[fd00::1]/", "mirror", ""),
            &["3 source[a].url private-name"],
        ),
        (source("http://[2001:4860::1]/", "mirror", ""), &[]),
        (
            source("http://me:secret@a.library.org/", "mirror", ""),
            &["3 source[a].url unencrypted"],
        ),
        (
            format!("state_dir = \"file\"\n{}", source(url, "mirror", "")),
            &["1 state_dir not-a-folder"],
        ),
        (
            format!(
                "[callback]\npublic_url = \"https://destination.example.net/\"\n[http]\ntimeout = \"1ms\"\n{}",
                source(url, "mirror", "")
            ),
            &[
                "2 callback.public_url placeholder",
                "4 http.timeout very-short",
            ],
        ),
    ] {
        assert_eq!(warnings(&text), expected, "{text}");
    }
    // What was not edited is doubted, so that nobody takes it for a configuration.
    assert!(warnings(EXAMPLE).len() >= 2);
}

#[test]
fn password_of_the_xmpp_account_that_others_can_read_is_doubted() {
    let account =
        |password: &str| format!("{MINIMAL}[xmpp]\njid = \"me@library.org\"\n{password}\n");
    let without = warnings(MINIMAL);
    let of_password = |text: &str| -> Vec<String> {
        let all = warnings(text).into_iter();
        all.filter(|doubt| !without.contains(doubt)).collect()
    };
    let line = MINIMAL.lines().count() + 3;
    let readable = of_password(&account("password_file = \"file\""));
    assert_eq!(
        readable,
        [format!("{line} xmpp.password_file secret-readable")]
    );
    assert_eq!(
        of_password(&account("password_file = \"private\"")),
        [""; 0]
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, account("password_credential = \"xmpp\"")).unwrap();
    let warnings = Config::warnings_in(&path, &Environment::of(&[]).checking());
    let of_credential = warnings
        .iter()
        .find(|it| it.key == "xmpp.password_credential");
    assert_eq!(of_credential.unwrap().code, "credential-not-checked");
}

#[test]
fn doubts_of_the_environment_name_what_is_ignored() {
    let minimal = "[[source]]\nname = \"a\"\nurl = \"https://library.org/\"\nmirror = \"mirror\"\n";
    let proxy = ("HTTPS_PROXY", "http://proxy.library.org:3128");
    let exceptions = ("no_proxy", "library.org,10.0.0.0/33 *.a.org, 10.*");
    let ignored = ["http.no_proxy no-proxy-ignored"; 2];
    assert_eq!(warnings_in(minimal, &[proxy, exceptions]), ignored);
    // Nothing goes through a proxy.
    assert_eq!(warnings_in(minimal, &[exceptions]), [""; 0]);
    for own in ["off", "http://proxy.library.org:3128"] {
        let text = format!("[http]\nproxy = \"{own}\"\n{minimal}");
        assert_eq!(warnings_in(&text, &[proxy, exceptions]), [""; 0], "{own}");
    }
    let password = ("all_proxy", "http://t0ken@proxy.library.org:3128");
    assert_eq!(
        warnings_in(minimal, &[password]),
        ["http.proxy unencrypted"]
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, minimal).unwrap();
    let found = Config::warnings_in(&path, &Environment::of(&[proxy, exceptions]));
    let messages: Vec<String> = found.iter().map(ToString::to_string).collect();
    let shown = messages.concat();
    assert!(
        shown.contains("\"10.0.0.0/33\"") && shown.contains("\"10.*\""),
        "{shown}"
    );
}

#[test]
fn effective_configuration_is_the_same_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let given = "state_dir = \"state\" # here\n[limits]\nnotification = \"512MiB\"\n[http]\nuser_agent = \"a \\\"b\\\"\"\n\
        [[source]]\nname = \"a\"\nurl = \"https://a.org/\"\nmirror = \"a\"\nhosts = [\n  \"a.org\", # first\n  \"b.org\",\n]\n\
        [source.auth]\nbearer_file = \"token\"\n\
        [[source]]\nname = \"b\"\nurl = \"https://b.org/\"\nmirror = \"b\"\nexclude = [\"*.tmp\"]\n";
    std::fs::write(&path, given).unwrap();
    std::fs::write(folder.path().join("token"), "t0ken\n").unwrap();
    let effective = Config::effective(&path).unwrap();
    let again = Config::parse(&effective, Path::new("/elsewhere/config.toml")).unwrap();
    assert_eq!(as_text(&again), as_text(&Config::load(&path).unwrap()));
    assert!(again.sources[0].credentials.certificate().is_none());
    assert!(!again.sources[0].credentials.is_empty() && again.sources[1].credentials.is_empty());
    // Every key is there, or is named as not set.
    for (key, _) in KEYS {
        let key = key.rsplit('.').next().unwrap();
        let has = |line: &str| {
            line.trim_start_matches("# ")
                .starts_with(&format!("{key} "))
        };
        assert!(effective.lines().any(has), "{key}: {effective}");
    }
    assert!(
        effective.contains("poll_interval = \"15m\"  # default"),
        "{effective}"
    );

    let secret = "[callback]\npublic_url = \"https://me:s3cret@d.org/\"\n\
        [[source]]\nname = \"a\"\nurl = \"https://me:s3cret@a.org/\"\nmirror = \"a\"\n\
        hub = \"https://me:s3cret@hub.org/\"\nsets = [\"https://me:s3cret@a.org/1\"]\n\
        exclude = [\"https://me:s3cret@a.org/2\"]\n\
        [source.auth]\nbasic_file = \"not-there\"\nheader = \"X-Key: s3cret ${NOT_SET}\"\n\
        [http]\nproxy = \"http://me:s3cret@p.org:3128\"\n";
    std::fs::write(&path, secret).unwrap();
    let effective = Config::effective(&path).unwrap();
    assert!(!effective.contains("s3cret"), "{effective}");
    // Secrets are not needed to show it.
    assert!(
        effective.contains("header = \"X-Key:…${NOT_SET}\""),
        "{effective}"
    );
    assert!(effective.contains("@p.org:3128"), "{effective}");
    assert!(effective.contains("@a.org/1"), "{effective}");
}

#[test]
fn schema_describes_every_key() {
    let schema = Config::schema();
    let mut described = 0;
    for (key, value) in KEYS {
        let place = match key.split_once('.') {
            None => format!("/properties/{key}"),
            Some(("source", key)) => {
                let key = key.replace('.', "/properties/");
                format!("/properties/source/items/properties/{key}")
            }
            Some((table, key)) => format!("/properties/{table}/properties/{key}"),
        };
        let property = schema.pointer(&place).unwrap_or_else(|| panic!("{place}"));
        let kind = match value.as_bytes()[0] {
            b'"' => "string",
            b'[' => "array",
            b't' | b'f' => "boolean",
            _ if key == "source.requests_per_second" => "number",
            _ => "integer",
        };
        assert_eq!(property["type"], kind, "{key}");
        described += usize::from(
            property["description"]
                .as_str()
                .is_some_and(|it| it.len() > 20),
        );
    }
    assert_eq!(described, KEYS.len());
    let source = &schema["properties"]["source"]["items"];
    assert_eq!(
        source["required"],
        serde_json::json!(["name", "url", "mirror"])
    );
    assert_eq!(source["additionalProperties"], false);
    assert_eq!(source["properties"]["trust_hub"]["type"], "boolean");
    assert_eq!(source["properties"]["poll_interval"]["default"], "15m");
    assert_eq!(
        source["properties"]["url"]["default"],
        serde_json::Value::Null
    );
}
