//! Reads the configuration file: TOML → [`Config`], or all its faults.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use resyncd_fetch::{Authorities, Proxies};
use toml::de::DeTable;
use url::Url;

use super::{
    CallbackConfig, Config, FeedConfig, HttpSettings, LimitsConfig, LogConfig, LogFormat,
    StatusConfig,
};
use crate::config::defaults::STATE_DIR;
use crate::config::environment::Environment;
use crate::config::fault::{ConfigFaults, FaultCollector, FaultKind};
use crate::config::overlap::{check_folders, check_listeners, check_names};
use crate::config::proxies::{parse_exception, parse_proxy, proxies_of_environment};
use crate::config::secret::Secret;
use crate::config::source::{DURATION, assign, read_sources};
use crate::config::syntax::parse_toml;
use crate::config::table_reader::{Located, TableReader, parse_path, table_of};
use crate::config::value::{
    parse_address, parse_duration_or_never, parse_host, parse_nonzero_duration, parse_nonzero_size,
    parse_public_url, parse_size, parse_uri_length, parse_user_agent,
};
use crate::config::xmpp::read_xmpp;

const LOG_FORMATS: &str = "\"auto\", \"text\" or \"json\"";

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
        let (config, mut faults) = examine(text, path, environment);
        faults.0.retain(|fault| !tolerated.contains(&fault.code));
        config.filter(|_| faults.is_empty()).ok_or(faults)
    }
}

/// Reads a configuration file.
pub(super) fn read_text(path: &Path) -> Result<String, ConfigFaults> {
    let unreadable =
        |line, why: String| ConfigFaults::one(path, line, "", &FaultKind::Unreadable(why));
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
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        unreadable(Some(line), "not UTF-8".to_owned())
    })
}

/// Reads a text as far as it is valid, and collects its faults. Text that is not TOML has one fault and no configuration.
fn examine(text: &str, path: &Path, environment: &Environment) -> (Option<Config>, ConfigFaults) {
    let folder = match folder_of(path) {
        Ok(folder) => folder,
        Err(faults) => return (None, faults),
    };
    let document = match parse_toml(text) {
        Ok(document) => document,
        Err(fault) => {
            let faults = ConfigFaults::one(path, Some(fault.line), &fault.key, &fault.kind);
            return (None, faults);
        }
    };
    let mut faults = FaultCollector::new(path, text);
    let config = read(&mut faults, &document, &folder, environment);
    (Some(config), faults.into_faults())
}

/// The folder that relative paths of a file are relative to.
pub(super) fn folder_of(path: &Path) -> Result<PathBuf, ConfigFaults> {
    let file = std::path::absolute(path).map_err(|error| {
        ConfigFaults::one(path, None, "", &FaultKind::Unreadable(error.to_string()))
    })?;
    Ok(file.parent().unwrap_or(&file).to_owned())
}

/// Reads the document. The result is valid only if no fault was found.
fn read<'t>(
    faults: &mut FaultCollector<'_>,
    document: &'t DeTable<'t>,
    folder: &Path,
    environment: &Environment,
) -> Config {
    let mut top = TableReader::new(faults, "", String::new(), document, None);
    let state_dir = top
        .path("state_dir", folder)
        .unwrap_or_else(|| STATE_DIR.into());
    let state_dir = top.located("state_dir", state_dir);

    let mut callback = CallbackConfig::default();
    let mut callback_at = Located {
        value: callback.listen,
        line: None,
        key: "callback.listen".to_owned(),
    };
    if let Some(mut section) = open(faults, document, "callback") {
        let listen = section.text("listen", ADDRESS, parse_address);
        assign(&mut callback.listen, listen);
        callback_at = section.located("listen", callback.listen);
        callback.public_url = section.text("public_url", "a URL", parse_public_url);
    }

    let mut status = StatusConfig::default();
    let mut status_at = Located {
        value: status.listen,
        line: None,
        key: "status.listen".to_owned(),
    };
    if let Some(mut section) = open(faults, document, "status") {
        let listen = section.text("listen", ADDRESS, parse_address);
        assign(&mut status.listen, listen);
        status_at = section.located("listen", status.listen);
        assign(&mut status.hosts, section.list("hosts", parse_host));
        let token = section.text("token_file", "a path", |text| match text {
            "" => Ok(None),
            path => Secret::read(&parse_path(path, folder)?).map(Some),
        });
        status.token = token.flatten();
    }
    check_listeners(faults, &callback_at, &status_at);

    let http = read_http(faults, document, folder, environment);
    let limits = open(faults, document, "limits").map_or_else(LimitsConfig::default, read_limits);
    let feed = open(faults, document, "feed").map_or_else(FeedConfig::default, read_feed);
    let log = open(faults, document, "log").map_or_else(LogConfig::default, read_log);
    let xmpp = open(faults, document, "xmpp");
    let xmpp = xmpp.and_then(|section| read_xmpp(section, folder, environment));
    let read = read_sources(faults, document.get("source"), folder, environment);
    check_names(faults, &read.names);
    check_folders(faults, &state_dir, &read.mirrors);
    Config {
        state_dir: state_dir.value,
        callback,
        status,
        http,
        limits,
        feed,
        log,
        xmpp,
        sources: read.sources,
    }
}

fn read_feed(mut section: TableReader<'_, '_>) -> FeedConfig {
    let mut feed = FeedConfig::default();
    if let Some(keep) = section.text("keep", DURATION, parse_duration_or_never) {
        feed.keep = Some(keep).filter(|keep| !keep.is_zero());
    }
    feed
}

