//! Reads the configuration file: TOML → [`Config`], or all its faults.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use resyncd_fetch::Authorities;
use toml::de::DeTable;

use super::table::Table;
use super::{
    CallbackConfig, Config, FeedConfig, HttpSettings, LimitsConfig, LogConfig, ObjectSettings,
    PublishConfig, StatusConfig, StoreSettings,
};
use crate::config::environment::Environment;
use crate::config::fault::{ConfigFaults, Parsed, Reason, line_at};
use crate::config::joined::JoinedText;
use crate::config::notify::read_notifications;
use crate::config::overlap::check_listeners;
use crate::config::publish::read_folders;
use crate::config::source::read_sources;
use crate::config::table_reader::{Class, Located, TableReader, text};
use crate::config::value::{parse_nonzero_duration, parse_user_agent};
use crate::config::xmpp::read_xmpp;

impl Config {
    /// Reads a configuration file, and what it names of the environment of this process.
    ///
    /// # Errors
    /// All [`ConfigFaults`] of the file; one if it cannot be read or is not TOML.
    pub fn load(path: &Path) -> Result<Self, ConfigFaults> {
        Self::load_except(path, &[])
    }

    /// Like [`Config::load`], to check what another process is to use: see [`Environment::checking`].
    pub fn check(path: &Path) -> Result<Self, ConfigFaults> {
        let environment = Environment::of_process().checking();
        Self::parse_except(&read_text(path)?, path, &environment, &[])
    }

    /// Like [`Config::load`], but the file need not have a `[[source]]`, and the secrets of a Source may be unavailable.
    pub fn load_without_sources(path: &Path) -> Result<Self, ConfigFaults> {
        Self::load_except(path, &["no-source", "no-secret"])
    }

    /// The configuration where there is no file: the defaults, and what the environment names. `path`: where the file would be.
    pub fn without_file(path: &Path) -> Result<Self, ConfigFaults> {
        Self::parse_except("", path, &Environment::of_process(), &["no-source"])
    }

    /// Like [`Config::load`], but the secrets of a Source may be unavailable to this process: for commands that ask the daemon.
    pub fn load_without_secrets(path: &Path) -> Result<Self, ConfigFaults> {
        Self::load_except(path, &["no-secret"])
    }

    fn load_except(path: &Path, tolerated: &[&str]) -> Result<Self, ConfigFaults> {
        let text = read_text(path)?;
        Self::parse_except(&text, path, &Environment::of_process(), tolerated)
    }

    /// Parses the text of a configuration file, without an environment. Relative paths in it are relative to the folder of `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigFaults> {
        Self::parse_in(text, path, &Environment::of(&[]))
    }

    /// As [`parse`](Self::parse), in an environment.
    pub fn parse_in(
        text: &str,
        path: &Path,
        environment: &Environment,
    ) -> Result<Self, ConfigFaults> {
        Self::parse_except(text, path, environment, &[])
    }

    /// As [`parse_in`](Self::parse_in), but faults with these codes are tolerated.
    pub(super) fn parse_except(
        text: &str,
        path: &Path,
        environment: &Environment,
        tolerated: &[&str],
    ) -> Result<Self, ConfigFaults> {
        examine(text, path, environment, |file, config| {
            file.check(tolerated).map(|()| config)
        })?
    }
}

/// Reads a configuration file.
pub(super) fn read_text(path: &Path) -> Result<String, ConfigFaults> {
    let unreadable =
        |line, why| reason!("unreadable": "cannot be read: {why}").alone(path, line, "");
    let bytes = fs::read(path).map_err(|error| {
        let step = match error.kind() {
            ErrorKind::NotFound => "; name the configuration with --config FILE or RESYNCD_CONFIG",
            ErrorKind::PermissionDenied => {
                "; run the command as the user of the daemon, such as `sudo -u resyncd resyncd …`"
            }
            _ => "",
        };
        unreadable(None, format!("{error}{step}"))
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let line = line_at(error.as_bytes(), error.utf8_error().valid_up_to());
        unreadable(Some(line), "not UTF-8".to_owned())
    })
}

