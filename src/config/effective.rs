//! The configuration with the defaults of what it omits, as TOML.
//!
//! The defaults are those of `config.example.toml`, which a test holds against those of the program.

use std::path::Path;

use resyncd_core::hide_userinfo;
use toml::de::{DeTable, DeValue};

use super::Config;
use crate::config::environment::Environment;
use crate::config::fault::ConfigFaults;
use crate::config::file::{folder_of, read_text};
use crate::config::syntax::{parse_toml, toml_string};
use crate::config::table_reader::{FOLDERS, keys_of, parse_path};

/// The example, which has every key with its default.
pub(super) const EXAMPLE: &str = include_str!("../../config.example.toml");

/// The keys whose value in the example is no default.
pub(super) const WITHOUT_DEFAULT: [&str; 4] = ["public_url", "name", "url", "mirror"];

/// The tables, without `source`.
pub(super) const TABLES: [&str; 7] = [
    "callback", "status", "http", "limits", "feed", "log", "xmpp",
];

/// The hook of the example, which is commented out: a default configuration has none.
pub(super) fn hook_example() -> String {
    let lines = EXAMPLE.lines().skip_while(|line| *line != HOOK);
    let lines = lines.filter_map(|line| line.strip_prefix("# "));
    let is_key = |line: &&str| {
        let key = line.split_once(" = ");
        key.is_some_and(|(key, _)| !key.contains(' '))
    };
    lines
        .filter(is_key)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// How the hook of the example begins.
pub(super) const HOOK: &str = "# [[source.hook]]";

/// What all values of a file need.
struct Given<'a> {
    text: &'a str,
    folder: &'a Path,
    config: &'a Config,
    defaults: &'a DeTable<'a>,
    /// The hook of the example: its text, and its keys.
    hook: (&'a str, &'a DeTable<'a>),
}

impl Config {
    /// A configuration file with the defaults of what it omits, as TOML: each path is absolute, and user names, passwords and
    /// secrets are not shown. Secrets may be unavailable to this process.
    ///
    /// # Errors
    /// The faults of the file, as [`load`](Self::load).
    pub fn effective(path: &Path) -> Result<String, ConfigFaults> {
        let text = read_text(path)?;
        let environment = Environment::of_process();
        let config = Self::parse_except(&text, path, &environment, &["no-secret"])?;
        let folder = folder_of(path)?;
        let unreadable = |_| ConfigFaults::default();
        let document = parse_toml(&text).map_err(unreadable)?;
        let defaults = parse_toml(EXAMPLE).map_err(unreadable)?;
        let hook_text = hook_example();
        let hook = parse_toml(&hook_text).map_err(unreadable)?;
        let given = Given {
            text: &text,
            folder: &folder,
            config: &config,
            defaults: &defaults,
            hook: (&hook_text, &hook),
        };
        let mut shown = format!(
            "# {}, with the defaults of resyncd {} for what it omits\n",
            path.display(),
            env!("CARGO_PKG_VERSION")
        );
        given.append(&mut shown, "", Some(&document));
        for table in TABLES {
            shown.push_str(&format!("\n[{table}]\n"));
            let section = document.get(table).and_then(|it| it.get_ref().as_table());
            given.append(&mut shown, table, section);
        }
        let sources = document
            .get("source")
            .and_then(|it| it.get_ref().as_array());
        for source in sources.into_iter().flatten() {
            shown.push_str("\n[[source]]\n");
            let source = source.get_ref().as_table();
            given.append(&mut shown, "source", source);
            let auth = source.and_then(|source| source.get("auth"));
            if let Some(auth) = auth.and_then(|auth| auth.get_ref().as_table()) {
                shown.push_str("\n[source.auth]\n");
                given.append(&mut shown, "source.auth", Some(auth));
            }
            let hooks = source.and_then(|source| source.get("hook"));
            let hooks = hooks.and_then(|hooks| hooks.get_ref().as_array());
            for hook in hooks.into_iter().flatten() {
                shown.push_str("\n[[source.hook]]\n");
                given.append(&mut shown, "source.hook", hook.get_ref().as_table());
            }
        }
        Ok(shown)
    }
}

impl Given<'_> {
    /// Appends the keys of a table.
    fn append(&self, shown: &mut String, kind: &str, table: Option<&DeTable<'_>>) {
        for &key in keys_of(kind) {
            if TABLES.contains(&key) || matches!(key, "source" | "auth" | "hook") {
                continue;
            }
            let value = table.and_then(|table| table.get(key));
            let line = match (value, self.default_of(kind, key)) {
                (Some(value), _) => {
                    let source = &self.text[value.span()];
                    format!("{key} = {}", self.value(key, value.get_ref(), source))
                }
                (None, Some(default)) => format!("{key} = {default}  # default"),
                (None, None) => format!("# {key} is not set"),
            };
            shown.push_str(&line);
            shown.push('\n');
        }
    }

    /// A value as it is used; `source`: as it is written.
    fn value(&self, key: &str, value: &DeValue<'_>, source: &str) -> String {
        let text = value.as_str().unwrap_or_default();
        match key {
            key if (FOLDERS.contains(&key) || key.ends_with("_file")) && !text.is_empty() => {
                let path = parse_path(text, self.folder).ok();
                path.map_or_else(
                    || source.to_owned(),
                    |path| toml_string(&path.to_string_lossy()),
                )
            }
            "url" | "hub" | "public_url" | "proxy" => toml_string(&hide_userinfo(text)),
            "header" => match text.split_once(':') {
                Some((name, value)) => toml_string(&format!("{name}:{}", variables_of(value))),
                None => toml_string(&variables_of(text)),
            },
            "bearer" | "basic" | "certificate" | "key" | "secret" | "password" => {
                toml_string(&variables_of(text))
            }
            _ => match value.as_array() {
                // All are of texts, which may be URLs.
                Some(array) => {
                    let texts = array.iter().filter_map(|text| text.get_ref().as_str());
                    let texts = texts.map(|text| toml_string(&hide_userinfo(text)));
                    format!("[{}]", texts.collect::<Vec<_>>().join(", "))
                }
                None => source.to_owned(),
            },
        }
    }

    /// The default of a key as TOML; `None`: it has none, or depends on something else.
    fn default_of(&self, kind: &str, key: &str) -> Option<String> {
        match key {
            // Each of the two is adapted to the other.
            "notification" => {
                return Some(toml_string(&self.config.limits.notification.to_string()));
            }
            "inbox" => return Some(toml_string(&self.config.limits.inbox.to_string())),
            "user_agent" => return Some(toml_string(&self.config.http.user_agent)),
            key if WITHOUT_DEFAULT.contains(&key) => return None,
            _ => {}
        }
        let source = || {
            let sources = self.defaults.get("source")?.get_ref().as_array()?;
            sources.iter().next()?.get_ref().as_table()
        };
        let table = match kind {
            "" => Some(self.defaults),
            "source" => source(),
            "source.auth" => source()?.get("auth")?.get_ref().as_table(),
            // Only these two have one.
            "source.hook" if !matches!(key, "timeout" | "lines") => return None,
            "source.hook" => {
                let (text, table) = self.hook;
                return Some(text[table.get(key)?.span()].to_owned());
            }
            table => self.defaults.get(table)?.get_ref().as_table(),
        };
        Some(EXAMPLE[table?.get(key)?.span()].to_owned())
    }
}

/// The environment variables that a text names as `${VARIABLE}`; what is beside them may be secret.
fn variables_of(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((variable, after)) = after.split_once('}') else {
            break;
        };
        if !before.trim().is_empty() {
            shown.push('…');
        }
        shown.push_str(&format!("${{{variable}}}"));
        rest = after;
    }
    if !rest.trim().is_empty() {
        shown.push('…');
    }
    shown
}