fn read_log(mut section: TableReader<'_, '_>) -> LogConfig {
    let mut log = LogConfig::default();
    let format = section.text("format", LOG_FORMATS, parse_log_format);
    assign(&mut log.format, format);
    log
}

fn parse_log_format(text: &str) -> Result<LogFormat, FaultKind> {
    match text {
        "auto" => Ok(LogFormat::Auto),
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(FaultKind::BadChoice {
            found: text.to_owned(),
            choices: LOG_FORMATS,
        }),
    }
}

/// Where the proxies are named.
enum ProxyChoice {
    Environment,
    Off,
    At(Url),
}

fn read_http<'t>(
    faults: &mut FaultCollector<'_>,
    document: &'t DeTable<'t>,
    folder: &Path,
    environment: &Environment,
) -> HttpSettings {
    let mut http = HttpSettings::default();
    let mut choice = ProxyChoice::Environment;
    let mut exceptions = Vec::new();
    if let Some(mut section) = open(faults, document, "http") {
        let connections = section.number("connections_per_host", 1..=256);
        assign(&mut http.connections_per_host, connections);
        let streams = section.number("streams_per_host", 1..=1000);
        assign(&mut http.streams_per_host, streams);
        let timeout = section.text("timeout", DURATION, parse_nonzero_duration);
        assign(&mut http.timeout, timeout);
        let agent = section.text("user_agent", "a string", parse_user_agent);
        assign(&mut http.user_agent, agent);
        let private = section.flag("allow_private_addresses");
        assign(&mut http.allow_private_addresses, private);
        let redirects = section.flag("allow_redirects_to_http");
        assign(&mut http.allow_redirects_to_http, redirects);
        let proxy = section.text("proxy", "a URL", |text| match text {
            "" => Ok(ProxyChoice::Environment),
            "off" => Ok(ProxyChoice::Off),
            proxy => parse_proxy(proxy).map(ProxyChoice::At),
        });
        assign(&mut choice, proxy);
        assign(&mut exceptions, section.list("no_proxy", parse_exception));
        let authorities = section.text("ca_file", "a path", |text| match text {
            "" => Ok(Authorities::default()),
            path => read_authorities(&parse_path(path, folder)?),
        });
        assign(&mut http.authorities, authorities);
    }
    http.proxies = match choice {
        ProxyChoice::At(proxy) => Proxies {
            http: Some(proxy.clone()),
            https: Some(proxy),
            exceptions,
            is_of_file: true,
        },
        ProxyChoice::Off => Proxies::default(),
        ProxyChoice::Environment => {
            let found = proxies_of_environment(environment, exceptions);
            found.unwrap_or_else(|kind| {
                faults.add(None, "http.proxy", &kind);
                Proxies::default()
            })
        }
    };
    http
}

fn read_authorities(path: &Path) -> Result<Authorities, FaultKind> {
    let shown = path.display();
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| FaultKind::Unreadable(format!("{shown}: {error}")))?;
    Authorities::parse(&text)
        .map_err(|error| FaultKind::BadCertificate(format!("{shown}: {error}")))
}

fn read_limits(mut section: TableReader<'_, '_>) -> LimitsConfig {
    let mut limits = LimitsConfig::default();
    let document = section.text("document", SIZE, parse_nonzero_size);
    assign(&mut limits.document, document);
    let uri = section.text("uri", SIZE, parse_uri_length);
    assign(&mut limits.uri, uri);
    let resource = section.text("resource", SIZE, parse_size);
    limits.resource = resource.filter(|size| *size > 0);
    let package = section.text("package", SIZE, parse_size);
    limits.package = package.filter(|size| *size > 0);
    let notification = section.text("notification", SIZE, parse_nonzero_size);
    let inbox = section.text("inbox", SIZE, parse_nonzero_size);
    // An allowed notification that does not fit in the inbox would be deferred for ever. If only one of the two is configured, the
    // default of the other is adapted.
    if let (Some(notification), Some(inbox)) = (notification, inbox)
        && inbox < notification
    {
        let text = "smaller than limits.notification".to_owned();
        section.reject("inbox", &FaultKind::OutOfRange(text));
    }
    limits.notification =
        notification.unwrap_or_else(|| limits.notification.min(inbox.unwrap_or(u64::MAX)));
    limits.inbox = inbox.unwrap_or_else(|| limits.inbox.max(limits.notification));
    let held = section.number("held_notifications", 0..=1_000_000);
    assign(&mut limits.held_notifications, held);
    let resources = section.number("resources", 0..=usize::MAX >> 1);
    limits.resources = resources.filter(|most| *most > 0).map(|most| most as u64);
    assign(&mut limits.sets, section.number("sets", 1..=10_000));
    let third = section.number("third_party_requests", 2..=1_000_000);
    let third = third.and_then(|number| u32::try_from(number).ok());
    assign(&mut limits.third_party_requests, third);
    limits
}

const ADDRESS: &str = "an address such as \"127.0.0.1:8461\"";
const SIZE: &str = "a size such as \"64MiB\"";

/// Opens a table of the document, if present.
fn open<'s, 'f>(
    faults: &'s mut FaultCollector<'f>,
    document: &'s DeTable<'s>,
    name: &'static str,
) -> Option<TableReader<'s, 'f>> {
    let value = document.get(name)?;
    let table = table_of(
        faults,
        name,
        "a table with its name in single brackets",
        value,
    )?;
    let line = faults.line(value.span());
    Some(TableReader::new(
        faults,
        name,
        name.to_owned(),
        table,
        Some(line),
    ))
}