/// Reads a text, with the files that it includes and the variables that set keys, as far as it is valid, and passes on what was found.
/// Text that is not TOML has one fault and no configuration.
pub(super) fn examine<T>(
    text: &str,
    path: &Path,
    environment: &Environment,
    then: impl FnOnce(&mut FileReader<'_>, Config) -> T,
) -> Result<T, ConfigFaults> {
    let file = std::path::absolute(path)
        .map_err(|error| reason!("unreadable": "cannot be read: {error}").alone(path, None, ""))?;
    let folder = file.parent().unwrap_or(&file);
    let joined = JoinedText::new(text, path, folder, environment)?;
    let document = joined.parse()?;
    let mut file = FileReader {
        joined: &joined,
        folder,
        environment,
        classes: Classes::new(),
        tables: Vec::new(),
        faults: Vec::new(),
    };
    let config = read(&mut file, &document);
    Ok(then(&mut file, config))
}

/// What was found in a text of a file that is nowhere.
pub(super) fn examine_here<T>(
    text: &str,
    then: impl FnOnce(&mut FileReader<'_>, Config) -> T,
) -> T {
    let examined = examine(text, Path::new("/config.toml"), &Environment::of(&[]), then);
    examined.expect("the text is TOML")
}

/// Reads the document. The result is valid only if no fault was found.
fn read<'f>(file: &mut FileReader<'f>, document: &'f DeTable<'f>) -> Config {
    let mut top = TableReader::new(file, "", String::new(), Some(document), None);
    // It has been included.
    let _ = top.list("include", |pattern| Ok(pattern.to_owned()));
    let state_dir = top.folder("state_dir");
    let state_dir = top.located("state_dir", state_dir);
    let mut section = top.table("callback");
    let callback = CallbackConfig::read(&mut section);
    let callback_at = section.located("listen", callback.listen);
    let mut section = top.table("status");
    let status = StatusConfig::read(&mut section);
    let status_at = section.located("listen", status.listen);
    let http = HttpSettings::read(&mut top.table("http"));
    let store = StoreSettings::read(&mut top.table("store"));
    let limits = read_limits(&mut top.table("limits"), &store);
    let feed = FeedConfig::read(&mut top.table("feed"));
    let log = LogConfig::read(&mut top.table("log"));
    let xmpp = read_xmpp(&mut top.table("xmpp"));
    let objects = ObjectSettings::read(&mut top.table("objects"), &state_dir.value);
    let notify = read_notifications(&mut top);
    let mut section = top.table("publish");
    let publish = PublishConfig::read(&mut section);
    let publish_at = section.located("listen", publish.listen);
    let found = read_folders(&mut section);
    check_listeners(top.file, &[callback_at, status_at, publish_at]);
    let folders = found.folders.clone();
    let sources = read_sources(&mut top, &state_dir, &objects, &publish, found);
    Config {
        state_dir: state_dir.value,
        callback,
        status,
        http,
        limits,
        feed,
        log,
        xmpp,
        store,
        objects,
        notify,
        publish,
        folders,
        sources,
    }
}

table! {
    impl HttpSettings = "http" {
        connections_per_host = number("connections_per_host", 1..=256),
        streams_per_host = number("streams_per_host", 1..=1000),
        timeout = duration("timeout", parse_nonzero_duration),
        user_agent = value("user_agent", Class::Any, text("a string", parse_user_agent)),
        allow_private_addresses = flag("allow_private_addresses"),
        allow_redirects_to_http = flag("allow_redirects_to_http"),
        proxies = proxies("proxy") [http: "proxy", https: "proxy", exceptions: "no_proxy"],
        authorities = content("ca_file", Class::PublicFile, read_authorities),
    }
}

fn read_authorities(path: &Path) -> Parsed<Authorities> {
    let shown = path.display();
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| reason!("unreadable": "cannot be read: {shown}: {error}"))?;
    Authorities::parse(&text).map_err(|error| reason!("bad-certificate": "{shown}: {error}"))
}

/// The longest URI that an index of PostgreSQL can have, in bytes, with what else it has.
const LONGEST_INDEXED: usize = 2560;

fn read_limits(section: &mut TableReader<'_, '_>, store: &StoreSettings) -> LimitsConfig {
    let mut limits = LimitsConfig::read(section);
    // An allowed notification that does not fit in the inbox would be deferred for ever. If only one of the two is configured, the
    // default of the other is adapted.
    if limits.inbox < limits.notification {
        if !section.is_present("notification") {
            limits.notification = limits.inbox;
        } else if !section.is_present("inbox") {
            limits.inbox = limits.notification;
        } else if section.is_set("notification") && section.is_set("inbox") {
            reject!(section, "inbox", "out-of-range": "smaller than limits.notification");
        }
    }
    if store.url.is_some() && limits.uri > LONGEST_INDEXED {
        if section.is_present("uri") {
            reject!(section, "uri", "out-of-range": "a PostgreSQL database can have URIs of up to {LONGEST_INDEXED} bytes");
        }
        limits.uri = LONGEST_INDEXED;
    }
    limits
}

/// The class of each key, by table and name.
pub(super) type Classes = BTreeMap<(&'static str, &'static str), Class>;

/// The classes of all keys. Reading a file states them, whatever it has.
pub(super) static CLASSES: LazyLock<Classes> = LazyLock::new(|| {
    const TABLES: &str = "[[notify]]\n[[publish.folder]]\n[[source]]\n[[source.hook]]\nurl = \"http://localhost/\"\n";
    examine_here(TABLES, |file, _| std::mem::take(&mut file.classes))
});

/// The kind of a table, the prefix of its keys in faults, and the table.
pub(super) type FoundTable<'a> = (&'static str, String, &'a DeTable<'a>);

/// What reading one file needs, and the faults that are found.
pub(super) struct FileReader<'a> {
    pub(super) joined: &'a JoinedText,
    /// What relative paths are relative to.
    pub(super) folder: &'a Path,
    pub(super) environment: &'a Environment,
    /// Of each key that was read, or looked for.
    pub(super) classes: Classes,
    /// The tables that were read.
    pub(super) tables: Vec<FoundTable<'a>>,
    /// With their keys and their lines of the joined text.
    faults: Vec<(Option<usize>, String, Reason)>,
}

impl<'a> FileReader<'a> {
    /// Whether a key on a line has a fault.
    pub(super) fn has_fault(&self, line: usize, key: &str) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|(at, of, _)| *at == Some(line) && of == key)
    }

    /// The line, from 1, that a part of the text begins on.
    pub(super) fn line(&self, span: Range<usize>) -> usize {
        self.joined.line(span)
    }

    /// Adds a fault; `line`: of the joined text, from 1, `None` if it is of the file as a whole.
    pub(super) fn add(&mut self, line: Option<usize>, key: &str, reason: Reason) {
        self.faults.push((line, key.to_owned(), reason));
    }

    /// Adds a fault of a part of the text.
    pub(super) fn add_at(&mut self, span: Range<usize>, key: &str, reason: Reason) {
        self.add(Some(self.line(span)), key, reason);
    }

    /// Adds a fault of a value that was read.
    pub(super) fn reject<T>(&mut self, located: &Located<T>, reason: Reason) {
        self.add(located.line, &located.key, reason);
    }

    /// Whether there are no faults but those with these codes.
    pub(super) fn check(&mut self, tolerated: &[&str]) -> Result<(), ConfigFaults> {
        let mut faults = self.faults();
        faults.0.retain(|fault| !tolerated.contains(&fault.code));
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }

    /// All faults since the last call, in the order of their lines.
    pub(super) fn faults(&mut self) -> ConfigFaults {
        let mut faults = std::mem::take(&mut self.faults);
        faults.sort_by_key(|(line, key, _)| (line.unwrap_or(usize::MAX), key.clone()));
        let faults = faults.into_iter();
        let faults = faults.map(|(line, key, reason)| self.joined.fault(line, &key, reason));
        ConfigFaults(faults.collect())
    }
}
